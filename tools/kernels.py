"""Kernels that are spoken to through files, not ports.

A kernel is told the numbers of free ports and takes them a moment later. Another process may take one in between; then the
kernel dies, or keeps silent until a minute is over. ``pytest -p tools.kernels --nbval`` starts kernels of this kind too.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from jupyter_client.manager import AsyncKernelManager, KernelManager
from traitlets import default

__all__ = ["AsyncFileKernel", "FileKernel"]


class FileKernel(KernelManager):
    """A kernel with a folder of its own for its sockets, short enough for the 104 characters that a socket's path may have."""

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


def pytest_configure() -> None:
    """Let nbval start kernels of this kind; it has no setting for it."""
    import nbval.kernel

    nbval.kernel.KernelManager = FileKernel
