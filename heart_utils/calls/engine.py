"""Asking models: from the ledger what it has, from them what it lacks.

Every call goes through ``ask_all``.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any, NamedTuple, TypedDict, TypeVar

from heart_utils.calls.batch import collect_batches, submit_batches
from heart_utils.calls.cluster import run_on_cluster
from heart_utils.calls.ledger import Ledger, LedgerError, explain_miss, failed, open_ledger
from heart_utils.calls.local import serve_local
from heart_utils.calls.models import (
    Call,
    Model,
    ModelError,
    Request,
    event_loop,
    forgo_records,
    key_fault,
    load_litellm,
)
from heart_utils.calls.outcomes import CUT, Answer, Failure, Limit, attempt, marks_in
from heart_utils.calls.prices import MAX_GROWTH, BudgetError, check_money, plan_call, reserve

__all__ = ["Lane"]

MODES = ("replay", "missing", "dry", "batch")
#: So often is asked again what is not in the ledger afterwards: another program may have damaged or
#: deleted it.
ROUNDS = 3

MAX_CLAIM = 256

#: So many attempts in a row without any answer, and a model is out: one call at a time looks
#: whether it is back.
DEAF = 5

UNHEARD_S = 60.0
"""A model that never answered anything on this ledger is given up after so long: its server is not
out, it is wrong."""

_SILENT: dict[tuple[str, str | None], float] = {}
"""Since when models were silent that were given up in this process: its next step does not wait as
long once more."""

DENIALS = 3
"""A model that has answered before is out of reach when so many attempts at one call in a row are
denied, by its key, its name or a permission: a gateway that renews its token denies a call or
two."""

MIN_LOOK_S, MAX_LOOK_S = 0.5, 30.0
MIN_GAP_S, MAX_GAP_S = 0.005, 10.0
SLOWER, FASTER = 1.1, 0.98
"""What a call that was turned away, and one that was answered, do to the gap between calls. They
balance where one in six is turned away."""


class Task(NamedTuple):
    """A request with what an attempt at it takes."""

    request: Request
    tokens: int  # planned, of prompt and answer
    usd: float  # the most that it can cost with the room that its options give
    marks: list[int]  # where its provider is told what to keep of the prompt


@dataclass
class Lane:
    """One model's queue; it changes as the work goes on."""

    model: Model
    tasks: list[Task]
    batch: int
    waiting: deque[Task]
    ready: deque[Task] = field(default_factory=deque)  # claimed by this process
    elsewhere: list[Task] = field(default_factory=list)  # claimed by another one
    claiming: asyncio.Lock = field(default_factory=asyncio.Lock)
    closed: str | None = None  # why nothing more is asked
    short: int = 0  # of how many tasks for want of money
    answers: int = 0
    failures: int = 0  # attempts in a row without any answer
    silent_since: float | None = None  # when the first of them ended
    said: str = ""
    heard: bool = False  # whether the model ever answered on this ledger, be it with nothing
    proven: bool = False  # whether it ever gave an answer that counts
    # requests that the provider will not answer; if the first few all are, the settings are wrong
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

    def silence(self, clock: float) -> float:
        """Return for how many seconds nothing was answered."""
        return 0.0 if self.silent_since is None else clock - self.silent_since

    def answered(self) -> None:
        """Note an answer: the model is there, and may be asked a little faster."""
        self.answers, self.failures, self.silent_since = self.answers + 1, 0, None
        _SILENT.pop((self.model.identity, self.model.api_base), None)
        self._gap_s = self._gap_s * FASTER if self._gap_s > MIN_GAP_S else 0.0

    def failed(self, failure: Failure, clock: float) -> None:
        """Record an attempt without an answer, and slow down if it came too fast."""
        self.heard = self.heard or failure.kind in ("empty", "refused")
        self.turned_down += failure.kind == "never"
        if self.turned_down >= DEAF and not self.heard and self.closed is None:
            self.closed = (
                f"its first {self.turned_down} calls were all turned down; the last:"
                f" {failure.words}"
            )
        if failure.kind == "closed":
            self.said = failure.words
            return None
        if failure.kind not in ("again", "throttled"):
            return self.answered()  # with a refusal of this request, or with nothing
        if failure.kind == "throttled" and not self.out:
            self._gap_s = min(MAX_GAP_S, max(MIN_GAP_S, self._gap_s) * SLOWER)
        self.failures, self.said = self.failures + 1, failure.words
        self.silent_since = clock if self.silent_since is None else self.silent_since
        if self.failures == DEAF:
            self._look_at = clock + MIN_LOOK_S
        return None

    def gives_up(self, failure: Failure, clock: float) -> bool:
        """Check whether nothing more is asked after a failure, and record why."""
        patience, silence, wait = self.model.patience_s, self.silence(clock), ""
        silent = silence > (patience if self.heard else min(patience, UNHEARD_S))
        if failure.kind != "closed" and not silent and (failure.after_s or 0.0) <= patience:
            return False
        if silent and self.silent_since is not None:
            wait = (
                f" (for {silence:.0f} s nothing was"
                f" answered{'' if self.heard else ', nor ever before'})"
            )
            _SILENT[self.model.identity, self.model.api_base] = self.silent_since
        elif failure.after_s:
            wait = f" (it asks to wait {failure.after_s:g} s)"
        self.closed = self.closed or f"{failure.words}{wait}"
        return True

    def wait(self, clock: float) -> float:
        """Return how many seconds a call waits.

        While the model is out, 0 lets this call look, and no other for a while.
        """
        until = max(self.held_until, self._look_at if self.out else 0.0)
        if clock < until:
            return until - clock
        if self.out:
            # it grows with the silence
            pause = min(MAX_LOOK_S, max(MIN_LOOK_S, self.silence(clock) / 4))
            self._look_at = clock + pause * random.uniform(0.8, 1.2)
        return 0.0

    def places(self, tokens: int) -> dict[str, float]:
        """Return the queues that all processes keep of this model, in seconds a request.

        Requests are evenly spaced, so that no minute has more than the limits allow. What a
        provider's headers leave is spread over the time until it is full again.
        """
        model, gaps = self.model, [self._gap_s]
        gaps += [
            limit.reset_s * (1 if limit.of == "requests" else tokens) / limit.left
            for limit in self.limits
            if limit.left
        ]
        places = {"pace": min(MAX_GAP_S, max(gaps))} if max(gaps) >= MIN_GAP_S else {}
        if model.requests_per_minute:
            places["requests"] = 60 / model.requests_per_minute
        if model.tokens_per_minute:
            places["tokens"] = 60 * tokens / model.tokens_per_minute
        return {f"{model.identity_digest} {name}": seconds for name, seconds in places.items()}


def make_lanes(requests: Sequence[Request], max_concurrency: int | None) -> list[Lane]:
    """Sort requests into one queue a model, each in the order it came."""
    by_model: dict[str, list[Request]] = {}
    for request in requests:
        by_model.setdefault(request.model.name + request.model.identity, []).append(request)
    lanes = []
    for queue in by_model.values():
        model, tasks, fault = queue[0].model, [], key_fault(queue[0].model)
        for request, marks in zip(queue, marks_in(queue), strict=True):
            plan = plan_call(request)
            tasks.append(
                Task(
                    request,
                    (plan.prompt_tokens or 0) + (plan.completion_tokens or 0),
                    reserve(request),
                    marks,
                )
            )
        batch = min(MAX_CLAIM, model.max_concurrency, max_concurrency or MAX_CLAIM)
        silent_since = _SILENT.get((model.identity, model.api_base))
        lanes.append(
            Lane(model, tasks, batch, deque(tasks), closed=fault, silent_since=silent_since)
        )
    return lanes


FIRST_PAUSE_S = 0.5
MAX_PAUSE_S = 30.0


def backoff(n: int, after_s: float | None) -> float:
    """Compute a pause that doubles, with jitter so that calls do not come back together."""
    if after_s is not None:
        return after_s + random.uniform(0, 0.1 + after_s / 10)
    return min(MAX_PAUSE_S, FIRST_PAUSE_S * 2.0 ** (n - 1)) * random.uniform(0.5, 1.5)


T = TypeVar("T")

FLUSH_S = 0.1  #: Answers are committed together, this often; a kill loses what came since.

HEARTBEAT_S = 5.0
POLL_S = 0.3  #: How often a process looks whether another one has answered what both need.

TELL_S = 1.0
LOG_BEATS = 30

#: Failures of one call while others are answered; what nobody is answered is an outage, and waited
#: for.
MAX_ATTEMPTS = 10

#: Empty answers to one request before it counts as an error. Each is paid like any other answer.
MAX_EMPTY = 4


class Asking(TypedDict, total=False):
    """How models are asked, beside how many at once; ``ask_all`` states the defaults."""

    #: ``missing`` asks what the ledger lacks, ``replay`` nothing, ``dry`` plans it, ``batch``
    #: submits it.
    mode: str
    budget_usd: float | None  #: What the ledger may spend, ever.
    max_paid_calls: int | None  #: So many calls that cost money, and no more.
    progress: bool  #: Whether a bar is drawn.
    scheduler: str | None  #: Address of a Dask scheduler whose workers ask.


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
        collect_batches(ledger)
    recorded = ledger.find([request.key for request in requests])
    damaged = [request for request in requests if request.key in ledger.damaged]
    if damaged:
        then = (
            "They count as errors; `make collect` asks again."
            if mode in ("replay", "dry")
            else "They are asked again."
        )
        about = f" about {damaged[0].tag}" if damaged[0].tag else ""
        warnings.warn(
            f"{len(damaged)} answers in {ledger.url} are damaged, the first by"
            f" {damaged[0].model.name}{about}. {then}",
            stacklevel=2,
        )
    # A replay takes a recorded failure as the answer that it was, so that a finished run gives the
    # same tables; other modes ask again.
    again = mode in ("missing", "dry") or (mode == "batch" and damaged)
    todo = {
        r.key: r for r in requests if r.key not in recorded or (again and failed(recorded[r.key]))
    }
    missing = list(todo.values())
    if mode == "replay" and missing:
        raise explain_miss(ledger, missing, total=len(requests))
    if mode in ("missing", "batch") and missing:
        check_money(missing, budget_usd=budget_usd, max_paid_calls=max_paid_calls)
    if mode == "batch" and missing:
        submit_batches(missing, ledger=ledger, budget_usd=budget_usd)
    if mode in ("dry", "batch"):
        recorded |= {request.key: plan_call(request) for request in missing}
        return [recorded[request.key] for request in requests]
    ask: Callable[..., dict[str, Call]] = run
    if scheduler is not None:
        ask = partial(run_on_cluster, ask_shard=_ask_shard, scheduler=scheduler)
    how: dict[str, Any] = {
        "max_concurrency": max_concurrency,
        "budget_usd": budget_usd,
        "progress": progress,
    }
    # A call can be lost between its answer and this look-up, if another program deletes from the
    # ledger. It is asked a few times more, never for ever: each time may cost money.
    recorded = {key: call for key, call in recorded.items() if key not in todo}
    rounds = 0
    while missing and rounds < ROUNDS:
        recorded |= ask(missing, ledger=ledger, **how) | ledger.find(list(todo))
        missing, rounds = (
            [request for request in missing if request.key not in recorded],
            rounds + 1,
        )
    if missing:
        said = f"{len(missing)} calls were asked {ROUNDS} times and are not in {ledger.url}"
        raise LedgerError(f"{said}: another program deletes from it.")
    return [recorded[request.key] for request in requests]


def _ask_shard(
    requests: Sequence[Request], address: str, max_concurrency: int | None, budget_usd: float | None
) -> tuple[int, list[Call]]:
    """Ask a shard's requests in a worker of a cluster; return calls that could not be made."""
    ledger = _shared_ledger(os.environ.get("HEART_LEDGER") or address)
    calls = ask_all(
        requests,
        ledger=ledger,
        max_concurrency=max_concurrency,
        budget_usd=budget_usd,
        progress=False,
    )
    recorded = ledger.statuses([call.call_id for call in calls])
    return len(requests), [call for call in calls if call.call_id not in recorded]


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
    embedded = any(request.model.embedded for request in requests)
    serving: AbstractContextManager[str | None] = serve_local() if embedded else nullcontext()
    with serving as address, tqdm(total=len(requests), unit="call", disable=not progress) as bar:
        flow = _Flow(ledger, address, max_concurrency, budget_usd, bar)
        loop = event_loop(os.getpid())
        future = asyncio.run_coroutine_threadsafe(flow.run(requests), loop)
        try:
            future.result()
        except KeyboardInterrupt:
            loop.call_soon_threadsafe(flow.stopping.set)
            bar.write(
                f"Stopping: {flow.in_flight} calls in flight are waited for; Ctrl-C again gives"
                " them up."
            )
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
            warnings.warn(f"{lane.model.name}: its queue was stopped. {lane.closed}", stacklevel=3)
    short = [lane for lane in flow.lanes if lane.short]
    if short:
        caps = {f"{lane.model.name}'s own": lane.model.budget_usd for lane in short}
        budgets = [
            f"{whose} {usd:g}".strip()
            for whose, usd in {"": budget_usd, **caps}.items()
            if usd is not None
        ]
        money = ledger.money()
        raise BudgetError(
            f"The budget of {' or '.join(budgets)} USD does not reach for another call:"
            f" {money.spent:.4f} spent, {money.unsettled:.4f} perhaps billed for calls nobody heard"
            f" the end of, {money.reserved:.4f} held for requests in batches."
            f" {sum(lane.short for lane in short)} calls were not made. What was answered is"
            " recorded; raise budget_usd and run again."
        )
    if flow.in_batches:
        said = (
            f"{flow.in_batches} of the requests are in a provider's batch that has not been"
            " collected"
        )
        raise LedgerError(
            f"{said}. Mode 'batch' collects it once it is there; the others are recorded."
        )
    return flow.lost()


class _Flow:
    """One run of ``run``, on the event loop."""

    def __init__(
        self,
        ledger: Ledger,
        address: str | None,
        max_concurrency: int | None,
        budget_usd: float | None,
        bar: Any,
    ) -> None:
        self.ledger, self.address, self.budget_usd, self.bar = ledger, address, budget_usd, bar
        self.max_concurrency = max_concurrency
        self.gate: Any = (
            nullcontext() if max_concurrency is None else asyncio.Semaphore(max_concurrency)
        )
        self.lanes: list[Lane] = []
        self.stopping = asyncio.Event()
        self._finished = asyncio.Event()
        self.gone = threading.Event()
        self.in_batches = self.in_flight = self._failed = self._throttled = 0
        self._spent = self._since = self._unsettled = self._written_at = 0.0
        self._asked: dict[str, Request] = {}
        self._answered: set[str] = set()
        self._answers: list[Call] = []
        self._database = ThreadPoolExecutor(1, "ledger")

    def lost(self) -> dict[str, Call]:
        """Return calls that were not made because their model's queue was stopped."""
        closed = {
            task.request.key: lane.closed
            for lane in self.lanes
            if lane.closed is not None
            for task in lane.tasks
        }
        return {
            key: Call(key, "error", error=why)
            for key, why in closed.items()
            if key not in self._answered
        }

    async def run(self, requests: Sequence[Request]) -> None:
        """Run all queues, and the writer beside them, until all is asked or something breaks."""
        forgo_records()
        try:
            self._since = await self._on_ledger(self.ledger.clock)
            self._spent = (await self._on_ledger(self.ledger.money)).spent
            self.lanes = make_lanes(requests, self.max_concurrency)
            self._asked = {request.key: request for request in requests}
            writer, work = (
                asyncio.create_task(self._write()),
                asyncio.create_task(self._run_lanes()),
            )
            teller = asyncio.create_task(self._tell())
            try:
                await asyncio.wait({writer, work}, return_when=asyncio.FIRST_COMPLETED)
            # also where this task is cancelled: the writer may finish, so that no answer is lost
            finally:
                teller.cancel()
                self.bar.set_postfix_str(self._standing())
                work.cancel()
                ended = list(await asyncio.gather(work, return_exceptions=True))
                self._finished.set()
                ended += await asyncio.gather(writer, return_exceptions=True)
                await self._on_ledger(
                    self.ledger.release, [key for key in self._asked if key not in self._answered]
                )
            for error in reversed(ended):
                if isinstance(error, BaseException) and not isinstance(
                    error, asyncio.CancelledError
                ):
                    raise _first(error)
        finally:
            self._database.shutdown(wait=False)
            self.gone.set()

    async def _run_lanes(self) -> None:
        for lane in self.lanes:
            lane.heard = lane.proven = await self._on_ledger(self.ledger.knows, lane.model)
        async with asyncio.TaskGroup() as group:
            for lane in self.lanes:
                for _ in range(
                    min(
                        lane.model.max_concurrency,
                        self.max_concurrency or len(lane.tasks),
                        len(lane.tasks),
                    )
                ):
                    group.create_task(self._work(lane))

    def _over(self, lane: Lane) -> bool:
        return self.stopping.is_set() or lane.closed is not None

    async def _look_elsewhere(self, lane: Lane) -> None:
        """Look for answers of other processes to requests that they had claimed.

        What remains is claimed again if they died.
        """
        await self._pause(POLL_S)
        asked, lane.elsewhere = lane.elsewhere, []
        found = await self._on_ledger(self.ledger.find, [task.request.key for task in asked])
        # also a failure of theirs is an end for this run
        left = [task for task in asked if task.request.key not in found]
        held = await self._on_ledger(self.ledger.in_batches, [task.request.key for task in left])
        lane.waiting.extend(task for task in left if task.request.key not in held)
        self.in_batches += len(held)
        self.bar.update(len(found))

    async def _work(self, lane: Lane) -> None:
        """Ask one request after another."""
        while (task := await self._next(lane)) is not None:
            call, costs = None, list[float]()
            try:
                call = await self._ask(lane, task, costs)
            finally:  # also where it is given up: what was paid for until then counts
                self._unsettled += 0.0 if call else sum(costs)
            if call is None:
                continue
            self._answers.append(call)
            self._answered.add(call.call_id)
            self._failed += call.status == "error"
            self._spent += call.cost_usd or 0.0
            self.bar.update(1)

    async def _next(self, lane: Lane) -> Task | None:
        """Take the next task that this process has claimed, and claim more before they run out."""
        while not self._over(lane):
            if len(lane.ready) <= lane.batch // 2 and not (lane.ready and lane.claiming.locked()):
                async with lane.claiming:
                    if lane.waiting and len(lane.ready) <= lane.batch // 2:
                        await self._claim(lane)
                    elif lane.elsewhere and not lane.ready:
                        await self._look_elsewhere(lane)
            if lane.ready:
                return lane.ready.popleft()
            if not (lane.waiting or lane.elsewhere):
                return None
        return None

    async def _claim(self, lane: Lane) -> None:
        batch = [lane.waiting.popleft() for _ in range(min(lane.batch, len(lane.waiting)))]
        requests, reserves = [task.request for task in batch], [task.usd for task in batch]
        step = partial(
            self.ledger.claim, requests, reserves, since=self._since, budget_usd=self.budget_usd
        )
        claim = await self._on_ledger(step)
        fit = batch[: len(batch) - claim.unfit]
        # extendleft turns the order round, so what did not fit goes back reversed: requests that
        # share a prompt's prefix must stay neighbours for the provider's cache.
        lane.waiting.extendleft(reversed(batch[len(fit) :]))
        for task in fit:
            (lane.ready if task.request.key in claim.won else lane.elsewhere).append(task)
        # calls in flight may cost less than was reserved for them
        if not fit and claim.money.in_flight > 0:
            await self._pause(POLL_S)
        elif not fit:
            lane.short = len(lane.waiting)
            lane.waiting.clear()

    async def _ask(self, lane: Lane, task: Task, costs: list[float]) -> Call | None:
        """Ask until there is an answer, or no use in asking; None if the task was given back."""
        attempts = faults = empty = pauses = denials = 0
        clock, answers, growth = asyncio.get_running_loop().time, lane.answers, 1
        while True:
            await self._turn(lane, task)
            async with self.gate:
                if self._over(lane):
                    return None
                attempts += 1
                came, in_flight = await self._attempt(lane, task, growth)
            costs.append(came.cost_usd or 0.0)
            if isinstance(came, Answer):
                lane.answered()
                lane.heard, lane.proven, lane.limits = True, True, came.limits
                empty_in = [limit.reset_s for limit in came.limits if limit.left == 0]
                if empty_in:
                    await self._hold(lane, min(MAX_LOOK_S, max(empty_in)))
                if (
                    came.status == "truncated"
                    and came.finish_reason != CUT
                    and await self._may_grow(task, growth)
                ):
                    growth *= 2
                    continue
                cost_usd = None if came.cost_usd is None else sum(costs)
                return replace(came, attempts=attempts, in_flight=in_flight, cost_usd=cost_usd)
            lane.failed(came, clock())
            # While nobody is answered, the fault is not this request's.
            throttled = came.kind == "throttled"
            others_answered = lane.answers > answers
            faults += not throttled and others_answered
            empty += came.kind == "empty"
            denials = 0 if came.kind == "closed" and others_answered else denials
            denials += came.may_pass
            stray = came.may_pass and lane.proven and denials < DENIALS
            answers = lane.answers
            self._unsettled += growth * task.usd if came.billed else 0.0
            if not stray and lane.gives_up(came, clock()):
                return None
            final = came.kind in ("never", "refused") and not stray
            ends = final or faults >= MAX_ATTEMPTS or empty >= MAX_EMPTY
            paid = came.billed or came.kind == "empty"  # an empty answer is billed like any other
            if ends or (paid and not await self._afford(task, growth)):
                words = f"{came.words}, {empty} times" if came.kind == "empty" else came.words
                words += "" if ends else "; the budget has no second attempt"
                status = "refused" if came.kind == "refused" else "error"
                told: dict[str, Any] = {
                    "attempts": attempts,
                    "in_flight": in_flight,
                    "error": words,
                }
                return Call(task.request.key, status, cost_usd=sum(costs) or None, **told)
            if not lane.out:
                pauses += 1
                if throttled and came.after_s:
                    await self._hold(lane, came.after_s)
                self._throttled += throttled
                await self._pause(backoff(pauses, came.after_s))
                self._throttled -= throttled

    async def _turn(self, lane: Lane, task: Task) -> None:
        """Wait until a task may be asked: its model is there and no limit forbids it.

        Its own limits, or others' refusals.
        """
        clock = asyncio.get_running_loop().time
        while not self._over(lane) and (wait := lane.wait(clock())) > 0:
            await self._pause(min(wait, TELL_S))
        places = lane.places(task.tokens)
        if places:
            await self._pause(await self._on_ledger(self.ledger.book, places))

    async def _hold(self, lane: Lane, seconds: float) -> None:
        """Ask a model nothing for a while, in no process."""
        lane.held_until = max(lane.held_until, asyncio.get_running_loop().time() + seconds)
        await self._on_ledger(self.ledger.hold, lane.rest, seconds)

    async def _attempt(self, lane: Lane, task: Task, growth: int) -> tuple[Answer | Failure, int]:
        self.in_flight += 1
        in_flight = self.in_flight
        try:
            return await attempt(task.request, growth, self.address, task.marks), in_flight
        except asyncio.CancelledError:
            self._unsettled += growth * task.usd  # given up in flight, and perhaps billed
            raise
        finally:
            self.in_flight -= 1

    async def _may_grow(self, task: Task, growth: int) -> bool:
        """Check whether a truncated answer may be asked again with twice the room."""
        return (
            task.request.room is not None
            and 2 * growth <= MAX_GROWTH
            and await self._afford(task, 2 * growth)
        )

    async def _afford(self, task: Task, growth: int) -> bool:
        """Reserve money for one more attempt."""
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

    async def _write(self) -> None:
        """Commit answers in groups, and let other processes know that this one lives."""
        last = False
        while not last:
            # once more after that: for what came since the last time
            last = self._finished.is_set()
            answers, self._answers = self._answers, []
            unsettled, self._unsettled = self._unsettled, 0.0
            if answers or unsettled or time.monotonic() - self._written_at > HEARTBEAT_S:
                await self._on_ledger(
                    partial(self.ledger.record, answers, unsettled, requests=self._asked)
                )
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
                said: dict[str, Any] = {
                    "done": len(self._answered),
                    "of": len(self._asked),
                    "in_flight": self.in_flight,
                }
                said |= {
                    "throttled": self._throttled,
                    "failed": self._failed,
                    "spent_usd": round(self._spent, 6),
                }
                await self._on_ledger(self.ledger.tell, said | {"standing": self._standing()})

    def _standing(self) -> str:
        """Describe what failed, what waits and why, and what was spent."""
        clock = asyncio.get_running_loop().time()
        elsewhere = sum(len(lane.elsewhere) for lane in self.lanes)
        waits = {f"{self._failed} failed": True, f"{self._throttled} throttled": self._throttled}
        for lane in self.lanes:
            name, held, silent = lane.model.name, lane.held_until - clock, lane.silence(clock)
            waits[f"{name} held for {held:.0f} s"] = held > 0
            waits[f"waiting for {name}, silent for {silent:.0f} s ({lane.said[:60]})"] = (
                lane.out and lane.closed is None
            )
        waits |= {
            "waiting for the ledger": self.ledger.waits is not None,
            f"{elsewhere} asked by others": elsewhere,
        }
        return ", ".join(
            [*(words for words, is_so in waits.items() if is_so), f"{self._spent:.2f} USD"]
        )

    async def _on_ledger(self, step: Callable[..., T], *args: Any) -> T:
        # What was begun in the thread is not undone by a cancelled wait.
        return await asyncio.shield(
            asyncio.get_running_loop().run_in_executor(self._database, step, *args)
        )


def _first(error: BaseException) -> BaseException:
    """Return the first error in the group that a group of tasks raises."""
    return _first(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error
