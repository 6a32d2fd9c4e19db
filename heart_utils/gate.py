"""The release gate: is a candidate worse than its baseline, tested once or after every dialogue."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from heart_utils.identities import show_rater
from heart_utils.ratings.bradley_terry import FLAT
from heart_utils.ratings.ratings import POINTS, fit_ratings
from heart_utils.ratings.resampling import Rng, error_ends, holm, standard_error
from heart_utils.ratings.verdicts import (
    BOTH,
    Array,
    join_orders,
    name_codes,
    need,
    need_cluster,
    won_by_a,
)
from heart_utils.settings import read_yaml
from heart_utils.tables import ORDERS

__all__ = [
    "MODES",
    "Comparison",
    "GateError",
    "GateFailedError",
    "GateRule",
    "betting_bound",
    "compare_anytime",
    "compare_responders",
]

MODES = ("regression", "non-inferiority")
ALIKE = {
    "history_id": "histories",
    "rater": "raters",
    "protocol": "protocols",
    "answer_format": "formats",
}
"""What two sides must share to be judged alike -> its name in a message."""
RULES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "mode": (lambda mode: mode in MODES, f"one of {', '.join(MODES)}"),
    "alpha": (
        lambda rate: 0 < rate < 0.5,
        "a one-sided error rate above 0 and below 0.5, such as 0.05",
    ),
    "max_drop": (lambda drop: drop > 0, "rating points above 0, such as 25"),
    "margin": (
        lambda share: 0 < share < 1,
        "a share of comparisons above 0 and below 1, such as 0.10",
    ),
    "n_releases": (
        lambda n: n >= 1,
        "how many candidates will be compared with this baseline, 1 or more",
    ),
    "max_inconsistent": (
        lambda share: 0 < share <= 1,
        "a share of pairs above 0 and up to 1, such as 0.5",
    ),
}
"""Option -> whether a value makes sense, and what is expected."""

# Candidates for the bound of a mean drop, which is between -1 and 1. The bound is rounded down to
# the grid, so a coarse grid costs power and never validity.
GRID = np.arange(-200, 200) / 200
# Of drops of single dialogues; a wrong guess makes bets timid or bold and the bound wider.
SECOND_MOMENT = 0.12
PRIOR = 10.0  # So many dialogues the guess counts for.
MOST = 0.95  # A bet of more could lose all capital on one dialogue.


# The chance to take a judge for one that reads although place alone decides.
READING_ERROR = 0.05
# Of the verdicts on a side, how many may lean to one place (or not say which) against an opponent.
MOST_ONE_SIDED = 1 / 3


COLUMNS = [
    *("dimension", "drop", "se", "drop_low", "drop_high", "level", "p", "p_holm", "detectable"),
    *("outcome", "message", "n_dialogues", "n_raters", "n_verdicts", "n_both_orders"),
    *("n_unknown_order", "n_inconsistent", "n_failed"),
]
"""Of a comparison that is made once."""


class GateError(ValueError):
    """A baseline and a candidate cannot be compared."""


class GateFailedError(AssertionError):
    """The candidate did not pass; raised last, after all reports are written."""


MESSAGES: dict[str, str] = read_yaml(
    Path(__file__).with_name("gate.yaml"), dict[str, str], GateError
)


def check_options(**given: Any) -> None:
    for name, value in given.items():
        makes_sense, expected = RULES[name]
        if not makes_sense(value):
            raise GateError(f"{name}={value!r}: expected {expected}.")


@dataclass(frozen=True)
class GateRule:
    """What a candidate must hold to in a test made once; senseless values are refused."""

    mode: str = "regression"  #: or ``"non-inferiority"``, as in :func:`compare_responders`
    max_drop: float = 25.0  #: rating points; 25 are 3.6 percentage points between equals
    alpha: float = 0.05  #: one-sided error rate
    #: share, up to 1, of the pairs decided in both orders that may contradict themselves
    max_inconsistent: float = 0.5
    #: rating points: where only larger drops would be found four times in five, ``"regression"``
    #: passes nothing
    max_detectable: float = 50.0
    n_resamples: int = 1000  #: of dialogues, on which bounds rest

    def __post_init__(self) -> None:
        check_options(
            mode=self.mode,
            max_drop=self.max_drop,
            alpha=self.alpha,
            max_inconsistent=self.max_inconsistent,
        )


DEFAULT_RULE = GateRule()


@dataclass(frozen=True)
class Comparison:
    """How far a candidate lies below its baseline, by dimension."""

    #: a row per dimension: ``drop`` (rating points, above 0 if the candidate is worse), ``se``,
    #: bounds at ``level``, ``p``, ``p_holm``; ``detectable``, the drop found four times in five;
    #: ``outcome``, ``message``, and counts of dialogues, raters, verdicts and orders
    table: pd.DataFrame
    ratings: pd.DataFrame  #: the ratings tables of all dimensions
    baseline: str  #: as given
    candidate: str
    mode: str
    max_drop: float  #: as given; the margin, a share, where the mode is "anytime"
    alpha: float
    n_releases: int = 1  #: that share `alpha`, where the mode is "anytime"
    #: of "anytime": a row per dimension and dialogue
    path: pd.DataFrame = field(default_factory=pd.DataFrame)

    @property
    def outcome(self) -> str:
        """The worst of all dimensions: ``"failed"``, else ``"cannot tell"``, else ``"passed"``."""
        worst: str = min(self.table["outcome"], key=["failed", "cannot tell", "passed"].index)
        return worst

    @property
    def passed(self) -> bool:
        """Whether every dimension passed; what cannot be told has not passed."""
        return self.outcome == "passed"

    @property
    def margin(self) -> float:
        """The largest drop allowed, in the unit of the drops."""
        return 100 * self.max_drop if self.mode == "anytime" else self.max_drop

    def require_pass(self) -> None:
        """Raise :class:`GateFailedError` unless the candidate passed; call it last."""
        if not self.passed:
            messages = "; ".join(self.table.loc[self.table["outcome"] != "passed", "message"])
            verb = "stops" if self.outcome == "failed" else "is inconclusive on"
            raise GateFailedError(
                f"The gate ({self.mode}) {verb} {self.candidate!r} against {self.baseline!r}."
                f" {messages}"
            )


def compare_responders(
    verdicts: pd.DataFrame,
    *,
    baseline: str,
    candidate: str,
    rule: GateRule = DEFAULT_RULE,
    dimensions: Sequence[str] | None = None,
    responders: pd.DataFrame | None = None,
    rng: np.random.Generator,
) -> Comparison:
    r"""Test whether a candidate is rated below its baseline, in one fit against the same opponents.

    The drop is :math:`(\theta_{baseline} - \theta_{candidate}) \cdot 400 / \ln 10` rating points,
    with t bounds over resampled dialogues, for these raters. ``"regression"`` fails where the lower
    bound lies above 0 on any dimension, by Holm's procedure; ``"non-inferiority"`` passes only
    where the upper bound lies below ``max_drop`` on all. Either errs with probability ``alpha`` at
    most. A pass needs evidence that each judge reads: in two orders it seldom contradicts itself,
    or in one order places are balanced, seldom followed, and some opponent is told from the two.

    Parameters
    ----------
    verdicts
        The table ``verdicts``; the two orders of a pair count as one.
    baseline, candidate
        The responder in use, and its successor.
    rule
        What is tested, and how strictly.
    dimensions
        Lines of the rubric, by default all.
    responders
        The table of this name, for the kinds in the ratings.
    rng
        The source of chance.

    Returns
    -------
    Comparison
        ``"cannot tell"`` does not pass: a judge told nobody apart, is not shown to read, or judged
        too little to find a drop.

    Raises
    ------
    GateError
        If one of them is unknown, or they met no common opponent or were not judged alike.

    Examples
    --------
    >>> verdicts = pd.DataFrame({"dialogue_id": range(40), "verdict": list("abbbb") * 8})
    >>> verdicts = verdicts.assign(
    ...     responder_a="new", responder_b="old", dimension="overall", state="valid"
    ... )
    >>> rng = np.random.default_rng(1)
    >>> gate = compare_responders(verdicts, baseline="old", candidate="new", rng=rng)
    >>> gate.table[["drop", "outcome"]].round(0).values.tolist()  # 400 log10(4) points
    [[241.0, 'failed']]
    """
    parts = comparable_parts(verdicts, baseline, candidate, dimensions)
    n_resamples = rule.n_resamples
    drops = [
        _drop(part, baseline, candidate, responders=responders, n_resamples=n_resamples, rng=rng)
        for part in parts
    ]
    rows, ratings = zip(*drops, strict=True)
    for row, part in zip(rows, parts, strict=True):
        row["fault"] = find_fault(part, baseline, candidate, rule.max_inconsistent)
    table = decide_drops(pd.DataFrame(list(rows)), rule)
    ratings_table = pd.concat(ratings, ignore_index=True)
    return Comparison(
        table, ratings_table, baseline, candidate, rule.mode, rule.max_drop, rule.alpha
    )


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
    """Test whether a candidate is worse than its baseline, valid at any number of looks.

    A dialogue's drop, -1 to 1, is the baseline's share of comparisons won less the candidate's,
    against the same opponents, histories and raters. A confidence sequence for its mean
    (Waudby-Smith and Ramdas 2024, https://doi.org/10.1093/jrsssb/qkad009) stops where it lies above
    0 (failed) or below `margin` (passed), both in the table's order and in one that does not depend
    on answers.

    Parameters
    ----------
    verdicts, baseline, candidate
        As in :func:`compare_responders`.
    margin
        The drop in win share, above 0 and below 1, that must be ruled out to pass.
    alpha
        Largest probability that any of `n_releases` equals is stopped, or that one worse by
        `margin` passes.
    n_releases
        Over which `alpha` holds.
    max_inconsistent
        As in :class:`GateRule`.
    dimensions
        As in :func:`compare_responders`.

    Returns
    -------
    Comparison
        In percentage points at the stop, after ``n_dialogues``; in ``path`` after each dialogue.

    Raises
    ------
    GateError
        As :func:`compare_responders`.

    Examples
    --------
    >>> verdicts = pd.DataFrame({"dialogue_id": range(60), "verdict": list("abbbb") * 12})
    >>> verdicts = verdicts.assign(
    ...     responder_a="new", responder_b="old", dimension="overall", state="valid"
    ... )
    >>> gate = compare_anytime(verdicts, baseline="old", candidate="new")
    >>> gate.table[["outcome", "n_dialogues"]].values.tolist()  # 60 were there
    [['failed', 44]]
    """
    check_options(
        alpha=alpha, margin=margin, n_releases=n_releases, max_inconsistent=max_inconsistent
    )
    parts = comparable_parts(verdicts, baseline, candidate, dimensions)
    level = alpha / n_releases / len(parts)
    rows, paths = [], []
    for part in parts:
        counts = count_rows(part)
        drops, most = _drops(part, baseline, candidate)
        path, stop, outcome = follow_both_orders(drops, level, alpha, margin)
        path = path.assign(dimension=counts["dimension"])
        last_look = path.iloc[stop - 1] if stop else dict.fromkeys(path, np.nan)
        fault = ""
        if stop:
            fault = find_fault(part, baseline, candidate, max_inconsistent, anytime=True)
        floor = outcome == "passed" and most < margin
        row: dict[str, Any] = {
            **counts,
            **{name: 100 * last_look[name] for name in ("drop", "drop_low", "drop_high")},
            "n_dialogues": stop,
            "level": level,
            "p": last_look["p"],
            # by Bonferroni, since a stop must not wait for other dimensions
            "p_holm": min(1.0, last_look["p"] * len(parts)),
            "outcome": "cannot tell" if outcome == "passed" and (fault or floor) else outcome,
        }
        applies = {
            "anytime, nothing": not stop,
            "anytime, floor": floor,
            f"anytime, {outcome}": stop and not floor,
        }
        row["message"] = _say(applies, row, margin=100 * margin)
        if fault and outcome != "failed":
            row["message"] += f". {fault}"
        rows.append(row)
        paths.append(path)
    table, path = pd.DataFrame(rows), pd.concat(paths, ignore_index=True)
    return Comparison(
        table, pd.DataFrame(), baseline, candidate, "anytime", margin, alpha, n_releases, path
    )


def order_dialogues(dialogue_ids: Iterable[Any]) -> list[Any]:
    """Order dialogues by a digest of their ids, independent of the answers."""
    return sorted(
        dialogue_ids, key=lambda dialogue_id: hashlib.sha256(str(dialogue_id).encode()).digest()
    )


def betting_bound(values: Array, *, alpha: float, guess: float = 0.0) -> tuple[Array, Array]:
    """Compute an anytime-valid lower bound of a mean after each value, and its p value against 0.

    By bets on higher values (Waudby-Smith and Ramdas 2024, https://doi.org/10.1093/jrsssb/qkad009).

    Parameters
    ----------
    values
        From -1 to 1, independent or with a mean that does not depend on those before.
    alpha
        Probability that the bound is ever above the mean.
    guess
        Mean that first bets expect (only power changes).

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
    # Each bet uses earlier dialogues only, so that the capital is a martingale under the hypothesis
    # and exceeds 1 / alpha at any time with probability alpha at most (Ville).
    bet = np.clip((mean - below) / spread, 0.0, MOST / np.maximum(1 + below, 1e-9))
    capital = np.maximum.accumulate(np.cumsum(np.log1p(bet * (values - below)), axis=1), axis=1)
    out = capital >= np.log(1 / alpha)
    bound = np.where(out.any(axis=0), GRID[len(GRID) - 1 - out[::-1].argmax(axis=0)], -1.0)
    return bound, np.minimum(1.0, np.exp(-capital[len(GRID) // 2]))


def holm_levels(p: pd.Series, alpha: float) -> pd.Series:
    rejected = (holm(p) <= alpha).sum()
    step = (p.rank(method="first") - 1).clip(upper=min(rejected, p.count() - 1))
    return alpha / (p.count() - step)


def comparable_parts(
    verdicts: pd.DataFrame, baseline: str, candidate: str, dimensions: Sequence[str] | None
) -> list[pd.DataFrame]:
    """Select verdicts on both sides by dimension; refuse unlike sides."""
    if baseline == candidate:
        raise GateError(
            f"baseline and candidate are both {baseline!r}; name two responders, or the same one in"
            " two runs."
        )
    need_cluster(verdicts, "dialogue_id")
    need(verdicts, ["responder_a", "responder_b", "dimension", "verdict", "state"])
    if (joined := join_orders(verdicts)) is not None:
        verdicts = joined
    known = list(name_codes(verdicts, ["responder_a", "responder_b"], np.arange(len(verdicts)))[0])
    for role, name in (("baseline", baseline), ("candidate", candidate)):
        if name not in known:
            raise GateError(
                f"The {role} {name!r} appears in no verdict. Responders there:"
                f" {', '.join(known) or 'none'}."
            )
    opponents_of = {
        name: {*_of(verdicts, name)[["responder_a", "responder_b"]].to_numpy().flat} - {name}
        for name in (baseline, candidate)
    }
    opponents = opponents_of[baseline] & opponents_of[candidate]
    if not opponents and candidate not in opponents_of[baseline]:
        raise GateError(
            f"{baseline!r} met {', '.join(sorted(opponents_of[baseline]))}; {candidate!r} met"
            f" {', '.join(sorted(opponents_of[candidate]))}. They share no opponent, so nothing"
            " compares them: judge both against the same responders."
        )
    field = {baseline, candidate, *opponents}
    kept = verdicts[verdicts["responder_a"].isin(field) & verdicts["responder_b"].isin(field)]
    for column in ALIKE:
        if column in kept:
            _check_alike(kept, baseline, candidate, column)
    names = list(kept["dimension"].unique()) if dimensions is None else list(dimensions)
    unknown = sorted(set(names) - set(kept["dimension"]))
    if unknown or not names:
        present = ", ".join(kept["dimension"].unique())
        raise GateError(
            f"No verdict compares them on {', '.join(unknown) or 'any dimension'}; there are"
            f" {present}."
        )
    return [kept[kept["dimension"] == name] for name in names]


def count_rows(rows: pd.DataFrame) -> dict[str, Any]:
    turned = rows["state"] == "inconsistent"
    entered = turned | (rows["state"] == "valid")
    order = rows["order"] if "order" in rows else pd.Series(None, rows.index, dtype=object)
    both = turned | order.eq(BOTH)
    return {
        "dimension": str(rows["dimension"].iloc[0]),
        "n_raters": rows.loc[entered, "rater"].nunique() if "rater" in rows else 0,
        "n_verdicts": int(entered.sum()),
        "n_both_orders": int((both & entered).sum()),
        "n_unknown_order": int((order.isna() & ~both & entered).sum()),
        "n_inconsistent": int(turned.sum()),
        "n_failed": int((~entered).sum()),
    }


def find_fault(
    rows: pd.DataFrame,
    baseline: str,
    candidate: str,
    max_inconsistent: float,
    *,
    anytime: bool = False,
) -> str:
    """Say why verdicts do not show that raters read; empty where they do."""
    joined = join_orders(rows)
    entered = _entered(rows if joined is None else joined)
    on_a_side = entered[["responder_a", "responder_b"]].isin([baseline, candidate]).any(axis=1)
    entered = entered[on_a_side].reset_index(drop=True)
    if entered.empty:
        return ""
    human = (
        entered["rater_kind"].eq("human")
        if "rater_kind" in entered
        else pd.Series(False, entered.index)
    )
    people = list(_by_rater(entered[human]))
    for who, theirs in _by_rater(entered[~human]):
        answers = Answers(theirs, (baseline, candidate), max_inconsistent, READING_ERROR, anytime)
        if sentence := answers.fault():
            return sentence.format(rater=who)
    for who, theirs in people:
        level = READING_ERROR / len(people)
        answers = Answers(theirs, (baseline, candidate), max_inconsistent, level, anytime)
        if answers.follow_place():
            return MESSAGES["reads, person"].format(rater=who)
    return ""


def _by_rater(rows: pd.DataFrame) -> Iterable[tuple[str, pd.DataFrame]]:
    if "rater" not in rows:
        return [("the judge", rows)] if len(rows) else []
    return [(show_rater(name), theirs) for name, theirs in rows.groupby("rater", sort=True)]


@dataclass(frozen=True)
class Answers:
    rows: pd.DataFrame
    sides: tuple[str, ...]
    max_inconsistent: float
    level: float  # one-sided error
    anytime: bool

    @cached_property
    def order(self) -> pd.Series:
        if "order" not in self.rows:
            return pd.Series(None, self.rows.index, dtype=object)
        return self.rows["order"].mask(self.rows["state"].eq("inconsistent"), BOTH)

    @cached_property
    def held(self) -> pd.Series:
        """Of pairs decided in both orders: 1 held, -1 turned."""
        turned = self.rows["state"].eq("inconsistent")
        tie = won_by_a(self.rows).isin([0.25, 0.5, 0.75]) & ~turned
        kept = self.order.eq(BOTH) & ~tie
        return pd.Series(np.where(turned, -1.0, 1.0), self.rows.index)[kept]

    @cached_property
    def first(self) -> pd.Series:
        """Of pairs decided in one order: 1 where the first won, else -1."""
        won = 2.0 * won_by_a(self.rows) - 1.0
        kept = self.order.isin(ORDERS) & won.ne(0)
        toward_first = np.where(self.order.eq("ab"), 1.0, -1.0)
        return pd.Series(np.sign(won) * toward_first, self.rows.index)[kept]

    def lowest(self, values: pd.Series, level: float | None = None) -> float:
        """Bound the mean over dialogues from below."""
        level = self.level if level is None else level
        means = values.groupby(self.rows["dialogue_id"], sort=False).mean()
        means = means[means.notna()]
        if self.anytime:
            orders = (means.index, order_dialogues(means.index))
            return min(
                float(betting_bound(means.loc[order].to_numpy(float), alpha=level)[0][-1])
                for order in orders
            )
        error = means.std() / np.sqrt(len(means))
        return float(
            error_ends(means.mean(), error, len(means), 1 - 2 * level, least=-1.0, most=1.0)[0]
        )

    def fault(self) -> str:
        numbers: dict[str, float] = {
            "n": len(self.rows),
            "n_unknown": int(self.order.isna().sum()),
            "max_inconsistent": self.max_inconsistent,
            "sure": 1 - self.level,
        }
        if len(self.held):
            least, key = self.lowest(self.held), "reads, turned"
            numbers |= {"n_decided": len(self.held), "n_turned": int(self.held.lt(0).sum())}
            numbers |= {"most": (1.0 - least) / 2.0}
            sides = self.rows.loc[self.held.index, ["responder_a", "responder_b"]]
            of_sides = [self.held[(sides == side).any(axis=1)] for side in self.sides]
            enough = least > 1.0 - 2.0 * self.max_inconsistent and all(
                held.lt(0).mean() <= self.max_inconsistent for held in of_sides if len(held)
            )
        elif len(self.first):
            least, key = min(self.lowest(self.first), self.lowest(-self.first)), "reads, place"
            numbers |= {"n_decided": len(self.first), "n_first": int(self.first.gt(0).sum())}
            enough = least > -self.max_inconsistent
            if enough and not self.told_apart():
                enough, key = False, "reads, nobody"
        else:
            key = "reads, unknown" if numbers["n_unknown"] else "reads, nothing"
            enough = False
        if enough and max(map(self.one_sided, self.sides)) > MOST_ONE_SIDED:
            enough, key = False, "reads, one place"
        return "" if enough else MESSAGES[key].format(rater="{rater}", **numbers)

    def told_apart(self) -> bool:
        """Whether some opponent differs from the two sides, beyond chance."""
        rows, won = self.rows, 2.0 * won_by_a(self.rows) - 1.0
        for_opponent = won.where(~rows["responder_a"].isin(self.sides), -won)
        opponent = rows["responder_a"].where(
            ~rows["responder_a"].isin(self.sides), rows["responder_b"]
        )
        met = [for_opponent[opponent == name] for name in {*opponent} - {*self.sides}]
        return any(
            self.lowest(sign * results, self.level / (2 * len(met))) > 0
            for results in met
            for sign in (1.0, -1.0)
        )

    def one_sided(self, side: str) -> float:
        """Compute the share that leans to one place, or does not say."""
        of_a = self.rows["responder_a"].eq(side)
        opponent = self.rows["responder_b"].where(of_a, self.rows["responder_a"])
        place = self.order.map({"ab": 1.0, "ba": -1.0, BOTH: 0.0}).astype(float)
        met = of_a | self.rows["responder_b"].eq(side)
        place = place.where(of_a, -place)[met]
        lean = place.groupby(opponent[met]).sum().abs().sum() + place.isna().sum()
        return float(lean / max(len(place), 1))

    def follow_place(self) -> bool:
        turns = len(self.held) and self.lowest(-self.held) > 2.0 * self.max_inconsistent - 1.0
        leans = len(self.first) and (
            max(self.lowest(self.first), self.lowest(-self.first)) > self.max_inconsistent
        )
        return bool(turns or leans)


def _of(verdicts: pd.DataFrame, name: str) -> pd.DataFrame:
    return verdicts[(verdicts["responder_a"] == name) | (verdicts["responder_b"] == name)]


def _entered(rows: pd.DataFrame) -> pd.DataFrame:
    return rows[rows["state"].isin(["valid", "inconsistent"])]


def _check_alike(verdicts: pd.DataFrame, baseline: str, candidate: str, column: str) -> None:
    sides = [set(_of(verdicts, name)[column].fillna("none")) for name in (baseline, candidate)]
    if sides[0] == sides[1]:
        return
    only = {baseline: sorted(sides[0] - sides[1]), candidate: sorted(sides[1] - sides[0])}
    differences = "; ".join(
        f"{len(values)} for {name!r} alone"
        f" ({', '.join(map(str, values[:3]))}{', ...' if len(values) > 3 else ''})"
        for name, values in only.items()
        if values
    )
    raise GateError(
        f"Baseline and candidate do not share all {ALIKE[column]}: {len(sides[0] & sides[1])} in"
        f" common, {differences}. Collect what is missing, so that both meet the same test."
    )


def _drop(
    rows: pd.DataFrame,
    baseline: str,
    candidate: str,
    *,
    responders: pd.DataFrame | None,
    n_resamples: int,
    rng: Rng,
) -> tuple[dict[str, object], pd.DataFrame]:
    entered = _entered(rows)
    shared = set(_of(entered, baseline)["dialogue_id"]) & set(
        _of(entered, candidate)["dialogue_id"]
    )
    counts = count_rows(rows)
    row = {**counts, "drop": np.nan, "se": np.nan, "n_dialogues": len(shared)}
    if not won_by_a(entered).ne(0.5).any() or len(shared) < 2:
        return row, pd.DataFrame()
    ratings = fit_ratings(
        entered,
        dimension=counts["dimension"],
        responders=responders,
        n_resamples=n_resamples,
        rng=rng,
    )
    gap = (ratings.replicates[baseline] - ratings.replicates[candidate]).to_numpy()
    # The same verdicts on both sides differ by rounding alone, which must not pass for a drop.
    row["drop"] = (
        round(POINTS * (ratings.strength[baseline] - ratings.strength[candidate]), 6) + 0.0
    )
    row["se"] = round(POINTS * float(standard_error(gap[:, None], ratings.n_clusters)[0]), 6) + 0.0
    return row, ratings.table


def decide_drops(table: pd.DataFrame, rule: GateRule) -> pd.DataFrame:
    mode, max_detectable = rule.mode, rule.max_detectable
    limit, tail = (0.0, stats.t.sf) if mode == "regression" else (rule.max_drop, stats.t.cdf)
    freedom = np.maximum(table["n_dialogues"] - 1.0, 1.0)
    measured = table["se"].notna()
    # Where all dialogues say the same, nothing tells how far others would differ. That each of them
    # shows a drop is a sign test; that none does is no pass.
    flat = table["se"] * np.sqrt(table["n_dialogues"]) <= 4.0 * FLAT * POINTS
    by_sign = table["drop"] / stats.t.isf(0.5 ** table["n_dialogues"].clip(1, 60), freedom)
    drops = flat & table["drop"].gt(4.0 * FLAT * POINTS) & (mode == "regression")
    table["se"] = table["se"].mask(flat, by_sign.where(drops))
    t = (table["drop"] - limit) / table["se"]
    table["p"] = pd.Series(tail(t, freedom), table.index).where(measured)
    table["p_holm"] = holm(table["p"])
    table["level"] = (
        holm_levels(table["p"], rule.alpha)
        if mode == "regression"
        else np.where(measured, rule.alpha, np.nan)
    )
    half_width = table["se"] * stats.t.ppf(1 - table["level"], freedom)
    table["drop_low"], table["drop_high"] = table["drop"] - half_width, table["drop"] + half_width
    table["detectable"] = half_width + table["se"] * stats.t.ppf(0.8, freedom)
    beyond = table["drop_low"] > 0 if mode == "regression" else table["drop_high"] >= rule.max_drop
    unread = table["fault"].ne("")
    few = (mode == "regression") & (table["detectable"] > max_detectable)
    table["outcome"] = np.select(
        [~measured, beyond, unread | flat | few],
        ["cannot tell", "failed", "cannot tell"],
        "passed",
    )
    turned = table["n_inconsistent"] > rule.max_inconsistent * table["n_both_orders"]
    failed, power = table["outcome"] == "failed", table["detectable"] > 0
    applies = {
        "nothing": ~measured,
        f"{mode}, failed": failed,
        f"{mode}, not failed": measured & ~failed & ~flat,
        f"{mode}, power": power & ~failed if mode == "regression" else power,
        "alike": flat & ~failed,
        "few": few & ~flat & ~failed,
        "turned": measured & turned & failed,
    }
    table["needed"] = np.ceil(table["n_dialogues"] * (table["detectable"] / max_detectable) ** 2)
    words = zip(pd.DataFrame(applies).to_dict("records"), table.to_dict("records"), strict=True)
    table["message"] = [
        _say(keys, row, margin=rule.max_drop, max_detectable=max_detectable) for keys, row in words
    ]
    table["message"] += (". " + table["fault"]).where(measured & unread & ~failed, "")
    return table[COLUMNS]


def _say(applies: Mapping[Any, Any], row: Mapping[Any, Any], **numbers: float) -> str:
    raters = {0: "these raters", 1: "this rater"}.get(
        row["n_raters"], f"these {row['n_raters']} raters"
    )
    return "".join(MESSAGES[key] for key, holds in applies.items() if holds).format(
        **row,
        **describe_change(row["drop"], row["drop_low"], row["drop_high"]),
        raters=raters,
        sure=100 * (1 - row["level"]),
        **numbers,
    )


def describe_change(drop: float, low: float, high: float) -> dict[str, str]:
    rises = round(drop, 1) < 0
    most = f"{high:.1f} or less"
    if rises:
        most = f"at least a rise of {-high:.1f}" if high < 0 else f"at most a drop of {high:.1f}"
    return {
        "change": f"{'rise' if rises else 'drop'} {abs(drop):.1f}",
        "least": f"at most a rise of {-low:.1f}" if low < 0 else f"{low:.1f} or more",
        "most": most,
    }


def _drops(rows: pd.DataFrame, baseline: str, candidate: str) -> tuple[pd.Series, float]:
    """Compute each dialogue's mean drop, and the largest it can be."""
    rows = _entered(rows)
    keys = [
        key
        for key in ("dialogue_id", "history_id", "rater", "opponent")
        if key in rows or key == "opponent"
    ]
    won = won_by_a(rows)
    turned = rows.rename(columns={"responder_a": "responder_b", "responder_b": "responder_a"})
    both = pd.concat([rows.assign(won=won), turned.assign(won=1 - won)]).rename(
        columns={"responder_b": "opponent"}
    )
    direct = (
        both[both["responder_a"].eq(baseline) & both["opponent"].eq(candidate)]
        .groupby(keys)["won"]
        .mean()
        * 2
        - 1
    )
    others = both[~both["opponent"].isin([baseline, candidate])]
    sides = [
        others[others["responder_a"] == name].groupby(keys)["won"].mean()
        for name in (baseline, candidate)
    ]
    drops = pd.concat([sides[0].sub(sides[1]).dropna(), direct]).groupby("dialogue_id").mean()
    most = 1.0 if len(direct) else float(both.loc[both["responder_a"] == baseline, "won"].mean())
    order = _of(rows, candidate)["dialogue_id"].unique()
    return drops.reindex([name for name in order if name in drops.index]), most


def follow_both_orders(
    drops: pd.Series, level: float, alpha: float, margin: float
) -> tuple[pd.DataFrame, int, str]:
    """Monitor the drop in the table's order and in that of digests; stop where both have, alike."""
    paths = []
    for order in (drops.index, order_dialogues(drops.index)):
        path = follow(drops.loc[order].to_numpy(float), level, alpha)
        paths.append((path, *first_stop(path, margin)))
    later = max(paths, key=lambda one: one[1])
    if paths[0][2] != paths[1][2]:
        return paths[0][0], len(drops), "cannot tell"
    return later


def follow(drops: Array, level: float, alpha: float) -> pd.DataFrame:
    """Compute bounds after each dialogue: lower for a stop, upper for a pass."""
    low, p = betting_bound(drops, alpha=level, guess=0.1)
    high = -betting_bound(-drops, alpha=alpha)[0]
    number = np.arange(1, len(drops) + 1)
    return pd.DataFrame(
        {
            "n_dialogues": number,
            "drop": np.cumsum(drops) / number,
            "drop_low": low,
            "drop_high": high,
            "p": p,
        }
    )


def first_stop(path: pd.DataFrame, margin: float) -> tuple[int, str]:
    """Find after how many dialogues, and how, the gate stops."""
    stops = (path["drop_low"] >= 0) | (path["drop_high"] < margin)
    if not stops.any():
        return len(path), "cannot tell"
    first = int(stops.to_numpy().argmax())
    return first + 1, "failed" if path["drop_low"].iloc[first] >= 0 else "passed"
