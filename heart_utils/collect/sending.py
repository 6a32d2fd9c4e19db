"""One attempt at one call: sent through litellm, timed, read; and how long to wait before the next."""

from __future__ import annotations

import asyncio
import os
import random
import time
from contextlib import suppress
from dataclasses import replace
from typing import Any

from heart_utils.collect.models import Call, Request, key_fault, load_litellm
from heart_utils.collect.outcomes import Answer, Failure, failure_of, read_plain, read_stream, redact
from heart_utils.collect.prices import answer_bound, cost, estimate, text_bound

__all__ = ["answered_call", "attempt", "backoff", "spent", "warm_up"]

FIRST_PAUSE_S = 0.5
MAX_PAUSE_S = 30.0

_WARM: set[str] = set()

_WHOLE: set[str] = set()
"""Identities of models whose servers do not stream: they are asked for whole answers, and no first text is timed."""


async def attempt(request: Request, room: int, address: str | None) -> Answer | Failure:
    """Ask once.

    Parameters
    ----------
    request : Request
        What is asked.
    room : int
        Tokens that the answer may have.
    address : str, optional
        Where the embedded model is served.

    Returns
    -------
    Answer or Failure
        Within the model's time-out and as long as its room allows, whatever the server does. A server that does not
        stream is asked for a whole answer from the second attempt on.

    Examples
    --------
    >>> import asyncio
    >>> import os
    >>> from heart_utils.collect.models import Request
    >>> from heart_utils.collect.flow import event_loop
    >>> from heart_utils.collect.models import Model
    >>> says = Model("says", "openai/gpt-4o", options={"mock_response": "I hear you."})  # litellm answers itself
    >>> asked = attempt(Request(says, ({"role": "user", "content": "I lost my job."},)), 120, None)
    >>> asyncio.run_coroutine_threadsafe(asked, event_loop(os.getpid())).result().text
    'I hear you.'
    """
    started, longest = time.perf_counter(), text_bound(request)
    streams = request.stream and request.model.identity not in _WHOLE
    try:
        async with asyncio.timeout(request.model.timeout_s):
            response = await _send(request, room, address, streams)
            if not streams:
                return read_plain(response, started, longest)
            answer = await read_stream(response, started, longest)
    except Exception as error:
        failure = failure_of(error, request)
        if streams and failure.kind == "never" and "stream" in failure.words.lower():
            _WHOLE.add(request.model.identity)
            return replace(failure, kind="again")
        if request.stream and not streams:
            _WHOLE.discard(request.model.identity)  # it does not answer in this way either
        return failure
    if not (answer.text or answer.refused) and not _is_stream(response):
        _WHOLE.add(request.model.identity)
        return Failure("again", "the server did not stream its answer", billed=True)
    return answer


def _is_stream(response: Any) -> bool:
    """Tell whether a server said that it streams; one that does not say is believed to."""
    headers = getattr(response, "_response_headers", None) or {}
    return "event-stream" in str(headers.get("content-type", "event-stream")).lower()


def spent(request: Request, answer: Answer) -> float | None:
    """Price an answer by the tokens counted, or by an estimate where the provider counted none.

    Parameters
    ----------
    request : Request
        What was asked.
    answer : Answer
        What came.

    Returns
    -------
    float or None
        USD; None where no price is known.

    Examples
    --------
    >>> from dataclasses import replace
    >>> from heart_utils.collect.models import Model, Request
    >>> from heart_utils.collect.outcomes import Answer
    >>> ask = Request(Model("m", "openai/own", price_prompt=1, price_completion=2), ({"role": "user", "content": "Hello"},))
    >>> counted = Answer("I hear you.", "stop", False, None, None, 800.0, 20, 4)
    >>> [round(spent(ask, answer) * 1e6) for answer in (counted, replace(counted, prompt_tokens=None))]  # then 17 tokens and 3
    [28, 23]
    """
    usd = cost(request.model, answer.prompt_tokens, answer.completion_tokens)
    return estimate(request, answer.text) if usd is None else usd


def answered_call(request: Request, status: str, answer: Answer, *, attempts: int, in_flight: int, usd: float) -> Call:
    """Make the call that is recorded of an answer.

    Parameters
    ----------
    request : Request
        What was asked.
    status : str
        What became of it.
    answer : Answer
        The last one.
    attempts, in_flight : int
        As in :class:`heart_utils.collect.models.Call`.
    usd : float
        What all answered attempts cost.

    Returns
    -------
    Call
        Without keys, should the answer have held one.

    Examples
    --------
    >>> from heart_utils.collect.models import Request
    >>> from heart_utils.collect.outcomes import Answer
    >>> from dataclasses import replace
    >>> from heart_utils.collect.models import Model, Request
    >>> from heart_utils.collect.outcomes import Answer
    >>> ask = Request(Model("m", "openai/own", price_prompt=1, price_completion=2), ({"role": "user", "content": "Hello"},))
    >>> answer = Answer("I hear you.", "stop", False, None, None, 800.0, 20, 4)
    >>> call = answered_call(ask, "ok", answer, attempts=1, in_flight=1, usd=28e-6)
    >>> call.status, call.text, call.cost_usd
    ('ok', 'I hear you.', 2.8e-05)
    """
    counted = None not in (answer.prompt_tokens, answer.completion_tokens)
    return Call(
        request.key,
        status,
        text=redact(answer.text, request.model),
        finish_reason=answer.finish_reason,
        logprobs=answer.logprobs,
        ttft_ms=answer.ttft_ms,
        total_ms=answer.total_ms,
        prompt_tokens=answer.prompt_tokens,
        completion_tokens=answer.completion_tokens,
        cost_usd=None if spent(request, answer) is None else usd,
        attempts=attempts,
        in_flight=in_flight,
        served_model=answer.served_model,
        fingerprint=answer.fingerprint,
        cached_tokens=answer.cached_tokens,
        estimated=None if counted else True,
    )


def backoff(n: int, after_s: float | None) -> float:
    """Give a pause that doubles, with jitter so that calls do not come back together.

    Parameters
    ----------
    n : int
        Which pause it is, from 1.
    after_s : float, optional
        What the provider asks for; it goes before.

    Returns
    -------
    float
        Seconds.

    Examples
    --------
    >>> [backoff(n, None) <= 0.75 * 2 ** (n - 1) for n in (1, 2, 3)], 20 <= backoff(1, 20.0) <= 22.1
    ([True, True, True], True)
    """
    if after_s is not None:
        return after_s + random.uniform(0, 0.1 + after_s / 10)
    return min(MAX_PAUSE_S, FIRST_PAUSE_S * 2.0 ** (n - 1)) * random.uniform(0.5, 1.5)


async def warm_up(name: str) -> None:
    """Let litellm load what a model's calls need: one it answers itself, one to an address where nobody answers.

    Else it does so in the first call, which takes a second or two: the time to the first text of
    the first reply would be litellm's and not the model's.

    Parameters
    ----------
    name : str
        The model, as litellm names it.

    Examples
    --------
    >>> import asyncio
    >>> import os
    >>> from heart_utils.collect.sending import _WARM
    >>> from heart_utils.collect.flow import event_loop
    >>> asyncio.run_coroutine_threadsafe(warm_up("openai/gpt-4o"), event_loop(os.getpid())).result()  # nobody is asked
    >>> "openai/gpt-4o" in _WARM
    True
    """
    nowhere = {"api_base": "http://127.0.0.1:9/v1", "api_key": "none", "timeout": 5, "num_retries": 0, "max_retries": 0}
    for mock in () if name in _WARM else ({"mock_response": "Yes."}, {}):
        with suppress(Exception):
            messages = [{"role": "user", "content": "."}]
            async for _ in await load_litellm().acompletion(model=name, messages=messages, stream=True, **nowhere, **mock):
                pass
    _WARM.add(name)


async def _send(request: Request, room: int, address: str | None, streams: bool) -> Any:
    model, sampling = request.model, request.sampling
    if room != answer_bound(request):
        sampling["max_completion_tokens" if "max_completion_tokens" in sampling else "max_tokens"] = room
    if streams:
        sampling |= {"stream": True, "stream_options": {"include_usage": True}}
    where = address if model.embedded else model.api_base
    key = os.environ.get(model.api_key_env) if model.api_key_env else None
    fault = key_fault(model)
    if fault is not None:
        raise load_litellm().exceptions.AuthenticationError(fault, model.model.split("/")[0], model.model)
    if where is not None and key is None:
        key = "none"  # litellm would send the key of another provider to this address
    return await load_litellm().acompletion(
        model=model.model,
        messages=[dict(message) for message in request.messages],
        api_base=where,
        api_key=key,
        timeout=model.timeout_s + 5,
        num_retries=0,  # litellm's own retries do not wait as told, and nobody would count them
        max_retries=0,
        **sampling,
    )
