"""Tables as a reader sees them, and what a page says it rests on: nothing simulated may look
measured, and nothing unknown may look free."""

import pandas as pd
import pytest

from heart_utils.report.tables import note_tables, show_table, show_versions, versions
from heart_utils.runs import open_run
from tools import current_commit


def shown(**columns):
    options = {name: columns.pop(name) for name in ("percent", "digits") if name in columns}
    return show_table(pd.DataFrame(columns), **options).data


def test_two_ends_become_one_column_that_says_its_level():
    table = shown(
        win_share=[0.5817],
        ci_low=[0.561],
        ci_high=[0.603],
        ci_level=[0.9],
        percent=["win_share", "ci"],
    )
    assert table.to_dict("list") == {"win share": ["58 %"], "90 % interval": ["56 to 60 %"]}


def test_of_several_intervals_each_says_whose_it_is_and_ranks_are_whole():
    table = shown(
        gap_low=[0.1],
        gap_high=[0.2],
        odds_low=[1.0],
        odds_high=[3.0],
        rank_low=[1],
        rank_high=[2],
        digits=1,
    )
    assert table.to_dict("list") == {
        "interval of gap": ["0.1 to 0.2"],
        "interval of odds": ["1.0 to 3.0"],
        "rank": ["1 to 2"],
    }
    assert list(shown(ci_low=[0.1], ci_high=[0.2], gap_low=[0.1], gap_high=[0.2])) == [
        "interval",
        "interval of gap",
    ]
    assert list(shown(gap_low=[0.1], gap_high=[0.2], rank_low=[1], rank_high=[2])) == [
        "interval",
        "rank",
    ]


@pytest.mark.parametrize(
    ("low", "high", "written"),
    [
        (0.1, 0.2, "0.1 to 0.2"),
        (0.11, 0.14, "0.11 to 0.14"),  # with one decimal it would have no width
        (0.1, 0.1, "0.1"),
        (0.1, float("inf"), "0.1 to no limit"),
        (None, None, None),
    ],
)
def test_an_interval_keeps_its_width_when_it_is_rounded(low, high, written):
    # the second row has an interval, since a column that is empty throughout is not shown
    written_second = shown(ci_low=[low, 0.3], ci_high=[high, 0.4], digits=1)["interval"].tolist()
    assert written_second == [written, "0.3 to 0.4"]


def test_ratings_are_whole_and_small_p_values_are_not_zero():
    table = shown(rating=[1523.6, 1476.4], p_value=[0.0004, 0.25])
    assert table.iloc[:, 0].tolist() == ["1,524", "1,476"]
    assert table.iloc[:, 1].tolist() == ["< 0.001", "0.250"]


def test_what_is_true_or_false_is_yes_or_no_and_says_nothing_if_it_is_so_of_all_rows():
    assert shown(name=["x", "y"], provisional=[True, False], simulated=[True, True]).to_dict(
        "list"
    ) == {
        "name": ["x", "y"],
        "provisional": ["yes", "no"],
    }
    assert shown(name=["x"], provisional=[True]).iloc[0].tolist() == ["x", "yes"]


def test_only_a_sentence_goes_on_in_the_next_line_unless_all_cells_may():
    table = pd.DataFrame(
        {"name": ["short"], "why": ["a sentence that has more than some thirty-six characters"]}
    )
    assert show_table(table).to_html().count("white-space: normal") == 1
    assert "row0_col0" in show_table(table, wrap=True).to_html().partition("white-space: normal")[0]


def test_markup_in_a_table_is_shown_as_text_and_its_numbers_are_as_before():
    script = "<script>alert(1)</script>"
    index = pd.MultiIndex.from_tuples([(script, 0.05), ("b", 0.25)], names=[script, "x"])
    html = show_table(
        pd.DataFrame({script: [script, "b & c"], "n": [1000, 0.12345]}, index=index)
    ).to_html()
    assert "<script" not in html
    assert html.count("&lt;script&gt;") == 4
    for shown in ("b &amp; c", "1,000.000", "0.123", ">0.050000<", ">0.250000<"):
        assert shown in html


def codes(n, *, simulated):
    names = [f"r{i}" for i in range(n)]
    frame = pd.DataFrame({"reply_id": names, "coder": "c", "code": "question", "state": "valid"})
    return frame.assign(probability=None, simulated=simulated)


@pytest.fixture
def run(tmp_path):
    return open_run(tmp_path / "study")


@pytest.mark.parametrize(
    ("simulated", "origin", "rows"),
    [
        ([True, False, False], "live", {"live": 2, "simulated": 1}),
        # no manifest makes a simulated row a measured one, or accounts for other rows than these
        (True, "live", {"simulated": 3}),
        ([True, False, False], "simulated", {"not recorded": 2, "simulated": 1}),
        ([True, False, False], {"live": 5}, {"not recorded": 2, "simulated": 1}),
        ([True, False, False], {"live": 1, "simulated": 2}, {"not recorded": 2, "simulated": 1}),
    ],
)
def test_rows_are_counted_by_where_they_come_from(run, simulated, origin, rows):
    run.write("codes", codes(3, simulated=simulated))
    run.record(tables={"codes": {"source": "a study", "licence": "MIT", "origin": origin}})
    (note,) = note_tables(run, tables=["codes"])
    assert (note.source, note.licence, note.rows) == ("a study", "MIT", rows)


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
