"""Codebooks, with the words that show each code, and the points of HeartBench's rubric."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from heart_utils.runs import find_root
from heart_utils.settings import Text, read_yaml

__all__ = ["Code", "Codebook", "CodebookError", "load_codebooks", "load_rubric_items"]


class CodebookError(ValueError):
    """A file of codebooks cannot be read."""


@dataclass(frozen=True)
class Code:
    """One label of a codebook: what a reply does where it applies, and its lexicon, if any."""

    name: Text
    says: Text
    words: tuple[str, ...] = ()


Codebook = tuple[Code, ...]


@dataclass(frozen=True)
class Codebooks:
    """The file of codebooks: name -> codes."""

    codebooks: dict[Text, Codebook]
    about: str = ""


def load_codebooks() -> dict[str, Codebook]:
    """Load the codebooks for replies and turns, those of ``data/rubrics/strategies.yaml``.

    Returns
    -------
    dict
        Name of a codebook -> its codes.

    Raises
    ------
    CodebookError
        If the file cannot be read, or a name stands in it twice.

    Examples
    --------
    >>> {name: len(codes) for name, codes in load_codebooks().items()}
    {'release': 15, 'esconv': 8, 'focus': 4, 'safety': 4, 'risk': 2, 'seeker': 1}
    """
    path = find_root() / "data" / "rubrics" / "strategies.yaml"
    codebooks: dict[str, Codebook] = read_yaml(path, Codebooks, CodebookError).codebooks
    names = [code.name for codes in codebooks.values() for code in codes]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise CodebookError(
            f"{path}: {twice[0]!r} stands twice; each code needs a name of its own."
        )
    return codebooks


def load_rubric_items() -> pd.DataFrame:
    """Load the points of HeartBench's rubric items, without their words.

    Returns
    -------
    pandas.DataFrame
        ``question_id``, ``item``, ``ability``, ``points``, ``difficulty``, ``scene``.

    Examples
    --------
    >>> len(load_rubric_items())
    3114
    """
    return pd.read_parquet(find_root() / "data" / "heartbench" / "rubric.parquet")
