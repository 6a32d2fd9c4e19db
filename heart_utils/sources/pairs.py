"""Verdicts from scores: the reply with the higher score wins."""

from __future__ import annotations

import numpy as np
import pandas as pd

from heart_utils.identities import show_row
from heart_utils.tables import DataError, empty_table, need_columns

__all__ = ["scores_to_verdicts"]

#: What two scores must share to be compared.
_UNIT = ["history_id", "rater", "dimension", "item", "group"]
_SAME = ("history_id", "dialogue_id", "rater", "rater_kind", "dimension", "group")


def scores_to_verdicts(scores: pd.DataFrame) -> pd.DataFrame:
    """Convert scores to verdicts: the reply with the higher score wins, equal is a tie.

    Replies to one history are compared by the scores of one rater on one dimension. No rater gave
    these verdicts, and they depend on each other: resample dialogues, never pairs. A pair with a
    failed score has the (first) failure's state and no verdict.

    Parameters
    ----------
    scores
        Table of scores, each reply once for a rater, dimension, item and group.

    Returns
    -------
    pandas.DataFrame
        One row a pair, rater and dimension, with ``protocol`` ``from_scores``.

    Raises
    ------
    DataError
        If a column is missing, a valid row has no score, or a reply has two scores of one kind.

    Examples
    --------
    >>> from heart_utils import load_scores
    >>> mine = pd.DataFrame({"history_id": "h1", "responder": ["x", "y", "z"], "score": [4, 2, 4]})
    >>> always = {"rater": "r1", "rater_kind": "human", "dimension": "empathy"}
    >>> scores_to_verdicts(load_scores(mine, always=always))["verdict"].tolist()
    ['a', 'tie', 'b']
    """
    needed = [
        *_UNIT,
        "reply_id",
        "dialogue_id",
        "responder",
        "rater_kind",
        "score",
        "state",
        "flags",
        "simulated",
    ]
    need_columns(scores, needed, DataError)
    scores = scores.reset_index(drop=True)
    empty = (scores["state"] == "valid") & scores["score"].isna()
    if empty.any():
        raise DataError(
            f"scores: {int(empty.sum())} rows are valid and have no score, such as row"
            f" {int(empty.argmax())}."
        )
    first, second = _pairs(scores)
    return _verdicts(scores, first, second)


def _pairs(scores: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """List the rows of a and b of every pair of one unit, by unit and reply id."""
    replies = scores[["history_id", "reply_id"]].drop_duplicates()
    if (twice := replies["reply_id"].duplicated()).any():
        raise DataError(
            f"scores.reply_id: {replies.loc[twice, 'reply_id'].iloc[0]!r} answers more than one"
            " history_id."
        )
    reply_rank = pd.factorize(scores["reply_id"], sort=True)[0]
    codes = {
        "unit": scores.groupby(_UNIT, dropna=False, sort=False).ngroup(),
        "place": reply_rank,
        "row": np.arange(len(scores)),
    }
    rows = pd.DataFrame(codes | {"who": pd.factorize(scores["responder"])[0]}).sort_values(
        ["unit", "place"], kind="stable"
    )
    if (again := rows.duplicated(["unit", "place"]).sort_index()).any():
        example = show_row(scores.loc[again, ["reply_id", "rater", "dimension"]].iloc[0])
        raise DataError(
            f"scores: {int(again.sum())} rows score a reply again in the same way, such as"
            f" {example}."
        )
    both = rows.merge(rows, on="unit", suffixes=("", "_b"))
    both = both[(both["place"] < both["place_b"]) & (both["who"] != both["who_b"])]
    return both["row"].to_numpy(), both["row_b"].to_numpy()


def _verdicts(scores: pd.DataFrame, first: np.ndarray, second: np.ndarray) -> pd.DataFrame:
    cells = {name: scores[name].array for name in (*_SAME, "responder", "state", "simulated")}
    a, b = (
        pd.DataFrame({name: column.take(rows) for name, column in cells.items()})
        for rows in (first, second)
    )
    valid = ((a["state"] == "valid") & (b["state"] == "valid")).to_numpy()
    score = scores["score"].to_numpy(dtype=float, na_value=np.nan)
    lead = np.where(
        valid, 1 - np.sign(np.where(valid, score[first] - score[second], 0.0)), 3
    ).astype(int)
    pair = _pair_ids(scores, first, second)
    verdicts = a[list(_SAME)].assign(
        comparison_id=pair,
        pair_id=pair,
        slice="standard",
        responder_a=a["responder"],
        responder_b=b["responder"],
        verdict=pd.array(["a", "tie", "b", None], dtype="str").take(lead),
        state=a["state"].where(a["state"] != "valid", b["state"]),
        protocol="from_scores",
        repeat=0,
        flags=_joined_flags(scores["flags"], first, second),
        simulated=a["simulated"] | b["simulated"],
    )
    rest, nothing = empty_table("verdicts"), np.full(len(a), -1)
    empty = {
        str(name): rest[name].array.take(nothing, allow_fill=True)
        for name in rest
        if name not in verdicts
    }
    verdicts = verdicts.assign(**empty)[list(rest)]
    verdicts.attrs.update(scores.attrs)
    return verdicts


def _pair_ids(
    scores: pd.DataFrame, first: np.ndarray, second: np.ndarray
) -> pd.api.extensions.ExtensionArray:
    """Name pairs by history, responder a, responder b, and the item if scores have one."""
    (reply, ids), (item, items) = (
        pd.factorize(scores[column], use_na_sentinel=False) for column in ("reply_id", "item")
    )
    codes = (reply[first] * len(ids) + reply[second]) * len(items) + item[first]
    _, places, numbers = np.unique(codes, return_index=True, return_inverse=True)
    named = scores[["reply_id", "item"]]
    a, b = (named.iloc[rows[places]].reset_index(drop=True) for rows in (first, second))
    names = a["reply_id"].astype(str) + "--" + b["reply_id"].astype(str)
    names = names.where(a["item"].isna(), names + "--" + a["item"].astype(str))
    taken: pd.api.extensions.ExtensionArray = names.astype("str").array.take(numbers)
    return taken


def _joined_flags(flags: pd.Series, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    codes, kinds = pd.factorize(pd.Series([tuple(cell) for cell in flags], dtype=object))
    joined: np.ndarray = (
        np.frompyfunc(lambda one, other: sorted({*one, *other}), 2, 1).outer(kinds, kinds).ravel()
    )
    # Rows with the same flags share one list: two million copies take longer than all else here.
    cells: np.ndarray = joined[codes[first] * len(kinds) + codes[second]]
    return cells
