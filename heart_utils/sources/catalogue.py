"""The data sets that the project knows: place, revision, checksums, licence and citation."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import quote

from heart_utils.runs import checksum, find_home, find_root
from heart_utils.settings import JsonObject, read_yaml
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
    """One data set; ``data/sources.yaml`` explains each field."""

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


def plain_dialogues(source: Source, file: SourceFile, content: bytes) -> bytes:
    """Return dialogues whatever their white space; other files as they are."""
    if file.kept != "dialogues":
        return content
    try:
        dialogues = json.loads(content)
    except ValueError as error:
        raise DataError(
            f"{source.folder}/{file.file} cannot be read ({error}). Nothing was kept."
        ) from None
    return (json.dumps(_plain(dialogues), sort_keys=True, separators=(",", ":")) + "\n").encode()


def _plain(value: object) -> object:
    if isinstance(value, str):
        return " ".join(value.split())
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value


def find_data(
    name: str, *, keep: Callable[[Source, SourceFile, bytes], bytes] = plain_dialogues
) -> dict[str, Path]:
    """Find a data set's files in the mirror ``HEART_DATA_MIRROR``, else in the cache.

    The checksum is that of what `keep` returns of a mirror's file.
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
        _check(source, file, files[file.file], keep)
    if not mirror and not all(is_whole(file, files[file.file]) for file in source.files):
        raise DataUnavailableError(
            f"The data set {name!r} is not whole in {cache_folder()}. {advice(source)}"
        )
    return files


def cache_folder() -> Path:
    """Return the folder of fetched files: ``HEART_DATA_CACHE``, else ``build/data``."""
    named = os.environ.get("HEART_DATA_CACHE")
    return Path(named).expanduser().resolve() if named else find_home() / "build" / "data"


def advice(source: Source) -> str:
    return (
        f"With a network, run `make data NAME={source.name}`; without one, set HEART_DATA_MIRROR to"
        f" a folder that holds {source.folder}/ (data/sources.yaml lists its files)."
    )


def is_whole(file: SourceFile, path: Path) -> bool:
    """Check that a file is there with the known checksum."""
    return path.is_file() and checksum(path) == file.sha256


def _check(
    source: Source,
    file: SourceFile,
    path: Path,
    keep: Callable[[Source, SourceFile, bytes], bytes],
) -> None:
    if hashlib.sha256(keep(source, file, path.read_bytes())).hexdigest() != file.sha256:
        error_message = (
            f"{path} is damaged, or another version: its checksum is not the one in"
            " data/sources.yaml"
        )
        raise DataError(
            f"{error_message}. Delete it and run `make data NAME={source.name}`, or copy it into"
            " the mirror again."
        )
