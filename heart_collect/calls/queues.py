"""One queue a model: at what pace it is asked, when it waits, and when it is given up."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from heart_collect.calls.keys import key_fault
from heart_collect.calls.models import Model, Request
from heart_collect.calls.outcomes import Failure, Limit, cache_breakpoints
from heart_collect.calls.prices import plan_call, reserve
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
    """A request with what an attempt at it takes."""

    request: Request
    tokens: int  # planned, of prompt and answer
    usd: float  # the most that it can cost with the room that its options give
    breakpoints: list[int]  # where its provider is told what to keep of the prompt


@dataclass
class ModelQueue:
    """One model's queue; it changes as the work goes on."""

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
        """The name under which all processes keep until when nothing is asked."""
        return f"{self.model.identity_digest} rest"

    @property
    def runs_low(self) -> bool:
        """Whether fewer tasks are ready than half of what is claimed at once."""
        return len(self.ready) <= self.batch // 2

    @property
    def out(self) -> bool:
        """Whether nothing is answered at present."""
        return self.failures >= OUTAGE_AFTER

    def silence(self, clock: float) -> float:
        """Return for how many seconds nothing was answered."""
        return 0.0 if self.silent_since is None else clock - self.silent_since

    def answered(self) -> None:
        """Note an answer: the model is there, and may be asked a little faster."""
        self.answers, self.failures, self.silent_since = self.answers + 1, 0, None
        _SILENT.pop((self.model.identity, self.model.api_base), None)
        self._gap_s = self._gap_s * FASTER if self._gap_s > MIN_GAP_S else 0.0

    def heard(self, text: str) -> None:
        """Stop where a model's answers hold thoughts and nothing else: each is paid."""
        self.thoughts = 0 if answer_start(text) is not None else self.thoughts + 1
        if self.thoughts >= MAX_THOUGHTS and self.closed is None:
            self.closed = (
                f"{self.thoughts} answers in a row were thoughts without a word of an answer. Give"
                " it more room (`max_tokens` under `options:`) or less to think (`reasoning_effort:"
                " low`)"
            )

    def failed(self, failure: Failure, clock: float) -> None:
        """Record an attempt without an answer, and slow down if it came too fast."""
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
        """Check whether nothing more is asked after a failure, and record why."""
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
        """Return how many seconds a call waits.

        While the model is out, 0 lets this call look, and no other for a while.
        """
        until = max(self.held_until, self._probe_at if self.out else 0.0)
        if clock < until:
            return until - clock
        if self.out:
            # it grows with the silence
            pause = min(MAX_PROBE_S, max(MIN_PROBE_S, self.silence(clock) / 4))
            self._probe_at = clock + pause * random.uniform(0.8, 1.2)
        return 0.0

    def spacing(self, tokens: int) -> dict[str, float]:
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
        spacing = {"pace": min(MAX_GAP_S, max(gaps))} if max(gaps) >= MIN_GAP_S else {}
        if model.requests_per_minute:
            spacing["requests"] = 60 / model.requests_per_minute
        if model.tokens_per_minute:
            spacing["tokens"] = 60 * tokens / model.tokens_per_minute
        return {f"{model.identity_digest} {name}": seconds for name, seconds in spacing.items()}


def make_queues(requests: Sequence[Request], max_concurrency: int | None) -> list[ModelQueue]:
    """Sort requests into one queue a model, each in the order it came."""
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
    """Compute a pause that doubles, with jitter so that calls do not come back together."""
    if after_s is not None:
        return after_s + random.uniform(0, 0.1 + after_s / 10)
    return min(MAX_PAUSE_S, FIRST_PAUSE_S * 2.0 ** (n - 1)) * random.uniform(0.5, 1.5)
