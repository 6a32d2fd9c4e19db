"""Models and requests: what settings are taken, what makes a key, and what a key in a file is told.
No server is asked."""

import contextvars
import dataclasses
import hashlib
import json

import pytest

from heart_collect.calls.models import (
    Model,
    ModelError,
    Request,
    forgo_records,
    key_fault,
    key_for,
    load_litellm,
    read_models,
)
from heart_collect.calls.prices import supports_schema

GPT = Model("gpt", "openai/gpt-4o", options={"temperature": 0.7})
HI = ({"role": "user", "content": "Hi"},)


def settings(**more):
    return {"name": "m", "model": "openai/m", **more}


@pytest.mark.parametrize(
    ("name", "value", "taken"),
    [
        ("requests_per_minute", 1, True), ("requests_per_minute", 0, False), ("requests_per_minute", 60.0, True),
        ("requests_per_minute", 60.5, False), ("requests_per_minute", None, True), ("requests_per_minute", True, False),
        ("tokens_per_minute", 1, True), ("tokens_per_minute", 0, False), ("tokens_per_minute", "1", False),
        ("max_concurrency", 1, True), ("max_concurrency", 0, False), ("max_concurrency", 1.5, False),
        ("price_prompt", 0, True), ("price_prompt", -0.1, False), ("price_prompt", 0.15, True), ("price_prompt", True, False),
        ("price_prompt", float("inf"), False), ("timeout_s", float("inf"), False), ("patience_s", float("nan"), False),
        ("price_completion", 0, True), ("price_completion", -0.1, False), ("price_completion", "1", False),
        ("budget_usd", 0, True), ("budget_usd", 0.5, True), ("budget_usd", -1, False), ("budget_usd", "5", False),
        ("timeout_s", 0.001, True), ("timeout_s", 0.0001, False), ("timeout_s", 0, False), ("timeout_s", 30, True),
        ("options", {"temperature": 0.7, "max_tokens": 5}, True), ("options", {"temp": 1}, False), ("options", 3, False),
        ("options", {"extra_body": {"guided": True}}, True),
        ("json_schema", True, True), ("json_schema", False, True), ("json_schema", None, True), ("json_schema", "yes", False),
        ("json_schema", 1, False),
        ("answer_format", "logprob", True), ("answer_format", "json", True), ("answer_format", "xml", False),
        ("family", "openai", True), ("family", 3, False), ("family", None, True), ("api_base", ["http://x"], False),
        ("api_key_env", "MY_KEY", True), ("api_key_env", "my_key", False), ("api_key_env", "K", False),
        ("api_key_env", None, True), ("api_key_env", 3, False), ("temprature", 1, False),
    ],
)  # fmt: skip
def test_a_setting_is_taken_or_refused_by_name(name, value, taken):
    if taken:
        [model] = read_models([settings(**{name: value})])
        assert getattr(model, name) == value
    else:
        with pytest.raises(
            ModelError, match=f"^m: .*{'temp' if name == 'options' and value != 3 else name}"
        ):
            read_models([settings(**{name: value})])


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"name": "m"}, "Models are a list, each with a name and a model; got dict"),
        ("openai/gpt-4o", "got str"),
        (3, "got int"),
        (["gpt"], "model 0: expected a name, a model and options, got str"),
        ([settings(), 4], "model 1: expected"),
        ([{"model": "x/m"}], "model 0: lacks name"),
        ([{"name": "m"}], "m: lacks model"),
        ([{"name": " ", "model": ""}], "name is ' ', expected text"),
        ([{"name": 3, "model": "x/m"}], "3: name is 3, expected text"),
        ([settings(), settings()], "m appears more than once"),
        ([settings(max_concurrency=0)], "max_concurrency is 0, expected 1 or more"),
        ([settings(timeout_s=0)], "timeout_s is 0, expected 0.001 or more"),
        ([settings(price_prompt=-1)], "price_prompt is -1, expected 0 or more"),
    ],
)
def test_what_is_no_list_of_models_is_said(config, words):
    with pytest.raises(ModelError, match=words):
        read_models(config)


def test_models_come_in_their_order_and_none_is_a_list_as_well():
    assert [model.name for model in read_models({"name": n, "model": "x/m"} for n in "ba")] == [
        "b",
        "a",
    ]
    assert read_models([]) == []


@pytest.mark.parametrize(
    ("entry", "refused"),
    [
        ({"api_key": "x"}, True), ({"options": {"extra_body": {"auth": {"access_token": "x"}}}}, True), ({"secret": "x"}, True),
        ({"password": "x"}, True), ({"apikey": "x"}, True),
        ({"api_base": "https://user:pass@host/v1"}, True), ({"api_base": "https://host/v1"}, False),
        ({"api_base": "https://host/a@b"}, False),
        ({"family": "sk-12345678"}, True), ({"family": "sk-1234567"}, False), ({"family": "Bearer abcdefgh"}, True),
        ({"family": "hf_abcdefgh"}, True), ({"family": "AIzaabcdefgh"}, True),
        ({"family": "0123456789abcdef0123456789abcdef0123"}, True), ({"family": "0123456789abcdef0123456789abcdef012"}, False),
        ({"family": "a-name-of-thirty-six-letters-and-more"}, False),  # no digit
        ({"checksum": "0123456789abcdef0123456789abcdef0123456789"}, False),
        ({"family": "the value"}, True), ({"family": "with the value inside"}, True), ({"family": "a value"}, False),
    ],
)  # fmt: skip
def test_a_key_in_the_settings_is_refused_wherever_it_stands(entry, refused, monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "the value")
    monkeypatch.setenv("SHORT_API_KEY", "a value")  # seven letters: also a word
    monkeypatch.setenv("NO_SUCH", "a family of models")
    if refused:
        with pytest.raises(
            ModelError, match="m: .*a key does not belong in a file.*`api_key_env: OPENAI_API_KEY`"
        ):
            read_models([settings(**entry)])
    else:
        assert len(read_models([settings(**entry)])) == 1


@pytest.mark.parametrize(
    ("model", "variable"),
    [("openai/m", "OPENAI"), ("my-own/m", "MY_OWN"), ("", "PROVIDER"), ("m", "M")],
)
def test_the_usual_variable_of_a_key_is_its_providers(model, variable):
    with pytest.raises(ModelError, match=f"`api_key_env: {variable}_API_KEY`"):
        read_models([{"name": "m", "model": model, "api_key": "x"}])


@pytest.mark.parametrize(
    ("key", "fault"),
    [
        ("sk-abc", None), (None, "is not set"), ("", "is not set"), ("sk-abc\r", "holds"), (" sk-abc", "holds"),
        ("sk-abc\n", "holds"), ("sk\x00abc", "holds"), ("sk-äbc", "holds"),
    ],
)  # fmt: skip
def test_a_key_that_no_header_can_hold_is_found_and_never_shown(key, fault, monkeypatch):
    monkeypatch.setenv("HEART_ALLOW_HOST", "openai 127.0.0.1")
    names = {
        "MY_KEY": Model("m", "openai/m", api_key_env="MY_KEY"),
        "OPENAI_API_KEY": Model("m", "openai/m"),
    }
    for name, model in names.items():
        monkeypatch.delenv(name, raising=False)
        if key is not None and "\x00" not in key:
            monkeypatch.setenv(name, key)
        elif key is not None:
            monkeypatch.setattr("os.environ", {name: key})
        found = key_fault(model)
        # litellm may know another name
        named = fault if model.api_key_env or fault != "is not set" else None
        assert (
            found is None
            if named is None
            else found.startswith(f"the environment variable {name} {named}")
        )
        assert "sk" not in (found or "")
        local = dataclasses.replace(model, api_base="http://127.0.0.1:1/v1")
        # the usual key is not sent there
        assert (key_fault(local) is None) == (named is None or not model.api_key_env)


def digest(text, length=16):
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:length]


def test_a_requests_key_is_made_of_four_parts_and_never_changes():
    ask = Request(GPT, HI, {"max_tokens": 9}, repeat=2)
    parts = [
        digest('{"model":"openai/gpt-4o"}'),
        digest('[{"content":"Hi","role":"user"}]'),
        digest('{"max_tokens":9,"temperature":0.7}'),
    ]
    assert ask.digests == tuple(parts)
    assert ask.key == digest("\n".join([*parts, "2"]), 32)
    assert len(ask.key) == 32


def test_a_request_is_no_stream_is_the_first_and_its_options_go_over_the_models():
    ask = Request(GPT, HI)
    assert (ask.repeat, ask.stream, ask.tag, ask.sampling) == (0, False, "", {"temperature": 0.7})
    assert Request(GPT, HI, {"temperature": 0.1}).sampling == {"temperature": 0.1}


@pytest.mark.parametrize(
    ("model", "identity"),
    [
        (Model("a", "openai/m"), {"model": "openai/m"}),
        (
            Model("a", "openai/m", api_base="http://h/v1", served_id="s"),
            {"model": "openai/m", "api_base": "http://h/v1", "served_id": "s"},
        ),
        (
            Model("a", "openai/m", api_base="http://h/v1", checksum="ff", served_id="s"),
            {"model": "openai/m", "checksum": "ff"},
        ),
    ],
)
def test_a_model_is_its_name_and_weights_or_its_name_and_address(model, identity):
    assert json.loads(model.identity) == identity
    assert model.identity_digest == digest(model.identity)
    moved = {
        "price_prompt": 1.0,
        "budget_usd": 1.0,
        "timeout_s": 1.0,
        "api_key_env": "X_KEY",
        "max_concurrency": 1,
    }
    assert (
        dataclasses.replace(model, name="other", json_schema=True, **moved).identity
        == model.identity
    )


@pytest.mark.parametrize(
    ("changes", "embedded", "limits"),
    [
        ({}, False, False),
        ({"checksum": "ff"}, True, False),
        ({"checksum": "ff", "api_base": "http://h/v1"}, False, False),
        ({"options": {"max_tokens": 5}}, False, True),
        ({"options": {"max_completion_tokens": 5}}, False, True),
        ({"options": {"top_k": 5}}, False, False),
    ],
)
def test_what_a_model_says_of_itself(changes, embedded, limits):
    model = Model("m", "openai/m", **changes)
    assert (model.embedded, model.limits_max_tokens) == (embedded, limits)
    assert (model.max_concurrency, model.timeout_s, model.patience_s, model.answer_format) == (
        8,
        120.0,
        900.0,
        "json",
    )


def test_who_takes_a_schema_is_litellms_word_or_lies_with_the_weights():
    assert supports_schema(GPT)
    assert not supports_schema(Model("own", "hosted_vllm/my-model"))
    assert supports_schema(Model("own", "hosted_vllm/my-model", checksum="ff"))


def test_a_key_goes_only_where_it_is_meant_to(monkeypatch):
    monkeypatch.setenv("MINE_API_KEY", "my own key")
    mine = dataclasses.replace(GPT, api_key_env="MINE_API_KEY")
    assert [key_for(mine, address) for address in (None, "http://127.0.0.1:9/v1")] == [
        "my own key"
    ] * 2
    assert key_for(GPT, "http://127.0.0.1:9/v1") == "none"  # else litellm would send OpenAI's there
    assert key_for(GPT, None) is None  # and here it shall


def test_a_key_of_eight_characters_is_known_wherever_it_stands(monkeypatch):
    monkeypatch.setenv("MINE_API_KEY", "abcd1234")
    with pytest.raises(ModelError) as refused:
        read_models([settings(family="abcd1234")])
    assert "abcd1234" not in str(refused.value)
    assert read_models([settings(family="abcd123")])[0].family == "abcd123"


def test_litellm_is_loaded_once_and_kept_from_talking(monkeypatch):
    litellm = load_litellm()
    assert load_litellm() is litellm
    monkeypatch.setattr(litellm, "suppress_debug_info", False)
    load_litellm.__wrapped__()
    assert litellm.suppress_debug_info is True


@pytest.mark.parametrize("kind", [None, "callbacks", "success_callback", "failure_callback"])
def test_litellm_makes_records_of_calls_only_for_a_callback_that_gets_them(kind, monkeypatch):
    from litellm._internal_context import is_internal_call

    for name in ("callbacks", "success_callback", "failure_callback"):
        monkeypatch.setattr(load_litellm(), name, [print] if name == kind else [])
    context = contextvars.copy_context()
    context.run(forgo_records)
    assert context[is_internal_call] == (kind is None)
