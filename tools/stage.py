"""Stage the book of one run where Jupyter Book can build it.

``python -m tools.stage sample`` fills ``build/stage/sample`` with the prose of ``book/``, the
executed copies in place of the source notebooks, with chips that say what each figure, table and
section rests on, and the API pages made from the package itself.
"""

from __future__ import annotations

import datetime
import importlib
import inspect
import json
import os
import pkgutil
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import yaml

import heart_collect
import heart_utils
from heart_utils.runs import Run, find_root, open_run, write_atomically
from tools import current_commit
from tools.absent import page_without, unglue
from tools.build_html import BUILT_ON
from tools.evidence import FIGURE_DATA, Evidence, check_chips, figure_data, mark_chapter
from tools.figure import read_figure
from tools.flow import PACKAGES, public_homes
from tools.governance import absent_sets, write_governance
from tools.notebooks import NotebookError, read_cells
from tools.pipeline import fill_pipeline
from tools.plan import Plan, PlanError, read_plan
from tools.settings import launch_buttons, read_settings
from tools.source_pages import write_source_pages
from tools.your_run import move_empty_sections

__all__ = ["api_pages", "stage_book"]

FRONT_FIGURE = ("notebooks/01_who_supports_better.ipynb", "fig-forest")
"""The figure that the front page shows, taken from its chapter with its words."""

HOSTED = "book/hosted"
"""The page of other people's machines, which find the project by its repository."""

PRACTICE = "04_the_raters.ipynb"
"""Where the comparisons of the page `practice` are made."""

SAMPLE = re.compile(r"\bsample\b")
OWN_FIGURE = ("05_who_is_preferred", "fig-run-board")
OWN_SECTION = "this-runs-board"
"""What the front page of another run shows, and the section with it, which then opens its
chapter."""
SECTION = re.compile(r"^## ", flags=re.MULTILINE)

MARKERS = [
    Path(__file__).with_name(f"{name}.py") for name in ("stage", "evidence", "flow", "your_run")
]


def stage_book(root: Path, plan: Plan) -> Path:
    """Fill the staging folder of a run; files that did not change keep their time.

    Parameters
    ----------
    root : pathlib.Path
        The project's root.
    plan : Plan
        Its chapters have executed copies.

    Returns
    -------
    pathlib.Path
        The staging folder.
    """
    stage = root / "build" / "stage" / plan.run
    shutil.rmtree(stage, ignore_errors=True)
    for folder in ("book", "params"):
        shutil.copytree(root / folder, stage / folder)
    ran = {chapter.name for chapter in plan.chapters}
    copies = [root / "build" / "executed" / plan.run / f"{name}.ipynb" for name in sorted(ran)]
    (stage / "notebooks").mkdir()
    run, absent = open_run(root / "runs" / plan.run), absent_sets()
    evidence, unfilled = {}, ""
    for copy in copies:
        evidence[copy.stem], moved = _stage_copy(copy, stage / "notebooks" / copy.name, run, absent)
        unfilled += moved
    if (gathered := stage / "book" / "your_run.md").is_file():
        write_atomically(gathered, (gathered.read_text(encoding="utf-8") + unfilled).encode())
    for notebook in sorted((root / "notebooks").glob("*.ipynb")):
        if notebook.stem not in ran:
            instead = page_without(notebook, plan.run, plan.left_out.get(notebook.stem, ""))
            write_atomically(stage / "notebooks" / f"{notebook.stem}.md", instead.encode())
    if (followed := stage / "book" / "pipeline.md").is_file():
        write_atomically(followed, fill_pipeline(root / "book" / "pipeline.md", run).encode())
    for page in (stage / "book").rglob("*.md"):
        words = page.read_text(encoding="utf-8")
        if (kept := unglue(words, ran)) != words:
            write_atomically(page, kept.encode())
        check_chips(
            kept, {name: evidence_of.glued for name, evidence_of in evidence.items()}, page.name
        )
    config = yaml.safe_load((root / "_config.yml").read_text(encoding="utf-8"))
    settings = read_settings(root)
    config |= launch_buttons(settings)
    options = config["sphinx"]["config"]["html_theme_options"]
    # Sphinx lays every page anew when its settings change; what changes with each commit is put in
    # when the pages are.
    options["extra_footer"] = f"<p>{BUILT_ON}</p>"
    built = (
        f"Built on {datetime.date.today().isoformat()} from commit {current_commit(root)}, run"
        f" {plan.run}."
    )
    toc = yaml.safe_load((root / "_toc.yml").read_text(encoding="utf-8"))
    files = {
        "built_on.txt": built,
        "_config.yml": yaml.safe_dump(config, allow_unicode=True),
        "_toc.yml": yaml.safe_dump(
            _listed(
                toc,
                {file.stem for file in (stage / "notebooks").iterdir()},
                set() if settings.repository else {HOSTED},
            ),
            sort_keys=False,
        ),
    }
    for name, text in files.items():
        write_atomically(stage / name, text.encode())
    shutil.copytree(_kept_api_pages(root), stage / "book", dirs_exist_ok=True)  # with their times
    if plan.run == "sample":
        _stage_front_figure(stage)
    else:
        _stage_own_front(stage, plan)
    _stage_practice(stage)
    write_governance(
        root,
        stage / "book",
        [note for evidence_of in evidence.values() for note in evidence_of.notes],
    )
    return stage


def _stage_copy(copy: Path, staged: Path, run: Run, absent: set[str]) -> tuple[Evidence, str]:
    """Mark a chapter's evidence, and fold the cell in which papermill repeats the values.

    Sections that this run does not fill are left out, and come back as prose.
    """
    notebook = json.loads(copy.read_text(encoding="utf-8"))
    notebook["cells"] = cells = read_cells(copy)
    for cell in cells:
        if "injected-parameters" in (tags := cell["metadata"].get("tags", [])):
            tags.append("hide-input")
            cell["metadata"]["mystnb"] = {
                "code_prompt_show": "Show the values that this page was built with"
            }
    if run.name != "sample":
        notebook["cells"] = cells = _lift_section(cells, OWN_SECTION)
        _drop_findings_of_sample(cells)
    notebook["cells"], moved = move_empty_sections(cells)
    cells = notebook["cells"]
    evidence = mark_chapter(cells, copy.stem, run, absent)
    for cell in cells:
        if (numbers := figure_data(cell)) and (
            name := cell["metadata"].get("mystnb", {}).get("figure", {}).get("name")
        ):
            write_atomically(
                staged.parents[1] / "book" / "extra" / "data" / f"{name}.csv", numbers.encode()
            )
        for output in cell.get("outputs", []):
            # MyST-NB warns of a kind of output that it does not show
            output.get("data", {}).pop(FIGURE_DATA, None)
    staged.write_text(json.dumps(notebook, ensure_ascii=False), encoding="utf-8")
    newest = max(copy.stat().st_mtime_ns, *(file.stat().st_mtime_ns for file in MARKERS))
    # so that Sphinx reads again only what ran again, or is marked in another way
    os.utime(staged, ns=(newest, newest))
    return evidence, moved


def _drop_findings_of_sample(cells: list[dict[str, Any]]) -> None:
    """Remove from captions what they say of the run `sample`.

    The figures are another run's.
    """
    for cell in cells:
        words = cell["metadata"].get("mystnb", {})
        for part, name in (("figure", "caption"), ("image", "alt")):
            if name in words.get(part, {}):
                words[part][name] = _without_sample(words[part][name])


def _without_sample(text: str) -> str:
    """Remove sentences about the sample, or their part after a colon or semicolon."""
    kept = []
    for sentence in re.split(r"(?<=\.)\s+", text):
        if mention := SAMPLE.search(sentence):
            clause = re.match(r"(.*)[:;]", sentence[: mention.start()])
            kept += [f"{clause[1]}."] if clause else []
        else:
            kept.append(sentence)
    return " ".join(kept)


def _lift_section(cells: list[dict[str, Any]], label: str) -> list[dict[str, Any]]:
    """Move a section before the first of its chapter.

    On the pages of a run, what the run is about comes first.
    """
    starts = [
        number
        for number, cell in enumerate(cells)
        if cell["cell_type"] == "markdown" and SECTION.search("".join(cell["source"]))
    ]
    own = next(
        (number for number in starts if f"({label})=" in "".join(cells[number]["source"])), None
    )
    if own is None or own == starts[0]:
        return cells
    end = next((number for number in starts if number > own), len(cells))
    before = re.split(
        r"(?=^\([\w-]+\)=\n)", "".join(cells[own]["source"]), maxsplit=1, flags=re.MULTILINE
    )
    rest, moved = (
        {**cells[own], "source": before[0]},
        {**cells[own], "id": f"{cells[own]['id']}-own", "source": before[1]},
    )
    first = starts[0]
    return [*cells[:first], moved, *cells[own + 1 : end], *cells[first:own], rest, *cells[end:]]


def _stage_own_front(stage: Path, plan: Plan) -> None:
    """Write the front page of another run's book: its leaderboard and chapters.

    It shows no findings of other data.
    """
    chapter, figure = OWN_FIGURE
    ran = {chapter.name for chapter in plan.chapters}
    front = ["(front-page)=", f"# The run {plan.run}", ""]
    if chapter in ran:
        drawn = read_figure(stage / "notebooks" / f"{chapter}.ipynb", figure)
        write_atomically(stage / "book" / "own.svg", drawn.svg)
        front += [
            "```{figure} own.svg",
            ":name: fig-own-front",
            ":alt: Ratings of this run's responders, best on top.",
            "",
        ]
        front += [
            "The leaderboard of this run; what it rests on is said in the"
            f" figure.{_said_of_dimension(plan, chapter)}"
        ]
        front += ["```", ""]
        front += [f"{{ref}}`How it is made, and all other leaderboards <{OWN_SECTION}>`.", ""]
    front += [
        (
            "This book was made from the tables of this run and from published data; each chapter"
            " says which. The chapters:"
        ),
        "",
    ]
    front += [
        f"- {{doc}}`../notebooks/{name}`" for name in (chapter.name for chapter in plan.chapters)
    ]
    front += ["", "No model named in this book is recommended for care."]
    write_atomically(stage / "book" / "intro.md", ("\n".join(front) + "\n").encode())


def _said_of_dimension(plan: Plan, chapter: str) -> str:
    """Name the dimension shown where the run has no `overall`, and where to change it."""
    dimension = plan.parameters[chapter].get("dimension")
    if dimension in (None, "overall"):
        return ""
    return (
        f" It is about `{dimension}`: `overall` is shown where a run has it, else its first"
        f" dimension, unless `dimension` in `params/{plan.run}.yaml` says another."
    )


def _stage_front_figure(stage: Path) -> None:
    """Copy its figure to the front page, where its chapter ran."""
    front = ""
    if (stage / FRONT_FIGURE[0]).is_file():
        figure = read_figure(stage / FRONT_FIGURE[0], FRONT_FIGURE[1])
        write_atomically(stage / "book" / "front.svg", figure.svg)
        front = (
            "```{figure} front.svg\n:name: fig-front\n:alt:"
            f" {figure.alt}\n\n{figure.caption}\n```\n"
        )
        # The rows with which its reader can ask it come along.
        for page in _shown_html(stage / FRONT_FIGURE[0], f'data-figure="{FRONT_FIGURE[1]}"'):
            interactive = page.replace(
                f'data-figure="{FRONT_FIGURE[1]}"', 'data-figure="fig-front"'
            )
            front += f"\n``````{{raw}} html\n{interactive}\n``````\n"
    write_atomically(stage / "book" / "front.txt", front.encode())


def _shown_html(copy: Path, words: str) -> list[str]:
    """List the pieces of HTML with certain words that an executed chapter shows."""
    outputs = [
        output
        for cell in json.loads(copy.read_text(encoding="utf-8"))["cells"]
        for output in cell.get("outputs", [])
    ]
    pieces = ["".join(output.get("data", {}).get("text/html", "")) for output in outputs]
    return [piece for piece in pieces if words in piece]


def _stage_practice(stage: Path) -> None:
    """Move the practice comparisons from the chapter about raters to their page."""
    copy, practice_text = (
        stage / "notebooks" / PRACTICE,
        "This book has no comparisons to practise on: its run has no replies, or no verdicts.",
    )
    if copy.is_file():
        time, notebook = copy.stat().st_mtime_ns, json.loads(copy.read_text(encoding="utf-8"))
        for cell in notebook["cells"]:
            for output in list(cell.get("outputs", [])):
                page = "".join(output.get("data", {}).get("text/html", ""))
                if 'class="heart-practice' in page:
                    cell["outputs"].remove(output)
                    practice_text = f"``````{{raw}} html\n{page}\n``````\n"
        copy.write_text(json.dumps(notebook, ensure_ascii=False), encoding="utf-8")
        os.utime(copy, ns=(time, time))
    write_atomically(stage / "book" / "practice.txt", practice_text.encode())


def api_pages() -> dict[str, str]:
    """Write the pages of the package's functions from the package itself.

    Returns
    -------
    dict of str to str
        File name -> MyST: ``api.md`` has the public names in a table and the modules that all
        others build on; each of the subpackages has a page of its own, with all that its modules
        offer.
    """
    modules = sorted(
        name
        for package in (heart_utils, heart_collect)
        for _, name, is_package in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
        if not is_package and "._" not in name
    )
    opening = [
        _API_OPENING,
        "",
        *_contents_by_task(),
        _API_EXAMPLES.format(module="heart_utils.runs"),
        "",
    ]
    pages = {"api": ["(api)=", "# The functions behind the chapters", "", *opening]}
    for part, (words, module) in _API_PARTS.items():
        opening = [_API_EXAMPLES.format(module=module), ""]
        pages[f"api_{part}"] = [
            f"(api-{part})=",
            f"# `{module.split('.')[0]}.{part}`: {words}",
            "",
            *opening,
        ]
    for module in modules:
        part = module.split(".")[1]
        if not (members := _members(module)):
            continue  # a step of others, or a command: nothing in it is called from outside
        pages[f"api_{part}" if part in _API_PARTS else "api"] += [
            f"## {module}",
            "",
            "```{eval-rst}",
            f".. automodule:: {module}",
            f"   :members: {members}",
            "```",
            "",
        ]
    return {f"{name}.md": "\n".join(lines) for name, lines in pages.items()}


def _contents_by_task() -> list[str]:
    """List the public names by what they are for, each task with a sentence; errors come last."""
    home_of = {name.rpartition(".")[2]: home for name, home in sorted(public_homes().items())}
    errors = []
    for name, home in home_of.items():
        offered = getattr(importlib.import_module(home), name)
        if inspect.isclass(offered) and issubclass(offered, Exception):
            errors.append(f"{home}.{name}")
    lines = []
    for parts, title, sentence in _API_TASKS:
        names = [
            f"{home}.{name}"
            for name, home in home_of.items()
            if home.split(".")[1] in parts and f"{home}.{name}" not in errors
        ]
        lines += _contents(title, sentence, names)
    return lines + _contents(
        "What can go wrong",
        "All are kinds of `ValueError` unless their page says otherwise.",
        errors,
    )


def _contents(title: str, sentence: str, names: list[str]) -> list[str]:
    table = ["```{eval-rst}", ".. autosummary::", "   :nosignatures:", ""]
    return [
        f"**{title}.** {sentence}",
        "",
        *table,
        *(f"   ~{name}" for name in names),
        "```",
        "",
    ]


def _kept_api_pages(root: Path) -> Path:
    """Return the folder of the pages of functions and of code, written anew if code changed.

    To write them takes seconds, since all modules are imported; and a page that kept its time is
    not read again.
    """
    folder, code = root / "build" / "api", root / "build" / "code.stamp"
    kept = sorted(folder.glob("*.md"))
    writers = (Path(__file__), Path(__file__).with_name("source_pages.py"))
    sources = [path.stat().st_mtime_ns for path in (code, *writers) if path.is_file()]
    if not (
        code.is_file() and kept and min(page.stat().st_mtime_ns for page in kept) > max(sources)
    ):
        shutil.rmtree(folder, ignore_errors=True)
        for name, text in api_pages().items():
            write_atomically(folder / name, text.encode())
        for package in PACKAGES:
            write_source_pages(root / package, folder / "extra")
    return folder


_API_PARTS = {
    "sources": ("published data sets and files of your own", "heart_utils.sources.load"),
    "calls": (
        "one model call and many, and the ledger that keeps them",
        "heart_collect.calls.models",
    ),
    "judging": ("from histories to verdicts", "heart_collect.judging.judge"),
    "people": ("studies with people", "heart_collect.people.study"),
    "ratings": ("from verdicts to strengths", "heart_utils.ratings.ratings"),
    "agreement": ("how far raters agree", "heart_utils.agreement.agreement"),
    "judges": ("what a judge rewards", "heart_utils.judges.halo"),
    "replies": ("what a reply does", "heart_utils.replies.codes"),
    "evidence": ("open studies as comparable effects", "heart_utils.evidence.effects"),
    "simulate": ("studies with known truth", "heart_utils.simulate.study"),
    "heartbench": ("HeartBench's rule and leaderboard", "heart_utils.heartbench.formula"),
    "report": ("figures, tables, pages", "heart_utils.report.leaderboard"),
}
"""Subpackage -> what it holds, and a module of it."""

_API_TASKS = [
    (
        ("sources",),
        "Read",
        "Votes, scores, histories and replies, from published sets or files of your own.",
    ),
    (
        ("calls", "judging"),
        "Ask models",
        "From histories to replies and verdicts, with prices, probes and a record of each judge.",
    ),
    (("people",), "Ask people", "Who rates what, what it costs, and whether the load is even."),
    (
        ("ratings", "scores"),
        "Rate",
        "From verdicts or scores to strengths with intervals, ranks and contrasts.",
    ),
    (
        ("agreement",),
        "Compare raters",
        (
            "How far people and judges agree, beyond chance and beside what people reach among"
            " themselves."
        ),
    ),
    (
        ("judges", "replies"),
        "Examine judges and replies",
        "What a judge rewards, and what replies do.",
    ),
    (
        ("evidence", "heartbench"),
        "Weigh what others found",
        "Open studies as comparable effects, and HeartBench's rule.",
    ),
    (
        ("simulate",),
        "Plan and simulate",
        "Studies with known truth, their power, and whether intervals hold.",
    ),
    (("gate",), "Stop a build", "Whether a candidate is worse than the version before it."),
    (
        ("report",),
        "Show and publish",
        "Figures, tables, leaderboards, and the paragraph on methods.",
    ),
    (
        ("runs", "tables"),
        "Keep a run",
        "The folder of a study, the tables in it, and the licences they carry.",
    ),
]
"""Homes of public names, the task that they serve, and what is done."""

_API_OPENING = """\
Each name in these tables can be taken from its package itself, as in
`from heart_utils import open_run` or `from heart_collect import collect_verdicts`; it is loaded
when it is first used. All else is taken from the module that it is listed under, as in
`from heart_utils.report.figures import COLOURS`. Errors are kinds of `ValueError` unless stated
otherwise."""

_API_EXAMPLES = """\
Examples are run after `import numpy as np`, `import pandas as pd`, `from pathlib import Path`, and
all that their own module offers, as in `from {module} import *`."""


def _members(module: str) -> str:
    """List what a module offers and defines itself; what it hands on is described at home."""
    loaded = importlib.import_module(module)
    offered = getattr(loaded, "__all__", [])
    return ", ".join(
        name for name in offered if getattr(getattr(loaded, name), "__module__", module) == module
    )


def _listed(toc: dict[str, Any], chapters: set[str], left_out: set[str]) -> dict[str, Any]:
    """Keep the chapters that have a page, and pages that are not left out.

    The list of contents may name chapters whose notebooks are not there.
    """
    for part in toc["parts"]:
        kept = [
            page
            for page in part["chapters"]
            if page["file"] not in left_out
            and (not page["file"].startswith("notebooks/") or Path(page["file"]).name in chapters)
        ]
        part["chapters"] = kept
    return toc | {"parts": [part for part in toc["parts"] if part["chapters"]]}


def main(arguments: list[str]) -> int:
    """Stage the run that is named."""
    root = find_root()
    try:
        stage_book(root, read_plan(root, arguments[0] if arguments else "sample"))
    except (PlanError, NotebookError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
