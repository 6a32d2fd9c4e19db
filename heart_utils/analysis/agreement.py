"""How often two parties agree on verdicts, beside what chance and what knowing the author would bring."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from heart_utils.analysis.baseline import AuthorBaseline, agreement_within, author_baseline, author_margins
from heart_utils.analysis.chance import cohen_kappa, fleiss_kappa, gwet_ac, krippendorff_alpha
from heart_utils.analysis.coefficients import Coefficient
from heart_utils.analysis.intraclass import icc
from heart_utils.analysis.other_raters import crossed_interval, refuse_few_raters
from heart_utils.analysis.ranks import rank_agreement
from heart_utils.analysis.resampling import ENOUGH_CLUSTERS, draw_weights, interval_of, standard_error
from heart_utils.analysis.vote_pairs import TIE, A, B, VotePairs, pair_votes
from heart_utils.analysis.votes import AgreementError, Array, Codes, Votes, read_votes

__all__ = [
    "Agreement",
    "AgreementError",
    "Coefficient",
    "cohen_kappa",
    "fleiss_kappa",
    "gwet_ac",
    "icc",
    "krippendorff_alpha",
    "pairwise_agreement",
    "rank_agreement",
]

MEASURES = {"agreement": 0.0, "author_only": 0.0, "advantage": -1.0, "kappa": -1.0, "kappa_within": -np.inf}
"""Name -> the least value it can have; the greatest is 1."""

CHUNK_CELLS = 5_000_000


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
    rng: np.random.Generator | None = None,
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
        What divides the rows: columns that all votes on a pair share, such as ``"dimension"``,
        ``"slice"``, ``"group"``; or ``"margin"`` (of the first party's vote), ``"rater"`` (of the
        second party), ``"ambiguity"``: ``"ambiguous"`` if the other people, whose votes are not the ones
        compared, split no wider than 60 to 40 (a tie half to each), ``"clear"`` if they do not,
        ``"unknown"`` if they are fewer than two. With the same raters on both sides, ``"margin"`` and
        ``"rater"`` count a pair of votes from either side.
    inconsistent : {"tie", "drop"}
        What an answer counts as that turned with the order of the replies.
    cluster : str or two str
        Column of what is resampled together, for dialogues like these; or ``["dialogue_id", "rater"]``, for dialogues
        and people like these, as in :func:`heart_utils.analysis.other_raters.crossed_variance`. Judges stay the same.
    n_resamples : int
        Bootstrap resamples; 0 for shares alone.
    ci_level : float
        Of the intervals.
    rng : numpy.random.Generator, optional
        The source of chance; by default one with a fixed seed.

    Returns
    -------
    Agreement
        ``.table`` has one row a group. Intervals follow the rule of :func:`heart_utils.analysis.resampling.interval_ends`;
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
    counts = _that_count(pairs, ties)
    if not counts.any():
        raise AgreementError(
            f"Nothing is decided: each of the {pairs.counts.sum():.0f} pairs of votes by {between[0]} and {between[1]} holds a "
            f"tie. Count ties as answers (ties='include'), or collect votes that decide."
        )
    sums, margins = _sum_by_cluster(pairs, counts), author_margins(pairs, counts)
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


def _that_count(pairs: VotePairs, ties: str) -> Array:
    """Leave out pairs of votes with a tie, if ties are no answer."""
    counts = pairs.counts.copy()
    if ties == "exclude":
        counts[:, TIE, :] = counts[:, :, TIE] = 0.0
    return counts


def _sum_by_cluster(pairs: VotePairs, counts: Array) -> Array:
    """Sum pairs of votes, equal ones, and ties of either party, to shape (clusters, groups, 4)."""
    first, second = counts.sum(axis=2), counts.sum(axis=1)
    if pairs.symmetric:
        first = second = (first + second) / 2.0
    columns = (first.sum(axis=1), np.trace(counts, axis1=1, axis2=2), first[:, TIE], second[:, TIE])
    n_groups = len(pairs.groups)
    cell, size = pairs.cluster * n_groups + pairs.group, pairs.n_clusters * n_groups
    summed = np.column_stack([np.bincount(cell, weights=column, minlength=size) for column in columns])
    return np.asarray(summed.reshape(pairs.n_clusters, n_groups, len(columns)), float)


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
        raise AgreementError(
            f"Raters are drawn anew only where a party is people ('human'), for judges stay the same; got {between!r}. "
            f"Resample the dialogues alone."
        )
    if pairs.symmetric and {"margin", "rater"} & set(by):
        raise AgreementError(
            "Two people's agreement by margin or rater cannot be resampled over raters; resample the dialogues alone."
        )
    person = (verdicts["rater_kind"] == "human").to_numpy()[votes.rows]
    refuse_few_raters(votes.cluster[person], votes.rater[person], ("dialogue_id", "rater"), AgreementError)
    n_groups, step = len(pairs.groups), 1e-4
    number = {tuple(row): place for place, row in enumerate(pairs.groups.itertuples(index=False, name=None))}
    squares, n_people = np.zeros((n_groups, len(MEASURES))), np.zeros(n_groups, np.intp)
    for who in votes.raters[np.unique(votes.rater[person])]:
        parties = (who, between[1]) if between[0] == "human" else (between[0], who)
        try:
            theirs = pair_votes(votes, verdicts, between=parties, by=by)
        except AgreementError:
            continue  # nobody of the other party judged what this person did
        group = np.array([number[row] for row in theirs.groups.itertuples(index=False, name=None)], np.intp)[theirs.group]
        theirs = replace(theirs, group=group, groups=pairs.groups, symmetric=pairs.symmetric)
        counts = _that_count(theirs, ties)
        answers = replace(author_baseline(theirs, counts, decided=names.decided), told=names.told)
        parts = _sum_by_cluster(theirs, counts), author_margins(theirs, counts), answers.right_by_cluster()
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
    columns: dict[str, object] = {}
    for number, (name, least) in enumerate(MEASURES.items()):
        columns[name] = estimate[:, number]
        ends = []
        for g in range(n_groups):
            value, again = estimate[g, number], replicates[:, g, number]
            if others is None:
                ends.append(interval_of(value, again, int(n_drawn[g]), ci_level, least=least, most=1.0))
            else:
                dialogues = float(standard_error(again[:, None], int(n_clusters[g]))[0])
                variance = dialogues**2 + max(others[0][g, number], 0.0)
                ends.append(crossed_interval(value, variance, int(n_drawn[g]), ci_level, least=least, most=1.0))
        columns[f"{name}_low"], columns[f"{name}_high"] = [low for low, _ in ends], [high for _, high in ends]
    return pd.DataFrame(
        {
            **columns,
            "ci_level": ci_level if len(replicates) else np.nan,
            "n_votes": np.rint(np.bincount(pairs.group, weights=counts.sum(axis=(1, 2)), minlength=n_groups)).astype(int),
            "n_pairs": np.bincount(unit_of_group, minlength=n_groups),
            "n_clusters": n_drawn.astype(int),
            "decided_share": np.bincount(pairs.group, weights=neither_tie, minlength=n_groups) / everything,
            "provisional": n_drawn < ENOUGH_CLUSTERS,
        }
    )
