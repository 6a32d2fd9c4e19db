"""What pages say of the run and the project: licences, addresses, and contact."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from data.make.download import find_official
from heart_utils.report.tables import TableNote
from heart_utils.runs import may_publish, strictest_licence, write_atomically
from heart_utils.sources.catalogue import SOURCES, Source
from heart_utils.tables import DataError
from tools.settings import contact_words, launch_words, read_settings

__all__ = ["absent_sets", "shared_inputs", "write_governance"]

DOWNLOADS = ("sample/README.md", "sample/croissant.json", "heart/README.md", "heart/croissant.json")
COLAB, NO_ADDRESS = "hosted/colab.ipynb", 'repository = \\"\\"'


def write_governance(root: Path, book: Path, notes: Iterable[TableNote]) -> None:
    """Write the pieces that prose pages of a staged book include.

    Parameters
    ----------
    root : pathlib.Path
        The project's root.
    book : pathlib.Path
        The staged folder of prose.
    notes : iterable of TableNote
        Of the tables that the chapters read.
    """
    settings = read_settings(root)
    pieces = {"launch.txt": launch_words(settings), "contact.txt": contact_words(settings)}
    pieces["shared.txt"] = shared_inputs(
        notes, sets=[one for one in _unshipped() if one.name not in absent_sets()]
    )
    for name, text in pieces.items():
        write_atomically(book / name, text.encode())
    for name in DOWNLOADS:
        write_atomically(book / "data" / name, (root / "data" / name).read_bytes())
    if (book / COLAB).is_file():
        words = (book / COLAB).read_text(encoding="utf-8")
        address = json.dumps(f"repository = {json.dumps(settings.repository)}")[1:-1]
        write_atomically(book / COLAB, words.replace(NO_ADDRESS, address, 1).encode())


def shared_inputs(notes: Iterable[TableNote], *, sets: Iterable[Source] = ()) -> str:
    """Write which of the inputs of a book may be passed on, and on which terms.

    Parameters
    ----------
    notes : iterable of TableNote
        As for :func:`write_governance`.
    sets : iterable of Source
        Data sets that chapters count in without keeping a table of them.

    Returns
    -------
    str
        A list in MyST, what may not be passed on first, and the strictest licence.

    Examples
    --------
    >>> note = TableNote("sample/verdicts", "a class of ten", "CC-BY-NC-4.0", {})
    >>> print(shared_inputs([note]).splitlines()[0])
    - **figures only**, CC-BY-NC-4.0: a class of ten (sample/verdicts)
    """
    tables: dict[tuple[str, str], set[str]] = {
        (one.title, one.licence): {"counts in chapters, no table"} for one in sets
    }
    for note in notes:
        made_up = set(note.rows) == {"simulated"}
        source = "simulated by this project" if made_up else note.source.partition(" (CC ")[0]
        tables.setdefault((source, note.licence), set()).add(note.table)
    if not tables:
        return "No table was read for this copy.\n"
    lines = [
        f"- **{'all of it' if may_publish(licence) else 'figures only'}**, {licence}: {source}"
        f" ({', '.join(sorted(names))})"
        for (source, licence), names in sorted(
            tables.items(), key=lambda entry: (may_publish(entry[0][1]), entry[0])
        )
    ]
    strictest = strictest_licence([licence for _, licence in tables])
    return "\n".join([*lines, "", f"The strictest of them is **{strictest}**.", ""])


def absent_sets() -> set[str]:
    """Name the absent data sets with terms of their own, which no chapter could use."""
    absent = set()
    for source in _unshipped():
        try:
            find_official(source.name)
        except DataError:
            absent.add(source.name)
    return absent


def _unshipped() -> list[Source]:
    return [source for source in SOURCES.values() if not source.ships]
