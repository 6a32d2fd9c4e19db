"""Partial pooling: strengths from few votes are shrunk towards their mean.

How far depends on how uncertain the votes leave them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from scipy import stats
from scipy.special import expit

from heart_utils.ratings.bradley_terry import BradleyTerry, fit_strengths
from heart_utils.ratings.resampling import check_clusters, check_level
from heart_utils.ratings.spread import sums_of_scores
from heart_utils.ratings.verdicts import Array, read_verdicts, refuse_ties_alone

__all__ = ["PooledRatings", "pool_strengths"]


# of strengths between responders, those tried; the steps are even, so the prior is flat
SPREADS = np.linspace(0.02, 2.5, 32)


@dataclass(frozen=True, eq=False)
class PooledRatings:
    """Strengths drawn towards their mean, and by what."""

    #: best responder first: ``plain`` (maximum likelihood), ``strength`` with interval,
    #: ``n_verdicts``; ``flag``, whose interval
    #: holds less often than it says: ``"leader"`` and ``"last"`` of the table (about 90 % instead
    #: of
    #: 95), ``"far"`` where the
    #: plain strength lies outside the interval (below 70 % for one far from all others); else empty
    table: pd.DataFrame
    #: standard deviation of strengths between responders, mean over what the votes leave possible
    spread: float
    #: of the votes' variance, since those of a cluster go together, over that of independent votes
    design_effect: float


def pool_strengths(
    verdicts: pd.DataFrame,
    *,
    dimension: str = "overall",
    cluster: str = "dialogue_id",
    ci_level: float = 0.95,
) -> PooledRatings:
    r"""Fit Bradley-Terry strengths that come from one normal distribution.

    Strengths are drawn from :math:`N(0, \tau^2)`; fits for many :math:`\tau` are weighed by how
    probable the votes are (by Laplace, flat prior: Gelman 2006, https://doi.org/10.1214/06-BA117A),
    so intervals allow for not knowing it (Morris 1983,
    https://doi.org/10.1080/01621459.1983.10477920). The votes of a cluster count less by the design
    effect.

    Parameters
    ----------
    verdicts, dimension, cluster
        As in :func:`~heart_utils.ratings.ratings.fit_ratings`; every verdict counts the same.
    ci_level : float
        Of intervals that hold on average over responders, not for one that is far from all the
        others.

    Returns
    -------
    PooledRatings
        Of strengths with mean zero.

    Raises
    ------
    NotComparableError, ValueError
        If comparisons do not link all responders; if there is one cluster only.

    Examples
    --------
    >>> votes = pd.DataFrame(
    ...     {
    ...         "responder_a": "x",
    ...         "responder_b": "y",
    ...         "verdict": list("aaabab"),
    ...         "dialogue_id": list("dddeee"),
    ...     }
    ... )
    >>> bool((pool_strengths(votes).table.eval("plain / strength") > 1).all())
    True
    """
    check_level(ci_level)
    entries = read_verdicts(verdicts, dimension=dimension, cluster=cluster)
    refuse_ties_alone(entries, dimension)
    n_clusters, size = len(entries.clusters), len(entries.responders)
    check_clusters(n_clusters, cluster)
    plain = BradleyTerry.fit(entries, "verdicts")
    wins, effect = plain.counts[0, 0], 1.0
    for _ in range(2):  # the second time with the design effect that the first one found
        weight, strengths, covariances = _by_spread(wins, effect)
        strength = weight @ strengths
        variance = weight @ (
            np.diagonal(covariances, axis1=1, axis2=2) + (strengths - strength) ** 2
        )
        known, effect = (
            effect,
            _design_effect(replace(plain, theta=strength, penalised=np.zeros(size, bool))),
        )
    half_width = stats.t.ppf((1.0 + ci_level) / 2.0, n_clusters - 1) * np.sqrt(variance)
    table = pd.DataFrame(
        {"responder": entries.responders.astype("str"), "plain": plain.theta, "strength": strength}
    )
    table = table.assign(
        ci_low=strength - half_width,
        ci_high=strength + half_width,
        ci_level=ci_level,
        n_verdicts=entries.n_verdicts(),
    )
    table = table.sort_values(["strength", "responder"], ascending=[False, True], ignore_index=True)
    far = ~table["plain"].between(table["ci_low"], table["ci_high"])
    first, last = table.index == 0, table.index == size - 1
    table["flag"] = np.select([first, last, far], ["leader", "last", "far"], "")
    return PooledRatings(table, float(weight @ SPREADS), known)


def _design_effect(model: BradleyTerry) -> float:
    """Compare the variance of cluster sums of scores with that of independent votes.

    The ratio is at least one.
    """
    n, bread = len(model.entries.clusters), np.linalg.pinv(model.information, hermitian=True)
    sums = sums_of_scores(model, model.entries.cluster, n)
    return max(1.0, float(np.trace(bread @ sums.T @ sums)) / (len(model.theta) - 1) * n / (n - 1.0))


def _by_spread(wins: Array, effect: float) -> tuple[Array, Array, Array]:
    """Compute the probability of each spread, and strengths with covariance under each."""
    size, tau = len(wins), SPREADS
    # only differences are identified
    turn = np.linalg.svd(np.eye(size) - 1.0 / size)[0][:, : size - 1]
    many = np.broadcast_to(wins / effect, (len(tau), size, size))
    theta = fit_strengths(many, np.zeros(size, bool), ridge=0.5 / tau**2)
    gap = theta[:, :, None] - theta[:, None, :]
    held = (many + many.swapaxes(1, 2)) * expit(gap) * expit(-gap)
    information = np.eye(size) * held.sum(axis=2)[:, :, None] - held
    hessian = turn.T @ information @ turn + np.eye(size - 1) / tau[:, None, None] ** 2
    value = -(many * np.logaddexp(0.0, -gap)).sum(axis=(1, 2)) - (theta**2).sum(axis=1) / (
        2.0 * tau**2
    )
    value -= (size - 1) * np.log(tau) + np.linalg.slogdet(hessian)[1] / 2.0
    weight = np.exp(value - value.max())
    return weight / weight.sum(), theta, turn @ np.linalg.inv(hessian) @ turn.T
