"""Figures of the book: tidy tables in, axes out, one style, and the evidence inside."""

from __future__ import annotations

import base64
import dataclasses
import json
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pandas as pd
from scipy import stats

from heart_utils.ratings.verdicts import complete_starts, is_simulated
from heart_utils.report import WORDS, Html
from heart_utils.runs import csv_text, find_root
from heart_utils.settings import extra
from heart_utils.tables import need_columns

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.transforms import Bbox

__all__ = [
    "explore",
    "keep_rows",
    "mark_simulated",
    "plot_boards",
    "plot_forest",
    "plot_intervals",
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
KEPT = "_heart_rows"  #: Where axes keep the rows that they were drawn from.
CJK_FONT = "HeartBench Names SC"
"""A cut of Noto Sans CJK SC (SIL Open Font License 1.1, ``data/fonts/OFL.txt``) with the
characters of the names only."""


def use_book_style() -> None:
    """Set size, fonts and colours of the figures that follow, and save them as SVG.

    It changes ``matplotlib.rcParams`` for the whole process; no figure is wider than 4.8 inches. In
    a notebook their rows go along as CSV.

    Raises
    ------
    ImportError
        If matplotlib or seaborn is missing (the extra ``plots``).

    Examples
    --------
    >>> import matplotlib as mpl
    >>> with mpl.rc_context():
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
        from IPython.core.getipython import get_ipython
        from matplotlib.figure import Figure
        from matplotlib_inline.backend_inline import set_matplotlib_formats

        set_matplotlib_formats("svg", metadata={"Date": None})  # type: ignore[no-untyped-call]
        # words that can be found and selected, and a smaller page
        mpl.rcParams["svg.fonttype"] = "none"
        display: Any = get_ipython().display_formatter  # type: ignore[union-attr]
        display.mimebundle_formatter.for_type(Figure, rows_as_csv)


def book_style() -> dict[Any, Any]:
    with extra("plots"):
        import matplotlib as mpl

    file = Path(__file__).with_name("pages") / "figures.mplstyle"
    return dict(mpl.rc_params_from_file(file, use_default_template=False))


def fit_width(figure: Figure) -> None:
    figure.set_figwidth(min(WIDTH, figure.get_figwidth()))


def keep_rows(axes: Axes, table: pd.DataFrame, *, first: Sequence[str | None] = ()) -> None:
    """Keep the rows that axes were drawn from, which the book offers as CSV below their figure.

    Parameters
    ----------
    axes
        Where they were drawn; the rows of a figure's axes go below each other.
    table
        The rows.
    first
        Columns that come first: names, estimate and interval.

    Examples
    --------
    >>> from matplotlib import pyplot as plt
    >>> from heart_utils.report.figures import rows_as_csv
    >>> figure, ax = plt.subplots()
    >>> keep_rows(ax, pd.DataFrame({"n": [80], "share": [2 / 3]}), first=["share"])
    >>> rows_as_csv(figure)["text/csv"].split()
    ['share,n', '0.666667,80']
    """
    leading = [name for name in first if name in table]
    others = [name for name in table if name not in leading]
    setattr(axes, KEPT, table[[*dict.fromkeys(leading), *others]])


def rows_as_csv(figure: Figure) -> dict[str, str]:
    """Return the rows that a figure keeps, if any, as CSV with six digits."""
    kept = [getattr(axes, KEPT) for axes in figure.axes if hasattr(axes, KEPT)]
    if not kept:
        return {}
    table = pd.concat(kept, ignore_index=True).dropna(axis="columns", how="all")
    numbers = table.select_dtypes("floating").columns
    table[numbers] = table[numbers].map(lambda number: float(f"{number:.6g}"))
    return {"text/csv": csv_text(table)}


class Rated(Protocol):
    """What has a table of ratings, as :class:`~heart_utils.ratings.ratings.Ratings` does."""

    @property
    def table(self) -> pd.DataFrame:
        """One row a responder."""


def ratings_table(given: Rated | pd.DataFrame | Mapping[Any, Any]) -> pd.DataFrame:
    """Return the table of a table, a fit or leaderboards by group."""
    if isinstance(given, Mapping):
        return pd.concat([ratings_table(board) for board in given.values()], ignore_index=True)
    return given if isinstance(given, pd.DataFrame) else given.table


def _new_axes(height: float, width: float = WIDTH) -> Axes:
    with extra("plots"):
        import matplotlib.pyplot as plt

    ax: Axes = plt.subplots(figsize=(width, height), layout="constrained")[1]
    return ax


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

    Parameters
    ----------
    table
        One row an estimate, from top to bottom. Ends are in ``<value>_low`` and ``<value>_high``,
        else ``ci_low`` and ``ci_high``; an infinite one is an arrow.
    value
        Column of estimates.
    label
        Column of rows' names; estimates of one name share its row.
    by
        Column of colour and marker.
    looks
        Value of `by` -> its colour and marker.
    reference
        Words -> position of a thin line, such as ``{"a coin": 0.5}``.
    xlabel
        What is drawn, with its unit and what the interval covers; by default the column's name.
    simulated
        Whether to write SIMULATED; a column ``simulated`` can also say so.
    ax
        By default a new figure.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    ValueError
        If the table has no row, or more kinds of `by` than there are colours.

    Examples
    --------
    >>> found = pd.DataFrame({"judge": ["x"], "n_eff": 1.2, "n_eff_low": 1.0, "n_eff_high": 1.5})
    >>> ax = plot_intervals(found, value="n_eff", label="judge", reference={"one judge": 1.0})
    >>> [text.get_text() for text in ax.get_yticklabels()]
    ['x']
    """
    table = ratings_table(table)
    rows = list(dict.fromkeys(table[label]))
    kinds = [None] if by is None else list(dict.fromkeys(table[by]))
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
        ax = _new_axes(1.0 + row * (len(rows) + STAMP * stamped) + legend)
    ends = value if f"{value}_low" in table else "ci"
    columns = (value, f"{ends}_low", f"{ends}_high")
    shifts = np.linspace(-ROOM / 2, ROOM / 2, n_shifts) if n_shifts > 1 else np.zeros(len(kinds))
    for number, (kind, shift) in enumerate(zip(kinds, shifts, strict=True)):
        part = table if by is None else table[table[by] == kind]
        look = (looks or {}).get(str(kind), (COLOURS[number], MARKERS[number]))
        heights = np.array([rows.index(name) for name in part[label]]) + shift
        _draw_rows(ax, heights, part, columns, table, look, label=kind)
    for words, position in (reference or {}).items():
        ax.axvline(position, color="0.6", linewidth=1, linestyle=":", zorder=0)
        ax.annotate(
            words,
            (position, 1.0),
            xycoords=("data", "axes fraction"),
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
    """Draw ratings with their intervals, best responder on top, and what they rest on.

    A star marks who never won or never lost.

    Parameters
    ----------
    ratings
        From a fit, or of the table ``ratings``: one row a responder.
    title
        The finding, or what was rated and by whom.
    origin
        What the verdicts are, such as ``"replayed"``, unless simulated.
    ax
        By default a new figure.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    ValueError
        If there is no rating, or a responder has two.

    Examples
    --------
    >>> from heart_utils.ratings.ratings import fit_ratings
    >>> duel = pd.DataFrame({"responder_a": "x", "responder_b": "y", "verdict": ["a", "b", "a"]})
    >>> ax = plot_leaderboard(fit_ratings(duel, n_resamples=0))
    >>> [label.get_text() for label in ax.get_yticklabels()]  # upwards
    ['y', 'x']
    """
    table = ratings_table(ratings)
    _check_board(table)
    table = table.sort_values("rating", ignore_index=True)
    ax = _new_axes(1.8 + 0.3 * len(table)) if ax is None else ax
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
        From :func:`heart_utils.fit_boards`, or rows of ``ratings``, one a responder and `by`.
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
    >>> duel = pd.DataFrame({"responder_a": "x", "responder_b": "y", "verdict": ["a", "b"]})
    >>> board = fit_ratings(duel, n_resamples=0).table
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
    keep_rows(axs[0, 0], boards, first=(by, "responder", *RATING))
    axs[0, 0].set_yticks(range(len(order)), list(order))
    figure.supxlabel(_fold(_interval_label(boards), LINE + 10), fontsize="small")
    evidence = "simulated" if is_simulated(boards) else origin
    kinds = [kind for kind in KIND_NAMES if boards["responder_kind"].eq(kind).any()]
    lines = [
        Line2D([], [], color=colour, marker=marker, markersize=4, linewidth=1.6)
        for colour, marker in (KIND_LOOKS[kind] for kind in kinds)
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

    Filled markers were computed here, hollow ones are printed in a paper.

    Parameters
    ----------
    effects
        Rows of the table ``effects``, top to bottom, with ``group`` (a heading; at most eight) and
        ``line`` (above each effect, at most 50 characters).

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    ValueError
        If there is no group, or more than there are colours.

    Examples
    --------
    >>> row = {"line": "a study", "group": "Strangers", "win_share": 0.6, "ci_low": 0.5}
    >>> row |= {"ci_high": 0.7, "ci_level": 0.95, "evidence": "measured"}
    >>> plot_forest(pd.DataFrame([row])).get_xlabel().split(" that")[0]
    'Share'
    """
    groups = list(dict.fromkeys(effects["group"]))
    if not 0 < len(groups) <= len(COLOURS):
        raise ValueError(f"A forest has 1 to {len(COLOURS)} groups; this one has {len(groups)}.")
    ax = _new_axes(0.9 + 0.46 * (len(effects) + 0.8 * len(groups)), width=4.4)
    height = 0.0
    for group, colour, marker in zip(groups, COLOURS, MARKERS, strict=False):
        ax.text(0.0, height, group, weight="bold", color=colour, va="center")
        height += 0.8
        for row in effects[effects["group"] == group].to_dict("records"):
            box = {"fc": "white", "ec": "none", "pad": 1.0}
            label = ax.text(0.0, height, row["line"], fontsize="small", va="center", bbox=box)
            label.set_in_layout(False)
            ax.hlines(height + 0.38, row["ci_low"], row["ci_high"], color=colour, linewidth=2)
            ax.plot(
                row["win_share"],
                height + 0.38,
                marker,
                color=colour,
                markerfacecolor="white" if row["evidence"] == "quoted" else colour,
                markersize=7,
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
    keep_rows(ax, effects.drop(columns="line"), first=("study", "people", "models", *FOREST))
    return ax


def plot_trend(
    models: pd.DataFrame, *, x: str, x_label: str, y_label: str, frontier: bool = False
) -> Axes:
    """Draw models by their cost or size against their rating, each with its name.

    Parameters
    ----------
    models
        One row a model, with ``responder``, `x` (if missing, it is not drawn), ``rating``, and if
        known ``rating_low``, ``rating_high``, ``responder_kind``, ``on_frontier``, ``simulated``.
    x
        Column of the logarithmic scale.
    x_label, y_label
        Names of that scale, with its unit, and of the rating.
    frontier
        Whether to join the models on the frontier.

    Returns
    -------
    matplotlib.axes.Axes

    Examples
    --------
    >>> models = pd.DataFrame({"responder": ["m"], "size": [7.0], "rating": [1500.0]})
    >>> plot_trend(models, x="size", x_label="Size", y_label="Rating").texts[0].get_text()
    'm'
    """
    ax = _new_axes(3.8)
    from matplotlib.ticker import LogLocator

    table = models.dropna(subset=[x, "rating"]).sort_values(["rating", x])
    kinds = table.get("responder_kind", pd.Series("model", index=table.index))
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
    keep_rows(ax, table, first=("responder", x, *RATING))
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
    """Draw responders by two measures, such as one turn and the whole, each with its name.

    Parameters
    ----------
    first, second
        Scores by either, as :func:`~heart_utils.agreement.ranks.order_changes` takes them.
    x_label, y_label
        What they are, with their units.
    cluster
        What was sampled: the starts.
    ci_level
        Level of both means' intervals, over starts.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    AgreementError
        If they share fewer than two responders or four starts.

    Examples
    --------
    >>> starts = pd.DataFrame({"dialogue_id": range(4), "m": [1, 2, 1, 2], "n": 2}).melt(
    ...     "dialogue_id", var_name="responder", value_name="score"
    ... )
    >>> ax = plot_measures(starts, starts, x_label="One turn", y_label="Conversation")
    >>> [text.get_text() for text in ax.texts]
    ['m', 'n']
    """
    both: Any = complete_starts(first, second, cluster)
    reach = float(stats.t.ppf((1 + ci_level) / 2, len(both) - 1))
    x, y = both["first"].mean(), both["second"].mean()
    x_reach, y_reach = reach * both["first"].sem(), reach * both["second"].sem()
    ax = _new_axes(3.8)
    ax.errorbar(x, y, xerr=x_reach, yerr=y_reach, fmt="none", ecolor="0.8", zorder=1)
    colour, marker = KIND_LOOKS["model"]
    ax.plot(x, y, marker, color=colour, linestyle="none", zorder=2)
    bars = f"bars: {ci_level:.0%} over starts"
    ax.set(xlabel=x_label, ylabel=f"{y_label}; {bars}")
    ax.margins(x=0.24, y=0.1)
    _name_points(ax, x, y, x.index)
    mark_simulated(ax, is_simulated(first) or is_simulated(second))
    means = {"first": x, "second": y}
    for name, mean, half in (("first", x, x_reach), ("second", y, y_reach)):
        means |= {f"{name}_low": mean - half, f"{name}_high": mean + half}
    keep_rows(ax, pd.DataFrame(means).rename_axis("responder").reset_index())
    return ax


KINDS = {
    "forest": ("group", "line", "win_share", "ci_low", "ci_high", "evidence"),
    "squares": ("group", "item"),
    "matrix": ("panel", "row", "column", "wins", "ties", "losses"),
    "guess": ("label", "value", "ci_low", "ci_high", "least", "most", "scores"),
    "rubric": ("question", "item", "ability", "points"),
    "raters": ("panel", "row", "rater", "icc", "scores"),
}
"""What :func:`explore` can draw -> the columns that it takes."""


def explore(
    table: pd.DataFrame,
    *,
    kind: str,
    figure: str,
    switches: Mapping[str, str],
    shown: Mapping[str, str],
    cards: pd.DataFrame | None = None,
) -> Html:
    """Write the rows behind a static figure, which a page's script lets readers filter and tap.

    Parameters
    ----------
    table
        One row a line, square or cell, with the columns of `KINDS`. For ``"guess"`` the first is
        what a reader guesses.
    kind
        A key of `KINDS`.
    figure
        Name of the static figure that this replaces, or of the table it joins.
    switches
        Column -> words beside the field that chooses among its values, or colours by it.
    shown
        Column -> its name in what a tap shows.
    cards
        For ``"matrix"`` facts of each ``row``; for ``"forest"`` studies without a size: ``study``,
        the side it ``favours``, ``source``.

    Returns
    -------
    Html

    Raises
    ------
    ValueError
        If a column is missing.

    Examples
    --------
    >>> cells = pd.DataFrame({"panel": ["warmth"], "row": "x", "column": "y", "wins": 3})
    >>> cells = cells.assign(ties=1, losses=0)
    >>> explore(cells, kind="matrix", figure="fig-x", switches={}, shown={})._repr_html_()[:27]
    '<div class="heart-explore" '
    """
    columns = list(dict.fromkeys([*KINDS[kind], *switches, *shown]))
    need_columns(table, columns, ValueError)
    rows = json.loads(table[columns].to_json(orient="values", double_precision=4))
    payload = {"columns": columns, "rows": rows, "switches": {**switches}, "shown": {**shown}}
    if cards is not None:
        payload["cards"] = json.loads(cards.to_json(orient="records", double_precision=4))
    # Within a script element only the sign that could close it must not appear.
    words = json.dumps(payload, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    opening = (
        f'<div class="heart-explore" data-kind="{kind}" data-figure="{escape(figure)}" hidden>'
    )
    return Html(f'{opening}<script type="application/json">{words}</script></div>')


def mark_simulated(ax: Axes, table: pd.DataFrame | bool) -> None:
    """Write SIMULATED in a figure's lower right corner if any row behind it was simulated.

    Parameters
    ----------
    ax
        Where to write.
    table
        What was drawn; or whether to write.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> _, ax = plt.subplots()
    >>> mark_simulated(ax, pd.DataFrame({"simulated": [True, False]}))
    >>> ax.texts[0].get_text()
    'SIMULATED'
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
    """Add a font to the figures that follow and to the page, for Chinese characters alone.

    Returns
    -------
    Html
        A style with the font inside, for ``lang="zh"`` and table cells.

    Examples
    --------
    >>> import matplotlib as mpl
    >>> with mpl.rc_context():
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
    """Draw estimates and bars; a bar without an end is an arrow."""
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
    """Wrap, but not between number and per cent."""
    return textwrap.fill(text.replace(" %", "\u00a0%"), width)


def _legend_below(ax: Axes, **options: Any) -> None:
    from matplotlib.transforms import ScaledTranslation

    deep = 24 + 12 * (1 + ax.get_xlabel().count("\n"))  # points, of the numbers and of the label
    down = ScaledTranslation(0, -deep / 72, ax.figure.dpi_scale_trans)
    ax.legend(
        loc="upper center", bbox_to_anchor=(0.4, 0), bbox_transform=ax.transAxes + down, **options
    )


def _draw_board(
    ax: Axes, ratings: pd.DataFrame, order: Iterable[str], within: pd.DataFrame, **line_style: Any
) -> None:
    height_of = {responder: row for row, responder in enumerate(order)}
    for kind, rows in ratings.groupby("responder_kind"):
        look, height = KIND_LOOKS[str(kind)], rows["responder"].map(height_of)
        _draw_rows(
            ax, height, rows, RATING, within, look, label=KIND_NAMES[str(kind)], **line_style
        )
    ax.axvline(1500, color="0.8", linewidth=1, zorder=0)


def _check_board(ratings: pd.DataFrame) -> None:
    need_columns(ratings, ["responder", *RATING], ValueError)
    if ratings.empty:
        raise ValueError("There is no leaderboard to draw: the table has no row.")
    if twice := sorted(set(ratings.loc[ratings["responder"].duplicated(), "responder"])):
        raise ValueError(
            f"A leaderboard shows each responder once; {', '.join(twice)} stands in several rows."
            " Choose one dimension, group and rater, or use plot_boards."
        )


def _interval_label(ratings: pd.DataFrame) -> str:
    scale = "Rating (the mean responder has 1500)"
    if ratings["rating_low"].isna().all():
        return f"{scale}; no interval"
    names = [POPULATION_NAMES[str(name)] for name in ratings["population"].unique()]
    population = names[0] if len(names) == 1 else "population: see the caption"
    return f"{scale}; bars: {100 * ratings['ci_level'].max():.0f} % interval, {population}"


def _say_what_it_rests_on(ax: Axes, ratings: pd.DataFrame, origin: str) -> None:
    """Write the size of the data, and all caveats, inside the figure."""
    n_verdicts = int(ratings["n_verdicts"].sum()) // 2  # each is counted for both who met
    n_clusters = int(ratings["n_clusters"].max())  # 0 where nothing was resampled
    each = " at most each" if ratings["n_clusters"].min() < n_clusters else ""
    counted, few = f"{n_clusters:,} dialogues{each}", "fewer than 30 dialogues"
    # the table counts what there is less of
    for who in ("raters", "seekers"):
        if ratings["population"].eq(f"dialogues_and_{who}").all():
            counted = f"{n_clusters:,} or more dialogues and {who}"
            few = f"fewer than 30 dialogues or {who}"
    notes = [f"{n_verdicts:,} verdicts" + (f", {counted}" if n_clusters else "")]
    origin = "source not recorded" if origin == "not recorded" else origin
    notes.append("simulated" if is_simulated(ratings) else origin)
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


def _name_points(ax: Axes, x: pd.Series, y: pd.Series, names: Iterable[str]) -> None:
    # so that the layout stands before places are tried
    ax.figure.draw_without_rendering()  # type: ignore[union-attr]
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
