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


def stamps_changed(two, file, text):
    """Plan, write a file, plan again; name the stamps that differ."""
    plan = read_plan(two.root, "sample")
    names = (
        "code.stamp",
        "code/sample/01_first.stamp",
        "code/sample/02_second.stamp",
        "data.stamp",
    )
    write_plan(two.root, plan)
    before = {name: (two.root / "build" / name).read_bytes() for name in names}
    (two.root / file).write_text(text)
    write_plan(two.root, plan)
    return [name for name in names if (two.root / "build" / name).read_bytes() != before[name]]


@pytest.fixture
def reaching(two):
    """The first chapter imports the runs by the package's front door, the second a module that
    imports nothing of them."""
    two.write_chapter(
        "01_first", cell(PARAMETERS, tags=["parameters"]), cell("from heart_utils import open_run")
    )
    two.write_chapter("02_second", cell("import heart_utils.tables"))
    return two


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


def test_a_change_of_the_data_runs_everything(two):
    assert stamps_changed(two, "data/more.csv", "a,b\n") == ["data.stamp"]


def test_tables_of_simulations_run_nothing_since_chapters_draw_the_same_without_them(two):
    (two.root / "data" / "simulated").mkdir(exist_ok=True)
    assert stamps_changed(two, "data/simulated/more.parquet", "") == []


def test_a_change_of_a_module_runs_the_chapters_that_import_it(reaching):
    assert stamps_changed(reaching, "heart_utils/runs.py", "# another") == [
        "code.stamp",
        "code/sample/01_first.stamp",
    ]


def test_a_change_of_a_module_runs_the_chapters_that_reach_it_through_another(reaching):
    changed = stamps_changed(reaching, "heart_utils/tables.py", "# another")
    assert changed == ["code.stamp", "code/sample/01_first.stamp", "code/sample/02_second.stamp"]


def test_a_change_of_a_module_that_no_chapter_reaches_runs_none(reaching):
    assert stamps_changed(reaching, "heart_utils/report/commands.py", "# another") == ["code.stamp"]


def test_a_change_of_a_page_runs_the_chapters_that_fill_it(two):
    two.write_chapter(
        "01_first",
        cell(PARAMETERS, tags=["parameters"]),
        cell("import heart_utils.report.leaderboard"),
    )
    changed = stamps_changed(
        two, "heart_utils/report/pages/leaderboard_weights.css", "p { margin: 0 }"
    )
    assert changed == ["code.stamp", "code/sample/01_first.stamp"]


def test_a_change_of_the_package_itself_runs_whoever_imports_from_it(reaching):
    changed = stamps_changed(reaching, "heart_utils/__init__.py", "# another")
    assert changed == ["code.stamp", "code/sample/01_first.stamp", "code/sample/02_second.stamp"]


def test_what_derives_the_data_runs_no_chapter(reaching):
    assert stamps_changed(reaching, "data/make/official.py", "# another") == []


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
    two.write_parameters(TWO + "all: {seed: 7}\n")
    assert read_plan(two.root, "sample").parameters == {
        "01_first": {"run": "sample", "seed": 7},
        "02_second": {"run": "sample"},
    }


def test_a_run_that_lists_no_chapters_has_those_of_the_sample_and_its_own_recipe(two):
    two.write_parameters("collect: {histories: heart}\nall: {seed: 3}\n", run="heart")
    plan = read_plan(two.root, "heart")
    assert [chapter.name for chapter in plan.chapters] == ["01_first", "02_second"]
    assert plan.parameters["02_second"] == {"run": "heart", "seed": 3}
    assert plan.recipe == {"histories": "heart"}


def test_a_run_without_a_dimension_overall_has_the_first_of_its_own(two):
    two.write_chapter(
        "01_first", cell('run = "sample"\ndimension = "overall"', tags=["parameters"])
    )

    def chosen(run="mine"):
        return read_plan(two.root, run).parameters["01_first"].get("dimension")

    two.write_parameters(
        "chapters: [01_first]\ncollect: {protocols: {heart: [attunement, resonance]}}\n", run="mine"
    )
    assert chosen() == "attunement"
    two.write_parameters("chapters: [01_first]\ncollect: {protocols: {heart: null}}\n", run="mine")
    assert chosen() is None  # all of HEART's, overall among them
    two.write_parameters(
        "chapters: [01_first]\nall: {dimension: resonance}\ncollect: {protocols: {heart:"
        " [attunement]}}\n",
        run="mine",
    )
    assert chosen() == "resonance"
    two.write_parameters("chapters: [01_first]\n", run="votes")
    assert chosen("votes") is None
    (two.root / "runs" / "votes").mkdir(parents=True)
    pd.DataFrame({"dimension": ["warmth", "tact"]}).to_parquet(
        two.root / "runs" / "votes" / "verdicts.parquet"
    )
    assert chosen("votes") == "warmth"


def test_a_whole_number_may_stand_for_a_fraction(two):
    two.write_parameters(TWO + "01_first: {ci_level: 1}\n")
    assert read_plan(two.root, "sample").parameters["01_first"]["ci_level"] == 1


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
    two.write_chapter(
        "02_second",
        cell(PARAMETERS, tags=["parameters"]),
        cell('from heart_utils.runs import open_run\nopen_run(run).read("verdicts")'),
    )
    plan = read_plan(two.root, "sample")
    empty = replace(plan, run="mine")
    with pytest.raises(PlanError) as caught:
        refuse_empty_run(two.root, empty)
    folder = two.root / "runs" / "mine"
    assert (
        f"02_second needs votes, and the run 'mine' has none: {folder} has no verdicts.parquet"
        in str(caught.value)
    )
    assert f"open_run('{folder}').write('verdicts', load_verdicts('votes.csv'))" in str(
        caught.value
    )
    assert "make collect RUN=mine" in str(caught.value)
    folder.mkdir(parents=True)
    (folder / "verdicts.parquet").touch()
    refuse_empty_run(two.root, empty)


def test_a_run_whose_chapters_write_the_votes_themselves_is_not_refused(two):
    plan = read_plan(two.root, "sample")
    chapters = [replace(plan.chapters[0], reads=("verdicts",), writes=("verdicts",))]
    refuse_empty_run(two.root, replace(plan, run="mine", chapters=chapters))
