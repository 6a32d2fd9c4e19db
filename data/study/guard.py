"""The door in front of Potato: by `arrivals.py`, the same as that of conversations.

Potato logs in whom the address names. So here the address names whom the cookie of the door does,
and nobody comes in by a name alone. Forms of other sites, bodies over a megabyte, and the pages of
log-ins and administrators are refused; every page says that no other site may frame it.
"""

import json
from functools import partial
from pathlib import Path
from threading import Lock
from urllib.parse import urlencode

import arrivals
from flask import Request, Response, redirect

FOLDER = Path(__file__).parents[1]
ABOUT = json.loads((FOLDER / "study.json").read_text(encoding="utf-8"))
LONGEST_BODY = 1_000_000
CLOSED = ("/auth", "/login", "/register", "/passwordless-login", "/clerk-login", "/saml", "/admin")
"""Other ways in, and what is for administrators: who runs the study has its files."""
SAFE = {
    # Potato's pages have scripts and styles in them, so these cannot be kept out
    "Content-Security-Policy": (
        "default-src 'self'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline';"
        " img-src 'self' data:; font-src 'self' data:; object-src 'none'; base-uri 'none';"
        " form-action 'self'; frame-ancestors 'none'"
    ),
    "Cache-Control": "no-store",
    "Referrer-Policy": "same-origin",  # with none, a form of our own would name no origin
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class _Taken(dict):
    """Who came in by which browser, kept on the disk as it grows."""

    file = FOLDER / "browsers.json"

    def __init__(self):  # noqa: ANN204
        if self.file.is_file():
            kept = json.loads(self.file.read_text(encoding="utf-8"))
            super().__init__({name: tuple(pair) for name, pair in kept.items()})

    def __setitem__(self, name, pair):  # noqa: ANN001, ANN204
        super().__setitem__(name, pair)
        part = self.file.with_suffix(".part")
        part.write_text(json.dumps(self), encoding="utf-8")
        part.replace(self.file)


TAKEN = _Taken()
DOOR = arrivals.Door(ABOUT["secret"], ABOUT["settings"]["arrival"], TAKEN)
NAMED = DOOR.parameter or "person"  # the parameter by which Potato is told who comes
_at_the_door = Lock()


def guarded(go_on, app, environ, start_response):  # noqa: ANN001, ANN201  the study's interpreter checks no types
    """Let a request through to Potato, as who has the cookie, or answer it here."""
    request = Request(environ)
    if request.headers.get("Transfer-Encoding") or (request.content_length or 0) > LONGEST_BODY:
        answer = Response("That is more than this page takes.", 413)
    elif request.method != "GET" and arrivals.is_foreign(request.headers, request.host):
        answer = Response("This form came from another site.", 403)
    elif request.path in ("/auth", "/login") and request.method == "GET":
        answer = redirect("/")  # where a logout leads
    elif request.path.startswith(CLOSED):
        answer = Response("There is no such page.", 404)
    elif request.path in ("/study.css", "/chat.css"):
        style = (FOLDER / request.path[1:]).read_text(encoding="utf-8")
        answer = Response(style, mimetype="text/css")
    elif request.path == "/arrive" or DOOR.whose(request.cookies.get(arrivals.COOKIE, "")) is None:
        answer = _arrive(request)
    else:
        person, _ = DOOR.whose(request.cookies[arrivals.COOKIE])
        environ["QUERY_STRING"] = urlencode({NAMED: person}) if request.path == "/" else ""
        return go_on(app, environ, partial(_safely, start_response, request.path))
    return answer(environ, partial(_safely, start_response, request.path))


def _arrive(request):  # noqa: ANN001, ANN202
    sent = {**request.args, **request.form} if request.path == "/arrive" else {}
    with _at_the_door:
        step = DOOR.knock(sent, request.cookies.get(arrivals.COOKIE, ""))
        if step.cookie and arrivals.same_name(step.person) not in TAKEN:
            _, browser = DOOR.whose(step.cookie)
            TAKEN[arrivals.same_name(step.person)] = (step.person, browser)
    status = 403 if step.page in ("link", "code") else 200
    answer = Response(DOOR.page(step, sent, FOLDER), status, mimetype="text/html")
    if step.cookie:
        secure = "https" in (request.scheme, request.headers.get("X-Forwarded-Proto"))
        answer.set_cookie(
            arrivals.COOKIE, step.cookie, httponly=True, samesite="Lax", secure=secure
        )
        answer.delete_cookie("session")  # of whoever sat here before
    return answer


def _safely(start_response, path, status, headers, *more):  # noqa: ANN001, ANN002, ANN202
    gone = [("Set-Cookie", f"{arrivals.COOKIE}=; Max-Age=0; Path=/")] if path == "/logout" else []
    kept = [one for one in headers if one[0] not in SAFE]
    return start_response(status, [*kept, *SAFE.items(), *gone], *more)
