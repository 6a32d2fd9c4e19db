"""Say on every page what it rests on: whose answers, measured or simulated, and under which licence.

A table's rows say themselves whether they are simulated. Everything else stands in the run's
``manifest.json``, which whoever writes a table fills in::

    run.write("verdicts", rows, "mtbench")
    run.record(tables={"verdicts/mtbench": {"source": "MT-Bench human judgments", "licence": "CC-BY-4.0",
                                            "origin": "published"}})

``origin`` is one of :data:`ORIGINS`, or a mapping of them to numbers of rows. What nobody wrote down, or
wrote down of another number of rows, is shown as not recorded; a licence that is not recorded counts as the
strictest.
"""

from __future__ import annotations

import ast
import html
import importlib.metadata
import json
import os
import platform
import subprocess
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from heart_utils.runs import Run, open_run, strictest_licence
from heart_utils.tables import TABLES

__all__ = ["ORIGINS", "TableNote", "note_tables", "read_glued", "show_banner", "show_versions"]

ORIGINS = {
    "published": "measured by others and published",
    "live": "measured: asked while this run was made",
    "replayed": "measured earlier: recorded answers, replayed",
    "drafted": "drafted for this project with a language model's help, or written by rule",
    "computed": "computed from texts by a program",
    "simulated": "SIMULATED: drawn by a program, said by nobody",
    "rehearsal": "SIMULATED: given to try a study out, by whoever rehearsed it",
}
"""Where rows can come from, and how the banner says it."""

MADE_UP = {"simulated", "rehearsal"}
"""Origins of rows that are marked as simulated."""

WRITERS = {
    "human": "people",
    "model": "models",
    "reference": "this project, drafted with a language model",
    "source": "unknown authors (came with the data set)",
    "probe": "probes",
}

MIME_NOTE = "heart_rests_on"
"""Under this name the output's metadata holds the notes, which the pages' own banner is made of."""

PACKAGES = ("heart-utils", "numpy", "pandas", "scipy", "papermill", "jupyter-book")


@dataclass(frozen=True)
class TableNote:
    """What one table, or one part of it, rests on: its name, its source in words, and its licence.

    ``rows`` counts rows by origin, ``"not recorded"`` where nobody said; ``by`` counts them by who rated or who wrote.
    """

    table: str
    source: str
    licence: str
    rows: dict[str, int]
    by: dict[str, int]


def note_tables(run: str | Run, *, tables: Sequence[str], made: Mapping[str, pd.DataFrame] | None = None) -> list[TableNote]:
    """Look up what tables rest on; a table that is not there has no note.

    Parameters
    ----------
    run : str or Run
        A name under ``runs/``, a path, or an open run.
    tables : sequence of str
        ``"verdicts"`` (all parts of it), ``"verdicts/people"`` (one), or ``"public/verdicts"`` (another
        run's).
    made : mapping of str to pandas.DataFrame, optional
        Tables that a chapter made in memory, such as a simulated study, by a name for the reader.

    Returns
    -------
    list of TableNote
        In the order asked for.

    Raises
    ------
    ValueError
        If a name is no table's, or the manifest says an origin that is not known.

    Examples
    --------
    >>> study = pd.DataFrame({"simulated": [True, True, True], "rater_kind": ["human", "human", "model"]})
    >>> note_tables("sample", tables=[], made={"simulated study": study})[0].rows
    {'simulated': 3}
    """
    notes = [note for name in tables for note in _notes_of(run, name)]
    return notes + [
        _note(name, {"source": "made in this chapter", "licence": "CC0-1.0"}, rows) for name, rows in (made or {}).items()
    ]


def show_banner(run: str | Run, *, tables: Sequence[str], made: Mapping[str, pd.DataFrame] | None = None) -> None:
    """Display what a chapter rests on, and leave it in the output's metadata for the whole book's banner.

    Parameters
    ----------
    run : str or Run
        A name under ``runs/``, a path, or an open run.
    tables : sequence of str
        As :func:`note_tables` takes them, written out: `make` reads this list too, and runs the chapter
        again when one of these tables changes.
    made : mapping of str to pandas.DataFrame, optional
        Tables that the chapter made in memory.

    Examples
    --------
    >>> show_banner("sample", tables=[])  # doctest: +ELLIPSIS
    {'text/html': ...No data were found...}
    """
    from IPython.display import display

    own = run if isinstance(run, Run) else open_run(run)
    if not (own.root / "params" / f"{own.name}.yaml").is_file():  # a new run with settings may still be empty
        known = own.folder.parent == own.root / "runs"
        open_run(own.name if known else own.folder, create=False)
    notes = note_tables(own, tables=tables, made=made)
    display(  # type: ignore[no-untyped-call]
        {"text/html": banner_html(notes), "text/plain": "\n".join(_sentence(note) for note in notes) or "No data were found."},
        raw=True,
        metadata={MIME_NOTE: [asdict(note) for note in notes]},
    )


def banner_html(notes: Iterable[TableNote]) -> str:
    """Write notes as HTML: the word and the colour say what was simulated, and nothing relies on colour alone."""
    notes = list(notes)
    simulated = [note for note in notes if MADE_UP & set(note.rows)]
    if not notes:
        head, kind = "No data were found for this page.", "none"
    elif len(simulated) == len(notes) and all(set(note.rows) <= MADE_UP for note in notes):
        head, kind = "SIMULATED: every figure here comes from made-up verdicts.", "simulated"
    elif simulated:
        head, kind = "PARTLY SIMULATED: some figures here come from made-up verdicts.", "simulated"
    else:
        head, kind = (
            f"Strictest licence of what this page rests on: {strictest_licence([note.licence for note in notes])}.",
            "measured",
        )
    colours = {
        "simulated": "#8a3b00;background:#fff1e0",
        "measured": "#0b5394;background:#eef5fc",
        "none": "#555;background:#f4f4f4",
    }
    items = f"<ul>{''.join(f'<li>{html.escape(_sentence(note))}</li>' for note in notes)}</ul>" if notes else ""
    if len(notes) > 2:  # which would fill a telephone's screen twice
        items = f"<details><summary>{html.escape(_sum(notes))}</summary>{items}</details>"
    return (
        f'<div role="note" class="heart-rests-on heart-{kind}" style="border-left:.4rem solid {colours[kind]};'
        f'color:#222;padding:.5rem .8rem"><strong>{html.escape(head)}</strong>{items}</div>'
    )


def current_commit(root: Path) -> str:
    """Tell the commit that the project stands at, ``+changes`` if files differ from it."""
    try:
        said = [
            subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, check=True).stdout.strip()
            for words in (["rev-parse", "--short=12", "HEAD"], ["status", "--porcelain", "--untracked-files=no"])
        ]
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return said[0] + ("+changes" if said[1] else "")


def versions() -> dict[str, str]:
    """Tell the versions that figures depend on most."""
    return {"python": platform.python_version()} | {name: importlib.metadata.version(name) for name in PACKAGES}


def show_versions() -> None:
    """Print ``versions`` in one line, with which a chapter ends.

    Nothing in it depends on the day or the folder, so a chapter run again in the same environment prints
    the same line.

    Examples
    --------
    >>> show_versions()  # doctest: +ELLIPSIS
    Run with python 3..., heart-utils 0..., numpy ..., jupyter-book ...
    """
    print(f"Run with {', '.join(f'{name} {version}' for name, version in versions().items())}.")


def _notes_of(run: str | Run, name: str) -> list[TableNote]:
    """Note each file of a table: parts come from different places."""
    first, _, rest = name.partition("/")
    own = run if isinstance(run, Run) else open_run(run)
    here, table = (own, name) if first in TABLES else (open_run(first), rest)
    entries: dict[str, Any] = here.manifest.get("tables", {})
    kind, _, part = table.partition("/")
    if kind not in TABLES:
        raise ValueError(
            f"{name!r} names no table. There are {', '.join(TABLES)}, also as 'verdicts/people' or 'public/verdicts'."
        )
    files = [here.folder / f"{table}.parquet"] + ([] if part else sorted((here.folder / kind).glob("*.parquet")))
    there = [str(file.relative_to(here.folder).with_suffix("")) for file in files if file.is_file()]
    return [_note(f"{here.name}/{path}", entries.get(path, {}), _read(here, path)) for path in there]


def _read(run: Run, path: str) -> pd.DataFrame:
    """Read the columns that the banner counts, and no others."""
    kind = path.partition("/")[0]
    wanted: list[str] = [column for column in ("simulated", "rater_kind", "responder") if column in TABLES[kind]]
    rows = pd.read_parquet(run.folder / f"{path}.parquet", columns=wanted)
    if kind == "replies" and run.has("responders"):
        kinds = run.read("responders").set_index("responder")["responder_kind"]
        rows["responder_kind"] = rows["responder"].map(kinds)
    return rows


def _note(table: str, entry: Mapping[str, Any], rows: pd.DataFrame) -> TableNote:
    simulated = int(rows["simulated"].sum())
    origin = entry.get("origin", "not recorded")
    counts = dict(origin) if isinstance(origin, Mapping) else {origin: len(rows) - simulated}
    if unknown := sorted(set(counts) - {*ORIGINS, "not recorded"}):
        raise ValueError(f"{table}: the manifest says origin {', '.join(unknown)}; expected one of {', '.join(ORIGINS)}.")
    # The rows' own word counts: no manifest can make a simulated row a measured one, nor account for other rows than these.
    others = {name: count for name, count in counts.items() if name not in MADE_UP}
    if sum(others.values()) != len(rows) - simulated:
        others = {"not recorded": len(rows) - simulated}
    counts = {**others, "rehearsal" if origin == "rehearsal" else "simulated": simulated}
    kinds = [rows[column].value_counts() for column in ("rater_kind", "responder_kind") if column in rows]
    return TableNote(
        table=table,
        source=str(entry.get("source", "source not recorded")),
        licence=str(entry.get("licence", "none stated")),
        rows={name: int(count) for name, count in counts.items() if count},
        by={str(kind): int(count) for kind, count in kinds[0].items()} if kinds else {},
    )


def _sum(notes: Iterable[TableNote]) -> str:
    """Add up where the rows of all tables come from; the licence is what a head about simulated rows leaves unsaid."""
    notes, rows = list(notes), Counter[str]()
    for note in notes:
        rows.update(note.rows)
    strictest = strictest_licence([note.licence for note in notes])
    return f"{len(notes)} tables: {_rows(rows)}; strictest licence {strictest}. One by one:"


def _rows(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} rows {ORIGINS.get(origin, origin)}" for origin, count in counts.items()) or "no rows"


def _sentence(note: TableNote) -> str:
    people = " and ".join(f"{count:,} by {WRITERS.get(kind, kind)}" for kind, count in note.by.items())
    return f"{note.table}: {note.source}; {_rows(note.rows)}{f' ({people})' if people else ''}; licence {note.licence}."


PREFIX = "application/papermill.record/"


def read_glued(notebook: str | os.PathLike[str]) -> dict[str, Any]:
    """Read what an executed notebook glued, to lay the runs of a grid side by side.

    Parameters
    ----------
    notebook : path
        An executed copy, as papermill writes it.

    Returns
    -------
    dict
        Name -> value, in the order of the notebook: numbers and text as they were; what has no
        literal, such as a figure, is left out. A name glued twice has its last value.

    Raises
    ------
    ValueError
        If the file is no notebook, or nothing in it was glued.

    Examples
    --------
    >>> read_glued("notebooks/09_the_conversations.ipynb")
    Traceback (most recent call last):
    ValueError: notebooks/09_the_conversations.ipynb glued nothing. Is it the executed copy?
    """
    file = Path(notebook)
    try:
        cells = json.loads(file.read_text(encoding="utf-8"))["cells"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{file} is not a notebook ({type(error).__name__}: {error}).") from None
    outputs = [output for cell in cells for output in cell.get("outputs", []) if "scrapbook" in output.get("metadata", {})]
    if not outputs:
        raise ValueError(f"{file} glued nothing. Is it the executed copy? A chapter under notebooks/ has no outputs.")
    found = {}
    for output in outputs:
        said = output["data"].get(f"{PREFIX}text/plain", "")
        try:
            found[output["metadata"]["scrapbook"]["name"]] = ast.literal_eval("".join(said))
        except (SyntaxError, ValueError):
            continue
    return found
