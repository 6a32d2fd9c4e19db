"""Did a candidate drop behind its baseline? The statistics of the gate: tested once, or looked at after every dialogue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from heart_utils.ratings.ratings import POINTS, fit_ratings
from heart_utils.ratings.resampling import standard_error
from heart_utils.ratings.verdicts import Array, name_codes, need, need_cluster, won_by_a

__all__ = ["MODES", "Comparison", "GateError", "betting_bound", "compare_anytime", "compare_responders"]

MODES = ("regression", "non-inferiority")
POWER = 0.8

GRID = np.arange(-200, 200) / 200
PRIOR, SECOND_MOMENT, MOST = 10.0, 0.12, 0.95
"""Bets start as if ten dialogues of this second moment had been seen; one risks at most 95 % of the capital."""


class GateError(ValueError):
    """A baseline and a candidate cannot be compared."""


@dataclass(frozen=True)
class Comparison:
    """How far a candidate lies below its baseline, by dimension, and what that means for a gate."""

    # one row per dimension: ``drop`` in rating points (above 0: the candidate is worse) and its ``se``; one-sided bounds
    # ``drop_low`` and ``drop_high``, each at ``level``; ``p`` and ``p_holm`` of the mode's test; ``detectable``, the true
    # drop found, or for an equal candidate the margin passed, four times in five; ``outcome`` (``"passed"``, ``"failed"``,
    # ``"cannot tell"``) and a ``message``; ``n_dialogues`` in which both were judged, ``n_verdicts``, ``n_both_orders`` of
    # them answered in both orders, ``n_inconsistent`` of those (the orders contradicted each other), ``n_failed``
    table: pd.DataFrame
    ratings: pd.DataFrame  # the ratings tables of all dimensions
    baseline: str  # as given
    candidate: str
    mode: str
    max_drop: float  # as given; the margin, a share, where the mode is "anytime"
    alpha: float
    n_releases: int = 1  # that share `alpha`, where the mode is "anytime"
    path: pd.DataFrame = field(default_factory=pd.DataFrame)  # of "anytime": a row per dimension and dialogue

    @property
    def outcome(self) -> str:
        """The worst of all dimensions: ``"failed"``, else ``"cannot tell"``, else ``"passed"``."""
        return min(self.table["outcome"], key=["failed", "cannot tell", "passed"].index)

    @property
    def passed(self) -> bool:
        """Whether every dimension passed; what cannot be told has not passed."""
        return self.outcome == "passed"

    @property
    def margin(self) -> float:
        """The largest drop allowed, in the unit of the drops."""
        return 100 * self.max_drop if self.mode == "anytime" else self.max_drop


def compare_responders(
    verdicts: pd.DataFrame,
    *,
    baseline: str,
    candidate: str,
    mode: str = "regression",
    max_drop: float = 25.0,
    alpha: float = 0.05,
    max_inconsistent: float = 0.5,
    max_detectable: float = 50.0,
    dimensions: Sequence[str] | None = None,
    responders: pd.DataFrame | None = None,
    n_resamples: int = 1000,
    rng: np.random.Generator,
) -> Comparison:
    r"""Test whether a candidate is rated below its baseline, in one fit against the same opponents.

    The drop is :math:`(\theta_{baseline} - \theta_{candidate}) \cdot 400 / \ln 10` rating points.
    Both strengths come from the same resamples of dialogues, so what a dialogue does to both cancels.
    The bounds are the drop plus or minus the standard deviation of its resamples times a t quantile.

    ``"regression"`` asks whether the candidate is worse at all: it fails where the lower bound lies above 0 on any dimension,
    by Holm's procedure, so that a candidate that equals its baseline fails with probability `alpha` at most, however many the
    dimensions. ``"non-inferiority"`` asks for proof that it is not worse by `max_drop` or more: it passes only where the
    upper bound lies below `max_drop` on every dimension. All must pass, so that a candidate `max_drop` worse on one dimension
    passes with probability `alpha` at most, and needs no correction.

    A judge that reads nothing shows no drop either, so a pass needs one that mostly says the same in both
    orders: a judge that tosses a coin contradicts itself on half of the pairs. A drop found in spite of it still fails.

    Parameters
    ----------
    verdicts : pandas.DataFrame
        The table ``verdicts``, with orders combined.
    baseline, candidate : str
        Two responders.
    mode : {"regression", "non-inferiority"}
        What the gate asks.
    max_drop : float
        Rating points, above 0; 25 points are 3.6 percentage points of preference between equals.
    alpha : float
        One-sided error rate.
    max_inconsistent : float
        Share, 0 to 1, of the pairs answered in both orders that may contradict themselves; above it a
        dimension cannot pass. 1 turns this off.
    max_detectable : float
        Rating points: where only larger drops would be found four times in five, ``"regression"`` passes nothing. Infinity
        lets it pass on however few dialogues.
    dimensions : sequence of str, optional
        Lines of the rubric; by default all there are.
    responders : pandas.DataFrame, optional
        The table of this name, for the kinds in the ratings.
    n_resamples, rng
        As in :func:`~heart_utils.ratings.resampling.bootstrap_ci`.

    Returns
    -------
    Comparison
        Outcome by dimension. Where a judge told nobody apart, or would let a candidate pass but mostly followed the order or
        judged too little to find a drop, the outcome is ``"cannot tell"``, which does not pass.

    Raises
    ------
    GateError
        If one of them is unknown, they met no common opponent or were not judged alike, or an option makes no sense.

    Examples
    --------
    >>> rows = [(f"d{i}", "new", "old", "b" if i % 5 else "a") for i in range(40)]
    >>> verdicts = pd.DataFrame(rows, columns=["dialogue_id", "responder_a", "responder_b", "verdict"])
    >>> verdicts = verdicts.assign(history_id=verdicts["dialogue_id"], dimension="overall", rater="judge", state="valid")
    >>> gate = compare_responders(verdicts, baseline="old", candidate="new", rng=np.random.default_rng(1))
    >>> gate.table[["drop", "outcome"]].round(0).values.tolist()  # 400 log10(4) points
    [[241.0, 'failed']]
    """
    check_arguments(mode, max_drop, alpha, max_inconsistent)
    kept = comparable_part(verdicts, baseline, candidate)
    names = find_dimensions(kept, dimensions)
    how: dict[str, Any] = {"responders": responders, "n_resamples": n_resamples, "rng": rng}
    rows, boards = zip(*(_drop(kept, dimension, baseline, candidate, how) for dimension in names), strict=True)
    table = _judge(pd.DataFrame(list(rows)), mode, max_drop, alpha, max_inconsistent, max_detectable)
    return Comparison(table, pd.concat(boards, ignore_index=True), baseline, candidate, mode, max_drop, alpha)


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
        As in :func:`compare_responders`.

    Returns
    -------
    Comparison
        With ``mode`` ``"anytime"``: drops and bounds are percentage points of win share when the gate stopped, after
        ``n_dialogues``. ``path`` has a row per dimension and dialogue: ``drop``, ``drop_low``, ``drop_high``.

    Raises
    ------
    GateError
        As :func:`compare_responders`.

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
        raise GateError(f"n_releases={n_releases}: expected how many candidates will be compared with it, 1 or more.")
    kept = comparable_part(verdicts, baseline, candidate)
    names = find_dimensions(kept, dimensions)
    level = alpha / n_releases / len(names)
    rows, paths = [], []
    for name in names:
        of_dimension = kept[kept["dimension"] == name]
        drops = _drops(of_dimension[of_dimension["state"].isin(["valid", "inconsistent"])], baseline, candidate)
        path = follow(drops, level, alpha).assign(dimension=name)
        stop, outcome = first_stop(path, margin)
        row: dict[str, Any] = {"dimension": name, **count_rows(of_dimension)}
        row |= {"n_dialogues": stop, "level": level, "outcome": outcome}
        there = path.iloc[stop - 1] if stop else dict.fromkeys(path, np.nan)
        row |= {name: 100 * there[name] for name in ("drop", "drop_low", "drop_high")} | {"p": there["p"]}
        row["p_holm"] = min(1.0, row["p"] * len(names))  # by Bonferroni, since a stop must not wait for other dimensions
        row["follows"] = row["n_inconsistent"] > max_inconsistent * row["n_both_orders"]
        row["floor"] = outcome == "passed" and _most(of_dimension, baseline, candidate) < margin
        rows.append(row)
        paths.append(path)
    table, path = pd.DataFrame(rows), pd.concat(paths, ignore_index=True)
    table.loc[(table["follows"] | table["floor"]) & table["outcome"].eq("passed"), "outcome"] = "cannot tell"
    table["message"] = [_say_anytime(row, margin) + doubt(row, max_inconsistent) for row in table.itertuples()]
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


def hold_all(p: pd.Series, alpha: float) -> pd.DataFrame:
    """Run Holm's procedure: ``p_holm``, and the ``level`` of each: ``p <= level`` exactly where ``p_holm <= alpha``."""
    from statsmodels.stats.multitest import multipletests

    rejected, adjusted, *_ = multipletests(p, alpha, method="holm")
    step = np.minimum(p.rank(method="first") - 1, min(rejected.sum(), len(p) - 1))
    return pd.DataFrame({"p_holm": adjusted, "level": alpha / (len(p) - step)}, index=p.index)


def check_arguments(mode: str, max_drop: float, alpha: float, max_inconsistent: float) -> None:
    """Refuse settings that make no sense."""
    if mode not in (*MODES, "anytime"):
        raise GateError(f"mode={mode!r} is not known; expected one of {', '.join(MODES)}.")
    if not 0 < alpha < 0.5:
        raise GateError(f"alpha={alpha:g}: expected a one-sided error rate above 0 and below 0.5, such as 0.05.")
    if not max_drop > 0:
        raise GateError(f"max_drop={max_drop:g}: expected rating points above 0, such as 25.")
    if not 0 <= max_inconsistent <= 1:
        raise GateError(f"max_inconsistent={max_inconsistent:g}: expected a share of pairs from 0 to 1, such as 0.5.")


def comparable_part(verdicts: pd.DataFrame, baseline: str, candidate: str) -> pd.DataFrame:
    """Keep the two and those who met both, and refuse sides that were not judged alike."""
    if baseline == candidate:
        raise GateError(f"baseline and candidate are both {baseline!r}; name two responders, or the same one in two runs.")
    need_cluster(verdicts, "dialogue_id")
    need(verdicts, ["responder_a", "responder_b", "dimension", "verdict", "state"])
    known = list(name_codes(verdicts, ["responder_a", "responder_b"], np.arange(len(verdicts)))[0])
    for role, name in (("baseline", baseline), ("candidate", candidate)):
        if name not in known:
            raise GateError(f"The {role} {name!r} appears in no verdict. Responders there: {', '.join(known) or 'none'}.")
    met = {
        name: {*_of(verdicts, name)[["responder_a", "responder_b"]].to_numpy().flat} - {name} for name in (baseline, candidate)
    }
    direct = candidate in met[baseline]
    opponents = met[baseline] & met[candidate]
    if not opponents and not direct:
        raise GateError(
            f"{baseline!r} met {', '.join(sorted(met[baseline]))}; {candidate!r} met {', '.join(sorted(met[candidate]))}. "
            f"They share no opponent, so nothing compares them: judge both against the same responders."
        )
    field = {baseline, candidate, *opponents}
    kept = verdicts[verdicts["responder_a"].isin(field) & verdicts["responder_b"].isin(field)]
    alike = {"history_id": "histories", "rater": "raters", "protocol": "protocols", "answer_format": "formats"}
    for column, what in alike.items():
        if column in kept:
            _check_alike(kept, baseline, candidate, column, what)
    return kept


def find_dimensions(kept: pd.DataFrame, dimensions: Sequence[str] | None) -> list[str]:
    """Name the dimensions to compare on, and refuse one that no verdict has."""
    names = list(kept["dimension"].unique()) if dimensions is None else list(dimensions)
    unknown = sorted(set(names) - set(kept["dimension"]))
    if unknown or not names:
        there = ", ".join(kept["dimension"].unique())
        raise GateError(f"No verdict compares them on {', '.join(unknown) or 'any dimension'}; there are {there}.")
    return names


def count_rows(rows: pd.DataFrame) -> dict[str, int]:
    """Count the verdicts of one dimension that enter, failed, and turned with the order."""
    turned = rows["state"] == "inconsistent"
    entered = turned | (rows["state"] == "valid")
    both = turned | rows["order"].isna() if "order" in rows else entered  # a row of one order names it
    counted = {"n_verdicts": entered, "n_both_orders": both & entered, "n_inconsistent": turned, "n_failed": ~entered}
    return {name: int(which.sum()) for name, which in counted.items()}


def _of(verdicts: pd.DataFrame, name: str) -> pd.DataFrame:
    return verdicts[(verdicts["responder_a"] == name) | (verdicts["responder_b"] == name)]


def _check_alike(verdicts: pd.DataFrame, baseline: str, candidate: str, column: str, what: str) -> None:
    """Refuse a comparison in which one side was judged on, by or under something that the other was not."""
    sides = [set(_of(verdicts, name)[column].fillna("none")) for name in (baseline, candidate)]
    if sides[0] == sides[1]:
        return
    only = [sorted(mine - theirs) for mine, theirs in (sides, sides[::-1])]
    said = "; ".join(
        f"{len(values)} for {name!r} alone ({', '.join(map(str, values[:3]))}{', ...' if len(values) > 3 else ''})"
        for name, values in zip((baseline, candidate), only, strict=True)
        if values
    )
    raise GateError(
        f"Baseline and candidate do not share all {what}: {len(sides[0] & sides[1])} in common, {said}. "
        f"Collect what is missing, so that both meet the same test."
    )


def _drop(
    verdicts: pd.DataFrame, dimension: str, baseline: str, candidate: str, how: dict[str, Any]
) -> tuple[dict[str, object], pd.DataFrame]:
    """Fit one dimension and give the drop, its standard error and how much it rests on."""
    rows = verdicts[verdicts["dimension"] == dimension]
    entered = rows[rows["state"].isin(["valid", "inconsistent"])]
    told = won_by_a(entered).ne(0.5)
    shared = set(_of(entered, baseline)["dialogue_id"]) & set(_of(entered, candidate)["dialogue_id"])
    row: dict[str, object] = {"dimension": dimension, "drop": np.nan, "se": np.nan, "n_dialogues": len(shared)}
    row |= count_rows(rows)
    if not told.any() or len(shared) < 2:
        return row, pd.DataFrame()
    fit = fit_ratings(entered, dimension=dimension, **how)
    row["drop"] = POINTS * (fit.strength[baseline] - fit.strength[candidate])
    gap = (fit.replicates[baseline] - fit.replicates[candidate]).to_numpy()
    row["se"] = POINTS * float(standard_error(gap[:, None], fit.n_clusters)[0])
    return row, fit.table


def _judge(
    table: pd.DataFrame, mode: str, max_drop: float, alpha: float, max_inconsistent: float, max_detectable: float
) -> pd.DataFrame:
    """Turn drops into p values, bounds and outcomes."""
    table = table.copy()
    limit = 0.0 if mode == "regression" else max_drop
    freedom = np.maximum(table["n_dialogues"].astype(float) - 1, 1)
    # The same verdicts on both sides differ by rounding alone, which must not pass for a drop.
    table[["drop", "se"]] = table[["drop", "se"]].round(6) + 0.0
    gap, told = table["drop"] - limit, table["se"].notna()
    with np.errstate(divide="ignore", invalid="ignore"):
        t = (gap / table["se"]).where(gap.ne(0) | table["se"].gt(0), 0.0)
    tail = stats.t.sf if mode == "regression" else stats.t.cdf
    table["p"] = np.where(told, tail(t, freedom), np.nan)
    table[["p_holm", "level"]] = np.nan
    if told.any():
        held = hold_all(table.loc[told, "p"], alpha)
        table.loc[told, "p_holm"] = held["p_holm"]
        table.loc[told, "level"] = held["level"] if mode == "regression" else alpha
    reach = table["se"] * stats.t.ppf(1 - table["level"], freedom)
    table["drop_low"], table["drop_high"] = table["drop"] - reach, table["drop"] + reach
    table["detectable"] = reach + table["se"] * stats.t.ppf(POWER, freedom)
    beyond = table["drop_low"] > 0 if mode == "regression" else table["drop_high"] >= max_drop
    table["follows"] = told & (table["n_inconsistent"] > max_inconsistent * table["n_both_orders"])
    # Two who win and lose alike in every dialogue show no spread, and so not what drop would be found.
    table["level_sides"] = told & table["drop"].eq(0) & table["se"].eq(0)
    weak = (mode == "regression") & (table["detectable"] > max_detectable)
    table["blind"] = told & (weak | table["level_sides"])
    no_pass = table["follows"] | table["blind"]
    table["outcome"] = np.select([~told, beyond, no_pass], ["cannot tell", "failed", "cannot tell"], "passed")
    table["message"] = [
        _say(row, mode, max_drop) + _want(row, max_detectable) + doubt(row, max_inconsistent) for row in table.itertuples()
    ]
    columns = ["dimension", "drop", "se", "drop_low", "drop_high", "level", "p", "p_holm", "detectable", "outcome", "message"]
    return table[[*columns, "n_dialogues", "n_verdicts", "n_both_orders", "n_inconsistent", "n_failed"]]


def doubt(row: Any, max_inconsistent: float) -> str:
    """Warn of a judge that mostly followed the order in which it was shown the replies."""
    if not row.follows:
        return ""
    said = f". In {row.n_inconsistent} of {row.n_both_orders} pairs the verdict turned with the order of the replies"
    said += ": this rests on a judge that follows it"
    if row.outcome == "failed":
        return said
    return f"{said}, and more than {max_inconsistent:.0%} is no pass. Use a judge that reads, or set `max_inconsistent`"


def _want(row: Any, max_detectable: float) -> str:
    """Say how many dialogues it would take to find what must be found, if these are too few."""
    if row.level_sides and row.outcome != "failed":
        return (
            ". Both won and lost alike in every dialogue, which happens if their replies are the same, or if they always win "
            "or always lose: compare them with opponents of about their strength"
        )
    if not row.blind or row.outcome == "failed":
        return ""
    needed = np.ceil(row.n_dialogues * (row.detectable / max_detectable) ** 2)
    return f". One of {max_detectable:g} must be, which takes about {needed:.0f} dialogues"


def _say(row: Any, mode: str, max_drop: float) -> str:
    """Put one row's outcome into words."""
    if np.isnan(row.drop):
        return (
            f"{row.dimension}: no verdict told anyone apart, or fewer than two dialogues were judged for both; a gate cannot "
            f"rest on this. Use a judge that decides, or more dialogues."
        )
    sure, n, failed = f"with {100 * (1 - row.level):.3g}% confidence", row.n_dialogues, row.outcome == "failed"
    if mode == "regression":
        worse = "worse than the baseline" if failed else "not shown to be worse"
        found = "" if failed or row.detectable == 0 else f"; a drop of {row.detectable:.0f} would be found four times in five"
        return f"{row.dimension}: {worse}; drop {row.drop:.1f} points, {sure} {row.drop_low:.1f} or more ({n} dialogues){found}"
    kept = "may be worse by" if failed else "not worse by"
    passes = f"; an equal candidate passes a margin of {row.detectable:.0f} four times in five" if row.detectable else ""
    return (
        f"{row.dimension}: {kept} {max_drop:g} points or more; drop {row.drop:.1f}, {sure} {row.drop_high:.1f} or less "
        f"({n} dialogues{passes})"
    )


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


def _say_anytime(row: Any, margin: float) -> str:
    n, low, high = row.n_dialogues, row.drop_low, row.drop_high
    if not n:
        return f"{row.dimension}: no dialogue was judged for both; a gate cannot rest on this."
    said = f"drop {row.drop:.1f} percentage points of win share"
    if row.outcome == "failed":
        return f"{row.dimension}: worse than the baseline, sure after {n} dialogues; {said}, {low:.1f} or more"
    if row.floor:
        return (
            f"{row.dimension}: the baseline wins so rarely that it could not drop by {100 * margin:g} points of win share ({n} "
            f"dialogues); compare both with opponents of about their strength"
        )
    if high < 100 * margin:
        return f"{row.dimension}: not worse by {100 * margin:g} points, sure after {n} dialogues; {said}, {high:.1f} or less"
    return f"{row.dimension}: not sure after {n} dialogues; {said}, from {low:.1f} to {high:.1f}; judge more, and look again"
