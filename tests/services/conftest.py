"""Real servers for the tests marked `services`, started here and ended here."""

import pytest

from tools.postgresql import PostgresqlMissing, serving_postgresql
from tools.study_visitor import BrowserMissing, browser


@pytest.fixture(scope="session")
def postgresql_server():
    """The address of a PostgreSQL server on loopback, and what restarts it."""
    try:
        with serving_postgresql() as server:
            yield server
    except PostgresqlMissing as error:
        pytest.skip(f"needs postgresql: {error}")


@pytest.fixture(scope="session")
def postgresql(postgresql_server):
    return postgresql_server[0]


@pytest.fixture(scope="module")
def chromium():
    """A browser without a window; playwright allows one at a time, so it ends with its module."""
    try:
        with browser() as program:
            yield program
    except BrowserMissing as error:
        pytest.skip(
            f"needs browser: {error}; apt-get install chromium, and pip install -r"
            " requirements/services.txt"
        )


@pytest.fixture
def database_url(postgresql):
    """The address of an empty database on that server."""
    import psycopg

    with psycopg.connect(
        postgresql.replace("+psycopg", "") + "/postgres", autocommit=True
    ) as connection:
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
    return f"{postgresql}/postgres"
