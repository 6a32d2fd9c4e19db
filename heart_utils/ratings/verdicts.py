"""From a table of verdicts or scores to numbers: who said what of which unit, checked once for all coefficients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from heart_utils.tables import ORDERS, STATES

__all__ = [
    "AgreementError",
    "Entries",
    "NotComparableError",
    "RatingsError",
    "Votes",
    "WinMatrices",
    "combine_orders",
    "count_wins",
]

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
    """Read the answers that count, and refuse what cannot be compared."""
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


SHARES = {"a": 1.0, "tie": 0.5, "b": 0.0}
TIE = list(SHARES).index("tie")
VALID, INCONSISTENT = STATES.index("valid"), STATES.index("inconsistent")
DENSE_CELLS = 30_000_000


class RatingsError(ValueError):
    """Verdicts cannot be turned into ratings."""


class NotComparableError(RatingsError):
    """Comparisons do not link all responders.

    Attributes
    ----------
    groups : list of list of str
        Who can be compared with whom, the largest group first.
    """

    def __init__(self, groups: list[list[str]]) -> None:
        self.groups = sorted(groups, key=lambda group: (-len(group), group))
        apart = ", ".join(name for group in self.groups[1:] for name in group)
        shown = "; ".join(", ".join(group[:MAX_SHOWN]) + (", ..." if len(group) > MAX_SHOWN else "") for group in self.groups)
        super().__init__(
            f"{apart} cannot be rated with the others: no comparison links them (groups: {shown}). "
            f"Drop them, or collect comparisons that do."
        )


@dataclass(frozen=True, eq=False)
class Entries:
    """Verdicts as numbers, one entry a verdict that enters a fit.

    Attributes
    ----------
    responders, clusters : pandas.Index
        Names, sorted; the codes below point into them. Without a cluster all is one cluster.
    a, b, cluster : numpy.ndarray
        Codes of the two responders and of the cluster.
    share : numpy.ndarray
        What a wins of the verdict, from 0 to 1.
    word : numpy.ndarray
        The rater's word as a place in ``SHARES`` (a, tie, b), or -1.
    inconsistent : numpy.ndarray
        Whether two orders contradicted each other.
    rows : numpy.ndarray
        Position of each entry in the table that came in.
    left_out : pandas.Series
        State -> number of answers that do not enter.
    """

    responders: pd.Index
    clusters: pd.Index
    a: Codes
    b: Codes
    cluster: Codes
    share: Array
    word: Codes
    inconsistent: NDArray[np.bool_]
    rows: Codes
    left_out: pd.Series

    @property
    def tie(self) -> NDArray[np.bool_]:
        """Whether the rater called a tie."""
        return np.asarray((self.word == TIE) & ~self.inconsistent)


@dataclass(frozen=True, eq=False)
class WinMatrices:
    """One win matrix a cluster and level, and their sum under any weights.

    Attributes
    ----------
    flat : numpy.ndarray or scipy.sparse.csr_array
        A row a cluster, a column a level and an ordered pair of responders: what the first won of the second.
    size, n_levels : int
        Number of responders, and of kinds of win that are told apart (such as ties and wins).
    per_pair : float or None
        Verdicts a pair, to which each pair is scaled where pairs weigh the same.
    """

    flat: Any
    size: int
    n_levels: int
    per_pair: float | None

    def sum(self, weights: Array | None = None) -> Array:
        """Sum over clusters, for each row of `weights` (replicates, clusters), or once with weight one."""
        if weights is None:
            weights = np.ones((1, self.flat.shape[0]))
        wins: Array = np.asarray(weights @ self.flat).reshape(-1, self.n_levels, self.size, self.size)
        if self.per_pair is None:
            return wins
        # Each dialogue says one thing on each pair, so the total counts dialogues and the ratio is their mean.
        total = wins.sum(axis=1, keepdims=True)
        total = np.broadcast_to(total + total.swapaxes(2, 3), wins.shape)
        np.divide(wins * self.per_pair, total, out=wins, where=total > 0)
        return wins


def read_verdicts(verdicts: pd.DataFrame, *, dimension: str, cluster: str | None) -> Entries:
    """Turn the verdicts of one dimension into numbers, and refuse what has no number.

    A verdict gives its winner 1, a tie gives 1/2 to each, an inconsistent pair of orders too; where ``p_a`` is given
    it counts in place of the word. Other states do not enter, and are counted.
    """
    rows = _rows_of(verdicts, dimension, cluster)
    state = word_codes(verdicts, "state", rows, STATES) if "state" in verdicts else np.full(len(rows), VALID)
    enters = (state == VALID) | (state == INCONSISTENT)
    left_out = pd.Series(np.array(STATES, dtype=object)[state[~enters]]).value_counts().rename("left_out")
    if not enters.any():
        said = ", ".join(f"{count} {name}" for name, count in left_out.items()) or "the table has no row"
        raise RatingsError(f"No verdict on {dimension!r} can enter a fit: {said}. `state` says what became of each answer.")
    rows, inconsistent = rows[enters], state[enters] == INCONSISTENT
    word = word_codes(verdicts, "verdict", rows, tuple(SHARES), nullable=True)
    share = _shares(verdicts, rows, np.where(inconsistent, TIE, word))
    responders, (a, b) = name_codes(verdicts, ["responder_a", "responder_b"], rows)
    refuse(a == b, rows, verdicts["responder_a"], "a responder is compared with itself")
    clusters, which = pd.Index(["all"]), np.zeros(len(rows), np.intp)
    if cluster is not None:
        clusters, (which,) = name_codes(verdicts, [cluster], rows)
    return Entries(responders, clusters, a, b, which, share, word, inconsistent, rows, left_out)


def count_wins(
    entries: Entries,
    *,
    weights: str,
    levels: tuple[Codes, int] | None = None,
    cells: tuple[Codes, int] | None = None,
) -> WinMatrices:
    """Sum verdicts into one win matrix a cluster.

    Parameters
    ----------
    entries : Entries
        Verdicts as numbers.
    weights : {"pairs", "verdicts"}
        ``"pairs"``: the verdicts of a cluster on a pair are averaged, then clusters are, and each
        pair weighs the same. ``"verdicts"``: each verdict counts one.
    levels : tuple of numpy.ndarray and int, optional
        Level of each entry, and how many there are; one level if absent.
    cells : tuple of numpy.ndarray and int, optional
        What is summed into one matrix, if finer than the clusters, and how many there are.

    Returns
    -------
    WinMatrices
        Their sums under any weights of clusters or cells.

    Examples
    --------
    >>> votes = pd.DataFrame({"dialogue_id": list("ddde"), "responder_a": "x", "responder_b": "y", "verdict": list("aaab")})
    >>> from heart_utils.ratings.verdicts import read_verdicts
    >>> entries = read_verdicts(votes, dimension="overall", cluster="dialogue_id")
    >>> [float(count_wins(entries, weights=weights).sum()[0, 0, 0, 1]) for weights in ("verdicts", "pairs")]  # of 4
    [3.0, 2.0]
    """
    size = len(entries.responders)
    level, n_levels = levels or (np.zeros(len(entries.rows), np.intp), 1)
    cell, n_cells = cells or (entries.cluster, len(entries.clusters))
    weight, per_pair = entry_weights(entries, weights)
    columns = n_levels * size**2
    place = np.concatenate([(level * size + entries.a) * size + entries.b, (level * size + entries.b) * size + entries.a])
    won = np.concatenate([entries.share * weight, (1.0 - entries.share) * weight])
    cell = np.concatenate([cell, cell])
    if n_cells * columns <= DENSE_CELLS:
        flat: Any = np.bincount(cell * columns + place, weights=won, minlength=n_cells * columns).reshape(n_cells, columns)
    else:
        from scipy.sparse import coo_array

        flat = coo_array((won, (cell, place)), shape=(n_cells, columns)).tocsr()
    return WinMatrices(flat, size, n_levels, per_pair)


def entry_weights(entries: Entries, weights: str) -> tuple[Array, float | None]:
    """Weigh each entry within its cluster and pair; where pairs weigh the same, also tell how many verdicts a pair has."""
    if weights == "verdicts":
        return np.ones(len(entries.rows)), None
    size = len(entries.responders)
    pair, _ = pairs_of(entries)
    weight = 1.0 / _group_sizes(entries.cluster * size**2 + pair, len(entries.clusters) * size**2)
    return weight, len(pair) / int(np.count_nonzero(np.bincount(pair)))


def pairs_of(entries: Entries) -> tuple[Codes, Array]:
    """Give each entry the number of its pair, and the side of its a: 1 for the first of the alphabet, else -1."""
    low, high = np.minimum(entries.a, entries.b), np.maximum(entries.a, entries.b)
    return low * len(entries.responders) + high, np.where(entries.a < entries.b, 1.0, -1.0)


def pair_means(values: Array, weight: Array, pair: Codes) -> tuple[Array, Array]:
    """Give each entry the weighted mean of some values (entries, columns) over its pair, and the pair's weight."""
    total = np.bincount(pair, weights=weight)
    sums = np.stack([np.bincount(pair, weights=weight * column) for column in values.T], axis=1)
    return sums[pair] / total[pair, None], np.asarray(total[pair], dtype=float)


def check_comparable(wins: Array, responders: pd.Index) -> None:
    """Raise :class:`NotComparableError` if comparisons do not link all responders."""
    from scipy.sparse.csgraph import connected_components

    n_groups, group = connected_components(wins + wins.T > 0, directed=False)
    if n_groups > 1:
        raise NotComparableError([[str(name) for name in responders[group == number]] for number in range(n_groups)])


def _rows_of(verdicts: pd.DataFrame, dimension: str, cluster: str | None) -> Codes:
    """Find the rows of a dimension, once the columns are known to be there."""
    needed = ["responder_a", "responder_b", "verdict", *([cluster] if cluster else [])]
    missing = [column for column in needed if column not in verdicts]
    if missing:
        raise RatingsError(f"verdicts lack the column {', '.join(missing)}. They have {', '.join(map(str, verdicts.columns))}.")
    if "dimension" not in verdicts:
        return np.arange(len(verdicts))
    codes, names = pd.factorize(verdicts["dimension"])
    refuse(codes < 0, np.arange(len(verdicts)), verdicts["dimension"], "`dimension` must not be empty")
    found = np.flatnonzero(np.asarray(names) == dimension)
    if len(verdicts) and not len(found):
        raise RatingsError(f"verdicts have no dimension {dimension!r}. They have {', '.join(map(str, names))}.")
    return np.flatnonzero(codes == found[0]) if len(found) else np.arange(0)


def word_codes(
    verdicts: pd.DataFrame, column: str, rows: Codes, vocabulary: tuple[str, ...], *, nullable: bool = False
) -> Codes:
    """Read a column of words as places in a vocabulary, and refuse others; where it may be empty, that is -1."""
    codes, names = pd.factorize(verdicts[column])
    place = np.array([*(vocabulary.index(name) if name in vocabulary else -2 for name in names), -1])
    found = place[codes[rows]]
    refuse(found < (-1 if nullable else 0), rows, verdicts[column], f"`{column}` must be one of {', '.join(vocabulary)}")
    return found


def _shares(verdicts: pd.DataFrame, rows: Codes, word: Codes) -> Array:
    """Give what a wins of each verdict: ``p_a`` where given, else what the word says."""
    share = np.array([*SHARES.values(), np.nan])[word]
    if "p_a" in verdicts:
        p_a = pd.to_numeric(verdicts["p_a"], errors="coerce").to_numpy(float, na_value=np.nan)[rows]
        given = verdicts["p_a"].notna().to_numpy()[rows]
        refuse(given & ~((p_a >= 0) & (p_a <= 1)), rows, verdicts["p_a"], "`p_a` must be from 0 to 1")
        against = given & (word >= 0) & (word != TIE) & ((share - 0.5) * (p_a - 0.5) < 0)
        refuse(against, rows, verdicts["p_a"], "`p_a` is the chance that a is better, and must not contradict the verdict")
        share = np.where(given, p_a, share)
    refuse(np.isnan(share), rows, verdicts["verdict"], "a valid answer must have a verdict or `p_a`")
    return share


def name_codes(verdicts: pd.DataFrame, columns: list[str], rows: Codes) -> tuple[pd.Index, tuple[Codes, ...]]:
    """Give numbers to the names in some columns, in the order of the alphabet."""
    parts = [pd.factorize(verdicts[column]) for column in columns]
    for column, (codes, _) in zip(columns, parts, strict=True):
        refuse(codes[rows] < 0, rows, verdicts[column], f"`{column}` must not be empty")
    for column, (_, names) in zip(columns, parts, strict=True):
        text = [isinstance(name, str) for name in names]
        if any(text) and not all(text):
            word, other = (names[text.index(is_text)] for is_text in (True, False))
            raise RatingsError(
                f"verdicts: `{column}` mixes text and other types, such as {word!r} and {other!r}, so 1 and '1' would differ. "
                f"Make all of them text: verdicts['{column}'] = verdicts['{column}'].astype(str)."
            )
    used = [names.take(np.flatnonzero(np.bincount(codes[rows]))) for codes, names in parts]
    names = pd.Index(np.unique(np.concatenate([np.asarray(part, dtype=object) for part in used])))
    return names, tuple(names.get_indexer(part_names)[codes[rows]] for codes, part_names in parts)


def _group_sizes(keys: Codes, n_keys: int) -> NDArray[np.int64]:
    """Give the number of entries that share each entry's key."""
    if n_keys <= DENSE_CELLS:
        return np.bincount(keys, minlength=n_keys)[keys]
    _, group, sizes = np.unique(keys, return_inverse=True, return_counts=True)
    return sizes[group]


def refuse(wrong: NDArray[np.bool_], rows: Codes, values: pd.Series, rule: str) -> None:
    """Raise if any row is wrong, showing the first of them by the table's own index."""
    if not wrong.any():
        return
    bad = values.iloc[rows[wrong]]
    shown = ", ".join(f"row {row} has {value!r}" for row, value in bad.head(MAX_SHOWN).items())
    raise RatingsError(f"verdicts: {rule}; {shown}{', ...' if len(bad) > MAX_SHOWN else ''} ({len(bad)} in all).")


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
