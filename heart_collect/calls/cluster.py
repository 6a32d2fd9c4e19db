"""More than one machine: shards of requests over a Dask cluster, on one shared ledger."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

from heart_collect.calls.database import LedgerError
from heart_collect.calls.ledger import Ledger
from heart_collect.calls.models import Call, Request
from heart_utils.extras import extra

__all__ = ["ClusterError"]

#: Requests that a worker is given at once: in their order, so that a server's prefix cache serves
#: them.
SHARD = 200

CONNECT_S = 20
"""Seconds that a scheduler, and then its first worker, may take to come."""


class ClusterError(ValueError):
    """A cluster cannot be reached, or has nobody to work."""


def run_on_cluster(
    requests: Sequence[Request],
    *,
    ask_shard: Callable[[Sequence[Request], str, int | None, float | None], tuple[int, list[Call]]],
    ledger: Ledger,
    scheduler: str,
    max_concurrency: int | None,
    budget_usd: float | None,
    progress: bool,
) -> dict[str, Call]:
    """Have the workers of a cluster ask for all of these requests."""
    if not ledger.shared:
        error_message = (
            f"A scheduler needs a ledger that all its workers reach, and {ledger.url} is a file of"
            " this machine"
        )
        raise LedgerError(
            f"{error_message}. Set HEART_LEDGER=postgresql+psycopg://USER@HOST/NAME here and on"
            " every worker."
        )
    from tqdm.auto import tqdm

    with extra("collect"):
        # partly typed: its annotations promise less than it does
        distributed: Any = importlib.import_module("distributed")

    address = ledger.engine.url._replace(password=None).render_as_string()
    lost: dict[str, Call] = {}
    try:
        client = distributed.Client(scheduler, timeout=CONNECT_S)
    except (OSError, ValueError) as error:
        raise ClusterError(f"No Dask scheduler answers at {scheduler} ({error}).") from None
    with client, tqdm(total=len(requests), unit="call", disable=not progress) as bar:
        try:
            client.wait_for_workers(1, timeout=CONNECT_S)
        except TimeoutError:
            raise ClusterError(
                f"The scheduler at {scheduler} has no worker; start some with `dask worker"
                f" {scheduler}`."
            ) from None
        shards = [requests[start : start + SHARD] for start in range(0, len(requests), SHARD)]
        limits = address, max_concurrency, budget_usd
        futures = [
            client.submit(ask_shard, shard, *limits, key=f"shard-{shard[0].key}")
            for shard in shards
        ]
        try:
            for _, (n, calls) in distributed.as_completed(futures, with_results=True):
                lost |= {call.call_id: call for call in calls}
                bar.update(n)
        finally:
            client.cancel(futures)
    return lost
