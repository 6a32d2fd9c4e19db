"""A provider that is a process of its own, and a study that its model judges.

The provider is on loopback with 0.2 s of latency; its answers are simulated.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from heart_collect.calls.ledger import Ledger, open_ledger
from heart_collect.calls.models import Model

ROOT = Path(__file__).resolve().parents[1]
LATENCY_S = 0.2
WORDS = " ".join(f"word{i}" for i in range(300))
# long: on a busy machine a call that was only slow would be paid twice
HANG_S, TIME_OUT_S = 40.0, 30.0
IN_FLIGHT = 64
USD_A_TOKEN = 1e-6


@contextmanager
def serve_provider(*options: str) -> Iterator[str]:
    """Start the provider as a process of its own."""
    command = [
        sys.executable,
        str(ROOT / "tests" / "server.py"),
        "--latency",
        str(LATENCY_S),
        *options,
    ]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.kill()
        process.wait()


def read_statistics(address: str) -> dict[str, Any]:
    with urllib.request.urlopen(
        address.removesuffix("/v1") + "/statistics", timeout=30
    ) as response:
        return dict(json.load(response))


def make_judge(address: str) -> Model:
    return Model(
        "judge",
        "openai/test",
        api_base=address,
        answer_format="logprob",
        max_concurrency=IN_FLIGHT,
        timeout_s=TIME_OUT_S,
    )


def make_study(n: int) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Build a study of `n` comparisons: the sample's histories and 13 responders' replies.

    Histories are repeated as often as needed; replies have 30 words.
    """
    from heart_collect.judging.design import pair_replies
    from heart_collect.judging.respond import NOTHING
    from heart_utils.sources.load import load_histories

    sample, draw = load_histories("sample"), random.Random(2)
    n_histories = -(-n // 140)  # 13 responders in 70 pairs, and each in both orders
    copies = pd.concat(
        [sample.assign(copy=copy) for copy in range(n_histories // len(sample) + 1)],
        ignore_index=True,
    )
    copies["history_id"] = copies["history_id"] + "-" + copies.pop("copy").astype(str)
    histories = copies.head(n_histories).assign(twin_id=None)
    rows = [
        {
            "reply_id": f"{history}--r{i}",
            "history_id": history,
            "responder": f"r{i}",
            "flags": [],
            "state": "valid",
            "text": " ".join(draw.choices(WORDS.split(), k=30)),
            "simulated": True,
            **dict.fromkeys(NOTHING),
        }
        for history in histories["history_id"]
        for i in range(13)
    ]
    replies = pd.DataFrame(rows)
    comparisons = pair_replies(replies, rng=np.random.default_rng(3), pairs=70)
    return histories, replies, comparisons.head(n)


def count_ended(url: str) -> int:
    ledger: Ledger = open_ledger(url)
    try:
        return sum(count for status, count in ledger.counts().items() if status != "claimed")
    finally:
        ledger.close()
