"""Whole conversations under kills and faults: whether a turn is lost, doubled or out of order."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

import pandas as pd

from heart_collect.calls.ledger import open_ledger
from heart_collect.calls.models import Model
from tests.provider_process import (
    IN_FLIGHT,
    ROOT,
    TIME_OUT_S,
    count_ended,
    read_statistics,
    serve_provider,
)
from tools.bench import Figure

__all__ = ["run"]

#: Shares of the provider's answers that go wrong, by how.
FAULTS = {
    "429": 0.05,
    "500": 0.03,
    "503": 0.02,
    "drop": 0.02,
    "half": 0.03,
    "empty": 0.01,
    "blank": 0.01,
    "broken": 0.01,
}
KILLED_AT = (0.1, 0.35, 0.6, 0.85)  #: Shares of the turns.
EXCHANGES = 2
SHORT, LONG = 60, 2_000  #: Conversations with ``--quick``, and without.


def run(quick: bool) -> Iterator[Figure]:
    """Kill a collector of conversations a few times, let it end, and read all turns.

    Parameters
    ----------
    quick : bool
        60 conversations in place of 2,000.

    Yields
    ------
    Figure
        Lost, doubled, out of order, and paid twice.
    """
    n = SHORT if quick else LONG
    n_turns = n * 2 * EXCHANGES
    options = [part for name, share in FAULTS.items() for part in ("--fault", f"{name}={share}")]
    with serve_provider("--talk", *options) as address, tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/ledger.sqlite"
        kills, started = 0, time.perf_counter()
        for share in KILLED_AT:
            process = _begin(address, url, n)
            while process.poll() is None and count_ended(url) < share * n_turns:
                time.sleep(0.2)
            kills += process.poll() is None
            process.kill()
            process.communicate()
        output, complaint = _begin(address, url, n).communicate()
        if not output:
            raise RuntimeError(complaint[-2000:])
        result, server = json.loads(output.splitlines()[-1]), read_statistics(address)
        seconds = time.perf_counter() - started
    name = f"{n} conversations of {2 * EXCHANGES} turns, {kills} kills"
    note = f"{result['states']}, {seconds:.0f} s, outcomes {server['outcomes']}"
    yield Figure(f"{name}: lost", n - result["valid"], "", "0", result["valid"] == n, note)
    doubled = result["rows"] - result["distinct"]
    yield Figure(f"{name}: doubled", doubled, "", "0", doubled == 0)
    wrong = result["wrong"]
    yield Figure(f"{name}: turns out of order or by another speaker", wrong, "", "0", wrong == 0)
    twice, most = server["answered_twice"], kills * IN_FLIGHT
    limit = f"at most {most}"
    yield Figure(f"{name}: paid twice, in flight at a kill", twice, "", limit, twice <= most)


def _begin(address: str, url: str, n: int) -> subprocess.Popen[str]:
    code = f"from tools.bench.conversations import talk_all; talk_all({address!r}, {url!r}, {n})"
    command = [sys.executable, "-c", code]
    return subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def talk_all(address: str, url: str, n: int) -> None:
    """Hold so many conversations, and print what came of them."""
    from heart_collect.judging.design import cross_seekers
    from heart_collect.judging.respond import collect_conversations

    m, s = (
        Model(
            name,
            f"openai/{name}",
            api_base=address,
            max_concurrency=IN_FLIGHT,
            timeout_s=TIME_OUT_S,
        )
        for name in ("m", "s")
    )
    starts = cross_seekers(_starts(n), ["s"])
    talks = collect_conversations(
        starts, [m], [s], ledger=open_ledger(url), exchanges=EXCHANGES, progress=False
    )
    meant = []
    for number in range(2 * EXCHANGES):
        name, speaker = (("m", "supporter"), ("s", "seeker"))[number % 2]
        meant.append((f"This is turn {2 + number}, word {name} says.", speaker))
    right = [
        [(turn["text"], turn["speaker"]) for turn in turns] == meant for turns in talks["turns"]
    ]
    valid = talks["state"] == "valid"
    print(
        json.dumps(
            {
                "rows": len(talks),
                "distinct": int(talks["conversation_id"].nunique()),
                "valid": int(valid.sum()),
                "wrong": int((valid & ~pd.Series(right, index=talks.index)).sum()),
                "states": talks["stop_reason"].value_counts().to_dict(),
            }
        )
    )


def _starts(n: int) -> pd.DataFrame:
    """Make starts of one turn that all differ, since the same words would be the same call."""
    from heart_utils.sources.load import load_histories

    turns = [[{"speaker": "seeker", "text": f"It is day {day} of it."}] for day in range(n)]
    return load_histories(
        pd.DataFrame({"history_id": [f"h{day}" for day in range(n)], "turns": turns})
    )
