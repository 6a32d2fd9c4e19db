"""What a provider sent back, or how it failed: read once, into words that the rest of the program knows."""

from __future__ import annotations

import os
import re
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

from heart_utils.calls.models import KEY_NAMES, Model, Request, load_litellm

__all__ = ["CUT", "Answer", "Failure"]

CUT = "cut"  #: The reason for an answer's end where this side ended it: it was longer than its room by far.

FILTERED = re.compile(r"content_filter|content_policy|content management policy|ResponsibleAIPolicy|safety_violation", re.I)

NO_QUOTA = re.compile(r"insufficient_quota|exceeded your current quota")
TOO_FAST = re.compile(r"rate.?limit|too many requests", re.I)
TURNED_DOWN = re.compile(r"invalid|unsupported|not supported|not found|too long|too large|context.length", re.I)

LIMIT = re.compile(
    r"(?:llm_provider-)?(?:x-ratelimit-(?P<x>remaining|reset)-(?P<of>requests|tokens)"
    r"|anthropic-ratelimit-(?P<what>requests|(?:input-|output-)?tokens)-(?P<a>remaining|reset))"
)
UNITS_S = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}

CLOSED = ("Authentication", "PermissionDenied", "NotFound", "PaymentRequired", "UnsupportedParams")
"""Errors of litellm's by which nothing that a model is asked can be answered."""

NOTHING = SimpleNamespace(message=SimpleNamespace(content=""), finish_reason=None)  #: The choice where there is none.

MAX_WORDS = 400  #: Characters of an error that are kept.


@dataclass(frozen=True)
class Limit:
    """What a provider's headers say of one of its limits: how much of what is left, and when it is full again, in seconds."""

    of: str
    left: float
    reset_s: float


@dataclass(frozen=True)
class Answer:
    """One answer as it came; tokens as the provider counted them, None where it did not."""

    text: str
    finish_reason: str | None
    refused: bool
    logprobs: tuple[tuple[str, float], ...] | None
    ttft_ms: float | None
    total_ms: float
    prompt_tokens: int | None
    completion_tokens: int | None
    served_model: str | None = None
    fingerprint: str | None = None
    cached_tokens: int | None = None
    written_tokens: int | None = None
    limits: tuple[Limit, ...] = ()


@dataclass(frozen=True)
class Failure:
    """One attempt that gave no answer."""

    #: ``"again"``: may pass. ``"throttled"``: asked too fast. ``"never"``: this request cannot be answered, and was not billed.
    #: ``"refused"``: the provider's filter. ``"closed"``: nothing that this model is asked can be answered: its key, its name
    #: or its settings are not accepted.
    kind: str
    words: str  #: What happened, without keys.
    after_s: float | None = None  #: How long the provider asks to wait.
    billed: bool = False  #: Whether it may cost money all the same.


def read_plain(response: Any, started: float, longest: int | None = None) -> Answer:
    """Read an answer that came whole."""
    total_ms = (time.perf_counter() - started) * 1000
    choice = (getattr(response, "choices", None) or [NOTHING])[0]
    refusal, reason = _refusal(choice.message), choice.finish_reason
    text = choice.message.content or refusal
    if longest is not None and len(text) > longest:
        text, reason = text[:longest], CUT
    refused, tokens = choice.finish_reason == "content_filter" or bool(refusal), _usage(getattr(response, "usage", None))
    by: dict[str, Any] = {
        "served_model": getattr(response, "model", None),
        "fingerprint": getattr(response, "system_fingerprint", None),
        "limits": _limits_told(response),
    }
    return Answer(text, reason, refused, _first_token(getattr(choice, "logprobs", None)), None, total_ms, **tokens, **by)


async def read_stream(chunks: AsyncIterator[Any], started: float, longest: int | None = None) -> Answer:
    """Read an answer that comes in pieces, and note when the first text came."""
    pieces: list[str] = []
    refusal, length = "", 0
    ttft_ms = finish_reason = usage = None
    heard = _listen(chunks)
    async for chunk in chunks:
        usage = getattr(chunk, "usage", None) or usage
        if not chunk.choices:
            continue
        choice = chunk.choices[0]
        if choice.delta.content:
            if ttft_ms is None:
                ttft_ms = (time.perf_counter() - started) * 1000
            pieces.append(choice.delta.content)
            length += len(choice.delta.content)
        refusal += _refusal(choice.delta)
        finish_reason = choice.finish_reason or finish_reason
        if longest is not None and length > longest:
            finish_reason = CUT
            with suppress(Exception):  # what follows would be billed, and is not wanted
                await chunks.aclose()  # type: ignore[attr-defined]
            break
    refusal = heard.refusal if heard else refusal
    text, refused = "".join(pieces)[:longest] or refusal, bool(refusal) or finish_reason == "content_filter"
    total_ms = (time.perf_counter() - started) * 1000
    tokens = _usage(usage if heard is None or heard.usage else None)  # litellm counts where the provider did not
    by: dict[str, Any] = {"served_model": heard.model, "fingerprint": heard.fingerprint} if heard else {}
    by["limits"] = _limits_told(chunks)
    return Answer(text, finish_reason, refused, None, ttft_ms, total_ms, **tokens, **by)


@dataclass
class _Heard:
    """What a provider's own pieces say, and litellm's do not pass on."""

    model: str | None = None
    fingerprint: str | None = None
    usage: bool = False
    refusal: str = ""


def _listen(response: Any) -> _Heard | None:
    """Listen to the provider's pieces on their way through litellm's stream; None where there is no such stream."""
    inner: Any = getattr(response, "completion_stream", None)
    if not hasattr(inner, "__aiter__"):
        return None
    heard = _Heard()

    async def listening() -> AsyncIterator[Any]:
        try:
            async for piece in inner:
                said = piece.get if isinstance(piece, dict) else lambda name, piece=piece: getattr(piece, name, None)
                heard.model = said("model") or heard.model
                heard.fingerprint = said("system_fingerprint") or heard.fingerprint
                heard.usage = heard.usage or bool(said("usage"))
                heard.refusal += "".join(_refusal(getattr(choice, "delta", None)) for choice in said("choices") or ())
                yield piece
        finally:
            close = getattr(inner, "aclose", None) or getattr(inner, "close", None)
            if close is not None:
                with suppress(Exception):
                    await close()

    response.completion_stream = listening()
    return heard


def _refusal(message: Any) -> str:
    """Give the words in which a model refuses, out of the field that is made for them; litellm moves it elsewhere."""
    moved = getattr(message, "provider_specific_fields", None)
    said = getattr(message, "refusal", None) or (moved.get("refusal") if isinstance(moved, Mapping) else None)
    return str(said) if said else ""


def _usage(usage: Any) -> dict[str, Any]:
    """Read the tokens counted; a count of no tokens asked is none, and litellm's way to say that nothing came."""
    if not getattr(usage, "prompt_tokens", None):
        return {"prompt_tokens": None, "completion_tokens": None, "cached_tokens": None}
    details = getattr(usage, "prompt_tokens_details", None)
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": getattr(usage, "completion_tokens", None),
        "cached_tokens": getattr(details, "cached_tokens", None),
        "written_tokens": getattr(usage, "cache_creation_input_tokens", None),
    }


def failure_of(error: BaseException, request: Request) -> Failure:
    """Tell what an exception of one attempt means."""
    exceptions = load_litellm().exceptions
    text = str(getattr(error, "message", None) or error) or type(error).__name__
    words = redact(f"{type(error).__name__}: {text}", secrets_of(request.model))[:MAX_WORDS]
    after_s = _retry_after(error)
    code = _code_inside(error)
    if code is not None:
        kind = _kind_inside(code, text)
        return Failure(kind, words, billed=kind == "again")
    if isinstance(error, TimeoutError | exceptions.Timeout):
        return Failure("again", f"no answer within {request.model.timeout_s:g} s", billed=True)
    said = str(getattr(error, "status_code", 0))
    status = int(said) if said.isdecimal() else 0
    if isinstance(error, exceptions.RateLimitError) or status == 429:
        return Failure("closed", words) if NO_QUOTA.search(text) else Failure("throttled", words, after_s=after_s)
    if isinstance(error, exceptions.ContentPolicyViolationError) or (
        isinstance(error, exceptions.BadRequestError) and is_filtered(f"{text} {getattr(error, 'body', None)}")
    ):
        return Failure("refused", words)
    settings = tuple(getattr(exceptions, f"{name}Error") for name in CLOSED)
    if isinstance(error, settings) or "LLM Provider NOT provided" in text:
        return Failure("closed", words)
    turned_down = isinstance(error, exceptions.BadRequestError | exceptions.UnprocessableEntityError)
    if turned_down or (400 <= status < 500 and status != 408):  # 403, 409, 413, 451 and the like: the answer is no
        return Failure("never", words)
    if _never_connected(error):
        return Failure("again", f"nobody answers at {request.model.api_base or request.model.model} ({words})"[:MAX_WORDS])
    # A server's 500 costs nothing; a connection that broke, or an answer that could not be read, may have.
    served = status >= 500 and not isinstance(error, exceptions.APIConnectionError)
    return Failure("again", words, after_s=after_s, billed=not served)


def _code_inside(error: BaseException) -> str | None:
    """Give the code of an error object that came with status 200, ``""`` if it has none; None for other errors."""
    for one in _chain(error):
        status, body = getattr(one, "status_code", None), getattr(one, "body", None)
        # A bare Exception is how litellm raises what it finds in an answer, 422 if it has no code.
        if type(one) is Exception and status is not None:
            return "" if status == 422 else str(status)
        if status is None and isinstance(body, Mapping):  # as openai raises what it finds in a stream
            return str(body.get("code") or "")
    return None


def _kind_inside(code: str, text: str) -> str:
    """Tell what an error object means: by its code where that is a status, else by its words; what they do not say may pass."""
    said = f"{code} {text}"
    if is_filtered(said):
        return "refused"
    if code in ("401", "402", "404") or NO_QUOTA.search(said):
        return "closed"
    if code == "429" or TOO_FAST.search(said):
        return "throttled"
    turned_down = 400 <= int(code) < 500 and code != "408" if code.isdecimal() else TURNED_DOWN.search(said)
    return "never" if turned_down else "again"


def is_filtered(text: str) -> bool:
    """Tell whether an error's words, or its code, say that a filter of the provider's stopped the request."""
    return FILTERED.search(text) is not None


def secrets_of(model: Model) -> list[str]:
    """List the keys of the environment in all forms in which a text may hold them."""
    forms: list[str] = []
    for name, secret in os.environ.items():
        named = name.endswith("_API_KEY") or name == model.api_key_env
        # A short value under another name, such as TOKEN, may be a word that a reply is free to use.
        if len(secret) >= (8 if named else 16) and (named or KEY_NAMES.search(name)):
            forms += [secret, secret.strip(), quote(secret, safe="")]
    return forms


def redact(text: str, secrets: Sequence[str]) -> str:
    """Take keys out of a text, should anybody have put them there."""
    for form in secrets:
        text = text.replace(form, "[key]")
    return re.sub(r"\b(sk|pk|rk|xai|gsk|hf|ghp)[-_][A-Za-z0-9_*-]{8,}|\bAIza[\w-]{20,}", "[key]", text)


def _first_token(logprobs: Any) -> tuple[tuple[str, float], ...] | None:
    """Give the alternatives for the answer's first token, blank ones passed over."""
    content = getattr(logprobs, "content", None) or []
    for token in content:
        if token.token.strip():
            return tuple((other.token, float(other.logprob)) for other in token.top_logprobs or [token])
    return None


def _limits_told(response: Any) -> tuple[Limit, ...]:
    return read_limits((getattr(response, "_hidden_params", None) or {}).get("additional_headers"))


def read_limits(headers: Mapping[str, Any] | None) -> tuple[Limit, ...]:
    """Read what is left of a provider's limits, where its headers say so."""
    said: dict[str, dict[str, float]] = {}
    for name, value in (headers or {}).items():
        found = LIMIT.fullmatch(str(name).lower())
        number = None if found is None else _seconds(str(value))
        if found is not None and number is not None:
            said.setdefault(found["of"] or found["what"], {})[found["x"] or found["a"]] = number
    return tuple(Limit(of, pair["remaining"], pair["reset"]) for of, pair in said.items() if len(pair) == 2)


def _seconds(said: str) -> float | None:
    """Read a number, a time such as ``6m0.5s``, or seconds from now to a date."""
    with suppress(ValueError):
        return max(0.0, float(said))
    times = re.findall(r"([\d.]+)(ms|[smhd])", said)
    if times and "".join(map("".join, times)) == said:
        return sum(float(number) * UNITS_S[unit] for number, unit in times)
    with suppress(ValueError, TypeError):
        return max(0.0, (datetime.fromisoformat(said) - datetime.now(UTC)).total_seconds())
    return None


def _retry_after(error: BaseException) -> float | None:
    headers = getattr(getattr(error, "response", None), "headers", None) or getattr(error, "litellm_response_headers", None)
    for name, unit in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        said: Any = (headers or {}).get(name)
        with suppress(TypeError, ValueError):
            return max(0.0, float(said) * unit)
        with suppress(TypeError, ValueError):  # a date, as HTTP allows; without a zone it is meant in UTC
            until = parsedate_to_datetime(said)
            until = until if until.tzinfo else until.replace(tzinfo=UTC)
            return max(0.0, (until - datetime.now(UTC)).total_seconds())
    return max((limit.reset_s for limit in read_limits(headers) if limit.left == 0), default=None)


def _never_connected(error: BaseException) -> bool:
    """Tell whether the exception began as a connection that could not be made."""
    refused = re.compile(r"ConnectError|ConnectorError|Cannot connect|refused")
    return any(refused.search(f"{type(one).__name__}: {one}") for one in _chain(error))


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Go from an exception to what it was raised from."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
