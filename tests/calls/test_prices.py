"""Money by hand: what a price is, what a call costs, what it may cost at the most, and what is
refused before the first."""

import math
import re
import subprocess
import sys
from dataclasses import replace

import pytest

from heart_collect.calls.models import Model, Request, load_litellm
from heart_collect.calls.prices import (
    BudgetError,
    _listed,
    _price_list,
    bound,
    check_money,
    check_prices,
    cost,
    estimate,
    is_paid,
    plan_call,
    price,
    price_fault,
    reserve,
    text_bound,
)

CHEAP = Model("cheap", "openai/own", price_prompt=1, price_completion=2)
UNKNOWN = Model("own", "openai/own")
FREE = Model("free", "openai/own", price_prompt=0, price_completion=0)
WEIGHTS = Model("small", "openai/own", checksum="ff")


def ask(model=CHEAP, text="word" * 100, *, stream=False, **options):
    return Request(model, ({"role": "user", "content": text},), options, stream=stream)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            {"price_prompt": 0, "price_completion": 0},
            "price_prompt is 0 and price_completion is 0, but openai/gpt-4o is listed at 2.5",
        ),
        ({"price_prompt": 0, "price_completion": 10}, "price_prompt is 0"),
        ({"price_prompt": 2.5, "price_completion": 0}, "price_completion is 0"),
        (
            {"price_prompt": 0, "price_completion": 0, "api_base": "https://api.openai.com/v1/"},
            "is listed at",
        ),
        (
            {"price_prompt": 0, "price_completion": 0, "api_base": "https://my.openai.azure.com"},
            "is listed at",
        ),
        # one's own
        ({"price_prompt": 0, "price_completion": 0, "api_base": "http://127.0.0.1:8000/v1"}, None),
        # nobody lists it
        ({"price_prompt": 0, "price_completion": 0, "model": "openai/own"}, None),
        ({"price_prompt": 0, "price_completion": 0, "checksum": "ff"}, None),
        ({"price_prompt": 1, "price_completion": 1}, None),
        ({}, None),
    ],
)
def test_a_price_of_zero_for_what_is_listed_as_paid_is_refused(settings, said):
    model = Model(**{"name": "judge", "model": "openai/gpt-4o", **settings})
    assert (price_fault(model) is None) == (said is None)
    for budget_usd in (None, 5.0):
        if said is None:
            check_prices([model], budget_usd)
        else:
            with pytest.raises(BudgetError, match=said):
                check_prices([model], budget_usd)


@pytest.mark.parametrize(
    ("model", "rates"),
    [
        (CHEAP, (1e-6, 2e-6)),
        (FREE, (0.0, 0.0)),
        (WEIGHTS, (0.0, 0.0)),
        # weights of one's own cost nothing
        (replace(WEIGHTS, price_prompt=9, price_completion=9), (0.0, 0.0)),
        (UNKNOWN, None),
        (replace(UNKNOWN, price_prompt=1), None),  # half a price is none
        (replace(UNKNOWN, price_completion=1), None),
        (Model("gpt", "openai/gpt-4o"), (2.5e-6, 10e-6)),
        (Model("gpt", "openai/gpt-4o", price_prompt=1), (2.5e-6, 10e-6)),
        (Model("gpt", "openai/gpt-4o", price_prompt=0, price_completion=0), (0.0, 0.0)),
        (Model("claude", "anthropic/claude-sonnet-4-0"), None),  # listed at 0
        (Model("half", "openai/half-listed"), None),
        (Model("other half", "openai/other-half"), None),
    ],
)
def test_a_price_is_what_the_settings_say_or_the_list_says_above_zero(model, rates, monkeypatch):
    from heart_collect.calls import prices

    halves = {
        "openai/half-listed": {"input_cost_per_token": 0.0, "output_cost_per_token": 2e-6},
        "openai/other-half": {"input_cost_per_token": 2e-6, "output_cost_per_token": None},
    }
    listed = _price_list() | halves
    monkeypatch.setattr(prices, "_price_list", lambda: listed)
    prices._entry.cache_clear()
    assert price(model) == (None if rates is None else pytest.approx(rates, rel=1e-12))
    assert is_paid(model) == (rates != (0.0, 0.0))
    prices._entry.cache_clear()


@pytest.mark.parametrize(
    ("model", "asked", "answered", "usd"),
    [
        (CHEAP, 1000, 500, 0.002),  # 1000 at 1, 500 at 2 of a million
        (CHEAP, 0, 0, 0.0),
        (CHEAP, None, 500, None),
        (CHEAP, 1000, None, None),
        (UNKNOWN, 1000, 500, None),  # not known is not free
        (FREE, None, None, 0.0),
        (WEIGHTS, 10, None, 0.0),
    ],
)
def test_an_answer_costs_its_tokens_and_nothing_is_made_up(model, asked, answered, usd):
    assert cost(model, asked, answered) == (None if usd is None else pytest.approx(usd, rel=1e-12))


def test_what_a_provider_writes_to_its_cache_costs_a_quarter_more():
    # 400 / 4 tokens more, at 1 of a million
    assert cost(CHEAP, 1000, 500, 400) == pytest.approx(0.0021, rel=1e-12)


def test_an_answer_nobody_counted_is_taken_at_four_characters_a_token():
    # 43 // 4 + 1
    assert estimate(ask(), "x" * 43) == pytest.approx((116 * 1 + 11 * 2) / 1e6, rel=1e-12)
    assert estimate(ask(UNKNOWN), "x") is None


@pytest.mark.parametrize(
    ("options", "room"),
    [
        ({}, 300),
        ({"max_tokens": 7}, 7),
        ({"max_completion_tokens": 8}, 8),
        ({"max_tokens": None, "max_completion_tokens": 9}, 9),
    ],
)
def test_a_plan_takes_four_characters_a_token_and_an_answer_that_fills_its_room(options, room):
    two = Request(
        CHEAP,
        ({"role": "system", "content": "x" * 401}, {"role": "user", "content": "y" * 2}),
        options,
    )
    plan = plan_call(two)
    assert (plan.status, plan.call_id) == ("planned", two.key)
    # 8 for each message, and 8
    assert (plan.prompt_tokens, plan.completion_tokens) == (403 // 4 + 24, room)
    assert plan.cost_usd == pytest.approx((124 * 1 + room * 2) / 1e6, rel=1e-12)


def test_an_attempt_reserves_two_bytes_a_token_and_all_its_room():
    # 400 // 2 + 64
    assert reserve(ask(max_tokens=100)) == pytest.approx((264 * 1 + 100 * 2) / 1e6, rel=1e-12)
    # two bytes each
    assert reserve(ask(text="é" * 100)) == pytest.approx((164 * 1 + 4096 * 2) / 1e6, rel=1e-12)
    assert reserve(ask(UNKNOWN)) == 0.0


@pytest.mark.parametrize(
    ("request_", "usd"),
    [
        # A reply: asked with 100, 200 and 400 tokens of room, each with a prompt of 264.
        (ask(stream=True, max_tokens=100), 3 * 264 + 2 * 700),
        # Nothing limits it: once, with 4,096.
        (ask(stream=True), 264 + 2 * 4096),
        # A letter: once, and nothing to repair.
        (ask(max_tokens=1, logprobs=True), 264 + 2 * 1),
        # JSON: the same as a reply, then as often with the first answer (200 + 8 * 400 characters)
        # and 256 more.
        (ask(max_tokens=100), 3 * 264 + 3 * (264 + 3400 // 2 + 256) + 2 * 2 * 700),
    ],
)
def test_the_most_a_request_costs_is_every_attempt_that_may_be_answered(request_, usd):
    assert bound(request_) == pytest.approx(usd / 1e6, rel=1e-12)
    assert bound(replace(request_, model=UNKNOWN)) is None
    assert bound(replace(request_, model=FREE)) == 0.0


@pytest.mark.parametrize(
    ("options", "characters"), [({"max_tokens": 120}, 4040), ({"max_tokens": 1}, 232), ({}, 32968)]
)
def test_an_answer_is_kept_up_to_eight_characters_for_each_token_it_may_have(options, characters):
    assert text_bound(ask(**options)) == characters


@pytest.mark.parametrize("budget", [-1, -0.001, math.nan])
def test_a_budget_is_a_number_of_usd(budget):
    with pytest.raises(BudgetError, match=f"zero or more; got {re.escape(repr(budget))}"):
        check_prices([CHEAP], budget)


def test_a_budget_needs_a_price_of_every_model_and_names_each_that_has_none():
    check_prices([CHEAP, FREE, WEIGHTS], 0)
    check_prices([UNKNOWN], None)
    with pytest.raises(
        BudgetError, match=r"No price is known of other \(x/y\), own \(openai/own\)\. Give"
    ):
        check_prices([UNKNOWN, CHEAP, Model("other", "x/y")], 1.0)
    # its own budget counts as well
    with pytest.raises(BudgetError, match=r"No price is known of own \(openai/own\)\. Give"):
        check_prices([replace(UNKNOWN, budget_usd=1.0), Model("other", "x/y")], None)


def test_paid_calls_are_counted_against_their_limit_and_free_ones_are_not():
    mine = [ask(), ask(UNKNOWN), ask(FREE), ask(WEIGHTS)]
    check_money(mine, budget_usd=None, max_paid_calls=None)
    check_money(mine, budget_usd=None, max_paid_calls=2)
    with pytest.raises(BudgetError, match="2 paid calls are not recorded yet, and no more than 1"):
        check_money(mine, budget_usd=None, max_paid_calls=1)
    with pytest.raises(BudgetError, match="No price is known of own"):
        check_money(mine, budget_usd=1.0, max_paid_calls=None)


def test_the_price_list_read_from_its_file_says_what_litellm_says():
    """Of one in seven models, by its name and after its provider's; a few odd names are not found."""
    litellm, unlike, lost, n = load_litellm(), [], [], 0
    for name, entry in list(_price_list().items())[::7]:
        for model in (name, f"{entry.get('litellm_provider')}/{name}"):
            try:
                theirs = litellm.get_model_info(model)
            except Exception:  # not on the list, in one of several ways
                continue
            rates = theirs.get("input_cost_per_token"), theirs.get("output_cost_per_token")
            ours = _listed(model)
            if not all(rates):  # it gives 0 for what it does not find
                continue
            n += 1
            if ours is None:
                lost.append(model)
            elif ours != rates:
                unlike.append((model, ours, rates))
    assert unlike == []
    assert n > 500
    assert len(lost) <= 5, lost


def test_a_price_is_looked_up_without_importing_litellm():
    code = (
        "import sys; from heart_collect.calls.models import Model; from heart_collect import price;"
        " print(price(Model('m', 'openai/gpt-4o')), 'litellm' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "(2.5e-06, 1e-05) False\n"
