"""Kernels for the build and its tests: no port is named and taken later, and nothing is left
behind."""

import json
import re
import subprocess
import sys

import pytest
from small_project import cell, write_notebook

from heart_utils.runs import find_root

FORKED = """
import os, signal, sys, time, warnings
from tools import kernels
kernels.LIBRARIES = ("colorsys", *(kernels.LIBRARIES if sys.argv[3] == "all" else ()))
kernels.import_libraries()
warnings.simplefilter("error")
manager = kernels.FileKernel(kernel_name="python3")
manager.start_kernel(cwd=sys.argv[1], extra_arguments=["--IPKernelApp.log_level=50"])
client = manager.client()
client.start_channels()
client.wait_for_ready(timeout=60)
asked = {"parent": "__import__('os').getppid()", "here": "__import__('os').getcwd()", "name": "__name__"}
asked |= {"at_hand": "'colorsys' in __import__('sys').modules", "errors": "__import__('warnings').filters[0][0] == 'error'"}
reply = client.execute("", user_expressions=asked, reply=True, timeout=60)["content"]["user_expressions"]
seen = []
client.execute_interactive("from matplotlib import pyplot\\n_ = pyplot.plot([1])", output_hook=seen.append, timeout=60)
print(*(reply[name]["data"]["text/plain"] for name in asked), os.getpid(),
      [each["content"]["data"].get("text/plain") for each in seen if each["header"]["msg_type"] == "display_data"], sep="\\n")
client.stop_channels()
fork = manager.provisioner.process
if sys.argv[2] == "killed":
    os.kill(fork.pid, signal.SIGKILL)
    fork.wait()
manager.shutdown_kernel(now=sys.argv[2] == "now")
print(fork.poll())
"""


@pytest.mark.parametrize(
    ("ended", "libraries"),
    [("asked", "one"), ("killed", "one"), pytest.param("now", "all", marks=pytest.mark.slow)],
)
def test_a_forked_kernel_finds_libraries_imported_stands_in_its_folder_and_can_be_ended(
    tmp_path, ended, libraries
):
    command = [sys.executable, "-c", FORKED, tmp_path, ended, libraries]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    parent, here, name, at_hand, errors, process, shown, left = done.stdout.splitlines() or [
        done.stderr
    ]
    assert (parent, here, name) == (process, repr(str(tmp_path)), "'__main__'")
    assert (at_hand, errors) == (
        "True",
        "False",
    ), "libraries of the fork's origin, and none of its later filters"
    assert shown == "['<Figure size 640x480 with 1 Axes>']", "a figure is drawn into the cell"
    assert left != "None"


CELLS = {
    "1 + 1;": [],
    "1 / 3": [{"text/plain": "0.33333000000000004"}],
    "class Page:\n    def _repr_html_(self):\n        return '<td>12</td>'\nPage()": [
        {"text/html": "<td>12</td>", "text/plain": "<__main__.Page at 0x7f00>"}
    ],
}
"""Source of a cell -> what it showed when it ran first."""


SPOILT = {"same": ("", ""), "table": ("<td>12<", "<td>13<"), "number": ("0.33333", "0.33334")}


@pytest.mark.slow
def test_a_notebook_must_show_once_more_what_it_showed_but_for_addresses_and_last_digits(tmp_path):
    result = {"output_type": "execute_result", "execution_count": 1, "metadata": {}}
    for name, spoilt in SPOILT.items():
        cells = []
        for source, shown in CELLS.items():
            data = [json.loads(json.dumps(one).replace(*spoilt)) for one in shown]
            outputs = [result | {"data": one} for one in data]
            cells.append(cell(source) | {"execution_count": 1, "outputs": outputs})
        write_notebook(tmp_path / f"{name}.ipynb", *cells)
    options = [
        "-q",
        "-p",
        "tools.forked_tests",
        "--forks",
        "2",
        "-p",
        "nbval",
        "-p",
        "tools.kernels",
        "--nbval",
    ]
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            *options,
            "--nbval-sanitize-with",
            "tests/nbval.cfg",
            tmp_path,
        ],
        cwd=find_root(),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout.splitlines()[-1].startswith("2 failed, 7 passed"), done.stdout
    failed = re.findall(r"^FAILED .*\b(\w+)\.ipynb::Cell (\d)", done.stdout, flags=re.MULTILINE)
    assert sorted(failed) == [("number", "1"), ("table", "2")], done.stdout
