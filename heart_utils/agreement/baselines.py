"""Agreement beside what needs no reading: who wrote, which reply is longer, how it looks, which came first."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from heart_utils.agreement.agreement import A, B, VotePairs, author_baseline, pair_votes, party, sum_by_cluster, that_count
from heart_utils.ratings.resampling import ENOUGH_CLUSTERS, Rng, draw_weights, interval_columns
from heart_utils.ratings.verdicts import AgreementError, Array, Votes, read_votes

__all__ = ["agreement_with_baselines"]

FOLDS = 10
"""Clusters are left out in at most this many parts where a baseline has to be fitted."""


def agreement_with_baselines(
    verdicts: pd.DataFrame,
    *,
    between: tuple[str, str | None] = ("human", "model"),
    gaps: pd.DataFrame | None = None,
    by: Sequence[str] = ("dimension",),
    cluster: str = "dialogue_id",
    n_resamples: int = 1000,
    ci_level: float = 0.95,
    rng: Rng = None,
) -> pd.DataFrame:
    r"""Put a judge's agreement with people beside that of guesses that read nothing, on the very same votes.

    Only pairs of votes that both decided are compared. Each baseline learns from people's votes in *other* clusters:

    - ``author_only``: whom people preferred more often of these two authors;
    - each column of `gaps`, such as the difference in length: whether people prefer more of it or less;
    - ``style``: all columns of `gaps` at once, by logistic regression, if there are several;
    - ``first_shown``: whether people prefer the reply that they saw first, if their votes have an ``order``.

    A baseline without an answer, such as length where both replies are as long, is a coin; a feature in which no two
    replies differ has no row.

    Parameters
    ----------
    verdicts : pandas.DataFrame
        The verdicts table. Two orders of a judge are joined before, by ``combine_orders``.
    between : tuple of str
        People, and who is compared with them. ``("human", None)`` gives the baselines alone, where no judge was asked.
    gaps : pandas.DataFrame, optional
        What is measured of the replies, a minus b: indexed by ``pair_id``, one column a feature, as
        ``feature_gaps`` gives them. A missing value is a gap of zero.
    by : sequence of str
        Columns that all votes on a pair share, such as ``"dimension"``; or ``"rater"``, of the second party.
    cluster : str
        Column of what is left out and resampled together.
    n_resamples, ci_level, rng
        As in :func:`~heart_utils.ratings.resampling.bootstrap_ci`.

    Returns
    -------
    pandas.DataFrame
        One row a group and answerer (``who``): ``agreement`` with people; ``lead``, the second party's agreement minus
        this one; both with ``_low`` and ``_high``; ``ci_level``, ``n_votes`` (pairs of votes), ``n_clusters`` and
        ``provisional``. The author-only baseline is learnt anew in each resample; the others are learnt once.

    Raises
    ------
    AgreementError
        As :func:`~heart_utils.agreement.agreement.pairwise_agreement`, or if no vote decides, or `by` names the ambiguity.

    Examples
    --------
    >>> votes = pd.DataFrame({"pair_id": list("pqrs") * 2, "dialogue_id": list("defg") * 2,
    ...     "responder_a": "human", "responder_b": "model", "rater": ["ann"] * 4 + ["llm"] * 4,
    ...     "rater_kind": ["human"] * 4 + ["model"] * 4, "verdict": list("aaab") + list("aabb")})
    >>> gaps = pd.DataFrame({"words": [3, 5, 4, -2]}, index=list("pqrs"))
    >>> found = agreement_with_baselines(votes, gaps=gaps, by=[], n_resamples=0)
    >>> dict(zip(found["who"], found["agreement"]))
    {'model': 0.75, 'author_only': 0.75, 'words': 1.0}
    """
    if "ambiguity" in by:
        raise AgreementError("by must be columns that all votes on a pair share, or 'rater'; ambiguity differs by vote.")
    votes = read_votes(verdicts, cluster=cluster)
    pairs = pair_votes(votes, verdicts, between=between, by=by)
    counts = that_count(pairs, "exclude")
    if not counts.any():
        raise AgreementError("Nothing is decided: every pair of votes holds a tie.")
    guesses = {**_from_gaps(votes, pairs, gaps), **_from_order(votes, verdicts, pairs, party(votes, verdicts, between[0]))}
    first = pairs.sides(counts)[0]
    said = [(first * guess[pairs.unit]).sum(axis=1) for guess in guesses.values()]
    right = pairs.sum_up(np.array(said).reshape(len(guesses), len(first)).T)
    sums, names = sum_by_cluster(pairs, counts)[..., :2], author_baseline(pairs, counts, decided=True)
    weights = np.vstack([np.ones(pairs.n_clusters), draw_weights(pairs.n_clusters, n_resamples, rng)])
    total, equal = np.moveaxis(np.einsum("rc,cgk->rgk", weights, sums), -1, 0)
    others = np.concatenate([names.count_right(weights)[..., None], np.einsum("rc,cgk->rgk", weights, right)], axis=-1)
    share = np.concatenate([equal[..., None], others], axis=-1) / np.where(total > 0, total, np.nan)[..., None]
    lead = share[..., :1] - share
    lead[..., 0 if between[1] else slice(None)] = np.nan
    rows, n_clusters = [], (sums[..., 0] > 0).sum(axis=0)
    for place, who in enumerate([between[1], "author_only", *guesses]):
        measures = np.stack([share[..., place], lead[..., place]], axis=-1)
        ranges = {"agreement": (0.0, 1.0), "lead": (-1.0, 1.0)}
        row = pairs.groups.assign(who=who, **interval_columns(ranges, measures[0], measures[1:], n_clusters, ci_level))
        rows.append(row.assign(n_votes=np.rint(total[0]).astype(int), n_clusters=n_clusters))
    table = pd.concat(rows if between[1] else rows[1:], ignore_index=True)
    table = table.assign(ci_level=ci_level if n_resamples else np.nan, provisional=table["n_clusters"] < ENOUGH_CLUSTERS)
    columns = [str(name) for name in pairs.groups]
    return table.sort_values(columns, kind="stable", ignore_index=True) if columns else table


def _from_gaps(votes: Votes, pairs: VotePairs, gaps: pd.DataFrame | None) -> dict[str, Array]:
    """Guess from features, each alone and all together: how far each label is right, to shape (units, 3)."""
    if gaps is None:
        return {}
    if "pair_id" not in votes.units or not gaps.index.is_unique or not votes.units["pair_id"].isin(gaps.index).any():
        raise AgreementError("gaps must be indexed by the pair_id of the verdicts, one row a pair.")
    x = np.nan_to_num(gaps.reindex(votes.units["pair_id"]).to_numpy(float))
    varies = x.any(axis=0)  # a feature in which no two replies differ guesses nothing
    x, gaps = x[:, varies], gaps.loc[:, varies]
    columns = {str(name): np.sign(x[:, [place]]) for place, name in enumerate(gaps)}
    columns |= {"style": x} if x.shape[1] > 1 else {}
    return {name: _cross_fitted(chosen, pairs) for name, chosen in columns.items()}


def _cross_fitted(x: Array, pairs: VotePairs) -> Array:
    """Fit people's choices on gaps in all clusters but a few, and guess in these few."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GroupKFold

    x = x / np.sqrt((x**2).mean(axis=0))
    guess = np.full((len(x), 3), 0.5)
    for group in np.unique(pairs.unit_group):
        mine = np.flatnonzero((pairs.unit_group == group) & pairs.own[:, [A, B]].any(axis=1))
        folds = min(FOLDS, len(np.unique(pairs.unit_cluster[mine])))
        for kept, left in GroupKFold(folds).split(mine, groups=pairs.unit_cluster[mine]) if folds > 1 else []:
            some, wins = x[mine[kept]], pairs.own[mine[kept]][:, [A, B]]
            if not (some.any(axis=1) & wins.any(axis=1)).any():
                continue
            # A vote for a at some gap is one for b at the opposite gap, so there is no intercept, and both sides win.
            fit = LogisticRegression(fit_intercept=False).fit(
                np.vstack([some, some, -some, -some]), np.repeat([1, 0, 0, 1], len(some)), np.concatenate([*wins.T, *wins.T])
            )
            says = np.sign(x[mine[left]] @ fit.coef_[0])
            guess[mine[left]] = (1.0 + np.outer(says, [1.0, 0.0, -1.0])) / 2.0
    return guess


def _from_order(votes: Votes, table: pd.DataFrame, pairs: VotePairs, mask: np.ndarray) -> dict[str, Array]:
    """Guess from which reply was shown first: of each label, in which share of the votes that gave it this is right."""
    order = table["order"].to_numpy(object)[votes.rows[mask]] if "order" in table else np.array([None])
    shown = np.select([order == "ab", order == "ba"], [1.0, -1.0], 0.0)
    if not shown.any():
        return {}
    unit, value, cluster = votes.unit[mask], votes.value[mask], votes.cluster[mask]
    leans = shown * (1.0 - value)  # 1: the reply that was shown first won
    by_cluster = np.bincount(cluster, leans, pairs.n_clusters)
    right = (1.0 + leans * np.sign(by_cluster.sum() - by_cluster)[cluster]) / 2.0
    cell = unit * 3 + value
    n_votes = np.bincount(cell, minlength=3 * len(votes.units))
    share = np.bincount(cell, right, 3 * len(votes.units)) / np.maximum(n_votes, 1)
    return {"first_shown": share.reshape(-1, 3)}
