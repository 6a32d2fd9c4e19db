"""Error rate and width of rank ranges, and coverage of the unbeaten's interval."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
from scipy import stats

from heart_utils.ratings.ratings import Ratings, fit_ratings
from tests.drawn_votes import draw_votes
from tools.bench import Figure

MOST = 6.5
"""Percent of studies in which anybody may be told apart where all are equal."""

# clusters, responders, pairs a cluster, votes a pair, spread of a responder between clusters
ONE_WAY = (
    (6, 10, 45, 20, 0.3),
    (20, 5, 10, 3, 0.5),
    (40, 8, 10, 3, 0.5),
    (100, 10, 10, 3, 0.5),
    (300, 17, 10, 15, 0.8),
)
# dialogues, raters, responders, pairs a dialogue, votes a pair, spread between dialogues and
# between raters
TWO_WAY = (
    (40, 22, 6, 10, 5, 0.5, 0.5),
    (100, 22, 8, 10, 5, 0.5, 0.5),
    (300, 45, 17, 10, 15, 0.8, 0.35),
)
# The same, where each pair is met in one to nine dialogues.
SPARSE_ONE_WAY = (
    (12, 12, 10, 3, 0.5),
    (20, 12, 5, 3, 0.5),
    (20, 17, 10, 15, 0.8),
    (60, 17, 10, 5, 0.8),
    (120, 17, 10, 3, 0.8),
)
SPARSE_TWO_WAY = ((20, 45, 17, 10, 15, 0.8, 0.35), (30, 22, 12, 5, 5, 0.5, 0.3))
UNBEATEN = ((20, 3), (60, 1), (60, 3))
"""Dialogues, and votes of each on the one who is far ahead of three others."""


def run(quick: bool) -> Iterator[Figure]:
    """Yield false findings and coverage in percent.

    Every verdict here is drawn by the tests, none by the package.
    """
    n_studies = 20 if quick else 400
    for sizes in (*ONE_WAY, *SPARSE_ONE_WAY):
        name = (
            f"told apart of {sizes[1]} equals, {sizes[0]} clusters x {sizes[2]} pairs x {sizes[3]}"
        )
        shares_apart = [
            _apart(draw_votes(np.random.default_rng([*map(int, sizes[:4]), k]), *sizes))
            for k in range(n_studies)
        ]
        yield _share(name, shares_apart, f"at most {MOST} %", -MOST, quick)
    for dialogues, raters, size, pairs, votes, spread, taste in (*TWO_WAY, *SPARSE_TWO_WAY):
        name = (
            f"told apart of {size} equals, {dialogues} dialogues and {raters} raters, {pairs} pairs"
            f" x {votes}"
        )
        shares_apart = []
        for k in range(n_studies):
            rng = np.random.default_rng([dialogues, raters, size, k])
            rows = draw_votes(
                rng, dialogues, size, pairs, votes, spread, n_raters=raters, taste=taste
            )
            shares_apart.append(_apart(rows, cluster=["dialogue_id", "rater"]))
        yield _share(name, shares_apart, f"at most {MOST} %", -MOST, quick)
    for sizes in ONE_WAY:
        yield from _ladder(sizes, n_studies // 2, quick)
    for dialogues, votes in UNBEATEN:
        held: list[bool] = []
        for k in range(n_studies):
            rng = np.random.default_rng([dialogues, votes, k])
            lead = rng.uniform(3.0, 7.0)
            theta = np.array([lead, 0.3, 0.0, -0.3])
            rows = draw_votes(rng, dialogues, 4, 6, votes, 0.0, theta=theta)
            table = fit_ratings(rows, n_resamples=200).table.set_index("responder")
            if table.loc["r0", "penalised"]:
                truth = theta[0] - theta.mean()
                held.append(bool(table.loc["r0", "ci_low"] <= truth <= table.loc["r0", "ci_high"]))
        name = f"interval of the unbeaten holds the truth, {dialogues} dialogues x {votes}"
        yield _share(name, held, "at least 93 %", 93.0, quick)


def _ladder(sizes: tuple[float, ...], n_studies: int, quick: bool) -> Iterator[Figure]:
    """Yield how often a range misses a true rank, and mean width against Bonferroni's.

    Strengths of responders are in even steps.
    """
    n_clusters, size = int(sizes[0]), int(sizes[1])
    theta, where = (
        np.linspace(1.0, -1.0, size),
        f"{size} responders in even steps, {n_clusters} clusters",
    )
    missed, ours, theirs = [], [], []
    for k in range(n_studies):
        rows = draw_votes(np.random.default_rng([7, n_clusters, k]), *sizes, theta=theta)  # type: ignore[arg-type]
        ratings = fit_ratings(rows, n_resamples=500)
        if ratings.table["penalised"].any():
            continue
        low, high = (ratings.table[end].to_numpy(dtype=int) for end in ("rank_low", "rank_high"))
        true = ratings.table["responder"].str[1:].astype(int).to_numpy() + 1
        missed.append(bool(((true < low) | (true > high)).any()))
        ours.append((high - low + 1).mean())
        theirs.append(_bonferroni(ratings, n_clusters))
    yield _share(f"a true rank missed, {where}", missed, f"at most {MOST} %", -MOST, quick)
    ratio, error = (
        np.mean(ours) / np.mean(theirs),
        np.std(np.subtract(ours, theirs)) / np.sqrt(len(ours)) / np.mean(theirs),
    )
    note = (
        f"+-{error:.3f}, {np.mean(ours):.2f} against {np.mean(theirs):.2f} ranks, {len(ours)}"
        " studies"
    )
    yield Figure(
        f"width of rank ranges by Bonferroni's, {where}",
        float(ratio),
        "times",
        "below 1",
        bool(ratio < 1),
        note,
    )


def _bonferroni(ratings: Ratings, n_clusters: int) -> float:
    """Compute the mean number of ranks that Bonferroni's t intervals leave a responder."""
    theta, draws, size = (
        ratings.strength.to_numpy(),
        ratings.replicates.to_numpy(),
        len(ratings.strength),
    )
    spread = np.std(draws[:, :, None] - draws[:, None, :], axis=0, ddof=1) * np.sqrt(
        n_clusters / (n_clusters - 1)
    )
    reach = spread * stats.t.isf(0.05 / (size * (size - 1)), n_clusters - 1)
    ahead = theta[:, None] - theta[None, :] > np.maximum(reach, 1e-12)
    return float(size - 2.0 * ahead.sum() / size)


def _apart(rows: pd.DataFrame, **settings: object) -> bool:
    table = fit_ratings(rows, n_resamples=500, **settings).table  # type: ignore[arg-type]
    return bool((table["rank_low"] > 1).any() or (table["rank_high"] < len(table)).any())


def _share(name: str, outcomes: list[bool], target: str, bound: float, quick: bool) -> Figure:
    """Return a share in percent; a negative bound is one from above.

    A quick run may miss it by two standard errors.
    """
    share = float(np.mean(outcomes)) if outcomes else float("nan")
    error = 100.0 * np.sqrt(
        max(share * (1.0 - share), 0.25 / max(len(outcomes), 1)) / max(len(outcomes), 1)
    )
    slack = 2.0 * error if quick else 0.0
    met = 100.0 * share <= -bound + slack if bound < 0 else 100.0 * share >= bound - slack
    return Figure(
        name, 100.0 * share, "%", target, bool(met), f"+-{error:.1f}, {len(outcomes)} studies"
    )
