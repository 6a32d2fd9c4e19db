"""From a table of verdicts or scores to numbers: who said what of which unit, checked once for all coefficients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

__all__ = ["AgreementError", "Votes", "read_votes"]

Codes = NDArray[np.intp]
Array = NDArray[np.float64]

LABELS = ("a", "tie", "b")
"""The verdicts in their order: a tie lies between its sides, so weights by distance mean something."""

SWAPPED = np.array([2, 1, 0])
UNIT_COLUMNS = {"verdict": ("pair_id", "dimension"), "score": ("reply_id", "dimension", "item")}
MAX_SHOWN = 3


class AgreementError(ValueError):
    """Answers cannot be compared as they stand."""


@dataclass(frozen=True)
class Votes:
    """Answers as numbers, one entry an answer that counts.

    Attributes
    ----------
    kind : str
        ``"verdict"`` or ``"score"``.
    unit, rater, value, cluster : numpy.ndarray
        Codes into `units`, `raters`, `categories` and `clusters`.
    rows : numpy.ndarray
        Position of each entry in the table that came in.
    units : pandas.DataFrame
        One row per unit with the columns that name it, such as ``pair_id`` and ``dimension``.
    raters, clusters : pandas.Index
        Names, sorted.
    categories : numpy.ndarray
        The verdicts ``a``, ``tie``, ``b``; or the scores that occur, sorted.
    left_out : pandas.Series
        State -> number of answers that do not count.
    n_inconsistent : int
        Answers that contradicted themselves when the order was turned, counted as ties here.
    """

    kind: str
    unit: Codes
    rater: Codes
    value: Codes
    cluster: Codes
    rows: Codes
    units: pd.DataFrame
    raters: pd.Index
    clusters: pd.Index
    categories: NDArray[np.object_] | Array
    left_out: pd.Series
    n_inconsistent: int


def read_votes(table: pd.DataFrame, *, cluster: str | None = "dialogue_id", inconsistent: str = "tie") -> Votes:
    """Read the answers that count, and refuse what cannot be compared.

    A unit is what two raters must share to be compared: a pair and a dimension for verdicts, a reply,
    a dimension and an item for scores. Verdicts are turned so that ``a`` is the responder whose name
    sorts first: within a pair of responders, labels then mean the same in every dialogue.

    Parameters
    ----------
    table : pandas.DataFrame
        Verdicts (``pair_id``, ``rater``, ``verdict``; ``responder_a`` and ``responder_b`` where there
        are any) or scores (``reply_id``, ``rater``, ``score``), and where present ``dimension``,
        ``item``, ``state``, ``order`` and the column named by `cluster`.
    cluster : str or None
        Column of what is resampled together; None makes each unit its own cluster.
    inconsistent : {"tie", "drop"}
        What an answer counts as that turned with the order of the replies.

    Returns
    -------
    Votes
        One entry an answer that counts.

    Raises
    ------
    AgreementError
        If scores and verdicts are mixed, a column is missing, a word is unknown or its ``p_a`` names the other side,
        names are of several types, a rater answers one unit twice (or in two orders), a unit lies in two clusters, or
        nothing counts.

    Examples
    --------
    >>> votes = read_votes(pd.DataFrame({"pair_id": ["p", "p"], "rater": ["x", "y"], "verdict": ["a", "tie"]}), cluster=None)
    >>> votes.categories[votes.value].tolist()
    ['a', 'tie']
    """
    if inconsistent not in ("tie", "drop"):
        raise AgreementError(f"inconsistent must be 'tie' or 'drop'; got {inconsistent!r}.")
    kind = _kind_of(table)
    keys = [column for column in UNIT_COLUMNS[kind] if column in table]
    _check_columns(table, [keys[0] if keys else UNIT_COLUMNS[kind][0], "rater", *([cluster] if cluster else [])])
    rows, left_out, n_inconsistent = _rows_that_count(table, kind, inconsistent)
    value, categories = _values(table, kind, rows)
    unit, units = _code_rows(table, keys, rows)
    rater, raters = _code_column(table, "rater", rows)
    _refuse_repeats(table, unit, rater, units, raters, rows)
    which, clusters = (unit, units.index) if cluster is None else _code_column(table, cluster, rows)
    _refuse_split_units(unit, which, units, cluster)
    return Votes(kind, unit, rater, value, which, rows, units, raters, clusters, categories, left_out, n_inconsistent)


def unit_values(votes: Votes, table: pd.DataFrame, column: str) -> pd.Series:
    """Give the value of a column for each unit, and refuse one that differs within a unit."""
    codes = pd.factorize(table[column], use_na_sentinel=False)[0][votes.rows]
    first = np.zeros(len(votes.units), np.intp)
    first[votes.unit[::-1]] = np.arange(len(votes.unit))[::-1]
    differs = np.flatnonzero(codes != codes[first[votes.unit]])
    if len(differs):
        where = votes.unit[differs[0]]
        name = dict(votes.units.iloc[where])
        values = table[column].iloc[votes.rows]
        raise AgreementError(
            f"{column} differs within {name}: {values.iloc[first[where]]!r} and {values.iloc[differs[0]]!r}. "
            f"Only what all answers on a unit share can group units."
        )
    return table[column].iloc[votes.rows[first]].reset_index(drop=True)


def codes_of_authors(table: pd.DataFrame, rows: Codes) -> tuple[Codes, Codes, pd.Index]:
    """Give the two responders of some rows codes into their names, which are sorted."""
    found = [pd.factorize(table[side], use_na_sentinel=False) for side in ("responder_a", "responder_b")]
    names = pd.Index(sorted({str(name) for _, values in found for name in values}))
    first, second = (names.get_indexer(pd.Index([str(name) for name in values]))[codes[rows]] for codes, values in found)
    return first, second, names


def people_only(table: pd.DataFrame) -> pd.DataFrame:
    if "rater_kind" not in table:
        raise AgreementError("The table has no column rater_kind, so nobody is known to be a person.")
    people = table[table["rater_kind"] == "human"]
    if people.empty:
        raise AgreementError("No answer is by a person (rater_kind 'human').")
    return people


def scores_only(scores: pd.DataFrame) -> pd.DataFrame:
    if "score" not in scores:
        raise AgreementError(f"This needs scores, a column score; the table has {', '.join(map(str, scores.columns))}.")
    return scores


def _kind_of(table: pd.DataFrame) -> str:
    present = [kind for kind in ("verdict", "score") if kind in table and table[kind].notna().any()]
    if len(present) == 2:
        row = table.index[table["score"].notna() & table["verdict"].isna()]
        where = f" (row {row[0]} has a score)" if len(row) else ""
        raise AgreementError(
            f"The table mixes verdicts and scores{where}. Compare verdicts with verdicts; "
            f"`scores_to_verdicts` turns scores into verdicts made from scores."
        )
    if present:
        return present[0]
    kinds = [kind for kind in ("verdict", "score") if kind in table]
    if not kinds:
        raise AgreementError(f"The table has neither a column verdict nor score. It has {', '.join(map(str, table.columns))}.")
    return kinds[0]


def _check_columns(table: pd.DataFrame, needed: Sequence[str]) -> None:
    missing = [column for column in needed if column not in table]
    if missing:
        raise AgreementError(
            f"The table has no column {', '.join(missing)}. It has {', '.join(map(str, table.columns))}. "
            f"Name another cluster, or None to take each unit as its own."
        )


def _rows_that_count(table: pd.DataFrame, kind: str, inconsistent: str) -> tuple[Codes, pd.Series, int]:
    """Find the rows whose answer counts; all others are counted by state."""
    if "state" in table:
        state = table["state"].to_numpy(dtype=object)
    else:
        state = np.where(table[kind].notna(), "valid", "no answer").astype(object)
    counts = state == "valid"
    turned = state == "inconsistent" if kind == "verdict" else np.zeros(len(table), bool)
    if inconsistent == "tie":
        counts = counts | turned
    left_out = pd.Series(state[~counts], dtype="object").value_counts().rename("left_out")
    if not counts.any():
        said = ", ".join(f"{count} {name}" for name, count in left_out.items()) or "no row"
        raise AgreementError(f"No answer can be compared: {said}. Look at `state` to see what became of the answers.")
    return np.flatnonzero(counts), left_out, int(turned.sum()) if inconsistent == "tie" else 0


def _values(table: pd.DataFrame, kind: str, rows: Codes) -> tuple[Codes, NDArray[np.object_] | Array]:
    if kind == "score":
        score = pd.to_numeric(table["score"], errors="coerce").to_numpy(float)[rows]
        _refuse(np.isnan(score), table, "score", rows, "a number in each row that is valid")
        found, codes = np.unique(score, return_inverse=True)
        return codes.astype(np.intp), found
    word = table["verdict"].to_numpy(dtype=object)[rows]
    if "state" in table:
        word = np.where(table["state"].to_numpy(dtype=object)[rows] == "inconsistent", "tie", word)
    if "p_a" in table:
        p_a = pd.to_numeric(table["p_a"], errors="coerce").to_numpy(float)[rows]
        against = ((word == "a") & (p_a < 0.5)) | ((word == "b") & (p_a > 0.5))
        _refuse(against, table, "p_a", rows, "the side that the verdict names (0.5 or more for a, 0.5 or less for b)")
        soft = pd.isna(word) & ~np.isnan(p_a)
        word = np.where(soft, np.select([p_a > 0.5, p_a < 0.5], ["a", "b"], "tie"), word)
    codes = pd.Index(LABELS).get_indexer(pd.Index(word, dtype=object)).astype(np.intp)
    _refuse(codes < 0, table, "verdict", rows, "a, b or tie (a word outside these is not a tie)")
    if {"responder_a", "responder_b"} <= set(table.columns):
        first, second = codes_of_authors(table, rows)[:2]
        codes = np.where(first > second, SWAPPED[codes], codes)
    return codes, np.array(LABELS, dtype=object)


def _code_rows(table: pd.DataFrame, keys: Sequence[str], rows: Codes) -> tuple[Codes, pd.DataFrame]:
    """Give a code to each unit; an item that is absent in all rows names nothing."""
    absent = {key: table[key].isna().to_numpy()[rows] for key in keys}
    used = [key for key in keys if key == keys[0] or not absent[key].all()]
    _refuse(absent[keys[0]], table, keys[0], rows, "a name in each row")
    codes = np.zeros(len(rows), np.intp)
    for key in used:
        # Whole columns are coded, then rows chosen among the codes: to take rows out of a column of texts costs far more.
        found, values = pd.factorize(pd.factorize(table[key], use_na_sentinel=False)[0][rows])
        codes = codes * max(len(values), 1) + found
    dense, first = np.unique(codes, return_index=True)
    unit = np.searchsorted(dense, codes).astype(np.intp)
    return unit, table[used].iloc[rows[first]].reset_index(drop=True)


def _code_column(table: pd.DataFrame, column: str, rows: Codes) -> tuple[Codes, pd.Index]:
    _refuse(table[column].isna().to_numpy()[rows], table, column, rows, "a name in each row")
    if pd.api.types.infer_dtype(table[column], skipna=True).startswith("mixed"):
        one, other, *_ = {type(name).__name__: name for name in table[column].dropna().unique()}.values()
        raise AgreementError(
            f"{column} holds names of several types, such as {one!r} and {other!r}. "
            f"Write them all as text: table[{column!r}].astype(str)."
        )
    codes, names = pd.factorize(table[column], sort=True)
    used, codes = np.unique(codes[rows], return_inverse=True)
    return codes.astype(np.intp), pd.Index(names[used])


def _refuse(wrong: NDArray[np.bool_], table: pd.DataFrame, column: str, rows: Codes, expected: str) -> None:
    if not wrong.any():
        return
    bad = table[column].iloc[rows[wrong]]
    shown = ", ".join(f"row {row} has {value!r}" for row, value in bad.head(MAX_SHOWN).items())
    more = f" ({len(bad) - MAX_SHOWN} more rows)" if len(bad) > MAX_SHOWN else ""
    raise AgreementError(f"{column}: expected {expected}; {shown}{more}.")


def _refuse_repeats(table: pd.DataFrame, unit: Codes, rater: Codes, units: pd.DataFrame, raters: pd.Index, rows: Codes) -> None:
    """One rater gives a unit one answer: two orders, repeats and formats are joined or chosen before."""
    key = unit * len(raters) + rater
    order = np.argsort(key, kind="stable")
    again = np.flatnonzero(key[order][1:] == key[order][:-1])
    if not len(again):
        return
    first, second = rows[order[again[0]]], rows[order[again[0] + 1]]
    who, what = raters[rater[order[again[0]]]], dict(units.iloc[unit[order[again[0]]]])
    here = [column for column in ("order", "repeat", "protocol", "answer_format", "group") if column in table]
    differ = [column for column in here if str(table[column].iloc[first]) != str(table[column].iloc[second])]
    if "order" in differ:
        advice = "Two orders are not two raters: join them first with `combine_orders`."
    elif differ:
        advice = f"They differ in {', '.join(differ)}: keep one of them, or name each apart in `rater`."
    else:
        advice = "Keep one of them."
    raise AgreementError(
        f"{who} answers {what} more than once (rows {table.index[first]} and {table.index[second]}; "
        f"{len(again)} such repeats). {advice}"
    )


def _refuse_split_units(unit: Codes, cluster: Codes, units: pd.DataFrame, column: str | None) -> None:
    low = np.full(len(units), np.iinfo(np.intp).max)
    high = np.full(len(units), -1)
    np.minimum.at(low, unit, cluster)
    np.maximum.at(high, unit, cluster)
    split = np.flatnonzero(low != high)
    if len(split):
        raise AgreementError(
            f"{dict(units.iloc[split[0]])} lies in more than one {column} ({len(split)} such units). "
            f"A cluster must hold all answers on a unit."
        )
