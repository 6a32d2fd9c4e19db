"""Intervals that allow for other raters too: the variance over dialogues and raters of a share or a coefficient."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from heart_utils.ratings.resampling import check_level, wilson_ends
from heart_utils.ratings.sandwich import FEW_RATERS, crossed

__all__: list[str] = []

Array = NDArray[np.float64]
Codes = NDArray[np.intp]


def crossed_variance(influence: Array, dialogue: Codes, rater: Codes) -> float:
    r"""Estimate the variance of a statistic if dialogues and raters were drawn again.

    Source: Cameron, Gelbach and Miller (2011), https://doi.org/10.1198/jbes.2010.07136
    """
    cell, _ = crossed(dialogue, dialogue.max() + 1, rater, rater.max() + 1)
    by_dialogue, by_rater, by_cell = (float((np.bincount(code, influence) ** 2).sum()) for code in (dialogue, rater, cell))
    fewest = min(len(np.unique(dialogue)), len(np.unique(rater)))
    return max(by_dialogue + by_rater - by_cell, by_dialogue, by_rater) * fewest / (fewest - 1.0)


def crossed_interval(
    estimate: float, variance: float, n_clusters: int, ci_level: float, *, least: float = -np.inf, most: float = np.inf
) -> tuple[float, float]:
    """Give the ends from a two-way variance, by the rule of ``interval_ends``.

    That is Wilson's interval where the number has a range, else the standard error times t.
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
    """Raise `error` where raters are too few to stand for others, or cannot be told from dialogues."""
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
