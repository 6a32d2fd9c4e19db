"""Meaning of cells in a file: ids, words of answers, the winner's name, confidence."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from heart_utils.identities import show_answer, show_cell
from heart_utils.sources.columns import TEXT, map_words
from heart_utils.sources.defaults import ANSWERS, SIDES
from heart_utils.sources.options import FileOptions, word_of
from heart_utils.sources.reshape import as_text
from heart_utils.tables import ORDERS, TABLES, VERDICTS, Column, DataError, called

__all__: list[str] = []

FAILURES = ("abstained", "refused", "unparsed", "error")
NAMES = (*SIDES, "responder", "rater")
"""Columns of names that people give, in which two spellings are one name."""


def read_cells(
    table: str, rows: pd.DataFrame, text_file: bool, options: FileOptions, faults: list[str]
) -> list[Any]:
    """Read cells as what they mean, in place; give the labels of rows where that cannot be done."""
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
        if chances := words.pop("p_a", None):  # a number for a draw, in the file's own numbers
            _translate(table, rows, {"p_a": chances})
        bad += _read_chances(rows, options.get("soft"), faults)
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
    """Read a column of CSV or Excel, in which all is text; give it with what is wrong, by row."""
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
    """Return a word of a column's own, such as ``Human`` or ``AB``, in small letters."""
    small = cell.casefold() if isinstance(cell, str) else cell
    return small if small in words else cell


def _stripped(cell: Any) -> Any:
    return cell.strip() if isinstance(cell, str) else cell


def _ids(cells: pd.Series) -> pd.Series:
    """Convert whole numbers to the text that CSV has for them.

    A list of one word becomes the word, an empty one a missing value.
    """
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
    """Replace the user's words by the table's, for the answer or a named column."""
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


def _refuse_spellings(rows: pd.DataFrame, faults: list[str]) -> None:
    """Refuse two spellings of one name or id: capitals and blanks tell nobody apart."""
    seen: dict[tuple[str, str], dict[str, str]] = {}
    for name in _spelt_with_capitals(rows.get("history_id", pd.Series(dtype=TEXT))):
        seen.setdefault(("history_id", " ".join(name.split()).casefold()), {})[name] = "history_id"
    for column in NAMES:
        for name in filter(pd.notna, rows[column].unique() if column in rows else ()):
            group = "responder" if column in SIDES else column
            seen.setdefault((group, " ".join(str(name).split()).casefold()), {}).setdefault(
                str(name), column
            )
    for (group, _), names in seen.items():
        if len(names) > 1:
            both = list(names.items())[:2]
            examples = [
                f"{called(rows.index[rows[column].eq(name).fillna(False).astype(bool)][0])} has"
                f" {show_cell(group, name)}"
                for name, column in both
            ]
            (name, column), (spelt, other) = both
            words = (
                "" if group == "rater" else f", as in words={{'{other}': {{'{spelt}': '{name}'}}}}"
            )
            faults.append(
                f"{column}: {examples[0]} and {examples[1]}, which differ in capitals or blanks"
                f" alone. Give one spelling{words}."
            )


def _spelt_with_capitals(ids: pd.Series) -> list[str]:
    """List ids where one has a capital or a blank that another may lack; in most files none has."""
    if ids.dtype != TEXT and not ids.map(lambda cell: isinstance(cell, str)).all():
        return []
    small = ids.str.lower()
    if not (small.ne(ids) | ids.str.contains(" ", regex=False)).any():
        return []
    words: list[str] = [word for word in ids.unique() if pd.notna(word)]
    return words


def _read_verdicts(rows: pd.DataFrame, head: str, faults: list[str]) -> list[Any]:
    """Take the name of one of the two for its side, and refuse every word that is no answer."""
    cells = rows["verdict"]
    if (strange := cells.notna() & ~cells.isin(VERDICTS)).any() and set(SIDES) <= set(rows):
        names = set(rows["responder_a"].dropna()) | set(rows["responder_b"].dropna())
        if not names & {*VERDICTS}:  # where somebody is called `a`, a name could be a side
            for side, column in zip(("a", "b"), SIDES, strict=True):
                cells = cells.mask(
                    strange & cells.astype(object).eq(rows[column].astype(object)), side
                )
            rows["verdict"] = cells
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
    """Take the name of who was shown first for the order, and refuse every other word."""
    if "order" not in rows or not set(SIDES) <= set(rows):
        return []
    cells = map_words(rows["order"], lambda cell: None if word_of(cell) == "" else cell)
    for order, column in zip(ORDERS, SIDES, strict=True):
        named = cells.astype(object).eq(rows[column].astype(object)) & ~cells.isin(ORDERS)
        cells = cells.mask(named, order)
    rows["order"] = cells
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


def _read_chances(
    rows: pd.DataFrame, soft: Mapping[str, float] | None, faults: list[str]
) -> list[Any]:
    """Read how sure a rater was that a is better, on the file's own scale.

    This is done before any row is turned.
    """
    if "p_a" not in rows:
        if soft:
            raise DataError(
                "soft says what the numbers of p_a mean, and no column is p_a:"
                " columns={'preference': 'p_a'}."
            )
        return []
    sure_a, sure_b = (float(soft["a"]), float(soft["b"])) if soft else (1.0, 0.0)
    given = rows["p_a"]
    filled = map_words(given, word_of) != ""
    numbers = pd.to_numeric(given, errors="coerce").astype(float)
    share = (numbers - sure_b) / (sure_a - sure_b)
    outside = filled & ~share.between(0.0, 1.0)
    low, high = sorted((sure_a, sure_b))
    if outside.any():
        first = ", ".join(
            f"{called(row)} has {show_cell('p_a', value)}"
            for row, value in given[outside].head(3).items()
        )
        more = f" ({int(outside.sum())} in all)" if outside.sum() > 1 else ""
        advice = (
            " Is it on another scale? Say which number means a for sure, and which b: soft={'a': 1,"
            " 'b': 2}."
        )
        if soft:
            advice = (
                f" If it is a draw, words={{'p_a': {{{str(given[outside].iloc[0])!r}:"
                f" {(sure_a + sure_b) / 2:g}}}}} says so."
                f" soft says that {sure_a:g} is a for sure and {sure_b:g} is b; give the two of"
                " this file's own scale."
            )
        faults.append(
            f"verdicts.p_a: expected a number from {low:g} to {high:g}, or nothing;"
            f" {first}{more}.{advice}"
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
    """Refuse rows whose number contradicts their word, with the number of the file."""
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
