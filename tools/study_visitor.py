"""A program that takes part in a study in a headless browser, for tests and screenshots."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

READY = "() => document.readyState === 'complete' && typeof navigateToNext === 'function'"
# Potato's own event: the page has put back what was answered, and clears no answer after it.
NOTE_RESTORED = "document.addEventListener('potato:instance-ready', () => { window.restored = 1 })"
CHROMIUM_ARGUMENTS = (
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    "--disable-gpu",
)


class BrowserMissing(RuntimeError):
    """No Chromium, or no playwright to drive it."""


def find_chromium() -> str | None:
    """Find the program of Debian's Chromium."""
    named = (os.environ.get("HEART_CHROMIUM", ""), "chromium", "chromium-browser")
    return next(filter(None, map(shutil.which, named)), None)


@contextmanager
def browser() -> Iterator[Any]:
    """Start Debian's Chromium without a window; as root it needs --no-sandbox."""
    try:
        sync_playwright = import_module("playwright.sync_api").sync_playwright
    except ImportError as error:
        raise BrowserMissing("playwright is not installed") from error
    program = find_chromium()
    if program is None:
        raise BrowserMissing("Chromium is not installed")
    arguments = [*CHROMIUM_ARGUMENTS, *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=program, args=arguments)
        try:
            yield chromium
        finally:
            chromium.close()


class Visitor:
    """Somebody who takes part.

    Attributes
    ----------
    page : playwright page
        What they look at.
    outside : list of str
        Addresses that the page asked for and that are not the study's own.
    """

    def __init__(
        self,
        chromium: Any,
        address: str,
        *,
        width: int = 1100,
        height: int = 900,
        java_script_enabled: bool = True,
    ) -> None:
        size = {"width": width, "height": height}
        context = chromium.new_context(viewport=size, java_script_enabled=java_script_enabled)
        self.page = context.new_page()
        self.page.set_default_timeout(90_000)
        self.page.add_init_script(NOTE_RESTORED)
        self.address = address
        self.outside: list[str] = []
        self.page.on("request", lambda request: self._note(request.url))

    def arrive(
        self, link: str, name: str = "", *, code: str = "", until: str = "#consent_text"
    ) -> str:
        """Come by a study's link, under a name where it asks for one; return the code."""
        self.page.goto(f"{self.address}{link}")
        for field, words in (("#person", name), ("input#code", code)):
            if words and self.page.locator(field).count():
                self.page.fill(field, words)
                self.page.press(field, "Enter")
                self.page.wait_for_selector("main:not(#name)")
        shown = self.page.inner_text("strong#code")
        self.page.click("a.button")
        self.page.wait_for_selector(until)
        return str(shown)

    def consent(self, *, agree: bool = True) -> None:
        """Answer the two questions under the consent page."""
        self.page.check('[name="consent_age"][value="yes"]')
        self.page.check(f'[name="consent_agree"][value="{"yes" if agree else "no"}"]')
        self.next("#instructions_text" if agree else "#declined_text")

    def practise(self, answers: tuple[str, ...] = ("A", "B")) -> None:
        """Go through the practice pages and read what is said after each."""
        for number, side in enumerate(answers, 1):
            self.next(f"#practice_{number}_text")
            self.page.check(f'[name="practice_{number}"][value="Reply {side}"]')
            self.next(f"[id^=practice_{number}_][id$=_text]:not(#practice_{number}_text)")
        self.next(".pairwise-tile")

    def read(self) -> tuple[str, str, str]:
        """Read the progress line and the two replies of the page."""
        self.page.wait_for_selector(".pairwise-content")
        left, right = self.page.eval_on_selector_all(
            ".pairwise-content", "cells => cells.map(cell => cell.innerText)"
        )
        return self.item(), left, right

    def item(self) -> str:
        """Return the id of the page shown, once it can be answered."""
        self.page.wait_for_function("() => window.restored")
        return str(self.page.eval_on_selector("#instance_id", "field => field.value"))

    def rate(self, side: str, strength: int | None, reason: str) -> None:
        """Choose, say how firmly and why, and go on."""
        before = self.item()
        self.page.click(
            ".pairwise-tie-btn" if side == "tie" else f'.pairwise-tile[data-value="{side}"]'
        )
        if strength is not None:
            self._choose(f'[name="strength"][value="{strength}"]')
        self.page.fill('textarea[schema="reason"]', reason)
        self._leave(before)

    def write(self, text: str, *, paste: bool = False) -> None:
        """Write a reply key by key, or paste it, and go on."""
        before = self.item()
        self.page.click('textarea[schema="reply"]')
        if paste:
            self.page.evaluate("text => navigator.clipboard.writeText(text)", text)
            self.page.keyboard.press("Control+V")
        else:
            self.page.keyboard.type(text, delay=2)
        self._leave(before)

    def turn_page(self) -> None:
        """Go on from a page that is answered already."""
        self._leave(self.item())

    def next(self, until: str) -> None:
        """Press Next, once the page is whole, and wait for what comes."""
        self.page.wait_for_function(READY)
        self.page.click("#next-btn")
        self.page.wait_for_selector(until)

    def _choose(self, selector: str) -> None:
        """Click until it is chosen: the question unfolds and scrolls, and a click can miss it."""
        answer = self.page.locator(selector)
        for _ in range(5):
            answer.click()
            if answer.is_checked():
                return
        raise RuntimeError(f"{selector}: five clicks did not choose it")

    def _leave(self, before: str) -> None:
        self.page.wait_for_timeout(150)  # the page saves what was typed a moment after the last key
        self.page.click("#next-btn")
        self.page.wait_for_function(
            "before => { const field = document.querySelector('#instance_id'); return"
            " document.querySelector('#debrief_text') || (field && field.value && field.value !=="
            " before); }",
            arg=before,
        )

    def _note(self, url: str) -> None:
        if not url.startswith((self.address, "data:", "blob:")):
            self.outside.append(url)


def potato_program() -> Path | None:
    """Find Potato where the study environment put it."""
    own = Path(__file__).resolve().parents[1] / ".venv-study" / "bin" / "potato"
    program = Path(os.environ.get("HEART_POTATO") or own)
    return program if program.is_file() else None
