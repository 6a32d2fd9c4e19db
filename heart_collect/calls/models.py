"""Language models: which one, its key, what it is asked, what came of it."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import hashlib
import importlib
import ipaddress
import json
import os
import re
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal
from urllib.parse import urlsplit, urlunsplit

from pydantic import Field

from heart_utils.settings import JsonObject, Text, extra, read_strictly

if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["Call", "Model", "ModelError", "Request", "read_models"]

#: The word in a YAML's ``model:`` that means the model whose weights come with the project.
EMBEDDED = "embedded"
#: SHA-256 of those weights.
CHECKSUM = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

#: The two names of what limits an answer's length.
MAX_TOKENS_OPTIONS = ("max_tokens", "max_completion_tokens")

DRAWING = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "seed",
    "stop",
    "presence_penalty",
    "frequency_penalty",
)
OPTIONS = (*DRAWING, *MAX_TOKENS_OPTIONS, "reasoning_effort", "thinking", "extra_body")
"""Sampling options a YAML may name; the rest of a request is the protocol's business."""

KEY_NAMES = re.compile(r"(^|_)(api_?key|key|token|secret|password|authorization)$", re.IGNORECASE)
KEY_VALUES = re.compile(
    r"^(sk-|pk-|rk-|xai-|gsk_|hf_|ghp_|AIza|Bearer\s)\S{8,}|^(?=[^ ]*\d)(?=[^"
    r" ]*[A-Za-z])[A-Za-z0-9+_=-]{36,}$"
)
VARIABLE = re.compile(r"^[A-Z][A-Z0-9_]{2,}$")
_PRICED_HERE = ContextVar("priced_here", default=False)  #: Whether litellm need price no answer.
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


Positive = Annotated[int, Field(ge=1)]
Usd = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Seconds = Annotated[float, Field(ge=0.001, allow_inf_nan=False)]


class ModelError(ValueError):
    """A model's settings, or a request with them, cannot be used."""


@dataclass(frozen=True)
class Model:
    """A language model, and how it may be called."""

    name: Text  #: as it stands in the tables
    model: Text  #: as litellm names it, such as "openai/gpt-4o"
    api_base: str | None = None  #: the address of a server of one's own
    #: the environment variable that holds the key; litellm's usual one if absent
    api_key_env: str | None = None
    family: str | None = None  #: who made it; a judge of a responder's family is flagged
    answer_format: Literal["json", "logprob"] = "json"  #: of a judge
    #: whether a schema holds it to JSON; as litellm's list says if absent
    json_schema: bool | None = None
    #: for sampling, such as {"temperature": 0.7, "max_tokens": 400}
    options: Mapping[str, Any] = field(default_factory=dict)
    requests_per_minute: Positive | None = None  #: limits that this side keeps
    tokens_per_minute: Positive | None = None
    max_concurrency: Positive = 8  #: calls in flight
    #: USD for a million tokens, where litellm's list has none or a wrong one
    price_prompt: Usd | None = None
    price_completion: Usd | None = None
    #: what all calls to it on a ledger may cost, beside the budget of the whole
    budget_usd: Usd | None = None
    timeout_s: Seconds = 120.0  #: a call that takes longer is made again
    #: an outage of its server is waited for so long, from its last answer on
    patience_s: Seconds = 900.0
    #: what a server of one's own says it serves, if the address alone does not tell
    served_id: str | None = None
    #: SHA-256 of the weights; then the address is no part of the identity
    checksum: str | None = None

    @cached_property
    def identity(self) -> str:
        """JSON of what makes an answer this model's: name, and weights or address."""
        parts = {"model": self.model, "checksum": self.checksum}
        if self.checksum is None:
            parts = {
                "model": self.model,
                "api_base": plain_address(self.api_base),
                "served_id": self.served_id,
            }
        return identity_json(parts)

    @cached_property
    def identity_digest(self) -> str:
        """A short hash of its identity."""
        return digest_of(self.identity)

    @property
    def limits_max_tokens(self) -> bool:
        """Whether its own options limit an answer's length."""
        return any(name in self.options for name in MAX_TOKENS_OPTIONS)

    @property
    def embedded(self) -> bool:
        """Whether its weights are known and it is not served yet."""
        return self.checksum is not None and self.api_base is None


@dataclass(frozen=True)
class Request:
    """One question to one model."""

    model: Model
    messages: tuple[Mapping[str, str], ...]  #: each with role and content
    options: Mapping[str, Any] = field(default_factory=dict)  #: laid over the model's own
    repeat: int = 0  #: the number of a repeated call
    #: whether the answer is streamed, so that ttft_ms is measured; no part of the key
    stream: bool = False
    #: what it is about, for messages to people, such as a history's id; no part of the key
    tag: str = ""

    @cached_property
    def key(self) -> str:
        """The hash under which the ledger keeps the call."""
        return request_key(*self.digests, self.repeat)

    @cached_property
    def digests(self) -> tuple[str, str, str]:
        """Short hashes of the model's identity, messages and options."""
        return (
            self.model.identity_digest,
            digest_of(self.messages_json()),
            digest_of(_json(self.sampling)),
        )

    @property
    def sampling(self) -> JsonObject:
        """The model's options, with the request's own over them."""
        return {**self.model.options, **self.options}

    @property
    def max_tokens(self) -> int | None:
        """How many tokens its options give the answer."""
        return next(
            (int(self.sampling[name]) for name in MAX_TOKENS_OPTIONS if self.sampling.get(name)),
            None,
        )

    @property
    def single_token(self) -> bool:
        """Whether the answer is the log-probabilities of one token."""
        return bool(self.sampling.get("logprobs"))

    def messages_json(self) -> str:
        """Return the messages as the ledger keeps them."""
        return _json(
            [{"role": message["role"], "content": message["content"]} for message in self.messages]
        )


@dataclass(frozen=True)
class Call:
    """What came of a request."""

    call_id: str  #: the request's key
    #: ok, truncated (even with more room), refused (filter or refusal field), error, or planned (in
    #: mode dry)
    status: str
    text: str = ""  #: the raw answer; empty where there is none
    finish_reason: str | None = None  #: as the provider gives it
    #: alternatives for the answer's first token, where asked for
    logprobs: tuple[tuple[str, float], ...] | None = None
    #: to the first text after thoughts (streamed calls only), and to the end, of the last attempt
    ttft_ms: float | None = None
    total_ms: float | None = None
    prompt_tokens: int | None = None  #: as counted by the provider; estimated where planned
    completion_tokens: int | None = None
    #: at list price, all attempts that were answered; None where no price is known
    cost_usd: float | None = None
    attempts: int = 0  #: how many times it was asked
    #: calls under way in that process as the last attempt began: 1 where nothing else disturbed the
    #: clock
    in_flight: int = 1
    error: str | None = None  #: what went wrong, in words, without keys
    #: who the provider says answered: gpt-4o may be another model tomorrow
    served_model: str | None = None
    fingerprint: str | None = None  #: of its system
    #: of the prompt's, those that the provider had in a cache; priced in full all the same
    cached_tokens: int | None = None
    #: True where the provider counted no tokens, so that the cost is an estimate
    estimated: bool | None = None


def read_models(config: Sequence[Mapping[str, Any]]) -> list[Model]:
    """Read models from the settings of a run.

    Parameters
    ----------
    config : sequence of mapping
        Fields of :class:`Model`; ``model: embedded`` is the project's own.

    Returns
    -------
    list of Model
        In order.

    Raises
    ------
    ModelError
        If an option or a type is wrong, two share a name, or a key is in it.

    Examples
    --------
    >>> read_models([{"name": "judge", "model": "openai/gpt-4o", "api_key": "sk-123456789"}])
    Traceback (most recent call last):
    ...
    heart_collect.calls.models.ModelError: judge: api_key: a key does not belong in a file. ...
    """
    if isinstance(config, Mapping | str) or not isinstance(config, Iterable):
        raise ModelError(
            f"Models are a list, each with a name and a model; got {type(config).__name__}."
        )
    models = [_read_model(number, entry) for number, entry in enumerate(config)]
    names = [model.name for model in models]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ModelError(
            f"Each model needs a name of its own; {', '.join(twice)} appears more than once."
        )
    return models


def local_model() -> Model:
    return Model(
        name="SmolLM2-135M-Instruct",
        model="openai/SmolLM2-135M-Instruct-Q4_1",
        family="HuggingFaceTB",
        checksum=CHECKSUM,
        max_concurrency=4,
        timeout_s=900.0,  # beside a compile or a parallel test run it slows a hundredfold
    )


def plain_address(address: str | None) -> str | None:
    """Normalise an address: host in small letters, no final slash or default port."""
    try:
        scheme, host, path, *rest = urlsplit((address or "").strip())
    except ValueError:
        return address
    usual = {"http": ":80", "https": ":443"}.get(scheme.lower(), "")
    host = host.lower().removesuffix(usual) if usual else host
    return (
        urlunsplit((scheme.lower(), host, path.rstrip("/"), *rest)) if address and host else address
    )


def other_addresses(address: str) -> list[str]:
    """List other spellings of an address on this machine."""
    plain = plain_address(address) or address
    host = urlsplit(plain).netloc.partition(":")[0] if "[" not in plain else "[::1]"
    names = LOOPBACK if host in LOOPBACK else (host,)
    return [
        other for name in names if (other := plain.replace(f"//{host}", f"//{name}", 1)) != address
    ]


def identity_json(parts: Mapping[str, str | None]) -> str:
    """Write what makes a model as a ledger keeps it."""
    return _json({name: value for name, value in parts.items() if value is not None})


def request_key(model: str, messages_digest: str, options: str, repeat: int) -> str:
    """Hash the digests of a request to the ledger's key."""
    return digest_of("\n".join([model, messages_digest, options, str(repeat)]), 32)


def _read_model(number: int, entry: Any) -> Model:
    where = f"model {number}"
    if not isinstance(entry, Mapping):
        raise ModelError(
            f"{where}: expected a name, a model and options, got {type(entry).__name__}."
        )
    where = str(entry.get("name", where))
    _refuse_keys(where, entry)
    whole = {
        name: int(value)
        for name, value in entry.items()
        if isinstance(value, float) and value.is_integer()
    }
    given = {name: value for name, value in {**entry, **whole}.items() if value is not None}
    model: Model = read_strictly(Model, given, where, ModelError)
    if model.api_base is not None and not model.api_base.startswith(("http://", "https://")):
        raise ModelError(
            f"{where}: api_base is {model.api_base!r}, expected an address such as"
            " http://127.0.0.1:8000/v1."
        )
    strange = sorted(option for option in model.options if option not in OPTIONS)
    if strange:
        raise ModelError(
            f"{where}: unknown sampling option {', '.join(strange)}. Known are"
            f" {', '.join(OPTIONS)}."
        )
    if model.model != EMBEDDED:
        return model
    return dataclasses.replace(
        local_model(), **{name: getattr(model, name) for name in given if name != "model"}
    )


def _refuse_keys(where: str, entry: Mapping[str, Any], path: str = "", model: object = "") -> None:
    secrets = {
        value for name, value in os.environ.items() if KEY_NAMES.search(name) and len(value) >= 8
    }
    for name, value in entry.items():
        at = f"{path}{name}"
        if isinstance(value, Mapping):
            _refuse_keys(where, value, f"{at}.", entry.get("model", model))
        elif name == "api_key_env":
            if value is not None and not (isinstance(value, str) and VARIABLE.match(value)):
                raise ModelError(
                    f"{where}: api_key_env: expected the name of an environment variable, such as"
                    " OPENAI_API_KEY."
                )
        elif isinstance(value, str) and name != "checksum":
            named = KEY_NAMES.search(str(name)) is not None
            inside = re.match(r"^\w+://[^/@]*@", value) is not None
            if (
                named
                or inside
                or KEY_VALUES.match(value)
                or any(secret in value for secret in secrets)
            ):
                provider = re.sub(
                    r"\W", "_", str(entry.get("model", model)).split("/")[0] or "provider"
                )
                raise ModelError(
                    f"{where}: {at}: a key does not belong in a file. Put it into an environment"
                    f" variable and name that: `api_key_env: {provider.upper()}_API_KEY`. If the"
                    " file was ever shared, replace the key."
                )


@contextmanager
def collector_paused() -> Iterator[None]:
    """Look for no garbage where much is made and little left."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


@lru_cache(maxsize=1)
def load_litellm() -> ModuleType:
    """Import litellm late, and keep it from calling out."""
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    # else it reads a file .env of the folder, which may come from a stranger and name an address
    os.environ.setdefault("LITELLM_MODE", "PRODUCTION")
    # a quarter of the seconds goes into looking for garbage that no import leaves
    with collector_paused(), extra("collect"):
        litellm = importlib.import_module("litellm")
    quieten_litellm()
    litellm.suppress_debug_info = True  # type: ignore[attr-defined]
    _follow_nowhere(litellm)
    _look_up_fewer_prices()
    return litellm


def _follow_nowhere(litellm: ModuleType) -> None:
    """Follow no redirect, which would take keys elsewhere."""
    from litellm.llms.custom_httpx.http_handler import AsyncHTTPHandler, HTTPHandler
    from litellm.llms.openai.common_utils import BaseOpenAILLM

    def stays(make: Callable[..., Any]) -> Callable[..., Any]:
        def make_client(*given: Any, **named: Any) -> Any:
            client = make(*given, **named)
            client.follow_redirects = False
            return client

        return make_client

    for handler in (AsyncHTTPHandler, HTTPHandler):
        setattr(handler, "create_client", stays(handler.create_client))  # noqa: B010
    for name in ("_get_async_http_client", "_get_sync_http_client"):
        setattr(BaseOpenAILLM, name, staticmethod(stays(getattr(BaseOpenAILLM, name))))
    litellm.in_memory_llm_clients_cache.flush_cache()  # of clients that were made before


def _look_up_fewer_prices() -> None:
    """Let litellm price nothing: the ledger does."""
    # a version of litellm that has moved this prices each answer, as it did before
    with suppress(ImportError, AttributeError):
        from litellm.litellm_core_utils.litellm_logging import Logging

        look_up = Logging.response_cost_calculator

        def priced(self: Logging, *given: Any, **named: Any) -> float | None:
            return None if _PRICED_HERE.get() else look_up(self, *given, **named)

        setattr(Logging, "response_cost_calculator", priced)  # noqa: B010


def quieten_litellm() -> None:
    """Leave unsaid that a call given up left a coroutine behind."""
    warnings.filterwarnings(
        "ignore", r"coroutine '\w+\.acompletion' was never awaited", RuntimeWarning
    )


def forgo_records() -> None:
    """Stop litellm from recording this task's calls if no callback needs it."""
    litellm = load_litellm()
    unheard = not (litellm.callbacks or litellm.success_callback or litellm.failure_callback)
    _PRICED_HERE.set(unheard)
    # litellm's own mark for calls within calls; a version without it makes the records
    with suppress(ImportError):
        from litellm._internal_context import is_internal_call

        is_internal_call.set(unheard)


@lru_cache(maxsize=1)
def event_loop(_: int) -> asyncio.AbstractEventLoop:
    """Return the process's event loop, in its own thread."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="calls", daemon=True).start()
    return loop


_json = json.JSONEncoder(sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode


def digest_of(text: str, length: int = 16) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:length]


class NotAllowedError(Exception):
    """No one said that money may be spent, or that a key may go to a host."""


ALLOWED = "HEART_ALLOW_HOST"  #: Hosts to which any key may go, with blanks between them.

HOSTS = {
    "openai": r"(?:\w+\.)?api\.openai\.com",
    "anthropic": r"api\.anthropic\.com",
    "openrouter": r"openrouter\.ai",
    "cohere": r"api\.cohere\.(?:com|ai)",
    "gemini": r"generativelanguage\.googleapis\.com",
    "vertex_ai": r"(?:[\w-]+-)?aiplatform\.googleapis\.com",
    "azure": r"[\w-]+\.(?:openai|cognitiveservices|services\.ai)\.azure\.com",
    "bedrock": r"bedrock-runtime\.[\w-]+\.amazonaws\.com",
    "huggingface": r"(?:router|api-inference)\.huggingface\.co",
    "fireworks_ai": r"api\.fireworks\.ai",
    "cerebras": r"api\.cerebras\.ai",
    "xai": r"api\.x\.ai",
    "sambanova": r"api\.sambanova\.ai",
    "moonshot": r"api\.moonshot\.(?:ai|cn)",
    "nebius": r"api\.studio\.nebius\.ai",
    "dashscope": r"dashscope(?:-\w+)?\.aliyuncs\.com",
}
"""Hosts that litellm's own list lacks, or gives to no provider."""

NAMES = {
    "CO_API_KEY": "cohere",
    "GOOGLE_API_KEY": "gemini",
    "HF_TOKEN": "huggingface",
    "AZURE_OPENAI_API_KEY": "azure",
    "AZURE_AI_API_KEY": "azure",
    "AWS_BEARER_TOKEN_BEDROCK": "bedrock",
}
"""Whose the keys are that are not called after their provider, as ``OPENAI_API_KEY`` is."""

ALIASES = {"text-completion-openai": "openai", "cohere_chat": "cohere", "azure_ai": "azure"}
#: Providers for which litellm takes credentials by itself, whatever key it is given.
BY_ITSELF = [
    "vertex_ai",
    "vertex_ai_beta",
    "bedrock",
    "bedrock_converse",
    "sagemaker",
    "azure",
    "watsonx",
    "databricks",
    "snowflake",
    "oci",
    "github_copilot",
    "sap",
    "gigachat",
]


def key_fault(model: Model) -> str | None:
    """Describe what is wrong with a key, or where it would go."""
    usual = None if model.api_base else f"{_prefix(model).upper()}_API_KEY"
    name = model.api_key_env or usual
    key = os.environ.get(name) if name else None
    if not key and model.api_key_env:
        return f"the environment variable {name} is not set"
    if key and not (key.isascii() and key.isprintable() and key == key.strip()):
        return (
            f"the environment variable {name} holds a blank, a line's end or another character that"
            " no key has"
        )
    if (foreign := foreign_host(model)) is None:
        return None
    what, host = foreign
    return (
        f"{model.name} would send {what} to {host}, which is not known as its provider's. Allow it"
        f" on a terminal, which asks once, or by --allow-host {host} ({ALLOWED}={host} in the"
        " environment)"
    )


def key_for(model: Model, address: str | None) -> str | None:
    """Return a model's API key; None leaves it to litellm."""
    if model.api_key_env:
        return os.environ.get(model.api_key_env)
    return None if address is None else "none"


@lru_cache(maxsize=256)
def provider_at(address: str) -> str | None:
    """Return whose an address is, if known."""
    scheme, host = urlsplit(address).scheme.lower(), host_of(address)
    if scheme != "https":
        return None
    known = next((name for name, at in HOSTS.items() if re.fullmatch(at, host)), None)
    return known or _listed_hosts().get(host)


def host_of(address: str) -> str:
    """Return the host of an address, or of a host with port."""
    with suppress(ValueError):
        return (urlsplit(address if "://" in address else f"//{address}").hostname or "").lower()
    return address


@lru_cache(maxsize=1)
def _listed_hosts() -> dict[str, str | None]:
    litellm, hosts = load_litellm(), dict[str, str | None]()
    for address in litellm.openai_compatible_endpoints:
        with suppress(Exception):  # litellm raises several classes
            provider = litellm.get_llm_provider("any", api_base=address)[1]
            hosts[host_of(address.removeprefix("https://"))] = provider
    return hosts


def foreign_host(model: Model) -> tuple[str, str] | None:
    """Return what would go to a host that nobody allowed, and the host."""
    if model.embedded or "mock_response" in model.options:
        return None
    variable, by_itself = model.api_key_env, _prefix(model) in BY_ITSELF
    base = model.api_base
    host = _prefix(model) if base is None else host_of(base)
    provider = host if base is None else provider_at(base)
    if provider is not None and (variable is None or _belongs(variable, provider)):
        return None
    if variable is None and not by_itself and _is_loopback(host):
        return None
    what = variable or ("this machine's credentials" if by_itself else "what it is asked")
    allowed = {host_of(one) for one in os.environ.get(ALLOWED, "").split()}
    return None if host in allowed or f"{host} {what}" in _written_down() else (what, host)


def _belongs(variable: str, provider: str) -> bool:
    owner = NAMES.get(variable) or variable.removesuffix("_API_KEY").lower()
    return re.sub(r"\W|_", "", owner) == re.sub(r"\W|_", "", ALIASES.get(provider, provider))


def _prefix(model: Model) -> str:
    prefix, slash, _ = model.model.partition("/")
    if not slash:
        with suppress(Exception):  # litellm raises several classes
            return str(load_litellm().get_llm_provider(prefix)[1])
    return prefix


def _is_loopback(host: str) -> bool:
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


def hosts_file() -> Path:
    home = os.environ.get("XDG_CONFIG_HOME")
    return (Path(home) if home else Path.home() / ".config") / "heart_utils" / "hosts.txt"


def _written_down() -> set[str]:
    file = hosts_file()
    return set(file.read_text(encoding="utf-8").splitlines()) if file.is_file() else set()
