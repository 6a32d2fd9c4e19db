"""The tables passed between steps: rows, columns and allowed words."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
import yaml
from numpy.typing import NDArray

from heart_utils.identities import show_cell, show_row

__all__ = [
    "DIMENSIONS",
    "RATER_KINDS",
    "RESPONDER_KINDS",
    "SLICES",
    "SPEAKERS",
    "STATES",
    "TABLES",
    "VERDICTS",
    "Column",
]
__all__ += ["DataError", "TableError", "check_table"]


class DataError(ValueError):
    """A file or a data set is not as expected; ``options`` may read it."""

    options: Mapping[str, Any] = MappingProxyType({})


class TableError(ValueError):
    """A table does not hold what its columns promise.

    ``rows`` has the labels of rows at fault, if any.
    """

    def __init__(self, message: str, rows: Iterable[Any] = ()) -> None:
        super().__init__(message)
        self.rows = list(rows)


@dataclass(frozen=True)
class Column:
    """What one column of a table holds."""

    #: ``"text"``, ``"number"``, ``"count"`` (whole and not negative), ``"truth"`` or ``"list"``.
    kind: str
    nullable: bool = False  #: Whether a row may leave it empty.
    words: tuple[str, ...] = ()  #: The vocabulary, if the column has one.
    low: float | None = None  #: The range of a number, ends included.
    high: float | None = None
    optional: bool = False  #: Whether the whole column may be absent.

    def expected(self) -> str:
        """Describe in words what a cell must hold."""
        if self.words:
            words = "one of " + ", ".join(self.words)
        elif self.kind in ("number", "count"):
            words = "a whole number" if self.kind == "count" else "a number"
            if self.low is not None and self.high is not None:
                words += f" from {self.low:g} to {self.high:g}"
            elif self.low is not None:
                words += f" of {self.low:g} or more"
        else:
            words = {"text": "text", "truth": "true or false", "list": "a list"}[self.kind]
        return words + (", or nothing" if self.nullable else ", in every row")


def _columns_of(settings: Mapping[str, Mapping[str, Any]]) -> dict[str, Column]:
    cells = {
        names: Column(**{**about, "words": tuple(about.get("words", ()))})
        for names, about in settings.items()
    }
    return {name: cell for names, cell in cells.items() for name in names.split()}


SAID: Mapping[str, Any] = yaml.safe_load(
    Path(__file__).with_name("tables.yaml").read_text(encoding="utf-8")
)
COLUMNS = _columns_of(SAID["columns"])
"""Name of a column -> what it holds in every table that does not say otherwise."""

TABLES: dict[str, dict[str, Column]] = {
    name: {
        column: (COLUMNS | _columns_of(about.get("own", {})))[column]
        for column in about["columns"].split()
    }
    for name, about in SAID["tables"].items()
}
"""Name of a table -> name of a column -> what it holds, in the order of writing."""

KEYS: dict[str, list[str]] = {name: about["key"].split() for name, about in SAID["tables"].items()}
"""What makes a row of each table different from every other row."""

SPEAKERS = ("seeker", "supporter")
SLICES, STATES, ORDERS = (COLUMNS[name].words for name in ("slice", "state", "order"))
RESPONDER_KINDS, RATER_KINDS, VERDICTS = (
    COLUMNS[name].words for name in ("responder_kind", "rater_kind", "verdict")
)
LEVELS = COLUMNS["empathy_a"].words
DIMENSIONS = (
    "human_alignment",
    "empathic_responsiveness",
    "attunement",
    "resonance",
    "task_following",
    "overall",
)
"""HEART's five dimensions and the overall preference; another rubric brings its own, in
snake_case."""

LOADED = ("histories", "verdicts", "scores", "replies", "conversations")
"""Tables that ``load_<table>`` completes from a file with some of the columns."""

MAX_ROWS_SHOWN = 3


def check_table(name: str, table: pd.DataFrame, *, numbered: bool = False) -> pd.DataFrame:
    """Check a table against its columns and put them in the order of writing.

    Parameters
    ----------
    name
        Name of a table of :data:`TABLES`.
    table
        Optional columns may be absent.
    numbered
        Whether rows that come again are known to be numbered, so that none is looked for.

    Returns
    -------
    pandas.DataFrame
        The same rows with a fresh index and all columns, in order and with their types.

    Raises
    ------
    TableError
        If a column is missing or unknown, a value does not fit, an id appears twice, or cells
        contradict each other; it names the first bad rows.

    Examples
    --------
    >>> check_table("seats", pd.DataFrame())
    Traceback (most recent call last):
    heart_utils.tables.TableError: There is no table called 'seats'. The tables are ...
    """
    columns = table_columns(name)
    attributes = dict(table.attrs)  # which pandas would copy with each column
    unsaid = SAID["tables"][name].get("unsaid", {})
    table = table.assign(
        **{column: value for column, value in unsaid.items() if column not in table}
    )
    table.attrs = {}
    missing = [
        column for column, what in columns.items() if column not in table and not what.optional
    ]
    unknown = [str(column) for column in table.columns if column not in columns]
    if missing or unknown:
        parts = [
            f"{kind} {', '.join(names)}"
            for kind, names in {"missing": missing, "unknown": unknown}.items()
            if names
        ]
        hint = (
            f" From a file, `load_{name}` fills in what has one evident value (the book's page"
            " *Files that you have*)."
            if name in LOADED
            else ""
        )
        raise TableError(
            f"{name}: {'; '.join(parts)}. A table of {name} has the columns"
            f" {', '.join(columns)}.{hint}"
        )
    # messages name rows by their labels
    rows = table if table.index.is_unique else table.reset_index(drop=True)
    present = [column for column in columns if column in rows]
    typed = pd.DataFrame(
        {column: _typed(name, column, columns[column], rows[column]) for column in present}
    )
    _check_values(name, typed)
    if not numbered:
        _check_keys(name, typed)
    _check_sense(name, typed)
    typed = typed.reset_index(drop=True)
    typed.attrs = attributes
    return typed


def need_columns(
    table: pd.DataFrame, columns: Sequence[str], error: type[ValueError] = TableError
) -> None:
    """Raise `error`, naming the columns that are missing and those that are there."""
    missing = [column for column in columns if column not in table]
    if missing:
        raise error(
            f"The table has no column {', '.join(missing)}. It has"
            f" {', '.join(map(str, table.columns))}."
        )


def empty_table(name: str) -> pd.DataFrame:
    return _empty(name).copy()


@cache
def _empty(name: str) -> pd.DataFrame:
    return check_table(name, pd.DataFrame({column: [] for column in needed_columns(name)}))


def needed_columns(name: str) -> list[str]:
    """List the columns of a table that are not optional."""
    return [column for column, what in table_columns(name).items() if not what.optional]


def table_columns(name: str) -> dict[str, Column]:
    """Return the columns of a table, or list the known tables in an error."""
    if name not in TABLES:
        raise TableError(f"There is no table called {name!r}. The tables are {', '.join(TABLES)}.")
    return TABLES[name]


def _typed(name: str, column: str, what: Column, values: pd.Series) -> pd.Series:
    """Convert a column to its type."""
    if what.kind == "list":
        return _lists(values)
    count = "Int64" if what.nullable else "int64"
    kinds: dict[str, Any] = {"text": "str", "truth": "bool", "number": "float64", "count": count}
    if values.dtype == kinds[what.kind]:
        return values
    if what.kind == "text" and values.isna().all():
        return pd.Series(np.nan, index=values.index, dtype="str", name=values.name)
    if what.kind == "text":  # numbers would silently become text
        other = [not isinstance(cell, str) for cell in values]
        numbers, wrong = values, values.notna() & np.array(other, bool)
    elif what.kind == "truth":
        numbers, wrong = values, ~values.isin([True, False])
    else:
        numbers = pd.to_numeric(values, errors="coerce")
        wrong = numbers.isna() & values.notna()
        if what.kind == "count":
            wrong |= (numbers.notna() & (numbers % 1 != 0)) | (numbers.isna() & (not what.nullable))
    refuse_rows(name, column, wrong, values, what.expected())
    typed: pd.Series = numbers.astype(kinds[what.kind])
    return typed


def _lists(values: pd.Series) -> pd.Series:
    """Turn arrays that Parquet gives back into plain lists."""
    if set(map(type, values.to_numpy())) == {list}:
        return values

    def plain(cell: Any) -> Any:
        # twice as fast as list(cell), and MentalAlign has 350,000 of them
        if hasattr(cell, "tolist"):
            return cell.tolist()
        return list(cell) if isinstance(cell, Collection) and not isinstance(cell, str) else cell

    return pd.Series([plain(cell) for cell in values], index=values.index, dtype=object)


def _check_values(name: str, table: pd.DataFrame) -> None:
    """Refuse the first column with a cell that is empty, unknown or out of range."""
    for column, values in table.items():
        # what is asked of it costs less than the same of a column
        what, cells = TABLES[name][str(column)], values.array
        empty = np.asarray(cells.isna())
        wrong = np.zeros(len(table), bool) if what.nullable else empty
        if what.kind == "list" and set(map(type, values.to_numpy())) == {list}:
            continue
        if what.kind == "list":
            wrong = wrong | ~empty & np.array([not isinstance(cell, list) for cell in values], bool)
        elif what.words:  # no mask for each column, since words that do not fit are rare
            strange = {word for word in values.unique() if word == word} - set(what.words)
            wrong = wrong | cells.isin(list(strange)) if strange else wrong
        elif what.kind == "text" and not what.nullable:
            wrong = wrong | np.asarray(cells == "", bool)
        elif what.low is not None or what.high is not None:
            numbers = cells.to_numpy(float, na_value=np.nan)
            low, high = (
                (-np.inf if what.low is None else what.low),
                (np.inf if what.high is None else what.high),
            )
            wrong = wrong | (numbers < low) | (numbers > high)
        refuse_rows(name, str(column), wrong, values, what.expected())


REPEATED = {
    "verdicts": " An answer that was given again has its number in the column repeat (of a file:"
    " repeats='number'); games that have nothing to do with each other need a history_id each"
    " (always={'history_id': 'row-{row}'}); a copy goes out (repeats='drop'); a column that says"
    " which reply was shown first is the order.",
    "scores": " Of a reply that was scored again keep one score, or the mean; replies that were"
    " written anew need a reply_id each (always={'reply_id': '{history_id}-{responder}-{row}'}).",
}
"""Table -> what to do about rows that come again."""


def repeats(table: pd.DataFrame, keys: Sequence[str]) -> NDArray[np.bool_]:
    """Find the rows that hold in some columns what another row holds there."""
    # a column in which all rows hold the same says nothing, and a look costs less than its codes
    telling = [key for key in keys if not _constant(table[key])]
    if not telling:
        return np.full(len(table), len(table) > 1)
    if table[telling[0]].is_unique:
        return np.zeros(len(table), bool)
    return table.duplicated(telling, keep=False).to_numpy()


def _constant(cells: pd.Series) -> bool:
    empty = cells.isna()
    if cells.empty or empty.iloc[0] or empty.iloc[-1]:
        return bool(empty.all())
    return bool(cells.iloc[0] == cells.iloc[-1] and cells.eq(cells.iloc[0]).all())


def _check_keys(name: str, table: pd.DataFrame) -> None:
    keys = KEYS[name]
    twice = repeats(table, keys)
    if twice.any():
        rows = table.loc[twice, keys].head(MAX_ROWS_SHOWN)
        examples = "; ".join(
            f"{called(row)}: {show_row(values)}" for row, values in rows.iterrows()
        )
        raise TableError(
            f"{name}: {int(twice.sum())} rows repeat another row's {', '.join(keys)}; expected each"
            f" to appear once. {examples}.{REPEATED.get(name, '')}",
            table.index[twice],
        )


def _check_sense(name: str, table: pd.DataFrame) -> None:

    def refuse(column: str, wrong: pd.Series, shown_column: str, expected: str) -> None:
        refuse_rows(name, column, wrong, table[shown_column], expected)

    if name in ("comparisons", "verdicts"):
        same = table["responder_a"] == table["responder_b"]
        refuse(
            "responder_b",
            same,
            "responder_b",
            "a responder other than responder_a (nobody is compared with itself)",
        )
    if name == "verdicts":
        has_verdict = table["verdict"].notna() | table["p_a"].notna()
        refuse(
            "verdict",
            (table["state"] == "valid") & ~has_verdict,
            "state",
            "a verdict where the state is valid",
        )
        if table["p_a"].notna().any():
            share = table["verdict"].map({"a": 1.0, "b": 0.0}).astype(float)
            against = (share - 0.5) * (table["p_a"].astype(float) - 0.5) < 0
            refuse(
                "p_a",
                against,
                "p_a",
                "the chance that a is better, which does not contradict the verdict",
            )
        failed = table["state"].isin(["abstained", "refused", "unparsed", "error"])
        refuse("verdict", failed & has_verdict, "state", "no verdict where the state is a failure")
    if answer := {"scores": "score", "replies": "text"}.get(name):
        refuse(
            answer,
            (table["state"] == "valid") & table[answer].isna(),
            "state",
            f"a {answer} where the state is valid",
        )
    if name == "histories":
        _check_turns(name, table, "history_id")
    if name == "conversations":
        _check_turns(name, table, "conversation_id")
        _check_ends(table)
    if name == "effects":
        counts = table[["n_people_replies", "n_model_replies", "n_raters", "n_clusters"]]
        refuse("n_raters", counts.isna().all(axis=1), "study", "at least one of the counts")
        bare = (table["evidence"] == "measured") & table[
            ["ci_low", "ci_high", "n_clusters", "cluster"]
        ].isna().any(axis=1)
        refuse("ci_low", bare, "study", "an interval and its clusters where measured")
        outside = (table["ci_low"] > table["win_share"]) | (table["ci_high"] < table["win_share"])
        refuse("win_share", outside, "win_share", "a share within its interval")


def _check_turns(name: str, table: pd.DataFrame, key: str) -> None:
    def fault(turns: list[dict[str, object]]) -> str | None:
        if not turns:  # of a conversation that ended before it began
            return "no turn" if name == "histories" else None
        for number, turn in enumerate(turns):
            if not isinstance(turn, dict) or not {"speaker", "text"} <= set(turn):
                return f"turn {number} is not a speaker and a text"
            if turn["speaker"] not in SPEAKERS:
                word = (
                    show_cell("speaker", turn["speaker"])
                    if len(str(turn["speaker"]).split()) == 1
                    else "somebody else"
                )
                return f"turn {number} is spoken by {word}"
            if not isinstance(turn["text"], str) or not turn["text"].strip():
                return f"turn {number} has no text"
        return None

    faults = table["turns"].map(fault).astype(object)
    expected = "one turn or more, each with a speaker (seeker or supporter) and a text"
    refuse_rows(
        name,
        "turns",
        faults.notna(),
        faults.astype("str") + f" ({key.removesuffix('_id')} " + table[key] + ")",
        expected,
    )


ENDS = {
    "length": "valid",
    "seeker_ended": "valid",
    "left": "abstained",
    "ended_at_once": "abstained",
    "wrong_role": "unparsed",
    "repeated": "unparsed",
    "refused": "refused",
    "empty": "error",
    "too_long": "error",
    "error": "error",
}
"""Why a conversation stops -> its state; one that is not valid is kept, and never judged."""


def count_exchanges(turns: Sequence[Mapping[str, Any]]) -> int:
    """Count the supporter's turns that the seeker answered."""
    speakers = [turn["speaker"] for turn in turns]
    return sum(pair == ("supporter", "seeker") for pair in pairwise(speakers))


def _check_ends(conversations: pd.DataFrame) -> None:
    """Refuse conversations that lost turns or contradict how they ended."""

    def refuse(column: str, wrong: pd.Series, shown_cells: pd.Series, expected: str) -> None:
        refuse_rows("conversations", column, wrong, shown_cells, expected)

    table, reason = conversations, conversations["stop_reason"]
    n = table["turns"].map(count_exchanges).astype("int64")
    refuse(
        "n_exchanges",
        n != table["n_exchanges"],
        (table["n_exchanges"].astype(str) + " and turns with " + n.astype(str)).rename("exchanges"),
        "as many as its turns hold; a conversation that came in half is not judged",
    )
    valid = table["state"] == "valid"
    refuse("turns", valid & (n == 0), table["state"], "an exchange where the state is valid")
    means = reason.map(ENDS)
    refuse(
        "state",
        means.notna() & (table["state"] != means),
        (reason.astype(str) + " and " + table["state"]).rename("stop_reason"),
        "the state that its end means: "
        + ", ".join(f"{end} {state}" for end, state in ENDS.items()),
    )
    named = table["stopped_by"].notna()
    refuse("stopped_by", named & (reason.isna() | (reason == "length")), reason,
           "nobody where no turn was the reason")  # fmt: skip
    size, known = table["turns"].map(len), table["call_ids"].map(len)
    refuse(
        "call_ids",
        ~(known.eq(0) | known.eq(size) | known.eq(size + 1)),
        table["call_ids"].map(len),
        "a call a turn, and the one that failed if one did; or none at all",
    )
    if "turn_ms" in table:
        timed = [len(ms) if isinstance(ms, list) else None for ms in table["turn_ms"]]
        lost = [n is not None and n != whole for n, whole in zip(timed, size, strict=True)]
        refuse("turn_ms", pd.Series(lost, table.index), pd.Series(timed, table.index, name="times"),
               "a time a turn, or none at all")  # fmt: skip


def refuse_rows(
    name: str, column: str, wrong: pd.Series | NDArray[np.bool_], values: pd.Series, expected: str
) -> None:
    """Raise if any row is wrong, showing the first of them."""
    if not wrong.any():
        return
    bad = values[wrong]
    examples = ", ".join(
        f"{called(row)} has {show_cell(str(values.name), value)}"
        for row, value in bad.head(MAX_ROWS_SHOWN).items()
    )
    more = f" ({len(bad) - MAX_ROWS_SHOWN} more rows)" if len(bad) > MAX_ROWS_SHOWN else ""
    raise TableError(f"{name}.{column}: expected {expected}; {examples}{more}.", bad.index)


def called(row: object) -> str:
    """Name a row by its number, or as its file's reader has."""
    return row if isinstance(row, str) else f"row {row}"
