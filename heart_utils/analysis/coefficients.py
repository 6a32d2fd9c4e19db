"""What every coefficient of agreement shares: reading one dimension, credit for near misses, an interval."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from heart_utils.analysis.resampling import ENOUGH_CLUSTERS, draw_weights, interval_of
from heart_utils.analysis.votes import AgreementError, Array, Codes, Votes, read_votes

__all__ = [
    "Coefficient",
    "count_answers",
    "credit_table",
    "estimate_coefficient",
    "one_dimension",
    "prepare",
    "refuse_one_category",
    "turned",
]


@dataclass(frozen=True)
class Coefficient:
    """One number for how far raters agree, with its interval.

    Attributes
    ----------
    name : str
        Such as ``"Gwet's AC1"``.
    value, ci_low, ci_high, ci_level : float
        The ends are ``nan`` where no interval can be had.
    disagreement, by_chance : float
        ``value`` is one minus the first over the second. ``nan`` for intraclass correlations.
    n_units, n_raters, n_answers, n_clusters : int
        What entered.
    n_undefined : int
        Resamples in which it has no value (one category only), left out of the interval.
    provisional : bool
        Fewer than 30 clusters.
    left_out : pandas.Series
        State -> answers that do not count.
    """

    name: str
    value: float
    ci_low: float
    ci_high: float
    ci_level: float
    disagreement: float
    by_chance: float
    n_units: int
    n_raters: int
    n_answers: int
    n_clusters: int
    n_undefined: int
    provisional: bool
    left_out: pd.Series


def one_dimension(votes: Votes) -> None:
    """Refuse answers on several dimensions.

    Parameters
    ----------
    votes : Votes
        The answers.

    Examples
    --------
    >>> from heart_utils.analysis.votes import read_votes
    >>> table = pd.DataFrame({"pair_id": "p", "rater": ["k", "l"], "verdict": "a", "dimension": ["overall", "warmth"]})
    >>> one_dimension(read_votes(table, cluster=None))
    Traceback (most recent call last):
        ...
    AgreementError: The table holds several dimensions (overall, warmth); a coefficient is of one. Choose one.
    """
    if "dimension" in votes.units:
        found = votes.units["dimension"].unique()
        if len(found) > 1:
            names = ", ".join(map(str, found[:6]))
            raise AgreementError(f"The table holds several dimensions ({names}); a coefficient is of one. Choose one.")


def prepare(table: pd.DataFrame, cluster: str | None, categories: Sequence[float] | None) -> tuple[Votes, Array, Codes]:
    """Read the answers on one dimension; give the categories' values and each unit's cluster.

    Parameters
    ----------
    table : pandas.DataFrame
        Verdicts or scores.
    cluster : str or None
        Column of what is resampled together; each unit by itself if None.
    categories : sequence of float, optional
        All that a score might have been; by default those that occur.

    Returns
    -------
    votes : Votes
        The answers; verdicts without any tie have two categories.
    scale : numpy.ndarray
        The value of each category.
    cluster_of_unit : numpy.ndarray
        Code of each unit's cluster.

    Examples
    --------
    >>> table = pd.DataFrame({"reply_id": list("rrss"), "rater": list("klkl"), "score": [1, 5, 2, 2]})
    >>> votes, scale, cluster = prepare(table, None, range(1, 6))
    >>> scale[votes.value], cluster
    (array([1., 5., 2., 2.]), array([0, 1]))
    """
    votes = read_votes(table, cluster=cluster)
    one_dimension(votes)
    if len(votes.raters) < 2:
        raise AgreementError(f"Agreement needs two raters or more; there is only {votes.raters[0]}.")
    if np.bincount(votes.unit).max() < 2:
        raise AgreementError(f"The {len(votes.raters)} raters share no unit, so they cannot be compared.")
    refuse_one_category(votes.value, votes)
    cluster_of_unit = np.zeros(len(votes.units), np.intp)
    cluster_of_unit[votes.unit] = votes.cluster
    if votes.kind == "verdict":
        if categories is not None:
            raise AgreementError("categories are for scores; verdicts are a, tie or b.")
        used = np.isin(np.arange(3), votes.value)
        # Without ties there are two categories: AC1 would otherwise guess among three.
        return (votes if used[1] else _without_ties(votes)), np.array([0.0, 1.0, 2.0])[[True, used[1], True]], cluster_of_unit
    if categories is None:
        return votes, votes.categories.astype(float), cluster_of_unit
    scale = np.unique(np.asarray(categories, float))
    outside = np.setdiff1d(votes.categories.astype(float), scale)
    if len(outside):
        raise AgreementError(
            f"Scores {', '.join(f'{value:g}' for value in outside[:5])} are not among the categories {list(categories)}."
        )
    value = np.searchsorted(scale, votes.categories.astype(float))[votes.value]
    return _recoded(votes, value, scale), scale, cluster_of_unit


def _without_ties(votes: Votes) -> Votes:
    return _recoded(votes, votes.value // 2, votes.categories[[0, 2]])


def _recoded(votes: Votes, value: Codes, categories: NDArray[np.object_] | Array) -> Votes:
    return replace(votes, value=value, categories=categories)


def credit_table(weights: str | ArrayLike | None, votes: Votes, scale: Array) -> Array:
    """Give the credit for each two categories, from 0 to 1.

    Parameters
    ----------
    weights : str, array or None
        ``"linear"``, ``"quadratic"``, a square table, or None: full credit to equal answers alone.
    votes : Votes
        The answers. For verdicts a table is averaged with itself turned round.
    scale : numpy.ndarray
        The value of each category.

    Returns
    -------
    numpy.ndarray
        Shape (categories, categories), symmetric, with ones on its diagonal.

    Examples
    --------
    >>> from heart_utils.analysis.votes import read_votes
    >>> table = pd.DataFrame({"reply_id": list("rrr"), "rater": list("klm"), "score": [1, 2, 5]})
    >>> credit_table("linear", read_votes(table, cluster=None), np.array([1.0, 2.0, 5.0]))
    array([[1.  , 0.75, 0.  ],
           [0.75, 1.  , 0.25],
           [0.  , 0.25, 1.  ]])
    """
    size = len(scale)
    if weights is None:
        return np.eye(size)
    if isinstance(weights, str):
        powers = {"linear": 1.0, "quadratic": 2.0}
        if weights not in powers:
            raise AgreementError(f"weights must be 'linear', 'quadratic' or a square table; got {weights!r}.")
        return np.asarray(1.0 - (np.abs(scale[:, None] - scale[None, :]) / (scale[-1] - scale[0])) ** powers[weights])
    credit = np.asarray(weights, float)
    names = ", ".join(f"{name:g}" if votes.kind == "score" else str(name) for name in votes.categories)
    if credit.shape != (size, size):
        raise AgreementError(
            f"The weights are {' by '.join(map(str, credit.shape))}, but there are {size} categories: {names}."
        )
    faults = {
        "are not symmetric": not np.allclose(credit, credit.T),
        "give less than full credit to equal answers": not np.allclose(np.diag(credit), 1.0),
        "leave the range from 0 to 1": bool((credit < 0).any() or (credit > 1).any() or np.isnan(credit).any()),
        "give full credit to everything": bool((credit >= 1.0).all()),
    }
    if any(faults.values()):
        raise AgreementError(f"The weights {' and '.join(fault for fault, there in faults.items() if there)}.")
    return (credit + credit[::-1, ::-1]) / 2.0 if votes.kind == "verdict" else credit


def refuse_one_category(value: Codes, votes: Votes) -> None:
    """Refuse answers that are all the same.

    Parameters
    ----------
    value : numpy.ndarray
        Codes of the answers.
    votes : Votes
        What the codes stand for.

    Examples
    --------
    >>> from heart_utils.analysis.votes import read_votes
    >>> table = pd.DataFrame({"pair_id": ["p", "p"], "rater": ["k", "l"], "verdict": ["a", "a"]})
    >>> votes = read_votes(table, cluster=None)
    >>> refuse_one_category(votes.value, votes)
    Traceback (most recent call last):
        ...
    AgreementError: All answers are a: agreement is 1, and with one category only there is no chance to correct ...
    """
    if value.min() == value.max():
        name = votes.categories[value.flat[0]]
        raise AgreementError(
            f"All answers are {name if votes.kind == 'verdict' else f'{name:g}'}: agreement is 1, and with one category "
            f"only there is no chance to correct for. Report the agreement and say so."
        )


def count_answers(votes: Votes) -> Array:
    """Count answers by unit and category.

    Parameters
    ----------
    votes : Votes
        Answers on one dimension.

    Returns
    -------
    numpy.ndarray
        Shape (units, categories).

    Examples
    --------
    >>> from heart_utils.analysis.votes import read_votes
    >>> table = pd.DataFrame({"pair_id": list("ppq"), "rater": list("klk"), "verdict": ["a", "tie", "b"]})
    >>> count_answers(read_votes(table, cluster=None))  # columns a, tie, b
    array([[1., 1., 0.],
           [0., 0., 1.]])
    """
    size = len(votes.categories)
    flat = np.bincount(votes.unit * size + votes.value, minlength=len(votes.units) * size)
    return flat.reshape(len(votes.units), size).astype(float)


def turned(tables: Array, votes: Votes) -> Array:
    """Average tables of verdicts with themselves turned round, for a and b are names without meaning.

    Parameters
    ----------
    tables : numpy.ndarray
        Shape (..., categories, categories), of counts.
    votes : Votes
        Whose answers these are.

    Returns
    -------
    numpy.ndarray
        The same shape; scores stay as they are.

    Examples
    --------
    >>> from heart_utils.analysis.votes import read_votes
    >>> table = pd.DataFrame({"pair_id": ["p", "p"], "rater": ["k", "l"], "verdict": ["a", "b"]})
    >>> turned(np.array([[3.0, 1.0], [0.0, 4.0]]), read_votes(table, cluster=None))
    array([[3.5, 0.5],
           [0.5, 3.5]])
    """
    if votes.kind == "score":
        return tables
    return np.asarray((tables + tables[..., ::-1, ::-1]) / 2.0)


def estimate_coefficient(
    name: str,
    sums: Array,
    disagreements: Callable[[Array], tuple[Array, Array]],
    entered: tuple[int, int, int],
    votes: Votes,
    n_resamples: int,
    ci_level: float,
    rng: np.random.Generator | None,
) -> Coefficient:
    """Turn sums over clusters into a coefficient, and resample the clusters that hold something of it.

    Parameters
    ----------
    name : str
        Such as ``"Gwet's AC1"``.
    sums : numpy.ndarray
        What the coefficient is a function of, one row a cluster.
    disagreements : callable
        Takes sums, one row a resample; gives the disagreement seen, and that expected by chance.
    entered : tuple of int
        Units, raters and answers that entered.
    votes : Votes
        The answers, for what was left out.
    n_resamples : int
        How many; 0 for no interval.
    ci_level : float
        Such as 0.95.
    rng : numpy.random.Generator, optional
        The source of chance.

    Returns
    -------
    Coefficient
        One minus the disagreement seen over that by chance; ``nan`` where there is none by chance.

    Examples
    --------
    >>> from heart_utils.analysis.votes import read_votes
    >>> table = pd.DataFrame({"pair_id": list("ppqqss"), "rater": list("klklkl"), "verdict": list("aabbab")})
    >>> votes = read_votes(table, cluster=None)
    >>> sums = np.array([[0.0, 1.0], [0.0, 1.0], [1.0, 1.0]])  # a row a pair: disagreements, comparisons
    >>> halves = lambda sums: (sums[..., 0] / sums[..., 1], np.full(sums.shape[:-1], 0.5))
    >>> found = estimate_coefficient("S", sums, halves, (3, 2, 6), votes, 100, 0.95, np.random.default_rng(1))
    >>> round(found.value, 3), found.provisional  # 1 - (1/3) / (1/2)
    (0.333, True)
    """
    sums = sums[sums.any(axis=tuple(range(1, sums.ndim)))]
    observed, chance = (float(part) for part in disagreements(sums.sum(axis=0)))
    n_clusters = len(sums)
    value = 1.0 - observed / chance if chance > 1e-12 else float("nan")
    seen, expected = disagreements(draw_weights(n_clusters, n_resamples, rng) @ sums)
    replicates = 1.0 - seen / np.where(expected > 1e-12, expected, np.nan)
    low, high = interval_of(value, replicates, n_clusters, ci_level, most=1.0)
    n_undefined = int(np.isnan(replicates).sum())
    return Coefficient(
        name,
        value,
        low,
        high,
        ci_level,
        observed,
        chance,
        *entered,
        n_clusters,
        n_undefined,
        n_clusters < ENOUGH_CLUSTERS,
        votes.left_out,
    )
