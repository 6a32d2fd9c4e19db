"""HEART's 300 histories, rebuilt with the speakers right, and the calm originals of the adversarial ones.

The release labels turns by parity or by a list of speakers that is missing from the adversarial
file; here the speaker of each turn comes from ESConv, or from what was found by reading: every
adversarial history starts with the supporter, alternates, and ends with the seeker.
"""

from __future__ import annotations

import json
import os
from typing import Any

import pandas as pd

from heart_utils.runs import find_root
from heart_utils.sources.catalogue import DataError
from heart_utils.sources.esconv import Dialogue, history_row, read_dialogues
from heart_utils.sources.fetch import find_data
from heart_utils.sources.files import complete
from heart_utils.tables import check_table

__all__ = ["count_role_swaps"]

DAMAGED_TEXT = (80, 82, 90)
"""Items whose released text lost quotation marks, and in 82 and 90 its end, in a CSV step."""

PARITY = ("seeker", "supporter")
"""How the released judge prompt labels turns: even numbers are the seeker's."""


def load_heart(*, twins: bool = False, mirror: str | os.PathLike[str] | None = None) -> pd.DataFrame:
    """Load HEART's histories: 280 standard ones, 20 adversarial ones, and on demand 20 calm twins."""
    dialogues = read_dialogues(mirror=mirror)
    regular = _index("heart_regular_index.csv")
    adversarial = _index("heart_adversarial_index.csv")
    file = find_data("heart", mirror=mirror)["dialogues_adversarial.json"]
    items = json.loads(file.read_text(encoding="utf-8"))
    rows = [_regular(row, dialogues) for row in regular]
    rows += [_adversarial(row, items, twins) for row in adversarial]
    if twins:
        rows += _calm_twins(adversarial, dialogues)
    table = pd.DataFrame(rows).fillna({"slice": "standard"})
    return check_table("histories", complete("histories", table))


def next_turns(histories: pd.DataFrame, *, mirror: str | os.PathLike[str] | None = None) -> pd.DataFrame:
    """Find what ESConv's supporter really said next after each history that was cut from a dialogue."""
    dialogues = {dialogue.dialogue_id: dialogue for split in read_dialogues(mirror=mirror).values() for dialogue in split}
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
