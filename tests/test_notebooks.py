"""Every chapter, as it is committed: its shape, its parameters, its figures, and the tables it names."""

import ast

import pytest
import yaml

from heart_utils.runs import find_root
from heart_utils.tables import TABLES
from tools.check_notebooks import find_faults
from tools.notebooks import read_cells, read_chapter
from tools.plan import read_plan

ROOT = find_root()
CHAPTERS = sorted((ROOT / "notebooks").glob("*.ipynb"))
RUNS = sorted(path.stem for path in (ROOT / "params").glob("*.yaml"))


@pytest.fixture(params=CHAPTERS, ids=lambda path: path.stem)
def chapter(request):
    return request.param


def test_there_are_chapters():
    assert CHAPTERS


def test_a_committed_notebook_holds_no_output(chapter):
    assert find_faults(chapter) == []


def test_outputs_and_run_counts_are_found(tmp_path):
    dirty = (
        '{"cells": [{"cell_type": "code", "source": "1", "metadata": {}, "outputs": [{}], "execution_count": null},'
        '{"cell_type": "code", "source": "1", "metadata": {}, "outputs": [], "execution_count": 3},'
        '{"cell_type": "code", "source": "1", "metadata": {}, "outputs": [], "execution_count": null}]}'
    )
    (tmp_path / "x.ipynb").write_text(dirty)
    assert [fault.split(": ")[1].split(" holds")[0] for fault in find_faults(tmp_path / "x.ipynb")] == ["cell 1", "cell 2"]


def test_a_chapter_opens_with_a_label_and_a_question(chapter):
    first = read_cells(chapter)[0]
    assert first["cell_type"] == "markdown"
    label, title = first["source"].splitlines()[:2]
    assert label.startswith("(")
    assert label.endswith(")=")
    assert title.startswith("# ")
    assert title.endswith("?")


def test_a_chapter_declares_the_run_and_runs_offline_from_its_defaults(chapter):
    assert read_chapter(chapter).parameters["run"] == "sample"


def test_a_chapter_says_what_it_rests_on_and_reads_no_other_table(chapter):
    code = [cell["source"] for cell in read_cells(chapter) if cell["cell_type"] == "code"]
    assert any("show_banner(" in source for source in code)
    known = {
        table.split("/")[-1] if table.split("/")[0] not in TABLES else table.split("/")[0]
        for table in read_chapter(chapter).reads
    }
    known |= {table.split("/")[1] for table in read_chapter(chapter).reads if table.count("/") == 2}
    known |= {table.split("/")[0] for table in read_chapter(chapter).writes}
    calls = [node for source in code for node in ast.walk(_parse(source)) if isinstance(node, ast.Call)]
    read = {
        call.args[0].value
        for call in calls
        if isinstance(call.func, ast.Attribute)
        and call.func.attr == "read"
        and call.args
        and isinstance(call.args[0], ast.Constant)
    }
    assert read & set(TABLES) <= known, "show_banner(run, tables=[...]) must name them: the banner and `make` go by it"


def test_a_figure_has_a_name_a_caption_and_words_for_those_who_cannot_see_it(chapter):
    for cell in read_cells(chapter):
        said = cell["metadata"].get("mystnb", {})
        if "figure" in said:
            assert said["figure"]["name"]
            assert said["figure"]["caption"].rstrip().endswith(".")
            assert len(said["image"]["alt"].split()) >= 5


def test_the_kernel_is_the_one_that_every_environment_has(chapter):
    import json

    assert json.loads(chapter.read_text())["metadata"]["kernelspec"]["name"] == "python3"


@pytest.mark.parametrize("run", RUNS)
def test_the_parameters_of_each_run_fit_its_chapters(run):
    assert read_plan(ROOT, run).run == run


def test_the_book_has_a_page_for_each_chapter_of_the_sample_run():
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text())
    pages = [
        page["file"].removeprefix("notebooks/")
        for part in toc["parts"]
        for page in part["chapters"]
        if "notebooks/" in page["file"]
    ]
    assert pages == [chapter.name for chapter in read_plan(ROOT, "sample").chapters if chapter.name != "regression_gate"]


def _parse(source):
    return ast.parse("\n".join("pass" if line.startswith(("%", "!")) else line for line in source.splitlines()))
