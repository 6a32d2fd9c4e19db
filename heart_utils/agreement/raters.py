"""Quality of single raters, and their exclusion."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.special import softmax
from scipy.stats import binomtest

from heart_utils.ratings.resampling import (
    ratio,
    sums_by,
)
from heart_utils.ratings.verdicts import AgreementError
from heart_utils.tables import ORDERS, need_columns

__all__ = ["ExclusionRule", "decide_exclusions", "rater_quality"]

SIDES = {"a": "b", "b": "a"}

PRIOR = 1.0
"""Of reliabilities: what is added to each count of right and wrong answers."""

MOST_STEPS, TOLERANCE = 20_000, 1e-6


@dataclass(frozen=True)
class ExclusionRule:
    """When a rater is left out.

    Defaults are those of the protocol; a study may set others, beforehand.
    """

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
        Of one panel; ``seconds`` and ``position`` are used if they are there.
    raters
        The table of attention checks, if any.
    dimension
        The line of the rubric that all were asked.

    Returns
    -------
    pandas.DataFrame
        One row per ``rater``: ``n_verdicts``, ``median_seconds``, ``tie_share``; ``share_first``
        (of choices, for the reply shown first) and ``side_p``, the chance of one as far from a
        half; ``longest_run`` of one side and ``run_p``; ``agreement`` with the majority of the
        others on ``n_compared`` pairs; ``reliability`` (Dawid and Skene's); ``n_checks``,
        ``n_checks_failed``.

    Raises
    ------
    AgreementError
        If no verdict has the dimension, a rater gave two valid verdicts on one pair, or `raters`
        lacks one.

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
        As :func:`rater_quality` makes it.
    rule
        By default the protocol's rule.

    Returns
    -------
    pandas.DataFrame
        One row per rater: ``rater``, ``excluded``, ``signs`` (a list of words) and ``n_verdicts``.

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

    It takes ``item``, ``rater``, ``answer`` and returns ``probability`` and ``count``, plus
    `prior`, of each ``rater``, ``truth`` and ``answer``. Under a `mirror`, such as a for b, a rater
    errs alike on a class and on its image. Source: Dawid and Skene (1979),
    https://doi.org/10.2307/2346806
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
    unpaired = [name for name in classes if mirror and mirror.get(mirror.get(name, "")) != name]
    if unpaired:
        raise AgreementError(
            f"The mirror {mirror} does not pair {', '.join(unpaired)} with a class and back."
        )
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
    """Find which side each rater chose, in sequence, where the order is known."""
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
    """Compute the probability that n fair tosses hold a run of at least this length."""
    if length <= 1:
        return 1.0
    # chance that no run is long enough yet, and the present one has length 1, 2, ...
    ending = np.zeros(length - 1)
    ending[0] = 1.0
    for _ in range(n - 1):
        ending = np.concatenate([[ending.sum() / 2], ending[:-1] / 2])
    return float(1 - ending.sum())


def _leave_one_out(rows: pd.DataFrame) -> pd.DataFrame:
    """Compare each choice with the majority of the others on the same pair."""
    lean = rows["verdict"].map({"a": 1, "b": -1, "tie": 0})
    sided = (lean != 0).astype(int)
    others = lean.groupby(rows["pair_id"]).transform("sum") - lean
    n_others = sided.groupby(rows["pair_id"]).transform("sum") - sided
    compared = (lean != 0) & (n_others > 0)
    by_rater = ((np.sign(others) * lean + 1) / 2)[compared].groupby(rows.loc[compared, "rater"])
    return pd.DataFrame({"agreement": by_rater.mean(), "n_compared": by_rater.size()})
