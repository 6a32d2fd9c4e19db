"""How often intervals hold the truth: simulated studies with dialogue effects, many times over."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from heart_utils.analysis.ratings import fit_ratings
from heart_utils.analysis.simulate import Panel, simulate_study
from tools.bench import Figure

DESIGNS = [(40, 0.0, 3), (40, 0.8, 3), (150, 0.8, 3), (150, 0.8, 15)]
"""Dialogues, standard deviation of dialogue effects in log-odds, votes a pair."""


def run(quick: bool) -> Iterator[Figure]:
    """Yield the coverage of intervals over dialogues, and of intervals over votes beside it."""
    n_studies = 40 if quick else 1000
    for n_dialogues, dialogue_sd, votes in DESIGNS:
        rng = np.random.default_rng([n_dialogues, int(10 * dialogue_sd), votes])
        held = pd.DataFrame([_study(rng, n_dialogues, dialogue_sd, votes) for _ in range(n_studies)])
        share, error = 100 * held.mean(), 100 * held.std() / np.sqrt(n_studies)
        slack = 2 * error["dialogue_id"] if quick else 0.0
        name = f"{n_dialogues} dialogues (SD {dialogue_sd}), {votes} votes a pair, {n_studies} studies, simulated"
        met = bool(93 - slack <= share["dialogue_id"] <= 97 + slack)
        note = f"+-{error['dialogue_id']:.1f}; over votes {share['vote']:.1f} +-{error['vote']:.1f}"
        yield Figure(name, float(share["dialogue_id"]), "%", "93 to 97 %", met, note)


def _study(rng: np.random.Generator, n_dialogues: int, dialogue_sd: float, votes: int) -> dict[str, float]:
    """Draw one study, and give the share of its 95 % intervals that hold the truth, by what is resampled."""
    study = simulate_study(
        rng=rng,
        n_responders=6,
        n_dialogues=n_dialogues,
        pairs="all",
        panels=[Panel("human", votes, votes)],
        dialogue_sd=dialogue_sd,
    )
    truth = study.truth.query("slice == 'standard' and rater_kind == 'human'").set_index("responder")["marginal"]
    verdicts = study.verdicts.assign(vote=range(len(study.verdicts)))
    held = {}
    for cluster in ("dialogue_id", "vote"):
        board = fit_ratings(verdicts, cluster=cluster, n_resamples=400, rng=rng).table
        true = board["responder"].map(truth)
        held[cluster] = float(true.between(board["ci_low"], board["ci_high"]).mean())
    return held
