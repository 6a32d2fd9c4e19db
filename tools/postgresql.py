"""A temporary PostgreSQL server for tests and benches, on a free port of loopback."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["PostgresqlMissing", "serving_postgresql"]


class PostgresqlMissing(RuntimeError):
    """There is no PostgreSQL on this machine."""


def _program(name: str) -> str:
    places = [
        shutil.which(name),
        *sorted(map(str, Path("/usr/lib/postgresql").glob(f"*/bin/{name}")), reverse=True),
    ]
    for path in places:
        if path:
            return path
    raise PostgresqlMissing("install Debian's package postgresql")


def _as_postgres(*command: str | Path) -> list[str]:
    """PostgreSQL refuses to run as root."""
    plain = [str(part) for part in command]
    return ["runuser", "-u", "postgres", "--", *plain] if os.geteuid() == 0 else plain


@contextmanager
def serving_postgresql() -> Iterator[tuple[str, Callable[[], None]]]:
    """Start a server and end it with the block; yield its address and a restart.

    The restart is that after a power cut.
    """
    initdb, control = _program("initdb"), _program("pg_ctl")
    folder = Path(tempfile.mkdtemp(prefix="heart-postgresql-"))
    if os.geteuid() == 0:
        shutil.chown(folder, "postgres")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    data = folder / "data"
    options = (
        f"-p {port} -k {folder} -c listen_addresses=127.0.0.1 -c fsync=off -c max_connections=200"
    )
    start = _as_postgres(
        control, "-D", data, "-l", folder / "log", "-o", options, "-w", "-t", "60", "start"
    )
    stop = _as_postgres(control, "-D", data, "-m", "immediate", "stop")

    def restart() -> None:
        subprocess.run(stop, check=True, stdout=subprocess.DEVNULL, cwd=folder)
        subprocess.run(start, check=True, stdout=subprocess.DEVNULL, cwd=folder)

    try:
        create = _as_postgres(
            initdb,
            "-D",
            data,
            "-U",
            "heart",
            "--auth=trust",
            "--no-sync",
            "-E",
            "UTF8",
            "--locale=C",
        )
        subprocess.run(create, check=True, capture_output=True, cwd=folder)
        subprocess.run(start, check=True, stdout=subprocess.DEVNULL, cwd=folder)
        yield f"postgresql+psycopg://heart@127.0.0.1:{port}", restart
    finally:
        subprocess.run(stop, capture_output=True, cwd=folder)
        shutil.rmtree(folder, ignore_errors=True)
