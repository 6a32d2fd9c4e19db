"""Are the dimensions one dimension? A multitrait-multimethod table of scores, and what scores vary with.

Dimensions are the traits, raters the methods. History and responder means are taken out first: what is left is what one rater
saw in one reply beyond "good responder" and "easy history". If dimensions are distinct, two raters agree more about the same
dimension than about two different ones [1]_. Raters may also agree because they are alike: two judges may share training data,
so what they have in common is no evidence for people. So a person with a judge, two judges, and two people are told apart.

.. rubric:: References

.. [1] Campbell and Fiske (1959), https://doi.org/10.1037/h0046016
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pandas as pd

from heart_utils.ratings.resampling import (
    ENOUGH_CLUSTERS,
    Rng,
    check_clusters,
    draw_weights,
    holm,
    interval_of,
    p_value,
    ratio,
    sums_by,
)
from heart_utils.ratings.verdicts import Array

__all__ = ["NOT_DISTINCT", "Halo", "HaloError", "measure_halo"]


NOT_DISTINCT = "not shown to be distinct"
EDGE = 1e-9


class HaloError(ValueError):
    """These scores cannot tell dimensions apart, nor show that they are one."""


@dataclass(frozen=True, eq=False)
class Halo:
    """How far dimensions are told apart."""

    correlations: pd.DataFrame  # residual correlations, rows and columns by (rater, dimension)
    # one row a dimension and ``kinds`` of two raters, such as ``human with model``: ``convergent`` (mean correlation of two
    # such raters on it), ``discriminant`` (of two raters, one on it and one on another), ``difference`` with ``ci_low``,
    # ``ci_high``, ``p``, ``p_holm`` (over the dimensions of one ``kinds``), and ``label``: empty, or :data:`NOT_DISTINCT`, or
    # why there is no estimate.
    dimensions: pd.DataFrame
    # Campbell and Fiske's second criterion, one row two raters (``one``, ``other``, ``kinds``) and dimension: ``convergent``,
    # ``same_rater`` (mean correlation of it with the other dimensions within either rater) and ``holds``, whether the first
    # is larger.
    second: pd.DataFrame
    # one row a rater: ``first_share`` (of the first eigenvalue) with ``ci_low`` and ``ci_high``.
    raters: pd.DataFrame
    n_histories: int  # histories used, those with a score missing, and what was resampled
    n_left_out: int
    n_clusters: int
    provisional: bool


def complete_scores(scores: pd.DataFrame) -> tuple[Array, list[str], list[list[str]], int]:
    """Lay valid scores out as a block of histories in which nobody left anything out."""
    valid = scores.assign(score=scores["score"].where(scores["state"] == "valid"))
    axes = ["history_id", "responder", "rater", "dimension"]
    found = [pd.factorize(valid[axis], sort=True) for axis in axes]
    shape = tuple(len(names) for _, names in found)
    places = tuple(codes for codes, _ in found)
    if len(np.unique(np.ravel_multi_index(places, shape))) < len(valid):
        raise HaloError("A rater scored one reply twice on one dimension; choose one protocol and one group before.")
    block = np.full(shape, np.nan)
    block[places] = valid["score"].to_numpy(float)
    whole = ~np.isnan(block).any(axis=(1, 2, 3))
    if not whole.any():
        raise HaloError(f"None of {shape[0]} histories has a valid score of every rater, responder and dimension.")
    of_history = scores.drop_duplicates("history_id").set_index("history_id")["dialogue_id"]
    histories = [str(name) for name, kept in zip(found[0][1], whole, strict=True) if kept]
    names = [[str(name) for name in labels] for _, labels in found[1:]]
    return block[whole], [str(of_history[history]) for history in histories], names, int((~whole).sum())


def measure_halo(scores: pd.DataFrame, *, rng: Rng = None, n_resamples: int = 1000, ci_level: float = 0.95) -> Halo:
    """Hold agreement on a dimension against agreement across dimensions.

    Parameters
    ----------
    scores : pandas.DataFrame
        The table of scores, with two raters, two dimensions and two responders or more. Without a column
        ``rater_kind`` all raters are of one kind.
    rng, n_resamples, ci_level
        As in :func:`~heart_utils.ratings.resampling.bootstrap_ci`.

    Returns
    -------
    Halo
        Tables. A rater without variation in a dimension has no correlation there, and is left out of its means.

    Raises
    ------
    HaloError
        If there is one rater, dimension or responder only, or no history is complete.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> quality = rng.normal(size=(20, 3))
    >>> rows = [(f"c{i}", "xyz"[j], rater, dimension, quality[i, j] + rng.normal(0, 0.5))
    ...     for i in range(20) for j in range(3) for rater in "kl" for dimension in ("warmth", "safety")]
    >>> scores = pd.DataFrame(rows, columns=["history_id", "responder", "rater", "dimension", "score"])
    >>> found = measure_halo(scores.assign(dialogue_id=scores["history_id"], state="valid"), rng=rng, n_resamples=50)
    >>> found.dimensions[["dimension", "label"]].values.tolist()  # both dimensions are one quality here
    [['safety', 'not shown to be distinct'], ['warmth', 'not shown to be distinct']]
    """
    block, clusters, (responders, raters, dimensions), n_left_out = complete_scores(scores)
    if min(len(responders), len(raters), len(dimensions)) < 2:
        raise HaloError(
            f"{len(responders)} responders, {len(raters)} raters and {len(dimensions)} dimensions: two of each are needed to "
            f"tell agreement on a dimension from agreement across dimensions."
        )
    found = _correlate(block, clusters, rng, n_resamples)
    size = len(raters), len(dimensions)
    table = found.reshape(-1, *size, *size)
    by_rater = scores.drop_duplicates("rater").set_index("rater")
    kinds = by_rater["rater_kind"].to_dict() if "rater_kind" in scores else {}
    meetings: dict[str, list[tuple[int, int]]] = {}
    for one, other in combinations(range(len(raters)), 2):
        both = sorted(str(kinds.get(raters[place], "rater")) for place in (one, other))
        meetings.setdefault(" with ".join(both), []).append((one, other))
    n_clusters = len(set(clusters))
    parts = [_distinct(table, pairs, dimensions, n_clusters, ci_level).assign(kinds=name) for name, pairs in meetings.items()]
    of_dimensions = pd.concat(parts, ignore_index=True)
    second = pd.concat([_second(table[0], pairs, raters, dimensions).assign(kinds=name) for name, pairs in meetings.items()])
    shares = [_first_share(table[:, place, :, place]) for place in range(len(raters))]
    of_raters = pd.DataFrame([_interval("first_share", share, n_clusters, ci_level, least=0.0, most=1.0) for share in shares])
    of_raters = of_raters.drop(columns="p").assign(rater=raters)
    index = pd.MultiIndex.from_product([raters, dimensions], names=["rater", "dimension"])
    correlations = pd.DataFrame(found[0], index=index, columns=index)
    few = n_clusters < ENOUGH_CLUSTERS
    return Halo(correlations, of_dimensions, second.reset_index(drop=True), of_raters, len(block), n_left_out, n_clusters, few)


def _correlate(block: Array, clusters: list[str], rng: Rng, n_resamples: int) -> Array:
    """Correlate residuals after history and responder means, in the data and in each resample."""
    n, n_responders = block.shape[:2]
    centred = (block - block.mean(axis=1, keepdims=True)).reshape(n, n_responders, -1)
    size = centred.shape[2]
    codes, names = pd.factorize(np.asarray(clusters))
    check_clusters(len(names), "dialogue_id")
    weights = np.vstack([np.ones(len(names)), draw_weights(len(names), n_resamples, rng)])
    products = sums_by(codes, np.einsum("nak,nal->nkl", centred, centred).reshape(n, -1), len(names))
    sums = sums_by(codes, centred.reshape(n, -1), len(names))
    count = weights @ np.bincount(codes, minlength=len(names))
    means = (weights @ sums).reshape(-1, n_responders, size)
    cross = (weights @ products).reshape(-1, size, size) - np.einsum("bak,bal->bkl", means, means) / count[:, None, None]
    spread = np.sqrt(np.maximum(np.einsum("bkk->bk", cross), 0.0))
    spread = np.where(spread > EDGE * np.sqrt(count)[:, None], spread, np.nan)
    return np.asarray(cross / spread[:, :, None] / spread[:, None, :])


def _distinct(
    table: Array, pairs: list[tuple[int, int]], dimensions: list[str], n_clusters: int, ci_level: float
) -> pd.DataFrame:
    """Say of each dimension whether two raters agree more about it than across it and another, over some pairs of raters."""
    convergent, discriminant = _compare(table, pairs)
    rows = [{"dimension": dimension, "convergent": near[0], "discriminant": far[0],
             **_interval("difference", near - far, n_clusters, ci_level)}
            for dimension, near, far in zip(dimensions, convergent.T, discriminant.T, strict=True)]  # fmt: skip
    found = pd.DataFrame(rows)
    known, found["p_holm"] = found["p"].notna(), holm(found["p"])
    shown = (found["p_holm"] <= 1.0 - ci_level) & (found["ci_low"] > 0)
    return found.assign(label=np.select([~known, shown], ["no variation to compare", ""], NOT_DISTINCT))


def _second(table: Array, pairs: list[tuple[int, int]], raters: list[str], dimensions: list[str]) -> pd.DataFrame:
    """Compare, for two raters and a dimension, their correlation on it with its correlations with others within a rater."""
    rows = []
    for one, other in pairs:
        for place, dimension in enumerate(dimensions):
            within = np.delete(np.stack([table[rater, place, rater] for rater in (one, other)]), place, axis=1)
            same, own = table[one, place, other, place], float(_nanmean(within, (0, 1)))
            rows.append((raters[one], raters[other], dimension, same, own, bool(same > own)))
    return pd.DataFrame(rows, columns=["one", "other", "dimension", "convergent", "same_rater", "holds"])


def _compare(table: Array, pairs: list[tuple[int, int]]) -> tuple[Array, Array]:
    """Average, for each dimension, over pairs of raters: the same dimension, and it with each other one."""
    n_dimensions = table.shape[2]
    crossed = np.stack([table[:, one, :, other] for one, other in pairs], axis=1)  # (resamples, pairs, dimensions, dimensions)
    both = (crossed + crossed.swapaxes(2, 3)) / 2.0
    same = np.einsum("bpdd->bpd", both)
    apart = both.copy()
    apart[:, :, np.arange(n_dimensions), np.arange(n_dimensions)] = np.nan
    return _nanmean(same, (1,)), _nanmean(apart, (1, 3))


def _nanmean(values: Array, axes: tuple[int, ...]) -> Array:
    return ratio(np.nansum(values, axis=axes), (~np.isnan(values)).sum(axis=axes))


def _first_share(table: Array) -> Array:
    """Give the first eigenvalue's share of the trace; ``nan`` where a dimension does not vary."""
    share = np.full(len(table), np.nan)
    whole = ~np.isnan(table).any(axis=(1, 2))
    if whole.any():
        share[whole] = np.linalg.eigvalsh(table[whole])[:, -1] / table.shape[1]
    return share


def _interval(name: str, values: Array, n_clusters: int, ci_level: float, **ends: float) -> dict[str, float]:
    low, high = interval_of(float(values[0]), values[1:], n_clusters, ci_level, **ends)
    p = p_value(float(values[0]), values[1:], n_clusters) if np.isfinite(low) else float("nan")
    return {name: float(values[0]), "ci_low": low, "ci_high": high, "p": p}
