"""Run executed notebooks once more, and fail where one shows something else than before.

``python -m tools.repeat_notebooks sample --forks 2`` repeats those of ``build/executed/sample``
that changed since they last showed the same: the notebook, the code that it reaches, the data, the
tables of the run, or how outputs are compared. A file below ``build/repeated`` for each says what
it was repeated with; without that folder all are repeated.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from heart_utils.runs import find_root, write_atomically

__all__ = ["find_changed", "note_repeated"]

#: How outputs are compared, and what runs the cells.
COMPARED_BY = ("tests/nbval.cfg", "tools/kernels.py")


def find_changed(root: Path, run: str) -> list[Path]:
    """List the executed notebooks that have changed since they last showed the same.

    Parameters
    ----------
    root : pathlib.Path
        The project's root, whose book of the run is built.
    run : str
        A bare name.

    Returns
    -------
    list of pathlib.Path
        In the order of the chapters.
    """
    copies = sorted((root / "build" / "executed" / run).glob("*.ipynb"))
    return [copy for copy in copies if _noted(root, run, copy) != _made_of(root, run, copy)]


def note_repeated(root: Path, run: str, copies: Iterable[Path]) -> None:
    """Note that notebooks showed the same once more.

    Parameters
    ----------
    root : pathlib.Path
        The project's root.
    run : str
        A bare name.
    copies : iterable of pathlib.Path
        Executed notebooks.
    """
    for copy in copies:
        write_atomically(_note(root, run, copy), _made_of(root, run, copy).encode())


def _note(root: Path, run: str, copy: Path) -> Path:
    return root / "build" / "repeated" / run / f"{copy.stem}.stamp"


def _noted(root: Path, run: str, copy: Path) -> str:
    note = _note(root, run, copy)
    return note.read_text(encoding="utf-8") if note.is_file() else ""


def _made_of(root: Path, run: str, copy: Path) -> str:
    """Return a checksum of all that decides what a notebook shows; `make book` wrote the stamps."""
    build = root / "build"
    files = [
        copy,
        build / "code" / run / f"{copy.stem}.stamp",
        build / "data.stamp",
        *sorted((build / "tables" / run).glob("*.stamp")),
        *(root / name for name in COMPARED_BY),
    ]
    whole = hashlib.sha256()
    for file in files:
        content = file.read_bytes() if file.is_file() else b""
        whole.update(hashlib.sha256(content).digest())
    return whole.hexdigest()


class _Failed:
    """A plugin of pytest: which notebooks have a cell that did not pass."""

    def __init__(self) -> None:
        self.notebooks: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Look at the outcome of a cell."""
        if report.failed:
            self.notebooks.add(Path(report.nodeid.partition("::")[0]).name)


def main(arguments: list[str]) -> int:
    """Repeat what has changed; return pytest's exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.repeat_notebooks")
    parser.add_argument("run")
    parser.add_argument("--forks", default="2", help="so many notebooks at once")
    options = parser.parse_args(arguments)
    root = find_root()
    changed = find_changed(root, options.run)
    if not changed:
        print("No notebook has changed since it last showed the same twice.")
        return 0
    plugins = ["-p", "tools.forked_tests", "-p", "nbval", "-p", "tools.kernels"]
    compared = ["--nbval", "--nbval-sanitize-with", str(root / "tests" / "nbval.cfg")]
    failed = _Failed()
    code = pytest.main(
        ["-q", *plugins, "--forks", options.forks, *compared, *map(str, changed)], plugins=[failed]
    )
    if code in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        same = [copy for copy in changed if copy.name not in failed.notebooks]
        note_repeated(root, options.run, same)
    return int(code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
