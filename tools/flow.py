"""Follow what the names of a chapter rest on, from ``run.read("verdicts")`` to the cell that draws.

Nothing is run: each statement passes on what the names in it rest on.
"""

from __future__ import annotations

import ast
from collections.abc import Collection
from functools import cache
from pathlib import Path

from heart_utils.tables import TABLES

__all__ = ["PACKAGES", "Flow", "is_table", "public_homes"]

PACKAGES = ("heart_utils", "heart_collect")
"""What the chapters are built on."""

RESULTS = "results"  # what a chapter records for its sentences, by name
FOLDERS = {
    "published": {"quoted"},
    "heart": {"measured/heart_tables"},
    "esconv": {"measured/esconv_tables"},
    "sample": {"demo"},
    "trained": {"measured/welivita", "measured/resort"},
}
"""Folders below ``data/`` that chapters read files from, and what is in them."""

DRAWS = {
    "normal",
    "standard_normal",
    "binomial",
    "poisson",
    "uniform",
    "beta",
    "gamma",
    "exponential",
    "multinomial",
    "random",
}
"""Methods of a random generator that invent data; those that resample data are not among them."""

RESAMPLE = {"check_saving"}
"""Functions beside the simulations that draw from the rows which they get and invent none."""

ASSUMED = {"BEHAVIOURS", "study_cost"}
"""Settings of simulated raters, and what is calculated from settings alone: nothing of it was
measured."""


@cache
def public_homes() -> dict[str, str]:
    """Name the module of each public name, such as ``heart_utils.fit_ratings``, from the stubs."""
    homes: dict[str, str] = {}
    for package in PACKAGES:
        stub = Path(__file__).parents[1] / package / "__init__.pyi"
        for node in ast.parse(stub.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ImportFrom):
                homes |= {
                    f"{package}.{alias.name}": f"{package}.{node.module}" for alias in node.names
                }
    return homes


class Flow:
    """Follow what names rest on, cell after cell.

    A source is a table as ``make`` names it (``"verdicts"``, ``"public/scores/mentalalign"``),
    ``"run"`` for anything else of the chapter's own run, or a kind, as in ``"simulated"`` and
    ``"measured/esconv"``.
    """

    def __init__(self, absent: Collection[str] = ()) -> None:
        self.absent = absent  # data sets that are not at hand
        self.rests: dict[str, set[str]] = {}  # a name -> its sources
        self.runs: dict[str, str] = {}  # a name -> the run that it holds; "" is the chapter's own
        self.imported: dict[str, str] = {}
        self.tables: dict[str, list[str]] = {}  # a name -> the tables that its text names
        self.glued: dict[str, set[str]] = {}
        self.used: set[str] = set()

    def follow(self, tree: ast.Module) -> set[str]:
        """Read the next cell, and give the sources of all that it uses."""
        self.used = set()
        for statement in tree.body:
            self._run(statement, sure=True)
        return self.used

    def _run(self, node: ast.stmt, *, sure: bool) -> None:
        if isinstance(node, ast.ImportFrom):
            # what the package itself offers is known by the module that it lives in
            for alias in node.names:
                home = public_homes().get(f"{node.module}.{alias.name}", node.module)
                self.imported[alias.asname or alias.name] = f"{home}.{alias.name}"
        elif isinstance(node, ast.Import):
            self.imported |= {
                alias.asname or alias.name.partition(".")[0]: alias.name for alias in node.names
            }
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            # what a function reads is used where it is called
            outside, self.used = (self.used, self.rests), set()
            own = {
                getattr(part, "arg", getattr(part, "id", ""))
                for part in ast.walk(node)
                if _is_bound(part)
            }
            self.rests = {name: its for name, its in self.rests.items() if name not in own}
            sources = set().union(*(self._of(part) for part in node.body))
            self.used, self.rests = outside
            self.rests[node.name] = sources
        elif isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
            if node.value is not None:
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                if any(getattr(target, "id", "") == RESULTS for target in targets):
                    self._quote(node.value)
                for target in targets:
                    self._bind(
                        target, node.value, sure=sure and not isinstance(node, ast.AugAssign)
                    )
        elif isinstance(node, (ast.If, ast.For, ast.While, ast.With, ast.Try)):
            if isinstance(node, ast.For):
                self._bind(node.target, node.iter, sure=True)
            for item in getattr(node, "items", []):
                if item.optional_vars is not None:
                    self._bind(item.optional_vars, item.context_expr, sure=False)
            if isinstance(node, (ast.If, ast.While)):
                self._of(node.test)
            self._branch(node)
        else:
            sources = self._of(node)
            if (
                isinstance(node, ast.Expr)
                and isinstance(node.value, ast.Call)
                and isinstance(node.value.func, ast.Attribute)
            ):
                changed = _base(node.value.func)  # as in rows.append(row)
                if changed and changed not in self.runs and changed not in self.imported:
                    self.rests[changed] = self.rests.get(changed, set()) | sources

    def _branch(self, node: ast.If | ast.For | ast.While | ast.With | ast.Try) -> None:
        """Follow each branch of a statement; then a name may rest on what any branch assigned."""
        other = [] if isinstance(node, ast.With) else node.orelse
        ways = [node.body, *([other] if other else [])]
        if isinstance(node, ast.Try):
            ways = [[*node.body, *other], *(handler.body for handler in node.handlers)]
            condition_sources = set().union(*(self._look(line) for line in node.body))
            # then the data at hand decide
            if any(source.startswith("measured/") for source in condition_sources):
                ways = (
                    ways[1:]
                    if condition_sources & {f"measured/{name}" for name in self.absent}
                    else ways[:1]
                )
        before, after = self.rests, []
        for way in ways:
            self.rests = dict(before)
            for one in way:
                self._run(one, sure=True)
            after.append(self.rests)
        if len(ways) == 1 and isinstance(node, (ast.If, ast.For, ast.While)):
            after.append(before)
        self.rests = {
            name: set().union(*(way.get(name, set()) for way in after))
            for name in set().union(*after)
        }
        for one in getattr(node, "finalbody", []):
            self._run(one, sure=True)

    def _bind(self, target: ast.expr, value: ast.expr, *, sure: bool) -> None:
        pairs = (
            isinstance(target, ast.Tuple)
            and isinstance(value, ast.Tuple)
            and len(target.elts) == len(value.elts)
        )
        if pairs:
            for one, its in zip(target.elts, value.elts, strict=True):  # type: ignore[attr-defined]
                self._bind(one, its, sure=sure)
            return
        sources = self._of(value)
        for name in (part for part in ast.walk(target) if isinstance(part, ast.Name)):
            sole = sure and isinstance(name.ctx, ast.Store)  # df["x"] = y adds to what df rests on
            self.rests[name.id] = sources if sole else self.rests.get(name.id, set()) | sources
            self.tables[name.id] = self._texts(value)
            self.runs.pop(name.id, None)
            if isinstance(value, ast.Call) and _called(value) == "open_run":
                self.runs[name.id] = _text(value.args[0])

    def _of(self, node: ast.AST) -> set[str]:
        """Return the sources of an expression, and record that the cell uses them."""
        sources = self._look(node)
        self.used |= sources
        return sources

    def _look(self, node: ast.AST) -> set[str]:
        if isinstance(node, ast.NamedExpr):
            self._bind(node.target, node.value, sure=False)
        if isinstance(node, ast.Name):
            if self.imported.get(node.id, "").rpartition(".")[2] in ASSUMED:
                return {"simulated"}
            return (
                {self._in(node.id, "run")}
                if node.id in self.runs
                else self.rests.get(node.id, set())
            )
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id in self.runs
        ):
            return set()  # its name or its folder
        if isinstance(node, ast.Call):
            return self._call(node)
        if isinstance(
            node, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Lambda)
        ):
            inner = (
                node.args.args
                if isinstance(node, ast.Lambda)
                else [part.target for part in node.generators]
            )
            own = {
                getattr(part, "id", getattr(part, "arg", ""))
                for target in inner
                for part in ast.walk(target)
            }
            for part in getattr(node, "generators", []):
                self.tables |= dict.fromkeys(own, self._texts(part.iter))
            outside, self.rests = (
                self.rests,
                {name: its for name, its in self.rests.items() if name not in own},
            )
            sources = set().union(*(self._look(child) for child in ast.iter_child_nodes(node)))
            self.rests = outside | {
                name: its for name, its in self.rests.items() if name not in own
            }
            return sources
        inside = [self._look(child) for child in ast.iter_child_nodes(node)]
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            inside.append(FOLDERS.get(_text(node.right), set()))
        return set().union(*inside)

    def _quote(self, results: ast.expr) -> None:
        """Note what each number rests on that is recorded by a name written out."""
        if isinstance(results, ast.Dict):
            self.glued |= {
                _text(key): self._look(value)
                for key, value in zip(results.keys, results.values, strict=True)
                if key
            }

    def _call(self, call: ast.Call) -> set[str]:
        called = _called(call)
        home = self.imported.get(_base(call.func) or "", "")
        given = [self._look(argument) for argument in call.args]
        given += [self._look(keyword.value) for keyword in call.keywords if keyword.arg != "rng"]
        if called == "open_run" or home.endswith((".note_tables", ".show_versions")):
            return set()
        draws = (
            home.startswith("heart_utils.simulate.")
            and not called[0].isupper()
            and called not in RESAMPLE
        )
        if draws or called.startswith("simulate_") or home == "heart_utils.report.kept.kept":
            return {"simulated"}  # whatever its settings were taken from
        if called in DRAWS and isinstance(call.func, ast.Attribute):
            drawn_by = call.func.value  # a generator by its name, or made in the same breath
            made_here = isinstance(drawn_by, ast.Call) and _called(drawn_by) in (
                "estimate_rng",
                "default_rng",
            )
            if made_here or (_base(call.func) or "").startswith("rng"):
                return {"simulated"}
        if home == "heart_utils.sources.heart.load_rubric_items":
            # they come with the project, the questions do not
            return {"measured/heartbench_points"}
        if called == "load_codebooks":
            return set()  # the words of this project
        if home.startswith("heart_utils.sources") and called.startswith("load_"):
            return {f"measured/{_text(call.args[0]) if call.args else home.split('.')[2]}"}
        if home.endswith(".read_sides"):
            return {"replies", "verdicts"}  # of the gate's run, unless the names carry another
        if home.endswith(".study.Margins"):
            return {"quoted"}  # HEART's published shares
        if called == "choose_histories":
            return {"demo"}  # of another recipe than the run's, whose tables are read
        if home.endswith(".read_recipe"):
            return set() if call.args and _text(call.args[0]) else {"run"}
        if called == "read" and isinstance(call.func, ast.Attribute):
            held = call.func.value
            own = isinstance(held, ast.Call) and _called(held) == "open_run"
            if own or (isinstance(held, ast.Name) and held.id in self.runs):
                name = _text(held.args[0]) if own else self.runs[held.id]  # type: ignore[attr-defined]
                return {f"{name}/{table}".strip("/") for table in self._named(call)}
        return set().union(self._look(call.func), *given)

    def _named(self, call: ast.Call) -> list[str]:
        """Name the table and the part of it that is read.

        What a loop reads is named where the loop gets its names.
        """
        texts = [
            _text(part) for part in [*call.args, *(keyword.value for keyword in call.keywords)]
        ]
        if texts[0] in TABLES:
            return ["/".join(filter(None, texts[:2]))]
        return [table for part in call.args[:1] for table in self._texts(part)]

    def _texts(self, node: ast.expr) -> list[str]:
        """List the tables that an expression names, itself or by the names in it."""
        parts = list(ast.walk(node))
        named = (table for part in parts for table in self.tables.get(getattr(part, "id", ""), []))
        return sorted(
            {
                *named,
                *(
                    part.value
                    for part in parts
                    if isinstance(part, ast.Constant) and part.value in TABLES
                ),
            }
        )

    def _in(self, name: str, table: str) -> str:
        return f"{self.runs[name]}/{table}".strip("/")


def _base(node: ast.expr) -> str | None:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


def _is_bound(node: ast.AST) -> bool:
    """Check for an argument or an assigned name; inside a function these are its own."""
    return isinstance(node, ast.arg) or (
        isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    )


def _called(call: ast.Call) -> str:
    return (
        call.func.attr
        if isinstance(call.func, ast.Attribute)
        else getattr(call.func, "id", "") or "?"
    )


def _text(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def is_table(source: str) -> bool:
    """Check whether a source is a table."""
    return any(part in TABLES for part in source.split("/"))
