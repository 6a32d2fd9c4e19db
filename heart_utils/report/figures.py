"""Figures of the book: tidy tables in, axes out, one style, and the evidence inside."""

from __future__ import annotations

import base64
import dataclasses
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pandas as pd
from scipy import stats

from heart_utils.extras import extra
from heart_utils.ratings.verdicts import complete_starts, is_simulated
from heart_utils.report import WORDS
from heart_utils.report.drawn import keep_rows, show_numbers_with_figures
from heart_utils.report.html import Html
from heart_utils.runs import find_root

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.transforms import Bbox

__all__ = ["mark_simulated", "plot_boards", "plot_forest", "plot_intervals"]
__all__ += [
    "plot_leaderboard",
    "plot_measures",
    "plot_trend",
    "use_book_style",
    "use_cjk_font",
]

# seaborn's colorblind palette; the marker repeats what the colour says.
COLOURS = ("#0173b2", "#de8f05", "#029e73", "#cc78bc", "#d55e00", "#949494", "#56b4e9", "#ca9161")
MARKERS = ("o", "s", "D", "^", "v", "X", "P", "*")
KIND_NAMES: dict[str, str] = WORDS["kinds"]
KIND_LOOKS = {
    kind: (COLOURS[place], MARKERS[place])
    for kind, place in zip(KIND_NAMES, (0, 1, 2, 3, 5), strict=True)
}
#: What an interval speaks of, in words for a reader.
POPULATION_NAMES: dict[str, str] = WORDS["populations"]
WIDTH = 4.8  #: Of every figure, in inches: on a phone a letter keeps nine tenths of its size.
FINE_PRINT = 10  #: Points of the smallest letters: 9 pixels on a phone.
LINE = 46  #: Characters of a small text that go beside each other in a figure.
RATING = ("rating", "rating_low", "rating_high")
FOREST = ("win_share", "ci_low", "ci_high")
ROOM = 0.5  #: Share of a row over which several estimates in it are spread.
STAMP = 0.7  #: Rows that are left free below the last one for the word SIMULATED.
LONG = 24  #: Characters from which the names of kinds stand above a figure and not beside it.
PLACES = (
    *((0, up, "center", edge) for up, edge in ((7, "bottom"), (-7, "top"))),
    *((across, 0, side, "center") for across, side in ((7, "left"), (-7, "right"))),
    *(
        (0, up, side, edge)
        for up, edge in ((7, "bottom"), (-7, "top"))
        for side in ("left", "right")
    ),
    *(
        (0, up, "center", edge)
        for up, edge in ((18, "bottom"), (-18, "top"), (29, "bottom"), (-29, "top"))
    ),
)
"""Where a point's name is tried, in this order: offsets in points, and what of the text lies
there."""
CJK_FONT = "HeartBench Names SC"
"""A cut of Noto Sans CJK SC (SIL Open Font License 1.1, ``data/fonts/OFL.txt``) with the
characters of the names only."""


def use_book_style() -> None:
    """Set size, fonts and colours of the figures that follow, and save them as SVG.

    Every chapter calls it first, so that figures look alike and can be read on a phone. Colours are
    seaborn's ``colorblind`` palette; plotting functions repeat each colour by the shape of its
    marker. In a notebook, figures become SVG, which stays sharp at any size, and their numbers are
    kept beside them as CSV, so that readers can download what a figure shows. Outside a notebook
    only matplotlib's settings change.

    Raises
    ------
    ImportError
        If matplotlib or seaborn is missing. The message names the extra to install, ``plots``.

    Notes
    -----
    It changes ``matplotlib.rcParams`` for the whole process. Use ``matplotlib.rc_context`` to keep
    the change local, as in the example. No figure is wider than 4.8 inches, so that its letters
    stay readable on a phone. The date is left out of the SVG, so that two builds give equal files.

    Examples
    --------
    >>> import matplotlib as mpl
    >>> with mpl.rc_context():  # what was set before comes back after it
    ...     use_book_style()
    ...     mpl.rcParams["axes.spines.top"]
    False
    """
    with extra("plots"):
        import matplotlib as mpl
        import seaborn as sns

    sns.set_theme(context="notebook", style="ticks", palette="colorblind")
    mpl.rcParams.update({**book_style(), "figure.hooks": ["heart_utils.report.figures:fit_width"]})
    if "ipykernel" in sys.modules:
        from matplotlib_inline.backend_inline import set_matplotlib_formats

        set_matplotlib_formats("svg", metadata={"Date": None})  # type: ignore[no-untyped-call]
        mpl.rcParams["svg.fonttype"] = (
            "none"  # words that can be found and selected, and a smaller page
        )
        show_numbers_with_figures()


def book_style() -> dict[Any, Any]:
    """Read the settings that all figures share."""
    with extra("plots"):
        import matplotlib as mpl

    file = Path(__file__).with_name("pages") / "figures.mplstyle"
    return dict(mpl.rc_params_from_file(file, use_default_template=False))


def fit_width(figure: Figure) -> None:
    """Make a figure no wider than the book's."""
    figure.set_figwidth(min(WIDTH, figure.get_figwidth()))


class Rated(Protocol):
    """What has a table of ratings, as :class:`~heart_utils.ratings.ratings.Ratings` does."""

    @property
    def table(self) -> pd.DataFrame:
        """The table, one row a responder."""


def ratings_table(given: Rated | pd.DataFrame | Mapping[Any, Any]) -> pd.DataFrame:
    """Return the ratings table of a table, a fit or several leaderboards by group."""
    if isinstance(given, Mapping):
        return pd.concat([ratings_table(board) for board in given.values()], ignore_index=True)
    return given if isinstance(given, pd.DataFrame) else given.table


def plot_intervals(
    table: pd.DataFrame | Rated,
    *,
    value: str,
    label: str,
    by: str | None = None,
    looks: Mapping[str, tuple[str, str]] | None = None,
    reference: Mapping[str, float] | None = None,
    xlabel: str | None = None,
    simulated: bool = False,
    ax: Axes | None = None,
) -> Axes:
    """Draw one row for each label, with a marker for each estimate and a line for its interval.

    The standard figure of the book: names on the vertical axis, which are easy to read, estimates
    on the horizontal one. Several estimates for one label, such as two rater groups, lie below each
    other in its row, and differ by colour and by marker.

    Parameters
    ----------
    table : pandas.DataFrame or Ratings
        One row an estimate, from top to bottom. Ends are in ``<value>_low`` and ``<value>_high``,
        or else in ``ci_low`` and ``ci_high``, where there are such; an infinite one is drawn as an
        arrow.
    value : str
        Column of the estimates.
    label : str
        Column of the names of the rows.
    by : str, optional
        Column of the colour and marker.
    looks : mapping of str to tuple, optional
        Value of `by` -> its colour and marker, where these have a meaning of their own.
    reference : mapping of str to float, optional
        Words -> position of a thin line, such as ``{"a coin": 0.5}``.
    xlabel : str, optional
        What is drawn, with its unit and what the interval covers; by default the name of the
        column.
    simulated : bool
        Whether the figure says SIMULATED, as it also does if the column ``simulated`` says so.
    ax : matplotlib.axes.Axes, optional
        Where to draw; by default a new figure as high as the table is long.

    Returns
    -------
    matplotlib.axes.Axes
        The axes, to add a title or a line.

    Raises
    ------
    ValueError
        If the table has no row, or more kinds of `by` than there are colours.
    ImportError
        If matplotlib is missing (the extra ``plots``).

    Examples
    --------
    >>> found = pd.DataFrame(
    ...     {
    ...         "judge": ["x", "y"],
    ...         "n_eff": [1.2, 2.0],
    ...         "n_eff_low": [1.0, 1.5],
    ...         "n_eff_high": [1.5, 3.0],
    ...     }
    ... )
    >>> ax = plot_intervals(found, value="n_eff", label="judge", reference={"one judge": 1.0})
    >>> [text.get_text() for text in ax.get_yticklabels()]
    ['x', 'y']
    """
    with extra("plots"):
        import matplotlib.pyplot as plt

    table = ratings_table(table)
    rows, kinds = (
        list(dict.fromkeys(table[label])),
        [None] if by is None else list(dict.fromkeys(table[by])),
    )
    if not rows:
        raise ValueError("There is nothing to draw: the table has no row.")
    if len(kinds) > len(COLOURS):
        raise ValueError(
            f"{by} has {len(kinds)} kinds, and a reader can tell {len(COLOURS)} apart. Choose some"
            " of them."
        )
    n_shifts = len(kinds) if table[label].duplicated().any() else 1
    names = _row_names(rows)
    n_lines = max(name.count("\n") + 1 for name in names)
    stamped = simulated or is_simulated(table)
    if ax is None:
        row = max(0.3, 0.3 * 0.55 * n_shifts, 0.2 * n_lines)
        legend = 0.2 * (1 + len(kinds) // 2) if by is not None else 0.0
        size = (WIDTH, 1.0 + row * (len(rows) + STAMP * stamped) + legend)
        _, ax = plt.subplots(figsize=size, layout="constrained")
    columns = (
        value,
        *((f"{value}_low", f"{value}_high") if f"{value}_low" in table else ("ci_low", "ci_high")),
    )
    shifts = np.linspace(-ROOM / 2, ROOM / 2, n_shifts) if n_shifts > 1 else np.zeros(len(kinds))
    for number, (kind, shift) in enumerate(zip(kinds, shifts, strict=True)):
        part = table if by is None else table[table[by] == kind]
        look = (looks or {}).get(str(kind), (COLOURS[number], MARKERS[number]))
        heights = np.array([rows.index(name) for name in part[label]]) + shift
        _draw_rows(ax, heights, part, columns, table, look, label=kind)
    for words, position in (reference or {}).items():
        ax.axvline(position, color="0.6", linewidth=1, linestyle=":", zorder=0)
        above = ("data", "axes fraction")
        ax.annotate(
            words,
            (position, 1.0),
            xycoords=above,
            fontsize=FINE_PRINT,
            color="0.35",
            ha="center",
            va="bottom",
        )
    for row in range(1, len(rows) if n_shifts > 1 else 0, 2):
        ax.axhspan(row - 0.5, row + 0.5, color="0.96", zorder=-1)
    longest = max(len(part) for name in names for part in name.split("\n"))
    ax.set_yticks(range(len(rows)), names)
    line = min(LINE, LINE + LONG - 6 - longest)
    lowest = len(rows) - 0.4 + STAMP * stamped
    ax.set(ylim=(lowest, -0.6), xlabel=_fold(xlabel or value, line))
    if by is not None:
        _legend_below(ax, ncols=1 if max(len(str(kind)) for kind in kinds) > LONG else 2)
    mark_simulated(ax, stamped)
    keep_rows(ax, table, first=(label, by, *columns))
    return ax


def _row_names(rows: Sequence[Any]) -> list[str]:
    """Fold all names if one is long: they would leave the axis less room than its label takes."""
    names = [str(name) for name in rows]
    if max(map(len, names)) <= LONG:
        return names
    return [name if "\n" in name else _fold(name, LONG) for name in names]


def plot_leaderboard(
    ratings: pd.DataFrame | Rated,
    *,
    title: str | None = None,
    origin: str = "measured",
    ax: Axes | None = None,
) -> Axes:
    """Draw ratings with their intervals, best responder on top.

    What a leaderboard rests on is written inside the figure: numbers of verdicts and clusters, what
    the intervals are over, and every caveat, such as few clusters or simulated verdicts. So the
    picture stays honest where it is copied without its caption. A star marks a responder who never
    won or never lost.

    Parameters
    ----------
    ratings : pandas.DataFrame or Ratings
        Ratings from a fit, or rows of the table ``ratings``: one row a responder.
    title : str, optional
        The finding, or what was rated and by whom.
    origin : str, optional
        What the verdicts are, such as ``"replayed"``, unless simulated.
    ax : matplotlib.axes.Axes, optional
        Where to draw; by default a new figure as high as the table is long.

    Returns
    -------
    matplotlib.axes.Axes
        Rating points on the horizontal axis, responders on the vertical one, with colour and marker
        by who wrote. Intervals are those of the table (``rating_low``, ``rating_high``).

    Raises
    ------
    ValueError
        If there is no rating, or a responder has two.
    ImportError
        If matplotlib is missing (the extra ``plots``).

    Examples
    --------
    >>> from heart_utils.ratings.ratings import fit_ratings
    >>> duel = pd.DataFrame({"responder_a": "x", "responder_b": "y", "verdict": ["a", "b", "a"]})
    >>> ax = plot_leaderboard(fit_ratings(duel, n_resamples=0), title="x is ahead")
    >>> [label.get_text() for label in ax.get_yticklabels()]  # from the bottom
    ['y', 'x']
    """
    with extra("plots"):
        import matplotlib.pyplot as plt

    _check_board(ratings_table(ratings))
    table = ratings_table(ratings).sort_values("rating", ignore_index=True)
    if ax is None:
        _, ax = plt.subplots(figsize=(WIDTH, 1.8 + 0.3 * len(table)), layout="constrained")
    _draw_board(ax, table, table["responder"], table)
    names = table["responder"].where(~table["penalised"].astype(bool), table["responder"] + " *")
    ax.set(yticks=list(table.index), yticklabels=list(names), ylim=(-0.6, len(table) - 0.4))
    ax.set_xlabel(_fold(_interval_label(table), LINE))
    _legend_below(ax, title="Written by", alignment="left", ncols=2)
    if title:
        ax.set_title(_fold(title, 40), pad=32)
    _say_what_it_rests_on(ax, table, origin)
    keep_rows(ax, table.iloc[::-1], first=("responder", *RATING))
    return ax


def plot_boards(
    boards: pd.DataFrame | Mapping[Any, Rated], *, by: str, origin: str = "measured"
) -> Figure:
    """Draw one small leaderboard for each value of a column, in one order and scale.

    Parameters
    ----------
    boards
        Mapping of Ratings from :func:`heart_utils.fit_boards`, or rows of ``ratings``, one a
        responder and `by`.
    by
        Such as ``"dimension"``, ``"group"`` or ``"rater"``.
    origin
        As in :func:`plot_leaderboard`.

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> from heart_utils.ratings.ratings import fit_ratings
    >>> board = fit_ratings(
    ...     pd.DataFrame({"responder_a": "x", "responder_b": "y", "verdict": ["a", "b"]}),
    ...     n_resamples=0,
    ... ).table
    >>> len(plot_boards(pd.concat([board, board.assign(dimension="warmth")]), by="dimension").axes)
    2
    """
    with extra("plots"):
        import matplotlib.pyplot as plt
        from matplotlib.lines import Line2D

    boards = ratings_table(boards)
    panels = list(dict.fromkeys(boards[by]))
    if not panels:
        raise ValueError(f"There is no leaderboard to draw: the table has no row with a {by}.")
    order = boards.groupby("responder")["rating"].mean().sort_values().index
    columns = min(2, len(panels))
    rows = -(-len(panels) // columns)
    axs: Any
    figure: Figure
    figure, axs = plt.subplots(
        rows,
        columns,
        sharex=True,
        sharey=True,
        squeeze=False,
        figsize=(WIDTH, rows * (0.9 + 0.2 * len(order)) + 1.2),
        layout="constrained",
    )
    for ax, panel in zip(axs.flat, panels, strict=False):
        panel_ratings = boards[boards[by] == panel]
        _check_board(panel_ratings)
        _draw_board(ax, panel_ratings, order, boards, markersize=4)
        ax.locator_params(axis="x", nbins=3)
        ax.set_title(
            f"{panel}\nties {100 * panel_ratings['tie_share'].mean():.0f} %", fontsize="small"
        )
        ax.tick_params(labelsize=FINE_PRINT, labelbottom=True)
        mark_simulated(ax, panel_ratings)
    for ax in axs.flat[len(panels) :]:
        ax.set_axis_off()
    axs[0, 0].set_yticks(range(len(order)), list(order))
    figure.supxlabel(_fold(_interval_label(boards), LINE + 10), fontsize="small")
    evidence = "simulated" if is_simulated(boards) else origin
    kinds = [kind for kind in KIND_NAMES if boards["responder_kind"].eq(kind).any()]
    looks = [KIND_LOOKS[kind] for kind in kinds]
    lines = [
        Line2D([], [], color=colour, marker=marker, markersize=4, linewidth=1.6)
        for colour, marker in looks
    ]
    title = f"{evidence[:1].upper()}{evidence[1:]}; written by"
    figure.legend(
        lines,
        [KIND_NAMES[kind] for kind in kinds],
        title=title,
        loc="outside upper left",
        alignment="left",
        fontsize=FINE_PRINT,
        title_fontsize=FINE_PRINT,
        ncols=min(2, len(kinds)),
    )
    return figure


def plot_forest(effects: pd.DataFrame) -> Axes:
    """Draw models' win shares over people with intervals, as a forest plot by group.

    Each finding has a line, under the heading of its group. Models win more often to the right of
    the dotted line at one half. Effects that were computed here have a filled marker, effects that
    a paper prints a hollow one, so that the two are never confused.

    Parameters
    ----------
    effects
        Rows of the table ``effects``, top to bottom, and two columns more: ``group`` (the heading,
        eight groups at most) and ``line`` (the words above each effect, of at most 50 characters).
        An effect without an interval is a marker alone.

    Returns
    -------
    matplotlib.axes.Axes
        The share from 0 % to 100 % on the horizontal axis. The level in the label is the highest in
        the table.

    Raises
    ------
    ValueError
        If there is no group, or more of them than there are colours.
    ImportError
        If matplotlib is missing (the extra ``plots``).

    Examples
    --------
    >>> row = {
    ...     "line": "a study",
    ...     "group": "Strangers",
    ...     "win_share": 0.6,
    ...     "ci_low": 0.5,
    ...     "ci_high": 0.7,
    ...     "ci_level": 0.95,
    ... }
    >>> ax = plot_forest(pd.DataFrame([{**row, "evidence": "measured"}]))
    >>> ax.get_xlabel()
    "Share that the model's reply wins; bars: 95 % interval"
    """
    with extra("plots"):
        import matplotlib.pyplot as plt

    groups = list(dict.fromkeys(effects["group"]))
    if not 0 < len(groups) <= len(COLOURS):
        raise ValueError(f"A forest has 1 to {len(COLOURS)} groups; this one has {len(groups)}.")
    _, ax = plt.subplots(
        figsize=(4.4, 0.9 + 0.46 * (len(effects) + 0.8 * len(groups))), layout="constrained"
    )
    height = 0.0
    for group, colour, marker in zip(groups, COLOURS, MARKERS, strict=False):
        ax.text(0.0, height, group, weight="bold", color=colour, va="center")
        height += 0.8
        for row in effects[effects["group"] == group].to_dict("records"):
            box = {"fc": "white", "ec": "none", "pad": 1.0}
            label = ax.text(0.0, height, row["line"], fontsize="small", va="center", bbox=box)
            label.set_in_layout(False)
            ax.hlines(height + 0.38, row["ci_low"], row["ci_high"], color=colour, linewidth=2)
            face = "white" if row["evidence"] == "quoted" else colour
            # for the numbers that go with the figure: no legend is drawn
            known_as = f"{group}: {row['line']}"
            ax.plot(
                row["win_share"],
                height + 0.38,
                marker,
                color=colour,
                markerfacecolor=face,
                markersize=7,
                label=known_as,
            )
            height += 1.0
    ax.axvline(0.5, color="0.6", linewidth=1, linestyle=":", zorder=0)
    for side, words in {"right": "people better \u2190 ", "left": " \u2192 models better"}.items():
        ax.text(0.5, -0.8, words, ha=side, va="center", fontsize="small", color="0.35")
    ax.set(xlim=(0.0, 1.0), ylim=(height - 0.3, -1.2), yticks=[])
    ax.xaxis.set_major_formatter(lambda share, _: f"{share:.0%}".replace("%", " %"))
    ax.spines["left"].set_visible(False)
    ax.set_xlabel(
        f"Share that the model's reply wins; bars: {100 * effects['ci_level'].max():.0f} % interval"
    )
    mark_simulated(ax, effects)
    keep_rows(ax, effects, first=("study", "people", "models", *FOREST), without=("line",))
    return ax


def plot_trend(
    models: pd.DataFrame, *, x: str, x_label: str, y_label: str, frontier: bool = False
) -> Axes:
    """Draw models by their cost or size against their rating, each with its name.

    No name covers another name or a point.

    Parameters
    ----------
    models
        One row a model, with ``responder``, `x` (without it a model is not drawn) and ``rating``;
        if known, also ``rating_low``, ``rating_high``, ``responder_kind``, ``on_frontier``,
        ``simulated``.
    x
        Column of the logarithmic scale.
    x_label
        Name of that scale, with its unit.
    y_label
        Name of the rating.
    frontier
        Whether to join the models on the frontier by a line.

    Returns
    -------
    matplotlib.axes.Axes

    Examples
    --------
    >>> models = pd.DataFrame({"responder": ["m"], "size": [7.0], "rating": [1500.0]})
    >>> plot_trend(models, x="size", x_label="Size", y_label="Rating").texts[0].get_text()
    'm'
    """
    with extra("plots"):
        import matplotlib.pyplot as plt
        from matplotlib.ticker import LogLocator

    table = models.dropna(subset=[x, "rating"]).sort_values(["rating", x])
    _, ax = plt.subplots(figsize=(WIDTH, 3.8), layout="constrained")
    kinds = (
        table["responder_kind"]
        if "responder_kind" in table
        else pd.Series("model", index=table.index)
    )
    if {"rating_low", "rating_high"} <= set(table):
        ax.vlines(
            table[x],
            table["rating_low"],
            table["rating_high"],
            color="0.7",
            linewidth=1.5,
            zorder=1,
        )
    for kind in dict.fromkeys(kinds):
        rows = table[kinds == kind]
        colour, marker = KIND_LOOKS[kind]
        ax.plot(rows[x], rows["rating"], marker, color=colour, zorder=2)
    if frontier and "on_frontier" in table:
        best = table[table["on_frontier"]].sort_values(x)
        ax.step(
            best[x],
            best["rating"],
            where="post",
            color="0.4",
            linewidth=1,
            linestyle="--",
            zorder=0,
        )
    ax.set(xscale="log", xlabel=x_label, ylabel=y_label)
    ax.margins(x=0.24, y=0.3)
    ax.xaxis.set_major_locator(LogLocator(subs=(1.0, 3.0)))
    ax.xaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    ax.minorticks_off()
    _name_points(ax, table[x], table["rating"], table["responder"])
    mark_simulated(ax, table)
    return ax


def plot_measures(
    first: pd.DataFrame,
    second: pd.DataFrame,
    *,
    x_label: str,
    y_label: str,
    cluster: str = "dialogue_id",
    ci_level: float = 0.95,
) -> Axes:
    """Draw responders by two measures, each with its name: such as one turn and the whole.

    Parameters
    ----------
    first, second : pandas.DataFrame
        Scores by either measure, as :func:`~heart_utils.agreement.ranks.order_changes` takes them;
        the same starts and responders enter.
    x_label, y_label : str
        What the first and the second measure are, with their units.
    cluster : str
        What was sampled: the starts.
    ci_level : float
        Level of the intervals of both means, over starts.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    AgreementError
        If both measures have fewer than two responders or four starts in common.

    Examples
    --------
    >>> starts = pd.DataFrame({"dialogue_id": range(4), "m": [1, 2, 1, 2], "n": 2, "o": 3}).melt(
    ...     "dialogue_id", var_name="responder", value_name="score"
    ... )
    >>> ax = plot_measures(starts, starts, x_label="One turn", y_label="Whole conversation")
    >>> [text.get_text() for text in ax.texts]
    ['m', 'n', 'o']
    """
    with extra("plots"):
        import matplotlib.pyplot as plt

    both = complete_starts(first, second, cluster)
    names = pd.Series(both["first"].columns)
    scores = [both[name].to_numpy(dtype=float) for name in ("first", "second")]
    x, y = (pd.Series(each.mean(axis=0)) for each in scores)
    x_error, y_error = (stats.sem(each, axis=0) for each in scores)
    reach = float(stats.t.ppf((1 + ci_level) / 2, len(both) - 1))
    _, ax = plt.subplots(figsize=(WIDTH, 3.8), layout="constrained")
    ax.errorbar(
        x,
        y,
        xerr=reach * x_error,
        yerr=reach * y_error,
        fmt="none",
        ecolor="0.8",
        zorder=1,
    )
    colour, marker = KIND_LOOKS["model"]
    ax.plot(x, y, marker, color=colour, linestyle="none", zorder=2)
    bars = f"bars: {ci_level:.0%} over starts"
    ax.set(xlabel=x_label, ylabel=f"{y_label}; {bars}")
    ax.margins(x=0.24, y=0.1)
    _name_points(ax, x, y, names)
    mark_simulated(ax, is_simulated(first) or is_simulated(second))
    return ax


def mark_simulated(ax: Axes, table: pd.DataFrame | bool) -> None:
    """Write SIMULATED in a corner of a figure if any row behind it was simulated.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
        Where to write, in the lower right corner.
    table : pandas.DataFrame or bool
        The table that was drawn, with the column ``simulated`` or without (then nothing is
        written); or whether to write.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> _, ax = plt.subplots()
    >>> mark_simulated(ax, pd.DataFrame({"simulated": [True, False]}))
    >>> [text.get_text() for text in ax.texts]
    ['SIMULATED']
    """
    if is_simulated(table) if isinstance(table, pd.DataFrame) else table:
        ax.text(
            0.99,
            0.02,
            "SIMULATED",
            transform=ax.transAxes,
            ha="right",
            va="bottom",
            fontsize=FINE_PRINT,
            color="#8a3b00",
            weight="bold",
            zorder=5,
            bbox={"fc": "white", "ec": "none", "alpha": 0.8, "pad": 1.0},
        )


def use_cjk_font() -> Html:
    """Add a font for Chinese characters to the figures that follow and to the page.

    The font is used only for characters that the figures' own font lacks.

    Returns
    -------
    Html
        A style element with the font inside; elements with ``lang="zh"`` and table cells use it.

    Examples
    --------
    >>> import matplotlib as mpl
    >>> with mpl.rc_context():  # what was set before comes back after it
    ...     use_cjk_font()._repr_html_()[:17]
    '<style>@font-face'
    """
    with extra("plots"):
        import matplotlib as mpl
        from matplotlib import font_manager

    file = find_root() / "data" / "fonts" / "HeartBenchNamesSC.otf"
    if CJK_FONT not in {entry.name for entry in font_manager.fontManager.ttflist}:
        font_manager.fontManager.addfont(file)
        # It has one weight; said twice, matplotlib does not complain where a text is bold.
        font_manager.fontManager.ttflist.append(
            dataclasses.replace(font_manager.fontManager.ttflist[-1], weight=700)
        )
    installed = {entry.name for entry in font_manager.fontManager.ttflist} - {CJK_FONT}
    # matplotlib looks for each character down the list of families, so the list itself must be the
    # family.
    family = [*(name for name in mpl.rcParams["font.sans-serif"] if name in installed), CJK_FONT]
    mpl.rcParams.update({"font.sans-serif": family, "font.family": family})
    coded = base64.b64encode(file.read_bytes()).decode()
    return Html(
        f'<style>@font-face {{ font-family: "{CJK_FONT}"; src: url("data:font/otf;base64,{coded}")'
        ' format("opentype"); '
        # Before the others, since Chromium draws the first cell without a fallback that arrives
        # late; for Chinese alone.
        f'unicode-range: U+2E80-FFEF }} td, th, [lang="zh"] {{ font-family: "{CJK_FONT}",'
        " system-ui, sans-serif }</style>"
    )


def _draw_rows(
    ax: Axes,
    heights: Any,
    rows: pd.DataFrame,
    columns: Sequence[str],
    within: pd.DataFrame,
    look: Sequence[str],
    **line_style: Any,
) -> None:
    """Draw estimates and their bars; a bar without an end is an arrow beyond the axes."""
    (value, low, high), (colour, marker) = columns, look
    if low in rows and high in rows:
        finite = within[[*columns]].astype(float).replace([np.inf, -np.inf], np.nan)
        least, most = float(finite.min().min()), float(finite.max().max())
        beyond = 0.1 * (most - least)
        ends = {
            "<": rows[low].clip(lower=least - beyond),
            ">": rows[high].clip(upper=most + beyond),
        }
        ax.hlines(
            heights,
            ends["<"],
            ends[">"],
            color=colour,
            linewidth=1.6 if "markersize" in line_style else 2,
        )
        for arrow, name in (("<", low), (">", high)):
            if (without_end := np.isinf(rows[name].to_numpy(float))).any():
                ax.plot(
                    ends[arrow][without_end],
                    np.asarray(heights)[without_end],
                    arrow,
                    color=colour,
                    markersize=5,
                )
    ax.plot(rows[value], heights, marker, color=colour, **line_style)


def _fold(text: str, width: int) -> str:
    """Go on in the next line, but not between a number and its per cent."""
    return textwrap.fill(text.replace(" %", "\u00a0%"), width)


def _legend_below(ax: Axes, **options: Any) -> None:
    """Place a legend under the label of the axis, where it needs no width of the figure."""
    from matplotlib.transforms import ScaledTranslation

    deep = 24 + 12 * (1 + ax.get_xlabel().count("\n"))  # points, of the numbers and of the label
    down = ScaledTranslation(0, -deep / 72, ax.figure.dpi_scale_trans)
    ax.legend(
        loc="upper center", bbox_to_anchor=(0.4, 0), bbox_transform=ax.transAxes + down, **options
    )


def _draw_board(
    ax: Axes, ratings: pd.DataFrame, order: Iterable[str], within: pd.DataFrame, **line_style: Any
) -> None:
    """Draw the ratings of a leaderboard, each responder at its height in an order."""
    height_of = {responder: row for row, responder in enumerate(order)}
    for kind, rows in ratings.groupby("responder_kind"):
        look, height = KIND_LOOKS[str(kind)], rows["responder"].map(height_of)
        _draw_rows(
            ax, height, rows, RATING, within, look, label=KIND_NAMES[str(kind)], **line_style
        )
    ax.axvline(1500, color="0.8", linewidth=1, zorder=0)


def _check_board(ratings: pd.DataFrame) -> None:
    if absent := [name for name in ("responder", *RATING) if name not in ratings]:
        raise ValueError(
            "A leaderboard is drawn from what fit_ratings gives; this table has no column"
            f" {', '.join(absent)}."
        )
    if ratings.empty:
        raise ValueError("There is no leaderboard to draw: the table has no row.")
    if twice := sorted(set(ratings.loc[ratings["responder"].duplicated(), "responder"])):
        error_message = (
            f"A leaderboard shows each responder once; {', '.join(twice)} stands in several rows"
        )
        raise ValueError(
            f"{error_message}. Choose one dimension, group and rater, or use plot_boards."
        )


def _interval_label(ratings: pd.DataFrame) -> str:
    scale = "Rating (the mean responder has 1500)"
    if ratings["rating_low"].isna().all():
        return f"{scale}; no interval"
    level, populations = ratings["ci_level"].max(), ratings["population"].unique()
    population = (
        POPULATION_NAMES[str(populations[0])]
        if len(populations) == 1
        else "population: see the caption"
    )
    return f"{scale}; bars: {100 * level:.0f} % interval, {population}"


def _say_what_it_rests_on(ax: Axes, ratings: pd.DataFrame, origin: str) -> None:
    """Write the size of a leaderboard's data, and all its caveats, inside the figure."""
    n_verdicts = int(ratings["n_verdicts"].sum()) // 2  # each is counted for both who met
    n_clusters = int(
        ratings["n_clusters"].max()
    )  # that somebody met; 0 where nothing was resampled
    counted = f"{n_clusters:,} dialogues" + (
        " at most each" if ratings["n_clusters"].min() < n_clusters else ""
    )
    few = "fewer than 30 dialogues"
    # the table counts what there is less of
    for who in ("raters", "seekers"):
        if ratings["population"].eq(f"dialogues_and_{who}").all():
            counted = f"{n_clusters:,} or more dialogues and {who}"
            few = f"fewer than 30 dialogues or {who}"
    notes = [f"{n_verdicts:,} verdicts" + (f", {counted}" if n_clusters else "")]
    known = "source not recorded" if origin == "not recorded" else origin
    notes.append("simulated" if is_simulated(ratings) else known)
    if ratings["provisional"].any():
        notes.append(f"provisional: {few if n_clusters else 'nothing was resampled'}")
    if ratings["penalised"].any():
        notes.append("* always wins or loses: held by a weak prior")
    ax.text(
        0,
        1.015,
        _fold("; ".join(notes), LINE),
        transform=ax.transAxes,
        fontsize=FINE_PRINT,
        color="0.35",
        va="bottom",
        ha="left",
    )
    mark_simulated(ax, ratings)


def _name_points(ax: Axes, x: pd.Series, y: pd.Series, names: pd.Series) -> None:
    """Write each point's name beside it where it covers no other name and no point.

    The first place inside the axes is taken.
    """
    ax.figure.draw_without_rendering()  # type: ignore[union-attr]  # so that the layout stands before places are tried
    points, room = ax.transData.transform(list(zip(x, y, strict=True))), ax.get_window_extent()
    taken: list[Bbox] = []
    for one, other, name, at in zip(x, y, names, points, strict=True):
        text = ax.annotate(
            str(name), (one, other), xytext=(0, 7), textcoords="offset points", fontsize=FINE_PRINT
        )
        for across, up, side, edge in PLACES:
            text.set(position=(across, up), ha=side, va=edge)
            box = text.get_window_extent()
            points_near = [point for point in points if tuple(point) != tuple(at)]
            covers = any(box.overlaps(other_box) for other_box in taken) or any(
                box.padded(4).contains(*point) for point in points_near
            )
            inside = room.x0 <= box.x0 and box.x1 <= room.x1 and box.y1 <= room.y1
            if not covers and inside:
                break
        taken.append(box)
