"""Write what each notebook of a run depends on, in files that `make` can read.

``python -m tools.plan sample`` reads ``params/sample.yaml`` and writes below ``build/``

- ``parameters/<run>/<chapter>.yaml``, what papermill hands to a notebook, and ``recipe.stamp``;
- ``code/<run>/<chapter>.stamp``, checksums of the modules that a notebook reaches by imports;
  ``code.stamp``, of them all, for the list of functions; ``data.stamp``, of the data found;
- ``tables/<run>/<table>.stamp``, the checksum of each table that a notebook reads or writes;
- ``graph/<run>.mk``, the list of chapters and an arrow from each table to its readers.

Each file is replaced only when its content changes, so that `make` runs nothing in vain.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grimp
import pandas as pd
import yaml

from heart_collect.judging.prompts import load_protocol, load_rubric
from heart_utils.runs import checksum, find_root, write_atomically
from heart_utils.sources.catalogue import cache_folder
from heart_utils.tables import TABLES
from tools.flow import PACKAGES, public_homes
from tools.notebooks import Chapter, NotebookError, read_chapter

__all__ = ["Plan", "PlanError", "read_plan", "stamp_table", "write_plan"]

CODE = (
    "heart_*/**/*.py",
    "heart_utils/**/pages/*",
    "heart_utils/tables.yaml",
    "heart_*/__init__.pyi",
    "requirements/book.txt",
    "tools/execute_notebook.py",
)
"""What the list of functions depends on; the first two are narrowed to what it reaches for a
notebook."""


class PlanError(ValueError):
    """The parameters of a run do not fit its notebooks."""


@dataclass(frozen=True)
class Plan:
    """The chapters of a run, their values, the recipe, and why others are left out."""

    run: str
    chapters: tuple[Chapter, ...]
    parameters: dict[str, dict[str, Any]]
    recipe: dict[str, Any] | None = None
    left_out: dict[str, str] = field(default_factory=dict)


def read_plan(root: Path, run: str) -> Plan:
    """Read ``params/<run>.yaml`` and hold it against the notebooks it lists.

    Parameters
    ----------
    root : pathlib.Path
        The project's root.
    run : str
        A bare name.

    Returns
    -------
    Plan
        Every parameter in it is declared by its notebook. A run that lists no chapters has those of
        the sample. The block ``collect:`` is not looked into; `make collect` reads it.

    Raises
    ------
    PlanError
        If the file or a notebook is missing, or a parameter is unknown or of another type.
    """
    file = root / "params" / f"{run}.yaml"
    if not file.is_file():
        known = ", ".join(sorted(path.stem for path in (root / "params").glob("*.yaml"))) or "none"
        raise PlanError(
            f"There is no {file}, which says what chapters the run {run!r} has. Copy"
            " params/sample.yaml there and change it; for votes alone one line is enough,"
            f" `chapters: [05_who_is_preferred]`. Runs with parameters: {known}."
        )
    try:
        given = yaml.safe_load(file.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise PlanError(f"{file} is not YAML: {error}") from None
    if not isinstance(given, dict):
        raise PlanError(f"{file} holds no blocks; expected `chapters:` with a list of notebooks.")
    recipe = given.pop("collect", None)
    left_out = given.pop("left_out", None) or {}
    names = given.pop("chapters", None) or _sample_chapters(root, run)
    if not isinstance(names, list) or not names:
        raise PlanError(
            f"{file}: expected `chapters:` with a list of notebooks, such as `-"
            " 05_who_is_preferred`."
        )
    for name in names:
        if not (root / "notebooks" / f"{name}.ipynb").is_file():
            raise PlanError(f"{file} lists {name!r}, and notebooks/{name}.ipynb is not there.")
    if twice := sorted({str(name) for name in names if names.count(name) > 1}):
        raise PlanError(f"{file} lists {', '.join(twice)} more than once; leave one.")
    if not isinstance(left_out, dict):
        raise PlanError(
            f"{file}: expected `left_out:` with a chapter and why it is left out on each line."
        )
    for name in left_out:
        if name in names or not (root / "notebooks" / f"{name}.ipynb").is_file():
            raise PlanError(
                f"{file}: `left_out` says why {name!r} is left out, and it is {_what(name, names)}."
            )
    chapters = tuple(read_chapter(root / "notebooks" / f"{name}.ipynb") for name in names)
    shared = given.pop("all", None) or {}
    blocks = {name: given.pop(name, None) or {} for name in names}
    if given:
        known = (
            f"`chapters`, `left_out`, `all`, `collect` nor a listed chapter ({', '.join(names)})"
        )
        raise PlanError(f"{file}: {', '.join(given)} is neither {known}.")
    values = _fit(file, run, chapters, shared, blocks)
    if (own := _own_dimension(root, run, recipe)) is not None:
        for chapter in chapters:
            if chapter.parameters.get("dimension") == "overall":
                values[chapter.name].setdefault("dimension", own)
    return Plan(run, chapters, values, recipe, left_out)


def refuse_empty_run(root: Path, plan: Plan) -> None:
    """Refuse a run whose chapters need verdicts while it has none.

    Before any of them runs; only a run of one's own can be empty.

    Parameters
    ----------
    root : pathlib.Path
        The project's root.
    plan : Plan
        From :func:`read_plan`.

    Raises
    ------
    PlanError
        With the folder that was looked at and both ways to fill it.
    """
    readers = [chapter.name for chapter in plan.chapters if "verdicts" in chapter.reads]
    made_here = any("verdicts" in chapter.writes for chapter in plan.chapters)
    folder = root / "runs" / plan.run
    filled = any([*folder.glob("verdicts*"), *folder.glob("scores*")])
    if readers and not made_here and not filled:
        raise PlanError(
            f"{', '.join(readers)} needs votes, and the run {plan.run!r} has none: {folder} has no"
            " verdicts.parquet. Put votes of your own there,"
            f" open_run({str(folder)!r}).write('verdicts', load_verdicts('votes.csv')), or ask"
            f" judges for them, make collect RUN={plan.run}."
        )


def write_plan(root: Path, plan: Plan) -> None:
    """Write what `make` needs to know below ``build/``.

    Parameters
    ----------
    root : pathlib.Path
        The project's root.
    plan : Plan
        From :func:`read_plan`.
    """
    build = root / "build"
    for copy in (build / "executed" / plan.run).glob("*.ipynb"):
        if not (root / "notebooks" / copy.name).is_file():  # the chapter has another name now
            copy.unlink()
    for name, values in plan.parameters.items():
        text = yaml.safe_dump(values, allow_unicode=True, sort_keys=False)
        write_atomically(build / "parameters" / plan.run / f"{name}.yaml", text.encode())
    recipe = yaml.safe_dump(plan.recipe, allow_unicode=True, sort_keys=False)
    write_atomically(build / "parameters" / plan.run / "recipe.stamp", recipe.encode())
    write_atomically(
        build / "code.stamp", _checksums(root, (path for glob in CODE for path in root.glob(glob)))
    )
    for name, files in _code_reached(root, plan.chapters).items():
        write_atomically(build / "code" / plan.run / f"{name}.stamp", _checksums(root, files))
    write_atomically(build / "data.stamp", _data_found(root))
    arrows: list[str] = []
    for chapter in plan.chapters:
        executed = f"build/executed/{plan.run}/{chapter.name}.ipynb"
        for table in chapter.writes:
            stamp = _stamp(plan.run, table)
            before = (root / stamp).read_text() if (root / stamp).is_file() else ""
            stamp_table(root, plan.run, table)
            if (
                before.strip() not in ("", "absent")
                and (root / stamp).read_text().strip() == "absent"
            ):
                # somebody removed the table: write it again
                (root / executed).unlink(missing_ok=True)
            arrows.append(f"{stamp}: {executed}; @:")
        arrows += [f"{executed}: {stamp}" for stamp in _stamps_read(root, plan, chapter)]
    listed = "CHAPTERS := " + " ".join(chapter.name for chapter in plan.chapters)
    write_atomically(
        build / "graph" / f"{plan.run}.mk", ("\n".join([listed, *arrows]) + "\n").encode()
    )


def stamp_table(root: Path, run: str, table: str) -> None:
    """Write the checksum of a table, or of one part of it, where `make` looks for it.

    Parameters
    ----------
    root : pathlib.Path
        The project's root.
    run : str
        A bare name.
    table : str
        ``"verdicts"`` or ``"verdicts/people"``.
    """
    file = root / "runs" / run / f"{table}.parquet"
    write_atomically(
        root / _stamp(run, table), (checksum(file) if file.is_file() else "absent").encode()
    )


def _code_reached(root: Path, chapters: Iterable[Chapter]) -> dict[str, set[Path]]:
    """List the files behind each notebook: modules it imports, and whatever those import.

    Late imports count too.
    """
    graph = grimp.build_graph(*PACKAGES, cache_dir=None)
    files = {path for glob in CODE[2:] for path in root.glob(glob)}
    reached = {}
    for chapter in chapters:
        named = {_home(name) for name in chapter.imports}
        modules = {
            part
            for name in named
            for part in (name, name.rpartition(".")[0])
            if part in graph.modules
        }
        modules |= {above for module in modules for above in graph.find_upstream_modules(module)}
        # Importing a module runs the packages that it stands in.
        modules |= {
            ".".join(module.split(".")[:depth])
            for module in modules
            for depth in range(1, module.count(".") + 1)
        }
        paths = [root.joinpath(*module.split(".")) for module in modules]
        code = {
            path / "__init__.py" if path.is_dir() else path.with_suffix(".py") for path in paths
        }
        # named after their module
        pages = {page for path in paths for page in path.parent.glob(f"pages/{path.name}*")}
        reached[chapter.name] = files | code | pages
    return reached


def _home(name: str) -> str:
    """Name the module of what a package loads late, such as ``heart_utils.fit_ratings``."""
    return public_homes().get(name, name)


def _own_dimension(root: Path, run: str, recipe: object) -> str | None:
    """Name the dimension for a run that has none called overall.

    The first that its judges are asked about, or of its votes.
    """
    votes, names = root / "runs" / run / "verdicts.parquet", list[str]()
    if isinstance(recipe, dict):
        for protocol, dimensions in (recipe.get("protocols") or {}).items():
            try:
                names += dimensions or load_rubric(load_protocol(protocol).rubric).names
            except (ValueError, OSError):  # `make collect` says what is wrong with it
                return None
    elif votes.is_file():
        names = list(pd.read_parquet(votes, columns=["dimension"])["dimension"].unique())
    return None if not names or "overall" in names else str(names[0])


def _sample_chapters(root: Path, run: str) -> list[str] | None:
    """Return the notebooks of the sample for another run, unless it names its own."""
    return (
        None
        if run == "sample"
        else [chapter.name for chapter in read_plan(root, "sample").chapters]
    )


def _what(name: str, listed: list[str]) -> str:
    return "listed under `chapters`" if name in listed else "no notebook"


def _fit(
    file: Path,
    run: str,
    chapters: Iterable[Chapter],
    shared: dict[str, Any],
    blocks: dict[str, dict[str, Any]],
) -> dict[str, dict[str, Any]]:
    """Select for every chapter the values that it declares; refuse others."""
    declared = {name for chapter in chapters for name in chapter.parameters}
    if strangers := sorted(set(shared) - declared):
        raise PlanError(
            f"{file}: no listed notebook has a parameter {', '.join(strangers)} (under `all:`)."
        )
    parameters = {}
    for chapter in chapters:
        values = {
            name: value for name, value in shared.items() if name in chapter.parameters
        } | blocks[chapter.name]
        for name, value in values.items():
            if name == "run":
                raise PlanError(
                    f"{file}: `run` is the name of this file ({run!r}) and is passed to every"
                    " chapter by itself."
                )
            if name not in chapter.parameters:
                raise PlanError(
                    f"{file}: {chapter.name} has no parameter {name!r}. It has"
                    f" {', '.join(chapter.parameters) or 'none'}."
                )
            _check_type(f"{file}: {chapter.name}.{name}", value, chapter.parameters[name])
        parameters[chapter.name] = ({"run": run} if "run" in chapter.parameters else {}) | values
    return parameters


def _check_type(where: str, value: object, default: object) -> None:
    numbers = (
        isinstance(value, (int, float))
        and isinstance(default, float)
        and not isinstance(value, bool)
    )
    if (
        value is not None
        and default is not None
        and type(value) is not type(default)
        and not numbers
    ):
        raise PlanError(
            f"{where} is {value!r}, a {type(value).__name__}; the notebook's default {default!r} is"
            f" a {type(default).__name__}."
        )


def _stamp(run: str, table: str) -> str:
    return f"build/tables/{run}/{table.replace('/', '.')}.stamp"


def _stamps_read(root: Path, plan: Plan, chapter: Chapter) -> list[str]:
    """List the stamps of what a chapter reads; its own tables come from itself."""
    stamps = []
    for name in chapter.reads:
        first, _, rest = name.partition("/")
        run, table = (plan.run, name) if first in TABLES else (first, rest)
        if run == "public":
            continue  # its tables are data found, and data.stamp holds them
        folder = root / "runs" / run
        parts = (
            {table}
            if "/" in table
            else {table, *(f"{table}/{path.stem}" for path in (folder / table).glob("*.parquet"))}
        )
        if run == plan.run:
            written = {part for other in plan.chapters for part in other.writes}
            parts |= {part for part in written if part.startswith(f"{table}/")}
            parts -= set(chapter.writes)
        for part in sorted(parts):
            stamp_table(root, run, part)
            stamps.append(_stamp(run, part))
    return stamps


def _data_found(root: Path) -> bytes:
    """List what data there is: the project's own, and what was fetched or mirrored.

    Published sets are among the former.
    """
    mirror = os.environ.get("HEART_DATA_MIRROR")
    elsewhere = [Path(mirror)] if mirror else [cache_folder()]
    folders = dict.fromkeys([root / "data", *elsewhere], "*")
    lines = b"".join(
        _checksums(folder, folder.rglob(pattern)) for folder, pattern in folders.items()
    )
    # A chapter draws the same without the tables of simulations that are kept, and whatever derives
    # the files.
    left_out = (b"  simulated/", b"  make/")
    return b"".join(
        line
        for line in lines.splitlines(keepends=True)
        if not any(folder in line for folder in left_out)
    )


def _checksums(folder: Path, files: Iterable[Path]) -> bytes:
    lines = [
        f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.relative_to(folder)}\n"
        for file in sorted(files)
        if file.is_file()
    ]
    return "".join(lines).encode()


def main(arguments: list[str]) -> int:
    """Plan the run that is named; say what is wrong in one line."""
    root = find_root()
    try:
        plan = read_plan(root, arguments[0] if arguments else "sample")
        refuse_empty_run(root, plan)
        write_plan(root, plan)
    except (PlanError, NotebookError) as error:
        print(f"The notebooks were not run. {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
