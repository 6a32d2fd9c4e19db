"""What judges may and may not see: codes instead of names, turns with their labels, and who is related to whom."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from heart_utils.calls.models import Model
from heart_utils.judging.design import seeded
from heart_utils.judging.prompts import draw_codes, history_block
from heart_utils.judging.protocols import Protocol
from heart_utils.judging.rubric import Dimension, Rubric, load_rubric
from heart_utils.tables import SPEAKERS, check_table

__all__ = ["JudgeError"]


class JudgeError(ValueError):
    """Replies cannot be put to judges as asked."""


def draw_form(
    protocol: Protocol, rubric: Rubric, seed: int, about: str, repeat: int, *, texts: Sequence[str]
) -> tuple[tuple[str, str], tuple[Dimension, ...]]:
    """Draw the codes and the order of dimensions for a pair, or for a reply alone."""
    generator = seeded(seed, about, protocol.name, repeat)
    # Codes first: which dimensions are asked must not change them.
    codes = (protocol.codes[0], protocol.codes[1]) if protocol.codes else draw_codes(generator, texts)
    dimensions = rubric.dimensions
    if protocol.dimension_order == "shuffled":
        dimensions = tuple(sorted(dimensions, key=lambda _: generator.random()))
    return codes, dimensions


def history_blocks(histories: pd.DataFrame, protocol: Protocol) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Write every conversation as judges read it, and say where the labels are wrong."""
    blocks: dict[str, tuple[str, tuple[str, ...]]] = {}
    for row in rows_of(histories, ("history_id", "turns", "emotion")):
        swapped = protocol.turn_labels == "parity" and any(
            turn["speaker"] != SPEAKERS[number % 2] for number, turn in enumerate(row["turns"])
        )
        blocks[row["history_id"]] = (history_block(row, protocol), ("roles_swapped",) if swapped else ())
    return blocks


def judge_flags(judge: Model, responders: pd.DataFrame | None, present: set[str]) -> dict[str, tuple[str, ...]]:
    """Say what a judge has to do with each of those whom it judges."""
    known: dict[str, dict[str, Any]] = {"family": {}, "model": {}}
    if responders is not None:
        table = check_table("responders", responders)
        known = {column: dict(zip(table["responder"], table[column], strict=True)) for column in known}
    itself = {name for name in present if name == judge.name or known["model"].get(name) == judge.model}
    family = judge.family.casefold() if judge.family else None
    flags = {}
    for name in present:
        of = known["family"].get(name)
        related = name in itself or (family is not None and isinstance(of, str) and of.casefold() == family)
        words = (("own_reply", name in itself), ("own_family", related), ("judge_is_responder", bool(itself)))
        flags[name] = tuple(word for word, holds in words if holds)
    return flags


def rows_of(table: pd.DataFrame, columns: Sequence[str]) -> list[dict[str, Any]]:
    """Give rows as mappings, several times faster than pandas does for text kept in Arrow."""
    cells = [table[column].to_numpy(dtype=object) for column in columns]
    return [dict(zip(columns, row, strict=True)) for row in zip(*cells, strict=True)]


def chosen_rubric(protocol: Protocol, dimensions: Sequence[str] | None) -> Rubric:
    """Load a protocol's rubric, and keep the dimensions asked for."""
    rubric = load_rubric(protocol.rubric)
    return rubric if dimensions is None else rubric.select(dimensions)


def check_judges(judges: Sequence[Model], repeats: int) -> None:
    """Refuse a panel that cannot be told apart in the tables."""
    if not judges:
        raise JudgeError("No judge was given; name at least one model.")
    seen = [(judge.name, judge.answer_format) for judge in judges]
    twice = sorted({name for name, how in seen if seen.count((name, how)) > 1})
    if twice:
        raise JudgeError(
            f"The judges {', '.join(twice)} are named twice with the same answer format; give each a name of its own."
        )
    if isinstance(repeats, bool) or not isinstance(repeats, int) or repeats < 1:
        raise JudgeError(f"repeats is {repeats!r}, expected a whole number, 1 or more.")


def check_replies(histories: pd.DataFrame, replies: pd.DataFrame) -> None:
    """Refuse replies that no judge could read."""
    faults = {
        "answer a history that is not in the table histories": ~replies["history_id"].isin(histories["history_id"]),
        "are not valid (pair_replies leaves such replies out)": replies["state"] != "valid",
        "have no text": replies["text"].isna() | (replies["text"].str.strip() == ""),
    }
    for fault, wrong in faults.items():
        if wrong.any():
            first = replies.loc[wrong].iloc[0]
            raise JudgeError(
                f"replies: {int(wrong.sum())} of the {len(replies)} to judge {fault}, first {first['reply_id']!r} "
                f"to {first['history_id']!r} (state {first['state']})."
            )
