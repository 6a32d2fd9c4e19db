"""A user's own file or table, checked like any other, with all faults in one error.

The error proposes a call that reads the file.

What a file may leave out has one evident value; a verdict, a score, who judged and what kind of
rater it was are never made up.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from heart_utils.identities import (
    PEOPLE,
    code_rows,
    describe_cells,
    may_be_verdict,
    names_people,
    redact_message,
)
from heart_utils.runs import RunError, code_people_in
from heart_utils.sources.cells import read_cells
from heart_utils.sources.columns import TEXT
from heart_utils.sources.defaults import ANSWERS, NEEDED, check_last_speaker, completed
from heart_utils.sources.formats import RawTable, is_table, read_table
from heart_utils.sources.guess import Proposal, propose, refuse_doubtful, with_tool
from heart_utils.sources.options import FileOptions, check_options, plain
from heart_utils.sources.reshape import COPIES, Reshaped, reshape
from heart_utils.tables import (
    KEYS,
    TABLES,
    Column,
    DataError,
    TableError,
    check_table,
    come_again,
    empty_table,
    group_numbers,
    refuse_rows,
)

__all__: list[str] = []

Given = str | os.PathLike[str] | pd.DataFrame

MAX_UNKNOWN = 20  #: Columns that a message lists.
MADE = "made"  #: Of a table that was read: its columns that the file does not have.


def read_file(table: str, given: Given, reading: FileOptions | None = None) -> pd.DataFrame:
    """Read a user's file or table as one of the project's tables.

    All faults are reported at once, with a call that may read it.
    """
    options, faults = reading or FileOptions(), list[str]()
    check_options(options)
    file = "the DataFrame" if is_table(given) else str(Path(given).expanduser().resolve())  # type: ignore[arg-type]
    raw = read_table(
        given,
        sep=options.get("sep"),
        encoding=options.get("encoding"),
        header=options.get("header"),
        faults=faults,
    )
    if raw.rows.empty:
        raise DataError(f"{file}: it has no rows.")
    checked = read_rows(table, raw, options, Path(file).stem, faults)
    if faults:
        error_message = faults[0].removeprefix(f"{file}: ")
        if len(faults) > 1:
            listed = "".join(f"\n{number}. {fault}" for number, fault in enumerate(faults, start=1))
            error_message = f"{len(faults)} faults (row 0 is the first).{listed}"
        proposal = _tried_proposal(
            table, raw, options, any("encoding='cp1252'" in fault for fault in faults)
        )
        call = f"\n{proposal.text(given)}" if proposal.lacks or proposal.options != options else ""
        error = DataError(redact_message(f"{file}: {error_message}") + call)
        error.options = _to_be_checked(proposal) if call else {}
        raise error
    _tell(checked.attrs.get("notes", {}), len(raw.rows), len(checked))
    return _with_codes(table, checked, options)


def _to_be_checked(proposal: Proposal) -> Mapping[str, Any]:
    """Return the options proposed, with dots for what nothing in the file speaks of."""
    options: dict[str, Any] = dict(proposal.options)
    if proposal.assumed:
        options["always"] = {**options["always"], **dict.fromkeys(proposal.assumed, "...")}
    return options


def describe_file(table: str, given: Given, options: FileOptions) -> str:
    """Describe what is in a file and how it may be read, or that it can be read as it is."""
    raw = read_table(
        given,
        sep=options.get("sep"),
        encoding=options.get("encoding"),
        header=options.get("header"),
    )
    columns = ", ".join(
        f"{head}{_few_words(str(head), raw.rows[head])}" for head in raw.rows.columns
    )
    sentences = [f"{len(raw.rows):,} rows, {raw.rows.shape[1]} columns: {columns}."]
    sentences += [f"Left out on the way: {count} {reason}." for reason, count in raw.notes.items()]
    sentences += [
        f"{head} asked: {question}"
        for head, question in raw.questions.items()
        if question not in (head, "")
    ]
    faults = list[str]()
    rows = read_rows(table, raw, options, "", faults)
    sentences.append(
        _tried_proposal(table, raw, options, False).text(given)
        if faults
        else f"It reads as it is: {len(rows):,} answers."
    )
    return redact_message("\n".join(sentences))


def read_rows(
    table: str, raw: RawTable, options: FileOptions, name: str, faults: list[str]
) -> pd.DataFrame:
    """Make the project's table of the rows of a file, and gather what is wrong with it."""
    try:
        options = with_tool(table, raw.rows, options)
        refuse_doubtful(table, raw, options)
        shaped = reshape(table, raw, options, ANSWERS.get(table, ""))
        rows = _name_columns(table, shaped, options, faults)
        unreadable = read_cells(table, rows, raw.as_text, options, faults)
        left = rows.drop(index=unreadable) if unreadable else rows
        if table == "histories" and "source" not in rows:
            left["source"] = name
        checked = _checked(table, left, faults, shaped, options)
    except (TableError, DataError) as error:
        faults.append(str(error))
        return empty_table(table)
    if shaped.notes:
        checked.attrs["notes"] = shaped.notes
    checked.attrs[MADE] = [column for column in checked if column not in left]
    return checked


def _tried_proposal(
    table: str, raw: RawTable, options: FileOptions, other_encoding: bool
) -> Proposal:
    """Propose how a file may be read, and say what comes of it."""
    proposal = propose(table, raw, options)
    if table == "verdicts" and "responder_a" in proposal.lacks:
        of_scores = propose("scores", raw, options)
        proposal = proposal if of_scores.lacks else of_scores
    if other_encoding:
        proposal.options["encoding"] = "cp1252"
    unsaid = f"{proposal.options.get('shown')} {proposal.options.get('always')}"
    if proposal.lacks or "'...'" in unsaid:
        return proposal
    faults: list[str] = []
    rows = read_rows(proposal.table, raw, proposal.options, "", faults)
    first = faults[0].splitlines()[0] if faults else ""
    proposal.tried = (
        f"Read so, it still says: {first}"
        if faults
        else f"Read so, {len(raw.rows):,} rows give {len(rows):,} answers."
    )
    return proposal


def _tell(notes: Mapping[str, int], n_read: int, n_rows: int) -> None:
    """Warn about the rows of the file that do not count, by reason."""
    if left_out := {reason: count for reason, count in notes.items() if count}:
        reasons = "; ".join(f"{count:,} {reason}" for reason, count in left_out.items())
        warnings.warn(
            f"{n_read:,} rows were read and {n_rows:,} answers kept: {reasons}.", stacklevel=4
        )


def _with_codes(table: str, rows: pd.DataFrame, options: FileOptions) -> pd.DataFrame:
    """Replace raters and writers by codes where they may be people; all or none on request.

    They may be people if they look like it or a header says so.
    """
    made = rows.attrs.pop(MADE, ())
    if options.get("keep_ids"):
        return rows
    by_header = {
        name
        for head, name in (options.get("columns") or {}).items()
        if name in PEOPLE and names_people(head)
    }
    try:
        every = PEOPLE if options.get("keep_ids") is False else by_header
        # Columns that were made of the file's own hold nobody who is not in those.
        if not code_rows(rows.drop(columns=made), _no_codes, every=every)[1]:
            return rows
        return code_people_in(table, rows, every=every, texts=True)
    except RunError as error:
        raise DataError(str(error)) from None


def _no_codes(people: Iterable[str], prefix: str) -> dict[str, str]:
    return dict.fromkeys(people, prefix)


def _name_columns(
    table: str, shaped: Reshaped, options: FileOptions, faults: list[str]
) -> pd.DataFrame:
    """Rename columns as the user says, or match their own names to the table's.

    Names are matched without case, blanks and hyphens.
    """
    given, always, expected = (
        options.get("columns") or {},
        options.get("always") or {},
        TABLES[table],
    )
    meant = {plain(column): column for column in expected} | {
        plain(head): name for head, name in given.items()
    }
    rows = shaped.rows
    heads, listed = [plain(head) for head in rows.columns], ", ".join(map(str, rows.columns))
    if strange := [
        str(name)
        for name in (*given.values(), *always)
        if name is not None and name not in expected
    ]:
        faults.append(
            f"{table} has no column {', '.join(strange)}. A table of {table} has the columns"
            f" {', '.join(expected)}."
        )
    if absent := [str(head) for head in given if plain(head) not in heads]:
        faults.append(f"columns names {', '.join(absent)}, and its columns are {listed}.")
    # Faults are collected rather than raised, so that one error lists all of them; after each, the
    # rows are put into a form in which the next checks still make sense.
    names = [meant.get(head, str(name)) for head, name in zip(heads, rows.columns, strict=True)]
    rows = rows.set_axis(names, axis=1).loc[:, [name is not None for name in names]].copy()
    rows.attrs = {}
    if (again := rows.columns.duplicated()).any():
        twice = ", ".join(dict.fromkeys(rows.columns[again]))
        faults.append(
            f"{table}: several columns are {twice}, and its columns are {listed}. Leave one, as in"
            " columns={'X': None}, or make one of both, as in"
            f" made_of={{{rows.columns[again][0]!r}: '{{X}}-{{Y}}'}}."
        )
        rows = rows.loc[:, ~again]
    lacking = [column for column in NEEDED[table] if column not in rows and column not in always]
    rows = _refuse_unknown(table, rows, shaped.used, lacking, options, faults)
    if both := [column for column in always if column in rows]:
        faults.append(
            f"{table}: always names {', '.join(both)}, which is a column of its own. Leave it out"
            " of one of them."
        )
    rows = rows.assign(**{column: value for column, value in always.items() if column not in rows})
    # how sure a rater was says which it is
    if table == "verdicts" and "p_a" in rows and "verdict" not in rows:
        rows["verdict"] = pd.Series(None, rows.index, dtype=object)
    if missing := [column for column in NEEDED[table] if column not in rows]:
        faults.append(
            f"{table}: missing {', '.join(missing)}. A file of {table} must have"
            f" {', '.join(NEEDED[table])}; its columns are {listed}. Say which is which by"
            f" columns={{'its header': {missing[-1]!r}}}, or what every row has, as in"
            " always={'rater_kind': 'human'}; the book's page *Files that you have* says what may"
            " be left out."
        )
        for column in missing:  # so that the rest can be looked at
            rows[column] = _anything(column, expected[column], len(rows))
    return rows


def _refuse_unknown(
    table: str,
    rows: pd.DataFrame,
    used: set[str],
    lacking: list[str],
    options: FileOptions,
    faults: list[str],
) -> pd.DataFrame:
    """Refuse columns that are not explained, unless the user leaves out all others.

    A column without a cell holds nothing and is ignored.
    """
    unknown = [str(name) for name in rows.columns if name not in TABLES[table]]
    rest = [
        name
        for name in unknown
        if name not in used and not (rows[name].isna() | (rows[name].astype(object) == "")).all()
    ]
    if rest and options.get("others") != "drop":
        listed = ", ".join(name + _few_words(name, rows[name]) for name in rest[:MAX_UNKNOWN])
        more = f" and {len(rest) - MAX_UNKNOWN} more" if len(rest) > MAX_UNKNOWN else ""
        leave = f"leave it out: columns={{{rest[0]!r}: None}}" + (
            "; or all of them: others='drop'." if len(rest) > 1 else "."
        )
        faults.append(f"{table}: unknown {listed}{more}. Say what it is, or {leave}")
        if (
            {"rater", ANSWERS.get(table)}
            <= {*lacking}
            <= {"rater", "rater_kind", ANSWERS.get(table)}
        ):
            faults[-1] += f" If each is a rater: rater_columns={rest}."
    return rows.drop(columns=unknown)


def _few_words(head: str, cells: pd.Series) -> str:
    """Show the words of a column that may be answers to translate, else only their kind."""
    words = list(
        dict.fromkeys(str(word) for word in cells.head(2000).dropna() if str(word).strip())
    )
    return f" ({' | '.join(words) if may_be_verdict(head, words) else describe_cells(words)})"


def _anything(column: str, what: Column, n: int) -> list[Any]:
    if what.kind == "list":
        return [[{"speaker": "seeker", "text": "?"}] for _ in range(n)]
    return [
        what.words[0] if what.words else 1 if what.kind == "number" else f"{column} {row}"
        for row in range(n)
    ]


def _checked(
    table: str, rows: pd.DataFrame, faults: list[str], shaped: Reshaped, options: FileOptions
) -> pd.DataFrame:
    """Check the remaining rows, without those at fault, until no fault is found."""
    texts = {
        column: what
        for column in NEEDED[table]
        if (what := TABLES[table][column]).kind == "text" and not what.words
    }
    while len(rows):
        try:
            for column, what in texts.items():  # names of pairs and replies are made from these
                if rows[column].dtype != TEXT or (not what.nullable and rows[column].isna().any()):
                    wrong = rows[column].map(lambda cell: not isinstance(cell, str)).astype(bool)
                    refuse_rows(
                        table,
                        column,
                        wrong & (rows[column].notna() | (not what.nullable)),
                        rows[column],
                        what.expected(),
                    )
            filled, compared = completed(table, rows, shaped.sides_shown and "order" not in rows)
            if options.get("repeats") == "drop" and table == "verdicts":
                copies = _turned_copies(rows, filled)
                if copies.any():
                    shaped.notes[COPIES] = shaped.notes.get(COPIES, 0) + int(copies.sum())
                    rows = rows[~copies]
                    continue
            distinct = False
            if (numbered := options.get("repeats") in ("number", "drop")) or table == "verdicts":
                others = [filled[key] for key in KEYS[table][1:] if key != "repeat"]
                numbers = group_numbers([compared, *others])
                again = come_again(numbers)
                distinct = numbered or not again.any()
            if numbered:
                filled["repeat"] = _numbers_of_repeats(numbers, again)
            checked = check_table(table, filled, distinct=distinct)
            if table == "answers":  # whoever imports them says where each stands
                checked.index = filled.index
            if table == "histories":
                check_last_speaker(checked)
            return checked
        except TableError as fault:
            if not fault.rows:
                raise
            faults.append(str(fault))
            rows = rows.drop(index=fault.rows)
    return empty_table(table)


def _turned_copies(rows: pd.DataFrame, filled: pd.DataFrame) -> NDArray[np.bool_]:
    """Find rows that say again what another says, with the two sides changed."""
    turned = rows["responder_a"].ne(filled["responder_a"]).to_numpy()
    if not turned.any():
        return turned
    said = [name for name in filled if TABLES["verdicts"][str(name)].kind != "list"]
    same = filled.groupby(said, dropna=False, sort=False).ngroup()
    first = pd.Series(turned).groupby(same.to_numpy()).transform("first").to_numpy()
    return np.asarray(same.duplicated().to_numpy() & (first != turned))


def _numbers_of_repeats(numbers: NDArray[np.int64], again: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Count from 0 on in each group of rows that has several, as few do in a large file."""
    repeat, those = np.zeros(len(numbers), "int64"), pd.Series(numbers[again])
    repeat[again] = those.groupby(those, sort=False).cumcount()
    return repeat
