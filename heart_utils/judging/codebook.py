"""Codebooks for replies: what each label means, how a coder is asked for it, and how its answer is read."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from heart_utils.calls.models import Call
from heart_utils.judging.blinding import JudgeError
from heart_utils.judging.readings import REFUSAL
from heart_utils.runs import find_root

__all__ = ["Code", "Codebook", "load_codebooks"]

Codebook = tuple["Code", ...]

ANSWERED = ("ok", "truncated")
DECODER = json.JSONDecoder(strict=False)
WORDS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


@dataclass(frozen=True)
class Code:
    """One label of a codebook.

    Attributes
    ----------
    name : str
        In snake_case.
    says : str
        What a reply does where the label holds.
    words : tuple of str
        A lexicon for the label, if the codebook has one.
    """

    name: str
    says: str
    words: tuple[str, ...] = ()


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
    try:
        books = yaml.safe_load(path.read_text(encoding="utf-8"))["codebooks"]
    except (OSError, yaml.YAMLError, UnicodeDecodeError, KeyError, TypeError) as error:
        raise JudgeError(
            f"{path} holds no codebooks ({error}). Expected YAML with `codebooks:`, name -> list of codes."
        ) from None
    found: dict[str, Codebook] = {}
    seen: set[str] = set()
    for name, codes in books.items():
        for code in codes:
            if not code.get("name") or not code.get("says") or code["name"] in seen:
                raise JudgeError(f"{path}, {name}: each code needs a name of its own and what it says; got {code!r}.")
            seen.add(code["name"])
        found[name] = tuple(Code(code["name"], code["says"], tuple(map(str, code.get("words", ())))) for code in codes)
    return found


def answer_form(codes: Codebook) -> str:
    """Say in words, and by a pattern, how to answer."""
    pattern = json.dumps(dict.fromkeys((code.name for code in codes), "true or false"))
    return f"Answer with one JSON object and nothing else, every label with true or false, after this pattern:\n{pattern}"


def answer_schema(codes: Codebook) -> dict[str, Any]:
    """Give the JSON schema of an answer."""
    names = [code.name for code in codes]
    properties = {name: {"type": "boolean"} for name in names}
    return {"type": "object", "properties": properties, "required": names, "additionalProperties": False}


def read_labels(call: Call, codes: Codebook) -> tuple[dict[str, tuple[float | None, str]], str | None]:
    """Read an answer."""
    names = [code.name for code in codes]
    if call.status not in ANSWERED:
        return dict.fromkeys(names, (None, call.status if call.status in ("refused", "error") else "error")), None
    found = _find_object(call.text, names)
    if found is None and REFUSAL.match(call.text):
        return dict.fromkeys(names, (None, "refused")), None
    if found is None:
        return dict.fromkeys(names, (None, "unparsed")), "it holds no JSON object with the labels"
    read = {name: _truth(found.get(name)) for name in names}
    faults = [f"{name} is {json.dumps(found.get(name))[:40]}" for name, value in read.items() if value is None]
    cells: dict[str, tuple[float | None, str]] = {
        name: (None, "unparsed") if value is None else (float(value), "valid") for name, value in read.items()
    }
    return cells, f"{', '.join(faults)}; expected true or false" if faults else None


def _truth(value: Any) -> bool | None:
    if isinstance(value, bool):
        return value
    return WORDS.get(value.strip().lower()) if isinstance(value, str) else WORDS.get(str(value))


def _find_object(text: str, names: Sequence[str]) -> dict[str, Any] | None:
    """Find the last object in a text that has any of the labels."""
    found, start = None, text.find("{")
    while start >= 0:
        end = start + 1
        try:
            value, end = DECODER.raw_decode(text, start)
            found = value if isinstance(value, dict) and set(names) & set(value) else found
        except (ValueError, RecursionError):
            pass
        start = text.find("{", end)
    return found
