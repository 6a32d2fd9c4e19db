"""A run with two simulated seekers at one address, and somebody who talks with them without a browser."""

import asyncio
import http.client
import json
import re
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from contextlib import contextmanager
from http.cookiejar import CookieJar

import pytest
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
        (folder / name).write_bytes((find_root() / name).read_bytes())
    (folder / "data").symlink_to(find_root() / "data")
    (folder / "params").mkdir()
    said = {"chapters": [], "collect": collect}
    (folder / "params" / "mine.yaml").write_text(yaml.safe_dump(said))


def chat_run(folder, n_starts=2):
    """Write the histories of a run of conversations, as `make collect` does."""
    made = small_run(folder / "runs" / "mine", n_starts)
    run = Run("mine", made.folder, folder)
    run.write("histories", cross_seekers(made.read("histories"), ["s", "t"]))
    (run.folder / "replies.parquet").unlink()
    return run


def few(**changes):
    """Settings for two people, each with one conversation from each of two starts."""
    return {"conversation": {"n_writers": 4, "spare": 0, **changes}}


LINKS = {}  #: Of each address that is served, the path of the link by which people come.


class Talker:
    """Somebody who talks with the seekers, and sends what the pages send."""

    def __init__(self, address):
        self.address = address
        self.opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))

    def get(self, path="/"):
        with self.opener.open(self.address + path, timeout=60) as answer:
            self.page = answer.read().decode()
        return self.page

    def send(self, path="/", **fields):
        data = urllib.parse.urlencode(fields).encode()
        try:
            with self.opener.open(self.address + path, data, timeout=60) as answer:
                self.page = answer.read().decode()
        except urllib.error.HTTPError as error:
            self.page = error.read().decode()
        return self.page

    def knock(self, name, code=""):
        """Come by the link, under a name."""
        key = urllib.parse.parse_qs(urllib.parse.urlsplit(LINKS[self.address]).query)["key"][0]
        self.send("/arrive", key=key, person=name, **({"code": code} if code else {}))
        shown = re.search(r'<strong id="code">([^<]*)', self.page)
        self.code = shown and shown[1]
        return self.get() if shown else self.page

    def arrive(self, name, *, agree="yes"):
        self.knock(name)
        return self.send(do="consent", age="yes", agree=agree)

    def begin(self, name):
        self.arrive(name)
        return self.send(do="begin")

    def field(self, name):
        found = re.search(
            rf'name="{name}" value="([^"]*)"', self.page[self.page.find('class="turn"') :]
        )
        return found and found[1]

    def say(self, text, **fields):
        """Send a turn, and wait for the seeker's."""
        self.send(
            **{
                "do": "turn",
                "page": self.field("page"),
                "n": self.field("n"),
                "text": text,
                **fields,
            }
        )
        return self.wait()

    def wait(self, seconds=60):
        end = time.monotonic() + seconds
        while 'http-equiv="refresh"' in self.page and time.monotonic() < end:
            self.get()
        return self.page

    def next(self):
        page = re.search(
            r'value="next"><input type="hidden" name="page" value="([^"]*)"', self.page
        )
        return self.send(do="next", page=page[1])

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
        runner = web.AppRunner(
            pages.app(), access_log=None, keepalive_timeout=HEADER_S, lingering_time=0.5
        )
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


NEVER = "http://127.0.0.1:9"  #: Where nothing listens: these tests have a stand-in for the seeker.


def recipe(**changes):
    at = {"api_base": NEVER, "price_prompt": 1, "price_completion": 2}
    return {
        "histories": "sample",
        "given_replies": False,
        "unit": "conversation",
        "exchanges": 2,
        "seekers": [
            {"name": "s", "model": "openai/s", "family": "three", **at},
            {"name": "t", "model": "openai/t", "family": "four", **at},
        ],
        "budget_usd": 1,
        **changes,
    }


@pytest.fixture
def run(tmp_path, monkeypatch):
    project(tmp_path, recipe())
    monkeypatch.setenv("HEART_ROOT", str(tmp_path))
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    run = chat_run(tmp_path)
    (run.folder / "study.yaml").write_text(yaml.safe_dump(few(n_writers=2)))
    return run


@pytest.fixture
def folder(run):
    return write_study(run, "conversation")


def kept(folder, seat="seat-001"):
    return json.loads((folder / "answers" / f"{seat}.json").read_text())


FORM = {"Content-Type": "application/x-www-form-urlencoded"}


def sent(address, method="POST", path="/", body=b"", headers=FORM):
    """Send a request as it is; return its status and words."""
    connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=60)
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode("utf-8", "replace")
    finally:
        connection.close()
