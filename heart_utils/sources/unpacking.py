"""Unpack files of strangers: how much may come out of them is known before it is in memory.

A packed file of 400 KB can hold a gigabyte of one letter.
"""

from __future__ import annotations

import gzip
import io
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

import pyarrow as pa

from heart_utils.tables import DataError

__all__: list[str] = []

MAX_RATIO = 100  #: So many times its size a packed file may unpack to; logs and votes take 5 to 30.
SMALL = 32_000_000  #: Bytes that any packed file may unpack to, however small it is.
MAX_BYTES = 2_000_000_000  #: Bytes that no file may unpack to more than.
CHUNK = 1_000_000
#: How inspect_ai packs the parts of a log, which zipfile cannot unpack before Python 3.14.
ZSTD = 93
#: Bytes before the name of a packed part; the lengths of name and extra field are in the last four.
LOCAL_HEADER = 30


class Allowance:
    """So many bytes as a file may still unpack to."""

    def __init__(self, file: Path, n_packed: int) -> None:
        self.file = file
        self.n_packed = n_packed
        self.most = min(MAX_BYTES, max(SMALL, MAX_RATIO * n_packed))
        self.left = self.most

    def spend(self, n_bytes: int) -> None:
        """Take so many bytes, or refuse the file."""
        self.left -= n_bytes
        if self.left < 0:
            raise DataError(
                f"{self.file}: its {self.n_packed:,} bytes unpack to more than {self.most:,}, the"
                f" most that a file of this size may hold here. If it is really so large, unpack"
                " it yourself and give the part that has the votes."
            )

    def gather(self, chunks: Iterable[bytes]) -> bytes:
        """Join what is unpacked, as long as it is within the bound."""
        pieces = []
        for chunk in chunks:
            self.spend(len(chunk))
            pieces.append(chunk)
        return b"".join(pieces)


def in_chunks(stream: IO[bytes] | pa.NativeFile) -> Iterator[bytes]:
    """Read what a stream unpacks, chunk by chunk."""
    while chunk := stream.read(CHUNK):
        yield chunk


def unpack_gzip(content: bytes) -> Iterator[bytes]:
    """Unpack what gzip packed; OSError or EOFError where it is damaged or was cut short."""
    return in_chunks(gzip.GzipFile(fileobj=io.BytesIO(content)))


def unpack_zstd(content: bytes) -> Iterator[bytes]:
    """Unpack what zstandard packed; OSError where it is damaged or was cut short."""
    return in_chunks(pa.input_stream(pa.BufferReader(content), compression="zstd"))


def unpack_part(archive: zipfile.ZipFile, content: bytes, part: zipfile.ZipInfo) -> Iterator[bytes]:
    """Unpack a part of a zip archive, of which `content` are the bytes."""
    if part.compress_type != ZSTD:
        return in_chunks(archive.open(part))
    lengths = content[part.header_offset + LOCAL_HEADER - 4 : part.header_offset + LOCAL_HEADER]
    start = (
        part.header_offset
        + LOCAL_HEADER
        + int.from_bytes(lengths[:2], "little")
        + int.from_bytes(lengths[2:], "little")
    )
    return unpack_zstd(content[start : start + part.compress_size])
