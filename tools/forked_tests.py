"""Run collected tests in forks, a file a fork: ``pytest -p tools.forked_tests --forks 4``.

Each worker of pytest-xdist is a new Python that imports every test file and all that they import,
which takes longer than most files: ``-n 2 --dist loadfile`` took 68 s of the processor for 265
tests that take 58 here. Here they are collected once, and each file runs in a fork of the process
that collected them; so no file sees what another changed. Tests marked ``apart`` have a
fork each, since most of their time is waiting. Tests marked ``live`` run first, a file at a time.
"""

from __future__ import annotations

import contextlib
import io
import multiprocessing
import os
import signal
from collections.abc import Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from typing import Any

import pytest

__all__ = ["pytest_addoption", "pytest_runtestloop"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that says how many files run at once."""
    parser.addoption("--forks", type=int, default=0, help="run so many files at once, in forks")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Take the place of pytest's own loop where there is something to run in forks."""
    n_forks = session.config.getoption("forks")
    if not n_forks or session.testsfailed or session.config.option.collectonly:
        return None
    session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
    waiting = _split(session)
    running: list[_File] = []
    try:
        while waiting or running:
            alone = [file for file in (*running, *waiting[-1:]) if file.is_live]
            while waiting and len(running) < (1 if alone else n_forks):
                running.append(waiting.pop())
                running[-1].start(session)
                alone = [file for file in running if file.is_live]
            wait([file.reports for file in running], timeout=0.1)
            ended = [file for file in running if not file.process.is_alive()]
            for file in running:
                file.pass_on(session)
            for file in ended:
                file.report_missing(session)
                running.remove(file)
            if session.shouldfail:
                raise session.Failed(session.shouldfail)
    finally:
        for file in running:
            file.stop()
    return True


def _split(session: pytest.Session) -> list[_File]:
    """Split tests by file, or by test where they run apart; those that begin first at the end."""
    names: dict[tuple[bool, str], list[pytest.Item]] = {}
    for item in session.items:
        is_live = item.get_closest_marker("live") is not None
        is_apart = item.get_closest_marker("apart") is not None
        name = item.nodeid if is_apart else item.nodeid.partition("::")[0]
        names.setdefault((is_live, name), []).append(item)
    files = [_File(name, is_live, items) for (is_live, name), items in names.items()]
    return sorted(files, key=lambda file: (file.is_live, file.is_long, len(file.items)))


class _File:
    """The tests of a file, and the fork that runs them."""

    process: ForkProcess
    reports: Connection

    def __init__(self, name: str, is_live: bool, items: list[pytest.Item]) -> None:
        self.name, self.is_live, self.items = name, is_live, items
        self.is_long = items[0].get_closest_marker("long") is not None
        self.missing = {item.nodeid: item for item in items}

    def start(self, session: pytest.Session) -> None:
        """Fork, and run the tests there."""
        self.reports, sending = multiprocessing.Pipe(duplex=False)
        self.process = multiprocessing.get_context("fork").Process(
            target=_run, args=(session, self.items, sending)
        )
        self.process.start()
        sending.close()

    def pass_on(self, session: pytest.Session) -> None:
        """Hand over to pytest what the fork reported since."""
        hook = session.config.hook
        with contextlib.suppress(EOFError):
            while self.reports.poll():
                report = hook.pytest_report_from_serializable(
                    config=session.config, data=self.reports.recv()
                )
                if report.when == "setup":
                    hook.pytest_runtest_logstart(nodeid=report.nodeid, location=report.location)
                hook.pytest_runtest_logreport(report=report)
                if report.when == "teardown":
                    hook.pytest_runtest_logfinish(nodeid=report.nodeid, location=report.location)
                    del self.missing[report.nodeid]

    def report_missing(self, session: pytest.Session) -> None:
        """Let each test fail that did not come to its end."""
        for name, item in self.missing.items():
            words = f"the process that ran {self.name} ended with {self.process.exitcode} before"
            report = pytest.TestReport(
                nodeid=name,
                location=item.location,
                keywords={},
                outcome="failed",
                longrepr=words,
                when="call",
            )
            session.config.hook.pytest_runtest_logreport(report=report)

    def stop(self) -> None:
        """Interrupt the fork, as Ctrl-C does, and wait until it has cleared up."""
        if self.process.is_alive() and self.process.pid:
            os.kill(self.process.pid, signal.SIGINT)
        self.process.join(30)
        self.process.kill()


def _run(session: Any, items: Sequence[pytest.Item], reports: Connection) -> None:
    """Run tests in this fork, and send a report of each step."""
    config = session.config
    # what is captured goes to a file, whose place in it the forks would share
    capturing = config.pluginmanager.getplugin("capturemanager")
    capturing.stop_global_capturing()
    capturing.start_global_capturing()
    capturing.suspend_global_capture()
    config.get_terminal_writer()._file = io.StringIO()  # the other process writes what is shown
    folder = config._tmp_path_factory.getbasetemp() / f"fork-{os.getpid()}"
    folder.mkdir()
    config._tmp_path_factory._basetemp = folder
    config.pluginmanager.register(_Reports(config, reports))
    try:
        for item, following in zip(items, [*items[1:], None], strict=True):
            config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if session.shouldfail or session.shouldstop:
                break
    except KeyboardInterrupt:
        pass  # the other process says so
    finally:
        session._setupstate.teardown_exact(None)


class _Reports:
    """A plugin of the fork: send each report to the process that collected the tests."""

    def __init__(self, config: pytest.Config, line: Connection) -> None:
        self.config, self.line = config, line

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Send a report."""
        self.line.send(
            self.config.hook.pytest_report_to_serializable(config=self.config, report=report)
        )
