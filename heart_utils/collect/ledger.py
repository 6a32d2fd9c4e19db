"""The ledger: every call to a model, kept under the hash of what was asked, so that nothing is paid twice."""

from __future__ import annotations

import json
import os
import platform
import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
import sqlalchemy as sa
import zstandard

from heart_utils.collect.database import LedgerError, calls, connect, keys_in, now, owners, parts, upsert
from heart_utils.collect.models import Call, Request
from heart_utils.runs import Run

__all__ = ["LEVEL", "Claim", "Ledger", "LedgerError", "Money", "open_ledger", "pack_call"]

LEASE_S = 60.0
"""A process not heard of for so long is taken for dead, and its claims are free."""

LEVEL = 3
"""Of compression; 6 makes the prompts of a study 2 % smaller, and takes twice the time."""

BATCH = "batch"
"""The host of an owner that is a provider's batch: it never dies, it ends."""

ANSWER = [field.name for field in fields(Call) if field.name not in ("call_id", "text", "logprobs")]


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
    """

    def __init__(self, engine: sa.Engine) -> None:
        self.engine = engine
        self.owner = f"{os.getpid()}-{secrets.token_hex(8)}"
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

    def find(self, keys: Sequence[str]) -> dict[str, Call]:
        """Look up calls by their keys; what is only claimed is not there yet."""
        unpack = zstandard.ZstdDecompressor()
        columns = [calls.c.key, calls.c.answer, calls.c.logprobs, *(calls.c[name] for name in ANSWER)]
        found = {}
        with self.reading() as connection:
            for chunk in _chunks(list(keys), 5000):
                wanted = sa.select(*columns).where(keys_in(self.engine, calls.c.key, chunk), calls.c.status != "claimed")
                for key, answer, logprobs, *rest in connection.execute(wanted):
                    text = unpack.decompress(answer).decode() if answer else ""
                    pairs = tuple((token, value) for token, value in json.loads(logprobs)) if logprobs else None
                    self.used.add(key)
                    found[key] = Call(key, **dict(zip(ANSWER, rest, strict=True)), text=text, logprobs=pairs)
        return found

    def statuses(self, keys: Sequence[str]) -> dict[str, str]:
        """Look up only what became of calls; what is claimed is not there yet."""
        found: dict[str, str] = {}
        with self.reading() as connection:
            for chunk in _chunks(list(keys), 5000):
                among = keys_in(self.engine, calls.c.key, chunk) & (calls.c.status != "claimed")
                found.update(
                    (key, status) for key, status in connection.execute(sa.select(calls.c.key, calls.c.status).where(among))
                )
        return found

    def claim(
        self,
        requests: Sequence[Request],
        reserves: Sequence[float],
        *,
        since: float,
        budget_usd: float | None = None,
        owner: str | None = None,
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

        Returns
        -------
        Claim
            Once it is committed.
        """
        self._enrol(owner)
        pack = zstandard.ZstdCompressor(level=LEVEL)
        rows: list[dict[str, Any]] = []
        for request, reserve in zip(requests, reserves, strict=True):
            model, asked, options = request.digests
            about_it = {"tag": request.tag, "model": model, "asked": asked, "options": options, "repeat": request.repeat}
            messages = pack.compress(request.messages_json().encode("utf-8", "surrogatepass"))
            claimed = {"status": "claimed", "owner": owner or self.owner, "reserved_usd": reserve}
            rows.append({"key": request.key, **about_it, **claimed, "messages": messages})
        cap = requests[0].model.budget_usd if requests else None
        with self.writing() as connection:
            self._hold_money(connection, budget_usd if cap is None else cap)
            self._bury(connection)
            money = self._money(connection)
            left = float("inf") if budget_usd is None else budget_usd - money.bound
            if cap is not None:
                left = min(left, cap - self._money_of(connection, requests[0]))
            fit = []
            for row, reserve in zip(rows, reserves, strict=True):
                left -= reserve
                if left < 0:
                    break
                fit.append(row)
            if not fit:
                return Claim(frozenset(), len(rows), money)
            self._keep_parts(connection, requests)
            insert = upsert(self.engine, calls)
            again = insert.on_conflict_do_update(
                index_elements=["key"],
                set_={name: insert.excluded[name] for name in ("status", "owner", "reserved_usd")},
                where=(calls.c.status == "error") & (calls.c.finished_at < since),
            )
            # In the order of keys, so that two processes cannot wait for one another.
            won = connection.scalars(again.returning(calls.c.key), sorted(fit, key=lambda row: str(row["key"])))
            return Claim(frozenset(won), len(rows) - len(fit), money)

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

    def record(self, answers: Sequence[Call], unsettled: float = 0.0, *, owner: str | None = None) -> None:
        """Write answers under their claims, and what they cost, in one transaction.

        Parameters
        ----------
        answers : sequence of Call
            Where two processes answered one request, the first stands.
        unsettled : float
            USD, at most, for attempts nobody heard the end of.
        owner : str, optional
            A provider's batch, in place of this process.
        """
        self._enrol(owner)
        pack = zstandard.ZstdCompressor(level=LEVEL)
        update, book = self._recording
        rows = [{"old_key": call.call_id, **{f"new_{k}": v for k, v in pack_call(call, pack).items()}} for call in answers]
        spent = sum(call.cost_usd or 0.0 for call in answers)
        with self.writing() as connection:
            if rows:
                connection.execute(update, rows)
            connection.execute(book, {"whose": owner or self.owner, "spent": spent, "unsettled": unsettled})

    def release(self, keys: Sequence[str] | None, *, owner: str | None = None) -> None:
        """Give back claims that were not asked, or all of an owner's."""
        mine = (calls.c.owner == (owner or self.owner)) & (calls.c.status == "claimed")
        these = sa.true() if keys is None else keys_in(self.engine, calls.c.key, list(keys))
        with self.writing() as connection:
            connection.execute(calls.delete().where(these, mine))

    def in_batches(self, keys: Sequence[str]) -> set[str]:
        """Tell which of these are claimed by a provider's batch."""
        held = sa.select(owners.c.owner).where(owners.c.host == BATCH)
        with self.reading() as connection:
            mine = keys_in(self.engine, calls.c.key, list(keys)) & (calls.c.status == "claimed") & calls.c.owner.in_(held)
            return set(connection.scalars(sa.select(calls.c.key).where(mine)))

    def money(self) -> Money:
        """Read what all processes spent and reserved."""
        with self.reading() as connection:
            return self._money(connection)

    def clock(self) -> float:
        """Read the database's clock, in seconds since 1970."""
        with self.reading() as connection:
            return float(connection.scalar(sa.select(now(self.engine))) or 0.0)

    def counts(self) -> dict[str, int]:
        """Count calls by status; ``claimed`` are those in flight."""
        wanted = sa.select(calls.c.status, sa.func.count().label("n")).group_by(calls.c.status)
        with self.reading() as connection:
            return {row.status: row.n for row in connection.execute(wanted)}

    def close(self) -> None:
        """Let go of the database."""
        self.engine.dispose()

    def enrol_batch(self, owner: str) -> None:
        """Let an owner's claims outlive this process: a provider has accepted them as a batch."""
        with self.writing() as connection:
            connection.execute(owners.update().where(owners.c.owner == owner).values(host=BATCH, pid=None, started=None))

    def reading(self) -> sa.Connection:
        """Begin to read; on SQLite this locks nobody out."""
        return self.engine.connect().execution_options(reads=True)

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
        values: dict[str, Any] = {name: sa.bindparam(f"new_{name}") for name in (*ANSWER, "answer", "logprobs")}
        update = (
            calls.update()
            .where(calls.c.key == sa.bindparam("old_key"), calls.c.status == "claimed")
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
        row = {"owner": owner, "host": _host(), "pid": me.pid, "started": me.create_time(), "spent_usd": 0.0}
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
        others = sa.select(owners, now(self.engine) - owners.c.seen_at).where(
            owners.c.owner.in_(holds), owners.c.owner != self.owner, owners.c.host != BATCH
        )
        for row in connection.execute(others).all():
            silent = float(row[-1]) > LEASE_S
            gone = row.host == _host() and not _alive(row.pid, row.started)
            if not (silent or gone):
                continue
            its = (calls.c.owner == row.owner) & (calls.c.status == "claimed")
            reserved = connection.scalar(sa.select(sa.func.coalesce(sa.func.sum(calls.c.reserved_usd), 0.0)).where(its))
            unsettled = owners.c.unsettled_usd + reserved
            connection.execute(owners.update().where(owners.c.owner == row.owner).values(unsettled_usd=unsettled))
            connection.execute(calls.delete().where(its))

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
    """Give a call the form of a row.

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
    values: dict[str, Any] = {name: getattr(call, name) for name in ANSWER}
    values["answer"] = pack.compress(call.text.encode("utf-8", "replace")) if call.text else None
    # Half a character, as a token may be, is no UTF-8; both columns hold a mark in its place.
    tokens = json.dumps(call.logprobs, ensure_ascii=False).encode("utf-8", "replace").decode()
    values["logprobs"] = None if call.logprobs is None else tokens
    return values


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
        return bool(abs(process.create_time() - started) < 2.0 and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False
