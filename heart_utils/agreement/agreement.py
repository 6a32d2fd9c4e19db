"""How often two rater groups agree, against chance and an author-only baseline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

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
from heart_utils.ratings.verdicts import (
    AgreementError,
    Array,
    Codes,
    Votes,
    rater_group,
    read_votes,
    unit_values,
)
from heart_utils.tables import need_columns

__all__ = ["Agreement", "pairwise_agreement"]

A, TIE, B = 0, 1, 2
N_LABELS = 3
CHUNK_CELLS = 4_000_000
SPLIT = 0.6
"""People who split no wider than 60 to 40 make a pair ambiguous."""

MEASURES = {
    "agreement": (0.0, 1.0),
    "author_only": (0.0, 1.0),
    "advantage": (-1.0, 1.0),
    "kappa": (-1.0, 1.0),
    "kappa_within": (-np.inf, 1.0),
}
"""What is measured -> its range."""

VOTE_COLUMNS = ("rater", "ambiguity")
"""What `by` may name that belongs to a vote, not to the pair of replies."""


@dataclass(frozen=True)
class Agreement:
    """How often two rater groups agree, and what was left out."""

    table: pd.DataFrame  #: one row a group, as `pairwise_agreement` says
    left_out: pd.Series  #: state -> answers that do not count
    #: answers counted as ties that contradicted themselves when the order was turned
    n_inconsistent: int
    n_joined: int  #: pairs asked in both orders, which count as one answer each


def pairwise_agreement(
    verdicts: pd.DataFrame,
    *,
    between: tuple[str, str] = ("human", "model"),
    ties: str = "include",
    by: Sequence[str] = ("dimension",),
    cluster: str | Sequence[str] = "dialogue_id",
    n_resamples: int = 1000,
    ci_level: float = 0.95,
    rng: Rng = None,
) -> Agreement:
    """Measure how often two rater groups agree, against chance and an author-only baseline.

    Every vote of one group meets every vote of the other on the same pair. Kappa is :math:`(p_o -
    p_e) / (1 - p_e)`; answers that are no ties agree by chance half of the time. Source: Zheng et
    al. (2023), https://arxiv.org/abs/2306.05685

    Parameters
    ----------
    verdicts
        Verdicts; two orders of a pair are one answer.
    between
        Two of ``"human"``, ``"model"`` and raters' names, people first.
    ties
        ``"include"`` them as answers, or ``"exclude"`` pairs of votes with one.
    by
        Columns that all votes on a pair share; ``"rater"`` (of the second group); ``"ambiguity"``:
        ``"ambiguous"`` if other people split no wider than 60 to 40.
    cluster, n_resamples, ci_level, rng
        As in :func:`~heart_utils.ratings.resampling.bootstrap_ci`; with ``"rater"`` for people like
        these too.

    Returns
    -------
    Agreement
        ``table`` has one row a group: ``agreement``; ``author_only``, that of the commonest answer
        on these authors in *other* dialogues; ``advantage``, their difference; ``kappa``;
        ``kappa_within``, where chance knows the authors; each with ``_low`` and ``_high``;
        ``ci_level``, ``n_votes`` (pairs of votes), ``n_pairs`` (of replies), ``n_clusters``,
        ``decided_share``, ``provisional``.

    Raises
    ------
    AgreementError
        If no two raters share a pair, the table holds scores, nothing is decided, or, with two
        clusters, people are fewer than 20.

    Examples
    --------
    >>> votes = pd.DataFrame({"pair_id": list("ppqq"), "rater": ["ann", "llm"] * 2})
    >>> votes = votes.assign(rater_kind=["human", "model"] * 2, verdict=list("aaab"))
    >>> votes = votes.assign(responder_a="x", responder_b="y", dialogue_id=votes["pair_id"])
    >>> table = pairwise_agreement(votes, by=[], n_resamples=0).table
    >>> table[["agreement", "author_only", "advantage"]].values.tolist()
    [[0.5, 1.0, -0.5]]
    """
    if ties not in ("include", "exclude"):
        raise AgreementError(f"ties must be 'include' or 'exclude'; got {ties!r}.")
    clusters = [cluster] if isinstance(cluster, str) else list(cluster)
    if clusters[1:] not in ([], ["rater"]):
        raise AgreementError(
            f"cluster names a column, or such a column and 'rater'; got {cluster!r}."
        )
    votes = read_votes(verdicts, cluster=clusters[0])
    pairs = pair_votes(votes, between=between, by=by, ties=ties)
    weights = np.vstack(
        [np.ones(pairs.n_clusters), draw_weights(pairs.n_clusters, n_resamples, rng)]
    )
    sums, margins, names = pairs.sums(), pairs.margins(), pairs.names()
    measures = np.empty((len(weights), len(pairs.groups), len(MEASURES)))
    for some in np.array_split(
        np.arange(len(weights)), np.ceil(len(weights) * margins[0].size / CHUNK_CELLS)
    ):
        drawn = weights[some]
        measures[some] = _measures(
            np.tensordot(drawn, sums, 1), np.tensordot(drawn, margins, 1), names.count_right(drawn)
        )
    n_clusters = (sums[:, :, 0] > 0).sum(axis=0)
    columns = interval_columns(MEASURES, measures[0], measures[1:], n_clusters, ci_level)
    if len(clusters) > 1 and len(measures) > 1:
        added, n_people = _vary_people(votes, pairs, between, by)
        fewest = np.minimum(n_clusters, n_people)
        for number, (name, (least, most)) in enumerate(MEASURES.items()):
            se = np.sqrt(
                standard_error(measures[1:, :, number], n_clusters) ** 2
                + np.maximum(added[:, number], 0.0)
            )
            ends = error_ends(measures[0, :, number], se, fewest, ci_level, least=least, most=most)
            columns[f"{name}_low"], columns[f"{name}_high"] = ends
        n_clusters = fewest
    table = pairs.groups.assign(**columns, ci_level=ci_level if len(measures) > 1 else np.nan)
    table = table.assign(
        n_votes=np.rint(sums[:, :, 0].sum(axis=0)).astype(int),
        n_pairs=np.bincount(pairs.group, minlength=len(table)),
        n_clusters=n_clusters,
        decided_share=pairs.decided_share,
        provisional=n_clusters < ENOUGH_CLUSTERS,
    )
    return Agreement(table, votes.left_out, votes.n_inconsistent, votes.n_joined)


@dataclass(frozen=True)
class VotePairs:
    """Pairs of votes that count: the first group's label (a, tie, b) by the second's."""

    counts: Array  # (rows, 3, 3)
    unit: Codes
    group: Codes
    groups: pd.DataFrame
    # by group: pairs of votes in which neither is a tie, also where ties do not count
    decided_share: Array
    labels: list[int]  # what may be answered
    own: Array  # (units, 3): what the first rater group said
    unit_cluster: Codes
    unit_group: Codes
    unit_authors: Codes
    n_clusters: int
    symmetric: bool
    # of each pair of votes: the two raters, and its cell in `counts`
    rater_pairs: tuple[Codes, Codes, Codes]

    def of_rater(self, rater: int, *, first: bool) -> VotePairs:
        """Keep one rater's pairs of votes, in the first group or the second."""
        mine = self.rater_pairs[2][self.rater_pairs[0 if first else 1] == rater]
        counts = np.bincount(mine, minlength=self.counts.size).reshape(self.counts.shape)
        return replace(self, counts=counts.astype(float))

    def sides(self) -> tuple[Array, Array]:
        """Return both groups' labels, or their mean."""
        first, second = self.counts.sum(axis=2), self.counts.sum(axis=1)
        return ((first + second) / 2.0,) * 2 if self.symmetric else (first, second)

    def sum_up(self, values: Array) -> Array:
        """Sum rows of values by cluster and group."""
        return sums_by(
            (self.unit_cluster[self.unit], self.group), values, self.n_clusters, len(self.groups)
        )

    def sums(self) -> Array:
        """Sum pairs of votes, equal ones and ties by cluster and group."""
        first, second = self.sides()
        equal = np.trace(self.counts, axis1=1, axis2=2)
        return self.sum_up(
            np.column_stack([first.sum(axis=1), equal, first[:, TIE], second[:, TIE]])
        )

    def margins(self) -> Array:
        """Sum both groups' labels by cluster, group and pair of authors."""
        codes = self.unit_cluster[self.unit], self.group, self.unit_authors[self.unit]
        shape = self.n_clusters, len(self.groups), int(self.unit_authors.max()) + 1
        return sums_by(codes, np.concatenate(self.sides(), axis=1), *shape)

    def names(self) -> AuthorBaseline:
        """Collect what the author-only baseline needs."""
        family = self.unit_group * (int(self.unit_authors.max()) + 1) + self.unit_authors
        n_families = int(family.max()) + 1
        family_labels = sums_by(
            (self.unit_cluster, family), self.own[:, self.labels], self.n_clusters, n_families
        )
        present, cell = np.unique(
            (self.unit_cluster * n_families + family)[self.unit], return_inverse=True
        )
        first = sums_by(
            (cell, self.group), self.sides()[0][:, self.labels], len(present), len(self.groups)
        )
        return AuthorBaseline(family_labels, present // n_families, present % n_families, first)


@dataclass(frozen=True, eq=False)
class AuthorBaseline:
    """The first group's commonest label on two authors in all other clusters."""

    # (clusters, families, labels): what the first rater group said of each pair of authors
    family_labels: Array
    cluster: Codes  # of each cell, which is a family in a cluster
    family: Codes
    first: Array  # (cells, groups, labels): its labels in the pairs of votes that are compared

    def count_right(self, weights: Array) -> Array:
        """Count matches with the baseline, refitted under each row of weights."""
        n_right = np.zeros((len(weights), self.first.shape[1]))
        totals = np.tensordot(weights, self.family_labels, 1)
        for family in np.unique(self.family):
            cells = np.flatnonzero(self.family == family)
            own, first, total = (
                self.family_labels[self.cluster[cells], family],
                self.first[cells],
                totals[:, family],
            )
            drawn = weights[:, self.cluster[cells]]
            right = np.tensordot(drawn, first, 1)[np.arange(len(weights)), :, total.argmax(axis=1)]
            ranked = np.sort(total, axis=1)
            # Elsewhere no dialogue can turn the answer, and one serves all.
            turns = ranked[:, -1] - ranked[:, -2] <= weights.max(axis=1) * own.max()
            times = drawn[turns, :, None]
            right[turns] = np.tensordot(
                times * _commonest(total[turns, None] - times * own), first, axes=([1, 2], [0, 2])
            )
            n_right += right
        return n_right

    def right_by_cluster(self) -> Array:
        """Count the same by cluster, with the answer learnt once from the data."""
        answer = _commonest(
            (self.family_labels.sum(axis=0) - self.family_labels)[self.cluster, self.family]
        )
        return sums_by(
            self.cluster, np.einsum("cl,cgl->cg", answer, self.first), len(self.family_labels)
        )


def _commonest(counts: Array) -> Array:
    leads = counts == counts.max(axis=-1, keepdims=True)
    return np.asarray(leads / leads.sum(axis=-1, keepdims=True))


def pair_votes(
    votes: Votes,
    *,
    between: tuple[str, str | None],
    by: Sequence[str],
    ties: str,
) -> VotePairs:
    """Pair the votes of two rater groups on the same replies, or of one with itself."""
    if votes.kind != "verdict":
        raise AgreementError(
            "The table holds scores. Turn them with `scores_to_verdicts`, or use `rank_agreement`."
        )
    if len(tuple(between)) != 2 or isinstance(between, str):
        raise AgreementError(
            f"between names two rater groups, such as ('human', 'model'); got {between!r}."
        )
    table = votes.table
    need_columns(
        table,
        ["responder_a", "responder_b", *(name for name in by if name != "ambiguity")],
        AgreementError,
    )
    alone = between[1] is None
    first, second = (rater_group(votes.rows, votes.table, who or between[0]) for who in between)
    symmetric = bool((first == second).all()) and not alone
    by_unit = pd.DataFrame({"unit": votes.unit, "rater": votes.rater, "value": votes.value})
    # Within one group each two raters meet twice, once from either side; halving the counts below
    # makes the table symmetric, since neither of them comes first.
    paired = by_unit[first].merge(by_unit[second], on="unit", suffixes=("", "_other"))
    paired = paired[(paired["rater"] == paired["rater_other"]) == alone]
    if paired.empty:
        raise AgreementError(
            f"{between[0]} and {between[1]} share no pair: no two raters of them judged the same."
        )
    a, b = (table[f"responder_{side}"].astype("str") for side in "ab")
    responders = a.where(a < b, b) + " and " + b.where(a < b, a)
    shared = [column for column in by if column not in VOTE_COLUMNS]
    of_unit = pd.DataFrame(
        {column: unit_values(votes, column) for column in shared}, index=votes.units.index
    )
    labels = of_unit.iloc[paired["unit"].to_numpy()].reset_index(drop=True)
    if "rater" in by:
        labels["rater"] = votes.raters.to_numpy(dtype=object)[paired["rater_other"]]
    if "ambiguity" in by:
        labels["ambiguity"] = _ambiguity(
            paired, votes, rater_group(votes.rows, votes.table, "human"), first, second
        )
    group, groups = number_groups(labels[list(by)])
    decided = ((paired["value"] != TIE) & (paired["value_other"] != TIE)).to_numpy()
    decided_share = np.bincount(group, decided) / np.bincount(group)
    if ties == "exclude":
        if not decided.any():
            raise AgreementError(
                f"Nothing is decided: each of the {len(paired) // (1 + symmetric)} pairs of votes"
                f" by {between[0]} and {between[1]} holds a tie. Count ties as answers"
                " (ties='include'), or collect votes that decide."
            )
        paired, group = paired[decided], group[decided]
    # A table of labels for each unit and group that occurs, not for each combination: most are
    # empty.
    cells, where = np.unique(paired["unit"].to_numpy() * len(groups) + group, return_inverse=True)
    value, other = paired["value"].to_numpy(), paired["value_other"].to_numpy()
    label_pair = (where * N_LABELS + value) * N_LABELS + other
    counts = np.bincount(label_pair, minlength=len(cells) * N_LABELS**2).astype(float)
    counts = counts.reshape(-1, N_LABELS, N_LABELS)
    return VotePairs(
        counts=counts / 2.0 if symmetric and "rater" not in by else counts,
        unit=cells // len(groups),
        group=cells % len(groups),
        groups=groups,
        decided_share=decided_share,
        labels=[A, TIE, B] if ties == "include" else [A, B],
        own=_labels_of_units(votes, first),
        unit_cluster=cluster_of_unit(votes),
        unit_group=number_groups(of_unit)[0],
        unit_authors=pd.factorize(unit_values(votes, responders.rename("responders")))[0],
        n_clusters=len(votes.clusters),
        symmetric=symmetric,
        rater_pairs=(paired["rater"].to_numpy(), paired["rater_other"].to_numpy(), label_pair),
    )


def _labels_of_units(votes: Votes, mask: NDArray[np.bool_]) -> Array:
    return sums_by((votes.unit[mask], votes.value[mask]), 1.0, len(votes.units), N_LABELS)


def _ambiguity(
    paired: pd.DataFrame,
    votes: Votes,
    people: NDArray[np.bool_],
    first: NDArray[np.bool_],
    second: NDArray[np.bool_],
) -> NDArray[np.object_]:
    others, row = _labels_of_units(votes, people)[paired["unit"]], np.arange(len(paired))
    for mine, value in ((first, "value"), (second, "value_other")):
        others[row, paired[value]] -= bool(people[mine].all())
    n_others = others.sum(axis=1)
    larger = np.maximum(others[:, A], others[:, B]) + others[:, TIE] / 2.0
    return np.asarray(
        np.select([n_others < 2, larger <= SPLIT * n_others], ["unknown", "ambiguous"], "clear"),
        dtype=object,
    )


def number_groups(labels: pd.DataFrame) -> tuple[Codes, pd.DataFrame]:
    """Return a code for each combination of labels."""
    if not len(labels.columns):
        return np.zeros(len(labels), np.intp), pd.DataFrame(index=[0])
    codes = np.asarray(labels.groupby(list(labels), dropna=False).ngroup(), dtype=np.intp)
    return codes, labels.iloc[np.unique(codes, return_index=True)[1]].reset_index(drop=True)


def _measures(sums: Array, margins: Array, right: Array) -> Array:
    n_votes = np.where(sums[..., 0] > 0, sums[..., 0], np.nan)
    agreement, tie_one, tie_two = (sums[..., column] / n_votes for column in (1, 2, 3))
    # a and b are names without meaning: what is not a tie falls on either with the same chance.
    by_chance = tie_one * tie_two + (1.0 - tie_one) * (1.0 - tie_two) / 2.0
    # Two raters of one pair of authors that answer by their own habits alone agree in sum p q of
    # their votes.
    first, second = margins[..., :N_LABELS], margins[..., N_LABELS:]
    by_habit = ratio((first * second).sum(axis=-1), first.sum(axis=-1), 0.0).sum(axis=-1) / n_votes
    kappas = [
        (agreement - expected) / np.where(expected < 1.0 - 1e-12, 1.0 - expected, np.nan)
        for expected in (by_chance, by_habit)
    ]
    return np.stack([agreement, right / n_votes, agreement - right / n_votes, *kappas], axis=-1)


def _vary_people(
    votes: Votes,
    pairs: VotePairs,
    between: tuple[str, str],
    by: Sequence[str],
) -> tuple[Array, Codes]:
    if "human" not in between:
        raise AgreementError(
            f"Raters are drawn anew only where a rater group is people ('human'); got {between!r}."
        )
    if pairs.symmetric and "rater" in by:
        raise AgreementError(
            "Two people's agreement by rater cannot be resampled over raters; resample the"
            " dialogues alone."
        )
    person = (votes.table["rater_kind"] == "human").to_numpy()[votes.rows]
    refuse_few_raters(votes.cluster[person], votes.rater[person], ("dialogue_id", "rater"))

    def parts(some: VotePairs) -> tuple[Array, Array, Array]:
        return some.sums(), some.margins(), some.names().right_by_cluster()

    totals, step = [part.sum(axis=0) for part in parts(pairs)], 1e-4
    squares, n_people = (
        np.zeros((len(pairs.groups), len(MEASURES))),
        np.zeros(len(pairs.groups), np.intp),
    )
    for who in np.unique(votes.rater[person]):
        theirs = parts(pairs.of_rater(who, first=between[0] == "human"))
        up, down = (
            _measures(
                *(total + sign * step * part for total, part in zip(totals, theirs, strict=True))
            )
            for sign in (1, -1)
        )
        moved = np.nan_to_num((up - down) / (2 * step))
        squares += moved.sum(axis=0) ** 2 - (moved**2).sum(axis=0)
        n_people += theirs[0][..., 0].any(axis=0)
    return squares * (n_people / np.maximum(n_people - 1.0, 1.0))[:, None], n_people
