"""Agreement beyond chance: kappa, pi, alpha, AC; each is one minus a ratio of disagreements."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from heart_utils.analysis.coefficients import (
    Coefficient,
    count_answers,
    credit_table,
    estimate_coefficient,
    prepare,
    refuse_one_category,
    turned,
)
from heart_utils.analysis.votes import AgreementError, Array, Codes, Votes

__all__ = ["cohen_kappa", "fleiss_kappa", "gwet_ac", "krippendorff_alpha"]

LEVELS = ("nominal", "ordinal", "interval", "ratio")
CHUNK_CELLS = 2_000_000


def cohen_kappa(
    table: pd.DataFrame,
    *,
    raters: tuple[str, str] | None = None,
    weights: str | ArrayLike | None = None,
    categories: Sequence[float] | None = None,
    cluster: str | None = "dialogue_id",
    n_resamples: int = 1000,
    ci_level: float = 0.95,
    rng: np.random.Generator | None = None,
) -> Coefficient:
    r"""Compute Cohen's kappa of two raters, plain or weighted.

    :math:`\kappa = 1 - \sum_{ck} (1 - w_{ck}) p_{ck} / \sum_{ck} (1 - w_{ck}) p_{c\cdot} p_{\cdot k}`
    [1]_: chance means that each rater keeps their own habits. Of verdicts the names a and b mean
    nothing, so the table is averaged with itself turned round; without ties kappa, pi and AC1 are then
    one number, :math:`2 p_o - 1`.

    Parameters
    ----------
    table : pandas.DataFrame
        Verdicts or scores on one dimension.
    raters : tuple of str, optional
        Which two, where the table has more.
    weights : {"linear", "quadratic"} or array, optional
        Credit for near misses, by the distance of the categories' values; or a square table of credits
        from 0 to 1, with ones on the diagonal. None gives no credit.
    categories : sequence of float, optional
        The scale; by default the scores that occur.
    cluster : str or None
        Column of what is resampled together; None takes each unit as its own.
    n_resamples : int
        Bootstrap resamples; 0 for the value alone.
    ci_level : float
        Of the interval.
    rng : numpy.random.Generator, optional
        The source of chance; by default one with a fixed seed.

    Returns
    -------
    Coefficient
        Units that only one of the two answered do not enter.

    Raises
    ------
    AgreementError
        If the table does not hold two raters who share a unit, only one category occurs, or the
        weights do not fit the categories.

    References
    ----------
    .. [1] Cohen (1968), https://doi.org/10.1037/h0026256

    Examples
    --------
    >>> said = pd.DataFrame({"reply_id": list("rstu") * 2, "rater": ["x"] * 4 + ["y"] * 4, "score": [1, 2, 2, 3, 1, 2, 3, 3]})
    >>> round(cohen_kappa(said, cluster=None, n_resamples=0).value, 3)  # (3/4 - 5/16) / (1 - 5/16)
    0.636
    """
    votes, scale, units = prepare(table, cluster, categories)
    first, second = _two_raters(votes, raters)
    return kappa_of_two(votes, scale, units, first, second, weights, n_resamples, ci_level, rng)


def kappa_of_two(
    votes: Votes,
    scale: Array,
    units: Codes,
    first: int,
    second: int,
    weights: str | ArrayLike | None,
    n_resamples: int,
    ci_level: float,
    rng: np.random.Generator | None,
) -> Coefficient:
    """Compute kappa of two raters of a table that was read once for all of them."""
    credit = credit_table(weights, votes, scale)
    place = np.full((2, len(votes.units)), -1)
    for row, rater in enumerate((first, second)):
        mine = votes.rater == rater
        place[row, votes.unit[mine]] = votes.value[mine]
    both = (place >= 0).all(axis=0)
    if not both.any():
        raise AgreementError(f"{votes.raters[first]} and {votes.raters[second]} share no unit, so they cannot be compared.")
    refuse_one_category(place[:, both], votes)
    n_categories = len(votes.categories)
    cell = place[0, both] * n_categories + place[1, both]
    sums = _sum_cells(units[both], cell, len(votes.clusters), n_categories**2)

    def disagreements(cells: Array) -> tuple[Array, Array]:
        counts = cells.reshape(*cells.shape[:-1], n_categories, n_categories)
        shares = turned(counts, votes) / counts.sum(axis=(-1, -2), keepdims=True)
        expected = shares.sum(axis=-1)[..., :, None] * shares.sum(axis=-2)[..., None, :]
        return ((1.0 - credit) * shares).sum(axis=(-1, -2)), ((1.0 - credit) * expected).sum(axis=(-1, -2))

    name = "Cohen's kappa" if weights is None else f"weighted kappa ({weights if isinstance(weights, str) else 'own weights'})"
    counts = (int(both.sum()), 2, 2 * int(both.sum()))
    return estimate_coefficient(name, sums, disagreements, counts, votes, n_resamples, ci_level, rng)


def fleiss_kappa(
    table: pd.DataFrame,
    *,
    weights: str | ArrayLike | None = None,
    categories: Sequence[float] | None = None,
    cluster: str | None = "dialogue_id",
    n_resamples: int = 1000,
    ci_level: float = 0.95,
    rng: np.random.Generator | None = None,
) -> Coefficient:
    r"""Compute Fleiss' kappa of any number of raters, who may differ from unit to unit.

    Chance means that all raters draw from one common habit: :math:`p_e = \sum_{ck} w_{ck} \pi_c \pi_k`
    [1]_, :math:`\pi` being the mean over units of the share of each category. With two raters who both answered
    every unit it is Scott's pi, which is never above Cohen's kappa; units with one answer move the habit, and
    where nearly all answers are the same a few of them move the coefficient by half. Of verdicts the names a
    and b mean nothing, so :math:`\pi` is the same for both.

    Parameters
    ----------
    table : pandas.DataFrame
        Verdicts or scores on one dimension.
    weights, categories, cluster, n_resamples, ci_level, rng
        As in :func:`cohen_kappa`.

    Returns
    -------
    Coefficient
        Units with one answer enter the habit, not the agreement.

    Raises
    ------
    AgreementError
        As in :func:`cohen_kappa`.

    References
    ----------
    .. [1] Gwet (2014), Handbook of Inter-Rater Reliability, 4th edition, for raters that differ in number.

    Examples
    --------
    >>> said = pd.DataFrame({"reply_id": list("rstu") * 2, "rater": ["x"] * 4 + ["y"] * 4, "score": [1, 2, 2, 3, 1, 2, 3, 3]})
    >>> round(fleiss_kappa(said, cluster=None, n_resamples=0).value, 3)  # (3/4 - 22/64) / (1 - 22/64)
    0.619
    """
    votes, scale, units = prepare(table, cluster, categories)
    credit = credit_table(weights, votes, scale)
    counts = count_answers(votes)

    def by_chance(habit: Array) -> Array:
        return np.asarray(((1.0 - credit) * habit[..., :, None] * habit[..., None, :]).sum(axis=(-1, -2)))

    return _from_habits("Fleiss' kappa", counts, credit, by_chance, votes, units, n_resamples, ci_level, rng)


def gwet_ac(
    table: pd.DataFrame,
    *,
    weights: str | ArrayLike | None = None,
    categories: Sequence[float] | None = None,
    cluster: str | None = "dialogue_id",
    n_resamples: int = 1000,
    ci_level: float = 0.95,
    rng: np.random.Generator | None = None,
) -> Coefficient:
    r"""Compute Gwet's AC1, or AC2 where weights give credit for near misses.

    Chance means a blind guess, as likely as the unit is hard to call:
    :math:`p_e = \frac{\sum_{ck} w_{ck}}{q (q - 1)} \sum_k \pi_k (1 - \pi_k)` [1]_, with q categories. It
    does not collapse where nearly all answers are the same, as kappa does; it depends on q, so name the
    whole scale in `categories` where parts of it were never used.

    Parameters
    ----------
    table : pandas.DataFrame
        Verdicts or scores on one dimension.
    weights, categories, cluster, n_resamples, ci_level, rng
        As in :func:`cohen_kappa`.

    Returns
    -------
    Coefficient
        Units with one answer enter the shares :math:`\pi`, not the agreement.

    Raises
    ------
    AgreementError
        As in :func:`cohen_kappa`.

    References
    ----------
    .. [1] Gwet (2008), https://doi.org/10.1348/000711006X126600

    Examples
    --------
    >>> said = pd.DataFrame({"reply_id": list("rstu") * 2, "rater": ["x"] * 4 + ["y"] * 4, "score": [1, 2, 2, 3, 1, 2, 3, 3]})
    >>> round(gwet_ac(said, cluster=None, n_resamples=0).value, 3)  # (3/4 - 21/64) / (1 - 21/64)
    0.628
    """
    votes, scale, units = prepare(table, cluster, categories)
    credit = credit_table(weights, votes, scale)
    size = len(votes.categories)

    def by_chance(habit: Array) -> Array:
        return np.asarray(1.0 - credit.sum() / (size * (size - 1.0)) * (habit * (1.0 - habit)).sum(axis=-1))

    name = "Gwet's AC1" if weights is None else "Gwet's AC2"
    return _from_habits(name, count_answers(votes), credit, by_chance, votes, units, n_resamples, ci_level, rng)


def krippendorff_alpha(
    table: pd.DataFrame,
    *,
    level: str = "nominal",
    cluster: str | None = "dialogue_id",
    n_resamples: int = 1000,
    ci_level: float = 0.95,
    rng: np.random.Generator | None = None,
) -> Coefficient:
    r"""Compute Krippendorff's alpha of any number of raters, with answers missing anywhere.

    :math:`\alpha = 1 - D_o / D_e` [1]_, where both are mean squared distances between answers: within
    units, and between any two answers whatever the unit. Each unit weighs as many answers as it has.

    Parameters
    ----------
    table : pandas.DataFrame
        Verdicts or scores on one dimension.
    level : {"nominal", "ordinal", "interval", "ratio"}
        What distance means. Verdicts are ordered a, tie, b.
    cluster, n_resamples, ci_level, rng
        As in :func:`cohen_kappa`.

    Returns
    -------
    Coefficient
        Units with one answer do not enter.

    Raises
    ------
    AgreementError
        If fewer than two raters share a unit, only one category occurs, or the level is unknown.

    References
    ----------
    .. [1] Krippendorff (2011), Computing Krippendorff's Alpha-Reliability,
       https://repository.upenn.edu/asc_papers/43

    Examples
    --------
    >>> said = pd.DataFrame({"reply_id": list("rstu") * 2, "rater": ["x"] * 4 + ["y"] * 4, "score": [1, 2, 2, 3, 1, 2, 3, 3]})
    >>> round(krippendorff_alpha(said, cluster=None, n_resamples=0).value, 3)  # 1 - (2 / 8) / (42 / 56)
    0.667
    """
    if level not in LEVELS:
        raise AgreementError(f"level must be one of {', '.join(LEVELS)}; got {level!r}.")
    votes, scale, units = prepare(table, cluster, None)
    if level == "ratio" and (votes.kind == "verdict" or scale.min() < 0):
        raise AgreementError("level 'ratio' needs scores of zero or more, for which twice as much has a meaning.")
    counts = count_answers(votes)
    answers = counts.sum(axis=1)
    counts, answers, where = counts[answers >= 2], answers[answers >= 2], units[answers >= 2]
    size, sums = len(scale), _coincidences(counts, answers, where, len(votes.clusters))

    def disagreements(cells: Array) -> tuple[Array, Array]:
        table = turned(cells.reshape(*cells.shape[:-1], size, size), votes)
        margin = table.sum(axis=-1)
        total = margin.sum(axis=-1)
        distance = _squared_distance(level, scale, margin)
        between = margin[..., :, None] * margin[..., None, :]
        observed = (table * distance).sum(axis=(-1, -2)) / np.where(total > 0, total, np.nan)
        return observed, (between * distance).sum(axis=(-1, -2)) / np.where(total > 1, total * (total - 1.0), np.nan)

    shared = (len(counts), len(votes.raters), int(answers.sum()))
    return estimate_coefficient(
        f"Krippendorff's alpha ({level})", sums, disagreements, shared, votes, n_resamples, ci_level, rng
    )


def _two_raters(votes: Votes, raters: tuple[str, str] | None) -> tuple[int, int]:
    if raters is None:
        if len(votes.raters) != 2:
            raise AgreementError(
                f"Cohen's kappa is of two raters; the table holds {len(votes.raters)} ({', '.join(map(str, votes.raters[:5]))}"
                f"{', ...' if len(votes.raters) > 5 else ''}). Name two in `raters`, or use fleiss_kappa."
            )
        return 0, 1
    missing = [name for name in raters if name not in votes.raters]
    if missing or len(set(raters)) != 2:
        raise AgreementError(f"raters must name two of {', '.join(map(str, votes.raters))}; got {raters!r}.")
    first, second = votes.raters.get_indexer(pd.Index(list(raters)))
    return int(first), int(second)


def _sum_cells(cluster: Codes, cell: Codes, n_clusters: int, n_cells: int) -> Array:
    return np.bincount(cluster * n_cells + cell, minlength=n_clusters * n_cells).reshape(n_clusters, n_cells).astype(float)


def _from_habits(
    name: str,
    counts: Array,
    credit: Array,
    by_chance: Callable[[Array], Array],
    votes: Votes,
    units: Codes,
    n_resamples: int,
    ci_level: float,
    rng: np.random.Generator | None,
) -> Coefficient:
    """Estimate a coefficient whose chance follows from the mean share of each category."""
    answers = counts.sum(axis=1)
    several = answers >= 2
    pairs = answers * (answers - 1.0)
    agreeing = (counts * (counts @ credit - 1.0)).sum(axis=1)
    equal = np.divide(agreeing, pairs, out=np.zeros(len(pairs)), where=several)
    shares = counts / answers[:, None]
    if votes.kind == "verdict":
        shares = (shares + shares[:, ::-1]) / 2.0
    sums = np.zeros((len(votes.clusters), 3 + counts.shape[1]))
    np.add.at(sums, units, np.column_stack([equal, several, np.ones(len(pairs)), shares]))

    def disagreements(cells: Array) -> tuple[Array, Array]:
        n_several = np.where(cells[..., 1] > 0, cells[..., 1], np.nan)
        return 1.0 - cells[..., 0] / n_several, by_chance(cells[..., 3:] / cells[..., 2:3])

    entered = (int(several.sum()), len(votes.raters), len(votes.value))
    return estimate_coefficient(name, sums, disagreements, entered, votes, n_resamples, ci_level, rng)


def _coincidences(counts: Array, answers: Array, cluster: Codes, n_clusters: int) -> Array:
    """Sum the coincidence tables of units by cluster: how often each two answers stand beside each other."""
    size = counts.shape[1]
    sums = np.zeros((n_clusters, size**2))
    chunk = max(1, CHUNK_CELLS // size**2)
    for first in range(0, len(counts), chunk):
        some = counts[first : first + chunk]
        tables = some[:, :, None] * some[:, None, :]
        tables[:, np.arange(size), np.arange(size)] -= some
        tables /= (answers[first : first + chunk] - 1.0)[:, None, None]
        np.add.at(sums, cluster[first : first + chunk], tables.reshape(-1, size**2))
    return sums


def _squared_distance(level: str, scale: Array, margin: Array) -> Array:
    if level == "nominal":
        return 1.0 - np.eye(len(scale))
    if level == "ordinal":
        # The number of answers from the middle of one category to the middle of the other.
        rank = np.cumsum(margin, axis=-1) - margin / 2.0
        return np.asarray((rank[..., :, None] - rank[..., None, :]) ** 2)
    gap = scale[:, None] - scale[None, :]
    if level == "interval":
        return np.asarray(gap**2)
    whole = scale[:, None] + scale[None, :]
    return np.divide(gap, whole, out=np.zeros_like(gap), where=whole > 0) ** 2
