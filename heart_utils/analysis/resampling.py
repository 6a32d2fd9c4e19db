"""Intervals from resampling whole clusters: what was sampled together is drawn together."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import stats

__all__ = ["Interval", "bootstrap_ci", "draw_weights", "estimate_rng", "interval_ends", "rank_ranges"]

Array = NDArray[np.float64]

MANY_CLUSTERS = 50
"""From this number on, the interval's ends are percentiles; below, SD times a t quantile covers better."""

ENOUGH_CLUSTERS = 30
"""Below this number a result is provisional."""


@dataclass(frozen=True, eq=False)
class Interval:
    """An estimate and how far it may be off, if clusters like these were drawn again.

    Attributes
    ----------
    estimate, ci_low, ci_high, se : float
        ``nan`` ends mean that no interval can be had.
    ci_level : float
        Such as 0.95.
    n_clusters : int
        What was resampled.
    n_undefined : int
        Resamples in which the statistic has no value (such as 0/0); they are left out and counted here.
    provisional : bool
        Fewer than 30 clusters.
    replicates : numpy.ndarray
        The statistic in each resample.
    """

    estimate: float
    ci_low: float
    ci_high: float
    se: float
    ci_level: float
    n_clusters: int
    n_undefined: int
    provisional: bool
    replicates: Array


def estimate_rng(seed: int, name: str) -> np.random.Generator:
    """Start the random generator of one estimate, from the seed and the estimate's name.

    Estimates that share a generator depend on each other: a new one moves every one that is drawn after it.

    Parameters
    ----------
    seed : int
        Of the whole analysis, zero or more.
    name : str
        Of the estimate; another name draws other resamples.

    Returns
    -------
    numpy.random.Generator
        The same for the same seed and name, in any process.

    Examples
    --------
    >>> first = estimate_rng(1, "ratings of people").random()
    >>> first == estimate_rng(1, "ratings of people").random(), first == estimate_rng(1, "agreement").random()
    (True, False)
    """
    return np.random.default_rng([seed, int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")])


def draw_weights(n_clusters: int, n_resamples: int, rng: np.random.Generator) -> Array:
    """Draw how often each cluster enters each resample.

    Parameters
    ----------
    n_clusters, n_resamples : int
        How many.
    rng : numpy.random.Generator
        The source of chance.

    Returns
    -------
    numpy.ndarray
        Counts of shape (resamples, clusters); each row sums to the number of clusters.

    Examples
    --------
    >>> draw_weights(4, 2, np.random.default_rng(1)).sum(axis=1)
    array([4., 4.])
    """
    drawn = rng.integers(0, n_clusters, size=(n_resamples, n_clusters))
    drawn += np.arange(n_resamples)[:, None] * n_clusters
    return np.bincount(drawn.ravel(), minlength=n_resamples * n_clusters).reshape(n_resamples, n_clusters).astype(float)


def bootstrap_ci(
    observations: pd.DataFrame,
    statistic: Callable[[pd.DataFrame], ArrayLike],
    *,
    cluster: str | pd.Series,
    rng: np.random.Generator,
    n_resamples: int = 1000,
    ci_level: float = 0.95,
) -> Interval:
    """Put an interval on any statistic that is a function of sums, resampling whole clusters.

    A share is a sum over a count, kappa and alpha are functions of the cells of a table of counts:
    all of them follow from sums over rows. So the rows are summed once a cluster, and every resample
    is a row of one matrix product.

    Parameters
    ----------
    observations : pandas.DataFrame
        One row per observation; every column but `cluster` is a number that may be summed.
    statistic : callable
        Takes a table of sums, one row a resample, with the columns of `observations`; gives one
        number a row. ``nan`` means that the statistic has no value there.
    cluster : str or pandas.Series
        What is resampled together: a column of `observations`, or one value a row.
    rng : numpy.random.Generator
        The source of chance.
    n_resamples : int
        How many.
    ci_level : float
        Such as 0.95.

    Returns
    -------
    Interval
        Percentiles from 50 clusters on; below that the standard deviation of the resamples times a t
        quantile.

    Raises
    ------
    ValueError
        If there is one cluster only, a number is absent, or a cluster is.

    Examples
    --------
    >>> votes = pd.DataFrame({"agree": [1, 0, 1, 1], "n": [1, 1, 1, 1], "dialogue_id": list("ddee")})
    >>> share = bootstrap_ci(votes, lambda sums: sums["agree"] / sums["n"], cluster="dialogue_id", rng=np.random.default_rng(1))
    >>> share.estimate, share.n_clusters, share.provisional
    (0.75, 2, True)
    """
    key = observations[cluster] if isinstance(cluster, str) else cluster
    numbers = observations.drop(columns=cluster) if isinstance(cluster, str) else observations
    if key.isna().any() or numbers.isna().to_numpy().any():
        raise ValueError("bootstrap_ci: a cluster or a number is absent; drop such rows before, and say how many.")
    codes, names = pd.factorize(np.asarray(key))
    check_clusters(len(names), key.name)
    values = numbers.to_numpy(float)
    sums = np.column_stack([np.bincount(codes, weights=column, minlength=len(names)) for column in values.T])
    weights = np.vstack([np.ones(len(names)), draw_weights(len(names), n_resamples, rng)])
    found = np.asarray(statistic(pd.DataFrame(weights @ sums, columns=numbers.columns)), dtype=float)
    replicates = found[1:]
    defined = replicates[~np.isnan(replicates)]
    low, high = interval_ends(found[:1], defined[:, None], np.array([len(names)]), ci_level)
    return Interval(
        estimate=float(found[0]),
        ci_low=float(low[0]),
        ci_high=float(high[0]),
        se=float(defined.std(ddof=1)) if len(defined) > 1 else float("nan"),
        ci_level=ci_level,
        n_clusters=len(names),
        n_undefined=len(replicates) - len(defined),
        provisional=len(names) < ENOUGH_CLUSTERS,
        replicates=replicates,
    )


def interval_ends(estimate: Array, replicates: Array, n_clusters: NDArray[np.int64], ci_level: float) -> tuple[Array, Array]:
    """Turn replicates into interval ends: percentiles, or SD times t where clusters are few.

    With 18 clusters percentiles are too narrow; the t quantile with one degree of freedom less than
    clusters makes up for most of it.

    Parameters
    ----------
    estimate : numpy.ndarray
        One number a column.
    replicates : numpy.ndarray
        Shape (resamples, columns).
    n_clusters : numpy.ndarray
        Clusters behind each column. With fewer than two there is no interval: ``nan``.
    ci_level : float
        Such as 0.95.

    Returns
    -------
    tuple of numpy.ndarray
        Lower and upper ends.

    Examples
    --------
    >>> draws = np.random.default_rng(1).normal(0.0, 1.0, (1000, 2))
    >>> low, high = interval_ends(np.zeros(2), draws, np.array([60, 10]), 0.95)
    >>> (high - low).round(1)  # percentiles; SD times t with 9 degrees of freedom
    array([3.9, 4.6])
    """
    absent = np.full(len(estimate), np.nan)
    if len(replicates) < 2:
        return absent, absent.copy()
    tail = (1.0 - ci_level) / 2.0
    low, high = np.quantile(replicates, [tail, 1.0 - tail], axis=0)
    reach = stats.t.ppf(1.0 - tail, np.maximum(n_clusters - 1, 1)) * replicates.std(axis=0, ddof=1)
    few = n_clusters < MANY_CLUSTERS
    low, high = np.where(few, estimate - reach, low), np.where(few, estimate + reach, high)
    return np.where(n_clusters < 2, np.nan, low), np.where(n_clusters < 2, np.nan, high)


def rank_ranges(
    estimate: Array, replicates: Array, n_clusters: int, ci_level: float
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Give the ranks that each responder may hold, all at once.

    Someone ranks above another if the interval of their difference excludes zero. The intervals of all
    differences are widened together (max-t), so that all ranges hold at once in `ci_level` of studies [1]_.

    Parameters
    ----------
    estimate : numpy.ndarray
        One strength a responder.
    replicates : numpy.ndarray
        Shape (resamples, responders).
    n_clusters : int
        Behind the replicates.
    ci_level : float
        Such as 0.95.

    Returns
    -------
    tuple of numpy.ndarray
        Best and worst rank of each, counted from 1; any rank, where there are no replicates.

    References
    ----------
    .. [1] Klein, Wright and Wieczorek (2020), https://doi.org/10.1111/rssa.12582

    Examples
    --------
    >>> draws = np.random.default_rng(1).normal([2.0, 0.1, 0.0], 0.1, (500, 3))
    >>> best, worst = rank_ranges(np.array([2.0, 0.1, 0.0]), draws, 60, 0.95)
    >>> best, worst  # the second and the third may change places
    (array([1, 2, 2]), array([1, 3, 3]))
    """
    if len(replicates) < 2:
        return np.ones(len(estimate), np.int64), np.full(len(estimate), len(estimate))
    gap = estimate[:, None] - estimate[None, :]
    reach = contrast_reach(replicates, n_clusters, ci_level)
    above = gap > np.maximum(reach, 1e-12)
    return 1 + above.sum(axis=0), len(estimate) - above.sum(axis=1)


def contrast_reach(replicates: Array, n_clusters: int, ci_level: float) -> Array:
    """Give half the width of the simultaneous interval of every difference, shape (responders, responders)."""
    size = replicates.shape[1]
    centre = replicates.mean(axis=0)
    spread = np.zeros((size, size))
    worst = np.zeros(len(replicates))
    for one in range(size - 1):  # one responder's differences at a time, for the memory's sake
        moved = (replicates[:, one, None] - replicates[:, one + 1 :]) - (centre[one] - centre[one + 1 :])
        se = moved.std(axis=0, ddof=1)
        spread[one, one + 1 :] = spread[one + 1 :, one] = se
        scaled = np.abs(moved) / np.where(se > 0, se, np.inf)
        np.maximum(worst, scaled.max(axis=1), out=worst)
    return np.asarray(spread * np.quantile(worst, ci_level) * _few(n_clusters, ci_level))


def simultaneous_reach(replicates: Array, n_clusters: int, ci_level: float) -> tuple[Array, Array]:
    """Give the standard error of each column, and half the width of intervals that hold for all columns at once."""
    moved = replicates - replicates.mean(axis=0)
    se = replicates.std(axis=0, ddof=1)
    worst = (np.abs(moved) / np.where(se > 0, se, np.inf)).max(axis=1)
    return se, np.asarray(se * np.quantile(worst, ci_level) * _few(n_clusters, ci_level))


def _few(n_clusters: int, ci_level: float) -> float:
    """Give by how much an interval widens where clusters are few: the t quantile over the normal one."""
    tail = 1.0 - (1.0 - ci_level) / 2.0
    return float(stats.t.ppf(tail, n_clusters - 1) / stats.norm.ppf(tail)) if n_clusters < MANY_CLUSTERS else 1.0


def check_clusters(n_clusters: int, name: object) -> None:
    """Refuse to resample a single cluster."""
    if n_clusters < 2:
        raise ValueError(
            f"There is one {name} only, and an interval needs several to resample. "
            f"Give another cluster, or ask for no resamples (n_resamples=0) to have the estimate alone."
        )
