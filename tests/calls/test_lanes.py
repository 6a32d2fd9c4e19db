"""One model's queue, step by step with a clock of the test's own: no server, no ledger, no waiting."""

import asyncio
import dataclasses

import pytest

from heart_utils.calls import engine
from heart_utils.calls.engine import answered_call, backoff, make_lanes, marked, shared_length, spent
from heart_utils.calls.models import Model, Request
from heart_utils.calls.outcomes import Answer, Limit

JUDGE = Model("judge", "openai/test", api_base="http://127.0.0.1:9/v1", price_prompt=1.0, price_completion=2.0)


def ask(words, of=JUDGE, **settings):
    return Request(of, ({"role": "user", "content": words},), **settings)


def lane(**settings):
    return make_lanes([ask("hello", dataclasses.replace(JUDGE, **settings))], None)[0]


def answer(**cells):
    about = {
        "text": "I hear you.",
        "finish_reason": "stop",
        "refused": False,
        "logprobs": None,
        "ttft_ms": 3.0,
        "total_ms": 7.0,
    }
    return Answer(**{**about, "prompt_tokens": 100, "completion_tokens": 10, **cells})


@pytest.fixture(autouse=True)
def _nobody_silent(monkeypatch):
    monkeypatch.setattr(engine, "_SILENT", {})


# -- queues


def test_each_model_has_a_queue_in_the_order_of_its_requests():
    other = dataclasses.replace(JUDGE, name="other", model="openai/other")
    requests = [ask("a"), ask("b", other), ask("c"), ask("d", other)]
    lanes = make_lanes(requests, None)
    assert [one.model.name for one in lanes] == ["judge", "other"]
    assert [[request.messages[0]["content"] for request in one.waiting] for one in lanes] == [["a", "c"], ["b", "d"]]
    assert [one.requests for one in lanes] == [requests[::2], requests[1::2]]


@pytest.mark.parametrize(
    ("own", "all_together", "batch"), [(8, None, 8), (8, 3, 3), (300, None, 256), (300, 400, 256), (2, 9, 2)]
)
def test_no_more_is_claimed_at_once_than_is_asked_at_once(own, all_together, batch):
    [one] = make_lanes([ask("a", dataclasses.replace(JUDGE, max_concurrency=own))], all_together)
    assert one.batch == batch


# -- silence


def test_a_model_is_out_after_five_attempts_without_an_answer_and_back_with_the_first():
    one = lane()
    for n in range(1, 6):
        assert not one.out
        one.failed(f"no {n}", 100.0 + n, throttled=False)
    assert one.out
    assert (one.failures, one.said, one.silent_since) == (5, "no 5", 101.0)
    assert one.silence(111.0) == 10.0
    one.answered()
    assert (one.out, one.failures, one.silent_since, one.silence(120.0), one.answers) == (False, 0, None, 0.0, 1)


def test_who_was_given_up_as_silent_is_silent_in_the_next_step_until_it_answers():
    engine._SILENT[JUDGE.identity, JUDGE.api_base] = 50.0
    one = lane()
    assert one.silence(80.0) == 30.0
    one.answered()
    assert engine._SILENT == {}
    assert lane().silent_since is None


def test_one_call_at_a_time_looks_whether_a_model_is_back_and_the_pauses_grow():
    one = lane()
    for _ in range(5):
        one.failed("no", 100.0, throttled=False)
    assert one.look(100.2) == pytest.approx(0.3)  # half a second after the last failure
    assert one.look(100.5) == 0.0  # this one looks
    assert 0.4 <= one.look(100.5) <= 0.6  # the others wait
    assert one.look(108.0) == 0.0
    assert 0.8 * 2 <= one.look(108.0) <= 1.2 * 2  # a quarter of eight seconds
    assert one.look(1000.0) == 0.0
    assert 0.8 * 30 <= one.look(1000.0) <= 1.2 * 30


def test_the_longest_pause_between_looks_is_half_a_minute_and_no_later_failure_puts_a_look_off(monkeypatch):
    monkeypatch.setattr(engine.random, "uniform", lambda *_: 1.0)
    one = lane()
    for clock in (100.0, 101.0, 102.0, 103.0, 104.0, 104.4):
        one.failed("no", clock, throttled=False)
    assert one.look(104.5) == 0.0  # half a second after the fifth
    assert one.look(104.5) == pytest.approx(4.5 / 4)
    assert one.look(1000.0) == 0.0
    assert one.look(1000.0) == 30.0


def test_who_is_asked_for_whole_answers_is_asked_for_a_stream_again_where_that_fails(monkeypatch):
    asked = []

    async def break_off(request, room, address, streams, marks):
        asked.append(streams)
        raise ValueError("it broke off")

    monkeypatch.setattr(engine, "_WHOLE", {JUDGE.identity})
    monkeypatch.setattr(engine, "_send", break_off)
    for stream in (False, True, True):
        asyncio.run(engine.attempt(ask("hello", stream=stream), 9, None))
    assert asked == [False, False, True]


# -- pace


def test_a_model_that_turns_calls_away_is_asked_slower_and_then_faster_again():
    one, request = lane(), ask("hello")
    name = f"{JUDGE.identity_digest} pace"
    assert one.places(request) == {}
    one.failed("too fast", 1.0, throttled=True)
    assert one.places(request) == {name: pytest.approx(0.005 * 1.1)}
    one.failed("too fast", 1.0, throttled=True)
    assert one.places(request) == {name: pytest.approx(0.005 * 1.1**2)}
    one.answered()
    assert one.places(request) == {name: pytest.approx(0.005 * 1.1**2 * 0.98)}
    for _ in range(9):
        one.answered()
    assert one.places(request) == {}
    one.failed("broken", 1.0, throttled=False)
    assert one.places(request) == {}
    for _ in range(400):
        one.failures = 0
        one.failed("too fast", 1.0, throttled=True)
    assert one.places(request) == {name: 10.0}
    fresh = lane()
    for _ in range(9):
        fresh.failed("too fast", 1.0, throttled=True)
    assert fresh.places(request) == {name: pytest.approx(0.005 * 1.1**5)}  # once it is out, its pace is not the matter


def test_limits_of_the_settings_space_requests_by_number_and_by_tokens():
    request = ask("x" * 400, options={"max_tokens": 84})  # 100 tokens, 16 around them, 84 of the answer
    both = lane(requests_per_minute=30, tokens_per_minute=6000)
    digest = JUDGE.identity_digest
    assert both.places(request) == {f"{digest} requests": 2.0, f"{digest} tokens": pytest.approx(60 * 200 / 6000)}
    assert lane(requests_per_minute=30).places(request) == {f"{digest} requests": 2.0}
    assert lane(tokens_per_minute=600).places(request) == {f"{digest} tokens": pytest.approx(20.0)}


@pytest.mark.parametrize(
    ("limits", "gap"),
    [
        ([("requests", 20, 10.0)], 0.5),
        ([("requests", 20, 10.0), ("tokens", 1000, 5.0)], 1.0),  # 200 of a thousand tokens that are back in five seconds
        ([("input-tokens", 1000, 1.0)], 0.2),
        ([("requests", 1, 60.0)], 10.0),
        ([("requests", 0, 60.0)], None),  # that is a wait, and no pace
        ([("requests", 10_000, 1.0)], None),  # there is plenty
        ([("requests", 200, 1.0)], 0.005),
    ],
)
def test_what_headers_leave_is_spread_over_the_time_until_it_is_full(limits, gap):
    one = lane()
    one.limits = tuple(Limit(*limit) for limit in limits)
    places = one.places(ask("x" * 400, options={"max_tokens": 84}))
    assert places == ({} if gap is None else {f"{JUDGE.identity_digest} pace": pytest.approx(gap)})


def test_a_pause_doubles_up_to_half_a_minute_and_is_as_long_as_a_provider_says():
    for n, middle in ((1, 0.5), (2, 1.0), (4, 4.0), (7, 30.0), (20, 30.0)):
        drawn = [backoff(n, None) for _ in range(300)]
        assert 0.5 * middle <= min(drawn) < 0.6 * middle
        assert 1.4 * middle < max(drawn) <= 1.5 * middle
    drawn = [backoff(3, 10.0) for _ in range(300)]
    assert 10.0 <= min(drawn) < 10.2
    assert 10.9 < max(drawn) <= 11.1


# -- marks


def test_words_are_cut_at_marks_and_stay_the_same():
    messages = ({"role": "system", "content": "rules"}, {"role": "user", "content": "abcdefgh"})
    assert marked(messages, []) == list(messages)
    cut = marked(messages, [2, 5])
    assert cut[0] == messages[0]
    kept = {"cache_control": {"type": "ephemeral"}}
    texts = [{"type": "text", "text": text} for text in ("ab", "cde", "fgh")]
    assert cut[1]["content"] == [texts[0] | kept, texts[1] | kept, texts[2]]
    assert messages[1]["content"] == "abcdefgh"


def test_requests_share_what_they_begin_with_if_all_before_is_the_same():
    rules, others = {"role": "system", "content": "rules"}, {"role": "system", "content": "others"}
    first, second = {"role": "user", "content": "abcd"}, {"role": "user", "content": "abx"}
    assert shared_length(Request(JUDGE, (rules, first)), Request(JUDGE, (rules, second))) == 2
    assert shared_length(Request(JUDGE, (rules, first)), Request(JUDGE, (others, second))) == 0
    assert shared_length(Request(JUDGE, (rules, first)), Request(JUDGE, (rules, second), {"top_k": 1})) == 0


# -- what is recorded of an answer


def test_an_answer_is_priced_by_its_tokens_or_by_estimate():
    request = ask("x" * 400)
    assert spent(request, answer()) == pytest.approx((100 + 2 * 10) / 1e6)
    assert spent(request, answer(written_tokens=40)) == pytest.approx((110 + 2 * 10) / 1e6)
    assert spent(request, answer(completion_tokens=None, text="y" * 40)) == pytest.approx((116 + 2 * 11) / 1e6)
    assert spent(ask("hello", Model("m", "openai/nobody-lists-this")), answer()) is None


def test_all_that_is_known_of_an_answer_is_recorded(monkeypatch):
    monkeypatch.setenv("MY_API_KEY", "a-secret-key")
    came = answer(text="it is a-secret-key", logprobs=(("A", -0.1),), served_model="test-1", fingerprint="fp", cached_tokens=64)
    call = answered_call(ask("hello"), "ok", came, lane().secrets, attempts=2, in_flight=3, usd=0.5)
    assert dataclasses.asdict(call) | {"call_id": ""} == {
        "call_id": "", "status": "ok", "text": "it is [key]", "finish_reason": "stop", "logprobs": (("A", -0.1),),
        "ttft_ms": 3.0, "total_ms": 7.0, "prompt_tokens": 100, "completion_tokens": 10, "cost_usd": 0.5, "attempts": 2,
        "in_flight": 3, "error": None, "served_model": "test-1", "fingerprint": "fp", "cached_tokens": 64, "estimated": None,
    }  # fmt: skip
    assert call.call_id == ask("hello").key
    for name in ("prompt_tokens", "completion_tokens"):
        uncounted = answer(**{name: None})
        assert answered_call(ask("hello"), "ok", uncounted, (), attempts=1, in_flight=1, usd=0.5).estimated is True
    unpriced = ask("hello", Model("m", "openai/nobody-lists-this"))
    assert answered_call(unpriced, "ok", answer(), (), attempts=1, in_flight=1, usd=0.0).cost_usd is None
