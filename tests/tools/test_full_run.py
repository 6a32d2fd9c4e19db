"""The simulated run: all its tables are marked, and say where they are from."""

from heart_utils.report.provenance import note_tables
from heart_utils.runs import open_run
from tools.full_study import TABLES, write_full_study


def test_every_table_of_the_simulated_run_is_marked_and_a_second_writing_changes_nothing(tmp_path):
    run = open_run(tmp_path / "full")
    assert write_full_study(run) == list(TABLES)
    assert all(run.read(name)["simulated"].all() for name in TABLES)
    assert {origin for note in note_tables(run, tables=list(TABLES)) for origin in note.rows} == {"simulated"}
    assert write_full_study(run) == []
