"""How often a study finds the smallest gap that the book prints for its design.

Studies are simulated.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

from heart_utils.ratings.ratings import POINTS
from heart_utils.simulate.coverage import simulate_power
from heart_utils.simulate.study import Design, calibrate, minimum_gap
from tools.bench import Figure

PROMISED, NEAR = 0.8, 0.03
SMALLER: dict[str, Any] = {"dialogue_sd": 0.5, "rater_sd": 0.35}


def run(quick: bool) -> Iterator[Figure]:
    """Yield the share of studies that find the gap, by the leaderboard and by one named pair.

    The shares are percentages.
    """
    n_studies = 40 if quick else 500
    published = {"dialogue_sd": calibrate().dialogue_sd, "tie_share": 0.174}
    designs = {
        "HEART's margins, 280 dialogues, 10 pairs, 15 votes": Design(
            280, 17, 10, 15, 300, **published
        ),
        "HEART's margins, 300 dialogues, 136 pairs, 1 vote": Design(
            300, 17, 136, 1, 300, **published
        ),
        "our guesses, 280 dialogues, 10 pairs, 15 votes": Design(280, 17, 10, 15, 45),
        "our guesses, 300 dialogues, 136 pairs, 1 vote": Design(300, 17, 136, 1, 45),
        "sparse, 82 dialogues, 10 pairs, 1 vote": Design(82, 17, 10, 1, 45, **SMALLER),
        "sparse, 120 dialogues, 10 pairs, 1 vote": Design(120, 17, 10, 1, 45, **SMALLER),
        "sparse, 120 dialogues, 10 pairs, 3 votes": Design(120, 17, 10, 3, 45, **SMALLER),
        "sparse, 280 dialogues, 10 pairs, 3 votes": Design(280, 17, 10, 3, 45, **SMALLER),
        "120 dialogues, 47 pairs, 1 vote": Design(120, 17, 47, 1, 45, **SMALLER),
        "6 responders, 60 dialogues, all pairs, 3 votes": Design(60, 6, 15, 3, 45, **SMALLER),
        "6 responders, 40 dialogues, all pairs, 2 votes, no tastes": Design(
            40, 6, 15, 2, 40, dialogue_sd=0.5, rater_sd=0.0
        ),
        "10 responders, 100 dialogues, 10 pairs, 3 votes": Design(100, 10, 10, 3, 40, **SMALLER),
    }
    rules = {"all pairs": None, "one": 1}
    for (name, design), (rule, n_contrasts) in product(designs.items(), rules.items()):
        gap = minimum_gap(design, n_contrasts=n_contrasts)
        rng = np.random.default_rng([n_contrasts or 0, *map(ord, name)])
        shares = simulate_power(design, gap, rng=rng, n_studies=n_studies, n_contrasts=n_contrasts)[
            "found"
        ].mean()
        error = np.sqrt(PROMISED * (1 - PROMISED) / n_studies)
        met = bool(abs(shares - PROMISED) <= NEAR + (2 * error if quick else error))
        apart, met_in = (
            f"{POINTS * gap:.0f} points apart",
            f"{design.dialogues_a_pair:.0f} dialogues a pair",
        )
        note = f"+-{100 * error:.1f}; {n_studies} studies {apart}, {met_in}"
        yield Figure(f"{rule}: {name}", 100 * shares, "%", "80 +- 3 %", met, note)
