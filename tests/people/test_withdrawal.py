"""Who withdraws is left out for good, and what is forgotten is in no file of the run."""

import dataclasses
import sqlite3
from contextlib import closing

import pandas as pd
import pytest
import yaml
import zstandard
from chat_case import StandIn, Talker, few, project, recipe, serving_chats
from study_builders import conversation_run

from heart_collect.calls.commands import check_calls, keep_copy
from heart_collect.calls.database import owners
from heart_collect.calls.ledger import open_ledger
from heart_collect.calls.models import Call, Model, Request
from heart_collect.people import raters, withdrawal
from heart_collect.people.assignment import StudyError
from heart_collect.people.exports import hold_answers
from heart_collect.people.raters import import_study
from heart_collect.people.study import load_settings, write_study
from heart_collect.people.withdrawal import forget, withdrawn_people
from heart_utils import open_run
from heart_utils.runs import RunError

WORDS = "Zebedee says that the flat smells of rain and oranges."
OTHERS = "Ben says that the garden was quiet all the week long."


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Two people talked, were imported, judged by a model and shown to raters."""
    project(tmp_path, recipe())
    monkeypatch.setenv("HEART_ROOT", str(tmp_path))
    run = conversation_run(tmp_path / "runs" / "mine", n_starts=2)
    (run.folder / "study.yaml").write_text(yaml.safe_dump(few(n_writers=2)))
    run = open_run("mine")
    folder = write_study(run, "conversation")
    ledger = open_ledger(run)
    stand_in = StandIn()

    def ask(request):
        call = dataclasses.replace(stand_in(request), call_id=request.key)
        ledger.record([call], requests={request.key: request})
        return call

    with serving_chats(folder, ask) as address:
        for name, words in (("Zebedee", WORDS), ("Ben", OTHERS)):
            talker = Talker(address)
            talker.begin(name)
            talker.say(words)
            talker.say("Ok.")
    assert raters.main(["mine", "conversation"]) == 0
    judge = Model("j", "openai/j")
    for text in (WORDS, OTHERS):
        asked = Request(judge, ({"role": "user", "content": f"Which? A: {text}\nB: Hm."},))
        told = Call(asked.key, "ok", text=f"A, for {text!r}", cost_usd=0.5)
        ledger.record([told], requests={asked.key: asked})
    keep_copy(ledger)  # as `make collect` does at its end
    ledger.close()
    settings = load_settings(run)
    settings["rating"] |= {"raters_per_pair": 1, "load": 3, "n_checks": 0, "spare": 0}
    write_study(run, "rating", settings=settings)
    return run


def everything(run):
    """All bytes of all files of a run, with what is packed unpacked."""
    found = {}
    for file in (one for one in run.folder.rglob("*") if one.is_file()):
        content = file.read_bytes()
        if file.suffix == ".parquet":
            content += pd.read_parquet(file).to_json().encode()
        if file.suffix == ".sqlite":
            with sqlite3.connect(file) as database:
                for row in database.execute("SELECT messages, answer, error FROM calls"):
                    parts = [part for part in row[:2] if part]
                    content += b"".join(map(zstandard.decompress, parts))
        found[str(file.relative_to(run.folder))] = content
    return found


def holding(run, words):
    return [name for name, content in everything(run).items() if words.encode() in content]


def test_who_withdrew_stays_out_of_every_later_import(run, capsys):
    assert raters.main(["mine", "conversation", "--withdraw", "zebedee "]) == 0
    for _ in range(2):
        assert "1 withdrew and are left out" in capsys.readouterr().out
        texts = [turn["text"] for talk in run.read("conversations")["turns"] for turn in talk]
        assert WORDS not in texts
        assert OTHERS in texts
        paid = pd.read_csv(run.folder / "keys" / "payments-conversation.csv")
        assert paid.set_index("person")["decision"]["Zebedee"] == "approve"
        assert raters.main(["mine", "conversation"]) == 0
    assert import_study(run, run.folder / "study" / "conversation").n_withdrawn == 1
    assert (run.folder / "keys" / "withdrawn.csv").stat().st_mode & 0o077 == 0


def test_what_is_forgotten_is_in_no_file_of_the_run_and_others_stay(run, capsys):
    assert len(holding(run, WORDS)) >= 5  # ledger, two tables, answers, pages for raters
    before = everything(run)
    with closing(open_ledger(run)) as ledger:
        spent = ledger.money().spent
    assert raters.main(["mine", "conversation", "--forget", "Zebedee"]) == 0
    said = capsys.readouterr().out
    assert "Ledger: 3 calls emptied" in said
    assert "1 older files of it deleted, and a copy made anew" in said
    assert "Answers: 1 deleted." in said
    assert "Still in" not in said
    assert holding(run, WORDS) == []
    assert sorted(holding(run, "Zebedee"), reverse=True) == [
        "keys/withdrawn.csv",
        "keys/payments-conversation.csv",
    ]
    assert set(holding(run, OTHERS)) == {
        name for name, content in before.items() if OTHERS.encode() in content
    }
    with closing(open_ledger(run)) as ledger:
        assert ledger.money().spent == pytest.approx(spent)  # a budget is not refilled
        assert check_calls(ledger) == []
    assert withdrawn_people(run) == ["Zebedee"]
    assert (
        raters.main(["mine", "conversation", "--forget", "Zebedee"]) == 0
    )  # once more is no fault
    assert raters.main(["mine", "conversation"]) == 0
    paid = pd.read_csv(run.folder / "keys" / "payments-conversation.csv")
    assert paid.set_index("person")["decision"]["Zebedee"] == "approve"


def test_a_name_that_took_no_part_deletes_nothing(run):
    before = everything(run)
    with pytest.raises(StudyError, match="took no part"):
        forget(run, ["Zeb"])
    assert before.items() <= everything(run).items()


def test_nothing_is_deleted_while_the_pages_are_served(run):
    folder = run.folder / "study" / "conversation"
    with hold_answers(folder), pytest.raises(StudyError, match="is served by another process"):
        forget(run, ["Zebedee"])
    assert withdrawn_people(run) == []


def claim_turn(run):
    """Ask for a seeker's turn about their words, as another process does."""
    asked = Request(Model("s", "openai/s"), ({"role": "user", "content": f"{WORDS} And now?"},))
    ledger = open_ledger(run)
    ledger.claim([asked], [0.1], since=0.0)
    return ledger


def test_a_turn_that_was_being_asked_for_when_the_server_was_killed_is_forgotten_too(run):
    with closing(claim_turn(run)) as ledger, ledger.writing() as connection:
        connection.execute(owners.update().values(pid=2**30))
    forget(run, ["Zebedee"])
    assert holding(run, WORDS) == []


def test_what_another_process_asks_at_this_moment_is_told_and_nothing_is_left_half_done(run):
    with closing(claim_turn(run)) as ledger:
        with pytest.raises(StudyError, match=r"1 calls .* being asked .* Still there: ledger"):
            forget(run, ["Zebedee"])
        ledger.release(ledger.keys())
    forget(run, ["Zebedee"])
    assert holding(run, WORDS) == []


@pytest.mark.parametrize("full", ["list", "ledger", "tables", "answers"])
def test_a_full_disk_is_told_and_the_command_can_be_given_again(run, full, monkeypatch):
    def refuse(*_, **__):
        raise RunError("No space left on device.")

    def refuse_database(*_, **__):
        raise sqlite3.OperationalError("database or disk is full")

    step = {"list": "write_atomically", "tables": "write_together", "ledger": "_compact"}
    with monkeypatch.context() as patch:
        if full == "answers":
            patch.setattr(withdrawal.Path, "unlink", refuse)
        else:
            patch.setattr(withdrawal, step[full], refuse_database if full == "ledger" else refuse)
        with pytest.raises((StudyError, RunError), match="full|No space") as error:
            forget(run, ["Zebedee"])
    if full != "list":
        assert "Still there:" in str(error.value)
        assert withdrawn_people(run) == ["Zebedee"]
    forget(run, ["Zebedee"])
    assert holding(run, WORDS) == []
