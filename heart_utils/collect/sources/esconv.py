"""ESConv's dialogues: read, merged so that speakers alternate, cut where a supporter must answer."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Any

import pandas as pd

from heart_utils.collect.sources.fetch import find_data
from heart_utils.tables import check_table

__all__ = ["Dialogue", "load_esconv", "read_dialogues"]

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
    """Read ESConv's three splits.

    Parameters
    ----------
    mirror : path, optional
        As in :func:`heart_utils.collect.sources.find_data`.

    Returns
    -------
    dict
        ``"train"``, ``"valid"``, ``"test"`` -> 910, 195 and 195 dialogues.

    Examples
    --------
    >>> read_dialogues(mirror="/nowhere")
    Traceback (most recent call last):
        ...
    DataUnavailableError: The mirror /nowhere has no esconv/test.json. Add it, or unset HEART_DATA_MIRROR and run ...
    """
    files = find_data("esconv", mirror=mirror)
    dialogues = {}
    for split in SPLITS:
        lines = files[f"{split}.json"].read_text(encoding="utf-8").splitlines()
        dialogues[split] = [_merge(f"esconv-{split}-{row:04d}", json.loads(line)) for row, line in enumerate(lines)]
    return dialogues


def load_esconv(*, mirror: str | os.PathLike[str] | None = None) -> pd.DataFrame:
    """Load the 1,300 dialogues whole, as histories with strategies and the seeker's own scores.

    Parameters
    ----------
    mirror : path, optional
        As in :func:`heart_utils.collect.sources.find_data`.

    Returns
    -------
    pandas.DataFrame
        A table of histories, a row a dialogue, with the optional columns: ``strategies`` (one text
        for each merged supporter turn, several raw turns joined by a plus sign between spaces), ``distress_before``
        and ``distress_after`` (the seeker's, 1 to 5), ``seeker_empathy`` and ``seeker_relevance``
        (the seeker's scores of the supporter, 1 to 5; 150 seekers gave only the first). A dialogue
        that ends with the supporter, as 875 do, has the flag ``ends_with_supporter``.

    Examples
    --------
    >>> load_esconv(mirror="/nowhere")
    Traceback (most recent call last):
        ...
    DataUnavailableError: The mirror /nowhere has no esconv/test.json. Add it, or unset HEART_DATA_MIRROR and run ...
    """
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
