"""What judges may and may not see: codes instead of names, turns with their labels, and who is related to whom."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from heart_utils.collect.design import seeded
from heart_utils.collect.models import Model
from heart_utils.collect.prompts import draw_codes, history_block
from heart_utils.collect.protocols import Protocol
from heart_utils.collect.rubric import Dimension, Rubric, load_rubric
from heart_utils.tables import SPEAKERS, check_table

__all__ = [
    "JudgeError",
    "check_judges",
    "check_replies",
    "chosen_rubric",
    "draw_form",
    "history_blocks",
    "judge_flags",
    "rows_of",
]


class JudgeError(ValueError):
    """Replies cannot be put to judges as asked."""


def draw_form(
    protocol: Protocol, rubric: Rubric, seed: int, about: str, repeat: int, *, texts: Sequence[str]
) -> tuple[tuple[str, str], tuple[Dimension, ...]]:
    """Draw the codes and the order of dimensions for a pair, or for a reply alone.

    Parameters
    ----------
    protocol : Protocol
        How judges are asked.
    rubric : Rubric
        What they are asked about.
    seed : int
        The run's.
    about : str
        A pair_id or a reply_id: both orders of a pair draw the same.
    repeat : int
        The number of the repeat.
    texts : sequence of str
        In which no code may occur.

    Returns
    -------
    codes : tuple of str
        For the reply shown first and the one shown second.
    dimensions : tuple of Dimension
        In the order to show.

    Examples
    --------
    >>> from heart_utils.collect.rubric import load_rubric
    >>> from heart_utils.collect.protocols import load_protocol
    >>> codes, dimensions = draw_form(load_protocol("heart-release"), load_rubric("heart-release"), 0, "p1", 0, texts=[])
    >>> codes, dimensions[-1].name
    (('A0493', 'A0488'), 'overall_eq')
    """
    generator = seeded(seed, about, protocol.name, repeat)
    # Codes first: which dimensions are asked must not change them.
    codes = (protocol.codes[0], protocol.codes[1]) if protocol.codes else draw_codes(generator, texts)
    dimensions = rubric.dimensions
    if protocol.dimension_order == "shuffled":
        dimensions = tuple(sorted(dimensions, key=lambda _: generator.random()))
    return codes, dimensions


def history_blocks(histories: pd.DataFrame, protocol: Protocol) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Write every conversation as judges read it, and say where the labels are wrong.

    Parameters
    ----------
    histories : pandas.DataFrame
        The table of this name.
    protocol : Protocol
        Says how turns are labelled.

    Returns
    -------
    dict
        From ``history_id`` to the text, and the flags of its verdicts: ``roles_swapped`` where a
        turn stands under a speaker who did not say it.

    Examples
    --------
    >>> from heart_utils.collect.protocols import load_protocol
    >>> from heart_utils.collect.sources import load_histories
    >>> blocks = history_blocks(load_histories("sample").head(1), load_protocol("heart"))
    >>> for history_id, (text, flags) in blocks.items():
    ...     print(history_id, text.splitlines()[1][:60], flags)
    sample-s01 Supporter: Good evening, and welcome. You're doing it right. ()
    """
    blocks: dict[str, tuple[str, tuple[str, ...]]] = {}
    for row in rows_of(histories, ("history_id", "turns", "emotion")):
        swapped = protocol.turn_labels == "parity" and any(
            turn["speaker"] != SPEAKERS[number % 2] for number, turn in enumerate(row["turns"])
        )
        blocks[row["history_id"]] = (history_block(row, protocol), ("roles_swapped",) if swapped else ())
    return blocks


def judge_flags(judge: Model, responders: pd.DataFrame | None, present: set[str]) -> dict[str, tuple[str, ...]]:
    """Say what a judge has to do with each of those whom it judges.

    Parameters
    ----------
    judge : Model
        A judge.
    responders : pandas.DataFrame or None
        The table of this name; without it only names can be compared.
    present : set of str
        The responders that are judged.

    Returns
    -------
    dict
        From responder to flags: ``own_reply`` for itself, ``own_family`` for whoever shares its
        family, and ``judge_is_responder`` for all of them if it is one of them.

    Examples
    --------
    >>> from heart_utils.collect.models import Model
    >>> judge_flags(Model("gpt", "openai/gpt-4o"), None, {"gpt", "human"})["human"]
    ('judge_is_responder',)
    """
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
    """Give rows as mappings, several times faster than pandas does for text kept in Arrow.

    Parameters
    ----------
    table : pandas.DataFrame
        Any.
    columns : sequence of str
        What each mapping holds.

    Returns
    -------
    list of dict
        One for each row.

    Examples
    --------
    >>> rows_of(pd.DataFrame({"reply_id": ["r1", "r2"], "text": ["Oh.", "I see."], "state": "valid"}), ("reply_id", "text"))
    [{'reply_id': 'r1', 'text': 'Oh.'}, {'reply_id': 'r2', 'text': 'I see.'}]
    """
    cells = [table[column].to_numpy(dtype=object) for column in columns]
    return [dict(zip(columns, row, strict=True)) for row in zip(*cells, strict=True)]


def chosen_rubric(protocol: Protocol, dimensions: Sequence[str] | None) -> Rubric:
    """Load a protocol's rubric, and keep the dimensions asked for.

    Parameters
    ----------
    protocol : Protocol
        Names its rubric.
    dimensions : sequence of str or None
        Some of them; all if None.

    Returns
    -------
    Rubric
        What judges are asked about.

    Examples
    --------
    >>> from heart_utils.collect.protocols import load_protocol
    >>> [dimension.name for dimension in chosen_rubric(load_protocol("heart"), ["attunement", "overall"]).dimensions]
    ['attunement', 'overall']
    """
    rubric = load_rubric(protocol.rubric)
    return rubric if dimensions is None else rubric.select(dimensions)


def check_judges(judges: Sequence[Model], repeats: int) -> None:
    """Refuse a panel that cannot be told apart in the tables.

    Parameters
    ----------
    judges : sequence of Model
        The panel.
    repeats : int
        How often each question is asked.

    Raises
    ------
    JudgeError
        If there is no judge, two share a name and an answer format, or `repeats` is not 1 or more.

    Examples
    --------
    >>> from heart_utils.collect.models import Model
    >>> check_judges([Model("judge", "openai/gpt-4o"), Model("judge", "openai/gpt-4o-mini")], repeats=1)
    Traceback (most recent call last):
        ...
    JudgeError: The judges judge are named twice with the same answer format; give each a name of its own.
    """
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
    """Refuse replies that no judge could read.

    Parameters
    ----------
    histories, replies : pandas.DataFrame
        The tables of these names, checked.

    Raises
    ------
    JudgeError
        If a reply belongs to no history of the table, is not valid, or has no text.

    Examples
    --------
    >>> from heart_utils.collect.sources import load_histories, load_replies
    >>> histories, replies = load_histories("sample"), load_replies("sample")
    >>> check_replies(histories, replies)  # nothing to say
    >>> check_replies(histories.head(1), replies)
    Traceback (most recent call last):
        ...
    JudgeError: replies: 35 of the 36 to judge answer a history that is not in the table histories, first ...
    """
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
