"""Figures about what replies do, and about quality against time, size or price."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from heart_utils.report.figures import COLOURS, KIND_COLOURS, KIND_MARKERS, MARKERS, interval_words, mark_simulated

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.transforms import Bbox

__all__ = ["plot_absent", "plot_confusion", "plot_correlation_ends", "plot_shares", "plot_trend"]


PLACES = (
    *((0, up, "center", edge) for up, edge in ((7, "bottom"), (-7, "top"))),
    *((across, 0, side, "center") for across, side in ((7, "left"), (-7, "right"))),
    *((0, up, "center", edge) for up, edge in ((18, "bottom"), (-18, "top"), (29, "bottom"), (-29, "top"))),
)
"""Where a point's name is tried, in this order: offsets in points, and what of the text lies there."""


def plot_absent(message: str) -> Axes:
    """Draw a frame that says why there is nothing to see.

    Parameters
    ----------
    message : str
        What is missing, and what brings it.

    Returns
    -------
    matplotlib.axes.Axes

    Examples
    --------
    >>> plot_absent("No codes.").texts[0].get_text()
    'No codes.'
    """
    import textwrap

    import matplotlib.pyplot as plt

    _, ax = plt.subplots(figsize=(7, 1.4), layout="constrained")
    ax.text(0.5, 0.5, "\n".join(textwrap.wrap(message, 80)), ha="center", va="center", transform=ax.transAxes, color="0.3")
    ax.set(xticks=[], yticks=[])
    return ax


def plot_shares(
    table: pd.DataFrame,
    *,
    by: str,
    row: str = "code",
    value: str = "share",
    label: str = "Share of replies",
    order: Sequence[str] | None = None,
    bars: str = "dialogues like these",
    ax: Axes | None = None,
) -> Axes:
    """Draw a value with its interval for each author in each row, authors side by side.

    Parameters
    ----------
    table : pandas.DataFrame
        Columns `by`, `row`, `value`, ``ci_low``, ``ci_high`` and, if anything was simulated, ``simulated``.
    by, row, value : str
        Column of the colour and mark, of the rows, and of what is drawn.
    label : str
        Of the horizontal axis.
    order : sequence of str, optional
        Rows from top to bottom.
    bars : str
        What the intervals speak of.
    ax : matplotlib.axes.Axes, optional
        Drawn on a new figure if none is given.

    Returns
    -------
    matplotlib.axes.Axes

    Examples
    --------
    >>> table = pd.DataFrame({"responder": ["m"], "code": ["question"], "share": [0.4], "ci_low": [0.3], "ci_high": [0.5]})
    >>> [text.get_text() for text in plot_shares(table, by="responder").get_yticklabels()]
    ['question']
    """
    import matplotlib.pyplot as plt

    rows = list(order) if order is not None else list(dict.fromkeys(table[row]))
    names = list(dict.fromkeys(table[by]))
    if ax is None:
        height = 1.3 + len(rows) * (0.12 * len(names) + 0.16)
        _, ax = plt.subplots(figsize=(7, height), layout="constrained")
    place = {name: len(rows) - 1 - number for number, name in enumerate(rows)}
    offsets = np.linspace(0.3, -0.3, len(names)) if len(names) > 1 else [0.0]
    for number, name in enumerate(names):
        mine = table[(table[by] == name) & table[row].isin(rows)]
        heights = mine[row].map(place).to_numpy(float) + offsets[number]
        colour, marker = COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)]
        ax.hlines(heights, mine["ci_low"], mine["ci_high"], color=colour, linewidth=1.5)
        ax.plot(mine[value], heights, marker, color=colour, markersize=5, label=str(name))
    ax.set(yticks=list(place.values()), yticklabels=[str(name).replace("_", " ") for name in place])
    ax.set_ylim(-0.6, len(rows) - 0.4)
    known = table["ci_low"].notna().any()
    ax.set_xlabel(f"{label}; bars: {table['ci_level'].max():.0%} interval, {bars}" if known and "ci_level" in table else label)
    if len(names) > 1 and (figure := ax.get_figure(root=True)) is not None:
        figure.legend(fontsize="small", loc="outside upper center", ncol=2)
    mark_simulated(ax, table if "simulated" in table else pd.DataFrame({"simulated": [False]}))
    return ax


def plot_confusion(confusion: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Draw which label is taken for which: each row is the share of turns that people gave one label.

    Parameters
    ----------
    confusion : pandas.DataFrame
        Counts: a row for each label given, a column for each found.
    ax : matplotlib.axes.Axes, optional
        Drawn on a new figure if none is given.

    Returns
    -------
    matplotlib.axes.Axes

    Examples
    --------
    >>> ax = plot_confusion(pd.DataFrame([[3, 1], [0, 2]], index=["q", "s"], columns=["q", "s"]))
    >>> [text.get_text() for text in ax.texts]
    ['75', '25', '0', '100']
    """
    import matplotlib.pyplot as plt

    shares = confusion.div(confusion.sum(axis="columns").clip(lower=1), axis="index")
    if ax is None:
        _, ax = plt.subplots(figsize=(7, 5), layout="constrained")
    ax.imshow(shares, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    for (one, other), share in np.ndenumerate(shares.to_numpy()):
        ax.text(other, one, f"{share:.0%}"[:-1], ha="center", va="center", color="white" if share > 0.55 else "0.2")
    names = [str(name).replace("_", " ") for name in shares]
    given = [f"{str(name).replace('_', ' ')} ({n:,})" for name, n in confusion.sum(axis="columns").items()]
    ax.set(xticks=range(len(names)), yticks=range(len(given)), yticklabels=given)
    ax.set_xticklabels(names, rotation=35, ha="right")
    ax.set(xlabel="Found by the coder (% of the row)", ylabel="Given by the writer (turns)")
    return ax


def plot_trend(
    models: pd.DataFrame,
    *,
    x: str,
    x_label: str,
    y_label: str,
    frontier: bool = False,
    ax: Axes | None = None,
) -> Axes:
    """Draw models by what they take and how they are rated, each with its name.

    Parameters
    ----------
    models : pandas.DataFrame
        ``responder``, `x`, ``rating`` and, if known, ``rating_low``, ``rating_high``, ``responder_kind``, ``on_frontier``,
        ``simulated``.
    x, x_label : str
        Drawn on a logarithmic scale.
    y_label : str
        What the rating is called, which is drawn as it is.
    frontier : bool
        Whether to join those on the frontier.
    ax : matplotlib.axes.Axes, optional
        Drawn on a new figure if none is given.

    Returns
    -------
    matplotlib.axes.Axes

    Examples
    --------
    >>> ax = plot_trend(pd.DataFrame({"responder": ["m"], "size": [7.0], "rating": [1500.0]}), x="size", x_label="Size",
    ...     y_label="Rating")
    >>> ax.texts[0].get_text()
    'm'
    """
    import matplotlib.pyplot as plt

    table = models.dropna(subset=[x, "rating"]).sort_values(["rating", x])
    if ax is None:
        _, ax = plt.subplots(figsize=(7, 4.6), layout="constrained")
    kinds = table["responder_kind"] if "responder_kind" in table else pd.Series("model", index=table.index)
    if {"rating_low", "rating_high"} <= set(table):
        ax.vlines(table[x], table["rating_low"], table["rating_high"], color="0.7", linewidth=1.5, zorder=1)
    for kind in dict.fromkeys(kinds):
        rows = table[kinds == kind]
        ax.plot(rows[x], rows["rating"], KIND_MARKERS[kind], color=KIND_COLOURS[kind], zorder=2)
    if frontier and "on_frontier" in table:
        best = table[table["on_frontier"]].sort_values(x)
        ax.step(best[x], best["rating"], where="post", color="0.4", linewidth=1, linestyle="--", zorder=0)
    ax.set(xscale="log", xlabel=x_label, ylabel=y_label)
    ax.margins(x=0.24, y=0.14)
    ax.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    _name_points(ax, table[x], table["rating"], table["responder"])
    mark_simulated(ax, table if "simulated" in table else pd.DataFrame({"simulated": [False]}))
    return ax


def _name_points(ax: Axes, x: pd.Series, y: pd.Series, names: pd.Series) -> None:
    """Write each point's name beside it, at the first place where it covers no other name and no point."""
    ax.figure.draw_without_rendering()  # type: ignore[union-attr]  # so that the layout stands before places are tried
    points = ax.transData.transform(list(zip(x, y, strict=True)))
    taken: list[Bbox] = []
    for one, other, name, at in zip(x, y, names, points, strict=True):
        text = ax.annotate(str(name), (one, other), xytext=(0, 7), textcoords="offset points", fontsize="x-small")
        for across, up, side, edge in PLACES:
            text.set(position=(across, up), ha=side, va=edge)
            box = text.get_window_extent()
            beside = [point for point in points if tuple(point) != tuple(at)]
            if not any(box.overlaps(there) for there in taken) and not any(box.contains(*point) for point in beside):
                break
        taken.append(box)


def plot_correlation_ends(table: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Draw rank correlations with their intervals, one a row, and the line of none.

    Parameters
    ----------
    table : pandas.DataFrame
        ``name``, ``rho``, ``ci_low``, ``ci_high``, ``ci_level``.
    ax : matplotlib.axes.Axes, optional
        Drawn on a new figure if none is given.

    Returns
    -------
    matplotlib.axes.Axes

    Examples
    --------
    >>> table = pd.DataFrame({"name": ["x"], "rho": [0.5], "ci_low": [0.1], "ci_high": [0.8], "ci_level": 0.9})
    >>> ax = plot_correlation_ends(table)
    >>> [text.get_text() for text in ax.get_yticklabels()]
    ['x']
    """
    import matplotlib.pyplot as plt

    rows = table.iloc[::-1].reset_index(drop=True)
    if ax is None:
        _, ax = plt.subplots(figsize=(7, 0.9 + 0.35 * len(rows)), layout="constrained")
    ax.axvline(0, color="0.6", linewidth=1)
    ax.hlines(rows.index, rows["ci_low"], rows["ci_high"], color=COLOURS[0], linewidth=2)
    ax.plot(rows["rho"], rows.index, "o", color=COLOURS[0])
    ax.set(
        yticks=list(rows.index),
        yticklabels=list(rows["name"]),
        xlim=(-1, 1),
        ylim=(-0.6, len(rows) - 0.4),
        xticks=(-1, -0.5, 0, 0.5, 1),
    )
    ax.set_xlabel(f"Rank correlation (Spearman); bars: {interval_words(rows)}")
    return ax
