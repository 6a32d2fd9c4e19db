"""Figures about studies: what an interval speaks of, how often it holds the truth, which gap a design can see."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from heart_utils.report.figures import COLOURS, MARKERS, draw_intervals, mark_simulated

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_coverage", "plot_gaps", "plot_interval_kinds"]


def plot_interval_kinds(boards: pd.DataFrame, *, by: str, title: str | None = None, ax: Axes | None = None) -> Axes:
    """Draw several intervals of each responder under each other, best responder on top.

    Parameters
    ----------
    boards : pandas.DataFrame
        Rows of the table ``ratings``, one a responder and value of `by`.
    by : str
        What tells the intervals apart.
    title : str, optional
        What was rated and by whom.
    ax : matplotlib.axes.Axes, optional
        Drawn on a new figure if none is given.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    ValueError
        If the table is empty, or a responder stands twice under one value of `by`.

    Examples
    --------
    >>> boards = pd.DataFrame({"drawn": ["votes", "dialogues"], "responder": "x", "rating": 1500.0, "ci_level": 0.95,
    ...     "rating_low": [1490.0, 1480.0], "rating_high": [1510.0, 1520.0], "simulated": False})
    >>> plot_interval_kinds(boards, by="drawn").get_legend().get_title().get_text()
    'Drawn'
    """
    import matplotlib.pyplot as plt

    kinds = list(dict.fromkeys(boards[by]))
    if not kinds or boards.duplicated([by, "responder"]).any():
        raise ValueError(f"Each responder needs one row for each {by}; this table has none, or several.")
    order = boards.groupby("responder")["rating"].mean().sort_values().index
    if ax is None:
        _, ax = plt.subplots(figsize=(7.5, 1.3 + 0.11 * len(order) * (len(kinds) + 1)), layout="constrained")
    for number, kind in enumerate(kinds):
        rows = boards[boards[by] == kind]
        height = order.get_indexer(rows["responder"]) + 0.35 - 0.7 * (number + 0.5) / len(kinds)
        colour, marker = COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)]
        draw_intervals(ax, height, rows["rating_low"], rows["rating_high"], within=boards, color=colour, linewidth=1.8)
        ax.plot(rows["rating"], height, marker, color=colour, markersize=4, label=kind)
    ax.set(yticks=range(len(order)), yticklabels=order)
    ax.set_xlabel(f"Rating (the mean responder has 1500); bars: {boards['ci_level'].max():.0%} intervals")
    ax.legend(title=by.replace("_", " ").capitalize(), loc="best")
    if title:
        ax.set_title(title)
    mark_simulated(ax, boards)
    return ax


def plot_coverage(coverage: pd.DataFrame, *, by: str, ax: Axes | None = None) -> Axes:
    """Draw how often each kind of interval held the truth, beside what it promised.

    Parameters
    ----------
    coverage : pandas.DataFrame
        As :func:`heart_utils.simulate.coverage.simulate_coverage` gives it for one quantity, several
        designs under each other.
    by : str
        Column that tells designs apart.
    ax : matplotlib.axes.Axes, optional
        Drawn on a new figure if none is given.

    Returns
    -------
    matplotlib.axes.Axes
        Bars reach two Monte Carlo standard errors.

    Raises
    ------
    ValueError
        If the table is empty, or an interval stands twice under one design.

    Examples
    --------
    >>> found = pd.DataFrame({"design": "plain", "interval": ["votes", "dialogues"], "coverage": [0.6, 0.95],
    ...     "mc_error": 0.01, "promised": 0.95, "n_studies": 200, "simulated": True})
    >>> [label.get_text() for label in plot_coverage(found, by="design").get_yticklabels()]
    ['dialogues', 'votes']
    """
    import matplotlib.pyplot as plt

    designs = list(dict.fromkeys(coverage[by]))
    if not designs or coverage.duplicated([by, "interval"]).any():
        raise ValueError(f"Each interval needs one row for each {by}; this table has none, or several. Choose one quantity.")
    kinds = pd.Index(list(dict.fromkeys(coverage["interval"]))[::-1])
    if ax is None:
        _, ax = plt.subplots(figsize=(7.5, 1.4 + 0.16 * len(kinds) * (len(designs) + 1)), layout="constrained")
    promised = float(coverage["promised"].iloc[0])
    ax.axvspan(100 * promised - 2, 100 * promised + 2, color="0.9", zorder=0)
    ax.axvline(100 * promised, color="0.5", linewidth=1, zorder=1)
    for number, design in enumerate(designs):
        rows = coverage[coverage[by] == design]
        height = kinds.get_indexer(rows["interval"]) + 0.35 - 0.7 * (number + 0.5) / len(designs)
        ax.errorbar(
            100 * rows["coverage"],
            height,
            xerr=200 * rows["mc_error"],
            fmt=MARKERS[number % len(MARKERS)],
            color=COLOURS[number % len(COLOURS)],
            markersize=5,
            label=design,
        )
    ax.set(yticks=range(len(kinds)), yticklabels=kinds, xlim=(None, 101))
    n_studies = int(coverage["n_studies"].min())
    ax.set_xlabel(
        f"% of intervals that hold the truth (promised: {promised:.0%}); {n_studies} studies, bars: 2 standard errors"
    )
    ax.legend(loc="upper center", bbox_to_anchor=(0.4, -0.14), ncols=2)
    mark_simulated(ax, coverage)
    return ax


def plot_gaps(plans: pd.DataFrame, *, by: str, ax: Axes | None = None) -> Axes:
    """Draw the smallest gap that designs can see against their number of dialogues.

    Parameters
    ----------
    plans : pandas.DataFrame
        As :func:`heart_utils.simulate.power.plan_study` gives it.
    by : str
        Column of it, one line a value.
    ax : matplotlib.axes.Axes, optional
        Drawn on a new figure if none is given.

    Returns
    -------
    matplotlib.axes.Axes
        Both axes are logarithmic: where only dialogues count, a line falls by half for four times as many.

    Raises
    ------
    ValueError
        If the table is empty.

    Examples
    --------
    >>> from heart_utils.simulate.power import Design, plan_study
    >>> plans = plan_study([Design(n, 5, 10, 3, 40) for n in (20, 80, 320)])
    >>> len(plot_gaps(plans, by="n_raters").lines)
    1
    """
    import matplotlib.pyplot as plt

    if plans.empty:
        raise ValueError("There is no design to draw: the table has no row.")
    if ax is None:
        _, ax = plt.subplots(figsize=(7.5, 4), layout="constrained")
    for number, (value, rows) in enumerate(plans.groupby(by, sort=False)):
        ordered = rows.sort_values("n_dialogues")
        colour, marker = COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)]
        ax.plot(ordered["n_dialogues"], ordered["gap_points"], marker=marker, color=colour, label=str(value))
    ax.set(xscale="log", yscale="log")
    ticks = sorted(plans["n_dialogues"].unique())
    ax.set_xticks(ticks, [f"{tick:,}" for tick in ticks], minor=False)
    ax.set_xticks([], minor=True)
    low, high = plans["gap_points"].min(), plans["gap_points"].max()
    points = [tick for tick in (5, 10, 20, 30, 50, 75, 100, 150, 200, 300, 500) if low * 0.7 <= tick <= high * 1.4]
    ax.set_yticks(points, [str(tick) for tick in points])
    ax.set_yticks([], minor=True)
    ax.set(xlabel="Dialogues", ylabel="Smallest gap seen (rating points)")
    ax.grid(color="0.9")
    ax.legend(title=by.removeprefix("n_").replace("_", " ").capitalize(), loc="best")
    ax.text(
        0, 1.015, "calculated from the design, measured on nobody", transform=ax.transAxes, fontsize="x-small", color="0.35"
    )
    return ax
