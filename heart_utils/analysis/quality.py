"""What careless rating looks like, and a rule for leaving raters out that is written down before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.stats import binomtest

from heart_utils.analysis.reliability import rater_reliability

__all__ = ["ExclusionRule", "QualityError", "compare_exclusions", "decide_exclusions", "rater_quality"]


class QualityError(ValueError):
    """Raters cannot be judged from these tables."""


@dataclass(frozen=True)
class ExclusionRule:
    """When a rater is left out. Defaults are those of the protocol; a study may set others, beforehand.

    Attributes
    ----------
    max_failed_checks : int
        More failed attention checks than this leave a rater out by themselves.
    min_median_seconds : float
        A lower median time on a page is the sign ``fast``.
    max_p : float
        A chance below this of so one-sided a choice is the sign ``one_sided``; of so long a run of one
        side, ``straight_line``.
    min_reliability : float
        A lower estimate is the sign ``unreliable``; 0.5 is a coin.
    signs_needed : int
        That many signs together leave a rater out. One alone does not: fast readers, people with a
        side by chance, and people of a rare taste would go.
    """

    max_failed_checks: int = 1
    min_median_seconds: float = 8.0
    max_p: float = 0.001
    min_reliability: float = 0.6
    signs_needed: int = 2


def rater_quality(
    verdicts: pd.DataFrame, raters: pd.DataFrame | None = None, *, dimension: str = "overall", margins: bool = True
) -> pd.DataFrame:
    """Measure how each rater worked.

    Parameters
    ----------
    verdicts : pandas.DataFrame
        The table ``verdicts`` of one panel. ``seconds`` and ``position`` are used if they are there.
    raters : pandas.DataFrame, optional
        The table ``raters``, for attention checks.
    dimension : str
        The line of the rubric that all were asked.
    margins : bool
        Whether margins were asked; else ``same_margin`` is empty.

    Returns
    -------
    pandas.DataFrame
        One row per rater: ``rater``; ``n_verdicts`` (valid); ``median_seconds``; ``share_first``, of
        choices for the reply shown first, and ``side_p``, the chance of one as far from a half;
        ``longest_run`` of one side, ties apart, and ``run_p``, the chance of one as long in fair tosses;
        ``same_margin``, the share of the margin used most; ``tie_share``; ``agreement`` with the majority
        of the others on ``n_compared`` pairs, a split majority counting half; ``reliability`` with
        ``ci_low``, ``ci_high`` and ``ci_level``; ``n_checks`` and ``n_checks_failed``. What cannot be known is empty.

    Raises
    ------
    QualityError
        If no verdict has the dimension, a rater gave two valid verdicts on one pair, or `raters` lacks one.

    Examples
    --------
    >>> votes = pd.DataFrame({"pair_id": [1, 1, 1, 2, 2, 2], "rater": ["x", "y", "z"] * 2, "verdict": list("aabbba"),
    ...     "order": "ab", "dimension": "overall", "state": "valid", "margin": 3.0, "repeat": 0})
    >>> rater_quality(votes)[["rater", "share_first", "agreement"]].to_numpy().tolist()
    [['x', 0.5, 0.5], ['y', 0.5, 0.5], ['z', 0.5, 0.0]]
    """
    rows = verdicts[(verdicts["dimension"] == dimension) & (verdicts["state"] == "valid") & verdicts["verdict"].notna()]
    rows = rows[rows["repeat"] == 0]
    if rows.empty:
        raise QualityError(f"No valid verdict has the dimension {dimension!r}.")
    twice = rows.duplicated(["rater", "pair_id"])
    if twice.any():
        first = rows[twice].iloc[0]
        raise QualityError(
            f"{first['rater']} has two verdicts on the pair {first['pair_id']}; quality is measured on one each."
        )
    if "position" in rows:
        rows = rows.sort_values(["rater", "position"], kind="stable")
    by_rater = rows.groupby("rater")
    table = pd.DataFrame({"n_verdicts": by_rater.size()})
    table["median_seconds"] = by_rater["seconds"].median() if "seconds" in rows else np.nan
    table = table.join(_sides(rows))
    table["same_margin"] = by_rater["margin"].agg(_top_share) if margins else np.nan
    table["tie_share"] = (rows["verdict"] == "tie").groupby(rows["rater"]).mean()
    table = table.join(_leave_one_out(rows))
    table = table.join(rater_reliability(rows, dimension=dimension).set_index("rater")[["reliability", "ci_low", "ci_high"]])
    table["ci_level"] = 0.95
    return table.join(_checks(table.index, raters)).rename_axis("rater").reset_index()


def decide_exclusions(quality: pd.DataFrame, rule: ExclusionRule | None = None) -> pd.DataFrame:
    """Apply the rule, and say why for each rater.

    Parameters
    ----------
    quality : pandas.DataFrame
        As :func:`rater_quality` makes it.
    rule : ExclusionRule, optional
        The protocol's, by default.

    Returns
    -------
    pandas.DataFrame
        One row per rater: ``rater``, ``excluded``, ``signs`` (a list of words) and ``n_verdicts``. What
        was not measured is no sign.

    Examples
    --------
    >>> seen = pd.DataFrame({"rater": ["x"], "n_verdicts": [30], "median_seconds": [4.0], "side_p": [0.5], "run_p": [0.5],
    ...     "reliability": [0.48], "n_checks_failed": [0]})
    >>> decide_exclusions(seen)[["excluded", "signs"]].to_numpy().tolist()
    [[True, ['fast', 'unreliable']]]
    """
    rule = ExclusionRule() if rule is None else rule
    failed = quality["n_checks_failed"] > rule.max_failed_checks
    seen = pd.DataFrame(
        {
            "fast": quality["median_seconds"] < rule.min_median_seconds,
            "one_sided": quality["side_p"] < rule.max_p,
            "straight_line": quality["run_p"] < rule.max_p,
            "unreliable": quality["reliability"] < rule.min_reliability,
        }
    ).fillna(False)
    # A long run is one side chosen often: both show the same thing, so they count once.
    count = seen["fast"].astype(int) + (seen["one_sided"] | seen["straight_line"]) + seen["unreliable"]
    failed = failed.fillna(False).astype(bool)
    signs = [
        [*(["failed_checks"] if bad else []), *(word for word in seen.columns if seen.loc[row, word])]
        for row, bad in zip(seen.index, failed, strict=True)
    ]
    return pd.DataFrame(
        {
            "rater": quality["rater"],
            "excluded": failed | (count >= rule.signs_needed),
            "signs": signs,
            "n_verdicts": quality["n_verdicts"],
        }
    )


def compare_exclusions(
    verdicts: pd.DataFrame, decisions: pd.DataFrame, statistic: Callable[[pd.DataFrame], pd.Series]
) -> pd.DataFrame:
    """Compute a result with everyone and without those left out, side by side.

    Parameters
    ----------
    verdicts : pandas.DataFrame
        The table ``verdicts``.
    decisions : pandas.DataFrame
        As :func:`decide_exclusions` makes it.
    statistic : callable
        From verdicts to named numbers, such as strengths.

    Returns
    -------
    pandas.DataFrame
        One row per number: its name, ``everyone``, ``without``, ``change``.

    Raises
    ------
    QualityError
        If a rater has no decision, or nobody would be left.

    Examples
    --------
    >>> votes = pd.DataFrame({"rater": ["x", "y"], "verdict": ["a", "b"]})
    >>> decisions = pd.DataFrame({"rater": ["x", "y"], "excluded": [False, True]})
    >>> share = lambda rows: pd.Series({"a": float((rows["verdict"] == "a").mean())})
    >>> compare_exclusions(votes, decisions, share)[["everyone", "without", "change"]].to_numpy().tolist()
    [[0.5, 1.0, 0.5]]
    """
    undecided = sorted(set(verdicts["rater"]) - set(decisions["rater"]))
    if undecided:
        raise QualityError(f"{len(undecided)} raters have verdicts and no decision, first {undecided[0]}.")
    out = set(decisions.loc[decisions["excluded"], "rater"])
    kept = verdicts[~verdicts["rater"].isin(out)]
    if kept.empty:
        raise QualityError(f"The rule leaves out all {len(out)} raters; look at the table of quality before changing it.")
    table = pd.DataFrame({"everyone": statistic(verdicts), "without": statistic(kept)})
    return table.assign(change=table["without"] - table["everyone"])


def _sides(rows: pd.DataFrame) -> pd.DataFrame:
    """Look at which side each rater chose, in sequence; a choice whose order is not known counts for neither."""
    sided = rows[(rows["verdict"] != "tie") & rows["order"].notna()]
    first = (sided["verdict"] == "a") == (sided["order"] == "ab")
    found = []
    for rater, chosen in first.groupby(sided["rater"], sort=True):
        run = _longest_run(chosen.to_numpy())
        found.append(
            {
                "rater": rater,
                "share_first": float(chosen.mean()),
                "side_p": float(binomtest(int(chosen.sum()), len(chosen)).pvalue),
                "longest_run": run,
                "run_p": _run_probability(len(chosen), run),
            }
        )
    return pd.DataFrame(found, columns=["rater", "share_first", "side_p", "longest_run", "run_p"]).set_index("rater")


def _longest_run(values: np.ndarray) -> int:
    changes = np.flatnonzero(np.diff(values.astype(int))) + 1
    return int(np.diff([0, *changes, len(values)]).max())


def _run_probability(n: int, length: int) -> float:
    """Give the chance that n fair tosses hold a run of one side at least so long.

    Sequences without such a run are counted by the length of the run they end in.
    """
    if length <= 1:
        return 1.0
    ending = np.zeros(length - 1)  # chance that no run is long enough yet, and the present one has length 1, 2, ...
    ending[0] = 1.0
    for _ in range(n - 1):
        ending = np.concatenate([[ending.sum() / 2], ending[:-1] / 2])
    return float(1 - ending.sum())


def _top_share(margins: pd.Series) -> float:
    counts = margins.value_counts()
    return float(counts.iloc[0] / counts.sum()) if len(counts) else np.nan


def _leave_one_out(rows: pd.DataFrame) -> pd.DataFrame:
    """Compare each choice with the majority of the others on the same pair."""
    lean = rows["verdict"].map({"a": 1, "b": -1, "tie": 0})
    sided = (lean != 0).astype(int)
    others = lean.groupby(rows["pair_id"]).transform("sum") - lean
    n_others = sided.groupby(rows["pair_id"]).transform("sum") - sided
    compared = (lean != 0) & (n_others > 0)
    same = (np.sign(others) * lean + 1) / 2
    by_rater = same[compared].groupby(rows.loc[compared, "rater"])
    return pd.DataFrame({"agreement": by_rater.mean(), "n_compared": by_rater.size()})


def _checks(index: pd.Index, raters: pd.DataFrame | None) -> pd.DataFrame:
    if raters is None:
        nothing = pd.Series(pd.NA, index=index, dtype="Int64")
        return pd.DataFrame({"n_checks": nothing, "n_checks_failed": nothing})
    known = raters.groupby("rater")[["n_checks", "n_checks_passed"]].sum()
    unknown = sorted(set(index) - set(known.index))
    if unknown:
        raise QualityError(f"The table of raters lacks {len(unknown)} who gave verdicts, first {unknown[0]}.")
    known = known.loc[index].astype("Int64")
    return pd.DataFrame({"n_checks": known["n_checks"], "n_checks_failed": known["n_checks"] - known["n_checks_passed"]})
