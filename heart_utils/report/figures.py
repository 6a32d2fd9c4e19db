"""Figures of the book: tidy tables in, axes out, one style, and what each figure rests on inside it.

A figure drawn from simulated rows says so across its face, so that a screenshot cannot pass for a
measurement.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "COLOURS",
    "KIND_COLOURS",
    "KIND_MARKERS",
    "MARKERS",
    "POPULATION_NAMES",
    "hatch_by_colour",
    "mark_simulated",
    "note_origin",
    "plot_boards",
    "plot_leaderboard",
    "plot_win_probabilities",
    "use_book_style",
]

# seaborn's colorblind palette; the marker repeats what the colour says.
COLOURS = ("#0173b2", "#de8f05", "#029e73", "#cc78bc", "#d55e00", "#949494", "#56b4e9", "#ca9161")
MARKERS = ("o", "s", "D", "^", "v", "X", "P", "*")
HATCHES = ("", "//", "..", "\\\\", "xx", "--", "++", "oo")
"""What a bar or an area has in place of a marker."""
# The same, by the kind of author.
KIND_COLOURS = dict(zip(("human", "model", "reference", "source"), COLOURS, strict=False)) | {"probe": COLOURS[5]}
KIND_MARKERS = {"human": "o", "model": "s", "reference": "D", "source": "^", "probe": "X"}
KIND_NAMES = {
    "human": "people",
    "model": "model",
    "reference": "drafted for this project",
    "source": "came with the data, author unknown",
    "probe": "probe",
}
POPULATION_NAMES = {
    "benchmark": "this benchmark's dialogues, other raters",
    "dialogues": "dialogues like these",
    "dialogues_and_raters": "dialogues and raters like these",
    "dialogues_and_writers": "dialogues and writers like these",
    "none": "no population",
}
"""What an interval speaks of, in words for a reader."""


def use_book_style() -> None:
    """Set size, fonts and colours of every figure that follows.

    Examples
    --------
    >>> import matplotlib as mpl
    >>> with mpl.rc_context():  # what was set before comes back after it
    ...     use_book_style()
    ...     mpl.rcParams["axes.titlelocation"]
    'left'
    """
    import matplotlib as mpl
    import seaborn as sns

    sns.set_theme(context="notebook", style="ticks", palette="colorblind")
    mpl.rcParams.update(
        {
            "figure.dpi": 110,
            "savefig.dpi": 110,
            "figure.facecolor": "white",
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.titlesize": "medium",
            "axes.titlelocation": "left",
            "axes.labelsize": "small",
            "xtick.labelsize": "small",
            "ytick.labelsize": "small",
            "legend.fontsize": "small",
            "legend.title_fontsize": "small",
            "legend.frameon": False,
        }
    )


def plot_leaderboard(
    board: pd.DataFrame, *, title: str | None = None, origin: str = "measured", ax: Axes | None = None
) -> Axes:
    """Draw ratings with their intervals, best responder on top.

    Parameters
    ----------
    board : pandas.DataFrame
        Rows of the table ``ratings``, one a responder.
    title : str, optional
        What was rated and by whom.
    origin : str
        What the verdicts are, in a word or two, such as ``"replayed"``; simulated ones are called so whatever it says.
    ax : matplotlib.axes.Axes, optional
        Drawn on a new figure if none is given.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    ValueError
        If the table is empty or holds a responder more than once.

    Examples
    --------
    >>> board = pd.DataFrame({"responder": ["x", "y"], "responder_kind": "model", "rating": [1520.0, 1480.0],
    ...     "rating_low": [1500.0, 1460.0], "rating_high": [1540.0, 1500.0], "ci_level": 0.95,
    ...     "population": "dialogues", "n_verdicts": 40, "n_clusters": 30, "provisional": False,
    ...     "penalised": False, "simulated": False})
    >>> [label.get_text() for label in plot_leaderboard(board).get_yticklabels()]
    ['y', 'x']
    """
    import matplotlib.pyplot as plt

    _check_board(board)
    table = board.sort_values("rating", ignore_index=True)
    if ax is None:
        _, ax = plt.subplots(figsize=(7, 1.1 + 0.32 * len(table)), layout="constrained")
    for kind, rows in table.groupby("responder_kind"):
        colour = KIND_COLOURS[str(kind)]
        draw_intervals(ax, rows.index, rows["rating_low"], rows["rating_high"], within=table, color=colour, linewidth=2)
        ax.plot(rows["rating"], rows.index, KIND_MARKERS[str(kind)], color=colour, label=KIND_NAMES[str(kind)])
    ax.axvline(1500, color="0.8", linewidth=1, zorder=0)
    ax.set(
        yticks=list(table.index), yticklabels=[_label(row) for row in table.to_dict("records")], ylim=(-0.6, len(table) - 0.4)
    )
    ax.set_xlabel(_interval_label(table))
    ax.legend(title="Written by", loc="best", alignment="left")
    if title:
        ax.set_title(title, pad=20)
    _say_what_it_rests_on(ax, table, origin)
    return ax


def plot_boards(boards: pd.DataFrame, *, by: str, columns: int = 4, origin: str = "measured") -> Figure:
    """Draw one small board for each value of a column, all with the same order and the same scale.

    Parameters
    ----------
    boards : pandas.DataFrame
        Rows of the table ``ratings``, one a responder and value of `by`.
    by : str
        Such as ``"dimension"``, ``"group"`` or ``"rater"``.
    columns : int
        Panels in a row.
    origin : str
        What the verdicts are, in a word or two; simulated ones are called so whatever it says.

    Returns
    -------
    matplotlib.figure.Figure
        Panels in the order in which the values first appear.

    Raises
    ------
    ValueError
        If the table is empty, or a panel would hold a responder twice.

    Examples
    --------
    >>> board = pd.DataFrame({"group": ["u", "u", "v", "v"], "responder": ["x", "y"] * 2, "responder_kind": "model",
    ...     "rating": [1520.0, 1480.0] * 2, "rating_low": [1500.0, 1460.0] * 2, "rating_high": [1540.0, 1500.0] * 2,
    ...     "ci_level": 0.95, "population": "dialogues", "n_verdicts": 40, "n_clusters": 30, "tie_share": 0.25,
    ...     "provisional": False, "penalised": False, "simulated": False})
    >>> len(plot_boards(board, by="group").axes)
    2
    """
    import matplotlib.pyplot as plt
    from matplotlib.lines import Line2D

    panels = list(dict.fromkeys(boards[by]))
    if not panels:
        raise ValueError(f"There is no board to draw: the table has no row with a {by}.")
    order = boards.groupby("responder")["rating"].mean().sort_values().index
    place = {responder: row for row, responder in enumerate(order)}
    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    figure, axs = plt.subplots(
        rows,
        columns,
        figsize=(1.8 + 1.5 * columns, rows * (0.9 + 0.24 * len(order)) + 0.8),  # no wider than a page: it is not shrunk there
        sharex=True,
        sharey=True,
        squeeze=False,
        layout="constrained",
    )
    for ax, panel in zip(axs.flat, panels, strict=False):
        board = boards[boards[by] == panel]
        _check_board(board)
        for kind, of_kind in board.groupby("responder_kind"):
            height = of_kind["responder"].map(place)
            colour = KIND_COLOURS[str(kind)]
            draw_intervals(
                ax, height, of_kind["rating_low"], of_kind["rating_high"], within=boards, color=colour, linewidth=1.6
            )
            ax.plot(of_kind["rating"], height, KIND_MARKERS[str(kind)], color=colour, markersize=4)
        ax.axvline(1500, color="0.8", linewidth=1, zorder=0)
        ax.locator_params(axis="x", nbins=3)
        ax.set_title(f"{panel}\nties {board['tie_share'].mean():.0%}", fontsize="small")
        ax.tick_params(labelsize="x-small", labelbottom=True)
        mark_simulated(ax, board, size=14)
    for ax in axs.flat[len(panels) :]:
        ax.set_axis_off()
    axs[0, 0].set_yticks(range(len(order)), list(order))
    figure.supxlabel(_interval_label(boards), fontsize="small")
    said = _origin(boards, origin)
    kinds = [kind for kind in KIND_NAMES if boards["responder_kind"].eq(kind).any()]
    figure.legend(
        [Line2D([], [], color=KIND_COLOURS[kind], marker=KIND_MARKERS[kind], markersize=4, linewidth=1.6) for kind in kinds],
        [KIND_NAMES[kind] for kind in kinds],
        title=f"{said[:1].upper()}{said[1:]}; written by",
        loc="outside upper left",
        ncols=len(kinds),
        alignment="left",
        fontsize="x-small",
        title_fontsize="x-small",
    )
    return figure


def plot_win_probabilities(
    probabilities: pd.DataFrame, *, simulated: bool, title: str | None = None, ax: Axes | None = None
) -> Axes:
    """Draw how likely the responder of each row is to be preferred to that of each column.

    Parameters
    ----------
    probabilities : pandas.DataFrame
        Square, responders as index and as columns in the order to be drawn, values from 0 to 1;
        the diagonal is left blank.
    simulated : bool
        Whether the verdicts behind it were simulated.
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
        If rows and columns differ.

    Examples
    --------
    >>> chances = pd.DataFrame([[0.5, 0.7], [0.3, 0.5]], index=["x", "y"], columns=["x", "y"])
    >>> plot_win_probabilities(chances, simulated=False).get_ylabel()
    'This responder ...'
    """
    import matplotlib.pyplot as plt
    import seaborn as sns

    if list(probabilities.index) != list(probabilities.columns):
        raise ValueError("Rows and columns must be the same responders in the same order.")
    size = 2.2 + 0.5 * len(probabilities)
    if ax is None:
        _, ax = plt.subplots(figsize=(size + 0.6, size), layout="constrained")
    sns.heatmap(
        probabilities,
        mask=np.eye(len(probabilities), dtype=bool),
        vmin=0,
        vmax=1,
        cmap="vlag",
        annot=True,
        fmt=".2f",
        annot_kws={"fontsize": "x-small"},
        square=True,
        linewidths=0.5,
        cbar_kws={"label": "Probability of being preferred", "shrink": 0.7},
        ax=ax,
    )
    ax.set(xlabel="... is preferred to this one", ylabel="This responder ...")
    ax.tick_params(axis="x", rotation=45)
    if title:
        ax.set_title(title)
    mark_simulated(ax, pd.DataFrame({"simulated": [simulated]}))
    return ax


def mark_simulated(ax: Axes, table: pd.DataFrame, *, size: float = 30) -> None:
    """Write SIMULATED across a figure if any row behind it was simulated.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
        Where to write.
    table : pandas.DataFrame
        What was drawn, with the column ``simulated``.
    size : float
        Of the letters, in points.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> ax = plt.figure().subplots()
    >>> mark_simulated(ax, pd.DataFrame({"simulated": [True, False]}))
    >>> ax.texts[0].get_text()
    'SIMULATED'
    """
    if table["simulated"].any():
        ax.text(
            0.5, 0.5, "SIMULATED", transform=ax.transAxes, ha="center", va="center",
            rotation=20, fontsize=size, color="#b3261e", alpha=0.28, weight="bold", zorder=5,
        )  # fmt: skip


def note_origin(ax: Axes, text: str) -> None:
    """Write above a figure what it rests on, so that a screenshot says it too.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
        A figure without a title.
    text : str
        Whose data, and where they come from: ``"MT-Bench: measured"``.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> ax = plt.figure().subplots()
    >>> note_origin(ax, "Run sample; histories: drafted")
    >>> ax.get_title(loc="left")
    'Run sample; histories: drafted'
    """
    ax.set_title(text, loc="left", fontsize="x-small", color="0.35", pad=16)  # above the names of reference lines


def hatch_by_colour(ax: Axes) -> Axes:
    """Give bars and areas of one colour one hatch, in the legend too, so that nobody has to tell them apart by colour.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
        With its bars and its legend.

    Returns
    -------
    matplotlib.axes.Axes
        The same.

    Raises
    ------
    ValueError
        If there are more colours than hatches.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> ax = plt.figure().subplots()
    >>> bars = ax.bar([0, 1], [3, 2], color=["blue", "orange"])
    >>> [patch.get_hatch() for patch in hatch_by_colour(ax).patches]
    ['', '//']
    """
    from matplotlib.colors import to_hex
    from matplotlib.patches import Patch

    legend = ax.get_legend()
    named = legend.findobj(Patch)[:-1] if legend else []  # the last is the legend's own frame
    patches = [*named, *ax.patches]  # in the order of the names: areas may be drawn in another
    colours = dict.fromkeys(to_hex(patch.get_facecolor()) for patch in patches)
    if len(colours) > len(HATCHES):
        raise ValueError(f"{len(colours)} colours cannot be told apart; a figure takes {len(HATCHES)} or fewer.")
    hatches = dict(zip(colours, HATCHES, strict=False))
    for patch in patches:
        if (colour := to_hex(patch.get_facecolor())) in hatches:
            patch.set(hatch=hatches[colour], edgecolor="white", linewidth=0.6)
    return ax


def draw_intervals(ax: Axes, height: Any, low: pd.Series, high: pd.Series, *, within: pd.DataFrame, **style: Any) -> None:
    """Draw bars from low to high; one without an end runs beyond all ratings of a table and ends in an arrow."""
    finite = within[["rating", "rating_low", "rating_high"]].replace([np.inf, -np.inf], np.nan)
    least, most = float(finite.min().min()), float(finite.max().max())
    beyond = 0.1 * (most - least)
    drawn = low.clip(lower=least - beyond), high.clip(upper=most + beyond)
    ax.hlines(height, *drawn, **style)
    for ends, shown, arrow in ((low, drawn[0], "<"), (high, drawn[1], ">")):
        open_ended = np.isinf(ends.to_numpy(float))
        ax.plot(shown[open_ended], np.asarray(height)[open_ended], arrow, color=style["color"], markersize=5)


def interval_words(table: pd.DataFrame) -> str:
    """Name an interval by the level it has in a table, such as "95% interval"."""
    return f"{table['ci_level'].max():.0%} interval"


def _check_board(board: pd.DataFrame) -> None:
    if board.empty:
        raise ValueError("There is no board to draw: the table has no row.")
    twice = board.loc[board["responder"].duplicated(), "responder"]
    if len(twice):
        raise ValueError(
            f"A board shows each responder once; {', '.join(sorted(set(twice)))} stands in several rows. "
            f"Choose one dimension, group and rater, or use plot_boards."
        )


def _label(row: Mapping[Hashable, Any]) -> str:
    return f"{row['responder']}{' *' if row['penalised'] else ''}"


def _interval_label(board: pd.DataFrame) -> str:
    scale = "Rating (the mean responder has 1500)"
    if board["rating_low"].isna().all():
        return f"{scale}; no interval"
    level, populations = board["ci_level"].max(), board["population"].unique()
    population = POPULATION_NAMES[str(populations[0])] if len(populations) == 1 else "of whom differs: see the caption"
    return f"{scale}; bars: {level:.0%} interval, {population}"


def _origin(board: pd.DataFrame, origin: str) -> str:
    return "simulated" if board["simulated"].any() else origin


def _say_what_it_rests_on(ax: Axes, board: pd.DataFrame, origin: str) -> None:
    """Put the size of what a board rests on, and every caveat it carries, inside the figure."""
    n_verdicts = int(board["n_verdicts"].sum()) // 2  # each is counted for both who met
    n_clusters = int(board["n_clusters"].max())  # that somebody met; 0 where nothing was resampled
    counted = f"{n_clusters:,} dialogues" + (" at most each" if board["n_clusters"].min() < n_clusters else "")
    few = "fewer than 30 dialogues"
    if board["population"].eq("dialogues_and_raters").all():  # the table counts what there is less of
        counted, few = f"{n_clusters:,} or more dialogues and raters", "fewer than 30 dialogues or raters"
    said = [f"{n_verdicts:,} verdicts" + (f", {counted}" if n_clusters else "")]
    said.append(_origin(board, origin))
    if board["provisional"].any():
        said.append(f"provisional: {few if n_clusters else 'nothing was resampled'}")
    if board["penalised"].any():
        said.append("* always wins or loses: held by a weak prior")
    ax.text(0, 1.015, "; ".join(said), transform=ax.transAxes, fontsize="x-small", color="0.35", va="bottom", ha="left")
    mark_simulated(ax, board)
