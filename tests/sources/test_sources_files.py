import json
import re
import warnings

import pandas as pd
import pytest
from builders import histories
from hypothesis import given, settings
from hypothesis import strategies as st

from heart_utils.ratings.ratings import fit_ratings
from heart_utils.runs import find_root
from heart_utils.sources.defaults import DEFAULTS
from heart_utils.sources.load import load_histories, load_replies, load_scores, load_verdicts
from heart_utils.tables import TABLES, DataError

TURNS = [{"speaker": "seeker", "text": "The flat is empty — naïve of me."}]
HISTORY = {"history_id": "h1", "turns": TURNS}
VOTE = {
    "history_id": "h1",
    "responder_a": "x",
    "responder_b": "y",
    "rater": "r1",
    "rater_kind": "human",
    "verdict": "a",
}
SCORE = {
    "history_id": "h1",
    "responder": "x",
    "rater": "r1",
    "rater_kind": "human",
    "dimension": "warmth",
    "score": 3,
}


def lines(path, *rows):
    path.write_text(
        "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8"
    )
    return path


def comma_separated(path, *rows):
    cells = [
        {key: json.dumps(value) if isinstance(value, list) else value for key, value in row.items()}
        for row in rows
    ]
    pd.DataFrame(cells).to_csv(path, index=False)
    return path


def parquet(path, *rows):
    pd.DataFrame(list(rows)).to_parquet(path, index=False)
    return path


WRITERS = {".jsonl": lines, ".csv": comma_separated, ".parquet": parquet}


@pytest.mark.parametrize("suffix", WRITERS)
@pytest.mark.parametrize(
    ("load", "row"), [(load_histories, HISTORY), (load_verdicts, VOTE), (load_scores, SCORE)]
)
def test_a_file_with_the_least_that_is_needed_reads_the_same_in_every_format(
    tmp_path, suffix, load, row
):
    table = load(WRITERS[suffix](tmp_path / f"mine{suffix}", row))
    as_lines = load(lines(tmp_path / "mine.jsonl", row))
    pd.testing.assert_frame_equal(table, as_lines)
    assert table["dialogue_id"].tolist() == ["h1"]
    assert table["simulated"].tolist() == [False]
    assert table["flags"].tolist() == [[]]


@pytest.mark.parametrize("suffix", WRITERS)
def test_a_whole_table_survives_a_file_of_the_users(tmp_path, suffix):
    table = histories(
        history_id=["h1", "h2"],
        dialogue_id=["d1", "d1"],
        turns=[TURNS, TURNS * 3],
        flags=[[], ["odd"]],
    )
    table["simulated"] = [True, False]
    again = load_histories(WRITERS[suffix](tmp_path / f"mine{suffix}", *table.to_dict("records")))
    assert again["turns"].tolist() == table["turns"].tolist()
    assert again["flags"].tolist() == [[], ["odd"]]
    assert again["simulated"].tolist() == [True, False]


def test_a_dataframe_is_read_like_a_file_and_stays_as_it_was(tmp_path):
    row = {
        "history_id": "h",
        "responder_a": "bot",
        "responder_b": "ann",
        "rater": "eve",
        "rater_kind": "human",
        "verdict": "a",
    }
    mine = pd.DataFrame([row])
    file = tmp_path / "mine.csv"
    mine.to_csv(file, index=False)
    pd.testing.assert_frame_equal(load_verdicts(mine), load_verdicts(file))
    assert mine.columns.tolist() == list(row)
    with pytest.raises(DataError, match="the DataFrame: verdicts: missing rater"):
        load_verdicts(mine.drop(columns="rater"))


def test_defaults_are_for_columns_that_the_tables_have():
    for table, defaults in DEFAULTS.items():
        assert set(defaults) <= set(TABLES[table])


def test_nobodys_answer_is_a_default():
    assert not {"verdict", "score", "state", "rater", "rater_kind"} & {
        name for columns in DEFAULTS.values() for name in columns
    }


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([{**HISTORY, "turns": []}], "row 0 has .*no turn"),
        (
            [HISTORY, {"history_id": "h2", "turns": [{"speaker": "therapist", "text": "Hm."}]}],
            "row 1 has .*spoken by 'therapist'",
        ),
        (
            [{"history_id": "h1", "turns": [{"speaker": "seeker", "text": "  "}]}],
            "row 0 has .*turn 0 has no text",
        ),
        (
            [{"history_id": "h1", "turns": [*TURNS, {"speaker": "supporter", "text": "Oh?"}]}],
            "h1.*end with the supporter|end with the supporter .h1",
        ),
        ([HISTORY, HISTORY], "2 rows repeat another row's history_id"),
        ([{"turns": TURNS}], "missing history_id. A file of histories must have history_id, turns"),
        ([{**HISTORY, "colour": "red"}], "unknown colour"),
        (
            [{**HISTORY, "slice": "easy"}],
            "slice: expected one of standard, adversarial, calm_twin.*row 0 has 'easy'",
        ),
        ([{**HISTORY, "history_id": 7.5}], "history_id: expected text.*row 0 has 7.5"),
    ],
)
def test_bad_histories_are_named_by_file_row_and_column(tmp_path, rows, said):
    with pytest.raises(DataError, match=rf"mine.jsonl: .*({said})"):
        load_histories(lines(tmp_path / "mine.jsonl", *rows))


def test_a_history_that_is_flagged_for_ending_with_the_supporter_is_kept(tmp_path):
    row = {
        "history_id": "h1",
        "turns": [*TURNS, {"speaker": "supporter", "text": "Oh?"}],
        "flags": ["ends_with_supporter"],
    }
    assert len(load_histories(lines(tmp_path / "mine.jsonl", row))) == 1


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (
            [VOTE, {**VOTE, "rater": "r2", "verdict": "both bad"}],
            "row 1 says 'both bad' .1 in all.; expected a, b or tie",
        ),
        ([{**VOTE, "verdict": "A"}], "row 0 says 'A'"),
        ([VOTE, {**VOTE, "rater": "r2", "verdict": None}], "verdict: row 1 is empty.*column state"),
        ([VOTE, VOTE], "2 rows repeat another row's comparison_id, rater"),
        (
            [{**VOTE, "responder_b": "x"}],
            "responder_b: expected a responder other than responder_a",
        ),
        (
            [{key: value for key, value in VOTE.items() if key != "verdict"}],
            "missing verdict. A file of verdicts must have history_id",
        ),
        (
            [{key: value for key, value in VOTE.items() if key != "rater_kind"}],
            "missing rater_kind",
        ),
        ([{**VOTE, "responder_a": None}], "responder_a: expected text, in every row; row 0"),
        (
            [VOTE, {**VOTE, "history_id": None}],
            "verdicts.history_id: expected text, in every row; row 1 has nothing",
        ),
        (
            [{**VOTE, "rater_kind": "robot"}],
            "rater_kind: expected one of human, model.*row 0 has 'robot'",
        ),
        ([{**VOTE, "verdict": None, "state": "valid"}], "a verdict where the state is valid"),
    ],
)
@pytest.mark.parametrize("suffix", [".jsonl", ".csv"])
def test_bad_verdicts_are_named_by_file_row_and_column(tmp_path, suffix, rows, said):
    with pytest.raises(DataError, match=rf"mine{suffix}: .*{said}"):
        load_verdicts(WRITERS[suffix](tmp_path / f"mine{suffix}", *rows))


def test_a_failure_with_its_state_is_read_and_has_no_verdict(tmp_path):
    rows = [
        {**VOTE, "state": "valid"},
        {**VOTE, "rater": "r2", "verdict": None, "state": "refused"},
    ]
    table = load_verdicts(lines(tmp_path / "mine.jsonl", *rows))
    assert table["state"].tolist() == ["valid", "refused"]
    assert table["verdict"].isna().tolist() == [False, True]


def test_a_whole_number_as_an_id_is_text_and_another_number_is_none(tmp_path):
    table = load_verdicts(lines(tmp_path / "mine.jsonl", {**VOTE, "rater": 7, "history_id": 81.0}))
    assert table[["rater", "history_id"]].to_numpy().tolist() == [["7", "81"]]
    assert load_verdicts(pd.DataFrame([{**VOTE, "history_id": 2**60 + 1}]))[
        "history_id"
    ].tolist() == [str(2**60 + 1)]
    with pytest.raises(
        DataError, match="verdicts.rater: expected text, in every row; row 0 has a number"
    ):
        load_verdicts(lines(tmp_path / "mine.jsonl", {**VOTE, "rater": 7.5}))


def test_an_empty_score_is_not_a_number_without_a_word_why(tmp_path):
    with pytest.raises(DataError, match="score: row 1 is empty"):
        load_scores(lines(tmp_path / "mine.jsonl", SCORE, {**SCORE, "rater": "r2", "score": None}))


@settings(max_examples=20)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["xy", "yx"]),
            st.sampled_from(["a", "b", "tie"]),
            st.sampled_from(["ab", "ba", None]),
        ),
        min_size=1,
    )
)
def test_turning_rows_so_that_a_comes_first_changes_nobodys_win(tmp_path_factory, votes):
    chance = {"a": 0.75, "tie": 0.5, "b": 0.25}
    rows = [
        {
            **VOTE,
            "rater": f"r{n}",
            "responder_a": pair[0],
            "responder_b": pair[1],
            "verdict": said,
            "order": order,
        }
        | {"p_a": chance[said]}
        for n, (pair, said, order) in enumerate(votes)
    ]
    table = load_verdicts(lines(tmp_path_factory.mktemp("t") / "mine.jsonl", *rows))
    assert table["pair_id"].unique().tolist() == ["h1--x--y"]
    for (pair, said, order), row in zip(votes, table.to_dict("records"), strict=True):
        won = {"a": pair[0], "b": pair[1], "tie": None}[said]
        assert {"a": row["responder_a"], "b": row["responder_b"], "tie": None}[
            row["verdict"]
        ] == won
        shown_first = {"ab": pair[0], "ba": pair[1], None: None}[order]
        now_first = {"ab": row["responder_a"], "ba": row["responder_b"]}.get(row["order"])
        assert now_first == shown_first
        assert row["p_a"] == chance[row["verdict"]]


def test_two_orders_of_one_pair_keep_their_verdicts_apart(tmp_path):
    table = load_verdicts(
        lines(tmp_path / "mine.jsonl", {**VOTE, "order": "ab"}, {**VOTE, "order": "ba"})
    )
    assert table["comparison_id"].tolist() == ["h1--x--y--ab", "h1--x--y--ba"]
    assert table["pair_id"].tolist() == ["h1--x--y"] * 2


def test_a_broken_line_is_named_by_its_number(tmp_path):
    path = lines(tmp_path / "mine.jsonl", VOTE)
    path.write_text(path.read_text() + "\n" + '{"history_id": "h2",\n')
    with pytest.raises(DataError, match="mine.jsonl: line 3 is not JSON"):
        load_verdicts(path)
    path.write_text("[1, 2]\n")
    with pytest.raises(DataError, match="line 1 holds a list, expected an object"):
        load_verdicts(path)


def test_a_line_separator_inside_a_text_is_not_a_new_line(tmp_path):
    row = {"history_id": "h1", "turns": [{"speaker": "seeker", "text": "one\u2028two"}]}
    assert (
        load_histories(lines(tmp_path / "mine.jsonl", row))["turns"].iloc[0][0]["text"]
        == "one\u2028two"
    )


@pytest.mark.parametrize("suffix", [".jsonl", ".csv"])
def test_another_encoding_is_named_by_line_and_byte(tmp_path, suffix):
    path = WRITERS[suffix](tmp_path / f"mine{suffix}", {**VOTE, "rater": "Zoë"})
    path.write_bytes(path.read_text(encoding="utf-8").replace("\\u00eb", "ë").encode("latin-1"))
    with pytest.warns(UserWarning, match=rf"mine{suffix}: line \d is not UTF-8 .byte 0xeb.*'ë'"):
        assert load_verdicts(path)["rater"].tolist() == ["Zoë"]
    path.write_bytes(path.read_bytes().replace(b"\xeb", b"\x81"))  # which is no letter there
    with pytest.raises(DataError, match=rf"mine{suffix}: line \d is not UTF-8 .byte 0x81"):
        load_verdicts(path)


def test_a_byte_order_mark_is_no_part_of_the_first_column(tmp_path):
    path = comma_separated(tmp_path / "mine.csv", VOTE)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert len(load_verdicts(path)) == 1


def test_words_that_look_like_nothing_stay_words(tmp_path):
    table = load_verdicts(
        comma_separated(tmp_path / "mine.csv", {**VOTE, "rater": "NA", "history_id": "007"})
    )
    assert table[["rater", "history_id"]].iloc[0].tolist() == ["NA", "007"]


@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".parquet"])
def test_an_empty_file_and_one_with_no_rows_are_errors(tmp_path, suffix):
    path = tmp_path / f"mine{suffix}"
    path.write_bytes(b"")
    with pytest.raises(DataError, match=rf"mine{suffix}: it (is empty|cannot be read)"):
        load_verdicts(path)
    if suffix == ".csv":
        path.write_text(",".join(VOTE) + "\n")
        with pytest.raises(DataError, match="it has no rows"):
            load_verdicts(path)


def test_a_truncated_parquet_is_named(tmp_path):
    path = parquet(tmp_path / "mine.parquet", VOTE)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DataError, match="mine.parquet: it cannot be read as Parquet"):
        load_verdicts(path)


def test_a_list_that_is_not_json_in_a_csv_is_named_by_row_and_column(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text("history_id,turns\nh1,Hello\n")
    with pytest.raises(
        DataError, match="mine.csv: histories.turns: row 0: expected a list as JSON"
    ):
        load_histories(path)


@pytest.mark.parametrize("mark", [";", "\t", "|"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
def test_a_csv_with_any_mark_and_encoding_is_the_same_table(tmp_path, mark, encoding):
    rows = [{**VOTE, "rater": "Zoë, die Erste", "p_a": 0.75}, {**VOTE, "rater": "René", "p_a": 0.5}]
    path = tmp_path / "mine.csv"
    pd.DataFrame(rows).to_csv(
        path, index=False, sep=mark, encoding=encoding, decimal="," if mark == ";" else "."
    )
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        table = load_verdicts(path, keep_ids=True)
    pd.testing.assert_frame_equal(table, load_verdicts(pd.DataFrame(rows), keep_ids=True))
    assert any("Windows-1252" in str(one.message) for one in told) == (encoding == "cp1252")


def test_a_csv_whose_rows_are_all_longer_than_its_header_is_not_shifted(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text(",".join(VOTE) + "\n" + ",".join([*VOTE.values(), "more"]) + "\n")
    with pytest.raises(DataError, match="rows have more cells than its header"):
        load_verdicts(path)


GERMAN = pd.DataFrame(
    {
        "Gespräch": ["c1", "c1", "c2", "c2", "c3"],
        "Links": ["Bot", "Bot", "Berater", "Berater", "Bot"],
        "Rechts": ["Berater", "Berater", "Bot", "Bot", "Berater"],
        " rater ": ["Jörg", "Ute", "Jörg", "Ute", "Ute"],
        "Urteil": ["Links", "rechts ", "links", "beide gut", None],
        "Kommentar": [None, "knapp", None, None, None],
    }
)
COLUMNS = {
    "Gespräch": "history_id",
    "links": "responder_a",
    "Rechts": "responder_b",
    "Urteil": "verdict",
    "Kommentar": None,
}
WORDS = {"links": "a", "rechts": "b", "beide gut": "tie", "": "abstained"}


def excel(path, table):
    table.to_excel(path, index=False, engine="openpyxl")
    return path


def test_a_german_excel_file_is_a_leaderboard_in_two_lines(tmp_path):
    path = excel(tmp_path / "stimmen.xlsx", GERMAN)
    rows = load_verdicts(path, columns=COLUMNS, words=WORDS, always={"rater_kind": "human"})
    board = fit_ratings(rows, n_resamples=0).table
    assert board["responder"].tolist() == ["Berater", "Bot"]  # won twice and tied once of four
    # Berater is a, whichever side it was on
    assert rows["verdict"].tolist()[:4] == ["b", "a", "a", "tie"]
    assert rows["state"].tolist() == ["valid"] * 4 + ["abstained"]
    assert rows["rater"].tolist() == GERMAN[" rater "].tolist()


def test_all_that_is_wrong_with_a_file_is_said_at_once_with_the_columns_found(tmp_path):
    path = tmp_path / "stimmen.csv"
    GERMAN.to_csv(path, index=False, sep=";", encoding="cp1252")
    with pytest.raises(DataError) as caught:
        load_verdicts(path, columns={"Urteil": "verdict", "Rater": "rater"})
    said = str(caught.value)
    for fault in (
        r"stimmen.csv: 4 faults",
        (
            r"unknown Gespräch .single words., Links .single words., Rechts .single words.,"
            r" Kommentar ."
        ),
        (
            r"missing history_id, responder_a, responder_b, rater_kind.*its columns are Gespräch,"
            r" Links, Rechts,  rater , Urteil"
        ),
        (
            r"row 0 says 'Links' .1 in all., row 1 says 'rechts' .1 in all., row 2 says 'links' .1"
            r" in all., row 3 says 'beide gut'"
        ),
        r"verdict: row 4 is empty .1 in all.",
    ):
        assert re.search(fault, said), f"{fault} is not in:\n{said}"


def test_columns_that_are_not_there_are_no_fault_of_their_rows(tmp_path):
    rows = pd.DataFrame({"Gespräch": ["g1"], "links": ["ann"], "rechts": ["bot"], "Urteil": ["a"]})
    with pytest.raises(DataError, match="2 faults") as error:
        load_verdicts(rows)
    assert "responder other than" not in str(error.value)


def test_faults_of_rows_do_not_hide_each_other(tmp_path):
    rows = [
        VOTE,
        VOTE,
        {**VOTE, "history_id": "h2", "rater_kind": "robot"},
        {**VOTE, "history_id": "h3", "responder_b": "x"},
    ]
    rows += [{**VOTE, "history_id": "h4", "p_a": 7}, {**VOTE, "history_id": "h5", "rater": None}]
    with pytest.raises(DataError) as caught:
        load_verdicts(lines(tmp_path / "mine.jsonl", *rows))
    said = str(caught.value)
    for fault in (
        "row 2 has 'robot'",
        "row 3 has 'x'",
        "row 4 has 7",
        "row 5 has nothing",
        "row 0: .*2 rows|2 rows .*row 0: ",
    ):
        assert re.search(fault, said), f"{fault} is not in:\n{said}"


def test_headers_are_matched_without_case_and_blanks_and_one_column_cannot_be_two(tmp_path):
    table = pd.DataFrame([VOTE]).rename(
        columns={"history_id": "History ID", "responder_a": "RESPONDER-A ", "rater": " Rater"}
    )
    assert load_verdicts(excel(tmp_path / "mine.xlsx", table))["rater"].tolist() == ["r1"]
    with pytest.raises(DataError, match="several columns are rater, .* Rater, .*judge"):
        load_verdicts(table.assign(judge="r2"), columns={"judge": "rater"})


def test_only_words_that_the_user_explains_are_read():
    votes = pd.DataFrame([{**VOTE, "verdict": "A"}, {**VOTE, "rater": "r2", "verdict": 2.0}])
    assert load_verdicts(votes, words={"a": "a", 2: "tie"})["verdict"].tolist() == ["a", "tie"]
    with pytest.raises(DataError, match="row 0 says 'A'"):
        load_verdicts(votes, words={2: "tie"})
    kinds = load_verdicts(
        pd.DataFrame([{**VOTE, "rater_kind": "Mensch"}]), words={"rater_kind": {"mensch": "human"}}
    )
    assert kinds["rater_kind"].tolist() == ["human"]
    with pytest.raises(DataError, match="words speaks of the column judge"):
        load_verdicts(votes, words={"judge": {"x": "y"}})


def test_options_that_fit_nothing_are_named_and_none_is_silently_unused(tmp_path):
    votes = pd.DataFrame([VOTE])
    with pytest.raises(DataError, match="columns names Urtiel, and its columns are history_id"):
        load_verdicts(votes, columns={"Urtiel": "verdict"})
    with pytest.raises(DataError, match="verdicts has no column vote"):
        load_verdicts(votes, columns={"rater": "vote"})
    with pytest.raises(DataError, match="always names rater_kind, which is a column of its own"):
        load_verdicts(votes, always={"rater_kind": "model"})
    with pytest.raises(DataError, match="tool is about a file of your own; mtbench is a set"):
        load_verdicts("mtbench", tool="Potato")
    with pytest.raises(TypeError, match="load_scores has no option column"):
        load_scores(votes, column={})


def test_a_table_with_a_column_for_each_rater_becomes_a_row_for_each_answer():
    wide = pd.DataFrame(
        {
            "history_id": ["c1", "c2"],
            "responder_a": "x",
            "responder_b": "y",
            "Ann": ["A", "B"],
            "Ben": ["tie", ""],
        }
    )
    rows = load_verdicts(
        wide,
        columns={"ann": "verdict", "Ben": "verdict"},
        words={"A": "a", "B": "b"},
        always={"rater": "{column}", "rater_kind": "human"},
    )
    assert rows[["history_id", "rater", "verdict"]].to_numpy().tolist() == [
        ["c1", "Ann", "a"],
        ["c2", "Ann", "b"],
        ["c1", "Ben", "tie"],
    ]
    assert rows.attrs["notes"] == {"blank cells, taken as not asked": 1}
    with pytest.raises(DataError, match=r"row 0 .*column 1. says 'A'.*row 1 .*column 1. says 'B'"):
        load_verdicts(
            wide,
            columns={"Ann": "verdict", "Ben": "verdict"},
            always={"rater": "{column}", "rater_kind": "human"},
        )
    with pytest.raises(DataError, match="columns names Cem, and its columns are history_id"):
        load_verdicts(wide, columns={"Ann": "verdict", "Cem": "verdict"})
    with pytest.raises(
        DataError, match=r"columns=.'Ann': None.*If each is a rater: columns=.*'Ben': 'verdict'"
    ):
        load_verdicts(wide, always={"rater_kind": "human"})
    scores = pd.DataFrame({"history_id": ["c1"], "responder": ["x"], "Ann": ["4"], "Ben": ["5"]})
    always = {"rater": "{column}", "rater_kind": "human", "dimension": "warmth"}
    rows = load_scores(scores, columns={"Ann": "score", "Ben": "score"}, always=always)
    assert rows["score"].tolist() == [4.0, 5.0]


def test_an_unknown_column_is_offered_the_name_that_is_missing():
    ids = {
        "history_id": "c1",
        "responder_a": "x",
        "responder_b": "y",
        "rater": "ann",
        "rater_kind": "human",
    }
    votes = pd.DataFrame([{**ids, "Urteil": "a"}])
    with pytest.raises(DataError, match=r"columns=.'Urteil': 'verdict'.") as said:
        load_verdicts(votes)
    assert "{column}" not in str(said.value)  # there is a column of raters
    with pytest.raises(DataError) as said:
        load_verdicts(votes.rename(columns={"Urteil": "verdict"}).assign(Notiz="x"))
    assert "columns={'Notiz': None}" in str(said.value)
    assert "history_id" not in str(said.value)  # that one is there


def test_an_excel_file_is_read_as_a_csv_would_be(tmp_path):
    table = pd.DataFrame(
        {
            **{name: [value, value] for name, value in SCORE.items()},
            "rater": [7, 8],
            "score": [3.5, 4],
        }
    )
    path = excel(tmp_path / "mine.xlsx", table)
    pd.testing.assert_frame_equal(
        load_scores(path),
        load_scores(comma_separated(tmp_path / "mine.csv", *table.to_dict("records"))),
    )
    assert load_scores(path)["rater"].tolist() == ["7", "8"]
    with pd.ExcelWriter(path) as book:
        for sheet in ("one", "two"):
            table.to_excel(book, sheet_name=sheet, index=False)
    with pytest.raises(DataError, match="2 sheets with rows .one, two.*sheet_name='one'"):
        load_scores(path)
    path.write_bytes(b"not a workbook")
    with pytest.raises(DataError, match="it cannot be read as Excel"):
        load_scores(path)


def test_blank_rows_and_columns_of_a_spreadsheet_are_nothing(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text(";".join(VOTE) + ";;\n" + ";".join(VOTE.values()) + ";;\n;;;;;;;\n")
    assert len(load_verdicts(path)) == 1


def test_replies_of_ones_own_come_through_a_door_too(tmp_path):
    row = {"history_id": "h1", "responder": "ann", "text": "  That sounds hard.\n"}
    for suffix, write in WRITERS.items():
        table = load_replies(write(tmp_path / f"mine{suffix}", row))
        assert table[["reply_id", "text", "state"]].iloc[0].tolist() == [
            "h1--ann",
            row["text"],
            "valid",
        ]
    with pytest.raises(DataError, match="text: row 1 is empty"):
        load_replies(lines(tmp_path / "mine.jsonl", row, {**row, "responder": "bot", "text": None}))


def test_a_csv_with_a_row_too_long_is_named(tmp_path):
    path = comma_separated(tmp_path / "mine.csv", VOTE)
    path.write_text(path.read_text() + "h2,x,y,r1,human,a,more,and more\n")
    with pytest.raises(DataError, match="mine.csv: it cannot be read as CSV .*line 3"):
        load_verdicts(path)


def test_a_name_that_is_no_set_and_no_file_lists_the_sets_and_the_endings(tmp_path):
    with pytest.raises(
        DataError,
        match="'mtbnech' .*verdicts .mtbench, mentalalign.",
    ):
        load_verdicts("mtbnech")
    with pytest.raises(DataError, match="there is no such file"):
        load_verdicts(tmp_path / "mine.csv")
    with pytest.raises(DataError, match="'esconv' is neither a set with scores"):
        load_scores("esconv")


def test_options_that_belong_to_another_set_are_refused(tmp_path):
    with pytest.raises(DataError, match="twins"):
        load_histories(lines(tmp_path / "mine.jsonl", HISTORY), twins=True)
    with pytest.raises(DataError, match="as_published"):
        load_scores("empathic_comm", as_published=True)


def test_the_sample_comes_through_the_same_door():
    sample = load_histories("sample")
    assert len(sample) == 36
    assert all(turns[-1]["speaker"] == "seeker" for turns in sample["turns"])
    by_path = load_histories(find_root() / "data" / "sample" / "histories.jsonl")
    pd.testing.assert_frame_equal(by_path, sample)


def test_an_unknown_order_is_refused_also_where_the_sides_are_turned(tmp_path):
    turned = {**VOTE, "responder_a": "y", "responder_b": "x", "order": "first"}
    with pytest.raises(DataError, match="order.*'first'"):
        load_verdicts(lines(tmp_path / "mine.jsonl", {**VOTE, "order": "ab"}, turned))
