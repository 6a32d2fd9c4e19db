"""Benches of collecting: throughput against bare litellm, a full ledger read again, and a run of faults and kills.

``python -m tools.bench.collect [throughput] [processes] [recorded] [faults] [--quick]`` prints what
it measures and whether it reaches what it must. The provider is a process of its own on loopback
with 0.2 s of latency; it is simulated, and so are all answers here.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from heart_utils.collect.ledger import open_ledger
from heart_utils.collect.models import Model, Request, ask_all, load_litellm

__all__ = ["main"]

ROOT = Path(__file__).resolve().parents[2]
LATENCY_S = 0.2
WORDS = " ".join(f"word{i}" for i in range(300))


@contextmanager
def serving(*options: str) -> Iterator[str]:
    """Start the provider as a process of its own."""
    command = [sys.executable, str(ROOT / "tests" / "collect" / "server.py"), "--latency", str(LATENCY_S), *options]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.kill()
        process.wait()


def statistics_of(address: str) -> dict[str, Any]:
    """Ask the provider what it did."""
    with urllib.request.urlopen(address.removesuffix("/v1") + "/statistics", timeout=10) as response:
        return dict(json.load(response))


def requests_for(address: str, n: int, name: str, in_flight: int, **settings: Any) -> list[Request]:
    """Make requests of some 2,000 characters, all different."""
    judge = Model("judge", "openai/test", api_base=address, max_concurrency=in_flight, **settings)
    return [Request(judge, ({"role": "user", "content": f"{name} {i} {WORDS}"},), {"max_tokens": 400}) for i in range(n)]


def ask_bare(requests: Sequence[Request], in_flight: int) -> float:
    """Send requests with litellm and nothing else; give the seconds."""
    litellm = load_litellm()

    async def work(queue: list[Request]) -> None:
        while queue:
            request = queue.pop()
            model = request.model
            answer = await litellm.acompletion(
                model=model.model, messages=list(request.messages), api_base=model.api_base, api_key="none",
                num_retries=0, max_retries=0, timeout=60, **request.sampling,
            )  # fmt: skip
            assert answer.choices[0].message.content

    async def run() -> float:
        queue = list(requests)
        started = time.perf_counter()
        await asyncio.gather(*(work(queue) for _ in range(in_flight)))
        return time.perf_counter() - started

    return asyncio.run(run())


def ask_ours(requests: Sequence[Request], url: str) -> float:
    """Send requests through the ledger; give the seconds."""
    ledger = open_ledger(url)
    started = time.perf_counter()
    calls = ask_all(requests, ledger=ledger, progress=False)
    seconds = time.perf_counter() - started
    assert {call.status for call in calls} == {"ok"}
    ledger.close()
    return seconds


def bench_throughput(n: int, pairs: int) -> bool:
    """Compare with bare litellm at 64 and at 256 in flight, in alternating pairs."""
    good = True
    for in_flight in (64, 256):
        ratios, ours_rates, bare_rates, shares = [], [], [], []
        with serving() as address, tempfile.TemporaryDirectory() as folder:
            warm = requests_for(address, in_flight, f"warm{in_flight}", in_flight)
            ask_bare(warm, in_flight)
            ask_ours(warm, f"sqlite:///{folder}/warm.sqlite")
            for pair in range(pairs):
                rates = {}
                for who in ("bare", "ours") if pair % 2 else ("ours", "bare"):
                    requests = requests_for(address, n, f"{who}{pair}", in_flight)
                    before, own = statistics_of(address)["processor_s"], time.process_time()
                    if who == "bare":
                        seconds = ask_bare(requests, in_flight)
                    else:
                        seconds = ask_ours(requests, f"sqlite:///{folder}/{pair}.sqlite")
                    share = (statistics_of(address)["processor_s"] - before) / seconds
                    rates[who] = n / seconds
                    shares.append(share)
                    print(f"  {in_flight} in flight, {who}: {n / seconds:.0f} calls/s; processor: "
                          f"client {(time.process_time() - own) / n * 1000:.2f} ms a call, server {share:.2f} of a core")  # fmt: skip
                ratios.append(rates["ours"] / rates["bare"])
                ours_rates.append(rates["ours"])
                bare_rates.append(rates["bare"])
        counts = max(shares) <= 0.5
        reached = statistics.median(ratios) >= 0.9
        print(f"throughput at {in_flight} in flight, {n} calls, {pairs} pairs: bare {statistics.median(bare_rates):.0f}, "
              f"ours {statistics.median(ours_rates):.0f} calls/s; ratio {statistics.median(ratios):.2f} "
              f"({min(ratios):.2f} to {max(ratios):.2f}; 0.9 wanted); "
              f"{'counts' if counts else 'does not count: the server took more than half a core'}")  # fmt: skip
        good &= reached and counts
    return good


BENCHES: dict[str, Callable[[bool], bool]] = {
    "throughput": lambda quick: bench_throughput(300 if quick else 1500, 2 if quick else 5)
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run benches; give 1 if one misses what it must reach."""
    parser = argparse.ArgumentParser(prog="python -m tools.bench.collect")
    parser.add_argument("names", nargs="*", default=list(BENCHES), help=f"some of {', '.join(BENCHES)}")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args(arguments)
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    results = {name: BENCHES[name](options.quick) for name in options.names}
    missed = [name for name, good in results.items() if not good]
    print(f"missed: {', '.join(missed)}" if missed else "all reached")
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main())
