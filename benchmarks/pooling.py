"""How much partial pooling gains with few votes, and how often its intervals hold the truth."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from benchmarks import Figure
from benchmarks.apart import draw
from heart_utils.ratings.bradley_terry import fit_strengths
from heart_utils.ratings.pooling import pool_strengths
from heart_utils.ratings.ratings import fit_ratings
from heart_utils.simulate.power import normal_nodes

SIZE, SPREAD = 10, 0.5
"""Responders, and the standard deviation of a responder between dialogues."""

# dialogues, pairs a dialogue, votes a pair, how strengths lie, and the most that may be left of the
# mean squared error
DESIGNS = (
    (20, 3, 1, "normal", 0.40),
    (20, 10, 1, "normal", 0.70),
    (20, 3, 1, "two groups", 0.40),
    (20, 10, 1, "two groups", 0.70),
    (20, 3, 1, "equal", 0.40),
    (60, 6, 2, "normal", 1.0),
    (300, 10, 3, "normal", 1.02),
)


def run(quick: bool) -> Iterator[Figure]:
    """Yield mean squared errors by the plain fit's, and the coverage of pooled intervals."""
    n_studies = 20 if quick else 400
    for design in DESIGNS:
        yield from measure(design, n_studies, quick)


def measure(
    design: tuple[int, int, int, str, float], n_studies: int, quick: bool = False
) -> Iterator[Figure]:
    """Draw studies of one design."""
    dialogues, pairs, votes, kind, most = design
    pooled, plain, held, leader = [], [], [], []
    for k in range(n_studies):
        rng = np.random.default_rng([dialogues, pairs, votes, k])
        theta = {
            "normal": 0.5 * rng.normal(size=SIZE),
            "two groups": np.repeat([0.5, -0.5], SIZE // 2),
            "equal": np.zeros(SIZE),
        }
        rows = draw(rng, dialogues, SIZE, pairs, votes, SPREAD, theta=theta[kind])
        if len(set(rows["responder_a"]) | set(rows["responder_b"])) < SIZE:
            continue
        try:
            ratings = fit_ratings(rows, weights="verdicts", n_resamples=0).strength
        except ValueError:  # some cannot be compared with the others
            continue
        truth = averaged(theta[kind])
        fits = pool_strengths(rows).table.set_index("responder").loc[[f"r{i}" for i in range(SIZE)]]
        plain.append(np.mean((ratings[fits.index] - ratings.mean() - truth) ** 2))
        pooled.append(np.mean((fits["strength"] - truth) ** 2))
        holds = (fits["ci_low"] <= truth) & (truth <= fits["ci_high"])
        held.append(holds.mean())
        leader.append(holds[fits["flag"] == "leader"].mean())
    where = (
        f"{dialogues} dialogues x {pairs} votes"
        if votes == 1
        else f"{dialogues} dialogues x {pairs} pairs x {votes} votes"
    )
    ratio = np.mean(pooled) / np.mean(plain)
    error = (
        np.std(np.array(pooled) - ratio * np.array(plain)) / np.sqrt(len(plain)) / np.mean(plain)
    )
    met = bool(ratio <= most + 2 * error * quick)
    note = f"+-{error:.3f}, {len(plain)} studies; strengths {kind}"
    yield Figure(
        f"squared error by the plain fit's, {where}",
        float(ratio),
        "times",
        f"at most {most}",
        met,
        note,
    )
    share, error = float(np.mean(held)), float(np.std(held) / np.sqrt(len(held)))
    note = f"+-{100 * error:.1f}; strengths {kind}"
    met = share >= 0.93 - 2 * error * quick
    yield Figure(
        f"pooled intervals hold the truth, {where}", 100 * share, "%", "at least 93 %", met, note
    )
    share = float(np.mean(leader))
    error = float(np.std(leader) / np.sqrt(len(leader)))
    # Told by the flag, not promised.
    yield Figure(
        f"the leader's does, {where}",
        100 * share,
        "%",
        note=f"+-{100 * error:.1f}; strengths {kind}",
    )


def averaged(theta: np.ndarray) -> np.ndarray:
    """Compute the strengths of an even tournament over all dialogues.

    They are nearer to each other than those within a dialogue.
    """
    nodes, weights = normal_nodes(30)
    gap = (theta[:, None] - theta[None, :])[:, :, None] + np.sqrt(2.0) * SPREAD * nodes
    share = (weights / (1.0 + np.exp(-gap))).sum(axis=2)
    np.fill_diagonal(share, 0.0)
    return np.asarray(fit_strengths(share[None], np.zeros(len(theta), bool))[0])
