r"""Ratings that weigh each rater by how well they tell responders apart.

Rater :math:`r` prefers i to j, shown first (:math:`z = 1`) or second (:math:`z = -1`), by the log-odds

.. math:: g = \gamma_r (\theta_i - \theta_j) + \delta_r z

and calls a tie after Davidson with :math:`\nu_r`. Strengths have mean zero (of who is not penalised); the geometric
mean of people's :math:`\gamma` is one, so strengths are in people's log-odds; :math:`\log \gamma_r \sim N(0, 0.5^2)`
keeps raters with few answers near one. Where no people judge, the geometric mean over all raters is one, and
the strengths are a consensus of models: nothing says that it is what people would prefer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import optimize, sparse, stats
from scipy.linalg import null_space
from scipy.special import expit

from heart_utils.ratings.bradley_terry import (
    PRIOR,
    ConvergenceError,
    check_comparable,
    count_wins,
    find_separated,
    fit_strengths,
    prior_terms,
)
from heart_utils.ratings.rank_sets import rank_ranges
from heart_utils.ratings.ratings import lay_out
from heart_utils.ratings.resampling import as_rng, check_clusters, check_level
from heart_utils.ratings.spread import centring, clusters_met
from heart_utils.ratings.verdicts import (
    Codes,
    Entries,
    RatingsError,
    name_codes,
    need,
    read_verdicts,
    refuse_ties_alone,
    word_codes,
)
from heart_utils.tables import ORDERS

__all__ = ["CommonOrder", "JudgeAware", "fit_judge_aware"]

Array = NDArray[np.float64]

LOG_GAMMA_SD = 0.5
MAX_STEPS = 200
GRADIENT = 1e-7
NEAR = 1e-4
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
        wins = count_wins(entries, weights="verdicts").total()[:, 0]
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
    """Find strengths, log gamma, delta and log nu where the penalised log-likelihood is highest, in a trust region."""
    free = null_space(_constraints(model))
    theta = fit_strengths(count_wins(entries, weights="verdicts").total()[:, 0], model.prior > 0)[0]
    start = np.concatenate([theta, np.zeros(2 * model.n_raters), np.full(model.n_raters, -0.5)])

    def derivatives(place: Array) -> tuple[Array, Array]:
        gradient, information, residual, _ = scores(model, free @ place)
        gradient, information = prior_added(model, free @ place, gradient, information)
        return -free.T @ gradient, free.T @ (information - _bend(model, free @ place, residual)) @ free

    found = optimize.minimize(
        lambda place: -model.value(free @ place), free.T @ start, method="trust-exact", jac=lambda place: derivatives(place)[0],
        hess=lambda place: derivatives(place)[1], options={"gtol": GRADIENT, "maxiter": MAX_STEPS},
    ).x  # fmt: skip
    slope, bend = derivatives(found)
    last = np.linalg.solve(bend, slope)  # rounding of the value ends the search a step early
    if np.abs(last).max() > NEAR * (1.0 + np.abs(found).max()):
        raise ConvergenceError(f"Strengths and raters still move after {MAX_STEPS} steps. Leave out raters with few answers.")
    return np.asarray(free @ (found - last))


def raters_covariance(model: RaterModel, found: Array) -> Array:
    """Give the sandwich over clusters, with the observed information."""
    _, information, residual, tie_residual = scores(model, found)
    information = prior_added(model, found, np.zeros(len(found)), information - _bend(model, found, residual))[1]
    free = null_space(_constraints(model))
    bread = free @ np.linalg.inv(free.T @ information @ free) @ free.T
    sums = by_cluster(model, model.design(found), residual) + by_cluster(model, model.ties_design(), tie_residual)
    sums -= sums.mean(axis=0)
    factor = model.n_clusters / (model.n_clusters - 1.0)
    return np.asarray(factor * bread @ (sums.T @ sums) @ bread)


def scores(model: RaterModel, found: Array) -> tuple[Array, Any, Array, Array]:
    """Give gradient and information of the likelihood, without priors, and each answer's residual by gap and by tie."""
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
    """Sum what each answer adds to the gradient, one row a cluster."""
    of = sparse.csr_array((residual, (model.cluster, np.arange(len(residual)))), shape=(model.n_clusters, len(residual)))
    return np.asarray((of @ design).toarray())


def prior_added(model: RaterModel, found: Array, gradient: Array, information: Array) -> tuple[Array, Array]:
    """Add the priors; a rater who never ties keeps an nu of zero."""
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


def _bend(model: RaterModel, found: Array, residual: Array) -> Array:
    """Give the cross term of the Hessian, from the product of gamma and strength."""
    theta, gamma, _, _ = model.split(found)
    n, gammas = len(found), model.size + model.rater
    slope = residual * gamma[model.rater]
    bend = np.zeros((n, n))
    np.add.at(bend, (model.a, gammas), slope)
    np.add.at(bend, (model.b, gammas), -slope)
    bend += bend.T
    np.add.at(bend, (gammas, gammas), slope * (theta[model.a] - theta[model.b]))
    return bend


N_DRAWS = 2000


@dataclass(frozen=True)
class CommonOrder:
    """A test of whether raters share one order of strengths, up to their discrimination."""

    statistic: float  # score statistic against strengths by rater
    df: int  # what strengths by rater have more
    inflation: float  # by how much verdicts of a dialogue being alike inflates the statistic; it is divided by this
    p_value: float  # small: raters do not share one order, and one board for all of them hides it


@dataclass(frozen=True, eq=False)
class JudgeAware:
    """Strengths and raters, fitted together."""

    table: pd.DataFrame  # the ratings table; intervals are sandwiches over dialogues, raters being fixed
    strength: pd.Series  # responder -> strength, best first, mean zero
    # one row a rater: ``rater``, ``rater_kind``, ``n_verdicts``, ``discrimination`` (gamma) with its interval,
    # ``position_bias`` (delta: log-odds that the first shown gains; ``nan`` where no order is known) with its interval,
    # ``ties`` (nu), and ``deterministic``: why the rater's answers follow a rule, or nothing
    raters: pd.DataFrame
    anchor: str  # {"people", "consensus"}. Whose scale the strengths are on
    common_order: CommonOrder  # the test to read first
    left_out: pd.Series  # state -> answers that did not enter


def fit_judge_aware(
    verdicts: pd.DataFrame,
    *,
    responders: pd.DataFrame | None = None,
    dimension: str = "overall",
    need_people: bool = False,
    ci_level: float = 0.95,
    rng: np.random.Generator | None = None,
) -> JudgeAware:
    """Fit strengths together with each rater's discrimination, position bias and readiness to tie.

    Parameters
    ----------
    verdicts : pandas.DataFrame
        One row per answer, as it was given: two orders not yet joined, since their difference is what shows position bias.
        Columns as for :func:`heart_utils.ratings.ratings.fit_ratings`, and ``rater``, ``rater_kind`` and ``order``.
    responders : pandas.DataFrame, optional
        Names the ``responder_kind`` of each ``responder``.
    need_people : bool
        Whether to refuse verdicts of models alone.
    rng : numpy.random.Generator, optional
        For the rank ranges, which come from normal draws; by default one with a fixed seed.
    dimension, ci_level
        As in :func:`~heart_utils.ratings.ratings.fit_ratings`.

    Returns
    -------
    JudgeAware
        Each verdict weighs the same. A rater who never ties has ``ties`` 0.

    Raises
    ------
    RatingsError
        If a column is missing, there is one rater only, or people are needed and there are none.
    NotComparableError
        If comparisons do not link all responders.
    ConvergenceError
        If something still moves when the steps run out.

    Examples
    --------
    >>> from heart_utils.simulate.study import Panel, simulate_study
    >>> panels = [Panel("human", 8, 4), Panel("model", 1, 1, discrimination=0.4, position_bias=1.0)]
    >>> study = simulate_study(rng=np.random.default_rng(1), n_responders=5, n_dialogues=60, pairs=8, panels=panels)
    >>> judges = fit_judge_aware(study.verdicts).raters.query("rater_kind == 'model'")
    >>> bool(judges["discrimination"].item() < 0.8), bool(judges["position_bias"].item() > 0.6)
    (True, True)
    """
    check_level(ci_level)
    need(verdicts, ["rater", "rater_kind"])
    entries = read_verdicts(verdicts, dimension=dimension, cluster="dialogue_id")
    refuse_ties_alone(entries, dimension)
    check_clusters(len(entries.clusters), "dialogue_id")
    names, (rater,) = name_codes(verdicts, ["rater"], entries.rows)
    kinds = verdicts["rater_kind"].iloc[entries.rows].groupby(rater).first()
    people = (kinds == "human").to_numpy()
    if len(names) < 2:
        raise RatingsError(f"There is one rater only ({names[0]}), and a rater is weighed against others. Use fit_ratings.")
    if need_people and not people.any():
        raise RatingsError("No person judged these, so strengths would be a consensus of models. Collect people's verdicts.")
    model = RaterModel.of(verdicts, entries, rater, people if people.any() else np.ones(len(names), bool))
    found = fit_raters(model, entries)
    covariance = raters_covariance(model, found)
    size, n_clusters = len(entries.responders), len(entries.clusters)
    separated = model.prior > 0
    centre = np.eye(len(found))
    centre[:size, :size] = centring(separated)
    theta, covariance = (centre @ found)[:size], centre @ covariance @ centre.T
    reach = stats.t.ppf((1.0 + ci_level) / 2.0, n_clusters - 1) * np.sqrt(np.maximum(np.diag(covariance), 0.0))
    rng = as_rng(rng)
    draws = rng.multivariate_normal(theta, covariance[:size, :size], size=N_DRAWS, method="eigh")
    # Who always wins or loses has a strength by the weak prior alone: no verdict bounds it, so any rank is open.
    low, high = np.where(separated, -np.inf, theta - reach[:size]), np.where(separated, np.inf, theta + reach[:size])
    ends = np.where(separated, -np.inf, np.nan), np.where(separated, np.inf, np.nan)
    best, worst = rank_ranges(theta, draws, n_clusters, ci_level, ends=ends)
    settings = {"dimension": dimension, "method": "judge-aware", "population": "dialogues", "interval": "sandwich"}
    layout: dict[str, Any] = {
        "strength": theta,
        "ci_low": low,
        "ci_high": high,
        "chance": expit(theta[:, None] - theta[None, :]),
        "penalised": separated,
        "n_clusters": clusters_met(entries, entries.cluster, n_clusters),
        "rank_low": best,
        "rank_high": worst,
    }
    table = lay_out(verdicts, responders, entries, {**settings, "ci_level": ci_level}, layout)
    order = np.lexsort((np.asarray(entries.responders, dtype=str), -theta))
    return JudgeAware(
        table=table.iloc[order].reset_index(drop=True),
        strength=pd.Series(theta[order], index=pd.Index(entries.responders[order], name="responder"), name="strength"),
        raters=_raters(model, found, reach, names, kinds, entries, rater),
        anchor="people" if people.any() else "consensus",
        common_order=_test_common_order(model, found),
        left_out=entries.left_out,
    )


def _test_common_order(model: RaterModel, found: Array) -> CommonOrder:
    """Test strengths by rater with their scores where all share one order, corrected for dialogues (Rao and Scott)."""
    theta, gamma, _, _ = model.split(found)
    gradient, information, residual, tie_residual = scores(model, found)
    up, down, tie = model.answers(found)
    size, row = model.size, np.arange(len(model.a))
    columns = np.concatenate([model.rater * size + model.a, model.rater * size + model.b])
    slope = gamma[model.rater]
    own = sparse.csr_array(
        (np.concatenate([slope, -slope]), (np.tile(row, 2), columns)), shape=(len(row), model.n_raters * size)
    )
    design, ties = model.design(found), model.ties_design()
    mean = (up - down) / 2.0
    spread = sparse.diags_array((up + down) / 4.0 - mean**2)
    within = (own.T @ spread @ own).toarray()
    across = (own.T @ spread @ design + own.T @ sparse.diags_array(-mean * tie) @ ties).toarray()
    shared = across @ np.linalg.pinv(information, rcond=NOTHING, hermitian=True)
    score = own.T @ residual - shared @ gradient
    effective = within - shared @ across.T
    sums = by_cluster(model, own, residual)
    sums -= (by_cluster(model, design, residual) + by_cluster(model, ties, tie_residual)) @ shared.T
    inverse = np.linalg.pinv(effective, rcond=NOTHING, hermitian=True)
    df = int(np.linalg.matrix_rank(effective, tol=NOTHING * np.linalg.norm(effective, 2), hermitian=True))
    if df == 0:
        return CommonOrder(0.0, 0, 1.0, 1.0)
    inflation = float(((sums @ inverse) * sums).sum() / df)
    statistic = float(score @ inverse @ score)
    return CommonOrder(statistic, df, inflation, float(stats.chi2.sf(statistic / inflation, df)))


def _raters(
    model: RaterModel, found: Array, reach: Array, names: pd.Index, kinds: pd.Series, entries: Entries, rater: Codes
) -> pd.DataFrame:
    theta, gamma, delta, nu = model.split(found)
    size, n = model.size, model.n_raters
    log_reach, delta_reach = reach[size : size + n], reach[size + n : size + 2 * n]
    known = np.bincount(rater, weights=model.side != 0, minlength=n) > 0
    delta = np.where(known, delta, np.nan)
    return pd.DataFrame(
        {
            "rater": names.astype("str"),
            "rater_kind": kinds.to_numpy(),
            "n_verdicts": np.bincount(rater, minlength=n),
            "discrimination": gamma,
            "discrimination_low": gamma * np.exp(-log_reach),
            "discrimination_high": gamma * np.exp(log_reach),
            "position_bias": delta,
            "position_bias_low": delta - delta_reach,
            "position_bias_high": delta + delta_reach,
            "ties": nu,
            "deterministic": _deterministic(model, theta),
        }
    )


def _deterministic(model: RaterModel, theta: Array) -> NDArray[np.object_]:
    """Say by which rule a rater's answers can be foretold, or nothing."""
    n = model.n_raters
    decided = model.won != 0
    towards_first = np.sign(model.won) * model.side
    towards_better = np.sign(model.won) * np.sign(theta[model.a] - theta[model.b])
    count = np.bincount(model.rater[decided], minlength=n)
    first = np.bincount(model.rater, weights=towards_first * decided, minlength=n)
    better = np.bincount(model.rater, weights=towards_better * decided, minlength=n)
    rules = [count == 0, first == count, first == -count, better == count, better == -count]
    words = ["always a tie", "always the first shown", "always the second shown", "always the better", "always the worse"]
    return np.array([*words, None], dtype=object)[np.select(rules, np.arange(len(words)), len(words))]
