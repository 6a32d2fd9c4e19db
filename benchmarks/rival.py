"""Shares of two authors from few labels and a judge: ours beside ``cje-eval``.

On the same draws (``pip install cje-eval``).
"""

from __future__ import annotations

import importlib.util
import logging
import time
from collections.abc import Callable, Iterator

import numpy as np
import pandas as pd
from scipy.special import expit

from benchmarks import Figure
from heart_utils import open_run, scores_to_verdicts
from heart_utils.agreement.prediction_powered import prediction_powered_ratings
from heart_utils.ratings.verdicts import Array

N_DIALOGUES, N_LABELLED = 200, 50
QUALITY_SD = 1.0
LEAD = 0.5  # log-odds of x over y on average
DIMENSION, JUDGE, AUTHORS = "empathy", "gemini-2.5-flash", ("gpt-4o", "llama-3.1-8b")
Way = Callable[[Array, Array, Array], tuple[float, float, float]]
"""People's answers (1 if a wins), the judge's, and which people gave -> estimate of the share that
a wins, and its interval."""


def run(quick: bool) -> Iterator[Figure]:
    """Yield each method's results, in simulated studies and on labels of MentalAlign.

    The labels are hidden at random.
    """
    if importlib.util.find_spec("cje") is None:
        note = "cje-eval is not installed; `pip install cje-eval` beside this project, then again"
        yield Figure("compared with cje-eval", float("nan"), "", "", None, note)
        return
    ways: dict[str, Way] = {"ours": by_ratings, "cje-eval": by_cje}
    n_studies = 20 if quick else 300
    rng = np.random.default_rng(20260109)
    truth = float(
        expit(
            LEAD + np.sqrt(2.0) * QUALITY_SD * np.random.default_rng(1).normal(size=1_000_000)
        ).mean()
    )
    yield from compare("simulated", ways, [(*simulated(rng), truth) for _ in range(n_studies)])
    people, judge = mentalalign()
    drawn = [
        (people, judge, some_labelled(len(people), rng), float(people.mean()))
        for _ in range(n_studies)
    ]
    yield from compare(f"MentalAlign, {DIMENSION}", ways, drawn)


def compare(
    name: str, ways: dict[str, Way], studies: list[tuple[Array, Array, Array, float]]
) -> Iterator[Figure]:
    """Send the same studies through each way."""
    for who, way in ways.items():
        rows = []
        for people, judge, labelled, truth in studies:
            start = time.perf_counter()
            estimate, low, high = way(people, judge, labelled)
            span = time.perf_counter() - start
            rows.append(
                {
                    "error": estimate - truth,
                    "width": high - low,
                    "holds": low <= truth <= high,
                    "ms": 1000 * span,
                }
            )
        results = pd.DataFrame(rows).astype(float)
        mean, error = results.mean(), results.sem()
        about = f"{len(results)} studies"
        yield Figure(
            f"{name}, {who}: holds",
            100 * mean["holds"],
            "%",
            "",
            None,
            f"+-{100 * error['holds']:.1f}; {about}",
        )
        yield Figure(
            f"{name}, {who}: mean width",
            100 * mean["width"],
            "points",
            "",
            None,
            "of a share in percent",
        )
        root = float(np.sqrt((results["error"] ** 2).mean()))
        bias = f"bias {100 * mean['error']:.2f} +-{100 * error['error']:.2f}"
        yield Figure(f"{name}, {who}: root mean square error", 100 * root, "points", "", None, bias)
        yield Figure(f"{name}, {who}: a study", results["ms"].median(), "ms", "", None, "median")


def by_ratings(people: Array, judge: Array, labelled: Array) -> tuple[float, float, float]:
    """Rate two authors with prediction-powered ratings, and turn the difference into a share."""
    dialogues = np.arange(len(people))
    both = [("human", people[labelled], dialogues[labelled]), ("model", judge, dialogues)]
    rows = pd.concat(
        [
            pd.DataFrame(
                {"dialogue_id": where, "rater_kind": kind, "verdict": words(won), "p_a": won}
            )
            for kind, won, where in both
        ],
        ignore_index=True,
    ).assign(responder_a="a", responder_b="b", dimension="overall", state="valid")
    a = prediction_powered_ratings(rows).table.set_index("responder").loc["a"]
    # Strengths have mean zero, so the difference is twice one of them.
    estimate, low, high = expit(2.0 * a[["strength", "ci_low", "ci_high"]].to_numpy(float))
    return float(estimate), float(low), float(high)


def words(won: Array) -> Array:
    """Return the verdict that does not contradict a probability."""
    return np.select([won > 0.5, won < 0.5], ["a", "b"], "tie")


def by_cje(people: Array, judge: Array, labelled: Array) -> tuple[float, float, float]:
    """Calibrate the judge's answers to the labels, by that package's defaults."""
    from cje import calibrated_mean_ci

    logging.getLogger("cje").setLevel(logging.ERROR)
    labels = np.full(len(people), np.nan)
    labels[labelled] = people[labelled]
    estimate = calibrated_mean_ci(judge, labels)
    return float(estimate.estimate), float(estimate.ci[0]), float(estimate.ci[1])


def some_labelled(n: int, rng: np.random.Generator) -> Array:
    """Draw which dialogues people label."""
    return np.asarray(rng.permutation(n) < N_LABELLED)


def simulated(rng: np.random.Generator) -> tuple[Array, Array, Array]:
    """Draw one vote of a person and a biased judge's probability for each dialogue."""
    gap = LEAD + rng.normal(0.0, np.sqrt(2.0) * QUALITY_SD, N_DIALOGUES)
    people = (rng.random(N_DIALOGUES) < expit(gap)).astype(float)
    judge = expit(1.5 * gap + rng.normal(0.0, 1.0, N_DIALOGUES) - 1.0)
    return people, judge, some_labelled(N_DIALOGUES, rng)


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
