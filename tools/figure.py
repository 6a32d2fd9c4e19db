"""Take a figure out of an executed notebook, with the words that belong to it.

``python -m tools.figure 01_who_supports_better fig-forest book/forest.svg`` saves the figure that
the README shows, from the executed copy of the run ``sample``.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from heart_utils.runs import find_root, write_atomically
from tools.notebooks import NotebookError, read_cells

__all__ = ["Figure", "read_figure"]


@dataclass(frozen=True)
class Figure:
    """A picture, what it shows in words, and the sentence below it."""

    svg: bytes
    alt: str
    caption: str


def read_figure(copy: Path, name: str) -> Figure:
    """Find a figure by the name in its cell's metadata (``mystnb.figure.name``).

    Parameters
    ----------
    copy : pathlib.Path
        An executed notebook.
    name : str
        Such as ``"fig-leaderboard"``.

    Returns
    -------
    Figure
        With the alt text and the caption of the same cell.

    Raises
    ------
    NotebookError
        If no cell has the name, or its cell drew nothing.
    """
    words = {cell["id"]: cell["metadata"].get("mystnb", {}) for cell in read_cells(copy)}
    names = [metadata["figure"]["name"] for metadata in words.values() if "figure" in metadata]
    for cell in read_cells(copy):
        metadata = words[cell["id"]]
        if metadata.get("figure", {}).get("name") != name:
            continue
        for output in cell.get("outputs", []):
            if "image/svg+xml" in output.get("data", {}):
                drawn = "".join(output["data"]["image/svg+xml"]).encode()
                return Figure(
                    drawn,
                    metadata.get("image", {}).get("alt", ""),
                    metadata["figure"].get("caption", ""),
                )
        raise NotebookError(f"{copy}: the cell of {name!r} drew nothing.")
    raise NotebookError(f"{copy} has no figure {name!r}. It has {', '.join(names) or 'none'}.")


def main(arguments: list[str]) -> int:
    """Save the figure of a chapter, named second, in the file named third."""
    chapter, name, file = arguments
    root = find_root()
    try:
        figure = read_figure(root / "build" / "executed" / "sample" / f"{chapter}.ipynb", name)
    except NotebookError as error:
        print(f"{error} Run `make book` first.", file=sys.stderr)
        return 1
    write_atomically(root / file, figure.svg)
    print(f"{file}: {figure.alt}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
