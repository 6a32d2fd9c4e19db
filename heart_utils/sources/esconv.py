"""ESConv's dialogues: read, merged so that speakers alternate, cut where a supporter must answer."""

from __future__ import annotations

import csv
import json
import os
from dataclasses import dataclass
from typing import Any

import pandas as pd

from heart_utils.runs import find_root
from heart_utils.sources.fetch import find_data
from heart_utils.tables import check_table

__all__ = ["Dialogue", "load_strategy_turns"]

SPLITS = ("train", "valid", "test")
SPEAKERS = {"usr": "seeker", "sys": "supporter"}
LICENCE = "CC-BY-NC-4.0"


@dataclass(frozen=True)
class Dialogue:
    """One dialogue of ESConv, same-speaker turns merged.

    Attributes
    ----------
    dialogue_id : str
        ``esconv-``, the split, and the row in its file, from 0.
    turns : tuple of dict
        ``speaker`` and ``text``; texts of one speaker in a row are joined by a space, as HEART's
        release joins them.
    ends : tuple of int
        For each merged turn, the number of the last raw turn in it.
    strategies : tuple of str
        For each merged turn of the supporter, the strategies of its raw turns in order, joined by
        a plus sign between spaces.
    about : dict
        ESConv's other fields.
    """

    dialogue_id: str
    turns: tuple[dict[str, str], ...]
    ends: tuple[int, ...]
    strategies: tuple[str, ...]
    about: dict[str, Any]


def read_dialogues(*, mirror: str | os.PathLike[str] | None = None) -> dict[str, list[Dialogue]]:
    """Read ESConv's three splits."""
    files = find_data("esconv", mirror=mirror)
    dialogues = {}
    for split in SPLITS:
        lines = files[f"{split}.json"].read_text(encoding="utf-8").splitlines()
        dialogues[split] = [_merge(f"esconv-{split}-{row:04d}", json.loads(line)) for row, line in enumerate(lines)]
    return dialogues


def load_esconv(*, mirror: str | os.PathLike[str] | None = None) -> pd.DataFrame:
    """Load the 1,300 dialogues whole, as histories with strategies and the seeker's own scores."""
    rows = [_history(dialogue) for split in read_dialogues(mirror=mirror).values() for dialogue in split]
    return check_table("histories", pd.DataFrame(rows))


def _merge(dialogue_id: str, record: dict[str, Any]) -> Dialogue:
    turns: list[dict[str, str]] = []
    ends: list[int] = []
    strategies: list[str] = []
    for number, raw in enumerate(record["dialog"]):
        speaker = SPEAKERS[raw["speaker"]]
        same = bool(turns) and turns[-1]["speaker"] == speaker
        if same:
            turns[-1]["text"] += " " + raw["text"]
            ends[-1] = number
        else:
            turns.append({"speaker": speaker, "text": raw["text"]})
            ends.append(number)
        if speaker == "supporter":
            if same:
                strategies[-1] += " + " + raw["strategy"]
            else:
                strategies.append(raw["strategy"])
    about = {key: value for key, value in record.items() if key != "dialog"}
    return Dialogue(dialogue_id, tuple(turns), tuple(ends), tuple(strategies), about)


def _history(dialogue: Dialogue) -> dict[str, Any]:
    about = dialogue.about
    seeker = about["survey_score"]["seeker"]
    return {
        "history_id": dialogue.dialogue_id,
        "dialogue_id": dialogue.dialogue_id,
        "source": "esconv",
        "slice": "standard",
        "twin_id": None,
        "emotion": about["emotion_type"],
        "problem": about["problem_type"],
        "situation": about["situation"].strip() or None,
        "turns": list(dialogue.turns),
        "licence": LICENCE,
        "flags": ["ends_with_supporter"] if dialogue.turns[-1]["speaker"] == "supporter" else [],
        "simulated": False,
        "strategies": list(dialogue.strategies),
        "distress_before": seeker.get("initial_emotion_intensity"),
        "distress_after": seeker.get("final_emotion_intensity"),
        "seeker_empathy": seeker.get("empathy"),
        "seeker_relevance": seeker.get("relevance"),
    }


INDEXES = ("heart_regular_index.csv", "heart_adversarial_index.csv")


def load_strategy_turns(*, mirror: str | os.PathLike[str] | None = None) -> pd.DataFrame:
    """Load every supporter turn of ESConv with its strategy.

    Turns are not merged: a supporter who sends two messages in a row named a strategy for each. The
    label is the writer's own choice, out of eight, one a message; nobody coded the turns a second time.

    Parameters
    ----------
    mirror : path, optional
        As in ``find_data``.

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
    >>> load_strategy_turns(mirror="nowhere")
    Traceback (most recent call last):
    heart_utils.sources.errors.DataUnavailableError: The mirror nowhere has no esconv/test.json.
    """
    held_out = _taken_by_heart()
    files = find_data("esconv", mirror=mirror)
    rows = []
    for split in SPLITS:
        for row, line in enumerate(files[f"{split}.json"].read_text(encoding="utf-8").splitlines()):
            dialogue_id, turns = f"esconv-{split}-{row:04d}", json.loads(line)["dialog"]
            rows += [
                (
                    f"{dialogue_id}-{number:03d}", dialogue_id, split, number / max(len(turns) - 1, 1), turn["text"].strip(),
                    _snake(turn["strategy"]), (split, row) in held_out,
                )
                for number, turn in enumerate(turns) if turn["speaker"] == "sys"
            ]  # fmt: skip
    return pd.DataFrame(rows, columns=["turn_id", "dialogue_id", "split", "position", "text", "strategy", "in_heart"])


def _taken_by_heart() -> set[tuple[str, int]]:
    taken = set()
    for name in INDEXES:
        with (find_root() / "data" / "heart" / name).open(encoding="utf-8", newline="") as file:
            taken |= {(row["esconv_split"], int(row["esconv_row"])) for row in csv.DictReader(file)}
    return taken


def _snake(strategy: str) -> str:
    return strategy.lower().replace("-", "_").replace(" ", "_")
