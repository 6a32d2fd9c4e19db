"""How often a judge that may abstain errs more than stated, with votes in questions."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from benchmarks import Figure
from heart_utils.agreement.panel import calibrate_abstention

Array = NDArray[np.float64]

RISK, MOST = 0.1, 5.0
# Questions, spread of a question, intercept and slope of the log-odds to be wrong; with slope 0 any
# acceptance is one too many.
WORLDS = (
    (20, 0.7, -3.0, 3.0),
    (20, 1.5, -3.0, 3.0),
    (40, 0.0, -2.2, 2.0),
    (40, 0.7, -2.2, 2.0),
    (40, 1.5, -3.0, 3.0),
    # fmt: skip
    (100, 1.5, -3.0, 3.0),
    (20, 0.0, -2.18, 0.0),
    (40, 0.0, -2.18, 0.0),
    (100, 0.0, -2.18, 0.0),
)

WHOLE = (
    (0.105, 1.0, 0.0),
    (0.15, 0.7, 0.0),
    (0.21, 0.5, 0.0),
    (0.08, 1.0, 0.025),
    (0.06, 1.0, 0.045),
    (0.06, 1.0, 0.05),
    (0.04, 1.0, 0.066),
    (0.12, 0.5, 0.05),
    (0.2, 0.3, 0.053),
)
"""Shares of questions on which the judge errs, of wrong votes there, and elsewhere; the true risk
is a little above `RISK`."""
N_QUESTIONS, N_VOTES = (10, 20, 29, 30, 40, 50, 80), (5, 30)


def run(quick: bool) -> Iterator[Figure]:
    """Yield how often the true risk of accepted votes exceeds the stated one, and their share.

    Both are percentages of studies.
    """
    n_studies = 20 if quick else 1000
    yield from by_whole_questions(n_studies, quick)
    for n_questions, spread, base, slope in WORLDS:
        rng = np.random.default_rng([n_questions, int(10 * spread), int(slope)])
        wrong, confidence, _ = draw(rng, 20_000, spread, base, slope)
        order = np.argsort(-confidence)
        risk = np.cumsum(wrong[order]) / np.arange(1, len(order) + 1)
        for counted in ("by question", "as if independent"):
            exceeded, coverage = [], []
            for _ in range(n_studies):
                wrong_here, sure, question = draw(rng, n_questions, spread, base, slope)
                cluster = question if counted == "by question" else np.arange(len(wrong_here))
                thresholds = calibrate_abstention(wrong_here, sure, cluster, risk=RISK)
                least = thresholds["threshold"].where(thresholds["passed"]).min()
                n_taken = int((confidence >= least).sum())
                exceeded.append(n_taken > 0 and bool(slope == 0.0 or risk[n_taken - 1] > RISK))
                coverage.append(n_taken / len(confidence))
            share = 100 * float(np.mean(exceeded))
            error = 100 * float(np.std(exceeded) / np.sqrt(n_studies))
            name = (
                f"risk of {RISK:.0%} exceeded, {n_questions} questions, spread {spread}, slope"
                f" {slope:.0f}, {counted}"
            )
            note = f"± {error:.1f}; accepts {np.mean(coverage):.0%}"
            if counted == "by question" and not quick:
                yield Figure(
                    name, share, "%", f"at most {MOST:.0f} %", share <= MOST + 2 * error, note
                )
            else:
                yield Figure(name, share, "%", note=note)


def draw(
    rng: np.random.Generator, n: int, spread: float, base: float, slope: float
) -> tuple[Array, Array, NDArray[np.intp]]:
    """Draw votes: wrong or not, how sure the judge is, and the question."""
    question = np.repeat(np.arange(n), rng.integers(6, 42, n))
    sure = rng.random(len(question))
    chance = expit(base + rng.normal(0, spread, n)[question] + slope * (0.5 - sure))
    return (rng.random(len(question)) < chance).astype(float), sure, question


def by_whole_questions(n_studies: int, quick: bool) -> Iterator[Figure]:
    """Simulate a judge that errs on whole questions, always equally sure.

    The true risk is too high, so any acceptance is one too many.
    """
    for share, wrong_in_bad, wrong_in_good in WHOLE:
        for n_questions in N_QUESTIONS:
            for n_votes in N_VOTES:
                rng = np.random.default_rng([n_questions, n_votes, int(1000 * share)])
                question = np.repeat(np.arange(n_questions), n_votes)
                accepted = []
                for _ in range(n_studies):
                    bad = rng.random(n_questions) < share
                    wrong = (
                        rng.random(len(question))
                        < np.where(bad, wrong_in_bad, wrong_in_good)[question]
                    )
                    thresholds = calibrate_abstention(
                        wrong, np.ones(len(question)), question, risk=RISK
                    )
                    accepted.append(bool(thresholds["passed"].any()))
                percent = 100 * float(np.mean(accepted))
                error = 100 * float(np.std(accepted) / np.sqrt(n_studies))
                name = (
                    f"accepted, {n_questions} questions x {n_votes}, {share:.1%} go"
                    f" {wrong_in_bad:.0%} wrong, others {wrong_in_good:.1%}"
                )
                met = None if quick else percent <= MOST + 2 * error
                yield Figure(name, percent, "%", f"at most {MOST:.0f} %", met, f"± {error:.1f}")
