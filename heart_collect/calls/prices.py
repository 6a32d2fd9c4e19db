"""What calls cost: list prices, bounds, and the refusals that save money."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from heart_collect.calls.models import Call, Model, Request, load_litellm, provider_at
from heart_utils.settings import JsonObject, extra

__all__ = ["MAX_GROWTH", "BudgetError", "price"]

DEFAULT_MAX_TOKENS = 4096  #: Tokens an answer may take where nothing limits it.

EXPECTED_ANSWER = 300  #: Tokens an answer is taken to have in a plan where nothing limits it.

#: A truncated answer is asked again with twice the room, up to so many times the first.
MAX_GROWTH = 4

#: More than any answer of some length has on average; what is longer than its room in these is cut.
CHARACTERS_A_TOKEN = 8


class BudgetError(ValueError):
    """Money does not reach, or it cannot be told whether it does."""


@lru_cache(maxsize=1)
def _price_list() -> JsonObject:
    package = importlib.util.find_spec("litellm")
    if package is None or package.origin is None:
        with extra("collect"):
            raise ModuleNotFoundError(name="litellm")
    file = Path(package.origin).with_name("model_prices_and_context_window_backup.json")
    prices: JsonObject = json.loads(file.read_text(encoding="utf-8"))
    return prices


@lru_cache(maxsize=256)
def _entry(model: str) -> JsonObject:
    """Look a model up by its whole name, or its name alone at the same provider."""
    prices = _price_list()
    provider, _, name = model.partition("/")
    if model in prices:
        return dict(prices[model])
    if name not in prices:
        return {}
    # litellm's own names go on after the provider's, as vertex_ai-language-models does
    sold_by = re.split("[-_]", prices[name].get("litellm_provider", ""))[0]
    return dict(prices[name]) if sold_by == re.split("[-_]", provider)[0] else {}


def _listed(model: str) -> tuple[float, float] | None:
    listed = _entry(model)
    prompt, completion = listed.get("input_cost_per_token"), listed.get("output_cost_per_token")
    # It lists 0 for names whose price it does not know, such as `anthropic/claude-sonnet-4-0`.
    return (float(prompt), float(completion)) if prompt and completion else None


def supports_schema(model: Model) -> bool:
    if model.checksum is not None or _entry(model.model).get("supports_response_schema"):
        return True  # importing litellm takes seconds
    return bool(load_litellm().supports_response_schema(model=model.model))


def price(model: Model) -> tuple[float, float] | None:
    """Look up the price in USD of one token asked and one answered.

    Parameters
    ----------
    model : Model
        Its own prices go before litellm's list, where 0 means unknown.

    Returns
    -------
    tuple of float, or None
        None where unknown; the embedded model costs nothing.

    Examples
    --------
    >>> from heart_collect.calls.models import Model
    >>> price(Model("mine", "openai/mine", price_prompt=2.0, price_completion=8.0))
    (2e-06, 8e-06)
    """
    if model.checksum is not None:
        return 0.0, 0.0
    if model.price_prompt is not None and model.price_completion is not None:
        return model.price_prompt / 1e6, model.price_completion / 1e6
    return _listed(model.model)


def price_fault(model: Model) -> str | None:
    """Describe a price of 0, or far below litellm's, in a model's settings."""
    given = {name: getattr(model, name) for name in ("price_prompt", "price_completion")}
    listed = _listed(model.model) if any(v is not None for v in given.values()) else None
    if listed is None or model.checksum is not None:
        return None
    if model.api_base is not None and provider_at(model.api_base) is None:
        return None
    prompt, completion = (1e6 * rate for rate in listed)
    least = dict(zip(given, (prompt / 10, completion / 10), strict=True))
    low = [
        f"{name} is {usd:g}" for name, usd in given.items() if usd is not None and usd < least[name]
    ]
    if not low:
        return None
    return (
        f"{model.name}: {' and '.join(low)}, but {model.model} is listed at {prompt:g} and"
        f" {completion:g} USD for a million tokens. Leave the prices out, or give the address of"
        " your own server under this name as api_base"
    )


def is_paid(model: Model) -> bool:
    """Check whether a call may cost money, as where no price is known."""
    return price(model) != (0.0, 0.0)


def cost(
    model: Model,
    prompt_tokens: int | None,
    completion_tokens: int | None,
    written_tokens: int | None = None,
) -> float | None:
    """Compute an answer's list price, without discounts for cached prompts."""
    rates = price(model)
    if rates == (0.0, 0.0):
        return 0.0
    if rates is None or prompt_tokens is None or completion_tokens is None:
        return None
    return (prompt_tokens + (written_tokens or 0) / 4) * rates[0] + completion_tokens * rates[1]


def estimate(request: Request, text: str) -> float | None:
    """Price an answer with uncounted tokens: four characters a token."""
    return cost(request.model, plan_call(request).prompt_tokens, len(text) // 4 + 1)


def reserve(request: Request) -> float:
    """Compute the most one attempt can cost, in USD."""
    rates = price(request.model)
    return (
        0.0
        if rates is None
        else prompt_bound(request) * rates[0]
        + (request.max_tokens or DEFAULT_MAX_TOKENS) * rates[1]
    )


def bound(request: Request) -> float | None:
    """Compute the most a request can cost, every attempt answered."""
    rates = price(request.model)
    if rates is None:
        return None
    prompt, max_tokens = prompt_bound(request), request.max_tokens or DEFAULT_MAX_TOKENS
    grows = request.max_tokens is not None and not request.single_token
    prompts, factor = (3, 1 + 2 + MAX_GROWTH) if grows else (1, 1)
    prompt_tokens = prompts * prompt
    if not (request.single_token or request.stream):
        prompt_tokens += prompts * (prompt + text_bound(request) // 2 + 256)
        factor *= 2
    return prompt_tokens * rates[0] + factor * max_tokens * rates[1]


def text_bound(request: Request) -> int:
    """Return how many characters of an answer are kept."""
    return 200 + CHARACTERS_A_TOKEN * MAX_GROWTH * (
        request.max_tokens or DEFAULT_MAX_TOKENS // MAX_GROWTH
    )


def prompt_bound(request: Request) -> int:
    """Bound a prompt's tokens: two bytes each, which no tokeniser of prose reaches."""
    return (
        sum(len(message["content"].encode("utf-8", "replace")) for message in request.messages) // 2
        + 64
    )


def plan_call(request: Request) -> Call:
    """Estimate a call: four characters a token, a full answer."""
    prompt = sum(len(message["content"]) for message in request.messages) // 4 + 8 * (
        len(request.messages) + 1
    )
    completion = request.max_tokens or EXPECTED_ANSWER
    usd = cost(request.model, prompt, completion)
    return Call(
        request.key, "planned", prompt_tokens=prompt, completion_tokens=completion, cost_usd=usd
    )


def check_prices(models: Sequence[Model], budget_usd: float | None) -> None:
    """Refuse a budget that a price, unknown or wrongly 0, would break."""
    if budget_usd is not None and not budget_usd >= 0:
        raise BudgetError(f"A budget is a number of USD, zero or more; got {budget_usd!r}.")
    free = sorted({fault for model in models if (fault := price_fault(model))})
    if free:
        raise BudgetError(f"{'; '.join(free)}.")
    capped = [model for model in models if budget_usd is not None or model.budget_usd is not None]
    unpriced = sorted({f"{model.name} ({model.model})" for model in capped if price(model) is None})
    if unpriced:
        raise BudgetError(
            f"No price is known of {', '.join(unpriced)}. Give price_prompt and price_completion in"
            " USD for a million tokens; 0 if a call really costs nothing. (A listed price of 0"
            " counts as not known.)"
        )


def check_money(
    requests: Sequence[Request], *, budget_usd: float | None, max_paid_calls: int | None
) -> None:
    """Refuse, before the first call, what budget or limit of paid calls forbids."""
    check_prices(
        list({request.model.name: request.model for request in requests}.values()), budget_usd
    )
    if max_paid_calls is not None:
        paid = sum(is_paid(request.model) for request in requests)
        if paid > max_paid_calls:
            too_many = (
                f"{paid} paid calls are not recorded yet, and no more than {max_paid_calls} are"
                " made from here"
            )
            raise BudgetError(
                f"{too_many}. `make collect RUN=...` makes them, with a dry run, a budget and a"
                " way to stop."
            )
