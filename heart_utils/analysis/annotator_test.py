"""Whether a judge may stand in for one more person: the alternative annotator test."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import stats

from heart_utils.analysis.votes import AgreementError, Array, Votes, people_only, read_votes

__all__ = ["AnnotatorTest", "alternative_annotator_test"]

LEAST_ITEMS = 30
LEAST_RATERS = 3


@dataclass(frozen=True)
class AnnotatorTest:
    """Whether a judge may stand in for a person, after Calderon, Reichart and Dror.

    Attributes
    ----------
    table : pandas.DataFrame
        One row a person who is left out in turn: ``rater``, ``n_items``, ``judge_wins`` and
        ``rater_wins`` (shares of items on which each is at least as close to the others), ``p_value``,
        ``rejected`` (the judge is no worse than this person minus epsilon).
    winning_rate : float
        Share of people for whom that is shown; the test is passed from 0.5 on.
    advantage : float
        Mean of ``judge_wins``.
    epsilon, alpha : float
        What the judge is forgiven for being cheap; the false discovery rate (Benjamini-Yekutieli).
    passed : bool
        Whether the winning rate is 0.5 or more.
    """

    table: pd.DataFrame
    winning_rate: float
    advantage: float
    epsilon: float
    alpha: float
    passed: bool


def alternative_annotator_test(
    table: pd.DataFrame,
    judge: str,
    *,
    epsilon: float,
    closeness: str = "same",
    alpha: float = 0.05,
) -> AnnotatorTest:
    r"""Test whether a judge may stand in for one of several people.

    Each person j is left out in turn. On each item, who is closer to the other people, the judge or j?
    With :math:`W^f` and :math:`W^h` one where the judge, or j, is at least as close as the other, the
    judge is shown to be no worse if the mean of :math:`W^h - W^f` is below epsilon by a t test; over
    people, the false discovery rate is held by Benjamini and Yekutieli's rule [1]_. Its authors suggest
    epsilon 0.2 against experts, 0.15 against trained workers, 0.1 against a crowd: state it beforehand.

    Parameters
    ----------
    table : pandas.DataFrame
        Verdicts or scores with ``rater_kind``, three people or more and the judge.
    judge : str
        The name of the rater under test.
    epsilon : float
        What the judge is forgiven, from 0 to 1.
    closeness : {"same", "distance"}
        Share of the other people who gave the same answer; or minus the root mean squared difference
        from theirs, for scores.
    alpha : float
        The false discovery rate.

    Returns
    -------
    AnnotatorTest
        People with fewer than 30 items are not tested.

    Raises
    ------
    AgreementError
        If fewer than three people share 30 items with the judge and with others.

    References
    ----------
    .. [1] Calderon, Reichart and Dror (2025), https://arxiv.org/abs/2501.10970

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> truth = rng.integers(1, 6, 60)
    >>> said = {name: truth + rng.integers(-1, 2, 60) for name in "xyz"} | {"llm": truth}
    >>> scores = pd.concat([pd.DataFrame({"reply_id": range(60), "rater": name, "score": score,
    ...     "rater_kind": "model" if name == "llm" else "human"}) for name, score in said.items()])
    >>> alternative_annotator_test(scores, "llm", epsilon=0.2, closeness="distance").winning_rate
    1.0
    """
    if closeness not in ("same", "distance"):
        raise AgreementError(f"closeness must be 'same' or 'distance'; got {closeness!r}.")
    if not 0.0 <= epsilon <= 1.0:
        raise AgreementError(f"epsilon must lie between 0 and 1; got {epsilon}.")
    answers, people, by_judge = _answers(table, judge, closeness)
    rows = []
    for number, name in enumerate(people):
        others = np.delete(answers, number, axis=1)
        usable = ~np.isnan(answers[:, number]) & ~np.isnan(by_judge) & ~np.isnan(others).all(axis=1)
        if usable.sum() < LEAST_ITEMS:
            continue
        of_judge = _closeness(by_judge[usable], others[usable], closeness)
        of_rater = _closeness(answers[usable, number], others[usable], closeness)
        judge_wins, rater_wins = of_judge >= of_rater - 1e-12, of_rater >= of_judge - 1e-12
        p_value = _p_below(rater_wins.astype(float) - judge_wins, epsilon)
        rows.append((name, int(usable.sum()), float(judge_wins.mean()), float(rater_wins.mean()), p_value))
    if len(rows) < LEAST_RATERS:
        raise AgreementError(
            f"The test needs {LEAST_RATERS} people or more with {LEAST_ITEMS} items or more that {judge} and another person "
            f"answered too; there are {len(rows)} of {len(people)}."
        )
    found = pd.DataFrame(rows, columns=["rater", "n_items", "judge_wins", "rater_wins", "p_value"])
    found["rejected"] = stats.false_discovery_control(found["p_value"].to_numpy(), method="by") <= alpha
    rate = float(found["rejected"].mean())
    return AnnotatorTest(found, rate, float(found["judge_wins"].mean()), epsilon, alpha, rate >= 0.5)


def _answers(table: pd.DataFrame, judge: str, closeness: str) -> tuple[Array, list[str], Array]:
    """Lay out answers by item and person, and the judge's beside them."""
    votes = read_votes(table, cluster=None)
    if closeness == "distance" and votes.kind == "verdict":
        raise AgreementError("closeness 'distance' needs scores; for verdicts use 'same'.")
    if judge not in votes.raters:
        raise AgreementError(f"{judge!r} gave no answer that counts. Raters are {', '.join(map(str, votes.raters[:8]))}.")
    people = [name for name in people_only(table)["rater"].unique() if name in votes.raters and name != judge]
    wide = np.full((len(votes.units), len(votes.raters)), np.nan)
    wide[votes.unit, votes.rater] = _numbers(votes)
    column = votes.raters.get_indexer(pd.Index([judge, *people]))
    return wide[:, column[1:]], people, wide[:, column[0]]


def _numbers(votes: Votes) -> Array:
    return votes.categories.astype(float)[votes.value] if votes.kind == "score" else votes.value.astype(float)


def _closeness(one: Array, others: Array, closeness: str) -> Array:
    if closeness == "same":
        answered = ~np.isnan(others)
        return np.asarray((others == one[:, None]).sum(axis=1) / answered.sum(axis=1))
    return np.asarray(-np.sqrt(np.nanmean((others - one[:, None]) ** 2, axis=1)))


def _p_below(differences: Array, epsilon: float) -> float:
    """Test by t whether the mean is below epsilon."""
    spread = differences.std(ddof=1)
    gap = differences.mean() - epsilon
    if spread == 0.0:
        return 0.0 if gap < 0 else 1.0
    return float(stats.t.cdf(gap / (spread / np.sqrt(len(differences))), len(differences) - 1))
