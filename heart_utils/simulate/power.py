"""How large a gap a study can see: dialogues, raters and pairs against the smallest difference found."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
import pandas as pd
from scipy import optimize, stats
from scipy.special import expit

from heart_utils.ratings.ratings import POINTS
from heart_utils.ratings.resampling import FEW_RATERS
from heart_utils.ratings.spread import simultaneous_quantile
from heart_utils.ratings.verdicts import Array

__all__ = ["Design", "minimum_gap", "plan_study"]


@dataclass(frozen=True)
class Design:
    """A study of pairwise verdicts, and how much its dialogues and raters differ."""

    n_dialogues: int
    n_responders: int
    pairs: int  # of responders, compared a dialogue, of n (n - 1) / 2
    votes: int  # raters a pair and dialogue
    n_raters: int  # among whom votes are dealt; under 20 they are fixed, and their tastes are part of what is measured
    dialogue_sd: float = 0.8  # of a responder's replies about their strength, in log-odds of a verdict that is no tie
    rater_sd: float = 0.35  # of a rater's taste for a responder, in the same unit
    tie_share: float = 0.0  # share of verdicts that are ties, from 0 to below 1

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
    def n_clusters(self) -> int:
        """The smallest number of clusters behind a difference."""
        return min(self.n_dialogues, self.n_raters) if self.raters_vary else self.n_dialogues


def minimum_gap(design: Design, *, power: float = 0.8, ci_level: float = 0.95, n_contrasts: int | None = None) -> float:
    r"""Give the smallest true gap of strengths that is found with some probability: :math:`c + t_\text{power}` standard errors.

    The interval of the difference must exclude zero, with c from ``critical_value``. The variance for two middling responders
    adds, with K responders, v votes and M dialogues a pair, D dialogues, R raters, N verdicts a responder and the part f of
    pairs compared a dialogue: dialogues :math:`2 C_1 / D \cdot (1 + 2 (1 - f) / (f K)) + 2 (C_2 - 2 C_1) / (K M)`; raters
    :math:`2 C_r (1 / R + (1 - v / R) / N)`, without 1 / R where they are fixed; verdicts :math:`2 (4 (1 - t) - C_2 - 2 C_r) /
    (K v M)` for a share t of ties. :math:`C_1`, :math:`C_2`, :math:`C_r` are 16 times the covariance of two verdicts that share
    one reply, both, or the rater's taste, ties as in Davidson (1970), https://doi.org/10.1080/01621459.1970.10481082

    Parameters
    ----------
    design : Design
        Who judges what, and how much replies and raters vary.
    power : float
        Probability of finding the gap.
    ci_level : float
        Level of the interval.
    n_contrasts : int
        Number of differences that must hold at once (Bonferroni), 1 for one chosen beforehand; by default all pairs of
        responders.

    Returns
    -------
    float
        In units of strength; times 400 / ln 10 in rating points.

    Raises
    ------
    ValueError
        If the design cannot be.

    Examples
    --------
    >>> from heart_utils.ratings.ratings import POINTS
    >>> paper = Design(n_dialogues=300, n_responders=17, pairs=47, votes=3, n_raters=3)  # some 42,000 verdicts
    >>> [round(minimum_gap(paper, n_contrasts=n) * POINTS) for n in (None, 1)]  # any pair of the leaderboard, one named pair
    [49, 32]
    """
    _check(design, power, ci_level)
    df = design.n_clusters - 1
    reach = critical_value(design.n_responders, df, ci_level=ci_level, n_contrasts=n_contrasts)
    return float((reach + stats.t.ppf(power, df)) * np.sqrt(sum(_parts(design).values())))


def critical_value(n_responders: int, df: float, *, ci_level: float = 0.95, n_contrasts: int | None = None) -> float:
    """Give how many standard errors a difference must exceed to count as found, by the rule of a leaderboard."""
    if n_contrasts is None:
        return simultaneous_quantile(n_responders, df + 1.0, ci_level)
    return float(stats.t.isf((1.0 - ci_level) / (2.0 * max(n_contrasts, 1)), df))


def normal_nodes(n: int) -> tuple[Array, Array]:
    """Give places and weights that average a function over a standard normal distribution."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(n)
    return nodes, weights / weights.sum()


def davidson(gap: Array, nu: float) -> tuple[Array, Array, Array]:
    """Give how often somebody ahead by a gap wins, loses and ties, after Davidson."""
    up, down = np.exp(gap / 2.0), np.exp(-gap / 2.0)
    total = up + down + nu
    return up / total, down / total, nu / total


def expected_share(gap: Array, nu: float) -> tuple[Array, Array]:
    """Give the share of a verdict that is won by somebody ahead by a gap, a tie being half, and how often they tie."""
    wins, _, ties = davidson(gap, nu)
    return wins + ties / 2.0, ties


def plan_study(
    designs: list[Design], *, power: float = 0.8, ci_level: float = 0.95, n_contrasts: int | None = None
) -> pd.DataFrame:
    """Compute the power of several study designs: the smallest gap that each can detect, one row a design.

    Parameters
    ----------
    designs : list of Design
        Designs to compare, one row each.
    power, ci_level, n_contrasts
        As in :func:`minimum_gap`.

    Returns
    -------
    pandas.DataFrame
        The designs' own columns, ``n_verdicts``, ``gap``, ``gap_points``, ``win_probability`` (of the better at that gap), and
        the parts of the variance of a difference that come from ``verdicts``, ``dialogues`` and ``raters``.

    Examples
    --------
    >>> designs = [Design(n_dialogues=n, n_responders=17, pairs=47, votes=3, n_raters=3) for n in (100, 300)]
    >>> plan_study(designs)[["n_dialogues", "n_verdicts", "gap_points"]].round().astype(int).values.tolist()
    [[100, 14100, 88], [300, 42300, 49]]
    """
    rows = []
    for design in designs:
        gap = minimum_gap(design, power=power, ci_level=ci_level, n_contrasts=n_contrasts)
        parts = _parts(design)
        total = sum(parts.values())
        found = {"n_verdicts": design.n_verdicts, "gap": gap, "gap_points": POINTS * gap, "win_probability": expit(gap)}
        rows.append(asdict(design) | found | {name: part / total for name, part in parts.items()})
    return pd.DataFrame(rows)


def _parts(design: Design) -> dict[str, float]:
    size, compared = design.n_responders, design.n_responders * (design.n_responders - 1) / 2
    part = design.pairs / compared
    per_pair = size * design.n_dialogues * part
    of_responder = 2.0 * design.n_verdicts / size
    shared = shared_covariances(design)
    # Who is dealt which pair is chance even where the raters are fixed, unless all judge everything.
    dealt = (1.0 - design.votes / design.n_raters) / of_responder
    drawn = 1.0 / design.n_raters if design.n_raters >= FEW_RATERS else 0.0
    own = 2.0 * shared["reply"] / design.n_dialogues * (1.0 + 2.0 * (1.0 - part) / (part * size))
    met = 2.0 * (shared["replies"] - 2.0 * shared["reply"]) / per_pair
    alone = 4.0 * (1.0 - design.tie_share) - shared["replies"] - 2.0 * shared["taste"]
    by_verdict, by_taste = 2.0 * alone / (per_pair * design.votes), 2.0 * shared["taste"] * (dealt + drawn)
    return {"verdicts": by_verdict, "dialogues": own + met, "raters": by_taste}


def shared_covariances(design: Design) -> dict[str, float]:
    """Give 16 times the covariance of two verdicts, between equals, that share a reply, both replies, or a rater's taste."""
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
    """Give gaps of two equals in a dialogue, and the weight of each."""
    nodes, weights = normal_nodes(61)
    return np.sqrt(variance) * nodes, weights


def _check(design: Design, power: float, ci_level: float) -> None:
    compared = design.n_responders * (design.n_responders - 1) // 2
    if design.n_responders < 2 or design.n_dialogues < 2 or design.votes < 1 or design.n_raters < design.votes:
        raise ValueError(f"A study needs two responders, two dialogues and as many raters as votes a pair; this is {design}.")
    if not 1 <= design.pairs <= compared:
        raise ValueError(f"{design.n_responders} responders make {compared} pairs; {design.pairs} cannot meet in a dialogue.")
    if not 0 <= design.tie_share < 1:
        raise ValueError(f"tie_share is {design.tie_share}; it lies from 0 to below 1.")
    if not 0 < power < 1 or not 0 < ci_level < 1:
        raise ValueError(f"power is {power} and ci_level {ci_level}; both lie between 0 and 1.")
