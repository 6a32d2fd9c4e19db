"""Records of how well a judge agrees with people, and what they let a gate decide.

Each is bound to the judge's model, prompt, rubric and options.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from heart_utils.agreement.prediction_powered import prediction_powered_ratings

# a new name there would draw all kept simulations of the gate anew
from heart_utils.gate import (
    DEFAULT_RULE,
    Comparison,
    GateError,
    GateRule,
    comparable_parts,
    count_rows,
    decide_drops,
    find_fault,
)
from heart_utils.ratings.ratings import POINTS
from heart_utils.ratings.verdicts import is_simulated
from heart_utils.runs import content_digest, open_run, read_sealed, write_sealed
from heart_utils.settings import JsonObject, read_strictly, read_yaml

__all__ = [
    "CalibrationError",
    "CalibrationRecord",
    "load_calibration",
]

PARTS = ("model", "prompt", "rubric", "options")
FORMAT = "heart-calibration-2"
LEAST_LABELS = 100
MINUTES_A_LABEL = 2.0  #: What one label costs a person, where a message reckons hours.
SIDES = ["responder_a", "responder_b"]
UNDECIDED = (
    ". The judge is not shown to be fit to decide: this is a report, and neither a pass nor a"
    " failure."
)


class CalibrationError(ValueError):
    """A judge cannot be calibrated on these votes, or a record read."""


@dataclass(frozen=True)
class CalibrationRecord:
    """How one judge agrees with people on one dimension.

    Shares count pairs of decided votes: a judge's and a person's. ``agreement``, ``kappa`` (0 by
    chance) and ``lead`` (over a guess from the authors' names) have ends ``_low`` and ``_high`` at
    ``ci_level``. What could not be measured is None.
    """

    judge: str
    dimension: str
    bound_to: dict[str, str]  #: Part (model, prompt, rubric, options) -> its digest.
    made_on: str  #: The day, as 2026-01-31.
    valid_days: int | None  #: After so many days it is out of date; None: never by age.
    labels_from: str  #: Who the people are and where their votes come from, in words.
    n_labels: int  #: Votes by people on pairs that the judge answered.
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
    #: (:func:`~heart_utils.judges.position.repeat_reliability`).
    reliability: float | None
    reliability_low: float | None
    reliability_high: float | None
    simulated: bool
    n_people: int  #: People who gave those labels: agreement and lead are over these, too.

    def faults(
        self,
        *,
        bound_to: Mapping[str, Any] | None = None,
        today: datetime.date | None = None,
        least_lead: float = 0.0,
        least_labels: int = LEAST_LABELS,
    ) -> list[str]:
        """List why the judge must not decide, with people's hours; empty if it may.

        Parameters
        ----------
        bound_to
            What the judge is now, as from ``Recipe.identity_of``.
        today
            By default the present day.
        least_lead
            The lead's lower end must lie above this.
        least_labels
            Least votes by people.

        Returns
        -------
        list of str
        """
        faults = []
        who = f"The calibration of {self.judge!r} on {self.dimension!r}"
        again = cost_in_hours(least_labels)
        if bound_to is None:
            faults.append(
                f"{who} cannot be checked: nothing says which model, prompt, rubric and options"
                " judge now."
            )
        elif changed := self._changed(bound_to):
            faults.append(f"{who} has expired: {' and '.join(changed)} changed. {again}")
        age = ((today or datetime.date.today()) - datetime.date.fromisoformat(self.made_on)).days
        if age < 0:
            faults.append(
                f"{who} was made on {self.made_on}, which is still to come: correct the date of"
                " this machine or of it."
            )
        if self.valid_days is not None and age > self.valid_days:
            faults.append(
                f"{who} has expired: it is {age} days old, {self.valid_days} are allowed. {again}"
            )
        if self.n_labels < least_labels:
            faults.append(
                f"{who} rests on {self.n_labels} labels by people; {least_labels} are asked for."
                f" {cost_in_hours(least_labels - self.n_labels)}"
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
        bound_to, today
            As in :meth:`faults`; a changed part comes first.

        Returns
        -------
        str
        """
        changed = [] if bound_to is None else self._changed(bound_to)
        last = self.last_day
        over = last is not None and (today or datetime.date.today()) > last
        expired = "expired; " if over else ""
        if changed:
            expired = f"expired: {' and '.join(changed)} changed; "
        labels = "SIMULATED labels" if self.simulated else "labels by people"
        end = "no date of expiry" if last is None else f"valid until {last.isoformat()}"
        return (
            f"{expired}lead {self.lead:+.3f} [{self.lead_low:+.3f}, {self.lead_high:+.3f}],"
            f" {self.n_labels} {labels}, {self.n_people} in all ({self.labels_from}),"
            f" made on {self.made_on}, {end}"
        )

    @property
    def last_day(self) -> datetime.date | None:
        """The last day before it is too old; None if it never is."""
        if self.valid_days is None:
            return None
        return datetime.date.fromisoformat(self.made_on) + datetime.timedelta(self.valid_days)

    def _changed(self, bound_to: Mapping[str, Any]) -> list[str]:
        now = digest_parts(bound_to)
        return [part for part in PARTS if now[part] != self.bound_to[part]]

    def _labels_for(self, above: float, half: float) -> str:
        """Estimate how many labels would show a lead above a limit."""
        if not above > 0:
            return (
                "More labels would not change that if it is as it was found: use another judge,"
                " prompt or rubric."
            )
        needed = int(np.ceil(self.n_labels * (half / above) ** 2))
        missing = max(needed - self.n_labels, 1)
        return (
            f"If it is as it was found, about {needed} labels by people other than these"
            f" {self.n_people} too would show it."
            f" {cost_in_hours(missing)}"
        )

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write it as JSON with a digest of its content, whole or not at all."""
        content = {"format": FORMAT, **asdict(self)}
        return write_sealed(path, content, indent=2)


def load_calibration(path: str | os.PathLike[str]) -> CalibrationRecord:
    """Read a record that ``CalibrationRecord.save`` wrote, unless changed since.

    Parameters
    ----------
    path
        The JSON file.

    Returns
    -------
    CalibrationRecord

    Raises
    ------
    CalibrationError
        If it is no such record.

    Examples
    --------
    >>> load_calibration("nowhere.json")
    Traceback (most recent call last):
    heart_utils.report.calibration.CalibrationError: nowhere.json cannot be read ...
    """
    content = read_sealed(path, FORMAT, CalibrationError, "calibrate again")
    del content["format"]
    record: CalibrationRecord = read_strictly(CalibrationRecord, content, path, CalibrationError)
    return record


def digest_parts(bound_to: Mapping[str, Any]) -> dict[str, str]:
    given = {part for part, value in bound_to.items() if value not in (None, "")}
    lacks, unknown = (", ".join(sorted(of)) for of in (set(PARTS) - given, given - set(PARTS)))
    if lacks or unknown:
        raise CalibrationError(
            f"bound_to lacks {lacks or 'nothing'} and has unknown {unknown or 'nothing'}; a judge"
            f" is its {', '.join(PARTS)}."
        )
    return {part: content_digest({part: bound_to[part]}) for part in PARTS}


def cost_in_hours(n_labels: int) -> str:
    hours = n_labels * MINUTES_A_LABEL / 60.0
    return (
        f"{n_labels} labels cost people about {hours:.1f} hours, at {MINUTES_A_LABEL:g} minutes"
        " each."
    )


@dataclass(frozen=True)
class CalibratedJudges:
    faults: tuple[str, ...]  #: Why they may not decide; empty if they may.
    #: Least share of a difference among people's votes that shows in a judge's, the lower end of
    #: its interval. It is known of the responders that the records met.
    discernment: float
    note: str  #: What the gate's limits become, in a sentence.


def check_calibration(
    verdicts: pd.DataFrame,
    records: Sequence[Path],
    *,
    run: str | None,
    judges: Path | None,
    least_lead: float,
    least_labels: int,
    dimensions: Sequence[str] | None = None,
    today: datetime.date | None = None,
) -> CalibratedJudges:
    """Check that each judge has a fitting record for each dimension, and has not changed since.

    What a judge is now stands in the manifest of `run`, or in the YAML file `judges` (name ->
    ``model``, ``prompt``, ``rubric``, ``options``). Raises where a file cannot be read, or a judge
    and dimension have two records.
    """
    known = _by_judge([load_calibration(path) for path in records])
    identities = {} if judges is None else read_yaml(judges, dict[str, JsonObject], GateError)
    rows = verdicts if dimensions is None else verdicts[verdicts["dimension"].isin(dimensions)]
    questions = rows[["rater", "dimension", "protocol"]].drop_duplicates()
    questions = questions.sort_values(["rater", "dimension"])
    noted = {} if run is None else open_run(run).manifest.get("judges", {})
    faults: list[str] = []
    weakest, unmet = 1.0, set[str]()
    for judge, dimension, protocol in questions.astype(str).to_numpy():
        record = known.get((judge, dimension))
        if record is None:
            faults.append(
                f"{judge!r} has no calibration on {dimension!r}: `calibrate_judge` makes one from"
                f" people's votes. {cost_in_hours(least_labels)}"
            )
            continue
        identity = identities.get(judge) or noted.get(judge, {}).get(protocol)
        if identity is None:
            faults.append(
                f"Nothing says what {judge!r} is now: name its model, prompt, rubric and options in"
                " a YAML file, as --judges FILE, or run `make collect` once more, which notes them"
                " in the run."
            )
            continue
        record_faults = record.faults(
            bound_to=identity, today=today, least_lead=least_lead, least_labels=least_labels
        )
        if record.simulated and not is_simulated(verdicts):
            record_faults.append(
                f"The calibration of {judge!r} on {dimension!r} rests on labels drawn by a program,"
                f" and these verdicts do not: ask people. {cost_in_hours(least_labels)}"
            )
        faults += record_faults
        weakest = min(weakest, 2.0 * record.agreement_low - 1.0)
        asked = rows[(rows["rater"] == judge) & (rows["dimension"] == dimension)]
        unmet |= {*asked["responder_a"], *asked["responder_b"]} - {*record.wrongly_preferred}
    note = "" if faults else _note(weakest, sorted(unmet))
    return CalibratedJudges(tuple(faults), max(weakest, 0.0), note)


def decide_nothing(comparison: Comparison, faults: Sequence[str]) -> Comparison:
    """Return it with every outcome ``"cannot tell"``, and why."""
    reasons = f"{UNDECIDED} {' '.join(faults)}"
    table = comparison.table.assign(
        outcome="cannot tell", message=comparison.table["message"].str.rstrip(".") + reasons
    )
    return replace(comparison, table=table)


def compare_powered(
    judged: pd.DataFrame,
    people: pd.DataFrame,
    *,
    baseline: str,
    candidate: str,
    rule: GateRule = DEFAULT_RULE,
    dimensions: Sequence[str] | None = None,
) -> Comparison:
    """Test the drop as people would see it, from judges' verdicts corrected by people's.

    Both come with orders combined, people's on a random draw of the judges' dialogues. The judge's
    tastes cancel (:func:`~heart_utils.agreement.prediction_powered.prediction_powered_ratings`).
    """
    drops = powered_drops(
        judged, people, baseline=baseline, candidate=candidate, dimensions=dimensions
    )
    limit = rule.max_inconsistent
    drops["fault"] = [
        find_fault(judged[judged["dimension"] == name], baseline, candidate, limit)
        or find_fault(people[people["dimension"] == name], baseline, candidate, limit)
        for name in drops["dimension"]
    ]
    table = decide_drops(drops, rule)
    sentences = [_by_people(row, people, judged, rule) for row in table.to_dict("records")]
    table["message"] = table["message"].str.rstrip(".") + sentences
    return Comparison(
        table, pd.DataFrame(), baseline, candidate, rule.mode, rule.max_drop, rule.alpha
    )


def powered_drops(
    judged: pd.DataFrame,
    people: pd.DataFrame,
    *,
    baseline: str,
    candidate: str,
    dimensions: Sequence[str] | None = None,
) -> pd.DataFrame:
    """Estimate the drop people would see, by dimension, with its standard error."""
    rows = []
    for part in comparable_parts(judged, baseline, candidate, dimensions):
        dimension = part["dimension"].iloc[0]
        theirs = people[people["dimension"] == dimension]
        theirs = theirs[theirs[SIDES].isin({*part[SIDES].to_numpy().flat}).all(axis=1)]
        for name in (baseline, candidate):
            if not theirs[SIDES].eq(name).to_numpy().any():
                met = ", ".join(sorted({*people[SIDES].to_numpy().flat}))
                raise GateError(
                    f"People's votes on {dimension!r} hold none on {name!r}; they are on"
                    f" {met or 'nobody'}. Both baseline and candidate must be judged"
                    " by people, on a part of the judges' dialogues."
                )
        powered = prediction_powered_ratings(
            pd.concat([part, theirs], ignore_index=True), dimension=dimension
        )
        strength = powered.table.set_index("responder")["strength"]
        both = powered.covariances[0].loc[[baseline, candidate], [baseline, candidate]].to_numpy()
        drop = POINTS * float(strength[baseline] - strength[candidate])
        se = POINTS * float(np.sqrt(both[0, 0] + both[1, 1] - both[0, 1] - both[1, 0]))
        rows.append(count_rows(part) | {"drop": drop, "se": se, "n_dialogues": powered.n_labelled})
    return pd.DataFrame(rows)


def _by_people(
    row: Mapping[Hashable, Any],
    people: pd.DataFrame,
    judged: pd.DataFrame,
    rule: GateRule,
) -> str:
    votes = people[people["dimension"] == row["dimension"]]
    n_judged = judged.loc[judged["dimension"] == row["dimension"], "dialogue_id"].nunique()
    rests = (
        f"; the interval rests on {len(votes)} votes by people on {row['n_dialogues']} of"
        f" {n_judged} dialogues"
    )
    if (
        row["outcome"] != "cannot tell"
        or rule.mode != "regression"
        or not row["detectable"] > rule.max_detectable
    ):
        return rests
    missing = int(np.ceil(len(votes) * ((row["detectable"] / rule.max_detectable) ** 2 - 1.0)))
    return f"{rests}. About {missing} more are missing. {cost_in_hours(missing)}"


def _by_judge(records: Sequence[CalibrationRecord]) -> Mapping[tuple[str, str], CalibrationRecord]:
    known: dict[tuple[str, str], CalibrationRecord] = {}
    for record in records:
        if known.setdefault((record.judge, record.dimension), record) is not record:
            raise GateError(
                f"Two records are for {record.judge!r} on {record.dimension!r}; give the one that"
                " counts."
            )
    return known


def _note(discernment: float, unmet: Sequence[str]) -> str:
    known = "the responders that its record knows" if unmet else "these responders"
    note = (
        f" On {known}, the judge passes on at least {discernment:.2f} of a difference among"
        " people's votes, so the limits of this gate, which are meant for people, are multiplied by"
        " that."
    )
    if not unmet:
        return note
    return (
        f"{note} Its record never met {', '.join(unmet)}: nothing shows what the judge passes on"
        " there, and this result may be the judge's taste. --people corrects it by people's votes."
    )
