"""Measuring how well a judge agrees with people: what a calibration record holds."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from heart_utils.agreement.agreement import pair_votes, pairwise_agreement
from heart_utils.agreement.panel import agreement_with_baselines
from heart_utils.identities import refuse_identities
from heart_utils.judges.position import (
    BiasError,
    compare_answers,
    position_bias,
    repeat_reliability,
)
from heart_utils.ratings.resampling import Rng, clustered_error, error_ends
from heart_utils.ratings.verdicts import Array, combine_orders, read_votes
from heart_utils.report.calibration import CalibrationError, CalibrationRecord, digest_parts
from heart_utils.tables import need_columns

__all__ = ["LabelSource", "calibrate_judge"]


@dataclass(frozen=True)
class LabelSource:
    """Where people's labels come from, and how long a record holds."""

    #: Who the people are, in words, such as ``"three clinicians, study of May 2026"``.
    labels_from: str
    valid_days: int | None = None  #: After so many days the record is out of date.
    made_on: datetime.date | None = None  #: By default the day on which the record is made.

    def __post_init__(self) -> None:
        if not self.labels_from.strip():
            raise CalibrationError(
                "labels_from is empty: say who the people are, such as 'three clinicians, study of"
                " May 2026'."
            )
        refuse_identities({}, {"labels_from": self.labels_from})
        if self.valid_days is not None and self.valid_days < 1:
            raise CalibrationError(
                f"valid_days={self.valid_days!r}: expected 1 or more, or None for a record that no"
                " age ends."
            )


def calibrate_judge(
    judge_votes: pd.DataFrame,
    human_votes: pd.DataFrame,
    *,
    bound_to: Mapping[str, Any],
    labels: LabelSource,
    dimension: str = "overall",
    words: pd.DataFrame | None = None,
    n_resamples: int = 1000,
    ci_level: float = 0.95,
    rng: Rng = None,
) -> CalibrationRecord:
    """Measure how well a judge agrees with people, and bind the result to its settings.

    Parameters
    ----------
    judge_votes : pandas.DataFrame
        Verdicts of one judge, orders not combined.
    human_votes : pandas.DataFrame
        Verdicts of people (``"human"``) on some of these pairs; the first answer counts.
    bound_to : mapping
        ``model``, ``prompt``, ``rubric`` and ``options``, as
        :meth:`~heart_collect.judging.recipe.Recipe.identity_of` returns them.
    labels : LabelSource
        Who the people are, how long it holds.
    dimension : str
        A line of the rubric that both answered.
    words : pandas.DataFrame, optional
        By ``pair_id``, one column: words of reply a less those of b.
    n_resamples, ci_level, rng
        As in :func:`~heart_utils.ratings.resampling.bootstrap_ci`.

    Returns
    -------
    CalibrationRecord
        Agreement, kappa, lead over an author-only guess, with intervals over dialogues and
        people; biases, error rates. ``faults`` lists why the judge must not decide.

    Raises
    ------
    CalibrationError
        If labels are not by two people or more, votes are of several judges, `bound_to` lacks a
        part, or pairs of fewer than two dialogues were decided by both.

    Examples
    --------
    >>> from heart_utils.simulate.study import simulate_study
    >>> votes = simulate_study(
    ...     rng=np.random.default_rng(1), strengths=3, n_dialogues=40, pairs="all"
    ... ).verdicts
    >>> judge, people = (votes[votes["rater_kind"] == kind] for kind in ("model", "human"))
    >>> judge = judge[judge["rater"] == judge["rater"].iloc[0]]
    >>> what = {
    ...     "model": "openai/gpt-4o",
    ...     "prompt": "Which is better?",
    ...     "rubric": "overall",
    ...     "options": {"temperature": 0},
    ... }
    >>> record = calibrate_judge(
    ...     judge, people, bound_to=what, labels=LabelSource("a simulation"), n_resamples=100
    ... )
    >>> faults = record.faults(bound_to={**what, "prompt": "Which is better? "})
    >>> faults[0].split(":")[1].split(".")[0]
    ' prompt changed'
    """
    digests = digest_parts(bound_to)
    judge, own_votes = _one_judge(judge_votes, dimension)
    people = _people(human_votes, dimension)
    first = (
        own_votes
        if "repeat" not in own_votes
        else own_votes[own_votes["repeat"] == own_votes["repeat"].min()]
    )
    joined = combine_orders(first.reset_index(drop=True))
    if judge in set(people["rater"]):
        raise CalibrationError(
            f"{judge!r} is among the raters of human_votes: a judge is not calibrated on its own"
            " answers."
        )
    both = people[people["pair_id"].isin(joined["pair_id"])]
    if both.empty:
        raise CalibrationError(
            f"People and {judge!r} answered no pair in common on {dimension!r}, so nothing can be"
            " compared."
        )
    votes = pd.concat([both, joined[joined["pair_id"].isin(both["pair_id"])]], ignore_index=True)
    decided = _decided(both, joined)
    if decided.empty:
        raise CalibrationError(
            f"No pair on {dimension!r} was decided by a person and by {judge!r}: all are ties or"
            " failures."
        )
    if decided["dialogue_id"].nunique() < 2:
        raise CalibrationError(
            f"Only one dialogue on {dimension!r} was decided by a person and by {judge!r}, which"
            " gives no interval. Label more."
        )
    if decided["rater"].nunique() < 2:
        raise CalibrationError(
            f"One person alone decided pairs on {dimension!r} that {judge!r} decided. A record is"
            " about people, and one cannot show how they differ: ask others too."
        )
    rates = agreement_with_baselines(
        votes,
        between=("human", judge),
        by=[],
        n_resamples=n_resamples,
        ci_level=ci_level,
        rng=rng,
    ).set_index("who")
    own = rates.loc[judge].astype(float).to_dict()
    names = rates.loc["author_only"].astype(float).to_dict()
    over_people = _over_people(votes, judge, ci_level)
    # Resamples of dialogues learn the names anew and know nothing of other people: the wider holds.
    agreement_low, lead_low = np.minimum(
        [own["agreement_low"], names["lead_low"]], over_people[:, 0]
    )
    agreement_high, lead_high = np.maximum(
        [own["agreement_high"], names["lead_high"]], over_people[:, 1]
    )
    chance = pairwise_agreement(
        votes, between=("human", judge), by=[], n_resamples=n_resamples, ci_level=ci_level, rng=rng
    ).table[["kappa", "kappa_low", "kappa_high"]]
    kappa, kappa_low, kappa_high = (_number(value) for value in chance.iloc[0])
    reliability, reliability_low, reliability_high = _reliability(
        own_votes, n_resamples, ci_level, rng
    )
    return CalibrationRecord(
        judge=judge,
        dimension=dimension,
        bound_to=digests,
        made_on=(labels.made_on or datetime.date.today()).isoformat(),
        valid_days=labels.valid_days,
        labels_from=labels.labels_from,
        n_labels=len(both),
        n_dialogues=int(both["dialogue_id"].nunique()),
        n_decided=len(decided),
        agreement=own["agreement"],
        agreement_low=float(agreement_low),
        agreement_high=float(agreement_high),
        kappa=kappa,
        kappa_low=kappa_low,
        kappa_high=kappa_high,
        lead=names["lead"],
        lead_low=float(lead_low),
        lead_high=float(lead_high),
        ci_level=ci_level,
        wrongly_preferred=_error_rates(decided, "winner"),
        wrongly_passed_over=_error_rates(decided, "loser"),
        first_share=_first_share(own_votes),
        longer_when_wrong=_longer_when_wrong(decided, words),
        same_when_asked_again=_same_again(own_votes),
        reliability=reliability,
        reliability_low=reliability_low,
        reliability_high=reliability_high,
        simulated=bool(votes["simulated"].any()) if "simulated" in votes else False,
        n_people=int(decided["rater"].nunique()),
    )


def _one_judge(votes: pd.DataFrame, dimension: str) -> tuple[str, pd.DataFrame]:
    need_columns(
        votes, ["rater", "rater_kind", "dimension", "pair_id", "verdict", "state"], CalibrationError
    )
    kinds = set(votes["rater_kind"].dropna())
    if not kinds <= {"model", "trained"}:
        raise CalibrationError(
            "The judge's votes hold rows by people (rater_kind 'human'); give one judge's alone."
        )
    names = sorted(votes["rater"].astype(str).unique())
    if len(names) != 1:
        raise CalibrationError(
            f"judge_votes are of {len(names)} judges ({', '.join(names[:5]) or 'none'}); a record"
            " is of one. Keep one with votes[votes['rater'] == NAME]."
        )
    rows = votes[votes["dimension"] == dimension]
    if rows.empty:
        known = ", ".join(sorted(votes["dimension"].astype(str).unique()))
        raise CalibrationError(
            f"{names[0]!r} answered nothing on {dimension!r}; it answered"
            f" {known or 'nothing at all'}."
        )
    return names[0], rows.reset_index(drop=True)


def _people(votes: pd.DataFrame, dimension: str) -> pd.DataFrame:
    need_columns(
        votes, ["rater", "rater_kind", "dimension", "pair_id", "verdict", "state"], CalibrationError
    )
    others = sorted(set(votes["rater_kind"].dropna()) - {"human"})
    if others or votes["rater_kind"].isna().any():
        raise CalibrationError(
            f"human_votes hold rows whose rater_kind is {', '.join(others) or 'empty'}: a judge is"
            " calibrated on people's labels, never on another judge's. Keep the rows with"
            " rater_kind 'human'."
        )
    rows = votes[(votes["dimension"] == dimension) & votes["state"].isin(["valid", "inconsistent"])]
    if rows.empty:
        known = ", ".join(sorted(votes["dimension"].astype(str).unique()))
        raise CalibrationError(
            f"No valid vote by a person is on {dimension!r}; votes are on {known or 'nothing'}."
        )
    if "repeat" in rows:  # who answered a pair twice has one label: the first
        rows = rows[rows["repeat"] == rows.groupby(["rater", "pair_id"])["repeat"].transform("min")]
    return combine_orders(rows.reset_index(drop=True))


def _decided(people: pd.DataFrame, judge: pd.DataFrame) -> pd.DataFrame:
    judged = judge.loc[judge["verdict"].isin(["a", "b"]), ["pair_id", "verdict"]].drop_duplicates(
        "pair_id"
    )
    paired = people[people["verdict"].isin(["a", "b"])].merge(
        judged, on="pair_id", suffixes=("", "_judge")
    )
    for_a = paired["verdict_judge"] == "a"
    return paired.assign(
        wrong=paired["verdict"] != paired["verdict_judge"],
        winner=paired["responder_a"].where(for_a, paired["responder_b"]),
        loser=paired["responder_b"].where(for_a, paired["responder_a"]),
        took_a=for_a,
    )


def _over_people(votes: pd.DataFrame, judge: str, ci_level: float) -> Array:
    pairs = pair_votes(read_votes(votes), between=("human", judge), by=[], ties="exclude")
    cells = []  # what each person said in each dialogue: votes, equal ones, and right by names
    for person in np.unique(pairs.rater_pairs[0]):
        theirs = pairs.of_rater(person, first=True)
        by_names = theirs.names().right_by_cluster()[:, 0]
        cells.append(np.column_stack([theirs.sums()[:, 0, :2], by_names]))
    person, dialogue = np.indices((len(cells), pairs.n_clusters)).reshape(2, -1)
    n, equal, by_names = np.concatenate(cells).T
    ends = []
    for won, least in ((equal, 0.0), (equal - by_names, -1.0)):
        value = won.sum() / n.sum()
        error, even = clustered_error((won - value * n) / n.sum(), n, dialogue, person)
        ends.append(error_ends(value, error, even, ci_level, least=least, most=1.0))
    return np.array(ends)


def _error_rates(decided: pd.DataFrame, side: str) -> dict[str, float]:
    names = sorted({*decided["responder_a"], *decided["responder_b"]})
    n_judged = pd.concat([decided["responder_a"], decided["responder_b"]]).value_counts()
    wrong = decided.loc[decided["wrong"], side].value_counts()
    return {str(name): float(wrong.get(name, 0) / n_judged[name]) for name in names}


def _first_share(votes: pd.DataFrame) -> float | None:
    if "order" not in votes or votes["order"].isna().all():
        return None
    table = position_bias(votes, rng=np.random.default_rng(0), n_resamples=2)
    return _number(table.loc[table["measure"] == "first_share", "value"].iloc[0])


def _longer_when_wrong(decided: pd.DataFrame, words: pd.DataFrame | None) -> float | None:
    if words is None:
        return None
    gap = decided["pair_id"].map(words.iloc[:, 0]).to_numpy(float)
    counts = decided["wrong"].to_numpy() & np.isfinite(gap) & (gap != 0)
    if not counts.any():
        return None
    took_longer = (gap > 0) == decided["took_a"].to_numpy()
    return float(took_longer[counts].mean())


def _same_again(votes: pd.DataFrame) -> float | None:
    if "repeat" not in votes or votes["repeat"].nunique() < 2:
        return None
    table = compare_answers(votes, by="repeat", rng=np.random.default_rng(0), n_resamples=2)
    return (
        float((table["same_share"] * table["n"]).sum() / table["n"].sum()) if len(table) else None
    )


def _reliability(
    votes: pd.DataFrame, n_resamples: int, ci_level: float, rng: Rng
) -> tuple[float | None, float | None, float | None]:
    if "repeat" not in votes:
        return None, None, None
    try:
        estimate = repeat_reliability(
            votes, n_resamples=n_resamples, ci_level=ci_level, rng=rng
        ).iloc[0]
    except BiasError:  # nothing was asked again
        return None, None, None
    return (
        _number(estimate["reliability"]),
        _number(estimate["ci_low"]),
        _number(estimate["ci_high"]),
    )


def _number(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None
