"""What a provider sends, case by case, and the word for it. No server is asked."""

import asyncio
import time
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace as Words

import httpx
import pytest

from heart_collect.calls.models import Model, Request, load_litellm
from heart_collect.calls.outcomes import (
    CUT,
    BrokenAnswerError,
    Failure,
    failure_of,
    read_limits,
    read_plain,
    read_stream,
    redact,
    secrets_of,
    without_echo,
)

ASK = Request(Model("m", "openai/gpt-4o", timeout_s=5), ({"role": "user", "content": "Hello"},))
CANARY = "sk-canary-0123456789abcdef"


# -- answers


def whole(content="I hear you.", finish="stop", usage=None, logprobs=None, top=None, **message):
    choice = Words(
        message=Words(content=content, **message), finish_reason=finish, logprobs=logprobs
    )
    return Words(choices=[choice], usage=usage, **(top or {}))


def read(*arguments, longest=None, **cells):
    return read_plain(whole(*arguments, **cells), time.perf_counter(), longest)


def piece(content=None, finish=None, **cells):
    delta = Words(
        content=content,
        **{k: cells.pop(k) for k in ("refusal", "provider_specific_fields") if k in cells},
    )
    return Words(choices=[Words(delta=delta, finish_reason=finish)], **cells)


def stream(*pieces, longest=None, pause_s=0.0):
    seen = []

    async def chunks():
        for one in pieces:
            await asyncio.sleep(pause_s)
            seen.append(one)
            yield one

    answer = asyncio.run(read_stream(chunks(), time.perf_counter(), longest))
    return answer, len(seen)


REFUSED, TEXT = ("refused", "I cannot."), ("ok", "Yes.")


@pytest.mark.parametrize(
    ("content", "fields", "read_as"),
    [
        (None, {"refusal": "I cannot."}, REFUSED),
        (None, {"refusal": None, "provider_specific_fields": {"refusal": "I cannot."}}, REFUSED),
        (None, {"provider_specific_fields": {"refusal": "I cannot."}}, REFUSED),
        ("Text.", {"refusal": "No."}, ("refused", "Text.")),  # a text stands before it
        ("Yes.", {}, TEXT),
        ("Yes.", {"refusal": None}, TEXT),
        ("Yes.", {"refusal": ""}, TEXT),
        ("Yes.", {"provider_specific_fields": None}, TEXT),
        ("Yes.", {"provider_specific_fields": {"refusal": None}}, TEXT),
        ("Yes.", {"provider_specific_fields": {"other": "I cannot."}}, TEXT),
        (None, {}, ("error", "")),
    ],
)
def test_a_refusal_is_found_wherever_litellm_puts_it(content, fields, read_as):
    answer = read(content, **fields)
    assert (answer.status, answer.text, answer.finish_reason) == (*read_as, "stop")
    answer, _ = stream(piece(content, **fields), piece(finish="stop"))
    assert (answer.status, answer.text) == read_as


@pytest.mark.parametrize(
    ("finish", "refused"),
    [("content_filter", True), ("stop", False), ("length", False), (None, False)],
)
def test_a_filter_that_ended_an_answer_refused_it(finish, refused):
    assert (read("Half an", finish).status == "refused") is refused
    answer, _ = stream(piece("Half an"), piece(finish=finish))
    assert (answer.status == "refused", answer.text, answer.finish_reason) == (
        refused,
        "Half an",
        finish,
    )


@pytest.mark.parametrize("body", [{}, {"choices": []}, {"choices": None}])
def test_an_answer_without_a_choice_is_empty(body):
    answer = read_plain(Words(**body), 0.0)
    assert (answer.text, answer.status == "refused", answer.finish_reason) == ("", False, None)


@pytest.mark.parametrize(
    ("usage", "counted"),
    [
        (None, (None, None, None)),
        # litellm, of a server that counts nothing
        (Words(prompt_tokens=0, completion_tokens=0), (None, None, None)),
        (Words(prompt_tokens=20, completion_tokens=4), (20, 4, None)),
        (Words(prompt_tokens=1, completion_tokens=0), (1, 0, None)),
        (Words(prompt_tokens=20, completion_tokens=4, prompt_tokens_details=None), (20, 4, None)),
        (
            Words(
                prompt_tokens=20, completion_tokens=4, prompt_tokens_details=Words(cached_tokens=16)
            ),
            (20, 4, 16),
        ),
    ],
)
def test_tokens_are_those_that_were_counted(usage, counted):
    answer = read(usage=usage)
    assert (answer.prompt_tokens, answer.completion_tokens, answer.cached_tokens) == counted
    answer, _ = stream(piece("I"), Words(choices=[], usage=usage), piece(" see"))
    assert (answer.prompt_tokens, answer.completion_tokens, answer.cached_tokens) == counted


@pytest.mark.parametrize(
    ("n", "kept", "finish"),
    [(99, 99, "stop"), (100, 100, "stop"), (101, 100, CUT), (5000, 100, CUT)],
)
def test_what_is_longer_than_may_be_kept_is_cut_and_says_so(n, kept, finish):
    answer = read("x" * n, longest=100)
    assert (len(answer.text), answer.finish_reason) == (kept, finish)
    assert len(read("x" * n).text) == n


def test_a_stream_is_hung_up_once_it_is_too_long_and_closed_at_its_source():
    answer, n = stream(*(piece("x" * 30) for _ in range(50)), longest=100)
    assert (answer.text, answer.finish_reason, n) == ("x" * 100, CUT, 4)
    answer, n = stream(*(piece("x" * 25) for _ in range(4)), piece(finish="stop"), longest=100)
    assert (len(answer.text), answer.finish_reason, n) == (100, "stop", 5)

    async def cut():
        response = Stream([Words(text="x" * 80, choices=None)] * 9, OWN)
        answer = await read_stream(response, time.perf_counter(), 100)
        # at once: the end of the event loop closes whatever is left open
        return len(answer.text), response.closed

    assert asyncio.run(cut()) == (100, True)


def test_the_first_text_is_timed_and_not_the_first_piece():
    answer, _ = stream(
        piece(""), piece(), piece("I"), piece(" see"), piece(finish="stop"), pause_s=0.05
    )
    assert 140 < answer.ttft_ms < answer.total_ms - 80  # three pauses before it, two behind
    assert answer.total_ms < 20_000
    assert (answer.text, answer.finish_reason, answer.logprobs) == ("I see", "stop", None)
    assert stream(piece(finish="stop"))[0].ttft_ms is None
    started = time.perf_counter() - 2.0
    assert 2000 <= read_plain(whole(), started).total_ms < 60_000
    assert read().ttft_ms is None


class Stream:
    """A stream as litellm makes one: over the provider's own pieces, of which it passes on some."""

    def __init__(self, pieces, usage=None):
        self.completion_stream, self.usage, self.closed = self.provider(pieces), usage, False

    async def provider(self, pieces):
        try:
            for one in pieces:
                yield one
        finally:
            self.closed = True

    async def aclose(self):
        await self.completion_stream.aclose()

    async def __aiter__(self):
        async for one in self.completion_stream:
            if isinstance(one, dict) or hasattr(one, "text"):
                yield piece(one["text"] if isinstance(one, dict) else one.text)
            else:
                yield piece(one.choices[0].delta.content if one.choices else None)
        yield piece(finish="stop")  # litellm gives every stream an end
        yield Words(choices=[], usage=self.usage)


OWN = Words(prompt_tokens=9, completion_tokens=3)


@pytest.mark.parametrize("as_dict", [False, True])
def test_what_litellm_drops_of_a_stream_is_heard_from_the_provider(as_dict):
    def said(**cells):
        cells = {
            "text": "Yes",
            "choices": None,
            "model": None,
            "system_fingerprint": None,
            "usage": None,
            **cells,
        }
        return cells if as_dict else Words(**cells)

    refusing = [Words(delta=Words(refusal="No, "))]
    pieces = [
        said(model="served", system_fingerprint="fp_1"),
        said(choices=refusing),
        said(choices=refusing, usage={"n": 1}),
    ]
    response = Stream(pieces, OWN)
    answer = asyncio.run(read_stream(response, time.perf_counter()))
    assert (answer.served_model, answer.fingerprint, answer.prompt_tokens) == ("served", "fp_1", 9)
    assert (answer.status == "refused", answer.text) == (True, "YesYesYes")
    assert response.closed
    silent = asyncio.run(read_stream(Stream([said()], OWN), time.perf_counter()))
    assert (silent.served_model, silent.prompt_tokens, silent.status == "refused") == (
        None,
        None,
        False,
    )  # litellm counted, nobody else


@pytest.mark.parametrize(
    ("pieces", "ending"),
    [
        ([piece("I see. What "), piece("would")], None),
        # Anthropic counts at the beginning
        ([piece("I see."), Words(choices=[], usage={"n": 9}), piece(" What")], None),
        # some servers count with each piece
        ([piece("I see.", usage={"n": 3}), piece(" What", usage={"n": 4})], None),
        ([piece("I see."), piece(finish="network_error")], None),
        # litellm's own pieces
        ([{"text": "I see. What", "is_finished": False, "finish_reason": ""}], None),
        (
            [
                {"text": "I see.", "is_finished": False, "finish_reason": ""},
                {"text": "", "finish_reason": "stop"},
            ],
            "stop",
        ),
        ([piece("I see."), piece(finish="stop")], "stop"),
        # the stand-in for litellm says stop whatever came
        ([piece("I see.", finish="length")], "stop"),
        # Ollama, of answers that are whole
        ([piece("I see."), Words(choices=[], usage={"n": 9})], "unsaid"),
    ],
)
def test_a_stream_is_whole_where_its_provider_says_so(pieces, ending):
    reading = read_stream(Stream(pieces), time.perf_counter())
    if ending is None:
        with pytest.raises(BrokenAnswerError):
            asyncio.run(reading)
    else:
        answer = asyncio.run(reading)
        assert (answer.status, answer.finish_reason) == ("ok", ending)


@pytest.mark.parametrize("text", [" \n ", "\u200b", "\ufeff \u2060", "\xa0", '""', "“ ”", "**"])
def test_what_holds_no_words_is_empty(text):
    assert read(text).status == "error"
    assert stream(piece(text), piece(finish="stop"))[0].status == "error"
    assert read("…").status == read("❤").status == "ok"


@pytest.mark.parametrize(
    ("tokens", "first"),
    [
        (None, None),
        ([], None),
        ([("A", [("A", -0.2), ("B", -1.8)])], (("A", -0.2), ("B", -1.8))),
        ([(" \n", [("x", -9.0)]), ("B", [("B", -0.1)])], (("B", -0.1),)),  # blanks are passed over
        ([("A", None)], (("A", -0.5),)),  # without alternatives, the token itself
        ([(" ", [("x", -9.0)])], None),
    ],
)
def test_the_alternatives_are_those_of_the_first_token_that_is_not_blank(tokens, first):
    def entry(token, top):
        return Words(
            token=token,
            logprob=-0.5,
            top_logprobs=top and [Words(token=t, logprob=v) for t, v in top],
        )

    logprobs = None if tokens is None else Words(content=[entry(*token) for token in tokens])
    assert read("A", logprobs=logprobs).logprobs == first


# -- failures


def error(name, words="no", status=None, **more):
    kind = getattr(load_litellm().exceptions, name)
    given = {"message": words, "llm_provider": "openai", "model": "gpt-4o", **more}
    if name == "APIError":
        given["status_code"] = status
    if name in ("PermissionDeniedError", "UnprocessableEntityError"):
        given["response"] = httpx.Response(status or 403, request=httpx.Request("POST", "http://x"))
    made = kind(**given)
    made.status_code = status or getattr(made, "status_code", None)
    return made


@pytest.mark.parametrize(
    ("raised", "kind", "billed"),
    [
        (lambda: TimeoutError(), "again", True),
        (lambda: error("Timeout"), "again", True),
        (lambda: error("RateLimitError"), "throttled", False),
        (lambda: error("RateLimitError", "You exceeded your current quota"), "closed", False),
        (lambda: error("RateLimitError", "code: insufficient_quota"), "closed", False),
        (lambda: error("ContentPolicyViolationError"), "refused", False),
        (lambda: error("BadRequestError", "code: content_filter"), "refused", False),
        (
            lambda: error("BadRequestError", "stopped", body={"code": "content_filter"}),
            "refused",
            False,
        ),
        *(
            (lambda words=words: error("BadRequestError", words), "refused", False)
            for words in (
                "content_policy_violation",
                "triggered Azure OpenAI's content management policy",
                "ResponsibleAIPolicyViolation",
                "safety_violations=[harassment]",
            )
        ),
        (lambda: error("BadRequestError", "the filter option is unknown"), "never", False),
        (lambda: error("BadRequestError", "bad request"), "never", False),
        (lambda: error("ContextWindowExceededError"), "never", False),
        (lambda: error("UnprocessableEntityError", status=422), "never", False),
        (lambda: error("AuthenticationError"), "closed", False),
        (lambda: error("PermissionDeniedError"), "closed", False),
        (lambda: error("NotFoundError"), "closed", False),
        (lambda: error("BadRequestError", "LLM Provider NOT provided"), "closed", False),
        *((lambda code=code: error("APIError", status=code), "never", False) for code in (400, 403, 409, 413, 422, 451, 499)),
        (lambda: error("APIError", status=408), "again", True),
        (lambda: error("APIError", status=429), "throttled", False),
        (lambda: error("APIError", status=500), "again", False),
        (lambda: error("APIError", status=503), "again", False),
        (lambda: error("APIError", status=399), "again", True),
        (lambda: error("InternalServerError"), "again", False),
        (lambda: error("ServiceUnavailableError"), "again", False),
        # perhaps after the answer was made
        (lambda: error("APIConnectionError", "the connection broke"), "again", True),
        (lambda: error("APIConnectionError", "Connection refused"), "again", False),
        (lambda: ValueError("an answer in another format"), "again", True),
    ],
)  # fmt: skip
def test_an_error_means_one_of_five_things_and_is_billed_or_not(raised, kind, billed):
    failure = failure_of(raised(), ASK)
    assert (failure.kind, failure.billed) == (kind, billed)


@pytest.mark.parametrize("raised_by", ["litellm", "openai"])
@pytest.mark.parametrize(
    ("code", "words", "kind", "billed"),
    [
        *((code, "no", "closed", False) for code in (401, 402, 404)),
        *((code, "no", "never", False) for code in (400, 403, 409, 499)),
        *((code, "no", "again", True) for code in (399, 408, 500, 503)),
        (429, "no", "throttled", False),
        (429, "insufficient_quota", "closed", False),
        (400, "content_filter", "refused", False),
        (None, "You exceeded your current quota", "closed", False),
        (None, "Rate limit reached", "throttled", False),
        (None, "this option is unsupported", "never", False),
        (None, "overloaded", "again", True),
    ],
)
def test_an_error_inside_an_answer_means_what_its_code_or_else_its_words_say(
    code, words, kind, billed, raised_by
):
    """It came with status 200: litellm raises it bare (422 if it has no code), openai with the
    error as its body."""
    raised = Exception(words) if raised_by == "litellm" else ValueError(words)
    if raised_by == "litellm":
        raised.status_code = code or 422
    else:
        raised.body = {"code": code}
    outer = error("APIConnectionError", words)
    outer.__cause__ = raised
    for found in (failure_of(raised, ASK), failure_of(outer, ASK)):
        assert (found.kind, found.billed) == (kind, billed)


def test_a_failures_words_are_short_and_name_what_happened_without_a_key(monkeypatch):
    assert failure_of(TimeoutError(), ASK) == Failure("again", "no answer within 5 s", None, True)
    long = failure_of(error("BadRequestError", "x" * 5000), ASK).words
    assert len(long) == 400
    assert long.startswith("BadRequestError: ")
    assert failure_of(ValueError(), ASK).words == "ValueError: ValueError"
    monkeypatch.setenv("MY_API_KEY", "an unusual secret")
    denied = failure_of(error("AuthenticationError", "bad key: an unusual secret"), ASK)
    assert denied.words.endswith("bad key: [key]")


def test_a_connection_that_cannot_be_made_names_the_address_however_deep_its_cause():
    own = Request(Model("m", "openai/own", api_base="http://127.0.0.1:9/v1"), ASK.messages)
    for link in ("__cause__", "__context__"):
        outer, middle = error("InternalServerError", "Connection error."), ValueError("in between")
        setattr(outer, link, middle)
        setattr(middle, link, httpx.ConnectError("all attempts failed"))
        failure = failure_of(outer, own)
        assert failure.words.startswith(
            "nobody answers at http://127.0.0.1:9/v1 (InternalServerError: "
        )
        assert (failure.kind, failure.billed) == ("again", False)
    assert failure_of(httpx.ConnectError("no"), ASK).words.startswith(
        "nobody answers at openai/gpt-4o"
    )
    assert len(failure_of(error("APIConnectionError", "refused " + "x" * 900), own).words) == 400


def limited(headers, where="response"):
    raised = error("RateLimitError")
    if where == "response":
        raised.response = httpx.Response(
            429, headers=headers, request=httpx.Request("POST", "http://x")
        )
    else:
        raised.response, raised.litellm_response_headers = None, headers
    return failure_of(raised, ASK).after_s


@pytest.mark.parametrize("where", ["response", "litellm"])
@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0.7"}, 0.7),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after-ms": "1500"}, 1.5),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after-ms": "soon", "retry-after": "9"}, 9.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "nan"}, None),
        *(
            # as seconds since 1970, or parts of them
            ({"retry-after": said, "date": "Wed, 25 Nov 2026 08:27:14 GMT"}, 30.0)
            for said in (
                "1795595264",
                "1795595264.0",
                "1795595264000",
                "1795595264000000",
                "1795595264000000000",
            )
        ),
        ({"retry-after-ms": "1795595264000", "date": "Wed, 25 Nov 2026 08:27:14 GMT"}, 30.0),
        ({"retry-after": "1445412480"}, 0.0),  # it is over
        # By the provider's own clock, whatever this machine's says.
        (
            {
                "retry-after": "Wed, 21 Oct 2015 07:28:00 GMT",
                "date": "Wed, 21 Oct 2015 07:27:55 GMT",
            },
            5.0,
        ),
        (
            {
                "x-ratelimit-remaining-requests": "0",
                "x-ratelimit-reset-requests": "1795595264000",
                "date": "Wed, 25 Nov 2026 08:27:14 GMT",
            },
            30.0,
        ),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),  # it is over
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00"}, 0.0),
        # without a zone it is the same
        (
            {"retry-after": "Wed, 21 Oct 2015 07:28:00", "date": "Wed, 21 Oct 2015 07:26:30 GMT"},
            90.0,
        ),
        ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "7s"}, 7.0),
        ({"x-ratelimit-remaining-requests": "1", "x-ratelimit-reset-requests": "7s"}, None),
        (
            {
                "retry-after": "3",
                "x-ratelimit-remaining-requests": "0",
                "x-ratelimit-reset-requests": "7s",
            },
            3.0,
        ),
        ({}, None),
    ],
)
def test_how_long_to_wait_is_read_as_seconds_or_milliseconds(headers, seconds, where):
    assert limited(headers, where) == (None if seconds is None else pytest.approx(seconds))


# -- keys


@pytest.mark.parametrize(
    ("name", "value", "text", "left"),
    [
        ("MY_API_KEY", "a secret", "it is a secret.", "it is [key]."),
        ("MY_API_KEY", "7 chars", "it is 7 chars.", "it is 7 chars."),  # too short to be one
        ("MY_API_KEY", "a/secret+", "url?key=a%2Fsecret%2B", "url?key=[key]"),
        ("MY_API_KEY", "a secret key\r", "it is a secret key.", "it is [key]."),
        ("NAMED_BY_THE_MODEL", "a secret", "it is a secret.", "it is [key]."),
        ("HF_TOKEN", "0123456789abcdef", "0123456789abcdef", "[key]"),
        ("AWS_SECRET_ACCESS_KEY", "0123456789abcdef/xyz", "<0123456789abcdef/xyz>", "<[key]>"),
        ("HF_TOKEN", "0123456789abcde", "0123456789abcde", "0123456789abcde"),  # 15: perhaps a word
        ("SOMETHING_ELSE", "0123456789abcdef", "0123456789abcdef", "0123456789abcdef"),
        ("X", "", CANARY, "[key]"),
        ("X", "", "AIzaSyA-1234567890abcdefghij", "[key]"),
        ("X", "", "hf_abcdefgh and gsk_12345678 and sk-1234567", "[key] and [key] and sk-1234567"),
        ("X", "", "a task-oriented risk-benefit", "a task-oriented risk-benefit"),
    ],
)
def test_a_key_is_taken_out_of_a_text_and_other_words_are_left(
    monkeypatch, name, value, text, left
):
    monkeypatch.setenv(name, value)
    assert (
        redact(text, secrets_of(Model("m", "openai/m", api_key_env="NAMED_BY_THE_MODEL"))) == left
    )


@pytest.mark.parametrize(
    ("headers", "limits"),
    [
        (
            {"x-ratelimit-remaining-requests": "59", "x-ratelimit-reset-requests": "1s"},
            [("requests", 59, 1)],
        ),
        (
            {"X-RateLimit-Remaining-Tokens": "149984", "X-RateLimit-Reset-Tokens": "6m0.5s"},
            [("tokens", 149984, 360.5)],
        ),
        (
            {
                "llm_provider-x-ratelimit-remaining-requests": "0",
                "x-ratelimit-reset-requests": "20ms",
            },
            [("requests", 0, 0.02)],
        ),
        (
            {"x-ratelimit-remaining-requests": "4", "x-ratelimit-reset-requests": "1d2h3m"},
            [("requests", 4, 93780)],
        ),
        (
            {"x-ratelimit-remaining-requests": "4", "x-ratelimit-reset-requests": "12.5"},
            [("requests", 4, 12.5)],
        ),
        ({"x-ratelimit-remaining-requests": "4", "x-ratelimit-reset-requests": "soon"}, []),
        ({"x-ratelimit-remaining-requests": "4", "x-ratelimit-reset-requests": ""}, []),
        ({"x-ratelimit-remaining-requests": "4", "x-ratelimit-reset-requests": "5 apples"}, []),
        ({"x-ratelimit-remaining-requests": "4"}, []),
        ({"x-ratelimit-limit-requests": "4", "content-type": "text/html"}, []),
        (None, []),
    ],
)
def test_what_is_left_of_a_limit_is_read_from_headers(headers, limits):
    found = read_limits(headers)
    assert [(limit.of, limit.left, limit.reset_s) for limit in found] == [
        pytest.approx(limit) for limit in limits
    ]


def test_anthropics_limits_are_read_and_their_dates_are_seconds_from_now():
    soon = (datetime.now(UTC) + timedelta(seconds=40)).strftime("%Y-%m-%dT%H:%M:%SZ")
    said = {f"llm_provider-anthropic-ratelimit-{of}-{what}": value
            for of, left in (("requests", "49"), ("input-tokens", "8000"))
            for what, value in (("limit", "50"), ("remaining", left), ("reset", soon))}  # fmt: skip
    requests, tokens = read_limits(said)
    assert (requests.of, requests.left, tokens.of, tokens.left) == (
        "requests",
        49,
        "input-tokens",
        8000,
    )
    assert requests.reset_s == pytest.approx(39.5, abs=1.5)
    past = {
        name: "2020-01-01T00:00:00Z" if name.endswith("reset") else value
        for name, value in said.items()
    }
    assert read_limits(past)[0].reset_s == 0


def test_an_error_that_repeats_what_was_asked_is_kept_without_it_and_without_addresses():
    asked = "Seeker: My mother fell ill in spring, and all of it rests on me now."
    request = Request(ASK.model, ({"role": "user", "content": asked},))
    error = load_litellm().exceptions.BadRequestError(
        f"Not taken: {asked} Write to jo@example.org.", "m", "openai"
    )
    words = failure_of(error, request).words
    assert "Not taken: [what was asked]" in words
    assert "[email]" in words
    assert not any(word in words for word in ("mother", "spring", "rests", "jo@"))
    assert (
        without_echo("Rate limit reached: try again in 6 s.", asked)
        == "Rate limit reached: try again in 6 s."
    )
