"""A gate that may be looked at after every dialogue, and stops when it is sure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from heart_utils.ratings.gate import Comparison, GateError, check_arguments, comparable_part, count_rows, doubt, find_dimensions
from heart_utils.ratings.verdicts import Array, won_by_a

__all__ = ["betting_bound", "compare_anytime"]

GRID = np.arange(-200, 200) / 200
PRIOR, SECOND_MOMENT, MOST = 10.0, 0.12, 0.95
"""Bets start as if ten dialogues of this second moment had been seen; one risks at most 95 % of the capital."""


def compare_anytime(
    verdicts: pd.DataFrame,
    *,
    baseline: str,
    candidate: str,
    margin: float = 0.10,
    alpha: float = 0.05,
    n_releases: int = 8,
    max_inconsistent: float = 0.5,
    dimensions: Sequence[str] | None = None,
) -> Comparison:
    r"""Test whether a candidate is worse than its baseline in a way that any number of looks leaves valid.

    In each dialogue the drop is the share of comparisons that the baseline won, less the candidate's, against the same
    opponents, histories and raters; where the two met, twice the baseline's share less 1 counts like one opponent.
    It lies between -1 and 1. A confidence sequence for its mean [1]_ holds after all dialogues at once: stop as soon as the
    drop is shown to be above 0 (failed) or below `margin` (passed); until then nothing can be told.

    An equal candidate is stopped with probability `alpha` / `n_releases` at most, so that of `n_releases` equal ones, whatever
    they share, one is stopped with probability `alpha` at most. A candidate worse by `margin` passes with probability
    `alpha` at most. Both need dialogues in an order that knows nothing of the answers, such as shuffled once.

    Parameters
    ----------
    verdicts : pandas.DataFrame
        The table ``verdicts``, with orders combined; dialogues are taken as they first appear for the candidate.
    baseline, candidate : str
        Two responders.
    margin : float
        The drop in win share, above 0 and below 1, that must be ruled out to pass.
    alpha : float
        One-sided error rate: of false stops in the whole series, and of a false pass in one run.
    n_releases : int
        How many candidates will be compared with this baseline.
    max_inconsistent, dimensions
        As in :func:`heart_utils.ratings.gate.compare_responders`.

    Returns
    -------
    Comparison
        With ``mode`` ``"anytime"``: drops and bounds are percentage points of win share when the gate stopped, after
        ``n_dialogues``. ``path`` has a row per dimension and dialogue: ``drop``, ``drop_low``, ``drop_high``.

    Raises
    ------
    GateError
        As :func:`heart_utils.ratings.gate.compare_responders`.

    References
    ----------
    .. [1] Waudby-Smith and Ramdas (2024), https://doi.org/10.1093/jrsssb/qkad009

    Examples
    --------
    >>> rows = [(f"d{i}", "new", "old", "b" if i % 5 else "a") for i in range(60)]
    >>> verdicts = pd.DataFrame(rows, columns=["dialogue_id", "responder_a", "responder_b", "verdict"])
    >>> verdicts = verdicts.assign(history_id=verdicts["dialogue_id"], dimension="overall", rater="judge", state="valid")
    >>> gate = compare_anytime(verdicts, baseline="old", candidate="new")
    >>> gate.table[["outcome", "n_dialogues"]].values.tolist()  # 60 were there
    [['failed', 44]]
    """
    check_arguments("anytime", 1.0, alpha, max_inconsistent)
    if not 0 < margin < 1:
        raise GateError(f"margin={margin:g}: expected a share of comparisons above 0 and below 1, such as 0.10.")
    if n_releases < 1:
        raise GateError(
            f"n_releases={n_releases}: expected how many candidates will be compared with this baseline, 1 or more."
        )
    kept = comparable_part(verdicts, baseline, candidate)
    names = find_dimensions(kept, dimensions)
    level = alpha / n_releases / len(names)
    rows, paths = [], []
    for name in names:
        of_dimension = kept[kept["dimension"] == name]
        drops = _drops(of_dimension[of_dimension["state"].isin(["valid", "inconsistent"])], baseline, candidate)
        path = follow(drops, level, alpha).assign(dimension=name)
        stop, outcome = first_stop(path, margin)
        row: dict[str, Any] = {
            "dimension": name,
            **count_rows(of_dimension),
            "n_dialogues": stop,
            "level": level,
            "outcome": outcome,
        }
        there = path.iloc[stop - 1] if stop else dict.fromkeys(path, np.nan)
        row |= {name: 100 * there[name] for name in ("drop", "drop_low", "drop_high")} | {"p": there["p"]}
        row["p_holm"] = min(1.0, row["p"] * len(names))  # by Bonferroni, since a stop must not wait for other dimensions
        row["follows"] = row["n_inconsistent"] > max_inconsistent * row["n_both_orders"]
        row["floor"] = outcome == "passed" and _most(of_dimension, baseline, candidate) < margin
        rows.append(row)
        paths.append(path)
    table = pd.DataFrame(rows)
    table.loc[(table["follows"] | table["floor"]) & table["outcome"].eq("passed"), "outcome"] = "cannot tell"
    table["message"] = [_say(row, margin) + doubt(row, max_inconsistent) for row in table.itertuples()]
    path = pd.concat(paths, ignore_index=True)
    table = table.drop(columns=["follows", "floor"])
    return Comparison(table, pd.DataFrame(), baseline, candidate, "anytime", margin, alpha, n_releases, path)


def betting_bound(values: Array, *, alpha: float, guess: float = 0.0) -> tuple[Array, Array]:
    """Give a lower bound of a mean after each value, all valid at once, and the p value of a mean of 0 or less.

    For each candidate mean a gambler bets that values are higher, at fair odds if that mean is true; the mean is ruled out once
    the capital reaches 1 / `alpha` (Ville's inequality). The bets are approximately those that let capital grow fastest
    on what was seen before (Waudby-Smith and Ramdas 2024, aGRAPA).

    Parameters
    ----------
    values : numpy.ndarray
        From -1 to 1, independent or with a mean that does not depend on those before.
    alpha : float
        The probability that the bound is ever above the mean.
    guess : float
        The mean that the first bets expect; it changes the power, not the validity.

    Returns
    -------
    tuple of numpy.ndarray
        Bound and p value after each value.

    Examples
    --------
    >>> bound, p = betting_bound(np.tile([0.5, 0.0, 0.4], 20), alpha=0.05)
    >>> bound[[4, 19, 59]].round(2).tolist(), bool(p[-1] < 0.001)
    ([-0.33, 0.03, 0.17], True)
    """
    number = PRIOR + np.arange(len(values))
    mean = (PRIOR * guess + np.append(0.0, np.cumsum(values))[:-1]) / number
    second = (PRIOR * SECOND_MOMENT + np.append(0.0, np.cumsum(values**2))[:-1]) / number
    below = GRID[:, None]
    spread = np.maximum(second - 2 * below * mean + below**2, 1e-6)
    bet = np.clip((mean - below) / spread, 0.0, MOST / np.maximum(1 + below, 1e-9))
    capital = np.maximum.accumulate(np.cumsum(np.log1p(bet * (values - below)), axis=1), axis=1)
    out = capital >= np.log(1 / alpha)
    bound = np.where(out.any(axis=0), GRID[len(GRID) - 1 - out[::-1].argmax(axis=0)], -1.0)
    return bound, np.minimum(1.0, np.exp(-capital[len(GRID) // 2]))


def _drops(rows: pd.DataFrame, baseline: str, candidate: str) -> Array:
    """Give the mean drop of each dialogue in which both were judged alike, in the order of the candidate's first verdicts."""
    keys = ["dialogue_id", "history_id", "rater", "opponent"]
    keys = [key for key in keys if key in rows or key == "opponent"]
    won = won_by_a(rows)
    turned = rows.rename(columns={"responder_a": "responder_b", "responder_b": "responder_a"})
    both = pd.concat([rows.assign(won=won), turned.assign(won=1 - won)]).rename(columns={"responder_b": "opponent"})
    direct = both[both["responder_a"].eq(baseline) & both["opponent"].eq(candidate)].groupby(keys)["won"].mean() * 2 - 1
    sides = [
        both[both["responder_a"].eq(name) & ~both["opponent"].isin([baseline, candidate])].groupby(keys)["won"].mean()
        for name in (baseline, candidate)
    ]
    drops = pd.concat([sides[0].sub(sides[1]).dropna(), direct]).groupby("dialogue_id").mean()
    order = rows.loc[rows["responder_a"].eq(candidate) | rows["responder_b"].eq(candidate), "dialogue_id"].unique()
    return drops.reindex([name for name in order if name in drops.index]).to_numpy(float)


def _most(rows: pd.DataFrame, baseline: str, candidate: str) -> float:
    """Give the largest drop there could be: the baseline's win share against the opponents, or 1 where the two met."""
    rows = rows[rows["state"].isin(["valid", "inconsistent"])]
    first, second = rows["responder_a"], rows["responder_b"]
    if (first.eq(baseline) & second.eq(candidate) | first.eq(candidate) & second.eq(baseline)).any():
        return 1.0
    won = won_by_a(rows)
    return float(pd.concat([won[first.eq(baseline)], 1 - won[second.eq(baseline)]]).mean())


def follow(drops: Array, level: float, alpha: float) -> pd.DataFrame:
    """Follow the drop from dialogue to dialogue: lower bounds at the level of a stop, upper ones at that of a pass."""
    low, p = betting_bound(drops, alpha=level, guess=0.1)
    high = -betting_bound(-drops, alpha=alpha)[0]
    number = np.arange(1, len(drops) + 1)
    return pd.DataFrame({"n_dialogues": number, "drop": np.cumsum(drops) / number, "drop_low": low, "drop_high": high, "p": p})


def first_stop(path: pd.DataFrame, margin: float) -> tuple[int, str]:
    """Give after how many dialogues, and how, the gate would have stopped; all of them if it would not."""
    stops = (path["drop_low"] >= 0) | (path["drop_high"] < margin)
    if not stops.any():
        return len(path), "cannot tell"
    first = int(stops.to_numpy().argmax())
    return first + 1, "failed" if path["drop_low"].iloc[first] >= 0 else "passed"


def _say(row: object, margin: float) -> str:
    names = ("dimension", "drop", "drop_low", "drop_high", "outcome", "n_dialogues", "floor")
    dimension, drop, low, high, outcome, n, floor = (getattr(row, name) for name in names)
    if not n:
        return f"{dimension}: no dialogue was judged for both; a gate cannot rest on this."
    said = f"drop {drop:.1f} percentage points of win share"
    if outcome == "failed":
        return f"{dimension}: worse than the baseline, sure after {n} dialogues; {said}, {low:.1f} or more"
    if floor:
        return (
            f"{dimension}: the baseline wins so rarely that it could not drop by {100 * margin:g} points of win share ({n} "
            f"dialogues); compare both with opponents of about their strength"
        )
    if high < 100 * margin:
        return f"{dimension}: not worse by {100 * margin:g} points, sure after {n} dialogues; {said}, {high:.1f} or less"
    return f"{dimension}: not sure after {n} dialogues; {said}, from {low:.1f} to {high:.1f}; judge more, and look again"
