r"""The Bradley-Terry model and its kin: one fit to the data, or thousands to its resamples at once.

Ties and margins as steps of one ladder: Davidson's model, and the same with five margins.

The rater's answer is a step :math:`y` on a ladder from "b by far" to "a by far", with scores
:math:`s_y` that are equally spaced and change sign with the side. The log-odds of two neighbouring
steps move with the gap of strengths by the distance of their scores (an adjacent-category logit [1]_):

.. math:: P(y \mid i, j) \propto \exp(\alpha_{|y|} + s_y (\theta_i - \theta_j))

Two steps (scores 1/2 and -1/2) are Bradley-Terry; with a tie (score 0) between them it is Davidson's
model [2]_ with :math:`\nu = e^{\alpha_0}`; with margins 1 to 5 the scores are 1/2, 3/2, ..., 9/2, so
that a difference of strengths of one is odds of 2.72 for every step.

Adjacent categories were chosen rather than cumulative ones because the likelihood is then concave and sums of scores a pair
are all it needs: a resample costs no more than for Bradley-Terry, and the two simpler models are inside it.

.. rubric:: References

.. [1] Agresti (1992), https://doi.org/10.2307/2347562
.. [2] Davidson (1970), https://doi.org/10.1080/01621459.1970.10481082
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import expit

from heart_utils.ratings.verdicts import MAX_SHOWN, SHARES, Array, Codes, Entries, RatingsError

__all__ = ["BradleyTerry", "ConvergenceError", "Levels", "NotComparableError", "ReleasedHeart"]

Truths = NDArray[np.bool_]

PRIOR = 0.25
"""Wins and losses against the mean responder that someone who separates is lent, each."""

MAX_STEPS = 200
FULL_STEP = 0.5
TOLERANCE = 1e-9
DENSE_CELLS = 30_000_000
SPARSE = 15.0
"""Dialogues a pair, on average, below which resamples keep the weight that each has in the data."""


class ConvergenceError(RatingsError):
    """The strengths still move when the steps run out."""


class NotComparableError(RatingsError):
    """Comparisons do not link all responders.

    Attributes
    ----------
    groups : list of list of str
        Who can be compared with whom, the largest group first.
    """

    def __init__(self, groups: list[list[str]]) -> None:
        self.groups = sorted(groups, key=lambda group: (-len(group), group))
        apart = ", ".join(name for group in self.groups[1:] for name in group)
        shown = "; ".join(", ".join(group[:MAX_SHOWN]) + (", ..." if len(group) > MAX_SHOWN else "") for group in self.groups)
        super().__init__(
            f"{apart} cannot be rated with the others: no comparison links them (groups: {shown}). "
            f"Drop them, or collect comparisons that do."
        )


@dataclass(frozen=True, eq=False)
class WinMatrices:
    """One win matrix a cluster and level, and their sum under any weights.

    ``flat`` has a row a cluster and a column a level and ordered pair of responders: what the first won of the second.
    Where pairs weigh the same, each is scaled to ``per_pair`` verdicts.
    """

    flat: Any
    size: int
    n_levels: int
    per_pair: float | None

    def total(self, weights: Array | None = None) -> Array:
        """Sum over clusters, for each row of `weights` (replicates, clusters), or once with weight one."""
        if weights is None:
            weights = np.ones((1, self.flat.shape[0]))
        wins: Array = np.asarray(weights @ self.flat).reshape(-1, self.n_levels, self.size, self.size)
        if self.per_pair is None:
            return wins
        # Each dialogue says one thing on each pair, so the total counts dialogues and the ratio is their mean.
        total = wins.sum(axis=1, keepdims=True)
        total = np.broadcast_to(total + total.swapaxes(2, 3), wins.shape)
        np.divide(wins * self.per_pair, total, out=wins, where=total > 0)
        return wins

    def resampled(self) -> WinMatrices:
        """Give what resamples are summed from.

        A pair's mean is no more than its few dialogues: where pairs have few, every resample that has one of them finds
        nearly the same mean. There each dialogue keeps the weight that it has in the data.
        """
        if self.per_pair is None:
            return self
        met = np.asarray(self.flat.sum(axis=0)).reshape(self.n_levels, self.size, self.size).sum(axis=0)
        met = met + met.T
        if met[met > 0].mean() >= SPARSE:
            return self
        scale = np.tile(np.divide(self.per_pair, met, out=np.zeros(met.shape), where=met > 0).ravel(), self.n_levels)
        flat = self.flat * scale if isinstance(self.flat, np.ndarray) else self.flat.multiply(scale).tocsr()
        return replace(self, flat=flat, per_pair=None)


def count_wins(
    entries: Entries, *, weights: str, levels: tuple[Codes, int] | None = None, cells: tuple[Codes, int] | None = None
) -> WinMatrices:
    """Sum verdicts into one win matrix a cluster.

    With ``weights="pairs"`` the verdicts of a cluster on a pair are averaged, then clusters are, and each pair weighs the
    same; with ``"verdicts"`` each verdict counts one. `levels` gives each entry's level and their number; `cells` what is
    summed into one matrix, if finer than the clusters, and how many there are.
    """
    size = len(entries.responders)
    level, n_levels = levels or (np.zeros(len(entries.rows), np.intp), 1)
    cell, n_cells = cells or (entries.cluster, len(entries.clusters))
    weight, per_pair = entry_weights(entries, weights)
    columns = n_levels * size**2
    place = np.concatenate([(level * size + entries.a) * size + entries.b, (level * size + entries.b) * size + entries.a])
    won = np.concatenate([entries.share * weight, (1.0 - entries.share) * weight])
    cell = np.concatenate([cell, cell])
    if n_cells * columns <= DENSE_CELLS:
        flat: Any = np.bincount(cell * columns + place, weights=won, minlength=n_cells * columns).reshape(n_cells, columns)
    else:
        from scipy.sparse import coo_array

        flat = coo_array((won, (cell, place)), shape=(n_cells, columns)).tocsr()
    return WinMatrices(flat, size, n_levels, per_pair)


def entry_weights(entries: Entries, weights: str) -> tuple[Array, float | None]:
    """Weigh each entry within its cluster and pair; where pairs weigh the same, also tell how many verdicts a pair has."""
    if weights == "verdicts":
        return np.ones(len(entries.rows)), None
    size = len(entries.responders)
    pair, _ = pairs_of(entries)
    weight = 1.0 / _group_sizes(entries.cluster * size**2 + pair, len(entries.clusters) * size**2)
    return weight, len(pair) / int(np.count_nonzero(np.bincount(pair)))


def voices(entries: Entries, weights: str) -> Array:
    """Give what each entry weighs in the fit."""
    weight, per_pair = entry_weights(entries, weights)
    if per_pair is None:
        return weight
    pair, _ = pairs_of(entries)
    return np.asarray(weight * per_pair / np.bincount(pair, weights=weight)[pair])


def pairs_of(entries: Entries) -> tuple[Codes, Array]:
    """Give each entry the number of its pair, and the side of its a: 1 for the first of the alphabet, else -1."""
    low, high = np.minimum(entries.a, entries.b), np.maximum(entries.a, entries.b)
    return low * len(entries.responders) + high, np.where(entries.a < entries.b, 1.0, -1.0)


def check_comparable(wins: Array, responders: pd.Index) -> None:
    """Raise :class:`NotComparableError` if comparisons do not link all responders."""
    from scipy.sparse.csgraph import connected_components

    n_groups, group = connected_components(wins + wins.T > 0, directed=False)
    if n_groups > 1:
        raise NotComparableError([[str(name) for name in responders[group == number]] for number in range(n_groups)])


def _group_sizes(keys: Codes, n_keys: int) -> NDArray[np.int64]:
    """Give the number of entries that share each entry's key."""
    if n_keys <= DENSE_CELLS:
        return np.bincount(keys, minlength=n_keys)[keys]
    _, group, sizes = np.unique(keys, return_inverse=True, return_counts=True)
    return sizes[group]


def climb(start: Array, data: tuple[Array, ...], step: Callable[..., Array], span: Callable[[Array], Array]) -> Array:
    """Climb many concave log-likelihoods to their maxima.

    Source: Sun and Tran-Dinh (2019), https://doi.org/10.1007/s10107-018-1282-4
    """
    found = start.copy()
    moving = np.arange(len(found))
    for _ in range(MAX_STEPS):
        move = step(found[moving], *data)
        wide = span(move)
        damped = np.where(wide > FULL_STEP, np.log1p(wide) / np.maximum(wide, FULL_STEP), 1.0)
        found[moving] += move * damped[:, None]
        still = wide > TOLERANCE * (1.0 + np.abs(found[moving]).max(axis=1))
        if not still.any():
            return found
        if not still.all():
            moving, data = moving[still], tuple(part[still] for part in data)
    raise ConvergenceError(
        f"The strengths of {len(moving)} of {len(found)} fits still move after {MAX_STEPS} steps. "
        f"Look for responders that hardly meet the others, and drop them or collect more comparisons."
    )


def prior_terms(theta: Array, prior: Array) -> tuple[Array, Array]:
    """Give gradient and curvature of some part-games against the mean responder, won as often as lost."""
    size = theta.shape[1]
    chance = 1.0 / (1.0 + np.exp(-theta))
    pull = prior * (1.0 - 2.0 * chance)
    own = 2.0 * prior * chance * (1.0 - chance)
    bend = own.sum(axis=1)[:, None, None] / size**2 - (own[:, :, None] + own[:, None, :]) / size
    diagonal = np.arange(size)
    bend[:, diagonal, diagonal] += own
    return pull - pull.mean(axis=1, keepdims=True), bend


@dataclass(frozen=True, eq=False)
class BradleyTerry:
    """Bradley-Terry fitted to entries."""

    entries: Entries
    weights: str
    theta: Array
    penalised: Truths

    @classmethod
    def fit(cls, entries: Entries, weights: str) -> BradleyTerry:
        """Fit the entries, once their comparisons are known to link all responders."""
        return cls.of_wins(entries, weights, count_wins(entries, weights=weights).total()[:, 0])

    @classmethod
    def of_wins(cls, entries: Entries, weights: str, wins: Array) -> BradleyTerry:
        """Fit one sum of the entries' win matrices, shape (1, responders, responders)."""
        check_comparable(wins[0], entries.responders)
        penalised = find_separated(wins)[0]
        return cls(entries, weights, fit_strengths(wins, penalised)[0], penalised)

    @property
    def extra(self) -> dict[str, float]:
        """Parameters beside the strengths: none."""
        return {}

    def tally(self, cells: tuple[Codes, int] | None = None) -> WinMatrices:
        """Sum the entries by cluster, or by finer cells."""
        return count_wins(self.entries, weights=self.weights, cells=cells)

    def refit(self, wins: Array) -> tuple[Array, int]:
        """Fit each of many sums; tell in how many someone else than the penalised separated."""
        separated = find_separated(wins[:, 0])
        n_degenerate = int((separated & ~self.penalised).any(axis=1).sum())
        return fit_strengths(wins[:, 0], separated | self.penalised, self.theta), n_degenerate

    def chance(self) -> Array:
        """Give the probability that the row is preferred to the column, a tie being half."""
        return np.asarray(expit(self.theta[:, None] - self.theta[None, :]))

    def residuals(self) -> Array:
        """Give what a won of each entry beyond expectation, weighted as in the fit; shape (entries, 1)."""
        # Beyond what the strengths expect, not beyond the pair's own mean: that of a pair met once is all there is of it.
        beyond = self.entries.share - self.chance()[self.entries.a, self.entries.b]
        return np.asarray((voices(self.entries, self.weights) * beyond)[:, None])

    def slopes(self) -> Array:
        """Give how fast each entry's expected score changes with the gap of strengths, weighted as in the fit."""
        chance = self.chance()[self.entries.a, self.entries.b]
        return np.asarray(voices(self.entries, self.weights) * chance * (1.0 - chance))

    def deletions(self) -> Array:
        """Give what leaving each entry out takes from the gradient; shape (entries, 1).

        Where pairs weigh the same, the entries of a cluster and pair share one voice: without one of them the others
        speak louder, and without the last the cluster falls silent on that pair.
        """
        if self.weights == "verdicts":
            return self.residuals()
        weight, per_pair = entry_weights(self.entries, self.weights)
        pair, side = pairs_of(self.entries)
        lead = side * (self.entries.share - 0.5)
        size = len(self.theta)
        cell = self.entries.cluster * size**2 + pair
        _, place = np.unique(cell, return_inverse=True)
        own = np.bincount(place, weights=lead * weight)[place]
        total = np.bincount(pair, weights=weight)[pair]
        mean = np.bincount(pair, weights=weight * lead)[pair] / total
        n = np.round(1.0 / weight)
        within = (lead - own) / np.maximum(n - 1.0, 1.0) / total
        alone = (lead - mean) / np.maximum(total - 1.0, 1.0)
        return np.asarray((side * (per_pair or 1.0) * np.where(n > 1, within, alone))[:, None])

    def information(self) -> Array:
        """Give the negative second derivative of the log-likelihood, shape (responders, responders)."""
        wins = self.tally().total()[0, 0]
        chance = self.chance()
        information = (wins + wins.T) * chance * (1.0 - chance)
        bend = prior_terms(self.theta[None], np.where(self.penalised, PRIOR, 0.0)[None])[1][0]
        return np.asarray(np.diag(information.sum(axis=1)) - information + bend)


def fit_strengths(wins: Array, penalised: Truths, start: Array | None = None, *, ridge: float | Array = 0.0) -> Array:
    r"""Fit Bradley-Terry strengths to each of many win matrices.

    Maximises :math:`\sum_{ij} w_{ij} \log \sigma(\theta_i - \theta_j)`, plus, for those who are penalised,
    :math:`\frac14 \log \sigma(\theta_i - \bar\theta) + \frac14 \log \sigma(\bar\theta - \theta_i)`.
    """
    n_replicates, size = wins.shape[:2]
    theta = np.tile(np.zeros(size) if start is None else start - start.mean(), (n_replicates, 1))
    prior = np.broadcast_to(np.where(penalised, PRIOR, 0.0), theta.shape)
    pull = np.broadcast_to(np.asarray(ridge, dtype=float), (n_replicates,))
    data = wins.sum(axis=2), wins + wins.transpose(0, 2, 1), prior, pull
    return climb(theta, data, _step, lambda move: np.asarray(np.ptp(move, axis=1)))


def find_separated(wins: Array) -> Truths:
    """Find whose strength has no finite maximum, in each of many win matrices."""
    from scipy.sparse.csgraph import connected_components

    separated = np.zeros(wins.shape[:2], bool)
    for replicate in np.flatnonzero(~_linked(wins > 0)):
        _, group = connected_components(wins[replicate] > 0, connection="strong")
        sizes = np.bincount(group)
        largest = sizes == sizes.max()
        separated[replicate] = True if largest.sum() > 1 else ~largest[group]
    return separated


def _step(theta: Array, won: Array, games: Array, prior: Array, ridge: Array) -> Array:
    """Give the Newton step of each replicate."""
    size = theta.shape[1]
    chance = expit(theta[:, :, None] - theta[:, None, :])
    expected = games * chance
    gradient = won - expected.sum(axis=2)
    information = expected
    information *= chance.transpose(0, 2, 1)
    curvature = -information
    diagonal = np.arange(size)
    curvature[:, diagonal, diagonal] += information.sum(axis=2)
    if prior.any():
        pull, bend = prior_terms(theta, prior)
        gradient += pull
        curvature += bend
    if ridge.any():
        gradient -= 2.0 * ridge[:, None] * theta
        curvature[:, diagonal, diagonal] += 2.0 * ridge[:, None]
    # Only differences are identified: a term along the direction that moves all alike makes the system solvable.
    curvature += curvature[:, diagonal, diagonal].mean(axis=1)[:, None, None] / size
    step = np.linalg.solve(curvature, gradient[:, :, None])[:, :, 0]
    return np.asarray(step - step.mean(axis=1, keepdims=True))


def _linked(beat: Truths) -> Truths:
    """Tell for each replicate whether everyone beat everyone along some chain: by squaring who reaches whom."""
    if len(beat) > 1 and _linked(np.asarray(beat.all(axis=0))[None])[0]:
        return np.ones(len(beat), bool)
    size = beat.shape[1]
    reached = np.asarray(beat | np.eye(size, dtype=bool), dtype=np.float32)
    for _ in range((size - 1).bit_length()):
        reached = np.minimum(reached @ reached, 1.0)
    return np.asarray((reached > 0).all(axis=(1, 2)))


NEVER = -100.0
LEVEL_RIDGE = 1e-6
"""On squared alphas: invisible, but keeps a level finite that separates together with strengths."""


@dataclass(frozen=True, eq=False)
class Levels:
    """An adjacent-category model fitted to entries."""

    entries: Entries  # what was fitted; ``share`` is what a wins within the entry's level
    weights: str  # ``"pairs"`` or ``"verdicts"``
    level: Codes  # level of each entry, a place in `names`
    names: tuple[str, ...]  # ``"tie"`` first if there are ties, then ``"win"`` or ``"margin_1"`` and so on
    scores: Array  # score of each level
    theta: Array  # strengths with mean zero; propensities of the levels, zero for the smallest win
    alpha: Array
    penalised: Truths  # who was lent the weak prior

    @classmethod
    def fit(cls, entries: Entries, weights: str, level: Codes, names: tuple[str, ...], scores: Array) -> Levels:
        """Fit the entries, once their comparisons are known to link all responders."""
        counts = count_wins(entries, weights=weights, levels=(level, len(names))).total()
        check_comparable(counts[0].sum(axis=0), entries.responders)
        penalised = _separated(counts, scores)[0]
        size = len(penalised)
        found = _fit_levels(counts, scores, penalised[None], np.zeros(size + len(names)))[0]
        return cls(entries, weights, level, names, scores, found[:size], found[size:], penalised)

    @property
    def extra(self) -> dict[str, float]:
        """Propensities of the levels; for Davidson also ``nu``."""
        found = {f"alpha_{name}": float(value) for name, value in zip(self.names, self.alpha, strict=True) if value != 0}
        return {"nu": float(np.exp(self.alpha[0])), **found} if self.names == ("tie", "win") else found

    def tally(self, cells: tuple[Codes, int] | None = None) -> WinMatrices:
        """Sum the entries by cluster, or by finer cells."""
        return count_wins(self.entries, weights=self.weights, levels=(self.level, len(self.names)), cells=cells)

    def refit(self, counts: Array) -> tuple[Array, int]:
        """Fit each of many sums; tell in how many someone else than the penalised separated."""
        separated = _separated(counts, self.scores)
        n_degenerate = int((separated & ~self.penalised).any(axis=1).sum())
        found = _fit_levels(counts, self.scores, separated | self.penalised, np.concatenate([self.theta, self.alpha]))
        return found[:, : len(self.theta)], n_degenerate

    def chance(self) -> Array:
        """Give the probability that the row is preferred to the column, a tie being half."""
        up, _, total = _steps(self.theta[None], self.alpha[None], self.scores)
        return np.asarray(up[0].sum(axis=0) / total[0])  # of a tie, up is one half and down the other

    def residuals(self) -> Array:
        """Give each entry's score, and its levels, beyond expectation, weighted; shape (entries, levels)."""
        said = (2.0 * self.entries.share - 1.0) * self.scores[self.level]
        seen = self.level[:, None] == self._free()[None, :]
        up, down, total = _steps(self.theta[None], self.alpha[None], self.scores)
        pair = self.entries.a, self.entries.b
        expected = np.tensordot(self.scores, (up - down)[0], 1) / total[0]
        levels = ((up + down)[0] / total[0])[self._free()]
        beyond = np.hstack([(said - expected[pair])[:, None], seen - levels[:, pair[0], pair[1]].T])
        return np.asarray(voices(self.entries, self.weights)[:, None] * beyond)

    def slopes(self) -> Array:
        """Give how fast each entry's expected score changes with the gap of strengths, weighted as in the fit."""
        up, down, total = (part[0] for part in _steps(self.theta[None], self.alpha[None], self.scores))
        spread = np.tensordot(self.scores**2, up + down, 1) / total - (np.tensordot(self.scores, up - down, 1) / total) ** 2
        return np.asarray(voices(self.entries, self.weights) * spread[self.entries.a, self.entries.b])

    def information(self) -> Array:
        """Give the negative second derivative of the log-likelihood by strengths and free propensities."""
        counts = self.tally().total()
        prior = np.where(self.penalised, PRIOR, 0.0)[None]
        _, curvature = _terms(np.concatenate([self.theta, self.alpha])[None], counts, prior, self.scores)
        size = len(self.theta)
        keep = np.concatenate([np.arange(size), size + self._free()])
        return np.asarray(curvature[0][np.ix_(keep, keep)])

    def _free(self) -> Codes:
        """Give the levels whose propensity is estimated: all but the smallest win."""
        return np.flatnonzero(np.arange(len(self.scores)) != int(self.scores[0] == 0.0))


def _fit_levels(counts: Array, scores: Array, penalised: Truths, start: Array) -> Array:
    """Fit the adjacent-category model to each of many sets of counts."""
    size = counts.shape[2]
    absent = counts.sum(axis=(2, 3)) == 0
    first = np.tile(start, (len(counts), 1))
    first[:, size:] = np.where(absent, NEVER, first[:, size:])
    prior = np.broadcast_to(np.where(penalised, PRIOR, 0.0), (len(counts), size))
    widest = 2.0 * scores[-1]

    def step(found: Array, counts: Array, prior: Array, absent: Truths) -> Array:
        gradient, curvature = _terms(found, counts, prior, scores)
        fixed = np.concatenate([np.zeros((len(found), size), bool), absent], axis=1)
        fixed[:, size + int(scores[0] == 0.0)] = True
        gradient[fixed] = 0.0
        curvature[fixed] = 0.0
        curvature.swapaxes(1, 2)[fixed] = 0.0
        diagonal = np.arange(curvature.shape[1])
        curvature[:, diagonal, diagonal] += fixed
        move = np.linalg.solve(curvature, gradient[:, :, None])[:, :, 0]
        move[:, :size] -= move[:, :size].mean(axis=1, keepdims=True)
        return np.asarray(move)

    def span(move: Array) -> Array:
        return np.asarray(widest * np.ptp(move[:, :size], axis=1) + 2.0 * np.abs(move[:, size:]).max(axis=1))

    return climb(first, (counts, prior, absent), step, span)


def read_levels(entries: Entries, method: str, margins: Codes | None) -> tuple[Entries, Codes, tuple[str, ...], Array]:
    """Sort entries into levels: ties and wins for Davidson, ties and margins for the ladder.

    Both read the rater's word where there is one, and ``p_a`` only where there is none. A margin that is the mean of
    two orders is rounded. An inconsistent pair of orders is half the smallest win to each side.
    """
    share = np.where(entries.inconsistent | (entries.word < 0), entries.share, np.array(list(SHARES.values()))[entries.word])
    place = np.where(entries.tie, 0, 1)
    if margins is not None:
        place = np.where(entries.tie, 0, np.where(entries.inconsistent, 1, margins))
    used = np.unique(place)
    names = tuple("tie" if at == 0 else "win" if method == "davidson" else f"margin_{at}" for at in used)
    scores = np.where(used == 0, 0.0, used - 0.5)
    return replace(entries, share=share), np.searchsorted(used, place), names, scores


def _separated(counts: Array, scores: Array) -> Truths:
    """Find whose strength has no finite maximum.

    A tie bounds a gap from both sides, provided that ties are bounded: by a circle of wins somewhere. Without one,
    ties everywhere and wide gaps explain the data ever better, and all are separated.
    """
    separated = find_separated(counts.sum(axis=1))
    wins = counts[:, scores > 0].sum(axis=1) > 0
    # Going one step further along wins, again and again, ends for everybody if there is no circle.
    walking = np.ones(wins.shape[:2], bool)
    for _ in range(wins.shape[1]):
        walking = (wins & walking[:, None, :]).any(axis=2)
    separated[~walking.any(axis=1)] = True
    return separated


def _steps(theta: Array, alpha: Array, scores: Array) -> tuple[Array, Array, Array]:
    """Give the parts of each level to either side, shape (replicates, levels, responders, responders), and their sum."""
    gap = (theta[:, :, None] - theta[:, None, :])[:, None]
    half = np.where(scores == 0.0, 0.5, 1.0)[None, :, None, None]
    up = half * np.exp(alpha[:, :, None, None] + scores[None, :, None, None] * gap)
    down = up.swapaxes(2, 3)
    return up, down, (up + down).sum(axis=1)


def _terms(found: Array, counts: Array, prior: Array, scores: Array) -> tuple[Array, Array]:
    """Give gradient and negative second derivative by strengths and propensities."""
    size = counts.shape[2]
    theta, alpha = found[:, :size], found[:, size:]
    up, down, total = _steps(theta, alpha, scores)
    up, down = up / total[:, None], down / total[:, None]
    games = counts.sum(axis=1)
    games = games + games.swapaxes(1, 2)
    mean = np.tensordot(up - down, scores, (1, 0))
    spread = np.tensordot(up + down, scores**2, (1, 0)) - mean**2
    scored = np.tensordot(counts - counts.swapaxes(2, 3), scores, (1, 0))
    information = games * spread
    curvature = np.zeros((len(found), found.shape[1], found.shape[1]))
    diagonal = np.arange(size)
    curvature[:, :size, :size] = -information
    curvature[:, diagonal, diagonal] += information.sum(axis=2)
    level = up + down
    cross = ((scores[None, :, None, None] * (up - down) - mean[:, None] * level) * games[:, None]).sum(axis=3)
    curvature[:, :size, size:] = cross.swapaxes(1, 2)
    curvature[:, size:, :size] = cross
    expected = (games[:, None] * level).sum(axis=(2, 3)) / 2.0
    flat = level.reshape(len(found), len(scores), -1)
    both = np.einsum("rlx,rmx,rx->rlm", flat, flat, games.reshape(len(found), -1), optimize=True) / 2.0
    kinds = np.arange(size, found.shape[1])
    curvature[:, size:, size:] = -both
    curvature[:, kinds, kinds] += expected + LEVEL_RIDGE
    gradient = np.concatenate(
        [(scored - games * mean).sum(axis=2), counts.sum(axis=(2, 3)) - expected - LEVEL_RIDGE * alpha], axis=1
    )
    if prior.any():
        pull, bend = prior_terms(theta, prior)
        gradient[:, :size] += pull
        curvature[:, :size, :size] += bend
    # Only differences are identified: a term along the direction that moves all alike makes the system solvable.
    curvature[:, :size, :size] += curvature[:, diagonal, diagonal].mean(axis=1)[:, None, None] / size
    return gradient, curvature


PENALTY = 1e-6
LOWEST_RATING, HIGHEST_RATING = 500.0, 3000.0
Z = 1.96


@dataclass(frozen=True, eq=False)
class ReleasedHeart(BradleyTerry):
    """Bradley-Terry on soft scores: a margin of 1 to 5 is 0.55 to 0.95 of a win, a tie half of one.

    Every verdict weighs one, 1e-6 times the squared strengths is taken off the log-likelihood, and the
    geometric mean of exp(strength) is one. Soft scores compress: five pluses from everybody are odds of
    19, one plus from everybody odds of 1.2, however many say so.
    """

    @classmethod
    def fit_margins(cls, entries: Entries, margins: Codes) -> ReleasedHeart:
        """Fit the entries, once each win is known to have a margin."""
        decided = ~entries.tie & ~entries.inconsistent
        side = np.where(entries.word == 0, 1.0, -1.0)
        soft = 0.5 + np.where(decided, side * (0.1 * margins - 0.05), 0.0)
        entries = replace(entries, share=soft)
        wins = count_wins(entries, weights="verdicts").total()[:, 0]
        check_comparable(wins[0], entries.responders)
        nobody = np.zeros(len(entries.responders), bool)
        return cls(entries, "verdicts", fit_strengths(wins, nobody, ridge=PENALTY)[0], nobody)

    def released_ends(self) -> tuple[Array, Array]:
        """Give the ends of the released interval: strength -+ 1.96 / sqrt(number of verdicts)."""
        size = len(self.theta)
        games = np.bincount(self.entries.a, minlength=size) + np.bincount(self.entries.b, minlength=size)
        reach = Z / np.sqrt(games)
        return self.theta - reach, self.theta + reach


def fit_model(entries: Entries, method: str, weights: str, margins: Codes | None) -> BradleyTerry | Levels:
    """Fit the model of a method; `margins` are those of the verdicts, where the method takes them."""
    if method == "bradley-terry":
        return BradleyTerry.fit(entries, weights)
    if method == "released-heart" and margins is not None:
        return ReleasedHeart.fit_margins(entries, margins)
    entries, level, names, scores = read_levels(entries, method, margins)
    return Levels.fit(entries, weights, level, names, scores)
