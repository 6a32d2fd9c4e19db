"""Pairs of votes on one pair of replies: who agrees with whom, kept as small tables of counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from heart_utils.analysis.votes import AgreementError, Array, Codes, Votes, codes_of_authors, unit_values
from heart_utils.tables import RATER_KINDS

__all__ = ["VotePairs", "pair_votes"]

A, TIE, B = 0, 1, 2
N_LABELS = 3
AMBIGUITY = ("ambiguous", "clear", "unknown")
SPLIT = 0.6
"""People who split no wider than 60 to 40 make a pair ambiguous."""

VOTE_COLUMNS = ("margin", "rater", "ambiguity")
"""What `by` may name that belongs to a vote (or to two), not to the pair of replies."""


@dataclass(frozen=True)
class VotePairs:
    """Pairs of votes, summed to a table of counts for each unit and group.

    Attributes
    ----------
    counts : numpy.ndarray
        Shape (rows, 3, 3): first party's label by second party's, in the order a, tie, b. Where both
        parties are the same, each pair of votes adds one half in both places.
    unit, cluster, group, authors : numpy.ndarray
        Codes of each row: the unit, what is resampled, the row of `groups`, the pair of responders.
    groups : pandas.DataFrame
        One row a group, with the columns of `by`.
    own : numpy.ndarray
        Shape (units, 3): what the first party said of each unit.
    unit_cluster, unit_group, unit_authors : numpy.ndarray
        For each unit: its cluster, what it shares of `by`, its pair of responders.
    symmetric : bool
        Whether both parties are the same raters.
    n_clusters : int
        Number of clusters.
    """

    counts: Array
    unit: Codes
    cluster: Codes
    group: Codes
    authors: Codes
    groups: pd.DataFrame
    own: Array
    unit_cluster: Codes
    unit_group: Codes
    unit_authors: Codes
    symmetric: bool
    n_clusters: int


def pair_votes(votes: Votes, table: pd.DataFrame, *, between: tuple[str, str], by: Sequence[str]) -> VotePairs:
    """Pair every vote of one party with every vote of the other on the same unit.

    Parameters
    ----------
    votes : Votes
        Verdicts, as :func:`~heart_utils.analysis.votes.read_votes` gives them.
    table : pandas.DataFrame
        The table that they were read from.
    between : tuple of str
        Two parties: ``"human"``, ``"model"``, or the name of one rater.
    by : sequence of str
        Columns of the table that all votes on a unit share; or ``"margin"`` (of the first party),
        ``"rater"`` (of the second) and ``"ambiguity"`` (do the other people split?).

    Returns
    -------
    VotePairs
        The counts.

    Raises
    ------
    AgreementError
        If a party has no vote, fewer than two raters vote, or no unit has votes of both.

    Examples
    --------
    >>> from heart_utils.analysis.votes import read_votes
    >>> table = pd.DataFrame({"pair_id": "p", "rater": list("klm"), "rater_kind": "human", "verdict": ["a", "a", "b"]})
    >>> table = table.assign(responder_a="x", responder_b="y")
    >>> pairs = pair_votes(read_votes(table, cluster=None), table, between=("human", "human"), by=[])
    >>> pairs.counts[0]  # of three pairs of people one agrees; each stands half on either side
    array([[1., 0., 1.],
           [0., 0., 0.],
           [1., 0., 0.]])
    """
    _check(votes, table, between, by)
    first, second = (_party(votes, table, who) for who in between)
    symmetric = bool((first == second).all())
    if symmetric and len(np.unique(votes.rater[first])) < 2:
        raise AgreementError(
            f"Agreement of {between[0]} with {between[1]} needs two raters or more; "
            f"there is only {votes.raters[votes.rater[first][0]]}."
        )
    margin = _margin(votes, table) if "margin" in by else None
    one = _count(votes, first, margin)
    two = _count(votes, second, votes.rater if "rater" in by else None)
    left, right = _join(one.unit, two.unit, len(votes.units))
    if not len(left):
        raise AgreementError(
            f"{between[0]} and {between[1]} share no pair: nobody of one judged what somebody of the other did."
        )
    counts = one.counts[left][:, :, None] * two.counts[right][:, None, :]
    _take_away_oneself(counts, votes, first & second, one, two, left, right)
    halved = symmetric and margin is None and "rater" not in by
    if halved:
        counts /= 2.0
    labels: dict[str, NDArray[np.object_]] = {}
    unit = one.unit[left]
    for column in by:
        if column == "margin":
            labels[column] = one.label[left].astype(object)
        elif column == "rater":
            labels[column] = votes.raters.to_numpy(dtype=object)[two.label[right].astype(int)]
        elif column != "ambiguity":
            labels[column] = unit_values(votes, table, column).to_numpy(dtype=object)[unit]
    own = np.zeros((len(votes.units), N_LABELS))
    np.add.at(own, (votes.unit[first], votes.value[first]), 1.0)
    if "ambiguity" in by:
        people = _party(votes, table, "human")
        said = np.zeros((len(votes.units), N_LABELS))
        np.add.at(said, (votes.unit[people], votes.value[people]), 1.0)
        taken = (bool(people[first].all()), bool(people[second].all()))
        counts, repeat, labels["ambiguity"] = _split_by_ambiguity(counts, said[unit], taken)
        unit = unit[repeat]
        labels = {column: values if column == "ambiguity" else values[repeat] for column, values in labels.items()}
    holds = counts.sum(axis=(1, 2)) > 0
    if not holds.any():
        raise AgreementError(f"{between[0]} and {between[1]} share no pair: each pair was judged by one rater only.")
    counts, unit = counts[holds], unit[holds]
    group, groups = _number(pd.DataFrame({column: np.asarray(labels[column])[holds] for column in by}, index=range(len(unit))))
    cluster = np.zeros(len(votes.units), np.intp)
    cluster[votes.unit] = votes.cluster
    authors = _authors(votes, table)
    shared = [column for column in by if column not in VOTE_COLUMNS]
    unit_group, _ = _number(
        pd.DataFrame({column: unit_values(votes, table, column) for column in shared}, index=votes.units.index)
    )
    return VotePairs(
        counts,
        unit,
        cluster[unit],
        group,
        authors[unit],
        groups,
        own,
        cluster,
        unit_group,
        authors,
        symmetric,
        len(votes.clusters),
    )


@dataclass(frozen=True)
class _Cells:
    """Votes of a party counted by unit and by a label of the vote."""

    unit: Codes
    label: Array
    counts: Array
    cell_of_vote: Codes


def _check(votes: Votes, table: pd.DataFrame, between: tuple[str, str], by: Sequence[str]) -> None:
    if votes.kind != "verdict":
        raise AgreementError(
            "Pairwise agreement is of verdicts, and the table holds scores. "
            "Turn them with `scores_to_verdicts`, or use `rank_agreement`."
        )
    if len(tuple(between)) != 2 or isinstance(between, str):
        raise AgreementError(f"between names two parties, such as ('human', 'model'); got {between!r}.")
    if len(votes.raters) < 2:
        raise AgreementError(f"Agreement needs two raters or more; there is only {votes.raters[0]}.")
    missing = [column for column in ("responder_a", "responder_b") if column not in table]
    missing += [column for column in by if column not in table and column != "ambiguity"]
    if set(between) & set(RATER_KINDS) and "rater_kind" not in table:
        missing.append("rater_kind")
    if missing:
        raise AgreementError(f"verdicts have no column {', '.join(missing)}. They have {', '.join(map(str, table.columns))}.")


def _party(votes: Votes, table: pd.DataFrame, who: str) -> NDArray[np.bool_]:
    column = "rater_kind" if who in RATER_KINDS else "rater"
    if column not in table:
        raise AgreementError(f"verdicts have no column {column}, so nobody is known to be {who}.")
    mask = (table[column] == who).to_numpy(dtype=bool)[votes.rows]
    if not mask.any():
        there = ", ".join(map(str, sorted(table[column].dropna().unique())[:8]))
        raise AgreementError(f"No verdict that counts is by {who!r}. {column} is: {there}.")
    return mask


def _margin(votes: Votes, table: pd.DataFrame) -> Array:
    return pd.to_numeric(table["margin"], errors="coerce").to_numpy(float, na_value=np.nan)[votes.rows]


def _count(votes: Votes, mask: NDArray[np.bool_], label: Array | Codes | None) -> _Cells:
    """Count a party's votes by unit, label of the vote, and verdict."""
    where = np.flatnonzero(mask)
    values = np.zeros(len(where)) if label is None else np.asarray(label, float)[where]
    codes, names = pd.factorize(values, use_na_sentinel=False)
    key = votes.unit[where] * len(names) + codes
    found, cell = np.unique(key, return_inverse=True)
    counts = np.bincount(cell * N_LABELS + votes.value[where], minlength=len(found) * N_LABELS).reshape(-1, N_LABELS)
    cell_of_vote = np.full(len(votes.unit), -1)
    cell_of_vote[where] = cell
    return _Cells(found // len(names), np.asarray(names, float)[found % len(names)], counts.astype(float), cell_of_vote)


def _join(one: Codes, two: Codes, n_units: int) -> tuple[Codes, Codes]:
    """Give all pairs of positions that hold the same unit; both are sorted."""
    start = np.searchsorted(two, np.arange(n_units + 1))
    n_matches = start[one + 1] - start[one]
    left = np.repeat(np.arange(len(one)), n_matches)
    offset = np.arange(len(left)) - np.repeat(np.cumsum(n_matches) - n_matches, n_matches)
    return left, start[one[left]] + offset


def _take_away_oneself(
    counts: Array, votes: Votes, both: NDArray[np.bool_], one: _Cells, two: _Cells, left: Codes, right: Codes
) -> None:
    """Nobody is compared with themselves: a vote in both parties leaves the diagonal once."""
    where = np.flatnonzero(both)
    if not len(where):
        return
    width = len(two.unit)
    key = left * width + right  # sorted, for `_join` goes through both in order
    row = np.searchsorted(key, one.cell_of_vote[where] * width + two.cell_of_vote[where])
    np.subtract.at(counts, (row, votes.value[where], votes.value[where]), 1.0)


def _split_by_ambiguity(counts: Array, said: Array, taken: tuple[bool, bool]) -> tuple[Array, Codes, NDArray[np.object_]]:
    """Split each table of counts by whether the people whose votes it does not use agree with each other."""
    parts = np.zeros((len(AMBIGUITY), *counts.shape))
    for one in range(N_LABELS):
        for two in range(N_LABELS):
            others = said.copy()
            others[:, one] -= taken[0]
            others[:, two] -= taken[1]
            n_others = others.sum(axis=1)
            larger = np.maximum(others[:, A], others[:, B]) + others[:, TIE] / 2.0
            kind = np.select([n_others < 2, larger <= SPLIT * n_others], [2, 0], 1)
            parts[kind, np.arange(len(counts)), one, two] = counts[:, one, two]
    repeat = np.tile(np.arange(len(counts)), len(AMBIGUITY))
    names = np.repeat(np.array(AMBIGUITY, dtype=object), len(counts))
    return parts.reshape(-1, N_LABELS, N_LABELS), repeat, names


def _number(labels: pd.DataFrame) -> tuple[Codes, pd.DataFrame]:
    """Give a code to each combination of labels that occurs; with no labels all rows are one group."""
    if labels.empty and not len(labels.columns):
        return np.zeros(len(labels), np.intp), pd.DataFrame(index=[0])
    codes = np.zeros(len(labels), np.intp)
    for column in labels:
        found, names = pd.factorize(labels[column], sort=True, use_na_sentinel=False)
        codes = codes * len(names) + found
    dense, first, number = np.unique(codes, return_index=True, return_inverse=True)
    return number.astype(np.intp), labels.iloc[first].reset_index(drop=True)


def _authors(votes: Votes, table: pd.DataFrame) -> Codes:
    """Give a code to each unit's pair of responders, whichever of them is called a."""
    a, b, names = codes_of_authors(table, votes.rows)
    pair = np.minimum(a, b) * len(names) + np.maximum(a, b)
    first = np.zeros(len(votes.units), np.intp)
    first[votes.unit] = pair
    differs = np.flatnonzero(first[votes.unit] != pair)
    if len(differs):
        row = votes.rows[differs[0]]
        raise AgreementError(
            f"Row {table.index[row]} compares {names[a[differs[0]]]} and {names[b[differs[0]]]}, but its pair "
            f"{dict(votes.units.iloc[votes.unit[differs[0]]])} holds other responders in other rows."
        )
    return np.unique(first, return_inverse=True)[1].astype(np.intp)
