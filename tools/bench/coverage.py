"""How often intervals hold the truth: simulated studies with dialogue and rater effects, many times over."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats
from scipy.special import expit

from heart_utils.analysis.bradley_terry import BradleyTerry, fit_strengths
from heart_utils.analysis.intervals import bootstrap_draws, product_draws
from heart_utils.analysis.resampling import interval_ends
from heart_utils.analysis.sandwich import one_way, two_way
from heart_utils.analysis.wins import Entries
from tools.bench import Figure

Array = NDArray[np.float64]

SIZE, N_RATERS, N_RESAMPLES, LEVEL = 6, 45, 400, 0.95
ONE, OTHER = np.triu_indices(SIZE, k=1)
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(31)
WEIGHTS = WEIGHTS / WEIGHTS.sum()


def run(quick: bool) -> Iterator[Figure]:
    """Yield coverage in percent, one study design after the other; every verdict here is simulated."""
    n_repeats = 50 if quick else 1000
    yield Figure(f"studies a design ({SIZE} responders, {N_RATERS} raters, all pairs in each dialogue)", n_repeats, "")
    for n_dialogues, dialogue_sd, rater_sd, votes in itertools.product((18, 40, 300), (0.0, 0.4, 0.8), (0.0, 0.35), (3, 15)):
        rng = np.random.default_rng([n_dialogues, int(100 * dialogue_sd), int(100 * rater_sd), votes])
        hits: dict[str, list[float]] = defaultdict(list)
        for _ in range(n_repeats):
            for name, held in one_study(rng, n_dialogues, dialogue_sd, rater_sd, votes).items():
                hits[name].append(100.0 * held)
        name = f"{n_dialogues} dialogues (SD {dialogue_sd}), {votes} votes a pair, raters' SD {rater_sd}"
        mean = {one: float(np.mean(held)) for one, held in hits.items()}
        error = {one: float(np.std(held, ddof=1) / np.sqrt(n_repeats)) for one, held in hits.items()}
        slack = 2.0 * error["one-way"] if quick else 0.0
        for kind, target, low, high in (("one-way", "93 to 97 %", 93.0, 97.0), ("two-way", "at least 93 %", 93.0, 100.0)):
            both = (kind, f"{kind} contrasts")
            met = all(low - slack <= mean[one] <= high + slack for one in both)
            others = (
                ("one-way sandwich", "one-way for other raters", "verdicts", "released") if kind == "one-way" else ("product",)
            )
            beside = "; ".join(f"{one} {mean[one]:.1f}" for one in others)
            note = f"+-{error[kind]:.1f}; contrasts {mean[both[1]]:.1f} +-{error[both[1]]:.1f}; {beside}"
            yield Figure(f"{kind}: {name}", mean[kind], "%", target, met, note)


def one_study(rng: np.random.Generator, n_dialogues: int, dialogue_sd: float, rater_sd: float, votes: int) -> dict[str, float]:
    """Draw a study and tell which part of its intervals hold the truth, by kind of interval."""
    theta = rng.normal(0.0, 0.6, SIZE)
    tastes = rng.normal(0.0, rater_sd, (N_RATERS, SIZE))
    entries, rater = draw(rng, theta, tastes, n_dialogues, dialogue_sd, votes)
    here = marginal(theta[None] + tastes if rater_sd else theta[None], dialogue_sd)
    anywhere = marginal(theta[None], np.hypot(dialogue_sd, rater_sd)) if rater_sd else here
    model = BradleyTerry.fit(entries, "pairs")
    found = {}
    draws = bootstrap_draws(model, N_RESAMPLES, rng)[0]
    found["one-way"], found["one-way contrasts"] = held(model.theta, draws, n_dialogues, here)
    found["one-way for other raters"], _ = held(model.theta, draws, n_dialogues, anywhere)
    t = stats.t.ppf((1 + LEVEL) / 2, n_dialogues - 1)
    found["one-way sandwich"] = float((np.abs(model.theta - here) <= t * np.sqrt(np.diag(one_way(model)))).mean())
    fewest = min(n_dialogues, N_RATERS)
    covariance = two_way(model, rater, N_RATERS)
    t = stats.t.ppf((1 + LEVEL) / 2, fewest - 1)
    found["two-way"] = float((np.abs(model.theta - anywhere) <= t * np.sqrt(np.diag(covariance))).mean())
    spread = np.diag(covariance)[ONE] + np.diag(covariance)[OTHER] - 2 * covariance[ONE, OTHER]
    gap = model.theta[ONE] - model.theta[OTHER] - anywhere[ONE] + anywhere[OTHER]
    found["two-way contrasts"] = float((np.abs(gap) <= t * np.sqrt(np.maximum(spread, 0.0))).mean())
    product = product_draws(model, rater, N_RATERS, N_RESAMPLES // 2, rng)[0]
    found["product"], _ = held(model.theta, product, fewest, anywhere)
    wins = model.tally().sum()[0, 0]
    cells = rng.multinomial(len(rater), (wins / wins.sum()).ravel(), size=N_RESAMPLES).reshape(-1, SIZE, SIZE)
    single = fit_strengths(cells.astype(float), np.zeros(SIZE, bool), model.theta)
    found["verdicts"], _ = held(model.theta, single, len(rater), here)
    games = np.bincount(entries.a, minlength=SIZE) + np.bincount(entries.b, minlength=SIZE)
    found["released"] = float((np.abs(model.theta - here) <= 1.96 / np.sqrt(games)).mean())
    return found


def draw(
    rng: np.random.Generator, theta: Array, tastes: Array, n_dialogues: int, dialogue_sd: float, votes: int
) -> tuple[Entries, NDArray[np.intp]]:
    """Draw verdicts: every pair in every dialogue, judged by some raters."""
    cells = n_dialogues * len(ONE)
    dialogue, pair = np.repeat(np.arange(n_dialogues), len(ONE)), np.tile(np.arange(len(ONE)), n_dialogues)
    rater = np.argpartition(rng.random((cells, N_RATERS)), votes, axis=1)[:, :votes].ravel()
    dialogue, pair = np.repeat(dialogue, votes), np.repeat(pair, votes)
    there = theta + rng.normal(0.0, dialogue_sd, (n_dialogues, SIZE))
    a, b = ONE[pair], OTHER[pair]
    gap = there[dialogue, a] - there[dialogue, b] + tastes[rater, a] - tastes[rater, b]
    won = rng.random(len(gap)) < expit(gap)
    names = pd.Index([f"r{k}" for k in range(SIZE)])
    nobody = np.zeros(len(a), bool)
    word = np.where(won, 0, 2)
    entries = Entries(
        names,
        pd.RangeIndex(n_dialogues),
        a,
        b,
        dialogue,
        won.astype(float),
        word,
        nobody,
        np.arange(len(a)),
        pd.Series(dtype=int),
    )
    return entries, rater


def marginal(strengths: Array, spread: float) -> Array:
    """Give the strengths that averaged win probabilities tend to, for a panel of raters (rows) as it is."""
    gap = strengths[:, ONE] - strengths[:, OTHER]
    share = (expit(gap[..., None] + np.sqrt(2.0) * spread * NODES) @ WEIGHTS).mean(axis=0)
    wins = np.zeros((1, SIZE, SIZE))
    wins[0, ONE, OTHER], wins[0, OTHER, ONE] = share, 1.0 - share
    return np.asarray(fit_strengths(wins, np.zeros(SIZE, bool))[0])


def held(theta: Array, draws: Array, n_clusters: int, truth: Array) -> tuple[float, float]:
    """Tell which part of intervals on strengths, and on their differences, holds the truth."""
    low, high = interval_ends(theta, draws, np.full(SIZE, n_clusters), LEVEL)
    gaps = draws[:, ONE] - draws[:, OTHER]
    below, above = interval_ends(theta[ONE] - theta[OTHER], gaps, np.full(len(ONE), n_clusters), LEVEL)
    between = (below <= truth[ONE] - truth[OTHER]) & (truth[ONE] - truth[OTHER] <= above)
    return float(((low <= truth) & (truth <= high)).mean()), float(between.mean())
