"""Coverage of intervals: simulated studies with dialogue and rater effects."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from heart_utils.simulate.coverage import simulate_coverage
from heart_utils.simulate.study import Design
from tools.bench import Figure

SIZE, N_RATERS = 6, 45
PAIRS = SIZE * (SIZE - 1) // 2
BESIDE = {
    "dialogues": (
        "dialogues, sandwich",
        "dialogues, for other raters",
        "verdicts",
        "released formula",
    ),
    "dialogues and raters": ("dialogues and raters, product weights",),
}
TARGETS = {
    "dialogues": ("93 to 97 %", 93.0, 97.0),
    "dialogues and raters": ("at least 93 %", 93.0, 100.0),
}


def run(quick: bool) -> Iterator[Figure]:
    """Yield coverage in percent, one study design after the other; all verdicts are simulated."""
    n_studies = 50 if quick else 1000
    yield Figure(
        f"studies a design ({SIZE} responders, {N_RATERS} raters, all pairs in each dialogue)",
        n_studies,
        "",
    )
    for n_dialogues, dialogue_sd, rater_sd, votes in itertools.product(
        (18, 40, 300), (0.0, 0.4, 0.8), (0.0, 0.35), (3, 15)
    ):
        rng = np.random.default_rng(
            [n_dialogues, int(100 * dialogue_sd), int(100 * rater_sd), votes]
        )
        design = Design(n_dialogues, SIZE, PAIRS, votes, N_RATERS, dialogue_sd, rater_sd)
        coverage = simulate_coverage(design, rng=rng, n_studies=n_studies).set_index(
            ["interval", "quantity"]
        )
        share, error = 100.0 * coverage["coverage"], 100.0 * coverage["mc_error"]
        slack = 2.0 * error["dialogues", "strength"] if quick else 0.0
        for kind, (target, low, high) in TARGETS.items():
            strengths, differences = share[kind, "strength"], share[kind, "difference"]
            met = all(low - slack <= one <= high + slack for one in (strengths, differences))
            beside = "; ".join(f"{one} {share[one, 'strength']:.1f}" for one in BESIDE[kind])
            errors = error[kind, "strength"], error[kind, "difference"]
            note = f"+-{errors[0]:.1f}; differences {differences:.1f} +-{errors[1]:.1f}; {beside}"
            name = (
                f"{kind}: {n_dialogues} of SD {dialogue_sd}, {votes} votes a pair, raters' SD"
                f" {rater_sd}"
            )
            yield Figure(name, float(strengths), "%", target, met, note)
