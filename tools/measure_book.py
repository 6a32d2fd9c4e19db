"""Count how long the chapters are, how much of them is code, and how much of the code is folded.

``python -m tools.measure_book`` (`make measure-book`) reads the notebooks, and counts screens in
the built pages if a browser is there.
"""

from __future__ import annotations

import re
import sys
from contextlib import suppress
from pathlib import Path

import pandas as pd
import yaml

from heart_utils.runs import find_root
from tools.notebooks import read_cells
from tools.study_visitor import BrowserMissing, browser

__all__ = ["count_cells", "count_screens", "reading_minutes"]

HIDING = {"hide-input", "hide-cell", "remove-input", "remove-cell"}
SCREEN = 1_000
"""Pixels of height, at 1,400 of width."""
WORDS_A_MINUTE = 200
SECONDS_A_LINE = 2
"""Of code in sight, for whoever follows it and does not type it."""
NARROW = 79
"""Columns of code in the books that ours is compared with."""

ANCHORS = (
    "For comparison: ThinkBayes2 has 74.5 code cells a chapter, 2 lines in the median, 13.7 words a"
    " line; QuantEcon 21.9, 5, 10.2."
)


def count_cells(notebook: Path) -> dict[str, float]:
    """Count words, visible code cells with their lines, and the share of folded lines.

    Lines are summed up as median, longest, and words to a line.
    """
    words, visible, hidden, folded, wide = 0, [], 0, 0, 0
    for cell in read_cells(notebook):
        if cell["cell_type"] == "markdown":
            words += _count_words(cell["source"])
            continue
        lines = sum(
            1
            for line in cell["source"].splitlines()
            if line.strip() and not line.strip().startswith("#")
        )
        wide += sum(len(line) > NARROW for line in cell["source"].splitlines())
        if HIDING & set(cell["metadata"].get("tags", [])):
            folded += lines
            hidden += 1
        else:
            visible.append(lines)
    visible_lines = pd.Series(visible, dtype=float)
    return {
        "words": words,
        "code cells": len(visible_lines),
        "hidden": hidden,
        "median lines": visible_lines.median(),
        "longest": visible_lines.max(),
        "words a line": words / visible_lines.sum(),
        "folded share": folded / (folded + visible_lines.sum()),
        f"over {NARROW}": wide / (folded + visible_lines.sum()),
    }


def reading_minutes(notebook: Path) -> tuple[int, int]:
    """Estimate how long a chapter takes to read.

    Parameters
    ----------
    notebook : pathlib.Path
        Its source; exercises and what follows them are not counted.

    Returns
    -------
    text : int
        Minutes for the prose and the captions.
    with_code : int
        Minutes with the code in sight as well.
    """
    words, lines = 0, 0
    for cell in read_cells(notebook):
        source = cell["source"]
        if cell["cell_type"] == "markdown":
            if re.search(r"^## Exercises", source, flags=re.MULTILINE):
                break
            words += _count_words(source)
            continue
        words += _count_words(
            cell["metadata"].get("mystnb", {}).get("figure", {}).get("caption", "")
        )
        if not HIDING & set(cell["metadata"].get("tags", [])):
            lines += sum(1 for line in source.splitlines() if line.strip())
    text = words / WORDS_A_MINUTE
    return round(text), round(text + lines * SECONDS_A_LINE / 60)


def _count_words(text: str) -> int:
    prose = re.sub(r"\{[\w:]+\}|```.*?```", " ", text, flags=re.DOTALL)
    return len(re.findall(r"\w+(?:['.,-]\w+)*", prose))


def count_screens(pages: list[Path]) -> dict[str, float]:
    """Measure how high the built pages are, in screens of 1,000 pixels.

    The result is empty without Chromium and playwright.
    """
    heights: dict[str, float] = {}
    with suppress(BrowserMissing), browser() as chromium:
        tab = chromium.new_page(viewport={"width": 1_400, "height": SCREEN})
        for page in pages:
            tab.goto(page.as_uri(), wait_until="load")
            height = tab.evaluate("document.querySelector('article').scrollHeight")
            heights[page.stem] = height / SCREEN
    return heights


def _sum_up(table: pd.DataFrame) -> str:
    """Say what some chapters have together."""
    whole = table[["words", "code cells", "hidden", "screens"]].sum()
    in_sight = table["words"] / table["words a line"]
    every_line = (in_sight / (1 - table["folded share"])).sum()
    return (
        f"{whole['words']:,.0f} words, {whole['code cells']:.0f} code cells in sight and"
        f" {whole['hidden']:.0f} hidden, {whole['screens']:.0f} screens;"
        f" {whole['words'] / in_sight.sum():.1f} words a line,"
        f" {1 - in_sight.sum() / every_line:.2f} of the lines folded."
    )


def main() -> int:
    """Print one line a chapter, and the whole."""
    root = find_root()
    chapters = sorted((root / "notebooks").glob("[0-9]*.ipynb"))
    table = pd.DataFrame({chapter.stem: count_cells(chapter) for chapter in chapters}).T
    built = [root / "build" / "html" / "notebooks" / f"{name}.html" for name in table.index]
    screens = count_screens([page for page in built if page.is_file()])
    table["screens"] = pd.Series(screens, dtype=float)
    print(table.round(2).to_string(na_rep="-"))
    toc = yaml.safe_load((root / "_toc.yml").read_text(encoding="utf-8"))
    appendices = {
        Path(page["file"]).name
        for part in toc["parts"]
        if part.get("caption") == "Appendix"
        for page in part["chapters"]
    }
    is_appendix = table.index.isin(appendices)
    print(f"\nChapters: {_sum_up(table[~is_appendix])}")
    print(f"Appendices: {_sum_up(table[is_appendix])}")
    print(
        ANCHORS
        if screens
        else f"Screens need a built book, Chromium and playwright (make test-services). {ANCHORS}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
