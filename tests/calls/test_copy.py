"""A damaged ledger is replaced by the copy that each collection leaves beside it."""

import sqlite3

import pytest
from calls_case import ask, fill

from heart_collect.calls.commands import check_calls, keep_copy, restore_copy
from heart_collect.calls.database import LedgerError
from heart_collect.calls.ledger import open_ledger

PAGE = 16384


@pytest.fixture
def filled(tmp_path):
    """A ledger of 400 answers, its file and its requests; no copy yet."""
    file = tmp_path / "ledger.sqlite"
    ledger = open_ledger(f"sqlite:///{file}")
    yield ledger, file, fill(ledger, [f"answer {n} " * 50 for n in range(400)])
    ledger.close()


def spoil(file, page):
    content = bytearray(file.read_bytes())
    content[page * PAGE : page * PAGE + 200] = b"\xff" * 200
    file.write_bytes(content)


def first_page_of_calls(file):
    connection = sqlite3.connect(file)
    [root] = connection.execute(
        "SELECT rootpage FROM sqlite_master WHERE name = 'calls'"
    ).fetchone()
    connection.close()
    return root - 1


@pytest.mark.parametrize("page", [0, None])
def test_a_damaged_ledger_names_its_copy_which_takes_its_place_and_lacks_only_what_came_later(
    filled, page
):
    ledger, file, requests = filled
    copy = keep_copy(ledger)
    assert copy.stat().st_mode & 0o777 == 0o600
    [late] = fill(ledger, ["late"])
    ledger.close()
    spoil(file, first_page_of_calls(file) if page is None else page)
    with pytest.raises(LedgerError, match=r"ARGS=--restore` puts its copy of 20"):
        open_ledger(f"sqlite:///{file}").find([late.key])
    assert restore_copy(file).name == "ledger.sqlite.damaged"
    again = open_ledger(f"sqlite:///{file}")
    assert set(again.find([request.key for request in requests])) == {r.key for r in requests}
    assert again.find([late.key]) == {}
    assert check_calls(again) == []
    assert again.money().spent == pytest.approx(0.4)
    again.close()


def test_a_damaged_ledger_is_never_copied_over_a_sound_copy(filled):
    ledger, file, _ = filled
    before = keep_copy(ledger).read_bytes()
    ledger.close()
    spoil(file, first_page_of_calls(file))
    again = open_ledger(f"sqlite:///{file}")
    with pytest.raises(LedgerError):
        again.find([ask("x").key])
    with pytest.warns(UserWarning, match="could not be copied"):
        assert keep_copy(again) is None
    again.close()
    assert file.with_name("ledger.sqlite.copy").read_bytes() == before


def test_a_ledger_without_a_copy_says_so_and_a_damaged_file_that_was_kept_stays(filled):
    ledger, file, _ = filled
    ledger.close()
    with pytest.raises(LedgerError, match=r"expected ledger.sqlite.copy beside it"):
        restore_copy(file)
    names = []
    for _ in range(2):
        ledger = open_ledger(f"sqlite:///{file}")
        keep_copy(ledger)
        ledger.close()
        names.append(restore_copy(file).name)
    assert names == ["ledger.sqlite.damaged", "ledger.sqlite.damaged1"]
    spoil(file, 0)
    with pytest.raises(LedgerError, match="No copy of it was made"):
        open_ledger(f"sqlite:///{file}")
