"""heart-gate: its exit codes, what it prints, and what it writes."""

import contextlib
import inspect
import io
import json
import re
import shlex
from xml.etree import ElementTree

import pandas as pd
import pytest
import yaml
from builders import full_disk
from gate_case import THETA, write_run

from heart_collect import collect
from heart_utils.gate import GateRule
from heart_utils.report.commands import _gate_parser as _parser
from heart_utils.report.commands import heart_gate as main
from heart_utils.runs import find_root

COLUMNS = [
    "history_id",
    "responder_a",
    "responder_b",
    "rater",
    "rater_kind",
    "dimension",
    "order",
    "verdict",
    "state",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Three files of votes, beside the runs that they come from."""
    folder = tmp_path_factory.mktemp("votes")
    for number, (name, strength) in enumerate({"old": 0.0, "worse": -2.0, "alike": 0.1}.items()):
        who = THETA if name == "old" else {"new": strength, "x": 1.4, "y": -1.4}
        run = write_run(folder / f"run-{name}", who, seed=number, n=40)
        run.read("verdicts")[COLUMNS].to_csv(folder / f"{name}.csv", index=False)
    return folder


@pytest.mark.parametrize(
    ("candidate", "options", "code", "word"),
    [
        ("worse.csv", "", 1, "WORSE"),
        ("worse.csv", "--anytime", 1, "WORSE"),
        ("alike.csv", "", 3, "INCONCLUSIVE"),
        ("alike.csv", "--max-detectable 300", 0, "PASSED"),
        ("alike.csv", "--anytime --margin 0.04", 3, "INCONCLUSIVE"),
        ("alike.csv", "--anytime --margin 0.3", 3, "INCONCLUSIVE"),  # this judge may not read
        ("alike.csv", "--anytime --margin 0.3 --max-inconsistent 0.7", 0, "PASSED"),
        ("alike.csv:new", "--releases 8 --max-detectable 300", 0, "PASSED"),
    ],
)
def test_the_exit_code_is_the_answer(folder, capsys, candidate, options, code, word):
    assert main([str(folder / "old.csv"), str(folder / candidate), *options.split()]) == code
    assert capsys.readouterr().out.startswith(f"{word}: new against old")


@pytest.mark.parametrize("after", [0, 2])
def test_a_full_disk_leaves_none_of_the_reports_and_says_so(
    folder, tmp_path, monkeypatch, capsys, after
):
    sides = [str(folder / "old.csv"), str(folder / "worse.csv")]
    files = {kind: str(tmp_path / f"gate.{kind}") for kind in ("json", "junit", "xlsx")}
    options = [part for kind, file in files.items() for part in (f"--{kind}", file)]
    with full_disk(monkeypatch, after=after):
        assert main([*sides, *options]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "could not be written (No space left on device)" in said.err
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


FOREIGN = {
    "history_id": "test_id",
    "responder_a": "left model",
    "responder_b": "right model",
    "rater": "who",
    "verdict": "won",
}
FOREIGN_OPTIONS = (
    "--columns test_id=history_id 'left model=responder_a' 'right model=responder_b' --columns"
    " who=rater won=verdict note= --words first=a second=b --words draw=tie --only ok=yes --always"
    " rater_kind=model"
)


@pytest.fixture(scope="module")
def own(folder):
    """What the gate prints of the two files as they are."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        assert main([str(folder / "old.csv"), str(folder / "worse.csv")]) == 1
    return printed.getvalue()


@pytest.fixture(scope="module")
def foreign(folder):
    """The votes of two of the files below other headers and in other words, with rows that do not
    count."""
    home = folder / "foreign"
    home.mkdir()
    for name in ("old", "worse"):
        rows = pd.read_csv(folder / f"{name}.csv", dtype=str, keep_default_na=False)
        rows = rows[rows["state"] == "valid"].drop(columns=["rater_kind", "state"])
        rows = rows.rename(columns=FOREIGN)
        rows["won"] = rows["won"].replace({"a": "first", "b": "second", "tie": "draw"})
        rejected = rows.assign(won="first", who="nobody", ok="no")
        both = pd.concat([rows.assign(ok="yes"), rejected])
        both.assign(note="x").to_csv(home / f"{name}.csv", index=False)
    return [str(home / "old.csv"), str(home / "worse.csv")]


SHORT = FOREIGN_OPTIONS.replace("note= ", "")


@pytest.mark.filterwarnings("ignore:.*rows were read")
@pytest.mark.parametrize("options", [FOREIGN_OPTIONS, f"{SHORT} --columns *="])
def test_the_gate_reads_foreign_headers_and_words_as_it_is_told(own, foreign, capsys, options):
    assert main([*foreign, *shlex.split(options)]) == 1
    assert capsys.readouterr().out == own
    assert main([*foreign, *shlex.split(SHORT)]) == 2
    assert "unknown note" in capsys.readouterr().err


@pytest.mark.filterwarnings("ignore:.*rows were read")
def test_the_gate_reads_its_options_from_a_file_and_the_command_line_goes_first(
    own, foreign, tmp_path, capsys
):
    columns = {head: name for name, head in FOREIGN.items()} | {"*": None}
    said = {"columns": columns, "words": {"first": "b", "second": "b", "draw": "tie"}}
    said |= {"only": {"ok": "yes"}, "always": {"rater_kind": "model"}}
    reading = tmp_path / "reading.yaml"
    reading.write_text(yaml.safe_dump(said))
    assert main([*foreign, "--reading", str(reading), "--words", "first=a"]) == 1
    assert capsys.readouterr().out == own
    reading.write_text(yaml.safe_dump(said | {"colums": {}}))
    assert main([*foreign, "--reading", str(reading)]) == 2
    assert "unknown colums" in capsys.readouterr().err


def test_the_help_names_the_defaults_that_the_command_has_and_the_functions_have():
    numbers = [action for action in _parser()._actions if isinstance(action.default, float)]
    options = inspect.signature(GateRule).parameters
    assert len(numbers) >= 5
    for action in numbers:
        assert action.help.endswith((f"({action.default:.2f})", f"({action.default:g})"))
        if action.dest in options:
            assert action.default == options[action.dest].default


@pytest.mark.parametrize(
    ("baseline", "candidate", "said"),
    [
        ("old.csv", "nowhere.csv", "there is no such file"),
        ("old.csv", "old.csv", "which responder is compared"),
        ("old.csv:nobody", "alike.csv", "nobody"),
        ("old.csv:x", "copy.csv:x", "the same verdicts, row for row"),
    ],
)
def test_bad_input_says_what_is_wrong_and_is_neither_worse_nor_inconclusive(
    folder, capsys, baseline, candidate, said
):
    (folder / "copy.csv").write_bytes((folder / "old.csv").read_bytes())
    assert main([str(folder / baseline), str(folder / candidate)]) == 2
    assert said in capsys.readouterr().err


def test_two_runs_are_compared_and_identical_replies_are_named(folder, monkeypatch, capsys):
    """Without a checkout around them."""
    monkeypatch.setattr("heart_utils.runs.find_root", lambda: folder / "site-packages")
    monkeypatch.chdir(folder)
    assert main(["./run-old:old", "./run-worse:new"]) == 1
    assert capsys.readouterr().out.startswith("WORSE")
    main(["./run-old:x", "./run-worse:x"])
    said = "40 of 40 replies of the candidate are the baseline's, word for word"
    assert said in capsys.readouterr().out


def test_the_reports_say_the_same_as_the_exit_code(folder, tmp_path):
    files = {kind: tmp_path / f"gate.{kind}" for kind in ("json", "junit", "markdown")}
    options = [part for kind, file in files.items() for part in (f"--{kind}", str(file))]
    sides = [str(folder / "old.csv"), str(folder / "worse.csv")]
    assert main([*sides, "--anytime", *options, "--out", str(tmp_path)]) == 1
    said = json.loads(files["json"].read_text())
    assert (said["answer"], said["exit_code"], len(said["dimensions"])) == ("worse", 1, 2)
    assert ElementTree.parse(files["junit"]).getroot().get("failures") in ("1", "2")
    assert "points of win share" in files["markdown"].read_text()
    assert "at least one of 8 equal candidates" in (tmp_path / "gate.html").read_text()


def has_options(command, main, capsys):
    """Whether a command's help knows each option of a line in a workflow."""
    with pytest.raises(SystemExit):
        main(["--help"])
    known = capsys.readouterr().out
    return all(option in known for option in re.findall(r"--[a-z-]+", command))


def test_the_workflow_to_copy_needs_no_makefile_and_runs_the_command_with_options_that_it_has(
    capsys,
):
    text = (find_root() / "book" / "adapt" / "heart_gate.yml").read_text(encoding="utf-8")
    steps = [step.get("run", "") for step in yaml.safe_load(text)["jobs"]["gate"]["steps"]]
    gates, collects = (
        next(step for step in steps if step.startswith(name))
        for name in ("heart-gate ", "heart-collect ")
    )
    assert not any("make " in step for step in steps)
    assert has_options(gates, main, capsys)
    assert has_options(f"{collects} --allow-host", collect.main, capsys)
    assert "--budget" in collects  # the workflow's, not the recipe's


def test_a_contestant_with_an_address_is_in_no_report_and_on_no_terminal(folder, tmp_path, capsys):
    one, other = tmp_path / "old_ann@example.org.csv", tmp_path / "new.csv"
    one.write_text((folder / "old.csv").read_text())
    other.write_text((folder / "worse.csv").read_text().replace("new", "ben@example.org"))
    asked = ["--json", str(tmp_path / "gate.json"), "--out", str(tmp_path / "out")]
    assert main([str(one), str(other), *asked]) == 2
    said = capsys.readouterr()
    assert "People are named in ratings.responder: e-mail addresses" in said.err
    assert "@" not in said.out + said.err
    assert {file.name for file in tmp_path.iterdir()} == {one.name, other.name}
    summary = tmp_path / "gate.md"
    assert main([str(one), str(folder / "worse.csv"), "--markdown", str(summary)]) == 1
    assert "[email]" in summary.read_text()
    assert "@" not in summary.read_text() + capsys.readouterr().out
