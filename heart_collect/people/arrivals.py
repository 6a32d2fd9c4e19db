"""Who may come in to a study, and how somebody comes back.

A signed link lets a browser in once; another needs the code. Copied beside Potato, the file
imports the standard library, itsdangerous and Jinja alone.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

__all__: list[str] = []

COOKIE = "place"
NAME_LENGTH = 80
IDS = {"PROLIFIC_PID": "[0-9a-f]{24}", "workerId": "A[0-9A-Z]{6,30}"}
"""The parameter in which a platform puts somebody's id, and the form of such an id."""
PLATFORMS = {"prolific": ("Prolific", "PROLIFIC_PID"), "mturk": ("Mechanical Turk", "workerId")}
"""An arrival by a platform -> its name, and the parameter of the address that holds somebody's id
there."""


@dataclass(frozen=True)
class Step:
    """A page to show somebody at the door, and the cookie that it sets."""

    page: str
    person: str = ""
    cookie: str = ""
    message: str = ""


class Taken(Protocol):
    """Who has a place: by ``same_name``, the name and its browser."""

    def get(self, name: str, /) -> tuple[str, str] | None:
        """Look up who has a place under a name."""


class Door:
    """The door of a study; its secret signs links and cookies."""

    def __init__(self, secret: str, arrival: str, taken: Taken) -> None:
        from itsdangerous import BadData, Signer, URLSafeSerializer

        self._foreign = (BadData, UnicodeError, TypeError, ValueError)
        self.arrival, self.taken, self._secret = arrival, taken, secret
        self.platform, self.parameter = PLATFORMS.get(arrival, ("", ""))
        self._links = Signer(secret, salt="link", digest_method=hashlib.sha256)
        self._cookies = URLSafeSerializer(
            secret, salt="browser", signer_kwargs={"digest_method": hashlib.sha256}
        )

    def link(self, place: str = "all") -> str:
        end = f"&{self.parameter}=" if self.parameter else ""
        return f"/arrive?key={self._links.sign(place).decode()}{end}"

    def code(self, person: str) -> str:
        """Return what lets somebody come back from another browser."""
        digest = hmac.digest(self._secret.encode(), f"code {person}".encode(), "sha256")
        word = base64.b32encode(digest).decode()
        return f"{word[:4]}-{word[4:8]}-{word[8:12]}"

    def whose(self, cookie: str) -> tuple[str, str] | None:
        """Read a cookie's name and browser; None if forged or another browser's."""
        try:
            person, browser = self._cookies.loads(cookie)
        except self._foreign:
            return None
        known = self.taken.get(same_name(person))
        return (person, browser) if known in (None, (person, browser)) else None

    def knock(self, sent: Mapping[str, str], cookie: str) -> Step:
        """Decide on who follows a link or answers a page of the door."""
        try:
            place = self._links.unsign(sent.get("key", "")).decode()
        except self._foreign:
            return Step("link", message="link")
        if self.parameter:
            person = sent.get(self.parameter, "")
            if not re.fullmatch(IDS[self.parameter], person, flags=re.ASCII):
                return Step("link", message="number")
        elif self.arrival == "link":
            if place == "all":
                return Step("link", message="own")
            person = place
        else:
            person = " ".join(sent.get("person", "").split())
            if not 0 < len(person) <= NAME_LENGTH or not person.isprintable():
                return Step("name", message="name" if "person" in sent else "")
        here = self.whose(cookie)
        known = self.taken.get(same_name(person))
        if here is not None and same_name(here[0]) == same_name(person):
            return Step("enter", here[0], cookie)
        if known is None:
            browser = secrets.token_urlsafe(24)
        else:
            person, browser = known
            given = sent.get("code", "").strip().upper().encode()
            if not hmac.compare_digest(given, self.code(person).encode()):
                return Step("code", person, message="code" if given else "")
        return Step("enter", person, str(self._cookies.dumps([person, browser])))

    def page(self, step: Step, sent: Mapping[str, str], folder: Path) -> str:
        from markupsafe import Markup

        stop = (folder / "pages" / "stop.html").read_text(encoding="utf-8")
        asked = {name: sent.get(name, "") for name in ("key", self.parameter, "person") if name}
        text: str = load_template("arrive.html.jinja", folder).render(
            step=step,
            code=self.code(step.person) if step.page == "enter" else "",
            asked={name: value for name, value in asked.items() if value},
            platform=self.platform,
            stop=Markup(stop),  # noqa: S704  filled in and escaped as the study was written
        )
        return text


def load_template(name: str, *folders: Path) -> Any:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    pages = Environment(
        loader=FileSystemLoader(folders), undefined=StrictUndefined, autoescape=True
    )
    return pages.get_template(name)


def same_name(person: str) -> str:
    """Return a name without what tells nobody apart: capitals and blanks."""
    return person.strip().casefold()


def is_foreign(headers: Mapping[str, Any], host: str) -> bool:
    """Check whether another site's page sent a form."""
    origin = headers.get("Origin")
    return origin is not None and urlsplit(str(origin)).netloc != host
