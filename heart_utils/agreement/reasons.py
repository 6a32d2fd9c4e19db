"""How far people and models give the same reasons for the same pair, beyond chance."""

from __future__ import annotations

import numpy as np
import pandas as pd

from heart_utils.ratings.resampling import ENOUGH_CLUSTERS, Rng, draw_weights, interval_columns, ratio, sums_by
from heart_utils.ratings.verdicts import Array, Codes
from heart_utils.tables import need_columns

__all__ = ["ThemeError", "theme_overlap"]


class ThemeError(ValueError):
    """Reasons cannot be compared as they stand."""


def theme_overlap(
    reasons: pd.DataFrame, codes: pd.DataFrame, *, n_resamples: int = 1000, ci_level: float = 0.95, rng: Rng = None
) -> pd.DataFrame:
    r"""Measure how far people's and models' reasons for the same verdict on a pair name the same themes, beyond chance.

    Themes that most reasons name overlap whatever the pair. So beside the overlap on the same pair
    stands the one with the other party's reasons for pairs of *other* dialogues, averaged over all of
    them: what shuffling the reasons would give. ``corrected`` is :math:`(o - e) / (1 - e)`.

    Parameters
    ----------
    reasons : pandas.DataFrame
        One row a reason: ``reason_id``, ``pair_id``, ``rater_kind``, ``verdict`` and the column named by
        `cluster`; ``dimension`` where there are several.
    codes : pandas.DataFrame
        ``reason_id``, ``code``, ``probability``; 0.5 or more is named. Reasons with no valid code do not enter.
    n_resamples, ci_level, rng
        As in :func:`~heart_utils.ratings.resampling.bootstrap_ci`.

    Returns
    -------
    pandas.DataFrame
        One row: ``overlap`` on the same pair, twice the common themes over all named (Dice); ``permuted``, with reasons
        given for pairs of other dialogues; ``excess``, the difference; and ``corrected``; each with ``_low`` and ``_high``;
        ``ci_level``, ``n_reason_pairs``, ``n_empty`` (reasons that named no theme, left out), ``n_clusters``, ``provisional``.

    Raises
    ------
    ThemeError
        If a column is missing, a party gave no reason, or the parties share no pair.

    Examples
    --------
    >>> reasons = pd.DataFrame({"reason_id": list("hmHM"), "pair_id": list("ppqq"), "dialogue_id": list("ppqq"),
    ...     "rater_kind": ["human", "model"] * 2, "verdict": "a"})
    >>> named = [("h", "warmth"), ("m", "warmth"), ("H", "advice"), ("M", "warmth")]
    >>> codes = pd.DataFrame([(r, c, float((r, c) in named)) for r in "hmHM" for c in ("warmth", "advice")],
    ...     columns=["reason_id", "code", "probability"])
    >>> theme_overlap(reasons, codes, n_resamples=0)[["overlap", "permuted"]].values.tolist()
    [[0.5, 0.5]]
    """
    need_columns(reasons, ["reason_id", "pair_id", "rater_kind", "dialogue_id", "verdict"], ThemeError)
    need_columns(codes, ["reason_id", "code", "probability"], ThemeError)
    named, kept = _named(reasons, codes)
    n_empty = int((named.sum(axis=1) == 0).sum())
    kept, named = kept[named.sum(axis=1) > 0], named[named.sum(axis=1) > 0]
    rows = reasons.iloc[kept].reset_index(drop=True)
    first, second = (np.flatnonzero((rows["rater_kind"] == who).to_numpy(dtype=bool)) for who in ("human", "model"))
    if not len(first) or not len(second):
        there = ", ".join(map(str, rows["rater_kind"].unique()))
        raise ThemeError(f"No reason that names a theme is by {'model' if len(first) else 'human'!r}. rater_kind is: {there}.")
    keys = ["pair_id", "verdict", *(["dimension"] if "dimension" in rows else [])]
    met = rows.loc[first, keys].assign(one=first).merge(rows.loc[second, keys].assign(other=second), on=keys)
    if met.empty:
        raise ThemeError("People and models share no pair on which they agree, so no reasons can be compared.")
    one, other = met["one"].to_numpy(), met["other"].to_numpy()
    where, clusters = pd.factorize(rows["dialogue_id"])
    same = sums_by(where[one], np.column_stack([_dice(named[one], named[other]), np.ones(len(one))]), len(clusters))
    # Only reasons that stand beside one of the other party are shuffled, so that both figures are of the same reasons.
    apart = _elsewhere(named, np.unique(one), np.unique(other), where, len(clusters))
    weights = np.vstack([np.ones((1, len(clusters))), draw_weights(len(clusters), n_resamples, rng)])
    overlap = ratio(*(weights @ same).T)
    permuted = ratio(*(((weights @ part) * weights).sum(axis=1) for part in apart))
    found = np.stack([overlap, permuted, overlap - permuted, ratio(overlap - permuted, 1.0 - permuted)], axis=-1)[:, None]
    n_clusters = int((same[:, 1] > 0).sum())
    ranges = dict.fromkeys(("overlap", "permuted", "excess", "corrected"), (-np.inf, 1.0))
    columns = interval_columns(ranges, found[0], found[1:], n_clusters, ci_level)
    counts = {"n_reason_pairs": len(one), "n_empty": n_empty, "n_clusters": n_clusters}
    level = ci_level if n_resamples else np.nan
    return pd.DataFrame({**columns, "ci_level": level, **counts, "provisional": n_clusters < ENOUGH_CLUSTERS})


def _named(reasons: pd.DataFrame, codes: pd.DataFrame) -> tuple[Array, Codes]:
    """Lay out which theme each reason names; reasons without valid codes are absent."""
    coded = codes.dropna(subset="probability")
    wide = coded.pivot_table(index="reason_id", columns="code", values="probability", aggfunc="max")
    at = wide.index.get_indexer(pd.Index(reasons["reason_id"]))
    kept = np.flatnonzero(at >= 0)
    return (wide.fillna(0.0).to_numpy()[at[kept]] >= 0.5).astype(float), kept


def _dice(one: Array, other: Array) -> Array:
    return np.asarray(2.0 * (one * other).sum(axis=1) / (one.sum(axis=1) + other.sum(axis=1)))


def _elsewhere(named: Array, first: Codes, second: Codes, where: Codes, n_clusters: int) -> tuple[Array, Array]:
    """Sum the overlap over all pairs of reasons from two different clusters, and count them, by both clusters."""
    dice = 2.0 * named[first] @ named[second].T / (named[first].sum(axis=1)[:, None] + named[second].sum(axis=1))
    place = where[first][:, None] * n_clusters + where[second]
    sums, counts = (np.bincount(place.ravel(), of, n_clusters**2) for of in (dice.ravel(), np.ones(dice.size)))
    other = 1.0 - np.eye(n_clusters)
    return sums.reshape(other.shape) * other, counts.reshape(other.shape) * other
