"""Whether a judge says the same again: asked twice, or in other words."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pandas as pd

from heart_utils.ratings.resampling import Rng, share_ci
from heart_utils.ratings.verdicts import SHARES

__all__ = ["compare_answers"]

SAME = ("pair_id", "order", "rater", "dimension", "repeat", "protocol", "answer_format", "group")


def compare_answers(
    verdicts: pd.DataFrame, *, by: str, rng: Rng = None, n_resamples: int = 1000, ci_level: float = 0.95
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
