"""Chapters 1 to 5 on a reader's own conversations: a file of histories, recorded answers, and votes in a sheet."""

import math
import shutil
from pathlib import Path

import pandas as pd
import pytest
from adapt_pages import make_project
from collect.server import Provider, serving
from test_adapt import KEY, stand_in

from heart_utils.analysis.head_to_head import head_to_head
from heart_utils.collect import __main__ as collect
from heart_utils.collect.raters import import_ratings
from heart_utils.collect.sources import load_verdicts
from heart_utils.report.glued import read_glued
from heart_utils.runs import open_run
from tools.execute_notebook import execute_notebook

RECIPE = """\
chapters: [01_the_histories, 02_the_replies, 03_the_judging, 04_the_raters, 05_who_is_preferred]

collect:
  histories: mine/histories.jsonl
  given_replies: false
  responders:
    - {name: my-model, model: openai/my-model, api_base: ADDRESS, api_key_env: MY_SERVER_KEY}
  probes: [echo, generic-comfort]
  judges:
    - {name: my-judge, model: openai/my-judge, api_base: ADDRESS, api_key_env: MY_SERVER_KEY}
  protocols: {heart: [overall]}
"""
QUICK = {
    "01": {},
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


def vote(comparisons: pd.DataFrame, file: Path) -> None:
    """Fill in a sheet as a rater would, from the left."""
    shown = comparisons.drop_duplicates("pair_id")
    rows = []
    for row in shown.itertuples():
        left, right = (row.responder_a, row.responder_b) if row.order == "ab" else (row.responder_b, row.responder_a)
        replies = {row.responder_a: row.reply_a, row.responder_b: row.reply_b}
        [choices] = [named for pair, named in CHOICES.items() if set(pair) == {left, right}]
        preferred = choices[int(row.history_id[-1]) - 1]
        rows.append(("ann", replies[left], replies[right], "left" if preferred == left else "right"))
    pd.DataFrame(rows, columns=["rater", "left", "right", "choice"]).to_csv(file, index=False)


@pytest.mark.slow
def test_chapters_1_to_5_run_on_a_file_of_histories_recorded_answers_and_votes(tmp_path, monkeypatch):
    with serving(Provider(answer=stand_in, keys=(KEY,))) as provider:
        root = make_project(tmp_path / "project", provider.address)
        for name, value in {"HEART_ROOT": str(root), "MY_SERVER_KEY": KEY, "HEART_DATA": "none"}.items():
            monkeypatch.setenv(name, value)
        for name in ("HEART_LEDGER", "HEART_DATA_MIRROR"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.chdir(root)
        settings = root / "params" / "own.yaml"
        settings.write_text(RECIPE.replace("ADDRESS", provider.address))
        collect.main(["own", "--quiet", "--yes", "--record", "mine/calls.jsonl"])
    # Nobody answers from here on, and nothing is left but the files of the reader.
    shutil.rmtree(root / "runs" / "own")
    settings.write_text(settings.read_text() + "  recorded: mine/calls.jsonl\n")
    said = {}
    for number in ("01", "02", "03", "04", "05"):
        [chapter] = (root / "notebooks").glob(f"{number}_*.ipynb")
        if number == "04":
            run = open_run("own")
            vote(run.read("comparisons"), root / "mine" / "votes.csv")
            import_ratings(run, root / "mine" / "votes.csv", statement=WHO, simulated=True).write(run)
        copy = tmp_path / chapter.name
        execute_notebook(chapter, copy, {"run": "own", **QUICK[number]}, root=root)
        said[number] = read_glued(copy)

    counts = {"01": ("n-histories", 4), "02": ("n-replies", 12), "03": ("n-verdicts", 24), "04": ("n-histories", 4)}
    assert {number: said[number][name] for number, (name, _) in counts.items()} == {n: k for n, (_, k) in counts.items()}

    # By hand: my-model and generic-comfort each win half of the first conversation and all of the other two against
    # the echo: 5/6 by conversations, odds of 5 to 1, where 3 of 4 votes would be 3 to 1. Between the two it is even.
    board = open_run("own").read("ratings").query("rater_kind == 'human'").set_index("responder")["strength"]
    assert board["my-model"] - board["echo"] == pytest.approx(math.log(5), abs=1e-6)
    assert board["my-model"] == pytest.approx(board["generic-comfort"], abs=1e-6)


def test_people_named_in_two_columns_meet_models_in_votes_from_a_file(tmp_path, rng):
    votes = pd.DataFrame({"history_id": ["h1", "h2", "h3", "h4"], "responder_a": "volunteer", "responder_b": "bot"})
    votes.assign(rater="ann", rater_kind="human", verdict=["a", "b", "a", "tie"]).to_csv(tmp_path / "votes.csv", index=False)
    run = open_run(tmp_path / "mine")
    run.write("verdicts", load_verdicts(tmp_path / "votes.csv"))
    run.write("responders", pd.DataFrame({"responder": ["volunteer", "bot"], "responder_kind": ["human", "model"]}))
    met = head_to_head(run.read("verdicts"), run.read("responders"), rng=rng, n_resamples=20).set_index("outcome")
    assert met["share"].to_dict() == pytest.approx(
        {"people": 1 / 2, "models": 1 / 4, "tie": 1 / 4, "inconsistent": 0, "models_of_decided": 1 / 3}
    )
    assert not met["simulated"].any()
