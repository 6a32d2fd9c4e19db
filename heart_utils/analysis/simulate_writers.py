"""A simulated writing study: writers whose strengths are known, pooled as one responder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from heart_utils.analysis.simulate import Panel, simulate_study

__all__ = ["SimulatedWriters", "simulate_writers"]


@dataclass(frozen=True, eq=False)
class SimulatedWriters:
    """A simulated study in which several people write for the responder ``human``.

    Attributes
    ----------
    verdicts, comparisons, replies, responders : pandas.DataFrame
        As in :mod:`heart_utils.tables`, marked as simulated.
    truth : pandas.Series
        Writer (``human/writer-01``) -> strength less the mean strength of the models.
    """

    verdicts: pd.DataFrame = field(repr=False)
    comparisons: pd.DataFrame = field(repr=False)
    replies: pd.DataFrame = field(repr=False)
    responders: pd.DataFrame = field(repr=False)
    truth: pd.Series


def simulate_writers(
    models: Mapping[str, float],
    *,
    rng: np.random.Generator,
    average: float = 0.0,
    writer_sd: float = 0.5,
    n_writers: int = 12,
    writers_per_history: int = 3,
    n_dialogues: int = 100,
    votes: int = 3,
    dialogue_sd: float = 0.8,
) -> SimulatedWriters:
    """Draw a study in which some writers answer each history, and meet the models, never each other.

    Parameters
    ----------
    models : mapping of str to float
        Model -> strength.
    rng : numpy.random.Generator
        The source of chance.
    average, writer_sd : float
        Mean and standard deviation of the people from whom writers are drawn, in log-odds.
    n_writers, writers_per_history : int
        The pool, and how many of it write for each history.
    n_dialogues : int
        One history each.
    votes : int
        Raters a pair.
    dialogue_sd : float
        Standard deviation of replies about their writer's strength.

    Returns
    -------
    SimulatedWriters
        Writers take turns, so their loads differ by one at most.

    Raises
    ------
    ValueError
        If a history would need more writers than there are.

    Examples
    --------
    >>> study = simulate_writers({"m": 0.0, "n": 0.2}, rng=np.random.default_rng(1), n_dialogues=8, n_writers=4)
    >>> study.replies.groupby("responder").size().to_dict()
    {'human': 24, 'm': 8, 'n': 8}
    """
    if writers_per_history > n_writers:
        raise ValueError(f"{writers_per_history} writers a history need as many, and there are {n_writers}.")
    names = [f"human_{number + 1:02d}" for number in range(n_writers)]
    strengths = dict(zip(names, rng.normal(average, writer_sd, n_writers), strict=True)) | dict(models)
    study = simulate_study(
        rng=rng,
        strengths=strengths,
        n_dialogues=n_dialogues,
        pairs="all",
        panels=(Panel("human", max(20, votes), votes),),
        dialogue_sd=dialogue_sd,
    )
    order = rng.permutation(n_writers)
    histories = study.histories["history_id"].to_numpy()
    turns = np.arange(n_dialogues * writers_per_history).reshape(n_dialogues, writers_per_history) % n_writers
    writing = {(history, names[order[turn]]) for history, row in zip(histories, turns, strict=True) for turn in row}
    wrote = [
        responder in models or (history, responder) in writing
        for history, responder in zip(study.replies["history_id"], study.replies["responder"], strict=True)
    ]
    replies = study.replies[wrote]
    there = set(replies["reply_id"])
    comparisons = study.comparisons
    met = comparisons["reply_a"].isin(there) & comparisons["reply_b"].isin(there)
    both = comparisons["responder_a"].isin(names) & comparisons["responder_b"].isin(names)
    comparisons = comparisons[met & ~both]
    verdicts = study.verdicts[study.verdicts["comparison_id"].isin(comparisons["comparison_id"])]
    person = replies["responder"].isin(names)
    author = "writer-" + replies["responder"].str.removeprefix("human_")
    centre = float(np.mean(list(models.values())))
    responders = study.responders[~study.responders["responder"].isin(names[1:])]
    return SimulatedWriters(
        verdicts=_pool(verdicts, names),
        comparisons=_pool(comparisons, names),
        replies=replies.assign(author_id=author.where(person, None), responder=replies["responder"].mask(person, "human")),
        responders=responders.assign(responder=responders["responder"].replace(names[0], "human")),
        truth=pd.Series({f"human/writer-{name.removeprefix('human_')}": strengths[name] - centre for name in names}),
    )


def _pool(table: pd.DataFrame, names: list[str]) -> pd.DataFrame:
    sides = {side: table[side].mask(table[side].isin(names), "human") for side in ("responder_a", "responder_b")}
    return table.assign(**sides).reset_index(drop=True)
