"""Drawn scores of known components of variance, and comparisons of two who are equal."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import pandas as pd

from heart_utils.agreement.generalizability import score_differences
from heart_utils.simulate.conversations import difference_error, find_chance

TRUE = {
    "responder": 0.3,
    "dialogue": 0.2,
    "rater": 0.05,
    "responder:dialogue": 0.5,
    "responder:rater": 0.05,
}
TRUE |= {"dialogue:rater": 0.05, "rest": 0.3}

FACETS = ["dialogue_id", "seeker", "repeat", "rater"]
CONVERSATIONS = {
    "responder": 0.3,
    "dialogue": 0.2,
    "seeker": 0.1,
    "rater": 0.1,
    "responder:dialogue": 0.3,
    "responder:seeker": 0.05,
    "responder:rater": 0.05,
    "dialogue:seeker": 0.1,
    "responder:dialogue:seeker": 0.2,
    "responder:dialogue:seeker:repeat": 0.4,
    "rest": 0.5,
}
SHIFT = 2.8  # standard errors that a planted gap is wide: found in some 80 % of studies


def draw_scores(
    rng: np.random.Generator, sizes: dict[str, int], variance: dict[str, float]
) -> pd.DataFrame:
    """Draw scores of a crossed design with known components."""
    index = np.indices(tuple(sizes.values()))
    score = np.zeros(index.shape[1:])
    for name, part in variance.items():
        inside = [
            axis for axis, facet in enumerate(sizes) if name == "rest" or facet in name.split(":")
        ]
        shape = [size if axis in inside else 1 for axis, size in enumerate(sizes.values())]
        score = score + np.sqrt(part) * rng.normal(size=shape)
    names = ["dialogue_id" if facet == "dialogue" else facet for facet in sizes]
    columns = dict(zip(names, index.reshape(len(sizes), -1), strict=True))
    return pd.DataFrame({**columns, "score": score.ravel()})


def compare_equals(
    shape: tuple[int, int, int, int],
    fixed: Collection[str],
    *,
    n_studies: int,
    rng: np.random.Generator,
    held: Collection[str] | None = None,
) -> dict[str, float]:
    """Count how often the interval of two equals covers 0, and a gap of SHIFT errors is found.

    Equals are equal for the very seekers and raters that are ``held`` (by default those ``fixed``).
    """
    held = fixed if held is None else held
    sizes = dict(zip(("dialogue", "seeker", "repeat", "rater"), shape, strict=True))
    world = CONVERSATIONS | {"responder": 0.0} | {f"responder:{facet}": 0.0 for facet in held}
    known = {
        name.replace("responder:dialogue:seeker:repeat", "repeat"): world[name] for name in world
    }
    error, df = difference_error(known, sizes, fixed=fixed)
    covered = n_found = 0
    for _ in range(n_studies):
        scores = draw_scores(rng, {"responder": 2, **sizes}, world)
        row = score_differences(scores, facets=FACETS, fixed=fixed).iloc[0]
        covered += row["ci_low"] <= 0 <= row["ci_high"]
        n_found += row["ci_low"] + SHIFT * error > 0
    return {
        "covered": covered / n_studies,
        "found": n_found / n_studies,
        "promised": find_chance(SHIFT, df),
        "error": error,
    }
