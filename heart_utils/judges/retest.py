"""Whether a judge says the same again: asked twice, in other words, about several things at once, or later."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from heart_utils.ratings.resampling import ENOUGH_CLUSTERS, bootstrap_ci, share_ci
from heart_utils.ratings.verdicts import SHARES, combine_orders

__all__ = ["compare_answers", "dimension_overlap", "score_drift"]

SAME = ("pair_id", "order", "rater", "dimension", "repeat", "protocol", "answer_format", "group")


def compare_answers(
    verdicts: pd.DataFrame,
    *,
    by: str,
    rng: np.random.Generator | None = None,
    n_resamples: int = 1000,
    ci_level: float = 0.95,
) -> pd.DataFrame:
    """Compare a rater's answers to what should be one question, asked under several conditions.

    Parameters
    ----------
    verdicts : pandas.DataFrame
        The table of verdicts, orders not joined.
    by : str
        The condition: ``"repeat"`` (asked again), ``"protocol"`` (in other words), ``"answer_format"``, or a column of
        your own, such as the month it was asked in (drift).
    rng, n_resamples, ci_level
        As in :func:`~heart_utils.ratings.resampling.bootstrap_ci`.

    Returns
    -------
    pandas.DataFrame
        One row a rater, dimension and two conditions ``one`` and ``other``: ``same_share`` of pairs in one order that got
        the same verdict, with ``ci_low`` and ``ci_high``, ``first_shift`` (by how much more often the reply shown first
        won under `other`), ``n``, ``n_failed`` (questions with a failed answer under either), ``provisional``.
        No rows where nobody was asked under two conditions.

    Examples
    --------
    >>> rows = [("d1", "p", 0, "a"), ("d1", "p", 1, "a"), ("d2", "q", 0, "a"), ("d2", "q", 1, "tie")]
    >>> verdicts = pd.DataFrame(rows, columns=["dialogue_id", "pair_id", "repeat", "verdict"])
    >>> verdicts = verdicts.assign(rater="judge", dimension="overall", state="valid", order="ab")
    >>> float(compare_answers(verdicts, by="repeat", rng=np.random.default_rng(1))["same_share"].item())
    0.5
    """
    columns = ["rater", "dimension", "one", "other", "same_share", "ci_low", "ci_high", "first_shift", "n", "n_failed",
               "n_clusters", "provisional"]  # fmt: skip
    key = [column for column in SAME if column in verdicts and column != by and not (by == "protocol" and column == "repeat")]
    rows = []
    for (rater, dimension), theirs in verdicts.groupby(["rater", "dimension"], sort=True):
        conditions = sorted(theirs[by].dropna().unique())
        for one, other in combinations(conditions, 2):
            before, after = theirs[theirs[by] == one], theirs[theirs[by] == other]
            met = before.merge(after, on=key, suffixes=("", "_after"))
            valid = met[(met["state"] == "valid") & (met["state_after"] == "valid")]
            if valid["dialogue_id"].nunique() < 2:
                continue
            first = [np.where(valid["order"] == "ba", 1.0 - share, share) for share in
                     (valid[name].map(SHARES).astype(float) for name in ("verdict", "verdict_after"))]  # fmt: skip
            same = valid["verdict"].eq(valid["verdict_after"])
            found = share_ci(same, 1, cluster=valid["dialogue_id"], rng=rng, n_resamples=n_resamples, ci_level=ci_level)
            rows.append((rater, dimension, one, other, found.estimate, found.ci_low, found.ci_high,
                         float((first[1] - first[0]).mean()), len(valid), len(met) - len(valid), found.n_clusters,
                         found.provisional))  # fmt: skip
    return pd.DataFrame(rows, columns=columns)


def dimension_overlap(
    verdicts: pd.DataFrame,
    *,
    rng: np.random.Generator | None = None,
    n_resamples: int = 1000,
    ci_level: float = 0.95,
) -> pd.DataFrame:
    """Measure how often two dimensions get one verdict, for each rater, protocol and answer format.

    A judge that is asked about all dimensions in one call may let one colour the others. The same judge
    asked one dimension a call (``heart-single``) on the same pairs shows how much of the overlap is that.

    Parameters
    ----------
    verdicts : pandas.DataFrame
        The table of verdicts; orders are joined here. A tie is a verdict of its own, and so is a contradiction.
    rng, n_resamples, ci_level
        As in :func:`~heart_utils.ratings.resampling.bootstrap_ci`.

    Returns
    -------
    pandas.DataFrame
        One row a rater, protocol and answer format: ``same_share`` over all two dimensions of one pair, ``ci_low``,
        ``ci_high``, ``n_pairs``, ``n_dimensions``, ``provisional``. No rows where only one dimension was asked about.

    Examples
    --------
    >>> rows = [("d1", "p", "warmth", "a"), ("d1", "p", "overall", "a"),
    ...     ("d2", "q", "warmth", "a"), ("d2", "q", "overall", "b")]
    >>> verdicts = pd.DataFrame(rows, columns=["dialogue_id", "pair_id", "dimension", "verdict"])
    >>> verdicts = verdicts.assign(rater="judge", protocol="heart", state="valid", order="ab", repeat=0)
    >>> dimension_overlap(verdicts, rng=np.random.default_rng(1))[["same_share", "n_pairs"]].values.tolist()
    [[0.5, 2.0]]
    """
    joined = combine_orders(verdicts)
    joined = joined[joined["state"].isin(["valid", "inconsistent"])]
    rows = []
    if "answer_format" not in joined:
        joined = joined.assign(answer_format=None)
    for (rater, protocol, form), theirs in joined.groupby(["rater", "protocol", "answer_format"], sort=True, dropna=False):
        said = theirs["verdict"].where(theirs["state"] == "valid", "inconsistent")
        wide = theirs.assign(said=said).pivot_table(
            index=["pair_id", "repeat", "dialogue_id"], columns="dimension", values="said", aggfunc="first"
        )
        two = list(combinations(wide.columns, 2))
        if not two:
            continue
        both = [wide[one].notna() & wide[other].notna() for one, other in two]
        same = [wide[one].eq(wide[other]) & there for (one, other), there in zip(two, both, strict=True)]
        clusters = wide.index.get_level_values("dialogue_id").to_series().reset_index(drop=True)
        if clusters.nunique() < 2:
            continue
        counts = np.sum(same, axis=0), np.sum(both, axis=0)
        found = share_ci(*counts, cluster=clusters, rng=rng, n_resamples=n_resamples, ci_level=ci_level)
        rows.append(
            (rater, protocol, form, found.estimate, found.ci_low, found.ci_high, len(wide), wide.shape[1], found.provisional)
        )
    columns = ["rater", "protocol", "answer_format", "same_share", "ci_low", "ci_high", "n_pairs", "n_dimensions"]
    return pd.DataFrame(rows, columns=[*columns, "provisional"])


def score_drift(
    scores: pd.DataFrame,
    *,
    rng: np.random.Generator | None = None,
    n_parts: int = 10,
    n_resamples: int = 1000,
    ci_level: float = 0.95,
) -> pd.DataFrame:
    """Follow each rater through the conversations in their order, against what the model judges say of the same replies.

    Parameters
    ----------
    scores : pandas.DataFrame
        The table of scores on one dimension; conversations count as done in the order of ``history_id``.
    rng : numpy.random.Generator, optional
        For the resamples; by default one with a fixed seed.
    n_parts : int
        Into how many parts of about one size the conversations are cut.
    n_resamples, ci_level
        As in :func:`~heart_utils.ratings.resampling.bootstrap_ci`.

    Returns
    -------
    pandas.DataFrame
        One row a rater and ``part`` from 1: ``gap`` (mean score minus the mean of the model judges other than the rater on
        the same replies), ``ci_low``, ``ci_high``, ``n``. A flat line is no drift against the others; a jump
        may be another rater under the same name.

    Examples
    --------
    >>> rows = [(f"h{i:02d}", who, 3.0 + (who == "ann") * i / 40) for i in range(40) for who in ("ann", "judge")]
    >>> scores = pd.DataFrame(rows, columns=["history_id", "rater", "score"])
    >>> scores = scores.assign(responder="m", dimension="empathy", state="valid")
    >>> scores = scores.assign(rater_kind=scores["rater"].map({"ann": "human", "judge": "model"}),
    ...     reply_id=scores["history_id"], dialogue_id=scores["history_id"])
    >>> drift = score_drift(scores, n_parts=2, rng=np.random.default_rng(1), n_resamples=50)
    >>> drift[drift["rater"] == "ann"]["gap"].round(2).tolist()
    [0.24, 0.74]
    """
    valid = scores[scores["state"] == "valid"]
    judges = sorted(valid.loc[valid["rater_kind"] == "model", "rater"].unique())
    wide = valid.pivot_table(index=["history_id", "reply_id", "dialogue_id"], columns="rater", values="score").reset_index()
    place = pd.factorize(wide["history_id"], sort=True)[0]
    part = 1 + place * n_parts // (place.max() + 1)
    rows = []
    for rater in sorted(valid["rater"].unique()):
        others = [judge for judge in judges if judge != rater]
        if not others:
            continue
        gap = wide[rater] - wide[others].mean(axis=1, skipna=False)
        for number in range(1, n_parts + 1):
            there = (part == number) & gap.notna().to_numpy()
            row = {"rater": rater, "part": number, "gap": np.nan, "ci_low": np.nan, "ci_high": np.nan, "n": int(there.sum())}
            if len(set(wide.loc[there, "dialogue_id"])) > 1:
                sums = pd.DataFrame({"gap": gap, "n": 1.0, "dialogue_id": wide["dialogue_id"]})[there]
                how: dict[str, Any] = {"cluster": "dialogue_id", "rng": rng, "n_resamples": n_resamples, "ci_level": ci_level}
                found = bootstrap_ci(sums, lambda sums: sums["gap"] / sums["n"], **how)
                row |= {"gap": found.estimate, "ci_low": found.ci_low, "ci_high": found.ci_high}
            rows.append(row)
    return pd.DataFrame(rows).assign(provisional=wide["dialogue_id"].nunique() / n_parts < ENOUGH_CLUSTERS)
