"""Put questions to judges: the same steps for pairs of replies and for one reply alone."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd

from heart_utils.collect.asking import ask_all
from heart_utils.collect.models import Call, Model, Request, supports_schema
from heart_utils.collect.prices import plan_call
from heart_utils.collect.prompts import Form, Messages, repair_messages
from heart_utils.collect.readings import Reading, read_call

if TYPE_CHECKING:
    from heart_utils.collect.ledger import Ledger

__all__ = [
    "Answer",
    "Question",
    "ask_questions",
    "ask_repairs",
    "collector_paused",
    "count_calls",
    "count_questions",
    "settle_schema",
    "takes_schema",
]

ROOM = 200
"""Tokens for an answer in JSON, whatever it is about."""
ROOM_PER_DIMENSION = 120
CHUNK = 2_000
LOOKED_AT = 40
"""So many of a judge's questions, spread over all, tell how it was asked before."""
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
    def asker(self) -> tuple[str, str]:
        """The judge, as the tables tell judges apart: its name and its answer format."""
        return self.judge.name, self.form.answer_format

    def request(self, *, schema: bool) -> Request:
        """Make the request.

        Parameters
        ----------
        schema : bool
            Whether the judge's server holds its answer to a JSON schema.

        Returns
        -------
        Request
            With room for the answer, where the judge's own options leave that open.
        """
        return Request(self.judge, self.messages, self._options(schema), self.repeat, tag=str(self.about["history_id"]))

    def repair(self, answer: str, fault: str, *, schema: bool) -> Request:
        """Ask once more, with what was wrong with the answer.

        Parameters
        ----------
        answer, fault : str
            What came, and what was wrong with it.
        schema : bool
            As in :meth:`request`.

        Returns
        -------
        Request
            The question, the answer, and the request to give it in the form.
        """
        messages = repair_messages(self.messages, answer, fault, self.form)
        return replace(self.request(schema=schema), messages=messages)

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
        """Read the answer; what its repair makes readable counts, and what was readable before stands.

        Returns
        -------
        list of (Reading, Call, bool)
            For each dimension of the form, in its order: the reading, the call it is from, and whether that was a repair.
        """
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

    Nothing made here forms a cycle, but the collector would go through hundreds of thousands of
    living objects again and again: up to a third of the time at 42,000 verdicts.

    Yields
    ------
    None
        Until the block ends; then it runs again if it ran before.

    Examples
    --------
    >>> import gc
    >>> with collector_paused():
    ...     gc.isenabled()
    False
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
    """Ask what the ledger lacks, and ask once more for what cannot be read.

    Parameters
    ----------
    questions : sequence of Question
        Best sorted by history, so that a server's prefix cache serves them.
    ledger : Ledger
        Where calls are kept.
    mode, max_concurrency, budget_usd, max_paid_calls, scheduler, progress
        As in :func:`heart_utils.collect.asking.ask_all`. In mode ``"replay"`` a repair question
        that was never asked stays unasked, so that a new parser needs no call.

    Returns
    -------
    list of Answer
        One for each question, in their order.

    Examples
    --------
    >>> from heart_utils.collect.models import Model
    >>> from heart_utils.collect.ledger import open_ledger
    >>> from heart_utils.collect.score import plan_score_questions
    >>> from heart_utils.collect.sources import load_histories, load_replies
    >>> judge = Model("judge", "openai/gpt-4o", options={"mock_response": "Fine."})  # litellm answers itself
    >>> questions = plan_score_questions(load_histories("sample"), load_replies("sample").head(1), [judge])
    >>> (answer,) = ask_questions(questions, ledger=open_ledger("sqlite://"), progress=False)
    >>> len(answer.calls), answer.readings()[0][0].state  # asked once more, and still not to be read
    (2, 'unparsed')
    """
    asking: dict[str, Any] = {"ledger": ledger, "mode": mode, "max_concurrency": max_concurrency, "budget_usd": budget_usd}
    asking |= {"scheduler": scheduler, "progress": progress}
    schemas = takes_schema(questions, ledger)
    calls, missing = _look_up(questions, schemas, ledger, again=mode != "replay")
    new = ask_all(list(missing.values()), max_paid_calls=max_paid_calls, **asking) if missing else []
    calls |= zip(missing, new, strict=True)
    answers = [Answer(question, (calls[place],)) for place, question in enumerate(questions)]
    repairs = {
        place: answer.question.repair(answer.calls[0].text, answer.first[1], schema=schemas[answer.question.asker])
        for place, answer in enumerate(answers)
        if answer.calls[0].status == "ok" and answer.first[1] is not None
    }
    if max_paid_calls is not None:
        paid = {call.call_id for call in new if call.cost_usd != 0}
        max_paid_calls = max(max_paid_calls - len(paid), 0)
    for place, call in ask_repairs(repairs, max_paid_calls=max_paid_calls, **asking).items():
        answers[place] = Answer(answers[place].question, (*answers[place].calls, call))
    return answers


def ask_repairs(repairs: Mapping[int, Request], *, ledger: Ledger, mode: str, **asking: Any) -> dict[int, Call]:
    """Ask once more what could not be read; a replay takes only what was asked, so that a new parser needs no call.

    Parameters
    ----------
    repairs : mapping of int to Request
        Place of the first question -> the second.
    ledger : Ledger
        Where calls are kept.
    mode, **asking
        As in :func:`heart_utils.collect.asking.ask_all`.

    Returns
    -------
    dict of int to Call
        Place -> what came; without the places that a replay has no answer for.

    Examples
    --------
    >>> from heart_utils.collect.models import Model, Request
    >>> from heart_utils.collect.ledger import open_ledger
    >>> ask = Request(Model("judge", "openai/gpt-4o"), ({"role": "user", "content": "Hello"},))
    >>> ask_repairs({7: ask}, ledger=open_ledger("sqlite://"), mode="replay")  # it was never asked
    {}
    """
    if mode == "replay":
        known = ledger.find([request.key for request in repairs.values()])
        repairs = {place: request for place, request in repairs.items() if request.key in known}
    calls = ask_all(list(repairs.values()), ledger=ledger, mode=mode, **asking) if repairs else []
    return dict(zip(repairs, calls, strict=True))


def count_questions(questions: Sequence[Question], *, ledger: Ledger) -> pd.DataFrame:
    """Say what asking would take, judge by judge, without asking.

    Parameters
    ----------
    questions : sequence of Question
        What would be asked.
    ledger : Ledger
        Where calls are kept.

    Returns
    -------
    pandas.DataFrame
        One row per judge, protocol and answer format, as :func:`count_calls` gives it.

    Examples
    --------
    >>> from heart_utils.collect.models import Model
    >>> from heart_utils.collect.ledger import open_ledger
    >>> from heart_utils.collect.score import plan_score_questions
    >>> from heart_utils.collect.sources import load_histories, load_replies
    >>> judge = Model("judge", "openai/gpt-4o")
    >>> questions = plan_score_questions(load_histories("sample"), load_replies("sample"), [judge])
    >>> count_questions(questions, ledger=open_ledger("sqlite://"))[["rater", "protocol", "n_calls"]].values.tolist()
    [['judge', 'likert', 36]]
    """
    schemas = takes_schema(questions, ledger)
    asked = (
        (
            (question.judge.name, question.form.protocol.name, question.form.answer_format),
            question.request(schema=schemas[question.asker]),
        )
        for question in questions
    )
    return count_calls(asked, by=("rater", "protocol", "answer_format"), ledger=ledger)


def count_calls(asked: Iterable[tuple[tuple[str, ...], Request]], *, by: Sequence[str], ledger: Ledger) -> pd.DataFrame:
    """Say what requests would take, without asking.

    Parameters
    ----------
    asked : iterable of tuple
        Each request behind who is asked, in the words of `by`; looked at some at a time, for prompts are long.
    by : sequence of str
        Columns that tell who is asked.
    ledger : Ledger
        Where calls are kept.

    Returns
    -------
    pandas.DataFrame
        One row for each who is asked: ``n_calls``, ``n_recorded`` of them, and of the others ``prompt_tokens``,
        ``completion_tokens`` (both estimated; answers are taken to fill their room) and ``cost_usd`` at list price,
        empty where no price is known. What failed before is asked again. Repair questions come on top.

    Examples
    --------
    >>> from heart_utils.collect.models import Model, Request
    >>> from heart_utils.collect.ledger import open_ledger
    >>> known = Model("known", "openai/own", price_prompt=1, price_completion=2, options={"max_tokens": 100})
    >>> models, question = (known, Model("unknown", "x/y")), ({"role": "user", "content": "word" * 100},)
    >>> asked = [((model.name,), Request(model, question)) for model in models]
    >>> count_calls(asked, by=("rater",), ledger=open_ledger("sqlite://"))[["rater", "n_calls", "cost_usd"]].values.tolist()
    [['known', 1, 0.000316], ['unknown', 1, nan]]
    """
    rows: list[tuple[Any, ...]] = []
    asked = iter(asked)
    while chunk := list(islice(asked, CHUNK)):
        statuses = ledger.statuses([request.key for _, request in chunk])
        for who, request in chunk:
            call = plan_call(request) if statuses.get(request.key, "error") == "error" else None
            takes = (0, 0, 0.0) if call is None else (call.prompt_tokens or 0, call.completion_tokens or 0, call.cost_usd)
            rows.append((*who, call is None, *takes))
    names = [*by, "recorded", "prompt_tokens", "completion_tokens", "cost_usd"]
    table = pd.DataFrame(rows, columns=names).astype({"cost_usd": float})
    return (
        table.groupby(list(by), sort=False)
        .agg(
            n_calls=("recorded", "size"),
            n_recorded=("recorded", "sum"),
            prompt_tokens=("prompt_tokens", "sum"),
            completion_tokens=("completion_tokens", "sum"),
            cost_usd=("cost_usd", lambda costs: costs.sum(skipna=False)),  # one unknown price leaves the sum unknown
        )
        .reset_index()
    )


def takes_schema(questions: Sequence[Question], ledger: Ledger) -> dict[tuple[str, str], bool]:
    """Tell which judges are asked with a JSON schema.

    Parameters
    ----------
    questions : sequence of Question
        What is asked.
    ledger : Ledger
        What it already holds of a judge decides before litellm's list does: that list changes
        between versions, and recorded calls must be found again.

    Returns
    -------
    dict
        From a judge's name and answer format to whether its requests carry a schema.

    Examples
    --------
    >>> from heart_utils.collect.models import Model
    >>> from heart_utils.collect.ledger import open_ledger
    >>> from heart_utils.collect.score import plan_score_questions
    >>> from heart_utils.collect.sources import load_histories, load_replies
    >>> panel = [Model("gpt", "openai/gpt-4o"), Model("own", "hosted_vllm/my-model")]
    >>> takes_schema(plan_score_questions(load_histories("sample"), load_replies("sample"), panel), open_ledger("sqlite://"))
    {('gpt', 'json'): True, ('own', 'json'): False}
    """
    of_asker: dict[tuple[str, str], list[Question]] = {}
    for question in questions:
        of_asker.setdefault(question.asker, []).append(question)
    return {asker: asker[1] == "json" and _takes_schema(asked, ledger) for asker, asked in of_asker.items()}


def _takes_schema(questions: Sequence[Question], ledger: Ledger) -> bool:
    some = questions[:: max(1, len(questions) // LOOKED_AT)]
    return settle_schema([(question.request(schema=True), question.request(schema=False)) for question in some], ledger)


def settle_schema(asked: Sequence[tuple[Request, Request]], ledger: Ledger) -> bool:
    """Tell whether a model is asked with a JSON schema; what is recorded decides before litellm's list, which changes.

    Parameters
    ----------
    asked : sequence of tuple of Request
        Some of what one model is asked, each with a schema and without.
    ledger : Ledger
        Where calls are kept.

    Returns
    -------
    bool
        As most of the recorded calls among these were made; if there are none, what litellm says of the model.

    Examples
    --------
    >>> from dataclasses import replace
    >>> from heart_utils.collect.models import Model, Request
    >>> from heart_utils.collect.ledger import open_ledger
    >>> ask = Request(Model("gpt", "openai/gpt-4o"), ({"role": "user", "content": "Hello"},))
    >>> form = {"response_format": {"type": "json_object"}}
    >>> settle_schema([(replace(ask, options=form), ask)], open_ledger("sqlite://"))  # nothing is recorded: as litellm says
    True
    """
    keys = {request.key: schema for both in asked for schema, request in zip((True, False), both, strict=True)}
    recorded = Counter(keys[key] for key in ledger.find(list(keys)))
    return recorded.most_common(1)[0][0] if recorded else supports_schema(asked[0][0].model)


@collector_paused()
def _look_up(
    questions: Sequence[Question], schemas: dict[tuple[str, str], bool], ledger: Ledger, *, again: bool
) -> tuple[dict[int, Call], dict[int, Request]]:
    """Find what is recorded, and keep the prompts of the rest only: they are long."""
    calls: dict[int, Call] = {}
    missing: dict[int, Request] = {}
    for start in range(0, len(questions), CHUNK):
        requests = [question.request(schema=schemas[question.asker]) for question in questions[start : start + CHUNK]]
        known = ledger.find([request.key for request in requests])
        for place, request in enumerate(requests, start):
            call = known.get(request.key)
            if call is None or (again and call.status == "error"):
                missing[place] = request
            else:
                calls[place] = call
    return calls, missing
