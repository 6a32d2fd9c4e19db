"""Files with the project's own words: in every format, and each fault by file, row and column."""

import gzip
import json
import re
import warnings

import pandas as pd
import pyarrow as pa
import pytest
import zstandard
from builders import histories
from hypothesis import given, settings
from hypothesis import strategies as st
from source_builders import holds, refused, write

from heart_utils.ratings.ratings import fit_ratings
from heart_utils.runs import find_root
from heart_utils.sources.catalogue import DataUnavailableError
from heart_utils.sources.defaults import DEFAULTS
from heart_utils.sources.heart import flag_reply
from heart_utils.sources.load import (
    load_conversations,
    load_histories,
    load_replies,
    load_responders,
    load_scores,
    load_verdicts,
)
from heart_utils.tables import ENDS, TABLES, DataError, check_table

TURNS = [{"speaker": "seeker", "text": "The flat is empty — naïve of me."}]
ANSWERED = [*TURNS, {"speaker": "supporter", "text": "Oh?"}]
HISTORY = {"history_id": "h1", "turns": TURNS}
PAIR = {"history_id": "h1", "responder_a": "x", "responder_b": "y", "rater": "r1"}
VOTE = {**PAIR, "rater_kind": "human", "verdict": "a"}
OTHER = {**VOTE, "rater": "r2"}
SCORE = {"history_id": "h1", "responder": "x", "rater": "r1", "rater_kind": "human"}
SCORE |= {"dimension": "warmth", "score": 3}
REPLY = {"history_id": "h1", "responder": "ann", "text": "  That sounds hard.\n"}
KEPT = {"keep_ids": True}


def table_of(*rows, suffix=".csv"):
    """Rows as a table, whose lists are JSON where the format has only text."""
    cells = [
        {
            name: json.dumps(cell) if isinstance(cell, list) and suffix == ".csv" else cell
            for name, cell in row.items()
        }
        for row in rows
    ]
    return pd.DataFrame(cells) if suffix != ".jsonl" else list(rows)


SUFFIXES = (".jsonl", ".csv", ".parquet")


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize(
    ("load", "row"), [(load_histories, HISTORY), (load_verdicts, VOTE), (load_scores, SCORE)]
)
def test_a_file_with_the_least_that_is_needed_reads_the_same_in_every_format(
    tmp_path, suffix, load, row
):
    table = load(write(tmp_path, f"mine{suffix}", table_of(row, suffix=suffix)))
    pd.testing.assert_frame_equal(table, load(write(tmp_path, "mine.jsonl", [row])))
    holds(table, {"dialogue_id": ["h1"], "simulated": [False], "flags": [[]]})


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_whole_table_survives_a_file_of_the_users(tmp_path, suffix):
    table = histories(
        history_id=["h1", "h2"],
        dialogue_id=["d1", "d1"],
        turns=[TURNS, TURNS * 3],
        flags=[[], ["odd"]],
    )
    table["simulated"] = [True, False]
    rows = table_of(*table.to_dict("records"), suffix=suffix)
    again = load_histories(write(tmp_path, f"mine{suffix}", rows))
    for name in ("turns", "flags", "simulated"):
        assert again[name].tolist() == table[name].tolist()


def test_a_dataframe_is_read_like_a_file_and_stays_as_it_was(tmp_path):
    mine = pd.DataFrame([VOTE])
    table = load_verdicts(mine)
    pd.testing.assert_frame_equal(table, load_verdicts(write(tmp_path, "mine.csv", mine)))
    assert mine.columns.tolist() == list(VOTE)
    pd.testing.assert_frame_equal(table, load_verdicts(pa.Table.from_pandas(mine)))


def test_no_answer_is_a_default_and_defaults_are_of_columns_that_there_are():
    for table, defaults in DEFAULTS.items():
        assert set(defaults) <= set(TABLES[table])
        assert not {"verdict", "score", "state", "rater", "rater_kind"} & set(defaults)


def without(row, name):
    return {key: cell for key, cell in row.items() if key != name}


def turns(*pairs):
    return {
        "history_id": "h1",
        "turns": [{"speaker": speaker, "text": text} for speaker, text in pairs],
    }


BAD_HISTORIES = [
    ([{**HISTORY, "turns": []}], "row 0 has .*no turn"),
    ([HISTORY, {**turns(("therapist", "Hm.")), "history_id": "h2"}], "row 1 has .*spoken by 'therapist'"),
    ([turns(("seeker", "  "))], "row 0 has .*turn 0 has no text"),
    ([{**HISTORY, "turns": ANSWERED}], "end with the supporter .h1"),
    ([HISTORY, HISTORY], "2 rows repeat another row's history_id"),
    ([{"turns": TURNS}], "missing history_id. A file of histories must have history_id, turns"),
    ([{**HISTORY, "colour": "red"}], "unknown colour"),
    ([{**HISTORY, "slice": "easy"}], "slice: expected one of standard, adversarial, calm_twin.*row 0 has 'easy'"),
    ([{**HISTORY, "history_id": 7.5}], "history_id: expected text.*row 0 has 7.5"),
]  # fmt: skip
BAD_VERDICTS = [
    ([VOTE, {**OTHER, "verdict": "both bad"}], "row 1 says 'both bad' .1 in all.; expected a, b or tie"),
    ([{**VOTE, "verdict": "A"}], "row 0 says 'A'"),
    ([VOTE, {**OTHER, "verdict": None}], "verdict: row 1 is empty.*column state"),
    ([VOTE, VOTE], "2 rows repeat another row's comparison_id, rater"),
    ([{**VOTE, "responder_b": "x"}], "responder_b: expected a responder other than responder_a"),
    ([without(VOTE, "verdict")], "missing verdict. A file of verdicts must have history_id"),
    ([without(VOTE, "rater_kind")], "missing rater_kind"),
    ([{**VOTE, "responder_a": None}], "responder_a: expected text, in every row; row 0"),
    ([VOTE, {**VOTE, "history_id": None}], "verdicts.history_id: expected text, in every row; row 1 has nothing"),
    ([{**VOTE, "rater_kind": "robot"}], "rater_kind: expected one of human, model.*row 0 has 'robot'"),
    ([{**VOTE, "verdict": None, "state": "valid"}], "a verdict where the state is valid"),
    ([{**VOTE, "order": "ab"}, {**VOTE, "responder_a": "y", "responder_b": "x", "order": "first"}], "order.*'first'"),
]  # fmt: skip
BAD = [
    *((load_histories, ".jsonl", rows, said) for rows, said in BAD_HISTORIES),
    *((load_verdicts, suffix, rows, said) for rows, said in BAD_VERDICTS for suffix in (".jsonl", ".csv")),
    (load_verdicts, ".jsonl", [{**VOTE, "rater": 7.5}], "verdicts.rater: expected text, in every row; row 0 has a number"),
    (load_scores, ".jsonl", [SCORE, {**SCORE, "rater": "r2", "score": None}], "score: row 1 is empty"),
    (load_replies, ".jsonl", [REPLY, {**REPLY, "responder": "bot", "text": None}], "text: row 1 is empty"),
]  # fmt: skip


@pytest.mark.parametrize(("load", "suffix", "rows", "said"), BAD)
def test_bad_rows_are_named_by_file_row_and_column(tmp_path, load, suffix, rows, said):
    file = write(tmp_path, f"mine{suffix}", table_of(*rows, suffix=suffix))
    with pytest.raises(DataError, match=rf"mine{suffix}: .*{said}"):
        load(file)


HEADER = ",".join(VOTE)
LINE = ",".join(VOTE.values())
LATIN = LINE.replace("r1", "Zoë").encode("latin-1")
PACKED = zstandard.compress(f"{HEADER}\n{LINE}\n".encode())
BOOK = pd.DataFrame([SCORE])
DAMAGED = [
    ("mine.jsonl", json.dumps(VOTE) + '\n\n{"history_id": "h2",\n', "mine.jsonl: line 3 is not JSON"),
    ("mine.jsonl", "[1, 2]\n", "line 1 holds a list, expected an object"),
    ("mine.csv", f"{HEADER}\n".encode() + LATIN.replace(b"\xeb", b"\x81"), "mine.csv: line 2 is not UTF-8 .byte 0x81"),
    ("mine.jsonl", b'{"a": "\x81"}', "mine.jsonl: line 1 is not UTF-8 .byte 0x81"),
    ("mine.jsonl", "", "mine.jsonl: it is empty"),
    ("mine.csv", "", "mine.csv: it is empty"),
    ("mine.parquet", b"", "mine.parquet: it cannot be read as Parquet"),
    ("mine.csv", f"{HEADER}\n", "mine.csv: it has no rows"),
    ("mine.csv", f"{HEADER}\n{LINE},more\n", "rows have more cells than its header"),
    ("mine.csv", f"{HEADER}\n{LINE}\n{LINE},more,and more\n", "mine.csv: it cannot be read as CSV .*line 3"),
    ("mine.xlsx", b"not a workbook", "it cannot be read as Excel"),
    ("mine.json", '[{"a": 1}, 2]', "entry 1 of the array is a int, expected an object"),
    ("mine.json", '[{"a": 1}', "it is not whole JSON .line 1, column 10"),
    ("mine.json", '{"x": [{"a": 1}], "y": [{"b": 1}]}', "several arrays of objects .x, y."),
    ("mine.json", "7", "it holds a int, expected an array of objects"),
    ("mine.json.gz", gzip.compress(b"[]", mtime=0)[:-9], "it cannot be unpacked"),
    ("mine.json.zst", b"nothing packed", "it cannot be unpacked"),
    ("mine.rar", b"", "nor a path that ends in .*.eval, or in one of these and .gz or .zst"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "content", "said"), DAMAGED)
def test_a_damaged_file_is_named(tmp_path, name, content, said):
    with pytest.raises(DataError, match=said):
        load_verdicts(write(tmp_path, name, content))


def test_a_truncated_parquet_and_a_list_that_is_not_json_are_named(tmp_path):
    path = write(tmp_path, "mine.parquet", pd.DataFrame([VOTE]))
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DataError, match="mine.parquet: it cannot be read as Parquet"):
        load_verdicts(path)
    with pytest.raises(
        DataError, match="mine.csv: histories.turns: row 0: expected a list as JSON"
    ):
        load_histories(write(tmp_path, "mine.csv", "history_id,turns\nh1,Hello\n"))


GOOD = {
    "a failure with its state": (load_verdicts, "mine.jsonl", [{**VOTE, "state": "valid"}, {**OTHER, "verdict": None, "state": "refused"}], {}, {"won": "x refused", "verdict": ["a", None]}),
    "whole numbers as ids": (load_verdicts, "mine.jsonl", [{**VOTE, "rater": 7, "history_id": 81.0}], {}, {"rater": ["7"], "history_id": ["81"]}),
    "a long number as an id": (load_verdicts, "", [{**VOTE, "history_id": 2**60 + 1}], {}, {"history_id": [str(2**60 + 1)]}),
    "a history flagged for its end": (load_histories, "mine.jsonl", [{**HISTORY, "turns": ANSWERED, "flags": ["ends_with_supporter"]}], {}, {"history_id": ["h1"]}),
    "two orders of one pair": (load_verdicts, "mine.jsonl", [{**VOTE, "order": "ab"}, {**VOTE, "order": "ba"}], {}, {"comparison_id": ["h1--x--y--ab", "h1--x--y--ba"], "pair_id": ["h1--x--y"] * 2}),
    "another line separator": (load_histories, "mine.jsonl", [turns(("seeker", "one\u2028two"))], {}, {"turns": [turns(("seeker", "one\u2028two"))["turns"]]}),
    "a mark of the order of bytes": (load_verdicts, "mine.csv", f"\ufeff{HEADER}\n{LINE}\n", {}, {"won": "x"}),
    "words that look like nothing": (load_verdicts, "mine.csv", [{**VOTE, "rater": "NA", "history_id": "007"}], {}, {"rater": ["NA"], "history_id": ["007"]}),
    "blank rows and columns": (load_verdicts, "mine.csv", f"{HEADER},,\n{LINE},,\n,,,,,,,\n".replace(",", ";"), {}, {"won": "x"}),
    "a packed table": (load_verdicts, "mine.csv.zst", PACKED, {}, {"won": "x"}),
    "a packed array": (load_verdicts, "mine.json.gz", gzip.compress(json.dumps([VOTE]).encode()), {}, {"won": "x"}),
    "packed lines": (load_verdicts, "mine.jsonl.gz", gzip.compress(json.dumps(VOTE).encode()), {}, {"won": "x"}),
    "lines as JSON": (load_verdicts, "mine.json", f"{json.dumps(VOTE)}\n{json.dumps(OTHER)}", {}, {"won": "x x"}),
    "rows inside an object": (load_verdicts, "mine.json", json.dumps({"version": 1, "data": [VOTE]}), {}, {"won": "x"}),
    "replies": (load_replies, "mine.csv", [REPLY], {}, {"reply_id": ["h1--ann"], "text": [REPLY["text"]], "state": ["valid"]}),
    "words that the user explains": (load_verdicts, "", [{**VOTE, "verdict": "A"}, {**OTHER, "verdict": 2.0}], {"words": {"a": "a", 2: "tie"}}, {"won": "x tie"}),
    "a kind that the user explains": (load_verdicts, "", [{**VOTE, "rater_kind": "Mensch"}], {"words": {"rater_kind": {"mensch": "human"}}}, {"rater_kind": ["human"]}),
}  # fmt: skip


@pytest.mark.parametrize("name", GOOD)
def test_a_file_is_read_as_it_stands(tmp_path, name):
    load, file, content, options, expected = GOOD[name]
    holds(load(write(tmp_path, file, content), **options), expected)


def test_another_encoding_is_named_by_line_and_byte_and_read(tmp_path):
    file = write(tmp_path, "mine.csv", f"{HEADER}\n".encode() + LATIN)
    with pytest.warns(UserWarning, match="mine.csv: line 2 is not UTF-8 .byte 0xeb.*'ë'"):
        holds(load_verdicts(file), {"rater": ["Zoë"]})


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
def test_turning_rows_so_that_a_comes_first_changes_nobodys_win(votes):
    chance = {"a": 0.75, "tie": 0.5, "b": 0.25}
    rows = pd.DataFrame(
        [
            {**VOTE, "rater": f"r{n}", "verdict": said, "order": order, "p_a": chance[said]}
            | dict(zip(("responder_a", "responder_b"), pair, strict=True))
            for n, (pair, said, order) in enumerate(votes)
        ]
    )
    table = load_verdicts(rows)
    assert table["pair_id"].unique().tolist() == ["h1--x--y"]
    assert table["p_a"].tolist() == table["verdict"].map(chance).tolist()
    turn = {"a": "b", "b": "a", "ab": "ba", "ba": "ab"}
    for (pair, *told), found in zip(votes, table[["verdict", "order"]].to_numpy(), strict=True):
        expected = told if pair == "xy" else [turn.get(word, word) for word in told]
        assert [None if word != word else word for word in found] == expected


@pytest.mark.parametrize("mark", [";", "\t", "|"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
def test_a_csv_with_any_mark_and_encoding_is_the_same_table(tmp_path, mark, encoding):
    rows = [{**VOTE, "rater": "Zoë, die Erste", "p_a": 0.75}, {**VOTE, "rater": "René", "p_a": 0.5}]
    path = tmp_path / "mine.csv"
    decimal = "," if mark == ";" else "."
    pd.DataFrame(rows).to_csv(path, index=False, sep=mark, encoding=encoding, decimal=decimal)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        table = load_verdicts(path, **KEPT)
    pd.testing.assert_frame_equal(table, load_verdicts(pd.DataFrame(rows), **KEPT))
    assert any("Windows-1252" in str(one.message) for one in told) == (encoding == "cp1252")


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
COLUMNS = {"Gespräch": "history_id", "links": "responder_a", "Rechts": "responder_b"}
COLUMNS |= {"Urteil": "verdict", "Kommentar": None}
WORDS = {"links": "a", "rechts": "b", "beide gut": "tie", "": "abstained"}


def test_a_german_excel_file_is_a_leaderboard_in_two_lines(tmp_path):
    path = write(tmp_path, "stimmen.xlsx", GERMAN)
    rows = load_verdicts(path, columns=COLUMNS, words=WORDS, always={"rater_kind": "human"})
    board = fit_ratings(rows, n_resamples=0).table
    assert board["responder"].tolist() == ["Berater", "Bot"]  # won twice and tied once of four
    holds(rows, {"won": "Bot Berater Berater tie abstained", "rater": GERMAN[" rater "].tolist()})


MANY = [VOTE, VOTE, {**VOTE, "history_id": "h2", "rater_kind": "robot"}]
MANY += [{**VOTE, "history_id": "h3", "responder_b": "x"}, {**VOTE, "history_id": "h4", "p_a": 7}]
MANY += [{**VOTE, "history_id": "h5", "rater": None}]
ALL_FAULTS = [
    (
        GERMAN.to_csv(index=False, sep=";").encode("cp1252"),
        {"columns": {"Urteil": "verdict", "Rater": "rater"}},
        [
            "mine.csv: 4 faults",
            r"unknown Gespräch .single words., Links .single words., Rechts .single words., Kommentar .",
            "missing history_id, responder_a, responder_b, rater_kind.*its columns are Gespräch, Links,"
            " Rechts,  rater , Urteil",
            r"row 0 says 'Links' .1 in all., row 1 says 'rechts' .1 in all., row 2 says 'links' .1 in"
            r" all., row 3 says 'beide gut'",
            "verdict: row 4 is empty .1 in all.",
        ],
    ),
    (
        pd.DataFrame(MANY),
        {},
        [
            "row 2 has 'robot'",
            "row 3 has 'x'",
            "row 4 has '7.0'",
            "row 5 has nothing",
            "2 rows .*row 0: ",
        ],
    ),
]


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(("content", "options", "faults"), ALL_FAULTS)
def test_all_that_is_wrong_with_a_file_is_said_at_once(tmp_path, content, options, faults):
    said = refused(load_verdicts, write(tmp_path, "mine.csv", content), **options)
    assert [fault for fault in faults if not re.search(fault, said)] == []


def test_columns_that_are_not_there_are_no_fault_of_their_rows():
    said = refused(load_verdicts, GERMAN[["Gespräch", "Links", "Rechts", "Urteil"]].head(1))
    assert "2 faults" in said
    assert "responder other than" not in said


def test_headers_are_matched_without_case_and_blanks_and_one_column_cannot_be_two():
    names = {"history_id": "History ID", "responder_a": "RESPONDER-A ", "rater": " Rater"}
    table = pd.DataFrame([VOTE]).rename(columns=names)
    assert load_verdicts(table)["rater"].tolist() == ["r1"]
    with pytest.raises(DataError, match="several columns are rater, .* Rater, .*judge"):
        load_verdicts(table.assign(judge="r2"), columns={"judge": "rater"})


WIDE = pd.DataFrame({**PAIR, "history_id": ["c1", "c2"], "Ann": ["A", "B"], "Ben": ["tie", ""]})
WIDE = WIDE.drop(columns="rater")
BY_RATER = {"rater": "{column}", "rater_kind": "human"}
MISFITS = [
    (VOTE, {"columns": {"Urtiel": "verdict"}}, "columns names Urtiel, and its columns are history_id"),
    (VOTE, {"columns": {"rater": "vote"}}, "verdicts has no column vote"),
    (VOTE, {"always": {"rater_kind": "model"}}, "always names rater_kind, which is a column of its own"),
    ({**VOTE, "verdict": "A"}, {"words": {2: "tie"}}, "row 0 says 'A'"),
    (VOTE, {"words": {"judge": {"x": "y"}}}, "words speaks of the column judge"),
    ({**PAIR, "rater_kind": "human", "Urteil": "a"}, {}, r"(?s)^(?!.*\{column\}).*columns=.'Urteil': 'verdict'."),
    ({**VOTE, "Notiz": "x"}, {}, r"(?s)^(?!.*history_id).*columns=.'Notiz': None"),
    (WIDE, {"columns": {"Ann": "verdict", "Ben": "verdict"}, "always": BY_RATER}, r"row 0 .*column 1. says 'A'.*row 1 .*column 1. says 'B'"),
    (WIDE, {"columns": {"Ann": "verdict", "Cem": "verdict"}}, "columns names Cem, and its columns are history_id"),
    (WIDE, {"always": {"rater_kind": "human"}}, r"columns=.'Ann': None.*If each is a rater: columns=.*'Ben': 'verdict'"),
    (without(VOTE, "rater"), {}, "the DataFrame: verdicts: missing rater"),
]  # fmt: skip


@pytest.mark.parametrize(("rows", "options", "said"), MISFITS)
def test_options_that_fit_nothing_are_named_with_what_may_be_meant(rows, options, said):
    with pytest.raises(DataError, match=said):
        load_verdicts(pd.DataFrame([rows]) if isinstance(rows, dict) else rows, **options)


def test_a_table_with_a_column_for_each_rater_becomes_a_row_for_each_answer():
    columns, words = {"ann": "verdict", "Ben": "verdict"}, {"A": "a", "B": "b"}
    with pytest.warns(UserWarning, match="1 blank cells, taken as not asked"):
        rows = load_verdicts(WIDE, columns=columns, words=words, always=BY_RATER)
    holds(
        rows, {"won": "x y tie", "history_id": ["c1", "c2", "c1"], "rater": ["Ann", "Ann", "Ben"]}
    )


def test_an_excel_file_is_read_as_a_csv_would_be(tmp_path):
    table = pd.DataFrame({**SCORE, "rater": [7, 8], "score": [3.5, 4]})
    scores = load_scores(write(tmp_path, "mine.xlsx", table))
    pd.testing.assert_frame_equal(scores, load_scores(write(tmp_path, "mine.csv", table)))
    assert scores["rater"].tolist() == ["7", "8"]
    with pd.ExcelWriter(tmp_path / "two.xlsx") as book:
        for sheet in ("one", "two"):
            table.to_excel(book, sheet_name=sheet, index=False)
    with pytest.raises(DataError, match="2 sheets with rows .one, two.*sheet_name='one'"):
        load_scores(tmp_path / "two.xlsx")


@pytest.mark.parametrize(
    ("load", "name", "options", "error", "said"),
    [
        (load_verdicts, "mtbnech", {}, DataError, "'mtbnech' .*verdicts .mtbench, mentalalign."),
        (load_verdicts, "not/there.csv", {}, DataError, "there is no such file"),
        (load_scores, "esconv", {}, DataError, "'esconv' is neither a set with scores"),
        (load_histories, "mine.jsonl", {"twins": True}, DataError, "twins"),
        (load_scores, "empathic_comm", {"as_published": True}, DataError, "as_published"),
        (load_verdicts, "mtbench", {"tool": "Potato"}, DataError, "tool is about a file of your own; mtbench is a set"),
        (load_scores, "mine.csv", {"column": {}}, TypeError, "load_scores has no option column"),
        (load_replies, "mtbench", {}, DataError, "'mtbench' .*replies .sample, heart, esconv."),
    ],
)  # fmt: skip
def test_a_name_or_an_option_that_does_not_belong_there_is_refused(
    load, name, options, error, said
):
    with pytest.raises(error, match=said):
        load(name, **options)


def test_the_sample_comes_through_the_same_door():
    sample = load_histories("sample")
    assert len(sample) == 36
    assert all(turns[-1]["speaker"] == "seeker" for turns in sample["turns"])
    by_path = load_histories(find_root() / "data" / "sample" / "histories.jsonl")
    pd.testing.assert_frame_equal(by_path, sample)


def test_strict_sets_without_a_mirror_say_what_to_do(monkeypatch, tmp_path):
    monkeypatch.delenv("HEART_DATA_MIRROR", raising=False)
    monkeypatch.setenv("HEART_DATA_CACHE", str(tmp_path))
    for name in ("heart", "esconv"):
        with pytest.raises(DataUnavailableError, match="make data NAME=esconv"):
            load_histories(name)


@pytest.mark.parametrize(
    ("text", "before", "after", "flags"),
    [
        ("Hi! What is on your mind?", 0, 9, ["greeting"]),
        ("Good, how are you?", 0, 9, ["greeting"]),
        ("Hey, that sounds hard.", 3, 9, []),
        ("I see. Tell me more.", 0, 9, []),
        ("Take care of yourself when you can.", 9, 1, []),
        ("Take care!", 9, 1, ["closing"]),
        ("Goodnight, and good luck.", 9, 0, ["closing"]),
        ("Try to get a good night's sleep.", 9, 0, []),
        ("Have a wonderful evening!", 2, 9, []),
        ("Well. " + "word " * 40, 3, 3, ["over_40_words"]),
        ("word " * 40, 3, 3, []),
    ],
)
def test_greetings_closings_and_long_replies_are_flagged_by_rule(text, before, after, flags):
    assert flag_reply(text, n_before=before, n_after=after) == flags


def test_the_samples_reference_replies_are_not_human():
    found = load_replies("sample")
    assert set(found["history_id"]) == set(load_histories("sample")["history_id"])
    assert load_responders("sample").set_index("responder").loc[
        found["responder"].unique(), "responder_kind"
    ].tolist() == ["reference"]


# Whole conversations: what a file must say, and what keeps one from being judged

SAID = [
    {"speaker": "supporter", "text": "What happened?"},
    {"speaker": "seeker", "text": "She left."},
]


def mine(**columns):
    rows = pd.DataFrame({"history_id": "h", "responder": ["ann", "bot"], "seeker": "s1"})
    return rows.assign(turns=[SAID, SAID * 2]).assign(**columns)


def test_a_conversation_is_named_by_start_seeker_responder_and_repeat():
    loaded = load_conversations(mine(repeat=[0, 2]))
    assert loaded["conversation_id"].tolist() == ["h--s1--ann", "h--s1--bot--r2"]
    assert loaded["history_id"].tolist() == ["h--s1"] * 2  # of one start and one seeker
    assert loaded[["start_id", "dialogue_id"]].to_numpy().tolist() == [["h", "h"]] * 2
    assert loaded["n_exchanges"].tolist() == [1, 2]


def test_a_file_may_hold_turns_as_json(tmp_path):
    rows = mine()
    rows.assign(turns=rows["turns"].map(json.dumps)).to_csv(tmp_path / "mine.csv", index=False)
    assert load_conversations(tmp_path / "mine.csv")["n_exchanges"].tolist() == [1, 2]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"n_exchanges": [1, 7]}, "came in half is not judged; row 1 has '7 and turns with 2'"),
        ({"turns": [SAID, []]}, "an exchange where the state is valid; row 1"),
        ({"turns": [SAID, SAID[:1]]}, "an exchange where the state is valid; row 1"),
        ({"turns": [SAID, [{"speaker": "bot", "text": "x"}]]}, "turn 0 is spoken by 'bot'"),
        ({"turns": [SAID, [{"speaker": "seeker", "text": " "}]]}, "turn 0 has no text"),
        ({"stop_reason": "repeated", "state": "valid"}, "the state that its end means"),
        ({"stop_reason": "bored"}, "expected one of length, seeker_ended"),
        ({"stop_reason": "length", "stopped_by": "seeker"}, "nobody where no turn was the reason"),
        ({"call_ids": [["c"] * 9, []]}, "a call a turn"),
        ({"responder": "ann"}, "conversation_id"),
    ],
)
def test_what_is_no_whole_conversation_is_named(change, said):
    rows = mine(**{name: cell for name, cell in change.items() if name != "turns"})
    with pytest.raises(DataError, match=said):
        load_conversations(rows.assign(turns=change.get("turns", rows["turns"])))


@pytest.mark.parametrize(("reason", "state"), ENDS.items())
def test_an_end_means_a_state_and_only_two_ends_are_valid(reason, state):
    loaded = load_conversations(mine(stop_reason=reason))
    assert set(loaded["state"]) == {state}
    assert (state == "valid") == (reason in ("length", "seeker_ended"))


def test_conversations_stay_themselves_through_a_file(tmp_path):
    loaded = load_conversations(mine(call_ids=[["c1", None], ["c1", None, "c3", "c4"]]))
    loaded.to_parquet(tmp_path / "c.parquet")
    again = check_table("conversations", pd.read_parquet(tmp_path / "c.parquet"))
    pd.testing.assert_frame_equal(again, loaded)
