"""The door to data: a set that the project knows, by name, or a user's own file, by path.

A verdict, a score, who judged and what kind of rater it was are never made up.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from heart_utils.identities import (
    PEOPLE,
    code_rows,
    describe_cells,
    names_people,
    redact_message,
)
from heart_utils.runs import PUBLIC, RunError, code_people_in, open_run, read_parquet
from heart_utils.sources.catalogue import SOURCES
from heart_utils.sources.defaults import (
    ANSWERS,
    NEEDED,
    REST,
    TEMPLATE,
    TEXT,
    FileOptions,
    check_last_speaker,
    check_options,
    complete,
    plain,
    read_sample,
)
from heart_utils.sources.formats import (
    COMPRESSED,
    SUFFIXES,
    RawTable,
    is_table,
    read_table,
    suffix_of,
)
from heart_utils.sources.guess import Proposal, propose, refuse_doubtful, with_tool
from heart_utils.sources.heart import load_esconv, load_heart, published_replies
from heart_utils.sources.pairs import scores_to_verdicts
from heart_utils.sources.reshape import COPIES, Reshaped, read_cells, reshape
from heart_utils.tables import (
    TABLES,
    Column,
    DataError,
    TableError,
    check_table,
    empty_table,
    refuse_rows,
)

__all__ = [
    "describe_votes",
    "load_conversations",
    "load_histories",
    "load_replies",
    "load_scores",
    "load_verdicts",
]

Given = str | os.PathLike[str] | pd.DataFrame

MAX_UNKNOWN = 20  #: Columns that a message lists.
MAX_LOOKED_AT = 2000  #: Cells that say of which kind a column is.
MADE = "made"  #: Of a table that was read: its columns that the file does not have.


def load_histories(
    name_or_path: Given, *, twins: bool = False, **reading: Unpack[FileOptions]
) -> pd.DataFrame:
    """Load histories: dialogues that stop where a supporter must answer.

    Parameters
    ----------
    name_or_path
        ``"sample"`` (36 drafted for this project), ``"heart"`` (280 standard, 20 adversarial, cut
        from ESConv), ``"esconv"`` (1,300 whole dialogues), or a file or DataFrame of one's own.
    twins
        With ``"heart"``, add each adversarial history's calm original (slice ``calm_twin``).
    **reading
        As in :func:`load_verdicts`.

    Returns
    -------
    pandas.DataFrame
        A table of histories: ``history_id``, ``dialogue_id`` (histories cut from one dialogue share
        it), ``slice``, ``turns`` (dicts with ``speaker`` and ``text``), ``licence`` and more.

    Raises
    ------
    DataError
        If a file does not hold histories, or a name is not known.
    DataUnavailableError
        If a data set is not on this machine; the message says how to fetch it.

    Examples
    --------
    >>> load_histories("sample")["slice"].value_counts().to_dict()
    {'standard': 24, 'adversarial': 12}
    """
    name = _name(name_or_path, ("sample", "heart", "esconv"), "histories", reading)
    if twins and name not in ("heart", "sample"):
        raise DataError(
            f"twins=True adds HEART's calm originals; {_called(name_or_path)} has none."
        )
    if name is None:
        return read_file("histories", name_or_path, reading)
    if name == "sample":
        return read_sample("histories")
    return load_heart(twins=twins) if name == "heart" else load_esconv()


def load_replies(
    name_or_path: Given, *, twins: bool = False, **reading: Unpack[FileOptions]
) -> pd.DataFrame:
    """Load replies: what was written for histories.

    Parameters
    ----------
    name_or_path
        ``"sample"``, ``"heart"`` or ``"esconv"`` (what came with those histories), or a file or
        DataFrame.
    twins, **reading
        As in :func:`load_histories`.

    Returns
    -------
    pandas.DataFrame
        A table of replies.

    Raises
    ------
    DataError
        As in :func:`load_histories`.

    Examples
    --------
    >>> mine = pd.DataFrame({"Chat": ["h1"], "Author": ["ann"], "Text": ["That sounds hard."]})
    >>> columns = {"Chat": "history_id", "Author": "responder"}
    >>> load_replies(mine, columns=columns)["reply_id"].tolist()
    ['h1--ann']
    """
    name = _name(name_or_path, ("sample", "heart", "esconv"), "replies", reading)
    if name is None:
        return read_file("replies", name_or_path, reading)
    return published_replies(name, twins=twins)


def load_conversations(name_or_path: Given, **reading: Unpack[FileOptions]) -> pd.DataFrame:
    """Load whole conversations of one's own: from a start on, a responder and a seeker in turn.

    Parameters
    ----------
    name_or_path
        A file or DataFrame with ``history_id`` (the start), ``responder``, ``seeker`` (who played
        the seeker, or a person's code) and ``turns`` (after the start, each with ``speaker`` and
        ``text``).
    **reading
        As in :func:`load_verdicts`.

    Returns
    -------
    pandas.DataFrame
        A table of conversations; ``n_exchanges`` is counted where the file does not say it.

    Raises
    ------
    DataError
        If a column is missing, a turn has no speaker or text, or the turns hold another number of
        exchanges than the file says.

    Examples
    --------
    >>> said = {"supporter": "What happened?", "seeker": "She left."}
    >>> turns = [{"speaker": speaker, "text": text} for speaker, text in said.items()]
    >>> mine = {"history_id": ["h"], "responder": "ann", "seeker": "s1", "turns": [turns]}
    >>> load_conversations(pd.DataFrame(mine))[["conversation_id", "n_exchanges"]].values.tolist()
    [['h--s1--ann', 1]]
    """
    _name(name_or_path, (), "conversations", reading)
    return read_file("conversations", name_or_path, reading)


def load_scores(
    name_or_path: Given, *, as_published: bool = False, **reading: Unpack[FileOptions]
) -> pd.DataFrame:
    """Load scores: numbers that raters gave to one reply alone, on each study's own scale.

    Parameters
    ----------
    name_or_path
        ``"mentalalign"``, ``"empathic_comm"``, ``"recipients"``, ``"therapists"``,
        ``"can_ai_relate"``; of whole conversations ``"sage"``, ``"ieval"``, ``"mibot"``; or a file
        or DataFrame.
    as_published
        With ``"mentalalign"``, zeros and sixes count as valid, as in its tables.
    **reading
        As in :func:`load_verdicts`.

    Returns
    -------
    pandas.DataFrame
        One row a reply, rater and dimension, with ``state`` (``valid`` or why not). What was left
        out is counted in ``attrs["notes"]``.

    Raises
    ------
    DataError
        If a file does not hold scores; the message names file, row and column.

    Examples
    --------
    >>> mine = pd.DataFrame({"history_id": ["h"], "responder": "m", "rater": "ann", "score": 4})
    >>> scores = load_scores(mine, always={"rater_kind": "human", "dimension": "empathy"})
    >>> scores[["rater", "score", "state"]].values.tolist()
    [['ann', 4.0, 'valid']]
    """
    studies = tuple(name for name, source in SOURCES.items() if source.table == "scores")
    name = _name(name_or_path, studies, "scores", reading)
    if as_published and name != "mentalalign":
        raise DataError(
            f"as_published=True is about mentalalign's tables; {_called(name_or_path)} has none."
        )
    if name is None:
        return read_file("scores", name_or_path, reading)
    return _published(name, "as_published" if as_published else "scores")


def load_responders(name: str) -> pd.DataFrame:
    """Load who wrote the replies of a data set."""
    if name == "sample":
        return read_sample("responders")
    source = SOURCES.get(name)
    if source is None or not source.responders:
        known = ", ".join(name for name, source in SOURCES.items() if source.responders)
        raise DataError(f"No responders are known for {name!r}. They are for {known} and sample.")
    return check_table("responders", pd.DataFrame(source.responders))


def load_verdicts(name_or_path: Given, **reading: Unpack[FileOptions]) -> pd.DataFrame:
    """Load verdicts: which of two replies raters preferred.

    A column or word that is not clear is an error, which proposes the call that reads the file.

    Parameters
    ----------
    name_or_path
        ``"mtbench"`` (votes of people and of GPT-4), ``"mentalalign"`` (pairs made from its
        scores), or one's own: a DataFrame, Arrow, ``.csv``, ``.tsv``, ``.xlsx``, ``.parquet``,
        ``.json``, ``.jsonl`` or ``.eval`` (of inspect_ai), packed as ``.gz`` or ``.zst`` too.
    **reading
        How a file of one's own is read; see the notes.

    Returns
    -------
    pandas.DataFrame
        One row an answer: ``pair_id``, ``responder_a`` and ``responder_b`` (a first in the
        alphabet), ``rater``, ``verdict`` (``a``, ``b``, ``tie`` or missing), ``state`` (``valid``
        or why not), ``order`` and more. What was left out is counted in ``attrs["notes"]``.

    Raises
    ------
    DataError
        If a file does not hold verdicts; the message lists all its faults.

    Notes
    -----
    The options of `reading`, needed where headers and words are not the table's own:

    ``tool``
        The tool that wrote the file, such as ``"Label Studio"``: its conventions hold where the
        other options say nothing. A wrong name lists the known ones.
    ``columns``
        Header -> a column of the table, or ``None`` to leave it out; ``"*": None`` leaves out all
        not named. A header may be a path (``options.0.id``). Of several headers that are the
        answer each is a row, and ``{column}`` says which. ``"verdict:a"`` is a column that is
        marked where a won, ``"count:a"`` how often it did.
    ``words``
        The file's word, in any case, -> ``"a"``, ``"b"``, ``"tie"`` or a failure, such as
        ``"abstained"``; ``""`` is an empty cell. A column's name -> such a mapping for it:
        ``{"order": {"0": "ab", "1": "ba"}}`` (``ab``: the reply of ``responder_a`` was shown
        first), ``{"p_a": {"1": 1, "2": 0}}`` (1 is a for sure, 2 is b).
    ``always``
        Column that the file lacks -> its value in every row, which may hold other cells, as in
        ``"{question_id}-{turn}"``, or the row's number, ``{row}``.
    ``only``
        Header -> the value or values of the rows that count.
    ``shown``
        A table (path, DataFrame or list) of what was shown, joined by the columns that both have.
    ``repeats``
        ``"number"``: what comes again is a repeat. ``"drop"``: rows that are the same in every cell
        count once; what else comes again is a repeat.
    ``keep_ids``
        By default ids that look like a person's become codes, whose key is ``keys/people.csv``, and
        addresses are taken out of texts; ``False`` codes every person, ``True`` leaves all as it
        is.

    Examples
    --------
    >>> mine = pd.DataFrame({"Chat": ["c1"], "Links": "bot", "Rechts": "ann", "Urteil": "rechts"})
    >>> columns = {"Chat": "history_id", "Links": "responder_a", "Rechts": "responder_b"}
    >>> rows = load_verdicts(
    ...     mine,
    ...     columns=columns | {"Urteil": "verdict"},
    ...     words={"links": "a", "rechts": "b"},
    ...     always={"rater": "eve", "rater_kind": "human"},
    ... )
    >>> rows[["responder_a", "responder_b", "verdict"]].values.tolist()  # sorted by name
    [['ann', 'bot', 'a']]
    """
    name = _name(name_or_path, ("mtbench", "mentalalign"), "verdicts", reading)
    if name is None:
        return read_file("verdicts", name_or_path, reading)
    if name == "mtbench":
        return _published(name, "verdicts")
    return scores_to_verdicts(_published(name, "scores"))


def describe_votes(path: Given, **reading: Unpack[FileOptions]) -> None:
    """Print what a file of votes seems to hold and the call that may read it, without loading it.

    Parameters
    ----------
    path, **reading
        As in :func:`load_verdicts`.

    Raises
    ------
    DataError
        If the file cannot be read at all.

    Examples
    --------
    >>> games = pd.DataFrame({"winner": ["x", "y"], "loser": ["y", "x"]})
    >>> describe_votes(games)  # doctest: +ELLIPSIS
    2 rows, 2 columns: winner ..., loser ...
    What may be meant (it looks like winners and losers), to be checked before it is
    believed:
    load_verdicts(
        rows,
        columns={'winner': 'responder_a', 'loser': 'responder_b'},
        ...
    """
    raw, faults = read_table(path), list[str]()
    columns = _list_kinds(raw.rows, raw.rows.columns)
    sentences = [f"{len(raw.rows):,} rows, {raw.rows.shape[1]} columns: {columns}."]
    sentences += [f"Left out on the way: {count} {reason}." for reason, count in raw.notes.items()]
    rows = read_rows("verdicts", raw, reading, "", faults)
    sentences.append(
        _tried_proposal("verdicts", raw, reading).text(path)
        if faults
        else f"It reads as it is: {len(rows):,} answers."
    )
    print(redact_message("\n".join(sentences)))


def _published(name: str, folder: str) -> pd.DataFrame:
    file = open_run(PUBLIC).folder / folder / f"{name}.parquet"
    if not file.is_file():
        raise DataError(
            f"{file} is not there. It is part of the repository: `git checkout data/public` brings"
            " it back."
        )
    return check_table("scores" if folder == "as_published" else folder, read_parquet(file))


def _called(name_or_path: Given) -> str:
    return "the DataFrame" if is_table(name_or_path) else os.fspath(name_or_path)  # type: ignore[arg-type]


def _name(
    name_or_path: Given, known: tuple[str, ...], table: str, reading: FileOptions
) -> str | None:
    if strange := sorted(set(reading) - set(FileOptions.__annotations__)):
        options = ", ".join(FileOptions.__annotations__)
        raise TypeError(
            f"load_{table} has no option {', '.join(strange)}; of files it has {options}."
        )
    if is_table(name_or_path):
        return None
    if not isinstance(name_or_path, str | os.PathLike):
        what = f"load_{table} was given a {type(name_or_path).__name__}"
        raise DataError(
            f"{what}; expected the name of a set ({', '.join(known)}), a path or a DataFrame."
        )
    given = os.fspath(name_or_path)
    if given in known:
        if file_options := [option for option, value in reading.items() if value]:
            raise DataError(
                f"{', '.join(file_options)} is about a file of your own; {given} is a set that is"
                " known."
            )
        return given
    if suffix_of(Path(given)) not in SUFFIXES:
        fault = f"{given!r} is neither a set with {table} ({', '.join(known)})"
        raise DataError(
            f"{fault} nor a path that ends in {', '.join(SUFFIXES)}, or in one of these and"
            f" {' or '.join(COMPRESSED)}."
        )
    return None


def read_file(table: str, given: Given, reading: FileOptions | None = None) -> pd.DataFrame:
    """Read a user's file or table as one of the project's tables, or report all faults at once."""
    options, faults = reading or FileOptions(), list[str]()
    check_options(options)
    file = "the DataFrame" if is_table(given) else str(Path(given).expanduser().resolve())  # type: ignore[arg-type]
    raw = read_table(given)
    if raw.rows.empty:
        raise DataError(f"{file}: it has no rows.")
    checked = read_rows(table, raw, options, Path(file).stem, faults)
    if faults:
        error_message = faults[0].removeprefix(f"{file}: ")
        if len(faults) > 1:
            listed = "".join(f"\n{number}. {fault}" for number, fault in enumerate(faults, start=1))
            error_message = f"{len(faults)} faults (row 0 is the first).{listed}"
        proposal = _tried_proposal(table, raw, options)
        call = f"\n{proposal.text(given)}" if proposal.lacks or proposal.options != options else ""
        error = DataError(redact_message(f"{file}: {error_message}") + call)
        error.options = proposal.to_be_checked() if call else {}
        raise error
    _tell(checked.attrs.get("notes", {}), len(raw.rows), len(checked))
    return _with_codes(table, checked, options)


def read_rows(
    table: str, raw: RawTable, options: FileOptions, name: str, faults: list[str]
) -> pd.DataFrame:
    """Make the project's table of a file's rows, and gather what is wrong."""
    try:
        options = with_tool(table, raw.rows, options)
        refuse_doubtful(table, raw, options)
        shaped = reshape(table, raw, options)
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


def _tried_proposal(table: str, raw: RawTable, options: FileOptions) -> Proposal:
    """Propose how a file may be read, and try it."""
    proposal = propose(table, raw, options)
    if table == "verdicts" and "responder_a" in proposal.lacks:
        of_scores = propose("scores", raw, options)
        proposal = proposal if of_scores.lacks else of_scores
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
    if left_out := {reason: count for reason, count in notes.items() if count}:
        reasons = "; ".join(f"{count:,} {reason}" for reason, count in left_out.items())
        warnings.warn(
            f"{n_read:,} rows were read and {n_rows:,} answers kept: {reasons}.", stacklevel=4
        )


def _with_codes(table: str, rows: pd.DataFrame, options: FileOptions) -> pd.DataFrame:
    """Replace raters and writers by codes if they look like people or a header says so."""
    made = rows.attrs.pop(MADE, ())
    if options.get("keep_ids"):
        return rows
    named = [*(options.get("columns") or {}).items()]
    for name, template in (options.get("always") or {}).items():
        named += [(head, name) for head in TEMPLATE.findall(str(template))]
    by_header = {name for head, name in named if name in PEOPLE and names_people(head)}
    try:
        every = PEOPLE if options.get("keep_ids") is False else by_header
        # Columns that were made of the file's own hold nobody who is not in those.
        if not code_rows(rows.drop(columns=made), dict.fromkeys, every=every)[1]:
            return rows
        return code_people_in(table, rows, every=every, texts=True)
    except RunError as error:
        raise DataError(str(error)) from None


def _name_columns(
    table: str, shaped: Reshaped, options: FileOptions, faults: list[str]
) -> pd.DataFrame:
    """Rename columns as the user says, or match names without case, blanks and hyphens."""
    given, always, expected = shaped.columns, shaped.always, TABLES[table]
    meant = {plain(column): column for column in expected} | {
        plain(head): name for head, name in given.items()
    }
    rows = shaped.rows
    heads, listed = [plain(head) for head in rows.columns], ", ".join(map(str, rows.columns))
    named = [str(name) for name in (*given.values(), *always) if name is not None]
    if strange := [name for name in named if name not in expected]:
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
            f" always={{{rows.columns[again][0]!r}: '{{X}}-{{Y}}'}}."
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
    """Refuse columns with cells that are not explained, unless all others are left out."""
    unknown = [str(name) for name in rows.columns if name not in TABLES[table]]
    rest = [
        name
        for name in unknown
        if name not in used and not (rows[name].isna() | (rows[name].astype(object) == "")).all()
    ]
    if rest and REST not in (options.get("columns") or {}):
        listed = _list_kinds(rows, rest[:MAX_UNKNOWN])
        more = f" and {len(rest) - MAX_UNKNOWN} more" if len(rest) > MAX_UNKNOWN else ""
        leave = f"leave it out: columns={{{rest[0]!r}: None}}" + (
            f"; or all of them: columns={{{REST!r}: None}}." if len(rest) > 1 else "."
        )
        faults.append(f"{table}: unknown {listed}{more}. Say what it is, or {leave}")
        if (
            {"rater", ANSWERS.get(table)}
            <= {*lacking}
            <= {"rater", "rater_kind", ANSWERS.get(table)}
        ):
            meant = dict.fromkeys(rest, ANSWERS.get(table))
            faults[-1] += f" If each is a rater: columns={meant}, always={{'rater': '{{column}}'}}."
    return rows.drop(columns=unknown)


def _list_kinds(rows: pd.DataFrame, heads: Iterable[str]) -> str:
    """List columns with the kind of their values, and none of them."""
    kinds = {head: describe_cells(rows[head].head(MAX_LOOKED_AT)) for head in heads}
    return ", ".join(f"{head} ({kind})" for head, kind in kinds.items())


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
                cells = rows[column]
                if cells.dtype != TEXT or cells.isna().any():
                    wrong = cells.map(lambda cell: not isinstance(cell, str)).astype(bool)
                    wrong &= cells.notna() | (not what.nullable)
                    refuse_rows(table, column, wrong, cells, what.expected())
            numbered = table == "verdicts" and options.get("repeats") in ("number", "drop")
            shown = shaped.sides_shown and "order" not in rows
            filled = complete(table, rows, sides_shown=shown, numbered=numbered)
            if options.get("repeats") == "drop" and table == "verdicts":
                own = rows["repeat"].to_numpy() if "repeat" in rows else 0
                copies = _turned_copies(rows, filled.assign(repeat=own))
                if copies.any():
                    shaped.notes[COPIES] = shaped.notes.get(COPIES, 0) + int(copies.sum())
                    rows = rows[~copies]
                    continue
            named = {"pair_id", "comparison_id"} & {*rows}
            checked = check_table(table, filled, numbered=numbered and not named)
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
