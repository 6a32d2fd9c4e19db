"""How often prediction-powered intervals and ranks hold where a pair has few labelled dialogues."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.special import expit

from benchmarks import Figure
from heart_utils.agreement.prediction_powered import prediction_powered_ratings
from heart_utils.ratings.verdicts import AgreementError
from heart_utils.simulate.coverage import limiting_strengths

DIALOGUE_SD, STRENGTH_SD, BIAS_SD = 0.5, 0.6, 1.0
N_DIALOGUES = 300  # that the judge sees
MOST_FALSE = 5.0


@dataclass(frozen=True)
class Layout:
    """Some labelled dialogues, random pairs of responders in each, and people's votes on a pair."""

    n_responders: int
    n_labelled: int
    pairs: int
    votes: int
    judged: int  # pairs of a dialogue that the judge sees, those of people among them

    @property
    def dialogues_a_pair(self) -> float:
        """In how many labelled dialogues a pair is met, over all pairs."""
        return self.n_labelled * self.pairs / (self.n_responders * (self.n_responders - 1) / 2)


LAYOUTS = (
    Layout(17, 60, 10, 3, 10),  # HEART's
    Layout(17, 150, 10, 3, 10),
    Layout(8, 60, 2, 1, 2),
    Layout(5, 30, 1, 1, 10),
    Layout(5, 60, 1, 1, 10),
    Layout(5, 30, 2, 1, 10),
    Layout(6, 20, 5, 1, 15),
    Layout(3, 30, 1, 1, 3),
    Layout(4, 10, 3, 1, 6),
    Layout(5, 30, 10, 1, 10),
    Layout(5, 60, 10, 2, 10),
)


def run(quick: bool) -> Iterator[Figure]:
    """Yield coverage in percent, with the judge and without, and how often ranks are wrong."""
    n_studies = 20 if quick else 500
    for number, layout in enumerate(LAYOUTS):
        rng = np.random.default_rng([20260109, number])
        rows, refused = [], 0
        for _ in range(n_studies):
            verdicts, truth = draw(layout, rng)
            try:
                rows.append(measure(verdicts, truth))
            except AgreementError:
                refused += 1
        results = pd.DataFrame(rows)
        mean, error = 100.0 * results.mean(), 100.0 * results.sem()
        name = (
            f"{layout.n_responders} responders, {layout.n_labelled} x {layout.pairs} x"
            f" {layout.votes}"
        )
        least = f"least saving {results['saving'].min():.2f}"
        note = f"+-{error['powered']:.1f}; {layout.dialogues_a_pair:.1f} dialogues a pair; {least}"
        alone = (
            f"people alone {mean['people']:.1f} +-{error['people']:.1f}; {len(results)} studies,"
            f" {refused} refused"
        )
        met = bool(abs(mean["powered"] - 95.0) <= 2.0 + (2.0 if quick else 1.0) * error["powered"])
        yield Figure(
            f"intervals hold, {name}", mean["powered"], "%", "93 to 97 %", met, f"{note}; {alone}"
        )
        slack = 2.0 * np.sqrt(MOST_FALSE * (100.0 - MOST_FALSE) / len(results))
        met = bool(mean["false"] <= MOST_FALSE + slack)
        yield Figure(
            f"a range of ranks is wrong, {name}",
            mean["false"],
            "%",
            "at most 5 %",
            met,
            f"+-{error['false']:.1f}",
        )


def measure(verdicts: pd.DataFrame, truth: pd.Series) -> dict[str, float]:
    """Compute coverage, whether a range of ranks is wrong, and the judge's stated saving."""
    ratings = prediction_powered_ratings(verdicts)
    table, ranks = ratings.table.dropna(subset=["ci_low"]), ratings.ranks()
    at = table["responder"].map(truth)
    placed = truth.loc[ranks["responder"]].rank(ascending=False).to_numpy()
    wrong = (placed < ranks["rank_low"]) | (placed > ranks["rank_high"])
    return {
        "powered": float(at.between(table["ci_low"], table["ci_high"]).mean()),
        "people": float(at.between(table["people_low"], table["people_high"]).mean()),
        "false": float(wrong.any()),
        "saving": ratings.saving,
    }


def draw(layout: Layout, rng: np.random.Generator) -> tuple[pd.DataFrame, pd.Series]:
    """Draw votes of people and of a biased judge, and the truth for people.

    The judge is biased for or against each responder.
    """
    size = layout.n_responders
    names = np.array([f"responder {k:02d}" for k in range(size)], dtype=object)
    theta = rng.normal(0.0, STRENGTH_SD, size)
    one, other = np.triu_indices(size, k=1)
    strengths = theta + rng.normal(0.0, DIALOGUE_SD, (N_DIALOGUES, size))
    order = np.argsort(rng.random((N_DIALOGUES, len(one))), axis=1)
    bias = rng.normal(0.0, BIAS_SD, size)

    def vote(
        kind: str, n_dialogues: int, pairs: int, votes: int, sharpness: float, lean: np.ndarray
    ) -> pd.DataFrame:
        dialogue = np.repeat(np.arange(n_dialogues), pairs * votes)
        pair = np.repeat(order[:n_dialogues, :pairs].ravel(), votes)
        a, b = one[pair], other[pair]
        gap = sharpness * (strengths[dialogue, a] - strengths[dialogue, b]) + lean[a] - lean[b]
        won = rng.random(len(gap)) < expit(gap)
        columns = {
            "dialogue_id": dialogue,
            "responder_a": names[a],
            "responder_b": names[b],
            "rater_kind": kind,
        }
        return pd.DataFrame(
            columns | {"dimension": "overall", "verdict": np.where(won, "a", "b"), "state": "valid"}
        )

    people = vote("human", layout.n_labelled, layout.pairs, layout.votes, 1.0, np.zeros(size))
    judge = vote("model", N_DIALOGUES, layout.judged, 1, 1.5, bias)
    verdicts = pd.concat([people, judge], ignore_index=True)
    return verdicts, pd.Series(
        limiting_strengths(theta[None], DIALOGUE_SD, (one, other)), index=names
    )
