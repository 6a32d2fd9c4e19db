"""Judges' scores moved onto people's scale by isotonic regression, and what that buys on unseen blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from heart_utils.analysis.scales import ScaleError

__all__ = ["Calibration", "calibrate_scores"]


@dataclass(frozen=True)
class Calibration:
    """Judges' scores moved onto people's scale, each predicted by a curve that did not see it.

    Attributes
    ----------
    table : pandas.DataFrame
        One row per judge and dimension: ``n`` replies, ``n_left_out`` (no valid score on one of
        the two sides), ``n_folds``, the root mean squared error and the mean error (judge minus
        people) ``raw`` and ``calibrated``, and ``rmse_mean``, of predicting people's mean alone.
    predictions : pandas.DataFrame
        One row per judge, dimension and reply: ``score``, ``calibrated``, ``people``, ``fold``.
    curves : pandas.DataFrame
        The step curve fitted to all, where ``left_out`` is missing, and to all folds but the one named
        there: ``rater``, ``dimension``, ``left_out``, ``score``, ``calibrated``.
    """

    table: pd.DataFrame
    predictions: pd.DataFrame
    curves: pd.DataFrame


def calibrate_scores(scores: pd.DataFrame, *, fold: str = "group", n_folds: int = 10) -> Calibration:
    """Fit an isotonic curve from each judge's scores to people's, and say what it buys on unseen data.

    An isotonic curve is the best rising step function; it keeps the judge's order of replies and
    repairs its use of the scale. It is fitted with one fold left out in turn. With people's scores
    in blocks (`fold="group"`), a fold is a block, so that the error is that of a new block.

    Parameters
    ----------
    scores : pandas.DataFrame
        The table ``scores``, with people's rows (``rater_kind`` ``"human"``; several are averaged)
        and judges' rows for the same replies.
    fold : str
        The column whose values are kept together: ``"group"`` (blocks), ``"dialogue_id"``, ``"history_id"``.
    n_folds : int
        Values are dealt into this many folds where there are more of them.

    Returns
    -------
    Calibration
        Judges by name; dimensions by name.

    Raises
    ------
    ScaleError
        If there are no people, no judges, no reply that both scored, or fewer than two folds.

    Examples
    --------
    >>> n = range(40)
    >>> kind = {"human": [1 + i % 4 for i in n], "model": [2 + (i % 4) / 2 for i in n]}  # half people's spread
    >>> scores = pd.concat(pd.DataFrame({"reply_id": [f"r{i}" for i in n], "group": [f"b{i // 20}" for i in n], "rater": k,
    ...     "rater_kind": k, "dimension": "empathy", "score": v, "state": "valid"}) for k, v in kind.items())
    >>> calibrate_scores(scores).table[["rmse_raw", "rmse_calibrated"]].round(2).values.tolist()
    [[0.61, 0.0]]
    """
    from sklearn.isotonic import IsotonicRegression

    both, left_out = _beside_people(scores, fold)
    tables, predictions, curves = [], [], []
    for (rater, dimension), group in both.groupby(["rater", "dimension"], sort=True):
        folds = _folds(group[fold], n_folds, f"{rater} on {dimension}", fold)
        group = group.assign(fold=folds, calibrated=np.nan)
        constant, levels = np.zeros(len(group)), np.unique(group["score"])
        for number in np.unique(folds):
            held = folds == number
            curve = IsotonicRegression(out_of_bounds="clip").fit(group["score"][~held], group["people"][~held])
            group.loc[held, "calibrated"] = curve.predict(group["score"][held])
            constant[held] = group["people"][~held].mean()
            curves.append(_curve(str(rater), str(dimension), number, levels, curve))
        raw, better = group["score"] - group["people"], group["calibrated"] - group["people"]
        tables.append(
            {
                "rater": rater,
                "dimension": dimension,
                "n": len(group),
                "n_left_out": int(left_out.get((rater, dimension), 0)),
                "n_folds": len(np.unique(folds)),
                "rmse_raw": _rms(raw),
                "rmse_calibrated": _rms(better),
                "rmse_mean": _rms(constant - group["people"]),
                "bias_raw": raw.mean(),
                "bias_calibrated": better.mean(),
            }
        )
        predictions.append(group[["rater", "dimension", "reply_id", "score", "calibrated", "people", "fold"]])
        whole = IsotonicRegression(out_of_bounds="clip").fit(group["score"], group["people"])
        curves.append(_curve(str(rater), str(dimension), None, levels, whole))
    return Calibration(pd.DataFrame(tables), pd.concat(predictions, ignore_index=True), pd.concat(curves, ignore_index=True))


def _beside_people(scores: pd.DataFrame, fold: str) -> tuple[pd.DataFrame, pd.Series]:
    """Lay each judge's valid score beside people's mean for the same reply and dimension; count what is left out."""
    if fold not in scores:
        raise ScaleError(
            f"scores: there is no column {fold!r} to cut folds by; there are {', '.join(map(str, scores.columns))}."
        )
    keys = ["dimension", "reply_id"]
    human = scores["rater_kind"] == "human"
    if not human.any() or human.all():
        there = "only people's" if human.any() else "no person's"
        raise ScaleError(f"scores hold {there} rows; calibration needs people's scores and a judge's for the same replies.")
    valid = scores["state"] == "valid"
    people = scores[human & valid].groupby(keys)["score"].mean().rename("people").reset_index()
    judges = scores[~human]
    both = judges[judges["state"] == "valid"].merge(people, on=keys)
    if both.empty:
        raise ScaleError("No reply has valid scores by people and by a judge on one dimension, so no curve can be fitted.")
    every = judges.groupby(["rater", "dimension"]).size()
    kept = both.groupby(["rater", "dimension"]).size()
    return both, every.sub(kept, fill_value=0).astype(int)


def _folds(values: pd.Series, n_folds: int, what: str, column: str) -> NDArray[np.int64]:
    """Deal whole values of a column into folds, in the order in which they appear."""
    if values.isna().any():
        raise ScaleError(f"scores.{column}: {int(values.isna().sum())} rows of {what} have none, so they belong to no fold.")
    codes = np.asarray(pd.factorize(values)[0], dtype=np.int64) % n_folds
    if len(np.unique(codes)) < 2:
        raise ScaleError(
            f"scores.{column}: {what} has a single value ({values.iloc[0]!r}); cross-validation needs two or more. "
            f"Cut folds by another column, such as fold='dialogue_id'."
        )
    return codes


def _curve(rater: str, dimension: str, left_out: int | None, levels: NDArray[np.float64], curve: Any) -> pd.DataFrame:
    """Read a curve off at every score that the judge gave."""
    fold = pd.array([left_out] * len(levels), dtype="Int64")
    about = {"rater": rater, "dimension": dimension, "left_out": fold}
    return pd.DataFrame({**about, "score": levels, "calibrated": curve.predict(levels)})


def _rms(errors: pd.Series | NDArray[np.float64]) -> float:
    return float(np.sqrt(np.mean(np.square(errors))))
