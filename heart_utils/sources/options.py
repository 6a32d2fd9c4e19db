"""Options for reading one's own file, the same in Python, YAML and on the command line."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypedDict

import yaml

from heart_utils.settings import JsonObject, read_yaml
from heart_utils.tables import TABLES, DataError

__all__ = ["FileOptions"]


class FileOptions(TypedDict, total=False):
    """How a file of one's own is to be read; `load_verdicts` says what each of these means."""

    columns: Mapping[str, str | None]
    words: Mapping[Any, Any]
    always: Mapping[str, Any]
    only: Mapping[str, Any]
    others: Literal["refuse", "drop"]
    made_of: Mapping[str, str]
    split: Mapping[str, str]
    explode: str | Sequence[str]
    rater_columns: Sequence[str]
    dimension_columns: Sequence[str]
    pair_columns: str | Sequence[str]
    shown: Any
    winner_columns: Mapping[str, str]
    winner_loser: Sequence[str]
    counts: Mapping[str, str]
    soft: Mapping[str, float]
    repeats: Literal["refuse", "number", "drop"]
    tool: str
    header: Sequence[str]
    sep: str | None
    encoding: str | None
    keep_ids: bool | None


EXAMPLES = {
    "columns": "{'Urteil': 'verdict'}",
    "words": "{'links': 'a'}",
    "always": "{'rater_kind': 'human'}",
    "only": "{'AssignmentStatus': 'Approved'}",
    "made_of": "{'history_id': '{question_id}-{turn}'}",
    "split": "{'pair': '(?P<responder_a>.+)_vs_(?P<responder_b>.+)'}",
    "winner_columns": "{'winner_model_a': 'a', 'winner_model_b': 'b', 'winner_tie': 'tie'}",
    "counts": "{'win1': 'a', 'win2': 'b'}",
    "soft": "{'a': 1, 'b': 2}",
}
"""Option that is a mapping -> one."""

CHOICES = {"others": ("refuse", "drop"), "repeats": ("refuse", "number", "drop")}


def plain(head: object) -> str:
    """Return a header without case, blanks, hyphens and underscores, to match it."""
    return re.sub(r"[\s_-]", "", str(head)).casefold()


def text_of(cell: object) -> str:
    """Return a cell as text, and blank where it is empty."""
    if cell is None or cell != cell:
        return ""
    return (f"{cell:g}" if isinstance(cell, float) else str(cell)).strip()


def word_of(cell: object) -> str:
    """Return a cell as a word to match: without case, and blank where it is empty."""
    return text_of(cell).casefold()


def as_options(given: Mapping[str, Any], where: object) -> FileOptions:
    """Take a mapping from YAML for options, or refuse it, naming what is none."""
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
    """Refuse an option of another kind than it is, with an example of what was expected."""
    given: Mapping[str, Any] = options
    for option, example in EXAMPLES.items():
        if not isinstance(value := given.get(option) or {}, Mapping):
            raise DataError(
                f"{option} is a {type(value).__name__}, expected a mapping, as in"
                f" {option}={example}."
            )
    for option, choices in CHOICES.items():
        if (word := given.get(option)) is not None and word not in choices:
            raise DataError(f"{option} is {word!r}, expected {' or '.join(map(repr, choices))}.")
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
    if (pair := given.get("winner_loser")) and (isinstance(pair, str) or len(pair) != 2):
        raise DataError(
            f"winner_loser is {pair!r}, expected two headers, as in winner_loser=('winner',"
            " 'loser')."
        )
    if (ends := given.get("soft")) and (set(ends) != {"a", "b"} or ends["a"] == ends["b"]):
        raise DataError(
            f"soft is {dict(ends)}, expected the number that means a for sure and that for b, as in"
            f" {EXAMPLES['soft']}."
        )
    for option, words in (
        ("winner_columns", given.get("winner_columns")),
        ("counts", given.get("counts")),
    ):
        if strange := sorted({str(word) for word in (words or {}).values()} - {"a", "b", "tie"}):
            raise DataError(
                f"{option} says {', '.join(strange)}; each header stands for a, b or tie, as in"
                f" {EXAMPLES[option]}."
            )


def listed(value: str | Sequence[str] | None) -> list[str]:
    """Return one name, or several, as a list."""
    return [value] if isinstance(value, str) else list(value or ())


def as_yaml(options: Mapping[str, Any]) -> str:
    """Write options as a file for ``--reading`` has them."""
    plain_values = json.loads(json.dumps(options, default=str))
    return yaml.safe_dump(plain_values, allow_unicode=True, sort_keys=False, width=120)


def add_reading(parser: argparse.ArgumentParser) -> None:
    """Let a command say how files of votes are to be read."""
    group = parser.add_argument_group(
        "how a file is to be read", "as load_verdicts takes it; each may be given several times"
    )
    pairs = {
        "columns": ("HEADER=COLUMN", "what a header means; HEADER= leaves its column out"),
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
        "--others",
        choices=CHOICES["others"],
        help="what becomes of columns that are not named (refuse)",
    )
    group.add_argument(
        "--reading",
        type=Path,
        metavar="FILE",
        help="YAML with these and all other options of load_verdicts",
    )


def reading_of(arguments: argparse.Namespace) -> FileOptions:
    """Gather the options of a command line; what it says goes before what its YAML file says."""
    said_in_file = read_yaml(arguments.reading, JsonObject, DataError) if arguments.reading else {}
    options = as_options(said_in_file, arguments.reading)
    for option in ("columns", "words", "always", "only"):
        if entries := _pairs(option, getattr(arguments, option)):
            before: Any = options.get(option) or {}
            options[option] = {**before, **entries}
    if arguments.others:
        options["others"] = arguments.others
    return options


def _pairs(option: str, entries: Sequence[str]) -> JsonObject:
    """Read ``HEADER=COLUMN`` as a mapping; a name given twice has a list of both values."""
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
            [*listed(mapping[name]), value] if option == "only" and name in mapping else meant
        )
    return mapping
