"""To which hosts a key may go: its provider's, and those that a person or a workflow allowed."""

import asyncio
import io
import os
import sys

import pytest
import yaml
from aiohttp import web
from server import Provider, serving

from heart_collect.calls.commands import settle_hosts
from heart_collect.calls.models import Model, NotAllowedError, key_fault, load_litellm, provider_at
from heart_collect.calls.prices import price_fault
from heart_collect.collect import main
from heart_utils.runs import find_root

SECRET = "wJalrXUtnFEMI-K7MDENG-canary"  # noqa: S105
KEYS = ("OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY", "MY_SERVER_KEY", "GROQ_API_KEY", "HF_TOKEN")


@pytest.fixture(autouse=True)
def nothing_allowed(monkeypatch, tmp_path):
    monkeypatch.setenv("HEART_ALLOW_HOST", "")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in KEYS:
        monkeypatch.setenv(name, SECRET)


def model(named="openai/gpt-4o", key=None, base=None):
    return Model("m", named, api_base=base, api_key_env=key)


@pytest.mark.parametrize(
    "mine",
    [
        model(),
        model(key="OPENAI_API_KEY"),
        model("gpt-4o", "OPENAI_API_KEY"),
        model(key="OPENAI_API_KEY", base="https://API.openai.com/v1/"),
        model("openai/x", "GROQ_API_KEY", "https://api.groq.com/openai/v1"),
        model("groq/x", "GROQ_API_KEY"),
        model("openai/x", "HF_TOKEN", "https://router.huggingface.co/v1"),
        model("openai/x", base="http://127.0.0.1:8000/v1"),
        model("hosted_vllm/x", base="http://[::1]:8000/v1"),
        model("ollama/x", base="http://localhost:11434"),
    ],
)
def test_a_key_goes_to_its_provider_and_a_server_of_ones_own_needs_none(mine):
    assert key_fault(mine) is None


@pytest.mark.parametrize(
    ("mine", "what", "host"),
    [
        (model("openai/x", "AWS_SECRET_ACCESS_KEY", "http://127.0.0.1:9/v1"),
         "AWS_SECRET_ACCESS_KEY", "127.0.0.1"),
        (model("openai/x", "OPENAI_API_KEY", "https://evil.example/v1"), "OPENAI_API_KEY", "evil.example"),
        (model("openai/x", "OPENAI_API_KEY", "https://api.openai.com.evil.example/v1"),
         "OPENAI_API_KEY", "api.openai.com.evil.example"),
        (model("openai/x", "GROQ_API_KEY", "https://evil.example/api.groq.com/openai/v1"),
         "GROQ_API_KEY", "evil.example"),
        (model("openai/x", "OPENAI_API_KEY", "http://api.openai.com/v1"), "OPENAI_API_KEY", "api.openai.com"),
        (model("openai/x", "AWS_SECRET_ACCESS_KEY", "https://api.openai.com/v1"),
         "AWS_SECRET_ACCESS_KEY", "api.openai.com"),
        (model("openai/x", "OPENAI_API_KEY", "https://a.execute-api.eu-west-1.amazonaws.com/v1"),
         "OPENAI_API_KEY", "a.execute-api.eu-west-1.amazonaws.com"),
        (model(key="AWS_SECRET_ACCESS_KEY"), "AWS_SECRET_ACCESS_KEY", "openai"),
        (model("anthropic/claude", "OPENAI_API_KEY"), "OPENAI_API_KEY", "anthropic"),
        (model("openai/x", base="http://gpu.example:8000/v1"), "what it is asked", "gpu.example"),
        (model("openai/x", base="http://localhost.evil.example/v1"), "what it is asked",
         "localhost.evil.example"),
        (model("vertex_ai/x", base="http://127.0.0.1:9/v1"), "this machine's credentials", "127.0.0.1"),
    ],
)  # fmt: skip
def test_any_other_host_is_refused_until_somebody_allows_it(mine, what, host, monkeypatch):
    assert f"m would send {what} to {host}, " in key_fault(mine)
    assert f"--allow-host {host}" in key_fault(mine)
    monkeypatch.setenv("HEART_ALLOW_HOST", f"other.example {host}:8000")
    assert key_fault(mine) is None


def test_what_is_allowed_on_a_terminal_is_written_down_for_that_key_alone(monkeypatch, tmp_path):
    mine = model("openai/x", "MY_SERVER_KEY", "http://gpu.example/v1")
    terminal = io.StringIO("n\nyes\n")
    terminal.isatty = lambda: True
    monkeypatch.setattr(sys, "stdin", terminal)
    with pytest.raises(NotAllowedError, match="Nothing was asked"):
        settle_hosts([mine])
    assert key_fault(mine) is not None
    settle_hosts([mine])
    settle_hosts([mine])  # and not once more
    file = tmp_path / "config" / "heart_utils" / "hosts.txt"
    assert file.read_text() == "gpu.example MY_SERVER_KEY\n"
    assert key_fault(mine) is None
    assert key_fault(model("openai/x", "AWS_SECRET_ACCESS_KEY", "http://gpu.example/v1"))


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Lay out a project with a run whose only model is at `base`; return what collects it."""
    (tmp_path / "heart_utils").mkdir()
    for name in ("pyproject.toml", "heart_utils/runs.py"):
        (tmp_path / name).write_bytes((find_root() / name).read_bytes())
    (tmp_path / "data").symlink_to(find_root() / "data")
    (tmp_path / "params").mkdir()
    monkeypatch.setenv("HEART_ROOT", str(tmp_path))
    monkeypatch.delenv("HEART_LEDGER", raising=False)
    monkeypatch.setattr(sys, "stdin", None)

    def collect(base, *options, budget_usd=1.0, **more):
        mine = {"name": "m", "model": "openai/m", "api_base": base, **more}
        collected = {
            "histories": "sample", "slices": {"standard": 2, "adversarial": 0},
            "given_replies": False, "responders": [mine], "budget_usd": budget_usd,
        }  # fmt: skip
        text = yaml.safe_dump({"chapters": [], "collect": collected})
        (tmp_path / "params" / "mine.yaml").write_text(text)
        return main(["mine", "--quiet", *options])

    return collect


FREE = {"price_prompt": 0, "price_completion": 0}


def test_a_recipe_cannot_send_a_secret_to_a_stranger_until_a_workflow_names_it(project, capsys):
    with serving(Provider()) as stranger:
        for key in (KEYS[1], "MISSING"):
            assert project(stranger.address, "--yes", api_key_env=key, **FREE) in (1, 2)
        assert stranger.requests == []
        said = capsys.readouterr().err
        assert "--yes does not allow it, --allow-host 127.0.0.1 does" in said
        assert SECRET not in said
        assert project(stranger.address, "--dry-run", api_key_env=KEYS[1], **FREE) == 0
        assert "M would send AWS_SECRET_ACCESS_KEY to 127.0.0.1" in capsys.readouterr().out
        stranger.keys = (SECRET,)
        allowed = ("--yes", "--allow-host", "127.0.0.1")
        assert project(stranger.address, *allowed, api_key_env="MY_SERVER_KEY", **FREE) == 0
        assert len(stranger.requests) == 2


@pytest.mark.parametrize(
    ("recipe", "option", "asked"), [(9, 0.0, 0), (0, 9, 0), (9, 9, 2), (None, 9, 2)]
)
def test_a_workflows_budget_bounds_the_recipes_own_and_is_bounded_by_it(
    project, recipe, option, asked, capsys
):
    with serving(Provider()) as mine:
        priced = {"price_prompt": 1, "price_completion": 2, "budget_usd": recipe}
        project(mine.address, "--yes", "--budget", str(option), **priced)
        assert len(mine.requests) == asked


def test_a_price_far_below_the_listed_one_is_no_way_around_a_budget():
    low = {"price_prompt": 1e-6, "price_completion": 1e-6}
    assert "price_prompt is 1e-06" in price_fault(Model("m", "openai/gpt-4o", **low))
    assert price_fault(Model("m", "openai/gpt-4o", price_prompt=2.0, price_completion=9.0)) is None
    own = Model("m", "openai/gpt-4o", api_base="http://127.0.0.1:9/v1", **low)
    assert price_fault(own) is None


@pytest.mark.parametrize("named", ["openai/m", "anthropic/m", "gemini/m", "azure/m"])
def test_a_redirect_takes_no_key_to_another_host(named):
    arrived = []

    async def redirected():
        async def catch(request):
            arrived.append(dict(request.headers))
            return web.json_response({})

        async def send_on(request):
            raise web.HTTPTemporaryRedirect(f"http://127.0.0.1:{there}{request.path}")

        there = await listen(catch)
        here = await listen(send_on)
        with pytest.raises(Exception, match="307|[Rr]edirect"):
            await load_litellm().acompletion(
                model=named,
                messages=[{"role": "user", "content": "Hello."}],
                api_base=f"http://127.0.0.1:{here}/v1",
                api_key=SECRET,
                api_version="2024-02-01",
                num_retries=0,
                max_retries=0,
            )

    asyncio.run(redirected())
    assert arrived == []


async def listen(handler):
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    return site._server.sockets[0].getsockname()[1]


def test_a_file_of_the_folder_sets_no_address():
    load_litellm()
    assert os.environ["LITELLM_MODE"] == "PRODUCTION"


def test_providers_are_known_by_their_hosts():
    assert provider_at("https://api.mistral.ai/v1") == "mistral"
    assert provider_at("https://eu.api.openai.com/v1") == "openai"
    assert provider_at("https://mine.openai.azure.com/") == "azure"
    assert provider_at("https://mistral.ai/v1") is None
