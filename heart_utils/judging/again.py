"""The same pairs put to a judge again: once more, in other words, and with dimensions together and apart.

What comes back says how steady a judge is. It is no part of a run's verdicts, so that boards rest on each
question once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pandas as pd

from heart_utils.calls.models import Model
from heart_utils.judging.blinding import JudgeError
from heart_utils.judging.design import seeded

if TYPE_CHECKING:
    from heart_utils.calls.ledger import Ledger

__all__ = ["ARMS", "PROTOCOL", "Arm"]

PROTOCOL = "heart"
"""Whose comparisons are asked about again."""


@dataclass(frozen=True)
class Arm:
    """One way of asking again.

    Attributes
    ----------
    name, about : str
        What it is called, and what is done, in words.
    protocol : str
        Under which the pairs are shown.
    repeats : int
        How often.
    together : bool
        Whether it asks about several dimensions, in JSON; otherwise about those of the run, in the judge's own format.
    """

    name: str
    about: str
    protocol: str
    repeats: int = 1
    together: bool = False


ARMS = (
    Arm("once more", "the same question, asked a second time", "heart", repeats=2),
    Arm("other words", "the rules said in other words", "heart-reworded"),
    Arm("all at once", "several dimensions in one call", "heart", together=True),
    Arm("one a call", "the same dimensions, one a call", "heart-single", together=True),
)


def ask_again(
    histories: pd.DataFrame,
    replies: pd.DataFrame,
    comparisons: pd.DataFrame,
    judges: Sequence[Model],
    *,
    ledger: Ledger,
    n_pairs: int,
    dimensions: Sequence[str] | None = None,
    several: Sequence[str] | None = None,
    seed: int = 0,
    plan: bool = False,
    **how: Any,
) -> pd.DataFrame:
    """Ask judges about some pairs again, in every arm of :data:`ARMS`."""
    from heart_utils.judging.judge import collect_verdicts, plan_verdicts

    chosen = _choose(comparisons, n_pairs, seed)
    several = dimensions if several is None else several
    if several is not None and len(several) < 2:
        raise JudgeError(f"Asking about {', '.join(several)} together and apart is the same; name two dimensions or more.")
    step, tables = plan_verdicts if plan else collect_verdicts, []
    for arm in ARMS:
        asked: dict[str, Any] = {"dimensions": several if arm.together else dimensions, "repeats": arm.repeats, "seed": seed}
        panel = [replace(judge, answer_format="json") if arm.together else judge for judge in judges]
        shown = chosen.assign(protocol=arm.protocol)
        tables.append(step(histories, replies, shown, panel, ledger=ledger, **asked, **how))
    made = pd.concat(tables, ignore_index=True)
    key = ["comparison_id", "rater", "dimension", "protocol", "answer_format", "repeat"]
    return made if plan else made.drop_duplicates(key, ignore_index=True)  # a judge in JSON meets one arm's calls in another


def _choose(comparisons: pd.DataFrame, n_pairs: int, seed: int) -> pd.DataFrame:
    """Take one pair of each of so many histories, in every order in which it was shown."""
    theirs = comparisons[comparisons["protocol"] == PROTOCOL]
    histories = sorted(theirs["history_id"].unique())
    if n_pairs > len(histories):
        raise JudgeError(
            f"{n_pairs} pairs were to be asked about again, one a history, and {len(histories)} histories have comparisons "
            f"under the protocol {PROTOCOL!r}: set `asked_again: {len(histories)}` in the run's settings, or name that "
            f"protocol there."
        )
    spread = [histories[place * len(histories) // n_pairs] for place in range(n_pairs)]
    met = theirs[theirs["history_id"].isin(spread)].drop_duplicates("pair_id")
    luck = met["pair_id"].map(lambda pair_id: seeded(seed, pair_id, "again").random())
    return theirs[theirs["pair_id"].isin(met.loc[luck.groupby(met["history_id"]).idxmin(), "pair_id"])]
