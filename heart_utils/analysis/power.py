"""How large a gap a study can see: dialogues, raters and pairs against the smallest difference found."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from scipy import stats
from scipy.special import expit

from heart_utils.analysis.board import POINTS
from heart_utils.analysis.sandwich import FEW_RATERS

__all__ = ["Design", "minimum_gap", "needed_dialogues", "plan_study"]

MOST_DIALOGUES = 10_000_000


@dataclass(frozen=True)
class Design:
    """A study of pairwise verdicts, and how much its dialogues and raters differ.

    Attributes
    ----------
    n_dialogues, n_responders : int
        How many.
    pairs : int
        Pairs of responders compared a dialogue, of n (n - 1) / 2.
    votes : int
        Raters a pair and dialogue.
    n_raters : int
        Among whom votes are dealt; under 20 they are fixed, and their tastes are part of what is measured.
    dialogue_sd : float
        Standard deviation of a responder's replies about their strength, in log-odds.
    rater_sd : float
        Standard deviation of a rater's taste for a responder, in log-odds.
    tie_share : float
        Share of verdicts that are ties.
    """

    n_dialogues: int
    n_responders: int
    pairs: int
    votes: int
    n_raters: int
    dialogue_sd: float = 0.8
    rater_sd: float = 0.35
    tie_share: float = 0.0

    @property
    def n_verdicts(self) -> int:
        """How many verdicts the study collects."""
        return self.n_dialogues * self.pairs * self.votes


def minimum_gap(design: Design, *, power: float = 0.8, ci_level: float = 0.95, n_contrasts: int = 1) -> float:
    r"""Give the smallest true gap of strengths that is found with some probability.

    Two responders near the middle of the field differ by the gap; it is found if the interval of their
    difference excludes zero. The variance of the difference adds three parts, on the scale of an even
    tournament's strengths. Verdicts: :math:`8 \tau / (K v M)` for K responders, v votes and M dialogues a
    pair, with :math:`\tau` four times the variance of a verdict within dialogue and rater. Dialogues:
    :math:`2 s_d^2 / D \cdot (1 + 2 (1 - f) / (f K))` with f the part of pairs compared a dialogue. Raters:
    :math:`2 s_r^2 (1 / R + (1 - v / R) / N)` with N verdicts a responder, without 1 / R where raters are
    fixed. Standard deviations are first brought from a dialogue's log-odds to that scale, where unlike
    dialogues bring probabilities closer to a half.

    Parameters
    ----------
    design : Design
        The study.
    power : float
        Such as 0.8.
    ci_level : float
        Such as 0.95.
    n_contrasts : int
        Contrasts that must hold at once (Bonferroni).

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
    >>> from heart_utils.analysis.board import POINTS
    >>> paper = Design(n_dialogues=300, n_responders=17, pairs=47, votes=3, n_raters=3)  # some 42,000 verdicts
    >>> round(minimum_gap(paper), 2), round(minimum_gap(paper) * POINTS)  # strength, rating points
    (0.18, 32)
    """
    _check(design, power, ci_level)
    variance, smallest = _variance(design)
    alpha = (1.0 - ci_level) / n_contrasts
    df = smallest - 1
    return float((stats.t.ppf(1.0 - alpha / 2.0, df) + stats.t.ppf(power, df)) * np.sqrt(variance))


def needed_dialogues(
    design: Design, gap: float, *, power: float = 0.8, ci_level: float = 0.95, n_contrasts: int = 1
) -> int | None:
    """Give the number of dialogues that a gap needs, all else as in the design.

    Parameters
    ----------
    design : Design
        Its ``n_dialogues`` is not used.
    gap : float
        In units of strength.
    power, ci_level : float
        As in :func:`minimum_gap`.
    n_contrasts : int
        As in :func:`minimum_gap`.

    Returns
    -------
    int or None
        None where no number is enough, because raters differ too much.

    Examples
    --------
    >>> design = Design(n_dialogues=1, n_responders=2, pairs=1, votes=1, n_raters=1, dialogue_sd=0, rater_sd=0)
    >>> needed_dialogues(design, gap=0.5)  # about 4 * 7.85 / 0.5**2
    128
    """
    if not gap > 0:
        raise ValueError(f"gap is {gap}, expected a number above 0.")

    def enough(n_dialogues: int) -> bool:
        return minimum_gap(_with(design, n_dialogues), power=power, ci_level=ci_level, n_contrasts=n_contrasts) <= gap

    high = 2
    while not enough(high):
        high *= 2
        if high > MOST_DIALOGUES:
            return None
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def plan_study(designs: list[Design], *, power: float = 0.8, ci_level: float = 0.95, n_contrasts: int = 1) -> pd.DataFrame:
    """Lay several designs side by side.

    Parameters
    ----------
    designs : list of Design
        One row each.
    power, ci_level : float
        As in :func:`minimum_gap`.
    n_contrasts : int
        As in :func:`minimum_gap`.

    Returns
    -------
    pandas.DataFrame
        The designs' own columns, ``n_verdicts``, ``gap`` (strength), ``gap_points`` (rating points),
        ``win_probability`` (of the better over the other at that gap), and the parts of the variance of a
        difference that come from ``verdicts``, ``dialogues`` and ``raters``.

    Examples
    --------
    >>> designs = [Design(n_dialogues=n, n_responders=17, pairs=47, votes=3, n_raters=3) for n in (100, 300)]
    >>> plan_study(designs)[["n_dialogues", "n_verdicts", "gap_points"]].round().astype(int).values.tolist()
    [[100, 14100, 56], [300, 42300, 32]]
    """
    rows = []
    for design in designs:
        gap = minimum_gap(design, power=power, ci_level=ci_level, n_contrasts=n_contrasts)
        parts = _parts(design)
        total = sum(parts.values())
        rows.append(
            {
                **{name: getattr(design, name) for name in Design.__dataclass_fields__},
                "n_verdicts": design.n_verdicts,
                "gap": gap,
                "gap_points": POINTS * gap,
                "win_probability": expit(gap),
                **{name: part / total for name, part in parts.items()},
            }
        )
    return pd.DataFrame(rows)


def _variance(design: Design) -> tuple[float, int]:
    """Give the variance of a difference of strengths, and the smallest number of clusters behind it."""
    varying = design.n_raters >= FEW_RATERS and design.rater_sd > 0
    return sum(_parts(design).values()), min(design.n_dialogues, design.n_raters) if varying else design.n_dialogues


def _parts(design: Design) -> dict[str, float]:
    size, compared = design.n_responders, design.n_responders * (design.n_responders - 1) / 2
    part = design.pairs / compared
    own_variance = design.dialogue_sd**2 + design.rater_sd**2
    shrink, left = _on_even_scale(2.0 * own_variance)
    per_pair = design.n_dialogues * part
    of_responder = 2.0 * design.n_verdicts / size
    # Who is dealt which pair is chance even where the raters are fixed, unless all judge everything.
    dealt = (1.0 - design.votes / design.n_raters) / of_responder
    drawn = 1.0 / design.n_raters if design.n_raters >= FEW_RATERS else 0.0
    raters = 2.0 * (design.rater_sd * shrink) ** 2 * (dealt + drawn)
    dialogues = 2.0 * (design.dialogue_sd * shrink) ** 2 / design.n_dialogues * (1.0 + 2.0 * (1.0 - part) / (part * size))
    return {
        "verdicts": 8.0 * left * (1.0 - design.tie_share) / (size * design.votes * per_pair),
        "dialogues": dialogues,
        "raters": raters,
    }


def _on_even_scale(variance: float) -> tuple[float, float]:
    """Tell how averaging over gaps of some variance shrinks them, and what part of a verdict's variance is left within."""
    if variance == 0:
        return 1.0, 1.0
    nodes, weights = np.polynomial.hermite_e.hermegauss(61)
    spread = float(((expit(np.sqrt(variance) * nodes) - 0.5) ** 2) @ (weights / weights.sum()))
    return float(np.sqrt(16.0 * spread / variance)), 1.0 - 4.0 * spread


def _with(design: Design, n_dialogues: int) -> Design:
    return replace(design, n_dialogues=n_dialogues)


def _check(design: Design, power: float, ci_level: float) -> None:
    compared = design.n_responders * (design.n_responders - 1) // 2
    if design.n_responders < 2 or design.n_dialogues < 2 or design.votes < 1 or design.n_raters < design.votes:
        raise ValueError(
            f"A study needs two responders and dialogues or more, and as many raters as votes a pair; this is {design}."
        )
    if not 1 <= design.pairs <= compared:
        raise ValueError(
            f"{design.n_responders} responders make {compared} pairs, so {design.pairs} cannot be compared in a dialogue."
        )
    if not 0 < power < 1 or not 0 < ci_level < 1:
        raise ValueError(f"power is {power} and ci_level {ci_level}; both lie between 0 and 1.")
