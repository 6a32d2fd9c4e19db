"""Options for reading one's own file, the same in Python, YAML and on the command line."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypedDict

import numpy as np
import pandas as pd
import yaml

from heart_utils.settings import JsonObject, read_yaml
from heart_utils.tables import TABLES, DataError

__all__ = ["FileOptions"]

TEXT = pd.StringDtype(na_value=np.nan)
SECONDS, MILLISECONDS = 1e8, 1e11  #: What a number that counts them since 1970 is above.
REST = "*"  #: In `columns`: all headers that are not named.
TEMPLATE = re.compile(r"\{([^{}]+)\}")  #: In `always`: a header whose cell is filled in.


class FileOptions(TypedDict, total=False):
    """How a file of one's own is to be read; `load_verdicts` says what each of these means."""

    columns: Mapping[str, str | None]
    words: Mapping[Any, Any]
    always: Mapping[str, Any]
    only: Mapping[str, Any]
    shown: Any
    repeats: Literal["refuse", "number", "drop"]
    tool: str
    keep_ids: bool | None


EXAMPLES = {
    "columns": "{'Urteil': 'verdict'}",
    "words": "{'links': 'a'}",
    "always": "{'rater_kind': 'human'}",
    "only": "{'AssignmentStatus': 'Approved'}",
}
"""Option that is a mapping -> one."""

REPEATS = ("refuse", "number", "drop")


def plain(head: object) -> str:
    """Return a header without case, blanks, hyphens and underscores."""
    return re.sub(r"[\s_-]", "", str(head)).casefold()


def text_of(cell: object) -> str:
    if cell is None or cell != cell:
        return ""
    return (f"{cell:g}" if isinstance(cell, float) else str(cell)).strip()


def word_of(cell: object) -> str:
    """Return a cell without case, blank where it is empty."""
    return text_of(cell).casefold()


def as_options(given: Mapping[str, Any], where: object) -> FileOptions:
    """Take a mapping for options, or refuse it."""
    if strange := [str(name) for name in given if name not in FileOptions.__annotations__]:
        raise DataError(
            f"{where}: has unknown {', '.join(strange)}. Of a file it may say"
            f" {', '.join(FileOptions.__annotations__)}."
        )
    checked: Any = dict(given)
    check_options(checked)
    options: FileOptions = checked
    return options


def check_options(options: FileOptions) -> None:
    """Refuse an option of the wrong kind, with an example of the right one."""
    given: Mapping[str, Any] = options
    for option, example in EXAMPLES.items():
        if not isinstance(value := given.get(option) or {}, Mapping):
            raise DataError(
                f"{option} is a {type(value).__name__}, expected a mapping, as in"
                f" {option}={example}."
            )
    if (word := given.get("repeats")) is not None and word not in REPEATS:
        raise DataError(f"repeats is {word!r}, expected {' or '.join(map(repr, REPEATS))}.")
    for option in ("always", "shown"):
        if (
            not isinstance(value := given.get(option), str)
            and isinstance(value, Mapping | list)
            and "'...'" in str(value)
        ):
            raise DataError(
                f"{option} still has '...', which a proposed call has where only you know what to"
                " say: who wrote the replies, or of which kind the raters are (human or model). Put"
                f" that there; {option} is {value}."
            )


def as_yaml(options: Mapping[str, Any]) -> str:
    """Write options as a file for ``--reading`` has them."""
    plain_values = json.loads(json.dumps(options, default=str))
    return yaml.safe_dump(plain_values, allow_unicode=True, sort_keys=False, width=120)


def add_reading(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "how a file is to be read", "as load_verdicts takes it; each may be given several times"
    )
    pairs = {
        "columns": (
            "HEADER=COLUMN",
            "what a header means; HEADER= leaves its column out, and *= all that are not named",
        ),
        "words": (
            "WORD=MEANING",
            "a, b, tie or a failure, such as abstained; of a column other than the answer"
            " COLUMN:WORD=MEANING, as in order:0=ab",
        ),
        "always": ("COLUMN=VALUE", "what every row has"),
        "only": ("HEADER=VALUE", "the rows that count"),
    }
    for option, (form, what) in pairs.items():
        group.add_argument(
            f"--{option}", action="extend", nargs="+", default=[], metavar=form, help=what
        )
    group.add_argument(
        "--reading",
        type=Path,
        metavar="FILE",
        help="YAML with these and all other options of load_verdicts",
    )


def reading_of(arguments: argparse.Namespace) -> FileOptions:
    """Gather a command line's options; they go before its YAML file's."""
    said_in_file = read_yaml(arguments.reading, JsonObject, DataError) if arguments.reading else {}
    options = as_options(said_in_file, arguments.reading)
    for option in ("columns", "words", "always", "only"):
        if entries := _pairs(option, getattr(arguments, option)):
            before: Any = options.get(option) or {}
            options[option] = {**before, **entries}
    return options


def _pairs(option: str, entries: Sequence[str]) -> JsonObject:
    """Read ``HEADER=COLUMN`` as a mapping; a repeated name has a list."""
    mapping: JsonObject = {}
    for entry in entries:
        name, equals, value = entry.rpartition("=")
        column, colon, word = name.partition(":")
        if option == "words" and colon and column in TABLES["verdicts"]:
            mapping.setdefault(column, {})[word] = value
            continue
        if not equals:
            raise DataError(
                f"--{option} {entry!r}: expected two words with = between them, as in --{option}"
                " winner=verdict."
            )
        meant = None if option == "columns" and value == "" else value
        mapping[name] = (
            [*_as_list(mapping[name]), value] if option == "only" and name in mapping else meant
        )
    return mapping


def _as_list(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value


def read_dates(cells: pd.Series) -> pd.Series:
    """Read dates in any common form, or seconds or milliseconds since 1970."""
    numbers = pd.to_numeric(cells, errors="coerce")
    if not numbers.notna().any():
        return pd.to_datetime(cells, errors="coerce", format="mixed", utc=True)
    if numbers.median() > MILLISECONDS:
        numbers /= 1000
    seconds = numbers.where(numbers > SECONDS)
    return pd.to_datetime(seconds, unit="s", utc=True, errors="coerce")


def map_words(cells: pd.Series, function: Callable[[Any], Any]) -> pd.Series:
    """Read each different cell once; lists and objects one by one."""
    try:
        codes, values = pd.factorize(cells, use_na_sentinel=False)
    except TypeError:
        return cells.map(function)
    read = np.empty(len(values), dtype=object)
    read[:] = [function(value) for value in values]
    if cells.dtype == TEXT and all(
        isinstance(word, str) or word is None or word != word for word in read
    ):
        words = pd.array(read, dtype=TEXT)
        return pd.Series(words.take(codes), cells.index, name=cells.name)
    return pd.Series(read[codes], cells.index, dtype=object, name=cells.name)
