"""Put questions to judges: the same steps for pairs of replies and for one reply alone."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd

from heart_utils.calls.asking import ask_all
from heart_utils.calls.models import Call, Model, Request, supports_schema
from heart_utils.calls.prices import bound, plan_call
from heart_utils.judging.prompts import Form, Messages, repair_messages
from heart_utils.judging.readings import Reading, read_call

if TYPE_CHECKING:
    from heart_utils.calls.ledger import Ledger

__all__ = ["Answer", "Question"]

ROOM = 200
"""Tokens for an answer in JSON, whatever it is about."""
ROOM_PER_DIMENSION = 120
CHUNK = 2_000
SCHEMA = "schema"
"""Under this and a model's digest the ledger notes whether the model is asked with a JSON schema."""
LETTER_OPTIONS = {"max_tokens": 1, "logprobs": True, "top_logprobs": 20}


class Question(NamedTuple):
    """One call: what one judge is asked about one comparison, or one reply.

    Attributes
    ----------
    about : mapping
        The row that is judged, as its table has it, and what its verdicts need of the history.
    judge : Model
        Who is asked.
    form : Form
        Which dimensions, in which order, and how to answer.
    history : str
        The conversation as shown.
    shown : tuple of str
        The replies in the order shown.
    flags : tuple of str
        For the verdicts or scores.
    repeat : int
        The number of a repeated call.
    """

    about: Mapping[Any, Any]
    judge: Model
    form: Form
    history: str
    shown: tuple[str, ...]
    flags: tuple[str, ...]
    repeat: int

    @property
    def messages(self) -> Messages:
        """The prompt."""
        return self.form.messages(self.history, self.shown)

    @property
    def in_json(self) -> bool:
        """Whether it is answered in JSON, which a schema may hold to its form."""
        return self.form.answer_format == "json"

    def request(self, *, schema: bool) -> Request:
        """Make the request."""
        return Request(self.judge, self.messages, self._options(schema), self.repeat, tag=str(self.about["history_id"]))

    def repair(self, request: Request, answer: str, fault: str) -> Request:
        """Ask once more, with what was wrong with the answer."""
        messages = repair_messages(self.messages, answer, fault, self.form)
        return replace(request, messages=messages)

    def _options(self, schema: bool) -> dict[str, Any]:
        if self.form.answer_format == "logprob":
            return LETTER_OPTIONS
        options: dict[str, Any] = {}
        if not self.judge.limits_room:
            options["max_tokens"] = ROOM + ROOM_PER_DIMENSION * len(self.form.dimensions)
        if schema:
            what = {"name": "judgement", "strict": True, "schema": self.form.schema}
            options["response_format"] = {"type": "json_schema", "json_schema": what}
        return options


@dataclass(frozen=True)
class Answer:
    """What a question was answered.

    Attributes
    ----------
    question : Question
        What was asked.
    calls : tuple of Call
        One, or two where the first answer had to be asked for again.
    """

    question: Question
    calls: tuple[Call, ...]

    @cached_property
    def first(self) -> tuple[list[Reading], str | None]:
        """The first answer's readings, and what is wrong with it."""
        return read_call(self.calls[0], self.question.form)

    def readings(self) -> list[tuple[Reading, Call, bool]]:
        """Read the answer; what its repair makes readable counts, and what was readable before stands."""
        merged = [(reading, self.calls[0], False) for reading in self.first[0]]
        for call in self.calls[1:]:
            again, _ = read_call(call, self.question.form)
            for place, reading in enumerate(again):
                if merged[place][0].state == "unparsed" and reading.state in ("valid", "abstained"):
                    merged[place] = (reading, call, True)
        return merged


@contextmanager
def collector_paused() -> Iterator[None]:
    """Keep Python's cycle collector still while many small objects are made.

    Nothing made here forms a cycle, but the collector would go through hundreds of thousands of living objects again
    and again: up to a third of the time at 42,000 verdicts.
    """
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def ask_questions(
    questions: Sequence[Question],
    *,
    ledger: Ledger,
    mode: str = "missing",
    max_concurrency: int | None = None,
    budget_usd: float | None = None,
    max_paid_calls: int | None = None,
    scheduler: str | None = None,
    progress: bool = True,
) -> list[Answer]:
    """Ask what the ledger lacks, and ask once more for what cannot be read."""
    asking: dict[str, Any] = {"ledger": ledger, "mode": mode, "max_concurrency": max_concurrency, "budget_usd": budget_usd}
    asking |= {"scheduler": scheduler, "progress": progress}
    calls, missing = _look_up(questions, ledger, again=mode != "replay")
    if missing and mode != "replay":
        note_schemas([questions[place].judge for place in missing if questions[place].in_json], ledger)
    new = ask_all(list(missing.values()), max_paid_calls=max_paid_calls, **asking) if missing else []
    calls |= zip(missing, new, strict=True)
    answers = [Answer(question, (calls[place],)) for place, question in enumerate(questions)]
    unread = {place: answer for place, answer in enumerate(answers) if answer.calls[0].status == "ok" and answer.first[1]}
    asked = question_requests([answer.question for answer in unread.values()], ledger)
    repairs = {
        place: answer.question.repair(request, answer.calls[0].text, str(answer.first[1]))
        for (place, answer), request in zip(unread.items(), asked, strict=True)
    }
    if max_paid_calls is not None:
        paid = {call.call_id for call in new if call.cost_usd != 0}
        max_paid_calls = max(max_paid_calls - len(paid), 0)
    for place, call in ask_repairs(repairs, max_paid_calls=max_paid_calls, **asking).items():
        answers[place] = Answer(answers[place].question, (*answers[place].calls, call))
    return answers


def ask_repairs(repairs: Mapping[int, Request], *, ledger: Ledger, mode: str, **asking: Any) -> dict[int, Call]:
    """Ask once more what could not be read; a replay takes only what was asked, so that a new parser needs no call."""
    if mode == "replay":
        known = ledger.find([request.key for request in repairs.values()])
        repairs = {place: request for place, request in repairs.items() if request.key in known}
    calls = ask_all(list(repairs.values()), ledger=ledger, mode=mode, **asking) if repairs else []
    return dict(zip(repairs, calls, strict=True))


def question_requests(questions: Sequence[Question], ledger: Ledger) -> Iterator[Request]:
    """Make the request of each question, as ``settle_requests`` settles its form."""
    return settle_requests(((q.judge if q.in_json else None, partial(_ask, q)) for q in questions), ledger)


def _ask(question: Question, schema: bool) -> Request:
    return question.request(schema=schema)


def count_questions(questions: Sequence[Question], *, ledger: Ledger) -> pd.DataFrame:
    """Say what asking would take, judge by judge, without asking."""
    asked = (
        ((question.judge.name, question.form.protocol.name, question.form.answer_format), request)
        for question, request in zip(questions, question_requests(questions, ledger), strict=True)
    )
    return count_calls(asked, by=("rater", "protocol", "answer_format"), ledger=ledger)


def count_calls(asked: Iterable[tuple[tuple[str, ...], Request]], *, by: Sequence[str], ledger: Ledger) -> pd.DataFrame:
    """Say what requests would take, without asking."""
    rows: list[tuple[Any, ...]] = []
    asked = iter(asked)
    while chunk := list(islice(asked, CHUNK)):
        statuses = ledger.statuses([request.key for _, request in chunk])
        for who, request in chunk:
            call = plan_call(request) if statuses.get(request.key, "error") == "error" else None
            takes: tuple[Any, ...] = (0, 0, 0.0, 0.0)
            if call is not None:
                takes = (call.prompt_tokens or 0, call.completion_tokens or 0, call.cost_usd, bound(request))
            rows.append((*who, call is None, *takes))
    names = [*by, "recorded", "prompt_tokens", "completion_tokens", "cost_usd", "at_most_usd"]
    table = pd.DataFrame(rows, columns=names).astype({"cost_usd": float, "at_most_usd": float})
    return (
        table.groupby(list(by), sort=False)
        .agg(
            n_calls=("recorded", "size"),
            n_recorded=("recorded", "sum"),
            prompt_tokens=("prompt_tokens", "sum"),
            completion_tokens=("completion_tokens", "sum"),
            cost_usd=("cost_usd", _sum_known),
            at_most_usd=("at_most_usd", _sum_known),
        )
        .reset_index()
    )


def _sum_known(costs: pd.Series) -> float:
    return float(costs.sum(skipna=False))  # one unknown price leaves the sum unknown


def takes_schema(model: Model, ledger: Ledger) -> bool:
    """Tell whether a model is asked with a JSON schema: as its settings say, or the ledger's note, or else litellm's list."""
    if model.json_schema is not None:
        return model.json_schema
    noted = ledger.notes([f"{SCHEMA} {model.identity_digest}"])
    return "yes" in noted.values() if noted else supports_schema(model)


def settle_requests(asked: Iterable[tuple[Model | None, Callable[[bool], Request]]], ledger: Ledger) -> Iterator[Request]:
    """Make each request with a JSON schema or without: in the form in which it is recorded, or else its model's."""
    asked = iter(asked)
    schemas: dict[tuple[str, bool | None], bool] = {}
    while chunk := list(islice(asked, CHUNK)):
        wanted = []
        for model, _ in chunk:
            who = None if model is None else (model.identity_digest, model.json_schema)
            if model is not None and who is not None and who not in schemas:
                schemas[who] = takes_schema(model, ledger)
            wanted.append(who is not None and schemas[who])
        requests = [make(schema) for schema, (_, make) in zip(wanted, chunk, strict=True)]
        known = ledger.statuses([request.key for request in requests])
        others = {
            place: make(not wanted[place])
            for place, (model, make) in enumerate(chunk)
            if model is not None and model.json_schema is None and requests[place].key not in known
        }
        there = ledger.statuses([request.key for request in others.values()])
        for place, request in enumerate(requests):
            yield others[place] if place in others and others[place].key in there else request


def note_schemas(models: Iterable[Model], ledger: Ledger) -> None:
    """Note in the ledger how models are asked from now on, whatever a later litellm says of them."""
    told = {model.identity_digest: takes_schema(model, ledger) for model in models if model.json_schema is None}
    notes = {f"{SCHEMA} {digest}": "yes" if schema else "no" for digest, schema in told.items()}
    ledger.note(notes)


@collector_paused()
def _look_up(questions: Sequence[Question], ledger: Ledger, *, again: bool) -> tuple[dict[int, Call], dict[int, Request]]:
    """Find what is recorded, and keep the prompts of the rest only: they are long."""
    calls: dict[int, Call] = {}
    missing: dict[int, Request] = {}
    asked = question_requests(questions, ledger)
    for start in range(0, len(questions), CHUNK):
        requests = list(islice(asked, CHUNK))
        known = ledger.find([request.key for request in requests])
        for place, request in enumerate(requests, start):
            call = known.get(request.key)
            if call is None or (again and call.status == "error"):
                missing[place] = request
            else:
                calls[place] = call
    return calls, missing
