"""Ratings of people and models from pairwise verdicts, with intervals over dialogues."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import expit

from heart_utils.analysis.bradley_terry import ConvergenceError, find_separated, fit_strengths
from heart_utils.analysis.orders import combine_orders
from heart_utils.analysis.resampling import (
    ENOUGH_CLUSTERS,
    check_clusters,
    contrast_reach,
    draw_weights,
    interval_ends,
    rank_ranges,
)
from heart_utils.analysis.wins import (
    Entries,
    NotComparableError,
    RatingsError,
    WinMatrices,
    check_comparable,
    count_wins,
    read_verdicts,
)
from heart_utils.tables import RESPONDER_KINDS, TABLES

__all__ = ["ConvergenceError", "NotComparableError", "Ratings", "RatingsError", "combine_orders", "fit_boards", "fit_ratings"]

Array = NDArray[np.float64]

POINTS = 400.0 / np.log(10.0)
"""Rating points a unit of strength."""

METHODS = ("bradley-terry",)
WEIGHTS = ("pairs", "verdicts")
CHUNK_CELLS = 4_000_000


@dataclass(frozen=True, eq=False)
class Ratings:
    """Strengths on the log-odds scale, best responder first, with mean zero, and how they were made.

    Attributes
    ----------
    table : pandas.DataFrame
        The ratings table of :mod:`heart_utils.tables`, best responder first.
    strength : pandas.Series
        Responder -> strength; a difference of 1.0 is odds of 2.72 to 1.
    replicates : pandas.DataFrame
        Strengths in each resample, one row a resample; no rows where none was asked for.
    left_out : pandas.Series
        State -> answers that did not enter the fit.
    n_verdicts, n_clusters : int
        What entered.
    n_inconsistent : int
        Entered as half a win to each side, because two orders contradicted each other.
    n_degenerate : int
        Resamples in which others than the penalised always won or always lost: they got the weak prior
        there too, and were kept.
    settings : dict
        The arguments of :func:`fit_ratings` that made them.
    """

    table: pd.DataFrame
    strength: pd.Series
    replicates: pd.DataFrame
    left_out: pd.Series
    n_verdicts: int
    n_clusters: int
    n_inconsistent: int
    n_degenerate: int
    settings: Mapping[str, Any]

    def win_probabilities(self) -> pd.DataFrame:
        """Give the probability that the row is preferred to the column, a tie being half; ``nan`` on the diagonal."""
        theta = self.strength.to_numpy()
        chance = expit(theta[:, None] - theta[None, :])
        np.fill_diagonal(chance, np.nan)
        return pd.DataFrame(chance, index=self.strength.index, columns=self.strength.index)

    def differences(self, *, simultaneous: bool = True) -> pd.DataFrame:
        """Put an interval on the difference of every two strengths.

        Parameters
        ----------
        simultaneous : bool
            Whether all intervals hold at once (max-t), or each for itself.

        Returns
        -------
        pandas.DataFrame
            Columns ``better``, ``worse``, ``difference``, ``ci_low``, ``ci_high``, ``ci_level``,
            ``win_probability``; one row a pair, better by the point estimate.
        """
        names, theta, draws = self.strength.index, self.strength.to_numpy(), self.replicates.to_numpy()
        one, other = np.triu_indices(len(names), k=1)
        gap, level = theta[one] - theta[other], self.settings["ci_level"]
        if simultaneous and len(draws) > 1:
            reach = contrast_reach(draws, self.n_clusters, level)[one, other]
            low, high = gap - reach, gap + reach
        else:
            low, high = interval_ends(gap, draws[:, one] - draws[:, other], np.full(len(gap), self.n_clusters), level)
        return pd.DataFrame(
            {
                "better": names[one],
                "worse": names[other],
                "difference": gap,
                "ci_low": low,
                "ci_high": high,
                "ci_level": level,
                "win_probability": expit(gap),
            }
        )


def fit_ratings(
    verdicts: pd.DataFrame,
    *,
    responders: pd.DataFrame | None = None,
    dimension: str = "overall",
    method: str = "bradley-terry",
    cluster: str = "dialogue_id",
    weights: str = "pairs",
    n_resamples: int = 1000,
    ci_level: float = 0.95,
    rng: np.random.Generator | None = None,
) -> Ratings:
    r"""Fit strengths to the verdicts on one dimension, with intervals from resampling clusters.

    The model gives responder :math:`i` the preference over :math:`j` with probability
    :math:`\sigma(\theta_i - \theta_j) = 1 / (1 + e^{\theta_j - \theta_i})` [1]_; a tie is half a win to
    each, an inconsistent pair of orders too, and ``p_a``, where an answer gives it, is a part of a win.

    With ``weights="pairs"`` the wins are averaged before the fit: over the verdicts on a pair within a
    dialogue, then over the dialogues that have the pair; each pair then weighs the same, whatever the
    number of its verdicts. So the board speaks of dialogues like these and of an even tournament, not
    of who happened to be judged most. ``"verdicts"`` counts every verdict once, as published tables and
    other programs do.

    Whoever always wins or always loses (more exactly: is outside the largest group that is linked by
    wins in both directions) has no finite maximum. They are lent a quarter of a win and a quarter of a
    loss against the mean responder, in the data and in every resample, and are flagged ``penalised``.
    Who separates in some resample only gets the same there; such resamples are kept and counted.

    Parameters
    ----------
    verdicts : pandas.DataFrame
        One row per verdict, with columns ``responder_a``, ``responder_b``, ``verdict`` (``"a"``,
        ``"b"`` or ``"tie"``) and, where there are several dimensions, states or soft wins,
        ``dimension``, ``state`` and ``p_a``. Two orders of a pair are joined by :func:`combine_orders`.
    responders : pandas.DataFrame, optional
        Names the ``responder_kind`` of each ``responder``. Without it the kind is ``source``: unknown.
    dimension : str
        A line of the rubric.
    method : {"bradley-terry"}
        The model.
    cluster : str
        Column of what is resampled together. A table that has no ``dialogue_id`` gets no interval.
    weights : {"pairs", "verdicts"}
        What weighs the same.
    n_resamples : int
        Bootstrap resamples; 0 for strengths alone.
    ci_level : float
        Of intervals and rank ranges, such as 0.95.
    rng : numpy.random.Generator, optional
        The source of chance; by default one with a fixed seed, so that the same verdicts give the
        same table.

    Returns
    -------
    Ratings
        ``.table`` is the ratings table. Its intervals are percentiles of the resamples, or, for
        someone met in fewer than 50 clusters, their standard deviation times a t quantile. Rank
        ranges hold for all responders at once. ``win_probability`` is the mean over opponents of the
        fitted probability. Where no verdict told anyone apart, all strengths are zero and there is no
        interval.

    Raises
    ------
    NotComparableError
        If comparisons do not link all responders.
    ConvergenceError
        If the strengths still move when the steps run out.
    RatingsError
        If a column or word is unknown, no verdict enters, or raters called a tie each time.
    ValueError
        If there is one cluster only.

    References
    ----------
    .. [1] Bradley and Terry (1952), https://doi.org/10.2307/2334029

    Examples
    --------
    >>> duel = pd.DataFrame({"responder_a": "human", "responder_b": "model", "verdict": ["a"] * 3 + ["b"]})
    >>> strength = fit_ratings(duel).strength
    >>> float(round(strength["human"] - strength["model"], 3))  # log 3
    1.099
    """
    _check_choice("method", method, METHODS)
    _check_choice("weights", weights, WEIGHTS)
    resampled = n_resamples > 0 and (cluster in verdicts or cluster != "dialogue_id" or rng is not None)
    entries = read_verdicts(verdicts, dimension=dimension, cluster=cluster if resampled else None)
    if entries.tie.all():
        raise RatingsError(
            f"All {len(entries.rows)} verdicts on {dimension!r} are ties: they rank nobody. Say so in place of a board."
        )
    matrices = count_wins(entries, weights=weights)
    wins = matrices.sum()
    check_comparable(wins[0], entries.responders)
    penalised = find_separated(wins)[0]
    theta = fit_strengths(wins, penalised)[0]
    decided = bool((entries.share != 0.5).any())
    draws, n_degenerate = np.empty((0, len(theta))), 0
    if resampled:
        check_clusters(len(entries.clusters), cluster)
        rng = np.random.default_rng(0) if rng is None else rng
        if decided:
            draw = draw_weights(len(entries.clusters), n_resamples, rng)
            draws, n_degenerate = resample_strengths(matrices, draw, penalised, theta)
    settings = {
        "dimension": dimension,
        "method": method,
        "population": "none" if not resampled else "benchmark" if cluster == "rater" else "dialogues",
        "cluster": cluster if resampled else None,
        "weights": weights,
        "n_resamples": n_resamples if resampled else 0,
        "ci_level": ci_level,
    }
    order = np.lexsort((np.asarray(entries.responders, dtype=str), -theta))
    table = _board(verdicts, responders, entries, theta, draws, penalised, settings).iloc[order].reset_index(drop=True)
    names = pd.Index(entries.responders[order], name="responder")
    return Ratings(
        table=table,
        strength=pd.Series(theta[order], index=names, name="strength"),
        replicates=pd.DataFrame(draws[:, order], columns=names),
        left_out=entries.left_out,
        n_verdicts=len(entries.rows),
        n_clusters=len(entries.clusters) if resampled else 0,
        n_inconsistent=int(entries.inconsistent.sum()),
        n_degenerate=n_degenerate,
        settings=settings,
    )


def fit_boards(verdicts: pd.DataFrame, *, by: list[str], **settings: Any) -> dict[tuple[Any, ...], Ratings]:
    """Fit one board a group of verdicts: by dimension, slice, rater, block.

    Parameters
    ----------
    verdicts : pandas.DataFrame
        As in :func:`fit_ratings`.
    by : list of str
        Columns; each combination that occurs gets a board of its own, with its own zero point.
    **settings
        Arguments of :func:`fit_ratings`. ``dimension`` is needed unless `by` has it.

    Returns
    -------
    dict
        Values of the columns `by`, as a tuple -> ratings. ``pandas.concat`` of their tables is again
        a ratings table.

    Raises
    ------
    RatingsError
        As in :func:`fit_ratings`; the message names the group.

    Examples
    --------
    >>> votes = pd.DataFrame({"responder_a": "human", "responder_b": "model", "verdict": ["a", "a", "b", "a", "b", "b"],
    ...     "dimension": ["attunement"] * 3 + ["overall"] * 3})
    >>> {group: ratings.strength.index[0] for group, ratings in fit_boards(votes, by=["dimension"]).items()}
    {('attunement',): 'human', ('overall',): 'model'}
    """
    boards = {}
    for group, rows in verdicts.groupby(by, sort=True, observed=True, dropna=False):
        chosen = {**settings, **({"dimension": group[by.index("dimension")]} if "dimension" in by else {})}
        try:
            boards[group] = fit_ratings(rows, **chosen)
        except ValueError as error:
            error.args = (f"{', '.join(f'{name}={value}' for name, value in zip(by, group, strict=True))}: {error}",)
            raise
    return boards


def resample_strengths(matrices: WinMatrices, weights: Array, penalised: NDArray[np.bool_], start: Array) -> tuple[Array, int]:
    """Fit the strengths under each row of cluster weights; tell in how many someone else separated."""
    draws, n_degenerate = np.empty((len(weights), matrices.size)), 0
    chunk = max(1, CHUNK_CELLS // matrices.size**2)
    for first in range(0, len(weights), chunk):
        wins = matrices.sum(weights[first : first + chunk])
        separated = find_separated(wins)
        n_degenerate += int((separated & ~penalised).any(axis=1).sum())
        draws[first : first + chunk] = fit_strengths(wins, separated | penalised, start)
    return draws, n_degenerate


def _board(
    verdicts: pd.DataFrame,
    responders: pd.DataFrame | None,
    entries: Entries,
    theta: Array,
    draws: Array,
    penalised: NDArray[np.bool_],
    settings: Mapping[str, Any],
) -> pd.DataFrame:
    """Lay out the ratings table, in the order of the responders' names."""
    size, n_resampled = len(theta), len(entries.clusters)
    n_verdicts = np.bincount(entries.a, minlength=size) + np.bincount(entries.b, minlength=size)
    n_ties = np.bincount(entries.a, entries.tie, size) + np.bincount(entries.b, entries.tie, size)
    n_clusters = _clusters_met(entries) if settings["cluster"] else np.zeros(size, dtype=np.int64)
    low, high = interval_ends(theta, draws, n_clusters, settings["ci_level"])
    best, worst = np.full(size, 1), np.full(size, size)
    if len(draws) > 1:
        best, worst = rank_ranges(theta, draws, n_resampled, settings["ci_level"])
    chance = expit(theta[:, None] - theta[None, :])
    np.fill_diagonal(chance, 0.0)
    ranked = bool(settings["cluster"])
    columns = {
        **{column: _common(verdicts, column, entries) for column in ("slice", "group", "rater", "rater_kind")},
        "dimension": settings["dimension"],
        "method": settings["method"],
        "population": settings["population"],
        "responder": entries.responders.astype("str"),
        "responder_kind": _kinds(responders, entries.responders),
        "strength": theta,
        "ci_low": low,
        "ci_high": high,
        "ci_level": settings["ci_level"] if ranked else np.nan,
        "rating": 1500.0 + POINTS * theta,
        "rating_low": 1500.0 + POINTS * low,
        "rating_high": 1500.0 + POINTS * high,
        "rank_low": pd.array(best if ranked else [None] * size, dtype="Int64"),
        "rank_high": pd.array(worst if ranked else [None] * size, dtype="Int64"),
        "win_probability": chance.sum(axis=1) / (size - 1),
        "n_verdicts": n_verdicts,
        "n_clusters": n_clusters,
        "tie_share": n_ties / n_verdicts,
        "penalised": penalised,
        "provisional": (n_clusters < ENOUGH_CLUSTERS) | np.isnan(low),
        "simulated": bool(verdicts["simulated"].iloc[entries.rows].any()) if "simulated" in verdicts else False,
    }
    return pd.DataFrame({column: columns[column] for column in TABLES["ratings"]})


def _clusters_met(entries: Entries) -> NDArray[np.int64]:
    """Count the clusters in which each responder was judged."""
    met = np.zeros((len(entries.clusters), len(entries.responders)), bool)
    met[entries.cluster, entries.a] = met[entries.cluster, entries.b] = True
    return np.asarray(met.sum(axis=0))


def _common(verdicts: pd.DataFrame, column: str, entries: Entries) -> str | None:
    """Give the one value that all verdicts of a board share, or say that there are several."""
    mixed = None if column == "group" else "all"
    if column not in verdicts:
        return mixed
    values = verdicts[column].iloc[entries.rows].unique()
    return str(values[0]) if len(values) == 1 and not pd.isna(values[0]) else mixed


def _kinds(responders: pd.DataFrame | None, names: pd.Index) -> Any:
    """Look up who is a person and who a model."""
    if responders is None:
        return "source"
    kinds = responders.set_index("responder")["responder_kind"].reindex(names)
    unknown = kinds.index[~kinds.isin(RESPONDER_KINDS)]
    if len(unknown):
        raise RatingsError(
            f"responders do not say what kind {', '.join(unknown)} is of; "
            f"`responder_kind` must be one of {', '.join(RESPONDER_KINDS)}."
        )
    return kinds.to_numpy()


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise RatingsError(f"{name} is {value!r}, expected one of {', '.join(choices)}.")
