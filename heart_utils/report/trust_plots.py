"""Figures about judges: a report card, and a line that drifts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from heart_utils.report.figures import COLOURS, MARKERS, interval_words, mark_simulated

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_card", "plot_drift"]

EXPECTED_COLOURS = {"worse": COLOURS[0], "not_better": COLOURS[1], "even": COLOURS[5]}
EXPECTED_MARKERS = {"worse": "o", "not_better": "s", "even": "D"}
EXPECTED_WORDS = {"worse": "is worse: should be right of the line", "not_better": "adds nothing: should not be left of it",
                  "even": "says who wrote it: should be on it"}  # fmt: skip


def plot_card(grades: pd.DataFrame, *, title: str, simulated: bool = False, ax: Axes | None = None) -> Axes:
    """Draw one judge's report card: how often it preferred the reply that each probe was made from.

    Parameters
    ----------
    grades : pandas.DataFrame
        Rows of one judge, from :func:`heart_utils.judges.report_card.grade_probes`.
    title : str
        Whose card.
    simulated : bool
        Whether the verdicts were drawn by a program.
    ax : matplotlib.axes.Axes, optional
        Drawn on a new figure if none is given.

    Returns
    -------
    matplotlib.axes.Axes

    Examples
    --------
    >>> grades = pd.DataFrame({"probe": ["echo"], "expected": ["worse"], "right": [0.9], "ci_low": [0.7], "ci_high": [0.97],
    ...     "ci_level": 0.95, "outcome": ["tells"], "n": [24]})
    >>> plot_card(grades, title="judge").get_title(loc="left")
    'judge'
    """
    import matplotlib.pyplot as plt

    table = grades.iloc[::-1].reset_index(drop=True)
    if ax is None:
        _, ax = plt.subplots(figsize=(7.4, 1.4 + 0.36 * len(table)), layout="constrained")
    for known, rows in table.groupby("expected", sort=False):
        colour, marker = EXPECTED_COLOURS[str(known)], EXPECTED_MARKERS[str(known)]
        ax.hlines(rows.index, rows["ci_low"], rows["ci_high"], color=colour, linewidth=2)
        ax.plot(rows["right"], rows.index, marker, color=colour, label=EXPECTED_WORDS[str(known)])
    for place, outcome in enumerate(table["outcome"]):
        ax.text(1.03, place, outcome, va="center", fontsize="small", transform=ax.get_yaxis_transform())
    ax.axvline(0.5, color="0.7", linewidth=1, zorder=0)
    ax.set(yticks=range(len(table)), yticklabels=table["probe"], xlim=(-0.02, 1.02), ylim=(-0.6, len(table) - 0.4))
    ax.set_xlabel(f"Share of dialogues in which the unspoilt reply is preferred; bars: {interval_words(table)}s")
    ax.set_title(title, loc="left")
    ax.legend(title="The probe", loc="upper center", bbox_to_anchor=(0.5, -0.16 - 0.5 / len(table)), ncols=1)
    mark_simulated(ax, pd.DataFrame({"simulated": [simulated]}))
    return ax


def plot_drift(drift: pd.DataFrame, *, simulated: bool = False, ax: Axes | None = None) -> Axes:
    """Draw how far each rater lies from the model judges, part by part of the conversations.

    Parameters
    ----------
    drift : pandas.DataFrame
        From :func:`heart_utils.judges.retest.score_drift`.
    simulated : bool
        Whether the scores were drawn by a program.
    ax : matplotlib.axes.Axes, optional
        Drawn on a new figure if none is given.

    Returns
    -------
    matplotlib.axes.Axes

    Examples
    --------
    >>> drift = pd.DataFrame({"rater": "j", "part": [1, 2], "gap": [0.0, 0.5], "ci_low": [-0.1, 0.4], "ci_high": [0.1, 0.6]})
    >>> len(plot_drift(drift).lines)
    2
    """
    import matplotlib.pyplot as plt

    if ax is None:
        _, ax = plt.subplots(figsize=(7, 3.4), layout="constrained")
    for number, (rater, rows) in enumerate(drift.groupby("rater")):
        colour, marker = COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)]
        ax.plot(rows["part"], rows["gap"], f"-{marker}", color=colour, markersize=4, label=str(rater))
        ax.fill_between(rows["part"], rows["ci_low"], rows["ci_high"], color=colour, alpha=0.2, linewidth=0)
    ax.axhline(0.0, color="0.7", linewidth=1, zorder=0)
    ax.set(xlabel="Part of the conversations, in the order of the file", ylabel="Points above the other model judges")
    ax.set_xticks(np.unique(drift["part"]))
    ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    mark_simulated(ax, pd.DataFrame({"simulated": [simulated]}))
    return ax
