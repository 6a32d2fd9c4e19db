r"""Ratings that weigh each rater by how well they tell responders apart.

Rater :math:`r` prefers i to j, shown first (:math:`z = 1`) or second (:math:`z = -1`), by the log-odds

.. math:: g = \gamma_r (\theta_i - \theta_j) + \delta_r z

and calls a tie after Davidson with :math:`\nu_r`. Strengths sum to zero; the geometric mean of people's
:math:`\gamma` is one, so strengths are in people's log-odds; :math:`\log \gamma_r \sim N(0, 0.5^2)` keeps
raters with few answers near one. Where no people judge, the geometric mean over all raters is one, and
the strengths are a consensus of models: nothing says that it is what people would prefer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse, stats
from scipy.special import expit

from heart_utils.analysis.board import clusters_met, lay_out
from heart_utils.analysis.rater_model import NOTHING, RaterModel, by_cluster, fit_raters, raters_covariance, scores
from heart_utils.analysis.resampling import as_rng, check_clusters, check_level, rank_ranges
from heart_utils.analysis.wins import Codes, Entries, RatingsError, name_codes, read_verdicts

__all__ = ["CommonOrder", "JudgeAware", "fit_judge_aware"]

Array = NDArray[np.float64]

N_DRAWS = 2000


@dataclass(frozen=True)
class CommonOrder:
    """A test of whether raters share one order of strengths, up to their discrimination.

    Attributes
    ----------
    statistic : float
        Score statistic against strengths by rater.
    df : int
        What strengths by rater have more.
    inflation : float
        By how much verdicts of a dialogue being alike inflates the statistic; it is divided by this.
    p_value : float
        Small: raters do not share one order, and one board for all of them hides it.
    """

    statistic: float
    df: int
    inflation: float
    p_value: float


@dataclass(frozen=True, eq=False)
class JudgeAware:
    """Strengths and raters, fitted together.

    Attributes
    ----------
    table : pandas.DataFrame
        The ratings table; intervals are sandwiches over dialogues, raters being fixed.
    strength : pandas.Series
        Responder -> strength, best first, mean zero.
    raters : pandas.DataFrame
        One row a rater: ``rater``, ``rater_kind``, ``n_verdicts``, ``discrimination`` (gamma) with its
        interval, ``position_bias`` (delta: log-odds that the first shown gains; ``nan`` where no order
        is known) with its interval, ``ties`` (nu), and ``deterministic``: why the rater's answers follow a rule, or nothing.
    anchor : {"people", "consensus"}
        Whose scale the strengths are on.
    common_order : CommonOrder
        The test to read first.
    left_out : pandas.Series
        State -> answers that did not enter.
    """

    table: pd.DataFrame
    strength: pd.Series
    raters: pd.DataFrame
    anchor: str
    common_order: CommonOrder
    left_out: pd.Series


def fit_judge_aware(
    verdicts: pd.DataFrame,
    *,
    responders: pd.DataFrame | None = None,
    dimension: str = "overall",
    cluster: str = "dialogue_id",
    need_people: bool = False,
    ci_level: float = 0.95,
    rng: np.random.Generator | None = None,
) -> JudgeAware:
    """Fit strengths together with each rater's discrimination, position bias and readiness to tie.

    Parameters
    ----------
    verdicts : pandas.DataFrame
        One row per answer, as it was given: two orders not yet joined, since their difference is what
        shows position bias. Columns as for :func:`heart_utils.analysis.ratings.fit_ratings`, and
        ``rater``, ``rater_kind`` and ``order``.
    responders : pandas.DataFrame, optional
        Names the ``responder_kind`` of each ``responder``.
    dimension : str
        A line of the rubric.
    cluster : str
        Column of what is drawn together.
    need_people : bool
        Whether to refuse verdicts of models alone.
    ci_level : float
        Such as 0.95.
    rng : numpy.random.Generator, optional
        For the rank ranges, which come from normal draws; by default one with a fixed seed.

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
    >>> from heart_utils.analysis.simulate import Panel, simulate_study
    >>> panels = [Panel("human", 8, 4), Panel("model", 1, 1, discrimination=0.4, position_bias=1.0)]
    >>> study = simulate_study(rng=np.random.default_rng(1), n_responders=5, n_dialogues=60, pairs=8, panels=panels)
    >>> judges = fit_judge_aware(study.verdicts).raters.query("rater_kind == 'model'")
    >>> bool(judges["discrimination"].item() < 0.8), bool(judges["position_bias"].item() > 0.6)
    (True, True)
    """
    check_level(ci_level)
    missing = [column for column in ("rater", "rater_kind", cluster) if column not in verdicts]
    if missing:
        raise RatingsError(f"verdicts lack the column {', '.join(missing)}. They have {', '.join(map(str, verdicts.columns))}.")
    entries = read_verdicts(verdicts, dimension=dimension, cluster=cluster)
    check_clusters(len(entries.clusters), cluster)
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
    reach = stats.t.ppf((1.0 + ci_level) / 2.0, n_clusters - 1) * np.sqrt(np.maximum(np.diag(covariance), 0.0))
    theta = found[:size]
    rng = as_rng(rng)
    draws = rng.multivariate_normal(theta, covariance[:size, :size], size=N_DRAWS, method="eigh")
    # Who always wins or loses has a strength by the weak prior alone: no verdict bounds it, so any rank is open.
    separated = model.prior > 0
    low, high = np.where(separated, -np.inf, theta - reach[:size]), np.where(separated, np.inf, theta + reach[:size])
    ends = np.where(separated, -np.inf, np.nan), np.where(separated, np.inf, np.nan)
    best, worst = rank_ranges(theta, draws, n_clusters, ci_level, ends=ends)
    settings = {"dimension": dimension, "method": "judge-aware", "population": "dialogues", "interval": "sandwich"}
    layout: dict[str, Any] = {
        "strength": theta,
        "ci_low": low,
        "ci_high": high,
        "chance": expit(theta[:, None] - theta[None, :]),
        "penalised": model.prior > 0,
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
