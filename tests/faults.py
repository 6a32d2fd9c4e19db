"""A collection under faults, kills, restarts and an outage: what may be lost, doubled or spoilt."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import sqlalchemy as sa

from heart_collect.calls.commands import check_calls, keep_copy, restore_copy
from heart_collect.calls.database import calls, owners
from heart_collect.calls.engine import ask_all
from heart_collect.calls.ledger import open_ledger
from heart_collect.calls.models import ALLOWED, Model, Request
from tests.provider_process import (
    HANG_S,
    IN_FLIGHT,
    ROOT,
    TIME_OUT_S,
    USD_A_TOKEN,
    count_ended,
    make_judge,
    make_study,
    read_statistics,
    serve_provider,
)

FAULTS = {
    "429": 0.05,
    "429bare": 0.02,
    "500": 0.03,
    "503": 0.02,
    "drop": 0.02,
    "late": 0.01,
    "hang": 0.002,
    "malformed": 0.02,
    "text": 0.01,
    "empty": 0.01,
    "tool": 0.005,
    "garbled": 0.03,
    "truncate": 0.01,
    "filter": 0.005,
    "refusal": 0.005,
    "filter400": 0.005,
    "error": 0.01,
    "nousage": 0.01,
    "other": 0.01,
    "401": 0.005,
    "403": 0.005,
    "404": 0.005,
    "blank": 0.01,
    "broken": 0.01,
    "zero": 0.01,
    "thought": 0.02,
    "draft": 0.02,
    "cutdraft": 0.01,
    "example": 0.02,
    "doubled": 0.02,
    "fence": 0.02,
    "foreign": 0.01,
    "surrogate": 0.01,
    "huge": 0.003,
}
"""Statuses, cut connections and bodies, JSON that is not sound: the provider's (malformed), and
the judge's own (garbled); HTML with status 200, answers that are empty, blank, truncated,
refused, uncounted, counted as zero or another model's, errors with status 200, stray denials,
and verdicts within a thought, beside another or in half a character, or of 2 MB."""
STREAMED = {
    "half": 0.1,
    "blank": 0.05,
    "broken": 0.05,
    "silent": 0.02,
    "drop": 0.05,
    "429": 0.05,
    "unsaid": 0.05,
    "zero": 0.05,
    "tool": 0.02,
    "text": 0.02,
}
JUMP_S = 1200.0
LEAST_ON_DISK = 500  #: Calls whose answers fill the small disk.


class Finding(NamedTuple):
    """One figure of a run, what it must be in words, and whether it is."""

    name: str
    value: float
    unit: str
    target: str = ""
    met: bool | None = None
    note: str = ""


def faults(n: int, outage_s: float) -> dict[str, Callable[[], Iterator[Finding]]]:
    """List the parts of a run by what fails: provider, processes, clock, database, disk."""
    disk = max(n // 20, LEAST_ON_DISK)
    return {
        "streams": partial(_streams, n // 20),
        "address": _nowhere,
        "bits": partial(_flipped, n // 20),
        "disk": partial(_full_or_closed_disk, disk),
        "on SQLite": partial(_judge_through, _on_sqlite, n // 2, outage_s),
        "on PostgreSQL": partial(_judge_through, _on_postgresql, 3 * n // 10),
        "on Dask": partial(_judge_through, _on_dask, n // 5),
    }


def _judge_through(
    stage: Callable[..., Iterator[Finding]], n: int, *outage: float
) -> Iterator[Finding]:
    """Judge with every fault of a provider, on a database of the stage's kind."""
    from tools.postgresql import serving_postgresql

    options = [part for name, share in FAULTS.items() for part in ("--fault", f"{name}={share}")]
    options += ["--judge", "--hang", str(HANG_S), "--retry-after", "0.2", "--calm", "300"]
    with tempfile.TemporaryDirectory() as folder, serve_provider(*options) as address:
        started = time.perf_counter()
        if stage is _on_sqlite:
            yield from stage(address, f"sqlite:///{folder}/ledger.sqlite", n, folder, *outage)
        else:
            with serving_postgresql() as (server, restart):
                more = [restart] if stage is _on_postgresql else []
                yield from stage(address, f"{server}/postgres", n, folder, *more)
        yield Finding(
            f"{stage.__name__[1:].replace('_', ' ')}, {n} calls: took",
            time.perf_counter() - started,
            "s",
        )


def _on_sqlite(address: str, url: str, n: int, folder: str, outage_s: float) -> Iterator[Finding]:
    with _Collectors(address, url, n, folder) as both:
        steps: Sequence[tuple[float, Callable[[], None]]] = (
            (0.1, partial(both.kill, 0)),
            (0.2, partial(both.jump, JUMP_S)),
            (0.3, partial(both.kill, 1)),
            (0.4, partial(both.jump, 0.0)),
            (0.5, partial(both.outage, outage_s)),
            (0.6, partial(both.jump, -JUMP_S)),
            (0.7, partial(both.kill, 0)),
            (0.8, partial(both.jump, 0.0)),
        )
        for share, step in steps:
            both.wait_for(share)
            step()
        happened = (
            f"3 kills, a clock {JUMP_S:.0f} s ahead and then behind, an outage of {outage_s:.0f} s"
        )
        yield from both.end(f"two collectors, SQLite, {n} calls", happened)


def _on_postgresql(
    address: str, url: str, n: int, folder: str, restart: Callable[[], None]
) -> Iterator[Finding]:
    with _Collectors(address, url, n, folder, hosts=("one", "two")) as both:
        ahead, right = partial(both.jump, JUMP_S), partial(both.jump, 0.0)
        for share, step in ((0.2, ahead), (0.25, restart), (0.5, right), (0.75, restart)):
            both.wait_for(share)
            step()
        happened = f"2 restarts of the database, its clock {JUMP_S:.0f} s ahead and then right"
        yield from both.end(f"two hosts, PostgreSQL, {n} calls", happened)


def _on_dask(address: str, url: str, n: int, folder: str) -> Iterator[Finding]:
    import distributed

    local = {
        "n_workers": 2,
        "threads_per_worker": 1,
        "processes": True,
        "dashboard_address": None,
        "host": "127.0.0.1",
    }
    with (
        distributed.LocalCluster(**local) as cluster,  # type: ignore[no-untyped-call]
        _Collectors(
            address, url, n, folder, hosts=("",), scheduler=cluster.scheduler_address
        ) as one,
    ):
        one.wait_for(0.4)
        pid = next(iter(cluster.workers.values())).pid
        os.kill(pid, signal.SIGKILL)
        one.in_flight |= one.claimed_by(pid)
        yield from one.end(f"Dask, two workers, {n} calls", "a worker killed")


class _Judging:
    """A process that judges a study: a fork of one that has imported what it needs."""

    def __init__(self, *study: str | int, output: Path, errors: Path, **options: str) -> None:
        self.output = output
        self.process = _FORKS.Process(
            target=_judge_into, args=(str(output), str(errors), study, options)
        )
        self.process.start()

    @property
    def pid(self) -> int:
        return self.process.pid or 0

    @property
    def exit_code(self) -> int | None:
        return self.process.exitcode

    def is_alive(self) -> bool:
        return self.process.is_alive()

    def kill(self) -> None:
        """Kill it as a power cut would."""
        self.process.kill()
        self.process.join()

    def wait(self, seconds: float | None = None) -> str:
        """Wait for its end, and return what it printed."""
        self.process.join(seconds)
        return self.output.read_text()


def _judge_into(output: str, errors: str, study: tuple[Any, ...], options: dict[str, Any]) -> None:
    """Judge a study in this process, which prints and complains into files."""
    for stream, file, mode in ((1, output, "wb"), (2, errors, "ab")):
        with open(file, mode) as opened:
            os.dup2(opened.fileno(), stream)
    judge_all(*study, **options)


_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["tests.faults", "heart_collect.judging.judge", "litellm"])


class _Collectors:
    """Two processes that judge one study on one ledger, and what happens to them."""

    def __init__(
        self,
        address: str,
        url: str,
        n: int,
        folder: str,
        hosts: Sequence[str] = ("", ""),
        scheduler: str = "",
    ) -> None:
        self.address, self.url, self.n, self.folder, self.hosts = address, url, n, folder, hosts
        self.scheduler, self.ledger = scheduler, open_ledger(url)
        self.n_begun = 0
        self.in_flight: set[str] = set()  # digests of what was claimed by those that were killed
        self.processes = [self.begin(which) for which in range(len(hosts))]

    def __enter__(self) -> _Collectors:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            process.kill()
        self.ledger.close()

    def begin(self, which: int) -> _Judging:
        """Start one; what it complains of goes into a file."""
        self.n_begun += 1
        return _Judging(
            self.address,
            self.url,
            self.n,
            host=self.hosts[which],
            scheduler=self.scheduler,
            clock=str(Path(self.folder, "clock")),
            output=Path(self.folder, f"output-{self.n_begun}"),
            errors=Path(self.folder, "errors"),
        )

    def wait_for(self, share: float) -> None:
        """Wait until that share of the calls is recorded, or nobody works any more."""
        while count_ended(self.url) < share * self.n and any(
            process.is_alive() for process in self.processes
        ):
            time.sleep(0.2)

    def claimed_by(self, pid: int) -> set[str]:
        """Return digests of what a process has claimed and not recorded."""
        held = sa.select(owners.c.owner).where(owners.c.pid == pid)
        wanted = sa.select(calls.c.asked).where(
            calls.c.status == "claimed", calls.c.owner.in_(held)
        )
        return {digest for (digest,) in self.ledger.rows(wanted)}

    def kill(self, which: int) -> None:
        """Kill one as a power cut would, and start it again."""
        self.processes[which].kill()
        self.in_flight |= self.claimed_by(self.processes[which].pid)
        self.processes[which] = self.begin(which)

    def jump(self, seconds: float) -> None:
        """Set the database's clock wrong by so much, for all who use it."""
        Path(self.folder, "clock").write_text(str(seconds))

    def outage(self, seconds: float) -> None:
        """Let the provider cut every connection for a while."""
        urllib.request.urlopen(
            f"{self.address.removesuffix('/v1')}/outage?seconds={seconds}", timeout=30
        ).close()

    def end(self, name: str, happened: str) -> Iterator[Finding]:
        """Wait for the end, and compare with what must be."""
        results, exits = [], []
        for process in self.processes:
            output = process.wait()
            exits.append(process.exit_code)
            results.append(json.loads(output.splitlines()[-1]) if output else {})
        statistics = read_statistics(self.address)
        twice = set(statistics["twice"])
        states = ", ".join(
            f"{n} {state}" for state, n in sorted(results[0].get("states", {}).items())
        )
        # answered after this side's time-out
        unheard = twice & set(statistics["unheard"]) - self.in_flight
        money, bill = self.ledger.money(), statistics["billed_tokens"] * USD_A_TOKEN
        none_of = {
            "rows lost": (
                sum(self.n - result.get("answered", 0) for result in results),
                f"{happened}; {states}; exit {exits}",
            ),
            "rows doubled": (
                sum(result.get("rows", 0) - result.get("distinct", 0) for result in results),
                f"{[result.get('rows', 0) for result in results]} rows",
            ),
            "wrong verdicts": (sum(result.get("wrong", self.n) for result in results), ""),
            "tracebacks": (Path(self.folder, "errors").read_text().count("Traceback"), ""),
            "exits other than 0": (sum(map(bool, exits)), ""),
            "damaged or doubled calls": (len(check_calls(self.ledger)), ""),
            "paid twice, heard, not in flight at a kill": (
                len(twice - self.in_flight - unheard),
                f"{len(twice & self.in_flight)} calls of {len(self.in_flight)} claimed at a kill"
                f" were paid twice, and {len(unheard)} that were answered after {TIME_OUT_S:g} s,"
                " when this side had hung up",
            ),
            "USD on the provider's bill and not counted": (
                max(0.0, bill - money.bound),
                f"bill {bill:.4f}; ledger: {money.spent:.4f} spent, {money.unsettled:.4f} perhaps,"
                f" {money.reserved:.4f} held",
            ),
        }
        for what, (n, note) in none_of.items():
            yield Finding(f"{name}: {what}", n, "", "0", n == 0, note)
        yield from self._faults_met(name, statistics, twice)

    def _faults_met(
        self, name: str, statistics: dict[str, Any], twice: set[str]
    ) -> Iterator[Finding]:
        """Count by fault what had no answer in the end."""
        answered = calls.c.status.in_(("ok", "refused", "truncated"))
        ended = {digest for (digest,) in self.ledger.rows(sa.select(calls.c.asked).where(answered))}
        for fault, met in sorted(statistics["met"].items()):
            left, again = len(set(met) - ended), len(set(met) & twice - self.in_flight)
            note = (
                f"{statistics['outcomes'][fault]} attempts at {len(met)} calls; {again} of them"
                " paid twice, not in flight at a kill"
            )
            # a denial may be this request's own fault, and end it
            met_well = fault in ("tool", "403") or not (left or again)
            what = f"{name}: met {fault}, without an answer in the end"
            yield Finding(what, left, "", "0", met_well, note)


def _streams(n: int) -> Iterator[Finding]:
    """Ask for replies of a provider whose streams break off, are blank or say nothing."""
    options = [part for name, share in STREAMED.items() for part in ("--fault", f"{name}={share}")]
    with (
        serve_provider(*options, "--words", "30") as address,
        tempfile.TemporaryDirectory() as folder,
    ):
        ledger = open_ledger(f"sqlite:///{folder}/ledger.sqlite")
        model = Model(
            "responder",
            "openai/test",
            api_base=address,
            max_concurrency=IN_FLIGHT,
            timeout_s=TIME_OUT_S,
        )
        requests = [
            Request(model, ({"role": "user", "content": f"w{i}"},), stream=True) for i in range(n)
        ]
        calls_made = ask_all(requests, ledger=ledger, progress=False)
        wrong = sum(
            call.status == "ok" and call.text.split() != ["word"] * 30 for call in calls_made
        )
        failed = {call.error for call in calls_made if call.status != "ok"}
        lost = sum(call.status != "ok" for call in calls_made)
        ledger.close()
        twice = read_statistics(address)["answered_twice"]
    yield Finding(
        f"streams, {n} replies: broken off or blank, and taken for whole",
        wrong,
        "",
        "0",
        wrong == 0,
    )
    yield Finding(
        f"streams, {n} replies: lost", lost, "", "0", lost == 0, "; ".join(sorted(map(str, failed)))
    )
    yield Finding(f"streams, {n} replies: paid twice", twice, "", "0", twice == 0)


def _nowhere() -> Iterator[Finding]:
    """Ask a server whose name nobody knows."""
    code = (
        "import warnings; from heart_collect.calls import engine, flow as queues\nfrom"
        " heart_collect.calls.models import Model, Request\nfrom heart_collect.calls.ledger"
        " import open_ledger\nqueues.NEVER_ANSWERED_S"
        " = 5.0\nmodel = Model('judge', 'openai/test', api_base='http://nobody.invalid/v1')\nasked"
        " = [Request(model, ({'role': 'user', 'content': str(i)},)) for i in"
        " range(20)]\nprint({c.status for c in engine.ask_all(asked,"
        " ledger=open_ledger('sqlite://'), progress=False)})"
    )
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, ALLOWED: "nobody.invalid"},  # else it is refused before it is asked
    )
    warnings = [line for line in done.stderr.splitlines() if "queue was stopped" in line]
    right = done.stdout.strip().endswith("{'error'}") and "nobody answers" in "".join(warnings)
    right = right and len(warnings) == 1
    words = warnings[0].split("UserWarning: ")[-1][:110] if warnings else done.stderr[-200:]
    note = f"after {time.perf_counter() - started:.0f} s: {words}"
    yield Finding(
        "a name that no server has: sentences that say so", len(warnings), "", "1", right, note
    )


def _flipped(n: int) -> Iterator[Finding]:
    """Flip bits in stored answers, then anywhere in the file, and collect again.

    Count what is wrong, lost or bought.
    """
    draw = random.Random(4)
    with serve_provider("--judge") as address, tempfile.TemporaryDirectory() as folder:
        file, url = Path(folder, "ledger.sqlite"), f"sqlite:///{folder}/ledger.sqlite"
        _collect(address, url, n, folder)
        ledger = open_ledger(url)
        [*rows] = ledger.rows(sa.select(calls.c.key, calls.c.answer))
        for key, answer in draw.sample(rows, n // 10):
            spoilt = bytearray(answer)
            spoilt[draw.randrange(len(spoilt))] ^= 1 << draw.randrange(8)
            with ledger.writing() as connection:
                connection.execute(
                    calls.update().where(calls.c.key == key).values(answer=bytes(spoilt))
                )
        ledger.close()
        result = _collect(address, url, n, folder)
        bought = sum(read_statistics(address)["outcomes"].values()) - n
        right = (result["rows"], result["wrong"], bought) == (n, 0, n // 10)
        note = (
            f"{n // 10} answers damaged, {result['wrong']} wrong verdicts, {n - result['answered']}"
            " lost"
        )
        yield Finding(
            "a bit turned over in stored answers: asked again",
            bought,
            "",
            str(n // 10),
            right,
            note,
        )
        restored, wrong, lost = 0, 0, 0
        for _ in range(3):
            content = bytearray(file.read_bytes())
            for _ in range(20):
                content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
            file.write_bytes(content)
            # it said that the file is damaged, and what to do
            if not _collect(address, url, n, folder):
                restored += 1
                restore_copy(file)
                result = _collect(address, url, n, folder)
            wrong, lost = wrong + result["wrong"], lost + n - result["answered"]
        note = f"{restored} of 3 files could not be read, and their copies took their places"
        name = "20 bits turned over anywhere in the file, three times: wrong or lost"
        yield Finding(name, wrong + lost, "", "0", not (wrong or lost), note)


def _full_or_closed_disk(n: int) -> Iterator[Finding]:
    """Fill the ledger's disk, then make it read-only, and collect to the end."""
    if os.geteuid() != 0:
        return
    with serve_provider("--judge") as address, tempfile.TemporaryDirectory() as folder:
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=700k", "tmpfs", folder], capture_output=True
        )
        if mounted.returncode:
            return
        try:
            yield from _on_small_disk(address, folder, n)
        finally:
            subprocess.run(["umount", "-l", folder], check=True)


def _on_small_disk(address: str, folder: str, n: int) -> Iterator[Finding]:
    url = f"sqlite:///{folder}/ledger.sqlite"
    for happened, wanted, spoilt, mended in (
        ("a disk that is full", n, "", "size=50m"),
        ("a folder that may not be written any more", 2 * n, "ro", "rw"),
    ):
        if spoilt:
            subprocess.run(["mount", "-o", f"remount,{spoilt}", folder], check=True)
        _, complaint = _collect_or_fail(address, url, wanted)
        sentence = next(
            (line for line in complaint.splitlines()[::-1] if "could not be written" in line), ""
        )
        at = _recorded_keys(url)
        subprocess.run(["mount", "-o", f"remount,{mended}", folder], check=True)
        result = _collect(address, url, wanted, folder)
        twice = read_statistics(address)["answered_twice"]
        lost, wrong = wanted - result["answered"], result["wrong"]
        note = (
            f"{at} answers could be read meanwhile; {twice} in flight bought twice so far; it says:"
            f" {sentence[-110:]}"
        )
        right = (
            lost == wrong == 0
            and bool(sentence)
            and twice <= 2 * IN_FLIGHT
            and "never awaited" not in complaint
        )
        yield Finding(f"{happened}: lost or wrong", lost + wrong, "", "0", right, note)


def _recorded_keys(url: str) -> int:
    ledger = open_ledger(url)
    n = len(ledger.find(list(ledger.statuses())))
    ledger.close()
    return n


def _collect_or_fail(address: str, url: str, n: int) -> tuple[str, str]:
    with tempfile.TemporaryDirectory() as folder:
        errors = Path(folder, "errors")
        output = _Judging(address, url, n, output=Path(folder, "output"), errors=errors).wait(600)
        return output, errors.read_text()


def _collect(address: str, url: str, n: int, folder: str) -> dict[str, Any]:
    """Judge a study in a process of its own.

    Nothing where it ended with a sentence that names the remedy.
    """
    output, complaint = _collect_or_fail(address, url, n)
    if not output and "--restore" in complaint:
        return {}
    return dict(json.loads(output.splitlines()[-1]))


def judge_all(
    address: str, url: str, n: int, host: str = "", scheduler: str = "", clock: str = ""
) -> None:
    """Judge a study; print how many rows it has, and how many differ from what was meant.

    The provider knows what was meant.
    """
    from heart_collect.calls import ledger
    from heart_collect.judging.judge import collect_verdicts, plan_questions

    if host:
        ledger._host = lru_cache(lambda: host)
    if clock:
        _keep_wrong_time(Path(clock))
    histories, replies, comparisons = make_study(n)
    judge = replace(
        make_judge(address),
        answer_format="json",
        price_prompt=1e6 * USD_A_TOKEN,
        price_completion=1e6 * USD_A_TOKEN,
    )
    opened = open_ledger(url)
    verdicts = collect_verdicts(
        plan_questions(histories, replies, comparisons, [judge], dimensions=["overall"]),
        ledger=opened,
        progress=False,
        scheduler=scheduler or None,
    )
    keys = ["comparison_id", "rater", "dimension", "repeat"]
    states = verdicts["state"].value_counts().to_dict()
    text = replies.set_index("reply_id")["text"]
    valid = verdicts.merge(
        comparisons[["comparison_id", "reply_a", "reply_b"]], on="comparison_id"
    ).query("state == 'valid'")
    meant = np.where(valid["reply_a"].map(text) < valid["reply_b"].map(text), "a", "b")
    result = {
        "rows": len(verdicts),
        "distinct": len(verdicts.drop_duplicates(keys)),
        "states": states,
        "answered": sum(states.values()) - states.get("error", 0),
        "wrong": int((valid["verdict"] != meant).sum()),
    }
    print(json.dumps(result))
    keep_copy(opened)
    sys.exit(3 if states.get("error") else 0)


def _keep_wrong_time(file: Path) -> None:
    """Shift the database's clock by the seconds that a file holds.

    For all who read the same file.
    """
    from heart_collect.calls import database, ledger

    right = database.now

    def wrong(engine: sa.Engine) -> sa.ColumnElement[float]:
        ahead = float(file.read_text() or 0) if file.exists() else 0.0
        return right(engine) + sa.literal(ahead, sa.Float)

    setattr(ledger, "now", wrong)  # noqa: B010 (it is the database's, by the ledger's name for it)
