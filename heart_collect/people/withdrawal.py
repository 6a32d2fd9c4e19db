"""Withdrawal: the list ``keys/withdrawn.csv`` that every import reads, and what is deleted."""

from __future__ import annotations

import contextlib
import json
import operator
import os
import secrets
import shutil
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from heart_collect.people.arrivals import same_name
from heart_collect.people.assignment import StudyError
from heart_collect.people.exports import hold_answers, load_items, load_json
from heart_utils.runs import (
    Run,
    csv_text,
    read_csv_text,
    read_parquet,
    write_atomically,
    write_together,
)

__all__: list[str] = []

GONE = "[withdrawn]"
DISTINCT = 20  #: A text of so many characters is looked for; a shorter one may be anybody's.
INDEX = ("instance_fts",)  #: Potato's index of the pages that it shows, made anew as it starts.
AGAIN = "Give the same command again once that is mended."


def withdrawn_people(run: Run, study: str | None = None) -> list[str]:
    """List who asked to be left out: of a run, or of one study."""
    listed = _read_people(run.folder / "keys" / "withdrawn.csv", ["person", "study"])
    return listed.loc[(listed["study"] == study) | (study is None), "person"].unique().tolist()


def withdraw(run: Run, people: Sequence[str], studies: Sequence[str]) -> None:
    """Put people and their studies on the list that later imports read."""
    file = run.folder / "keys" / "withdrawn.csv"
    new = pd.DataFrame([(one, study) for study in studies for one in people])
    if len(new):
        known = _read_people(file, ["person", "study"])
        table = pd.concat([known, new.set_axis(known.columns, axis=1)]).drop_duplicates()
        write_atomically(file.with_name(".gitignore"), b"*\n", private=True)
        write_atomically(file, csv_text(table).encode(), private=True)


def _read_people(file: Path, columns: Sequence[str]) -> pd.DataFrame:
    if not file.is_file():
        return pd.DataFrame(columns=[*columns], dtype=str)
    return read_csv_text(file.read_text(encoding="utf-8"), dtype=str, keep_default_na=False)


@dataclass
class _Theirs:
    """The people to forget: names, codes, ids and words of what they wrote."""

    people: set[str]
    codes: set[str] = field(default_factory=set)
    about: set[str] = field(default_factory=set)  #: Of replies, conversations and comparisons.
    calls: set[str] = field(default_factory=set)
    words: set[str] = field(default_factory=set)
    #: Files and folders of their answers, with the study that each is of.
    answers: dict[Path, str] = field(default_factory=dict)

    def add(self, value: object) -> None:
        """Add texts long enough to be theirs alone."""
        self.words |= {text.strip() for text in _texts(value) if len(text.strip()) >= DISTINCT}

    def quoted(self, text: str) -> bool:
        return any(word in text for word in self.words)


def forget(run: Run, people: Sequence[str]) -> list[str]:
    """Delete what people wrote from the ledger, tables and answers of a run.

    They are listed first, so no later import takes them in. Returns sentences on what was deleted,
    and which files still hold their words.
    """
    studies = sorted(file.parent for file in (run.folder / "study").glob("*/study.json"))
    done: list[str] = []
    with contextlib.ExitStack() as held:
        for folder in studies:
            held.enter_context(hold_answers(folder))
        theirs = _find(run, studies, {same_name(one) for one in people})
        listed = {same_name(one) for one in withdrawn_people(run)}
        if not theirs.codes and not theirs.answers and not theirs.people <= listed:
            raise StudyError(
                f"{len(people)} names to forget took no part in a study of {run.name!r}, so nothing"
                " was deleted. Look up how they are spelt in the study."
            )
        withdraw(run, people, sorted(set(theirs.answers.values())) or [""])
        steps: list[Callable[[Run, list[Path], _Theirs], Iterator[str]]]
        steps = [_clear_ledger, _clear_files, _clear_answers]
        for number, step in enumerate(steps):
            try:
                done += step(run, studies, theirs)
            except (OSError, sqlite3.Error, ValueError) as error:
                left = [" ".join(one.__name__.split("_")[2:]) for one in steps[number:]]
                raise StudyError(
                    f"{str(error).rstrip('.')}. They are on the list of who withdrew. Deleted so"
                    f" far: {' '.join(done) or 'nothing.'} Still there: {', '.join(left)}. {AGAIN}"
                ) from error
    return [*done, *_remains(run, theirs)]


def _find(run: Run, studies: Sequence[Path], people: set[str]) -> _Theirs:
    theirs = _Theirs(people)
    known = _read_people(run.folder / "keys" / "people.csv", ["code", "person"])
    theirs.codes = set(known.loc[known["person"].map(same_name).isin(people), "code"])
    for folder in studies:
        for file in [*folder.glob("answers/*.json"), *folder.glob("answers/*/user_state.json")]:
            state = load_json(file)
            if same_name(str(state.get("person", state.get("user_id")))) not in people:
                continue
            theirs.answers[file if "person" in state else file.parent] = folder.name
            for talk in state.get("talks", {}).values():
                theirs.add([one["text"] for one in talk["turns"] if one["speaker"] == "supporter"])
                theirs.calls |= {call["call_id"] for call in talk["calls"] if call}
            given = state.get("instance_id_to_label_to_value") or {}
            theirs.add([answer for page in given.values() for _, answer in page])
            theirs.add(state.get("comments"))
    tables = [read_parquet(file) for file in _tables(run)]
    for rows in tables:
        _add_written(theirs, rows[_own(rows, theirs.codes)])
    for rows in tables:
        if "reply_a" in rows:
            theirs.about |= set(rows.loc[_about(rows, theirs.about), "comparison_id"])
    for rows in tables:
        gone = rows[_own(rows, theirs.codes) | _about(rows, theirs.about)]
        for column in ("call_id", "call_ids"):
            theirs.calls |= set(_texts(gone.get(column, pd.Series(dtype=object)).tolist()))
    return theirs


def _add_written(theirs: _Theirs, rows: pd.DataFrame) -> None:
    if "author_id" in rows:
        for column in ("reply_id", "conversation_id"):
            theirs.about |= set(rows.get(column, pd.Series(dtype=object)).dropna())
        theirs.add(rows.get("text", pd.Series(dtype=object)).tolist())
    theirs.add(rows.get("rationale", pd.Series(dtype=object)).tolist())
    for turns in rows.get("turns", []):
        theirs.add([turn["text"] for turn in turns if turn["speaker"] == "supporter"])


def _clear_ledger(run: Run, _: Sequence[Path], theirs: _Theirs) -> Iterator[str]:
    """Take the words out of calls; costs stay counted."""
    from heart_collect.calls.commands import keep_copy
    from heart_collect.calls.database import calls, chunks, keys_in, ledger_file, pack_call
    from heart_collect.calls.ledger import open_ledger
    from heart_collect.calls.models import Call
    from heart_utils.settings import extra

    with extra("collect"):
        import sqlalchemy as sa
        import zstandard

    file = ledger_file(run)
    if file is not None and not file.is_file():
        return
    unpack = zstandard.ZstdDecompressor()
    columns = [calls.c[name] for name in ("key", "status", "messages", "answer", "cost_usd")]
    nothing = dict.fromkeys(("tag", "asked", "messages", "owner", "digest"))
    emptied: dict[str, dict[str, Any]] = {}
    n_asked = 0
    with contextlib.closing(open_ledger(run)) as ledger:
        ledger.free_dead_claims()
        for chunk in chunks(sorted(ledger.keys())):
            for row in ledger.rows(sa.select(*columns), chunk):
                packed = [part for part in (row.messages, row.answer) if part]
                said = [unpack.decompress(part).decode("utf-8", "replace") for part in packed]
                asked = " ".join(_texts(json.loads(said[0]))) if row.messages else ""
                if row.key not in theirs.calls and not theirs.quoted(" ".join([asked, *said])):
                    continue
                n_asked += row.status == "claimed"
                if row.status != "claimed":
                    call = Call(secrets.token_hex(16), "error", cost_usd=row.cost_usd)
                    emptied[row.key] = {**pack_call(call), **nothing, "error": GONE}
        if n_asked:
            raise StudyError(
                f"{n_asked} calls with their words are being asked by another process or a"
                " provider's batch: its answers would come back. End it first."
            )
        with ledger.writing() as connection:
            if file is not None:
                connection.execute(sa.text("PRAGMA secure_delete = ON"))
            for key, values in emptied.items():
                connection.execute(
                    sa.update(calls).where(keys_in(ledger.engine, [key])).values(values)
                )
        if file is not None:
            _compact(file)
            older = sorted(file.parent.glob(f"{file.name}.*"))  # its copy, and damaged ones
            for one in older:
                one.unlink()
            if older:
                keep_copy(ledger)
                yield f"Ledger: {len(older)} older files of it deleted, and a copy made anew."
    if emptied:
        yield f"Ledger: {len(emptied)} calls emptied; what they cost still counts."


def _compact(file: Path) -> None:
    """Write a SQLite file anew: nothing deleted stays in it or its log."""
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        database.execute("VACUUM")
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _clear_files(run: Run, studies: Sequence[Path], theirs: _Theirs) -> Iterator[str]:
    """Write tables, pages and lists anew without them, all at once."""
    written: dict[Path, bytes] = {}
    done: list[str] = []
    for file in [*_tables(run), *(folder / "comparisons.parquet" for folder in studies)]:
        if not file.is_file():
            continue
        rows = read_parquet(file)
        kept = rows[~_own(rows, theirs.codes) & ~_about(rows, theirs.about)]
        if "rationale" in kept:
            kept = kept.assign(rationale=[_blank(text, theirs) for text in kept["rationale"]])
        if not kept.equals(rows):
            written[file] = kept.to_parquet(index=False)
            done.append(f"{file.relative_to(run.folder)}: {len(rows) - len(kept)} rows deleted.")
    for folder in studies:
        items = load_items(folder)
        blanked = [
            {**item, "replies": _blank(item["replies"], theirs)} if "replies" in item else item
            for item in items
        ]
        if n_pages := sum(map(operator.ne, items, blanked)):
            lines = [json.dumps(item, ensure_ascii=False) + "\n" for item in blanked]
            written[folder / "items.jsonl"] = "".join(lines).encode()
            done.append(f"{folder.name}: {n_pages} pages hold {GONE} instead.")
    file = run.folder / "keys" / "people.csv"
    known = _read_people(file, ["code", "person"])
    if theirs.codes:
        written[file] = csv_text(known[~known["code"].isin(theirs.codes)]).encode()
        done.append("keys/people.csv: their codes deleted.")
    write_together(written, private=True)
    yield from done


def _clear_answers(run: Run, studies: Sequence[Path], theirs: _Theirs) -> Iterator[str]:
    """Delete their answers, and lines in databases and logs."""
    for place in theirs.answers:
        if place.is_dir():
            shutil.rmtree(place)
        else:
            place.unlink()
    if theirs.answers:
        yield f"Answers: {len(theirs.answers)} deleted."
    for folder in studies:
        if (file := folder / "browsers.json").is_file():
            taken = load_json(file).items()
            others = {name: place for name, place in taken if name not in theirs.people}
            write_atomically(file, json.dumps(others).encode(), private=True)
        for file in folder.glob("*.sqlite"):
            with contextlib.closing(sqlite3.connect(file)) as database, database:
                if database.execute("SELECT 1 FROM sqlite_master WHERE name = ?", INDEX).fetchone():
                    database.execute(f"DELETE FROM {INDEX[0]}")  # noqa: S608  of the pages shown
                    database.execute(f"INSERT INTO {INDEX[0]}({INDEX[0]}) VALUES ('optimize')")  # noqa: S608
                for table, column in _columns_of_people(database):
                    for person in theirs.people:
                        database.execute(
                            f'DELETE FROM "{table}" WHERE lower(trim("{column}")) = ?',  # noqa: S608
                            (person,),
                        )
            _compact(file)
        for file in [*folder.glob("*.log"), *folder.glob("answers/*.log")]:
            lines = file.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
            kept = [line for line in lines if not _names(line, theirs)]
            if len(kept) < len(lines):
                write_atomically(file, "".join(kept).encode(), private=True)
                yield f"{folder.name}/{file.name}: {len(lines) - len(kept)} lines deleted."


def _columns_of_people(database: sqlite3.Connection) -> list[tuple[str, str]]:
    tables = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    return [
        (table, column[1])
        for (table,) in tables
        for column in database.execute(f'PRAGMA table_info("{table}")').fetchall()
        if column[1] in ("user_id", "username")
    ]


def _names(line: str, theirs: _Theirs) -> bool:
    return theirs.quoted(line) or any(person in line.casefold() for person in theirs.people)


def _remains(run: Run, theirs: _Theirs) -> Iterator[str]:
    """Name files that still hold their words, or what came of them."""
    built = [run.root / "build" / "executed" / run.name, run.root / "build" / f"html-{run.name}"]
    spelt = {
        json.dumps(word, ensure_ascii=plain)[1:-1]
        for word in theirs.words
        for plain in (False, True)
    }
    words = [word.encode() for word in theirs.words | spelt]
    for file in [file for place in (run.folder, *built) for file in place.rglob("*")]:
        if file.is_file() and any(word in file.read_bytes() for word in words):
            yield f"Still in {os.path.relpath(file, run.root)}: delete it."
    yield (
        "Copies that you made are yours to delete: of the ledger, of --export, of packs. What was"
        f" computed with their answers is made anew by `make collect RUN={run.name}` and `make book"
        f" RUN={run.name}`."
    )


def _tables(run: Run) -> list[Path]:
    return [*run.folder.glob("*.parquet"), *run.folder.glob("[!.]*/*.parquet")]


def _own(rows: pd.DataFrame, codes: Iterable[str]) -> pd.Series:
    return _among(rows, ("author_id", "rater", "coder"), codes)


def _about(rows: pd.DataFrame, ids: Iterable[str]) -> pd.Series:
    return _among(rows, ("reply_id", "conversation_id", "comparison_id", "reply_a", "reply_b"), ids)


def _among(rows: pd.DataFrame, columns: Sequence[str], values: Iterable[str]) -> pd.Series:
    cells = rows.reindex(columns=[column for column in columns if column in rows])
    return cells.isin(list(values)).any(axis=1)


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from _texts(list(value.values()))
    elif isinstance(value, list | tuple | np.ndarray):
        for one in value:
            yield from _texts(one)


def _blank(value: Any, theirs: _Theirs) -> Any:
    if isinstance(value, str):
        return GONE if theirs.quoted(value) else value
    return [_blank(one, theirs) for one in value] if isinstance(value, list) else value
