"""Keep every number that the book prints in one file, so that a commit that moves one shows which.

``tests/printed_numbers.json`` has a line for each value that a chapter glues into a sentence, as
the page that prints most digits of it has it, for each entry of a numbered table, and for each
value that a cell shows bare. `make test` compares the built sample book with it; ``python -m
tools.pin`` (`make pin`) writes it anew and prints what moved.

Last digits of a float depend on the processor. A glued number is therefore compared before it is
rounded: it may lie half a unit of the last printed digit from what is pinned, and a hair more,
since a value on the edge of two roundings is printed either way. Whole numbers, names, and entries
of tables must be equal.
"""

from __future__ import annotations

import json
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bs4 import BeautifulSoup

from heart_utils.report.tables import read_results
from heart_utils.runs import find_root, write_atomically
from tools.notebooks import read_cells
from tools.plan import read_plan

__all__ = [
    "Moved",
    "NotBuiltError",
    "PrintedNumber",
    "compare",
    "read_chapter_numbers",
    "read_pinned",
    "read_printed",
    "read_specs",
    "write_pinned",
]

PINNED = "tests/printed_numbers.json"
GLUED = re.compile(
    r"\{glue:text\}`(?:[^`:]*?(?P<chapter>\w+)\.ipynb::)?(?P<key>[\w-]+)(?::(?P<spec>[^`]+))?`"
)
NUMBER = re.compile(r"[+-]?[\d,]+(?:\.\d+)?")
UNSEEN = ".2f"
"""The form of a glued number that no page prints."""
BARE = re.compile(r"(?:np\.float64\()?(-?\d+\.\d+)\)?")
MAX_DECIMALS = 8
"""Those of numpy, of a number that a cell shows with all its digits."""
HAIR = 1e-9
"""Share of a value by which it may differ from one processor to another: observed are 1e-14."""
SENTENCE = 60
"""An entry of a table with more characters is a sentence of a file, not a result."""


class NotBuiltError(ValueError):
    """The sample book has not been built, or not all of it."""


@dataclass(frozen=True)
class PrintedNumber:
    """One value that a page prints.

    Attributes
    ----------
    text : str
        As printed.
    value : float or None
        Before it was rounded; None for a name, a whole number, and an entry of a table.
    """

    text: str
    value: float | None = None


@dataclass(frozen=True)
class Moved:
    """One value that is not as it was pinned.

    Attributes
    ----------
    name : str
        Such as ``"09_scores_and_weights/hb-raw-worse"``.
    old, new : str or None
        What is pinned, and what the built book prints; None where it is not there.
    """

    name: str
    old: str | None
    new: str | None

    def __str__(self) -> str:
        if self.old is None:
            return f"{self.name}: {self.new} is new"
        if self.new is None:
            return f"{self.name}: {self.old} is gone"
        return f"{self.name}: {self.old} -> {self.new}"


def read_printed(root: Path) -> dict[str, PrintedNumber]:
    """Read what the built sample book prints.

    Parameters
    ----------
    root : pathlib.Path
        The project's root.

    Returns
    -------
    dict
        ``chapter/key`` -> value of a sentence; ``chapter/table/row/column`` -> entry of a table;
        ``chapter/shown by the cell id`` -> value that a cell shows.

    Raises
    ------
    NotBuiltError
        If a chapter of the sample run has no executed copy.
    """
    executed = root / "build" / "executed" / "sample"
    chapters = [chapter.name for chapter in read_plan(root, "sample").chapters]
    if absent := [name for name in chapters if not (executed / f"{name}.ipynb").is_file()]:
        raise NotBuiltError(
            f"The book is not built ({', '.join(absent)} not in {executed}). Run `make book` first."
        )
    specs = read_specs(root)
    return {
        name: number
        for chapter in chapters
        for name, number in read_chapter_numbers(
            executed / f"{chapter}.ipynb", chapter, specs
        ).items()
    }


def read_chapter_numbers(
    copy: Path, chapter: str, specs: Mapping[tuple[str, str], set[str]]
) -> dict[str, PrintedNumber]:
    """Read what one executed copy of a chapter prints, in the forms of :func:`read_specs`."""
    printed: dict[str, PrintedNumber] = {}
    for key, value in read_results(copy).items():
        printed[f"{chapter}/{key}"] = _as_printed(value, specs.get((chapter, key), set()))
    for name, number in _read_shown(copy):
        printed[f"{chapter}/{name}"] = number
    return printed


def read_specs(root: Path) -> dict[tuple[str, str], set[str]]:
    """Collect how the pages print each glued value: (chapter, key) -> format specifications."""
    pages = [*(root / "notebooks").glob("*.ipynb"), *(root / "book").rglob("*.md")]
    specs = defaultdict[tuple[str, str], set[str]](set)
    for page in pages:
        for glued in GLUED.finditer(page.read_text(encoding="utf-8")):
            specs[glued["chapter"] or page.stem, glued["key"]].add(glued["spec"] or "")
    return specs


def _as_printed(value: Any, specs: set[str]) -> PrintedNumber:
    """Print a glued value in the form that shows most of its digits."""
    if isinstance(value, str):
        return PrintedNumber(value)
    texts = [_format(value, spec) for spec in specs or {UNSEEN if isinstance(value, float) else ""}]
    text = max(sorted(texts), key=_decimals)
    return PrintedNumber(text, value if isinstance(value, float) else None)


def _format(value: Any, spec: str) -> str:
    try:
        return format(value, spec)
    except ValueError:  # of an executed copy that is older than its page
        return str(value)


def _decimals(text: str) -> int:
    return len(text.partition(".")[2])


def _read_shown(copy: Path) -> Iterator[tuple[str, PrintedNumber]]:
    """Yield each entry of an executed copy's numbered tables, and each bare value."""
    for cell in read_cells(copy):
        table = cell["metadata"].get("mystnb", {}).get("figure", {}).get("name", "")
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            if table.startswith("tab-"):
                page = "".join(data.get("text/html", ""))
                yield from (
                    (f"{table}/{name}", PrintedNumber(text)) for name, text in _read_entries(page)
                )
            elif output["output_type"] == "execute_result" and {*data} == {"text/plain"}:
                yield f"shown by the cell {cell['id']}", _as_shown("".join(data["text/plain"]))


def _as_shown(text: str) -> PrintedNumber:
    """Read a value that a cell shows.

    The last digits of a float with all its digits depend on the processor.
    """
    number = BARE.fullmatch(text)
    if number and _decimals(number[1]) > MAX_DECIMALS:
        return PrintedNumber(f"{float(number[1]):.{MAX_DECIMALS}f}", float(number[1]))
    return PrintedNumber(text)


def _read_entries(page: str) -> Iterator[tuple[str, str]]:
    rows = [
        [entry.get_text() for entry in row(["th", "td"])]
        for row in BeautifulSoup(page, "html.parser")("tr")
    ]
    if not rows:
        return
    head, *body = rows
    times = defaultdict[str, int](int)
    for label, *entries in body:
        times[label] += 1
        row = f"{label} ({times[label]})" if times[label] > 1 else label
        for column, entry in zip(head[1:], entries, strict=True):
            if len(entry) <= SENTENCE:
                yield f"{row}/{column}", entry


def read_pinned(root: Path) -> dict[str, str]:
    """Read what is pinned, by the names of :func:`read_printed`."""
    file = root / PINNED
    pinned: dict[str, str] = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    return pinned


def write_pinned(root: Path, printed: Mapping[str, PrintedNumber]) -> list[Moved]:
    """Write what is printed, one value a line, sorted by name; return what moved.

    A value that did not move keeps its line.
    """
    pinned = read_pinned(root)
    moved = compare(pinned, printed)
    for change in moved:
        if change.new is None:
            del pinned[change.name]
        else:
            pinned[change.name] = change.new
    lines = json.dumps(pinned, indent=0, sort_keys=True, ensure_ascii=False)
    write_atomically(root / PINNED, f"{lines}\n".encode())
    return moved


def compare(pinned: Mapping[str, str], printed: Mapping[str, PrintedNumber]) -> list[Moved]:
    """List what moved, appeared or vanished.

    Parameters
    ----------
    pinned : mapping of str to str
        From :func:`read_pinned`.
    printed : mapping of str to PrintedNumber
        From :func:`read_printed`.

    Returns
    -------
    list of Moved
        By name; empty if the book prints what is pinned.
    """
    moved = []
    for name in sorted({*pinned, *printed}):
        old = pinned.get(name)
        number = printed.get(name)
        new = None if number is None else number.text
        if old is None or number is None or not _is_same(old, number):
            moved.append(Moved(name, old, new))
    return moved


def _is_same(old: str, number: PrintedNumber) -> bool:
    if (
        old == number.text
        or number.value is None
        or not NUMBER.fullmatch(old)
        or _decimals(old) != _decimals(number.text)
    ):
        return old == number.text
    half_a_unit = 0.5 * 10.0 ** -_decimals(old)
    hair = HAIR * max(1.0, abs(number.value))
    return abs(float(old.replace(",", "")) - number.value) <= half_a_unit + hair


def main() -> None:
    """Write the file anew, and print each value that moved, appeared or vanished."""
    root = find_root()
    try:
        printed = read_printed(root)
    except NotBuiltError as error:
        sys.exit(str(error))
    moved = write_pinned(root, printed)
    for change in moved:
        print(change)
    print(
        f"{len(moved):,} of {len(printed):,} printed values moved, appeared or vanished. They are"
        f" in {PINNED}."
    )


if __name__ == "__main__":
    main()
