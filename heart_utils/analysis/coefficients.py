"""What every coefficient of agreement shares: reading one dimension, credit for near misses, an interval."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from heart_utils.analysis.ends import draw_clusters, interval_of
from heart_utils.analysis.resampling import ENOUGH_CLUSTERS
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
    """Refuse answers on several dimensions."""
    if "dimension" in votes.units:
        found = votes.units["dimension"].unique()
        if len(found) > 1:
            names = ", ".join(map(str, found[:6]))
            raise AgreementError(f"The table holds several dimensions ({names}); a coefficient is of one. Choose one.")


def prepare(table: pd.DataFrame, cluster: str | None, categories: Sequence[float] | None) -> tuple[Votes, Array, Codes]:
    """Read the answers on one dimension; give the categories' values and each unit's cluster."""
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
    """Give the credit for each two categories, from 0 to 1."""
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
    """Refuse answers that are all the same."""
    if value.min() == value.max():
        name = votes.categories[value.flat[0]]
        raise AgreementError(
            f"All answers are {name if votes.kind == 'verdict' else f'{name:g}'}: agreement is 1, and with one category "
            f"only there is no chance to correct for. Report the agreement and say so."
        )


def count_answers(votes: Votes) -> Array:
    """Count answers by unit and category."""
    size = len(votes.categories)
    flat = np.bincount(votes.unit * size + votes.value, minlength=len(votes.units) * size)
    return flat.reshape(len(votes.units), size).astype(float)


def turned(tables: Array, votes: Votes) -> Array:
    """Average tables of verdicts with themselves turned round, for a and b are names without meaning."""
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
    """Turn sums over clusters into a coefficient, and resample the clusters that hold something of it."""
    sums = sums[sums.any(axis=tuple(range(1, sums.ndim)))]
    observed, chance = (float(part) for part in disagreements(sums.sum(axis=0)))
    n_clusters = len(sums)
    value = 1.0 - observed / chance if chance > 1e-12 else float("nan")
    seen, expected = disagreements(draw_clusters(n_clusters, n_resamples, rng) @ sums)
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
