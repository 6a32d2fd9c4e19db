"""What a judge rewards: position, own family, halo, and whether it says the same again."""

from collections.abc import Sequence
from typing import Protocol

NOT_CALIBRATED = "not calibrated"


class Record(Protocol):
    """What is read of a record of a judge's calibration."""

    @property
    def judge(self) -> str: ...  # noqa: D102

    @property
    def dimension(self) -> str: ...  # noqa: D102

    def describe(self) -> str: ...  # noqa: D102


def words_of_record(records: Sequence[Record], judge: str, *, dimension: str | None = None) -> str:
    """Return what records say of a judge, on one dimension or on each."""
    own = [record for record in records if record.judge == judge]
    if dimension is None:
        words = [f"{record.dimension}: {record.describe()}" for record in own]
    else:
        words = [record.describe() for record in own if record.dimension == dimension]
    return "; ".join(words) or NOT_CALIBRATED
