"""What a judge's record says of it in words, for whoever prints its verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

__all__ = ["NOT_CALIBRATED", "Record", "words_of_record"]

NOT_CALIBRATED = "not calibrated"


class Record(Protocol):
    """What is read of a :class:`heart_utils.report.calibration.CalibrationRecord`."""

    @property
    def judge(self) -> str:
        """The judge's name, as in the column ``rater``."""

    @property
    def dimension(self) -> str:
        """The line of the rubric."""

    def describe(self) -> str:
        """Return lead, labels, date and expiry in words."""


def words_of_record(records: Sequence[Record], judge: str, *, dimension: str | None = None) -> str:
    """Return what records say of a judge, or that it is not calibrated.

    Parameters
    ----------
    records : sequence of Record
        Of any judges.
    judge : str
        The judge's name.
    dimension : str, optional
        A line of the rubric; by default all that the judge has a record for, each named.

    Returns
    -------
    str

    Examples
    --------
    >>> words_of_record([], "gpt-4")
    'not calibrated'
    """
    own = [
        record
        for record in records
        if record.judge == judge and dimension in (None, record.dimension)
    ]
    if dimension is None:
        descriptions = [f"{record.dimension}: {record.describe()}" for record in own]
    else:
        descriptions = [record.describe() for record in own]
    return "; ".join(descriptions) or NOT_CALIBRATED
