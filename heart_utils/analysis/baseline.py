"""What agreement is worth: what would knowing who wrote both replies have been enough for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from heart_utils.analysis.vote_pairs import N_LABELS, TIE, A, B, VotePairs
from heart_utils.analysis.votes import Array, Codes

__all__ = ["AuthorBaseline", "agreement_within", "author_baseline", "author_margins"]

CHUNK_CELLS = 8_000_000


@dataclass(frozen=True, eq=False)
class AuthorBaseline:
    """What somebody who knows the two authors and reads nothing would answer, and how often that is right.

    For a unit in cluster d, by responders i and j, the first party's votes on i against j in all other
    clusters (of the same group, where groups divide units) are counted; the commonest label is the
    answer. Labels that are equally common share it, and where nobody judged i against j elsewhere all
    labels do: the answer is then a coin. Without ties this is the sign of the sum of votes.

    Attributes
    ----------
    told : numpy.ndarray
        Shape (clusters, families, 3): what the first party said of each pair of authors.
    cluster, family : numpy.ndarray
        Of each cell, a pair of authors in a cluster.
    first : numpy.ndarray
        Shape (cells, groups, 3): the first party's labels in the pairs of votes that are compared.
    decided : bool
        Whether a tie may not be the answer, since ties are left out.
    """

    told: Array
    cluster: Codes
    family: Codes
    first: Array
    decided: bool

    def count_right(self, weights: Array) -> Array:
        """Count the pairs of votes in which that answer agrees, learning it anew under each row of cluster weights.

        Parameters
        ----------
        weights : numpy.ndarray
            Shape (resamples, clusters): how often each cluster enters. All copies of a cluster stay out
            of the answers given for it.

        Returns
        -------
        numpy.ndarray
            Shape (resamples, groups).
        """
        found = np.zeros((len(weights), self.first.shape[1]))
        width = self.first[0].size * max(len(self.told), len(weights))
        for families in np.array_split(np.unique(self.family), np.ceil(self.told.shape[1] * width / CHUNK_CELLS)):
            if len(families):
                found += self._right_in(families, weights)
        return found

    def right_by_cluster(self) -> Array:
        """Count the same, learnt once from the data and kept, apart by cluster.

        Returns
        -------
        numpy.ndarray
            Shape (clusters, groups).
        """
        elsewhere = self.told.sum(axis=0) - self.told
        if self.decided:
            elsewhere[..., TIE] = -1.0
        leads = elsewhere == elsewhere.max(axis=2, keepdims=True)
        answer = (leads / leads.sum(axis=2, keepdims=True))[self.cluster, self.family]
        found = np.zeros((len(self.told), self.first.shape[1]))
        np.add.at(found, self.cluster, np.einsum("cl,cgl->cg", answer, self.first))
        return found

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
    """Lay out what the answer from the authors' names needs.

    Parameters
    ----------
    pairs : VotePairs
        As :func:`~heart_utils.analysis.vote_pairs.pair_votes` gives them.
    counts : numpy.ndarray
        Shape (rows, 3, 3): the pairs of votes that are compared.
    decided : bool
        Whether ties are left out.

    Returns
    -------
    AuthorBaseline
        Learnt from all votes of the first party, compared on `counts`.

    Examples
    --------
    >>> import pandas as pd
    >>> from heart_utils.analysis.vote_pairs import pair_votes
    >>> from heart_utils.analysis.votes import read_votes
    >>> rows = [(f"p{d}", f"d{d}", rater, "human", "x", "y", said) for d, said in enumerate("aab") for rater in "kl"]
    >>> columns = ["pair_id", "dialogue_id", "rater", "rater_kind", "responder_a", "responder_b", "verdict"]
    >>> table = pd.DataFrame(rows, columns=columns)
    >>> pairs = pair_votes(read_votes(table), table, between=("human", "human"), by=[])
    >>> knows = author_baseline(pairs, pairs.counts, decided=True)
    >>> knows.count_right(np.ones((1, 3)))  # a coin's half for each x, and wrong on y, whom x beat elsewhere
    array([[1.]])
    """
    n_authors = int(pairs.unit_authors.max()) + 1
    family = pairs.unit_group * n_authors + pairs.unit_authors
    n_families = int(family.max()) + 1
    told = np.zeros((pairs.n_clusters, n_families, N_LABELS))
    np.add.at(told, (pairs.unit_cluster, family), pairs.own)
    first = counts.sum(axis=2)
    if pairs.symmetric:
        first = (first + counts.sum(axis=1)) / 2.0
    found, cell = np.unique(pairs.cluster * n_families + family[pairs.unit], return_inverse=True)
    summed = np.zeros((len(found), len(pairs.groups), N_LABELS))
    np.add.at(summed, (cell, pairs.group), first)
    return AuthorBaseline(told, found // n_families, found % n_families, summed, decided)


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

    Examples
    --------
    >>> import pandas as pd
    >>> from heart_utils.analysis.vote_pairs import pair_votes
    >>> from heart_utils.analysis.votes import read_votes
    >>> table = pd.DataFrame({"pair_id": list("ppqq"), "rater": list("klkl"), "verdict": ["a", "a", "tie", "b"]})
    >>> table = table.assign(rater_kind="human", responder_a="x", responder_b="y")
    >>> pairs = pair_votes(read_votes(table, cluster=None), table, between=("k", "l"), by=[])
    >>> author_margins(pairs, pairs.counts).sum(axis=0)[0, 0]  # a, tie, b by k, then by l
    array([1., 1., 0., 1., 0., 1.])
    """
    n_groups, n_authors = len(pairs.groups), int(pairs.unit_authors.max()) + 1
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

    Examples
    --------
    >>> agreement_within(np.array([[8.0, 0.0, 2.0, 8.0, 0.0, 2.0]]))  # each says a in 8 of 10: 0.64 + 0.04
    array(0.68)
    """
    first, second = margins[..., :N_LABELS], margins[..., N_LABELS:]
    n_votes = first.sum(axis=-1)
    by_habit = np.divide((first * second).sum(axis=-1), n_votes, out=np.zeros_like(n_votes), where=n_votes > 0)
    total = np.asarray(n_votes.sum(axis=-1))
    return np.asarray(np.divide(by_habit.sum(axis=-1), total, out=np.full_like(total, np.nan), where=total > 0))
