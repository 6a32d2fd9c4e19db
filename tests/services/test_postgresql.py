"""The ledger's tests, and those of calls that rest on it, once more on a real PostgreSQL server."""

import threading

import pytest
import test_ledger
import test_models
from server import Provider, serving
from test_ledger import clock, in_memory  # noqa: F401 - fixtures

from heart_collect.calls.ledger import open_ledger

pytestmark = pytest.mark.services

NOT_AGAIN = {  # what is SQLite's own, or the same whatever the database
    "test_a_step_waits_for_a_database_that_is_away",
    "test_a_miss_in_replay_names_what_changed_and_shows_no_words",
    "test_a_ledger_of_another_version_or_from_before_a_table_came_is_refused_with_a_way_on",
    "test_a_check_finds_rows_that_are_damaged_or_doubled_and_none_in_a_sound_ledger",
    "test_every_bit_that_turns_over_in_a_stored_answer_is_seen",
    "test_a_call_takes_little_room",
    "test_a_full_disk_is_said_and_what_was_recorded_stands",
    "test_a_canary_key_is_in_no_file_of_a_run",
    "test_a_ledger_in_a_folder_that_may_not_be_written_can_be_read",
}


THROUGH_CALLS = {
    "test_answers_come_in_the_order_of_the_requests_and_each_is_asked_once",
    "test_what_headers_leave_sets_the_pace_of_all_processes_together",
    "test_a_wait_that_a_provider_asks_for_is_kept_by_all_processes",
    "test_a_failure_is_recorded_and_asked_again_by_the_next_run_only",
    "test_two_collectors_keep_to_one_limit_together",
    "test_a_damaged_answer_is_asked_again",
    "test_what_another_program_deletes_while_it_is_asked_is_asked_again",
    "test_a_budget_stops_before_it_is_passed",
    "test_what_is_cut_or_empty_is_not_asked_again_past_the_budget",
    "test_a_models_own_budget_ends_it_and_says_whose_it_was",
    "test_ctrl_c_records_what_is_in_flight_and_gives_the_rest_back",
    "test_after_kill_9_nothing_recorded_is_asked_again",
    "test_two_processes_on_one_ledger_share_the_work_and_ask_nothing_twice",
    "test_a_failure_of_another_process_is_waited_for_and_not_asked_at_once_again",
    "test_two_threads_may_ask_at_once",
}
"""Tests of calls whose outcome the ledger decides: what is known, whose it is, and what is left of a limit or a budget."""


def _tests_of(module, chosen):
    """Those that take the fixture `ledger`, which is another one here."""
    for name, test in vars(module).items():
        arguments = getattr(test, "__code__", None)
        takes_it = (
            arguments is not None and "ledger" in arguments.co_varnames[: arguments.co_argcount]
        )
        if name.startswith("test_") and takes_it and chosen(name):
            yield name, test


AGAIN = dict(_tests_of(test_ledger, lambda name: name not in NOT_AGAIN)) | dict(
    _tests_of(test_models, THROUGH_CALLS.__contains__)
)
assert AGAIN.keys() >= THROUGH_CALLS
globals().update(AGAIN)


@pytest.fixture
def provider():
    with serving(Provider()) as running:
        yield running


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


def test_two_may_begin_at_once_on_an_empty_database(database_url):
    opened, together = [], threading.Barrier(4)

    def begin():
        together.wait()
        opened.append(open_ledger(database_url))

    threads = [threading.Thread(target=begin) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(opened) == 4
    for one in opened:
        one.close()


def test_a_server_that_is_restarted_costs_no_answer_and_no_second_call(
    provider, ledger, postgresql_server
):
    provider.latency_s = 0.05
    judge = test_models.model(provider, max_concurrency=8)
    restart = threading.Timer(1.0, postgresql_server[1])
    restart.start()
    calls = test_models.answer_all(test_models.ask(judge, *(f"w{i}" for i in range(600))), ledger)
    restart.join()
    assert {call.status for call in calls} == {"ok"}
    assert len(provider.requests) == 600
