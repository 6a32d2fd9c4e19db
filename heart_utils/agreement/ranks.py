"""Rank correlations of two raters' scores, and of observers' codes with seekers' reports."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy import stats

from heart_utils.agreement.agreement import number_groups
from heart_utils.agreement.kappa import answer_sheet, cluster_of_unit
from heart_utils.ratings.resampling import (
    ENOUGH_CLUSTERS,
    Rng,
    as_rng,
    draw_weights,
    holm,
    interval_columns,
    interval_of,
    ratio,
    sums_by,
)
from heart_utils.ratings.verdicts import (
    AgreementError,
    Array,
    Codes,
    complete_starts,
    need,
    rater_group,
    read_votes,
    unit_values,
)
from heart_utils.tables import need_columns

__all__ = ["OUTCOMES", "order_changes", "rank_agreement", "track_recipients"]


def rank_agreement(
    scores: pd.DataFrame,
    *,
    between: tuple[str, str] = ("human", "model"),
    cluster: str = "dialogue_id",
    n_resamples: int = 1000,
    ci_level: float = 0.95,
    rng: Rng = None,
) -> pd.DataFrame:
    r"""Compare how two rater groups rank the replies of one history (Kendall's tau-b).

    Source: Kendall (1945), https://doi.org/10.1093/biomet/33.3.239.

    :math:`\tau_b = \sum s_{ij} t_{ij} / \sqrt{\sum s_{ij}^2 \sum t_{ij}^2}`, with s and t the signs
    of two raters' differences, is averaged over histories in which both told some replies apart.

    Parameters
    ----------
    scores
        The scores table.
    between, cluster, n_resamples, ci_level, rng
        As in :func:`~heart_utils.agreement.agreement.pairwise_agreement`.

    Returns
    -------
    pandas.DataFrame
        By ``dimension``: ``tau`` with its interval, ``n_histories``, ``n_defined``, ``n_clusters``,
        ``provisional``.

    Raises
    ------
    AgreementError
        If a rater group has no score, or the groups share no history.

    Examples
    --------
    >>> scores = pd.DataFrame(
    ...     {
    ...         "reply_id": list("rst") * 2,
    ...         "history_id": "h",
    ...         "dialogue_id": "d",
    ...         "dimension": "empathy",
    ...         "rater": ["ann"] * 3 + ["llm"] * 3,
    ...         "score": [1, 2, 3, 2, 2, 4],
    ...     }
    ... )
    >>> rank_agreement(scores, between=("ann", "llm"), n_resamples=0)["tau"].round(3).tolist()
    [0.816]
    """
    votes = read_votes(
        need(scores, ["score", "history_id"], "This needs scores of replies to histories."),
        cluster=cluster,
    )
    first, second = (
        np.unique(votes.rater[rater_group(votes.rows, scores, who)]) for who in between
    )
    meetings = sorted(
        {(min(one, two), max(one, two)) for one in first for two in second if one != two}
    )
    # A conversation is a history on a dimension and item.
    conversation, _ = number_groups(
        votes.units.iloc[:, 1:].assign(history_id=unit_values(votes, "history_id"))
    )
    sheet = answer_sheet(votes)
    sums = np.concatenate(
        [np.zeros((0, 3)), *(_taus(sheet, conversation, *two) for two in meetings)]
    )
    where = np.tile(np.unique(conversation, return_index=True)[1], len(meetings))[sums[:, 2] > 0]
    if not len(where):
        raise AgreementError(
            f"{between[0]} and {between[1]} share no history with two replies that two raters of"
            " them scored."
        )
    group, groups = number_groups(
        votes.units[[name for name in ("dimension",) if name in votes.units]]
    )
    cells = cluster_of_unit(votes)[where], group[where]
    sums = sums_by(cells, sums[sums[:, 2] > 0], len(votes.clusters), len(groups))
    drawn = np.vstack([np.ones(len(sums)), draw_weights(len(sums), n_resamples, rng)])
    again, n_clusters = np.tensordot(drawn, sums, 1), (sums[:, :, 2] > 0).sum(axis=0)
    tau = ratio(again[..., :1], again[..., 1:2])
    columns = interval_columns({"tau": (-1.0, 1.0)}, tau[0], tau[1:], n_clusters, ci_level)
    counts = dict(zip(["n_defined", "n_histories"], again[0, :, 1:].T.astype(int), strict=True))
    level, provisional = ci_level if len(tau) > 1 else np.nan, n_clusters < ENOUGH_CLUSTERS
    table = groups.assign(
        **columns, ci_level=level, **counts, n_clusters=n_clusters, provisional=provisional
    )
    return table.query("n_histories > 0").reset_index(drop=True)


def order_changes(
    first: pd.DataFrame,
    second: pd.DataFrame,
    *,
    cluster: str = "dialogue_id",
    n_halves: int = 200,
    n_resamples: int = 1000,
    ci_level: float = 0.95,
    rng: Rng = None,
) -> pd.DataFrame:
    """Count pairs of responders that two measures order differently, beside what chance changes.

    Such as a score of one next turn, and one of the whole conversation from the same start.

    Parameters
    ----------
    first : pandas.DataFrame
        Scores by the first measure: ``responder``, the cluster and ``score``. Verdicts become
        scores by :func:`~heart_utils.agreement.generalizability.win_scores`.
    second : pandas.DataFrame
        Scores by the second measure. Only responders and clusters that both have are compared, and
        clusters in which each responder has both scores.
    cluster : str
        What was sampled: the starts.
    n_halves : int
        How often starts are cut into random halves.
    n_resamples : int
        Resamples of the starts for the interval; 0 for none.
    ci_level : float
        Level of the interval, and of all that is shown: with this chance none of it is wrong.
    rng : numpy.random.Generator, optional
        The source of chance.

    Returns
    -------
    pandas.DataFrame
        One row a comparison, with ``share`` of pairs, ``n_pairs``, and ``n_clusters`` on each side;
        ``excess`` with ``ci_low``, ``ci_high`` and ``ci_level``:

        - ``same starts``: in another order by the second measure than by the first;
        - ``shown reversed``, ``shown the same`` and ``not shown``: what tests say of each pair;
        - ``other starts``: the first measure on one half against the second on the other;
        - ``first again`` and ``second again``: one measure on both halves, the floor that chance
          sets;
        - ``excess``: ``other starts`` less ``second again``.

    Raises
    ------
    AgreementError
        If both measures have fewer than two responders or four starts in common.

    Notes
    -----
    Means are compared. A pair that is equal by one measure and not by the other counts as changed.
    A change is not yet a reversal: near-equal responders change places by chance. A reversal is
    *shown* by the test of qualitative interaction [1]_: both differences are certain, and of
    opposite sign. Its p is that of the smaller of the two paired t, taken two-sided, so that it
    holds for the same order too and for any correlation of the two differences [2]_, and adjusted
    for the number of pairs (Holm).

    If ``excess`` is near zero, the first measure predicts the order of another study as well as a
    second study of the second kind would. This is not to say that both have the same order: where
    the second measure is noisy its floor is high, and a precise first measure stays below it though
    it orders a fifth of the pairs otherwise. How many pairs the study could decide is read from
    ``not shown``.

    The interval resamples starts and keeps the halves. In five kinds of simulated studies (40 to
    100 starts, 400 of each) it held the expected excess in 93 to 98 %. In one of them the first
    measure is precise and 21 % of pairs are truly reversed: it counts 0.32 against a floor of 0.35,
    and 97 % of pairs are not shown either way.

    References
    ----------
    .. [1] Gail and Simon (1985), https://doi.org/10.2307/2530862
    .. [2] Russek-Cohen and Simon (1993), Biometrics 49, on correlated estimates

    Examples
    --------
    >>> starts = pd.DataFrame({"dialogue_id": range(4), "m": [1, 2, 1, 1], "n": 3, "o": 5}).melt(
    ...     "dialogue_id", var_name="responder", value_name="score"
    ... )
    >>> second = starts.assign(score=-starts["score"])
    >>> shares = order_changes(starts, second, n_resamples=0).set_index("compared")["share"]
    >>> shares[["same starts", "shown reversed", "not shown"]].round(2).tolist()
    [1.0, 0.67, 0.33]
    """
    both = complete_starts(first, second, cluster)
    one, other = (both[name].to_numpy(dtype=float) for name in ("first", "second"))
    left, right = np.triu_indices(len(one[0]), 1)
    rng = as_rng(rng)
    halves = [np.array_split(rng.permutation(len(both)), 2) for _ in range(n_halves)]
    weights = np.vstack([np.ones(len(both)), draw_weights(len(both), n_resamples, rng)])

    def orders(half: Codes) -> list[Array]:
        """Return who leads in each pair by either measure, a row for the data and each resample."""
        sums = [weights[:, half] @ scores[half] for scores in (one, other)]
        return [np.sign(total[:, left] - total[:, right]).astype(np.int8) for total in sums]

    again = np.zeros((3, len(weights)))
    for half, rest in halves:
        (start, end), (start_rest, end_rest) = orders(half), orders(rest)
        for number, compared in enumerate(
            [(start, end_rest), (start, start_rest), (end, end_rest)]
        ):
            again[number] += np.not_equal(*compared).mean(axis=1)
    others, first_again, second_again = again / n_halves
    excess = others - second_again
    gaps = [scores[:, left] - scores[:, right] for scores in (one, other)]
    first_order, second_order = (np.sign(gap.mean(axis=0)) for gap in gaps)
    changed = first_order != second_order
    is_shown = _both_certain(*gaps) <= 1.0 - ci_level
    shares = {
        "same starts": changed.mean(),
        "shown reversed": (is_shown & changed).mean(),
        "shown the same": (is_shown & ~changed).mean(),
        "not shown": (~is_shown).mean(),
        "other starts": others[0],
        "first again": first_again[0],
        "second again": second_again[0],
        "excess": excess[0],
    }
    low, high = interval_of(excess[0], excess[1:], len(both), ci_level, least=-1.0, most=1.0)
    table = pd.DataFrame({"compared": list(shares), "share": list(shares.values())})
    on_half = ~table["compared"].isin(list(shares)[:4])
    ends = {"ci_low": low, "ci_high": high, "ci_level": ci_level}
    table.loc[table["compared"] == "excess", list(ends)] = list(ends.values())
    return table.assign(n_pairs=len(left), n_clusters=len(both) // (1 + on_half))


def _both_certain(one: Array, other: Array) -> Array:
    """Test of each pair that both differences have the signs that they show, adjusted by Holm.

    A row is a start, a column a pair. Where a difference does not vary nothing can be tested.
    """
    p = []
    for gaps in (one, other):
        varies = gaps.std(axis=0) > 1e-9 * np.abs(gaps).max(axis=0)
        tested = stats.ttest_1samp(np.where(varies, gaps, np.nan), 0.0).pvalue
        p.append(np.nan_to_num(tested, nan=1.0))
    return holm(pd.Series(np.maximum(*p))).to_numpy()


def _taus(sheet: Array, conversation: Codes, first: int, second: int) -> Array:
    """Compute tau for each conversation of two raters.

    Also return whether it has one, and whether both scored two replies.
    """
    units = pd.DataFrame({"conversation": conversation, "unit": np.arange(len(conversation))})
    units = units[~np.isnan(sheet[:, first] + sheet[:, second])]
    pairs = units.merge(units, on="conversation", suffixes=("", "_other")).query(
        "unit < unit_other"
    )
    one, two = np.sign(sheet[pairs["unit"]] - sheet[pairs["unit_other"]])[:, [first, second]].T
    parts = np.column_stack([one * two, one**2, two**2, np.ones(len(one))])
    product, squares, others, n_pairs = sums_by(
        pairs["conversation"], parts, conversation.max() + 1
    ).T
    room = np.sqrt(squares * others)
    return np.column_stack([ratio(product, room, 0.0), room > 0, n_pairs > 0])


OUTCOMES = ("seeker_empathy", "seeker_relevance", "distress_drop")
"""The seeker's scores of the supporter, and distress before minus distress after."""


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
    """Correlate observers' codes of a dialogue with its seeker's reports (Spearman).

    Dialogues are the units. The correlation is not an effect of what the observers saw.

    Parameters
    ----------
    values
        One row a ``history_id`` and combination of the columns of `by`, with ``value``.
    histories
        The table with the seeker's answers.
    by
        Columns of `values`.
    outcomes
        Which of :data:`OUTCOMES`.
    n_resamples, ci_level, rng
        As in :func:`~heart_utils.ratings.resampling.bootstrap_ci`.

    Returns
    -------
    pandas.DataFrame
        One row a combination and outcome: the columns of `by`, ``outcome``, ``correlation``,
        ``ci_low``, ``ci_high``, ``ci_level``, ``n`` (with an outcome), ``n_missing``,
        ``n_clusters``, ``provisional``.

    Raises
    ------
    AgreementError
        If a column is missing, a history appears twice in a combination, or no value has an
        outcome.

    Examples
    --------
    >>> told = pd.DataFrame(
    ...     {
    ...         "history_id": list("ghij"),
    ...         "dialogue_id": list("ghij"),
    ...         "seeker_empathy": [2, 3, 5, None],
    ...     }
    ... )
    >>> seen = pd.DataFrame(
    ...     {"history_id": list("ghij"), "code": "Question", "value": [0.1, 0.2, 0.4, 0.3]}
    ... )
    >>> track_recipients(seen, told, outcomes=["seeker_empathy"], n_resamples=0)[
    ...     ["correlation", "n"]
    ... ].values.tolist()
    [[1.0, 3.0]]
    """
    drop = ["distress_before", "distress_after"]
    report_columns = [
        column for name in outcomes for column in (drop if name == "distress_drop" else [name])
    ]
    if missing := [
        name for name in ("history_id", "dialogue_id", *report_columns) if name not in histories
    ]:
        raise AgreementError(
            f"histories have no column {', '.join(missing)}; only ESConv's seekers answered."
        )
    reports = (
        histories.assign(distress_drop=histories[drop[0]] - histories[drop[1]])
        if drop[0] in report_columns
        else histories
    )
    need_columns(values, ["history_id", "value", *by], AgreementError)
    if values.duplicated(["history_id", *by]).any():
        row = values.loc[values.duplicated(["history_id", *by]), ["history_id", *by]].iloc[0]
        raise AgreementError(
            f"{dict(row)} has more than one value; average them first, or add what tells them apart"
            " to `by`."
        )
    joined = values.dropna(subset="value").merge(
        reports[["history_id", "dialogue_id", *outcomes]], on="history_id"
    )
    if joined[list(outcomes)].isna().to_numpy().all():
        raise AgreementError("No history with a value has an outcome by its seeker.")
    rows = []
    for outcome in outcomes:
        # One draw serves all groups: the dialogues are the same.
        clusters = pd.Index(joined.loc[joined[outcome].notna(), "dialogue_id"].unique())
        drawn = draw_weights(len(clusters), n_resamples, rng)
        for group, part in joined.groupby(list(by), sort=True):
            correlation = _correlate(
                part, outcome, clusters.get_indexer(pd.Index(part["dialogue_id"])), drawn, ci_level
            )
            rows.append({**dict(zip(by, group, strict=True)), "outcome": outcome, **correlation})
    return pd.DataFrame(rows)


def _correlate(
    part: pd.DataFrame, outcome: str, where: Codes, drawn: Array, ci_level: float
) -> dict[str, object]:
    """Compute Spearman's correlation with mid-ranks, in the data and in each resample."""
    has_outcome = part[outcome].notna().to_numpy()
    rows, where = part[has_outcome], where[has_outcome]
    n_clusters = len(np.unique(where))
    x, y = (
        np.unique(rows[column].to_numpy(float), return_inverse=True)[1]
        for column in ("value", outcome)
    )
    weights = np.vstack([np.ones(len(rows)), drawn[:, where]])
    ranks, total = (
        np.stack([_ranks(x, weights), _ranks(y, weights)]),
        np.maximum(weights.sum(axis=-1, keepdims=True), 1.0),
    )
    ranks = ranks - (weights * ranks).sum(axis=-1, keepdims=True) / total
    (xx, xy), (_, yy) = np.einsum("irn,jrn->ijr", ranks, weights * ranks)
    correlations = ratio(xy, np.where(xx * yy > 1e-18, np.sqrt(xx * yy), 0.0))
    low, high = interval_of(
        float(correlations[0]), correlations[1:], max(n_clusters, 1), ci_level, least=-1.0, most=1.0
    )
    counts = {"n": len(rows), "n_missing": int((~has_outcome).sum()), "n_clusters": n_clusters}
    ends = {
        "correlation": float(correlations[0]),
        "ci_low": low,
        "ci_high": high,
        "ci_level": ci_level,
    }
    return {**ends, **counts, "provisional": n_clusters < ENOUGH_CLUSTERS}


def _ranks(codes: Codes, weights: Array) -> Array:
    """Compute mid-ranks of the entries, each entry counted as often as its weight."""
    order = np.argsort(codes, kind="stable")
    starts = np.searchsorted(codes[order], np.unique(codes))
    counts = np.add.reduceat(weights[:, order], starts, axis=1)
    return np.asarray((np.cumsum(counts, axis=1) - counts / 2.0)[:, codes])
