"""Write the types of parameters from their annotations, so that no docstring says them twice."""

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import UnionType
from typing import Any

SHORT = {"pd": "pandas", "np": "numpy"}
HEADING = re.compile(r"-{3,}\s*")
ENTRY = re.compile(r"(?P<names>\*{0,2}\w+(?:, \*{0,2}\w+)*)(?: : (?P<type>.+))?")


def write_types(
    _app: Any, what: str, _name: str, documented: Any, _options: Any, lines: list[str]
) -> None:
    """Complete entries of ``Parameters`` without a type by the annotation.

    Before numpydoc reads them.
    """
    if what in ("function", "method"):
        lines[:] = add_types(lines, documented)


def add_types(lines: Sequence[str], function: Callable[..., Any]) -> list[str]:
    """Return a docstring's lines with the type of each parameter that the signature has."""
    types = {
        name: write_type(parameter.annotation, inspect.unwrap(function).__globals__)
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.annotation is not inspect.Parameter.empty
    }
    return [_complete(line, types) if inside else line for line, inside in _mark_parameters(lines)]


def _mark_parameters(lines: Sequence[str]) -> Iterator[tuple[str, bool]]:
    """Mark each line that is in the section of parameters."""
    section = ""
    for line, after in zip(lines, [*lines[1:], ""], strict=True):
        if line and HEADING.fullmatch(after):
            section = line
        yield line, section == "Parameters" and line != section


def _complete(line: str, types: Mapping[str, str]) -> str:
    entry = ENTRY.fullmatch(line)
    if not entry or entry["type"]:
        return line
    own = [types.get(name.lstrip("*")) for name in entry["names"].split(", ")]
    if None in own:
        return line
    types_shown = own[:1] if len(set(own)) == 1 else own
    return f"{entry['names']} : {', '.join(f'``{one}``' for one in types_shown)}"


def write_type(annotation: Any, names: Mapping[str, Any]) -> str:
    """Write an annotation as a reader knows it: ``pd.DataFrame`` is ``pandas.DataFrame``.

    What may be None is optional.
    """
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    if isinstance(alias := names.get(text), UnionType):
        text = str(alias).replace("._generator", "")
    text = re.sub(r"\b(pd|np)\.", lambda module: f"{SHORT[module[1]]}.", text)
    text = re.sub(r"Literal\[([^]]*)\]", r"{\1}", text)
    return re.sub(r" \| None$", ", optional", text)
