"""Scores on a scale and the gate: speed of HeartBench's board, and how often the gate is wrong."""

from __future__ import annotations

import multiprocessing
import resource
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks import Figure, seconds
from heart_utils.heartbench import rubric_board, score_rubric, simulate_hits
from heart_utils.simulate.coverage import NULLS, PATIENT_RULE, simulate_gate
from heart_utils.sources.codebooks import load_rubric_items

N_MODELS = 13
MAX_ALARMS = 64
"""Alarms in 1,000 nulls at 5 %: two standard errors above the 50 expected."""


def run(quick: bool) -> Iterator[Figure]:
    """Yield the figures; every hit and verdict behind them is simulated."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        spent, peak = pool.apply(_board)
    yield Figure(
        "13 models with 3,114 simulated hits each, 1,000 bootstraps",
        spent,
        "s",
        "within 5 s",
        spent <= 5,
    )
    yield Figure("peak memory of the process", peak, "MB", "under 1,000 MB", peak < 1000)
    n = 100 if quick else 1_000
    limit = MAX_ALARMS if n == 1_000 else 13
    settings: list[tuple[str, dict[str, Any]]] = [
        ("replies regenerated, 36 dialogues, one dimension", {"null": "regenerated"}),
        ("judges re-asked, 36 dialogues, one dimension", {"null": "re-asked"}),
        (
            "replies regenerated, 20 dialogues, six dimensions",
            {"n_dialogues": 20, "n_dimensions": 6},
        ),
        ("replies regenerated, 150 dialogues, one dimension", {"n_dialogues": 150}),
    ]
    for name, options in settings:
        runs = simulate_gate(n_studies=n, rng=np.random.default_rng(20260109), **options)
        alarms = int((~runs["passed"]).sum())
        target = f"at most {limit}"
        yield Figure(
            f"false alarms of the regression mode in {n:,} nulls: {name}",
            alarms,
            "",
            target,
            alarms <= limit,
        )
    not_worse = replace(PATIENT_RULE, mode="non-inferiority")
    at_margin: dict[str, Any] = {"rule": not_worse, "drop": 25.0}
    for null, n_dialogues in (("regenerated", 36), ("re-asked", 36), ("regenerated", 150)):
        runs = simulate_gate(
            null=null,
            n_studies=n,
            n_dialogues=n_dialogues,
            rng=np.random.default_rng(20260110),
            **at_margin,
        )
        wrong = int(runs["passed"].sum())
        name = (
            f"false passes of non-inferiority in {n:,} candidates 25 points worse: {null},"
            f" {n_dialogues} dialogues"
        )
        yield Figure(name, wrong, "", f"at most {limit}", wrong <= limit)
    for n_dialogues in (36, 150, 600):
        runs = simulate_gate(
            rule=not_worse,
            n_studies=n // 5,
            n_dialogues=n_dialogues,
            rng=np.random.default_rng(20260111),
        )
        yield Figure(
            f"equal candidates that pass a margin of 25 points, {n_dialogues} dialogues",
            100 * runs["passed"].mean(),
            "%",
        )
    for null in NULLS:
        runs = simulate_gate(
            null=null, n_studies=n // 10, n_runs=20, rng=np.random.default_rng(20260112)
        )
        alarm = ~runs["passed"]
        any_alarm = 100 * alarm.groupby(runs["study"]).any().mean()
        name, series = f"20 successive runs against one baseline, {null}", f"{n // 10} series"
        yield Figure(f"{name}: false alarms a run", 100 * alarm.mean(), "%", note=series)
        yield Figure(f"{name}: at least one in the series", any_alarm, "%", note=series)


def _board() -> tuple[float, float]:
    """Score and bootstrap in a process of its own, on a rubric of HeartBench's size."""
    rng = np.random.default_rng(1)
    questions = load_rubric_items()
    hits = simulate_hits(
        questions, {f"model {number}": number / 6 - 1 for number in range(N_MODELS)}, rng=rng
    )
    spent = seconds(
        lambda: rubric_board(score_rubric(questions, hits), n_resamples=1000, rng=rng), 3
    )
    return spent, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
