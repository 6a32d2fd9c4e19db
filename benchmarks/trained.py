"""Prediction-powered ratings with a judge trained on the labels: coverage and widths.

Studies are simulated.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd
from scipy.special import expit

from benchmarks import Figure
from heart_collect.judging.trained import train_judge
from heart_utils.agreement.prediction_powered import prediction_powered_ratings
from heart_utils.ratings.verdicts import Array
from heart_utils.simulate.coverage import limiting_strengths

STRENGTHS = np.array([0.5, 0.0, -0.5])
NAMES = np.array(["x", "y", "z"])
PAIRS = np.triu_indices(3, k=1)
QUALITY_SD = 1.0
BIAS_SD = 1.0
N_DIALOGUES = 200
LABELLED = (40, 80)  # dialogues, of which people judge each pair once
N_WORDS = 12
LEAST_ERROR = (0.95 * 0.05) ** 0.5  # of one study, where each of a few studies held
GOOD = np.array(["listening", "hard", "alone", "together", "tonight"])
PLAIN = np.array(["work", "home", "school", "friends", "time"])


def run(quick: bool) -> Iterator[Figure]:
    """Yield coverage and widths with people alone and with several judges.

    A trained judge, an LLM judge, both, and one that saw its labels.
    """
    n_studies = 10 if quick else 200
    truth = pd.Series(limiting_strengths(STRENGTHS[None], QUALITY_SD, PAIRS), index=NAMES)
    for n_labelled in LABELLED:
        rng = np.random.default_rng([20260109, n_labelled])
        results = pd.DataFrame([measure(n_labelled, truth, rng) for _ in range(n_studies)])
        mean, error = results.mean(), results.sem()
        for judge in ("people", "trained", "llm", "both", "saw its labels"):
            holds, slack = (
                100.0 * mean[f"{judge} holds"],
                100.0 * max(error[f"{judge} holds"], LEAST_ERROR / n_studies**0.5),
            )
            asked = judge != "saw its labels"
            met = (
                bool(abs(holds - 95.0) <= 2.0 + (2.0 if quick else 1.0) * slack) if asked else None
            )
            width = mean[f"{judge} width"] / mean["people width"]
            note = f"+-{slack:.1f}; width {width:.3f} of people's alone, {n_studies} studies"
            yield Figure(
                f"{n_labelled} labelled, {judge}: holds",
                holds,
                "%",
                "93 to 97 %" if asked else "",
                met,
                note,
            )


def measure(n_labelled: int, truth: pd.Series, rng: np.random.Generator) -> dict[str, float]:
    """Draw a study, rate it in each way, and measure coverage and width of intervals."""
    replies, votes, by_llm = draw(rng)
    labelled = votes[votes["dialogue_id"].isin(replies["history_id"].unique()[:n_labelled])]
    judge = train_judge(
        replies, labelled, pairs=votes, features=count_words, leave_out=["dialogue_id"], n_folds=5
    )
    # The model of all labels, which a judge may not be asked about its own dialogues: asked under
    # other names.
    renamed = {"history_id": lambda rows: "again " + rows["history_id"]}
    again = judge.compare(votes.assign(**renamed), replies.assign(**renamed))
    saw = judge.predictions.assign(p_a=again["p_a"], verdict=again["verdict"])
    both = pd.concat([judge.predictions.assign(rater_kind="model"), by_llm], ignore_index=True)
    judges = {
        "trained": (judge.predictions, "trained"),
        "llm": (by_llm, "model"),
        "both": (both, "model"),
    }
    judges["saw its labels"] = (saw, "trained")
    row: dict[str, float] = {}
    for name, (answers, kind) in judges.items():
        table = prediction_powered_ratings(
            pd.concat([labelled, answers], ignore_index=True), judge=kind
        ).table
        at = table["responder"].map(truth)
        for part, low, high in (
            (name, "ci_low", "ci_high"),
            ("people", "people_low", "people_high"),
        ):
            row[f"{part} holds"] = float(at.between(table[low], table[high]).mean())
            row[f"{part} width"] = float((table[high] - table[low]).mean())
    return row


def count_words(texts: Sequence[str]) -> Array:
    """Return how often each word of the simulation is in each text."""
    words = [text.split() for text in texts]
    return np.array([[float(some.count(word)) for word in (*GOOD, *PLAIN)] for some in words])


def draw(rng: np.random.Generator) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Draw replies whose words follow their quality, people's votes, and a biased judge's.

    Each pair has one person's vote.
    """
    quality = STRENGTHS + rng.normal(0.0, QUALITY_SD, (N_DIALOGUES, 3))
    dialogues = np.array([f"h{number}" for number in range(N_DIALOGUES)])
    n_good = rng.binomial(N_WORDS, expit(quality))
    texts = [
        " ".join([*rng.choice(GOOD, n), *rng.choice(PLAIN, N_WORDS - n)]) for n in n_good.ravel()
    ]
    replies = pd.DataFrame(
        {
            "history_id": np.repeat(dialogues, 3),
            "responder": np.tile(NAMES, N_DIALOGUES),
            "text": texts,
        }
    )
    replies["reply_id"] = replies["history_id"] + "--" + replies["responder"]
    one, other = PAIRS
    gap = (quality[:, one] - quality[:, other]).ravel()
    bias = rng.normal(0.0, BIAS_SD, 3)
    dialogue = np.repeat(dialogues, len(one))
    a, b = np.tile(NAMES[one], N_DIALOGUES), np.tile(NAMES[other], N_DIALOGUES)

    def answers(rater: str, kind: str, chance: np.ndarray) -> pd.DataFrame:
        for_a = rng.random(len(gap)) < chance
        columns = {
            "history_id": dialogue,
            "dialogue_id": dialogue,
            "responder_a": a,
            "responder_b": b,
            "rater": rater,
        }
        columns |= {
            "verdict": np.where(for_a, "a", "b"),
            "rater_kind": kind,
            "dimension": "overall",
            "state": "valid",
        }
        rows = pd.DataFrame(columns)
        return rows.assign(
            pair_id=rows["history_id"] + "--" + rows["responder_a"] + "--" + rows["responder_b"]
        )

    lean = np.tile(bias[one] - bias[other], N_DIALOGUES)
    return (
        replies,
        answers("people", "human", expit(gap)),
        answers("llm", "model", expit(1.5 * gap + lean)),
    )
