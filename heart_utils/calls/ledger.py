"""The ledger: every call to a model, kept under a hash of its request.

Nothing is paid twice.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import secrets
import shutil
import sqlite3
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from functools import lru_cache, wraps
from itertools import accumulate
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar
from urllib.parse import quote

import psutil  # type: ignore[import-untyped]
import sqlalchemy as sa
import tenacity
import zstandard
from sqlalchemy.dialects import postgresql, sqlite

from heart_utils.calls.models import (
    Call,
    Model,
    Request,
    digest_of,
    identity_json,
    other_addresses,
    request_key,
)
from heart_utils.calls.outcomes import is_blank
from heart_utils.extras import extra
from heart_utils.runs import Run, RunError, open_run, write_atomically
from heart_utils.settings import read_yaml

__all__ = ["Claim", "Ledger", "LedgerError", "Money", "ReplayError", "open_ledger"]

FORMAT = 1  #: The version of a ledger's tables. Another version is refused, never guessed at.

VARIABLE = "HEART_LEDGER"
SCHEMES = ("sqlite", "postgresql")
WAIT_S = 60  #: How long a process waits for another one's transaction.

CLOCK = "clock"  #: The row of ``paces`` that holds the latest time at which anybody wrote.
#: A database's clock that is so much behind that was set anew; less is how clocks are kept right.
SET_BACK_S = 1.0

metadata = sa.MetaData()
KINDS = {
    "text": sa.Text,
    "real": sa.Float,
    "count": sa.Integer,
    "bytes": sa.LargeBinary,
    "flag": sa.Boolean,
}


def _table(name: str, columns: Mapping[str, Any]) -> sa.Table:
    """Make a table of what ``ledger.yaml`` says of it."""
    table = sa.Table(name, metadata)
    for column, holds in columns.items():
        kind, _, none = str(holds).partition(" or ")
        held = KINDS[kind]() if kind in KINDS else sa.String(int(kind))
        table.append_column(
            sa.Column(column, held, primary_key=not table.columns, nullable=bool(none))
        )
    return table


_tables = read_yaml(
    Path(__file__).parents[1] / "ledger.yaml", dict[str, dict[str, str | int]], ValueError
)
about, calls, owners, parts, batches, paces = (
    _table(name, columns) for name, columns in _tables.items()
)
# What is claimed is a few hundred rows of perhaps a million: this finds them.
# What a model's calls cost together is read from this alone, for a budget of its own.
sa.Index("spending", calls.c.model, calls.c.cost_usd, calls.c.reserved_usd)
sa.Index(
    "claims",
    calls.c.owner,
    sqlite_where=calls.c.status == "claimed",
    postgresql_where=calls.c.status == "claimed",
)

ANSWERED = calls.c.status != "claimed"


class LedgerError(ValueError):
    """A ledger cannot be opened, read or written."""


def connect(run_or_url: str | os.PathLike[str] | Run) -> sa.Engine:
    """Connect to the ledger of a run, or to one by its URL; its tables are made if need be."""
    url = _url(run_or_url)
    shown = url.render_as_string(hide_password=True)
    if url.get_backend_name() not in SCHEMES:
        raise LedgerError(
            f"{shown} is not a ledger: expected sqlite:///FILE or"
            " postgresql+psycopg://USER@HOST/NAME."
        )
    try:
        engine = _sqlite(url) if url.get_backend_name() == "sqlite" else _postgresql(url)
        _make_tables(engine, shown)
    except (sa.exc.SQLAlchemyError, OSError) as error:
        reason = str(getattr(error, "orig", None) or error).splitlines()[0]
        raise LedgerError(
            f"The ledger {shown} cannot be opened: {reason}.{_way_on(url, reason)}"
        ) from None
    return engine


def _way_on(url: sa.URL, reason: str) -> str:
    """Describe the remedy for a ledger that is damaged, full or read-only."""
    if url.get_backend_name() != "sqlite" or not url.database:
        return ""
    if "malformed" in reason or "not a database" in reason:
        from heart_utils.calls.salvage import read_whole

        n, run = len(read_whole(Path(url.database)).answers), Path(url.database).parent.name
        said = (
            f"{n} answers in it are whole. `make collect RUN={run} ARGS=--salvage` puts them into a"
            " new ledger"
        )
        return f" {said}, and keeps the damaged file beside it."
    if "full" in reason:
        return f" Make room in {Path(url.database).parent}, and give the same command again."
    if "readonly" in reason:
        return (
            " Its folder or file may not be written here: it can be read (ARGS=--check, --export or"
            " --dry-run)."
        )
    return ""


def passes(error: BaseException | None) -> bool:
    """Check whether a database error is transient."""
    if not isinstance(error, sa.exc.DBAPIError):
        return False
    state = getattr(error.orig, "sqlstate", "")
    if state == "":  # SQLite, which has none
        return "locked" in str(error.orig)
    # PostgreSQL: a connection that was lost or not made has none; classes are connection, rollback,
    # operator's intervention.
    lost = state is None and isinstance(error, sa.exc.OperationalError)
    return (
        error.connection_invalidated
        or lost
        or str(state)[:2] in ("08", "40", "57")
        or state == "53300"
    )


def now(engine: sa.Engine) -> sa.ColumnElement[float]:
    """Seconds since 1970 by the database's clock; the machines that share it may disagree."""
    if engine.dialect.name == "sqlite":
        return (sa.func.julianday("now") - 2440587.5) * 86400.0
    return sa.cast(sa.func.extract("epoch", sa.func.clock_timestamp()), sa.Float)


def keys_in(engine: sa.Engine, keys: list[str]) -> sa.ColumnElement[bool]:
    """Build the condition that a call's key is among many, as one parameter."""
    if engine.dialect.name == "sqlite":
        return calls.c.key.in_(
            sa.select(sa.func.json_each(json.dumps(keys)).table_valued("value").c.value)
        )
    return calls.c.key == sa.func.any(
        sa.cast(sa.literal(keys, postgresql.ARRAY(sa.String)), postgresql.ARRAY(sa.String))
    )


def upsert(engine: sa.Engine, table: sa.Table) -> Any:
    """Begin an INSERT that may say what happens where the row is there already."""
    return sqlite.insert(table) if engine.dialect.name == "sqlite" else postgresql.insert(table)


def _total(
    column: sa.ColumnElement[Any], where: sa.ColumnElement[bool] | None = None
) -> sa.ScalarSelect[Any]:
    wanted = sa.select(sa.func.coalesce(sa.func.sum(column), 0.0))
    return (wanted if where is None else wanted.where(where)).scalar_subquery()


def _later(one: Any, other: Any) -> sa.ColumnElement[float]:
    return sa.case((one > other, one), else_=other)


def _url(run_or_url: str | os.PathLike[str] | Run) -> sa.URL:
    text = "" if isinstance(run_or_url, Run) else os.fspath(run_or_url)
    text = text if "://" in text else os.environ.get(VARIABLE, "")
    if not text:
        run = run_or_url if isinstance(run_or_url, Run) else open_run(run_or_url)
        return sa.URL.create("sqlite", database=str(run.folder / "ledger.sqlite"))
    try:
        url = sa.make_url(text)
    except sa.exc.ArgumentError:
        raise LedgerError(
            f"{VARIABLE} or the ledger's address is no URL; expected postgresql+psycopg://..."
        ) from None
    if url.drivername == "postgresql":
        url = url.set(drivername="postgresql+psycopg")
    return url


def ledger_file(run: Run) -> Path | None:
    """Name the file of a run's ledger; None where it is on a server."""
    url = _url(run)
    return Path(url.database) if url.get_backend_name() == "sqlite" and url.database else None


def _postgresql(url: sa.URL) -> sa.Engine:
    # A machine that is gone without a word is given up after half a minute, not after the quarter
    # of an hour that TCP takes.
    waits = {"connect_timeout": "10", "tcp_user_timeout": "30000", "keepalives_idle": "30"}
    left = {name: value for name, value in waits.items() if name not in url.query}
    with extra("collect"):
        return sa.create_engine(url, connect_args=left, pool_pre_ping=True)


def _sqlite(url: sa.URL) -> sa.Engine:
    if url.database and _is_read_only(Path(url.database)):
        engine = _reader(url)
    elif url.database:
        try:
            Path(url.database).parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(
                f"{Path(url.database).parent} cannot be written ({error.strerror})."
            ) from None
        # answers may hold what people wrote: nobody else's from the first byte on
        if not Path(url.database).exists():
            with suppress(FileExistsError):
                os.close(os.open(url.database, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        engine = sa.create_engine(url, connect_args={"timeout": WAIT_S})
    else:  # in memory: one connection, or every thread would see a database of its own
        engine = sa.create_engine(
            url, poolclass=sa.pool.StaticPool, connect_args={"check_same_thread": False}
        )

    @sa.event.listens_for(engine, "connect")
    def _settle(connection: Any, _: Any) -> None:
        connection.isolation_level = None  # the BEGIN below is ours
        connection.text_factory = _text
        if engine.get_execution_options().get("reads_only"):
            connection.execute("PRAGMA query_only=ON")
            return
        # calls take 1 to 3 kB: in pages of 4 kB every other one would waste half
        connection.execute("PRAGMA page_size=16384")
        # readers and one writer side by side; survives kill -9
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")

    @sa.event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        reads = connection.get_execution_options().get("reads")
        connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")

    return engine


def _is_read_only(file: Path) -> bool:
    """Check whether a ledger is there that this process may not write.

    SQLite would want files of its own beside it.
    """
    return file.exists() and not (os.access(file, os.W_OK) and os.access(file.parent, os.W_OK))


def _reader(url: sa.URL) -> sa.Engine:
    """Open a ledger only to read it, from a copy where its last writes lie in another file."""
    file, copied = Path(url.database or ""), None
    newest = file.with_name(f"{file.name}-wal")
    if newest.exists() and newest.stat().st_size:
        copied = tempfile.TemporaryDirectory(prefix="heart-ledger-")
        for name in (file, newest):
            shutil.copy(name, copied.name)
            Path(copied.name, name.name).chmod(0o600)
        address = f"file:{quote(str(Path(copied.name, file.name)))}"
    else:
        address = f"file:{quote(str(file))}?immutable=1"

    def open_it() -> sqlite3.Connection:
        return sqlite3.connect(address, uri=True, check_same_thread=False)

    engine = sa.create_engine(url, creator=open_it, execution_options={"reads_only": True})
    engine.dialect.copied = copied  # type: ignore[attr-defined] # which is there as long as it
    return engine


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")  # a damaged text is one row's fault, and its digest tells


def _make_tables(engine: sa.Engine, shown: str) -> None:
    with engine.connect().execution_options(reads=True) as connection:
        inspector = sa.inspect(connection)
        there = set(inspector.get_table_names())
        version = (
            connection.scalar(sa.select(about.c.value).where(about.c.name == "format"))
            if "about" in there
            else None
        )
        columns = (
            {column["name"] for column in inspector.get_columns("calls")}
            if "calls" in there
            else set()
        )
    if version is None and columns:
        raise LedgerError(f"{shown} has a table called calls, but is no ledger of this project.")
    if version is None:
        with engine.begin() as connection:
            # two that begin at once would both make the tables
            if engine.dialect.name == "postgresql":
                connection.execute(sa.text("SELECT pg_advisory_xact_lock(4219923)"))
            metadata.create_all(connection)
            connection.execute(
                upsert(engine, about)
                .values(name="format", value=str(FORMAT))
                .on_conflict_do_nothing()
            )
    elif (
        version != str(FORMAT)
        or not there.issuperset(metadata.tables)
        or not columns.issuperset(calls.c.keys())
    ):
        of = (
            f"is of version {version}"
            if version != str(FORMAT)
            else "was made before version 0.1.0 of this project"
        )
        raise LedgerError(
            f"The ledger {shown} {of}; this project reads version {FORMAT}. With the version that"
            " wrote it, `make collect ARGS='--export calls.jsonl'` writes its calls into a file;"
            " set the ledger aside, and import them here with `make collect ARGS='--merge"
            " calls.jsonl'`."
        )


P = ParamSpec("P")
T = TypeVar("T")

#: A process of another machine not heard of for so long is taken for dead, and its claims are free.
LEASE_S = 60.0

#: The most that one look at a silent process adds to its silence: while the database was away, all
#: were silent.
LOOK_S = 5.0

#: How long a step waits for a database that restarts, is locked or cannot be reached.
PATIENCE_S = 900.0

LEVEL = 3  #: Of compression; 6 makes the prompts of a study 2 % smaller, and takes twice the time.

BATCH = "batch"  #: The host of an owner that is a provider's batch: it never dies, it ends.

ANSWER = [field.name for field in fields(Call) if field.name not in ("call_id", "text", "logprobs")]
SEALED: dict[str, type] = {name: calls.c[name].type.python_type for name in (*ANSWER, "logprobs")}
LOGGED = ("attempts", "prompt_tokens", "completion_tokens", "cost_usd")
DAMAGED = "the stored answer is damaged: it is not what was written"


def _patiently(step: Callable[Concatenate[Ledger, P], T]) -> Callable[Concatenate[Ledger, P], T]:
    """Retry a step on the database, with growing pauses, after a transient error."""

    @wraps(step)
    def patient(self: Ledger, /, *args: P.args, **kwargs: P.kwargs) -> T:
        again = tenacity.Retrying(
            retry=tenacity.retry_if_exception(lambda error: passes(error.__cause__)),
            wait=tenacity.wait_random_exponential(multiplier=0.2, max=10),
            stop=tenacity.stop_after_delay(self.patience_s)
            | tenacity.stop_when_event_set(self.hurry),
            sleep=tenacity.sleep_using_event(self.hurry),
            before_sleep=lambda state: setattr(
                self, "waits", str(state.outcome and state.outcome.exception())
            ),
            reraise=True,
        )
        try:
            return again(step, self, *args, **kwargs)
        finally:
            self.waits = None

    return patient


@dataclass(frozen=True)
class Money:
    """What calls on a ledger cost so far, in USD, all processes together."""

    spent: float  # for answers that came, at list price
    # at most, for calls whose end nobody heard; they may have been billed, so a budget counts them
    unsettled: float
    reserved: float  # at most, for calls in flight now and for requests in providers' batches
    in_flight: float  # the part of it that is settled soon; a batch may take a day

    @property
    def bound(self) -> float:
        """The most that all of it can come to."""
        return self.spent + self.unsettled + self.reserved


@dataclass(frozen=True)
class Claim:
    """What a process claimed: its keys, how many the budget excluded, and money spent before.

    Excluded requests are the last ones.
    """

    won: frozenset[str]
    unfit: int
    money: Money


class Ledger:
    """All calls of a run, or of several machines; see :func:`open_ledger`."""

    def __init__(self, engine: sa.Engine) -> None:
        self.engine = engine
        # this process, as other processes see it
        self.owner = f"{os.getpid()}-{secrets.token_hex(8)}"
        self.used: set[str] = set()  # keys that were looked up
        # of answers looked up that are not what was written -> when they were written
        self.damaged: dict[str, float] = {}
        self.blank: dict[str, float] = {}  # the same of answers that hold no words
        self.patience_s = PATIENCE_S  # so long a step waits for a database that cannot be reached
        self.hurry = threading.Event()  # once set, nothing waits any more
        self.waits: str | None = None  # why a step is waiting now
        # gets a line of JSON for each call that ends: never what was asked or answered
        self.log: Path | None = None
        self._heard: dict[str, tuple[float, float, float]] = {}
        # key -> the key under which the same is recorded
        self._other_keys: dict[str, str] | None = None
        # keys whose claims may have been committed although they failed
        self._unsure: set[str] = set()

    @property
    def url(self) -> str:
        """Its address, without a password."""
        return self.engine.url.render_as_string(hide_password=True)

    @property
    def shared(self) -> bool:
        """Whether several machines can reach it."""
        return self.engine.dialect.name != "sqlite"

    @_patiently
    def rows(self, wanted: Any, keys: Sequence[str] | None = None) -> list[Any]:
        """Read rows, of all calls or of those with these keys."""
        with self.reading() as connection:
            if keys is None:
                return list(connection.execute(wanted))
            among = (wanted.where(keys_in(self.engine, chunk)) for chunk in chunks(keys))
            return [row for chosen in among for row in connection.execute(chosen)]

    def find(self, keys: Sequence[str]) -> dict[str, Call]:
        """Look up calls by their keys, without those only claimed; damage is an error."""
        found = self._find(keys)
        others = self._recorded_under(key for key in keys if key not in found)
        if others:
            calls_there = self._find(list(others.values()))
            found |= {
                key: calls_there[other] for key, other in others.items() if other in calls_there
            }
        return found

    def _find(self, keys: Sequence[str]) -> dict[str, Call]:
        unpack, found = zstandard.ZstdDecompressor(), {}
        columns = [calls.c[name] for name in ("key", "answer", "digest", "finished_at", *SEALED)]
        for key, answer, digest, finished_at, *rest in self.rows(
            sa.select(*columns).where(ANSWERED), keys
        ):
            self.used.add(key)
            self.damaged.pop(key, None)
            try:
                call = _unpack_call(
                    key, answer, digest, dict(zip(SEALED, rest, strict=True)), unpack
                )
            except (ValueError, TypeError, zstandard.ZstdError):
                self.damaged[key] = finished_at
                call = Call(key, "error", error=DAMAGED)
            if call.status != "error" and failed(call):
                self.blank[key] = finished_at
            found[key] = call
        return found

    def _recorded_under(self, keys: Iterable[str]) -> dict[str, str]:
        """Find keys that record the same with its server's address written otherwise."""
        keys = list(keys)
        if keys and self._other_keys is None:
            self._other_keys = self._spell_otherwise()
        return {
            key: self._other_keys[key]
            for key in keys
            if self._other_keys and key in self._other_keys
        }

    def _spell_otherwise(self) -> dict[str, str]:
        """Compute the keys of recorded calls under other ways to write addresses."""
        others: dict[str, list[str]] = {}
        for digest, body in self.rows(sa.select(parts).where(parts.c.body.like('%"api_base"%'))):
            model = json.loads(body)
            alike = [
                identity_json({**model, "api_base": other})
                for other in other_addresses(str(model["api_base"]))
            ]
            others[digest] = [digest_of(identity) for identity in alike]
        wanted = sa.select(
            calls.c.key, *(calls.c[name] for name in ("model", "asked", "options", "repeat"))
        )
        rows = self.rows(wanted.where(ANSWERED, calls.c.model.in_(others))) if others else []
        return {
            request_key(other, asked, options, repeat): key
            for key, model, asked, options, repeat in rows
            if asked
            for other in others[model]
        }

    def statuses(self, keys: Sequence[str] | None = None) -> dict[str, str]:
        """Look up only what became of calls, or of all; what is claimed is not there yet."""
        wanted = sa.select(calls.c.key, calls.c.status).where(ANSWERED)
        found = dict(self.rows(wanted, keys))
        others = self._recorded_under(key for key in keys or () if key not in found)
        known = dict(self.rows(wanted, list(others.values()))) if others else {}
        return found | {key: known[other] for key, other in others.items() if other in known}

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
        """Claim requests for this process, or for a batch, if no one answered or claimed them."""
        owner, keys = owner or self.owner, {request.key for request in requests}
        try:
            with self.writing() as connection:
                self._hold_money(connection, requests[0], budget_usd)
                self._book(connection, owner, host=_host() if batch is None else BATCH)
                self._bury(connection)
                self._give_back(connection, owner, sorted(self._unsure & keys))
                unusable = self.damaged | self.blank
                # unless somebody answered it again since it was read
                for key in keys & set(unusable):
                    read = (calls.c.key == key) & (calls.c.finished_at == unusable[key])
                    connection.execute(
                        calls.update().where(read).values(status="error", finished_at=-1.0)
                    )
                money, left = self._money_left(connection, requests[0], budget_usd)
                # what is free always fits
                n_fit = sum(total <= max(left, 0.0) for total in accumulate(reserves))
                claimed = {"status": "claimed", "owner": owner}
                both = zip(requests[:n_fit], reserves, strict=False)
                rows = [
                    {**_asked(request), **claimed, "reserved_usd": usd} for request, usd in both
                ]
                self._insert(connection, parts, _parts_of(requests))
                insert = upsert(self.engine, calls)
                again = insert.on_conflict_do_update(
                    index_elements=["key"],
                    set_={
                        name: insert.excluded[name] for name in ("status", "owner", "reserved_usd")
                    },
                    where=(calls.c.status == "error") & (calls.c.finished_at < since),
                )
                won = self._execute(connection, again, rows)
                if batch is not None and won:
                    row = {
                        "batch": owner,
                        "owner": owner,
                        "model": batch,
                        "status": "creating",
                        "n": len(won),
                    }
                    self._insert(
                        connection, batches, [row | {"submitted_at": self._stamp(connection)}]
                    )
        except LedgerError:
            self._unsure |= keys
            raise
        self._unsure -= keys
        self.damaged = {key: at for key, at in self.damaged.items() if key not in keys}
        self.blank = {key: at for key, at in self.blank.items() if key not in keys}
        return Claim(frozenset(won), len(requests) - n_fit, money)

    @_patiently
    def reserve_more(self, request: Request, usd: float, budget_usd: float | None) -> bool:
        """Reserve money for another attempt at a claimed call; false beyond a budget.

        The budget of its model, or the whole.
        """
        with self.writing() as connection:
            self._hold_money(connection, request, budget_usd)
            if usd > max(self._money_left(connection, request, budget_usd)[1], 0.0):
                return False
            mine = (calls.c.key == request.key) & (calls.c.status == "claimed")
            connection.execute(
                calls.update().where(mine).values(reserved_usd=calls.c.reserved_usd + usd)
            )
        return True

    @_patiently
    def book(self, places: Mapping[str, float]) -> float:
        """Reserve a slot in the shared queues, and return for how many seconds to wait."""
        waits = list[float]()
        with self.writing() as connection:
            # read once: it may be set anew at any moment
            clock = sa.literal(self._follow_clock(connection), sa.Float)
            for name, seconds in sorted(places.items()):
                book = upsert(self.engine, paces).values(name=name, next_at=clock + seconds)
                behind = {"next_at": _later(paces.c.next_at, clock) + seconds}
                book = book.on_conflict_do_update(index_elements=["name"], set_=behind).returning(
                    paces.c.next_at - clock
                )
                waits.append(connection.execute(book).scalar_one() - seconds)
        return max(waits)

    @_patiently
    def hold(self, name: str, seconds: float) -> None:
        """Hold a queue for all processes for so long, as its provider asks."""
        with self.writing() as connection:
            until = self._follow_clock(connection) + seconds
            hold = upsert(self.engine, paces).values(name=name, next_at=until)
            later = {"next_at": _later(paces.c.next_at, hold.excluded.next_at)}
            connection.execute(hold.on_conflict_do_update(index_elements=["name"], set_=later))

    def held(self, names: Sequence[str]) -> dict[str, float]:
        """Return for how many seconds queues are held, those that are."""
        left = paces.c.next_at - now(self.engine)
        return dict(
            self.rows(sa.select(paces.c.name, left).where(paces.c.name.in_(names), left > 0))
        )

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
        """Write answers and their cost in one transaction.

        The request goes with an answer where its row is gone.
        """
        known = requests or {}
        rows = [
            (_asked(known[call.call_id]) if call.call_id in known else {}) | pack_call(call)
            for call in answers
        ]
        with self.writing() as connection:
            self._book(
                connection,
                owner or self.owner,
                sum(call.cost_usd or 0.0 for call in answers),
                unsettled,
            )
            stamp = {"finished_at": self._stamp(connection)}
            self._put(connection, [row | stamp for row in rows])
            if batch_ended is not None:
                self._give_back(connection, owner)
                connection.execute(
                    batches.update().where(batches.c.owner == owner).values(status=batch_ended)
                )
            self._follow_clock(connection)
        for call in answers:
            said: dict[str, Any] = {name: getattr(call, name) for name in LOGGED}
            said |= {"call": call.call_id, "state": call.status}
            said["model"] = known[call.call_id].model.name if call.call_id in known else None
            said["seconds"] = None if call.total_ms is None else round(call.total_ms / 1000, 3)
            # The rest of the words is the provider's, which may repeat what it was sent.
            said["reason"] = re.split(r"[:(]", call.error)[0].strip() if call.error else None
            self.tell(said)

    @_patiently
    def take_in(
        self, bodies: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, Any]]
    ) -> int:
        """Import calls recorded and paid for elsewhere; return how many are new or better."""
        with self.writing() as connection:
            # a claim of a process that lives, or of a batch, stands: it is being paid for
            self._bury(connection)
            self._insert(connection, parts, bodies)
            return len(self._put(connection, rows, over_claims=False))

    @_patiently
    def release(self, keys: Sequence[str]) -> None:
        """Release claims that were not asked."""
        with self.writing() as connection:
            self._give_back(connection, self.owner, list(keys))

    def in_batches(self, keys: Sequence[str]) -> set[str]:
        """List which of these are claimed by a provider's batch."""
        return {
            key
            for (key,) in self.rows(
                sa.select(calls.c.key).where(calls.c.status == "claimed", _batched()), keys
            )
        }

    def knows(self, model: Model) -> bool:
        """Check whether a model has ever answered anything."""
        its = (calls.c.model == model.identity_digest) & calls.c.status.in_(
            ("ok", "refused", "truncated")
        )
        return bool(self.rows(sa.select(calls.c.key).where(its).limit(1)))

    def quick_and_slow(self, model: Model) -> tuple[float, float] | None:
        """Return the 10 % and 90 % quantiles of a model's answer times.

        In seconds; None if there are fewer than ten answers.
        """
        its = (
            (calls.c.model == model.identity_digest)
            & (calls.c.status == "ok")
            & calls.c.total_ms.is_not(None)
        )
        took = sorted(ms / 1000 for (ms,) in self.rows(sa.select(calls.c.total_ms).where(its)))
        return None if len(took) < 10 else (took[len(took) // 10], took[-1 - len(took) // 10])

    def notes(self, names: Sequence[str]) -> dict[str, str]:
        """Read what was noted about the ledger under these names."""
        return dict(self.rows(sa.select(about).where(about.c.name.in_(names))))

    @_patiently
    def note(self, notes: Mapping[str, str]) -> None:
        """Note something about the ledger; what was noted before stands."""
        with self.writing() as connection:
            self._insert(
                connection, about, [{"name": name, "value": notes[name]} for name in sorted(notes)]
            )

    @_patiently
    def money(self) -> Money:
        """Read what all processes spent and reserved."""
        with self.reading() as connection:
            return self._money(connection)

    @_patiently
    def write_off(self) -> float:
        """Forget reserves of calls whose end is unknown; return how much.

        For when their provider's bill is lower.
        """
        with self.writing() as connection:
            self._bury(connection)
            unsettled = self._money(connection).unsettled
            connection.execute(owners.update().values(unsettled_usd=0.0))
        return unsettled

    def clock(self) -> float:
        """Read the database's clock, in seconds since 1970."""
        return float(self.rows(sa.select(now(self.engine)))[0][0])

    def counts(self) -> dict[str, int]:
        """Count calls by status; ``claimed`` are those in flight."""
        return dict(self.rows(sa.select(calls.c.status, sa.func.count()).group_by(calls.c.status)))

    def tell(self, what: Mapping[str, Any]) -> None:
        """Add a line to the log, if there is one."""
        if self.log is None:
            return
        line = json.dumps({"at": datetime.now(UTC).isoformat(timespec="milliseconds"), **what})
        try:
            with self.log.open("a", encoding="utf-8") as file:
                file.write(f"{line}\n")
        except OSError as error:  # the answers matter more
            warnings.warn(
                f"The log {self.log} could not be written ({error.strerror}) and ends here.",
                stacklevel=2,
            )
            self.log = None

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
            reason = str(error.orig).splitlines()[0]
            way_on = _way_on(self.engine.url, reason)
            raise LedgerError(
                f"The ledger {self.url} could not be read ({reason}).{way_on}"
            ) from error

    @contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        """Begin a transaction that writes, and commit it at the end of the block."""
        try:
            with self.engine.begin() as connection:
                yield connection
        except sa.exc.DBAPIError as error:
            reason = str(error.orig).splitlines()[0]
            way_on = _way_on(self.engine.url, reason)
            said = (
                f"The ledger {self.url} could not be written ({reason}). What was recorded before"
                f" still stands.{way_on}"
            )
            raise LedgerError(said) from error

    def _stamp(self, connection: sa.Connection) -> float:
        return float(connection.execute(sa.select(now(self.engine))).scalar_one())

    def _follow_clock(self, connection: sa.Connection) -> float:
        """Read and record the time, and keep waits as long as asked if it was set back.

        The time is that of the database's clock.
        """
        its = paces.c.name == CLOCK
        # One process at a time, so that none writes by a time that another has found to be wrong.
        noted = connection.execute(
            sa.select(paces.c.next_at).where(its).with_for_update()
        ).scalar_one_or_none()
        clock = self._stamp(connection)
        if noted is None:
            connection.execute(
                upsert(self.engine, paces)
                .values(name=CLOCK, next_at=clock)
                .on_conflict_do_nothing()
            )
        elif abs(clock - noted) > SET_BACK_S:
            mine = connection.execute(
                paces.update().where(its, paces.c.next_at == noted).values(next_at=clock)
            ).rowcount
            if mine and clock < noted:  # and no other process has moved them
                others = paces.update().where(~its)
                connection.execute(others.values(next_at=paces.c.next_at - (noted - clock)))
                failed = calls.update().where(
                    calls.c.status == "error", calls.c.finished_at > clock
                )
                # or the next run would take them for its own
                connection.execute(failed.values(finished_at=clock))
        return clock

    def _execute(
        self, connection: sa.Connection, insert: Any, rows: Sequence[Mapping[str, Any]]
    ) -> list[str]:
        """Write rows of calls, and give the keys of those that were written."""
        # In the order of keys, so that two processes cannot wait for one another; each row with the
        # same columns.
        whole = dict.fromkeys(name for row in rows for name in row)
        ordered = [{**whole, **row} for row in sorted(rows, key=lambda row: str(row["key"]))]
        return list(connection.scalars(insert.returning(calls.c.key), ordered)) if rows else []

    def _insert(
        self, connection: sa.Connection, table: sa.Table, rows: Sequence[Mapping[str, Any]]
    ) -> None:
        """Write rows that are not there yet."""
        if rows:
            connection.execute(upsert(self.engine, table).on_conflict_do_nothing(), rows)

    def _put(
        self,
        connection: sa.Connection,
        rows: Sequence[Mapping[str, Any]],
        *,
        over_claims: bool = True,
    ) -> list[str]:
        """Write answered calls where none is, over a claim, or an answer over a failure.

        Of two answers the first stays.
        """
        insert = upsert(self.engine, calls)
        better = (calls.c.status == "error") & (insert.excluded.status != "error")
        better |= (calls.c.status == "claimed") if over_claims else sa.false()
        told = {
            name: insert.excluded[name] for name in (*SEALED, "answer", "digest", "finished_at")
        }
        told |= {"owner": None, "reserved_usd": None}
        return self._execute(
            connection,
            insert.on_conflict_do_update(index_elements=["key"], set_=told, where=better),
            rows,
        )

    def _book(
        self,
        connection: sa.Connection,
        owner: str,
        spent: float = 0.0,
        unsettled: float = 0.0,
        host: str | None = None,
    ) -> None:
        """Let other processes know that this one, or a batch, lives, and what it spent."""
        me = psutil.Process()
        row = {
            "owner": owner,
            "host": host or _host(),
            "pid": me.pid,
            "started": _began(me),
            "seen_at": now(self.engine),
        }
        enter = upsert(self.engine, owners).values(**row, spent_usd=spent, unsettled_usd=unsettled)
        more = {
            name: owners.c[name] + enter.excluded[name] for name in ("spent_usd", "unsettled_usd")
        }
        connection.execute(
            enter.on_conflict_do_update(
                index_elements=["owner"], set_={"seen_at": now(self.engine), **more}
            )
        )

    def _hold_money(
        self, connection: sa.Connection, request: Request, budget_usd: float | None
    ) -> None:
        """Let one process at a time read the money and claim; SQLite does so anyway."""
        if self.shared and (budget_usd, request.model.budget_usd) != (None, None):
            connection.execute(sa.text("SELECT pg_advisory_xact_lock(4219922)"))

    def _bury(self, connection: sa.Connection) -> None:
        """Free the claims of processes that died, and book what they may have spent."""
        holds = sa.select(calls.c.owner).where(calls.c.status == "claimed").distinct()
        others = sa.select(owners).where(
            owners.c.owner.in_(holds), owners.c.owner != self.owner, owners.c.host != BATCH
        )
        for row in connection.execute(others).all():
            here = row.host == _host()
            if _alive(row.pid, row.started) if here else not self._silent(row.owner, row.seen_at):
                continue
            reserved = _total(
                calls.c.reserved_usd, (calls.c.owner == row.owner) & (calls.c.status == "claimed")
            )
            self._book(
                connection,
                row.owner,
                unsettled=connection.execute(sa.select(reserved)).scalar_one(),
            )
            self._give_back(connection, row.owner)

    def _give_back(
        self, connection: sa.Connection, owner: str | None, keys: list[str] | None = None
    ) -> None:
        """Release claims, all or some; an error that was asked again is that error again."""
        its = (calls.c.owner == owner) & (calls.c.status == "claimed")
        its &= sa.true() if keys is None else keys_in(self.engine, keys)
        was = {"status": "error", "owner": None, "reserved_usd": None}
        connection.execute(calls.update().where(its, calls.c.finished_at.is_not(None)).values(was))
        connection.execute(calls.delete().where(its))

    def _silent(self, owner: str, seen_at: float) -> bool:
        """Check whether another machine's process is silent, by this process's own watch.

        The database's clock may be set anew.
        """
        at = time.monotonic()
        stamp, looked, quiet = self._heard.get(owner, (seen_at, at, 0.0))
        quiet = quiet + min(at - looked, LOOK_S) if stamp == seen_at else 0.0
        self._heard[owner] = (seen_at, at, quiet)
        return quiet > LEASE_S

    def _money(self, connection: sa.Connection) -> Money:
        claimed = calls.c.status == "claimed"
        sums = [
            _total(owners.c.spent_usd),
            _total(owners.c.unsettled_usd),
            _total(calls.c.reserved_usd, claimed),
        ]
        row = connection.execute(
            sa.select(*sums, _total(calls.c.reserved_usd, claimed & ~_batched()))
        ).one()
        return Money(*map(float, row))

    def _money_left(
        self, connection: sa.Connection, request: Request, budget_usd: float | None
    ) -> tuple[Money, float]:
        """Read the money, and what is left for a request.

        Of the whole's budget or, if less, of its model's own.
        """
        money, cap = self._money(connection), request.model.budget_usd
        left = float("inf") if budget_usd is None else budget_usd - money.bound
        if cap is not None:
            both = sa.func.coalesce(calls.c.cost_usd, 0.0) + sa.func.coalesce(
                calls.c.reserved_usd, 0.0
            )
            # What nobody heard the end of is in the whole's money only.
            its = connection.execute(
                sa.select(_total(both, calls.c.model == request.digests[0]))
            ).scalar_one()
            left = min(left, cap - its)
        return money, left


def open_ledger(
    run_or_url: str | os.PathLike[str] | Run, *, seed_file: str | os.PathLike[str] | None = None
) -> Ledger:
    """Open the ledger of a run, or one by its URL.

    The ledger keeps every call to a model under a hash of its request. A call that is there is not
    made again, so a run can stop at any time and go on later, and nothing is paid twice. A finished
    run can be repeated without a network.

    Parameters
    ----------
    run_or_url : str, path or Run
        A run's is the file ``ledger.sqlite`` in its folder, unless ``HEART_LEDGER`` names another's
        URL. A URL is SQLAlchemy's, such as ``"sqlite:///calls.sqlite"`` or
        ``"postgresql+psycopg://..."`` for several machines; ``"sqlite://"`` is in memory.
    seed_file : str or path, optional
        Calls recorded elsewhere, as JSON Lines, that the ledger also holds from then on. Read once.

    Returns
    -------
    Ledger
        With ``find(keys)`` (recorded calls), ``money`` (USD spent and reserved) and ``counts()``
        (number of calls by state). Functions that ask models take it as `ledger`.

    Raises
    ------
    LedgerError
        If it cannot be reached, is no ledger, or is of another version.

    See Also
    --------
    collect_verdicts : Ask judges, and keep every call in a ledger.
    recipe_step : Run one step of a recipe from a ledger.
    price : Look up the price of a token.

    Notes
    -----
    Several processes may share one ledger: each claims the calls that it makes, and reserves their
    price against the budget before it asks. A damaged ledger is an error that names the remedy,
    never an empty result.

    Examples
    --------
    >>> ledger = open_ledger("sqlite://")
    >>> ledger.counts()
    {}
    """
    ledger = Ledger(connect(run_or_url))
    if seed_file is not None:
        import_calls(ledger, seed_file)
    return ledger


def failed(call: Call) -> bool:
    """Check whether a recorded call is to be asked again.

    Earlier versions kept answers without words as good ones.
    """
    blank = (
        call.status == "ok" and call.logprobs is None and bool(call.text) and is_blank(call.text)
    )
    return call.status == "error" or blank


def _batched() -> sa.ColumnElement[bool]:
    """Build the condition that a call belongs to a provider's batch."""
    return calls.c.owner.in_(sa.select(owners.c.owner).where(owners.c.host == BATCH))


def pack_call(call: Call) -> dict[str, Any]:
    """Build the row of a call, sealed."""
    values: dict[str, Any] = {"key": call.call_id, **{name: getattr(call, name) for name in ANSWER}}
    values["answer"] = (
        zstandard.compress(call.text.encode("utf-8", "replace"), LEVEL) if call.text else None
    )
    # Half a character, as a token may be, is no UTF-8; both columns hold a mark in its place.
    tokens = json.dumps(call.logprobs, ensure_ascii=False).encode("utf-8", "replace").decode()
    values["logprobs"] = None if call.logprobs is None else tokens
    values["digest"] = seal(call.call_id, values["answer"], values)
    return values


def seal(key: str, answer: bytes | None, values: Mapping[str, Any]) -> str:
    """Hash what a row says of an answer, so that damage is seen."""
    said = [
        (name, kind(values[name])) for name, kind in SEALED.items() if values.get(name) is not None
    ]
    content = f"{key} {said!r} ".encode("utf-8", "surrogatepass") + (answer or b"")
    return hashlib.blake2b(content, digest_size=8).hexdigest()


def _unpack_call(
    key: str,
    answer: bytes | None,
    digest: str | None,
    values: dict[str, Any],
    unpack: zstandard.ZstdDecompressor,
) -> Call:
    """Read a row; ValueError if it is not what was written."""
    if digest is not None and digest != seal(key, answer, values):
        raise ValueError(DAMAGED)
    text = unpack.decompress(answer).decode() if answer else ""
    pairs = values.pop("logprobs")
    return Call(
        key,
        **values,
        text=text,
        logprobs=tuple((token, p) for token, p in json.loads(pairs)) if pairs else None,
    )


def _asked(request: Request) -> dict[str, Any]:
    """Build the part of a row that describes the request."""
    model, asked, options = request.digests
    about_it = {
        "tag": request.tag,
        "model": model,
        "asked": asked,
        "options": options,
        "repeat": request.repeat,
    }
    messages = request.messages_json().encode("utf-8", "surrogatepass")
    return {"key": request.key, **about_it, "messages": zstandard.compress(messages, LEVEL)}


def _parts_of(requests: Sequence[Request]) -> list[dict[str, str]]:
    """List what the digests of models and options stand for."""
    options = {request.digests[2]: request for request in requests}
    bodies = {
        digest: json.dumps(one.sampling, sort_keys=True, ensure_ascii=False)
        for digest, one in options.items()
    }
    bodies |= {request.digests[0]: request.model.identity for request in requests}
    return [{"digest": digest, "body": body} for digest, body in sorted(bodies.items())]


def chunks(keys: Sequence[str]) -> Iterator[list[str]]:
    """Cut keys into lists that are looked up at once."""
    keys = list(keys)  # also of a set
    for start in range(0, len(keys), CHUNK):
        yield keys[start : start + CHUNK]


@lru_cache(maxsize=1)
def _host() -> str:
    """Name the machine, or the container, whose process numbers this process can see."""
    with suppress(OSError):  # where this is not Linux, the name has to do
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{platform.node()} {boot} {os.readlink('/proc/self/ns/pid')}"[:200]
    return platform.node()[:200]


def _alive(pid: int, started: float) -> bool:
    try:
        process = psutil.Process(pid)
        return abs(_began(process) - started) < 2.0 and bool(
            process.status() != psutil.STATUS_ZOMBIE
        )
    except psutil.Error:
        return False


def _began(process: psutil.Process) -> float:
    """Return the seconds from the machine's start to the process's.

    Setting the clock moves both.
    """
    return float(process.create_time() - psutil.boot_time())


CHUNK = 5000  #: Calls that are read at once.

#: Columns that tell what was asked; the first three are digests.
ASKED = ("model", "asked", "options", "repeat", "tag")

LIKELY = (
    "A changed `seed`, rubric or history under `collect:` would do that, or a reply of somebody's"
    " imported since."
)


class ReplayError(LedgerError):
    """A request is not in the ledger, and only the ledger may answer."""


def export_calls(ledger: Ledger, file: str | os.PathLike[str], *, only_used: bool = False) -> int:
    """Write a ledger's answers as JSON Lines, sorted by key.

    Of a request only the hash, since code derives it again.
    """
    wanted = (
        sa.select(calls.c.key, *(calls.c[name] for name in ASKED))
        .where(ANSWERED)
        .order_by(calls.c.key)
    )
    asked = {
        row.key: row._asdict()
        for row in ledger.rows(wanted)
        if row.key in ledger.used or not only_used
    }
    known = {row[name] for row in asked.values() for name in ("model", "options")}
    bodies = ledger.rows(sa.select(parts).order_by(parts.c.digest))
    lines = [
        json.dumps({"part": digest, "body": body}) for digest, body in bodies if digest in known
    ]
    for key, call in sorted(ledger.find(list(asked)).items()):
        cells = {**asdict(call), **asked[key]}
        del cells["call_id"]
        lines.append(
            json.dumps(
                {name: cell for name, cell in sorted(cells.items()) if cell is not None},
                ensure_ascii=False,
            )
        )
    write_atomically(Path(file), "".join(f"{line}\n" for line in lines).encode())
    return len(asked)


def import_calls(ledger: Ledger, file: str | os.PathLike[str]) -> int:
    """Read calls that ``export_calls`` wrote, once."""
    path = Path(file)
    try:
        content = path.read_bytes()
        lines = content.decode().split("\n")  # not splitlines: an answer may hold another break
    except (OSError, UnicodeDecodeError) as error:
        raise LedgerError(f"{path} cannot be read as recorded calls ({error}).") from None
    seed = f"seed {hashlib.sha256(content).hexdigest()[:32]}"
    if ledger.notes([seed]):
        return 0
    bodies, rows = [], []
    for number, line in (
        (number, line) for number, line in enumerate(lines, start=1) if line.strip()
    ):
        try:
            entry = json.loads(line)
            if "part" in entry:
                bodies.append({"digest": entry["part"], "body": entry["body"]})
            else:
                asked = {name: entry.pop(name, None) for name in ASKED}
                rows.append(
                    pack_call(Call(entry.pop("key"), **entry)) | asked | {"finished_at": 0.0}
                )
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            said = f"{path.name}, line {number}, is not a recorded call"
            raise LedgerError(f"{said} ({type(error).__name__}: {error}).") from None
    new = ledger.take_in(bodies, rows)
    ledger.note({seed: path.name})
    return new


def merge_calls(ledger: Ledger, place: str | os.PathLike[str]) -> int:
    """Import answers of another ledger or of JSON Lines, without damaged ones."""
    name, new = os.fspath(place), 0
    if "://" not in name:
        if not Path(name).is_file():
            raise LedgerError(f"{name}: there is no such file.")
        if not name.endswith(".sqlite"):
            return import_calls(ledger, name)
        name = f"sqlite:///{name}"
    other = open_ledger(name)
    bodies = [row._asdict() for row in other.rows(sa.select(parts))]
    for chunk in chunks(sorted(other.statuses())):
        other.find(chunk)
        rows = [
            row._asdict()
            for row in other.rows(sa.select(calls).where(ANSWERED), chunk)
            if row.key not in other.damaged
        ]
        new += ledger.take_in(bodies, rows)
    other.close()
    return new


def check_calls(ledger: Ledger) -> list[str]:
    """Read all that a ledger holds, and say what is damaged or doubled."""
    for chunk in chunks(sorted(ledger.statuses())):
        ledger.find(chunk)
    said = [] if ledger.shared else ledger.rows(sa.text("PRAGMA integrity_check(5)"))
    faults = [f"The file {ledger.url}: {line}." for (line,) in said if line != "ok"]
    # `+ ''` keeps SQLite from counting in the index, where a row that is doubled may stand once.
    key = calls.c.key + ""
    doubled = ledger.rows(sa.select(key).group_by(key).having(sa.func.count() > 1))
    faults += [f"Call {key} is doubled." for (key,) in doubled]
    models = sa.select(calls.c.key, calls.c.tag, parts.c.body).outerjoin_from(
        calls, parts, calls.c.model == parts.c.digest
    )
    for key, tag, body in ledger.rows(models, sorted(ledger.damaged)):
        model = json.loads(body or "{}").get("model", "a model that is not known")
        faults.append(
            f"Call {key} to {model}{f' about {tag}' if tag else ''} is damaged; `make collect` asks"
            " again."
        )
    return faults


def explain_miss(ledger: Ledger, missing: Sequence[Request], *, total: int) -> ReplayError:
    """Explain what changed since something like the first missing request was recorded."""
    first = missing[0]
    about_it = f" about {first.tag}" if first.tag else ""
    file = Path(ledger.engine.url.database or "")
    run = file.parent.name if file.name == "ledger.sqlite" else "..."
    return ReplayError(
        f"{len(missing)} of {total} requests are not in the ledger {ledger.url}; the first is to"
        f" {first.model.name}{about_it}. {_what_changed(ledger, first)} `make collect RUN={run}`"
        " (or mode='missing') asks for what is not recorded."
    )


def _what_changed(ledger: Ledger, request: Request) -> str:
    """Compare a request with the recorded one that is nearest."""
    model, asked, options = request.digests
    weights = {
        "asked": (asked, 8),
        "model": (model, 4),
        "tag": (request.tag or None, 2),
        "options": (options, 1),
    }
    alike = [
        sa.case((calls.c[name] == value, weight), else_=0)
        for name, (value, weight) in weights.items()
    ]
    near = ledger.rows(
        sa.select(calls).where(ANSWERED).order_by(sum(alike[1:], alike[0]).desc()).limit(1)
    )
    if not near or near[0].asked != asked and near[0].model != model:
        return (
            f"Nothing is recorded of this model (the ledger holds {len(ledger.statuses())} calls)."
        )
    [row] = near
    if row.asked != asked and not (request.tag and row.tag == request.tag):
        return f"This model was asked before, but nothing with these messages. {LIKELY}"
    if row.asked != asked:
        if not row.messages:
            return f"The recorded request about the same thing had other words. {LIKELY}"
        had, has = (
            zstandard.decompress(row.messages).decode("utf-8", "replace"),
            request.messages_json(),
        )
        # and not the words there: somebody's conversation
        at = len(os.path.commonprefix([had, has]))
        return (
            f"The messages changed, at character {at:,} of {len(had):,} that were recorded,"
            f" {len(has):,} now. {LIKELY}"
        )
    if (row.model, row.options) == (model, options):
        return (
            f"The same was asked before, but not as repeat {request.repeat} (recorded: repeat"
            f" {row.repeat})."
        )
    bodies = {digest: json.loads(body) for digest, body in ledger.rows(sa.select(parts))}
    was, now_is = (
        bodies.get(row.model, {}) | bodies.get(row.options, {}),
        json.loads(request.model.identity) | request.sampling,
    )
    names = [name for name in sorted({*was, *now_is}) if was.get(name) != now_is.get(name)]
    changed = "; ".join(f"{name} was {was.get(name)!r}, now {now_is.get(name)!r}" for name in names)
    return f"The model or its options changed: {changed[:400]}."
