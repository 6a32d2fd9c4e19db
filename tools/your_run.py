"""Move sections that only a reader's own run fills to one page, while they are empty.

The cell with such a section's heading carries the tag ``your-run``. Where a run fills the section,
it stays in its chapter.
"""

from __future__ import annotations

import re
from typing import Any

__all__ = ["move_empty_sections"]

TAG = "your-run"
HEADING = re.compile(r"^(?:\([\w-]+\)=\n)*#{1,2} ", flags=re.MULTILINE)
RESULTS = ("image/svg+xml", "image/png", "text/html")


def move_empty_sections(cells: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], str]:
    """Take sections without a result out of a chapter.

    So no numbered heading stands without one.

    Parameters
    ----------
    cells : list of dict
        Of an executed notebook.

    Returns
    -------
    kept : list of dict
        The cells without those sections.
    moved : str
        The sections in MyST, their code folded; an empty text where each section has a result.
    """
    kept, moved, position = [], "", 0
    while position < len(cells):
        cell = cells[position]
        after = position + 1
        if TAG in cell["metadata"].get("tags", []):
            while after < len(cells) and not _opens_a_section(cells[after]):
                after += 1
            section = cells[position:after]
            if not any(map(_has_result, section)):
                source = "".join(cell["source"])
                at = HEADING.search(source)
                if at is None:
                    raise ValueError(f"The cell tagged {TAG} opens no section: {source[:80]!r}.")
                if before := source[: at.start()].strip():  # the end of the section before it
                    kept.append({**cell, "source": before})
                moved += _as_prose([{**cell, "source": source[at.start() :]}, *section[1:]])
                position = after
                continue
        kept += cells[position:after]
        position = after
    return kept, moved


def _opens_a_section(cell: dict[str, Any]) -> bool:
    return cell["cell_type"] == "markdown" and HEADING.search("".join(cell["source"])) is not None


def _has_result(cell: dict[str, Any]) -> bool:
    """Check whether a cell shows a figure or a table."""
    return any(
        kind in output.get("data", {})
        for output in cell.get("outputs", [])
        if output.get("output_type") in ("display_data", "execute_result")
        for kind in RESULTS
    )


def _as_prose(section: list[dict[str, Any]]) -> str:
    """Write a section for a page of prose, with its code in one fold."""
    words = [cell["source"] for cell in section if cell["cell_type"] == "markdown"]
    code = ["".join(cell["source"]) for cell in section if cell["cell_type"] == "code"]
    prose = "\n\n".join("".join(part).strip() for part in words)
    folded = "\n\n\n".join(part.strip().removesuffix(";") for part in code)
    code_fold = f"````{{dropdown}} What the section computes\n```python\n{folded}\n```\n````"
    return f"\n\n{prose}\n\n{code_fold}\n"
