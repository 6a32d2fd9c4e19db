"""Reshape rows as a tool wrote them to one row an answer, by the options of a file.

Headers stay the file's own.

Each step takes a table and gives one; rows that are left out are counted in notes, by reason.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any

import numpy as np
import pandas as pd

from heart_utils.identities import names_people, show_cell
from heart_utils.sources.columns import TEXT, map_words
from heart_utils.sources.formats import DEEP, RawTable, is_table, read_table, refuse_cells
from heart_utils.sources.options import FileOptions, listed, plain, word_of
from heart_utils.tables import DataError, called

__all__ = ["Reshaped"]

MAX_DEPTH = 100  #: Objects within objects.
COPIES = "copies of another row"
NOT_ASKED = "blank cells, taken as not asked"
ON, OFF = {"1", "true", "yes", "x", "on", "checked"}, {"0", "false", "no", "", "off", "nan", "none"}
"""What a column with one answer may hold in a row that gave this answer, and in one that did
not."""


@dataclass
class Reshaped:
    """Rows of answers, with what was used and left out on the way."""

    rows: pd.DataFrame
    used: set[str] = field(default_factory=set)  #: Headers that an option has explained.
    notes: dict[str, int] = field(default_factory=dict)
    #: Whether the first of two responders may be the one that stood first.
    sides_shown: bool = True


def reshape(table: str, raw: RawTable, options: FileOptions, answer: str) -> Reshaped:
    """Bring a file into the form of a row an answer, as its options say.

    Parameters
    ----------
    table : str, the project's table that the file is read as
    raw : RawTable
    options : FileOptions
    answer : str, the table's column of answers

    Returns
    -------
    Reshaped

    Raises
    ------
    DataError
        If an option names what is not there, or a cell cannot be read as it says; the message
        names row and column.

    Examples
    --------
    >>> from heart_utils.sources.formats import RawTable
    >>> from heart_utils.sources.reshape import reshape
    >>> games = RawTable(pd.DataFrame({"winner": ["x"], "loser": ["y"]}))
    >>> reshape("verdicts", games, {"winner_loser": ("winner", "loser")}, "verdict").rows.to_dict(
    ...     "records"
    ... )
    [{'responder_a': 'x', 'responder_b': 'y', 'verdict': 'a'}]
    """
    reshaped = Reshaped(raw.rows, notes=dict(raw.notes))
    for name in listed(options.get("explode")):
        reshaped.rows = _explode(reshaped.rows, name)
    if options.get("repeats") == "drop":
        copies = reshaped.rows.astype(str).duplicated().to_numpy()
        reshaped.notes[COPIES] = int(copies.sum())
        reshaped.rows = reshaped.rows[~copies]
    reshaped.rows = resolve(flatten(reshaped.rows), _heads_named(options))
    _split(reshaped, options.get("split") or {})
    _keep_only(reshaped, options.get("only") or {})
    if not len(reshaped.rows):
        raise DataError("no row is left.")
    _melt(reshaped, options, answer)
    _join_shown(reshaped, options)
    _one_hot(reshaped, options.get("winner_columns") or {}, answer)
    _winners_and_losers(reshaped, listed(options.get("winner_loser")), answer)
    _count_out(reshaped, options.get("counts") or {}, answer)
    _compose(reshaped, options.get("made_of") or {})
    return reshaped


def head_in(rows: pd.DataFrame, option: str, head: object) -> str:
    """Find a header as the file writes it."""
    names = {plain(name): str(name) for name in rows.columns}
    if plain(head) not in names:
        raise DataError(
            f"{option} names {head}; the columns are {', '.join(map(str, rows.columns))}."
        )
    return names[plain(head)]


def flatten(rows: pd.DataFrame, depth: int = 0) -> pd.DataFrame:
    """Make a column of each entry of nested objects, named by the way to it: ``data.model1``."""
    if depth > MAX_DEPTH:
        raise DataError(DEEP)
    parts: dict[str, Any] = {}
    for name in rows.columns:
        cells = rows[name]
        nested = cells.dtype == object and cells.map(lambda cell: isinstance(cell, dict)).any()
        if not nested:
            parts[str(name)] = cells
            continue
        objects = cells.map(lambda cell: cell if isinstance(cell, dict) else {})
        keys = dict.fromkeys(key for cell in objects for key in cell)
        refuse_cells(str(name), len(rows), len(keys))
        entries = {f"{name}.{key}": [cell.get(key) for cell in objects] for key in keys}
        inner = flatten(pd.DataFrame(entries, index=rows.index, dtype=object), depth + 1)
        parts.update({str(column): inner[column] for column in inner.columns})
    if len(parts) == len(rows.columns) and all(str(name) in parts for name in rows.columns):
        return rows
    return pd.DataFrame(parts, index=rows.index)


def _explode(rows: pd.DataFrame, name: str) -> pd.DataFrame:
    """Make a row of each entry of a list.

    An entry is a rating of a conversation, or a completion of a prompt.
    """
    rows = flatten(rows)
    head = head_in(rows, "explode", name)
    strange = rows[head].map(
        lambda cell: cell is not None and cell == cell and not isinstance(cell, list)
    )
    if strange.any():
        raise DataError(
            f"explode names {head}, and {called(rows.index[strange][0])} holds no list there."
        )
    lengths = rows[head].map(lambda cell: len(cell) if isinstance(cell, list) else 0)
    repeated = rows.loc[rows.index.repeat(lengths)]
    places = [number for length in lengths for number in range(1, length + 1)]
    entries = [entry for cell in rows[head] if isinstance(cell, list) for entry in cell]
    index = [
        f"{called(row)} ({head} {number})"
        for row, number in zip(repeated.index, places, strict=True)
    ]
    return repeated.assign(**{head: pd.Series(entries, repeated.index, dtype=object)}).set_axis(
        index, axis=0
    )


def _heads_named(options: FileOptions) -> list[str]:
    """List the headers that options name, including paths into nested cells.

    ``options.0.id`` is such a path.
    """
    named = [
        *(options.get("columns") or {}),
        *(options.get("only") or {}),
        *(options.get("winner_columns") or {}),
        *(options.get("split") or {}),
    ]
    named += [
        part
        for template in (options.get("made_of") or {}).values()
        for part in re.findall(r"\{([^{}]+)\}", template)
    ]
    return [str(name) for name in named]


def resolve(rows: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """Add a column for each path into a nested cell."""
    taken = []
    for name in names:
        if name in rows or "." not in name:
            continue
        for cut in reversed([dot.start() for dot in re.finditer(r"\.", name)]):
            if (
                name[:cut] in rows
                and rows[name[:cut]].map(lambda cell: isinstance(cell, list)).any()
            ):
                steps = name[cut + 1 :].split(".")
                rows = rows.assign(**{name: [_walk(cell, steps) for cell in rows[name[:cut]]]})
                taken.append(name[:cut])
                break
    return rows.drop(columns=[name for name in set(taken) if name not in names])


def _walk(cell: Any, steps: Sequence[str]) -> Any:
    for step in steps:
        if isinstance(cell, list) and step.isdigit():
            cell = cell[int(step)] if int(step) < len(cell) else None
        else:
            cell = cell.get(step) if isinstance(cell, dict) else None
    return cell


def _split(reshaped: Reshaped, patterns: Mapping[str, str]) -> None:
    """Cut cells by a pattern, of which each named part becomes a column."""
    for name, pattern in patterns.items():
        head = head_in(reshaped.rows, "split", name)
        cells = reshaped.rows[head].map(str)
        parts = cells.str.extract(f"^(?:{_pattern('split', pattern).pattern})$")
        lost = parts.isna().all(axis=1)
        if lost.any():
            example = show_cell(head, cells[lost].iloc[0])
            raise DataError(
                f"split: {called(cells.index[lost][0])} of {head} has {example}, which does not fit"
                f" {pattern!r}."
            )
        reshaped.rows = reshaped.rows.assign(**{str(part): parts[part] for part in parts})
        reshaped.used.add(head)


def _pattern(option: str, pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise DataError(
            f"{option}: {pattern!r} is no pattern ({error}); it is a regular expression."
        ) from None


def _keep_only(reshaped: Reshaped, only: Mapping[str, Any]) -> None:
    """Keep the rows that a user says count, and count the others by what they hold."""
    for name, wanted in only.items():
        head = head_in(reshaped.rows, "only", name)
        cells = map_words(reshaped.rows[head], word_of)
        chosen = {
            word_of(value)
            for value in (wanted if isinstance(wanted, list | tuple | set) else [wanted])
        }
        kept = cells.isin(list(chosen)).to_numpy()
        values = map_words(reshaped.rows[head][~kept], lambda cell: str(cell).strip()).value_counts(
            dropna=False
        )
        hidden = names_people(head)
        for value, count in values.items() if not hidden else ():
            reshaped.notes[f"left out by {head} {show_cell(head, value)}"] = int(count)
        if hidden and not kept.all():
            reshaped.notes[f"left out by {head}"] = int((~kept).sum())
        if not kept.any():
            present = (
                "other values"
                if hidden
                else ", ".join(show_cell(head, value) for value in values.index[:8])
            )
            raise DataError(f"only keeps no row: {head} has {present}.")
        reshaped.rows = reshaped.rows[kept]
        reshaped.used.add(head)


def _melt(reshaped: Reshaped, options: FileOptions, answer: str) -> None:
    """Reshape columns of answers to rows: a column a rater, a dimension, or a pair."""
    kinds = {
        "rater": options.get("rater_columns"),
        "dimension": options.get("dimension_columns"),
        "pair": options.get("pair_columns"),
    }
    given = {kind: named for kind, named in kinds.items() if named}
    if not given:
        return
    if len(given) > 1:
        raise DataError(
            f"{' and '.join(f'{kind}_columns' for kind in given)} are given; a column is one of"
            " these."
        )
    (kind, named), rows = next(iter(given.items())), reshaped.rows
    option = f"{kind}_columns"
    about = _columns_of(rows, option, named, kind)
    made = list(dict.fromkeys([answer, *(name for names in about.values() for name in names)]))
    if taken := [
        head for head in rows.columns if str(head) not in about and plain(head) in map(plain, made)
    ]:
        raise DataError(
            f"With {option} the columns {' and '.join(made[::-1])} are made from them, and it has"
            f" {', '.join(taken)}."
        )
    rest = rows.drop(columns=list(about))
    pieces = []
    for number, (head, names) in enumerate(about.items(), start=1):
        piece = rest.assign(**names, **{answer: rows[head]})
        # the header may be a person's name
        what = f"rater column {number}" if kind == "rater" else head
        pieces.append(piece.set_axis([f"{called(row)} ({what})" for row in rows.index], axis=0))
    long = pd.concat(pieces)
    explained = "" in map(word_of, options.get("words") or {})
    blank = (
        np.zeros(len(long), bool)
        if explained
        else (map_words(long[answer], word_of) == "").to_numpy()
    )
    reshaped.rows = long[~blank]
    reshaped.notes[NOT_ASKED] = int(blank.sum())


def _columns_of(
    rows: pd.DataFrame, option: str, named: str | Sequence[str], kind: str
) -> dict[str, dict[str, str]]:
    """Find columns by their names or a pattern.

    Header -> what a row made of it has beside the answer.
    """
    if not isinstance(named, str):
        return {
            head_in(rows, option, name): {
                kind: str(name) if kind != "rater" else head_in(rows, option, name)
            }
            for name in named
        }
    pattern = _pattern(option, named)
    matches = {str(head): match for head in rows.columns if (match := pattern.fullmatch(str(head)))}
    if not matches:
        raise DataError(
            f"{option} {named!r} fits no column; the columns are"
            f" {', '.join(map(str, rows.columns))}."
        )
    about = {}
    for head, match in matches.items():
        parts = {name: text for name, text in match.groupdict().items() if text is not None}
        unnamed = match[1] if match.re.groups and not match.re.groupindex else head
        # columns may differ in the order alone, and ask one question
        named_so = kind in parts or (kind == "dimension" and "order" in parts)
        about[head] = parts if named_so else {kind: unnamed, **parts}
    return about


def _join_shown(reshaped: Reshaped, options: FileOptions) -> None:
    """Add what each row was about from a table of what was shown."""
    if (given := options.get("shown")) is None:
        return
    items = (
        pd.DataFrame(given)
        if isinstance(given, list)
        else read_table(given).rows
        if not is_table(given)
        else pd.DataFrame(given)
    )
    items = items.rename(columns=lambda name: str(name).strip())
    rows, heads = reshaped.rows, {plain(name): str(name) for name in reshaped.rows.columns}
    shared = [name for name in items.columns if plain(name) in heads]
    if not shared:
        raise DataError(
            f"shown shares no column with the file: it has {', '.join(map(str, items.columns))}, "
            f"the file {', '.join(heads.values())}."
        )
    keys = [heads[plain(name)] for name in shared]
    items = items.rename(columns=dict(zip(shared, keys, strict=True)))
    for table in (items, rows := rows.copy()):
        table[keys] = table[keys].apply(
            lambda cells: map_words(cells, lambda cell: str(as_text(cell)).strip())
        )
    if (twice := items.duplicated(keys)).any():
        raise DataError(
            f"shown has two rows about {dict(items.loc[twice, keys].iloc[0])}; expected one for"
            f" each {', '.join(keys)}."
        )
    joined = rows.merge(items, on=keys, how="left", indicator="_shown").set_axis(rows.index, axis=0)
    lost = (joined["_shown"] != "both").to_numpy()
    if lost.any():
        missing = rows.loc[lost, keys].drop_duplicates().head(5).to_numpy().tolist()
        keys_missing = ", ".join("/".join(map(str, names)) for names in missing)
        raise DataError(
            f"shown says nothing of {', '.join(keys)} {keys_missing} ({int(lost.sum())} answers)."
            " Add a row for each."
        )
    reshaped.rows = joined.drop(columns="_shown")
    reshaped.used.update(keys)


def _one_hot(reshaped: Reshaped, named: Mapping[str, str], answer: str) -> None:
    """Make one answer of columns that are marked where it was given."""
    if not named:
        return
    heads = {
        head_in(reshaped.rows, "winner_columns", name): meaning for name, meaning in named.items()
    }
    marks = pd.DataFrame({head: map_words(reshaped.rows[head], word_of) for head in heads})
    for head, cells in marks.items():
        if (strange := ~cells.isin([*ON, *OFF])).any():
            example = show_cell(str(head), cells[strange].iloc[0])
            raise DataError(
                f"winner_columns: {called(cells.index[strange][0])} has {example} in {head},"
                " expected 1 or 0, true or false."
            )
    on = marks.isin(list(ON))
    n_marked = on.sum(axis=1)
    if (several := n_marked > 1).any():
        row = on.loc[several].iloc[0]
        raise DataError(
            f"winner_columns: {called(on.index[several][0])} is marked in"
            f" {' and '.join(map(str, row.index[row]))} ({int(several.sum())} such rows); expected"
            " one answer. Take those rows out, or mend them."
        )
    chosen = np.array([*heads.values(), None], dtype=object)
    answer_column = np.where(n_marked == 1, on.to_numpy().argmax(axis=1), len(heads))
    reshaped.rows = reshaped.rows.assign(**{answer: chosen[answer_column]})
    reshaped.used.update([*heads, answer])


def _winners_and_losers(reshaped: Reshaped, named: Sequence[str], answer: str) -> None:
    """Read a list of who won and who lost: the first of the two columns is the winner."""
    if not named:
        return
    winner, loser = (head_in(reshaped.rows, "winner_loser", name) for name in named)
    rows = reshaped.rows.rename(columns={winner: "responder_a", loser: "responder_b"})
    drawn = rows[answer] if answer in reshaped.used else pd.Series(None, rows.index, dtype=object)
    reshaped.rows = rows.assign(**{answer: drawn.where(drawn.notna(), "a")})
    reshaped.sides_shown = False


def _count_out(reshaped: Reshaped, named: Mapping[str, str], answer: str) -> None:
    """Make as many rows of each count as it says."""
    if not named:
        return
    pieces = []
    for name, meaning in named.items():
        head = head_in(reshaped.rows, "counts", name)
        counts = pd.to_numeric(reshaped.rows[head], errors="coerce")
        wrong = counts.isna() | (counts < 0) | (counts % 1 != 0)
        if wrong.any():
            example = show_cell(head, reshaped.rows.loc[wrong, head].iloc[0])
            raise DataError(
                f"counts: {called(counts.index[wrong][0])} has {example} in {head}, expected a"
                " whole number of 0 or more."
            )
        piece = reshaped.rows.loc[reshaped.rows.index.repeat(counts.astype(int))].assign(
            **{answer: meaning}
        )
        pieces.append(piece)
        reshaped.used.add(head)
    long = pd.concat(pieces)
    reshaped.rows = long.set_axis(
        [f"{called(row)} (vote {number})" for number, row in enumerate(long.index, start=1)], axis=0
    )
    reshaped.sides_shown = False


def _compose(reshaped: Reshaped, templates: Mapping[str, str]) -> None:
    """Compose columns from others, such as ``{question_id}-{turn}``.

    ``{row}`` is the number of the row.
    """
    for column, template in templates.items():
        text = pd.Series("", index=reshaped.rows.index, dtype=TEXT)
        for number, part in enumerate(re.split(r"\{([^{}]+)\}", str(template))):
            if number % 2 == 0:
                text = text + part
            elif part == "row":
                text = text + pd.Series(np.arange(len(text)).astype(str), text.index, dtype=TEXT)
            else:
                head = head_in(reshaped.rows, "made_of", part)
                text = text + map_words(
                    reshaped.rows[head], lambda cell: str(as_text(cell))
                ).astype(TEXT)
                reshaped.used.add(head)
        reshaped.rows = reshaped.rows.assign(**{column: text})
    reshaped.used -= set(templates)


def as_text(cell: Any) -> Any:
    """Convert a whole number or a date to the text that CSV has for it; keep anything else."""
    if isinstance(cell, date):
        return cell.isoformat(" ") if isinstance(cell, datetime) else cell.isoformat()
    if isinstance(cell, bool | np.bool_):
        return cell
    if isinstance(cell, int | np.integer):
        return str(int(cell))
    if isinstance(cell, float | np.floating) and cell == cell and float(cell).is_integer():
        return str(int(cell))
    return cell
