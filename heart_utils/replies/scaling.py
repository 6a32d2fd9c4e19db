"""How quality moves with latency, size or price: rank correlations of few models.

The models are a convenience set and no sample.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from itertools import permutations, product
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from heart_utils.ratings.verdicts import Array

__all__ = ["ScalingError", "Trend", "correlate_scale", "spearman_interval"]


LEAST_MODELS = 4
EXACT = 8
"""Up to so many models all orders are tried (40,320 of them); above, orders are drawn."""


class ScalingError(ValueError):
    """There is nothing to correlate."""


def spearman_interval(
    rho: float, n: int, *, method: str = "fisher", ci_level: float = 0.95
) -> tuple[float, float]:
    r"""Compute the interval of a rank correlation from its value and the number of models.

    A paper may print a correlation over a few models, such as 0.53 over 16, without an interval.
    Two numbers are enough to add one. Models are treated as if drawn independently; families of
    models are alike, so the true uncertainty is larger.

    Parameters
    ----------
    rho
        The rank correlation (Spearman), between -1 and 1, ends excluded.
    n
        Number of models, four or more.
    method
        ``"fisher"`` or ``"bonett-wright"``; see the notes. The latter is wider where rho is large.
    ci_level
        Level of the interval, such as 0.95.

    Returns
    -------
    tuple of float
        Lower and upper end, between -1 and 1.

    Raises
    ------
    ScalingError
        If there are too few models, rho is not inside -1 and 1, or the method is unknown.

    Notes
    -----
    The interval is symmetric on the scale of :math:`\operatorname{artanh}\rho`. Its variance there
    is :math:`1/(n-3)` after Fisher, or :math:`(1 + \rho^2/2)/(n-3)`, better away from zero, after
    Bonett and Wright (2000), https://doi.org/10.1007/BF02294183.

    Examples
    --------
    >>> [round(end, 2) for end in spearman_interval(0.53, 16)]  # HEART's correlation over 16 models
    [0.05, 0.81]
    >>> [round(end, 2) for end in spearman_interval(0.53, 16, method="bonett-wright")]
    [0.01, 0.82]
    """
    if method not in ("fisher", "bonett-wright"):
        raise ScalingError(f"method is {method!r}, expected 'fisher' or 'bonett-wright'.")
    if n < LEAST_MODELS or not -1 < rho < 1:
        raise ScalingError(
            f"No such interval for a correlation of {rho} over {n} models: {LEAST_MODELS} or more,"
            " inside ±1."
        )
    spread = np.sqrt((1 + (rho**2 / 2 if method == "bonett-wright" else 0)) / (n - 3))
    reach = stats.norm.ppf((1 + ci_level) / 2) * spread
    return float(np.tanh(np.arctanh(rho) - reach)), float(np.tanh(np.arctanh(rho) + reach))


@dataclass(frozen=True, eq=False)
class Trend:
    """A rank correlation over models, from several sides."""

    rho: float  #: spearman's, over so many models
    n: int
    #: ``interval`` (``fisher``, ``bonett-wright``), ``ci_low``, ``ci_high``, ``ci_level``
    intervals: pd.DataFrame
    #: ``shuffled`` (``all``, ``within_families``, ``between_families``), ``p_value``, ``why_not``
    p_values: pd.DataFrame
    left_out: pd.DataFrame  #: a row a model: ``responder`` and ``rho`` without it


def correlate_scale(
    models: pd.DataFrame,
    *,
    x: str,
    n_shuffles: int = 10_000,
    ci_level: float = 0.95,
    rng: np.random.Generator,
) -> Trend:
    """Correlate a rating with what a model takes, or is, by ranks.

    Parameters
    ----------
    models
        A row a model: ``responder``, `x`, ``rating`` and, if known, ``family``; rows without `x` or
        ``rating`` are out.
    x
        What is correlated with the rating.
    n_shuffles
        Orders drawn, where there are too many to try all.
    ci_level, rng
        As in :func:`~heart_utils.ratings.resampling.bootstrap_ci`.

    Returns
    -------
    Trend
        Its p values are about relabelling these models, not about models to come. Shuffling within
        families keeps what makers have in common; shuffling the families' means asks whether makers
        differ in the same way on both.

    Raises
    ------
    ScalingError
        If fewer than four models have both, or all have the same.

    Examples
    --------
    >>> models = pd.DataFrame(
    ...     {
    ...         "responder": list("abcde"),
    ...         "ms": [1, 2, 3, 8, 20],
    ...         "rating": [1400, 1450, 1500, 1480, 1600],
    ...     }
    ... )
    >>> round(correlate_scale(models, x="ms", rng=np.random.default_rng(1)).rho, 3)
    0.9
    """
    kept = models.dropna(subset=[x, "rating"]).reset_index(drop=True)
    if len(kept) < LEAST_MODELS:
        both = f"{len(kept)} of {len(models)} models have both {x} and rating"
        raise ScalingError(f"{both}; a trend takes {LEAST_MODELS} or more.")
    one, other = kept[x].to_numpy(float), kept["rating"].to_numpy(float)
    for name, values in ((x, one), ("rating", other)):
        if len(set(values)) == 1:
            raise ScalingError(
                f"All {len(kept)} models have the same {name}, so nothing can move with it."
            )
    rho = _rho(one, other)
    rows = []
    if abs(rho) < 1:
        for method in ("fisher", "bonett-wright"):
            ends = spearman_interval(rho, len(kept), method=method, ci_level=ci_level)
            rows.append((method, *ends, ci_level))
    without = [
        _rho(np.delete(one, left_out), np.delete(other, left_out)) for left_out in range(len(kept))
    ]

    def shuffled(
        name: str, why_not: str | None, x: Array, y: Array, within: NDArray[Any]
    ) -> tuple[str, float, str | None]:
        return name, np.nan if why_not else _p_value(x, y, within, n_shuffles, rng), why_not

    p_values = [shuffled("all", None, one, other, np.zeros(len(one)))]
    if "family" in kept:
        codes = pd.factorize(kept["family"].fillna(kept["responder"]))[0]
        sizes = np.bincount(codes)
        first, second = (np.bincount(codes, stats.rankdata(part)) / sizes for part in (one, other))
        p_values.append(
            shuffled(
                "within_families",
                None if sizes.max() > 1 else "no family has two models",
                one,
                other,
                codes,
            )
        )
        few = (
            None
            if len(sizes) >= LEAST_MODELS
            else f"{len(sizes)} families; it takes {LEAST_MODELS}"
        )
        p_values.append(shuffled("between_families", few, first, second, np.zeros(len(sizes))))
    return Trend(
        rho=rho,
        n=len(kept),
        intervals=pd.DataFrame(rows, columns=["interval", "ci_low", "ci_high", "ci_level"]),
        p_values=pd.DataFrame(p_values, columns=["shuffled", "p_value", "why_not"]),
        left_out=pd.DataFrame({"responder": kept["responder"], "rho": without}),
    )


def _rho(one: ArrayLike, other: ArrayLike) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", stats.ConstantInputWarning)
        return float(np.clip(stats.spearmanr(one, other).statistic, -1.0, 1.0))


def _p_value(
    one: Array, other: Array, codes: NDArray[Any], n_shuffles: int, rng: np.random.Generator
) -> float:
    """Compute the two-sided p value by shuffling orders within codes.

    scipy's test cannot shuffle within codes.
    """
    places = np.argsort(codes, kind="stable")
    first, second = (
        ranks - ranks.mean()
        for ranks in (stats.rankdata(one)[places], stats.rankdata(other)[places])
    )
    n, exact = len(one), len(one) <= EXACT
    if exact:
        groups = [np.flatnonzero(codes[places] == code) for code in np.unique(codes)]
        orders = np.array([np.concatenate(order) for order in product(*map(permutations, groups))])
    else:  # a random key inside each code's own range sorts to a shuffle within codes
        orders = np.argsort(codes[places] + rng.random((n_shuffles, n)), axis=1)
    shuffled = np.abs(first[orders] @ second)
    as_far = int((shuffled >= abs(float(first @ second)) - 1e-9).sum())
    return as_far / len(orders) if exact else (as_far + 1) / (len(orders) + 1)
