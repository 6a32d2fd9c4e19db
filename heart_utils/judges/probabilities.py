"""What a judge's probabilities are worth: calibrated against people, with one temperature."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import expit, logit

from heart_utils.judges.position import BiasError
from heart_utils.tables import need_columns

__all__ = ["Calibrated", "calibrate_probabilities"]

KEY = ["pair_id", "dimension"]
UNCALIBRATED = "uncalibrated"  #: The flag of a verdict whose ``p_a`` was not held against people.
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

    The log-odds of `p_a` are divided by one number for each judge, above 1 where it was too sure.
    It is fitted to people's decided votes by logistic regression without an intercept, and
    cross-fitted: what is said of a dialogue rests on the votes on other dialogues. A judge that
    people contradict on the whole gets a half everywhere.

    Parameters
    ----------
    verdicts : pandas.DataFrame
        Judges' verdicts with ``p_a``, ``pair_id``, ``dimension``, ``dialogue_id`` and ``rater``.
    people : pandas.DataFrame
        People's verdicts on some of the same pairs and dimensions; ties are left out.
    folds : int
        Into how many parts the dialogues are split.

    Returns
    -------
    Calibrated
        ``verdicts`` with the new ``p_a``, and ``judges``. The flag ``uncalibrated`` is taken off;
        a judge with fewer than 50 of people's votes, or fewer dialogues than `folds`, gets it and
        keeps its ``p_a``.

    Raises
    ------
    BiasError
        If no verdict has a probability.

    Examples
    --------
    >>> pairs = [f"p{number}" for number in range(100)]
    >>> mine = pd.DataFrame({"pair_id": pairs, "dialogue_id": pairs, "dimension": "overall"})
    >>> sure = mine.assign(rater="judge", p_a=0.99)  # of four answers three are right
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
    """Fit by how much a judge's log-odds are to be multiplied; never below 0."""
    from sklearn.linear_model import LogisticRegression

    if won.all() or not won.any() or not odds.any():
        return 1.0  # nothing can be learnt from one answer
    model = LogisticRegression(C=np.inf, fit_intercept=False, solver="newton-cholesky")
    return max(float(model.fit(odds[:, None], won).coef_[0, 0]), 0.0)


def _cross_fit(
    rows: pd.DataFrame, met: pd.DataFrame, dialogues: NDArray[np.object_], folds: int
) -> tuple[pd.DataFrame, dict[str, float]]:
    """Calibrate each dialogue by the votes on the others, and say how well that fits."""
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
    """Put the flag on rows with a probability that was not held against people."""
    old = rows["flags"] if "flags" in rows else pd.Series([[]] * len(rows), rows.index)
    add = [UNCALIBRATED] if not calibrated else []
    kept = [[one for one in flags if one != UNCALIBRATED] for flags in old]
    new = [
        [*flags, *add] if there else flags
        for flags, there in zip(kept, rows["p_a"].notna(), strict=True)
    ]
    return rows.assign(flags=pd.Series(new, rows.index, dtype=object))
