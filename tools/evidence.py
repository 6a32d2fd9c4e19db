"""Evidence of each cell of a chapter, from the tables that it reads.

A chip beside a figure follows the data of its cell (:mod:`tools.flow`), and nobody writes it by
hand.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from heart_utils.report.tables import MADE_UP, TableNote, note_tables
from heart_utils.runs import Run, csv_text, read_csv_text
from heart_utils.sources.catalogue import SOURCES
from tools.flow import Flow, is_table
from tools.notebooks import NotebookError, parse_cell

__all__ = ["KINDS", "Evidence", "check_chips", "chips", "mark_chapter", "weigh"]

KINDS = ("measured", "quoted", "simulated", "demo")
#: Runs of the recorded calls of data/sample.
DEMOS = ("sample", "conjoint", "conversations", "whole")
"""What a result can rest on: published data computed here, a paper's figure, a program's draws,
the sample run."""

NAMES = {
    "mtbench": "MT-Bench",
    "mentalalign": "MentalAlign",
    "empathic_comm": "EmpathicComm",
    "recipients": "Yin et al.",
    "therapists": "Moore et al.",
    "welivita": "Welivita and Pu",
    "resort": "RESORT",
    "heart": "HEART's files",
    "heart_tables": "HEART's files",
    "esconv": "ESConv",
    "esconv_tables": "ESConv",
    "heartbench": "HeartBench",
    "heartbench_points": "HeartBench",
    "kokorochat": "KokoroChat",
    "duo": "DUO",
    "mindeval": "MindEval",
    "sage": "SAGE",
    "ieval": "iEval",
    "mibot": "MIBot",
    "relationship_seeking": "Kirk et al.",
    "can_ai_relate": "Gabriel et al.",
    "reflections": "Wu et al.",
}
ROLE = re.compile(rf"\{{({'|'.join(KINDS)})\}}`([^`]*)`")
GLUED = re.compile(r"\{glue[^}]*\}`(?:[./]*notebooks/(\w+)\.ipynb::)?([^`:]+)")

PREPRINT = re.compile(r"arXiv (\d{4}\.\d{5})")
ADDRESS = re.compile(r"https://\S+")

OURS = {
    "quoted": "figures of papers, each cited",
    "simulated": "this project, CC0-1.0",
    "demo": "this project, CC0-1.0",
}
"""Of what is no table: whose it is, and under which licence it may be passed on."""
FIGURE_DATA = "text/csv"  #: How a figure in an executed notebook carries the numbers drawn in it.

LEGEND = "{ref}`what these chips mean <chips>`"

Kinds = dict[str, list[str]]
"""Kind -> the data sets that were measured, where it is that."""


@dataclass(frozen=True)
class Evidence:
    """What a chapter rests on: by the name of each number that it glues, and table by table.

    Of each figure `origins` has its ``source`` and ``doi``, in words for its numbers as CSV.
    """

    glued: dict[str, Kinds]
    notes: list[TableNote]
    origins: dict[str, dict[str, str]]


def mark_chapter(
    cells: list[dict[str, Any]], name: str, run: Run, absent: Collection[str] = ()
) -> Evidence:
    """Write a chip into each caption and below each heading of an executed chapter.

    A strip goes below its title.

    Parameters
    ----------
    cells : list of dict
        Of the executed copy; they are changed.
    name : str
        The chapter's, such as ``"05_who_is_preferred"``.
    run : Run
        The run that it was executed for.
    absent : collection of str
        Data sets that were not at hand.

    Returns
    -------
    Evidence
        What the chapter rests on, for the front page and the list of licences.

    Raises
    ------
    NotebookError
        If a chip in the text says something else than the numbers beside it rest on.
    """
    flow = Flow(absent)
    notes: dict[str, list[TableNote]] = {}
    kinds_shown: dict[int, Kinds] = {}
    origins: dict[int, str] = {}
    addresses: dict[int, str] = {}
    for number, cell in enumerate(cells):
        if cell["cell_type"] == "code":
            sources = flow.follow(parse_cell(name, number, cell)) - {
                f"measured/{gone}" for gone in absent
            }
            notes |= {
                source: note_tables(run, tables=[source])
                for source in sources - set(notes)
                if is_table(source)
            }
            if "figure" in cell["metadata"].get("mystnb", {}):
                kinds_shown[number] = weigh(sources, notes, run.name)
                origins[number] = whose_data(sources, notes, run.name)
                addresses[number] = " ".join(sorted(set(map(address_of, sources)) - {""}))
    glued = {key: weigh(sources, notes, run.name) for key, sources in flow.glued.items()}
    shown: dict[str, dict[str, str]] = {}
    for number, kinds in kinds_shown.items():
        figure = cells[number]["metadata"]["mystnb"]["figure"]
        shown[figure["name"]] = {"source": origins[number], "doi": addresses[number]}
        figure["caption"] = f"{figure['caption']} {chips(kinds)}".strip()
        if figure_data(cells[number]):
            figure["caption"] += f" {{figure-data}}`{figure['name']}|{origins[number]}`"
    check_chips(
        "\n\n".join(cell["source"] for cell in cells if cell["cell_type"] == "markdown"),
        {name: glued},
        name,
    )
    _mark_headings(cells, name, kinds_shown)
    tables = {note.table: note for table_notes in notes.values() for note in table_notes}
    if tables:
        listed = "\n".join(
            f"- {note.table}: {note.source}; licence {note.licence}."
            for _, note in sorted(tables.items())
        )
        fold = (
            "```{dropdown} The tables that this page was made from, and their"
            f" licences\n{listed}\n```"
        )
        cells.append({"cell_type": "markdown", "id": "tables-read", "metadata": {}, "source": fold})
    return Evidence(glued, list(tables.values()), shown)


def weigh(sources: Iterable[str], notes: Mapping[str, list[TableNote]], run: str) -> Kinds:
    """Find the kinds of evidence of some sources, and the names of measured data sets.

    A table's rows have the last word: whatever the manifest calls them, simulated rows are
    simulated.

    Examples
    --------
    >>> weigh({"public/scores/mentalalign", "quoted"}, {}, "sample")
    {'quoted': []}
    >>> weigh({"measured/esconv"}, {}, "sample")
    {'measured': ['ESConv']}
    """
    sources_of: dict[str, set[str]] = {}
    own = "demo" if run in DEMOS else "measured"
    for source in sources:
        kind, _, rest = source.partition("/")
        if kind in KINDS:
            sources_of.setdefault(kind, set()).update({NAMES.get(rest, rest)} - {""})
        elif source == "run":
            sources_of.setdefault(own, set())
        for note in notes.get(source, []):
            if MADE_UP & set(note.rows):
                sources_of.setdefault("simulated", set())
            if set(note.rows) - MADE_UP:
                public = source.startswith("public/")
                part = source.rpartition("/")[2]
                sources_of.setdefault("measured" if public else own, set()).update(
                    {NAMES.get(part, part)} if public else ()
                )
    return {kind: sorted(sources_of[kind]) for kind in KINDS if kind in sources_of}


def figure_data(cell: Mapping[str, Any]) -> str:
    """Return the numbers of a cell's figure as CSV, or an empty text without a figure."""
    pieces = (
        "".join(output.get("data", {}).get(FIGURE_DATA, "")) for output in cell.get("outputs", [])
    )
    return next(filter(None, pieces), "")


def add_origin(numbers: str, origin: Mapping[str, str]) -> str:
    r"""Add columns for the source and its DOI to a figure's CSV, where its rows do not have them.

    Examples
    --------
    >>> print(add_origin("share\n0.6\n", {"source": "MT-Bench (CC-BY-4.0)", "doi": "10.1/a"}))
    share,source,doi
    0.6,MT-Bench (CC-BY-4.0),10.1/a
    <BLANKLINE>
    """
    table = read_csv_text(numbers)
    if "source" in table:  # each row says its own, by a DOI or another address
        return csv_text(table)
    return csv_text(table.assign(**{name: words for name, words in origin.items() if words}))


def address_of(source: str) -> str:
    """Return where a published data set is described, by its DOI if it has one.

    Examples
    --------
    >>> address_of("public/scores/mentalalign")
    'https://doi.org/10.48550/arXiv.2510.19032'
    """
    published = SOURCES.get(source.rpartition("/")[2])
    if published is None:
        return ""
    if preprint := PREPRINT.search(published.citation):
        return f"https://doi.org/10.48550/arXiv.{preprint[1]}"
    address = ADDRESS.search(published.citation)
    return address[0] if address else ""


def whose_data(sources: Iterable[str], notes: Mapping[str, list[TableNote]], run: str) -> str:
    """Describe whose data a figure shows: each kind of evidence, its sources and licences.

    Examples
    --------
    >>> note = TableNote("public/scores/mentalalign", "MentalAlign-70k", "MIT", {"published": 10})
    >>> whose_data(
    ...     {"public/scores/mentalalign", "simulated"},
    ...     {"public/scores/mentalalign": [note]},
    ...     "sample",
    ... )
    'measured: MentalAlign (MIT); simulated: this project, CC0-1.0'
    """
    sources_of: dict[str, set[str]] = {}
    for source in sources:
        tables = notes.get(source, [])
        for kind in weigh([source], notes, run):
            if kind == "measured" and "/" in source:
                words = _licensed(source, tables)
            elif tables and kind != "simulated":
                words = {f"run {run} ({note.licence})" for note in tables}
            else:
                words = {OURS.get(kind, f"run {run}")}
            sources_of.setdefault(kind, set()).update(words)
    return "; ".join(
        f"{kind}: {', '.join(sorted(sources_of[kind]))}" for kind in KINDS if kind in sources_of
    )


def _licensed(source: str, tables: Iterable[TableNote]) -> set[str]:
    """Name a published data set with the licence of what is shown of it."""
    part = source.rpartition("/")[2]
    name = NAMES.get(part, part)
    published = SOURCES.get(part)
    if source.endswith("_tables") or (published and published.ships.startswith("tallies")):
        return {f"{name} (our counts, CC0-1.0)"}
    if source.startswith("public/"):
        return {f"{name} ({note.licence})" for note in tables}
    return {f"{name} ({published.licence if published else 'Apache-2.0'})"}


def chips(kinds: Kinds) -> str:
    """Write kinds as roles of MyST, which `book/extensions/heart_book.py` draws."""
    return " ".join(
        (
            f"{{{kind}}}`{', '.join(names) if len(names) < 4 else f'{len(names)} data sets'}`"
            if names
            else f"{{{kind}}}`-`"
        )
        for kind, names in kinds.items()
    )


def check_chips(text: str, glued: Mapping[str, Mapping[str, Kinds]], page: str) -> None:
    """Refuse a chip in a paragraph whose numbers rest on something else."""
    for paragraph in re.split(r"\n\s*\n|\n(?=- )", text):
        named = dict(ROLE.findall(paragraph))
        chip_kinds = set(named)
        if not chip_kinds:
            continue
        numbers = {
            key: glued.get(chapter or page, {}).get(key, {})
            for chapter, key in GLUED.findall(paragraph)
        }
        rest_on = {kind for kinds in numbers.values() for kind in kinds}
        wrong = [
            f"`{key}` rests on {', '.join(kinds)}"
            for key, kinds in numbers.items()
            if kinds and not chip_kinds & set(kinds)
        ]
        if wrong or (rest_on and chip_kinds - rest_on):
            raise NotebookError(
                f"{page}: a paragraph is marked {', '.join(sorted(chip_kinds))}, and"
                f" {'; '.join(wrong) or f'its numbers rest on {chr(44).join(sorted(rest_on))}'}:"
                f" {paragraph[:80]!r}"
            )
        known = {name for kinds in numbers.values() for name in kinds.get("measured", [])}
        others = set(named.get("measured", "-").split(", ")) - known - {"-"}
        if known and others:
            raise NotebookError(
                f"{page}: a paragraph is marked as measured on {', '.join(sorted(others))}, and its"
                f" numbers rest on {', '.join(sorted(known))}: {paragraph[:80]!r}"
            )


def _mark_headings(
    cells: list[dict[str, Any]], name: str, kinds_shown: Mapping[int, Kinds]
) -> None:
    """Write chips below each heading whose section shows something, and the strip below the title.

    The strip also names the sections whose words carry a chip: a sentence may rest on what no
    figure of its section shows.
    """
    headings: list[tuple[int, int, int, Kinds]] = []  # cell, line, level, what its section rests on
    in_text: dict[int, set[str]] = {}  # number of a section -> kinds of the chips in its text
    n_sections = 0
    for number, cell in enumerate(cells):
        if cell["cell_type"] == "markdown":
            fenced = False
            for line_number, line in enumerate(cell["source"].splitlines()):
                fenced ^= line.startswith("```")
                if not fenced and (heading := re.match(r"(#{1,3}) ", line)):
                    headings.append((number, line_number, len(heading[1]), {}))
                    n_sections += len(heading[1]) == 2
                in_text.setdefault(n_sections, set()).update(kind for kind, _ in ROLE.findall(line))
        elif number in kinds_shown:
            open_ = len(headings)
            depth = 4
            for at in range(open_ - 1, -1, -1):
                if headings[at][2] < depth:
                    depth = headings[at][2]
                    for kind, names in kinds_shown[number].items():
                        kept = headings[at][3].setdefault(kind, [])
                        kept += [one for one in names if one not in kept]
    chapter = name.partition("_")[0].lstrip("0")
    sections: dict[str, list[str]] = {}
    above: Kinds = {}
    lines = [cell["source"].splitlines() for cell in cells]
    added: list[tuple[int, int, str]] = []
    count = 0
    for number, line_number, level, kinds in headings:
        kinds = {kind: kinds[kind] for kind in KINDS if kind in kinds}
        if level == 2:
            count, above = count + 1, kinds
            label = f"{name.replace('_', '-')}-part-{count}"
            added.append((number, line_number, f"({label})="))
            for kind in (
                {*kinds, *in_text[count]} if "Exercises" not in lines[number][line_number] else ()
            ):
                sections.setdefault(kind, []).append(f"{{ref}}`{chapter}.{count} <{label}>`")
        if level > 1 and kinds and (level == 2 or kinds != above):
            added.append(
                (
                    number,
                    line_number + 1,
                    f"\n:::{{container}} heart-evidence\n{chips(kinds)}\n:::\n",
                )
            )
    if headings and sections:
        strip = " ".join(
            f"{chips({kind: []})} {', '.join(sections[kind])}" for kind in KINDS if kind in sections
        )
        added.append(
            (
                headings[0][0],
                headings[0][1] + 1,
                f"\n:::{{container}} heart-strip\nThis chapter rests on {strip} ({LEGEND})\n:::\n",
            )
        )
    for number, line_number, text in sorted(added, reverse=True):
        lines[number].insert(line_number, text)
    for cell, its in zip(cells, lines, strict=True):
        if cell["cell_type"] == "markdown":
            cell["source"] = "\n".join(its)
