"""What is laid out for the book: the chapters that ran, and the functions there are."""

import json
import shutil
import subprocess
from dataclasses import replace

import pytest
from small_project import cell, write_notebook

from heart_utils.runs import find_root
from tools.absent import page_without
from tools.build_html import build_html
from tools.figure import read_figure
from tools.notebooks import NotebookError
from tools.plan import read_plan
from tools.stage import FRONT_FIGURE, OWN_FIGURE, _without_sample, stage_book

DRAWN = '<svg xmlns="http://www.w3.org/2000/svg" width="9pt" height="9pt"/>'


def drawing(name="fig-attribute-board"):
    words = {
        "figure": {"name": name, "caption": "Two overlap."},
        "image": {"alt": "Two bars that overlap."},
    }
    drawn = cell("plot(study)", mystnb=words)
    drawn["outputs"] = [
        {"output_type": "display_data", "data": {"image/svg+xml": [DRAWN]}, "metadata": {}}
    ]
    return drawn


def test_a_figure_comes_with_its_words(tmp_path):
    figure = read_figure(
        write_notebook(tmp_path / "x.ipynb", cell("1"), drawing()), "fig-attribute-board"
    )
    assert (figure.svg, figure.alt, figure.caption) == (
        DRAWN.encode(),
        "Two bars that overlap.",
        "Two overlap.",
    )


def test_a_figure_that_is_not_there_is_told_with_those_that_are(tmp_path):
    with pytest.raises(NotebookError, match="no figure 'fig-other'. It has fig-attribute-board"):
        read_figure(write_notebook(tmp_path / "x.ipynb", drawing()), "fig-other")


@pytest.fixture
def staged(project, monkeypatch):
    """A book of one page of prose and one chapter that has run."""
    monkeypatch.setattr(
        "tools.stage.FRONT_FIGURE", ("notebooks/05_who_is_preferred.ipynb", FRONT_FIGURE[1])
    )
    project.write_chapter("05_who_is_preferred", cell("1"))
    project.write_parameters("chapters: [05_who_is_preferred]\n")
    study = cell("study = simulate_study()")
    study["outputs"] = [
        {"output_type": "display_data", "data": {"text/plain": "x"}, "metadata": {}}
    ]
    copy = project.root / "build" / "executed" / "sample" / "05_who_is_preferred.ipynb"
    write_notebook(copy, cell("(q)=\n# Who?", kind="markdown"), study, drawing(FRONT_FIGURE[1]))
    (project.root / "book" / "intro.md").write_text("# Front\n\n```{include} front.txt\n```\n")
    (project.root / "_toc.yml").write_text(
        "format: jb-book\nroot: book/intro\nparts:\n- chapters: [{file:"
        " notebooks/05_who_is_preferred}, {file: notebooks/06_not_run}]\n"
    )
    (project.root / "_config.yml").write_text(
        "only_build_toc_files: true\nexecute: {execute_notebooks: 'off'}\nparse:"
        " {myst_enable_extensions: [colon_fence]}\nsphinx: {recursive_update: true,"
        " local_extensions: {heart_book: book/extensions}, config: {html_theme_options: {}}}\n"
    )
    shutil.copytree(find_root() / "book" / "extensions", project.root / "book" / "extensions")
    return project


def test_the_executed_copy_takes_the_place_of_the_source_and_only_what_ran_has_a_page(staged):
    stage = stage_book(staged.root, read_plan(staged.root, "sample"))
    assert json.loads((stage / "notebooks" / "05_who_is_preferred.ipynb").read_text())["cells"][1][
        "outputs"
    ]
    assert "06_not_run" not in (stage / "_toc.yml").read_text()
    assert "{simulated}`-`" in (stage / "book" / "front.txt").read_text()
    assert ":alt: Two bars that overlap." in (stage / "book" / "front.txt").read_text()


@pytest.mark.parametrize(("chosen", "said"), [("overall", False), ("warmth", True)])
def test_the_front_page_of_a_run_says_which_dimension_it_shows(staged, chosen, said):
    staged.write_parameters("chapters: [05_who_is_preferred]\n", run="mine")
    copy = staged.root / "build" / "executed" / "mine" / "05_who_is_preferred.ipynb"
    write_notebook(copy, cell("# Who?", kind="markdown"), drawing(OWN_FIGURE[1]))
    plan = read_plan(staged.root, "mine")
    stage = stage_book(
        staged.root, replace(plan, parameters={"05_who_is_preferred": {"dimension": chosen}})
    )
    front = (stage / "book" / "intro.md").read_text()
    assert (
        "It is about `warmth`: `overall` is shown where a run has it, else its first dimension"
        in front
    ) == said


CAPTIONS = {
    "The run's own board. In the run `sample` all are alike.": "The run's own board.",
    "Dots with bars; in the run sample one was timed, and more. Rows are authors.": (
        "Dots with bars. Rows are authors."
    ),
    "Rows are authors.": "Rows are authors.",
}


def test_captions_of_another_run_say_nothing_of_the_sample(staged):
    figures = [
        {"figure": {"caption": said, "name": f"fig-{place}"}, "image": {"alt": said}}
        for place, said in enumerate(CAPTIONS)
    ]
    for run, kept in (("sample", CAPTIONS.keys()), ("mine", CAPTIONS.values())):
        staged.write_parameters("chapters: [05_who_is_preferred]\n", run=run)
        copy = staged.root / "build" / "executed" / run / "05_who_is_preferred.ipynb"
        front = OWN_FIGURE[1] if run == "mine" else FRONT_FIGURE[1]
        drawn = [cell(str(place), mystnb=figure) for place, figure in enumerate(figures)]
        write_notebook(copy, cell("# Who?", kind="markdown"), drawing(front), *drawn)
        stage = stage_book(staged.root, read_plan(staged.root, run))
        cells = json.loads((stage / "notebooks" / copy.name).read_text())["cells"][-3:]
        shown = [part["metadata"]["mystnb"] for part in cells]
        assert [part["figure"]["caption"] for part in shown] == list(kept)
        assert [part["image"]["alt"] for part in shown] == list(kept)


def test_no_caption_speaks_of_the_sample_alone():
    """What is left of each for the book of another run says what the figure shows."""
    for path in sorted((find_root() / "notebooks").glob("[0-9]*.ipynb")):
        for part in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            words = part["metadata"].get("mystnb", {})
            captions = [words.get("figure", {}).get("caption"), words.get("image", {}).get("alt")]
            assert [
                caption for caption in captions if caption and not _without_sample(caption)
            ] == [], path.name


def test_the_book_of_another_run_opens_with_its_own_leaderboard_and_says_nothing_of_other_data(
    staged,
):
    staged.write_parameters("chapters: [05_who_is_preferred]\n", run="mine")
    copy = staged.root / "build" / "executed" / "mine" / "05_who_is_preferred.ipynb"
    words = (
        "(q)=\n# Who?",
        "Before.",
        "(the-votes)=\n## The votes",
        "It goes on.\n\n(this-runs-board)=\n## Own",
        "(z)=\n## Last",
    )
    cells = [cell(said, kind="markdown") for said in words]
    write_notebook(copy, *cells[:4], drawing(OWN_FIGURE[1]), cells[4])
    (staged.root / "book" / "intro.md").write_text(
        "(front-page)=\n# Front\n\n{glue:text}`../notebooks/01_not_run.ipynb::n:s`\n"
    )
    stage = stage_book(staged.root, read_plan(staged.root, "mine"))
    front = (stage / "book" / "intro.md").read_text()
    assert "not in this run" not in front
    assert "# The run mine" in front
    assert "```{figure} own.svg" in front
    assert (stage / "book" / "own.svg").read_bytes().startswith(b"<svg")
    shown = [
        part["source"]
        for part in json.loads((stage / "notebooks" / copy.name).read_text())["cells"]
    ]
    order = [
        place
        for part in shown
        for place in ("# Who?", "Before.", "## Own", "## The votes", "It goes on.", "## Last")
        if place in part
    ]
    assert order == ["# Who?", "Before.", "## Own", "## The votes", "It goes on.", "## Last"]
    build_html(stage, staged.root / "build" / "html-mine")


def test_a_chapter_left_out_without_a_reason_says_how_to_have_it(tmp_path):
    notebook = write_notebook(tmp_path / "06_not_run.ipynb", cell("# Why not?", kind="markdown"))
    assert "Name `06_not_run` under `chapters:` in\n`params/heart.yaml`" in page_without(
        notebook, "heart"
    )


def test_a_new_commit_changes_no_setting_for_which_all_pages_would_be_laid_anew(
    staged, monkeypatch
):
    plan = read_plan(staged.root, "sample")
    monkeypatch.setattr("tools.stage.current_commit", lambda root: "0123456789ab")
    settings = (stage_book(staged.root, plan) / "_config.yml").read_text()
    monkeypatch.setattr("tools.stage.current_commit", lambda root: "ba9876543210")
    assert (stage_book(staged.root, plan) / "_config.yml").read_text() == settings


def test_without_a_repository_no_chapter_has_launch_buttons(staged):
    (staged.root / "pyproject.toml").write_text('[tool.heart]\nrepository = ""\n')
    assert (
        "colab"
        not in (
            stage_book(staged.root, read_plan(staged.root, "sample")) / "_config.yml"
        ).read_text()
    )


@pytest.mark.slow
def test_the_pages_say_what_was_left_out_and_where_to_run_and_keep_nothing_of_an_earlier_build(
    staged, monkeypatch
):
    """One build after another, since each takes seconds: with a chapter left out, then without it
    and with another picture."""
    monkeypatch.setattr("tools.stage.current_commit", lambda root: "ba9876543210")
    (staged.root / "pyproject.toml").write_text(
        '[tool.heart]\nrepository = "https://github.com/who/what"\n'
    )
    words = "(why-not)=\n# Why not?\n\nWords.\n\n(a-part)=\n### A part"
    left_out = staged.write_chapter(
        "06_not_run", cell(words, kind="markdown"), cell("results = {'n': 1}")
    )
    staged.write_parameters(
        "chapters: [05_who_is_preferred]\nleft_out: {06_not_run: Nobody wrote any words.}\n"
    )
    intro = (
        "# Front\n\n{ref}`why-not` {ref}`a-part`"
        " {glue:text}`../notebooks/06_not_run.ipynb::n:s`\n\n![Two bars.](older.svg)\n"
    )
    (staged.root / "book" / "intro.md").write_text(intro)
    (staged.root / "book" / "older.svg").write_text(f"{DRAWN}<!-- older -->")
    stage, html = (
        stage_book(staged.root, read_plan(staged.root, "sample")),
        staged.root / "build" / "html",
    )
    build_html(stage, html)
    page = (html / "notebooks" / "06_not_run.html").read_text()
    assert "leaves this chapter out, so it has no figures here. Nobody wrote any words." in page
    assert "Words." not in page
    front = (html / "book" / "intro.html").read_text()
    assert "(not in this run)" in front
    assert "from commit ba9876543210" in front
    page, chapter = (
        (html / "notebooks" / "05_who_is_preferred.html").read_text(),
        "notebooks/05_who_is_preferred.ipynb",
    )
    assert page.count(f"https://colab.research.google.com/github/who/what/blob/main/{chapter}") == 1
    assert page.count(f"https://mybinder.org/v2/gh/who/what/main?urlpath=lab/tree/{chapter}") == 1

    left_out.unlink()
    staged.write_parameters("chapters: [05_who_is_preferred]\n")
    (staged.root / "book" / "intro.md").write_text("# Front\n\n![Two bars.](newer.svg)\n")
    (staged.root / "book" / "newer.svg").write_text(f"{DRAWN}<!-- newer -->")
    build_html(stage_book(staged.root, read_plan(staged.root, "sample")), html)
    assert [page.name for page in (html / "notebooks").iterdir()] == ["05_who_is_preferred.html"]
    assert [path.name for path in (html / "_images").glob("*er.svg")] == ["newer.svg"]


def test_a_picture_that_sphinx_kept_is_not_shown_and_pages_of_functions_come_along(
    staged, monkeypatch
):
    """What the build folder may hold of earlier builds, laid there by hand; Sphinx itself need not
    run."""
    stage, html = (
        stage_book(staged.root, read_plan(staged.root, "sample")),
        staged.root / "build" / "html",
    )
    built = stage.parent / f".{stage.name}.out" / "_build" / "html"
    for name in (
        "index.html",
        "notebooks/05_who_is_preferred.html",
        "_images/gone.svg",
    ):
        (built / name).parent.mkdir(parents=True, exist_ok=True)
        (built / name).write_text("of an earlier build")
    monkeypatch.setattr(
        "subprocess.run", lambda *_, **__: subprocess.CompletedProcess([], 0, "", "")
    )
    build_html(stage, html)
    assert (html / "notebooks" / "05_who_is_preferred.html").exists()
    assert not (html / "functions").exists()
    assert not (html / "_images" / "gone.svg").exists()
    (staged.root / "build" / "functions").mkdir()
    (staged.root / "build" / "functions" / "index.html").write_text("functions")
    build_html(stage, html)
    assert (html / "functions" / "index.html").read_text() == "functions"


@pytest.mark.slow
def test_a_warning_stops_the_build_and_leaves_the_older_pages(staged):
    stage = stage_book(staged.root, read_plan(staged.root, "sample"))
    html = staged.root / "build" / "html"
    html.mkdir()
    (html / "index.html").write_text("older")
    (stage / "book" / "intro.md").write_text("# Front\n\nSee {ref}`nowhere`.\n")
    with pytest.raises(RuntimeError, match="nowhere"):
        build_html(stage, html)
    assert (html / "index.html").read_text() == "older"


def test_the_comparisons_to_practise_on_move_to_their_page(staged):
    practised = cell("practise()")
    practised["outputs"] = [
        {
            "output_type": "display_data",
            "data": {"text/html": ['<section class="heart-practice">']},
            "metadata": {},
        }
    ]
    copy = staged.root / "build" / "executed" / "sample" / "04_the_raters.ipynb"
    write_notebook(copy, cell("# Raters", kind="markdown"), practised)
    staged.write_chapter("04_the_raters", cell("1"))
    staged.write_parameters("chapters: [05_who_is_preferred, 04_the_raters]\n")
    stage = stage_book(staged.root, read_plan(staged.root, "sample"))
    assert "heart-practice" in (stage / "book" / "practice.txt").read_text()
    assert "heart-practice" not in (stage / "notebooks" / "04_the_raters.ipynb").read_text()
    assert "heart-practice" in copy.read_text(), "the executed copy stays as it was"


def test_without_comparisons_the_page_says_so(staged):
    stage = stage_book(staged.root, read_plan(staged.root, "sample"))
    assert "no comparisons to practise on" in (stage / "book" / "practice.txt").read_text()
