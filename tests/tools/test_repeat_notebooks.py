"""Which executed notebooks are repeated: those that changed since they last showed the same."""

import pytest

from tools import repeat_notebooks
from tools.repeat_notebooks import find_changed, main, note_repeated

FILES = {
    "build/executed/sample/01_one.ipynb": "one",
    "build/executed/sample/02_two.ipynb": "two",
    "build/code/sample/01_one.stamp": "code of one",
    "build/code/sample/02_two.stamp": "code of two",
    "build/data.stamp": "data",
    "build/tables/sample/codes.stamp": "codes",
    "tests/nbval.cfg": "settings",
}


@pytest.fixture
def built(tmp_path, monkeypatch):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(repeat_notebooks, "find_root", lambda: tmp_path)
    return tmp_path


def changed(root):
    return [copy.stem for copy in find_changed(root, "sample")]


def test_what_showed_the_same_rests_until_something_behind_it_changes(built):
    assert changed(built) == ["01_one", "02_two"]
    note_repeated(built, "sample", find_changed(built, "sample"))
    assert changed(built) == []
    for name, text in FILES.items():
        (built / name).write_text(f"{text}, another")
        own = name.partition("01_one")[1] or name.partition("02_two")[1]
        assert changed(built) == ([own] if own else ["01_one", "02_two"]), name
        (built / name).write_text(text)
    assert changed(built) == []


def test_only_what_passed_rests(built, monkeypatch):
    def run(arguments, plugins):
        copies = [name for name in arguments if name.endswith(".ipynb")]
        for copy in copies:
            outcome = "failed" if "02_two" in copy else "passed"
            report = pytest.TestReport(f"{copy}::Cell 0", ("", 0, ""), {}, outcome, None, "call")
            plugins[0].pytest_runtest_logreport(report)
        return pytest.ExitCode.TESTS_FAILED

    monkeypatch.setattr(pytest, "main", run)
    assert main(["sample"]) == 1
    assert changed(built) == ["02_two"]


def test_a_run_that_was_stopped_notes_nothing_and_without_a_change_pytest_is_not_begun(
    built, monkeypatch
):
    monkeypatch.setattr(pytest, "main", lambda *_, **__: pytest.ExitCode.INTERRUPTED)
    assert main(["sample"]) == 2
    assert changed(built) == ["01_one", "02_two"]
    note_repeated(built, "sample", find_changed(built, "sample"))
    assert main(["sample"]) == 0
