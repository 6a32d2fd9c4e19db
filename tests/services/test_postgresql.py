"""The ledger's tests, and those of calls, once more on a real PostgreSQL server."""

import threading

import pytest
import test_ledger
import test_models
from test_models import _short_pauses, provider  # noqa: F401 - fixtures

from heart_utils.calls.ledger import open_ledger

pytestmark = pytest.mark.services

SQLITE_ALONE = {
    "test_a_check_finds_a_row_that_is_doubled",
    "test_every_bit_that_turns_over_in_a_stored_answer_is_seen",
    "test_a_call_takes_little_room",
    "test_a_full_disk_is_said_and_what_was_recorded_stands",
    "test_a_canary_key_is_in_no_file_of_a_run",
}


def _tests_of(module):
    """Those that take the fixture `ledger`, which is another one here."""
    for name, test in vars(module).items():
        arguments = getattr(test, "__code__", None)
        takes_it = arguments is not None and "ledger" in arguments.co_varnames[: arguments.co_argcount]
        if name.startswith("test_") and takes_it and name not in SQLITE_ALONE:
            yield name, test


globals().update(_tests_of(test_ledger))
globals().update(_tests_of(test_models))


@pytest.fixture
def ledger(database_url):
    opened = open_ledger(database_url)
    yield opened
    opened.close()


def test_the_ledger_is_one_that_machines_can_share(ledger):
    assert ledger.shared
    assert "postgresql" in ledger.url


def test_the_environment_names_it(database_url, monkeypatch, tmp_path):
    monkeypatch.setenv("HEART_LEDGER", database_url.replace("+psycopg", ""))
    opened = open_ledger(tmp_path / "run")
    assert opened.shared
    opened.close()


def test_a_server_that_is_restarted_costs_no_answer_and_no_second_call(provider, ledger, postgresql_server):  # noqa: F811
    provider.latency_s = 0.05
    judge = test_models.model(provider, max_concurrency=8)
    restart = threading.Timer(1.0, postgresql_server[1])
    restart.start()
    calls = test_models.answer_all(test_models.ask(judge, *(f"w{i}" for i in range(600))), ledger)
    restart.join()
    assert {call.status for call in calls} == {"ok"}
    assert len(provider.requests) == 600
