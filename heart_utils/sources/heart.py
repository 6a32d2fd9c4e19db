"""ESConv's dialogues, HEART's 300 histories cut from them and its rubrics; HeartBench's questions.

Turns are merged so that speakers alternate. Speakers come from ESConv or were read, not from the
parity in HEART's release.
"""

from __future__ import annotations

import itertools
import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from heart_utils.runs import find_root
from heart_utils.settings import JsonObject, Text, read_yaml
from heart_utils.sources.catalogue import find_data, find_source
from heart_utils.sources.defaults import complete, read_sample
from heart_utils.sources.formats import read_lines
from heart_utils.tables import DataError, check_table

__all__ = ["Dialogue", "MAX_SENTENCES", "MAX_WORDS", "flag_reply", "load_heart"]
__all__ += ["Code", "Codebook", "CodebookError", "load_codebooks", "load_rubric_items"]
__all__ += ["next_seeker_turns"]

SPLITS = ("train", "valid", "test")
SPEAKERS = {"usr": "seeker", "sys": "supporter"}
LICENCE = "CC-BY-NC-4.0"


#: What is read of a dialogue beside its turns.
ABOUT = ("emotion_type", "problem_type", "situation", "survey_score")


@dataclass(frozen=True)
class Dialogue:
    """One dialogue of ESConv, with consecutive turns of one speaker joined, as in HEART."""

    dialogue_id: str  #: ``esconv-``, the split, and the row in its file, from 0
    turns: tuple[dict[str, str], ...]
    #: of each merged turn of the supporter, joined by a plus sign between spaces
    strategies: tuple[str, ...]
    about: JsonObject  #: ESConv's fields that ``ABOUT`` names


def read_dialogues() -> dict[str, list[Dialogue]]:
    """Read ESConv's three splits."""
    files = find_data("esconv")
    dialogues = {}
    for split in SPLITS:
        lines = files[f"{split}.json"].read_text(encoding="utf-8").splitlines()
        dialogues[split] = [
            _merge(f"esconv-{split}-{row:04d}", json.loads(line)) for row, line in enumerate(lines)
        ]
    return dialogues


def load_esconv() -> pd.DataFrame:
    """Load the 1,300 dialogues whole, as histories with strategies and the seeker's own scores."""
    report_columns = {
        "distress_before": "initial_emotion_intensity",
        "distress_after": "final_emotion_intensity",
    }
    report_columns |= {"seeker_empathy": "empathy", "seeker_relevance": "relevance"}
    rows = []
    for one in itertools.chain(*read_dialogues().values()):
        seeker = one.about["survey_score"]["seeker"]
        row = history_row(one.dialogue_id, one.dialogue_id, "esconv", one.turns, one.about) | {
            "strategies": list(one.strategies)
        }
        rows.append(row | {name: seeker.get(theirs) for name, theirs in report_columns.items()})
    return check_table("histories", complete("histories", pd.DataFrame(rows)))


def _merge(dialogue_id: str, record: JsonObject) -> Dialogue:
    merged = [
        (who, list(run))
        for who, run in itertools.groupby(
            record["dialog"], key=lambda raw: SPEAKERS[raw["speaker"]]
        )
    ]
    return Dialogue(
        dialogue_id,
        turns=tuple(
            {"speaker": who, "text": " ".join(raw["text"] for raw in run)} for who, run in merged
        ),
        strategies=tuple(
            " + ".join(raw["strategy"] for raw in run) for who, run in merged if who == "supporter"
        ),
        about={key: record[key] for key in ABOUT},
    )


def history_row(
    history_id: str,
    dialogue_id: str,
    source: str,
    turns: Sequence[dict[str, str]],
    about: JsonObject,
) -> JsonObject:
    """Build a history from turns, with what ESConv or HEART's words say about them."""
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


#: Items whose released text lost quotation marks, and in 82 and 90 its end, in a CSV step.
DAMAGED_TEXT = (80, 82, 90)


def load_heart(*, twins: bool = False) -> pd.DataFrame:
    """Load HEART's histories, as ``load_histories("heart")`` gives them.

    Parameters
    ----------
    twins
        Whether to add each adversarial history's calm original (slice ``calm_twin``).

    Returns
    -------
    pandas.DataFrame
        A table of histories: 280 standard, 20 adversarial, and 20 calm twins on request.

    Raises
    ------
    DataUnavailableError
        If ESConv or HEART's release is not on this machine; the message says how to fetch it.

    Examples
    --------
    >>> from heart_utils import DataUnavailableError
    >>> try:
    ...     n_histories = len(load_heart())
    ... except DataUnavailableError:
    ...     n_histories = 300
    >>> n_histories
    300
    """
    dialogues = read_dialogues()

    def cut(history_id: str, row: dict[Any, Any], n_turns: int) -> JsonObject:
        dialogue = dialogues[row["esconv_split"]][row["esconv_row"]]
        return history_row(
            history_id, dialogue.dialogue_id, "heart", dialogue.turns[:n_turns], dialogue.about
        )

    rows: list[JsonObject] = []
    for row in _index("heart_regular_index.csv"):
        history = cut(f"heart-{row['item']:03d}", row, row["n_history"])
        history["flags"] += ["baseline_misplaced"] if row["baseline_misplaced"] else []
        history["flags"] += ["damaged_text"] if row["item"] in DAMAGED_TEXT else []
        rows.append({**history, "slice": "standard"})
    items = json.loads(find_data("heart")["dialogues_adversarial.json"].read_text(encoding="utf-8"))
    adversarial = _index("heart_adversarial_index.csv")
    for row in adversarial:
        item, original = (
            row["adversarial_item"],
            f"esconv-{row['esconv_split']}-{row['esconv_row']:04d}",
        )
        texts = items[item]["dialogue_history"]
        turns = [
            {"speaker": ("supporter", "seeker")[n % 2], "text": text.strip()}
            for n, text in enumerate(texts)
        ]
        history = history_row(f"heart-adv-{item:02d}", original, "heart", turns, items[item])
        twin = f"heart-calm-{item:02d}" if twins else None
        rows.append({**history, "slice": "adversarial", "licence": "none stated", "twin_id": twin})
    calm: list[list[dict[str, str]]] = []
    for row in adversarial if twins else ():
        history = cut(
            f"heart-calm-{row['adversarial_item']:02d}", row, row["calm_last_merged_turn"] + 1
        )
        history["flags"] += ["repeated_history"] if history["turns"] in calm else []
        calm.append(history["turns"])
        rows.append(
            {**history, "slice": "calm_twin", "twin_id": f"heart-adv-{row['adversarial_item']:02d}"}
        )
    return check_table("histories", complete("histories", pd.DataFrame(rows)))


def _index(name: str) -> list[dict[Any, Any]]:
    return pd.read_csv(find_root() / "data" / "heart" / name).to_dict("records")


MAX_WORDS = 40
MAX_SENTENCES = 3  #: HEART's limits of a reply.

ESCONV_SUPPORTER = "esconv-supporter"

GREETING = re.compile(
    r"\s*(hi|hello|hey|good (morning|afternoon|evening|day)|greetings|welcome)\b|.*\bhow are"
    r" (you|things)\b",
    re.I,
)
CLOSING = re.compile(
    r"\b(bye|goodbye|good ?night(?!'?s)|take care(?=\W*$|\W+and\b)|(nice|great|pleasure|good)"
    r" (talking|chatting|speaking)"
    r"|have an? (\w+ )?(great|good|nice|wonderful|lovely|blessed)"
    r" (day|night|evening|afternoon|weekend|one|rest)"
    r"|best of luck|good luck|thank you for (chatting|talking)|thanks for (chatting|talking))\b",
    re.I,
)


def next_seeker_turns(histories: pd.DataFrame) -> pd.DataFrame:
    """Take from ESConv what the person said next, after the supporter's reply to a history.

    Parameters
    ----------
    histories
        The table of histories; HEART's rewrites have no next turn in ESConv.

    Returns
    -------
    pandas.DataFrame
        One row a history with a next turn: ``history_id``, ``dialogue_id``, ``text``.

    Raises
    ------
    DataUnavailableError
        If ESConv is not on this machine; the message says how to fetch it.

    Examples
    --------
    >>> from heart_utils import load_histories
    >>> next_seeker_turns(load_histories("sample")).empty  # drafted for this project
    True
    """
    known = histories[histories["dialogue_id"].str.startswith("esconv-")]
    columns = ["history_id", "dialogue_id", "text"]
    if known.empty:
        return pd.DataFrame(columns=columns)
    dialogues = {one.dialogue_id: one for one in itertools.chain(*read_dialogues().values())}
    rows = []
    for history, dialogue_id, turns in known[["history_id", "dialogue_id", "turns"]].itertuples(
        index=False
    ):
        n, whole = len(turns), dialogues[dialogue_id].turns
        same = [turn["text"] for turn in turns] == [turn["text"] for turn in whole[:n]]
        after = [turn["speaker"] for turn in whole[n : n + 2]]
        if same and after == ["supporter", "seeker"]:
            rows.append((history, dialogue_id, whole[n + 1]["text"]))
    return pd.DataFrame(rows, columns=columns)


def published_replies(name: str, *, twins: bool = False) -> pd.DataFrame:
    """Load what the supporter really wrote for histories, or next."""
    if name == "sample":
        return read_sample("replies")
    turns = []
    for dialogue in itertools.chain(*read_dialogues().values()):
        texts = {
            number: turn["text"]
            for number, turn in enumerate(dialogue.turns)
            if turn["speaker"] == "supporter"
        }
        for before, (number, text) in enumerate(texts.items()):
            flags = flag_reply(text, n_before=before, n_after=len(texts) - before - 1)
            turns.append((dialogue.dialogue_id, number, text, flags))
    supporter_turns = pd.DataFrame(turns, columns=["dialogue_id", "number", "text", "flags"])
    if name == "heart":
        cut = load_heart(twins=twins).query("slice != 'adversarial'")
        supporter_turns = (
            cut[["history_id", "dialogue_id"]]
            .assign(number=cut["turns"].map(len))
            .merge(supporter_turns)
        )
        supporter_turns["reply_id"] = supporter_turns["history_id"] + f"--{ESCONV_SUPPORTER}"
    else:
        numbers = supporter_turns["number"].astype(str).str.zfill(2)
        supporter_turns = supporter_turns.assign(
            history_id=supporter_turns["dialogue_id"],
            reply_id=supporter_turns["dialogue_id"] + "--t" + numbers,
        )
    rows = supporter_turns[["reply_id", "history_id", "text", "flags"]].assign(
        responder=ESCONV_SUPPORTER
    )
    return check_table("replies", complete("replies", rows))


def flag_reply(text: str, *, n_before: int, n_after: int) -> list[str]:
    """Flag a reply of a person that a model under HEART's protocol would not write.

    Parameters
    ----------
    text
        The reply.
    n_before, n_after
        Number of the supporter's turns before and after it in its dialogue.

    Returns
    -------
    list of str
        ``greeting`` (the supporter's first turn greets or asks how the seeker is), ``closing`` (a
        goodbye, good wishes or thanks, with at most half of the supporter's turns to come),
        ``over_40_words``.

    Examples
    --------
    >>> flag_reply("Hello, what brings you here?", n_before=0, n_after=9)
    ['greeting']
    """
    flags = ["greeting"] if n_before == 0 and GREETING.match(text) else []
    flags += ["closing"] if n_after <= n_before and CLOSING.search(text) else []
    flags += ["over_40_words"] if len(text.split()) > MAX_WORDS else []
    return flags


class CodebookError(ValueError):
    """A file of codebooks cannot be read."""


@dataclass(frozen=True)
class Code:
    """One label of a codebook: what a reply does, and its lexicon, if any."""

    name: Text
    says: Text
    words: tuple[str, ...] = ()


Codebook = tuple[Code, ...]


@dataclass(frozen=True)
class Codebooks:
    """The file of codebooks: name -> codes."""

    codebooks: dict[Text, Codebook]
    about: str = ""


def load_codebooks() -> dict[str, Codebook]:
    """Load the codebooks of ``data/rubrics/strategies.yaml``.

    Returns
    -------
    dict
        Name of a codebook -> its codes.

    Raises
    ------
    CodebookError
        If the file cannot be read, or a name stands in it twice.

    Examples
    --------
    >>> {name: len(codes) for name, codes in load_codebooks().items()}
    {'release': 15, 'esconv': 8, 'focus': 4, 'safety': 4, 'risk': 2, 'seeker': 1}
    """
    path = find_root() / "data" / "rubrics" / "strategies.yaml"
    codebooks: dict[str, Codebook] = read_yaml(path, Codebooks, CodebookError).codebooks
    names = [code.name for codes in codebooks.values() for code in codes]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise CodebookError(
            f"{path}: {twice[0]!r} stands twice; each code needs a name of its own."
        )
    return codebooks


def load_rubric_items() -> pd.DataFrame:
    """Load the points of HeartBench's rubric items, without their words.

    Returns
    -------
    pandas.DataFrame
        ``question_id``, ``item``, ``ability``, ``points``, ``difficulty``, ``scene``.

    Examples
    --------
    >>> len(load_rubric_items())
    3114
    """
    return pd.read_parquet(find_root() / "data" / "heartbench" / "rubric.parquet")


ROLES = {"A": "seeker", "B": "supporter"}  #: HeartBench's.
FIELDS = ("question_id", "rubric", "dialogue")


def load_questions(name_or_path: str | os.PathLike[str] = "heartbench") -> pd.DataFrame:
    """Load rubric items of HeartBench, or of a JSON Lines file in its form, in the judge's order.

    A line has ``question_id``, ``rubric`` (``dimension``, ``score``, ``content``) and ``dialogue``
    (``role`` A or B, ``content``). A veto item has the ability ``"special"`` and may lack points.
    """
    names = pd.read_csv(find_root() / "data" / "heartbench" / "names.csv")
    lookup = {
        kind: dict(zip(rows["zh"], rows["name"], strict=True))
        for kind, rows in names.groupby("kind")
    }
    dimension = dict(zip(names["name"], names["dimension"], strict=True))
    rows = []
    for question in _read(name_or_path):
        for position, entry in enumerate(question["rubric"], start=1):
            ability = lookup["ability"].get(entry["dimension"]) or _snake(entry["dimension"])
            rows.append(
                {
                    "question_id": question["question_id"],
                    "item": f"{question['question_id']}-{position:02d}",
                    "position": position,
                    "ability": ability,
                    "dimension": dimension.get(ability),
                    "points": entry["score"],
                    "content": entry["content"],
                    "difficulty": question.get("difficulty"),
                    "scene": _named(lookup["scene"], question.get("primary_scene")),
                    "subscene": _named(lookup["subscene"], question.get("secondary_scene")),
                    "n_turns": len(question["dialogue"]),
                }
            )
    questions = pd.DataFrame(rows)
    questions["points"] = pd.to_numeric(questions["points"])
    return questions


def load_question_histories(name_or_path: str | os.PathLike[str] = "heartbench") -> pd.DataFrame:
    """Load the questions' dialogues as a table of histories."""
    own = os.fspath(name_or_path) != "heartbench"
    rows = [
        {
            "history_id": question["question_id"],
            "source": Path(name_or_path).stem,
            "turns": [
                {"speaker": ROLES[turn["role"]], "text": turn["content"]}
                for turn in question["dialogue"]
            ],
            "licence": "none stated" if own else find_source("heartbench").licence,
            "flags": ["hard"] if question.get("difficulty") == "hard" else [],
        }
        for question in _read(name_or_path)
    ]
    return check_table("histories", complete("histories", pd.DataFrame(rows)))


def _read(name_or_path: str | os.PathLike[str]) -> list[JsonObject]:
    if os.fspath(name_or_path) == "heartbench":
        file = find_data("heartbench")["question_all.jsonl"]
    else:
        file = Path(name_or_path).expanduser()
    seen: set[str] = set()
    questions = []
    for number, question in read_lines(file):
        fault = _fault(question, seen)
        if fault:
            raise DataError(f"{file.name} line {number}: {fault}.")
        seen.add(question["question_id"])
        questions.append(question)
    return questions


def _fault(question: Any, seen: set[str]) -> str | None:
    if not isinstance(question, dict) or not all(question.get(field) for field in FIELDS):
        return f"expected {', '.join(FIELDS)}, none of them empty"
    if question["question_id"] in seen:
        return f"the question {question['question_id']!r} was there before; expected each once"
    for position, entry in enumerate(question["rubric"], start=1):
        if not isinstance(entry, dict) or not {"dimension", "score", "content"} <= set(entry):
            return f"rubric item {position} lacks dimension, score or content"
        if not isinstance(entry["score"], int | float | None):
            return (
                f"rubric item {position} has the score {entry['score']!r}, expected a number or"
                " null"
            )
        if entry["score"] == 0:
            return (
                f"rubric item {position} has a score of 0, so it can change nothing; give it"
                " points, or drop it"
            )
    if not any((entry["score"] or 0) > 0 for entry in question["rubric"]):
        return (
            "no rubric item has a score above 0, so a reply can only lose there; add what a good"
            " reply does"
        )
    for position, turn in enumerate(question["dialogue"], start=1):
        if not isinstance(turn, dict) or turn.get("role") not in ROLES or not turn.get("content"):
            return f"turn {position} is not a role (A or B) and a content"
    if question["dialogue"][-1]["role"] != "A":
        return "the last turn is not the user's (role A), so there is nothing to answer"
    return None


def _named(lookup: dict[str, str], value: str | None) -> str | None:
    return (lookup.get(value) or _snake(value)) if value else None


def _snake(name: str) -> str:
    return re.sub(r"\W+", "_", name.strip().lower())
