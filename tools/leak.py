"""Look for the words of texts that may not be passed on, in what is about to be.

``python -m tools.leak build/html some.zip`` reads each page and each file of an archive, and names
every run of eight words (sixteen characters of Chinese) that also stands in ESConv, in HEART's
adversarial histories, in HeartBench's questions, in MentalAlign's questions and explanations, or in
the messages, posts and replies of the studies whose scores or tallies are in ``data/public``.
"""

from __future__ import annotations

import gzip
import html
import io
import json
import re
import sys
import tarfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from heart_utils.sources.catalogue import find_data
from heart_utils.sources.formats import unpack_part
from heart_utils.tables import DataError

__all__ = ["WITHHELD", "Leak", "Withheld", "find_leaks", "read_published", "withheld_texts"]

WITHHELD = ("esconv", "heart", "heartbench", "mentalalign", "welivita", "resort", "therapists")
"""Data sets whose texts are never passed on; of the others the files that are read hold no text."""

RUN, RUN_CJK = 8, 16  # a Chinese word is about two characters long
CJK = "\u3400-\u9fff"
TOKEN = re.compile(f"[{CJK}]|[^\\W_{CJK}]+")
PICTURES = {".gif", ".ico", ".jpeg", ".jpg", ".otf", ".png", ".ttf", ".webp", ".woff", ".woff2"}
"""Pictures and fonts. All else is read: a kind of file that nobody thought of may hold words."""
ZIP, GZIP = b"PK\x03\x04", b"\x1f\x8b"
# in base64, which pages and notebooks hold by the megabyte
PICTURE = re.compile(r"[A-Za-z0-9+/=]{200,}")
ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|[nrtbf\"/])")
APOSTROPHE = re.compile("(?<=\\w)['\u2019](?=\\w)")


@dataclass(frozen=True)
class Leak:
    """A run of words that stands in a published file and in a text that may not be passed on.

    Attributes
    ----------
    file : str
        The page, or the file inside an archive.
    words : str
        The first run found there.
    n_runs : int
        How many runs of the file stand in such a text.
    """

    file: str
    words: str
    n_runs: int


class Withheld:
    """The runs of words of texts that may not be passed on.

    Parameters
    ----------
    texts : iterable of str
        Each is a text of its own: no run goes from one to the next.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        self.vocabulary: dict[str, int] = {}
        digests: dict[int, list[npt.NDArray[np.uint64]]] = {RUN: [], RUN_CJK: []}
        for text in dict.fromkeys(texts):
            tokens = _tokens(text)
            numbers = [self.vocabulary.setdefault(token, len(self.vocabulary)) for token in tokens]
            length = RUN_CJK if re.search(f"[{CJK}]", text) else RUN
            digests[length].append(_digests(np.array(numbers, dtype=np.int64), length))
        # so that each digest has a place before the end
        last = np.array([np.iinfo(np.uint64).max], dtype=np.uint64)
        self.runs = {
            length: np.unique(np.concatenate([*runs, last]))
            for length, runs in digests.items()
            if runs
        }

    def find(self, text: str) -> tuple[int, str]:
        """Count the runs of a text that are withheld.

        Parameters
        ----------
        text : str
            As published.

        Returns
        -------
        tuple of int and str
            How many, and the words of the first.
        """
        tokens = _tokens(text)
        numbers = np.fromiter(
            (self.vocabulary.get(token, -1) for token in tokens), dtype=np.int64, count=len(tokens)
        )
        count, words = 0, ""
        for length, runs in self.runs.items():
            digests = _digests(numbers, length)
            alike = np.flatnonzero(runs[np.searchsorted(runs, digests)] == digests)
            hits = [
                int(position)
                for position in alike
                if (numbers[position : position + length] >= 0).all()
            ]
            if hits:
                count += len(hits)
                words = words or " ".join(tokens[hits[0] : hits[0] + length])
        return count, words


def withheld_texts(names: Sequence[str] = WITHHELD) -> Withheld:
    """Read the texts that may not be passed on, from the mirror or from what `make data` brought.

    Parameters
    ----------
    names : sequence of str
        Names of data sets.

    Returns
    -------
    Withheld

    Raises
    ------
    DataError
        If a set is not here; the message says how to get it.
    """
    files = [file for name in names for file in find_data(name).values()]
    return Withheld(text for file in files for text in _strings(file))


def read_published(published: Path | bytes) -> Iterator[tuple[str, str]]:
    """Read what a folder, a zip or a tar archive holds in letters.

    Parameters
    ----------
    published : pathlib.Path or bytes
        A folder, an archive, or an archive that is not yet written.

    Yields
    ------
    tuple of str and str
        The file's name, and its text, also inside archives (such as workbooks) and gzipped files;
        pictures and fonts are passed over.
    """
    if isinstance(published, Path) and published.is_dir():
        members: Iterable[tuple[str, bytes]] = (
            (str(file.relative_to(published)), file.read_bytes())
            for file in sorted(published.rglob("*"))
            if file.is_file()
        )
    else:
        members = _archived(published if isinstance(published, bytes) else published.read_bytes())
    for name, content in members:
        if content.startswith(GZIP) and not name.endswith((".tgz", ".tar.gz")):
            content = gzip.decompress(content)
        if Path(name).suffix.lower() in PICTURES:
            continue
        if content.startswith((ZIP, GZIP)):
            yield from ((f"{name}/{inner}", text) for inner, text in read_published(content))
        else:
            yield name, content.decode("utf-8", errors="replace")


def _archived(archive: bytes) -> Iterator[tuple[str, bytes]]:
    """Read the files of a zip or a tar archive."""
    file = io.BytesIO(archive)
    if zipfile.is_zipfile(file):
        with zipfile.ZipFile(file) as zipped:
            for name in zipped.namelist():
                if not name.endswith("/"):
                    yield name, unpack_part(zipped, archive, zipped.getinfo(name))
        return
    file.seek(0)  # the look for a zip's end left it elsewhere
    with tarfile.open(fileobj=file) as tar:
        for member in tar:
            if opened := tar.extractfile(member):
                yield member.name, opened.read()


def find_leaks(published: Iterable[tuple[str, str]], withheld: Withheld) -> list[Leak]:
    """Look for withheld words in published files, with their markup and without.

    Parameters
    ----------
    published : iterable of tuple of str and str
        As :func:`read_published` gives it.
    withheld : Withheld
        As :func:`withheld_texts` gives it.

    Returns
    -------
    list of Leak
        One a file.

    Examples
    --------
    >>> secret = Withheld(["nobody here may ever pass these nine words on"])
    >>> page = "<p>They say: nobody here <em>may ever</em> pass these nine words on.</p>"
    >>> find_leaks([("page.html", page)], secret)[0].words
    'nobody here may ever pass these nine words'
    """
    leaks = []
    for name, text in published:
        # In scripts and attributes words stand as they are written; in the page's text tags may
        # part them.
        views = [text] if not name.endswith(".html") else [text, re.sub(r"<[^>]*>", " ", text)]
        counted, words = max(
            (withheld.find(_unescaped(view)) for view in views), key=lambda leak: leak[0]
        )
        if counted:
            leaks.append(Leak(name, words, counted))
    return leaks


def _unescaped(text: str) -> str:
    """Turn entities and the escapes of JSON into what they stand for."""
    return ESCAPE.sub(
        lambda match: chr(int(match[1], 16)) if match[1] else " ",
        html.unescape(PICTURE.sub(" ", text)),
    )


def _tokens(text: str) -> list[str]:
    return TOKEN.findall(APOSTROPHE.sub("", text.lower()))


def _digests(numbers: npt.NDArray[np.int64], length: int) -> npt.NDArray[np.uint64]:
    """Compute a 64-bit number for each run of `length` words.

    It is a polynomial in the words' own numbers.
    """
    if len(numbers) < length:
        return np.empty(0, dtype=np.uint64)
    mixed = (numbers.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(29)
    digest = np.zeros(len(numbers) - length + 1, dtype=np.uint64)
    for offset in range(length):
        digest = digest * np.uint64(0xD6E8FEB86659FD93) + mixed[offset : offset + len(digest)]
    return digest


def _strings(file: Path) -> Iterator[str]:
    """Yield each text that a file of a data set holds."""
    if file.suffix == ".xlsx":
        for sheet in pd.read_excel(
            file, sheet_name=None, header=None, dtype=str, engine="calamine"
        ).values():
            yield from (cell for column in sheet for cell in sheet[column].dropna())
    elif file.suffix == ".csv":
        table = pd.read_csv(file, dtype=str)
        # Lists of numbers are no words: eight in a row stand in any table.
        yield from (
            cell
            for column in table
            for cell in table[column].dropna()
            if re.search("[^\\W\\d_]", cell)
        )
    elif file.suffix in (".json", ".jsonl"):
        words = file.read_text(encoding="utf-8")
        try:
            records: Any = json.loads(words)
        except json.JSONDecodeError:
            records = [json.loads(line) for line in words.splitlines() if line.strip()]
        yield from _leaves(records)


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from _leaves(part)
    elif isinstance(value, list):
        for part in value:
            yield from _leaves(part)


def main(arguments: list[str]) -> int:
    """Look through the folders and archives named."""
    try:
        withheld = withheld_texts()
    except DataError as error:
        print(
            f"{error}\nWithout {', '.join(WITHHELD)} nobody can tell whether their words leak.",
            file=sys.stderr,
        )
        return 2
    leaks = [
        (path, leak)
        for path in arguments
        for leak in find_leaks(read_published(Path(path)), withheld)
    ]
    for path, leak in leaks:
        print(f"{path}: {leak.file}: {leak.n_runs} runs, such as: {leak.words}", file=sys.stderr)
    print(f"{len(leaks)} files hold words of {', '.join(WITHHELD)}.")
    return 1 if leaks else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
