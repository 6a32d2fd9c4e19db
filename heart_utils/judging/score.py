"""Judges score one reply alone, from 1 to 5 on each dimension, reasoning first."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from heart_utils.calls.models import Model
from heart_utils.judging.blinding import (
    JudgeError,
    check_judges,
    check_replies,
    chosen_rubric,
    draw_form,
    history_blocks,
    judge_flags,
    rows_of,
)
from heart_utils.judging.prompts import Form, instructs_judge, parts
from heart_utils.judging.protocols import Protocol, load_protocol
from heart_utils.judging.questions import Answer, Question, ask_questions, collector_paused, count_questions
from heart_utils.tables import check_table, needed_columns

if TYPE_CHECKING:
    from heart_utils.calls.ledger import Ledger

__all__ = ["collect_scores"]

ABOUT = ("reply_id", "history_id", "dialogue_id", "responder", "text", "simulated")
CODES = ("reply",)
"""A reply alone needs no code; a form has one for each reply it shows."""


def collect_scores(
    histories: pd.DataFrame,
    replies: pd.DataFrame,
    judges: Sequence[Model],
    *,
    ledger: Ledger,
    mode: str = "missing",
    max_concurrency: int | None = None,
    budget_usd: float | None = None,
    max_paid_calls: int | None = None,
    scheduler: str | None = None,
    progress: bool = True,
    **plan: Any,
) -> pd.DataFrame:
    """Ask every judge about every reply, and give the scores.

    Parameters
    ----------
    histories, replies : pandas.DataFrame
        The tables of these names.
    judges : sequence of Model
        A panel of one or more, answering in JSON.
    ledger : Ledger
        Where calls are kept.
    mode : str
        ``"missing"`` asks what the ledger lacks, ``"replay"`` asks nothing.
    max_concurrency, budget_usd, max_paid_calls, scheduler, progress
        As in ``ask_all``.
    **plan
        What ``plan_score_questions`` takes: ``responders``, ``protocol``, ``dimensions``, ``seed``.

    Returns
    -------
    pandas.DataFrame
        The table ``scores``: one row per reply, judge and dimension; states and flags as in
        :func:`heart_utils.judging.judge.collect_verdicts`.

    Raises
    ------
    JudgeError
        If the tables do not fit each other, or an option is unknown; before the first call.

    Examples
    --------
    >>> from heart_utils.calls.models import Model
    >>> from heart_utils.calls.ledger import open_ledger
    >>> from heart_utils.sources import load_histories, load_replies
    >>> histories, replies = load_histories("sample"), load_replies("sample").head(1)
    >>> judge = Model("judge", "openai/gpt-4o", options={"mock_response": "Both are fine."})  # litellm answers itself
    >>> asked = {"dimensions": ["empathic_responsiveness"], "ledger": open_ledger("sqlite://"), "progress": False}
    >>> collect_scores(histories, replies, [judge], **asked)[["dimension", "score", "state"]].values.tolist()
    [['empathic_responsiveness', nan, 'unparsed']]
    """
    if mode not in ("missing", "replay"):
        raise JudgeError(f"mode is {mode!r}, expected 'missing' or 'replay'; plan_scores says what would be asked.")
    questions = plan_score_questions(histories, replies, judges, **plan)
    answers = ask_questions(
        questions,
        ledger=ledger,
        mode=mode,
        max_concurrency=max_concurrency,
        budget_usd=budget_usd,
        max_paid_calls=max_paid_calls,
        scheduler=scheduler,
        progress=progress,
    )
    return _parse_scores(answers)


def plan_scores(
    histories: pd.DataFrame, replies: pd.DataFrame, judges: Sequence[Model], *, ledger: Ledger, **plan: Any
) -> pd.DataFrame:
    """Say what :func:`collect_scores` would take, without asking anything."""
    return count_questions(plan_score_questions(histories, replies, judges, **plan), ledger=ledger)


@collector_paused()
def plan_score_questions(
    histories: pd.DataFrame,
    replies: pd.DataFrame,
    judges: Sequence[Model],
    *,
    responders: pd.DataFrame | None = None,
    protocol: Protocol | str = "likert",
    dimensions: Sequence[str] | None = None,
    seed: int = 0,
) -> list[Question]:
    """Make every question that replies put to judges."""
    histories, replies = check_table("histories", histories), check_table("replies", replies)
    check_judges(judges, 1)
    judges = _those_who_score(judges)
    how = protocol if isinstance(protocol, Protocol) else load_protocol(protocol)
    if how.asks != "reply":
        raise JudgeError(f"The protocol {how.name!r} asks about pairs; collect_verdicts does that.")
    valid = replies[replies["state"] == "valid"].sort_values(["history_id", "reply_id"])
    if valid.empty:
        raise JudgeError(f"None of the {len(replies)} replies is valid, so there is nothing to score.")
    check_replies(histories, valid)
    shown = rows_of(valid.merge(histories[["history_id", "dialogue_id"]], on="history_id", how="left"), ABOUT)
    rubric, blocks = chosen_rubric(how, dimensions), history_blocks(histories, how)
    questions: list[Question] = []
    for judge in judges:
        flags_of = judge_flags(judge, responders, set(valid["responder"]))
        for about in shown:
            history, swapped = blocks[about["history_id"]]
            flags = flags_of[about["responder"]] + swapped
            flags += ("instructs_judge",) if instructs_judge(about["text"]) else ()
            _, order = draw_form(how, rubric, seed, about["reply_id"], 0, texts=())
            for part in parts(how, order, judge.answer_format):
                questions.append(Question(about, judge, Form(how, part, CODES), history, (about["text"],), flags, 0))
    return questions


def _those_who_score(judges: Sequence[Model]) -> list[Model]:
    letters = [judge.name for judge in judges if judge.answer_format != "json"]
    if letters:
        said = f"{', '.join(letters)} answers in the format logprob, which compares A with B; a score needs json"
        if len(letters) == len(judges):
            raise JudgeError(f"{said}.")
        warnings.warn(f"{said}: left out.", stacklevel=4)
    return [judge for judge in judges if judge.answer_format == "json"]


@collector_paused()
def _parse_scores(answers: Sequence[Answer]) -> pd.DataFrame:
    """Turn answers into scores; a failed answer is a state, never a number."""
    rows: list[tuple[Any, ...]] = []
    for answer in answers:
        question = answer.question
        about, form = question.about, question.form
        start = tuple(about[name] for name in ABOUT[:4])
        for dimension, (reading, call, repaired) in zip(form.dimensions, answer.readings(), strict=True):
            flags = [*question.flags, *(["repaired"] if repaired else [])]
            rows.append((
                *start, question.judge.name, "model", dimension.name, None, reading.score, reading.state,
                form.protocol.name, None, flags, call.call_id, about["simulated"],
            ))  # fmt: skip
    return check_table("scores", pd.DataFrame(rows, columns=needed_columns("scores")))
