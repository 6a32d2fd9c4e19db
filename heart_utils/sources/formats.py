"""Tables of any format as rows of cells: CSV, Excel, Parquet, JSON, logs of inspect_ai, Arrow.

What a packed file may unpack to is bounded. Rows keep their number in the file, from 0.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import json
import os
import re
import warnings
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from heart_utils.identities import show_cell
from heart_utils.settings import JsonObject
from heart_utils.sources.defaults import TEXT
from heart_utils.sources.workbook import MAX_MEMORY, read_sheets
from heart_utils.tables import DataError, called

__all__ = ["RawTable"]

SUFFIXES = (".csv", ".tsv", ".xlsx", ".parquet", ".jsonl", ".json", ".eval")
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
ARROW_TEXT = pa.large_string()  #: What pandas keeps columns of text as.
IMPORT_ID = '{"ImportId"'  #: How each cell of Qualtrics' third row of headers begins.
TOP = 1_000_000  #: Characters of a file among which its header is.
MAX_CELLS = 50_000_000  #: A million votes with fifty columns.
MAX_LETTERS = 1_000_000  #: Characters of one cell: a book and a half.
MAX_RATIO = 100  #: So many times its size a packed file may unpack to; logs and votes take 5 to 30.
SMALL = 32_000_000  #: Bytes that any packed file may unpack to, however small it is.
CHUNK = 1_000_000
MAX_BYTES = 2_000_000_000  #: Bytes that no file may unpack to more than.
#: Headers of Mechanical Turk's batch files that its rows end before.
NEVER_FILLED = ("Approve", "Reject")
#: How inspect_ai packs the parts of a log, which zipfile cannot unpack before Python 3.14.
ZSTD = 93
#: Bytes before the name of a packed part; the lengths of name and extra field are in the last four.
LOCAL_HEADER = 30
LOG_HEADERS = ("header.json", "_journal/start.json")
"""Parts of a log of inspect_ai that say what ran: the first is there once it has ended."""


@dataclass(frozen=True)
class RawTable:
    """Rows as they stand in a file, before anything is known of what they mean."""

    rows: pd.DataFrame
    as_text: bool = False  #: Whether every cell came as text, as in CSV and Excel.
    #: What was left out on the way -> how many rows.
    notes: dict[str, int] = field(default_factory=dict)


def suffix_of(file: Path) -> str:
    """Return a file's ending, without that of its compression."""
    inner = file.with_suffix("") if file.suffix.lower() in COMPRESSED else file
    return inner.suffix.lower()


def is_table(given: object) -> bool:
    return isinstance(given, pd.DataFrame) or hasattr(given, "__arrow_c_stream__")


def read_table(given: str | os.PathLike[str] | pd.DataFrame) -> RawTable:
    """Read the rows of a file or a table, or raise a ``DataError`` that names the line."""
    if isinstance(given, pd.DataFrame):
        raw, where = RawTable(_without_categories(_whole(given))), "the DataFrame"
    elif is_table(given):
        as_text = {pa.string(): TEXT, pa.large_string(): TEXT}.get
        table = pa.table(given).to_pandas(types_mapper=as_text)
        raw, where = RawTable(_without_categories(table)), "the DataFrame"
    else:
        file = Path(given).expanduser().resolve()
        raw, where = _read_path(file), str(file)
    for head in raw.rows.columns:
        cells = raw.rows[head]
        lengths = (
            cells.str.len()
            if cells.dtype == TEXT
            else cells.map(lambda cell: len(cell) if isinstance(cell, str) else 0)
        )
        if (long := lengths > MAX_LETTERS).any():
            raise DataError(
                f"{where}: {called(lengths.index[long][0])} holds a text of"
                f" {lengths[long].iloc[0]:,} characters in {head}, more than {MAX_LETTERS:,}."
                " Shorten it, or leave that column out of the file."
            )
    return raw


def _whole(given: pd.DataFrame) -> pd.DataFrame:
    for column in [name for name, kind in given.dtypes.items() if kind == "object"]:
        whole = given[column].map(is_whole_text)
        if not whole.all():
            raise DataError(f"the DataFrame: {column}, {called(given.index[~whole][0])}: {HALF}")
    rows = given.copy()
    rows.attrs = {}
    return rows if rows.index.is_unique else rows.reset_index(drop=True)


def _read_path(file: Path) -> RawTable:
    suffix = suffix_of(file)
    if suffix not in SUFFIXES:
        raise DataError(
            f"{file}: expected a file that ends in {', '.join(SUFFIXES)}, or in one of these and"
            " .gz or .zst."
        )
    if not file.is_file():
        raise DataError(f"{file}: there is no such file.")
    if suffix == ".parquet":
        return RawTable(_without_categories(_read_parquet(file)))
    if suffix in (".csv", ".tsv", ".xlsx"):
        rows = _without_blanks(_read_excel(file) if suffix == ".xlsx" else _read_csv(file))
        if len(rows):
            _refuse_no_header(file, rows)
        return _without_more_headers(rows)
    notes = dict[str, int]()
    if suffix == ".jsonl":
        objects = [row for _, row in read_lines(file)]
    else:
        content = _unpack_log(file) if suffix == ".eval" else _read_json(file)
        if is_log(content):
            objects, notes = read_log(content)
        else:
            objects = _objects_in(file, content)
    refuse_cells(file, len(objects), len({name for row in objects for name in row}))
    # as objects, whole numbers stay whole where another row has none
    return RawTable(pd.DataFrame(objects, dtype=object), notes=notes)


def _without_blanks(rows: pd.DataFrame) -> pd.DataFrame:
    empty = rows.isna() | (rows == "")
    if not empty.to_numpy().any():
        return rows
    nameless = rows.columns.astype(str).str.startswith("Unnamed: ")
    return rows.loc[~empty.all(axis=1), ~(nameless & empty.all().to_numpy())]


def _without_categories(rows: pd.DataFrame) -> pd.DataFrame:
    kinds = {
        name: kind.categories.dtype
        for name, kind in rows.dtypes.items()
        if isinstance(kind, pd.CategoricalDtype)
    }
    return rows.astype(kinds) if kinds else rows


# How much a file unpacks to


def _most(n_packed: int) -> int:
    return min(MAX_BYTES, max(SMALL, MAX_RATIO * n_packed))


def _refuse_unpacked(file: Path, n_packed: int, n_bytes: int) -> None:
    if n_bytes > (most := _most(n_packed)):
        raise DataError(
            f"{file}: its {n_packed:,} bytes unpack to more than {most:,}, the most that a file of"
            " this size may hold here. If it is really so large, unpack it yourself and give the"
            " part that has the votes."
        )


def _refuse_large_parts(file: Path, content: bytes, parts: Iterable[zipfile.ZipInfo]) -> None:
    _refuse_unpacked(file, len(content), sum(part.file_size for part in parts))


def _open_zstd(content: bytes) -> pa.NativeFile:
    return pa.input_stream(pa.BufferReader(content), compression="zstd")


def _read(stream: IO[bytes] | pa.NativeFile, most: int) -> bytes:
    """Read a stream piece by piece, until its end or past the most that it may hold."""
    content = io.BytesIO()
    while content.tell() <= most and (piece := stream.read(CHUNK)):
        content.write(piece)
    return content.getvalue()


def unpack_part(archive: zipfile.ZipFile, content: bytes, part: zipfile.ZipInfo) -> bytes:
    """Unpack a part of an archive, and no more of it than the archive says it has."""
    if part.compress_type != ZSTD:
        return archive.read(part)
    start = part.header_offset + LOCAL_HEADER
    lengths = content[start - 4 : start]
    start += int.from_bytes(lengths[:2], "little") + int.from_bytes(lengths[2:], "little")
    packed = _open_zstd(content[start : start + part.compress_size])
    return bytes(packed.read(part.file_size))


def _content(file: Path) -> bytes:
    if not file.is_file():
        raise DataError(f"{file}: there is no such file.")
    if (size := file.stat().st_size) > MAX_BYTES:
        raise DataError(
            f"{file}: it has {size:,} bytes, more than {MAX_BYTES:,}. Give a part of it."
        )
    content = file.read_bytes()
    try:
        if file.suffix.lower() == ".gz":
            content = _read(gzip.GzipFile(fileobj=io.BytesIO(content)), _most(size))
        if file.suffix.lower() == ".zst":
            content = _read(_open_zstd(content), _most(size))
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(
            f"{file}: it cannot be unpacked ({error}). It may have been cut short."
        ) from None
    _refuse_unpacked(file, size, len(content))
    return content


def refuse_cells(file: Path | str, n_rows: int, n_columns: int) -> None:
    """Refuse a table with more cells than fit in memory."""
    if n_rows * n_columns > MAX_CELLS:
        raise DataError(
            f"{file}: it has {n_rows:,} rows of {n_columns:,} columns, more than {MAX_CELLS:,}"
            " cells. Give a part of it, or the columns that have the votes."
        )


def _damaged(file: Path, kind: str, error: Exception) -> DataError:
    return DataError(f"{file}: it cannot be read as {kind} ({error}). It may have been cut short.")


# Parquet, Excel and CSV


def _read_parquet(file: Path) -> pd.DataFrame:
    content = io.BytesIO(_content(file))
    try:
        about = pyarrow.parquet.ParquetFile(content).metadata
        refuse_cells(file, about.num_rows, about.num_columns)
        return pd.read_parquet(content)
    except DataError:
        raise
    except (OSError, ValueError, MemoryError) as error:
        raise _damaged(file, "Parquet", error) from None


def _read_excel(file: Path) -> pd.DataFrame:
    content = _content(file)
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            _refuse_large_parts(file, content, archive.infolist())
        sheets = read_sheets(content)
    except DataError:
        raise
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
        raise DataError(
            f"{file}: it has {len(filled)} sheets with rows ({', '.join(filled)}). Give one of them"
            f" as a DataFrame, as pd.read_excel(path, sheet_name={next(iter(filled))!r}, dtype=str)"
            " reads it."
        )
    return next(iter(filled.values()), pd.DataFrame())


def _text(file: Path) -> str:
    """Decode a file: UTF-8, UTF-16 where it begins so, or Windows-1252 with a warning."""
    content = _content(file)
    if not content or content.isspace():
        raise DataError(f"{file}: it is empty.")
    named = next((name for mark, name in MARKS.items() if content.startswith(mark)), "utf-8")
    if named == "utf-8" and b"\0" in content[:TOP]:
        raise DataError(
            f"{file}: it holds null bytes, so it is no text in UTF-8. It may be UTF-16 without its"
            " mark: save it as UTF-8."
        )
    try:
        return content.decode(named)
    except UnicodeDecodeError as error:
        byte = content[error.start : error.start + 1]
        line = content[: error.start].count(b"\n") + 1
    fault = f"{file}: line {line} is not {named.upper()} (byte {byte[0]:#04x})"
    try:
        text = content.decode("cp1252")
    except UnicodeDecodeError:
        raise DataError(f"{fault}. Save the file as UTF-8.") from None
    warnings.warn(
        f"{fault}, so the file is read as Windows-1252, where that is {byte.decode('cp1252')!r}. If"
        " that is wrong, save it as UTF-8.",
        stacklevel=2,
    )
    return text


def _read_csv(file: Path) -> pd.DataFrame:
    content, marks = _text(file), [",", ";", "\t", "|"]
    if first := re.match(r"sep=(.)\r?\n", content):  # which Excel reads and does not show
        marks, content = [first[1]], content[first.end() :]
    if "\n" not in content:  # as programs wrote lines on the first Macintosh, and Excel still can
        content = content.replace("\r", "\n")
    csv.field_size_limit(10 * MAX_LETTERS)  # longer cells are refused by name once they are read
    top = content[:TOP]  # to look at all of a large file four times takes longer than to read it
    try:
        heads = {mark: next(csv.reader(io.StringIO(top), delimiter=mark)) for mark in marks}
        mark = max(heads, key=lambda mark: len(heads[mark]))
        rows = _read_fast(content, mark, heads[mark])
        if rows is None:
            _refuse_short_rows(file, content, mark)
            rows = pd.read_csv(io.StringIO(content), sep=mark, dtype=str, keep_default_na=False)
    except (csv.Error, pd.errors.ParserError, pd.errors.EmptyDataError) as error:
        raise _damaged(file, "CSV", error) from None
    if not isinstance(rows.index, pd.RangeIndex):
        raise DataError(
            f"{file}: its rows have more cells than its header, which is"
            f" {', '.join(map(str, rows.columns))}. If a title or a comment stands above the"
            " header, take that line out."
        )
    for name in rows.columns if mark == ";" else ():  # where a comma is what elsewhere is a point
        if rows[name].str.fullmatch(r"\s*(-?\d+(,\d+)?)?\s*").all():
            rows[name] = rows[name].str.replace(",", ".")
    return rows


def _read_fast(content: str, mark: str, head: list[str]) -> pd.DataFrame | None:
    """Read a CSV with rows of equal length faster than pandas reads text."""
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


def _refuse_short_rows(file: Path, content: str, mark: str) -> None:
    """Refuse rows that end before others do."""
    lines = csv.reader(io.StringIO(content), delimiter=mark, strict=True)
    head = next(lines)
    lengths = [(lines.line_num, len(cells)) for cells in lines if cells]
    filled = min(max((length for _, length in lengths), default=0), len(head))
    if head[-len(NEVER_FILLED) :] == list(NEVER_FILLED):
        filled = min(filled, len(head) - len(NEVER_FILLED))
    if short := [number for number, length in lengths if length < filled]:
        raise DataError(
            f"{file}: line {short[0]} of {file.name} has fewer cells than the header. The file may"
            f" have been cut short there ({len(short)} such rows); write it anew, or take those"
            " rows out."
        )


def _refuse_no_header(file: Path, rows: pd.DataFrame) -> None:
    """Refuse a file whose first line reads like a row."""
    heads = [str(head) for head in rows.columns]
    nameless = [head for head in heads if head.startswith("Unnamed: ")]
    if 2 * len(nameless) > len(heads):
        raise DataError(
            f"{file}: {len(nameless)} of {len(heads)} cells of its first line are empty, so it is"
            " no header. If a title stands above the header, take that line out."
        )
    numbers = [head for head in heads if re.fullmatch(r"-?\d+([.,]\d+)?", head)]
    again = [head for head in heads if head and rows[head].head(2000).eq(head).any()]
    if numbers or (len(again) > 1 and 2 * len(again) >= len(heads)):
        names = ", ".join(f"'column_{number}'" for number in range(1, len(heads) + 1))
        first = ", ".join(show_cell("header", head) for head in heads[:6])
        raise DataError(
            f"{file}: there seems to be no header: its first line ({first}) reads like a row. Write"
            f" a header above it, or give a DataFrame: pd.read_csv(path, names=[{names}])."
        )


def _letters(cell: object) -> str:
    return re.sub(r"[\W_]", "", str(cell)).casefold()


def _without_more_headers(rows: pd.DataFrame) -> RawTable:
    """Take out Qualtrics' further rows of headers."""
    top = rows.head(3).astype(str)
    marked = top.apply(lambda cells: cells.str.strip().str.startswith(IMPORT_ID)).any(axis=1)
    n_headers = int(marked.to_numpy().argmax()) + 1 if marked.any() else 0
    if not n_headers and len(rows):
        # without the row of import ids, the second header still says the first again in words:
        # StartDate, Start Date
        pairs = zip(rows.columns, rows.iloc[0], strict=True)
        n_headers = int(sum(_letters(head) == _letters(cell) for head, cell in pairs) > 2)
    notes = {"rows of headers by Qualtrics": n_headers} if n_headers else {}
    return RawTable(rows.iloc[n_headers:], as_text=True, notes=notes)


# JSON


def _read_json(file: Path) -> Any:
    text = _text(file)
    try:
        return json.loads(text)
    except RecursionError:
        raise DataError(f"{file}: {DEEP}") from None
    except json.JSONDecodeError as error:
        if error.msg == "Extra data" and text.lstrip().startswith("{"):
            return [row for _, row in read_lines(file)]
        raise DataError(
            f"{file}: it is not whole JSON (line {error.lineno}, column {error.colno}:"
            f" {error.msg}). It may have been cut short."
        ) from None


def _objects_in(file: Path, content: Any) -> list[JsonObject]:
    """Find the rows in JSON: objects in an array or an object, or columns."""
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
        _refuse_halves(row, f"{file}: row {number}")
    return rows


def _rows_within(file: Path, content: JsonObject) -> list[JsonObject]:
    arrays = [
        name
        for name, value in content.items()
        if isinstance(value, list) and value and isinstance(value[0], dict)
    ]
    if len(arrays) == 1:
        rows: list[JsonObject] = content[arrays[0]]
        return rows
    values = list(content.values())
    numbered = values and all(str(name).isdigit() for name in content)  # with orient="index"
    if numbered and all(isinstance(row, dict) and not all(map(str.isdigit, row)) for row in values):
        return values
    split = {"columns", "data"} <= set(content)  # with orient="split"
    with suppress(ValueError, TypeError):
        if split:
            return _records(content["data"], columns=content["columns"])
        if not arrays and all(isinstance(cells, list | dict) and cells for cells in values):
            return _records(content)
    inside = ", ".join(map(str, content)) or "nothing"
    content_type = (
        f"several arrays of objects ({', '.join(arrays)})" if arrays else "no array of objects"
    )
    raise DataError(
        f"{file}: it is one object with {content_type}; inside are {inside}. Give the array"
        " alone, as a file or a DataFrame."
    )


def _records(cells: Any, columns: Any = None) -> list[JsonObject]:
    table = pd.DataFrame(cells, columns=columns, dtype=object)
    return [{str(name): cell for name, cell in row.items()} for row in table.to_dict("records")]


def is_whole_text(cell: object) -> bool:
    """Check that no text in a cell holds half of a character."""
    try:
        json.dumps(cell, ensure_ascii=False, default=str).encode()
    except RecursionError:
        raise DataError(DEEP) from None
    except UnicodeEncodeError:
        return False
    return True


def _refuse_halves(row: JsonObject, where: str) -> None:
    if halves := [name for name, cell in row.items() if not is_whole_text((name, cell))]:
        raise DataError(f"{where}, {halves[0]}: {HALF}")


def read_lines(file: Path) -> list[tuple[int, JsonObject]]:
    rows = []
    # not splitlines: a text may hold another break
    for number, line in enumerate(_text(file).split("\n"), start=1):
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
        _refuse_halves(row, f"{file}: line {number}")
        rows.append((number, row))
    return rows


# Logs of inspect_ai (https://inspect.aisi.org.uk/eval-logs.html), without its package


def is_log(content: object) -> bool:
    return (
        isinstance(content, dict)
        and {"version", "eval", "samples"} <= set(content)
        and isinstance(content["eval"], dict)
    )


def _unpack_log(file: Path) -> JsonObject:
    content = _content(file)
    try:
        return unpack_log(content, file)
    except DataError:
        raise
    except (ValueError, zipfile.BadZipFile, OSError, EOFError, zlib.error) as error:
        raise _damaged(file, "a log of inspect_ai", error) from None


def unpack_log(content: bytes, file: Path) -> JsonObject:
    """Read an ``.eval`` file as the ``.json`` of the same log."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        parts = {part.filename: part for part in archive.infolist()}
        _refuse_large_parts(file, content, parts.values())
        header = next((name for name in LOG_HEADERS if name in parts), None)
        if header is None:
            raise ValueError(f"it has none of {', '.join(LOG_HEADERS)}")
        samples = [name for name in parts if re.fullmatch(r"samples/.*\.json", name)]
        read = [
            json.loads(unpack_part(archive, content, parts[name])) for name in [header, *samples]
        ]
    return {**read[0], "samples": read[1:]}


def read_log(log: Mapping[str, Any]) -> tuple[list[JsonObject], dict[str, int]]:
    """List the scores of a log, one row an entry, and how many samples it lacks.

    A sample that failed has a row for each scorer, without a value.
    """
    about, samples = log["eval"], log.get("samples") or []
    scorers = [scorer["name"] for scorer in about.get("scorers") or []]
    entries: dict[str, dict[str, None]] = {}  # of a scorer whose value has several
    for sample in samples:
        for scorer, given in (sample.get("scores") or {}).items():
            if isinstance(given.get("value"), dict):
                entries.setdefault(scorer, {}).update(dict.fromkeys(given["value"]))
    rows = [row for sample in samples for row in _scores(sample, about, scorers, entries)]
    n_epochs = (about.get("config") or {}).get("epochs") or 1
    n_samples = len((about.get("dataset") or {}).get("sample_ids") or []) * n_epochs
    status = log.get("status", "started")
    missing = 0 if status == "success" else max(0, n_samples - len(samples))
    return rows, {f"samples that are not in the log, whose status is {status!r}": missing}


def _scores(
    sample: Mapping[str, Any],
    about: Mapping[str, Any],
    scorers: list[str],
    entries: Mapping[str, Mapping[str, None]],
) -> Iterator[JsonObject]:
    shared = {"id": sample["id"], "epoch": sample.get("epoch", 1), "task": about.get("task")}
    shared["model"] = about.get("model")
    if sample.get("invalidation"):
        shared["invalidated"] = "true"
    scores, metadata = sample.get("scores") or {}, sample.get("metadata") or None
    for scorer in dict.fromkeys([*scores, *scorers]):
        given = scores.get(scorer) or {}
        row = {**shared, "scorer": scorer, "value": given.get("value")}
        row |= {"explanation": given.get("explanation"), "metadata": metadata}
        values = row["value"] if isinstance(row["value"], dict) else {}
        if scorer in entries:
            for entry in entries[scorer]:
                yield {**row, "entry": entry, "value": values.get(entry)}
        else:
            yield row
