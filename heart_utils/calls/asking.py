"""Asking models: from the ledger what it has, from them what it lacks. Every call goes through here."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from functools import partial
from typing import Any

from heart_utils.calls.ledger import Ledger, LedgerError
from heart_utils.calls.models import Call, ModelError, Request
from heart_utils.calls.prices import check_money, plan_call

__all__: list[str] = []

MODES = ("replay", "missing", "dry", "batch")

ROUNDS = 3
"""So often is asked again what is not in the ledger afterwards: another program may have damaged or deleted it."""


def ask_all(
    requests: Iterable[Request],
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
    asked = list(requests)
    if mode == "batch":
        from heart_utils.calls.batch import collect_batches

        collect_batches(ledger)
    recorded = ledger.find([request.key for request in asked])
    again = () if mode in ("replay", "batch") else ("error",)
    damaged = [r for r in asked if r.key in ledger.damaged]
    if damaged:
        then = "They count as errors; `make collect` asks again." if mode in ("replay", "dry") else "They are asked again."
        about = f" about {damaged[0].tag}" if damaged[0].tag else ""
        warnings.warn(
            f"{len(damaged)} answers in {ledger.url} are damaged, the first by {damaged[0].model.name}{about}. {then}",
            stacklevel=2,
        )
        again = again if mode == "replay" else ("error",)
    todo = {r.key: r for r in asked if r.key not in recorded or recorded[r.key].status in again}
    if mode == "replay" and todo:
        from heart_utils.calls.ledger import explain_miss

        raise explain_miss(ledger, list(todo.values()), total=len(asked))
    if mode == "batch" and todo:
        from heart_utils.calls.batch import submit_batches

        check_money(list(todo.values()), budget_usd=budget_usd, max_paid_calls=max_paid_calls)
        submit_batches(list(todo.values()), ledger=ledger, budget_usd=budget_usd)
    if mode in ("dry", "batch"):
        recorded |= {key: plan_call(request) for key, request in todo.items()}
    elif todo:
        missing = list(todo.values())
        check_money(missing, budget_usd=budget_usd, max_paid_calls=max_paid_calls)
        how: dict[str, Any] = {"max_concurrency": max_concurrency, "budget_usd": budget_usd, "progress": progress}
        if scheduler is None:
            from heart_utils.calls.engine import run as ask
        else:
            from heart_utils.calls.cluster import run_on_cluster

            ask = partial(run_on_cluster, scheduler=scheduler)
        for _ in range(ROUNDS):
            recorded |= ask(missing, ledger=ledger, **how) | ledger.find(list(todo))
            missing = [request for request in missing if request.key not in recorded]
            if not missing:
                break
        else:
            raise LedgerError(
                f"{len(missing)} calls were asked {ROUNDS} times and are not in {ledger.url}: another program deletes from it."
            )
    return [recorded[request.key] for request in asked]
