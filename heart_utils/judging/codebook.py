"""Codebooks for replies: what each label means."""

from __future__ import annotations

import os
from pathlib import Path

from heart_utils.judging.prompts import Code, Codebook
from heart_utils.judging.questions import JudgeError
from heart_utils.runs import find_root
from heart_utils.settings import read_strictly, read_yaml

__all__ = ["Code", "Codebook", "load_codebooks"]

CODEBOOKS = ("release", "esconv", "focus", "safety")
"""What coders are asked about unless a recipe says otherwise."""


def load_codebooks(file: str | os.PathLike[str] | None = None) -> dict[str, Codebook]:
    """Load codebooks for replies.

    Parameters
    ----------
    file : path, optional
        YAML like ``data/rubrics/strategies.yaml``, which is read if none is given.

    Returns
    -------
    dict
        Name of a codebook -> its codes.

    Raises
    ------
    JudgeError
        If the file cannot be read, or a code has no name or definition, or a name stands in it twice.

    Examples
    --------
    >>> {name: len(codes) for name, codes in load_codebooks().items()}
    {'release': 15, 'esconv': 8, 'focus': 4, 'safety': 4, 'risk': 2}
    """
    path = find_root() / "data" / "rubrics" / "strategies.yaml" if file is None else Path(file)
    books = read_yaml(path, JudgeError).get("codebooks")
    if not isinstance(books, dict):
        raise JudgeError(f"{path} holds no codebooks. Expected YAML with `codebooks:`, name -> list of codes.")
    where = f"{path}: each code needs a name of its own and what it says"
    found = {name: read_strictly(Codebook, codes, where, JudgeError) for name, codes in books.items()}
    names = [code.name for codes in found.values() for code in codes]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise JudgeError(f"{where}; {twice!r} stands twice.")
    return found
