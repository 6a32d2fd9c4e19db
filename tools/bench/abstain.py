"""How often a judge that may abstain errs more than was stated, with votes that come in questions."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from heart_utils.agreement.panel import calibrate_abstention
from tools.bench import Figure

Array = NDArray[np.float64]

RISK, MOST = 0.1, 5.0
# Questions, spread of a question, intercept and slope of the log-odds to be wrong; with slope 0 any acceptance is one too many.
WORLDS = ((20, 0.7, -3.0, 3.0), (20, 1.5, -3.0, 3.0), (40, 0.0, -2.2, 2.0), (40, 0.7, -2.2, 2.0), (40, 1.5, -3.0, 3.0),
          (100, 1.5, -3.0, 3.0), (20, 0.0, -2.18, 0.0), (40, 0.0, -2.18, 0.0), (100, 0.0, -2.18, 0.0))  # fmt: skip


def run(quick: bool) -> Iterator[Figure]:
    """Yield in percent of studies how often the true risk of what is accepted exceeds the stated one, and what is accepted."""
    n_studies = 20 if quick else 1000
    for n_questions, spread, base, slope in WORLDS:
        rng = np.random.default_rng([n_questions, int(10 * spread), int(slope)])
        wrong, confidence, _ = draw(rng, 20_000, spread, base, slope)
        order = np.argsort(-confidence)
        risk = np.cumsum(wrong[order]) / np.arange(1, len(order) + 1)
        for counted in ("by question", "as if independent"):
            exceeded, coverage = [], []
            for _ in range(n_studies):
                said, sure, question = draw(rng, n_questions, spread, base, slope)
                cluster = question if counted == "by question" else np.arange(len(said))
                found = calibrate_abstention(said, sure, cluster, risk=RISK)
                least = found["threshold"].where(found["passed"]).min()
                n_taken = int((confidence >= least).sum())
                exceeded.append(n_taken > 0 and bool(slope == 0.0 or risk[n_taken - 1] > RISK))
                coverage.append(n_taken / len(confidence))
            share = 100 * float(np.mean(exceeded))
            error = 100 * float(np.std(exceeded) / np.sqrt(n_studies))
            name = f"risk of {RISK:.0%} exceeded, {n_questions} questions, spread {spread}, slope {slope:.0f}, {counted}"
            note = f"± {error:.1f}; accepts {np.mean(coverage):.0%}"
            if counted == "by question" and not quick:
                yield Figure(name, share, "%", f"at most {MOST:.0f} %", share <= MOST + 2 * error, note)
            else:
                yield Figure(name, share, "%", note=note)


def draw(rng: np.random.Generator, n: int, spread: float, base: float, slope: float) -> tuple[Array, Array, NDArray[np.intp]]:
    """Draw votes: wrong or not, how sure the judge is, and the question."""
    question = np.repeat(np.arange(n), rng.integers(6, 42, n))
    sure = rng.random(len(question))
    chance = expit(base + rng.normal(0, spread, n)[question] + slope * (0.5 - sure))
    return (rng.random(len(question)) < chance).astype(float), sure, question
