"""How often the gate stops an equal candidate: once, and within eight releases.

All are compared with one baseline.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from heart_utils.simulate.coverage import PATIENT_RULE, simulate_gate
from tools.bench import Figure

N_RELEASES = 8


def run(quick: bool) -> Iterator[Figure]:
    """Yield shares of runs, and of teams, that are stopped although all candidates are equal."""
    n_teams = 20 if quick else 110
    rule = replace(PATIENT_RULE, n_resamples=200)
    rng = np.random.default_rng(20260109)
    runs = simulate_gate(n_studies=n_teams, n_runs=N_RELEASES, rule=rule, rng=rng)
    stopped = (~runs["passed"]).groupby(runs["study"]).sum()
    of_runs = stopped / N_RELEASES
    error = of_runs.std(ddof=1) / np.sqrt(n_teams)
    yield Figure(
        "runs stopped",
        100 * of_runs.mean(),
        "%",
        "at most 5 %",
        bool(of_runs.mean() <= 0.05 + 2 * error),
        f"+-{100 * error:.1f}",
    )
    for least in (1, 3):
        share = float((stopped >= least).mean())
        error = np.sqrt(share * (1 - share) / n_teams)
        name = (
            f"teams with {least} or more of {N_RELEASES} equal releases stopped ({n_teams} teams)"
        )
        yield Figure(
            name,
            100 * share,
            "%",
            note=f"+-{100 * error:.1f}; unshared luck would give at most 34 % with one or more",
        )
