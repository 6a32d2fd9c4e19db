"""A judge's report card: its verdicts on replies spoilt in a known way, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from scipy import stats

from heart_utils.judges.position import BiasError
from heart_utils.judges.records import Record, words_of_record
from heart_utils.ratings.resampling import ENOUGH_CLUSTERS, error_ends, holm
from heart_utils.ratings.verdicts import combine_orders, won_by_a

__all__ = ["OUTCOMES", "describe_judges", "grade_probes"]

OUTCOMES = {
    "worse": ("prefers the spoilt one", "not recognised", "recognised"),
    "not_better": ("rewards it", "not shown to reward it", "marks it down"),
    "even": ("rewards it", "no effect shown", "marks it down"),
}
"""What is known of the probe -> words where the probe won beyond chance, where neither did, where
it lost."""

MANY_CONTRADICTIONS = 0.5
BASE = "reference"
"""Who wrote the replies that probes are made from."""


def grade_probes(
    verdicts: pd.DataFrame, expected: Mapping[str, str], *, alpha: float = 0.05
) -> pd.DataFrame:
    """Grade each judge on each probe: how often it prefers the reply before it was spoilt.

    Orders are joined first. A judge that contradicts itself is right by half; probabilities are
    averaged.

    Parameters
    ----------
    verdicts : pandas.DataFrame
        The table of verdicts; each compares a reply by ``reference`` with a probe made from it.
    expected
        Probe -> ``"worse"``, ``"not_better"`` or ``"even"``, by construction.
    alpha
        For Holm's procedure.

    Returns
    -------
    pandas.DataFrame
        One row a judge and probe: ``right`` (share of dialogues in which the unspoilt reply is
        preferred), Wilson's ``ci_low`` and ``ci_high``, ``ci_level``, ``p`` (two-sided sign test
        over dialogues, in which one without an answer counts against what was found), ``p_holm``
        (over a judge's probes), ``contradicted`` (share of pairs), ``n`` dialogues, ``n_failed``
        pairs, ``n_places`` (2 where the unspoilt reply was shown first and second),
        ``provisional``, ``outcome`` (:data:`OUTCOMES`), and ``detectable``: the smallest true
        ``right`` above one half that so many dialogues would show four times in five (one test,
        not yet Holm's).

    Raises
    ------
    BiasError
        If a verdict is on another pair, or a word of `expected` is unknown.

    Examples
    --------
    >>> verdicts = pd.DataFrame(
    ...     {
    ...         "dialogue_id": range(8),
    ...         "pair_id": range(8),
    ...         "order": "ab",
    ...         "verdict": "b",
    ...         "repeat": 0,
    ...     }
    ... )
    >>> names = {
    ...     "rater": "judge",
    ...     "responder_a": "echo",
    ...     "responder_b": "reference",
    ...     "dimension": "overall",
    ... }
    >>> grade_probes(verdicts.assign(state="valid", **names), {"echo": "worse"})[
    ...     ["right", "p"]
    ... ].values.tolist()  # 2 / 2^8
    [[1.0, 0.0078125]]
    """
    strange = sorted(set(expected.values()) - set(OUTCOMES))
    if strange:
        raise BiasError(
            f"A probe is expected to be {', '.join(strange)}; the words are {', '.join(OUTCOMES)}."
        )
    joined = combine_orders(verdicts)
    is_a = joined["responder_a"] == BASE
    probe = joined["responder_b"].where(is_a, joined["responder_a"])
    wrong = ~((is_a | (joined["responder_b"] == BASE)) & probe.isin(list(expected)))
    if wrong.any():
        row = joined[wrong].iloc[0]
        pair = f"first {row['responder_a']!r} and {row['responder_b']!r}"
        raise BiasError(
            f"{int(wrong.sum())} pairs are not a probe of {', '.join(expected)} beside {BASE!r},"
            f" {pair}."
        )
    share = 0.5 + np.sign(won_by_a(joined) - 0.5) / 2.0
    joined = joined.assign(probe=probe, share=share.where(is_a, 1.0 - share))
    places = _places(verdicts)
    rows = []
    for rater, theirs in joined.groupby("rater", sort=True):
        for name, known in expected.items():
            graded = _grade(theirs[theirs["probe"] == name], 1.0 - alpha)
            graded["n_places"] = int(places.get((rater, name), 0))
            rows.append({"rater": rater, "probe": name, "expected": known} | graded)
    table = pd.DataFrame(rows)
    table["p_holm"] = holm(table["p"], [table["rater"]])
    beyond = (table["right"] - 0.5).where(table["p_holm"] <= alpha, 0.0)
    words = [
        OUTCOMES[known][1 + int(np.sign(side))]
        for known, side in zip(table["expected"], beyond, strict=True)
    ]
    return table.assign(
        outcome=pd.Series(words, index=table.index).where(table["n"] > 0, "no valid answer")
    )


def describe_judges(grades: pd.DataFrame, *, records: Sequence[Record] = ()) -> pd.DataFrame:
    """Describe in words what each judge's grades show.

    *Not to be trusted*: it prefers a spoilt reply, rewards something that adds nothing, contradicts
    itself in half of the pairs, or recognises fewer than half of the spoilt replies. *Passed these
    probes*: it recognises all, of which there is one at least, whether the unspoilt reply was
    shown first or second, and rewards none of the rest.

    Parameters
    ----------
    grades : pandas.DataFrame
        From :func:`grade_probes`.
    records : sequence of CalibrationRecord
        From :func:`~heart_collect.judging.calibration.calibrate_judge`, of any judges.

    Returns
    -------
    pandas.DataFrame
        One row a judge: ``rater``, ``finding`` (those words), ``reasons``, ``told``, ``of``,
        ``contradicted``, ``calibration`` (what its records say: lead, labels, date and expiry;
        ``"not calibrated"`` without one).

    Examples
    --------
    >>> card = {
    ...     "rater": "judge",
    ...     "probe": "echo",
    ...     "expected": "worse",
    ...     "outcome": "recognised",
    ...     "n": 8,
    ...     "contradicted": 0.0,
    ... }
    >>> describe_judges(pd.DataFrame([card]))["finding"].tolist()
    ['passed these probes']
    """
    rows = []
    for rater, card in grades.groupby("rater", sort=True):
        answered = card[card["n"] > 0]
        spoilt = answered[answered["expected"] == "worse"]
        n_recognised = int((spoilt["outcome"] == "recognised").sum())
        wrong = list(answered.loc[answered["outcome"] == "prefers the spoilt one", "probe"])
        paid = list(answered.loc[answered["outcome"] == "rewards it", "probe"])
        contradicted = float(answered["contradicted"].mean()) if len(answered) else np.nan
        reasons = [f"prefers {', '.join(wrong)}"] if wrong else []
        reasons += [f"rewards {', '.join(paid)}"] if paid else []
        reasons += (
            [f"contradicts itself in {100 * contradicted:.0f} % of pairs"]
            if contradicted >= MANY_CONTRADICTIONS
            else []
        )
        reasons += (
            [f"recognises {n_recognised} of {len(spoilt)} spoilt replies"]
            if 2 * n_recognised < len(spoilt)
            else []
        )
        missing = len(card) - len(answered)
        if not len(answered):
            finding, reasons = "no valid answer", []
        elif reasons:
            finding = "not to be trusted"
        elif "n_places" in spoilt and (spoilt["n_places"] < 2).any():
            finding = "not shown to be trustworthy"
            reasons = ["the unspoilt reply was not shown both first and second"]
        elif 0 < n_recognised == len(spoilt) and not missing:
            finding = "passed these probes"
        else:
            finding, reasons = (
                "not shown to be trustworthy",
                [f"recognises {n_recognised} of {len(spoilt)} spoilt replies"],
            )
        rows.append(
            {
                "rater": rater,
                "finding": finding,
                "reasons": "; ".join(reasons),
                "told": n_recognised,
                "of": len(spoilt),
                # fmt: skip
                "contradicted": contradicted,
                "calibration": words_of_record(records, str(rater)),
            }
        )
    return pd.DataFrame(rows)


def _places(verdicts: pd.DataFrame) -> pd.Series:
    """Count in how many places each judge met the unspoilt reply beside each probe."""
    known = verdicts[verdicts["order"].isin(["ab", "ba"]) & (verdicts["state"] == "valid")]
    is_a = known["responder_a"] == BASE
    probe = known["responder_b"].where(is_a, known["responder_a"])
    return (is_a == (known["order"] == "ab")).groupby([known["rater"], probe]).nunique()


def smallest_right(n: int, alpha: float) -> float:
    """Compute the share that a two-sided sign test over n dialogues finds four times in five.

    ``nan`` where not even all of them would do.
    """
    least = stats.binom.isf(alpha / 2.0, n, 0.5) + 1.0
    if not n or least > n:
        return float("nan")
    # the power is that of a beta distribution's tail: binom.sf(least - 1, n, right)
    return float(stats.beta.ppf(0.8, least, n - least + 1.0))


def _grade(pairs: pd.DataFrame, ci_level: float) -> dict[str, object]:
    judged = pairs[pairs["state"].isin(["valid", "inconsistent"])]
    per = judged.groupby("dialogue_id")["share"].mean()
    n = len(per)
    row: dict[str, object] = {
        "n": n,
        "n_failed": len(pairs) - len(judged),
        "provisional": n < ENOUGH_CLUSTERS,
    }
    if not n:
        return row | dict.fromkeys(
            ("right", "ci_low", "ci_high", "p", "contradicted", "detectable"), np.nan
        )
    right = float(per.mean())
    se = per.std(ddof=1) / np.sqrt(n) if n > 1 else np.nan
    low, high = map(float, error_ends(right, se, n, ci_level, least=0.0, most=1.0))
    above, below = int((per > 0.5).sum()), int((per < 0.5).sum())
    unanswered = pairs["dialogue_id"].nunique() - n
    met = above + below + unanswered
    # What failed may have gone the other way; never so far that it turns what was found.
    p = float(stats.binomtest(max(above, below, (met + 1) // 2), met).pvalue) if met else 1.0
    contradicted = float(judged["state"].eq("inconsistent").mean())
    return row | {
        "right": right,
        "ci_low": low,
        "ci_high": high,
        "ci_level": ci_level,
        "p": p,
        "contradicted": contradicted,
        "detectable": smallest_right(n, 1.0 - ci_level),
    }
