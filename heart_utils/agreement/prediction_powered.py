"""Ratings from few verdicts of people and many of a judge (prediction-powered inference)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from math import ceil

import numpy as np
import pandas as pd
from scipy import stats
from scipy.optimize import nnls

from heart_utils.ratings.bradley_terry import (
    BradleyTerry,
    ConvergenceError,
    Truths,
    centring,
    count_wins,
    covariance,
    effective_clusters,
    find_separated,
    find_unvaried,
    fit_strengths,
    fit_weights,
    pairs_of,
    sums_of_scores,
    sums_of_sides,
)
from heart_utils.ratings.ratings import Differences
from heart_utils.ratings.resampling import check_level, ratio, refuse_few_raters, sums_by
from heart_utils.ratings.verdicts import (
    AgreementError,
    Array,
    Entries,
    rater_group,
    read_verdicts,
    refuse_ties_alone,
)

__all__ = ["PoweredRatings", "prediction_powered_ratings"]

LEAST_LABELLED = 5
LEAST_A_PAIR = 2.0  # labelled dialogues, on average; fewer were not tried
NEGLIGIBLE = 1e-9  # of a verdict
MOST_JUDGES = 8  # with a weight each
# the correction for leverage: with the jackknife's 97 to 99 % of the intervals from 30 votes hold
UNBIASED = 0.5
Fitted = tuple[Array, Array]
"""Strengths and their covariance."""

WITH_JUDGE, BY_PEOPLE = (
    ("strength", "ci_low", "ci_high"),
    ("people_strength", "people_low", "people_high"),
)


@dataclass(frozen=True)
class PoweredRatings:
    """Strengths from people's verdicts, sharpened by a judge's."""

    #: one row a responder, the strongest first; ``people_...`` is from people alone, ``judge_...``
    #: (no interval) from the judge
    table: pd.DataFrame
    weight: float  #: how far the judge is trusted, the mean over left-out dialogues
    weights: pd.Series  #: the same by judge, where several saw the same pairs
    #: squared correlation of people's and the judge's scores of a dialogue, on the same pairs
    rho_squared: float
    most_saving: float  #: the bound of ``saving`` that this correlation sets
    saving: float  #: estimated share of the people's verdicts that the judge saves
    people_variance: float  #: of the strengths from people alone, summed over responders
    n_labelled: int  #: dialogues with people's verdicts; with the judge's
    n_dialogues: int
    #: of the strengths, and of those from people alone
    covariances: tuple[pd.DataFrame, pd.DataFrame] = field(repr=False)
    fewest: int  #: dialogues that people judged; or raters, where they vary and are fewer
    n_effective: float  #: of even information that tell as much of a difference, as in ``Ratings``

    def ranks(self, *, judge: bool = True) -> pd.DataFrame:
        """List the ranks each ``responder`` may hold, all at once."""
        names, n = self.table["responder"], self.n_labelled
        robust = self.covariances[0 if judge else 1].loc[names, names].to_numpy()
        strength = self.table["strength" if judge else "people_strength"].to_numpy()
        values, vectors = np.linalg.eigh(robust)
        root = (vectors * np.sqrt(np.maximum(values, 0.0))).T
        # have this covariance
        rows = np.concatenate([root, -root]) * np.sqrt((len(root) - 0.5) * (n - 1.0) / n)
        level = float(self.table["ci_level"].iloc[0])
        unvaried = self.table.set_index("responder").loc[names, "unvaried"].to_numpy(bool)
        known = Differences(strength, rows, n, level, self.n_effective, unvaried=unvaried)
        low, high = known.ranks()
        return pd.DataFrame({"responder": names, "rank_low": low, "rank_high": high})


def prediction_powered_ratings(
    verdicts: pd.DataFrame,
    *,
    judge: str = "model",
    dimension: str = "overall",
    cluster: str = "dialogue_id",
    rater: str | None = None,
    stands_for: str | None = None,
    weight: float | None = None,
    ci_level: float = 0.95,
) -> PoweredRatings:
    r"""Rate responders as people would, from a few human verdicts and many of a judge.

    With s the score of a dialogue (wins minus expected wins), strengths solve
    :math:`\overline{s^H}_n - \lambda (\overline{s^J}_n - \overline{s^J}_N) = 0` for n dialogues of
    people and N of the judge, so the judge's bias cancels. :math:`\lambda` is zero where the judge
    does not help. Sources: Angelopoulos et al. (2023), https://arxiv.org/abs/2311.01453; Zrnic and
    Candes (2024), https://arxiv.org/abs/2403.03208.

    Parameters
    ----------
    verdicts
        One row a verdict; the dialogues that people judged must be a random part.
    judge
        A rater, or ``"model"``: each judge by its weight where all saw the same pairs, else their
        mean.
    dimension
        A line of the rubric.
    cluster
        What was drawn.
    rater
        Column of who judged, for an interval over people like these too (20 or more).
    stands_for
        Column of one over the chance that people were asked, where chances differ.
    weight
        Fixes lambda: 0 is people alone, 1 full trust in the judge.
    ci_level
        Level of the intervals.

    Returns
    -------
    PoweredRatings
        ``table`` has one row a responder, the strongest first: ``strength`` with its interval, the
        same from people alone (``people_...``) and the judge (``judge_...``, no interval).
        ``saving`` is the share of people's verdicts that the judge saves.

    Raises
    ------
    AgreementError
        If people judged fewer than five dialogues, or two a pair on average, or the judge not all
        of these or no others.
    NotComparableError
        If comparisons do not link all responders.

    Examples
    --------
    >>> from heart_utils.simulate.study import simulate_study
    >>> rng = np.random.default_rng(1)
    >>> votes = simulate_study(rng=rng, strengths=4, n_dialogues=60, pairs="all").verdicts
    >>> labelled = votes["dialogue_id"].isin(votes["dialogue_id"].unique()[:20])
    >>> powered = prediction_powered_ratings(votes[labelled | (votes["rater_kind"] == "model")])
    >>> powered.n_labelled, powered.n_dialogues
    (20, 60)
    """
    check_level(ci_level)
    entries = read_verdicts(verdicts, dimension=dimension, cluster=cluster, rater=rater)
    refuse_ties_alone(entries, dimension)
    chances = entries.table[stands_for] if stands_for else None
    people = _of_people(entries, rater_group(entries.rows, entries.table, "human"), chances)
    mine = rater_group(entries.rows, entries.table, judge)
    judged, judges = _Judged.read(entries, mine), _judges_of(entries, mine, judge)
    cells = pd.DataFrame(
        {"dialogue": people.cluster, "pair": pairs_of(people)[0]}
    ).drop_duplicates()
    labelled = np.isin(np.arange(len(entries.clusters)), people.cluster)
    part = len(cells) / judged.n_cells
    _check(
        labelled,
        judged,
        cells,
        part if weight is None and stands_for is None else 0.0,
        entries.clusters,
        cluster,
        judge,
    )
    if rater is not None and people.rater is not None:
        refuse_few_raters(people.cluster, people.rater, (cluster, rater))
    alone = BradleyTerry.fit(people, "pairs")
    plain, bread = covariance(alone, correction=UNBIASED), alone.bread
    # How far each judge, beside each of people's verdicts and in each dialogue, is from its mean on
    # the pair.
    deviations = [one.deviation[people.cluster, people.a, people.b] for one in judges.values()]
    scores = [
        _Scores.of(alone, deviation, one)
        for deviation, one in zip(deviations, judges.values(), strict=True)
    ]
    trust = np.full((len(judges), len(labelled)), (weight or 0.0) / len(judges))
    if weight is None:
        trust = _trust(scores, labelled, bread)
    powered, robust = alone, plain
    try:
        shift = (trust[:, people.cluster] * np.array(deviations)).sum(axis=0)
        corrected = _with_judge(alone, shift)
        everywhere = _weighted([one.judge_everywhere for one in scores], trust)
        by_judge = covariance(corrected, everywhere, correction=UNBIASED)
        if trust.any() and (weight is not None or np.trace(by_judge) < np.trace(plain)):
            powered, robust = corrected, by_judge
    except ConvergenceError:  # the judge's differences put somebody beyond all wins or all losses
        if weight is not None:
            raise
    # The correlation of people's and the judges' scores, in the metric of strengths.
    shares = trust.mean(axis=1) if trust.any() else np.ones(len(judges))
    beside = _weighted([one.judge_here for one in scores], (shares / shares.sum())[:, None])
    both = [scores[0].people[labelled], beside[labelled]]
    one, other = ((some - some.mean(axis=0)) @ bread for some in both)
    rho_squared = float(ratio((one * other).sum() ** 2, (one**2).sum() * (other**2).sum()))
    if powered is alone:  # no judge helps, so their verdicts are not used
        trust = np.zeros_like(trust)
    by_dialogue = covariance(
        replace(alone, entries=replace(people, rater=None)), correction=UNBIASED
    )
    n_effective = min(effective_clusters(alone, *group) for group in people.groups())
    unvaried = find_unvaried(alone, people.groups()) & ~alone.penalised
    names = entries.responders.astype("str")
    fits = (powered.theta, robust), (alone.theta, plain)
    n, n_all = int(labelled.sum()), len(labelled)
    fewest = min(n, n if people.raters is None else len(people.raters))
    return PoweredRatings(
        table=_table(names, *fits, judged.mean, alone.penalised, unvaried, fewest, ci_level),
        weight=float(trust[:, labelled].mean(axis=1).sum()),
        weights=pd.Series(trust[:, labelled].mean(axis=1), [*judges]),
        rho_squared=rho_squared,
        most_saving=(1.0 - part) * rho_squared * float(np.trace(by_dialogue) / np.trace(plain)),
        saving=1.0 - float(np.trace(robust) / np.trace(plain)),
        people_variance=float(np.trace(plain)),
        n_labelled=n,
        n_dialogues=n_all,
        covariances=(pd.DataFrame(robust, names, names), pd.DataFrame(plain, names, names)),
        fewest=fewest,
        n_effective=n_effective,
    )


def _of_people(entries: Entries, mine: Truths, stands_for: pd.Series | None) -> Entries:
    weight = None
    if stands_for is not None:
        weight = stands_for.to_numpy(float)[entries.rows][mine]
        if not (weight > 0).all():
            raise AgreementError(
                f"{stands_for.name} of people's verdicts must be above zero: one over a chance."
            )
    kept = {
        name: getattr(entries, name)[mine]
        for name in ("a", "b", "cluster", "share", "word", "inconsistent", "rows")
    }
    if entries.rater is None or entries.raters is None:
        return replace(entries, **kept, weight=weight)
    used, rater = np.unique(entries.rater[mine], return_inverse=True)
    return replace(entries, **kept, weight=weight, rater=rater, raters=entries.raters[used])


@dataclass(frozen=True, eq=False)
class _Judged:
    """The judge's mean verdict on each pair by dialogue, and which pairs it saw."""

    wins: Array
    judged_pairs: Array

    @classmethod
    def read(cls, entries: Entries, mine: Truths) -> _Judged:
        where, a, b, won = (
            part[mine] for part in (entries.cluster, entries.a, entries.b, entries.share)
        )
        shape = len(entries.clusters), len(entries.responders), len(entries.responders)
        times = sums_by((where, a, b), np.ones(len(a)), *shape)
        times += times.swapaxes(1, 2)
        wins = sums_by((where, a, b), won, *shape) + sums_by((where, b, a), 1.0 - won, *shape)
        return cls(ratio(wins, times, 0.0), (times > 0).astype(float))

    @property
    def n_cells(self) -> int:
        return int(self.judged_pairs.sum() / 2.0)

    @cached_property
    def mean(self) -> Array:
        return ratio(self.wins.sum(axis=0), self.judged_pairs.sum(axis=0), 0.0)

    @cached_property
    def deviation(self) -> Array:
        return np.asarray(self.wins - self.judged_pairs * self.mean)


@dataclass(frozen=True, eq=False)
class _Scores:
    people: Array  # by people's verdicts
    judge_here: Array  # by the judge's, on what people judged
    judge_everywhere: Array  # by the judge's, through its mean over all dialogues

    @classmethod
    def of(cls, model: BradleyTerry, judge_deviation: Array, judged: _Judged) -> _Scores:
        entries, n, size = model.entries, len(judged.wins), len(model.theta)
        weight = fit_weights(entries, "pairs")
        sides = entries.cluster, entries.a, entries.b
        games = sums_by(sides[1:], weight, size, size)
        # A pair that people did not judge moves nobody.
        means = ratio(games + games.T, judged.judged_pairs.sum(axis=0), 0.0)
        by_people = sums_of_scores(model, entries.cluster, n)
        return cls(
            by_people,
            sums_of_sides(*sides, weight * judge_deviation, n, size),
            (judged.deviation * means).sum(axis=2),
        )


def _judges_of(entries: Entries, mine: Truths, judge: str) -> dict[str, _Judged]:
    together = {judge: _Judged.read(entries, mine)}
    if "rater" not in entries.table:
        return together
    names = entries.table["rater"].astype(str).to_numpy()[entries.rows]
    apart = {
        str(name): _Judged.read(entries, mine & (names == name)) for name in np.unique(names[mine])
    }
    same = [(one.judged_pairs == together[judge].judged_pairs).all() for one in apart.values()]
    return apart if len(apart) <= MOST_JUDGES and all(same) else together


def _weighted(scores: list[Array], weights: Array) -> Array:
    return np.asarray((np.array(scores) * weights[:, :, None]).sum(axis=0))


def _trust(scores: list[_Scores], labelled: Truths, inverse: Array) -> Array:
    """Estimate each judge's weight by dialogue, the average where no person voted."""
    n, n_all = int(labelled.sum()), len(labelled)
    # By how much a judge's verdicts beside people's differ from its mean over all dialogues.
    differences = np.array([(one.judge_here - one.judge_everywhere)[labelled] for one in scores])
    # rounding, where people judged all that the judge did
    differences[np.abs(differences) < NEGLIGIBLE] = 0.0
    learnt = labelled_weights(
        n * scores[0].people[labelled],
        n * differences,
        n_all * np.array([one.judge_everywhere for one in scores]),
        n / n_all,
        inverse,
    )
    trust = np.repeat(learnt.mean(axis=1)[:, None], n_all, axis=1)
    trust[:, labelled] = learnt
    return trust


def _with_judge(alone: BradleyTerry, shift: Array) -> BradleyTerry:
    entries = replace(alone.entries, share=alone.entries.share - shift)
    counts = count_wins(entries, weights="pairs").total()
    theta = fit_strengths(counts[:, 0], alone.penalised, alone.theta)[0]
    return replace(alone, entries=entries, counts=counts, theta=theta)


def _check(
    labelled: Truths,
    judged: _Judged,
    cells: pd.DataFrame,
    part: float,
    clusters: pd.Index,
    name: str,
    judge: str,
) -> None:
    if len(unjudged := np.flatnonzero(labelled & ~judged.judged_pairs.any(axis=(1, 2)))):
        first = f"{name} {clusters[unjudged[0]]}, which people judged ({len(unjudged)} such)"
        raise AgreementError(
            f"{judge} gave no verdict on {first}. Where people judged, the judge must too."
        )
    if labelled.sum() < LEAST_LABELLED:
        raise AgreementError(
            f"People judged {labelled.sum()} {name}; {LEAST_LABELLED} or more are needed to weigh"
            " the judge."
        )
    if part >= 1.0:
        raise AgreementError(
            f"People judged every {name} and pair that {judge} did; nothing is left to save: use"
            " `fit_ratings`."
        )
    per_pair = len(cells) / cells["pair"].nunique()
    if per_pair < LEAST_A_PAIR:
        needed = ceil(labelled.sum() * LEAST_A_PAIR / per_pair)
        raise AgreementError(
            f"People judged {per_pair:.1f} {name} a pair of responders on average;"
            f" {LEAST_A_PAIR:.0f} or more are needed for intervals that hold. Label {needed} {name}"
            f" like these instead of {labelled.sum()}, or more pairs in each."
        )


def labelled_weights(
    people_scores: Array, differences: Array, everywhere: Array, share: float, inverse: Array
) -> Array:
    """Estimate each judge's weight in a labelled dialogue from all the others."""
    one, others, rests = people_scores @ inverse, differences @ inverse, everywhere @ inverse
    centred = rests - rests.mean(axis=1, keepdims=True)
    of_rest = np.einsum("jdk,idk->ji", centred, centred) / (rests.shape[1] - 1)
    shared = np.array([_left_out(one, other) for other in others])
    spread = np.array([[_left_out(first, second) for second in others] for first in others])
    spread += share * (1.0 - share) * of_rest[:, :, None]
    if len(others) == 1:
        return np.clip(ratio(shared, spread[0], 0.0), 0.0, 1.0)
    weights = np.array(
        [_best(spread[:, :, row], shared[:, row]) for row in range(len(people_scores))]
    )
    return np.asarray(weights.T)


def _best(spread: Array, shared: Array) -> Array:
    """Find the weights, none below zero and at most one in all, of least variance."""
    values, vectors = np.linalg.eigh(spread)
    root = np.sqrt(np.maximum(values, NEGLIGIBLE * max(values[-1], NEGLIGIBLE)))
    found = nnls(root[:, None] * vectors.T, vectors.T @ shared / root)[0]
    return np.asarray(found / max(1.0, found.sum()))


def _left_out(one: Array, other: Array) -> Array:
    n = len(one) - 1
    products = (one * other).sum(axis=1)
    without_one, without_other = one.sum(axis=0) - one, other.sum(axis=0) - other
    return np.asarray(
        (products.sum() - products - (without_one * without_other).sum(axis=1) / n) / (n - 1)
    )


def _table(
    names: pd.Index,
    powered: Fitted,
    plain: Fitted,
    judged: Array,
    penalised: Truths,
    unvaried: Truths,
    n: int,
    ci_level: float,
) -> pd.DataFrame:
    quantile, by_judge = stats.t.ppf((1.0 + ci_level) / 2.0, n - 1), find_separated(judged[None])[0]
    centre, judge = centring(penalised), fit_strengths(judged[None], by_judge)[0]
    columns: dict[str, pd.Index | Array] = {"responder": names}
    for three, (theta, robust) in zip((WITH_JUDGE, BY_PEOPLE), (powered, plain), strict=True):
        variance = np.diag(centre @ robust @ centre.T)
        half = np.where(penalised | unvaried, np.nan, quantile * np.sqrt(np.maximum(variance, 0.0)))
        columns |= dict(
            zip(three, (centre @ theta, centre @ theta - half, centre @ theta + half), strict=True)
        )
    table = pd.DataFrame({**columns, "judge_strength": centring(by_judge) @ judge})
    table.insert(4, "ci_level", ci_level)
    table["unvaried"] = unvaried
    return table.sort_values(["strength", "responder"], ascending=[False, True], ignore_index=True)
