"""Are the dimensions distinct? A multitrait-multimethod table of scores.

Campbell and Fiske (1959), https://doi.org/10.1037/h0046016.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations, product

import numpy as np
import pandas as pd

from heart_utils.judges.position import BiasError, tested
from heart_utils.ratings.resampling import (
    ENOUGH_CLUSTERS,
    Rng,
    check_clusters,
    draw_weights,
    holm,
    ratio,
    sums_by,
)
from heart_utils.ratings.verdicts import Array

__all__ = ["NOT_DISTINCT", "Halo", "measure_halo"]

NOT_DISTINCT = "not shown to be distinct"
AXES = ["responder", "rater", "dimension"]
EDGE = 1e-9


@dataclass(frozen=True, eq=False)
class Halo:
    """How far dimensions are told apart."""

    #: one row a dimension and ``kinds`` of two raters: ``convergent`` (mean correlation of the two
    #: on it), ``discriminant`` (of
    #: one on it and one on another), ``difference`` with its interval, ``p``, ``p_holm`` (over the
    #: dimensions), and ``label``
    dimensions: pd.DataFrame
    #: one row two raters and dimension: ``holds`` if ``convergent`` exceeds ``same_rater`` (other
    #: dimensions, either rater)
    second: pd.DataFrame
    #: one row a rater: ``first_share`` (of the first eigenvalue) with ``ci_low`` and ``ci_high``
    raters: pd.DataFrame
    n_histories: int  #: histories used, those with a score missing, and what was resampled
    n_left_out: int
    n_clusters: int
    provisional: bool


def measure_halo(
    scores: pd.DataFrame, *, rng: Rng = None, n_resamples: int = 1000, ci_level: float = 0.95
) -> Halo:
    """Compare agreement on a dimension with agreement across dimensions.

    Parameters
    ----------
    scores, rng, n_resamples, ci_level
        As in :func:`~heart_utils.ratings.resampling.bootstrap_ci`.

    Returns
    -------
    Halo
        Tables; a rater without variation in a dimension has no correlation there, and is left out
        of its means.

    Raises
    ------
    BiasError
        If there are fewer than two raters, dimensions or responders, a score twice, or no history
        is complete.

    Examples
    --------
    >>> from dataclasses import replace
    >>> from heart_utils.simulate.study import DEFAULT_PANELS, simulate_study
    >>> lines, rng = ("warmth", "safety"), np.random.default_rng(1)
    >>> asked = {"dimensions": lines, "pairs": "all", "n_dialogues": 20}
    >>> asked["panels"] = [replace(panel, scores=True) for panel in DEFAULT_PANELS]
    >>> scores = simulate_study(rng=rng, strengths=3, **asked).scores
    >>> measure_halo(scores.assign(rater=scores["rater_kind"]), rng=rng, n_resamples=50).dimensions[
    ...     "kinds"
    ... ].tolist()
    ['human with model', 'human with model']
    """
    responders, raters, dimensions = (sorted(scores[axis].unique()) for axis in AXES)
    if min(len(responders), len(raters), len(dimensions)) < 2:
        raise BiasError(
            f"{len(responders)} responders, {len(raters)} raters and {len(dimensions)} dimensions:"
            " two of each are needed to tell agreement on a dimension from agreement across"
            " dimensions."
        )
    whole = _complete(scores, pd.MultiIndex.from_product([responders, raters, dimensions]))
    clusters = whole.index.get_level_values("dialogue_id")
    size, n_clusters = (len(raters), len(dimensions)), clusters.nunique()
    block = np.ascontiguousarray(whole, dtype=float).reshape(len(whole), len(responders), -1)
    table = _correlate(block, clusters, rng, n_resamples).reshape(-1, *size, *size)
    kinds = scores.drop_duplicates("rater").set_index("rater")["rater_kind"]
    meetings: dict[str, list[tuple[int, int]]] = {}
    for one, other in combinations(range(len(raters)), 2):
        meetings.setdefault(
            " with ".join(sorted([kinds[raters[one]], kinds[raters[other]]])), []
        ).append((one, other))
    first = [
        _distinct(table, pairs, dimensions, n_clusters, ci_level).assign(kinds=name)
        for name, pairs in meetings.items()
    ]
    second = [
        _second(table[0], pairs, raters, dimensions).assign(kinds=name)
        for name, pairs in meetings.items()
    ]
    shares = [_first_share(table[:, number, :, number]) for number in range(len(raters))]
    ends = [tested(share, n_clusters, ci_level, least=0.0, most=1.0) for share in shares]
    of_raters = pd.DataFrame(ends).assign(first_share=[share[0] for share in shares], rater=raters)
    return Halo(
        dimensions=pd.concat(first, ignore_index=True),
        second=pd.concat(second, ignore_index=True),
        raters=of_raters.drop(columns="p"),
        n_histories=len(whole),
        n_left_out=scores["history_id"].nunique() - len(whole),
        n_clusters=n_clusters,
        provisional=n_clusters < ENOUGH_CLUSTERS,
    )


def _complete(scores: pd.DataFrame, columns: pd.MultiIndex) -> pd.DataFrame:
    """Arrange valid scores as histories by responder, rater and dimension.

    Only histories in which no score is missing.
    """
    valid = scores.assign(score=scores["score"].where(scores["state"] == "valid"))
    if valid.duplicated(["history_id", *AXES]).any():
        raise BiasError(
            "A rater scored one reply twice on one dimension; choose one protocol and one group"
            " before."
        )
    wide = valid.set_index(["history_id", "dialogue_id", *AXES])["score"].unstack(AXES)  # noqa: PD010
    whole = wide.reindex(columns=columns).dropna()
    if whole.empty:
        raise BiasError(
            f"None of {len(wide)} histories has a valid score of every rater, responder and"
            " dimension."
        )
    return whole


def _correlate(block: Array, clusters: pd.Index, rng: Rng, n_resamples: int) -> Array:
    """Correlate residuals after history and responder means, in the data and in each resample."""
    n, n_responders, size = block.shape
    centred = block - block.mean(axis=1, keepdims=True)
    codes, names = pd.factorize(clusters)
    check_clusters(len(names), "dialogue_id")
    weights = np.vstack([np.ones(len(names)), draw_weights(len(names), n_resamples, rng)])
    products = sums_by(
        codes, np.einsum("nak,nal->nkl", centred, centred).reshape(n, -1), len(names)
    )
    sums = sums_by(codes, centred.reshape(n, -1), len(names))
    count = weights @ np.bincount(codes, minlength=len(names))
    means = (weights @ sums).reshape(-1, n_responders, size)
    cross = (weights @ products).reshape(-1, size, size) - np.einsum(
        "bak,bal->bkl", means, means
    ) / count[:, None, None]
    spread = np.sqrt(np.maximum(np.einsum("bkk->bk", cross), 0.0))
    spread = np.where(spread > EDGE * np.sqrt(count)[:, None], spread, np.nan)
    return np.asarray(cross / spread[:, :, None] / spread[:, None, :])


def _distinct(
    table: Array,
    pairs: list[tuple[int, int]],
    dimensions: list[str],
    n_clusters: int,
    ci_level: float,
) -> pd.DataFrame:
    """Test for each dimension whether raters agree more about it than across dimensions."""
    # (resamples, pairs, dimensions, dimensions)
    across_raters = np.stack([table[:, one, :, other] for one, other in pairs], axis=1)
    both = (across_raters + across_raters.swapaxes(2, 3)) / 2.0
    diagonal = np.eye(len(dimensions), dtype=bool)
    convergent = _nanmean(both[:, :, diagonal], (1,))
    discriminant = _nanmean(np.where(diagonal, np.nan, both), (1, 3))
    difference = convergent - discriminant
    tests = pd.DataFrame([tested(values, n_clusters, ci_level) for values in difference.T])
    tests = tests.assign(
        dimension=dimensions,
        convergent=convergent[0],
        discriminant=discriminant[0],
        difference=difference[0],
    )
    known, tests["p_holm"] = tests["p"].notna(), holm(tests["p"])
    distinct = (tests["p_holm"] <= 1.0 - ci_level) & (tests["ci_low"] > 0)
    return tests.assign(
        label=np.select([~known, distinct], ["no variation to compare", ""], NOT_DISTINCT)
    )


def _second(
    table: Array, pairs: list[tuple[int, int]], raters: list[str], dimensions: list[str]
) -> pd.DataFrame:
    """Compare, for two raters and a dimension, agreement on it with correlations within a rater."""
    rows = []
    for (one, other), (number, dimension) in product(pairs, enumerate(dimensions)):
        within = np.delete(
            np.stack([table[rater, number, rater] for rater in (one, other)]), number, axis=1
        )
        rows.append(
            (
                raters[one],
                raters[other],
                dimension,
                table[one, number, other, number],
                float(_nanmean(within, (0, 1))),
            )
        )
    comparisons = pd.DataFrame(
        rows, columns=["one", "other", "dimension", "convergent", "same_rater"]
    )
    return comparisons.assign(holds=comparisons["convergent"] > comparisons["same_rater"])


def _nanmean(values: Array, axes: tuple[int, ...]) -> Array:
    return ratio(np.nansum(values, axis=axes), (~np.isnan(values)).sum(axis=axes))


def _first_share(table: Array) -> Array:
    """Compute the first eigenvalue's share of the trace; ``nan`` if a dimension is constant."""
    share = np.full(len(table), np.nan)
    whole = ~np.isnan(table).any(axis=(1, 2))
    if whole.any():
        share[whole] = np.linalg.eigvalsh(table[whole])[:, -1] / table.shape[1]
    return share
