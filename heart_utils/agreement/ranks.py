"""Rank correlations: do two raters order the replies of a history alike; does what observers see follow what seekers said."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from heart_utils.agreement.agreement import number_groups
from heart_utils.agreement.kappa import answer_sheet, cluster_of_unit
from heart_utils.ratings.resampling import (
    ENOUGH_CLUSTERS,
    Rng,
    as_rng,
    draw_weights,
    interval_columns,
    interval_of,
    ratio,
    sums_by,
)
from heart_utils.ratings.verdicts import AgreementError, Array, Codes, Votes, need, party, read_votes, unit_values
from heart_utils.tables import need_columns

__all__ = ["OUTCOMES", "rank_agreement", "track_recipients"]

MEASURES = {"tau": (-1.0, 1.0), "decided_agreement": (0.0, 1.0), "decided_share": (0.0, 1.0)}


def rank_agreement(
    scores: pd.DataFrame,
    *,
    between: tuple[str, str] = ("human", "model"),
    by: Sequence[str] = ("dimension",),
    cluster: str = "dialogue_id",
    n_resamples: int = 1000,
    ci_level: float = 0.95,
    rng: Rng = None,
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
        Two parties: ``"human"``, ``"model"``, or a rater's name. Every rater of one meets every other rater of the other.
    by : sequence of str
        Columns that all scores of a history on a dimension share, such as ``"dimension"``, ``"group"``, ``"slice"``.
    cluster : str
        Column of what is resampled together: ``"dialogue_id"``, or ``"group"`` for blocks.
    n_resamples, ci_level, rng
        As in :func:`~heart_utils.ratings.resampling.bootstrap_ci`.

    Returns
    -------
    pandas.DataFrame
        One row a group: the columns of `by`; ``tau``, ``decided_agreement`` (of pairs that both raters decided, those in the
        same direction) and ``decided_share``, each with ``_low`` and ``_high``; ``ci_level``, ``n_histories`` (times pairs of
        raters), ``n_defined`` (with a tau), ``n_reply_pairs``, ``n_clusters``, ``provisional``.

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
    votes = read_votes(need(scores, ["score"], "This needs scores."), cluster=cluster)
    if "history_id" not in scores:
        raise AgreementError("scores have no column history_id, so it is not known which replies answer one history.")
    conversation = _conversations(votes, scores)
    meetings = _meetings(votes, scores, between)
    found = np.concatenate(_compare(answer_sheet(votes), conversation, meetings))
    where = np.tile(np.unique(conversation, return_index=True)[1], len(meetings))
    met = found[:, 3] > 0
    if not met.any():
        raise AgreementError(f"{between[0]} and {between[1]} share no history with two replies that both scored.")
    found, where = found[met], where[met]
    labels = pd.DataFrame({name: unit_values(votes, scores, name) for name in by}, index=votes.units.index)
    group, groups = number_groups(labels.iloc[where].reset_index(drop=True))
    sums = sums_by((cluster_of_unit(votes)[where], group), found, len(votes.clusters), len(groups))
    whole, n_clusters = sums.sum(axis=0), (sums[:, :, 2] > 0).sum(axis=0)
    drawn = draw_weights(len(sums), n_resamples, rng) @ sums.reshape(len(sums), -1)
    replicates = _measures(drawn.reshape(-1, *whole.shape))
    columns = interval_columns(MEASURES, _measures(whole), replicates, n_clusters, ci_level)
    counts = dict(zip(["n_defined", "n_histories", "n_reply_pairs"], whole[:, 1:4].T.astype(int), strict=True))
    level = ci_level if len(replicates) else np.nan
    provisional = n_clusters < ENOUGH_CLUSTERS
    return groups.assign(**columns, ci_level=level, **counts, n_clusters=n_clusters, provisional=provisional)


def _conversations(votes: Votes, scores: pd.DataFrame) -> Codes:
    """Give a code to each unit's conversation, a history on a dimension and item."""
    keys = votes.units.iloc[:, 1:].assign(history_id=unit_values(votes, scores, "history_id"))
    return np.asarray(keys.groupby(list(keys.columns), dropna=False).ngroup(), dtype=np.intp)


def _meetings(votes: Votes, scores: pd.DataFrame, between: tuple[str, str]) -> list[tuple[int, int]]:
    """List the pairs of raters of the two parties, nobody with themselves, each pair once."""
    first, second = (np.unique(votes.rater[party(votes.rows, scores, who)]).tolist() for who in between)
    met = sorted({(min(one, two), max(one, two)) for one in first for two in second if one != two})
    if not met:
        raise AgreementError(f"Agreement needs two raters or more; there is only {votes.raters[first[0]]}.")
    return met


def _compare(sheet: Array, conversation: Codes, meetings: list[tuple[int, int]]) -> list[Array]:
    """For each two raters and conversation: tau, whether it has one, 1, pairs of replies, decided pairs, equal ones."""
    units = pd.DataFrame({"conversation": conversation, "unit": np.arange(len(conversation))})
    pairs = units.merge(units, on="conversation", suffixes=("", "_other")).query("unit < unit_other")
    signs = np.sign(sheet[pairs["unit"]] - sheet[pairs["unit_other"]])
    found = []
    for first, second in meetings:
        both = ~np.isnan(signs[:, first] * signs[:, second])
        one, two, where = signs[both, first], signs[both, second], pairs["conversation"].to_numpy()[both]
        parts = [one * two, one**2, two**2, np.ones(len(one)), one * two != 0, one * two > 0]
        product, squares, others, n_pairs, decided, equal = (
            np.bincount(where, weights=part, minlength=conversation.max() + 1) for part in parts
        )
        room = np.sqrt(squares * others)
        tau = ratio(product, room, 0.0)
        found.append(np.column_stack([tau, room > 0, np.ones(len(room)), n_pairs, decided, equal]))
    return found


def _measures(sums: Array) -> Array:
    tau, defined, _, pairs, decided, equal = (sums[..., column] for column in range(6))
    shares = ((tau, defined), (equal, decided), (decided, pairs))
    return np.stack([ratio(up, down) for up, down in shares], axis=-1)


OUTCOMES = ("seeker_empathy", "seeker_relevance", "distress_drop")
"""The seeker's scores of the supporter, and distress before minus distress after."""

CHUNK = 200


def track_recipients(
    values: pd.DataFrame,
    histories: pd.DataFrame,
    *,
    by: Sequence[str] = ("code",),
    outcomes: Sequence[str] = OUTCOMES,
    n_resamples: int = 1000,
    ci_level: float = 0.95,
    rng: Rng = None,
) -> pd.DataFrame:
    r"""Correlate what observers saw in a dialogue with what its seeker said.

    Spearman's correlation, over dialogues, of a value (the share of raters who preferred the supporter's
    reply, a judge's score, how often a strategy was used) with each of the seeker's outcomes. It is no
    effect: supporters choose strategies by how the talk goes. Two things keep it small whatever the
    truth: most seekers give the highest score, and not all gave one (``n_missing``).

    Parameters
    ----------
    values : pandas.DataFrame
        ``history_id``, ``value`` and the columns of `by`; one row a history and combination of these.
    histories : pandas.DataFrame
        ``history_id``, the column named by `cluster`, and ``seeker_empathy``, ``seeker_relevance``,
        ``distress_before`` and ``distress_after`` as far as `outcomes` need them.
    by : sequence of str
        Columns of `values`.
    outcomes : sequence of str
        Of :data:`OUTCOMES`.
    n_resamples, ci_level, rng
        As in :func:`~heart_utils.ratings.resampling.bootstrap_ci`.

    Returns
    -------
    pandas.DataFrame
        One row a combination and outcome: the columns of `by`, ``outcome``, ``correlation``, ``ci_low``, ``ci_high``,
        ``ci_level``, ``n`` (with an outcome), ``n_missing`` (without), ``n_clusters``, ``provisional``. Where a value or an
        outcome does not vary, ``nan``.

    Raises
    ------
    AgreementError
        If a column is missing, a history appears twice in a combination, or no value has an outcome.

    Examples
    --------
    >>> told = pd.DataFrame({"history_id": list("ghij"), "dialogue_id": list("ghij"), "seeker_empathy": [2, 3, 5, None]})
    >>> seen = pd.DataFrame({"history_id": list("ghij"), "code": "Question", "value": [0.1, 0.2, 0.4, 0.3]})
    >>> found = track_recipients(seen, told, outcomes=["seeker_empathy"], n_resamples=0)
    >>> found[["correlation", "n", "n_missing"]].values.tolist()
    [[1.0, 3.0, 1.0]]
    """
    drop = ["distress_before", "distress_after"] if "distress_drop" in outcomes else []
    asked = [name for name in outcomes if name != "distress_drop"]
    if missing := [name for name in ("history_id", "dialogue_id", *asked, *drop) if name not in histories]:
        raise AgreementError(f"histories have no column {', '.join(missing)}; only ESConv's seekers answered.")
    told = histories.assign(distress_drop=histories[drop[0]] - histories[drop[1]]) if drop else histories
    need_columns(values, ["history_id", "value", *by], AgreementError)
    if values.duplicated(["history_id", *by]).any():
        row = values.loc[values.duplicated(["history_id", *by]), ["history_id", *by]].iloc[0]
        raise AgreementError(f"{dict(row)} has more than one value; average them first, or add what tells them apart to `by`.")
    joined = values.dropna(subset="value").merge(told[["history_id", "dialogue_id", *outcomes]], on="history_id")
    if joined.empty or joined[list(outcomes)].isna().to_numpy().all():
        raise AgreementError("No history with a value has an outcome by its seeker.")
    rng = as_rng(rng)
    rows = []
    for outcome in outcomes:
        # One draw serves all groups: the dialogues are the same.
        clusters = pd.Index(joined.loc[joined[outcome].notna(), "dialogue_id"].unique())
        drawn = draw_weights(len(clusters), n_resamples, rng)
        for group, part in joined.groupby(list(by), sort=True) if by else [((), joined)]:
            found = _correlate(part, outcome, clusters.get_indexer(pd.Index(part["dialogue_id"])), drawn, ci_level)
            rows.append({**dict(zip(by, group, strict=True)), "outcome": outcome, **found})
    return pd.DataFrame(rows)


def _correlate(part: pd.DataFrame, outcome: str, where: Codes, drawn: Array, ci_level: float) -> dict[str, object]:
    there = part[outcome].notna().to_numpy()
    rows, where = part[there], where[there]
    n_clusters = len(np.unique(where))
    x, y = (np.unique(rows[column].to_numpy(float), return_inverse=True)[1] for column in ("value", outcome))
    estimate = _spearman(x, y, np.ones((1, len(rows)))) if len(rows) else np.array([np.nan])
    low = high = float("nan")
    if len(drawn) and n_clusters > 1 and not np.isnan(estimate[0]):
        found = np.concatenate([_spearman(x, y, drawn[i : i + CHUNK][:, where]) for i in range(0, len(drawn), CHUNK)])
        low, high = interval_of(float(estimate[0]), found, n_clusters, ci_level, least=-1.0, most=1.0)
    counts = {"n": len(rows), "n_missing": int((~there).sum()), "n_clusters": n_clusters}
    ends = {"correlation": float(estimate[0]), "ci_low": low, "ci_high": high, "ci_level": ci_level}
    return {**ends, **counts, "provisional": n_clusters < ENOUGH_CLUSTERS}


def _spearman(x: Codes, y: Codes, weights: Array) -> Array:
    """Correlate ranks, ties at their middle, under each row of weights."""
    rank_x, rank_y = _ranks(x, weights), _ranks(y, weights)
    total = weights.sum(axis=1, keepdims=True)
    rank_x = rank_x - (weights * rank_x).sum(axis=1, keepdims=True) / total
    rank_y = rank_y - (weights * rank_y).sum(axis=1, keepdims=True) / total
    together = (weights * rank_x * rank_y).sum(axis=1)
    room = np.sqrt((weights * rank_x**2).sum(axis=1) * (weights * rank_y**2).sum(axis=1))
    return np.asarray(np.divide(together, room, out=np.full(len(room), np.nan), where=room > 1e-9))


def _ranks(codes: Codes, weights: Array) -> Array:
    """Give the middle rank of each entry, where an entry counts as often as its weight."""
    order = np.argsort(codes, kind="stable")
    starts = np.searchsorted(codes[order], np.arange(int(codes.max()) + 1))
    counts = np.add.reduceat(weights[:, order], starts, axis=1)
    return np.asarray((np.cumsum(counts, axis=1) - counts / 2.0)[:, codes])
