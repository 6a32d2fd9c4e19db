"""Tests in forks: each is reported as pytest itself would, and none is lost with its process."""

import os
import re
import signal
import subprocess
import sys
import time
from functools import partial

import pytest

from heart_utils.runs import find_root

FILES = {
    "test_one": """
        import os, pytest
        CHANGED = []

        @pytest.fixture(scope="module")
        def kept(tmp_path_factory):
            yield tmp_path_factory.mktemp("kept")
            open("cleared", "w").close()

        @pytest.mark.parametrize("value", [1, 2])
        def test_passes(value, kept):
            CHANGED.append(value)
            print(os.getppid(), file=open("parents", "a"))

        def test_fails(kept):
            print("printed before")
            assert len(CHANGED) == 3

        @pytest.mark.skip(reason="not today")
        def test_is_skipped(): ...
    """,
    "test_two": """
        import os, test_one

        def test_sees_nothing_of_another_file():
            assert test_one.CHANGED == []
            print(os.getppid(), file=open("parents", "a"))

        def test_ends_its_process(): os._exit(7)
        def test_does_not_come_to_its_turn(): ...
    """,
    "test_four": """
        import pytest
        SEEN = []

        @pytest.mark.apart
        @pytest.mark.parametrize("value", [1, 2])
        def test_sees_nothing_of_the_other(value):
            assert SEEN == []
            SEEN.append(value)
    """,
    "test_three": """
        import pytest, time

        @pytest.mark.live
        def test_runs_alone_and_first():
            time.sleep(0.2)
            assert not __import__("pathlib").Path("parents").exists()
    """,
}


def start(folder, *options):
    for name, text in FILES.items():
        lines = [line.removeprefix(" " * 8) for line in text.strip("\n").splitlines()]
        (folder / f"{name}.py").write_text("\n".join(lines) + "\n")
    (folder / "pytest.ini").write_text(
        "[pytest]\nmarkers =\n    live: alone\n    apart: alone too\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tools.forked_tests", "--forks", "3"]
    return subprocess.Popen(
        [*command, *options],
        cwd=folder,
        # nbval, which these tests need no more than other plugins, takes seconds to load
        env={
            **os.environ,
            "PYTHONPATH": str(find_root()),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # a shell's background job, and what it starts, would not hear of Ctrl-C
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )


def test_each_test_is_reported_and_one_without_an_end_has_failed(tmp_path):
    running = start(tmp_path)
    said, _ = running.communicate(timeout=120)
    assert running.returncode == 1
    assert re.search(r"\n3 failed, 6 passed, 1 skipped in ", said), said
    assert "printed before" in said
    assert "assert 2 == 3" in said
    lost = re.findall(r"FAILED (\S+) - (.*)", said)
    assert {name.split("::")[1] for name, _ in lost} == {
        "test_fails",
        "test_ends_its_process",
        "test_does_not_come_to_its_turn",
    }
    assert "the process that ran test_two.py ended with 7" in said
    assert (tmp_path / "cleared").exists()
    assert set((tmp_path / "parents").read_text().split()) == {str(running.pid)}


WAITING = """
import os, time

def test_waits():
    print(os.getpid(), file=open("fork", "w"), flush=True)
    time.sleep(600)
"""


def test_who_stops_the_run_stops_its_forks(tmp_path):
    (tmp_path / "test_waiting.py").write_text(WAITING)
    running = start(tmp_path, "test_waiting.py")
    while not (tmp_path / "fork").exists() or not (tmp_path / "fork").read_text():
        assert running.poll() is None
        time.sleep(0.01)
    fork = int((tmp_path / "fork").read_text())
    running.send_signal(signal.SIGINT)
    said, _ = running.communicate(timeout=60)
    assert running.returncode == 2, said
    with pytest.raises(ProcessLookupError):
        os.kill(fork, 0)
