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
    """Lay out histories: one a dialogue, then two a dialogue of twins, each of which names the other.

    Parameters
    ----------
    slices : numpy.ndarray
        Slice of each history; twins follow each other.
    n_dialogues : int
        How many of the first histories are no twins.

    Returns
    -------
    pandas.DataFrame
        The table ``histories``.

    Examples
    --------
    >>> histories = histories_table(np.array(["standard", "adversarial", "calm_twin"], dtype=object), 1)
    >>> histories[["history_id", "slice", "twin_id"]].fillna("").values.tolist()
    [['h00000', 'standard', ''], ['h00001', 'adversarial', 'h00002'], ['h00002', 'calm_twin', 'h00001']]
    """
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
    """Lay out responders; whose name starts with human is a person.

    Parameters
    ----------
    names : list of str
        Responders.

    Returns
    -------
    pandas.DataFrame
        The table ``responders``.

    Examples
    --------
    >>> responders_table(["human 1", "model 1"])[["responder", "responder_kind", "simulated"]].values.tolist()
    [['human 1', 'human', True], ['model 1', 'model', True]]
    """
    rows = {
        "responder": names,
        "responder_kind": ["human" if name.startswith("human") else "model" for name in names],
        "family": names,
        **dict.fromkeys(("model", "released"), nothing(len(names))),
        **dict.fromkeys(("size", "price"), np.nan),
    }
    return _finish("responders", rows)


def replies_table(histories: pd.DataFrame, names: list[str]) -> pd.DataFrame:
    """Lay out one reply a responder and history.

    Parameters
    ----------
    histories : pandas.DataFrame
        The table of this name.
    names : list of str
        Responders.

    Returns
    -------
    pandas.DataFrame
        The table ``replies``.

    Examples
    --------
    >>> histories = histories_table(np.array(["standard"] * 2, dtype=object), 2)
    >>> replies_table(histories, ["x", "y"])["reply_id"].tolist()
    ['h00000-x', 'h00000-y', 'h00001-x', 'h00001-y']
    """
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
    """Lay out who met whom where; names in the order of the alphabet make a the smaller reply_id.

    Parameters
    ----------
    histories : pandas.DataFrame
        The table of this name.
    names : list of str
        Responders, sorted.
    history, one, other : numpy.ndarray
        Codes: where, and which two of `names`.

    Returns
    -------
    pandas.DataFrame
        One row a pair: ids, and both sides' replies and responders.

    Examples
    --------
    >>> histories = histories_table(np.array(["standard"] * 2, dtype=object), 2)
    >>> pairs_table(histories, ["x", "y"], np.array([1]), np.array([0]), np.array([1]))["pair_id"].tolist()
    ['h00001-x+y']
    """
    rows = histories[["history_id", "dialogue_id", "slice"]].take(history).reset_index(drop=True)
    a, b = words(names, one), words(names, other)
    reply_a, reply_b = rows["history_id"] + "-" + a, rows["history_id"] + "-" + b
    return rows.assign(pair_id=reply_a + "+" + b, reply_a=reply_a, reply_b=reply_b, responder_a=a, responder_b=b)


def verdicts_table(pairs: pd.DataFrame, pair: Codes, a_first: NDArray[np.bool_], **columns: Any) -> pd.DataFrame:
    """Lay out one row a verdict, given the pair, the order and what was said.

    Parameters
    ----------
    pairs : pandas.DataFrame
        As :func:`pairs_table` gives them.
    pair : numpy.ndarray
        Code of the pair of each verdict.
    a_first : numpy.ndarray
        Whether a was shown first.
    **columns
        What else the table needs.

    Returns
    -------
    pandas.DataFrame
        The table ``verdicts``.

    Examples
    --------
    >>> histories = histories_table(np.array(["standard"], dtype=object), 1)
    >>> pairs = pairs_table(histories, ["x", "y"], np.array([0]), np.array([0]), np.array([1]))
    >>> said = {"rater": "k", "rater_kind": "human", "dimension": "overall", "dimension_position": 0}
    >>> said |= {"verdict": "a", "margin": 2.0, "p_a": np.nan, "state": "valid", "answer_format": "json"}
    >>> verdicts = verdicts_table(pairs, np.array([0, 0]), np.array([True, False]), **said)
    >>> verdicts[["comparison_id", "order", "verdict", "simulated"]].values.tolist()
    [['h00000-x+y:ab', 'ab', 'a', True], ['h00000-x+y:ba', 'ba', 'a', True]]
    """
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
    """Lay out the pairs as they were shown.

    Parameters
    ----------
    pairs : pandas.DataFrame
        As :func:`pairs_table` gives them.
    verdicts : pandas.DataFrame
        With ``comparison_id``, ``pair_id`` and ``order``.

    Returns
    -------
    pandas.DataFrame
        The table ``comparisons``.

    Examples
    --------
    >>> histories = histories_table(np.array(["standard"], dtype=object), 1)
    >>> pairs = pairs_table(histories, ["x", "y"], np.array([0]), np.array([0]), np.array([1]))
    >>> shown = pairs.assign(comparison_id=pairs["pair_id"] + ":ab", order="ab")
    >>> comparisons_table(pairs, pd.concat([shown, shown]))["comparison_id"].tolist()  # two raters saw one comparison
    ['h00000-x+y:ab']
    """
    shown = verdicts[["comparison_id", "pair_id", "order"]].drop_duplicates("comparison_id").reset_index(drop=True)
    rows = pairs.take(pd.Index(pairs["pair_id"]).get_indexer(pd.Index(shown["pair_id"]))).reset_index(drop=True)
    return _finish("comparisons", {**rows, **shown, "protocol": "simulated"})


def scores_table(histories: pd.DataFrame, history: Codes, **columns: Any) -> pd.DataFrame:
    """Lay out one row a score of a reply alone.

    Parameters
    ----------
    histories : pandas.DataFrame
        The table of this name.
    history : numpy.ndarray
        Code of the history of each score.
    **columns
        What else the table needs, ``responder`` among it.

    Returns
    -------
    pandas.DataFrame
        The table ``scores``.

    Examples
    --------
    >>> histories = histories_table(np.array(["standard"], dtype=object), 1)
    >>> said = {"responder": ["x"], "rater": "k", "rater_kind": "human", "dimension": "overall", "score": [4.0]}
    >>> scores_table(histories, np.array([0]), **said)[["reply_id", "score", "state"]].values.tolist()
    [['h00000-x', 4.0, 'valid']]
    """
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
