"""Speed and memory of the ratings, beside evalica's bootstrap in one process."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from benchmarks import Figure, seconds
from heart_utils.ratings.ratings import fit_boards, fit_ratings
from heart_utils.simulate.study import Panel, Spread, simulate_study

N_RESAMPLES = 1_000
MILLION: dict[str, Any] = {"n_dialogues": 3_704, "pairs": 135}
WIDE: dict[str, Any] = {"strengths": 200, "n_dialogues": 500, "pairs": 500}
WIDE["spread"] = Spread(dialogues=0.4)


def run(quick: bool) -> Iterator[Figure]:
    """Yield the figures."""
    study = simulate_study(rng=np.random.default_rng(20260109))
    rows, rng = study.verdicts, np.random.default_rng(1)
    yield Figure(
        "simulate a study of 42,000 verdicts", seconds(lambda: simulate_study(rng=rng)), "s"
    )
    ours = seconds(lambda: fit_ratings(rows, n_resamples=N_RESAMPLES, rng=rng))
    yield Figure(
        "42,000 verdicts, 17 responders, 300 dialogues, 1,000 bootstraps",
        ours,
        "s",
        "within 0.5 s",
        ours <= 0.5,
    )
    theirs = evalica_seconds(rows, 20 if quick else N_RESAMPLES)
    yield Figure(
        "the same in evalica.bootstrap (percentile, not clustered)",
        theirs,
        "s",
        note="scaled from 20" if quick else "",
    )
    yield Figure(
        "evalica's time over ours", theirs / ours, "times", "at least 80", theirs / ours >= 80
    )
    six = pd.concat(
        [rows.assign(dimension=f"dimension_{number}") for number in range(6)], ignore_index=True
    )
    six["slice"] = np.where(np.arange(len(six)) % 2, "standard", "adversarial")
    many = seconds(
        lambda: fit_boards(six, by=["dimension", "slice"], n_resamples=N_RESAMPLES, rng=rng),
        1 if quick else 3,
    )
    yield Figure(
        "six dimensions of 42,000 verdicts in two slices: 12 boards",
        many,
        "s",
        "within 3 s",
        many <= 3,
    )
    two = ["dialogue_id", "rater"]
    both = seconds(lambda: fit_ratings(rows, cluster=two, rng=rng))
    yield Figure("two-way sandwich of the same 42,000 verdicts", both, "s")
    yield Figure(
        "its time over that of the one-way bootstrap",
        both / ours,
        "times",
        "at most 3",
        both / ours <= 3,
    )
    _, _, peak = elsewhere({})
    yield Figure("peak memory of a process that fits 42,000", peak, "MB", "under 400", peak < 400)
    large, grown, _ = elsewhere(MILLION)
    yield Figure("1,000,080 verdicts, 17 responders, 3,704 dialogues, 1,000 bootstraps", large, "s")
    yield Figure(
        "its time over that of 42,000", large / ours, "times", "at most 5", large / ours <= 5
    )
    yield Figure(
        "memory it takes beyond the table of verdicts", grown, "MB", "under 1,000 MB", grown < 1000
    )
    widest, _, peak = elsewhere(WIDE)
    yield Figure(
        "500,000 verdicts, 200 responders, 500 dialogues, 1,000 bootstraps",
        widest,
        "s",
        "within 60 s",
        widest <= 60,
    )
    yield Figure(
        "peak memory of the process that fits it", peak, "MB", "under 4,000 MB", peak < 4000
    )


def evalica_seconds(rows: pd.DataFrame, n_resamples: int) -> float:
    """Time evalica's bootstrap once, scaled to 1,000 resamples."""
    import evalica

    words = {"a": evalica.Winner.X, "b": evalica.Winner.Y, "tie": evalica.Winner.Draw}
    sides = (
        rows["responder_a"].tolist(),
        rows["responder_b"].tolist(),
        [words[word] for word in rows["verdict"]],
    )
    settings: dict[str, Any] = {
        "n_resamples": n_resamples,
        "bootstrap_method": "percentile",
        "random_state": 1,
    }
    start = time.perf_counter()
    evalica.bootstrap(evalica.bradley_terry, *sides, **settings)
    return (time.perf_counter() - start) * N_RESAMPLES / n_resamples


def elsewhere(sizes: dict[str, Any]) -> tuple[float, float, float]:
    """Fit a study of some size in a process of its own, and measure seconds and memory.

    Memory is in MB: above the table, and at the peak.
    """
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_fit, (sizes,))


def _fit(sizes: dict[str, Any]) -> tuple[float, float, float]:
    rows = simulate_study(
        rng=np.random.default_rng(2), panels=[Panel("human", 45, 2)], **sizes
    ).verdicts
    columns = ["responder_a", "responder_b", "verdict", "state", "p_a", "dimension", "dialogue_id"]
    rows = rows[columns].copy()
    before = _status("VmRSS")
    with open("/proc/self/clear_refs", "w") as forget:  # the peak is counted anew from here
        forget.write("5")
    spent = seconds(
        lambda: fit_ratings(rows, n_resamples=N_RESAMPLES, rng=np.random.default_rng(1)), 3
    )
    peak = _status("VmHWM")
    return spent, peak - before, peak


def _status(entry: str) -> float:
    """Read a size from Linux's account of this process, in MB."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith(entry))
