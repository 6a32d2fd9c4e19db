"""Which ranks can be known: differences and ranks that hold all at once, or for one responder alone."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from heart_utils.ratings.verdicts import Array

__all__ = ["simultaneous_quantile"]

Truths = NDArray[np.bool_]
Ends = tuple[Array, Array]

DEGREES = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 19, 25, 35, 50, 80, 150, 300)
"""Degrees of freedom for which studies of equals are drawn; those between take the next smaller, which is the wider."""
N_DRAWS = 10_000
MOST_CELLS = 8_000_000


def rank_ranges(
    estimate: Array,
    replicates: Array,
    n_clusters: int,
    ci_level: float,
    *,
    n_effective: float | None = None,
    ends: Ends | None = None,
    alone: int | None = None,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Give the ranks that each responder may hold, all at once; or those of the one that is `alone`.

    Someone ranks above another if "not better" is rejected. All such hypotheses are tested together, those rejected are taken
    out, and the rest are tested again at the wider level that fewer leave, until nothing more is rejected. Source: Mogstad,
    Romano, Shaikh and Wilhelm (2024), https://doi.org/10.1093/restud/rdad006, with the level of ``level_of_one``.
    """
    size = len(estimate)
    open_ = ~np.eye(size, dtype=bool)
    if len(replicates) < 2:
        return np.ones(size, np.int64), np.full(size, size)
    df = (n_effective or n_clusters) - 1.0
    gap, se = estimate[:, None] - estimate[None, :], difference_errors(replicates, n_clusters)
    statistic = np.divide(gap, se, out=np.where(gap > 0, np.inf, -np.inf), where=se > 0)
    statistic[np.abs(gap) <= 1e-12] = 0.0
    if ends is not None and not np.isnan(ends[0]).all():
        bounded = np.isfinite(ends[0]) | np.isinf(ends[0])
        by_ends = bounded[:, None] | bounded[None, :]
        reach = contrast_reach(estimate, replicates, n_clusters, ci_level, n_effective=n_effective, ends=ends)
        statistic[by_ends] = np.where(gap > reach, np.inf, -np.inf)[by_ends]
    if alone is not None:
        open_[np.arange(size) != alone] = False
        open_[:, alone] = np.arange(size) != alone
    p_value, ahead = stats.t.sf(statistic, df), np.zeros((size, size), bool)
    while (found := open_ & (p_value < level_of_one(open_, df, ci_level))).any():
        ahead |= found
        open_ &= ~found
    return 1 + ahead.sum(axis=0), size - ahead.sum(axis=1)


def contrast_reach(
    estimate: Array,
    replicates: Array,
    n_clusters: int,
    ci_level: float,
    *,
    n_effective: float | None = None,
    ends: Ends | None = None,
) -> Array:
    """Give how far below the difference row less column its simultaneous interval reaches; above, it is the transpose."""
    size, se = replicates.shape[1], difference_errors(replicates, n_clusters)
    quantile = simultaneous_quantile(size, n_effective or n_clusters, ci_level)
    if ends is None:
        return np.asarray(se * quantile)
    spread = np.sqrt(np.diag(np.atleast_2d(np.cov(replicates, rowvar=False))) * n_clusters / (n_clusters - 1.0))
    given = ~np.isnan(ends[0])
    below = np.where(given, estimate - ends[0], quantile * spread)
    above = np.where(given, ends[1] - estimate, quantile * spread)
    return np.where(given[:, None] | given[None, :], below[:, None] + above[None, :], se * quantile)


def difference_errors(replicates: Array, n_clusters: int) -> Array:
    """Give the standard error of every difference, from the resamples."""
    covariance = np.atleast_2d(np.cov(replicates, rowvar=False)) * n_clusters / (n_clusters - 1.0)
    variance = np.diag(covariance)
    return np.asarray(np.sqrt(np.maximum(variance[:, None] + variance[None, :] - 2.0 * covariance, 0.0)))


def simultaneous_quantile(n_responders: int, n_clusters: float, ci_level: float) -> float:
    """Give how many standard errors the interval of a difference reaches, if those of all pairs hold at once.

    Parameters
    ----------
    n_responders : int
        Whose differences are compared.
    n_clusters : float
        Clusters that vary, or as many as they are worth (``Ratings.n_effective``).
    ci_level : float
        Such as 0.95.

    Returns
    -------
    float
        For two responders Student's t; for more, between Tukey's studentised range and Bonferroni's t.

    Examples
    --------
    >>> [round(simultaneous_quantile(size, 300, 0.95), 1) for size in (2, 17)]
    [2.0, 3.5]
    """
    every = ~np.eye(n_responders, dtype=bool)
    return float(stats.t.isf(level_of_one(every, n_clusters - 1.0, ci_level), n_clusters - 1.0))


def level_of_one(open_: Truths, df: float, ci_level: float) -> float:
    """Give the one-sided level of each hypothesis "row is not better than column", if all that are open hold at once.

    In studies of equals, each difference divided by its own standard error, the largest stays below it in `ci_level`
    of studies. Equal and independent errors are the case that needs the widest intervals (Tukey's conjecture). Each
    error is estimated by itself, which with few clusters widens the largest far beyond Tukey's own table. Never less
    than Bonferroni's, which always holds. Source: Hayter (1984), https://doi.org/10.1214/aos/1176346392
    """
    shared = (1.0 - ci_level) / max(int(open_.sum()), 1)
    if len(open_) < 3 or not open_.any():
        return shared
    place = max(known for known in DEGREES if known <= max(df, 1.0))
    return max(shared, _level(len(open_), place, ci_level, np.packbits(open_).tobytes()))


@lru_cache(maxsize=512)
def _level(size: int, df: int, ci_level: float, packed: bytes) -> float:
    open_ = np.unpackbits(np.frombuffer(packed, np.uint8), count=size * size).astype(bool)
    largest = _equals(size, df)[:, open_].max(axis=1)
    return float(stats.t.sf(np.quantile(largest, ci_level), df))


@lru_cache(maxsize=6)
def _equals(size: int, df: int) -> NDArray[np.float32]:
    """Draw studies of equals: every difference by its own standard error, shape (studies, responders squared)."""
    rng = np.random.default_rng([size, df])
    n_draws = int(np.clip(MOST_CELLS // size**2, 1_000, N_DRAWS))
    found = np.empty((n_draws, size * size), np.float32)
    for first in range(0, n_draws, 1_000):
        n = min(1_000, n_draws - first)
        if df < size:
            root = rng.normal(size=(n, size, df))
        else:  # Bartlett's root of a Wishart matrix
            root = np.tril(rng.normal(size=(n, size, size)), -1)
            root[:, np.arange(size), np.arange(size)] = np.sqrt(rng.chisquare(df - np.arange(size), size=(n, size)))
        product = root @ root.swapaxes(1, 2)
        own = np.diagonal(product, axis1=1, axis2=2)
        variance = (own[:, :, None] + own[:, None, :] - 2.0 * product) / df
        strength = rng.normal(size=(n, size))
        gap = strength[:, :, None] - strength[:, None, :]
        found[first : first + n] = (gap / np.sqrt(np.where(variance > 0, variance, 1.0))).reshape(n, -1)
    return found
