"""ESConv's dialogues: read, merged so that speakers alternate, cut where a supporter must answer."""

from __future__ import annotations

import csv
import itertools
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from heart_utils.runs import find_root
from heart_utils.sources.fetch import find_data
from heart_utils.sources.files import complete
from heart_utils.tables import check_table

__all__ = ["Dialogue", "load_strategy_turns"]

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
    rows = [_whole(dialogue) for split in read_dialogues(mirror=mirror).values() for dialogue in split]
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


def _whole(dialogue: Dialogue) -> dict[str, Any]:
    seeker = dialogue.about["survey_score"]["seeker"]
    row = history_row(dialogue.dialogue_id, dialogue.dialogue_id, "esconv", dialogue.turns, dialogue.about)
    return row | {
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
    heart_utils.sources.catalogue.DataUnavailableError: The mirror nowhere has no esconv/test.json.
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
