"""2,000 messages, each answered by a person, by GPT-4, and by GPT-4 told what empathy is; each reply rated by a stranger.

A batch is ten messages. In each of the three arms one rater rated the replies of a batch, and rated
no other: 600 raters. So two replies to one message were rated by two people, a comparison runs
across raters, and the batch is the cluster of messages and of raters alike.
"""

from __future__ import annotations

import itertools
import os

import numpy as np
import pandas as pd

from heart_utils.sources.errors import DataError
from heart_utils.sources.fetch import check_size, find_data
from heart_utils.sources.tallies import tally
from heart_utils.tables import LEVELS

__all__: list[str] = []

FILE = "dataset_and_ratings.csv"
ARMS = {"person": "human", "gpt-4": "chatgpt", "gpt-4-empathy": "chatgpt_empathy"}
RATINGS = (1, 2, 3)
"""Bad, okay, good."""

KEYS = ["responder_a", "responder_b", "cluster"]


def tally_welivita(*, mirror: str | os.PathLike[str] | None = None) -> pd.DataFrame:
    """Count which of two replies to one message was rated higher."""
    file = find_data("welivita", mirror=mirror)[FILE]
    rows = pd.read_csv(file)
    used = [f"{what}_{arm}" for what in ("annotator", "rating", "response", "empathy_propensity") for arm in ARMS.values()]
    check_size("welivita", FILE, rows, ["part_no", "emotion", *used])
    for arm in ARMS.values():
        _check_arm(rows, arm)
    levels = _levels(rows)
    pairs = pd.concat([_pairs(rows, levels, a, b) for a, b in itertools.combinations(ARMS, 2)], ignore_index=True)
    shared = {"study": "welivita", "dimension": "rating"}
    by_batch = tally(pairs, [*KEYS, "longer", "empathy_a", "empathy_b"], by="batch", **shared)
    by_emotion = tally(pairs.assign(cluster=pairs["emotion"]), KEYS, by="emotion", **shared)
    return pd.concat([by_batch, by_emotion], ignore_index=True)


def _check_arm(rows: pd.DataFrame, arm: str) -> None:
    strange = ~rows[f"rating_{arm}"].isin(RATINGS)
    if strange.any():
        row = int(strange.to_numpy().argmax())
        raise DataError(f"{FILE}: row {row} has rating_{arm} {rows[f'rating_{arm}'].iloc[row]}; expected 1, 2 or 3.")
    raters = rows.groupby("part_no")[f"annotator_{arm}"].nunique()
    if (raters > 1).any():
        raise DataError(f"{FILE}: batch {raters.idxmax()} has {raters.max()} raters of the arm {arm}; expected one.")


def _levels(rows: pd.DataFrame) -> dict[str, pd.Series]:
    """Cut the raters' own empathy into thirds of all raters; author -> third, a row of the file."""
    scores = {author: rows[f"empathy_propensity_{arm}"] for author, arm in ARMS.items()}
    one_each = pd.concat([values.groupby(rows["part_no"]).first() for values in scores.values()])
    cuts = [-np.inf, *one_each.quantile([1 / 3, 2 / 3]), np.inf]
    return {author: pd.cut(values, cuts, labels=LEVELS).astype(str) for author, values in scores.items()}


def _pairs(rows: pd.DataFrame, levels: dict[str, pd.Series], a: str, b: str) -> pd.DataFrame:
    words = {author: rows[f"response_{ARMS[author]}"].map(lambda text: len(text.split())) for author in (a, b)}
    return pd.DataFrame(
        {
            "responder_a": a,
            "responder_b": b,
            "cluster": "batch_" + (rows["part_no"] + 1).astype(str).str.zfill(3),
            "emotion": rows["emotion"],
            "longer": (words[a] - words[b]).clip(-1, 1).map({1: "a", 0: "same", -1: "b"}),
            "empathy_a": levels[a],
            "empathy_b": levels[b],
            "score_a": rows[f"rating_{ARMS[a]}"],
            "score_b": rows[f"rating_{ARMS[b]}"],
        }
    )
