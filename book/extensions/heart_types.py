"""Write types from annotations, so that no docstring says them twice, and shorten signatures."""

import importlib
import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import UnionType
from typing import Any

SHORT = {"pd": "pandas", "np": "numpy"}
HEADING = re.compile(r"-{3,}\s*")
QUOTED = re.compile(r"""(['"])(?:(?!\1)[^\\]|\\.)*\1""")
LONG = 60  #: Characters of a default that is cut: no option's value has as many, and prompts have.
ENTRY = re.compile(r"(?P<names>\*{0,2}\w+(?:, \*{0,2}\w+)*)(?: : (?P<type>.+))?")


def write_types(
    _app: Any, what: str, name: str, documented: Any, _options: Any, lines: list[str]
) -> None:
    """Complete entries of ``Parameters`` and fields of classes by the types of their annotations.

    This happens before numpydoc reads them.
    """
    if what in ("function", "method"):
        lines[:] = add_types(lines, documented)
    elif what == "attribute" and lines:
        lines[0] = f"{_type_of_field(name)}{lines[0]}"


def shorten_signature(
    _app: Any, _what: str, _name: str, _object: Any, _options: Any, signature: str | None, *_: Any
) -> tuple[str | None, str | None]:
    """Cut long texts that are defaults: a prompt is on the page of its own name."""
    short = QUOTED.sub(lambda text: text[0] if len(text[0]) < LONG else "'...'", signature or "")
    return short.replace("=<factory>", "=...") or signature, None


def _type_of_field(name: str) -> str:
    """Write the type of a field of a class by the field's whole name, or nothing without one."""
    owner, _, field = name.rpartition(".")
    module, _, kind = owner.rpartition(".")
    loaded = importlib.import_module(module)
    annotation = inspect.get_annotations(getattr(loaded, kind)).get(field)
    return "" if annotation is None else f"``{write_type(annotation, vars(loaded))}``: "


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
    alias = names.get(text)
    if isinstance(alias, UnionType):
        text = str(alias).replace("._generator", "")
    elif hasattr(alias, "__metadata__"):  # what pydantic checks of it
        text = inspect.formatannotation(alias.__origin__)
    text = re.sub(r"Annotated\[([\w.]+), \w+\([^()]*\)\]", r"\1", text)
    text = re.sub(r"\b(pd|np)\.", lambda module: f"{SHORT[module[1]]}.", text)
    text = re.sub(r"Literal\[([^]]*)\]", r"{\1}", text)
    return re.sub(r" \| None$", ", optional", text)
