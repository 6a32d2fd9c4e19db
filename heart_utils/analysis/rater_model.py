"""The likelihood of answers by raters who differ in discrimination, position bias and readiness to tie."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import expit

from heart_utils.analysis.bradley_terry import find_separated, fit_strengths
from heart_utils.analysis.newton import PRIOR, ConvergenceError, prior_terms
from heart_utils.analysis.wins import Codes, Entries, check_comparable, count_wins, word_codes
from heart_utils.tables import ORDERS

__all__ = ["RaterModel", "by_cluster", "fit_raters", "prior_added", "raters_covariance", "scores"]

Array = NDArray[np.float64]

LOG_GAMMA_SD = 0.5
MAX_STEPS = 200
TOLERANCE = 1e-8
LONGEST_STEP = 2.0
SHORTEST_PART = 1e-6
NOTHING = 1e-9
"""Part of the largest eigenvalue below which a direction is flat."""


@dataclass(frozen=True, eq=False)
class RaterModel:
    """Answers as arrays, and where each parameter stands: strengths, log gamma, delta, log nu."""

    size: int
    n_raters: int
    a: Codes
    b: Codes
    rater: Codes
    side: Array  # 1 if a was shown first, -1 if second, 0 if not known
    won: Array  # half of what a won beyond b
    tie: Array
    cluster: Codes
    n_clusters: int
    ties_used: NDArray[np.bool_]
    prior: Array
    anchors: NDArray[np.bool_]

    @classmethod
    def of(cls, verdicts: pd.DataFrame, entries: Entries, rater: Codes, anchors: NDArray[np.bool_]) -> RaterModel:
        """Read the order shown, and find who needs the weak prior."""
        side = np.zeros(len(rater))
        if "order" in verdicts:
            side = np.array([1.0, -1.0, 0.0])[word_codes(verdicts, "order", entries.rows, ORDERS, nullable=True)]
        tie = entries.tie.astype(float)
        n_ties = np.bincount(rater, weights=tie, minlength=len(anchors))
        wins = count_wins(entries, weights="verdicts").sum()[:, 0]
        check_comparable(wins[0], entries.responders)
        prior = np.where(find_separated(wins)[0], PRIOR, 0.0)
        won = np.where(entries.tie, 0.0, entries.share - 0.5)
        return cls(
            len(entries.responders),
            len(anchors),
            entries.a,
            entries.b,
            rater,
            side,
            won,
            tie,
            entries.cluster,
            len(entries.clusters),
            n_ties > 0,
            prior,
            anchors,
        )

    def split(self, found: Array) -> tuple[Array, Array, Array, Array]:
        """Give strengths, gamma, delta and nu."""
        theta, rest = found[: self.size], found[self.size :].reshape(3, self.n_raters)
        return theta, np.exp(rest[0]), rest[1], np.where(self.ties_used, np.exp(rest[2]), 0.0)

    def answers(self, found: Array) -> tuple[Array, Array, Array]:
        """Give the probability of each answer: a, b, tie."""
        theta, gamma, delta, nu = self.split(found)
        gap = gamma[self.rater] * (theta[self.a] - theta[self.b]) + delta[self.rater] * self.side
        weight = nu[self.rater] * np.sqrt(expit(gap) * expit(-gap))  # 1 / (2 cosh(gap / 2)), without overflow
        return expit(gap) / (1.0 + weight), expit(-gap) / (1.0 + weight), weight / (1.0 + weight)

    def value(self, found: Array) -> float:
        """Give the penalised log-likelihood."""
        theta, gamma, delta, nu = self.split(found)
        up, down, tie = self.answers(found)
        share = self.won + 0.5
        likely = np.where(self.tie > 0, np.log(np.maximum(tie, 1e-300)), share * np.log(up) + (1.0 - share) * np.log(down))
        own = self.prior @ (np.log(expit(theta)) + np.log(expit(-theta)))
        turn = PRIOR * (np.log(expit(delta)) + np.log(expit(-delta))).sum()
        ready = nu[self.ties_used] / (2.0 + nu[self.ties_used])
        turn += PRIOR * (np.log(ready) + np.log1p(-ready)).sum()
        return float(likely.sum() + own + turn - (np.log(gamma) ** 2).sum() / (2.0 * LOG_GAMMA_SD**2))

    def design(self, found: Array) -> Any:
        """Give the derivative of each answer's gap by each parameter, sparse."""
        theta, gamma, _, _ = self.split(found)
        row, n_answers = np.arange(len(self.a)), len(self.a)
        slope = gamma[self.rater]
        entries = [(self.a, slope), (self.b, -slope), (self.size + self.rater, slope * (theta[self.a] - theta[self.b]))]
        entries.append((self.size + self.n_raters + self.rater, self.side))
        columns, values = np.concatenate([at for at, _ in entries]), np.concatenate([value for _, value in entries])
        return sparse.csr_array((values, (np.tile(row, 4), columns)), shape=(n_answers, self.size + 3 * self.n_raters))

    def ties_design(self) -> Any:
        """Give the derivative of log nu of each answer's rater by each parameter, sparse."""
        row = np.arange(len(self.a))
        values = self.ties_used[self.rater].astype(float)
        at = self.size + 2 * self.n_raters + self.rater
        return sparse.csr_array((values, (row, at)), shape=(len(self.a), self.size + 3 * self.n_raters))


def fit_raters(model: RaterModel, entries: Entries) -> Array:
    """Find strengths, log gamma, delta and log nu where the penalised log-likelihood is highest.

    Newton's steps are taken where they lead up, scoring steps where they do not; no parameter moves by
    more than 2 at once, and steps that overshoot are halved.

    Parameters
    ----------
    model : RaterModel
        The answers.
    entries : Entries
        The same, from which plain Bradley-Terry gives the strengths to start from.

    Returns
    -------
    numpy.ndarray
        All parameters, one after another.

    Raises
    ------
    ConvergenceError
        If something still moves after 200 steps.

    Examples
    --------
    >>> from heart_utils.analysis.wins import read_verdicts
    >>> votes = pd.DataFrame({"responder_a": "x", "responder_b": "y", "verdict": list("aaababbb"), "order": ["ab", "ba"] * 4})
    >>> entries = read_verdicts(votes, dimension="overall", cluster=None)
    >>> model = RaterModel.of(votes, entries, np.zeros(8, int), np.array([True]))
    >>> theta, gamma, delta, nu = model.split(fit_raters(model, entries))
    >>> float(np.ptp(theta).round(2)), delta.round(2)  # whoever was shown first won: nobody is better
    (0.0, array([1.02]))
    """
    wins = count_wins(entries, weights="verdicts").sum()[:, 0]
    theta = fit_strengths(wins, model.prior > 0)[0]
    found = np.concatenate([theta, np.zeros(2 * model.n_raters), np.full(model.n_raters, -0.5)])
    value = model.value(found)
    for _ in range(MAX_STEPS):
        gradient, information, residual, _ = scores(model, found)
        gradient, information = prior_added(model, found, gradient, information)
        observed = information - _bend(model, found, residual)
        found, value, moved = _step(model, found, value, gradient, (observed, information))
        if moved < TOLERANCE * (1.0 + np.abs(found).max()):
            return found
    raise ConvergenceError(f"Strengths and raters still move after {MAX_STEPS} steps. Leave out raters with few answers.")


def _step(
    model: RaterModel, found: Array, value: float, gradient: Array, matrices: tuple[Array, Array]
) -> tuple[Array, float, float]:
    """Go up along the first matrix that leads there; give the place, its value, and how long the whole step was."""
    moved = np.inf
    for matrix in matrices:
        move = _solve(model, matrix, gradient)
        moved = float(np.abs(move).max())
        part = min(1.0, LONGEST_STEP / moved) if moved > 0 else 1.0
        while part > SHORTEST_PART:
            new = model.value(found + part * move)
            if new >= value - NOTHING * abs(value):  # not so where the step overshot to infinity
                return found + part * move, new, moved
            part /= 2.0
    return found, value, moved


def raters_covariance(model: RaterModel, found: Array) -> Array:
    """Give the sandwich over clusters, with the observed information.

    Parameters
    ----------
    model : RaterModel
        The answers.
    found : numpy.ndarray
        Parameters at the maximum.

    Returns
    -------
    numpy.ndarray
        Shape (parameters, parameters).

    Examples
    --------
    >>> from heart_utils.analysis.wins import read_verdicts
    >>> rows = [(d, "x", "y", said, order) for d in "defg" for said, order in (("a", "ab"), ("ab"[d == "g"], "ba"))]
    >>> votes = pd.DataFrame(rows, columns=["dialogue_id", "responder_a", "responder_b", "verdict", "order"])
    >>> entries = read_verdicts(votes, dimension="overall", cluster="dialogue_id")
    >>> model = RaterModel.of(votes, entries, np.zeros(8, int), np.array([True]))
    >>> covariance = raters_covariance(model, fit_raters(model, entries))
    >>> covariance.shape, bool(covariance[0, 0] > 0)  # two strengths; log gamma, delta and log nu of the one rater
    ((5, 5), True)
    """
    _, information, residual, tie_residual = scores(model, found)
    information = prior_added(model, found, np.zeros(len(found)), information - _bend(model, found, residual))[1]
    rows = _constraints(model)
    bread = np.linalg.inv(np.block([[information, rows.T], [rows, np.zeros((2, 2))]]))[: len(found), : len(found)]
    sums = by_cluster(model, model.design(found), residual) + by_cluster(model, model.ties_design(), tie_residual)
    sums -= sums.mean(axis=0)
    factor = model.n_clusters / (model.n_clusters - 1.0)
    return np.asarray(factor * bread @ (sums.T @ sums) @ bread)


def scores(model: RaterModel, found: Array) -> tuple[Array, Any, Array, Array]:
    """Give gradient and information of the likelihood, and each answer's residual by gap and by tie.

    Parameters
    ----------
    model : RaterModel
        The answers.
    found : numpy.ndarray
        Parameters.

    Returns
    -------
    gradient, information : numpy.ndarray
        Of the log-likelihood without priors.
    residual, tie_residual : numpy.ndarray
        One a row: what each answer is beyond expectation.

    Examples
    --------
    >>> from heart_utils.analysis.wins import read_verdicts
    >>> votes = pd.DataFrame({"responder_a": "x", "responder_b": "y", "verdict": list("aaab")})
    >>> entries = read_verdicts(votes, dimension="overall", cluster=None)
    >>> model = RaterModel.of(votes, entries, np.zeros(4, int), np.array([True]))
    >>> scores(model, np.zeros(5))[0]  # x and y, log gamma, delta, log nu: x won one more than it should from here
    array([ 1., -1.,  0.,  0.,  0.])
    """
    up, down, tie = model.answers(found)
    mean = (up - down) / 2.0
    residual, tie_residual = model.won - mean, model.tie - tie
    by_gap, by_tie = model.design(found), model.ties_design()
    spread = (up + down) / 4.0 - mean**2
    information = by_gap.T @ sparse.diags_array(spread) @ by_gap
    cross = by_gap.T @ sparse.diags_array(-mean * tie) @ by_tie
    information = information + cross + cross.T + by_tie.T @ sparse.diags_array(tie * (1.0 - tie)) @ by_tie
    return by_gap.T @ residual + by_tie.T @ tie_residual, information.toarray(), residual, tie_residual


def by_cluster(model: RaterModel, design: Any, residual: Array) -> Array:
    """Sum what each answer adds to the gradient, one row a cluster.

    Parameters
    ----------
    model : RaterModel
        The answers.
    design : scipy.sparse.csr_array
        Derivatives, as :meth:`RaterModel.design` gives them.
    residual : numpy.ndarray
        What each answer is beyond expectation.

    Returns
    -------
    numpy.ndarray
        Shape (clusters, parameters).

    Examples
    --------
    >>> from heart_utils.analysis.wins import read_verdicts
    >>> rows = [("d", "x", "y", "a"), ("d", "x", "y", "b"), ("e", "x", "y", "a")]
    >>> votes = pd.DataFrame(rows, columns=["dialogue_id", "responder_a", "responder_b", "verdict"])
    >>> entries = read_verdicts(votes, dimension="overall", cluster="dialogue_id")
    >>> model = RaterModel.of(votes, entries, np.zeros(3, int), np.array([True]))
    >>> by_cluster(model, model.design(np.zeros(5)), model.won)[:, :2]  # one win each in d, one by x in e
    array([[ 0. ,  0. ],
           [ 0.5, -0.5]])
    """
    of = sparse.csr_array((residual, (model.cluster, np.arange(len(residual)))), shape=(model.n_clusters, len(residual)))
    return np.asarray((of @ design).toarray())


def prior_added(model: RaterModel, found: Array, gradient: Array, information: Array) -> tuple[Array, Array]:
    """Add the priors; a rater who never ties keeps an nu of zero.

    Parameters
    ----------
    model : RaterModel
        The answers.
    found, gradient, information : numpy.ndarray
        Parameters, and what the likelihood says there.

    Returns
    -------
    gradient, information : numpy.ndarray
        With the priors, in arrays of their own.

    Examples
    --------
    >>> from heart_utils.analysis.wins import read_verdicts
    >>> votes = pd.DataFrame({"responder_a": "x", "responder_b": "y", "verdict": list("aaab")})
    >>> entries = read_verdicts(votes, dimension="overall", cluster=None)
    >>> model = RaterModel.of(votes, entries, np.zeros(4, int), np.array([True]))
    >>> found = np.array([0.0, 0.0, 1.0, 0.0, 0.0])  # log gamma is 1
    >>> prior_added(model, found, np.zeros(5), np.zeros((5, 5)))[0]  # drawn back by 1 / 0.5**2
    array([ 0.,  0., -4.,  0.,  0.])
    """
    size, n_raters = model.size, model.n_raters
    gradient, information = gradient.copy(), information.copy()
    pull, bend = prior_terms(found[None, :size], model.prior[None])
    gradient[:size] += pull[0]
    information[:size, :size] += bend[0]
    gammas, deltas = np.arange(size, size + n_raters), np.arange(size + n_raters, size + 2 * n_raters)
    gradient[gammas] -= found[gammas] / LOG_GAMMA_SD**2
    information[gammas, gammas] += 1.0 / LOG_GAMMA_SD**2
    chance = expit(found[deltas])
    gradient[deltas] += PRIOR * (1.0 - 2.0 * chance)
    information[deltas, deltas] += 2.0 * PRIOR * chance * (1.0 - chance)
    nus = np.arange(size + 2 * n_raters, size + 3 * n_raters)
    tie = 1.0 / (1.0 + 2.0 * np.exp(-found[nus]))
    gradient[nus] += np.where(model.ties_used, PRIOR * (1.0 - 2.0 * tie), 0.0)
    information[nus, nus] += np.where(model.ties_used, 2.0 * PRIOR * tie * (1.0 - tie), 1.0)
    return gradient, information


def _constraints(model: RaterModel) -> Array:
    """Give the two sums that stay zero: of strengths, and of the anchors' log gamma."""
    rows = np.zeros((2, model.size + 3 * model.n_raters))
    rows[0, : model.size] = 1.0
    rows[1, model.size : model.size + model.n_raters] = model.anchors
    return rows


def _solve(model: RaterModel, information: Array, gradient: Array) -> Array:
    rows = _constraints(model)
    bordered = np.block([[information, rows.T], [rows, np.zeros((2, 2))]])
    return np.linalg.solve(bordered, np.concatenate([gradient, np.zeros(2)]))[: len(gradient)]


def _bend(model: RaterModel, found: Array, residual: Array) -> Array:
    """Give what the product of gamma and strength adds to the second derivative."""
    theta, gamma, _, _ = model.split(found)
    n, gammas = len(found), model.size + model.rater
    slope = residual * gamma[model.rater]
    bend = np.zeros((n, n))
    np.add.at(bend, (model.a, gammas), slope)
    np.add.at(bend, (model.b, gammas), -slope)
    bend += bend.T
    np.add.at(bend, (gammas, gammas), slope * (theta[model.a] - theta[model.b]))
    return bend
