"""How often raters agree: coefficients beyond chance, and groups beside an author-only baseline."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from heart_utils.identities import show_rater
from heart_utils.ratings.resampling import (
    ENOUGH_CLUSTERS,
    Rng,
    draw_weights,
    error_ends,
    interval_columns,
    interval_of,
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
    need,
    rater_group,
    read_votes,
    unit_values,
)
from heart_utils.tables import need_columns

__all__ = [
    "Agreement",
    "Coefficient",
    "cohen_kappa",
    "gwet_ac",
    "icc",
    "judge_reliability",
    "krippendorff_alpha",
    "pairwise_agreement",
]

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


LEVELS = ("nominal", "ordinal", "interval")
KINDS = ("C,1", "A,1", "C,k", "A,k")
POWERS = {None: 0, "linear": 1, "quadratic": 2}
Parts = Callable[[Array], tuple[Array, Array]]
"""Turns sums over units into the disagreement that is seen and the one that chance brings."""


@dataclass(frozen=True)
class Coefficient:
    """One number for how far raters agree, with its interval."""

    name: str  #: such as ``"Gwet's AC1"``
    value: float
    ci_low: float  #: the ends are ``nan`` where no interval can be had
    ci_high: float
    ci_level: float
    #: `value` is one minus this over what chance brings, or over the whole variance
    disagreement: float
    n_units: int  #: what entered
    n_clusters: int
    #: resamples in which it has no value (one category only), left out of the interval
    n_undefined: int
    provisional: bool  #: fewer than 30 clusters
    left_out: pd.Series  #: state -> answers that do not count


def cohen_kappa(
    table: pd.DataFrame,
    *,
    weights: str | None = None,
    cluster: str | None = "dialogue_id",
    n_resamples: int = 1000,
    ci_level: float = 0.95,
    rng: Rng = None,
) -> Coefficient:
    """Compute Cohen's kappa of two raters, plain or weighted.

    Tables of verdicts are averaged with their transpose. Source: Cohen (1968),
    https://doi.org/10.1037/h0026256

    Parameters
    ----------
    table
        Verdicts or scores on one dimension.
    weights
        Credit for near misses: ``"linear"``, ``"quadratic"`` or None.
    cluster
        What is resampled together; None takes each unit as its own.
    n_resamples, ci_level, rng
        As in :func:`~heart_utils.ratings.resampling.bootstrap_ci`.

    Returns
    -------
    Coefficient
        Units that only one of the two answered are left out.

    Raises
    ------
    AgreementError
        If there are not two raters who share a unit, or only one category occurs.

    Examples
    --------
    >>> votes = pd.DataFrame({"reply_id": list("rstu") * 2, "rater": list("xxxxyyyy")})
    >>> votes = votes.assign(score=[1, 2, 2, 3, 1, 2, 3, 3])
    >>> round(cohen_kappa(votes, cluster=None, n_resamples=0).value, 3)  # (3/4 - 5/16) / (1 - 5/16)
    0.636
    """
    if weights not in POWERS:
        raise AgreementError(f"weights must be 'linear' or 'quadratic'; got {weights!r}.")
    votes, scale = _read(table, cluster)
    if len(votes.raters) != 2:
        raise AgreementError(
            f"Cohen's kappa is of two raters; the table holds {len(votes.raters)}. Or use"
            " krippendorff_alpha."
        )
    category = np.full((2, len(votes.units)), -1)
    category[votes.rater, votes.unit] = votes.value
    both = (category >= 0).all(axis=0)
    _refuse_one_category(category[:, both], votes)
    size = len(scale)
    cells = cluster_of_unit(votes)[both], category[0, both], category[1, both]
    apart = np.abs(scale[:, None] - scale) / (scale[-1] - scale[0])
    lost = np.where(apart > 0, apart ** POWERS[weights], 0.0)

    def parts(counts: Array) -> tuple[Array, Array]:
        shares = _turned(counts, votes) / counts.sum(axis=(-1, -2), keepdims=True)
        expected = shares.sum(axis=-1)[..., :, None] * shares.sum(axis=-2)[..., None, :]
        return (lost * shares).sum(axis=(-1, -2)), (lost * expected).sum(axis=(-1, -2))

    name = "Cohen's kappa" if weights is None else f"weighted kappa ({weights})"
    sums = sums_by(cells, 1.0, len(votes.clusters), size, size)
    return _coefficient(name, sums, parts, int(both.sum()), votes, (n_resamples, ci_level, rng))


def gwet_ac(
    table: pd.DataFrame,
    *,
    cluster: str | None = "dialogue_id",
    n_resamples: int = 1000,
    ci_level: float = 0.95,
    rng: Rng = None,
) -> Coefficient:
    r"""Compute Gwet's AC1, which does not collapse where nearly all answers are the same.

    Chance is a guess among the q categories that occur: :math:`p_e = \frac{1}{q - 1} \sum_k \pi_k
    (1 - \pi_k)`. Source: Gwet (2008), https://doi.org/10.1348/000711006X126600

    Parameters
    ----------
    table, cluster, n_resamples, ci_level, rng
        As in :func:`cohen_kappa`; a unit with one answer counts in :math:`\pi` alone.

    Returns
    -------
    Coefficient

    Raises
    ------
    AgreementError
        If no two raters share a unit, or only one category occurs.

    Examples
    --------
    >>> votes = pd.DataFrame({"reply_id": list("rstu") * 2, "rater": list("xxxxyyyy")})
    >>> votes = votes.assign(score=[1, 2, 2, 3, 1, 2, 3, 3])
    >>> round(gwet_ac(votes, cluster=None, n_resamples=0).value, 3)  # (3/4 - 21/64) / (1 - 21/64)
    0.628
    """
    votes, scale = _read(table, cluster)
    counts = _count_answers(votes)
    answers = counts.sum(axis=1)
    equal = np.divide(
        (counts * (counts - 1.0)).sum(axis=1),
        answers * (answers - 1.0),
        out=0.0 * answers,
        where=answers >= 2,
    )
    shares = counts / answers[:, None]
    if votes.kind == "verdict":
        shares = (shares + shares[:, ::-1]) / 2.0
    columns = np.column_stack([equal, answers >= 2, np.ones(len(answers)), shares])

    def parts(cells: Array) -> tuple[Array, Array]:
        habit = cells[..., 3:] / cells[..., 2:3]
        n_several = np.where(cells[..., 1] > 0, cells[..., 1], np.nan)
        return 1.0 - cells[..., 0] / n_several, 1.0 - (habit * (1.0 - habit)).sum(axis=-1) / (
            len(scale) - 1.0
        )

    sums = sums_by(cluster_of_unit(votes), columns, len(votes.clusters))
    return _coefficient(
        "Gwet's AC1", sums, parts, int((answers >= 2).sum()), votes, (n_resamples, ci_level, rng)
    )


def krippendorff_alpha(
    table: pd.DataFrame,
    *,
    level: str = "nominal",
    cluster: str | None = "dialogue_id",
    n_resamples: int = 1000,
    ci_level: float = 0.95,
    rng: Rng = None,
) -> Coefficient:
    r"""Compute Krippendorff's alpha of any number of raters, with answers missing anywhere.

    :math:`\alpha = 1 - D_o / D_e`, mean squared distances within units and of any two answers.
    Source: Krippendorff (2011), https://repository.upenn.edu/asc_papers/43

    Parameters
    ----------
    table
        As in :func:`cohen_kappa`.
    level
        ``"nominal"``, ``"ordinal"`` or ``"interval"`` distance; verdicts are ordered a, tie, b.
    cluster, n_resamples, ci_level, rng
        As in :func:`cohen_kappa`.

    Returns
    -------
    Coefficient

    Raises
    ------
    AgreementError
        If no two raters share a unit, only one category occurs, or the level is unknown.

    Examples
    --------
    >>> votes = pd.DataFrame({"reply_id": list("rstu") * 2, "rater": list("xxxxyyyy")})
    >>> votes = votes.assign(score=[1, 2, 2, 3, 1, 2, 3, 3])
    >>> round(krippendorff_alpha(votes, cluster=None, n_resamples=0).value, 3)
    0.667
    """
    if level not in LEVELS:
        raise AgreementError(f"level must be one of {', '.join(LEVELS)}; got {level!r}.")
    votes, scale = _read(table, cluster)
    counts, where = _count_answers(votes), cluster_of_unit(votes)
    several = counts.sum(axis=1) >= 2
    sums = _coincidences(counts[several], where[several], len(votes.clusters))

    def parts(cells: Array) -> tuple[Array, Array]:
        table = _turned(cells, votes)
        margin = table.sum(axis=-1)
        total = margin.sum(axis=-1)
        # Of ordinal answers: how many there are from the middle of one category to the middle of
        # the other.
        position = np.cumsum(margin, axis=-1) - margin / 2.0 if level == "ordinal" else scale
        gap = position[..., :, None] - position[..., None, :]
        distance = np.sign(gap**2) if level == "nominal" else gap**2
        between = margin[..., :, None] * margin[..., None, :]
        observed = (table * distance).sum(axis=(-1, -2)) / np.where(total > 0, total, np.nan)
        return observed, (between * distance).sum(axis=(-1, -2)) / np.where(
            total > 1, total * (total - 1.0), np.nan
        )

    name, resampling = f"Krippendorff's alpha ({level})", (n_resamples, ci_level, rng)
    alpha = _coefficient(name, sums, parts, int(several.sum()), votes, resampling)
    if np.isnan(alpha.value):  # among the units that several raters answered
        _refuse_one_category(votes.value[several[votes.unit]], votes)
    return alpha


def icc(
    scores: pd.DataFrame,
    *,
    kind: str = "A,1",
    raters: Sequence[str] | None = None,
    cluster: str | None = "dialogue_id",
    n_resamples: int = 1000,
    ci_level: float = 0.95,
    rng: Rng = None,
) -> Coefficient:
    """Compute an intraclass correlation: the share of the variance that raters have in common.

    :math:`ICC(C,1) = (MS_R - MS_E) / (MS_R + (k - 1) MS_E)` with n rows and k raters; A adds
    :math:`k (MS_C - MS_E) / n` below. Source: McGraw and Wong (1996),
    https://doi.org/10.1037/1082-989X.1.1.30

    Parameters
    ----------
    scores
        The scores table, on one dimension.
    kind
        ``"A,1"``, ``"C,1"``, ``"A,k"`` or ``"C,k"``: agreement or consistency, of one or of the
        mean of k.
    raters
        Which raters; by default all.
    cluster
        What is resampled together; None takes each reply as its own.
    n_resamples, ci_level, rng
        As in :func:`~heart_utils.ratings.resampling.bootstrap_ci`.

    Returns
    -------
    Coefficient
        Only replies that all raters scored enter.

    Raises
    ------
    AgreementError
        If fewer than two raters share two rows or more, or nothing varies.

    Examples
    --------
    >>> scores = pd.DataFrame({"reply_id": list("rst") * 2, "rater": list("xxxyyy")})
    >>> scores = scores.assign(score=[1, 2, 3, 2, 3, 4])
    >>> round(icc(scores, cluster=None, n_resamples=0).value, 3)  # 2 / (2 + 2 / 3 * 1.5)
    0.667
    """
    votes = read_votes(need(scores, ["score"], "This needs scores."), cluster=cluster)
    one_dimension(votes)
    chosen = list(votes.raters) if raters is None else list(raters)
    if len(set(chosen)) < 2 or not set(chosen) <= set(votes.raters):
        raise AgreementError(
            f"Name two raters or more of {', '.join(map(show_rater, votes.raters))}; got {chosen}."
        )
    table = answer_sheet(votes)[:, votes.raters.get_indexer(pd.Index(chosen))]
    complete = ~np.isnan(table).any(axis=1)
    if complete.sum() < 2:
        raise AgreementError(
            f"{' and '.join(map(str, chosen))} share {complete.sum()} replies; this needs two or"
            " more."
        )
    sums = sums_by(cluster_of_unit(votes)[complete], _squares(table[complete]), len(votes.clusters))
    coefficient = _coefficient(
        f"ICC({kind})",
        sums,
        lambda cells: _variances(cells, kind),
        int(complete.sum()),
        votes,
        (n_resamples, ci_level, rng),
    )
    if np.isnan(coefficient.value):
        raise AgreementError(
            "All rows have the same score: without variance there is nothing to have in common."
        )
    return coefficient


def judge_reliability(
    scores: pd.DataFrame,
    *,
    person: str,
    of: str | None = "responder",
    kinds: Sequence[str] = ("C,1",),
) -> pd.DataFrame:
    """Correlate each judge's scores with a person's, by dimension, without an interval.

    Parameters
    ----------
    scores
        The scores table.
    person
        With whom each judge is compared.
    of
        Rows are means of each ``"responder"``, or replies (None).
    kinds
        As `kind` of :func:`icc`.

    Returns
    -------
    pandas.DataFrame
        By ``dimension``, ``judge`` and ``kind``: ``value`` (``nan`` without variance), ``n_rows``.

    Raises
    ------
    AgreementError
        If the person scored nothing, or shares fewer than two rows with a judge.

    Examples
    --------
    >>> scores = pd.DataFrame({"reply_id": list("rst") * 2, "responder": list("uvw") * 2})
    >>> scores = scores.assign(rater=np.repeat(["ann", "judge"], 3), score=[1, 2, 3, 2, 3, 3])
    >>> scores["dimension"] = "warmth"
    >>> judge_reliability(scores, person="ann")["value"].round(2).tolist()
    [0.75]
    """
    results = []
    for dimension, rows in need(
        scores, ["score", "dimension", "responder"], "This needs scores."
    ).groupby("dimension"):
        votes = read_votes(rows, cluster=None)
        if person not in votes.raters:
            raise AgreementError(
                f"{person} has no score that counts. Raters:"
                f" {', '.join(map(show_rater, votes.raters))}."
            )
        sheet = pd.DataFrame(answer_sheet(votes), columns=votes.raters)
        author = unit_values(votes, "responder")
        for judge in votes.raters.drop(person):
            both = sheet[[person, judge]].dropna()
            means = (both if of is None else both.groupby(author).mean()).to_numpy()
            if len(means) < 2:
                raise AgreementError(
                    f"{person} and {judge} share {len(means)} rows; a correlation needs two or"
                    " more."
                )
            for kind in kinds:
                rest, whole = _variances(_squares(means - means.mean()).sum(axis=0), kind)
                value = float(1.0 - rest / whole) if whole > 1e-12 else float("nan")
                results.append((dimension, judge, kind, value, len(means)))
    return pd.DataFrame(results, columns=["dimension", "judge", "kind", "value", "n_rows"])


def one_dimension(votes: Votes) -> None:
    """Refuse answers on several dimensions."""
    dimensions = list(votes.units.get("dimension", pd.Series(dtype=object)).unique())
    if len(dimensions) > 1:
        names = ", ".join(map(str, dimensions[:6]))
        raise AgreementError(
            f"The table holds several dimensions ({names}); a coefficient is of one. Choose one."
        )


def cluster_of_unit(votes: Votes) -> Codes:
    """Return the cluster of each unit."""
    clusters = np.zeros(len(votes.units), np.intp)
    clusters[votes.unit] = votes.cluster
    return clusters


def answer_sheet(votes: Votes) -> Array:
    """Arrange answers as units by raters; verdicts as 1, 0 and -1."""
    values = votes.categories.astype(float) if votes.kind == "score" else np.array([1.0, 0.0, -1.0])
    sheet = np.full((len(votes.units), len(votes.raters)), np.nan)
    sheet[votes.unit, votes.rater] = values[votes.value]
    return sheet


def _read(table: pd.DataFrame, cluster: str | None) -> tuple[Votes, Array]:
    votes = read_votes(table, cluster=cluster)
    one_dimension(votes)
    if len(votes.raters) < 2:
        raise AgreementError(
            f"Agreement needs two raters or more; there is only {votes.raters[0]}."
        )
    if np.bincount(votes.unit).max() < 2:
        raise AgreementError(
            f"The {len(votes.raters)} raters share no unit, so they cannot be compared."
        )
    _refuse_one_category(votes.value, votes)
    if votes.kind == "score":
        return votes, votes.categories.astype(float)
    if 1 in votes.value:
        return votes, np.array([0.0, 1.0, 2.0])
    # Without ties there are two categories: AC1 would otherwise guess among three.
    return replace(votes, value=votes.value // 2, categories=votes.categories[[0, 2]]), np.array(
        [0.0, 2.0]
    )


def _refuse_one_category(value: Codes, votes: Votes) -> None:
    if value.min() == value.max():
        name = votes.categories[value.flat[0]]
        raise AgreementError(
            f"All answers are {name if votes.kind == 'verdict' else f'{name:g}'}: agreement is 1,"
            " and with one category only there is no chance to correct for. Report the agreement"
            " and say so."
        )


def _count_answers(votes: Votes) -> Array:
    return sums_by((votes.unit, votes.value), 1.0, len(votes.units), len(votes.categories))


def _turned(tables: Array, votes: Votes) -> Array:
    """Symmetrise tables of verdicts: which reply is a is arbitrary."""
    return tables if votes.kind == "score" else np.asarray((tables + tables[..., ::-1, ::-1]) / 2.0)


def _coincidences(counts: Array, cluster: Codes, n_clusters: int) -> Array:
    one = counts / (counts.sum(axis=1, keepdims=True) - 1.0)
    sums = np.stack(
        [sums_by(cluster, share[:, None] * counts, n_clusters) for share in one.T], axis=1
    )
    sums[:, range(counts.shape[1]), range(counts.shape[1])] -= sums_by(cluster, one, n_clusters)
    return sums


def _squares(table: Array) -> Array:
    return np.column_stack(
        [np.ones(len(table)), (table**2).sum(axis=1), table.sum(axis=1) ** 2, table]
    )


def _variances(sums: Array, kind: str) -> tuple[Array, Array]:
    if kind not in KINDS:
        raise AgreementError(f"kind must be one of {', '.join(KINDS)}; got {kind!r}.")
    n, squares, row_squares, by_rater = sums[..., 0], sums[..., 1], sums[..., 2], sums[..., 3:]
    n_raters = by_rater.shape[-1]
    centre = by_rater.sum(axis=-1) ** 2 / (n * n_raters)
    total, rows = squares - centre, row_squares / n_raters - centre
    raters = (by_rater**2).sum(axis=-1) / n - centre
    freedom = np.where(n > 1, n - 1.0, np.nan)
    rest = np.maximum(total - rows - raters, 0.0) / (freedom * (n_raters - 1.0))
    rows, raters = rows / freedom, raters / (n_raters - 1.0)
    shift = (raters - rest) / n if kind[0] == "A" else 0.0
    whole = rows + (n_raters - 1.0) * rest + n_raters * shift if kind[2] == "1" else rows + shift
    return np.asarray(whole - (rows - rest)), np.asarray(whole)


def _coefficient(
    name: str,
    sums: Array,
    parts: Parts,
    n_units: int,
    votes: Votes,
    resampling: tuple[int, float, Rng],
) -> Coefficient:
    n_resamples, ci_level, rng = resampling
    sums = sums[sums.reshape(len(sums), -1).any(axis=1)]
    n_clusters = len(sums)
    weights = np.vstack([np.ones(n_clusters), draw_weights(n_clusters, n_resamples, rng)])
    observed, chance = parts((weights @ sums.reshape(n_clusters, -1)).reshape(-1, *sums.shape[1:]))
    values = 1.0 - observed / np.where(chance > 1e-12, chance, np.nan)
    value, replicates = float(values[0]), values[1:]
    low, high = interval_of(value, replicates, n_clusters, ci_level, most=1.0)
    counts = n_units, n_clusters, int(np.isnan(replicates).sum()), n_clusters < ENOUGH_CLUSTERS
    return Coefficient(
        name, value, low, high, ci_level, float(observed[0]), *counts, votes.left_out
    )
