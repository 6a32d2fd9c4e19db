"""Studies of whole conversations: starts against seekers, repeats and raters at equal cost."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from math import prod

import numpy as np
import pandas as pd
from scipy import optimize, stats

from heart_utils.agreement.generalizability import LEAST_RANDOM, Components, error_of
from heart_utils.ratings.resampling import Rng, as_rng
from heart_utils.ratings.verdicts import AgreementError

__all__ = ["ConversationCosts", "plan_conversations"]

CI_LEVEL = 0.95  #: Of the interval of a difference, and of what a plan says of its gap.
POWER = 0.8  #: The chance with which a plan's smallest gap is found.
N_DRAWS = 1000  #: Sets of variances that a pilot leaves possible.


@dataclass(frozen=True)
class ConversationCosts:
    """What a study of conversations is charged for, in any currency."""

    start: float = 0.0  #: a start: finding, cutting or writing it
    turn: float = 1.0  #: one exchange: a turn of the responder and one of the seeker
    judging: float = 0.0  #: one rater for one whole conversation
    turns: int = 10  #: exchanges in a conversation

    def of_start(self, n_conversations: int, n_raters: int) -> float:
        """Add up a start, its conversations and raters."""
        each = self.turns * self.turn + n_raters * self.judging
        return self.start + n_conversations * each


def plan_conversations(
    components: Components | Mapping[str, float] | pd.Series,
    *,
    budget: float,
    n_responders: int,
    costs: ConversationCosts = ConversationCosts(),
    seekers: Sequence[int] = (1, 2, 4),
    repeats: Sequence[int] = (1, 2, 4),
    raters: Sequence[int] = (1,),
    fixed: Collection[str] = (),
    rng: Rng = None,
) -> pd.DataFrame:
    """Compare studies of conversations at equal cost: more starts, seekers, repeats or raters.

    All responders meet the same starts and seekers.

    Parameters
    ----------
    components
        From :func:`~heart_utils.agreement.generalizability.variance_components` of a pilot, or
        variances by name, which are taken as known.
    budget
        In the currency of `costs`.
    n_responders
        How many are compared.
    costs
        Of a start, a turn and a judging; and how many turns there are.
    seekers, repeats, raters
        Numbers to try.
    fixed
        Of ``"seeker"`` and ``"rater"``, those for whom alone the result is to hold.
    rng
        The source of chance of the intervals.

    Returns
    -------
    pandas.DataFrame
        One row a design, the smallest error first: numbers (``n_starts`` as the budget buys),
        ``cost``, ``standard_error`` of a difference, ``df``, and ``smallest_gap``, which a 95 %
        interval finds with a chance of 0.8, with its own 95 % interval where a pilot gives
        components. All from ``df`` on are empty with fewer than three seekers or raters not fixed.

    Raises
    ------
    AgreementError
        If the budget buys no two starts, or no component says how several seekers or raters differ.

    Examples
    --------
    >>> sage = {"responder:dialogue": 100.0, "responder:seeker": 10.0, "rest": 400.0}
    >>> plans = plan_conversations(
    ...     sage, budget=8_000, n_responders=2, seekers=(1, 2), repeats=(1, 2), fixed=["seeker"]
    ... )
    >>> plans[["n_starts", "n_seekers", "n_repeats", "standard_error"]].round(2).values.tolist()
    [[400.0, 1.0, 1.0, 1.58], [200.0, 2.0, 1.0, 1.73],
     [200.0, 1.0, 2.0, 1.73], [100.0, 2.0, 2.0, 2.0]]
    """
    if isinstance(components, Components):
        variance = components.table["variance"]
        drawn = [row for _, row in components.draw(N_DRAWS, rng=as_rng(rng)).iterrows()]
    else:
        variance, drawn = pd.Series(dict(components)), []
    known = {"dialogue", "repeat", *(part for name in variance.index for part in name.split(":"))}
    for facet, numbers in (("seeker", seekers), ("rater", raters)):
        if facet not in known and max(numbers) > 1:
            raise AgreementError(
                f"These components do not say how {facet}s differ; expected {facet}s=(1,), got"
                f" {tuple(numbers)}."
            )
    rows = []
    for n_seekers, n_repeats, n_raters in product(seekers, repeats, raters):
        a_start = n_responders * n_seekers * n_repeats
        price = costs.of_start(a_start, n_raters)
        n_starts = int(budget / price + 1e-9)
        if n_starts < 2:
            continue
        sizes = {"dialogue": n_starts, "seeker": n_seekers, "repeat": n_repeats, "rater": n_raters}
        sizes = {name: n for name, n in sizes.items() if name in known}
        error, df = difference_error(variance, sizes, fixed=fixed)
        gap_low, gap_high = _gap_ends([difference_error(one, sizes, fixed=fixed) for one in drawn])
        rows.append(
            {
                "n_starts": n_starts,
                "n_seekers": n_seekers,
                "n_repeats": n_repeats,
                "n_raters": n_raters,
                "n_conversations": n_starts * a_start,
                "cost": n_starts * price,
                "standard_error": error,
                "df": df,
                "smallest_gap": error * find_shift(POWER, df),
                "gap_low": gap_low,
                "gap_high": gap_high,
            }
        )
    if not rows:
        raise AgreementError(f"A budget of {budget:,g} buys no design with two starts.")
    # Of equal errors the one with more seekers comes first: it says more of seekers.
    plans = pd.DataFrame(rows)
    plans["error"] = plans["standard_error"].round(9)
    plans = plans.sort_values(["error", "n_seekers"], ascending=[True, False], ignore_index=True)
    return plans.drop(columns="error")


def _gap_ends(possible: list[tuple[float, float]]) -> tuple[float, float]:
    if not possible or not np.isfinite(possible[0][1]):
        return float("nan"), float("nan")
    error, df = np.array(possible).T
    # Two quantiles of t are near the exact shift, and enough to put the draws in order.
    near = error * (stats.t.ppf((1.0 + CI_LEVEL) / 2.0, df) + stats.t.ppf(POWER, df))
    ranked = np.argsort(near)
    tail = (1.0 - CI_LEVEL) / 2.0
    low, high = (ranked[int(share * (len(ranked) - 1))] for share in (tail, 1.0 - tail))
    gap_low, gap_high = (error[at] * find_shift(POWER, float(df[at])) for at in (low, high))
    return float(gap_low), float(gap_high)


def difference_error(
    variance: Mapping[str, float] | pd.Series,
    sizes: Mapping[str, int],
    *,
    fixed: Collection[str] = (),
) -> tuple[float, float]:
    """Predict the standard error of a difference of two means, and its degrees of freedom.

    These are Satterthwaite's; ``nan`` with fewer than three seekers or raters that are not fixed.
    """
    varying = [facet for facet in sizes if facet not in {*fixed, "repeat"}]
    cells = prod(sizes[facet] for facet in varying)
    by_effect = dict.fromkeys(
        (one for n in range(1, len(varying) + 1) for one in combinations(varying, n)), 0.0
    )
    for name, part in dict(variance).items():
        inside = {
            "rest": set(sizes),
            "repeat": set(sizes) - {"rater"},
        }.get(name, set(name.split(":")) - {"responder"})
        effect = tuple(facet for facet in varying if facet in inside)
        if not effect or name not in ("rest", "repeat") and "responder" not in name.split(":"):
            continue
        averaged = prod(sizes.get(facet, 1) for facet in inside if facet not in varying)
        by_effect[effect] += 2.0 * max(part, 0.0) / averaged
    squares = {
        effect: sum(
            part * cells / prod(sizes[facet] for facet in other)
            for other, part in by_effect.items()
            if set(effect) <= set(other)
        )
        for effect in by_effect
    }
    free = {effect: prod(sizes[facet] - 1 for facet in effect) for effect in by_effect}
    error, df = error_of(squares, free, cells)
    few = any(sizes[facet] < LEAST_RANDOM for facet in varying if facet != "dialogue")
    return error, float("nan") if few else df


def find_chance(shift: float, df: float) -> float:
    """Compute the chance that the interval of a gap of so many errors excludes zero."""
    if not np.isfinite(df):
        return float("nan")
    return float(stats.nct.sf(stats.t.isf((1.0 - CI_LEVEL) / 2.0, df), df, shift))


def find_shift(power: float, df: float) -> float:
    """Find the difference, in standard errors, found with some power."""
    if not np.isfinite(df):
        return float("nan")
    most = 10.0
    while find_chance(most, df) < power:
        most *= 2.0
    return float(optimize.brentq(lambda shift: find_chance(shift, df) - power, 0.0, most))
