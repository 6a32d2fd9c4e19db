"""A study and a board from a reader's own conversations: a file of histories, recorded answers, and
votes in a sheet."""

import math
import shutil
from pathlib import Path

import pandas as pd
import pytest
from adapt_pages import make_project
from server import Provider, serving
from study_builders import answer_seat, assignment
from test_adapt import KEY, stand_in

from heart_collect import collect
from heart_collect.calls.ledger import open_ledger
from heart_collect.judging.recipe import read_recipe
from heart_collect.people import raters
from heart_collect.people.raters import import_study
from heart_collect.people.study import write_study
from heart_utils.report.tables import read_results
from heart_utils.runs import open_run
from tools.execute_notebook import execute_notebook

RECIPE = """\
chapters: [02_the_conversations, 03_the_judging, 04_the_raters, 05_who_is_preferred]

collect:
  histories: mine/histories.jsonl
  given_replies: false
  responders:
    - {name: my-model, model: openai/my-model, api_base: ADDRESS, api_key_env: MY_SERVER_KEY,
       price_prompt: 0, price_completion: 0}
  probes: [echo, generic-comfort]
  judges:
    - {name: my-judge, model: openai/my-judge, api_base: ADDRESS, api_key_env: MY_SERVER_KEY,
       price_prompt: 0, price_completion: 0}
  protocols: {heart: [overall]}
"""
QUICK = {
    "02": {},
    "03": {"n_resamples": 20},
    "04": {"n_studies": 1},
    "05": {"n_resamples": 20, "rater_kind": "human"},
}
WHO = {"population": "one invented rater", "language": "English", "pay": "none"}

# Whom the rater prefers in each history; the first two were cut from one conversation.
CHOICES = {
    ("my-model", "echo"): ["echo", "my-model", "my-model", "my-model"],
    ("generic-comfort", "echo"): ["generic-comfort", "echo", "generic-comfort", "generic-comfort"],
    ("my-model", "generic-comfort"): ["my-model", "generic-comfort", "my-model", "generic-comfort"],
}


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A project with the run `own`, whose models a stand-in server answers for."""
    with serving(Provider(answer=stand_in, keys=(KEY,))) as provider:
        root = make_project(tmp_path / "project", provider.address)
        for name, value in {"HEART_ROOT": str(root), "MY_SERVER_KEY": KEY}.items():
            monkeypatch.setenv(name, value)
        for name in ("HEART_LEDGER", "HEART_DATA_MIRROR"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.chdir(root)
        (root / "params" / "own.yaml").write_text(RECIPE.replace("ADDRESS", provider.address))
        yield root


def write_replies(run, name="reply"):
    """Have two people write a reply to each of the four histories in a writing study, and import it
    as the book says."""
    (run.folder / "study.yaml").write_text(
        "reply: {writers_per_history: 2, n_writers: 2, spare: 0}\n"
    )
    study = write_study(run, "reply", name=name)
    for seat, person in (("seat-001", "ann"), ("seat-002", "ben")):
        items = assignment(study).query("seat == @seat")["item_id"]
        answer_seat(
            study,
            seat,
            person,
            {item: {"reply": f"{person} hears you, and asks about {item}."} for item in items},
        )
    assert raters.main([run.name, name]) == 0


def test_replies_that_people_wrote_reach_the_judges_and_the_tables(own, capsys):
    assert collect.main(["own", "--quiet", "--yes"]) == 0
    run = open_run("own")
    sizes = {"histories": 4, "responders": 3, "replies": 12, "comparisons": 24, "verdicts": 24}
    assert {name: len(run.read(name)) for name in sizes} == sizes
    assert run.manifest["tables"]["verdicts"]["origin"] == "live"
    write_replies(run)
    capsys.readouterr()
    assert collect.main(["own", "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "8 replies of people, 8 of them to a rehearsal take part (people-reply)." in said
    # eight replies meet three others each, in both orders
    assert "my-judge       72          24" in said
    assert run.read("verdicts")["responder_a"].ne("human").all()
    assert collect.main(["own", "--quiet", "--yes"]) == 0
    verdicts = run.read("verdicts")
    met = verdicts[(verdicts["responder_a"] == "human") | (verdicts["responder_b"] == "human")]
    assert (len(verdicts), len(met)) == (72, 48)
    assert (met["state"] == "valid").all()
    # The chapter on judging pairs what the run's folder holds; everything that it asks about is
    # recorded.
    recipe, replies = read_recipe("own"), run.read("replies")
    assert replies["responder"].value_counts()["human"] == 8
    ledger = open_ledger("own")
    tables = run.read("histories"), replies, recipe.pair(replies)
    again = recipe.ask("verdicts", *tables, ledger=ledger, mode="replay", progress=False)
    pd.testing.assert_frame_equal(run.read("verdicts"), again, check_dtype=False)


def test_people_s_replies_to_a_history_that_is_no_longer_chosen_stop_the_run_before_anything_is_asked(
    own, capsys
):
    assert collect.main(["own", "--quiet", "--yes"]) == 0
    write_replies(open_run("own"))
    file = own / "params" / "own.yaml"
    file.write_text(file.read_text() + "  slices: {standard: 3}\n")
    assert collect.main(["own", "--dry-run"]) == 1
    said = capsys.readouterr().err
    assert (
        "In people-reply people answered 1 histories that the run 'own' does not choose (any more),"
        " first 'own-4'" in said
    )
    assert "Choose them again under `collect:`, or move" in said


def vote(comparisons: pd.DataFrame, file: Path) -> None:
    """Fill in a sheet as a rater would, from the left."""
    shown = comparisons.drop_duplicates("pair_id")
    rows = []
    for row in shown.itertuples():
        left, right = (
            (row.responder_a, row.responder_b)
            if row.order == "ab"
            else (row.responder_b, row.responder_a)
        )
        replies = {row.responder_a: row.reply_a, row.responder_b: row.reply_b}
        [choices] = [named for pair, named in CHOICES.items() if set(pair) == {left, right}]
        preferred = choices[int(row.history_id[-1]) - 1]
        rows.append(
            ("ann", replies[left], replies[right], "left" if preferred == left else "right")
        )
    pd.DataFrame(rows, columns=["rater", "left", "right", "choice"]).to_csv(file, index=False)


@pytest.mark.slow
@pytest.mark.apart
def test_a_study_of_one_s_own_and_its_board_run_on_a_file_of_histories_recorded_answers_and_votes(
    own, tmp_path, monkeypatch
):
    settings = own / "params" / "own.yaml"
    collect.main(["own", "--quiet", "--yes", "--record", "mine/calls.jsonl"])
    monkeypatch.delenv("MY_SERVER_KEY")
    # Nobody may ask from here on, and nothing is left but the files of the reader.
    shutil.rmtree(own / "runs" / "own")
    settings.write_text(settings.read_text() + "  recorded: mine/calls.jsonl\n")
    said = {}
    for number in QUICK:
        [chapter] = (own / "notebooks").glob(f"{number}_*.ipynb")
        if number == "04":
            run = open_run("own")
            vote(run.read("comparisons"), own / "mine" / "votes.csv")
            import_study(run, own / "mine" / "votes.csv", statement=WHO, simulated=True).write(run)
        copy = tmp_path / chapter.name
        execute_notebook(chapter, copy, {"run": "own", **QUICK[number]}, root=own)
        said[number] = read_results(copy)

    counts = {
        ("02", "n-histories"): 4,
        ("02", "n-replies"): 12,
        ("03", "n-verdicts"): 24,
        ("04", "n-histories"): 4,
    }
    assert {(number, name): said[number][name] for number, name in counts} == counts

    # By hand: my-model and generic-comfort each win half of the first conversation and all of the
    # other two against
    # the echo: 5/6 by conversations, odds of 5 to 1, where 3 of 4 votes would be 3 to 1. Between
    # the two it is even.
    board = (
        open_run("own")
        .read("ratings")
        .query("rater_kind == 'human'")
        .set_index("responder")["strength"]
    )
    assert board["my-model"] - board["echo"] == pytest.approx(math.log(5), abs=1e-6)
    assert board["my-model"] == pytest.approx(board["generic-comfort"], abs=1e-6)
