"""What a judge pays for beside the reply's worth: the side it stood on, its length, its form, a wide margin."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from statsmodels.stats.multitest import multipletests

from heart_utils.ratings.regression import author_columns, fit_logistic
from heart_utils.ratings.resampling import ENOUGH_CLUSTERS, Interval, bootstrap_ci, share_ci
from heart_utils.ratings.verdicts import SHARES, combine_orders, need_cluster, won_by_a

__all__ = ["BiasError", "feature_bias", "margin_profile", "position_bias", "text_features"]

Array = NDArray[np.float64]

LARGE_MARGIN = 4
FIRST_PERSON = r"\b(?i:i|i['’](?:m|d|ve|ll)|me|my|mine|myself)\b"
LIST_LINE = r"(?m)^\s*(?:[-*•‣]|\d{1,2}[.)])\s+\S"


class BiasError(ValueError):
    """These verdicts cannot show the bias that was asked about."""


def position_bias(
    verdicts: pd.DataFrame,
    *,
    rng: np.random.Generator,
    n_resamples: int = 1000,
    ci_level: float = 0.95,
) -> pd.DataFrame:
    """Measure how far each rater leans towards the reply shown first, and how often it contradicts itself.

    Parameters
    ----------
    verdicts : pandas.DataFrame
        The table of verdicts, orders not yet joined; rows joined elsewhere may be there with the state ``inconsistent``.
    rng, n_resamples, ci_level
        As in :func:`~heart_utils.ratings.resampling.bootstrap_ci`.

    Returns
    -------
    pandas.DataFrame
        One row a rater, dimension and measure: ``first_share`` (of valid verdicts in a known order, won by
        the reply shown first, a tie being half), ``inconsistent_share`` (of pairs seen in both orders, that changed their
        winner), ``tie_share`` (of valid verdicts), ``failed_share`` (of answers), each with ``value``, ``ci_low``,
        ``ci_high``, ``n``, ``n_clusters``, ``provisional`` and ``why``: empty, or why there is no value or interval.

    Examples
    --------
    >>> rows = [("d1", "p", "ab", "a"), ("d1", "p", "ba", "b"), ("d2", "q", "ab", "a"), ("d2", "q", "ba", "a")]
    >>> verdicts = pd.DataFrame(rows, columns=["dialogue_id", "pair_id", "order", "verdict"])
    >>> verdicts = verdicts.assign(rater="judge", dimension="overall", state="valid", repeat=0)
    >>> found = position_bias(verdicts, rng=np.random.default_rng(1)).set_index("measure")["value"]
    >>> float(found["first_share"]), float(found["inconsistent_share"])
    (0.75, 0.5)
    """
    need_cluster(verdicts, "dialogue_id")
    how: dict[str, Any] = {"rng": rng, "n_resamples": n_resamples, "ci_level": ci_level}
    rows = []
    for (rater, dimension), theirs in verdicts.groupby(["rater", "dimension"], sort=True):
        valid = theirs[theirs["state"] == "valid"]
        joined = combine_orders(theirs)
        # Two valid answers, or one row that was joined before it came: GPT-4's in MT-Bench have no order.
        judged = joined[joined["state"].isin(["valid", "inconsistent"]) & joined["order"].isna()]
        shown = valid[valid["order"].notna()]
        first = shown["verdict"].map(SHARES).astype(float).to_numpy()
        first = np.where(shown["order"] == "ab", first, 1.0 - first)
        failed = ~theirs["state"].isin(["valid", "inconsistent"])
        measures = {
            "first_share": (first, shown["dialogue_id"], "no valid verdict names the order shown"),
            "inconsistent_share": (
                judged["state"].eq("inconsistent"),
                judged["dialogue_id"],
                "no pair was seen in both orders",
            ),
            "tie_share": (valid["verdict"].eq("tie"), valid["dialogue_id"], "no verdict is valid"),
            "failed_share": (failed, theirs["dialogue_id"], "no answer"),
        }
        for measure, (values, clusters, without) in measures.items():
            rows.append({"rater": rater, "dimension": dimension, "measure": measure} | _share(values, clusters, without, **how))
    return pd.DataFrame(rows)


def margin_profile(
    verdicts: pd.DataFrame,
    *,
    rng: np.random.Generator,
    n_resamples: int = 1000,
    ci_level: float = 0.95,
) -> pd.DataFrame:
    """Hold a rater's margins where its two orders agree against those where they contradict each other.

    Parameters
    ----------
    verdicts : pandas.DataFrame
        The table of verdicts, orders not yet joined.
    rng, n_resamples, ci_level
        As in :func:`position_bias`.

    Returns
    -------
    pandas.DataFrame
        One row a rater and dimension: ``n_margins``, ``mean`` margin, ``large_share`` (4 or 5), ``agreed`` and ``contradicted``
        (mean margins of pairs whose two orders name one winner, or two), ``difference`` of these with ``ci_low`` and
        ``ci_high``, ``why``. Margins inflate where they are wide and the difference is small. Raters without margins
        have a row that says so.

    Examples
    --------
    >>> rows = [("d1", "p", "ab", "a", 5), ("d1", "p", "ba", "b", 5), ("d2", "q", "ab", "a", 2), ("d2", "q", "ba", "a", 2)]
    >>> verdicts = pd.DataFrame(rows, columns=["dialogue_id", "pair_id", "order", "verdict", "margin"])
    >>> verdicts = verdicts.assign(rater="judge", dimension="overall", state="valid", repeat=0, protocol="heart")
    >>> found = margin_profile(verdicts, rng=np.random.default_rng(1))
    >>> found[["mean", "large_share", "agreed", "contradicted"]].values.tolist()
    [[3.5, 0.5, 2.0, 5.0]]
    """
    rows = []
    for (rater, dimension), theirs in verdicts.groupby(["rater", "dimension"], sort=True):
        given = theirs[(theirs["state"] == "valid") & theirs["margin"].notna()]
        row = {"rater": rater, "dimension": dimension, "n_margins": len(given), "mean": given["margin"].mean(),
               "large_share": (given["margin"] >= LARGE_MARGIN).mean() if len(given) else np.nan}  # fmt: skip
        both = given.groupby(["pair_id", "repeat", "protocol", "dialogue_id"], dropna=False).agg(
            margin=("margin", "mean"), n=("order", "nunique"), n_said=("verdict", "nunique")
        )
        both = both[both["n"] == 2].reset_index()
        agreed = (both["n_said"] == 1).to_numpy()
        rows.append(row | _margin_gap(both, agreed, rng, n_resamples, ci_level, len(given)))
    return pd.DataFrame(rows)


def text_features(replies: pd.DataFrame) -> pd.DataFrame:
    r"""Say of each reply in which form it comes: how often twice as long, and what is in it or not.

    Parameters
    ----------
    replies : pandas.DataFrame
        The table of replies; those without text are left out.

    Returns
    -------
    pandas.DataFrame
        Indexed by ``reply_id``: ``log2_words`` (one more is twice as long), ``list_marks`` (1 if a line begins with a bullet
        or a number), ``first_person`` (1 if the writer says I), ``question`` (1 if it asks something).

    Examples
    --------
    >>> replies = pd.DataFrame({"reply_id": ["r", "s"], "text": ["I hear you.", "1. Sleep\n2. Eat"]})
    >>> text_features(replies)[["list_marks", "first_person"]].values.tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """
    text = replies.dropna(subset=["text"]).set_index("reply_id")["text"]
    found = {
        "log2_words": np.log(text.str.count(r"\S+").clip(lower=1)) / np.log(2.0),
        "list_marks": text.str.contains(LIST_LINE),
        "first_person": text.str.contains(FIRST_PERSON),
        "question": text.str.contains("?", regex=False),
    }
    return pd.DataFrame(found, index=text.index).astype(float)


def feature_gaps(comparisons: pd.DataFrame, features: pd.DataFrame) -> pd.DataFrame:
    """Say by how much reply a exceeds reply b in each feature (`features` by reply_id), indexed by ``pair_id``."""
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
    r"""Measure what goes with winning: the log-odds that one unit more of a feature adds, all features at once.

    The model is :math:`P(a) = \operatorname{logit}^{-1}\left(\sum_k \beta_k (x_{ak} - x_{bk}) + \theta_i - \theta_j\right)`,
    with strengths :math:`\theta` of who wrote, so that a feature is compared within authors. It is an association:
    longer replies may be better ones. The same figure for people on the same pairs tells the two apart.

    Parameters
    ----------
    verdicts : pandas.DataFrame
        The table of verdicts; orders are joined here.
    comparisons : pandas.DataFrame
        The table of comparisons, which names the two replies of each pair.
    features : pandas.DataFrame
        One row a ``reply_id`` and one column a feature, as :func:`text_features` gives them.
    within_authors : bool
        Whether strengths of the responders are in the model.
    ci_level : float
        Such as 0.95.

    Returns
    -------
    pandas.DataFrame
        One row a rater, dimension and feature: ``log_odds``, ``se``, ``ci_low``, ``ci_high``, ``p``, ``p_holm`` (over the
        features of one rater and dimension), ``n_pairs``, ``n_clusters``, ``provisional``, ``why``.

    Examples
    --------
    >>> from heart_utils.simulate.study import simulate_study
    >>> study = simulate_study(rng=np.random.default_rng(1), n_responders=3, n_dialogues=40, pairs="all")
    >>> features = pd.DataFrame({"n_words": np.arange(len(study.replies)) % 7}, index=study.replies["reply_id"])
    >>> judges = study.verdicts[study.verdicts["rater_kind"] == "model"].assign(rater="judge")
    >>> found = feature_bias(judges, study.comparisons, features)
    >>> found[["rater", "feature", "n_clusters"]].values.tolist()
    [['judge', 'n_words', 40]]
    """
    by_pair = feature_gaps(comparisons, features)
    joined = combine_orders(verdicts)
    joined = joined[joined["state"].isin(["valid", "inconsistent"]) & joined["pair_id"].isin(by_pair.index)]
    won, gaps = won_by_a(joined), by_pair.loc[joined["pair_id"]].set_axis(joined.index)
    rows = []
    for (rater, dimension), theirs in joined.groupby(["rater", "dimension"], sort=True):
        gap = gaps.loc[theirs.index].dropna()
        theirs = theirs.loc[gap.index]
        authors = author_columns(theirs) if within_authors else np.zeros((len(theirs), 0))
        fitted = _fit(np.asarray(won.loc[gap.index], dtype=np.float64), gap, authors, theirs["dialogue_id"], ci_level)
        rows.append(fitted.assign(rater=str(rater), dimension=str(dimension), n_pairs=len(theirs)))
    if not rows:
        raise BiasError("No valid verdict is on a pair whose replies have features; give the comparisons of these verdicts.")
    table = pd.concat(rows, ignore_index=True)
    return table[["rater", "dimension", *[column for column in table.columns if column not in ("rater", "dimension")]]]


def _share(
    values: object, clusters: pd.Series, without: str, *, rng: np.random.Generator, n_resamples: int, ci_level: float
) -> dict[str, object]:
    """Put an interval on a mean of zeros, halves and ones."""
    said = np.asarray(values, dtype=float)
    row: dict[str, object] = {"n": len(said), "n_clusters": clusters.nunique(), "why": ""}
    row["provisional"] = clusters.nunique() < ENOUGH_CLUSTERS
    if not len(said):
        return {"value": np.nan, "ci_low": np.nan, "ci_high": np.nan, **row, "why": without}
    if clusters.nunique() < 2:
        return {"value": said.mean(), "ci_low": np.nan, "ci_high": np.nan, **row, "why": "one dialogue only, so no interval"}
    found = share_ci(said, 1, cluster=clusters, rng=rng, n_resamples=n_resamples, ci_level=ci_level)
    return {"value": found.estimate, "ci_low": found.ci_low, "ci_high": found.ci_high, **row, "why": ""}


def _margin_gap(
    both: pd.DataFrame,
    agreed: NDArray[np.bool_],
    rng: np.random.Generator,
    n_resamples: int,
    ci_level: float,
    n_margins: int,
) -> dict[str, object]:
    sides = {"agreed": both.loc[agreed, "margin"].mean(), "contradicted": both.loc[~agreed, "margin"].mean()}
    row = {**sides, "difference": sides["agreed"] - sides["contradicted"], "ci_low": np.nan, "ci_high": np.nan}
    if not n_margins:
        return row | {"why": "this rater gives no margins"}
    if both["dialogue_id"].nunique() < 2 or not agreed.any() or agreed.all():
        return row | {"why": "too few pairs with margins in both orders, or all of them agree or none"}
    sums = pd.DataFrame({"yes": agreed, "no": ~agreed, "yes_sum": both["margin"] * agreed, "no_sum": both["margin"] * ~agreed})
    found: Interval = bootstrap_ci(
        sums.astype(float),
        lambda sums: sums["yes_sum"] / sums["yes"].where(sums["yes"] > 0)
        - sums["no_sum"] / sums["no"].where(sums["no"] > 0),
        cluster=both["dialogue_id"], rng=rng, n_resamples=n_resamples, ci_level=ci_level,
    )  # fmt: skip
    return row | {"ci_low": found.ci_low, "ci_high": found.ci_high, "why": ""}


def _fit(won: Array, gap: pd.DataFrame, authors: Array, clusters: pd.Series, ci_level: float) -> pd.DataFrame:
    """Fit all features at once, and say why where one has no estimate."""
    x = np.column_stack([gap.to_numpy(), authors])
    varies = _identified(x, gap.shape[1])
    names, n_clusters = list(gap.columns), clusters.nunique()
    table = pd.DataFrame({"feature": names, "log_odds": np.nan, "se": np.nan, "ci_low": np.nan, "ci_high": np.nan, "p": np.nan})
    table["why"] = np.where(varies[: len(names)], "", "does not vary apart from who wrote")
    table = table.assign(n_clusters=n_clusters, provisional=n_clusters < ENOUGH_CLUSTERS, p_holm=np.nan)
    if n_clusters < 2 or not varies[: len(names)].any():
        return table.assign(why=table["why"].where(table["why"] != "", "one dialogue only"))
    fitted = fit_logistic(x[:, varies], won, clusters, ci_level, largest=20.0)
    if fitted is None:
        return table.assign(why=table["why"].where(table["why"] != "", "the verdicts follow it without exception"))
    there = np.flatnonzero(varies[: len(names)])
    fitted = fitted.iloc[: len(there)]
    if not fitted["se"].all():
        return table.assign(why=table["why"].where(table["why"] != "", "every pair is a tie or undecided"))
    table.loc[there, list(fitted.columns)] = fitted.to_numpy()
    table.loc[there, "p_holm"] = multipletests(table.loc[there, "p"], method="holm")[1]
    return table


def _identified(x: Array, n_features: int) -> NDArray[np.bool_]:
    """Tell which columns say something that authors, and features before them, do not."""
    order = [*range(n_features, x.shape[1]), *range(n_features)]
    kept: list[int] = []
    varies = np.zeros(x.shape[1], bool)
    for column in order:
        trial = x[:, [*kept, column]]
        if len(trial) and np.linalg.matrix_rank(trial) == len(kept) + 1:
            kept.append(column)
            varies[column] = True
    return varies
