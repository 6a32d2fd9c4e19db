"""The rating that HEART released, so that its boards and its intervals can be put beside honest ones."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from heart_utils.analysis.bradley_terry import BradleyTerry, fit_strengths
from heart_utils.analysis.levels import read_margins
from heart_utils.analysis.wins import Entries, check_comparable, count_wins

__all__ = ["LOWEST_RATING", "HIGHEST_RATING", "ReleasedHeart"]

Array = NDArray[np.float64]

PENALTY = 1e-6
LOWEST_RATING, HIGHEST_RATING = 500.0, 3000.0
Z = 1.96


@dataclass(frozen=True, eq=False)
class ReleasedHeart(BradleyTerry):
    """Bradley-Terry on soft scores: a margin of 1 to 5 is 0.55 to 0.95 of a win, a tie half of one.

    Every verdict weighs one, 1e-6 times the squared strengths is taken off the log-likelihood, and the
    geometric mean of exp(strength) is one. Soft scores compress: five pluses from everybody are odds of
    19, one plus from everybody odds of 1.2, however many say so.
    """

    @classmethod
    def fit_margins(cls, verdicts: pd.DataFrame, entries: Entries) -> ReleasedHeart:
        """Fit the entries, once each win is known to have a margin."""
        decided = ~entries.tie & ~entries.inconsistent
        side = np.where(entries.word == 0, 1.0, -1.0)
        soft = 0.5 + np.where(decided, side * (0.1 * read_margins(verdicts, entries) - 0.05), 0.0)
        entries = replace(entries, share=soft)
        wins = count_wins(entries, weights="verdicts").sum()[:, 0]
        check_comparable(wins[0], entries.responders)
        nobody = np.zeros(len(entries.responders), bool)
        return cls(entries, "verdicts", fit_strengths(wins, nobody, ridge=PENALTY)[0], nobody)

    def released_ends(self) -> tuple[Array, Array]:
        """Give the ends of the released interval: strength -+ 1.96 / sqrt(number of verdicts)."""
        size = len(self.theta)
        games = np.bincount(self.entries.a, minlength=size) + np.bincount(self.entries.b, minlength=size)
        reach = Z / np.sqrt(games)
        return self.theta - reach, self.theta + reach
