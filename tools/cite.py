"""Write this project's own entry for a bibliography, from ``CITATION.cff``."""

from __future__ import annotations

from pathlib import Path

import yaml

from heart_utils.runs import write_atomically
from tools.settings import read_settings

__all__ = ["cite_project", "write_citation"]


def cite_project(root: Path, note: str) -> str:
    """Return the project's BibTeX entry.

    Parameters
    ----------
    root : pathlib.Path
        The project's root, whose ``CITATION.cff`` has title, authors and version; the address comes
        from ``[tool.heart]`` in ``pyproject.toml``, and there is none while that is empty.
    note : str
        Which commit it is.

    Returns
    -------
    str
        An entry of type ``software``, with the key ``heart_in_the_open``.
    """
    citation = yaml.safe_load((root / "CITATION.cff").read_text(encoding="utf-8"))
    fields = {
        "title": f"{{{citation['title']}}}",
        "author": " and ".join(f"{{{author['name']}}}" for author in citation["authors"]),
        "year": str(citation.get("date-released", "2026"))[:4],
        "version": str(citation["version"]),
        "url": read_settings(root).address,
        "note": note,
    }
    lines = [f"  {name} = {{{words}}}" for name, words in fields.items() if words]
    return "@software{heart_in_the_open,\n" + ",\n".join(lines) + "\n}\n"


def write_citation(root: Path, page: Path, note: str) -> None:
    """Write the entry as a block of code that a page includes."""
    block = f"```text\n{cite_project(root, note)}```\n"
    write_atomically(page, block.encode())
