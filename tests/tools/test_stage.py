"""What is laid out for the book: the chapters that ran, and the functions there are."""

import json
import re
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


def stage(project, run="sample", **changes):
    return stage_book(project.root, replace(read_plan(project.root, run), **changes))


def own_run(project, *cells):
    """Let the chapter have run on a run of one's own, with these cells beside the own board."""
    project.write_parameters("chapters: [05_who_is_preferred]\n", run="mine")
    copy = project.root / "build" / "executed" / "mine" / "05_who_is_preferred.ipynb"
    write_notebook(copy, *cells)


def cells_of(folder, name="05_who_is_preferred"):
    return json.loads((folder / "notebooks" / f"{name}.ipynb").read_text())["cells"]


def test_the_executed_copy_takes_the_place_of_the_source_and_only_what_ran_has_a_page(
    staged, monkeypatch
):
    """A new commit changes no setting, for which all pages would be laid anew."""
    monkeypatch.setattr("tools.stage.current_commit", lambda root: "0123456789ab")
    settings = (stage(staged) / "_config.yml").read_text()
    assert "colab" not in settings  # without a repository no chapter has launch buttons
    monkeypatch.setattr("tools.stage.current_commit", lambda root: "ba9876543210")
    folder = stage(staged)
    assert (folder / "_config.yml").read_text() == settings
    assert cells_of(folder)[1]["outputs"]
    assert "06_not_run" not in (folder / "_toc.yml").read_text()
    front = (folder / "book" / "front.txt").read_text()
    assert "{simulated}`-`" in front
    assert ":alt: Two bars that overlap." in front
    assert "no comparisons to practise on" in (folder / "book" / "practice.txt").read_text()


@pytest.mark.parametrize(("chosen", "said"), [("overall", False), ("warmth", True)])
def test_the_front_page_of_a_run_says_which_dimension_it_shows(staged, chosen, said):
    own_run(staged, cell("# Who?", kind="markdown"), drawing(OWN_FIGURE[1]))
    folder = stage(staged, "mine", parameters={"05_who_is_preferred": {"dimension": chosen}})
    about = f"It is about `{chosen}`: `overall` is shown where a run has it, else its first"
    assert (about in (folder / "book" / "intro.md").read_text()) == said


CAPTIONS = {
    "The run's own board. In the run `sample` all are alike.": "The run's own board.",
    "Dots with bars; in the run sample one was timed, and more. Rows are authors.": (
        "Dots with bars. Rows are authors."
    ),
    "Rows are authors.": "Rows are authors.",
}


def test_captions_of_another_run_say_nothing_of_the_sample(staged):
    words = [
        {"figure": {"caption": said, "name": f"fig-{place}"}, "image": {"alt": said}}
        for place, said in enumerate(CAPTIONS)
    ]
    drawn = [cell(str(place), mystnb=one) for place, one in enumerate(words)]
    own_run(staged, cell("# Who?", kind="markdown"), drawing(OWN_FIGURE[1]), *drawn)
    shown = [part["metadata"]["mystnb"] for part in cells_of(stage(staged, "mine"))[-3:]]
    assert [part["figure"]["caption"] for part in shown] == list(CAPTIONS.values())
    assert [part["image"]["alt"] for part in shown] == list(CAPTIONS.values())


def test_no_caption_speaks_of_the_sample_alone():
    """What is left of each for the book of another run says what the figure shows."""
    for path in sorted((find_root() / "notebooks").glob("[0-9]*.ipynb")):
        for part in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            words = part["metadata"].get("mystnb", {})
            captions = [words.get("figure", {}).get("caption"), words.get("image", {}).get("alt")]
            assert [
                caption for caption in captions if caption and not _without_sample(caption)
            ] == [], path.name


@pytest.fixture
def of_another_run(staged):
    """A staged book of one's own run, whose chapter has its own board after other sections."""
    words = (
        "(q)=\n# Who?",
        "Before.",
        "(the-votes)=\n## The votes",
        "It goes on.\n\n(this-runs-board)=\n## Own",
        "(z)=\n## Last",
    )
    cells = [cell(said, kind="markdown") for said in words]
    own_run(staged, *cells[:4], drawing(OWN_FIGURE[1]), cells[4])
    glued = "{glue:text}`../notebooks/01_not_run.ipynb::n:s`"
    (staged.root / "book" / "intro.md").write_text(f"(front-page)=\n# Front\n\n{glued}\n")
    return stage(staged, "mine")


def test_the_book_of_another_run_opens_with_its_own_leaderboard_and_says_nothing_of_other_data(
    of_another_run,
):
    front = (of_another_run / "book" / "intro.md").read_text()
    assert "not in this run" not in front
    assert "# The run mine" in front
    assert "```{figure} own.svg" in front
    assert (of_another_run / "book" / "own.svg").read_bytes().startswith(b"<svg")
    shown = "".join(part["source"] for part in cells_of(of_another_run))
    order = ["# Who?", "Before.", "## Own", "## The votes", "It goes on.", "## Last"]
    assert re.findall("|".join(map(re.escape, order)), shown) == order


@pytest.mark.slow
def test_the_book_of_another_run_builds_without_a_warning(of_another_run, tmp_path):
    build_html(of_another_run, tmp_path / "html")


def test_a_chapter_left_out_without_a_reason_says_how_to_have_it(tmp_path):
    notebook = write_notebook(tmp_path / "06_not_run.ipynb", cell("# Why not?", kind="markdown"))
    assert "Name `06_not_run` under `chapters:` in\n`params/heart.yaml`" in page_without(
        notebook, "heart"
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
    html = staged.root / "build" / "html"
    build_html(stage(staged), html)
    page = (html / "notebooks" / "06_not_run.html").read_text()
    assert "leaves this chapter out, so it has no figures here. Nobody wrote any words." in page
    assert "Words." not in page
    front = (html / "book" / "intro.html").read_text()
    assert "(not in this run)" in front
    assert "from commit ba9876543210" in front
    page = (html / "notebooks" / "05_who_is_preferred.html").read_text()
    chapter = "notebooks/05_who_is_preferred.ipynb"
    assert page.count(f"https://colab.research.google.com/github/who/what/blob/main/{chapter}") == 1
    assert page.count(f"https://mybinder.org/v2/gh/who/what/main?urlpath=lab/tree/{chapter}") == 1

    left_out.unlink()
    staged.write_parameters("chapters: [05_who_is_preferred]\n")
    (staged.root / "book" / "intro.md").write_text("# Front\n\n![Two bars.](newer.svg)\n")
    (staged.root / "book" / "newer.svg").write_text(f"{DRAWN}<!-- newer -->")
    build_html(stage(staged), html)
    assert [page.name for page in (html / "notebooks").iterdir()] == ["05_who_is_preferred.html"]
    assert [path.name for path in (html / "_images").glob("*er.svg")] == ["newer.svg"]


def test_a_picture_that_sphinx_kept_is_not_shown_and_pages_of_functions_come_along(
    staged, monkeypatch
):
    """What the build folder may hold of earlier builds, laid there by hand; Sphinx itself need not
    run."""
    folder, html = stage(staged), staged.root / "build" / "html"
    built = folder.parent / f".{folder.name}.out" / "_build" / "html"
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
    build_html(folder, html)
    assert (html / "notebooks" / "05_who_is_preferred.html").exists()
    assert not (html / "functions").exists()
    assert not (html / "_images" / "gone.svg").exists()
    (staged.root / "build" / "functions").mkdir()
    (staged.root / "build" / "functions" / "index.html").write_text("functions")
    build_html(folder, html)
    assert (html / "functions" / "index.html").read_text() == "functions"


@pytest.mark.slow
def test_a_warning_stops_the_build_and_leaves_the_older_pages(staged):
    folder = stage(staged)
    html = staged.root / "build" / "html"
    html.mkdir()
    (html / "index.html").write_text("older")
    (folder / "book" / "intro.md").write_text("# Front\n\nSee {ref}`nowhere`.\n")
    with pytest.raises(RuntimeError, match="nowhere"):
        build_html(folder, html)
    assert (html / "index.html").read_text() == "older"


def test_the_comparisons_to_practise_on_move_to_their_page(staged):
    practised = cell("practise()")
    page = {"text/html": ['<section class="heart-practice">']}
    practised["outputs"] = [{"output_type": "display_data", "data": page, "metadata": {}}]
    copy = staged.root / "build" / "executed" / "sample" / "04_the_raters.ipynb"
    write_notebook(copy, cell("# Raters", kind="markdown"), practised)
    staged.write_chapter("04_the_raters", cell("1"))
    staged.write_parameters("chapters: [05_who_is_preferred, 04_the_raters]\n")
    folder = stage(staged)
    assert "heart-practice" in (folder / "book" / "practice.txt").read_text()
    assert "heart-practice" not in json.dumps(cells_of(folder, "04_the_raters"))
    assert "heart-practice" in copy.read_text(), "the executed copy stays as it was"
