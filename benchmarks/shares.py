"""Coverage of intervals of a win share over few clusters, of even or unequal size."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import expit

from benchmarks import Figure
from heart_utils.evidence import EffectError, share_between, share_clustered
from heart_utils.simulate.power import normal_nodes

TIES, LEAST = 0.2, 94.0
CLUSTERS, SPREADS = (
    (4, 6, 10, 20),
    {"even": 1, "geometric 1 : 5": 5, "geometric 1 : 10": 10, "geometric 1 : 40": 40},
)
MEANS = (-1.2, 0.0, 0.8)
"""Mean log-odds of a cluster, with a standard deviation of 1: three true shares."""

# How many comparisons each rater gave; spread of posts and of raters in log-odds.
LOADS = {"13 posts, 4 raters as trained people's in RESORT": (13, (112, 31, 10, 2)),
         "21 posts, 4 raters as commenters' in RESORT": (21, (107, 39, 37, 16)),
         "21 posts, 4 raters of even load": (21, (50,) * 4),
         "30 posts, 10 raters": (30, (20,) * 10)}  # fmt: skip
# Twenty or thirty raters, each giving a share less than the one before.
for percent, n_raters, first, decay in ((20, 20, 89, 0.8), (40, 20, 176, 0.6), (15, 30, 67, 0.85)):
    loads = np.round(first * decay ** np.arange(n_raters)).astype(int)
    LOADS[f"110 posts, {n_raters} raters, the first {percent} %"] = (110, tuple(loads))
SDS = ((0.7, 0.3), (0.7, 0.7), (0.7, 1.0))
GROUPS = (5, 12, 110)
"""Scores a side of ``share_between``."""


def run(quick: bool) -> Iterator[Figure]:
    """Yield in percent of studies how often 95 % intervals hold the truth."""
    n_studies = 20 if quick else 1000
    for name, spread in SPREADS.items():
        for n_clusters in CLUSTERS:
            sizes = np.round(np.geomspace(80 / spread, 80, n_clusters)).astype(int)
            for mean in MEANS:
                rng = np.random.default_rng(
                    [n_clusters, spread, int(10 * abs(mean)), int(mean < 0)]
                )
                post = np.repeat(np.arange(n_clusters), sizes)
                held = []
                for _ in range(n_studies):
                    won = draw(rng, rng.normal(mean, 1.0, n_clusters)[post])
                    share = share_clustered(
                        pd.DataFrame({"post": post, "won": won}), clusters=["post"]
                    )
                    held.append(share["ci_low"] <= true_share(mean, 1.0) <= share["ci_high"])
                yield coverage(
                    f"{n_clusters} clusters, {name}, share {true_share(mean, 1.0):.2f}", held, quick
                )
    yield from two_ways(n_studies)
    yield from between(n_studies)


def true_share(mean: float, sd: float) -> float:
    """Compute the share over all clusters, a tie being half."""
    nodes, weights = normal_nodes(40)
    return TIES / 2 + (1 - TIES) * float((weights * expit(mean + sd * nodes)).sum())


def draw(rng: np.random.Generator, log_odds: NDArray[np.float64]) -> NDArray[np.float64]:
    """Draw comparisons won, lost and tied."""
    won = (rng.random(len(log_odds)) < expit(log_odds)).astype(float)
    return np.where(rng.random(len(log_odds)) < TIES, 0.5, won)


def coverage(name: str, held: list[bool], quick: bool, target: bool = True) -> Figure:
    """Compute the share of intervals that hold the truth, with its Monte Carlo error."""
    share = float(np.mean(held))
    error = 100 * float(np.sqrt(max(share * (1 - share), 0.01) / len(held)))
    met = None if quick or not target else 100 * share >= LEAST - 2 * error
    return Figure(
        name, 100 * share, "%", f"at least {LEAST:.0f} %" if target else "", met, f"± {error:.1f}"
    )


def two_ways(n_studies: int) -> Iterator[Figure]:
    """Try posts and raters, of whom some gave most of the scores."""
    for name, (n_posts, loads) in LOADS.items():
        for post_sd, rater_sd in SDS:
            rng = np.random.default_rng([n_posts, len(loads), int(10 * rater_sd)])
            truth, held = true_share(0.0, float(np.hypot(post_sd, rater_sd))), []
            for _ in range(n_studies):
                rater = np.repeat(np.arange(len(loads)), loads)
                post = rng.integers(0, n_posts, len(rater))
                won = draw(
                    rng,
                    rng.normal(0, post_sd, n_posts)[post]
                    + rng.normal(0, rater_sd, len(loads))[rater],
                )
                wins = pd.DataFrame({"post": post, "rater": rater, "won": won})
                share = share_clustered(wins, clusters=["post", "rater"])
                held.append(share["ci_low"] <= truth <= share["ci_high"])
            yield coverage(f"two ways, {name}, raters' sd {rater_sd}", held, False, target=False)


def between(n_studies: int) -> Iterator[Figure]:
    """Compare scores from 1 to 7 of two groups, whose means are half a standard deviation apart."""
    for size in GROUPS:
        rng = np.random.default_rng(size)
        score = [
            np.clip(np.round(4.0 + 1.5 * rng.normal(mean, 1, 4000)), 1, 7) for mean in (0.5, 0.0)
        ]
        truth = float((np.sign(score[0][:, None] - score[1][None, :]).mean() + 1) / 2)
        held = []
        for _ in range(n_studies):
            try:
                difference = share_between(rng.choice(score[0], size), rng.choice(score[1], size))
            except EffectError:  # all went one way: no interval is given
                continue
            held.append(difference["ci_low"] <= truth <= difference["ci_high"])
        yield coverage(f"share_between, {size} scores a side", held, False, target=False)
