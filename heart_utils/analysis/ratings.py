"""Ratings of people and models from pairwise verdicts, with intervals over dialogues."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from heart_utils.analysis.board import POINTS, lay_out
from heart_utils.analysis.bradley_terry import BradleyTerry
from heart_utils.analysis.intervals import check_interval, one_sided_ends, spread_of
from heart_utils.analysis.levels import Levels, read_levels
from heart_utils.analysis.newton import ConvergenceError
from heart_utils.analysis.orders import combine_orders
from heart_utils.analysis.released import HIGHEST_RATING, LOWEST_RATING, ReleasedHeart
from heart_utils.analysis.resampling import as_rng, check_level, check_resamples, contrast_reach, interval_ends, rank_ranges
from heart_utils.analysis.sandwich import Model
from heart_utils.analysis.wins import Entries, NotComparableError, RatingsError, read_verdicts
from heart_utils.tables import TABLES

__all__ = [
    "POINTS",
    "ConvergenceError",
    "NotComparableError",
    "Ratings",
    "RatingsError",
    "combine_orders",
    "fit_boards",
    "fit_ratings",
]

Array = NDArray[np.float64]

METHODS = ("bradley-terry", "davidson", "margins", "released-heart")
WEIGHTS = ("pairs", "verdicts")


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
        Strengths in each resample, one row a resample (normal draws, where a sandwich was asked for); no
        rows where there is no interval.
    left_out : pandas.Series
        State -> answers that did not enter the fit.
    n_verdicts, n_clusters : int
        What entered.
    n_inconsistent : int
        Entered as half a win to each side, because two orders contradicted each other.
    n_degenerate : int
        Resamples in which others than the penalised always won or always lost: they got the weak prior
        there too, and were kept.
    extra : dict
        Parameters beside the strengths, such as Davidson's ``nu``.
    chance : pandas.DataFrame
        Probability that the row is preferred to the column, a tie being half; ``nan`` on the diagonal.
    ends : pandas.DataFrame
        Columns ``low`` and ``high``: bounds of each penalised strength at the level of one difference among all;
        ``nan`` for the others.
    settings : dict
        The arguments of :func:`fit_ratings` that made them, and the population that intervals speak of.
    """

    table: pd.DataFrame
    strength: pd.Series
    replicates: pd.DataFrame
    left_out: pd.Series
    n_verdicts: int
    n_clusters: int
    n_inconsistent: int
    n_degenerate: int
    extra: Mapping[str, float]
    chance: pd.DataFrame
    ends: pd.DataFrame
    settings: Mapping[str, Any]

    def win_probabilities(self) -> pd.DataFrame:
        """Give the probability that the row is preferred to the column, a tie being half; ``nan`` on the diagonal."""
        return self.chance.copy()

    def differences(self, *, simultaneous: bool = True) -> pd.DataFrame:
        """Put an interval on the difference of every two strengths.

        Parameters
        ----------
        simultaneous : bool
            Whether all intervals hold at once, or each for itself.

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
            ends = tuple(self.ends.to_numpy().T)
            reach = contrast_reach(theta, draws, self.n_clusters, level, ends=(ends[0], ends[1]))
            low, high = gap - reach[one, other], gap + reach[other, one]
        else:
            low, high = interval_ends(gap, draws[:, one] - draws[:, other], self.n_clusters, level)
            own = self.table[["ci_low", "ci_high"]].to_numpy()
            open_ended = self.table["penalised"].to_numpy()[[one, other]].any(axis=0) & ~np.isnan(low)
            low = np.where(open_ended, own[one, 0] - own[other, 1], low)
            high = np.where(open_ended, own[one, 1] - own[other, 0], high)
        return pd.DataFrame(
            {
                "better": names[one],
                "worse": names[other],
                "difference": gap,
                "ci_low": low,
                "ci_high": high,
                "ci_level": level,
                "win_probability": self.chance.to_numpy()[one, other],
            }
        )


def fit_ratings(
    verdicts: pd.DataFrame,
    *,
    responders: pd.DataFrame | None = None,
    dimension: str = "overall",
    method: str = "bradley-terry",
    cluster: str | Sequence[str] = "dialogue_id",
    weights: str = "pairs",
    interval: str | None = None,
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
    loss against the mean responder, in the data and in every resample, and are flagged ``penalised``
    and ``provisional``. Resamples cannot tell how far such a strength may be off: its interval is one-sided
    (``intervals.one_sided_ends``), with an infinite end where nothing bounds it.
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
    method : {"bradley-terry", "davidson", "margins", "released-heart"}
        Ties as half wins; ties as an answer of their own, after Davidson; ties and margins as steps of a
        ladder (:mod:`heart_utils.analysis.levels`); or the soft scores and the interval that HEART
        released, which speaks of no population and is there to be compared with.
    cluster : str or two of them
        Column of what is resampled together. ``["dialogue_id", "rater"]`` lets raters vary too. A table
        that has no ``dialogue_id`` gets no interval.
    weights : {"pairs", "verdicts"}
        What weighs the same.
    interval : {"bootstrap", "sandwich", "product"}, optional
        By default a bootstrap over one kind of cluster, and over two a two-way sandwich, to which the
        product-weight bootstrap is the conservative neighbour.
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
        ``.table`` is the ratings table. Its intervals follow the rule of
        :func:`~heart_utils.analysis.resampling.interval_ends`, by the clusters in which someone was met. Rank
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
    check_level(ci_level)
    check_resamples(n_resamples)
    clusters = (cluster,) if isinstance(cluster, str) else tuple(cluster)
    chosen = check_interval(interval, clusters)
    absent = clusters == ("dialogue_id",) and "dialogue_id" not in verdicts
    resampled = n_resamples > 0 and not absent and method != "released-heart"
    entries = read_verdicts(verdicts, dimension=dimension, cluster=None if absent else clusters[0])
    if entries.tie.all():
        raise RatingsError(f"All {len(entries.rows)} verdicts on {dimension!r} are ties: they rank nobody.")
    model = _fit_model(verdicts, entries, method, weights)
    settings = {
        "dimension": dimension,
        "method": method,
        "population": _population(clusters) if resampled else "none",
        "cluster": clusters if resampled else None,
        "weights": model.weights,
        "interval": chosen if resampled else "released" if method == "released-heart" else None,
        "n_resamples": n_resamples if resampled else 0,
        "ci_level": ci_level,
    }
    rng = as_rng(rng)
    spread = spread_of(model, verdicts, clusters, chosen if resampled else None, n_resamples, ci_level, rng)
    best, worst = None, None
    low, high = spread.low, spread.high
    bounds = np.full_like(low, np.nan), np.full_like(low, np.nan)
    if resampled:
        if model.penalised.any() and len(spread.draws):
            n_pairs = len(model.theta) * (len(model.theta) - 1) // 2
            low, high = (np.where(model.penalised, end, there) for end, there in zip(
                one_sided_ends(model, spread.met, ci_level), (low, high), strict=True))  # fmt: skip
            bounds = one_sided_ends(model, spread.met, 1.0 - (1.0 - ci_level) / n_pairs)
        best, worst = rank_ranges(model.theta, spread.draws, spread.n_clusters, ci_level, ends=bounds)
    chance = model.chance()
    np.fill_diagonal(chance, np.nan)
    found: dict[str, Any] = {"strength": model.theta, "chance": chance, "penalised": model.penalised, "n_clusters": spread.met}
    found |= {"ci_low": low, "ci_high": high, "rank_low": best, "rank_high": worst}
    table = lay_out(verdicts, responders, entries, settings, found)
    if method == "released-heart":
        ends = ["rating", "rating_low", "rating_high"]
        table[ends] = table[ends].clip(LOWEST_RATING, HIGHEST_RATING)
    order = np.lexsort((np.asarray(entries.responders, dtype=str), -model.theta))
    names = pd.Index(entries.responders[order], name="responder")
    return Ratings(
        table=table.iloc[order].reset_index(drop=True),
        strength=pd.Series(model.theta[order], index=names, name="strength"),
        replicates=pd.DataFrame(spread.draws[:, order], columns=names),
        left_out=entries.left_out,
        n_verdicts=len(entries.rows),
        n_clusters=spread.n_clusters,
        n_inconsistent=int(entries.inconsistent.sum()),
        n_degenerate=spread.n_degenerate,
        extra=model.extra,
        chance=pd.DataFrame(chance[np.ix_(order, order)], index=names, columns=names),
        ends=pd.DataFrame(np.column_stack(bounds)[order], index=names, columns=["low", "high"]),
        settings=settings,
    )


def fit_boards(verdicts: pd.DataFrame, *, by: list[str], **settings: Any) -> dict[tuple[Any, ...], Ratings]:
    """Fit one board a group of verdicts: by dimension, slice, rater, block.

    Parameters
    ----------
    verdicts : pandas.DataFrame
        As in :func:`fit_ratings`.
    by : list of str
        Columns; each combination that occurs gets a board of its own, with its own zero point. One that
        the ratings table does not have, such as ``emotion``, is spelt out in its column ``group``.
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
        As in :func:`fit_ratings`; the message names the group. If there is no verdict; and later, if a board is
        taken by a group that has none: that message lists those there are.

    Examples
    --------
    >>> votes = pd.DataFrame({"responder_a": "human", "responder_b": "model", "verdict": ["a", "a", "b", "a", "b", "b"],
    ...     "dimension": ["attunement"] * 3 + ["overall"] * 3})
    >>> {group: ratings.strength.index[0] for group, ratings in fit_boards(votes, by=["dimension"]).items()}
    {('attunement',): 'human', ('overall',): 'model'}
    """
    if verdicts.empty:
        raise RatingsError(f"There is no verdict to fit by {', '.join(by)}: whatever chose the rows left none.")
    boards = _Boards()
    for group, rows in verdicts.groupby(by, sort=True, observed=True, dropna=False):
        chosen = {**settings, **({"dimension": group[by.index("dimension")]} if "dimension" in by else {})}
        try:
            boards[group] = fit_ratings(rows, **chosen)
        except ValueError as error:
            error.args = (f"{', '.join(f'{name}={value}' for name, value in zip(by, group, strict=True))}: {error}",)
            raise
        other = [f"{name}={value}" for name, value in zip(by, group, strict=True) if name not in TABLES["ratings"]]
        if other:
            boards[group].table["group"] = ", ".join(other)
    return boards


class _Boards(dict[tuple[Any, ...], Ratings]):
    """Boards by group."""

    def __missing__(self, group: tuple[Any, ...]) -> Ratings:
        said = [", ".join(map(str, values)) for values in (group, *self)]
        raise RatingsError(f"There is no board of {said[0]!r}; there are {'; '.join(said[1:])}.")


def _fit_model(verdicts: pd.DataFrame, entries: Entries, method: str, weights: str) -> Model:
    if method == "bradley-terry":
        return BradleyTerry.fit(entries, weights)
    if method == "released-heart":
        return ReleasedHeart.fit_margins(verdicts, entries)
    entries, level, names, scores = read_levels(verdicts, entries, method)
    return Levels.fit(entries, weights, level, names, scores)


def _population(clusters: tuple[str, ...]) -> str:
    """Say what an interval speaks of, from what varied."""
    return "benchmark" if clusters == ("rater",) else "dialogues" if len(clusters) == 1 else "dialogues_and_raters"


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise RatingsError(f"{name} is {value!r}, expected one of {', '.join(choices)}.")
