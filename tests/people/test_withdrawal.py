"""Who withdraws is left out for good, and what is forgotten is in no file of the run."""

import dataclasses
import json
import shutil
import sqlite3
from contextlib import closing

import pandas as pd
import pytest
import zstandard
from chat_case import StandIn, Talker, project, recipe, serving_chats, study_with
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


@pytest.fixture(scope="session")
def talked(tmp_path_factory):
    """A project in which two people talked, were imported, judged by a model and shown to raters."""
    root = tmp_path_factory.mktemp("talked")
    project(root, recipe())
    conversation_run(root / "runs" / "mine", n_starts=2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEART_ROOT", str(root))
        run = open_run("mine")
        with closing(open_ledger(run)) as ledger:
            talk(study_with(run), ledger)
            assert raters.main(["mine", "conversation"]) == 0
            judge(ledger)
            keep_copy(ledger)  # as `make collect` does at its end
        settings = load_settings(run)
        settings["rating"] |= {"raters_per_pair": 1, "load": 3, "n_checks": 0, "spare": 0}
        write_study(run, "rating", settings=settings)
    return root


def talk(folder, ledger):
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


def judge(ledger):
    model = Model("j", "openai/j")
    for text in (WORDS, OTHERS):
        asked = Request(model, ({"role": "user", "content": f"Which? A: {text}\nB: Hm."},))
        told = Call(asked.key, "ok", text=f"A, for {text!r}", cost_usd=0.5)
        ledger.record([told], requests={asked.key: asked})


@pytest.fixture
def run(talked, tmp_path, monkeypatch):
    shutil.copytree(talked, tmp_path, symlinks=True, dirs_exist_ok=True)
    monkeypatch.setenv("HEART_ROOT", str(tmp_path))
    return open_run("mine")


def everything(run):
    """All bytes of all files of a run, with what is packed unpacked."""
    found = {}
    for file in (one for one in run.folder.rglob("*") if one.is_file()):
        content = file.read_bytes()
        if file.suffix == ".parquet":
            content += pd.read_parquet(file).to_json().encode()
        if file.suffix == ".sqlite":
            with closing(sqlite3.connect(file)) as database:
                cells = database.execute("SELECT messages, answer FROM calls").fetchall()
            parts = [part for row in cells for part in row if part]
            content += b"".join(map(zstandard.decompress, parts))
        found[str(file.relative_to(run.folder))] = content
    return found


def holding(run, words):
    return {name for name, content in everything(run).items() if words.encode() in content}


def decision_on(run, person):
    paid = pd.read_csv(run.folder / "keys" / "payments-conversation.csv").set_index("person")
    return paid["decision"][person]


def test_raters_are_shown_people_s_conversations_beside_those_of_models(run):
    lines = (run.folder / "study" / "rating" / "items.jsonl").read_text().splitlines()
    sides = [side for line in lines for side in json.loads(line)["replies"]]
    theirs = [side for side in sides if f"Supporter: {WORDS}" in side]
    assert len(theirs) == 2  # beside each of the two others
    said = ["Seeker: Answer 1 of mine.", "Supporter: Ok.", "Seeker: Answer 2 of mine."]
    assert theirs[0][1:] == said


def test_who_withdrew_stays_out_of_every_later_import(run, capsys):
    assert raters.main(["mine", "conversation", "--withdraw", "zebedee "]) == 0
    for _ in range(2):
        assert "1 withdrew and are left out" in capsys.readouterr().out
        texts = [turn["text"] for talk in run.read("conversations")["turns"] for turn in talk]
        assert WORDS not in texts
        assert OTHERS in texts
        assert decision_on(run, "Zebedee") == "approve"
        assert raters.main(["mine", "conversation"]) == 0
    imported = import_study(run, run.folder / "study" / "conversation")
    assert imported.withdrawn == ["Zebedee"]
    assert (run.folder / "keys" / "withdrawn.csv").stat().st_mode & 0o077 == 0


def test_what_is_forgotten_is_in_no_file_of_the_run_and_others_stay(run, capsys):
    assert len(holding(run, WORDS)) >= 5  # ledger, two tables, answers, pages for raters
    before = everything(run)
    with closing(open_ledger(run)) as ledger:
        spent = ledger.money().spent
    assert raters.main(["mine", "conversation", "--forget", "Zebedee"]) == 0
    said = capsys.readouterr().out
    for told in (
        "3 calls emptied",
        "1 older files of it deleted, and a copy",
        "Answers: 1 deleted.",
    ):
        assert told in said
    assert "Still in" not in said
    assert holding(run, WORDS) == set()
    lists = {"keys/withdrawn.csv", "keys/payments-conversation.csv"}
    assert holding(run, "Zebedee") == lists
    others = {name for name, content in before.items() if OTHERS.encode() in content}
    assert holding(run, OTHERS) == others
    with closing(open_ledger(run)) as ledger:
        assert ledger.money().spent == pytest.approx(spent)  # a budget is not refilled
        assert check_calls(ledger) == []
    assert withdrawn_people(run) == ["Zebedee"]
    for more in (["--forget", "Zebedee"], []):  # once more is no fault
        assert raters.main(["mine", "conversation", *more]) == 0
    assert decision_on(run, "Zebedee") == "approve"


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


@pytest.mark.parametrize("killed", [True, False])
def test_a_turn_that_is_being_asked_for_is_forgotten_or_waited_for(run, killed):
    """A server that was killed asks no more; another process does, and nothing is half done."""
    words = ({"role": "user", "content": f"{WORDS} And now?"},)
    with closing(open_ledger(run)) as ledger:
        ledger.claim([Request(Model("s", "openai/s"), words)], [0.1], since=0.0)
        if killed:
            with ledger.writing() as connection:
                connection.execute(owners.update().values(pid=2**30))
        else:
            with pytest.raises(StudyError, match=r"1 calls .* being asked .* Still there: ledger"):
                forget(run, ["Zebedee"])
            ledger.release(ledger.keys())
    forget(run, ["Zebedee"])
    assert holding(run, WORDS) == set()


FULL = sqlite3.OperationalError("database or disk is full")
NO_SPACE = RunError("No space left on device.")


@pytest.mark.parametrize(
    ("place", "step", "fault"),
    [
        (withdrawal, "write_atomically", NO_SPACE),  # the list
        (withdrawal, "_compact", FULL),  # the ledger
        (withdrawal, "write_together", NO_SPACE),  # tables and pages
        (withdrawal.Path, "unlink", NO_SPACE),  # answers
    ],
)
def test_a_full_disk_is_told_and_the_command_can_be_given_again(
    run, monkeypatch, place, step, fault
):
    def refuse(*_, **__):
        raise fault

    with monkeypatch.context() as patch:
        patch.setattr(place, step, refuse)
        with pytest.raises((StudyError, RunError), match="full|No space") as error:
            forget(run, ["Zebedee"])
    if step != "write_atomically":
        assert "Still there:" in str(error.value)
        assert withdrawn_people(run) == ["Zebedee"]
    forget(run, ["Zebedee"])
    assert holding(run, WORDS) == set()
