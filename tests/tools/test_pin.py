"""The numbers that the book prints, compared with those that are pinned, and the tool that does
so."""

import json

import pytest

from heart_utils.runs import find_root
from tools.pin import NotBuiltError, compare, main, read_pinned, read_printed, write_pinned

ROOT = find_root()
TABLE = (
    "<table><thead><tr><th>written by</th><th>rating</th><th>why</th></tr></thead><tbody>"
    "<tr><td>gpt-4</td><td>1,124</td><td>{sentence}</td></tr><tr><td>gpt-4</td><td>{second}</td><td>–</td></tr></tbody></table>"
)


def test_the_book_prints_the_numbers_that_are_pinned():
    try:
        printed = read_printed(ROOT)
    except NotBuiltError as error:
        pytest.skip(f"needs book: {error}")
    moved = "\n".join(map(str, compare(read_pinned(ROOT), printed)))
    assert moved == "", (
        f"if these were to move, run `make pin`, and say in the commit why they did\n{moved}"
    )


def test_every_glued_value_and_every_numbered_table_of_the_built_book_is_pinned():
    pinned = read_pinned(ROOT)
    chapters = {path.stem for path in (ROOT / "notebooks").glob("[0-9]*.ipynb")}
    assert {name.partition("/")[0] for name in pinned if "/tab-" in name} == chapters
    assert {name.partition("/")[0] for name in pinned if "/tab-" not in name} == chapters


def glued(key, value):
    return {
        "output_type": "display_data",
        "data": {"application/papermill.record/text/plain": repr(value)},
        "metadata": {"scrapbook": {"name": key, "mime_prefix": "application/papermill.record/"}},
    }


def code(*outputs, **metadata):
    return {"cell_type": "code", "source": "", "metadata": metadata, "outputs": list(outputs)}


@pytest.fixture
def build(tmp_path):
    """Lay out a project of one chapter, and build it with the values that are given."""

    def build(second="1,100", sentence="a sentence " * 6, bare="array([1. , 2.5])", **values):
        for folder in ("params", "notebooks", "book", "tests", "build/executed/sample"):
            (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / "params" / "sample.yaml").write_text("chapters: [one]")
        text = (
            "It is {glue:text}`share:.0f` %, or {glue:text}`share:.1f`, of {glue:text}`n`, by"
            " {glue:text}`best`."
        )
        words = {"cell_type": "markdown", "source": text, "metadata": {}}
        chapter = {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [words]}
        (tmp_path / "notebooks" / "one.ipynb").write_text(json.dumps(chapter))
        (tmp_path / "book" / "intro.md").write_text(
            "{glue:text}`../notebooks/one.ipynb::odds:+.3f`"
        )
        page = {"text/html": TABLE.format(second=second, sentence=sentence)}
        table = {"output_type": "execute_result", "data": page, "metadata": {}}
        values = {"share": 12.345, "n": 16, "best": "gpt-4", "odds": 0.25, "unseen": 0.123} | values
        chapter["cells"] = [
            code(*[glued(key, value) for key, value in values.items() if value is not None]),
            code(table, mystnb={"figure": {"name": "tab-ratings"}}),
            code({"output_type": "execute_result", "data": {"text/plain": bare}, "metadata": {}})
            | {"id": "scratch"},
        ]
        (tmp_path / "build" / "executed" / "sample" / "one.ipynb").write_text(json.dumps(chapter))
        return read_printed(tmp_path)

    build.root = tmp_path
    return build


def changes(build, **values):
    pinned = {name: number.text for name, number in build().items()}
    return [str(moved) for moved in compare(pinned, build(**values))]


def test_a_value_is_pinned_as_the_page_with_most_digits_prints_it(build):
    assert {name: number.text for name, number in build().items()} == {
        "one/share": "12.3",
        "one/n": "16",
        "one/best": "gpt-4",
        "one/odds": "+0.250",
        "one/unseen": "0.12",
        "one/tab-ratings/gpt-4/rating": "1,124",
        "one/tab-ratings/gpt-4 (2)/rating": "1,100",
        "one/tab-ratings/gpt-4 (2)/why": "–",
        "one/shown by the cell scratch": "array([1. , 2.5])",
    }
    assert (
        build(bare="np.float64(43.06765580733931)")["one/shown by the cell scratch"].text
        == "43.06765581"
    )


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"n": 0}, "one/n: 16 -> 0"),
        ({"share": 12.41}, "one/share: 12.3 -> 12.4"),
        ({"share": float("nan")}, "one/share: 12.3 is gone"),
        ({"best": "claude-v1"}, "one/best: gpt-4 -> claude-v1"),
        ({"odds": -0.25}, "one/odds: +0.250 -> -0.250"),
        ({"odds": None}, "one/odds: +0.250 is gone"),
        ({"more": 3}, "one/more: 3 is new"),
        ({"second": "1,101"}, "one/tab-ratings/gpt-4 (2)/rating: 1,100 -> 1,101"),
        (
            {"bare": "array([1. , 2. ])"},
            "one/shown by the cell scratch: array([1. , 2.5]) -> array([1. , 2. ])",
        ),
        ({"sentence": "holds"}, "one/tab-ratings/gpt-4/why: holds is new"),
    ],
)
def test_what_moves_appears_or_vanishes_is_told_with_old_and_new(build, values, told):
    assert changes(build, **values) == [told]


@pytest.mark.parametrize("share", [12.26, 12.3499, 12.25 - 1e-12, 12.35 + 1e-12])
def test_what_no_page_prints_of_a_number_may_move_and_the_edge_of_two_roundings_is_either(
    build, share
):
    assert changes(build, share=share) == []


def test_a_number_on_the_edge_of_two_roundings_keeps_the_line_it_has(build):
    write_pinned(build.root, build(share=12.35 - 1e-12))
    moved = write_pinned(build.root, build(share=12.35 + 1e-12, n=17))
    assert [change.name for change in moved] == ["one/n"]
    assert read_pinned(build.root)["one/share"] == "12.3"


def test_the_command_says_what_moved_and_that_nothing_did(build, monkeypatch, capsys):
    monkeypatch.setattr("tools.pin.find_root", lambda: build.root)
    for values in ({}, {"n": 17}, {"n": 17}):
        build(**values)
        main()
    said = capsys.readouterr().out
    assert "one/n: 16 -> 17" in said
    assert said.splitlines()[-1].startswith("0 of 9 printed values moved")


def test_a_book_that_is_not_built_is_told_with_the_command_that_builds_it(build, monkeypatch):
    build()
    (build.root / "build" / "executed" / "sample" / "one.ipynb").unlink()
    with pytest.raises(NotBuiltError, match=r"one not in .*make book"):
        read_printed(build.root)
    monkeypatch.setattr("tools.pin.find_root", lambda: build.root)
    with pytest.raises(SystemExit, match="make book"):
        main()
