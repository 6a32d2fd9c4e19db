"""Reading the verdicts table as numbers, and how much of a win each verdict is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from heart_utils.identities import redact_message, show_rater
from heart_utils.tables import ORDERS, RATER_KINDS, STATES, need_columns

__all__ = [
    "AgreementError",
    "Entries",
    "RatingsError",
    "VerdictsError",
    "Votes",
    "combine_orders",
    "won_by_a",
]

Codes = NDArray[np.intp]
Array = NDArray[np.float64]

# what a wins by each word; a tie lies between, so that distances mean something
SHARES = {"a": 1.0, "tie": 0.5, "b": 0.0}
WORDS = tuple(SHARES)
TIE = WORDS.index("tie")
VALID, INCONSISTENT = STATES.index("valid"), STATES.index("inconsistent")
NO_ANSWER = len(STATES)  # the state of an empty answer, where a table has no column `state`
STATE_NAMES = (*STATES, "no answer")
UNIT_COLUMNS = {"verdict": ("pair_id", "dimension"), "score": ("reply_id", "dimension", "item")}
MAX_SHOWN = 3
HIGHEST_MARGIN = 5


class AgreementError(ValueError):
    """Answers cannot be compared as they stand."""


class RatingsError(ValueError):
    """Verdicts cannot be turned into ratings."""


class VerdictsError(AgreementError, RatingsError):
    """A table of verdicts or scores cannot be read as it stands."""


@dataclass(frozen=True, eq=False)
class Entries:
    """Verdicts on one dimension as arrays; codes are places in sorted names."""

    responders: pd.Index
    clusters: pd.Index
    a: Codes
    b: Codes
    cluster: Codes  #: all zero without a cluster
    share: Array  #: what a wins, from 0 to 1
    word: Codes  #: the rater's word as a place in WORDS, or -1
    inconsistent: NDArray[np.bool_]  #: two orders contradicted each other
    rows: Codes  #: positions in `table`
    left_out: pd.Series  #: state -> answers that do not enter
    rater: Codes | None = None  #: where raters vary too
    raters: pd.Index | None = None
    #: what each verdict stands for; without it those of a pair and cluster share one vote evenly
    weight: Array | None = None
    #: the verdicts, the two orders of a pair joined; empty where entries are drawn
    table: pd.DataFrame = field(default_factory=pd.DataFrame)

    @property
    def tie(self) -> NDArray[np.bool_]:
        """Whether the rater called a tie."""
        return np.asarray((self.word == TIE) & ~self.inconsistent)

    @property
    def joined(self) -> NDArray[np.bool_]:
        """Whether the entry is two orders of a pair."""
        return _are_joined(self.table, self.rows)

    def n_verdicts(self) -> NDArray[np.int64]:
        """Count the verdicts on each responder."""
        return np.bincount(self.a, minlength=len(self.responders)) + np.bincount(
            self.b, minlength=len(self.responders)
        )

    def groups(self) -> list[tuple[Codes, int]]:
        """Return codes and number of each group that is resampled."""
        groups = [(self.cluster, len(self.clusters))]
        if self.rater is not None and self.raters is not None:
            groups.append((self.rater, len(self.raters)))
        return groups

    def count_judged_in(self, codes: Codes, n: int) -> NDArray[np.int64]:
        """Count the groups in which each responder was judged."""
        judged = np.zeros((n, len(self.responders)), bool)
        judged[codes, self.a] = judged[codes, self.b] = True
        return np.asarray(judged.sum(axis=0))


@dataclass(frozen=True)
class Votes:
    """Verdicts or scores on units, one entry an answer."""

    kind: str  #: "verdict" or "score"
    unit: Codes
    rater: Codes
    value: Codes  #: place in categories
    cluster: Codes
    table: pd.DataFrame  #: what came in, the two orders of a pair joined
    rows: Codes  #: positions in that table
    units: pd.DataFrame  #: the columns that name a unit, such as pair_id and dimension
    raters: pd.Index
    clusters: pd.Index
    categories: NDArray[np.object_] | Array  #: a, tie, b; or the scores that occur, sorted
    left_out: pd.Series  #: state -> answers that do not count
    n_inconsistent: int  #: contradicted themselves when the order was turned, counted as ties

    @property
    def n_joined(self) -> int:
        """Count the votes that are two joined orders of a pair."""
        return int(_are_joined(self.table, self.rows).sum())


def read_verdicts(
    verdicts: pd.DataFrame,
    *,
    dimension: str,
    cluster: str | None,
    rater: str | None = None,
    single_orders: bool = False,
) -> Entries:
    """Read the verdicts of one dimension as numbers, and refuse what has none.

    The two orders of a pair become one entry, unless the caller needs `single_orders`.
    """
    rows = _rows_of(verdicts, dimension, cluster)
    if not single_orders and (joined := join_orders(verdicts.iloc[rows])) is not None:
        verdicts, rows = joined, np.arange(len(joined))
    state = _states(verdicts, rows)
    enters = (state == VALID) | (state == INCONSISTENT)
    left_out = _left_out(state, enters, f"verdict on {dimension!r} can enter a fit")
    rows, inconsistent = rows[enters], state[enters] == INCONSISTENT
    word, share = _said(verdicts, rows, inconsistent)
    responders, (a, b) = name_codes(verdicts, ["responder_a", "responder_b"], rows)
    refuse(a == b, rows, verdicts["responder_a"], "a responder is compared with itself")
    clusters, which = pd.Index(["all"]), np.zeros(len(rows), np.intp)
    if cluster is not None:
        clusters, (which,) = name_codes(verdicts, [cluster], rows)
    entries = Entries(responders, clusters, a, b, which, share, word, inconsistent, rows, left_out)
    entries = replace(entries, table=verdicts)
    if rater is None:
        return entries
    need(verdicts, [rater])
    raters, (judged_by,) = name_codes(verdicts, [rater], rows)
    return replace(entries, rater=judged_by, raters=raters)


def read_margins(entries: Entries) -> Codes:
    """Read the margins; 1 where nobody won."""
    verdicts = entries.table
    if "margin" not in verdicts:
        raise VerdictsError(
            "verdicts lack the column margin, by which this method tells wins apart."
        )
    margin = pd.to_numeric(verdicts["margin"], errors="coerce").to_numpy(float, na_value=np.nan)[
        entries.rows
    ]
    needed = ~entries.tie & ~entries.inconsistent
    wrong = needed & ~((margin >= 1) & (margin <= HIGHEST_MARGIN))
    refuse(
        wrong,
        entries.rows,
        verdicts["margin"],
        f"`margin` of a win must be from 1 to {HIGHEST_MARGIN}",
    )
    return np.where(needed, np.floor(np.nan_to_num(margin) + 0.5), 1).astype(np.intp)


def read_votes(table: pd.DataFrame, *, cluster: str | None = "dialogue_id") -> Votes:
    """Turn verdicts, their orders joined, or scores into votes on units."""
    kind = _kind_of(table)
    if kind == "verdict" and "pair_id" not in table and (columns := _meeting_columns(table)):
        table = table.assign(pair_id=_number_pairs(table, columns))
    if kind == "verdict" and (joined := join_orders(table)) is not None:
        table = joined
    keys = [column for column in UNIT_COLUMNS[kind] if column in table]
    need(table, [(keys or UNIT_COLUMNS[kind])[0], "rater"])
    need_cluster(table, cluster)
    rows = np.arange(len(table))
    state = _states(table, rows) if "state" in table else _answered(table, kind)
    turned = (state == INCONSISTENT) & (kind == "verdict")
    counts = (state == VALID) | turned
    left_out = _left_out(state, counts, "answer can be compared")
    rows, turned = rows[counts], turned[counts]
    value, categories = _scores(table, rows) if kind == "score" else _sides(table, rows, turned)
    unit, units = _code_rows(table, keys, rows)
    raters, (rater,) = name_codes(table, ["rater"], rows)
    _refuse_repeats(table, unit, rater, units, raters, rows)
    clusters, (which,) = (
        (units.index, (unit,)) if cluster is None else name_codes(table, [cluster], rows)
    )
    votes = Votes(
        kind,
        unit,
        rater,
        value,
        which,
        table,
        rows,
        units,
        raters,
        clusters,
        categories,
        left_out,
        int(turned.sum()),
    )
    if cluster is not None:
        unit_values(votes, cluster)
    return votes


def won_by_a(verdicts: pd.DataFrame) -> pd.Series:
    """Compute how much of a win each verdict is for responder a.

    A win of a is 1, of b 0, a tie and an ``inconsistent`` pair of orders a half; a judge's
    probability (``p_a``) is a part of a win. A failed answer is missing, never a tie.

    Parameters
    ----------
    verdicts
        With ``verdict`` and, if any, ``state`` and ``p_a``.

    Returns
    -------
    pandas.Series
        From 0 to 1; ``nan`` for an answer that does not count.

    Raises
    ------
    VerdictsError
        If a word is not in the vocabulary, a valid row has no answer, or ``p_a`` is not from 0 to 1
        or contradicts its verdict.

    Examples
    --------
    >>> votes = {"verdict": ["a", None, None], "state": ["valid", "inconsistent", "refused"]}
    >>> won_by_a(pd.DataFrame(votes)).tolist()
    [1.0, 0.5, nan]
    """
    rows, shares = np.arange(len(verdicts)), np.full(len(verdicts), np.nan)
    state = _states(verdicts, rows)
    counts = np.flatnonzero((state == VALID) | (state == INCONSISTENT))
    shares[counts] = _said(verdicts, counts, state[counts] == INCONSISTENT)[1]
    return pd.Series(shares, index=verdicts.index, name="won_by_a")


def unit_values(votes: Votes, column: str | pd.Series) -> pd.Series:
    """Look up a value by unit; refuse one that differs within it."""
    column = votes.table[column] if isinstance(column, str) else column
    codes = pd.factorize(column, use_na_sentinel=False)[0][votes.rows]
    first = np.unique(votes.unit, return_index=True)[1]
    differs = np.flatnonzero(codes != codes[first[votes.unit]])
    if len(differs):
        where, values = votes.unit[differs[0]], column.iloc[votes.rows]
        raise VerdictsError(
            f"{column.name} differs within {dict(votes.units.iloc[where])}:"
            f" {values.iloc[first[where]]!r} and {values.iloc[differs[0]]!r}. All answers on a unit"
            " must share what groups units or is resampled with them."
        )
    return column.iloc[votes.rows[first]].reset_index(drop=True)


def people_only(table: pd.DataFrame) -> pd.DataFrame:
    return table[rater_group(np.arange(len(table)), table, "human")]


def rater_group(rows: Codes, table: pd.DataFrame, who: str) -> NDArray[np.bool_]:
    column = "rater_kind" if who in RATER_KINDS else "rater"
    if column not in table:
        raise AgreementError(f"The table has no column {column}, so nobody is known to be {who}.")
    mask = (table[column] == who).to_numpy(dtype=bool)[rows]
    if not mask.any():
        present = ", ".join(map(show_rater, sorted(table[column].dropna().unique())[:8]))
        raise AgreementError(f"No answer that counts is by {who!r}. {column} is: {present}.")
    return mask


def is_simulated(rows: pd.DataFrame) -> bool:
    return bool(rows["simulated"].any()) if "simulated" in rows else False


def word_codes(
    verdicts: pd.DataFrame,
    column: str,
    rows: Codes,
    vocabulary: tuple[str, ...],
    *,
    nullable: bool = False,
) -> Codes:
    """Read words as positions in a vocabulary; empty is -1 if `nullable`."""
    codes, names = pd.factorize(verdicts[column])
    positions = np.array(
        [*(vocabulary.index(name) if name in vocabulary else -2 for name in names), -1]
    )
    word_code = positions[codes[rows]]
    refuse(
        word_code < (-1 if nullable else 0),
        rows,
        verdicts[column],
        f"`{column}` must be one of {', '.join(vocabulary)}",
    )
    return word_code


def name_codes(
    verdicts: pd.DataFrame, columns: list[str], rows: Codes
) -> tuple[pd.Index, tuple[Codes, ...]]:
    parts = [pd.factorize(verdicts[column]) for column in columns]
    for column, (codes, _) in zip(columns, parts, strict=True):
        refuse(codes[rows] < 0, rows, verdicts[column], f"`{column}` must not be empty")
    for column, (_, names) in zip(columns, parts, strict=True):
        text = [isinstance(name, str) for name in names]
        if any(text) and not all(text):
            word, other = (names[text.index(is_text)] for is_text in (True, False))
            raise VerdictsError(
                f"verdicts: `{column}` mixes text and other types, such as {word!r} and {other!r},"
                f" so 1 and '1' would differ. Make all of them text: verdicts['{column}'] ="
                f" verdicts['{column}'].astype(str)."
            )
    used = [names.take(np.flatnonzero(np.bincount(codes[rows]))) for codes, names in parts]
    names = pd.Index(np.unique(np.concatenate([np.asarray(part, dtype=object) for part in used])))
    return names, tuple(names.get_indexer(part_names)[codes[rows]] for codes, part_names in parts)


def refuse(wrong: NDArray[np.bool_], rows: Codes, values: pd.Series, rule: str) -> None:
    """Raise if any row is wrong."""
    if not wrong.any():
        return
    bad = values.iloc[rows[wrong]]
    examples = ", ".join(f"row {row} has {value!r}" for row, value in bad.head(MAX_SHOWN).items())
    raise VerdictsError(
        f"verdicts: {rule}; {examples}{', ...' if len(bad) > MAX_SHOWN else ''} ({len(bad)} in"
        " all)."
    )


def need(table: pd.DataFrame, columns: Sequence[str], advice: str = "") -> pd.DataFrame:
    if not isinstance(table, pd.DataFrame):
        raise VerdictsError(
            f"verdicts are a {type(table).__name__}, expected a DataFrame, such as"
            " load_verdicts(file) gives."
        )
    missing = [column for column in columns if column not in table]
    if missing:
        present = ", ".join(map(str, table.columns))
        raise VerdictsError(
            f"verdicts lack the column {', '.join(missing)}. They have {present}. {advice}".rstrip()
        )
    return table


def need_cluster(table: pd.DataFrame, *columns: str | None) -> None:
    if several := [column for column in columns if not isinstance(column, str | None)]:
        raise VerdictsError(
            f"cluster is {several[0]!r}; expected the name of one column, such as 'dialogue_id'."
        )
    need(
        table,
        [column for column in columns if column],
        "Name a column of what was sampled, such as cluster='history_id'.",
    )


def refuse_ties_alone(entries: Entries, dimension: str) -> None:
    if entries.tie.all():
        raise RatingsError(
            f"All {len(entries.rows)} verdicts on {dimension!r} are ties: they rank nobody."
        )


def _rows_of(verdicts: pd.DataFrame, dimension: str, cluster: str | None) -> Codes:
    need_cluster(verdicts, cluster)
    need(verdicts, ["responder_a", "responder_b", "verdict"])
    if "dimension" not in verdicts:
        return np.arange(len(verdicts))
    codes, names = pd.factorize(verdicts["dimension"])
    refuse(
        codes < 0, np.arange(len(verdicts)), verdicts["dimension"], "`dimension` must not be empty"
    )
    matching = np.flatnonzero(np.asarray(names) == dimension)
    if len(verdicts) and not len(matching):
        present = ", ".join(map(str, names))
        raise VerdictsError(
            f"verdicts have no dimension {dimension!r}. They have {present}: name one, as in"
            f" dimension={names[0]!r}."
        )
    return np.flatnonzero(codes == matching[0]) if len(matching) else np.arange(0)


def _said(
    verdicts: pd.DataFrame, rows: Codes, inconsistent: NDArray[np.bool_]
) -> tuple[Codes, Array]:
    """Read each rater's word, and what a wins: ``p_a``, else by the word."""
    word = word_codes(verdicts, "verdict", rows, WORDS, nullable=True)
    meant = np.where(inconsistent, TIE, word)
    share = np.array([*SHARES.values(), np.nan])[meant]
    if "p_a" in verdicts:
        p_a = pd.to_numeric(verdicts["p_a"], errors="coerce").to_numpy(float, na_value=np.nan)[rows]
        given = verdicts["p_a"].notna().to_numpy()[rows]
        refuse(
            given & ~((p_a >= 0) & (p_a <= 1)), rows, verdicts["p_a"], "`p_a` must be from 0 to 1"
        )
        against = given & (meant >= 0) & (meant != TIE) & ((share - 0.5) * (p_a - 0.5) < 0)
        refuse(
            against,
            rows,
            verdicts["p_a"],
            "`p_a` is the chance that a is better, and must not contradict the verdict",
        )
        share = np.where(given, p_a, share)
    refuse(
        np.isnan(share), rows, verdicts["verdict"], "a valid answer must have a verdict or `p_a`"
    )
    return word, share


def _states(table: pd.DataFrame, rows: Codes) -> Codes:
    if "state" not in table:
        return np.full(len(rows), VALID)
    return word_codes(table, "state", rows, STATE_NAMES)


def _answered(table: pd.DataFrame, kind: str) -> Codes:
    answered = table[kind].notna()
    if kind == "verdict" and "p_a" in table:
        answered |= table["p_a"].notna()
    return np.where(answered, VALID, NO_ANSWER)


def _left_out(state: Codes, counts: NDArray[np.bool_], what: str) -> pd.Series:
    """Count by state the answers that do not count; refuse if none does."""
    left_out = (
        pd.Series(np.array(STATE_NAMES, dtype=object)[state[~counts]])
        .value_counts()
        .rename("left_out")
    )
    if not counts.any():
        counts_by_state = (
            ", ".join(f"{count} {name}" for name, count in left_out.items())
            or "the table has no row"
        )
        raise VerdictsError(
            f"No {what}: {counts_by_state}. `state` says what became of each answer."
        )
    return left_out


def _kind_of(table: pd.DataFrame) -> str:
    kinds = [kind for kind in ("verdict", "score") if kind in table]
    if not kinds:
        present = ", ".join(map(str, table.columns))
        raise VerdictsError(f"The table has neither a column verdict nor score. It has {present}.")
    answered = [kind for kind in kinds if table[kind].notna().any()]
    if len(answered) == 2:
        raise VerdictsError(
            "The table mixes verdicts and scores. Compare verdicts with verdicts; "
            "`scores_to_verdicts` turns scores into verdicts made from scores."
        )
    return (answered or kinds)[0]


def _scores(table: pd.DataFrame, rows: Codes) -> tuple[Codes, Array]:
    score = pd.to_numeric(table["score"], errors="coerce").to_numpy(float)[rows]
    refuse(
        np.isnan(score), rows, table["score"], "`score` must be a number in each row that is valid"
    )
    levels, codes = np.unique(score, return_inverse=True)
    return codes.astype(np.intp), levels


def _sides(
    table: pd.DataFrame, rows: Codes, turned: NDArray[np.bool_]
) -> tuple[Codes, NDArray[np.object_]]:
    """Code each verdict as a position in WORDS, a the first author by name."""
    word, share = _said(table, rows, turned)
    word = np.where(turned, TIE, word)
    codes = np.where(word < 0, 1 - np.sign(share - 0.5), word).astype(np.intp)
    if {"responder_a", "responder_b"} <= set(table.columns):
        _, (first, second) = name_codes(table, ["responder_a", "responder_b"], rows)
        codes = np.where(first > second, 2 - codes, codes)
    return codes, np.array(WORDS, dtype=object)


def _code_rows(table: pd.DataFrame, keys: Sequence[str], rows: Codes) -> tuple[Codes, pd.DataFrame]:
    """Code each unit; a key that is absent in all rows is ignored."""
    absent = {key: table[key].isna().to_numpy()[rows] for key in keys}
    used = [key for key in keys if key == keys[0] or not absent[key].all()]
    refuse(absent[keys[0]], rows, table[keys[0]], f"`{keys[0]}` must not be empty")
    codes = np.zeros(len(rows), np.intp)
    for key in used:
        # Whole columns are coded, then rows chosen among the codes: to take rows out of a column of
        # texts costs far more.
        key_codes, values = pd.factorize(pd.factorize(table[key], use_na_sentinel=False)[0][rows])
        codes = codes * max(len(values), 1) + key_codes
    _, first, unit = np.unique(codes, return_index=True, return_inverse=True)
    return unit, table[used].iloc[rows[first]].reset_index(drop=True)


def _refuse_repeats(
    table: pd.DataFrame,
    unit: Codes,
    rater: Codes,
    units: pd.DataFrame,
    raters: pd.Index,
    rows: Codes,
) -> None:
    key = unit * len(raters) + rater
    again = pd.Series(key).duplicated().to_numpy()
    if not again.any():
        return
    second = int(np.argmax(again))
    pair = rows[[int(np.argmax(key == key[second])), second]]
    told_by = [
        name for name in ("order", "repeat", "protocol", "answer_format", "group") if name in table
    ]
    differ = [column for column in told_by if len(set(map(str, table[column].iloc[pair]))) > 1]
    differences = f"They differ in {', '.join(differ)}. " if differ else ""
    raise VerdictsError(
        f"{show_rater(raters[rater[second]])} answers {dict(units.iloc[unit[second]])} more than"
        f" once (rows {table.index[pair[0]]} and {table.index[pair[1]]}; {int(again.sum())} such"
        f" repeats). {differences}Keep one of them, or name each apart in `rater`."
    )


def _are_joined(table: pd.DataFrame, rows: Codes) -> NDArray[np.bool_]:
    if "order" not in table:
        return np.zeros(len(rows), bool)
    return table["order"].eq(BOTH).to_numpy(bool)[rows]


KEY = ["pair_id", "rater", "dimension", "repeat", "protocol", "answer_format", "group"]
# where no `pair_id` says which replies met
MEETING = ["history_id", "dialogue_id", "slice", "unit", "seeker"]
SIDES = ["responder_a", "responder_b"]
ONE_ORDER = "one_order"
BOTH = "both"  # the order of an answer that was joined from two


def combine_orders(verdicts: pd.DataFrame) -> pd.DataFrame:
    """Join the two orders of a pair into one row a pair, rater, dimension and repeat.

    Whatever reads verdicts joins them; call this to see the rows.

    =======================  ============  ===========  =================================
    the two orders           state         verdict      p_a
    =======================  ============  ===========  =================================
    the same                 valid         that         none
    a and b                  inconsistent  none         none (half a win to each)
    a (or b) and a tie       valid         a (b)        0.75 (0.25): half to each order
    anything, with p_a       as above      as above     the mean of the two
    one valid, one failed    valid         the valid    none; flagged ``one_order``
    both failed              the worse     none         none
    =======================  ============  ===========  =================================

    ``order`` is ``"both"`` (or that of the one valid answer); flags of both are kept, and their
    mean margin for the winner.

    Parameters
    ----------
    verdicts
        The verdicts table, with ``order`` (``"ab"``, ``"ba"`` or empty), ``verdict``, and
        ``pair_id``, or ``history_id`` or ``dialogue_id`` and the two responders.

    Returns
    -------
    pandas.DataFrame
        In the order in which pairs first appear.

    Raises
    ------
    VerdictsError
        If a rater answered one order of a pair twice in a repeat, or a column is missing.

    Examples
    --------
    >>> both = pd.DataFrame({"pair_id": list("ppqq"), "rater": "judge", "order": ["ab", "ba"] * 2})
    >>> joined = combine_orders(both.assign(verdict=list("abaa")))
    >>> joined[["pair_id", "state", "verdict"]].values.tolist()
    [['p', 'inconsistent', nan], ['q', 'valid', 'a']]
    """
    columns = (
        ["order", "verdict"] if _meeting_columns(verdicts) else ["order", "verdict", "pair_id"]
    )
    need(verdicts, columns, "Orders are joined by them.")
    joined = join_orders(verdicts, strict=True)
    return (verdicts if joined is None else joined).reset_index(drop=True)


def join_orders(verdicts: pd.DataFrame, *, strict: bool = False) -> pd.DataFrame | None:
    """Join the two orders of each pair by the rule of :func:`combine_orders`; None if none has two.

    Answers in one order that came twice are refused where they cannot be joined, or if `strict`.
    """
    columns = _meeting_columns(verdicts)
    if "order" not in verdicts or not columns or not verdicts["order"].notna().any():
        return None
    every = np.arange(len(verdicts))
    order_code = word_codes(verdicts, "order", every, (*ORDERS, BOTH), nullable=True)
    word = word_codes(verdicts, "verdict", every, WORDS, nullable=True)
    state = _answered(verdicts, "verdict") if "state" not in verdicts else _states(verdicts, every)
    group, turned = _group_pairs(verdicts, columns)
    shown = np.where(turned & np.isin(order_code, (0, 1)), 1 - order_code, order_code)
    first, second = _find_pairs(verdicts, group, shown, strict)
    if not len(first):
        return None
    share = np.where(state == VALID, np.array([*SHARES.values(), np.nan])[word], np.nan)
    share = np.where(turned, 1.0 - share, share)
    joined = _join(
        *(
            (_turn(verdicts.iloc[rows], turned[rows]), state[rows], share[rows])
            for rows in (first, second)
        )
    ).set_axis(verdicts.index[first])
    rest = np.setdiff1d(every, np.concatenate([first, second]))
    pair_number = np.concatenate([group[rest], group[first]])
    alone = verdicts.iloc[rest].assign(state=np.array(STATE_NAMES, dtype=object)[state[rest]])
    whole = pd.concat([alone, joined]) if len(rest) else joined
    return whole.iloc[np.argsort(pair_number, kind="stable")]


def _meeting_columns(verdicts: pd.DataFrame) -> list[str]:
    if "pair_id" in verdicts:
        return ["pair_id"]
    named = [column for column in MEETING if column in verdicts]
    return named if {*named} & {*MEETING[:2]} and {*SIDES} <= {*verdicts.columns} else []


def _number_pairs(verdicts: pd.DataFrame, columns: list[str]) -> Codes:
    keys: list[Any] = [verdicts[column] for column in columns]
    if columns != ["pair_id"]:
        a, b = _code_sides(verdicts)
        keys += [np.minimum(a, b), np.maximum(a, b)]
    return _number(verdicts, keys)


def _code_sides(verdicts: pd.DataFrame) -> tuple[Codes, Codes]:
    """Code both responders; where none is named, nobody changes places."""
    if not {*SIDES} <= {*verdicts.columns}:
        return (np.zeros(len(verdicts), np.intp),) * 2
    codes = pd.factorize(np.concatenate([verdicts[side].to_numpy(object) for side in SIDES]))[0]
    return codes[: len(verdicts)], codes[len(verdicts) :]


def _group_pairs(verdicts: pd.DataFrame, columns: list[str]) -> tuple[Codes, NDArray[np.bool_]]:
    """Code what one rater said of a pair, and find rows with sides turned."""
    more = [verdicts[column] for column in KEY[1:] if column in verdicts]
    group = _number(verdicts, [_number_pairs(verdicts, columns), *more])
    (a, b), lead = _code_sides(verdicts), np.unique(group, return_index=True)[1][group]
    return group, (a == b[lead]) & (b == a[lead]) & (a != b)


def _number(verdicts: pd.DataFrame, keys: list[Any]) -> Codes:
    return np.asarray(verdicts.groupby(keys, sort=False, dropna=False).ngroup(), dtype=np.intp)


def _turn(rows: pd.DataFrame, turned: NDArray[np.bool_]) -> pd.DataFrame:
    rows = rows.reset_index(drop=True)
    if not turned.any():
        return rows
    rows = rows.copy()
    for one, other in (SIDES, ["reply_a", "reply_b"]):
        if one in rows and other in rows:
            rows[one], rows[other] = (
                rows[one].mask(turned, rows[other]),
                rows[other].mask(turned, rows[one]),
            )
    if "p_a" in rows:
        rows["p_a"] = rows["p_a"].mask(turned, 1.0 - pd.to_numeric(rows["p_a"], errors="coerce"))
    return rows


def _find_pairs(
    verdicts: pd.DataFrame, group: Codes, shown: Codes, strict: bool
) -> tuple[Codes, Codes]:
    known = np.flatnonzero((shown >= 0) & (shown < len(ORDERS)))
    number = np.zeros((int(group.max(initial=-1)) + 1, len(ORDERS)), np.intp)
    np.add.at(number, (group[known], shown[known]), 1)
    both = (number > 0).all(axis=1)
    wrong = np.asarray((number > 1).any(axis=1) & (both | strict))
    if wrong.any():
        again = pd.DataFrame({"group": group[known], "shown": shown[known]}).duplicated().to_numpy()
        again = known[again & wrong[group[known]]]
        row = verdicts.iloc[again[0]]
        cells = row.reindex([column for column in (*KEY[:4], *SIDES) if column in verdicts])
        if "rater" in cells:
            cells["rater"] = show_rater(cells["rater"])
        key_values = ", ".join(f"{column} {cell!r}" for column, cell in cells.items())
        advice = "" if "rater" in verdicts else "Name who answered in `rater`. "
        raise VerdictsError(
            f"One rater answered the same order twice: {redact_message(key_values)},"
            f" order {row['order']!r} ({len(again)} such rows). {advice}Number repeated answers"
            " with `repeat`."
        )
    row_of = np.full((len(number), len(ORDERS)), -1)
    row_of[group[known], shown[known]] = known
    return row_of[both, 0], row_of[both, 1]


def _join(
    ab: tuple[pd.DataFrame, Codes, Array], ba: tuple[pd.DataFrame, Codes, Array]
) -> pd.DataFrame:
    (one, state, word), (two, other_state, other_word) = ab, ba
    valid, other_valid = state == VALID, other_state == VALID
    both, some = valid & other_valid, valid | other_valid
    opposed = both & (np.abs(word - other_word) == 1.0)
    lead = np.where(both, (word + other_word) / 2.0, np.where(valid, word, other_word))
    word_code = np.select([opposed | np.isnan(lead), lead > 0.5, lead < 0.5], [3, 0, 1], 2)
    joined = one.copy()
    joined["verdict"] = _take(["a", "b", "tie", None], word_code)
    joined["state"] = _take(
        list(STATE_NAMES),
        np.select([opposed, some], [INCONSISTENT, VALID], np.maximum(state, other_state)),
    )
    joined["order"] = _take(
        [None, "ab", "ba", BOTH], np.select([both, valid, other_valid], [3, 1, 2], 0)
    )
    p_a, other_p_a = _numbers(one, "p_a", valid), _numbers(two, "p_a", other_valid)
    share = np.where(np.isnan(p_a), word, p_a)
    other_share = np.where(np.isnan(other_p_a), other_word, other_p_a)
    soft = both & (~np.isnan(p_a) | ~np.isnan(other_p_a) | (np.abs(word - other_word) == 0.5))
    joined["p_a"] = np.select(
        [soft, both, valid], [(share + other_share) / 2.0, np.nan, p_a], other_p_a
    )
    if "margin" in one:
        named, other_named = both & (word == lead.round()), both & (other_word == lead.round())
        margin = _numbers(one, "margin", np.where(both, (word_code < 2) & named, valid))
        other_margin = _numbers(
            two, "margin", np.where(both, (word_code < 2) & other_named, other_valid)
        )
        joined["margin"] = pd.DataFrame([margin, other_margin]).mean().to_numpy()
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
        joined["comparison_id"] = one["comparison_id"].where(
            valid | ~other_valid, two["comparison_id"]
        )
    return joined


def _numbers(verdicts: pd.DataFrame, column: str, where: NDArray[np.bool_]) -> Array:
    if column not in verdicts:
        return np.full(len(verdicts), np.nan)
    return np.where(where, verdicts[column].to_numpy(float, na_value=np.nan), np.nan)


def _take(words: list[str | None], codes: Codes) -> pd.Series:
    return pd.Series(pd.array(words, dtype="str").take(codes))


def complete_starts(first: pd.DataFrame, second: pd.DataFrame, cluster: str) -> pd.DataFrame:
    """Lay two measures side by side, a row a start."""
    for rows in (first, second):
        need_columns(rows, ["responder", "score", cluster], AgreementError)
    wide = [
        rows.pivot_table(index=cluster, columns="responder", values="score")
        for rows in (first, second)
    ]
    both = pd.concat(wide, axis=1, keys=["first", "second"])
    common = sorted(set(wide[0]) & set(wide[1]), key=str)
    both = both[[(name, one) for name in ("first", "second") for one in common]].dropna()
    if len(common) < 2 or len(both) < 4:
        raise AgreementError(
            f"Both measures have {len(common)} responders in {len(both)} complete starts in common;"
            " expected two or more in four or more."
        )
    return both
