"""The board with style held equal: length, hedging, questions, list marks and first person as covariates."""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats
from scipy.linalg import block_diag, null_space

from heart_utils.ratings.bradley_terry import PRIOR, ConvergenceError, Truths, check_comparable, count_wins, find_separated
from heart_utils.ratings.resampling import check_clusters
from heart_utils.ratings.verdicts import Entries, RatingsError, read_verdicts

__all__ = ["StyleControl", "differing_features", "fit_style", "style_features"]

Array = NDArray[np.float64]

HEDGES = (
    "maybe",
    "perhaps",
    "might",
    "possibly",
    "probably",
    "seems",
    "sounds like",
    "sort of",
    "kind of",
    "i think",
    "i guess",
)
FIRST_PERSON = r"\b(?i:i|i['’](?:m|d|ve|ll)|me|my|mine|myself)\b"
LIST_LINE = r"(?m)^\s*(?:[-*•‣]|\d{1,2}[.)])\s+\S"
FLAT = 1e-9
WIDEST = 30.0
"""Log-odds beyond which a verdict is foretold."""


@dataclass(frozen=True, eq=False)
class StyleControl:
    """A board with and without style held equal."""

    # columns ``responder``, ``strength``, ``ci_low``, ``ci_high``, ``rank`` without covariates, and the same with
    # ``controlled_`` before them; best first without
    table: pd.DataFrame
    # columns ``feature``, ``log_odds``, ``ci_low``, ``ci_high``, ``p_value``: what one standard deviation more of the feature
    # than the other reply goes with. An association: longer replies may be better replies, so length is no mere dress, and
    # the cause is for a probe to tell
    coefficients: pd.DataFrame
    n_verdicts: int  # what entered
    n_clusters: int


def style_features(replies: pd.DataFrame) -> pd.DataFrame:
    """Count the marks of style in English replies, as covariates of a board.

    :func:`heart_utils.judges.position.text_features` makes of these what each judge's preference is priced in.

    Parameters
    ----------
    replies : pandas.DataFrame
        The replies table.

    Returns
    -------
    pandas.DataFrame
        Index ``reply_id``; columns ``log_words`` (natural logarithm of words), ``hedges``, ``questions``,
        ``list_marks`` (lines that open with a bullet or a number) and ``first_person``, counted. A reply
        without text has none of them: ``nan``.

    Examples
    --------
    >>> texts = ["Maybe I am wrong, but does it feel heavy?", "1. Breathe." + chr(10) + "2. Call a friend."]
    >>> replies = pd.DataFrame({"reply_id": ["r1", "r2"], "text": texts})
    >>> style_features(replies)[["hedges", "questions", "list_marks", "first_person"]].to_numpy().tolist()
    [[1.0, 1.0, 0.0, 1.0], [0.0, 0.0, 2.0, 0.0]]
    """
    text = replies.set_index("reply_id")["text"]
    words = text.str.count(r"\S+")
    features = {
        "log_words": np.log(words.astype(float).where(words > 0)),
        "hedges": text.str.count(_any_of(HEDGES), flags=re.IGNORECASE),
        "questions": text.str.count(r"\?+"),
        "list_marks": text.str.count(LIST_LINE),
        "first_person": text.str.count(FIRST_PERSON),
    }
    return pd.DataFrame(features, index=text.index).astype(float)


def differing_features(features: pd.DataFrame, comparisons: pd.DataFrame) -> pd.DataFrame:
    """Keep the features in which the two replies of some comparison differ; no verdict tells of the others.

    Parameters
    ----------
    features : pandas.DataFrame
        Index ``reply_id``, one number a column.
    comparisons : pandas.DataFrame
        Columns ``reply_a`` and ``reply_b``.

    Returns
    -------
    pandas.DataFrame
        The same rows, and those columns.

    Examples
    --------
    >>> features = pd.DataFrame({"questions": [0.0, 2.0], "hedges": [1.0, 1.0]}, index=["r1", "r2"])
    >>> differing_features(features, pd.DataFrame({"reply_a": ["r1"], "reply_b": ["r2"]})).columns.tolist()
    ['questions']
    """
    gaps = features.loc[comparisons["reply_a"]].to_numpy(float) - features.loc[comparisons["reply_b"]].to_numpy(float)
    differing = (np.abs(gaps) > 0).any(axis=0)
    return features[[name for name, differs in zip(features, differing, strict=True) if differs]]


def fit_style(
    verdicts: pd.DataFrame,
    comparisons: pd.DataFrame,
    features: pd.DataFrame,
    *,
    dimension: str = "overall",
    cluster: str = "dialogue_id",
    ci_level: float = 0.95,
) -> StyleControl:
    r"""Fit strengths with and without the differences of style in the likelihood.

    The log-odds that a is preferred are :math:`\theta_a - \theta_b + \sum_k \beta_k (x_{ak} - x_{bk}) / s_k`
    with :math:`s_k` the standard deviation of the differences. Each verdict weighs the same, and the
    covariance is robust to verdicts of a cluster being alike.

    Parameters
    ----------
    verdicts : pandas.DataFrame
        As for :func:`heart_utils.ratings.ratings.fit_ratings`, with ``comparison_id``.
    comparisons : pandas.DataFrame
        Says which replies stood behind each ``comparison_id``: ``reply_a``, ``reply_b``.
    features : pandas.DataFrame
        Index ``reply_id``, one number a column, such as :func:`style_features` gives.
    dimension, cluster, ci_level
        As in :func:`~heart_utils.ratings.ratings.fit_ratings`.

    Returns
    -------
    StyleControl
        Both boards and the coefficients.

    Raises
    ------
    RatingsError
        If there is no feature, a verdict's reply has none, or a feature is constant or follows from the others.
    NotComparableError
        If comparisons do not link all responders.
    ConvergenceError
        If a feature foretells every verdict.

    Examples
    --------
    >>> from heart_utils.simulate.study import simulate_study
    >>> study = simulate_study(rng=np.random.default_rng(1), n_responders=3, n_dialogues=40, pairs="all")
    >>> features = pd.DataFrame({"n_words": np.arange(len(study.replies)) % 7}, index=study.replies["reply_id"])
    >>> found = fit_style(study.verdicts, study.comparisons, features)
    >>> found.coefficients["feature"].tolist(), found.n_clusters
    (['n_words'], 40)
    """
    if cluster not in verdicts or "comparison_id" not in verdicts:
        raise RatingsError(f"verdicts lack the column {cluster if cluster not in verdicts else 'comparison_id'}.")
    if features.shape[1] == 0:
        raise RatingsError("There is no feature of style, so nothing can be held equal: give one that differs between replies.")
    entries = read_verdicts(verdicts, dimension=dimension, cluster=cluster)
    n_clusters = len(entries.clusters)
    check_clusters(n_clusters, cluster)
    wins = count_wins(entries, weights="verdicts").sum()[:, 0]
    check_comparable(wins[0], entries.responders)
    penalised = find_separated(wins)[0]
    names, differences = _differences(verdicts, comparisons, features, entries)
    size = len(entries.responders)
    row = np.arange(len(entries.rows))
    sides = np.zeros((len(row), size))
    sides[row, entries.a] = 1.0
    sides[row, entries.b] = -1.0
    design = np.hstack([sides, differences])
    _check_independent(design, size, names)
    plain, plain_se = _fit(sides, entries, penalised)
    found, se = _fit(design, entries, penalised)
    quantile = stats.t.ppf((1.0 + ci_level) / 2.0, n_clusters - 1)
    board = pd.DataFrame({"responder": entries.responders.astype("str")})
    for start, theta, error in (("", plain, plain_se), ("controlled_", found[:size], se[:size])):
        board[f"{start}strength"] = theta
        board[f"{start}ci_low"], board[f"{start}ci_high"] = theta - quantile * error, theta + quantile * error
        board[f"{start}rank"] = board[f"{start}strength"].rank(ascending=False, method="min").astype(int)
    beta, beta_se = found[size:], se[size:]
    coefficients = pd.DataFrame(
        {
            "feature": names,
            "log_odds": beta,
            "ci_low": beta - quantile * beta_se,
            "ci_high": beta + quantile * beta_se,
            "p_value": 2.0 * stats.t.sf(np.abs(beta) / beta_se, n_clusters - 1),
        }
    )
    return StyleControl(board.sort_values("rank", ignore_index=True), coefficients, len(row), n_clusters)


def _any_of(phrases: tuple[str, ...]) -> str:
    return r"\b(?:" + "|".join(re.escape(phrase) for phrase in sorted(phrases, key=len, reverse=True)) + r")\b(?!')"


def _differences(
    verdicts: pd.DataFrame, comparisons: pd.DataFrame, features: pd.DataFrame, entries: Entries
) -> tuple[list[str], Array]:
    """Give the differences of features behind each entry, in their standard deviations."""
    place = pd.Index(comparisons["comparison_id"]).get_indexer(pd.Index(verdicts["comparison_id"].iloc[entries.rows]))
    if (place < 0).any():
        raise RatingsError(
            f"{int((place < 0).sum())} verdicts belong to no row of comparisons, so their replies are not known."
        )
    sides = []
    for side in ("reply_a", "reply_b"):
        reply = comparisons[side].iloc[place]
        at = features.index.get_indexer(pd.Index(reply))
        values = features.to_numpy(float)[at]
        bad = (at < 0) | np.isnan(values).any(axis=1)
        if bad.any():
            raise RatingsError(
                f"{int(bad.sum())} verdicts are about replies without features, such as {reply.iloc[int(np.argmax(bad))]}. "
                f"Leave these verdicts out, and say how many."
            )
        sides.append(values)
    gap = sides[0] - sides[1]
    spread = gap.std(axis=0)
    constant = [str(name) for name, one in zip(features.columns, spread, strict=True) if one <= FLAT]
    if constant:
        raise RatingsError(
            f"The feature {', '.join(constant)} differs in no pair of replies, so nothing can be said of it: drop it."
        )
    return [str(name) for name in features.columns], gap / spread


def _check_independent(design: Array, size: int, names: list[str]) -> None:
    """Refuse a feature that follows from the others and from who wrote."""
    for place, name in enumerate(names):
        others = np.delete(design, size + place, axis=1)
        column = design[:, size + place]
        left = column - others @ np.linalg.lstsq(others, column, rcond=None)[0]
        if np.linalg.norm(left) <= 1e-6 * np.linalg.norm(column):
            raise RatingsError(
                f"The feature {name!r} follows from the other features or from who wrote the replies (it is collinear), so its "
                f"part cannot be told from theirs: drop it."
            )


def _fit(design: Array, entries: Entries, penalised: Truths) -> tuple[Array, Array]:
    """Fit a logistic likelihood, with the weak prior as answers of their own, and give standard errors by clusters."""
    from statsmodels.api import GLM, families
    from statsmodels.tools.sm_exceptions import PerfectSeparationWarning

    size, n_clusters = len(penalised), len(entries.clusters)
    prior = np.zeros((int(penalised.sum()), design.shape[1]))
    prior[:, :size] = np.eye(size)[penalised] - 1.0 / size
    weights = np.concatenate([np.ones(len(design)), np.full(len(prior), 2.0 * PRIOR)])
    won, rows = np.concatenate([entries.share, np.full(len(prior), 0.5)]), np.vstack([design, prior])
    basis = block_diag(null_space(np.ones((1, size))), np.eye(design.shape[1] - size))  # strengths have mean zero
    model = GLM(won, rows @ basis, families.Binomial(), freq_weights=weights)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PerfectSeparationWarning)
        fit = model.fit(tol=1e-10, tol_criterion="params")
    found = basis @ fit.params
    residual = (entries.share - fit.fittedvalues[: len(design)])[:, None] * design
    if not fit.converged or np.abs(design @ found).max() > WIDEST:
        raise ConvergenceError("A feature foretells every verdict, so its coefficient has no finite value: leave it out.")
    sums = np.stack([np.bincount(entries.cluster, column, n_clusters) for column in residual.T], axis=1)
    bread = basis @ fit.normalized_cov_params @ basis.T
    return found, np.sqrt(np.diag(bread @ (sums.T @ sums) @ bread) * n_clusters / (n_clusters - 1.0))
