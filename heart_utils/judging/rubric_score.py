"""HeartBench's way: one reply to a dialogue, then a judge that goes through the rubric item by item.

Where the release mends a judge's list of hits by padding or cutting it, here the judge is asked once
more, and the items are ``unparsed`` if that does not help.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pandas as pd

from heart_utils.calls.asking import ask_all
from heart_utils.calls.models import Call, Model, Request
from heart_utils.judging.blinding import JudgeError, check_judges, judge_flags, rows_of
from heart_utils.judging.codebook import ANSWERED
from heart_utils.judging.questions import ask_repairs, count_calls, note_schemas, settle_requests
from heart_utils.judging.rubric_prompts import LANGUAGES, again_message, hits_schema, judge_message, read_hits, reply_message
from heart_utils.tables import check_table, needed_columns

if TYPE_CHECKING:
    from heart_utils.calls.ledger import Ledger

__all__: list[str] = []

PROTOCOL = "heartbench"
REPLY_ROOM = {"max_tokens": 600}
ROOM, ROOM_PER_ITEM = 500, 60
"""Tokens of an answer: for its form, and for the reasoning about each item."""


REPLY_COLUMNS = ("reply_id", "history_id", "responder", "text", "state", "simulated")


@dataclass(frozen=True)
class _Task:
    """One reply for one judge, with the items to go through."""

    judge: Model
    reply: Mapping[str, Any]
    turns: Sequence[Mapping[str, str]]
    items: Sequence[Mapping[str, Any]]
    flags: tuple[str, ...]
    language: str
    request: Request | None = None

    def asked(self, schema: bool) -> Request:
        """Make the question as it is first put."""
        items = [(item["ability"], None if pd.isna(item["points"]) else item["points"], item["content"]) for item in self.items]
        messages = judge_message(self.turns, self.reply["text"], items, self.language)
        options: dict[str, Any] = {}
        if not self.judge.limits_room:
            options["max_tokens"] = ROOM + ROOM_PER_ITEM * len(items)
        if schema:
            options["response_format"] = hits_schema(len(items), exact=self.judge.checksum is not None)
        return Request(self.judge, messages, options, tag=self.reply["history_id"])

    @property
    def first(self) -> Request:
        """The request, settled."""
        assert self.request is not None
        return self.request

    def again(self, answer: str, fault: str) -> Request:
        """Put the question again, with the answer and what is wrong with it."""
        first = self.first
        return replace(first, messages=(*first.messages, *again_message(answer, fault, len(self.items), self.language)))


def collect_rubric_replies(
    histories: pd.DataFrame,
    responders: Sequence[Model],
    *,
    ledger: Ledger,
    language: str = "zh",
    mode: str = "missing",
    **asking: Any,
) -> pd.DataFrame:
    """Let each model answer each question once, as HeartBench does: one message, no limit of length."""
    _check_language(language)
    wanted = [(history, model) for history in rows_of(histories, ("history_id", "turns", "simulated")) for model in responders]
    requests = [
        Request(
            model,
            reply_message(history["turns"], language),
            {} if model.limits_room else REPLY_ROOM,
            stream=True,
            tag=history["history_id"],
        )
        for history, model in wanted
    ]
    calls = ask_all(requests, ledger=ledger, mode=mode, **asking)
    rows = [_reply(history, model, call) for (history, model), call in zip(wanted, calls, strict=True)]
    return check_table("replies", pd.DataFrame(rows))


def collect_hits(
    questions: pd.DataFrame,
    histories: pd.DataFrame,
    replies: pd.DataFrame,
    judges: Sequence[Model],
    *,
    ledger: Ledger,
    responders: pd.DataFrame | None = None,
    language: str = "zh",
    mode: str = "missing",
    **asking: Any,
) -> pd.DataFrame:
    """Ask every judge about every reply, item by item, reasons before hits."""
    tasks, failed = _tasks(questions, histories, replies, judges, responders, language, ledger)
    if tasks and mode != "replay":
        note_schemas(judges, ledger)
    calls = ask_all([task.first for task in tasks], ledger=ledger, mode=mode, **asking)
    faults = {
        place: read_hits(call.text, len(tasks[place].items))[1] for place, call in enumerate(calls) if call.status in ANSWERED
    }
    again = {place: tasks[place].again(calls[place].text, fault) for place, fault in faults.items() if fault is not None}
    second = ask_repairs(again, ledger=ledger, mode=mode, **asking)
    rows = [row for place, task in enumerate(tasks) for row in _rows(task, calls[place], second.get(place))]
    for task in failed:
        n, state = len(task.items), task.reply["state"]
        rows += _score_rows(task, (*task.flags, "no_reply"), [None] * n, [state] * n, None)
    return check_table("scores", pd.DataFrame(rows, columns=needed_columns("scores")))


def plan_hits(
    questions: pd.DataFrame,
    histories: pd.DataFrame,
    replies: pd.DataFrame,
    judges: Sequence[Model],
    *,
    ledger: Ledger,
    language: str = "zh",
) -> pd.DataFrame:
    """Say what ``collect_hits`` would ask, without asking."""
    tasks, _ = _tasks(questions, histories, replies, judges, None, language, ledger)
    return count_calls((((task.judge.name,), task.first) for task in tasks), by=("rater",), ledger=ledger)


def _tasks(
    questions: pd.DataFrame,
    histories: pd.DataFrame,
    replies: pd.DataFrame,
    judges: Sequence[Model],
    responders: pd.DataFrame | None,
    language: str,
    ledger: Ledger,
) -> tuple[list[_Task], list[_Task]]:
    """Make a task for each judge and reply, sorted by question; those of replies that failed apart."""
    _check_language(language)
    check_judges(judges, 1)
    columns = ("item", "ability", "points", "content")
    rubric = {str(name): rows_of(items.sort_values("position"), columns) for name, items in questions.groupby("question_id")}
    about = {history["history_id"]: history for history in rows_of(histories, ("history_id", "dialogue_id", "turns"))}
    unknown = sorted(set(replies["history_id"]) - (set(rubric) & set(about)))
    if unknown:
        raise JudgeError(f"{len(unknown)} replies answer no question that is given, such as {unknown[0]!r}.")
    tasks: list[_Task] = []
    failed: list[_Task] = []
    shown = rows_of(replies.sort_values(["history_id", "reply_id"]), REPLY_COLUMNS)
    for judge in judges:
        flags = judge_flags(judge, responders, set(replies["responder"]))
        for reply in shown:
            history, items = about[reply["history_id"]], rubric[reply["history_id"]]
            task = _Task(judge, {**reply, "dialogue_id": history["dialogue_id"]}, history["turns"], items,
                         flags[reply["responder"]], language)  # fmt: skip
            if reply["state"] != "valid":
                failed.append(task)
                continue
            tasks.append(task)
    requests = settle_requests(((task.judge, task.asked) for task in tasks), ledger)
    return [replace(task, request=request) for task, request in zip(tasks, requests, strict=True)], failed


def _check_language(language: str) -> None:
    if language not in LANGUAGES:
        raise JudgeError(f"language={language!r} is not known; expected one of {', '.join(LANGUAGES)}.")


def _rows(task: _Task, first: Call, second: Call | None) -> list[dict[str, Any]]:
    """Read the answer that can be used, the first before the second."""
    for call, flags in ((first, task.flags), (second, (*task.flags, "repaired"))):
        if call is not None and call.status in ANSWERED:
            hits, fault = read_hits(call.text, len(task.items))
            if fault is None:
                states = ["abstained" if hit is None else "valid" for hit in hits]
                return _score_rows(task, flags, hits, states, call.call_id)
    state = first.status if first.status in ("refused", "error") else "unparsed"
    return _score_rows(task, task.flags, [None] * len(task.items), [state] * len(task.items), first.call_id)


def _score_rows(
    task: _Task, flags: Sequence[str], hits: Sequence[int | None], states: Sequence[str], call_id: str | None
) -> list[dict[str, Any]]:
    reply = task.reply
    about = {name: reply[name] for name in ("reply_id", "history_id", "dialogue_id", "responder", "simulated")}
    asked = {"rater": task.judge.name, "rater_kind": "model", "protocol": PROTOCOL, "group": None, "call_id": call_id}
    return [
        {
            **about,
            **asked,
            "dimension": item["ability"],
            "item": item["item"],
            "score": hit,
            "state": state,
            "flags": list(flags),
        }
        for item, hit, state in zip(task.items, hits, states, strict=True)
    ]


def _reply(history: Mapping[str, Any], model: Model, call: Call) -> dict[str, Any]:
    """Read a reply; an empty one is an error, not a reply."""
    text = call.text.strip()
    state = {"ok": "valid", "truncated": "valid", "refused": "refused"}.get(call.status, "error")
    state = "error" if state == "valid" and not text else state
    return {
        "reply_id": f"{history['history_id']}--{model.name}",
        "history_id": history["history_id"],
        "responder": model.name,
        "author_id": None,
        "text": text if state == "valid" else None,
        "ttft_ms": call.ttft_ms,
        "total_ms": call.total_ms,
        "prompt_tokens": call.prompt_tokens,
        "completion_tokens": call.completion_tokens,
        "cost_usd": call.cost_usd,
        "typing_ms": None,
        "flags": ["truncated"] if call.status == "truncated" else [],
        "state": state,
        "call_id": call.call_id,
        "simulated": history["simulated"],
    }
