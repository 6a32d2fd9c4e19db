"""Conversations that people hold with simulated seekers: kept, read back, and their pages."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import numpy as np
import pandas as pd

from heart_collect.calls.engine import ask_all
from heart_collect.calls.ledger import Ledger
from heart_collect.calls.models import Call, Model, NotAllowedError, Request
from heart_collect.judging.design import digest
from heart_collect.judging.recipe import Recipe
from heart_collect.judging.respond import COUNTED, STAND_IN, Talk, plan_talks
from heart_collect.people.arrivals import COOKIE, Door, is_foreign, load_template, same_name
from heart_collect.people.assignment import StudyError
from heart_collect.people.exports import (
    LIMITS,
    PASTED_SHARE,
    check_people,
    load_about,
    load_items,
    load_json,
)
from heart_utils.identities import redact_contacts, redact_message
from heart_utils.runs import RunError, visible_text, write_atomically
from heart_utils.settings import JsonObject, extra

with extra("collect"):
    from aiohttp import web

__all__: list[str] = []

WRITER = "human"  #: The responder that all people are; ``author_id`` tells them apart.
LONGEST = 1_500  #: Characters of a turn; each turn after it is asked with all of them.
#: What a conversation needs of its history.
STARTED = ("history_id", "start_id", "dialogue_id", "slice", "seeker", "turns", "simulated")
TRIES = 2  #: So often may the seeker try again in a conversation.
SILENT_S = 1_800.0  #: A place in which no word was written is given on after so long.
SHARES = 2.0  #: Nobody's conversations may cost more than so many equal shares of the budget.
LEFT = "left"  #: The reason of a conversation that its writer ended before its end.
ASKED_AGAIN = ("error", "empty")  #: Failures of a seeker's turn after which another try may help.

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

#: A button -> what it notes of the writer.
PRESSED = {"begin": ("began", True), "stop": ("stopped", True), "resume": ("stopped", False)}
ON_A_TALK = ("turn", "again", "next")  #: Buttons of a conversation.

Form = Mapping[str, str]


@dataclass
class WrittenTalk(Talk):
    """A conversation whose supporter is a person."""

    #: Of each turn of the person: how long it took and was typed, and what share was pasted.
    measured: list[dict[str, float | None]] = field(default_factory=list)
    shown_at: float | None = None  #: When the person first saw the seeker's last turn.
    closed: bool = False  #: Whether the person has gone on from it.
    tries: int = 0  #: How often the person let the seeker try again.
    spent_usd: float = 0.0  #: On the seeker's turns, also those that came to nothing.

    def request(self, speaker: str) -> Request | None:
        """Build the request for a seeker's turn; none for the supporter's."""
        return None if speaker == "supporter" else super().request(speaker)

    def take(self, speaker: str, request: Request | None, call: Call | None) -> None:
        """Read a seeker's turn; a supporter's, in a plan, is a guess."""
        if speaker == "seeker":
            super().take(speaker, request, call)
            self.spent_usd += (call and call.cost_usd) or 0.0
            self.shown_at = None
            return
        self.calls.append(None)
        text = ("filler " * LONGEST)[:LONGEST] if self.longest else STAND_IN
        self._say(speaker, text, ["planned"])

    def write(self, text: str, measured: Mapping[str, float | None]) -> None:
        """Add what the person wrote, contacts taken out."""
        kept = redact_contacts(text)
        self.calls.append(None)
        self._say("supporter", kept, ["redacted"] * (kept != text))
        self.measured.append(dict(measured))

    def leave(self, reason: str, by: str) -> None:
        self._end(reason, by)

    def try_again(self) -> None:
        del self.calls[len(self.turns) :]  # the call that gave no turn
        self.reason = self.by = None
        self.tries += 1

    @property
    def can_try(self) -> bool:
        """Whether a seeker's failed turn may be asked again."""
        return self.reason in ASKED_AGAIN and self.tries < TRIES

    @property
    def waits(self) -> bool:
        """Whether the seeker is next."""
        return self.reason is None and bool(self.turns) and self.turns[-1]["speaker"] != "seeker"

    def is_over(self, exchanges: int) -> bool:
        return self.reason is not None or self.exchanges >= exchanges

    def kept(self) -> JsonObject:
        """Return what is written on the disk."""
        counted = ("call_id", "status", *COUNTED)
        calls = [call and {name: getattr(call, name) for name in counted} for call in self.calls]
        return {name: getattr(self, name) for name in KEPT} | {"calls": calls}

    def restore(self, kept: Mapping[str, Any]) -> None:
        for name in KEPT:
            setattr(self, name, kept.get(name, getattr(self, name)))
        self.calls = [call and Call(**call) for call in kept["calls"]]


KEPT = (
    *("turns", "flags", "reason", "by", "measured", "shown_at", "closed", "tries", "spent_usd"),
)


@dataclass
class Writer:
    """Somebody who takes part."""

    person: str  #: As they called themselves, or a platform did.
    browser: str  #: What the cookie of their browser holds beside the name.
    seat: str
    talks: dict[str, WrittenTalk]  #: By page, in the order of the seat.
    began: bool = False  #: Whether they have read the instructions.
    stopped: bool = False
    comments: str | None = None  #: What they said at the end; None before.

    @property
    def page(self) -> str | None:
        """The conversation they are in, if one is left."""
        return next((page for page, talk in self.talks.items() if not talk.closed), None)

    @property
    def silent(self) -> bool:
        return not any(talk.measured for talk in self.talks.values())

    @property
    def finished(self) -> bool:
        """Whether they wrote in every conversation, to its end."""
        talks = self.talks.values()
        return self.page is None and all(one.measured and one.reason != LEFT for one in talks)

    @property
    def spent_usd(self) -> float:
        return sum(talk.spent_usd for talk in self.talks.values())


class Chats:
    """A study in its folder; each change is on the disk before it is shown."""

    def __init__(self, folder: Path, seekers: Sequence[Model] = ()) -> None:
        self.folder = folder
        self.about: JsonObject = load_about(folder)
        self.exchanges = int(self.about["exchanges"])
        # models without an address where what was said is only read, and no one is asked
        self._seekers = {name: Model(name, name) for name in self.about["seekers"]}
        self._seekers |= {seeker.name: seeker for seeker in seekers}
        self.items = {str(item["id"]): item for item in load_items(folder)}
        self.seats: dict[str, list[str]] = {}
        for page, item in self.items.items():
            self.seats.setdefault(item["seat"], []).append(page)
        files = sorted((folder / "answers").glob("*.json"))
        self.writers = {writer.seat: writer for writer in map(self._read, files)}

    def arrive(self, person: str, browser: str) -> Writer | None:
        """Give the next free seat; None where all are taken."""
        if all(seat in self.writers for seat in self.seats):
            self._free_a_seat()
        seat = next((seat for seat in self.seats if seat not in self.writers), None)
        if seat is None:
            return None
        writer = Writer(person, browser, seat, self.talks(seat))
        self.keep(writer)
        self.writers[seat] = writer
        return writer

    def _free_a_seat(self) -> None:
        """Free the seat of the first who was silent for long."""
        silent = [one for one in self.writers.values() if one.silent]
        ages = {one.seat: time.time() - self._file(one.seat).stat().st_mtime for one in silent}
        if ages and ages[first := max(ages, key=ages.__getitem__)] > SILENT_S:
            self._file(first).unlink()
            del self.writers[first]

    def find(self, person: str) -> Writer | None:
        writers = self.writers.values()
        return next((one for one in writers if same_name(one.person) == same_name(person)), None)

    def get(self, name: str) -> tuple[str, str] | None:
        """Look up a name and its browser."""
        writer = self.find(name)
        return None if writer is None else (writer.person, writer.browser)

    def _file(self, seat: str) -> Path:
        return self.folder / "answers" / f"{seat}.json"

    def keep(self, writer: Writer) -> None:
        """Write all that somebody did, whole or not at all."""
        state = {
            **{name: getattr(writer, name) for name in OF_WRITER},
            "talks": {page: talk.kept() for page, talk in writer.talks.items()},
        }
        content = (json.dumps(state, ensure_ascii=False, indent=1) + "\n").encode()
        write_atomically(self._file(writer.seat), content, private=True)

    def read_again(self, writer: Writer) -> None:
        before = self._read(self._file(writer.seat))
        for name in (*OF_WRITER, "talks"):
            setattr(writer, name, getattr(before, name))

    def talks(self, seat: str) -> dict[str, WrittenTalk]:
        instructions = self.about["instructions"]
        return {
            page: WrittenTalk(
                start=self.items[page]["start"],
                responder=WRITER,
                seeker=self._seekers[self.items[page]["start"]["seeker"]],
                repeat=0,
                instructions=instructions,
                longest=False,
            )
            for page in self.seats[seat]
        }

    def _read(self, file: Path) -> Writer:
        state = load_json(file)
        lacks = [name for name in (*OF_WRITER, "talks") if name not in state]
        if lacks or state["seat"] not in self.seats:
            raise StudyError(
                f"{file} lacks {', '.join(lacks) or 'a seat of this study'}: it is not whole, or of"
                " another study. Copy it again."
            )
        talks = self.talks(state["seat"])
        if strange := sorted(set(state["talks"]) - set(talks)):
            raise StudyError(
                f"{file} has a conversation that was never shown in this study, {strange[0]!r}. Is"
                " it from another folder?"
            )
        for page, kept in state["talks"].items():
            talks[page].restore(kept)
        return Writer(**{name: state[name] for name in OF_WRITER}, talks=talks)


OF_WRITER = [one.name for one in fields(Writer) if one.name != "talks"]


def read_chats(folder: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Read a study: one row a person, and one a conversation begun."""
    study = Chats(folder)
    writers = list(study.writers.values())
    if not writers:
        raise StudyError(
            f"{folder} holds no answers (looked for answers/*.json). Has anyone begun?"
        )
    check_people({f"{folder / 'answers' / one.seat}.json": one.person for one in writers})
    people, rows = [], []
    for writer in writers:
        done = 0
        for page, talk in writer.talks.items():
            if not talk.is_over(study.exchanges) and talk.turns:
                talk.leave(*(("error", "seeker") if talk.waits else (LEFT, "supporter")))
            done += talk.is_over(study.exchanges) and talk.reason != LEFT
            if talk.turns:
                rows.append({"person": writer.person, "item_id": page, "talk": talk})
        people.append(
            {
                "person": writer.person,
                "n_shown": len(writer.talks),
                "n_answered": done,
                "n_checks": 0,
                "n_checks_passed": 0,
                "completed": writer.page is None and done == len(writer.talks),
            }
        )
    begun = pd.DataFrame(rows, columns=["person", "item_id", "talk"])
    begun["history_id"] = [talk.start["history_id"] for talk in begun["talk"]]
    return pd.DataFrame(people), begun


def conversation_row(talk: WrittenTalk, study: str, code: str, *, simulated: bool) -> JsonObject:
    measured = iter(talk.measured)
    by_turn = [next(measured) if turn["speaker"] == "supporter" else {} for turn in talk.turns]
    typed = [one["typing_ms"] for one in talk.measured if one["typing_ms"] is not None]
    pasted = any((one["pasted_share"] or 0) >= PASTED_SHARE for one in talk.measured)
    seconds = [one.get("seconds") for one in by_turn]
    row = talk.row()
    return row | {
        "conversation_id": f"human-{digest(study, code, row['history_id'])}",
        "author_id": code,
        "turn_ms": [np.nan if time_ is None else 1000 * time_ for time_ in seconds],
        "typing_ms": sum(typed) if typed else None,
        "flags": [*row["flags"], *["pasted"] * pasted],
        "simulated": simulated or row["simulated"],
    }


def seeker_digests(recipe: Recipe) -> dict[str, str]:
    """Hash by name what makes each seeker speak as it does."""
    part = recipe.seeker_instructions
    return {
        one.name: digest(one.identity, json.dumps(one.options, sort_keys=True), part)
        for one in recipe.seekers
    }


def refuse_other_seekers(recipe: Recipe, about: Mapping[str, Any], folder: Path) -> None:
    """Refuse other seekers than the study was written with."""
    digests = seeker_digests(recipe)
    changed = [name for name, was in about["seekers"].items() if digests.get(name) != was]
    if changed:
        raise StudyError(
            f"{', '.join(changed)}: the seeker is not there any more, or its model, options or"
            f" instructions changed since {folder} was written. Two seekers would have one name."
            " Set it back, or write another study by --name."
        )


def chat_settings(recipe: Recipe) -> JsonObject:
    return {
        "exchanges": recipe.exchanges,
        "instructions": {
            "supporter": recipe.instructions,
            "seeker": recipe.seeker_instructions,
        },
        "seekers": seeker_digests(recipe),
    }


def plan_turns(chats: Chats, recipe: Recipe, ledger: Ledger) -> pd.DataFrame:
    """Count the seekers' turns, all seats taken, and their cost."""
    talks: list[Talk] = [talk for seat in chats.seats for talk in chats.talks(seat).values()]
    plan = plan_talks(talks, recipe.exchanges, ledger)
    return plan.rename(columns={"responder": "model"}).assign(n=plan["n_calls"])


def describe_turns(plan: pd.DataFrame) -> str:
    models = ", ".join(plan["model"])
    money = plan[["cost_usd", "at_most_usd"]]
    if money.isna().any(axis=None):
        cost = "at a price that is not known"
    else:
        usual, most = money.sum()
        cost = f"for about {usual:.2f} USD at list price, and at most {most:.2f}"
    return (
        f"The seekers ({models}) are asked for up to {int(plan['n'].sum())} turns if all seats are"
        f" taken, {cost}. What people write is sent to them."
    )


def ask_seeker(request: Request, *, ledger: Ledger, budget_usd: float | None) -> Call:
    return ask_all([request], ledger=ledger, budget_usd=budget_usd, progress=False)[0]


class Pages:
    """What is shown to whoever comes, and done with what they send."""

    def __init__(
        self,
        chats: Chats,
        ask: Callable[[Request], Call],
        budget_usd: float | None = None,
    ) -> None:
        self.chats, self.ask = chats, ask
        self.share_usd = None if budget_usd is None else SHARES * budget_usd / len(chats.seats)
        self.threads = ThreadPoolExecutor(min(MOST_THREADS, len(chats.items)))
        self.settings = chats.about["settings"]
        self.template = load_template("chat.html.jinja", chats.folder).module
        self.texts = _texts(chats.folder) | {
            "rehearsal": self.settings["rehearsal"],
            "limits": f"{LIMITS}.",
            "longest": LONGEST,
        }
        self.door = Door(chats.about["secret"], self.settings["arrival"], chats)
        self.asking: dict[str, asyncio.Task[None]] = {}

    def app(self) -> web.Application:
        app = web.Application(client_max_size=64 * 1024, middlewares=[_without_addresses])
        app.on_response_prepare.append(_protect)
        app.add_routes(
            [
                web.get("/", self.show),
                web.post("/", self.act),
                web.get("/arrive", self.arrive),
                web.post("/arrive", self.arrive),
                web.get("/stop", self.show_stop),
                *(web.get(f"/{name}", self.send_file) for name in FILES),
            ]
        )
        return app

    async def send_file(self, request: web.Request) -> web.StreamResponse:
        return web.FileResponse(self.chats.folder / request.path.removeprefix("/"))

    async def arrive(self, request: web.Request) -> web.StreamResponse:
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
        writer = self._writer(request)
        if writer is None or writer.page is None or writer.stopped:
            return _go_on()
        about = self._about(writer, writer.page) | {"waits": False}  # it is not looked at again
        return self._html("stop", talk=about)

    async def act(self, request: web.Request) -> web.StreamResponse:
        form = await _sent(request)
        does = form.get("do", "")
        writer = self._writer(request)
        if does == "consent" and writer is None:
            return self._consent(request, form)
        if does not in (*PRESSED, *ON_A_TALK, "comments"):
            raise web.HTTPBadRequest(text="This page sent something that it does not offer.")
        if writer is None:
            return _go_on()
        try:
            message = self._do(does, writer, form)
            self.chats.keep(writer)
        except RunError as error:
            _tell(error)
            self.chats.read_again(writer)  # what is not on the disk was not said
            message = "not_kept"
        if message:
            draft = "" if message == "out_of_date" else form.get("text", "")
            return await self.show(request, message, draft)
        if writer.page is not None:
            await self._wait(writer, writer.page)
        return _go_on()

    def _consent(self, request: web.Request, form: Form) -> web.StreamResponse:
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
        return self._html("full") if writer is None else _go_on()

    def _do(self, does: str, writer: Writer, form: Form) -> str:
        """Do what a button says, or name the message why not."""
        if does in PRESSED:
            setattr(writer, *PRESSED[does])
            return ""
        if does == "comments":
            writer.comments = visible_text(form.get("comments", ""))[:LONGEST]
            return ""
        page = writer.page
        if page is None or form.get("page") != page:
            return "out_of_date"
        talk = writer.talks[page]
        over = talk.is_over(self.chats.exchanges)
        if does == "turn":
            there = form.get("n") == str(len(talk.turns)) and not talk.waits and not over
            return self._turn(talk, form) if there else "out_of_date"
        if does == "next":
            if not over:
                talk.leave(LEFT, "supporter")
            talk.closed = True
            return ""
        if not talk.can_try:
            return "out_of_date"
        talk.try_again()
        return ""

    def _turn(self, talk: WrittenTalk, form: Form) -> str:
        text = visible_text("\n".join(form.get("text", "").splitlines())).strip()
        if not text:
            return "empty"
        if len(text) > LONGEST:
            return "too_long"
        pasted = _number(form.get("pasted"))
        measured = {
            "seconds": None if talk.shown_at is None else max(time.time() - talk.shown_at, 0.0),
            "typing_ms": _number(form.get("typing_ms")),
            "pasted_share": None if pasted is None else min(1.0, pasted / len(text)),
        }
        talk.write(text, measured)
        return ""

    def _writer(self, request: web.Request) -> Writer | None:
        place = self.door.whose(request.cookies.get(COOKIE, ""))
        return None if place is None else self.chats.find(place[0])

    async def show(
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
        """Have the seeker asked, and wait a moment for its turn."""
        if writer.talks[page].waits and page not in self.asking:
            self.asking[page] = asyncio.create_task(self._answer(writer, page))
        if page in self.asking:
            await asyncio.wait({self.asking[page]}, timeout=WAIT_S)

    async def _answer(self, writer: Writer, page: str) -> None:
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


def serve_chats(
    chats: Chats,
    ask: Callable[[Request], Call],
    *,
    host: str,
    port: int,
    ready: Callable[[], None],
    budget_usd: float | None = None,
) -> None:
    # its own notes of a bad request hold the address and the cookie of who sent it
    logging.getLogger("aiohttp").disabled = True
    logging.getLogger("aiohttp.server").disabled = True
    pages = Pages(chats, ask, budget_usd)
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
    """Read a form, bounded in size and time."""
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


def _texts(folder: Path) -> dict[str, Any]:
    from markupsafe import Markup

    files = (folder / "pages").glob("*.html")
    return {file.stem: Markup(file.read_text(encoding="utf-8")) for file in files}  # noqa: S704


def _spoken(turn: Mapping[str, str], supporter: str) -> dict[str, str]:
    speaker = supporter if turn["speaker"] == "supporter" else "Seeker"
    return {"speaker": speaker, "text": visible_text(turn["text"])}


def _go_on() -> web.Response:
    return web.Response(status=303, headers={"Location": "/"})


def _number(given: str | None) -> float | None:
    return float(given) if given and re.fullmatch(r"[0-9]{1,9}(\.[0-9]+)?", given) else None


def _tell(error: Exception) -> None:
    print(f"warning: {redact_message(f'{type(error).__name__}: {error}')}", file=sys.stderr)


@web.middleware
async def _without_addresses(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Tell of a fault here: the server's own note holds an address."""
    try:
        return await handler(request)
    except web.HTTPException:
        raise
    except Exception as error:
        _tell(error)
        return web.Response(status=500, text=BROKEN)


async def _protect(_: web.BaseRequest, response: web.StreamResponse) -> None:
    response.headers.update(HEADERS)
