"""Joining the two orders in which a pair of replies was shown."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from heart_utils.analysis.wins import SHARES, VALID, RatingsError, word_codes
from heart_utils.tables import ORDERS, STATES

__all__ = ["combine_orders"]

Array = NDArray[np.float64]
Codes = NDArray[np.intp]

KEY = ["pair_id", "rater", "dimension", "repeat", "protocol", "answer_format", "group"]
ONE_ORDER = "one_order"


def combine_orders(verdicts: pd.DataFrame) -> pd.DataFrame:
    """Join the two orders of a pair into one row a pair, rater, dimension and repeat.

    =======================  ============  ===========  =================================
    the two orders say       state         verdict      p_a
    =======================  ============  ===========  =================================
    the same                 valid         that         none
    a and b                  inconsistent  none         none (half a win to each)
    a (or b) and a tie       valid         a (b)        0.75 (0.25): half to each order
    anything, with p_a       as above      as above     the mean of the two
    one valid, one failed    valid         the valid    none; flagged ``one_order``
    both failed              the worse     none         none
    =======================  ============  ===========  =================================

    Of two failures, an error is worse than an unparsed answer, that than a refusal, that than an
    abstention. Where one order failed the row keeps the order it rests on. Another joined row has no
    ``order``, the ``comparison_id`` of the first order, the flags of
    both, the mean margin of the answers that name its winner, and neither rationale nor call. A pair
    shown in one order only passes unchanged.

    Parameters
    ----------
    verdicts : pandas.DataFrame
        The verdicts table.

    Returns
    -------
    pandas.DataFrame
        The verdicts table, in the order in which pairs first appear.

    Raises
    ------
    RatingsError
        If a rater answered the same order of a pair twice under one number of repeat.

    Examples
    --------
    >>> both = pd.DataFrame({"comparison_id": ["p/ab", "p/ba"], "pair_id": "p", "rater": "judge", "dimension": "overall",
    ...     "repeat": 0, "order": ["ab", "ba"], "state": "valid", "verdict": ["a", "b"]})
    >>> combine_orders(both)[["comparison_id", "state", "verdict"]].to_dict("records")
    [{'comparison_id': 'p/ab', 'state': 'inconsistent', 'verdict': nan}]
    """
    missing = [column for column in ("pair_id", "order", "verdict") if column not in verdicts]
    if missing:
        raise RatingsError(f"verdicts lack the column {', '.join(missing)}; orders are joined by them.")
    for column, vocabulary in (("order", ORDERS), ("state", STATES), ("verdict", tuple(SHARES))):
        if column in verdicts:
            word_codes(verdicts, column, np.arange(len(verdicts)), vocabulary, nullable=column != "state")
    verdicts = verdicts.reset_index(drop=True)
    keys = [column for column in KEY if column in verdicts]
    group = np.asarray(verdicts.groupby(keys, sort=False, dropna=False).ngroup(), dtype=np.intp)
    first, second = _find_pairs(verdicts, group)
    if not len(first):
        return verdicts
    joined = _join(verdicts.iloc[first].reset_index(drop=True), verdicts.iloc[second].reset_index(drop=True))
    rest = np.setdiff1d(np.arange(len(verdicts)), np.concatenate([first, second]))
    whole = pd.concat([verdicts.iloc[rest], joined]) if len(rest) else joined
    place = np.concatenate([group[rest], group[first]])
    return whole.iloc[np.argsort(place, kind="stable")].reset_index(drop=True)


def _find_pairs(verdicts: pd.DataFrame, group: Codes) -> tuple[Codes, Codes]:
    """Find the rows that show a pair as ab and as ba to one rater."""
    shown = _codes(verdicts["order"], ("ab", "ba"))
    twice = pd.DataFrame({"group": group, "shown": shown}).duplicated().to_numpy()
    if twice.any():
        row = verdicts.iloc[int(np.argmax(twice))]
        said = ", ".join(f"{column} {row[column]!r}" for column in KEY[:4] if column in verdicts)
        raise RatingsError(
            f"One rater answered the same order twice: {said}, order {row['order']!r} ({int(twice.sum())} such rows). "
            f"Number repeated answers with `repeat`."
        )
    place = np.full((int(group.max(initial=-1)) + 1, 3), -1)
    place[group, shown] = np.arange(len(group))
    both = (place[:, :2] >= 0).all(axis=1)
    return place[both, 0], place[both, 1]


def _join(one: pd.DataFrame, two: pd.DataFrame) -> pd.DataFrame:
    """Make one row of each two: `one` was shown as ab, `two` as ba."""
    state, other_state = _states(one), _states(two)
    valid, other_valid = state == VALID, other_state == VALID
    both, some = valid & other_valid, valid | other_valid
    word, other_word = _words(one, valid), _words(two, other_valid)
    opposed = both & (np.abs(word - other_word) == 1.0)
    lead = np.where(both, (word + other_word) / 2.0, np.where(valid, word, other_word))
    said = np.select([opposed | np.isnan(lead), lead > 0.5, lead < 0.5], [3, 0, 1], 2)
    joined = one.copy()
    joined["verdict"] = _take(["a", "b", "tie", None], said)
    state_code = np.select([opposed, some], [STATES.index("inconsistent"), VALID], np.maximum(state, other_state))
    joined["state"] = _take(list(STATES), state_code)
    joined["order"] = _take([None, "ab", "ba"], np.select([both, valid, other_valid], [0, 1, 2], 0))
    p_a, other_p_a = _numbers(one, "p_a", valid), _numbers(two, "p_a", other_valid)
    share, other_share = np.where(np.isnan(p_a), word, p_a), np.where(np.isnan(other_p_a), other_word, other_p_a)
    soft = both & (~np.isnan(p_a) | ~np.isnan(other_p_a) | (np.abs(word - other_word) == 0.5))
    joined["p_a"] = np.select([soft, both, valid], [(share + other_share) / 2.0, np.nan, p_a], other_p_a)
    if "margin" in one:
        named, other_named = both & (word == lead.round()), both & (other_word == lead.round())
        margin = _numbers(one, "margin", np.where(both, (said < 2) & named, valid))
        other_margin = _numbers(two, "margin", np.where(both, (said < 2) & other_named, other_valid))
        given = (~np.isnan(margin)).astype(int) + ~np.isnan(other_margin)
        total = np.nan_to_num(margin) + np.nan_to_num(other_margin)
        joined["margin"] = np.divide(total, given, out=np.full(len(total), np.nan), where=given > 0)
    if "flags" in one:
        lone = valid ^ other_valid
        joined["flags"] = [
            sorted({*flags, *more, *([ONE_ORDER] if alone else [])})
            for flags, more, alone in zip(one["flags"], two["flags"], lone, strict=True)
        ]
    for column in ("dimension_position", "rationale", "call_id"):
        if column in one:
            joined[column] = one[column].where(one[column].eq(two[column]).fillna(False))
    if "comparison_id" in one:
        joined["comparison_id"] = one["comparison_id"].where(valid | ~other_valid, two["comparison_id"])
    return joined


def _states(verdicts: pd.DataFrame) -> Codes:
    if "state" not in verdicts:
        return np.full(len(verdicts), VALID)
    return _codes(verdicts["state"], STATES)


def _words(verdicts: pd.DataFrame, valid: NDArray[np.bool_]) -> Array:
    """Give what a wins by the word of a valid answer."""
    share = np.array([*SHARES.values(), np.nan])[_codes(verdicts["verdict"], tuple(SHARES))]
    return np.where(valid, share, np.nan)


def _numbers(verdicts: pd.DataFrame, column: str, where: NDArray[np.bool_]) -> Array:
    if column not in verdicts:
        return np.full(len(verdicts), np.nan)
    return np.where(where, verdicts[column].to_numpy(float, na_value=np.nan), np.nan)


def _codes(values: pd.Series, words: tuple[str, ...]) -> Codes:
    """Give numbers to the words; anything else, nothing included, comes last."""
    found = pd.Index(words).get_indexer(pd.Index(values))
    return np.where(found < 0, len(words), found)


def _take(words: list[str | None], codes: Codes) -> pd.Series:
    return pd.Series(pd.array(words, dtype="str").take(codes))
