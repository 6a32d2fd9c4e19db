"""Rank correlations: observers with recipients, ratings with size, and orders that change."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations, product
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from heart_utils.ratings.resampling import (
    ENOUGH_CLUSTERS,
    Rng,
    as_rng,
    draw_weights,
    holm,
    interval_of,
    ratio,
)
from heart_utils.ratings.verdicts import (
    AgreementError,
    Array,
    Codes,
    complete_starts,
)
from heart_utils.tables import need_columns

__all__ = [
    "OUTCOMES",
    "ScalingError",
    "Trend",
    "correlate_scale",
    "order_changes",
    "spearman_interval",
    "track_recipients",
]


def order_changes(
    first: pd.DataFrame,
    second: pd.DataFrame,
    *,
    cluster: str = "dialogue_id",
    n_halves: int = 200,
    n_resamples: int = 1000,
    ci_level: float = 0.95,
    rng: Rng = None,
) -> pd.DataFrame:
    """Count pairs of responders that two measures order differently, beside what chance changes.

    A reversal is *shown* if both differences are certain by paired t, of opposite sign, adjusted
    over pairs by Holm [1]_.

    Parameters
    ----------
    first
        Scores: ``responder``, the cluster and ``score``.
    second
        Scores by the second measure; what both have is compared.
    cluster
        What was sampled: the starts.
    n_halves
        How often starts are cut in halves.
    n_resamples
        Resamples of the starts; 0 for no interval.
    ci_level
        Level of the interval and of the tests.
    rng
        The source of chance.

    Returns
    -------
    pandas.DataFrame
        One row a comparison, with ``share`` of pairs, ``n_pairs``, ``n_clusters`` on each side;
        ``excess`` with its interval:

        - ``same starts``: in another order by the second measure;
        - ``shown reversed``, ``shown the same``, ``not shown``: by the tests;
        - ``other starts``: the first measure on one half against the second on the other;
        - ``first again``, ``second again``: one measure on both halves, the floor of chance;
        - ``excess``: ``other starts`` less ``second again``.

    Raises
    ------
    AgreementError
        If fewer than two responders or four starts are common to both.

    References
    ----------
    .. [1] Gail and Simon (1985), https://doi.org/10.2307/2530862

    Examples
    --------
    >>> starts = pd.DataFrame({"dialogue_id": range(4), "m": [1, 2, 1, 1], "n": 3, "o": 5})
    >>> starts = starts.melt("dialogue_id", var_name="responder", value_name="score")
    >>> second = starts.assign(score=-starts["score"])
    >>> shares = order_changes(starts, second, n_resamples=0).set_index("compared")["share"]
    >>> shares[["same starts", "shown reversed", "not shown"]].round(2).tolist()
    [1.0, 0.67, 0.33]
    """
    both = complete_starts(first, second, cluster)
    one, other = (both[name].to_numpy(dtype=float) for name in ("first", "second"))
    left, right = np.triu_indices(len(one[0]), 1)
    rng = as_rng(rng)
    halves = [np.array_split(rng.permutation(len(both)), 2) for _ in range(n_halves)]
    weights = np.vstack([np.ones(len(both)), draw_weights(len(both), n_resamples, rng)])

    def orders(half: Codes) -> list[Array]:
        sums = [weights[:, half] @ scores[half] for scores in (one, other)]
        return [np.sign(total[:, left] - total[:, right]).astype(np.int8) for total in sums]

    again = np.zeros((3, len(weights)))
    for half, rest in halves:
        (start, end), (start_rest, end_rest) = orders(half), orders(rest)
        for number, compared in enumerate(
            [(start, end_rest), (start, start_rest), (end, end_rest)]
        ):
            again[number] += np.not_equal(*compared).mean(axis=1)
    others, first_again, second_again = again / n_halves
    excess = others - second_again
    gaps = [scores[:, left] - scores[:, right] for scores in (one, other)]
    first_order, second_order = (np.sign(gap.mean(axis=0)) for gap in gaps)
    changed = first_order != second_order
    is_shown = _both_certain(*gaps) <= 1.0 - ci_level
    shares = {
        "same starts": changed.mean(),
        "shown reversed": (is_shown & changed).mean(),
        "shown the same": (is_shown & ~changed).mean(),
        "not shown": (~is_shown).mean(),
        "other starts": others[0],
        "first again": first_again[0],
        "second again": second_again[0],
        "excess": excess[0],
    }
    low, high = interval_of(excess[0], excess[1:], len(both), ci_level, least=-1.0, most=1.0)
    table = pd.DataFrame({"compared": list(shares), "share": list(shares.values())})
    on_half = ~table["compared"].isin(list(shares)[:4])
    ends = {"ci_low": low, "ci_high": high, "ci_level": ci_level}
    table.loc[table["compared"] == "excess", list(ends)] = list(ends.values())
    return table.assign(n_pairs=len(left), n_clusters=len(both) // (1 + on_half))


def _both_certain(one: Array, other: Array) -> Array:
    p = []
    for gaps in (one, other):
        varies = gaps.std(axis=0) > 1e-9 * np.abs(gaps).max(axis=0)
        tested = stats.ttest_1samp(np.where(varies, gaps, np.nan), 0.0).pvalue
        p.append(np.nan_to_num(tested, nan=1.0))
    return holm(pd.Series(np.maximum(*p))).to_numpy()


OUTCOMES = ("seeker_empathy", "seeker_relevance", "distress_drop")
"""The seeker's scores of the supporter, and distress before minus distress after."""


def track_recipients(
    values: pd.DataFrame,
    histories: pd.DataFrame,
    *,
    by: Sequence[str] = ("code",),
    outcomes: Sequence[str] = OUTCOMES,
    n_resamples: int = 1000,
    ci_level: float = 0.95,
    rng: Rng = None,
) -> pd.DataFrame:
    """Correlate observers' codes of a dialogue with its seeker's reports (Spearman).

    Parameters
    ----------
    values
        One row a ``history_id`` and combination of `by`, with ``value``.
    histories
        The table with the seeker's answers.
    by
        Columns of `values`.
    outcomes
        Which of :data:`OUTCOMES`.
    n_resamples, ci_level, rng
        As in :func:`~heart_utils.ratings.resampling.bootstrap_ci`.

    Returns
    -------
    pandas.DataFrame
        One row a combination and outcome: columns of `by`, ``outcome``, ``correlation``,
        ``ci_low``, ``ci_high``, ``ci_level``, ``n``, ``n_missing`` (outcomes), ``n_clusters``,
        ``provisional``.

    Raises
    ------
    AgreementError
        If a history appears twice in a combination, or no value has an outcome.

    Examples
    --------
    >>> told = pd.DataFrame({"history_id": list("ghij"), "seeker_empathy": [2, 3, 5, None]})
    >>> told["dialogue_id"] = told["history_id"]
    >>> seen = told[["history_id"]].assign(code="q", value=[0.1, 0.2, 0.4, 0.3])
    >>> tracked = track_recipients(seen, told, outcomes=["seeker_empathy"], n_resamples=0)
    >>> tracked[["correlation", "n"]].values.tolist()
    [[1.0, 3.0]]
    """
    drop = ["distress_before", "distress_after"]
    report_columns = [
        column for name in outcomes for column in (drop if name == "distress_drop" else [name])
    ]
    if missing := [
        name for name in ("history_id", "dialogue_id", *report_columns) if name not in histories
    ]:
        raise AgreementError(
            f"histories have no column {', '.join(missing)}; only ESConv's seekers answered."
        )
    reports = (
        histories.assign(distress_drop=histories[drop[0]] - histories[drop[1]])
        if drop[0] in report_columns
        else histories
    )
    need_columns(values, ["history_id", "value", *by], AgreementError)
    if values.duplicated(["history_id", *by]).any():
        row = values.loc[values.duplicated(["history_id", *by]), ["history_id", *by]].iloc[0]
        raise AgreementError(
            f"{dict(row)} has more than one value; average them first, or add what tells them apart"
            " to `by`."
        )
    joined = values.dropna(subset="value").merge(
        reports[["history_id", "dialogue_id", *outcomes]], on="history_id"
    )
    if joined[list(outcomes)].isna().to_numpy().all():
        raise AgreementError("No history with a value has an outcome by its seeker.")
    rows = []
    for outcome in outcomes:
        # One draw serves all groups: the dialogues are the same.
        clusters = pd.Index(joined.loc[joined[outcome].notna(), "dialogue_id"].unique())
        drawn = draw_weights(len(clusters), n_resamples, rng)
        for group, part in joined.groupby(list(by), sort=True):
            correlation = _correlate(
                part, outcome, clusters.get_indexer(pd.Index(part["dialogue_id"])), drawn, ci_level
            )
            rows.append({**dict(zip(by, group, strict=True)), "outcome": outcome, **correlation})
    return pd.DataFrame(rows)


def _correlate(
    part: pd.DataFrame, outcome: str, where: Codes, drawn: Array, ci_level: float
) -> dict[str, object]:
    has_outcome = part[outcome].notna().to_numpy()
    rows, where = part[has_outcome], where[has_outcome]
    n_clusters = len(np.unique(where))
    x, y = (
        np.unique(rows[column].to_numpy(float), return_inverse=True)[1]
        for column in ("value", outcome)
    )
    weights = np.vstack([np.ones(len(rows)), drawn[:, where]])
    ranks = np.stack([_ranks(x, weights), _ranks(y, weights)])
    total = np.maximum(weights.sum(axis=-1, keepdims=True), 1.0)
    ranks = ranks - (weights * ranks).sum(axis=-1, keepdims=True) / total
    (xx, xy), (_, yy) = np.einsum("irn,jrn->ijr", ranks, weights * ranks)
    correlations = ratio(xy, np.where(xx * yy > 1e-18, np.sqrt(xx * yy), 0.0))
    low, high = interval_of(
        float(correlations[0]), correlations[1:], max(n_clusters, 1), ci_level, least=-1.0, most=1.0
    )
    return {
        "correlation": float(correlations[0]),
        "ci_low": low,
        "ci_high": high,
        "ci_level": ci_level,
        "n": len(rows),
        "n_missing": int((~has_outcome).sum()),
        "n_clusters": n_clusters,
        "provisional": n_clusters < ENOUGH_CLUSTERS,
    }


def _ranks(codes: Codes, weights: Array) -> Array:
    order = np.argsort(codes, kind="stable")
    starts = np.searchsorted(codes[order], np.unique(codes))
    counts = np.add.reduceat(weights[:, order], starts, axis=1)
    return np.asarray((np.cumsum(counts, axis=1) - counts / 2.0)[:, codes])


LEAST_MODELS = 4
EXACT = 8
"""Up to so many models all orders are tried (40,320 of them); above, orders are drawn."""


class ScalingError(ValueError):
    """There is nothing to correlate."""


def spearman_interval(
    rho: float, n: int, *, method: str = "fisher", ci_level: float = 0.95
) -> tuple[float, float]:
    r"""Compute the interval of a rank correlation from its value and the number of models.

    On the scale of :math:`\operatorname{artanh}\rho` the variance is :math:`1/(n-3)` (Fisher) or
    :math:`(1 + \rho^2/2)/(n-3)`: Bonett and Wright (2000), https://doi.org/10.1007/BF02294183.

    Parameters
    ----------
    rho
        Spearman's correlation, inside -1 and 1.
    n
        Number of models, four or more.
    method
        ``"fisher"`` or ``"bonett-wright"``.
    ci_level
        Level of the interval.

    Returns
    -------
    tuple of float
        Lower and upper end.

    Raises
    ------
    ScalingError
        If models are too few, rho is not inside -1 and 1, or the method is unknown.

    Examples
    --------
    >>> [round(end, 2) for end in spearman_interval(0.53, 16)]
    [0.05, 0.81]
    """
    if method not in ("fisher", "bonett-wright"):
        raise ScalingError(f"method is {method!r}, expected 'fisher' or 'bonett-wright'.")
    if n < LEAST_MODELS or not -1 < rho < 1:
        raise ScalingError(
            f"No such interval for a correlation of {rho} over {n} models: {LEAST_MODELS} or more,"
            " inside ±1."
        )
    spread = np.sqrt((1 + (rho**2 / 2 if method == "bonett-wright" else 0)) / (n - 3))
    reach = stats.norm.ppf((1 + ci_level) / 2) * spread
    return float(np.tanh(np.arctanh(rho) - reach)), float(np.tanh(np.arctanh(rho) + reach))


@dataclass(frozen=True, eq=False)
class Trend:
    """A rank correlation over models, from several sides."""

    rho: float  #: spearman's, over so many models
    n: int
    #: ``interval`` (``fisher``, ``bonett-wright``), ``ci_low``, ``ci_high``, ``ci_level``
    intervals: pd.DataFrame
    #: ``shuffled`` (``all``, ``within_families``, ``between_families``), ``p_value``, ``why_not``
    p_values: pd.DataFrame
    left_out: pd.DataFrame  #: a row a model: ``responder`` and ``rho`` without it


def correlate_scale(
    models: pd.DataFrame,
    *,
    x: str,
    n_shuffles: int = 10_000,
    ci_level: float = 0.95,
    rng: np.random.Generator,
) -> Trend:
    """Correlate a rating with what a model takes, or is, by ranks.

    The p values, of shuffles of all models, within families and of families' means, are about
    relabelling these models, not about models to come.

    Parameters
    ----------
    models
        A row a model: ``responder``, `x`, ``rating`` and ``family`` if known; incomplete rows are
        out.
    x
        What is correlated with the rating.
    n_shuffles
        Orders drawn, where not all can be tried.
    ci_level, rng
        As in :func:`~heart_utils.ratings.resampling.bootstrap_ci`.

    Returns
    -------
    Trend

    Raises
    ------
    ScalingError
        If fewer than four models have both, or all have the same.

    Examples
    --------
    >>> models = pd.DataFrame({"responder": list("abcde"), "ms": [1, 2, 3, 8, 20]})
    >>> models["rating"] = [1400, 1450, 1500, 1480, 1600]
    >>> round(correlate_scale(models, x="ms", rng=np.random.default_rng(1)).rho, 3)
    0.9
    """
    kept = models.dropna(subset=[x, "rating"]).reset_index(drop=True)
    if len(kept) < LEAST_MODELS:
        raise ScalingError(
            f"{len(kept)} of {len(models)} models have both {x} and rating; a trend takes"
            f" {LEAST_MODELS} or more."
        )
    one, other = kept[x].to_numpy(float), kept["rating"].to_numpy(float)
    for name, values in ((x, one), ("rating", other)):
        if len(set(values)) == 1:
            raise ScalingError(
                f"All {len(kept)} models have the same {name}, so nothing can move with it."
            )
    rho = _rho(one, other)
    rows = []
    if abs(rho) < 1:
        for method in ("fisher", "bonett-wright"):
            ends = spearman_interval(rho, len(kept), method=method, ci_level=ci_level)
            rows.append((method, *ends, ci_level))
    without = [
        _rho(np.delete(one, left_out), np.delete(other, left_out)) for left_out in range(len(kept))
    ]

    def shuffled(
        name: str, why_not: str | None, x: Array, y: Array, within: NDArray[Any]
    ) -> tuple[str, float, str | None]:
        return name, np.nan if why_not else _p_value(x, y, within, n_shuffles, rng), why_not

    p_values = [shuffled("all", None, one, other, np.zeros(len(one)))]
    if "family" in kept:
        codes = pd.factorize(kept["family"].fillna(kept["responder"]))[0]
        sizes = np.bincount(codes)
        first, second = (np.bincount(codes, stats.rankdata(part)) / sizes for part in (one, other))
        alone = None if sizes.max() > 1 else "no family has two models"
        p_values.append(shuffled("within_families", alone, one, other, codes))
        enough = len(sizes) >= LEAST_MODELS
        few = None if enough else f"{len(sizes)} families; it takes {LEAST_MODELS}"
        p_values.append(shuffled("between_families", few, first, second, np.zeros(len(sizes))))
    return Trend(
        rho=rho,
        n=len(kept),
        intervals=pd.DataFrame(rows, columns=["interval", "ci_low", "ci_high", "ci_level"]),
        p_values=pd.DataFrame(p_values, columns=["shuffled", "p_value", "why_not"]),
        left_out=pd.DataFrame({"responder": kept["responder"], "rho": without}),
    )


def _rho(one: ArrayLike, other: ArrayLike) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", stats.ConstantInputWarning)
        return float(np.clip(stats.spearmanr(one, other).statistic, -1.0, 1.0))


def _p_value(
    one: Array, other: Array, codes: NDArray[Any], n_shuffles: int, rng: np.random.Generator
) -> float:
    places = np.argsort(codes, kind="stable")
    first, second = (
        ranks - ranks.mean()
        for ranks in (stats.rankdata(one)[places], stats.rankdata(other)[places])
    )
    n, exact = len(one), len(one) <= EXACT
    if exact:
        groups = [np.flatnonzero(codes[places] == code) for code in np.unique(codes)]
        orders = np.array([np.concatenate(order) for order in product(*map(permutations, groups))])
    else:  # a random key inside each code's own range sorts to a shuffle within codes
        orders = np.argsort(codes[places] + rng.random((n_shuffles, n)), axis=1)
    shuffled = np.abs(first[orders] @ second)
    as_far = int((shuffled >= abs(float(first @ second)) - 1e-9).sum())
    return as_far / len(orders) if exact else (as_far + 1) / (len(orders) + 1)
