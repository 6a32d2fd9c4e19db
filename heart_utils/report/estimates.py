"""Figures of estimates with their intervals, one row a thing, and of the ceiling of agreement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from heart_utils.agreement.ceiling import ceiling_bounds
from heart_utils.report.figures import COLOURS, MARKERS, mark_simulated

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_agreement", "plot_ceiling", "plot_estimates", "plot_forest"]

ROOM = 0.5
"""Of a row, what several estimates in it are spread over."""


def plot_estimates(
    table: pd.DataFrame,
    *,
    value: str,
    label: str,
    by: str | None = None,
    low: str | None = None,
    high: str | None = None,
    reference: Mapping[str, float] | None = None,
    xlabel: str | None = None,
    simulated: bool = False,
    ax: Axes | None = None,
) -> Axes:
    """Draw one row for each label, with a marker for each estimate and a line for its interval.

    Parameters
    ----------
    table : pandas.DataFrame
        One row an estimate, in the order from top to bottom.
    value : str
        Column of the estimates.
    label : str
        Column that names the rows of the figure.
    by : str, optional
        Column that tells several estimates in one row apart, by colour and marker.
    low, high : str, optional
        Columns of the ends; by default ``<value>_low`` and ``<value>_high``, where there are such.
    reference : mapping of str to float, optional
        Words -> where a thin line stands, such as ``{"a coin": 0.5}``.
    xlabel : str, optional
        Says what is drawn, with its unit and what the interval speaks of; by default `value`.
    simulated : bool
        Whether the figure says SIMULATED across its face.
    ax : matplotlib.axes.Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.axes.Axes
        The axes.

    Raises
    ------
    ValueError
        If the table has no row, or more kinds of `by` than there are colours.

    Examples
    --------
    >>> found = pd.DataFrame({"judge": ["x", "y"], "n_eff": [1.2, 2.0], "n_eff_low": [1.0, 1.5], "n_eff_high": [1.5, 3.0]})
    >>> [text.get_text() for text in plot_estimates(found, value="n_eff", label="judge").get_yticklabels()]
    ['x', 'y']
    """
    import matplotlib.pyplot as plt

    rows, kinds = list(dict.fromkeys(table[label])), [None] if by is None else list(dict.fromkeys(table[by]))
    if not rows:
        raise ValueError("There is nothing to draw: the table has no row.")
    if len(kinds) > len(COLOURS):
        raise ValueError(f"{by} has {len(kinds)} kinds, and a reader can tell {len(COLOURS)} apart. Choose some of them.")
    if ax is None:
        _, ax = plt.subplots(
            figsize=(7.2 if by is None else 8.6, 1.0 + 0.32 * len(rows) * max(1.0, 0.55 * len(kinds))), layout="constrained"
        )
    low, high = low or f"{value}_low", high or f"{value}_high"
    shifts = np.linspace(-ROOM / 2, ROOM / 2, len(kinds)) if len(kinds) > 1 else [0.0]
    for number, (kind, shift) in enumerate(zip(kinds, shifts, strict=True)):
        part = table if by is None else table[table[by] == kind]
        places = np.array([rows.index(name) for name in part[label]]) + shift
        if low in part and high in part:
            ax.hlines(places, part[low], part[high], color=COLOURS[number], linewidth=2)
        ax.plot(part[value], places, MARKERS[number], color=COLOURS[number], label=kind)
    for words, place in (reference or {}).items():
        ax.axvline(place, color="0.6", linewidth=1, linestyle=":", zorder=0)
        ax.annotate(
            words, (place, 1.0), xycoords=("data", "axes fraction"), fontsize="x-small", color="0.35", ha="center", va="bottom"
        )
    ax.set_yticks(range(len(rows)), [str(name) for name in rows])
    ax.set_ylim(len(rows) - 0.4, -0.6)
    ax.set_xlabel(xlabel or value)
    if by is not None:
        ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    mark_simulated(ax, pd.DataFrame({"simulated": [simulated]}))
    return ax


def plot_agreement(table: pd.DataFrame, *, label: str, simulated: bool = False, ax: Axes | None = None) -> Axes:
    """Draw agreement beside what the authors' names alone would reach, each with its interval.

    Parameters
    ----------
    table : pandas.DataFrame
        Rows of the ``table`` of a :class:`heart_utils.agreement.agreement.Agreement`, in the order from top to bottom.
    label : str
        Column that names the rows of the figure.
    simulated : bool
        Whether the figure says SIMULATED across its face.
    ax : matplotlib.axes.Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.axes.Axes
        The axes.

    Examples
    --------
    >>> found = pd.DataFrame({"who": ["people"], "agreement": [0.8], "agreement_low": [0.7], "agreement_high": [0.9],
    ...     "author_only": [0.7], "author_only_low": [0.6], "author_only_high": [0.8], "ci_level": [0.95]})
    >>> plot_agreement(found, label="who").get_legend_handles_labels()[1]
    ['agreement', "from the authors' names alone"]
    """
    kinds = {"agreement": "agreement", "author_only": "from the authors' names alone"}
    ends = {"": "share", "_low": "share_low", "_high": "share_high"}
    parts = [
        table.rename(columns={name + end: word for end, word in ends.items()})[[label, *ends.values()]].assign(kind=words)
        for name, words in kinds.items()
    ]
    level = table["ci_level"].max()
    said = f"Share of pairs of votes; bars: {level:.0%} interval over dialogues like these"
    reference = {"a coin": 0.5}
    return plot_estimates(
        pd.concat(parts), value="share", label=label, by="kind", reference=reference, xlabel=said, simulated=simulated, ax=ax
    )


def plot_ceiling(points: Sequence[tuple[str, float, float]], *, simulated: bool = False, ax: Axes | None = None) -> Axes:
    """Draw between which bounds the best judge's agreement lies, for each agreement of two people.

    Parameters
    ----------
    points : sequence of tuple
        Name, agreement of two people, agreement of a judge with one person: what is held against the bounds.
    simulated : bool
        Whether the figure says SIMULATED across its face.
    ax : matplotlib.axes.Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.axes.Axes
        The axes.

    Examples
    --------
    >>> plot_ceiling([("HEART", 0.795, 0.787)]).get_legend_handles_labels()[1][-1]
    'HEART'
    """
    import matplotlib.pyplot as plt

    if ax is None:
        _, ax = plt.subplots(figsize=(6.4, 4.2), layout="constrained")
    people = np.linspace(0.5, 1.0, 201)
    lowest, highest = np.array([ceiling_bounds(float(share)) for share in people]).T
    ax.fill_between(people, lowest, highest, color=COLOURS[0], alpha=0.15, label="where the ceiling may lie")
    ax.plot(people, lowest, color=COLOURS[0], linewidth=1)
    ax.plot(people, highest, color=COLOURS[0], linewidth=1, linestyle="--")
    for number, (name, agreement, judge) in enumerate(points):
        ax.plot(agreement, judge, MARKERS[number % len(MARKERS)], color=COLOURS[1 + number % (len(COLOURS) - 1)], label=name)
    ax.set(xlabel="Agreement of two people (without ties)", ylabel="Agreement with one person (without ties)")
    ax.legend(loc="upper left")
    mark_simulated(ax, pd.DataFrame({"simulated": [simulated]}))
    return ax


def plot_forest(effects: pd.DataFrame, *, line: str = "line", by: str = "group", ax: Axes | None = None) -> Axes:
    """Draw win shares of models over people with their intervals, a group below the other, words above each line.

    The words are above the lines, not beside them, so that the figure can be read on a phone; some 50 characters fit.

    Parameters
    ----------
    effects : pandas.DataFrame
        Rows of the table ``effects``, in the order from top to bottom, with the columns `line` and `by`.
        Quoted effects are hollow; those without an interval are a marker alone.
    line : str
        Column of what is written above each line.
    by : str
        Column of the groups; colour and marker repeat them.
    ax : matplotlib.axes.Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.axes.Axes
        The axes.

    Raises
    ------
    ValueError
        If the table has no row, or more groups than there are colours.

    Examples
    --------
    >>> row = {"line": "a study", "group": "Strangers", "win_share": 0.6, "ci_low": 0.5, "ci_high": 0.7, "ci_level": 0.95}
    >>> plot_forest(pd.DataFrame([{**row, "evidence": "measured"}])).get_xlabel()
    "Share that the model's reply wins; bars: 95 % interval"
    """
    import matplotlib.pyplot as plt

    groups = list(dict.fromkeys(effects[by]))
    if not 0 < len(groups) <= len(COLOURS):
        raise ValueError(f"A forest has 1 to {len(COLOURS)} groups; {by} has {len(groups)}.")
    if ax is None:
        _, ax = plt.subplots(figsize=(4.4, 0.9 + 0.46 * (len(effects) + 0.8 * len(groups))), layout="constrained")
    place = 0.0
    for group, colour, marker in zip(groups, COLOURS, MARKERS, strict=False):
        ax.text(0.0, place, group, weight="bold", color=colour, va="center")
        place += 0.8
        for row in effects[effects[by] == group].to_dict("records"):
            said = ax.text(0.0, place, row[line], fontsize="small", va="center", bbox={"fc": "white", "ec": "none", "pad": 1.0})
            said.set_in_layout(False)
            ax.hlines(place + 0.38, row["ci_low"], row["ci_high"], color=colour, linewidth=2)
            face = "white" if row["evidence"] == "quoted" else colour
            ax.plot(row["win_share"], place + 0.38, marker, color=colour, markerfacecolor=face, markersize=7)
            place += 1.0
    ax.axvline(0.5, color="0.6", linewidth=1, linestyle=":", zorder=0)
    for side, words in {"right": "people better \u2190 ", "left": " \u2192 models better"}.items():
        ax.text(0.5, -0.8, words, ha=side, va="center", fontsize="small", color="0.35")
    ax.set(xlim=(0.0, 1.0), ylim=(place - 0.3, -1.2), yticks=[])
    ax.xaxis.set_major_formatter(lambda share, _: f"{share:.0%}".replace("%", " %"))
    ax.spines["left"].set_visible(False)
    ax.set_xlabel(f"Share that the model's reply wins; bars: {effects['ci_level'].max():.0%} interval".replace("%", " %"))
    mark_simulated(ax, effects if "simulated" in effects else pd.DataFrame({"simulated": [False]}))
    return ax
