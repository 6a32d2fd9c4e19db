"""Strengths of single writers, and of the average one."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from scipy.optimize import brentq
from scipy.stats import chi2

from heart_utils.ratings.ratings import CENTRE, POINTS, Ratings, fit_ratings
from heart_utils.ratings.resampling import (
    Rng,
    as_rng,
    error_ends,
    interval_ends,
    interval_of,
    standard_error,
)
from heart_utils.ratings.verdicts import Array, RatingsError

__all__ = ["WriterRatings", "rate_writers"]

POOL = "human"
"""The responder for which several people write."""
LARGEST_SD = 20.0
ENOUGH_DIALOGUES = 10
"""A writer judged in fewer has no row on the leaderboard, but counts in the average."""


@dataclass(frozen=True, eq=False)
class WriterRatings:
    """How writers are rated, together and apart."""

    pooled: Ratings = field(repr=False)  #: the leaderboard on which all writers are one responder
    #: the leaderboard on which each writer is a responder, named ``human/writer-1a2b``
    split: Ratings = field(repr=False)
    #: one row per writer, best first, intervals for dialogues like these; ``enough``: ten dialogues
    #: or more, and not penalised
    writers: pd.DataFrame
    average: float  #: the mean of the gaps, each writer weighing the same: the average human
    these_low: float  #: its interval for these writers and dialogues like these
    these_high: float
    ci_low: float  #: its interval for writers and dialogues like these
    ci_high: float
    ci_level: float  #: of all intervals
    writer_sd: float  #: standard deviation between writers in log-odds, with its interval
    sd_low: float
    sd_high: float

    def leaderboard(self) -> pd.DataFrame:
        """Build the leaderboard of writers judged often enough, with the average writer."""
        few = self.writers.loc[~self.writers["enough"], "writer"]
        table = self.split.table[~self.split.table["responder"].isin(few)]
        mean = self.split.strength[self.writers["writer"]].mean()
        spot = {
            "strength": mean,
            "ci_low": mean - self.average + self.ci_low,
            "ci_high": mean - self.average + self.ci_high,
        }
        spot |= dict(
            zip(
                ["rating", "rating_low", "rating_high"],
                CENTRE + POINTS * np.array([*spot.values()]),
                strict=True,
            )
        )
        row = (
            self.split.table[self.split.table["responder"].isin(self.writers["writer"])]
            .head(1)
            .assign(
                **spot,
                responder="average writer",
                population="dialogues_and_writers",
                penalised=False,
                rank_low=None,
                rank_high=None,
                win_probability=np.nan,
                n_clusters=self.split.n_clusters,
                n_verdicts=int(self.writers["n_verdicts"].sum()),
                provisional=bool(table["provisional"].any()),
            )
        )
        return pd.concat([table, row]).sort_values("strength", ascending=False, ignore_index=True)


def rate_writers(
    verdicts: pd.DataFrame,
    comparisons: pd.DataFrame,
    replies: pd.DataFrame,
    *,
    responders: pd.DataFrame | None = None,
    dimension: str = "overall",
    n_resamples: int = 1000,
    ci_level: float = 0.95,
    rng: Rng = None,
) -> WriterRatings:
    r"""Rate writers together and apart, and the average human as the mean over writers.

    A writer's gap is their strength less the mean of those who are no writers. The mean gap's
    standard error for writers like these is :math:`\sqrt{s^2 + \tau^2 / W}`: W writers, s from
    resampling dialogues, :math:`\tau` their standard deviation.

    Parameters
    ----------
    verdicts, comparisons, replies, responders
        The tables of these names; the last is optional.
    dimension
        A line of the rubric.
    n_resamples, ci_level, rng
        As in :func:`~heart_utils.ratings.resampling.bootstrap_ci`.

    Returns
    -------
    WriterRatings

    Raises
    ------
    RatingsError
        If there are fewer than three writers, nobody else, or a writer is not known.

    Examples
    --------
    >>> from heart_utils.simulate.study import simulate_writers
    >>> rng = np.random.default_rng(1)
    >>> study = simulate_writers({"m": 0.0, "n": -0.3}, rng=rng, n_dialogues=40)
    >>> len(rate_writers(study.verdicts, study.comparisons, study.replies, n_resamples=50).writers)
    12
    """
    rng = as_rng(rng)
    by_writer = split_writers(verdicts, comparisons, replies)
    names = _names(by_writer)
    writers = [name for name in names if name.startswith(f"{POOL}/")]
    count = len(writers)
    if count < 3 or count == len(names):
        raise RatingsError(
            f"{count} writers and {len(names) - count} others were judged; expected three or more,"
            " and one."
        )
    pooled = fit_ratings(
        verdicts,
        responders=responders,
        dimension=dimension,
        n_resamples=n_resamples,
        ci_level=ci_level,
        rng=rng,
    )
    if responders is not None:  # each writer is described as the pool is
        ours = responders[responders["responder"] == POOL].iloc[[0] * count]
        responders = pd.concat([responders, ours.assign(responder=writers)], ignore_index=True)
    split = fit_ratings(
        by_writer,
        responders=responders,
        dimension=dimension,
        n_resamples=n_resamples,
        ci_level=ci_level,
        rng=rng,
    )
    others = [name for name in split.strength.index if name not in writers]
    gaps = (split.strength[writers] - split.strength[others].mean()).to_numpy()
    drawn = split.replicates[writers].sub(split.replicates[others].mean(axis=1), axis=0).to_numpy()
    about = split.table.set_index("responder").loc[writers]
    n_dialogues = about["n_clusters"].to_numpy(dtype=int)
    low, high = interval_ends(gaps, drawn, n_dialogues, ci_level)
    table = pd.DataFrame(
        {"writer": writers, "gap": gaps, "ci_low": low, "ci_high": high, "n_dialogues": n_dialogues}
    )
    enough = (n_dialogues >= ENOUGH_DIALOGUES) & ~about["penalised"].to_numpy(dtype=bool)
    table = table.assign(n_verdicts=about["n_verdicts"].to_numpy(), enough=enough).sort_values(
        "gap", ascending=False
    )
    # What all share, such as the others' luck, is no spread between writers.
    variances = (
        (drawn - drawn.mean(axis=1, keepdims=True)).var(axis=0, ddof=1) * count / (count - 1)
    )
    sd, sd_low, sd_high = paule_mandel(gaps, variances, ci_level=ci_level)
    average, means = float(gaps.mean()), drawn.mean(axis=1)
    n = int(split.n_clusters)
    se = np.sqrt(float(standard_error(means[:, None], n)[0]) ** 2 + sd**2 / count)
    these, like = (
        interval_of(average, means, n, ci_level),
        error_ends(average, se, min(n, count), ci_level),
    )
    ends = *these, float(like[0]), float(like[1])
    return WriterRatings(
        pooled, split, table.reset_index(drop=True), average, *ends, ci_level, sd, sd_low, sd_high
    )


def split_writers(
    verdicts: pd.DataFrame, comparisons: pd.DataFrame, replies: pd.DataFrame
) -> pd.DataFrame:
    """Make each writer a responder of their own."""
    if POOL not in _names(verdicts):
        raise RatingsError(
            f"No verdict is about {POOL!r}; judged were {', '.join(_names(verdicts)[:5])}."
        )
    by_comparison, author = (
        comparisons.set_index("comparison_id"),
        replies.set_index("reply_id")["author_id"],
    )
    split = verdicts.copy()
    for side in ("a", "b"):
        ours = verdicts[f"responder_{side}"] == POOL
        writer = verdicts.loc[ours, "comparison_id"].map(by_comparison[f"reply_{side}"]).map(author)
        if writer.isna().any():
            first = verdicts.loc[writer.index[writer.isna()][0], "comparison_id"]
            raise RatingsError(
                f"{int(writer.isna().sum())} verdicts are about replies of {POOL!r} whose writer is"
                f" not known, first in the comparison {first}. Fill in author_id, or leave those"
                " verdicts out."
            )
        split.loc[ours, f"responder_{side}"] = f"{POOL}/" + writer.astype(str)
    return split


def paule_mandel(
    effects: Array, variances: Array, *, ci_level: float = 0.95
) -> tuple[float, float, float]:
    """Estimate the spread between units from noisy effects, with its interval.

    Paule and Mandel's estimator; Viechtbauer (2007), https://doi.org/10.1002/sim.2514.
    """
    df = len(effects) - 1

    def excess(sd: float, target: float) -> float:
        weights = 1 / np.maximum(variances + sd**2, np.finfo(float).tiny)
        mean = weights @ effects / weights.sum()
        return float(weights @ (effects - mean) ** 2 - target)

    def solve(target: float) -> float:
        if excess(0.0, target) <= 0:
            return 0.0
        return float(brentq(excess, 0.0, LARGEST_SD * (1 + np.abs(effects).max()), args=(target,)))

    tail = (1 - ci_level) / 2
    return solve(df), solve(chi2.ppf(1 - tail, df)), solve(chi2.ppf(tail, df))


def _names(verdicts: pd.DataFrame) -> list[str]:
    return sorted(set(verdicts["responder_a"]) | set(verdicts["responder_b"]))
