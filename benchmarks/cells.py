"""Random changes to the chapters' own code: how many move a printed number, or stop the chapter.

A change is one of those of the bench ``mutants``, in a statement that feeds a printed number: its
names reach one that glues, or that shows a table or a value. It is noticed if the chapter stops,
runs for longer than a minute (a kept simulation that starts anew is such a run, and a test of its
own refuses it), or prints what `tests/printed_numbers.json` does not have. Each runs in a process
of its own, forked where its cell begins. ``--quick`` tries ten a chapter, ``--only`` one chapter;
two runs with one ``--seed`` try the same changes.
"""

from __future__ import annotations

import ast
import contextlib
import json
import os
import random
import resource
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks import Figure
from benchmarks.mutants import SEED, change, sites
from heart_utils.runs import Run, find_root
from tools.notebooks import parse_cell, read_cells
from tools.pin import compare, read_chapter_numbers, read_pinned, read_specs
from tools.plan import read_plan

__all__ = ["feeding", "run"]

N_CHANGES, N_QUICK = 40, 10
LIMIT_S = 60
"""Seconds of the processor that a changed chapter may take from its change on."""
DRAWN = {"ax", "axes", "plt", "figure"}
"""Names of what is drawn, which no printed number comes from."""


def run(quick: bool, only: str = "", seed: int = SEED) -> Iterator[Figure]:
    """Yield, for each chapter and for all, the share of changes noticed."""
    root = find_root()
    os.chdir(root / "notebooks")
    os.environ["MPLBACKEND"] = "agg"  # figures are not compared
    plan = read_plan(root, "sample")
    n_chosen = n_missed = 0
    for chapter in plan.chapters:
        if only not in ("", chapter.name):
            continue
        cells = [
            cell
            for cell in read_cells(root / "notebooks" / f"{chapter.name}.ipynb")
            if cell["cell_type"] == "code"
        ]
        trees = [parse_cell(chapter.name, number, cell) for number, cell in enumerate(cells)]
        places = feeding(cells, trees)
        chosen = random.Random(seed).sample(
            places, min(len(places), N_QUICK if quick else N_CHANGES)
        )
        parameters = plan.parameters[chapter.name]
        unnoticed = _in_fork(
            _Chapter(root, chapter.name, cells, parameters).try_changes, sorted(chosen)
        )
        if unnoticed is None:
            raise RuntimeError(
                f"{chapter.name} stops without any change, or prints other numbers than are pinned."
            )
        missed = [sites(trees[number])[site] for number, site in unnoticed]
        note = "; ".join(ast.unparse(node)[:60] for node in missed)
        n_chosen, n_missed = n_chosen + len(chosen), n_missed + len(missed)
        yield Figure(
            f"{chapter.name}: of {len(chosen)} changes noticed",
            100 * (1 - len(missed) / len(chosen)),
            "%",
            note=f"missed: {note}" if missed else "",
        )
    share = 1 - n_missed / n_chosen
    yield Figure(
        f"chapters: of {n_chosen} changes noticed", 100 * share, "%", ">= 90", share >= 0.9
    )


def feeding(cells: Sequence[dict[str, Any]], trees: Sequence[ast.Module]) -> list[tuple[int, int]]:
    """List the sites of statements whose names reach a number that is printed.

    A site is a cell and a place in it.
    """
    needed: set[str] = set()
    feeders = []
    for number in range(len(cells) - 1, -1, -1):
        if "parameters" in cells[number]["metadata"].get("tags", []):
            continue  # the run gives others; they are settings, not code
        figure = cells[number]["metadata"].get("mystnb", {}).get("figure", {}).get("name", "")
        for statement in reversed(trees[number].body):
            shows = (
                statement is trees[number].body[-1]
                and isinstance(statement, ast.Expr)
                and not figure.startswith("fig-")
            )
            prints = {"record_results", "display"} & _called(statement) and not figure.startswith(
                "fig-"
            )
            if not (shows or prints or _bound(statement) & needed):
                continue
            needed |= {
                node.id for node in ast.walk(statement) if isinstance(node, ast.Name)
            } - DRAWN
            lines = range(statement.lineno, (statement.end_lineno or statement.lineno) + 1)
            feeders += [
                (number, site)
                for site, node in enumerate(sites(trees[number]))
                if node.lineno in lines
            ]
    return sorted(feeders)


def _called(statement: ast.stmt) -> set[str]:
    return {
        node.func.id
        for node in ast.walk(statement)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }


def _bound(statement: ast.stmt) -> set[str]:
    """Name what a statement binds, or changes in place."""
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return {statement.name}
    names = [node for node in ast.walk(statement) if isinstance(node, ast.Name)]
    bound = {node.id for node in names if isinstance(node.ctx, ast.Store)}
    for node in ast.walk(statement):
        target = (
            node.func
            if isinstance(node, ast.Call) and isinstance(statement, ast.Expr | ast.For)
            else node
        )
        if isinstance(target, ast.Attribute | ast.Subscript) and (
            target is not node or isinstance(target.ctx, ast.Store)
        ):
            bound |= {base.id for base in ast.walk(target.value) if isinstance(base, ast.Name)}
    return bound


class _Chapter:
    """A chapter that is run in this process, cell by cell."""

    def __init__(
        self, root: Path, name: str, cells: Sequence[dict[str, Any]], parameters: dict[str, Any]
    ) -> None:
        self.root, self.name, self.cells, self.parameters = root, name, cells, parameters
        self.outputs: list[list[dict[str, Any]]] = []
        self.specs = read_specs(root)
        self.pinned = {
            key: text for key, text in read_pinned(root).items() if key.startswith(f"{name}/")
        }

    def try_changes(self, chosen: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """List the changes that nothing notices."""
        from IPython.core.interactiveshell import InteractiveShell
        from traitlets.config import Config

        Run.write = lambda *_, **__: None  # type: ignore[assignment,method-assign]  # the tables of the run stay
        self.shell: Any = InteractiveShell.instance(
            config=Config(HistoryManager={"enabled": False})
        )
        unnoticed = []
        for number, cell in enumerate(self.cells):
            for site in [site for other, site in chosen if other == number]:
                if _in_fork(self._is_as_pinned, number, site):
                    unnoticed.append((number, site))
            self._run(cell, cell["source"])
        if not self._prints_what_is_pinned():
            raise RuntimeError("run `make pin` first")
        return unnoticed

    def _is_as_pinned(self, changed: int, site: int) -> bool:
        resource.setrlimit(resource.RLIMIT_CPU, (LIMIT_S + int(sum(os.times()[:2])),) * 2)
        for number in range(changed, len(self.cells)):
            source = self.cells[number]["source"]
            if number == changed:
                source = ast.unparse(
                    change(parse_cell(self.name, number, self.cells[number]), site)
                )
            self._run(self.cells[number], source)
        return self._prints_what_is_pinned()

    def _run(self, cell: dict[str, Any], source: str) -> None:
        from IPython.utils.capture import capture_output

        with capture_output() as captured:
            result = self.shell.run_cell(source, store_history=True)
            if "parameters" in cell["metadata"].get("tags", []):
                self.shell.push(self.parameters)
        result.raise_error()
        outputs = [
            ("display_data", output.data, output.metadata or {}) for output in captured.outputs
        ]
        if result.result is not None:
            outputs.append(("execute_result", *self.shell.display_formatter.format(result.result)))
        self.outputs.append(
            [
                {"output_type": kind, "data": data, "metadata": about}
                for kind, data, about in outputs
            ]
        )

    def _prints_what_is_pinned(self) -> bool:
        cells = [
            {**cell, "outputs": outputs}
            for cell, outputs in zip(self.cells, self.outputs, strict=True)
        ]
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder) / f"{self.name}.ipynb"
            copy.write_text(json.dumps({"cells": cells}, default=str), encoding="utf-8")
            moved = compare(self.pinned, read_chapter_numbers(copy, self.name, self.specs))
        print(self.name, *moved[:3], sep="\n  ", file=sys.stderr)
        return not moved


def _in_fork(work: Any, *args: Any) -> Any:
    """Call a function in a process of its own, and return what it does, or None if it stops."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read_end)
        try:
            text = json.dumps(work(*args))
            with os.fdopen(write_end, "w") as pipe:
                pipe.write(text)
        except BaseException as error:
            with contextlib.suppress(BaseException):
                print(f"{type(error).__name__}: {str(error)[:200]}", file=sys.stderr)
            os._exit(1)
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return json.loads(text) if text else None
