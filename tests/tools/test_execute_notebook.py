"""One notebook: whole or not at all, and a failure that says where and why."""

import json
import re
import signal
import subprocess
import sys
import time

import pytest
from small_project import cell

from heart_utils.runs import find_root
from tools.execute_notebook import ExecutionError, execute_notebook, lay_words


@pytest.fixture
def execute(project, monkeypatch, forked_kernels):
    monkeypatch.setenv("PYTHONPATH", str(find_root()))

    def run(*cells, **parameters):
        notebook = project.write_chapter("01_one", *cells)
        copy = project.root / "build" / "executed" / "01_one.ipynb"
        execute_notebook(notebook, copy, parameters, root=project.root)
        return json.loads(copy.read_text())

    return run


def test_values_keep_their_types_and_the_folder_is_that_of_the_notebooks(execute, project):
    ran = execute(
        cell("n = 1\nshare = 0.5\nnames = []\nnothing = 1", tags=["parameters"]),
        cell("import os\nprint((n, share, names, nothing), os.getcwd())"),
        n=3, share=0.25, names=["a"], nothing=None,
    )  # fmt: skip
    assert ran["cells"][-1]["outputs"][0]["text"] == [
        f"(3, 0.25, ['a'], None) {project.root / 'notebooks'}\n"
    ]
    assert "execution" not in ran["cells"][-1]["metadata"], (
        "times of messages would differ from run to run"
    )


def test_a_failure_names_notebook_cell_and_cause_and_leaves_the_last_copy_alone(execute, project):
    copy = project.root / "build" / "executed" / "01_one.ipynb"
    good = cell("seed = 1", tags=["parameters"])
    execute(good)
    before = copy.read_bytes()
    bad = cell("# a comment\nopen_run = None"), cell("import math\nmath.sqrt(-1)")
    where = "01_one.ipynb: cell 3 of 3 failed, the one that begins `import math`"
    with pytest.raises(ExecutionError, match=f"(?s){where}.*\nValueError: [^\n]*$") as error:
        execute(good, *bad, seed=2)
    assert str(error.value).count("ValueError: ") == 1, "the cause is said once"
    assert copy.read_bytes() == before
    assert [path.name for path in copy.parent.iterdir()] == ["01_one.ipynb"]


def test_a_kept_simulation_that_had_to_run_is_told_and_noted_beside_the_copy(
    execute, project, capsys
):
    seed = cell("seed = 1", tags=["parameters"])
    draw = (
        "def draw(n):\n    return pd.DataFrame({'n': range(n)})\n\n\ntable = kept('some rows',"
        " draw, 3)"
    )
    execute(
        seed, cell(f"import pandas as pd\nfrom heart_utils.report.kept import kept\n\n\n{draw}")
    )
    told = capsys.readouterr().out
    assert re.fullmatch(r"some rows: simulated anew in \d+\.\d s, not as kept: table\n", told)
    noted = project.root / "build" / "executed" / ".01_one.anew"
    assert noted.read_text() == told
    execute(seed)
    assert not noted.exists()


@pytest.mark.parametrize(
    ("source", "parameters", "said"),
    [
        ("import os\nos._exit(1)", {}, "01_one.ipynb stopped: DeadKernelError"),
        ("1", {"sede": 2}, "has no parameter sede. It has seed"),
    ],
    ids=["a kernel that dies", "a parameter that the notebook lacks"],
)
def test_what_stops_a_notebook_is_told_and_leaves_nothing(
    execute, project, source, parameters, said
):
    with pytest.raises(ExecutionError, match=said):
        execute(cell("seed = 1", tags=["parameters"]), cell(source), **parameters)
    assert not list((project.root / "build").rglob("*.ipynb"))


@pytest.mark.slow
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_leaves_nothing_half_written(project, sent):
    notebook = project.write_chapter(
        "01_slow", cell("open('begun', 'w').close()"), cell("import time\ntime.sleep(600)")
    )
    copy = project.root / "build" / "01_slow.ipynb"
    part, begun = copy.with_name(".01_slow.part.ipynb"), project.root / "notebooks" / "begun"
    command = [sys.executable, "-m", "tools.execute_notebook", str(notebook), str(copy)]
    running = subprocess.Popen(command, cwd=project.root, stderr=subprocess.PIPE, text=True)
    given_up = time.monotonic() + 120
    while not begun.is_file():
        assert time.monotonic() < given_up, "its first cell does not come to an end"
        time.sleep(0.1)
    running.send_signal(sent)
    _, said = running.communicate(timeout=120)
    assert running.returncode == 130, said
    assert "01_slow.ipynb was interrupted" in said
    assert not part.exists()
    assert not copy.exists()


@pytest.mark.slow
def test_what_a_chapter_ran_with_stands_in_the_manifest(project):
    project.write_chapter("01_one", cell('run = "sample"\nseed = 1', tags=["parameters"]))
    project.write_parameters("chapters: [01_one]\nall: {seed: 5}\n")
    assert project.make_notebooks() == {"01_one"}
    manifest = json.loads((project.root / "runs" / "sample" / "manifest.json").read_text())
    assert manifest["parameters"] == {"01_one": {"run": "sample", "seed": 5}}
    assert {"python", "numpy", "papermill"} <= set(manifest["versions"])
    assert manifest["commit"] == "unknown", "this project is no checkout"


def words(text):
    return {"cell_type": "markdown", "id": "w", "metadata": {}, "source": text}


def test_new_words_are_laid_around_outputs_that_stand_and_other_code_is_refused(execute, project):
    seed = cell("seed = 1", tags=["parameters"])
    draw = cell("import random\nprint(random.random())")
    before = execute(words("Old."), seed, draw, seed=3)
    copy = project.root / "build" / "executed" / "01_one.ipynb"
    for other in ([words("Old."), seed, cell("print(seed + 1)")], [words("Old."), seed]):
        assert not lay_words(project.write_chapter("01_one", *other), copy)
    assert json.loads(copy.read_text()) == before
    notebook = project.write_chapter("01_one", words("New."), seed, words("And more."), draw)
    assert not lay_words(notebook, copy.with_name("absent.ipynb"))
    assert lay_words(notebook, copy)
    after = json.loads(copy.read_text())["cells"]
    said = [part["source"] for part in after if part["cell_type"] == "markdown"]
    assert ["".join(source) for source in said] == ["New.", "And more."]
    assert after[-1]["outputs"] == before["cells"][-1]["outputs"]
    tags = [part["metadata"].get("tags") for part in after]
    assert tags[1:3] == [["parameters"], ["injected-parameters"]]
