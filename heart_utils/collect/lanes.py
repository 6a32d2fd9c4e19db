"""A queue for each model: what waits, what is claimed, and how fast its provider wants to be asked."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from heart_utils.collect.models import Model, Request
from heart_utils.collect.prices import plan_call

__all__ = ["Lane", "make_lanes"]

MAX_CLAIM = 256

DEAF = 5
"""So many attempts in a row without any answer, and a model is out: one call at a time looks whether it is back."""

MIN_LOOK_S, MAX_LOOK_S = 0.5, 30.0
MIN_GAP_S, MAX_GAP_S = 0.005, 10.0
SLOWER, FASTER = 1.1, 0.98
"""What a call that was turned away, and one that was answered, do to the gap between calls. They balance where one in six
is turned away."""


@dataclass
class Lane:
    """One model's queue; it changes as the work goes on.

    Attributes
    ----------
    model : Model
        Who is asked.
    requests : list of Request
        All of them, in their order.
    batch : int
        How many are claimed at once.
    waiting, ready : deque of Request
        Not claimed yet; claimed and not asked yet.
    elsewhere : list of Request
        Claimed by another process.
    refill : asyncio.Task, optional
        A claim that is being made.
    closed : str, optional
        Why nothing more is asked.
    answers : int
        Attempts that were answered.
    failures : int
        Attempts in a row without any answer.
    silent_since : float, optional
        When the first of them ended.
    said : str
        What the last of them was told.
    heard : bool
        Whether a request was answered with a text.
    turned_down : int
        Requests that the provider will not answer; if the first few all are, the fault is in the settings.
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
    _gap_s: float = 0.0
    _next_at: float = 0.0
    _look_at: float = 0.0

    @property
    def out(self) -> bool:
        """Whether nothing is answered at present."""
        return self.failures >= DEAF

    def silence(self, clock: float) -> float:
        """Tell for how many seconds nothing was answered."""
        return 0.0 if self.silent_since is None else clock - self.silent_since

    def answered(self) -> None:
        """Note an answer: the model is there, and may be asked a little faster."""
        self.answers, self.failures, self.silent_since = self.answers + 1, 0, None
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

    def pace(self, clock: float) -> float:
        """Tell how many seconds a call waits because others were turned away, and book its place."""
        at = max(clock, self._next_at)
        self._next_at = at + self._gap_s
        return at - clock

    def places(self, request: Request) -> dict[str, float]:
        """Give the queues of this model's limits, and how many seconds of each a request takes up.

        Requests are evenly spaced, never in bursts, so that no minute of any beginning has more than the limits allow.
        """
        model, places = self.model, {}
        if model.requests_per_minute:
            places[f"{model.identity_digest} requests"] = 60 / model.requests_per_minute
        if model.tokens_per_minute:
            plan = plan_call(request)
            tokens = (plan.prompt_tokens or 0) + (plan.completion_tokens or 0)
            places[f"{model.identity_digest} tokens"] = 60 * tokens / model.tokens_per_minute
        return places


def make_lanes(requests: Sequence[Request], max_concurrency: int | None) -> list[Lane]:
    """Sort requests into one queue a model, each in the order it came.

    Parameters
    ----------
    requests : sequence of Request
        For any number of models.
    max_concurrency : int, optional
        Calls in flight, all models together.

    Returns
    -------
    list of Lane
        None of them begun.

    Examples
    --------
    >>> from heart_utils.collect.models import Model, Request
    >>> asks = [Request(Model(name, "openai/m"), ({"role": "user", "content": "Hi"},)) for name in ("one", "two", "one")]
    >>> [(lane.model.name, len(lane.requests), lane.batch) for lane in make_lanes(asks, None)]
    [('one', 2, 8), ('two', 1, 8)]
    """
    by_model: dict[str, list[Request]] = {}
    for request in requests:
        by_model.setdefault(request.model.name + request.model.identity, []).append(request)
    lanes = []
    for queue in by_model.values():
        batch = min(MAX_CLAIM, queue[0].model.max_concurrency, max_concurrency or MAX_CLAIM)
        lanes.append(Lane(queue[0].model, queue, batch, deque(queue)))
    return lanes
