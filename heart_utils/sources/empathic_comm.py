"""200 supportive conversations rated by three experts, a crowd and three models."""

from __future__ import annotations

import os
from pathlib import Path

import pandas as pd

from heart_utils.sources.errors import DataError
from heart_utils.sources.fetch import find_data
from heart_utils.tables import check_table

__all__ = ["SETS"]

SETS: dict[str, tuple[str, int, int, tuple[str, ...]]] = {
    "empatheticdialogues": ("conv_id", 1, 5, ("empathy", "relevance", "fluency")),
    "epitome": ("sp_id", 0, 2, ("level_emotional_reactions", "level_explorations", "level_interpretations")),
    "lend_an_ear": (
        "conversation_id",
        1,
        5,
        (
            "validating_emotions",
            "encouraging_elaboration",
            "demonstrating_understanding",
            "advice_giving",
            "self_oriented",
            "dismissing_emotions",
        ),
    ),
    "perceived_empathy": (
        "id",
        1,
        7,
        (
            "m_understood",
            "m_validated",
            "m_affirmed",
            "m_seen",
            "m_accepted",
            "m_caredfor",
            "m_emotional",
            "m_practical",
            "m_motivation",
        ),
    ),
}
"""Set -> the column with its ids, lowest and highest score, and its dimensions (21 in all)."""

RATERS = {
    "expert1": ("expert1", "human"),
    "expert2": ("expert2", "human"),
    "expert3": ("expert3", "human"),
    "crowd": ("crowd", "human"),
    "gpt": ("gpt-4o", "model"),
    "gemini": ("gemini-2.5-pro", "model"),
    "claude": ("claude-3.7-sonnet", "model"),
}


def load_empathic_comm(*, mirror: str | os.PathLike[str] | None = None) -> pd.DataFrame:
    """Load the ratings: 50 conversations from each of four sets, 21 dimensions, seven raters."""
    files = find_data("empathic_comm", mirror=mirror)
    parts = []
    for name, (key, *_) in SETS.items():
        places = pd.read_csv(files[f"{name}__crowd_ratings.csv"], dtype={key: str})[key]
        histories = {id_: f"{name}-{place:03d}" for place, id_ in enumerate(places, 1)}
        parts += [_scores(files[f"{name}__{rater}_ratings.csv"], name, rater, histories) for rater in RATERS]
    scores = check_table("scores", pd.concat(parts, ignore_index=True))
    scores.attrs["notes"] = {"conversations": int(scores["history_id"].nunique()), "scores": len(scores)}
    return scores


def _scores(file: Path, name: str, rater: str, histories: dict[str, str]) -> pd.DataFrame:
    key, low, high, dimensions = SETS[name]
    table = pd.read_csv(file, dtype={key: str})
    missing = [column for column in (key, *dimensions) if column not in table]
    if missing:
        raise DataError(f"{file}: missing {', '.join(missing)}.")
    long = table.melt(key, value_vars=list(dimensions), var_name="dimension", value_name="score")
    outside = ~long["score"].between(low, high)
    if outside.any():
        raise DataError(f"{file}: {long.loc[outside, 'score'].iloc[0]} is no score from {low} to {high}.")
    history = long[key].map(histories)
    if history.isna().any():
        n_strange = int(history.isna().sum() / len(dimensions))
        raise DataError(f"{file}: it rates {n_strange} conversations that the crowd's file lacks.")
    who, kind = RATERS[rater]
    return pd.DataFrame(
        {
            "reply_id": history + f"--{name}-supporter",
            "history_id": history,
            "dialogue_id": history,
            "responder": f"{name}-supporter",
            "rater": who,
            "rater_kind": kind,
            "dimension": long["dimension"],
            "item": None,
            "score": long["score"],
            "state": "valid",
            "protocol": "likert",
            "group": name,
            "flags": [["aggregated"] if who == "crowd" else [] for _ in range(len(long))],
            "call_id": None,
            "simulated": False,
        }
    )
