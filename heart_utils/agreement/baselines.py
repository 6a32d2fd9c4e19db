"""Baselines of agreement that read no text, and the ceiling set by one noisy person."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import stats

from heart_utils.agreement.agreement import A, B, VotePairs, pair_votes
from heart_utils.agreement.kappa import cluster_of_unit
from heart_utils.ratings.resampling import (
    ENOUGH_CLUSTERS,
    Rng,
    draw_weights,
    interval_columns,
    interval_of,
    ratio,
    sums_by,
)
from heart_utils.ratings.verdicts import (
    AgreementError,
    Array,
    Codes,
    Votes,
    need,
    people_only,
    rater_group,
    read_votes,
)

__all__ = ["Ceiling", "agreement_with_baselines", "estimate_ceiling"]

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
    """Compare a judge's agreement with people with that of guesses that read no text.

    Guesses learn from people's votes in *other* clusters: ``author_only`` (whom they preferred of
    these two authors), each of `gaps` (whether they prefer more of it), ``style`` (all of several,
    by logistic regression) and ``first_shown``.

    Parameters
    ----------
    verdicts
        As in :func:`~heart_utils.agreement.agreement.pairwise_agreement`, but `by` may not name the
        ambiguity.
    between : tuple of str
        People, and who is compared with them, or None for the guesses alone.
    gaps : pandas.DataFrame
        By ``pair_id`` a column a feature, a minus b, a missing value being zero.
    by, cluster, n_resamples, ci_level, rng
        As in :func:`~heart_utils.agreement.agreement.pairwise_agreement`, but `by` may not name the
        ambiguity.

    Returns
    -------
    pandas.DataFrame
        One row a group and answerer (``who``): ``agreement`` with people; ``lead``, the second
        group's agreement minus this one; both with ``_low`` and ``_high``; ``ci_level``,
        ``n_votes``, ``n_clusters``, ``provisional``.

    Raises
    ------
    AgreementError
        As :func:`~heart_utils.agreement.agreement.pairwise_agreement`, or if no vote decides.

    Examples
    --------
    >>> votes = pd.DataFrame(
    ...     {
    ...         "pair_id": list("pqpq"),
    ...         "dialogue_id": list("dede"),
    ...         "responder_a": "x",
    ...         "responder_b": "y",
    ...         "rater": ["ann", "ann", "llm", "llm"],
    ...         "rater_kind": ["human"] * 2 + ["model"] * 2,
    ...         "verdict": list("aaab"),
    ...     }
    ... )
    >>> agreement_with_baselines(votes, by=[], n_resamples=0)[
    ...     "agreement"
    ... ].tolist()  # of the model, and by author alone
    [0.5, 1.0]
    """
    if "ambiguity" in by:
        raise AgreementError(
            "by must be columns that all votes on a pair share, or 'rater'; ambiguity differs by"
            " vote."
        )
    votes = read_votes(verdicts, cluster=cluster)
    pairs = pair_votes(votes, between=between, by=by, ties="exclude")
    guesses = {
        **_from_gaps(votes, pairs, gaps),
        **_from_order(votes, pairs, rater_group(votes.rows, votes.table, between[0])),
    }
    first = pairs.sides()[0]
    n_right = [(first * guess[pairs.unit]).sum(axis=1) for guess in guesses.values()]
    right = pairs.sum_up(np.array(n_right).reshape(len(guesses), len(first)).T)
    weights = np.vstack(
        [np.ones(pairs.n_clusters), draw_weights(pairs.n_clusters, n_resamples, rng)]
    )
    sums = pairs.sums()
    total, equal = np.moveaxis(np.tensordot(weights, sums[..., :2], 1), -1, 0)
    by_names = pairs.names().count_right(weights)
    counts = np.concatenate(
        [np.stack([equal, by_names], axis=-1), np.tensordot(weights, right, 1)], axis=-1
    )
    share = counts / np.where(total > 0, total, np.nan)[..., None]
    lead = share[..., :1] - share
    lead[..., 0 if between[1] else slice(None)] = np.nan
    rows, n_clusters = [], (sums[..., 0] > 0).sum(axis=0)
    for number, who in enumerate([between[1], "author_only", *guesses]):
        measures = np.stack([share[..., number], lead[..., number]], axis=-1)
        ranges = {"agreement": (0.0, 1.0), "lead": (-1.0, 1.0)}
        row = pairs.groups.assign(
            who=who, **interval_columns(ranges, measures[0], measures[1:], n_clusters, ci_level)
        )
        rows.append(row.assign(n_votes=np.rint(total[0]).astype(int), n_clusters=n_clusters))
    table = pd.concat(rows if between[1] else rows[1:], ignore_index=True)
    table = table.assign(
        ci_level=ci_level if n_resamples else np.nan,
        provisional=table["n_clusters"] < ENOUGH_CLUSTERS,
    )
    return table.sort_values(list(by), kind="stable", ignore_index=True) if by else table


def _from_gaps(votes: Votes, pairs: VotePairs, gaps: pd.DataFrame | None) -> dict[str, Array]:
    """Guess from features, each alone and all together; shape (units, 3).

    The values are how far each label is right.
    """
    if gaps is None:
        return {}
    if (
        "pair_id" not in votes.units
        or not gaps.index.is_unique
        or not votes.units["pair_id"].isin(gaps.index).any()
    ):
        raise AgreementError("gaps must be indexed by the pair_id of the verdicts, one row a pair.")
    x = np.nan_to_num(gaps.reindex(votes.units["pair_id"]).to_numpy(float))
    varies = x.any(axis=0)  # a feature in which no two replies differ guesses nothing
    x, gaps = x[:, varies], gaps.loc[:, varies]
    columns = {str(name): np.sign(x[:, [number]]) for number, name in enumerate(gaps)}
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
        for kept, left in (
            GroupKFold(folds).split(mine, groups=pairs.unit_cluster[mine]) if folds > 1 else []
        ):
            some, wins = x[mine[kept]], pairs.own[mine[kept]][:, [A, B]]
            if not (some.any(axis=1) & wins.any(axis=1)).any():
                continue
            # A vote for a at some gap is one for b at the opposite gap, so there is no intercept,
            # and both sides win.
            model = LogisticRegression(fit_intercept=False).fit(
                np.vstack([some, some, -some, -some]),
                np.repeat([1, 0, 0, 1], len(some)),
                np.concatenate([*wins.T, *wins.T]),
            )
            says = np.sign(x[mine[left]] @ model.coef_[0])
            guess[mine[left]] = (1.0 + np.outer(says, [1.0, 0.0, -1.0])) / 2.0
    return guess


def _from_order(votes: Votes, pairs: VotePairs, mask: np.ndarray) -> dict[str, Array]:
    """Guess from which reply came first: compute how often each label is then right."""
    table = votes.table
    order = (
        table["order"].to_numpy(object)[votes.rows[mask]] if "order" in table else np.array([None])
    )
    first_shown = np.select([order == "ab", order == "ba"], [1.0, -1.0], 0.0)
    if not first_shown.any():
        return {}
    cells, cluster = (votes.unit[mask], votes.value[mask]), votes.cluster[mask]
    leans = first_shown * (1.0 - cells[1])  # 1: the reply that was shown first won
    by_cluster = np.bincount(cluster, leans, pairs.n_clusters)
    right = (1.0 + leans * np.sign(by_cluster.sum() - by_cluster)[cluster]) / 2.0
    lean_sums, n_votes = (sums_by(cells, values, len(votes.units), 3) for values in (right, 1.0))
    return {"first_shown": ratio(lean_sums, n_votes, 0.0)}


GRID = np.linspace(0.5, 1.0, 41)
N_STEPS = 500
"""EM steps from a flat start. Stopping there smooths: more steps change the mean little and its
spread for the worse."""

LEAST_VOTES = 3
ENOUGH_VOTES = 5


@dataclass(frozen=True)
class Ceiling:
    """How often the best possible judge would agree with one person, where neither calls a tie."""

    agreement: float  #: of two people, the mean over pairs of replies
    estimate: float  #: the ceiling, from how the votes on a pair split
    ci_low: float
    ci_high: float
    #: half of the pairs have five votes or more; else the ends are those of the bounds, the
    #: estimate
    #: a guess
    decides: bool
    ci_level: float
    n_pairs: int  #: pairs of replies with three decided votes or more
    n_clusters: int
    provisional: bool


def estimate_ceiling(
    verdicts: pd.DataFrame, *, n_resamples: int = 1000, ci_level: float = 0.95, rng: Rng = None
) -> Ceiling:
    r"""Estimate how often the best possible judge would agree with one person.

    Each pair of replies has the same weight.

    If a share p of people prefers a, it agrees with probability :math:`m = \max(p, 1-p)`; the mean
    of m, its distribution fitted to how votes split, is the ceiling. Agreement A of two people
    bounds it by A and :math:`(1 + \sqrt{2A - 1}) / 2`.

    Parameters
    ----------
    verdicts : pandas.DataFrame
        Of which people's decided verdicts count.
    n_resamples, ci_level, rng
        As in :func:`~heart_utils.ratings.resampling.bootstrap_ci`.

    Returns
    -------
    Ceiling

    Raises
    ------
    AgreementError
        If no pair has three decided votes by different people.

    Examples
    --------
    >>> votes = pd.DataFrame(
    ...     {
    ...         "pair_id": list("ppppqqqq"),
    ...         "dialogue_id": list("ddddeeee"),
    ...         "rater": list("wxyz") * 2,
    ...     }
    ... )
    >>> round(
    ...     estimate_ceiling(
    ...         votes.assign(rater_kind="human", verdict=list("aaaaaabb")), n_resamples=0
    ...     ).agreement,
    ...     3,
    ... )
    0.667
    """
    votes = read_votes(
        people_only(need(verdicts, ["verdict"], "The ceiling is that of verdicts, not of scores."))
    )
    n_units = len(votes.units)
    for_a = np.bincount(votes.unit[votes.value == 0], minlength=n_units)
    decided = for_a + np.bincount(votes.unit[votes.value == 2], minlength=n_units)
    kept = decided >= LEAST_VOTES
    if not kept.any():
        raise AgreementError(
            f"No pair has {LEAST_VOTES} decided votes by people (the most is {decided.max()}). "
            "With fewer, only bounds can be had, from how often two people agree."
        )
    present, where = np.unique(cluster_of_unit(votes)[kept], return_inverse=True)
    split = np.column_stack([decided, np.maximum(for_a, decided - for_a)])[kept]
    kinds, number = np.unique(split, axis=0, return_inverse=True)
    sums, (n, most) = sums_by((where, number.ravel()), 1.0, len(present), len(kinds)), kinds.T
    # of two of its votes
    agree = (most * (most - 1) + (n - most) * (n - most - 1)) / (n * (n - 1.0))
    weights = np.vstack([np.ones((1, len(present))), draw_weights(len(present), n_resamples, rng)])
    drawn = weights @ sums
    agreement = drawn @ agree / drawn.sum(axis=1)
    low, high = interval_of(
        float(agreement[0]), agreement[1:], len(present), ci_level, least=0.0, most=1.0
    )
    decides = bool((decided[kept] >= ENOUGH_VOTES).mean() >= 0.5)
    some = slice(None) if decides else slice(1)  # the ends of the bounds need no resampled mixture
    ceiling = np.clip(
        _mean_of_mixture(drawn[some], kinds), agreement[some], highest_ceiling(agreement[some])
    )
    ends = interval_of(float(ceiling[0]), ceiling[1:], len(present), ci_level, most=1.0)
    if not decides:
        ends = max(low, 0.5), float(highest_ceiling(np.array(high)))
    results = (
        float(agreement[0]),
        float(ceiling[0]),
        *ends,
        decides,
        ci_level,
        int(kept.sum()),
        len(present),
    )
    return Ceiling(*results, provisional=len(present) < ENOUGH_CLUSTERS)


def highest_ceiling(agreement: Array) -> Array:
    """Compute the ceiling if all pairs are equally hard."""
    return np.asarray((1.0 + np.sqrt(np.maximum(2.0 * agreement - 1.0, 0.0))) / 2.0)


def _mean_of_mixture(counts: Array, kinds: Codes) -> Array:
    """Fit the distribution of m to counts of splits, one row a resample, and give its mean."""
    n, most = kinds[:, :1], kinds[:, 1:]
    # A split of k to n - k comes about both ways round; only ratios within a split matter here.
    chance = stats.binom.pmf(most, n, GRID) + stats.binom.pmf(n - most, n, GRID)
    shares = counts / counts.sum(axis=1, keepdims=True)
    mixture = np.full((len(counts), len(GRID)), 1.0 / len(GRID))
    for _ in range(N_STEPS):
        mixture *= (shares / (mixture @ chance.T)) @ chance
    return np.asarray(mixture @ GRID)
