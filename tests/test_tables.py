import pandas as pd
import pytest
from builders import histories, verdicts

from heart_utils.evidence import effect_row
from heart_utils.tables import TABLES, TableError, check_table, empty_table

GOOD = verdicts([("d1", "x", "y", "a"), ("d1", "x", "y", "tie"), ("d2", "y", "z", "b")])


@pytest.mark.parametrize("name", TABLES)
def test_every_table_can_be_empty_and_stays_itself_through_a_file(name, tmp_path):
    empty = empty_table(name)
    empty.to_parquet(tmp_path / "t.parquet", index=False)
    again = check_table(name, pd.read_parquet(tmp_path / "t.parquet"))
    pd.testing.assert_frame_equal(again, empty)


def test_a_good_table_comes_back_in_the_order_of_writing():
    shuffled = GOOD[sorted(GOOD.columns)].set_index(pd.Index([9, 8, 7]))
    checked = check_table("verdicts", shuffled)
    assert list(checked.columns) == [column for column in TABLES["verdicts"] if column in GOOD]
    assert checked["verdict"].tolist() == ["a", "tie", "b"]
    assert checked.index.tolist() == [0, 1, 2]


def test_lists_come_back_as_lists_through_a_file(tmp_path):
    table = check_table("histories", histories(flags=[["damaged_text"]]))
    table.to_parquet(tmp_path / "h.parquet")
    again = check_table("histories", pd.read_parquet(tmp_path / "h.parquet"))
    assert again["flags"].tolist() == [["damaged_text"]]
    assert again["turns"][0][0]["speaker"] == "seeker"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"verdict": ["a", "both bad", "b"]},
            r"verdicts\.verdict: expected one of a, b, tie.*row 1 has 'both bad'",
        ),
        ({"margin": [1, 7, 2]}, r"verdicts\.margin: expected a number from 1 to 5.*row 1 has 7"),
        ({"margin": [1, 0, 2]}, r"verdicts\.margin: expected a number from 1 to 5.*row 1 has 0"),
        ({"flags": ["late", [], []]}, r"verdicts\.flags: expected a list.*row 0 has 'late'"),
        ({"margin": [1, "much", 2]}, r"verdicts\.margin: expected a number.*row 1 has 'much'"),
        (
            {"responder_b": ["x", "y", "z"]},
            r"responder_b.*nobody is compared with itself.*row 0 has 'x'",
        ),
        ({"simulated": ["yes", "no", "no"]}, r"simulated: expected true or false.*row 0 has 'yes'"),
        ({"repeat": [0.5, 0, 0]}, r"repeat: expected a whole number.*row 0 has 0\.5"),
        ({"repeat": [None, 0, 0]}, r"repeat: expected a whole number.*row 0 has nothing"),
        (
            {"dimension_position": pd.array([-7, 0, 0], dtype="Int64")},
            r"position: expected a whole number.*row 0 has -7\.",
        ),
        (
            {"repeat": pd.array([None, 0, 0], dtype="Int64")},
            r"repeat: expected a whole number.*row 0 has <NA>",
        ),
        ({"rater": [1, 2, 3]}, r"rater: expected text.*row 0 has a number"),
        ({"rater": ["", "r", "r"]}, r"rater: expected text.*row 0 has nothing"),
        (
            {"dialogue_id": [None, "d", "d"]},
            r"dialogue_id: expected text.*row 0 has (nothing|None)",
        ),
        (
            {"state": ["failed", "valid", "valid"]},
            r"state: expected one of valid, .*row 0 has 'failed'",
        ),
        (
            {"state": ["error", "valid", "valid"]},
            r"expected no verdict where the state is a failure; row 0",
        ),
        ({"verdict": [None, "a", "b"]}, r"expected a verdict where the state is valid; row 0"),
        ({"p_a": [1.2, None, None]}, r"p_a: expected a number from 0 to 1.*row 0 has 1\.2"),
        ({"flags": [None, [], []]}, r"flags: expected a list.*row 0"),
        ({"comparison_id": "c"}, r"3 rows repeat another row's comparison_id, rater"),
    ],
)
def test_a_wrong_cell_is_named_with_its_table_column_row_and_what_was_expected(change, message):
    with pytest.raises(TableError, match=message):
        check_table("verdicts", GOOD.assign(**change))


def test_text_that_may_be_absent_may_be_empty_too():
    assert check_table("verdicts", GOOD.assign(rationale="")).shape[0] == 3


@pytest.mark.parametrize(
    ("verdict", "p_a", "fits"),
    [("b", 0.2, True), ("b", 0.8, False), ("a", 0.8, True), ("a", 0.2, False)],
)
def test_the_chance_that_a_is_better_may_not_contradict_the_verdict(verdict, p_a, fits):
    rows = GOOD.assign(verdict=[verdict, "tie", "b"], p_a=[p_a, None, None])
    if fits:
        assert check_table("verdicts", rows)["p_a"][0] == p_a
    else:
        with pytest.raises(TableError, match=r"does not contradict the verdict.*row 0"):
            check_table("verdicts", rows)


def test_an_effect_that_was_measured_here_has_an_interval_and_one_that_a_paper_states_may_lack_it():
    quoted = effect_row({"win_share": 0.6}, study="s", people="p", models="m", raters="stranger", label="hidden",
                        outcome="o", source="a paper", n_raters=9, evidence="quoted")  # fmt: skip
    assert check_table("effects", quoted)["ci_low"].isna().all()
    with pytest.raises(TableError, match="an interval and its clusters where measured"):
        check_table("effects", quoted.assign(evidence="measured"))


def test_only_the_first_bad_rows_are_shown_and_the_others_counted():
    many = verdicts([("d", "x", "y", "both bad")] * 50)
    with pytest.raises(TableError, match=r"row 2 has 'both bad' \(47 more rows\)"):
        check_table("verdicts", many)


def test_missing_and_unknown_columns_are_named_together():
    with pytest.raises(TableError, match=r"missing rater, state; unknown winner"):
        check_table("verdicts", GOOD.drop(columns=["rater", "state"]).assign(winner="a"))


def test_a_short_table_of_verdicts_is_told_what_reads_a_file_of_six_columns():
    with pytest.raises(
        TableError, match=r"missing comparison_id, .*`load_verdicts` fills in .*Files that you have"
    ):
        check_table(
            "verdicts",
            GOOD[["history_id", "responder_a", "responder_b", "rater", "rater_kind", "verdict"]],
        )


def test_responders_may_say_their_kind_alone_and_nothing_is_made_up_about_them():
    checked = check_table(
        "responders", pd.DataFrame({"responder": ["anna"], "responder_kind": ["human"]})
    )
    assert list(checked.columns) == list(TABLES["responders"])
    assert checked.drop(columns=["responder", "responder_kind", "simulated"]).isna().all(axis=None)
    assert checked["simulated"].tolist() == [False]
    with pytest.raises(TableError, match="responders: missing responder_kind"):
        check_table("responders", pd.DataFrame({"responder": ["anna"]}))


@pytest.mark.parametrize(
    ("turns", "message"),
    [
        ([], "no turn"),
        ([{"speaker": "therapist", "text": "hello"}], "turn 0 is spoken by 'therapist'"),
        ([{"speaker": "seeker", "text": "  "}], "turn 0 has no text"),
        (["hello"], "turn 0 is not a speaker and a text"),
    ],
)
def test_a_history_that_cannot_be_read_says_which_turn(turns, message):
    with pytest.raises(TableError, match=message):
        check_table("histories", histories(turns=[turns]))


def test_an_unknown_table_lists_those_there_are():
    with pytest.raises(TableError, match="no table called 'votes'. The tables are histories"):
        check_table("votes", GOOD)
