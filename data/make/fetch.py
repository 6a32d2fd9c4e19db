"""The command behind ``make data NAME=...``: terms, then files, checked and compared.

``data/public`` is in the repository and is the run ``public``, so no chapter needs a download.
``NAME=check`` compares it with all official files, ``NAME=write`` derives it again from a mirror or
from the files that `make data` brought, and ``NAME=status`` says of every study whether it is
measured, quoted, wanted or unreachable.
"""

from __future__ import annotations

import io
import json
import os
import sys
from typing import Any

import pandas as pd
import pyarrow as pa
from pyarrow import parquet

from data.make.download import fetch_data, find_official
from data.make.official import PUBLISHED, derive
from heart_utils.evidence import read_quoted
from heart_utils.runs import FORMAT, PUBLIC, RunError, find_root, open_run, write_atomically
from heart_utils.settings import read_yaml
from heart_utils.sources.catalogue import SOURCES, cache_folder
from heart_utils.sources.load import load_responders
from heart_utils.tables import DataError

__all__: list[str] = []

COMMANDS = ("list", "status", "check", "write")
USAGE = (
    f"Usage: make data NAME=..., where NAME is {', '.join(COMMANDS)} or one of"
    f" {', '.join(SOURCES)}."
)

WORDS = 200  #: Characters shown of how two tables differ.

TALLIES_LICENCE = "CC0-1.0"  #: Of our own counts of rows that may not be passed on themselves.


def derive_tables(name: str) -> dict[str, pd.DataFrame]:
    """Derive from its official files what ``data/public`` holds of a study."""
    tables = {SOURCES[name].table: derive(name), "responders": load_responders(name)}
    return tables | (
        {"as_published": derive(name, as_published=True)} if name == "mentalalign" else {}
    )


def write_public() -> None:
    """Write ``data/public`` whole: every set is derived before the first file is replaced."""
    run = open_run(PUBLIC)
    derived = {name: derive_tables(name) for name in PUBLISHED}
    for name, tables in derived.items():
        for table, rows in tables.items():
            # Smaller than what a run writes, for it stays in the repository.
            content = rows.to_parquet(index=False, compression="zstd", compression_level=19)
            write_atomically(run.folder / table / f"{name}.parquet", content)
    write_atomically(
        run.folder / "manifest.json",
        (json.dumps(_manifest(), indent=1, ensure_ascii=False) + "\n").encode(),
    )


def compare_public(name: str) -> list[str]:
    """Derive a set again and name what differs from ``data/public``."""
    folder = open_run(PUBLIC).folder
    differences = []
    for table, rows in derive_tables(name).items():
        file = folder / table / f"{name}.parquet"
        if not file.is_file():
            differences.append(f"{file} is not there.")
            continue
        try:
            # Through the same format, which writes lists and notes in its own way.
            again = parquet.read_table(io.BytesIO(rows.to_parquet(index=False)))
            shipped = parquet.read_table(file)
            if not (shipped.equals(again) and _types(shipped) == _types(again)):
                # which says where they differ, and takes ten times as long
                pd.testing.assert_frame_equal(
                    shipped.to_pandas(), again.to_pandas(), check_exact=True
                )
        except AssertionError as error:
            words = " ".join(str(error).split())
            differences.append(
                f"{file} (left) is not what the official files give (right): {words[:WORDS]} ..."
            )
            continue
        if _notes(shipped) != _notes(again):
            differences.append(f"{file}: the notes are not what the official files give.")
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    if any(manifest[key] != value for key, value in _manifest().items()):
        differences.append(f"{folder / 'manifest.json'} is not what data/sources.yaml says.")
    return differences


def _types(table: pa.Table) -> list[dict[str, Any]]:
    """Read which type each column has in pandas."""
    types: list[dict[str, Any]] = (table.schema.pandas_metadata or {}).get("columns", [])
    return types


def _notes(table: pa.Table) -> dict[str, Any]:
    """Read what pandas kept of a frame's notes, ``attrs``, in a table's schema."""
    notes: dict[str, Any] = json.loads((table.schema.metadata or {}).get(b"PANDAS_ATTRS", b"{}"))
    return notes


def show_status() -> None:
    """Print of every study whether it is measured, quoted, wanted or unreachable, and its terms."""
    for source in SOURCES.values():
        state = "measured" if source.ships else "by make data"
        print(
            f"{state:13} {source.name:21} {source.ships or 'nothing':8} {source.licence:17}"
            f" {source.title}"
        )
    for study in read_quoted(find_root() / "data" / "published" / "effects.csv").itertuples():
        print(f"{'quoted':13} {study.study}: {study.outcome} ({study.read}; {study.source})")
    wanted = _wanted()
    for name, study in wanted["studies"].items():
        print(f"{study['state']:13} {name:21} {study['title']}: {study['why']} ({study['place']})")
    print(f"Looked for on {wanted['looked_on']}; the words are in data/README.md.")


def _wanted() -> dict[str, Any]:
    """Read which studies would be measured and cannot be."""
    wanted: dict[str, Any] = read_yaml(
        find_root() / "data" / "wanted.yaml", dict[str, Any], DataError
    )
    return wanted


def _manifest() -> dict[str, object]:
    """Describe each set's source, terms, and what was made of it."""
    tables: dict[str, dict[str, str]] = {}
    data = {}
    for name in PUBLISHED:
        source = SOURCES[name]
        about = {
            "source": source.title,
            "licence": source.licence,
            "terms": source.terms,
            "citation": source.citation,
        }
        about |= {
            "address": source.address,
            "derivation": source.derivation,
            "ships": source.ships,
            "origin": "published",
        }
        if source.ships == "tallies":
            about["licence"] = TALLIES_LICENCE
        tables |= {f"{source.table}/{name}": about, f"responders/{name}": about}
        data[name] = {file.file: file.sha256 for file in source.files}
    return {"format": FORMAT, "run": PUBLIC, "tables": tables, "data": data}


def main(arguments: list[str]) -> int:
    """Fetch a data set and those it needs, list all, or compare ``data/public`` or write it.

    The comparison is with all official files.

    It is 1 if a set cannot be had or gives something else than ``data/public`` holds, 2 if the
    command was not understood.
    """
    if len(arguments) == 1 and (study := _wanted()["studies"].get(arguments[0])):
        print(
            f"{arguments[0]} is {study['state']}: this project has no loader of it and fetches"
            f" nothing. {study['title']}. {study['why']}. Its place: {study['place']}",
            file=sys.stderr,
        )
        return 1
    if len(arguments) != 1 or arguments[0] not in (*COMMANDS, *SOURCES):
        print(USAGE, file=sys.stderr)
        return 2
    command = arguments[0]
    if command == "list":
        for source in SOURCES.values():
            print(f"{source.name:14} {source.licence:13} {source.title}")
        return 0
    if command == "status":
        show_status()
        return 0
    try:
        if command == "write":
            write_public()
        mirror = os.environ.get("HEART_DATA_MIRROR")
        for source in (
            ()
            if command in COMMANDS
            else [SOURCES[name] for name in (*SOURCES[command].needs, command)]
        ):
            if mirror:
                print(f"{source.title}\n  licence: {source.terms}\n  cite: {source.citation}")
            files = find_official(source.name) if mirror else fetch_data(source.name)
            print(
                f"  {len(files)} files, checked, in"
                f" {f'the mirror {mirror}' if mirror else cache_folder() / source.folder}"
            )
        names = [name for name in PUBLISHED if command in (*COMMANDS, name)]
        differences = [difference for name in names for difference in compare_public(name)]
    except (DataError, RunError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(
            "Interrupted: whole files stay in the cache, nothing half-written does.",
            file=sys.stderr,
        )
        return 130
    if differences:
        print("\n".join(differences), file=sys.stderr)
    elif names:
        made = SOURCES[command].derivation if command in SOURCES else ", ".join(names)
        print(f"  data/public holds what these files give: {made}")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
