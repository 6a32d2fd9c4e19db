"""Tables and numbers for readers, and what a page rests on.

Heads in words, rounding, intervals in one column; sources, licences and origins from rows and the
run's ``manifest.json``, where what neither says, or a manifest says of another number of rows, is
"not recorded".
"""

from __future__ import annotations

import ast
import contextlib
import importlib.metadata
import json
import math
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from heart_utils.report import WORDS
from heart_utils.runs import Run, open_run
from heart_utils.settings import JsonObject
from heart_utils.tables import TABLES

if TYPE_CHECKING:
    from pandas.io.formats.style import Styler

__all__ = [
    "ORIGINS",
    "TableNote",
    "in_words",
    "note_tables",
    "read_results",
    "record_results",
    "show_table",
    "show_versions",
]

DASH = "–"
#: Characters from which a cell is a sentence, which goes on in the next line; what is shorter stays
#: whole.
LONG = 36

HEADS: dict[str, str] = WORDS["heads"]
"""What the columns of the project's tables are called before readers; of any other, the
underscores go."""
DIGITS = {"rating": 0, "rank": 0, "win_probability": 2, "tie_share": 2}
#: Of the tables of a page, in place of pandas' random ids: the same book is the same bytes.
NUMBER = count(1)
P_VALUES = ("p", "p_value", "p_holm", "p value", "corrected", "corrected (BH)", "corrected (Holm)")


def show_table(
    table: pd.DataFrame,
    *,
    digits: int = 3,
    wrap: bool = False,
    percent: Sequence[str] = (),
    filtered: bool = False,
) -> Styler:
    """Format a table for reading; only what is shown changes.

    Column names become words, missing values a dash; columns without a value disappear, and text is
    escaped.

    Parameters
    ----------
    table
        An index that only counts is not shown; ``x_low`` and ``x_high`` become one column, with the
        level of ``ci_level`` in its head.
    digits
        Decimals of numbers that are not whole by type.
    wrap
        Whether any cell may continue in the next line, not sentences alone.
    percent
        Columns of shares to show in percent, with their ends (``"ci"`` for ``ci_low``,
        ``ci_high``).
    filtered
        Whether the book's page lets readers choose rows by words and columns of few entries.

    Returns
    -------
    pandas.io.formats.style.Styler
        ``.data`` is the table with the new heads.

    Examples
    --------
    >>> board = pd.DataFrame({"win_share": [0.58], "ci_low": 0.561, "ci_high": 0.603})
    >>> show_table(board.assign(ci_level=0.95), percent=["win_share", "ci"]).data.to_dict("records")
    [{'win share': '58 %', '95 % interval': '56 to 60 %'}]
    """
    kept = _in_words(_join_ends(table, digits, percent))
    says_nothing = (kept.isna() | (kept.astype(str) == "")).all().to_numpy()
    kept = kept.loc[:, ~says_nothing] if len(kept) else kept
    if not kept.index.is_unique:  # such an index is not shown
        kept = kept.reset_index(drop=True)
    kind = "dataframe heart-filter" if filtered else "dataframe"
    # The theme knows tables of pandas by this class: colours in the dark, and a wide one scrolls
    # rather than breaking words.
    styled = kept.style.set_uuid(f"{next(NUMBER)}").format(
        precision=digits, na_rep=DASH, thousands=",", escape="html"
    )
    # names in a table may be anybody's, and pandas takes them for markup unless it is told
    for axis in (0, 1):
        styled.format_index(escape="html", axis=axis).format_index_names(escape="html", axis=axis)
    styled = styled.set_table_attributes(f'class="{kind}"').map(_give_room)
    if wrap:
        styled = styled.set_properties(None, **{"white-space": "normal"})
    return styled.hide(axis="index") if isinstance(kept.index, pd.RangeIndex) else styled


def record_results(results: Mapping[str, Any]) -> None:
    """Keep a notebook's results in its executed copy, by name; nothing is shown.

    Prose quotes a result by the role ``glue:text``.

    Parameters
    ----------
    results
        Name -> number or text. Names are words with hyphens, such as ``"n-votes"``, unique in their
        notebook. Values of numpy and pandas become plain numbers.

    Raises
    ------
    ImportError
        If ``myst_nb`` is missing, which builds the book.

    Examples
    --------
    >>> record_results({"n-votes": 3355, "people-share": 0.58})  # doctest: +SKIP
    """
    from myst_nb import glue  # a book's tool, which those who use tables alone need not have

    for name, value in results.items():
        glue(name, value.item() if hasattr(value, "item") else value, display=False)


def in_words(n: int) -> str:
    """Write a count up to ten in words, and a larger one in digits.

    Parameters
    ----------
    n
        A count, 0 or more, also of numpy.

    Returns
    -------
    str

    Examples
    --------
    >>> in_words(0), in_words(3), in_words(12)
    ('none', 'three', '12')
    """
    words = ("none", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
    return words[n] if n < len(words) else f"{n:,}"


def _join_ends(table: pd.DataFrame, digits: int, percent: Sequence[str]) -> pd.DataFrame:
    kept = table.copy()
    if kept.columns.nlevels > 1:
        return kept
    level = kept.pop("ci_level").max() if "ci_level" in kept else None
    interval = "interval" if level is None else f"{100 * level:g} % interval"
    names = [name for name in kept.columns if isinstance(name, str)]
    pairs = [name[:-4] for name in names if name.endswith("_low") and f"{name[:-4]}_high" in names]
    several = len({*pairs} - {"rank"}) > 1
    for base in pairs:
        low, high = kept[f"{base}_low"], kept.pop(f"{base}_high")
        unit, places = _form(base, digits, percent)
        ends = [_ends(one, two, places, unit) for one, two in zip(low, high, strict=True)]
        kept[f"{base}_low"] = pd.Series(ends, kept.index, dtype=object).where(low.notna(), None)
        name = f"interval of {_say(base)}" if several and base != "ci" else interval
        kept = kept.rename(columns={f"{base}_low": base if base == "rank" else name})
    for name in names:
        if name in kept and (name in percent or name in DIGITS):
            unit, places = _form(name, digits, percent)
            values = [_number(value, places, unit) for value in kept[name]]
            kept[name] = pd.Series(values, kept.index, dtype=object).where(kept[name].notna(), None)
        elif name in P_VALUES:
            kept[name] = kept[name].map(
                lambda p: "< 0.001" if p < 0.001 else f"{p:.3f}", na_action="ignore"
            )
    return kept


def _form(name: str, digits: int, percent: Sequence[str]) -> tuple[str, int]:
    return (" %", 0) if name in percent else ("", DIGITS.get(name, digits))


def _ends(low: Any, high: Any, digits: int, unit: str) -> str:
    """Write an interval, with a decimal more where rounding left no width."""
    one, two = _number(low, digits, unit), _number(high, digits, unit)
    if one == two and low != high:
        one, two = _number(low, digits + 1, unit), _number(high, digits + 1, unit)
    return one if one == two else f"{one.removesuffix(unit)} to {two}"


def _number(value: Any, digits: int, unit: str) -> str:
    if isinstance(value, str) or pd.isna(value):
        return str(value)
    if math.isinf(value):
        return "no limit"
    return f"{100 * value if unit else value:,.{digits}f}{unit}"


def _in_words(table: pd.DataFrame) -> pd.DataFrame:
    truths = table.select_dtypes(bool) if table.columns.is_unique else table[[]]
    named = [name for name in truths if isinstance(name, str)]
    words = {name: truths[name].map({True: "yes", False: "no"}) for name in named}
    constant = list(truths.columns[truths.all() == truths.any()]) if len(table) > 1 else []
    table = table.assign(**words).drop(columns=constant)
    renamed = table.rename(columns=_say)
    table = renamed if renamed.columns.is_unique else table
    return table.rename_axis(index=_say, columns=_say)


def _say(name: Any) -> Any:
    return HEADS.get(name, name.replace("_", " ")) if isinstance(name, str) else name


def _give_room(value: object) -> str:
    return (
        "white-space: normal; min-width: 8rem"
        if isinstance(value, str) and len(value) > LONG
        else ""
    )


ORIGINS: dict[str, str] = WORDS["origins"]  #: Where rows can come from, and how a page says it.
MADE_UP = {"simulated", "rehearsal"}  #: Origins of rows that are marked as simulated.

PACKAGES = ("heart-utils", "numpy", "pandas", "scipy", "papermill", "jupyter-book")


@dataclass(frozen=True)
class TableNote:
    """What one table, or one part of it, rests on."""

    table: str
    source: str  #: in words
    licence: str
    rows: dict[str, int]  #: by origin, "not recorded" where nobody said


def note_tables(run: str | Run, *, tables: Sequence[str]) -> list[TableNote]:
    """Look up what tables rest on; one that is not there has no note.

    Parameters
    ----------
    run
        A run, its name or its path.
    tables
        Such as ``"verdicts"`` (all parts), ``"verdicts/people"`` or ``"public/verdicts"`` (of
        another run).

    Returns
    -------
    list of TableNote

    Raises
    ------
    ValueError
        If a name is no table's, or the manifest has an unknown origin.

    Examples
    --------
    >>> note_tables("public", tables=["verdicts/mtbench"])[0].licence
    'CC-BY-4.0'
    """
    own, notes = run if isinstance(run, Run) else open_run(run), list[TableNote]()
    for name in tables:
        first, _, rest = name.partition("/")
        here, table = (own, name) if first in TABLES else (open_run(first), rest)
        entries: JsonObject = here.manifest.get("tables", {})
        kind, _, part = table.partition("/")
        if kind not in TABLES:
            raise ValueError(
                f"{name!r} names no table. There are {', '.join(TABLES)}, also as"
                " 'verdicts/people', 'public/verdicts'."
            )
        # parts of a table come from different places
        for pattern in [table] if part else [kind, f"{kind}/*"]:
            for file in sorted(here.folder.glob(f"{pattern}.parquet")):
                path = str(file.relative_to(here.folder).with_suffix(""))
                notes.append(_note(f"{here.name}/{path}", entries.get(path, {}), file))
    return notes


def versions() -> dict[str, str]:
    installed = {
        package.name.lower().replace("_", "-"): package.version
        for package in importlib.metadata.distributions()
    }
    return {"python": platform.python_version()} | {
        name: installed[name] for name in PACKAGES if name in installed
    }


def show_versions() -> None:
    """Print in one line the versions that figures depend on most.

    Examples
    --------
    >>> show_versions()  # doctest: +ELLIPSIS
    Run with python 3..., heart-utils 0..., numpy ...
    """
    print(f"Run with {versions_in_words()}.")


def versions_in_words() -> str:
    return ", ".join(f"{name} {version}" for name, version in versions().items())


def _note(table: str, entry: Mapping[str, Any], file: Path) -> TableNote:
    rows = pd.read_parquet(file, columns=["simulated"])
    simulated = int(rows["simulated"].sum())
    origin = entry.get("origin", "not recorded")
    counts = dict(origin) if isinstance(origin, Mapping) else {origin: len(rows) - simulated}
    if unknown := sorted(set(counts) - {*ORIGINS, "not recorded"}):
        raise ValueError(
            f"{table}: the manifest says origin {', '.join(unknown)}; expected one of"
            f" {', '.join(ORIGINS)}."
        )
    # The rows' own word counts: no manifest can make a simulated row a measured one, nor account
    # for other rows than these.
    others = {name: count for name, count in counts.items() if name not in MADE_UP}
    if sum(others.values()) != len(rows) - simulated:
        others = {"not recorded": len(rows) - simulated}
    counts = {**others, "rehearsal" if origin == "rehearsal" else "simulated": simulated}
    return TableNote(
        table,
        source=str(entry.get("source", "source not recorded")),
        licence=str(entry.get("licence", "none stated")),
        rows={name: int(count) for name, count in counts.items() if count},
    )


PREFIX = "application/papermill.record/"


def read_results(notebook: str | os.PathLike[str]) -> JsonObject:
    """Read what an executed notebook recorded, to lay the runs of a grid side by side.

    Parameters
    ----------
    notebook
        An executed copy, as papermill writes it.

    Returns
    -------
    dict
        Name, as given to :func:`record_results`, -> number or text, no
        figures.

    Raises
    ------
    ValueError
        If the file is no notebook, or recorded nothing.

    Examples
    --------
    >>> read_results("notebooks/02_the_conversations.ipynb")
    Traceback (most recent call last):
    ValueError: notebooks/02_the_conversations.ipynb recorded nothing. ...
    """
    file = Path(notebook)
    try:
        cells = json.loads(file.read_text(encoding="utf-8"))["cells"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{file} is not a notebook ({type(error).__name__}: {error}).") from None
    results = {}
    for output in (output for cell in cells for output in cell.get("outputs", [])):
        if scrap := output.get("metadata", {}).get("scrapbook"):
            text = "".join(output["data"].get(f"{PREFIX}text/plain", ""))
            with contextlib.suppress(SyntaxError, ValueError):  # a figure
                results[scrap["name"]] = ast.literal_eval(text)
    if not results:
        raise ValueError(
            f"{file} recorded nothing. Is it the executed copy? A chapter under notebooks/ has no"
            " outputs."
        )
    return results
