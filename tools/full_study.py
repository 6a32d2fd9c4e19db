"""Draw a study of HEART's size into ``runs/full``, so that the chapters can be run on it.

``python -m tools.full_study`` writes tables in which every row is marked as simulated;
``make book RUN=full`` then runs the chapters that ``params/full.yaml`` lists.
"""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pandas as pd

from heart_utils.runs import Run, open_run
from heart_utils.simulate.study import Study, simulate_heart

__all__ = ["write_full_study"]

TABLES = ("histories", "responders", "replies", "comparisons", "verdicts", "scores")
SEED = 20260109
N_MAKERS = 5
LATENCY_RHO = 0.53
MEDIAN_MS, MEDIAN_SD, REPLY_SD = 800.0, 0.9, 0.3


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
    # of its own, so that the votes stay as they were
    study = add_times(study, rng=np.random.default_rng([SEED, 1]))
    changed = [name for name in TABLES if run.write(name, getattr(study, name))]
    note = {
        "source": "a simulated study of HEART's size",
        "licence": "CC0-1.0",
        "origin": "simulated",
    }
    run.record(tables=dict.fromkeys(TABLES, note))
    return changed


def add_times(study: Study, *, rng: np.random.Generator, rho: float = LATENCY_RHO) -> Study:
    """Name makers of a study's models, and add times to its replies.

    The times are those to the first word and to the last.
    """
    truth = study.truth[
        (study.truth["slice"] == "standard") & (study.truth["rater_kind"] == "human")
    ]
    strength = truth.drop_duplicates("responder").set_index("responder")["strength"]
    models = study.responders.loc[
        study.responders["responder_kind"] == "model", "responder"
    ].tolist()
    common = 2.0 * np.sin(np.pi * rho / 6.0)  # of two normals whose ranks correlate so
    score = (strength[models] - strength[models].mean()) / strength[models].std()
    level = pd.Series(
        common * score + np.sqrt(1.0 - common**2) * rng.normal(size=len(models)), index=models
    )
    makers = pd.Series(rng.permutation(np.resize(np.arange(N_MAKERS), len(models))), index=models)
    responders = study.responders.copy()
    made = responders["responder"].map(makers)
    responders["family"] = responders["family"].where(
        made.isna(), "maker_" + (made + 1).astype("Int64").astype("str")
    )
    first = np.exp(
        np.log(MEDIAN_MS)
        + MEDIAN_SD * study.replies["responder"].map(level)
        + REPLY_SD * rng.normal(size=len(study.replies))
    )
    replies = study.replies.assign(
        ttft_ms=first, total_ms=first + 1500.0 * np.exp(REPLY_SD * rng.normal(size=len(first)))
    )
    replies["total_ms"] = replies["total_ms"].where(first.notna())
    return replace(study, responders=responders, replies=replies)


def main() -> int:
    """Write ``runs/full``."""
    run = open_run("full")
    changed = write_full_study(run)
    print(f"{run.folder}: simulated, {', '.join(changed) or 'nothing'} written anew.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
