"""One model's queue, step by step with a clock of the test's own: no server, no ledger, no
waiting."""

import asyncio
import dataclasses
from types import SimpleNamespace

import pytest

from heart_collect.calls import flow as queues
from heart_collect.calls import outcomes
from heart_collect.calls.flow import backoff, make_queues
from heart_collect.calls.models import Model, Request
from heart_collect.calls.outcomes import Failure, Limit, with_breakpoints

JUDGE = Model(
    "judge", "openai/test", api_base="http://127.0.0.1:9/v1", price_prompt=1.0, price_completion=2.0
)


def ask(words, of=JUDGE, **settings):
    return Request(of, ({"role": "user", "content": words},), **settings)


def queue(**settings):
    return make_queues([ask("hello", dataclasses.replace(JUDGE, **settings))], None)[0]


def fail(one, clock=100.0, words="no", kind="again"):
    one.failed(Failure(kind, words), clock)


def spacing(one, request):
    """What the queues are given for a request, by what is limited."""
    [task] = make_queues([request], None)[0].tasks
    return {
        name.removeprefix(f"{JUDGE.identity_digest} "): seconds
        for name, seconds in one.spacing(task.tokens).items()
    }


@pytest.fixture(autouse=True)
def _nobody_silent(monkeypatch):
    monkeypatch.setattr(queues, "_SILENT", {})


# -- queues


def test_each_model_has_a_queue_in_the_order_of_its_requests():
    other = dataclasses.replace(JUDGE, name="other", model="openai/other")
    requests = [ask("a"), ask("b", other), ask("c"), ask("d", other)]
    by_model = make_queues(requests, None)
    assert [one.model.name for one in by_model] == ["judge", "other"]
    assert [[task.request.messages[0]["content"] for task in one.waiting] for one in by_model] == [
        ["a", "c"],
        ["b", "d"],
    ]
    assert [[task.request for task in one.tasks] for one in by_model] == [
        requests[::2],
        requests[1::2],
    ]
    [shut] = make_queues([ask("a", dataclasses.replace(JUDGE, api_key_env="NO_SUCH_KEY"))], None)
    assert (by_model[0].closed, shut.closed) == (
        None,
        "the environment variable NO_SUCH_KEY is not set",
    )


@pytest.mark.parametrize(
    ("own", "all_together", "batch"),
    [(8, None, 8), (8, 3, 3), (300, None, 256), (300, 400, 256), (2, 9, 2)],
)
def test_no_more_is_claimed_at_once_than_is_asked_at_once(own, all_together, batch):
    [one] = make_queues([ask("a", dataclasses.replace(JUDGE, max_concurrency=own))], all_together)
    assert one.batch == batch


# -- silence


def test_a_model_is_out_after_five_attempts_without_an_answer_and_back_with_the_first():
    one = queue()
    for n in range(1, 6):
        assert not one.out
        fail(one, 100.0 + n, f"no {n}")
    assert one.out
    assert (one.failures, one.last_error, one.silent_since) == (5, "no 5", 101.0)
    assert one.silence(111.0) == 10.0
    one.answered()
    assert (one.out, one.failures, one.silent_since, one.silence(120.0), one.answers) == (
        False,
        0,
        None,
        0.0,
        1,
    )


def test_who_was_given_up_as_silent_is_silent_in_the_next_step_until_it_answers():
    queues._SILENT[JUDGE.identity, JUDGE.api_base] = 50.0
    one = queue()
    assert one.silence(80.0) == 30.0
    one.answered()
    assert queues._SILENT == {}
    assert queue().silent_since is None


def test_one_call_at_a_time_looks_whether_a_model_is_back_and_the_pauses_grow():
    one = queue()
    for _ in range(5):
        fail(one)
    assert one.wait(100.2) == pytest.approx(0.3)  # half a second after the last failure
    assert one.wait(100.5) == 0.0  # this one looks
    assert 0.4 <= one.wait(100.5) <= 0.6  # the others wait
    assert one.wait(108.0) == 0.0
    assert 0.8 * 2 <= one.wait(108.0) <= 1.2 * 2  # a quarter of eight seconds
    assert one.wait(1000.0) == 0.0
    assert 0.8 * 30 <= one.wait(1000.0) <= 1.2 * 30


def test_an_answer_during_an_outage_ends_no_wait_that_the_provider_asked_for():
    one = queue()
    for _ in range(5):
        fail(one)
    one.held_until = 160.0
    one.answered()
    assert one.wait(130.0) == 30.0


def test_the_longest_pause_between_looks_is_half_a_minute_and_no_later_failure_puts_a_look_off(
    monkeypatch,
):
    monkeypatch.setattr(queues.random, "uniform", lambda *_: 1.0)
    one = queue()
    for clock in (100.0, 101.0, 102.0, 103.0, 104.0, 104.4):
        fail(one, clock)
    assert one.wait(104.5) == 0.0  # half a second after the fifth
    assert one.wait(104.5) == pytest.approx(4.5 / 4)
    assert one.wait(1000.0) == 0.0
    assert one.wait(1000.0) == 30.0


def test_who_is_asked_for_whole_answers_is_asked_for_a_stream_again_where_that_fails(monkeypatch):
    asked = []

    async def break_off(request, growth, address, streams, marks):
        asked.append(streams)
        raise ValueError("it broke off")

    monkeypatch.setattr(outcomes, "_WHOLE", {JUDGE.identity})
    monkeypatch.setattr(outcomes, "_send", break_off)
    for stream in (False, True, True):
        asyncio.run(outcomes.attempt(ask("hello", stream=stream), 1, None))
    assert asked == [False, False, True]


# -- pace


@pytest.mark.parametrize(
    ("events", "gap"),
    [
        ("", None),
        ("t", 0.005 * 1.1),
        ("tt", 0.005 * 1.1**2),
        ("tta", 0.005 * 1.1**2 * 0.98),
        ("tt" + 10 * "a", None),
        ("tt" + 10 * "a" + "f", None),
        (400 * "t-", 10.0),
        (9 * "t", 0.005 * 1.1**5),  # once it is out, its pace is not the matter
    ],
)
def test_a_model_that_turns_calls_away_is_asked_slower_and_then_faster_again(events, gap):
    one = queue()
    for event in events:
        if event == "a":
            one.answered()
        elif event == "-":
            one.failures = 0
        else:
            fail(one, kind={"t": "throttled", "f": "again"}[event])
    assert spacing(one, ask("hello")) == ({} if gap is None else {"pace": pytest.approx(gap)})


def test_limits_of_the_settings_space_requests_by_number_and_by_tokens():
    # 100 tokens, 16 around them, 84 of the answer
    request = ask("x" * 400, options={"max_tokens": 84})
    both = queue(requests_per_minute=30, tokens_per_minute=6000)
    assert spacing(both, request) == {"requests": 2.0, "tokens": pytest.approx(60 * 200 / 6000)}
    assert spacing(queue(requests_per_minute=30), request) == {"requests": 2.0}
    assert spacing(queue(tokens_per_minute=600), request) == {"tokens": pytest.approx(20.0)}


@pytest.mark.parametrize(
    ("limits", "gap"),
    [
        ([("requests", 20, 10.0)], 0.5),
        # 200 of a thousand tokens that are back in five seconds
        ([("requests", 20, 10.0), ("tokens", 1000, 5.0)], 1.0),
        ([("input-tokens", 1000, 1.0)], 0.2),
        ([("requests", 1, 60.0)], 10.0),
        ([("requests", 0, 60.0)], None),  # that is a wait, and no pace
        ([("requests", 10_000, 1.0)], None),  # there is plenty
        ([("requests", 200, 1.0)], 0.005),
    ],
)
def test_what_headers_leave_is_spread_over_the_time_until_it_is_full(limits, gap):
    one = queue()
    one.limits = tuple(Limit(*limit) for limit in limits)
    found = spacing(one, ask("x" * 400, options={"max_tokens": 84}))
    assert found == ({} if gap is None else {"pace": pytest.approx(gap)})


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
    assert with_breakpoints(messages, []) == list(messages)
    cut = with_breakpoints(messages, [2, 5])
    assert cut[0] == messages[0]
    kept = {"cache_control": {"type": "ephemeral"}}
    texts = [{"type": "text", "text": text} for text in ("ab", "cde", "fgh")]
    assert cut[1]["content"] == [texts[0] | kept, texts[1] | kept, texts[2]]
    assert messages[1]["content"] == "abcdefgh"


RULES, OTHERS = {"role": "system", "content": "rules"}, {"role": "system", "content": "others"}


@pytest.mark.parametrize(
    ("name", "n_shared", "other", "marks"),
    [
        ("anthropic/claude-sonnet-4", 4096, {}, [4096]),
        ("anthropic/claude-sonnet-4", 4095, {}, []),  # too little
        ("anthropic/claude-sonnet-4", 5000, {"options": {"top_k": 1}}, []),
        ("anthropic/claude-sonnet-4", 5000, {"rules": OTHERS}, []),
        ("openai/gpt-4o", 5000, {}, []),  # it keeps what repeats by itself
    ],
)
def test_what_neighbours_share_is_marked_where_all_before_is_the_same(name, n_shared, other, marks):
    model, text = Model("m", name), "z" * n_shared
    both = [
        Request(model, (rules, {"role": "user", "content": f"{text}{end}"}), options)
        for end, rules, options in (
            ("a", RULES, {}),
            ("b", other.get("rules", RULES), other.get("options", {})),
        )
    ]
    assert [task.breakpoints for task in make_queues(both, None)[0].tasks] == [marks, marks]


# -- what is recorded of an answer


def attempted(monkeypatch, request, text="I hear you.", finish="stop", usage=(100, 10), **more):
    """What an attempt makes of what litellm gives back."""
    counted = SimpleNamespace(prompt_tokens=usage[0], completion_tokens=usage[1], **more)
    choice = SimpleNamespace(message=SimpleNamespace(content=text), finish_reason=finish)

    async def send(*_):
        return SimpleNamespace(
            choices=[choice], usage=counted, model="test-1", system_fingerprint="fp"
        )

    monkeypatch.setattr(outcomes, "_send", send)
    return asyncio.run(outcomes.attempt(request, 1, None))


def test_an_answer_is_priced_by_its_tokens_or_by_estimate(monkeypatch):
    request = ask("x" * 400)
    assert attempted(monkeypatch, request).cost_usd == pytest.approx((100 + 2 * 10) / 1e6)
    written = attempted(monkeypatch, request, cache_creation_input_tokens=40)
    assert written.cost_usd == pytest.approx((110 + 2 * 10) / 1e6)
    uncounted = attempted(monkeypatch, request, "y" * 40, usage=(100, None))
    assert (uncounted.cost_usd, uncounted.estimated) == (pytest.approx((116 + 2 * 11) / 1e6), True)
    assert attempted(monkeypatch, request, usage=(None, 10)).estimated is True
    assert (
        attempted(monkeypatch, ask("hello", Model("m", "openai/nobody-lists-this"))).cost_usd
        is None
    )


def test_all_that_is_known_of_an_answer_is_recorded(monkeypatch):
    monkeypatch.setenv("MY_API_KEY", "a-secret-key")
    came = attempted(
        monkeypatch,
        ask("hello"),
        "it is a-secret-key",
        prompt_tokens_details=SimpleNamespace(cached_tokens=64),
    )
    assert came.total_ms >= 0
    assert dataclasses.asdict(came) | {"total_ms": 7.0} == {
        "call_id": ask("hello").key, "status": "ok", "text": "it is [key]", "finish_reason": "stop", "logprobs": None,
        "ttft_ms": None, "total_ms": 7.0, "prompt_tokens": 100, "completion_tokens": 10, "cost_usd": pytest.approx(120e-6),
        "attempts": 0, "in_flight": 1, "error": None, "served_model": "test-1", "fingerprint": "fp", "cached_tokens": 64,
        "estimated": None, "written_tokens": None, "limits": (),
    }  # fmt: skip


def test_a_letter_fills_its_room_and_an_empty_answer_is_a_failure_that_was_paid(monkeypatch):
    letter = ask("A or B?", options={"logprobs": True, "max_tokens": 1})
    assert attempted(monkeypatch, letter, "A", "length").status == "ok"
    assert (
        attempted(monkeypatch, ask("hello", options={"max_tokens": 1}), "A", "length").status
        == "truncated"
    )
    for request, finish in ((letter, "length"), (ask("hello"), "stop")):
        empty = attempted(monkeypatch, request, "", finish)
        assert (empty.kind, empty.words, empty.billed) == ("empty", "the answer was empty", False)
        assert empty.cost_usd == pytest.approx(120e-6)
