"""One executed notebook as a page: its numbers are in its sentences."""

import json

import pytest
from small_project import cell, write_notebook

from tools.page import fill_in, make_page

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
