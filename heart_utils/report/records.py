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

from heart_utils.runs import content_digest, read_sealed, write_sealed
from heart_utils.settings import read_strictly

__all__ = [
    "CalibrationError",
    "CalibrationRecord",
    "load_calibration",
]

PARTS = ("model", "prompt", "rubric", "options")
FORMAT = "heart-calibration-1"
OVER = "dialogues and people"
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
    of a guess from the authors' names) have ends ``_low`` and ``_high`` at ``ci_level``: over
    dialogues and people like these, and of ``kappa`` over dialogues. What could not be measured is
    None.
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
    #: (:func:`~heart_utils.judges.retest.repeat_reliability`).
    reliability: float | None
    reliability_low: float | None
    reliability_high: float | None
    simulated: bool
    n_people: int | None = None  #: People who gave those labels.
    #: What the ends of agreement and lead cover; a record that was made before does not say it.
    interval_over: str = "dialogues"

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
            ``Recipe.identity_of`` gives them.
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
        if self.interval_over != OVER or self.n_people is None:
            faults.append(
                f"{who} was made before people were counted: its interval is over dialogues alone,"
                f" and may rest on one person. {cost_in_hours(least_labels)}"
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
        counted = self.interval_over == OVER and self.n_people is not None
        people = f"{self.n_people} in all" if counted else "people not counted"
        end = "no date of expiry" if last is None else f"valid until {last.isoformat()}"
        return (
            f"{expired}lead {self.lead:+.3f} [{self.lead_low:+.3f}, {self.lead_high:+.3f}],"
            f" {self.n_labels} {labels}, {people} ({self.labels_from}), made on {self.made_on},"
            f" {end}"
        )

    @property
    def last_day(self) -> datetime.date | None:
        """The last day on which it is not too old; None if it never is."""
        if self.valid_days is None:
            return None
        return datetime.date.fromisoformat(self.made_on) + datetime.timedelta(self.valid_days)

    def _changed(self, bound_to: Mapping[str, Any]) -> list[str]:
        """Name the parts of the judge that are no longer what they were."""
        now = digest_parts(bound_to)
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
            f"If it is as it was found, about {needed} labels by people other than these"
            f" {self.n_people} too would show it."
            f" {cost_in_hours(missing)}"
        )

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the record as JSON with a digest of its content, whole or not at all."""
        content = {"format": FORMAT, **asdict(self)}
        return write_sealed(path, content, indent=2)


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
    heart_utils.report.records.CalibrationError: nowhere.json cannot be read ...
    """
    content = read_sealed(path, FORMAT, CalibrationError, "calibrate again")
    del content["format"]
    record: CalibrationRecord = read_strictly(CalibrationRecord, content, path, CalibrationError)
    return record


def digest_parts(bound_to: Mapping[str, Any]) -> dict[str, str]:
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


def cost_in_hours(n_labels: int) -> str:
    """Describe what so many labels cost people."""
    hours = n_labels * MINUTES_A_LABEL / 60.0
    return (
        f"{n_labels} labels cost people about {hours:.1f} hours, at {MINUTES_A_LABEL:g} minutes"
        " each."
    )
