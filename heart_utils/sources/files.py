"""A user's own CSV, Parquet or JSON Lines file, checked like any other table and with the same words.

What a file may leave out is what has one evident value; :data:`DEFAULTS` lists it. A verdict, a
score, who judged and what kind of rater it was are never made up.
"""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any

import pandas as pd

from heart_utils.runs import find_root
from heart_utils.sources.catalogue import DataError
from heart_utils.tables import TABLES, VERDICTS, TableError, check_table

__all__ = ["DEFAULTS"]

SUFFIXES = (".csv", ".parquet", ".jsonl")

NEEDED = {
    "histories": ("history_id", "turns"),
    "verdicts": ("history_id", "responder_a", "responder_b", "rater", "rater_kind", "verdict"),
    "scores": ("history_id", "responder", "rater", "rater_kind", "dimension", "score"),
}
"""Table -> the columns that a file must have."""

EVIDENT = {"flags": [], "simulated": False, "slice": "standard", "dimension": "overall", "repeat": 0}
EVIDENT |= {"protocol": "imported", "licence": "none stated"}
"""Column -> its value where nothing is said; columns that may be empty are."""


def _evident(table: str) -> dict[str, Any]:
    needed = NEEDED.get(table, ())
    columns = {column: what for column, what in TABLES[table].items() if column not in needed and not what.optional}
    return {column: EVIDENT.get(column) for column, what in columns.items() if what.nullable or column in EVIDENT}


DEFAULTS: dict[str, dict[str, Any]] = {table: _evident(table) for table in NEEDED}
"""Table -> column -> the value it has in every row of a file that does not have the column.

Beyond these: ``dialogue_id`` is the ``history_id`` (each history a dialogue of its own), ``source``
the name of the file, ``reply_id`` the history and the responder, ``pair_id`` the history and the two
responders in alphabetical order (rows are then turned so that a is the first of them), and
``comparison_id`` the ``pair_id`` with the order shown. ``state`` is ``valid`` if every row has a
verdict or score; where one is empty, the file must say why in a column ``state``. A licence that a
file does not state is ``none stated``, the strictest, so nothing is published by oversight.
"""


def read_file(table: str, given: str | os.PathLike[str] | pd.DataFrame) -> pd.DataFrame:
    """Read a user's file, or take their DataFrame, as one of the project's tables."""
    if isinstance(given, pd.DataFrame):
        file, rows = Path("the DataFrame"), given.copy()
    else:
        file = Path(given).expanduser().resolve()
        rows = _read(file, table)
    try:
        if rows.empty:
            raise DataError("it has no rows.")
        _check_needed(table, rows)
        if table == "verdicts":
            _check_words(rows)
        if table == "histories" and "source" not in rows:
            rows["source"] = file.stem
        checked = check_table(table, complete(table, rows))
        if table == "histories":
            _check_last_speaker(checked)
    except (TableError, DataError) as error:
        raise DataError(f"{file}: {error}") from None
    return checked


def read_sample(table: str) -> pd.DataFrame:
    """Read a table of the sample that was written for this project and comes with it."""
    file = find_root() / "data" / "sample" / f"{table}.jsonl"
    rows = _read(file, table)
    try:
        return check_table(table, rows)
    except TableError as error:
        raise DataError(f"{file}: {error}") from None


def _read(file: Path, table: str) -> pd.DataFrame:
    suffix = file.suffix.lower()
    if suffix not in SUFFIXES:
        raise DataError(f"{file}: expected a file that ends in {', '.join(SUFFIXES)}.")
    if suffix == ".jsonl":
        return pd.DataFrame([row for _, row in read_lines(file)])
    if suffix == ".csv":
        return _read_csv(file, _text(file), table)
    try:
        return pd.read_parquet(_there(file))
    except Exception as error:  # pyarrow has no common class for a damaged file
        raise DataError(f"{file}: it cannot be read as Parquet ({error}). It may have been cut short.") from None


def read_lines(file: Path) -> list[tuple[int, dict[str, Any]]]:
    """Read the objects of a file of JSON Lines with the numbers of their lines."""
    rows = []
    for number, line in enumerate(_text(file).split("\n"), start=1):  # not splitlines: a text may hold another break
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise DataError(f"{file}: line {number} is not JSON ({error.msg}, column {error.colno}).") from None
        if not isinstance(row, dict):
            raise DataError(f"{file}: line {number} holds a {type(row).__name__}, expected an object.")
        rows.append((number, row))
    return rows


def _there(file: Path) -> Path:
    if not file.is_file():
        raise DataError(f"{file}: there is no such file.")
    return file


def _text(file: Path) -> str:
    content = _there(file).read_bytes()
    if not content.strip():
        raise DataError(f"{file}: it is empty.")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise DataError(
            f"{file}: line {line} is not UTF-8 (byte {content[error.start]:#04x}). Save the file as UTF-8."
        ) from None


def _read_csv(file: Path, content: str, table: str) -> pd.DataFrame:
    header = content.partition("\n")[0].strip()
    if "," not in header and (";" in header or "\t" in header):
        raise DataError(f"{file}: its header is {header[:100]!r}. Is it separated by commas?")
    try:
        rows = pd.read_csv(io.StringIO(content), dtype=str, keep_default_na=False, na_values=[""])
    except (pd.errors.ParserError, pd.errors.EmptyDataError) as error:
        raise DataError(f"{file}: it cannot be read as CSV ({error}).") from None
    for column, what in TABLES[table].items():
        if column not in rows:
            continue
        if what.kind == "list":
            rows[column] = pd.Series([_cell(file, column, row, cell) for row, cell in enumerate(rows[column])], dtype=object)
        elif what.kind == "truth":
            truth = rows[column].astype(object).str.lower().map({"true": True, "false": False})
            rows[column] = truth.where(truth.notna(), rows[column].astype(object))
    return rows


def _cell(file: Path, column: str, row: int, cell: Any) -> Any:
    """Read a list that stands as JSON in a cell."""
    if pd.isna(cell):
        return [] if column == "flags" else None
    try:
        return json.loads(cell)
    except json.JSONDecodeError as error:
        raise DataError(f"{file}: row {row}, column {column}: expected a list as JSON, {error}.") from None


def _check_needed(table: str, rows: pd.DataFrame) -> None:
    missing = [column for column in NEEDED[table] if column not in rows]
    if missing:
        raise DataError(
            f"{table}: missing {', '.join(missing)}. A file of {table} must have {', '.join(NEEDED[table])}; "
            f"data/README.md says what it may leave out."
        )
    # Names of pairs and replies are made from these, so what they hold is checked before.
    for column in NEEDED[table]:
        if TABLES[table][column].kind == "text" and not TABLES[table][column].nullable:
            strange = ~rows[column].map(lambda cell: isinstance(cell, str)).astype(bool)
            if strange.any():
                row = int(strange.to_numpy().argmax())
                held = "nothing" if pd.isna(rows[column].iloc[row]) else str(rows[column].iloc[row])
                raise DataError(f"{table}.{column}: expected text, in every row; row {row} has {held}.")


def _check_words(rows: pd.DataFrame) -> None:
    """Say what can be done about another vocabulary, which the check of the table cannot know."""
    strange = rows["verdict"].notna() & ~rows["verdict"].isin(VERDICTS)
    if strange.any():
        row = int(strange.to_numpy().argmax())
        raise DataError(
            f"verdicts.verdict: row {row} says {rows['verdict'].iloc[row]!r} ({int(strange.sum())} rows like it); expected "
            f"a, b or tie, or an empty cell with a column state that says why (abstained, refused, unparsed, error). "
            f"No other word is taken for a tie."
        )


def complete(table: str, rows: pd.DataFrame) -> pd.DataFrame:
    """Fill in what a file, or the reader of a published study, may leave out."""
    rows = rows.reset_index(drop=True)
    for column, value in _evident(table).items():
        if column not in rows:
            rows[column] = [[] for _ in range(len(rows))] if value == [] else value
    if "dialogue_id" in TABLES[table] and "dialogue_id" not in rows:
        rows["dialogue_id"] = rows["history_id"]
    if table == "scores":
        if "reply_id" not in rows:
            rows["reply_id"] = rows["history_id"] + "--" + rows["responder"]
        _fill_state(rows, "score")
    if table == "verdicts":
        _name_pairs(rows)
        _fill_state(rows, "verdict")
    return rows


def _fill_state(rows: pd.DataFrame, answer: str) -> None:
    if "state" in rows:
        return
    empty = rows[answer].isna()
    if empty.any():
        row = int(empty.to_numpy().argmax())
        raise DataError(
            f"{answer}: row {row} is empty ({int(empty.sum())} rows are). Say why in a column state: abstained, refused, "
            f"unparsed or error; a failure is never taken for an answer."
        )
    rows["state"] = "valid"


def _name_pairs(rows: pd.DataFrame) -> None:
    """Name each pair by its history and responders, a before b in the alphabet, and turn rows to fit."""
    if "pair_id" not in rows:
        turned = rows["responder_a"] > rows["responder_b"]
        first, second = rows["responder_a"].copy(), rows["responder_b"].copy()
        rows["responder_a"], rows["responder_b"] = first.where(~turned, second), second.where(~turned, first)
        rows["verdict"] = rows["verdict"].where(~turned, rows["verdict"].map({"a": "b", "b": "a", "tie": "tie"}))
        rows["order"] = rows["order"].where(~turned, rows["order"].replace({"ab": "ba", "ba": "ab"}))
        p_a = pd.to_numeric(rows["p_a"], errors="coerce")
        rows["p_a"] = rows["p_a"].where(~turned | p_a.isna(), 1 - p_a)
        rows["pair_id"] = rows["history_id"] + "--" + rows["responder_a"] + "--" + rows["responder_b"]
    if "comparison_id" not in rows:
        order = rows["order"].astype(object).where(rows["order"].notna(), "")
        rows["comparison_id"] = (rows["pair_id"] + "--" + order).str.removesuffix("--")


def _check_last_speaker(histories: pd.DataFrame) -> None:
    ends = [
        turns[-1]["speaker"] == "supporter" and "ends_with_supporter" not in flags
        for turns, flags in zip(histories["turns"], histories["flags"], strict=True)
    ]
    if any(ends):
        names = histories.loc[ends, "history_id"].tolist()
        raise DataError(
            f"histories.turns: {len(names)} histories end with the supporter ({', '.join(names[:3])}), so that there is "
            f"nothing to answer. Cut each after a turn of the seeker, or flag it ends_with_supporter: it then gets no reply."
        )
