"""Reshape a tool's rows to one row an answer, and read their cells; count what is left out."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from heart_utils.identities import names_people, show_answer, show_cell
from heart_utils.sources.defaults import (
    ANSWERS,
    REST,
    SIDES,
    TEMPLATE,
    TEXT,
    FileOptions,
    map_words,
    plain,
    word_of,
)
from heart_utils.sources.formats import DEEP, RawTable, is_table, read_table, refuse_cells
from heart_utils.tables import ORDERS, TABLES, VERDICTS, Column, DataError, called

__all__ = ["Reshaped"]

MAX_DEPTH = 100  #: Objects within objects.
COPIES = "copies of another row"
NOT_ASKED = "blank cells, taken as not asked"
COLUMN = "column"  #: Where several headers are answers: which of them a row is made of.
FAILURES = ("abstained", "refused", "unparsed", "error")
ON, OFF = {"1", "true", "yes", "x", "on", "checked"}, {"0", "false", "no", "", "off", "nan", "none"}
"""What a column with one answer may hold in a row that gave this answer, and in one that did
not."""


@dataclass
class Reshaped:
    """Rows of answers, with what was used and left out on the way."""

    rows: pd.DataFrame
    columns: dict[str, str | None]  #: What headers mean that are still to be renamed.
    always: dict[str, Any]  #: What every row has, still to be added.
    used: set[str] = field(default_factory=set)  #: Headers that an option has explained.
    notes: dict[str, int] = field(default_factory=dict)
    #: Whether the first of two responders may be the one that stood first.
    sides_shown: bool = True


def reshape(table: str, raw: RawTable, options: FileOptions) -> Reshaped:
    """Bring a file into one row an answer, or raise a ``DataError`` that names row and column."""
    answer, always = ANSWERS.get(table, ""), dict(options.get("always") or {})
    columns = {name: said for name, said in (options.get("columns") or {}).items() if name != REST}
    meanings = {word for word in (options.get("words") or {}).values() if isinstance(word, str)}
    reshaped = Reshaped(raw.rows, columns, always, notes=dict(raw.notes))
    # where no word means b, the first of the two is who won, and not who stood first
    reshaped.sides_shown = answer not in always and ("a" not in meanings or "b" in meanings)
    reshaped.rows = open_paths(reshaped.rows, _heads_named(options))
    if options.get("repeats") == "drop":
        copies = reshaped.rows.astype(str).duplicated().to_numpy()
        reshaped.notes[COPIES] = int(copies.sum())
        reshaped.rows = reshaped.rows[~copies]
    _keep_only(reshaped, options.get("only") or {})
    if not len(reshaped.rows):
        raise DataError("no row is left.")
    shown = _items(options.get("shown"))
    _melt(reshaped, options, answer, COLUMN in shown)
    if options.get("shown") is not None:
        _join_shown(reshaped, shown)
    _read_marks(reshaped, answer)
    _count_out(reshaped, answer)
    _compose(reshaped)
    return reshaped


def head_in(rows: pd.DataFrame, option: str, head: object) -> str:
    names = {plain(name): str(name) for name in rows.columns}
    if plain(head) not in names:
        raise DataError(
            f"{option} names {head}; the columns are {', '.join(map(str, rows.columns))}."
        )
    return names[plain(head)]


def _heads_named(options: FileOptions) -> list[str]:
    named = [*(options.get("columns") or {}), *(options.get("only") or {})]
    for template in (options.get("always") or {}).values():
        named += TEMPLATE.findall(str(template))
    return [str(name) for name in named]


def flatten(rows: pd.DataFrame, depth: int = 0) -> pd.DataFrame:
    """Make a column of each entry of nested objects, such as ``data.model1``."""
    if depth > MAX_DEPTH:
        raise DataError(DEEP)
    parts: dict[str, Any] = {}
    for name in rows.columns:
        cells = rows[name]
        if cells.dtype != object or not cells.map(lambda cell: isinstance(cell, dict)).any():
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


def open_paths(rows: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """Open the lists that paths lead into.

    ``options.0.id`` becomes a column; ``annotations.result`` a row for each entry.
    """
    rows = flatten(rows)
    taken = set()
    for name in names:
        steps = name.split(".")
        for number in range(1, len(steps)):
            head = ".".join(steps[:number])
            if name in rows or head not in rows or not _holds(rows[head], list):
                continue
            if steps[number].isdigit():
                rows = rows.assign(**{name: [_walk(cell, steps[number:]) for cell in rows[head]]})
                taken.add(head)
            elif rows[head].map(_has_objects).any():
                rows = flatten(_explode(rows, head))
    return rows.drop(columns=[name for name in taken if name not in names])


def _holds(cells: pd.Series, kind: type) -> bool:
    return cells.dtype == object and bool(cells.map(lambda cell: isinstance(cell, kind)).any())


def _has_objects(cell: Any) -> bool:
    return isinstance(cell, list) and any(isinstance(entry, dict) for entry in cell)


def _walk(cell: Any, steps: Sequence[str]) -> Any:
    for step in steps:
        if isinstance(cell, list) and step.isdigit():
            cell = cell[int(step)] if int(step) < len(cell) else None
        else:
            cell = cell.get(step) if isinstance(cell, dict) else None
    return cell


def _explode(rows: pd.DataFrame, head: str) -> pd.DataFrame:
    cells = rows[head].map(lambda cell: [] if cell is None or cell != cell else cell)
    strange = cells.map(lambda cell: not isinstance(cell, list))
    if strange.any():
        raise DataError(f"{called(rows.index[strange][0])} holds no list in {head}.")
    long = rows.assign(**{head: cells}).explode(head)
    long = long[cells.map(len).to_numpy().repeat(cells.map(len).clip(lower=1)) > 0]
    places = long.groupby(level=0).cumcount() + 1
    index = [
        f"{called(row)} ({head} {place})" for row, place in zip(long.index, places, strict=True)
    ]
    return long.set_axis(index, axis=0)


def _keep_only(reshaped: Reshaped, only: Mapping[str, Any]) -> None:
    for name, wanted in only.items():
        head = head_in(reshaped.rows, "only", name)
        chosen = wanted if isinstance(wanted, list | tuple | set) else [wanted]
        cells = reshaped.rows[head]
        kept = map_words(cells, word_of).isin([word_of(value) for value in chosen]).to_numpy()
        values = map_words(cells[~kept], lambda cell: str(cell).strip()).value_counts()
        if names_people(head):
            reshaped.notes[f"left out by {head}"] = int((~kept).sum())
        else:
            for value, count in values.items():
                reshaped.notes[f"left out by {head} {show_cell(head, value)}"] = int(count)
        if not kept.any():
            words = ", ".join(show_cell(head, value) for value in values.index[:8])
            there = "other values" if names_people(head) else words
            raise DataError(f"only keeps no row: {head} has {there}.")
        reshaped.rows = reshaped.rows[kept]
        reshaped.used.add(head)


def _melt(reshaped: Reshaped, options: FileOptions, answer: str, asked: bool) -> None:
    """Make a row of each header that is an answer, named in ``column``."""
    own = {plain(head): str(head) for head in reshaped.rows.columns}
    named = [name for name, said in reshaped.columns.items() if said == answer]
    heads = [own[plain(name)] for name in named if plain(name) in own]
    asked = asked or any("{column}" in str(value) for value in reshaped.always.values())
    if not heads or (len(heads) == 1 and not asked):
        return
    if plain(answer) in own and own[plain(answer)] not in heads:
        raise DataError(
            f"columns names {', '.join(heads)} as the {answer}, and the file has a column"
            f" {own[plain(answer)]}. Say what that is."
        )
    rest, pieces = reshaped.rows.drop(columns=heads), []
    for number, head in enumerate(heads, start=1):  # the header may be a person's name
        piece = rest.assign(**{COLUMN: head})
        piece[answer] = reshaped.rows[head]
        pieces.append(piece.set_axis([f"{called(row)} (column {number})" for row in rest.index]))
    long = pd.concat(pieces)
    reshaped.rows = long
    if "" not in map(word_of, options.get("words") or {}):
        blank = (map_words(long[answer], word_of) == "").to_numpy()
        reshaped.rows = long[~blank]
        reshaped.notes[NOT_ASKED] = int(blank.sum())
    reshaped.used |= {*heads, COLUMN}
    for name in named:
        del reshaped.columns[name]


def _items(given: Any) -> pd.DataFrame:
    items = pd.DataFrame(given) if given is None or isinstance(given, list) else given
    if not isinstance(items, pd.DataFrame):
        items = read_table(items).rows if not is_table(items) else pd.DataFrame(items)
    return items.rename(columns=lambda name: str(name).strip())


def _join_shown(reshaped: Reshaped, items: pd.DataFrame) -> None:
    heads = {plain(name): str(name) for name in reshaped.rows.columns}
    shared = {name: heads[plain(name)] for name in items.columns if plain(name) in heads}
    if not shared:
        raise DataError(
            f"shown shares no column with the file: it has {', '.join(map(str, items.columns))}, "
            f"the file {', '.join(heads.values())}."
        )
    keys, rows = list(shared.values()), reshaped.rows.copy()
    items = items.rename(columns=shared)
    for table in (items, rows):
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


def _sides_of(reshaped: Reshaped, kind: str) -> dict[str, str]:
    """Find the headers meant as ``verdict:a`` or ``count:a``, with their answer."""
    sides = {}
    for name, said in list(reshaped.columns.items()):
        if str(said).startswith(f"{kind}:"):
            sides[head_in(reshaped.rows, "columns", name)] = str(said).partition(":")[2]
            del reshaped.columns[name]
    if strange := sorted(set(sides.values()) - {*VERDICTS}):
        raise DataError(
            f"columns says {kind}:{strange[0]}; a header stands for a, b or tie, as in"
            f" columns={{'winner_tie': '{kind}:tie'}}."
        )
    reshaped.used.update(sides)
    return sides


def _read_marks(reshaped: Reshaped, answer: str) -> None:
    heads = _sides_of(reshaped, "verdict")
    if not heads:
        return
    marks = pd.DataFrame({head: map_words(reshaped.rows[head], word_of) for head in heads})
    for head, cells in marks.items():
        if (strange := ~cells.isin([*ON, *OFF])).any():
            example = show_cell(str(head), reshaped.rows.loc[strange, str(head)].iloc[0])
            raise DataError(
                f"{called(cells.index[strange][0])} has {example} in {head}, expected 1 or 0, true"
                " or false."
            )
    on = marks.isin(list(ON))
    if (several := on.sum(axis=1) > 1).any():
        row = on.loc[several].iloc[0]
        raise DataError(
            f"{called(on.index[several][0])} is marked in"
            f" {' and '.join(map(str, row.index[row]))} ({int(several.sum())} such rows); expected"
            " one answer. Take those rows out, or mend them."
        )
    answers = on.idxmax(axis=1).map(heads).astype(object)
    answers = answers.where(on.any(axis=1), reshaped.always.pop(answer, None))
    reshaped.rows = reshaped.rows.assign(**{answer: answers})


def _count_out(reshaped: Reshaped, answer: str) -> None:
    pieces = []
    for head, meaning in _sides_of(reshaped, "count").items():
        counts = pd.to_numeric(reshaped.rows[head], errors="coerce")
        wrong = counts.isna() | (counts < 0) | (counts % 1 != 0)
        if wrong.any():
            example = show_cell(head, reshaped.rows.loc[wrong, head].iloc[0])
            raise DataError(
                f"{called(counts.index[wrong][0])} has {example} in {head}, expected a whole number"
                " of 0 or more."
            )
        piece = reshaped.rows.loc[reshaped.rows.index.repeat(counts.astype(int))]
        pieces.append(piece.assign(**{answer: meaning}))
    if pieces:
        long = pd.concat(pieces)
        votes = [f"{called(row)} (vote {number})" for number, row in enumerate(long.index, 1)]
        reshaped.rows, reshaped.sides_shown = long.set_axis(votes, axis=0), False


def _compose(reshaped: Reshaped) -> None:
    """Fill in templates such as ``{question_id}-{turn}``."""
    rows = reshaped.rows
    for column, template in list(reshaped.always.items()):
        if not TEMPLATE.search(str(template)):
            continue
        text = pd.Series("", index=rows.index, dtype=TEXT)
        for number, part in enumerate(TEMPLATE.split(str(template))):
            if number % 2 == 0:
                text = text + part
            elif part == "row":
                text = text + pd.Series(np.arange(len(text)).astype(str), text.index, dtype=TEXT)
            else:
                head = head_in(rows, "always", part)
                cells = map_words(rows[head], lambda cell: str(as_text(cell)))
                text = text + cells.astype(TEXT)
                reshaped.used.add(head)
        reshaped.rows = reshaped.rows.assign(**{column: text})
        del reshaped.always[column]


def as_text(cell: Any) -> Any:
    """Convert a whole number or a date to text as in CSV; keep anything else."""
    if isinstance(cell, date):
        return cell.isoformat(" ") if isinstance(cell, datetime) else cell.isoformat()
    if isinstance(cell, bool | np.bool_):
        return cell
    if isinstance(cell, int | np.integer) or (isinstance(cell, float) and cell.is_integer()):
        return str(int(cell))
    return cell


# What cells mean


def read_cells(
    table: str, rows: pd.DataFrame, text_file: bool, options: FileOptions, faults: list[str]
) -> list[Any]:
    """Read cells in place; return the labels of rows at fault."""
    bad: list[Any] = []
    for column, what in TABLES[table].items():
        if column in rows and text_file:
            rows[column], wrong = _of_text(column, what, rows[column])
            faults += [f"{table}.{column}: {fault}" for fault in wrong.values()][:1]
            bad += list(wrong)
        elif column in rows and what.kind == "text":
            rows[column] = _ids(rows[column])
        if column in rows and what.words and column != ANSWERS.get(table):
            rows[column] = map_words(rows[column], partial(_of_words, what.words))
    given = rows.get("p_a", pd.Series(dtype=object))  # as the file has it
    words = dict(options.get("words") or {})
    if table == "verdicts":
        bad += _read_chances(rows, words.pop("p_a", None) or {}, faults)
    _translate(table, rows, words)
    if table == "verdicts":
        bad += _read_orders(rows, faults)
    _refuse_spellings(rows, faults)
    if table == "verdicts":
        head = next(
            (head for head, name in (options.get("columns") or {}).items() if name == "verdict"),
            "verdict",
        )
        bad += _read_verdicts(rows, head, faults)
        bad += _contradictions(rows, given, faults)
    answer = ANSWERS.get(table, "")
    if answer and table != "answers" and "state" not in rows and rows[answer].isna().any():
        empty = rows.index[rows[answer].isna()]
        bad += list(empty)
        faults.append(
            f"{answer}: {called(empty[0])} is empty ({len(empty)} in all). Say why in a column"
            f" state, or for all of them by words={{'': 'abstained'}}: {', '.join(FAILURES)}; a"
            " failure is never taken for an answer."
        )
    return bad


def _of_text(column: str, what: Column, cells: pd.Series) -> tuple[pd.Series, dict[Any, str]]:
    """Read a column of text as its type, with what is wrong by row."""
    if what.words or not what.nullable:
        cells = cells.str.strip() if cells.dtype == TEXT else map_words(cells, _stripped)
    if (blank := cells.eq("").fillna(False).astype(bool)).any():
        cells = cells.mask(blank, None)
    if what.kind == "truth":
        return (
            map_words(
                cells, lambda cell: {"true": True, "false": False}.get(str(cell).lower(), cell)
            ),
            {},
        )
    if what.kind != "list":
        return cells, {}
    wrong, read = dict[Any, str](), list[Any]()
    for row, cell in cells.items():
        try:
            read.append(
                json.loads(cell) if isinstance(cell, str) else [] if column == "flags" else None
            )
        except json.JSONDecodeError as error:
            wrong[row] = f"row {row}: expected a list as JSON, {error}."
            read.append(None)
    return pd.Series(read, cells.index, dtype=object), wrong


def _of_words(words: tuple[str, ...], cell: Any) -> Any:
    small = cell.casefold() if isinstance(cell, str) else cell
    return small if small in words else cell


def _stripped(cell: Any) -> Any:
    return cell.strip() if isinstance(cell, str) else cell


def _ids(cells: pd.Series) -> pd.Series:
    """Convert whole numbers to text; a list of one word becomes the word, an empty one missing."""
    if cells.dtype == TEXT or pd.api.types.is_bool_dtype(cells):
        return cells
    if cells.dtype == object:
        cells = cells.map(
            lambda cell: (
                (cell[0] if cell else None) if isinstance(cell, list) and len(cell) < 2 else cell
            )
        )
    return map_words(cells, as_text)


def _translate(table: str, rows: pd.DataFrame, words: Mapping[Any, Any]) -> None:
    answer = ANSWERS.get(table, "")
    flat = {word: meaning for word, meaning in words.items() if not isinstance(meaning, Mapping)}
    for column, explained in {
        answer: flat,
        **{name: explained for name, explained in words.items() if isinstance(explained, Mapping)},
    }.items():
        if column not in rows:
            if explained:
                raise DataError(
                    f"words speaks of the column {column or 'of answers'}, which {table} does not"
                    " have here."
                )
            continue
        if not explained:
            continue
        meant = {word_of(word): meaning for word, meaning in explained.items()}
        meanings = map_words(rows[column], partial(_meaning, meant))
        failed = meanings.isin((*FAILURES, "inconsistent")) & (column == answer)
        rows[column] = meanings.mask(failed, None) if failed.any() else meanings
        if failed.any() and "state" in TABLES[table]:
            state = rows["state"] if "state" in rows else pd.Series("valid", rows.index)
            rows["state"] = state.astype(object).mask(failed, meanings)


def _meaning(meant: Mapping[str, Any], cell: Any) -> Any:
    return meant.get(word_of(cell), cell)


ONE_SPELLING = "[a-z0-9_.:/-]*"  #: No two such names are spellings of one.


def _refuse_spellings(rows: pd.DataFrame, faults: list[str]) -> None:
    """Refuse names that differ only in capitals and blanks."""
    for group in (("history_id",), SIDES, ("responder",), ("rater",)):
        present = [name for name in group if name in rows]
        if not present:
            continue
        once = [pd.Series(rows[name].dropna().unique()).astype(str) for name in present]
        if all(names.str.fullmatch(ONE_SPELLING).all() for names in once):
            continue
        cells = {name: rows[name].dropna().drop_duplicates().astype(str) for name in present}
        names = pd.concat(cells, names=["column", "row"]).reset_index(name="name")
        names = names.drop_duplicates("name")
        names["plain"] = names["name"].str.split().str.join(" ").str.casefold()
        for _, alike in names[names["plain"].duplicated(keep=False)].groupby("plain", sort=False):
            (column, row, name), (other, at, spelt) = alike.iloc[:2, :3].to_numpy().tolist()
            words = f", as in words={{'{other}': {{'{spelt}': '{name}'}}}}"
            faults.append(
                f"{column}: {called(row)} has {show_cell(column, name)} and {called(at)} has"
                f" {show_cell(other, spelt)}, which differ in capitals or blanks alone. Give one"
                f" spelling{'' if column == 'rater' else words}."
            )


def _sides_named(rows: pd.DataFrame, cells: pd.Series, words: tuple[str, ...]) -> pd.Series:
    """Take a responder's name for the word of its side."""
    for word, column in zip(words, SIDES, strict=False):
        named = cells.astype(object).eq(rows[column].astype(object)) & ~cells.isin(words)
        cells = cells.mask(named, word)
    return cells


def _read_verdicts(rows: pd.DataFrame, head: str, faults: list[str]) -> list[Any]:
    """Take a responder's name for its side; refuse other words."""
    cells = rows["verdict"]
    if (strange := cells.notna() & ~cells.isin(VERDICTS)).any() and set(SIDES) <= set(rows):
        names = set(rows["responder_a"].dropna()) | set(rows["responder_b"].dropna())
        if not names & {*VERDICTS}:  # where somebody is called `a`, a name could be a side
            rows["verdict"] = cells = _sides_named(rows, cells, VERDICTS)
            strange = cells.notna() & ~cells.isin(VERDICTS)
        third = strange & cells.isin(list(names))
        if third.any():
            row = cells.index[third][0]
            faults.append(
                f"verdicts.verdict: {called(row)} names {show_cell('verdict', cells[row])}"
                f" ({int(third.sum())} such rows), who is neither responder_a"
                f" ({rows.loc[row, 'responder_a']}) nor responder_b"
                f" ({rows.loc[row, 'responder_b']}) there. Mend those rows, or take them out."
            )
            strange &= ~third
            if not strange.any():
                return list(cells.index[third])
    words = cells[strange].map(str)
    if counted := {word: places.index for word, places in words.groupby(words, sort=False)}:
        examples = [
            (show_answer(head, word), places)
            for word, places in itertools.islice(counted.items(), 10)
        ]
        listed = ", ".join(
            f"{called(places[0])} says {word} ({len(places)} in all)" for word, places in examples
        )
        example = next((word for word, _ in examples if word[0] in "'\""), "'X'")
        faults.append(
            f"verdicts.verdict: {listed}; expected a, b or tie. No other word is taken for a tie:"
            f" say what each means, as in words={{{example}: 'a'}}, where {', '.join(FAILURES)} are"
            " failures."
        )
    return list(cells.index[cells.notna() & ~cells.isin(VERDICTS)])


def _read_orders(rows: pd.DataFrame, faults: list[str]) -> list[Any]:
    """Take the first responder's name for the order; refuse other words."""
    if "order" not in rows or not set(SIDES) <= set(rows):
        return []
    cells = map_words(rows["order"], lambda cell: None if word_of(cell) == "" else cell)
    rows["order"] = cells = _sides_named(rows, cells, ORDERS)
    strange = cells.notna() & ~cells.isin(ORDERS)
    if strange.any():
        words = [show_answer("order", str(word)) for word in cells[strange].unique()[:4]]
        faults.append(
            f"verdicts.order: {called(cells.index[strange][0])} says {words[0]}"
            f" ({int(strange.sum())} such rows), expected 'ab' (responder_a was shown first), 'ba',"
            " the name of who was shown first, or nothing where it is not known. Say what each"
            f" word means, as in words={{'order': {{{words[0]}: 'ab'}}}}; if it is no order,"
            " columns={'order': None} leaves it out."
        )
    return list(cells.index[strange])


def _read_chances(rows: pd.DataFrame, words: Mapping[Any, float], faults: list[str]) -> list[Any]:
    """Read how sure a rater was that a is better, before rows are turned.

    The words that mean 1 and 0 are the ends of the scale.
    """
    if "p_a" not in rows:
        if words:
            raise DataError("words speaks of the column p_a, which verdicts does not have here.")
        return []
    try:
        scale = {float(word): float(meaning) for word, meaning in words.items()}
    except (TypeError, ValueError):
        raise DataError(
            f"words of p_a are {words}, expected numbers, as in {{'1': 1, '2': 0, '0': 0.5}}."
        ) from None
    ends = {meaning: number for number, meaning in scale.items()}
    sure_a, sure_b = ends.get(1.0, 1.0), ends.get(0.0, 0.0)
    given = rows["p_a"]
    filled = map_words(given, word_of) != ""
    numbers = pd.to_numeric(given, errors="coerce").astype(float)
    share = (numbers - sure_b) / (sure_a - sure_b)
    for number, meaning in scale.items():
        share = share.mask(numbers == number, meaning)
    outside = filled & ~share.between(0.0, 1.0)
    if outside.any():
        low, high = sorted((sure_a, sure_b))
        first = ", ".join(
            f"{called(row)} has {show_cell('p_a', value)}"
            for row, value in given[outside].head(3).items()
        )
        faults.append(
            f"verdicts.p_a: expected a number from {low:g} to {high:g}, or nothing; {first}"
            f" ({int(outside.sum())} in all). Is it on another scale? Say which number means a for"
            " sure, which b, and which a draw: words={'p_a': {'1': 1, '2': 0, '0': 0.5}}."
        )
    rows["p_a"] = share.mask(outside)
    # the file says how sure they were, and nothing else
    if rows["verdict"].isna().all() and "state" not in rows:
        sides = np.array(["a", "b", "tie", None], dtype=object)[
            np.select([share > 0.5, share < 0.5, share == 0.5], [0, 1, 2], 3)
        ]
        rows["verdict"] = pd.Series(sides, rows.index, dtype=object)
    return list(rows.index[outside])


def _contradictions(rows: pd.DataFrame, given: pd.Series, faults: list[str]) -> list[Any]:
    """Refuse rows whose number contradicts their word."""
    if "p_a" not in rows:
        return []
    against = (rows["verdict"].eq("a") & (rows["p_a"] < 0.5)) | (
        rows["verdict"].eq("b") & (rows["p_a"] > 0.5)
    )
    against = against.fillna(False).astype(bool)
    if against.any():
        row = rows.index[against][0]
        faults.append(
            f"verdicts.p_a: {called(row)} has {show_cell('p_a', given[row])} and says"
            f" {rows.loc[row, 'verdict']!r} ({int(against.sum())} such rows), but it must be the"
            " chance that a is better, which does not contradict the verdict. Leave one of the two"
            " columns out, or mend the rows."
        )
    return list(rows.index[against])
