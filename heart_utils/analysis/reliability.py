"""How reliable each rater is, when nobody knows the right answers: Dawid and Skene's model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import beta

__all__ = ["Reliability", "ReliabilityError", "dawid_skene", "rater_reliability"]

Array = NDArray[np.float64]
SIDES = {"a": "b", "b": "a"}


class ReliabilityError(ValueError):
    """The model cannot be fitted to these answers."""


@dataclass(frozen=True, eq=False)
class Reliability:
    """A fitted model, and how it was fitted.

    Attributes
    ----------
    prevalence : pandas.Series
        Class -> the share of items that truly are of it.
    confusion : pandas.DataFrame
        One row per rater, true class and answer: ``rater``, ``truth``, ``answer``, ``probability``, and
        ``count``, the expected number of such answers.
    posterior : pandas.DataFrame
        One row per item, one column per class: the probability that it is the true one.
    log_likelihood : float
        Of the answers, without the prior.
    prior : float
        The pseudo-count in each cell.
    n_steps : int
        Steps of expectation and maximisation.
    """

    prevalence: pd.Series
    confusion: pd.DataFrame = field(repr=False)
    posterior: pd.DataFrame = field(repr=False)
    log_likelihood: float
    prior: float
    n_steps: int


def dawid_skene(
    answers: pd.DataFrame,
    *,
    item: str = "item",
    rater: str = "rater",
    answer: str = "answer",
    mirror: Mapping[str, str] | None = None,
    prior: float = 0.0,
    max_steps: int = 20_000,
    tolerance: float = 1e-6,
) -> Reliability:
    r"""Fit true classes and each rater's errors by expectation and maximisation.

    Item :math:`i` is of class :math:`k` with probability :math:`p_k`; rater :math:`r` then answers
    :math:`l` with probability :math:`\pi^{(r)}_{kl}`, independently of other raters [1]_. It starts from
    the share of each answer on each item, so that the classes keep their names.

    Parameters
    ----------
    answers : pandas.DataFrame
        One row per answer; a rater may answer an item more than once.
    item, rater, answer : str
        Its columns.
    mirror : mapping of str to str, optional
        Class -> the class it becomes when names are swapped, such as ``{"a": "b", "b": "a", "tie":
        "tie"}``. Where names are arbitrary, prevalence and errors are estimated from both readings.
    prior : float
        Added to each cell of each rater's table of counts; 0 is maximum likelihood.
    max_steps : int
        Steps before giving up.
    tolerance : float
        The largest change of a posterior probability at which it stops.

    Returns
    -------
    Reliability
        With two raters an item, or fewer, who is right rests on the prior; look at `count`.

    Raises
    ------
    ReliabilityError
        If columns are missing or empty, a class has no mirror, or it has not converged.

    References
    ----------
    .. [1] Dawid and Skene (1979), https://doi.org/10.2307/2346806

    Examples
    --------
    >>> answers = pd.DataFrame({"item": [1, 1, 1, 2, 2, 2], "rater": ["x", "y", "z"] * 2, "answer": list("aabbbb")})
    >>> dawid_skene(answers).posterior.round(2).to_numpy().tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    _check_answers(answers, (item, rater, answer))
    items, item_names = pd.factorize(answers[item], sort=True)
    raters, rater_names = pd.factorize(answers[rater], sort=True)
    names = {str(name) for name in answers[answer]}
    classes = sorted(names | {mirror.get(name, name) for name in names} if mirror else names)
    said = np.array([classes.index(str(name)) for name in answers[answer]])
    swap = _mirrored(classes, mirror)
    n_classes = len(classes)
    posterior = np.zeros((len(item_names), n_classes))
    np.add.at(posterior, (items, said), 1.0)
    posterior /= posterior.sum(axis=1, keepdims=True)
    for step in range(1, max_steps + 1):
        prevalence, counts = _maximise(posterior, items, raters, said, len(rater_names), swap)
        errors = _errors(counts, prior)
        log_joint = np.tile(np.log(np.maximum(prevalence, 1e-300)), (len(item_names), 1))
        np.add.at(log_joint, items, np.log(np.maximum(errors, 1e-300))[raters, :, said])
        peak = log_joint.max(axis=1, keepdims=True)
        weight = np.exp(log_joint - peak)
        total = weight.sum(axis=1, keepdims=True)
        moved = float(np.abs(weight / total - posterior).max())
        posterior = weight / total
        if moved < tolerance:
            return Reliability(
                prevalence=pd.Series(prevalence, index=pd.Index(classes, name="class"), name="prevalence"),
                confusion=_long(errors, counts, list(rater_names), classes),
                posterior=pd.DataFrame(posterior, index=pd.Index(item_names, name=item), columns=classes),
                log_likelihood=float((peak + np.log(total)).sum()),
                prior=prior,
                n_steps=step,
            )
    raise ReliabilityError(
        f"After {max_steps} steps a posterior still moves by {moved:.1e}, expected {tolerance:.0e} or less. Allow "
        f"more steps, or add a prior."
    )


def rater_reliability(
    verdicts: pd.DataFrame, *, dimension: str = "overall", prior: float = 1.0, ci_level: float = 0.95
) -> pd.DataFrame:
    """Tell how often each rater, on choosing a side at all, chooses the one that is truly preferred.

    Which reply is called a is arbitrary, so errors are the same for both. Truth is what the panel as a
    whole converges on; where people differ in taste and not in care, a minority taste looks unreliable.
    Ties say nothing about which side a rater would take, and are counted apart.

    Parameters
    ----------
    verdicts : pandas.DataFrame
        The table ``verdicts``; rows that are not valid are left out.
    dimension : str
        A line of the rubric.
    prior : float
        Pseudo-count, which draws raters with few verdicts towards a coin.
    ci_level : float
        Of the interval, a Beta interval on expected counts: it takes the truths as found.

    Returns
    -------
    pandas.DataFrame
        One row per rater: ``rater``, ``n_verdicts``, ``reliability`` (0.5 is a coin), ``ci_low``,
        ``ci_high``, ``tie_share``. Who only ties has no reliability.

    Raises
    ------
    ReliabilityError
        If no valid verdict has this dimension.

    Examples
    --------
    >>> votes = pd.DataFrame({"pair_id": [1, 1, 1, 2, 2, 2], "rater": ["x", "y", "z"] * 2, "verdict": list("aabbba"),
    ...     "dimension": "overall", "state": "valid"})
    >>> rater_reliability(votes).set_index("rater")["reliability"].round(1).to_dict()
    {'x': 0.7, 'y': 0.7, 'z': 0.3}
    """
    rows = verdicts[(verdicts["dimension"] == dimension) & (verdicts["state"] == "valid") & verdicts["verdict"].notna()]
    if rows.empty:
        there = ", ".join(sorted(verdicts["dimension"].unique())) or "none"
        raise ReliabilityError(f"No valid verdict has the dimension {dimension!r}; the table has {there}.")
    table = pd.DataFrame({"n_verdicts": rows.groupby("rater").size()})
    sided = rows[rows["verdict"] != "tie"]
    if sided.empty:
        table[["reliability", "ci_low", "ci_high"]] = np.nan
    else:
        confusion = dawid_skene(sided, item="pair_id", rater="rater", answer="verdict", mirror=SIDES, prior=prior).confusion
        hit = confusion["truth"] == confusion["answer"]
        right, wrong = (
            (confusion[which].groupby("rater")["count"].sum() / 2 + prior).reindex(table.index) for which in (hit, ~hit)
        )
        tail = (1 - ci_level) / 2
        table["reliability"] = right / (right + wrong)
        table["ci_low"], table["ci_high"] = beta.ppf(tail, right, wrong), beta.ppf(1 - tail, right, wrong)
    table["tie_share"] = (rows["verdict"] == "tie").groupby(rows["rater"]).mean()
    return table.rename_axis("rater").reset_index()


def _check_answers(answers: pd.DataFrame, columns: tuple[str, ...]) -> None:
    missing = [column for column in columns if column not in answers]
    if missing:
        raise ReliabilityError(f"Answers lack {', '.join(missing)}; they have {', '.join(map(str, answers.columns))}.")
    if answers.empty:
        raise ReliabilityError("There are no answers.")
    for column in columns:
        if answers[column].isna().any():
            raise ReliabilityError(f"{column} is empty in {int(answers[column].isna().sum())} rows; drop failed answers first.")


def _mirrored(classes: list[str], mirror: Mapping[str, str] | None) -> NDArray[np.int64]:
    """Give for each class the number of its mirror image; without a mirror, its own."""
    if mirror is None:
        return np.arange(len(classes))
    unknown = [name for name in classes if name not in mirror or mirror.get(mirror[name]) != name]
    if unknown:
        raise ReliabilityError(f"The mirror {dict(mirror)} does not pair {', '.join(unknown)} with a class and back.")
    return np.array([classes.index(mirror[name]) for name in classes])


def _maximise(
    posterior: Array,
    items: NDArray[np.int64],
    raters: NDArray[np.int64],
    said: NDArray[np.int64],
    n_raters: int,
    swap: NDArray[np.int64],
) -> tuple[Array, Array]:
    """Sum expected classes and expected answers, and add their mirror images."""
    n_classes = posterior.shape[1]
    prevalence = posterior.mean(axis=0)
    counts = np.zeros((n_raters, n_classes, n_classes))
    for truth in range(n_classes):
        np.add.at(counts[:, truth, :], (raters, said), posterior[items, truth])
    if not np.array_equal(swap, np.arange(n_classes)):
        prevalence = (prevalence + prevalence[swap]) / 2
        counts = counts + counts[:, swap][:, :, swap]
    return prevalence, counts


def _errors(counts: Array, prior: float) -> Array:
    """Turn counts into probabilities; a class that a rater never met has none, and gets equal ones."""
    smoothed = counts + prior
    totals = smoothed.sum(axis=2, keepdims=True)
    errors: Array = np.divide(smoothed, totals, out=np.full_like(smoothed, 1 / counts.shape[2]), where=totals > 0)
    return errors


def _long(errors: Array, counts: Array, raters: list[str], classes: list[str]) -> pd.DataFrame:
    index = pd.MultiIndex.from_product([raters, classes, classes], names=["rater", "truth", "answer"])
    return pd.DataFrame({"probability": errors.ravel(), "count": counts.ravel()}, index=index).reset_index()
