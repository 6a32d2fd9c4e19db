"""Speed and memory of the ratings, beside evalica's bootstrap in one process."""

from __future__ import annotations

import multiprocessing
import resource
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from heart_utils.ratings.ratings import fit_ratings
from heart_utils.simulate.study import Panel, simulate_study
from tools.bench import Figure, seconds

N_RESAMPLES = 1_000


def run(quick: bool) -> Iterator[Figure]:
    """Yield the figures."""
    rows = simulate_study(rng=np.random.default_rng(20260109)).verdicts
    rng = np.random.default_rng(1)
    ours = seconds(lambda: fit_ratings(rows, n_resamples=N_RESAMPLES, rng=rng))
    name = "42,000 verdicts, 17 responders, 300 dialogues, 1,000 bootstraps"
    yield Figure(name, ours, "s", "within 0.5 s", ours <= 0.5)
    theirs = evalica_seconds(rows, 20 if quick else N_RESAMPLES)
    name = "the same in evalica.bootstrap (percentile, not clustered)"
    yield Figure(name, theirs, "s", note="scaled from 20" if quick else "")
    times = theirs / ours
    yield Figure("evalica's time over ours", times, "times", "at least 80", times >= 80)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        large, peak = pool.apply(_fit_a_million)
    name = "1,000,080 verdicts, 17 responders, 3,704 dialogues, 1,000 bootstraps"
    yield Figure(name, large, "s", "within 3 s", large <= 3)
    yield Figure("peak memory of the process that fits it", peak, "MB")


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


def _fit_a_million() -> tuple[float, float]:
    """Measure seconds and the peak of memory, in a process of its own."""
    rng = np.random.default_rng(2)
    panels = [Panel("human", 45, 2)]
    rows = simulate_study(rng=rng, n_dialogues=3_704, pairs=135, panels=panels).verdicts
    spent = seconds(lambda: fit_ratings(rows, n_resamples=N_RESAMPLES, rng=rng), 3)
    return spent, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
