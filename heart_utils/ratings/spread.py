"""Uncertainty of strengths: resamples, robust covariance, intervals and ranks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache, reduce
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import optimize, stats

from heart_utils.ratings.bradley_terry import BradleyTerry, pairs_of
from heart_utils.ratings.resampling import (
    Rng,
    as_rng,
    check_clusters,
    draw_weights,
    interaction_codes,
    interval_ends,
    refuse_few_raters,
)
from heart_utils.ratings.verdicts import Array, Codes

__all__ = ["Differences", "simultaneous_quantile"]

RELEASED_Z = 1.96
FLAT = 1e-3  # of a win: clusters whose standard deviation is below this say the same
CHUNK_CELLS = 1_000_000
# of a cluster's leverage, so that one which alone links somebody does not divide by zero
NEARLY = 0.999
LARGEST = 700.0  # beyond this no log-odds is looked for


#: Columns of the ratings table, an entry a responder; None where nothing can be said.
Columns: TypeAlias = dict[str, NDArray[Any] | None]


def spread_of(
    model: BradleyTerry,
    clusters: tuple[str, ...],
    interval: str | None,
    n_resamples: int,
    ci_level: float,
    rng: Rng,
) -> tuple[Differences, Columns]:
    """Compute intervals and ranks of a model's strengths, as columns of the ratings table."""
    entries, centre = model.entries, centring(model.penalised)
    theta = centre @ model.theta
    size, groups = len(theta), entries.groups()
    unknown, unvaried = np.full(size, np.nan), np.zeros(size, bool)
    estimates: Columns = {
        "ci_low": unknown,
        "ci_high": unknown,
        "n_clusters": np.zeros(size, int),
        "rank_low": None,
        "rank_high": None,
        "unvaried": unvaried,
    }
    if interval is None or interval == "released":
        half_widths = RELEASED_Z / np.sqrt(entries.n_verdicts()) if interval else np.nan
        return Differences(theta, np.empty((0, size)), 0, ci_level, 0.0), {
            **estimates,
            "ci_low": theta - half_widths,
            "ci_high": theta + half_widths,
        }
    check_clusters(groups[0][1], clusters[0])
    if len(groups) > 1:
        refuse_few_raters(groups[0][0], groups[1][0], (clusters[0], clusters[1]))
    clusters_met, n_clusters = (
        np.min([entries.count_judged_in(*group) for group in groups], axis=0),
        min(n for _, n in groups),
    )
    estimates["n_clusters"] = clusters_met
    estimates["unvaried"] = unvaried = find_unvaried(model, groups) & ~model.penalised
    if unvaried.all():
        gaps = Differences(theta, np.empty((0, size)), n_clusters, ci_level, 0.0)
        return gaps, estimates | dict(zip(("rank_low", "rank_high"), gaps.ranks(), strict=True))
    alone = one_sided_ends(model, clusters_met, ci_level)
    bounds = one_sided_ends(model, clusters_met, 1.0 - (1.0 - ci_level) / (size * (size - 1) // 2))
    n_effective = min(effective_clusters(model, *group) for group in groups)
    rng = as_rng(rng)
    if interval == "sandwich":
        robust = centre @ covariance(model) @ centre.T
        half_widths = stats.t.ppf((1.0 + ci_level) / 2.0, n_clusters - 1) * np.sqrt(np.diag(robust))
        draws, ends = (
            rng.multivariate_normal(theta, robust, size=n_resamples, method="eigh"),
            (theta - half_widths, theta + half_widths),
        )
    else:
        draws = draw_strengths(model, n_resamples, rng) @ centre.T
        ends = interval_ends(theta, draws, clusters_met, ci_level)
    gaps = Differences(theta, draws, n_clusters, ci_level, n_effective, bounds, unvaried)
    low, high = np.where(unvaried, np.nan, np.where(model.penalised, alone, ends))
    return gaps, estimates | dict(
        zip(("ci_low", "ci_high", "rank_low", "rank_high"), (low, high, *gaps.ranks()), strict=True)
    )


def find_unvaried(model: BradleyTerry, groups: list[tuple[Codes, int]]) -> NDArray[np.bool_]:
    """Find the responders of whom all clusters say the same.

    On each opponent met in several clusters, as in the others; met in one, as expected.
    """
    entries, size = model.entries, len(model.theta)
    pair, side = pairs_of(entries)
    won = side * (2.0 * entries.share - 1.0) * model.scores[model.level]
    varies = np.zeros(size, bool)
    for group, _ in groups:
        cell, cells = pd.factorize(group * size**2 + pair)
        mean = np.bincount(cell, won) / np.bincount(cell)
        _, of_pair, n_cells = np.unique(cells % size**2, return_inverse=True, return_counts=True)
        beyond = mean - (np.bincount(of_pair, mean) / n_cells)[of_pair]
        moved = (np.bincount(of_pair, beyond**2) > n_cells * FLAT**2)[of_pair[cell]]
        once = (n_cells == 1)[of_pair[cell]] & (np.abs(model.residuals[:, 0]) > FLAT)
        rows = moved | once
        varies[entries.a[rows]] = varies[entries.b[rows]] = True
    return ~varies


def centring(penalised: NDArray[np.bool_]) -> Array:
    """Build the matrix that sets the mean strength of two-way linked responders to zero."""
    # If it were the mean of all, a strength held by the prior would move everybody's zero by more
    # than their intervals allow for.
    unit, linked = np.eye(len(penalised)), ~penalised
    return np.asarray(unit if linked.all() or not linked.any() else unit - linked / linked.sum())


def one_sided_ends(model: BradleyTerry, clusters_met: NDArray[np.int64], ci_level: float) -> Array:
    """Bound the strength of who never lost or never won.

    Clopper and Pearson (1934), https://doi.org/10.1093/biomet/26.4.404.
    """
    size, linked, wins = len(model.theta), ~model.penalised, model.counts[0].sum(axis=0)
    ends, theta, tail = (
        np.full((2, size), np.nan),
        centring(model.penalised) @ model.theta,
        np.log((1.0 - ci_level) / 2.0),
    )
    for one in np.flatnonzero(model.penalised):
        others = np.arange(size) != one
        mean, scale = (0.0, 1.0) if linked.any() else (theta[others].mean(), (size - 1.0) / size)
        games = wins[one] + wins[:, one]
        for side, sign, lost in ((0, 1.0, wins[:, one]), (1, -1.0, wins[one])):
            clear = others & (games > 0) & (lost == 0)
            weight = clusters_met[one] * games[clear] / games[others].sum()
            # if nobody is linked, all keep mean zero: the others move against this one
            gap = mean - theta[clear]

            def excess(
                x: float, sign: float = sign, weight: Array = weight, gap: Array = gap
            ) -> float:
                return float(-(weight * np.logaddexp(0.0, -(x + sign * gap))).sum() - tail)

            bound = (
                optimize.brentq(excess, -LARGEST, LARGEST)
                if excess(-LARGEST) < 0.0 < excess(LARGEST)
                else -np.inf
            )
            ends[side, one] = sign * bound * scale
    return ends


def draw_strengths(model: BradleyTerry, n_resamples: int, rng: np.random.Generator) -> Array:
    """Fit the strengths to clusters drawn with replacement.

    Where raters vary too, a verdict counts the product of the two numbers of draws.
    """
    # That is somewhat too wide, as variance within both enters more than once: Owen (2007),
    # https://doi.org/10.1214/07-AOAS122
    groups, cells = model.entries.groups(), None
    codes_of_cells: list[Any] = [slice(None)]
    if len(groups) > 1:
        cells = interaction_codes(*groups[0], *groups[1])
        codes_of_cells = [np.zeros(cells[1], np.intp) for _ in groups]
        for cell_codes, (code, _) in zip(codes_of_cells, groups, strict=True):
            cell_codes[cells[0]] = code
    drawn = [draw_weights(n, n_resamples, rng) for _, n in groups]
    matrices, draws = model.tally(cells).resampled(), np.empty((n_resamples, len(model.theta)))
    # some rows at a time for the memory's sake
    chunk = max(1, CHUNK_CELLS // (matrices.size**2 * matrices.n_levels))
    for first in range(0, n_resamples, chunk):
        rows = slice(first, first + chunk)
        weights = reduce(
            np.multiply,
            (
                weight[rows][:, cell_codes]
                for weight, cell_codes in zip(drawn, codes_of_cells, strict=True)
            ),
        )
        draws[rows] = model.refit(matrices.total(weights))
    return draws


def covariance(
    model: BradleyTerry, added_scores: Array | float = 0.0, *, correction: float = 1.0
) -> Array:
    """Compute the covariance of strengths over new clusters, and new raters if they vary.

    `added_scores` are scores of the clusters, shape (clusters, responders), that move the fit
    without being part of it. A score is divided by what a cluster's leverage leaves of it, to the
    power of `correction`: 1 is a jackknife and a little too wide, 1/2 is without bias where the
    model is right.
    """
    # "CV3" and "CV2" of MacKinnon, Nielsen and Webb (2023),
    # https://doi.org/10.1016/j.jeconom.2022.04.001; two ways as
    # ``two_way_error``.
    groups, bread = model.entries.groups(), model.bread
    meat = np.sum(
        [
            _meat(model, *group, also, correction)
            for group, also in zip(groups, (added_scores, 0.0), strict=False)
        ],
        axis=0,
    )
    if len(groups) > 1:
        by_cell = sums_of_scores(model, *interaction_codes(*groups[0], *groups[1]))
        meat -= by_cell.T @ by_cell
    size = len(model.theta)
    estimated = (bread @ meat @ bread)[:size, :size]
    values, vectors = np.linalg.eigh((estimated + estimated.T) / 2.0)
    return np.asarray((vectors * np.maximum(values, 0.0)) @ vectors.T)


def _meat(
    model: BradleyTerry, group: Codes, n_groups: int, added_scores: Array | float, correction: float
) -> Array:
    """Sum the squared scores of each group (the meat of the sandwich).

    Each is divided by one minus the group's leverage on the fit.
    """
    size, sums = len(model.theta), sums_of_scores(model, group, n_groups)
    root = np.linalg.cholesky(model.bread[:size, :size])
    turned = (sums[:, :size] + added_scores) @ root  # here leverage is a symmetric matrix
    for groups, information in _information_by(model, group, n_groups):
        leverage, axes = np.linalg.eigh(root.T @ information @ root)
        along = (turned[groups, None] @ axes) / (1.0 - NEARLY * leverage[:, None]) ** correction
        turned[groups] = (along @ axes.swapaxes(1, 2))[:, 0]
    sums[:, :size] = np.linalg.solve(root.T, turned.T).T
    return np.asarray(sums.T @ sums * (n_groups - 1.0) / n_groups)


def effective_clusters(model: BradleyTerry, group: Codes, n_groups: int) -> float:
    """Count the equal clusters that would carry as much information.

    Carter and others (2017), https://doi.org/10.1162/REST_a_00639.
    """
    size = len(model.theta)
    bread, total, squares = (
        model.bread[:size, :size],
        np.zeros((size, size)),
        np.zeros((size, size)),
    )
    for _, information in _information_by(model, group, n_groups):
        part = bread @ information @ bread
        own = np.diagonal(part, axis1=1, axis2=2)
        share = own[:, :, None] + own[:, None, :] - 2.0 * part
        total += share.sum(axis=0)
        squares += (share**2).sum(axis=0)
    pairs = np.triu_indices(size, 1)
    return float(np.mean(total[pairs] ** 2 / squares[pairs]))


def _information_by(
    model: BradleyTerry, group: Codes, n_groups: int
) -> Iterator[tuple[slice, Array]]:
    """Compute the information on strengths in each group, some groups at a time.

    All at once would need too much memory.
    """
    size, slope, (a, b) = len(model.theta), model.slopes, (model.entries.a, model.entries.b)
    chunk = max(1, CHUNK_CELLS // size**2)
    for first in range(0, n_groups, chunk):
        n = min(chunk, n_groups - first)
        rows = (group >= first) & (group < first + n)
        cells = (group[rows] - first) * size**2 + a[rows] * size + b[rows]
        information = np.asarray(
            -np.bincount(cells, slope[rows], n * size**2).reshape(n, size, size), dtype=float
        )
        information += information.swapaxes(1, 2)
        information[:, np.arange(size), np.arange(size)] -= information.sum(axis=2)
        yield slice(first, first + n), information


def sums_of_scores(model: BradleyTerry, group: Codes, n_groups: int) -> Array:
    """Sum the scores a group, shape (groups, parameters)."""
    residual = model.residuals
    gap = sums_of_sides(
        group, model.entries.a, model.entries.b, residual[:, 0], n_groups, len(model.theta)
    )
    rest = [np.bincount(group, column, n_groups) for column in residual[:, 1:].T]
    return np.column_stack([gap, *rest])


def sums_of_sides(group: Codes, a: Codes, b: Codes, won: Array, n_groups: int, size: int) -> Array:
    """Sum what each entry gives to its a and takes from its b, shape (groups, responders)."""
    gained, given = (np.bincount(group * size + side, won, n_groups * size) for side in (a, b))
    return np.asarray((gained - given).reshape(n_groups, size))


# Degrees of freedom for which studies of equals are drawn; those between take the next smaller,
# which is the wider. They are dense where the t quantile still falls fast, and sparse above, so
# that a few cached draws serve every leaderboard.
DEGREES = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 19, 25, 35, 50, 80, 150, 300)
N_DRAWS = 10_000
MOST_CELLS = 8_000_000


@dataclass(frozen=True, eq=False)
class Differences:
    """Differences of strengths, with what resamples tell of them."""

    strength: Array
    replicates: Array
    n_clusters: int
    ci_level: float
    #: clusters of even information, which set the degrees of freedom; where not known, `n_clusters`
    n_effective: float
    #: low and high where bounds are one-sided, or nan
    ends: Array = field(default_factory=lambda: np.full((2, 1), np.nan))
    #: of whom all clusters say the same, so that no error is known
    unvaried: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(1, bool))

    def take(self, order: Codes) -> Differences:
        """Reorder the responders."""
        ends = self.ends[:, order] if self.ends.shape[1] > 1 else self.ends
        return replace(
            self,
            strength=self.strength[order],
            replicates=self.replicates[:, order],
            ends=ends,
            unvaried=self.unvaried[order] if len(self.unvaried) > 1 else self.unvaried,
        )

    def errors(self) -> tuple[Array, Array]:
        """Compute the standard errors of strengths and of all differences, from resamples.

        That of a difference is ``nan`` where nothing varies between clusters.
        """
        covariance = (
            np.atleast_2d(np.cov(self.replicates, rowvar=False))
            * self.n_clusters
            / (self.n_clusters - 1.0)
        )
        variance = np.diag(covariance)
        squares = variance[:, None] + variance[None, :] - 2.0 * covariance
        # the slope of a win by strength is a quarter at most
        known = squares * self.n_clusters > (4.0 * FLAT) ** 2
        known &= ~(self.unvaried[:, None] | self.unvaried)
        np.fill_diagonal(known, True)
        return np.sqrt(variance), np.sqrt(np.where(known, squares, np.nan))

    def margins_of_error(self) -> Array:
        """Compute the margin of error below each difference, row less column, all at once.

        The margin above is the transpose.
        """
        spread, se = self.errors()
        quantile, bounded = (
            simultaneous_quantile(len(spread), self.n_effective, self.ci_level),
            ~np.isnan(self.ends[0]),
        )
        below = np.where(bounded, self.strength - self.ends[0], quantile * spread)
        above = np.where(bounded, self.ends[1] - self.strength, quantile * spread)
        return np.where(bounded[:, None] | bounded, below[:, None] + above, se * quantile)

    def ranks(self, alone: int | None = None) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Compute the ranks that each responder may hold, all at once or one that is `alone`."""
        # Stepdown tests of "not better": Mogstad, Romano, Shaikh and Wilhelm (2024),
        # https://doi.org/10.1093/restud/rdad006
        size, bounded = len(self.strength), ~np.isnan(self.ends[0])
        open_ = ~np.eye(size, dtype=bool)
        if len(self.replicates) < 2:
            return np.ones(size, np.int64), np.full(size, size)
        gap, se, df = (
            self.strength[:, None] - self.strength[None, :],
            self.errors()[1],
            self.n_effective - 1.0,
        )
        statistic = np.divide(gap, se, out=np.full(gap.shape, -np.inf), where=se > 0)
        by_ends = np.where(gap > self.margins_of_error(), np.inf, -np.inf)
        statistic = np.where(bounded[:, None] | bounded, by_ends, statistic)
        if alone is not None:
            open_[np.arange(size) != alone] = False
            open_[:, alone] = np.arange(size) != alone
        p_value, ahead = stats.t.sf(statistic, df), np.zeros((size, size), bool)
        while (rejected := open_ & (p_value < level_of_one(open_, df, self.ci_level))).any():
            ahead |= rejected
            open_ &= ~rejected
        return 1 + ahead.sum(axis=0), size - ahead.sum(axis=1)


def simultaneous_quantile(n_responders: int, n_clusters: float, ci_level: float) -> float:
    """Compute the quantile for simultaneous intervals of all pairwise differences.

    Parameters
    ----------
    n_responders : int
        Number of responders.
    n_clusters : float
        Number of clusters, or of those that count in effect (``Ratings.n_effective``).
    ci_level : float
        Level of the intervals, such as 0.95.

    Returns
    -------
    float
        For two responders Student's t; for more, between Tukey's studentised range and Bonferroni's
        t.

    Examples
    --------
    >>> [round(simultaneous_quantile(size, 300, 0.95), 1) for size in (2, 17)]
    [2.0, 3.5]
    """
    every = ~np.eye(n_responders, dtype=bool)
    return float(stats.t.isf(level_of_one(every, n_clusters - 1.0, ci_level), n_clusters - 1.0))


def level_of_one(open_: NDArray[np.bool_], df: float, ci_level: float) -> float:
    """Compute the one-sided level of each hypothesis "row is not better than column".

    All hypotheses that are open hold at once.
    """
    # From studies of equals with equal errors, which need the widest: Hayter (1984),
    # https://doi.org/10.1214/aos/1176346392
    shared = (1.0 - ci_level) / max(int(open_.sum()), 1)
    if len(open_) < 3 or not open_.any():
        return shared
    tabulated = max(known for known in DEGREES if known <= max(df, 1.0))
    return max(shared, _level(len(open_), tabulated, ci_level, np.packbits(open_).tobytes()))


@lru_cache(maxsize=512)
def _level(size: int, df: int, ci_level: float, packed: bytes) -> float:
    open_ = np.unpackbits(np.frombuffer(packed, np.uint8), count=size * size).astype(bool)
    largest = _equals(size, df)[:, open_].max(axis=1)
    return float(stats.t.sf(np.quantile(largest, ci_level), df))


@lru_cache(maxsize=6)
def _equals(size: int, df: int) -> NDArray[np.float32]:
    """Draw studies of equal responders: every difference over its own standard error.

    The shape is (studies, responders squared).
    """
    rng = np.random.default_rng([size, df])
    n_draws = int(np.clip(MOST_CELLS // size**2, 1_000, N_DRAWS))
    studentized = np.empty((n_draws, size * size), np.float32)
    for first in range(0, n_draws, 1_000):
        n = min(1_000, n_draws - first)
        if df < size:
            root = rng.normal(size=(n, size, df))
        else:  # Bartlett's root of a Wishart matrix
            root = np.tril(rng.normal(size=(n, size, size)), -1)
            root[:, np.arange(size), np.arange(size)] = np.sqrt(
                rng.chisquare(df - np.arange(size), size=(n, size))
            )
        product = root @ root.swapaxes(1, 2)
        own = np.diagonal(product, axis1=1, axis2=2)
        variance = (own[:, :, None] + own[:, None, :] - 2.0 * product) / df
        strength = rng.normal(size=(n, size))
        gap = strength[:, :, None] - strength[:, None, :]
        studentized[first : first + n] = (
            gap / np.sqrt(np.where(variance > 0, variance, 1.0))
        ).reshape(n, -1)
    return studentized
