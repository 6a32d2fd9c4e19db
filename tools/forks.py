"""Run the commands of a build in forks of one process, which imports only once.

``python -m tools.forks make -f tools/book.mk`` runs `make`, and `make` has ``tools/forks.py MODULE
ARGUMENTS`` wherever it would have ``python -m MODULE ARGUMENTS``. That is run in a fork, and
kernels are forks of the fork (:mod:`tools.kernels`).
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

__all__ = ["PLACE", "ask", "serve"]

PLACE = "HEART_FORKS"
"""The variable that names the socket; where it is not set, `make` starts each command as a process
of its own."""


def ask(arguments: list[str]) -> int:
    """Run a module in a fork with this process's streams, and return its status.

    What stops this process is passed on.

    Parameters
    ----------
    arguments : list of str
        The module and what follows it.
    """
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(os.environ[PLACE])
        socket.send_fds(line, [json.dumps(arguments).encode()], [0, 1, 2])
        replies = line.makefile()
        fork = int(replies.readline())
        for sent in (signal.SIGINT, signal.SIGTERM):
            signal.signal(sent, lambda number, _: os.kill(fork, number))
        return int(replies.readline() or 1)


def serve(command: list[str]) -> int:
    """Run a command, answer what is asked meanwhile, and give the command's status.

    Parameters
    ----------
    command : list of str
        A program and its arguments.
    """
    with (
        tempfile.TemporaryDirectory(prefix="forks-") as folder,
        socket.socket(socket.AF_UNIX) as listener,
    ):
        os.environ[PLACE] = str(Path(folder) / "socket")
        listener.bind(os.environ[PLACE])
        listener.listen()
        listener.settimeout(0.05)
        # the command is told too, and this process ends with it
        for sent in (signal.SIGINT, signal.SIGTERM):
            signal.signal(sent, lambda *_: None)
        running = subprocess.Popen(command)
        while running.poll() is None:
            with contextlib.suppress(TimeoutError):
                line, _ = listener.accept()
                message, streams, *_ = socket.recv_fds(line, 1 << 16, 3)
                arguments = json.loads(message)
                if arguments[0] == "tools.execute_notebook" and not _words_alone(arguments):
                    from tools.kernels import import_libraries

                    import_libraries()
                if os.fork() == 0:
                    listener.close()
                    _run(arguments, line, streams)
                line.close()
                for stream in streams:
                    os.close(stream)
            with contextlib.suppress(ChildProcessError):
                _reap(running.pid)
    return running.returncode


def _reap(command: int) -> None:
    """Let go of forks that ended; the command's own end is waited for elsewhere."""
    while (
        done := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    ) and done.si_pid != command:
        os.waitpid(done.si_pid, 0)


def _words_alone(arguments: list[str]) -> bool:
    """Check for an edit of a notebook that runs nothing because no code changed."""
    return (
        arguments[arguments.index("--newer") + 1 :] == arguments[1:2]
        if "--newer" in arguments
        else False
    )


def _run(arguments: list[str], line: socket.socket, streams: list[int]) -> None:
    """Run a module's command in this process, say how it ended, and end."""
    status = 1
    try:
        line.sendall(f"{os.getpid()}\n".encode())
        for sent in (signal.SIGINT, signal.SIGTERM):
            signal.signal(sent, signal.SIG_DFL)
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        sys.argv = arguments
        status = importlib.import_module(arguments[0]).main(arguments[1:])
    except SystemExit as stopped:
        status = stopped.code if isinstance(stopped.code, int) else 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
            line.sendall(f"{status}\n".encode())
        os._exit(0)


if __name__ == "__main__":
    sys.exit(ask(sys.argv[1:]) if PLACE in os.environ else serve(sys.argv[1:]))
