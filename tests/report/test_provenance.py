"""What a page says it rests on: nothing simulated may look measured, and nothing unknown may look
free."""

import pandas as pd
import pytest

from heart_utils.report.provenance import note_tables, show_versions, versions
from heart_utils.runs import open_run
from tools import current_commit


def codes(n, *, simulated):
    frame = pd.DataFrame(
        {
            "reply_id": [f"r{i}" for i in range(n)],
            "coder": "c",
            "code": "question",
            "state": "valid",
        }
    )
    return frame.assign(probability=None, simulated=simulated)


@pytest.fixture
def run(tmp_path):
    return open_run(tmp_path / "study")


def test_rows_are_counted_by_where_they_come_from(run):
    run.write("codes", codes(3, simulated=[True, False, False]))
    run.record(tables={"codes": {"source": "a study", "licence": "MIT", "origin": "live"}})
    (note,) = note_tables(run, tables=["codes"])
    assert (note.source, note.licence, note.rows) == ("a study", "MIT", {"live": 2, "simulated": 1})


def test_no_manifest_makes_a_simulated_row_a_measured_one(run):
    run.write("codes", codes(3, simulated=True))
    run.record(tables={"codes": {"source": "a study", "licence": "MIT", "origin": "live"}})
    (note,) = note_tables(run, tables=["codes"])
    assert note.rows == {"simulated": 3}


def test_what_nobody_wrote_down_is_not_free(run):
    run.write("codes", codes(2, simulated=False))
    (note,) = note_tables(run, tables=["codes"])
    assert note.rows == {"not recorded": 2}
    assert note.licence == "none stated"


def test_each_part_of_a_table_has_a_note_of_its_own(run):
    run.write("codes", codes(2, simulated=False), "people")
    run.write("codes", codes(3, simulated=True), "model")
    notes = note_tables(run, tables=["codes"])
    assert [(note.table, note.rows) for note in notes] == [
        ("study/codes/model", {"simulated": 3}),
        ("study/codes/people", {"not recorded": 2}),
    ]
    assert [note.table for note in note_tables(run, tables=["codes/people"])] == [
        "study/codes/people"
    ]


def test_a_table_that_is_not_there_has_no_note(run):
    assert note_tables(run, tables=["verdicts"]) == []


def test_an_origin_that_nobody_knows_is_refused(run):
    run.write("codes", codes(1, simulated=False))
    run.record(tables={"codes": {"origin": "guessed"}})
    with pytest.raises(ValueError, match="origin guessed; expected one of published"):
        note_tables(run, tables=["codes"])


@pytest.mark.parametrize("origin", ["simulated", {"live": 5}, {"live": 1, "simulated": 2}])
def test_rows_that_the_manifest_does_not_account_for_are_not_recorded(run, origin):
    run.write("codes", codes(3, simulated=[True, False, False]))
    run.record(tables={"codes": {"source": "a study", "licence": "MIT", "origin": origin}})
    (note,) = note_tables(run, tables=["codes"])
    assert note.rows == {"not recorded": 2, "simulated": 1}


@pytest.mark.parametrize("name", ["verdict", "public/verdict", "public"])
def test_a_name_that_is_no_tables_is_refused(run, name):
    with pytest.raises(ValueError, match=f"{name}' names no table. There are histories"):
        note_tables(run, tables=[name])


def test_a_folder_that_is_no_checkout_has_no_commit(tmp_path):
    assert current_commit(tmp_path) == "unknown"


def test_the_last_line_of_a_chapter_names_each_version_that_the_manifest_records(capsys):
    show_versions()
    said = capsys.readouterr().out
    show_versions()
    assert capsys.readouterr().out == said
    assert said.startswith("Run with python 3.")
    assert said.removeprefix("Run with ").removesuffix(".\n").split(", ") == [
        " ".join(item) for item in versions().items()
    ]
