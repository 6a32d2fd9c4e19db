"""What biases a judge: the side of a reply, its form, and being asked again."""

from __future__ import annotations

import warnings
from itertools import combinations

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from heart_utils.ratings.resampling import (
    ENOUGH_CLUSTERS,
    Rng,
    bootstrap_ci,
    holm,
    interval_of,
    p_value,
    ratio,
    share_ci,
)
from heart_utils.ratings.verdicts import BOTH, SHARES, Array, combine_orders, need_cluster, won_by_a
from heart_utils.settings import extra
from heart_utils.tables import ORDERS, need_columns

__all__ = [
    "BiasError",
    "compare_answers",
    "feature_bias",
    "position_bias",
    "repeat_reliability",
    "text_features",
]

LARGEST = 20.0
"""Log-odds beyond which a coefficient has no end: its feature separates winners from losers."""
FIRST_PERSON = r"\b(?i:i|i['’](?:m|d|ve|ll)|me|my|mine|myself)\b"
LIST_LINE = r"(?m)^\s*(?:[-*•‣]|\d{1,2}[.)])\s+\S"


class BiasError(ValueError):
    """These verdicts or scores cannot show the bias."""


def position_bias(
    verdicts: pd.DataFrame,
    *,
    rng: np.random.Generator,
    n_resamples: int = 1000,
    ci_level: float = 0.95,
) -> pd.DataFrame:
    """Measure how far each rater prefers the reply shown first, and contradicts itself.

    Parameters
    ----------
    verdicts
        Orders not joined.
    rng, n_resamples, ci_level
        As in :func:`~heart_utils.ratings.resampling.bootstrap_ci`.

    Returns
    -------
    pandas.DataFrame
        One row a rater, dimension and measure: ``first_share`` (won by the reply shown first),
        ``inconsistent_share`` (of pairs seen in both orders), ``tie_share``, ``failed_share``;
        ``value``, ``ci_low``, ``ci_high``, ``n``, ``n_clusters``, ``provisional``, ``why`` one is
        missing.

    Examples
    --------
    >>> verdicts = pd.DataFrame({"dialogue_id": list("ddee"), "order": ["ab", "ba"] * 2})
    >>> verdicts = verdicts.assign(pair_id=verdicts["dialogue_id"], verdict=list("abaa"), rater="j")
    >>> verdicts = verdicts.assign(repeat=0, dimension="overall", state="valid")
    >>> position_bias(verdicts, rng=np.random.default_rng(1))["value"].tolist()
    [0.75, 0.5, 0.0, 0.0]
    """
    need_cluster(verdicts, "dialogue_id")
    rows = []
    for (rater, dimension), theirs in verdicts.groupby(["rater", "dimension"], sort=True):
        valid = theirs[theirs["state"] == "valid"]
        joined = combine_orders(theirs)
        # Two valid answers, or one row that was joined before it came: GPT-4's in MT-Bench have no
        # order.
        in_both = joined["order"].isna() | joined["order"].eq(BOTH)
        judged = joined[joined["state"].isin(["valid", "inconsistent"]) & in_both]
        with_order = valid[valid["order"].isin(ORDERS)]
        first = with_order["verdict"].map(SHARES).astype(float).to_numpy()
        first = np.where(with_order["order"] == "ab", first, 1.0 - first)
        failed = ~theirs["state"].isin(["valid", "inconsistent"])
        turned = judged["state"].eq("inconsistent")
        tied = valid["verdict"].eq("tie")
        measures = [
            ("first_share", first, with_order, "no valid verdict names the order shown"),
            ("inconsistent_share", turned, judged, "no pair was seen in both orders"),
            ("tie_share", tied, valid, "no verdict is valid"),
            ("failed_share", failed, theirs, "no answer"),
        ]
        for measure, values, of, without in measures:
            about = {"rater": rater, "dimension": dimension, "measure": measure}
            how = rng, n_resamples, ci_level
            rows.append(about | _share(values, of["dialogue_id"], without, how))
    return pd.DataFrame(rows)


def text_features(replies: pd.DataFrame) -> pd.DataFrame:
    r"""Compute features of each reply's form, such as its length and use of lists.

    Source: Zheng et al. (2023), https://arxiv.org/abs/2306.05685. English only.

    Parameters
    ----------
    replies
        With ``reply_id`` and ``text``; those without text are left out.

    Returns
    -------
    pandas.DataFrame
        One row a ``reply_id``: ``log2_words`` (one unit is twice the length), and 1 or 0 for
        ``list_marks`` (bullets or numbers), ``first_person`` and ``question``.

    Examples
    --------
    >>> replies = pd.DataFrame({"reply_id": [*"rs"], "text": ["I hear.", "1. Sleep\n2. Eat"]})
    >>> text_features(replies)[["list_marks", "first_person"]].values.tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """
    text = replies.dropna(subset=["text"]).set_index("reply_id")["text"]
    features = {
        "log2_words": np.log(text.str.count(r"\S+").clip(lower=1)) / np.log(2.0),
        "list_marks": text.str.contains(LIST_LINE),
        "first_person": text.str.contains(FIRST_PERSON),
        "question": text.str.contains("?", regex=False),
    }
    return pd.DataFrame(features, index=text.index).astype(float)


def feature_gaps(comparisons: pd.DataFrame, features: pd.DataFrame) -> pd.DataFrame:
    """Compute by how much reply a exceeds b in each feature, by ``pair_id``."""
    pairs = comparisons.drop_duplicates("pair_id").set_index("pair_id")
    sides = [features.reindex(pairs[side]).to_numpy(float) for side in ("reply_a", "reply_b")]
    return pd.DataFrame(sides[0] - sides[1], columns=features.columns, index=pairs.index)


def feature_bias(
    verdicts: pd.DataFrame,
    comparisons: pd.DataFrame,
    features: pd.DataFrame,
    *,
    within_authors: bool = True,
    ci_level: float = 0.95,
) -> pd.DataFrame:
    r"""Estimate how features of a reply go with winning, all features at once (logistic).

    :math:`P(a) = \operatorname{logit}^{-1}(\sum_k \beta_k (x_{ak} - x_{bk}) + \theta_i -
    \theta_j)`, with authors' strengths :math:`\theta`; a tie is half a win. Only features assigned
    at random show an effect.

    Parameters
    ----------
    verdicts
        Orders not joined. Pairs without features are left out.
    comparisons
        The table of comparisons.
    features
        One row a ``reply_id`` (index), one numeric column a feature.
    within_authors
        Whether the model has authors' strengths.
    ci_level
        Level of the intervals.

    Returns
    -------
    pandas.DataFrame
        One row a rater, dimension and feature: ``log_odds`` of one unit more, ``se`` (clustered by
        dialogue), ``ci_low``, ``ci_high``, ``p``, ``p_holm`` (over the features), ``n_pairs``,
        ``n_clusters``, ``provisional``, and ``why`` there is no estimate.

    Raises
    ------
    BiasError
        If no valid verdict is on replies with features.

    Examples
    --------
    >>> from heart_utils.simulate.study import simulate_study
    >>> study = simulate_study(rng=np.random.default_rng(1), strengths=3, n_dialogues=40, pairs=3)
    >>> replies = study.replies["reply_id"]
    >>> features = pd.DataFrame({"n_words": np.arange(len(replies)) % 7}, index=replies)
    >>> feature_bias(study.verdicts, study.comparisons, features)["feature"].unique().tolist()
    ['n_words']
    """
    by_pair = feature_gaps(comparisons, features)
    joined = combine_orders(verdicts)
    joined = joined[
        joined["state"].isin(["valid", "inconsistent"]) & joined["pair_id"].isin(by_pair.index)
    ]
    won, gaps = won_by_a(joined), by_pair.loc[joined["pair_id"]].set_axis(joined.index)
    parts = {}
    for (rater, dimension), theirs in joined.groupby(["rater", "dimension"], sort=True):
        gap = gaps.loc[theirs.index].dropna()
        theirs = theirs.loc[gap.index]
        authors = author_columns(theirs) if within_authors else np.zeros((len(theirs), 0))
        fitted = _fit(
            np.asarray(won.loc[gap.index], dtype=np.float64),
            gap,
            authors,
            theirs["dialogue_id"],
            ci_level,
        )
        parts[rater, dimension] = fitted.assign(n_pairs=len(theirs))
    if not parts:
        raise BiasError(
            "No valid verdict is on a pair whose replies have features; give the comparisons of"
            " these verdicts."
        )
    table = pd.concat(parts, names=["rater", "dimension"])
    return table.reset_index(level=["rater", "dimension"]).reset_index(drop=True)


def _share(
    values: object, clusters: pd.Series, without: str, how: tuple[Rng, int, float]
) -> dict[str, object]:
    outcomes, n_clusters = np.asarray(values, dtype=float), clusters.nunique()
    value, low, high, why = outcomes.mean() if n_clusters else np.nan, np.nan, np.nan, without
    if n_clusters > 1:
        rng, n_resamples, ci_level = how
        interval = share_ci(
            outcomes, 1, cluster=clusters, rng=rng, n_resamples=n_resamples, ci_level=ci_level
        )
        low, high, why = interval.ci_low, interval.ci_high, ""
    elif n_clusters:
        why = "one dialogue only, so no interval"
    counts = {"n": len(outcomes), "n_clusters": n_clusters}
    ends = {"value": value, "ci_low": low, "ci_high": high}
    return ends | counts | {"why": why, "provisional": n_clusters < ENOUGH_CLUSTERS}


def _fit(
    won: Array, gap: pd.DataFrame, authors: Array, clusters: pd.Series, ci_level: float
) -> pd.DataFrame:
    n_clusters, varies = clusters.nunique(), _identified(authors, gap.to_numpy())
    why = np.where(varies, "", "does not vary apart from who wrote").astype(object)
    table = pd.DataFrame(
        np.nan, gap.columns.rename("feature"), ["log_odds", "se", "ci_low", "ci_high", "p"]
    ).reset_index()
    fitted, missing = pd.DataFrame(), "one dialogue only"
    if n_clusters > 1 and varies.any():
        fitted, missing = fit_logistic(
            np.column_stack([gap.to_numpy()[:, varies], authors]), won, clusters, ci_level
        )
    if missing:
        why[varies] = missing
    else:
        table.loc[varies, list(fitted.columns)] = fitted.iloc[: varies.sum()].to_numpy()
    counts = {"n_clusters": n_clusters, "provisional": n_clusters < ENOUGH_CLUSTERS}
    return table.assign(why=why, **counts, p_holm=holm(table["p"]))


def fit_logistic(
    design: Array, won: Array, clusters: pd.Series, ci_level: float
) -> tuple[pd.DataFrame, str]:
    """Fit a logistic model without constant, errors clustered, or say why not."""
    with extra("stats"):
        from statsmodels.api import GLM, families

    codes, n = pd.factorize(clusters)[0], clusters.nunique()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # separation is told by the coefficients
        clustered = {"cov_type": "cluster", "cov_kwds": {"groups": codes, "use_correction": False}}
        fitted = GLM(won, design, family=families.Binomial()).fit(
            maxiter=100, tol=1e-9, tol_criterion="params", **clustered
        )
    if not fitted.converged or np.abs(fitted.params).max() > LARGEST:
        return pd.DataFrame(), "the verdicts follow it without exception"
    beta, se = fitted.params, fitted.bse * np.sqrt(n / (n - 1.0))
    if not se.all():
        return pd.DataFrame(), "every pair is a tie or undecided"
    low, high = stats.t.interval(ci_level, n - 1, beta, se)
    p = 2.0 * stats.t.sf(np.abs(beta) / se, n - 1)
    return pd.DataFrame({"log_odds": beta, "se": se, "ci_low": low, "ci_high": high, "p": p}), ""


def author_columns(verdicts: pd.DataFrame) -> Array:
    """Build a column for each author but the first: 1 for a, -1 for b."""
    authors = sorted({*verdicts["responder_a"], *verdicts["responder_b"]})[1:]
    a, b = (
        verdicts[side].to_numpy()[:, None] == np.array(authors, dtype=object)
        for side in ("responder_a", "responder_b")
    )
    return np.asarray(a.astype(float) - b)


def _identified(authors: Array, features: Array) -> NDArray[np.bool_]:
    both = np.column_stack([authors, features])
    sizes = range(authors.shape[1], both.shape[1] + 1)
    ranks = [np.linalg.matrix_rank(both[:, :n]) if n and len(both) else 0 for n in sizes]
    return np.diff(ranks) > 0


def interval_and_p(
    values: Array, n_clusters: int, ci_level: float, **ends: float
) -> dict[str, float]:
    """Compute interval and p value of the first value from its resamples."""
    low, high = interval_of(float(values[0]), values[1:], n_clusters, ci_level, **ends)
    p = p_value(float(values[0]), values[1:], n_clusters) if np.isfinite(low) else np.nan
    return {"ci_low": low, "ci_high": high, "p": p}


WHO, ENDS = ["rater", "dimension"], ["ci_low", "ci_high"]
ANSWERED = [*WHO, "one", "other", "same_share", *ENDS, "n", "n_failed", "n_clusters", "provisional"]
RELIABILITY = [*WHO, "reliability", *ENDS, "ci_level", "n_questions", "repeats", "n_failed"]
RELIABILITY += ["n_clusters", "provisional"]
SAME = ("pair_id", "order", "rater", "dimension", "repeat", "protocol", "answer_format", "group")


def compare_answers(
    verdicts: pd.DataFrame,
    *,
    by: str,
    rng: Rng = None,
    n_resamples: int = 1000,
    ci_level: float = 0.95,
) -> pd.DataFrame:
    """Compare a rater's answers to what should be one question under several conditions.

    Parameters
    ----------
    verdicts
        Orders not joined.
    by
        ``"repeat"``, ``"protocol"`` (other words), ``"answer_format"``, or a column of yours.
    rng, n_resamples, ci_level
        As in :func:`~heart_utils.ratings.resampling.bootstrap_ci`.

    Returns
    -------
    pandas.DataFrame
        One row a rater, dimension and two conditions ``one`` and ``other``: ``same_share`` of pairs
        in one order with the same verdict, ``ci_low``, ``ci_high``, ``n``, ``n_failed`` (under
        either), ``n_clusters``, ``provisional``.

    Examples
    --------
    >>> verdicts = pd.DataFrame({"dialogue_id": list("ddee"), "repeat": [0, 1] * 2, "order": "ab"})
    >>> verdicts = verdicts.assign(pair_id=verdicts["dialogue_id"], verdict=["a", "a", "a", "tie"])
    >>> verdicts = verdicts.assign(rater="judge", dimension="overall", state="valid")
    >>> compare_answers(verdicts, by="repeat")["same_share"].tolist()
    [0.5]
    """
    key = [
        column
        for column in SAME
        if column in verdicts and column != by and not (by == "protocol" and column == "repeat")
    ]
    rows = []
    for (rater, dimension), theirs in verdicts.groupby(["rater", "dimension"], sort=True):
        for one, other in combinations(sorted(theirs[by].dropna().unique()), 2):
            before, after = (theirs[theirs[by] == condition] for condition in (one, other))
            both = before.merge(after, on=key, suffixes=("", "_after"))
            valid = both[(both["state"] == "valid") & (both["state_after"] == "valid")]
            if valid["dialogue_id"].nunique() < 2:
                continue
            same = valid["verdict"].eq(valid["verdict_after"])
            share = share_ci(
                same,
                1,
                cluster=valid["dialogue_id"],
                rng=rng,
                n_resamples=n_resamples,
                ci_level=ci_level,
            )
            ends = share.estimate, share.ci_low, share.ci_high
            counts = len(valid), len(both) - len(valid), share.n_clusters
            rows.append((rater, dimension, one, other, *ends, *counts, share.provisional))
    return pd.DataFrame(rows, columns=ANSWERED)


def repeat_reliability(
    verdicts: pd.DataFrame, *, rng: Rng = None, n_resamples: int = 1000, ci_level: float = 0.95
) -> pd.DataFrame:
    """Compute the share of variance of a judge's answers that repeats reproduce.

    It is :math:`(B - W) / (B + (k - 1) W)`, with mean squares between and within questions and
    :math:`k` repeats. Source: Shrout and Fleiss (1979), https://doi.org/10.1037/0033-2909.86.2.420

    Parameters
    ----------
    verdicts
        Orders not joined, with ``repeat``, the number of the answer.
    rng, n_resamples, ci_level
        As in :func:`~heart_utils.ratings.resampling.bootstrap_ci`.

    Returns
    -------
    pandas.DataFrame
        One row a rater and dimension: ``reliability``, ``ci_low``, ``ci_high``, ``ci_level``,
        ``n_questions`` asked twice or more (a pair in one order), mean ``repeats``, ``n_failed``
        answers, ``n_clusters``, ``provisional``.

    Raises
    ------
    BiasError
        If nothing was asked again.

    Examples
    --------
    >>> votes = pd.DataFrame({"dialogue_id": list("ddeeff"), "repeat": [0, 1] * 3, "order": "ab"})
    >>> votes = votes.assign(pair_id=votes["dialogue_id"], verdict=list("aabbab"), rater="judge")
    >>> found = repeat_reliability(votes.assign(dimension="overall", state="valid"))
    >>> found["reliability"].round(2).tolist()
    [0.5]
    """
    need_columns(
        verdicts,
        ["rater", "dimension", "dialogue_id", "pair_id", "verdict", "state", "repeat"],
        BiasError,
    )
    key = [column for column in SAME if column in verdicts and column != "repeat"]
    rows = []
    for (rater, dimension), theirs in verdicts.groupby(["rater", "dimension"], sort=True):
        valid = theirs[theirs["state"] == "valid"]
        answers = valid.assign(won=np.asarray(won_by_a(valid), dtype=float))
        questions = (
            answers.groupby([*key, "dialogue_id"], dropna=False)["won"]
            .agg(["size", "mean", "var"])
            .reset_index()
        )
        questions = questions[questions["size"] > 1]
        if questions.empty:
            continue
        size, mean = questions["size"], questions["mean"]
        sums = pd.DataFrame(
            {
                "questions": 1.0,
                "answers": size,
                "squared_sizes": size**2,
                "total": size * mean,
                "between": size * mean**2,
                "within": (size - 1) * questions["var"],
                "dialogue_id": questions["dialogue_id"],
            }
        )
        n_clusters = int(sums["dialogue_id"].nunique())
        row = {
            "rater": rater,
            "dimension": dimension,
            "ci_level": ci_level,
            "n_questions": len(questions),
            "repeats": float(size.mean()),
            "n_failed": len(theirs) - len(valid),
            "n_clusters": n_clusters,
        }
        if n_clusters < 2:
            [value] = _intraclass(sums.drop(columns="dialogue_id").sum().to_frame().T)
            rows.append(row | {"reliability": float(value), "provisional": True})
            continue
        interval = bootstrap_ci(
            sums,
            _intraclass,
            cluster="dialogue_id",
            rng=rng,
            n_resamples=n_resamples,
            ci_level=ci_level,
            least=-1.0,
            most=1.0,
        )
        row["reliability"], row["provisional"] = interval.estimate, interval.provisional
        rows.append(row | {"ci_low": interval.ci_low, "ci_high": interval.ci_high})
    if not rows:
        raise BiasError(
            "No pair was asked again in the same order: a repeat has the same pair_id and order,"
            " and another repeat."
        )
    return pd.DataFrame(rows).reindex(columns=RELIABILITY)


def _intraclass(sums: pd.DataFrame) -> Array:
    n_questions, n_answers = sums["questions"], sums["answers"]
    between = (sums["between"] - sums["total"] ** 2 / n_answers) / (n_questions - 1.0)
    within = sums["within"] / (n_answers - n_questions)
    repeats = (n_answers - sums["squared_sizes"] / n_answers) / (n_questions - 1.0)
    return ratio((between - within).to_numpy(), (between + (repeats - 1.0) * within).to_numpy())
