"""The ledger alone: claims, money, versions, and what goes in and out of its files.

No model is asked.
"""

import dataclasses
import itertools
import json
import os
import re
import sqlite3
import stat
import threading
import time
from contextlib import contextmanager

import numpy as np
import psutil
import psycopg
import pytest
import sqlalchemy as sa
from calls_case import JUDGE, another_process, ask, fill
from hypothesis import given, settings
from hypothesis import strategies as st

from heart_collect.calls import database
from heart_collect.calls.commands import check_calls, export_calls, merge_calls
from heart_collect.calls.database import DAMAGED, LedgerError, parts_of
from heart_collect.calls.database import failed as is_failed
from heart_collect.calls.engine import ReplayError, ask_all
from heart_collect.calls.ledger import Ledger, import_calls, open_ledger
from heart_collect.calls.models import Call, Request
from heart_utils.runs import open_run

# -- tables

TABLES = {
    "about": "name VARCHAR(40)! value TEXT!",
    "batches": (
        "batch VARCHAR(200)! owner VARCHAR(64)! model TEXT! status VARCHAR(20)! n INTEGER!"
        " submitted_at FLOAT!"
    ),
    "calls": (
        "key VARCHAR(32)! status VARCHAR(12)! owner VARCHAR(64) reserved_usd FLOAT tag TEXT model"
        " VARCHAR(16) asked VARCHAR(16) options VARCHAR(16) repeat INTEGER messages BLOB answer"
        " BLOB finish_reason VARCHAR(40) logprobs TEXT ttft_ms FLOAT total_ms FLOAT prompt_tokens"
        " INTEGER completion_tokens INTEGER cost_usd FLOAT attempts INTEGER in_flight INTEGER error"
        " TEXT finished_at FLOAT served_model TEXT fingerprint TEXT cached_tokens INTEGER estimated"
        " BOOLEAN digest VARCHAR(16)"
    ),
    "owners": (
        "owner VARCHAR(64)! host VARCHAR(200)! pid INTEGER started FLOAT seen_at FLOAT! spent_usd"
        " FLOAT! unsettled_usd FLOAT!"
    ),
    "parts": "digest VARCHAR(16)! body TEXT!",
    "paces": "name VARCHAR(40)! next_at FLOAT!",
}
"""What version 1 means: a change here wants another version, or a column that may be empty."""


def test_a_ledgers_tables_are_those_of_its_version(tmp_path):
    open_ledger(f"sqlite:///{tmp_path}/ledger.sqlite").close()
    with sqlite3.connect(tmp_path / "ledger.sqlite") as connection:
        for table, columns in TABLES.items():
            rows = connection.execute(f"PRAGMA table_info({table})").fetchall()
            assert " ".join(f"{row[1]} {row[2]}{'!' * row[3]}" for row in rows) == columns
            keys = [row[1] for row in rows if row[5]]
            assert keys == [columns.split()[0]]
        assert connection.execute("SELECT value FROM about WHERE name = 'format'").fetchone() == (
            "1",
        )
        indexes = dict(
            connection.execute(
                "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL"
            )
        )
        assert indexes["claims"].endswith("ON calls (owner) WHERE status = 'claimed'")
        assert indexes["spending"].endswith("ON calls (model, cost_usd, reserved_usd)")


# -- keys


def test_a_key_depends_on_what_is_asked_and_on_nothing_else():
    base = ask("hello")
    same = [
        dataclasses.replace(base, tag="t", stream=True),
        dataclasses.replace(
            base,
            model=dataclasses.replace(
                JUDGE, name="other", price_prompt=3.0, api_key_env="X_API_KEY"
            ),
        ),
        Request(JUDGE, ({"content": "hello", "role": "user"},), {"temperature": 0.7}),
    ]
    other = [
        ask("hullo"),
        ask("hello", repeat=1),
        ask("hello", options={"temperature": 0.1}),
        ask("hello", options={"response_format": {"type": "json_object"}}),
        Request(JUDGE, ({"role": "system", "content": "hello"},)),
        Request(dataclasses.replace(JUDGE, api_base="http://127.0.0.1:10/v1"), base.messages),
        Request(dataclasses.replace(JUDGE, served_id="v2"), base.messages),
    ]
    assert {request.key for request in same} == {base.key}
    assert len({request.key for request in [base, *other]}) == len(other) + 1


def test_a_key_is_the_same_on_every_machine():
    """Recorded ledgers hang on it: a change here asks for every call again."""
    assert ask("hello").key == "585ae31b56c582e34c05490ff22e8d1c"


# -- answers


@pytest.fixture(scope="module")
def in_memory():
    opened = open_ledger("sqlite://")
    yield opened
    opened.close()


@settings(max_examples=40)
@given(
    text=st.text(max_size=200),
    finish=st.sampled_from(["stop", "length", None]),
    ttft=st.none() | st.floats(0, 1e6),
    tokens=st.none() | st.integers(0, 10**6),
    logprobs=st.none()
    | st.lists(st.tuples(st.text(max_size=5), st.floats(-100, 0)), max_size=5).map(tuple),
)
def test_what_goes_in_comes_out(in_memory, text, finish, ttft, tokens, logprobs):
    request = ask("hello", repeat=len(in_memory.keys()))
    in_memory.claim([request], [0.0], since=0.0)
    call = Call(
        request.key, "ok", text, finish, logprobs, ttft, 12.5, tokens, tokens, 0.25, 2, 3, None
    )
    in_memory.record([call])
    assert in_memory.find([request.key]) == {request.key: call}


def test_many_calls_are_found_by_their_keys_alone(ledger, monkeypatch):
    monkeypatch.setattr(database, "CHUNK", 5)
    requests = fill(ledger, [f"w{i}" for i in range(12)])
    found = ledger.find([request.key for request in requests[::2]])
    assert [found[request.key].text for request in requests[::2]] == [
        f"said w{i}" for i in range(0, 12, 2)
    ]
    assert len(found) == 6


# -- claims


def test_a_request_is_claimed_once_and_is_no_answer_yet(ledger):
    other = another_process(ledger)
    requests = [ask(f"w{i}") for i in range(10)]
    keys = [request.key for request in requests]
    assert ledger.claim(requests[:6], [0.0] * 6, since=ledger.clock()).won == {*keys[:6]}
    assert other.claim(requests, [0.0] * 10, since=ledger.clock()).won == {*keys[6:]}
    assert ledger.find(keys) == {}
    assert ledger.counts() == {"claimed": 10}


def test_an_answer_is_never_claimed_again_and_a_failure_only_by_a_later_run(ledger):
    done = fill(ledger, ["done"])
    failed = fill(ledger, ["failed"], status="error", text="")
    started = ledger.clock() - 60
    assert ledger.claim([*done, *failed], [0.0, 0.0], since=started).won == frozenset()
    assert ledger.claim([*done, *failed], [0.0, 0.0], since=ledger.clock() + 1).won == {
        failed[0].key
    }


@pytest.mark.parametrize(
    "process",
    [
        {"pid": 2**22 + 1},  # a number that is nobody's
        {"pid": os.getpid(), "started": 1.0},  # one that was given to another process
    ],
)
def test_the_claims_of_a_dead_process_are_free_and_their_money_is_not(ledger, process):
    dead, request = another_process(ledger), ask("hello")
    dead.claim([request], [0.25], since=ledger.clock())
    with dead.engine.begin() as connection:
        connection.execute(database.owners.update().values(process))
    claim = ledger.claim([request], [0.25], since=ledger.clock())
    assert claim.won == {request.key}
    assert (ledger.money().unsettled, ledger.money().reserved) == (0.25, 0.25)


def far_away(ledger):
    """A process of another machine, with one request claimed."""
    far, request = another_process(ledger), ask("hello")
    far.claim([request], [0.0], since=ledger.clock())
    with far.engine.begin() as connection:
        elsewhere = database.owners.update().where(database.owners.c.owner == far.owner)
        connection.execute(elsewhere.values(host="elsewhere", pid=2**22 + 1))
    return far, request


def is_taken_over(ledger, request, *, looks=8):
    for _ in range(looks):
        if ledger.claim([request], [0.0], since=ledger.clock()).won:
            return True
        time.sleep(0.05)
    return False


def test_the_claims_of_another_machine_expire_when_it_is_silent(ledger, monkeypatch):
    monkeypatch.setattr("heart_collect.calls.ledger.LEASE_S", 0.2)
    far, request = far_away(ledger)
    for _ in range(8):  # it is heard of
        far.record([])
        assert not is_taken_over(ledger, request, looks=1)
        time.sleep(0.05)
    assert is_taken_over(ledger, request)


def test_a_machine_is_silent_after_a_minute_in_which_it_was_looked_at_again_and_again(
    ledger, monkeypatch
):
    watch = [1000.0]
    monkeypatch.setattr("time.monotonic", lambda: watch[0])

    def silent(seen_at, later):
        watch[0] += later
        return ledger._silent("far", seen_at)

    assert not silent(7.0, 0.0)
    assert [silent(7.0, 5.0) for _ in range(12)] == [False] * 12  # a minute, and not more
    assert not silent(8.0, 5.0)  # it was heard of
    # each look counts for five seconds at the most
    assert [silent(8.0, 50.0) for _ in range(12)] == [False] * 12
    assert silent(8.0, 0.1)


def test_silence_while_the_database_was_away_is_nobodys(ledger, monkeypatch):
    monkeypatch.setattr("heart_collect.calls.ledger.LEASE_S", 0.3)
    monkeypatch.setattr("heart_collect.calls.ledger.LOOK_S", 0.1)
    _, request = far_away(ledger)
    assert not is_taken_over(ledger, request, looks=1)
    time.sleep(0.5)  # nobody could write
    assert not is_taken_over(ledger, request, looks=1)


@pytest.mark.parametrize("seconds", [100, -100])
def test_a_jump_of_the_clock_takes_no_claim_from_a_process_that_lives(ledger, monkeypatch, seconds):
    """Of this machine's clock, by which it also tells when it was started; stamps then look older
    than they are."""
    near, [request, other] = another_process(ledger), [ask("hello"), ask("there")]
    near.claim([request], [0.0], since=ledger.clock())
    far, _ = far_away(ledger)
    far.claim([other], [0.0], since=ledger.clock())
    with ledger.writing() as connection:
        connection.execute(
            database.owners.update().values(seen_at=database.owners.c.seen_at - seconds)
        )
    created, started = psutil.Process.create_time, psutil.boot_time
    monkeypatch.setattr(psutil.Process, "create_time", lambda process: created(process) + seconds)
    monkeypatch.setattr(psutil, "boot_time", lambda: started() + seconds)
    assert not is_taken_over(ledger, request)
    assert not is_taken_over(ledger, other)


def test_an_answer_whose_claim_is_gone_is_kept(ledger):
    request = ask("hello", tag="h1")
    ledger.claim([request], [0.5], since=ledger.clock())
    with ledger.writing() as connection:
        connection.execute(database.calls.delete())
    answer = Call(request.key, "ok", "late", cost_usd=0.1)
    ledger.record([answer], requests={request.key: request})
    assert ledger.find([request.key]) == {request.key: answer}
    # what was asked is known, too
    with pytest.raises(LedgerError, match="temperature was 0.7, now 0.2"):
        ask_all([ask("hello", options={"temperature": 0.2})], ledger=ledger, mode="replay")


@pytest.mark.parametrize(
    ("answers", "stands"),
    [
        ([Call("", "error"), Call("", "ok", "here"), Call("", "error")], "here"),
        ([Call("", "ok", "first", cost_usd=0.1), Call("", "ok", "second", cost_usd=0.1)], "first"),
    ],
)
def test_of_two_answers_the_first_stands_and_any_goes_before_a_failure(ledger, answers, stands):
    request = ask("hello")
    ledger.claim([request], [0.0], since=ledger.clock())
    for who, answer in zip([another_process(ledger), ledger] * 2, answers, strict=False):
        who.record([dataclasses.replace(answer, call_id=request.key)])
    assert ledger.find([request.key])[request.key].text == stands
    paid = sum(answer.cost_usd or 0.0 for answer in answers)
    assert ledger.money().spent == pytest.approx(paid)  # each that was paid for counts


def test_a_claim_that_was_committed_though_nobody_heard_so_is_still_ones_own(ledger, monkeypatch):
    request, writing, broken = ask("hello"), Ledger.writing, []

    @contextmanager
    def deaf(self):
        with writing(self) as connection:
            yield connection
        if not broken and self.counts().get("claimed"):
            broken.append(True)
            raise lost_connection()

    monkeypatch.setattr(Ledger, "writing", deaf)
    assert ledger.claim([request], [0.25], since=ledger.clock()).won == {request.key}
    assert broken
    assert ledger.money().reserved == 0.25


# -- slots in a queue


def test_places_are_handed_out_to_all_processes_together(ledger):
    waits = [
        who.reserve_slots({"requests": 2.0})
        for who in (ledger, another_process(ledger))
        for _ in range(3)
    ]
    assert waits == pytest.approx([0, 2, 4, 6, 8, 10], abs=1.0)
    assert ledger.reserve_slots({"requests": 2.0, "tokens": 30.0}) == pytest.approx(12, abs=1.0)
    assert ledger.reserve_slots({"tokens": 1.0}) == pytest.approx(30, abs=1.0)


def test_a_queue_that_is_held_is_held_for_all_processes_and_never_for_less(ledger):
    ledger.hold("rest", 20.0)
    ledger.hold("rest", 5.0)
    ledger.hold("over", -1.0)
    assert another_process(ledger).held(["rest", "over", "other"]) == {
        "rest": pytest.approx(20, abs=1.0)
    }
    ledger.hold("rest", 40.0)
    assert ledger.held(["rest"])["rest"] == pytest.approx(40, abs=1.0)


@pytest.fixture
def clock(monkeypatch):
    """The seconds that the database's clock is ahead."""
    ahead, right = [0.0], database.now
    monkeypatch.setattr(
        "heart_collect.calls.ledger.now",
        lambda engine: right(engine) + sa.literal(ahead[0], sa.Float),
    )
    return ahead


@pytest.mark.parametrize("ahead", [20 * 60, 3 * 3600])
def test_a_wait_that_was_noted_while_the_clock_was_ahead_is_as_long_as_was_asked(
    ledger, clock, ahead
):
    clock[0] = ahead
    ledger.hold("rest", 8.0)
    waits = [ledger.reserve_slots({"pace": 0.5}) for _ in range(4)]
    clock[0] = 0.0
    ledger.record([])  # as a process that lives does every five seconds
    assert another_process(ledger).held(["rest"]) == {"rest": pytest.approx(8.0, abs=1.5)}
    assert ledger.reserve_slots({"pace": 0.5}) == pytest.approx(waits[-1] + 0.5, abs=1.5)
    other = another_process(ledger)
    other.record([])  # once moved, and no further
    assert other.held(["rest"])["rest"] == pytest.approx(8.0, abs=2.5)


def test_a_clock_that_is_set_right_while_a_wait_is_written_makes_it_no_longer(
    ledger, clock, monkeypatch
):
    follow = Ledger._follow_clock

    def follow_and_jump(self, connection):
        at = follow(self, connection)
        clock[0] = 0.0
        return at

    clock[0] = 20 * 60
    ledger.record([])
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(Ledger, "_follow_clock", follow_and_jump)
        ledger.hold("rest", 8.0)
        clock[0] = 20 * 60
        assert ledger.reserve_slots({"pace": 0.5}) < 1.0
    ledger.record([])
    assert ledger.held(["rest"]) == {"rest": pytest.approx(8.0, abs=1.5)}
    assert ledger.reserve_slots({"pace": 0.5}) == pytest.approx(0.5, abs=1.5)


def test_a_failure_that_was_noted_while_the_clock_was_ahead_is_asked_again_by_the_next_run(
    ledger, clock
):
    assert ledger.clock() == pytest.approx(time.time(), abs=60)
    clock[0] = 20 * 60
    [request] = fill(ledger, ["hello"], status="error", text="")
    clock[0] = 0.0
    ledger.record([])
    time.sleep(0.01)
    assert ledger.claim([request], [0.0], since=ledger.clock()).won == {request.key}


def test_a_clock_that_was_behind_holds_nothing_for_longer(ledger, clock):
    clock[0] = -20 * 60
    ledger.hold("rest", 8.0)
    clock[0] = 0.0
    assert ledger.held(["rest"]) == {}
    assert ledger.reserve_slots({"pace": 0.5}) <= 0.5


def test_a_ledger_in_a_folder_that_may_not_be_written_can_be_read(ledger, tmp_path, monkeypatch):
    keys = {request.key for request in fill(ledger, ["hello", "there"])}
    monkeypatch.setattr(database, "_is_read_only", lambda file: True)
    beside = another_process(ledger)  # while what was written last lies in a file beside it
    assert set(beside.find(keys)) == keys
    beside.close()
    ledger.close()
    files = {file.name for file in tmp_path.iterdir()}
    closed = another_process(ledger)
    assert set(closed.find(keys)) == keys
    assert check_calls(closed) == []
    assert export_calls(closed, tmp_path / "calls.jsonl") == 2
    with pytest.raises(LedgerError, match="could not be written .*readonly.*can be read"):
        closed.record([])
    closed.close()
    assert {file.name for file in tmp_path.iterdir()} == {"calls.jsonl", *files}


SAME_SERVER = [
    "http://h.example/v1", "http://h.example/v1/", "http://H.Example/v1", "HTTP://h.example:80/v1//", " http://h.example/v1",
]  # fmt: skip
THIS_MACHINE = [
    "http://127.0.0.1:8000/v1",
    "http://localhost:8000/v1/",
    "http://[::1]:8000/v1",
    "http://LOCALHOST:8000/v1",
]


@pytest.mark.parametrize("ways", [SAME_SERVER, THIS_MACHINE])
def test_an_address_that_is_written_in_another_way_buys_nothing_anew(tmp_path, ways):
    for place, one in enumerate(ways):
        ledger = open_ledger(f"sqlite:///{tmp_path}/{place}.sqlite")
        recorded = Request(
            dataclasses.replace(JUDGE, api_base=one), ({"role": "user", "content": "hello"},)
        )
        ledger.record([Call(recorded.key, "ok", "said")], requests={recorded.key: recorded})
        with ledger.writing() as connection:  # `claim` notes what models are; `record` does not
            ledger._insert(connection, database.parts, parts_of([recorded]))
        again = another_process(ledger)
        for other in ways:
            request = dataclasses.replace(
                recorded, model=dataclasses.replace(JUDGE, api_base=other)
            )
            assert again.find([request.key])[request.key].text == "said"
            assert again.statuses([request.key]) == {request.key: "ok"}
        for other in (
            "http://h.example/v2",
            "https://h.example/v1",
            "http://127.0.0.1:8001/v1",
            "http://h.example/V1",
        ):
            request = dataclasses.replace(
                recorded, model=dataclasses.replace(JUDGE, api_base=other)
            )
            assert again.find([request.key]) == {}
        again.close()
        ledger.close()


def test_an_answer_that_was_recorded_with_a_slash_before_addresses_were_made_plain_is_found(
    ledger, monkeypatch
):
    with monkeypatch.context() as earlier:
        earlier.setattr("heart_collect.calls.models.plain_address", lambda address: address)
        slashed = Request(
            dataclasses.replace(JUDGE, api_base=f"{JUDGE.api_base}/"),
            ({"role": "user", "content": "hello"},),
        )
        ledger.claim([slashed], [0.0], since=ledger.clock())
        ledger.record([Call(slashed.key, "ok", "said")])
    assert slashed.key != ask("hello").key
    assert another_process(ledger).find([ask("hello").key])[ask("hello").key].text == "said"


def test_an_answer_without_words_that_was_kept_as_a_good_one_is_asked_again(ledger):
    [request] = fill(ledger, ["hello"], text=" \n ")
    assert is_failed(ledger.find([request.key])[request.key])
    assert ledger.claim([request], [0.0], since=ledger.clock()).won == {request.key}


def test_what_costs_nothing_is_asked_though_the_budget_is_spent(ledger):
    fill(ledger, ["hello"], cost_usd=2.0)
    free, paid = ask("free"), ask("paid")
    assert ledger.claim([free], [0.0], since=ledger.clock(), budget_usd=0.5).won == {free.key}
    assert ledger.reserve_more(free, 0.0, 0.5)
    assert ledger.claim([paid], [0.01], since=ledger.clock(), budget_usd=0.5).unfit == 1


def test_the_quick_and_the_slow_are_a_tenth_of_ten_answers_or_more(ledger):
    for n in range(9):
        fill(ledger, [f"w{n}"], total_ms=1000.0 * n)
    fill(ledger, ["no time"])
    fill(ledger, ["failed"], status="error", total_ms=90_000.0)
    assert ledger.quick_and_slow(JUDGE) is None
    fill(ledger, ["tenth"], total_ms=9000.0)
    assert ledger.quick_and_slow(JUDGE) == (1.0, 8.0)
    assert ledger.quick_and_slow(dataclasses.replace(JUDGE, model="openai/other")) is None


def test_what_a_batch_holds_is_reserved_and_not_settled_soon(ledger):
    ledger.claim([ask("in a batch")], [0.25], since=ledger.clock(), owner="batch-1", batch="{}")
    assert (ledger.money().reserved, ledger.money().in_flight) == (0.25, 0.0)
    ledger.claim([ask("in flight")], [0.5], since=ledger.clock())
    assert (ledger.money().reserved, ledger.money().in_flight, ledger.money().bound) == (
        0.75,
        0.5,
        0.75,
    )


# -- what is known and noted


@pytest.mark.parametrize(
    ("status", "known"), [("ok", True), ("refused", True), ("truncated", True), ("error", False)]
)
def test_a_model_is_known_once_it_has_answered_anything(ledger, status, known):
    assert not ledger.knows(JUDGE)
    fill(ledger, ["hello"], status=status)
    assert ledger.knows(JUDGE) is known
    assert not ledger.knows(dataclasses.replace(JUDGE, model="openai/other"))


def test_what_was_noted_first_stands(ledger):
    ledger.note({"schema": "yes"})
    ledger.note({"schema": "no", "other": "word"})
    assert ledger.notes(["schema", "other", "nothing"]) == {"schema": "yes", "other": "word"}


# -- a database that is away


def failed(kind, said, **cells):
    error = kind("SELECT", {}, type("Said", (Exception,), cells)(said))
    error.connection_invalidated = cells.get("invalidated", False)
    return error


@pytest.mark.parametrize(
    ("error", "passing"),
    [
        (failed(sa.exc.OperationalError, "database is locked"), True),
        (failed(sa.exc.OperationalError, "no such table"), False),
        (failed(sa.exc.OperationalError, "server closed", sqlstate=None), True),
        (failed(sa.exc.ProgrammingError, "no such column", sqlstate=None), False),
        (failed(sa.exc.ProgrammingError, "away", sqlstate="42P01", invalidated=True), True),
        *[
            (failed(sa.exc.InternalError, "pg", sqlstate=state), True)
            for state in ("08006", "40001", "57P01", "53300")
        ],
        *[
            (failed(sa.exc.InternalError, "pg", sqlstate=state), False)
            for state in ("23505", "42P01", "53100", "22021")
        ],
        (ValueError("locked"), False),
        (None, False),
    ],
)
def test_what_a_database_says_passes_or_does_not(error, passing):
    assert bool(database.is_transient(error)) is passing


def lost_connection():
    error = LedgerError("the connection is lost")
    error.__cause__ = sa.exc.OperationalError(
        "SELECT", {}, psycopg.OperationalError("server closed the connection")
    )
    return error


@pytest.mark.parametrize(
    "step",
    ["find", "statuses", "claim", "record", "release", "money", "clock", "counts", "reserve_slots"],
)
def test_a_step_waits_for_a_database_that_is_away(ledger, monkeypatch, step):
    request = ask("hello")
    arguments = {
        "find": ([request.key],), "statuses": ([request.key],), "claim": ([request], [0.0]), "record": ([],),
        "release": ([request.key],), "reserve_slots": ({"q": 1.0},),
    }  # fmt: skip
    engine, failures, said = ledger.engine, [1, 2], []

    class Away:
        url, dialect = engine.url, engine.dialect

        def __getattr__(self, name):
            if failures and name in ("begin", "connect"):
                said.append(ledger.waits)
                failures.pop()
                raise sa.exc.OperationalError(
                    "SELECT", {}, psycopg.OperationalError("connection refused")
                )
            return getattr(engine, name)

    monkeypatch.setattr(ledger, "engine", Away())
    getattr(ledger, step)(*arguments.get(step, ()), **({"since": 0.0} if step == "claim" else {}))
    assert not failures
    assert said[0] is None
    assert "connection refused" in said[1]  # what a progress bar shows while it waits
    assert ledger.waits is None
    failures.extend([1] * 1000)
    ledger.patience_s = 0.3
    with pytest.raises(LedgerError, match="could not be (read|written) .connection refused"):
        getattr(ledger, step)(
            *arguments.get(step, ()), **({"since": 0.0} if step == "claim" else {})
        )


def test_a_file_that_another_program_holds_can_be_read_and_is_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(database, "WAIT_S", 0.1)  # of SQLite's own
    ledger = open_ledger(f"sqlite:///{tmp_path}/ledger.sqlite")
    [recorded], new, ledger.patience_s = fill(ledger, ["w"]), ask("hello"), 20.0
    held = sqlite3.connect(
        tmp_path / "ledger.sqlite", isolation_level=None, check_same_thread=False
    )
    held.execute("BEGIN IMMEDIATE")
    assert list(ledger.find([recorded.key])) == [recorded.key]
    release = threading.Timer(0.5, held.execute, ["COMMIT"])
    release.start()
    assert ledger.claim([new], [0.0], since=0.0).won == {new.key}
    release.join()
    held.close()


@pytest.mark.parametrize(
    ("budget_usd", "own_usd", "shared", "asked"),
    [
        (1.0, None, True, 1),
        (None, 1.0, True, 1),
        (0.0, 0.0, True, 1),
        (None, None, True, 0),
        (1.0, 1.0, False, 0),
    ],
)
def test_who_spends_from_a_shared_ledger_waits_for_the_others(
    ledger, monkeypatch, budget_usd, own_usd, shared, asked
):
    monkeypatch.setattr(Ledger, "shared", shared)
    said = []
    connection = sa.create_mock_engine(
        "postgresql+psycopg://", lambda words, *_: said.append(str(words))
    )
    request = Request(dataclasses.replace(JUDGE, budget_usd=own_usd), ask("hello").messages)
    ledger._hold_money(connection, request, budget_usd)
    assert [words.startswith("SELECT pg_advisory_xact_lock(") for words in said] == [True] * asked


# -- damage


def some_rows(ledger):
    requests = fill(
        ledger, ["a", "b"], logprobs=(("A", -0.5), ("B", -1.25)), finish_reason="stop", total_ms=8.0
    )
    requests += fill(ledger, ["c"], status="error", text="", error="no answer within 5 s")
    return requests + fill(ledger, ["d"], text="I hear you. " * 30, served_model="gpt-4o-2024")


def flips(value):
    """All that a stored value becomes when one of its bits is turned over."""
    raw = value if isinstance(value, bytes) else value.encode()
    for place in range(8 * len(raw)):
        turned = bytearray(raw)
        turned[place // 8] ^= 1 << place % 8
        yield bytes(turned)


def test_every_bit_that_turns_over_in_a_stored_answer_is_seen(ledger):
    """One in five of them, so that each place in a byte has its turn."""
    requests, unseen, n = some_rows(ledger), [], 0
    file = sqlite3.connect(ledger.engine.url.database, isolation_level=None)
    columns = [
        *("answer", "logprobs", "status", "finish_reason"),
        "error",
        "digest",
        "served_model",
    ]
    for request, column in itertools.product(requests, columns):
        good = ledger.find([request.key])[request.key]
        [value] = file.execute(
            f"SELECT {column} FROM calls WHERE key = ?", [request.key]
        ).fetchone()
        cast = "?" if column == "answer" else "CAST(? AS TEXT)"
        update = f"UPDATE calls SET {column} = {cast} WHERE key = ?"
        for turned in itertools.islice(flips(value or b""), 0, None, 5):
            file.execute(update, [turned, request.key])
            call = ledger.find([request.key]).get(request.key)
            seen = call == Call(request.key, "error", error=DAMAGED)
            unseen += [] if seen and request.key in ledger.damaged else [(column, turned)]
            n += 1
        file.execute(f"UPDATE calls SET {column} = ? WHERE key = ?", [value, request.key])
        assert ledger.find([request.key])[request.key] == good
    file.close()
    assert not ledger.damaged
    assert n > 300
    assert unseen == []


@pytest.mark.parametrize(
    ("column", "wrong"),
    [
        ("cost_usd", 0.002),
        ("prompt_tokens", 7),
        ("attempts", 9),
        ("total_ms", 9.5),
        ("estimated", True),
    ],
)
def test_a_number_that_changed_is_seen(ledger, column, wrong):
    [request, *_] = some_rows(ledger)
    with ledger.writing() as connection:
        connection.execute(sa.text(f"UPDATE calls SET {column} = :wrong"), {"wrong": wrong})
    assert ledger.find([request.key])[request.key].status == "error"


def spoil(ledger, request):
    with ledger.writing() as connection:
        its = database.calls.c.key == request.key
        answer = bytearray(connection.scalar(sa.select(database.calls.c.answer).where(its)))
        answer[-1] ^= 1
        connection.execute(database.calls.update().where(its).values(answer=bytes(answer)))


def test_damaged_answers_are_said_leave_others_alone_and_are_known_until_they_are_claimed(ledger):
    requests = fill(ledger, ["a", "b", "c"])
    first, second, _ = requests
    spoil(ledger, first)
    spoil(ledger, second)
    with pytest.warns(UserWarning, match=r"2 answers .* by judge\. .* as errors"):
        calls = ask_all(requests, ledger=ledger, mode="replay")
    assert [(call.status, call.text) for call in calls] == [
        *[("error", "")] * 2,
        ("ok", "said c"),
    ]
    assert ledger.claim([first], [0.0], since=0.0).won == {first.key}
    assert ledger.damaged == {second.key}
    assert ledger.claim([second], [0.0], since=0.0).won == {second.key}


def test_what_another_process_has_answered_again_is_not_claimed_as_damaged(ledger):
    [request], other = fill(ledger, ["a"]), another_process(ledger)
    spoil(ledger, request)
    for process in (ledger, other):
        process.find([request.key])
    assert other.claim([request], [0.0], since=0.0).won == {request.key}
    assert not ledger.claim([request], [0.0], since=0.0).won  # it is being asked
    other.record([Call(request.key, "ok", "again")])
    assert not ledger.claim([request], [0.0], since=0.0).won
    assert ledger.find([request.key])[request.key].text == "again"


@pytest.mark.parametrize("ending", ["given back", "killed", "batch"])
def test_a_failure_that_was_to_be_asked_again_and_was_not_is_a_failure_still(ledger, ending):
    """Else a chapter that counts it would find nothing recorded of it."""
    [request, *rest] = fill(
        ledger, ["long", "other"], status="error", text="", error="too long", cost_usd=0.5
    )
    other, later, whose = (
        another_process(ledger),
        ledger.clock() + 1,
        {"owner": "b", "batch": "{}"} if ending == "batch" else {},
    )
    other.claim([request, ask("new")], [0.25, 0.25], since=later, **whose)
    assert request.key not in ledger.find([request.key])
    if ending == "given back":
        other.release([request.key, ask("new").key])
    elif ending == "batch":
        other.record([], owner="b", batch_ended="refused")
    else:
        with other.engine.begin() as connection:
            connection.execute(database.owners.update().values(pid=2**22 + 1))
        ledger.claim(rest, [0.0], since=0.0)
    [found] = ledger.find([request.key, ask("new").key]).values()
    assert (found.call_id, found.status, found.error, found.cost_usd) == (
        request.key,
        "error",
        "too long",
        0.5,
    )
    assert ledger.money().reserved == 0
    assert ledger.claim([request], [0.0], since=later).won == {request.key}


# -- money


@settings(max_examples=12)
@given(st.lists(st.floats(0.01, 1.0), min_size=1, max_size=20), st.floats(0.0, 5.0))
def test_what_is_claimed_never_passes_the_budget(reserves, budget):
    ledger = open_ledger("sqlite://")
    requests = [ask(f"w{i}") for i in range(len(reserves))]
    for start in range(0, len(requests), 3):
        ledger.claim(
            requests[start : start + 3],
            reserves[start : start + 3],
            since=ledger.clock(),
            budget_usd=budget,
        )
        assert ledger.money().bound <= budget + 1e-9
    ledger.close()


def test_money_is_counted_for_all_processes_and_what_nobody_heard_of_until_it_is_written_off(
    ledger,
):
    fill(ledger, ["a", "b"])
    other = another_process(ledger)
    fill(other, ["c"])
    other.record([], unsettled=0.5)
    money = ledger.money()
    assert (money.spent, money.unsettled) == (pytest.approx(0.003), 0.5)
    claim = ledger.claim([ask("d"), ask("e")], [0.1, 0.1], since=ledger.clock(), budget_usd=0.65)
    assert (len(claim.won), claim.unfit) == (1, 1)
    assert ledger.write_off() == pytest.approx(0.5)
    assert ledger.money().unsettled == 0


def test_a_budget_may_be_used_up_to_the_last_cent_and_no_second_attempt_passes_it(ledger):
    fill(ledger, ["a"], cost_usd=None)
    assert ledger.money().spent == 0.0
    assert ledger.claim([ask("b")], [0.5], since=ledger.clock(), budget_usd=0.5).unfit == 0
    claim = ledger.claim([ask("c")], [0.25], since=ledger.clock(), budget_usd=0.5)
    assert (claim.unfit, claim.money.bound) == (1, 0.5)
    assert ledger.reserve_more(ask("b"), 0.25, 0.75)
    assert not ledger.reserve_more(ask("b"), 0.25, 0.75)
    assert ledger.money().reserved == 0.75


def test_a_models_own_budget_ends_its_calls_and_no_others(ledger):
    thrifty = dataclasses.replace(JUDGE, model="openai/dear", budget_usd=0.25)
    dear = [dataclasses.replace(ask(word), model=thrifty) for word in "abcd"]
    claim = ledger.claim(dear[:3], [0.1] * 3, since=ledger.clock(), budget_usd=10.0)
    assert (claim.won, claim.unfit) == ({request.key for request in dear[:2]}, 1)
    assert len(ledger.claim([ask("e")], [5.0], since=ledger.clock(), budget_usd=10.0).won) == 1
    ledger.record(
        [
            Call(dear[0].key, "ok", "said", cost_usd=0.02),
            Call(dear[1].key, "ok", "said", cost_usd=0.02),
        ]
    )
    # 0.04 are spent, 0.2 more fit into 0.25
    assert len(ledger.claim(dear[2:], [0.1] * 2, since=ledger.clock()).won) == 2
    assert (
        ledger.claim([dataclasses.replace(dear[0], repeat=1)], [0.1], since=ledger.clock()).unfit
        == 1
    )
    assert not ledger.reserve_more(dear[2], 0.02, None)
    assert ledger.reserve_more(dear[2], 0.005, None)


# -- files


def test_calls_go_out_sorted_and_come_back_the_same(ledger, tmp_path, rng):
    words = [f"w{i}" for i in rng.permutation(20)]
    requests = fill(ledger, words, logprobs=(("A", -0.5),), ttft_ms=1.5, attempts=1)
    # other breaks than a line's end
    requests += fill(ledger, ["broken"], text="I hear\u2028you.\u0085Go\u2029on.")
    file = tmp_path / "calls.jsonl"
    assert export_calls(ledger, file) == 21
    lines = [json.loads(line) for line in file.read_text().split("\n") if line]
    keys = [line["key"] for line in lines if "key" in line]
    assert keys == sorted(request.key for request in requests)
    assert not any("w7" in line.get("messages", "") for line in lines)

    copy = open_ledger(f"sqlite:///{tmp_path}/copy.sqlite", seed_file=file)
    assert copy.find(keys) == ledger.find(keys)
    export_calls(copy, tmp_path / "again.jsonl")
    assert (tmp_path / "again.jsonl").read_bytes() == file.read_bytes()
    assert copy.money().spent == 0  # the money was spent elsewhere
    assert import_calls(copy, file) == 0
    file.write_text(file.read_text().replace("said w1", "said otherwise"))
    assert import_calls(copy, file) == 0
    assert copy.find(keys) == ledger.find(keys)  # what is recorded stays
    fresh = another_process(ledger)  # of what others fill too, what was looked up
    fresh.find(keys[:1])
    assert export_calls(fresh, tmp_path / "mine.jsonl", only_used=True) == 1
    assert list(open_ledger("sqlite://", seed_file=tmp_path / "mine.jsonl").statuses()) == keys[:1]


def missed(ledger, *requests):
    """What is said of a replay that misses some of these."""
    with pytest.raises(ReplayError) as error:
        ask_all(requests, ledger=ledger, mode="replay")
    return str(error.value)


WARM = dataclasses.replace(JUDGE, options={"temperature": 0.1})
OTHER = dataclasses.replace(JUDGE, model="openai/other")
AB, XYZ = "abcdefghijklm" * 4, "0123456789" * 5


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (ask(f"{AB}X{XYZ}", WARM), "temperature was 0.7, now 0.1"),
        (ask(f"{AB}X{XYZ}", OTHER), "model was 'openai/test', now 'openai/other'"),
        (ask(f"{AB}X{XYZ}", repeat=2), "not as repeat 2 (recorded: repeat 0)"),
        (
            ask(f"{AB}Y{XYZ}0", tag="history h1"),
            "The messages changed, at character 65 of 133 that were recorded, 134 now. A changed"
            " `seed`",
        ),
        (ask("what"), "This model was asked before, but nothing with these messages"),
        (ask("what", OTHER), "Nothing is recorded of this model (the ledger holds 1 calls)"),
    ],
)
def test_a_miss_in_replay_names_what_changed_and_shows_no_words(ledger, request_, words):
    [recorded] = [ask(f"{AB}X{XYZ}", tag="history h1")]
    ledger.claim([recorded], [0.0], since=0.0)
    ledger.record([Call(recorded.key, "ok", text="yes")])
    came = missed(ledger, recorded, request_)
    assert "1 of 2 requests" in came
    assert words in came
    assert AB[:10] not in came, "words of a conversation are not shown"


def test_a_seeded_ledger_answers_and_explains_a_miss(ledger, tmp_path):
    [request] = fill(ledger, ["hello"])
    export_calls(ledger, tmp_path / "calls.jsonl")
    copy = open_ledger(tmp_path / "mine", seed_file=tmp_path / "calls.jsonl")
    assert ask_all([request], ledger=copy, mode="replay")[0].text == "said hello"
    [changed] = re.findall(
        r"The model or its options changed: (.*)\. `make collect RUN=mine` \(or mode='missing'\)",
        missed(copy, ask("hello", options={"stop": "." * 1000})),
    )
    assert len(changed) == 400
    assert "`make collect RUN=...` (or" in missed(open_ledger("sqlite://"), request)


def test_half_a_character_as_a_token_is_recorded_with_a_mark_in_its_place(ledger, tmp_path):
    [request] = fill(ledger, ["hello"], text="\ud83d", logprobs=(("\ud83d", -0.5), ("A", -1.0)))
    call = ledger.find([request.key])[request.key]
    assert (call.text, call.logprobs) == ("?", (("?", -0.5), ("A", -1.0)))
    assert export_calls(ledger, tmp_path / "calls.jsonl") == 1


@pytest.mark.parametrize(
    "line", ["{broken", "[1]", '{"key": "k"}', '{"key": "k", "status": "ok", "surprise": 1}']
)
def test_a_damaged_file_is_named_with_its_line(ledger, tmp_path, line):
    fill(ledger, ["hello"])
    export_calls(ledger, tmp_path / "calls.jsonl")
    with (tmp_path / "calls.jsonl").open("a") as file:
        file.write(line + "\n")
    with pytest.raises(LedgerError, match=r"calls.jsonl, line 4, is not a recorded call"):
        open_ledger("sqlite://", seed_file=tmp_path / "calls.jsonl")


def test_a_call_takes_little_room(ledger, tmp_path, rng):
    """Prompts of some 3,000 characters and answers of 200 tokens, in words drawn at random: the
    worst case for packing."""
    letters = rng.integers(97, 123, 20_000, dtype=np.uint8).tobytes().decode()
    vocabulary = [letters[at : at + 2 + at % 8] for at in range(3000)]
    fixed = {"role": "system", "content": "You compare two replies. " * 20}
    prompts = [" ".join(rng.choice(vocabulary, 450)) for _ in range(200)]
    requests = [Request(JUDGE, (fixed, {"role": "user", "content": text})) for text in prompts]
    ledger.claim(requests, [0.0] * 200, since=0.0)
    said = [" ".join(rng.choice(vocabulary, 150)) for _ in requests]
    both = zip(requests, said, strict=True)
    ledger.record([Call(r.key, "ok", text, "stop", None, None, 9.5, 700, 200) for r, text in both])
    ledger.close()
    assert (tmp_path / "ledger.sqlite").stat().st_size / 200 < 4096


def test_a_check_finds_rows_that_are_damaged_or_doubled_and_none_in_a_sound_ledger(ledger):
    first, _ = fill(ledger, ["a", "b"])
    assert check_calls(ledger) == []
    spoil(ledger, first)
    damaged = f"Call {first.key} to openai/test is damaged; `make collect` asks again."
    assert check_calls(ledger) == [damaged]
    with ledger.engine.begin() as connection:  # as a damaged index lets happen
        connection.execute(sa.text("CREATE TABLE other AS SELECT * FROM calls"))
        connection.execute(sa.text("DROP TABLE calls"))
        connection.execute(sa.text("ALTER TABLE other RENAME TO calls"))
        whole = "SELECT * FROM calls ORDER BY key DESC LIMIT 1"
        connection.execute(sa.text(f"INSERT INTO calls {whole}"))
    [doubled] = set(check_calls(ledger)) - {damaged}
    assert doubled.endswith("is doubled.")


def test_a_merge_takes_what_is_new_or_better_and_leaves_out_what_is_damaged(ledger, tmp_path):
    other = open_ledger(f"sqlite:///{tmp_path}/other.sqlite")
    fill(ledger, ["both"], text="mine")
    fill(ledger, ["failed here"], status="error", text="")
    both, better, new, bad, worse = (
        fill(other, [word], text="theirs")[0]
        for word in ("both", "failed here", "new", "bad", "ok here")
    )
    fill(ledger, ["ok here"], text="mine")
    spoil(other, bad)
    spent = ledger.money().spent
    assert merge_calls(ledger, tmp_path / "other.sqlite") == 2
    found = ledger.find([request.key for request in (both, better, new, bad, worse)])
    assert [found[r.key].text for r in (both, better, new, worse)] == [
        "mine",
        "theirs",
        "theirs",
        "mine",
    ]
    assert bad.key not in found
    assert ledger.money().spent == spent
    assert merge_calls(ledger, f"sqlite:///{tmp_path}/other.sqlite") == 0
    assert check_calls(ledger) == []
    # what was asked came too
    with pytest.raises(ReplayError, match="temperature was 0.7, now 0.2"):
        ask_all([ask("new", options={"temperature": 0.2})], ledger=ledger, mode="replay")


@pytest.mark.parametrize("status", ["ok", "error"])
def test_a_merge_leaves_alone_what_a_living_process_asks_and_takes_what_a_dead_one_claimed(
    ledger, tmp_path, status
):
    living, dead, away = (
        another_process(ledger),
        another_process(ledger),
        open_ledger(f"sqlite:///{tmp_path}/away.sqlite"),
    )
    asked, left = fill(away, ["asked", "left"], status=status)
    living.claim([asked], [0.5], since=0.0)
    dead.claim([left], [0.25], since=0.0)
    with ledger.writing() as connection:
        connection.execute(
            database.owners.update()
            .where(database.owners.c.owner == dead.owner)
            .values(started=1.0)
        )
    assert merge_calls(ledger, tmp_path / "away.sqlite") == 1
    assert ledger.statuses() == {left.key: status}
    assert (ledger.money().reserved, ledger.money().unsettled) == (0.5, 0.25)
    assert not ledger.claim([asked], [0.5], since=0.0).won


# -- where it lies


@pytest.mark.skipif(os.name == "nt", reason="Windows has no modes")
def test_a_ledger_is_for_its_owners_eyes_from_the_first_byte_on(tmp_path, monkeypatch):
    modes, connect = [], sqlite3.connect

    def watch(*arguments, **how):
        modes.append(stat.S_IMODE((tmp_path / "run" / "ledger.sqlite").stat().st_mode))
        return connect(*arguments, **how)

    monkeypatch.setattr(sqlite3.dbapi2, "connect", watch)
    before = os.umask(0)
    try:
        ledger = open_ledger(f"sqlite:///{tmp_path}/run/ledger.sqlite")
    finally:
        os.umask(before)
    fill(ledger, ["hello"])
    assert set(modes) == {0o600}
    assert {
        file.name: stat.S_IMODE(file.stat().st_mode) for file in (tmp_path / "run").iterdir()
    } == dict.fromkeys(["ledger.sqlite", "ledger.sqlite-wal", "ledger.sqlite-shm"], 0o600)


def test_a_runs_ledger_lies_in_its_folder_unless_the_environment_names_another(
    tmp_path, monkeypatch
):
    monkeypatch.delenv("HEART_LEDGER", raising=False)
    run = open_run(tmp_path / "mine")
    open_ledger(run).close()
    assert (tmp_path / "mine" / "ledger.sqlite").is_file()
    monkeypatch.setenv("HEART_LEDGER", f"sqlite:///{tmp_path}/shared.sqlite")
    assert open_ledger(run).url.endswith("shared.sqlite")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("UPDATE about SET value = '99'", "of version 99; this project reads version 1"),
        ("ALTER TABLE calls DROP COLUMN digest", "made before version 0.1.0"),
        ("DROP TABLE paces", "before .* writes its calls into a file; .* ARGS='--merge"),
        ("DROP TABLE about", "no ledger of this project"),
    ],
)
def test_a_ledger_of_another_version_or_from_before_a_table_came_is_refused_with_a_way_on(
    ledger, change, words
):
    with ledger.engine.begin() as connection:
        connection.execute(sa.text(change))
    with pytest.raises(LedgerError, match=words):
        another_process(ledger)


@pytest.mark.parametrize("url", ["mysql://host/name", "nonsense://", "http://example.org"])
def test_an_address_that_is_no_ledger_is_refused(url):
    with pytest.raises(LedgerError, match="expected"):
        open_ledger(url)


def test_a_password_is_never_shown():
    with pytest.raises(LedgerError) as error:
        open_ledger("postgresql+psycopg://user:hunter2secret@127.0.0.1:9/heart?connect_timeout=2")
    assert "hunter2secret" not in str(error.value)
    assert "***" in str(error.value)


def test_a_full_disk_is_said_and_what_was_recorded_stands(ledger):
    done = fill(ledger, ["hello"])
    with ledger.engine.connect() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar()
        connection.exec_driver_sql(f"PRAGMA max_page_count={pages}")
    words = ["".join(np.random.default_rng(1).choice(list("abcdefgh"), 60_000))]
    with pytest.raises(LedgerError, match="could not be written .*full"):
        fill(ledger, words)
    assert set(ledger.find([done[0].key])) == {done[0].key}
