"""A queue for each model: what waits, what is claimed, and how fast its provider wants to be asked."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from heart_utils.collect.models import Model, Request
from heart_utils.collect.prices import plan_call

__all__ = ["Lane", "make_lanes"]

MAX_CLAIM = 256


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
    in_a_row : int
        Calls in a row without any answer.
    """

    model: Model
    requests: list[Request]
    batch: int
    waiting: deque[Request]
    ready: deque[Request] = field(default_factory=deque)
    elsewhere: list[Request] = field(default_factory=list)
    refill: asyncio.Task[None] | None = None
    closed: str | None = None
    in_a_row: int = 0
    _request_at: float = 0.0
    _tokens_at: float = 0.0

    def turn(self, request: Request, clock: float) -> float:
        """Tell how many seconds a request must wait, and book its place.

        Parameters
        ----------
        request : Request
            What is to be asked.
        clock : float
            The time now, in seconds.

        Returns
        -------
        float
            Requests are evenly spaced, never in bursts, so that no minute of any beginning has
            more than the limits allow.
        """
        at = clock
        if self.model.requests_per_minute:
            at = max(at, self._request_at)
            self._request_at = at + 60 / self.model.requests_per_minute
        if self.model.tokens_per_minute:
            plan = plan_call(request)
            at = max(at, self._tokens_at)
            tokens = (plan.prompt_tokens or 0) + (plan.completion_tokens or 0)
            self._tokens_at = at + 60 * tokens / self.model.tokens_per_minute
        return at - clock


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
