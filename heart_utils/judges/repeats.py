"""What it is worth to ask a judge again, compared with more dialogues."""

from __future__ import annotations

import numpy as np
import pandas as pd

from heart_utils.judges.position import BiasError
from heart_utils.judges.retest import question_columns
from heart_utils.ratings.ratings import fit_ratings
from heart_utils.ratings.verdicts import combine_orders
from heart_utils.tables import need_columns

__all__ = ["price_of_repeats"]


def price_of_repeats(
    verdicts: pd.DataFrame, *, dimension: str = "overall", most: int = 8
) -> pd.DataFrame:
    r"""Compute how much repeats narrow ratings, compared with more dialogues.

    The variance of a rating from :math:`k` repeats is :math:`V + N / k`. :math:`N` is what the
    repeats at hand show, from the fits to the first and to all of them; it is 0 where intervals did
    not shrink.

    Parameters
    ----------
    verdicts : pandas.DataFrame
        One judge's, orders not joined, with the column ``repeat``; only questions that were asked
        in each repeat count.
    dimension : str
        A line of the rubric.
    most : int
        Repeats, at least 2, up to which widths are reckoned.

    Returns
    -------
    pandas.DataFrame
        One row a number of ``repeats``: ``measured`` and ``expected`` mean width of a rating's
        interval of 95 %, in points; ``change`` of the expected one from one repeat;
        ``more_dialogues``, the change if as many calls went to new dialogues.

    Raises
    ------
    BiasError
        If there are several judges, no question was asked in two repeats, or somebody always won or
        lost.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> votes = pd.DataFrame(
    ...     {
    ...         "dialogue_id": np.repeat([f"d{n}" for n in range(80)], 2),
    ...         "repeat": [0, 1] * 80,
    ...         "order": "ab",
    ...         "verdict": rng.choice(["a", "b"], 160),
    ...         "responder_a": "x",
    ...         "responder_b": "y",
    ...         "rater": "judge",
    ...         "dimension": "overall",
    ...         "state": "valid",
    ...     }
    ... ).assign(pair_id=lambda rows: rows["dialogue_id"])
    >>> price = price_of_repeats(votes, most=2)
    >>> bool(
    ...     price["change"][1] < 0
    ... )  # answers at random: asking twice helps nearly as much as two dialogues
    True
    """
    need_columns(
        verdicts,
        ["rater", "dimension", "dialogue_id", "pair_id", "verdict", "state", "repeat"],
        BiasError,
    )
    if most < 2:
        raise BiasError(f"most={most!r}: expected 2 repeats or more.")
    rows = verdicts[verdicts["dimension"] == dimension]
    names = sorted(rows["rater"].astype(str).unique())
    if len(names) != 1:
        raise BiasError(
            f"These verdicts on {dimension!r} are of {len(names)} judges; repeats are priced for"
            " one at a time."
        )
    rows = rows[rows["state"] == "valid"]
    repeats = sorted(rows["repeat"].unique())
    n_repeats = rows.groupby(question_columns(rows, without="repeat"), dropna=False)[
        "repeat"
    ].transform("nunique")
    rows = rows[n_repeats == len(repeats)]
    if len(repeats) < 2 or rows.empty:
        raise BiasError(
            f"No question on {dimension!r} was answered in two repeats; ask again, as with"
            " asked_again in a run."
        )
    width = {}
    for number in range(1, len(repeats) + 1):
        joined = combine_orders(rows[rows["repeat"].isin(repeats[:number])].reset_index(drop=True))
        table = fit_ratings(joined, dimension=dimension, interval="sandwich").table
        width[number] = float((table["rating_high"] - table["rating_low"]).mean())
    if not np.isfinite(list(width.values())).all():
        raise BiasError(
            f"Somebody always won or always lost on {dimension!r}, so a rating has no end and its"
            " width no price. Compare responders that are closer."
        )
    one, last = width[1] ** 2, width[len(repeats)] ** 2
    noise = max((one - last) / (1.0 - 1.0 / len(repeats)), 0.0)
    table = pd.DataFrame({"repeats": np.arange(1, most + 1)})
    expected = np.sqrt(np.maximum(one - noise, 0.0) + noise / table["repeats"])
    more = width[1] / np.sqrt(table["repeats"])
    return table.assign(
        measured=table["repeats"].map(width),
        expected=expected,
        change=expected - width[1],
        more_dialogues=more - width[1],
    )
