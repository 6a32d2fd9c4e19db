"""How much a responder's standing varies from dialogue to dialogue."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from heart_utils.ratings.bradley_terry import BradleyTerry
from heart_utils.ratings.ratings import kinds_of
from heart_utils.ratings.resampling import (
    ENOUGH_CLUSTERS,
    Rng,
    check_clusters,
    check_level,
    draw_weights,
    known_error,
    ratio,
    refuse_few_raters,
    share_ci,
    standard_error,
)
from heart_utils.ratings.verdicts import (
    Array,
    Entries,
    RatingsError,
    is_simulated,
    need,
    read_verdicts,
)

__all__ = ["OUTCOMES", "consistency", "head_to_head"]


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

    Noise of single verdicts is removed; the low end of the spread is reported as well.

    With :math:`p_{di}` the mean probability in dialogue :math:`d` that :math:`i` is preferred to
    its :math:`m` opponents, and :math:`e` a verdict less what the fitted strengths expect of its
    pair,

    .. math::

        \text{var}_d(p_{di}) = \tfrac{1}{m} E[e e' \mid \text{same}]
        + \tfrac{m - 1}{m} E[e e' \mid \text{different}],

    each a mean over two verdicts of a dialogue, on the same or different opponents, then over
    dialogues. Where no two are on the same, the first term is taken from the second ones of both
    sides, as if a dialogue moved each by an amount of its own.

    Parameters
    ----------
    verdicts, rng, dimension, n_resamples, ci_level
        As in :func:`~heart_utils.ratings.ratings.fit_ratings`.

    Returns
    -------
    pandas.DataFrame
        One row a responder: ``mean`` (against all others), ``sd`` and ``tenth``, these two with t
        intervals. One dialogue in ten goes as badly as ``tenth`` or worse, by a beta distribution;
        ``n_clusters`` have two verdicts or more, ``n_single`` one (left out). ``nan`` where no
        dialogue has two opponents of a responder that has several; no interval where nothing varies
        between dialogues.

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
    half_widths = [
        quantile * known_error(standard_error(replicates[1:], n_used))
        for replicates in (spread, tenth)
    ]
    table = pd.DataFrame(
        {"responder": entries.responders, "mean": mean[0], "sd": np.maximum(spread[0], 0.0)}
    )
    table["sd_low"], table["sd_high"] = (
        np.maximum(spread[0] - half_widths[0], 0.0),
        np.clip(spread[0] + half_widths[0], 0.0, 0.5),
    )
    table["tenth"] = np.minimum(tenth[0], mean[0])
    table["tenth_low"], table["tenth_high"] = (
        np.maximum(tenth[0] - half_widths[1], 0.0),
        np.minimum(tenth[0] + half_widths[1], 1.0),
    )
    counts = {"ci_level": ci_level, "n_clusters": n_used, "n_single": (count == 1).sum(axis=0)}
    return table.assign(
        **counts,
        provisional=(n_used < ENOUGH_CLUSTERS) | np.isnan(half_widths[0]),
        simulated=is_simulated(entries.table.iloc[entries.rows]),
    )


def _products(entries: Entries, chance: Array) -> tuple[Array, Array, Array, Array]:
    """Average residuals and their products by dialogue and responder.

    Return the number of verdicts, the mean residual, and the mean product of two residuals with the
    same opponent and with different ones.
    """
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
    """Compute the mean residual and the spread under each row of weights.

    The spread is below zero where the noise exceeds the variance that is seen.
    """

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
    """Return the low percentile of a beta distribution with this mean and spread."""
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
    cluster: str | Sequence[str] = "dialogue_id",
    n_resamples: int = 1000,
    ci_level: float = 0.95,
) -> pd.DataFrame:
    """Count who is preferred where a person's reply meets a model's.

    Parameters
    ----------
    verdicts
        As in :func:`~heart_utils.ratings.ratings.fit_ratings`.
    responders
        Names each ``responder_kind`` (only ``human`` is a person).
    rng
        As in :func:`~heart_utils.ratings.ratings.fit_ratings`.
    by
        Columns to split by, such as ``slice``.
    dimension
        As in :func:`~heart_utils.ratings.ratings.fit_ratings`.
    cluster : str
        Or ``["dialogue_id", "rater"]`` for a two-way variance with a t quantile of the smaller
        number.
    n_resamples, ci_level
        As in :func:`~heart_utils.ratings.ratings.fit_ratings`.

    Returns
    -------
    pandas.DataFrame
        One row per group and ``outcome``: ``share`` with its interval, ``n_verdicts``,
        ``n_clusters``. ``people``, ``models``, ``tie`` and ``inconsistent`` are shares of all;
        ``models_of_decided`` is models' share where someone was preferred. Of two clusters,
        ``n_clusters`` is the smaller number.

    Raises
    ------
    RatingsError
        If a kind is unknown, no person meets a model, or raters of two clusters are under 20 or in
        one dialogue each.

    Examples
    --------
    >>> votes = pd.DataFrame(
    ...     {
    ...         "responder_a": "ann",
    ...         "responder_b": "bot",
    ...         "verdict": list("abba"),
    ...         "dialogue_id": range(4),
    ...     }
    ... )
    >>> who = pd.DataFrame({"responder": ["ann", "bot"], "responder_kind": ["human", "model"]})
    >>> head_to_head(votes, who, n_resamples=50)["share"].head(2).tolist()
    [0.5, 0.5]
    """
    clusters = [cluster] if isinstance(cluster, str) else list(cluster)
    entries = read_verdicts(verdicts, dimension=dimension, cluster=clusters[0])
    need(verdicts, clusters)
    kind = kinds_of(responders, entries.responders)
    person, model = kind == "human", kind == "model"
    a_person = person[entries.a] & model[entries.b]
    meet = a_person | (model[entries.a] & person[entries.b])
    if not meet.any():
        counted_kinds = (
            f"there are {int(person.sum())} people and {int(model.sum())} models among"
            f" {', '.join(entries.responders)}"
        )
        raise RatingsError(f"No person's reply meets a model's on {dimension!r}: {counted_kinds}.")
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
        outcomes, drawn = (
            of_group["outcome"],
            of_group[clusters[0]] if len(clusters) == 1 else of_group[clusters],
        )
        if len(clusters) == 2:
            where = "".join(
                f" where {column} is {value!r}" for column, value in zip(by, group, strict=True)
            )
            codes = [pd.factorize(of_group[column])[0] for column in clusters]
            refuse_few_raters(codes[0], codes[1], (clusters[0], clusters[1]), where)
        for name in (*OUTCOMES, "models_of_decided"):
            decided = name == "models_of_decided"
            share = share_ci(
                outcomes == ("models" if decided else name),
                outcomes.isin(OUTCOMES[:2]) if decided else 1,
                cluster=drawn,
                rng=rng,
                n_resamples=n_resamples,
                ci_level=ci_level,
            )
            of_share = {
                "outcome": name,
                "share": share.estimate,
                "ci_low": share.ci_low,
                "ci_high": share.ci_high,
            }
            counted = {
                "ci_level": ci_level,
                "n_verdicts": len(outcomes),
                "n_clusters": share.n_clusters,
            }
            parts.append(
                {
                    **dict(zip(by, group, strict=True)),
                    **of_share,
                    **counted,
                    "provisional": share.provisional,
                }
            )
    return pd.DataFrame(parts).assign(simulated=is_simulated(rows))
