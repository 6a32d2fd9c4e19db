"""Recorded calls: out of a ledger into a file, back again, and what a miss in them means."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import sqlalchemy as sa
import zstandard

from heart_utils.collect.database import LedgerError, about, calls, keys_in, parts, upsert
from heart_utils.collect.ledger import LEVEL, Ledger, open_ledger, pack_call
from heart_utils.collect.models import Call, Request
from heart_utils.runs import write_atomically

__all__ = ["ReplayError", "check_calls", "explain_miss", "export_calls", "import_calls", "merge_calls"]

CHUNK = 5000
"""Calls that are read at once."""

ASKED = ("model", "asked", "options", "repeat", "tag")
"""Columns that tell what was asked; the first three are digests."""

LIKELY = "A changed `seed`, rubric or history under `collect:` would do that, or a reply of somebody's imported since."


class ReplayError(LedgerError):
    """A request is not in the ledger, and only the ledger may answer."""


def export_calls(ledger: Ledger, file: str | os.PathLike[str], *, only_used: bool = False) -> int:
    """Write a ledger's answers as JSON Lines, sorted by key.

    What was asked is not in the file, only its hash: the code derives it again. So the file is
    a few hundred bytes a call, and holds none of the words of a data set but in the answers.

    Parameters
    ----------
    ledger : Ledger
        What is written down.
    file : str or path
        Replaced whole or not at all, and only if something changed.
    only_used : bool
        Leave out what was not looked up since the ledger was opened: answers to questions
        that the code no longer asks.

    Returns
    -------
    int
        The number of calls.

    Examples
    --------
    >>> from heart_utils.collect.models import Request
    >>> import tempfile
    >>> from heart_utils.collect.ledger import open_ledger
    >>> from heart_utils.collect.asking import ask_all
    >>> from heart_utils.collect.models import Model
    >>> says = Model("says", "openai/gpt-4o", options={"mock_response": "I hear you."})  # litellm answers itself
    >>> ledger = open_ledger("sqlite://")
    >>> _ = ask_all([Request(says, ({"role": "user", "content": "I lost my job."},))], ledger=ledger, progress=False)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "calls.jsonl")
    ...     export_calls(ledger, file), "lost my job" in file.read_text(), import_calls(open_ledger("sqlite://"), file)
    (1, False, 1)
    """
    wanted = sa.select(calls.c.key, *(calls.c[name] for name in ASKED)).where(calls.c.status != "claimed").order_by(calls.c.key)
    used = set(ledger.used)
    with ledger.reading() as connection:
        asked = {key: dict(zip(ASKED, rest, strict=True)) for key, *rest in connection.execute(wanted)}
        bodies = [row._asdict() for row in connection.execute(sa.select(parts).order_by(parts.c.digest))]
    if only_used:
        asked = {key: row for key, row in asked.items() if key in used}
    known = {row[name] for row in asked.values() for name in ("model", "options")}
    lines = [json.dumps({"part": part["digest"], "body": part["body"]}) for part in bodies if part["digest"] in known]
    found = ledger.find(list(asked))
    for key, row in asked.items():
        cells = {**asdict(found[key]), **row, "key": key}
        del cells["call_id"]
        lines.append(json.dumps({name: cell for name, cell in sorted(cells.items()) if cell is not None}, ensure_ascii=False))
    write_atomically(Path(file), "".join(f"{line}\n" for line in lines).encode())
    return len(asked)


def import_calls(ledger: Ledger, file: str | os.PathLike[str]) -> int:
    r"""Read calls that :func:`export_calls` wrote; what is recorded already stays.

    Parameters
    ----------
    ledger : Ledger
        What shall know them.
    file : str or path
        JSON Lines. One that was read before is not read again.

    Returns
    -------
    int
        The number of calls that were new. Their cost was spent elsewhere and is not counted here.

    Raises
    ------
    LedgerError
        If the file cannot be read, or a line is not a call; it names the line.

    Examples
    --------
    >>> import tempfile
    >>> from heart_utils.collect.ledger import open_ledger
    >>> ledger = open_ledger("sqlite://")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "calls.jsonl").write_text('{"key": 1}\n')
    ...     import_calls(ledger, Path(folder, "calls.jsonl"))
    Traceback (most recent call last):
        ...
    LedgerError: calls.jsonl, line 1, is not a recorded call (TypeError: Call.__init__() missing 1 required ...
    """
    path = Path(file)
    try:
        content = path.read_bytes()
        lines = content.decode().split("\n")  # not splitlines: an answer may hold another break
    except (OSError, UnicodeDecodeError) as error:
        raise LedgerError(f"{path} cannot be read as recorded calls ({error}).") from None
    seed = f"seed {hashlib.sha256(content).hexdigest()[:32]}"
    with ledger.reading() as connection:
        if connection.scalar(sa.select(about.c.value).where(about.c.name == seed)) is not None:
            return 0
    bodies, rows = _read_lines(lines, path.name)
    with ledger.writing() as connection:
        if bodies:
            connection.execute(upsert(ledger.engine, parts).on_conflict_do_nothing(), bodies)
        insert = upsert(ledger.engine, calls).on_conflict_do_nothing().returning(calls.c.key)
        new = len(list(connection.scalars(insert, rows))) if rows else 0
        connection.execute(upsert(ledger.engine, about).values(name=seed, value=path.name).on_conflict_do_nothing())
    return new


def merge_calls(ledger: Ledger, place: str | os.PathLike[str]) -> int:
    """Take in the answers of another ledger, such as one of another machine; what is recorded already stays.

    Parameters
    ----------
    ledger : Ledger
        What shall know them.
    place : str or path
        A file of SQLite, a URL, or JSON Lines that :func:`export_calls` wrote.

    Returns
    -------
    int
        How many calls came or went before a failure. Damaged ones are left out, and so is the money, which was spent
        elsewhere.

    Raises
    ------
    LedgerError
        If there is no ledger.

    Examples
    --------
    >>> from heart_utils.collect.ledger import open_ledger
    >>> merge_calls(open_ledger("sqlite://"), "nowhere.sqlite")
    Traceback (most recent call last):
        ...
    LedgerError: nowhere.sqlite: there is no such file.
    """
    name = os.fspath(place)
    if "://" not in name:
        if not Path(name).is_file():
            raise LedgerError(f"{name}: there is no such file.")
        if not name.endswith(".sqlite"):
            return import_calls(ledger, name)
        name = f"sqlite:///{name}"
    other, new = open_ledger(name), 0
    names = [column.name for column in calls.columns if column.name not in ("owner", "reserved_usd")]
    insert = upsert(ledger.engine, calls)
    better = (calls.c.status == "error") & (insert.excluded.status != "error")
    taken = insert.on_conflict_do_update(
        index_elements=["key"], set_={name: insert.excluded[name] for name in names}, where=better
    ).returning(calls.c.key)
    keys = sorted(other.statuses())
    for start in range(0, len(keys), CHUNK):
        other.find(keys[start : start + CHUNK])
        among = keys_in(other.engine, calls.c.key, keys[start : start + CHUNK])
        with other.reading() as connection:
            rows = [row._asdict() for row in connection.execute(sa.select(*(calls.c[name] for name in names)).where(among))]
            bodies = [row._asdict() for row in connection.execute(sa.select(parts))]
        sound = [row for row in rows if row["key"] not in other.damaged and row["status"] != "claimed"]
        with ledger.writing() as connection:
            connection.execute(upsert(ledger.engine, parts).on_conflict_do_nothing(), bodies)
            new += len(list(connection.scalars(taken, sound))) if sound else 0
    other.close()
    return new


def check_calls(ledger: Ledger) -> list[str]:
    """Read all that a ledger holds, and say what is damaged or doubled.

    Parameters
    ----------
    ledger : Ledger
        Any; nothing in it changes.

    Returns
    -------
    list of str
        A sentence each; none where all is sound. Answers recorded before there were digests are only unpacked.

    Raises
    ------
    LedgerError
        If its file is damaged so that it cannot be read at all.

    Examples
    --------
    >>> from heart_utils.collect.ledger import open_ledger
    >>> check_calls(open_ledger("sqlite://"))
    []
    """
    keys, faults = sorted(ledger.statuses()), []
    for start in range(0, len(keys), CHUNK):
        ledger.find(keys[start : start + CHUNK])
    with ledger.reading() as connection:
        if not ledger.shared:
            said = list(connection.scalars(sa.text("PRAGMA integrity_check(5)")))
            faults += [f"The file {ledger.url}: {line}." for line in said if line != "ok"]
        # `+ ''` keeps SQLite from counting in the index, where a row that is doubled may stand once.
        key = calls.c.key + ""
        doubled = sa.select(key).group_by(key).having(sa.func.count() > 1)
        faults += [f"Call {key} is doubled." for key in connection.scalars(doubled)]
        bodies = {row.digest: row.body for row in connection.execute(sa.select(parts))}
        rows = connection.execute(sa.select(calls.c.key, calls.c.tag, calls.c.model))
        for row in (row for row in rows if row.key in ledger.damaged):
            model = json.loads(bodies.get(row.model, "{}")).get("model", "a model that is not known")
            about_it = f" about {row.tag}" if row.tag else ""
            faults.append(f"Call {row.key} to {model}{about_it} is damaged; `make collect` asks again.")
    return faults


def explain_miss(ledger: Ledger, missing: Sequence[Request], *, total: int) -> ReplayError:
    """Say of requests that are not recorded what changed since something like the first was.

    Parameters
    ----------
    ledger : Ledger
        Which does not have them.
    missing : sequence of Request
        At least one.
    total : int
        How many were asked for.

    Returns
    -------
    ReplayError
        To be raised.

    Examples
    --------
    >>> from heart_utils.collect.models import Request
    >>> from heart_utils.collect.ledger import open_ledger
    >>> from heart_utils.collect.models import Model
    >>> ask = Request(Model("m", "openai/gpt-4o"), ({"role": "user", "content": "Hello"},), tag="h1")
    >>> str(explain_miss(open_ledger("sqlite://"), [ask], total=3))[:86]
    '1 of 3 requests are not in the ledger sqlite://; the first is to m about h1. Nothing i'
    """
    first = missing[0]
    about_it = f" about {first.tag}" if first.tag else ""
    return ReplayError(
        f"{len(missing)} of {total} requests are not in the ledger {ledger.url}; the first is to {first.model.name}{about_it}. "
        f"{_what_changed(ledger, first)} `make collect RUN={_run(ledger)}` (or mode='missing') asks for what is not recorded."
    )


def _run(ledger: Ledger) -> str:
    """Name the run whose folder holds the ledger."""
    file = Path(ledger.engine.url.database or "")
    return file.parent.name if file.name == "ledger.sqlite" else "..."


def _read_lines(lines: Sequence[str], name: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    pack = zstandard.ZstdCompressor(level=LEVEL)
    bodies, rows = [], []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
            if "part" in entry:
                bodies.append({"digest": entry["part"], "body": entry["body"]})
                continue
            asked = {key: entry.pop(key, None) for key in ASKED}
            call = Call(entry.pop("key"), **entry)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise LedgerError(f"{name}, line {number}, is not a recorded call ({type(error).__name__}: {error}).") from None
        rows.append({"key": call.call_id, **pack_call(call, pack), **asked, "finished_at": 0.0})
    return bodies, rows


def _what_changed(ledger: Ledger, request: Request) -> str:
    model, asked, options = request.digests
    answered = calls.c.status != "claimed"
    with ledger.reading() as connection:
        bodies = {row.digest: row.body for row in connection.execute(sa.select(parts))}

        def like(**where: Any) -> Any:
            wanted = sa.select(calls).where(answered, *(calls.c[name] == value for name, value in where.items())).limit(1)
            return connection.execute(wanted).first()

        if row := like(model=model, asked=asked, options=options):
            return f"The same was asked before, but not as repeat {request.repeat} (recorded: repeat {row.repeat})."
        if row := like(model=model, asked=asked):
            was = json.loads(bodies.get(row.options, "{}"))
            return f"The sampling options changed: {_difference(was, request.sampling)}."
        if row := like(asked=asked):
            was = json.loads(bodies.get(row.model, "{}"))
            return f"The model changed: {_difference(was, json.loads(request.model.identity))}."
        if request.tag and (row := like(model=model, tag=request.tag)):
            return f"The messages changed: {_message_difference(row.messages, request)}. {LIKELY}"
        if like(model=model) is None:
            n = connection.scalar(sa.select(sa.func.count()).select_from(calls).where(answered))
            return f"Nothing is recorded of this model (the ledger holds {n} calls)."
    return f"This model was asked before, but nothing with these messages. {LIKELY}"


def _difference(was: Mapping[str, Any], is_now: Mapping[str, Any]) -> str:
    names = [name for name in sorted({*was, *is_now}) if was.get(name) != is_now.get(name)]
    return "; ".join(f"{name} was {was.get(name)!r}, now {is_now.get(name)!r}" for name in names)[:400]


def _message_difference(packed: bytes | None, request: Request) -> str:
    if not packed:
        return "the recorded request about the same thing had other words"
    was = json.loads(zstandard.ZstdDecompressor().decompress(packed))
    for number, (before, after) in enumerate(zip(was, request.messages, strict=False)):
        old, new = before["content"], after["content"]
        if old != new:
            at = next((i for i, (x, y) in enumerate(zip(old, new, strict=False)) if x != y), min(len(old), len(new)))
            start = max(0, at - 20)
            return f"message {number} read {old[start : at + 40]!r}, now {new[start : at + 40]!r}"
    return f"{len(was)} messages became {len(request.messages)}"
