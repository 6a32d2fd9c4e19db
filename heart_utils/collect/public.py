"""Bring published votes and scores into the run ``public``, where chapters read them.

``python -m heart_utils.collect.public`` (`make public`) writes ``runs/public`` from the mirror, the cache,
or the official places, one part of a table for each data set, and says what could not be had. It does
nothing for a set that is there already and was made by the same code from the same files.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from pathlib import Path

import pandas as pd

from heart_utils.collect.sources import (
    SOURCES,
    DamagedDataError,
    DataUnavailableError,
    find_data,
    load_responders,
    load_scores,
    load_verdicts,
)
from heart_utils.runs import Run, RunError, open_run

__all__ = ["PARTS", "collect_public"]

PARTS: dict[str, tuple[str, Callable[[], pd.DataFrame]]] = {
    "mtbench": ("verdicts", lambda: load_verdicts("mtbench")),
    "mentalalign": ("scores", lambda: load_scores("mentalalign")),
    "empathic_comm": ("scores", lambda: load_scores("empathic_comm")),
}
"""Data set -> the table that holds it, as a part of the set's name, and what loads it; responders come with each."""


def collect_public(run: Run) -> dict[str, str]:
    """Write each published set that can be had into a run.

    Parameters
    ----------
    run : Run
        Usually ``open_run("public")``. Its manifest gets an entry for each set: source, licence,
        citation, checksums, number of rows.

    Returns
    -------
    dict
        Data set -> what became of it, in words.

    Raises
    ------
    DamagedDataError
        If a file is there and is not what it should be. Data that are absent are no error; data that
        are wrong are.

    Examples
    --------
    >>> from heart_utils import Run
    >>> import tempfile
    >>> from unittest.mock import patch
    >>> with tempfile.TemporaryDirectory() as folder, patch.dict("os.environ", HEART_DATA_MIRROR=folder):
    ...     said = collect_public(Run("public", Path(folder, "public"), Path(folder)))
    >>> {name: words.split(".")[0] for name, words in said.items()}  # an empty mirror has none of them
    {'mtbench': 'absent', 'mentalalign': 'absent', 'empathic_comm': 'absent'}
    """
    return {name: _collect(run, name) for name in PARTS}


def _collect(run: Run, name: str) -> str:
    source, (table, load) = SOURCES[name], PARTS[name]
    entry = f"{table}/{name}"
    try:
        find_data(name)
    except DataUnavailableError as error:
        return "kept from before" if run.has(table, name) else f"absent. {error}"
    made_from = _digest(name)
    if run.has(table, name) and run.manifest.get("made_from", {}).get(entry) == made_from:
        return "unchanged"
    rows = load()
    run.write(table, rows, name)
    run.write("responders", load_responders(name), name)
    about = {"source": source.title, "licence": source.licence, "citation": source.citation, "origin": "published"}
    run.record(
        tables={entry: about, f"responders/{name}": about},
        data={name: {file.name: file.sha256 for file in source.files}},
        made_from={entry: made_from},
    )
    return f"{len(rows):,} {table}, {source.terms}"


def _digest(name: str) -> str:
    """Condense the files of a set, whose checksums were just compared, and the code that reads them."""
    package = Path(__file__).resolve().parents[1]
    code = [package / "tables.py", Path(__file__), *sorted((package / "collect" / "sources").glob("*.py"))]
    digest = hashlib.sha256("".join(file.sha256 for file in SOURCES[name].files).encode())
    for file in code:
        digest.update(file.read_bytes())
    return digest.hexdigest()


def main() -> int:
    """Collect what can be had, and say a line about each set."""
    try:
        for name, said in collect_public(open_run("public")).items():
            print(f"{name}: {said}")
    except (DamagedDataError, RunError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("Interrupted: whole tables stay, nothing half-written does.", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
