"""The graph: what a change re-runs, what it leaves alone, and what is refused before anything
runs."""

import os
import time
from dataclasses import replace

import pandas as pd
import pytest
from small_project import cell

from tools.notebooks import NotebookError, read_chapter
from tools.plan import PlanError, read_plan, refuse_empty_run, write_plan

PARAMETERS = 'run = "sample"\nseed = 1\nci_level = 0.95\nlabel = "x"  # a choice'
TWO = "chapters: [01_first, 02_second]\n"
# Stand-ins with the names that the plan looks for, so that a kernel has little to import.
WRITES = """\
from pathlib import Path
class Light:
    def write(self, table, rows):
        file = Path("../runs/sample") / f"{table}.parquet"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(rows)
Light().write("codes", str(seed))
"""
READS = """\
from pathlib import Path
class Heavy:
    def read(self, table):
        return Path(f"../runs/sample/{table}.parquet").read_text()
def open_run(name):
    return Heavy()
print(open_run(run).read("codes"))
"""


@pytest.fixture
def two(project):
    """Two chapters: the first writes a table, the second reads it."""
    for name, source in (("01_first", WRITES), ("02_second", READS)):
        project.write_chapter(
            name,
            cell("# Words", kind="markdown"),
            cell(PARAMETERS, tags=["parameters"]),
            cell(source),
        )
    project.write_parameters(TWO)
    return project


@pytest.fixture
def forking(two):
    with two.forking():
        yield two


@pytest.mark.slow
@pytest.mark.usefixtures("forking")
def test_only_what_changed_runs_again(two):
    assert two.make_notebooks() == {"01_first", "02_second"}
    assert two.make_notebooks() == set()

    words = two.root / "notebooks" / "01_first.ipynb"
    words.write_text(words.read_text().replace("# Words", "# Other words"))
    assert two.make_notebooks() == set(), "no code changed, so the outputs stand"
    assert (
        "# Other words"
        in (two.root / "build" / "executed" / "sample" / "01_first.ipynb").read_text()
    )

    words.write_text(words.read_text().replace("import Path", "import Path  # code"))
    assert two.make_notebooks() == {"01_first"}, "its table did not change, so its reader may rest"

    two.write_parameters(TWO + "01_first: {seed: 2}\n")
    assert two.make_notebooks() == {"01_first", "02_second"}, "the table changed with the seed"
    assert '"2\\n"' in (two.root / "build" / "executed" / "sample" / "02_second.ipynb").read_text()


def test_the_chapter_that_wrote_a_table_runs_again_when_somebody_removed_it(two):
    table = two.root / "runs" / "sample" / "codes.parquet"
    copies = [
        two.root / "build" / "executed" / "sample" / f"{name}.ipynb"
        for name in ("01_first", "02_second")
    ]
    for file in (table, *copies):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    plan = read_plan(two.root, "sample")
    write_plan(two.root, plan)
    assert [copy.exists() for copy in copies] == [True, True]
    table.unlink()
    write_plan(two.root, plan)
    assert [copy.exists() for copy in copies] == [False, True]


FIRST, SECOND = "code/sample/01_first.stamp", "code/sample/02_second.stamp"
STAMPS = ("code.stamp", FIRST, SECOND, "data.stamp")
DOOR, BOARD = "from heart_utils import open_run", "import heart_utils.report.leaderboard"


@pytest.mark.parametrize(
    ("file", "imported", "changed"),
    [
        ("data/more.csv", DOOR, ["data.stamp"]),
        ("data/simulated/more.parquet", DOOR, []),  # chapters draw the same without these tables
        ("data/make/official.py", DOOR, []),
        ("heart_utils/runs.py", DOOR, ["code.stamp", FIRST]),
        ("heart_utils/tables.py", DOOR, ["code.stamp", FIRST, SECOND]),  # through another
        ("heart_utils/report/commands.py", DOOR, ["code.stamp"]),  # which no chapter reaches
        ("heart_utils/__init__.py", DOOR, ["code.stamp", FIRST, SECOND]),
        ("heart_utils/report/pages/leaderboard_weights.css", BOARD, ["code.stamp", FIRST]),
    ],
)
def test_a_change_runs_the_chapters_that_reach_it(two, file, imported, changed):
    """The first chapter imports as told, the second a module that imports nothing of runs."""
    two.write_chapter("01_first", cell(PARAMETERS, tags=["parameters"]), cell(imported))
    two.write_chapter("02_second", cell("import heart_utils.tables"))
    plan = read_plan(two.root, "sample")
    write_plan(two.root, plan)
    before = {name: (two.root / "build" / name).read_bytes() for name in STAMPS}
    (two.root / file).parent.mkdir(exist_ok=True)
    (two.root / file).write_text("# another")
    write_plan(two.root, plan)
    after = {name: (two.root / "build" / name).read_bytes() for name in STAMPS}
    assert [name for name in STAMPS if after[name] != before[name]] == changed


def test_the_executed_copy_of_a_chapter_that_is_gone_goes_too(two):
    plan = read_plan(two.root, "sample")
    copies = [
        two.root / "build" / "executed" / "sample" / f"{name}.ipynb"
        for name in (plan.chapters[0].name, "99_gone")
    ]
    for copy in copies:
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text("{}")
    write_plan(two.root, plan)
    assert [copy.exists() for copy in copies] == [True, False]


def test_a_file_that_is_only_touched_changes_no_stamp(two):
    plan = read_plan(two.root, "sample")
    write_plan(two.root, plan)
    files = [path for path in (two.root / "build").rglob("*") if path.is_file()]
    times = [path.stat().st_mtime_ns for path in files]
    for path in [*two.root.glob("heart_utils/*.py"), *two.root.glob("data/*/*")]:
        os.utime(path, (time.time() + 5, time.time() + 5))
    write_plan(two.root, plan)
    assert [path.stat().st_mtime_ns for path in files] == times


def test_values_for_all_reach_only_the_notebooks_that_declare_them(two):
    two.write_chapter("02_second", cell('run = "sample"', tags=["parameters"]))
    two.write_parameters(TWO + "all: {seed: 7}\n01_first: {ci_level: 1}\n")
    assert read_plan(two.root, "sample").parameters == {
        "01_first": {"run": "sample", "seed": 7, "ci_level": 1},  # a whole number for a fraction
        "02_second": {"run": "sample"},
    }


def test_a_run_that_lists_no_chapters_has_those_of_the_sample_and_its_own_recipe(two):
    two.write_parameters("collect: {histories: heart}\nall: {seed: 3}\n", run="heart")
    plan = read_plan(two.root, "heart")
    assert [chapter.name for chapter in plan.chapters] == ["01_first", "02_second"]
    assert plan.parameters["02_second"] == {"run": "heart", "seed": 3}
    assert plan.recipe == {"histories": "heart"}


HEART = "collect: {protocols: {heart: "


@pytest.mark.parametrize(
    ("text", "written", "chosen"),
    [
        (f"{HEART}[attunement, resonance]}}}}", [], "attunement"),
        (f"{HEART}null}}}}", [], None),  # all of HEART's, overall among them
        (f"all: {{dimension: resonance}}\n{HEART}[attunement]}}}}", [], "resonance"),
        ("", [], None),
        ("", ["warmth", "tact"], "warmth"),
    ],
)
def test_a_run_without_a_dimension_overall_has_the_first_of_its_own(two, text, written, chosen):
    parameters = cell('run = "sample"\ndimension = "overall"', tags=["parameters"])
    two.write_chapter("01_first", parameters)
    two.write_parameters(f"chapters: [01_first]\n{text}\n", run="mine")
    if written:
        (two.root / "runs" / "mine").mkdir(parents=True)
        verdicts = two.root / "runs" / "mine" / "verdicts.parquet"
        pd.DataFrame({"dimension": written}).to_parquet(verdicts)
    assert read_plan(two.root, "mine").parameters["01_first"].get("dimension") == chosen


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            TWO + "01_first: {sede: 1}\n",
            "01_first has no parameter 'sede'. It has run, seed, ci_level, label",
        ),
        (TWO + "all: {sede: 1}\n", "no listed notebook has a parameter sede"),
        (
            TWO + "01_first: {seed: '7'}\n",
            "01_first.seed is '7', a str; the notebook's default 1 is a int",
        ),
        (TWO + "01_first: {seed: true}\n", "01_first.seed is True, a bool"),
        (TWO + "01_first: {run: other}\n", "`run` is the name of this file"),
        (
            TWO + "03_third: {seed: 1}\n",
            "03_third is neither `chapters`, `left_out`, `all`, `collect` nor a listed chapter",
        ),
        ("chapters: [09_absent]\n", "notebooks/09_absent.ipynb is not there"),
        ("chapters: [01_first, 02_second, 01_first]\n", "lists 01_first more than once"),
        ("all: {seed: 1}\n", "expected `chapters:`"),
        ("chapters: [\n", "is not YAML"),
        (TWO + "left_out: [03_third]\n", "expected `left_out:` with a chapter and why"),
        (
            TWO + "left_out: {02_second: No words.}\n",
            "why '02_second' is left out, and it is listed",
        ),
        (
            TWO + "left_out: {03_third: No words.}\n",
            "why '03_third' is left out, and it is no notebook",
        ),
    ],
)
def test_parameters_that_do_not_fit_are_refused(two, text, said):
    two.write_parameters(text)
    with pytest.raises(PlanError) as error:
        read_plan(two.root, "sample")
    assert said in str(error.value)


def test_a_run_without_parameters_names_those_that_have_some(two):
    with pytest.raises(PlanError, match="Runs with parameters: sample"):
        read_plan(two.root, "heart")


def test_a_chapter_says_what_it_reads_and_writes(project):
    chapter = project.write_chapter(
        "04_raters",
        cell(PARAMETERS, tags=["parameters"]),
        cell(
            'here, public = open_run(run), open_run("public")\n%time\nhere.write("verdicts", rows,'
            ' "people")'
        ),
        cell(
            'votes = public.read("verdicts")\nhere.write("scores", rows, part="likert");'
            ' here.write("ratings", rows)'
        ),
        cell(
            'handle.write("some text")\n!ls\nhere.read("responders")\nhere.read("replies",'
            ' "people"); handle.read("x")'
        ),
        cell('names = ["histories", "codes"]\ntables = [here.read(name) for name in names]'),
    )
    read = read_chapter(chapter)
    assert read.reads == ("public/verdicts", "replies/people", "responders", "codes", "histories")
    assert read.writes == ("verdicts/people", "scores/likert", "ratings")
    assert read.parameters == {"run": "sample", "seed": 1, "ci_level": 0.95, "label": "x"}


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        ([cell("seed = base + 1", tags=["parameters"])], "found `seed = base \\+ 1`"),
        (
            [cell("a = 1", tags=["parameters"]), cell("b = 1", tags=["parameters"])],
            r"cells \[1, 2\] are tagged parameters",
        ),
        ([cell("x = (")], "cell 1 is not Python"),
    ],
)
def test_a_notebook_of_another_shape_is_refused(project, cells, said):
    with pytest.raises(NotebookError, match=said):
        read_chapter(project.write_chapter("01_odd", *cells))


def test_a_run_without_votes_is_refused_before_anything_runs_with_both_ways_to_fill_it(two):
    second = cell('from heart_utils.runs import open_run\nopen_run(run).read("verdicts")')
    two.write_chapter("02_second", cell(PARAMETERS, tags=["parameters"]), second)
    empty = replace(read_plan(two.root, "sample"), run="mine")
    folder = two.root / "runs" / "mine"
    with pytest.raises(PlanError) as caught:
        refuse_empty_run(two.root, empty)
    for said in (
        f"02_second needs votes, and the run 'mine' has none: {folder} has no verdicts.parquet",
        f"open_run('{folder}').write('verdicts', load_verdicts('votes.csv'))",
        "make collect RUN=mine",
    ):
        assert said in str(caught.value)
    chapters = [replace(empty.chapters[0], reads=("verdicts",), writes=("verdicts",))]
    refuse_empty_run(two.root, replace(empty, chapters=chapters))  # they write votes themselves
    folder.mkdir(parents=True)
    (folder / "verdicts.parquet").touch()
    refuse_empty_run(two.root, empty)
