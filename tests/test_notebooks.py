"""Every chapter, as it is committed: its shape, its parameters, its figures, and the tables it
names."""

import importlib
import json
import re

import pytest
import yaml

from heart_utils.runs import find_root
from tools.check_notebooks import find_faults
from tools.flow import Flow
from tools.measure_book import reading_minutes
from tools.notebooks import parse_cell, read_cells, read_chapter
from tools.plan import read_plan

ROOT = find_root()
CHAPTERS = sorted((ROOT / "notebooks").glob("*.ipynb"))
RUNS = sorted(path.stem for path in (ROOT / "params").glob("*.yaml"))
NO_PAGE = {"regression_gate", "audit"}


@pytest.fixture(params=CHAPTERS, ids=lambda path: path.stem)
def chapter(request):
    return request.param


def test_outputs_and_run_counts_are_found(tmp_path):
    dirty = (
        '{"cells": [{"cell_type": "code", "source": "1", "metadata": {}, "outputs": [{}],'
        ' "execution_count": null},{"cell_type": "code", "source": "1", "metadata": {}, "outputs":'
        ' [], "execution_count": 3},{"cell_type": "code", "source": "1", "metadata": {}, "outputs":'
        ' [], "execution_count": null}]}'
    )
    (tmp_path / "x.ipynb").write_text(dirty)
    assert [
        fault.split(": ")[1].split(" holds")[0] for fault in find_faults(tmp_path / "x.ipynb")
    ] == ["cell 1", "cell 2"]


def test_a_chapter_opens_with_a_label_and_a_question_and_runs_offline_as_it_is(chapter):
    label, title = read_cells(chapter)[0]["source"].splitlines()[:2]
    assert re.fullmatch(r"\(.+\)=", label)
    assert re.fullmatch(r"# .+\?", title)
    assert read_chapter(chapter).parameters["run"] == "sample"
    assert json.loads(chapter.read_text())["metadata"]["kernelspec"]["name"] == "python3"


def test_no_title_of_a_chapter_or_section_stands_as_a_noun_where_it_has_a_number():
    """Nobody can read "In What a label does recipients felt less heard"; a number takes the place
    of the title."""
    words = {path.stem: "\n\n".join(_prose(cell) for cell in read_cells(path)) for path in CHAPTERS}
    headed_in = {
        chapter: re.findall(r"^\(([\w-]+)\)=\n(?=\(|#)", text, flags=re.MULTILINE)
        for chapter, text in words.items()
    }
    assert all(headed_in.values())
    headed = {label for labels in headed_in.values() for label in labels}
    words |= {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "book").rglob("*.md")}
    bare = {
        (page, label)
        for page, text in words.items()
        for label in re.findall(r"\{ref\}`([^`<]+)`", text)
        if label in headed
    }
    assert bare == set()


def _prose(cell):
    if cell["cell_type"] == "markdown":
        return cell["source"]
    return cell["metadata"].get("mystnb", {}).get("figure", {}).get("caption", "")


# They define something or are made by hand, so there is nothing that they rest on.
NO_DATA = {
    "tab-codebook", "tab-cut", "tab-esconv-columns", "tab-four-studies", "tab-hb-toy", "tab-heart-agreement", "tab-heart-study", "tab-panel", "tab-probes", "tab-rewrites-toy", "tab-rubric",
}  # fmt: skip


def test_what_each_figure_and_table_rests_on_is_known(chapter):
    flow, unknown = Flow(), set()
    for number, cell in enumerate(read_cells(chapter)):
        if cell["cell_type"] == "code":
            sources = flow.follow(parse_cell(chapter, number, cell))
            if (figure := cell["metadata"].get("mystnb", {}).get("figure")) and not sources:
                unknown.add(figure["name"])
    assert unknown <= NO_DATA, (
        "nothing says what they rest on, so they get no chip: tools/flow.py must know what reads it"
    )


def numbered(chapter):
    """Return source, figure and image of each cell that has a number, and the sources of others."""
    shown, others = [], []
    for cell in read_cells(chapter):
        words = cell["metadata"].get("mystnb", {})
        if "figure" in words:
            shown.append((cell["source"], words["figure"], words.get("image", {})))
        elif cell["cell_type"] == "code":
            others.append(cell["source"])
    return shown, others


ABSENT = r"load_(histories|heart)\(|esconv is (not )?None|is not here"


def test_a_figure_or_table_has_a_name_and_a_caption_over_data_that_every_reader_has(chapter):
    """A cell with a number records nothing: each of its outputs would become a figure. Where a
    licence keeps data back, a page would state a finding over an empty frame."""
    shown, others = numbered(chapter)
    for source, figure, _ in shown:
        assert figure["name"].startswith(("fig-", "tab-"))
        assert figure["caption"].rstrip().endswith(".")
        assert "record_results(" not in source
        assert not re.search(ABSENT, source)
    assert [one for one in others if one.splitlines()[-1].startswith("show_table(")] == []


def test_the_list_at_the_end_names_each_work_that_a_chapter_cites_and_no_other():
    lists = 0
    for path in CHAPTERS:
        words = [cell["source"] for cell in read_cells(path) if cell["cell_type"] == "markdown"]
        for closing in (
            text
            for text in words
            if text.startswith("## References and versions") and "{cite:t}" in text
        ):
            others = "\n".join(text for text in words if text != closing)
            named, cited = (
                {
                    key
                    for keys in re.findall(r"\{cite(?::\w+)?\}`([^`]+)`", text)
                    for key in keys.split(",")
                }
                for text in (closing, others)
            )
            assert named == cited, path.name
            lists += 1
    assert lists >= 6


# Words with which something is found: what lies where, who leads, how many.
FINDS = re.compile(
    r"\b(no|none|only|both|all|every|each|several|most\w*|more|fewer|fewest|less|above|below|near|close|far|flat|apart|overlap\w*"
    r"|leads?|falls?|lies?|first|last|highest|lowest|wide\w*|ahead|between|outermost|jumps|sits?)\b"
)
ASIDE = re.compile(r"the sentences? after|absent|a frame|no model coded|no figure", re.IGNORECASE)


PICTURE = re.compile(r"(an? |the )?(figure|image|picture|plot|chart|graph)\b", re.IGNORECASE)


def test_words_in_place_of_a_figure_begin_with_what_is_drawn_and_go_on_to_what_is_found(chapter):
    for _, figure, image in numbered(chapter)[0]:
        alt = image.get("alt", "")
        assert figure["name"].startswith("tab-") or len(alt.split()) >= 5
        assert not PICTURE.match(alt)
        _, *found = [part for part in re.split(r"(?<=[;:.,]) ", alt) if not ASIDE.search(part)]
        assert not alt or any(FINDS.search(part) for part in found), alt


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
    assert pages == [
        chapter.name
        for chapter in read_plan(ROOT, "sample").chapters
        if chapter.name not in NO_PAGE
    ]


def test_the_reading_time_of_a_chapter_is_that_of_its_words_and_of_its_code(chapter):
    """At 200 words a minute and two seconds a line, to within a minute."""
    told = r"\*\*Reading time\*\* (\d+) minutes, with the code (\d+)\."
    stated = re.findall(told, read_cells(chapter)[0]["source"])
    assert bool(stated) == (chapter.stem not in NO_PAGE)
    for minutes in stated:
        assert [*map(int, minutes)] == pytest.approx(list(reading_minutes(chapter)), abs=1)


def test_code_in_the_words_of_a_chapter_imports_what_is_there(chapter):
    words = "\n".join(
        cell["source"] for cell in read_cells(chapter) if cell["cell_type"] == "markdown"
    )
    for module, names in re.findall(r"^from (heart_\w+[\w.]*) import ([\w, ]+)$", words, re.M):
        offered = dir(importlib.import_module(module))
        assert set(names.split(", ")) <= {*offered}
