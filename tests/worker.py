"""What another process does in tests that kill it, stop it, or race it."""

import os
import signal

from heart_utils.calls.engine import ask_all
from heart_utils.calls.models import Model, Request
from heart_utils.calls.records import open_ledger

INTERRUPTED = 130


def requests_for(address, n=200, **settings):
    judge = Model("judge", "openai/test", api_base=address, **settings)
    return [Request(judge, ({"role": "user", "content": f"w{i}"},)) for i in range(n)]


def ask_many(address, url):
    # a shell's background job is begun with it ignored
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        ask_all(requests_for(address, max_concurrency=4), ledger=open_ledger(url), progress=False)
    except KeyboardInterrupt:
        os._exit(INTERRUPTED)
