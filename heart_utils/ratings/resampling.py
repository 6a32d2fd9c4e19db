"""Intervals from resampling whole clusters, by one rule: ``interval_ends`` and ``p_value``."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from heart_utils.ratings.verdicts import Array, Codes, VerdictsError

__all__ = ["Interval", "bootstrap_ci", "estimate_rng"]

Rng = np.random.Generator | None  # the source of chance; where there is none, one with a fixed seed
SEED = 20260109
# from this number on, ends are percentiles; below, SD times a t quantile covers better
MANY_CLUSTERS = 50
ENOUGH_CLUSTERS = 30  # below this number a result is provisional
NO_SPREAD = 1e-9  # a standard error below this part of what it is of is rounding: nothing varied
FEW_RATERS = 20  # below this number raters stand for themselves: they are fixed, and not resampled


@dataclass(frozen=True, eq=False)
class Interval:
    """An estimate and how far it may be off, over clusters like these."""

    estimate: float
    ci_low: float  #: ``nan`` where no interval can be had
    ci_high: float
    se: float
    ci_level: float  #: such as 0.95
    n_clusters: int  #: what was resampled
    n_undefined: int  #: resamples, left out, in which the statistic has no value (such as 0/0)
    provisional: bool  #: fewer than 30 clusters, or resamples that tell nothing
    replicates: Array  #: the statistic in each resample


def estimate_rng(seed: int, name: str) -> np.random.Generator:
    """Start the random generator of one estimate, independent of all others.

    Parameters
    ----------
    seed
        Of the whole analysis, zero or more.
    name
        Of the estimate, such as ``"ratings"``.

    Returns
    -------
    numpy.random.Generator
        The same for the same seed and name, whatever else runs. Pass it to one function only.

    Examples
    --------
    >>> estimate_rng(1, "ratings").random() == estimate_rng(1, "agreement").random()
    False
    """
    return np.random.default_rng(
        [seed, int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")]
    )


def as_rng(rng: Rng) -> np.random.Generator:
    return np.random.default_rng(SEED if rng is None else rng)


def sums_by(codes: Any, values: ArrayLike, *shape: int) -> Array:
    """Sum values, or rows of them, by codes, to this shape."""
    sums = np.zeros((*shape, *np.shape(values)[1:]))
    np.add.at(sums, codes, values)
    return sums


def ratio(up: NDArray[Any], down: NDArray[Any], otherwise: float = np.nan) -> Array:
    down = np.broadcast_to(down, np.shape(up))
    return np.asarray(np.divide(up, down, out=np.full(np.shape(up), otherwise), where=down > 0))


def draw_weights(n_clusters: int, n_resamples: int, rng: Rng = None) -> Array:
    check_resamples(n_resamples)
    if n_clusters < 2 or n_resamples == 0:
        return np.zeros((0, n_clusters))
    drawn = as_rng(rng).integers(0, n_clusters, size=(n_resamples, n_clusters))
    drawn += np.arange(n_resamples)[:, None] * n_clusters
    return (
        np.bincount(drawn.ravel(), minlength=n_resamples * n_clusters)
        .reshape(n_resamples, n_clusters)
        .astype(float)
    )


def bootstrap_ci(
    observations: pd.DataFrame,
    statistic: Callable[[pd.DataFrame], ArrayLike],
    *,
    cluster: str | pd.Series,
    rng: Rng = None,
    n_resamples: int = 1000,
    ci_level: float = 0.95,
    least: float = -np.inf,
    most: float = np.inf,
) -> Interval:
    """Compute a statistic with a bootstrap interval over whole clusters.

    Clusters are drawn, not rows. The statistic must be a function of sums.

    Parameters
    ----------
    observations
        One row each; every column but `cluster` is a number that may be summed.
    statistic
        Takes a table of sums, one row a resample, with these columns; returns one number a row,
        ``nan`` where it has no value.
    cluster
        A column of `observations`, or one value a row.
    rng
        By default one with a fixed seed.
    n_resamples
        0 for the estimate alone, 1,000 or more for printed results.
    ci_level
        Between 0 and 1.
    least, most
        The range of the statistic, such as 0 and 1 for a share; no end lies beyond it.

    Returns
    -------
    Interval
        Ends are ``nan`` where all clusters say the same of a number without a range;
        ``provisional`` below 30 clusters.

    Raises
    ------
    ValueError
        If there is only one cluster, a number or a cluster is missing, or an option is out of
        range.

    Notes
    -----
    With a range the interval is Wilson's, with the bootstrap's standard error (Franco et al. 2019,
    https://doi.org/10.1093/jssam/smy019). Otherwise it is t, or from 50 clusters on widened
    percentiles (Hesterberg 2015, https://doi.org/10.1080/00031305.2015.1089789).

    Examples
    --------
    >>> votes = pd.DataFrame({"agree": [1, 0, 1, 1], "n": 1, "dialogue_id": list("ddee")})
    >>> share = bootstrap_ci(votes, lambda sums: sums["agree"] / sums["n"], cluster="dialogue_id")
    >>> share.estimate, share.n_clusters, share.provisional
    (0.75, 2, True)
    """
    key = observations[cluster] if isinstance(cluster, str) else cluster
    numbers = observations.drop(columns=cluster) if isinstance(cluster, str) else observations
    if key.isna().any() or numbers.isna().to_numpy().any():
        raise ValueError(
            "bootstrap_ci: a cluster or a number is absent; drop such rows before, and say how"
            " many."
        )
    codes, names = pd.factorize(np.asarray(key))
    check_clusters(len(names), key.name)
    values = numbers.to_numpy(float)
    sums = np.column_stack(
        [np.bincount(codes, weights=column, minlength=len(names)) for column in values.T]
    )
    weights = np.vstack([np.ones(len(names)), draw_weights(len(names), n_resamples, rng)])
    all_values = np.asarray(
        statistic(pd.DataFrame(weights @ sums, columns=numbers.columns)), dtype=float
    )
    replicates = all_values[1:]
    defined = replicates[~np.isnan(replicates)]
    low, high = interval_of(
        float(all_values[0]), defined, len(names), ci_level, least=least, most=most
    )
    se, few = float(standard_error(defined[:, None], len(names))[0]), len(names) < ENOUGH_CLUSTERS
    provisional = few or (len(replicates) > 0 and bool(np.isnan(low)))
    n_undefined = len(replicates) - len(defined)
    return Interval(
        float(all_values[0]),
        low,
        high,
        se,
        ci_level,
        len(names),
        n_undefined,
        provisional,
        replicates,
    )


def share_ci(
    of: ArrayLike,
    among: ArrayLike,
    *,
    cluster: pd.Series,
    rng: Rng = None,
    n_resamples: int = 1000,
    ci_level: float = 0.95,
) -> Interval:
    """Compute a share, the sum of `of` over that of `among`, with an interval."""
    # With few clusters, which may be of unequal size: by an error, without replicates.
    counts = pd.DataFrame(
        {"of": np.asarray(of, dtype=float), "among": among}, index=cluster.index
    ).astype(float)
    if cluster[counts["among"] > 0].nunique() >= MANY_CLUSTERS:
        return bootstrap_ci(
            counts,
            lambda sums: sums["of"] / sums["among"].where(sums["among"] > 0),
            cluster=cluster,
            rng=rng,
            n_resamples=n_resamples,
            ci_level=ci_level,
            least=0.0,
            most=1.0,
        )
    share = float(counts["of"].sum() / (counts["among"].sum() or np.nan))
    influence = (counts["of"] - share * counts["among"]).to_numpy() / counts["among"].sum()
    codes, names = pd.factorize(cluster)
    n_clusters = len(names)
    check_clusters(n_clusters, cluster.name)
    se, even_clusters = clustered_error(influence, counts["among"].to_numpy(), codes)
    low, high = error_ends(share, se, even_clusters, ci_level, least=0.0, most=1.0)
    few = n_clusters < ENOUGH_CLUSTERS
    return Interval(share, float(low), float(high), se, ci_level, n_clusters, 0, few, np.empty(0))


def standard_error(replicates: Array, n_clusters: ArrayLike) -> Array:
    """Compute SD times sqrt(n / (n - 1)) (Efron 1982, section 5.6)."""
    n = np.broadcast_to(np.asarray(n_clusters, dtype=float), replicates.shape[1:])
    is_known = ~np.isnan(replicates)
    count = is_known.sum(axis=0)
    known = np.where(is_known, replicates, 0.0)
    mean = known.sum(axis=0) / np.maximum(count, 1)
    squares = (np.where(is_known, replicates - mean, 0.0) ** 2).sum(axis=0)
    variance = squares / np.maximum(count - 1, 1) * n / np.maximum(n - 1.0, 1.0)
    return np.where((count > 1) & (n > 1), np.sqrt(variance), np.nan)


def interval_ends(
    estimate: Array,
    replicates: Array,
    n_clusters: ArrayLike,
    ci_level: float,
    *,
    least: float = -np.inf,
    most: float = np.inf,
) -> tuple[Array, Array]:
    """Turn replicates into ends, by the rule of `bootstrap_ci`."""
    check_level(ci_level)
    n = np.broadcast_to(np.asarray(n_clusters), np.shape(estimate))
    if len(replicates) < 2:
        return np.full(n.shape, np.nan), np.full(n.shape, np.nan)
    se = standard_error(replicates, n)
    low, high = error_ends(estimate, se, n, ci_level, least=least, most=most)
    if not np.isfinite(most - least):
        for column in np.flatnonzero((n >= MANY_CLUSTERS) & ~np.isnan(low)):
            defined = replicates[~np.isnan(replicates[:, column]), column]
            quantile = stats.t.ppf((1.0 + ci_level) / 2.0, n[column] - 1)
            tail = stats.norm.sf(quantile * np.sqrt(n[column] / (n[column] - 1.0)))
            low[column], high[column] = np.clip(
                np.quantile(defined, [tail, 1.0 - tail]), least, most
            )
    return low, high


def error_ends(
    estimate: ArrayLike,
    se: ArrayLike,
    n_clusters: ArrayLike,
    ci_level: float,
    *,
    least: float = -np.inf,
    most: float = np.inf,
) -> tuple[Array, Array]:
    """Turn standard errors into ends: Wilson's in a range, else t."""
    check_level(ci_level)
    estimate, se, n = (np.asarray(part, dtype=float) for part in (estimate, se, n_clusters))
    quantile = stats.t.ppf((1.0 + ci_level) / 2.0, np.maximum(n - 1, 1))
    half_width = quantile * known_error(se, estimate)
    low, high = estimate - half_width, estimate + half_width
    if np.isfinite(most - least):
        inside = np.maximum((estimate - least) * (most - estimate), 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            # As many observations as have this error; at an end, or where all clusters agree to the
            # digit, the clusters.
            number = np.where((inside > 0) & (se != 0), inside / se**2, n)
        number = np.where(number > 0, number, np.nan)  # nothing was observed
        position, shrink = (estimate - least) / (most - least), 1.0 + quantile**2 / number
        centre = (position + quantile**2 / (2.0 * number)) / shrink
        variance = np.maximum(position * (1.0 - position), 0.0)
        half_width = (
            quantile / shrink * np.sqrt(variance / number + (quantile / (2.0 * number)) ** 2)
        )
        low, high = (
            least + (most - least) * end for end in (centre - half_width, centre + half_width)
        )
    absent = np.isnan(se) | np.isnan(estimate)
    return np.where(absent, np.nan, np.maximum(low, least)), np.where(
        absent, np.nan, np.minimum(high, most)
    )


def known_error(se: ArrayLike, estimate: ArrayLike = 1.0) -> Array:
    """Set standard errors to ``nan`` where they are zero up to rounding."""
    se = np.asarray(se, dtype=float)
    return np.where(se > NO_SPREAD * np.maximum(np.abs(estimate), 1e-3), se, np.nan)


def interval_of(
    estimate: float,
    replicates: Array,
    n_clusters: int,
    ci_level: float,
    *,
    least: float = -np.inf,
    most: float = np.inf,
) -> tuple[float, float]:
    low, high = interval_ends(
        np.array([estimate]), replicates[:, None], n_clusters, ci_level, least=least, most=most
    )
    return float(low[0]), float(high[0])


def interval_columns(
    ranges: Mapping[str, tuple[float, float]],
    estimate: Array,
    replicates: Array,
    n_clusters: ArrayLike,
    ci_level: float,
) -> dict[str, Array]:
    columns: dict[str, Array] = {}
    for number, (name, (least, most)) in enumerate(ranges.items()):
        value, again = estimate[..., number], replicates[..., number]
        low, high = interval_ends(value, again, n_clusters, ci_level, least=least, most=most)
        columns |= {name: value, f"{name}_low": low, f"{name}_high": high}
    return columns


def p_value(estimate: float, replicates: Array, n_clusters: int) -> float:
    """Test against zero, two-sided, in accord with ``interval_ends``."""
    # Percentiles cannot tell how far beyond the last resample zero lies; there the t distribution
    # of the standard error does.
    se = float(known_error(standard_error(replicates[:, None], n_clusters)[0], estimate))
    if np.isnan(se) or np.isnan(estimate):
        return float("nan")
    by_t = float(2.0 * stats.t.sf(abs(estimate) / se, n_clusters - 1))
    if n_clusters < MANY_CLUSTERS:
        return by_t
    drawn = np.sort(replicates[~np.isnan(replicates)])
    position = np.interp(0.0, drawn, np.arange(len(drawn))) / (len(drawn) - 1)
    beyond, least_seen = min(position, 1.0 - position), 1.0 / (len(drawn) - 1)
    factor = np.sqrt(n_clusters / (n_clusters - 1.0))
    p = float(2.0 * stats.t.sf(-stats.norm.ppf(max(beyond, least_seen)) / factor, n_clusters - 1))
    return min(p, by_t, 1.0) if beyond < least_seen else min(p, 1.0)


def holm(p: pd.Series, by: list[pd.Series] | None = None) -> pd.Series:
    """Adjust p values by Holm's procedure, within groups; NaN stays NaN."""
    # By hand, since statsmodels stops each time for a full collection of garbage.
    ranked = p.dropna().sort_values()
    keys = [pd.Series(0, ranked.index)] if by is None else by
    groups = ranked.groupby(keys)
    steps = groups.transform("size") - groups.cumcount()
    adjusted = (ranked * steps).groupby(keys).cummax().clip(upper=1.0)
    return adjusted.reindex(p.index).astype(float)


def interaction_codes(one: Codes, n_one: int, other: Codes, n_other: int) -> tuple[Codes, int]:
    key = one * n_other + other
    names = np.flatnonzero(np.bincount(key, minlength=n_one * n_other))
    return np.searchsorted(names, key), len(names)


def two_way_error(influence: Array, dialogue: Codes, rater: Codes) -> float:
    """Compute a two-way cluster-robust standard error.

    Cameron and others (2011), https://doi.org/10.1198/jbes.2010.07136.
    """
    cell, _ = interaction_codes(dialogue, dialogue.max() + 1, rater, rater.max() + 1)
    by_dialogue, by_rater, by_cell = (
        float((np.bincount(code, influence) ** 2).sum()) for code in (dialogue, rater, cell)
    )
    fewest = min(len(np.unique(dialogue)), len(np.unique(rater)))
    return float(
        np.sqrt(
            max(by_dialogue + by_rater - by_cell, by_dialogue, by_rater) * fewest / (fewest - 1.0)
        )
    )


def clustered_error(influence: Array, weight: Array, *clusters: Codes) -> tuple[float, float]:
    """Compute the standard error of a weighted mean over clusters, one or two ways, and their size.

    The size is the number of equal clusters with as much information. ``influence`` is a row's
    weight times its distance from the mean, over the sum of weights.
    """
    if len(clusters) > 1:
        return _two_ways(influence, weight, *clusters)
    # Each cluster is left out in turn, "CV3" as in ``spread.covariance``: MacKinnon, Nielsen and
    # Webb (2023),
    # https://doi.org/10.1016/j.jeconom.2022.04.001
    total = np.bincount(clusters[0], weight)
    weighs = total > 0
    number, share = int(weighs.sum()), total[weighs] / total.sum()
    if number < 2:
        return float("nan"), float(number)
    moved = np.bincount(clusters[0], influence)[weighs] / (1.0 - share)
    return float(np.sqrt((moved**2).sum() * (number - 1.0) / number)), 1.0 + _degrees(share)


def _two_ways(influence: Array, weight: Array, one: Codes, other: Codes) -> tuple[float, float]:
    """Add the jackknife variances of two clusterings, less that of their cells, never below either.

    MacKinnon, Nielsen and Webb (2024), https://arxiv.org/abs/2406.08880, with Satterthwaite's
    degrees of freedom; where one clustering has two clusters, the fewer.
    """
    cell, _ = interaction_codes(one, one.max() + 1, other, other.max() + 1)
    errors, evens = np.transpose(
        [clustered_error(influence, weight, code) for code in (one, other, cell)]
    )
    parts, degrees = errors[:2] ** 2, evens[:2] - 1.0
    variance = max(parts.sum() - errors[2] ** 2, parts.max())
    error = float(np.sqrt(variance))
    if not variance > 0.0 or min(len(np.unique(one)), len(np.unique(other))) == 2:
        return error, float(evens[:2].min())
    return error, 1.0 + max(variance**2 / float((parts**2 / degrees).sum()), 1.0)


def _degrees(share: Array) -> float:
    # Satterthwaite's, if what is in a cluster agrees: Bell and McCaffrey (2002),
    # https://www150.statcan.gc.ca/n1/pub/12-001-x/
    # 2002002/article/9058-eng.pdf. The moved means have covariances scale_i scale_j (1[i = j] -
    # share_i - share_j + squares).
    squares = float((share**2).sum())
    scale = (share / np.maximum(1.0 - share, 1e-12)) ** 2
    total, first, second = (float((scale * share**power).sum()) for power in range(3))
    own = scale * (1.0 - 2.0 * share + squares)
    every_pair = (
        (squares * total) ** 2
        - 4.0 * squares * total * first
        + 2.0 * total * second
        + 2.0 * first**2
    )
    spread = (
        every_pair - float((scale**2 * (squares - 2.0 * share) ** 2).sum()) + float((own**2).sum())
    )
    return max(float(own.sum()) ** 2 / spread, 1.0)


def refuse_few_raters(dialogue: Codes, rater: Codes, clusters: tuple[str, str]) -> None:
    """Refuse raters who are too few, or not separable from dialogues."""
    outer, inner = clusters
    n_dialogues, n_raters = len(np.unique(dialogue)), len(np.unique(rater))
    if n_raters < FEW_RATERS:
        raise VerdictsError(
            f"{n_raters} of {inner!r} are too few to stand for others like them (at least"
            f" {FEW_RATERS} are needed): take them as fixed and resample dialogues alone"
            f" (cluster={outer!r}), by rater if they differ."
        )
    n_cells = interaction_codes(dialogue, dialogue.max() + 1, rater, rater.max() + 1)[1]
    if n_cells in (n_dialogues, n_raters):
        inner, outer = (inner, outer) if n_cells == n_raters else (outer, inner)
        raise VerdictsError(
            f"Each {inner} belongs to one {outer} only, so the two cannot be told apart. "
            f"Resample the {outer} alone: it carries what is inside it (cluster={outer!r})."
        )


def check_clusters(n_clusters: int, name: object) -> None:
    if n_clusters < 2:
        raise VerdictsError(
            f"There is one {name} only, and an interval needs several to resample. Give another"
            " cluster, or ask for no resamples (n_resamples=0) to have the estimate alone."
        )


def check_level(ci_level: float) -> None:
    if not 0.0 < ci_level < 1.0:
        raise ValueError(
            f"ci_level is {ci_level!r}; expected a number between 0 and 1, such as 0.95."
        )


def check_resamples(n_resamples: int) -> None:
    if not isinstance(n_resamples, int | np.integer) or n_resamples < 0 or n_resamples == 1:
        raise ValueError(
            f"n_resamples is {n_resamples!r}; expected 1000 or so, or 0 for the estimate alone."
        )
