"""Pairs made from scores: which of two replies got more from the same rater."""

from __future__ import annotations

import numpy as np
import pandas as pd

from heart_utils.sources.catalogue import DataError
from heart_utils.tables import need_columns, needed_columns

__all__ = ["scores_to_verdicts"]

_UNIT = ["history_id", "rater", "dimension", "item", "group"]
"""What two scores must share to be compared."""


def scores_to_verdicts(scores: pd.DataFrame) -> pd.DataFrame:
    """Compare every two replies to one history by what one rater gave them on one dimension.

    The higher score wins, equal scores are a tie. Such pairs are not verdicts that anybody gave:
    ten scores make 45 pairs that hang together, so resample dialogues, never pairs. A pair in which
    a score is missing keeps its row with the state of the failure (the first reply's, if both
    failed) and no verdict. Two replies that a rater was not both asked about make no row, nor do
    two of one responder.

    Parameters
    ----------
    scores : pandas.DataFrame
        A table of scores, each reply once for a rater, dimension, item and group.

    Returns
    -------
    pandas.DataFrame
        A table of verdicts with ``protocol`` ``from_scores`` and no order, margin or ``p_a`` (a
        difference of scores is not how firmly a rater leans). ``slice`` is ``standard``. A flag of
        either score is a flag of the verdict.

    Raises
    ------
    DataError
        If a column is missing, a valid row has no score, or a reply has two scores of one kind.

    Examples
    --------
    >>> from heart_utils.sources import load_responders
    >>> row = {"history_id": "h1", "dialogue_id": "d1", "rater": "r1", "rater_kind": "human", "dimension": "empathy",
    ...        "item": None, "state": "valid", "protocol": "likert", "group": None, "simulated": False}
    >>> scores = pd.DataFrame([{**row, "reply_id": f"h1--{who}", "responder": who, "score": score, "flags": []}
    ...                        for who, score in [("x", 4), ("y", 2), ("z", 4)]])
    >>> scores_to_verdicts(scores)[["responder_a", "responder_b", "verdict"]].values.tolist()
    [['x', 'y', 'a'], ['x', 'z', 'tie'], ['y', 'z', 'b']]
    """
    needed = [*_UNIT, "reply_id", "dialogue_id", "responder", "rater_kind", "score", "state", "flags", "simulated"]
    need_columns(scores, needed, DataError)
    scores = scores.reset_index(drop=True)
    empty = (scores["state"] == "valid") & scores["score"].isna()
    if empty.any():
        raise DataError(f"scores: {int(empty.sum())} rows are valid and have no score, such as row {int(empty.argmax())}.")
    unit = _codes(scores, _UNIT)
    place = _places(scores)
    rows = _grid(scores, unit, place)
    first, second = _pairs(rows)
    responder = pd.factorize(scores["responder"])[0]
    apart = responder[first] != responder[second]
    first, second = first[apart], second[apart]
    return _verdicts(scores, first, second)


def _codes(table: pd.DataFrame, columns: list[str]) -> np.ndarray:
    """Give each combination of some columns a number; an empty cell is a value like others."""
    combined = np.zeros(len(table), dtype=np.int64)
    for column in columns:
        codes, values = pd.factorize(table[column], use_na_sentinel=False)
        combined = combined * max(len(values), 1) + codes
        combined = pd.factorize(combined)[0].astype(np.int64)  # keeps the numbers small
    return combined


def _places(scores: pd.DataFrame) -> np.ndarray:
    """Give each reply its place among the replies to its history, in the order of their ids."""
    replies = scores[["history_id", "reply_id"]].drop_duplicates().sort_values(["history_id", "reply_id"])
    replies["place"] = replies.groupby("history_id").cumcount()
    twice = replies["reply_id"].duplicated()
    if twice.any():
        raise DataError(f"scores.reply_id: {replies.loc[twice, 'reply_id'].iloc[0]!r} answers more than one history_id.")
    codes, ids = pd.factorize(scores["reply_id"])
    return replies.set_index("reply_id")["place"].reindex(ids).to_numpy()[codes]


def _grid(scores: pd.DataFrame, unit: np.ndarray, place: np.ndarray) -> np.ndarray:
    """Lay the numbers of rows out as units by places, with -1 where there is no score."""
    rows = np.full((unit.max(initial=-1) + 1, place.max(initial=-1) + 1), -1, dtype=np.int64)
    rows[unit, place] = np.arange(len(scores))
    if (rows >= 0).sum() != len(scores):
        twice = scores.duplicated([*_UNIT, "reply_id"])
        shown = scores.loc[twice, ["reply_id", "rater", "dimension"]].iloc[0].to_dict()
        raise DataError(f"scores: {int(twice.sum())} rows score a reply again in the same way, such as {shown}.")
    return rows


def _pairs(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """List the rows of a and of b of every pair of one unit, in the order of units."""
    left, right = np.triu_indices(rows.shape[1], k=1)
    first, second = rows[:, left].ravel(), rows[:, right].ravel()
    both = (first >= 0) & (second >= 0)
    return first[both], second[both]


def _verdicts(scores: pd.DataFrame, first: np.ndarray, second: np.ndarray) -> pd.DataFrame:
    score = scores["score"].to_numpy(dtype=float, na_value=np.nan)
    valid = (scores["state"] == "valid").to_numpy()
    both = valid[first] & valid[second]
    states, names = pd.factorize(scores["state"])
    state = np.where(valid[first], states[second], states[first])
    difference = np.where(both, score[first] - score[second], 0.0)
    words = pd.Series(["a", "tie", "b", None], dtype="str").array
    simulated = scores["simulated"].to_numpy(dtype=bool)
    pair = _pair_ids(scores, first, second)
    same = ("history_id", "dialogue_id", "rater", "rater_kind", "dimension", "group")
    columns = {
        "comparison_id": pair,
        "pair_id": pair,
        **{column: _taken(scores, column, first) for column in same},
        "responder_a": _taken(scores, "responder", first),
        "responder_b": _taken(scores, "responder", second),
        "slice": _filled("standard", len(first)),
        "protocol": _filled("from_scores", len(first)),
        **{column: _filled(None, len(first)) for column in ("order", "answer_format", "rationale", "call_id")},
        "dimension_position": pd.array([pd.NA], dtype="Int64").take(np.zeros(len(first), dtype=int)),
        "verdict": words.take(np.where(both, 1 - np.sign(difference).astype(int), 3)),
        "margin": np.nan,
        "p_a": np.nan,
        "state": names.astype("str").array.take(state),
        "repeat": 0,
        "flags": _joined_flags(scores["flags"], first, second),
        "simulated": simulated[first] | simulated[second],
    }
    verdicts = pd.DataFrame(columns)[needed_columns("verdicts")]
    verdicts.attrs.update(scores.attrs)
    return verdicts


def _taken(scores: pd.DataFrame, column: str, rows: np.ndarray) -> pd.api.extensions.ExtensionArray:
    return scores[column].astype("str").array.take(rows)


def _filled(value: str | None, n: int) -> pd.api.extensions.ExtensionArray:
    filled: pd.api.extensions.ExtensionArray = pd.Series([value], dtype="str").array.take(np.zeros(n, dtype=int))
    return filled


def _pair_ids(scores: pd.DataFrame, first: np.ndarray, second: np.ndarray) -> pd.api.extensions.ExtensionArray:
    """Name pairs once each: history, responder a, responder b, and the item if scores have one."""
    (reply, ids), (item, items) = (pd.factorize(scores[column], use_na_sentinel=False) for column in ("reply_id", "item"))
    codes = (reply[first] * len(ids) + reply[second]) * len(items) + item[first]
    _, places, numbers = np.unique(codes, return_index=True, return_inverse=True)
    named = scores[["reply_id", "item"]]
    a, b = (named.iloc[rows[places]].reset_index(drop=True) for rows in (first, second))
    names = a["reply_id"].astype(str) + "--" + b["reply_id"].astype(str)
    names = names.where(a["item"].isna(), names + "--" + a["item"].astype(str))
    taken: pd.api.extensions.ExtensionArray = names.astype("str").array.take(numbers)
    return taken


def _joined_flags(flags: pd.Series, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Give a pair the flags of both scores, each once."""
    codes, kinds = pd.factorize(pd.Series([tuple(cell) for cell in flags], dtype=object))
    joined: np.ndarray = np.frompyfunc(lambda one, other: sorted({*one, *other}), 2, 1).outer(kinds, kinds).ravel()
    # Rows with the same flags share one list: two million copies take longer than all else here.
    cells: np.ndarray = joined[codes[first] * len(kinds) + codes[second]]
    return cells
