"""Refuse a committed notebook that holds outputs: what a reader sees must come from a run.

``python -m tools.check_notebooks`` looks at every notebook in ``notebooks/`` and names what it
finds.
"""

from __future__ import annotations

import sys
from pathlib import Path

from heart_utils.runs import find_root
from tools.notebooks import NotebookError, read_cells, read_chapter

__all__ = ["find_faults"]


def find_faults(notebook: Path) -> list[str]:
    """List what keeps a source notebook from being committed.

    Parameters
    ----------
    notebook : pathlib.Path
        A source notebook.

    Returns
    -------
    list of str
        One sentence a fault; none for a clean notebook.
    """
    try:
        read_chapter(notebook)
        cells = read_cells(notebook)
    except NotebookError as error:
        return [str(error)]
    kept = [
        number
        for number, cell in enumerate(cells, 1)
        if cell.get("outputs") or cell.get("execution_count")
    ]
    return [
        f"{notebook}: cell {number} holds outputs or a run count. Clear them before committing."
        for number in kept
    ]


def main() -> int:
    """Check all notebooks of the project."""
    faults = [
        fault
        for path in sorted((find_root() / "notebooks").glob("*.ipynb"))
        for fault in find_faults(path)
    ]
    print("\n".join(faults) or "Notebooks are free of outputs.")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
