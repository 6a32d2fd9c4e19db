"""What is whole of a damaged ledger is saved: pages are spoilt at random, whatever they hold."""

import random
import sqlite3
from functools import cache

import pytest
from test_ledger import ask, fill

from heart_collect.calls.database import LedgerError
from heart_collect.calls.models import Call
from heart_collect.calls.records import check_calls, open_ledger
from heart_collect.calls.salvage import read_whole, salvage_ledger

PAGE = 16384


@cache
def draw_answers():
    draw = random.Random(1)
    return [
        "".join(draw.choices("abcdefgh ", k=draw.choice([40, 900, 60_000]))) for _ in range(400)
    ]


@pytest.fixture
def filled(tmp_path):
    """A ledger of 400 answers, some longer than a page, and its file."""
    file = tmp_path / "ledger.sqlite"
    ledger = open_ledger(f"sqlite:///{file}")
    requests = fill(ledger, draw_answers(), logprobs=(("A", -0.5),), total_ms=210.0, estimated=True)
    ledger.note({"schema abc": "yes"})
    yield ledger, file, requests
    ledger.close()


def spoil(file, pages):
    content = bytearray(file.read_bytes())
    for page in pages:
        content[page * PAGE : page * PAGE + 200] = b"\xff" * 200
    file.write_bytes(content)


def test_every_answer_of_a_sound_ledger_is_read_page_by_page(filled):
    ledger, file, requests = filled
    # from the file beside it too
    assert set(read_whole(file).answers) == {request.key for request in requests}
    before = ledger.find([request.key for request in requests])
    ledger.close()
    salvage_ledger(file)
    again = open_ledger(f"sqlite:///{file}")
    assert again.find([request.key for request in requests]) == before
    assert check_calls(again) == []
    assert again.money().spent == pytest.approx(0.4)
    assert again.notes(["schema abc"]) == {"schema abc": "yes"}
    again.close()


@pytest.mark.parametrize("seed", range(6))
def test_all_answers_but_those_on_spoilt_pages_are_saved(filled, seed):
    ledger, file, requests = filled
    keys = [request.key for request in requests]
    before = ledger.find(keys)
    ledger.close()
    n_pages = file.stat().st_size // PAGE
    spoil(file, random.Random(seed).sample(range(n_pages), 8))
    whole = set(read_whole(file).answers)
    n, damaged = salvage_ledger(file)
    again = open_ledger(f"sqlite:///{file}")
    found = again.find(keys)
    assert n == len(found) == len(whole)
    assert all(before[key] == call for key, call in found.items())
    assert len(found) > 400 - 8 * 60  # a page holds some 60 short answers
    assert damaged.exists()
    assert check_calls(again) == []
    assert again.money().spent >= 0.001 * len(found)
    again.close()


def test_a_ledger_whose_tree_is_broken_at_the_root_is_saved_whole(filled):
    """SQLite can read nothing of it: the page that leads to all rows is gone."""
    ledger, file, requests = filled
    keys = [request.key for request in requests]
    ledger.close()
    with sqlite3.connect(file) as connection:
        [root] = connection.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = 'calls'"
        ).fetchone()
    connection.close()
    spoil(file, [root - 1])
    with pytest.raises(
        LedgerError, match=r"malformed.*400 answers in it are whole.*ARGS=--salvage"
    ):
        open_ledger(f"sqlite:///{file}").find(keys)
    assert salvage_ledger(file)[0] == 400
    again = open_ledger(f"sqlite:///{file}")
    assert set(again.statuses(keys)) == set(keys)
    again.close()


def test_a_ledger_whose_first_page_is_gone_says_what_can_be_saved(filled):
    ledger, file, requests = filled
    ledger.close()
    spoil(file, [0])
    with pytest.raises(LedgerError, match=r"cannot be opened: .*400 answers in it are whole"):
        open_ledger(f"sqlite:///{file}")
    assert salvage_ledger(file)[0] == 400


def test_money_for_calls_in_flight_and_what_a_batch_holds_is_kept(filled):
    ledger, file, _ = filled
    flying, batched = ask("in flight"), ask("in a batch")
    ledger.claim([flying], [0.2], since=ledger.clock())
    ledger.claim([batched], [0.3], since=ledger.clock(), owner="batch-1", batch="{}")
    ledger.close()
    salvage_ledger(file)
    again = open_ledger(f"sqlite:///{file}")
    money = again.money()
    assert (money.unsettled, money.reserved) == (pytest.approx(0.2), pytest.approx(0.3))
    assert again.in_batches([batched.key, flying.key]) == {batched.key}
    assert not again.claim([batched], [0.0], since=again.clock()).won
    again.record([Call(batched.key, "ok", "late")], owner="batch-1", batch_ended="completed")
    assert again.find([batched.key])[batched.key].text == "late"
    again.close()


def test_a_damaged_ledger_that_was_kept_is_never_written_over(filled):
    ledger, file, _ = filled
    ledger.close()
    names = [salvage_ledger(file)[1].name for _ in range(2)]
    assert names == ["ledger.sqlite.damaged", "ledger.sqlite.damaged1"]


def test_what_is_no_ledger_has_nothing_to_save(tmp_path):
    file = tmp_path / "ledger.sqlite"
    file.write_bytes(random.Random(1).randbytes(100_000))
    assert read_whole(file).answers == {}
