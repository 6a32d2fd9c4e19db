"""Simulated raters whose care is known, to see whether the rule finds those who have none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from scipy.stats import binomtest

from heart_utils.analysis.quality import ExclusionRule, decide_exclusions, rater_quality
from heart_utils.tables import check_table

__all__ = ["BEHAVIOURS", "Behaviour", "SimulatedRaters", "detection_rates", "simulate_raters"]


@dataclass(frozen=True)
class Behaviour:
    """How a simulated rater works.

    Attributes
    ----------
    discrimination : float
        By what a difference in log-odds is multiplied: 0 is a coin.
    first : float
        Chance of taking the reply shown first without looking.
    seconds : float
        Median time on a page; times are log-normal with a standard deviation of 0.5.
    passes : float
        Chance of passing an attention check.
    """

    discrimination: float
    first: float
    seconds: float
    passes: float


BEHAVIOURS = {
    "careful": Behaviour(1.0, 0.0, 40.0, 0.98),
    "hurried": Behaviour(0.8, 0.05, 15.0, 0.95),
    "coin": Behaviour(0.0, 0.0, 5.0, 0.1),
    "first_side": Behaviour(0.0, 0.9, 5.0, 0.1),
    "patient_coin": Behaviour(0.0, 0.0, 40.0, 0.98),
    "careless_reader": Behaviour(0.2, 0.0, 12.0, 0.5),
}
"""Assumptions, not measurements, as are :data:`SPREAD` and :data:`TIES`. ``careful`` and ``hurried`` do the task; the
others, to some degree, do not. ``coin`` and ``first_side`` pass a check that asks for one of two sides and one of five
strengths by chance, 1 in 10."""

SPREAD = 1.5
"""Standard deviation between pairs of the log-odds by which a careful rater prefers one reply."""

TIES = 0.2
"""Chance of a tie between equals; it falls with the difference."""


@dataclass(frozen=True, eq=False)
class SimulatedRaters:
    """A simulated study and who was who in it.

    Attributes
    ----------
    verdicts, raters : pandas.DataFrame
        As in :mod:`heart_utils.tables`, all marked as simulated.
    truth : pandas.DataFrame
        ``rater`` and ``behaviour``.
    """

    verdicts: pd.DataFrame = field(repr=False)
    raters: pd.DataFrame = field(repr=False)
    truth: pd.DataFrame


def simulate_raters(
    behaviours: Mapping[str, int],
    *,
    rng: np.random.Generator,
    load: int = 30,
    votes: int = 5,
    n_checks: int = 3,
    advantage: float = 0.0,
) -> SimulatedRaters:
    """Draw a rating study with so many raters of each behaviour.

    Parameters
    ----------
    behaviours : mapping of str to int
        A name in :data:`BEHAVIOURS` -> how many raters.
    rng : numpy.random.Generator
        The source of chance.
    load : int
        Pairs a rater, give or take one.
    votes : int
        Raters a pair.
    n_checks : int
        Attention checks a rater.
    advantage : float
        Log-odds by which a careful rater prefers x to y, on average; pairs vary about it by :data:`SPREAD`.

    Returns
    -------
    SimulatedRaters
        Each pair is a dialogue of its own, between the responders ``x`` and ``y``.

    Raises
    ------
    ValueError
        If a behaviour is not known, or a pair would need more raters than there are.

    Examples
    --------
    >>> study = simulate_raters({"careful": 4, "coin": 1}, rng=np.random.default_rng(1), load=10)
    >>> len(study.verdicts), study.truth["behaviour"].value_counts().to_dict()
    (50, {'careful': 4, 'coin': 1})
    """
    unknown = sorted(set(behaviours) - set(BEHAVIOURS))
    if unknown:
        raise ValueError(f"There is no behaviour called {unknown[0]!r}. There are {', '.join(BEHAVIOURS)}.")
    kinds = [name for name, count in behaviours.items() for _ in range(count)]
    n_raters = len(kinds)
    if votes > n_raters:
        raise ValueError(f"{votes} votes a pair need as many raters, and there are {n_raters}.")
    n_pairs = -(-n_raters * load // votes)
    pair = np.repeat(np.arange(n_pairs), votes)
    rater = _share_out(n_raters, n_pairs, votes, rng)
    styles = [BEHAVIOURS[kinds[number]] for number in rater]
    better = rng.normal(advantage, SPREAD, n_pairs)[pair]
    pull = better * np.array([style.discrimination for style in styles])
    order = np.where(rng.random(len(pair)) < 0.5, "ab", "ba")
    chosen = np.where(rng.random(len(pair)) < 1 / (1 + np.exp(-pull)), "a", "b")
    blind = rng.random(len(pair)) < np.array([style.first for style in styles])
    chosen = np.where(blind, np.where(order == "ab", "a", "b"), chosen)
    chosen = np.where(~blind & (rng.random(len(pair)) < TIES * np.exp(-np.abs(pull))), "tie", chosen)
    seconds = np.exp(rng.normal(np.log([style.seconds for style in styles]), 0.5))
    names = np.array([f"rater-{number + 1:04d}" for number in range(n_raters)])
    pair_ids = pd.Series(pair).map("pair-{:05d}".format)
    verdicts = pd.DataFrame(
        {
            "comparison_id": pair_ids + "-" + order,
            "pair_id": pair_ids,
            "history_id": pair_ids,
            "dialogue_id": pair_ids,
            "slice": "standard",
            "responder_a": "x",
            "responder_b": "y",
            "rater": names[rater],
            "rater_kind": "human",
            "dimension": "overall",
            "dimension_position": None,
            "verdict": chosen,
            "margin": np.where(chosen == "tie", np.nan, rng.integers(1, 6, len(pair))),
            "p_a": np.nan,
            "state": "valid",
            "order": order,
            "protocol": "simulated",
            "answer_format": None,
            "repeat": 0,
            "group": None,
            "flags": [[] for _ in pair],
            "rationale": None,
            "call_id": None,
            "simulated": True,
            "seconds": seconds,
        }
    )
    verdicts["position"] = verdicts.groupby("rater").cumcount() + 1
    passed = rng.binomial(n_checks, [BEHAVIOURS[kind].passes for kind in kinds])
    done = np.bincount(rater, minlength=n_raters)
    raters = pd.DataFrame({"rater": names, "n_checks_passed": passed, "n_shown": done, "n_answered": done}).assign(
        rater_kind="human",
        study="simulated",
        population="simulated",
        language="none",
        pay="none",
        n_checks=n_checks,
        completed=True,
        simulated=True,
    )
    truth = pd.DataFrame({"rater": names, "behaviour": kinds})
    return SimulatedRaters(check_table("verdicts", verdicts), check_table("raters", raters), truth)


def detection_rates(
    behaviours: Mapping[str, int],
    *,
    rng: np.random.Generator,
    repeats: int,
    rule: ExclusionRule | None = None,
    load: int = 30,
    votes: int = 5,
    n_checks: int = 3,
) -> pd.DataFrame:
    """Tell how often the rule leaves out simulated raters of each behaviour.

    Parameters
    ----------
    behaviours : mapping of str to int
        A name in :data:`BEHAVIOURS` -> how many raters a study.
    rng : numpy.random.Generator
        The source of chance.
    repeats : int
        Simulated studies.
    rule : ExclusionRule, optional
        The protocol's, by default.
    load, votes, n_checks : int
        As in :func:`simulate_raters`.

    Returns
    -------
    pandas.DataFrame
        One row per behaviour: ``behaviour``, ``n_raters`` (over all repeats), ``excluded`` (a share) with
        ``ci_low`` and ``ci_high`` (Wilson's 95% interval, raters taken as independent, which raters of
        one study are nearly), ``median_reliability``.

    Raises
    ------
    ValueError
        As :func:`simulate_raters`, or if there is no study to draw.

    Examples
    --------
    >>> rates = detection_rates({"careful": 8, "first_side": 2}, rng=np.random.default_rng(1), repeats=3)
    >>> rates.set_index("behaviour").loc["first_side", "excluded"] > rates.set_index("behaviour").loc["careful", "excluded"]
    np.True_
    """
    if repeats < 1:
        raise ValueError(f"repeats is {repeats}; expected one simulated study or more.")
    found = []
    for _ in range(repeats):
        study = simulate_raters(behaviours, rng=rng, load=load, votes=votes, n_checks=n_checks)
        quality = rater_quality(study.verdicts, study.raters)
        decided = decide_exclusions(quality, rule).assign(reliability=quality["reliability"])
        found.append(decided.merge(study.truth, on="rater"))
    every = pd.concat(found, ignore_index=True)
    by_kind = every.groupby("behaviour")
    table = pd.DataFrame({"n_raters": by_kind.size(), "excluded": by_kind["excluded"].mean()})
    tests = [binomtest(int(out), int(n)) for out, n in zip(by_kind["excluded"].sum(), table["n_raters"], strict=True)]
    intervals = [test.proportion_ci(method="wilson") for test in tests]
    table["ci_low"], table["ci_high"] = [one.low for one in intervals], [one.high for one in intervals]
    table["ci_level"] = 0.95
    table["median_reliability"] = by_kind["reliability"].median()
    return table.loc[[name for name in behaviours if name in table.index]].reset_index()


def _share_out(n_raters: int, n_pairs: int, votes: int, rng: np.random.Generator) -> np.ndarray:
    """Give each pair to those who have the fewest so far, by lot among equals."""
    done = np.zeros(n_raters, dtype=int)
    chosen = []
    for _ in range(n_pairs):
        who = np.lexsort((rng.random(n_raters), done))[:votes]
        done[who] += 1
        chosen.append(who)
    return np.concatenate(chosen)
