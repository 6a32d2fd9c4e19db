"""Tables of any format as rows of cells: CSV, Excel, Parquet, JSON, JSON Lines, Arrow.

Compressed files and a DataFrame are read too.

Nothing here knows what a column means. Rows keep the number that they have in their file, the first
below the header being 0.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
import os
import re
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from heart_utils.identities import show_cell
from heart_utils.settings import JsonObject
from heart_utils.sources.columns import ARROW_TEXT, TEXT
from heart_utils.sources.inspect_logs import is_log, read_log, unpack_log
from heart_utils.sources.unpacking import MAX_BYTES, Allowance, unpack_gzip, unpack_zstd
from heart_utils.sources.workbook import MAX_MEMORY, read_sheets
from heart_utils.tables import DataError, called

__all__ = ["RawTable"]

TEXTUAL = (".csv", ".tsv", ".xlsx")
SUFFIXES = (*TEXTUAL, ".parquet", ".jsonl", ".json", ".eval")
COMPRESSED = (".gz", ".zst")
MARKS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
"""How a file may begin -> its encoding."""

HALF = (
    "a text holds half of a character (\\ud83d without its other half). Write it anew from where it"
    " came, or mend that text."
)
DEEP = (
    "it is nested deeper than a hundred levels, which no file of votes is. Give the rows alone, as"
    " an array of objects."
)
IMPORT_ID = '{"ImportId"'  #: How each cell of Qualtrics' third row of headers begins.
TOP = 1_000_000  #: Characters of a file among which its header is.
MAX_CELLS = 50_000_000  #: A million votes with fifty columns.
MAX_LETTERS = 1_000_000  #: Characters of one cell: a book and a half.
#: Headers of Mechanical Turk's batch files that its rows end before.
NEVER_FILLED = ("Approve", "Reject")


@dataclass(frozen=True)
class RawTable:
    """Rows as they stand in a file, before anything is known of what they mean."""

    rows: pd.DataFrame
    as_text: bool = False  #: Whether every cell came as text, as in CSV and Excel.
    #: What was left out on the way -> how many rows.
    notes: dict[str, int] = field(default_factory=dict)
    #: Header -> what a form asked, where the file says so.
    questions: dict[str, str] = field(default_factory=dict)


def suffix_of(file: Path) -> str:
    """Return what a file's name ends in, without the ending of its compression."""
    inner = file.with_suffix("") if file.suffix.lower() in COMPRESSED else file
    return inner.suffix.lower()


def is_table(given: object) -> bool:
    """Check whether a value is a table in memory.

    Of pandas, Arrow, Polars, DuckDB or any that supports Arrow's interface.
    """
    return isinstance(given, pd.DataFrame) or hasattr(given, "__arrow_c_stream__")


def read_table(
    given: str | os.PathLike[str] | pd.DataFrame,
    *,
    sep: str | None = None,
    encoding: str | None = None,
    header: Sequence[str] | None = None,
    faults: list[str] | None = None,
) -> RawTable:
    """Read the rows of a file, or take those of a table in memory.

    Parameters
    ----------
    given : path, pandas.DataFrame, or a table of Arrow's interface
        A path ends in ``.csv``, ``.tsv``, ``.xlsx``, ``.parquet``, ``.jsonl``, ``.json`` or
        ``.eval`` (a log of inspect_ai), and ``.gz`` or ``.zst`` may follow.
    sep, encoding : str, optional
        Of CSV: by default the one of ``, ; |`` and tab that cuts the first line into most parts;
        UTF-8, or UTF-16 by its mark.
    header : sequence of str, optional
        The names of the columns of a CSV or Excel file that has none.
    faults : list of str, optional
        Takes what is wrong with the file where the rest can be read all the same.

    Returns
    -------
    RawTable

    Raises
    ------
    DataError : if the file cannot be read, naming the line where there is one

    Examples
    --------
    >>> from heart_utils.sources.formats import read_table
    >>> read_table(pd.DataFrame({"winner": ["x"], "loser": ["y"]})).rows["winner"].tolist()
    ['x']
    """
    if is_table(given):
        raw = RawTable(_without_categories(_in_memory(given)))
    else:
        raw = _read_path(Path(given).expanduser().resolve(), sep, encoding, header, faults)  # type: ignore[arg-type]
    for head in raw.rows.columns:
        cells = raw.rows[head]
        lengths = (
            cells.str.len()
            if cells.dtype == TEXT
            else cells.map(lambda cell: len(cell) if isinstance(cell, str) else 0)
        )
        if (long := lengths > MAX_LETTERS).any():
            raise DataError(
                f"{'the DataFrame' if is_table(given) else given}: {called(lengths.index[long][0])}"
                f" holds a text of {lengths[long].iloc[0]:,} characters in {head}, more than"
                f" {MAX_LETTERS:,}. Shorten it, or leave that column out of the file."
            )
    return raw


def _read_path(
    file: Path,
    sep: str | None,
    encoding: str | None,
    header: Sequence[str] | None,
    faults: list[str] | None,
) -> RawTable:
    suffix = suffix_of(file)
    if suffix not in SUFFIXES:
        raise DataError(
            f"{file}: expected a file that ends in {', '.join(SUFFIXES)}, or in one of these and"
            " .gz or .zst."
        )
    if not file.is_file():
        raise DataError(f"{file}: there is no such file.")
    if suffix == ".jsonl":
        return RawTable(_of_objects(file, [row for _, row in read_lines(file, encoding, faults)]))
    if suffix in (".json", ".eval"):
        content = _read_json(file, encoding, faults) if suffix == ".json" else _read_log(file)
        if is_log(content):
            objects, missing = read_log(content)
            return RawTable(_of_objects(file, objects), notes=missing)
        return RawTable(_of_objects(file, _objects_in(file, content)))
    if suffix == ".parquet":
        return RawTable(_without_categories(_read_parquet(file)))
    if suffix == ".xlsx":
        rows = _read_excel(file, header)
    else:
        rows = _read_csv(file, _text(file, encoding, faults), sep, header)
    rows = _without_blanks(rows)
    if header is None and len(rows):
        _refuse_no_header(file, rows)
    return _without_more_headers(rows)


def _without_blanks(rows: pd.DataFrame) -> pd.DataFrame:
    """Remove rows without a cell, and columns without a header or a cell."""
    blank = np.ones(len(rows), bool)
    for column in rows.columns:
        if not blank.any():
            break
        blank &= (rows[column].isna() | (rows[column] == "")).to_numpy(bool)
    rows = rows[~blank] if blank.any() else rows
    nameless = [name for name in rows.columns if str(name).startswith("Unnamed: ")]
    return rows.drop(
        columns=[name for name in nameless if (rows[name].isna() | (rows[name] == "")).all()]
    )


def _without_categories(rows: pd.DataFrame) -> pd.DataFrame:
    """Replace categories of pandas or Parquet by the values that they stand for."""
    kinds = {
        name: kind.categories.dtype
        for name, kind in rows.dtypes.items()
        if isinstance(kind, pd.CategoricalDtype)
    }
    return rows.astype(kinds) if kinds else rows


def _in_memory(given: Any) -> pd.DataFrame:
    if not isinstance(given, pd.DataFrame):
        as_text = {pa.string(): TEXT, pa.large_string(): TEXT}.get
        table: pd.DataFrame = pa.table(given).to_pandas(types_mapper=as_text)
        return table
    for column in [name for name, kind in given.dtypes.items() if kind == "object"]:
        whole = given[column].map(is_whole_text)
        if not whole.all():
            raise DataError(f"the DataFrame: {column}, {called(given.index[~whole][0])}: {HALF}")
    rows = given.copy()
    rows.attrs = {}
    return rows if rows.index.is_unique else rows.reset_index(drop=True)


def _content(file: Path) -> bytes:
    """Read a file, unpacked where its name says that it is compressed."""
    if not file.is_file():
        raise DataError(f"{file}: there is no such file.")
    if (size := file.stat().st_size) > MAX_BYTES:
        raise DataError(
            f"{file}: it has {size:,} bytes, more than {MAX_BYTES:,}. Give a part of it."
        )
    content = file.read_bytes()
    try:
        if file.suffix.lower() == ".gz":
            return Allowance(file, size).gather(unpack_gzip(content))
        if file.suffix.lower() == ".zst":
            return Allowance(file, size).gather(unpack_zstd(content))
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(
            f"{file}: it cannot be unpacked ({error}). It may have been cut short."
        ) from None
    return content


def _read_parquet(file: Path) -> pd.DataFrame:
    try:
        parquet = pyarrow.parquet.ParquetFile(io.BytesIO(_content(file)))
        refuse_cells(file, parquet.metadata.num_rows, parquet.metadata.num_columns)
        return pd.read_parquet(io.BytesIO(_content(file)))
    except (OSError, ValueError, MemoryError) as error:
        raise _damaged(file, "Parquet", error) from None


def _damaged(file: Path, kind: str, error: Exception) -> DataError:
    if isinstance(error, DataError):
        return error
    return DataError(f"{file}: it cannot be read as {kind} ({error}). It may have been cut short.")


def refuse_cells(file: Path | str, n_rows: int, n_columns: int) -> None:
    """Refuse a table with more cells than fit in memory; objects can each have their own keys."""
    if n_rows * n_columns > MAX_CELLS:
        raise DataError(
            f"{file}: it has {n_rows:,} rows of {n_columns:,} columns, more than {MAX_CELLS:,}"
            " cells. Give a part of it, or the columns that have the votes."
        )


def _read_excel(file: Path, header: Sequence[str] | None) -> pd.DataFrame:
    content = _content(file)
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            sizes = [part.file_size for part in archive.infolist()]
        Allowance(file, len(content)).spend(sum(sizes))
        sheets = read_sheets(content, header)
    except MemoryError:
        raise DataError(
            f"{file}: reading its {len(content):,} bytes takes more than {MAX_MEMORY:,} bytes of"
            " memory. Some cell may stand far below or beside the others, or hold a long text;"
            " write the rows anew, as CSV."
        ) from None
    except (ValueError, zipfile.BadZipFile) as error:
        raise _damaged(file, "Excel", error) from None
    filled = {name: rows for name, rows in sheets.items() if not rows.empty}
    if len(filled) > 1:
        error_message = (
            f"{file}: it has {len(filled)} sheets with rows ({', '.join(filled)}). Give one of them"
            " as a DataFrame"
        )
        raise DataError(
            f"{error_message}, as pd.read_excel(path, sheet_name={next(iter(filled))!r}, dtype=str)"
            " reads it."
        )
    rows = next(iter(filled.values()), pd.DataFrame())
    return _with_header(file, rows, header) if header else rows


def _of_objects(file: Path, objects: list[JsonObject]) -> pd.DataFrame:
    """Make a table of objects, in which whole numbers stay whole where another row has none."""
    refuse_cells(file, len(objects), len({name for row in objects for name in row}))
    return pd.DataFrame(objects, dtype=object)


def _read_log(file: Path) -> JsonObject:
    try:
        return unpack_log(_content(file), file)
    except DataError:
        raise
    except ValueError as error:
        raise DataError(
            f"{file}: it cannot be read as a log of inspect_ai ({error}). It may have been cut"
            " short."
        ) from None


def _read_json(file: Path, encoding: str | None, faults: list[str] | None) -> Any:
    """Read JSON, or objects line by line under this name."""
    text = _text(file, encoding, faults)
    try:
        return json.loads(text)
    except RecursionError:
        raise DataError(f"{file}: {DEEP}") from None
    except json.JSONDecodeError as error:
        if error.msg == "Extra data" and text.lstrip().startswith("{"):
            return [row for _, row in read_lines(file, encoding, faults)]
        raise DataError(
            f"{file}: it is not whole JSON (line {error.lineno}, column {error.colno}:"
            f" {error.msg}). It may have been cut short."
        ) from None


def _objects_in(file: Path, content: Any) -> list[JsonObject]:
    """Find the rows in JSON: an array of objects, an object that holds one, or columns."""
    rows = _rows_within(file, content) if isinstance(content, dict) else content
    if not isinstance(rows, list):
        raise DataError(
            f"{file}: it holds a {type(content).__name__}, expected an array of objects."
        )
    for number, row in enumerate(rows):
        if not isinstance(row, dict):
            raise DataError(
                f"{file}: entry {number} of the array is a {type(row).__name__}, expected an"
                " object."
            )
        if halves := [name for name, cell in row.items() if not is_whole_text((name, cell))]:
            raise DataError(f"{file}: row {number}, {halves[0]}: {HALF}")
    return rows


def _rows_within(file: Path, content: JsonObject) -> list[JsonObject]:
    """Find the rows in an object: its one array of objects, or a column an entry.

    pandas writes the latter by default.
    """
    arrays = [
        name
        for name, value in content.items()
        if isinstance(value, list) and value and isinstance(value[0], dict)
    ]
    if len(arrays) == 1:
        rows: list[JsonObject] = content[arrays[0]]
        return rows
    heads, cells = content.get("columns"), content.get("data")
    if isinstance(heads, list) and isinstance(cells, list):  # as pandas writes with orient="split"
        if odd := [row for row in cells if not isinstance(row, list) or len(row) != len(heads)]:
            raise DataError(
                f"{file}: entry {cells.index(odd[0])} of data is not as long as columns"
                f" ({len(heads)})."
            )
        return [dict(zip(map(str, heads), row, strict=True)) for row in cells]
    if content and all(str(name).isdigit() for name in content):  # with orient="index"
        rows = list(content.values())
        if all(isinstance(row, dict) and not all(map(str.isdigit, row)) for row in rows):
            return rows
    columns = [value for value in content.values() if isinstance(value, dict | list)]
    if (
        not arrays
        and len(columns) == len(content)
        and len({len(value) for value in columns}) == 1
        and len(columns[0])
    ):
        cells = {
            name: list(value.values() if isinstance(value, dict) else value)
            for name, value in content.items()
        }
        return [dict(zip(cells, row, strict=True)) for row in zip(*cells.values(), strict=True)]
    inside = ", ".join(map(str, content)) or "nothing"
    content_type = (
        f"several arrays of objects ({', '.join(arrays)})" if arrays else "no array of objects"
    )
    raise DataError(
        f"{file}: it is one object with {content_type}; inside are {inside}. Give the array"
        " alone, as a file or a DataFrame."
    )


def is_whole_text(cell: object) -> bool:
    """Check that no text in a cell holds half of a character.

    No file of a table can keep such a half.
    """
    try:
        json.dumps(cell, ensure_ascii=False, default=str).encode()
    except RecursionError:
        raise DataError(DEEP) from None
    except UnicodeEncodeError:
        return False
    return True


def read_lines(
    file: Path, encoding: str | None = None, faults: list[str] | None = None
) -> list[tuple[int, JsonObject]]:
    """Read the objects of a file of JSON Lines with the numbers of their lines."""
    rows = []
    text = _text(file, encoding, faults)
    # not splitlines: a text may hold another break
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except RecursionError:
            raise DataError(f"{file}: line {number}: {DEEP}") from None
        except json.JSONDecodeError as error:
            raise DataError(
                f"{file}: line {number} is not JSON ({error.msg}, column {error.colno})."
            ) from None
        if not isinstance(row, dict):
            raise DataError(
                f"{file}: line {number} holds a {type(row).__name__}, expected an object."
            )
        if halves := [name for name, cell in row.items() if not is_whole_text((name, cell))]:
            raise DataError(f"{file}: line {number}, {halves[0]}: {HALF}")
        rows.append((number, row))
    return rows


def _text(file: Path, encoding: str | None = None, faults: list[str] | None = None) -> str:
    """Decode a file; report another encoding as a fault and read the file in it anyway.

    Then more of its faults can be reported.
    """
    content = _content(file)
    if not content or content.isspace():
        raise DataError(f"{file}: it is empty.")
    named = encoding or next(
        (name for mark, name in MARKS.items() if content.startswith(mark)), "utf-8"
    )
    if named == "utf-8" and b"\0" in content[:TOP]:
        guess = "utf-16-le" if content[1:2] == b"\0" else "utf-16-be"
        raise DataError(
            f"{file}: it holds null bytes, so it is no text in UTF-8. It may be UTF-16 without its"
            f" mark: encoding={guess!r}."
        )
    try:
        return content.decode(named)
    except LookupError:
        raise DataError(
            f"{file}: there is no encoding {named!r}. Excel on Windows writes 'utf-8-sig' or"
            " 'cp1252'."
        ) from None
    except UnicodeDecodeError as error:
        guess, line = (
            content.decode("cp1252", errors="replace"),
            content[: error.start].count(b"\n"),
        )
        byte = content[error.start : error.start + 1]
        fault = (
            f"line {line + 1} is not {named.upper()} (byte {byte[0]:#04x}). Save the file as UTF-8,"
            " or name its encoding: with encoding='cp1252' this byte is"
            f" {byte.decode('cp1252', errors='replace')!r}."
        )
        if faults is None:
            raise DataError(f"{file}: {fault}") from None
        faults.append(fault)
        return guess


def _read_csv(
    file: Path, content: str, sep: str | None, header: Sequence[str] | None
) -> pd.DataFrame:
    if sep and len(sep) > 1:
        raise DataError(f"sep is {sep!r}, expected one character, such as ';' or a tab.")
    if first := re.match(r"sep=(.)\r?\n", content):  # which Excel reads and does not show
        sep, content = sep or first[1], content[first.end() :]
    if "\n" not in content:  # as programs wrote lines on the first Macintosh, and Excel still can
        content = content.replace("\r", "\n")
    csv.field_size_limit(10 * MAX_LETTERS)  # longer cells are refused by name once they are read
    # a header is no longer, and to look at all of a large file four times takes longer than to read
    # it
    top = content[:TOP]
    try:
        heads = {
            mark: next(csv.reader(io.StringIO(top), delimiter=mark))
            for mark in ([sep] if sep else [",", ";", "\t", "|"])
        }
        mark = max(heads, key=lambda mark: len(heads[mark]))
        rows = None if header else _read_fast(content, mark, heads[mark])
        if rows is None:
            _refuse_short_rows(file, content, mark)
            rows = pd.read_csv(
                io.StringIO(content),
                sep=mark,
                dtype=str,
                keep_default_na=False,
                header=None if header else 0,
            )
    except (csv.Error, pd.errors.ParserError, pd.errors.EmptyDataError) as error:
        raise DataError(
            f"{file}: it cannot be read as CSV ({error}). It may have been cut short."
        ) from None
    if not isinstance(rows.index, pd.RangeIndex):
        raise DataError(
            f"{file}: its rows have more cells than its header, which is"
            f" {', '.join(map(str, rows.columns))}. If a title or a comment stands above the"
            " header, take that line out."
        )
    rows = _with_header(file, rows, header) if header else rows
    for name in rows.columns if mark == ";" else ():  # where a comma is what elsewhere is a point
        if rows[name].str.fullmatch(r"\s*(-?\d+(,\d+)?)?\s*").all():
            rows[name] = rows[name].str.replace(",", ".")
    return rows


def _read_fast(content: str, mark: str, head: list[str]) -> pd.DataFrame | None:
    """Read a CSV with rows of equal length, six times as fast as pandas reads text."""
    if len(set(head)) < len(head) or not all(head):
        return None
    as_text = pa.csv.ConvertOptions(
        column_types=dict.fromkeys(head, ARROW_TEXT), strings_can_be_null=False
    )
    parsing = pa.csv.ParseOptions(delimiter=mark, newlines_in_values='"' in content)
    try:
        table = pa.csv.read_csv(
            pa.BufferReader(content.encode()), convert_options=as_text, parse_options=parsing
        )
    except (pa.ArrowInvalid, UnicodeEncodeError):
        return None
    if table.column_names != head:
        return None
    rows: pd.DataFrame = table.to_pandas(types_mapper={ARROW_TEXT: TEXT}.get)
    return rows


def _with_header(file: Path, rows: pd.DataFrame, header: Sequence[str]) -> pd.DataFrame:
    if isinstance(header, str) or len(header) != rows.shape[1]:
        raise DataError(
            f"{file}: header names {header!r}, and the file has {rows.shape[1]} columns. Name each"
            " of them once."
        )
    return rows.set_axis(list(header), axis=1)


def _refuse_short_rows(file: Path, content: str, mark: str) -> None:
    """Refuse rows that end before others do.

    A file may end all of its rows before headers that it never fills.
    """
    lines = csv.reader(io.StringIO(content), delimiter=mark, strict=True)
    head = next(lines)
    lengths: dict[int, int] = {}
    for cells in lines:
        if cells:
            lengths[lines.line_num] = len(cells)
    filled = max(lengths.values(), default=0)
    if head[-len(NEVER_FILLED) :] == list(NEVER_FILLED):
        filled = min(filled, len(head) - len(NEVER_FILLED))
    short = [number for number, length in lengths.items() if length < min(filled, len(head))]
    if short:
        raise DataError(
            f"{file}: line {short[0]} of {file.name} has fewer cells than the header. The file may"
            f" have been cut short there ({len(short)} such rows); write it anew, or take those"
            " rows out."
        )


def _refuse_no_header(file: Path, rows: pd.DataFrame) -> None:
    """Refuse a file whose first line reads like a row: numbers, or cells that come again below."""
    heads = [str(head) for head in rows.columns]
    nameless = [head for head in heads if head.startswith("Unnamed: ")]
    if 2 * len(nameless) > len(heads):
        raise DataError(
            f"{file}: {len(nameless)} of {len(heads)} cells of its first line are empty, so it is"
            " no header. If a title stands above the header, take that line out."
        )
    numbers = [head for head in heads if re.fullmatch(r"-?\d+([.,]\d+)?", head)]
    again = [
        head
        for head in rows.columns
        if len(str(head)) and rows[head].head(2000).eq(str(head)).any()
    ]
    if numbers or (len(again) > 1 and 2 * len(again) >= len(heads)):
        names = ", ".join(f"'column_{number}'" for number in range(1, len(heads) + 1))
        first = ", ".join(show_cell("header", head) for head in heads[:6])
        raise DataError(
            f"{file}: there seems to be no header: its first line ({first}) reads like a row. Name"
            f" the {len(heads)} columns, as in header=[{names}]; if that line is the header, give"
            " its own names there and take the line out."
        )


def _letters(cell: object) -> str:
    return re.sub(r"[\W_]", "", str(cell)).casefold()


def _without_more_headers(rows: pd.DataFrame) -> RawTable:
    """Take out the rows of headers that Qualtrics writes below the first."""
    top = rows.head(3)
    marked = (
        top.apply(lambda cells: cells.astype(str).str.strip().str.startswith(IMPORT_ID))
        .any(axis=1)
        .to_numpy(bool)
    )
    if not marked.any() and len(rows):
        # without the row of import ids, the second header still says the first again in words:
        # StartDate, Start Date
        near = [_letters(head) for head in rows.columns]
        marked = np.array(
            [sum(a == _letters(b) for a, b in zip(near, rows.iloc[0], strict=True)) > 2]
        )
    if not marked.any():
        return RawTable(rows, as_text=True)
    n_headers = int(np.flatnonzero(marked)[0]) + 1
    questions: Mapping[Any, Any] = rows.iloc[0].to_dict() if n_headers else {}
    question_texts = {str(head): str(question) for head, question in questions.items()}
    return RawTable(
        rows.iloc[n_headers:],
        as_text=True,
        notes={"rows of headers by Qualtrics": n_headers},
        questions=question_texts,
    )
