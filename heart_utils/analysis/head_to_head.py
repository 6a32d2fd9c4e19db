"""People against models: how often each is preferred, and how often neither."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from heart_utils.analysis.resampling import bootstrap_ci
from heart_utils.analysis.wins import RatingsError, read_verdicts
from heart_utils.tables import RESPONDER_KINDS

__all__ = ["OUTCOMES", "head_to_head", "without_flag"]

OUTCOMES = ("people", "models", "tie", "inconsistent")


def head_to_head(
    verdicts: pd.DataFrame,
    responders: pd.DataFrame,
    *,
    rng: np.random.Generator,
    by: Sequence[str] = (),
    dimension: str = "overall",
    cluster: str = "dialogue_id",
    n_resamples: int = 1000,
    ci_level: float = 0.95,
) -> pd.DataFrame:
    """Count who is preferred where a person's reply meets a model's.

    Parameters
    ----------
    verdicts : pandas.DataFrame
        One row per verdict; two orders joined, if both were asked.
    responders : pandas.DataFrame
        Names the ``responder_kind`` of each ``responder``; only ``human`` is a person.
    rng : numpy.random.Generator
        The source of chance.
    by : sequence of str
        Columns of `verdicts` to split by, such as ``rater_kind`` or ``slice``.
    dimension : str
        A line of the rubric.
    cluster : str
        Column of what is resampled together.
    n_resamples : int
        Bootstrap resamples.
    ci_level : float
        Such as 0.95.

    Returns
    -------
    pandas.DataFrame
        The columns `by`; ``outcome``: ``people``, ``models``, ``tie``, ``inconsistent`` (shares of all
        that sum to one) and ``models_of_decided`` (models' share where someone was preferred);
        ``share``, ``ci_low``, ``ci_high``, ``ci_level``, ``n_verdicts``, ``n_clusters``, ``provisional``,
        ``simulated``.

    Raises
    ------
    RatingsError
        If a responder is of no known kind, or no person meets a model.

    Examples
    --------
    >>> votes = pd.DataFrame({"responder_a": "anna", "responder_b": "bot", "verdict": ["a", "b", "b", "tie"],
    ...     "dialogue_id": list("wxyz")})
    >>> who = pd.DataFrame({"responder": ["anna", "bot"], "responder_kind": ["human", "model"]})
    >>> found = head_to_head(votes, who, rng=np.random.default_rng(1), n_resamples=50)
    >>> found.set_index("outcome")["share"].round(2).to_dict()
    {'people': 0.25, 'models': 0.5, 'tie': 0.25, 'inconsistent': 0.0, 'models_of_decided': 0.67}
    """
    entries = read_verdicts(verdicts, dimension=dimension, cluster=cluster)
    kind = responders.set_index("responder")["responder_kind"].reindex(entries.responders)
    unknown = kind.index[~kind.isin(RESPONDER_KINDS)]
    if len(unknown):
        raise RatingsError(f"responders do not say what kind {', '.join(unknown)} is of.")
    person, model = (kind == "human").to_numpy(), (kind == "model").to_numpy()
    a_person = person[entries.a] & model[entries.b]
    meet = a_person | (model[entries.a] & person[entries.b])
    if not meet.any():
        raise RatingsError(
            f"No person's reply meets a model's on {dimension!r}: there are {int(person.sum())} people and "
            f"{int(model.sum())} models among {', '.join(entries.responders)}."
        )
    to_person = np.where(a_person, entries.share, 1.0 - entries.share)
    neither = entries.tie | entries.inconsistent | (entries.share == 0.5)
    counts = pd.DataFrame(
        {
            "people": ~neither & (to_person > 0.5),
            "models": ~neither & (to_person < 0.5),
            "tie": neither & ~entries.inconsistent,
            "inconsistent": entries.inconsistent,
            "n": True,
        }
    ).astype(float)[meet]
    rows = verdicts.iloc[entries.rows[meet]]
    counts[cluster] = rows[cluster].to_numpy()
    simulated = bool(rows["simulated"].any()) if "simulated" in rows else False
    groups = [rows[column].to_numpy() for column in by]
    parts = []
    for group, of_group in counts.groupby(groups, sort=True) if groups else [((), counts)]:
        for outcome in (*OUTCOMES, "models_of_decided"):
            spread = bootstrap_ci(
                of_group, _share_of(outcome), cluster=cluster, rng=rng, n_resamples=n_resamples, ci_level=ci_level
            )
            parts.append(
                {
                    **dict(zip(by, group, strict=True)),
                    "outcome": outcome,
                    "share": spread.estimate,
                    "ci_low": spread.ci_low,
                    "ci_high": spread.ci_high,
                    "ci_level": ci_level,
                    "n_verdicts": len(of_group),
                    "n_clusters": spread.n_clusters,
                    "provisional": spread.provisional,
                    "simulated": simulated,
                }
            )
    return pd.DataFrame(parts)


def without_flag(verdicts: pd.DataFrame, flag: str) -> tuple[pd.DataFrame, int]:
    """Leave out the verdicts that carry a flag, and say how many.

    A board without the verdicts flagged ``own_family`` is what judges of other families say: what a
    model maker's judge says of its relatives is left out.

    Parameters
    ----------
    verdicts : pandas.DataFrame
        With a column ``flags``.
    flag : str
        Such as ``"own_family"``.

    Returns
    -------
    tuple of pandas.DataFrame and int
        The rest, and how many were left out.

    Examples
    --------
    >>> rest, n_left_out = without_flag(pd.DataFrame({"flags": [["own_family"], [], ["greeting"]]}), "own_family")
    >>> len(rest), n_left_out
    (2, 1)
    """
    flagged = np.array([flag in flags for flags in verdicts["flags"]], dtype=bool)
    return verdicts[~flagged], int(flagged.sum())


def _share_of(outcome: str) -> Callable[[pd.DataFrame], pd.Series]:
    if outcome == "models_of_decided":
        return lambda sums: sums["models"] / (sums["models"] + sums["people"])
    return lambda sums: sums[outcome] / sums["n"]
