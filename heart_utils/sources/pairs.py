"""Pairs made from scores: which of two replies got more from the same rater."""

from __future__ import annotations

import numpy as np
import pandas as pd

from heart_utils.sources.catalogue import DataError
from heart_utils.tables import need_columns, needed_columns

__all__ = ["scores_to_verdicts"]

_UNIT = ["history_id", "rater", "dimension", "item", "group"]  #: What two scores must share to be compared.
_SAME = ("history_id", "dialogue_id", "rater", "rater_kind", "dimension", "group")


def scores_to_verdicts(scores: pd.DataFrame) -> pd.DataFrame:
    """Compare every two replies to one history by what one rater gave them on one dimension.

    The higher score wins, equal scores are a tie. Such pairs are not verdicts that anybody gave: ten scores make 45 pairs
    that hang together, so resample dialogues, never pairs. A pair in which a score is missing keeps its row with the state of
    the failure (the first reply's, if both failed) and no verdict. Two replies that a rater was not both asked about make no
    row, nor do two of one responder.

    Parameters
    ----------
    scores : pandas.DataFrame
        A table of scores, each reply once for a rater, dimension, item and group.

    Returns
    -------
    pandas.DataFrame
        A table of verdicts with ``protocol`` ``from_scores`` and no order, margin or ``p_a`` (a difference of scores is not
        how firmly a rater leans). ``slice`` is ``standard``. A flag of either score is a flag of the verdict.

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
    first, second = _pairs(scores)
    return _verdicts(scores, first, second)


def _pairs(scores: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """List the rows of a and of b of every pair of one unit, in the order of units and of the replies' ids."""
    replies = scores[["history_id", "reply_id"]].drop_duplicates()
    if (twice := replies["reply_id"].duplicated()).any():
        raise DataError(f"scores.reply_id: {replies.loc[twice, 'reply_id'].iloc[0]!r} answers more than one history_id.")
    place = pd.factorize(scores["reply_id"], sort=True)[0]
    codes = {"unit": scores.groupby(_UNIT, dropna=False, sort=False).ngroup(), "place": place, "row": np.arange(len(scores))}
    rows = pd.DataFrame(codes | {"who": pd.factorize(scores["responder"])[0]}).sort_values(["unit", "place"], kind="stable")
    if (again := rows.duplicated(["unit", "place"]).sort_index()).any():
        shown = scores.loc[again, ["reply_id", "rater", "dimension"]].iloc[0].to_dict()
        raise DataError(f"scores: {int(again.sum())} rows score a reply again in the same way, such as {shown}.")
    both = rows.merge(rows, on="unit", suffixes=("", "_b"))
    both = both[(both["place"] < both["place_b"]) & (both["who"] != both["who_b"])]
    return both["row"].to_numpy(), both["row_b"].to_numpy()


def _verdicts(scores: pd.DataFrame, first: np.ndarray, second: np.ndarray) -> pd.DataFrame:
    valid = (scores["state"] == "valid").to_numpy()
    both, score = valid[first] & valid[second], scores["score"].to_numpy(dtype=float, na_value=np.nan)
    difference = np.where(both, score[first] - score[second], 0.0)
    words = pd.Series(["a", "tie", "b", None], dtype="str").array
    simulated = scores["simulated"].to_numpy(dtype=bool)
    pair = _pair_ids(scores, first, second)
    taken = {name: scores[name].astype("str").array for name in (*_SAME, "responder", "state")}
    said = {"slice": "standard", "protocol": "from_scores", "order": None, "answer_format": None, "rationale": None}
    columns = {
        "comparison_id": pair,
        "pair_id": pair,
        **{name: taken[name].take(first) for name in _SAME},
        "responder_a": taken["responder"].take(first),
        "responder_b": taken["responder"].take(second),
        **{
            name: pd.Series([word], dtype="str").array.take(np.zeros(len(first), dtype=int))
            for name, word in (said | {"call_id": None}).items()
        },
        "dimension_position": pd.array([pd.NA], dtype="Int64").take(np.zeros(len(first), dtype=int)),
        "verdict": words.take(np.where(both, 1 - np.sign(difference).astype(int), 3)),
        "margin": np.nan,
        "p_a": np.nan,
        "state": taken["state"].take(np.where(valid[first], second, first)),
        "repeat": 0,
        "flags": _joined_flags(scores["flags"], first, second),
        "simulated": simulated[first] | simulated[second],
    }
    verdicts = pd.DataFrame(columns)[needed_columns("verdicts")]
    verdicts.attrs.update(scores.attrs)
    return verdicts


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
