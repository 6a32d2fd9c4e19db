r"""Other models of strengths: raters weighed by how well they distinguish, and partial pooling.

Rater :math:`r` prefers i to j, shown first (:math:`z = 1`) or second (:math:`z = -1`), by the
log-odds :math:`g = \gamma_r (\theta_i - \theta_j) + \delta_r z`, and calls a tie after Davidson
with :math:`\nu_r`. The geometric mean of people's :math:`\gamma` (without people, of all) is one;
:math:`\log \gamma_r \sim N(0, 0.5^2)` keeps raters with few answers near one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import optimize, sparse, stats
from scipy.linalg import null_space
from scipy.special import expit

from heart_utils.ratings.bradley_terry import (
    PRIOR,
    BradleyTerry,
    ConvergenceError,
    centring,
    find_unvaried,
    fit_strengths,
    sums_of_scores,
)
from heart_utils.ratings.ratings import Differences, lay_out
from heart_utils.ratings.resampling import Rng, as_rng, check_clusters, check_level
from heart_utils.ratings.verdicts import (
    BOTH,
    Array,
    Codes,
    Entries,
    RatingsError,
    need,
    read_verdicts,
    refuse_ties_alone,
    word_codes,
)
from heart_utils.tables import ORDERS

__all__ = ["JudgeAware", "PooledRatings", "fit_judge_aware", "pool_strengths"]


LOG_GAMMA_SD = 0.5
MAX_STEPS = 200
GRADIENT = 1e-7
NEAR = 1e-4
NOTHING = 1e-9  # part of the largest eigenvalue below which a direction is flat
N_DRAWS = 2000


@dataclass(frozen=True, eq=False)
class RaterModel:
    entries: Entries
    rater: Codes
    side: Array  # 1 if a was shown first, -1 if second, 0 if not known
    won: Array  # half of what a won beyond b
    tie: Array
    ties_used: NDArray[np.bool_]  # by rater; one who never ties has a nu of zero
    plain: BradleyTerry  # without raters, where the search starts
    prior: Array  # the weak prior of each strength, on who separates
    anchors: NDArray[np.bool_]

    @classmethod
    def of(
        cls, verdicts: pd.DataFrame, entries: Entries, rater: Codes, anchors: NDArray[np.bool_]
    ) -> RaterModel:
        side = np.zeros(len(rater))
        if "order" in verdicts:
            side = np.array([1.0, -1.0, 0.0])[
                word_codes(verdicts, "order", entries.rows, (*ORDERS, BOTH), nullable=True)
            ]
        plain, tie = BradleyTerry.fit(entries, "verdicts"), entries.tie.astype(float)
        used, won = (
            np.bincount(rater, weights=tie, minlength=len(anchors)) > 0,
            np.where(entries.tie, 0.0, entries.share - 0.5),
        )
        return cls(
            entries,
            rater,
            side,
            won,
            tie,
            used,
            plain,
            np.where(plain.penalised, PRIOR, 0.0),
            anchors,
        )

    @property
    def size(self) -> int:
        return len(self.entries.responders)

    @cached_property
    def free(self) -> Array:
        """A basis in which strengths, and the anchors' log gamma, sum to zero."""
        strengths = np.repeat([1.0, 0.0], [self.size, 3 * len(self.anchors)])
        gammas = np.concatenate(
            [np.zeros(self.size), self.anchors, np.zeros(2 * len(self.anchors))]
        )
        return np.asarray(null_space(np.stack([strengths, gammas])))

    def gaps(self, theta: Array) -> Array:
        return np.asarray(theta[self.entries.a] - theta[self.entries.b])

    def split(self, estimates: Array) -> tuple[Array, Array, Array, Array]:
        theta, rest = estimates[: self.size], estimates[self.size :].reshape(3, -1)
        return theta, np.exp(rest[0]), rest[1], np.where(self.ties_used, np.exp(rest[2]), 0.0)

    def answers(self, estimates: Array) -> tuple[Array, Array, Array]:
        """Compute the probabilities of a, b and tie."""
        theta, gamma, delta, nu = self.split(estimates)
        gap = gamma[self.rater] * self.gaps(theta) + delta[self.rater] * self.side
        # 1 / (2 cosh(gap / 2)), without overflow
        weight = nu[self.rater] * np.sqrt(expit(gap) * expit(-gap))
        return expit(gap) / (1.0 + weight), expit(-gap) / (1.0 + weight), weight / (1.0 + weight)

    def value(self, estimates: Array) -> float:
        up, down, tie = self.answers(estimates)
        share = self.won + 0.5
        likely = np.where(
            self.tie > 0,
            np.log(np.maximum(tie, 1e-300)),
            share * np.log(up) + (1.0 - share) * np.log(down),
        )
        return float(likely.sum() + self.priors(estimates)[0])

    def priors(self, estimates: Array) -> tuple[float, Array, Array]:
        size, n = self.size, len(self.anchors)
        games = np.concatenate([self.prior, np.zeros(n), np.full(n, PRIOR), PRIOR * self.ties_used])
        normal = np.repeat([0.0, LOG_GAMMA_SD**-2.0, 0.0], [size, n, 2 * n])
        # equals tie with probability nu / (2 + nu)
        lead = estimates - np.repeat([0.0, np.log(2.0)], [size + 2 * n, n])
        value = (
            -games @ (np.logaddexp(0.0, lead) + np.logaddexp(0.0, -lead))
            - normal @ estimates**2 / 2.0
        )
        held = np.concatenate([np.zeros(size + 2 * n), ~self.ties_used])
        won = expit(lead)
        return (
            float(value),
            games * (1.0 - 2.0 * won) - normal * estimates,
            2.0 * games * won * (1.0 - won) + normal + held,
        )

    def design(self, estimates: Array) -> Any:
        """Differentiate each gap, and its rater's log nu, by each parameter."""
        theta, gamma, _, _ = self.split(estimates)
        row, slope, n = np.arange(len(self.rater)), gamma[self.rater], len(self.rater)
        of_gamma, of_delta, of_nu = (
            self.size + number * len(self.anchors) + self.rater for number in range(3)
        )
        cells = [
            (row, self.entries.a, slope),
            (row, self.entries.b, -slope),
            (row, of_gamma, slope * self.gaps(theta)),
            # fmt: skip
            (row, of_delta, self.side),
            (n + row, of_nu, self.ties_used[self.rater].astype(float)),
        ]
        rows, columns, values = (np.concatenate(part) for part in zip(*cells, strict=True))
        return sparse.csr_array((values, (rows, columns)), shape=(2 * n, len(estimates)))

    def residuals(self, estimates: Array) -> tuple[Array, Any]:
        """Compute residuals by gap and log nu, and their expected information."""
        up, down, tie = self.answers(estimates)
        mean = (up - down) / 2.0
        by_gap, by_both, by_tie = (sparse.diags_array(part) for part in (
            (up + down) / 4.0 - mean**2, -mean * tie, tie * (1.0 - tie)
        ))  # fmt: skip
        curvature = sparse.block_array([[by_gap, by_both], [by_both, by_tie]], format="csr")
        return np.concatenate([self.won - mean, self.tie - tie]), curvature


def fit_raters(model: RaterModel) -> tuple[Array, Array]:
    """Maximise the penalised log-likelihood; also give the sandwich."""
    free, n_clusters = model.free, len(model.entries.clusters)
    n = len(model.anchors)
    start = np.concatenate([model.plain.theta, np.zeros(2 * n), np.full(n, -0.5)])

    def slopes(point: Array) -> tuple[Array, Array]:
        gradient, information, _ = derivatives(model, free @ point)
        return -free.T @ gradient, free.T @ information @ free

    estimates = optimize.minimize(
        lambda point: -model.value(free @ point),
        free.T @ start,
        method="trust-exact",
        jac=lambda point: slopes(point)[0],
        hess=lambda point: slopes(point)[1],
        options={"gtol": GRADIENT, "maxiter": MAX_STEPS},
    ).x
    # rounding of the value ends the search a step early
    last = np.linalg.solve(*slopes(estimates)[::-1])
    if np.abs(last).max() > NEAR * (1.0 + np.abs(estimates).max()):
        raise ConvergenceError(
            f"Strengths and raters still move after {MAX_STEPS} steps. Leave out raters with few"
            " answers."
        )
    estimates = np.asarray(free @ (estimates - last))
    _, information, residual = derivatives(model, estimates)
    bread = free @ np.linalg.inv(free.T @ information @ free) @ free.T
    sums = by_cluster(model, model.design(estimates), residual)
    sums -= sums.mean(axis=0)
    return estimates, np.asarray(n_clusters / (n_clusters - 1.0) * bread @ (sums.T @ sums) @ bread)


def derivatives(model: RaterModel, estimates: Array) -> tuple[Array, Array, Array]:
    """Compute gradient and negative Hessian, penalised, and residuals."""
    gradient, information, residual = scores(model, estimates)
    theta, gamma, _, _ = model.split(estimates)
    gammas, slope = model.size + model.rater, residual[: len(model.rater)] * gamma[model.rater]
    cross = np.zeros(information.shape)  # from the product of gamma and strength
    np.add.at(cross, (model.entries.a, gammas), slope)
    np.add.at(cross, (model.entries.b, gammas), -slope)
    cross += cross.T
    np.add.at(cross, (gammas, gammas), slope * model.gaps(theta))
    _, prior_gradient, own = model.priors(estimates)
    return gradient + prior_gradient, information - cross + np.diag(own), residual


def scores(model: RaterModel, estimates: Array) -> tuple[Array, Array, Array]:
    """Compute gradient and information without priors, and residuals."""
    design, (residual, curvature) = model.design(estimates), model.residuals(estimates)
    return design.T @ residual, (design.T @ curvature @ design).toarray(), residual


def by_cluster(model: RaterModel, design: Any, residual: Array) -> Array:
    cells = np.tile(model.entries.cluster, 2), np.arange(len(residual))
    of = sparse.csr_array((residual, cells), shape=(len(model.entries.clusters), len(residual)))
    return np.asarray((of @ design).toarray())


@dataclass(frozen=True, eq=False)
class JudgeAware:
    """Strengths and raters, fitted together."""

    #: the ratings table; intervals are sandwiches over dialogues, raters being fixed
    table: pd.DataFrame
    #: one row a rater: ``discrimination`` (gamma) and ``position_bias`` (delta: log-odds that the
    #: first shown gains), with ends
    raters: pd.DataFrame  #: ``ties`` is nu; a bias is ``nan`` where no order is known
    anchor: str  #: {"people", "consensus"}. Whose scale the strengths are on
    #: p value of raters sharing one order of strengths, up to their discrimination; if small, one
    #: leaderboard for all of them hides it
    p_common_order: float
    left_out: pd.Series  #: state -> answers that did not enter


def fit_judge_aware(
    verdicts: pd.DataFrame,
    *,
    responders: pd.DataFrame | None = None,
    dimension: str = "overall",
    ci_level: float = 0.95,
    rng: Rng = None,
) -> JudgeAware:
    r"""Fit strengths together with each rater's discrimination, position bias and readiness to tie.

    Each rater :math:`r` has a discrimination :math:`\gamma_r` (0 for a coin), a position bias
    :math:`\delta_r` (log-odds that the reply shown first gains) and a readiness to tie
    :math:`\nu_r` (Davidson 1970, https://doi.org/10.1080/01621459.1970.10481082): a wins by
    :math:`\gamma_r (\theta_a - \theta_b) \pm \delta_r`. Read ``p_common_order`` first: if raters do
    not share one order, one leaderboard hides it.

    Parameters
    ----------
    verdicts
        As in :func:`~heart_utils.ratings.ratings.fit_ratings`, with ``rater``, ``rater_kind`` and
        ``order``. Each order of a pair is an answer of its own.
    responders, dimension, ci_level, rng
        As in :func:`~heart_utils.ratings.ratings.fit_ratings`; chance enters rank ranges.

    Returns
    -------
    JudgeAware
        With ``table`` (intervals are over dialogues, for these raters), ``raters`` and
        ``p_common_order``.

    Raises
    ------
    RatingsError
        If a column is missing, there is one rater only, or all verdicts are ties.
    NotComparableError
        If comparisons do not link all responders.
    ConvergenceError
        If the steps run out before the fit has settled.

    Examples
    --------
    >>> from heart_utils.simulate.study import Panel, simulate_study
    >>> panels = [Panel("human", 8, 4), Panel("model", 1, 1, discrimination=0.4, position_bias=1.0)]
    >>> study = simulate_study(
    ...     rng=np.random.default_rng(1), strengths=5, n_dialogues=60, pairs=8, panels=panels
    ... )
    >>> raters = fit_judge_aware(study.verdicts).raters
    >>> raters.query("position_bias > 0.6 and discrimination < 0.8")["rater_kind"].tolist()
    ['model']
    """
    check_level(ci_level)
    need(verdicts, ["rater", "rater_kind"])
    entries = read_verdicts(
        verdicts, dimension=dimension, cluster="dialogue_id", rater="rater", single_orders=True
    )
    refuse_ties_alone(entries, dimension)
    check_clusters(len(entries.clusters), "dialogue_id")
    rater = np.asarray(entries.rater, dtype=np.intp)
    kinds = verdicts.iloc[entries.rows].groupby("rater")["rater_kind"].first()
    people, names = (kinds == "human").to_numpy(), kinds.index
    if len(names) < 2:
        raise RatingsError(
            f"There is one rater only ({names[0]}), and a rater is weighed against others. Use"
            " fit_ratings."
        )
    model = RaterModel.of(
        verdicts, entries, rater, people if people.any() else np.ones(len(names), bool)
    )
    estimates, covariance = fit_raters(model)
    size, n_clusters = model.size, len(entries.clusters)
    separated = model.prior > 0
    centre = np.eye(len(estimates))
    centre[:size, :size] = centring(separated)
    theta, covariance = (centre @ estimates)[:size], centre @ covariance @ centre.T
    half_widths = stats.t.ppf((1.0 + ci_level) / 2.0, n_clusters - 1) * np.sqrt(
        np.maximum(np.diag(covariance), 0.0)
    )
    draws = as_rng(rng).multivariate_normal(
        theta, covariance[:size, :size], size=N_DRAWS, method="eigh"
    )
    # Who always wins or loses has a strength by the weak prior alone: no verdict bounds it, so any
    # rank is open.
    unvaried = find_unvaried(model.plain, [(entries.cluster, n_clusters)]) & ~separated
    low, high = theta + np.outer([-1.0, 1.0], np.where(unvaried, np.nan, half_widths[:size]))
    low, high = np.where(separated, [[-np.inf], [np.inf]], (low, high))
    ends = np.where(separated, [[-np.inf], [np.inf]], np.nan)
    best, worst = Differences(
        theta, draws, n_clusters, ci_level, n_clusters, ends, unvaried
    ).ranks()
    settings = {
        "dimension": dimension,
        "method": "judge-aware",
        "population": "dialogues",
        "interval": "sandwich",
        "ci_level": ci_level,
    }
    columns = {
        "strength": theta,
        "ci_low": low,
        "ci_high": high,
        "rank_low": best,
        "rank_high": worst,
        "chance": expit(theta[:, None] - theta[None, :]),
        "penalised": separated,
        "unvaried": unvaried,
        "n_clusters": entries.count_judged_in(entries.cluster, n_clusters),
    }
    return JudgeAware(
        table=lay_out(responders, entries, settings, columns),
        raters=_raters(model, estimates, half_widths, kinds),
        anchor="people" if people.any() else "consensus",
        p_common_order=_test_common_order(model, estimates),
        left_out=entries.left_out,
    )


def _test_common_order(model: RaterModel, estimates: Array) -> float:
    """Test for one order by scores corrected for dialogues (Rao and Scott)."""
    gamma, size, n, entries = model.split(estimates)[1], model.size, len(model.rater), model.entries
    gradient, information, residual = scores(model, estimates)
    design, curvature = model.design(estimates), model.residuals(estimates)[1]
    columns = np.concatenate([model.rater * size + entries.a, model.rater * size + entries.b])
    slope = np.concatenate([gamma[model.rater], -gamma[model.rater]])
    own = sparse.csr_array(
        (slope, (np.tile(np.arange(n), 2), columns)), shape=(2 * n, len(model.anchors) * size)
    )
    within, across = (own.T @ curvature @ own).toarray(), (own.T @ curvature @ design).toarray()
    shared = across @ np.linalg.pinv(information, rcond=NOTHING, hermitian=True)
    score = own.T @ residual - shared @ gradient
    effective = within - shared @ across.T
    sums = by_cluster(model, own, residual) - by_cluster(model, design, residual) @ shared.T
    inverse = np.linalg.pinv(effective, rcond=NOTHING, hermitian=True)
    df = int(
        np.linalg.matrix_rank(effective, tol=NOTHING * np.linalg.norm(effective, 2), hermitian=True)
    )
    if df == 0:
        return 1.0
    # what verdicts of a dialogue being alike makes of the statistic
    inflation = ((sums @ inverse) * sums).sum() / df
    return float(stats.chi2.sf(float(score @ inverse @ score) / float(inflation), df))


def _raters(
    model: RaterModel, estimates: Array, half_widths: Array, kinds: pd.Series
) -> pd.DataFrame:
    _, gamma, delta, nu = model.split(estimates)
    n = len(gamma)
    log_reach, delta_reach = half_widths[model.size :].reshape(3, n)[:2]
    delta = np.where(
        np.bincount(model.rater, weights=model.side != 0, minlength=n) > 0, delta, np.nan
    )
    return pd.DataFrame(
        {
            "rater": kinds.index.astype("str"),
            "rater_kind": kinds.to_numpy(),
            "n_verdicts": np.bincount(model.rater, minlength=n),
            "discrimination": gamma,
            "discrimination_low": gamma * np.exp(-log_reach),
            "discrimination_high": gamma * np.exp(log_reach),
            "position_bias": delta,
            "position_bias_low": delta - delta_reach,
            "position_bias_high": delta + delta_reach,
            "ties": nu,
        }
    )


# of strengths between responders, those tried; the steps are even, so the prior is flat
SPREADS = np.linspace(0.02, 2.5, 32)


@dataclass(frozen=True, eq=False)
class PooledRatings:
    """Strengths drawn towards their mean, and by what."""

    #: best responder first: ``plain`` (maximum likelihood), ``strength`` with interval,
    #: ``n_verdicts``; ``flag``, whose interval holds less often than it says: ``"leader"``,
    #: ``"last"``, ``"far"`` where the plain strength lies outside the interval, else empty
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

    This is :math:`N(0, \tau^2)`, with a flat prior of :math:`\tau` (Gelman 2006,
    https://doi.org/10.1214/06-BA117A). The votes of a cluster count less by the design effect.

    Parameters
    ----------
    verdicts, dimension, cluster
        As in :func:`~heart_utils.ratings.ratings.fit_ratings`; every verdict counts the same.
    ci_level
        Of intervals that hold on average over responders, not for one far from all the others.

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
    >>> votes = pd.DataFrame({"verdict": list("aaabab"), "dialogue_id": list("dddeee")})
    >>> table = pool_strengths(votes.assign(responder_a="x", responder_b="y")).table
    >>> bool((table.eval("plain / strength") > 1).all())
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
        {
            "responder": entries.responders.astype("str"),
            "plain": plain.theta,
            "strength": strength,
            "ci_low": strength - half_width,
            "ci_high": strength + half_width,
            "ci_level": ci_level,
            "n_verdicts": entries.n_verdicts(),
        }
    ).sort_values(["strength", "responder"], ascending=[False, True], ignore_index=True)
    far = ~table["plain"].between(table["ci_low"], table["ci_high"])
    first, last = table.index == 0, table.index == size - 1
    table["flag"] = np.select([first, last, far], ["leader", "last", "far"], "")
    return PooledRatings(table, float(weight @ SPREADS), known)


def _design_effect(model: BradleyTerry) -> float:
    n, bread = len(model.entries.clusters), np.linalg.pinv(model.information, hermitian=True)
    sums = sums_of_scores(model, model.entries.cluster, n)
    return max(1.0, float(np.trace(bread @ sums.T @ sums)) / (len(model.theta) - 1) * n / (n - 1.0))


def _by_spread(wins: Array, effect: float) -> tuple[Array, Array, Array]:
    """Compute each spread's probability, and strengths with covariance under it."""
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
