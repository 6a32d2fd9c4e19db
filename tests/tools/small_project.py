"""A small project of its own: the real Makefile, tools and helpers, and notebooks of a few
cells."""

import json
import os
import shutil
import subprocess
import sys
import zlib
from contextlib import contextmanager
from pathlib import Path

from heart_utils.runs import find_root
from tools.forks import PLACE


def cell(source, *, kind="code", tags=(), **metadata):
    written = {
        "cell_type": kind,
        "id": f"{zlib.crc32(repr((source, tuple(tags))).encode()):08x}",
        "source": source,
        "metadata": {"tags": list(tags), **metadata},
    }
    return written | ({"outputs": [], "execution_count": None} if kind == "code" else {})


def write_notebook(file, *cells):
    kernel = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(
        json.dumps({"cells": list(cells), "metadata": kernel, "nbformat": 4, "nbformat_minor": 5})
    )
    return file


class Project:
    """A folder that holds what `make` needs and no more."""

    def __init__(self, root: Path):
        self.root, self.forks = root, {}
        source = find_root()
        for name in ("heart_utils", "heart_collect", "tools", "data", "requirements"):
            shutil.copytree(source / name, root / name)  # with what is compiled already
        for name in ("pyproject.toml", "_config.yml", "_toc.yml", "CITATION.cff"):
            shutil.copy2(source / name, root / name)
        for name in ("book", "notebooks", "params"):
            (root / name).mkdir()

    def write_chapter(self, name, *cells):
        return write_notebook(self.root / "notebooks" / f"{name}.ipynb", *cells)

    def write_parameters(self, text, run="sample"):
        (self.root / "params" / f"{run}.yaml").write_text(text)

    def run(self, *command):
        how = {"capture_output": True, "text": True, "timeout": 600}
        return subprocess.run(command, cwd=self.root, env=self.environment(), **how)

    def environment(self):
        own = {"PYTHONPATH": str(self.root), "HEART_DATA_CACHE": str(self.root / "cache")}
        gone = ("HEART_DATA_MIRROR", "HEART_ROOT", "MAKEFLAGS", "MAKELEVEL")
        return {
            **{name: value for name, value in os.environ.items() if name not in gone},
            **own,
            **self.forks,
        }

    @contextmanager
    def forking(self):
        """Let commands be forks of one process meanwhile, as `make book` has it: libraries are
        imported once."""
        command = [sys.executable, "-m", "tools.forks", "sh", "-c", f"echo ${PLACE}; read closed"]
        how = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        with subprocess.Popen(command, cwd=self.root, env=self.environment(), **how) as server:
            self.forks = {PLACE: server.stdout.readline().strip()}
            yield
            self.forks = {}

    def make_notebooks(self, run="sample"):
        """Plan and run the graph; give the names of the chapters that ran."""
        planned = self.run(
            sys.executable,
            *(["-S", "-E", "tools/forks.py"] if self.forks else ["-m"]),
            "tools.plan",
            run,
        )
        assert planned.returncode == 0, planned.stderr
        done = self.run(
            "make",
            "-f",
            "tools/book.mk",
            "-j2",
            f"RUN={run}",
            f"PYTHON={sys.executable}",
            "notebooks",
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return {line.split()[0] for line in done.stdout.splitlines() if " ran in " in line}
