"""Power of a study: the smallest difference found, by dialogues, raters and pairs."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields

import numpy as np
import pandas as pd
from scipy import optimize, stats
from scipy.special import expit

from heart_utils.ratings.ratings import POINTS, simultaneous_quantile
from heart_utils.ratings.resampling import FEW_RATERS
from heart_utils.ratings.verdicts import Array

__all__ = ["Design", "NotReckonedError", "minimum_gap", "plan_study"]

LEAST_A_PAIR = 6  # dialogues a pair, on average, below which the formula was not simulated
LARGEST_GAP = 16.0
OTHERS = 0.5  # how far the other responders lie above or below the middle, on the scale of the fit
PLANNED = (
    "n_verdicts",
    "gap",
    "gap_points",
    "win_probability",
    "verdicts",
    "dialogues",
    "raters",
    "why",
)


class NotReckonedError(ValueError):
    """The formula does not hold for a design."""


@dataclass(frozen=True)
class Design:
    """A study of pairwise verdicts, and how much its dialogues and raters differ."""

    n_dialogues: int
    n_responders: int
    pairs: int  #: of responders, compared a dialogue, of n (n - 1) / 2
    votes: int  #: raters a pair and dialogue
    #: among whom votes are dealt; under 20 they are fixed, and their tastes are part of what is
    #: measured
    n_raters: int
    #: of a responder's replies about their strength, in log-odds of a verdict that is no tie
    dialogue_sd: float = 0.8
    rater_sd: float = 0.35  #: of a rater's taste for a responder, in the same unit
    tie_share: float = 0.0  #: share of verdicts that are ties, from 0 to below 1

    @property
    def n_verdicts(self) -> int:
        """How many verdicts the study collects."""
        return self.n_dialogues * self.pairs * self.votes

    @property
    def ties(self) -> float:
        """Davidson's nu under which equals tie as often as ``tie_share`` says."""
        gap, weights = _gaps(2.0 * (self.dialogue_sd**2 + self.rater_sd**2))
        # Half of this upper end is enough, by Jensen's inequality.
        most = 4.0 * float(np.cosh(gap / 2.0) @ weights) * self.tie_share / (1.0 - self.tie_share)

        def missed(nu: float) -> float:
            return float(davidson(gap, nu)[2] @ weights) - self.tie_share

        return float(optimize.brentq(missed, 0.0, most)) if self.tie_share else 0.0

    @property
    def raters_vary(self) -> bool:
        """Whether raters stand for others like them, and differ."""
        return self.n_raters >= FEW_RATERS and self.rater_sd > 0

    @property
    def n_compared(self) -> int:
        """How many pairs of responders there are."""
        return self.n_responders * (self.n_responders - 1) // 2

    @property
    def dialogues_a_pair(self) -> float:
        """In how many dialogues a pair is compared, on average."""
        return self.n_dialogues * self.pairs / self.n_compared

    @property
    def n_effective(self) -> float:
        """Count the equal clusters that carry as much information."""
        # What a pair tells of the difference between two responders: 4 where the two meet, 1 where
        # either meets another.
        total, squares = 2.0 * self.n_responders, 2.0 * self.n_responders + 12.0
        uneven = squares / total**2
        missed, part = 1.0 / max(self.n_compared - 1, 1), self.pairs / self.n_compared
        by_dialogue = (1.0 - part) / part * (uneven * self.n_compared - 1.0) * missed
        dialogues = self.n_dialogues / (1.0 + by_dialogue)
        if not self.raters_vary:
            return dialogues
        a_rater = self.n_verdicts / self.n_raters
        by_rater = (
            (1.0 - self.votes / self.n_raters)
            * (uneven * self.n_compared - 1.0 / self.n_raters)
            / a_rater
        )
        return min(dialogues, self.n_raters / (1.0 + by_rater))


def minimum_gap(
    design: Design, *, power: float = 0.8, ci_level: float = 0.95, n_contrasts: int | None = None
) -> float:
    r"""Return the smallest true gap of strengths that is found with some probability.

    A gap is found if the interval of the difference excludes zero. It is
    :math:`c\, r + z_\text{power} \sqrt{1 + c^2 / 2 \nu}` standard errors, with c the critical value
    on :math:`\nu` degrees of freedom, and r the leaderboard's standard error over that of the
    estimates. Half of the others lie 0.5 above the middle of the two and half 0.5 below.

    Parameters
    ----------
    design
        Ties follow Davidson's model.
    power
        The probability of finding the gap.
    ci_level
        Of the interval.
    n_contrasts
        How many must hold at once (Bonferroni), 1 for one chosen beforehand; by default all pairs.

    Returns
    -------
    float
        In units of strength; times 400 / ln 10 in rating points.

    Raises
    ------
    ValueError
        If the design cannot be.
    NotReckonedError
        If a pair is compared in fewer than six dialogues, or no gap is large enough.

    Notes
    -----
    With K responders, D dialogues, R raters, v votes, N verdicts a responder, each
    pair in M dialogues on average, and P pairs of which p are compared a dialogue, the variance is

    .. math::

        \frac{2 C_1 (K - 2)}{K D} \frac{1 - 1 / p}{1 - 1 / P} + S C_2 E(1 / M) + \frac{E(1 / M)}{v}
        (U - S (C_2 + 2 C_r)) + 2 C_r \left(\frac{1}{R} + \frac{1 - v / R}{N} M E(1 / M)\right)

    without 1 / R where raters are fixed. :math:`C_1`, :math:`C_2`, :math:`C_r` are 16 times the
    covariance of two verdicts that share one reply, both, or the rater's taste; U and S are sums
    over pairs of a verdict's variance and of its squared slope, over the squared sum of slopes.

    Examples
    --------
    >>> from heart_utils.ratings.ratings import POINTS
    >>> paper = Design(n_dialogues=300, n_responders=17, pairs=47, votes=3, n_raters=3)
    >>> [round(minimum_gap(paper, n_contrasts=n) * POINTS) for n in (None, 1)]
    [50, 32]
    """
    _check(design, power, ci_level)
    if design.dialogues_a_pair < LEAST_A_PAIR:
        raise NotReckonedError(
            f"not reckoned for fewer than {LEAST_A_PAIR} dialogues a pair; here it is"
            f" {design.dialogues_a_pair:.1f}. Compare more pairs in a dialogue, or ask for more"
            " dialogues."
        )
    df = design.n_effective - 1.0
    reach = critical_value(design.n_responders, df, ci_level=ci_level, n_contrasts=n_contrasts)
    # The estimate and its error both vary: the usual approximation to a noncentral t.
    errors = _excess(design) * reach * (1.0 - 0.25 / df) + stats.norm.ppf(power) * np.sqrt(
        1.0 + reach**2 / (2.0 * df)
    )

    def missed(gap: float) -> float:
        return float(errors * np.sqrt(sum(_parts(design, gap).values()))) - gap

    most = 1.0
    while missed(most) > 0.0:
        if most > LARGEST_GAP:
            raise NotReckonedError(
                f"no gap up to {LARGEST_GAP:.0f} log-odds is found. Ask for more dialogues or more"
                " raters."
            )
        most *= 2.0
    return float(optimize.brentq(missed, 0.0, most))


def critical_value(
    n_responders: int, df: float, *, ci_level: float = 0.95, n_contrasts: int | None = None
) -> float:
    """Compute how many standard errors a found difference must exceed."""
    if n_contrasts is None:
        return simultaneous_quantile(n_responders, df + 1.0, ci_level)
    return float(stats.t.isf((1.0 - ci_level) / (2.0 * max(n_contrasts, 1)), df))


def normal_nodes(n: int) -> tuple[Array, Array]:
    nodes, weights = np.polynomial.hermite_e.hermegauss(n)
    return nodes, weights / weights.sum()


def davidson(gap: Array, nu: float) -> tuple[Array, Array, Array]:
    """Compute shares of wins, losses and ties by gap."""
    up, down = np.exp(gap / 2.0), np.exp(-gap / 2.0)
    total = up + down + nu
    return up / total, down / total, nu / total


def expected_share(gap: Array, nu: float) -> tuple[Array, Array]:
    """Compute the expected share of a verdict by gap, and ties."""
    wins, _, ties = davidson(gap, nu)
    return wins + ties / 2.0, ties


def plan_study(
    designs: list[Design],
    *,
    power: float = 0.8,
    ci_level: float = 0.95,
    n_contrasts: int | None = None,
) -> pd.DataFrame:
    """Compute the smallest gap that each study design can detect, one row a design.

    Parameters
    ----------
    designs
        One row each.
    power, ci_level, n_contrasts
        As in :func:`minimum_gap`.

    Returns
    -------
    pandas.DataFrame
        Designs with ``n_verdicts``; ``gap`` (log-odds), ``gap_points``; ``win_probability`` there;
        ``verdicts``, ``dialogues``, ``raters``: shares of the variance; ``why`` there is no gap.

    Raises
    ------
    ValueError
        If a design cannot be, such as more pairs than there are.

    Examples
    --------
    >>> design = Design(n_dialogues=100, n_responders=17, pairs=47, votes=3, n_raters=3)
    >>> plan_study([design])[["n_verdicts", "gap_points"]].round().values.tolist()
    [[14100.0, 89.0]]
    """
    rows = []
    for design in designs:
        try:
            gap = minimum_gap(design, power=power, ci_level=ci_level, n_contrasts=n_contrasts)
        except NotReckonedError as error:
            rows.append(asdict(design) | {"n_verdicts": design.n_verdicts, "why": str(error)})
            continue
        parts = _parts(design, gap)
        total = sum(parts.values())
        shares = {name: part / total for name, part in parts.items()}
        detectable = {"gap": gap, "gap_points": POINTS * gap, "win_probability": expit(gap)}
        planned = asdict(design) | {"n_verdicts": design.n_verdicts, "why": ""}
        rows.append(planned | detectable | shares)
    return pd.DataFrame(rows, columns=[*(field.name for field in fields(Design)), *PLANNED])


def _excess(design: Design) -> float:
    """Compute how much the leaderboard's standard error exceeds the estimates'."""
    # A jackknife counts a verdict's own leverage once too often, and with raters each of three sums
    # does; of those, the draws
    # from the covariance are corrected as resamples of the fewer clusters are.
    leverage = (
        (design.n_responders - 1.0)
        / design.n_verdicts
        * design.dialogues_a_pair
        * inverse_met(design)
    )
    if not design.raters_vary:
        return float(np.sqrt(1.0 + leverage))
    fewest = min(design.n_dialogues, design.n_raters)
    return float(np.sqrt((1.0 + 3.0 * leverage) * fewest / (fewest - 1.0)))


def inverse_met(design: Design) -> float:
    """Compute the mean of one over a pair's number of dialogues."""
    n_dialogues = design.dialogues_a_pair
    uneven = (1.0 - design.pairs / design.n_compared) / n_dialogues
    return (1.0 + uneven + 2.0 * uneven**2 + 6.0 * uneven**3) / n_dialogues


def _parts(design: Design, gap: float) -> dict[str, float]:
    """Compute the variance of a difference at this gap, by source."""
    others = design.n_responders - 2
    shared, inverse = shared_covariances(design), inverse_met(design)
    # The pair itself, which counts twice, and the pairs of either with the others.
    distance = np.array([gap, gap / 2.0 - OTHERS, gap / 2.0 + OTHERS])
    times = np.array([4.0, others, others])
    slope = 0.25 / np.cosh(distance / 2.0) ** 2
    near = design.tie_share * np.sqrt(4.0 * slope)
    ties = near / (1.0 - design.tie_share + near)
    total = float(np.array([2.0, others / 2.0, others / 2.0]) @ slope) ** 2
    squares, verdict = float(times @ slope**2) / total, float(times @ (slope - ties / 4.0)) / total
    alone = verdict - squares * (shared["replies"] + 2.0 * shared["taste"])
    together = (
        (1.0 - 1.0 / design.pairs) / (1.0 - 1.0 / design.n_compared)
        if design.n_compared > 1
        else 1.0
    )
    own = 2.0 * shared["reply"] * others / (design.n_responders * design.n_dialogues) * together
    # Who is dealt which pair is chance even where the raters are fixed, unless all judge
    # everything.
    of_responder = 2.0 * design.n_verdicts / design.n_responders
    dealt = (
        (1.0 - design.votes / design.n_raters) / of_responder * design.dialogues_a_pair * inverse
    )
    drawn = 1.0 / design.n_raters if design.n_raters >= FEW_RATERS else 0.0
    return {
        "verdicts": alone * inverse / design.votes,
        "dialogues": own + squares * shared["replies"] * inverse,
        "raters": 2.0 * shared["taste"] * (dealt + drawn),
    }


def shared_covariances(design: Design) -> dict[str, float]:
    """Compute 16 times verdicts' covariance by shared replies or taste."""
    reply, taste = design.dialogue_sd**2, design.rater_sd**2
    variance = 2.0 * (reply + taste)
    if variance == 0:
        return dict.fromkeys(("reply", "replies", "taste"), 0.0)
    gap, weights = _gaps(variance)
    nu = design.ties
    lead = expected_share(gap, nu)[0] - 0.5

    def covariance(correlation: float) -> float:
        other = correlation * gap[:, None] + np.sqrt(1.0 - correlation**2) * gap
        return 16.0 * float((lead * ((expected_share(other, nu)[0] - 0.5) @ weights)) @ weights)

    wanted = {"reply": reply, "replies": 2.0 * reply, "taste": taste}
    return {name: covariance(common / variance) for name, common in wanted.items()}


def _gaps(variance: float) -> tuple[Array, Array]:
    nodes, weights = normal_nodes(61)
    return np.sqrt(variance) * nodes, weights


def _check(design: Design, power: float, ci_level: float) -> None:
    if (
        design.n_responders < 2
        or design.n_dialogues < 2
        or design.votes < 1
        or design.n_raters < design.votes
    ):
        raise ValueError(
            "A study needs two responders, two dialogues and as many raters as votes a pair; this"
            f" is {design}."
        )
    if not 1 <= design.pairs <= design.n_compared:
        raise ValueError(
            f"{design.n_responders} responders make {design.n_compared} pairs; {design.pairs}"
            " cannot meet in a dialogue."
        )
    if not 0 <= design.tie_share < 1:
        raise ValueError(f"tie_share is {design.tie_share}; it lies from 0 to below 1.")
    if not 0 < power < 1 or not 0 < ci_level < 1:
        raise ValueError(f"power is {power} and ci_level {ci_level}; both lie between 0 and 1.")
