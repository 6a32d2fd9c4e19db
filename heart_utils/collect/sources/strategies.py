"""ESConv's supporter turns one by one, each with the strategy that its writer named."""

from __future__ import annotations

import csv
import json
import os

import pandas as pd

from heart_utils.collect.sources.esconv import SPLITS
from heart_utils.collect.sources.fetch import find_data
from heart_utils.runs import find_root

__all__ = ["load_strategy_turns"]

INDEXES = ("heart_regular_index.csv", "heart_adversarial_index.csv")


def load_strategy_turns(*, mirror: str | os.PathLike[str] | None = None) -> pd.DataFrame:
    """Load every supporter turn of ESConv with its strategy.

    Turns are not merged: a supporter who sends two messages in a row named a strategy for each. The
    label is the writer's own choice, out of eight, one a message; nobody coded the turns a second time.

    Parameters
    ----------
    mirror : path, optional
        As in :func:`heart_utils.collect.sources.find_data`.

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
    heart_utils.collect.sources.errors.DataUnavailableError: The mirror nowhere has no esconv/test.json.
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
