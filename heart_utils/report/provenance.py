"""What a page or a paper rests on, from its rows and the run's ``manifest.json``.

What neither says, or a manifest says of another number of rows, is "not recorded".
"""

from __future__ import annotations

import ast
import contextlib
import importlib.metadata
import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from heart_utils.report import WORDS
from heart_utils.runs import Run, open_run
from heart_utils.settings import JsonObject
from heart_utils.tables import TABLES

__all__ = ["ORIGINS", "TableNote", "note_tables", "read_results", "show_versions"]

ORIGINS: dict[str, str] = WORDS["origins"]  #: Where rows can come from, and how a page says it.
MADE_UP = {"simulated", "rehearsal"}  #: Origins of rows that are marked as simulated.

PACKAGES = ("heart-utils", "numpy", "pandas", "scipy", "papermill", "jupyter-book")


@dataclass(frozen=True)
class TableNote:
    """What one table, or one part of it, rests on."""

    table: str
    source: str  #: in words
    licence: str
    rows: dict[str, int]  #: by origin, "not recorded" where nobody said


def note_tables(run: str | Run, *, tables: Sequence[str]) -> list[TableNote]:
    """Look up what tables rest on; one that is not there has no note.

    Parameters
    ----------
    run
        A run, its name or its path.
    tables
        Such as ``"verdicts"`` (all parts), ``"verdicts/people"`` or ``"public/verdicts"`` (of
        another run).

    Returns
    -------
    list of TableNote

    Raises
    ------
    ValueError
        If a name is no table's, or the manifest has an unknown origin.

    Examples
    --------
    >>> note_tables("public", tables=["verdicts/mtbench"])[0].licence
    'CC-BY-4.0'
    """
    own, notes = run if isinstance(run, Run) else open_run(run), list[TableNote]()
    for name in tables:
        first, _, rest = name.partition("/")
        here, table = (own, name) if first in TABLES else (open_run(first), rest)
        entries: JsonObject = here.manifest.get("tables", {})
        kind, _, part = table.partition("/")
        if kind not in TABLES:
            raise ValueError(
                f"{name!r} names no table. There are {', '.join(TABLES)}, also as"
                " 'verdicts/people', 'public/verdicts'."
            )
        # parts of a table come from different places
        for pattern in [table] if part else [kind, f"{kind}/*"]:
            for file in sorted(here.folder.glob(f"{pattern}.parquet")):
                path = str(file.relative_to(here.folder).with_suffix(""))
                notes.append(_note(f"{here.name}/{path}", entries.get(path, {}), file))
    return notes


def versions() -> dict[str, str]:
    installed = {
        package.name.lower().replace("_", "-"): package.version
        for package in importlib.metadata.distributions()
    }
    return {"python": platform.python_version()} | {
        name: installed[name] for name in PACKAGES if name in installed
    }


def show_versions() -> None:
    """Print in one line the versions that figures depend on most.

    Examples
    --------
    >>> show_versions()  # doctest: +ELLIPSIS
    Run with python 3..., heart-utils 0..., numpy ...
    """
    print(f"Run with {versions_in_words()}.")


def versions_in_words() -> str:
    return ", ".join(f"{name} {version}" for name, version in versions().items())


def _note(table: str, entry: Mapping[str, Any], file: Path) -> TableNote:
    rows = pd.read_parquet(file, columns=["simulated"])
    simulated = int(rows["simulated"].sum())
    origin = entry.get("origin", "not recorded")
    counts = dict(origin) if isinstance(origin, Mapping) else {origin: len(rows) - simulated}
    if unknown := sorted(set(counts) - {*ORIGINS, "not recorded"}):
        raise ValueError(
            f"{table}: the manifest says origin {', '.join(unknown)}; expected one of"
            f" {', '.join(ORIGINS)}."
        )
    # The rows' own word counts: no manifest can make a simulated row a measured one, nor account
    # for other rows than these.
    others = {name: count for name, count in counts.items() if name not in MADE_UP}
    if sum(others.values()) != len(rows) - simulated:
        others = {"not recorded": len(rows) - simulated}
    counts = {**others, "rehearsal" if origin == "rehearsal" else "simulated": simulated}
    return TableNote(
        table,
        source=str(entry.get("source", "source not recorded")),
        licence=str(entry.get("licence", "none stated")),
        rows={name: int(count) for name, count in counts.items() if count},
    )


PREFIX = "application/papermill.record/"


def read_results(notebook: str | os.PathLike[str]) -> JsonObject:
    """Read what an executed notebook recorded, to lay the runs of a grid side by side.

    Parameters
    ----------
    notebook
        An executed copy, as papermill writes it.

    Returns
    -------
    dict
        Name, as given to :func:`~heart_utils.report.tables.record_results`, -> number or text, no
        figures.

    Raises
    ------
    ValueError
        If the file is no notebook, or recorded nothing.

    Examples
    --------
    >>> read_results("notebooks/02_the_conversations.ipynb")
    Traceback (most recent call last):
    ValueError: notebooks/02_the_conversations.ipynb recorded nothing. ...
    """
    file = Path(notebook)
    try:
        cells = json.loads(file.read_text(encoding="utf-8"))["cells"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{file} is not a notebook ({type(error).__name__}: {error}).") from None
    results = {}
    for output in (output for cell in cells for output in cell.get("outputs", [])):
        if scrap := output.get("metadata", {}).get("scrapbook"):
            text = "".join(output["data"].get(f"{PREFIX}text/plain", ""))
            with contextlib.suppress(SyntaxError, ValueError):  # a figure
                results[scrap["name"]] = ast.literal_eval(text)
    if not results:
        raise ValueError(
            f"{file} recorded nothing. Is it the executed copy? A chapter under notebooks/ has no"
            " outputs."
        )
    return results
