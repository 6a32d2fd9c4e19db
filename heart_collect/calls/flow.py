"""One run through all queues, one a model, and its pace."""

from __future__ import annotations

import asyncio
import itertools
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

from heart_collect.calls.ledger import Ledger
from heart_collect.calls.models import Call, Model, Request, forgo_records, key_fault
from heart_collect.calls.outcomes import CUT, Answer, Failure, Limit, attempt, cache_breakpoints
from heart_collect.calls.prices import MAX_GROWTH, plan_call, reserve
from heart_collect.calls.thoughts import answer_start

__all__ = ["ModelQueue"]

MAX_CLAIM = 256

#: So many attempts in a row without any answer, and a model is out: one call at a time looks
#: whether it is back.
OUTAGE_AFTER = 5

MAX_THOUGHTS = 20  #: So many answers in a row of thoughts alone, and a model is asked no more.

NEVER_ANSWERED_S = 60.0
"""A model that never answered anything on this ledger is given up after so long: its server is not
out, it is wrong."""

_SILENT: dict[tuple[str, str | None], float] = {}
"""Since when models were silent that were given up in this process: its next step does not wait as
long once more."""

MIN_PROBE_S, MAX_PROBE_S = 0.5, 30.0
MIN_GAP_S, MAX_GAP_S = 0.005, 10.0
SLOWER, FASTER = 1.1, 0.98
"""What a call that was turned away, and one that was answered, do to the gap between calls. They
balance where one in six is turned away."""


class Task(NamedTuple):
    request: Request
    tokens: int  # planned, of prompt and answer
    usd: float  # the most that it can cost with the room that its options give
    breakpoints: list[int]  # where its provider is told what to keep of the prompt


@dataclass
class ModelQueue:
    """One model's queue, which changes as work goes on."""

    model: Model
    tasks: list[Task]
    batch: int
    waiting: deque[Task]
    ready: deque[Task] = field(default_factory=deque)  #: claimed by this process
    claimed_elsewhere: list[Task] = field(default_factory=list)  #: claimed by another one
    claiming: asyncio.Lock = field(default_factory=asyncio.Lock)
    closed: str | None = None  #: why nothing more is asked
    n_unaffordable: int = 0  #: of how many tasks for want of money
    answers: int = 0
    failures: int = 0  #: attempts in a row without any answer
    silent_since: float | None = None  #: when the first of them ended
    last_error: str = ""
    ever_replied: bool = (
        False  #: whether the model ever answered on this ledger, be it with nothing
    )
    ever_answered: bool = False  #: whether it ever gave an answer that counts
    #: requests that the provider will not answer; if the first few all are, the settings are wrong
    turned_down: int = 0
    thoughts: int = 0  #: answers in a row that held nothing else
    limits: tuple[Limit, ...] = ()
    held_until: float = 0.0
    _gap_s: float = 0.0
    _probe_at: float = 0.0

    @property
    def hold_name(self) -> str:
        """Its name among the holds of all processes."""
        return f"{self.model.identity_digest} rest"

    @property
    def runs_low(self) -> bool:
        """Whether fewer are ready than half a claim."""
        return len(self.ready) <= self.batch // 2

    @property
    def out(self) -> bool:
        """Whether nothing is answered at present."""
        return self.failures >= OUTAGE_AFTER

    def silence(self, clock: float) -> float:
        """For how many seconds nothing was answered."""
        return 0.0 if self.silent_since is None else clock - self.silent_since

    def answered(self) -> None:
        """Note an answer: ask a little faster."""
        self.answers, self.failures, self.silent_since = self.answers + 1, 0, None
        _SILENT.pop((self.model.identity, self.model.api_base), None)
        self._gap_s = self._gap_s * FASTER if self._gap_s > MIN_GAP_S else 0.0

    def heard(self, text: str) -> None:
        """Stop where answers hold only thoughts: each is paid."""
        self.thoughts = 0 if answer_start(text) is not None else self.thoughts + 1
        if self.thoughts >= MAX_THOUGHTS and self.closed is None:
            self.closed = (
                f"{self.thoughts} answers in a row were thoughts without a word of an answer. Give"
                " it more room (`max_tokens` under `options:`) or less to think (`reasoning_effort:"
                " low`)"
            )

    def failed(self, failure: Failure, clock: float) -> None:
        """Record a failure, and slow down if asked too fast."""
        self.ever_replied = self.ever_replied or failure.kind in ("empty", "refused")
        self.turned_down += failure.kind == "never"
        if self.turned_down >= OUTAGE_AFTER and not self.ever_replied and self.closed is None:
            self.closed = (
                f"its first {self.turned_down} calls were all turned down; the last:"
                f" {failure.words}"
            )
        if failure.kind == "closed":
            self.last_error = failure.words
            return None
        if failure.kind not in ("again", "throttled"):
            return self.answered()  # with a refusal of this request, or with nothing
        if failure.kind == "throttled" and not self.out:
            self._gap_s = min(MAX_GAP_S, max(MIN_GAP_S, self._gap_s) * SLOWER)
        self.failures, self.last_error = self.failures + 1, failure.words
        self.silent_since = clock if self.silent_since is None else self.silent_since
        if self.failures == OUTAGE_AFTER:
            self._probe_at = clock + MIN_PROBE_S
        return None

    def gives_up(self, failure: Failure, clock: float) -> bool:
        """Whether nothing more is asked after a failure; record why."""
        patience, silence, wait = self.model.patience_s, self.silence(clock), ""
        silent = silence > (patience if self.ever_replied else min(patience, NEVER_ANSWERED_S))
        if failure.kind != "closed" and not silent and (failure.after_s or 0.0) <= patience:
            return False
        if silent and self.silent_since is not None:
            wait = (
                f" (for {silence:.0f} s nothing was"
                f" answered{'' if self.ever_replied else ', nor ever before'})"
            )
            _SILENT[self.model.identity, self.model.api_base] = self.silent_since
        elif failure.after_s:
            wait = f" (it asks to wait {failure.after_s:g} s)"
        self.closed = self.closed or f"{failure.words}{wait}"
        return True

    def wait(self, clock: float) -> float:
        """How many seconds a call waits."""
        until = max(self.held_until, self._probe_at if self.out else 0.0)
        if clock < until:
            return until - clock
        if self.out:
            # it grows with the silence
            pause = min(MAX_PROBE_S, max(MIN_PROBE_S, self.silence(clock) / 4))
            self._probe_at = clock + pause * random.uniform(0.8, 1.2)
        return 0.0

    def spacing(self, tokens: int) -> dict[str, float]:
        """Seconds a request in all processes' queues of this model."""
        model, gaps = self.model, [self._gap_s]
        gaps += [
            limit.reset_s * (1 if limit.of == "requests" else tokens) / limit.left
            for limit in self.limits
            if limit.left
        ]
        spacing = {"pace": min(MAX_GAP_S, max(gaps))} if max(gaps) >= MIN_GAP_S else {}
        if model.requests_per_minute:
            spacing["requests"] = 60 / model.requests_per_minute
        if model.tokens_per_minute:
            spacing["tokens"] = 60 * tokens / model.tokens_per_minute
        return {f"{model.identity_digest} {name}": seconds for name, seconds in spacing.items()}


def make_queues(requests: Sequence[Request], max_concurrency: int | None) -> list[ModelQueue]:
    """Sort requests into one queue a model, in order."""
    by_model: dict[str, list[Request]] = {}
    for request in requests:
        by_model.setdefault(request.model.name + request.model.identity, []).append(request)
    queues = []
    for of_model in by_model.values():
        model, tasks, fault = of_model[0].model, [], key_fault(of_model[0].model)
        for request, breakpoints in zip(of_model, cache_breakpoints(of_model), strict=True):
            plan = plan_call(request)
            tasks.append(
                Task(
                    request,
                    (plan.prompt_tokens or 0) + (plan.completion_tokens or 0),
                    reserve(request),
                    breakpoints,
                )
            )
        batch = min(MAX_CLAIM, model.max_concurrency, max_concurrency or MAX_CLAIM)
        silent_since = _SILENT.get((model.identity, model.api_base))
        queues.append(
            ModelQueue(model, tasks, batch, deque(tasks), closed=fault, silent_since=silent_since)
        )
    return queues


FIRST_PAUSE_S = 0.5
MAX_PAUSE_S = 30.0


def backoff(n: int, after_s: float | None) -> float:
    """Compute a doubling pause, with jitter so that calls spread."""
    if after_s is not None:
        return after_s + random.uniform(0, 0.1 + after_s / 10)
    return min(MAX_PAUSE_S, FIRST_PAUSE_S * 2.0 ** (n - 1)) * random.uniform(0.5, 1.5)


T = TypeVar("T")

FLUSH_S = 0.1  #: Answers are committed together, this often; a kill loses what outcome since.

HEARTBEAT_S = 5.0
POLL_S = 0.3  #: How often a process looks whether another one has answered what both need.

TELL_S = 1.0
LOG_BEATS = 30

#: Failures of one call while others are answered; what nobody is answered is an outage, and waited
#: for.
MAX_ATTEMPTS = 10

#: Empty answers to one request before it counts as an error. Each is paid like any other answer.
MAX_EMPTY = 4

DENIALS = 3
"""A model that has answered before is out of reach when so many attempts at one call in a row are
denied, by its key, its name or a permission: a gateway that renews its token denies a call or
two."""


class Flow:
    def __init__(
        self,
        ledger: Ledger,
        address: str | None,
        max_concurrency: int | None,
        budget_usd: float | None,
        bar: Any,
    ) -> None:
        self.ledger = ledger
        self.address = address
        self.budget_usd = budget_usd
        self.max_concurrency = max_concurrency
        self.gate: Any = (
            nullcontext() if max_concurrency is None else asyncio.Semaphore(max_concurrency)
        )
        self.queues: list[ModelQueue] = []
        self.bar = bar
        self.answered: set[str] = set()
        self.in_flight = 0
        self.in_batches = 0
        self.n_failed = 0
        self.n_throttled = 0
        self.spent = 0.0  # in USD, by all who share the ledger
        self.stopping = asyncio.Event()
        self.ended = threading.Event()
        self._since = 0.0
        # for steps on the ledger, which would hold up the event loop
        self._thread = ThreadPoolExecutor(1, "ledger")
        self._answers: list[Call] = []  # on their way into the ledger
        self._unsettled = 0.0  # in USD, for attempts whose end nobody heard
        self._written_at = 0.0
        self._finished = asyncio.Event()

    def lost(self) -> dict[str, Call]:
        """Return calls of stopped queues."""
        closed = {
            task.request.key: queue.closed
            for queue in self.queues
            if queue.closed is not None
            for task in queue.tasks
        }
        return {
            key: Call(key, "error", error=why)
            for key, why in closed.items()
            if key not in self.answered
        }

    async def run(self, requests: Sequence[Request]) -> None:
        forgo_records()
        try:
            self._since = await self._on_ledger(self.ledger.clock)
            self.spent = (await self._on_ledger(self.ledger.money)).spent
            self.queues = make_queues(requests, self.max_concurrency)
            by_key = {request.key: request for request in requests}
            writer = asyncio.create_task(self._write(by_key))
            work = asyncio.create_task(self._run_queues())
            teller = asyncio.create_task(self._tell(len(by_key)))
            try:
                await asyncio.wait({writer, work}, return_when=asyncio.FIRST_COMPLETED)
            # also where this task is cancelled: the writer may finish, so that no answer is lost
            finally:
                teller.cancel()
                self.bar.set_postfix_str(self.standing())
                work.cancel()
                ended = list(await asyncio.gather(work, return_exceptions=True))
                self._finished.set()
                ended += await asyncio.gather(writer, return_exceptions=True)
                left = [key for key in by_key if key not in self.answered]
                await self._on_ledger(self.ledger.release, left)
            for error in reversed(ended):
                if isinstance(error, BaseException) and not isinstance(
                    error, asyncio.CancelledError
                ):
                    raise _first(error)
        finally:
            self._thread.shutdown(wait=False)
            self.ended.set()

    async def _tell(self, n_asked: int) -> None:
        """Show progress while nothing moves; log it sometimes."""
        for beat in itertools.count():
            await asyncio.sleep(TELL_S)
            self.bar.set_postfix_str(self.standing())
            if beat % LOG_BEATS == 0:
                self.spent = (await self._on_ledger(self.ledger.money)).spent  # others spend too
                line = {
                    "done": len(self.answered),
                    "of": n_asked,
                    "in_flight": self.in_flight,
                    "throttled": self.n_throttled,
                    "failed": self.n_failed,
                    "spent_usd": round(self.spent, 6),
                    "standing": self.standing(),
                }
                await self._on_ledger(self.ledger.tell, line)

    def standing(self) -> str:
        clock = asyncio.get_running_loop().time()
        elsewhere = sum(len(queue.claimed_elsewhere) for queue in self.queues)
        waits = {f"{self.n_failed} failed": True, f"{self.n_throttled} throttled": self.n_throttled}
        for queue in self.queues:
            name, held, silent = queue.model.name, queue.held_until - clock, queue.silence(clock)
            waits[f"{name} held for {held:.0f} s"] = held > 0
            waits[f"waiting for {name}, silent for {silent:.0f} s ({queue.last_error[:60]})"] = (
                queue.out and queue.closed is None
            )
        waits |= {
            "waiting for the ledger": self.ledger.waits is not None,
            f"{elsewhere} asked by others": elsewhere,
        }
        return ", ".join(
            [*(words for words, is_so in waits.items() if is_so), f"{self.spent:.2f} USD"]
        )

    async def _write(self, requests: Mapping[str, Request]) -> None:
        """Commit answers in groups."""
        last = False
        while not last:
            # once more after that: for what came since the last time
            last = self._finished.is_set()
            answers, self._answers = self._answers, []
            unsettled, self._unsettled = self._unsettled, 0.0
            if answers or unsettled or time.monotonic() - self._written_at > HEARTBEAT_S:
                await self._on_ledger(
                    partial(self.ledger.record, answers, unsettled, requests=requests)
                )
                self._written_at = time.monotonic()
                names = [queue.hold_name for queue in self.queues]
                held = await self._on_ledger(self.ledger.held, names)
                clock = asyncio.get_running_loop().time()
                for queue in self.queues:
                    queue.held_until = max(queue.held_until, clock + held.get(queue.hold_name, 0.0))
            with suppress(TimeoutError):
                await asyncio.wait_for(self._finished.wait(), FLUSH_S)

    async def _run_queues(self) -> None:
        for queue in self.queues:
            queue.ever_replied = queue.ever_answered = await self._on_ledger(
                self.ledger.knows, queue.model
            )
        async with asyncio.TaskGroup() as group:
            for queue in self.queues:
                for _ in range(
                    min(
                        queue.model.max_concurrency,
                        self.max_concurrency or len(queue.tasks),
                        len(queue.tasks),
                    )
                ):
                    group.create_task(self._answer_tasks(queue))

    def _over(self, queue: ModelQueue) -> bool:
        return self.stopping.is_set() or queue.closed is not None

    async def _look_elsewhere(self, queue: ModelQueue) -> None:
        await self._pause(POLL_S)
        claimed, queue.claimed_elsewhere = queue.claimed_elsewhere, []
        answered = await self._on_ledger(self.ledger.find, [task.request.key for task in claimed])
        # also a failure of theirs is an end for this run
        left = [task for task in claimed if task.request.key not in answered]
        held = await self._on_ledger(self.ledger.in_batches, [task.request.key for task in left])
        queue.waiting.extend(task for task in left if task.request.key not in held)
        self.in_batches += len(held)
        self.bar.update(len(answered))

    async def _answer_tasks(self, queue: ModelQueue) -> None:
        while (task := await self._next_task(queue)) is not None:
            call, costs = None, list[float]()
            try:
                call = await self._ask(queue, task, costs)
            finally:  # also where it is given up: what was paid for until then counts
                self._unsettled += 0.0 if call else sum(costs)
            if call is not None:
                self._answers.append(call)
                self.answered.add(call.call_id)
                self.n_failed += call.status == "error"
                self.spent += call.cost_usd or 0.0
                self.bar.update(1)

    async def _next_task(self, queue: ModelQueue) -> Task | None:
        """Take a claimed task; claim more before they run out."""
        while not self._over(queue):
            # Who finds a task ready does not wait for another one that claims more.
            if queue.runs_low and not (queue.ready and queue.claiming.locked()):
                async with queue.claiming:
                    if queue.waiting and queue.runs_low:
                        await self._claim(queue)
                    elif queue.claimed_elsewhere and not queue.ready:
                        await self._look_elsewhere(queue)
            if queue.ready:
                return queue.ready.popleft()
            if not (queue.waiting or queue.claimed_elsewhere):
                return None
        return None

    async def _claim(self, queue: ModelQueue) -> None:
        batch = [queue.waiting.popleft() for _ in range(min(queue.batch, len(queue.waiting)))]
        requests, reserves = [task.request for task in batch], [task.usd for task in batch]
        step = partial(
            self.ledger.claim, requests, reserves, since=self._since, budget_usd=self.budget_usd
        )
        claim = await self._on_ledger(step)
        affordable = batch[: len(batch) - claim.unfit]
        # extendleft turns the order round, so what did not fit goes back reversed: requests that
        # share a prompt's prefix must stay neighbours for the provider's cache.
        queue.waiting.extendleft(reversed(batch[len(affordable) :]))
        for task in affordable:
            (queue.ready if task.request.key in claim.won else queue.claimed_elsewhere).append(task)
        # calls in flight may cost less than was reserved for them
        if not affordable and claim.money.in_flight > 0:
            await self._pause(POLL_S)
        elif not affordable:
            queue.n_unaffordable = len(queue.waiting)
            queue.waiting.clear()

    async def _ask(self, queue: ModelQueue, task: Task, costs: list[float]) -> Call | None:
        """Ask until answered, or no use in asking; None if given back."""
        attempts = faults = empty = pauses = denials = 0
        clock, answers, growth = asyncio.get_running_loop().time, queue.answers, 1
        while True:
            await self._wait_turn(queue, task)
            async with self.gate:
                if self._over(queue):
                    return None
                attempts += 1
                outcome, in_flight = await self._attempt(queue, task, growth)
            costs.append(outcome.cost_usd or 0.0)
            if isinstance(outcome, Answer):
                queue.answered()
                queue.ever_replied, queue.ever_answered, queue.limits = True, True, outcome.limits
                empty_in = [limit.reset_s for limit in outcome.limits if limit.left == 0]
                if empty_in:
                    await self._hold(queue, min(MAX_PROBE_S, max(empty_in)))
                if (
                    outcome.status == "truncated"
                    and outcome.finish_reason != CUT
                    and await self._may_grow(task, growth)
                ):
                    growth *= 2
                    continue
                if not task.request.single_token:
                    queue.heard(outcome.text)
                cost_usd = None if outcome.cost_usd is None else sum(costs)
                return replace(outcome, attempts=attempts, in_flight=in_flight, cost_usd=cost_usd)
            queue.failed(outcome, clock())
            # While nobody is answered, the fault is not this request's.
            throttled = outcome.kind == "throttled"
            others_answered = queue.answers > answers
            faults += not throttled and others_answered
            empty += outcome.kind == "empty"
            denials = 0 if outcome.kind == "closed" and others_answered else denials
            denials += outcome.may_be_transient
            stray = outcome.may_be_transient and queue.ever_answered and denials < DENIALS
            answers = queue.answers
            self._unsettled += growth * task.usd if outcome.billed else 0.0
            if not stray and queue.gives_up(outcome, clock()):
                return None
            final = outcome.kind in ("never", "refused") and not stray
            ends = final or faults >= MAX_ATTEMPTS or empty >= MAX_EMPTY
            paid = (
                outcome.billed or outcome.kind == "empty"
            )  # an empty answer is billed like any other
            if ends or (paid and not await self._afford(task, growth)):
                words = (
                    f"{outcome.words}, {empty} times" if outcome.kind == "empty" else outcome.words
                )
                words += "" if ends else "; the budget has no second attempt"
                status = "refused" if outcome.kind == "refused" else "error"
                return Call(
                    task.request.key,
                    status,
                    cost_usd=sum(costs) or None,
                    attempts=attempts,
                    in_flight=in_flight,
                    error=words,
                )
            if not queue.out:
                pauses += 1
                if throttled and outcome.after_s:
                    await self._hold(queue, outcome.after_s)
                self.n_throttled += throttled
                await self._pause(backoff(pauses, outcome.after_s))
                self.n_throttled -= throttled

    async def _wait_turn(self, queue: ModelQueue, task: Task) -> None:
        """Wait until the model is there and limits allow."""
        clock = asyncio.get_running_loop().time
        while not self._over(queue) and (wait := queue.wait(clock())) > 0:
            await self._pause(min(wait, TELL_S))
        spacing = queue.spacing(task.tokens)
        if spacing:
            await self._pause(await self._on_ledger(self.ledger.reserve_slots, spacing))

    async def _hold(self, queue: ModelQueue, seconds: float) -> None:
        queue.held_until = max(queue.held_until, asyncio.get_running_loop().time() + seconds)
        await self._on_ledger(self.ledger.hold, queue.hold_name, seconds)

    async def _attempt(
        self, queue: ModelQueue, task: Task, growth: int
    ) -> tuple[Answer | Failure, int]:
        self.in_flight += 1
        in_flight = self.in_flight
        try:
            return await attempt(task.request, growth, self.address, task.breakpoints), in_flight
        except asyncio.CancelledError:
            self._unsettled += growth * task.usd  # given up in flight, and perhaps billed
            raise
        finally:
            self.in_flight -= 1

    async def _may_grow(self, task: Task, growth: int) -> bool:
        return (
            task.request.max_tokens is not None
            and 2 * growth <= MAX_GROWTH
            and await self._afford(task, 2 * growth)
        )

    async def _afford(self, task: Task, growth: int) -> bool:
        if self.budget_usd is None and task.request.model.budget_usd is None:
            return True
        return await self._on_ledger(
            self.ledger.reserve_more, task.request, growth * task.usd, self.budget_usd
        )

    async def _pause(self, seconds: float) -> None:
        if seconds <= 0:
            return
        with suppress(TimeoutError):
            await asyncio.wait_for(self.stopping.wait(), seconds)

    async def _on_ledger(self, step: Callable[..., T], *args: Any) -> T:
        """Take one step after those begun before."""
        # What was begun in the thread is not undone by a cancelled wait.
        return await asyncio.shield(
            asyncio.get_running_loop().run_in_executor(self._thread, step, *args)
        )


def _first(error: BaseException) -> BaseException:
    return _first(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error
