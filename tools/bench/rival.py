"""Shares of two authors from few labels and a judge: ours beside three other packages.

On the same draws (``pip install cje-eval fewhumans glide-py``; the last takes Python 3.12).
"""

from __future__ import annotations

import importlib.util
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import expit

from heart_utils import open_run, scores_to_verdicts
from heart_utils.agreement.prediction_powered import prediction_powered_ratings
from heart_utils.ratings.verdicts import Array
from tools.bench import Figure

QUALITY_SD = 1.0
LEAD = 0.5  # log-odds of x over y on average
DIMENSION, JUDGE, AUTHORS = "empathy", "gemini-2.5-flash", ("gpt-4o", "llama-3.1-8b")
N_LABELLED = 50
LAYOUTS = {
    "50 of 200 dialogues": (200, 1, 50),
    "15 of 100 dialogues, 4 votes in each": (100, 4, 15),
}
"""Name -> dialogues, votes in each, dialogues that people label."""


@dataclass(frozen=True)
class Study:
    """Answers about two authors, one a vote: 1 where a wins, 0 where b does."""

    people: Array
    judge: Array
    labelled: NDArray[np.bool_]  # whether people gave the answer
    dialogue: NDArray[np.int64]
    truth: float  # the share that a wins


Way = Callable[[Study], tuple[float, float, float]]
"""Estimate of the share that a wins, and its interval."""


def run(quick: bool) -> Iterator[Figure]:
    """Yield each method's results, in simulated studies and on labels of MentalAlign.

    The labels are hidden at random.
    """
    ways: dict[str, Way] = {"ours": by_ratings}
    for name, (module, way) in RIVALS.items():
        if importlib.util.find_spec(module) is None:
            note = f"`pip install {name}` beside this project, then again"
            yield Figure(f"{name} is not installed", float("nan"), "", "", None, note)
        else:
            ways[name] = way
    n_studies = 20 if quick else 200
    rng = np.random.default_rng(20260109)
    for layout, sizes in LAYOUTS.items():
        studies = [simulated(*sizes, rng) for _ in range(n_studies)]
        yield from compare(f"simulated, {layout}", ways, studies)
    people, judge = mentalalign()
    drawn = []
    for _ in range(n_studies):
        labelled = rng.permutation(len(people)) < N_LABELLED
        drawn.append(Study(people, judge, labelled, np.arange(len(people)), people.mean()))
    yield from compare(f"MentalAlign, {DIMENSION}", ways, drawn)


def compare(name: str, ways: dict[str, Way], studies: list[Study]) -> Iterator[Figure]:
    """Send the same studies through each way."""
    for who, way in ways.items():
        rows = []
        for study in studies:
            start = time.perf_counter()
            estimate, low, high = way(study)
            span = time.perf_counter() - start
            rows.append(
                {
                    "error": estimate - study.truth,
                    "width": high - low,
                    "holds": low <= study.truth <= high,
                    "ms": 1000 * span,
                }
            )
        results = pd.DataFrame(rows).astype(float)
        mean, error = results.mean(), results.sem()
        holds = f"+-{100 * error['holds']:.1f}; {len(results)} studies"
        yield Figure(f"{name}, {who}: holds", 100 * mean["holds"], "%", "", None, holds)
        yield Figure(f"{name}, {who}: mean width", 100 * mean["width"], "points", "", None, "")
        root = float(np.sqrt((results["error"] ** 2).mean()))
        bias = f"bias {100 * mean['error']:.2f} +-{100 * error['error']:.2f}"
        yield Figure(f"{name}, {who}: root mean square error", 100 * root, "points", "", None, bias)
        yield Figure(f"{name}, {who}: a study", results["ms"].median(), "ms", "", None, "median")


def by_ratings(study: Study) -> tuple[float, float, float]:
    """Rate two authors with prediction-powered ratings, and turn the difference into a share."""
    votes = pd.DataFrame({"dialogue_id": study.dialogue, "pair_id": np.arange(len(study.dialogue))})
    by_people = votes.assign(rater_kind="human", verdict=words(study.people), p_a=study.people)
    by_judge = votes.assign(rater_kind="model", verdict=words(study.judge), p_a=study.judge)
    both = pd.concat([by_people[study.labelled], by_judge], ignore_index=True)
    rows = both.assign(responder_a="a", responder_b="b", dimension="overall", state="valid")
    a = prediction_powered_ratings(rows).table.set_index("responder").loc["a"]
    # Strengths have mean zero, so the difference is twice one of them.
    estimate, low, high = expit(2.0 * a[["strength", "ci_low", "ci_high"]].to_numpy(float))
    return float(estimate), float(low), float(high)


def words(won: Array) -> Array:
    """Return the verdict that does not contradict a probability."""
    return np.select([won > 0.5, won < 0.5], ["a", "b"], "tie")


def by_cje(study: Study) -> tuple[float, float, float]:
    """Calibrate the judge's answers to the labels, by that package's defaults."""
    from cje import calibrated_mean_ci

    logging.getLogger("cje").setLevel(logging.ERROR)
    found = calibrated_mean_ci(study.judge, hidden(study), cluster_ids=study.dialogue)
    return float(found.estimate), float(found.ci[0]), float(found.ci[1])


def by_glide(study: Study) -> tuple[float, float, float]:
    """Correct the judge's mean by means of dialogues (PPI++)."""
    from glide.estimators import ClusteredPPIMeanEstimator

    found = ClusteredPPIMeanEstimator().estimate(hidden(study), study.judge, study.dialogue)
    interval = found.confidence_interval
    return float(found.mean), float(interval.lower_bound), float(interval.upper_bound)


def by_fewhumans(study: Study) -> tuple[float, float, float]:
    """Correct the judge's mean vote by vote (PPI++): that package knows no dialogues."""
    from fewhumans.estimators.pp_plus import ppi_plus_mean

    judge, labelled = study.judge, study.labelled
    found = ppi_plus_mean(judge[~labelled], study.people[labelled], judge[labelled])
    return float(found.value), float(found.lo), float(found.hi)


RIVALS: dict[str, tuple[str, Way]] = {
    "cje-eval": ("cje", by_cje),
    "glide-py": ("glide", by_glide),
    "fewhumans": ("fewhumans", by_fewhumans),
}
"""Package -> its module, and what is asked of it."""


def hidden(study: Study) -> Array:
    """Return people's answers, those that they did not give missing."""
    return np.where(study.labelled, study.people, np.nan)


def simulated(n_dialogues: int, votes: int, n_labelled: int, rng: np.random.Generator) -> Study:
    """Draw people's votes and a biased judge's probabilities; votes of a dialogue go together."""
    dialogue = np.repeat(np.arange(n_dialogues), votes)
    spread = np.sqrt(2.0) * QUALITY_SD
    gap = LEAD + spread * rng.normal(size=n_dialogues)[dialogue]
    people = (rng.random(len(gap)) < expit(gap)).astype(float)
    judge = expit(1.5 * gap + rng.normal(0.0, 1.0, len(gap)) - 1.0)
    labelled = rng.permutation(n_dialogues)[dialogue] < n_labelled
    points, weights = np.polynomial.hermite_e.hermegauss(40)
    truth = float((weights * expit(LEAD + spread * points)).sum() / weights.sum())
    return Study(people, judge, labelled, dialogue, truth)


def mentalalign() -> tuple[Array, Array]:
    """Return whom of two authors a clinician scored higher, and a judge's difference.

    Both are about the same questions.
    """
    scores = open_run("public").read("scores", "mentalalign")
    scores = scores[(scores["dimension"] == DIMENSION) & scores["responder"].isin(AUTHORS)]
    votes = scores_to_verdicts(scores[scores["rater"].isin(["clinicians", JUDGE])])
    won = votes.assign(won=votes["verdict"].map({"a": 1.0, "tie": 0.5, "b": 0.0}).astype(float))
    wide = won.pivot_table("won", "history_id", "rater").dropna()
    return wide["clinicians"].to_numpy(), wide[JUDGE].to_numpy()
