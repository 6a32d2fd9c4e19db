"""Bias of estimated spreads between dialogues, and coverage of their intervals.

Studies are simulated.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
from scipy.special import expit

from benchmarks import Figure
from heart_utils.ratings.standings import consistency

# responders, dialogues, their standard deviation in log-odds, pairs a dialogue (0: all), votes a
# pair
DESIGNS = {
    "5 responders, 80 dialogues of SD 0.6, all pairs, 3 votes": (5, 80, 0.6, 0, 3),
    "8 responders, 100 dialogues of SD 0.8, all pairs, 3 votes": (8, 100, 0.8, 0, 3),
    "8 responders, 100 dialogues of SD 0.8, all pairs, 1 vote": (8, 100, 0.8, 0, 1),
    "6 responders, 300 dialogues of SD 0.5, 10 of 15 pairs, 15 votes": (6, 300, 0.5, 10, 15),
    "17 responders, 300 dialogues of SD 0.8, 10 of 136 pairs, 15 votes": (17, 300, 0.8, 10, 15),
}


def run(quick: bool) -> Iterator[Figure]:
    """Yield bias and coverage in percent, one design after the other.

    Every verdict here is simulated.
    """
    n_studies = 20 if quick else 300
    for number, (name, design) in enumerate(DESIGNS.items()):
        rng = np.random.default_rng([20260109, number])
        strengths = np.linspace(0.8, -0.8, design[0])
        truth = _truth(strengths, design[2], rng)
        spreads = [
            consistency(_study(strengths, *design[1:], rng), rng=rng, n_resamples=300)
            for _ in range(n_studies)
        ]
        for row, measure in enumerate(("sd", "tenth")):
            value = np.array([table[measure] for table in spreads]) / truth[row] - 1.0
            inside = np.array(
                [
                    table[f"{measure}_low"].le(truth[row]) & table[f"{measure}_high"].ge(truth[row])
                    for table in spreads
                ]
            )
            error = [
                100.0 * of.mean(axis=1).std(ddof=1) / np.sqrt(n_studies) for of in (value, inside)
            ]
            slack = 2.0 * error[1] if quick else 0.0
            bias, held = 100.0 * value.mean(), 100.0 * inside.mean()
            if measure == "sd":
                met = abs(bias) <= 2.0 + (2.0 * error[0] if quick else 0.0)
                yield Figure(
                    f"{name}: bias of the spread", bias, "%", "within 2 %", met, f"+-{error[0]:.1f}"
                )
            met = held >= 93.0 - slack
            yield Figure(
                f"{name}: coverage of {measure}",
                held,
                "%",
                "at least 93 %",
                met,
                f"+-{error[1]:.1f}",
            )


def _study(
    strengths: np.ndarray,
    n_dialogues: int,
    sd: float,
    n_pairs: int,
    n_votes: int,
    rng: np.random.Generator,
) -> pd.DataFrame:
    """Draw the verdicts of one study with an effect of each dialogue on each responder."""
    one, other = np.triu_indices(len(strengths), 1)
    own_strengths = strengths + sd * rng.normal(size=(n_dialogues, len(strengths)))
    order = rng.random((n_dialogues, len(one))).argsort(axis=1)[:, : n_pairs or len(one)]
    dialogue, pair = (
        np.repeat(np.arange(n_dialogues), order.shape[1] * n_votes),
        np.repeat(order.ravel(), n_votes),
    )
    a, b = one[pair], other[pair]
    won = rng.random(len(pair)) < expit(own_strengths[dialogue, a] - own_strengths[dialogue, b])
    names = np.array([f"r{number:02d}" for number in range(len(strengths))])
    return pd.DataFrame(
        {
            "dialogue_id": dialogue,
            "responder_a": names[a],
            "responder_b": names[b],
            "verdict": np.where(won, "a", "b"),
        }
    )


def _truth(strengths: np.ndarray, sd: float, rng: np.random.Generator) -> np.ndarray:
    """Compute spread and low end of each win probability over very many dialogues."""
    own_strengths = strengths + sd * rng.normal(size=(100_000, len(strengths)))
    mean = np.stack(
        [
            expit(own_strengths[:, [i]] - np.delete(own_strengths, i, axis=1)).mean(axis=1)
            for i in range(len(strengths))
        ],
        axis=1,
    )
    return np.stack([mean.std(axis=0), np.quantile(mean, 0.1, axis=0)])
