"""How few verdicts, or dialogues, hold up the first place."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from heart_utils.ratings.bradley_terry import BradleyTerry, entry_weights, pairs_of
from heart_utils.ratings.verdicts import Array, Codes, RatingsError, need, read_verdicts

__all__ = ["Fragility", "find_fragility"]


N_RIVALS = 3


@dataclass(frozen=True, eq=False)
class Fragility:
    """A small set whose removal gives the first place to another."""

    unit: str  #: ``"verdict"``, or the column whose values are removed whole
    first: str  #: who leads, and who does without the set; `rival` is empty if no set was found
    rival: str
    n_removed: int | None  #: size of the set, checked by fitting without it; None if none was found
    n_units: int  #: of how many
    removed: pd.Index  #: the set: labels of rows of the verdicts, or values of the column


def find_fragility(
    verdicts: pd.DataFrame,
    *,
    unit: str = "verdict",
    dimension: str = "overall",
    weights: str = "pairs",
) -> Fragility:
    """Find a small set of verdicts, or of dialogues, without which another is first.

    Those with most influence, to first order, on the gap to a rival are taken away, and the number
    is settled by fitting without them, for the three nearest rivals. A smaller set may exist, so
    the size is an upper bound (Broderick and others 2020, https://arxiv.org/abs/2011.14999; for
    boards of models Huang and others 2025, https://arxiv.org/abs/2508.11847).

    Parameters
    ----------
    verdicts
        As in :func:`~heart_utils.ratings.ratings.fit_ratings`.
    unit : str
        ``"verdict"``, or a column such as ``"dialogue_id"`` or ``"rater"``.
    dimension, weights
        As in :func:`~heart_utils.ratings.ratings.fit_ratings`.

    Returns
    -------
    Fragility
        Of one verdict where two lead together.

    Raises
    ------
    RatingsError
        If verdicts cannot be read, or the column is missing.

    Examples
    --------
    >>> votes = pd.DataFrame(
    ...     {"responder_a": "x", "responder_b": "y", "verdict": list("aaaaaabbbb")}
    ... )
    >>> find_fragility(votes, weights="verdicts").n_removed  # 6 to 4 without three is 3 to 4
    3
    """
    need(verdicts, [] if unit == "verdict" else [unit])
    cluster = "dialogue_id" if "dialogue_id" in verdicts else None
    entries = read_verdicts(verdicts, dimension=dimension, cluster=cluster)
    rows = entries.table.iloc[entries.rows]
    codes, names = (
        (np.arange(len(rows)), rows.index) if unit == "verdict" else pd.factorize(rows[unit])
    )
    model = BradleyTerry.fit(entries, weights)
    order = np.argsort(-model.theta, kind="stable")
    leader = str(entries.responders[order[0]])

    def leads_without(removed: Codes) -> str | None:
        try:
            kept = read_verdicts(
                rows[~np.isin(codes, removed)], dimension=dimension, cluster=cluster
            )
            theta = BradleyTerry.fit(kept, weights).theta
        except RatingsError:  # nothing is left, or not all are linked any more
            return None
        best = np.flatnonzero(theta > theta.max() - 1e-9)
        return str(kept.responders[best[0]]) if len(best) == 1 else None

    def flips(removed: Codes) -> bool:
        return leads_without(removed) not in (leader, None)

    smallest = None
    moved = influences(model, deletions(model) if unit == "verdict" else model.residuals)
    for promise, taken in _candidates(model.theta, moved, codes, len(names), order):
        limit = len(taken) if smallest is None else len(smallest) - 1
        high = min(promise or limit, limit)
        while high < limit and not flips(taken[:high]):
            high = min(2 * high, limit)
        if high < 1 or not flips(taken[:high]):
            continue
        low = 0
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if flips(taken[:middle]) else (middle, high)
        smallest = taken[:high]
    if smallest is None:
        return Fragility(unit, leader, "", None, len(names), names[:0])
    return Fragility(
        unit, leader, leads_without(smallest) or "", len(smallest), len(names), names[smallest]
    )


def _candidates(
    theta: Array, moved: Array, codes: Codes, n_units: int, order: Codes
) -> list[tuple[int | None, Codes]]:
    """Order the units by how much each favours the leader over one of its nearest rivals.

    Each order comes with the number of removals predicted to end the lead.
    """
    candidates: list[tuple[int | None, Codes]] = []
    for rival in order[1:]:
        shift = np.bincount(codes, moved[:, order[0]] - moved[:, rival], n_units)
        taken = np.argsort(-shift, kind="stable")
        taken = taken[shift[taken] > 0]
        enough = np.flatnonzero(np.cumsum(shift[taken]) > theta[order[0]] - theta[rival])
        candidates.append((int(enough[0]) + 1 if len(enough) else None, taken))
    return sorted(candidates, key=lambda one: one[0] or np.inf)[:N_RIVALS]


def influences(model: BradleyTerry, residual: Array) -> Array:
    """Compute how far each entry moves the strengths: to first order, its removal undone."""
    return np.asarray(
        residual * (model.bread[:, model.entries.a] - model.bread[:, model.entries.b]).T
    )


def deletions(model: BradleyTerry) -> Array:
    """Compute the change of the gradient when each entry is left out; shape (entries, 1)."""
    # Where pairs weigh the same, the entries of a cluster and pair share one voice: without one the
    # others speak louder.
    if model.weights == "verdicts":
        return model.residuals
    entries, (weight, per_pair), (pair, side) = (
        model.entries,
        entry_weights(model.entries, "pairs"),
        pairs_of(model.entries),
    )
    lead, n = side * (entries.share - 0.5), np.round(1.0 / weight)
    cell = pd.factorize(entries.cluster * len(model.theta) ** 2 + pair)[0]
    own, total = np.bincount(cell, lead * weight)[cell], np.bincount(pair, weight)[pair]
    mean = np.bincount(pair, weight * lead)[pair] / total
    within = (lead - own) / np.maximum(n - 1.0, 1.0) / total
    alone = (lead - mean) / np.maximum(total - 1.0, 1.0)
    return np.asarray((side * (per_pair or 1.0) * np.where(n > 1, within, alone))[:, None])
