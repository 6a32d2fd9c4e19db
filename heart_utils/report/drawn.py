"""The numbers that a figure shows, read from its artists, as a table to pass on."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from heart_utils.runs import csv_text

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

__all__ = ["drawn_numbers", "keep_rows", "read_rows", "show_numbers_with_figures"]

DIGITS = 6  #: Significant ones: more than any figure shows, and the same on every processor.
PLACES = ("x", "x_low", "x_high", "y", "y_low", "y_high")
COLUMNS = ("panel", "series", "name", "mark", *PLACES, "value", "x_label", "y_label")
#: A line or a band across the whole figure, such as one at zero: where to look, and no result.
GUIDE = "guide"

KEPT = "_heart_rows"
"""Where axes keep the rows that they were drawn from."""

Mark = dict[str, Any]


def drawn_numbers(figure: Figure) -> pd.DataFrame:
    """Read the numbers that a figure shows from the marks in it.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
        With points, lines, intervals, bars, bands or cells of a heat map; other marks are left out.

    Returns
    -------
    pandas.DataFrame
        One row a mark, with ``mark`` (what it is), ``x`` and ``y``, or their ends in ``x_low``,
        ``x_high``, ``y_low`` and ``y_high``, in the units of the axes, whose labels are in
        ``x_label`` and ``y_label``; where an axis has names in place of numbers, those. ``panel``
        is the title of the axes, ``series`` the entry of the legend, ``name`` what is written
        beside a point, ``value`` what a cell shows. A column that is empty throughout is left out.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> from heart_utils import plot_intervals
    >>> table = pd.DataFrame(
    ...     {
    ...         "judge": ["one", "two"],
    ...         "lead": [0.1, 0.3],
    ...         "ci_low": [0.0, 0.2],
    ...         "ci_high": [0.2, 0.4],
    ...     }
    ... )
    >>> figure = plot_intervals(table, value="lead", label="judge").figure
    >>> drawn_numbers(figure)[["x", "x_low", "x_high", "y"]].to_numpy().tolist()
    [[0.1, 0.0, 0.2, 'one'], [0.3, 0.2, 0.4, 'two']]
    """
    several = len(figure.axes) > 1
    rows = []
    for axes in figure.axes:
        about = {
            "panel": (
                _one_line(
                    " ".join((axes.get_title("left"), axes.get_title(), axes.get_title("right")))
                )
                if several
                else ""
            ),
            "x_label": _one_line(axes.get_xlabel() or figure.get_supxlabel()),
            "y_label": _one_line(axes.get_ylabel() or figure.get_supylabel()),
        }
        names = {"x": _names(axes.xaxis), "y": _names(axes.yaxis)}
        rows += [about | _name_places(mark, names) for mark in _marks(axes)]
    table = pd.DataFrame(rows, columns=list(COLUMNS))
    empty = [
        name for name in COLUMNS if (table[name].isna() | table[name].astype(str).eq("")).all()
    ]
    return table.drop(columns=empty)


def keep_rows(
    axes: Axes, table: pd.DataFrame, *, first: Sequence[str | None], without: Sequence[str] = ()
) -> None:
    """Keep the rows that axes were drawn from, for whoever downloads the figure's numbers.

    Parameters
    ----------
    axes : matplotlib.axes.Axes
        Where they were drawn.
    table : pandas.DataFrame
        The rows, with whatever they say of themselves: study, numbers of raters, source.
    first : sequence of str
        Columns that come first: names, estimate and interval.
    without : sequence of str
        Columns that only serve the drawing.

    Examples
    --------
    >>> from matplotlib import pyplot as plt
    >>> keep_rows(plt.figure().gca(), pd.DataFrame({"share": [0.5]}), first=["share"])
    """
    leading = [name for name in first if name in table]
    others = [name for name in table if name not in (*leading, *without)]
    setattr(axes, KEPT, table[list(dict.fromkeys(leading + others))])


def read_rows(figure: Figure) -> pd.DataFrame:
    """Return the rows that a figure was drawn from, or else what its marks say.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
        Drawn by a function that keeps its rows (:func:`keep_rows`), or in any other way.

    Returns
    -------
    pandas.DataFrame
        The kept rows, if all axes have some and nothing was drawn over them; numbers are rounded to
        six digits. Otherwise one row a mark, as :func:`drawn_numbers` has them: where one axis has
        names, these are ``name``, the numbers of the other are ``value``, ``low`` and ``high``, and
        its label is ``measure``.

    Examples
    --------
    >>> from heart_utils import plot_intervals
    >>> table = pd.DataFrame({"study": ["A"], "share": [0.6], "n": [80], "doi": ["10.1/a"]})
    >>> table = table.assign(ci_low=0.5, ci_high=0.7)
    >>> read_rows(plot_intervals(table, value="share", label="study").figure).columns.tolist()
    ['study', 'share', 'ci_low', 'ci_high', 'n', 'doi']
    """
    drawn = drawn_numbers(figure)
    kept = [getattr(axes, KEPT, None) for axes in figure.axes]
    rows = [table for table in kept if table is not None]
    n_points = int(drawn.get("mark", pd.Series(dtype=str)).isin(["point", "interval"]).sum())
    if len(rows) != len(kept) or not rows or n_points > sum(map(len, rows)):
        return _in_words(drawn)
    table = pd.concat(rows, ignore_index=True)
    numbers = table.select_dtypes("floating").columns
    table[numbers] = table[numbers].map(lambda number: float(f"{number:.{DIGITS}g}"))
    filled: pd.DataFrame = table.dropna(axis="columns", how="all")
    return filled


def _in_words(drawn: pd.DataFrame) -> pd.DataFrame:
    """Call numbers by what they are where one of the axes has names in place of them."""
    for names, numbers in (("y", "x"), ("x", "y")):
        named = names in drawn and drawn[names].map(lambda one: isinstance(one, str)).any()
        ends = {numbers: "value", f"{numbers}_low": "low", f"{numbers}_high": "high"}
        if named and numbers in drawn and "value" not in drawn and "name" not in drawn:
            return drawn.rename(columns={names: "name", f"{numbers}_label": "measure", **ends})
    return drawn


def show_numbers_with_figures() -> None:
    """Let each figure that a notebook shows carry its numbers as CSV beside its picture.

    Examples
    --------
    >>> show_numbers_with_figures()  # outside a notebook nothing is shown, and this does nothing
    """
    if "ipykernel" not in sys.modules:
        return
    from IPython.core.formatters import BaseFormatter
    from IPython.core.getipython import get_ipython
    from matplotlib.figure import Figure
    from traitlets import ObjectName, Unicode

    class CsvFormatter(BaseFormatter):
        """Return what a cell shows as CSV."""

        format_type = Unicode("text/csv")
        print_method = ObjectName("_repr_csv_")

    shell: Any = get_ipython()
    if shell is not None:
        formatters = shell.display_formatter.formatters
        formatters.setdefault("text/csv", CsvFormatter(parent=shell.display_formatter))
        formatters["text/csv"].for_type(Figure, _as_csv)


def _as_csv(figure: Figure) -> str | None:
    """Return the numbers of a figure as CSV; a mark that cannot be read is left out.

    The figure must be shown in any case.
    """
    try:
        table = read_rows(figure)
    except Exception as error:  # whatever a user's figure holds
        warnings.warn(
            f"The numbers of a figure could not be read ({type(error).__name__}: {error}).",
            stacklevel=2,
        )
        return None
    return csv_text(table) if len(table) else None


def _marks(axes: Axes) -> list[Mark]:
    """List what is drawn in axes; a line through a point is the interval of that point."""
    from matplotlib.collections import (
        FillBetweenPolyCollection,
        LineCollection,
        PathCollection,
        QuadMesh,
    )
    from matplotlib.lines import AxLine

    legend = _legend(axes)
    intervals: list[Mark] = []
    others: list[Mark] = []
    for line in axes.lines:
        if isinstance(line, AxLine) or not np.size(line.get_xdata()):
            continue
        about = {"series": _series(line, legend), "colour": _colour(line.get_color())}
        if (guide := _guide(line, axes)) is not None:
            others.append(about | guide)
        elif (
            line.get_marker() in ("None", "", " ", None)
            and (interval := _as_interval(line.get_xydata())) is not None
        ):
            intervals.append(about | interval)
        else:
            others += [about | mark for mark in _points(line)]
    for drawn in axes.collections:
        about = {
            "series": _series(drawn, legend),
            "colour": _colour(_first(drawn.get_edgecolor(), drawn.get_facecolor())),
        }
        if isinstance(drawn, LineCollection):
            colours = [_colour(colour) for colour in drawn.get_edgecolor()]
            for number, segment in enumerate(drawn.get_segments()):
                if (interval := _as_interval(segment)) is not None:
                    intervals.append(about | interval | {"colour": colours[number % len(colours)]})
        elif isinstance(drawn, FillBetweenPolyCollection):
            others += [about | mark for mark in _band(drawn)]
        elif isinstance(drawn, PathCollection):
            others += [
                about | {"mark": "point", "x": x, "y": y}
                for x, y in np.ma.getdata(drawn.get_offsets())
            ]
        elif isinstance(drawn, QuadMesh):
            values: np.ndarray[Any, Any] = np.ma.filled(
                np.ma.asarray(drawn.get_array(), dtype=float), np.nan
            )
            others += [
                {"mark": "cell", "x": x + 0.5, "y": y + 0.5, "value": v}
                for (y, x), v in np.ndenumerate(values)
            ]
    others += list(_bars(axes))
    _join(intervals, others)
    _name_points(axes, others)
    return [
        mark
        for mark in others + intervals
        if np.isfinite([mark[at] for at in PLACES if at in mark]).any()
    ]


def _points(line: Any) -> Iterator[Mark]:
    kind = "line" if line.get_marker() in ("None", "", " ", None) else "point"
    for x, y in line.get_xydata():
        if np.isfinite([x, y]).all():
            yield {"mark": kind, "x": x, "y": y}


def _guide(line: Any, axes: Axes) -> Mark | None:
    """Read a line across the whole of the axes, which has numbers in one direction only."""
    across, up = line.get_transform().contains_branch_seperately(axes.transData)
    if across and up:
        return None
    at = line.get_xydata()[0]
    return {"mark": GUIDE, **({"x": at[0]} if across else {"y": at[1]})}


def _as_interval(ends: Any) -> Mark | None:
    """Read a line between two points, one above or beside the other, as an interval."""
    points = np.asarray(ends, dtype=float).reshape(-1, 2)
    points = points[np.isfinite(points).all(axis=1)]
    if len(points) != 2:
        return None
    (x, y), (other_x, other_y) = points.tolist()
    if y == other_y:
        return {"mark": "interval", "x_low": min(x, other_x), "x_high": max(x, other_x), "y": y}
    if x == other_x:
        return {"mark": "interval", "y_low": min(y, other_y), "y_high": max(y, other_y), "x": x}
    return None


def _band(drawn: Any) -> Iterator[Mark]:
    """Read the lower and the upper edge of a filled band, place by place."""
    corners = np.vstack([path.vertices for path in drawn.get_paths()])
    for x, edges in pd.DataFrame(corners, columns=["x", "y"]).groupby("x")["y"]:
        yield {"mark": "band", "x": x, "y_low": edges.min(), "y_high": edges.max()}


def _bars(axes: Axes) -> Iterator[Mark]:
    from matplotlib.container import BarContainer

    for bars in (one for one in axes.containers if isinstance(one, BarContainer)):
        lies = bars.orientation == "horizontal"
        for bar in bars.patches:
            middle = (bar.get_x() + bar.get_width() / 2, bar.get_y() + bar.get_height() / 2)
            position = (
                {"x": bar.get_width(), "y": middle[1]}
                if lies
                else {"x": middle[0], "y": bar.get_height()}
            )
            yield {
                "series": _words(bars.get_label()),
                "mark": "bar",
                "colour": _colour(bar.get_facecolor()),
                **position,
            }


def _join(intervals: list[Mark], others: list[Mark]) -> None:
    """Move the ends of a line to the points that lie on it in the same colour."""
    for interval in list(intervals):
        across = "x_low" in interval
        fixed, along = ("y", "x") if across else ("x", "y")
        low, high = interval[f"{along}_low"], interval[f"{along}_high"]
        within = [
            mark
            for mark in others
            if mark["mark"] == "point"
            and mark["colour"] == interval["colour"]
            and np.isclose(mark[fixed], interval[fixed], rtol=0, atol=1e-9)
            and low - 1e-9 <= mark[along] <= high + 1e-9
        ]
        for mark in within:
            mark |= {f"{along}_low": low, f"{along}_high": high}
        if within:
            intervals.remove(interval)


def _name_points(axes: Axes, marks: list[Mark]) -> None:
    """Name points by the labels that are written beside them."""
    from matplotlib.text import Annotation

    written = {
        tuple(text.xy): text.get_text() for text in axes.texts if isinstance(text, Annotation)
    }
    for mark in (one for one in marks if one["mark"] == "point"):
        mark["name"] = written.get((mark["x"], mark["y"]), "")


def _legend(axes: Axes) -> dict[str, str]:
    """Read from the legend of axes, or of their figure, the words of each colour.

    A colour of two entries is left out.
    """
    from matplotlib.collections import Collection
    from matplotlib.lines import Line2D

    legends = [legend for legend in (axes.get_legend(), *axes.figure.legends) if legend is not None]
    words_of: dict[str, set[str]] = {}
    for legend in legends:
        for handle, text in zip(legend.legend_handles, legend.get_texts(), strict=True):
            if isinstance(handle, Line2D):
                words_of.setdefault(_colour(handle.get_color()), set()).add(text.get_text())
            elif isinstance(handle, Collection):
                words_of.setdefault(_colour(_first(handle.get_facecolor())), set()).add(
                    text.get_text()
                )
    return {colour: next(iter(words)) for colour, words in words_of.items() if len(words) == 1}


def _series(artist: Artist, legend: dict[str, str]) -> str:
    own = _words(artist.get_label())
    if own:
        return own
    get_colour = getattr(artist, "get_color", None) or artist.get_facecolor  # type: ignore[attr-defined]
    return legend.get(_colour(_first(get_colour())), "")


def _words(label: object) -> str:
    text = _one_line(label)
    return "" if text.startswith("_") or text == "None" else text


def _first(*colours: Any) -> Any:
    """Take the first of many colours, where there is any."""
    for colour in colours:
        if isinstance(colour, str):
            return colour
        listed: Any = np.atleast_2d(np.asarray(colour, dtype=float)) if len(colour) else []
        if len(listed):
            return tuple(listed[0])
    return "none"


def _colour(colour: Any) -> str:
    from matplotlib.colors import to_hex

    return to_hex(_first(colour), keep_alpha=False)


def _names(axis: Axis) -> dict[float, str]:
    """Read the names that an axis has in place of numbers: place -> name."""
    from matplotlib.category import StrCategoryLocator
    from matplotlib.ticker import FixedLocator

    if not isinstance(axis.get_major_locator(), (FixedLocator, StrCategoryLocator)):
        return {}
    places = [float(tick) for tick in axis.get_majorticklocs()]
    words = [_one_line(word) for word in axis.get_major_formatter().format_ticks(places)]
    written = {tick: word for tick, word in zip(places, words, strict=True) if word}
    return {} if all(_is_number(word, tick) for tick, word in written.items()) else written


def _is_number(word: str, tick: float) -> bool:
    try:
        return float(word.replace(",", "")) == tick
    except ValueError:
        return False


def _name_places(mark: Mark, names: dict[str, dict[float, str]]) -> Mark:
    """Replace numbers by names where the axis has them, and round the rest."""
    readable = {name: cell for name, cell in mark.items() if name != "colour"}
    for at in (*PLACES, "value"):
        if at in readable:
            readable[at] = float(f"{readable[at]:.{DIGITS}g}")
    for direction, named in names.items():
        if named and direction in mark:
            readable[direction] = named[min(named, key=lambda tick: abs(tick - mark[direction]))]
    return readable


def _one_line(text: object) -> str:
    return " ".join(str(text).replace("\u00a0", " ").split())
