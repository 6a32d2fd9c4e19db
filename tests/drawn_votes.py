"""Drawn votes with a known truth, and how often what is estimated from them holds it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import expit

from heart_utils.agreement.prediction_powered import prediction_powered_ratings
from heart_utils.ratings.bradley_terry import fit_strengths
from heart_utils.ratings.other_models import pool_strengths
from heart_utils.ratings.ratings import fit_ratings
from heart_utils.simulate.coverage import limiting_strengths
from heart_utils.simulate.study import normal_nodes

Array = NDArray[np.float64]

DIALOGUE_SD, STRENGTH_SD, BIAS_SD = 0.5, 0.6, 1.0
N_DIALOGUES = 300  # that the judge sees
Judges = tuple[tuple[float, float, float], ...]
"""Of each judge, how clearly it decides, the spread of its bias, and its noise."""
PANELS: dict[str, Judges] = {
    "four alike": ((1.5, 1.0, 0.5),) * 4,
    "one that reads and three coins": ((3.0, 1.0, 0.2), *((0.0, 0.0, 0.0),) * 3),
    "four unlike": ((3.0, 0.5, 0.2), (1.5, 1.0, 0.7), (0.7, 2.0, 1.0), (0.3, 1.0, 1.5)),
}
N_SEVERAL, QUALITY_SD = 200, 1.0  # where there are several judges
SIZE, SPREAD = 10, 0.5
"""Of a study that is pooled: responders, and a responder's standard deviation between dialogues."""


def draw_votes(
    rng: np.random.Generator,
    n_clusters: int,
    size: int,
    pairs: int,
    votes: int,
    spread: float,
    *,
    n_raters: int = 0,
    taste: float = 0.0,
    theta: Array | None = None,
) -> pd.DataFrame:
    """Draw a study of logistic verdicts.

    A responder's strength differs by cluster and, if raters are given, by rater.
    """
    one, other = np.triu_indices(size, 1)
    chosen = np.argsort(rng.random((n_clusters, len(one))), axis=1)[:, :pairs]
    cluster = np.repeat(np.arange(n_clusters), pairs * votes)
    a, b = (np.repeat(side[chosen].ravel(), votes) for side in (one, other))
    strengths = (np.zeros(size) if theta is None else theta) + spread * rng.normal(
        size=(n_clusters, size)
    )
    gap = strengths[cluster, a] - strengths[cluster, b]
    rows = pd.DataFrame({"dialogue_id": cluster})
    if n_raters:
        rater = np.argsort(rng.random((n_clusters * pairs, n_raters)), axis=1)[:, :votes].ravel()
        tastes = taste * rng.normal(size=(n_raters, size))
        gap = gap + tastes[rater, a] - tastes[rater, b]
        rows["rater"] = rater
    names = np.array([f"r{k}" for k in range(size)])
    won = rng.random(len(gap)) < 1.0 / (1.0 + np.exp(-gap))
    return rows.assign(responder_a=names[a], responder_b=names[b], verdict=np.where(won, "a", "b"))


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


def draw_judged(layout: Layout, rng: np.random.Generator) -> tuple[pd.DataFrame, pd.Series]:
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


def measure_powered(verdicts: pd.DataFrame, truth: pd.Series) -> dict[str, float]:
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


def measure_several(judges: Judges, size: int, n_labelled: int, n_studies: int) -> pd.DataFrame:
    """Compute coverage and width of each study, with a weight for each judge and by their mean."""
    rows = []
    for number in range(n_studies):
        rng = np.random.default_rng([20260109, number, size, n_labelled])
        verdicts, truth = draw_several(judges, size, n_labelled, rng)
        row = {}
        # Without names of raters all judges are one: their mean.
        for way, given in (("each", verdicts), ("mean", verdicts.drop(columns="rater"))):
            table = prediction_powered_ratings(given).table
            at = table["responder"].map(truth)
            row[way] = float(at.between(table["ci_low"], table["ci_high"]).mean())
            row[f"{way} width"] = float((table["ci_high"] - table["ci_low"]).mean())
            row["people width"] = float((table["people_high"] - table["people_low"]).mean())
        rows.append(row)
    return pd.DataFrame(rows)


def draw_several(
    judges: Judges, size: int, n_labelled: int, rng: np.random.Generator
) -> tuple[pd.DataFrame, pd.Series]:
    """Draw a person's vote on each pair of the labelled dialogues, and each judge's on all."""
    names = np.array([f"responder {k}" for k in range(size)], dtype=object)
    theta = rng.normal(0.0, STRENGTH_SD, size)
    one, other = np.triu_indices(size, k=1)
    strengths = theta + rng.normal(0.0, QUALITY_SD, (N_SEVERAL, size))
    raters = [("person", "human", n_labelled, (1.0, 0.0, 0.0))]
    raters += [(f"judge {k}", "model", N_SEVERAL, judge) for k, judge in enumerate(judges)]
    parts = []
    for rater, kind, n_dialogues, (sharpness, bias, noise) in raters:
        seen = strengths + rng.normal(0.0, 1.0, strengths.shape) * noise
        dialogue = np.repeat(np.arange(n_dialogues), len(one))
        a, b = np.tile(one, n_dialogues), np.tile(other, n_dialogues)
        lean = rng.normal(0.0, 1.0, size) * bias
        gap = sharpness * (seen[dialogue, a] - seen[dialogue, b]) + lean[a] - lean[b]
        won = np.where(rng.random(len(gap)) < expit(gap), "a", "b")
        columns = {"dialogue_id": dialogue, "verdict": won, "rater": rater, "rater_kind": kind}
        about = {"responder_a": names[a], "responder_b": names[b]}
        parts.append(pd.DataFrame(columns | about | {"dimension": "overall", "state": "valid"}))
    truth = limiting_strengths(theta[None], QUALITY_SD, (one, other))
    return pd.concat(parts, ignore_index=True), pd.Series(truth, index=names)


@dataclass(frozen=True)
class Pooled:
    """A row a study: squared errors, and the share of intervals that hold the truth."""

    studies: pd.DataFrame

    @property
    def ratio(self) -> float:
        """Squared error of pooled strengths by that of the plain fit."""
        return float(self.studies["pooled"].mean() / self.studies["plain"].mean())

    @property
    def ratio_error(self) -> float:
        """Standard error of that ratio."""
        off = self.studies["pooled"] - self.ratio * self.studies["plain"]
        return float(off.std(ddof=0) / np.sqrt(len(off)) / self.studies["plain"].mean())

    def share(self, name: str) -> tuple[float, float]:
        """Return a share, of ``held`` or ``leader``, and its standard error."""
        held = self.studies[name]
        return float(held.mean()), float(held.std(ddof=0) / np.sqrt(len(held)))


def measure_pooled(dialogues: int, pairs: int, votes: int, kind: str, n_studies: int) -> Pooled:
    """Draw studies of one design, and fit each with pooling and without."""
    rows = []
    for k in range(n_studies):
        rng = np.random.default_rng([dialogues, pairs, votes, k])
        theta = {
            "normal": 0.5 * rng.normal(size=SIZE),
            "two groups": np.repeat([0.5, -0.5], SIZE // 2),
            "equal": np.zeros(SIZE),
        }[kind]
        verdicts = draw_votes(rng, dialogues, SIZE, pairs, votes, SPREAD, theta=theta)
        if len(set(verdicts["responder_a"]) | set(verdicts["responder_b"])) < SIZE:
            continue
        try:
            ratings = fit_ratings(verdicts, weights="verdicts", n_resamples=0).strength
        except ValueError:  # some cannot be compared with the others
            continue
        truth = averaged(theta)
        table = pool_strengths(verdicts).table.set_index("responder")
        fits = table.loc[[f"r{i}" for i in range(SIZE)]]
        holds = (fits["ci_low"] <= truth) & (truth <= fits["ci_high"])
        rows.append(
            {
                "plain": np.mean((ratings[fits.index] - ratings.mean() - truth) ** 2),
                "pooled": np.mean((fits["strength"] - truth) ** 2),
                "held": holds.mean(),
                "leader": holds[fits["flag"] == "leader"].mean(),
            }
        )
    return Pooled(pd.DataFrame(rows))


def averaged(theta: np.ndarray) -> np.ndarray:
    """Compute the strengths of an even tournament over all dialogues.

    They are nearer to each other than those within a dialogue.
    """
    nodes, weights = normal_nodes(30)
    gap = (theta[:, None] - theta[None, :])[:, :, None] + np.sqrt(2.0) * SPREAD * nodes
    share = (weights / (1.0 + np.exp(-gap))).sum(axis=2)
    np.fill_diagonal(share, 0.0)
    return np.asarray(fit_strengths(share[None], np.zeros(len(theta), bool))[0])
