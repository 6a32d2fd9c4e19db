"""Probes with known answers: a reply is spoilt in one way, and set against itself.

Each probe starts from a reference reply to one of the 24 standard histories of the sample, which was
written for that moment. What is done to it is known, so it is known what a judge should say: that the
spoilt reply is the worse one, or at least that it is not the better one. Whoever judges a run can be
asked the same, so that report cards of different judges stand side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd

from heart_utils.calls.models import Model
from heart_utils.judging.design import pair_replies
from heart_utils.judging.judge import plan_questions
from heart_utils.judging.prompts import PROMPTS
from heart_utils.judging.questions import Question
from heart_utils.judging.respond import PROBES as RULES
from heart_utils.judging.respond import describe_responders
from heart_utils.runs import find_root
from heart_utils.sources import load_histories, load_replies, load_responders
from heart_utils.sources.files import read_lines
from heart_utils.tables import check_table

__all__ = ["CHECKS", "Check", "Probes", "make_probes"]

BASE = "reference"
SLICE = "standard"


@dataclass(frozen=True)
class Check:
    """One way of spoiling a reply.

    Attributes
    ----------
    name : str
        The responder's name in the tables.
    expected : {"worse", "not_better", "even"}
        What the spoilt reply is, by construction, beside the reply it was made from.
    about : str
        What was done, for captions.
    text : str
        How: around the reply in braces, or another in its place.
    """

    name: str
    expected: str
    about: str
    text: str = field(repr=False)


CHECKS = tuple(Check(**check) for check in PROMPTS["checks"])


@dataclass(frozen=True, eq=False)
class Probes:
    """The tables that a judge of probes is asked about.

    Attributes
    ----------
    histories, responders, replies, comparisons : pandas.DataFrame
        As in :mod:`heart_utils.tables`. Each comparison is of a probe with the reference reply it was
        made from.
    """

    histories: pd.DataFrame
    responders: pd.DataFrame
    replies: pd.DataFrame
    comparisons: pd.DataFrame


@lru_cache(maxsize=1)
def make_probes() -> Probes:
    """Build the probes from the sample's standard histories and their reference replies.

    Returns
    -------
    Probes
        Nine probes a history, each in both orders.

    Examples
    --------
    >>> probes = make_probes()
    >>> len(probes.histories), len(probes.comparisons)  # 24 histories, 9 probes, 2 orders
    (24, 432)
    """
    histories = load_histories("sample")
    histories = histories[histories["slice"] == SLICE].reset_index(drop=True)
    base = load_replies("sample").set_index("history_id").loc[histories["history_id"]].reset_index()
    # Rewritten by hand: by rule, they would be broken as well as bare.
    lines = read_lines(find_root() / "data" / "sample" / "specifics_removed.jsonl")
    bare = {row["history_id"]: row["text"] for _, row in lines}
    rows: list[dict[Any, Any]] = []
    for place, (history, reply) in enumerate(zip(histories.to_dict("records"), base.to_dict("records"), strict=True)):
        other = base["text"].iloc[(place + 1) % len(base)]
        texts = {"base": reply["text"], "other": other, "bare": bare[history["history_id"]]}
        texts |= {rule: say(history["turns"]) for rule, say in RULES.items()}
        for check in CHECKS:
            named = {"reply_id": f"{history['history_id']}--probe-{check.name}", "responder": check.name}
            rows.append({**reply, **named, "text": check.text.format_map(texts), "flags": []})
    replies = check_table("replies", pd.concat([base, pd.DataFrame(rows)], ignore_index=True))
    rng = np.random.default_rng(0)  # nothing is drawn where all pairs are shown in both orders
    comparisons = [pair_replies(replies[replies["responder"].isin([BASE, check.name])], rng=rng) for check in CHECKS]
    template = describe_responders(["echo"])
    probes = pd.concat([template.assign(responder=check.name) for check in CHECKS])
    responders = check_table("responders", pd.concat([load_responders("sample"), probes], ignore_index=True))
    return Probes(histories, responders, replies, check_table("comparisons", pd.concat(comparisons, ignore_index=True)))


def probe_questions(judges: Sequence[Model], *, seed: int) -> list[Question]:
    """Have judges compare each probe with the reply it was made from, in both orders, on ``overall``."""
    probes = make_probes()
    asked: dict[str, Any] = {"responders": probes.responders, "dimensions": ["overall"], "seed": seed}
    return plan_questions(probes.histories, probes.replies, probes.comparisons, list(judges), **asked)
