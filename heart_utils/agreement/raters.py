"""Quality of single raters and their exclusion, and strengths of single writers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from scipy.optimize import brentq
from scipy.special import softmax
from scipy.stats import binomtest, chi2

from heart_utils.ratings.ratings import CENTRE, POINTS, Ratings, fit_ratings
from heart_utils.ratings.resampling import (
    Rng,
    as_rng,
    error_ends,
    interval_ends,
    interval_of,
    ratio,
    standard_error,
    sums_by,
)
from heart_utils.ratings.verdicts import AgreementError, Array, RatingsError
from heart_utils.tables import ORDERS, need_columns

__all__ = ["ExclusionRule", "WriterRatings", "decide_exclusions", "rate_writers", "rater_quality"]

SIDES = {"a": "b", "b": "a"}

PRIOR = 1.0
"""Of reliabilities: what is added to each count of right and wrong answers."""

MOST_STEPS, TOLERANCE = 20_000, 1e-6


@dataclass(frozen=True)
class ExclusionRule:
    """When a rater is left out; defaults are the protocol's. Set others beforehand."""

    #: more failed attention checks than this leave a rater out by themselves
    max_failed_checks: int = 1
    min_median_seconds: float = 8.0  #: a lower median time on a page is the sign ``fast``
    #: a lower chance of so one-sided a choice is ``one_sided``; of so long a run, ``straight_line``
    max_p: float = 0.001
    min_reliability: float = 0.6  #: a lower estimate is the sign ``unreliable``; 0.5 is a coin
    #: that many together leave a rater out; one alone would take fast readers and people of a rare
    #: taste
    signs_needed: int = 2


def rater_quality(
    verdicts: pd.DataFrame, raters: pd.DataFrame | None = None, *, dimension: str = "overall"
) -> pd.DataFrame:
    """Measure how each rater worked.

    Parameters
    ----------
    verdicts
        Of one panel; ``seconds`` and ``position`` are optional.
    raters
        The table of attention checks.
    dimension
        Line of the rubric that all were asked.

    Returns
    -------
    pandas.DataFrame
        One row a ``rater``: ``n_verdicts``, ``median_seconds``, ``tie_share``; ``share_first`` (of
        choices, for the reply shown first) and ``side_p``, the chance of one as far from a half;
        ``longest_run`` of one side, ``run_p``; ``agreement`` with the others' majority on
        ``n_compared`` pairs; ``reliability`` (Dawid and Skene); ``n_checks``, ``n_checks_failed``.

    Raises
    ------
    AgreementError
        If no verdict has the dimension, a rater judged a pair twice, or `raters` lacks one.

    Examples
    --------
    >>> votes = pd.DataFrame({"pair_id": list("pppqqq"), "rater": list("xyz") * 2})
    >>> votes = votes.assign(verdict=list("aabbba"), order="ab", state="valid", repeat=0)
    >>> rater_quality(votes.assign(dimension="overall"))["agreement"].tolist()
    [0.5, 0.5, 0.0]
    """
    rows = verdicts[
        (verdicts["dimension"] == dimension)
        & (verdicts["state"] == "valid")
        & verdicts["verdict"].notna()
    ]
    if rows.empty:
        present = ", ".join(sorted(verdicts["dimension"].unique())) or "none"
        raise AgreementError(
            f"No valid verdict has the dimension {dimension!r}; the table has {present}."
        )
    rows = rows[rows["repeat"] == 0]
    twice = rows.duplicated(["rater", "pair_id"])
    if twice.any():
        first = rows[twice].iloc[0]
        raise AgreementError(
            f"{first['rater']} has two verdicts on the pair {first['pair_id']}; quality is of one"
            " each."
        )
    if "position" in rows:
        rows = rows.sort_values(["rater", "position"], kind="stable")
    by_rater = rows.groupby("rater")
    table = pd.DataFrame({"n_verdicts": by_rater.size()})
    table["median_seconds"] = by_rater["seconds"].median() if "seconds" in rows else np.nan
    counted = pd.DataFrame({"rater": table.index}) if raters is None else raters
    counted = (
        counted.reindex(columns=["rater", "n_checks", "n_checks_passed"])
        .groupby("rater")
        .sum(min_count=1)
    )
    if unknown := sorted(set(table.index) - set(counted.index)):
        raise AgreementError(
            f"The table of raters lacks {len(unknown)} who gave verdicts, first {unknown[0]}."
        )
    counted = counted.loc[table.index].astype("Int64")
    checks = {
        "n_checks": counted["n_checks"],
        "n_checks_failed": counted["n_checks"] - counted["n_checks_passed"],
    }
    table = table.join([_sides(rows), _leave_one_out(rows), rater_reliability(rows)])
    return table.assign(**checks).rename_axis("rater").reset_index()


def decide_exclusions(quality: pd.DataFrame, rule: ExclusionRule | None = None) -> pd.DataFrame:
    """Apply the rule, and say why for each rater. What was not measured is no sign.

    Parameters
    ----------
    quality
        From :func:`rater_quality`.
    rule
        By default the protocol's rule.

    Returns
    -------
    pandas.DataFrame
        One row a rater: ``rater``, ``excluded``, ``signs`` (words) and ``n_verdicts``.

    Examples
    --------
    >>> seen = {"rater": "x", "n_verdicts": 30, "side_p": 1.0, "run_p": 1.0, "reliability": 0.48}
    >>> seen |= {"n_checks_failed": 0, "median_seconds": 4.0}
    >>> decide_exclusions(pd.DataFrame([seen]))[["excluded", "signs"]].to_numpy().tolist()
    [[True, ['fast', 'unreliable']]]
    """
    rule = ExclusionRule() if rule is None else rule
    words = {
        "failed_checks": quality["n_checks_failed"] > rule.max_failed_checks,
        "fast": quality["median_seconds"] < rule.min_median_seconds,
        "one_sided": quality["side_p"] < rule.max_p,
        "straight_line": quality["run_p"] < rule.max_p,
        "unreliable": quality["reliability"] < rule.min_reliability,
    }
    shows_sign = pd.DataFrame(words).fillna(False).astype(bool)
    # A long run is one side chosen often: both show the same thing, so they count once.
    count = (
        shows_sign["fast"].astype(int)
        + (shows_sign["one_sided"] | shows_sign["straight_line"])
        + shows_sign["unreliable"]
    )
    signs = [list(shows_sign.columns[row]) for row in shows_sign.to_numpy()]
    excluded = shows_sign["failed_checks"] | (count >= rule.signs_needed)
    return pd.DataFrame(
        {
            "rater": quality["rater"],
            "excluded": excluded,
            "signs": signs,
            "n_verdicts": quality["n_verdicts"],
        }
    )


def dawid_skene(
    answers: pd.DataFrame, *, mirror: Mapping[str, str] | None = None, prior: float = 0.0
) -> pd.DataFrame:
    """Fit the true class of items and the errors of raters by EM.

    From ``item``, ``rater``, ``answer`` it gives ``probability`` and ``count``, plus `prior`, of
    each ``rater``, ``truth`` and ``answer``. Under a `mirror`, such as a for b, a rater errs alike
    on both. Source: Dawid and Skene (1979), https://doi.org/10.2307/2346806
    """
    columns = ["item", "rater", "answer"]
    need_columns(answers, columns, AgreementError)
    if answers.empty or answers[columns].isna().any(axis=None):
        empty = int(answers[columns].isna().any(axis=1).sum())
        raise AgreementError(
            f"{empty} of {len(answers)} answers lack an item, a rater or the answer; drop failed"
            " ones first."
        )
    (items, item_names), (raters, rater_names) = (
        pd.factorize(answers[column], sort=True) for column in columns[:2]
    )
    classes = sorted({*answers["answer"].astype(str), *(mirror or ())})
    answer_code = pd.Index(classes).get_indexer(pd.Index(answers["answer"].astype(str)))
    swap = [classes.index(mirror[name]) for name in classes] if mirror else None
    posterior = sums_by((items, answer_code), 1.0, len(item_names), len(classes))
    posterior /= posterior.sum(axis=1, keepdims=True)
    for _ in range(MOST_STEPS):
        prevalence = posterior.mean(axis=0)
        counts = sums_by(
            (raters, answer_code), posterior[items], len(rater_names), len(classes)
        ).transpose(0, 2, 1)
        if swap is not None:
            prevalence, counts = (
                (prevalence + prevalence[swap]) / 2,
                counts + counts[:, swap][:, :, swap],
            )
        # A class that a rater never met has equal probabilities.
        errors = ratio(
            counts + prior, (counts + prior).sum(axis=2, keepdims=True), 1 / len(classes)
        )
        log_joint = np.tile(np.log(np.maximum(prevalence, 1e-300)), (len(item_names), 1))
        np.add.at(log_joint, items, np.log(np.maximum(errors, 1e-300))[raters, :, answer_code])
        before, posterior = posterior, softmax(log_joint, axis=1)
        moved = float(np.abs(posterior - before).max())
        if moved < TOLERANCE:
            index = pd.MultiIndex.from_product(
                [rater_names, classes, classes], names=["rater", "truth", "answer"]
            )
            return pd.DataFrame(
                {"probability": errors.ravel(), "count": counts.ravel()}, index=index
            ).reset_index()
    raise AgreementError(
        f"After {MOST_STEPS} steps a posterior still moves by {moved:.1e}. Add a prior, or more"
        " answers."
    )


def rater_reliability(rows: pd.DataFrame) -> pd.DataFrame:
    """Estimate how often a rater who chooses a side chooses the truly better one."""
    table = pd.DataFrame({"tie_share": (rows["verdict"] == "tie").groupby(rows["rater"]).mean()})
    sided = rows.loc[rows["verdict"] != "tie", ["pair_id", "rater", "verdict"]].set_axis(
        ["item", "rater", "answer"], axis=1
    )
    if sided.empty:
        return table.assign(reliability=np.nan)
    fitted = dawid_skene(sided, mirror=SIDES, prior=PRIOR)
    right, wrong = (
        (fitted[hit].groupby("rater")["count"].sum() / 2 + PRIOR).reindex(table.index)
        for hit in (fitted["truth"] == fitted["answer"], fitted["truth"] != fitted["answer"])
    )
    # No interval: whichever counts the guessed winners as known holds the truth in 79 to 91 % of
    # studies instead of 95.
    return table.assign(reliability=right / (right + wrong))


def _sides(rows: pd.DataFrame) -> pd.DataFrame:
    sided = rows[(rows["verdict"] != "tie") & rows["order"].isin(ORDERS)]
    first = (sided["verdict"] == "a") == (sided["order"] == "ab")
    side_rows = []
    for rater, chosen in first.groupby(sided["rater"], sort=True):
        run = _longest_run(chosen.to_numpy())
        p = float(binomtest(int(chosen.sum()), len(chosen)).pvalue)
        side_rows.append((rater, float(chosen.mean()), p, run, _run_probability(len(chosen), run)))
    columns = ["rater", "share_first", "side_p", "longest_run", "run_p"]
    return pd.DataFrame(side_rows, columns=columns).set_index("rater")


def _longest_run(values: np.ndarray) -> int:
    changes = np.flatnonzero(np.diff(values.astype(int))) + 1
    return int(np.diff([0, *changes, len(values)]).max())


def _run_probability(n: int, length: int) -> float:
    if length <= 1:
        return 1.0
    # chance that no run is long enough yet, and the present one has length 1, 2, ...
    ending = np.zeros(length - 1)
    ending[0] = 1.0
    for _ in range(n - 1):
        ending = np.concatenate([[ending.sum() / 2], ending[:-1] / 2])
    return float(1 - ending.sum())


def _leave_one_out(rows: pd.DataFrame) -> pd.DataFrame:
    lean = rows["verdict"].map({"a": 1, "b": -1, "tie": 0})
    sided = (lean != 0).astype(int)
    others = lean.groupby(rows["pair_id"]).transform("sum") - lean
    n_others = sided.groupby(rows["pair_id"]).transform("sum") - sided
    compared = (lean != 0) & (n_others > 0)
    by_rater = ((np.sign(others) * lean + 1) / 2)[compared].groupby(rows.loc[compared, "rater"])
    return pd.DataFrame({"agreement": by_rater.mean(), "n_compared": by_rater.size()})


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
        """Build the leaderboard of writers judged often enough, with their average."""
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
    """Rate writers together and apart, and the average human as the mean over writers.

    A gap is a strength less the mean of those who are no writers; the mean gap's interval is for
    writers like these.

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
        If writers are fewer than three or unknown, or there is nobody else.

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

    Source: Viechtbauer (2007), https://doi.org/10.1002/sim.2514.
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
