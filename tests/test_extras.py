"""What an extra brings, where it is missing: one sentence that says what to install."""

import sys
import tomllib

import pandas as pd
import pytest
from test_own_histories import own  # noqa: F401 (a fixture)

from heart_utils import collect, fit_ratings, plot_leaderboard
from heart_utils.calls import models
from heart_utils.calls.ledger import Ledger
from heart_utils.extras import PACKAGES, MissingExtraError
from heart_utils.report import gate_report
from heart_utils.runs import find_root


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


def test_a_collection_closes_its_ledger(own, monkeypatch):  # noqa: F811
    closed, close = [], Ledger.close
    monkeypatch.setattr(Ledger, "close", lambda ledger: (closed.append(ledger.url), close(ledger)))
    assert collect.main(["own", "--dry-run"]) == 0
    assert len(closed) == 1


def test_the_gate_says_its_version(capsys):
    with pytest.raises(SystemExit) as end:
        gate_report.main(["--version"])
    assert end.value.code == 0
    assert capsys.readouterr().out.startswith("heart-gate 0.")
