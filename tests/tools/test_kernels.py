"""Kernels for the build and its tests: no port is named and taken later, and nothing is left behind."""

from pathlib import Path

import nbval.kernel

from tools.kernels import FileKernel, pytest_configure


def test_two_kernels_share_no_socket_and_leave_none(monkeypatch):
    monkeypatch.setattr(nbval.kernel, "KernelManager", nbval.kernel.KernelManager)
    pytest_configure()
    started = [nbval.kernel.start_new_kernel(kernel_name=nbval.kernel.CURRENT_ENV_KERNEL_NAME) for _ in range(2)]
    try:
        folders = [Path(manager.ip).parent for manager, _ in started]
        assert all(isinstance(manager, FileKernel) for manager, _ in started)
        assert folders[0] != folders[1]
        assert [len(list(folder.iterdir())) for folder in folders] == [5, 5]
        for manager, client in started:
            assert {manager.get_connection_info()["transport"], client.transport} == {"ipc"}
            reply = client.execute("", user_expressions={"sum": "1 + 1"}, reply=True, timeout=60)
            assert reply["content"]["user_expressions"]["sum"]["data"]["text/plain"] == "2"
    finally:
        for manager, client in started:
            client.stop_channels()
            manager.shutdown_kernel(now=True)
    assert not any(folder.exists() for folder in folders)
