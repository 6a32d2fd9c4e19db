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
    with pytest.raises(ExecutionError) as error:
        execute(
            good, cell("# a comment\nopen_run = None"), cell("import math\nmath.sqrt(-1)"), seed=2
        )
    assert "01_one.ipynb: cell 3 of 3 failed, the one that begins `import math`" in str(error.value)
    assert "ValueError: " in str(error.value).splitlines()[-1]
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


def test_a_kernel_that_dies_is_told(execute, project):
    with pytest.raises(ExecutionError, match="01_one.ipynb stopped: DeadKernelError"):
        execute(cell("import os\nos._exit(1)"))
    assert not list((project.root / "build" / "executed").iterdir())


def test_a_parameter_that_the_notebook_lacks_is_refused(execute):
    with pytest.raises(ExecutionError, match="has no parameter sede. It has seed"):
        execute(cell("seed = 1", tags=["parameters"]), sede=2)


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


def test_a_failing_chapter_stops_the_command_with_its_message(project):
    notebook = project.write_chapter("01_bad", cell("1 / 0"))
    done = project.run(
        sys.executable,
        "-m",
        "tools.execute_notebook",
        str(notebook),
        str(project.root / "copy.ipynb"),
    )
    assert done.returncode == 1
    assert "ZeroDivisionError: division by zero" in done.stderr
    assert not (project.root / "copy.ipynb").exists()


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


def test_new_words_are_laid_around_outputs_that_stand(execute, project):
    seed, draw = (
        cell("seed = 1", tags=["parameters"]),
        cell("import random\nprint(random.random())"),
    )
    before = execute(words("Old."), seed, draw, seed=3)
    notebook = project.write_chapter(
        "01_one", words("New, and longer."), seed, words("A sentence more."), draw
    )
    copy = project.root / "build" / "executed" / "01_one.ipynb"
    assert lay_words(notebook, copy)
    after = json.loads(copy.read_text())
    assert ["".join(c["source"]) for c in after["cells"] if c["cell_type"] == "markdown"] == [
        "New, and longer.",
        "A sentence more.",
    ]
    assert after["cells"][-1]["outputs"] == before["cells"][-1]["outputs"]
    assert [c["metadata"].get("tags") for c in after["cells"]][1:3] == [
        ["parameters"],
        ["injected-parameters"],
    ]


def test_a_change_of_code_is_not_a_change_of_words(execute, project):
    seed = cell("seed = 1", tags=["parameters"])
    execute(words("Old."), seed, cell("print(seed)"), seed=3)
    copy = project.root / "build" / "executed" / "01_one.ipynb"
    before = copy.read_bytes()
    assert not lay_words(
        project.write_chapter("01_one", words("Old."), seed, cell("print(seed + 1)")), copy
    )
    assert not lay_words(project.write_chapter("01_one", words("Old."), seed), copy)
    assert copy.read_bytes() == before
    assert not lay_words(
        project.root / "notebooks" / "01_one.ipynb", copy.with_name("absent.ipynb")
    )
