"""Ratings from few people's verdicts and many of a judge's: the judge only ever corrects by its differences."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats
from scipy.special import expit

from heart_utils.ratings.bradley_terry import check_comparable, find_separated, fit_strengths
from heart_utils.ratings.resampling import check_level, ratio, sums_by
from heart_utils.ratings.spread import Gaps, centring
from heart_utils.ratings.verdicts import AgreementError, Array, Codes, Entries, party, read_verdicts, refuse_ties_alone

__all__ = ["PoweredRatings", "prediction_powered_ratings"]

LEAST_LABELLED = 5
Fitted = tuple[Array, Array]
"""Strengths and their covariance."""

WITH_JUDGE, BY_PEOPLE = ("strength", "ci_low", "ci_high"), ("people_strength", "people_low", "people_high")


@dataclass(frozen=True)
class PoweredRatings:
    """Strengths from people's verdicts, sharpened by a judge's."""

    # one row a responder, the strongest first; ``people_...`` is from people alone, ``judge_...`` (no interval) from the judge
    table: pd.DataFrame
    weight: float  # how far the judge is trusted, the mean over left-out dialogues; 0 is not at all
    rho_squared: float  # squared correlation of people's and the judge's scores of a dialogue, on the same pairs
    most_saving: float  # its bound: the share of pairs that only the judge saw, times ``rho_squared`` and the dialogues' part
    saving: float  # estimated share of the people's verdicts that the judge saves: one minus a ratio of variances
    people_variance: float  # sum over responders of the variance of the strengths from people alone
    n_labelled: int  # dialogues with people's verdicts; with the judge's
    n_dialogues: int
    covariances: tuple[pd.DataFrame, pd.DataFrame] = field(repr=False)  # of the strengths, and of those from people alone
    fewest: int  # dialogues that people judged; or raters, where they vary and are fewer

    def ranks(self, *, judge: bool = True) -> pd.DataFrame:
        """Give ``rank_low`` and ``rank_high`` of each ``responder``, all at once: with the judge, or from people alone."""
        names, n = self.table["responder"], self.fewest
        covariance = self.covariances[0 if judge else 1].loc[names, names].to_numpy()
        values, vectors = np.linalg.eigh(covariance)
        root = (vectors * np.sqrt(np.maximum(values, 0.0))).T
        rows = np.concatenate([root, -root]) * np.sqrt((len(root) - 0.5) * (n - 1.0) / n)  # have this covariance
        level = float(self.table["ci_level"].iloc[0])
        low, high = Gaps(self.table["strength" if judge else "people_strength"].to_numpy(), rows, n, level, n).ranks()
        return pd.DataFrame({"responder": names, "rank_low": low, "rank_high": high})


@dataclass(frozen=True, eq=False)
class _Party:
    """What one party said, one matrix a dialogue: wins, and which pairs it saw."""

    wins: Array
    seen: Array

    @property
    def mean(self) -> Array:
        """Give the mean wins on each pair."""
        return ratio(self.wins.sum(axis=0), self.seen.sum(axis=0), 0.0)

    def scores(self) -> Array:
        """Give how each dialogue moves each responder's mean wins, to shape (dialogues, responders)."""
        return np.asarray(ratio(self.wins - self.seen * self.mean, self.seen.mean(axis=0), 0.0).sum(axis=2))


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
    r"""Rate responders as people would, from some dialogues that people judged and all that a judge did.

    With s the score of a dialogue (wins minus expected wins), strengths solve :math:`\overline{s^H}_n - \lambda
    (\overline{s^J}_n - \overline{s^J}_N) = 0` for n dialogues of people and N of the judge, whose bias cancels. :math:`\lambda`
    minimises the variance, and is estimated for each dialogue from the others. Sources: Angelopoulos et al. (2023),
    https://arxiv.org/abs/2311.01453; Zrnic and Candes (2024), https://arxiv.org/abs/2403.03208

    Parameters
    ----------
    verdicts
        Verdicts with orders joined; what people judged is a random part of what the judge did.
    judge
        A rater, or ``"model"`` for the mean of all judges.
    dimension
        A line of the rubric.
    cluster
        Column of the unit that was drawn.
    rater : str, optional
        Column of who judged, where people would be drawn again too (two-way variance).
    stands_for : str, optional
        Column of one over the chance that people were asked about a pair, where chances differ.
    weight
        Fixes lambda, if given: 0 is people alone, 1 trusts the judge's differences in full.
    ci_level
        Level of the intervals.

    Returns
    -------
    PoweredRatings
        Intervals are for dialogues like these, with a t quantile on n - 1 degrees of freedom.

    Raises
    ------
    AgreementError
        If people judged fewer than five dialogues, or the judge not all of these or no others.
    NotComparableError
        If comparisons do not link all responders.

    Examples
    --------
    >>> from heart_utils.simulate.study import simulate_study
    >>> votes = simulate_study(rng=np.random.default_rng(1), n_responders=4, n_dialogues=60, pairs="all").verdicts
    >>> labelled = votes["dialogue_id"].isin(votes["dialogue_id"].unique()[:20])
    >>> prediction_powered_ratings(votes[labelled | (votes["rater_kind"] == "model")]).n_labelled
    20
    """
    check_level(ci_level)
    entries = read_verdicts(verdicts, dimension=dimension, cluster=cluster, rater=rater)
    refuse_ties_alone(entries, dimension)
    mine = party(entries.rows, verdicts, "human")
    people, counts = _count(entries, mine, verdicts[stands_for] if stands_for else None)
    said, _ = _count(entries, party(entries.rows, verdicts, judge))
    labelled, heard = (np.asarray(one.seen.any(axis=(1, 2))) for one in (people, said))
    cells = float((people.seen > 0).sum() / said.seen.sum())
    _check(labelled, heard, cells if weight is None and stands_for is None else 0.0, entries.clusters, cluster, judge)
    people, everywhere = (_Party(one.wins[some], one.seen[some]) for one, some in ((people, labelled), (said, heard)))
    beside = _Party(said.wins[labelled] * people.seen, said.seen[labelled] * people.seen)
    check_comparable(people.wins.sum(axis=0), entries.responders)
    used = people.seen.sum(axis=0) > 0
    fit = _Fit(used, mine.sum() / (used.sum() / 2.0), find_separated(people.mean[None])[0])
    alone, share = fit.strengths(people.mean), int(labelled.sum()) / int(heard.sum())
    own, elsewhere = people.scores(), everywhere.scores()
    apart = beside.scores() - share * elsewhere[labelled[heard]]
    weights = labelled_weights(own, apart, elsewhere, share, fit.inverse(alone))
    weights = weights if weight is None else np.full(len(own), float(weight))
    # People's mean on each pair moves by how the judge's verdicts beside theirs differ from its mean everywhere.
    moved = (weights[:, None, None] * (beside.wins - beside.seen * everywhere.mean)).sum(axis=0)
    theta = fit.strengths(people.mean - ratio(moved, beside.seen.sum(axis=0), 0.0), alone)
    powered = corrected_covariance(own, apart, elsewhere, weights, share, fit.inverse(theta))
    plain = corrected_covariance(own, apart, elsewhere, np.zeros(len(own)), share, fit.inverse(alone))
    # The correlation of people's and the judge's scores, in the metric of strengths.
    one, other = ((part - part.mean(axis=0)) @ fit.inverse(alone) for part in (own, beside.scores()))
    rho_squared = float(ratio((one * other).sum() ** 2, (one**2).sum() * (other**2).sum()))
    by_dialogue, fewest = float(np.trace(plain)), len(own)
    if entries.rater is not None:
        where, a, b = (part[mine] for part in (entries.cluster, entries.a, entries.b))
        won, judged = entries.share[mine] - 0.5, (said.wins - 0.5 * said.seen)[where, a, b]
        votes = where, entries.rater[mine], a, b, counts
        powered = _add_raters(powered, *votes, won - float(weights.mean()) * judged, fit.inverse(theta))
        plain = _add_raters(plain, *votes, won, fit.inverse(alone))
        fewest = min(fewest, len(np.unique(entries.rater[mine])))
    names = entries.responders.astype("str")
    return PoweredRatings(
        table=_table(names, (theta, powered), (alone, plain), everywhere.mean, fit.penalised, fewest, ci_level),
        weight=float(weights.mean()),
        rho_squared=rho_squared,
        most_saving=(1.0 - cells) * rho_squared * (by_dialogue / float(np.trace(plain))),
        saving=1.0 - float(np.trace(powered) / np.trace(plain)),
        people_variance=float(np.trace(plain)),
        n_labelled=len(own),
        n_dialogues=int(heard.sum()),
        covariances=(pd.DataFrame(powered, names, names), pd.DataFrame(plain, names, names)),
        fewest=fewest,
    )


@dataclass(frozen=True, eq=False)
class _Fit:
    """How mean wins on each pair become strengths: which pairs count, what each weighs, who gets the weak prior."""

    used: NDArray[np.bool_]
    per_pair: float
    penalised: NDArray[np.bool_]

    def strengths(self, mean: Array, start: Array | None = None) -> Array:
        return np.asarray(fit_strengths(np.where(self.used, mean, 0.0)[None] * self.per_pair, self.penalised, start)[0])

    def inverse(self, theta: Array) -> Array:
        """Invert the information that one verdict a pair holds; only differences of strengths have any."""
        chance = expit(theta[:, None] - theta[None, :])
        information = np.where(self.used, chance * (1.0 - chance), 0.0)
        return np.asarray(np.linalg.pinv(np.diag(information.sum(axis=1)) - information))


def _count(entries: Entries, mine: NDArray[np.bool_], stands_for: pd.Series | None = None) -> tuple[_Party, Array]:
    """Give a party's wins on each pair of each dialogue and for how much they count; and for how much each verdict does."""
    where, a, b = (part[mine] for part in (entries.cluster, entries.a, entries.b))

    def gather(won: Array, lost: Array) -> Array:
        shape = len(entries.clusters), len(entries.responders), len(entries.responders)
        return sums_by((where, a, b), won, *shape) + sums_by((where, b, a), lost, *shape)

    if stands_for is None:
        counts = 1.0 / gather(np.ones(len(a)), np.ones(len(a)))[where, a, b]
    else:
        counts = stands_for.to_numpy(float)[entries.rows][mine]
        if not (counts > 0).all():
            raise AgreementError(f"{stands_for.name} of people's verdicts must be above zero: one over a chance.")
    won, seen = entries.share[mine], gather(counts, counts)
    seen = seen if stands_for is not None else (seen > 0).astype(float)
    return _Party(gather(counts * won, counts * (1.0 - won)), seen), counts


def _add_raters(
    covariance: Array, where: Codes, rater: Codes, a: Codes, b: Codes, counts: Array, left: Array, inverse: Array
) -> Array:
    """Add the variance of other raters, less that of dialogues by raters, which both contain, as in ``crossed_error``."""
    size, pair = len(inverse), np.minimum(a, b) * len(inverse) + np.maximum(a, b)
    left = np.where(a < b, left, -left)
    total, off = (np.bincount(pair, part, size**2) for part in (counts, counts * left))
    moved = counts * (left - ratio(off, total, 0.0)[pair]) / total[pair] * np.where(a < b, 1.0, -1.0)
    for sign, code in ((1.0, rater), (-1.0, where * (rater.max() + 1) + rater)):
        group = np.unique(code, return_inverse=True)[1]
        n = int(group.max()) + 1
        sums = np.bincount(group * size + a, moved, n * size) - np.bincount(group * size + b, moved, n * size)
        moves = sums.reshape(n, size) @ inverse
        covariance = covariance + sign * n / (n - 1.0) * moves.T @ moves
    values, vectors = np.linalg.eigh(covariance)
    return np.asarray((vectors * np.maximum(values, 0.0)) @ vectors.T)


def _check(
    labelled: NDArray[np.bool_], heard: NDArray[np.bool_], cells: float, clusters: pd.Index, name: str, judge: str
) -> None:
    if len(deaf := np.flatnonzero(labelled & ~heard)):
        first = f"{name} {clusters[deaf[0]]}, which people judged ({len(deaf)} such)"
        raise AgreementError(f"{judge} gave no verdict on {first}. Where people judged, the judge must too.")
    if labelled.sum() < LEAST_LABELLED:
        raise AgreementError(f"People judged {labelled.sum()} {name}; {LEAST_LABELLED} or more are needed to weigh the judge.")
    if cells >= 1.0:
        raise AgreementError(
            f"People judged every {name} and pair that {judge} did; nothing is left to save: use `fit_ratings`."
        )


def labelled_weights(own: Array, apart: Array, elsewhere: Array, share: float, inverse: Array) -> Array:
    """Estimate for each labelled dialogue, from all the others, what the judge's differences weigh."""
    one, other, rest = own @ inverse, apart @ inverse, elsewhere @ inverse
    shared = _left_out(one, other)
    spread = _left_out(other, other) + share * (1.0 - share) * rest.var(axis=0, ddof=1).sum()
    return np.clip(ratio(shared, spread, 0.0), 0.0, 1.0)


def _left_out(one: Array, other: Array) -> Array:
    """Give the trace of the covariance without each row in turn."""
    n = len(one) - 1
    products = (one * other).sum(axis=1)
    without_one, without_other = one.sum(axis=0) - one, other.sum(axis=0) - other
    return np.asarray((products.sum() - products - (without_one * without_other).sum(axis=1) / n) / (n - 1))


def corrected_covariance(own: Array, apart: Array, elsewhere: Array, weights: Array, share: float, inverse: Array) -> Array:
    """Give the covariance of strengths, of Var(own - weight apart) / n + weight² (N - n) Var(elsewhere) / N²."""
    n, n_all = len(own), len(elsewhere)
    labelled = np.atleast_2d(np.cov(own - weights[:, None] * apart, rowvar=False)) / n
    rest = weights.mean() ** 2 * (1.0 - share) / n_all * np.cov(elsewhere, rowvar=False)
    return np.asarray(inverse @ (labelled + rest) @ inverse)


def _table(
    names: pd.Index, powered: Fitted, plain: Fitted, judged: Array, penalised: NDArray[np.bool_], n: int, ci_level: float
) -> pd.DataFrame:
    """Put intervals on strengths, given with their covariances, and lay them out beside the judge's own."""
    reach, by_judge = stats.t.ppf((1.0 + ci_level) / 2.0, n - 1), find_separated(judged[None])[0]
    centre, judge = centring(penalised), fit_strengths(judged[None], by_judge)[0]
    columns: dict[str, Any] = {"responder": names}
    for three, (theta, covariance) in zip((WITH_JUDGE, BY_PEOPLE), (powered, plain), strict=True):
        variance = np.diag(centre @ covariance @ centre.T)
        half = np.where(penalised, np.nan, reach * np.sqrt(np.maximum(variance, 0.0)))
        columns |= dict(zip(three, (centre @ theta, centre @ theta - half, centre @ theta + half), strict=True))
    table = pd.DataFrame({**columns, "judge_strength": centring(by_judge) @ judge})
    table.insert(4, "ci_level", ci_level)
    return table.sort_values(["strength", "responder"], ascending=[False, True], ignore_index=True)
