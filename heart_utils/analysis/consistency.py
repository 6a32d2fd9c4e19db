"""How much a responder's standing varies from dialogue to dialogue."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from heart_utils.analysis.resampling import ENOUGH_CLUSTERS, check_clusters, draw_weights, interval_ends
from heart_utils.analysis.wins import read_verdicts

__all__ = ["consistency"]

Array = NDArray[np.float64]

PERCENTILE = 0.1


def consistency(
    verdicts: pd.DataFrame,
    *,
    rng: np.random.Generator,
    dimension: str = "overall",
    cluster: str = "dialogue_id",
    n_resamples: int = 1000,
    ci_level: float = 0.95,
) -> pd.DataFrame:
    r"""Tell the spread of each responder's win probability between dialogues, noise removed, and its low end.

    In dialogue :math:`d` a responder wins the mean share :math:`p_d` of :math:`n_d` verdicts. Its variance
    over dialogues is that of the true probability plus noise; the noise is estimated from verdicts of the
    same dialogue, :math:`\sum_v (y_v - p_d)^2 / (n_d (n_d - 1))`, and taken off (not below zero). The low end
    is the tenth percentile of the :math:`p_d` drawn together towards their mean until only that spread is
    left: one dialogue in ten goes as badly or worse.

    Parameters
    ----------
    verdicts : pandas.DataFrame
        As for :func:`heart_utils.analysis.ratings.fit_ratings`.
    rng : numpy.random.Generator
        The source of chance.
    dimension : str
        A line of the rubric.
    cluster : str
        The dialogues.
    n_resamples : int
        Bootstrap resamples of dialogues.
    ci_level : float
        Such as 0.95.

    Returns
    -------
    pandas.DataFrame
        One row a responder: ``responder``, ``mean``, ``sd`` with ``sd_low`` and ``sd_high``, ``tenth``
        with ``tenth_low`` and ``tenth_high``, ``ci_level``, ``n_clusters`` (dialogues with two verdicts
        or more on them, which alone can tell noise from spread), ``n_single`` (dialogues with one,
        left out), ``provisional``, ``simulated``. Opponents differ by dialogue unless all meet in each;
        then part of the spread is theirs.

    Raises
    ------
    RatingsError
        If verdicts cannot be read.
    ValueError
        If there is one dialogue only.

    Examples
    --------
    >>> steady = pd.DataFrame({"responder_a": "x", "responder_b": "y", "verdict": ["a", "b"] * 60,
    ...     "dialogue_id": [f"d{k // 4}" for k in range(120)]})
    >>> consistency(steady, rng=np.random.default_rng(1), n_resamples=20)["sd"].tolist()
    [0.0, 0.0]
    """
    entries = read_verdicts(verdicts, dimension=dimension, cluster=cluster)
    size, n_clusters = len(entries.responders), len(entries.clusters)
    check_clusters(n_clusters, cluster)
    cell = np.concatenate([entries.cluster * size + entries.a, entries.cluster * size + entries.b])
    share = np.concatenate([entries.share, 1.0 - entries.share])
    count, total, squares = (
        np.bincount(cell, weights, n_clusters * size).reshape(n_clusters, size) for weights in (None, share, share**2)
    )
    told = count > 1
    mean = np.divide(total, count, out=np.zeros_like(total), where=count > 0)
    noise = np.divide(squares - count * mean**2, count * (count - 1.0), out=np.zeros_like(total), where=told)
    drawn = draw_weights(n_clusters, n_resamples, rng)
    simulated = bool(verdicts["simulated"].iloc[entries.rows].any()) if "simulated" in verdicts else False
    rows = []
    for number, name in enumerate(entries.responders):
        used = told[:, number]
        n_used = int(used.sum())
        found = _spread(mean[used, number], noise[used, number], np.ones((1, n_used)))
        again = _spread(mean[used, number], noise[used, number], drawn[:, used])
        again = again[~np.isnan(again).any(axis=1)]
        low, high = interval_ends(found[0], again, np.full(3, n_used), ci_level)
        rows.append(
            {
                "responder": name,
                "mean": found[0, 0],
                "sd": found[0, 1],
                "sd_low": max(low[1], 0.0) if n_used > 1 else np.nan,
                "sd_high": high[1],
                "tenth": found[0, 2],
                "tenth_low": low[2],
                "tenth_high": high[2],
                "ci_level": ci_level,
                "n_clusters": n_used,
                "n_single": int((count[:, number] == 1).sum()),
                "provisional": n_used < ENOUGH_CLUSTERS,
                "simulated": simulated,
            }
        )
    return pd.DataFrame(rows)


def _spread(shares: Array, noise: Array, weights: Array) -> Array:
    """Give mean, spread and low end under each row of weights."""
    n = weights.sum(axis=1)
    enough = n > 1
    safe = np.where(enough, n, 2.0)
    mean = weights @ shares / safe
    around = (weights @ shares**2 - safe * mean**2) / (safe - 1.0)
    spread = np.sqrt(np.maximum(around - weights @ noise / safe, 0.0))
    pull = np.divide(spread, np.sqrt(np.maximum(around, 0.0)), out=np.zeros_like(spread), where=around > 1e-15)
    order = np.argsort(shares)
    reached = np.cumsum(weights[:, order], axis=1) >= PERCENTILE * safe[:, None]
    low = shares[order][reached.argmax(axis=1)]
    found = np.stack([mean, spread, mean + pull * (low - mean)], axis=1)
    return np.where(enough[:, None], found, np.nan)
