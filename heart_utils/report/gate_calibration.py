"""Calibration of the gate's judge: without a fitting record the gate decides nothing."""

from __future__ import annotations

import datetime
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
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
from heart_utils.report.records import (
    LEAST_LABELS,
    CalibrationRecord,
    cost_in_hours,
    load_calibration,
)
from heart_utils.runs import open_run
from heart_utils.settings import JsonObject, read_yaml

__all__ = [
    "LEAST_LABELS",
    "CalibratedJudges",
    "check_calibration",
    "compare_powered",
    "decide_nothing",
]

UNDECIDED = (
    ". The judge is not shown to be fit to decide: this is a report, and neither a pass nor a"
    " failure."
)


@dataclass(frozen=True)
class CalibratedJudges:
    """What records say of the judges of a gate."""

    faults: tuple[str, ...]  #: Why they may not decide; empty if they may.
    discernment: (
        #: Least share of a difference among people's votes that shows in a judge's, the lower end
        #: of its interval. It is known of the responders that the records met.
        float
    )
    unmet: tuple[str, ...]  #: Responders of the gate that a record never met.
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
    """Check that each judge has a fitting and sufficient record for each dimension.

    A record fits if the judge has not changed since.

    Parameters
    ----------
    verdicts : pandas.DataFrame
        What the gate compares; its judges are the raters.
    records : sequence of pathlib.Path
        Files that ``CalibrationRecord.save`` wrote.
    run : str, optional
        The run that the verdicts come from, whose manifest says what its judges are.
    judges : pathlib.Path, optional
        A YAML file that says it where votes come from a file: a judge's name -> ``model``,
        ``prompt``, ``rubric``, ``options``.
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
    GateError, heart_collect.judging.calibration.CalibrationError
        If a file cannot be read, or two records are for one judge and dimension.

    Examples
    --------
    >>> votes = pd.DataFrame({"rater": ["judge"], "dimension": "overall", "protocol": "heart"})
    >>> check_calibration(votes, [], run=None, judges=None, least_lead=0.0, least_labels=100).faults
    ... # doctest: +NORMALIZE_WHITESPACE
    ("'judge' has no calibration on 'overall': `calibrate_judge` makes one from people's votes. 100
    labels cost people about 3.3 hours, at 2 minutes each.",)
    """
    known = _by_judge([load_calibration(path) for path in records])
    identities = {} if judges is None else read_yaml(judges, dict[str, JsonObject], GateError)
    rows = verdicts if dimensions is None else verdicts[verdicts["dimension"].isin(dimensions)]
    questions = (
        rows[["rater", "dimension", "protocol"]]
        .drop_duplicates()
        .sort_values(["rater", "dimension"])
    )
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
        identity = identities.get(judge)
        if identity is None and run is not None:
            noted = open_run(run).manifest.get("judges", {})
            identity = noted.get(judge, {}).get(protocol)
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
    names = tuple(sorted(unmet))
    note = "" if faults else _note(weakest, names)
    return CalibratedJudges(tuple(faults), max(weakest, 0.0), names, note)


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
    >>> duels = {
    ...     "dialogue_id": ["d1", "d2"],
    ...     "responder_a": "new",
    ...     "responder_b": "old",
    ...     "verdict": "b",
    ...     "state": "valid",
    ... }
    >>> found = compare_anytime(
    ...     pd.DataFrame({**duels, "dimension": "overall"}), baseline="old", candidate="new"
    ... )
    >>> decide_nothing(found, ["It has no record."]).outcome
    'cannot tell'
    """
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

    Judges saw all dialogues, people a part of them.

    Whatever the judge rewards cancels, since it enters by the difference between the dialogues that
    people judged and all: see
    :func:`~heart_utils.agreement.prediction_powered.prediction_powered_ratings`. A judge's error
    rates from another study correct only if it errs alike on this candidate, and people's single
    votes are no standard without error: in simulated studies such an interval (Rogan-Gladen) held
    too rarely (``make bench NAME=calibrated``).

    Parameters
    ----------
    judged : pandas.DataFrame
        The judges' verdicts, orders combined.
    people : pandas.DataFrame
        People's verdicts on some of these dialogues, drawn at random, orders combined.
    baseline, candidate : str
        The two responders.
    rule, dimensions
        As in :func:`~heart_utils.gate.compare_responders`.

    Returns
    -------
    Comparison
        ``n_dialogues`` counts those that people judged.

    Raises
    ------
    GateError, heart_utils.ratings.verdicts.AgreementError
        If people did not judge both, or judged fewer than five dialogues or dialogues that the
        judges did not.

    Examples
    --------
    >>> from heart_utils import Panel, simulate_study
    >>> panels = [Panel("human", 5, 1), Panel("model", 1, 1)]
    >>> study = simulate_study(
    ...     rng=np.random.default_rng(1), strengths=3, n_dialogues=60, pairs="all", panels=panels
    ... )
    >>> judged, people = (
    ...     study.verdicts[study.verdicts["rater_kind"] == kind] for kind in ("model", "human")
    ... )
    >>> people = people[people["dialogue_id"].isin(people["dialogue_id"].unique()[:20])]
    >>> old, new = sorted(judged["responder_a"].unique())[:2]
    >>> compare_powered(judged, people, baseline=old, candidate=new).table["n_dialogues"].item()
    20
    """
    drops = powered_drops(
        judged, people, baseline=baseline, candidate=candidate, dimensions=dimensions
    )
    drops["fault"] = [
        next(
            filter(
                None,
                (
                    find_fault(
                        rows[rows["dimension"] == name], baseline, candidate, rule.max_inconsistent
                    )
                    for rows in (judged, people)
                ),
            ),
            "",
        )
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
    """Estimate the drop as people would see it, a row a dimension, with its standard error."""
    rows = []
    for part in comparable_parts(judged, baseline, candidate, dimensions):
        dimension = part["dimension"].iloc[0]
        responders = {*part["responder_a"], *part["responder_b"]}
        theirs = people[people["dimension"] == dimension]
        theirs = theirs[
            theirs["responder_a"].isin(responders) & theirs["responder_b"].isin(responders)
        ]
        for name in (baseline, candidate):
            if name not in {*theirs["responder_a"], *theirs["responder_b"]}:
                judged_by_people = ", ".join(
                    sorted({*people["responder_a"], *people["responder_b"]})
                )
                raise GateError(
                    f"People's votes on {dimension!r} hold none on {name!r}; they are on"
                    f" {judged_by_people or 'nobody'}. Both baseline and candidate must be judged"
                    " by people, on a part of the judges' dialogues."
                )
        powered = prediction_powered_ratings(
            pd.concat([part, theirs], ignore_index=True), dimension=dimension
        )
        strength = powered.table.set_index("responder")["strength"]
        covariance = (
            powered.covariances[0].loc[[baseline, candidate], [baseline, candidate]].to_numpy()
        )
        contrast = np.array([1.0, -1.0])
        drop = POINTS * float(strength[baseline] - strength[candidate])
        se = POINTS * float(np.sqrt(contrast @ covariance @ contrast))
        rows.append(count_rows(part) | {"drop": drop, "se": se, "n_dialogues": powered.n_labelled})
    return pd.DataFrame(rows)


def _by_people(
    row: Mapping[Hashable, Any],
    people: pd.DataFrame,
    judged: pd.DataFrame,
    rule: GateRule,
) -> str:
    """Describe how many of people's votes a drop rests on, and the cost of more if too few."""
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
        key = (record.judge, record.dimension)
        if key in known:
            raise GateError(
                f"Two records are for {record.judge!r} on {record.dimension!r}; give the one that"
                " counts."
            )
        known[key] = record
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
