"""What a provider sent back, or how it failed: read once, into words that the rest of the program knows."""

from __future__ import annotations

import os
import re
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from heart_utils.collect.models import Model, Request, load_litellm

__all__ = ["Answer", "Failure", "failure_of", "read_plain", "read_stream", "redact"]

MAX_WORDS = 400
"""Characters of an error that are kept."""


@dataclass(frozen=True)
class Answer:
    """One answer as it came.

    Attributes
    ----------
    text : str
        Raw.
    finish_reason : str or None
        Why it ended.
    refused : bool
        Whether the provider's filter or the model's refusal field says so.
    logprobs : tuple of (str, float), or None
        Alternatives for the first token that is not blank.
    ttft_ms : float or None
        To the first text, if streamed.
    total_ms : float
        To the end.
    prompt_tokens, completion_tokens : int or None
        As the provider counted.
    """

    text: str
    finish_reason: str | None
    refused: bool
    logprobs: tuple[tuple[str, float], ...] | None
    ttft_ms: float | None
    total_ms: float
    prompt_tokens: int | None
    completion_tokens: int | None


@dataclass(frozen=True)
class Failure:
    """One attempt that gave no answer.

    Attributes
    ----------
    kind : str
        ``"again"``: may pass. ``"throttled"``: asked too fast. ``"never"``: this request cannot be
        answered. ``"refused"``: the provider's filter. ``"closed"``: nothing that this model is
        asked can be answered: its key, its name or its settings are not accepted.
    words : str
        What happened, without keys.
    after_s : float or None
        How long the provider asks to wait.
    billed : bool
        Whether it may cost money all the same.
    """

    kind: str
    words: str
    after_s: float | None = None
    billed: bool = False


def read_plain(response: Any, started: float) -> Answer:
    """Read an answer that came whole.

    Parameters
    ----------
    response : litellm.ModelResponse
        With at least one choice.
    started : float
        The reading of ``time.perf_counter`` when it was asked.

    Returns
    -------
    Answer
        Without ``ttft_ms``.

    Examples
    --------
    >>> import time
    >>> from types import SimpleNamespace as Words
    >>> said = Words(message=Words(content="I hear you."), finish_reason="stop")
    >>> answer = read_plain(Words(choices=[said], usage=Words(prompt_tokens=20, completion_tokens=4)), time.perf_counter())
    >>> answer.text, answer.completion_tokens, answer.refused
    ('I hear you.', 4, False)
    """
    total_ms = (time.perf_counter() - started) * 1000
    choice = response.choices[0]
    usage = getattr(response, "usage", None)
    return Answer(
        text=choice.message.content or "",
        finish_reason=choice.finish_reason,
        refused=choice.finish_reason == "content_filter" or bool(getattr(choice.message, "refusal", None)),
        logprobs=_first_token(getattr(choice, "logprobs", None)),
        ttft_ms=None,
        total_ms=total_ms,
        prompt_tokens=getattr(usage, "prompt_tokens", None),
        completion_tokens=getattr(usage, "completion_tokens", None),
    )


async def read_stream(chunks: AsyncIterator[Any], started: float) -> Answer:
    """Read an answer that comes in pieces, and note when the first text came.

    Parameters
    ----------
    chunks : asynchronous iterator
        As litellm streams them.
    started : float
        The reading of ``time.perf_counter`` when it was asked.

    Returns
    -------
    Answer
        With ``ttft_ms``, unless no text came.

    Examples
    --------
    >>> import time
    >>> import asyncio
    >>> from types import SimpleNamespace as Words
    >>> async def pieces():
    ...     for text in ("I hear", " you."):
    ...         yield Words(choices=[Words(delta=Words(content=text), finish_reason=None)])
    >>> answer = asyncio.run(read_stream(pieces(), time.perf_counter()))
    >>> answer.text, answer.ttft_ms <= answer.total_ms
    ('I hear you.', True)
    """
    pieces: list[str] = []
    ttft_ms = finish_reason = usage = None
    refused = False
    async for chunk in chunks:
        usage = getattr(chunk, "usage", None) or usage
        if not chunk.choices:
            continue
        choice = chunk.choices[0]
        if choice.delta.content:
            if ttft_ms is None:
                ttft_ms = (time.perf_counter() - started) * 1000
            pieces.append(choice.delta.content)
        refused = refused or bool(getattr(choice.delta, "refusal", None))
        finish_reason = choice.finish_reason or finish_reason
    return Answer(
        text="".join(pieces),
        finish_reason=finish_reason,
        refused=refused or finish_reason == "content_filter",
        logprobs=None,
        ttft_ms=ttft_ms,
        total_ms=(time.perf_counter() - started) * 1000,
        prompt_tokens=getattr(usage, "prompt_tokens", None),
        completion_tokens=getattr(usage, "completion_tokens", None),
    )


def failure_of(error: BaseException, request: Request) -> Failure:
    """Tell what an exception of one attempt means.

    Parameters
    ----------
    error : BaseException
        As litellm, or a time-out, raised it.
    request : Request
        What was asked.

    Returns
    -------
    Failure
        An exception that nobody foresaw, such as an answer in another format, may pass.

    Examples
    --------
    >>> from heart_utils.collect.models import Model, Request
    >>> ask = Request(Model("m", "openai/gpt-4o", timeout_s=5), ({"role": "user", "content": "Hello"},))
    >>> failure_of(TimeoutError(), ask)
    Failure(kind='again', words='no answer within 5 s', after_s=None, billed=True)
    """
    exceptions = load_litellm().exceptions
    text = str(getattr(error, "message", None) or error) or type(error).__name__
    words = redact(f"{type(error).__name__}: {text}", request.model)[:MAX_WORDS]
    after_s = _retry_after(error)
    if isinstance(error, TimeoutError | exceptions.Timeout):
        return Failure("again", f"no answer within {request.model.timeout_s:g} s", billed=True)
    if isinstance(error, exceptions.RateLimitError):
        if re.search(r"insufficient_quota|exceeded your current quota", text):
            return Failure("closed", words)
        return Failure("throttled", words, after_s=after_s)
    if isinstance(error, exceptions.ContentPolicyViolationError):
        return Failure("refused", words)
    if isinstance(error, exceptions.ContextWindowExceededError):
        return Failure("never", words)
    settings = (
        exceptions.AuthenticationError,
        exceptions.PermissionDeniedError,
        exceptions.NotFoundError,
        exceptions.PaymentRequiredError,
        exceptions.UnsupportedParamsError,
    )
    if isinstance(error, settings) or "LLM Provider NOT provided" in text:
        return Failure("closed", words)
    if isinstance(error, exceptions.BadRequestError | exceptions.UnprocessableEntityError):
        return Failure("never", words)
    # A server's 500 costs nothing; a connection that broke, or an answer that could not be read, may have.
    served = int(getattr(error, "status_code", 0) or 0) >= 500 and not isinstance(error, exceptions.APIConnectionError)
    return Failure("again", words, after_s=after_s, billed=not served and not _never_connected(error))


def redact(text: str, model: Model) -> str:
    """Take a model's key out of a text, should anybody have put it there.

    Parameters
    ----------
    text : str
        An answer, or an error's words.
    model : Model
        Whose key, as the environment has it; and whatever looks like one of a known make.

    Returns
    -------
    str
        With ``[key]`` in place of each.

    Examples
    --------
    >>> from heart_utils.collect.models import Model
    >>> redact("Incorrect API key provided: sk-abcdefghijklmnop.", Model("m", "openai/m"))
    'Incorrect API key provided: [key].'
    """
    names = [name for name in os.environ if name.endswith("_API_KEY") or name == model.api_key_env]
    for secret in (os.environ[name] for name in names):
        if len(secret) >= 8:
            text = text.replace(secret, "[key]")
    return re.sub(r"\b(sk|pk|rk|xai|gsk|hf|ghp)[-_][A-Za-z0-9_*-]{8,}|\bAIza[\w-]{20,}", "[key]", text)


def _first_token(logprobs: Any) -> tuple[tuple[str, float], ...] | None:
    """Give the alternatives for the answer's first token, blank ones passed over."""
    content = getattr(logprobs, "content", None) or []
    for token in content:
        if token.token.strip():
            return tuple((other.token, float(other.logprob)) for other in token.top_logprobs or [token])
    return None


def _retry_after(error: BaseException) -> float | None:
    headers = getattr(getattr(error, "response", None), "headers", None) or getattr(error, "litellm_response_headers", None)
    for name, unit in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        try:
            return max(0.0, float((headers or {})[name]) * unit)
        except (KeyError, TypeError, ValueError):
            continue
    return None


def _never_connected(error: BaseException | None) -> bool:
    """Tell whether the exception began as a connection that could not be made."""
    while error is not None:
        if re.search(r"ConnectError|ConnectorError|Cannot connect|refused", f"{type(error).__name__}: {error}"):
            return True
        error = error.__cause__ or error.__context__
    return False
