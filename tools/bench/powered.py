"""How often prediction-powered intervals and ranks hold where a pair has few labelled dialogues."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from heart_utils.ratings.verdicts import AgreementError
from tests.drawn_votes import PANELS, Judges, Layout, draw_judged, measure_powered, measure_several
from tools.bench import Figure

MOST_FALSE = 5.0


LAYOUTS = (
    Layout(17, 60, 10, 3, 10),  # HEART's
    Layout(17, 150, 10, 3, 10),
    Layout(8, 60, 2, 1, 2),
    Layout(5, 30, 1, 1, 10),
    Layout(5, 60, 1, 1, 10),
    Layout(5, 30, 2, 1, 10),
    Layout(6, 20, 5, 1, 15),
    Layout(3, 30, 1, 1, 3),
    Layout(4, 10, 3, 1, 6),
    Layout(5, 30, 10, 1, 10),
    Layout(5, 60, 10, 2, 10),
)
SEVERAL = ((3, 20), (3, 60), (5, 30))  # responders and labelled dialogues


def run(quick: bool) -> Iterator[Figure]:
    """Yield coverage in percent, with the judge and without, and how often ranks are wrong."""
    n_studies = 20 if quick else 500
    for number, layout in enumerate(LAYOUTS):
        rng = np.random.default_rng([20260109, number])
        rows, refused = [], 0
        for _ in range(n_studies):
            verdicts, truth = draw_judged(layout, rng)
            try:
                rows.append(measure_powered(verdicts, truth))
            except AgreementError:
                refused += 1
        results = pd.DataFrame(rows)
        mean, error = 100.0 * results.mean(), 100.0 * results.sem()
        name = (
            f"{layout.n_responders} responders, {layout.n_labelled} x {layout.pairs} x"
            f" {layout.votes}"
        )
        least = f"least saving {results['saving'].min():.2f}"
        note = f"+-{error['powered']:.1f}; {layout.dialogues_a_pair:.1f} dialogues a pair; {least}"
        alone = (
            f"people alone {mean['people']:.1f} +-{error['people']:.1f}; {len(results)} studies,"
            f" {refused} refused"
        )
        met = bool(abs(mean["powered"] - 95.0) <= 2.0 + (2.0 if quick else 1.0) * error["powered"])
        yield Figure(
            f"intervals hold, {name}", mean["powered"], "%", "93 to 97 %", met, f"{note}; {alone}"
        )
        slack = 2.0 * np.sqrt(MOST_FALSE * (100.0 - MOST_FALSE) / len(results))
        met = bool(mean["false"] <= MOST_FALSE + slack)
        yield Figure(
            f"a range of ranks is wrong, {name}",
            mean["false"],
            "%",
            "at most 5 %",
            met,
            f"+-{error['false']:.1f}",
        )
    for name, judges in PANELS.items():
        for size, n_labelled in SEVERAL:
            yield several(name, judges, size, n_labelled, 20 if quick else 300)


def several(name: str, judges: Judges, size: int, n_labelled: int, n_studies: int) -> Figure:
    """Count how often intervals hold with a weight for each judge, and compare their widths."""
    results = measure_several(judges, size, n_labelled, n_studies)
    mean, error = 100.0 * results.mean(), 100.0 * results.sem()
    note = f"+-{error['each']:.1f}; width {results['each width'].mean():.3f}; by the judges' mean"
    note += f" {mean['mean']:.1f} %, {results['mean width'].mean():.3f}; by people alone"
    note += f" {results['people width'].mean():.3f}; {n_studies} studies"
    met = bool(abs(mean["each"] - 95.0) <= 2.0 + 2.0 * error["each"])
    about = f"intervals hold, {name}, {size} responders, {n_labelled} labelled of 200"
    return Figure(about, mean["each"], "%", "93 to 97 %", met, note)
