"""Quality against time: how long each responder takes, who is beaten on both, and the best within a limit."""

from __future__ import annotations

import numpy as np
import pandas as pd

from heart_utils.analysis.resampling import interval_of
from heart_utils.analysis.scaling import ScalingError

__all__ = ["best_within", "find_frontier", "measure_latency"]


def measure_latency(replies: pd.DataFrame) -> pd.DataFrame:
    """Give each responder's median times, round by round if its replies were repeated.

    A time to the first word holds reasoning, the provider's queue, the region and the hour; measured one call at a
    time, and twice, it shows at least how far it moves by itself.

    Parameters
    ----------
    replies : pandas.DataFrame
        The table of replies; the second reply of a responder to a history is its second round. Replies without
        times, or not valid, are left out.

    Returns
    -------
    pandas.DataFrame
        One row a responder that was timed: ``ttft_ms``, ``total_ms`` (medians), ``ttft_low``, ``ttft_high`` (quartiles of the
        first), ``n``, ``n_rounds``, ``round_ratio`` (largest over smallest median of the rounds; ``nan`` with one) and
        ``cost_usd`` (mean a reply; ``nan`` where no price is known).

    Examples
    --------
    >>> replies = pd.DataFrame({"reply_id": list("abcd"), "history_id": list("gghh"), "responder": "m", "state": "valid",
    ...     "ttft_ms": [100.0, 200.0, 100.0, 200.0], "total_ms": 300.0, "cost_usd": 0.0})
    >>> measure_latency(replies)[["ttft_ms", "n", "n_rounds", "round_ratio"]].values.tolist()
    [[150.0, 4.0, 2.0, 2.0]]
    """
    timed = replies[(replies["state"] == "valid") & replies["ttft_ms"].notna()].sort_values("reply_id")
    timed = timed.assign(round=timed.groupby(["responder", "history_id"]).cumcount())
    rows = []
    for name, mine in timed.groupby("responder", sort=True):
        rounds = mine.groupby("round")["ttft_ms"].median()
        low, high = mine["ttft_ms"].quantile([0.25, 0.75])
        rows.append(
            {"responder": name, "ttft_ms": mine["ttft_ms"].median(), "total_ms": mine["total_ms"].median(), "ttft_low": low,
             "ttft_high": high, "n": len(mine), "n_rounds": len(rounds), "cost_usd": mine["cost_usd"].mean(),
             "round_ratio": rounds.max() / rounds.min() if len(rounds) > 1 else np.nan}
        )  # fmt: skip
    columns = ["responder", "ttft_ms", "total_ms", "ttft_low", "ttft_high", "n", "n_rounds", "cost_usd", "round_ratio"]
    return pd.DataFrame(rows, columns=columns)


def find_frontier(models: pd.DataFrame, *, x: str = "ttft_ms", replicates: pd.DataFrame | None = None) -> pd.DataFrame:
    """Find who is beaten by nobody in both time and quality.

    Parameters
    ----------
    models : pandas.DataFrame
        A row a model: ``responder``, `x` (less is better), ``rating`` (more is better). Rows without either are left out.
    x : str
        What is paid, such as ``"cost_usd"`` in place of time.
    replicates : pandas.DataFrame, optional
        Ratings in resamples of dialogues, a column a responder.

    Returns
    -------
    pandas.DataFrame
        The models from the fastest on, with ``on_frontier``, ``beaten_by`` (the best that is as fast or faster and rated
        higher, or equal in one and better in the other) and ``share_on_frontier``: in which part of the resamples it
        stays there.

    Examples
    --------
    >>> models = pd.DataFrame({"responder": list("abc"), "ttft_ms": [90, 200, 300], "rating": [1500, 1450, 1600]})
    >>> find_frontier(models)[["responder", "on_frontier"]].values.tolist()
    [['a', True], ['b', False], ['c', True]]
    """
    kept = models.dropna(subset=[x, "rating"]).sort_values([x, "responder"], ignore_index=True)
    times, ratings = kept[x].to_numpy(float), kept["rating"].to_numpy(float)
    beats = _beats(times, ratings[None])[0]
    by = [kept["responder"][int(np.argmax(np.where(row, ratings, -np.inf)))] if row.any() else None for row in beats.T]
    beaten_by = pd.Series(by, index=kept.index, dtype=object)
    kept = kept.assign(on_frontier=~beats.any(axis=0), beaten_by=beaten_by, share_on_frontier=np.nan)
    if replicates is not None and len(replicates) > 1 and len(kept):
        again = _beats(times, replicates[kept["responder"]].to_numpy(float))
        kept["share_on_frontier"] = 1.0 - again.any(axis=1).mean(axis=0)
    return kept


def best_within(
    models: pd.DataFrame,
    limit: float,
    *,
    x: str = "ttft_ms",
    replicates: pd.DataFrame | None = None,
    n_dialogues: int | None = None,
    ci_level: float = 0.95,
) -> dict[str, object]:
    """Name the best model within a limit, and what the limit costs.

    Parameters
    ----------
    models : pandas.DataFrame
        As in :func:`find_frontier`.
    limit : float
        Such as 500 (ms to the first word).
    x : str
        What is limited, as in :func:`find_frontier`.
    replicates : pandas.DataFrame, optional
        Ratings in resamples of dialogues.
    n_dialogues : int, optional
        Behind them.
    ci_level : float
        Of the interval.

    Returns
    -------
    dict
        ``responder``, ``rating``, ``n_within``; ``behind``: the best of all minus it, with ``ci_low`` and ``ci_high`` (for
        these two models, chosen by looking, so somewhat too narrow); ``share_best``: in which part of the resamples it is
        the best within.

    Raises
    ------
    ScalingError
        If no model is within the limit.

    Examples
    --------
    >>> models = pd.DataFrame({"responder": list("abc"), "ttft_ms": [90, 200, 900], "rating": [1500.0, 1450.0, 1600.0]})
    >>> found = best_within(models, 500)
    >>> found["responder"], found["behind"]
    ('a', 100.0)
    """
    kept = models.dropna(subset=[x, "rating"])
    within = kept[kept[x] <= limit]
    if within.empty:
        fastest = f"; the fastest takes {kept[x].min():.0f}" if len(kept) else ""
        raise ScalingError(f"None of {len(kept)} timed models has {x} of {limit:g} or less{fastest}.")
    best, top = within.sort_values("rating").iloc[-1], kept.sort_values("rating").iloc[-1]
    behind = float(top["rating"] - best["rating"])
    found: dict[str, object] = {
        "responder": str(best["responder"]), "rating": float(best["rating"]), "n_within": len(within),
        "behind": behind, "ci_low": np.nan, "ci_high": np.nan, "share_best": np.nan,
    }  # fmt: skip
    if replicates is not None and len(replicates) > 1:
        gaps = (replicates[top["responder"]] - replicates[best["responder"]]).to_numpy(float)
        low, high = interval_of(behind, gaps, n_dialogues or len(replicates), ci_level)
        same = top["responder"] == best["responder"]
        leads = replicates[within["responder"]].idxmax(axis="columns") == best["responder"]
        found |= {"share_best": float(leads.mean())} if same else {
            "ci_low": low, "ci_high": high, "share_best": float(leads.mean())
        }  # fmt: skip
    return found


def _beats(times: np.ndarray, ratings: np.ndarray) -> np.ndarray:
    """Tell in each resample who (second axis) beats whom (third)."""
    faster, as_fast = times[:, None] < times[None, :], times[:, None] <= times[None, :]
    higher, as_high = ratings[:, :, None] > ratings[:, None, :], ratings[:, :, None] >= ratings[:, None, :]
    return (as_fast & higher) | (faster & as_high)
