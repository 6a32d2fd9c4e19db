"""Which reply was shown first: never lost on the way in, never made up, and confirmed."""

import json
import re

import numpy as np
import pandas as pd
import pytest

from heart_utils.judges.position import position_bias
from heart_utils.sources.load import load_scores, load_verdicts
from heart_utils.sources.options import add_reading, reading_of
from heart_utils.tables import DataError

COLUMNS = {"q": "history_id", "model_a": "responder_a", "model_b": "responder_b"}


def proposed(error):
    """The options of the call that a message proposes, as a reader would paste them."""
    call = re.search(r"load_\w+\(\n    .*?\n(.*)\n\)", str(error), re.DOTALL)
    return eval(f"dict({call[1]})")


def refused(given, load=load_verdicts, **reading):
    with pytest.raises(DataError) as caught:
        load(given, **reading)
    return proposed(caught.value), str(caught.value)


def asked_twice(head, codes, n=20, left="model_a", right="model_b"):
    """Both orders of each pair, by a judge that always takes the reply shown first."""
    rows = [
        {"q": f"q{number}", "model_a": "mine", "model_b": "gold", head: code, "judge": "gpt-j"}
        | {"winner": winner}
        for number in range(n)
        for code, winner in zip(codes, (left, right), strict=True)
    ]
    return pd.DataFrame(rows)


def first_share(table):
    """The share of verdicts that went to the reply shown first, all of them with an order."""
    bias = position_bias(table, rng=np.random.default_rng(1), n_resamples=20)
    row = bias.set_index("measure").loc["first_share"]
    assert row["n"] == len(table)
    return row["value"]


@pytest.mark.parametrize(
    ("head", "codes"),
    [
        ("swapped", [0, 1]),
        ("swapped", ["0", "1"]),
        ("flipped", [False, True]),
        ("order_swapped", ["no", "yes"]),
        ("is_reversed", ["false", "true"]),
        ("shown_first", ["model_a", "model_b"]),
        ("shown_first", ["mine", "gold"]),
        ("presented_first", ["A", "B"]),
        ("first", [1, 2]),
        ("position", [1, 2]),
        ("left", ["mine", "gold"]),
        ("meta.swapped", [0, 1]),
        ("order", ["AB", "BA"]),
    ],
)
def test_a_column_of_orders_is_proposed_and_read_and_a_judge_of_places_is_found(head, codes):
    rows = asked_twice(head, codes)
    how, said = refused(rows)
    table = load_verdicts(rows, **how)
    assert table["order"].value_counts().to_dict() == {"ab": 20, "ba": 20}
    assert table["repeat"].eq(0).all()
    assert first_share(table) == 1.0
    if head != "order":
        assert f"{head} says which reply was shown first" in said


@pytest.mark.parametrize(("head", "codes"), [("shown_first", [0, 1]), ("position", [0, 1])])
def test_a_code_that_may_mean_either_is_asked_about(head, codes):
    rows = asked_twice(head, codes)
    how, said = refused(rows)
    assert how["columns"][head] == "order"
    assert "order" not in how["words"]
    assert "verdicts.order: row 0 says '0' (40 such rows), expected 'ab'" in said
    how["words"]["order"] = {0: "ab", 1: "ba"}
    assert load_verdicts(rows, **how)["order"].notna().all()


@pytest.mark.parametrize("head", ["swapped", "shown_first", "position"])
def test_an_order_is_not_dropped_with_the_other_columns(head):
    rows = asked_twice(head, [1, 2]).drop_duplicates("q")
    rows[head] = [1, 2] * 10
    how = {"columns": {**COLUMNS, "winner": "verdict", "judge": "rater", "*": None}}
    how |= {"words": {"model_a": "a", "model_b": "b"}, "always": {"rater_kind": "model"}}
    with pytest.raises(DataError, match=f"{head} may say which reply was shown first"):
        load_verdicts(rows, **how)
    left_out = {**how, "columns": {**how["columns"], head: None}}
    assert load_verdicts(rows, **left_out)["order"].isna().all()


def test_half_of_the_orders_missing_are_unknown_and_none_is_made_up():
    rows = asked_twice("swapped", [0, 1])
    rows["swapped"] = [0, 1, None, None] * 10
    how, _ = refused(rows)
    how["repeats"] = "number"
    orders = load_verdicts(rows, **how)["order"]
    assert orders.value_counts().to_dict() == {"ab": 10, "ba": 10}
    assert orders.isna().sum() == 20
    # where a file says orders, the sides that change are no second order by themselves
    sides = pd.DataFrame(
        {
            "history_id": "h",
            "responder_a": ["x", "y"],
            "responder_b": ["y", "x"],
            "rater": "r",
            "rater_kind": "human",
            "verdict": ["a", "b"],
            "order": ["ab", None],
        }
    )
    assert load_verdicts(sides)["order"].isna().tolist() == [False, True]


@pytest.mark.parametrize(
    ("sides", "words"),
    [
        (("model_left", "model_right"), ("left", "right")),
        (("first", "second"), ("first", "second")),
        (("Input.left", "Input.right"), ("left", "right")),
        (("model_a", "model_b"), ("left", "right")),
    ],
)
def test_sides_that_are_places_are_an_order(sides, words):
    rows = pd.DataFrame({"item": ["1", "2"], "judge": "r"})
    rows[sides[0]], rows[sides[1]], rows["choice"] = ["x", "y"], ["y", "x"], words
    how, said = refused(rows)
    assert how["always"]["order"] == "ab"
    assert "was shown first in every row" in said
    table = load_verdicts(rows, **how)
    assert table[["order", "verdict"]].to_numpy().tolist() == [["ab", "a"], ["ba", "a"]]


def test_rows_that_come_again_are_asked_about_and_never_numbered_by_a_proposal():
    rows = asked_twice("variant", ["u", "v"])
    how, said = refused(rows)
    assert "repeats" not in how
    assert "Read so, it still says: verdicts: 40 rows repeat another row's" in said
    assert "a column that says which reply was shown first is the order" in said
    how["columns"]["variant"] = "order"
    how["words"]["order"] = {"u": "ab", "v": "ba"}
    assert load_verdicts(rows, **how)["order"].value_counts().to_dict() == {"ab": 20, "ba": 20}


def test_a_command_line_says_what_the_words_of_an_order_mean():
    import argparse

    parser = argparse.ArgumentParser()
    add_reading(parser)
    given = ["--columns", "swapped=order", "--words", "order:0=ab", "order:1=ba", "model_a=a"]
    options = reading_of(parser.parse_args(given))
    assert options["words"] == {"order": {"0": "ab", "1": "ba"}, "model_a": "a"}


def test_copies_are_left_out_on_request_and_counted():
    rows = asked_twice("swapped", [0, 1], n=3)
    doubled = pd.concat([rows, rows], ignore_index=True)
    how, said = refused(doubled)
    assert "a copy goes out (repeats='drop')" in said
    with pytest.warns(UserWarning, match="6 copies of another row"):
        assert len(load_verdicts(doubled, **how, repeats="drop")) == 6


# Arena-Hard


def arena_hard(folder, games=2):
    rows = [
        {"question_id": f"q{number}", "model": "mine", "judge": "j"}
        | {"games": [{"score": "A>B"}] * games}
        for number in range(8)
    ]
    file = folder / "arena.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    return file


def test_a_judge_that_takes_the_first_in_both_games_of_arena_hard_has_a_share_of_one(tmp_path):
    file = arena_hard(tmp_path)
    how, said = refused(file)
    assert "order is 'ab' again" in said
    how["always"]["responder_a"] = "base"
    first = load_verdicts(file, **how)
    names = {"question_id": "history_id", "judge": "rater"}
    second = load_verdicts(
        file,
        columns={**names, "model": "responder_a", "games.1.score": "verdict", "*": None},
        words=how["words"],
        always={"responder_b": "base", "rater_kind": "model", "order": "ab"},
    )
    both = pd.concat([first, second], ignore_index=True)
    assert both.groupby("order")["verdict"].unique().map(list).to_dict() == {
        "ab": ["a"],
        "ba": ["b"],
    }
    assert first_share(both) == 1.0


def test_an_error_in_the_second_game_proposes_no_second_column_of_verdicts(tmp_path):
    how, _ = refused(
        arena_hard(tmp_path),
        columns={"model": "responder_a", "games.1.score": "verdict"},
        always={"responder_b": "base"},
    )
    assert list(how["columns"].values()).count("verdict") == 1
    assert how["always"] == {"responder_b": "base", "rater_kind": "model", "order": "ab"}
    assert how["columns"]["model"] == "responder_a"


# Tools by name, and scores


def test_a_tool_that_is_named_needs_no_more_words(tmp_path):
    file = arena_hard(tmp_path, games=1)
    with pytest.raises(DataError, match=r"tool is 'arenahard2'; known are .*Arena-Hard"):
        load_verdicts(file, tool="arenahard2")
    table = load_verdicts(
        file, tool="arena-hard", words={"A>B": "a"}, always={"responder_a": "base"}
    )
    assert table["verdict"].tolist() == ["a"] * 8


def test_scores_are_proposed_as_scores_and_the_call_runs(tmp_path):
    file = tmp_path / "scores.csv"
    file.write_text("item,coder,code\ni0,c1,0\ni1,c1,1\ni0,c2,1\n")
    with pytest.raises(DataError) as caught:
        load_verdicts(file)
    assert "load_scores(" in str(caught.value)
    assert "load_verdicts(" not in str(caught.value).partition("What may be meant")[2]
    table = load_scores(file, **proposed(caught.value))
    assert table["history_id"].tolist() == ["i0", "i1", "i0"]
    assert refused(file, load_scores)[0] == proposed(caught.value)


def test_a_reply_that_was_scored_again_is_asked_about(tmp_path):
    file = tmp_path / "scores.csv"
    file.write_text("question_id,model,score,tstamp\nq,m,0,1\nq,m,1,2\n")
    how, said = refused(file, load_scores)
    assert "keep one score, or the mean; replies that were written anew need a reply_id" in said
    how["always"]["reply_id"] = "{question_id}-{model}-{tstamp}"
    assert load_scores(file, **how)["reply_id"].tolist() == ["q-m-1", "q-m-2"]


def test_a_score_in_each_column_is_asked_about_with_examples():
    rows = pd.DataFrame(
        {"prompt": ["p", "q"], "model": ["x", "y"], "warmth": [1, 2], "wit": [3, 4]}
    )
    how, said = refused(rows, load_scores)
    assert "Nothing here says what is score" in said
    assert "  warmth: '1', '2'\n  wit: '3', '4'" in said
    assert "always={'dimension': '{column}'}" in said
    how["columns"] |= {"warmth": "score", "wit": "score"}
    how["always"]["dimension"] = "{column}"
    assert load_scores(rows, **how)["dimension"].tolist() == ["warmth"] * 2 + ["wit"] * 2


@pytest.mark.parametrize(
    ("text", "raters"),
    [
        ("Antwort;Modell;Ärztin 1;Arzt 2\na0;m;1;5,5\na1;m;8;8\n", ["Ärztin 1", "Arzt 2"]),
        ("prompt,model,rater one,rater two\np1,x,1,2\np2,x,3,4\n", ["rater one", "rater two"]),
    ],
)
def test_a_column_for_each_rater_is_asked_about(tmp_path, text, raters):
    file = tmp_path / "scores.csv"
    file.write_text(text)
    how, said = refused(file, load_scores)
    assert "if for each rater, 'rater'" in said
    how["always"] |= {"rater": "{column}", "rater_kind": "human", "dimension": "overall"}
    how["columns"] |= dict.fromkeys(raters, "score")
    assert len(load_scores(file, **how)) == 4


@pytest.mark.parametrize("votes", [[1, 2], ["model_1", "model_2"]])
def test_two_columns_of_winners_are_orders_and_of_numbers_tallies(votes):
    rows = pd.DataFrame({"question_id": ["q"], "model_1": ["x"], "model_2": ["y"]})
    rows["win_1"], rows["win_2"] = [votes[0]], [votes[1]]
    how, _ = refused(rows)
    table = load_verdicts(rows, **how)
    assert len(table) == (3 if votes == [1, 2] else 2)
    assert table["order"].isna().all() if votes == [1, 2] else set(table["order"]) == {"ab", "ba"}


def test_votes_with_a_column_for_each_rater_are_asked_about():
    rows = pd.DataFrame({"item": ["1"], "model_a": ["x"], "model_b": ["y"]})
    rows["annotator1"], rows["annotator2"] = ["model_a"], ["tie"]
    how, said = refused(rows)
    assert "  annotator1: 'model_a'\n  annotator2: 'tie'" in said
    how["always"] = {"rater": "{column}", "rater_kind": "human"}
    raters = ["annotator1", "annotator2"]
    how["columns"] |= dict.fromkeys(raters, "verdict")
    table = load_verdicts(rows, **how, words={"model_a": "a"})
    assert table["rater"].tolist() == raters


def test_no_message_shows_a_cell_that_may_be_a_person(tmp_path):
    rows = pd.DataFrame({"who": ["ann@example.org"], "PROLIFIC_PID": ["x1"], "said": ["a word"]})
    with pytest.raises(DataError, match="who: e-mail addresses") as caught:
        load_verdicts(rows)
    assert "x1" not in str(caught.value)
