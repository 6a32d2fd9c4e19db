"""A user's own CSV, Excel, Parquet or JSON Lines file, checked like any other table; all that is wrong with it is said at once.

What a file may leave out has one evident value; a verdict, a score, who judged and what kind of rater it was are never made up.
"""

from __future__ import annotations

import codecs
import csv
import io
import itertools
import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

import pandas as pd

from heart_utils.identities import (
    PEOPLE,
    describe_cells,
    may_be_verdict,
    names_people,
    redact_message,
    show_answer,
)
from heart_utils.runs import RunError, code_people_in, find_root
from heart_utils.sources.catalogue import DataError
from heart_utils.tables import TABLES, VERDICTS, Column, TableError, called, check_table, empty_table, refuse_rows

__all__ = ["DEFAULTS"]

TEXTUAL = (".csv", ".tsv", ".xlsx")
SUFFIXES = (*TEXTUAL, ".parquet", ".jsonl")

NEEDED = {
    "histories": ("history_id", "turns"),
    "verdicts": ("history_id", "responder_a", "responder_b", "rater", "rater_kind", "verdict"),
    "scores": ("history_id", "responder", "rater", "rater_kind", "dimension", "score"),
    "replies": ("history_id", "responder", "text"),
    "responders": ("responder", "responder_kind"),
}
"""Table -> the columns that a file must have."""

ANSWERS = {"verdicts": "verdict", "scores": "score", "replies": "text"}
"""Table -> the column that is empty in a row that failed."""

FAILURES = ("abstained", "refused", "unparsed", "error")

EVIDENT = {"flags": [], "simulated": False, "slice": "standard", "dimension": "overall", "repeat": 0}
EVIDENT |= {"protocol": "imported", "licence": "none stated"}
"""Column -> its value where nothing is said; columns that may be empty are."""

MARKS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
"""How a file may begin -> its encoding."""


def _evident(table: str) -> dict[str, Any]:
    needed = NEEDED.get(table, ())
    columns = {column: what for column, what in TABLES[table].items() if column not in needed and not what.optional}
    return {column: EVIDENT.get(column) for column, what in columns.items() if what.nullable or column in EVIDENT}


DEFAULTS: dict[str, dict[str, Any]] = {table: _evident(table) for table in NEEDED}
"""Table -> column -> the value it has in every row of a file that does not have the column.

Beyond these, ids are made of the names that a file has (a is then the first of two responders in the alphabet), and ``state``
is ``valid`` if every row has an answer; else the file must say why. A licence that is not stated is the strictest.
"""


class FileOptions(TypedDict, total=False):
    """How a file of one's own is to be read; `load_verdicts` says what each of these means."""

    columns: Mapping[str, str | None]
    words: Mapping[Any, Any]
    always: Mapping[str, Any]
    rater_columns: Sequence[str]
    sep: str | None
    encoding: str | None
    keep_ids: bool | None


def read_file(table: str, given: str | os.PathLike[str] | pd.DataFrame, reading: FileOptions | None = None) -> pd.DataFrame:
    """Read a user's file, or take their DataFrame, as one of the project's tables; say all its faults at once."""
    how, faults = reading or FileOptions(), list[str]()
    examples = {"columns": "{'Urteil': 'verdict'}", "words": "{'links': 'a'}", "always": "{'rater_kind': 'human'}"}
    for option, example in examples.items():
        if not isinstance(value := how.get(option) or {}, Mapping):
            raise DataError(f"{option} is a {type(value).__name__}, expected a mapping, as in {option}={example}.")
    file = Path("the DataFrame") if isinstance(given, pd.DataFrame) else Path(given).expanduser().resolve()
    rows = given.copy() if isinstance(given, pd.DataFrame) else _read(file, how, faults)
    for column in [name for name, kind in rows.dtypes.items() if kind == "object"] if isinstance(given, pd.DataFrame) else ():
        whole = rows[column].map(is_whole_text)
        if not whole.all():
            raise DataError(f"{file}: {column}, {called(rows.index[~whole][0])}: {HALF}")
    as_text = file.suffix.lower() in TEXTUAL
    try:
        if as_text:  # without what a spreadsheet shows as nothing: rows without a cell, columns without a header or a cell
            blank, named = rows.isna() | (rows == ""), ~rows.columns.astype(str).str.startswith("Unnamed: ")
            rows = rows.loc[~blank.all(axis=1), named | ~blank.all(axis=0).to_numpy()]
        if rows.empty:
            raise DataError("it has no rows.")
        rows = rows if rows.index.is_unique else rows.reset_index(drop=True)
        long = _one_row_a_rater(table, rows, how)
        rows = _name_columns(table, long, how, faults)
        left = rows.drop(index=_read_cells(table, rows, as_text, how, faults))
        if table == "histories" and "source" not in rows:
            left["source"] = file.stem
        checked = _checked(table, left, faults)
        checked.attrs |= long.attrs
    except (TableError, DataError) as error:
        faults.append(str(error))
    if len(faults) > 1:
        listed = "".join(f"\n{number}. {fault}" for number, fault in enumerate(faults, start=1))
        raise DataError(redact_message(f"{file}: {len(faults)} faults (row 0 is the first).{listed}"))
    if faults:
        raise DataError(redact_message(f"{file}: {faults[0]}"))
    return _with_codes(table, checked, how)


def _with_codes(table: str, rows: pd.DataFrame, how: FileOptions) -> pd.DataFrame:
    """Give raters and writers codes where they look like people, or a header says that they are; all or none on request."""
    if how.get("keep_ids"):
        return rows
    by_header = {name for head, name in (how.get("columns") or {}).items() if name in PEOPLE and names_people(head)}
    try:
        return code_people_in(table, rows, every=PEOPLE if how.get("keep_ids") is False else by_header, texts=True)
    except RunError as error:
        raise DataError(str(error)) from None


def read_sample(table: str) -> pd.DataFrame:
    """Read a table of the sample that was written for this project and comes with it."""
    return read_file(table, find_root() / "data" / "sample" / f"{table}.jsonl")


def _read(file: Path, how: FileOptions, faults: list[str]) -> pd.DataFrame:
    suffix = file.suffix.lower()
    if suffix not in SUFFIXES:
        raise DataError(f"{file}: expected a file that ends in {', '.join(SUFFIXES)}.")
    if not file.is_file():
        raise DataError(f"{file}: there is no such file.")
    if suffix == ".jsonl":
        return pd.DataFrame([row for _, row in read_lines(file, how.get("encoding"), faults)])
    if suffix in (".csv", ".tsv"):
        return _read_csv(file, _text(file, how.get("encoding"), faults), how.get("sep"))
    try:
        if suffix == ".parquet":
            return pd.read_parquet(file)
        sheets = pd.read_excel(file, sheet_name=None, dtype=str, keep_default_na=False, engine="calamine")
    except Exception as error:  # neither pyarrow nor calamine has a common class for a damaged file
        kind = "Parquet" if suffix == ".parquet" else "Excel"
        raise DataError(f"{file}: it cannot be read as {kind} ({error}). It may have been cut short.") from None
    filled = {name: rows for name, rows in sheets.items() if not rows.empty}
    if len(filled) > 1:
        said = f"{file}: it has {len(filled)} sheets with rows ({', '.join(filled)}). Give one of them as a DataFrame"
        raise DataError(f"{said}, as pd.read_excel(path, sheet_name={next(iter(filled))!r}, dtype=str) reads it.")
    return next(iter(filled.values()), pd.DataFrame())


HALF = "a text holds half of a character (\\ud83d without its other half). Write it anew from where it came, or mend that text."


def is_whole_text(cell: object) -> bool:
    """Tell whether no text in a cell holds half of a character, which no file of a table can keep."""
    try:
        json.dumps(cell, ensure_ascii=False, default=str).encode()
    except UnicodeEncodeError:
        return False
    return True


def read_lines(file: Path, encoding: str | None = None, faults: list[str] | None = None) -> list[tuple[int, dict[str, Any]]]:
    """Read the objects of a file of JSON Lines with the numbers of their lines."""
    rows = []
    text = _text(file, encoding, faults)
    for number, line in enumerate(text.split("\n"), start=1):  # not splitlines: a text may hold another break
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise DataError(f"{file}: line {number} is not JSON ({error.msg}, column {error.colno}).") from None
        if not isinstance(row, dict):
            raise DataError(f"{file}: line {number} holds a {type(row).__name__}, expected an object.")
        if halves := [name for name, cell in row.items() if not is_whole_text((name, cell))]:
            raise DataError(f"{file}: line {number}, {halves[0]}: {HALF}")
        rows.append((number, row))
    return rows


def _text(file: Path, encoding: str | None = None, faults: list[str] | None = None) -> str:
    """Decode a file; one in another encoding is a fault, and is read as what it may be, so that more can be said of it."""
    if not file.is_file():
        raise DataError(f"{file}: there is no such file.")
    content = file.read_bytes()
    if not content.strip():
        raise DataError(f"{file}: it is empty.")
    named = encoding or next((name for mark, name in MARKS.items() if content.startswith(mark)), "utf-8")
    try:
        return content.decode(named)
    except LookupError:
        raise DataError(f"{file}: there is no encoding {named!r}. Excel on Windows writes 'utf-8-sig' or 'cp1252'.") from None
    except UnicodeDecodeError as error:
        guess, line = content.decode("cp1252", errors="replace"), content[: error.start].count(b"\n")
        byte = content[error.start : error.start + 1]
        said = (
            f"line {line + 1} is not {named.upper()} (byte {byte[0]:#04x}). Save the file as UTF-8, or name its "
            f"encoding: with encoding='cp1252' this byte is {byte.decode('cp1252', errors='replace')!r}."
        )
        if faults is None:
            raise DataError(f"{file}: {said}") from None
        faults.append(said)
        return guess


def _read_csv(file: Path, content: str, sep: str | None) -> pd.DataFrame:
    if sep and len(sep) > 1:
        raise DataError(f"sep is {sep!r}, expected one character, such as ';' or a tab.")
    marks = [sep] if sep else [",", ";", "\t", "|"]
    if "\n" not in content:  # as programs wrote lines on the first Macintosh, and Excel still can
        content = content.replace("\r", "\n")
    try:
        mark = max(marks, key=lambda mark: len(next(csv.reader(io.StringIO(content), delimiter=mark))))
        rows = pd.read_csv(io.StringIO(content), sep=mark, dtype=str, keep_default_na=False)
    except (csv.Error, pd.errors.ParserError, pd.errors.EmptyDataError) as error:
        raise DataError(f"{file}: it cannot be read as CSV ({error}).") from None
    if not isinstance(rows.index, pd.RangeIndex):
        raise DataError(f"{file}: its rows have more cells than its header, which is {', '.join(map(str, rows.columns))}.")
    for name in rows.columns if mark == ";" else ():  # where a comma is what elsewhere is a point
        if rows[name].str.fullmatch(r"\s*(-?\d+(,\d+)?)?\s*").all():
            rows[name] = rows[name].str.replace(",", ".")
    return rows


def _one_row_a_rater(table: str, rows: pd.DataFrame, how: FileOptions) -> pd.DataFrame:
    """Turn a table with a column for each rater into one with a row for each of their answers."""
    if not (raters := how.get("rater_columns")):
        return rows
    heads = {_plain(head): head for head in rows.columns}
    if absent := [name for name in raters if _plain(name) not in heads]:
        raise DataError(f"rater_columns names {', '.join(absent)}; the columns are {', '.join(map(str, rows.columns))}.")
    chosen, answer = [heads[_plain(name)] for name in raters], ANSWERS[table]
    if taken := [head for head in rows.columns if head not in chosen and _plain(head) in (_plain("rater"), _plain(answer))]:
        raise DataError(f"With rater_columns the columns rater and {answer} are made from them, and it has {', '.join(taken)}.")
    rest = [head for head in rows.columns if head not in chosen]
    long = rows.melt(rest, chosen, "rater", answer, ignore_index=False)
    places = {head: f"rater column {place}" for place, head in enumerate(chosen, start=1)}  # it may be a person's name
    long.index = pd.Index([f"{called(row)} ({places[who]})" for row, who in zip(long.index, long["rater"], strict=True)])
    blank = long[answer].map(_word) == "" if "" not in map(_word, how.get("words") or {}) else pd.Series(False, long.index)
    kept = long[~blank].copy()
    kept.attrs = {**rows.attrs, "notes": {"blank cells, taken as not asked": int(blank.sum())}}
    return kept


def _name_columns(table: str, rows: pd.DataFrame, how: FileOptions, faults: list[str]) -> pd.DataFrame:
    """Give columns the names of the table: what the user says, or their own without case, blanks and hyphens."""
    given, always, expected = how.get("columns") or {}, how.get("always") or {}, TABLES[table]
    meant = {_plain(column): column for column in expected} | {_plain(head): name for head, name in given.items()}
    heads, listed = [_plain(head) for head in rows.columns], ", ".join(map(str, rows.columns))
    if strange := [str(name) for name in (*given.values(), *always) if name is not None and name not in expected]:
        faults.append(f"{table} has no column {', '.join(strange)}. A table of {table} has the columns {', '.join(expected)}.")
    if absent := [str(head) for head in given if _plain(head) not in heads]:
        faults.append(f"columns names {', '.join(absent)}, and its columns are {listed}.")
    names = [meant.get(plain, str(head)) for plain, head in zip(heads, rows.columns, strict=True)]
    rows = rows.set_axis(names, axis=1).loc[:, [name is not None for name in names]].copy()
    if (again := rows.columns.duplicated()).any():
        twice = ", ".join(dict.fromkeys(rows.columns[again]))
        faults.append(
            f"{table}: several columns are {twice}, and its columns are {listed}. Leave one, as in columns={{'X': None}}."
        )
        rows = rows.loc[:, ~again]
    lacking = [column for column in NEEDED[table] if column not in rows and column not in always]
    if unknown := [name for name in rows.columns if name not in expected]:
        listed_words = ", ".join(name + _few_words(name, rows[name]) for name in unknown)
        meant_as = f"as in columns={{{unknown[0]!r}: {lacking[0]!r}}}, " if lacking else ""
        faults.append(
            f"{table}: unknown {listed_words}. Say what it is, {meant_as}or leave it out: columns={{{unknown[0]!r}: None}}."
        )
        if {"rater", ANSWERS.get(table)} <= {*lacking} <= {"rater", "rater_kind", ANSWERS.get(table)}:
            faults[-1] += f" If each is a rater: rater_columns={unknown}."
        rows = rows.drop(columns=unknown)
    if both := [column for column in always if column in rows]:
        faults.append(f"{table}: always names {', '.join(both)}, which is a column of its own. Leave it out of one of them.")
    rows = rows.assign(**{column: value for column, value in always.items() if column not in rows})
    if missing := [column for column in NEEDED[table] if column not in rows]:
        faults.append(
            f"{table}: missing {', '.join(missing)}. A file of {table} must have {', '.join(NEEDED[table])}; its columns are "
            f"{listed}. Say which is which, as in columns={{'Votes': {missing[-1]!r}}}, or what every row has, as in "
            f"always={{'rater_kind': 'human'}}; data/README.md says what may be left out."
        )
        for column in missing:  # so that the rest can be looked at
            rows[column] = _anything(column, expected[column], len(rows))
    return rows


def _few_words(head: str, cells: pd.Series) -> str:
    """Show the words of a column that may be the answers, which `words` must translate; of any other what kind it holds."""
    words = list(dict.fromkeys(str(word) for word in cells.dropna() if str(word).strip()))
    return f" ({' | '.join(words) if may_be_verdict(head, words) else describe_cells(words)})"


def _anything(column: str, what: Column, n: int) -> list[Any]:
    if what.kind == "list":
        return [[{"speaker": "seeker", "text": "?"}] for _ in range(n)]
    return [what.words[0] if what.words else 1 if what.kind == "number" else f"{column} {row}" for row in range(n)]


def _plain(head: object) -> str:
    return re.sub(r"[\s_-]", "", str(head)).casefold()


def _word(cell: object) -> str:
    return "" if cell is None or cell != cell else (f"{cell:g}" if isinstance(cell, float) else str(cell)).strip().casefold()


def _read_cells(table: str, rows: pd.DataFrame, as_text: bool, how: FileOptions, faults: list[str]) -> list[Any]:
    """Read words and cells of text as what they mean, in place; give the labels of rows where that cannot be done."""
    bad: list[Any] = []
    for column, what in TABLES[table].items() if as_text else ():
        if column in rows:
            rows[column], wrong = _from_text(column, what, rows[column])
            faults += [f"{table}.{column}: {said}" for said in wrong.values()][:1]
            bad += list(wrong)
    _translate(table, rows, how.get("words") or {})
    if table == "verdicts":
        strange = rows.loc[rows["verdict"].notna() & ~rows["verdict"].isin(VERDICTS), "verdict"].map(str)
        bad += list(strange.index)
        if counted := {word: found.index for word, found in strange.groupby(strange, sort=False)}:
            head = next((head for head, name in (how.get("columns") or {}).items() if name == "verdict"), "verdict")
            shown = [(show_answer(head, word), found) for word, found in itertools.islice(counted.items(), 10)]
            said = ", ".join(f"{called(found[0])} says {word} ({len(found)} in all)" for word, found in shown)
            example = next((word for word, _ in shown if word[0] in "'\""), "'X'")
            faults.append(
                f"verdicts.verdict: {said}; expected a, b or tie. No other word is taken for a tie: say what "
                f"each means, as in words={{{example}: 'a'}}, where {', '.join(FAILURES)} are failures."
            )
    if (answer := ANSWERS.get(table)) and "state" not in rows and rows[answer].isna().any():
        empty = rows.index[rows[answer].isna()]
        bad += list(empty)
        faults.append(
            f"{answer}: {called(empty[0])} is empty ({len(empty)} in all). Say why in a column state, or for all of them by "
            f"words={{'': 'abstained'}}: {', '.join(FAILURES)}; a failure is never taken for an answer."
        )
    return bad


def _from_text(column: str, what: Column, cells: pd.Series) -> tuple[pd.Series, dict[Any, str]]:
    """Read a column of CSV or Excel, in which all is text; give it with what is wrong, by row."""
    cells, wrong = cells.astype(object), dict[Any, str]()
    if what.words or not what.nullable:
        cells = cells.map(lambda cell: cell.strip() if isinstance(cell, str) else cell)
    cells = cells.mask(cells == "", None)
    if what.kind == "truth":
        truth = cells.map(lambda cell: {"true": True, "false": False}.get(str(cell).lower(), cell))
        return truth, {}
    if what.kind == "list":
        read: list[Any] = []
        for row, cell in cells.items():
            try:
                read.append(json.loads(cell) if isinstance(cell, str) else [] if column == "flags" else None)
            except json.JSONDecodeError as error:
                wrong[row] = f"row {row}: expected a list as JSON, {error}."
                read.append(None)
        return pd.Series(read, cells.index, dtype=object), wrong
    return cells, {}


def _translate(table: str, rows: pd.DataFrame, words: Mapping[Any, Any]) -> None:
    """Put the table's words in the place of the user's, for the answer or for a column that is named."""
    answer = ANSWERS.get(table, "")
    flat = {word: meaning for word, meaning in words.items() if not isinstance(meaning, Mapping)}
    for column, said in {answer: flat, **{name: said for name, said in words.items() if isinstance(said, Mapping)}}.items():
        if column not in rows:
            if said:
                raise DataError(f"words speaks of the column {column or 'of answers'}, which {table} does not have here.")
            continue
        meant = {_word(word): meaning for word, meaning in said.items()}
        cells = rows[column].map(_word)
        known = cells.isin(list(meant))
        failed = cells.map(meant).isin(FAILURES) & (column == answer)
        rows[column] = rows[column].astype(object).mask(known, cells.map(meant)).mask(failed, None)
        if failed.any():
            state = rows["state"] if "state" in rows else pd.Series("valid", rows.index)
            rows["state"] = state.astype(object).mask(failed, cells.map(meant))


def _checked(table: str, rows: pd.DataFrame, faults: list[str]) -> pd.DataFrame:
    """Check what is left, without rows that are at fault again and again until no fault is found."""
    texts = {column: what for column in NEEDED[table] if (what := TABLES[table][column]).kind == "text" and not what.words}
    while len(rows):
        try:
            for column, what in texts.items():  # names of pairs and replies are made from these
                wrong = rows[column].map(lambda cell: not isinstance(cell, str)) & (rows[column].notna() | (not what.nullable))
                refuse_rows(table, column, wrong.astype(bool), rows[column], what.expected())
            checked = check_table(table, complete(table, rows))
            if table == "histories":
                check_last_speaker(checked)
            return checked
        except TableError as fault:
            if not fault.rows:
                raise
            faults.append(str(fault))
            rows = rows.drop(index=fault.rows)
    return empty_table(table)


def complete(table: str, rows: pd.DataFrame) -> pd.DataFrame:
    """Fill in what a file, or the reader of a published study, may leave out."""
    rows = rows.copy() if rows.index.is_unique else rows.reset_index(drop=True)
    for column, value in _evident(table).items():
        if column not in rows:
            rows[column] = [[] for _ in range(len(rows))] if value == [] else value
    if "dialogue_id" in TABLES[table] and "dialogue_id" not in rows:
        rows["dialogue_id"] = rows["history_id"]
    if table in ("scores", "replies") and "reply_id" not in rows:
        rows["reply_id"] = rows["history_id"] + "--" + rows["responder"]
    if table == "verdicts":
        _name_pairs(rows)
    if table in ANSWERS and "state" not in rows:  # a valid answer that is empty is refused by the table's own check
        rows["state"] = "valid"
    return rows


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


def check_last_speaker(histories: pd.DataFrame, error: type[ValueError] = DataError) -> None:
    """Refuse histories in which the supporter has spoken last, unless they are flagged: nobody can answer for the supporter."""
    last = histories[histories["turns"].map(lambda turns: turns[-1]["speaker"] == "supporter").astype(bool)]
    names = [name for name, flags in zip(last["history_id"], last["flags"], strict=True) if "ends_with_supporter" not in flags]
    if names:
        raise error(
            f"histories.turns: {len(names)} histories end with the supporter ({', '.join(names[:3])}), so that nobody can "
            f"answer. Cut each after a turn of the seeker, or flag it ends_with_supporter: it then gets no reply."
        )
