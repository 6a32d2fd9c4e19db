"""The build's commands in forks of one process: same words, same status, and an end when they are
told to end."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from heart_utils.runs import find_root

ASK = f"{sys.executable} -S -E tools/forks.py"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "tools").symlink_to(find_root() / "tools")
    for package in ("heart_utils", "heart_collect"):
        (tmp_path / package).symlink_to(find_root() / package)
    (tmp_path / "said.py").write_text(
        "import os, sys, time\n"
        "def main(arguments):\n"
        "    print(os.getpid(), os.getppid(), *arguments, flush=True)\n"
        "    if arguments[0] == 'wait': time.sleep(600)\n"
        "    if arguments[0] == 'fail': raise ValueError('as asked')\n"
        "    return int(arguments[0])\n"
    )
    return tmp_path


def start(folder, script):
    command = [sys.executable, "-m", "tools.forks", "bash", "-c", script]
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    return subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_a_command_runs_in_a_fork_with_its_arguments_and_gives_its_status(folder):
    running = start(folder, f"{ASK} said 7 'two words'; echo $?; {ASK} said fail; echo $?; exit 3")
    printed, _ = running.communicate(timeout=120)
    assert running.returncode == 3, "the status is that of the command which was served"
    lines = printed.splitlines()
    fork, parent, *arguments = lines[0].split(maxsplit=3)
    assert int(parent) == running.pid != int(fork)
    assert arguments == ["7", "two words"]
    assert (lines[1], lines[-1]) == ("7", "1")
    assert "ValueError: as asked" in printed


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_what_stops_the_asking_stops_the_fork(folder, sent):
    os.mkfifo(folder / "begun")
    # A shell's background job would not hear of SIGINT.
    asking = (
        f"import signal, subprocess; it = subprocess.Popen('exec {ASK} said wait', shell=True);"
        " open('begun').read()"
    )
    running = start(
        folder,
        f'{sys.executable} -c "{asking}; it.send_signal({int(sent)}); raise SystemExit(it.wait())"',
    )
    fork = int(running.stdout.readline().split()[0])
    (folder / "begun").write_text("now")
    printed, _ = running.communicate(timeout=120)
    assert running.returncode == 1, printed
    given_up = time.monotonic() + 30
    while Path(f"/proc/{fork}").is_dir():
        assert time.monotonic() < given_up, "it still runs"
        time.sleep(0.05)
