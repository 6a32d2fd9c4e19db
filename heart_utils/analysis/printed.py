"""Printed figures beside ours: which of them follow from the same data."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

__all__ = ["set_beside"]

SLACK = 1e-9
"""Of a float, so that a difference of exactly half a digit still follows."""


def set_beside(printed: pd.DataFrame, found: pd.DataFrame, *, on: Sequence[str], digits: int = 2) -> pd.DataFrame:
    """Lay what was found beside what was printed, and say what follows.

    Parameters
    ----------
    printed : pandas.DataFrame
        The columns `on` and ``published``, one row a printed figure; other columns are kept.
    found : pandas.DataFrame
        The columns `on` and ``ours``; other columns are kept.
    on : sequence of str
        What names a figure.
    digits : int
        How many digits after the point were printed.

    Returns
    -------
    pandas.DataFrame
        The printed rows in their order, with ``ours``, ``away`` (the distance of the two) and ``follows`` (whether that is
        at most half of the last printed digit). What was not found has no value and does not follow.

    Raises
    ------
    ValueError
        If a figure was found more than once.

    Examples
    --------
    >>> printed = pd.DataFrame({"turn": [1, 2], "published": [0.66, 0.67]})
    >>> set_beside(printed, pd.DataFrame({"turn": [1, 2], "ours": [0.6604, 0.6]}), on=["turn"])["follows"].tolist()
    [True, False]
    """
    both = printed.merge(found, on=list(on), how="left", validate="many_to_one")
    away = (both["ours"] - both["published"]).abs()
    return both.assign(away=away, follows=away <= 0.5 * 10.0**-digits + SLACK)
