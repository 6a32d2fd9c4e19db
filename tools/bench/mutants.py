"""Random changes to the code that asks, judges and computes: how many its nearest tests notice.

A change turns a comparison, moves a number by one, puts ``and`` for ``or``, plus for minus, true
for false, or drops a ``not``; some change nothing that anybody could see, so 100 % is not to be
had. Each runs in a process of its own, forked when the tests are collected, and counts as noticed
by a test that passes right afterwards without the change: some look at a clock, and a busy machine
fails them. ``--quick`` tries ten a module, ``--only`` one wing or module; two runs with one
``--seed`` try the same changes.
"""

from __future__ import annotations

import ast
import copy
import importlib
import io
import json
import os
import random
import re
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout, suppress
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from heart_collect.calls.models import load_litellm
from heart_utils.runs import find_root
from tools.bench import Figure

__all__ = ["change", "run", "sites"]

WINGS = (
    "ratings",
    "agreement",
    "judges",
    "evidence",
    "calls",
    "judging",
    "people",
    "sources",
    "report",
    "gate",
    "scores",
    "tables",
)
"""Folders of the packages, and modules that belong to none."""

PACKAGES = ("heart_utils", "heart_collect")

QUICK = (
    "-m",
    "not (mirror or live or services or slow)",
    "-k",
    "not (ctrl_c or kill_9 or two_processes or reads_nothing)",
)
"""Left out: what needs more than the environment, and collectors in processes of their own, which
no change reaches."""

READERS = tuple(
    f"tests/sources/test_{name}.py" for name in ("files_that_people_have", "sources_files")
)
DEFAULTS = "tests/test_options.py::test_one_default_serves_all"
NEAREST = {
    "ratings": ("tests/ratings",),
    "heart_utils.ratings.verdicts": ("tests/ratings", "tests/agreement/test_agreement.py"),
    "heart_collect.calls.models": ("tests/calls/test_model_settings.py",),
    "heart_collect.calls.ledger": ("tests/calls/test_ledger.py", "tests/calls/test_batch.py"),
    "heart_collect.calls.database": ("tests/calls/test_ledger.py",),
    "heart_collect.calls.commands": ("tests/calls/test_ledger.py",),
    "heart_collect.calls.engine": ("tests/calls/test_models.py",),
    "heart_collect.calls.flow": ("tests/calls/test_queues.py", "tests/calls/test_models.py"),
    "heart_collect.people.assignment": (
        "tests/people/test_assignment.py",
        "tests/people/test_privacy.py",
    ),
    **{f"heart_utils.sources.{name}": READERS for name in ("guess", "options", "reshape")},
    "heart_utils.scores": ("tests/test_scores.py", "tests/report/test_leaderboard.py"),
    "heart_utils.tables": ("tests/test_tables.py",),
    "heart_utils.gate": (
        "tests/test_gate_anytime.py",
        "tests/test_gate_drops.py",
        "tests/test_gate_reading.py",
        "tests/report/test_gate.py",
    ),
}
"""Wing or module -> its tests beside its doctests, where they are not those of its wing that
import the module: ratings are tested through the fit."""

N_CHANGES, N_QUICK = 60, 10
LIMIT_S = 60
"""A test that runs so long notices the change: it hangs. The longest takes five seconds on a free
machine."""
HUNG = "(no end)"
SEED = 20260109
TURNED: dict[type[ast.AST], Any] = {
    ast.Lt: ast.GtE,
    ast.GtE: ast.Lt,
    ast.Gt: ast.LtE,
    ast.LtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
}


def run(quick: bool, only: str = "", seed: int = SEED) -> Iterator[Figure]:
    """Give, for each module and each wing, the share of changes noticed."""
    import pytest

    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    os.chdir(find_root())
    for wing in WINGS:
        n_chosen = n_missed = 0
        for name in (
            name for name in _modules(wing) if only in (wing, name.rpartition(".")[2], name, "")
        ):
            file = Path(*name.split(".")).with_suffix(".py")
            tree = ast.parse(file.read_text(encoding="utf-8"))
            statements = sites(tree)
            chosen = random.Random(seed).sample(
                range(len(statements)), min(len(statements), N_QUICK if quick else N_CHANGES)
            )
            chosen.sort()
            trials = _Trials(name, [tree, *(change(tree, number) for number in chosen)])
            tests = [str(file), DEFAULTS, *NEAREST.get(name, NEAREST.get(wing, _nearest(name)))]
            with redirect_stdout(io.StringIO()) as printed:
                pytest.main(
                    [
                        "-x",
                        "-q",
                        "-n",
                        "0",
                        "-p",
                        "no:cacheprovider",
                        "--doctest-modules",
                        *QUICK,
                        *tests,
                    ],
                    plugins=[trials],
                )
            if not trials.noticed or trials.noticed[0]:
                raise RuntimeError(
                    f"{', '.join(tests)} fail without any change.\n{printed.getvalue()}"
                )
            missed = [
                number
                for number, noticed in zip(chosen, trials.noticed[1:], strict=True)
                if not noticed
            ]
            note = "; ".join(
                f"line {statements[number].lineno}: {ast.unparse(statements[number])[:60]}"
                for number in missed[:12]
            )
            n_chosen, n_missed = n_chosen + len(chosen), n_missed + len(missed)
            yield Figure(
                f"{name}: of {len(chosen)} changes noticed",
                100 * (1 - len(missed) / len(chosen)),
                "%",
                note=f"missed: {note}" if missed else "",
            )
        if n_chosen:
            share = 1 - n_missed / n_chosen
            yield Figure(
                f"{only or wing}: of {n_chosen} changes noticed",
                100 * share,
                "%",
                ">= 90",
                share >= 0.9,
            )


def _modules(wing: str) -> list[str]:
    """Name the modules of a wing."""
    for package in PACKAGES:
        files = sorted(Path(package, wing).glob("[!_]*.py"))
        if files:
            return [".".join(file.with_suffix("").parts) for file in files]
    return [f"{PACKAGES[0]}.{wing}"]


def _nearest(name: str) -> list[str]:
    """List the tests that name a module: those of its wing if any does.

    Where none does, those that name what imports it: a step inside is tested through the door.
    """
    modules = {
        ".".join(file.with_suffix("").parts): file.read_text(encoding="utf-8")
        for package in PACKAGES
        for file in Path(package).rglob("[!_]*.py")
    }
    tests = {
        str(file): file.read_text(encoding="utf-8")
        for file in sorted(Path("tests").rglob("test_*.py"))
    }
    home = str(Path("tests", name.split(".")[1], ""))
    named = [name]
    while named:
        wings = [re.escape(one).rpartition(r"\.") for one in named]
        imports = "|".join(rf"from {wing} import .*\b{module}\b" for wing, _, module in wings)
        ours = "|".join(map(re.escape, named))
        nearest = [
            file for file, text in tests.items() if re.search(rf"({ours})\b|{imports}", text)
        ]
        if nearest:
            return [file for file in nearest if file.startswith(home)] or nearest
        named = [
            module
            for module, text in modules.items()
            if re.search(rf"(from|import) ({ours})\b|{imports}", text)
        ]
    return []


def sites(tree: ast.Module) -> list[ast.expr]:
    """List what can be changed, in the order of the file.

    No annotation, no text, and no `strict=` of what is as long.
    """
    nodes: list[ast.expr] = []

    def visit(node: ast.AST) -> None:
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list"):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST) and not (
                    isinstance(child, ast.keyword) and child.arg == "strict"
                ):
                    visit(child)
        number = isinstance(node, ast.Constant) and isinstance(node.value, int | float)
        turned = isinstance(node, ast.Compare) or (
            isinstance(node, ast.BinOp | ast.BoolOp) and type(node.op) in TURNED
        )
        if number or turned or (isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)):
            nodes.append(node)  # type: ignore[arg-type]

    visit(tree)
    return nodes


def change(tree: ast.Module, number: int) -> ast.Module:
    """Return a copy of a module with one of its :func:`sites` changed."""
    changed = copy.deepcopy(tree)
    node = sites(changed)[number]
    if isinstance(node, ast.Constant):
        node.value = not node.value if isinstance(node.value, bool) else node.value + 1  # type: ignore[operator]
    elif isinstance(node, ast.Compare):
        node.ops[0] = TURNED[type(node.ops[0])]()
    elif isinstance(node, ast.UnaryOp):
        node.op, node.operand = ast.Not(), ast.UnaryOp(ast.Not(), node.operand)
    elif isinstance(node, ast.BinOp | ast.BoolOp):
        node.op = TURNED[type(node.op)]()
    return ast.fix_missing_locations(changed)


class _Trials:
    """A pytest plugin: run collected tests in a process of its own for each changed module."""

    def __init__(self, name: str, trees: Sequence[ast.Module]) -> None:
        self.name, self.trees, self.noticed = name, trees, list[bool]()
        self.failed, self.seconds = "", dict[str, float]()

    def pytest_runtestloop(self, session: Any) -> bool:
        """Take the place of pytest's own loop."""
        load_litellm()  # once, and not in every process
        for tree in self.trees:  # the first is the module as it is
            started = time.monotonic()
            self.noticed.append(self._notices(session, tree))
            # what soon tells comes first
            session.items.sort(key=lambda item: self.seconds.get(item.nodeid, 0.0))
            line = f"{self.noticed[-1]} {time.monotonic() - started:.0f} s {self.failed}"
            print(f"{self.name} {len(self.noticed) - 1} {line}", file=sys.stderr)
        return True

    def pytest_runtest_logstart(self) -> None:
        """End the process if the test that begins does not end."""
        signal.alarm(LIMIT_S)

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Keep which test failed first, and what each takes."""
        self.failed = self.failed or (report.nodeid if report.failed else "")
        self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0.0) + report.duration

    def _notices(self, session: Any, tree: ast.Module) -> bool:
        """Check whether a test fails with a change and passes without it."""
        for _ in range(3):
            self.failed = failed = self._try(session, tree, session.items)
            if failed in ("", HUNG) or tree is self.trees[0]:
                return failed != ""
            if not self._try(
                session, self.trees[0], [item for item in session.items if item.nodeid == failed]
            ):
                return True
        return False

    def _try(self, session: Any, tree: ast.Module, items: list[Any]) -> str:
        """Run tests with a module changed: the first that failed, or nothing."""
        read_end, write_end = os.pipe()
        child = os.fork()
        if child == 0:
            os.setpgid(0, 0)  # so that what it starts ends with it
            self.failed = HUNG  # unless it comes to the end
            try:
                silence = os.open(os.devnull, os.O_WRONLY)
                os.dup2(silence, 1)
                os.dup2(silence, 2)
                _transplant(sys.modules[self.name], tree)
                session.items, self.failed = items, ""
                with suppress(session.Failed, session.Interrupted):
                    importlib.import_module("_pytest.main").pytest_runtestloop(session)
            except BaseException:
                self.failed = self.failed or HUNG
            finally:
                os.write(write_end, json.dumps([self.failed, self.seconds]).encode())
                os._exit(0)
        os.close(write_end)
        ended = os.waitpid(child, 0)[1]
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        os.set_blocking(read_end, False)
        with os.fdopen(read_end) as first:
            failed, seconds = (HUNG, {}) if os.WIFSIGNALED(ended) else json.loads(first.read())
        self.seconds = self.seconds or seconds
        return str(failed)


def _transplant(module: ModuleType, tree: ast.Module) -> None:
    """Copy the code and values of a changed module into the one that others imported from."""
    names: dict[str, Any] = {"__name__": module.__name__, "__file__": module.__file__}
    # where dataclasses look for their annotations' names
    sys.modules[module.__name__] = ModuleType(module.__name__)
    vars(sys.modules[module.__name__]).update(vars(module))
    exec(compile(tree, str(module.__file__), "exec"), names)
    sys.modules[module.__name__] = module
    for name, new in names.items():
        old = vars(module).get(name)
        if isinstance(new, type) and new.__module__ == module.__name__:
            for attribute, value in vars(new).items():
                if not _replant(vars(old).get(attribute), value) and attribute in getattr(
                    new, "__dataclass_fields__", ()
                ):
                    setattr(old, attribute, value)
        elif (
            not _replant(old, new)
            and not name.startswith("__")
            and not isinstance(new, ModuleType | type)
            # statements of other modules name the tables that there were
            and not type(new).__module__.startswith("sqlalchemy.")
        ):
            setattr(module, name, new)


def _replant(old: Any, new: Any) -> bool:
    """Replace the code of a function, or of what wraps one; false if it is neither."""
    # SQLAlchemy's `func` has an attribute of any name
    if type(new).__module__ not in ("builtins", "functools"):
        return False
    for wrapped in ("__wrapped__", "fget", "func"):
        if getattr(new, wrapped, None) is not None and getattr(old, wrapped, None) is not None:
            within = _replant(getattr(old, wrapped), getattr(new, wrapped))
            if not isinstance(new, FunctionType):
                return within
    if not (isinstance(old, FunctionType) and isinstance(new, FunctionType)):
        return isinstance(new, FunctionType | property)
    with suppress(ValueError):  # another number of free variables: it stays as it was
        old.__code__, old.__defaults__, old.__kwdefaults__ = (
            new.__code__,
            new.__defaults__,
            new.__kwdefaults__,
        )
    return True
