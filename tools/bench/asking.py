"""What half of the human votes shows of the ranks, by how votes are chosen.

Measured are coverage, false ranks and the bound.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from heart_utils import load_verdicts
from heart_utils.simulate.coverage import compare_designs, simulate_designs
from heart_utils.simulate.study import Panel, Spread
from tools.bench import Figure

PLACES = 0.6 * stats.norm.ppf((np.arange(17) + 0.5) / 17)
FIELD = {f"model {number:02d}": place for number, place in enumerate(PLACES.tolist())}
EQUALS = dict(zip("uvwxyz", (0.8, 0.8, 0.0, 0.0, -0.8, -0.8), strict=True))
ROW = ["design", "judge"]


def run(quick: bool) -> Iterator[Figure]:
    """Yield what half of MT-Bench's votes shows, and how often it is right on simulated votes."""
    rng = np.random.default_rng(20260109)
    votes = load_verdicts("mtbench")
    designs = pd.concat([compare_designs(votes, rng=rng) for _ in range(3 if quick else 60)])
    means = (
        designs.groupby(ROW, sort=False)[["apart", "range", "width"]]
        .mean()
        .assign(error=designs.groupby(ROW)["apart"].sem())
    )
    whole = float(means["apart"].iloc[0])
    for row in means.reset_index().to_dict("records"):
        goal = row["judge"] and row["design"].startswith("every")
        name = f"MT-Bench, pairs told apart, {row['design']}, {_who(row)}"
        note = f"range {row['range']:.2f} ranks; width {row['width']:.3f}; ± {row['error']:.2f}"
        yield Figure(
            name,
            row["apart"],
            "",
            f"at least {whole:.0f}" * goal,
            bool(row["apart"] >= whole) if goal else None,
            note,
        )
    n_studies = 4 if quick else 300
    panels: dict[str, Any] = {
        "people": Panel("human", 45, 1, rater_sd=0.35, ties=0.4),
        "judge": Panel("model", 1, 1, discrimination=3.0),
    }
    size: dict[str, Any] = {
        "n_dialogues": 100,
        "spread": Spread(dialogues=1.5),
        "sizes": (20, 60),
        "n_studies": n_studies,
    }
    drawn = simulate_designs(EQUALS, rng=rng, **size, **panels)
    yield from _held("three pairs of equals", drawn, n_studies)
    few: dict[str, Any] = {"n_dialogues": 120, "pairs": 10, "sizes": (30,), "n_studies": n_studies}
    panels["people"] = Panel("human", 45, 3, rater_sd=0.35)
    yield from _held(
        "17 responders, 9 dialogues a pair",
        simulate_designs(FIELD, rng=rng, **few, **panels),
        n_studies,
    )
    for n in size["sizes"]:
        some = drawn[drawn["design"] == f"{n} dialogues"]
        alone, judged = (
            some.loc[some["judge"] == judge, "error"].to_numpy() for judge in (False, True)
        )
        saved, bound = 1.0 - judged.sum() / alone.sum(), float(some["most_saving"].mean())
        error = float((judged - (1.0 - saved) * alone).std() / alone.mean() / np.sqrt(len(alone)))
        met, note = bool(abs(saved - bound) <= 2 * error + 0.02), f"± {100 * error:.1f}"
        yield Figure(
            f"variance that the judge saves, {n} of 100",
            100 * saved,
            "%",
            f"bound {100 * bound:.0f} %",
            met,
            note,
        )


def _held(world: str, drawn: pd.DataFrame, n_studies: int) -> Iterator[Figure]:
    """Yield how often intervals hold and ranks are false, by design and with or without a judge."""
    by_way = drawn.groupby(ROW, sort=False)
    right = by_way[["covered", "false"]].mean().assign(error=by_way["covered"].sem())
    for row in right.reset_index().to_dict("records"):
        name = f"{world}, {row['design']}, {_who(row)}"
        met = bool(abs(row["covered"] - 0.95) <= 0.02 + 2 * row["error"])
        yield Figure(
            f"{name}: intervals hold",
            100 * row["covered"],
            "%",
            "93 to 97 %",
            met,
            f"+-{100 * row['error']:.1f}",
        )
        error = np.sqrt(0.05 * 0.95 / n_studies)
        met = bool(row["false"] <= 0.05 + 2 * error)
        yield Figure(
            f"{name}: a false rank",
            100 * row["false"],
            "%",
            "at most 5 %",
            met,
            f"+-{100 * error:.1f} at 5 %",
        )


def _who(row: dict[Any, Any]) -> str:
    return "with a judge" if row["judge"] else "people alone"
