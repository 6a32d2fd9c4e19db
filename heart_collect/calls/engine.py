"""Asking models: from the ledger what it has, from them what it lacks.

Every call goes through ``ask_all``.
"""

from __future__ import annotations

import asyncio
import os
import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import TypedDict

from heart_collect.calls.batch import collect_batches, submit_batches
from heart_collect.calls.cluster import run_on_cluster
from heart_collect.calls.database import LedgerError
from heart_collect.calls.flow import Flow
from heart_collect.calls.ledger import Ledger
from heart_collect.calls.local import serve_local
from heart_collect.calls.models import Call, ModelError, Request, event_loop, load_litellm
from heart_collect.calls.prices import BudgetError, check_money, plan_call
from heart_collect.calls.records import explain_miss, open_ledger
from heart_collect.calls.rows import failed

__all__: list[str] = []

MODES = ("replay", "missing", "dry", "batch")
#: So often is asked again what is not in the ledger afterwards: another program may have damaged or
#: deleted it.
ROUNDS = 3


class Asking(TypedDict, total=False):
    """How models are asked, beside how many at once; ``ask_all`` states the defaults."""

    #: ``missing`` asks what the ledger lacks, ``replay`` nothing, ``dry`` plans it, ``batch``
    #: submits it.
    mode: str
    budget_usd: float | None  #: What the ledger may spend, ever.
    max_paid_calls: int | None  #: So many calls that cost money, and no more.
    progress: bool  #: Whether a bar is drawn.
    scheduler: str | None  #: Address of a Dask scheduler whose workers ask.


def ask_all(
    requests: Sequence[Request],
    *,
    ledger: Ledger,
    mode: str = "missing",
    max_concurrency: int | None = None,
    budget_usd: float | None = None,
    max_paid_calls: int | None = None,
    progress: bool = True,
    scheduler: str | None = None,
) -> list[Call]:
    """Answer requests from the ledger, and ask for what it lacks."""
    if mode not in MODES:
        raise ModelError(f"There is no mode {mode!r}; the modes are {', '.join(MODES)}.")
    if mode == "batch":
        collect_batches(ledger)
    recorded = ledger.find([request.key for request in requests])
    damaged = [request for request in requests if request.key in ledger.damaged]
    if damaged:
        then = (
            "They count as errors; `make collect` asks again."
            if mode in ("replay", "dry")
            else "They are asked again."
        )
        about = f" about {damaged[0].tag}" if damaged[0].tag else ""
        warnings.warn(
            f"{len(damaged)} answers in {ledger.url} are damaged, the first by"
            f" {damaged[0].model.name}{about}. {then}",
            stacklevel=2,
        )
    # A replay takes a recorded failure as the answer that it was, so that a finished run gives the
    # same tables; other modes ask again.
    again = mode in ("missing", "dry") or (mode == "batch" and damaged)
    todo = {
        r.key: r for r in requests if r.key not in recorded or (again and failed(recorded[r.key]))
    }
    missing = list(todo.values())
    if mode == "replay" and missing:
        raise explain_miss(ledger, missing, total=len(requests))
    if mode in ("missing", "batch") and missing:
        check_money(missing, budget_usd=budget_usd, max_paid_calls=max_paid_calls)
    if mode == "batch" and missing:
        submit_batches(missing, ledger=ledger, budget_usd=budget_usd)
    if mode in ("dry", "batch"):
        recorded |= {request.key: plan_call(request) for request in missing}
        return [recorded[request.key] for request in requests]
    # A call can be lost between its answer and this look-up, if another program deletes from the
    # ledger. It is asked a few times more, never for ever: each time may cost money.
    recorded = {key: call for key, call in recorded.items() if key not in todo}
    rounds = 0
    while missing and rounds < ROUNDS:
        if scheduler is None:
            unmade = run(
                missing,
                ledger=ledger,
                max_concurrency=max_concurrency,
                budget_usd=budget_usd,
                progress=progress,
            )
        else:
            unmade = run_on_cluster(
                missing,
                ask_shard=_ask_shard,
                ledger=ledger,
                scheduler=scheduler,
                max_concurrency=max_concurrency,
                budget_usd=budget_usd,
                progress=progress,
            )
        recorded |= unmade | ledger.find(list(todo))
        missing = [request for request in missing if request.key not in recorded]
        rounds += 1
    if missing:
        error_message = (
            f"{len(missing)} calls were asked {ROUNDS} times and are not in {ledger.url}"
        )
        raise LedgerError(f"{error_message}: another program deletes from it.")
    return [recorded[request.key] for request in requests]


def _ask_shard(
    requests: Sequence[Request], address: str, max_concurrency: int | None, budget_usd: float | None
) -> tuple[int, list[Call]]:
    """Ask a shard's requests in a worker of a cluster; return calls that could not be made."""
    ledger = _shared_ledger(os.environ.get("HEART_LEDGER") or address)
    calls = ask_all(
        requests,
        ledger=ledger,
        max_concurrency=max_concurrency,
        budget_usd=budget_usd,
        progress=False,
    )
    recorded = ledger.statuses([call.call_id for call in calls])
    return len(requests), [call for call in calls if call.call_id not in recorded]


_shared_ledger = lru_cache(maxsize=1)(open_ledger)


def run(
    requests: Sequence[Request],
    *,
    ledger: Ledger,
    max_concurrency: int | None,
    budget_usd: float | None,
    progress: bool,
) -> dict[str, Call]:
    """Ask for all of these requests and record what comes."""
    from tqdm.auto import tqdm

    load_litellm()
    embedded = any(request.model.embedded for request in requests)
    serving: AbstractContextManager[str | None] = serve_local() if embedded else nullcontext()
    with serving as address, tqdm(total=len(requests), unit="call", disable=not progress) as bar:
        flow = Flow(ledger, address, max_concurrency, budget_usd, bar)
        loop = event_loop(os.getpid())
        future = asyncio.run_coroutine_threadsafe(flow.run(requests), loop)
        try:
            future.result()
        except KeyboardInterrupt:
            loop.call_soon_threadsafe(flow.stopping.set)
            bar.write(
                f"Stopping: {flow.progress.in_flight} calls in flight are waited for; Ctrl-C again"
                " gives them up."
            )
            try:
                future.result()
            except KeyboardInterrupt:
                ledger.hurry.set()
                future.cancel()
                flow.ended.wait(10)
                ledger.hurry.clear()
            raise
    for queue in flow.queues:
        if queue.closed is not None:
            warnings.warn(
                f"{queue.model.name}: its queue was stopped. {queue.closed}", stacklevel=3
            )
    short = [queue for queue in flow.queues if queue.n_unaffordable]
    if short:
        caps = {f"{queue.model.name}'s own": queue.model.budget_usd for queue in short}
        budgets = [
            f"{whose} {usd:g}".strip()
            for whose, usd in {"": budget_usd, **caps}.items()
            if usd is not None
        ]
        money = ledger.money()
        raise BudgetError(
            f"The budget of {' or '.join(budgets)} USD does not reach for another call:"
            f" {money.spent:.4f} spent, {money.unsettled:.4f} perhaps billed for calls nobody heard"
            f" the end of, {money.reserved:.4f} held for requests in batches."
            f" {sum(queue.n_unaffordable for queue in short)} calls were not made. What was"
            " answered is recorded; raise budget_usd and run again."
        )
    if flow.progress.in_batches:
        error_message = (
            f"{flow.progress.in_batches} of the requests are in a provider's batch that has not"
            " been collected"
        )
        raise LedgerError(
            f"{error_message}. Mode 'batch' collects it once it is there; the others are recorded."
        )
    return flow.lost()
