"""The data sets that the project knows: official place, pinned revision, checksums, licence, citation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import pandas as pd
import yaml

from heart_utils.runs import find_root
from heart_utils.sources.errors import DataError
from heart_utils.tables import check_table

__all__ = ["ESCONV_SUPPORTER", "FAMILIES", "SOURCES", "Source", "SourceFile"]


@dataclass(frozen=True)
class SourceFile:
    """One file of a data set.

    Attributes
    ----------
    file : str
        Its name in a mirror and in the cache, below the folder of its set.
    address : str
        Where the official place has it, below the set's own address.
    sha256 : str
        Checksum of what is kept.
    kept : str
        What is kept of it: empty for all of it; ``"labels"``, ``"ratings"`` or ``"dialogues"`` for
        a part, as :mod:`heart_utils.sources.fetch` describes.
    rows, columns : int, optional
        Its size, where a loader checks it.
    """

    file: str
    address: str
    sha256: str
    kept: str = ""
    rows: int | None = None
    columns: int | None = None


@dataclass(frozen=True)
class Source:
    """One data set, as ``data/sources.yaml`` describes it.

    Attributes
    ----------
    name : str
        What the loaders call it.
    folder : str
        Its folder in a mirror and in the cache.
    title : str
        What it is, in a line.
    licence : str
        One of the names that :func:`heart_utils.runs.strictest_licence` ranks.
    terms : str
        What the licence covers and what it does not.
    citation : str
        Who made it.
    address : str
        The official place at a pinned revision, with a slash at its end.
    ships : str
        What ``data/public/`` holds of it: ``"labels"``, ``"tallies"`` (counts of ours), or nothing.
    derivation : str
        How that is made from the official files.
    needs : tuple of str
        Other sets without which it cannot be read.
    responders : tuple of dict
        Who wrote the replies, as rows of the table of responders.
    files : tuple of SourceFile
        What is read of it.
    """

    name: str
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
    files: tuple[SourceFile, ...] = field(default=(), repr=False)

    def url(self, file: SourceFile) -> str:
        """Give the official address of a file."""
        return self.address + quote(file.address)


def find_source(name: str) -> Source:
    """Look a data set up by name."""
    if name not in SOURCES:
        raise DataError(f"There is no data set called {name!r}. The data sets are {', '.join(SOURCES)}.")
    return SOURCES[name]


def _read_sources() -> dict[str, Source]:
    text = (find_root() / "data" / "sources.yaml").read_text(encoding="utf-8")
    blocks = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return {name: _read_source(name, **block) for name, block in blocks.items()}


def _read_source(name: str, *, files: list[dict[str, Any]], **block: Any) -> Source:
    block |= {key: tuple(block.get(key, ())) for key in ("needs", "responders")}
    return Source(name=name, files=tuple(SourceFile(**file) for file in files), **block)


SOURCES: dict[str, Source] = _read_sources()
"""Name of a data set -> where it comes from and on which terms."""

ESCONV_SUPPORTER = "esconv-supporter"

FAMILIES = {"claude-3.7-sonnet": "anthropic", "gpt-4o": "openai", "gpt-4": "openai", "o4-mini": "openai"}
FAMILIES |= {"gemini-2.5-flash": "google", "gemini-2.5-pro": "google"}
"""Name of a model that judges -> its family, as in the column ``family`` of responders."""


def load_responders(name: str) -> pd.DataFrame:
    """Tell who wrote the replies of a data set."""
    if name == "sample":
        from heart_utils.sources.files import read_sample

        return read_sample("responders")
    source = SOURCES.get(name)
    if source is None or not source.responders:
        known = ", ".join(name for name, source in SOURCES.items() if source.responders)
        raise DataError(f"No responders are known for {name!r}. They are for {known} and sample.")
    rows = pd.DataFrame(source.responders, columns=["responder", "responder_kind", "family", "model", "size"])
    return check_table("responders", rows.assign(released=None, price=None, simulated=False))
