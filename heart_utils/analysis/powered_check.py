"""What a judge really saves: strengths sharpened by it, held against people on dialogues that no fit has seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from heart_utils.analysis.prediction_powered import prediction_powered_ratings
from heart_utils.analysis.ratings import fit_ratings
from heart_utils.analysis.simulate import Panel, simulate_study
from heart_utils.analysis.votes import AgreementError

__all__ = ["check_coverage", "check_saving", "label_some"]


def label_some(
    verdicts: pd.DataFrame, n: int, rng: np.random.Generator, *, among: ArrayLike | None = None, cluster: str = "dialogue_id"
) -> pd.DataFrame:
    """Keep people's verdicts on a simple random part of the dialogues, and the judges' on all.

    Parameters
    ----------
    verdicts : pandas.DataFrame
        The verdicts table with people and judges.
    n : int
        Dialogues that people label.
    rng : numpy.random.Generator
        The source of chance.
    among : sequence, optional
        The dialogues to draw from; by default all.
    cluster : str
        Column of what is labelled or not.

    Returns
    -------
    pandas.DataFrame
        Rows of `verdicts`, of dialogues in `among` alone.

    Raises
    ------
    AgreementError
        If there are fewer than n dialogues.

    Examples
    --------
    >>> both = pd.DataFrame({"dialogue_id": list("defdef"), "rater_kind": ["human"] * 3 + ["model"] * 3})
    >>> label_some(both, 1, np.random.default_rng(1))["rater_kind"].tolist()
    ['human', 'model', 'model', 'model']
    """
    dialogues = np.asarray(sorted(verdicts[cluster].unique()) if among is None else among, dtype=object)
    if n > len(dialogues):
        raise AgreementError(f"{n} of {len(dialogues)} {cluster} cannot be labelled.")
    chosen = rng.choice(dialogues, n, replace=False)
    rows = verdicts[verdicts[cluster].isin(dialogues)]
    return rows[rows[cluster].isin(chosen) | (rows["rater_kind"] == "model")]


def check_saving(
    verdicts: pd.DataFrame,
    *,
    n_labelled: Sequence[int],
    rng: np.random.Generator,
    n_held_out: int = 20,
    n_draws: int = 50,
    cluster: str = "dialogue_id",
) -> pd.DataFrame:
    r"""Measure what a judge saves, against people's verdicts on dialogues that neither fit has seen.

    In each draw some dialogues are set aside, and people's strengths on them are the target. Among the
    others n are labelled. With e the squared distance to the target, the noise of the target is in both
    distances, so :math:`E(e_{people} - e_{powered})` is the variance that was saved; it is divided by the
    mean variance of people alone.

    Parameters
    ----------
    verdicts : pandas.DataFrame
        The verdicts table with people and judges on all dialogues, orders joined.
    n_labelled : sequence of int
        How many dialogues people label, one row each.
    rng : numpy.random.Generator
        The source of chance.
    n_held_out : int
        Dialogues that are set aside.
    n_draws : int
        Random choices of both; all sizes share the dialogues set aside.
    cluster : str
        Column of what is labelled or not.

    Returns
    -------
    pandas.DataFrame
        One row a size: ``n_labelled``, ``n_pool`` (dialogues less those set aside), ``saved``, ``saved_se``
        (Monte Carlo, over draws), and the means over draws of ``estimated`` (what the method says of
        itself), ``at_most`` (its bound), ``rho_squared`` and ``weight``.

    Raises
    ------
    AgreementError
        If too few dialogues are left to label that many and leave one unlabelled.

    Examples
    --------
    >>> from heart_utils.analysis.simulate import Panel, simulate_study
    >>> study = simulate_study(rng=np.random.default_rng(1), n_responders=3, n_dialogues=60, pairs="all",
    ...     panels=[Panel("human", 9, 3), Panel("model", 1, 1)])
    >>> found = check_saving(study.verdicts, n_labelled=[10], rng=np.random.default_rng(1), n_draws=3)
    >>> found[["n_labelled", "n_pool"]].values.tolist()
    [[10, 40]]
    """
    dialogues = np.array(sorted(verdicts[cluster].unique()), dtype=object)
    n_pool = len(dialogues) - n_held_out
    if max(n_labelled) >= n_pool:
        raise AgreementError(
            f"Of {len(dialogues)} {cluster} {n_held_out} are set aside: {n_pool} are left, too few to label {max(n_labelled)} "
            f"and leave one to the judge. Set fewer aside, or label fewer."
        )
    people = verdicts[verdicts["rater_kind"] == "human"]
    rows = []
    for _ in range(n_draws):
        order = rng.permutation(dialogues)
        target = fit_ratings(people[people[cluster].isin(order[:n_held_out])], cluster=cluster, n_resamples=0).strength
        rows += [
            {"n_labelled": n, **_one(label_some(verdicts, n, rng, among=order[n_held_out:], cluster=cluster), target, cluster)}
            for n in n_labelled
        ]
    drawn = pd.DataFrame(rows).groupby("n_labelled")
    mean = drawn.mean()
    found = pd.DataFrame(
        {"n_pool": n_pool, "saved": mean["gain"] / mean["variance"], "saved_se": drawn["gain"].sem() / mean["variance"]}
    )
    return found.join(mean[["estimated", "at_most", "rho_squared", "weight"]]).reset_index()


def check_coverage(
    strengths: Mapping[str, float],
    *,
    n_labelled: Sequence[int],
    rng: np.random.Generator,
    n_dialogues: int = 80,
    n_studies: int = 50,
    ci_level: float = 0.95,
    panels: Sequence[Panel] = (Panel("human", 45, 2, ties=0.2), Panel("model", 1, 1, discrimination=1.5)),
) -> pd.DataFrame:
    """Count how often intervals hold the truth, with a judge and by people alone, in simulated studies.

    Parameters
    ----------
    strengths : mapping of str to float
        The known strength of each responder; a name ``"human"`` is a person.
    n_labelled : sequence of int
        How many dialogues people label, one row each.
    rng : numpy.random.Generator
        The source of chance.
    n_dialogues, n_studies : int
        Dialogues a study; studies.
    ci_level : float
        Of the intervals.
    panels : sequence of Panel
        People and one judge, as :func:`heart_utils.analysis.simulate.simulate_study` takes them.

    Returns
    -------
    pandas.DataFrame
        One row a size: ``n_labelled``; ``powered mean`` and ``powered sem`` (share of responders whose interval holds the
        truth, mean over studies and its standard error); ``people mean`` and ``people sem``, from people alone.

    Examples
    --------
    >>> found = check_coverage({"human": 0.5, "x": 0.0, "y": -0.5}, n_labelled=[20], rng=np.random.default_rng(1), n_studies=4)
    >>> found.columns.tolist()
    ['n_labelled', 'powered mean', 'powered sem', 'people mean', 'people sem']
    """
    pool = simulate_study(rng=rng, strengths=strengths, n_dialogues=n_dialogues * n_studies, pairs="all", panels=panels)
    truth = pool.truth.query("rater_kind == 'human'").set_index("responder")["marginal"]
    study_of = pd.factorize(pool.verdicts["dialogue_id"])[0] // n_dialogues
    held = [
        {
            "n_labelled": n,
            "powered": at.between(made["ci_low"], made["ci_high"]).mean(),
            "people": at.between(made["people_low"], made["people_high"]).mean(),
        }
        for _, rows in pool.verdicts.groupby(study_of)
        for n in n_labelled
        for made in [prediction_powered_ratings(label_some(rows, n, rng), ci_level=ci_level).table]
        for at in [made["responder"].map(truth)]
    ]
    found = pd.DataFrame(held).groupby("n_labelled").agg(["mean", "sem"])
    return found.set_axis([" ".join(name) for name in found.columns], axis=1).reset_index()


def _one(verdicts: pd.DataFrame, target: pd.Series, cluster: str) -> dict[str, float]:
    found = prediction_powered_ratings(verdicts, cluster=cluster)
    table = found.table.set_index("responder")
    alone, powered = (((table[name] - target) ** 2).sum() for name in ("people_strength", "strength"))
    return {
        "gain": float(alone - powered),
        "variance": found.people_variance,
        "estimated": found.saving,
        "at_most": found.most_saving,
        "rho_squared": found.rho_squared,
        "weight": found.weight,
    }
