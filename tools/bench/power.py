"""How often a study finds the smallest gap that the book prints for its design: simulated studies."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from heart_utils.ratings.ratings import POINTS
from heart_utils.simulate.coverage import simulate_power
from heart_utils.simulate.full_study import calibrate
from heart_utils.simulate.power import Design, minimum_gap
from tools.bench import Figure

PROMISED, NEAR = 0.8, 0.03


def run(quick: bool) -> Iterator[Figure]:
    """Yield the share of studies, in percent, in which the leaderboard's rule and a test of one named pair find the gap."""
    n_studies = 40 if quick else 500
    published = {"dialogue_sd": calibrate().dialogue_sd, "tie_share": 0.174}
    designs = {
        "HEART's margins, 280 dialogues, 10 pairs, 15 votes": Design(280, 17, 10, 15, 300, **published),
        "HEART's margins, 300 dialogues, 136 pairs, 1 vote": Design(300, 17, 136, 1, 300, **published),
        "our guesses, 280 dialogues, 10 pairs, 15 votes": Design(280, 17, 10, 15, 45),
        "our guesses, 300 dialogues, 136 pairs, 1 vote": Design(300, 17, 136, 1, 45),
    }
    for (name, design), (rule, n_contrasts) in ((d, r) for d in designs.items() for r in {"all pairs": None, "one": 1}.items()):
        gap = minimum_gap(design, n_contrasts=n_contrasts)
        rng = np.random.default_rng([n_contrasts or 0, *map(ord, name)])
        found = simulate_power(design, gap, rng=rng, n_studies=n_studies, n_contrasts=n_contrasts)["found"].mean()
        error = np.sqrt(PROMISED * (1 - PROMISED) / n_studies)
        met = bool(abs(found - PROMISED) <= NEAR + (2 * error if quick else error))
        note = f"+-{100 * error:.1f}; {n_studies} studies {POINTS * gap:.0f} points apart"
        yield Figure(f"{rule}: {name}", 100 * found, "%", "80 +- 3 %", met, note)
