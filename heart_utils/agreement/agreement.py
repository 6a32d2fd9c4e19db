"""How often two parties agree on verdicts, beside what chance and what knowing the author would bring."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from heart_utils.agreement.kappa import cluster_of_unit
from heart_utils.ratings.resampling import (
    ENOUGH_CLUSTERS,
    Rng,
    draw_weights,
    error_ends,
    interval_columns,
    ratio,
    refuse_few_raters,
    standard_error,
    sums_by,
)
from heart_utils.ratings.verdicts import AgreementError, Array, Codes, Votes, name_codes, party, read_votes, unit_values
from heart_utils.tables import RATER_KINDS, need_columns

__all__ = ["Agreement", "pairwise_agreement"]

A, TIE, B = 0, 1, 2
N_LABELS = 3
CHUNK_CELLS = 8_000_000
SPLIT = 0.6
"""People who split no wider than 60 to 40 make a pair ambiguous."""

MEASURES = {
    "agreement": (0.0, 1.0),
    "author_only": (0.0, 1.0),
    "advantage": (-1.0, 1.0),
    "kappa": (-1.0, 1.0),
    "kappa_within": (-np.inf, 1.0),
}

VOTE_COLUMNS = ("rater", "ambiguity")
"""What `by` may name that belongs to a vote (or to two), not to the pair of replies."""


@dataclass(frozen=True)
class VotePairs:
    """Pairs of votes, summed for each unit and group to `counts`, the first party's label (a, tie, b) by the second's.

    Where both parties are the same, each pair of votes adds one half in both places. `own` is what the first party said.
    """

    counts: Array  # (rows, 3, 3)
    unit: Codes
    group: Codes
    groups: pd.DataFrame
    own: Array  # (units, 3)
    unit_cluster: Codes
    unit_group: Codes
    unit_authors: Codes
    symmetric: bool
    n_clusters: int
    met: tuple[Codes, Codes, Codes]  # of each pair of votes: the two raters, and its place in `counts`

    def of_rater(self, rater: int, *, first: bool) -> VotePairs:
        """Keep the pairs of votes in which the first party, or the second, is one rater; each counts once."""
        mine = self.met[2][self.met[0 if first else 1] == rater]
        return replace(self, counts=np.bincount(mine, minlength=self.counts.size).reshape(self.counts.shape).astype(float))

    @property
    def cluster(self) -> Codes:
        """Give the cluster of each row."""
        return self.unit_cluster[self.unit]

    def sides(self, counts: Array) -> tuple[Array, Array]:
        """Give the labels of the first party and of the second; of two that are the same people, the mean of both."""
        first, second = counts.sum(axis=2), counts.sum(axis=1)
        return ((first + second) / 2.0,) * 2 if self.symmetric else (first, second)

    def sum_up(self, values: Array) -> Array:
        """Sum rows of values by cluster and group."""
        return sums_by((self.cluster, self.group), values, self.n_clusters, len(self.groups))


def pair_votes(votes: Votes, table: pd.DataFrame, *, between: tuple[str, str | None], by: Sequence[str]) -> VotePairs:
    """Pair what two parties said of the same replies, as counts. With "rater" in `by` the second party is told apart.

    Without a second party each vote is paired with itself.
    """
    alone = between[1] is None
    _check(votes, table, between, by)
    first, second = (party(votes.rows, table, who or between[0]) for who in between)
    symmetric = bool((first == second).all()) and not alone
    if symmetric and len(np.unique(votes.rater[first])) < 2:
        only = votes.raters[votes.rater[first][0]]
        raise AgreementError(f"Agreement of {between[0]} with {between[1]} needs two raters or more; there is only {only}.")
    said = pd.DataFrame({"unit": votes.unit, "rater": votes.rater, "value": votes.value})
    met = said[first].merge(said[second], on="unit", suffixes=("", "_other"))
    met = met[(met["rater"] == met["rater_other"]) == alone]
    if met.empty:
        raise AgreementError(f"{between[0]} and {between[1]} share no pair: nobody of one judged what one of the other did.")
    unit, shared = met["unit"].to_numpy(), [column for column in by if column not in VOTE_COLUMNS]
    of_unit = pd.DataFrame({column: unit_values(votes, table, column) for column in shared}, index=votes.units.index)
    labels = of_unit.iloc[unit].reset_index(drop=True)
    if "rater" in by:
        labels["rater"] = votes.raters.to_numpy(dtype=object)[met["rater_other"]]
    if "ambiguity" in by:
        labels["ambiguity"] = _ambiguity(met, votes, party(votes.rows, table, "human"), first, second)
    group, groups = number_groups(labels[list(by)])
    cells, where = np.unique(unit * len(groups) + group, return_inverse=True)
    place = (where * N_LABELS + met["value"].to_numpy()) * N_LABELS + met["value_other"].to_numpy()
    counts = np.bincount(place, minlength=len(cells) * N_LABELS**2).reshape(-1, N_LABELS, N_LABELS).astype(float)
    return VotePairs(
        counts=counts / 2.0 if symmetric and "rater" not in by else counts,
        unit=cells // len(groups),
        group=cells % len(groups),
        groups=groups,
        own=_labels_of_units(votes, first),
        unit_cluster=cluster_of_unit(votes),
        unit_group=number_groups(of_unit)[0],
        unit_authors=_authors(votes, table),
        symmetric=symmetric,
        n_clusters=len(votes.clusters),
        met=(met["rater"].to_numpy(), met["rater_other"].to_numpy(), place),
    )


def _labels_of_units(votes: Votes, mask: NDArray[np.bool_]) -> Array:
    """Count the answers of some votes on each unit."""
    place = votes.unit[mask] * N_LABELS + votes.value[mask]
    return np.bincount(place, minlength=len(votes.units) * N_LABELS).reshape(-1, N_LABELS).astype(float)


def _ambiguity(
    met: pd.DataFrame, votes: Votes, people: NDArray[np.bool_], first: NDArray[np.bool_], second: NDArray[np.bool_]
) -> NDArray[np.object_]:
    """Say of each pair of votes how people split on its replies, the two votes themselves left out."""
    others, row = _labels_of_units(votes, people)[met["unit"]], np.arange(len(met))
    for mine, value in ((first, "value"), (second, "value_other")):
        others[row, met[value]] -= bool(people[mine].all())
    n_others = others.sum(axis=1)
    larger = np.maximum(others[:, A], others[:, B]) + others[:, TIE] / 2.0
    return np.asarray(np.select([n_others < 2, larger <= SPLIT * n_others], ["unknown", "ambiguous"], "clear"), dtype=object)


def _check(votes: Votes, table: pd.DataFrame, between: tuple[str, str | None], by: Sequence[str]) -> None:
    if votes.kind != "verdict":
        raise AgreementError("The table holds scores. Turn them with `scores_to_verdicts`, or use `rank_agreement`.")
    if len(tuple(between)) != 2 or isinstance(between, str):
        raise AgreementError(f"between names two parties, such as ('human', 'model'); got {between!r}.")
    if len(votes.raters) < 2 and between[1] is not None:
        raise AgreementError(f"Agreement needs two raters or more; there is only {votes.raters[0]}.")
    kind = ["rater_kind"] if set(between) & set(RATER_KINDS) else []
    needed = ["responder_a", "responder_b", *(column for column in by if column != "ambiguity"), *kind]
    need_columns(table, needed, AgreementError)


def number_groups(labels: pd.DataFrame) -> tuple[Codes, pd.DataFrame]:
    """Give a code to each combination of labels that occurs; with no labels all rows are one group."""
    if not len(labels.columns):
        return np.zeros(len(labels), np.intp), pd.DataFrame(index=[0])
    codes = np.zeros(len(labels), np.intp)
    for column in labels:
        found, names = pd.factorize(labels[column], sort=True, use_na_sentinel=False)
        codes = codes * len(names) + found
    dense, first, number = np.unique(codes, return_index=True, return_inverse=True)
    return number.astype(np.intp), labels.iloc[first].reset_index(drop=True)


def _authors(votes: Votes, table: pd.DataFrame) -> Codes:
    """Give a code to each unit's pair of responders, whichever of them is called a."""
    names, (a, b) = name_codes(table, ["responder_a", "responder_b"], votes.rows)
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


@dataclass(frozen=True, eq=False)
class AuthorBaseline:
    """What somebody who knows the two authors and reads nothing would answer, and how often that is right.

    For a unit in cluster d, by responders i and j, the first party's votes on i against j in all other
    clusters (of the same group, where groups divide units) are counted; the commonest label is the
    answer. Labels that are equally common share it, and where nobody judged i against j elsewhere all
    labels do: the answer is then a coin. Without ties this is the sign of the sum of votes.
    """

    told: Array  # (clusters, families, 3): what the first party said of each pair of authors
    cluster: Codes
    family: Codes
    first: Array  # (cells, groups, 3): its labels in the pairs of votes that are compared
    decided: bool  # a tie may not be the answer

    def count_right(self, weights: Array) -> Array:
        """Count the pairs of votes in which that answer agrees, learning it anew under each row of cluster weights."""
        found = np.zeros((len(weights), self.first.shape[1]))
        width = self.first[0].size * max(len(self.told), len(weights))
        for families in np.array_split(np.unique(self.family), np.ceil(self.told.shape[1] * width / CHUNK_CELLS)):
            if len(families):
                found += self._right_in(families, weights)
        return found

    def right_by_cluster(self) -> Array:
        """Count the same, learnt once from the data and kept, apart by cluster."""
        elsewhere = self.told.sum(axis=0) - self.told
        if self.decided:
            elsewhere[..., TIE] = -1.0
        leads = elsewhere == elsewhere.max(axis=2, keepdims=True)
        answer = (leads / leads.sum(axis=2, keepdims=True))[self.cluster, self.family]
        return sums_by(self.cluster, np.einsum("cl,cgl->cg", answer, self.first), len(self.told))

    def _right_in(self, families: Codes, weights: Array) -> Array:
        """Count for some pairs of authors, most at once: where no dialogue can turn the answer, one answer serves all."""
        labels = [A, B] if self.decided else [A, TIE, B]
        mine = np.flatnonzero(np.isin(self.family, families))
        cells_of, where, first = np.searchsorted(families, self.family[mine]), self.cluster[mine], self.first[mine][..., labels]
        said = self.told[:, families][..., labels]
        laid = np.zeros((len(said), len(families), *first.shape[1:]))
        laid[where, cells_of] = first
        total = (weights @ said.reshape(len(said), -1)).reshape(len(weights), *said.shape[1:])
        counted = (weights @ laid.reshape(len(said), -1)).reshape(len(weights), *laid.shape[1:])
        right = np.take_along_axis(counted, total.argmax(axis=2)[..., None, None], axis=3)[..., 0]
        ranked = np.sort(total, axis=2)
        turns = ranked[..., -1] - ranked[..., -2] <= weights.max(axis=1, keepdims=True) * said.max(axis=(0, 2))
        for family in np.flatnonzero(turns.any(axis=0)):
            cells, drawn = cells_of == family, turns[:, family]
            own = weights[np.ix_(drawn, where[cells])][..., None]
            elsewhere = total[drawn, None, family] - own * said[where[cells], family]
            leads = elsewhere == elsewhere.max(axis=2, keepdims=True)
            right[drawn, family] = np.tensordot(
                own * leads / leads.sum(axis=2, keepdims=True), first[cells], axes=([1, 2], [0, 2])
            )
        return np.asarray(right.sum(axis=1))


def author_baseline(pairs: VotePairs, counts: Array, *, decided: bool) -> AuthorBaseline:
    """Lay out what the answer from the authors' names needs."""
    n_authors = int(pairs.unit_authors.max()) + 1
    family = pairs.unit_group * n_authors + pairs.unit_authors
    n_families = int(family.max()) + 1
    told = sums_by((pairs.unit_cluster, family), pairs.own, pairs.n_clusters, n_families)
    found, cell = np.unique(pairs.cluster * n_families + family[pairs.unit], return_inverse=True)
    summed = sums_by((cell, pairs.group), pairs.sides(counts)[0], len(found), len(pairs.groups))
    return AuthorBaseline(told, found // n_families, found % n_families, summed, decided)


def author_margins(pairs: VotePairs, counts: Array) -> Array:
    """Sum both parties' labels by cluster, group and pair of authors."""
    cell, n_authors = (pairs.cluster, pairs.group, pairs.unit_authors[pairs.unit]), int(pairs.unit_authors.max()) + 1
    return sums_by(cell, np.concatenate(pairs.sides(counts), axis=1), pairs.n_clusters, len(pairs.groups), n_authors)


def agreement_within(margins: Array) -> Array:
    r"""Give the share of agreement that knowing the authors alone would bring two raters by chance.

    Within a pair of authors, two raters that answer by their own habits alone agree in :math:`\sum_k p_k q_k` of
    their votes; pairs of authors weigh as many votes as they have.
    """
    first, second = margins[..., :N_LABELS], margins[..., N_LABELS:]
    n_votes = first.sum(axis=-1)
    by_habit = ratio((first * second).sum(axis=-1), n_votes, 0.0)
    return ratio(by_habit.sum(axis=-1), n_votes.sum(axis=-1))


@dataclass(frozen=True)
class Agreement:
    """How often two parties agree.

    Attributes
    ----------
    table : pandas.DataFrame
        One row a group of `by`, with the columns of `by` and

        - ``agreement``: share of pairs of votes that are the same;
        - ``author_only``: the share that an answer from the two authors' names alone would reach on
          the very same pairs of votes;
        - ``advantage``: ``agreement`` minus ``author_only``;
        - ``kappa``: agreement beyond chance, where chance knows neither a from b nor the authors;
        - ``kappa_within``: agreement beyond what habits within each pair of authors bring;
        - each of these with ``_low`` and ``_high``, the ends of its interval;
        - ``ci_level``; ``n_votes`` (pairs of votes), ``n_pairs`` (pairs of replies on a dimension),
          ``n_clusters``; ``decided_share`` (pairs of votes in which neither is a tie);
          ``provisional`` (fewer than 30 clusters).
    between : tuple of str
        The two parties.
    ties : str
        ``"include"`` or ``"exclude"``.
    left_out : pandas.Series
        State -> answers that do not count.
    n_inconsistent : int
        Answers counted as ties that contradicted themselves when the order was turned.
    """

    table: pd.DataFrame
    between: tuple[str, str]
    ties: str
    left_out: pd.Series
    n_inconsistent: int


def pairwise_agreement(
    verdicts: pd.DataFrame,
    *,
    between: tuple[str, str] = ("human", "model"),
    ties: str = "include",
    by: Sequence[str] = ("dimension",),
    inconsistent: str = "tie",
    cluster: str | Sequence[str] = "dialogue_id",
    n_resamples: int = 1000,
    ci_level: float = 0.95,
    rng: Rng = None,
) -> Agreement:
    r"""Measure how often two parties say the same of a pair of replies, and what that is worth.

    Every vote of one party is compared with every vote of the other on the same pair of replies [1]_.
    Beside the share of equal votes stands what needs no reading: for each pair of votes, what the first
    party said most often of the same two authors in *other* dialogues. And
    :math:`\kappa = (p_o - p_e) / (1 - p_e)` twice: with :math:`p_e` from the share of ties alone, since
    a and b are arbitrary names (without ties this is :math:`2 p_o - 1`, and so are Scott's pi and
    Gwet's AC1), and with :math:`p_e` from each pair of authors' own margins.

    Parameters
    ----------
    verdicts : pandas.DataFrame
        The verdicts table. Two orders of a pair are joined before, by ``combine_orders``.
    between : tuple of str
        Two parties: ``"human"``, ``"model"``, or a rater's name. People come first: the answer from the
        authors' names is learnt from the first party's votes and held against them. Where both parties
        are the same raters, it is held against both votes, and the mean is taken.
    ties : {"include", "exclude"}
        Whether a tie is an answer like the others, or only pairs of votes count that both decided.
    by : sequence of str
        What divides the rows: columns that all votes on a pair share, such as ``"dimension"``, ``"slice"``, ``"group"``; or
        ``"rater"`` (of the second party), ``"ambiguity"``: ``"ambiguous"`` if the other people, whose votes are not the ones
        compared, split no wider than 60 to 40 (a tie half to each), ``"clear"`` if they do not, ``"unknown"`` if they are
        fewer than two. With the same raters on both sides, ``"rater"`` counts a pair of votes from either side.
    inconsistent : {"tie", "drop"}
        What an answer counts as that turned with the order of the replies.
    cluster : str or two str
        Column of what is resampled together, for dialogues like these; or ``["dialogue_id", "rater"]``, for dialogues
        and people like these, as in ``crossed_error``. Judges stay the same.
    n_resamples, ci_level, rng
        As in :func:`~heart_utils.ratings.resampling.bootstrap_ci`.

    Returns
    -------
    Agreement
        ``.table`` has one row a group. Intervals follow the rule of ``interval_ends``;
        what the authors' names alone predict is learnt anew in each resample, never from a copy of the
        dialogue that it is held against. A resample holds fewer different dialogues than the data, so names learnt in
        it are right less often; only the spread of the resamples is used, so the interval stays about the estimate.
        A measure with no value (kappa where chance alone is 1, or a group in which no vote counts) is ``nan``.

    Raises
    ------
    AgreementError
        If a party has no vote, nobody shares a pair, a rater answers a pair twice or in two orders, the table holds
        scores, or `ties` are excluded and all are ties; with two clusters, if people are fewer than 20, belong to one
        dialogue each, or are no party.

    References
    ----------
    .. [1] Zheng et al. (2023), https://arxiv.org/abs/2306.05685, count in this way.

    Examples
    --------
    >>> votes = pd.DataFrame({"pair_id": ["p", "p", "q", "q"], "dialogue_id": ["d", "d", "e", "e"],
    ...     "responder_a": "human", "responder_b": "model", "rater": ["ann", "llm"] * 2,
    ...     "rater_kind": ["human", "model"] * 2, "verdict": ["a", "a", "a", "b"]})
    >>> pairwise_agreement(votes, by=[], n_resamples=0).table[["agreement", "author_only", "n_votes"]].to_dict("records")
    [{'agreement': 0.5, 'author_only': 1.0, 'n_votes': 2}]
    """
    if ties not in ("include", "exclude"):
        raise AgreementError(f"ties must be 'include' or 'exclude'; got {ties!r}.")
    clusters = [cluster] if isinstance(cluster, str) else list(cluster)
    if clusters[1:] not in ([], ["rater"]):
        raise AgreementError(f"cluster names a column, or such a column and 'rater'; got {cluster!r}.")
    votes = read_votes(verdicts, cluster=clusters[0], inconsistent=inconsistent)
    pairs = pair_votes(votes, verdicts, between=between, by=by)
    counts = that_count(pairs, ties)
    if not counts.any():
        raise AgreementError(
            f"Nothing is decided: each of the {pairs.counts.sum():.0f} pairs of votes by {between[0]} and {between[1]} holds a "
            f"tie. Count ties as answers (ties='include'), or collect votes that decide."
        )
    sums, margins = sum_by_cluster(pairs, counts), author_margins(pairs, counts)
    names = author_baseline(pairs, counts, decided=ties == "exclude")
    estimate = _measures(sums.sum(axis=0), margins.sum(axis=0), names.count_right(np.ones((1, len(sums))))[0])
    replicates = _resample(sums, margins, names, draw_weights(len(sums), n_resamples, rng))
    drawn = (sums[:, :, 0] > 0).sum(axis=0)
    others = None
    if len(clusters) > 1 and len(replicates):
        totals = sums.sum(axis=0), margins.sum(axis=0), names.right_by_cluster().sum(axis=0)
        others = _vary_people(votes, verdicts, pairs, names, totals, between=between, by=by, ties=ties)
    table = pd.concat([pairs.groups, _lay_out(pairs, counts, estimate, replicates, drawn, ci_level, others)], axis=1)
    return Agreement(table, between, ties, votes.left_out, votes.n_inconsistent)


def that_count(pairs: VotePairs, ties: str) -> Array:
    """Leave out pairs of votes with a tie, if ties are no answer."""
    counts = pairs.counts.copy()
    if ties == "exclude":
        counts[:, TIE, :] = counts[:, :, TIE] = 0.0
    return counts


def sum_by_cluster(pairs: VotePairs, counts: Array) -> Array:
    """Sum pairs of votes, equal ones, and ties of either party, to shape (clusters, groups, 4)."""
    first, second = pairs.sides(counts)
    columns = (first.sum(axis=1), np.trace(counts, axis1=1, axis2=2), first[:, TIE], second[:, TIE])
    return pairs.sum_up(np.column_stack(columns))


def _measures(sums: Array, margins: Array, right: Array) -> Array:
    """Turn sums over clusters, and what the names got right, into the five measures, to shape (..., groups, 5)."""
    n_votes = np.where(sums[..., 0] > 0, sums[..., 0], np.nan)
    agreement, tie_one, tie_two = (sums[..., column] / n_votes for column in (1, 2, 3))
    author_only = right / n_votes
    # a and b are names without meaning: what is not a tie falls on either with the same chance.
    by_chance = tie_one * tie_two + (1.0 - tie_one) * (1.0 - tie_two) / 2.0
    kappas = [_beyond(agreement, expected) for expected in (by_chance, agreement_within(margins))]
    return np.stack([agreement, author_only, agreement - author_only, *kappas], axis=-1)


def _beyond(observed: Array, expected: Array) -> Array:
    room = np.where(expected < 1.0 - 1e-12, 1.0 - expected, np.nan)
    return np.asarray((observed - expected) / room)


def _resample(sums: Array, margins: Array, names: AuthorBaseline, weights: Array) -> Array:
    """Give the measures in each resample of clusters, to shape (resamples, groups, measures)."""
    n_clusters, n_groups = sums.shape[:2]
    if not len(weights):
        return np.full((0, n_groups, len(MEASURES)), np.nan)
    right = names.count_right(weights)
    flat, wide = sums.reshape(n_clusters, -1), margins.reshape(n_clusters, -1)
    chunk = max(1, CHUNK_CELLS // max(wide.shape[1], 1))
    parts = []
    for first in range(0, len(weights), chunk):
        some = slice(first, first + chunk)
        drawn = (weights[some] @ flat).reshape(-1, *sums.shape[1:])
        parts.append(_measures(drawn, (weights[some] @ wide).reshape(-1, *margins.shape[1:]), right[some]))
    return np.concatenate(parts)


def _vary_people(
    votes: Votes,
    verdicts: pd.DataFrame,
    pairs: VotePairs,
    names: AuthorBaseline,
    totals: tuple[Array, Array, Array],
    *,
    between: tuple[str, str],
    by: Sequence[str],
    ties: str,
) -> tuple[Array, Codes]:
    """Give what other people would add to the variance of each measure, (groups, measures), and how many there are.

    A pair of votes counts for each person in it. What a person adds is a derivative: by how much the measures move
    with the weight of the pairs of votes that the person is in; what the names say is kept.
    """
    if "human" not in between:
        raise AgreementError(f"Raters are drawn anew only where a party is people ('human'); got {between!r}.")
    if pairs.symmetric and "rater" in by:
        raise AgreementError("Two people's agreement by rater cannot be resampled over raters; resample the dialogues alone.")
    person = (verdicts["rater_kind"] == "human").to_numpy()[votes.rows]
    refuse_few_raters(votes.cluster[person], votes.rater[person], ("dialogue_id", "rater"))
    n_groups, step = len(pairs.groups), 1e-4
    squares, n_people = np.zeros((n_groups, len(MEASURES))), np.zeros(n_groups, np.intp)
    for who in np.unique(votes.rater[person]):
        theirs = pairs.of_rater(who, first=between[0] == "human")
        counts = that_count(theirs, ties)
        answers = replace(author_baseline(theirs, counts, decided=names.decided), told=names.told)
        parts = sum_by_cluster(theirs, counts), author_margins(theirs, counts), answers.right_by_cluster()
        up, down = (
            _measures(*(total + sign * step * part for total, part in zip(totals, parts, strict=True))) for sign in (1, -1)
        )
        moved = np.nan_to_num((up - down) / (2 * step))
        squares += moved.sum(axis=0) ** 2 - (moved**2).sum(axis=0)
        n_people += parts[0][..., 0].any(axis=0)
    return squares * (n_people / np.maximum(n_people - 1.0, 1.0))[:, None], n_people


def _lay_out(
    pairs: VotePairs,
    counts: Array,
    estimate: Array,
    replicates: Array,
    n_clusters: Codes,
    ci_level: float,
    others: tuple[Array, Codes] | None,
) -> pd.DataFrame:
    n_groups = len(pairs.groups)
    everything = np.bincount(pairs.group, weights=pairs.counts.sum(axis=(1, 2)), minlength=n_groups)
    neither_tie = pairs.counts[:, [A, B]][:, :, [A, B]].sum(axis=(1, 2))
    used = counts.sum(axis=(1, 2)) > 0
    unit_of_group = np.unique(np.column_stack([pairs.group[used], pairs.unit[used]]), axis=0)[:, 0]
    n_drawn = n_clusters if others is None else np.minimum(n_clusters, others[1])
    columns = interval_columns(MEASURES, estimate, replicates, n_clusters, ci_level)
    if others is not None:
        for g, (number, (name, (least, most))) in product(range(n_groups), enumerate(MEASURES.items())):
            dialogues = float(standard_error(replicates[:, g, [number]], int(n_clusters[g]))[0])
            se = np.sqrt(dialogues**2 + max(others[0][g, number], 0.0))
            ends = error_ends(estimate[g, number], se, int(n_drawn[g]), ci_level, least=least, most=most)
            columns[f"{name}_low"][g], columns[f"{name}_high"][g] = ends
    n_votes = np.rint(np.bincount(pairs.group, weights=counts.sum(axis=(1, 2)), minlength=n_groups)).astype(int)
    table = pd.DataFrame({**columns, "ci_level": ci_level if len(replicates) else np.nan, "n_votes": n_votes})
    table["n_pairs"], table["n_clusters"] = np.bincount(unit_of_group, minlength=n_groups), n_drawn.astype(int)
    decided = np.bincount(pairs.group, weights=neither_tie, minlength=n_groups) / everything
    return table.assign(decided_share=decided, provisional=n_drawn < ENOUGH_CLUSTERS)
