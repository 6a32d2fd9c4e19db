"""Find where a file of scores changes hands: the rows at which mean and spread jump at once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["find_blocks"]

SMALLEST_VARIANCE = 0.01
"""Keeps a stretch of equal means, as judges give, from having a likelihood without bound."""


def find_blocks(series: npt.ArrayLike, *, strictness: float = 3.0, shortest: int = 30) -> list[int]:
    r"""Find the first row of each block of rows that share a mean and a spread.

    Each column is taken as normal with a mean and a variance that stay the same within a block. Of
    all ways to cut the rows, the one with the smallest
    :math:`\sum_{\text{blocks}} \sum_{\text{columns}} n \log \hat\sigma^2` plus a penalty for each
    block wins. The penalty is `strictness` times that of the Bayesian information criterion,
    :math:`2p \log N` for the :math:`2p` parameters that a block adds [1]_.

    Parameters
    ----------
    series : array of shape (N, p)
        A row a question, in the order of the file; missing values count as their column's mean.
    strictness : float
        At 3, the smallest whole number at which none of MentalAlign's four model judges, who rate
        the same questions, shows a break. The clinicians' five breaks are the same from 2.5 to 5.
    shortest : int
        Fewest rows in a block.

    Returns
    -------
    list of int
        Starts of the blocks, from 0; the first is 0.

    References
    ----------
    .. [1] Killick, Fearnhead and Eckley (2012), https://doi.org/10.1080/01621459.2012.737745

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> low, high = rng.normal(3, 1, (80, 2)), rng.normal(4.5, 0.3, (120, 2))
    >>> find_blocks(np.vstack([low, high]))
    [0, 80]
    """
    values = np.array(series, dtype=float)
    values = np.where(np.isnan(values), np.nanmean(values, axis=0), values)
    n, columns = values.shape
    penalty = strictness * 2 * columns * np.log(n)
    sums = np.vstack([np.zeros(columns), values.cumsum(axis=0)])
    squares = np.vstack([np.zeros(columns), (values**2).cumsum(axis=0)])
    best = np.full(n + 1, np.inf)
    best[0] = -penalty
    start_of = np.zeros(n + 1, dtype=int)
    for end in range(shortest, n + 1):
        starts = np.arange(end - shortest + 1)
        rows = (end - starts)[:, None]
        variance = (squares[end] - squares[starts]) / rows - ((sums[end] - sums[starts]) / rows) ** 2
        cost = (rows * np.log(np.maximum(variance, SMALLEST_VARIANCE))).sum(axis=1)
        total = best[starts] + cost + penalty
        start_of[end] = int(total.argmin())
        best[end] = total[start_of[end]]
    blocks = [int(start_of[n])]
    while blocks[-1] > 0:
        blocks.append(int(start_of[blocks[-1]]))
    return blocks[::-1]
