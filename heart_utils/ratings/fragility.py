"""How few verdicts, or dialogues, hold up the first place."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from heart_utils.ratings.bradley_terry import BradleyTerry, NotComparableError
from heart_utils.ratings.sandwich import influences
from heart_utils.ratings.verdicts import Codes, RatingsError, read_verdicts

__all__ = ["Fragility", "find_fragility"]

Array = NDArray[np.float64]

N_RIVALS = 3


@dataclass(frozen=True, eq=False)
class Fragility:
    """A small set whose removal gives the first place to another."""

    unit: str  # ``"verdict"``, or the column whose values are removed whole
    first: str  # who leads, and who does without the set; `rival` is empty if no set was found
    rival: str
    n_removed: int | None  # size of the set, checked by fitting without it; None if none was found
    n_units: int  # of how many
    foretold: int | None  # what first-order influence alone had promised
    removed: pd.Index  # the set: labels of rows of the verdicts, or values of the column


def find_fragility(
    verdicts: pd.DataFrame,
    *,
    unit: str = "verdict",
    dimension: str = "overall",
    weights: str = "pairs",
    cluster: str = "dialogue_id",
) -> Fragility:
    """Find a small set of verdicts, or of dialogues, without which another is first.

    Each unit's influence on the gap between the first and a rival is known to first order. The most
    influential are taken away in that order, and the number is settled by fitting without them, for the
    three rivals that seem nearest. The set found flips the first place; a still smaller one may exist,
    so the size is an upper bound [1]_.

    Parameters
    ----------
    verdicts : pandas.DataFrame
        As for :func:`heart_utils.ratings.ratings.fit_ratings`.
    unit : str
        ``"verdict"``, or a column such as ``"dialogue_id"`` or ``"rater"``.
    cluster : str
        The dialogues over which pairs are averaged.
    dimension, weights
        As in :func:`~heart_utils.ratings.ratings.fit_ratings`.

    Returns
    -------
    Fragility
        One verdict is enough where two lead together.

    Raises
    ------
    RatingsError
        If verdicts cannot be read, or the column is missing.

    References
    ----------
    .. [1] Broderick, Giordano and Meager (2020), https://arxiv.org/abs/2011.14999; for boards of models
       Huang and others (2025), https://arxiv.org/abs/2508.11847

    Examples
    --------
    >>> votes = pd.DataFrame({"responder_a": "x", "responder_b": "y", "verdict": ["a"] * 6 + ["b"] * 4, "dialogue_id": "d"})
    >>> found = find_fragility(votes, weights="verdicts")
    >>> found.first, found.rival, found.n_removed  # 6 to 4 without three is 3 to 4
    ('x', 'y', 3)
    """
    if unit != "verdict" and unit not in verdicts:
        raise RatingsError(f"verdicts lack the column {unit}. They have {', '.join(map(str, verdicts.columns))}.")
    clustered = cluster if cluster in verdicts else None
    entries = read_verdicts(verdicts, dimension=dimension, cluster=clustered)
    rows = verdicts.iloc[entries.rows]
    codes, names = _units(rows, unit)
    model = BradleyTerry.fit(entries, weights)
    order = np.argsort(-model.theta, kind="stable")
    first = int(order[0])
    moved = influences(model, model.deletions() if unit == "verdict" else None)
    best: tuple[int, int, Codes] | None = None
    foretold: int | None = None
    for rival, taken, promise in _candidates(model.theta, moved, codes, len(names), first, order):
        limit = len(taken) if best is None else best[0] - 1
        n_needed = _settle(rows, dimension, weights, clustered, codes, taken, str(entries.responders[first]), promise, limit)
        if n_needed is not None:
            best, foretold = (n_needed, rival, taken[:n_needed]), promise
    if best is None:
        return Fragility(unit, str(entries.responders[first]), "", None, len(names), None, names[:0])
    left = _leader(rows, dimension, weights, clustered, ~np.isin(codes, best[2]))
    return Fragility(unit, str(entries.responders[first]), left or "", best[0], len(names), foretold, names[best[2]])


def _units(rows: pd.DataFrame, unit: str) -> tuple[Codes, pd.Index]:
    if unit == "verdict":
        return np.arange(len(rows)), rows.index
    codes, names = pd.factorize(rows[unit])
    return codes, pd.Index(names)


def _candidates(
    theta: Array, moved: Array, codes: Codes, n_units: int, first: int, order: Codes
) -> list[tuple[int, Codes, int | None]]:
    """Give the rivals that seem nearest, with the units that hold them down, most influential first."""
    found = []
    for rival in order[1:]:
        pull = np.bincount(codes, moved[:, first] - moved[:, rival], n_units)
        taken = np.argsort(-pull, kind="stable")
        taken = taken[pull[taken] > 0]
        enough = np.flatnonzero(np.cumsum(pull[taken]) > theta[first] - theta[rival])
        found.append((int(rival), taken, int(enough[0]) + 1 if len(enough) else None))
    return sorted(found, key=lambda one: n_units + 1 if one[2] is None else one[2])[:N_RIVALS]


def _settle(
    rows: pd.DataFrame,
    dimension: str,
    weights: str,
    cluster: str | None,
    codes: Codes,
    taken: Codes,
    first: str,
    promise: int | None,
    limit: int,
) -> int | None:
    """Find the smallest number of units in this order, up to a limit, without which someone else leads."""

    def flips(number: int) -> bool:
        return _leader(rows, dimension, weights, cluster, ~np.isin(codes, taken[:number])) not in (first, None)

    high = min(promise or limit, limit)
    while high >= 1 and not flips(high):
        if high >= limit:
            return None
        high = min(2 * high, limit)
    if high < 1:
        return None
    low = 0
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if flips(middle) else (middle, high)
    return high


def _leader(rows: pd.DataFrame, dimension: str, weights: str, cluster: str | None, kept: NDArray[np.bool_]) -> str | None:
    """Say who leads on some of the rows; nobody if they fall apart."""
    if not kept.any():
        return None
    try:
        entries = read_verdicts(rows[kept], dimension=dimension, cluster=cluster)
        model = BradleyTerry.fit(entries, weights)
    except NotComparableError:
        return None
    best = np.flatnonzero(model.theta > model.theta.max() - 1e-9)
    return str(entries.responders[best[0]]) if len(best) == 1 else None
