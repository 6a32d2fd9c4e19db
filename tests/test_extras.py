"""What an extra brings, where it is missing: one sentence that says what to install."""

import json
import re
import subprocess
import sys
import tomllib

import pandas as pd
import pytest
from test_own_histories import own  # noqa: F401 (a fixture)

from heart_collect import collect
from heart_collect.calls import models
from heart_collect.calls.ledger import Ledger
from heart_utils import fit_ratings, plot_leaderboard
from heart_utils.report import commands
from heart_utils.runs import find_root
from heart_utils.settings import PACKAGES, MissingExtraError


def test_what_pip_is_told_to_install_is_what_the_package_declares():
    declared = tomllib.loads((find_root() / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    assert {name: words.replace("'", "").split() for name, words in PACKAGES.items()} == {
        name: declared[name] for name in PACKAGES
    }


def test_a_figure_without_matplotlib_says_which_extra_to_install(monkeypatch):
    ratings = fit_ratings(
        pd.DataFrame({"responder_a": "x", "responder_b": "y", "verdict": ["a", "b"]}), n_resamples=0
    )
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delitem(sys.modules, "matplotlib.pyplot", raising=False)
    with pytest.raises(
        MissingExtraError,
        match=r"^matplotlib is not installed. It comes with the extra plots: pip install '",
    ):
        plot_leaderboard(ratings)


def test_a_collection_without_litellm_ends_in_one_sentence(own, monkeypatch, capsys):  # noqa: F811
    monkeypatch.setitem(sys.modules, "litellm", None)
    models.load_litellm.cache_clear()
    assert collect.main(["own", "--quiet", "--yes"]) == 1
    said = capsys.readouterr().err
    assert said.startswith(
        "collect: litellm is not installed. It comes with the extra collect: pip install"
        " '.[collect]'"
    )
    assert said.count("\n") == 1


BLOCKED = "import sys; sys.modules |= dict.fromkeys({packages}); "
OF_CALLS = ("litellm", "psutil", "sqlalchemy", "tenacity", "zstandard")
#: What asks models or reads what they answered; the rest needs none of those packages.
ASKS = {
    "collect_conversations",
    "collect_replies",
    "collect_verdicts",
    "conversation_replies",
    "open_ledger",
    "plan_questions",
    "plan_verdicts",
}


def run_without(packages, code, *arguments):
    command = [sys.executable, "-c", BLOCKED.format(packages=packages) + code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=find_root())


def test_what_chapters_import_needs_no_package_that_only_calls_need():
    imports = set()
    for notebook in sorted((find_root() / "notebooks").glob("*.ipynb")):
        cells = json.loads(notebook.read_text())["cells"]
        code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
        for module, names in re.findall(
            r"from (heart_(?:utils|collect)[\w.]*) import (\([^)]*\)|[^\n(]*)", code
        ):
            found = re.findall(r"(\w+)(?: as \w+)?\s*(?:,|\)|$)", names)
            imports |= {f"from {module} import {name}" for name in found if name not in ASKS}
    assert len(imports) > len(ASKS)
    ended = run_without(OF_CALLS, "\n".join(["", *sorted(imports)]))
    assert ended.returncode == 0, ended.stderr
    code = f"""
import heart_collect
from heart_utils.settings import MissingExtraError
for name in {sorted(ASKS)}:
    try: getattr(heart_collect, name)
    except MissingExtraError as error: print(name, error)
"""
    told = re.findall(
        r"^(\w+) .* comes with the extra collect: pip install",
        run_without(OF_CALLS, code).stdout,
        flags=re.MULTILINE,
    )
    assert set(told) == ASKS  # each says what to install


def test_a_command_that_calls_models_says_in_a_sentence_which_extra_it_needs():
    code = "sys.argv = ['heart-collect', 'sample', '--dry-run']; from heart_collect.collect import main; sys.exit(main())"
    ended = run_without(("sqlalchemy",), code)
    assert ended.returncode == 1
    assert ended.stderr.startswith(
        "collect: sqlalchemy is not installed. It comes with the extra collect: pip install"
    )
    assert ended.stderr.count("\n") == 1


def test_a_collection_closes_its_ledger(own, monkeypatch):  # noqa: F811
    closed, close = [], Ledger.close
    monkeypatch.setattr(Ledger, "close", lambda ledger: (closed.append(ledger.url), close(ledger)))
    assert collect.main(["own", "--dry-run"]) == 0
    assert len(closed) == 1


def test_the_gate_says_its_version(capsys):
    with pytest.raises(SystemExit) as end:
        commands.heart_gate(["--version"])
    assert end.value.code == 0
    assert capsys.readouterr().out.startswith("heart-gate 0.")
