"""Counts of who was rated higher: what is passed on of sets whose rows may not be."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from heart_utils.tables import check_table, needed_columns

__all__: list[str] = []


def tally(pairs: pd.DataFrame, keys: Sequence[str], **constants: object) -> pd.DataFrame:
    """Count how often either of two replies was rated higher."""
    difference = pairs["score_a"].astype(float) - pairs["score_b"].astype(float)
    counts = pd.DataFrame({"n_a": difference > 0, "n_tie": difference == 0, "n_b": difference < 0})
    counts = counts.groupby([pairs[key] for key in keys]).sum()
    empty = dict.fromkeys(needed_columns("tallies"))
    return check_table("tallies", pd.DataFrame({**empty, **counts.reset_index(), "simulated": False, **constants}))
