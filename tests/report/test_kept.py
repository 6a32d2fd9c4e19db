"""Tables of simulations that are kept: none is stale, any change of call or code is seen, and what
is kept is what is drawn."""

import importlib
import shutil

import numpy as np
import pandas as pd
import pytest

from heart_utils.heartbench import simulate_hits
from heart_utils.ratings.resampling import estimate_rng
from heart_utils.report import kept as module
from heart_utils.report.kept import FOLDER, kept, read_manifest
from heart_utils.runs import checksum, find_root
from heart_utils.simulate.study import Design, Panel
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


CALLED = [name for name, entry in ENTRIES.items() if entry["call"].startswith("heart_utils.")]


@pytest.mark.parametrize("name", CALLED)
def test_no_kept_table_is_older_than_the_code_that_draws_it(name):
    assert module._code(called_by(name)) == ENTRIES[name]["code"], STALE


def test_every_kept_table_is_there_as_it_was_kept_and_no_other():
    files = {checksum(file): file for file in (ROOT / FOLDER).glob("*.parquet")}
    assert {*files} == {entry["table"] for entry in ENTRIES.values()}
    assert len(files) == len(ENTRIES)
    assert all(pd.read_parquet(file).size for file in files.values())
    chapters = [read_cells(path) for path in (ROOT / "notebooks").glob("*.ipynb")]
    asked = sum(cell["source"].count("kept(") for cells in chapters for cell in cells)
    assert asked <= len(ENTRIES), "a chapter asks for a table that nobody kept"


def test_the_manifest_says_the_call_as_python():
    for name, entry in ENTRIES.items():
        assert "default_rng([" in entry["call"], name
        compile(entry["call"], name, "eval")


def test_a_kept_table_is_what_the_call_draws():
    """The cheapest of them, drawn here once more as the manifest writes its call out."""
    whole = [name for name in CALLED if "table(" not in ENTRIES[name]["call"]]
    cheapest = min(whole, key=lambda name: ENTRIES[name]["seconds"])
    entry, rng = ENTRIES[cheapest], np.random.default_rng
    names = {"Design": Design, "Panel": Panel, "default_rng": rng, "call": called_by(cheapest)}
    drawn = eval("call(" + entry["call"].partition("(")[2], names)
    tables = {checksum(file): file for file in (ROOT / FOLDER).glob("*.parquet")}
    pd.testing.assert_frame_equal(drawn, pd.read_parquet(tables[entry["table"]]), rtol=1e-9)


DESIGN = Design(n_dialogues=20, n_responders=4, pairs=6, votes=3, n_raters=9)


def simulate(rng, design, ci_level):
    """Draw a table for which nothing needs to be simulated."""
    return pd.DataFrame({"level": [ci_level], "se": rng.random()})


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """A root without kept tables; give a table and what the log says of how it came about."""
    monkeypatch.setattr(module, "find_root", lambda: tmp_path)
    monkeypatch.setattr(module, "_HOMES", ("heart_utils.", __name__))
    log = tmp_path / "log"
    monkeypatch.setenv("HEART_KEPT_LOG", str(log))

    def ask(seed=1, mode="", ci_level=0.95):
        monkeypatch.setenv("HEART_KEPT", mode)
        log.write_text("")
        rng = estimate_rng(seed, "kept")
        table = kept("A try, of two", simulate, rng, DESIGN, ci_level=ci_level)
        return table, log.read_text()

    return ask, tmp_path / FOLDER


def test_what_is_kept_is_read_until_the_call_changes(elsewhere):
    ask, folder = elsewhere
    first, _ = ask(mode="write", ci_level=0.9)
    names = [file.name for file in sorted(folder.iterdir())]
    assert names == ["a-try-of-two.parquet", "manifest.json"]
    again, log = ask(ci_level=0.9)
    pd.testing.assert_frame_equal(again, first)
    assert log == ""
    # the last digits of an argument depend on the processor
    assert ask(ci_level=0.9 + 2e-16)[1] == ""
    for changed in ({"seed": 2, "ci_level": 0.9}, {"ci_level": 0.9 + 1e-9}):
        assert "not as kept: call" in ask(**changed)[1]
    assert ask(mode="ignore", ci_level=0.9)[1].endswith("not as kept: nothing\n")


def test_one_cell_in_the_middle_of_a_table_that_goes_in_is_another_call(elsewhere):
    rows = pd.DataFrame({"n": range(1000), "flags": [[]] * 1000})
    other = rows.assign(n=rows["n"].where(rows["n"] != 500, -1))
    calls = {module._call(len, [table], {}) for table in (rows, other, rows.copy())}
    assert len(calls) == 2


def test_a_table_that_was_touched_is_drawn_anew(elsewhere):
    ask, folder = elsewhere
    first, _ = ask(mode="write")
    first.assign(found=True, se=0.0).to_parquet(folder / "a-try-of-two.parquet")
    again, log = ask()
    pd.testing.assert_frame_equal(again, first)
    assert log.endswith("not as kept: table\n")
    (folder / "a-try-of-two.parquet").unlink()
    pd.testing.assert_frame_equal(ask()[0], first)


def test_code_that_a_simulation_reaches_makes_it_stale_and_words_do_not(tmp_path, monkeypatch):
    def code():
        module._read.cache_clear()
        return module._code(simulate_hits)

    before = code()
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "heart_utils", tmp_path / "heart_utils", ignore=ignored)
    monkeypatch.setattr(module, "__file__", str(tmp_path / "heart_utils" / "report" / "kept.py"))
    far = tmp_path / "heart_utils" / "ratings" / "resampling.py"
    text = far.read_text()
    far.write_text(text.replace('"""', '"""Other words. ', 1) + "# A remark.\n")
    (tmp_path / "heart_utils" / "report" / "figures.py").write_text("")
    assert code() == before, "what it does not reach is of no account"
    far.write_text(f"{text}\nMORE = 1\n")
    assert code() != before
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


def test_a_used_generator_and_its_draws_are_refused():
    rng = np.random.default_rng(1)
    rng.random()
    with pytest.raises(ValueError, match="used before"):
        kept("twice", simulate_hits, DESIGN, 0.5, rng=rng)
