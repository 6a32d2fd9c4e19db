"""People against models: how often each is preferred, and how often neither."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from heart_utils.analysis.other_raters import crossed_interval, crossed_variance, refuse_few_raters
from heart_utils.analysis.resampling import ENOUGH_CLUSTERS, bootstrap_ci
from heart_utils.analysis.wins import RatingsError, read_verdicts
from heart_utils.tables import RESPONDER_KINDS

__all__ = ["OUTCOMES", "head_to_head", "without_flag"]

OUTCOMES = ("people", "models", "tie", "inconsistent")


def head_to_head(
    verdicts: pd.DataFrame,
    responders: pd.DataFrame,
    *,
    rng: np.random.Generator | None = None,
    by: Sequence[str] = (),
    dimension: str = "overall",
    cluster: str | Sequence[str] = "dialogue_id",
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
    rng : numpy.random.Generator, optional
        The source of chance; by default one with a fixed seed.
    by : sequence of str
        Columns of `verdicts` to split by, such as ``rater_kind`` or ``slice``.
    dimension : str
        A line of the rubric.
    cluster : str or two str
        Column of what is resampled together, for dialogues like these; or ``["dialogue_id", "rater"]``, for dialogues
        and raters like these: a two-way variance, with a t quantile of the smaller number.
    n_resamples : int
        Bootstrap resamples, where there is one cluster.
    ci_level : float
        Such as 0.95.

    Returns
    -------
    pandas.DataFrame
        The columns `by`; ``outcome``: ``people``, ``models``, ``tie``, ``inconsistent`` (shares of all
        that sum to one) and ``models_of_decided`` (models' share where someone was preferred);
        ``share``, ``ci_low``, ``ci_high``, ``ci_level``, ``n_verdicts``, ``n_clusters`` (of two, the smaller),
        ``provisional``, ``simulated``.

    Raises
    ------
    RatingsError
        If a responder is of no known kind, or no person meets a model; with two clusters, if raters are fewer than
        20 or belong to one dialogue each.

    Examples
    --------
    >>> votes = pd.DataFrame({"responder_a": "anna", "responder_b": "bot", "verdict": ["a", "b", "b", "tie"],
    ...     "dialogue_id": list("wxyz")})
    >>> who = pd.DataFrame({"responder": ["anna", "bot"], "responder_kind": ["human", "model"]})
    >>> found = head_to_head(votes, who, rng=np.random.default_rng(1), n_resamples=50)
    >>> found.set_index("outcome")["share"].round(2).to_dict()
    {'people': 0.25, 'models': 0.5, 'tie': 0.25, 'inconsistent': 0.0, 'models_of_decided': 0.67}
    """
    clusters = [cluster] if isinstance(cluster, str) else list(cluster)
    entries = read_verdicts(verdicts, dimension=dimension, cluster=clusters[0])
    if missing := [column for column in clusters if column not in verdicts]:
        raise RatingsError(f"verdicts lack the column {', '.join(missing)}. They have {', '.join(map(str, verdicts.columns))}.")
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
    simulated = bool(rows["simulated"].any()) if "simulated" in rows else False
    groups = [rows[column].to_numpy() for column in by]
    drawn = rows[clusters].set_axis(counts.index, axis=0)
    parts = []
    for group, of_group in counts.groupby(groups, sort=True) if groups else [((), counts)]:
        where = "".join(f" where {column} is {value!r}" for column, value in zip(by, group, strict=True))
        for outcome in (*OUTCOMES, "models_of_decided"):
            share, low, high, n_clusters = _interval(
                of_group, outcome, drawn.loc[of_group.index], rng, n_resamples, ci_level, where
            )
            parts.append(
                {
                    **dict(zip(by, group, strict=True)),
                    "outcome": outcome,
                    "share": share,
                    "ci_low": low,
                    "ci_high": high,
                    "ci_level": ci_level,
                    "n_verdicts": len(of_group),
                    "n_clusters": n_clusters,
                    "provisional": n_clusters < ENOUGH_CLUSTERS,
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


def _interval(
    counts: pd.DataFrame,
    outcome: str,
    drawn: pd.DataFrame,
    rng: np.random.Generator | None,
    n_resamples: int,
    ci_level: float,
    where: str,
) -> tuple[float, float, float, int]:
    """Give a share, its ends and how many clusters they rest on: of one kind by resampling, of two by their variance."""
    if len(drawn.columns) == 1:
        found = bootstrap_ci(
            counts,
            _share_of(outcome),
            cluster=drawn.iloc[:, 0],
            rng=rng,
            n_resamples=n_resamples,
            ci_level=ci_level,
            least=0.0,
            most=1.0,
        )
        return found.estimate, found.ci_low, found.ci_high, found.n_clusters
    dialogue, rater = (pd.factorize(drawn[column])[0].astype(np.intp) for column in drawn)
    refuse_few_raters(dialogue, rater, (drawn.columns[0], drawn.columns[1]), RatingsError, where)
    of, among = _parts_of(outcome, counts)
    total = float(among.sum())
    share = float(of.sum() / total) if total else float("nan")
    fewest = min(dialogue.max(), rater.max()) + 1
    variance = crossed_variance((of - share * among).to_numpy() / total, dialogue, rater) if total else float("nan")
    return share, *crossed_interval(share, variance, fewest, ci_level, least=0.0, most=1.0), int(fewest)


def _share_of(outcome: str) -> Callable[[pd.DataFrame], pd.Series]:
    def share(sums: pd.DataFrame) -> pd.Series:
        of, among = _parts_of(outcome, sums)
        return of / among

    return share


def _parts_of(outcome: str, counts: pd.DataFrame) -> tuple[pd.Series, pd.Series]:
    """Give what an outcome counts, and among what."""
    if outcome == "models_of_decided":
        return counts["models"], counts["models"] + counts["people"]
    return counts[outcome], counts["n"]
