"""The data sets that the project knows: official place, pinned revision, checksums, licence, citation."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import quote

import pandas as pd

from heart_utils.runs import find_root
from heart_utils.settings import read_yaml
from heart_utils.tables import check_table

__all__ = ["SOURCES", "DamagedDataError", "DataError", "DataUnavailableError", "Source", "SourceFile"]


class DataError(ValueError):
    """A file or a data set does not hold what was asked of it."""


class DataUnavailableError(DataError):
    """A data set is neither mirrored nor fetched, and cannot be had now."""


class DamagedDataError(DataError):
    """A file came, but cut short or with another content than the one that was checked."""


@dataclass(frozen=True, kw_only=True)
class SourceFile:
    """One file of a data set: its name here, where its official place has it, and what is known of it.

    ``kept`` says what is kept of it: all, or ``labels``, ``ratings`` or ``dialogues``, as
    ``heart_utils.sources.fetch`` describes; ``sha256`` is the checksum of that.
    """

    file: str
    address: str
    sha256: str
    kept: str = ""
    rows: int | None = None
    columns: int | None = None


@dataclass(frozen=True, kw_only=True)
class Source:
    """One data set, as ``data/sources.yaml`` describes it; the comment at the top of that file explains each field."""

    name: str = ""
    folder: str
    title: str
    licence: str
    terms: str
    citation: str
    address: str
    ships: str = ""
    derivation: str = ""
    needs: tuple[str, ...] = ()
    responders: tuple[dict[str, Any], ...] = field(default=(), repr=False)
    reading: dict[str, Any] = field(default_factory=dict, repr=False)
    files: tuple[SourceFile, ...] = field(default=(), repr=False)

    def url(self, file: SourceFile) -> str:
        """Give the official address of a file."""
        return self.address + quote(file.address)


def find_source(name: str) -> Source:
    """Look a data set up by name."""
    if name not in SOURCES:
        raise DataError(f"There is no data set called {name!r}. The data sets are {', '.join(SOURCES)}.")
    return SOURCES[name]


SOURCES: dict[str, Source] = {
    name: replace(source, name=name)
    for name, source in read_yaml(find_root() / "data" / "sources.yaml", dict[str, Source], DataError).items()
}
"""Name of a data set -> where it comes from and on which terms."""


def load_responders(name: str) -> pd.DataFrame:
    """Tell who wrote the replies of a data set."""
    if name == "sample":
        from heart_utils.sources.files import read_sample

        return read_sample("responders")
    source = SOURCES.get(name)
    if source is None or not source.responders:
        known = ", ".join(name for name, source in SOURCES.items() if source.responders)
        raise DataError(f"No responders are known for {name!r}. They are for {known} and sample.")
    return check_table("responders", pd.DataFrame(source.responders))
