"""The database of a ledger, as ``ledger.yaml`` says."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from heart_collect.calls.models import Call, Request
from heart_collect.calls.outcomes import is_blank
from heart_utils.runs import Run, RunError, open_run
from heart_utils.settings import extra, read_yaml

with extra("collect"):
    import sqlalchemy as sa
    import zstandard
    from sqlalchemy.dialects import postgresql, sqlite

__all__ = ["LedgerError"]

FORMAT = 1  #: The version of a ledger's tables. Another version is refused, never guessed at.
VARIABLE = "HEART_LEDGER"
SCHEMES = ("sqlite", "postgresql")
WAIT_S = 60  #: How long a process waits for another one's transaction.
CHUNK = 5000  #: Calls that are read at once.
BATCH = "batch"  #: The host of an owner that is a provider's batch: it never dies, it ends.
metadata = sa.MetaData()
KINDS = {
    "text": sa.Text,
    "real": sa.Float,
    "count": sa.Integer,
    "bytes": sa.LargeBinary,
    "flag": sa.Boolean,
}


def _table(name: str, columns: Mapping[str, Any]) -> sa.Table:
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
# What a model's calls cost together is read from this alone, for a budget of its own.
sa.Index("spending", calls.c.model, calls.c.cost_usd, calls.c.reserved_usd)
# What is claimed is a few hundred rows of perhaps a million: this finds them.
sa.Index(
    "claims",
    calls.c.owner,
    sqlite_where=calls.c.status == "claimed",
    postgresql_where=calls.c.status == "claimed",
)
CLAIMED = calls.c.status == "claimed"
ANSWERED = calls.c.status != "claimed"


class LedgerError(ValueError):
    """A ledger cannot be opened, read or written."""


def ledger_url(run_or_url: str | os.PathLike[str] | Run) -> sa.URL:
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
    """Name the file of a run's ledger; None on a server."""
    url = ledger_url(run)
    return Path(url.database) if url.get_backend_name() == "sqlite" and url.database else None


def open_engine(url: sa.URL) -> sa.Engine:
    """Open a ledger's database; tables are made if need be."""
    engine = _sqlite(url) if url.get_backend_name() == "sqlite" else _postgresql(url)
    _make_tables(engine, url.render_as_string(hide_password=True))
    return engine


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
    return file.exists() and not (os.access(file, os.W_OK) and os.access(file.parent, os.W_OK))


def _reader(url: sa.URL) -> sa.Engine:
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


def _postgresql(url: sa.URL) -> sa.Engine:
    # A machine that is gone without a word is given up after half a minute, not after the quarter
    # of an hour that TCP takes.
    waits = {"connect_timeout": "10", "tcp_user_timeout": "30000", "keepalives_idle": "30"}
    left = {name: value for name, value in waits.items() if name not in url.query}
    with extra("collect"):
        return sa.create_engine(url, connect_args=left, pool_pre_ping=True)


def _make_tables(engine: sa.Engine, shown_url: str) -> None:
    with engine.connect().execution_options(reads=True) as connection:
        inspector = sa.inspect(connection)
        tables_present = set(inspector.get_table_names())
        version = (
            connection.scalar(sa.select(about.c.value).where(about.c.name == "format"))
            if "about" in tables_present
            else None
        )
        columns = (
            {column["name"] for column in inspector.get_columns("calls")}
            if "calls" in tables_present
            else set()
        )
    if version is None and columns:
        raise LedgerError(
            f"{shown_url} has a table called calls, but is no ledger of this project."
        )
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
        or not tables_present.issuperset(metadata.tables)
        or not columns.issuperset(calls.c.keys())
    ):
        of = (
            f"is of version {version}"
            if version != str(FORMAT)
            else "was made before version 0.1.0 of this project"
        )
        raise LedgerError(
            f"The ledger {shown_url} {of}; this project reads version {FORMAT}. With the version"
            " that wrote it, `make collect ARGS='--export calls.jsonl'` writes its calls into a"
            " file; set the ledger aside, and import them here with `make collect ARGS='--merge"
            " calls.jsonl'`."
        )


def is_transient(error: BaseException | None) -> bool:
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


# To write an expression takes SQLAlchemy longer than SQLite takes to run it.
NOW_SQLITE = (sa.func.julianday("now") - 2440587.5) * 86400.0
NOW_POSTGRESQL = sa.cast(sa.func.extract("epoch", sa.func.clock_timestamp()), sa.Float)


def now(engine: sa.Engine) -> sa.ColumnElement[float]:
    """Seconds since 1970 by the database's clock; machines' own may disagree."""
    return NOW_SQLITE if engine.dialect.name == "sqlite" else NOW_POSTGRESQL


def keys_in(engine: sa.Engine, keys: list[str]) -> sa.ColumnElement[bool]:
    """Build the condition on keys, as one parameter."""
    if engine.dialect.name == "sqlite":
        return calls.c.key.in_(
            sa.select(sa.func.json_each(json.dumps(keys)).table_valued("value").c.value)
        )
    return calls.c.key == sa.func.any(
        sa.cast(sa.literal(keys, postgresql.ARRAY(sa.String)), postgresql.ARRAY(sa.String))
    )


def in_batch() -> sa.ColumnElement[bool]:
    return calls.c.owner.in_(sa.select(owners.c.owner).where(owners.c.host == BATCH))


def upsert(engine: sa.Engine, table: sa.Table) -> Any:
    """Begin an INSERT that may say what happens where the row is there."""
    return _insert_into(engine.dialect.name, table)


@cache  # one for all, since what it excludes is a copy of all columns
def _insert_into(dialect: str, table: sa.Table) -> Any:
    return sqlite.insert(table) if dialect == "sqlite" else postgresql.insert(table)


def total(
    column: sa.ColumnElement[Any], where: sa.ColumnElement[bool] | None = None
) -> sa.ScalarSelect[Any]:
    wanted = sa.select(sa.func.coalesce(sa.func.sum(column), 0.0))
    return (wanted if where is None else wanted.where(where)).scalar_subquery()


def later_of(one: Any, other: Any) -> sa.ColumnElement[float]:
    return sa.case((one > other, one), else_=other)


def chunks(keys: Sequence[str]) -> Iterator[list[str]]:
    """Cut keys into lists looked up at once."""
    keys = list(keys)  # also of a set
    for start in range(0, len(keys), CHUNK):
        yield keys[start : start + CHUNK]


LEVEL = 3  #: Of compression; 6 makes the prompts of a study 2 % smaller, and takes twice the time.
ANSWER = [field.name for field in fields(Call) if field.name not in ("call_id", "text", "logprobs")]
SEALED: dict[str, type] = {name: calls.c[name].type.python_type for name in (*ANSWER, "logprobs")}
DAMAGED = "the stored answer is damaged: it is not what was written"


def failed(call: Call) -> bool:
    """Check whether a call is to be asked again."""
    blank = (
        call.status == "ok" and call.logprobs is None and bool(call.text) and is_blank(call.text)
    )
    return call.status == "error" or blank


def pack_call(call: Call) -> dict[str, object]:
    packed = zstandard.compress(call.text.encode("utf-8", "replace"), LEVEL) if call.text else None
    values: dict[str, object] = {
        "key": call.call_id,
        **{name: getattr(call, name) for name in ANSWER},
        "answer": packed,
    }
    # Half a character, as a token may be, is no UTF-8; both columns hold a mark in its place.
    tokens = json.dumps(call.logprobs, ensure_ascii=False).encode("utf-8", "replace").decode()
    values["logprobs"] = None if call.logprobs is None else tokens
    values["digest"] = seal(call.call_id, packed, values)
    return values


def seal(key: str, answer: bytes | None, values: Mapping[str, Any]) -> str:
    """Hash a row, so that damage is seen."""
    sealed_values = [
        (name, kind(values[name])) for name, kind in SEALED.items() if values.get(name) is not None
    ]
    content = f"{key} {sealed_values!r} ".encode("utf-8", "surrogatepass") + (answer or b"")
    return hashlib.blake2b(content, digest_size=8).hexdigest()


def unpack_call(
    key: str,
    answer: bytes | None,
    digest: str | None,
    values: dict[str, Any],
    unpack: zstandard.ZstdDecompressor,
) -> Call:
    """Read a row; ValueError if damaged."""
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


def asked_of(request: Request) -> dict[str, str | int | bytes | None]:
    model, messages_digest, options = request.digests
    messages = request.messages_json().encode("utf-8", "surrogatepass")
    return {
        "key": request.key,
        "tag": request.tag,
        "model": model,
        "asked": messages_digest,
        "options": options,
        "repeat": request.repeat,
        "messages": zstandard.compress(messages, LEVEL),
    }


def parts_of(requests: Sequence[Request]) -> list[dict[str, str]]:
    """List what digests stand for."""
    options = {request.digests[2]: request for request in requests}
    bodies = {
        digest: json.dumps(one.sampling, sort_keys=True, ensure_ascii=False)
        for digest, one in options.items()
    }
    bodies |= {request.digests[0]: request.model.identity for request in requests}
    return [{"digest": digest, "body": body} for digest, body in sorted(bodies.items())]
