"""Counts of who was rated higher: what is passed on of sets whose rows may not be."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from heart_utils.tables import check_table, needed_columns

__all__ = ["tally"]


def tally(pairs: pd.DataFrame, keys: Sequence[str], **constants: object) -> pd.DataFrame:
    """Count how often either of two replies was rated higher.

    Parameters
    ----------
    pairs : pandas.DataFrame
        One row a comparison, with ``score_a``, ``score_b`` and the columns of `keys`.
    keys : sequence of str
        Columns of a table of tallies: a row of the result is one combination of them.
    **constants
        Columns with one value in every row, such as ``study`` and ``by``.

    Returns
    -------
    pandas.DataFrame
        A table of tallies: ``n_a`` comparisons that a won, ``n_tie`` equal scores, ``n_b`` that b won.
        What is neither a key nor a constant is empty.

    Examples
    --------
    >>> pairs = pd.DataFrame({"cluster": "c", "score_a": [3, 2, 2], "score_b": [1, 2, 3]})
    >>> who = {"responder_a": "person", "responder_b": "model"}
    >>> tally(pairs, ["cluster"], study="s", by="batch", dimension="rating", **who)[["n_a", "n_tie", "n_b"]].values.tolist()
    [[1, 1, 1]]
    """
    difference = pairs["score_a"].astype(float) - pairs["score_b"].astype(float)
    counts = pd.DataFrame({"n_a": difference > 0, "n_tie": difference == 0, "n_b": difference < 0})
    counts = counts.groupby([pairs[key] for key in keys]).sum()
    empty = dict.fromkeys(needed_columns("tallies"))
    return check_table("tallies", pd.DataFrame({**empty, **counts.reset_index(), "simulated": False, **constants}))
