"""Scores on a scale: averaged, weighted over dimensions and compared with pairs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from heart_utils.ratings.resampling import (
    ENOUGH_CLUSTERS,
    Rng,
    draw_weights,
    interval_ends,
    ratio,
    share_ci,
    sums_by,
)
from heart_utils.ratings.verdicts import won_by_a
from heart_utils.settings import extra

__all__ = [
    "ScaleError",
    "average_scores",
    "calibrate_scores",
    "pairs_against_scores",
    "sweep_weights",
    "weigh_scores",
]


class ScaleError(ValueError):
    """Scores, or weights for them, do not fit together."""


def average_scores(
    scores: pd.DataFrame,
    *,
    scale: tuple[float, float] = (1.0, 5.0),
    n_resamples: int = 1000,
    ci_level: float = 0.95,
    rng: Rng = None,
) -> pd.DataFrame:
    """Average valid scores by responder and dimension, with an interval over dialogues.

    Parameters
    ----------
    scores
        The table ``scores``.
    scale
        Least and greatest score.
    n_resamples, ci_level, rng
        As in :func:`~heart_utils.ratings.resampling.bootstrap_ci`.

    Returns
    -------
    pandas.DataFrame
        One row per responder and dimension: ``score``, ``ci_low``, ``ci_high``, ``n_scores``,
        ``n_left_out`` (not valid), ``n_clusters``, ``provisional`` (fewer than 30).

    Raises
    ------
    ScaleError
        If no score is valid, or one lies outside the scale.

    Examples
    --------
    >>> scores = pd.DataFrame({"dialogue_id": [1, 2], "score": 2, "state": "valid"})
    >>> scores = scores.assign(responder="a", dimension="warm")
    >>> average_scores(scores, n_resamples=0)[["score", "n_scores"]].values.tolist()
    [[2.0, 2.0]]
    """
    valid = scores[scores["state"] == "valid"]
    if valid.empty:
        raise ScaleError(
            f"None of the {len(scores)} scores is valid, so there is nothing to average."
        )
    outside = valid[~valid["score"].astype(float).between(*scale)]
    if len(outside):
        raise ScaleError(
            f"{len(outside)} scores lie outside the scale from {scale[0]:g} to {scale[1]:g}; row"
            f" {outside.index[0]} has {outside['score'].iloc[0]:g}. Correct them, or give the scale"
            " that was used, such as scale=(0, 100)."
        )
    cell, cells = pd.factorize(
        pd.MultiIndex.from_frame(valid[["responder", "dimension"]]), sort=True
    )
    where, clusters = pd.factorize(valid["dialogue_id"], sort=True)
    columns = np.column_stack([valid["score"].to_numpy(dtype=float), np.ones(len(valid))])
    total, count = np.moveaxis(sums_by((where, cell), columns, len(clusters), len(cells)), -1, 0)
    mean, n_clusters = total.sum(axis=0) / count.sum(axis=0), (count > 0).sum(axis=0)
    low = high = np.full(len(cells), np.nan)
    if n_resamples and len(clusters) > 1:
        drawn = draw_weights(len(clusters), n_resamples, rng)
        replicates = ratio(drawn @ total, drawn @ count)
        # A responder of few dialogues has no mean in a resample that drew none of them.
        low, high = interval_ends(
            mean, replicates, n_clusters, ci_level, least=scale[0], most=scale[1]
        )
    n_scores = count.sum(axis=0).astype(int)
    table = pd.DataFrame(
        {
            "score": mean,
            "ci_low": low,
            "ci_high": high,
            "ci_level": ci_level if n_resamples else np.nan,
            "n_scores": n_scores,
            "n_left_out": scores.groupby(["responder", "dimension"]).size().reindex(cells)
            - n_scores,
            "n_clusters": n_clusters,
            "provisional": n_clusters < ENOUGH_CLUSTERS,
        },
        index=cells,
    )
    return table.rename_axis(["responder", "dimension"]).reset_index()


def weigh_scores(means: pd.DataFrame, weights: Mapping[str, float]) -> pd.DataFrame:
    """Weigh a responder's dimensions into one number.

    Parameters
    ----------
    means
        ``score`` by ``responder`` and ``dimension``.
    weights
        Dimension -> weight, none negative, with the sum 1.

    Returns
    -------
    pandas.DataFrame
        One row per responder, best first: ``score`` and ``rank`` (equal scores share the better
        rank).

    Raises
    ------
    ScaleError
        If weights do not sum to one, are negative, or name a dimension that a responder lacks.

    Examples
    --------
    >>> means = pd.DataFrame({"responder": ["a", "a", "b", "b"], "score": [5, 1, 3, 4]})
    >>> means["dimension"] = ["safety", "warmth"] * 2
    >>> weigh_scores(means, {"safety": 0.75, "warmth": 0.25})["score"].tolist()
    [4.0, 3.25]
    """
    names = list(weights)
    words = [
        f"{name} {weights[name]!r}"
        for name in names
        if isinstance(weights[name], bool | str) or weights[name] is None
    ]
    if words:
        raise ScaleError(f"Weights are numbers; got {', '.join(words)}.")
    vector = np.array([float(weights[name]) for name in names])
    if (
        not np.isfinite(vector).all()
        or (vector < 0).any()
        or not np.isclose(vector.sum(), 1, atol=1e-6)
    ):
        listed = ", ".join(f"{name} {weight:g}" for name, weight in zip(names, vector, strict=True))
        raise ScaleError(
            f"Weights sum to {vector.sum():g} ({listed}); expected none negative and the sum 1."
        )
    wide = _wide(means, names)
    table = pd.DataFrame({"responder": wide.index, "score": wide[names].to_numpy() @ vector})
    table = table.sort_values(["score", "responder"], ascending=[False, True], ignore_index=True)
    table["rank"] = table["score"].rank(ascending=False, method="min").astype(int)
    return table


def sweep_weights(
    means: pd.DataFrame, *, n_draws: int = 10_000, rng: np.random.Generator
) -> pd.DataFrame:
    """Compute how a ranking changes over all weights of dimensions, drawn at random.

    Parameters
    ----------
    means
        As in :func:`weigh_scores`.
    n_draws
        How many weights are drawn.
    rng
        The source of chance.

    Returns
    -------
    pandas.DataFrame
        By ``mean_rank``: ``best_rank``, ``worst_rank``, ``share_first``; of how many it is
        ``surely_behind`` (with any weights) and ``surely_ahead``.

    Raises
    ------
    ScaleError
        If a responder lacks a dimension that another has.

    Examples
    --------
    >>> means = pd.DataFrame({"responder": ["a", "a", "b", "b"], "score": [5, 1, 3, 4]})
    >>> means["dimension"] = ["safety", "warmth"] * 2
    >>> swept = sweep_weights(means, rng=np.random.default_rng(1))
    >>> swept["share_first"].round(1).tolist()  # b, until safety weighs 3/5
    [0.6, 0.4]
    """
    wide = _wide(means, sorted(means["dimension"].unique()))
    values = wide.to_numpy()
    drawn = rng.dirichlet(np.ones(values.shape[1]), size=n_draws) @ values.T
    ahead = (drawn[:, None, :] > drawn[:, :, None] + 1e-12).sum(axis=2)
    above = (values[:, None, :] >= values[None, :, :]).all(axis=2) & (
        values[:, None, :] > values[None, :, :]
    ).any(axis=2)
    table = pd.DataFrame({"responder": wide.index, "mean_rank": 1 + ahead.mean(axis=0)})
    table["best_rank"], table["worst_rank"] = 1 + ahead.min(axis=0), 1 + ahead.max(axis=0)
    table["surely_behind"], table["surely_ahead"] = above.sum(axis=0), above.sum(axis=1)
    table["share_first"] = (ahead == 0).mean(axis=0)
    return table.sort_values(["mean_rank", "responder"], ignore_index=True)


def pairs_against_scores(
    verdicts: pd.DataFrame,
    scores: pd.DataFrame,
    *,
    n_resamples: int = 1000,
    ci_level: float = 0.95,
    rng: np.random.Generator,
) -> pd.DataFrame:
    """Compare a judge's verdicts on two replies with the scores it gave each alone.

    Parameters
    ----------
    verdicts
        Verdicts with orders combined, and with ``reply_a`` and ``reply_b``.
    scores
        Scores by the same raters.
    n_resamples, ci_level, rng
        As in :func:`~heart_utils.ratings.ratings.fit_ratings`.

    Returns
    -------
    pandas.DataFrame
        One row per rater and dimension: ``n_pairs`` with both, ``n_without_scores``,
        ``pairs_undecided`` and ``scores_tied`` (shares), ``n_decided`` by both, ``agree`` (share of
        those) with its interval, ``n_dialogues``, ``provisional``.

    Raises
    ------
    ScaleError
        If no rater has both on one dimension.

    Examples
    --------
    >>> by = {"rater": "judge", "dimension": "overall", "state": "valid"}
    >>> pair = {"dialogue_id": "d", "reply_a": "r1", "reply_b": "r2", "verdict": "a"}
    >>> scores = pd.DataFrame({"reply_id": ["r1", "r2"], "score": [4, 2]}).assign(**by)
    >>> rng = np.random.default_rng(1)
    >>> pairs = pairs_against_scores(pd.DataFrame([by | pair]), scores, n_resamples=0, rng=rng)
    >>> pairs["agree"].tolist()
    [1.0]
    """
    good = scores[scores["state"] == "valid"]
    mean = good.groupby(["rater", "dimension", "reply_id"])["score"].mean()
    keys = ["rater", "dimension"]
    pairs = verdicts[verdicts["state"].isin(["valid", "inconsistent"])].copy()
    for side in "ab":
        index = pd.MultiIndex.from_frame(pairs[[*keys, f"reply_{side}"]])
        pairs[f"score_{side}"] = mean.reindex(index).to_numpy()
    pairs["both"] = pairs["score_a"].notna() & pairs["score_b"].notna()
    if not pairs["both"].any():
        raise ScaleError(
            "No rater gave both verdicts and scores on one dimension: verdicts by"
            f" {_names(verdicts)}, scores by {_names(scores)}. Collect likert scores for the"
            " replies of these pairs with the same judges."
        )
    pairs["by_pair"] = np.sign(won_by_a(pairs) - 0.5).where(pairs["state"] == "valid", 0.0)
    pairs["by_score"] = np.sign(pairs["score_a"] - pairs["score_b"])
    pairs = pairs.assign(agree=pairs["by_pair"] * pairs["by_score"]).sort_values(
        "dialogue_id", kind="stable"
    )
    rows = []
    for (rater, dimension), every in pairs.groupby(keys, sort=True):
        group = every[every["both"]]
        if group.empty:
            continue
        decided, n_dialogues = group["agree"] != 0, group["dialogue_id"].nunique()
        low = high = np.nan
        if decided.any() and n_resamples and n_dialogues > 1:
            share = share_ci(group["agree"] > 0, decided, cluster=group["dialogue_id"], rng=rng,
                             n_resamples=n_resamples, ci_level=ci_level)  # fmt: skip
            low, high = share.ci_low, share.ci_high
        rows.append(
            {
                "rater": rater,
                "dimension": dimension,
                "n_pairs": len(group),
                "n_without_scores": len(every) - len(group),
                "pairs_undecided": (group["by_pair"] == 0).mean(),
                "scores_tied": (group["by_score"] == 0).mean(),
                "n_decided": decided.sum(),
                "agree": (group.loc[decided, "agree"] > 0).mean(),
                "ci_low": low,
                "ci_high": high,
                "n_dialogues": n_dialogues,
                "provisional": n_dialogues < ENOUGH_CLUSTERS,
            }
        )
    return pd.DataFrame(rows)


def _wide(means: pd.DataFrame, names: list[str]) -> pd.DataFrame:
    unknown = sorted(set(names) - set(means["dimension"]))
    if unknown:
        raise ScaleError(
            f"No scores on {', '.join(unknown)}; there are"
            f" {', '.join(sorted(means['dimension'].unique()))}."
        )
    keys = ["responder", "dimension"]
    twice = means.loc[means.duplicated(keys), keys]
    if len(twice):
        raise ScaleError(
            f"{tuple(twice.iloc[0])} has several rows; expected one mean per responder and"
            " dimension."
        )
    wide = means[means["dimension"].isin(names)].pivot_table("score", "responder", "dimension")[
        names
    ]
    gaps = np.argwhere(wide.isna().to_numpy())
    if len(gaps):
        responder, dimension = wide.index[gaps[0, 0]], names[gaps[0, 1]]
        raise ScaleError(
            f"{responder!r} has no score on {dimension!r}; every responder needs all of"
            f" {', '.join(names)}."
        )
    return wide


def _names(table: pd.DataFrame) -> str:
    return ", ".join(sorted(table["rater"].unique()))


@dataclass(frozen=True)
class Calibration:
    """Judges' scores on people's scale, each predicted by a curve that did not see it."""

    # a row per judge and dimension: ``n``, ``n_left_out``, ``rmse`` and ``bias`` (judge less
    # people), raw or calibrated
    table: pd.DataFrame  # ``rmse_mean`` is that of predicting people's mean alone
    # one row per judge, dimension and reply: ``score``, ``calibrated``, ``people``, ``fold``
    predictions: pd.DataFrame
    # ``score`` to ``calibrated``, fitted to all, or to all folds but that in ``left_out``
    curves: pd.DataFrame


def calibrate_scores(
    scores: pd.DataFrame, *, fold: str = "group", n_folds: int = 10
) -> Calibration:
    """Fit an isotonic curve from each judge's scores to people's, cross-fitted by fold.

    Parameters
    ----------
    scores
        People's rows (``rater_kind`` ``"human"``; several are averaged) and judges' on the same
        replies.
    fold
        The column whose values are kept together (``"group"``: the error is that of a new block).
    n_folds
        The most folds.

    Returns
    -------
    Calibration
        Judges by name, dimensions by name.

    Raises
    ------
    ScaleError
        If there are no people, no judges, no reply that both scored, or fewer than two folds.

    Examples
    --------
    >>> people = pd.DataFrame({"reply_id": range(40), "score": [1.0, 2, 3, 4] * 10})
    >>> people = people.assign(group=people["reply_id"] // 20, state="valid", dimension="empathy")
    >>> judge = people.assign(score=1.5 + people["score"] / 2)  # half people's spread
    >>> both = [people.assign(rater="ann", rater_kind="human")]
    >>> both += [judge.assign(rater="judge", rater_kind="model")]
    >>> calibrate_scores(pd.concat(both)).table[["rmse_raw", "rmse_calibrated"]].round(
    ...     2
    ... ).values.tolist()
    [[0.61, 0.0]]
    """
    with extra("stats"):
        from sklearn.isotonic import IsotonicRegression

    both, left_out = _beside_people(scores, fold)
    tables, predictions, curves = [], [], []
    for (rater, dimension), group in both.groupby(["rater", "dimension"], sort=True):
        folds = _folds(group[fold], n_folds, f"{rater} on {dimension}", fold)
        group = group.assign(fold=folds, calibrated=np.nan)
        constant, levels = np.zeros(len(group)), np.unique(group["score"])
        for number in np.unique(folds):
            held = folds == number
            curve = IsotonicRegression(out_of_bounds="clip").fit(
                group["score"][~held], group["people"][~held]
            )
            group.loc[held, "calibrated"] = curve.predict(group["score"][held])
            constant[held] = group["people"][~held].mean()
            curves.append(_curve(str(rater), str(dimension), number, levels, curve))
        raw, better = group["score"] - group["people"], group["calibrated"] - group["people"]
        tables.append(
            {
                "rater": rater,
                "dimension": dimension,
                "n": len(group),
                "n_left_out": left_out.get((rater, dimension), 0),
                "n_folds": len(np.unique(folds)),
                "rmse_raw": _rms(raw),
                "rmse_calibrated": _rms(better),
                "rmse_mean": _rms(constant - group["people"]),
                "bias_raw": raw.mean(),
                "bias_calibrated": better.mean(),
            }
        )
        predictions.append(
            group[["rater", "dimension", "reply_id", "score", "calibrated", "people", "fold"]]
        )
        whole = IsotonicRegression(out_of_bounds="clip").fit(group["score"], group["people"])
        curves.append(_curve(str(rater), str(dimension), None, levels, whole))
    return Calibration(
        pd.DataFrame(tables),
        pd.concat(predictions, ignore_index=True),
        pd.concat(curves, ignore_index=True),
    )


def _beside_people(scores: pd.DataFrame, fold: str) -> tuple[pd.DataFrame, pd.Series]:
    """Join a judge's valid scores with people's means; count what is left out."""
    if fold not in scores:
        present = ", ".join(map(str, scores.columns))
        raise ScaleError(
            f"scores: there is no column {fold!r} to cut folds by; there are {present}."
        )
    keys = ["dimension", "reply_id"]
    human = scores["rater_kind"] == "human"
    if not human.any() or human.all():
        present = "only people's" if human.any() else "no person's"
        raise ScaleError(
            f"scores hold {present} rows; calibration needs people's scores and a judge's for the"
            " same replies."
        )
    valid = scores["state"] == "valid"
    people = scores[human & valid].groupby(keys)["score"].mean().rename("people").reset_index()
    judges = scores[~human]
    both = judges[judges["state"] == "valid"].merge(people, on=keys)
    if both.empty:
        raise ScaleError(
            "No reply has valid scores by people and by a judge on one dimension, so no curve can"
            " be fitted."
        )
    every = judges.groupby(["rater", "dimension"]).size()
    kept = both.groupby(["rater", "dimension"]).size()
    return both, every.sub(kept, fill_value=0).astype(int)


def _folds(values: pd.Series, n_folds: int, what: str, column: str) -> NDArray[np.int64]:
    """Deal a column's values into folds, in order of appearance."""
    if values.isna().any():
        raise ScaleError(
            f"scores.{column}: {int(values.isna().sum())} rows of {what} have none, so they belong"
            " to no fold."
        )
    codes = np.asarray(pd.factorize(values)[0], dtype=np.int64) % n_folds
    if len(np.unique(codes)) < 2:
        raise ScaleError(
            f"scores.{column}: {what} has a single value ({values.iloc[0]!r}); cross-validation"
            " needs two or more. Cut folds by another column, such as fold='dialogue_id'."
        )
    return codes


def _curve(
    rater: str, dimension: str, left_out: int | None, levels: NDArray[np.float64], curve: Any
) -> pd.DataFrame:
    """Read a curve off at every score that the judge gave."""
    about = {
        "rater": rater,
        "dimension": dimension,
        "left_out": pd.array([left_out] * len(levels), dtype="Int64"),
    }
    return pd.DataFrame({**about, "score": levels, "calibrated": curve.predict(levels)})


def _rms(errors: pd.Series | NDArray[np.float64]) -> float:
    return float(np.sqrt(np.mean(np.square(errors))))
