"""Keys of models: which one is meant, and to which hosts it may go.

A key goes to its provider's hosts. Any other host is allowed by a person, once on a terminal, or by
whoever starts the command: a recipe may come from a stranger, and cannot allow one.
"""

from __future__ import annotations

import ipaddress
import os
import re
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from urllib.parse import urlsplit

from heart_collect.calls.models import Model, load_litellm

__all__: list[str] = []


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
    """Describe what is wrong with a model's key, or where it would go, before it is used."""
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
    if (foreign := _foreign_host(model)) is None:
        return None
    what, host = foreign
    return (
        f"{model.name} would send {what} to {host}, which is not known as its provider's. Allow it"
        f" on a terminal, which asks once, or by --allow-host {host} ({ALLOWED}={host} in the"
        " environment)"
    )


def key_for(model: Model, address: str | None) -> str | None:
    """Return the API key for a model; None leaves it to litellm.

    litellm must not send another provider's key to an address.
    """
    if model.api_key_env:
        return os.environ.get(model.api_key_env)
    return None if address is None else "none"


def allow_hosts(hosts: Iterable[str]) -> None:
    """Let keys go to these hosts, in this process and in those that it starts."""
    os.environ[ALLOWED] = " ".join([os.environ.get(ALLOWED, ""), *hosts]).strip()


def settle_hosts(models: Sequence[Model], *, command: str = "collect") -> None:
    """Ask once for each host that is not a provider's, and write down what is allowed."""
    for what, host in sorted({found for one in models if (found := _foreign_host(one))}):
        names = ", ".join(
            sorted({one.name for one in models if _foreign_host(one) == (what, host)})
        )
        question = f"{names} would send {what} to {host}, which is not known as its provider's."
        if sys.stdin is None or not sys.stdin.isatty():
            raise NotAllowedError(
                f"{command}: {question} Nothing was asked, and nobody is there to ask: --yes does"
                f" not allow it, --allow-host {host} does."
            )
        if input(f"{question} Allow it from now on? [y/N] ").strip().lower() not in ("y", "yes"):
            raise NotAllowedError("Nothing was asked.")
        file = _file()
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("a", encoding="utf-8") as lines:
            lines.write(f"{host} {what}\n")
        print(f"Written down in {file}.")


@lru_cache(maxsize=256)
def provider_at(address: str) -> str | None:
    """Return whose an address is; None where no provider is known there."""
    scheme, host = urlsplit(address).scheme.lower(), host_of(address)
    if scheme != "https":
        return None
    known = next((name for name, at in HOSTS.items() if re.fullmatch(at, host)), None)
    return known or _listed_hosts().get(host)


def host_of(address: str) -> str:
    """Return the host of an address, or of a host with a port."""
    with suppress(ValueError):
        return (urlsplit(address if "://" in address else f"//{address}").hostname or "").lower()
    return address


@lru_cache(maxsize=1)
def _listed_hosts() -> dict[str, str | None]:
    """Read from litellm which providers serve at which hosts."""
    litellm, hosts = load_litellm(), dict[str, str | None]()
    for address in litellm.openai_compatible_endpoints:
        with suppress(Exception):  # litellm raises several classes
            provider = litellm.get_llm_provider("any", api_base=address)[1]
            hosts[host_of(address.removeprefix("https://"))] = provider
    return hosts


def _foreign_host(model: Model) -> tuple[str, str] | None:
    """Return what a model's calls would send to a host that nobody allowed, and that host."""
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
    """Check whether a variable's name says that its key is a provider's."""
    owner = NAMES.get(variable) or variable.removesuffix("_API_KEY").lower()
    return re.sub(r"\W|_", "", owner) == re.sub(r"\W|_", "", ALIASES.get(provider, provider))


def _prefix(model: Model) -> str:
    """Return the provider that litellm's name of a model begins with, or means."""
    prefix, slash, _ = model.model.partition("/")
    if not slash:
        with suppress(Exception):  # litellm raises several classes
            return str(load_litellm().get_llm_provider(prefix)[1])
    return prefix


def _is_loopback(host: str) -> bool:
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


def _file() -> Path:
    """Return the user's own list; a recipe's folder may have come from somebody else."""
    home = os.environ.get("XDG_CONFIG_HOME")
    return (Path(home) if home else Path.home() / ".config") / "heart_utils" / "hosts.txt"


def _written_down() -> set[str]:
    file = _file()
    return set(file.read_text(encoding="utf-8").splitlines()) if file.is_file() else set()
