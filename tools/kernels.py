"""Kernels that are spoken to through files, not ports.

A kernel is told the numbers of free ports and takes them a moment later. Another process may take
one in between; then the kernel dies, or keeps silent until a minute is over. ``pytest -p
tools.kernels --nbval`` starts kernels of this kind too.

Where :func:`import_libraries` was called, a kernel is a fork of the process that asks for it and
finds them imported.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

from jupyter_client.manager import AsyncKernelManager, KernelManager
from jupyter_client.provisioning import local_provisioner
from traitlets import default

__all__ = ["AsyncFileKernel", "FileKernel", "import_libraries"]

LIBRARIES = (
    "papermill",
    "ipykernel.kernelapp",
    "ipykernel.ipkernel",
    "IPython.core.completer",
    "matplotlib.pyplot",
    "myst_nb",
    "numpy",
    "pandas",
    "pingouin",
    "pyarrow.parquet",
    "scipy.optimize",
    "scipy.stats",
    "seaborn",
    "sklearn.linear_model",
    "sqlalchemy",
    "statsmodels.formula.api",
    "yaml",
)
"""What most chapters import, and what runs them; not `matplotlib_inline`, which joins the shell
that it is imported in."""


class FileKernel(KernelManager):
    """A kernel with a short folder of its own for its sockets.

    A socket's path may have 104 characters.
    """

    @default("transport")
    def _transport_default(self) -> str:
        return "ipc"

    @default("ip")
    def _ip_default(self) -> str:
        return str(Path(tempfile.mkdtemp(prefix="kernel-")) / "socket")

    def cleanup_ipc_files(self) -> None:
        """Remove the folder with the sockets."""
        shutil.rmtree(Path(self.ip).parent, ignore_errors=True)


class AsyncFileKernel(FileKernel, AsyncKernelManager):
    """The same, as papermill starts it."""


def pytest_configure(config: Any = None) -> None:
    """Start kernels of this kind in nbval, which has no setting for it.

    Where :mod:`tools.forked_tests` runs notebooks, they are forks.
    """
    import nbval.kernel

    nbval.kernel.KernelManager = FileKernel
    nbval.kernel.RunningKernel.execute_cell_input = _execute_as_papermill
    if config and config.getoption("forks", 0):
        import_libraries()


def _execute_as_papermill(kernel: Any, source: str, allow_stdin: bool | None = None) -> Any:
    """Execute a cell with a history.

    Without one, IPython shows the value of a line that ends in ``;``.
    """
    return kernel.kc.execute(
        source, store_history=True, allow_stdin=allow_stdin, stop_on_error=False
    )


def import_libraries() -> None:
    """Import what chapters need in this process, of which kernels are forks from now on."""
    if _LAUNCHER.launch_kernel is _fork_kernel:
        return
    # as a kernel sets it before it imports matplotlib
    os.environ["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"
    # jsonschema imports this to check addresses, which no notebook has, and it takes a second.
    sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]
    for name in LIBRARIES:
        importlib.import_module(name)
    _FILTERS[:] = warnings.filters
    gc.collect()
    # a full collection, which statsmodels asks for at each correction, need not look at libraries
    gc.freeze()
    _LAUNCHER.launch_kernel = _fork_kernel


_FILTERS: list[Any] = []
_LAUNCHER: Any = local_provisioner  # whose module calls the function by its name


class _Fork:
    """A process as `subprocess` shows one."""

    stdin = stdout = stderr = None

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            done, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if done else None
        return self.returncode

    def wait(self) -> int:
        while self.poll() is None:
            time.sleep(0.01)
        return self.returncode or 0

    def send_signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _fork_kernel(
    command: list[str], *, env: dict[str, str], cwd: str | None = None, stderr: Any = None, **_: Any
) -> _Fork:
    if pid := os.fork():
        with contextlib.suppress(OSError):
            os.setpgid(pid, pid)  # both do, since whoever comes second must find it done
        return _Fork(pid)
    status, error_stream = 1, os.dup(2)  # which the kernel will read itself
    try:
        os.setpgid(0, 0)
        signal.set_wakeup_fd(-1)
        asyncio._set_running_loop(None)  # that of the process which asked stands still in its fork
        asyncio.set_event_loop(asyncio.new_event_loop())
        for sent in (signal.SIGINT, signal.SIGTERM):
            signal.signal(sent, signal.SIG_DFL)
        if stderr is not None:
            os.dup2(stderr.fileno(), 2)
        os.environ.clear()
        os.environ |= env
        os.chdir(cwd or ".")
        sys.argv = command
        warnings.filters[:] = _FILTERS  # type: ignore[index]
        from ipykernel.kernelapp import IPKernelApp

        IPKernelApp.clear_instance()
        IPKernelApp.launch_instance(argv=command[command.index("ipykernel_launcher") + 1 :])
        status = 0
    except SystemExit as stopped:
        status = stopped.code if isinstance(stopped.code, int) else 1
    except BaseException:
        os.write(error_stream, traceback.format_exc().encode())
    finally:
        os._exit(status)
