"""Coverage of intervals for dialogues and raters like these: simulated studies.

For shares and agreement.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from benchmarks import Figure
from heart_utils.agreement.agreement import pairwise_agreement
from heart_utils.ratings.standings import head_to_head

STRENGTHS = np.array([0.5, 0.2, 0.1, 0.0, -0.3, -0.5])
KINDS = ["human", "model", "model", "human", "model", "human"]
JUDGE = 1.5 * STRENGTHS + np.array([0.0, 0.3, 0.0, -0.3, 0.2, 0.0])
"""The judge's own order, the same in each study: it is not drawn anew."""

DIALOGUE_SD, TASTE_SD, TIE, TIE_SD = 0.6, 0.35, 0.4, 0.5
DESIGNS = {
    "100 dialogues, 45 raters, 3 votes a pair": (100, 45, 3),
    "80 dialogues, 65 raters, 2 votes a pair": (80, 65, 2),
}
WAYS: dict[str, str | list[str]] = {
    "dialogues": "dialogue_id",
    "dialogues and raters": ["dialogue_id", "rater"],
}
N_TRUTH = 400_000


def run(quick: bool) -> Iterator[Figure]:
    """Yield coverage in percent, one design after the other; every verdict here is simulated."""
    n_studies = 20 if quick else 200
    truth = _truth(np.random.default_rng(20260109))
    for number, (design, (n_dialogues, n_raters, n_votes)) in enumerate(DESIGNS.items()):
        rng = np.random.default_rng([20260109, number])
        held = [
            _held(_study(n_dialogues, n_raters, n_votes, rng), truth, rng) for _ in range(n_studies)
        ]
        for key in held[0]:
            inside = np.array([one[key] for one in held], dtype=float)
            error, share = 100.0 * inside.std(ddof=1) / np.sqrt(n_studies), 100.0 * inside.mean()
            aimed = key[1] == "dialogues and raters"
            met = share >= 93.5 - (2.0 * error if quick else 0.0) if aimed else None
            yield Figure(
                f"{design}: {', '.join(key)}",
                share,
                "%",
                "at least 93.5 %" if aimed else "",
                met,
                f"+-{error:.1f}",
            )


def _held(
    study: pd.DataFrame, truth: dict[str, float], rng: np.random.Generator
) -> dict[tuple[str, str], bool]:
    people = study[study["rater_kind"] == "human"]
    who = pd.DataFrame({"responder": [f"r{k}" for k in range(len(KINDS))], "responder_kind": KINDS})
    inside = {}
    for way, cluster in WAYS.items():
        shares = head_to_head(people, who, rng=rng, cluster=cluster, n_resamples=300)
        for outcome in ("tie", "models_of_decided"):
            row = shares[shares["outcome"] == outcome].iloc[0]
            inside[outcome, way] = _holds(row, "ci", truth[outcome])
        for other in ("model", "human"):
            row = pairwise_agreement(
                study,
                between=("human", other),
                ties="exclude",
                by=[],
                cluster=cluster,
                n_resamples=300,
                rng=rng,
            ).table.iloc[0]
            for measure in ("agreement", "advantage"):
                name = f"{measure} of people with {'the judge' if other == 'model' else 'people'}"
                inside[name, way] = _holds(row, measure, truth[name])
    return inside


def _holds(row: pd.Series, measure: str, truth: float) -> bool:
    return bool(float(row[f"{measure}_low"]) <= truth <= float(row[f"{measure}_high"]))


def _study(n_dialogues: int, n_raters: int, n_votes: int, rng: np.random.Generator) -> pd.DataFrame:
    """Draw the votes of one study: all pairs in each dialogue, by people and once by the judge."""
    one, other = np.triu_indices(len(STRENGTHS), 1)
    strengths = DIALOGUE_SD * rng.normal(size=(n_dialogues, len(STRENGTHS)))
    taste = TASTE_SD * rng.normal(size=(n_raters, len(STRENGTHS)))
    width = TIE * np.exp(TIE_SD * rng.normal(size=n_raters))
    unit = np.arange(n_dialogues * len(one))
    rater = rng.random((len(unit), n_raters)).argsort(axis=1)[:, :n_votes].ravel()
    unit = np.concatenate([np.repeat(unit, n_votes), unit])
    dialogue, pair = np.divmod(unit, len(one))
    judge = np.arange(len(unit)) >= len(rater)
    who = np.concatenate([rater, np.zeros(judge.sum(), int)])
    lean = strengths[dialogue] + np.where(judge[:, None], JUDGE, STRENGTHS + taste[who])
    row = np.arange(len(unit))
    word = _answer(
        lean[row, one[pair]] - lean[row, other[pair]], np.where(judge, TIE, width[who]), rng
    )
    return pd.DataFrame(
        {
            "pair_id": unit,
            "dialogue_id": dialogue,
            "responder_a": np.char.add("r", one[pair].astype(str)),
            "responder_b": np.char.add("r", other[pair].astype(str)),
            "rater": np.where(judge, "judge", np.char.add("p", who.astype(str))),
            "rater_kind": np.where(judge, "model", "human"),
            "verdict": np.array(["b", "tie", "a"])[word + 1],
        }
    )


def _answer(gap: np.ndarray, width: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    felt = gap + rng.logistic(size=np.shape(gap))
    return (felt > width).astype(int) - (felt < -width)


def _truth(rng: np.random.Generator) -> dict[str, float]:
    """Draw very many dialogues and raters anew, and count."""
    one, other = np.triu_indices(len(STRENGTHS), 1)
    answers: dict[str, list[np.ndarray]] = {"first": [], "second": [], "judge": []}
    for i, j in zip(one, other, strict=True):
        strengths = DIALOGUE_SD * rng.normal(size=(2, N_TRUTH))
        for who in answers:
            gap = (
                (JUDGE[i] - JUDGE[j] if who == "judge" else STRENGTHS[i] - STRENGTHS[j])
                + strengths[0]
                - strengths[1]
            )
            if who != "judge":
                gap = gap + TASTE_SD * (rng.normal(size=N_TRUTH) - rng.normal(size=N_TRUTH))
            width = TIE * np.exp((who != "judge") * TIE_SD * rng.normal(size=N_TRUTH))
            answers[who].append(_answer(gap, width, rng))
    first, second, judge = (np.array(rows) for rows in answers.values())
    kinds = np.array(KINDS)
    meets = kinds[one] != kinds[other]
    to_model = first[meets] * np.where(kinds[one] == "model", 1, -1)[meets, None]
    names = np.sign(first.mean(axis=1, keepdims=True))
    truth = {
        "tie": (to_model == 0).mean(),
        "models_of_decided": (to_model[to_model != 0] > 0).mean(),
    }
    for name, other_said in (("the judge", judge), ("people", second)):
        both = (first != 0) & (other_said != 0)
        truth[f"agreement of people with {name}"] = (first == other_said)[both].mean()
        truth[f"advantage of people with {name}"] = (first == other_said)[both].mean() - (
            first == names
        )[both].mean()
    return truth
