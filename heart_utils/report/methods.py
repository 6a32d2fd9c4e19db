"""The paragraph of a paper's methods section on the verdicts of a run and a fit to them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pandas as pd

from heart_utils.judges.records import NOT_CALIBRATED
from heart_utils.ratings.verdicts import is_simulated
from heart_utils.replies.conversations import seekers_in_words
from heart_utils.report import WORDS, fill_page
from heart_utils.report.calibration import CalibrationRecord, load_calibration
from heart_utils.report.provenance import versions_in_words
from heart_utils.runs import Run, open_run

if TYPE_CHECKING:
    from heart_utils.ratings.ratings import Ratings

__all__ = ["methods"]


def methods(
    run: Run | str | os.PathLike[str],
    ratings: Ratings,
    *,
    records: Sequence[CalibrationRecord] | None = None,
    cards: pd.DataFrame | None = None,
) -> str:
    """Write the paragraph of a paper's methods section on the verdicts of a run and a fit to them.

    Parameters
    ----------
    run : Run or str
        A run with the table ``verdicts``, or its name or folder.
    ratings : Ratings
        What was fitted to these verdicts.
    records : sequence of CalibrationRecord, optional
        Of the judges; by default those in the run's folder ``calibration``. A judge without one is
        called "not calibrated".
    cards : pandas.DataFrame, optional
        Of the simulated seekers of a run of conversations, from
        :func:`~heart_utils.report.seekers.check_seekers`.

    Returns
    -------
    str
        What was recorded, citing keys of ``book/references.bib`` as ``[@key]``; who the raters were
        is yours to add.

    Examples
    --------
    >>> from heart_utils import fit_ratings, open_run
    >>> run = open_run("public")
    >>> methods(run, fit_ratings(run.read("verdicts"), n_resamples=0)).split(",")[0]
    '6 responders were compared on 160 histories (80 dialogues) by 65 people and 1 model judge
    (gpt-4)'
    """
    opened, settings = run if isinstance(run, Run) else open_run(run), ratings.settings
    rows = opened.read("verdicts")
    rows = rows[rows["dimension"] == settings["dimension"]]
    raters = rows.groupby("rater_kind")["rater"].unique()
    people, judges = (
        len(raters.get("human", ())),
        sorted({*raters.get("model", ()), *raters.get("trained", ())}),
    )
    if records is None:
        records = [
            load_calibration(file)
            for file in sorted((opened.folder / "calibration").glob("*.json"))
        ]
    calibration = {
        judge: _calibration_of(
            judge, settings["dimension"], records, opened, sorted(rows["protocol"].unique())
        )
        for judge in judges
    }
    counts = {
        "responders": len({*rows["responder_a"], *rows["responder_b"]}),
        "people": people,
        "verdicts": len(rows),
    }
    counts |= {
        "histories": rows["history_id"].nunique(),
        "dialogues": rows["dialogue_id"].nunique(),
    }
    counts |= {
        "entered": ratings.n_verdicts,
        "inconsistent": ratings.n_inconsistent,
        "simulated": int(rows["simulated"].sum()),
    }
    left_out = [(state, f"{count:,}") for state, count in ratings.left_out.items() if count]
    interval_sentence = ""
    if settings["population"] != "none" and settings["interval"] in WORDS["intervals"]:
        clusters = " and ".join(str(name).removesuffix("_id") + "s" for name in settings["cluster"])
        interval_sentence = WORDS["intervals"][settings["interval"]].format(
            n_resamples=settings["n_resamples"], clusters=clusters
        )
    values = {
        "fit": settings,
        "words": WORDS,
        "people": people,
        "judges": judges,
        "protocols": sorted(rows["protocol"].unique()),
    }
    values |= {
        "calibration": calibration,
        "seekers": seekers_in_words(str(settings["population"]), cards),
    }
    values |= {
        "n": {name: f"{count:,}" for name, count in counts.items()},
        "left_out": left_out,
        "how": interval_sentence,
    }
    values |= {
        "shown": rows.dropna(subset="order").groupby(["pair_id", "rater"])["order"].nunique(),
        "simulated": is_simulated(rows),
    }
    values |= {
        "provisional": ratings.table["provisional"].any(),
        "commit": opened.manifest.get("commit", "not recorded"),
    }
    return " ".join(fill_page("methods.txt", **values, versions=versions_in_words()).split())


def _calibration_of(
    judge: str,
    dimension: str,
    records: Sequence[CalibrationRecord],
    run: Run,
    protocols: Sequence[str],
) -> str:
    """Describe a judge's record, compared with what the run's manifest says of it."""
    own = [record for record in records if (record.judge, record.dimension) == (judge, dimension)]
    if not own:
        return NOT_CALIBRATED
    # votes from a file have no note that says what the judge is
    noted = run.manifest.get("judges", {}).get(judge, {})
    now = noted.get(protocols[0]) if len(protocols) == 1 else None
    return "; ".join(record.describe(bound_to=now) for record in own)
