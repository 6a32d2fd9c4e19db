"""heart-gate: its exit codes, what it prints, and what it writes."""

import importlib
import inspect
import json
import re
import shlex
import tomllib
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


@pytest.mark.parametrize("after", [0, 1, 4])
def test_a_full_disk_leaves_none_of_the_reports_and_says_so(
    folder, tmp_path, monkeypatch, capsys, after
):
    options = [
        "--out",
        str(tmp_path / "out"),
        "--json",
        str(tmp_path / "gate.json"),
        "--junit",
        str(tmp_path / "gate.xml"),
    ]
    with full_disk(monkeypatch, after=after):
        assert main([str(folder / "old.csv"), str(folder / "worse.csv"), *options]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "could not be written (No space left on device)" in said.err
    assert "Make room on its disk" in said.err
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


@pytest.fixture
def foreign(folder, tmp_path):
    """The votes of two of the files below other headers and in other words, with rows that do not
    count."""
    for name in ("old", "worse"):
        rows = pd.read_csv(folder / f"{name}.csv", dtype=str, keep_default_na=False)
        rows = (
            rows[rows["state"] == "valid"]
            .drop(columns=["rater_kind", "state"])
            .rename(columns=FOREIGN)
        )
        rows["won"] = rows["won"].replace({"a": "first", "b": "second", "tie": "draw"})
        rejected = rows.assign(won="first", who="nobody", ok="no")
        pd.concat([rows.assign(ok="yes"), rejected]).assign(note="x").to_csv(
            tmp_path / f"{name}.csv", index=False
        )
    return tmp_path


@pytest.mark.filterwarnings("ignore:.*rows were read")
def test_the_gate_reads_foreign_headers_and_words_as_it_is_told(folder, foreign, capsys):
    assert main([str(folder / "old.csv"), str(folder / "worse.csv")]) == 1
    own = capsys.readouterr().out
    files = [str(foreign / "old.csv"), str(foreign / "worse.csv")]
    assert main([*files, *shlex.split(FOREIGN_OPTIONS)]) == 1
    assert capsys.readouterr().out == own
    short = FOREIGN_OPTIONS.replace("note= ", "")
    assert main([*files, *shlex.split(short)]) == 2
    assert "unknown note" in capsys.readouterr().err
    assert main([*files, *shlex.split(short), "--columns", "*="]) == 1
    assert capsys.readouterr().out == own


@pytest.mark.filterwarnings("ignore:.*rows were read")
def test_the_gate_reads_its_options_from_a_file_and_the_command_line_goes_first(
    folder, foreign, capsys
):
    reading = foreign / "reading.yaml"
    said = {
        "columns": {head: name for name, head in FOREIGN.items()} | {"*": None},
        "words": {"first": "b", "second": "b", "draw": "tie"},
    }
    said |= {"only": {"ok": "yes"}, "always": {"rater_kind": "model"}}
    reading.write_text(yaml.safe_dump(said))
    files = [str(foreign / "old.csv"), str(foreign / "worse.csv"), "--reading", str(reading)]
    main([str(folder / "old.csv"), str(folder / "worse.csv")])
    own = capsys.readouterr().out
    assert main([*files, "--words", "first=a"]) == 1
    assert capsys.readouterr().out == own
    reading.write_text(yaml.safe_dump(said | {"colums": {}}))
    assert main(files) == 2
    assert "unknown colums" in capsys.readouterr().err


def test_the_help_names_the_defaults_that_the_command_has_and_the_functions_have():
    parser = _parser()
    numbers = [action for action in parser._actions if isinstance(action.default, float)]
    assert len(numbers) >= 5
    assert [action.dest for action in numbers if not action.help.endswith(f"({action.default:.2f})")
            and not action.help.endswith(f"({action.default:g})")] == []  # fmt: skip
    options = inspect.signature(GateRule).parameters
    shared = [action for action in numbers if action.dest in options]
    assert {action.dest: action.default for action in shared} == {
        action.dest: options[action.dest].default for action in shared
    }


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


def test_too_little_power_says_how_many_dialogues_it_takes(folder, capsys):
    main([str(folder / "old.csv"), str(folder / "alike.csv")])
    needed = [int(n) for n in re.findall(r"takes about (\d+) dialogues", capsys.readouterr().out)]
    assert len(needed) == 2
    assert min(needed) > 40


def test_two_runs_are_compared_and_identical_replies_are_named(tmp_path, capsys):
    one, other = (
        write_run(tmp_path / name, THETA, seed=seed)
        for seed, name in enumerate(("before", "after"))
    )
    assert main([f"{one.folder}:old", f"{other.folder}:old", "--max-detectable", "400"]) in (0, 1)
    assert (
        "24 of 24 replies of the candidate are the baseline's, word for word"
        in capsys.readouterr().out
    )


def test_the_reports_say_the_same_as_the_exit_code(folder, tmp_path):
    files = {kind: tmp_path / f"gate.{kind}" for kind in ("json", "junit", "markdown")}
    options = [part for kind, file in files.items() for part in (f"--{kind}", str(file))]
    sides = [str(folder / "old.csv"), str(folder / "worse.csv")]
    assert main([*sides, "--anytime", *options, "--out", str(tmp_path / "out")]) == 1
    said = json.loads(files["json"].read_text(encoding="utf-8"))
    assert (said["answer"], said["exit_code"], len(said["dimensions"])) == ("worse", 1, 2)
    assert ElementTree.parse(files["junit"]).getroot().get("failures") in ("1", "2")
    assert "points of win share" in files["markdown"].read_text(encoding="utf-8")
    assert "at least one of 8 equal candidates" in (tmp_path / "out" / "gate.html").read_text(
        encoding="utf-8"
    )


def test_two_runs_are_compared_without_a_checkout_around_them(folder, monkeypatch, capsys):
    monkeypatch.setattr(
        "heart_utils.runs.find_root", lambda: folder / "site-packages" / "heart_utils"
    )
    monkeypatch.chdir(folder)
    assert main(["./run-old:old", "./run-worse:new"]) == 1
    assert capsys.readouterr().out.startswith("WORSE")


def test_the_package_has_the_command():
    project = tomllib.loads((find_root() / "pyproject.toml").read_text(encoding="utf-8"))
    module, _, name = project["project"]["scripts"]["heart-gate"].partition(":")
    assert getattr(importlib.import_module(module), name) is main


def test_the_workflow_to_copy_needs_no_makefile_and_runs_the_command_with_options_that_it_has(
    capsys,
):
    text = (find_root() / "book" / "adapt" / "heart_gate.yml").read_text(encoding="utf-8")
    steps = [step.get("run", "") for step in yaml.safe_load(text)["jobs"]["gate"]["steps"]]
    assert not any("make " in step for step in steps)
    command = next(step for step in steps if step.startswith("heart-gate "))
    with pytest.raises(SystemExit):
        main(["--help"])
    known = capsys.readouterr().out
    assert all(option in known for option in re.findall(r"--[a-z-]+", command))
    collects = next(step for step in steps if step.startswith("heart-collect "))
    with pytest.raises(SystemExit):
        collect.main(["--help"])
    known = capsys.readouterr().out
    assert "--budget" in collects  # the workflow's, not the recipe's
    assert all(option in known for option in re.findall(r"--[a-z-]+", f"{collects} --allow-host"))


def test_a_contestant_with_an_address_is_in_no_report_and_on_no_terminal(folder, tmp_path, capsys):
    one, other = tmp_path / "old_ann@example.org.csv", tmp_path / "new.csv"
    one.write_text((folder / "old.csv").read_text())
    other.write_text((folder / "worse.csv").read_text().replace("new", "ben@example.org"))
    asked = [
        str(one),
        str(other),
        "--json",
        str(tmp_path / "gate.json"),
        "--out",
        str(tmp_path / "out"),
    ]
    assert main(asked) == 2
    said = capsys.readouterr()
    assert "People are named in ratings.responder: e-mail addresses" in said.err
    assert "@" not in said.out + said.err
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "gate.json").exists()


def test_a_file_that_is_called_as_its_sender_is_named_without_the_address(folder, tmp_path, capsys):
    one = tmp_path / "old_ann@example.org.csv"
    one.write_text((folder / "old.csv").read_text())
    assert main([str(one), str(folder / "worse.csv"), "--markdown", str(tmp_path / "gate.md")]) == 1
    assert "[email]" in (tmp_path / "gate.md").read_text()
    assert "@" not in (tmp_path / "gate.md").read_text() + capsys.readouterr().out
