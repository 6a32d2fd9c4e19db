"""Collecting: throughput beside bare litellm, a full ledger read again, a run of faults and kills.

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
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from heart_utils.collect.asking import ask_all
from heart_utils.collect.ledger import Ledger, open_ledger
from heart_utils.collect.models import Call, Model, Request, load_litellm
from tools.bench import Figure

__all__ = ["run"]

ROOT = Path(__file__).resolve().parents[2]
LATENCY_S = 0.2
WORDS = " ".join(f"word{i}" for i in range(300))
FAULTS = {"429": 0.10, "500": 0.05, "drop": 0.03, "hang": 0.02, "malformed": 0.05, "garbled": 0.05}
"""Statuses, broken connections and JSON that is not sound: the provider's (malformed), and the judge's own (garbled)."""
TIME_OUT_S = 3.0
KILLS = 3
IN_FLIGHT = 64


def run(quick: bool) -> Iterator[Figure]:
    """Measure what the ledger and the flow of calls must reach.

    Parameters
    ----------
    quick : bool
        Fewer calls and repeats, to see that the bench works.

    Yields
    ------
    Figure
        One at a time.
    """
    for in_flight in (64, 256):
        yield from _throughput(in_flight, 300 if quick else 2000, 2 if quick else 5)
    yield from _two_processes(300 if quick else 3000, 1 if quick else 3)
    yield from _recorded(2_000 if quick else 42_000)
    yield from _faults(400 if quick else 5000)


# -- throughput


def _throughput(in_flight: int, n: int, pairs: int) -> Iterator[Figure]:
    """Send as many requests with bare litellm and through the ledger, in alternating pairs."""
    rates: dict[str, list[float]] = {"bare": [], "ours": []}
    client: dict[str, list[float]] = {"bare": [], "ours": []}
    server = []
    with _serving() as address, tempfile.TemporaryDirectory() as folder:
        for pair in range(-1, pairs):  # the first pair warms up
            for who in ("bare", "ours") if pair % 2 else ("ours", "bare"):
                requests = _requests(address, n if pair >= 0 else in_flight, f"{who}{pair}", in_flight)
                before, own = _statistics(address)["processor_s"], time.process_time()
                started = time.perf_counter()
                if who == "bare":
                    _ask_bare(requests, in_flight)
                else:
                    _ask_ours(requests, f"sqlite:///{folder}/{in_flight}-{pair}.sqlite")
                seconds = time.perf_counter() - started
                if pair >= 0:
                    rates[who].append(n / seconds)
                    client[who].append((time.process_time() - own) / n * 1000)
                    server.append((_statistics(address)["processor_s"] - before) / seconds)
    ratios = [ours / bare for ours, bare in zip(rates["ours"], rates["bare"], strict=True)]
    name = f"{n} calls, {in_flight} in flight"
    for who in ("bare", "ours"):
        note = f"processor: client {statistics.median(client[who]):.2f} ms a call, server at most {max(server):.2f} of a core"
        yield Figure(f"{name}: {'bare litellm' if who == 'bare' else 'ledger'}", statistics.median(rates[who]), "/s", note=note)
    counts = max(server) <= 0.5
    note = f"{min(ratios):.2f} to {max(ratios):.2f} in {pairs} pairs" + ("" if counts else "; the server was too busy to count")
    median = statistics.median(ratios)
    yield Figure(f"{name}: ledger over bare", median, "times", "at least 0.9", median >= 0.9 and counts, note)


def _ask_bare(requests: Sequence[Request], in_flight: int) -> None:
    """Send requests with litellm and nothing else, on the loop that ours uses too."""
    from heart_utils.collect.flow import event_loop

    litellm = load_litellm()
    queue = list(requests)

    async def work() -> None:
        while queue:
            request = queue.pop()
            answer = await litellm.acompletion(
                model=request.model.model, messages=list(request.messages), api_base=request.model.api_base, api_key="none",
                num_retries=0, max_retries=0, timeout=60, **request.sampling,
            )  # fmt: skip
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
    with _serving() as address, tempfile.TemporaryDirectory() as folder:
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
        twice = _statistics(address)["answered_twice"]
    ratios = [two / one for one, two in zip(rates[1], rates[2], strict=True)]
    note = f"{statistics.median(rates[1]):.0f} and {statistics.median(rates[2]):.0f} calls/s; {twice} asked twice"
    median = statistics.median(ratios)
    yield Figure("two worker processes over one", median, "times", "at least 1.5", median >= 1.5 and not twice, note)


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
    """Find nothing to do, and rebuild the verdicts, in a fresh process; and what the ledger weighs."""
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/ledger.sqlite"
        _fill(url, n)
        grown = sum(file.stat().st_size for file in Path(folder).iterdir()) / n
        yield Figure(f"ledger, answers of 200 tokens: growth over {n} calls", grown / 1000, "kB", "at most 4", grown <= 4096)
        code = f"from tools.bench.collect import read_again; read_again({url!r}, {n})"
        done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
        found = json.loads(done.stdout.splitlines()[-1])
    kind = f"{n} recorded verdicts"
    yield Figure(f"{kind}: nothing to do, found in", found["plan_s"], "s", "at most 3", found["plan_s"] <= 3)
    yield Figure(f"{kind}: table rebuilt in", found["rebuild_s"], "s", "at most 5", found["rebuild_s"] <= 5)
    yield Figure(f"{kind}: memory at most", found["memory_mb"], "MB", "under 500", found["memory_mb"] < 500)


def _fill(url: str, n: int) -> None:
    """Record an answer to each question of a study, as its judge might have given it: 200 words of a small vocabulary."""
    from heart_utils.collect.judge import plan_questions

    ledger, draw = open_ledger(url), random.Random(1)
    histories, replies, comparisons = _study(n)
    questions = plan_questions(histories, replies, comparisons, [_judge("http://127.0.0.1:9/v1")], dimensions=["overall"])
    words = [f"{''.join(draw.choices('etaoinshrdlu', k=draw.randint(2, 9)))}" for _ in range(3000)]
    for start in range(0, len(questions), 1000):
        requests = [question.request(schema=False) for question in questions[start : start + 1000]]
        ledger.claim(requests, [0.0] * len(requests), since=0.0)
        ledger.record([_answer(request.key, draw, words) for request in requests])
    ledger.close()


def _answer(key: str, draw: random.Random, words: list[str]) -> Call:
    p = draw.uniform(0.1, 0.9)
    logprobs = (("A", float(np.log(p))), ("B", float(np.log(1 - p))))
    return Call(key, "ok", " ".join(draw.choices(words, k=150)), "length", logprobs, None, 210.0, 700, 200, 0.001, 1)


def read_again(url: str, n: int) -> None:
    """Time what a second run of a full study does; print it as JSON."""
    from heart_utils.collect.judge import collect_verdicts, plan_verdicts

    histories, replies, comparisons = _study(n)
    judges, ledger = [_judge("http://127.0.0.1:9/v1")], open_ledger(url)
    started = time.perf_counter()
    plan = plan_verdicts(histories, replies, comparisons, judges, ledger=ledger, dimensions=["overall"])
    assert plan["n_calls"].sum() == plan["n_recorded"].sum() == n
    planned = time.perf_counter()
    verdicts = collect_verdicts(histories, replies, comparisons, judges, ledger=ledger, mode="replay", dimensions=["overall"])
    rebuilt = time.perf_counter()
    assert len(verdicts) == n
    assert set(verdicts["state"]) == {"valid"}
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"plan_s": planned - started, "rebuild_s": rebuilt - planned, "memory_mb": memory}))


# -- faults and kills


def _faults(n: int) -> Iterator[Figure]:
    """Judge against a server that fails, kill the client three times, and count what came of it."""
    options = [part for name, share in FAULTS.items() for part in ("--fault", f"{name}={share}")]
    with (
        _serving(*options, "--judge", "--hang", "20", "--retry-after", "0.2") as address,
        tempfile.TemporaryDirectory() as folder,
    ):
        url = f"sqlite:///{folder}/ledger.sqlite"
        code = f"from tools.bench.collect import judge_all; judge_all({address!r}, {url!r}, {n})"
        started = time.perf_counter()
        kept = []
        for round_ in range(KILLS + 1):
            process = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True)
            while process.poll() is None and (round_ == KILLS or _done(url) < n * (round_ + 1) // (KILLS + 1)):
                time.sleep(0.1)
            if round_ < KILLS:
                process.kill()
                kept.append(_done(url))
            said, _ = process.communicate()
        seconds = time.perf_counter() - started
        found, ledger, server = json.loads(said.splitlines()[-1]), open_ledger(url), _statistics(address)
        counts = ledger.counts()
    name = f"{n} calls, {sum(FAULTS.values()):.0%} faults, {KILLS} kills"
    # A garbled answer is repaired by a second question, so few stay unread.
    read = found["states"].get("valid", 0) >= 0.98 * n
    good = found["rows"] == found["distinct"] == n and read and set(counts) <= {"ok", "error"}
    states = ", ".join(f"{count} {state}" for state, count in sorted(found["states"].items()))
    yield Figure(f"{name}: verdict rows for {n} comparisons", found["rows"], "", f"{n}", good, f"{states}; killed at {kept}")
    twice, allowed = server["answered_twice"], KILLS * (IN_FLIGHT + 60) + server["outcomes"].get("hang", 0)
    note = f"in flight or uncommitted at a kill, or answered after the time-out; server: {server['outcomes']}"
    yield Figure(f"{name}: answered twice", twice, "calls", f"at most {allowed}", twice <= allowed, note)
    yield Figure(f"{name}: took", seconds, "s")


def judge_all(address: str, url: str, n: int) -> None:
    """Judge a study; print how many rows came of it."""
    from heart_utils.collect.judge import collect_verdicts

    histories, replies, comparisons = _study(n)
    verdicts = collect_verdicts(
        histories, replies, comparisons, [replace(_judge(address), answer_format="json")], ledger=open_ledger(url),
        dimensions=["overall"], progress=False,
    )  # fmt: skip
    keys = ["comparison_id", "rater", "dimension", "repeat"]
    distinct = len(verdicts.drop_duplicates(keys))
    print(json.dumps({"rows": len(verdicts), "distinct": distinct, "states": verdicts["state"].value_counts().to_dict()}))


# -- what they share


@contextmanager
def _serving(*options: str) -> Iterator[str]:
    """Start the provider as a process of its own."""
    command = [sys.executable, str(ROOT / "tests" / "collect" / "server.py"), "--latency", str(LATENCY_S), *options]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.kill()
        process.wait()


def _statistics(address: str) -> dict[str, Any]:
    with urllib.request.urlopen(address.removesuffix("/v1") + "/statistics", timeout=30) as response:
        return dict(json.load(response))


def _requests(address: str, n: int, name: str, in_flight: int) -> list[Request]:
    """Make requests of some 2,000 characters, all different."""
    judge = Model("judge", "openai/test", api_base=address, max_concurrency=in_flight)
    return [Request(judge, ({"role": "user", "content": f"{name} {i} {WORDS}"},), {"max_tokens": 400}) for i in range(n)]


def _judge(address: str) -> Model:
    return Model(
        "judge", "openai/test", api_base=address, answer_format="logprob", max_concurrency=IN_FLIGHT, timeout_s=TIME_OUT_S
    )


def _study(n: int) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Make a study of `n` comparisons: the sample's histories, as often as needed, and 13 responders' replies of 30 words."""
    from heart_utils.collect.design import pair_replies
    from heart_utils.collect.sources import load_histories

    sample, draw = load_histories("sample"), random.Random(2)
    n_histories = -(-n // 140)  # 13 responders in 70 pairs, and each in both orders
    copies = pd.concat([sample.assign(copy=copy) for copy in range(n_histories // len(sample) + 1)], ignore_index=True)
    copies["history_id"] = copies["history_id"] + "-" + copies.pop("copy").astype(str)
    histories = copies.head(n_histories).assign(twin_id=None)
    nothing = ["author_id", "ttft_ms", "total_ms", "prompt_tokens", "completion_tokens", "cost_usd", "typing_ms", "call_id"]
    rows = [
        {"reply_id": f"{history}--r{i}", "history_id": history, "responder": f"r{i}", "flags": [], "state": "valid",
         "text": " ".join(draw.choices(WORDS.split(), k=30)), "simulated": True, **dict.fromkeys(nothing)}
        for history in histories["history_id"] for i in range(13)
    ]  # fmt: skip
    replies = pd.DataFrame(rows)
    comparisons = pair_replies(replies, rng=np.random.default_rng(3), pairs=70)
    return histories, replies, comparisons.head(n)


def _done(url: str) -> int:
    ledger: Ledger = open_ledger(url)
    try:
        return sum(count for status, count in ledger.counts().items() if status != "claimed")
    finally:
        ledger.close()
