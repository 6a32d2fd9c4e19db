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
import importlib.metadata
import json
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from heart_utils.report import WORDS
from heart_utils.runs import Run, open_run
from heart_utils.tables import TABLES

__all__ = ["ORIGINS", "TableNote", "note_tables", "read_glued", "show_versions"]

ORIGINS: dict[str, str] = WORDS["origins"]
"""Where rows can come from, and how a page says it."""

MADE_UP = {"simulated", "rehearsal"}
"""Origins of rows that are marked as simulated."""

PACKAGES = ("heart-utils", "numpy", "pandas", "scipy", "papermill", "jupyter-book")


@dataclass(frozen=True)
class TableNote:
    """What one table, or one part of it, rests on: its name, its source in words, and its licence.

    ``rows`` counts rows by origin, ``"not recorded"`` where nobody said.
    """

    table: str
    source: str
    licence: str
    rows: dict[str, int]


def note_tables(run: str | Run, *, tables: Sequence[str]) -> list[TableNote]:
    """Look up what tables rest on; a table that is not there has no note.

    Parameters
    ----------
    run : str or Run
        A name under ``runs/``, a path, or an open run.
    tables : sequence of str
        ``"verdicts"`` (all parts of it), ``"verdicts/people"`` (one), or ``"public/verdicts"`` (another
        run's).

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
    >>> note_tables("public", tables=["verdicts/mtbench"])[0].licence
    'CC-BY-4.0'
    """
    return [note for name in tables for note in _notes_of(run, name)]


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
    there = {found.name.lower().replace("_", "-"): found.version for found in importlib.metadata.distributions()}
    return {"python": platform.python_version()} | {name: there[name] for name in PACKAGES if name in there}


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
            f"{name!r} names no table. There are {', '.join(TABLES)}, also as 'verdicts/people', 'public/verdicts'."
        )
    files = [here.folder / f"{table}.parquet"] + ([] if part else sorted((here.folder / kind).glob("*.parquet")))
    there = [str(file.relative_to(here.folder).with_suffix("")) for file in files if file.is_file()]
    return [_note(f"{here.name}/{path}", entries.get(path, {}), here.folder / f"{path}.parquet") for path in there]


def _note(table: str, entry: Mapping[str, Any], file: Path) -> TableNote:
    rows = pd.read_parquet(file, columns=["simulated"])
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
    source, licence = str(entry.get("source", "source not recorded")), str(entry.get("licence", "none stated"))
    return TableNote(table, source, licence, {name: int(count) for name, count in counts.items() if count})


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
