"""Bradley-Terry strengths for many win matrices at once, by Newton steps."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from heart_utils.analysis.wins import RatingsError

__all__ = ["ConvergenceError", "find_separated", "fit_strengths"]

Array = NDArray[np.float64]
Truths = NDArray[np.bool_]

PRIOR = 0.25
"""Wins and losses against the mean responder that someone who separates is lent, each."""

MAX_STEPS = 200
FULL_STEP = 0.5
TOLERANCE = 1e-9


class ConvergenceError(RatingsError):
    """The strengths still move when the steps run out."""


def fit_strengths(wins: Array, penalised: Truths, start: Array | None = None) -> Array:
    r"""Fit Bradley-Terry strengths to each of many win matrices.

    Maximises :math:`\sum_{ij} w_{ij} \log \sigma(\theta_i - \theta_j)`, plus, for those who are
    penalised, :math:`\frac14 \log \sigma(\theta_i - \bar\theta) + \frac14 \log \sigma(\bar\theta - \theta_i)`.

    Parameters
    ----------
    wins : numpy.ndarray
        Shape (replicates, responders, responders): what the row won of the column. May be fractions.
    penalised : numpy.ndarray
        Who gets the weak prior; shape (responders,) or (replicates, responders).
    start : numpy.ndarray, optional
        Strengths to start from; shape (responders,).

    Returns
    -------
    numpy.ndarray
        Shape (replicates, responders); each row has mean zero.

    Raises
    ------
    ConvergenceError
        If the strengths still move after 200 steps.

    Examples
    --------
    >>> fit_strengths(np.array([[[0.0, 3.0], [1.0, 0.0]]]), np.array([False, False])).round(3)
    array([[ 0.549, -0.549]])
    """
    n_replicates, size = wins.shape[:2]
    theta = np.tile(np.zeros(size) if start is None else start - start.mean(), (n_replicates, 1))
    prior = np.broadcast_to(np.where(penalised, PRIOR, 0.0), theta.shape)
    won, games = wins.sum(axis=2), wins + wins.transpose(0, 2, 1)
    moving = np.arange(n_replicates)
    for _ in range(MAX_STEPS):
        step = _newton_step(theta[moving], won, games, prior[moving])
        span = np.ptp(step, axis=1)
        theta[moving] += step * damping(span)[:, None]
        still = span > TOLERANCE * (1.0 + np.abs(theta[moving]).max(axis=1))
        if not still.any():
            return theta
        if not still.all():
            moving, won, games = moving[still], won[still], games[still]
    raise ConvergenceError(
        f"The strengths of {len(moving)} of {n_replicates} fits still move after {MAX_STEPS} steps. "
        f"Look for responders that hardly meet the others, and drop them or collect more comparisons."
    )


def find_separated(wins: Array) -> Truths:
    """Find whose strength has no finite maximum, in each of many win matrices.

    Strengths are finite if everyone has beaten everyone else along some chain of (part) wins. Who is
    outside the largest group of which that holds is separated: who always wins, who always loses, and
    whole groups that never lost to the rest. If several groups are the largest, all are.

    Parameters
    ----------
    wins : numpy.ndarray
        Shape (replicates, responders, responders).

    Returns
    -------
    numpy.ndarray
        Truths of shape (replicates, responders).

    Examples
    --------
    >>> find_separated(np.array([[[0, 1, 2.0], [1, 0, 2], [0, 0, 0]]]))
    array([[False, False,  True]])
    """
    from scipy.sparse.csgraph import connected_components

    separated = np.zeros(wins.shape[:2], bool)
    for replicate in np.flatnonzero(~_linked(wins > 0)):
        _, group = connected_components(wins[replicate] > 0, connection="strong")
        sizes = np.bincount(group)
        alone = len(sizes) == wins.shape[1]
        largest = sizes == sizes.max()
        separated[replicate] = True if alone or largest.sum() > 1 else ~largest[group]
    return separated


def damping(span: Array) -> Array:
    """Give the part of a Newton step that cannot overshoot, from the widest change of a difference in it.

    Full Newton steps may circle for ever far from the maximum of a logistic likelihood; the part
    log(1 + span) / span always climbs, because its third derivative is bounded by its second [1]_.

    References
    ----------
    .. [1] Sun and Tran-Dinh (2019), https://doi.org/10.1007/s10107-018-1282-4
    """
    return np.where(span > FULL_STEP, np.log1p(span) / np.maximum(span, FULL_STEP), 1.0)


def _newton_step(theta: Array, won: Array, games: Array, prior: Array) -> Array:
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
        pull, bend = _prior_terms(theta, prior)
        gradient += pull
        curvature += bend
    # Only differences are identified: a term along the direction that moves all alike makes the system solvable.
    curvature += curvature[:, diagonal, diagonal].mean(axis=1)[:, None, None] / size
    step = np.linalg.solve(curvature, gradient[:, :, None])[:, :, 0]
    return np.asarray(step - step.mean(axis=1, keepdims=True))


def _prior_terms(theta: Array, prior: Array) -> tuple[Array, Array]:
    """Give gradient and curvature of the games against the mean responder, which itself moves with all."""
    size = theta.shape[1]
    chance = expit(theta)  # theta has mean zero here
    pull = prior * (1.0 - 2.0 * chance)
    own = 2.0 * prior * chance * (1.0 - chance)
    bend = own.sum(axis=1)[:, None, None] / size**2 - (own[:, :, None] + own[:, None, :]) / size
    diagonal = np.arange(size)
    bend[:, diagonal, diagonal] += own
    return pull - pull.mean(axis=1, keepdims=True), bend


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
