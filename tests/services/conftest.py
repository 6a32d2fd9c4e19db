"""Real servers for the tests marked `services`, started here and ended here."""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tools.study_visitor import BrowserMissing, browser

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "collect"))


def _program(name):
    places = [shutil.which(name), *sorted(map(str, Path("/usr/lib/postgresql").glob(f"*/bin/{name}")), reverse=True)]
    return next((place for place in places if place), None)


def _as_postgres(command):
    """PostgreSQL refuses to run as root."""
    return ["runuser", "-u", "postgres", "--", *command] if os.geteuid() == 0 else command


@pytest.fixture(scope="session")
def postgresql():
    """The address of a PostgreSQL server in a temporary folder, on a free port of loopback."""
    initdb, control = _program("initdb"), _program("pg_ctl")
    if initdb is None or control is None:
        pytest.skip("needs postgresql: install Debian's package postgresql")
    folder = Path(tempfile.mkdtemp(prefix="heart-postgresql-"))
    if os.geteuid() == 0:
        shutil.chown(folder, "postgres")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    data, log = folder / "data", folder / "log"
    options = f"-p {port} -k {folder} -c listen_addresses=127.0.0.1 -c fsync=off -c max_connections=200"
    try:
        create = [initdb, "-D", str(data), "-U", "heart", "--auth=trust", "--no-sync", "-E", "UTF8", "--locale=C"]
        subprocess.run(_as_postgres(create), check=True, capture_output=True, cwd=folder)
        start = [control, "-D", str(data), "-l", str(log), "-o", options, "-w", "-t", "60", "start"]
        subprocess.run(_as_postgres(start), check=True, stdout=subprocess.DEVNULL, cwd=folder)
        yield f"postgresql+psycopg://heart@127.0.0.1:{port}"
    finally:
        subprocess.run(_as_postgres([control, "-D", str(data), "-m", "immediate", "stop"]), capture_output=True, cwd=folder)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def chromium():
    """A browser without a window; playwright allows one at a time, so it ends with its module."""
    try:
        with browser() as program:
            yield program
    except BrowserMissing as error:
        pytest.skip(f"needs browser: {error}; apt-get install chromium, and pip install -r requirements-services.txt")


@pytest.fixture
def database_url(postgresql):
    """The address of an empty database on that server."""
    import psycopg

    with psycopg.connect(postgresql.replace("+psycopg", "") + "/postgres", autocommit=True) as connection:
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
    return f"{postgresql}/postgres"
