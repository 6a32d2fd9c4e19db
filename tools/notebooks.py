"""Read what a notebook says about itself: its parameters, and the tables it reads and writes.

Nothing is run and nothing heavy is imported, so that `make` can look at every notebook each time.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heart_utils.tables import TABLES
from tools.flow import PACKAGES, Flow, is_table

__all__ = [
    "Chapter",
    "NotebookError",
    "parse_cell",
    "read_cells",
    "read_chapter",
    "say_other_values",
]

NO_FINDING = {"run", "mode", "seed"}
"""Parameters that choose data of one's own or chance, beside the counts that begin with ``n_``."""


class NotebookError(ValueError):
    """A notebook cannot be read, or does not have the shape of a chapter."""


@dataclass(frozen=True)
class Chapter:
    """What one notebook says about itself.

    Attributes
    ----------
    name : str
        The file's name without its ending.
    parameters : dict
        Name -> default value, from the cell tagged ``parameters``.
    reads : tuple of str
        What ``run.read("…")`` names: ``"verdicts"``, ``"verdicts/people"`` (one part) or
        ``"public/verdicts"`` (another run's).
    writes : tuple of str
        The tables, or parts of tables, that ``run.write("…")`` replaces in this run.
    imports : tuple of str
        What the cells import from the packages: ``"heart_utils.runs.open_run"``, or a module's
        name.
    """

    name: str
    parameters: dict[str, Any]
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    imports: tuple[str, ...]


def read_chapter(notebook: Path) -> Chapter:
    """Read a notebook's parameters and tables from its source.

    Parameters
    ----------
    notebook : pathlib.Path
        A notebook of version 4.

    Returns
    -------
    Chapter
        Nothing in it was run.

    Raises
    ------
    NotebookError
        If the file is no notebook, has two parameters cells, or a parameter that is not a literal.
    """
    cells = read_cells(notebook)
    trees = [
        parse_cell(notebook, number, cell)
        for number, cell in enumerate(cells, 1)
        if cell["cell_type"] == "code"
    ]
    calls = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call)]
    flow = Flow()
    sources = (source for tree in trees for source in sorted(flow.follow(tree)))
    return Chapter(
        name=notebook.stem,
        parameters=_parameters(notebook, cells),
        reads=tuple(dict.fromkeys(source for source in sources if is_table(source))),
        writes=tuple(dict.fromkeys(table for call in calls for table in _written(call))),
        imports=tuple(dict.fromkeys(name for tree in trees for name in _imports(tree))),
    )


def read_cells(notebook: Path) -> list[dict[str, Any]]:
    """Read the cells of a notebook, each with its source as one text."""
    try:
        cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise NotebookError(
            f"{notebook} is not a notebook ({type(error).__name__}: {error})."
        ) from None
    return [{**cell, "source": "".join(cell["source"])} for cell in cells]


def say_other_values(cells: list[dict[str, Any]]) -> str:
    """Say for which values the sentences of a chapter were written, if it ran with others.

    Parameters
    ----------
    cells : list of dict
        Of an executed copy, with what papermill injected.

    Returns
    -------
    str
        Empty where each value that a finding may hang on is the chapter's own.
    """
    values: dict[str, dict[str, Any]] = {"parameters": {}, "injected-parameters": {}}
    for cell in cells:
        for tag in values.keys() & cell["metadata"].get("tags", []):
            for statement in ast.parse("".join(cell["source"])).body:
                if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
                    values[tag][statement.targets[0].id] = ast.literal_eval(statement.value)
    own, given = values.values()
    changed = [
        f"`{name}` is {given[name]!r} here, and was {own[name]!r} when they were written"
        for name in own.keys() & given.keys()
        if own[name] != given[name] and name not in NO_FINDING and not name.startswith("n_")
    ]
    return f"Sentences and captions may not hold: {'; '.join(sorted(changed))}." if changed else ""


def parse_cell(notebook: Path | str, number: int, cell: dict[str, Any]) -> ast.Module:
    """Parse a code cell without its magics; a cell in another language has no tree."""
    if cell["source"].startswith("%%"):
        return ast.Module([], [])
    lines = [
        "pass" if line.startswith(("%", "!")) else line for line in cell["source"].splitlines()
    ]
    try:
        return ast.parse("\n".join(lines))
    except SyntaxError as error:
        raise NotebookError(
            f"{notebook}: cell {number} is not Python (line {error.lineno}: {error.msg})."
        ) from None


def _parameters(notebook: Path, cells: list[dict[str, Any]]) -> dict[str, Any]:
    tagged = [
        number
        for number, cell in enumerate(cells, 1)
        if "parameters" in cell["metadata"].get("tags", [])
    ]
    if len(tagged) > 1:
        raise NotebookError(
            f"{notebook}: cells {tagged} are tagged parameters; papermill wants one."
        )
    parameters: dict[str, Any] = {}
    for number in tagged:
        for statement in ast.parse(cells[number - 1]["source"]).body:
            target = statement.targets[0] if isinstance(statement, ast.Assign) else None
            try:
                value = (
                    ast.literal_eval(statement.value) if isinstance(statement, ast.Assign) else None
                )
            except ValueError:
                target = None
            if not isinstance(target, ast.Name):
                raise NotebookError(
                    f"{notebook}: cell {number} holds the parameters and may hold only lines such"
                    f" as `seed = 1`; found `{ast.unparse(statement)}`. Derive values in the next"
                    " cell."
                )
            parameters[target.id] = value
    return parameters


def _imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in PACKAGES:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (
                alias.name for alias in node.names if alias.name.partition(".")[0] in PACKAGES
            )


def _written(call: ast.Call) -> Iterator[str]:
    """Name the table, and the part of it, that ``run.write`` is called for."""
    texts = [_text(argument) for argument in call.args]
    if (
        isinstance(call.func, ast.Attribute)
        and call.func.attr == "write"
        and texts
        and texts[0] in TABLES
    ):
        parts = [
            *texts[2:3],
            *(_text(keyword.value) for keyword in call.keywords if keyword.arg == "part"),
        ]
        yield "/".join(filter(None, [texts[0], *parts]))


def _text(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
