"""One executed notebook as a page, what it says of other values, and sections that a run leaves empty."""

import json
import subprocess
import sys

import pytest
from small_project import cell, write_notebook

from heart_utils.runs import find_root, open_run
from tools.governance import absent_sets
from tools.notebooks import read_cells, say_other_values
from tools.page import fill_in, make_page
from tools.stage import _stage_copy
from tools.your_run import move_empty_sections

RECORD = {
    "data": {"application/papermill.record/text/plain": "0.12345"},
    "metadata": {"scrapbook": {"name": "share"}},
}


@pytest.fixture
def executed(tmp_path):
    words = (
        "(what)=\n# What?\n\n{glue:text}`share:.2f` of {ref}`pairs <the-pairs>`, {measured}`Yin`"
        " {cite:p}`yin2024heard`."
    )
    ran = cell("1 + 1")
    ran["outputs"] = [
        {**RECORD, "output_type": "display_data"},
        {
            "output_type": "execute_result",
            "execution_count": 1,
            "data": {"text/plain": "'shown'"},
            "metadata": {},
        },
    ]
    return write_notebook(tmp_path / "mine.ipynb", cell(words, kind="markdown"), ran)


def test_the_page_and_the_notebook_show_numbers_and_no_role(executed, tmp_path):
    page, notebook = make_page(executed, tmp_path / "out")
    said = "".join(json.loads(notebook.read_text())["cells"][0]["source"])
    assert said == "# What?\n\n0.12 of pairs, [measured: Yin] (yin2024heard)."
    html = page.read_text()
    assert "0.12 of pairs, [measured: Yin]" in html
    assert "shown" in html
    assert "{glue" not in html


def test_what_another_chapter_recorded_is_there_where_it_is_at_hand():
    words = "{glue:text}`../notebooks/03_x.ipynb::n:d` and {math}`x_1`"
    assert fill_in(words, {"n": 3}) == "(in the book) and $x_1$"
    assert fill_in(words, {"03_x::n": 1}) == "1 and $x_1$"


def test_folds_and_boxes_can_be_read_without_the_book():
    words = "````{dropdown} Solution\n```python\nx = 1\n```\nOne.\n````\n\n```{note}\nLook.\n```"
    assert fill_in(words, {}) == (
        "<details><summary>Solution</summary>\n\n```python\nx = 1\n```\nOne.\n\n</details>\n\n"
        "> **Note**\n>\n> Look."
    )


def test_a_number_of_a_chapter_is_in_the_book_alone_and_its_label_stands_in_its_place():
    assert (
        fill_in("as {numref}`chapter %s <who-is-preferred>` says", {})
        == "as chapter *who is preferred* says"
    )


def test_a_notebook_that_was_not_run_is_told(tmp_path):
    with pytest.raises(ValueError, match="has no outputs. Run it first: papermill"):
        make_page(write_notebook(tmp_path / "mine.ipynb", cell("1")), tmp_path)
    with pytest.raises(ValueError, match="is not a notebook"):
        make_page(tmp_path / "none.ipynb", tmp_path)


ROOT = find_root()


def ran_with(**values):
    given = "\n".join(f"{name} = {value!r}" for name, value in values.items())
    return [
        {**cell("(q)=\n# Who?\n\n**She leads.**", kind="markdown"), "metadata": {}},
        {
            **cell("attribute = 'empathy'\nn_resamples = 1_000"),
            "metadata": {"tags": ["parameters"]},
        },
        {**cell(given), "metadata": {"tags": ["injected-parameters"]}},
    ]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"attribute": "safety"}, "`attribute` is 'safety' here, and was 'empathy'"),
        ({"attribute": "empathy", "n_resamples": 20, "seed": 3, "run": "mine"}, ""),
        ({}, ""),
    ],
)
def test_other_values_are_told_and_other_counts_and_runs_are_none(values, said):
    assert said in say_other_values(ran_with(**values))
    assert bool(say_other_values(ran_with(**values))) == bool(said)


def test_a_page_of_ones_own_says_it_below_the_title(tmp_path):
    cells = ran_with(attribute="safety")
    cells[1]["outputs"] = [
        {"output_type": "stream", "name": "stdout", "text": ["x"]},
    ]
    page, _ = make_page(write_notebook(tmp_path / "mine.ipynb", *cells), tmp_path / "out")
    text = page.read_text(encoding="utf-8")
    assert "may not hold" in text
    assert text.index("may not hold") < text.index("She leads.")


@pytest.mark.slow
def test_no_caption_of_a_chapter_claims_for_other_values_what_it_found_for_its_own(tmp_path):
    own = ROOT / "build" / "executed" / "sample" / "05_who_is_preferred.ipynb"
    if not own.is_file():
        pytest.skip("needs book: run `make book`")
    other = tmp_path / own.name
    words = ["-m", "papermill", "--no-progress-bar", "--cwd", "notebooks", f"notebooks/{own.name}"]
    words += [other, "-p", "n_resamples", "20", "-p", "attribute", "safety"]
    subprocess.run([sys.executable, *words], cwd=ROOT, check=True, capture_output=True)
    doubt, captions = "`attribute` is 'safety' here", {}
    for copy in (own, other):
        _stage_copy(copy, tmp_path / "staged.ipynb", open_run("sample"), absent_sets())
        cells = read_cells(tmp_path / "staged.ipynb")
        figures = [one["metadata"].get("mystnb", {}).get("figure", {}) for one in cells]
        captions[copy] = [figure["caption"] for figure in figures if figure]
        assert (doubt in json.dumps(cells[0]["source"])) == (copy == other)
    assert len(captions[other]) > 3
    assert [caption for caption in captions[other] if doubt not in caption] == []
    assert not any("may not hold" in caption for caption in captions[own])


HEADED = "(mine)=\n## Your raters\n\nWhat they said."


def shown(kind):
    filled = cell("show()")
    filled["outputs"] = [{"output_type": "display_data", "data": {kind: "x"}, "metadata": {}}]
    return filled


def test_a_section_without_a_result_comes_back_as_prose_and_the_rest_stays():
    opening = cell("# Who?", kind="markdown")
    heading = cell(f"The end.\n\n{HEADED}", kind="markdown", tags=["your-run"])
    after = cell("## Limits", kind="markdown")
    kept, moved = move_empty_sections([opening, heading, shown("text/markdown"), after])
    assert [part["source"] for part in kept] == ["# Who?", "The end.", "## Limits"]
    assert moved.strip().startswith(HEADED)
    assert "```python\nshow()\n```" in moved


@pytest.mark.parametrize("kind", ["text/html", "image/svg+xml"])
def test_a_section_with_a_table_or_a_figure_stays_and_one_that_is_not_tagged(kind):
    tagged = [cell(HEADED, kind="markdown", tags=["your-run"]), cell("load()"), shown(kind)]
    plain = [cell(HEADED, kind="markdown"), cell("load()")]
    for cells in (tagged, plain):
        assert move_empty_sections(cells) == (cells, "")


def test_a_tag_on_a_cell_without_a_heading_is_a_fault():
    with pytest.raises(ValueError, match="opens no section: 'only words'"):
        move_empty_sections([cell("only words", kind="markdown", tags=["your-run"])])
