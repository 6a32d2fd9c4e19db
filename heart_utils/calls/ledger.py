"""The ledger: every call to a model, kept under the hash of what was asked, so that nothing is paid twice."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from functools import cached_property, lru_cache, wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import psutil  # type: ignore[import-untyped]
import sqlalchemy as sa
import tenacity
import zstandard
from sqlalchemy.dialects import postgresql, sqlite

from heart_utils.calls.models import Call, Model, Request
from heart_utils.runs import Run, RunError, open_run, write_atomically

__all__ = ["FORMAT", "LEVEL", "Claim", "Ledger", "LedgerError", "Money", "ReplayError", "open_ledger"]

FORMAT = 1  #: The version of a ledger's tables. Another version is refused, never guessed at.

VARIABLE = "HEART_LEDGER"
SCHEMES = ("sqlite", "postgresql")
WAIT_S = 60  #: How long a process waits for another one's transaction.

metadata = sa.MetaData()


def _columns(kind: Any, names: str) -> list[sa.Column[Any]]:
    return [sa.Column(name, kind) for name in names.split()]


about = sa.Table(
    "about",
    metadata,
    sa.Column("name", sa.String(40), primary_key=True),
    sa.Column("value", sa.Text, nullable=False),
)

calls = sa.Table(
    "calls",
    metadata,
    sa.Column("key", sa.String(32), primary_key=True),
    sa.Column("status", sa.String(12), nullable=False),  # claimed, or what became of the call
    sa.Column("owner", sa.String(64)),
    sa.Column("reserved_usd", sa.Float),
    sa.Column("tag", sa.Text),
    *_columns(sa.String(16), "model asked options"),  # digests; `parts` has what the first and the third stand for
    sa.Column("repeat", sa.Integer),
    *_columns(sa.LargeBinary(), "messages answer"),  # zstandard
    sa.Column("finish_reason", sa.String(40)),
    sa.Column("logprobs", sa.Text),
    *_columns(sa.Float(), "ttft_ms total_ms"),
    *_columns(sa.Integer(), "prompt_tokens completion_tokens"),
    sa.Column("cost_usd", sa.Float),
    *_columns(sa.Integer(), "attempts in_flight"),
    sa.Column("error", sa.Text),
    sa.Column("finished_at", sa.Float),  # by the database's clock
    # Columns that came later may be empty, and are added to ledgers that were made before them.
    *_columns(sa.Text(), "served_model fingerprint"),
    sa.Column("cached_tokens", sa.Integer),
    sa.Column("estimated", sa.Boolean),
    sa.Column("digest", sa.String(16)),  # of all that the row says of the answer
)
# What is claimed is a few hundred rows of perhaps a million: this finds them.
# What a model's calls cost together is read from this alone, for a budget of its own.
sa.Index("spending", calls.c.model, calls.c.cost_usd, calls.c.reserved_usd)
sa.Index("claims", calls.c.owner, sqlite_where=calls.c.status == "claimed", postgresql_where=calls.c.status == "claimed")

owners = sa.Table(
    "owners",
    metadata,
    sa.Column("owner", sa.String(64), primary_key=True),
    sa.Column("host", sa.String(200), nullable=False),
    sa.Column("pid", sa.Integer),
    sa.Column("started", sa.Float),
    sa.Column("seen_at", sa.Float, nullable=False),
    sa.Column("spent_usd", sa.Float, nullable=False),
    sa.Column("unsettled_usd", sa.Float, nullable=False),
)

parts = sa.Table(
    "parts",
    metadata,
    sa.Column("digest", sa.String(16), primary_key=True),
    sa.Column("body", sa.Text, nullable=False),
)


batches = sa.Table(
    "batches",
    metadata,
    sa.Column("batch", sa.String(200), primary_key=True),  # as the provider calls it; its owner until that is known
    sa.Column("owner", sa.String(64), nullable=False),  # of its claims
    sa.Column("model", sa.Text, nullable=False),  # what is needed to ask for it again; never a key
    sa.Column("status", sa.String(20), nullable=False),  # creating, open, or how it ended
    sa.Column("n", sa.Integer, nullable=False),
    sa.Column("submitted_at", sa.Float, nullable=False),
)

paces = sa.Table(
    "paces",
    metadata,
    sa.Column("name", sa.String(40), primary_key=True),  # of a model and of what is limited
    sa.Column("next_at", sa.Float, nullable=False),  # by the database's clock
)


class LedgerError(ValueError):
    """A ledger cannot be opened, read or written."""


def connect(run_or_url: str | os.PathLike[str] | Run) -> sa.Engine:
    """Connect to the ledger of a run, or to one by its URL; its tables are made if need be."""
    url = _url(run_or_url)
    shown = url.render_as_string(hide_password=True)
    if url.get_backend_name() not in SCHEMES:
        raise LedgerError(f"{shown} is not a ledger: expected sqlite:///FILE or postgresql+psycopg://USER@HOST/NAME.")
    try:
        engine = _sqlite(url) if url.get_backend_name() == "sqlite" else _postgresql(url)
        _make_tables(engine, shown)
    except (sa.exc.SQLAlchemyError, OSError) as error:
        reason = str(getattr(error, "orig", None) or error).splitlines()[0]
        raise LedgerError(f"The ledger {shown} cannot be opened: {reason}.") from None
    return engine


def passes(error: BaseException | None) -> bool:
    """Tell whether what failed on a database may do better a little later."""
    if not isinstance(error, sa.exc.DBAPIError):
        return False
    state = getattr(error.orig, "sqlstate", "")
    if state == "":  # SQLite, which has none
        return "locked" in str(error.orig)
    # PostgreSQL: a connection that was lost or not made has none; classes are connection, rollback, operator's intervention.
    lost = state is None and isinstance(error, sa.exc.OperationalError)
    return error.connection_invalidated or lost or str(state)[:2] in ("08", "40", "57") or state == "53300"


def now(engine: sa.Engine) -> sa.ColumnElement[float]:
    """Seconds since 1970 by the database's clock; the machines that share it may disagree."""
    if engine.dialect.name == "sqlite":
        return (sa.func.julianday("now") - 2440587.5) * 86400.0
    return sa.cast(sa.func.extract("epoch", sa.func.clock_timestamp()), sa.Float)


def keys_in(engine: sa.Engine, column: sa.Column[str], keys: list[str]) -> sa.ColumnElement[bool]:
    """Say that a column's value is among many, as one parameter."""
    if engine.dialect.name == "sqlite":
        return column.in_(sa.select(sa.func.json_each(json.dumps(keys)).table_valued("value").c.value))
    return column == sa.func.any(sa.cast(sa.literal(keys, postgresql.ARRAY(sa.String)), postgresql.ARRAY(sa.String)))


def upsert(engine: sa.Engine, table: sa.Table) -> Any:
    """Begin an INSERT that may say what happens where the row is there already."""
    return sqlite.insert(table) if engine.dialect.name == "sqlite" else postgresql.insert(table)


def _total(column: sa.ColumnElement[Any]) -> sa.ColumnElement[float]:
    return sa.func.coalesce(sa.func.sum(column), 0.0)


def _url(run_or_url: str | os.PathLike[str] | Run) -> sa.URL:
    text = "" if isinstance(run_or_url, Run) else os.fspath(run_or_url)
    text = text if "://" in text else os.environ.get(VARIABLE, "")
    if not text:
        run = run_or_url if isinstance(run_or_url, Run) else open_run(run_or_url)
        return sa.URL.create("sqlite", database=str(run.folder / "ledger.sqlite"))
    try:
        url = sa.make_url(text)
    except sa.exc.ArgumentError:
        raise LedgerError(f"{VARIABLE} or the ledger's address is no URL; expected postgresql+psycopg://...") from None
    if url.drivername == "postgresql":
        url = url.set(drivername="postgresql+psycopg")
    return url


def _postgresql(url: sa.URL) -> sa.Engine:
    # A machine that is gone without a word is given up after half a minute, not after the quarter of an hour that TCP takes.
    waits = {"connect_timeout": "10", "tcp_user_timeout": "30000", "keepalives_idle": "30"}
    left = {name: value for name, value in waits.items() if name not in url.query}
    return sa.create_engine(url, connect_args=left, pool_pre_ping=True)


def _sqlite(url: sa.URL) -> sa.Engine:
    if url.database:
        try:
            Path(url.database).parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(f"{Path(url.database).parent} cannot be written ({error.strerror}).") from None
        if not Path(url.database).exists():  # answers may hold what people wrote: nobody else's from the first byte on
            with suppress(FileExistsError):
                os.close(os.open(url.database, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        engine = sa.create_engine(url, connect_args={"timeout": WAIT_S})
    else:  # in memory: one connection, or every thread would see a database of its own
        engine = sa.create_engine(url, poolclass=sa.pool.StaticPool, connect_args={"check_same_thread": False})

    @sa.event.listens_for(engine, "connect")
    def _settle(connection: Any, _: Any) -> None:
        connection.isolation_level = None  # the BEGIN below is ours
        connection.text_factory = _text
        connection.execute("PRAGMA page_size=16384")  # calls take 1 to 3 kB: in pages of 4 kB every other one would waste half
        connection.execute("PRAGMA journal_mode=WAL")  # readers and one writer side by side; survives kill -9
        connection.execute("PRAGMA synchronous=NORMAL")

    @sa.event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        reads = connection.get_execution_options().get("reads")
        connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")

    return engine


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")  # a damaged text is one row's fault, and its digest tells


def _make_tables(engine: sa.Engine, shown: str) -> None:
    with engine.connect().execution_options(reads=True) as connection:
        there = set(sa.inspect(connection).get_table_names())
        version = connection.scalar(sa.select(about.c.value).where(about.c.name == "format")) if "about" in there else None
    if version is None:
        if "calls" in there:
            raise LedgerError(f"{shown} has a table called calls, but is no ledger of this project.")
        with engine.begin() as connection:
            metadata.create_all(connection)
            connection.execute(upsert(engine, about).values(name="format", value=str(FORMAT)).on_conflict_do_nothing())
    elif version != str(FORMAT):
        said = f"The ledger {shown} is of version {version}; this project reads version {FORMAT}"
        raise LedgerError(f"{said}. Export its calls with the version that wrote it, and import them here.")
    else:
        _add_what_came_later(engine)


def _lacks(connection: sa.Connection) -> list[sa.Column[Any]]:
    """List the columns that a ledger of the same version may lack, those of whole tables among them."""
    inspector = sa.inspect(connection)
    there = {(table, column["name"]) for table in inspector.get_table_names() for column in inspector.get_columns(table)}
    return [column for table in metadata.tables.values() for column in table.columns if (table.name, column.name) not in there]


def _add_what_came_later(engine: sa.Engine) -> None:
    """Add the tables, columns and indexes that a ledger of the same version may lack; nothing of what is there changes."""
    with engine.connect().execution_options(reads=True) as connection:
        if not _lacks(connection):
            return
    with engine.begin() as connection:
        if engine.dialect.name != "sqlite":  # two processes may open an old ledger at once
            connection.execute(sa.text("SELECT pg_advisory_xact_lock(4219923)"))
        metadata.create_all(connection)
        for column in _lacks(connection):
            kind = column.type.compile(engine.dialect)
            connection.execute(sa.text(f"ALTER TABLE {column.table.name} ADD COLUMN {column.name} {kind}"))
        for index in calls.indexes:
            index.create(connection, checkfirst=True)


P = ParamSpec("P")
T = TypeVar("T")

LEASE_S = 60.0  #: A process of another machine not heard of for so long is taken for dead, and its claims are free.

LOOK_S = 5.0  #: The most that one look at a silent process adds to its silence: while the database was away, all were silent.

PATIENCE_S = 900.0  #: How long a step waits for a database that restarts, is locked or cannot be reached.

LEVEL = 3  #: Of compression; 6 makes the prompts of a study 2 % smaller, and takes twice the time.

BATCH = "batch"  #: The host of an owner that is a provider's batch: it never dies, it ends.

ANSWER = [field.name for field in fields(Call) if field.name not in ("call_id", "text", "logprobs")]
SEALED: dict[str, type] = {name: calls.c[name].type.python_type for name in (*ANSWER, "logprobs")}
LOGGED = ("attempts", "prompt_tokens", "completion_tokens", "cost_usd")
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
    """What calls on a ledger cost so far, in USD, all processes together."""

    spent: float  #: For answers that came, at list price.
    #: At most, for calls that nobody heard the end of: time-outs, dropped connections, calls in flight when a process was
    #: killed. They may have been billed, so a budget counts them.
    unsettled: float
    reserved: float  #: At most, for calls in flight now and for requests in providers' batches.
    in_flight: float  #: The part of it that is settled soon; a batch may take a day.

    @property
    def bound(self) -> float:
        """The most that all of it can come to."""
        return self.spent + self.unsettled + self.reserved


@dataclass(frozen=True)
class Claim:
    """What a process got: the keys that it may ask, how many from the end the budget did not reach for, the money before."""

    won: frozenset[str]
    unfit: int
    money: Money


class Ledger:
    """All calls of a run, or of several machines; see :func:`open_ledger`."""

    def __init__(self, engine: sa.Engine) -> None:
        self.engine = engine
        self.owner = f"{os.getpid()}-{secrets.token_hex(8)}"  #: This process, as other processes see it.
        #: Keys of answers looked up that are not what was written, with the time of their writing.
        self.damaged: dict[str, float] = {}
        self.patience_s = PATIENCE_S  #: How long a step waits for a database that cannot be reached.
        self.hurry = threading.Event()  #: Once set, nothing waits any more.
        self.waits: str | None = None  #: Why a step is waiting now.
        #: A file of JSON Lines that gets a line for each call that ends: never what was asked or answered.
        self.log: Path | None = None
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
            for chunk in chunks(keys):
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
            for chunk in [None] if keys is None else chunks(keys):
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
        """Make requests this process's to ask, those that nobody answered or claimed."""
        self._enrol(owner)
        pack = zstandard.ZstdCompressor(level=LEVEL)
        claimed = {"status": "claimed", "owner": owner or self.owner}
        both = zip(requests, reserves, strict=True)
        rows = [{**_asked(request, pack), **claimed, "reserved_usd": reserve} for request, reserve in both]
        keys = {request.key for request in requests}
        with self._unsure_of(keys), self.writing() as connection:
            self._hold_money(connection, requests[0], budget_usd)
            self._bury(connection)
            if self._unsure & keys:
                self._give_back(connection, owner or self.owner, sorted(self._unsure & keys))
            for key in keys & set(self.damaged):  # unless somebody answered it again since it was read
                read = (calls.c.key == key) & (calls.c.finished_at == self.damaged[key])
                connection.execute(calls.update().where(read).values(status="error", finished_at=-1.0))
            money, left = self._money_left(connection, requests[0], budget_usd)
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

    @contextmanager
    def _unsure_of(self, keys: set[str]) -> Iterator[None]:
        """Remember claims that may have been committed although they failed."""
        try:
            yield
        except LedgerError:
            self._unsure |= keys
            self._known.clear()
            raise

    @_patiently
    def reserve_more(self, request: Request, usd: float, budget_usd: float | None) -> bool:
        """Reserve money for another attempt at a claimed call; false where its model's budget or the whole does not reach."""
        with self.writing() as connection:
            self._hold_money(connection, request, budget_usd)
            if usd > self._money_left(connection, request, budget_usd)[1]:
                return False
            mine = (calls.c.key == request.key) & (calls.c.status == "claimed")
            connection.execute(calls.update().where(mine).values(reserved_usd=calls.c.reserved_usd + usd))
        return True

    @_patiently
    def book(self, places: Mapping[str, float]) -> float:
        """Book a place in queues that all processes keep."""
        clock, wait = now(self.engine), 0.0
        with self.writing() as connection:
            for name, seconds in sorted(places.items()):
                free_at = sa.case((paces.c.next_at > clock, paces.c.next_at), else_=clock)
                book = upsert(self.engine, paces).values(name=name, next_at=clock + seconds)
                book = book.on_conflict_do_update(index_elements=["name"], set_={"next_at": free_at + seconds})
                wait = max(wait, connection.execute(book.returning(paces.c.next_at - clock)).scalar_one() - seconds)
        return wait

    @_patiently
    def hold(self, name: str, seconds: float) -> None:
        """Tell all processes that nothing is asked in a queue for so long, because its provider says so."""
        until = now(self.engine) + seconds
        later = sa.case((paces.c.next_at > until, paces.c.next_at), else_=until)
        with self.writing() as connection:
            hold = upsert(self.engine, paces).values(name=name, next_at=until)
            connection.execute(hold.on_conflict_do_update(index_elements=["name"], set_={"next_at": later}))

    @_patiently
    def held(self, names: Sequence[str]) -> dict[str, float]:
        """Tell for how many seconds queues are held, those that are."""
        left = (paces.c.next_at - now(self.engine)).label("left")
        with self.reading() as connection:
            rows = connection.execute(sa.select(paces.c.name, left).where(paces.c.name.in_(list(names)), left > 0))
            return {row.name: row.left for row in rows}

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
        """Write answers, and what they cost, in one transaction."""
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
                self._give_back(connection, owner)
                connection.execute(batches.update().where(batches.c.owner == owner).values(status=batch_ended))
        for call in answers if self.log is not None else ():
            asked_of = (requests or {}).get(call.call_id)
            said: dict[str, Any] = {"call": call.call_id, "model": asked_of and asked_of.model.name, "state": call.status}
            said["seconds"] = None if call.total_ms is None else round(call.total_ms / 1000, 3)
            said |= {name: getattr(call, name) for name in LOGGED}
            # The rest of the words is the provider's, which may repeat what it was sent.
            self.tell(said | {"reason": re.split(r"[:(]", call.error)[0].strip() if call.error else None})

    @_patiently
    def release(self, keys: Sequence[str]) -> None:
        """Give back claims that were not asked."""
        with self.writing() as connection:
            self._give_back(connection, self.owner, list(keys))

    @_patiently
    def in_batches(self, keys: Sequence[str]) -> set[str]:
        """Tell which of these are claimed by a provider's batch."""
        held = sa.select(owners.c.owner).where(owners.c.host == BATCH)
        with self.reading() as connection:
            mine = keys_in(self.engine, calls.c.key, list(keys)) & (calls.c.status == "claimed") & calls.c.owner.in_(held)
            return set(connection.scalars(sa.select(calls.c.key).where(mine)))

    @_patiently
    def knows(self, request: Request) -> bool:
        """Tell whether a request's model has ever answered anything."""
        its = (calls.c.model == request.digests[0]) & calls.c.status.in_(("ok", "refused", "truncated"))
        with self.reading() as connection:
            return connection.scalar(sa.select(calls.c.key).where(its).limit(1)) is not None

    @_patiently
    def quick_and_slow(self, model: Model) -> tuple[float, float] | None:
        """Give the seconds that the quickest and the slowest tenth of a model's answers take; None of fewer than ten."""
        its = (calls.c.model == model.identity_digest) & (calls.c.status == "ok") & calls.c.total_ms.is_not(None)
        with self.reading() as connection:
            took = sorted(connection.scalars(sa.select(calls.c.total_ms).where(its)))
        return None if len(took) < 10 else (took[len(took) // 10] / 1000, took[-1 - len(took) // 10] / 1000)

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
            return connection.execute(sa.select(now(self.engine))).scalar_one()

    @_patiently
    def counts(self) -> dict[str, int]:
        """Count calls by status; ``claimed`` are those in flight."""
        wanted = sa.select(calls.c.status, sa.func.count().label("n")).group_by(calls.c.status)
        with self.reading() as connection:
            return {row.status: row.n for row in connection.execute(wanted)}

    def tell(self, what: Mapping[str, Any]) -> None:
        """Add a line to the log, if there is one."""
        if self.log is not None:
            line = json.dumps({"at": datetime.now(UTC).isoformat(timespec="milliseconds"), **what})
            with self.log.open("a", encoding="utf-8") as file:
                file.write(f"{line}\n")

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
            said = f"The ledger {self.url} could not be written ({str(error.orig).splitlines()[0]})"
            raise LedgerError(f"{said}. What was recorded before still stands.") from error

    @cached_property
    def _recording(self) -> tuple[sa.Update, sa.Update]:
        """Make the two statements that record answers: ten times a second they would cost more than what they do."""
        clock = now(self.engine)
        values: dict[str, Any] = {name: sa.bindparam(f"new_{name}") for name in (*SEALED, "answer", "digest")}
        better = (calls.c.status == "error") & (values["status"] != "error")
        update = calls.update().where(calls.c.key == sa.bindparam("old_key"), (calls.c.status == "claimed") | better)
        more = {f"{what}_usd": owners.c[f"{what}_usd"] + sa.bindparam(what, type_=sa.Float) for what in ("spent", "unsettled")}
        book = owners.update().where(owners.c.owner == sa.bindparam("whose")).values(seen_at=clock, **more)
        return update.values(**values, owner=None, reserved_usd=None, finished_at=clock), book

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

    def _hold_money(self, connection: sa.Connection, request: Request, budget_usd: float | None) -> None:
        """Let one process at a time read the money and claim; SQLite does so anyway."""
        if self.shared and (budget_usd, request.model.budget_usd) != (None, None):
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
            reserved = connection.scalar(sa.select(_total(calls.c.reserved_usd)).where(its))
            unsettled = owners.c.unsettled_usd + reserved
            connection.execute(owners.update().where(owners.c.owner == row.owner).values(unsettled_usd=unsettled))
            self._give_back(connection, row.owner)

    def _give_back(self, connection: sa.Connection, owner: str | None, keys: list[str] | None = None) -> None:
        """Let go of claims, or of some; an error that was to be asked again is the error that it was."""
        its = (calls.c.owner == owner) & (calls.c.status == "claimed")
        its &= sa.true() if keys is None else keys_in(self.engine, calls.c.key, keys)
        was = {"status": "error", "owner": None, "reserved_usd": None}
        connection.execute(calls.update().where(its, calls.c.finished_at.is_not(None)).values(was))
        connection.execute(calls.delete().where(its))

    def _silent(self, owner: str, seen_at: float) -> bool:
        """Tell whether another machine's process is silent, by this one's watch: the database's clock may be set anew."""
        at = time.monotonic()
        stamp, looked, quiet = self._heard.get(owner, (seen_at, at, 0.0))
        quiet = quiet + min(at - looked, LOOK_S) if stamp == seen_at else 0.0
        self._heard[owner] = (seen_at, at, quiet)
        return quiet > LEASE_S

    def _money(self, connection: sa.Connection) -> Money:
        spent, unsettled = connection.execute(sa.select(_total(owners.c.spent_usd), _total(owners.c.unsettled_usd))).one()
        reserved = sa.select(_total(calls.c.reserved_usd)).where(calls.c.status == "claimed")
        batched = calls.c.owner.in_(sa.select(owners.c.owner).where(owners.c.host == BATCH))
        waiting, in_flight = (float(connection.execute(reserved.where(part)).scalar_one()) for part in (batched, ~batched))
        return Money(float(spent), float(unsettled), waiting + in_flight, in_flight)

    def _money_left(self, connection: sa.Connection, request: Request, budget_usd: float | None) -> tuple[Money, float]:
        """Read the money, and what is left for a request of the whole's budget or, if less, of its model's own.

        What nobody heard the end of is in the whole's money only.
        """
        money, cap = self._money(connection), request.model.budget_usd
        left = float("inf") if budget_usd is None else budget_usd - money.bound
        if cap is not None:
            both = sa.func.coalesce(calls.c.cost_usd, 0.0) + sa.func.coalesce(calls.c.reserved_usd, 0.0)
            its = connection.execute(sa.select(_total(both)).where(calls.c.model == request.digests[0])).scalar_one()
            left = min(left, cap - its)
        return money, left

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
        import_calls(ledger, seed_file)
    return ledger


def pack_call(call: Call, pack: zstandard.ZstdCompressor) -> dict[str, Any]:
    """Give a call the form of a row, sealed."""
    values: dict[str, Any] = {"key": call.call_id, **{name: getattr(call, name) for name in ANSWER}}
    values["answer"] = pack.compress(call.text.encode("utf-8", "replace")) if call.text else None
    # Half a character, as a token may be, is no UTF-8; both columns hold a mark in its place.
    tokens = json.dumps(call.logprobs, ensure_ascii=False).encode("utf-8", "replace").decode()
    values["logprobs"] = None if call.logprobs is None else tokens
    values["digest"] = seal(call.call_id, values["answer"], values)
    return values


def seal(key: str, answer: bytes | None, values: Mapping[str, Any]) -> str:
    """Hash what a row says of an answer, so that damage is seen."""
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
        return abs(_began(process) - started) < 2.0 and bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def _began(process: psutil.Process) -> float:
    """Give the seconds from the machine's start to the process's: setting the clock moves both."""
    return float(process.create_time() - psutil.boot_time())


CHUNK = 5000  #: Calls that are read at once.

ASKED = ("model", "asked", "options", "repeat", "tag")  #: Columns that tell what was asked; the first three are digests.

LIKELY = "A changed `seed`, rubric or history under `collect:` would do that, or a reply of somebody's imported since."


class ReplayError(LedgerError):
    """A request is not in the ledger, and only the ledger may answer."""


def export_calls(ledger: Ledger, file: str | os.PathLike[str], *, only_used: bool = False) -> int:
    """Write a ledger's answers as JSON Lines, sorted by key.

    What was asked is not in the file, only its hash: the code derives it again. So the file is a few hundred bytes a
    call, and holds none of the words of a data set but in the answers.
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
    r"""Read calls that ``export_calls`` wrote; what is recorded already stays."""
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
    """Take in the answers of another ledger, such as one of another machine; what is recorded already stays."""
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
    for chunk in chunks(keys):
        other.find(chunk)
        among = keys_in(other.engine, calls.c.key, chunk)
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
    """Read all that a ledger holds, and say what is damaged or doubled."""
    keys, faults = sorted(ledger.statuses()), []
    for chunk in chunks(keys):
        ledger.find(chunk)
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
    """Say of requests that are not recorded what changed since something like the first was."""
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
        if like(asked=asked) and like(model=model):
            return "Another model was asked the same, and this one other things."
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
