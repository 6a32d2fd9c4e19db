"""Check that reliability predicted from half of the dialogues is that of the other half.

Known components must be found; of studies of whole conversations the intervals of differences and
the promised power too.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from heart_utils.agreement.generalizability import (
    check_reliability,
    variance_components,
)
from tests.drawn_scores import CONVERSATIONS, FACETS, TRUE, compare_equals, draw_scores
from tools.bench import Figure
from tools.calculator import published_scores

MOST = 0.03

#: Starts, seekers, repeats, raters, and what is fixed.
DESIGNS = [
    ((40, 1, 1, 1), ("seeker", "rater")),
    ((40, 2, 1, 1), ("seeker", "rater")),
    ((40, 2, 2, 2), ("seeker", "rater")),
    ((40, 4, 1, 2), ("rater",)),
    ((30, 4, 1, 4), ()),
    ((20, 8, 1, 6), ()),
]


def run(quick: bool) -> Iterator[Figure]:
    """Yield predicted minus measured reliability, and differences of simulated ones from truth."""
    yield from simulated(40 if quick else 400)
    yield from conversations(40 if quick else 300)
    yield from measured(20 if quick else 200)


def simulated(n_studies: int) -> Iterator[Figure]:
    """Estimate components and reliability of known worlds."""
    for n_responders, n_dialogues, n_raters in ((10, 100, 4), (6, 40, 2)):
        sizes = {"responder": n_responders, "dialogue": n_dialogues, "rater": n_raters}
        rng = np.random.default_rng([n_responders, n_dialogues])
        components = [variance_components(draw_scores(rng, sizes, TRUE)) for _ in range(n_studies)]
        where = f"{n_responders} responders x {n_dialogues} dialogues x {n_raters} raters"
        table = pd.DataFrame([one.table["estimate"] for one in components])
        for name, truth in TRUE.items():
            error = table[name].std() / np.sqrt(n_studies)
            met = bool(abs(table[name].mean() - truth) <= 3 * error)
            yield Figure(
                f"component {name}, {where}",
                table[name].mean(),
                "",
                f"{truth}",
                met,
                f"± {error:.4f}",
            )
        for n, m, same in ((10, n_raters, True), (10, 1, False)):
            truth = TRUE["responder"] + TRUE["responder:rater"] / m * same
            noise = (
                TRUE["responder:dialogue"] / n
                + TRUE["rest"] / n / m
                + TRUE["responder:rater"] / m * (not same)
            )
            predicted = np.array([one.reliability(n, m, same_raters=same) for one in components])
            note = (
                f"truth {truth / (truth + noise):.3f}; SD {predicted.std():.3f}; ±"
                f" {predicted.std() / np.sqrt(n_studies):.4f}"
            )
            raters = f"{m} {'same' if same else 'other'} raters"
            yield Figure(
                f"reliability, 10 dialogues, {raters}, {where}", predicted.mean(), "", note=note
            )


def conversations(n_studies: int) -> Iterator[Figure]:
    """Estimate the components of studies of conversations, and compare two equal responders."""
    rng = np.random.default_rng(34)
    sizes = {"responder": 5, "dialogue": 12, "seeker": 3, "repeat": 2, "rater": 2}
    components = pd.DataFrame(
        [
            variance_components(draw_scores(rng, sizes, CONVERSATIONS), facets=FACETS).table[
                "estimate"
            ]
            for _ in range(n_studies)
        ]
    )
    for name, values in components.items():
        part = "responder:dialogue:seeker:repeat" if name == "repeat" else name
        truth, error = CONVERSATIONS.get(str(part), 0.0), values.std() / np.sqrt(n_studies)
        met = bool(abs(values.mean() - truth) <= 3 * error)
        yield Figure(
            f"component {name}, conversations", values.mean(), "", f"{truth}", met, f"± {error:.4f}"
        )
    for shape, fixed in DESIGNS:
        row = compare_equals(shape, fixed, n_studies=n_studies, rng=np.random.default_rng(shape))
        where = "{} starts x {} seekers x {} repeats x {} raters, fixed: ".format(*shape)
        where += " and ".join(fixed) or "none"
        for name in ("covered", "found"):
            promised = row["promised"] if name == "found" else 0.95
            error = np.sqrt(promised * (1 - promised) / n_studies)
            yield Figure(
                f"{name}, {where}",
                row[name],
                "",
                f"{promised:.2f}",
                bool(abs(row[name] - promised) <= max(0.03, 3 * error)),
                f"± {error:.3f}",
            )


def measured(n_halves: int) -> Iterator[Figure]:
    """Predict from halves of the published tables."""
    rows = []
    for what, party, scores in published_scores():
        source, attribute = what.split(", ")
        for raters in ("all", "another") if len(set(scores["rater"])) > 1 else ("all",):
            for n in (5, 10, 20):
                halves = check_reliability(
                    scores, n, raters=raters, n_halves=n_halves, rng=np.random.default_rng(n)
                )
                off = (
                    halves[["intraclass", "correlation", "components"]]
                    .sub(halves["predicted"], axis=0)
                    .abs()
                )
                row = {
                    f"{name} {how}": getattr(off[name], how)()
                    for name in off
                    for how in ("mean", "median")
                }
                rows.append(
                    {
                        "where": f"{source}, {party}, {n} dialogues, raters: {raters}",
                        "attribute": attribute,
                        **row,
                    }
                )
    comparison = pd.DataFrame(rows)
    for where, some in comparison.groupby("where"):
        for how in ("intraclass", "correlation"):
            missed = some.set_index("attribute")[f"{how} mean"]
            note = (
                f"median {some[f'{how} median'].mean():.3f}; worst {missed.idxmax()}"
                f" {missed.max():.3f}; "
            )
            note += f"{(missed <= MOST).sum()} of {len(some)} within"
            name = f"predicted less measured ({how}), {where}"
            yield Figure(
                name, float(missed.mean()), "", f"at most {MOST}", bool(missed.mean() <= MOST), note
            )
