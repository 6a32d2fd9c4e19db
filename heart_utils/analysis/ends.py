"""The interval of one number that is a share or a coefficient: within its range, and wide enough for few clusters."""

from __future__ import annotations

import numpy as np
from scipy import stats

from heart_utils.analysis.resampling import MANY_CLUSTERS, draw_weights, interval_ends
from heart_utils.analysis.votes import Array

__all__ = ["SEED", "draw_clusters", "interval_of"]

SEED = 20260109


def draw_clusters(n_clusters: int, n_resamples: int, rng: np.random.Generator | None) -> Array:
    """Draw cluster weights, a row a resample; none where there is nothing to resample.

    Parameters
    ----------
    n_clusters, n_resamples : int
        With fewer than two of either there is no interval.
    rng : numpy.random.Generator or None
        The source of chance; None is one with a fixed seed.

    Returns
    -------
    numpy.ndarray
        Shape (resamples, clusters).

    Examples
    --------
    >>> draw_clusters(1, 1000, None).shape
    (0, 1)
    """
    if n_clusters < 2 or n_resamples < 2:
        return np.zeros((0, n_clusters))
    return draw_weights(n_clusters, n_resamples, np.random.default_rng(SEED) if rng is None else rng)


def interval_of(
    estimate: float, replicates: Array, n_clusters: int, ci_level: float, *, least: float = -np.inf, most: float = np.inf
) -> tuple[float, float]:
    r"""Put an interval on one number; resamples in which it has no value are left out.

    Percentiles of a bootstrap are too narrow by the factor that t has over the normal distribution, and
    by :math:`\sqrt{n / (n - 1)}`; from 50 clusters on they are taken further out by both [1]_. Below 50
    the interval is the standard deviation of the resamples times a t quantile.

    Parameters
    ----------
    estimate : float
        ``nan`` gives no interval.
    replicates : numpy.ndarray
        One value a resample.
    n_clusters : int
        What was resampled.
    ci_level : float
        Such as 0.95.
    least, most : float
        The range of the number; no end lies beyond.

    Returns
    -------
    tuple of float
        Lower and upper end, ``nan`` where there is none.

    References
    ----------
    .. [1] Hesterberg (2015), https://doi.org/10.1080/00031305.2015.1089789, "expanded percentiles"

    Examples
    --------
    >>> interval_of(0.9, np.linspace(0.7, 1.1, 101), 20, 0.95, most=1.0)[1]
    1.0
    """
    defined = replicates[~np.isnan(replicates)]
    if np.isnan(estimate) or len(defined) < 2 or n_clusters < 2:
        return float("nan"), float("nan")
    level = ci_level
    if n_clusters >= MANY_CLUSTERS:
        reach = stats.t.ppf((1.0 + ci_level) / 2.0, n_clusters - 1) * np.sqrt(n_clusters / (n_clusters - 1.0))
        level = float(2.0 * stats.norm.cdf(reach) - 1.0)
    low, high = interval_ends(np.array([estimate]), defined[:, None], np.array([n_clusters]), level)
    return max(float(low[0]), least), min(float(high[0]), most)
