"""The files that people have: a kind of file a test, with the ways in which each is spoiled."""

import gzip
import json
import re
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest
import zstandard

from heart_utils.ratings.ratings import fit_ratings
from heart_utils.sources.formats import unpack_log
from heart_utils.sources.load import describe_votes, load_scores, load_verdicts
from heart_utils.tables import DataError

BATTLES = [
    {
        "question_id": 81,
        "model_a": "x",
        "model_b": "y",
        "winner": "model_a",
        "judge": "ann",
        "turn": 1,
    },
    {
        "question_id": 82,
        "model_a": "y",
        "model_b": "x",
        "winner": "model_a",
        "judge": "ann",
        "turn": 1,
    },
    {"question_id": 82, "model_a": "x", "model_b": "y", "winner": "tie", "judge": "ben", "turn": 1},
]
ARENA = {
    "columns": {
        "question_id": "history_id",
        "model_a": "responder_a",
        "model_b": "responder_b",
        "winner": "verdict",
    }
    | {"judge": "rater", "*": None},
    "words": {"model_a": "a", "model_b": "b"},
    "always": {"rater_kind": "human"},
}
WON = [["x", "y", "a"], ["x", "y", "b"], ["x", "y", "tie"]]


def votes(table):
    return table[["responder_a", "responder_b", "verdict"]].to_numpy(dtype=object).tolist()


def proposed(error):
    """The options of the call that a message proposes, as a reader would paste them."""
    call = re.search(r"load_\w+\(\n    .*?\n(.*)\n\)", str(error), re.DOTALL)
    return eval(f"dict({call[1]})")


def paste(given, **first):
    """Load a file by the call that its own message proposes: two calls in all."""
    with pytest.raises(DataError) as caught:
        load_verdicts(given, **first)
    return load_verdicts(given, **proposed(caught.value)), str(caught.value)


def csv(tmp_path, text, name="votes.csv"):
    file = tmp_path / name
    file.write_text(text)
    return file


# Formats


def test_an_array_of_rows_is_read_in_every_format_and_packed_too(tmp_path):
    text = json.dumps(BATTLES).encode()
    lines = "\n".join(map(json.dumps, BATTLES)).encode()
    table = pd.DataFrame(BATTLES).to_csv(index=False).encode()
    files = {
        "a.json": text,
        "a.json.gz": gzip.compress(text, mtime=0),
        "a.jsonl.gz": gzip.compress(lines, mtime=0),
        "a.jsonl.zst": zstandard.compress(lines),
        "a.csv.zst": zstandard.compress(table),
        "lines.json": lines,
        "inside.json": json.dumps({"version": 1, "data": BATTLES}).encode(),
        "columns.json": pd.DataFrame(BATTLES).to_json().encode(),
    }
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
        assert votes(load_verdicts(tmp_path / name, **ARENA)) == WON, name
    assert votes(load_verdicts(pa.Table.from_pylist(BATTLES), **ARENA)) == WON


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.json", b'[{"a": 1}, 2]', "entry 1 of the array is a int, expected an object"),
        ("a.json", b'[{"a": 1}', "it is not whole JSON .line 1, column 10"),
        ("a.json", b'{"x": [{"a": 1}], "y": [{"b": 1}]}', "several arrays of objects .x, y."),
        ("a.json", b"7", "it holds a int, expected an array of objects"),
        ("a.json.gz", gzip.compress(b"[]", mtime=0)[:-9], "it cannot be unpacked"),
        ("a.json.zst", b"nothing packed", "it cannot be unpacked"),
        ("a.rar", b"", "nor a path that ends in .*.eval, or in one of these and .gz or .zst"),
    ],
)
def test_a_damaged_file_is_named(tmp_path, name, content, said):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=said):
        load_verdicts(tmp_path / name)


def test_a_file_without_a_header_is_recognised_and_pandas_can_name_its_columns(tmp_path):
    file = csv(tmp_path, "c1,x,y,ann,a\nc2,x,y,ann,b\nc3,y,x,ann,tie\n")
    with pytest.raises(
        DataError, match=r"seems to be no header: its first line .*names=\['column_1'"
    ):
        load_verdicts(file)
    names = ["history_id", "responder_a", "responder_b", "rater", "verdict"]
    rows = pd.read_csv(file, names=names)
    assert votes(load_verdicts(rows, always={"rater_kind": "human"})) == WON


# A row a vote


def test_a_battle_of_chatbot_arena_is_read_by_the_proposed_call(tmp_path):
    file = tmp_path / "battles.json"
    file.write_text(json.dumps(BATTLES))
    table, said = paste(file)
    assert votes(table) == WON
    assert table["history_id"].tolist() == ["81", "82", "82"]
    assert "Confirm that those who judged are of the kind 'human'" in said
    assert "Read so, 3 rows give 3 answers" in said


@pytest.mark.parametrize("head", ["participant", "annotator"])
def test_whether_people_judged_is_for_the_user_to_confirm(tmp_path, head):
    rows = "Dialog,model_a,model_b,winner,{head}\nd1,x,y,model_a,q1\nd2,x,y,model_b,q2\n"
    table, said = paste(csv(tmp_path, rows.format(head=head)))
    assert table["rater_kind"].tolist() == ["human", "human"]
    assert "are of the kind 'human'" in said


def test_a_tie_of_two_bad_replies_needs_a_word(tmp_path):
    battles = pd.DataFrame([*BATTLES, {**BATTLES[0], "winner": "tie (bothbad)", "judge": "cem"}])
    with pytest.raises(DataError, match=r"row 3 says 'tie \(bothbad\)' .1 in all."):
        load_verdicts(battles, **ARENA)
    said = paste(battles)[1]
    assert "that 'tie (bothbad)' is a tie, and not 'abstained'" in said


def test_turns_of_one_question_are_histories_of_one_dialogue():
    battles = pd.DataFrame([BATTLES[0], {**BATTLES[0], "turn": 2, "winner": "model_b"}])
    table, _ = paste(battles)
    assert table[["history_id", "dialogue_id"]].to_numpy().tolist() == [
        ["81-1", "81"],
        ["81-2", "81"],
    ]


def test_the_same_pair_with_its_sides_changed_is_the_second_order():
    row = {
        "history_id": "d1",
        "responder_a": "x",
        "responder_b": "y",
        "rater": "r1",
        "rater_kind": "human",
        "verdict": "a",
    }
    turned = {**row, "responder_a": "y", "responder_b": "x", "verdict": "b"}
    table = load_verdicts(pd.DataFrame([row, turned, {**turned, "rater": "r2"}]))
    # of r2 nobody knows that there was an order
    assert table["order"].fillna("").tolist() == ["ab", "ba", ""]
    assert table["verdict"].tolist() == ["a", "a", "a"]
    assert table["comparison_id"].tolist() == ["d1--x--y--ab", "d1--x--y--ba", "d1--x--y"]
    named = load_verdicts(pd.DataFrame([row, turned]).assign(pair_id="p"))
    assert named[["responder_a", "verdict", "order"]].to_numpy().tolist() == [
        ["x", "a", "ab"],
        ["x", "a", "ba"],
    ]


def test_rows_that_come_again_are_refused_with_the_column_that_numbers_them():
    again = pd.DataFrame([BATTLES[0], BATTLES[0]])
    with pytest.raises(DataError, match="2 rows repeat another row's .*repeats='number'"):
        load_verdicts(again, **ARENA)
    assert load_verdicts(again, **ARENA, repeats="number")["repeat"].tolist() == [0, 1]


def test_a_winner_may_be_named_but_not_one_who_did_not_play():
    rows = pd.DataFrame([{**battle, "winner": "y"} for battle in BATTLES])
    how = {**ARENA, "words": {}}
    assert votes(load_verdicts(rows, **how)) == [["x", "y", "b"]] * 3
    third = rows.assign(model_a=["x", "y", "z"])
    third.loc[2, "winner"] = "x"
    with pytest.raises(
        DataError,
        match=r"row 2 names 'x' .*responder_a .z. nor responder_b .y.",
    ):
        load_verdicts(third, **how)
    sides = rows.assign(model_a="a", model_b="b", winner="b")
    # the word is a side, which somebody's name is too
    assert load_verdicts(sides, **how)["verdict"].tolist() == ["b"] * 3


def test_names_that_differ_in_capitals_or_blanks_are_refused():
    rows = pd.DataFrame(BATTLES)
    rows.loc[2, "model_a"] = " X"
    with pytest.raises(
        DataError,
        match=r"row 0 has 'x' and row 2 has ' X', .*blanks",
    ):
        load_verdicts(rows, **ARENA)
    fixed = load_verdicts(rows, **{**ARENA, "words": {**ARENA["words"], "responder_a": {"x": "x"}}})
    assert votes(fixed) == WON


def test_dates_in_the_column_of_verdicts_are_no_verdicts():
    rows = pd.DataFrame([{**battle, "winner": "2026-01-01"} for battle in BATTLES])
    with pytest.raises(DataError, match=r"row 0 says a date|row 0 says '2026-01-01'"):
        load_verdicts(rows, **ARENA)


# One answer, several columns


KAGGLE = "id,model_a,model_b,winner_model_a,winner_model_b,winner_tie\n0,x,y,1,0,0\n1,y,x,1,0,0\n2,x,y,0,0,1\n"


def test_winners_with_a_column_each_are_one_answer(tmp_path):
    assert votes(paste(csv(tmp_path, KAGGLE))[0]) == WON
    with pytest.raises(DataError, match="row 1 .* winner_model_a and winner_tie .1 such"):
        paste(csv(tmp_path, KAGGLE.replace("1,y,x,1,0,0", "1,y,x,1,0,1")))
    with pytest.raises(DataError, match="row 1 has '2' in winner_model_a, expected 1 or 0"):
        paste(csv(tmp_path, KAGGLE.replace("1,y,x,1,0,0", "1,y,x,2,0,0")))
    with pytest.raises(DataError, match="verdict: row 1 is empty .1 in all.. Say why"):
        paste(csv(tmp_path, KAGGLE.replace("1,y,x,1,0,0", "1,y,x,0,0,0")))


POTATO = "user,instance_id,pick:::A,pick:::B,pick:::tie\nu0,d0,1,,\nu1,d0,,1,\nu0,d1,,,1\n"


def test_another_projects_potato_needs_a_table_of_what_was_shown(tmp_path):
    file = csv(tmp_path, POTATO)
    with pytest.raises(
        DataError, match="shown says of each of the 2 values of instance_id who wrote"
    ) as caught:
        load_verdicts(file)
    options = proposed(caught.value)
    shown = pd.DataFrame({"instance_id": ["d0", "d1"], "responder_a": "x", "responder_b": "y"})
    table = load_verdicts(file, **{**options, "shown": shown})
    assert sorted(votes(table)) == sorted(WON)
    shown.to_csv(tmp_path / "shown.csv", index=False)
    pd.testing.assert_frame_equal(
        load_verdicts(file, **{**options, "shown": str(tmp_path / "shown.csv")}), table
    )
    with pytest.raises(DataError, match="shown says nothing of instance_id d1 .1 answers."):
        load_verdicts(file, **{**options, "shown": shown.head(1)})
    with pytest.raises(DataError, match="shown has two rows about"):
        load_verdicts(file, **{**options, "shown": pd.concat([shown, shown])})


# A row a person


FORM = (
    "Timestamp,Email Address,Conversation 1 [Better?],Conversation 2 [Better?],Comments\n"
    "2026/01/01,p0@example.org,Reply 1,,\n2026/01/01,p1@example.org,No difference,Reply 2,ok\n"
)
SHOWN = [
    {"column": "1", "history_id": "c1", "responder_a": "x", "responder_b": "y"},
    {"column": "2", "history_id": "c2", "responder_a": "y", "responder_b": "x"},
]


def test_a_form_with_a_row_a_person_becomes_a_row_an_answer(tmp_path, monkeypatch):
    monkeypatch.setenv("HEART_KEYS", str(tmp_path / "keys"))
    file = csv(tmp_path, FORM)
    with pytest.raises(DataError, match="it looks like Google Forms") as caught:
        load_verdicts(file)
    assert "p0@example.org" not in str(caught.value)
    heads = {"1": "Conversation 1 [Better?]", "2": "Conversation 2 [Better?]"}
    shown = [row | {"column": heads[row["column"]]} for row in SHOWN]
    options = proposed(caught.value) | {"shown": shown}
    with pytest.warns(UserWarning, match="2 rows .* 3 answers kept: 1 blank cells.* not asked"):
        table = load_verdicts(file, **options)
    assert sorted(votes(table)) == [["x", "y", "a"], ["x", "y", "a"], ["x", "y", "tie"]]
    assert table["rater"].str.fullmatch("rater-[0-9a-f]{8}").all()


QUALTRICS = (
    "StartDate,EndDate,Status,Finished,ResponseId,Q1,Q2\n"
    "Start Date,End Date,Response Type,Finished,Response ID,Which is better?,Which is better?\n"
    + ",".join('"{""ImportId"": ""q""}"' for _ in range(7))
    + "\n2026-01-01,2026-01-01,IP Address,True,R_0,Reply A,Both equal\n"
    + "2026-01-01,2026-01-01,IP Address,True,R_1,Reply B,Reply B\n"
)


def test_qualtrics_three_rows_of_headers_are_no_raters(tmp_path):
    file = csv(tmp_path, QUALTRICS)
    with pytest.raises(DataError, match="it looks like Qualtrics") as caught:
        load_verdicts(file)
    shown = [{**row, "column": f"Q{row['column']}"} for row in SHOWN]
    with pytest.warns(UserWarning, match="2 rows of headers by Qualtrics"):
        table = load_verdicts(file, **{**proposed(caught.value), "shown": shown})
    assert table["rater"].tolist() == ["R_0", "R_1"] * 2
    assert sorted(votes(table)) == [
        ["x", "y", "a"],
        ["x", "y", "a"],
        ["x", "y", "b"],
        ["x", "y", "tie"],
    ]


@pytest.mark.parametrize(
    "change",
    [
        ("IP Address,True,R_1", "Survey Preview,True,R_1"),
        ("IP Address,True,R_1", "IP Address,False,R_1"),
    ],
)
def test_a_preview_or_an_unfinished_answer_is_refused_until_somebody_says_whether_it_counts(
    tmp_path, change
):
    file = csv(tmp_path, QUALTRICS.replace(*change))
    with pytest.raises(DataError, match="1 of 2 rows may not count: .*, first in row 3") as caught:
        load_verdicts(file, columns={"*": None})
    shown = [{**row, "column": f"Q{row['column']}"} for row in SHOWN]
    with pytest.warns(UserWarning, match="1 left out by"):
        table = load_verdicts(file, **{**proposed(caught.value), "shown": shown})
    assert set(table["rater"]) == {"R_0"}


def test_rejected_work_counts_only_on_request(tmp_path, monkeypatch):
    monkeypatch.setenv("HEART_KEYS", str(tmp_path / "keys"))
    head = "HITId,WorkerId,AssignmentStatus,Input.dialogue,Input.left,Input.right,Answer.choice,Approve,Reject\n"
    rows = "H0,A1X,Approved,d0,x,y,left\nH1,A2X,Rejected,d1,x,y,right\n"
    file = csv(tmp_path, head + rows)
    with pytest.warns(UserWarning, match="1 left out by AssignmentStatus 'Rejected'"):
        table, said = paste(file)
    assert votes(table) == [["x", "y", "a"]]
    assert "A1X" not in said
    both = {"AssignmentStatus": ["Approved", "Rejected"]}
    with pytest.raises(DataError) as caught:
        load_verdicts(file)
    with pytest.warns(UserWarning, match="who is who"):
        assert len(load_verdicts(file, **{**proposed(caught.value), "only": both})) == 2
    with pytest.raises(DataError, match="no row: AssignmentStatus has 'Approved', 'Rejected'"):
        load_verdicts(file, **{**proposed(caught.value), "only": {"AssignmentStatus": "Accepted"}})
    with pytest.raises(DataError, match="line 3 of votes.csv has fewer cells than the header"):
        load_verdicts(csv(tmp_path, head + rows.removesuffix(",right\n") + "\n"))


# Nested objects


def test_label_studio_annotations_become_rows_and_cancelled_ones_do_not_count(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("HEART_KEYS", str(tmp_path / "keys"))

    def annotation(side, cancelled=False):
        result = [
            {"type": "pairwise", "value": {"selected": side}},
            {"type": "rating", "value": {"rating": 3}},
        ]
        return {
            "completed_by": {"email": f"{side}@example.org"},
            "was_cancelled": cancelled,
            "result": result,
        }

    tasks = [
        {
            "id": 0,
            "data": {"model1": "x", "model2": "y"},
            "annotations": [annotation("left"), annotation("right", True)],
        },
        {"id": 1, "data": {"model1": "y", "model2": "x"}, "annotations": [annotation("left")]},
    ]
    (tmp_path / "export.json").write_text(json.dumps(tasks))
    with pytest.warns(UserWarning, match="left out by annotations.was_cancelled 'True'"):
        table, _ = paste(tmp_path / "export.json")
    assert votes(table) == [["x", "y", "a"], ["x", "y", "b"]]


def test_prodigy_names_the_winner_and_ignored_tasks_do_not_count(tmp_path):
    def task(text, accept, answer="accept"):
        options = [{"id": "x"}, {"id": "y"}]
        return {
            "text": text,
            "options": options,
            "accept": accept,
            "answer": answer,
            "_task_hash": 1,
            "_annotator_id": "r0",
        }

    rows = [task("c0", ["x"]), task("c1", ["y"], "ignore"), task("c2", ["y"])]
    file = tmp_path / "prodigy.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    with pytest.warns(UserWarning, match="1 left out by answer 'ignore'"):
        assert votes(paste(file)[0]) == [["x", "y", "a"], ["x", "y", "b"]]
    file.write_text("\n".join(map(json.dumps, [*rows, task("c3", ["x", "y"])])))
    with pytest.raises(DataError, match=r"verdict: row 3 says"):
        paste(file)


def test_completions_with_scores_are_a_row_a_reply_and_dimension():
    rows = [
        {
            "id": 1,
            "completions": [
                {"model": "x", "annotations": {"help": 5, "truth": 4}},
                {"model": "y", "annotations": {}},
            ],
        }
    ]
    table = load_scores(
        pd.DataFrame(rows),
        columns={"id": "history_id", "completions.model": "responder"}
        | {f"completions.annotations.{name}": "score" for name in ("help", "truth")},
        always={"rater": "gpt-4", "rater_kind": "model", "dimension": "{column}"},
    )
    assert table[["responder", "dimension", "score"]].to_numpy().tolist() == [
        ["x", "completions.annotations.help", 5.0],
        ["x", "completions.annotations.truth", 4.0],
    ]


# Numbers


def test_a_soft_preference_of_any_range_is_read_and_checked_in_the_files_own_numbers():
    rows = pd.DataFrame(
        {
            "instruction": ["i0", "i1", "i2"],
            "generator_1": ["zeta", "ref", "zeta"],
            "generator_2": ["alpha", "zeta", "alpha"],
        }
        | {"preference": [1.25, 2.0, None], "annotator": "alpaca_eval_gpt4"}
    )
    table, said = paste(rows)
    assert "preference is 1 where output_1 is better" in said
    assert table["p_a"].tolist()[:2] == [0.25, 0.0]  # alpha is a, and zeta was better by 0.75
    assert table["verdict"].tolist()[:2] == ["b", "b"]
    assert table["state"].tolist() == ["valid", "valid", "error"]
    with pytest.raises(DataError, match=r"p_a: .* from 1 to 2, .*row 1 has 2\.01"):
        paste(rows.assign(preference=[1.0, 2.01, 1.5]))
    plain = {
        "history_id": "c1",
        "responder_a": "zeta",
        "responder_b": "alpha",
        "rater": "j",
        "rater_kind": "model",
    }
    with pytest.raises(DataError, match=r"from 0 to 1, .*row 0 has 1\.99 .*scale"):
        load_verdicts(pd.DataFrame([{**plain, "verdict": "b", "p_a": 1.99}]))
    with pytest.raises(DataError, match=r"row 0 has 0.99 and says 'b' .1 such rows."):
        load_verdicts(pd.DataFrame([{**plain, "verdict": "b", "p_a": 0.99}]))


TALLIES = "player1,player2,win1,win2\nx,y,3,1\n"


def test_tallies_are_as_many_votes_and_give_the_strengths_of_the_counts(tmp_path):
    table, _ = paste(csv(tmp_path, TALLIES))
    strength = fit_ratings(table, weights="verdicts", n_resamples=0).strength
    assert float(round(strength["x"] - strength["y"], 3)) == 1.099  # log 3
    for wrong in ("-1", "1.5", "many", ""):
        with pytest.raises(
            DataError, match=r"row 0 has .* in win2, expected a whole number of 0 or more"
        ):
            load_verdicts(
                csv(tmp_path, TALLIES.replace(",1\n", f",{wrong}\n")),
                columns={"win1": "count:a", "win2": "count:b"},
            )


def test_a_list_of_winners_and_losers_has_no_orders(tmp_path):
    table, said = paste(csv(tmp_path, "winner,loser\nx,y\ny,x\nx,y\n"))
    assert votes(table) == [["x", "y", "a"], ["x", "y", "b"], ["x", "y", "a"]]
    assert table["order"].isna().all()
    assert "each row is a conversation of its own" in said


# Saying


def test_options_that_cannot_be_are_refused_with_an_example():
    rows = pd.DataFrame(BATTLES)
    for how, said in {
        ("repeats", "ignore"): "repeats is 'ignore', expected 'refuse' or 'number' or 'drop'",
        ("columns", ("win1",)): "columns is a tuple, expected a mapping",
    }.items():
        with pytest.raises(DataError, match=said):
            load_verdicts(rows, **{how[0]: how[1]})
    with pytest.raises(DataError, match="several columns are history_id.*always="):
        load_verdicts(rows, **{**ARENA, "columns": {**ARENA["columns"], "turn": "history_id"}})


def test_a_file_is_described_without_being_loaded(tmp_path, capsys):
    file = csv(tmp_path, KAGGLE)
    describe_votes(file)
    said = capsys.readouterr().out
    assert said.startswith("3 rows, 6 columns: id (numbers), model_a (single words)")
    assert "load_verdicts(" in said
    assert "it looks like Chatbot Arena on Kaggle" in said


# inspect_ai

LOGS = Path(__file__).with_name("inspect_ai")


def test_a_log_of_inspect_ai_with_pairs_is_read_by_the_proposed_call(tmp_path):
    table, said = paste(LOGS / "pairwise.eval")
    assert "it looks like inspect_ai" in said
    assert table["history_id"].value_counts().to_dict() == {
        f"chat-{number}": 2 for number in (1, 2, 3, 4)
    }
    assert table[
        ["rater", "rater_kind", "responder_a", "responder_b"]
    ].drop_duplicates().to_numpy().tolist() == [["preference", "model", "alpha", "beta"]]
    first = table[table["repeat"] == 1].set_index("history_id")
    written = {
        sample["id"]: sample
        for sample in unpack_log((LOGS / "pairwise.eval").read_bytes(), LOGS)["samples"][:4]
    }
    answers = {
        name: sample["scores"]["preference"]["value"].lower()
        for name, sample in written.items()
        if sample["scores"]
    }
    assert first["verdict"].dropna().to_dict() == answers
    assert first.loc["chat-4", "state"] == "error"
    log = tmp_path / "pairwise.json"
    log.write_text(json.dumps(unpack_log((LOGS / "pairwise.eval").read_bytes(), LOGS)))
    assert votes(paste(log)[0]) == votes(table)


def test_scores_of_inspect_ai_are_a_row_a_dimension_and_one_that_failed_is_no_zero():
    with pytest.raises(DataError, match="it looks like inspect_ai") as caught:
        load_scores(LOGS / "scored.eval")
    table = load_scores(LOGS / "scored.eval", **proposed(caught.value))
    found = table.pivot_table(index="history_id", columns="dimension", values="score")
    assert found.loc[["chat-1", "chat-2"]].to_dict() == {
        "warmth": {"chat-1": 4, "chat-2": 4},
        "clarity": {"chat-1": 3, "chat-2": 5},
    }
    assert table.loc[table["history_id"] == "chat-4", "state"].unique().tolist() == ["error"]
    assert table["reply_id"].iloc[0] == "chat-1--mockllm/model--1"


def test_correct_and_incorrect_of_inspect_ai_are_one_and_nought(tmp_path):
    log = {
        "version": 2,
        "status": "success",
        "eval": {"model": "m", "task": "t", "scorers": [{"name": "match"}]},
    }
    log["samples"] = [{"id": 1, "epoch": 1, "scores": {"match": {"value": mark}}} for mark in "CI"]
    log["samples"][1]["id"] = 2
    file = tmp_path / "log.json"
    file.write_text(json.dumps(log))
    with pytest.raises(DataError) as caught:
        load_scores(file)
    assert load_scores(file, **proposed(caught.value))["score"].tolist() == [1.0, 0.0]


def test_a_log_that_was_cut_short_is_named_and_one_that_has_not_ended_counts_what_it_lacks(
    tmp_path,
):
    content = (LOGS / "pairwise.eval").read_bytes()
    cut = tmp_path / "cut.eval"
    cut.write_bytes(content[:9000])
    with pytest.raises(DataError, match="cannot be read as a log of inspect_ai .*cut short"):
        load_verdicts(cut)
    log = unpack_log(content, LOGS)
    log |= {"status": "cancelled", "samples": log["samples"][:5]}
    file = tmp_path / "log.json"
    file.write_text(json.dumps(log))
    with pytest.warns(UserWarning, match="3 samples .* status is 'cancelled'"):
        paste(file)


# What would change who won


@pytest.mark.parametrize("head", ["worse", "Which reply is worse?", "loser", "rejected", "peor"])
@pytest.mark.parametrize("cells", [("A", "B"), ("x", "y")])
def test_a_column_that_names_who_lost_is_not_taken_for_the_winner(tmp_path, head, cells):
    rows = "question_id,model_a,model_b,judge,{}\n1,x,y,ann,{}\n2,x,y,ann,{}\n"
    with pytest.raises(DataError, match="Nothing here says what is verdict") as caught:
        load_verdicts(csv(tmp_path, rows.format(head, *cells)))
    assert f"  {head}: '{cells[0]}', '{cells[1]}'" in str(caught.value)
    assert "verdict" not in proposed(caught.value)["columns"].values()


def test_draws_in_a_list_of_winners_and_losers_are_ties(tmp_path):
    file = csv(tmp_path, "winner,loser,draw\nx,y,False\nx,y,True\n")
    rows, said = paste(file)
    assert votes(rows) == [["x", "y", "a"], ["x", "y", "tie"]]
    assert "'draw': 'verdict:tie'" in said
    rows, _ = paste(csv(tmp_path, "winning_model,losing_model,judge,prompt_id\ny,x,ann,1\n"))
    assert votes(rows) == [["x", "y", "b"]]


def test_one_of_three_is_no_pair_and_two_columns_of_one_name_are_not_chosen_from(tmp_path):
    file = csv(tmp_path, "question_id,model_a,model_b,model_c,judge,winner\n1,x,y,z,ann,model_a\n")
    with pytest.raises(DataError, match="model_c names no third, as its header seems to say"):
        load_verdicts(file)
    file = csv(
        tmp_path, "question_id,model_a,model_b,judge,winner,winner\n1,x,y,ann,model_a,model_b\n"
    )
    with pytest.raises(DataError, match="Nothing here says what is verdict") as caught:
        load_verdicts(file)
    assert "verdict" not in proposed(caught.value)["columns"].values()
    rows, _ = paste(csv(tmp_path, "id,model,model,judge,winner\n1,x,y,ann,x\n2,x,y,ann,y\n"))
    assert votes(rows) == WON[:2]


def test_places_are_sides_only_after_a_point_to_confirm(tmp_path):
    text = "question_id,{},judge,winner\n1,x,y,ann,left\n2,x,y,ann,right\n"
    rows, said = paste(csv(tmp_path, text.format("model_a,model_b")))
    assert votes(rows) == WON[:2]
    assert rows["order"].tolist() == ["ab", "ab"]
    assert "the reply called left was shown first in every row, and is that of model_a" in said
    rows, said = paste(csv(tmp_path, text.format("model_left,model_right")))
    assert rows["order"].tolist() == ["ab", "ab"]
    assert "and is that of model_left" in said


@pytest.mark.parametrize("other", ["c1 ", "C1"])
def test_histories_that_differ_in_capitals_or_blanks_are_refused(other):
    rows = pd.DataFrame(
        {
            "history_id": ["c1", other],
            "responder_a": "x",
            "responder_b": "y",
            "rater": "r",
            "rater_kind": "human",
            "verdict": ["a", "b"],
        }
    )
    with pytest.raises(DataError, match=f"history_id: row 0 has 'c1' and row 1 has '{other}'"):
        load_verdicts(rows)
    mended = load_verdicts(rows, words={"history_id": {other: "c1"}}, repeats="number")
    assert mended["history_id"].tolist() == ["c1", "c1"]


def test_rejected_work_is_found_below_any_header_of_a_status(tmp_path):
    file = csv(
        tmp_path,
        "task_id,task_status,model_1,model_2,preference\n"
        "t1,completed,x,y,Response 1\nt2,rejected,x,y,Response 2\n",
    )
    with pytest.raises(DataError, match="1 of 2 rows may not count: task_status is 'rejected'"):
        load_verdicts(file)
    rows, _ = paste(file)
    assert votes(rows) == [["x", "y", "a"]]


def test_two_games_a_row_are_the_two_orders_of_a_pair(tmp_path):
    rows = [
        {"question_id": 1, "model_1": "x", "model_2": "y", "g1_winner": "model_1"}
        | {"g2_winner": "model_2", "judge": ["gpt-4", "pair-v2"], "turn": 1}
    ]
    file = csv(tmp_path, json.dumps(rows), "pairs.json")
    table, _ = paste(file)
    assert table[["order", "verdict", "rater"]].to_numpy().tolist() == [
        ["ab", "a", "gpt-4"],
        ["ba", "b", "gpt-4"],
    ]


@pytest.mark.parametrize("orient", ["split", "index", "columns", "records"])
def test_json_is_read_however_pandas_writes_it(tmp_path, orient):
    file = tmp_path / "votes.json"
    pd.DataFrame(BATTLES).to_json(file, orient=orient)
    rows, _ = paste(file)
    assert votes(rows) == [["x", "y", "a"], ["x", "y", "b"], ["x", "y", "tie"]]


@pytest.mark.parametrize(
    "text",
    [
        "frage_id;modell_a;modell_b;bewerter;gewinner\n1;x;y;ann;modell_a\n2;x;y;ann;modell_b\n",
        "Dialog,links,rechts,Besser,Wer\n1,x,y,Links,ann\n2,x,y,Rechts,ann\n",
        "id,a.model,b.model,vote.winner,vote.voter\n1,x,y,a,ann\n2,x,y,b,ann\n",
        "white,black,result\nx,y,1-0\nx,y,0-1\n",
        "test_id,baseline,candidate,grader,winner\n1,x,y,g,baseline\n2,x,y,g,candidate\n",
        "prompt_id,model_a,model_b,judge,prob_a\n1,x,y,gpt-4o,0.9\n2,x,y,gpt-4o,0.1\n",
        "sep=;\nquestion_id;model_a;model_b;judge;winner\n1;x;y;ann;A++\n2;x;y;ann;B+\n",
    ],
)
def test_files_in_other_words_are_read_by_the_proposed_call(tmp_path, text):
    assert votes(paste(csv(tmp_path, text))[0]) == WON[:2]


def test_what_stands_above_a_header_and_text_without_its_mark_are_named(tmp_path):
    row = "question_id,model_a,model_b,judge,winner\n1,x,y,ann,model_a\n"
    with pytest.raises(DataError, match="a title or a comment stands above the header"):
        load_verdicts(csv(tmp_path, f"Export of today\n{row}"))
    with pytest.raises(DataError, match="4 of 5 cells of its first line are empty"):
        load_verdicts(csv(tmp_path, f"Export,,,,\n{row}"))
    file = tmp_path / "bare.csv"
    file.write_bytes(row.encode("utf-16-le"))
    with pytest.raises(DataError, match="may be UTF-16 without its mark"):
        load_verdicts(file)


def test_categories_are_their_cells(tmp_path):
    rows = pd.DataFrame(BATTLES).astype({"model_a": "category", "winner": "category"})
    assert len(paste(rows)[0]) == 3
    rows.to_parquet(tmp_path / "votes.parquet")
    assert len(paste(tmp_path / "votes.parquet")[0]) == 3


def test_a_rater_is_found_by_a_header(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = "question_id,model_a,model_b,winner,{}\n1,x,y,a,Anna Müller\n2,x,y,b,Bernd Maier\n"
    with pytest.raises(DataError) as caught:
        load_verdicts(csv(tmp_path, text.format("Person")))
    assert proposed(caught.value)["columns"]["Person"] == "rater"


@pytest.mark.parametrize(
    ("head", "cells", "said"),
    [
        ("confidence", ["3", "1", "5"], "columns={'confidence': 'margin'} keeps it)"),
        ("How sure", ["0", "50", "100"], "columns={'How sure': 'margin'} keeps it)"),
        ("Stärke", ["klar", "knapp", "klar"], "columns={'Stärke': 'margin'} keeps it)"),
        ("comment", ["warmer", "", "shorter"], "columns={'comment': 'rationale'} keeps it)"),
        ("WorkTimeInSeconds", ["31", "12", "40"], "columns={'WorkTimeInSeconds': 'seconds'}"),
    ],
)
def test_what_a_proposal_leaves_out_is_named_where_verdicts_could_keep_it(
    tmp_path, head, cells, said
):
    table = pd.DataFrame(BATTLES).drop(columns="turn").assign(**{head: cells})
    file = tmp_path / "votes.csv"
    table.to_csv(file, index=False)
    rows, message = paste(file)
    assert said in message
    assert votes(rows) == WON


def test_a_confidence_is_kept_as_the_message_says(tmp_path):
    table = pd.DataFrame(BATTLES).drop(columns="turn").assign(confidence=[3, 1, 5])
    rows = load_verdicts(table, **ARENA | {"columns": {**ARENA["columns"], "confidence": "margin"}})
    assert rows["margin"].tolist() == [3, 1, 5]
    table["How sure"] = ["very", "little", "very"]
    how = {"columns": {**ARENA["columns"], "How sure": "margin"}}
    how["words"] = {**ARENA["words"], "margin": {"very": 5, "little": 1}}
    assert load_verdicts(table, **ARENA | how)["margin"].tolist() == [5, 1, 5]


def test_a_long_otree_file_names_who_wrote_in_each_row_and_needs_no_shown(tmp_path):
    file = csv(
        tmp_path,
        "participant.code,participant._is_bot,subsession.round_number,player.model_left,"
        "player.model_right,player.choice\n"
        "p1,0,1,x,y,left\np1,0,2,y,x,right\np3,1,1,x,y,left\n",
    )
    rows, message = paste(file)
    assert "looks like oTree" in message
    assert "shown" not in proposed(message)
    assert votes(rows) == [["x", "y", "a"], ["x", "y", "a"]]


def test_a_form_of_limesurvey_has_a_row_a_person_and_dates_are_nobody(tmp_path):
    file = csv(
        tmp_path,
        '"id. Antwort-ID";"submitdate. Datum";"startlanguage. Sprache";"Q1. Welche?";"Q2. Welche?"\n'
        '"1";"2026-01-01";"de";"Antwort A";"gleich gut"\n"2";"2026-01-02";"de";"Antwort B";""\n',
    )
    with pytest.raises(DataError, match="looks like LimeSurvey") as caught:
        load_verdicts(file)
    options = proposed(caught.value)
    assert options["columns"]["id. Antwort-ID"] == "rater"
    assert "submitdate" in str(caught.value)
    options["shown"] = [
        {"column": pair, "history_id": pair[:2], "responder_a": "x", "responder_b": "y"}
        for pair, meaning in options["columns"].items()
        if meaning == "verdict"
    ]
    with pytest.warns(UserWarning, match="1 blank cells"):
        rows = load_verdicts(file, **options)
    assert sorted(votes(rows)) == [["x", "y", "a"], ["x", "y", "b"], ["x", "y", "tie"]]


def test_answers_nested_below_a_question_are_asked_about_and_become_rows(tmp_path):
    file = tmp_path / "nested.json"
    one = {"q": "d1", "pair": ["x", "y"], "votes": [{"by": "u1", "pick": "x"}]}
    other = {"q": "d2", "pair": ["y", "x"], "votes": [{"by": "u1", "pick": "x"}]}
    one["votes"].append({"by": "u2", "pick": "y"})
    file.write_text(json.dumps({"results": [one, other]}))
    with pytest.raises(DataError, match="Nothing here says what is responder_a, responder_b"):
        load_verdicts(file)
    columns = {"q": "history_id", "pair.0": "responder_a", "pair.1": "responder_b"}
    columns |= {"votes.by": "rater", "votes.pick": "verdict"}
    rows = load_verdicts(file, columns=columns, always={"rater_kind": "human"})
    assert votes(rows) == [["x", "y", "a"], ["x", "y", "b"], ["x", "y", "a"]]
    assert rows["history_id"].tolist() == ["d1", "d1", "d2"]


def test_codes_of_jspsych_are_never_guessed(tmp_path):
    file = tmp_path / "jspsych.json"
    page = {"item": "d1", "subject": "s1", "left_model": "x", "right_model": "y", "response": 0}
    file.write_text(json.dumps([page, page | {"subject": "s2", "response": 1}]))
    with pytest.raises(DataError, match="you add to words what '0' means") as caught:
        load_verdicts(file)
    options = proposed(caught.value)
    rows = load_verdicts(file, **options, words={"0": "a", "1": "b"})
    assert votes(rows) == [["x", "y", "a"], ["x", "y", "b"]]
    assert rows["history_id"].unique().tolist() == ["d1"]


def test_ranks_of_single_replies_are_sent_to_scores(tmp_path):
    file = csv(tmp_path, "conv,annotator,model,rank\nc1,u1,x,1\nc1,u1,y,2\n")
    with pytest.raises(DataError, match="or ranks it, which is a score with a minus.*load_scores"):
        load_verdicts(file)
