"""Judges in place of people: size of a panel, the annotator test, and abstention."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy import special, stats

from heart_utils.agreement.kappa import answer_sheet, cluster_of_unit, one_dimension
from heart_utils.ratings.resampling import (
    ENOUGH_CLUSTERS,
    Rng,
    draw_weights,
    interval_of,
    ratio,
    sums_by,
)
from heart_utils.ratings.verdicts import AgreementError, Array, need, people_only, read_votes

__all__ = ["alternative_annotator_test", "calibrate_abstention", "effective_judges"]

LEAST_ITEMS = 30
LEAST_RATERS = 3
FALSE_DISCOVERIES = 0.05
RELIABILITIES = (0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


def alternative_annotator_test(table: pd.DataFrame, judge: str, *, epsilon: float) -> pd.DataFrame:
    """Test whether a judge may stand in for one of several people.

    Each person is left out in turn: on each item, is the judge (:math:`W^f`) or this person
    (:math:`W^h`) at least as close to the others? The judge is no worse if the mean of
    :math:`W^h - W^f` is below epsilon by a t test, and if its answers rise with the mean of the
    others' (Pearson's correlation, one-sided), at a false discovery rate of 5 % over people. The
    second is ours: where people agree by chance, or always say the same, no judge is far from them.
    A judge that knows the authors' names alone may pass. Source: Calderon et al. (2025),
    https://arxiv.org/abs/2501.10970

    Parameters
    ----------
    table
        Verdicts or scores with ``rater_kind``.
    judge
        The judge's name.
    epsilon
        What a judge is forgiven for being cheap, from 0 to 1: beforehand 0.2 against experts, 0.1
        against a crowd.

    Returns
    -------
    pandas.DataFrame
        One row a person with 30 items or more: ``rater``, ``n_items``, ``judge_wins``,
        ``rater_wins`` (shares of items), ``p_value``, ``rejected``: the judge is no worse. It
        passes if half of the people or more are rejected.

    Raises
    ------
    AgreementError
        If fewer than three people share 30 items with the judge and with others.

    Examples
    --------
    >>> scores = pd.DataFrame(
    ...     {"reply_id": np.tile(np.arange(40), 4), "rater": np.repeat(["x", "y", "z", "llm"], 40)}
    ... )
    >>> scores["score"] = scores["reply_id"] + np.repeat([0, 2, -2, 0], 40)
    >>> scores["rater_kind"] = np.where(scores["rater"] == "llm", "model", "human")
    >>> alternative_annotator_test(scores, "llm", epsilon=0.2)["rejected"].tolist()
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

    The number is :math:`k / (1 + (k - 1) \rho)`.

    Here :math:`\rho` is the mean covariance of two judges' errors over their mean variance. Errors
    are taken against *different* people, :math:`cov(J_1 - H_1, J_2 - H_2)`; if one person alone
    answers, :math:`(1 - R) var(H)` is taken off for a reliability R.

    Parameters
    ----------
    table : pandas.DataFrame
        Scores or verdicts on one dimension.
    n_resamples, ci_level, rng
        As in :func:`~heart_utils.ratings.resampling.bootstrap_ci`.

    Returns
    -------
    pandas.DataFrame
        ``rho`` and ``n_eff`` with ``_low`` and ``_high``, ``ci_level``, ``n_units``,
        ``n_clusters``, ``provisional``: one row, or with one person a unit one for each
        ``reliability`` assumed. A negative rho gives more than k judges.

    Raises
    ------
    AgreementError
        If there are fewer than two judges, no person, or no unit that all judges and a person
        answered.

    Examples
    --------
    >>> truth, bad, noise = np.random.default_rng(1).normal(size=(3, 400))
    >>> scores = pd.DataFrame(
    ...     {
    ...         "reply_id": [*range(400)] * 4,
    ...         "score": np.r_[truth + noise, truth - noise, [*truth + bad] * 2],
    ...     }
    ... )
    >>> scores = scores.assign(
    ...     rater=np.repeat(["ann", "bob", "j1", "j2"], 400),
    ...     rater_kind=np.repeat(["human", "model"], 800),
    ... )
    >>> effective_judges(scores.assign(dialogue_id=scores["reply_id"]), n_resamples=0)["rho"].round(
    ...     1
    ... ).tolist()  # err as one
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
    by_judges, by_people = (
        sheet[:, by_judge],
        sheet[:, votes.raters.isin(people_only(table)["rater"])],
    )
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
    drawn, rows = (
        np.vstack([np.ones((1, len(present))), draw_weights(len(present), n_resamples, rng)])
        @ sums,
        [],
    )
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
    results = pd.DataFrame(rows, columns=columns).assign(
        n_units=int(used.sum()), n_clusters=len(present)
    )
    return results.assign(provisional=len(present) < ENOUGH_CLUSTERS)


def _unrelated(judge: Array, people: Array) -> float:
    """Test whether a judge's answers rise with people's; 1 where either never varies."""
    if np.ptp(judge) == 0.0 or np.ptp(people) == 0.0:
        return 1.0
    return float(stats.pearsonr(judge, people, alternative="greater").pvalue)


def _closeness(one: Array, others: Array, kind: str) -> Array:
    """Measure for each item how close an answer is to those of other people."""
    if kind == "verdict":
        return np.asarray((others == one[:, None]).sum(axis=1) / (~np.isnan(others)).sum(axis=1))
    return np.asarray(-np.sqrt(np.nanmean((others - one[:, None]) ** 2, axis=1)))


def _error_columns(by_judges: Array, people: Array, *, single: bool) -> Array:
    """Compute for each unit the terms from which covariances of errors are summed.

    The columns are squares, the squared sum, people's own, and each judge's error.
    """
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
    """Turn sums into the mean covariance of two judges' errors over their mean variance."""
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


COVERAGES = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
"""Shares of verdicts to accept, each the threshold of a test; equal confidences are accepted
together."""

EXCEEDED = 0.05
"""Probability that the risk is exceeded all the same."""


def calibrate_abstention(
    wrong: ArrayLike, confidence: ArrayLike, cluster: ArrayLike, *, risk: float = 0.1
) -> pd.DataFrame:
    """Choose from people's votes the confidence from which a judge's verdicts are accepted.

    Thresholds that accept 30, 40, ... 100 % of verdicts are tested in turn until one fails: the
    upper 95 % bound on the share that people contradict exceeds `risk`. It is the higher of two,
    both Clopper and Pearson's: one at the effective number of votes; and, since a judge may be
    wrong on whole questions, one on the share of clusters that are mostly wrong, to which the error
    of the others is added. At a risk of 10 % it takes 29 clusters of even size to accept anything,
    and 56 if 5 % of votes are wrong here and there. Source: Angelopoulos et al. (2021),
    https://arxiv.org/abs/2110.01052; Jung et al. (2024), https://arxiv.org/abs/2407.18370

    Parameters
    ----------
    wrong : array_like of 0 and 1
        One entry a vote of a person: 1 if the judge's verdict differs, else 0.
    confidence : array_like of float
        How sure the judge says it is, one entry a vote, such as ``abs(2 * p_a - 1)``.
    cluster : array_like
        What was sampled, one entry a vote, such as the question.
    risk : float
        The highest share of wrong verdicts, such as 0.1.

    Returns
    -------
    pandas.DataFrame
        One row a threshold, the highest first: ``threshold``, ``coverage``, ``risk``, ``risk_high``
        (the bound), ``n_votes``, ``n_clusters``, ``passed``. The lowest that passed is the one to
        use; if none did, the judge always abstains.

    Raises
    ------
    AgreementError
        If the lengths differ, `wrong` is not 0 or 1, a confidence is missing or there are fewer
        than two clusters.

    Examples
    --------
    >>> wrong, question = [0] * 90 + [1] * 10 + [0, 1] * 50, [*range(40)] * 5
    >>> calibrate_abstention(wrong, [0.9] * 100 + [0.1] * 100, question, risk=0.2)[
    ...     "passed"
    ... ].tolist()
    [True, False]
    """
    wrong, confidence = np.asarray(wrong, float), np.asarray(confidence, float)
    where, clusters = pd.factorize(np.asarray(cluster))
    same = len(wrong) == len(confidence) == len(where)
    if (
        not same
        or len(clusters) < 2
        or (where < 0).any()
        or np.isnan(confidence).any()
        or not np.isin(wrong, (0, 1)).all()
    ):
        got = (
            f"{len(wrong)} errors, {len(confidence)} confidences, {len(where)} clusters,"
            f" {len(clusters)} of them different"
        )
        raise AgreementError(
            "wrong must be 0 or 1, confidence and cluster complete, with two clusters or more; got"
            f" {got}."
        )
    positions = np.clip(
        np.ceil(np.array(COVERAGES) * len(wrong)).astype(int) - 1, 0, len(wrong) - 1
    )
    rows = []
    for threshold in dict.fromkeys(np.sort(confidence)[::-1][positions]):
        taken = confidence >= threshold
        n = np.bincount(where[taken], minlength=len(clusters)).astype(float)
        n_wrong = np.bincount(where[taken], wrong[taken], len(clusters)).astype(float)
        share = n_wrong.sum() / n.sum()
        measures = {
            "threshold": threshold,
            "coverage": taken.mean(),
            "risk": share,
            "risk_high": risk_bound(n_wrong, n, EXCEEDED),
        }
        rows.append({**measures, "n_votes": int(n.sum()), "n_clusters": int((n > 0).sum())})
    table = pd.DataFrame(rows)
    return table.assign(passed=(table["risk_high"] <= risk).cummin())


def risk_bound(wrong: Array, n: Array, error: float) -> float:
    """Bound a share from above, from its counts by cluster."""
    wrong, n = wrong[n > 0], n[n > 0]
    share, votes, clusters = float(wrong.sum() / n.sum()), float(n.sum()), len(n)
    if clusters < 2 or share == 1.0:
        return 1.0
    spread = ((wrong - share * n) ** 2).sum() * clusters / (clusters - 1.0)
    inflation = max(spread / (votes * share * (1.0 - share)), 1.0) if share else 1.0
    few = special.stdtrit(votes - 1.0, 1.0 - error) / special.stdtrit(clusters - 1.0, 1.0 - error)
    worth = votes / inflation * few**2
    # What stats.beta.ppf gives, in a tenth of the time.
    by_votes = float(special.betaincinv(worth * share + 1.0, worth * (1.0 - share), 1.0 - error))
    # Errors that come by whole questions show no spread until one is met, and votes that err here
    # and there hide them. So questions that are mostly wrong are counted as questions (of even
    # size), and what the others err is added.
    even_clusters = votes**2 / (n**2).sum()
    mostly = 2.0 * wrong > n
    n_mostly = even_clusters * n[mostly].sum() / votes
    if mostly.all():
        return 1.0
    elsewhere = wrong[~mostly].sum() / n[~mostly].sum()
    by_clusters = special.betaincinv(n_mostly + 1.0, even_clusters - n_mostly, 1.0 - error)
    return max(by_votes, float(by_clusters + (1.0 - by_clusters) * elsewhere))
