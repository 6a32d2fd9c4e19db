"""Ask models questions and read their answers, alike for pairs, scores, labels and items."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Any, NamedTuple, Unpack

import pandas as pd

from heart_collect.calls.engine import Asking, ask_all
from heart_collect.calls.ledger import Ledger
from heart_collect.calls.models import Call, Model, Request
from heart_collect.calls.prices import bound, plan_call, supports_schema
from heart_collect.calls.rows import failed
from heart_collect.judging.prompts import Messages, Template
from heart_collect.judging.readings import Reading, was_cut

__all__ = ["Answer", "JudgeError", "Question"]

CHUNK = 2_000
#: Under this and a model's digest the ledger notes whether the model is asked with a JSON schema.
SCHEMA = "schema"
LETTER_OPTIONS = {"max_tokens": 1, "logprobs": True, "top_logprobs": 20}


class JudgeError(ValueError):
    """Replies cannot be put to judges as asked."""


class Question(NamedTuple):
    """One call: a judge, the row `about`, the replies `shown` in order, and the prompt template."""

    about: Mapping[Any, Any]
    judge: Model
    template: Template
    history: str
    shown: tuple[str, ...]
    flags: tuple[str, ...] = ()
    repeat: int = 0

    @property
    def messages(self) -> Messages:
        """The prompt."""
        return self.template.messages(self.history, self.shown)

    @property
    def reply_is_there(self) -> bool:
        """Whether what it is about can be shown; where a reply failed, nobody is asked about it."""
        return bool(self.about.get("state", "valid") == "valid")

    @property
    def in_json(self) -> bool:
        """Whether it is answered in JSON, which a schema may hold to its form."""
        return self.template.answer_format == "json"

    def request(self, *, schema: bool) -> Request:
        """Make the request."""
        options: dict[str, object] = {}
        if not self.in_json:
            options |= LETTER_OPTIONS
        elif not self.judge.limits_max_tokens:
            base, per_cell = self.template.answer_tokens
            options["max_tokens"] = base + per_cell * len(self.template.cells)
        if schema and self.in_json:
            what = {"name": self.template.title, "strict": True, "schema": self.template.schema}
            options["response_format"] = {"type": "json_schema", "json_schema": what}
        return Request(
            self.judge, self.messages, options, self.repeat, tag=str(self.about["history_id"])
        )

    def repair(self, request: Request, answer: str, fault: str) -> Request:
        """Ask once more, with what was wrong with the answer."""
        return replace(request, messages=(*request.messages, *self.template.again(answer, fault)))


@dataclass
class Answer:
    """The answer to a question, from one call, from two if asked again, or from none.

    None where there was no reply.
    """

    question: Question
    calls: Sequence[Call]

    @cached_property
    def first(self) -> tuple[list[Reading], str | None]:
        """The first answer's readings, and what is wrong with it."""
        return self.question.template.read(self.calls[0])

    def readings(self) -> list[tuple[Reading, Call | None, bool]]:
        """Read the answer, and its repair where the first answer could not be read.

        What was readable before stays.
        """
        if not self.calls:
            return [(Reading(self.question.about["state"]), None, False)] * len(
                self.question.template.cells
            )
        merged: list[tuple[Reading, Call | None, bool]] = [
            (reading, self.calls[0], False) for reading in self.first[0]
        ]
        for call in self.calls[1:]:
            again, _ = self.question.template.read(call)
            for position, reading in enumerate(again):
                if merged[position][0].state == "unparsed" and reading.state in (
                    "valid",
                    "abstained",
                ):
                    merged[position] = (reading, call, True)
        return merged


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pause Python's garbage collector while many small objects are made.

    It takes up to a third of the time at 42,000 verdicts.
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
    max_concurrency: int | None = None,
    **asking: Unpack[Asking],
) -> list[Answer]:
    """Ask what the ledger lacks, and ask once more for what cannot be read."""
    mode = asking.get("mode", "missing")
    if mode not in ("missing", "replay"):
        raise JudgeError(
            f"mode is {mode!r}, expected 'missing' or 'replay'; a plan says what would be asked."
        )
    answerable = [question for question in questions if question.reply_is_there]
    calls, missing = _look_up(answerable, ledger, again=mode != "replay")
    new: list[Call] = []
    if missing:
        if mode != "replay":
            judges = [answerable[n].judge for n in missing if answerable[n].in_json]
            note_schemas(judges, ledger)
        new = ask_all(
            list(missing.values()), ledger=ledger, max_concurrency=max_concurrency, **asking
        )
        calls |= zip(missing, new, strict=True)
    answers = [Answer(question, [calls[n]]) for n, question in enumerate(answerable)]
    unread = [
        one
        for one in answers
        if one.calls[0].status in one.question.template.repairable and one.first[1]
    ]
    first_requests = question_requests([answer.question for answer in unread], ledger)
    repairs = [
        (answer, answer.question.repair(request, answer.calls[0].text, str(answer.first[1])))
        for answer, request in zip(unread, first_requests, strict=True)
    ]
    if mode == "replay":  # takes only what was asked, so that a new parser needs no call
        known = ledger.find([request.key for _, request in repairs])
        repairs = [(answer, request) for answer, request in repairs if request.key in known]
    if repairs:
        paid_calls = asking.get("max_paid_calls")
        if paid_calls is not None:
            n_paid = len({call.call_id for call in new if call.cost_usd != 0})
            asking["max_paid_calls"] = max(paid_calls - n_paid, 0)
        repaired = ask_all(
            [request for _, request in repairs],
            ledger=ledger,
            max_concurrency=max_concurrency,
            **asking,
        )
        for (answer, _), call in zip(repairs, repaired, strict=True):
            answer.calls = [*answer.calls, call]
    if mode != "replay":
        _tell_of_cut_answers(answers)
    return [
        *answers,
        *(Answer(question, ()) for question in questions if not question.reply_is_there),
    ]


def _tell_of_cut_answers(answers: Sequence[Answer]) -> None:
    """Warn of judges whose answers ended before a verdict, and name the remedy."""
    n_asked: dict[str, int] = {}
    cut: dict[str, int] = {}
    for answer in answers:
        name, (readings, _) = answer.question.judge.name, answer.first
        unread = answer.question.in_json and any(
            reading.state == "unparsed" for reading in readings
        )
        n_asked[name] = n_asked.get(name, 0) + 1
        cut[name] = cut.get(name, 0) + (unread and was_cut(answer.calls[0]))
    for name, n in cut.items():
        if n:
            warnings.warn(
                f"{name}: {n} of {n_asked[name]} answers ended within a thought, or were cut off"
                " before they were whole; what they say is no verdict. If this judge thinks before"
                " it answers, give it more room (`max_tokens: 4000` under `options:`) or less to"
                " think (`reasoning_effort: low`). Either asks all its questions anew.",
                stacklevel=4,
            )


def count_calls(
    requests_by: Iterable[tuple[tuple[str, ...], Request]], *, by: Sequence[str], ledger: Ledger
) -> pd.DataFrame:
    """Estimate what requests would take, without asking."""
    rows: list[tuple[Any, ...]] = []
    requests_by = iter(requests_by)
    while chunk := list(islice(requests_by, CHUNK)):
        # what is damaged is an error, and asked again
        known = ledger.find([request.key for _, request in chunk])
        for who, request in chunk:
            call = (
                plan_call(request)
                if request.key not in known or failed(known[request.key])
                else None
            )
            takes: tuple[Any, ...] = (0, 0, 0.0, 0.0)
            if call is not None:
                takes = (call.prompt_tokens, call.completion_tokens, call.cost_usd, bound(request))
            rows.append((*who, 1, int(call is None), *takes))
    takes_of = ["prompt_tokens", "completion_tokens", "cost_usd", "at_most_usd"]
    table = pd.DataFrame(rows, columns=[*by, "n_calls", "n_recorded", *takes_of])
    table = table.astype({"cost_usd": float, "at_most_usd": float})
    # one unknown price leaves the sum unknown
    return table.groupby(list(by), sort=False).sum(skipna=False).reset_index()


def takes_schema(model: Model, ledger: Ledger) -> bool:
    """Check whether a model is asked with a JSON schema.

    By its settings, or the ledger's note, or else litellm's list.
    """
    if model.json_schema is not None:
        return model.json_schema
    noted = ledger.notes([f"{SCHEMA} {model.identity_digest}"])
    return "yes" in noted.values() if noted else supports_schema(model)


def question_requests(questions: Iterable[Question], ledger: Ledger) -> Iterator[Request]:
    """Build each request with a JSON schema or without.

    In the form in which it is recorded, or else its model's.
    """
    questions = iter(questions)
    while chunk := list(islice(questions, CHUNK)):
        judges = {
            (one.judge.identity_digest, one.judge.json_schema): one.judge
            for one in chunk
            if one.in_json
        }
        schemas = {who: takes_schema(judge, ledger) for who, judge in judges.items()}
        wanted = [
            one.in_json and schemas[one.judge.identity_digest, one.judge.json_schema]
            for one in chunk
        ]
        requests = [
            question.request(schema=schema) for question, schema in zip(chunk, wanted, strict=True)
        ]
        known = ledger.statuses([request.key for request in requests])
        others = {
            position: question.request(schema=not wanted[position])
            for position, question in enumerate(chunk)
            if question.in_json
            and question.judge.json_schema is None
            and requests[position].key not in known
        }
        recorded = ledger.statuses([request.key for request in others.values()])
        for position, request in enumerate(requests):
            yield (
                others[position]
                if position in others and others[position].key in recorded
                else request
            )


def note_schemas(models: Iterable[Model], ledger: Ledger) -> None:
    """Record in the ledger how models are asked from now on.

    A later litellm may list another answer.
    """
    schema_support = {
        model.identity_digest: takes_schema(model, ledger)
        for model in models
        if model.json_schema is None
    }
    ledger.note(
        {
            f"{SCHEMA} {digest}": "yes" if schema else "no"
            for digest, schema in schema_support.items()
        }
    )


@collector_paused()
def _look_up(
    questions: Sequence[Question], ledger: Ledger, *, again: bool
) -> tuple[dict[int, Call], dict[int, Request]]:
    """Find what is recorded, and keep the prompts of the rest only: they are long."""
    calls: dict[int, Call] = {}
    missing: dict[int, Request] = {}
    all_requests = question_requests(questions, ledger)
    for start in range(0, len(questions), CHUNK):
        requests = list(islice(all_requests, CHUNK))
        known = ledger.find([request.key for request in requests])
        for position, request in enumerate(requests, start):
            call = known.get(request.key)
            if call is None or (again and call.status == "error"):
                missing[position] = request
            else:
                calls[position] = call
    return calls, missing
