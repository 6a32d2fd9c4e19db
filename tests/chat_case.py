"""A run with two simulated seekers at one address, and somebody who talks with them without a browser."""

import asyncio
import json
import re
import shutil
import threading
import time
from contextlib import contextmanager
from urllib.parse import parse_qs, urlsplit

import pytest
import requests
import yaml
from aiohttp import web
from study_builders import small_run

from heart_collect.calls.models import Call
from heart_collect.judging.design import cross_seekers
from heart_collect.people.chats import HEADER_S, Chats, Pages
from heart_collect.people.study import write_study
from heart_utils.runs import Run, find_root


def project(folder, collect):
    """Make a project with the settings of a run of conversations."""
    (folder / "heart_utils").mkdir()
    for name in ("pyproject.toml", "heart_utils/runs.py"):
        shutil.copy(find_root() / name, folder / name)
    (folder / "data").symlink_to(find_root() / "data")
    (folder / "params").mkdir()
    set_recipe(folder, collect)


def set_recipe(root, collect):
    text = yaml.safe_dump({"chapters": [], "collect": collect})
    (root / "params" / "mine.yaml").write_text(text)


def set_study(run, *, n_writers=2, writers_per_history=1, **settings):
    """Write settings for so many people, each with one conversation from each of two starts."""
    rules = {"n_writers": n_writers, "writers_per_history": writers_per_history, "spare": 0}
    (run.folder / "study.yaml").write_text(yaml.safe_dump({"conversation": rules, **settings}))


def study_with(run, **settings):
    set_study(run, **settings)
    return write_study(run, "conversation")


LINKS = {}  #: Of each address that is served, the path of the link by which people come.


class Talker:
    """Somebody who talks with the seekers, and sends what the pages send."""

    def __init__(self, address):
        self.address, self.session = address, requests.Session()

    def _read(self, answer):
        self.status, self.page = answer.status_code, answer.text
        return self.page

    def get(self, path="/"):
        return self._read(self.session.get(self.address + path, timeout=60))

    def send(self, path="/", **fields):
        return self._read(self.session.post(self.address + path, fields, timeout=60))

    def knock(self, name, code=""):
        """Come by the link, under a name."""
        key = parse_qs(urlsplit(LINKS[self.address]).query)["key"][0]
        self.send("/arrive", key=key, person=name, **({"code": code} if code else {}))
        shown = re.search(r'<strong id="code">([^<]*)', self.page)
        self.code = shown and shown[1]
        return self.get() if shown else self.page

    def agree(self, answer="yes"):
        return self.send(do="consent", age="yes", agree=answer)

    def begin(self, name):
        self.knock(name)
        self.agree()
        return self.send(do="begin")

    def field(self, name):
        form = self.page[self.page.find('class="turn"') :]
        found = re.search(rf'name="{name}" value="([^"]*)"', form)
        return found and found[1]

    def say(self, text, **fields):
        """Send a turn, and wait for the seeker's."""
        self.send(do="turn", page=self.field("page"), n=self.field("n"), text=text, **fields)
        return self.wait()

    def wait(self, seconds=60):
        end = time.monotonic() + seconds
        while 'http-equiv="refresh"' in self.page and time.monotonic() < end:
            self.get()
        return self.page

    def next(self):
        hidden = r'value="next"><input type="hidden" name="page" value="([^"]*)"'
        return self.send(do="next", page=re.search(hidden, self.page)[1])

    @property
    def main(self):
        """The name of the page that is shown."""
        return re.search(r'<main id="(\w+)"', self.page)[1]

    @property
    def turns(self):
        """What the page shows as said: speaker and words."""
        return re.findall(r'data-speaker="(\w+)"><span[^>]*>\w+</span>([^<]*)</div>', self.page)


@contextmanager
def serving_chats(folder, ask, seekers=(), budget_usd=None):
    """Serve a study's folder in a thread of this process, and give its address."""
    loop = asyncio.new_event_loop()
    started = threading.Event()
    where = []

    async def start():
        pages = Pages(Chats(folder, seekers), ask, budget_usd)
        bounds = {"keepalive_timeout": HEADER_S, "lingering_time": 0.5}
        runner = web.AppRunner(pages.app(), access_log=None, **bounds)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        address = f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"
        LINKS[address] = pages.door.link()
        where.append((runner, address))
        started.set()

    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    asyncio.run_coroutine_threadsafe(start(), loop)
    assert started.wait(30)
    runner, address = where[0]
    try:
        yield address
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(30)
        loop.close()


class StandIn:
    """A seeker that says what it is told to, call by call, and keeps what it was asked."""

    def __init__(self, *answers):
        self.answers, self.asked = list(answers), []

    def __call__(self, request):
        self.asked.append(request)
        said = self.answers.pop(0) if self.answers else f"Answer {len(self.asked)} of mine."
        if isinstance(said, Exception):
            raise said
        status, text = said if isinstance(said, tuple) else ("ok", said)
        named = {"text": text} if status == "ok" else {"error": text}
        counted = {"prompt_tokens": 10, "completion_tokens": 2, "cost_usd": 0.001}
        return Call(f"call-{len(self.asked)}", status, **named, **counted)


@contextmanager
def talking(folder, *answers, name="Ann"):
    """Serve a study whose seeker gives these answers, to somebody who has begun."""
    seeker = StandIn(*answers)
    with serving_chats(folder, seeker) as address:
        talker = Talker(address)
        talker.seeker = seeker
        talker.begin(name)
        yield talker


NEVER = "http://127.0.0.1:9"  #: Where nothing listens: these tests have a stand-in for the seeker.


def recipe(first=None, **changes):
    """Settings of a run with two seekers; `first` is what the first of them has besides."""
    at = {"api_base": NEVER, "price_prompt": 1, "price_completion": 2}
    return {
        "histories": "sample",
        "given_replies": False,
        "unit": "conversation",
        "exchanges": 2,
        "seekers": [
            {"name": "s", "model": "openai/s", "family": "three", **at, **(first or {})},
            {"name": "t", "model": "openai/t", "family": "four", **at},
        ],
        "budget_usd": 1,
        **changes,
    }


@pytest.fixture(scope="session")
def chat_template(tmp_path_factory):
    """A project with a study of conversations that nobody has begun, copied for each test."""
    root = tmp_path_factory.mktemp("chats")
    project(root, recipe())
    made = small_run(root / "runs" / "mine", 2)
    run = Run("mine", made.folder, root)
    run.write("histories", cross_seekers(made.read("histories"), ["s", "t"]))
    (run.folder / "replies.parquet").unlink()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEART_ROOT", str(root))
        study_with(run)
    return root


@pytest.fixture
def run(chat_template, tmp_path, monkeypatch):
    shutil.copytree(chat_template, tmp_path, symlinks=True, dirs_exist_ok=True)
    monkeypatch.setenv("HEART_ROOT", str(tmp_path))
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    return Run("mine", tmp_path / "runs" / "mine", tmp_path)


@pytest.fixture
def folder(run):
    return run.folder / "study" / "conversation"


def kept(folder, seat="seat-001"):
    return json.loads((folder / "answers" / f"{seat}.json").read_text())


def first_talk(folder):
    return next(iter(kept(folder)["talks"].values()))


FORM = {"Content-Type": "application/x-www-form-urlencoded"}


def sent(address, method="POST", path="/", body=b"", headers=FORM):
    """Send a request as it is; return its status and words."""
    asked = {"data": body, "headers": headers, "timeout": 60, "allow_redirects": False}
    answer = requests.request(method, address + path, **asked)
    return answer.status_code, answer.text
