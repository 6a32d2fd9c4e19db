"""What another process does in tests that kill it, stop it, or race it."""

import multiprocessing
import os
import runpy
import signal
import sys

from _pytest.assertion.rewrite import AssertionRewritingHook

from heart_collect.calls.engine import ask_all
from heart_collect.calls.ledger import open_ledger
from heart_collect.calls.models import Model, Request

INTERRUPTED = 130


def requests_for(address, n=100, **settings):
    judge = Model("judge", "openai/test", api_base=address, **settings)
    return [Request(judge, ({"role": "user", "content": f"w{i}"},)) for i in range(n)]


def ask_many(address, url):
    # a shell's background job is begun with it ignored
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        ask_all(requests_for(address, max_concurrency=4), ledger=open_ledger(url), progress=False)
    except KeyboardInterrupt:
        os._exit(INTERRUPTED)


def begin_command(module, *arguments, out=os.devnull, umask=0o022):
    """Run ``python -m module`` as a process of its own, a fork that finds libraries imported.

    What it prints goes to the file `out`; the process is one of `multiprocessing`.
    """
    process = multiprocessing.get_context("fork").Process(
        target=_run_module, args=(module, arguments, out, umask)
    )
    process.start()
    return process


def _run_module(module, arguments, out, umask):
    for sent in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(sent, signal.default_int_handler if sent == signal.SIGINT else signal.SIG_DFL)
    with open(out, "wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.stdout = sys.stderr = os.fdopen(1, "w", buffering=1, closefd=False)
    os.umask(umask)
    sys.argv = [module, *arguments]
    # as `python -m` finds it: pytest's importer of tests gives no code to run
    sys.modules.pop(module, None)
    sys.meta_path = [one for one in sys.meta_path if not isinstance(one, AssertionRewritingHook)]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
