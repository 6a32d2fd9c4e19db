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
@pytest.mark.parametrize(
    ("chapter", "name", "value"),
    [
        ("05_who_is_preferred", "attribute", "safety"),
        ("09_scores_and_weights", "attribute", "safety"),
        ("08_does_it_scale", "attribute", "guidance"),
    ],
)
def test_no_caption_of_a_chapter_claims_for_other_values_what_it_found_for_its_own(
    tmp_path, chapter, name, value
):
    if not (ROOT / "build" / "executed" / "sample" / f"{chapter}.ipynb").is_file():
        pytest.skip("needs book: run `make book`")
    copies = {}
    for given, count in ((value, "20"), (None, "20")):
        copy = tmp_path / str(given) / f"{chapter}.ipynb"
        copy.parent.mkdir()
        words = ["-m", "papermill", "--no-progress-bar", "--cwd", "notebooks"]
        words += [f"notebooks/{chapter}.ipynb", str(copy), "-p", "n_resamples", count]
        words += ["-p", name, given] if given else []
        subprocess.run([sys.executable, *words], cwd=ROOT, check=True, capture_output=True)
        staged = tmp_path / str(given) / "stage" / "notebooks" / copy.name
        staged.parent.mkdir(parents=True)
        _stage_copy(copy, staged, open_run("sample"), absent_sets())
        copies[given] = read_cells(staged)
    captions = {
        given: [
            part["caption"]
            for one in cells
            for part in one["metadata"].get("mystnb", {}).values()
            if isinstance(part, dict) and "caption" in part
        ]
        for given, cells in copies.items()
    }
    doubt = f"`{name}` is {value!r} here"
    assert len(captions[value]) > 3
    assert [caption for caption in captions[value] if doubt not in caption] == []
    assert not any("may not hold" in caption for caption in captions[None])
    assert doubt in json.dumps(copies[value][0]["source"])
