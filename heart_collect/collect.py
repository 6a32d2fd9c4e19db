"""Collect a run: ``heart-collect RUN`` or ``make collect``."""

from __future__ import annotations

import argparse
import signal
import sys
import warnings
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from heart_collect.calls.models import NotAllowedError, quieten_litellm
from heart_utils import __version__
from heart_utils.settings import MissingExtraError

__all__: list[str] = []

INTERRUPTED, REFUSED = 130, 2  #: Exit codes: after Ctrl-C, and where no one allowed to spend money.


def main(arguments: Sequence[str] | None = None) -> int:
    """Collect a run; return 0 if all is recorded, 1 after an error, 3 if something failed."""
    options = _parser().parse_args(arguments)
    quieten_litellm()  # to the end of the process
    options.warned = []  # by warnings, such as why a queue was stopped: each is said once
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("default", UserWarning)
            # pydantic's, of no use here
            warnings.filterwarnings("ignore", "Item .* on TypedDict class", UserWarning)
            warnings.showwarning = partial(_show_warning, options.warned)
            # here, so that an extra that is not installed is told like any other fault
            from heart_collect import collection

            return collection.work(options)
    except NotAllowedError as error:
        print(error, file=sys.stderr)
        return REFUSED
    except KeyboardInterrupt:
        print(
            "\nStopped. What was answered is recorded; the same command goes on where this ended.",
            file=sys.stderr,
        )
        return INTERRUPTED
    except (ValueError, OSError, MissingExtraError) as error:
        print(f"collect: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="heart-collect", description="Collect replies and verdicts."
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    parser.add_argument("run", help="a run; its settings stand in params/RUN.yaml under collect:")
    parser.add_argument(
        "--dry-run", action="store_true", help="say what it would take, and ask nothing"
    )
    parser.add_argument("--yes", action="store_true", help="make paid calls without asking first")
    parser.add_argument(
        "--budget",
        type=float,
        metavar="USD",
        help="what this ledger may spend, ever; never more than budget_usd: in the settings",
    )
    parser.add_argument(
        "--allow-host",
        action="append",
        default=[],
        metavar="HOST",
        help="a host that is no provider's and may get a key; else it is asked for once",
    )
    parser.add_argument(
        "--reply-concurrency",
        type=int,
        default=1,
        metavar="N",
        help="replies at once; times suffer above 1",
    )
    parser.add_argument(
        "--batch",
        action="store_true",
        help="judge in batches at half the price; run again to collect",
    )
    parser.add_argument(
        "--scheduler",
        metavar="ADDRESS",
        help="let the workers of a Dask cluster judge; needs HEART_LEDGER",
    )
    parser.add_argument(
        "--record",
        metavar="FILE",
        help="afterwards, write the calls that this run used as JSON Lines",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="say what is damaged, missing or doubled, and ask nothing",
    )
    parser.add_argument(
        "--export", metavar="FILE", help="write all answered calls as JSON Lines, and ask nothing"
    )
    parser.add_argument(
        "--answers",
        metavar="FILE",
        help="write what models answered in this run as JSON Lines, word for word, and ask nothing",
    )
    parser.add_argument(
        "--merge",
        metavar="PLACE",
        help="take in another ledger (.sqlite, .jsonl, URL), and ask nothing",
    )
    parser.add_argument(
        "--restore", action="store_true", help="put the copy of a damaged ledger in its place"
    )
    parser.add_argument(
        "--write-off",
        action="store_true",
        help="count calls nobody heard the end of against no budget any more",
    )
    parser.add_argument(
        "--log",
        metavar="FILE",
        type=Path,
        help="add a line of JSON for each call that ends; never words",
    )
    parser.add_argument("--quiet", action="store_true", help="no progress bars")
    return parser


def _show_warning(
    warned: list[str], message: Any, category: type[Warning], *_: Any, **__: Any
) -> None:
    # not a library's deprecations, whatever its threads did
    if category is UserWarning and str(message) not in warned:
        print(f"collect: {message}", file=sys.stderr)
        warned.append(str(message))


def command(arguments: Sequence[str] | None = None) -> int:
    """Collect as a program that a service manager may stop."""
    for word in (signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)):
        if signal.getsignal(word) == signal.SIG_DFL:  # not under nohup
            signal.signal(word, signal.default_int_handler)
    return main(arguments)


if __name__ == "__main__":
    sys.exit(command())
