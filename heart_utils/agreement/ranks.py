"""Do two raters order the replies of one history alike, where verdicts would be made from scores."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from heart_utils.ratings.resampling import ENOUGH_CLUSTERS, draw_weights, interval_of
from heart_utils.ratings.verdicts import AgreementError, Array, Codes, Votes, read_votes, scores_only, unit_values
from heart_utils.tables import RATER_KINDS

__all__ = ["rank_agreement"]

MEASURES = {"tau": -1.0, "decided_agreement": 0.0, "decided_share": 0.0}
"""Name -> the least value it can have; the greatest is 1."""


def rank_agreement(
    scores: pd.DataFrame,
    *,
    between: tuple[str, str] = ("human", "model"),
    by: Sequence[str] = ("dimension",),
    cluster: str = "dialogue_id",
    n_resamples: int = 1000,
    ci_level: float = 0.95,
    rng: np.random.Generator | None = None,
) -> pd.DataFrame:
    r"""Compare how two parties order the replies of one history, history by history.

    Ten scores give 45 pairs that hang together, so the unit is the history: Kendall's
    :math:`\tau_b = \sum s_{ij} t_{ij} / \sqrt{\sum s_{ij}^2 \sum t_{ij}^2}` over its pairs of replies [1]_,
    where s and t are the signs of the two raters' differences, averaged over histories in which
    both raters told some replies apart. Beside it stand the pairs that both decided.

    Parameters
    ----------
    scores : pandas.DataFrame
        The scores table.
    between : tuple of str
        Two parties: ``"human"``, ``"model"``, or a rater's name. Every rater of one meets every other
        rater of the other.
    by : sequence of str
        Columns that all scores of a history on a dimension share, such as ``"dimension"``,
        ``"group"``, ``"slice"``.
    cluster : str
        Column of what is resampled together: ``"dialogue_id"``, or ``"group"`` for blocks.
    n_resamples : int
        Bootstrap resamples; 0 for the means alone.
    ci_level : float
        Of the intervals.
    rng : numpy.random.Generator, optional
        The source of chance; by default one with a fixed seed.

    Returns
    -------
    pandas.DataFrame
        One row a group: the columns of `by`; ``tau``, ``decided_agreement`` (of pairs that both raters
        decided, those in the same direction) and ``decided_share``, each with ``_low`` and ``_high``;
        ``ci_level``, ``n_histories`` (times pairs of raters), ``n_defined`` (with a tau),
        ``n_reply_pairs``, ``n_clusters``, ``provisional``.

    Raises
    ------
    AgreementError
        If a party has no score, or the parties share no history.

    References
    ----------
    .. [1] Kendall (1945), https://doi.org/10.1093/biomet/33.3.239

    Examples
    --------
    >>> scores = pd.DataFrame({"reply_id": list("rst") * 2, "history_id": "h", "dialogue_id": "d", "dimension": "empathy",
    ...     "rater": ["ann"] * 3 + ["llm"] * 3, "score": [1, 2, 3, 2, 2, 4]})
    >>> rank_agreement(scores, between=("ann", "llm"), n_resamples=0)[["tau", "decided_agreement"]].round(3).to_dict("records")
    [{'tau': 0.816, 'decided_agreement': 1.0}]
    """
    votes = read_votes(scores_only(scores), cluster=cluster)
    if "history_id" not in scores:
        raise AgreementError("scores have no column history_id, so it is not known which replies answer one history.")
    conversation, place = _places(votes, scores)
    first_row = np.zeros(int(conversation.max()) + 1, np.intp)
    first_row[conversation] = np.arange(len(conversation))
    signs = {rater: _signs(votes, conversation, place, rater) for rater in range(len(votes.raters))}
    parts = [_compare(signs[one], signs[two]) for one, two in _meetings(votes, scores, between)]
    found = np.concatenate(parts)
    where = np.tile(first_row, len(parts))
    met = found[:, 3] > 0
    if not met.any():
        raise AgreementError(f"{between[0]} and {between[1]} share no history with two replies that both scored.")
    found, where = found[met], where[met]
    labels = pd.DataFrame({name: unit_values(votes, scores, name) for name in by}, index=votes.units.index).iloc[where]
    group, groups = _groups(labels)
    cluster_of_unit = np.zeros(len(votes.units), np.intp)
    cluster_of_unit[votes.unit] = votes.cluster
    return _table(found, group, groups, cluster_of_unit[where], len(votes.clusters), n_resamples, ci_level, rng)


def _places(votes: Votes, scores: pd.DataFrame) -> tuple[Codes, Codes]:
    """Give a code to each conversation (a history on a dimension and item), and a place in it to each reply."""
    history, _ = pd.factorize(unit_values(votes, scores, "history_id"))
    key = history
    for column in votes.units.columns[1:]:
        codes, names = pd.factorize(votes.units[column], use_na_sentinel=False)
        key = key * len(names) + codes
    conversation = np.unique(key, return_inverse=True)[1]
    order = np.argsort(conversation, kind="stable")
    place = np.empty(len(order), np.intp)
    sizes = np.bincount(conversation)
    place[order] = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return conversation.astype(np.intp), place


def _signs(votes: Votes, conversation: Codes, place: Codes, rater: int) -> Array:
    """Give the sign of the difference of every two replies of each conversation; ``nan`` where one has no score."""
    mine = votes.rater == rater
    table = np.full((int(conversation.max()) + 1, int(place.max()) + 1), np.nan)
    unit = votes.unit[mine]
    table[conversation[unit], place[unit]] = votes.categories.astype(float)[votes.value[mine]]
    one, two = np.triu_indices(table.shape[1], k=1)
    return np.asarray(np.sign(table[:, one] - table[:, two]))


def _meetings(votes: Votes, scores: pd.DataFrame, between: tuple[str, str]) -> list[tuple[int, int]]:
    """List the pairs of raters of the two parties, nobody with themselves, each pair once."""
    parties = []
    for who in between:
        column = "rater_kind" if who in RATER_KINDS else "rater"
        if column not in scores:
            raise AgreementError(f"scores have no column {column}, so nobody is known to be {who}.")
        mine = (scores[column] == who).to_numpy(dtype=bool)[votes.rows]
        if not mine.any():
            raise AgreementError(f"No score that counts is by {who!r}. Raters are {', '.join(map(str, votes.raters[:8]))}.")
        parties.append(sorted(set(votes.rater[mine].tolist())))
    met = {(min(one, two), max(one, two)): (one, two) for two in parties[1] for one in parties[0] if one != two}
    if not met:
        raise AgreementError(f"Agreement needs two raters or more; there is only {votes.raters[parties[0][0]]}.")
    return [met[key] for key in sorted(met)]


def _compare(one: Array, two: Array) -> Array:
    """For each conversation: tau, whether it has one, 1, pairs of replies, decided pairs, equal ones."""
    both = ~np.isnan(one) & ~np.isnan(two)
    one, two = np.where(both, one, 0.0), np.where(both, two, 0.0)
    product = one * two
    room = np.sqrt((one**2).sum(axis=1) * (two**2).sum(axis=1))
    tau = np.divide(product.sum(axis=1), room, out=np.zeros(len(room)), where=room > 0)
    return np.column_stack(
        [tau, room > 0, np.ones(len(room)), both.sum(axis=1), (product != 0).sum(axis=1), (product > 0).sum(axis=1)]
    )


def _groups(labels: pd.DataFrame) -> tuple[Codes, pd.DataFrame]:
    labels = labels.reset_index(drop=True)
    if not len(labels.columns):
        return np.zeros(len(labels), np.intp), pd.DataFrame(index=[0])
    number = labels.groupby(list(labels.columns), dropna=False, sort=True).ngroup().to_numpy()
    groups = labels.iloc[np.unique(number, return_index=True)[1]].reset_index(drop=True)
    return number.astype(np.intp), groups


def _table(
    found: Array,
    group: Codes,
    groups: pd.DataFrame,
    cluster: Codes,
    n_clusters: int,
    n_resamples: int,
    ci_level: float,
    rng: np.random.Generator | None,
) -> pd.DataFrame:
    n_groups = len(groups)
    cell = cluster * n_groups + group
    sums = np.column_stack([np.bincount(cell, weights=column, minlength=n_clusters * n_groups) for column in found.T])
    sums = sums.reshape(n_clusters, n_groups, -1)
    whole = sums.sum(axis=0)
    seen: NDArray[np.intp] = (sums[:, :, 2] > 0).sum(axis=0)
    estimate = _measures(whole)
    drawn = draw_weights(n_clusters, n_resamples, rng) @ sums.reshape(n_clusters, -1)
    replicates = _measures(drawn.reshape(-1, *whole.shape))
    columns: dict[str, object] = {}
    for number, (name, least) in enumerate(MEASURES.items()):
        ends = [
            interval_of(estimate[g, number], replicates[:, g, number], int(seen[g]), ci_level, least=least, most=1.0)
            for g in range(n_groups)
        ]
        columns |= {
            name: estimate[:, number],
            f"{name}_low": [low for low, _ in ends],
            f"{name}_high": [high for _, high in ends],
        }
    counts = {"n_histories": whole[:, 2], "n_defined": whole[:, 1], "n_reply_pairs": whole[:, 3]}
    rest = {name: values.astype(int) for name, values in counts.items()} | {
        "n_clusters": seen,
        "provisional": seen < ENOUGH_CLUSTERS,
    }
    return pd.concat([groups, pd.DataFrame({**columns, "ci_level": ci_level if len(replicates) else np.nan, **rest})], axis=1)


def _measures(sums: Array) -> Array:
    tau, defined, _, pairs, decided, equal = (sums[..., column] for column in range(6))
    shares = ((tau, defined), (equal, decided), (decided, pairs))
    return np.stack([np.divide(up, down, out=np.full_like(up, np.nan), where=down > 0) for up, down in shares], axis=-1)
