"""Mend two faults of Potato's server. Its interpreter reads this file when it starts.

Let a logout hold: Flask would send the session's cookie with every answer. Potato's pages report to the server as they
close, and an answer that comes after a logout would log the person in again. So it is sent at login and at logout alone.

Let many people answer at once: Potato walks through the items that are left while another person's answer takes one out, which
ends in an error page for the first. So each walk is over the items as they were when it began.
"""

from collections import deque

from flask import Flask

Flask.default_config = Flask.default_config | {"SESSION_REFRESH_EACH_REQUEST": False}


class _Items(deque):
    def __iter__(self):  # noqa: ANN204  the study's interpreter checks no types
        return iter(list(super().__iter__()))


from potato import item_state_management  # noqa: E402  after the first mending, which holds even where this fails

item_state_management.deque = _Items
