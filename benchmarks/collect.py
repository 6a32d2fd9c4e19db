"""Collecting: throughput beside litellm, and a run of faults, kills, restarts and an outage.

The provider is a process of its own on loopback with 0.2 s of latency; its answers are simulated.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence

from benchmarks import Figure
from heart_collect.calls.engine import ask_all
from heart_collect.calls.models import Model, Request, load_litellm
from heart_collect.calls.records import open_ledger
from tests.faults import faults
from tests.provider_process import (
    WORDS,
    read_statistics,
    serve_provider,
)

__all__ = ["run"]


def run(quick: bool, only: str | None = None) -> Iterator[Figure]:
    """Measure what the flow of calls must reach; ``only="faults"`` leaves out speed."""
    if only == "faults":
        yield from _faults(*((400, 5.0) if quick else (10_000, 60.0)))
        return
    for in_flight in (64, 256):
        yield from _throughput(in_flight, 300 if quick else 2000, 2 if quick else 5)
    yield from _faults(*((400, 12.0) if quick else (10_000, 180.0)))


def _faults(n: int, outage_s: float) -> Iterator[Figure]:
    """Judge against a failing provider, while processes, clock and database fail.

    The provider is taken away too.
    """
    for part in faults(n, outage_s).values():
        for finding in part():
            yield Figure(*finding)


def _throughput(in_flight: int, n: int, pairs: int) -> Iterator[Figure]:
    """Send as many requests with bare litellm and through the ledger, in alternating pairs."""
    rates: dict[str, list[float]] = {"bare": [], "ours": []}
    client: dict[str, list[float]] = {"bare": [], "ours": []}
    server = []
    with serve_provider() as address, tempfile.TemporaryDirectory() as folder:
        for pair in range(-1, pairs):  # the first pair warms up
            for who in ("bare", "ours") if pair % 2 else ("ours", "bare"):
                requests = _requests(
                    address, n if pair >= 0 else in_flight, f"{who}{pair}", in_flight
                )
                before, own = read_statistics(address)["processor_s"], time.process_time()
                started = time.perf_counter()
                if who == "bare":
                    _ask_bare(requests, in_flight)
                else:
                    _ask_ours(requests, f"sqlite:///{folder}/{in_flight}-{pair}.sqlite")
                seconds = time.perf_counter() - started
                if pair >= 0:
                    rates[who].append(n / seconds)
                    client[who].append((time.process_time() - own) / n * 1000)
                    server.append((read_statistics(address)["processor_s"] - before) / seconds)
    ratios = [ours / bare for ours, bare in zip(rates["ours"], rates["bare"], strict=True)]
    name = f"{n} calls, {in_flight} in flight"
    for who in ("bare", "ours"):
        note = (
            f"processor: client {statistics.median(client[who]):.2f} ms a call, server at most"
            f" {max(server):.2f} of a core"
        )
        yield Figure(
            f"{name}: {'bare litellm' if who == 'bare' else 'ledger'}",
            statistics.median(rates[who]),
            "/s",
            note=note,
        )
    counts = max(server) <= 0.5
    # other work on the machine moves this ratio less than that of the clock
    busy = [bare / ours for bare, ours in zip(client["bare"], client["ours"], strict=True)]
    note = (
        f"{min(ratios):.2f} to {max(ratios):.2f} in {pairs} pairs; by the processor's time"
        f" {statistics.median(busy):.2f}, {min(busy):.2f} to {max(busy):.2f}"
    ) + ("" if counts else "; the server was too busy to count")
    median = statistics.median(ratios)
    yield Figure(
        f"{name}: ledger over bare",
        median,
        "times",
        "at least 0.95",
        median >= 0.95 and counts,
        note,
    )


def _ask_bare(requests: Sequence[Request], in_flight: int) -> None:
    """Send requests with litellm and nothing else, on the loop that ours uses too."""
    from heart_collect.calls.models import event_loop

    litellm = load_litellm()
    queue = list(requests)

    async def work() -> None:
        while queue:
            request = queue.pop()
            answer = await litellm.acompletion(
                model=request.model.model,
                messages=list(request.messages),
                api_base=request.model.api_base,
                api_key="none",
                num_retries=0,
                max_retries=0,
                timeout=60,
                **request.sampling,
            )
            assert answer.choices[0].message.content

    async def work_all() -> None:
        await asyncio.gather(*(work() for _ in range(in_flight)))

    asyncio.run_coroutine_threadsafe(work_all(), event_loop(os.getpid())).result()


def _ask_ours(requests: Sequence[Request], url: str) -> None:
    ledger = open_ledger(url)
    assert {call.status for call in ask_all(requests, ledger=ledger, progress=False)} == {"ok"}
    ledger.close()


def _requests(address: str, n: int, name: str, in_flight: int) -> list[Request]:
    """Make requests of some 2,000 characters, all different."""
    judge = Model("judge", "openai/test", api_base=address, max_concurrency=in_flight)
    return [
        Request(judge, ({"role": "user", "content": f"{name} {i} {WORDS}"},), {"max_tokens": 400})
        for i in range(n)
    ]
