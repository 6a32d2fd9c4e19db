r"""Ties and margins as steps of one ladder: Davidson's model, and the same with five margins.

The rater's answer is a step :math:`y` on a ladder from "b by far" to "a by far", with scores
:math:`s_y` that are equally spaced and change sign with the side. The log-odds of two neighbouring
steps move with the gap of strengths by the distance of their scores (an adjacent-category logit [1]_):

.. math:: P(y \mid i, j) \propto \exp(\alpha_{|y|} + s_y (\theta_i - \theta_j))

Two steps (scores 1/2 and -1/2) are Bradley-Terry; with a tie (score 0) between them it is Davidson's
model [2]_ with :math:`\nu = e^{\alpha_0}`; with margins 1 to 5 the scores are 1/2, 3/2, ..., 9/2, so
that a difference of strengths of one is odds of 2.72 for every step.

Adjacent categories were chosen rather than cumulative ones because the likelihood is then concave and
sums of scores a pair are all it needs: a resample costs no more than for Bradley-Terry, and the two
simpler models are inside it.

.. rubric:: References

.. [1] Agresti (1992), https://doi.org/10.2307/2347562
.. [2] Davidson (1970), https://doi.org/10.1080/01621459.1970.10481082
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from heart_utils.ratings.bradley_terry import (
    PRIOR,
    BradleyTerry,
    Truths,
    WinMatrices,
    check_comparable,
    climb,
    count_wins,
    entry_weights,
    find_separated,
    fit_strengths,
    pair_means,
    pairs_of,
    prior_terms,
)
from heart_utils.ratings.verdicts import SHARES, Codes, Entries, RatingsError, refuse

__all__ = ["HIGHEST_RATING", "LOWEST_RATING", "Levels", "ReleasedHeart"]

Array = NDArray[np.float64]

MOST = 5
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
        counts = count_wins(entries, weights=weights, levels=(level, len(names))).sum()
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
        if self.weights == "verdicts":
            return np.asarray(beyond)
        weight, per_pair = entry_weights(self.entries, self.weights)
        scale = weight * (per_pair or 1.0) / pair_means(beyond, weight, pairs_of(self.entries)[0])[1]
        return np.asarray(scale[:, None] * beyond)

    def information(self) -> Array:
        """Give the negative second derivative of the log-likelihood by strengths and free propensities."""
        counts = self.tally().sum()
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


def read_levels(verdicts: pd.DataFrame, entries: Entries, method: str) -> tuple[Entries, Codes, tuple[str, ...], Array]:
    """Sort entries into levels: ties and wins for Davidson, ties and margins for the ladder.

    Both read the rater's word where there is one, and ``p_a`` only where there is none. A margin that is the mean of
    two orders is rounded. An inconsistent pair of orders is half the smallest win to each side.
    """
    share = np.where(entries.inconsistent | (entries.word < 0), entries.share, np.array(list(SHARES.values()))[entries.word])
    place = np.where(entries.tie, 0, 1)
    if method == "margins":
        place = np.where(entries.tie, 0, np.where(entries.inconsistent, 1, read_margins(verdicts, entries)))
    used = np.unique(place)
    names = tuple("tie" if at == 0 else "win" if method == "davidson" else f"margin_{at}" for at in used)
    scores = np.where(used == 0, 0.0, used - 0.5)
    return replace(entries, share=share), np.searchsorted(used, place), names, scores


def read_margins(verdicts: pd.DataFrame, entries: Entries) -> Codes:
    """Read the margin of each entry as a whole number; 1 where nobody won."""
    if "margin" not in verdicts:
        raise RatingsError("verdicts lack the column margin, by which this method tells wins apart.")
    margin = pd.to_numeric(verdicts["margin"], errors="coerce").to_numpy(float, na_value=np.nan)[entries.rows]
    needed = ~entries.tie & ~entries.inconsistent
    wrong = needed & ~((margin >= 1) & (margin <= MOST))
    refuse(wrong, entries.rows, verdicts["margin"], f"`margin` of a win must be from 1 to {MOST}")
    return np.where(needed, np.floor(np.nan_to_num(margin) + 0.5), 1).astype(np.intp)


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
    def fit_margins(cls, verdicts: pd.DataFrame, entries: Entries) -> ReleasedHeart:
        """Fit the entries, once each win is known to have a margin."""
        decided = ~entries.tie & ~entries.inconsistent
        side = np.where(entries.word == 0, 1.0, -1.0)
        soft = 0.5 + np.where(decided, side * (0.1 * read_margins(verdicts, entries) - 0.05), 0.0)
        entries = replace(entries, share=soft)
        wins = count_wins(entries, weights="verdicts").sum()[:, 0]
        check_comparable(wins[0], entries.responders)
        nobody = np.zeros(len(entries.responders), bool)
        return cls(entries, "verdicts", fit_strengths(wins, nobody, ridge=PENALTY)[0], nobody)

    def released_ends(self) -> tuple[Array, Array]:
        """Give the ends of the released interval: strength -+ 1.96 / sqrt(number of verdicts)."""
        size = len(self.theta)
        games = np.bincount(self.entries.a, minlength=size) + np.bincount(self.entries.b, minlength=size)
        reach = Z / np.sqrt(games)
        return self.theta - reach, self.theta + reach
