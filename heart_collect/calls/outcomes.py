"""One attempt at a request: how it is sent, and what the outcome means."""

from __future__ import annotations

import asyncio
import math
import os
import re
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache, partial
from itertools import pairwise
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

from heart_collect.calls.models import KEY_NAMES, Call, Model, Request, key_for, load_litellm
from heart_collect.calls.prices import cost, estimate, text_bound
from heart_collect.calls.thoughts import answer_start
from heart_utils.identities import redact_message
from heart_utils.settings import JsonObject

__all__ = ["CUT", "UNSAID", "Answer", "Failure"]

#: The reason for an answer's end where this side ended it: it was longer than its room by far.
CUT = "cut"
UNSAID = "unsaid"  #: The reason where a stream ended as it should, and its provider gave none.

FILTERED = re.compile(
    r"content_filter|content_policy|content management policy|ResponsibleAIPolicy|safety_violation",
    re.I,
)
NO_QUOTA = re.compile(r"insufficient_quota|exceeded your current quota")
TOO_FAST = re.compile(r"rate.?limit|too many requests", re.I)
TURNED_DOWN = re.compile(
    r"invalid|unsupported|not supported|not found|too long|too large|context.length", re.I
)
CLOSED = ("Authentication", "PermissionDenied", "NotFound", "PaymentRequired", "UnsupportedParams")
"""Errors of litellm's by which nothing that a model is asked can be answered."""

LIMIT = re.compile(
    r"(?:llm_provider-)?(?:x-ratelimit-(?P<x>remaining|reset)-(?P<of>requests|tokens)"
    r"|anthropic-ratelimit-(?P<what>requests|(?:input-|output-)?tokens)-(?P<a>remaining|reset))"
)
UNITS_S = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}

MARKED = re.compile(r"(anthropic|bedrock|vertex_ai)/.*claude")
"""Models whose providers keep of a prompt only what is marked; OpenAI's and Gemini's keep what
repeats by themselves."""
KEPT_FROM = 4096  #: Characters of a prompt from which Anthropic may keep it: at least 1,024 tokens.

#: Holds no words, whatever its length.
BLANK = re.compile(r"[\s\u00ad\u200b-\u200f\u2060\ufeff\"'“”*`]*")
#: Reasons for an answer's end by which a provider says that it is not whole.
BROKEN = ("error", "ERROR", "network_error")
#: What a gateway answers now and then while it renews its token, or a server while it restarts.
STRAY = (401, 403, 404)
#: No provider asks for a wait of 31 years: so many seconds, or more, are a date since 1970.
FIRST_DATE_S = 1e9
MAX_DATE_S = 1e11  #: A date in seconds is smaller; what is larger counts milliseconds, or less.

#: The choice where there is none.
NOTHING = SimpleNamespace(message=SimpleNamespace(content=""), finish_reason=None)
_WARM: set[str] = set()
_WHOLE: set[str] = set()
"""Identities of models whose servers do not stream: they are asked for whole answers, and no first
text is timed."""

ECHOED = 6  #: Words in a row that an error has from what was asked; shorter ones are chance.

MAX_WORDS = 400  #: Characters of an error that are kept.


class BrokenAnswerError(Exception):
    """An answer ended before it was whole."""


@dataclass(frozen=True)
class Limit:
    """A provider's limit, as its headers say."""

    of: str  # requests, tokens, input-tokens or output-tokens
    left: float
    reset_s: float  # until it is full again


@dataclass(frozen=True)
class Answer(Call):
    """One answer as it came; empty with an ``error``."""

    written_tokens: int | None = None  #: of the prompt's, those that the provider put into a cache
    limits: tuple[Limit, ...] = ()


@dataclass(frozen=True)
class Failure:
    """An attempt without a usable answer."""

    #: ``again`` (may pass), ``throttled`` (asked too fast), ``empty``, ``never`` (this request
    #: cannot be answered, and was not
    #: billed), ``refused`` (by a filter), or ``closed``: the model's key, name or settings are not
    #: accepted.
    kind: str
    words: str  #: what happened, without keys
    after_s: float | None = None  #: how long the provider asks to wait
    billed: bool = False  #: whether it may cost money all the same
    cost_usd: float | None = None  #: of an empty answer
    #: whether a model that has answered before may answer this too, a moment later
    may_be_transient: bool = False


async def attempt(
    request: Request, growth: int, address: str | None, breakpoints: Sequence[int] = ()
) -> Answer | Failure:
    """Ask once, with so many times the room that options give."""
    streams = request.stream and request.model.identity not in _WHOLE
    if streams:
        await _warm_up(request.model.model)
    started, longest = time.perf_counter(), text_bound(request)
    try:
        async with asyncio.timeout(request.model.timeout_s):
            response = await _send(request, growth, address, streams, breakpoints)
            if streams:
                answer = await read_stream(
                    response, started, longest, mocked="mock_response" in request.sampling
                )
            else:
                answer = read_plain(response, started, longest)
    except Exception as error:
        failure = failure_of(error, request)
        if streams and failure.kind == "never" and re.search(r"\bstream", failure.words, re.I):
            _WHOLE.add(request.model.identity)
            return replace(failure, kind="again")
        if request.stream and not streams:
            _WHOLE.discard(request.model.identity)  # it does not answer in this way either
        return failure
    if streams and answer.status == "error" and not _is_stream(response):
        _WHOLE.add(request.model.identity)
        return Failure("again", "the server did not stream its answer", billed=True)
    return _priced(request, answer)


def _priced(request: Request, answer: Answer) -> Answer | Failure:
    status, text = answer.status, redact(answer.text, secrets_of(request.model))
    if (
        request.single_token and status == "truncated"
    ):  # a letter has room for one token, and fills it
        status = "ok" if text else "error"
    # A count of no tokens for an answer that has some is none.
    counted = answer.prompt_tokens is not None and bool(answer.completion_tokens or not text)
    if counted:
        usd = cost(
            request.model, answer.prompt_tokens, answer.completion_tokens, answer.written_tokens
        )
    else:
        usd = estimate(request, answer.text)
    if status == "error":
        expected = answer.finish_reason in (None, "stop", "length", UNSAID)
        ended = "" if expected else f" and ended with {answer.finish_reason}"
        return Failure("empty", f"the answer was empty{ended}", cost_usd=usd)
    return replace(
        answer,
        call_id=request.key,
        status=status,
        text=text,
        cost_usd=usd,
        estimated=None if counted else True,
    )


def is_blank(text: str) -> bool:
    """Check for blanks, zero-width signs and quotation marks only."""
    return BLANK.fullmatch(text) is not None


def _is_stream(response: Any) -> bool:
    headers = getattr(response, "_response_headers", None) or {}
    return "event-stream" in str(headers.get("content-type", "event-stream")).lower()


async def _warm_up(name: str) -> None:
    nowhere = {
        "api_base": "http://127.0.0.1:9/v1",
        "api_key": "none",
        "timeout": 5,
        "num_retries": 0,
        "max_retries": 0,
    }
    for mock in () if name in _WARM else ({"mock_response": "Yes."}, {}):
        with suppress(Exception):
            messages = [{"role": "user", "content": "."}]
            async for _ in await load_litellm().acompletion(
                model=name, messages=messages, stream=True, **nowhere, **mock
            ):
                pass
    _WARM.add(name)


async def _send(
    request: Request, growth: int, address: str | None, streams: bool, breakpoints: Sequence[int]
) -> Any:
    model, sampling = request.model, request.sampling
    if growth > 1 and request.max_tokens is not None:
        sampling[
            "max_completion_tokens" if "max_completion_tokens" in sampling else "max_tokens"
        ] = growth * request.max_tokens
    if streams:
        sampling |= {"stream": True, "stream_options": {"include_usage": True}}
    where = address if model.embedded else model.api_base
    return await load_litellm().acompletion(
        model=model.model,
        messages=with_breakpoints(request.messages, breakpoints),
        api_base=where,
        api_key=key_for(model, where),
        timeout=model.timeout_s + 5,
        num_retries=0,  # litellm's own retries do not wait as told, and nobody would count them
        max_retries=0,
        **sampling,
    )


def cache_breakpoints(requests: Sequence[Request]) -> list[list[int]]:
    """Find where each request is cut for prompt caches."""
    if not MARKED.match(requests[0].model.model):
        return [[]] * len(requests)
    shared = [0, *(shared_length(one, other) for one, other in pairwise(requests)), 0]
    allowed = [range(KEPT_FROM, len(request.messages[-1]["content"])) for request in requests]
    return [
        sorted({end for end in ends if end in may})
        for ends, may in zip(pairwise(shared), allowed, strict=True)
    ]


def shared_length(one: Request, other: Request) -> int:
    """Count characters that two requests' last messages share."""
    if one.messages[:-1] != other.messages[:-1] or one.sampling != other.sampling:
        return 0
    return len(os.path.commonprefix([one.messages[-1]["content"], other.messages[-1]["content"]]))


def with_breakpoints(
    messages: Sequence[Mapping[str, str]], breakpoints: Sequence[int]
) -> list[JsonObject]:
    whole: list[JsonObject] = [dict(message) for message in messages]
    if breakpoints:
        text, ends = whole[-1]["content"], [0, *breakpoints]
        kept = {"type": "text", "cache_control": {"type": "ephemeral"}}
        blocks = [{**kept, "text": text[start:end]} for start, end in pairwise(ends)]
        whole[-1]["content"] = [*blocks, {"type": "text", "text": text[ends[-1] :]}]
    return whole


def read_plain(response: Any, started: float, longest: int | None = None) -> Answer:
    choice = (getattr(response, "choices", None) or [NOTHING])[0]
    native = (getattr(choice, "provider_specific_fields", None) or {}).get("native_finish_reason")
    if native in BROKEN or choice.finish_reason in BROKEN:
        raise BrokenAnswerError("the provider says that its answer ended with an error")
    return _read(
        response,
        started,
        longest,
        text=choice.message.content or "",
        refusal=_refusal(choice.message),
        finish_reason=(
            "tool_calls" if getattr(choice.message, "tool_calls", None) else choice.finish_reason
        ),
        usage=getattr(response, "usage", None),
        logprobs=_first_token(getattr(choice, "logprobs", None)),
        served_model=getattr(response, "model", None),
        fingerprint=getattr(response, "system_fingerprint", None),
    )


async def read_stream(
    chunks: AsyncIterator[Any], started: float, longest: int | None = None, *, mocked: bool = False
) -> Answer:
    """Read an answer in pieces; time its first text after thoughts."""
    text, refusal, arrivals = "", "", list[tuple[int, float]]()
    finish_reason = usage = None
    heard = _listen(chunks)
    async for chunk in chunks:
        usage = getattr(chunk, "usage", None) or usage
        for choice in chunk.choices[:1]:
            text += choice.delta.content or ""
            arrivals.append((len(text), (time.perf_counter() - started) * 1000))
            refusal += _refusal(choice.delta)
            finish_reason = choice.finish_reason or finish_reason
        if longest is not None and len(text) > longest:
            with suppress(Exception):  # what follows would be billed, and is not wanted
                await chunks.aclose()  # type: ignore[attr-defined]
            break
    else:
        if heard.end in BROKEN:
            raise BrokenAnswerError("the provider says that its answer ended with an error")
        if heard.may_end and heard.end is None and not mocked:
            finish_reason = UNSAID
            if not heard.closed and (text or refusal):
                raise BrokenAnswerError(
                    "the stream ended within the answer: no reason for its end came, and no [DONE]"
                )
    begins = answer_start(text)
    return _read(
        chunks,
        started,
        longest,
        text=text,
        refusal=heard.refusal or refusal,
        finish_reason=finish_reason,
        usage=usage if heard.usage else None,  # litellm counts where the provider did not
        ttft_ms=next((ms for n, ms in arrivals if begins is not None and n > begins), None),
        served_model=heard.model,
        fingerprint=heard.fingerprint,
    )


def _read(
    response: Any,
    started: float,
    longest: int | None,
    *,
    text: str,
    refusal: str,
    finish_reason: str | None,
    usage: Any,
    **fields: Any,
) -> Answer:
    text = text or refusal
    if longest is not None and len(text) > longest:
        text, finish_reason = text[:longest], CUT
    single_token = fields.get("logprobs") is not None
    truncated = finish_reason in ("length", CUT) and not single_token
    status = (
        "refused"
        if refusal or finish_reason == "content_filter"
        else "truncated"
        if truncated
        else "ok"
    )
    status = (
        "error" if status == "ok" and (not text if single_token else is_blank(text)) else status
    )
    limits = read_limits(
        (getattr(response, "_hidden_params", None) or {}).get("additional_headers")
    )
    fields |= {"total_ms": (time.perf_counter() - started) * 1000, **_usage(usage)}
    return Answer("", status, text, finish_reason, limits=limits, **fields)


@dataclass
class _StreamNotes:
    """What a stream's pieces say that litellm does not pass on."""

    model: str | None = None
    fingerprint: str | None = None
    usage: bool = False
    refusal: str = ""
    may_end: bool = False  # whether its pieces have a place for a reason of the end
    end: str | None = None  # that reason, in the provider's word
    closed: bool = False  # whether a count of tokens, or [DONE], came behind the last text

    def take(self, piece: Any) -> None:
        field = piece.get if isinstance(piece, Mapping) else partial(_attribute, piece)
        choices = [choice for choice in field("choices") or () if choice is not None]
        deltas = [getattr(choice, "delta", None) for choice in choices]
        ends = [choice.finish_reason for choice in choices if hasattr(choice, "finish_reason")]
        if isinstance(piece, Mapping) and "finish_reason" in piece:
            ends.append(piece["finish_reason"])
        texts = [field("text"), *(getattr(delta, "content", None) for delta in deltas)]
        self.model = field("model") or self.model
        self.fingerprint = field("system_fingerprint") or self.fingerprint
        self.usage = self.usage or bool(field("usage"))
        self.refusal += "".join(map(_refusal, deltas))
        self.may_end = self.may_end or bool(ends)
        self.end = next((str(end) for end in ends if end), self.end)
        self.closed = not any(texts) and (self.closed or bool(field("usage")))


def _attribute(piece: object, name: str) -> Any:
    return getattr(piece, name, None)


def _listen(response: Any) -> _StreamNotes:
    inner: Any = getattr(response, "completion_stream", None)
    heard = _StreamNotes(usage=not hasattr(inner, "__aiter__"))
    if heard.usage:  # there is no such stream
        return heard
    # of openai's client, which keeps [DONE] to itself
    events: Any = getattr(inner, "_iter_events", None)

    async def listening() -> AsyncIterator[Any]:
        try:
            async for piece in inner:
                heard.take(piece)
                yield piece
        finally:
            close = getattr(inner, "aclose", None) or getattr(inner, "close", None)
            if close is not None:
                with suppress(Exception):
                    await close()

    async def listening_to_events() -> AsyncIterator[Any]:
        async for event in events():
            heard.closed = heard.closed or str(event.data).startswith("[DONE]")
            yield event

    if events is not None:
        inner._iter_events = listening_to_events
    response.completion_stream = listening()
    return heard


def _refusal(message: Any) -> str:
    """Return a refusal's words, which litellm moves elsewhere."""
    moved = getattr(message, "provider_specific_fields", None)
    refusal = getattr(message, "refusal", None) or (
        moved.get("refusal") if isinstance(moved, Mapping) else None
    )
    return str(refusal) if refusal else ""


def _usage(usage: Any) -> dict[str, int | None]:
    """Read token counts; zero asked means none came."""
    if not (getattr(usage, "prompt_tokens", None) or 0) > 0:
        return {"prompt_tokens": None, "completion_tokens": None, "cached_tokens": None}
    details = getattr(usage, "prompt_tokens_details", None)
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": getattr(usage, "completion_tokens", None),
        "cached_tokens": getattr(details, "cached_tokens", None),
        "written_tokens": getattr(usage, "cache_creation_input_tokens", None),
    }


def failure_of(error: BaseException, request: Request) -> Failure:
    exceptions = load_litellm().exceptions
    text = str(getattr(error, "message", None) or error) or type(error).__name__
    prompt = " ".join(str(message["content"]) for message in request.messages)
    words = redact(
        f"{type(error).__name__}: {without_echo(text, prompt)}", secrets_of(request.model)
    )[:MAX_WORDS]
    inside = _code_inside(error)
    # of what came with status 200, litellm's class says nothing
    kind = type(error) if inside is None else Exception
    code = str(getattr(error, "status_code", 0) if inside is None else inside)
    status = int(code) if code.isdecimal() else 0
    # then its words say what it means, and what they do not say may pass
    vague = inside is not None and not status
    all_words = f"{getattr(error, 'body', None) if inside is None else inside} {text}"
    turned_down = issubclass(kind, exceptions.BadRequestError | exceptions.UnprocessableEntityError)
    too_fast = (
        issubclass(kind, exceptions.RateLimitError)
        or status == 429
        or (vague and TOO_FAST.search(all_words) is not None)
    )
    no_quota = (too_fast or inside is not None) and NO_QUOTA.search(all_words)
    settings = tuple(getattr(exceptions, f"{name}Error") for name in CLOSED)
    if issubclass(kind, TimeoutError | exceptions.Timeout):
        return Failure("again", f"no answer within {request.model.timeout_s:g} s", billed=True)
    filtered = issubclass(kind, exceptions.ContentPolicyViolationError) or is_filtered(all_words)
    if filtered and (inside is not None or issubclass(kind, exceptions.BadRequestError)):
        return Failure("refused", words)
    if (
        no_quota
        or status in (401, 402, 404)
        or (inside is None and status in (301, 302, 303, 307, 308))  # no call follows a redirect
        or issubclass(kind, settings)
        or "LLM Provider NOT provided" in text
    ):
        return Failure("closed", words, may_be_transient=status in STRAY and not no_quota)
    if too_fast:
        return Failure("throttled", words, after_s=_retry_after(error))
    # 403, 409, 413, 451 and the like: the answer is no.
    if (
        turned_down
        or (400 <= status < 500 and status != 408)
        or (vague and TURNED_DOWN.search(all_words))
    ):
        return Failure("never", words, may_be_transient=status in STRAY)
    if inside is None and _never_connected(error):
        return Failure(
            "again",
            f"nobody answers at {request.model.api_base or request.model.model} ({words})"[
                :MAX_WORDS
            ],
        )
    # A server's 500 costs nothing; a connection that broke, or an answer that could not be read,
    # may have.
    served = (
        status >= 500 and inside is None and not issubclass(kind, exceptions.APIConnectionError)
    )
    return Failure("again", words, after_s=_retry_after(error), billed=not served)


def _code_inside(error: BaseException) -> str | None:
    for one in _chain(error):
        status, body = getattr(one, "status_code", None), getattr(one, "body", None)
        # A bare Exception is how litellm raises what it finds in an answer, 422 if it has no code.
        if type(one) is Exception and status is not None:
            return "" if status == 422 else str(status)
        # as openai raises what it finds in a stream
        if status is None and isinstance(body, Mapping):
            return str(body.get("code") or "")
    return None


def is_filtered(text: str) -> bool:
    """Check whether an error reports a provider's filter."""
    return FILTERED.search(text) is not None


def secrets_of(model: Model) -> list[str]:
    """List the environment's keys in all forms a text may hold."""
    forms: list[str] = []
    for name, secret in os.environ.items():
        named = name.endswith("_API_KEY") or name == model.api_key_env
        # A short value under another name, such as TOKEN, may be a word that a reply is free to
        # use.
        if len(secret) >= (8 if named else 16) and (named or _may_name_key(name)):
            forms += [secret, secret.strip(), quote(secret, safe="")]
    return forms


@lru_cache(maxsize=1024)  # every answer is searched for every key
def _may_name_key(name: str) -> bool:
    return KEY_NAMES.search(name) is not None


def without_echo(text: str, asked: str) -> str:
    """Remove ids and what repeats the request."""
    pieces = re.split(r"(\W+)", redact_message(text[: 10 * MAX_WORDS]))
    spoken, asked_words = pieces[::2], re.findall(r"\w+", asked)
    runs = {tuple(asked_words[at : at + ECHOED]) for at in range(len(asked_words) - ECHOED + 1)}
    starts = [at for at in range(len(spoken)) if tuple(spoken[at : at + ECHOED]) in runs]
    repeated = {at + offset for at in starts for offset in range(ECHOED)}
    kept = [
        (
            ""
            if at in repeated and at - 1 in repeated
            else ("[what was asked]" if at in repeated else word) + between
        )
        for at, (word, between) in enumerate(zip(spoken, [*pieces[1::2], ""], strict=True))
    ]
    return "".join(kept)


def redact(text: str, secrets: Sequence[str]) -> str:
    """Take keys out of a text."""
    for form in secrets:
        text = text.replace(form, "[key]")
    return re.sub(
        r"\b(sk|pk|rk|xai|gsk|hf|ghp)[-_][A-Za-z0-9_*-]{8,}|\bAIza[\w-]{20,}", "[key]", text
    )


def _first_token(logprobs: Any) -> tuple[tuple[str, float], ...] | None:
    content = getattr(logprobs, "content", None) or []
    for token in content:
        if token.token.strip():
            return tuple(
                (other.token, float(other.logprob)) for other in token.top_logprobs or [token]
            )
    return None


def read_limits(headers: Mapping[str, Any] | None) -> tuple[Limit, ...]:
    """Read what headers leave of a provider's limits."""
    limits: dict[str, dict[str, float]] = {}
    lowered = ((str(name).lower(), value) for name, value in (headers or {}).items())
    found = [(LIMIT.fullmatch(name), value) for name, value in lowered if "ratelimit" in name]
    at = _provider_time(headers) if found else datetime.now(UTC)
    for header, value in found:
        if header is None:
            continue
        what = header["x"] or header["a"]
        number = _seconds(str(value), at) if what == "reset" else _number(str(value))
        if number is not None:
            limits.setdefault(header["of"] or header["what"], {})[what] = max(0.0, number)
    return tuple(
        Limit(of, pair["remaining"], pair["reset"]) for of, pair in limits.items() if len(pair) == 2
    )


def _number(text: str) -> float | None:
    with suppress(ValueError):
        number = float(text)
        return number if math.isfinite(number) else None
    return None


def _seconds(text: str, at: datetime, unit: float = 1.0) -> float | None:
    """Read a number, a duration (``6m0.5s``), or seconds from ``at`` to a date."""
    number = _number(text)
    if number is not None and number < FIRST_DATE_S:
        return max(0.0, number * unit)
    if number is not None:
        while number >= MAX_DATE_S:
            number /= 1000
        return max(0.0, number - at.timestamp())
    times = re.findall(r"([\d.]+)(ms|[smhd])", text)
    if times and "".join(map("".join, times)) == text:
        return sum(float(number) * UNITS_S[unit] for number, unit in times)
    for read in (datetime.fromisoformat, parsedate_to_datetime):
        with suppress(ValueError, TypeError):
            until = read(text)
            return max(0.0, (until.replace(tzinfo=until.tzinfo or UTC) - at).total_seconds())
    return None


def _provider_time(headers: Mapping[str, Any] | None) -> datetime:
    for name, value in (headers or {}).items():
        if str(name).lower().removeprefix("llm_provider-") == "date":
            with suppress(ValueError, TypeError):
                clock = parsedate_to_datetime(str(value))
                return clock.replace(tzinfo=clock.tzinfo or UTC)
    return datetime.now(UTC)


def _retry_after(error: BaseException) -> float | None:
    headers = getattr(getattr(error, "response", None), "headers", None) or getattr(
        error, "litellm_response_headers", None
    )
    at = _provider_time(headers)
    for name, unit in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        seconds = _seconds(str((headers or {}).get(name)), at, unit)
        if seconds is not None:
            return seconds
    return max((limit.reset_s for limit in read_limits(headers) if limit.left == 0), default=None)


def _never_connected(error: BaseException) -> bool:
    refused = re.compile(r"ConnectError|ConnectorError|Cannot connect|refused")
    return any(refused.search(f"{type(one).__name__}: {one}") for one in _chain(error))


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
