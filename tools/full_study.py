"""Draw a study of HEART's size into ``runs/full``, so that the chapters can be run on it.

``python -m tools.full_study`` writes tables in which every row is marked as simulated;
``make book RUN=full`` then runs the chapters that ``params/full.yaml`` lists.
"""

from __future__ import annotations

import sys

import numpy as np

from heart_utils.runs import Run, open_run
from heart_utils.simulate.full_study import add_times, simulate_heart

__all__ = ["write_full_study"]

TABLES = ("histories", "responders", "replies", "comparisons", "verdicts", "scores")
SEED = 20260109


def write_full_study(run: Run) -> list[str]:
    """Write the tables of a simulated study into a run.

    Parameters
    ----------
    run : Run
        Where to; its tables of these names are replaced.

    Returns
    -------
    list of str
        The tables that changed.
    """
    study = simulate_heart(rng=np.random.default_rng(SEED), scores=True)
    study = add_times(study, rng=np.random.default_rng([SEED, 1]))  # of its own, so that the votes stay as they were
    changed = [name for name in TABLES if run.write(name, getattr(study, name))]
    note = {"source": "a simulated study of HEART's size", "licence": "CC0-1.0", "origin": "simulated"}
    run.record(tables=dict.fromkeys(TABLES, note))
    return changed


def main() -> int:
    """Write ``runs/full``."""
    run = open_run("full")
    changed = write_full_study(run)
    print(f"{run.root}: simulated, {', '.join(changed) or 'nothing'} written anew.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
