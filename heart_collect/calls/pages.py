"""Read what is whole of a damaged SQLite ledger, page by page.

Whatever leads to a page may be broken.

The form of the file is that of https://sqlite.org/fileformat2.html: rows lie in leaves of trees,
what is too long for a page goes on in others, and the newest pages may still be in the file that
ends with ``-wal``. A call counts if its digest fits.
"""

from __future__ import annotations

import hashlib
import math
import re
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from heart_collect.calls.database import batches, calls, owners
from heart_collect.calls.rows import seal
from heart_utils.runs import RunError

__all__: list[str] = []

LEAF = 13  #: The first byte of a page whose cells are rows.
PAGE_SIZE = 16384  #: Of our ledgers, where the header of a file does not say.
NOTES = ("schema ", "seed ")  #: How notes begin that decide what is asked, or read, again.
KINDS: dict[type, Callable[[Any], Any]] = {float: float, int: int, bool: bool}

Row = dict[str, Any]


@dataclass
class Whole:
    """Rows of a ledger that are whole."""

    answers: dict[str, Row] = field(default_factory=dict)  # key -> a row of calls, the newest
    held: dict[str, Row] = field(default_factory=dict)  # what batches, or processes, had claimed
    bodies: dict[str, str] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    owners: dict[str, Row] = field(default_factory=dict)
    batches: dict[str, Row] = field(default_factory=dict)

    @property
    def spent(self) -> float:
        """Compute the least that was spent: as recorded, or the sum of answers if more."""
        noted = sum(float(row["spent_usd"]) for row in self.owners.values())
        return max(noted, sum(float(row["cost_usd"] or 0.0) for row in self.answers.values()))

    @property
    def unsettled(self) -> float:
        """What calls may have cost whose end nobody heard, those in flight now with them."""
        in_flight = [
            row["reserved_usd"] or 0.0
            for row in self.held.values()
            if row["owner"] not in self._open
        ]
        return float(sum(in_flight) + sum(row["unsettled_usd"] for row in self.owners.values()))

    @property
    def in_batches(self) -> list[Row]:
        """Rows of calls whose provider has them in a batch."""
        return [
            row
            for key, row in self.held.items()
            if row["owner"] in self._open and key not in self.answers
        ]

    @property
    def _open(self) -> set[str]:
        return {
            row["owner"] for row in self.batches.values() if row["status"] in ("creating", "open")
        }


def read_whole(file: Path) -> Whole:
    """Read all rows of a ledger's file that are whole."""
    try:
        content = file.read_bytes()
    except OSError as error:
        raise RunError(f"{file} cannot be read ({error.strerror}).") from None
    size, reserved = (
        _page_size(content),
        content[20] if len(content) > 20 and content[20] < 64 else 0,
    )
    pages = {n + 1: content[n * size : (n + 1) * size] for n in range(len(content) // size)}
    with suppress(OSError):
        pages |= _newer_pages(file.with_name(f"{file.name}-wal").read_bytes(), size)
    whole = Whole()
    for number, page in pages.items():
        for cells in _rows(page, number, pages, size - reserved):
            with suppress(ValueError, TypeError, KeyError):
                _take(cells, whole)
    return whole


def _page_size(content: bytes) -> int:
    size = int.from_bytes(content[16:18], "big")
    size = 65536 if size == 1 else size
    return size if size >= 512 and size & (size - 1) == 0 else PAGE_SIZE


def _newer_pages(content: bytes, size: int) -> dict[int, bytes]:
    """Read the pages of transactions that are committed and not yet in the ledger's own file."""
    pages: dict[int, bytes] = {}
    begun: dict[int, bytes] = {}
    salts = content[16:24]
    for start in range(32, len(content) - size - 23, size + 24):
        number, ends = struct.unpack(">II", content[start : start + 8])
        if content[start + 8 : start + 16] != salts:
            break
        begun[number] = content[start + 24 : start + 24 + size]
        if ends:
            pages |= begun
            begun = {}
    return pages


def _rows(page: bytes, number: int, pages: dict[int, bytes], usable: int) -> Iterator[list[Any]]:
    """Read the rows of one page that can be read."""
    head = 100 if number == 1 else 0
    if len(page) < head + 8 or page[head] != LEAF:
        return
    n_cells = int.from_bytes(page[head + 3 : head + 5], "big")
    for pointer in range(head + 8, min(head + 8 + 2 * n_cells, len(page) - 1), 2):
        with suppress(ValueError, IndexError, KeyError, UnicodeDecodeError, struct.error):
            yield _record(
                _payload(page, int.from_bytes(page[pointer : pointer + 2], "big"), pages, usable)
            )


def _payload(page: bytes, start: int, pages: dict[int, bytes], usable: int) -> bytes:
    """Assemble a row's bytes from its page and the pages on which it continues."""
    length, at = _varint(page, start)
    _, at = _varint(page, at)  # the number of the row
    most, least = usable - 35, (usable - 12) * 32 // 255 - 23
    local = length
    if length > most:
        local = least + (length - least) % (usable - 4)
        local = local if local <= most else least
    payload = page[at : at + local]
    following = int.from_bytes(page[at + local : at + local + 4], "big")
    while len(payload) < length:
        more = pages[following]  # a KeyError, should it point nowhere
        following = int.from_bytes(more[:4], "big")
        payload += more[4 : min(usable, 4 + length - len(payload))]
    return payload


def _record(payload: bytes) -> list[Any]:
    """Read the cells of a row."""
    head, at = _varint(payload, 0)
    kinds = []
    while at < head:
        kind, at = _varint(payload, at)
        kinds.append(kind)
    if at != head:
        raise ValueError("the head of a row does not end where it says")
    cells: list[Any] = []
    for kind in kinds:
        length = (0, 1, 2, 3, 4, 6, 8, 8, 0, 0)[kind] if kind < 10 else (kind - 12) // 2
        raw = payload[at : at + length]
        if kind in (10, 11) or len(raw) != length:
            raise ValueError("a cell of a row is not whole")
        at += length
        if kind in (0, 8, 9):
            cells.append({0: None, 8: 0, 9: 1}[kind])
        elif kind < 7:
            cells.append(int.from_bytes(raw, "big", signed=True))
        elif kind == 7:
            cells.append(struct.unpack(">d", raw)[0])
        else:
            cells.append(raw.decode() if kind % 2 else raw)
    return cells


def _varint(content: bytes, at: int) -> tuple[int, int]:
    """Read a number of one to nine bytes, and tell where it ends."""
    value = 0
    for n in range(8):
        byte = content[at + n]
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at + n + 1
    return value << 8 | content[at + 8], at + 9


def _take(cells: list[Any], whole: Whole) -> None:
    """Keep a row if it is one of a ledger's and whole."""
    tables = {len(table.c): table for table in (calls, owners, batches)}
    if len(cells) == 2:
        name, value = cells
        if (
            isinstance(value, str)
            and hashlib.sha256(value.encode("utf-8", "surrogatepass")).hexdigest()[:16] == name
        ):
            whole.bodies[name] = value
        elif isinstance(value, str) and str(name).startswith(NOTES):
            whole.notes[name] = value
        return
    table = tables.get(len(cells))
    if table is None:
        return
    row: Row = {
        column.name: (
            None if cell is None else KINDS.get(column.type.python_type, lambda value: value)(cell)
        )
        for column, cell in zip(table.c, cells, strict=True)
    }
    if table is owners and all(
        math.isfinite(row[name]) and row[name] >= 0 for name in ("spent_usd", "unsettled_usd")
    ):
        whole.owners[row["owner"]] = max(
            row, whole.owners.get(row["owner"], row), key=lambda one: one["seen_at"]
        )
    elif table is batches and isinstance(row["model"], str):
        whole.batches[row["owner"]] = row
    elif table is calls and re.fullmatch(r"[0-9a-f]{32}", row["key"]):
        _take_call(row, whole)


def _take_call(row: Row, whole: Whole) -> None:
    """Keep the newest whole row of a call."""
    if row["status"] == "claimed":
        whole.held[row["key"]] = row
    elif row["digest"] == seal(row["key"], row["answer"], row):
        other = whole.answers.get(row["key"], row)
        whole.answers[row["key"]] = max(row, other, key=lambda one: one["finished_at"] or 0.0)
