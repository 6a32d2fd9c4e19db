"""A gate that knows its judge: without a record that fits the judge as it is now, the gate reports and decides nothing."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from heart_utils.gate import Comparison, GateError
from heart_utils.judging.calibration import LEAST_LABELS, CalibrationRecord, judge_identity, load_calibration
from heart_utils.settings import read_yaml

__all__ = ["LEAST_LABELS", "CalibratedJudges", "check_calibration", "decide_nothing"]

UNDECIDED = " The judge is not shown to be fit to decide: this is a report, and neither a pass nor a failure."


@dataclass(frozen=True)
class CalibratedJudges:
    """What records say of the judges of a gate."""

    faults: tuple[str, ...]  #: Why they may not decide; empty if they may.
    discernment: (
        float  #: Least share of a difference among people's votes that shows in a judge's, the lower end of its interval.
    )
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
    """Check that each judge has a record for each dimension compared, that the record fits the judge, and that it is enough.

    Parameters
    ----------
    verdicts : pandas.DataFrame
        What the gate compares; its judges are the raters.
    records : sequence of pathlib.Path
        Files that ``CalibrationRecord.save`` wrote.
    run : str, optional
        The run that the verdicts come from, whose settings say what its judges are now.
    judges : pathlib.Path, optional
        A YAML file that says it where votes come from a file: a judge's name -> ``model``, ``prompt``, ``rubric``,
        ``options``.
    least_lead, least_labels : float, int
        As in ``CalibrationRecord.faults``.
    dimensions : sequence of str, optional
        Lines of the rubric; all of the verdicts by default.
    today : datetime.date, optional
        The day on which this runs, by default.

    Returns
    -------
    CalibratedJudges

    Raises
    ------
    GateError, heart_utils.judging.calibration.CalibrationError
        If a file cannot be read, or two records are for one judge and dimension.

    Examples
    --------
    >>> votes = pd.DataFrame({"rater": ["judge"], "dimension": "overall", "protocol": "heart"})
    >>> check_calibration(votes, [], run=None, judges=None, least_lead=0.0, least_labels=100).faults
    ("'judge' has no calibration on 'overall': `calibrate_judge` makes one from people's votes.",)
    """
    known = _by_judge([load_calibration(path) for path in records])
    told = {} if judges is None else read_yaml(judges, dict[str, dict[str, Any]], GateError)
    rows = verdicts if dimensions is None else verdicts[verdicts["dimension"].isin(dimensions)]
    asked = rows[["rater", "dimension", "protocol"]].drop_duplicates().sort_values(["rater", "dimension"])
    faults: list[str] = []
    weakest = 1.0
    for judge, dimension, protocol in asked.astype(str).to_numpy():
        record = known.get((judge, dimension))
        if record is None:
            faults.append(f"{judge!r} has no calibration on {dimension!r}: `calibrate_judge` makes one from people's votes.")
            continue
        identity = told.get(judge)
        if identity is None and run is not None:
            identity = judge_identity(run, judge, protocol=protocol)
        if identity is None:
            faults.append(
                f"Nothing says what {judge!r} is now: name its model, prompt, rubric and options in a YAML file, "
                f"as --judges FILE."
            )
            continue
        found = record.faults(bound_to=identity, today=today, least_lead=least_lead, least_labels=least_labels)
        faults += found
        weakest = min(weakest, 2.0 * record.agreement_low - 1.0)
    note = "" if faults else _note(weakest)
    return CalibratedJudges(faults=tuple(faults), discernment=max(weakest, 0.0), note=note)


def decide_nothing(comparison: Comparison, faults: Sequence[str]) -> Comparison:
    """Return the comparison with every outcome ``"cannot tell"``, and the faults in its messages.

    Parameters
    ----------
    comparison : Comparison
        What the statistics found.
    faults : sequence of str
        Why the judge may not decide.

    Returns
    -------
    Comparison

    Examples
    --------
    >>> from heart_utils.gate import compare_anytime
    >>> duels = {"dialogue_id": ["d1", "d2"], "responder_a": "new", "responder_b": "old", "verdict": "b", "state": "valid"}
    >>> found = compare_anytime(pd.DataFrame({**duels, "dimension": "overall"}), baseline="old", candidate="new")
    >>> decide_nothing(found, ["It has no record."]).outcome
    'cannot tell'
    """
    reasons = f"{UNDECIDED} {' '.join(faults)}"
    table = comparison.table.assign(outcome="cannot tell", message=comparison.table["message"] + reasons)
    return replace(comparison, table=table)


def _by_judge(records: Sequence[CalibrationRecord]) -> Mapping[tuple[str, str], CalibrationRecord]:
    known: dict[tuple[str, str], CalibrationRecord] = {}
    for record in records:
        key = (record.judge, record.dimension)
        if key in known:
            raise GateError(f"Two records are for {record.judge!r} on {record.dimension!r}; give the one that counts.")
        known[key] = record
    return known


def _note(discernment: float) -> str:
    return (
        f" The judge passes on at least {discernment:.2f} of a difference among people's votes, so the limits of this gate, "
        f"which are meant for people, are multiplied by that."
    )
