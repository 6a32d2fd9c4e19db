"""The batch interface, against a server that speaks files and batches."""

import asyncio
import json

import pytest
import sqlalchemy as sa
from calls_case import CANARY, another_process
from server import Provider, finish_batch, serving

from heart_collect.calls import database
from heart_collect.calls.batch import (
    PROVIDERS,
    BatchError,
    ask_in_batches,
    can_batch,
    collect_batches,
    submit_batches,
)
from heart_collect.calls.database import LedgerError
from heart_collect.calls.engine import ask_all
from heart_collect.calls.models import Model, Request, load_litellm, local_model
from heart_collect.calls.prices import BudgetError, reserve


@pytest.fixture
def provider():
    with serving(
        Provider(answer=lambda body: f"You said {body['messages'][0]['content']}.")
    ) as running:
        yield running


def requests_for(provider, n=5, **settings):
    prices = {"price_prompt": 1.0, "price_completion": 2.0, **settings}
    judge = Model("judge", "openai/test", api_base=provider.address, **prices)
    return [
        Request(judge, ({"role": "user", "content": f"w{i}"},), {"max_tokens": 20})
        for i in range(n)
    ]


def test_a_batch_is_submitted_waited_for_and_collected_by_another_process(
    provider, ledger, tmp_path, monkeypatch
):
    monkeypatch.setenv("CANARY_API_KEY", CANARY)
    create, told = load_litellm().acreate_batch, []

    async def told_how(**how):
        told.append(how["max_retries"])
        return await create(**how)

    monkeypatch.setattr(load_litellm(), "acreate_batch", told_how)
    requests = requests_for(provider, api_key_env="CANARY_API_KEY")
    calls = ask_in_batches(requests, ledger=ledger)
    assert {call.status for call in calls} == {"planned"}
    # the client would try again by itself where an answer is lost, and make a second one
    assert told == [0]
    lines = [json.loads(line) for line in provider.files["file-1"].splitlines()]
    assert [line["body"]["messages"][0]["content"] for line in lines] == [f"w{i}" for i in range(5)]
    assert lines[0]["body"] | {"messages": None} == {
        "model": "test",
        "messages": None,
        "max_tokens": 20,
    }
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert any(b"CANARY_API_KEY" in file.read_bytes() for file in files)  # its name alone
    assert not [file for file in files if CANARY.encode() in file.read_bytes()]
    with ledger.writing() as connection:  # its claims outlive who submitted it
        connection.execute(database.owners.update().values(seen_at=0.0))
    later = another_process(ledger)
    assert {call.status for call in ask_in_batches(requests, ledger=later)} == {"planned"}
    assert len(provider.batches) == 1  # not submitted twice
    finish_batch(provider, "batch-1")
    calls = ask_in_batches(requests, ledger=later)
    assert [(call.status, call.text) for call in calls] == [
        ("ok", f"You said w{i}.") for i in range(5)
    ]
    assert ask_all(requests, ledger=later, mode="replay") == calls
    assert provider.requests == []  # nothing was asked one by one


def test_what_a_server_of_ones_own_takes_besides_stands_in_the_body_itself(provider, ledger):
    requests = requests_for(provider, 1, options={"temperature": 0.5, "extra_body": {"min_p": 0.1}})
    submit_batches(requests, ledger=ledger)
    body = json.loads(provider.files["file-1"])["body"]
    assert {name: body[name] for name in body if name not in ("model", "messages")} == {
        "temperature": 0.5, "max_tokens": 20, "min_p": 0.1}  # fmt: skip


def test_a_truncated_answer_is_left_to_a_plain_run_that_gives_more_room(provider, ledger):
    provider.answer = " ".join(["word"] * 30)
    requests = requests_for(provider, 1)
    submit_batches(requests, ledger=ledger)
    finish_batch(provider, "batch-1")
    collect_batches(ledger)
    assert ledger.counts() == {"error": 1}
    assert ask_in_batches(requests, ledger=ledger)[0].error.startswith("truncated in a batch")
    assert len(provider.batches) == 1  # the same room would not help
    [call] = ask_all(requests, ledger=ledger, progress=False)
    assert (call.status, len(call.text.split())) == ("ok", 30)


def test_a_plain_run_does_not_pay_for_what_is_in_a_batch(provider, ledger):
    requests = requests_for(provider)
    submit_batches(requests[:2], ledger=ledger)
    with pytest.raises(LedgerError, match="2 of the requests are in a provider's batch"):
        ask_all(requests, ledger=ledger, progress=False)
    assert len(provider.requests) == 3


def test_a_plain_run_does_not_wait_for_money_that_a_batch_holds(provider, ledger):
    first, second = requests_for(provider, 2)
    submit_batches([first], ledger=ledger)
    with pytest.raises(BudgetError, match="held for requests in batches. 1 calls were not made"):
        ask_all([second], ledger=ledger, budget_usd=reserve(first), progress=False)
    assert provider.requests == []


def test_a_batchs_answer_may_hold_another_line_break(provider, ledger):
    provider.answer = "I hear you.\u2028Go on."
    requests = requests_for(provider, 1)
    submit_batches(requests, ledger=ledger)
    finish_batch(provider, "batch-1")
    provider.files["batch-1-output"] = (
        json.dumps(json.loads(provider.files["batch-1-output"]), ensure_ascii=False) + "\n"
    )
    collect_batches(ledger)
    assert ledger.counts() == {"ok": 1}
    assert ledger.find([requests[0].key])[requests[0].key].text == "I hear you.\u2028Go on."


@pytest.mark.parametrize(
    ("step", "status", "perhaps"),
    [
        ("acreate_batch", None, True),
        ("acreate_batch", 399, True),
        ("acreate_batch", 400, False),
        ("acreate_batch", 499, False),
        ("acreate_batch", 500, True),
        ("acreate_file", 500, False),
    ],
)
def test_a_batch_was_perhaps_taken_unless_its_provider_said_no(
    provider, ledger, monkeypatch, step, status, perhaps
):
    async def fail(**how):
        error = ValueError("no")
        error.status_code = status
        raise error

    monkeypatch.setattr(load_litellm(), step, fail)
    with pytest.raises(BatchError) as said:
        submit_batches(requests_for(provider), ledger=ledger)
    assert said.value.perhaps_taken == perhaps
    assert ledger.counts() == ({"claimed": 5} if perhaps else {})


class Killed(BaseException):
    """As a kill would: nothing after it runs."""


def kill_at(monkeypatch, step):
    def die(*_, **__):
        raise Killed

    monkeypatch.setattr(f"heart_collect.calls.batch.{step}", die)


@pytest.mark.parametrize("n_other", [0, 3])
def test_a_batch_whose_creator_was_killed_before_it_was_accepted_is_freed_in_the_end(
    provider, ledger, monkeypatch, n_other
):
    for i in range(n_other):
        submit_batches(requests_for(provider, served_id=f"other {i}"), ledger=ledger)
    others = {"claimed": 5 * n_other} if n_other else {}
    with monkeypatch.context() as patched:
        kill_at(patched, "_call")
        with pytest.raises(Killed):
            submit_batches(requests_for(provider), ledger=another_process(ledger))
    collect_batches(ledger)
    assert ledger.counts() == {"claimed": 5 * n_other + 5}  # it may be on its way
    with ledger.writing() as connection:
        connection.execute(database.batches.update().values(submitted_at=ledger.clock() - 601))
    collect_batches(ledger)
    assert ledger.counts() == others
    assert submit_batches(requests_for(provider), ledger=ledger) == 5


@pytest.mark.parametrize(
    ("n_later", "ending"), [(0, TimeoutError("the line went dead")), (3, Killed())]
)
def test_a_batch_that_was_accepted_and_nobody_heard_so_is_found_at_the_provider(
    provider, ledger, monkeypatch, n_later, ending
):
    requests, create = requests_for(provider), load_litellm().acreate_batch

    async def taken_but_not_heard(**how):
        await create(**how)
        raise ending

    with monkeypatch.context() as patched:
        patched.setattr(load_litellm(), "acreate_batch", taken_but_not_heard)
        with pytest.raises((Killed, BatchError)) as said:
            submit_batches(requests, ledger=another_process(ledger))
    unheard = isinstance(said.value, BatchError)
    assert not unheard or "nobody knows whether its provider took a batch" in str(said.value)
    for i in range(n_later):
        submit_batches(requests_for(provider, served_id=f"later {i}"), ledger=ledger)
    assert ask_in_batches(requests, ledger=ledger)[0].status == "planned"
    assert len(provider.batches) == 1 + n_later  # it was paid for once
    finish_batch(provider, "batch-1")
    assert [call.text for call in ask_in_batches(requests, ledger=ledger)] == [
        f"You said w{i}." for i in range(5)
    ]
    status = sa.select(database.batches.c.status).where(database.batches.c.batch == "batch-1")
    assert ledger.rows(status) == [("completed",)]


def test_a_batch_collected_by_a_process_that_was_killed_is_neither_lost_nor_paid_for_twice(
    provider, ledger, monkeypatch
):
    requests = requests_for(provider)
    submit_batches(requests, ledger=ledger)
    finish_batch(provider, "batch-1")
    with monkeypatch.context() as patched:
        record = ledger.record

        def record_and_die(*answers, **how):
            record(*answers, **how)
            raise Killed

        patched.setattr(ledger, "record", record_and_die)
        with pytest.raises(Killed):
            collect_batches(ledger)
    collect_batches(ledger)
    assert ledger.money().spent == pytest.approx(5 * (1 * 1 + 3 * 2) / 1e6 / 2)


def test_a_budget_keeps_requests_out_of_a_batch(provider, ledger):
    requests = requests_for(provider)
    assert submit_batches(requests, ledger=ledger, budget_usd=3.2 * reserve(requests[0]) / 2) == 3


@pytest.mark.parametrize(
    ("model", "able"),
    [
        (Model("m", "openai/test"), True),
        (Model("m", "hosted_vllm/mine", api_base="http://127.0.0.1:1/v1"), True),
        (Model("m", "anthropic/claude-x"), False),
        (local_model(), False),
    ],
)
def test_models_without_batches_are_known_and_refused(model, able, ledger):
    assert can_batch(model) == able
    if not able:
        with pytest.raises(BatchError, match="cannot be asked in batches"):
            submit_batches([Request(model, ({"role": "user", "content": "w"},))], ledger=ledger)


@pytest.mark.parametrize("value", [None, "", " sk-abc"])
def test_a_key_that_is_missing_or_no_key_is_said_before_anything_is_sent(
    provider, ledger, monkeypatch, value
):
    monkeypatch.delenv("MY_API_KEY", raising=False)
    if value is not None:
        monkeypatch.setenv("MY_API_KEY", value)
    with pytest.raises(
        BatchError, match="judge: the environment variable MY_API_KEY (is not set|holds a blank)"
    ):
        submit_batches(requests_for(provider, api_key_env="MY_API_KEY"), ledger=ledger)
    assert provider.files == {}
    assert ledger.counts() == {}


def test_a_batch_costs_half_and_what_it_comes_back_without_is_asked_again(provider, ledger):
    requests = requests_for(provider)
    ask_in_batches(requests, ledger=ledger)
    assert ledger.money().reserved == pytest.approx(sum(map(reserve, requests)) / 2)
    finish_batch(provider, "batch-1", refuse=[0], fail=[1], stop=[2], expire=[3])
    calls = ask_in_batches(requests, ledger=ledger)
    assert [call.status for call in calls] == ["refused", "planned", "refused", "planned", "ok"]
    assert {call.attempts for call in calls if call.status != "planned"} == {1}
    assert calls[0].text == "I cannot judge this."
    # of the refusal and of the answer: one token asked, and three answered
    assert ledger.money().spent == pytest.approx(2 * (1 * 1 + 3 * 2) / 1e6 / 2)
    finish_batch(provider, "batch-2", fail=[0, 1])
    collect_batches(ledger)
    assert ledger.money().reserved == 0
    again = ask_all(requests, ledger=ledger, progress=False)
    assert again[::2] == calls[::2]  # a refusal is one like any other
    assert [call.text for call in again[1::2]] == ["You said w1.", "You said w3."]
    assert sorted(body["messages"][0]["content"] for body in provider.requests) == ["w1", "w3"]


@pytest.mark.parametrize("provider", ["anthropic", "gemini", "mistral"])
def test_litellm_makes_no_batches_where_this_project_says_so(provider):
    """Once this fails, `PROVIDERS` can grow."""
    litellm = load_litellm()
    asked = {
        "completion_window": "24h",
        "endpoint": "/v1/chat/completions",
        "input_file_id": "f",
        "api_key": "none",
    }
    with pytest.raises(litellm.BadRequestError, match="doesn't support"):
        asyncio.run(litellm.acreate_batch(custom_llm_provider=provider, **asked))
    assert provider not in PROVIDERS
