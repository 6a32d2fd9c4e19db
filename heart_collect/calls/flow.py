"""One run through all queues: what is claimed, asked, written and told, each side by side."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from heart_collect.calls.ledger import Ledger
from heart_collect.calls.models import Call, Request, forgo_records
from heart_collect.calls.outcomes import CUT, Answer, Failure, attempt
from heart_collect.calls.prices import MAX_GROWTH
from heart_collect.calls.queues import MAX_PROBE_S, ModelQueue, Task, backoff, make_queues

__all__: list[str] = []

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


class LedgerThread:
    """A thread of its own for the steps on the ledger, which would hold up the event loop."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, "ledger")

    async def do(self, step: Callable[..., T], *args: Any) -> T:
        """Take one step, after those that were begun before."""
        # What was begun in the thread is not undone by a cancelled wait.
        return await asyncio.shield(
            asyncio.get_running_loop().run_in_executor(self._pool, step, *args)
        )

    def close(self) -> None:
        """Take no further step; what was begun ends."""
        self._pool.shutdown(wait=False)


class Progress:
    """What a run outcome to so far, for its bar and its log."""

    def __init__(self, bar: Any) -> None:
        self.bar = bar
        self.answered: set[str] = set()
        self.in_flight = 0
        self.in_batches = 0
        self.failed = 0
        self.throttled = 0
        self.spent = 0.0  # in USD, by all who share the ledger

    def take(self, call: Call) -> None:
        """Count a call that ended."""
        self.answered.add(call.call_id)
        self.failed += call.status == "error"
        self.spent += call.cost_usd or 0.0
        self.bar.update(1)

    def show(self, queues: Sequence[ModelQueue], ledger: Ledger) -> None:
        """Show how it stands beside the bar."""
        self.bar.set_postfix_str(self.standing(queues, ledger))

    async def tell(
        self, ledger: Ledger, thread: LedgerThread, queues: Sequence[ModelQueue], n_asked: int
    ) -> None:
        """Show how it stands while nothing moves, and log it now and then."""
        for beat in itertools.count():
            await asyncio.sleep(TELL_S)
            self.show(queues, ledger)
            if beat % LOG_BEATS == 0:
                self.spent = (await thread.do(ledger.money)).spent  # others spend too
                line = {
                    "done": len(self.answered),
                    "of": n_asked,
                    "in_flight": self.in_flight,
                    "throttled": self.throttled,
                    "failed": self.failed,
                    "spent_usd": round(self.spent, 6),
                    "standing": self.standing(queues, ledger),
                }
                await thread.do(ledger.tell, line)

    def standing(self, queues: Sequence[ModelQueue], ledger: Ledger) -> str:
        """Describe what failed, what waits and why, and what was spent."""
        clock = asyncio.get_running_loop().time()
        elsewhere = sum(len(queue.claimed_elsewhere) for queue in queues)
        waits = {f"{self.failed} failed": True, f"{self.throttled} throttled": self.throttled}
        for queue in queues:
            name, held, silent = queue.model.name, queue.held_until - clock, queue.silence(clock)
            waits[f"{name} held for {held:.0f} s"] = held > 0
            waits[f"waiting for {name}, silent for {silent:.0f} s ({queue.last_error[:60]})"] = (
                queue.out and queue.closed is None
            )
        waits |= {
            "waiting for the ledger": ledger.waits is not None,
            f"{elsewhere} asked by others": elsewhere,
        }
        return ", ".join(
            [*(words for words, is_so in waits.items() if is_so), f"{self.spent:.2f} USD"]
        )


class Writer:
    """Answers on their way into the ledger."""

    def __init__(self, ledger: Ledger, thread: LedgerThread) -> None:
        self.ledger = ledger
        self.thread = thread
        self.answers: list[Call] = []
        self.unsettled = 0.0  # in USD, for attempts whose end nobody heard
        self.finished = asyncio.Event()
        self._written_at = 0.0

    async def run(self, queues: Sequence[ModelQueue], requests: Mapping[str, Request]) -> None:
        """Commit answers in groups, and let other processes know that this one lives."""
        last = False
        while not last:
            # once more after that: for what outcome since the last time
            last = self.finished.is_set()
            answers, self.answers = self.answers, []
            unsettled, self.unsettled = self.unsettled, 0.0
            if answers or unsettled or time.monotonic() - self._written_at > HEARTBEAT_S:
                await self.thread.do(
                    partial(self.ledger.record, answers, unsettled, requests=requests)
                )
                self._written_at = time.monotonic()
                held = await self.thread.do(self.ledger.held, [queue.hold_name for queue in queues])
                clock = asyncio.get_running_loop().time()
                for queue in queues:
                    queue.held_until = max(queue.held_until, clock + held.get(queue.hold_name, 0.0))
            with suppress(TimeoutError):
                await asyncio.wait_for(self.finished.wait(), FLUSH_S)


class Flow:
    """One run through the queues of all models, on the event loop."""

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
        self.thread = LedgerThread()
        self.progress = Progress(bar)
        self.writer = Writer(ledger, self.thread)
        self.stopping = asyncio.Event()
        self.ended = threading.Event()
        self._since = 0.0

    def lost(self) -> dict[str, Call]:
        """Return calls that were not made because their model's queue was stopped."""
        closed = {
            task.request.key: queue.closed
            for queue in self.queues
            if queue.closed is not None
            for task in queue.tasks
        }
        return {
            key: Call(key, "error", error=why)
            for key, why in closed.items()
            if key not in self.progress.answered
        }

    async def run(self, requests: Sequence[Request]) -> None:
        """Run all queues, and the writer beside them, until all is asked or something breaks."""
        forgo_records()
        try:
            self._since = await self._on_ledger(self.ledger.clock)
            self.progress.spent = (await self._on_ledger(self.ledger.money)).spent
            self.queues = make_queues(requests, self.max_concurrency)
            by_key = {request.key: request for request in requests}
            writer = asyncio.create_task(self.writer.run(self.queues, by_key))
            work = asyncio.create_task(self._run_queues())
            teller = asyncio.create_task(
                self.progress.tell(self.ledger, self.thread, self.queues, len(by_key))
            )
            try:
                await asyncio.wait({writer, work}, return_when=asyncio.FIRST_COMPLETED)
            # also where this task is cancelled: the writer may finish, so that no answer is lost
            finally:
                teller.cancel()
                self.progress.show(self.queues, self.ledger)
                work.cancel()
                ended = list(await asyncio.gather(work, return_exceptions=True))
                self.writer.finished.set()
                ended += await asyncio.gather(writer, return_exceptions=True)
                left = [key for key in by_key if key not in self.progress.answered]
                await self._on_ledger(self.ledger.release, left)
            for error in reversed(ended):
                if isinstance(error, BaseException) and not isinstance(
                    error, asyncio.CancelledError
                ):
                    raise _first(error)
        finally:
            self.thread.close()
            self.ended.set()

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
        """Look for answers of other processes to requests that they had claimed.

        What remains is claimed again if they died.
        """
        await self._pause(POLL_S)
        claimed, queue.claimed_elsewhere = queue.claimed_elsewhere, []
        answered = await self._on_ledger(self.ledger.find, [task.request.key for task in claimed])
        # also a failure of theirs is an end for this run
        left = [task for task in claimed if task.request.key not in answered]
        held = await self._on_ledger(self.ledger.in_batches, [task.request.key for task in left])
        queue.waiting.extend(task for task in left if task.request.key not in held)
        self.progress.in_batches += len(held)
        self.progress.bar.update(len(answered))

    async def _answer_tasks(self, queue: ModelQueue) -> None:
        """Ask one request after another."""
        while (task := await self._next_task(queue)) is not None:
            call, costs = None, list[float]()
            try:
                call = await self._ask(queue, task, costs)
            finally:  # also where it is given up: what was paid for until then counts
                self.writer.unsettled += 0.0 if call else sum(costs)
            if call is not None:
                self.writer.answers.append(call)
                self.progress.take(call)

    async def _next_task(self, queue: ModelQueue) -> Task | None:
        """Take the next task that this process has claimed, and claim more before they run out."""
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
        """Ask until there is an answer, or no use in asking; None if the task was given back."""
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
            self.writer.unsettled += growth * task.usd if outcome.billed else 0.0
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
                self.progress.throttled += throttled
                await self._pause(backoff(pauses, outcome.after_s))
                self.progress.throttled -= throttled

    async def _wait_turn(self, queue: ModelQueue, task: Task) -> None:
        """Wait until a task may be asked: its model is there and no limit forbids it.

        A limit is its own, or follows from what other calls were refused.
        """
        clock = asyncio.get_running_loop().time
        while not self._over(queue) and (wait := queue.wait(clock())) > 0:
            await self._pause(min(wait, TELL_S))
        spacing = queue.spacing(task.tokens)
        if spacing:
            await self._pause(await self._on_ledger(self.ledger.reserve_slots, spacing))

    async def _hold(self, queue: ModelQueue, seconds: float) -> None:
        """Ask a model nothing for a while, in no process."""
        queue.held_until = max(queue.held_until, asyncio.get_running_loop().time() + seconds)
        await self._on_ledger(self.ledger.hold, queue.hold_name, seconds)

    async def _attempt(
        self, queue: ModelQueue, task: Task, growth: int
    ) -> tuple[Answer | Failure, int]:
        self.progress.in_flight += 1
        in_flight = self.progress.in_flight
        try:
            return await attempt(task.request, growth, self.address, task.breakpoints), in_flight
        except asyncio.CancelledError:
            self.writer.unsettled += growth * task.usd  # given up in flight, and perhaps billed
            raise
        finally:
            self.progress.in_flight -= 1

    async def _may_grow(self, task: Task, growth: int) -> bool:
        """Check whether a truncated answer may be asked again with twice the room."""
        return (
            task.request.max_tokens is not None
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

    async def _on_ledger(self, step: Callable[..., T], *args: Any) -> T:
        return await self.thread.do(step, *args)


def _first(error: BaseException) -> BaseException:
    """Return the first error in the group that a group of tasks raises."""
    return _first(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error
