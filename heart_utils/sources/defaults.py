"""What a table may leave out, and what is then taken: ids made of names, and evident values.

A verdict, a score, who judged and what kind of rater it was are never made up.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from heart_utils.runs import find_root
from heart_utils.settings import JsonObject
from heart_utils.sources.columns import TEXT, map_words
from heart_utils.tables import (
    ENDS,
    KEYS,
    ORDERS,
    TABLES,
    Column,
    DataError,
    check_table,
    come_again,
    count_exchanges,
    group_numbers,
)

__all__ = ["DEFAULTS"]

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


def complete(table: str, rows: pd.DataFrame, *, sides_shown: bool = False) -> pd.DataFrame:
    """Fill defaults that a file, or the reader of a published study, may leave out.

    Its sides may be those that raters saw.
    """
    return completed(table, rows, sides_shown)[0]


def completed(table: str, rows: pd.DataFrame, sides_shown: bool) -> tuple[pd.DataFrame, pd.Series]:
    """Fill defaults, and return what parts rows as their first key does with them."""
    rows = rows.copy() if rows.index.is_unique else rows.reset_index(drop=True)
    absent = {column: value for column, value in _evident(table).items() if column not in rows}
    made: dict[Any, Any] = {}  # columns that hold the same share their cells
    for column, value in absent.items():
        if (alike := (TABLES[table][column].kind, repr(value))) not in made:
            made[alike] = _evident_cells(TABLES[table][column], value, rows.index)
        absent[column] = made[alike]
    rows = rows.assign(**absent)
    if "dialogue_id" in TABLES[table] and "dialogue_id" not in rows:
        rows["dialogue_id"] = rows["history_id"]
    if table in ("scores", "replies") and "reply_id" not in rows:
        rows["reply_id"] = rows["history_id"] + "--" + rows["responder"]
    if table == "conversations":
        _name_conversations(rows)
    compared = _name_pairs(rows, sides_shown) if table == "verdicts" else rows[KEYS[table][0]]
    if table in ANSWERS and "state" in TABLES[table] and "state" not in rows:
        # an answer that is empty is refused by the table's own check
        rows["state"] = pd.Series("valid", rows.index, dtype=TEXT)
    return rows, compared


def _name_conversations(rows: pd.DataFrame) -> None:
    """Name each conversation by its start, seeker, responder and repeat; fill in counts."""
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
    """Build a column of one value in the table's own type.

    Then nothing has to be converted cell by cell.
    """
    if what.kind == "list":
        return pd.Series([value] * len(index), index, dtype=object)
    if what.kind == "text":
        return pd.Series(value, index, dtype=TEXT)
    if value is None and what.kind == "count":
        return pd.arrays.IntegerArray(np.zeros(len(index), "int64"), np.ones(len(index), bool))
    return np.nan if value is None and what.kind == "number" else value


def _name_pairs(rows: pd.DataFrame, sides_shown: bool) -> pd.Series:
    """Name pairs by history and responders, a first in the alphabet; return what parts them."""
    if named := "pair_id" in rows:
        first_seen = rows.groupby("pair_id", dropna=False)[
            ["responder_a", "responder_b"]
        ].transform("first")
        turned = (rows["responder_a"] == first_seen["responder_b"]) & (
            rows["responder_b"] == first_seen["responder_a"]
        )
    else:
        turned = rows["responder_a"] > rows["responder_b"]
    first, second = rows["responder_a"], rows["responder_b"]
    if turned.any():
        stays = ~turned.to_numpy(bool)
        first, second = first.where(stays, second), second.where(stays, first)
    if not named:
        rows["pair_id"] = rows["history_id"] + "--" + first + "--" + second
    pairs = pd.Series(group_numbers([rows["history_id"], first, second]), rows.index)
    if turned.any():
        if sides_shown:
            _note_orders(rows, pairs, turned.to_numpy(bool))
        rows["responder_a"], rows["responder_b"] = first, second
        other = map_words(rows["verdict"], {"a": "b", "b": "a", "tie": "tie"}.get)
        rows["verdict"] = rows["verdict"].where(stays, other)
        if rows["order"].notna().any():
            rows["order"] = rows["order"].where(stays, map_words(rows["order"], _other_order))
        if rows["p_a"].notna().any():
            p_a = pd.to_numeric(rows["p_a"], errors="coerce")
            rows["p_a"] = rows["p_a"].where(stays | p_a.isna(), 1 - p_a)
    if made := "comparison_id" not in rows:
        order = rows["order"]
        rows["comparison_id"] = rows["pair_id"]
        if order.notna().any():
            with_order = rows["pair_id"] + "--" + order
            rows["comparison_id"] = with_order.fillna(rows["pair_id"])
    # names that hold what parts an id may give two pairs one id
    names = {name for side in SIDES for name in rows[side].unique()}
    if named or not made or any("--" in f"-{name}" or name in ORDERS for name in names):
        return rows["comparison_id"]
    return pd.Series(group_numbers([pairs, order]), rows.index)


def _other_order(order: Any) -> Any:
    return {"ab": "ba", "ba": "ab"}.get(order, order)


def _note_orders(rows: pd.DataFrame, pairs: pd.Series, turned: NDArray[np.bool_]) -> None:
    """Take the same pair by one rater with the sides changed for its second order.

    Only where the file has no column of orders.
    """
    numbers = group_numbers([pairs, *(rows[key] for key in SAME_QUESTION if key in rows)])
    again = come_again(numbers)
    group = pd.Series(turned[again]).groupby(numbers[again])
    both = again.copy()
    both[again] = group.transform("any") & ~group.transform("all")
    both &= rows["order"].isna().to_numpy()
    # in the file's terms its a stood first; rows that are turned turn their order too
    if both.any():
        rows["order"] = rows["order"].mask(both, "ab")


def check_last_speaker(histories: pd.DataFrame, error: type[ValueError] = DataError) -> None:
    """Refuse histories that end with the supporter, unless they are flagged.

    No one can reply for the supporter there.
    """
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
    """Read a table of the sample that was written for this project and comes with it."""
    rows = pd.DataFrame(read_objects(find_root() / "data" / "sample" / f"{table}.jsonl"))
    return check_table(table, complete(table, rows))


def read_objects(file: Path) -> list[JsonObject]:
    """Read a file of JSON Lines of the project's own."""
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
