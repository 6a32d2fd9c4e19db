"""Mend faults of Potato's server. Its interpreter reads this file when it starts.

Let nobody in whom the door (`guard.py`) does not: until that is read, and if it cannot be, every
request is refused, since Python goes on where this file fails.

Keep no address and no browser: Potato notes both beside a person's name with every answer, and the
log holds the address. Here each request reaches it without them, and what it would note of devices
is not written.

Let a logout hold: Flask would send the session's cookie with every answer. Potato's pages report to
the server as they close, and an answer that comes after a logout would log the person in again. So
it is sent at login and at logout alone.

Let many people answer at once: Potato walks through the items that are left while another person's
answer takes one out, which ends in an error page for the first. So each walk is over the items as
they were when it began.

Let many people begin at once: each who asks for a page that Potato has not compiled yet would
compile it anew, a fifth of a second of the processor for each person and page. So one does, and the
others wait for it.
"""

from collections import deque
from threading import RLock

from flask import Flask, Response
from jinja2 import Environment
from werkzeug.serving import WSGIRequestHandler

Flask.default_config = Flask.default_config | {"SESSION_REFRESH_EACH_REQUEST": False}

TELLING = (
    "HTTP_USER_AGENT",
    "HTTP_REFERER",
    "HTTP_FORWARDED",
    "HTTP_X_FORWARDED_FOR",
    "HTTP_X_REAL_IP",
    "REMOTE_PORT",
)
"""What a request says of who sends it, besides its address."""


def _closed(app, environ, start_response):  # noqa: ANN001, ANN202
    return Response("The door of this study could not be read.", 503)(environ, start_response)


_potato, Flask.__call__ = Flask.__call__, _closed


def answer(app, environ, start_response):  # noqa: ANN001, ANN201
    """Let Potato answer, who does not see who asks."""
    for name in [name for name in environ if name in TELLING or name.startswith("HTTP_SEC_CH_UA")]:
        del environ[name]
    environ["REMOTE_ADDR"] = ""
    return _potato(app, environ, start_response)


WSGIRequestHandler.address_string = lambda _: "-"  # in the log

_one_at_a_time = RLock()
_load_template = Environment._load_template


def _load_template_once(*given):  # noqa: ANN002, ANN202
    with _one_at_a_time:
        return _load_template(*given)


Environment._load_template = _load_template_once


class _Items(deque):
    def __iter__(self):  # noqa: ANN204
        return iter(list(super().__iter__()))


# What follows needs Potato; the mendings above hold even where this fails.
from potato import item_state_management  # noqa: E402
from potato.pocket import devices  # noqa: E402

item_state_management.deque = _Items
devices.DeviceTracker._save_locked = lambda _: None

import guard  # noqa: E402

Flask.__call__ = lambda *given: guard.guarded(answer, *given)
