"""The anytime gate: false stops of eight equal releases, drops found, dialogues needed.

Studies are drawn as by :func:`heart_utils.simulate.coverage.simulate_gate`, but as drops by
dialogue and not as tables.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats
from scipy.special import expit

from heart_utils.gate import follow_both_orders
from heart_utils.simulate.coverage import (
    CANDIDATE,
    HISTORY_SD,
    OPPONENTS,
    PATIENT_RULE,
    POSITION,
    REPLY_SD,
    gate_strengths,
    simulate_gate,
)
from tools.bench import Figure

N_RELEASES, N_FIXED, N_MOST, MARGIN = 8, 36, 108, 0.10


def run(quick: bool) -> Iterator[Figure]:
    """Yield false stops, and the share found of a drop and of its double.

    The fixed gate finds the drop four times in five.
    """
    n_teams, n_runs = (10, 20) if quick else (300, 400)
    for direct in (False, True):
        rng = np.random.default_rng(20260109)
        met = "and each other" if direct else "and not each other"
        outcomes = []
        for _ in range(n_teams):
            sides = _replies(0.0, N_RELEASES, rng)
            outcomes.append(
                [_stop(_drops(*sides, release, direct, rng))[1] for release in range(N_RELEASES)]
            )
        stopped = np.array(outcomes) == "failed"
        yield _share(
            f"teams with a false stop in 8 equal releases (3 opponents, {met})",
            stopped.any(axis=1),
            0.05,
            below=True,
        )
        yield _share(
            "  equal releases passed within 108 dialogues (margin 10 points)",
            np.array(outcomes) == "passed",
        )
        fixed = simulate_gate(
            n_studies=10 if quick else 40,
            n_dialogues=N_FIXED,
            rule=replace(PATIENT_RULE, n_resamples=200),
            direct=direct,
            rng=rng,
        )
        drop = float(fixed["se"].mean() * stats.t.ppf([0.95, 0.8], N_FIXED - 1).sum())
        yield Figure(
            f"  drop that the fixed gate finds 4 times in 5 with {N_FIXED} dialogues",
            drop,
            "points",
        )
        for times in (1, 2):
            gap = -float(gate_strengths(times * drop, direct)[CANDIDATE])
            drawn = [_drops(*_replies(gap, 1, rng), 0, direct, rng) for _ in range(n_runs)]
            p = [
                stats.ttest_1samp(drops[:N_FIXED], 0, alternative="greater").pvalue
                for drops in drawn
            ]
            yield _share(
                f"  found at {times} x that drop by one t test at 5 % / 8, {N_FIXED} dialogues",
                np.array(p) < 0.05 / N_RELEASES,
            )
            stops = [_stop(drops) for drops in drawn]
            after = np.array([number for number, _ in stops])
            failed = np.array([outcome == "failed" for _, outcome in stops])
            for most in (N_FIXED, 2 * N_FIXED, N_MOST):
                goal = 0.65 if times == 1 and most == N_MOST else None
                yield _share(
                    f"  found at {times} x that drop within {most} dialogues, any number of looks",
                    failed & (after <= most),
                    goal,
                )
            error = stats.sem(after)
            goal_said, met_goal = (
                ("below 36", bool(after.mean() + 2 * error < N_FIXED)) if times == 2 else ("", None)
            )
            yield Figure(
                f"  dialogues until a stop at {times} x that drop",
                after.mean(),
                "",
                goal_said,
                met_goal,
                f"+-{error:.1f}",
            )


def _replies(gap: float, n_releases: int, rng: np.random.Generator) -> tuple[Any, Any, Any, Any]:
    """Draw the quality of replies of baseline, releases and opponents, and the baseline's wins."""
    common = rng.normal(0, HISTORY_SD, N_MOST)
    baseline = common + rng.normal(0, REPLY_SD, N_MOST)
    releases = common - gap + rng.normal(0, REPLY_SD, (n_releases, N_MOST))
    opponents = OPPONENTS[:, None] + rng.normal(
        0, np.hypot(HISTORY_SD, REPLY_SD), (len(OPPONENTS), N_MOST)
    )
    return baseline, releases, opponents, _share_won(baseline, opponents, rng)


def _drops(
    baseline: Any,
    releases: Any,
    opponents: Any,
    won: Any,
    release: int,
    direct: bool,
    rng: np.random.Generator,
) -> Any:
    """Judge one release, and give the drop of each dialogue."""
    drops = won - _share_won(releases[release], opponents, rng)
    if direct:
        drops = np.vstack([drops, 2 * _share_won(baseline, releases[release][None], rng) - 1])
    return drops.mean(axis=0)


def _share_won(one: Any, others: Any, rng: np.random.Generator) -> Any:
    """Judge in both orders."""
    return sum(
        (rng.random(others.shape) < expit(one - others + lean)) / 2
        for lean in (POSITION, -POSITION)
    )


def _stop(drops: Any) -> tuple[int, str]:
    named = pd.Series(drops, index=[f"d{number:03}" for number in range(len(drops))])
    return follow_both_orders(named, 0.05 / N_RELEASES, 0.05, MARGIN)[1:]


def _share(name: str, happened: Any, goal: float | None = None, *, below: bool = False) -> Figure:
    """Return a share with its Monte Carlo error.

    It meets its goal if it is within two of them.
    """
    share = float(np.mean(happened))
    error = float(np.sqrt(max(share * (1 - share), 1 / happened.size) / len(happened)))
    if goal is None:
        return Figure(name, 100 * share, "%", note=f"+-{100 * error:.1f}")
    met = share <= goal + 2 * error if below else share >= goal - 2 * error
    return Figure(
        name,
        100 * share,
        "%",
        f"at {'most' if below else 'least'} {goal:.0%}",
        bool(met),
        f"+-{100 * error:.1f}",
    )
