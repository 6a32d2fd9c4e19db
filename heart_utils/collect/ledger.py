"""The ledger: every call to a model, kept under the hash of what was asked, so that nothing is paid twice."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache, wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import psutil  # type: ignore[import-untyped]
import sqlalchemy as sa
import tenacity
import zstandard

from heart_utils.collect.database import (
    LedgerError,
    about,
    batches,
    calls,
    connect,
    keys_in,
    now,
    owners,
    paces,
    parts,
    passes,
    upsert,
)
from heart_utils.collect.models import Call, Request
from heart_utils.runs import Run

__all__ = ["LEVEL", "Claim", "Ledger", "LedgerError", "Money", "open_ledger", "pack_call", "seal"]

P = ParamSpec("P")
T = TypeVar("T")

LEASE_S = 60.0
"""A process of another machine not heard of for so long is taken for dead, and its claims are free."""

LOOK_S = 5.0
"""The most that one look at a silent process adds to its silence: while the database was away, all were silent."""

PATIENCE_S = 900.0
"""How long a step waits for a database that restarts, is locked or cannot be reached."""

LEVEL = 3
"""Of compression; 6 makes the prompts of a study 2 % smaller, and takes twice the time."""

BATCH = "batch"
"""The host of an owner that is a provider's batch: it never dies, it ends."""

ANSWER = [field.name for field in fields(Call) if field.name not in ("call_id", "text", "logprobs")]
SEALED: dict[str, type] = {name: calls.c[name].type.python_type for name in (*ANSWER, "logprobs")}
DAMAGED = "the stored answer is damaged: it is not what was written"


def _patiently(step: Callable[Concatenate[Ledger, P], T]) -> Callable[Concatenate[Ledger, P], T]:
    """Take a step on the database again, with growing pauses, where it failed for a reason that passes."""

    @wraps(step)
    def patient(self: Ledger, /, *args: P.args, **kwargs: P.kwargs) -> T:
        again = tenacity.Retrying(
            retry=tenacity.retry_if_exception(lambda error: passes(error.__cause__)),
            wait=tenacity.wait_random_exponential(multiplier=0.2, max=10),
            stop=tenacity.stop_after_delay(self.patience_s) | tenacity.stop_when_event_set(self.hurry),
            sleep=tenacity.sleep_using_event(self.hurry),
            before_sleep=lambda state: setattr(self, "waits", str(state.outcome and state.outcome.exception())),
            reraise=True,
        )
        try:
            return again(step, self, *args, **kwargs)
        finally:
            self.waits = None

    return patient


@dataclass(frozen=True)
class Money:
    """What calls on a ledger cost so far, in USD, all processes together.

    Attributes
    ----------
    spent : float
        For answers that came, at list price.
    unsettled : float
        At most, for calls that nobody heard the end of: time-outs, dropped connections, calls in
        flight when a process was killed. They may have been billed, so a budget counts them.
    reserved : float
        At most, for calls in flight now and for requests in providers' batches.
    in_flight : float
        The part of it that is settled soon; a batch may take a day.
    """

    spent: float
    unsettled: float
    reserved: float
    in_flight: float

    @property
    def bound(self) -> float:
        """The most that all of it can come to."""
        return self.spent + self.unsettled + self.reserved


@dataclass(frozen=True)
class Claim:
    """What a process got when it claimed requests.

    Attributes
    ----------
    won : frozenset of str
        Keys that are this process's to ask.
    unfit : int
        How many, from the end, the budget did not reach for.
    money : Money
        As it stood before.
    """

    won: frozenset[str]
    unfit: int
    money: Money


class Ledger:
    """All calls of a run, or of several machines; see :func:`open_ledger`.

    Attributes
    ----------
    engine : sqlalchemy.Engine
        Its database.
    owner : str
        This process, as other processes see it.
    damaged : dict of str to float
        Keys of answers looked up that are not what was written, with the time of their writing.
    patience_s : float
        How long a step waits for a database that cannot be reached.
    hurry : threading.Event
        Once set, nothing waits any more.
    waits : str or None
        Why a step is waiting now.
    """

    def __init__(self, engine: sa.Engine) -> None:
        self.engine = engine
        self.owner = f"{os.getpid()}-{secrets.token_hex(8)}"
        self.damaged: dict[str, float] = {}
        self.patience_s = PATIENCE_S
        self.hurry = threading.Event()
        self.waits: str | None = None
        self._heard: dict[str, tuple[float, float, float]] = {}
        self._unsure: set[str] = set()
        self._known: set[str] = set()
        self.used: set[str] = set()
        self._enrolled: set[str] = set()

    @property
    def url(self) -> str:
        """Its address, without a password."""
        return self.engine.url.render_as_string(hide_password=True)

    @property
    def shared(self) -> bool:
        """Whether several machines can reach it."""
        return self.engine.dialect.name != "sqlite"

    @_patiently
    def find(self, keys: Sequence[str]) -> dict[str, Call]:
        """Look up calls by their keys; what is only claimed is not there yet, and what is damaged is an error."""
        unpack = zstandard.ZstdDecompressor()
        columns = [calls.c[name] for name in ("key", "answer", "digest", "finished_at", *SEALED)]
        found = {}
        with self.reading() as connection:
            for chunk in _chunks(list(keys), 5000):
                wanted = sa.select(*columns).where(keys_in(self.engine, calls.c.key, chunk), calls.c.status != "claimed")
                for key, answer, digest, finished_at, *rest in connection.execute(wanted):
                    self.used.add(key)
                    self.damaged.pop(key, None)
                    try:
                        found[key] = _unpack_call(key, answer, digest, dict(zip(SEALED, rest, strict=True)), unpack)
                    except (ValueError, TypeError, zstandard.ZstdError):
                        self.damaged[key] = finished_at
                        found[key] = Call(key, "error", error=DAMAGED)
        return found

    @_patiently
    def statuses(self, keys: Sequence[str] | None = None) -> dict[str, str]:
        """Look up only what became of calls, or of all; what is claimed is not there yet."""
        found: dict[str, str] = {}
        wanted = sa.select(calls.c.key, calls.c.status).where(calls.c.status != "claimed")
        with self.reading() as connection:
            for chunk in [None] if keys is None else _chunks(list(keys), 5000):
                among = sa.true() if chunk is None else keys_in(self.engine, calls.c.key, chunk)
                found.update((key, status) for key, status in connection.execute(wanted.where(among)))
        return found

    @_patiently
    def claim(
        self,
        requests: Sequence[Request],
        reserves: Sequence[float],
        *,
        since: float,
        budget_usd: float | None = None,
        owner: str | None = None,
        batch: str | None = None,
    ) -> Claim:
        """Make requests this process's to ask, those that nobody answered or claimed.

        Parameters
        ----------
        requests : sequence of Request
            What is to be asked.
        reserves : sequence of float
            The most that each may cost, in USD.
        since : float
            The database's time when the work began: what failed before it may be asked again.
        budget_usd : float, optional
            Claim only as many as fit, in their order; a model's own ``budget_usd`` counts too.
        owner : str, optional
            A provider's batch, in place of this process.
        batch : str, optional
            The model that it is for, as the table ``batches`` keeps it: the batch is noted as being created, and its
            claims outlive this process.

        Returns
        -------
        Claim
            Once it is committed.
        """
        self._enrol(owner)
        pack = zstandard.ZstdCompressor(level=LEVEL)
        claimed = {"status": "claimed", "owner": owner or self.owner}
        rows = [
            {**_asked(request, pack), **claimed, "reserved_usd": reserve}
            for request, reserve in zip(requests, reserves, strict=True)
        ]
        keys = {request.key for request in requests}
        try:
            return self._claim(requests, rows, keys, since, budget_usd, owner, batch)
        except LedgerError:  # it may have been committed all the same
            self._unsure |= keys
            self._known.clear()
            raise

    def _claim(
        self, requests: Sequence[Request], rows: list[dict[str, Any]], keys: set[str],
        since: float, budget_usd: float | None, owner: str | None, batch: str | None,
    ) -> Claim:  # fmt: skip
        cap = requests[0].model.budget_usd if requests else None
        with self.writing() as connection:
            self._hold_money(connection, budget_usd if cap is None else cap)
            self._bury(connection)
            if self._unsure & keys:
                mine = (calls.c.owner == (owner or self.owner)) & (calls.c.status == "claimed")
                connection.execute(calls.delete().where(mine, keys_in(self.engine, calls.c.key, sorted(self._unsure & keys))))
            for key in keys & set(self.damaged):  # unless somebody answered it again since it was read
                read = (calls.c.key == key) & (calls.c.finished_at == self.damaged[key])
                connection.execute(calls.update().where(read).values(status="error", finished_at=-1.0))
            money = self._money(connection)
            left = float("inf") if budget_usd is None else budget_usd - money.bound
            if cap is not None:
                left = min(left, cap - self._money_of(connection, requests[0]))
            fit = []
            for row in rows:
                left -= row["reserved_usd"]
                if left < 0:
                    break
                fit.append(row)
            self._keep_parts(connection, requests)
            insert = upsert(self.engine, calls)
            again = insert.on_conflict_do_update(
                index_elements=["key"],
                set_={name: insert.excluded[name] for name in ("status", "owner", "reserved_usd")},
                where=(calls.c.status == "error") & (calls.c.finished_at < since),
            )
            # In the order of keys, so that two processes cannot wait for one another.
            fit.sort(key=lambda row: str(row["key"]))
            won = frozenset(connection.scalars(again.returning(calls.c.key), fit)) if fit else frozenset()
            if batch is not None and won:
                connection.execute(owners.update().where(owners.c.owner == owner).values(host=BATCH))
                row = {"batch": owner, "owner": owner, "model": batch, "status": "creating", "n": len(won)}
                note = upsert(self.engine, batches).values(**row, submitted_at=now(self.engine))
                connection.execute(note.on_conflict_do_nothing())
        self._unsure -= keys
        self.damaged = {key: at for key, at in self.damaged.items() if key not in keys}
        return Claim(won, len(rows) - len(fit), money)

    @_patiently
    def reserve_more(self, request: Request, usd: float, budget_usd: float | None) -> bool:
        """Reserve money for another attempt at a claimed call; false where its model's budget or the whole does not reach."""
        cap = request.model.budget_usd
        with self.writing() as connection:
            self._hold_money(connection, budget_usd if cap is None else cap)
            if budget_usd is not None and self._money(connection).bound + usd > budget_usd:
                return False
            if cap is not None and self._money_of(connection, request) + usd > cap:
                return False
            mine = (calls.c.key == request.key) & (calls.c.status == "claimed")
            connection.execute(calls.update().where(mine).values(reserved_usd=calls.c.reserved_usd + usd))
        return True

    @_patiently
    def book(self, places: Mapping[str, float]) -> float:
        """Book a place in queues that all processes keep.

        Parameters
        ----------
        places : mapping of str to float
            Queue -> seconds that the place takes up.

        Returns
        -------
        float
            Seconds until its turn has come in all of them.
        """
        clock, wait = now(self.engine), 0.0
        with self.writing() as connection:
            for name, seconds in sorted(places.items()):
                free_at = sa.case((paces.c.next_at > clock, paces.c.next_at), else_=clock)
                book = upsert(self.engine, paces).values(name=name, next_at=clock + seconds)
                book = book.on_conflict_do_update(index_elements=["name"], set_={"next_at": free_at + seconds})
                wait = max(wait, float(connection.scalar(book.returning(paces.c.next_at - clock)) or 0.0) - seconds)
        return wait

    @_patiently
    def record(
        self,
        answers: Sequence[Call],
        unsettled: float = 0.0,
        *,
        requests: Mapping[str, Request] | None = None,
        owner: str | None = None,
        batch_ended: str | None = None,
    ) -> None:
        """Write answers, and what they cost, in one transaction.

        Parameters
        ----------
        answers : sequence of Call
            Where two processes answered one request, the first stands, unless it was an error. A claim that was lost
            loses no answer. Should the connection break while this is committed, the cost may be booked twice.
        unsettled : float
            USD, at most, for attempts nobody heard the end of.
        requests : mapping of str to Request, optional
            What was asked, by its key, for answers whose claims are gone.
        owner : str, optional
            A provider's batch, in place of this process.
        batch_ended : str, optional
            How it ended, if it did: then what it has no answer for is free.
        """
        self._enrol(owner)
        pack = zstandard.ZstdCompressor(level=LEVEL)
        update, book = self._recording
        packed = [pack_call(call, pack) for call in answers]
        rows = [{"old_key": values["key"], **{f"new_{k}": v for k, v in values.items() if k != "key"}} for values in packed]
        spent = sum(call.cost_usd or 0.0 for call in answers)
        with self.writing() as connection:
            if rows and connection.execute(update, rows).rowcount < len(rows):
                stamp = connection.scalar(sa.select(now(self.engine)))
                insert = upsert(self.engine, calls).on_conflict_do_nothing()
                for values in packed:
                    asked = _asked(requests[values["key"]], pack) if requests and values["key"] in requests else {}
                    connection.execute(insert.values(**asked | values, finished_at=stamp))
            connection.execute(book, {"whose": owner or self.owner, "spent": spent, "unsettled": unsettled})
            if batch_ended is not None:
                its = (calls.c.owner == owner) & (calls.c.status == "claimed")
                connection.execute(calls.delete().where(its))
                connection.execute(batches.update().where(batches.c.owner == owner).values(status=batch_ended))

    @_patiently
    def release(self, keys: Sequence[str] | None, *, owner: str | None = None) -> None:
        """Give back claims that were not asked, or all of an owner's."""
        mine = (calls.c.owner == (owner or self.owner)) & (calls.c.status == "claimed")
        these = sa.true() if keys is None else keys_in(self.engine, calls.c.key, list(keys))
        with self.writing() as connection:
            connection.execute(calls.delete().where(these, mine))

    @_patiently
    def in_batches(self, keys: Sequence[str]) -> set[str]:
        """Tell which of these are claimed by a provider's batch."""
        held = sa.select(owners.c.owner).where(owners.c.host == BATCH)
        with self.reading() as connection:
            mine = keys_in(self.engine, calls.c.key, list(keys)) & (calls.c.status == "claimed") & calls.c.owner.in_(held)
            return set(connection.scalars(sa.select(calls.c.key).where(mine)))

    @_patiently
    def notes(self, names: Sequence[str]) -> dict[str, str]:
        """Read what was noted about the ledger under these names."""
        with self.reading() as connection:
            rows = connection.execute(sa.select(about.c.name, about.c.value).where(about.c.name.in_(list(names))))
            return {row.name: row.value for row in rows}

    @_patiently
    def note(self, notes: Mapping[str, str]) -> None:
        """Note something about the ledger; what was noted before stands."""
        new = [{"name": name, "value": notes[name]} for name in sorted(set(notes) - set(self.notes(list(notes))))]
        if new:
            with self.writing() as connection:
                connection.execute(upsert(self.engine, about).on_conflict_do_nothing(), new)

    @_patiently
    def money(self) -> Money:
        """Read what all processes spent and reserved."""
        with self.reading() as connection:
            return self._money(connection)

    @_patiently
    def clock(self) -> float:
        """Read the database's clock, in seconds since 1970."""
        with self.reading() as connection:
            return float(connection.scalar(sa.select(now(self.engine))) or 0.0)

    @_patiently
    def counts(self) -> dict[str, int]:
        """Count calls by status; ``claimed`` are those in flight."""
        wanted = sa.select(calls.c.status, sa.func.count().label("n")).group_by(calls.c.status)
        with self.reading() as connection:
            return {row.status: row.n for row in connection.execute(wanted)}

    def close(self) -> None:
        """Let go of the database."""
        self.engine.dispose()

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """Begin to read; on SQLite this locks nobody out."""
        try:
            with self.engine.connect().execution_options(reads=True) as connection:
                yield connection
        except sa.exc.DBAPIError as error:
            raise LedgerError(f"The ledger {self.url} could not be read ({str(error.orig).splitlines()[0]}).") from error

    @contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        """Begin a transaction that writes, and commit it at the end of the block."""
        try:
            with self.engine.begin() as connection:
                yield connection
        except sa.exc.DBAPIError as error:
            raise LedgerError(
                f"The ledger {self.url} could not be written ({str(error.orig).splitlines()[0]}). "
                f"What was recorded before still stands."
            ) from error

    @cached_property
    def _recording(self) -> tuple[sa.Update, sa.Update]:
        """Make the two statements that record answers: ten times a second they would cost more than what they do."""
        clock = now(self.engine)
        values: dict[str, Any] = {name: sa.bindparam(f"new_{name}") for name in (*SEALED, "answer", "digest")}
        better = (calls.c.status == "error") & (values["status"] != "error")
        update = (
            calls.update()
            .where(calls.c.key == sa.bindparam("old_key"), (calls.c.status == "claimed") | better)
            .values(**values, owner=None, reserved_usd=None, finished_at=clock)
        )
        book = (
            owners.update()
            .where(owners.c.owner == sa.bindparam("whose"))
            .values(
                seen_at=clock,
                spent_usd=owners.c.spent_usd + sa.bindparam("spent", type_=sa.Float),
                unsettled_usd=owners.c.unsettled_usd + sa.bindparam("unsettled", type_=sa.Float),
            )
        )
        return update, book

    def _enrol(self, owner: str | None) -> None:
        """Let other processes know of this one, once it has something to write."""
        owner = owner or self.owner
        if owner in self._enrolled:
            return
        me = psutil.Process()
        row = {"owner": owner, "host": _host(), "pid": me.pid, "started": _began(me), "spent_usd": 0.0}
        with self.writing() as connection:
            enter = upsert(self.engine, owners).values(**row, seen_at=now(self.engine), unsettled_usd=0.0)
            connection.execute(enter.on_conflict_do_nothing())  # another thread may have been first
        self._enrolled.add(owner)

    def _hold_money(self, connection: sa.Connection, budget_usd: float | None) -> None:
        """Let one process at a time read the money and claim; SQLite does so anyway."""
        if budget_usd is not None and self.shared:
            connection.execute(sa.text("SELECT pg_advisory_xact_lock(4219922)"))

    def _bury(self, connection: sa.Connection) -> None:
        """Free the claims of processes that died, and book what they may have spent."""
        holds = sa.select(calls.c.owner).where(calls.c.status == "claimed").distinct()
        others = sa.select(owners).where(owners.c.owner.in_(holds), owners.c.owner != self.owner, owners.c.host != BATCH)
        for row in connection.execute(others).all():
            here = row.host == _host()
            if _alive(row.pid, row.started) if here else not self._silent(row.owner, row.seen_at):
                continue
            its = (calls.c.owner == row.owner) & (calls.c.status == "claimed")
            reserved = connection.scalar(sa.select(sa.func.coalesce(sa.func.sum(calls.c.reserved_usd), 0.0)).where(its))
            unsettled = owners.c.unsettled_usd + reserved
            connection.execute(owners.update().where(owners.c.owner == row.owner).values(unsettled_usd=unsettled))
            connection.execute(calls.delete().where(its))

    def _silent(self, owner: str, seen_at: float) -> bool:
        """Tell whether another machine's process is silent, by this one's watch: the database's clock may be set anew."""
        at = time.monotonic()
        stamp, looked, quiet = self._heard.get(owner, (seen_at, at, 0.0))
        quiet = quiet + min(at - looked, LOOK_S) if stamp == seen_at else 0.0
        self._heard[owner] = (seen_at, at, quiet)
        return quiet > LEASE_S

    def _money(self, connection: sa.Connection) -> Money:
        total = sa.select(
            sa.func.coalesce(sa.func.sum(owners.c.spent_usd), 0.0), sa.func.coalesce(sa.func.sum(owners.c.unsettled_usd), 0.0)
        )
        spent, unsettled = connection.execute(total).one()
        reserved = sa.select(sa.func.coalesce(sa.func.sum(calls.c.reserved_usd), 0.0)).where(calls.c.status == "claimed")
        batched = calls.c.owner.in_(sa.select(owners.c.owner).where(owners.c.host == BATCH))
        waiting, in_flight = (float(connection.scalar(reserved.where(part)) or 0.0) for part in (batched, ~batched))
        return Money(float(spent), float(unsettled), waiting + in_flight, in_flight)

    def _money_of(self, connection: sa.Connection, request: Request) -> float:
        """Add up what a model's calls cost and reserve; what nobody heard the end of is in the whole's money only."""
        both = sa.func.coalesce(calls.c.cost_usd, 0.0) + sa.func.coalesce(calls.c.reserved_usd, 0.0)
        return float(connection.scalar(sa.select(sa.func.sum(both)).where(calls.c.model == request.digests[0])) or 0.0)

    def _keep_parts(self, connection: sa.Connection, requests: Sequence[Request]) -> None:
        bodies = {}
        for request in requests:
            model, _, options = request.digests
            if model not in self._known:
                bodies[model] = request.model.identity
            if options not in self._known:
                bodies[options] = json.dumps(request.sampling, sort_keys=True, ensure_ascii=False)
        if bodies:
            rows = [{"digest": digest, "body": body} for digest, body in sorted(bodies.items())]
            connection.execute(upsert(self.engine, parts).on_conflict_do_nothing(), rows)
            self._known |= set(bodies)


def open_ledger(run_or_url: str | os.PathLike[str] | Run, *, seed_file: str | os.PathLike[str] | None = None) -> Ledger:
    """Open the ledger of a run, or one by its URL.

    Parameters
    ----------
    run_or_url : str, path or Run
        A run's ledger is the SQLite file ``ledger.sqlite`` in its folder, unless ``HEART_LEDGER``
        names another, such as ``postgresql+psycopg://user@host/heart``. A URL is taken as it is.
    seed_file : str or path, optional
        Calls recorded elsewhere, as JSON Lines, that the ledger shall know too. Read once.

    Returns
    -------
    Ledger
        With ``find``, ``money`` and ``counts``.

    Raises
    ------
    LedgerError
        If it cannot be reached, is no ledger, or is of another version.

    Examples
    --------
    >>> open_ledger("sqlite://").counts()
    {}
    """
    ledger = Ledger(connect(run_or_url))
    if seed_file is not None:
        from heart_utils.collect.recorded import import_calls

        import_calls(ledger, seed_file)
    return ledger


def pack_call(call: Call, pack: zstandard.ZstdCompressor) -> dict[str, Any]:
    """Give a call the form of a row, sealed.

    Parameters
    ----------
    call : Call
        What came of a request.
    pack : zstandard.ZstdCompressor
        For its text.

    Returns
    -------
    dict
        Column -> value.

    Examples
    --------
    >>> import zstandard
    >>> from heart_utils.collect.models import Call
    >>> row = pack_call(Call("k", "ok", "yes " * 500, cost_usd=0.01), zstandard.ZstdCompressor())
    >>> row["status"], len(row["answer"]) < 50, row["logprobs"]
    ('ok', True, None)
    """
    values: dict[str, Any] = {"key": call.call_id, **{name: getattr(call, name) for name in ANSWER}}
    values["answer"] = pack.compress(call.text.encode("utf-8", "replace")) if call.text else None
    # Half a character, as a token may be, is no UTF-8; both columns hold a mark in its place.
    tokens = json.dumps(call.logprobs, ensure_ascii=False).encode("utf-8", "replace").decode()
    values["logprobs"] = None if call.logprobs is None else tokens
    values["digest"] = seal(call.call_id, values["answer"], values)
    return values


def seal(key: str, answer: bytes | None, values: Mapping[str, Any]) -> str:
    """Hash what a row says of an answer, so that damage is seen.

    Parameters
    ----------
    key : str
        The row's.
    answer : bytes, optional
        As it is stored.
    values : mapping
        Column -> value; what is empty or no part of an answer does not count.

    Returns
    -------
    str
        16 hexadecimal digits.

    Examples
    --------
    >>> seal("k", None, {"status": "ok", "attempts": 1}) == seal("k", None, {"status": "ok", "attempts": 2})
    False
    """
    said = [(name, kind(values[name])) for name, kind in SEALED.items() if values.get(name) is not None]
    content = f"{key} {said!r} ".encode("utf-8", "surrogatepass") + (answer or b"")
    return hashlib.blake2b(content, digest_size=8).hexdigest()


def _unpack_call(
    key: str, answer: bytes | None, digest: str | None, values: dict[str, Any], unpack: zstandard.ZstdDecompressor
) -> Call:
    """Read a row; ValueError if it is not what was written."""
    if digest is not None and digest != seal(key, answer, values):
        raise ValueError(DAMAGED)
    text = unpack.decompress(answer).decode() if answer else ""
    pairs = values.pop("logprobs")
    return Call(key, **values, text=text, logprobs=tuple((token, p) for token, p in json.loads(pairs)) if pairs else None)


def _asked(request: Request, pack: zstandard.ZstdCompressor) -> dict[str, Any]:
    """Give the part of a row that tells what was asked."""
    model, asked, options = request.digests
    about_it = {"tag": request.tag, "model": model, "asked": asked, "options": options, "repeat": request.repeat}
    return {"key": request.key, **about_it, "messages": pack.compress(request.messages_json().encode("utf-8", "surrogatepass"))}


def _chunks(keys: list[str], size: int) -> Iterator[list[str]]:
    for start in range(0, len(keys), size):
        yield keys[start : start + size]


@lru_cache(maxsize=1)
def _host() -> str:
    """Name the machine, or the container, whose process numbers this process can see."""
    places: Iterable[str] = (platform.node(),)
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        places = (platform.node(), boot, os.readlink("/proc/self/ns/pid"))
    except OSError:
        pass  # not Linux: the name has to do
    return " ".join(places)[:200]


def _alive(pid: int, started: float) -> bool:
    try:
        process = psutil.Process(pid)
        return abs(_began(process) - started) < 2.0 and bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def _began(process: psutil.Process) -> float:
    """Give the seconds from the machine's start to the process's: setting the clock moves both."""
    return float(process.create_time() - psutil.boot_time())
