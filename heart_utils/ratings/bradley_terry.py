"""The Bradley-Terry model: one fit to the data, or thousands to its resamples at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import expit

from heart_utils.ratings.verdicts import MAX_SHOWN, Codes, Entries, RatingsError

__all__ = ["BradleyTerry", "ConvergenceError", "NotComparableError"]

Array = NDArray[np.float64]
Truths = NDArray[np.bool_]

PRIOR = 0.25
"""Wins and losses against the mean responder that someone who separates is lent, each."""

MAX_STEPS = 200
FULL_STEP = 0.5
TOLERANCE = 1e-9
DENSE_CELLS = 30_000_000


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

    def sum(self, weights: Array | None = None) -> Array:
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


def count_wins(
    entries: Entries,
    *,
    weights: str,
    levels: tuple[Codes, int] | None = None,
    cells: tuple[Codes, int] | None = None,
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


def pairs_of(entries: Entries) -> tuple[Codes, Array]:
    """Give each entry the number of its pair, and the side of its a: 1 for the first of the alphabet, else -1."""
    low, high = np.minimum(entries.a, entries.b), np.maximum(entries.a, entries.b)
    return low * len(entries.responders) + high, np.where(entries.a < entries.b, 1.0, -1.0)


def pair_means(values: Array, weight: Array, pair: Codes) -> tuple[Array, Array]:
    """Give each entry the weighted mean of some values (entries, columns) over its pair, and the pair's weight."""
    total = np.bincount(pair, weights=weight)
    sums = np.stack([np.bincount(pair, weights=weight * column) for column in values.T], axis=1)
    return sums[pair] / total[pair, None], np.asarray(total[pair], dtype=float)


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


def climb(
    start: Array,
    data: tuple[Array, ...],
    step: Callable[..., Array],
    span: Callable[[Array], Array],
) -> Array:
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
        wins = count_wins(entries, weights=weights).sum()[:, 0]
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
        beyond = self.entries.share - self.chance()[self.entries.a, self.entries.b]
        if self.weights == "verdicts":
            return np.asarray(beyond)[:, None]
        # Beyond what the strengths expect, not beyond the pair's own mean: that of a pair met once is all there is of it.
        weight, per_pair = entry_weights(self.entries, self.weights)
        total = pair_means(beyond[:, None], weight, pairs_of(self.entries)[0])[1]
        return np.asarray((weight * (per_pair or 1.0) / total * beyond)[:, None])

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
        mean, total = pair_means(lead[:, None], weight, pair)
        n = np.round(1.0 / weight)
        within = (lead - own) / np.maximum(n - 1.0, 1.0) / total
        alone = (lead - mean[:, 0]) / np.maximum(total - 1.0, 1.0)
        return np.asarray((side * (per_pair or 1.0) * np.where(n > 1, within, alone))[:, None])

    def information(self) -> Array:
        """Give the negative second derivative of the log-likelihood, shape (responders, responders)."""
        wins = self.tally().sum()[0, 0]
        chance = self.chance()
        information = (wins + wins.T) * chance * (1.0 - chance)
        bend = prior_terms(self.theta[None], np.where(self.penalised, PRIOR, 0.0)[None])[1][0]
        return np.asarray(np.diag(information.sum(axis=1)) - information + bend)


def fit_strengths(wins: Array, penalised: Truths, start: Array | None = None, *, ridge: float = 0.0) -> Array:
    r"""Fit Bradley-Terry strengths to each of many win matrices.

    Maximises :math:`\sum_{ij} w_{ij} \log \sigma(\theta_i - \theta_j)`, plus, for those who are penalised,
    :math:`\frac14 \log \sigma(\theta_i - \bar\theta) + \frac14 \log \sigma(\bar\theta - \theta_i)`.
    """
    n_replicates, size = wins.shape[:2]
    theta = np.tile(np.zeros(size) if start is None else start - start.mean(), (n_replicates, 1))
    prior = np.broadcast_to(np.where(penalised, PRIOR, 0.0), theta.shape)
    data = wins.sum(axis=2), wins + wins.transpose(0, 2, 1), prior
    return climb(theta, data, partial(_step, ridge=ridge), lambda move: np.asarray(np.ptp(move, axis=1)))


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


def _step(theta: Array, won: Array, games: Array, prior: Array, *, ridge: float) -> Array:
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
    if ridge:
        gradient -= 2.0 * ridge * theta
        curvature[:, diagonal, diagonal] += 2.0 * ridge
    # Only differences are identified: a term along the direction that moves all alike makes the system solvable.
    curvature += curvature[:, diagonal, diagonal].mean(axis=1)[:, None, None] / size
    step = np.linalg.solve(curvature, gradient[:, :, None])[:, :, 0]
    return np.asarray(step - step.mean(axis=1, keepdims=True))


def _linked(beat: Truths) -> Truths:
    """Tell for each replicate whether everyone beat everyone along some chain."""
    if _reaches_all(np.asarray(beat.all(axis=0))[None]).all():
        return np.ones(len(beat), bool)
    return _reaches_all(beat)


def _reaches_all(beat: Truths) -> Truths:
    return _reached(beat) & _reached(beat.transpose(0, 2, 1))


def _reached(beat: Truths) -> Truths:
    """Tell whether the first responder reaches all the others."""
    reached = np.zeros(beat.shape[:2], bool)
    reached[:, 0] = True
    for _ in range(beat.shape[1]):
        further = reached | (reached[:, :, None] & beat).any(axis=1)
        if (further == reached).all():
            break
        reached = further
    return np.asarray(reached.all(axis=1))
