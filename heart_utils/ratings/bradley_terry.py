r"""The Bradley-Terry model and its kin: fits to data and to resamples, and the sandwich.

An answer is a step of a ladder from "b by far" to "a by far", with equally spaced scores
:math:`s_y`: :math:`P(y \mid i, j) \propto \exp(\alpha_{|y|} + s_y (\theta_i - \theta_j))` (Agresti
1992, https://doi.org/10.2307/2347562). Scores of 1/2 and -1/2 are Bradley-Terry; with a tie (score
0) between them it is Davidson's model (1970, https://doi.org/10.1080/01621459.1970.10481082);
margins 1 to 5 score 1/2, 3/2, ..., 9/2.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import optimize
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.special import expit

from heart_utils.ratings.resampling import draw_weights, interaction_codes
from heart_utils.ratings.verdicts import MAX_SHOWN, SHARES, Array, Codes, Entries, RatingsError

__all__ = ["BradleyTerry", "ConvergenceError", "NotComparableError"]

Truths = NDArray[np.bool_]
Ladder = tuple[Codes, Array]  # the level of each entry, and the scores of levels

WIN = np.array([0.5])  # scores of the levels, where there is no other than a win
# wins and losses against the mean responder, added for who always wins or always loses
PRIOR = 0.25
RELEASED_RIDGE = 1e-6  # times the squared strengths, taken off HEART's log-likelihood
# on squared alphas: invisible, but keeps a level finite that separates together with strengths
LEVEL_RIDGE = 1e-6
NEVER = -100.0  # the propensity of a level that a resample does not have
MAX_STEPS = 200
FULL_STEP = 0.5
TOLERANCE = 1e-9
DENSE_CELLS = 30_000_000
# dialogues a pair, on average, below which resamples keep the weight that each has in the data
SPARSE = 15.0
FLAT = 1e-3  # of a win: clusters whose standard deviation is below this say the same
CHUNK_CELLS = 1_000_000
# of a cluster's leverage, so that one which alone links somebody does not divide by zero
NEARLY = 0.999
LARGEST = 700.0  # beyond this no log-odds is looked for


class ConvergenceError(RatingsError):
    """The strengths still move when the steps run out."""


class NotComparableError(RatingsError):
    """Comparisons do not link all responders; ``groups`` has those they do, largest first."""

    def __init__(self, groups: list[list[str]]) -> None:
        self.groups = sorted(groups, key=lambda group: (-len(group), group))
        separate = ", ".join(name for group in self.groups[1:] for name in group)
        super().__init__(
            f"{separate} cannot be rated with the others: no comparison links them to"
            f" {', '.join(self.groups[0][:MAX_SHOWN])}. Drop them, or collect comparisons that do."
        )


@dataclass(frozen=True, eq=False)
class WinMatrices:
    """One win matrix a cluster and level."""

    # a row a cluster, a column a level and ordered pair of responders: what the first won of the
    # second
    flat: Any
    size: int
    n_levels: int
    per_pair: float | None  # where pairs weigh the same, the verdicts to which each is scaled

    def total(self, weights: Array | None = None) -> Array:
        """Sum over clusters, by row of `weights` (replicates, clusters)."""
        if weights is None:
            weights = np.ones((1, self.flat.shape[0]))
        wins: Array = np.asarray(weights @ self.flat).reshape(
            -1, self.n_levels, self.size, self.size
        )
        if self.per_pair is None:
            return wins
        # Each dialogue says one thing on each pair, so the total counts dialogues and the ratio is
        # their mean.
        total = wins.sum(axis=1, keepdims=True)
        total = np.broadcast_to(total + total.swapaxes(2, 3), wins.shape)
        np.divide(wins * self.per_pair, total, out=wins, where=total > 0)
        return wins

    def resampled(self) -> WinMatrices:
        """Return what resamples sum; pairs with few dialogues keep their weight."""
        # Else each resample that has one of a pair's few dialogues would find nearly the same mean.
        if self.per_pair is None:
            return self
        n_met = (
            np.asarray(self.flat.sum(axis=0))
            .reshape(self.n_levels, self.size, self.size)
            .sum(axis=0)
        )
        n_met = n_met + n_met.T
        if n_met[n_met > 0].mean() >= SPARSE:
            return self
        scale = np.tile(
            np.divide(self.per_pair, n_met, out=np.zeros(n_met.shape), where=n_met > 0).ravel(),
            self.n_levels,
        )
        flat = (
            self.flat * scale
            if isinstance(self.flat, np.ndarray)
            else self.flat.multiply(scale).tocsr()
        )
        return replace(self, flat=flat, per_pair=None)


def count_wins(
    entries: Entries,
    *,
    weights: str,
    levels: tuple[Codes, int] | None = None,
    cells: tuple[Codes, int] | None = None,
) -> WinMatrices:
    size = len(entries.responders)
    level, n_levels = levels or (np.zeros(len(entries.rows), np.intp), 1)
    cell, n_cells = cells or (entries.cluster, len(entries.clusters))
    weight, per_pair = entry_weights(entries, weights)
    columns = n_levels * size**2
    columns_won = np.concatenate(
        [
            (level * size + entries.a) * size + entries.b,
            (level * size + entries.b) * size + entries.a,
        ]
    )
    won = np.concatenate([entries.share * weight, (1.0 - entries.share) * weight])
    cell = np.concatenate([cell, cell])
    if n_cells * columns <= DENSE_CELLS:
        flat: Any = np.bincount(
            cell * columns + columns_won, weights=won, minlength=n_cells * columns
        ).reshape(n_cells, columns)
    else:
        flat = coo_array((won, (cell, columns_won)), shape=(n_cells, columns)).tocsr()
    return WinMatrices(flat, size, n_levels, per_pair)


def entry_weights(entries: Entries, weights: str) -> tuple[Array, float | None]:
    """Weigh each entry in its cluster and pair; also give verdicts a pair."""
    if weights == "verdicts":
        return np.ones(len(entries.rows)), None
    pair, _ = pairs_of(entries)
    per_pair = len(pair) / int(np.count_nonzero(np.bincount(pair)))
    if entries.weight is not None:
        return entries.weight, per_pair
    group = pd.factorize(entries.cluster * len(entries.responders) ** 2 + pair)[0]
    return 1.0 / np.bincount(group)[group], per_pair


def fit_weights(entries: Entries, weights: str) -> Array:
    weight, per_pair = entry_weights(entries, weights)
    if per_pair is None:
        return weight
    pair, _ = pairs_of(entries)
    return np.asarray(weight * per_pair / np.bincount(pair, weights=weight)[pair])


def pairs_of(entries: Entries) -> tuple[Codes, Array]:
    """Return each entry's pair, and 1 where its a is first in the alphabet, else -1."""
    low, high = np.minimum(entries.a, entries.b), np.maximum(entries.a, entries.b)
    return low * len(entries.responders) + high, np.where(entries.a < entries.b, 1.0, -1.0)


def check_comparable(wins: Array, responders: pd.Index) -> None:
    n_groups, group = connected_components(wins + wins.T > 0, directed=False)
    if n_groups > 1:
        raise NotComparableError(
            [[str(name) for name in responders[group == number]] for number in range(n_groups)]
        )


@dataclass(frozen=True, eq=False)
class BradleyTerry:
    """A model of the ladder fitted to entries; without levels it is Bradley-Terry's."""

    entries: Entries  #: what was fitted; ``share`` is what a wins within the entry's level
    weights: str  #: ``"pairs"`` or ``"verdicts"``
    level: Codes  #: of each entry, a place in `scores`
    scores: Array  #: of each level, the least first; 0 is a tie
    counts: Array  #: wins by level, shape (1, levels, responders, responders)
    theta: Array  #: strengths with mean zero
    alpha: Array  #: propensities of all levels but the smallest win, which has zero
    penalised: Truths  #: who was given the weak prior

    @classmethod
    def fit(
        cls,
        entries: Entries,
        weights: str,
        levels: Ladder | None = None,
        *,
        counts: Array | None = None,
        ridge: float = 0.0,
    ) -> BradleyTerry:
        """Fit the entries, or `counts` summed from them."""
        level, scores = levels or (np.zeros(len(entries.rows), np.intp), WIN)
        if counts is None:
            counts = count_wins(entries, weights=weights, levels=(level, len(scores))).total()
        check_comparable(counts[0].sum(axis=0), entries.responders)
        penalised = _separated(counts, scores)[0] & (ridge == 0.0)
        estimates = fit_levels(counts, scores, penalised, ridge=ridge)[0]
        size = len(entries.responders)
        return cls(
            entries, weights, level, scores, counts, estimates[:size], estimates[size:], penalised
        )

    def tally(self, cells: tuple[Codes, int] | None = None) -> WinMatrices:
        """Sum the entries by cluster, or by finer cells."""
        return count_wins(
            self.entries, weights=self.weights, levels=(self.level, len(self.scores)), cells=cells
        )

    def refit(self, counts: Array) -> Array:
        """Fit the strengths to each of many sums."""
        penalised = _separated(counts, self.scores) | self.penalised
        return fit_levels(counts, self.scores, penalised, self._found())[:, : len(self.theta)]

    @cached_property
    def chance(self) -> Array:
        """The probability that the row is preferred to the column, a tie being half."""
        return np.asarray(self._steps[0].sum(axis=0))  # of a tie, up is one half and down the other

    @cached_property
    def residuals(self) -> Array:
        """Compute each entry's weighted residuals, shape (entries, 1 + alphas)."""
        # Beyond what the strengths expect, not beyond the pair's own mean: that of a pair met once
        # is all there is of it.
        (up, down), pair, free = self._steps, (self.entries.a, self.entries.b), _free(self.scores)
        observed = (2.0 * self.entries.share - 1.0) * self.scores[self.level]
        beyond = (observed - np.tensordot(self.scores, up - down, 1)[pair])[:, None]
        levels = (self.level[:, None] == free[None, :]) - (up + down)[free][:, pair[0], pair[1]].T
        return np.asarray(
            fit_weights(self.entries, self.weights)[:, None] * np.hstack([beyond, levels])
        )

    @cached_property
    def slopes(self) -> Array:
        """Differentiate each entry's weighted expected score by the gap."""
        up, down = self._steps
        spread = (
            np.tensordot(self.scores**2, up + down, 1)
            - np.tensordot(self.scores, up - down, 1) ** 2
        )
        return np.asarray(
            fit_weights(self.entries, self.weights) * spread[self.entries.a, self.entries.b]
        )

    @cached_property
    def information(self) -> Array:
        """The negative Hessian by strengths and propensities."""
        prior = np.where(self.penalised, PRIOR, 0.0)[None]
        observed = _sums(self.counts, self.scores)
        base, ridge = np.zeros((1, len(self.scores))), np.zeros(1)
        return np.asarray(
            _terms(self._found()[None], *observed, base, prior, ridge, self.scores)[1][0]
        )

    @cached_property
    def bread(self) -> Array:
        """Invert the information; along a move of all strengths it has no meaning."""
        return np.asarray(np.linalg.inv(self.information))

    def _found(self) -> Array:
        return np.concatenate([self.theta, self.alpha])

    @cached_property
    def _steps(self) -> tuple[Array, Array]:
        up, down = _steps(self._found()[None], np.zeros((1, len(self.scores))), self.scores)
        return up[0], down[0]


def fit_model(entries: Entries, method: str, weights: str, margins: Codes | None) -> BradleyTerry:
    # With levels, ``p_a`` is read only where there is no word, and an inconsistent pair is half the
    # smallest win to each side.
    # HEART released Bradley-Terry on soft scores: a margin of 1 to 5 is 0.55 to 0.95 of a win, and
    # every verdict weighs one.
    if method == "bradley-terry":
        return BradleyTerry.fit(entries, weights)
    decided = ~entries.tie & ~entries.inconsistent
    if method == "released-heart" and margins is not None:
        soft = 0.5 + np.where(
            decided, np.where(entries.word == 0, 1.0, -1.0) * (0.1 * margins - 0.05), 0.0
        )
        return BradleyTerry.fit(replace(entries, share=soft), "verdicts", ridge=RELEASED_RIDGE)
    share = np.where(
        entries.inconsistent | (entries.word < 0),
        entries.share,
        np.array(list(SHARES.values()))[entries.word],
    )
    used, level = np.unique(
        np.where(entries.tie, 0, 1 if margins is None else margins), return_inverse=True
    )
    return BradleyTerry.fit(
        replace(entries, share=share), weights, (level, np.where(used == 0, 0.0, used - 0.5))
    )


def fit_strengths(
    wins: Array, penalised: Truths, start: Array | None = None, *, ridge: float | Array = 0.0
) -> Array:
    """Fit strengths to each of many win matrices, less `ridge` times squares."""
    return fit_levels(wins[:, None], WIN, penalised, start, ridge=ridge)


def fit_levels(
    counts: Array,
    scores: Array,
    penalised: Truths,
    start: Array | None = None,
    *,
    ridge: float | Array = 0.0,
) -> Array:
    """Fit strengths and propensities of levels by damped Newton steps.

    Damping as in Sun and Tran-Dinh (2019), https://doi.org/10.1007/s10107-018-1282-4.
    """
    n, size = len(counts), counts.shape[2]
    absent = counts.sum(axis=(2, 3)) == 0
    estimates = np.zeros((n, size + len(scores) - 1)) if start is None else np.tile(start, (n, 1))
    estimates[:, size:][absent[:, _free(scores)]] = 0.0
    prior = np.broadcast_to(np.where(penalised, PRIOR, 0.0), (n, size))
    penalty = np.broadcast_to(np.asarray(ridge, dtype=float), n)
    data = *_sums(counts, scores), np.where(absent, NEVER, 0.0), prior, penalty
    moving = np.arange(n)
    for _ in range(MAX_STEPS):
        gradient, curvature = _terms(estimates[moving], *data, scores)
        try:
            move = np.linalg.solve(curvature, gradient[:, :, None])[:, :, 0]
        except (
            np.linalg.LinAlgError
        ):  # somebody is so far from the others that no game tells how far
            break
        move[:, :size] -= move[:, :size].mean(axis=1, keepdims=True)
        wide = 2.0 * (
            scores[-1] * np.ptp(move[:, :size], axis=1)
            + np.abs(move[:, size:]).max(axis=1, initial=0.0)
        )
        damped = np.where(wide > FULL_STEP, np.log1p(wide) / np.maximum(wide, FULL_STEP), 1.0)
        estimates[moving] += move * damped[:, None]
        still = wide > TOLERANCE * (1.0 + np.abs(estimates[moving]).max(axis=1))
        if not still.any():
            return estimates
        if not still.all():
            moving, data = moving[still], tuple(part[still] for part in data)
    raise ConvergenceError(
        f"The strengths of {len(moving)} of {n} fits find no end within {MAX_STEPS} steps. Look for"
        " responders that hardly meet the others, and drop them or collect more comparisons."
    )


def _free(scores: Array) -> Codes:
    """Return the levels whose propensity is estimated."""
    return np.delete(np.arange(len(scores)), int(scores[0] == 0.0))


def _sums(counts: Array, scores: Array) -> tuple[Array, Array, Array]:
    """Sum games a pair, scores a responder and answers a level."""
    games = counts.sum(axis=1)
    scored = (counts.sum(axis=3) - counts.sum(axis=2)).swapaxes(1, 2) @ scores
    return games + games.swapaxes(1, 2), scored, counts[:, _free(scores)].sum(axis=(2, 3))


def _steps(estimates: Array, base: Array, scores: Array) -> tuple[Array, Array]:
    """Compute probabilities by replicate, level and two responders."""
    free = _free(scores)
    theta, alpha = estimates[:, : estimates.shape[1] - len(free)], base.copy()
    alpha[:, free] += estimates[:, estimates.shape[1] - len(free) :]
    gap = (theta[:, :, None] - theta[:, None, :])[:, None]
    if len(scores) == 1:
        up = expit(2.0 * scores[0] * gap)
        return up, up.swapaxes(2, 3)
    half = np.where(scores == 0.0, 0.5, 1.0)[:, None, None]
    up = half * np.exp(alpha[:, :, None, None] + scores[:, None, None] * gap)
    total = up.sum(axis=1, keepdims=True)
    up /= total + total.swapaxes(2, 3)
    return up, up.swapaxes(2, 3)


def _terms(
    estimates: Array,
    games: Array,
    scored: Array,
    observed: Array,
    base: Array,
    prior: Array,
    ridge: Array,
    scores: Array,
) -> tuple[Array, Array]:
    """Compute the gradient and the negative Hessian."""
    (n, size), free, width = prior.shape, _free(scores), estimates.shape[1]
    theta, alpha = estimates[:, :size], estimates[:, size:]
    if len(free):
        up, down = _steps(estimates, base, scores)
        lead, level = up - down, up + down
        # Level by level: einsum, tensordot and matmul take two to four times as long.
        mean = sum(score * lead[:, number] for number, score in enumerate(scores))
        spread = sum(score**2 * level[:, number] for number, score in enumerate(scores)) - mean**2
    else:  # the same of one level, in half the time
        mean = scores[0] * np.tanh(scores[0] * (theta[:, :, None] - theta[:, None, :]))
        spread = scores[0] ** 2 - mean**2
    information = games * spread
    gradient, curvature = np.empty((n, width)), np.empty((n, width, width))
    gradient[:, :size] = scored - (games * mean).sum(axis=2)
    diagonal = np.arange(size)
    curvature[:, :size, :size] = -information
    curvature[:, diagonal, diagonal] += information.sum(axis=2)
    if len(free):
        lead, level = lead[:, free], level[:, free]
        cross = ((scores[free, None, None] * lead - mean[:, None] * level) * games[:, None]).sum(
            axis=3
        )
        curvature[:, :size, size:], curvature[:, size:, :size] = cross.swapaxes(1, 2), cross
        expected = (games[:, None] * level).sum(axis=(2, 3)) / 2.0
        flat, kinds = level.reshape(n, len(free), -1), np.arange(size, width)
        both = np.einsum("rlx,rmx,rx->rlm", flat, flat, games.reshape(n, -1), optimize=True)
        curvature[:, size:, size:] = -both / 2.0
        curvature[:, kinds, kinds] += expected + LEVEL_RIDGE
        gradient[:, size:] = observed - expected - LEVEL_RIDGE * alpha
    if prior.any():
        prior_gradient, prior_hessian = prior_terms(theta, prior)
        gradient[:, :size] += prior_gradient
        curvature[:, :size, :size] += prior_hessian
    gradient[:, :size] -= 2.0 * ridge[:, None] * theta
    curvature[:, diagonal, diagonal] += 2.0 * ridge[:, None]
    # Only differences are identified: a term along the direction that moves all alike makes the
    # system solvable.
    curvature[:, :size, :size] += (
        curvature[:, diagonal, diagonal].mean(axis=1)[:, None, None] / size
    )
    return gradient, curvature


def prior_terms(theta: Array, prior: Array) -> tuple[Array, Array]:
    size = theta.shape[1]
    chance = 1.0 / (1.0 + np.exp(-theta))
    gradient = prior * (1.0 - 2.0 * chance)
    own = 2.0 * prior * chance * (1.0 - chance)
    hessian = own.sum(axis=1)[:, None, None] / size**2 - (own[:, :, None] + own[:, None, :]) / size
    diagonal = np.arange(size)
    hessian[:, diagonal, diagonal] += own
    return gradient - gradient.mean(axis=1, keepdims=True), hessian


def find_separated(wins: Array) -> Truths:
    """Find whose strength has no finite maximum, in each win matrix."""
    separated = np.zeros(wins.shape[:2], bool)
    for replicate in np.flatnonzero(~_linked(wins > 0)):
        _, group = connected_components(wins[replicate] > 0, connection="strong")
        sizes = np.bincount(group)
        largest = sizes == sizes.max()
        separated[replicate] = True if largest.sum() > 1 else ~largest[group]
    return separated


def _separated(counts: Array, scores: Array) -> Truths:
    # A tie bounds a gap from both sides if a circle of wins bounds ties; without one wide gaps
    # explain the data ever better.
    separated = find_separated(counts.sum(axis=1))
    if scores[0] > 0.0:
        return separated
    wins = counts[:, 1:].sum(axis=1) > 0
    # Going one step further along wins, again and again, ends for everybody if there is no circle.
    walking = np.ones(wins.shape[:2], bool)
    for _ in range(wins.shape[1]):
        walking = (wins & walking[:, None, :]).any(axis=2)
    separated[~walking.any(axis=1)] = True
    return separated


def _linked(beat: Truths) -> Truths:
    """Test whether wins link everyone to everyone, by squaring the matrix."""
    if len(beat) > 1 and _linked(np.asarray(beat.all(axis=0))[None])[0]:
        return np.ones(len(beat), bool)
    size = beat.shape[1]
    reached = np.asarray(beat | np.eye(size, dtype=bool), dtype=np.float32)
    for _ in range((size - 1).bit_length()):
        reached = np.minimum(reached @ reached, 1.0)
    return np.asarray((reached > 0).all(axis=(1, 2)))


def find_unvaried(model: BradleyTerry, groups: list[tuple[Codes, int]]) -> NDArray[np.bool_]:
    """Find the responders of whom all clusters say the same on each opponent."""
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
    """Build the matrix that centres strengths on two-way linked responders."""
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
    # Somewhat too wide with raters: Owen (2007), https://doi.org/10.1214/07-AOAS122
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

    `added_scores` (clusters, responders) move the fit without being part of it. `correction` 1 is a
    little wide, 1/2 without bias under the model ("CV3" and "CV2" of MacKinnon, Nielsen and Webb
    2023, https://doi.org/10.1016/j.jeconom.2022.04.001).
    """
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
    """Sum the squared scores of groups, divided by what leverage leaves."""
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
    residual = model.residuals
    gap = sums_of_sides(
        group, model.entries.a, model.entries.b, residual[:, 0], n_groups, len(model.theta)
    )
    rest = [np.bincount(group, column, n_groups) for column in residual[:, 1:].T]
    return np.column_stack([gap, *rest])


def sums_of_sides(group: Codes, a: Codes, b: Codes, won: Array, n_groups: int, size: int) -> Array:
    """Sum what entries give to their a and take from their b, by group."""
    gained, given = (np.bincount(group * size + side, won, n_groups * size) for side in (a, b))
    return np.asarray((gained - given).reshape(n_groups, size))
