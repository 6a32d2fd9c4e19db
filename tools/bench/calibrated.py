"""Effects of a judge's errors on the gate, by the judge's lead.

Coverage of two corrections, false stops and false passes.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import expit

from heart_collect.judging.calibration import LabelSource, calibrate_judge
from heart_utils.gate import GateRule, compare_responders, decide_drops
from heart_utils.ratings.ratings import POINTS, fit_ratings
from heart_utils.report.calibration import powered_drops
from tools.bench import Figure

NAMES = ("old", "new", "x", "y")
STRENGTHS = np.array([0.1, 0.1, 0.6, -0.6])
SPREAD = 1.5  # of replies about their author's strength, in log-odds
# a judge that reads sees a difference between replies so many times as clearly as one person
SHARPNESS = 3.0
CERTAINTY = 12.0  # a judge that knows the names takes the author that it believes in nearly always
GATE, CALIBRATION = ((0, 2), (0, 3), (1, 2), (1, 3)), ((0, 2), (0, 3), (2, 3))
N_JUDGED, N_LABELLED = 300, 75  # dialogues of the gate; people label 300 votes in either case
DROP = 60.0  # rating points by which a worse candidate is worse among people's votes
JUDGES = {"0.00": 0.0, "0.02": 0.12, "0.10": 0.585}
"""Lead over the authors' names -> share of pairs on which the judge reads; elsewhere it goes by
the names alone."""
LEANS = {"none": 0.0, "for the candidate": 0.4, "against it": -0.4}
"""What the judge believes of the candidate, in log-odds over the truth of the baseline."""
WHAT = {"model": "m", "prompt": "p", "rubric": "r", "options": "none"}


@dataclass(frozen=True)
class World:
    """A judge, and how much worse the candidate is in log-odds of one reply against another."""

    reads: float
    lean: float
    drop: float

    def draw(
        self, rng: np.random.Generator, n_dialogues: int, pairs: tuple[tuple[int, int], ...]
    ) -> pd.DataFrame:
        """Draw who is preferred on each pair: by a person, and by the judge."""
        strength = STRENGTHS - self.drop * np.eye(4)[1]
        belief = STRENGTHS + self.lean * np.eye(4)[1]
        quality = rng.normal(strength, SPREAD, (n_dialogues, 4))
        parts = []
        for one, other in pairs:
            gap = quality[:, one] - quality[:, other]
            person = rng.random(n_dialogues) < expit(gap)
            by_reading = rng.random(n_dialogues) < expit(SHARPNESS * gap)
            by_name = rng.random(n_dialogues) < expit(CERTAINTY * (belief[one] - belief[other]))
            judge = np.where(rng.random(n_dialogues) < self.reads, by_reading, by_name)
            answers = {
                "order": None,
                "dialogue_id": [f"d{number}" for number in range(n_dialogues)],
                "person": person,
                "judge": judge,
            }
            parts.append(
                pd.DataFrame({**answers, "responder_a": NAMES[one], "responder_b": NAMES[other]})
            )
        return pd.concat(parts, ignore_index=True)


def run(quick: bool) -> Iterator[Figure]:
    """Yield leads, coverage and width of intervals of the drop, and errors of three gates.

    False stops and false passes.
    """
    n_studies = 4 if quick else 100
    worse = find_drop()
    gc.freeze()  # statsmodels collects garbage at each Holm correction, which took half of the time
    for lead, reads in JUDGES.items():
        pairs = World(reads, 0.0, 0.0).draw(np.random.default_rng(1), 60_000, CALIBRATION)
        share = pairs.groupby(["responder_a", "responder_b"])["person"].mean()
        names = np.maximum(share, 1.0 - share).mean()
        lead_drawn = float((pairs["person"] == pairs["judge"]).mean() - names)
        yield Figure(
            f"lead of the judge {lead}",
            lead_drawn,
            "",
            f"{lead}",
            None if quick else abs(lead_drawn - float(lead)) < 0.006,
        )
    for lead, reads in JUDGES.items():
        for lean, towards in LEANS.items():
            for kind, drop, points in (("equal", 0.0, 0.0), ("worse", worse, DROP)):
                if (lean, kind) in (("for the candidate", "equal"), ("against it", "worse")):
                    continue  # leans that help
                world, name = (
                    World(reads, towards, drop),
                    f"lead {lead}, lean {lean}, {kind} candidate",
                )
                seed = [20260109, int(100 * reads), int(100 * towards) + 50, int(points)]
                studies = pd.DataFrame(
                    [
                        gate_once(world, points, np.random.default_rng([*seed, k]))
                        for k in range(n_studies)
                    ]
                )
                yield from _figures(studies, name, kind)


def _figures(studies: pd.DataFrame, name: str, kind: str) -> Iterator[Figure]:
    for how in ("judge alone", "Rogan-Gladen", "prediction-powered"):
        covered = studies[f"{how}: covers"]
        width = studies[f"{how}: width"].median()
        error = 100 * covered.std() / np.sqrt(len(covered))
        yield Figure(
            f"{name}: {how}: covers",
            100 * covered.mean(),
            "%",
            note=f"+-{error:.1f}; median width {width:.0f} points",
        )
    for how in ("any judge", "calibrated", "prediction-powered"):
        outcome = studies[f"gate, {how}"]
        wrong = outcome.eq("failed" if kind == "equal" else "passed").astype(float)
        word = "false stops" if kind == "equal" else "false passes"
        right = outcome.eq("passed" if kind == "equal" else "failed").mean()
        error = 100 * wrong.std() / np.sqrt(len(wrong))
        note = f"+-{error:.1f}; right {right:.0%}"
        yield Figure(f"{name}: gate, {how}: {word}", 100 * wrong.mean(), "%", note=note)


def find_drop() -> float:
    """Find the log-odds drop of one reply that people's votes show as `DROP` points.

    It is found by bisection on many votes, in rating points.
    """
    low, high = 0.0, 2.0
    for _ in range(12):
        middle = (low + high) / 2.0
        votes = World(1.0, 0.0, middle).draw(np.random.default_rng(7), 100_000, GATE)
        strength = fit_ratings(_rows(votes, "person"), n_resamples=0).strength
        low, high = (
            (middle, high) if POINTS * (strength["old"] - strength["new"]) < DROP else (low, middle)
        )
    return middle


def gate_once(world: World, truth: float, rng: np.random.Generator) -> dict[str, Any]:
    """Calibrate a judge, judge a candidate, and return results of corrections and gates."""
    before = world.draw(rng, 100, CALIBRATION)
    record = calibrate_judge(
        _rows(before, "judge"),
        _rows(before, "person"),
        bound_to=WHAT,
        labels=LabelSource("a bench"),
        n_resamples=200,
        rng=rng,
    )
    now = world.draw(rng, N_JUDGED, GATE)
    judged = _rows(now, "judge")
    people = _rows(
        now[now["dialogue_id"].isin([f"d{number}" for number in range(N_LABELLED)])], "person"
    )
    alone = compare_responders(
        judged, baseline="old", candidate="new", rule=GateRule(n_resamples=200), rng=rng
    ).table.iloc[0]
    powered = powered_drops(judged, people, baseline="old", candidate="new")
    outcomes: dict[str, Any] = {"gate, any judge": alone["outcome"]}
    share = 2.0 * record.agreement - 1.0
    share_se = 2.0 * (record.agreement_high - record.agreement_low) / 2.0 / 1.96
    corrected = alone["drop"] / share
    estimates = {
        "judge alone": (alone["drop"], alone["se"]),
        "Rogan-Gladen": (corrected, np.hypot(alone["se"] / share, corrected * share_se / share)),
        "prediction-powered": tuple(powered[["drop", "se"]].iloc[0]),
    }
    for how, (drop, se) in estimates.items():
        outcomes |= {
            f"{how}: covers": float(abs(drop - truth) <= 1.97 * se),
            f"{how}: width": 2 * 1.97 * se,
        }
    faults = record.faults(bound_to=WHAT)
    limit = 50.0 * max(2.0 * record.agreement_low - 1.0, 0.0)
    fits = pd.DataFrame([alone])[
        [
            "dimension",
            "drop",
            "se",
            "n_dialogues",
            "n_raters",
            "n_verdicts",
            "n_both_orders",
            "n_inconsistent",
            "n_failed",
        ]
    ]
    outcomes["gate, calibrated"] = "cannot tell" if faults else _decided(fits, limit)
    outcomes["gate, prediction-powered"] = _decided(powered, 50.0)
    return outcomes


def _decided(drops: pd.DataFrame, max_detectable: float) -> str:
    decided = decide_drops(drops, GateRule(max_detectable=max_detectable))
    outcome: str = decided["outcome"].iloc[0]
    return outcome


def _rows(pairs: pd.DataFrame, who: str) -> pd.DataFrame:
    # Ten people, each of whom saw every tenth dialogue.
    people = "person-" + pairs["dialogue_id"].str[-1]
    same = {
        "rater": people if who == "person" else who,
        "rater_kind": "human" if who == "person" else "model",
        "dimension": "overall",
        "state": "valid",
    }
    ids = pairs["dialogue_id"] + "-" + pairs["responder_a"] + "-" + pairs["responder_b"]
    sides = pairs[["dialogue_id", "responder_a", "responder_b", "order"]]
    return sides.assign(
        history_id=pairs["dialogue_id"], pair_id=ids, verdict=np.where(pairs[who], "a", "b"), **same
    )
