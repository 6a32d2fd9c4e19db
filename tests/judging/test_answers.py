"""The raw answers of a run as JSON Lines: all of them, word for word, with nobody's name and no
key."""

import json
import stat

import pytest
from test_adapt import KEY
from test_own_histories import own  # noqa: F401 (a fixture)

from heart_collect import collect
from heart_collect.calls.commands import write_answers
from heart_collect.calls.ledger import open_ledger
from heart_utils.identities import IdentityError
from heart_utils.runs import RunError, open_run


def test_each_answer_of_a_run_is_a_line_with_what_it_was_read_as(own, capsys, monkeypatch):  # noqa: F811
    assert collect.main(["own", "--quiet", "--yes"]) == 0
    capsys.readouterr()
    assert collect.main(["own", "--answers", "answers.jsonl"]) == 0
    said = capsys.readouterr().out
    lines = [json.loads(line) for line in (own / "answers.jsonl").read_text().splitlines()]
    run, ledger = open_run("own"), open_ledger("own")
    verdicts = run.read("verdicts")
    assert {line["call_id"] for line in lines if line["table"] == "verdicts"} == set(
        verdicts["call_id"]
    )
    # one model answered each of four histories
    assert len(lines) == 4 + verdicts["call_id"].nunique()
    told = next(line for line in lines if line["table"] == "verdicts")
    assert told["text"] == ledger.find([told["call_id"]])[told["call_id"]].text
    assert (told["rater"], told["states"], told["dimensions"]) == (
        "my-judge",
        {"valid": 1},
        ["overall"],
    )
    assert len(told["prompt"]) == 16
    assert f"{len(lines)} answers of models are in answers.jsonl" in said
    assert f"The strictest licence of those is {lines[0]['licence']}" in said
    assert KEY not in (own / "answers.jsonl").read_text()
    # A second time nothing is written over; what may not be passed on is for its owner alone.
    before = (own / "answers.jsonl").stat()
    assert collect.main(["own", "--answers", "answers.jsonl"]) == 1
    assert "is there already, and answers are never written over" in capsys.readouterr().err
    assert (own / "answers.jsonl").stat().st_mtime_ns == before.st_mtime_ns
    assert ("NOT be passed on" in said) == (stat.S_IMODE(before.st_mode) == 0o600)
    # An answer that names somebody keeps the file from being written.
    [first, *_] = run.read("replies")["call_id"].dropna()
    call = ledger.find([first])[first]
    found = ledger.find
    monkeypatch.setattr(
        ledger,
        "find",
        lambda keys: found(keys) | {first: type(call)(first, "ok", text="ann@example.org")},
    )
    with pytest.raises(IdentityError, match="answers.text: .*1 row"):
        write_answers(run, ledger, "named.jsonl")
    assert not (own / "named.jsonl").exists()


def test_a_run_that_asked_nobody_has_no_answers(own):  # noqa: F811
    with pytest.raises(RunError, match="no answers of models yet: `make collect RUN=own`"):
        write_answers(open_run("own"), open_ledger("own"), "answers.jsonl")
