"""A chapter that ran with other values says that its findings were written for its own."""

import json
import subprocess
import sys

import pytest
from small_project import cell, write_notebook

from heart_utils.runs import find_root, open_run
from tools.governance import absent_sets
from tools.notebooks import read_cells, say_other_values
from tools.page import make_page
from tools.stage import _stage_copy

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
