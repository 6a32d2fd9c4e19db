"""The rubric: the dimensions that raters are asked about, each with a question and two anchors."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from heart_utils.runs import find_root

__all__ = ["Dimension", "Rubric", "RubricError", "load_rubric"]

SNAKE_CASE = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
RESERVED = ("reasoning", "winner", "margin", "score")
"""Names that the answer of a judge uses itself."""


class RubricError(ValueError):
    """A rubric's file does not say what a rubric must say."""


@dataclass(frozen=True)
class Dimension:
    """One line of a rubric.

    Attributes
    ----------
    name : str
        In snake_case; the word in the column ``dimension``.
    question : str
        What to ask of a reply.
    high, low : str
        What a reply at either end does.
    """

    name: str
    question: str
    high: str
    low: str


@dataclass(frozen=True)
class Rubric:
    """Dimensions in the order of their file.

    Attributes
    ----------
    name, title, about : str
        What it is called, a line for captions, and where its words come from.
    dimensions : tuple of Dimension
        At least one, each with a name of its own.
    """

    name: str
    title: str
    about: str
    dimensions: tuple[Dimension, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the dimensions."""
        return tuple(dimension.name for dimension in self.dimensions)

    def select(self, names: Iterable[str]) -> Rubric:
        """Keep some dimensions, in the rubric's own order."""
        wanted = [names] if isinstance(names, str) else list(names)
        unknown = [name for name in wanted if name not in self.names]
        if unknown or not wanted or len(set(wanted)) < len(wanted):
            fault = (
                f"{unknown[0]!r} is not one of them" if unknown else "one of them stands twice" if wanted else "none was named"
            )
            raise RubricError(f"The rubric {self.name!r} has the dimensions {', '.join(self.names)}; {fault}.")
        return replace(self, dimensions=tuple(one for one in self.dimensions if one.name in wanted))


def load_rubric(name_or_path: str | os.PathLike[str]) -> Rubric:
    """Read a rubric and check it.

    Parameters
    ----------
    name_or_path : str or path
        A bare name means ``data/rubrics/<name>.yaml`` of the project; anything with a separator or
        a suffix is a file of the user's, with the keys of ``data/rubrics/heart.yaml``.

    Returns
    -------
    Rubric
        Its dimensions, in the order of the file.

    Raises
    ------
    RubricError
        If there is no such file, it is not YAML, a key is missing, unknown or empty, or a
        dimension's name is not in snake_case, stands twice, or is a word that answers use.

    Examples
    --------
    >>> load_rubric("heart").names[:3]
    ('human_alignment', 'empathic_responsiveness', 'attunement')
    """
    file, content = read_settings(name_or_path, folder="rubrics", kind="rubric", error=RubricError)
    top = _checked(content, ("name", "title", "dimensions"), ("about",), f"{file}", lists=("dimensions",))
    dimensions: list[Dimension] = []
    for number, line in enumerate(top["dimensions"]):
        where = f"{file}: dimension {number}"
        one = Dimension(**_checked(line, ("name", "question", "high", "low"), (), where))
        if not SNAKE_CASE.fullmatch(one.name):
            raise RubricError(f"{where}: the name {one.name!r} is not in snake_case; write it as in 'task_following'.")
        if one.name in RESERVED:
            raise RubricError(f"{where}: the name {one.name!r} is a word that a judge's answer uses itself; choose another.")
        if one.name in (other.name for other in dimensions):
            raise RubricError(f"{where}: the name {one.name!r} stands twice; expected each dimension once.")
        dimensions.append(one)
    return Rubric(top["name"], top["title"], top.get("about", ""), tuple(dimensions))


def read_settings(
    name_or_path: str | os.PathLike[str], *, folder: str, kind: str, error: type[ValueError]
) -> tuple[Path, dict[str, Any]]:
    """Read a YAML file of the project's ``data`` folder by name, or a user's by path."""
    given = os.fspath(name_or_path)
    shelf = find_root() / "data" / folder
    bare = Path(given).name == given and not Path(given).suffix
    file = shelf / f"{given}.yaml" if bare else Path(given).expanduser().resolve()
    if not file.is_file():
        there = ", ".join(sorted(path.stem for path in shelf.glob("*.yaml")))
        raise error(
            f"There is no {kind} {given!r} (looked for {file}). By name there are {there}; or give a path to a YAML file."
        )
    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as fault:
        raise error(f"{file} is not YAML: {fault}") from None
    if not isinstance(content, dict):
        raise error(f"{file} holds {_said(content)}, expected a mapping of keys to values.")
    return file, content


def _checked(
    content: object, needed: tuple[str, ...], allowed: tuple[str, ...], where: str, lists: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Refuse keys that are missing, unknown or empty."""
    keys = ", ".join((*needed, *allowed))
    if not isinstance(content, dict):
        raise RubricError(f"{where} is {_said(content)}, expected a mapping with the keys {keys}.")
    missing = [key for key in needed if key not in content]
    unknown = [str(key) for key in content if key not in (*needed, *allowed)]
    if missing or unknown:
        faults = ([f"lacks {', '.join(missing)}"] if missing else []) + (
            [f"has unknown {', '.join(unknown)}"] if unknown else []
        )
        raise RubricError(f"{where} {' and '.join(faults)}. The keys are {keys}.")
    for key, value in content.items():
        kind, what = (list, "a list with at least one entry") if key in lists else (str, "text")
        if not isinstance(value, kind) or not (value if kind is list else str(value).strip()):
            raise RubricError(f"{where}: {key} is {_said(value)}, expected {what}.")
    return {key: value.strip() if isinstance(value, str) else value for key, value in content.items()}


def _said(value: object) -> str:
    return "empty" if value in (None, "", [], {}) else f"{type(value).__name__} {str(value)[:60]!r}"
