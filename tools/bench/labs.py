"""A leaderboard of few labs: how often intervals over labs include the rating of 300 labs."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from heart_utils.ratings.ratings import fit_ratings
from heart_utils.simulate.study import Panel, simulate_study
from tools.bench import Figure

STRENGTHS = {"w": 0.6, "x": 0.2, "y": -0.2, "z": -0.6}
LAB_SD = 0.3
"""How far a responder is off in a lab, log-odds."""


def run(quick: bool) -> Iterator[Figure]:
    """Yield coverage of intervals over two, three and six labs, beside those over dialogues."""
    n_pools, rng = 5 if quick else 60, np.random.default_rng(20260109)
    many = fit_ratings(_pool(20 if quick else 300, rng), n_resamples=0).strength
    for n_labs in (2, 3, 6):
        held: dict[str, list[bool]] = {"group": [], "dialogue_id": []}
        for _ in range(n_pools):
            verdicts = _pool(n_labs, rng)
            for cluster, seen in held.items():
                table = fit_ratings(verdicts, cluster=cluster, n_resamples=200, rng=rng).table
                seen.extend(table["responder"].map(many).between(table["ci_low"], table["ci_high"]))
        for cluster, seen in held.items():
            share = float(np.mean(seen))
            # responders of a pool share its labs
            error = float(np.sqrt(max(share * (1 - share), 0.01) / n_pools))
            met = bool(share >= 0.93 - 2 * error) if cluster == "group" else None
            name = (
                f"intervals over {'labs' if cluster == 'group' else 'dialogues'} that include the"
                f" truth, {n_labs} labs"
            )
            yield Figure(
                name,
                100 * share,
                "%",
                "at least 93 %" if met is not None else "",
                met,
                f"+-{100 * error:.1f}",
            )


def _pool(n_labs: int, rng: np.random.Generator) -> pd.DataFrame:
    labs = []
    for lab in range(n_labs):
        strengths = {name: strength + rng.normal(0, LAB_SD) for name, strength in STRENGTHS.items()}
        study = simulate_study(
            rng=rng, strengths=strengths, n_dialogues=30, pairs="all", panels=[Panel("model", 1, 1)]
        )
        labs.append(study.verdicts.assign(group=f"lab {lab}"))
    return pd.concat(labs, ignore_index=True)
