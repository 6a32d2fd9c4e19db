"""Notebooks on runs of one's own, by papermill: the gate as a build runs it, with reports and an exit
code, and a chapter that takes a run which shows little."""

import os
import re
import subprocess
import sys
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
import yaml
from gate_case import THETA, write_run

from heart_utils.runs import find_root

ROOT = find_root()


def papermill(notebook, executed, **parameters):
    """Run a notebook by the command line, in a folder of its own."""
    given = [part for name, value in parameters.items() for part in ("-p", name, str(value))]
    places = [ROOT / "notebooks" / notebook, executed, *given]
    command = [sys.executable, "-m", "papermill", "--no-progress-bar", *places]
    path = os.pathsep.join([str(ROOT), os.environ["PYTHONPATH"]])
    environment = {**os.environ, "PYTHONPATH": path}
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("strength", "code"), [(-2.0, 1), pytest.param(0.1, 0, marks=pytest.mark.slow)]
)
def test_a_worse_candidate_stops_the_build_and_an_equal_one_does_not(tmp_path, strength, code):
    write_run(tmp_path / "before", THETA, n=60)
    write_run(tmp_path / "after", {"new": strength, "x": 1.4, "y": -1.4}, seed=2, n=60)
    sides = {"baseline": f"{tmp_path}/before:old", "candidate": f"{tmp_path}/after:new"}
    fast = {"run": tmp_path / "before", "n_resamples": 50, "max_detectable": 500.0}
    out = tmp_path / "out.ipynb"
    done = papermill("regression_gate.ipynb", out, **sides, **fast, out=tmp_path / "gate")
    assert done.returncode == code, done.stderr[-2000:]
    suite = ElementTree.parse(tmp_path / "gate" / "gate.xml").getroot()
    assert suite.get("failures") == ("2" if code else "0")
    assert (tmp_path / "gate" / "gate.md").is_file()
    assert "<svg" in (tmp_path / "gate" / "gate.html").read_text(encoding="utf-8")
    assert ("GateFailedError" in done.stderr) == bool(code)


def test_the_example_workflow_runs_this_notebook_with_parameters_that_it_has():
    workflow = ROOT / "book" / "adapt" / "regression_gate.yml"
    steps = yaml.safe_load(workflow.read_text(encoding="utf-8"))["jobs"]["gate"]["steps"]
    commands = [step.get("run", "") for step in steps]
    [gate] = [command for command in commands if "papermill" in command]
    source = (ROOT / "notebooks" / "regression_gate.ipynb").read_text(encoding="utf-8")
    names = re.findall(r"-p (\w+)", gate)
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert names
    assert all(re.search(rf'"{name} = ', source) for name in names)
    assert {*re.findall(r"make ([a-z-]+)", " ".join(commands))} <= {*targets}


def beside_people(verdicts):
    """A judge that contradicts itself in each pair, and three people."""
    parts = [verdicts.assign(verdict=np.where(verdicts["order"] == "ab", "a", "b"))]
    asked = verdicts[verdicts["order"] == "ab"].assign(rater_kind="human", p_a=None)
    for number in range(3):
        ids = asked["comparison_id"] + f":{number}"
        parts.append(asked.assign(rater=f"rater-{number}", comparison_id=ids))
    return pd.concat(parts, ignore_index=True)


@pytest.mark.slow
def test_the_chapter_on_agreement_runs_where_a_judge_shows_nothing_beside_people(tmp_path):
    run = write_run(tmp_path / "mine", {"old": 0.0, "x": 1.0}, n=6)
    run.write("verdicts", beside_people(run.read("verdicts")))
    out = tmp_path / "out.ipynb"
    done = papermill("06_do_judges_agree.ipynb", out, run=tmp_path / "mine", n_resamples=20)
    assert done.returncode == 0, done.stderr[-2000:]
