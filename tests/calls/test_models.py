"""Calls to models: settings, the flow against a provider that fails, and money."""

import dataclasses
import json
import multiprocessing
import os
import queue
import signal
import threading
import time
from collections import Counter

import pytest
import sqlalchemy as sa
import worker
from calls_case import CANARY, another_process
from server import Provider, serving

from heart_collect.calls import database
from heart_collect.calls.commands import export_calls
from heart_collect.calls.engine import ask_all
from heart_collect.calls.flow import make_queues
from heart_collect.calls.ledger import Money, open_ledger
from heart_collect.calls.models import (
    Call,
    Model,
    Request,
    load_litellm,
)
from heart_collect.calls.prices import (
    BudgetError,
    price,
    reserve,
    text_bound,
)


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch):
    monkeypatch.setattr("heart_collect.calls.outcomes._WHOLE", set())
    monkeypatch.setattr("heart_collect.calls.flow._SILENT", {})
    monkeypatch.setattr("heart_collect.calls.flow.FIRST_PAUSE_S", 0.01)


def model(provider, **settings):
    settings = {"price_prompt": 1.0, "price_completion": 2.0, "timeout_s": 60.0, **settings}
    return Model("judge", "openai/test", api_base=provider.address, **settings)


def ask(of, *words, **settings):
    return [Request(of, ({"role": "user", "content": word},), **settings) for word in words]


def answer_all(requests, ledger, **settings):
    return ask_all(requests, ledger=ledger, **{"progress": False, **settings})


# -- answers


def test_answers_come_in_the_order_of_the_requests_and_each_is_asked_once(provider, ledger):
    provider.answer = lambda body: f"You said {body['messages'][0]['content']}."
    words = [*(f"w{i}" for i in range(20)), "w3"]
    requests = ask(model(provider), *words)
    calls = answer_all(requests, ledger)
    assert [call.text for call in calls] == [f"You said {word}." for word in words]
    assert {call.status for call in calls} == {"ok"}
    assert (calls[0].prompt_tokens, calls[0].completion_tokens) == (1, 3)
    assert calls[0].cost_usd == pytest.approx((1 * 1 + 3 * 2) / 1e6)
    assert ledger.money().spent == pytest.approx(20 * 7e-6)
    assert answer_all(requests, ledger, mode="replay") == calls
    assert len(provider.requests) == 20


def test_a_streamed_answer_has_a_time_to_first_text_and_counted_tokens(provider, ledger):
    provider.answer, provider.latency_s, provider.piece_s = "six words in a row here", 0.05, 0.2
    [call] = answer_all(ask(model(provider), "hello", stream=True), ledger)
    assert call.text == "six words in a row here"
    assert 50 < call.ttft_ms < call.total_ms - 300  # five more pieces, a second between them all
    assert (call.prompt_tokens, call.completion_tokens) == (1, 6)


def test_a_call_alone_is_told_from_one_among_many(provider, ledger):
    provider.latency_s = 0.05
    [alone] = answer_all(ask(model(provider), "alone"), ledger)
    many = answer_all(ask(model(provider), *"abcdefgh"), ledger)
    in_turn = answer_all(ask(model(provider), *"ijk"), ledger, max_concurrency=1)
    assert [call.in_flight for call in (alone, *in_turn)] == [1, 1, 1, 1]
    assert max(call.in_flight for call in many) > 1


def test_log_probabilities_are_kept_and_a_single_token_is_not_truncated(provider, ledger):
    [call] = answer_all(
        ask(
            model(provider),
            "A or B?",
            options={"logprobs": True, "top_logprobs": 2, "max_tokens": 1},
        ),
        ledger,
    )
    assert call.status == "ok"
    assert call.logprobs == (("A", -0.2), ("B", -1.8))


@pytest.mark.parametrize(
    ("n_words", "status", "n_kept", "rooms"),
    [(15, "ok", 15, [5, 10, 20]), (100, "truncated", 20, [5, 10, 20])],
)
def test_a_truncated_answer_is_asked_again_with_more_room(
    provider, ledger, n_words, status, n_kept, rooms
):
    provider.answer = " ".join(["word"] * n_words)
    [call] = answer_all(ask(model(provider), "long", options={"max_tokens": 5}), ledger)
    assert [body["max_tokens"] for body in provider.requests] == rooms
    assert (call.status, len(call.text.split()), call.attempts) == (status, n_kept, 3)
    # all three were paid for
    assert call.cost_usd == pytest.approx((3 * 1 + (5 + 10 + n_kept) * 2) / 1e6)


# -- failures


@pytest.mark.parametrize(
    ("script", "stream", "finish"),
    [
        *(([fault, fault], False, "stop") for fault in ("429", "500", "drop", "text", "empty")),
        *(([fault], False, "stop") for fault in ("malformed", "broken", "blank")),
        *(([fault], True, "stop") for fault in ("half", "broken", "blank")),
        (["unsaid"], True, "unsaid"),  # it ends as it should, and does not say why: it is whole
    ],
)
def test_what_fails_or_is_not_whole_is_asked_again(provider, ledger, script, stream, finish):
    provider.script, provider.answer = [*script], "I see. What would help you most tonight?"
    n_asked = len(script) + (finish == "stop")
    [call] = answer_all(ask(model(provider), "hello", stream=stream), ledger)
    assert (call.status, call.text, call.attempts) == ("ok", provider.answer, n_asked)
    assert call.finish_reason == finish


@pytest.mark.parametrize(
    ("fault", "stream", "words"),
    [
        ("silent", True, "the answer was empty, 4 times"),
        ("tool", True, "the answer was empty and ended with tool_calls, 4 times"),
        ("tool", False, "the answer was empty and ended with tool_calls, 4 times"),
    ],
)
def test_who_says_nothing_is_asked_four_times(provider, ledger, fault, stream, words):
    provider.faults = {fault: 1.0}
    [call] = answer_all(ask(model(provider), "hello", stream=stream), ledger)
    assert (call.status, call.text, call.error) == ("error", "", words)


@pytest.mark.parametrize("denial", ["401", "403", "404"])
def test_a_denial_now_and_then_is_asked_again(provider, ledger, denial):
    provider.script = [*[None] * 5, denial, *[None] * 5, denial, denial]
    calls = answer_all(
        ask(model(provider, max_concurrency=1), *(f"w{i}" for i in range(15))), ledger
    )
    assert {call.status for call in calls} == {"ok"}
    assert len(provider.requests) == 18


@pytest.mark.parametrize("denial", ["401", "404"])
def test_a_key_that_is_no_longer_accepted_stops_the_queue_after_three_denials(
    provider, ledger, denial
):
    provider.script = [*[None] * 5, *[denial] * 50]
    with pytest.warns(UserWarning, match="its queue was stopped"):
        calls = answer_all(
            ask(model(provider, max_concurrency=1), *(f"w{i}" for i in range(15))), ledger
        )
    assert [call.status for call in calls] == ["ok"] * 5 + ["error"] * 10
    assert len(provider.requests) == 8


def test_an_answer_that_comes_after_the_time_out_is_counted_as_perhaps_billed(provider, ledger):
    answer_all(ask(model(provider), "what litellm loads in its first call is loaded"), ledger)
    before = ledger.money().spent
    provider.script, provider.hang_s = ["hang"], 3.0
    [call] = answer_all(
        ask(model(provider, timeout_s=1.5, options={"max_tokens": 10}), "hello"), ledger
    )
    assert (call.status, call.attempts) == ("ok", 2)
    while sum(provider.answered.values()) < 3:  # the hung one comes now, and nobody listens
        time.sleep(0.05)
    assert len(provider.unheard) == 1
    money = ledger.money()
    assert money.spent - before == pytest.approx(call.cost_usd)
    assert money.unsettled >= call.cost_usd > 0


def test_a_wait_that_is_longer_than_our_patience_ends_a_queue_and_is_said(provider, ledger):
    provider.script, provider.retry_after = ["429"], "3600"
    with pytest.warns(UserWarning, match=r"its queue was stopped\. .*\(it asks to wait 3600 s\)"):
        [call] = answer_all(ask(model(provider), "hello"), ledger)
    assert call.status == "error"
    assert provider.script == []


def test_retry_after_is_honoured(provider, ledger):
    provider.script, provider.retry_after = ["429"], "0.7"
    answer_all(ask(model(provider), "hello"), ledger)
    assert provider.times[1] - provider.times[0] >= 0.7


@pytest.mark.parametrize("stream", [False, True])
def test_what_headers_leave_sets_the_pace_of_all_processes_together(provider, ledger, stream):
    """Room for 20 that is full again in a second: 20 a second.

    Two processes of eight in flight would be turned away.
    """
    answer_all(
        ask(model(provider), "what litellm loads in its first call is loaded", stream=stream),
        ledger,
    )
    provider.bucket, provider.latency_s = (20, 1.0), 0.02
    others, calls = another_process(ledger), []
    words = [f"w{i}" for i in range(30)]
    other = threading.Thread(
        target=lambda: calls.extend(
            answer_all(ask(model(provider), *(f"v{w}" for w in words), stream=stream), others)
        )
    )
    started = time.monotonic()
    other.start()
    calls += answer_all(ask(model(provider), *words, stream=stream), ledger)
    other.join()
    took = time.monotonic() - started
    assert [call.status for call in calls] == ["ok"] * 60
    assert took < 40  # not slower by far than it may be, also on a busy machine
    assert provider.outcomes["429"] <= 6


def test_a_wait_that_a_provider_asks_for_is_kept_by_all_processes(provider, ledger):
    answer_all(ask(model(provider), "what litellm loads in its first call is loaded"), ledger)
    judge, others = (
        model(provider, max_concurrency=1),
        another_process(ledger),
    )
    provider.script, provider.retry_after = ["429"], "3"
    other = threading.Thread(target=answer_all, args=(ask(judge, "v"), others))
    other.start()
    while not ledger.held([make_queues(ask(judge, "v"), None)[0].hold_name]):
        time.sleep(0.01)
    answer_all(ask(judge, *(f"w{i}" for i in range(8))), ledger)
    other.join()
    _, turned_away, *later = provider.times
    # what went out before the first look at the ledger
    assert sum(at < turned_away + 2.5 for at in later) <= 1


def test_litellm_records_and_prices_a_call_only_for_a_callback_that_somebody_set(
    provider, ledger, monkeypatch
):
    litellm, records, prices, heard = load_litellm(), [], [], queue.Queue()
    from litellm.integrations.custom_logger import CustomLogger
    from litellm.litellm_core_utils import litellm_logging

    class Listener(CustomLogger):
        async def async_log_success_event(self, response_obj, **_):
            heard.put(response_obj.choices[0].message.content)

    name = "get_standard_logging_object_payload"
    write = getattr(litellm_logging, name)
    monkeypatch.setattr(
        litellm_logging, name, lambda *given, **more: records.append(1) or write(*given, **more)
    )
    look_up = litellm.response_cost_calculator
    monkeypatch.setattr(
        litellm,
        "response_cost_calculator",
        lambda **given: prices.append(1) or look_up(**given),
    )
    answer_all(ask(model(provider), "a"), ledger)
    assert not records
    assert not prices
    for of in (
        "callbacks",
        "success_callback",
        "failure_callback",
        "_async_success_callback",
        "_async_failure_callback",
    ):
        monkeypatch.setattr(litellm, of, [])
    litellm.callbacks = [Listener()]
    [call] = answer_all(ask(model(provider), "b"), ledger)
    assert heard.get(timeout=60) == call.text
    assert len(records) == 1
    assert prices


def test_what_neighbours_share_is_marked_for_claude_and_changes_neither_words_nor_keys(
    ledger, monkeypatch
):
    litellm, given = load_litellm(), []

    async def answer(**asked):
        given.append(asked["messages"][0]["content"])
        message = {"role": "assistant", "content": "I hear you."}
        return litellm.ModelResponse(choices=[{"message": message, "finish_reason": "stop"}])

    monkeypatch.setattr(litellm, "acompletion", answer)
    claude = Model("c", "anthropic/claude-sonnet-4-20250514", max_concurrency=1)
    starts = ["x" * 5000 + "a" * 100, "x" * 5000 + "a" * 200, "x" * 5000 + "b" * 100]
    requests = ask(claude, *(f"{start}?" for start in starts), "y" * 5000)
    keys = [request.key for request in requests]
    assert [call.call_id for call in answer_all(requests, ledger)] == keys
    assert [request.key for request in requests] == keys
    assert [[len(block["text"]) for block in cut] for cut in given[:3]] == [
        [5100, 1],
        [5000, 100, 101],
        [5000, 101],
    ]
    assert ["".join(block["text"] for block in cut) for cut in given[:3]] == [
        f"{start}?" for start in starts
    ]
    assert given[3] == "y" * 5000


def test_each_call_that_ends_has_a_line_in_the_log_without_words_or_keys(
    provider, ledger, tmp_path, monkeypatch
):
    monkeypatch.setenv("CANARY_API_KEY", CANARY)
    ledger.log = tmp_path / "calls.jsonl"
    provider.script, provider.answer = ["400", "429", None, "filter"], "some private words"
    requests = ask(
        model(provider, api_key_env="CANARY_API_KEY", max_concurrency=1), "first", "second", "third"
    )
    calls = answer_all(requests, ledger)
    text = ledger.log.read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    ended = [line for line in lines if "call" in line]
    assert [line["call"] for line in ended] == [call.call_id for call in calls]
    assert [line["state"] for line in ended] == ["error", "ok", "refused"]
    assert [line["attempts"] for line in ended] == [1, 2, 1]
    assert [line["reason"] for line in ended] == ["BadRequestError", None, None]
    assert (ended[1]["model"], ended[1]["prompt_tokens"], ended[1]["completion_tokens"]) == (
        "judge",
        1,
        3,
    )
    assert ended[1]["cost_usd"] == pytest.approx(7e-6)
    assert ended[1]["seconds"] == pytest.approx(calls[1].total_ms / 1000, abs=1e-3)
    assert not any(word in text for word in (CANARY, "private", "bad request", "first"))


def test_how_it_stands_is_logged_now_and_then(provider, ledger, tmp_path, monkeypatch):
    monkeypatch.setattr("heart_collect.calls.flow.TELL_S", 0.02)
    monkeypatch.setattr("heart_collect.calls.flow.LOG_BEATS", 10)
    ledger.log = tmp_path / "calls.jsonl"
    provider.script, provider.retry_after, provider.latency_s = [None, "429"], "1.5", 0.05
    others = open_ledger(str(ledger.engine.url))
    provider.answer = lambda body: (
        others.record([Call(body["messages"][0]["content"], "ok", cost_usd=5.0)]) or "I hear you."
    )
    answer_all(ask(model(provider, max_concurrency=1), "first", "second"), ledger)
    beats = [
        line for line in map(json.loads, ledger.log.read_text().splitlines()) if "standing" in line
    ]
    held = [beat for beat in beats if "judge held for" in beat["standing"]]
    assert {beat["done"] for beat in held} == {1}
    # in all but the moment in which the ledger is told
    assert 1 in {beat["throttled"] for beat in held}
    assert {beat["of"] for beat in beats} == {2}
    assert len(beats) < 20  # every tenth of some eighty
    # of others on the same ledger, and of one short answer
    assert held[-1]["spent_usd"] == pytest.approx(5.0, abs=1e-4)


def test_a_failure_is_recorded_and_asked_again_by_the_next_run_only(provider, ledger):
    provider.script = ["400"]
    requests = ask(model(provider), "hello")
    [failed] = answer_all(requests, ledger)
    assert (failed.status, failed.attempts) == ("error", 1)
    assert ledger.money() == Money(0.0, 0.0, 0.0, 0.0)
    assert answer_all(requests, ledger, mode="replay") == [failed]
    assert answer_all(requests, ledger)[0].status == "ok"
    assert len(provider.requests) == 2


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("maker", ["openai", "hosted_vllm"])
@pytest.mark.parametrize("fault", ["filter", "filter400", "refusal"])
def test_a_refusal_is_asked_once_and_never_again_whoever_refuses_and_however(
    provider, ledger, fault, maker, stream
):
    provider.script = [fault]
    judge = dataclasses.replace(model(provider), model=f"{maker}/test")
    requests = ask(judge, "hello", stream=stream)
    [call] = answer_all(requests, ledger)
    assert (call.status, call.attempts) == ("refused", 1)
    assert call.text == (
        "I cannot judge this." if fault == "refusal" else "I hear you." if fault == "filter" else ""
    )
    assert answer_all(requests, ledger) == [call]
    assert len(provider.requests) == 1


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("maker", ["openai", "hosted_vllm"])
@pytest.mark.parametrize(
    ("error", "status", "n_asked"),
    [
        ({"message": "upstream failed", "type": "server_error"}, "ok", 2),
        ({"message": "slow", "code": "rate_limit_exceeded"}, "ok", 2),
        ({"message": "no such field", "code": 400}, "error", 1),
        ({"message": "The prompt was stopped.", "code": "content_filter"}, "refused", 1),
    ],
)
def test_an_error_that_comes_with_status_200_is_taken_for_what_it_says(
    provider, ledger, error, status, n_asked, maker, stream
):
    if stream and maker == "hosted_vllm" and status == "refused":
        pytest.skip("litellm drops the code there")
    provider.script, provider.error = ["error"], error
    judge = dataclasses.replace(model(provider), model=f"{maker}/test")
    [call] = answer_all(ask(judge, "hello", stream=stream), ledger)
    assert (call.status, len(provider.requests)) == (status, n_asked)
    assert status == "ok" or error["message"] in call.error


def test_a_queue_whose_first_calls_are_all_refused_stops_and_one_that_was_heard_goes_on(
    provider, ledger
):
    provider.faults = {"403": 1.0}
    with pytest.warns(UserWarning, match="first 5 calls .*APIError.*not for you"):
        calls = answer_all(
            ask(model(provider, max_concurrency=1), *(f"w{i}" for i in range(30))), ledger
        )
    assert {call.status for call in calls} == {"error"}
    assert len(provider.requests) == 5
    provider.faults, provider.script = {}, [None, *["413"] * 9]
    calls = answer_all(
        ask(model(provider, max_concurrency=1), *(f"v{i}" for i in range(12))), ledger
    )
    assert [call.status for call in calls] == ["ok", *["error"] * 9, "ok", "ok"]
    provider.script = ["413"] * 9  # of a later run, which asks these first
    calls = answer_all(
        ask(model(provider, max_concurrency=1), *(f"v{i}" for i in range(14))), ledger
    )
    assert [call.status for call in calls] == ["ok", *["error"] * 9, *["ok"] * 4]


@pytest.mark.parametrize("maker", ["openai", "hosted_vllm"])
def test_a_server_that_does_not_stream_is_asked_for_whole_answers(provider, ledger, maker):
    provider.faults = {"whole": 1.0}
    still = dataclasses.replace(model(provider, max_concurrency=1), model=f"{maker}/test")
    calls = answer_all(ask(still, "a", "b", stream=True), ledger)
    assert [(call.status, call.text, call.ttft_ms) for call in calls] == [
        ("ok", "I hear you.", None)
    ] * 2
    assert [bool(body.get("stream")) for body in provider.requests] == [True, False, False]


def test_an_answer_longer_than_its_room_by_far_is_cut_and_not_asked_again(provider, ledger):
    provider.answer, provider.piece_s = "x" * 300_000, 0.0
    for stream in (False, True):
        request = ask(model(provider), "hello", options={"max_tokens": 50}, stream=stream)[0]
        [call] = answer_all([dataclasses.replace(request, repeat=int(stream))], ledger)
        assert (call.status, call.finish_reason, call.attempts) == ("truncated", "cut", 1)
        # 200, and 8 for each of four times 50 tokens
        assert call.text == "x" * text_bound(request) == "x" * 1800


@pytest.mark.parametrize("fault", ["nousage", "zero"])
@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_whose_tokens_nobody_counted_is_priced_by_estimate_and_marked(
    provider, ledger, stream, fault
):
    provider.script, provider.answer = [fault], "word " * 40
    calls = answer_all(
        ask(model(provider, max_concurrency=1), "hello" * 20, "other", stream=stream), ledger
    )
    assert [call.estimated for call in calls] == [True, None]
    # 100 characters and 16; 200 characters and one more
    assert calls[0].cost_usd == pytest.approx((41 * 1 + 51 * 2) / 1e6)
    assert ledger.money().spent == pytest.approx(sum(call.cost_usd for call in calls))


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("maker", ["openai", "hosted_vllm"])
def test_the_model_that_answered_is_kept_with_the_call(provider, ledger, maker, stream):
    provider.served, provider.fingerprint = "test-2026-01-09", "fp_1"
    [call] = answer_all(
        ask(dataclasses.replace(model(provider), model=f"{maker}/test"), "hello", stream=stream),
        ledger,
    )
    # litellm drops it there before anybody can hear it
    passed_on = None if stream and maker == "hosted_vllm" else "fp_1"
    assert (call.served_model, call.fingerprint) == ("test-2026-01-09", passed_on)


@pytest.mark.parametrize(
    ("fault", "name", "words"),
    [
        ("401", "openai/test", "Incorrect API key"),
        ("404", "openai/test", "no such model"),
        (None, "nobody-has-this", "LLM Provider NOT provided"),
    ],
)
def test_a_model_that_is_not_accepted_stops_its_own_queue_and_no_other(
    provider, ledger, fault, name, words, monkeypatch
):
    monkeypatch.setenv("HEART_ALLOW_HOST", "127.0.0.1 nobody-has-this")
    with serving(Provider(faults={fault: 1.0} if fault else {})) as broken:
        bad = dataclasses.replace(model(broken, max_concurrency=2), name="broken", model=name)
        requests = [
            *ask(bad, *(f"w{i}" for i in range(20))),
            *ask(model(provider), *(f"w{i}" for i in range(20))),
        ]
        with pytest.warns(UserWarning, match="broken: its queue was stopped"):
            calls = answer_all(requests, ledger)
        assert len(broken.requests) <= 4
    assert {call.status for call in calls[:20]} == {"error"}
    assert words in calls[0].error
    assert {call.status for call in calls[20:]} == {"ok"}
    assert ledger.counts() == {"ok": 20}  # so that the mended key finds them still to be asked


def test_a_server_that_is_not_there_stops_the_queue_when_patience_ends(ledger, monkeypatch):
    monkeypatch.setattr("heart_collect.calls.flow.MIN_PROBE_S", 0.05)
    gone = Model(
        "gone", "openai/test", api_base="http://127.0.0.1:9/v1", max_concurrency=2, patience_s=0.5
    )
    with pytest.warns(UserWarning, match="gone: its queue was stopped. .* nothing was answered"):
        calls = answer_all(ask(gone, *(f"w{i}" for i in range(20))), ledger)
    assert {call.status for call in calls} == {"error"}
    assert ledger.counts() == {}
    assert ledger.money().unsettled == 0
    assert "nobody answers at http://127.0.0.1:9/v1" in calls[0].error


def test_a_server_that_only_ever_failed_is_given_up_soon_and_one_that_answered_is_waited_for(
    provider, ledger, monkeypatch
):
    monkeypatch.setattr("heart_collect.calls.flow.MIN_PROBE_S", 0.05)
    monkeypatch.setattr("heart_collect.calls.flow.NEVER_ANSWERED_S", 0.5)
    judge, provider.faults = model(provider, max_concurrency=2), {"500": 1.0}
    with pytest.warns(
        UserWarning,
        match="judge: .*stopped.*internal.* nothing was answered, nor ever before",
    ):
        answer_all(ask(judge, *(f"w{i}" for i in range(20))), ledger)
    asked = len(provider.requests)
    with pytest.warns(UserWarning, match="judge: its queue was stopped. .*internal"):
        answer_all(ask(judge, *(f"v{i}" for i in range(20))), ledger)
    assert len(provider.requests) <= asked + 2  # the next step of a run does not wait once more
    provider.faults = {}
    answer_all(ask(judge, "first"), ledger)
    provider.faults = {"500": 1.0}
    back = threading.Timer(2.0, provider.faults.clear)
    back.start()
    calls = answer_all(ask(judge, *(f"w{i}" for i in range(20))), ledger)
    back.join()
    assert {call.status for call in calls} == {"ok"}


@pytest.mark.parametrize("fault", ["500", "drop"])
def test_an_outage_is_waited_for_by_one_call_at_a_time_and_said(
    provider, ledger, monkeypatch, capsys, fault
):
    monkeypatch.setattr("heart_collect.calls.flow.MIN_PROBE_S", 0.1)
    monkeypatch.setattr("heart_collect.calls.flow.TELL_S", 0.1)
    answer_all(ask(model(provider), "what litellm loads in its first call is loaded"), ledger)
    provider.faults, provider.latency_s = {fault: 1.0}, 0.01
    back = threading.Timer(2.0, provider.faults.clear)
    back.start()
    judge = model(provider, max_concurrency=16)
    calls = answer_all(ask(judge, *(f"w{i}" for i in range(40))), ledger, progress=True)
    back.join()
    assert {call.status for call in calls} == {"ok"}
    # 16 in flight when it began, and some looks; ten attempts each would be 400
    assert provider.outcomes[fault] < 40
    assert "waiting for judge, silent for" in capsys.readouterr().err


def test_failures_of_another_kind_do_not_count_as_empty_answers(provider, ledger, monkeypatch):
    monkeypatch.setattr("heart_collect.calls.flow.FIRST_PAUSE_S", 0.05)
    provider.latency_s, said = 0.02, [None, None, "", None, "", "I hear you."]

    def answer(body):
        text = said.pop(0) if body["messages"][0]["content"] == "bad" else "I hear you."
        if text is None:
            raise RuntimeError("which the server makes a status of 500")
        return text

    provider.answer = answer
    bad, *_ = answer_all(
        ask(model(provider, max_concurrency=2), "bad", *(f"w{i}" for i in range(60))), ledger
    )
    assert (bad.status, bad.attempts) == ("ok", 6)
    assert said == []


def test_two_collectors_keep_to_one_limit_together(provider, ledger):
    answer_all(ask(model(provider), "what litellm loads in its first call is loaded"), ledger)
    judge, other = (
        model(provider, requests_per_minute=600),
        another_process(ledger),
    )
    started = time.monotonic()
    threads = [
        threading.Thread(
            target=answer_all, args=(ask(judge, *(f"{name}{i}" for i in range(10))), its)
        )
        for name, its in (("a", ledger), ("b", other))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(provider.requests) == 21
    assert provider.times[-1] - started >= 1.85  # 19 pauses of a tenth of a second


def test_a_damaged_answer_is_asked_again(provider, ledger):
    requests = ask(model(provider), "w0", "w1")
    answer_all(requests, ledger)
    with ledger.writing() as connection:
        first = database.calls.c.key == requests[0].key
        connection.execute(database.calls.update().where(first).values(answer=b"(\xb5/\xfd rotten"))
    with pytest.warns(UserWarning, match=r"1 answers .* by judge\. .*asked again") as warned:
        calls = answer_all(requests, ledger)
    # it points at who asked; another test's loop may be cleared away meanwhile, and Python says so
    own = [warning for warning in warned if warning.category is UserWarning]
    assert {warning.filename for warning in own} == {__file__}
    assert [call.text for call in calls] == ["I hear you."] * 2
    assert len(provider.requests) == 3
    assert answer_all(requests, ledger, mode="replay") == calls


def test_what_another_program_deletes_while_it_is_asked_is_asked_again(
    provider, ledger, monkeypatch
):
    from heart_collect.calls import engine

    run, deleted = engine.run, []

    def run_and_delete(requests, **how):
        lost = run(requests, **how)
        if not deleted:
            deleted.append(requests[0].key)
            with ledger.writing() as connection:
                connection.execute(
                    database.calls.delete().where(database.calls.c.key == deleted[0])
                )
        return lost

    monkeypatch.setattr(engine, "run", run_and_delete)
    calls = answer_all(ask(model(provider), "w0", "w1"), ledger)
    assert [call.text for call in calls] == ["I hear you."] * 2
    assert len(provider.requests) == 3


# -- limits


@pytest.mark.parametrize(("own", "all_together", "most"), [(20, 3, 3), (5, None, 5)])
def test_no_more_calls_are_in_flight_than_allowed(provider, ledger, own, all_together, most):
    provider.gather = most
    judge = model(provider, max_concurrency=own)
    answer_all(ask(judge, *(f"w{i}" for i in range(15))), ledger, max_concurrency=all_together)
    assert provider.most_in_flight == most


# -- money


def test_a_budget_stops_before_it_is_passed(provider, ledger):
    provider.answer = " ".join(["word"] * 50)
    judge = model(provider, max_concurrency=8)
    requests = ask(judge, *(f"w{i}" for i in range(60)), options={"max_tokens": 50})
    each = reserve(requests[0])
    with pytest.raises(BudgetError, match="does not reach for another call"):
        answer_all(requests, ledger, budget_usd=20 * each)
    money = ledger.money()
    assert 10 * each < money.spent <= 20 * each
    assert money.reserved == 0
    before = len(provider.requests)
    with pytest.raises(BudgetError):
        # a new run does not get the money again
        answer_all(requests, ledger, budget_usd=money.spent)
    assert len(provider.requests) == before


@pytest.mark.parametrize(
    ("answer", "status", "error"),
    [
        ("word " * 1000, "truncated", None),
        ("", "error", "the answer was empty, 1 times; the budget has no second attempt"),
    ],
)
def test_what_is_cut_or_empty_is_not_asked_again_past_the_budget(
    provider, ledger, answer, status, error
):
    provider.answer = answer
    requests = ask(model(provider), "long", options={"max_tokens": 100})
    [call] = answer_all(requests, ledger, budget_usd=1.5 * reserve(requests[0]))
    assert (call.status, call.attempts, call.error) == (status, 1, error)


def test_an_answer_that_was_paid_for_counts_although_its_call_is_given_up(provider, ledger):
    provider.script = ["empty", "401"]
    with pytest.warns(UserWarning, match="its queue was stopped"):
        answer_all(ask(model(provider, price_prompt=1e6), "two words"), ledger)
    money = ledger.money()
    assert (money.spent, money.reserved) == (0.0, 0.0)
    assert money.unsettled == pytest.approx(2.0, abs=1e-4)  # two tokens asked


def test_a_price_of_zero_that_the_settings_say_is_a_price(provider, ledger):
    free = model(provider, price_prompt=0, price_completion=0)
    assert price(free) == (0.0, 0.0)
    [call] = answer_all(ask(free, "hello"), ledger, budget_usd=0.0, max_paid_calls=0)
    assert (call.status, call.cost_usd) == ("ok", 0.0)


def test_a_models_own_budget_ends_it_and_says_whose_it_was(provider, ledger):
    provider.answer = "word " * 50
    requests = ask(model(provider), *(f"w{i}" for i in range(9)), options={"max_tokens": 50})
    thrifty = model(provider, max_concurrency=1, budget_usd=4 * reserve(requests[0]))
    requests = [dataclasses.replace(request, model=thrifty) for request in requests]
    with pytest.raises(BudgetError, match="The budget of judge's own 0.00.* USD does not reach"):
        answer_all(requests, ledger)
    assert 0 < ledger.money().spent <= thrifty.budget_usd


def test_a_notebook_may_not_make_more_paid_calls_than_its_limit(provider, ledger):
    requests = ask(model(provider), *(f"w{i}" for i in range(11)))
    with pytest.raises(
        BudgetError, match="11 paid calls are not recorded yet, and no more than 10"
    ):
        answer_all(requests, ledger, max_paid_calls=10)
    assert provider.requests == []
    answer_all(requests[:10], ledger, max_paid_calls=10)
    assert len(answer_all(requests, ledger, max_paid_calls=1)) == 11  # only one is not recorded


def test_a_dry_run_asks_nothing_and_estimates(provider, ledger):
    done = ask(model(provider), "known")
    answer_all(done, ledger)
    calls = answer_all(
        [*done, *ask(model(provider), "word " * 80, options={"max_tokens": 100})],
        ledger,
        mode="dry",
    )
    assert [call.status for call in calls] == ["ok", "planned"]
    assert (calls[1].prompt_tokens, calls[1].completion_tokens) == (116, 100)
    assert calls[1].cost_usd == pytest.approx(316e-6)
    assert len(provider.requests) == 1


# -- replay


# -- stopping


def begin(provider, ledger):
    """Let another process ask for 100 answers, and wait until some of them are recorded."""
    process = multiprocessing.get_context("fork").Process(
        target=worker.ask_many, args=(provider.address, str(ledger.engine.url))
    )
    process.start()
    given_up = time.monotonic() + 120
    while ledger.counts().get("ok", 0) < 8:
        assert process.is_alive(), "it ended before it was stopped"
        assert time.monotonic() < given_up, "it does not come to its first answers"
        time.sleep(0.01)
    return process


def test_ctrl_c_records_what_is_in_flight_and_gives_the_rest_back(provider, ledger):
    provider.latency_s = 0.1
    process = begin(provider, ledger)
    os.kill(process.pid, signal.SIGINT)
    process.join(60)
    assert process.exitcode == worker.INTERRUPTED
    assert ledger.counts() == {"ok": len(provider.requests)}
    assert ledger.money().reserved == 0


def test_after_kill_9_nothing_recorded_is_asked_again(provider, ledger):
    provider.latency_s = 0.05
    process = begin(provider, ledger)
    process.kill()
    process.join()
    requests = worker.requests_for(provider.address, max_concurrency=16)
    recorded = ledger.find([request.key for request in requests])
    calls = answer_all(requests, ledger)
    assert {call.status for call in calls} == {"ok"}
    asked = Counter(body["messages"][0]["content"] for body in provider.requests)
    assert all(
        asked[f"w{place}"] == 1 for place, request in enumerate(requests) if request.key in recorded
    )
    # Four were in flight, and 0.1 s of answers uncommitted, 4 a round of 0.05 s: 12, and some room
    # for a busy machine.
    assert asked.total() - len(requests) <= 40


def test_two_processes_on_one_ledger_share_the_work_and_ask_nothing_twice(provider, ledger):
    provider.latency_s = 0.02
    process = begin(provider, ledger)
    requests = worker.requests_for(provider.address, max_concurrency=4)
    calls = answer_all(requests, ledger)
    process.join(60)
    assert process.exitcode == 0
    assert {call.status for call in calls} == {"ok"}
    assert len(provider.requests) == len(requests)


def test_a_failure_of_another_process_is_waited_for_and_not_asked_at_once_again(provider, ledger):
    [request] = ask(model(provider), "hello")
    other = another_process(ledger)
    other.claim([request], [0.0], since=other.clock())
    failed = threading.Timer(1.0, other.record, [[Call(request.key, "error", error="no answer")]])
    failed.start()
    [call] = answer_all([request], ledger)
    failed.join()
    assert (call.status, call.error) == ("error", "no answer")
    assert provider.requests == []


def test_a_process_that_waits_for_an_answer_is_heard_of_meanwhile(provider, ledger, monkeypatch):
    monkeypatch.setattr("heart_collect.calls.flow.HEARTBEAT_S", 0.05)

    def seen_at():
        with ledger.reading() as connection:
            return connection.scalar(sa.select(database.owners.c.seen_at))

    def answer(body):
        first, given_up = seen_at(), time.monotonic() + 20
        while seen_at() == first and time.monotonic() < given_up:
            time.sleep(0.01)
        return "heard of" if seen_at() > first else "silent"

    provider.answer = answer
    [call] = answer_all(ask(model(provider), "hello"), ledger)
    assert call.text == "heard of"


def test_two_threads_may_ask_at_once(provider, ledger):
    judge = model(provider)
    results = {}

    def work(name):
        results[name] = answer_all(ask(judge, *(f"w{i}" for i in range(30))), ledger)

    threads = [threading.Thread(target=work, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert results["a"] == results["b"]
    assert len(provider.requests) == 30


# -- keys


def test_a_canary_key_is_in_no_file_of_a_run(provider, tmp_path, monkeypatch):
    monkeypatch.setenv("CANARY_API_KEY", CANARY)
    provider.keys = (CANARY,)
    provider.answer = lambda body: (
        f"Your key is {CANARY}." if body["messages"][0]["content"] == "w1" else "I hear you."
    )
    provider.script = ["500", "401"]
    ledger = open_ledger(f"sqlite:///{tmp_path}/ledger.sqlite")
    judge = model(provider, api_key_env="CANARY_API_KEY", max_concurrency=1)
    with pytest.warns(UserWarning, match="queue was stopped") as warned:
        answer_all(ask(judge, "w0"), ledger)
    calls = answer_all(ask(judge, "w0", "w1", "w2"), ledger)
    assert [call.text for call in calls] == ["I hear you.", "Your key is [key].", "I hear you."]
    export_calls(ledger, tmp_path / "calls.jsonl")
    ledger.close()
    assert CANARY not in "".join(str(warning.message) for warning in warned)
    # it points at who asked; another test's loop may be cleared away meanwhile, and Python says so
    own = [warning for warning in warned if warning.category is UserWarning]
    assert {warning.filename for warning in own} == {__file__}
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert len(files) >= 2
    assert not [file for file in files if CANARY.encode() in file.read_bytes()]


# -- settings
