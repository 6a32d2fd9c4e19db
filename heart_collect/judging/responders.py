"""Who answers: models, and probes, which say by rule what nobody should win with."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

import pandas as pd

from heart_collect.calls.models import Model
from heart_collect.calls.prices import price
from heart_collect.judging.prompts import PROMPTS
from heart_utils.sources.defaults import read_sample
from heart_utils.sources.heart import MAX_WORDS
from heart_utils.tables import check_table, empty_table

__all__ = ["PROBES", "RespondError"]


class RespondError(ValueError):
    """Histories or responders cannot be used as asked."""


def _echo(turns: Sequence[Mapping[str, str]]) -> str:
    last_words = [turn["text"] for turn in turns if turn["speaker"] == "seeker"][-1]
    return " ".join(last_words.split()[:MAX_WORDS])


def _always(text: str) -> Callable[[Sequence[Mapping[str, str]]], str]:
    return lambda _: text


@lru_cache(maxsize=1)
def _replies_to_others() -> list[tuple[tuple[str, ...], str, str]]:
    """List the sample's histories as texts, with their dialogue and the reply drafted for each."""
    histories = read_sample("histories")[["history_id", "dialogue_id", "turns"]]
    rows = histories.merge(read_sample("replies")[["history_id", "text"]], on="history_id")
    return [
        (tuple(turn["text"] for turn in turns), dialogue, text)
        for _, dialogue, turns, text in rows.itertuples(index=False)
    ]


def _other_history(turns: Sequence[Mapping[str, str]]) -> str:
    """Give a good reply to somebody else: another one in each turn of a conversation."""
    begun_with = tuple(turn["text"] for turn in turns)
    known = _replies_to_others()
    own = {dialogue for begun, dialogue, _ in known if begun_with[: len(begun)] == begun}
    others = [text for _, dialogue, text in known if dialogue not in own]
    n_before = sum(turn["speaker"] == "supporter" for turn in turns)
    begins_at = int(hashlib.sha256(begun_with[0].encode()).hexdigest(), 16)
    return others[(begins_at + n_before) % len(others)]


PROBES = {
    **{name: _always(text) for name, text in PROMPTS["probes"].items()},
    "echo": _echo,
    "other-history": _other_history,
}
"""Replies by rule, written for this project: warm and about nobody, advice and no warmth, nothing
but dots, the seeker's last words, and a good reply to somebody else."""


def describe_responders(responders: Sequence[Model | str]) -> pd.DataFrame:
    """Make the table of responders."""
    check_responders(responders)
    rows: list[dict[str, str | float | None]] = []
    for one in responders:
        if isinstance(one, str):
            rows.append({"responder_kind": "probe", "responder": one})
            continue
        rates = price(one)
        rows.append(
            {
                "responder_kind": "model",
                "responder": one.name,
                "family": one.family,
                "model": one.model,
                "price": None if rates is None else rates[1] * 1e6,
            }
        )
    return check_table("responders", pd.DataFrame(rows)) if rows else empty_table("responders")


def check_responders(responders: Sequence[Model | str]) -> None:
    """Refuse probes that are unknown, and two responders of one name."""
    names = [
        responder if isinstance(responder, str) else responder.name for responder in responders
    ]
    unknown = [name for name in responders if isinstance(name, str) and name not in PROBES]
    if unknown:
        raise RespondError(
            f"There is no probe {', '.join(unknown)}; the probes are {', '.join(PROBES)}. A model"
            " is read by heart_collect.calls.models.read_models."
        )
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise RespondError(
            f"Each responder needs a name of its own; {', '.join(twice)} appears more than once."
        )
