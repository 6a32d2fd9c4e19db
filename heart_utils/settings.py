"""Settings written as YAML, read strictly: what is missing, unknown or of the wrong kind is named, with its file."""

from __future__ import annotations

import json
import os
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import Field, TypeAdapter, ValidationError

__all__ = ["Text"]

Text = Annotated[str, Field(pattern=r"\S")]  #: Words, and not only blanks.

EXPECTED = {
    "finite_number": "a finite number",
    "string_type": "text", "string_pattern_mismatch": "text", "bool_type": "true or false", "int_type": "a whole number",
    "int_from_float": "a whole number", "float_type": "a number", "list_type": "a list", "tuple_type": "a list",
    "dict_type": "a mapping", "mapping_type": "a mapping", "dataclass_type": "a mapping",
    "too_short": "a list with at least one entry", "literal_error": "one of {expected}", "enum": "one of {expected}",
    "greater_than_equal": "{ge:g} or more", "greater_than": "more than {gt:g}",
}  # fmt: skip
"""What pydantic found -> what was expected, in words."""

KEYS = {"missing": "lacks", "extra_forbidden": "has unknown", "unexpected_keyword_argument": "has unknown"}
"""What pydantic found amiss with a key -> its verb."""


def read_yaml(file: str | os.PathLike[str], kind: Any, error: type[ValueError]) -> Any:
    """Read a file strictly; an empty one holds an empty mapping."""
    try:
        content = yaml.load(Path(file).read_text(encoding="utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except OSError as fault:
        raise error(f"{file} cannot be read ({fault.strerror}).") from None
    except (yaml.YAMLError, UnicodeDecodeError) as fault:
        raise error(f"{file} is not YAML: {' '.join(str(fault).split())}") from None
    return read_strictly(kind, {} if content is None else content, file, error)


def read_strictly(kind: Any, content: Any, where: object, error: type[ValueError]) -> Any:
    """Make a dataclass, or whatever pydantic reads, of settings, or say what is wrong in the first place that is."""
    try:
        return _reader(kind).validate_json(json.dumps(content, default=str), strict=True, extra="forbid")
    except ValidationError as faults:
        known = list(getattr(kind, "__dataclass_fields__", {}))
        raise error(f"{where}: {_words(faults.errors(), known)}") from None


@lru_cache
def _reader(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _words(faults: list[Any], known: list[str]) -> str:
    fault = faults[0]
    *path, name = [str(part) for part in fault["loc"]] or ["the whole"]
    at = f"{' '.join(path)}: " if path else ""
    keys = "" if path else f" The keys are {', '.join(known)}."
    if fault["type"] in KEYS:
        here = [other for other in faults if other["type"] in KEYS and other["loc"][:-1] == fault["loc"][:-1]]
        names = {verb: [str(one["loc"][-1]) for one in here if KEYS[one["type"]] == verb] for verb in KEYS.values()}
        amiss = [verb + " " + ", ".join(of) for verb, of in names.items() if of]
        return f"{at}{' and '.join(amiss)}.{keys}"
    if fault["type"] == "value_error":
        such = [(" ".join(map(str, one["loc"])), one["ctx"]["error"]) for one in faults if one["type"] == "value_error"]
        return " ".join(f"{inside}: {words}" if inside else str(words) for inside, words in such)
    expected = EXPECTED.get(fault["type"], fault["msg"]).format(**fault.get("ctx", {}))
    return f"{at}{name} is {said(fault['input'])}, expected {expected}."


def said(value: object) -> str:
    """Show a value in a message, cut short."""
    return "empty" if value in (None, "", [], {}) else repr(value)[:60]
