"""What a leaderboard does not show: consistency, people against models, twins, fragility."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from heart_utils.ratings.bradley_terry import (
    FLAT,
    BradleyTerry,
    count_wins,
    entry_weights,
    pairs_of,
)
from heart_utils.ratings.ratings import kinds_of
from heart_utils.ratings.resampling import (
    ENOUGH_CLUSTERS,
    Rng,
    as_rng,
    check_clusters,
    check_level,
    draw_weights,
    interval_ends,
    known_error,
    ratio,
    share_ci,
    standard_error,
)
from heart_utils.ratings.verdicts import (
    Array,
    Codes,
    Entries,
    RatingsError,
    is_simulated,
    need,
    read_verdicts,
)

__all__ = [
    "OUTCOMES",
    "Fragility",
    "consistency",
    "find_fragility",
    "head_to_head",
    "twin_contrasts",
]

PERCENTILE = 0.1


def consistency(
    verdicts: pd.DataFrame,
    *,
    rng: Rng = None,
    dimension: str = "overall",
    n_resamples: int = 1000,
    ci_level: float = 0.95,
) -> pd.DataFrame:
    r"""Estimate how far each responder's win probability varies between dialogues.

    Noise of single verdicts is removed. With :math:`p_{di}` the mean probability in dialogue
    :math:`d` that :math:`i` is preferred to its :math:`m` opponents, and :math:`e, e'` two verdicts
    of a dialogue less what strengths expect,

    .. math::

        \text{var}_d(p_{di}) = \tfrac{1}{m} E[e e' \mid \text{same opponent}]
        + \tfrac{m - 1}{m} E[e e' \mid \text{different}].

    Parameters
    ----------
    verdicts, rng, dimension, n_resamples, ci_level
        As in :func:`~heart_utils.ratings.ratings.fit_ratings`.

    Returns
    -------
    pandas.DataFrame
        One row a responder: ``mean`` (against all others); ``sd`` and ``tenth`` with intervals (one
        dialogue in ten goes as badly as this, by a beta distribution); ``n_clusters`` with two
        verdicts or more, ``n_single`` with one, left out. ``nan`` where no dialogue has two
        opponents of a responder that has several, or nothing varies.

    Raises
    ------
    RatingsError, ValueError
        If verdicts cannot be read, or do not link all responders; if there is one dialogue only.

    Examples
    --------
    >>> steady = pd.DataFrame({"responder_a": "x", "responder_b": "y", "verdict": list("abab") * 9})
    >>> consistency(steady.assign(dialogue_id=steady.index // 4), n_resamples=20)["sd"].tolist()
    [0.0, 0.0]
    """
    check_level(ci_level)
    entries = read_verdicts(verdicts, dimension=dimension, cluster="dialogue_id")
    n_clusters = len(entries.clusters)
    check_clusters(n_clusters, "dialogue_id")
    model = BradleyTerry.fit(entries, "pairs")
    chance = model.chance
    count, residual, same_opponent, other_opponents = _products(entries, chance)
    measured = count > 1
    weights = np.vstack([np.ones(n_clusters), draw_weights(n_clusters, n_resamples, rng)])
    mean_residual, spread = _spread(weights, measured, residual, same_opponent, other_opponents)
    against_all = (chance.sum(axis=1) - np.diag(chance)) / (len(chance) - 1)
    mean = np.clip(against_all + mean_residual, 1e-6, 1.0 - 1e-6)
    tenth = mean - np.sign(spread) * (mean - _low_end(mean, np.abs(spread)))
    n_used = measured.sum(axis=0)
    quantile = stats.t.ppf((1.0 + ci_level) / 2.0, np.maximum(n_used - 1, 1))
    reach_sd, reach_tenth = (
        quantile * known_error(standard_error(replicates[1:], n_used))
        for replicates in (spread, tenth)
    )
    return pd.DataFrame(
        {
            "responder": entries.responders,
            "mean": mean[0],
            "sd": np.maximum(spread[0], 0.0),
            "sd_low": np.maximum(spread[0] - reach_sd, 0.0),
            "sd_high": np.clip(spread[0] + reach_sd, 0.0, 0.5),
            "tenth": np.minimum(tenth[0], mean[0]),
            "tenth_low": np.maximum(tenth[0] - reach_tenth, 0.0),
            "tenth_high": np.minimum(tenth[0] + reach_tenth, 1.0),
            "ci_level": ci_level,
            "n_clusters": n_used,
            "n_single": (count == 1).sum(axis=0),
            "provisional": (n_used < ENOUGH_CLUSTERS) | np.isnan(reach_sd),
            "simulated": is_simulated(entries.table.iloc[entries.rows]),
        }
    )


def _products(entries: Entries, chance: Array) -> tuple[Array, Array, Array, Array]:
    """Average residuals, and their products on the same and on other opponents."""
    size, n_clusters = len(entries.responders), len(entries.clusters)
    residual = entries.share - chance[entries.a, entries.b]
    cell = np.concatenate([(entries.cluster * size + entries.a) * size + entries.b,
                           (entries.cluster * size + entries.b) * size + entries.a])  # fmt: skip
    residual = np.concatenate([residual, -residual])
    count, total, squares = (
        np.bincount(cell, weights, n_clusters * size**2)
        .astype(float)
        .reshape(n_clusters, size, size)
        for weights in (None, residual, residual**2)
    )
    mean = ratio(total, count, 0.0)
    n_opponents, again = (
        (count > 0).sum(axis=2).astype(float),
        (count > 1).sum(axis=2).astype(float),
    )
    same_opponent = ratio(ratio(total**2 - squares, count * (count - 1.0), 0.0).sum(axis=2), again)
    other_opponents = ratio(
        mean.sum(axis=2) ** 2 - (mean**2).sum(axis=2), n_opponents * (n_opponents - 1.0)
    )
    return count.sum(axis=2), ratio(mean.sum(axis=2), n_opponents), same_opponent, other_opponents


def _spread(
    weights: Array,
    measured: NDArray[np.bool_],
    residual: Array,
    same_opponent: Array,
    other_opponents: Array,
) -> tuple[Array, Array]:
    """Compute mean residual and spread; below 0 where noise exceeds it."""

    def average(values: Array) -> Array:
        known = measured & ~np.isnan(values)
        return ratio(weights @ np.where(known, values, 0.0), weights @ known)

    n, n_others = weights @ measured, measured.shape[1] - 1
    one, two = average(same_opponent), average(other_opponents)
    if n_others > 1:
        by_both = two + (np.nansum(two, axis=1, keepdims=True) - two) / n_others
        one = np.where((~np.isnan(same_opponent) & measured).any(axis=0), one, by_both)
    off = average(residual)
    around = ratio((average(residual**2) - off**2) * n, np.maximum(n - 1.0, 0.0))
    # The fit puts the residuals' mean near zero and so takes away what one more dialogue would
    # tell: a mean's variance.
    variance = (
        one / n_others
        + (two * (n_others - 1) / n_others if n_others > 1 else 0.0)
        - off**2
        + ratio(around, n)
    )
    return off, np.sign(variance) * np.sqrt(np.abs(variance))


def _low_end(mean: Array, spread: Array) -> Array:
    size = mean * (1.0 - mean) / np.clip(spread**2, 1e-9, 0.999 * mean * (1.0 - mean)) - 1.0
    return np.asarray(stats.beta.ppf(PERCENTILE, mean * size, (1.0 - mean) * size))


OUTCOMES = ("people", "models", "tie", "inconsistent")


def head_to_head(
    verdicts: pd.DataFrame,
    responders: pd.DataFrame,
    *,
    rng: Rng = None,
    by: Sequence[str] = (),
    dimension: str = "overall",
    n_resamples: int = 1000,
    ci_level: float = 0.95,
) -> pd.DataFrame:
    """Count who is preferred where a person's reply meets a model's.

    What is not said here is as in :func:`~heart_utils.ratings.ratings.fit_ratings`.

    Parameters
    ----------
    verdicts
        The verdicts table.
    responders
        With ``responder_kind`` (only ``human`` is a person).
    rng
        By default one with a fixed seed.
    by
        Columns to split by, such as ``slice``.
    dimension
        A line of the rubric.
    n_resamples, ci_level
        Of the intervals, over dialogues.

    Returns
    -------
    pandas.DataFrame
        One row per group and ``outcome``: ``share`` with its interval, ``n_verdicts``,
        ``n_clusters``. ``people``, ``models``, ``tie`` and ``inconsistent`` are
        shares of all; ``models_of_decided`` of those where someone was preferred.

    Raises
    ------
    RatingsError
        If a kind is unknown, or no person meets a model.

    Examples
    --------
    >>> votes = pd.DataFrame({"verdict": list("abba"), "dialogue_id": range(4)})
    >>> votes = votes.assign(responder_a="ann", responder_b="bot")
    >>> who = pd.DataFrame({"responder": ["ann", "bot"], "responder_kind": ["human", "model"]})
    >>> head_to_head(votes, who, n_resamples=50)["share"].head(2).tolist()
    [0.5, 0.5]
    """
    entries = read_verdicts(verdicts, dimension=dimension, cluster="dialogue_id")
    kind = kinds_of(responders, entries.responders)
    person, model = kind == "human", kind == "model"
    a_person = person[entries.a] & model[entries.b]
    meet = a_person | (model[entries.a] & person[entries.b])
    if not meet.any():
        raise RatingsError(
            f"No person's reply meets a model's on {dimension!r}: there are {int(person.sum())}"
            f" people and {int(model.sum())} models among {', '.join(entries.responders)}."
        )
    to_person = np.where(a_person, entries.share, 1.0 - entries.share)
    neither = entries.tie | entries.inconsistent | (to_person == 0.5)
    outcome = np.select(
        [entries.inconsistent, neither, to_person > 0.5],
        ["inconsistent", "tie", "people"],
        "models",
    )[meet]
    rows = entries.table.iloc[entries.rows[meet]]
    parts, rows = [], rows.assign(outcome=outcome)
    for group, of_group in rows.groupby(list(by), sort=True) if by else [((), rows)]:
        outcomes = of_group["outcome"]
        for name in (*OUTCOMES, "models_of_decided"):
            decided = name == "models_of_decided"
            share = share_ci(
                outcomes == ("models" if decided else name),
                outcomes.isin(OUTCOMES[:2]) if decided else 1,
                cluster=of_group["dialogue_id"],
                rng=rng,
                n_resamples=n_resamples,
                ci_level=ci_level,
            )
            parts.append(
                {
                    **dict(zip(by, group, strict=True)),
                    "outcome": name,
                    "share": share.estimate,
                    "ci_low": share.ci_low,
                    "ci_high": share.ci_high,
                    "ci_level": ci_level,
                    "n_verdicts": len(outcomes),
                    "n_clusters": share.n_clusters,
                    "provisional": share.provisional,
                }
            )
    return pd.DataFrame(parts).assign(simulated=is_simulated(rows))


TWINS = ("adversarial", "calm_twin")
SAME = 1e-9
# up to this number of dialogues every way to flip signs is tried; above, so many are drawn
ALL_FLIPS, N_FLIPS = 14, 2000


def twin_contrasts(
    verdicts: pd.DataFrame,
    *,
    contrasts: Mapping[str, tuple[Sequence[str], Sequence[str]]] | None = None,
    dimension: str = "overall",
    n_resamples: int = 1000,
    ci_level: float = 0.95,
    rng: Rng = None,
) -> pd.DataFrame:
    r"""Compare gaps of strength in adversarial histories with those in their calm twins.

    Slices have separate zero points, so only differences can be compared:

    .. math::

        \Delta_{ij} = (\theta_i - \theta_j)_\text{adversarial} - (\theta_i - \theta_j)_\text{calm},

    both fitted to the same resampled dialogues. The test flips twins' labels by dialogue.

    Parameters
    ----------
    verdicts
        Of the slices ``adversarial`` and ``calm_twin``; ``dialogue_id`` is that of the original,
        which twins share.
    contrasts
        Name -> two lists of responders, whose mean strengths are compared; by default every pair.
    dimension, n_resamples, ci_level, rng
        As in :func:`~heart_utils.ratings.ratings.fit_ratings`.

    Returns
    -------
    pandas.DataFrame
        One row a contrast: ``calm``, ``adversarial`` and ``delta`` (log-odds), this with ``se``,
        interval and ``p_value``. Where someone won or lost all of a slice, it is ``penalised``:
        tested, but without interval. ``n_flips`` are the ways to flip signs behind the p value
        (with all of them it is exact), ``n_unpaired`` verdicts whose dialogue has none on its twin.

    Raises
    ------
    RatingsError
        If no dialogue has both slices, or a contrast does not name two lists of responders.
    NotComparableError
        If the verdicts of a slice do not link all responders.

    Examples
    --------
    >>> from heart_utils.simulate.study import simulate_study
    >>> study = simulate_study(
    ...     rng=np.random.default_rng(1), strengths=2, n_dialogues=1, n_twins=20, pairs="all"
    ... )
    >>> found = twin_contrasts(study.verdicts, n_resamples=50)
    >>> found[["contrast", "delta"]].round(2).values.tolist()
    [['human_01 - model_01', 0.3]]
    """
    need(verdicts, ["slice", "dialogue_id"], "Twins are found by them.")
    entries = read_verdicts(verdicts, dimension=dimension, cluster="dialogue_id")
    of_slice = entries.table["slice"].iloc[entries.rows].to_numpy(dtype=object)
    twin = np.isin(of_slice.astype(str), TWINS)
    paired = np.logical_and(
        *(
            np.bincount(entries.cluster[of_slice == name], minlength=len(entries.clusters)) > 0
            for name in TWINS
        )
    )
    if not paired.any():
        raise RatingsError(
            f"No dialogue has verdicts on both {' and '.join(TWINS)}; the slices here are"
            f" {', '.join(sorted(set(map(str, of_slice))))}. Judge both."
        )
    kept = twin & paired[entries.cluster]
    used = entries.table.iloc[entries.rows[kept]]
    entries = read_verdicts(used, dimension=dimension, cluster="dialogue_id")
    n_clusters = len(entries.clusters)
    check_clusters(n_clusters, "dialogue_id")
    # Cell 2d holds what was said of dialogue d when adversarial, 2d + 1 when calm.
    cell = entries.cluster * 2 + (of_slice[kept] == TWINS[1])
    tally = count_wins(
        replace(entries, cluster=cell, clusters=pd.RangeIndex(2 * n_clusters)), weights="pairs"
    )
    every = itertools.combinations(map(str, entries.responders), 2)
    chosen = contrasts or {f"{one} - {other}": ([one], [other]) for one, other in every}
    matrix = _weights(chosen, entries.responders)
    rng = as_rng(rng)
    everyone, drawn = np.ones((1, n_clusters)), draw_weights(n_clusters, n_resamples, rng)
    flips = _flips(n_clusters, rng)
    slices = [_cells(everyone, 0 * everyone), _cells(0 * everyone, everyone)]
    fits = [BradleyTerry.fit(entries, "pairs", counts=tally.total(cells)) for cells in slices]

    def contrast_difference(adversarial: Array, calm: Array) -> Array:
        strengths = [
            fit.refit(tally.total(cells))
            for fit, cells in zip(fits, (adversarial, calm), strict=True)
        ]
        return np.asarray((strengths[0] - strengths[1]) @ matrix.T)

    gaps = [fit.theta @ matrix.T for fit in fits]
    delta = gaps[0] - gaps[1]
    again = contrast_difference(_cells(drawn, 0 * drawn), _cells(0 * drawn, drawn))
    # Who won or lost all in a slice is held by the prior alone, and resampling cannot say how far
    # away the truth may be.
    held = ((matrix != 0) & (fits[0].penalised | fits[1].penalised)).any(axis=1)
    # Nor can it where all dialogues say the same.
    se = standard_error(again, n_clusters)
    unknown = held | (se * np.sqrt(n_clusters) <= 4.0 * FLAT)
    low, high = (
        np.where(unknown, np.nan, end) for end in interval_ends(delta, again, n_clusters, ci_level)
    )
    as_wide = (
        np.abs(contrast_difference(_cells(~flips, flips), _cells(flips, ~flips)))
        >= np.abs(delta) - SAME
    )
    exact = len(flips) == 2**n_clusters
    p_value = as_wide.mean(axis=0) if exact else (1 + as_wide.sum(axis=0)) / (1 + len(flips))
    return pd.DataFrame(
        {
            "contrast": list(chosen),
            "calm": gaps[1],
            "adversarial": gaps[0],
            "delta": delta,
            "se": se,
            "ci_low": low,
            "ci_high": high,
            "ci_level": ci_level,
            "penalised": held,
            "p_value": p_value,
            "n_flips": len(flips),
            "n_clusters": n_clusters,
            "n_unpaired": (twin & ~kept).sum(),
            "simulated": is_simulated(used),
        }
    )


def _cells(adversarial: NDArray[Any], calm: NDArray[Any]) -> Array:
    return np.stack([adversarial, calm], axis=2).reshape(len(adversarial), -1).astype(float)


def _flips(n_clusters: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    if n_clusters <= ALL_FLIPS:
        return np.asarray((np.arange(2**n_clusters)[:, None] >> np.arange(n_clusters)) % 2 == 1)
    return rng.random((N_FLIPS, n_clusters)) < 0.5


def _weights(
    contrasts: Mapping[str, tuple[Sequence[str], Sequence[str]]], names: pd.Index
) -> Array:
    rows = np.zeros((len(contrasts), len(names)))
    for row, (name, (one, other)) in zip(rows, contrasts.items(), strict=True):
        if not len(one) or not len(other) or set(one) & set(other):
            raise RatingsError(
                f"The contrast {name!r} needs two groups that do not overlap, got {[*one]} and"
                f" {[*other]}."
            )
        if strangers := ", ".join(sorted({*one, *other} - set(names))):
            raise RatingsError(
                f"The contrast {name!r} names {strangers}, who is not on the leaderboard:"
                f" {', '.join(names)}."
            )
        row[names.get_indexer(pd.Index(list(one)))] = 1.0 / len(one)
        row[names.get_indexer(pd.Index(list(other)))] = -1.0 / len(other)
    return rows


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

    The set is found to first order and checked by a fit without it; a smaller one may exist
    (Broderick and others 2020, https://arxiv.org/abs/2011.14999).

    Parameters
    ----------
    verdicts
        As in :func:`~heart_utils.ratings.ratings.fit_ratings`.
    unit
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
    """Order units by how much each favours the leader over a near rival."""
    candidates: list[tuple[int | None, Codes]] = []
    for rival in order[1:]:
        shift = np.bincount(codes, moved[:, order[0]] - moved[:, rival], n_units)
        taken = np.argsort(-shift, kind="stable")
        taken = taken[shift[taken] > 0]
        enough = np.flatnonzero(np.cumsum(shift[taken]) > theta[order[0]] - theta[rival])
        candidates.append((int(enough[0]) + 1 if len(enough) else None, taken))
    return sorted(candidates, key=lambda one: one[0] or np.inf)[:N_RIVALS]


def influences(model: BradleyTerry, residual: Array) -> Array:
    """Compute how far removing each entry moves strengths, undone, to first order."""
    return np.asarray(
        residual * (model.bread[:, model.entries.a] - model.bread[:, model.entries.b]).T
    )


def deletions(model: BradleyTerry) -> Array:
    """Compute the change of the gradient when each entry is left out."""
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
