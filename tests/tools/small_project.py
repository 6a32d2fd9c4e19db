"""A small project of its own: the real Makefile, tools and helpers, and notebooks of a few cells."""

import json
import os
import shutil
import subprocess
import sys
import zlib
from pathlib import Path

from heart_utils.runs import find_root


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
    file.write_text(json.dumps({"cells": list(cells), "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}))
    return file


class Project:
    """A folder that holds what `make` needs and no more."""

    def __init__(self, root: Path):
        self.root = root
        source = find_root()
        for name in ("heart_utils", "tools", "data"):
            shutil.copytree(source / name, root / name, ignore=shutil.ignore_patterns("__pycache__", "bench"))
        for name in ("pyproject.toml", "requirements.txt", "_config.yml", "_toc.yml"):
            shutil.copy2(source / name, root / name)
        for name in ("book", "notebooks", "params"):
            (root / name).mkdir()

    def write_chapter(self, name, *cells):
        return write_notebook(self.root / "notebooks" / f"{name}.ipynb", *cells)

    def write_parameters(self, text, run="sample"):
        (self.root / "params" / f"{run}.yaml").write_text(text)

    def run(self, *command):
        environment = {**os.environ, "PYTHONPATH": str(self.root), "HEART_DATA_CACHE": str(self.root / "cache")}
        for name in ("HEART_DATA_MIRROR", "HEART_ROOT", "MAKEFLAGS", "MAKELEVEL"):
            environment.pop(name, None)
        return subprocess.run(command, cwd=self.root, env=environment, capture_output=True, text=True, timeout=600)

    def make_notebooks(self, run="sample"):
        """Plan and run the graph; give the names of the chapters that ran."""
        planned = self.run(sys.executable, "-m", "tools.plan", run)
        assert planned.returncode == 0, planned.stderr
        done = self.run("make", "-f", "tools/book.mk", "-j2", f"RUN={run}", f"PYTHON={sys.executable}", "notebooks")
        assert done.returncode == 0, done.stdout + done.stderr
        return {line.split()[0] for line in done.stdout.splitlines() if " ran in " in line}
