"""Figures about raters: how each worked, and how often a rule finds those who did not care."""

from __future__ import annotations

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullFormatter

from heart_utils.report.figures import COLOURS, interval_words, mark_simulated

__all__ = ["plot_detection", "plot_raters"]

KEPT, LEFT_OUT = (COLOURS[0], "o", "kept"), (COLOURS[1], "X", "left out")


def plot_raters(quality: pd.DataFrame, decisions: pd.DataFrame, *, simulated: bool = False, ax: Axes | None = None) -> Axes:
    """Draw each rater by time on a page and reliability; who is left out has another colour and another mark.

    Parameters
    ----------
    quality : pandas.DataFrame
        As :func:`heart_utils.agreement.raters.rater_quality` makes it.
    decisions : pandas.DataFrame
        As :func:`heart_utils.agreement.raters.decide_exclusions` makes it.
    simulated : bool
        Whether to say so across the figure.
    ax : matplotlib.axes.Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.axes.Axes
        The axes.

    Examples
    --------
    >>> quality = pd.DataFrame({"rater": ["x"], "median_seconds": [40.0], "reliability": [0.8]})
    >>> quality = quality.assign(ci_low=0.6, ci_high=0.9, ci_level=0.95)
    >>> ax = plot_raters(quality, pd.DataFrame({"rater": ["x"], "excluded": [False]}))
    >>> ax.get_legend().get_texts()[0].get_text()
    'kept (1)'
    """
    table = quality.merge(decisions[["rater", "excluded"]], on="rater")
    if ax is None:
        _, ax = plt.subplots(figsize=(7, 4), layout="constrained")
    for excluded, (colour, marker, label) in ((False, KEPT), (True, LEFT_OUT)):
        rows = table[table["excluded"] == excluded]
        ax.vlines(rows["median_seconds"], rows["ci_low"], rows["ci_high"], color=colour, alpha=0.35, linewidth=1)
        ax.plot(rows["median_seconds"], rows["reliability"], marker, color=colour, label=f"{label} ({len(rows)})")
    ax.axhline(0.5, color="0.4", linestyle=":", linewidth=1)
    ax.set(xscale="log", ylim=(0, 1), xlabel="Median time on a page (seconds, log scale)")
    ax.set_ylabel(f"Reliability (0.5 is a coin); bars: {interval_words(quality)}")
    ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ax.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.legend(frameon=False, loc="lower right")
    mark_simulated(ax, pd.DataFrame({"simulated": [simulated]}))
    return ax


def plot_detection(rates: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Draw the share of simulated raters of each behaviour that the rule leaves out.

    Parameters
    ----------
    rates : pandas.DataFrame
        As :func:`heart_utils.simulate.study.detection_rates` makes it.
    ax : matplotlib.axes.Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.axes.Axes
        The axes, marked as simulated.

    Examples
    --------
    >>> rates = pd.DataFrame({"behaviour": ["first_side"], "excluded": [0.9], "ci_low": [0.8], "ci_high": [0.95],
    ...     "ci_level": 0.95})
    >>> ax = plot_detection(rates)
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['first side']
    """
    if ax is None:
        _, ax = plt.subplots(figsize=(7, 0.8 + 0.4 * len(rates)), layout="constrained")
    rows = rates.iloc[::-1].reset_index(drop=True)
    ax.hlines(rows.index, rows["ci_low"], rows["ci_high"], color=KEPT[0])
    ax.plot(rows["excluded"], rows.index, "o", color=KEPT[0])
    ax.set(yticks=rows.index, xlim=(-0.02, 1.02), ylim=(-0.6, len(rows) - 0.4))
    ax.set_yticklabels([name.replace("_", " ") for name in rows["behaviour"]])
    ax.set_xlabel(f"Share left out; bars: {interval_words(rates)} over simulated raters")
    mark_simulated(ax, pd.DataFrame({"simulated": [True]}))
    return ax
