"""What a judge's confidence is worth: probabilities held against people, and when to abstain."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import special
from scipy.special import expit, logit

from heart_utils.judges.position import BiasError
from heart_utils.ratings.verdicts import AgreementError, Array
from heart_utils.settings import extra
from heart_utils.tables import need_columns

__all__ = ["Calibrated", "calibrate_abstention", "calibrate_probabilities"]

KEY = ["pair_id", "dimension"]
UNCALIBRATED = "uncalibrated"  # the flag of a verdict whose ``p_a`` was not held against people
LEAST_VOTES = 50
EDGE = 1e-6  #: No probability is taken to be nearer to 0 or 1, whose log-odds are infinite.


class Calibrated(NamedTuple):
    """Calibrated verdicts, and how far each judge's probabilities were off."""

    verdicts: pd.DataFrame
    #: A row a judge: rater, temperature, log_loss_before, log_loss_after, n_votes, n_clusters.
    judges: pd.DataFrame


def calibrate_probabilities(
    verdicts: pd.DataFrame, people: pd.DataFrame, *, folds: int = 5
) -> Calibrated:
    """Divide a judge's log-odds by the temperature at which they fit people's votes best.

    The temperature, above 1 where the judge was too sure, is cross-fitted over dialogues.

    Parameters
    ----------
    verdicts
        With ``p_a``, ``pair_id``, ``dimension``, ``dialogue_id`` and ``rater``.
    people
        People's verdicts on some of the same pairs and dimensions; ties are left out.
    folds
        Parts into which dialogues are split.

    Returns
    -------
    Calibrated
        ``verdicts`` with the new ``p_a``, and ``judges``. With fewer than 50 votes of people, or
        fewer dialogues than `folds`, a judge keeps its ``p_a`` and is flagged ``uncalibrated``.

    Raises
    ------
    BiasError
        If no verdict has a probability.

    Examples
    --------
    >>> mine = pd.DataFrame({"pair_id": range(100), "dialogue_id": range(100)}).astype(str)
    >>> mine["dimension"] = "overall"
    >>> sure = mine.assign(rater="judge", p_a=0.99)  # right in three of four
    >>> votes = mine.assign(verdict=["a", "a", "a", "b"] * 25)
    >>> float(calibrate_probabilities(sure, votes).verdicts["p_a"].mean().round(2))
    0.75
    """
    need_columns(verdicts, [*KEY, "dialogue_id", "rater", "p_a"], BiasError)
    need_columns(people, [*KEY, "verdict"], BiasError)
    if verdicts["p_a"].isna().all():
        raise BiasError("No verdict has a probability (`p_a`), so there is nothing to calibrate.")
    votes = people.loc[people["verdict"].isin(["a", "b"]), [*KEY, "verdict"]]
    made, judges = [], []
    for rater, mine in verdicts.groupby("rater", sort=False):
        rows = mine.assign(_odds=_log_odds(mine["p_a"].to_numpy(float)))
        given = rows.loc[rows["p_a"].notna(), [*KEY, "dialogue_id", "_odds"]]
        met = given.merge(votes, on=KEY)
        dialogues = met["dialogue_id"].unique()
        about = {"rater": rater, "n_votes": len(met), "n_clusters": len(dialogues)}
        calibrated = len(met) >= LEAST_VOTES and len(dialogues) >= folds
        if calibrated:
            rows, losses = _cross_fit(rows, met, dialogues, folds)
            about |= losses
        judges.append(about)
        made.append(_flagged(rows.drop(columns="_odds"), calibrated))
    columns = ["rater", "temperature", "log_loss_before", "log_loss_after", "n_votes", "n_clusters"]
    found = pd.DataFrame(judges).reindex(columns=columns)
    return Calibrated(pd.concat(made).loc[verdicts.index], found)


def _log_odds(p_a: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(logit(np.clip(p_a, EDGE, 1 - EDGE)))


def _slope(odds: NDArray[np.float64], won: NDArray[np.bool_]) -> float:
    with extra("stats"):
        from sklearn.linear_model import LogisticRegression

    if won.all() or not won.any() or not odds.any():
        return 1.0  # nothing can be learnt from one answer
    model = LogisticRegression(C=np.inf, fit_intercept=False, solver="newton-cholesky")
    return max(float(model.fit(odds[:, None], won).coef_[0, 0]), 0.0)


def _cross_fit(
    rows: pd.DataFrame, met: pd.DataFrame, dialogues: NDArray[np.object_], folds: int
) -> tuple[pd.DataFrame, dict[str, float]]:
    with extra("stats"):
        from sklearn.metrics import log_loss

    fold = pd.Series(np.arange(len(dialogues)) % folds, dialogues)
    odds, won = met["_odds"].to_numpy(float), met["verdict"].eq("a").to_numpy(bool)
    part = met["dialogue_id"].map(fold).to_numpy()
    slopes = [_slope(odds[part != number], won[part != number]) for number in range(folds)]
    whole = _slope(odds, won)
    slope = rows["dialogue_id"].map(fold.map(dict(enumerate(slopes)))).fillna(whole)
    new = pd.Series(expit(slope * rows["_odds"]), rows.index)
    after = expit(np.array(slopes)[part] * odds)
    losses = {"temperature": 1 / whole if whole else np.inf}
    losses["log_loss_before"] = float(log_loss(won, expit(odds), labels=[False, True]))
    losses["log_loss_after"] = float(log_loss(won, after, labels=[False, True]))
    return rows.assign(p_a=new.where(rows["p_a"].notna())), losses


def _flagged(rows: pd.DataFrame, calibrated: bool) -> pd.DataFrame:
    old = rows["flags"] if "flags" in rows else pd.Series([[]] * len(rows), rows.index)
    add = [UNCALIBRATED] if not calibrated else []
    new = []
    for flags, is_known in zip(old, rows["p_a"].notna(), strict=True):
        kept = [flag for flag in flags if flag != UNCALIBRATED]
        new.append([*kept, *add] if is_known else kept)
    return rows.assign(flags=pd.Series(new, rows.index, dtype=object))


COVERAGES = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
"""Shares of verdicts to accept, each a test; equal confidences are accepted together."""

EXCEEDED = 0.05
"""Probability that the risk is exceeded all the same."""


def calibrate_abstention(
    wrong: ArrayLike, confidence: ArrayLike, cluster: ArrayLike, *, risk: float = 0.1
) -> pd.DataFrame:
    """Choose from people's votes the confidence from which a judge's verdicts are accepted.

    Thresholds that accept 30, 40, ... 100 % of verdicts are tested in turn until the upper 95 %
    bound on the share that people contradict exceeds `risk`. Sources: Angelopoulos et al. (2021),
    https://arxiv.org/abs/2110.01052; Jung et al. (2024), https://arxiv.org/abs/2407.18370

    Parameters
    ----------
    wrong
        One entry a person's vote: 1 if the judge differs, else 0.
    confidence
        How sure the judge is, such as ``abs(2 * p_a - 1)``.
    cluster
        What was sampled, such as the question.
    risk
        The highest share of wrong verdicts.

    Returns
    -------
    pandas.DataFrame
        One row a threshold, the highest first: ``threshold``, ``coverage``, ``risk``, ``risk_high``
        (the bound), ``n_votes``, ``n_clusters``, ``passed``. Use the lowest that passed; if none
        did, the judge always abstains.

    Raises
    ------
    AgreementError
        If lengths differ, a value is missing or there are fewer than two clusters.

    Examples
    --------
    >>> wrong, question = [0] * 90 + [1] * 10 + [0, 1] * 50, [*range(40)] * 5
    >>> sure = np.repeat([0.9, 0.1], 100)
    >>> calibrate_abstention(wrong, sure, question, risk=0.2)["passed"].tolist()
    [True, False]
    """
    wrong, confidence = np.asarray(wrong, float), np.asarray(confidence, float)
    where, clusters = pd.factorize(np.asarray(cluster))
    complete = len(wrong) == len(confidence) == len(where) and (where >= 0).all()
    known = not np.isnan(confidence).any() and np.isin(wrong, (0, 1)).all()
    if len(clusters) < 2 or not complete or not known:
        raise AgreementError(
            "wrong must be 0 or 1, confidence and cluster complete, with two clusters or more; got"
            f" {len(wrong)} errors, {len(confidence)} confidences, {len(where)} clusters,"
            f" {len(clusters)} of them different."
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
        row = {"threshold": threshold, "coverage": taken.mean(), "risk": share}
        row["risk_high"] = risk_bound(n_wrong, n, EXCEEDED)
        rows.append({**row, "n_votes": int(n.sum()), "n_clusters": int((n > 0).sum())})
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
