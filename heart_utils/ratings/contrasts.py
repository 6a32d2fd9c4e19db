"""Contrasts of strengths between adversarial histories and their calm twins."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from heart_utils.ratings.bradley_terry import BradleyTerry, count_wins
from heart_utils.ratings.resampling import (
    Rng,
    as_rng,
    check_clusters,
    draw_weights,
    interval_ends,
    standard_error,
)
from heart_utils.ratings.spread import FLAT
from heart_utils.ratings.verdicts import Array, RatingsError, is_simulated, need, read_verdicts

__all__ = ["TwinContrasts", "twin_contrasts"]


TWINS = ("adversarial", "calm_twin")
SAME = 1e-9
# up to this number of dialogues every way to flip signs is tried; above, ways are drawn
ALL_FLIPS = 14


@dataclass(frozen=True, eq=False)
class TwinContrasts:
    """How gaps between responders differ between adversarial histories and their calm twins."""

    #: a row a ``contrast``: ``calm``, ``adversarial``, ``delta`` with interval, ``p_value`` (sign
    #: flips)
    table: pd.DataFrame
    n_flips: int  #: ways to flip signs behind each p value; with all of them it is exact
    n_unpaired: int  #: verdicts left out because their dialogue has no verdict on its twin


def twin_contrasts(
    verdicts: pd.DataFrame,
    *,
    contrasts: Mapping[str, tuple[Sequence[str], Sequence[str]]] | None = None,
    dimension: str = "overall",
    n_resamples: int = 1000,
    n_flips: int = 2000,
    ci_level: float = 0.95,
    rng: Rng = None,
) -> TwinContrasts:
    r"""Compare gaps of strength in adversarial histories with those in their calm twins.

    Does a responder lose more than others when a seeker becomes hostile? Leaderboards of slices
    have separate zero points, so only differences can be compared:

    .. math::

        \Delta_{ij} = (\theta_i - \theta_j)_\text{adversarial} - (\theta_i - \theta_j)_\text{calm},

    both fitted to the same resampled dialogues. The test flips, dialogue by dialogue, which twin is
    called adversarial: if the slice changes nothing, all ways of flipping are equally likely.

    Parameters
    ----------
    verdicts : pandas.DataFrame
        Of the slices ``adversarial`` and ``calm_twin``; ``dialogue_id`` is that of the original,
        which twins share.
    contrasts : mapping of str to two lists, optional
        Name -> two lists of responders, whose mean strengths are compared; by default every pair of
        responders.
    dimension, n_resamples
        As in :func:`~heart_utils.ratings.ratings.fit_ratings`.
    n_flips : int
        Ways to flip signs (all of them where dialogues are few).
    ci_level, rng
        As in :func:`~heart_utils.ratings.ratings.fit_ratings`.

    Returns
    -------
    TwinContrasts
        ``table`` has one row a contrast: ``contrast``, ``calm`` and ``adversarial`` (the difference
        in either slice, log-odds), ``delta`` with ``se``, ``ci_low`` and ``ci_high``, ``p_value``,
        ``n_clusters``. Where someone won or lost every comparison of a slice, a contrast is
        ``penalised``: tested, but without interval, as is one that all dialogues put alike.
        ``n_flips`` and ``n_unpaired`` count the ways of flipping used, and the verdicts without a
        twin.

    Raises
    ------
    RatingsError
        If no dialogue has both slices, or a contrast does not name two lists of responders.
    NotComparableError
        If the verdicts of a slice do not link all responders.

    Notes
    -----
    A sign-flip test is exact if the two twins of a dialogue are exchangeable under the null
    hypothesis; with all ways of flipping its p value does not depend on chance.

    Examples
    --------
    >>> from heart_utils.simulate.study import simulate_study
    >>> study = simulate_study(
    ...     rng=np.random.default_rng(1), strengths=2, n_dialogues=1, n_twins=20, pairs="all"
    ... )
    >>> found = twin_contrasts(study.verdicts, n_resamples=50, n_flips=200).table
    >>> found[["contrast", "delta"]].round(2).values.tolist()
    [['human_01 - model_01', 0.3]]
    """
    need(verdicts, ["slice", "dialogue_id"], "Twins are found by them.")
    entries = read_verdicts(verdicts, dimension=dimension, cluster="dialogue_id")
    of_slice = entries.table["slice"].iloc[entries.rows].to_numpy(dtype=object)
    twin = np.isin(of_slice.astype(str), TWINS)
    paired = np.logical_and(
        *(
            np.bincount(entries.cluster[of_slice == name], minlength=len(entries.clusters)) > 0
            for name in TWINS
        )
    )
    if not paired.any():
        slices_present = ", ".join(sorted(set(map(str, of_slice))))
        raise RatingsError(
            f"No dialogue has verdicts on both {' and '.join(TWINS)}; the slices here are"
            f" {slices_present}. Judge both."
        )
    kept = twin & paired[entries.cluster]
    used = entries.table.iloc[entries.rows[kept]]
    entries = read_verdicts(used, dimension=dimension, cluster="dialogue_id")
    n_clusters = len(entries.clusters)
    check_clusters(n_clusters, "dialogue_id")
    # Cell 2d holds what was said of dialogue d when adversarial, 2d + 1 when calm.
    cell = entries.cluster * 2 + (of_slice[kept] == TWINS[1])
    tally = count_wins(
        replace(entries, cluster=cell, clusters=pd.RangeIndex(2 * n_clusters)), weights="pairs"
    )
    every = itertools.combinations(map(str, entries.responders), 2)
    chosen = contrasts or {f"{one} - {other}": ([one], [other]) for one, other in every}
    matrix = _weights(chosen, entries.responders)
    rng = as_rng(rng)
    everyone, drawn = np.ones((1, n_clusters)), draw_weights(n_clusters, n_resamples, rng)
    flips = _flips(n_clusters, n_flips, rng)
    slices = [_cells(everyone, 0 * everyone), _cells(0 * everyone, everyone)]
    fits = [BradleyTerry.fit(entries, "pairs", counts=tally.total(cells)) for cells in slices]

    def contrast_difference(adversarial: Array, calm: Array) -> Array:
        """Fit both to the cells of each, and return the contrasts of their strengths."""
        strengths = [
            fit.refit(tally.total(cells))
            for fit, cells in zip(fits, (adversarial, calm), strict=True)
        ]
        return np.asarray((strengths[0] - strengths[1]) @ matrix.T)

    gaps = [fit.theta @ matrix.T for fit in fits]
    delta = gaps[0] - gaps[1]
    again = contrast_difference(_cells(drawn, 0 * drawn), _cells(0 * drawn, drawn))
    # Who won or lost all in a slice is held by the prior alone, and resampling cannot say how far
    # away the truth may be.
    held = ((matrix != 0) & (fits[0].penalised | fits[1].penalised)).any(axis=1)
    # Nor can it where all dialogues say the same.
    se = standard_error(again, n_clusters)
    unknown = held | (se * np.sqrt(n_clusters) <= 4.0 * FLAT)
    low, high = (
        np.where(unknown, np.nan, end) for end in interval_ends(delta, again, n_clusters, ci_level)
    )
    as_wide = (
        np.abs(contrast_difference(_cells(~flips, flips), _cells(flips, ~flips)))
        >= np.abs(delta) - SAME
    )
    exact = len(flips) == 2**n_clusters
    p_value = as_wide.mean(axis=0) if exact else (1 + as_wide.sum(axis=0)) / (1 + len(flips))
    table = pd.DataFrame(
        {"contrast": list(chosen), "calm": gaps[1], "adversarial": gaps[0], "delta": delta}
    )
    table = table.assign(se=se, ci_low=low, ci_high=high, ci_level=ci_level)
    table = table.assign(
        penalised=held, p_value=p_value, n_clusters=n_clusters, simulated=is_simulated(used)
    )
    return TwinContrasts(table, len(flips), int((twin & ~kept).sum()))


def _cells(adversarial: NDArray[Any], calm: NDArray[Any]) -> Array:
    """Weigh the cells of each dialogue: its adversarial history, then its calm one."""
    return np.stack([adversarial, calm], axis=2).reshape(len(adversarial), -1).astype(float)


def _flips(n_clusters: int, n_flips: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Draw ways to flip signs, or list all of them if dialogues are few."""
    if n_clusters <= ALL_FLIPS:
        return np.asarray((np.arange(2**n_clusters)[:, None] >> np.arange(n_clusters)) % 2 == 1)
    return rng.random((n_flips, n_clusters)) < 0.5


def _weights(
    contrasts: Mapping[str, tuple[Sequence[str], Sequence[str]]], names: pd.Index
) -> Array:
    """Build the matrix of contrasts, one row each: mean of one side minus mean of the other."""
    rows = np.zeros((len(contrasts), len(names)))
    for row, (name, (one, other)) in zip(rows, contrasts.items(), strict=True):
        if not len(one) or not len(other) or set(one) & set(other):
            raise RatingsError(
                f"The contrast {name!r} needs two groups that do not overlap, got {[*one]} and"
                f" {[*other]}."
            )
        if strangers := ", ".join(sorted({*one, *other} - set(names))):
            raise RatingsError(
                f"The contrast {name!r} names {strangers}, who is not on the leaderboard:"
                f" {', '.join(names)}."
            )
        row[names.get_indexer(pd.Index(list(one)))] = 1.0 / len(one)
        row[names.get_indexer(pd.Index(list(other)))] = -1.0 / len(other)
    return rows
