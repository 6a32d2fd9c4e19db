"""ESConv's dialogues, merged so that speakers alternate, and HEART's 300 histories that were cut from them, with the replies.

HEART's release labels turns by parity or by a list of speakers that is missing from the adversarial
file; here the speaker of each turn comes from ESConv, or from what was found by reading: every
adversarial history starts with the supporter, alternates, and ends with the seeker.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from heart_utils.runs import find_root
from heart_utils.sources.catalogue import DataError, find_data
from heart_utils.sources.files import complete, read_sample
from heart_utils.tables import check_table

__all__ = ["MAX_SENTENCES", "MAX_WORDS", "Dialogue", "count_role_swaps", "flag_reply", "load_strategy_turns"]

SPLITS = ("train", "valid", "test")
SPEAKERS = {"usr": "seeker", "sys": "supporter"}
LICENCE = "CC-BY-NC-4.0"


@dataclass(frozen=True)
class Dialogue:
    """One dialogue of ESConv, turns of one speaker in a row joined by a space, as HEART's release joins them.

    ``dialogue_id`` is ``esconv-``, the split, and the row in its file, from 0; ``ends`` gives for each merged turn the
    number of its last raw turn; ``strategies`` for each merged turn of the supporter those of its raw turns, joined by a
    plus sign between spaces; ``about`` ESConv's other fields.
    """

    dialogue_id: str
    turns: tuple[dict[str, str], ...]
    ends: tuple[int, ...]
    strategies: tuple[str, ...]
    about: dict[str, Any]


def read_dialogues() -> dict[str, list[Dialogue]]:
    """Read ESConv's three splits."""
    files = find_data("esconv")
    dialogues = {}
    for split in SPLITS:
        lines = files[f"{split}.json"].read_text(encoding="utf-8").splitlines()
        dialogues[split] = [_merge(f"esconv-{split}-{row:04d}", json.loads(line)) for row, line in enumerate(lines)]
    return dialogues


def load_esconv() -> pd.DataFrame:
    """Load the 1,300 dialogues whole, as histories with strategies and the seeker's own scores."""
    asked = {"distress_before": "initial_emotion_intensity", "distress_after": "final_emotion_intensity"}
    asked |= {"seeker_empathy": "empathy", "seeker_relevance": "relevance"}
    rows = []
    for one in itertools.chain(*read_dialogues().values()):
        seeker = one.about["survey_score"]["seeker"]
        row = history_row(one.dialogue_id, one.dialogue_id, "esconv", one.turns, one.about) | {
            "strategies": list(one.strategies)
        }
        rows.append(row | {name: seeker.get(theirs) for name, theirs in asked.items()})
    return check_table("histories", complete("histories", pd.DataFrame(rows)))


def _merge(dialogue_id: str, record: dict[str, Any]) -> Dialogue:
    runs = itertools.groupby(enumerate(record["dialog"]), key=lambda numbered: SPEAKERS[numbered[1]["speaker"]])
    merged = [(speaker, list(numbered)) for speaker, numbered in runs]
    return Dialogue(
        dialogue_id,
        turns=tuple({"speaker": speaker, "text": " ".join(raw["text"] for _, raw in run)} for speaker, run in merged),
        ends=tuple(run[-1][0] for _, run in merged),
        strategies=tuple(" + ".join(raw["strategy"] for _, raw in run) for who, run in merged if who == "supporter"),
        about={key: value for key, value in record.items() if key != "dialog"},
    )


def history_row(
    history_id: str, dialogue_id: str, source: str, turns: Sequence[dict[str, str]], about: dict[str, Any]
) -> dict[str, Any]:
    """Make a history of some turns with what ESConv, or HEART in the same words, says about them."""
    return {
        "history_id": history_id,
        "dialogue_id": dialogue_id,
        "source": source,
        "emotion": about["emotion_type"],
        "problem": about["problem_type"],
        "situation": (about["situation"] or "").strip() or None,
        "turns": list(turns),
        "licence": LICENCE,
        "flags": ["ends_with_supporter"] if turns[-1]["speaker"] == "supporter" else [],
    }


def load_strategy_turns() -> pd.DataFrame:
    """Load every supporter turn of ESConv with its strategy.

    Turns are not merged: a supporter who sends two messages in a row named a strategy for each. The
    label is the writer's own choice, out of eight, one a message; nobody coded the turns a second time.

    Returns
    -------
    pandas.DataFrame
        One row a turn: ``turn_id``, ``dialogue_id``, ``split`` (ESConv's own: by dialogue), ``position``
        (0 to 1, in the dialogue), ``text``, ``strategy`` (in snake_case), and ``in_heart``: whether HEART
        took a history from the dialogue, or rewrote it.

    Raises
    ------
    DataUnavailableError
        If ESConv is not at hand; the message says how to bring it.

    Examples
    --------
    >>> turns = load_strategy_turns()  # doctest: +SKIP
    >>> turns["strategy"].nunique()  # doctest: +SKIP
    8
    """
    named = ("heart_regular_index.csv", "heart_adversarial_index.csv")
    held_out = {(row["esconv_split"], row["esconv_row"]) for name in named for row in _index(name)}
    files = find_data("esconv")
    rows = []
    for split in SPLITS:
        for row, line in enumerate(files[f"{split}.json"].read_text(encoding="utf-8").splitlines()):
            dialogue_id, turns = f"esconv-{split}-{row:04d}", json.loads(line)["dialog"]
            rows += [
                (
                    f"{dialogue_id}-{number:03d}", dialogue_id, split, number / max(len(turns) - 1, 1), turn["text"].strip(),
                    re.sub("[- ]", "_", turn["strategy"].lower()), (split, row) in held_out,
                )
                for number, turn in enumerate(turns) if turn["speaker"] == "sys"
            ]  # fmt: skip
    return pd.DataFrame(rows, columns=["turn_id", "dialogue_id", "split", "position", "text", "strategy", "in_heart"])


DAMAGED_TEXT = (80, 82, 90)  #: Items whose released text lost quotation marks, and in 82 and 90 its end, in a CSV step.

PARITY = ("seeker", "supporter")  #: How the released judge prompt labels turns: even numbers are the seeker's.


def load_heart(*, twins: bool = False) -> pd.DataFrame:
    """Load HEART's histories: 280 standard ones, 20 adversarial ones, and on demand 20 calm twins."""
    dialogues = read_dialogues()
    regular = _index("heart_regular_index.csv")
    adversarial = _index("heart_adversarial_index.csv")
    file = find_data("heart")["dialogues_adversarial.json"]
    items = json.loads(file.read_text(encoding="utf-8"))
    rows = [_regular(row, dialogues) for row in regular]
    rows += [_adversarial(row, items, twins) for row in adversarial]
    if twins:
        rows += _calm_twins(adversarial, dialogues)
    table = pd.DataFrame(rows).fillna({"slice": "standard"})
    return check_table("histories", complete("histories", table))


def next_turns(histories: pd.DataFrame) -> pd.DataFrame:
    """Find what ESConv's supporter really said next after each history that was cut from a dialogue."""
    dialogues = {dialogue.dialogue_id: dialogue for split in read_dialogues().values() for dialogue in split}
    cut_from = histories.loc[histories["slice"] != "adversarial"]
    strange = cut_from.loc[~cut_from["dialogue_id"].isin(list(dialogues)), "history_id"]
    if len(strange):
        raise DataError(f"{len(strange)} histories are not cut from ESConv, such as {strange.iloc[0]!r}: nobody spoke next.")
    rows = []
    for history in cut_from.itertuples():
        turns = dialogues[str(history.dialogue_id)].turns
        cut = len(history.turns)  # type: ignore[arg-type]
        if cut < len(turns) and turns[cut]["speaker"] == "supporter":
            before = sum(turn["speaker"] == "supporter" for turn in turns[:cut])
            after = sum(turn["speaker"] == "supporter" for turn in turns[cut + 1 :])
            rows.append({"history_id": history.history_id, "text": turns[cut]["text"], "n_before": before, "n_after": after})
    return pd.DataFrame(rows, columns=["history_id", "text", "n_before", "n_after"])


def count_role_swaps(histories: pd.DataFrame) -> pd.DataFrame:
    """Count the histories in which labels by parity swap seeker and supporter.

    The released judge prompt calls turns 0, 2, 4 ... the seeker's. Where a history starts with the
    supporter, every label is then wrong.

    Parameters
    ----------
    histories : pandas.DataFrame
        A table of histories with the speakers right.

    Returns
    -------
    pandas.DataFrame
        Indexed by slice: ``n_histories``, ``n_swapped``.

    Examples
    --------
    >>> turns = [{"speaker": "supporter", "text": "Hello?"}, {"speaker": "seeker", "text": "Hi."}]
    >>> count_role_swaps(pd.DataFrame({"slice": ["standard", "standard"], "turns": [turns, turns[1:]]}))
              n_histories  n_swapped
    slice
    standard            2          1
    """
    swapped = histories["turns"].map(lambda turns: any(turn["speaker"] != PARITY[n % 2] for n, turn in enumerate(turns)))
    counted = pd.DataFrame({"slice": histories["slice"].astype(str), "swapped": swapped}).groupby("slice")
    return counted.agg(n_histories=("swapped", "size"), n_swapped=("swapped", "sum"))


def _index(name: str) -> list[dict[str, Any]]:
    """Read one of the project's own tables of facts about the release."""
    table = pd.read_csv(find_root() / "data" / "heart" / name)
    return [{str(column): value for column, value in row.items()} for row in table.to_dict("records")]


def _dialogue(row: dict[str, Any], dialogues: dict[str, list[Dialogue]]) -> Dialogue:
    return dialogues[row["esconv_split"]][int(row["esconv_row"])]


def _regular(row: dict[str, Any], dialogues: dict[str, list[Dialogue]]) -> dict[str, Any]:
    item = int(row["item"])
    dialogue = _dialogue(row, dialogues)
    cut = int(row["n_history"])
    turns = list(dialogue.turns[:cut])
    expected = (int(row["last_raw_turn_index"]), row["first_speaker"], row["last_speaker"], row["emotion_type"])
    found = (dialogue.ends[cut - 1], turns[0]["speaker"], turns[-1]["speaker"], dialogue.about["emotion_type"])
    if found != expected:
        raise DataError(f"Item {item} of the index does not fit {dialogue.dialogue_id}: expected {expected}, found {found}.")
    history = history_row(f"heart-{item:03d}", dialogue.dialogue_id, "heart", turns, dialogue.about)
    history["flags"] += ["baseline_misplaced"] if row["baseline_misplaced"] else []
    history["flags"] += ["damaged_text"] if item in DAMAGED_TEXT else []
    return history


def _adversarial(row: dict[str, Any], items: list[dict[str, Any]], twins: bool) -> dict[str, Any]:
    item = int(row["adversarial_item"])
    texts = items[item]["dialogue_history"]
    turns = [{"speaker": PARITY[(n + 1) % 2], "text": text.strip()} for n, text in enumerate(texts)]
    original = f"esconv-{row['esconv_split']}-{int(row['esconv_row']):04d}"
    history = history_row(f"heart-adv-{item:02d}", original, "heart", turns, items[item])
    twin = f"heart-calm-{item:02d}" if twins else None
    return {**history, "slice": "adversarial", "licence": "none stated", "twin_id": twin}


def _calm_twins(adversarial: list[dict[str, Any]], dialogues: dict[str, list[Dialogue]]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for row in adversarial:
        item = int(row["adversarial_item"])
        dialogue = _dialogue(row, dialogues)
        turns = list(dialogue.turns[: int(row["calm_last_merged_turn"]) + 1])
        n_seeker = sum(turn["speaker"] == "seeker" for turn in turns)
        if turns[-1]["speaker"] != "seeker" or n_seeker != row["n_seeker_turns"]:
            raise DataError(f"The calm twin of adversarial item {item} must end with seeker turn {row['n_seeker_turns']}.")
        history = history_row(f"heart-calm-{item:02d}", dialogue.dialogue_id, "heart", turns, dialogue.about)
        history["flags"] += ["repeated_history"] if any(other["turns"] == turns for other in rows) else []
        rows.append({**history, "slice": "calm_twin", "twin_id": f"heart-adv-{item:02d}"})
    return rows


MAX_WORDS = 40
MAX_SENTENCES = 3  #: HEART's limits of a reply.

ESCONV_SUPPORTER = "esconv-supporter"

GREETING = re.compile(
    r"\s*(hi|hello|hey|good (morning|afternoon|evening|day)|greetings|welcome)\b|.*\bhow are (you|things)\b", re.I
)
CLOSING = re.compile(
    r"\b(bye|goodbye|good ?night(?!'?s)|take care(?=\W*$|\W+and\b)|(nice|great|pleasure|good) (talking|chatting|speaking)"
    r"|have an? (\w+ )?(great|good|nice|wonderful|lovely|blessed) (day|night|evening|afternoon|weekend|one|rest)"
    r"|best of luck|good luck|thank you for (chatting|talking)|thanks for (chatting|talking))\b",
    re.I,
)


def published_replies(name: str, *, twins: bool = False) -> pd.DataFrame:
    """Load the replies that came with a set of histories."""
    if name == "sample":
        return read_sample("replies")
    if name == "heart":
        found = next_turns(load_heart(twins=twins))
        found["reply_id"] = found["history_id"] + f"--{ESCONV_SUPPORTER}"
    else:
        turns = []
        for dialogue in itertools.chain(*read_dialogues().values()):
            texts = {number: turn["text"] for number, turn in enumerate(dialogue.turns) if turn["speaker"] == "supporter"}
            for before, (number, text) in enumerate(texts.items()):
                after = len(texts) - before - 1
                turns.append((f"{dialogue.dialogue_id}--t{number:02d}", dialogue.dialogue_id, text, before, after))
        found = pd.DataFrame(turns, columns=["reply_id", "history_id", "text", "n_before", "n_after"])
    flags = [
        flag_reply(text, n_before=before, n_after=after)
        for text, before, after in zip(found["text"], found["n_before"], found["n_after"], strict=True)
    ]
    rows = found[["reply_id", "history_id", "text"]].assign(responder=ESCONV_SUPPORTER, flags=pd.Series(flags, dtype=object))
    return check_table("replies", complete("replies", rows))


def flag_reply(text: str, *, n_before: int, n_after: int) -> list[str]:
    """Flag a reply of a person that a model under HEART's protocol would not write.

    Parameters
    ----------
    text : str
        The reply.
    n_before, n_after : int
        How many turns of the supporter stand before and after it in its dialogue.

    Returns
    -------
    list of str
        ``greeting`` if it is the supporter's first turn and opens with a greeting or asks how the seeker is; ``closing`` if
        it says goodbye, wishes luck or a good day, or thanks for the talk, and at most half of the supporter's turns follow;
        ``over_40_words`` if it has more than 40 words, counted at white space.

    Examples
    --------
    >>> flag_reply("Hello, what brings you here?", n_before=0, n_after=9)
    ['greeting']
    >>> flag_reply("Good luck with the talk, and have a nice day!", n_before=9, n_after=1)
    ['closing']
    """
    flags = ["greeting"] if n_before == 0 and GREETING.match(text) else []
    flags += ["closing"] if n_after <= n_before and CLOSING.search(text) else []
    flags += ["over_40_words"] if len(text.split()) > MAX_WORDS else []
    return flags
