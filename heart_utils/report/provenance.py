"""What a page or a paper rests on, from its rows and the run's ``manifest.json``.

What neither of them says is "not recorded".

So is what the manifest says of another number of rows; a licence that is not recorded is the
strictest.
"""

from __future__ import annotations

import ast
import importlib.metadata
import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from heart_utils.judges.records import NOT_CALIBRATED
from heart_utils.ratings.verdicts import is_simulated
from heart_utils.replies.seekers import seekers_in_words
from heart_utils.report import WORDS
from heart_utils.report.conversation import fill_page
from heart_utils.report.records import CalibrationRecord, load_calibration
from heart_utils.runs import Run, open_run
from heart_utils.settings import JsonObject
from heart_utils.tables import TABLES

if TYPE_CHECKING:
    from heart_utils.ratings.ratings import Ratings

__all__ = ["ORIGINS", "TableNote", "methods", "note_tables", "read_glued", "show_versions"]

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
    """Look up what tables rest on; a table that is not there has no note.

    Parameters
    ----------
    run : Run or str
        A run, its name or its path.
    tables
        Such as ``"verdicts"`` (all parts), ``"verdicts/people"`` or ``"public/verdicts"`` (of
        another run).

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
    own, notes = run if isinstance(run, Run) else open_run(run), list[TableNote]()
    for name in tables:
        first, _, rest = name.partition("/")
        here, table = (own, name) if first in TABLES else (open_run(first), rest)
        entries: JsonObject = here.manifest.get("tables", {})
        kind, _, part = table.partition("/")
        if kind not in TABLES:
            known_names = (
                f"There are {', '.join(TABLES)}, also as 'verdicts/people', 'public/verdicts'."
            )
            raise ValueError(f"{name!r} names no table. {known_names}")
        # parts of a table come from different places
        for pattern in [table] if part else [kind, f"{kind}/*"]:
            for file in sorted(here.folder.glob(f"{pattern}.parquet")):
                path = str(file.relative_to(here.folder).with_suffix(""))
                notes.append(_note(f"{here.name}/{path}", entries.get(path, {}), file))
    return notes


def versions() -> dict[str, str]:
    """List the versions that figures depend on most."""
    installed = {
        package.name.lower().replace("_", "-"): package.version
        for package in importlib.metadata.distributions()
    }
    return {"python": platform.python_version()} | {
        name: installed[name] for name in PACKAGES if name in installed
    }


def show_versions() -> None:
    """Print the versions that figures depend on most in one line, with which a chapter ends.

    Numbers of a chapter come from data, code and libraries. The first two are in the run's manifest
    and in git; this line states the third, as installed where the notebook ran. Put it into the
    last cell of a notebook of your own.

    See Also
    --------
    methods : Write the methods paragraph of a run.
    note_tables : List the sources, licences and origins of the tables on a page.
    open_run : Open a run, whose manifest records the versions too.

    Notes
    -----
    Listed are Python, this package, numpy, pandas and scipy, and the programs that run and build
    the book, papermill and jupyter-book, as far as they are installed. The random streams of
    numpy's generators are stable between versions in practice but not by promise, so keep this line
    with results. The exact versions of everything are pinned in ``requirements.txt``.

    Examples
    --------
    >>> show_versions()  # doctest: +ELLIPSIS
    Run with python 3..., heart-utils 0..., numpy ..., jupyter-book ...
    """
    print(f"Run with {_said_versions()}.")


def _said_versions() -> str:
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
    source, licence = (
        str(entry.get("source", "source not recorded")),
        str(entry.get("licence", "none stated")),
    )
    return TableNote(
        table, source, licence, {name: int(count) for name, count in counts.items() if count}
    )


PREFIX = "application/papermill.record/"


def read_glued(notebook: str | os.PathLike[str]) -> JsonObject:
    """Read what an executed notebook glued, to lay the runs of a grid side by side.

    Papermill runs one notebook with many parameters and writes an executed copy of each. The
    numbers that the chapter glued for its sentences are in these copies, so a grid of runs can be
    compared without a line of code in the notebook itself.

    Parameters
    ----------
    notebook : str or path
        An executed copy, as papermill writes it.

    Returns
    -------
    dict
        Key -> number or text, in the notebook's order, without figures; a key glued twice has its
        last value. Keys are those given to :func:`~heart_utils.report.tables.glue_numbers`, with
        their prefix.

    Raises
    ------
    ValueError
        If the file is no notebook, or nothing in it was glued.

    See Also
    --------
    glue_numbers : Glue numbers in a notebook.
    heart_utils.report.kept.kept : Run a simulation, or read its kept table.
    methods : Write the methods paragraph of a run.

    Notes
    -----
    Only numbers and texts are read; tables of a run are better read from the run itself
    (``open_run``). The format is papermill's record, the media type
    ``application/papermill.record/KEY``, which MyST-NB writes and other tools read as well.

    Examples
    --------
    To compare seeds, run the notebook for each and collect what it glued:

    >>> copies = sorted(Path("grid").glob("seed-*.ipynb"))
    >>> pd.DataFrame([read_glued(copy) for copy in copies]).empty
    True
    >>> read_glued("notebooks/02_the_conversations.ipynb")
    Traceback (most recent call last):
    ValueError: notebooks/02_the_conversations.ipynb glued nothing. Is it the executed copy?
    """
    file = Path(notebook)
    try:
        cells = json.loads(file.read_text(encoding="utf-8"))["cells"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{file} is not a notebook ({type(error).__name__}: {error}).") from None
    outputs = [
        output
        for cell in cells
        for output in cell.get("outputs", [])
        if "scrapbook" in output.get("metadata", {})
    ]
    if not outputs:
        raise ValueError(
            f"{file} glued nothing. Is it the executed copy? A chapter under notebooks/ has no"
            " outputs."
        )
    glued = {}
    for output in outputs:
        text = output["data"].get(f"{PREFIX}text/plain", "")
        try:
            glued[output["metadata"]["scrapbook"]["name"]] = ast.literal_eval("".join(text))
        except (SyntaxError, ValueError):
            continue
    return glued


def methods(
    run: Run | str | os.PathLike[str],
    ratings: Ratings,
    *,
    records: Sequence[CalibrationRecord] | None = None,
    cards: pd.DataFrame | None = None,
) -> str:
    """Write the paragraph of a paper's methods section on the verdicts of a run and a fit to them.

    Parameters
    ----------
    run : Run or str
        A run with the table ``verdicts``, or its name or folder.
    ratings : Ratings
        What was fitted to these verdicts.
    records : sequence of CalibrationRecord, optional
        Of the judges; by default those in the run's folder ``calibration``. A judge without one is
        called "not calibrated".
    cards : pandas.DataFrame, optional
        Of the simulated seekers of a run of conversations, from
        :func:`~heart_utils.report.seekers.check_seekers`.

    Returns
    -------
    str
        What was recorded, citing keys of ``book/references.bib`` as ``[@key]``; who the raters were
        is yours to add.

    Examples
    --------
    >>> from heart_utils import fit_ratings, open_run
    >>> run = open_run("public")
    >>> methods(run, fit_ratings(run.read("verdicts"), n_resamples=0)).split(",")[0]
    '6 responders were compared on 160 histories (80 dialogues) by 65 people and 1 model judge
    (gpt-4)'
    """
    opened, settings = run if isinstance(run, Run) else open_run(run), ratings.settings
    rows = opened.read("verdicts")
    rows = rows[rows["dimension"] == settings["dimension"]]
    raters = rows.groupby("rater_kind")["rater"].unique()
    people, judges = (
        len(raters.get("human", ())),
        sorted({*raters.get("model", ()), *raters.get("trained", ())}),
    )
    if records is None:
        records = [
            load_calibration(file)
            for file in sorted((opened.folder / "calibration").glob("*.json"))
        ]
    calibration = {
        judge: _calibration_of(
            judge, settings["dimension"], records, opened, sorted(rows["protocol"].unique())
        )
        for judge in judges
    }
    counts = {
        "responders": len({*rows["responder_a"], *rows["responder_b"]}),
        "people": people,
        "verdicts": len(rows),
    }
    counts |= {
        "histories": rows["history_id"].nunique(),
        "dialogues": rows["dialogue_id"].nunique(),
    }
    counts |= {
        "entered": ratings.n_verdicts,
        "inconsistent": ratings.n_inconsistent,
        "simulated": int(rows["simulated"].sum()),
    }
    left_out = [(state, f"{count:,}") for state, count in ratings.left_out.items() if count]
    interval_sentence = ""
    if settings["population"] != "none" and settings["interval"] in WORDS["intervals"]:
        clusters = " and ".join(str(name).removesuffix("_id") + "s" for name in settings["cluster"])
        interval_sentence = WORDS["intervals"][settings["interval"]].format(
            n_resamples=settings["n_resamples"], clusters=clusters
        )
    values = {
        "fit": settings,
        "words": WORDS,
        "people": people,
        "judges": judges,
        "protocols": sorted(rows["protocol"].unique()),
    }
    values |= {
        "calibration": calibration,
        "seekers": seekers_in_words(str(settings["population"]), cards),
    }
    values |= {
        "n": {name: f"{count:,}" for name, count in counts.items()},
        "left_out": left_out,
        "how": interval_sentence,
    }
    values |= {
        "shown": rows.dropna(subset="order").groupby(["pair_id", "rater"])["order"].nunique(),
        "simulated": is_simulated(rows),
    }
    values |= {
        "provisional": ratings.table["provisional"].any(),
        "commit": opened.manifest.get("commit", "not recorded"),
    }
    return " ".join(fill_page("methods.txt", **values, versions=_said_versions()).split())


def _calibration_of(
    judge: str,
    dimension: str,
    records: Sequence[CalibrationRecord],
    run: Run,
    protocols: Sequence[str],
) -> str:
    """Describe a judge's record, compared with what the run's manifest says of it."""
    own = [record for record in records if (record.judge, record.dimension) == (judge, dimension)]
    if not own:
        return NOT_CALIBRATED
    # votes from a file have no note that says what the judge is
    noted = run.manifest.get("judges", {}).get(judge, {})
    now = noted.get(protocols[0]) if len(protocols) == 1 else None
    return "; ".join(record.describe(bound_to=now) for record in own)
