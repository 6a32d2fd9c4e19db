"""The page *On several machines*, run in a shell as it is printed: its servers are begun by the
test or by the page."""

import doctest
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from adapt_pages import SERVER, make_project
from server import Provider, serving
from test_adapt import KEY, stand_in

from heart_utils.runs import find_root
from tests.faults import faults

pytestmark = [pytest.mark.services, pytest.mark.apart]

PAGE = find_root() / "book" / "machines.md"
DATABASE = "postgresql://heart@127.0.0.1:5432/heart"
MARK = "@@ command"


def read_commands():
    """List the commands of the page, each with what it shows of their outputs."""
    blocks = re.findall(
        r"^```console\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL
    )
    return [
        entry
        for block in blocks
        for entry in re.findall(r"^\$ (.+)\n((?:(?!\$ ).*\n)*)", block, flags=re.MULTILINE)
    ]


def test_each_command_of_the_page_gives_what_the_page_shows(tmp_path, database_url, monkeypatch):
    monkeypatch.delenv("HEART_LEDGER", raising=False)
    commands = read_commands()
    assert len(commands) == PAGE.read_text(encoding="utf-8").count("\n$ ")
    database = database_url.replace("+psycopg", "")
    with serving(Provider(answer=stand_in, keys=(KEY,))) as provider:
        project = make_project(tmp_path / "project", provider.address)
        (project / ".venv").mkdir()
        (project / ".venv" / "bin").symlink_to(Path(sys.executable).parent)
        script = ["trap 'kill $(jobs -p) 2> /dev/null' EXIT"]
        for command, _ in commands:
            script += [f"echo {shlex.quote(MARK)}", command.replace(DATABASE, database)]
        environment = {
            **os.environ,
            "HEART_ROOT": str(project),
            "MAKEFLAGS": f"-s -- ENV= PYTHON={sys.executable}",
            "MY_SERVER_KEY": KEY,
        }
        done = subprocess.run(
            ["bash", "-c", "\n".join(script)],
            cwd=project,
            env=environment,
            capture_output=True,
            text=True,
            timeout=900,
        )
    came = done.stdout.replace(database, DATABASE).replace(
        database_url, DATABASE.replace("postgresql:", "postgresql+psycopg:")
    )
    outputs = came.replace(provider.address, SERVER).split(f"{MARK}\n")[1:]
    options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    for (command, expected), output in zip(commands, outputs, strict=True):
        right = doctest.OutputChecker().check_output(expected or "\n", output or "\n", options)
        assert right, (
            f"{command} gave\n{output}\n{done.stderr[-2000:]}\nand the page shows\n{expected}"
        )
    assert "Traceback" not in done.stderr
    assert len(provider.requests) == 46  # 14 on each of two ledgers, and 18 more


FAULTS = faults(400, 5.0)


@pytest.mark.slow
@pytest.mark.parametrize("failing", list(FAULTS))
def test_no_fault_loses_doubles_or_spoils_a_verdict_or_buys_one_twice(failing):
    """What `make bench NAME=collect` does at length, small."""
    if failing == "disk" and os.geteuid() != 0:
        pytest.skip("needs root: nobody else may mount a small disk")
    figures = list(FAULTS[failing]())
    assert any(figure.met is not None for figure in figures)
    assert [figure for figure in figures if figure.met is False] == []
