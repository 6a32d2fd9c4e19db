"""The pages of `book/adapt/`, run as a reader would run them: each block in order, in a project of
their own.

A block of Python followed by a block of text must give that text: what it prints, then the value of
its last line, or the error that it ends with. In a block `console`, each line after `$` is a
command and what stands below it is its output. Three dots stand for anything, and runs of white
space for one another.
"""

import ast
import contextlib
import doctest
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
from functools import partial
from pathlib import Path

from papermill.cli import papermill

from heart_collect import collect
from heart_collect.people import raters, study
from heart_utils.report import commands
from heart_utils.runs import find_root

FENCED = re.compile(
    r"^```(?P<kind>python|console|text|yaml)\n(?P<body>.*?)^```$", flags=re.MULTILINE | re.DOTALL
)
SERVER = "http://127.0.0.1:8000/v1"
"""Where the pages' own server stands; a test puts its own in this place."""


def make_project(folder: Path, address: str) -> Path:
    """Lay out a project whose code is this one's, whose files are its own, with those of the pages
    copied in."""
    source = find_root()
    folder.mkdir()
    code = ("heart_utils", "heart_collect", "notebooks", "tools")
    for name in (*code, "Makefile", "requirements"):
        (folder / name).symlink_to(source / name)
    shutil.copy2(source / "pyproject.toml", folder)
    for name in ("data", "params"):
        shutil.copytree(source / name, folder / name)
    for file in (source / "book" / "adapt" / "files").rglob("*"):
        if file.is_file() and ".ruff_cache" not in file.parts:
            target = folder / file.relative_to(source / "book" / "adapt" / "files")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(
                file.read_text(encoding="utf-8").replace(SERVER, address), encoding="utf-8"
            )
    return folder


def read_blocks(page: Path) -> list[tuple[str, str, int]]:
    """Give the blocks of a page: kind, body, and the line it begins on."""
    text = page.read_text(encoding="utf-8")
    return [
        (found["kind"], found["body"], text[: found.start()].count("\n") + 1)
        for found in FENCED.finditer(text)
    ]


def run_page(page: Path, project: Path, address: str) -> int:
    """Run a page in a project, and give the number of blocks that ran."""
    blocks, ran = read_blocks(page), 0
    names: dict[str, object] = {"__name__": "page"}
    for (kind, body, line), (after, output, _) in zip(
        blocks, [*blocks[1:], ("", "", 0)], strict=True
    ):
        where = f"{page.name}, line {line}"
        body = body.replace(SERVER, address)
        if kind == "python":
            came = _run_python(body, names)
            if after == "text":
                _compare(output, came, project, address, where)
            else:
                assert not came, f"{where}: it gave an output that the page does not show:\n{came}"
        elif kind == "console":
            for command, expected in _commands(body):
                _compare(
                    expected,
                    _run_command(command, project),
                    project,
                    address,
                    f"{where}, {command}",
                )
        ran += kind in ("python", "console")
    return ran


def _run_python(body: str, names: dict[str, object]) -> str:
    tree = ast.parse(body)
    last = ast.Expression(tree.body.pop().value) if isinstance(tree.body[-1], ast.Expr) else None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        try:
            exec(compile(tree, "page", "exec"), names)
            value = eval(compile(last, "page", "eval"), names) if last else None
        except ValueError as error:
            return printed.getvalue() + f"{type(error).__name__}: {error}\n"
    return printed.getvalue() + (f"{value}\n" if value is not None else "")


def _commands(body: str) -> list[tuple[str, str]]:
    body = body.replace("\\\n", " ")
    return [
        (command, output)
        for command, output in re.findall(r"^\$ (.+)\n((?:(?!\$ ).*\n)*)", body, flags=re.MULTILINE)
    ]


def _run_command(command: str, project: Path) -> str:
    """Run a command of a page; what `make` would only hand on is called here, since to start it
    anew takes seconds."""
    words = shlex.split(command)
    if words[0] == "export":
        name, _, value = words[1].partition("=")
        os.environ[name] = value
        return ""
    steps = {
        ("make", "collect"): collect.main,
        ("python", "-m", "heart_collect.people.raters"): raters.main,
        ("python", "-m", "heart_collect.people.study"): study.main,
    }
    steps |= {("heart-gate",): commands.heart_gate, ("heart-audit",): commands.heart_audit}
    steps |= {("papermill",): partial(papermill, standalone_mode=False)}
    said = io.StringIO()
    for start, step in steps.items():
        if tuple(words[: len(start)]) != start:
            continue
        given = words[len(start) :]
        if start[0] == "make":
            settings = dict(word.split("=", 1) for word in given)
            given = [settings["RUN"], "--quiet", *shlex.split(settings.get("ARGS", ""))]
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            step(given)
        return said.getvalue()
    arguments = ["ENV=", f"PYTHON={sys.executable}"] if words[0] == "make" else []
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": f"{project}{os.pathsep}{os.environ['PYTHONPATH']}",
    }
    done = subprocess.run(
        [*words, *arguments],
        cwd=project,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return done.stdout + done.stderr


def _compare(expected: str, came: str, project: Path, address: str, where: str) -> None:
    came = came.replace(address, SERVER).replace(f"{project}/", "").rstrip()
    checker = doctest.OutputChecker()
    options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    expected = textwrap.dedent(expected).rstrip()
    assert checker.check_output(f"{expected}\n", f"{came}\n", options), (
        f"{where} gave\n{came}\n\nand the page shows\n{expected}"
    )
