"""The ledger: every call to a model, kept under the hash of what was asked, so that nothing is paid twice."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
import sqlalchemy as sa
import zstandard

from heart_utils.collect.database import LedgerError, about, calls, connect, keys_in, now, owners, parts, upsert
from heart_utils.collect.models import Call, Request
from heart_utils.runs import Run, write_atomically

__all__ = ["Claim", "Ledger", "LedgerError", "Money", "ReplayError", "open_ledger"]

LEASE_S = 60.0
"""A process not heard of for so long is taken for dead, and its claims are free."""

BATCH = "batch"
"""The host of an owner that is a provider's batch: it never dies, it ends."""

ANSWER = [field.name for field in fields(Call) if field.name not in ("call_id", "text", "logprobs")]


class ReplayError(LedgerError):
    """A request is not in the ledger, and only the ledger may answer."""


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
        At most, for calls in flight now.
    """

    spent: float
    unsettled: float
    reserved: float

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
        self._enrolled = False

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
        with self._reading() as connection:
            for chunk in _chunks(list(keys), 5000):
                wanted = sa.select(*columns).where(keys_in(self.engine, calls.c.key, chunk), calls.c.status != "claimed")
                for key, answer, logprobs, *rest in connection.execute(wanted):
                    text = unpack.decompress(answer).decode() if answer else ""
                    pairs = tuple((token, value) for token, value in json.loads(logprobs)) if logprobs else None
                    found[key] = Call(key, **dict(zip(ANSWER, rest, strict=True)), text=text, logprobs=pairs)
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
            Claim only as many as fit, in their order.
        owner : str, optional
            A provider's batch, in place of this process.

        Returns
        -------
        Claim
            Once it is committed.
        """
        self._enrol()
        pack = zstandard.ZstdCompressor(level=6)
        rows: list[dict[str, Any]] = []
        for request, reserve in zip(requests, reserves, strict=True):
            model, asked, options = request.digests
            about_it = {"tag": request.tag, "model": model, "asked": asked, "options": options, "repeat": request.repeat}
            messages = pack.compress(request.messages_json().encode("utf-8", "surrogatepass"))
            claimed = {"status": "claimed", "owner": owner or self.owner, "reserved_usd": reserve}
            rows.append({"key": request.key, **about_it, **claimed, "messages": messages})
        with self._writing() as connection:
            self._hold_money(connection, budget_usd)
            self._bury(connection)
            money = self._money(connection)
            left = float("inf") if budget_usd is None else budget_usd - money.bound
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

    def reserve_more(self, key: str, usd: float, budget_usd: float) -> bool:
        """Reserve money for another attempt at a claimed call; false where the budget does not reach."""
        with self._writing() as connection:
            self._hold_money(connection, budget_usd)
            if self._money(connection).bound + usd > budget_usd:
                return False
            mine = (calls.c.key == key) & (calls.c.status == "claimed")
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
        self._enrol()
        pack = zstandard.ZstdCompressor(level=6)
        clock = now(self.engine)
        values: dict[str, Any] = {name: sa.bindparam(f"new_{name}") for name in (*ANSWER, "answer", "logprobs")}
        update = (
            calls.update()
            .where(calls.c.key == sa.bindparam("old_key"), calls.c.status == "claimed")
            .values(**values, owner=None, reserved_usd=None, finished_at=clock)
        )
        rows = [{"old_key": call.call_id, **{f"new_{k}": v for k, v in _packed(call, pack).items()}} for call in answers]
        with self._writing() as connection:
            if rows:
                connection.execute(update, rows)
            connection.execute(
                owners.update()
                .where(owners.c.owner == (owner or self.owner))
                .values(
                    seen_at=clock,
                    spent_usd=owners.c.spent_usd + sum(call.cost_usd or 0.0 for call in answers),
                    unsettled_usd=owners.c.unsettled_usd + unsettled,
                )
            )

    def release(self, keys: Sequence[str], *, owner: str | None = None) -> None:
        """Give back claims that were not asked."""
        mine = (calls.c.owner == (owner or self.owner)) & (calls.c.status == "claimed")
        with self._writing() as connection:
            connection.execute(calls.delete().where(keys_in(self.engine, calls.c.key, list(keys)), mine))

    def money(self) -> Money:
        """Read what all processes spent and reserved."""
        with self._reading() as connection:
            return self._money(connection)

    def clock(self) -> float:
        """Read the database's clock, in seconds since 1970."""
        with self._reading() as connection:
            return float(connection.scalar(sa.select(now(self.engine))) or 0.0)

    def counts(self) -> dict[str, int]:
        """Count calls by status; ``claimed`` are those in flight."""
        wanted = sa.select(calls.c.status, sa.func.count().label("n")).group_by(calls.c.status)
        with self._reading() as connection:
            return {row.status: row.n for row in connection.execute(wanted)}

    def explain(self, missing: Sequence[Request], *, total: int) -> ReplayError:
        """Say of requests that are not recorded what changed since something like the first was.

        Parameters
        ----------
        missing : sequence of Request
            At least one.
        total : int
            How many were asked for.

        Returns
        -------
        ReplayError
            To be raised.
        """
        first = missing[0]
        about_it = f" about {first.tag}" if first.tag else ""
        return ReplayError(
            f"{len(missing)} of {total} requests are not in the ledger {self.url}; the first is to {first.model.name}"
            f"{about_it}. "
            f"{self._what_changed(first)} `make collect` (or mode='missing') asks for what is not recorded."
        )

    def export_calls(self, file: str | os.PathLike[str]) -> int:
        """Write all answers as JSON Lines, sorted by key.

        What was asked is not in the file, only its hash: the code derives it again. So the file is
        a few hundred bytes a call, and holds none of the words of a data set but in the answers.

        Parameters
        ----------
        file : str or path
            Replaced whole or not at all, and only if something changed.

        Returns
        -------
        int
            The number of calls.
        """
        lines = [json.dumps({"part": digest, "body": body}, ensure_ascii=False) for digest, body in self._parts()]
        with self._reading() as connection:
            keys = list(connection.scalars(sa.select(calls.c.key).where(calls.c.status != "claimed").order_by(calls.c.key)))
            digests = {
                key: rest
                for key, *rest in connection.execute(
                    sa.select(calls.c.key, calls.c.model, calls.c.asked, calls.c.options, calls.c.repeat, calls.c.tag)
                )
            }
        found = self.find(keys)
        for key in keys:
            row = {**asdict(found[key]), **dict(zip(("model", "asked", "options", "repeat", "tag"), digests[key], strict=True))}
            row["key"] = row.pop("call_id")
            lines.append(json.dumps({k: v for k, v in sorted(row.items()) if v is not None}, ensure_ascii=False))
        write_atomically(Path(file), ("\n".join(lines) + "\n").encode())
        return len(keys)

    def import_calls(self, file: str | os.PathLike[str]) -> int:
        """Read calls that :meth:`export_calls` wrote; what is recorded already stays.

        Parameters
        ----------
        file : str or path
            JSON Lines.

        Returns
        -------
        int
            The number of calls that were new. Their cost was spent elsewhere and is not counted here.

        Raises
        ------
        LedgerError
            If a line is not a call; it names the line.
        """
        content = Path(file).read_bytes()
        seed = f"seed {hashlib.sha256(content).hexdigest()[:32]}"
        with self._reading() as connection:
            if connection.scalar(sa.select(about.c.value).where(about.c.name == seed)) is not None:
                return 0
        bodies, rows = _read_lines(content.decode(), Path(file).name)
        with self._writing() as connection:
            if bodies:
                connection.execute(upsert(self.engine, parts).on_conflict_do_nothing(), bodies)
            insert = upsert(self.engine, calls).on_conflict_do_nothing().returning(calls.c.key)
            new = len(list(connection.scalars(insert, rows))) if rows else 0
            connection.execute(upsert(self.engine, about).values(name=seed, value=Path(file).name).on_conflict_do_nothing())
        return new

    def close(self) -> None:
        """Let go of the database."""
        self.engine.dispose()

    def enrol_batch(self, owner: str) -> None:
        """Make a provider's batch an owner, whose claims hold until it is collected or dropped."""
        row = {"owner": owner, "host": BATCH, "seen_at": now(self.engine), "spent_usd": 0.0, "unsettled_usd": 0.0}
        with self._writing() as connection:
            connection.execute(upsert(self.engine, owners).values(row).on_conflict_do_nothing())

    def _reading(self) -> sa.Connection:
        return self.engine.connect().execution_options(reads=True)

    @contextmanager
    def _writing(self) -> Iterator[sa.Connection]:
        try:
            with self.engine.begin() as connection:
                yield connection
        except sa.exc.DBAPIError as error:
            raise LedgerError(
                f"The ledger {self.url} could not be written ({str(error.orig).splitlines()[0]}). "
                f"What was recorded before still stands."
            ) from error

    def _enrol(self) -> None:
        """Let other processes know of this one, once it has something to write."""
        if self._enrolled:
            return
        me = psutil.Process()
        row = {"owner": self.owner, "host": _host(), "pid": me.pid, "started": me.create_time(), "spent_usd": 0.0}
        with self._writing() as connection:
            connection.execute(owners.insert().values(**row, seen_at=now(self.engine), unsettled_usd=0.0))
        self._enrolled = True

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
        claimed = sa.select(sa.func.coalesce(sa.func.sum(calls.c.reserved_usd), 0.0)).where(calls.c.status == "claimed")
        return Money(float(spent), float(unsettled), float(connection.scalar(claimed) or 0.0))

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

    def _parts(self) -> list[tuple[str, str]]:
        with self._reading() as connection:
            return [(digest, body) for digest, body in connection.execute(sa.select(parts).order_by(parts.c.digest))]

    def _what_changed(self, request: Request) -> str:
        model, asked, options = request.digests
        bodies = dict(self._parts())
        answered = calls.c.status != "claimed"
        with self._reading() as connection:

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
                return f"The messages changed: {_message_difference(row.messages, request)}."
            if like(model=model) is None:
                n = connection.scalar(sa.select(sa.func.count()).select_from(calls).where(answered))
                return f"Nothing is recorded of this model (the ledger holds {n} calls)."
        return "This model was asked before, but nothing with these messages."


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
        With ``find``, ``money``, ``counts``, ``export_calls`` and ``import_calls``.

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
        ledger.import_calls(seed_file)
    return ledger


def _packed(call: Call, pack: zstandard.ZstdCompressor) -> dict[str, Any]:
    """Give a call the form of a row."""
    values: dict[str, Any] = {name: getattr(call, name) for name in ANSWER}
    values["answer"] = pack.compress(call.text.encode("utf-8", "replace")) if call.text else None
    values["logprobs"] = None if call.logprobs is None else json.dumps(call.logprobs, ensure_ascii=False)
    return values


def _read_lines(content: str, name: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    pack = zstandard.ZstdCompressor(level=6)
    bodies, rows = [], []
    for number, line in enumerate(content.splitlines(), start=1):
        try:
            entry = json.loads(line)
            if "part" in entry:
                bodies.append({"digest": entry["part"], "body": entry["body"]})
                continue
            digests = {key: entry.pop(key, None) for key in ("model", "asked", "options", "repeat", "tag")}
            call = Call(entry.pop("key"), **entry)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise LedgerError(f"{name}, line {number}, is not a recorded call ({type(error).__name__}: {error}).") from None
        rows.append({"key": call.call_id, **_packed(call, pack), **digests, "finished_at": 0.0})
    return bodies, rows


def _difference(was: Mapping[str, Any], is_now: Mapping[str, Any]) -> str:
    names = [name for name in sorted({*was, *is_now}) if was.get(name) != is_now.get(name)]
    return "; ".join(f"{name} was {was.get(name)!r}, now {is_now.get(name)!r}" for name in names)[:400]


def _message_difference(packed: bytes | None, request: Request) -> str:
    if not packed:
        return "the recorded request about the same thing had other words"
    was = json.loads(zstandard.ZstdDecompressor().decompress(packed))
    for number, (before, after) in enumerate(zip(was, request.messages, strict=False)):
        if before["content"] != after["content"]:
            old, new = before["content"], after["content"]
            at = next((i for i, (x, y) in enumerate(zip(old, new, strict=False)) if x != y), min(len(old), len(new)))
            start = max(0, at - 20)
            return f"message {number} read {old[start : at + 40]!r}, now {new[start : at + 40]!r}"
    return f"{len(was)} messages became {len(request.messages)}"


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
