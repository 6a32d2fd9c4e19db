"""Regressions of statsmodels with variances that sum scores over clusters, and t intervals by the number of clusters."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

__all__ = ["fit_logistic"]

Array = NDArray[np.float64]

LARGEST = 12.0
"""Log-odds beyond which a coefficient has no end: what it stands for separates winners from losers."""


def fit_logistic(
    design: Array, won: Array, clusters: pd.Series, ci_level: float, *, largest: float = LARGEST
) -> pd.DataFrame | None:
    """Fit a logistic model without constant; None where some coefficient has no end.

    Parameters
    ----------
    design : numpy.ndarray
        One row a verdict, one column a covariate.
    won : numpy.ndarray
        What was won, from 0 to 1.
    clusters : pandas.Series
        What is summed over; two or more.
    ci_level : float
        Of the intervals.
    largest : float
        From which size on a coefficient has no end.

    Returns
    -------
    pandas.DataFrame or None
        One row a covariate: ``log_odds``, ``se``, ``ci_low``, ``ci_high``, ``p``.

    Examples
    --------
    >>> won, clusters = np.array([1.0, 1.0, 1.0, 0.0]), pd.Series(list("deff"))
    >>> fit_logistic(np.ones((4, 1)), won, clusters, 0.95)["log_odds"].round(3).tolist()  # log 3
    [1.099]
    """
    from statsmodels.api import GLM, families

    codes = pd.factorize(clusters)[0]
    n = int(codes.max()) + 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # separation is told by the coefficients
        model = GLM(won, design, family=families.Binomial())
        how = {"cov_type": "cluster", "cov_kwds": {"groups": codes, "use_correction": False}}
        fit = model.fit(maxiter=100, tol=1e-9, tol_criterion="params", **how)
    beta, se = fit.params, fit.bse * np.sqrt(n / (n - 1.0))
    if not fit.converged or np.abs(beta).max() > largest:
        return None
    reach = stats.t.ppf((1.0 + ci_level) / 2.0, n - 1) * se
    p = 2.0 * stats.t.sf(np.abs(beta) / np.where(se > 0, se, np.nan), n - 1)
    return pd.DataFrame({"log_odds": beta, "se": se, "ci_low": beta - reach, "ci_high": beta + reach, "p": p})


def author_columns(verdicts: pd.DataFrame) -> Array:
    """Give one column an author but the first: 1 where it wrote a, -1 where it wrote b."""
    authors = sorted({*verdicts["responder_a"], *verdicts["responder_b"]})[1:]
    columns = [(verdicts["responder_a"] == name).astype(float) - (verdicts["responder_b"] == name) for name in authors]
    return np.column_stack(columns) if columns else np.zeros((len(verdicts), 0))
