"""Collecting: throughput beside litellm, a full ledger read again, and faults.

A run of faults, kills, restarts and an outage.

The provider is a process of its own on loopback with 0.2 s of latency; its answers are simulated.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from heart_collect.calls.engine import ask_all
from heart_collect.calls.ledger import open_ledger
from heart_collect.calls.models import Call, Model, Request, load_litellm
from tests.faults import faults
from tests.provider_process import (
    IN_FLIGHT,
    ROOT,
    WORDS,
    make_judge,
    make_study,
    read_statistics,
    serve_provider,
)
from tools.bench import Figure

__all__ = ["run"]


def run(quick: bool, only: str | None = None) -> Iterator[Figure]:
    """Measure what the ledger and the flow of calls must reach.

    Parameters
    ----------
    quick : bool
        Fewer calls and repeats, to see that the bench works.
    only : str or None
        ``faults`` leaves out what is measured of speed.

    Yields
    ------
    Figure
        One at a time.
    """
    if only == "faults":
        yield from _faults(*((400, 5.0) if quick else (10_000, 60.0)))
        return
    for in_flight in (64, 256):
        yield from _throughput(in_flight, 300 if quick else 2000, 2 if quick else 5)
    yield from _two_processes(300 if quick else 3000, 1 if quick else 3)
    yield from _recorded(2_000 if quick else 42_000)
    yield from _faults(*((400, 12.0) if quick else (10_000, 180.0)))


def _faults(n: int, outage_s: float) -> Iterator[Figure]:
    """Judge against a failing provider, while processes, clock and database fail.

    The provider is taken away too.
    """
    for part in faults(n, outage_s).values():
        for finding in part():
            yield Figure(*finding)


# -- throughput


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


# -- two processes


def _two_processes(n: int, pairs: int) -> Iterator[Figure]:
    """Share one list of requests between one worker process, and between two, on one ledger."""
    rates: dict[int, list[float]] = {1: [], 2: []}
    context = multiprocessing.get_context("spawn")
    with serve_provider() as address, tempfile.TemporaryDirectory() as folder:
        for pair in range(pairs):
            for workers in (1, 2):
                url = f"sqlite:///{folder}/{pair}-{workers}.sqlite"
                start, ready = context.Event(), context.Semaphore(0)
                work = (address, url, n, f"{pair}-{workers}", start, ready)
                processes = [context.Process(target=_work, args=work) for _ in range(workers)]
                for process in processes:
                    process.start()
                for _ in processes:
                    ready.acquire()
                started = time.perf_counter()
                start.set()
                for process in processes:
                    process.join()
                rates[workers].append(n / (time.perf_counter() - started))
                assert open_ledger(url).counts() == {"ok": n}
        twice = read_statistics(address)["answered_twice"]
    ratios = [two / one for one, two in zip(rates[1], rates[2], strict=True)]
    note = (
        f"{statistics.median(rates[1]):.0f} and {statistics.median(rates[2]):.0f} calls/s; {twice}"
        " asked twice"
    )
    median = statistics.median(ratios)
    yield Figure(
        "two worker processes over one",
        median,
        "times",
        "at least 1.5",
        median >= 1.5 and not twice,
        note,
    )


def _work(address: str, url: str, n: int, name: str, start: Any, ready: Any) -> None:
    load_litellm()
    ledger = open_ledger(url)
    warm = _requests(address, 8, f"warm{os.getpid()}", 8)
    ask_all(warm, ledger=open_ledger("sqlite://"), progress=False)
    requests = _requests(address, n, name, IN_FLIGHT)
    ready.release()
    start.wait()
    ask_all(requests, ledger=ledger, progress=False)


# -- a ledger that is full


def _recorded(n: int) -> Iterator[Figure]:
    """Time finding nothing to do and rebuilding the verdicts, and weigh the ledger.

    This takes a fresh process.
    """
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/ledger.sqlite"
        _fill(url, n)
        size = sum(file.stat().st_size for file in Path(folder).iterdir())
        grown = size / n * 10_000 / 1e6
        yield Figure(
            "ledger of answers of 200 tokens: size per 10,000 calls",
            grown,
            "MB",
            "at most 40",
            grown <= 40,
            f"of {n}, closed",
        )
        code = f"from tools.bench.collect import read_again; read_again({url!r}, {n})"
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
        )
        measured = json.loads(done.stdout.splitlines()[-1])
    kind = f"{n} recorded verdicts"
    yield Figure(
        f"{kind}: nothing to do, found in",
        measured["plan_s"],
        "s",
        "at most 3",
        measured["plan_s"] <= 3,
    )
    yield Figure(
        f"{kind}: table rebuilt in",
        measured["rebuild_s"],
        "s",
        "at most 5",
        measured["rebuild_s"] <= 5,
    )
    yield Figure(
        f"{kind}: memory at most",
        measured["memory_mb"],
        "MB",
        "under 500",
        measured["memory_mb"] < 500,
    )


def _fill(url: str, n: int) -> None:
    """Record an answer to each question of a study, as its judge might have answered.

    An answer has 200 words of a small vocabulary.
    """
    from heart_collect.judging.judge import plan_questions

    ledger, draw = open_ledger(url), random.Random(1)
    histories, replies, comparisons = make_study(n)
    questions = plan_questions(
        histories,
        replies,
        comparisons,
        [make_judge("http://127.0.0.1:9/v1")],
        dimensions=["overall"],
    )
    words = [f"{''.join(draw.choices('etaoinshrdlu', k=draw.randint(2, 9)))}" for _ in range(3000)]
    for start in range(0, len(questions), 1000):
        requests = [question.request(schema=False) for question in questions[start : start + 1000]]
        ledger.claim(requests, [0.0] * len(requests), since=0.0)
        ledger.record([_answer(request.key, draw, words) for request in requests])
    ledger.close()


def _answer(key: str, draw: random.Random, words: list[str]) -> Call:
    p = draw.uniform(0.1, 0.9)
    logprobs = (("A", float(np.log(p))), ("B", float(np.log(1 - p))))
    return Call(
        key,
        "ok",
        " ".join(draw.choices(words, k=150)),
        "length",
        logprobs,
        None,
        210.0,
        700,
        200,
        0.001,
        1,
    )


def read_again(url: str, n: int) -> None:
    """Time what a second run of a full study does; print it as JSON."""
    from heart_collect.judging.judge import collect_verdicts, plan_questions, plan_verdicts

    histories, replies, comparisons = make_study(n)
    judges, ledger = [make_judge("http://127.0.0.1:9/v1")], open_ledger(url)
    started = time.perf_counter()
    plan = plan_verdicts(
        plan_questions(histories, replies, comparisons, judges, dimensions=["overall"]), ledger
    )
    assert plan["n_calls"].sum() == plan["n_recorded"].sum() == n
    planned = time.perf_counter()
    verdicts = collect_verdicts(
        plan_questions(histories, replies, comparisons, judges, dimensions=["overall"]),
        ledger=ledger,
        mode="replay",
    )
    rebuilt = time.perf_counter()
    assert len(verdicts) == n
    assert set(verdicts["state"]) == {"valid"}
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        json.dumps(
            {"plan_s": planned - started, "rebuild_s": rebuilt - planned, "memory_mb": memory}
        )
    )


def _requests(address: str, n: int, name: str, in_flight: int) -> list[Request]:
    """Make requests of some 2,000 characters, all different."""
    judge = Model("judge", "openai/test", api_base=address, max_concurrency=in_flight)
    return [
        Request(judge, ({"role": "user", "content": f"{name} {i} {WORDS}"},), {"max_tokens": 400})
        for i in range(n)
    ]
