"""How often two parties agree on verdicts, beside what chance and what knowing the author would bring."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from heart_utils.analysis.baseline import AuthorBaseline, agreement_within, author_baseline, author_margins
from heart_utils.analysis.chance import cohen_kappa, fleiss_kappa, gwet_ac, krippendorff_alpha
from heart_utils.analysis.coefficients import Coefficient
from heart_utils.analysis.intraclass import icc
from heart_utils.analysis.ranks import rank_agreement
from heart_utils.analysis.resampling import ENOUGH_CLUSTERS, draw_weights, interval_of
from heart_utils.analysis.vote_pairs import TIE, A, B, VotePairs, pair_votes
from heart_utils.analysis.votes import AgreementError, Array, read_votes

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
    cluster: str = "dialogue_id",
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
    cluster : str
        Column of what is resampled together.
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
        dialogue that it is held against. A measure with no value (kappa where chance alone is 1) is ``nan``.

    Raises
    ------
    AgreementError
        If a party has no vote, nobody shares a pair, a rater answers a pair twice or in two orders, or
        the table holds scores.

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
    votes = read_votes(verdicts, cluster=cluster, inconsistent=inconsistent)
    pairs = pair_votes(votes, verdicts, between=between, by=by)
    counts = pairs.counts.copy()
    if ties == "exclude":
        counts[:, TIE, :] = counts[:, :, TIE] = 0.0
    sums, margins = _sum_by_cluster(pairs, counts), author_margins(pairs, counts)
    names = author_baseline(pairs, counts, decided=ties == "exclude")
    estimate = _measures(sums.sum(axis=0), margins.sum(axis=0), names.count_right(np.ones((1, len(sums))))[0])
    replicates = _resample(sums, margins, names, draw_weights(len(sums), n_resamples, rng))
    seen = sums[:, :, 0] > 0
    table = pd.concat([pairs.groups, _lay_out(pairs, counts, estimate, replicates, seen.sum(axis=0), ci_level)], axis=1)
    return Agreement(table, between, ties, votes.left_out, votes.n_inconsistent)


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


def _lay_out(
    pairs: VotePairs, counts: Array, estimate: Array, replicates: Array, n_clusters: Array, ci_level: float
) -> pd.DataFrame:
    n_groups = len(pairs.groups)
    everything = np.bincount(pairs.group, weights=pairs.counts.sum(axis=(1, 2)), minlength=n_groups)
    neither_tie = pairs.counts[:, [A, B]][:, :, [A, B]].sum(axis=(1, 2))
    used = counts.sum(axis=(1, 2)) > 0
    unit_of_group = np.unique(np.column_stack([pairs.group[used], pairs.unit[used]]), axis=0)[:, 0]
    columns: dict[str, object] = {}
    for number, (name, least) in enumerate(MEASURES.items()):
        columns[name] = estimate[:, number]
        ends = [
            interval_of(estimate[g, number], replicates[:, g, number], int(n_clusters[g]), ci_level, least=least, most=1.0)
            for g in range(n_groups)
        ]
        columns[f"{name}_low"], columns[f"{name}_high"] = [low for low, _ in ends], [high for _, high in ends]
    return pd.DataFrame(
        {
            **columns,
            "ci_level": ci_level if len(replicates) else np.nan,
            "n_votes": np.rint(np.bincount(pairs.group, weights=counts.sum(axis=(1, 2)), minlength=n_groups)).astype(int),
            "n_pairs": np.bincount(unit_of_group, minlength=n_groups),
            "n_clusters": n_clusters.astype(int),
            "decided_share": np.bincount(pairs.group, weights=neither_tie, minlength=n_groups) / everything,
            "provisional": n_clusters < ENOUGH_CLUSTERS,
        }
    )
