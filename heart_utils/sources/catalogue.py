"""The data sets that the project knows, and how they are fetched and checked.

Each has a place, revision, checksums, licence and citation.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import sys
import tarfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import quote

from heart_utils.runs import checksum, find_home, find_root, write_atomically
from heart_utils.settings import JsonObject, read_yaml
from heart_utils.sources.cuts import cut_official, plain_form, read_words
from heart_utils.tables import DataError

__all__ = ["SOURCES", "DataUnavailableError", "Source", "SourceFile"]


class DataUnavailableError(DataError):
    """A data set is neither mirrored nor fetched, and cannot be had now."""


@dataclass(frozen=True, kw_only=True)
class SourceFile:
    """One file of a data set."""

    file: str
    address: str  #: where its official place has it
    sha256: str  #: of what is kept
    more: tuple[str, ...] = ()  #: further official files from which this one is cut
    kept: str = ""  #: all, or ``labels``, ``ratings``, ``dialogues`` or ``cut``
    rows: int | None = None
    columns: int | None = None


@dataclass(frozen=True, kw_only=True)
class Source:
    """One data set, as ``data/sources.yaml`` describes it.

    The comment at the top of that file explains each field.
    """

    name: str = ""
    folder: str
    title: str
    licence: str
    terms: str
    citation: str
    address: str
    ships: str = ""
    table: str = ""
    derivation: str = ""
    by_hand: str = ""
    needs: tuple[str, ...] = ()
    responders: tuple[JsonObject, ...] = field(default=(), repr=False)
    reading: JsonObject = field(default_factory=dict, repr=False)
    files: tuple[SourceFile, ...] = field(default=(), repr=False)

    def url(self, file: SourceFile) -> str:
        """Return the official address of a file."""
        return self.urls(file)[file.address]

    def urls(self, file: SourceFile) -> dict[str, str]:
        """Return the official addresses of all files from which one is cut."""
        parts = (file.address, *file.more)
        return {part: self.address + quote(part) for part in parts}


def find_source(name: str) -> Source:
    """Look a data set up by name."""
    if name not in SOURCES:
        raise DataError(
            f"There is no data set called {name!r}. The data sets are {', '.join(SOURCES)}."
        )
    return SOURCES[name]


SOURCES: dict[str, Source] = {
    name: replace(source, name=name)
    for name, source in read_yaml(
        find_root() / "data" / "sources.yaml", dict[str, Source], DataError
    ).items()
}
"""Name of a data set -> where it comes from and on which terms."""


TIMEOUT = (5.0, 20.0)  #: Seconds to wait for a connection, and for the next bytes of an answer.


def find_data(name: str) -> dict[str, Path]:
    """Find the official files of a data set in a mirror or in the cache, without fetching.

    The mirror is ``HEART_DATA_MIRROR``.
    """
    source = find_source(name)
    mirror = os.environ.get("HEART_DATA_MIRROR")
    folder = (Path(mirror).expanduser().resolve() if mirror else cache_folder()) / source.folder
    files = {file.file: folder / file.file for file in source.files}
    for file in source.files if mirror else ():
        if not files[file.file].is_file():
            error_message = f"The mirror {folder.parent} has no {source.folder}/{file.file}"
            raise DataUnavailableError(
                f"{error_message}. Add it, or unset HEART_DATA_MIRROR and run `make data"
                f" NAME={name}`."
            )
        _check(source, file, files[file.file])
    if not mirror and not all(_whole(file, files[file.file]) for file in source.files):
        raise DataUnavailableError(
            f"The data set {name!r} is not whole in {cache_folder()}. {_advice(source)}"
        )
    return files


def fetch_data(name: str) -> dict[str, Path]:
    """Fetch a data set into the cache, unless it is complete there, and print its terms.

    A failure leaves nothing behind.
    """
    from tqdm import tqdm

    source = find_source(name)
    if source.by_hand:
        raise DataUnavailableError(
            f"{name} is not fetched: {source.by_hand}. data/public holds what is passed on of it."
            f" The official place is {source.address}{source.files[0].address}; data/sources.yaml"
            " names the columns to keep of it, in a folder of HEART_DATA_MIRROR called"
            f" {source.folder}."
        )
    print(
        f"{source.title}\n  licence: {source.terms}\n  cite: {source.citation}\n  from:"
        f" {source.address}",
        flush=True,
    )
    bar = tqdm(source.files, desc=name, unit="file", disable=not sys.stderr.isatty())
    folder = cache_folder() / source.folder
    for file in bar:
        if _whole(file, folder / file.file):
            continue
        kept = (
            _cut(source, file)
            if file.kept == "cut"
            else _keep(source, file, _download(source, source.url(file)))
        )
        if hashlib.sha256(kept).hexdigest() != file.sha256:
            raise DataError(
                f"{source.url(file)} is damaged or was changed: its checksum is not the one known."
                f" Nothing was kept. Run `make data NAME={source.name}` again; if it happens twice,"
                " the official file has changed."
            )
        write_atomically(folder / file.file, kept)
    return {file.file: folder / file.file for file in source.files}


def cache_folder() -> Path:
    """Return the folder of fetched files: ``HEART_DATA_CACHE``, else ``build/data``."""
    named = os.environ.get("HEART_DATA_CACHE")
    return Path(named).expanduser().resolve() if named else find_home() / "build" / "data"


def _cut(source: Source, file: SourceFile) -> bytes:
    """Fetch the official files of a cut one by one; of what they hold only the cut is kept."""
    parts = {part: _download(source, url) for part, url in source.urls(file).items()}
    try:
        return plain_form(source.reading, cut_official(source.name, parts))
    except (AttributeError, LookupError, TypeError, ValueError, tarfile.TarError) as error:
        raise DataError(
            f"{source.url(file)} has another layout than the one known"
            f" ({type(error).__name__}: {error}). Nothing was kept."
        ) from None


def _download(source: Source, url: str) -> bytes:
    import requests

    try:
        answer = requests.get(url, timeout=TIMEOUT)
        answer.raise_for_status()
    except requests.exceptions.ChunkedEncodingError as error:
        raise DataError(
            f"{url} was cut short ({error}). Nothing was kept. {_advice(source)}"
        ) from None
    except requests.exceptions.RequestException as error:
        raise DataUnavailableError(
            f"{url} could not be reached ({error}). {_advice(source)}"
        ) from None
    return answer.content


def _advice(source: Source) -> str:
    return (
        f"With a network, run `make data NAME={source.name}`; without one, set HEART_DATA_MIRROR to"
        f" a folder that holds {source.folder}/ (data/sources.yaml lists its files)."
    )


def _whole(file: SourceFile, path: Path) -> bool:
    return path.is_file() and checksum(path) == file.sha256


def _check(source: Source, file: SourceFile, path: Path) -> None:
    if hashlib.sha256(_keep(source, file, path.read_bytes())).hexdigest() != file.sha256:
        error_message = (
            f"{path} is damaged, or another version: its checksum is not the one in"
            " data/sources.yaml"
        )
        raise DataError(
            f"{error_message}. Delete it and run `make data NAME={source.name}`, or copy it into"
            " the mirror again."
        )


def _keep(source: Source, file: SourceFile, content: bytes) -> bytes:
    """Keep what is used of a file; what was kept once stays as it is."""
    if not file.kept:
        return content
    steps: dict[str, Callable[[bytes], bytes]] = {"labels": _labels, "dialogues": _dialogues}
    steps["ratings"] = partial(_ratings, source.reading)
    steps["cut"] = partial(_plain, source.reading)
    try:
        return steps[file.kept](content)
    except Exception as error:  # a damaged Parquet, CSV or JSON file has no common class of error
        raise DataError(
            f"{source.folder}/{file.file} cannot be read ({error}). Nothing was kept."
        ) from None


def _labels(content: bytes) -> bytes:
    """Keep the labels of MT-Bench's Parquet files as sorted JSON Lines.

    Conversations are never read.
    """
    if not content.startswith(b"PAR1"):
        return content
    import pyarrow.parquet as pq

    key = ["question_id", "turn", "model_a", "model_b", "judge"]
    rows = pq.read_table(io.BytesIO(content), columns=[*key, "winner"]).to_pylist()
    rows.sort(key=lambda row: tuple(row[column] for column in key))
    return "".join(
        json.dumps(row, sort_keys=True, separators=(",", ":")) + "\n" for row in rows
    ).encode()


def _ratings(reading: JsonObject, content: bytes) -> bytes:
    """Keep the ids and scores of a file of ratings, by name, without its conversations."""
    rows = list(csv.reader(io.StringIO(content.decode("utf-8"), newline="")))
    named = {
        *reading["row_ids"],
        *chain.from_iterable((of["id"], *of["dimensions"]) for of in reading["sets"].values()),
    }
    used = [column for column, head in enumerate(rows[0]) if head in named]
    if len(used) == len(rows[0]):
        return content
    kept = io.StringIO(newline="")
    csv.writer(kept, lineterminator="\n").writerows(
        [row[column] for column in used] for row in rows
    )
    return kept.getvalue().encode()


def _plain(reading: dict[str, Any], content: bytes) -> bytes:
    """Write a table that was cut before in the one form."""
    return plain_form(reading, read_words(content))


def _dialogues(content: bytes) -> bytes:
    """Write HEART's dialogues in one form, whatever the white space they came with."""

    def plain(value: object) -> object:
        if isinstance(value, str):
            return " ".join(value.split())
        if isinstance(value, list):
            return [plain(item) for item in value]
        if isinstance(value, dict):
            return {key: plain(item) for key, item in value.items()}
        return value

    return (
        json.dumps(plain(json.loads(content)), sort_keys=True, separators=(",", ":")) + "\n"
    ).encode()
