"""Records of how well a judge agrees with people, bound to the judge's settings.

The settings are its model, prompt, rubric and options.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from heart_utils.agreement.agreement import pairwise_agreement
from heart_utils.agreement.baselines import agreement_with_baselines
from heart_utils.identities import refuse_identities
from heart_utils.judges.position import BiasError, compare_answers, position_bias
from heart_utils.judges.retest import repeat_reliability
from heart_utils.judging.trained import content_digest, read_sealed, write_sealed
from heart_utils.ratings.resampling import Rng
from heart_utils.ratings.verdicts import combine_orders
from heart_utils.settings import JsonObject, read_strictly
from heart_utils.tables import need_columns

__all__ = [
    "CalibrationError",
    "CalibrationRecord",
    "calibrate_judge",
    "judge_identity",
    "load_calibration",
]

PARTS = ("model", "prompt", "rubric", "options")
FORMAT = "heart-calibration-1"
LEAST_LABELS = 100
MINUTES_A_LABEL = 2.0
"""What one label costs a person, where a message reckons hours; a pilot says what it is in a
study."""


class CalibrationError(ValueError):
    """A judge cannot be calibrated on these votes, or a record cannot be read."""


@dataclass(frozen=True)
class CalibrationRecord:
    """How one judge agrees with people on one dimension.

    Shares count pairs of decided votes: one of the judge's and one person's.

    ``agreement``, ``kappa`` (0 where it agrees as chance would) and ``lead`` (agreement less that
    of a guess from the authors' names) have ends ``_low`` and ``_high`` at ``ci_level``, over
    dialogues like these. What could not be measured is None.
    """

    judge: str
    dimension: str
    bound_to: dict[str, str]  #: Part (model, prompt, rubric, options) -> its digest.
    made_on: str  #: The day, as 2026-01-31.
    valid_days: int | None  #: After so many days it is out of date; None: never by age.
    labels_from: str  #: Who the people are and where their votes come from, in words.
    n_labels: int  #: Votes by people on pairs that the judge answered.
    n_people: int
    n_dialogues: int
    n_decided: int  #: Votes by people that decided, on pairs that the judge decided.
    agreement: float
    agreement_low: float
    agreement_high: float
    kappa: float | None
    kappa_low: float | None
    kappa_high: float | None
    lead: float
    lead_low: float
    lead_high: float
    ci_level: float
    #: Responder -> share of its decided votes in which the judge prefers it and the person does
    #: not, and the reverse.
    wrongly_preferred: dict[str, float]
    wrongly_passed_over: dict[str, float]
    #: Share of the judge's decided answers that name the reply shown first; 0.5 is no lean.
    first_share: float | None
    #: Share of its errors in which it took the longer reply; 0.5 is no lean.
    longer_when_wrong: float | None
    same_when_asked_again: float | None  #: Share of its answers that were the same at a repeat.
    #: Share of the variance of its answers that comes back at a repeat
    #: (:func:`~heart_utils.judges.retest.repeat_reliability`).
    reliability: float | None
    reliability_low: float | None
    reliability_high: float | None
    simulated: bool

    def faults(
        self,
        *,
        bound_to: Mapping[str, Any] | None = None,
        today: datetime.date | None = None,
        least_lead: float = 0.0,
        least_labels: int = LEAST_LABELS,
    ) -> list[str]:
        """List the reasons why the judge must not decide; empty if it may.

        Parameters
        ----------
        bound_to : mapping, optional
            What the judge is now: ``model``, ``prompt``, ``rubric``, ``options``, as
            :func:`judge_identity` gives them.
        today : datetime.date, optional
            By default the day on which this runs.
        least_lead : float
            The lower end of the lead over the authors' names must lie above this.
        least_labels : int
            Votes by people, at least.

        Returns
        -------
        list of str
            A sentence a fault, with what is missing and what it costs in people's hours.
        """
        faults = []
        who = f"The calibration of {self.judge!r} on {self.dimension!r}"
        if bound_to is None:
            faults.append(
                f"{who} cannot be checked: nothing says which model, prompt, rubric and options"
                " judge now."
            )
        else:
            changed = self._changed(bound_to)
            if changed:
                faults.append(
                    f"{who} has expired: {' and '.join(changed)} changed."
                    f" {cost_in_hours(least_labels)}"
                )
        age = ((today or datetime.date.today()) - datetime.date.fromisoformat(self.made_on)).days
        if age < 0:
            faults.append(
                f"{who} was made on {self.made_on}, which is still to come: correct the date of"
                " this machine or of it."
            )
        if self.valid_days is not None and age > self.valid_days:
            faults.append(
                f"{who} has expired: it is {age} days old, {self.valid_days} are allowed."
                f" {cost_in_hours(least_labels)}"
            )
        if self.n_labels < least_labels:
            missing = least_labels - self.n_labels
            faults.append(
                f"{who} rests on {self.n_labels} labels by people; {least_labels} are asked for."
                f" {cost_in_hours(missing)}"
            )
        if not self.agreement_low > 0.5:
            faults.append(
                f"{who} does not show that it agrees with people more than a coin:"
                f" {self.agreement:.3f} [{self.agreement_low:.3f}, {self.agreement_high:.3f}] of"
                " decided votes."
                f" {self._labels_for(self.agreement - 0.5, self.agreement - self.agreement_low)}"
            )
        if not self.lead_low > least_lead:
            faults.append(
                f"{who} shows a lead over the authors' names of {self.lead:+.3f}"
                f" [{self.lead_low:+.3f}, {self.lead_high:+.3f}]; its lower end must lie above"
                f" {least_lead:g}."
                f" {self._labels_for(self.lead - least_lead, self.lead - self.lead_low)}"
            )
        return faults

    def describe(
        self, *, bound_to: Mapping[str, Any] | None = None, today: datetime.date | None = None
    ) -> str:
        """Describe lead, labels, date and expiry in words, as reports print them.

        Parameters
        ----------
        bound_to : mapping, optional
            What the judge is now, where that is known; a changed part is named first.
        today : datetime.date, optional
            By default the day on which this runs.

        Returns
        -------
        str
        """
        changed = [] if bound_to is None else self._changed(bound_to)
        last = self.last_day
        if changed:
            expired = f"expired: {' and '.join(changed)} changed; "
        elif last is not None and (today or datetime.date.today()) > last:
            expired = "expired; "
        else:
            expired = ""
        labels = "SIMULATED labels" if self.simulated else "labels by people"
        end = "no date of expiry" if last is None else f"valid until {last.isoformat()}"
        return (
            f"{expired}lead {self.lead:+.3f} [{self.lead_low:+.3f}, {self.lead_high:+.3f}],"
            f" {self.n_labels} {labels} ({self.labels_from}), made on {self.made_on}, {end}"
        )

    @property
    def last_day(self) -> datetime.date | None:
        """The last day on which it is not too old; None if it never is."""
        if self.valid_days is None:
            return None
        return datetime.date.fromisoformat(self.made_on) + datetime.timedelta(self.valid_days)

    def _changed(self, bound_to: Mapping[str, Any]) -> list[str]:
        """Name the parts of the judge that are no longer what they were."""
        now = _digests(bound_to)
        return [part for part in PARTS if now[part] != self.bound_to[part]]

    def _labels_for(self, above: float, half: float) -> str:
        """Estimate how many labels would show that the lead exceeds a limit.

        The lead is taken to stay as it is, and half the interval to be as wide as now.
        """
        if not above > 0:
            return (
                "More labels would not change that if it is as it was found: use another judge,"
                " prompt or rubric."
            )
        needed = int(np.ceil(self.n_labels * (half / above) ** 2))
        missing = max(needed - self.n_labels, 1)
        return (
            f"If it is as it was found, about {needed} labels would show it."
            f" {cost_in_hours(missing)}"
        )

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the record as JSON with a digest of its content, whole or not at all."""
        content = {"format": FORMAT, **asdict(self)}
        return write_sealed(path, content, indent=2)


def calibrate_judge(
    judge_votes: pd.DataFrame,
    human_votes: pd.DataFrame,
    *,
    bound_to: Mapping[str, Any],
    labels_from: str,
    dimension: str = "overall",
    valid_days: int | None = None,
    made_on: datetime.date | None = None,
    words: pd.DataFrame | None = None,
    n_resamples: int = 1000,
    ci_level: float = 0.95,
    rng: Rng = None,
) -> CalibrationRecord:
    """Measure how well a judge agrees with people, and bind the result to its settings.

    A judge may only replace people where it was compared with them, and only as long as it stays
    the same. The record holds its agreement on pairs that people judged, its known biases, and
    digests of its model, prompt, rubric and options. The gate and the reports read it, and say so
    when any part has changed.

    Parameters
    ----------
    judge_votes : pandas.DataFrame
        Verdicts of one judge, orders not combined; ``rater_kind`` ``"model"`` or ``"trained"``.
    human_votes : pandas.DataFrame
        Verdicts of people (``rater_kind`` ``"human"``) on some of these pairs; of a repeated answer
        the first counts.
    bound_to : mapping
        ``model``, ``prompt``, ``rubric`` and ``options`` of the judge, each text or settings;
        :func:`judge_identity` returns them for a run's judge. Another blank in one of them is
        another judge.
    labels_from : str
        Who the people are, in words, such as ``"three clinicians, study of May 2026"``.
    dimension : str
        A line of the rubric that both answered.
    valid_days : int, optional
        After so many days the record is out of date.
    made_on : datetime.date, optional
        By default the day on which this runs.
    words : pandas.DataFrame, optional
        By ``pair_id``, one column: how much longer reply a is than reply b, for the bias towards
        length.
    n_resamples, ci_level, rng
        As in :func:`~heart_utils.ratings.resampling.bootstrap_ci`.

    Returns
    -------
    CalibrationRecord
        ``agreement``, ``kappa`` and ``lead`` (agreement less that of an author-only guess), each
        with its interval over dialogues; ``n_labels``, ``n_people``, ``n_dialogues``;
        ``first_share`` and ``longer_when_wrong`` (0.5 is no bias); error rates by responder.
        ``faults`` lists why the judge must not decide, ``describe`` puts the record in words,
        ``save`` writes it.

    Raises
    ------
    CalibrationError
        If labels are not by people, the judge's votes are of several judges or of people, a part of
        `bound_to` is missing, or pairs of fewer than two dialogues were decided by both.
    heart_utils.identities.IdentityError
        If `labels_from` names a person.

    See Also
    --------
    load_calibration : Read a record.
    judge_identity : Describe a judge of a run.
    pairwise_agreement : Measure agreement of any two rater groups.
    compare_responders : Test a candidate in the gate, which reads records.
    train_judge : Train a judge on people's labels.

    Examples
    --------
    >>> from heart_utils.simulate.study import simulate_study
    >>> votes = simulate_study(
    ...     rng=np.random.default_rng(1), n_responders=3, n_dialogues=40, pairs="all"
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
    ...     judge, people, bound_to=what, labels_from="a simulation", n_resamples=100
    ... )
    >>> faults = record.faults(bound_to={**what, "prompt": "Which is better? "})
    >>> faults[0].split(":")[1].split(".")[0]
    ' prompt changed'
    """
    if not labels_from.strip():
        raise CalibrationError(
            "labels_from is empty: say who the people are, such as 'three clinicians, study of May"
            " 2026'."
        )
    refuse_identities({}, {"labels_from": labels_from})
    if valid_days is not None and valid_days < 1:
        raise CalibrationError(
            f"valid_days={valid_days!r}: expected 1 or more, or None for a record that no age ends."
        )
    digests = _digests(bound_to)
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
    rates = (
        agreement_with_baselines(
            votes,
            between=("human", judge),
            by=[],
            n_resamples=n_resamples,
            ci_level=ci_level,
            rng=rng,
        )
        .set_index("who")
        .drop(columns="provisional")
    )
    chance = pairwise_agreement(
        votes, between=("human", judge), by=[], n_resamples=n_resamples, ci_level=ci_level, rng=rng
    ).table[["kappa", "kappa_low", "kappa_high"]]
    kappa, kappa_low, kappa_high = (_number(value) for value in chance.iloc[0])
    reliability, reliability_low, reliability_high = _reliability(
        own_votes, n_resamples, ci_level, rng
    )
    own = rates.loc[judge].astype(float).to_dict()
    names = rates.loc["author_only"].astype(float).to_dict()
    return CalibrationRecord(
        judge=judge,
        dimension=dimension,
        bound_to=digests,
        made_on=(made_on or datetime.date.today()).isoformat(),
        valid_days=valid_days,
        labels_from=labels_from,
        n_labels=len(both),
        n_people=int(both["rater"].nunique()),
        n_dialogues=int(both["dialogue_id"].nunique()),
        n_decided=len(decided),
        agreement=own["agreement"],
        agreement_low=own["agreement_low"],
        agreement_high=own["agreement_high"],
        kappa=kappa,
        kappa_low=kappa_low,
        kappa_high=kappa_high,
        lead=names["lead"],
        lead_low=names["lead_low"],
        lead_high=names["lead_high"],
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
    )


def load_calibration(path: str | os.PathLike[str]) -> CalibrationRecord:
    """Read a record that ``CalibrationRecord.save`` wrote, and refuse one that was changed since.

    Parameters
    ----------
    path : str or path
        The JSON file.

    Returns
    -------
    CalibrationRecord

    Raises
    ------
    CalibrationError
        If the file is no record of this format, or its content does not fit its digest.

    Examples
    --------
    >>> load_calibration("nowhere.json")
    Traceback (most recent call last):
    heart_utils.judging.calibration.CalibrationError: nowhere.json cannot be read ...
    """
    content = read_sealed(path, FORMAT, CalibrationError, "calibrate again")
    del content["format"]
    record: CalibrationRecord = read_strictly(CalibrationRecord, content, path, CalibrationError)
    return record


def judge_identity(run: str, judge: str, *, protocol: str = "heart") -> JsonObject:
    """Describe a judge of a run: its model, prompt, rubric and options.

    Parameters
    ----------
    run : str
        A run with ``params/<run>.yaml``.
    judge : str
        Its name there.
    protocol : str
        How it is asked.

    Returns
    -------
    dict
        ``model``, ``prompt`` (a hash of all that it is told beside the conversation), ``rubric``
        and ``options``.

    Raises
    ------
    CalibrationError
        If the run has no such judge.

    Examples
    --------
    >>> sorted(judge_identity("sample", "SmolLM2-135M-judge"))
    ['model', 'options', 'prompt', 'rubric']
    """
    # Late: what calls models is an extra, and a gate on files does without it.
    from heart_utils.judging.prompts import load_protocol, load_rubric, prompt_hash
    from heart_utils.judging.recipe import read_recipe

    recipe = read_recipe(run)
    judges = {model.name: model for model in recipe.judges}
    if judge not in judges:
        raise CalibrationError(
            f"The run {run!r} has no judge {judge!r}; there are {', '.join(judges) or 'none'}."
        )
    if protocol not in recipe.protocols:
        raise CalibrationError(
            f"The run {run!r} does not ask by {protocol!r}; it asks by"
            f" {', '.join(recipe.protocols)}."
        )
    model, settings = judges[judge], load_protocol(protocol)
    rubric = load_rubric(settings.rubric)
    lines = recipe.protocols[protocol]
    rubric = rubric if lines is None else rubric.select(lines)
    return {
        "model": model.identity,
        "prompt": prompt_hash(settings, rubric, model.answer_format),
        "rubric": {"name": settings.rubric, "lines": [line.name for line in rubric.dimensions]},
        "options": dict(model.options),
    }


def _digests(bound_to: Mapping[str, Any]) -> dict[str, str]:
    missing = [part for part in PARTS if part not in bound_to or bound_to[part] in (None, "")]
    unknown = [str(part) for part in bound_to if part not in PARTS]
    if missing or unknown:
        faults = [
            f"{verb} {', '.join(parts)}"
            for verb, parts in (("lacks", missing), ("has unknown", unknown))
            if parts
        ]
        raise CalibrationError(
            f"bound_to {' and '.join(faults)}; a judge is its {', '.join(PARTS)}."
        )
    return {part: content_digest({part: bound_to[part]}) for part in PARTS}


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
    """Join each person's decided vote with the judge's on the same pair.

    Name the responder whom the judge preferred.
    """
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


def _error_rates(decided: pd.DataFrame, side: str) -> dict[str, float]:
    """Compute how often the person says the opposite, for each responder on that side.

    The side is that of the judge's answer.
    """
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


def cost_in_hours(n_labels: int) -> str:
    """Describe what so many labels cost people."""
    hours = n_labels * MINUTES_A_LABEL / 60.0
    return (
        f"{n_labels} labels cost people about {hours:.1f} hours, at {MINUTES_A_LABEL:g} minutes"
        " each."
    )
