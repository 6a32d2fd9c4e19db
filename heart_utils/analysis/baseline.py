"""What agreement is worth: what would knowing who wrote both replies have been enough for."""

from __future__ import annotations

import numpy as np

from heart_utils.analysis.vote_pairs import N_LABELS, TIE, VotePairs
from heart_utils.analysis.votes import Array

__all__ = ["agreement_within", "author_margins", "predict_from_authors"]


def predict_from_authors(pairs: VotePairs, *, decided: bool) -> Array:
    """Predict a vote without reading: what the first party said most often of these two authors elsewhere.

    For a unit in cluster d, by responders i and j, the first party's votes on i against j in all other
    clusters (of the same group, where groups divide units) are counted; the commonest label is the
    prediction. Labels that are equally common share it, and where nobody judged i against j elsewhere
    all labels do: the prediction is then a coin. Without ties this is the sign of the sum of votes.

    Parameters
    ----------
    pairs : VotePairs
        As :func:`~heart_utils.analysis.vote_pairs.pair_votes` gives them.
    decided : bool
        Whether a tie may not be predicted, since ties are left out.

    Returns
    -------
    numpy.ndarray
        Shape (rows of `pairs`, 3): the share of each label in the prediction; rows sum to one.
    """
    own = pairs.own.copy()
    if decided:
        own[:, TIE] = 0.0
    n_authors = int(pairs.unit_authors.max()) + 1
    family = pairs.unit_group * n_authors + pairs.unit_authors
    here = family * pairs.n_clusters + pairs.unit_cluster
    found, cell = np.unique(here, return_inverse=True)
    in_cell, in_family = np.zeros((len(found), N_LABELS)), np.zeros((int(family.max()) + 1, N_LABELS))
    np.add.at(in_cell, cell, own)
    np.add.at(in_family, family, own)
    elsewhere = (in_family[family] - in_cell[cell])[pairs.unit]
    leads = elsewhere == elsewhere.max(axis=1, keepdims=True)
    if decided:
        leads[:, TIE] = False
    return np.asarray(leads / leads.sum(axis=1, keepdims=True))


def author_margins(pairs: VotePairs, counts: Array) -> Array:
    """Sum both parties' labels by cluster, group and pair of authors.

    Parameters
    ----------
    pairs : VotePairs
        Which row belongs where.
    counts : numpy.ndarray
        Shape (rows, 3, 3): what to sum.

    Returns
    -------
    numpy.ndarray
        Shape (clusters, groups, pairs of authors, 6): the first party's three labels, then the second's.
    """
    n_groups, n_authors = len(pairs.groups), int(pairs.authors.max()) + 1
    cell = (pairs.cluster * n_groups + pairs.group) * n_authors + pairs.authors
    labels = np.concatenate([counts.sum(axis=2), counts.sum(axis=1)], axis=1)
    if pairs.symmetric:
        labels = np.tile((labels[:, :N_LABELS] + labels[:, N_LABELS:]) / 2.0, 2)
    size = pairs.n_clusters * n_groups * n_authors
    summed = np.column_stack([np.bincount(cell, weights=column, minlength=size) for column in labels.T])
    return np.asarray(summed.reshape(pairs.n_clusters, n_groups, n_authors, 2 * N_LABELS), float)


def agreement_within(margins: Array) -> Array:
    r"""Give the share of agreement that knowing the authors alone would bring two raters by chance.

    Within a pair of authors, two raters that answer by their own habits alone agree in
    :math:`\sum_k p_k q_k` of their votes; pairs of authors weigh as many votes as they have.

    Parameters
    ----------
    margins : numpy.ndarray
        Shape (..., pairs of authors, 6), as :func:`author_margins` gives them, summed over clusters.

    Returns
    -------
    numpy.ndarray
        Shape (...); ``nan`` where there is no vote.
    """
    first, second = margins[..., :N_LABELS], margins[..., N_LABELS:]
    n_votes = first.sum(axis=-1)
    by_habit = np.divide((first * second).sum(axis=-1), n_votes, out=np.zeros_like(n_votes), where=n_votes > 0)
    total = np.asarray(n_votes.sum(axis=-1))
    return np.asarray(np.divide(by_habit.sum(axis=-1), total, out=np.full_like(total, np.nan), where=total > 0))
