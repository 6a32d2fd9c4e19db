"""Intervals on fitted strengths: by resampling clusters, or from the scores of verdicts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from heart_utils.analysis.board import clusters_met
from heart_utils.analysis.released import ReleasedHeart
from heart_utils.analysis.resampling import check_clusters, draw_weights, interval_ends
from heart_utils.analysis.sandwich import Model, crossed, one_way, rater_codes, two_way
from heart_utils.analysis.wins import Codes, RatingsError, WinMatrices

__all__ = ["INTERVALS", "Spread", "one_sided_ends", "spread_of"]

Array = NDArray[np.float64]

INTERVALS = ("bootstrap", "sandwich", "product")
CHUNK_CELLS = 1_000_000
LARGEST = 700.0
"""Beyond this no log-odds is looked for."""


@dataclass(frozen=True, eq=False)
class Spread:
    """How far strengths may be off.

    Attributes
    ----------
    low, high : numpy.ndarray
        Ends of each strength's interval; ``nan`` where there is none.
    draws : numpy.ndarray
        Strengths in each resample; for a sandwich, normal draws with its covariance.
    met : numpy.ndarray
        Clusters in which each responder was judged: the fewer of dialogues and raters, if both vary.
    n_clusters : int
        Of the clusters that vary; the fewer of two.
    n_degenerate : int
        Resamples in which someone else than the penalised separated.
    """

    low: Array
    high: Array
    draws: Array
    met: NDArray[np.int64]
    n_clusters: int
    n_degenerate: int = 0


def spread_of(
    model: Model,
    verdicts: pd.DataFrame,
    clusters: tuple[str, ...],
    interval: str | None,
    n_resamples: int,
    ci_level: float,
    rng: np.random.Generator,
) -> Spread:
    """Put intervals on the strengths of a model.

    Parameters
    ----------
    model : Model
        Fitted to entries clustered by the first of `clusters`.
    verdicts : pandas.DataFrame
        The table that the entries were read from.
    clusters : tuple of str
        One column, or two of which the second is the rater.
    interval : {"bootstrap", "sandwich", "product", None}
        None for no interval.
    n_resamples : int
        Of the bootstrap, or draws from the sandwich.
    ci_level : float
        Such as 0.95.
    rng : numpy.random.Generator
        The source of chance.

    Returns
    -------
    Spread
        Ends, draws, and what is behind them.

    Examples
    --------
    >>> from heart_utils.analysis.bradley_terry import BradleyTerry
    >>> from heart_utils.analysis.wins import read_verdicts
    >>> votes = pd.DataFrame({"dialogue_id": list("defg"), "responder_a": "x", "responder_b": "y", "verdict": list("aaab")})
    >>> model = BradleyTerry.fit(read_verdicts(votes, dimension="overall", cluster="dialogue_id"), "pairs")
    >>> spread = spread_of(model, votes, ("dialogue_id",), "sandwich", 100, 0.95, np.random.default_rng(1))
    >>> spread.low.round(2), spread.high.round(2), spread.n_clusters  # four dialogues say little
    (array([-1.57, -2.67]), array([2.67, 1.57]), 4)
    """
    entries, size = model.entries, len(model.theta)
    nothing = np.full(size, np.nan)
    if isinstance(model, ReleasedHeart):
        return Spread(*model.released_ends(), np.empty((0, size)), np.zeros(size, np.int64), 0)
    if interval is None:
        return Spread(nothing, nothing, np.empty((0, size)), np.zeros(size, np.int64), 0)
    n_clusters = len(entries.clusters)
    check_clusters(n_clusters, clusters[0])
    met = clusters_met(entries, entries.cluster, n_clusters)
    raters = rater_codes(verdicts, entries, *clusters) if len(clusters) > 1 else None
    if raters is not None:
        met = np.minimum(met, clusters_met(entries, *raters))
        n_clusters = min(n_clusters, raters[1])
    if not (entries.share != 0.5).any():  # nobody was told apart, so nothing can be said about how well
        return Spread(nothing, nothing, np.empty((0, size)), met, n_clusters)
    if interval == "sandwich":
        covariance = one_way(model) if raters is None else two_way(model, *raters)
        reach = stats.t.ppf((1.0 + ci_level) / 2.0, n_clusters - 1) * np.sqrt(np.diag(covariance))
        draws = rng.multivariate_normal(model.theta, covariance, size=n_resamples, method="eigh")
        return Spread(model.theta - reach, model.theta + reach, draws, met, n_clusters)
    draws, n_degenerate = (
        bootstrap_draws(model, n_resamples, rng) if raters is None else product_draws(model, *raters, n_resamples, rng)
    )
    low, high = interval_ends(model.theta, draws, met, ci_level)
    return Spread(low, high, draws, met, n_clusters, n_degenerate)


def one_sided_ends(model: Model, met: NDArray[np.int64], ci_level: float) -> tuple[Array, Array]:
    r"""Bound the strength of those who were never beaten, or never won, by how probable so clear a result is.

    Who won every game against some opponents has a lower end :math:`x` where the chance to do so,
    :math:`n \sum_j w_j \log \sigma(x - \theta_j)` on the log scale, is (1 - `ci_level`) / 2: the bound of Clopper and
    Pearson [1]_. All verdicts of a dialogue count as one game, so n is the number of dialogues. Nothing bounds
    the strength from above, unless there are opponents against whom every game was lost.

    Parameters
    ----------
    model : Model
        Fitted.
    met : numpy.ndarray
        Clusters in which each responder was judged.
    ci_level : float
        Such as 0.95.

    Returns
    -------
    tuple of numpy.ndarray
        Lower and upper ends of the penalised, infinite where nothing bounds them; ``nan`` for all others.

    References
    ----------
    .. [1] Clopper and Pearson (1934), https://doi.org/10.1093/biomet/26.4.404

    Examples
    --------
    >>> from heart_utils.analysis.bradley_terry import BradleyTerry
    >>> from heart_utils.analysis.wins import read_verdicts
    >>> votes = pd.DataFrame({"responder_a": "x", "responder_b": "y", "verdict": ["a"] * 20})
    >>> model = BradleyTerry.fit(read_verdicts(votes, dimension="overall", cluster=None), "pairs")
    >>> low, high = one_sided_ends(model, np.array([20, 20]), 0.95)
    >>> low.round(2), high.round(2)  # each is half of log(p / (1 - p)), where p to the 20 is 0.025
    (array([ 0.8, -inf]), array([ inf, -0.8]))
    """
    from scipy.optimize import brentq

    wins, size = model.tally().sum()[0].sum(axis=0), len(model.theta)
    ends = np.full((2, size), np.nan)
    tail = np.log((1.0 - ci_level) / 2.0)
    for one in np.flatnonzero(model.penalised):
        others = np.arange(size) != one
        mean = model.theta[others].mean()
        games = wins[one] + wins[:, one]
        for side, sign, lost in ((0, 1.0, wins[:, one]), (1, -1.0, wins[one])):
            clear = others & (games > 0) & (lost == 0)
            ends[side, one] = -sign * np.inf
            if clear.any():
                weight = met[one] * games[clear] / games[others].sum()
                gap = mean - model.theta[clear]  # the strengths keep mean zero: the others move against this one

                def excess(x: float, sign: float = sign, weight: Array = weight, gap: Array = gap) -> float:
                    return float(-(weight * np.logaddexp(0.0, -(x + sign * gap))).sum() - tail)

                low, high = -LARGEST, LARGEST
                if excess(low) < 0.0 < excess(high):
                    ends[side, one] = sign * brentq(excess, low, high) * (size - 1.0) / size
    return ends[0], ends[1]


def check_interval(interval: str | None, clusters: tuple[str, ...]) -> str:
    """Choose the interval if none was named: a bootstrap over one kind of cluster, a sandwich over two."""
    if len(clusters) not in (1, 2):
        raise RatingsError(f"cluster names {len(clusters)} columns, expected one, or two of which the second is the rater.")
    chosen = interval or ("bootstrap" if len(clusters) == 1 else "sandwich")
    fits = ("bootstrap", "sandwich") if len(clusters) == 1 else ("sandwich", "product")
    if chosen not in fits:
        raise RatingsError(f"interval is {chosen!r}, expected one of {', '.join(fits)} where {' and '.join(clusters)} vary.")
    return chosen


def bootstrap_draws(model: Model, n_resamples: int, rng: np.random.Generator) -> tuple[Array, int]:
    """Fit the strengths to clusters drawn with replacement; tell in how many draws someone else separated."""
    return _refit(model, model.tally(), draw_weights(len(model.entries.clusters), n_resamples, rng))


def product_draws(model: Model, rater: Codes, n_raters: int, n_resamples: int, rng: np.random.Generator) -> tuple[Array, int]:
    """Draw dialogues and raters independently; a verdict counts the product of its two counts [1]_.

    This is somewhat too wide, since the variance within dialogue and rater enters more than once.

    References
    ----------
    .. [1] Owen (2007), https://doi.org/10.1214/07-AOAS122
    """
    n_clusters = len(model.entries.clusters)
    cell, n_cells = crossed(model.entries.cluster, n_clusters, rater, n_raters)
    first = np.zeros(n_cells, np.intp)
    second = np.zeros(n_cells, np.intp)
    first[cell], second[cell] = model.entries.cluster, rater
    drawn, judged = draw_weights(n_clusters, n_resamples, rng), draw_weights(n_raters, n_resamples, rng)
    return _refit(model, model.tally((cell, n_cells)), drawn, judged, (first, second))


def _refit(
    model: Model, matrices: WinMatrices, weights: Array, others: Array | None = None, cells: tuple[Codes, Codes] | None = None
) -> tuple[Array, int]:
    """Fit the strengths under each row of weights, some rows at a time for the memory's sake."""
    draws, n_degenerate = np.empty((len(weights), len(model.theta))), 0
    chunk = max(1, CHUNK_CELLS // (matrices.size**2 * matrices.n_levels))
    for first in range(0, len(weights), chunk):
        rows = slice(first, first + chunk)
        drawn = weights[rows] if others is None or cells is None else weights[rows][:, cells[0]] * others[rows][:, cells[1]]
        draws[rows], degenerate = model.refit(matrices.sum(drawn))
        n_degenerate += degenerate
    return draws, n_degenerate
