"""The gate as a build runs it: by papermill, from two runs, with reports and an exit code."""

import os
import re
import subprocess
import sys
from xml.etree import ElementTree

import pytest
import yaml
from gate_case import THETA, write_run

from heart_utils.runs import find_root

ROOT = find_root()


def run_notebook(folder, candidate, **parameters):
    """Run the gate's notebook by the command line, in a folder of its own."""
    given = {
        "baseline": f"{folder}/before:old",
        "candidate": f"{folder}/after:{candidate}",
        "out": str(folder / "gate"),
    }
    given |= {
        "run": str(folder / "before"),
        "n_resamples": 200,
        "max_detectable": 500.0,
        **parameters,
    }
    arguments = [part for name, value in given.items() for part in ("-p", name, str(value))]
    command = [
        sys.executable,
        "-m",
        "papermill",
        "--no-progress-bar",
        str(ROOT / "notebooks" / "regression_gate.ipynb"),
    ]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ["PYTHONPATH"]]),
    }
    command += [str(folder / "out.ipynb"), *arguments]
    # 20 s on two free cores; tests run beside others.
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=600, check=False
    )


@pytest.mark.parametrize(
    ("strength", "code"), [(-2.0, 1), pytest.param(0.1, 0, marks=pytest.mark.slow)]
)
def test_a_worse_candidate_stops_the_build_and_an_equal_one_does_not(tmp_path, strength, code):
    write_run(tmp_path / "before", THETA, n=60)
    write_run(tmp_path / "after", {"new": strength, "x": 1.4, "y": -1.4}, seed=2, n=60)
    done = run_notebook(tmp_path, "new")
    assert done.returncode == code, done.stderr[-2000:]
    suite = ElementTree.parse(tmp_path / "gate" / "gate.xml").getroot()
    assert suite.get("failures") == ("2" if code else "0")
    assert (tmp_path / "gate" / "gate.md").is_file()
    assert "<svg" in (tmp_path / "gate" / "gate.html").read_text(encoding="utf-8")
    assert ("GateFailedError" in done.stderr) == bool(code)


def test_the_example_workflow_runs_this_notebook_with_parameters_that_it_has():
    workflow = yaml.safe_load(
        (ROOT / "book" / "adapt" / "regression_gate.yml").read_text(encoding="utf-8")
    )
    steps = [step.get("run", "") for step in workflow["jobs"]["gate"]["steps"]]
    gate = next(step for step in steps if "papermill" in step)
    source = (ROOT / "notebooks" / "regression_gate.ipynb").read_text(encoding="utf-8")
    for name in re.findall(r"-p (\w+)", gate):
        assert re.search(rf'"{name} = ', source)
    targets = set(
        re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    )
    assert {word for step in steps for word in re.findall(r"make ([a-z-]+)", step)} <= targets
