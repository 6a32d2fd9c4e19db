"""Kappa of every two raters on every dimension, from one reading of each dimension."""

from __future__ import annotations

from itertools import combinations

import pandas as pd

from heart_utils.analysis.chance import kappa_of_two
from heart_utils.analysis.coefficients import prepare
from heart_utils.analysis.votes import AgreementError, scores_only

__all__ = ["kappas_of_pairs"]

COLUMNS = ("reply_id", "dimension", "item", "rater", "score", "state")


def kappas_of_pairs(scores: pd.DataFrame, *, weights: str | None = "quadratic") -> pd.DataFrame:
    """Compute Cohen's kappa of every two raters on every dimension.

    Parameters
    ----------
    scores : pandas.DataFrame
        The scores table, with columns ``dimension`` and ``rater_kind``.
    weights : {"quadratic", "linear"} or None
        As in :func:`~heart_utils.analysis.agreement.cohen_kappa`, whose values these are.

    Returns
    -------
    pandas.DataFrame
        One row per dimension and two raters, names in the order of the alphabet: ``dimension``, ``one``, ``other``,
        ``kinds`` (such as ``"human with model"``) and ``kappa``.

    Raises
    ------
    AgreementError
        If a column is missing, or two raters share no unit or know one category only.

    Examples
    --------
    >>> said = pd.DataFrame({"reply_id": list("rstu") * 2, "rater": ["x"] * 4 + ["y"] * 4, "dimension": "warmth",
    ...     "rater_kind": "human", "score": [1, 2, 2, 3, 1, 2, 3, 3]})
    >>> kappas_of_pairs(said, weights=None).round(3).values.tolist()
    [['warmth', 'x', 'y', 'human with human', 0.636]]
    """
    missing = [column for column in ("dimension", "rater_kind") if column not in scores_only(scores)]
    if missing:
        raise AgreementError(f"scores have no column {', '.join(missing)}. They have {', '.join(map(str, scores.columns))}.")
    kind_of = scores.drop_duplicates("rater").set_index("rater")["rater_kind"]
    found = []
    for dimension, rows in scores[[column for column in COLUMNS if column in scores]].groupby("dimension"):
        votes, scale, units = prepare(rows, None, None)
        for first, second in combinations(range(len(votes.raters)), 2):
            one, other = votes.raters[first], votes.raters[second]
            kinds = " with ".join(sorted([kind_of[one], kind_of[other]]))
            made = kappa_of_two(votes, scale, units, first, second, weights, 0, 0.95, None)
            found.append((dimension, one, other, kinds, made.value))
    return pd.DataFrame(found, columns=["dimension", "one", "other", "kinds", "kappa"])
