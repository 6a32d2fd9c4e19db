"""Settings written as YAML, read strictly, and what is said where an extra is missing."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import yaml
from pydantic import Field, TypeAdapter, ValidationError

__all__ = ["MissingExtraError", "Text"]

#: An object of JSON or a mapping of YAML as it was read; what it holds is checked where it is used.
JsonObject: TypeAlias = dict[str, Any]

Text = Annotated[str, Field(pattern=r"\S")]  #: Words, and not only blanks.

EXPECTED = {
    "finite_number": "a finite number",
    "string_type": "text",
    "string_pattern_mismatch": "text",
    "bool_type": "true or false",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "a mapping",
    "mapping_type": "a mapping",
    "dataclass_type": "a mapping",
    "too_short": "a list with at least one entry",
    "literal_error": "one of {expected}",
    "enum": "one of {expected}",
    "greater_than_equal": "{ge:g} or more",
    "greater_than": "more than {gt:g}",
    "less_than_equal": "{le:g} or less",
}
"""What pydantic found -> what was expected, in words."""

KEYS = {
    "missing": "lacks",
    "extra_forbidden": "has unknown",
    "unexpected_keyword_argument": "has unknown",
}
"""What pydantic found amiss with a key -> its verb."""


MAX_SETTINGS = 2_000_000  #: Characters of a file of settings, once its aliases are written out.
MAX_DEPTH = 100  #: Lists and mappings within each other; the reader in C has no bound of its own.


def _refuse_bomb(text: str, loader: Any) -> None:
    """Refuse a file whose aliases stand for more than memory holds."""
    sizes: dict[str | None, int] = {}
    open_nodes: list[tuple[str | None, int]] = [(None, 0)]
    for event in yaml.parse(text, loader):
        if isinstance(event, yaml.CollectionStartEvent):
            open_nodes.append((event.anchor, 2))
            if len(open_nodes) > MAX_DEPTH:
                raise yaml.YAMLError(f"it is nested deeper than {MAX_DEPTH} levels")
            continue
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in sizes:
                raise yaml.YAMLError(f"the alias {event.anchor} names nothing that ends before it")
            anchor, size = None, sizes[event.anchor]
        elif isinstance(event, yaml.ScalarEvent):
            anchor, size = event.anchor, len(event.value) + 2
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, size = open_nodes.pop()
        else:
            continue
        sizes[anchor] = size
        around, before = open_nodes[-1]
        open_nodes[-1] = around, before + size
        if before + size > MAX_SETTINGS:
            raise yaml.YAMLError(
                f"its {len(text):,} characters stand for more than {MAX_SETTINGS:,}: write"
                " out what its aliases name, or leave most of it out"
            )


def read_yaml(file: str | os.PathLike[str], kind: Any, error: type[ValueError]) -> Any:
    """Read a file strictly; an empty one holds an empty mapping."""
    try:
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        text = Path(file).read_text(encoding="utf-8")
        _refuse_bomb(text, loader)
        content = yaml.load(text, loader)
    except OSError as fault:
        raise error(f"{file} cannot be read ({fault.strerror}).") from None
    except (yaml.YAMLError, UnicodeDecodeError) as fault:
        raise error(f"{file} is not YAML: {' '.join(str(fault).split())}") from None
    return read_strictly(kind, {} if content is None else content, file, error)


def read_strictly(
    kind: Any, content: Any, where: object, error: type[ValueError], *, faults: Sequence[str] = ()
) -> Any:
    """Read settings into a type of pydantic, or report all faults, `faults` first."""
    all_faults = list(faults)
    text = json.dumps(content, default=str)
    try:
        made = _reader(kind).validate_json(text, strict=True, extra="forbid")
    except ValidationError as fault:
        known = list(getattr(kind, "__dataclass_fields__", {}))
        all_faults += _words(fault.errors(), known, json.loads(text))
    if all_faults:
        raise error(f"{where}: {' '.join(all_faults)}")
    return made


@lru_cache
def _reader(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _words(faults: list[Any], known: list[str], content: Any) -> list[str]:
    """Describe each fault once, with what would be right."""
    sentences: dict[object, str] = {}
    expected: dict[object, list[str]] = {}
    for fault in faults:
        path_given = _place(fault["loc"], content)
        *path, name = [str(part) for part in path_given] or ["the whole"]
        at = f"{' '.join(path)}: " if path else ""
        if fault["type"] in KEYS:
            mapping = fault["loc"][:-1]
            here = [
                other for other in faults if other["type"] in KEYS and other["loc"][:-1] == mapping
            ]
            names = {
                verb: [str(one["loc"][-1]) for one in here if KEYS[one["type"]] == verb]
                for verb in KEYS.values()
            }
            amiss = [verb + " " + ", ".join(of) for verb, of in names.items() if of]
            at = f"{' '.join(map(str, mapping))}: " if mapping else ""
            keys = "" if mapping else f" The keys are {', '.join(known)}."
            sentences["keys", mapping] = f"{at}{' and '.join(amiss)}.{keys}"
        elif fault["type"] == "value_error":
            inside, words = " ".join(map(str, fault["loc"])), str(fault["ctx"]["error"])
            sentences[path_given] = f"{inside}: {words}" if inside else words
        else:
            wanted = EXPECTED.get(fault["type"], fault["msg"]).format(**fault.get("ctx", {}))
            wanted += (
                " (in quotes)"
                if wanted == "text" and isinstance(fault["input"], (int, float))
                else ""
            )
            expected.setdefault(path_given, []).append(wanted)
            sentences[path_given] = (
                f"{at}{name} is {said(fault['input'])}, expected"
                f" {' or '.join(dict.fromkeys(expected[path_given]))}."
            )
    return list(sentences.values())


def _place(path: Sequence[Any], content: Any) -> tuple[Any, ...]:
    """Return the part of a path that leads into the content."""
    for depth, part in enumerate(path):
        try:
            content = content[part]
        except (LookupError, TypeError):
            return tuple(path[:depth])
    return tuple(path)


def said(value: object) -> str:
    """Show a value in a message, cut short."""
    return "empty" if value in (None, "", [], {}) else repr(value)[:60]


PACKAGES = {
    "plots": "matplotlib seaborn",
    "stats": "scikit-learn statsmodels",
    "excel": "openpyxl",
    "collect": (
        "litellm 'sqlalchemy>=2' zstandard psutil tenacity 'psycopg[binary]' dask distributed"
        " aiohttp itsdangerous scikit-learn"
    ),
}
"""What each extra brings, as pip is told to install it."""


class MissingExtraError(ModuleNotFoundError):
    """A package is missing that an extra would have brought."""


@contextmanager
def extra(name: str) -> Iterator[None]:
    """Name the extra to install if a package is missing in this block."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = str(error.name).partition(".")[0]
        raise MissingExtraError(
            f"{package} is not installed. It comes with the extra {name}: pip install '.[{name}]'"
            f" in a checkout of this project, or elsewhere: pip install {PACKAGES[name]}",
            name=package,
        ) from None
