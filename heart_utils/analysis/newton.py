"""Newton steps for many likelihoods at once, damped so that they cannot circle."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from heart_utils.analysis.wins import RatingsError

__all__ = ["ConvergenceError", "climb", "prior_terms"]

Array = NDArray[np.float64]

PRIOR = 0.25
"""Wins and losses against the mean responder that someone who separates is lent, each."""

MAX_STEPS = 200
FULL_STEP = 0.5
TOLERANCE = 1e-9


class ConvergenceError(RatingsError):
    """The strengths still move when the steps run out."""


def climb(
    start: Array,
    data: tuple[Array, ...],
    step: Callable[..., Array],
    span: Callable[[Array], Array],
) -> Array:
    """Climb many concave log-likelihoods to their maxima.

    Full Newton steps may circle for ever far from the maximum of a logistic likelihood. The part
    log(1 + d) / d of a step, with d the widest change that it makes to a log-odds, always climbs,
    because the third derivative of such a likelihood is bounded by its second [1]_.

    Parameters
    ----------
    start : numpy.ndarray
        Shape (replicates, parameters).
    data : tuple of numpy.ndarray
        What the likelihoods need, one entry a replicate along each first axis.
    step : callable
        Takes parameters and `data`, gives the Newton step of each replicate.
    span : callable
        Takes steps, gives the widest change that each makes to a log-odds.

    Returns
    -------
    numpy.ndarray
        Shape (replicates, parameters).

    Raises
    ------
    ConvergenceError
        If something still moves after 200 steps.

    References
    ----------
    .. [1] Sun and Tran-Dinh (2019), https://doi.org/10.1007/s10107-018-1282-4

    Examples
    --------
    >>> won, played = np.array([[3.0], [8.0]]), np.array([[4.0], [10.0]])
    >>> chance = lambda found: 1 / (1 + np.exp(-found))
    >>> step = lambda found, won, played: (won / played - chance(found)) / (chance(found) * (1 - chance(found)))
    >>> climb(np.zeros((2, 1)), (won, played), step, lambda move: np.abs(move).max(axis=1)).round(4)  # log 3, log 4
    array([[1.0986],
           [1.3863]])
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
    """Give gradient and curvature of some part-games against the mean responder, won as often as lost.

    Parameters
    ----------
    theta : numpy.ndarray
        Shape (replicates, responders), each row with mean zero.
    prior : numpy.ndarray
        Games won (and as many lost) by each; the same shape.

    Returns
    -------
    tuple of numpy.ndarray
        Gradient, and negative second derivative. The mean moves with all strengths, so neither moves it.

    Examples
    --------
    >>> from heart_utils.analysis.newton import PRIOR
    >>> pull, bend = prior_terms(np.array([[1.0, -1.0]]), np.array([[PRIOR, 0.0]]))
    >>> pull.round(3)  # whoever is lent the games is drawn towards the mean
    array([[-0.058,  0.058]])
    """
    size = theta.shape[1]
    chance = 1.0 / (1.0 + np.exp(-theta))
    pull = prior * (1.0 - 2.0 * chance)
    own = 2.0 * prior * chance * (1.0 - chance)
    bend = own.sum(axis=1)[:, None, None] / size**2 - (own[:, :, None] + own[:, None, :]) / size
    diagonal = np.arange(size)
    bend[:, diagonal, diagonal] += own
    return pull - pull.mean(axis=1, keepdims=True), bend
