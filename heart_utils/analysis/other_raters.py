"""Intervals that allow for other raters too: the variance over dialogues and raters of a share or a coefficient."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from heart_utils.analysis.resampling import check_level, wilson_ends
from heart_utils.analysis.sandwich import FEW_RATERS, crossed

__all__ = ["crossed_interval", "crossed_variance", "refuse_few_raters"]

Array = NDArray[np.float64]
Codes = NDArray[np.intp]


def crossed_variance(influence: Array, dialogue: Codes, rater: Codes) -> float:
    r"""Estimate the variance of a statistic if dialogues and raters were drawn again.

    With :math:`S` the sums of influence by dialogue, by rater, and by the two together, it is
    :math:`\sum S_d^2 + \sum S_r^2 - \sum S_{dr}^2`, times G / (G - 1) for the smaller number G [1]_. Where chance
    puts that below what dialogues or raters alone give, the larger of these is taken.

    Parameters
    ----------
    influence : numpy.ndarray
        What each vote adds to the statistic, to first order; of a share s of n votes, (counts - s) / n.
    dialogue, rater : numpy.ndarray
        Codes of each vote, from 0 on.

    Returns
    -------
    float
        The variance.

    References
    ----------
    .. [1] Cameron, Gelbach and Miller (2011), https://doi.org/10.1198/jbes.2010.07136

    Examples
    --------
    >>> dialogue, rater = np.repeat(np.arange(4), 3), np.tile(np.arange(3), 4)
    >>> likes = rater == 2  # one rater of three likes it, in each dialogue: only raters vary
    >>> round(crossed_variance((likes - 1 / 3) / 12, dialogue, rater), 3)  # 3/2 of ((2/3)^2 + 2 (1/3)^2) / 9
    0.111
    """
    cell, _ = crossed(dialogue, dialogue.max() + 1, rater, rater.max() + 1)
    by_dialogue, by_rater, by_cell = (float((np.bincount(code, influence) ** 2).sum()) for code in (dialogue, rater, cell))
    fewest = min(len(np.unique(dialogue)), len(np.unique(rater)))
    return max(by_dialogue + by_rater - by_cell, by_dialogue, by_rater) * fewest / (fewest - 1.0)


def crossed_interval(
    estimate: float, variance: float, n_clusters: int, ci_level: float, *, least: float = -np.inf, most: float = np.inf
) -> tuple[float, float]:
    """Give the ends from a two-way variance, by the rule of :func:`heart_utils.analysis.resampling.interval_ends`.

    That is Wilson's interval where the number has a range, else the standard error times t.

    Parameters
    ----------
    estimate, variance : float
        ``nan`` gives no interval.
    n_clusters : int
        The smaller of the numbers of dialogues and raters.
    ci_level : float
        Such as 0.95.
    least, most : float
        The range.

    Returns
    -------
    tuple of float
        Lower and upper end.

    Examples
    --------
    >>> [round(end, 2) for end in crossed_interval(0.9, 0.01, 20, 0.95, most=1.0)]
    [0.69, 1.0]
    """
    check_level(ci_level)
    if not np.isfinite(estimate + variance) or n_clusters < 2:
        return float("nan"), float("nan")
    if np.isfinite(least) and np.isfinite(most):
        ends = wilson_ends(np.array(estimate), np.sqrt(np.array(variance)), n_clusters, ci_level, least=least, most=most)
        return float(ends[0]), float(ends[1])
    reach = float(stats.t.ppf((1.0 + ci_level) / 2.0, n_clusters - 1) * np.sqrt(variance))
    return max(estimate - reach, least), min(estimate + reach, most)


def refuse_few_raters(
    dialogue: Codes, rater: Codes, clusters: tuple[str, str], error: type[ValueError], where: str = ""
) -> None:
    """Raise `error` where raters are too few to stand for others, or cannot be told from dialogues.

    Parameters
    ----------
    dialogue, rater : numpy.ndarray
        Codes of each vote.
    clusters : tuple of str
        Names of the two columns.
    error : type
        What to raise.
    where : str
        Which votes these are, such as ``" in slice 'standard'"``.

    Examples
    --------
    >>> refuse_few_raters(np.arange(6) % 2, np.arange(6) % 3, ("dialogue_id", "rater"), ValueError)
    Traceback (most recent call last):
        ...
    ValueError: 3 of 'rater' are too few to stand for others like them (at least 20 are needed). Resample the dialogues \
alone: cluster='dialogue_id'.
    """
    inner, outer = clusters[1], clusters[0]
    n_dialogues, n_raters = len(np.unique(dialogue)), len(np.unique(rater))
    if n_raters < FEW_RATERS:
        raise error(
            f"{n_raters} of {inner!r}{where} are too few to stand for others like them (at least {FEW_RATERS} are needed). "
            f"Resample the dialogues alone: cluster={outer!r}."
        )
    n_cells = crossed(dialogue, dialogue.max() + 1, rater, rater.max() + 1)[1]
    if n_cells in (n_dialogues, n_raters):
        inner, outer = (inner, outer) if n_cells == n_raters else (outer, inner)
        raise error(
            f"Each {inner} belongs to one {outer} only{where}, so the two cannot be told apart. "
            f"Resample the {outer} alone: it carries what is inside it (cluster={outer!r})."
        )
