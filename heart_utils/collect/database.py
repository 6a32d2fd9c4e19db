"""The database under the ledger: its tables, its address, its clock. SQLite in a file, or PostgreSQL by URL."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from heart_utils.runs import Run, RunError, open_run

__all__ = [
    "FORMAT", "LedgerError", "about", "batches", "calls", "connect", "keys_in", "now", "owners", "paces", "parts", "passes",
    "upsert",
]  # fmt: skip

FORMAT = 1
"""The version of a ledger's tables. Another version is refused, never guessed at."""

VARIABLE = "HEART_LEDGER"
SCHEMES = ("sqlite", "postgresql")
WAIT_S = 60
"""How long a process waits for another one's transaction."""

metadata = sa.MetaData()

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
    sa.Column("model", sa.String(16)),  # digests; `parts` has what the first and the third stand for
    sa.Column("asked", sa.String(16)),
    sa.Column("options", sa.String(16)),
    sa.Column("repeat", sa.Integer),
    sa.Column("messages", sa.LargeBinary),  # zstandard
    sa.Column("answer", sa.LargeBinary),  # zstandard
    sa.Column("finish_reason", sa.String(40)),
    sa.Column("logprobs", sa.Text),
    sa.Column("ttft_ms", sa.Float),
    sa.Column("total_ms", sa.Float),
    sa.Column("prompt_tokens", sa.Integer),
    sa.Column("completion_tokens", sa.Integer),
    sa.Column("cost_usd", sa.Float),
    sa.Column("attempts", sa.Integer),
    sa.Column("in_flight", sa.Integer),
    sa.Column("error", sa.Text),
    sa.Column("finished_at", sa.Float),  # by the database's clock
    # Columns that came later may be empty, and are added to ledgers that were made before them.
    sa.Column("served_model", sa.Text),
    sa.Column("fingerprint", sa.Text),
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
    """Connect to the ledger of a run, or to one by its URL; its tables are made if need be.

    Parameters
    ----------
    run_or_url : str, path or Run
        A URL has ``://`` in it; anything else is a run, whose ledger is the file
        ``ledger.sqlite`` in its folder, or the one that ``HEART_LEDGER`` names.

    Returns
    -------
    sqlalchemy.Engine
        On SQLite, a transaction holds the file from its beginning unless it only reads.

    Raises
    ------
    LedgerError
        If the place cannot be reached or written, is no ledger, or is of another version.

    Examples
    --------
    >>> import sqlalchemy as sa
    >>> engine = connect("sqlite://")
    >>> sorted(sa.inspect(engine).get_table_names())
    ['about', 'batches', 'calls', 'owners', 'paces', 'parts']
    >>> connect("mysql://somewhere/else")
    Traceback (most recent call last):
        ...
    LedgerError: mysql://somewhere/else is not a ledger: expected sqlite:///FILE or ...
    """
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
    """Tell whether what failed on a database may do better a little later.

    Parameters
    ----------
    error : BaseException or None
        As SQLAlchemy raised it.

    Returns
    -------
    bool
        True of a server that restarts or cannot be reached, of a deadlock and of a lock that another program holds;
        false of a full disk or a damaged file.

    Examples
    --------
    >>> import sqlite3
    >>> import sqlalchemy as sa
    >>> said = [sqlite3.OperationalError(why) for why in ("database is locked", "database or disk is full")]
    >>> [passes(sa.exc.OperationalError("INSERT ...", {}, error)) for error in said]
    [True, False]
    """
    if not isinstance(error, sa.exc.DBAPIError):
        return False
    state = getattr(error.orig, "sqlstate", "")
    if state == "":  # SQLite, which has none
        return "locked" in str(error.orig)
    # PostgreSQL: a connection that was lost or not made has none; classes are connection, rollback, operator's intervention.
    lost = state is None and isinstance(error, sa.exc.OperationalError)
    return error.connection_invalidated or lost or str(state)[:2] in ("08", "40", "57") or state == "53300"


def now(engine: sa.Engine) -> sa.ColumnElement[float]:
    """Seconds since 1970 by the database's clock; the machines that share it may disagree.

    Parameters
    ----------
    engine : sqlalchemy.Engine
        Whose clock.

    Returns
    -------
    sqlalchemy.ColumnElement
        To be selected or written.

    Examples
    --------
    >>> import sqlalchemy as sa
    >>> engine = connect("sqlite://")
    >>> with engine.connect() as connection:
    ...     connection.scalar(sa.select(now(engine))) > 1.7e9  # after 2023
    True
    """
    if engine.dialect.name == "sqlite":
        return (sa.func.julianday("now") - 2440587.5) * 86400.0
    return sa.cast(sa.func.extract("epoch", sa.func.clock_timestamp()), sa.Float)


def keys_in(engine: sa.Engine, column: sa.Column[str], keys: list[str]) -> sa.ColumnElement[bool]:
    """Say that a column's value is among many, as one parameter.

    Parameters
    ----------
    engine : sqlalchemy.Engine
        Whose dialect to speak.
    column : sqlalchemy.Column
        What is looked at.
    keys : list of str
        Any number of values.

    Returns
    -------
    sqlalchemy.ColumnElement
        A condition.

    Examples
    --------
    >>> import sqlalchemy as sa
    >>> engine = connect("sqlite://")
    >>> with engine.begin() as connection:
    ...     _ = connection.execute(parts.insert(), [{"digest": name, "body": name} for name in "abc"])
    ...     list(connection.scalars(sa.select(parts.c.body).where(keys_in(engine, parts.c.digest, ["a", "c", "z"]))))
    ['a', 'c']
    """
    if engine.dialect.name == "sqlite":
        import json

        return column.in_(sa.select(sa.func.json_each(json.dumps(keys)).table_valued("value").c.value))
    return column == sa.func.any(sa.cast(sa.literal(keys, postgresql.ARRAY(sa.String)), postgresql.ARRAY(sa.String)))


def upsert(engine: sa.Engine, table: sa.Table) -> Any:
    """Begin an INSERT that may say what happens where the row is there already.

    Parameters
    ----------
    engine : sqlalchemy.Engine
        Whose dialect to speak.
    table : sqlalchemy.Table
        Where rows go.

    Returns
    -------
    sqlalchemy.Insert
        The dialect's own, with ``on_conflict_do_nothing`` and ``on_conflict_do_update``.

    Examples
    --------
    >>> import sqlalchemy as sa
    >>> engine = connect("sqlite://")
    >>> with engine.begin() as connection:
    ...     for body in ("first", "second"):
    ...         _ = connection.execute(upsert(engine, parts).values(digest="d", body=body).on_conflict_do_nothing())
    ...     connection.scalar(sa.select(parts.c.body))
    'first'
    """
    return sqlite.insert(table) if engine.dialect.name == "sqlite" else postgresql.insert(table)


def _url(run_or_url: str | os.PathLike[str] | Run) -> sa.URL:
    text = None if isinstance(run_or_url, Run) else os.fspath(run_or_url)
    if text is None or "://" not in text:
        given = os.environ.get(VARIABLE)
        if not given:
            run = run_or_url if isinstance(run_or_url, Run) else open_run(run_or_url)
            return sa.URL.create("sqlite", database=str(run.folder / "ledger.sqlite"))
        text = given
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
        raise LedgerError(
            f"The ledger {shown} is of version {version}; this project reads version {FORMAT}. "
            f"Open it with the project's version that wrote it, export its calls there, and import them here."
        )
    else:
        _add_what_came_later(engine)


def _add_what_came_later(engine: sa.Engine) -> None:
    """Add the tables, columns and indexes that a ledger of the same version may lack; nothing of what is there changes."""
    with engine.connect().execution_options(reads=True) as connection:
        inspector = sa.inspect(connection)
        there = set(inspector.get_table_names())
        columns = {table: {column["name"] for column in inspector.get_columns(table)} for table in there & set(metadata.tables)}
        indexes = {index["name"] for table in columns for index in inspector.get_indexes(table)}
    late = [column for table in columns for column in metadata.tables[table].columns if column.name not in columns[table]]
    unindexed = [index for table in columns for index in metadata.tables[table].indexes if index.name not in indexes]
    if not late and not unindexed and set(metadata.tables) <= there:
        return
    with engine.begin() as connection:
        if engine.dialect.name != "sqlite":  # two processes may open an old ledger at once
            connection.execute(sa.text("SELECT pg_advisory_xact_lock(4219923)"))
        now_there = {(table, column["name"]) for table in columns for column in sa.inspect(connection).get_columns(table)}
        metadata.create_all(connection)
        for column in late:
            if (column.table.name, column.name) not in now_there:
                kind = column.type.compile(engine.dialect)
                connection.execute(sa.text(f"ALTER TABLE {column.table.name} ADD COLUMN {column.name} {kind}"))
        for index in unindexed:
            index.create(connection, checkfirst=True)
