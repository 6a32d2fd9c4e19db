"""Asking models: from the ledger what it has, from them what it lacks. Every call goes through ``ask_all``.

Each model has a queue: what waits, what is claimed, and how fast its provider wants to be asked. All queues run on one
event loop; answers are committed together, a few times a second.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import re
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from itertools import pairwise
from typing import Any, TypeVar

from heart_utils.calls.ledger import Ledger, LedgerError, explain_miss, open_ledger
from heart_utils.calls.models import (
    ROOM_OPTIONS,
    Call,
    Model,
    ModelError,
    Request,
    event_loop,
    forgo_records,
    key_fault,
    key_for,
    load_litellm,
)
from heart_utils.calls.outcomes import CUT, Answer, Failure, Limit, failure_of, read_plain, read_stream, redact, secrets_of
from heart_utils.calls.prices import (
    MAX_GROWTH,
    BudgetError,
    answer_bound,
    check_money,
    cost,
    estimate,
    plan_call,
    price,
    reserve,
    text_bound,
)

__all__ = ["Lane"]

MODES = ("replay", "missing", "dry", "batch")
ROUNDS = 3  #: So often is asked again what is not in the ledger afterwards: another program may have damaged or deleted it.

MAX_CLAIM = 256

DEAF = 5  #: So many attempts in a row without any answer, and a model is out: one call at a time looks whether it is back.

UNHEARD_S = 60.0
"""A model that never answered anything on this ledger is given up after so long: its server is not out, it is wrong."""

MARKED = re.compile(r"(anthropic|bedrock|vertex_ai)/.*claude")
"""Models whose providers keep of a prompt only what is marked; OpenAI's and Gemini's keep what repeats by themselves."""

KEPT_FROM = 4096  #: Characters of a prompt from which Anthropic may keep it: at least 1,024 tokens.

_SILENT: dict[tuple[str, str | None], float] = {}
"""Since when models were silent that were given up in this process: its next step does not wait as long once more."""

MIN_LOOK_S, MAX_LOOK_S = 0.5, 30.0
MIN_GAP_S, MAX_GAP_S = 0.005, 10.0
SLOWER, FASTER = 1.1, 0.98
"""What a call that was turned away, and one that was answered, do to the gap between calls. They balance where one in six
is turned away."""


@dataclass
class Lane:
    """One model's queue; it changes as the work goes on.

    Requests are `waiting` until this process claims them, then `ready`; `elsewhere` are those that another process
    claimed. `closed` says why nothing more is asked. `failures` are attempts in a row without any answer, the first of
    which ended at `silent_since`. `turned_down` are requests that the provider will not answer: if the first few all are,
    the fault is in the settings.
    """

    model: Model
    requests: list[Request]
    batch: int
    waiting: deque[Request]
    ready: deque[Request] = field(default_factory=deque)
    elsewhere: list[Request] = field(default_factory=list)
    refill: asyncio.Task[None] | None = None
    closed: str | None = None
    answers: int = 0
    failures: int = 0
    silent_since: float | None = None
    said: str = ""
    heard: bool = False
    turned_down: int = 0
    limits: tuple[Limit, ...] = ()
    held_until: float = 0.0
    _gap_s: float = 0.0
    _look_at: float = 0.0

    @property
    def rest(self) -> str:
        """The name under which all processes keep until when nothing is asked."""
        return f"{self.model.identity_digest} rest"

    @property
    def out(self) -> bool:
        """Whether nothing is answered at present."""
        return self.failures >= DEAF

    def marks(self, request: Request) -> list[int]:
        """Tell how much of a request its neighbours in the queue ask too, where a provider keeps only what is marked."""
        if not MARKED.match(self.model.model):
            return []
        at = self.place[request.key]
        beside = [self.requests[near] for near in (at - 1, at + 1) if 0 <= near < len(self.requests)]
        ends = {shared_length(request, other) for other in beside}
        whole = len(request.messages[-1]["content"])
        return sorted(end for end in ends if KEPT_FROM <= end < whole)

    @cached_property
    def secrets(self) -> list[str]:
        """What may not stand in a recorded answer; looked up once a queue, since an environment may be long."""
        return secrets_of(self.model)

    @cached_property
    def place(self) -> dict[str, int]:
        """The place of each request in the queue."""
        return {request.key: at for at, request in enumerate(self.requests)}

    def silence(self, clock: float) -> float:
        """Tell for how many seconds nothing was answered."""
        return 0.0 if self.silent_since is None else clock - self.silent_since

    def answered(self) -> None:
        """Note an answer: the model is there, and may be asked a little faster."""
        self.answers, self.failures, self.silent_since = self.answers + 1, 0, None
        _SILENT.pop((self.model.identity, self.model.api_base), None)
        self._gap_s = self._gap_s * FASTER if self._gap_s > MIN_GAP_S else 0.0

    def failed(self, words: str, clock: float, *, throttled: bool) -> None:
        """Note an attempt without an answer; if the model was asked too fast, it is asked a little slower."""
        if throttled and not self.out:
            self._gap_s = min(MAX_GAP_S, max(MIN_GAP_S, self._gap_s) * SLOWER)
        self.failures, self.said = self.failures + 1, words
        if self.silent_since is None:
            self.silent_since = clock
        if self.failures == DEAF:
            self._look_at = clock + MIN_LOOK_S

    def look(self, clock: float) -> float:
        """Tell how many seconds a call waits while the model is out; 0 lets this one look, and no other for a while.

        The pauses are a quarter of the silence so far, so they grow with it.
        """
        if clock < self._look_at:
            return self._look_at - clock
        self._look_at = clock + min(MAX_LOOK_S, max(MIN_LOOK_S, self.silence(clock) / 4)) * random.uniform(0.8, 1.2)
        return 0.0

    def places(self, request: Request) -> dict[str, float]:
        """Give the queues that all processes keep of this model, and how many seconds of each a request takes up.

        Requests are evenly spaced, never in bursts, so that no minute of any beginning has more than the limits
        allow. What a provider's headers leave is spread over the time until it is full again; that ends at its own
        pace, with half of the limit left.
        """
        if not (self.limits or self._gap_s or self.model.requests_per_minute or self.model.tokens_per_minute):
            return {}
        model, places, plan = self.model, {}, plan_call(request)
        tokens = sum(filter(None, (plan.prompt_tokens, plan.completion_tokens)))
        if model.requests_per_minute:
            places["requests"] = 60 / model.requests_per_minute
        if model.tokens_per_minute:
            places["tokens"] = 60 * tokens / model.tokens_per_minute
        gaps = [limit.reset_s * (1 if limit.of == "requests" else tokens) / limit.left for limit in self.limits if limit.left]
        gap = min(MAX_GAP_S, max([self._gap_s, *gaps]))
        if gap >= MIN_GAP_S:
            places["pace"] = gap
        return {f"{model.identity_digest} {name}": seconds for name, seconds in places.items()}


def make_lanes(requests: Sequence[Request], max_concurrency: int | None) -> list[Lane]:
    """Sort requests into one queue a model, each in the order it came."""
    by_model: dict[str, list[Request]] = {}
    for request in requests:
        by_model.setdefault(request.model.name + request.model.identity, []).append(request)
    lanes = []
    for queue in by_model.values():
        model = queue[0].model
        batch = min(MAX_CLAIM, model.max_concurrency, max_concurrency or MAX_CLAIM)
        lanes.append(Lane(model, queue, batch, deque(queue), silent_since=_SILENT.get((model.identity, model.api_base))))
    return lanes


FIRST_PAUSE_S = 0.5
MAX_PAUSE_S = 30.0

_WARM: set[str] = set()

_WHOLE: set[str] = set()
"""Identities of models whose servers do not stream: they are asked for whole answers, and no first text is timed."""


async def attempt(request: Request, room: int, address: str | None, marks: Sequence[int] = ()) -> Answer | Failure:
    """Ask once."""
    started, longest = time.perf_counter(), text_bound(request)
    streams = request.stream and request.model.identity not in _WHOLE
    try:
        async with asyncio.timeout(request.model.timeout_s):
            response = await _send(request, room, address, streams, marks)
            if not streams:
                return read_plain(response, started, longest)
            answer = await read_stream(response, started, longest)
    except Exception as error:
        failure = failure_of(error, request)
        if streams and failure.kind == "never" and re.search(r"\bstream", failure.words, re.I):
            _WHOLE.add(request.model.identity)
            return replace(failure, kind="again")
        if request.stream and not streams:
            _WHOLE.discard(request.model.identity)  # it does not answer in this way either
        return failure
    if not (answer.text or answer.refused) and not _is_stream(response):
        _WHOLE.add(request.model.identity)
        return Failure("again", "the server did not stream its answer", billed=True)
    return answer


def _is_stream(response: Any) -> bool:
    """Tell whether a server said that it streams; one that does not say is believed to."""
    headers = getattr(response, "_response_headers", None) or {}
    return "event-stream" in str(headers.get("content-type", "event-stream")).lower()


TOLD: tuple[str, ...] = ("finish_reason", "logprobs", "ttft_ms", "total_ms", "prompt_tokens", "completion_tokens")
TOLD = (*TOLD, "served_model", "fingerprint", "cached_tokens")  #: What a call keeps of an answer as it is.


def spent(request: Request, answer: Answer) -> float | None:
    """Price an answer by the tokens counted, or by an estimate where the provider counted none."""
    if None in (answer.prompt_tokens, answer.completion_tokens):
        return estimate(request, answer.text)
    return cost(request.model, answer.prompt_tokens, answer.completion_tokens, answer.written_tokens)


def answered_call(
    request: Request, status: str, answer: Answer, secrets: Sequence[str], *, attempts: int, in_flight: int, usd: float
) -> Call:
    """Make the call that is recorded of an answer."""
    counted = None not in (answer.prompt_tokens, answer.completion_tokens)
    told: dict[str, Any] = {name: getattr(answer, name) for name in TOLD} | {"text": redact(answer.text, secrets)}
    told |= {"cost_usd": None if price(request.model) is None else usd, "estimated": None if counted else True}
    return Call(request.key, status, attempts=attempts, in_flight=in_flight, **told)


def backoff(n: int, after_s: float | None) -> float:
    """Give a pause that doubles, with jitter so that calls do not come back together."""
    if after_s is not None:
        return after_s + random.uniform(0, 0.1 + after_s / 10)
    return min(MAX_PAUSE_S, FIRST_PAUSE_S * 2.0 ** (n - 1)) * random.uniform(0.5, 1.5)


async def warm_up(name: str) -> None:
    """Let litellm load what a model's calls need: one it answers itself, one to an address where nobody answers.

    Else it does so in the first call, which takes a second or two: the time to the first text of the first reply
    would be litellm's and not the model's.
    """
    nowhere = {"api_base": "http://127.0.0.1:9/v1", "api_key": "none", "timeout": 5, "num_retries": 0, "max_retries": 0}
    for mock in () if name in _WARM else ({"mock_response": "Yes."}, {}):
        with suppress(Exception):
            messages = [{"role": "user", "content": "."}]
            async for _ in await load_litellm().acompletion(model=name, messages=messages, stream=True, **nowhere, **mock):
                pass
    _WARM.add(name)


async def _send(request: Request, room: int, address: str | None, streams: bool, marks: Sequence[int]) -> Any:
    model, sampling = request.model, request.sampling
    if room != answer_bound(request):
        sampling["max_completion_tokens" if "max_completion_tokens" in sampling else "max_tokens"] = room
    if streams:
        sampling |= {"stream": True, "stream_options": {"include_usage": True}}
    where = address if model.embedded else model.api_base
    fault = key_fault(model)
    if fault is not None:
        raise load_litellm().exceptions.AuthenticationError(fault, model.model.split("/")[0], model.model)
    return await load_litellm().acompletion(
        model=model.model,
        messages=marked(request.messages, marks),
        api_base=where,
        api_key=key_for(model, where),
        timeout=model.timeout_s + 5,
        num_retries=0,  # litellm's own retries do not wait as told, and nobody would count them
        max_retries=0,
        **sampling,
    )


def marked(messages: Sequence[Mapping[str, str]], marks: Sequence[int]) -> list[dict[str, Any]]:
    """Cut the last message where the provider is to keep what comes before; the words stay the same."""
    whole: list[dict[str, Any]] = [dict(message) for message in messages]
    if marks:
        text, ends = whole[-1]["content"], [0, *marks]
        kept = {"type": "text", "cache_control": {"type": "ephemeral"}}
        blocks = [{**kept, "text": text[start:end]} for start, end in pairwise(ends)]
        whole[-1]["content"] = [*blocks, {"type": "text", "text": text[ends[-1] :]}]
    return whole


def shared_length(one: Request, other: Request) -> int:
    """Count the characters with which the last messages of two requests begin alike, if all before them is the same."""
    if one.messages[:-1] != other.messages[:-1] or one.sampling != other.sampling:
        return 0
    return len(os.path.commonprefix([one.messages[-1]["content"], other.messages[-1]["content"]]))


T = TypeVar("T")

FLUSH_S = 0.1  #: Answers are committed together, this often; a kill loses what came since.

HEARTBEAT_S = 5.0
POLL_S = 0.3  #: How often a process looks whether another one has answered what both need.

TELL_S = 1.0
LOG_BEATS = 30

MAX_ATTEMPTS = 10  #: Failures of one call while others are answered; what nobody is answered is an outage, and waited for.

MAX_EMPTY = 4  #: Empty answers to one request before it counts as an error. Each is paid like any other answer.


def ask_all(
    requests: Sequence[Request],
    *,
    ledger: Ledger,
    mode: str = "missing",
    max_concurrency: int | None = None,
    budget_usd: float | None = None,
    max_paid_calls: int | None = None,
    progress: bool = True,
    scheduler: str | None = None,
) -> list[Call]:
    """Answer requests from the ledger, and ask for what it lacks."""
    if mode not in MODES:
        raise ModelError(f"There is no mode {mode!r}; the modes are {', '.join(MODES)}.")
    if mode == "batch":
        from heart_utils.calls.batch import collect_batches, submit_batches

        collect_batches(ledger)
    recorded = ledger.find([request.key for request in requests])
    again = () if mode in ("replay", "batch") else ("error",)
    damaged = [r for r in requests if r.key in ledger.damaged]
    if damaged:
        then = "They count as errors; `make collect` asks again." if mode in ("replay", "dry") else "They are asked again."
        about = f" about {damaged[0].tag}" if damaged[0].tag else ""
        warnings.warn(
            f"{len(damaged)} answers in {ledger.url} are damaged, the first by {damaged[0].model.name}{about}. {then}",
            stacklevel=2,
        )
        again = again if mode == "replay" else ("error",)
    todo = {r.key: r for r in requests if r.key not in recorded or recorded[r.key].status in again}
    if mode == "replay" and todo:
        raise explain_miss(ledger, list(todo.values()), total=len(requests))
    if mode == "batch" and todo:
        check_money(list(todo.values()), budget_usd=budget_usd, max_paid_calls=max_paid_calls)
        submit_batches(list(todo.values()), ledger=ledger, budget_usd=budget_usd)
    if mode in ("dry", "batch"):
        recorded |= {key: plan_call(request) for key, request in todo.items()}
    elif todo:
        missing = list(todo.values())
        check_money(missing, budget_usd=budget_usd, max_paid_calls=max_paid_calls)
        how: dict[str, Any] = {"max_concurrency": max_concurrency, "budget_usd": budget_usd, "progress": progress}
        ask: Callable[..., dict[str, Call]] = run
        if scheduler is not None:
            from heart_utils.calls.cluster import run_on_cluster

            ask = partial(run_on_cluster, ask_shard=_ask_shard, scheduler=scheduler)
        recorded |= _ask_until_recorded(missing, ask, ledger=ledger, **how)
    return [recorded[request.key] for request in requests]


def _ask_until_recorded(
    requests: Sequence[Request], ask: Callable[..., dict[str, Call]], *, ledger: Ledger, **how: Any
) -> dict[str, Call]:
    """Ask, and once more what is not in the ledger afterwards."""
    recorded: dict[str, Call] = {}
    missing = list(requests)
    for _ in range(ROUNDS):
        recorded |= ask(missing, ledger=ledger, **how) | ledger.find([request.key for request in requests])
        missing = [request for request in missing if request.key not in recorded]
        if not missing:
            return recorded
    said = f"{len(missing)} calls were asked {ROUNDS} times and are not in {ledger.url}"
    raise LedgerError(f"{said}: another program deletes from it.")


def _ask_shard(
    requests: Sequence[Request], address: str, max_concurrency: int | None, budget_usd: float | None
) -> tuple[int, list[Call]]:
    """Ask for a shard's requests, in a worker of a cluster; give the calls that could not be made at all."""
    ledger = _shared_ledger(os.environ.get("HEART_LEDGER") or address)
    known = ledger.find([request.key for request in requests])
    todo = [request for request in requests if request.key not in known or known[request.key].status == "error"]
    how: dict[str, Any] = {"max_concurrency": max_concurrency, "budget_usd": budget_usd, "progress": False}
    calls = _ask_until_recorded(todo, run, ledger=ledger, **how) if todo else {}
    recorded = ledger.find(list(calls))
    return len(requests), [call for key, call in calls.items() if key not in recorded]


_shared_ledger = lru_cache(maxsize=1)(open_ledger)


def run(
    requests: Sequence[Request],
    *,
    ledger: Ledger,
    max_concurrency: int | None,
    budget_usd: float | None,
    progress: bool,
) -> dict[str, Call]:
    """Ask for all of these requests and record what comes."""
    from tqdm.auto import tqdm

    load_litellm()
    with _embedded(requests) as served, tqdm(total=len(requests), unit="call", disable=not progress) as bar:
        flow = _Flow(ledger, served.api_base if served else None, max_concurrency, budget_usd, bar)
        loop = event_loop(os.getpid())
        future = asyncio.run_coroutine_threadsafe(flow.run(requests), loop)
        try:
            future.result()
        except KeyboardInterrupt:
            loop.call_soon_threadsafe(flow.stopping.set)
            bar.write(f"Stopping: {flow.in_flight} calls in flight are waited for; Ctrl-C again gives them up.")
            try:
                future.result()
            except KeyboardInterrupt:
                ledger.hurry.set()
                future.cancel()
                flow.gone.wait(10)
                ledger.hurry.clear()
            raise
    for lane in flow.lanes:
        if lane.closed is not None:
            warnings.warn(f"{lane.model.name}: its queue was stopped. {lane.closed}", stacklevel=4)
    if flow.short:
        money = ledger.money()
        own = [f"{lane.model.name}'s own {lane.model.budget_usd:g}" for lane in flow.lanes
               if lane.model.name in flow.short and lane.model.budget_usd is not None]  # fmt: skip
        budget = " or ".join([*([] if budget_usd is None else [f"{budget_usd:g}"]), *own])
        raise BudgetError(
            f"The budget of {budget} USD does not reach for another call: {money.spent:.4f} spent, {money.unsettled:.4f} "
            f"perhaps billed for calls nobody heard the end of, {money.reserved:.4f} held for requests in batches. "
            f"{sum(flow.short.values())} calls were not made. What was answered is recorded; raise budget_usd and run again."
        )
    if flow.in_batches:
        said = f"{flow.in_batches} of the requests are in a provider's batch that has not been collected"
        raise LedgerError(f"{said}. Mode 'batch' collects it once it is there; the others are recorded.")
    return flow.lost()


class _Flow:
    """One run of ``run``, on the event loop."""

    def __init__(
        self, ledger: Ledger, address: str | None, max_concurrency: int | None, budget_usd: float | None, bar: Any
    ) -> None:
        self.ledger, self.address, self.budget_usd, self.bar = ledger, address, budget_usd, bar
        self.max_concurrency = max_concurrency
        self.gate: Any = nullcontext() if max_concurrency is None else asyncio.Semaphore(max_concurrency)
        self.lanes: list[Lane] = []
        self.stopping = asyncio.Event()
        self._finished = asyncio.Event()
        self.gone = threading.Event()
        self.short: dict[str, int] = {}
        self.in_batches = self.in_flight = self._failed = self._throttled = 0
        self._spent = self._since = self._unsettled = self._written_at = 0.0
        self._asked: dict[str, Request] = {}
        self._answered: set[str] = set()
        self._answers: list[Call] = []
        self._database = ThreadPoolExecutor(1, "ledger")

    def lost(self) -> dict[str, Call]:
        """Give the calls that were not made because their model's queue was stopped."""
        closed = {request.key: lane.closed for lane in self.lanes if lane.closed is not None for request in lane.requests}
        return {key: Call(key, "error", error=why) for key, why in closed.items() if key not in self._answered}

    async def run(self, requests: Sequence[Request]) -> None:
        """Run all queues, and the writer beside them, until all is asked or something breaks."""
        forgo_records()
        try:
            self._since = await self._on_ledger(self.ledger.clock)
            self._spent = (await self._on_ledger(self.ledger.money)).spent
            self.lanes = make_lanes(requests, self.max_concurrency)
            self._asked = {request.key: request for request in requests}
            writer, work = asyncio.create_task(self._write()), asyncio.create_task(self._run_lanes())
            teller = asyncio.create_task(self._tell())
            try:
                await asyncio.wait({writer, work}, return_when=asyncio.FIRST_COMPLETED)
            finally:  # also where this task is cancelled; the writer is let finish, so that nothing that came is lost
                teller.cancel()
                self.bar.set_postfix_str(self._standing())
                work.cancel()
                ended = list(await asyncio.gather(work, return_exceptions=True))
                self._finished.set()
                ended += await asyncio.gather(writer, return_exceptions=True)
                await self._on_ledger(self.ledger.release, [key for key in self._asked if key not in self._answered])
            for error in reversed(ended):
                if isinstance(error, BaseException) and not isinstance(error, asyncio.CancelledError):
                    raise _first(error)
        finally:
            self._database.shutdown(wait=False)
            self.gone.set()

    async def _run_lanes(self) -> None:
        async with asyncio.TaskGroup() as group:
            for lane in self.lanes:
                group.create_task(self._run_lane(lane))

    async def _run_lane(self, lane: Lane) -> None:
        if any(request.stream for request in lane.requests):
            await warm_up(lane.model.model)
        width = min(lane.model.max_concurrency, self.max_concurrency or len(lane.requests), len(lane.requests))
        while lane.waiting and not self._over(lane):
            async with asyncio.TaskGroup() as group:
                for _ in range(width):
                    group.create_task(self._work(lane))
            if lane.elsewhere and not self._over(lane):
                await self._look_elsewhere(lane)

    def _over(self, lane: Lane) -> bool:
        return self.stopping.is_set() or lane.closed is not None

    async def _look_elsewhere(self, lane: Lane) -> None:
        """See whether other processes answered what they had claimed; the rest is claimed again if they died."""
        await self._pause(POLL_S)
        asked, lane.elsewhere = lane.elsewhere, []
        found = await self._on_ledger(self.ledger.find, [request.key for request in asked])
        left = [request for request in asked if request.key not in found]  # also a failure of theirs is an end for this run
        held = await self._on_ledger(self.ledger.in_batches, [request.key for request in left])
        lane.waiting.extend(request for request in left if request.key not in held)
        self.in_batches += len(held)
        self.bar.update(len(found))

    async def _work(self, lane: Lane) -> None:
        """Ask one request after another."""
        while (request := await self._next(lane)) is not None:
            call = await self._ask(lane, request)
            if call is None:
                continue
            self._answers.append(call)
            self._answered.add(call.call_id)
            self._failed += call.status == "error"
            self._spent += call.cost_usd or 0.0
            self.bar.update(1)

    async def _next(self, lane: Lane) -> Request | None:
        """Take the next request that this process has claimed, and claim more before they run out."""
        while not self._over(lane):
            if lane.waiting and lane.refill is None and len(lane.ready) <= lane.batch // 2:
                lane.refill = asyncio.create_task(self._claim(lane))
            if lane.ready:
                return lane.ready.popleft()
            if lane.refill is None:
                return None
            await asyncio.shield(lane.refill)
        return None

    async def _claim(self, lane: Lane) -> None:
        try:
            batch = [lane.waiting.popleft() for _ in range(min(lane.batch, len(lane.waiting)))]
            reserves = [reserve(request) for request in batch]
            step = partial(self.ledger.claim, batch, reserves, since=self._since, budget_usd=self.budget_usd)
            claim = await self._on_ledger(step)
            fit = batch[: len(batch) - claim.unfit]
            lane.waiting.extendleft(reversed(batch[len(fit) :]))
            for request in fit:
                (lane.ready if request.key in claim.won else lane.elsewhere).append(request)
            if not fit and claim.money.in_flight > 0:  # calls in flight may cost less than was reserved for them
                await self._pause(POLL_S)
            elif not fit:
                self.short[lane.model.name] = len(lane.waiting)
                lane.waiting.clear()
        finally:
            lane.refill = None

    async def _ask(self, lane: Lane, request: Request) -> Call | None:
        """Ask until there is an answer, or no use in asking; None if the request was given back."""
        attempts = faults = empty = pauses = 0
        answers, clock = lane.answers, asyncio.get_running_loop().time
        usd, room = 0.0, answer_bound(request)
        while True:
            await self._turn(lane, request)
            async with self.gate:
                if self._over(lane):
                    return None
                attempts += 1
                came, in_flight = await self._attempt(lane, request, room)
            if isinstance(came, Answer):
                lane.answered()
                lane.heard, lane.limits = True, came.limits
                empty_in = [limit.reset_s for limit in came.limits if limit.left == 0]
                if empty_in:
                    await self._hold(lane, min(MAX_LOOK_S, max(empty_in)))
                usd += spent(request, came) or 0.0
                truncated = came.finish_reason in ("length", CUT) and not request.sampling.get("logprobs")
                if truncated and came.finish_reason != CUT and await self._grow(request, room):
                    room *= 2
                    continue
                if came.text or came.refused or truncated:
                    status = "refused" if came.refused else "truncated" if truncated else "ok"
                    return answered_call(request, status, came, lane.secrets, attempts=attempts, in_flight=in_flight, usd=usd)
            empty += isinstance(came, Answer)
            failure = came if isinstance(came, Failure) else Failure("again", f"the answer was empty, {empty} times")
            throttled = failure.kind == "throttled"
            if throttled or failure.kind == "again" and isinstance(came, Failure):
                lane.failed(failure.words, clock(), throttled=throttled)
            elif isinstance(came, Failure):
                lane.answered()  # with a refusal of this request
            # While nobody is answered, the fault is not this request's.
            faults += not throttled and lane.answers > answers
            answers = lane.answers
            self._unsettled += reserve(request, room) if failure.billed else 0.0
            patience, silence = request.model.patience_s, lane.silence(clock())
            lane.turned_down += failure.kind == "never"
            if not lane.heard and (silence > UNHEARD_S or lane.turned_down >= DEAF):
                lane.heard = await self._on_ledger(self.ledger.knows, lane.model)
                patience = patience if lane.heard else min(patience, UNHEARD_S)
            if failure.kind == "closed" or silence > patience or (failure.after_s or 0.0) > patience:
                wait = f" (it asks to wait {failure.after_s:g} s)" if failure.after_s else ""
                if silence > patience and lane.silent_since is not None:
                    wait = f" (for {silence:.0f} s nothing was answered{'' if lane.heard else ', nor ever before'})"
                    _SILENT[request.model.identity, request.model.api_base] = lane.silent_since
                lane.closed = lane.closed or f"{failure.words}{wait}"
                return None
            spent_out = faults >= MAX_ATTEMPTS or empty >= MAX_EMPTY
            paid = failure.billed or isinstance(came, Answer)  # an empty answer is billed like any other
            broke = paid and not spent_out and not await self._afford(request, room)
            if spent_out or broke or failure.kind in ("never", "refused"):
                words = f"{failure.words}; the budget has no second attempt" if broke else failure.words
                status = "refused" if failure.kind == "refused" else "error"
                if not lane.heard and lane.turned_down >= DEAF:
                    lane.closed = lane.closed or f"its first {lane.turned_down} calls were all turned down; the last: {words}"
                return Call(request.key, status, cost_usd=usd or None, attempts=attempts, in_flight=in_flight, error=words)
            if not lane.out:
                pauses += 1
                if throttled and failure.after_s:
                    await self._hold(lane, failure.after_s)
                self._throttled += throttled
                await self._pause(backoff(pauses, failure.after_s))
                self._throttled -= throttled

    async def _turn(self, lane: Lane, request: Request) -> None:
        """Wait until a request may be asked: its model is there, and neither its limits nor others' refusals forbid it."""
        clock = asyncio.get_running_loop().time
        while lane.out and not self._over(lane) and (wait := lane.look(clock())) > 0:
            await self._pause(min(wait, TELL_S))
        while (wait := lane.held_until - clock()) > 0 and not self._over(lane):
            await self._pause(min(wait, TELL_S))
        places = lane.places(request)
        if places:
            await self._pause(await self._on_ledger(self.ledger.book, places))

    async def _hold(self, lane: Lane, seconds: float) -> None:
        """Ask a model nothing for a while, in no process."""
        lane.held_until = max(lane.held_until, asyncio.get_running_loop().time() + seconds)
        await self._on_ledger(self.ledger.hold, lane.rest, seconds)

    async def _attempt(self, lane: Lane, request: Request, room: int) -> tuple[Answer | Failure, int]:
        self.in_flight += 1
        in_flight = self.in_flight
        try:
            return await attempt(request, room, self.address, lane.marks(request)), in_flight
        except asyncio.CancelledError:
            self._unsettled += reserve(request, room)  # given up in flight, and perhaps billed
            raise
        finally:
            self.in_flight -= 1

    async def _grow(self, request: Request, room: int) -> bool:
        """Tell whether a truncated answer may be asked for again with twice the room."""
        limited = any(name in request.sampling for name in ROOM_OPTIONS)
        return limited and 2 * room <= MAX_GROWTH * answer_bound(request) and await self._afford(request, 2 * room)

    async def _afford(self, request: Request, room: int) -> bool:
        """Reserve money for one more attempt at a request."""
        if self.budget_usd is None and request.model.budget_usd is None:
            return True
        return await self._on_ledger(self.ledger.reserve_more, request, reserve(request, room), self.budget_usd)

    async def _pause(self, seconds: float) -> None:
        if seconds <= 0:
            return
        with suppress(TimeoutError):
            await asyncio.wait_for(self.stopping.wait(), seconds)

    async def _write(self) -> None:
        """Commit answers in groups, and let other processes know that this one lives."""
        last = False
        while not last:
            last = self._finished.is_set()  # once more after that: for what came since the last time
            answers, self._answers = self._answers, []
            unsettled, self._unsettled = self._unsettled, 0.0
            if answers or unsettled or time.monotonic() - self._written_at > HEARTBEAT_S:
                await self._on_ledger(partial(self.ledger.record, answers, unsettled, requests=self._asked))
                self._written_at = time.monotonic()
                held = await self._on_ledger(self.ledger.held, [lane.rest for lane in self.lanes])
                clock = asyncio.get_running_loop().time()
                for lane in self.lanes:
                    lane.held_until = max(lane.held_until, clock + held.get(lane.rest, 0.0))
            with suppress(TimeoutError):
                await asyncio.wait_for(self._finished.wait(), FLUSH_S)

    async def _tell(self) -> None:
        """Show how it stands while nothing moves, and log it now and then."""
        for beat in itertools.count():
            await asyncio.sleep(TELL_S)
            self.bar.set_postfix_str(self._standing())
            if beat % LOG_BEATS == 0:
                self._spent = (await self._on_ledger(self.ledger.money)).spent  # others spend too
                said: dict[str, Any] = {"done": len(self._answered), "of": len(self._asked), "in_flight": self.in_flight}
                said |= {"throttled": self._throttled, "failed": self._failed, "spent_usd": round(self._spent, 6)}
                await self._on_ledger(self.ledger.tell, said | {"standing": self._standing()})

    def _standing(self) -> str:
        """Say what failed, what waits and why, and what was spent."""
        clock = asyncio.get_running_loop().time()
        waits = [f"{self._throttled} throttled"] if self._throttled else []
        held = {lane.model.name: lane.held_until - clock for lane in self.lanes if lane.held_until > clock}
        waits += [f"{name} held for {seconds:.0f} s" for name, seconds in held.items()]
        for lane in (lane for lane in self.lanes if lane.out and lane.closed is None):
            waits.append(f"waiting for {lane.model.name}, silent for {lane.silence(clock):.0f} s ({lane.said[:60]})")
        waits += ["waiting for the ledger"] if self.ledger.waits else []
        elsewhere = sum(len(lane.elsewhere) for lane in self.lanes)
        waits += [f"{elsewhere} asked by others"] if elsewhere else []
        return ", ".join([f"{self._failed} failed", *waits, f"{self._spent:.2f} USD"])

    async def _on_ledger(self, step: Callable[..., T], *args: Any) -> T:
        # What was begun in the thread is not undone by a cancelled wait.
        return await asyncio.shield(asyncio.get_running_loop().run_in_executor(self._database, step, *args))


def _first(error: BaseException) -> BaseException:
    """Give what went wrong first, out of the group that a group of tasks raises."""
    return _first(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error


def _embedded(requests: Sequence[Request]) -> AbstractContextManager[Model | None]:
    """Serve the embedded model while it is asked something."""
    if not any(request.model.embedded for request in requests):
        return nullcontext()
    from heart_utils.calls.local import serve_local

    return serve_local()
