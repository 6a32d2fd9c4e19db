"""Simulations kept as tables, which depend on code, settings and seed alone."""

from __future__ import annotations

import ast
import hashlib
import inspect
import json
import os
import re
import textwrap
import time
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy

from heart_utils.runs import RunError, checksum, find_root, write_atomically
from heart_utils.settings import JsonObject

__all__ = ["kept"]

FOLDER = Path("data", "simulated")
#: A variable of the environment: ``write`` keeps what had to be computed, ``ignore`` computes
#: everything.
MODE = "HEART_KEPT"
LOG = "HEART_KEPT_LOG"  #: Names a file that gets a line for each table that had to be computed.

_VALUES = (
    int,
    float,
    str,
    list,
    tuple,
    dict,
    set,
    np.ndarray,
    np.generic,
    np.random.Generator,
    pd.DataFrame,
    pd.Series,
)
_HOMES = ("heart_utils.", "__main__")


def kept(
    name: str, function: Callable[..., pd.DataFrame], *args: Any, **settings: Any
) -> pd.DataFrame:
    """Run a simulation, or read its kept table if neither call nor code has changed.

    Code is all that the function reaches by imports, without comments and docstrings. ``make
    simulations`` keeps tables anew (``HEART_KEPT=write``); ``HEART_KEPT=ignore`` computes all.

    Parameters
    ----------
    name
        Of the table; no other call has it.
    function
        Of the package or the chapter; its DataFrame depends on its arguments alone.
    *args, **settings
        Numbers, texts, dataclasses or containers of them; a generator must be fresh, as from
        :func:`~heart_utils.ratings.resampling.estimate_rng`.

    Returns
    -------
    pandas.DataFrame
        Read from ``data/simulated`` or computed, with equal values.

    Raises
    ------
    ValueError
        If a generator was used before, or a chapter's function uses other variables.

    Examples
    --------
    >>> from heart_utils.simulate.coverage import simulate_gate
    >>> rng = np.random.default_rng(1)
    >>> len(kept("an example", simulate_gate, n_studies=2, rng=rng))
    2
    """
    call, code = _call(function, args, settings), _code(function)
    try:
        folder = find_root() / FOLDER
    except RunError:  # a package without its checkout keeps nothing
        return function(*args, **settings)
    file = folder / f"{re.sub(r'[^a-z0-9]+', '-', name.lower())}.parquet"
    entry = read_manifest(folder).get(name, {"call": call, "code": code})
    now = {"call": call, "code": code, "table": file.is_file() and checksum(file)}
    changed = [part for part in now if entry.get(part) != now[part]]
    if not changed and os.environ.get(MODE) != "ignore":
        return pd.read_parquet(file)
    began = time.perf_counter()
    table = function(*args, **settings)
    took = time.perf_counter() - began
    if log := os.environ.get(LOG):
        with open(log, "a", encoding="utf-8") as lines:
            lines.write(
                f"{name}: simulated anew in {took:.1f} s, not as kept:"
                f" {', '.join(changed) or 'nothing'}\n"
            )
    if os.environ.get(MODE) == "write":
        write_atomically(file, table.to_parquet())
        entries = read_manifest(folder) | {
            name: now | {"table": checksum(file), "seconds": round(took, 1)}
        }
        text = json.dumps(dict(sorted(entries.items())), indent=1, ensure_ascii=False)
        write_atomically(folder / "manifest.json", f"{text}\n".encode())
    return table


def read_manifest(folder: Path) -> dict[str, JsonObject]:
    """Read each table's call, checksums of code and table, and seconds."""
    file = folder / "manifest.json"
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}


def _call(function: Callable[..., Any], args: Iterable[Any], settings: Mapping[str, object]) -> str:
    written = [_text(value) for value in args] + [
        f"{key}={_text(value)}" for key, value in sorted(settings.items())
    ]
    return f"{function.__module__}.{function.__qualname__}({', '.join(written)})"


def _text(value: object) -> str:
    if isinstance(value, np.random.Generator):
        fresh = np.random.default_rng(value.bit_generator.seed_seq.entropy)  # type: ignore[attr-defined]
        if fresh.bit_generator.state != value.bit_generator.state:
            raise ValueError(
                "The generator was used before; expected a fresh one, as from estimate_rng(seed,"
                " name)."
            )
        return f"default_rng({value.bit_generator.seed_seq.entropy})"  # type: ignore[attr-defined]
    if isinstance(value, pd.DataFrame):  # which prints its ends alone
        rows = value.to_csv(index=False).encode()
        return f"table({len(value)}, {hashlib.sha256(rows).hexdigest()[:16]!r})"
    # The last digits of what a chapter computed depend on the processor.
    return re.sub(r"\d+\.\d{11,}", lambda number: f"{float(number[0]):.12g}", repr(value))


def _code(function: Callable[..., Any]) -> str:
    """Compute a checksum of the code that a function reaches, and of numerical libraries."""
    code_of = {
        "versions": f"numpy {np.__version__}, pandas {pd.__version__}, scipy {scipy.__version__}"
    }
    todo: list[Any] = [function]
    while todo:
        one = todo.pop()
        module = one if isinstance(one, str) else one.__module__
        # it stands in a chapter: its text, and the functions that it names
        if not module.startswith("heart_utils."):
            if (own := f"{module}.{one.__qualname__}") not in code_of:
                tree = ast.parse(textwrap.dedent(inspect.getsource(one)))
                code_of[own] = _plain(tree)
                used = {name: one.__globals__.get(name) for name in sorted(_names(tree))}
                if loose := [name for name, value in used.items() if isinstance(value, _VALUES)]:
                    raise ValueError(
                        f"{own} uses {', '.join(loose)}, which may change; expected among its"
                        " arguments."
                    )
                todo += [
                    value
                    for value in used.values()
                    if getattr(value, "__module__", "").startswith(_HOMES)
                ]
        elif module not in code_of:
            code_of[module], imports = _read(module)
            todo += imports
    return hashlib.sha256(
        "\n".join(f"{name}: {code_of[name]}" for name in sorted(code_of)).encode()
    ).hexdigest()


def _names(tree: ast.Module) -> set[str]:
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    inside = {node.id for node in names if not isinstance(node.ctx, ast.Load)}
    inside |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    return {node.id for node in names} - inside


@cache
def _read(module: str) -> tuple[str, list[str]]:
    """Read a module's code and its imports from the package; empty without one."""
    path = Path(__file__).parents[2].joinpath(*module.split("."))
    file = next(
        (file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None
    )
    tree = ast.parse(file.read_text(encoding="utf-8") if file else "")
    named = {
        name
        for node in ast.walk(tree)
        for name in _imports(node)
        if name.startswith("heart_utils.")
    }
    return _plain(tree), sorted(named)


def _imports(node: ast.AST) -> list[str]:
    if isinstance(node, ast.ImportFrom):
        return [
            part
            for alias in node.names
            for part in (f"{node.module}", f"{node.module}.{alias.name}")
        ]
    return [alias.name for alias in node.names] if isinstance(node, ast.Import) else []


def _plain(tree: ast.Module) -> str:
    """Write code without comments and docstrings, alike in all Pythons."""
    for node in ast.walk(tree):
        node.__dict__.pop("type_params", None)
        body = getattr(node, "body", None)
        if (
            isinstance(body, list)
            and body
            and isinstance(body[0], ast.Expr)
            and isinstance(body[0].value, ast.Constant)
        ):
            body[:1] = [] if isinstance(body[0].value.value, str) else body[:1]
    return ast.dump(tree)
