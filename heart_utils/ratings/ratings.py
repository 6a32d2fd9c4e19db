"""Ratings of people and models from pairwise verdicts, with intervals over dialogues."""

from __future__ import annotations

import html
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from heart_utils.ratings.bradley_terry import (
    FLAT,
    BradleyTerry,
    centring,
    covariance,
    draw_strengths,
    effective_clusters,
    find_unvaried,
    fit_model,
    fit_weights,
    one_sided_ends,
)
from heart_utils.ratings.resampling import (
    ENOUGH_CLUSTERS,
    Rng,
    as_rng,
    check_clusters,
    check_level,
    check_resamples,
    estimate_rng,
    interval_ends,
    refuse_few_raters,
)
from heart_utils.ratings.verdicts import (
    Array,
    Codes,
    Entries,
    RatingsError,
    is_simulated,
    read_margins,
    read_verdicts,
    refuse_ties_alone,
)
from heart_utils.tables import RESPONDER_KINDS, TABLES

__all__ = [
    "POINTS",
    "Clusters",
    "Differences",
    "Ratings",
    "fit_boards",
    "fit_ratings",
    "simultaneous_quantile",
]


POINTS = 400.0 / np.log(10.0)  # rating points a unit of strength
CENTRE = 1500.0
LOWEST_RATING, HIGHEST_RATING = 500.0, 3000.0  # of what HEART released
RELEASED_Z = 1.96
# Degrees of freedom for which studies of equals are drawn; those between take the next smaller.
DEGREES = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 19, 25, 35, 50, 80, 150, 300)
N_DRAWS = 10_000
MOST_CELLS = 8_000_000

#: Columns of the ratings table, an entry a responder; None where nothing can be said.
Columns: TypeAlias = dict[str, NDArray[Any] | None]
METHODS = ("bradley-terry", "davidson", "margins", "released-heart")
WEIGHTS = ("pairs", "verdicts")

POPULATIONS = {
    "benchmark": "raters (these dialogues)",
    "dialogues": "dialogues (these raters)",
    "dialogues_these_seekers": "dialogues (these raters, and these seekers: they are fixed)",
    "dialogues_and_raters": "dialogues and raters",
    "dialogues_and_seekers": "dialogues and seekers (these raters)",
    "none": "",
}
"""Population of the table -> what the intervals are over, in words."""

WEIGHING = {
    "pairs": (
        "\nEach pair of responders counts the same (weights='pairs'); published ratings count each"
        " verdict (weights='verdicts')."
    ),
    "verdicts": "\nEach verdict counts the same (weights='verdicts'), as in published ratings.",
}
"""What weights mean, as a result says it."""

UNVARIED = (
    "No interval for {}: all dialogues say the same, so nothing tells how far others would differ,"
    " and any rank is possible."
)
UNEVEN = 2.0  # so many times fewer verdicts of equal weight would tell as much
UNEVEN_PAIRS = (
    "Some pairs met far more often than others: weighed alike, these {:,} verdicts tell as much as"
    " {:,.0f}, and intervals and ranks widen. weights='verdicts' counts each verdict the same."
)

NO_DIALOGUE = (
    "The verdicts have no column dialogue_id, so these ratings have no interval. Name what stands"
    " for a dialogue, such as cluster='history_id', or say n_resamples=0 if no interval is wanted."
)


def lay_out(
    responders: pd.DataFrame | None,
    entries: Entries,
    settings: Mapping[str, Any],
    estimates: Mapping[str, Any],
) -> pd.DataFrame:
    size, n_verdicts = len(entries.responders), entries.n_verdicts()

    def count(of: NDArray[np.bool_]) -> NDArray[np.int64]:
        return np.bincount(entries.a[of], minlength=size) + np.bincount(
            entries.b[of], minlength=size
        )

    chance = np.where(np.eye(size, dtype=bool), 0.0, estimates["chance"])
    columns = {
        **{
            column: _common(column, entries) for column in ("slice", "group", "rater", "rater_kind")
        },
        **{column: settings[column] for column in ("dimension", "method", "population")},
        "responder": entries.responders.astype("str"),
        "responder_kind": (
            "source" if responders is None else kinds_of(responders, entries.responders)
        ),
        **{
            column: estimates[column]
            for column in ("strength", "ci_low", "ci_high", "n_clusters", "penalised", "unvaried")
        },
        "ci_level": settings["ci_level"] if settings["interval"] else np.nan,
        **{
            column: pd.Series(estimates[column], dtype="Int64", index=range(size))
            for column in ("rank_low", "rank_high")
        },
        "win_probability": chance.sum(axis=1) / (size - 1),
        "n_verdicts": n_verdicts,
        "tie_share": count(entries.tie) / n_verdicts,
        "n_joined": count(entries.joined),
        "n_inconsistent": count(entries.inconsistent),
        "provisional": (
            (estimates["n_clusters"] < ENOUGH_CLUSTERS)
            | np.isnan(estimates["ci_low"])
            | estimates["penalised"]
        ),
        "simulated": is_simulated(entries.table.iloc[entries.rows]),
    }
    for rating, end in (
        ("rating", "strength"),
        ("rating_low", "ci_low"),
        ("rating_high", "ci_high"),
    ):
        columns[rating] = CENTRE + POINTS * estimates[end]
    table = pd.DataFrame({column: columns[column] for column in TABLES["ratings"]})
    return table.sort_values(["strength", "responder"], ascending=[False, True], ignore_index=True)


def _check_unit(entries: Entries) -> bool:
    """Refuse replies with conversations; return whether seekers were played."""
    verdicts = entries.table
    if "unit" in verdicts:
        units = verdicts["unit"].iloc[entries.rows].fillna("reply").unique()
        if len(units) > 1:
            raise RatingsError(
                "The verdicts are some on replies and some on conversations, which are not one"
                " scale: fit each by itself, as with fit_boards(by=['unit'])."
            )
    return "seeker" in verdicts and bool(verdicts["seeker"].iloc[entries.rows].notna().any())


def count_orders(n_joined: int, n_inconsistent: int) -> str:
    asked = f"{n_joined:,} pairs were asked in both orders and count once; " if n_joined else ""
    noun = "" if asked else " pairs asked in both orders"
    return f"{asked}{n_inconsistent:,}{noun} contradicted themselves and are half a win to each."


def _count_even(weight: Array) -> float:
    """Count the verdicts of equal weight that would tell as much (Kish)."""
    return float(weight.sum() ** 2 / (weight**2).sum())


def _common(column: str, entries: Entries) -> str | None:
    mixed = None if column == "group" else "all"
    if column not in entries.table:
        return mixed
    values = entries.table[column].iloc[entries.rows].unique()
    return str(values[0]) if len(values) == 1 and not pd.isna(values[0]) else mixed


def kinds_of(responders: pd.DataFrame, names: pd.Index) -> Any:
    kinds = responders.set_index("responder")["responder_kind"].reindex(names)
    unknown = kinds.index[~kinds.isin(RESPONDER_KINDS)]
    if len(unknown):
        kinds_known = ", ".join(RESPONDER_KINDS)
        raise RatingsError(
            f"responders do not say what kind {', '.join(unknown)} is of; `responder_kind` is"
            f" {kinds_known}."
        )
    return kinds.to_numpy()


@dataclass(frozen=True, eq=False, repr=False)
class Ratings:
    """Strengths on the log-odds scale, best responder first, and how they were estimated."""

    table: pd.DataFrame  #: the ratings table of :mod:`heart_utils.tables`
    strength: pd.Series  #: responder -> strength; a difference of 1.0 is odds of 2.72 to 1
    #: strengths, one row a resample (a normal draw, of a sandwich); no rows without interval
    replicates: pd.DataFrame
    left_out: pd.Series  #: state -> answers that did not enter the fit
    n_verdicts: int  #: what entered
    n_clusters: int
    #: entered as half a win to each side, because two orders contradicted each other
    n_inconsistent: int
    n_joined: int  #: pairs asked in both orders, which entered as one verdict each
    #: verdicts of equal weight that would tell as much; fewer if pairs met unevenly often
    n_even: float
    #: clusters of even information that tell as much of a difference: degrees of freedom plus one
    n_effective: float
    #: probability that the row is preferred to the column, a tie being half; ``nan`` on the
    #: diagonal
    chance: pd.DataFrame
    gaps: Differences  #: differences of strengths, with what resamples tell of them
    #: the arguments of :func:`fit_ratings` that made them, and the population of the intervals
    settings: Mapping[str, Any]

    def __repr__(self) -> str:
        return f"{self._summary()}\n{self._leaderboard().to_string(index=False)}"

    def _repr_html_(self) -> str:
        table = self._leaderboard().to_html(index=False, border=0)
        return f"<p>{html.escape(self._summary())}</p>\n{table}"

    def _summary(self) -> str:
        among = (
            f", one of {self.settings['n_dimensions']} dimensions"
            if self.settings["n_dimensions"] > 1
            else ""
        )
        which = f"{self.settings['dimension']}{among}, {self.settings['method']}"
        interval = "no interval"
        if population := POPULATIONS[self.settings["population"]]:
            level = self.settings["ci_level"]
            interval = f"{self.n_clusters:,} clusters, {level:.0%} intervals over {population}"
        weighing = WEIGHING.get(str(self.settings["weights"]), "")
        notes = "".join(f"\n{note}" for note in self._notes())
        return f"Ratings ({which}): {self.n_verdicts:,} verdicts, {interval}{weighing}{notes}"

    def _notes(self) -> list[str]:
        notes, alike = [], self.table.loc[self.table["unvaried"], "responder"]
        if self.n_joined or self.n_inconsistent:
            notes.append(count_orders(self.n_joined, self.n_inconsistent))
        if len(alike):
            notes.append(UNVARIED.format(", ".join(alike)))
        if self.n_even < self.n_verdicts / UNEVEN:
            notes.append(UNEVEN_PAIRS.format(self.n_verdicts, self.n_even))
        return notes

    def _leaderboard(self) -> pd.DataFrame:
        rows = self.table
        first, last = rows["rank_low"].astype("string"), rows["rank_high"].astype("string")
        rank = first.where(first == last, first + "-" + last).fillna("")
        ends = [
            f"{low:.0f} to {high:.0f}"
            for low, high in zip(rows["rating_low"], rows["rating_high"], strict=True)
        ]
        return pd.DataFrame(
            {
                "Rank": rank,
                "Written by": rows["responder"],
                "Rating": rows["rating"].round().astype(int),
                "Interval": pd.Series(ends).mask(rows["rating_low"].isna(), ""),
                "Verdicts": rows["n_verdicts"],
            }
        )

    def ranks(self) -> pd.DataFrame:
        """List the ranks that each responder may hold, all at once."""
        low, high = self.gaps.ranks()
        return pd.DataFrame({"responder": self.strength.index, "rank_low": low, "rank_high": high})

    def differences(self) -> pd.DataFrame:
        """Compute the difference of every two strengths, one row a pair.

        ``better`` (by the estimate), ``worse``, ``difference`` with simultaneous ``ci_low`` and
        ``ci_high``, ``win_probability``.
        """
        names, theta = self.strength.index, self.strength.to_numpy()
        one, other = np.triu_indices(len(names), k=1)
        margin = np.full((len(names),) * 2, np.nan)
        if len(self.replicates):
            margin = self.gaps.margins_of_error()
        gap = theta[one] - theta[other]
        return pd.DataFrame(
            {
                "better": names[one],
                "worse": names[other],
                "difference": gap,
                "ci_low": gap - margin[one, other],
                "ci_high": gap + margin[other, one],
                "ci_level": self.settings["ci_level"],
                "win_probability": self.chance.to_numpy()[one, other],
            }
        )


@dataclass(frozen=True)
class Clusters:
    """What is resampled together, and by which interval."""

    columns: str | Sequence[str]  #: one column, or two
    #: over one column ``"bootstrap"`` or ``"sandwich"``, over two ``"sandwich"`` or the wider
    #: ``"product"``, a bootstrap whose weights multiply; by default the first
    interval: str | None = None


def fit_ratings(
    verdicts: pd.DataFrame,
    *,
    responders: pd.DataFrame | None = None,
    dimension: str = "overall",
    method: str = "bradley-terry",
    cluster: str | Sequence[str] | Clusters = "dialogue_id",
    weights: str = "pairs",
    n_resamples: int = 1000,
    ci_level: float = 0.95,
    rng: Rng = None,
) -> Ratings:
    r"""Fit strengths to the verdicts on one dimension, with intervals from resampling clusters.

    Responder :math:`i` is preferred to :math:`j` with probability
    :math:`1 / (1 + e^{\theta_j - \theta_i})` [1]_; a tie, or two orders that contradict each other,
    is half a win to each, and ``p_a`` a part of one. Who always wins or always loses is
    ``penalised``: a prior of a quarter of a win and of a loss, and a one-sided interval. Strengths
    have mean zero over the others.

    Parameters
    ----------
    verdicts
        With ``responder_a``, ``responder_b``, ``verdict`` (``"a"``, ``"b"``, ``"tie"``), `cluster`
        and, if any, ``dimension``, ``state``, ``p_a``, ``order``; both orders of a pair are one.
    responders
        With ``responder_kind``; without it the kind is ``source``: unknown.
    dimension
        A line of the rubric.
    method : {"bradley-terry", "davidson", "margins", "released-heart"}
        Ties as half wins; ties as an answer of their own; ties and margins as steps of a ladder; or
        the soft scores and the interval that HEART released.
    cluster
        What is resampled together, by a bootstrap; ``["dialogue_id", "rater"]`` lets raters vary
        too, ``["dialogue_id", "seeker"]`` those who play the seeker (20 or more), by a two-way
        sandwich; or :class:`Clusters`. A table without ``dialogue_id`` gets no interval.
    weights : {"pairs", "verdicts"}
        Each pair of responders weighs the same, or each verdict does, as in published tables.
    n_resamples, ci_level, rng
        As in :func:`~heart_utils.ratings.resampling.bootstrap_ci`; the level is that of ranks too.

    Returns
    -------
    Ratings
        ``.table`` has one row a responder, best first: ``strength`` (log-odds) and ``rating`` (1500
        plus 400 / ln 10 points a unit) with ends; ``rank_low`` to ``rank_high``, which hold for all
        at once; mean ``win_probability``; counts and flags.

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
    >>> duel = pd.DataFrame(
    ...     {"responder_a": "human", "responder_b": "model", "verdict": list("aaab")}
    ... )
    >>> fit_ratings(duel, n_resamples=0).strength.round(3).to_dict()
    {'human': 0.549, 'model': -0.549}
    """
    _check_choice("method", method, METHODS)
    _check_choice("weights", weights, WEIGHTS)
    check_level(ci_level)
    check_resamples(n_resamples)
    drawn = cluster if isinstance(cluster, Clusters) else Clusters(cluster)
    clusters = (drawn.columns,) if isinstance(drawn.columns, str) else tuple(drawn.columns)
    chosen: str | None = check_interval(drawn.interval, clusters)
    absent = clusters == ("dialogue_id",) and "dialogue_id" not in verdicts
    if absent and n_resamples > 0:
        warnings.warn(NO_DIALOGUE, stacklevel=2)
    if absent or n_resamples == 0 or method == "released-heart":
        chosen = "released" if method == "released-heart" else None
    resampled = chosen not in (None, "released")
    rater = clusters[1] if resampled and len(clusters) > 1 else None
    entries = read_verdicts(
        verdicts, dimension=dimension, cluster=None if absent else clusters[0], rater=rater
    )
    refuse_ties_alone(entries, dimension)
    has_seekers = _check_unit(entries)
    margins = read_margins(entries) if method in ("margins", "released-heart") else None
    # One fit serves estimates and intervals: resamples only sum its win matrices under other
    # weights.
    model = fit_model(entries, method, weights, margins)
    gaps, estimates = spread_of(model, clusters, chosen, n_resamples, ci_level, rng)
    settings: dict[str, str | float | tuple[str, ...] | None] = {
        "dimension": dimension,
        "method": method,
        "weights": model.weights,
        "interval": chosen,
        "ci_level": ci_level,
        "population": _population(clusters, has_seekers) if resampled else "none",
        "n_dimensions": verdicts["dimension"].nunique() if "dimension" in verdicts else 1,
        "cluster": clusters if resampled else None,
        "n_resamples": n_resamples if resampled else 0,
    }
    # The model is in the order of names; what a reader sees is brought into that of ranks.
    chance = np.where(np.eye(len(model.theta), dtype=bool), np.nan, model.chance)
    estimates |= {"strength": gaps.strength, "chance": chance, "penalised": model.penalised}
    table = lay_out(responders, entries, settings, estimates)
    if method == "released-heart":
        ends = ["rating", "rating_low", "rating_high"]
        table[ends] = table[ends].clip(LOWEST_RATING, HIGHEST_RATING)
    order = entries.responders.astype("str").get_indexer(pd.Index(table["responder"]))
    names, gaps = pd.Index(entries.responders[order], name="responder"), gaps.take(order)
    return Ratings(
        table=table,
        strength=pd.Series(gaps.strength, index=names, name="strength"),
        replicates=pd.DataFrame(gaps.replicates, columns=names),
        left_out=entries.left_out,
        n_verdicts=len(entries.rows),
        n_clusters=gaps.n_clusters,
        n_inconsistent=int(entries.inconsistent.sum()),
        n_joined=int(entries.joined.sum()),
        n_even=_count_even(fit_weights(entries, model.weights)),
        n_effective=gaps.n_effective,
        chance=pd.DataFrame(chance[np.ix_(order, order)], index=names, columns=names),
        gaps=gaps,
        settings=settings,
    )


def _population(clusters: tuple[str, ...], has_seekers: bool) -> str:
    if clusters == ("rater",):
        return "benchmark"
    if len(clusters) > 1:
        return f"dialogues_and_{'seekers' if clusters[1] == 'seeker' else 'raters'}"
    return "dialogues_these_seekers" if has_seekers else "dialogues"


def fit_boards(
    verdicts: pd.DataFrame, *, by: list[str], **settings: Any
) -> dict[tuple[Any, ...], Ratings]:
    """Fit one leaderboard for each group of verdicts: by dimension, slice, rater or block.

    Each has its own zero point: compare differences between two leaderboards, not strengths.

    Parameters
    ----------
    verdicts
        As in :func:`fit_ratings`.
    by
        Columns; ``group`` of a table names values for which it has no column.
    **settings
        Options of :func:`fit_ratings`.

    Returns
    -------
    dict of tuple to Ratings
        The values of `by` in a group -> its ratings.

    Raises
    ------
    RatingsError
        As :func:`fit_ratings`, or if a group is looked up that is not there.

    Examples
    --------
    >>> votes = pd.DataFrame(
    ...     {"responder_a": "x", "responder_b": "y", "verdict": list("aab"), "rater": list("ijj")}
    ... )
    >>> fit_boards(votes, by=["rater"], n_resamples=0)["j",].n_verdicts
    2
    """
    if verdicts.empty:
        raise RatingsError(
            f"There is no verdict to fit by {', '.join(by)}: whatever chose the rows left none."
        )
    boards, rng = _Boards(), settings.pop("rng", None)
    seed = None if rng is None else int(rng.integers(2**62))
    for group, rows in verdicts.groupby(by, sort=True, observed=True, dropna=False):
        chosen = dict(settings)
        if "dimension" in by:
            chosen["dimension"] = group[by.index("dimension")]
        # a generator of its own, so that no leaderboard depends on which others there are
        if seed is not None:
            chosen["rng"] = estimate_rng(seed, ", ".join(map(str, group)))
        try:
            boards[group] = fit_ratings(rows, **chosen)
        except ValueError as error:
            where = ", ".join(f"{name}={value}" for name, value in zip(by, group, strict=True))
            error.args = (f"{where}: {error}",)
            raise
        other = [
            f"{name}={value}"
            for name, value in zip(by, group, strict=True)
            if name not in TABLES["ratings"]
        ]
        if other:
            boards[group].table["group"] = ", ".join(other)
    return boards


class _Boards(dict[tuple[Any, ...], Ratings]):
    def __missing__(self, group: tuple[Any, ...]) -> Ratings:
        group_names = [", ".join(map(str, values)) for values in (group, *self)]
        raise RatingsError(
            f"There is no leaderboard of {group_names[0]!r}; there are"
            f" {'; '.join(group_names[1:])}."
        )


def check_interval(interval: str | None, clusters: tuple[str, ...]) -> str:
    if len(clusters) not in (1, 2):
        raise RatingsError(
            f"cluster names {len(clusters)} columns, expected one, or two of which the second is"
            " the rater."
        )
    fits = ("bootstrap", "sandwich") if len(clusters) == 1 else ("sandwich", "product")
    _check_choice("interval", interval or fits[0], fits, f" where {' and '.join(clusters)} vary")
    return interval or fits[0]


def _check_choice(name: str, value: str, choices: tuple[str, ...], where: str = "") -> None:
    if value not in choices:
        raise RatingsError(f"{name} is {value!r}, expected one of {', '.join(choices)}{where}.")


def spread_of(
    model: BradleyTerry,
    clusters: tuple[str, ...],
    interval: str | None,
    n_resamples: int,
    ci_level: float,
    rng: Rng,
) -> tuple[Differences, Columns]:
    entries, centre = model.entries, centring(model.penalised)
    theta = centre @ model.theta
    size, groups = len(theta), entries.groups()
    unknown, unvaried = np.full(size, np.nan), np.zeros(size, bool)
    estimates: Columns = {
        "ci_low": unknown,
        "ci_high": unknown,
        "n_clusters": np.zeros(size, int),
        "rank_low": None,
        "rank_high": None,
        "unvaried": unvaried,
    }
    if interval is None or interval == "released":
        half_widths = RELEASED_Z / np.sqrt(entries.n_verdicts()) if interval else np.nan
        estimates |= {"ci_low": theta - half_widths, "ci_high": theta + half_widths}
        return Differences(theta, np.empty((0, size)), 0, ci_level, 0.0), estimates
    check_clusters(groups[0][1], clusters[0])
    if len(groups) > 1:
        refuse_few_raters(groups[0][0], groups[1][0], (clusters[0], clusters[1]))
    clusters_met = np.min([entries.count_judged_in(*group) for group in groups], axis=0)
    n_clusters = min(n for _, n in groups)
    estimates["n_clusters"] = clusters_met
    estimates["unvaried"] = unvaried = find_unvaried(model, groups) & ~model.penalised
    if unvaried.all():
        gaps = Differences(theta, np.empty((0, size)), n_clusters, ci_level, 0.0)
        return gaps, estimates | dict(zip(("rank_low", "rank_high"), gaps.ranks(), strict=True))
    alone = one_sided_ends(model, clusters_met, ci_level)
    bounds = one_sided_ends(model, clusters_met, 1.0 - (1.0 - ci_level) / (size * (size - 1) // 2))
    n_effective = min(effective_clusters(model, *group) for group in groups)
    rng = as_rng(rng)
    if interval == "sandwich":
        robust = centre @ covariance(model) @ centre.T
        half_widths = stats.t.ppf((1.0 + ci_level) / 2.0, n_clusters - 1) * np.sqrt(np.diag(robust))
        draws = rng.multivariate_normal(theta, robust, size=n_resamples, method="eigh")
        ends = (theta - half_widths, theta + half_widths)
    else:
        draws = draw_strengths(model, n_resamples, rng) @ centre.T
        ends = interval_ends(theta, draws, clusters_met, ci_level)
    gaps = Differences(theta, draws, n_clusters, ci_level, n_effective, bounds, unvaried)
    low, high = np.where(unvaried, np.nan, np.where(model.penalised, alone, ends))
    return gaps, estimates | dict(
        zip(("ci_low", "ci_high", "rank_low", "rank_high"), (low, high, *gaps.ranks()), strict=True)
    )


@dataclass(frozen=True, eq=False)
class Differences:
    """Differences of strengths, with what resamples tell of them."""

    strength: Array
    replicates: Array
    n_clusters: int
    ci_level: float
    #: clusters of even information, which set the degrees of freedom; where not known, `n_clusters`
    n_effective: float
    #: low and high where bounds are one-sided, or nan
    ends: Array = field(default_factory=lambda: np.full((2, 1), np.nan))
    #: of whom all clusters say the same, so that no error is known
    unvaried: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(1, bool))

    def take(self, order: Codes) -> Differences:
        """Reorder the responders."""
        ends = self.ends[:, order] if self.ends.shape[1] > 1 else self.ends
        return replace(
            self,
            strength=self.strength[order],
            replicates=self.replicates[:, order],
            ends=ends,
            unvaried=self.unvaried[order] if len(self.unvaried) > 1 else self.unvaried,
        )

    def errors(self) -> tuple[Array, Array]:
        """Compute errors of strengths and of differences, ``nan`` where nothing varies."""
        drawn = np.atleast_2d(np.cov(self.replicates, rowvar=False))
        drawn = drawn * self.n_clusters / (self.n_clusters - 1.0)
        variance = np.diag(drawn)
        squares = variance[:, None] + variance[None, :] - 2.0 * drawn
        # the slope of a win by strength is a quarter at most
        known = squares * self.n_clusters > (4.0 * FLAT) ** 2
        known &= ~(self.unvaried[:, None] | self.unvaried)
        np.fill_diagonal(known, True)
        return np.sqrt(variance), np.sqrt(np.where(known, squares, np.nan))

    def margins_of_error(self) -> Array:
        """Compute the margin below each difference, row less column; above is its transpose."""
        spread, se = self.errors()
        quantile = simultaneous_quantile(len(spread), self.n_effective, self.ci_level)
        bounded = ~np.isnan(self.ends[0])
        below = np.where(bounded, self.strength - self.ends[0], quantile * spread)
        above = np.where(bounded, self.ends[1] - self.strength, quantile * spread)
        return np.where(bounded[:, None] | bounded, below[:, None] + above, se * quantile)

    def ranks(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Compute the ranks, all at once."""
        # Stepdown tests of "not better": Mogstad, Romano, Shaikh and Wilhelm (2024),
        # https://doi.org/10.1093/restud/rdad006
        size, bounded = len(self.strength), ~np.isnan(self.ends[0])
        open_ = ~np.eye(size, dtype=bool)
        if len(self.replicates) < 2:
            return np.ones(size, np.int64), np.full(size, size)
        gap = self.strength[:, None] - self.strength[None, :]
        se, df = self.errors()[1], self.n_effective - 1.0
        statistic = np.divide(gap, se, out=np.full(gap.shape, -np.inf), where=se > 0)
        by_ends = np.where(gap > self.margins_of_error(), np.inf, -np.inf)
        statistic = np.where(bounded[:, None] | bounded, by_ends, statistic)
        p_value, ahead = stats.t.sf(statistic, df), np.zeros((size, size), bool)
        while (rejected := open_ & (p_value < level_of_one(open_, df, self.ci_level))).any():
            ahead |= rejected
            open_ &= ~rejected
        return 1 + ahead.sum(axis=0), size - ahead.sum(axis=1)


def simultaneous_quantile(n_responders: int, n_clusters: float, ci_level: float) -> float:
    """Compute the quantile for simultaneous intervals of all pairwise differences.

    Parameters
    ----------
    n_responders
        Two or more.
    n_clusters
        Clusters, or those that count in effect (``Ratings.n_effective``).
    ci_level
        Between 0 and 1.

    Returns
    -------
    float
        For two responders Student's t; for more, between Tukey's studentised range and Bonferroni's
        t.

    Examples
    --------
    >>> [round(simultaneous_quantile(size, 300, 0.95), 1) for size in (2, 17)]
    [2.0, 3.5]
    """
    every = ~np.eye(n_responders, dtype=bool)
    return float(stats.t.isf(level_of_one(every, n_clusters - 1.0, ci_level), n_clusters - 1.0))


def level_of_one(open_: NDArray[np.bool_], df: float, ci_level: float) -> float:
    """Compute the one-sided level of each open "row is not better than column"."""
    # From studies of equals with equal errors, which need the widest: Hayter (1984),
    # https://doi.org/10.1214/aos/1176346392
    shared = (1.0 - ci_level) / max(int(open_.sum()), 1)
    if len(open_) < 3 or not open_.any():
        return shared
    tabulated = max(known for known in DEGREES if known <= max(df, 1.0))
    return max(shared, _level(len(open_), tabulated, ci_level, np.packbits(open_).tobytes()))


@lru_cache(maxsize=512)
def _level(size: int, df: int, ci_level: float, packed: bytes) -> float:
    open_ = np.unpackbits(np.frombuffer(packed, np.uint8), count=size * size).astype(bool)
    largest = _equals(size, df)[:, open_].max(axis=1)
    return float(stats.t.sf(np.quantile(largest, ci_level), df))


@lru_cache(maxsize=6)
def _equals(size: int, df: int) -> NDArray[np.float32]:
    """Draw studies of equals: differences over standard errors, a row a study."""
    rng = np.random.default_rng([size, df])
    n_draws = int(np.clip(MOST_CELLS // size**2, 1_000, N_DRAWS))
    studentized = np.empty((n_draws, size * size), np.float32)
    for first in range(0, n_draws, 1_000):
        n = min(1_000, n_draws - first)
        if df < size:
            root = rng.normal(size=(n, size, df))
        else:  # Bartlett's root of a Wishart matrix
            root = np.tril(rng.normal(size=(n, size, size)), -1)
            root[:, np.arange(size), np.arange(size)] = np.sqrt(
                rng.chisquare(df - np.arange(size), size=(n, size))
            )
        product = root @ root.swapaxes(1, 2)
        own = np.diagonal(product, axis1=1, axis2=2)
        variance = (own[:, :, None] + own[:, None, :] - 2.0 * product) / df
        strength = rng.normal(size=(n, size))
        gap = strength[:, :, None] - strength[:, None, :]
        studentized[first : first + n] = (
            gap / np.sqrt(np.where(variance > 0, variance, 1.0))
        ).reshape(n, -1)
    return studentized
