import json

import pandas as pd
import pytest
from builders import histories
from hypothesis import given, settings
from hypothesis import strategies as st

from heart_utils.runs import find_root
from heart_utils.sources import DataError, load_histories, load_scores, load_verdicts
from heart_utils.sources.files import DEFAULTS
from heart_utils.tables import TABLES

TURNS = [{"speaker": "seeker", "text": "The flat is empty — naïve of me."}]
HISTORY = {"history_id": "h1", "turns": TURNS}
VOTE = {"history_id": "h1", "responder_a": "x", "responder_b": "y", "rater": "r1", "rater_kind": "human", "verdict": "a"}
SCORE = {"history_id": "h1", "responder": "x", "rater": "r1", "rater_kind": "human", "dimension": "warmth", "score": 3}


def lines(path, *rows):
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


def comma_separated(path, *rows):
    cells = [{key: json.dumps(value) if isinstance(value, list) else value for key, value in row.items()} for row in rows]
    pd.DataFrame(cells).to_csv(path, index=False)
    return path


def parquet(path, *rows):
    pd.DataFrame(list(rows)).to_parquet(path, index=False)
    return path


WRITERS = {".jsonl": lines, ".csv": comma_separated, ".parquet": parquet}


@pytest.mark.parametrize("suffix", WRITERS)
@pytest.mark.parametrize(("load", "row"), [(load_histories, HISTORY), (load_verdicts, VOTE), (load_scores, SCORE)])
def test_a_file_with_the_least_that_is_needed_reads_the_same_in_every_format(tmp_path, suffix, load, row):
    table = load(WRITERS[suffix](tmp_path / f"mine{suffix}", row))
    as_lines = load(lines(tmp_path / "mine.jsonl", row))
    pd.testing.assert_frame_equal(table, as_lines)
    assert table["dialogue_id"].tolist() == ["h1"]
    assert table["simulated"].tolist() == [False]
    assert table["flags"].tolist() == [[]]


@pytest.mark.parametrize("suffix", WRITERS)
def test_a_whole_table_survives_a_file_of_the_users(tmp_path, suffix):
    table = histories(history_id=["h1", "h2"], dialogue_id=["d1", "d1"], turns=[TURNS, TURNS * 3], flags=[[], ["odd"]])
    table["simulated"] = [True, False]
    again = load_histories(WRITERS[suffix](tmp_path / f"mine{suffix}", *table.to_dict("records")))
    assert again["turns"].tolist() == table["turns"].tolist()
    assert again["flags"].tolist() == [[], ["odd"]]
    assert again["simulated"].tolist() == [True, False]


def test_a_dataframe_is_read_like_a_file_and_stays_as_it_was(tmp_path):
    row = {"history_id": "h", "responder_a": "bot", "responder_b": "ann", "rater": "eve", "rater_kind": "human", "verdict": "a"}
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
        ([{"history_id": "h1", "turns": [{"speaker": "seeker", "text": "  "}]}], "row 0 has .*turn 0 has no text"),
        (
            [{"history_id": "h1", "turns": [*TURNS, {"speaker": "supporter", "text": "Oh?"}]}],
            "h1.*end with the supporter|end with the supporter .h1",
        ),
        ([HISTORY, HISTORY], "2 rows repeat another row's history_id"),
        ([{"turns": TURNS}], "missing history_id. A file of histories must have history_id, turns"),
        ([{**HISTORY, "colour": "red"}], "unknown colour"),
        ([{**HISTORY, "slice": "easy"}], "slice: expected one of standard, adversarial, calm_twin.*row 0 has 'easy'"),
        ([{**HISTORY, "history_id": 7}], "history_id: expected text.*row 0 has 7"),
    ],
)
def test_bad_histories_are_named_by_file_row_and_column(tmp_path, rows, said):
    with pytest.raises(DataError, match=rf"mine.jsonl: .*({said})"):
        load_histories(lines(tmp_path / "mine.jsonl", *rows))


def test_a_history_that_is_flagged_for_ending_with_the_supporter_is_kept(tmp_path):
    row = {"history_id": "h1", "turns": [*TURNS, {"speaker": "supporter", "text": "Oh?"}], "flags": ["ends_with_supporter"]}
    assert len(load_histories(lines(tmp_path / "mine.jsonl", row))) == 1


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (
            [VOTE, {**VOTE, "rater": "r2", "verdict": "both bad"}],
            "row 1 says 'both bad' .1 rows like it.; expected a, b or tie",
        ),
        ([{**VOTE, "verdict": "A"}], "row 0 says 'A'"),
        ([VOTE, {**VOTE, "rater": "r2", "verdict": None}], "verdict: row 1 is empty.*column state"),
        ([VOTE, VOTE], "2 rows repeat another row's comparison_id, rater"),
        ([{**VOTE, "responder_b": "x"}], "responder_b: expected a responder other than responder_a"),
        (
            [{key: value for key, value in VOTE.items() if key != "verdict"}],
            "missing verdict. A file of verdicts must have history_id",
        ),
        ([{key: value for key, value in VOTE.items() if key != "rater_kind"}], "missing rater_kind"),
        ([{**VOTE, "responder_a": None}], "responder_a: expected text, in every row; row 0"),
        ([VOTE, {**VOTE, "history_id": None}], "verdicts.history_id: expected text, in every row; row 1 has nothing"),
        ([{**VOTE, "rater_kind": "robot"}], "rater_kind: expected one of human, model.*row 0 has 'robot'"),
        ([{**VOTE, "verdict": None, "state": "valid"}], "a verdict where the state is valid"),
    ],
)
@pytest.mark.parametrize("suffix", [".jsonl", ".csv"])
def test_bad_verdicts_are_named_by_file_row_and_column(tmp_path, suffix, rows, said):
    with pytest.raises(DataError, match=rf"mine{suffix}: .*{said}"):
        load_verdicts(WRITERS[suffix](tmp_path / f"mine{suffix}", *rows))


def test_a_failure_with_its_state_is_read_and_has_no_verdict(tmp_path):
    rows = [{**VOTE, "state": "valid"}, {**VOTE, "rater": "r2", "verdict": None, "state": "refused"}]
    table = load_verdicts(lines(tmp_path / "mine.jsonl", *rows))
    assert table["state"].tolist() == ["valid", "refused"]
    assert table["verdict"].isna().tolist() == [False, True]


def test_an_id_that_is_a_number_is_not_silently_made_text(tmp_path):
    with pytest.raises(DataError, match="verdicts.rater: expected text, in every row; row 0 has 7"):
        load_verdicts(lines(tmp_path / "mine.jsonl", {**VOTE, "rater": 7}))


def test_an_empty_score_is_not_a_number_without_a_word_why(tmp_path):
    with pytest.raises(DataError, match="score: row 1 is empty"):
        load_scores(lines(tmp_path / "mine.jsonl", SCORE, {**SCORE, "rater": "r2", "score": None}))


@settings(max_examples=20)
@given(
    st.lists(
        st.tuples(st.sampled_from(["xy", "yx"]), st.sampled_from(["a", "b", "tie"]), st.sampled_from(["ab", "ba", None])),
        min_size=1,
    )
)
def test_turning_rows_so_that_a_comes_first_changes_nobodys_win(tmp_path_factory, votes):
    chance = {"a": 0.75, "tie": 0.5, "b": 0.25}
    rows = [
        {**VOTE, "rater": f"r{n}", "responder_a": pair[0], "responder_b": pair[1], "verdict": said, "order": order}
        | {"p_a": chance[said]}
        for n, (pair, said, order) in enumerate(votes)
    ]
    table = load_verdicts(lines(tmp_path_factory.mktemp("t") / "mine.jsonl", *rows))
    assert table["pair_id"].unique().tolist() == ["h1--x--y"]
    for (pair, said, order), row in zip(votes, table.to_dict("records"), strict=True):
        won = {"a": pair[0], "b": pair[1], "tie": None}[said]
        assert {"a": row["responder_a"], "b": row["responder_b"], "tie": None}[row["verdict"]] == won
        shown_first = {"ab": pair[0], "ba": pair[1], None: None}[order]
        now_first = {"ab": row["responder_a"], "ba": row["responder_b"]}.get(row["order"])
        assert now_first == shown_first
        assert row["p_a"] == chance[row["verdict"]]


def test_two_orders_of_one_pair_keep_their_verdicts_apart(tmp_path):
    table = load_verdicts(lines(tmp_path / "mine.jsonl", {**VOTE, "order": "ab"}, {**VOTE, "order": "ba"}))
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
    assert load_histories(lines(tmp_path / "mine.jsonl", row))["turns"].iloc[0][0]["text"] == "one\u2028two"


@pytest.mark.parametrize("suffix", [".jsonl", ".csv"])
def test_another_encoding_is_named_by_line_and_byte(tmp_path, suffix):
    path = WRITERS[suffix](tmp_path / f"mine{suffix}", {**VOTE, "rater": "Zoë"})
    path.write_bytes(path.read_text(encoding="utf-8").replace("\\u00eb", "ë").encode("latin-1"))
    with pytest.raises(DataError, match=rf"mine{suffix}: line \d is not UTF-8 .byte 0xeb.*UTF-8"):
        load_verdicts(path)


def test_a_byte_order_mark_is_no_part_of_the_first_column(tmp_path):
    path = comma_separated(tmp_path / "mine.csv", VOTE)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert len(load_verdicts(path)) == 1


def test_words_that_look_like_nothing_stay_words(tmp_path):
    table = load_verdicts(comma_separated(tmp_path / "mine.csv", {**VOTE, "rater": "NA", "history_id": "007"}))
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
    with pytest.raises(DataError, match="mine.csv: row 0, column turns: expected a list as JSON"):
        load_histories(path)


@pytest.mark.parametrize("mark", [";", "\t"])
def test_a_csv_that_is_separated_by_another_mark_is_told(tmp_path, mark):
    path = tmp_path / "mine.csv"
    pd.DataFrame([VOTE]).to_csv(path, index=False, sep=mark)
    with pytest.raises(DataError, match="mine.csv: its header is .* Is it separated by commas?"):
        load_verdicts(path)


def test_a_csv_with_a_row_too_long_is_named(tmp_path):
    path = comma_separated(tmp_path / "mine.csv", VOTE)
    path.write_text(path.read_text() + "h2,x,y,r1,human,a,more,and more\n")
    with pytest.raises(DataError, match="mine.csv: it cannot be read as CSV .*line 3"):
        load_verdicts(path)


def test_a_name_that_is_no_set_and_no_file_lists_the_sets_and_the_endings(tmp_path):
    with pytest.raises(DataError, match="'mtbnech' is neither a set with verdicts .mtbench, mentalalign. nor a path"):
        load_verdicts("mtbnech")
    with pytest.raises(DataError, match="there is no such file"):
        load_verdicts(tmp_path / "mine.csv")
    with pytest.raises(DataError, match="'esconv' is neither a set with scores"):
        load_scores("esconv")


def test_a_files_dimension_and_raters_can_be_chosen_and_unknown_ones_are_listed(tmp_path):
    path = lines(tmp_path / "mine.jsonl", {**VOTE, "dimension": "warmth"}, {**VOTE, "dimension": "tact", "rater": "r2"})
    assert load_verdicts(path, dimension="tact")["rater"].tolist() == ["r2"]
    assert load_verdicts(path, raters=["r1"])["dimension"].tolist() == ["warmth"]
    with pytest.raises(DataError, match="no dimension 'overall'. It has tact, warmth"):
        load_verdicts(path, dimension="overall")
    with pytest.raises(DataError, match="no rater r3. The raters are r1, r2"):
        load_verdicts(path, raters=["r1", "r3"])
    with pytest.raises(DataError, match="No rater here is one of 'model'"):
        load_verdicts(path, raters="model")


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
