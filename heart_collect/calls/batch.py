"""The providers' batch interface: half the price, and an answer within a day.

Any process that comes later collects the answers.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from types import SimpleNamespace
from typing import Any

from heart_collect.calls.database import batches, now
from heart_collect.calls.engine import look_up
from heart_collect.calls.ledger import Ledger
from heart_collect.calls.models import (
    Call,
    Model,
    ModelError,
    Request,
    event_loop,
    key_fault,
    key_for,
    load_litellm,
)
from heart_collect.calls.outcomes import (
    BrokenAnswerError,
    is_filtered,
    read_plain,
    redact,
    secrets_of,
)
from heart_collect.calls.prices import check_money, cost, plan_call, reserve
from heart_utils.identities import redact_message
from heart_utils.settings import extra

with extra("collect"):
    import sqlalchemy as sa

__all__ = ["BatchError"]

PROVIDERS = ("openai", "azure", "hosted_vllm")
"""Whose batches litellm can make and take requests as they are. At Anthropic it only reads batches
that others made, at Gemini's own address and at Mistral it makes none, and those of Vertex AI
go through a bucket of Google's."""

DISCOUNT = 0.5
LINES = 10_000
ENDED = ("completed", "failed", "expired", "cancelled")
#: A batch that its provider does not know so long after it was to be created never reached it.
CREATE_S = 600.0


class BatchError(ValueError):
    """A batch cannot be submitted or collected."""

    perhaps_taken = False  # by its provider, all the same


def can_batch(model: Model) -> bool:
    return not model.embedded and _provider(model)[0] in PROVIDERS


def ask_in_batches(
    requests: Sequence[Request], *, ledger: Ledger, budget_usd: float | None = None
) -> list[Call]:
    """Record the answers of ended batches; submit what the ledger lacks."""
    collect_batches(ledger)
    recorded, todo = look_up(requests, ledger, again=False)
    todo |= {one.key: one for one in requests if one.key in ledger.damaged}
    missing = list(todo.values())
    if missing:
        check_money(missing, budget_usd=budget_usd, max_paid_calls=None)
        submit_batches(missing, ledger=ledger, budget_usd=budget_usd)
    recorded |= {request.key: plan_call(request) for request in missing}
    return [recorded[request.key] for request in requests]


def submit_batches(
    requests: Sequence[Request], *, ledger: Ledger, budget_usd: float | None = None
) -> int:
    queues: dict[str, list[Request]] = {}
    for request in requests:
        if not can_batch(request.model):
            error_message = (
                f"{request.model.name} ({request.model.model}) cannot be asked in batches: litellm"
                " makes them at"
            )
            raise BatchError(
                f"{error_message} {', '.join(PROVIDERS)} only, not at Anthropic or Gemini. Ask it"
                " one call at a time."
            )
        queues.setdefault(request.model.name + request.model.identity, []).append(request)
    parts = [
        queue[start : start + LINES]
        for queue in queues.values()
        for start in range(0, len(queue), LINES)
    ]
    return sum(_submit(part, ledger, budget_usd) for part in parts)


def collect_batches(ledger: Ledger) -> None:
    """Record the answers of open batches that ended."""
    with ledger.reading() as connection:
        age = now(ledger.engine) - batches.c.submitted_at
        wanted = sa.select(batches, age.label("age")).where(
            batches.c.status.in_(("creating", "open"))
        )
        rows = connection.execute(wanted).all()
    for row in rows:
        model = Model(**json.loads(row.model))
        name = row.batch if row.status == "open" else _find_batch(ledger, model, row.owner)
        if name is None and row.age > CREATE_S:
            ledger.record([], owner=row.owner, batch_ended="not created")
            continue
        batch: Any = (
            _call(model, f"batch {name}", "aretrieve_batch", batch_id=name) if name else None
        )
        if name is not None and batch.status in ENDED:
            ledger.record(
                _read_batch(model, name, batch), owner=row.owner, batch_ended=batch.status
            )


def _submit(requests: Sequence[Request], ledger: Ledger, budget_usd: float | None) -> int:
    owner, model = f"{os.getpid()}-batch-{secrets.token_hex(6)}", requests[0].model
    reserves = [reserve(request) * DISCOUNT for request in requests]
    noted = json.dumps(asdict(model))
    won = ledger.claim(
        requests, reserves, since=0.0, budget_usd=budget_usd, owner=owner, batch=noted
    ).won
    mine = [request for request in requests if request.key in won]
    if not mine:
        return 0
    lines = []
    for request in mine:
        sampling = request.sampling
        # a client spreads it over the body; here nobody else would
        extra = sampling.pop("extra_body", None) or {}
        body = {
            "model": _provider(model)[1],
            "messages": [dict(m) for m in request.messages],
            **sampling,
            **extra,
        }
        lines.append(
            json.dumps(
                {
                    "custom_id": request.key,
                    "method": "POST",
                    "url": "/v1/chat/completions",
                    "body": body,
                }
            )
        )
    content = "\n".join(lines).encode()
    try:
        file = _call(
            model,
            "a file of requests",
            "acreate_file",
            file=(f"{owner}.jsonl", content),
            purpose="batch",
        )
        batch = _call(
            model,
            "a batch",
            "acreate_batch",
            completion_window="24h",
            endpoint="/v1/chat/completions",
            input_file_id=file.id,
            metadata={"owner": owner},
            max_retries=0,  # a second attempt might make a second batch
        )
    except BatchError as error:
        if not error.perhaps_taken:
            ledger.record([], owner=owner, batch_ended="refused")
        raise
    _name_batch(ledger, owner, batch.id)
    return len(mine)


def _find_batch(ledger: Ledger, model: Model, owner: str) -> str | None:
    after = None
    while True:
        page = _call(model, "its list of batches", "alist_batches", after=after, limit=100)
        for batch in page.data:
            if (batch.metadata or {}).get("owner") == owner:
                _name_batch(ledger, owner, batch.id)
                return str(batch.id)
        if not page.data or not getattr(page, "has_more", False):
            return None
        after = page.data[-1].id


def _name_batch(ledger: Ledger, owner: str, name: str) -> None:
    with ledger.writing() as connection:
        connection.execute(
            batches.update().where(batches.c.owner == owner).values(batch=name, status="open")
        )


def _read_batch(model: Model, name: str, batch: Any) -> list[Call]:
    calls = []
    for file in filter(None, (batch.output_file_id, batch.error_file_id)):
        content = bytes(
            _call(model, f"the answers of batch {name}", "afile_content", file_id=file).content
        ).decode()
        # Not splitlines: an answer may hold another break.
        calls += [
            _read_line(model, json.loads(line)) for line in content.split("\n") if line.strip()
        ]
    return [call for call in calls if call is not None]


def _read_line(model: Model, line: Mapping[str, Any]) -> Call | None:
    key, response = str(line["custom_id"]), line.get("response") or {}
    if response.get("status_code") == 400:
        words = redact_message(json.dumps(response.get("body")))
        status = "refused" if is_filtered(words) else "error"
        return Call(
            key,
            status,
            attempts=1,
            error=redact(f"not accepted in a batch: {words}", secrets_of(model))[:400],
        )
    if response.get("status_code") != 200:
        return None
    body = json.loads(
        json.dumps(response["body"]), object_hook=lambda entry: SimpleNamespace(**entry)
    )
    try:
        answer = read_plain(body, time.perf_counter())
    except BrokenAnswerError:
        return None
    usd = cost(model, answer.prompt_tokens, answer.completion_tokens)
    read = replace(
        answer,
        call_id=key,
        text=redact(answer.text, secrets_of(model)),
        cost_usd=None if usd is None else usd * DISCOUNT,
        total_ms=None,
        attempts=1,
    )
    if answer.status != "truncated":
        return read
    cut = "truncated in a batch; a plain run asks again with more room"
    return replace(read, status="error", error=cut)


def _provider(model: Model) -> tuple[str, str]:
    try:
        name, provider, *_ = load_litellm().get_llm_provider(model.model)
    except Exception as error:  # litellm has no class of its own for a name that it does not know
        raise ModelError(
            f"{model.name}: litellm does not know {model.model!r} ({str(error).splitlines()[0]})."
        ) from None
    return provider, name


def _call(model: Model, what: str, step: str, **arguments: Any) -> Any:
    if fault := key_fault(model):
        raise BatchError(f"{model.name}: {fault}.")
    where = {
        "custom_llm_provider": _provider(model)[0],
        "api_base": model.api_base,
        "api_key": key_for(model, model.api_base),
    }
    try:
        taken = getattr(load_litellm(), step)(**where | {"max_retries": 2} | arguments)
        return asyncio.run_coroutine_threadsafe(taken, event_loop(os.getpid())).result()
    except Exception as error:
        unsure = (
            step == "acreate_batch"
            and not 400 <= int(getattr(error, "status_code", None) or 0) < 500
        )
        outcome = f"its provider did not take or give {what}."
        if unsure:
            outcome = (
                "nobody knows whether its provider took a batch. The same command looks for it"
                " there."
            )
        words = redact(f"{type(error).__name__}: {redact_message(str(error))}", secrets_of(model))[
            :400
        ]
        fault_of = BatchError(f"{model.name}: {outcome} {words}")
        fault_of.perhaps_taken = unsure
        raise fault_of from None
