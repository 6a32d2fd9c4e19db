"""How far people and models give the same reasons for the same pair, beyond chance."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from heart_utils.ratings.resampling import ENOUGH_CLUSTERS, draw_weights, interval_columns
from heart_utils.ratings.verdicts import Array, Codes
from heart_utils.tables import need_columns

__all__ = ["ThemeError", "ThemeOverlap", "theme_overlap"]


class ThemeError(ValueError):
    """Reasons cannot be compared as they stand."""


MEASURES = ("dice", "jaccard", "named_by_both")
"""Twice the common themes over all named; common over different; share of the first's that the second names."""

CHUNK_CELLS = 4_000_000


@dataclass(frozen=True)
class ThemeOverlap:
    """How far two parties give the same reasons for the same pairs."""

    # one row a measure (``"dice"``, ``"jaccard"``, ``"named_by_both"``): ``overlap`` on the same pair; ``permuted``, with
    # reasons given for pairs of other dialogues; ``excess``, the difference; and ``corrected``, the excess over its room, 1 -
    # permuted; each with ``_low`` and ``_high``; ``ci_level``.
    table: pd.DataFrame
    # one row a theme: the shares of reasons that name it, ``first_share`` and ``second_share``; ``both`` (of pairs of reasons
    # on the same pair) and ``by_chance`` (on pairs of other dialogues); ``kappa``, agreement on naming it beyond chance.
    themes: pd.DataFrame
    n_reason_pairs: int  # pairs of reasons compared; reasons that named no theme and were left out; dialogues
    n_empty: int
    n_clusters: int
    provisional: bool


def theme_overlap(
    reasons: pd.DataFrame,
    codes: pd.DataFrame,
    *,
    between: tuple[str, str] = ("human", "model"),
    agreeing: bool = True,
    n_resamples: int = 1000,
    ci_level: float = 0.95,
    rng: np.random.Generator | None = None,
) -> ThemeOverlap:
    r"""Measure how far two parties' reasons for the same pair name the same themes, beyond chance.

    Themes that most reasons name overlap whatever the pair. So beside the overlap on the same pair
    stands the one with the other party's reasons for pairs of *other* dialogues, averaged over all of
    them: what shuffling the reasons would give. ``corrected`` is :math:`(o - e) / (1 - e)`.

    Parameters
    ----------
    reasons : pandas.DataFrame
        One row a reason: ``reason_id``, ``pair_id``, ``rater_kind``, ``verdict`` and the column named by
        `cluster`; ``dimension`` where there are several.
    codes : pandas.DataFrame
        ``reason_id``, ``code``, ``probability``; 0.5 or more is named. Reasons with no valid code do not enter.
    between : tuple of str
        Two values of ``rater_kind``.
    agreeing : bool
        Whether only reasons for the same verdict are compared.
    n_resamples, ci_level, rng
        As in :func:`~heart_utils.ratings.resampling.bootstrap_ci`.

    Returns
    -------
    ThemeOverlap
        Reasons that name no theme are left out and counted.

    Raises
    ------
    ThemeError
        If a column is missing, a party gave no reason, or the parties share no pair.

    Examples
    --------
    >>> reasons = pd.DataFrame({"reason_id": list("hmHM"), "pair_id": list("ppqq"), "dialogue_id": list("ppqq"),
    ...     "rater_kind": ["human", "model"] * 2, "verdict": "a"})
    >>> named = [("h", "warmth"), ("m", "warmth"), ("H", "advice"), ("M", "warmth")]
    >>> codes = pd.DataFrame([(r, c, float((r, c) in named)) for r in "hmHM" for c in ("warmth", "advice")],
    ...     columns=["reason_id", "code", "probability"])
    >>> theme_overlap(reasons, codes, n_resamples=0).table.set_index("measure").loc["dice", ["overlap", "permuted"]].tolist()
    [0.5, 0.5]
    """
    needed = ["reason_id", "pair_id", "rater_kind", "dialogue_id"] + (["verdict"] if agreeing else [])
    need_columns(reasons, needed, ThemeError)
    need_columns(codes, ["reason_id", "code", "probability"], ThemeError)
    named, names, kept = _named(reasons, codes)
    n_empty = int((named.sum(axis=1) == 0).sum())
    kept, named = kept[named.sum(axis=1) > 0], named[named.sum(axis=1) > 0]
    rows = reasons.iloc[kept].reset_index(drop=True)
    first, second = (np.flatnonzero((rows["rater_kind"] == who).to_numpy(dtype=bool)) for who in between)
    if not len(first) or not len(second):
        lacking = between[0] if not len(first) else between[1]
        raise ThemeError(
            f"No reason that names a theme is by {lacking!r}. "
            f"rater_kind is: {', '.join(map(str, rows['rater_kind'].unique()))}."
        )
    keys = ["pair_id", *(["dimension"] if "dimension" in rows else []), *(["verdict"] if agreeing else [])]
    met = rows.loc[first, keys].assign(one=first).merge(rows.loc[second, keys].assign(other=second), on=keys)
    if met.empty:
        raise ThemeError(
            f"{between[0]} and {between[1]} share no pair{' on which they agree' if agreeing else ''}, "
            f"so no reasons can be compared."
        )
    one, other = met["one"].to_numpy(), met["other"].to_numpy()
    where, clusters = pd.factorize(rows["dialogue_id"])
    same = np.column_stack([_overlaps(named[one], named[other]), np.ones(len(one))])
    by_cluster = np.zeros((len(clusters), same.shape[1]))
    np.add.at(by_cluster, where[one], same)
    # Only reasons that stand beside one of the other party are shuffled, so that both figures are of the same reasons.
    apart = _overlaps_elsewhere(named, np.unique(one), np.unique(other), where, len(clusters))
    table = _overlap_table(by_cluster, apart, n_resamples, ci_level, rng)
    themes = _theme_table(named, names, one, other, where)
    n_clusters = int((by_cluster[:, -1] > 0).sum())
    return ThemeOverlap(table, themes, len(one), n_empty, n_clusters, n_clusters < ENOUGH_CLUSTERS)


def _named(reasons: pd.DataFrame, codes: pd.DataFrame) -> tuple[Array, pd.Index, Codes]:
    """Lay out which theme each reason names; reasons without valid codes are absent."""
    coded = codes.dropna(subset="probability")
    wide = coded.pivot_table(index="reason_id", columns="code", values="probability", aggfunc="max")
    at = wide.index.get_indexer(pd.Index(reasons["reason_id"]))
    kept = np.flatnonzero(at >= 0)
    return (wide.fillna(0.0).to_numpy()[at[kept]] >= 0.5).astype(float), wide.columns, kept


def _overlaps(one: Array, other: Array) -> Array:
    """Give the measures for each row of two tables of the same length."""
    return _measures((one * other).sum(axis=1), one.sum(axis=1), other.sum(axis=1))


def _measures(common: Array, one: Array, other: Array) -> Array:
    return np.stack([2.0 * common / (one + other), common / (one + other - common), common / one], axis=-1)


def _overlaps_elsewhere(named: Array, first: Codes, second: Codes, where: Codes, n_clusters: int) -> Array:
    """Sum the measures over all pairs of reasons from two different clusters, to shape (clusters, clusters, 4)."""
    second = second[np.argsort(where[second], kind="stable")]
    found, starts = np.unique(where[second], return_index=True)
    sums = np.zeros((n_clusters, n_clusters, len(MEASURES) + 1))
    chunk = max(1, CHUNK_CELLS // len(second))
    for start in range(0, len(first), chunk):
        some = first[start : start + chunk]
        sizes = np.broadcast_to(named[some].sum(axis=1)[:, None], (len(some), len(second)))
        cells = _measures(named[some] @ named[second].T, sizes, named[second].sum(axis=1)[None, :])
        cells = np.concatenate([cells, np.ones((*cells.shape[:2], 1))], axis=-1)
        by_column = np.zeros((len(some), n_clusters, cells.shape[-1]))
        by_column[:, found] = np.add.reduceat(cells, starts, axis=1)
        np.add.at(sums, where[some], by_column)
    sums[np.arange(n_clusters), np.arange(n_clusters)] = 0.0
    return sums


def _overlap_table(
    same: Array, apart: Array, n_resamples: int, ci_level: float, rng: np.random.Generator | None
) -> pd.DataFrame:
    n_clusters = len(same)
    weights = np.vstack([np.ones((1, n_clusters)), draw_weights(n_clusters, n_resamples, rng)])
    n_met = int((same[:, -1] > 0).sum())
    on_same = weights @ same
    on_other = np.stack([((weights @ apart[:, :, k]) * weights).sum(axis=1) for k in range(apart.shape[2])], axis=1)
    overlap, permuted = (_ratio(part[:, :-1], part[:, -1:]) for part in (on_same, on_other))
    excess = overlap - permuted
    corrected = _ratio(excess, 1.0 - permuted)
    found = np.stack([overlap, permuted, excess, corrected], axis=-1)
    ranges = dict.fromkeys(("overlap", "permuted", "excess", "corrected"), (-np.inf, 1.0))
    columns = interval_columns(ranges, found[0], found[1:], n_met, ci_level)
    return pd.DataFrame({"measure": MEASURES, **columns, "ci_level": ci_level if len(weights) > 1 else np.nan})


def _theme_table(named: Array, names: pd.Index, one: Codes, other: Codes, where: Codes) -> pd.DataFrame:
    """Compare the two parties theme by theme, on the pairs of reasons on the same pair of replies."""
    n_clusters = int(where.max()) + 1
    sums = np.zeros((2, n_clusters, named.shape[1] + 1))
    for side, reasons in enumerate((one, other)):
        np.add.at(sums[side], where[reasons], np.column_stack([named[reasons], np.ones(len(reasons))]))
    crossed = sums[0].sum(axis=0) * sums[1].sum(axis=0) - (sums[0] * sums[1]).sum(axis=0)
    by_chance = crossed[:-1] / crossed[-1] if crossed[-1] else np.full(len(names), np.nan)
    first_share, second_share = named[one].mean(axis=0), named[other].mean(axis=0)
    both = (named[one] * named[other]).mean(axis=0)
    # With the shares fixed, agreeing on naming it and agreeing on leaving it out exceed chance by the same amount.
    room = (first_share + second_share) / 2.0 - by_chance
    return pd.DataFrame(
        {
            "code": names,
            "first_share": first_share,
            "second_share": second_share,
            "both": both,
            "by_chance": by_chance,
            "kappa": _ratio((both - by_chance)[None], room[None])[0],
        }
    )


def _ratio(up: Array, down: Array) -> Array:
    down = np.broadcast_to(down, up.shape)
    return np.asarray(np.divide(up, down, out=np.full(up.shape, np.nan), where=np.abs(down) > 1e-12))
