"""What one says of a file of one's own, what it may leave out, and what is then taken.

A verdict, a score, who judged and what kind of rater it was are never made up.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypedDict

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import yaml

from heart_utils.runs import find_root
from heart_utils.settings import JsonObject, read_yaml
from heart_utils.tables import (
    ENDS,
    KEYS,
    TABLES,
    Column,
    DataError,
    check_table,
    count_exchanges,
    repeats,
)

__all__ = ["DEFAULTS", "FileOptions"]

NEEDED = {
    "histories": ("history_id", "turns"),
    "verdicts": ("history_id", "responder_a", "responder_b", "rater", "rater_kind", "verdict"),
    "scores": ("history_id", "responder", "rater", "rater_kind", "dimension", "score"),
    "replies": ("history_id", "responder", "text"),
    "conversations": ("history_id", "responder", "seeker", "turns"),
    "responders": ("responder", "responder_kind"),
    "answers": ("rater", "left", "right", "choice"),
}
"""Table -> the columns that a file must have."""

ANSWERS = {"verdicts": "verdict", "scores": "score", "replies": "text", "answers": "choice"}
"""Table -> the column that is empty in a row that failed."""

SIDES = ("responder_a", "responder_b")
OTHER_SIDE, OTHER_ORDER = {"a": "b", "b": "a"}, {"ab": "ba", "ba": "ab"}

SAME_QUESTION = ("rater", "dimension", "repeat", "protocol", "answer_format", "group")
"""What two answers of one rater to a pair share if they differ in the order alone."""

EVIDENT = {
    "flags": [],
    "call_ids": [],
    "simulated": False,
    "slice": "standard",
    "dimension": "overall",
    "repeat": 0,
}
EVIDENT |= {"protocol": "imported", "licence": "none stated"}
"""Column -> its value where nothing is said; columns that may be empty are."""


def _evident(table: str) -> JsonObject:
    needed = NEEDED.get(table, ())
    columns = {
        column: what
        for column, what in TABLES[table].items()
        if column not in needed and not what.optional
    }
    return {
        column: EVIDENT.get(column)
        for column, what in columns.items()
        if what.nullable or column in EVIDENT
    }


DEFAULTS: dict[str, JsonObject] = {table: _evident(table) for table in NEEDED}
"""Table -> column -> the value it has in every row of a file that does not have the column.

Beyond these, ids are made of the names that a file has (a is then the first of two responders in
the alphabet), and ``state`` is ``valid`` if every row has an answer; else the file must say why. A
licence that is not stated is the strictest.
"""


def complete(
    table: str, rows: pd.DataFrame, *, sides_shown: bool = False, numbered: bool = False
) -> pd.DataFrame:
    """Fill defaults that a file may leave out; its sides may be those that raters saw.

    `numbered`: verdicts that come again get their number in ``repeat``.
    """
    rows = rows.copy() if rows.index.is_unique else rows.reset_index(drop=True)
    rows = rows.assign(
        **{
            column: _evident_cells(TABLES[table][column], value, rows.index)
            for column, value in _evident(table).items()
            if column not in rows
        }
    )
    if "dialogue_id" in TABLES[table] and "dialogue_id" not in rows:
        rows["dialogue_id"] = rows["history_id"]
    if table in ("scores", "replies") and "reply_id" not in rows:
        rows["reply_id"] = rows["history_id"] + "--" + rows["responder"]
    if table == "conversations":
        _name_conversations(rows)
    if table == "verdicts":
        _name_pairs(rows, sides_shown, numbered)
    if table in ANSWERS and "state" in TABLES[table] and "state" not in rows:
        # an answer that is empty is refused by the table's own check
        rows["state"] = "valid"
    return rows


def _name_conversations(rows: pd.DataFrame) -> None:
    """Name conversations by start, seeker, responder and repeat."""
    # so that two are compared that went on from one start with one seeker
    if "start_id" not in rows:
        rows["start_id"] = rows["history_id"]
        rows["history_id"] = rows["history_id"] + "--" + rows["seeker"]
    if "conversation_id" not in rows:
        names, repeat = rows["history_id"] + "--" + rows["responder"], rows["repeat"].astype(str)
        rows["conversation_id"] = names.where(repeat.eq("0"), names + "--r" + repeat)
    if "state" not in rows:
        rows["state"] = rows["stop_reason"].map(ENDS).fillna("valid")
    if "n_exchanges" not in rows:
        rows["n_exchanges"] = [
            count_exchanges(
                [turn for turn in turns if isinstance(turn, dict) and "speaker" in turn]
            )
            if isinstance(turns, list)
            else 0
            for turns in rows["turns"]
        ]


def _evident_cells(what: Column, value: Any, index: pd.Index) -> Any:
    if what.kind == "list":
        return [value] * len(index)
    if what.kind == "text" or value is None:
        kind = {"text": "str", "count": "Int64"}.get(what.kind, "float64")
        return pd.Series(value, index, dtype=kind)
    return value


def _name_pairs(rows: pd.DataFrame, sides_shown: bool, numbered: bool) -> None:
    """Name pairs by history and responders, a first in the alphabet."""
    found = [pd.factorize(rows[side]) for side in SIDES]
    responders = pd.Index(sorted({*found[0][1], *found[1][1]}), dtype="str")
    first, second = (np.append(responders.get_indexer(names), -1)[codes] for codes, names in found)
    if "pair_id" in rows:
        seen = pd.DataFrame({"a": first, "b": second}).groupby(rows["pair_id"].to_numpy())
        a, b = (seen[side].transform("first").to_numpy() for side in "ab")
        turned = (first == b) & (second == a) & (first != second)
    else:
        turned = (first > second) & (second >= 0)
    if turned.any():
        for side, one, other in zip(SIDES, (first, second), (second, first), strict=True):
            cells = responders.array.take(np.where(turned, other, one), allow_fill=True)
            rows[side] = pd.Series(cells, rows.index)
    keys = ["history_id", *SIDES, *(key for key in SAME_QUESTION if key != "repeat")]
    seek = numbered or (sides_shown and turned.any())
    again = rows.index[repeats(rows, keys)] if seek else rows.index[:0]
    if turned.any():
        if sides_shown:
            _note_orders(rows.loc[again], pd.Series(turned, rows.index), rows)
        for column, opposite in {"verdict": OTHER_SIDE, "order": OTHER_ORDER}.items():
            if rows[column].notna().any():
                rows.loc[turned, column] = rows.loc[turned, column].replace(opposite)
        if rows["p_a"].notna().any():
            p_a = pd.to_numeric(rows["p_a"], errors="coerce")
            rows["p_a"] = rows["p_a"].mask(turned & p_a.notna(), 1 - p_a)
    if "pair_id" not in rows:
        rows["pair_id"] = _joined(rows, "history_id", *SIDES)
    if "comparison_id" not in rows:
        rows["comparison_id"] = rows["pair_id"]
        if (known := rows["order"].notna()).any():
            rows["comparison_id"] = rows["pair_id"].mask(known, _joined(rows, "pair_id", "order"))
    if numbered:
        keys = [key for key in KEYS["verdicts"] if key != "repeat"]
        numbers = rows.loc[again].groupby(keys, dropna=False, sort=False).cumcount()
        rows["repeat"] = numbers.reindex(rows.index, fill_value=0)


def _joined(rows: pd.DataFrame, *columns: str) -> pd.Series:
    """Join the cells of a row by two hyphens; empty where one of them is."""
    cells = [pa.array(rows[column], pa.large_string(), from_pandas=True) for column in columns]
    mark = pa.scalar("--", pa.large_string())
    joined = pc.binary_join_element_wise(*cells, mark)
    return pd.Series(pd.array(joined, dtype="str"), rows.index)


def _note_orders(again: pd.DataFrame, turned: pd.Series, rows: pd.DataFrame) -> None:
    """Take a rater's same pair with sides changed for its second order."""
    keys = ["history_id", *SIDES, *SAME_QUESTION]
    group = turned[again.index].groupby([again[key] for key in keys], dropna=False, sort=False)
    both = group.transform("any") & ~group.transform("all") & again["order"].isna()
    # in the file's terms its a stood first; rows that are turned turn their order too
    if both.any():
        rows.loc[both.index[both], "order"] = "ab"


def check_last_speaker(histories: pd.DataFrame, error: type[ValueError] = DataError) -> None:
    """Refuse histories that end with the supporter, unless they are flagged."""
    last = histories[
        histories["turns"].map(lambda turns: turns[-1]["speaker"] == "supporter").astype(bool)
    ]
    names = [
        name
        for name, flags in zip(last["history_id"], last["flags"], strict=True)
        if "ends_with_supporter" not in flags
    ]
    if names:
        raise error(
            f"histories.turns: {len(names)} histories end with the supporter"
            f" ({', '.join(names[:3])}), so that nobody can answer. Cut each after a turn of the"
            " seeker, or flag it ends_with_supporter: it then gets no reply."
        )


def read_sample(table: str) -> pd.DataFrame:
    rows = pd.DataFrame(read_objects(find_root() / "data" / "sample" / f"{table}.jsonl"))
    return check_table(table, complete(table, rows))


def read_objects(file: Path) -> list[JsonObject]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


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
