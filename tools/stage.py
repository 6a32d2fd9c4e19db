"""Stage the book of one run where Jupyter Book can build it.

``python -m tools.stage sample`` fills ``build/stage/sample`` with the prose of ``book/``, the
executed copies in place of the source notebooks, with chips that say what each figure, table and
section rests on, and the API pages made from the package itself.
"""

from __future__ import annotations

import datetime
import json
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import yaml

from heart_utils.runs import Run, find_root, open_run, write_atomically
from tools import current_commit
from tools.absent import page_without, unglue
from tools.build_html import BUILT_ON
from tools.cite import write_citation
from tools.evidence import FIGURE_DATA, Evidence, add_origin, check_chips, figure_data, mark_chapter
from tools.figure import read_figure
from tools.functions import list_names
from tools.governance import absent_sets, write_governance
from tools.notebooks import NotebookError, read_cells, say_other_values
from tools.pipeline import fill_pipeline
from tools.plan import Plan, PlanError, read_plan
from tools.settings import launch_buttons, read_settings
from tools.your_run import move_empty_sections

__all__ = ["stage_book"]

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
    (stage / "book" / "extra").mkdir(exist_ok=True)
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
    write_atomically(stage / "book" / "api.md", list_names(root).encode())
    if plan.run == "sample":
        write_citation(root, stage / "book" / "cite.txt", BUILT_ON)
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
    if doubt := say_other_values(cells):
        _doubt_findings(cells, doubt)
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
            numbers = add_origin(numbers, evidence.origins[name])
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


def _doubt_findings(cells: list[dict[str, Any]], doubt: str) -> None:
    """Say below the title and in each caption that findings were written for other values."""
    first = next(cell for cell in cells if cell["cell_type"] == "markdown")
    title, _, rest = "".join(first["source"]).partition("\n\n")
    first["source"] = f"{title}\n\n:::{{warning}}\n{doubt}\n:::\n\n{rest}"
    for cell in cells:
        for part in cell["metadata"].get("mystnb", {}).values():
            if isinstance(part, dict) and "caption" in part:
                part["caption"] = f"{part['caption'].strip()} {doubt}"


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
