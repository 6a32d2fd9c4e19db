"""Tables of simulations that are kept: none is stale, any change of call or code is seen, and what
is kept is what is drawn."""

import importlib
import json
import shutil

import numpy as np
import pandas as pd
import pytest

from heart_utils.ratings.resampling import estimate_rng
from heart_utils.report import kept as module
from heart_utils.report.kept import FOLDER, kept, read_manifest
from heart_utils.runs import checksum, find_root
from heart_utils.simulate import coverage
from heart_utils.simulate.coverage import simulate_gate, simulate_power
from heart_utils.simulate.power import Design
from heart_utils.simulate.study import Panel
from tools.notebooks import read_cells

ROOT = find_root()
ENTRIES = read_manifest(ROOT / FOLDER)
STALE = (
    "The code behind it changed since it was kept: run `make simulations`, look at `git diff"
    " data/simulated`, and say why."
)


def called_by(name):
    """Give the package's function that draws a kept table."""
    place, _, function = ENTRIES[name]["call"].partition("(")[0].rpartition(".")
    return getattr(importlib.import_module(place), function)


@pytest.mark.parametrize(
    "name", [name for name, entry in ENTRIES.items() if entry["call"].startswith("heart_utils.")]
)
def test_no_kept_table_is_older_than_the_code_that_draws_it(name):
    assert module._code(called_by(name)) == ENTRIES[name]["code"], STALE


def test_every_kept_table_is_there_as_it_was_kept_and_no_other():
    files = {checksum(file) for file in (ROOT / FOLDER).glob("*.parquet")}
    assert files == {entry["table"] for entry in ENTRIES.values()}
    assert len(list((ROOT / FOLDER).glob("*.parquet"))) == len(ENTRIES)
    assert all(pd.read_parquet(file).size for file in (ROOT / FOLDER).glob("*.parquet"))
    asked = [
        cell["source"].count("kept(")
        for path in (ROOT / "notebooks").glob("*.ipynb")
        for cell in read_cells(path)
    ]
    assert sum(asked) <= len(ENTRIES), "a chapter asks for a table that nobody kept"


def test_a_kept_table_is_what_the_call_draws(monkeypatch):
    """The cheapest of them, drawn here once more as the manifest writes its call out."""
    monkeypatch.setenv("HEART_KEPT", "ignore")
    whole = {
        name: entry
        for name, entry in ENTRIES.items()
        if entry["call"].startswith("heart_utils.") and "table(" not in entry["call"]
    }
    name = min(whole, key=lambda name: whole[name]["seconds"])
    names = {
        "Design": Design,
        "Panel": Panel,
        "default_rng": np.random.default_rng,
        "call": called_by(name),
    }
    drawn = eval("call(" + whole[name]["call"].partition("(")[2], names)
    stored = next(
        pd.read_parquet(file)
        for file in (ROOT / FOLDER).glob("*.parquet")
        if checksum(file) == whole[name]["table"]
    )
    pd.testing.assert_frame_equal(drawn, stored, rtol=1e-9)


DESIGN = Design(n_dialogues=20, n_responders=4, pairs=6, votes=3, n_raters=9)


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """A root without kept tables, and a simulation that counts how often it runs."""
    monkeypatch.setattr(module, "find_root", lambda: tmp_path)
    monkeypatch.setenv("HEART_KEPT_LOG", str(tmp_path / "log"))
    ran = []

    def ask(seed=1, mode="", **settings):
        monkeypatch.setenv("HEART_KEPT", mode)
        rng = estimate_rng(seed, "kept")
        before = (tmp_path / "log").read_text() if (tmp_path / "log").is_file() else ""
        table = kept("A try, of two", simulate_power, DESIGN, 0.5, rng=rng, n_studies=2, **settings)
        ran.append((tmp_path / "log").read_text().removeprefix(before))
        return table

    return ask, ran, tmp_path


def test_what_is_kept_is_read_until_the_call_changes(elsewhere):
    ask, ran, root = elsewhere
    first = ask(mode="write")
    assert [file.name for file in sorted((root / FOLDER).iterdir())] == [
        "a-try-of-two.parquet",
        "manifest.json",
    ]
    pd.testing.assert_frame_equal(ask(), first)
    ask(seed=2)
    ask(ci_level=0.9)
    ask(mode="ignore")
    assert [bool(lines) for lines in ran] == [True, False, True, True, True]
    assert "not as kept: call" in ran[2]


def test_the_last_digits_of_an_argument_depend_on_the_processor_and_change_nothing(elsewhere):
    ask, ran, _ = elsewhere
    ask(mode="write", ci_level=0.9)
    ask(ci_level=0.9 + 2e-16)
    ask(ci_level=0.9 + 1e-9)
    assert [bool(lines) for lines in ran] == [True, False, True]


def test_one_cell_in_the_middle_of_a_table_that_goes_in_is_another_call(elsewhere):
    rows = pd.DataFrame({"n": range(1000), "flags": [[]] * 1000})
    other = rows.assign(n=rows["n"].where(rows["n"] != 500, -1))
    calls = {module._call(len, [table], {}) for table in (rows, other, rows.copy())}
    assert len(calls) == 2


def test_a_table_that_was_touched_is_drawn_anew(elsewhere):
    ask, ran, root = elsewhere
    first = ask(mode="write")
    first.assign(found=True, se=0.0).to_parquet(root / FOLDER / "a-try-of-two.parquet")
    pd.testing.assert_frame_equal(ask(), first)
    assert ran[1].endswith("not as kept: table\n")
    (root / FOLDER / "a-try-of-two.parquet").unlink()
    pd.testing.assert_frame_equal(ask(), first)


def test_code_that_a_simulation_reaches_makes_it_stale_and_words_do_not(tmp_path, monkeypatch):
    def code():
        module._read.cache_clear()
        return module._code(simulate_gate)

    shutil.copytree(
        ROOT / "heart_utils", tmp_path / "heart_utils", ignore=shutil.ignore_patterns("__pycache__")
    )
    monkeypatch.setattr(module, "__file__", str(tmp_path / "heart_utils" / "report" / "kept.py"))
    before = code()
    assert before == module._code(coverage.simulate_gate)
    far = tmp_path / "heart_utils" / "ratings" / "bradley_terry.py"
    text = far.read_text()
    far.write_text(text.replace('"""', '"""Other words. ', 1) + "# A remark.\n")
    assert code() == before
    far.write_text(f"{text}\nMORE = 1\n")
    assert code() != before
    far.write_text(text)
    (tmp_path / "heart_utils" / "report" / "figures.py").write_text("")
    assert code() == before, "what it does not reach is of no account"
    module._read.cache_clear()


def helper(rng):
    return float(rng.random())


def draw(rng, n):
    return pd.DataFrame({"value": [helper(rng) for _ in range(n)]})


N = 3


def draw_loosely(rng):
    return pd.DataFrame({"value": rng.random(N)})


def test_a_chapter_s_own_function_counts_with_those_that_it_calls(monkeypatch):
    monkeypatch.setattr(module, "_HOMES", ("heart_utils.", __name__))
    before = module._code(draw)
    monkeypatch.setitem(globals(), "helper", draw_loosely)
    with pytest.raises(ValueError, match="uses N, which may change"):
        module._code(draw)
    monkeypatch.undo()
    monkeypatch.setattr(module, "_HOMES", ("heart_utils.",))
    assert module._code(draw) != before, "without its helper it is another code"


def test_a_used_generator_and_its_draws_are_refused(elsewhere):
    rng = np.random.default_rng(1)
    rng.random()
    with pytest.raises(ValueError, match="used before"):
        kept("twice", simulate_power, DESIGN, 0.5, rng=rng)


def test_the_manifest_says_the_call_as_python():
    for name, entry in ENTRIES.items():
        assert "default_rng([" in entry["call"], name
        compile(entry["call"], name, "eval")
    assert json.loads((ROOT / FOLDER / "manifest.json").read_text()) == ENTRIES
