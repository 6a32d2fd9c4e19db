"""Profiles over dimensions: the radar that people ask for, and the bars that are easier to read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from heart_utils.report.figures import COLOURS, MARKERS, mark_simulated

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_profile_bars", "plot_profile_radar", "plot_rank_sweep"]

CROWD = 6
"""Responders in one profile, at most."""


def plot_profile_radar(
    means: pd.DataFrame, *, low: float, high: float, simulated: bool = False, ax: Axes | None = None
) -> Axes:
    """Draw each responder as a polygon over the dimensions.

    The area of a polygon hangs on the order of the dimensions and grows with the square of the
    scores, and no interval fits into it: :func:`plot_profile_bars` shows the same without that.

    Parameters
    ----------
    means : pandas.DataFrame
        ``responder``, ``dimension``, ``score``, one row each; dimensions in the order to be drawn.
    low, high : float
        The ends of the scale; the centre is `low`.
    simulated : bool
        Whether a program drew the scores; then the figure says so.
    ax : matplotlib.axes.Axes, optional
        With a polar projection.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    ValueError
        If there are fewer than three dimensions, more than six responders, or a gap.

    Examples
    --------
    >>> means = pd.DataFrame({"responder": "a", "dimension": ["u", "v", "w"], "score": [3.0, 4.0, 5.0]})
    >>> len(plot_profile_radar(means, low=1, high=5).lines)
    1
    """
    import matplotlib.pyplot as plt

    wide = _wide(means)
    if len(wide.columns) < 3:
        raise ValueError(f"A radar needs three dimensions or more; there are {len(wide.columns)}. Draw bars.")
    if ax is None:
        _, ax = plt.subplots(figsize=(6, 6), subplot_kw={"projection": "polar"}, layout="constrained")
    angles = np.linspace(0, 2 * np.pi, len(wide.columns), endpoint=False)
    closed = np.append(angles, angles[0])
    for (name, scores), colour, marker in zip(wide.iterrows(), COLOURS, MARKERS, strict=False):
        ax.plot(closed, np.append(scores, scores.iloc[0]), marker=marker, markersize=4, color=colour, label=str(name))
    ax.set_xticks(angles, wide.columns)
    ax.tick_params(axis="x", pad=8)
    for label, side in zip(ax.get_xticklabels(), np.cos(angles), strict=True):  # names grow away from the circle
        label.set_horizontalalignment("center" if abs(side) < 0.3 else "left" if side > 0 else "right")
    between = float(np.degrees(angles[1]) / 2)  # numbers stand between two spokes
    ax.set(ylim=(low, high), yticks=np.linspace(low, high, 5)[1:-1], rlabel_position=between)
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.15), ncols=3, frameon=False)
    mark_simulated(ax, pd.DataFrame({"simulated": [simulated]}))
    return ax


def plot_profile_bars(means: pd.DataFrame, *, scale: str, simulated: bool = False, ax: Axes | None = None) -> Axes:
    """Draw each responder's score on each dimension as a point on a level line, with an interval if there is one.

    Parameters
    ----------
    means : pandas.DataFrame
        As in :func:`plot_profile_radar`, and ``ci_low`` and ``ci_high`` where known.
    scale : str
        What the horizontal axis shows, and which interval the bars are.
    simulated : bool
        Whether a program drew the scores; then the figure says so.
    ax : matplotlib.axes.Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.axes.Axes

    Examples
    --------
    >>> means = pd.DataFrame({"responder": ["a", "b"], "dimension": "warmth", "score": [3.0, 4.0]})
    >>> plot_profile_bars(means, scale="Score, 1 to 5").get_xlabel()
    'Score, 1 to 5'
    """
    import matplotlib.pyplot as plt

    wide = _wide(means)
    if ax is None:
        tall = 1 + (0.25 + 0.12 * len(wide)) * len(wide.columns)
        _, ax = plt.subplots(figsize=(7, tall), layout="constrained")
    step = 0.7 / len(wide)
    ends = means.set_index(["responder", "dimension"])
    place = np.arange(len(wide.columns))[::-1]
    for number, (name, scores) in enumerate(wide.iterrows()):
        height = place + 0.35 - step * (number + 0.5)
        colour, marker = COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)]
        if {"ci_low", "ci_high"} <= set(means):
            rows = ends.loc[[(name, dimension) for dimension in wide.columns]]
            ax.hlines(height, rows["ci_low"], rows["ci_high"], color=colour)
        ax.plot(scores.to_numpy(), height, marker, markersize=5, color=colour, label=str(name))
    for line in place[:-1]:
        ax.axhline(line - 0.5, color="0.9", linewidth=0.8, zorder=0)
    ax.set(yticks=place, yticklabels=wide.columns, ylim=(-0.6, len(place) - 0.4))
    ax.set_xlabel(scale)
    ax.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
    mark_simulated(ax, pd.DataFrame({"simulated": [simulated]}))
    return ax


def plot_rank_sweep(swept: pd.DataFrame, profiles: pd.DataFrame | None = None, *, ax: Axes | None = None) -> Axes:
    """Draw the ranks that each responder takes under all weights, and under named profiles of weights.

    Parameters
    ----------
    swept : pandas.DataFrame
        What :func:`heart_utils.ratings.scores.sweep_weights` gives.
    profiles : pandas.DataFrame, optional
        ``profile``, ``responder``, ``rank``.
    ax : matplotlib.axes.Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.axes.Axes

    Examples
    --------
    >>> swept = pd.DataFrame({"responder": ["a", "b"], "mean_rank": [1.2, 1.8], "best_rank": 1, "worst_rank": 2})
    >>> [label.get_text() for label in plot_rank_sweep(swept).get_yticklabels()]
    ['b', 'a']
    """
    import matplotlib.pyplot as plt

    table = swept.sort_values("mean_rank", ascending=False, ignore_index=True)
    if ax is None:
        _, ax = plt.subplots(figsize=(7, 1 + 0.34 * len(table)), layout="constrained")
    ax.hlines(table.index, table["best_rank"], table["worst_rank"], color="0.75", linewidth=4, label="all weights")
    ax.plot(table["mean_rank"], table.index, "|", color="0.3", markersize=10, label="mean over weights")
    place = {name: row for row, name in enumerate(table["responder"])}
    if profiles is not None:
        for number, (profile, rows) in enumerate(profiles.groupby("profile", sort=False)):
            shift = 0.12 * (number - 1)
            height = rows["responder"].map(place) + shift
            ax.plot(rows["rank"], height, MARKERS[number], color=COLOURS[number], markersize=5, label=str(profile))
    ax.set(yticks=table.index, yticklabels=table["responder"], xticks=range(1, len(table) + 1))
    ax.set_xlabel("Rank (1 is best); grey: every rank seen over weights drawn evenly")
    ax.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
    return ax


def _wide(means: pd.DataFrame) -> pd.DataFrame:
    """Put dimensions side by side in the order in which they come, and refuse gaps and crowds."""
    wide = means.pivot_table("score", "responder", "dimension", sort=False)[list(dict.fromkeys(means["dimension"]))]
    if wide.isna().any(axis=None):
        raise ValueError("A responder has no score on some dimension; a profile shows all of them or none.")
    if len(wide) > CROWD:
        raise ValueError(f"{len(wide)} responders cannot be told apart in one figure; choose {CROWD} or fewer.")
    return wide
