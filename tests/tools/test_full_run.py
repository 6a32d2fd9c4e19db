"""The simulated run: all its tables are marked, and say where they are from."""

import papermill
import pytest

from heart_utils.report.tables import note_tables
from heart_utils.runs import find_root, open_run
from tools.full_study import TABLES, write_full_study


@pytest.fixture(scope="module")
def full(tmp_path_factory):
    """The simulated run, and what was written."""
    run = open_run(tmp_path_factory.mktemp("study") / "full")
    return run, write_full_study(run)


def test_every_table_of_the_simulated_run_is_marked_and_a_second_writing_changes_nothing(full):
    run, written = full
    assert written == list(TABLES)
    assert all(run.read(name)["simulated"].all() for name in TABLES)
    assert {origin for note in note_tables(run, tables=list(TABLES)) for origin in note.rows} == {
        "simulated"
    }
    assert write_full_study(run) == []


@pytest.mark.slow
def test_the_chapter_about_judges_takes_a_run_with_several(full, tmp_path, forked_kernels):
    notebook = find_root() / "notebooks" / "07_can_judges_be_trusted.ipynb"
    how = {"parameters": {"run": str(full[0].folder), "n_resamples": 20}, "cwd": notebook.parent}
    papermill.execute_notebook(notebook, tmp_path / "out.ipynb", progress_bar=False, **how)
