"""Excel files, read in a process of their own.

As a program, this file reads a workbook from standard input within bounded memory.
"""

from __future__ import annotations

import io
import os
import pickle
import subprocess
import sys

import pandas as pd

__all__: list[str] = []

MAX_MEMORY = 3_000_000_000  #: Bytes that reading a workbook may take, the library included.


def read_sheets(content: bytes) -> dict[str, pd.DataFrame]:
    """Read all sheets as text; MemoryError past its bound, ValueError for a damaged workbook."""
    done = subprocess.run(
        [sys.executable, __file__],
        input=content,
        capture_output=True,
        check=False,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},  # each thread's buffer counts as memory
    )
    last_line = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
    if done.returncode < 0 or last_line.startswith("MemoryError"):
        raise MemoryError
    if done.returncode:
        raise ValueError(last_line.partition(": ")[2] or last_line)
    sheets: dict[str, pd.DataFrame] = pickle.loads(done.stdout)  # written by the lines below
    return sheets


def _main() -> None:
    try:
        import resource
    except ImportError:  # Windows has no such bound
        pass
    else:
        resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sheets = pd.read_excel(
        io.BytesIO(sys.stdin.buffer.read()),
        sheet_name=None,
        dtype=str,
        keep_default_na=False,
        engine="calamine",
    )
    pickle.dump(sheets, sys.stdout.buffer, protocol=pickle.HIGHEST_PROTOCOL)


if __name__ == "__main__":
    _main()
