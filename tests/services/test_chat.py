"""People who talk with simulated seekers in a browser: the real command, ledger and provider on loopback."""

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
from chat_case import project, set_study
from conversation_case import settings, speak
from server import Provider, serving

from heart_collect import collect, open_ledger
from heart_collect.judging.recipe import read_recipe
from heart_collect.people import raters
from heart_collect.people.raters import import_study
from heart_utils.runs import open_run
from tools.study_visitor import CHROMIUM_ARGUMENTS, Visitor

playwright_api = pytest.importorskip("playwright.async_api")
PlaywrightError, async_playwright = playwright_api.Error, playwright_api.async_playwright

pytestmark = [pytest.mark.services, pytest.mark.apart]

HERE = Path(__file__).parents[2]


@pytest.fixture
def provider():
    with serving(Provider(answer=speak, piece_s=0.0)) as running:
        yield running


@pytest.fixture
def run(tmp_path, provider, monkeypatch):
    """A collected run of two models and two seekers from three starts, two exchanges each."""
    slices = {"standard": 1, "adversarial": 1}
    project(tmp_path, settings(provider.address, exchanges=2, slices=slices))
    monkeypatch.setenv("HEART_ROOT", str(tmp_path))
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.delenv("HEART_LEDGER", raising=False)
    assert collect.main(["mine", "--quiet", "--yes"]) == 0
    return open_run("mine")


@contextmanager
def command(*more, port=None):
    """Start the study as its maker does, and give its address and link once it says so."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = port or probe.getsockname()[1]
    words = ["mine", "conversation", "--yes", "--port", str(port), *more]
    program = [sys.executable, "-m", "heart_collect.people.study", *words]
    server = subprocess.Popen(program, stdout=subprocess.PIPE, text=True, cwd=HERE)
    try:
        said = next(line for line in server.stdout if line.startswith("Open http"))
        address = f"http://127.0.0.1:{port}"
        yield server, address, said.split()[1].removeprefix(address)
    finally:
        server.terminate()
        assert server.wait(60) in (0, -signal.SIGKILL)


def begin(visitor, link, name):
    page = visitor.page
    code = visitor.arrive(link, name, until="#consent")
    page.check('[name="age"][value="yes"]')
    page.check('[name="agree"][value="yes"]')
    page.click("main button")
    page.click("#instructions >> text=Begin")
    page.wait_for_selector("#text")
    return code


def say(visitor, text):
    """Write a turn key by key, and wait for what the seeker says."""
    before = visitor.page.locator(".dialogue-turn").count()
    visitor.page.click("#text")
    visitor.page.keyboard.type(text, delay=20)
    visitor.page.click("button:has-text('Send')")
    visitor.page.wait_for_function(
        "n => document.querySelectorAll('.dialogue-turn').length >= n", arg=before + 2
    )


def said(visitor):
    return visitor.page.eval_on_selector_all(
        ".dialogue-turn", "turns => turns.map(turn => turn.lastChild.textContent)"
    )


def test_writers_leave_in_the_middle_reload_and_go_on_after_the_server_was_killed(
    run, provider, chromium
):
    """Ann comes back; Ben has no scripts, and Cy a telephone."""
    set_study(run, n_writers=4, writers_per_history=2)
    with command() as (server, address, link):
        ann = Visitor(chromium, address)
        code = begin(ann, link, "Ann Example")
        say(ann, "That sounds heavy.")
        turns = said(ann)
        ann.page.reload()
        assert said(ann) == turns
        ben = Visitor(chromium, address, java_script_enabled=False)
        begin(ben, link, "Ben")
        ben.page.fill("#text", "Tell me more.")
        ben.page.click("button:has-text('Send')")
        ben.page.wait_for_selector(".dialogue-turn[data-speaker=You]")
        ben.page.wait_for_selector("text=Turn 2 of 2")
        phone = Visitor(chromium, address, width=360, height=740)
        begin(phone, link, "Cy")
        say(phone, "An-unbreakable-word-" * 20)
        assert phone.page.evaluate("document.documentElement.scrollWidth") <= 360
        buttons = "all => all.map(one => one.getBoundingClientRect().height)"
        assert min(phone.page.eval_on_selector_all("button", buttons)) >= 44
        ann.page.fill("#text", "Never sent.")
        os.kill(server.pid, signal.SIGKILL)
        server.wait()
    asked = len(provider.requests)
    with command("--resume") as (_, address, link):
        again = Visitor(chromium, address)
        again.arrive(link, "Ann Example", code=code, until="#text")
        assert said(again) == turns
        assert len(provider.requests) == asked  # what was said is not asked for again
        say(again, "I am still here.")
        again.page.click("button:has-text('Go on')")
        again.page.wait_for_selector("#text")
        say(again, "Only one here.")
        again.page.click("button:has-text('Stop here')")
        again.page.click("button:has-text('Stop altogether')")
        again.page.wait_for_selector("#stopped")
        assert [*ann.outside, *phone.outside, *again.outside] == []
    assert raters.main(["mine", "conversation"]) == 0
    talks = run.read("conversations").query("responder == 'human'").set_index("stop_reason")
    assert sorted(talks.index) == ["left"] * 3 + ["length"]
    whole = talks.loc["length"]
    words = [turn["text"] for turn in whole["turns"]]
    assert words[::2] == ["That sounds heavy.", "I am still here."]
    assert whole["typing_ms"] > 0
    assert "pasted" not in whole["flags"]
    assert whole["turn_ms"][0] > 0

    assert collect.main(["mine", "--quiet", "--yes"]) == 0
    verdicts = run.read("verdicts")
    met = verdicts[(verdicts["responder_a"] == "human") | (verdicts["responder_b"] == "human")]
    columns = met[["unit", "seeker", "state"]].to_numpy().tolist()
    # one whole conversation, two models, both orders
    assert columns == [["conversation", whole["seeker"], "valid"]] * 2 * 2

    # the seeker's turns are a function of the person's and of the ledger: nothing is asked anew
    asked = len(provider.requests)
    start = run.read("histories").query("history_id == @whole.history_id")
    assert replay(read_recipe("mine"), start, whole) == words
    assert len(provider.requests) == asked


def replay(recipe, start, talk):
    """Say a person's turns again, and take the seeker's from the ledger alone."""
    from heart_collect.calls.engine import ask_all
    from heart_collect.people.chats import WrittenTalk

    seeker = next(one for one in recipe.seekers if one.name == talk["seeker"])
    told = {"supporter": recipe.instructions, "seeker": recipe.seeker_instructions}
    again = WrittenTalk(start.to_dict("records")[0], "human", seeker, 0, told, longest=False)
    ledger = open_ledger("mine")
    for turn in talk["turns"][::2]:
        again.write(turn["text"], {})
        request = again.request("seeker")
        again.take("seeker", request, ask_all([request], ledger=ledger, mode="replay")[0])
    return [turn["text"] for turn in again.turns]


async def take_part(page, address, link, name, together, up):
    """Hold every conversation in a browser; where the server is away, come again as people do."""
    page.set_default_timeout(60_000)
    await page.goto(address + link)
    await page.fill("#person", name)
    await page.press("#person", "Enter")
    await page.click("a.button")
    await page.check('[name="age"][value="yes"]')
    await page.check('[name="agree"][value="yes"]')
    await page.click("main button")
    await page.click("#instructions >> text=Begin")
    await page.wait_for_selector("#text")
    await together.wait()
    page.set_default_timeout(10_000)
    for _ in range(300):
        try:
            if await page.locator("main#debrief").count():
                return
            if await page.locator("form.turn").count():
                number = await page.input_value('form.turn [name="n"]')
                await page.fill("#text", f"{name} writes turn {int(number) // 2}.")
                await page.click("button:has-text('Send')")
            elif await page.locator("main button:text-is('Let it try again')").count():
                await page.click("main button:text-is('Let it try again')")
            elif await page.locator("main .buttons button").count():
                await page.click("main .buttons button")
            else:
                await page.wait_for_timeout(500)
                await page.goto(address)
        except PlaywrightError:
            await up.wait()  # until it is there again
            with suppress(PlaywrightError):
                await page.goto(address)
    raise AssertionError(f"{name} did not come to the end: {await page.inner_text('main')}")


async def twenty_browsers(address, link, server, come_back):
    """Let twenty people talk at once, each in a browser of their own; kill the server once."""
    program = shutil.which("chromium")
    async with async_playwright() as playwright:
        arguments = [*CHROMIUM_ARGUMENTS, *(["--no-sandbox"] if os.geteuid() == 0 else [])]
        chromium = await playwright.chromium.launch(executable_path=program, args=arguments)
        together, up = asyncio.Barrier(21), asyncio.Event()
        up.set()
        pages = [await (await chromium.new_context()).new_page() for _ in range(20)]
        people = [
            asyncio.create_task(take_part(page, address, link, f"p{n:02d}", together, up))
            for n, page in enumerate(pages)
        ]
        await together.wait()
        await asyncio.sleep(3)
        up.clear()
        os.kill(server.pid, signal.SIGKILL)
        server.wait()
        await asyncio.to_thread(come_back)
        up.set()
        await asyncio.gather(*people)
        await chromium.close()


def test_twenty_people_in_browsers_are_whole_after_faults_and_a_kill(run, provider):
    """15 % of calls fail, and the server is killed once while all of them talk."""
    set_study(run, n_writers=20, writers_per_history=5)
    provider.faults = {"500": 0.1, "429bare": 0.05}
    with ExitStack() as running, command() as (server, address, link):
        port = int(address.rsplit(":", 1)[1])

        def come_back():
            running.enter_context(command("--resume", port=port))

        asyncio.run(twenty_browsers(address, link, server, come_back))
    study = import_study(run, run.folder / "study" / "conversation")
    talks = study.conversations
    assert len(talks) == 2 * 2 * 5  # starts, seekers, people
    assert set(talks["stop_reason"]) == {"length"}
    assert study.raters["completed"].sum() == 20
    starts = run.read("histories").set_index("history_id")["turns"].map(len)
    for talk in talks.itertuples():
        first = starts[talk.history_id]
        texts = [turn["text"] for turn in talk.turns]
        # each says where they are, and each answer of the seeker's counts the turns it was shown
        assert [text[3:] for text in texts[::2]] == [" writes turn 0.", " writes turn 1."]
        assert len({text[:3] for text in texts[::2]}) == 1
        counted = [f"This is turn {first + n}, word {talk.seeker} says." for n in (2, 4)]
        assert texts[1::2] == counted
