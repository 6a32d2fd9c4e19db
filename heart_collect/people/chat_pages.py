"""The pages on which people talk with simulated seekers: a small server on one study's folder."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from heart_collect.calls.keys import NotAllowedError
from heart_collect.calls.models import Call, Request
from heart_collect.people.arrivals import COOKIE, Door, is_foreign
from heart_collect.people.chats import (
    LEFT,
    LONGEST,
    SHARES,
    TRIES,
    Chats,
    Writer,
    WrittenTalk,
)
from heart_collect.people.terms import LIMITS
from heart_utils.extras import extra
from heart_utils.identities import redact_message
from heart_utils.runs import RunError, visible_text

with extra("collect"):
    from aiohttp import web

if TYPE_CHECKING:
    from jinja2.environment import TemplateModule

__all__: list[str] = []

HEADER_S = 15.0  #: So long may a connection take for the head of a request.
BODY_S = 10.0  #: And so long for what it sends.
MOST_THREADS = 256  #: So many seekers are asked at once, and each may take its time.
WAIT_S = 3.0  #: So long a page waits for the seeker's turn before it is shown without it.
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; form-action 'self';"
        " frame-ancestors 'none'; base-uri 'none'"
    ),
    "Cache-Control": "no-store",
    "Referrer-Policy": "same-origin",  # with none, a form of our own would name no origin
    "X-Content-Type-Options": "nosniff",
}
FILES = ("study.css", "chat.css", "chat.js")

BROKEN = "Something went wrong here. What you sent before is kept: go back, and try again."

Form = Mapping[str, str]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Shown = web.StreamResponse | str | None
"""What an action leads to: a page, the name of a message on the page as it is, or that page."""


class Pages:
    """What is shown to whoever comes, and what is done with what they send."""

    def __init__(
        self,
        chats: Chats,
        ask: Callable[[Request], Call],
        template: TemplateModule,
        budget_usd: float | None = None,
    ) -> None:
        self.chats, self.ask = chats, ask
        self.share_usd = None if budget_usd is None else SHARES * budget_usd / len(chats.seats)
        self.threads = ThreadPoolExecutor(min(MOST_THREADS, len(chats.items)))
        self.settings = chats.about["settings"]
        self.template: Any = template
        self.texts = _texts(chats.folder) | {
            "rehearsal": self.settings["rehearsal"],
            "limits": f"{LIMITS}.",
            "longest": LONGEST,
        }
        self.door = Door(chats.about["secret"], self.settings["arrival"], chats)
        self.asking: dict[str, asyncio.Task[None]] = {}

    def app(self) -> web.Application:
        """Make the application that serves the pages."""
        app = web.Application(client_max_size=64 * 1024, middlewares=[_without_addresses])
        app.on_response_prepare.append(_protect)
        app.add_routes([web.get("/", self.show), web.post("/", self.act)])
        app.add_routes([web.get("/arrive", self.arrive), web.post("/arrive", self.arrive)])
        app.add_routes([web.get("/stop", self.show_stop)])
        app.add_routes([web.get(f"/{name}", self.send_file) for name in FILES])
        return app

    async def send_file(self, request: web.Request) -> web.StreamResponse:
        """Send a style or the script."""
        return web.FileResponse(self.chats.folder / request.path.removeprefix("/"))

    async def show(self, request: web.Request) -> web.StreamResponse:
        """Show the page at which somebody is."""
        return await self._page(request)

    async def arrive(self, request: web.Request) -> web.StreamResponse:
        """Let somebody in by a link, or say why not."""
        sent = {**request.query, **(await _sent(request) if request.method == "POST" else {})}
        step = self.door.knock(sent, request.cookies.get(COOKIE, ""))
        text = self.door.page(step, sent, self.chats.folder)
        status = {"link": 403, "code": 403, "name": 200, "enter": 200}[step.page]
        answer = web.Response(text=text, content_type="text/html", status=status)
        if step.cookie:
            secure = "https" in (request.scheme, request.headers.get("X-Forwarded-Proto"))
            answer.set_cookie(COOKIE, step.cookie, httponly=True, samesite="Lax", secure=secure)
        return answer

    async def show_stop(self, request: web.Request) -> web.StreamResponse:
        """Ask how much is to be stopped."""
        writer = self._writer(request)
        if writer is None or writer.page is None or writer.stopped:
            return _go_on()
        about = self._about(writer, writer.page) | {"waits": False}  # it is not looked at again
        return self._html("stop", talk=about)

    async def act(self, request: web.Request) -> web.StreamResponse:
        """Do what was sent, and show where it leads."""
        form = await _sent(request)
        does = form.get("do", "")
        writer = self._writer(request)
        if does == "consent" and writer is None:
            done = self._consent(request, form)
        elif does not in ACTIONS:
            raise web.HTTPBadRequest(text="This page sent something that it does not offer.")
        elif writer is None:
            return _go_on()
        else:
            try:
                done = ACTIONS[does](self, writer, form)
                self.chats.keep(writer)
            except RunError as error:
                _tell(error)
                self.chats.read_again(writer)  # what is not on the disk was not said
                done = "not_kept"
        if isinstance(done, web.StreamResponse):
            return done
        if done is not None:
            draft = form.get("text", "")
            return await self._page(request, done, "" if done == "out_of_date" else draft)
        if writer is not None and writer.page is not None:
            await self._wait(writer, writer.page)
        return _go_on()

    def _consent(self, request: web.Request, form: Form) -> Shown:
        place = self.door.whose(request.cookies.get(COOKIE, ""))
        if place is None:
            return _go_on()
        answers = {form.get("age"), form.get("agree")}
        if not answers <= {"yes", "no"}:
            return self._html("consent", message="consent")
        if answers != {"yes"}:
            return self._html("declined")
        try:
            writer = self.chats.arrive(*place)
        except RunError as error:
            _tell(error)
            return self._html("consent", message="not_kept")
        return self._html("full") if writer is None else None

    def _turn(self, writer: Writer, form: Form) -> Shown:
        talk = self._current(writer, form)
        if talk is None or talk.waits or talk.is_over(self.chats.exchanges):
            return "out_of_date"
        if form.get("n") != str(len(talk.turns)):
            return "out_of_date"
        text = visible_text("\n".join(form.get("text", "").splitlines())).strip()
        if not text:
            return "empty"
        if len(text) > LONGEST:
            return "too_long"
        seconds = None if talk.shown_at is None else max(time.time() - talk.shown_at, 0.0)
        pasted = _number(form.get("pasted"))
        measured = {
            "seconds": seconds,
            "typing_ms": _number(form.get("typing_ms")),
            "pasted_share": None if pasted is None else min(1.0, pasted / len(text)),
        }
        talk.write(text, measured)
        return None

    def _again(self, writer: Writer, form: Form) -> Shown:
        talk = self._current(writer, form)
        if talk is None or not talk.can_try:
            return "out_of_date"
        talk.try_again()
        return None

    def _next(self, writer: Writer, form: Form) -> Shown:
        talk = self._current(writer, form)
        if talk is None:
            return "out_of_date"
        if not talk.is_over(self.chats.exchanges):
            talk.leave(LEFT, "supporter")
        talk.closed = True
        return None

    def _comments(self, writer: Writer, form: Form) -> Shown:
        writer.comments = visible_text(form.get("comments", ""))[:LONGEST]
        return None

    def _current(self, writer: Writer, form: Form) -> WrittenTalk | None:
        """Return the conversation that a form is of, if it is the one that its writer is in."""
        page = writer.page
        return writer.talks[page] if page is not None and form.get("page") == page else None

    def _writer(self, request: web.Request) -> Writer | None:
        place = self.door.whose(request.cookies.get(COOKIE, ""))
        return None if place is None else self.chats.find(place[0])

    async def _page(
        self, request: web.Request, message: str = "", draft: str = ""
    ) -> web.StreamResponse:
        writer = self._writer(request)
        if writer is None:
            if self.door.whose(request.cookies.get(COOKIE, "")) is None:
                return await self.arrive(request)
            return self._html("consent", message=message)
        if writer.stopped:
            return self._html("stopped", message=message)
        if writer.page is None:
            name = "debrief" if writer.comments is None else "thanks"
            return self._html(name, message=message, finished=writer.finished)
        if not writer.began:
            return self._html("instructions", message=message)
        await self._wait(writer, writer.page)
        talk = writer.talks[writer.page]
        if talk.shown_at is None and not talk.waits and not talk.is_over(self.chats.exchanges):
            talk.shown_at = time.time()
            self.chats.keep(writer)
        about = self._about(writer, writer.page)
        return self._html("talk", message=message, draft=draft, talk=about)

    def _about(self, writer: Writer, page: str) -> dict[str, object]:
        """Return what the page of a conversation shows."""
        talk = writer.talks[page]
        over = talk.is_over(self.chats.exchanges)
        return {
            "page": page,
            "number": [*writer.talks].index(page) + 1,
            "of": len(writer.talks),
            "before": [_spoken(turn, "Supporter") for turn in talk.start["turns"]],
            "said": [_spoken(turn, "You") for turn in talk.turns],
            "waits": talk.waits,
            "over": over,
            "reason": talk.reason or "length",
            "again": talk.can_try,
            "exchange": talk.exchanges + 1,
            "exchanges": self.chats.exchanges,
        }

    async def _wait(self, writer: Writer, page: str) -> None:
        """Have the seeker asked where it is its turn, and wait a moment for what it says."""
        if writer.talks[page].waits and page not in self.asking:
            self.asking[page] = asyncio.create_task(self._answer(writer, page))
        if page in self.asking:
            await asyncio.wait({self.asking[page]}, timeout=WAIT_S)

    async def _answer(self, writer: Writer, page: str) -> None:
        """Ask the seeker, and keep its turn or why there is none."""
        talk = writer.talks[page]
        try:
            request = talk.request("seeker")
            try:
                if self.share_usd is not None and writer.spent_usd >= self.share_usd:
                    talk.tries = TRIES
                    raise NotAllowedError(f"{writer.seat} has used up its share of the budget.")
                loop = asyncio.get_running_loop()
                call = await loop.run_in_executor(self.threads, self.ask, request)  # type: ignore[arg-type]
            except Exception as error:  # whatever it is, its writer must not wait for ever
                _tell(error)
                if talk.waits:
                    talk.leave("error", "seeker")
            else:
                if talk.waits:  # its writer may have left meanwhile
                    talk.take("seeker", request, call)
            self.chats.keep(writer)
        except RunError as error:
            _tell(error)
        finally:
            self.asking.pop(page, None)

    def _html(self, name: str, **values: object) -> web.Response:
        codes = {
            "completion": self.settings["completion_code"],
            "stopped": self.settings["stopped_code"],
            "screened_out": self.settings["screened_out_code"] if self.door.platform else "",
        }
        text = self.template.show(
            name, self.texts, codes=codes, arrival=self.door.platform, **values
        )
        status = 422 if values.get("message") else 200
        return web.Response(text=str(text), content_type="text/html", status=status)


def _press(name: str, value: bool, _: Pages, writer: Writer, __: Form) -> None:
    """Note that somebody began, stopped or goes on."""
    setattr(writer, name, value)


ACTIONS: dict[str, Callable[[Pages, Writer, Form], Shown]] = {
    "begin": partial(_press, "began", True),
    "turn": Pages._turn,
    "again": Pages._again,
    "next": Pages._next,
    "stop": partial(_press, "stopped", True),
    "resume": partial(_press, "stopped", False),
    "comments": Pages._comments,
}


def serve_chats(
    chats: Chats,
    ask: Callable[[Request], Call],
    *,
    host: str,
    port: int,
    ready: Callable[[], None],
    budget_usd: float | None = None,
) -> None:
    """Serve a study until a signal ends it; what was said is on the disk at any time."""
    # its own notes of a bad request hold the address and the cookie of who sent it
    logging.getLogger("aiohttp").disabled = True
    logging.getLogger("aiohttp.server").disabled = True
    pages = Pages(chats, ask, load_pages(chats.folder), budget_usd)
    # what it would print, once it listens, is said by `ready`
    web.run_app(
        pages.app(),
        host=host,
        port=port,
        access_log=None,
        keepalive_timeout=HEADER_S,
        print=lambda *_: ready(),
    )
    pages.threads.shutdown(wait=False, cancel_futures=True)


async def _sent(request: web.Request) -> dict[str, str]:
    """Read a form of words alone; whatever else comes is refused, or not waited for."""
    if request.content_type != "application/x-www-form-urlencoded":
        raise web.HTTPBadRequest(text="This page takes words, and no files.")
    if is_foreign(request.headers, request.host):
        raise web.HTTPForbidden(text="This form came from another site.")
    try:
        async with asyncio.timeout(BODY_S):
            body = await request.read()
        text = body.decode(request.charset or "utf-8")
        return dict(parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=20))
    except (ValueError, LookupError):
        raise web.HTTPBadRequest(text="This was not text that the page can read.") from None
    except TimeoutError:
        raise web.HTTPRequestTimeout(headers={"Connection": "close"}) from None


def load_pages(*folders: Path) -> TemplateModule:
    """Load the macros that make the pages, from the first folder that has them."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    pages = Environment(
        loader=FileSystemLoader(folders), undefined=StrictUndefined, autoescape=True
    )
    return pages.get_template("chat.html.jinja").module


def _texts(folder: Path) -> dict[str, Any]:
    """Read the texts of a study, which were filled in and escaped as it was written."""
    from markupsafe import Markup

    files = (folder / "pages").glob("*.html")
    return {file.stem: Markup(file.read_text(encoding="utf-8")) for file in files}  # noqa: S704


def _spoken(turn: Mapping[str, str], supporter: str) -> dict[str, str]:
    speaker = supporter if turn["speaker"] == "supporter" else "Seeker"
    return {"speaker": speaker, "text": visible_text(turn["text"])}


def _go_on() -> web.Response:
    """Lead to the page at which somebody is, so that a reload sends nothing twice."""
    return web.Response(status=303, headers={"Location": "/"})


def _number(given: object) -> float | None:
    """Read a number that a browser sent; None where it is none."""
    try:
        number = float(str(given))
    except ValueError:
        return None
    return number if 0 <= number < 1e9 else None


def _tell(error: Exception) -> None:
    """Tell whoever runs the study what went wrong."""
    print(f"warning: {redact_message(f'{type(error).__name__}: {error}')}", file=sys.stderr)


@web.middleware
async def _without_addresses(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Tell of a fault here, since the server's own note of it holds somebody's address."""
    try:
        return await handler(request)
    except web.HTTPException:
        raise
    except Exception as error:
        _tell(error)
        return web.Response(status=500, text=BROKEN)


async def _protect(_: web.BaseRequest, response: web.StreamResponse) -> None:
    response.headers.update(HEADERS)
