"""Laying a simulated study out as tables, each row marked as simulated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from heart_utils.tables import needed_columns

__all__ = [
    "comparisons_table",
    "histories_table",
    "pairs_table",
    "replies_table",
    "responders_table",
    "scores_table",
    "verdicts_table",
]

Codes = NDArray[np.intp]


def histories_table(slices: NDArray[np.object_], n_dialogues: int) -> pd.DataFrame:
    """Lay out histories: one a dialogue, then two a dialogue of twins, each of which names the other."""
    number = np.arange(len(slices))
    dialogue = np.where(number < n_dialogues, number, n_dialogues + (number - n_dialogues) // 2)
    other = number + np.where((number - n_dialogues) % 2, -1, 1)
    rows = {
        "history_id": [f"h{at:05d}" for at in number],
        "dialogue_id": [f"d{at:05d}" for at in dialogue],
        "source": "simulated",
        "slice": slices,
        "twin_id": words([None if at < n_dialogues else f"h{to:05d}" for at, to in zip(number, other, strict=True)], number),
        **dict.fromkeys(("emotion", "problem", "situation"), nothing(len(number))),
        "turns": [[{"speaker": "seeker", "text": f"(a simulated history, number {at})"}] for at in number],
        "licence": "CC0-1.0",
        "flags": no_flags(len(number)),
    }
    return _finish("histories", rows)


def responders_table(names: list[str]) -> pd.DataFrame:
    """Lay out responders; whose name starts with human is a person."""
    rows = {
        "responder": names,
        "responder_kind": ["human" if name.startswith("human") else "model" for name in names],
        "family": names,
        **dict.fromkeys(("model", "released"), nothing(len(names))),
        **dict.fromkeys(("size", "price"), np.nan),
    }
    return _finish("responders", rows)


def replies_table(histories: pd.DataFrame, names: list[str]) -> pd.DataFrame:
    """Lay out one reply a responder and history."""
    history = histories["history_id"].repeat(len(names)).reset_index(drop=True)
    responder = words(names, np.tile(np.arange(len(names)), len(histories)))
    rows = {
        "reply_id": history + "-" + responder,
        "history_id": history,
        "responder": responder,
        **dict.fromkeys(("author_id", "call_id"), nothing(len(history))),
        "text": "(a simulated reply)",
        **dict.fromkeys(("ttft_ms", "total_ms", "cost_usd", "typing_ms"), np.nan),
        **dict.fromkeys(("prompt_tokens", "completion_tokens"), pd.array([pd.NA] * len(history), dtype="Int64")),
        "flags": no_flags(len(history)),
        "state": "valid",
    }
    return _finish("replies", rows)


def pairs_table(histories: pd.DataFrame, names: list[str], history: Codes, one: Codes, other: Codes) -> pd.DataFrame:
    """Lay out who met whom where; names in the order of the alphabet make a the smaller reply_id."""
    rows = histories[["history_id", "dialogue_id", "slice"]].take(history).reset_index(drop=True)
    a, b = words(names, one), words(names, other)
    reply_a, reply_b = rows["history_id"] + "-" + a, rows["history_id"] + "-" + b
    return rows.assign(pair_id=reply_a + "+" + b, reply_a=reply_a, reply_b=reply_b, responder_a=a, responder_b=b)


def verdicts_table(pairs: pd.DataFrame, pair: Codes, a_first: NDArray[np.bool_], **columns: Any) -> pd.DataFrame:
    """Lay out one row a verdict, given the pair, the order and what was said."""
    rows = pairs.take(pair).reset_index(drop=True)
    order = np.where(a_first, 0, 1)
    return _finish(
        "verdicts",
        {
            **{
                column: rows[column]
                for column in ("pair_id", "history_id", "dialogue_id", "slice", "responder_a", "responder_b")
            },
            "comparison_id": rows["pair_id"] + words([":ab", ":ba"], order),
            "order": words(["ab", "ba"], order),
            "protocol": words(["simulated"], np.zeros(len(rows), int)),
            "repeat": 0,
            **dict.fromkeys(("group", "rationale", "call_id"), nothing(len(rows))),
            "flags": no_flags(len(rows)),
            **columns,
        },
    )


def comparisons_table(pairs: pd.DataFrame, verdicts: pd.DataFrame) -> pd.DataFrame:
    """Lay out the pairs as they were shown."""
    shown = verdicts[["comparison_id", "pair_id", "order"]].drop_duplicates("comparison_id").reset_index(drop=True)
    rows = pairs.take(pd.Index(pairs["pair_id"]).get_indexer(pd.Index(shown["pair_id"]))).reset_index(drop=True)
    return _finish("comparisons", {**rows, **shown, "protocol": "simulated"})


def scores_table(histories: pd.DataFrame, history: Codes, **columns: Any) -> pd.DataFrame:
    """Lay out one row a score of a reply alone."""
    rows = histories[["history_id", "dialogue_id"]].take(history).reset_index(drop=True)
    return _finish(
        "scores",
        {
            **rows,
            "reply_id": rows["history_id"] + "-" + columns["responder"],
            **dict.fromkeys(("item", "group", "call_id"), nothing(len(rows))),
            "state": "valid",
            "protocol": "simulated",
            "flags": no_flags(len(rows)),
            **columns,
        },
    )


def words(of: Sequence[str | None], codes: Codes) -> pd.Series:
    """Spell out codes."""
    return pd.Series(pd.array(list(of), dtype="str").take(codes))


def nothing(n_rows: int) -> pd.Series:
    """Give a column of text with no text in it."""
    return pd.Series([None], dtype="str").repeat(n_rows).reset_index(drop=True)


def no_flags(n_rows: int) -> pd.Series:
    """Give an empty list a row."""
    return pd.Series([[] for _ in range(n_rows)], dtype=object)


def _finish(table: str, columns: dict[Any, Any]) -> pd.DataFrame:
    rows = pd.DataFrame({**columns, "simulated": True})
    return rows[needed_columns(table)]
