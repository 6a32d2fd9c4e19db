"""Judges compare two replies, blinded: from comparisons over calls to verdicts.

Verdicts are a pure function of the tables and of the ledger's calls. What is drawn for a request
(codes, the order of dimensions) depends on the seed, the pair, the protocol and the number of the
repeat alone, so that the same tables ask the same questions in any order, on any machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
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
from heart_utils.judging.prompts import LETTERS, Form, instructs_judge, parts
from heart_utils.judging.protocols import Protocol, load_protocol
from heart_utils.judging.questions import Answer, Question, ask_questions, collector_paused, count_questions
from heart_utils.tables import check_table, needed_columns

if TYPE_CHECKING:
    from heart_utils.calls.ledger import Ledger

__all__ = ["JudgeError", "collect_verdicts", "plan_questions"]

ABOUT = ("comparison_id", "pair_id", "history_id", "dialogue_id", "slice", "responder_a", "responder_b", "order", "simulated")
"""What a verdict takes over; the first seven are its first columns."""


def collect_verdicts(
    histories: pd.DataFrame,
    replies: pd.DataFrame,
    comparisons: pd.DataFrame,
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
    """Ask every judge about every comparison, and give the verdicts.

    What the ledger holds is not asked again. An answer that cannot be read is asked for once more,
    with what was wrong with it; what cannot be read then is ``unparsed``, and its text stays in the ledger.

    Parameters
    ----------
    histories, replies, comparisons : pandas.DataFrame
        The tables of these names.
    judges : sequence of Model
        A panel of one or more. Each answers in its own ``answer_format``.
    ledger : Ledger
        Where calls are kept.
    mode : str
        ``"missing"`` asks what the ledger lacks, ``"replay"`` asks nothing.
    max_concurrency, budget_usd, max_paid_calls, scheduler, progress
        As in ``ask_all``.
    **plan
        What :func:`plan_questions` takes: ``responders``, ``protocol``, ``dimensions``, ``repeats``, ``seed``.

    Returns
    -------
    pandas.DataFrame
        The table ``verdicts``: one row per comparison, judge, dimension and repeat. Flags:
        ``own_reply`` (one of the two is the judge's own), ``judge_is_responder`` (the judge
        answered histories of this run), ``own_family``, ``instructs_judge``, ``roles_swapped``
        (turns were shown under the wrong speaker), ``repaired``, and ``little_mass`` (A and B
        together had less than half of the next token's probability).

    Raises
    ------
    JudgeError
        If the tables do not fit each other, or an option is unknown; before the first call.

    Examples
    --------
    >>> from heart_utils.calls.ledger import open_ledger
    >>> from heart_utils.judging.recipe import read_recipe, recipe_comparisons, recipe_histories, recipe_replies
    >>> from heart_utils.runs import find_root
    >>> recipe = read_recipe("sample")
    >>> ledger = open_ledger("sqlite://", seed_file=find_root() / recipe.recorded)  # the calls that come with the project
    >>> histories = recipe_histories(recipe)
    >>> replies = recipe_replies(recipe, histories, ledger=ledger, mode="replay")
    >>> comparisons = recipe_comparisons(recipe, replies).query("protocol == 'heart'").head(2)
    >>> how = {"dimensions": ["overall"], "seed": recipe.seed, "mode": "replay"}
    >>> verdicts = collect_verdicts(histories, replies, comparisons, recipe.judges, ledger=ledger, **how)
    >>> verdicts[["rater", "order", "state"]].values.tolist()
    [['SmolLM2-135M-judge', 'ab', 'valid'], ['SmolLM2-135M-judge', 'ba', 'valid']]
    """
    if mode not in ("missing", "replay"):
        raise JudgeError(f"mode is {mode!r}, expected 'missing' or 'replay'; plan_verdicts says what would be asked.")
    questions = plan_questions(histories, replies, comparisons, judges, **plan)
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
    return parse_answers(answers)


def plan_verdicts(
    histories: pd.DataFrame,
    replies: pd.DataFrame,
    comparisons: pd.DataFrame,
    judges: Sequence[Model],
    *,
    ledger: Ledger,
    **plan: Any,
) -> pd.DataFrame:
    """Say what :func:`collect_verdicts` would take, without asking anything."""
    return count_questions(plan_questions(histories, replies, comparisons, judges, **plan), ledger=ledger)


@collector_paused()
def plan_questions(
    histories: pd.DataFrame,
    replies: pd.DataFrame,
    comparisons: pd.DataFrame,
    judges: Sequence[Model],
    *,
    responders: pd.DataFrame | None = None,
    protocol: Protocol | str | None = None,
    dimensions: Sequence[str] | None = None,
    repeats: int = 1,
    seed: int = 0,
) -> list[Question]:
    """Make every question that comparisons put to judges.

    Parameters
    ----------
    histories, replies, comparisons : pandas.DataFrame
        The tables of these names.
    judges : sequence of Model
        A panel of one or more.
    responders : pandas.DataFrame, optional
        The table of this name; tells which judges share a family with a responder.
    protocol : Protocol or str, optional
        How judges are asked; what each comparison says if not given.
    dimensions : sequence of str, optional
        Some of the rubric's; all if not given.
    repeats : int
        How often each question is asked.
    seed : int
        For what is drawn.

    Returns
    -------
    list of Question
        Judge by judge, and sorted by history and by the reply shown first, so that a server that
        keeps the prefix of its last prompts is served.

    Raises
    ------
    JudgeError
        If a comparison names a history or a reply that is not there or has no text, has no order,
        or shows replies to different histories; if judges repeat each other; if the protocol does
        not ask about pairs.

    Examples
    --------
    >>> from heart_utils.calls.models import Model
    >>> from heart_utils.judging.design import pair_replies
    >>> from heart_utils.calls.ledger import open_ledger
    >>> from heart_utils.judging.respond import collect_replies
    >>> from heart_utils.sources import load_histories
    >>> histories = load_histories("sample").head(2)
    >>> replies = collect_replies(histories, ["echo", "advice-only"], ledger=open_ledger("sqlite://"))
    >>> comparisons = pair_replies(replies, rng=np.random.default_rng(1))
    >>> questions = plan_questions(histories, replies, comparisons, [Model("judge", "openai/gpt-4o")])
    >>> len(questions), questions[0].judge.name  # two pairs, both orders, all dimensions in one call
    (4, 'judge')
    """
    histories, replies = check_table("histories", histories), check_table("replies", replies)
    comparisons = check_table("comparisons", comparisons)
    check_judges(judges, repeats)
    _check_comparisons(histories, replies, comparisons)
    texts = dict(zip(replies["reply_id"], replies["text"], strict=True))
    orders_judge = {reply_id for reply_id, text in texts.items() if isinstance(text, str) and instructs_judge(text)}
    shown = comparisons.merge(histories[["history_id", "dialogue_id", "slice"]], on="history_id", how="left")
    shown["first"] = shown["reply_a"].where(shown["order"] == "ab", shown["reply_b"])
    shown["second"] = shown["reply_b"].where(shown["order"] == "ab", shown["reply_a"])
    shown = shown.sort_values(["history_id", "first", "second", "comparison_id"])
    present = {*comparisons["responder_a"], *comparisons["responder_b"]}
    related = [judge_flags(judge, responders, present) for judge in judges]
    questions: list[Question] = []
    for name, rows in shown.groupby("protocol", sort=False):
        how = protocol if isinstance(protocol, Protocol) else load_protocol(protocol or str(name))
        if how.asks != "pair":
            raise JudgeError(f"The protocol {how.name!r} asks about one reply alone; collect_scores does that.")
        rubric = chosen_rubric(how, dimensions)
        blocks = history_blocks(histories, how)
        records = rows_of(rows, (*ABOUT, "first", "second"))
        forms: dict[tuple[str, int, str], list[Form]] = {}
        words: dict[tuple[str, ...], tuple[str, ...]] = {}
        for judge, flags_of in zip(judges, related, strict=True):
            for about in records:
                history, swapped = blocks[about["history_id"]]
                pair = texts[about["first"]], texts[about["second"]]
                ordered = ("instructs_judge",) if about["first"] in orders_judge or about["second"] in orders_judge else ()
                flags = flags_of[about["responder_a"]] + flags_of[about["responder_b"]] + swapped + ordered
                flags = words.setdefault(flags, tuple(dict.fromkeys(flags)))
                for repeat in range(repeats):
                    key = about["pair_id"], repeat, judge.answer_format
                    if key not in forms:
                        codes, order = draw_form(how, rubric, seed, about["pair_id"], repeat, texts=(history, *pair))
                        codes = LETTERS if judge.answer_format == "logprob" else codes
                        split = parts(how, order, judge.answer_format)
                        forms[key] = [Form(how, part, codes, judge.answer_format) for part in split]
                    questions += [Question(about, judge, form, history, pair, flags, repeat) for form in forms[key]]
    return questions


@collector_paused()
def parse_answers(answers: Sequence[Answer]) -> pd.DataFrame:
    """Turn answers into verdicts; a failed answer is a state, never a tie."""
    names = needed_columns("verdicts")
    rows: list[tuple[Any, ...]] = []
    for answer in answers:
        question = answer.question
        about, form = question.about, question.form
        ab = about["order"] == "ab"
        word = {"first": "a" if ab else "b", "second": "b" if ab else "a", "tie": "tie", None: None}
        start = tuple(about[name] for name in ABOUT[:7])
        for position, (reading, call, repaired) in enumerate(answer.readings()):
            p_a = reading.p_first if ab or reading.p_first is None else 1 - reading.p_first
            flags = [*question.flags, *(["repaired"] if repaired else []), *(["little_mass"] if reading.little_mass else [])]
            rows.append((
                *start, question.judge.name, "model", form.dimensions[position].name, position,
                word[reading.winner], reading.margin, p_a, reading.state, about["order"], form.protocol.name,
                form.answer_format, question.repeat, None, flags, reading.rationale, call.call_id, about["simulated"],
            ))  # fmt: skip
    return check_table("verdicts", pd.DataFrame(rows, columns=names))


def _check_comparisons(histories: pd.DataFrame, replies: pd.DataFrame, comparisons: pd.DataFrame) -> None:
    """Refuse what could not be shown to a judge, before anything is asked."""
    shown = {*comparisons["reply_a"], *comparisons["reply_b"]}
    check_replies(histories, replies[replies["reply_id"].isin(shown)])
    ids = pd.Index(replies["reply_id"])
    there = {column: replies[column].to_numpy(dtype=object) for column in ("history_id", "responder")}
    for side in ("a", "b"):
        rows = ids.get_indexer(comparisons[f"reply_{side}"])
        _refuse(comparisons, rows < 0, f"reply_{side}", "a reply of the table replies")
        for column, stands in (("history_id", "history_id"), ("responder", f"responder_{side}")):
            wrong = there[column][rows] != comparisons[stands].to_numpy(dtype=object)
            _refuse(comparisons, wrong, f"reply_{side}", f"a reply with the {column} that the comparison names")
    unordered = (comparisons["reply_a"] >= comparisons["reply_b"]).to_numpy()
    _refuse(comparisons, unordered, "reply_a", "the smaller reply_id of the two as a")
    _refuse(comparisons, comparisons["order"].isna().to_numpy(), "order", "ab or ba, so that it is known what to show first")


def _refuse(comparisons: pd.DataFrame, wrong: npt.NDArray[np.bool_], column: str, expected: str) -> None:
    if wrong.any():
        row = comparisons.loc[wrong].iloc[0]
        raise JudgeError(
            f"comparisons.{column}: {int(wrong.sum())} of {len(comparisons)} rows do not fit, first {row['comparison_id']!r} "
            f"with {row[column]!r}; expected {expected}."
        )
