"""Judges beside people: guesses that read nothing, ceilings, panels, and who may replace whom."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy import stats

from heart_utils.agreement.agreement import (
    A,
    B,
    VotePairs,
    answer_sheet,
    cluster_of_unit,
    number_groups,
    one_dimension,
    pair_votes,
)
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
    unit_values,
)
from heart_utils.settings import extra

__all__ = [
    "agreement_with_baselines",
    "alternative_annotator_test",
    "effective_judges",
    "estimate_ceiling",
    "rank_agreement",
]

FOLDS = 10
"""Clusters are left out in at most so many parts."""


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

    Guesses learn from people's votes in *other* clusters: ``author_only``, each of `gaps`,
    ``style`` (all `gaps`, by logistic regression) and ``first_shown``.

    Parameters
    ----------
    verdicts
        As in :func:`~heart_utils.agreement.agreement.pairwise_agreement`.
    between
        People, and who is compared with them (None: the guesses alone).
    gaps
        By ``pair_id`` a column a feature, a minus b; missing values are zero.
    by, cluster, n_resamples, ci_level, rng
        As in :func:`~heart_utils.agreement.agreement.pairwise_agreement`, without ``"ambiguity"``.

    Returns
    -------
    pandas.DataFrame
        One row a group and answerer (``who``): ``agreement`` with people; ``lead`` of the second
        group over it; both with ``_low`` and ``_high``; ``ci_level``, ``n_votes``, ``n_clusters``,
        ``provisional``.

    Raises
    ------
    AgreementError
        As :func:`~heart_utils.agreement.agreement.pairwise_agreement`, or if no vote decides.

    Examples
    --------
    >>> votes = pd.DataFrame({"pair_id": list("pqpq"), "rater": ["ann", "ann", "llm", "llm"]})
    >>> votes = votes.assign(rater_kind=np.repeat(["human", "model"], 2), verdict=list("aaab"))
    >>> votes = votes.assign(responder_a="x", responder_b="y", dialogue_id=votes["pair_id"])
    >>> agreement_with_baselines(votes, by=[], n_resamples=0)["agreement"].tolist()
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
    alone = np.stack([equal, pairs.names().count_right(weights)], axis=-1)
    counts = np.concatenate([alone, np.tensordot(weights, right, 1)], axis=-1)
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
    with extra("stats"):
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
"""EM steps from a flat start, where stopping smooths."""

LEAST_VOTES = 3
ENOUGH_VOTES = 5


def estimate_ceiling(
    verdicts: pd.DataFrame, *, n_resamples: int = 1000, ci_level: float = 0.95, rng: Rng = None
) -> pd.DataFrame:
    r"""Estimate how often the best possible judge would agree with one person.

    It is the mean of :math:`m = \max(p, 1-p)` over pairs, p the share of people who prefer a,
    fitted to how votes split. Agreement A of two people bounds it by A and :math:`(1 + \sqrt{2A -
    1}) / 2`.

    Parameters
    ----------
    verdicts
        Of which people's decided verdicts count.
    n_resamples, ci_level, rng
        As in :func:`~heart_utils.ratings.resampling.bootstrap_ci`.

    Returns
    -------
    pandas.DataFrame
        One row, ties apart: ``agreement`` of two people, the mean over pairs of replies;
        ``estimate`` of the ceiling with its interval; ``decides``: half of the pairs have five
        votes or more (else the ends are those of the bounds); ``ci_level``, ``n_pairs`` (with three
        decided votes or more), ``n_clusters``, ``provisional``.

    Raises
    ------
    AgreementError
        If no pair has three decided votes of different people.

    Examples
    --------
    >>> votes = pd.DataFrame({"pair_id": list("ppppqqqq"), "verdict": list("aaaaaabb")})
    >>> votes = votes.assign(dialogue_id=votes["pair_id"], rater_kind="human", rater=[*"wxyzwxyz"])
    >>> estimate_ceiling(votes, n_resamples=0)["agreement"].round(3).tolist()
    [0.667]
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
    row = {
        "agreement": agreement[0],
        "estimate": ceiling[0],
        "ci_low": ends[0],
        "ci_high": ends[1],
        "decides": decides,
        "ci_level": ci_level,
        "n_pairs": kept.sum(),
        "n_clusters": len(present),
        "provisional": len(present) < ENOUGH_CLUSTERS,
    }
    return pd.DataFrame([row])


def highest_ceiling(agreement: Array) -> Array:
    """Compute the ceiling if all pairs are equally hard."""
    return np.asarray((1.0 + np.sqrt(np.maximum(2.0 * agreement - 1.0, 0.0))) / 2.0)


def _mean_of_mixture(counts: Array, kinds: Codes) -> Array:
    n, most = kinds[:, :1], kinds[:, 1:]
    # A split of k to n - k comes about both ways round; only ratios within a split matter here.
    chance = stats.binom.pmf(most, n, GRID) + stats.binom.pmf(n - most, n, GRID)
    shares = counts / counts.sum(axis=1, keepdims=True)
    mixture = np.full((len(counts), len(GRID)), 1.0 / len(GRID))
    for _ in range(N_STEPS):
        mixture *= (shares / (mixture @ chance.T)) @ chance
    return np.asarray(mixture @ GRID)


LEAST_ITEMS = 30
LEAST_RATERS = 3
FALSE_DISCOVERIES = 0.05
RELIABILITIES = (0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


def alternative_annotator_test(table: pd.DataFrame, judge: str, *, epsilon: float) -> pd.DataFrame:
    """Test whether a judge may stand in for one of several people.

    Each person is left out in turn: is the judge as often the closer one to the others, less
    epsilon, and do its answers rise with theirs? False discoveries are held to 0.05. Source:
    Calderon et al. (2025), https://arxiv.org/abs/2501.10970; the second condition is ours.

    Parameters
    ----------
    table
        Verdicts or scores with ``rater_kind``.
    judge
        Its name.
    epsilon
        What a cheap judge is forgiven: 0.2 against experts, 0.1 against a crowd.

    Returns
    -------
    pandas.DataFrame
        One row a person with 30 items or more: ``rater``, ``n_items``, ``judge_wins``,
        ``rater_wins`` (shares), ``p_value``, ``rejected``: the judge is no worse. It passes if half
        or more are rejected.

    Raises
    ------
    AgreementError
        If fewer than three people share 30 items with the judge and with others.

    Examples
    --------
    >>> scores = pd.DataFrame({"reply_id": [*range(40)] * 4, "rater": np.repeat(list("xyzj"), 40)})
    >>> scores["score"] = scores["reply_id"] + np.repeat([0, 2, -2, 0], 40)
    >>> scores["rater_kind"] = ["human"] * 120 + ["model"] * 40
    >>> alternative_annotator_test(scores, "j", epsilon=0.2)["rejected"].tolist()
    [True, True, True]
    """
    if not 0.0 <= epsilon <= 1.0:
        raise AgreementError(f"epsilon must lie between 0 and 1; got {epsilon}.")
    votes = read_votes(table, cluster=None)
    if judge not in votes.raters:
        raise AgreementError(
            f"{judge!r} gave no answer that counts. Raters are"
            f" {', '.join(map(str, votes.raters[:8]))}."
        )
    people = [
        name
        for name in people_only(table)["rater"].unique()
        if name in votes.raters and name != judge
    ]
    sheet = pd.DataFrame(answer_sheet(votes), columns=votes.raters)
    rows = []
    for name in people:
        others = sheet[[other for other in people if other != name]]
        usable = sheet[[name, judge]].notna().all(axis=1) & others.notna().any(axis=1)
        if usable.sum() < LEAST_ITEMS:
            continue
        near = [
            _closeness(sheet[who][usable].to_numpy(), others[usable].to_numpy(), votes.kind)
            for who in (judge, name)
        ]
        judge_wins, rater_wins = near[0] >= near[1] - 1e-12, near[1] >= near[0] - 1e-12
        differences = rater_wins.astype(float) - judge_wins
        if differences.std() == 0.0:  # all items alike: no t, and no doubt
            p_value = float(differences[0] >= epsilon)
        else:
            p_value = float(stats.ttest_1samp(differences, epsilon, alternative="less").pvalue)
        means = others[usable].mean(axis=1).to_numpy()
        p_value = max(p_value, _unrelated(sheet[judge][usable].to_numpy(), means))
        rows.append(
            (name, int(usable.sum()), float(judge_wins.mean()), float(rater_wins.mean()), p_value)
        )
    if len(rows) < LEAST_RATERS:
        raise AgreementError(
            f"The test needs {LEAST_RATERS} people or more with {LEAST_ITEMS} items or more that"
            f" {judge} and another person answered too; there are {len(rows)} of {len(people)}."
        )
    results = pd.DataFrame(
        rows, columns=["rater", "n_items", "judge_wins", "rater_wins", "p_value"]
    )
    return results.assign(
        rejected=stats.false_discovery_control(results["p_value"], method="by") <= FALSE_DISCOVERIES
    )


def effective_judges(
    table: pd.DataFrame, *, n_resamples: int = 1000, ci_level: float = 0.95, rng: Rng = None
) -> pd.DataFrame:
    r"""Estimate how many judges with independent errors a panel of k is equivalent to.

    It is :math:`k / (1 + (k - 1) \rho)`, with :math:`\rho` the mean covariance of two judges'
    errors, against *different* people, over their mean variance. If one person alone answers,
    :math:`(1 - R) var(H)` is taken off for a reliability R.

    Parameters
    ----------
    table
        Scores or verdicts on one dimension.
    n_resamples, ci_level, rng
        As in :func:`~heart_utils.ratings.resampling.bootstrap_ci`.

    Returns
    -------
    pandas.DataFrame
        ``rho`` and ``n_eff`` with ``_low`` and ``_high``, ``ci_level``, ``n_units``,
        ``n_clusters``, ``provisional``: one row, or one for each ``reliability`` assumed.

    Raises
    ------
    AgreementError
        If there are fewer than two judges, or no unit that all and a person answered.

    Examples
    --------
    >>> truth, bad, noise = np.random.default_rng(1).normal(size=(3, 400))
    >>> values = np.r_[truth + noise, truth - noise, [*truth + bad] * 2]
    >>> scores = pd.DataFrame({"score": values, "rater": np.repeat([*"hijk"], 400)})
    >>> scores["rater_kind"] = np.repeat(["human", "model"], 800)
    >>> scores["dialogue_id"] = scores["reply_id"] = [*range(400)] * 4
    >>> effective_judges(scores, n_resamples=0)["rho"].round(1).tolist()
    [1.0]
    """
    need(table, ["rater_kind"], "So nobody is known to be a judge.")
    votes = read_votes(table)
    by_judge = votes.raters.isin(table.loc[table["rater_kind"] == "model", "rater"])
    if by_judge.sum() < 2:
        raise AgreementError(
            "A panel needs two judges or more; there is"
            f" {', '.join(votes.raters[by_judge]) or 'none'}."
        )
    one_dimension(votes)
    sheet = answer_sheet(votes)
    by_judges = sheet[:, by_judge]
    by_people = sheet[:, votes.raters.isin(people_only(table)["rater"])]
    complete, n_people = ~np.isnan(by_judges).any(axis=1), (~np.isnan(by_people)).sum(axis=1)
    single = not (complete & (n_people >= 2)).any()
    used = complete & (n_people >= (1 if single else 2))
    if not used.any():
        raise AgreementError(
            f"No unit was answered by all judges ({', '.join(votes.raters[by_judge])}) and by a"
            " person."
        )
    present, where = np.unique(cluster_of_unit(votes)[used], return_inverse=True)
    people = by_people[used]
    if votes.kind == "score" and not np.isnan(people).any():
        # Crossed over the same few people, their levels would count as errors that judges make
        # apart.
        people = people - people.mean(axis=0) + people.mean()
    sums = sums_by(where, _error_columns(by_judges[used], people, single=single), len(present))
    weights = np.vstack([np.ones((1, len(present))), draw_weights(len(present), n_resamples, rng)])
    drawn, rows = weights @ sums, []
    for reliability in RELIABILITIES if single else (float("nan"),):
        rho = _correlation(drawn, reliability, centred=votes.kind == "score")
        # The interval is of rho, and is carried over: n_eff has no bound above.
        low, high = interval_of(float(rho[0]), rho[1:], len(present), ci_level, most=1.0)
        with np.errstate(divide="ignore"):
            n_eff = by_judges.shape[1] / np.maximum(
                1.0 + (by_judges.shape[1] - 1.0) * np.array([rho[0], high, low]), 0.0
            )
        rows.append((reliability, rho[0], low, high, *n_eff, ci_level))
    columns = [
        "reliability",
        "rho",
        "rho_low",
        "rho_high",
        "n_eff",
        "n_eff_low",
        "n_eff_high",
        "ci_level",
    ]
    return pd.DataFrame(rows, columns=columns).assign(
        n_units=int(used.sum()),
        n_clusters=len(present),
        provisional=len(present) < ENOUGH_CLUSTERS,
    )


def _unrelated(judge: Array, people: Array) -> float:
    if np.ptp(judge) == 0.0 or np.ptp(people) == 0.0:
        return 1.0
    return float(stats.pearsonr(judge, people, alternative="greater").pvalue)


def _closeness(one: Array, others: Array, kind: str) -> Array:
    if kind == "verdict":
        return np.asarray((others == one[:, None]).sum(axis=1) / (~np.isnan(others)).sum(axis=1))
    return np.asarray(-np.sqrt(np.nanmean((others - one[:, None]) ** 2, axis=1)))


def _error_columns(by_judges: Array, people: Array, *, single: bool) -> Array:
    n_people, n_judges = (~np.isnan(people)).sum(axis=1), by_judges.shape[1]
    total, squares = np.nansum(people, axis=1), np.nansum(people**2, axis=1)
    mean, judges = total / n_people, by_judges.sum(axis=1)
    # The mean of H1 H2 over all ordered pairs of different people; with one person, of H squared.
    mean_square = (
        squares / n_people if single else (total**2 - squares) / (n_people * (n_people - 1.0))
    )
    alone = (by_judges**2).sum(axis=1) - 2.0 * judges * mean + n_judges * mean_square
    together = judges**2 - 2.0 * n_judges * judges * mean + n_judges**2 * mean_square
    return np.column_stack(
        [
            np.ones(len(by_judges)),
            alone,
            together,
            squares / n_people,
            mean,
            by_judges - mean[:, None],
        ]
    )


def _correlation(sums: Array, reliability: float, *, centred: bool) -> Array:
    means = sums[:, 1:] / sums[:, :1]
    alone, together, squares, mean = means[:, :4].T
    errors, n_judges = means[:, 4:], means.shape[1] - 4
    if centred:
        alone, together = alone - (errors**2).sum(axis=1), together - errors.sum(axis=1) ** 2
        squares = squares - mean**2
    noise = 0.0 if np.isnan(reliability) else (1.0 - reliability) * squares
    variance = alone / n_judges - noise
    return ratio(
        (together - alone) / (n_judges * (n_judges - 1.0)) - noise,
        np.where(variance > 1e-12, variance, 0.0),
    )


def rank_agreement(
    scores: pd.DataFrame,
    *,
    between: tuple[str, str] = ("human", "model"),
    cluster: str = "dialogue_id",
    n_resamples: int = 1000,
    ci_level: float = 0.95,
    rng: Rng = None,
) -> pd.DataFrame:
    """Compare how two rater groups rank the replies of one history (Kendall's tau-b).

    Tau is averaged over histories in which both raters told some replies apart. Source: Kendall
    (1945), https://doi.org/10.1093/biomet/33.3.239

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
        If the groups share no history.

    Examples
    --------
    >>> scores = pd.DataFrame({"reply_id": list("rst") * 2, "score": [1, 2, 3, 2, 2, 4]})
    >>> scores = scores.assign(rater=np.repeat(["ann", "llm"], 3), dimension="empathy")
    >>> scores["history_id"] = scores["dialogue_id"] = "h"
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


def _taus(sheet: Array, conversation: Codes, first: int, second: int) -> Array:
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
