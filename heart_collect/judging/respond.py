"""Replies: what models and probes say where a supporter must answer."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, Unpack

import pandas as pd

from heart_collect.calls.engine import Asking, ask_all
from heart_collect.calls.ledger import Ledger
from heart_collect.calls.models import Call, Model, Request
from heart_collect.calls.outcomes import CUT, UNSAID, is_blank
from heart_collect.calls.prices import text_bound
from heart_collect.calls.thoughts import without_thoughts
from heart_collect.judging.prompts import REPLY_INSTRUCTIONS, reply_messages
from heart_collect.judging.questions import count_calls
from heart_collect.judging.responders import PROBES, RespondError, check_responders
from heart_utils.sources.defaults import check_last_speaker
from heart_utils.sources.heart import MAX_SENTENCES, MAX_WORDS, flag_reply
from heart_utils.tables import check_table, empty_table

__all__ = ["collect_replies"]

#: Unless a model's own options say otherwise: 40 words take some 60 tokens.
REPLY_OPTIONS = {"max_tokens": 120}
FREE_OPTIONS = {"max_tokens": 600}  #: Where the length is the model's, as in HeartBench.

STAND_IN = " ".join(["filler"] * MAX_WORDS)
LABEL = re.compile(
    r"^\s*(?:\*\*)?(?:supporter|assistant|reply)(?:\*\*)?\s*:(?:\*\*)?\s*", re.IGNORECASE
)
SEEKER = re.compile(r"(?:^|\n)\s*(?:\*\*)?seeker(?:\*\*)?\s*:", re.IGNORECASE)
QUOTES = {'"': '"', "“": "”", "'": "'"}
NOTHING = (
    "author_id",
    "ttft_ms",
    "total_ms",
    "prompt_tokens",
    "completion_tokens",
    "cost_usd",
    "typing_ms",
    "call_id",
)


#: Cells of the table of replies, by column.
ReplyRow: TypeAlias = dict[str, object]


class ReplyQuestion(NamedTuple):
    """A history that a model is asked to answer, or that a probe answers by rule."""

    history: Mapping[Any, Any]
    responder: str
    repeat: int = 0
    request: Request | None = None
    free: bool = False  #: Whether the answer is taken as it comes, however long.


def collect_replies(
    histories: pd.DataFrame,
    responders: Sequence[Model | str],
    *,
    ledger: Ledger,
    repeats: int = 1,
    instructions: str = REPLY_INSTRUCTIONS,
    language: str | None = None,
    max_concurrency: int | None = 1,
    plan: bool = False,
    **asking: Unpack[Asking],
) -> pd.DataFrame:
    """Let each responder answer each history once.

    The protocol is HEART's in words of our own: one to three sentences and at most forty words.
    Calls are streamed, to measure the time to the first text, and made one at a time, so that no
    call waits for another.

    Parameters
    ----------
    histories : pandas.DataFrame
        The table of histories. Those flagged ``ends_with_supporter`` get no reply.
    responders : sequence of Model or str
        Models, and the names of :data:`heart_collect.judging.responders.PROBES`.
    ledger : Ledger
        Where calls are kept.
    repeats
        Replies of each model to each history, and what it is told first.
    instructions
        A probe always says the same, once.
    language : str, optional
        Ask as HeartBench does, in ``"zh"`` or ``"en"``: in one message, with no limit of length,
        the answer taken as it is.
    max_concurrency : int, optional
        More than 1 is faster, and replies whose times were taken beside others are flagged
        ``timed_beside_others``.
    plan : bool
        Ask nothing, and say what it would take, model by model.
    **asking
        ``mode``, ``budget_usd``, ``max_paid_calls``, ``progress``. In mode ``"dry"`` a reply that
        is not recorded is 40 words of filler, flagged ``planned``: good for estimates only.

    Returns
    -------
    pandas.DataFrame
        The table ``replies``, or the plan. A reply that is nothing but a thought, or a thought
        without an end, is an ``error``. Flags: ``unwrapped`` (a label or quotation marks were taken
        off), ``thought`` (one was taken out; the ledger keeps it), ``over_40_words``,
        ``over_3_sentences``, ``greeting``, ``closing``, ``writes_seeker`` (it goes on with the
        seeker's next turn), ``truncated``, ``cut`` (by this side, since it was longer than its room
        by far), and ``end_unsaid`` (its stream ended as it should, and the provider gave no reason
        for the end).

    Raises
    ------
    RespondError
        If a history ends with the supporter and is not flagged so, a probe is unknown, or two
        responders share a name.

    Examples
    --------
    >>> from heart_collect import open_ledger
    >>> from heart_utils import load_histories
    >>> len(
    ...     collect_replies(
    ...         load_histories("sample").head(2),
    ...         ["echo", "advice-only"],
    ...         ledger=open_ledger("sqlite://"),
    ...     )
    ... )
    4
    """
    questions = reply_questions(
        check_table("histories", histories),
        responders,
        repeats=repeats,
        instructions=instructions,
        language=language,
    )
    if plan:
        return plan_replies(questions, ledger)
    return answer_replies(questions, ledger=ledger, max_concurrency=max_concurrency, **asking)


def reply_questions(
    histories: pd.DataFrame,
    responders: Sequence[Model | str],
    *,
    repeats: int,
    instructions: str,
    language: str | None,
) -> list[ReplyQuestion]:
    """Make what :func:`collect_replies` asks, of histories that were checked."""
    check_responders(responders)
    check_last_speaker(histories, RespondError)
    skipped = set(skipped_histories(histories)["history_id"])
    questions = []
    for history in histories[~histories["history_id"].isin(skipped)].to_dict("records"):
        for responder in responders:
            if isinstance(responder, str):
                questions.append(ReplyQuestion(history, responder))
                continue
            for repeat in range(repeats):
                request = reply_request(history, responder, repeat, instructions, language)
                free = language is not None
                questions.append(ReplyQuestion(history, responder.name, repeat, request, free))
    return questions


def plan_replies(questions: Sequence[ReplyQuestion], ledger: Ledger) -> pd.DataFrame:
    """Count what replies of models would take, by responder."""
    requests = [((one.responder,), one.request) for one in questions if one.request is not None]
    return count_calls(requests, by=("responder",), ledger=ledger)


def answer_replies(
    questions: Sequence[ReplyQuestion],
    *,
    ledger: Ledger,
    max_concurrency: int | None,
    **asking: Unpack[Asking],
) -> pd.DataFrame:
    """Ask for the replies of models, and make the table of them and of probes."""
    requests = [one.request for one in questions if one.request is not None]
    calls = iter(ask_all(requests, ledger=ledger, max_concurrency=max_concurrency, **asking))
    rows = [_by_rule(one) if one.request is None else _reply(one, next(calls)) for one in questions]
    return check_table("replies", pd.DataFrame(rows)) if rows else empty_table("replies")


def lengthen_planned(replies: pd.DataFrame, models: Sequence[Model], *, free: bool) -> pd.DataFrame:
    """Pad planned replies to their limit, so that the most that judging costs is known."""
    planned = replies["flags"].map(lambda flags: "planned" in flags).astype(bool)
    if not planned.any():
        return replies
    room = FREE_OPTIONS if free else REPLY_OPTIONS
    rooms = {
        model.name: text_bound(Request(model, (), {} if model.limits_max_tokens else room))
        for model in models
    }
    fill = [("filler " * rooms[name])[: rooms[name]] for name in replies.loc[planned, "responder"]]
    return replies.assign(
        text=replies["text"].mask(
            planned, pd.Series(fill, index=replies.index[planned], dtype=object)
        )
    )


def skipped_histories(histories: pd.DataFrame) -> pd.DataFrame:
    """List the histories that cannot be answered, because the supporter spoke last."""
    return histories[
        histories["turns"].map(lambda turns: turns[-1]["speaker"] == "supporter").astype(bool)
    ]


def reply_request(
    history: Mapping[Any, Any], model: Model, repeat: int, instructions: str, language: str | None
) -> Request:
    options = {} if model.limits_max_tokens else REPLY_OPTIONS if language is None else FREE_OPTIONS
    messages = reply_messages(history["turns"], instructions, language)
    return Request(model, messages, options, repeat, stream=True, tag=str(history["history_id"]))


def _by_rule(question: ReplyQuestion) -> ReplyRow:
    """Let a probe say what it always says."""
    text = PROBES[question.responder](question.history["turns"])
    return {**_row(question, text, "valid"), "flags": turn_flags(question.history, text)}


def _reply(question: ReplyQuestion, call: Call) -> ReplyRow:
    """Read a call; nothing here asks anything, so a better reading needs no new call."""
    text, state, flags = read_turn(call, as_it_came=question.free)
    flags += [] if question.free else turn_flags(question.history, text)
    text = STAND_IN if call.status == "planned" else text
    measured = {name: getattr(call, name) for name in NOTHING if hasattr(call, name)}
    return {
        **_row(question, text if state == "valid" else None, state),
        **measured,
        "flags": ["planned"] if call.status == "planned" else flags if state == "valid" else [],
    }


def read_turn(call: Call, *, as_it_came: bool = False) -> tuple[str, str, list[str]]:
    """Read a turn from a call, without thoughts: its words, its state, flags of how they came."""
    answer = without_thoughts(call.text)
    text, unwrapped = ((answer or "").strip(), False) if as_it_came else unwrap(answer or "")
    state = {"ok": "valid", "truncated": "valid", "planned": "valid", "refused": "refused"}.get(
        call.status, "error"
    )
    thought = answer != call.text
    empty = not text or (thought and is_blank(text))
    state = "error" if state == "valid" and call.status != "planned" and empty else state
    flags = [
        flag
        for flag, applies in (
            ("unwrapped", unwrapped),
            ("thought", thought),
            ("truncated", call.status == "truncated"),
            ("cut", call.finish_reason == CUT),
            ("end_unsaid", call.finish_reason == UNSAID),
            ("timed_beside_others", call.in_flight > 1),
            # fmt: skip
            ("writes_seeker", bool(SEEKER.search(text))),
        )
        if applies
    ]
    return text, state, flags


def _row(question: ReplyQuestion, text: str | None, state: str) -> ReplyRow:
    history, responder, repeat = question.history, question.responder, question.repeat
    name = f"{history['history_id']}--{responder}" + (f"--r{repeat}" if repeat else "")
    about = {
        "reply_id": name,
        "history_id": history["history_id"],
        "responder": responder,
        "text": text,
        "state": state,
    }
    return {**dict.fromkeys(NOTHING), **about, "simulated": history["simulated"]}


def turn_flags(history: Mapping[Any, Any], text: str) -> list[str]:
    before = sum(turn["speaker"] == "supporter" for turn in history["turns"])
    sentences = len(re.findall(r"[.!?…。！？]+(?=\s|$|[\"”')])", text.strip()))
    flags = flag_reply(text, n_before=before, n_after=0)
    return [*flags, "over_3_sentences"] if sentences > MAX_SENTENCES else flags


def unwrap(text: str, label: re.Pattern[str] = LABEL) -> tuple[str, bool]:
    """Take off a label before a turn and quotation marks around it."""
    bare = label.sub("", text.strip(), count=1).strip()
    if len(bare) > 1 and QUOTES.get(bare[0]) == bare[-1] and bare[0] not in bare[1:-1]:
        bare = bare[1:-1].strip()
    return bare, bare != text.strip()
