import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heart_utils import scores_to_verdicts
from heart_utils.tables import DataError, check_table


def scores(rows, **columns) -> pd.DataFrame:
    """Make scores from (history, responder, rater, dimension, score or None)."""
    table = pd.DataFrame(rows, columns=["history_id", "responder", "rater", "dimension", "score"])
    table = table.assign(
        reply_id=table["history_id"] + "--" + table["responder"],
        dialogue_id=table["history_id"].str[:2],
        rater_kind="human",
        item=None,
        state=np.where(table["score"].isna(), "refused", "valid"),
        protocol="likert",
        group=None,
        flags=[[] for _ in range(len(table))],
        call_id=None,
        simulated=True,
    )
    return check_table("scores", table.assign(**columns))


def test_the_higher_score_wins_and_equal_ones_tie():
    found = scores_to_verdicts(
        scores(
            [
                ("h1", "x", "r", "warmth", 4),
                ("h1", "z", "r", "warmth", 4),
                ("h1", "y", "r", "warmth", 2),
            ]
        )
    )
    assert found[["responder_a", "responder_b", "verdict"]].to_numpy().tolist() == [
        ["x", "y", "a"],
        ["x", "z", "tie"],
        ["y", "z", "b"],
    ]
    assert found["protocol"].unique().tolist() == ["from_scores"]
    assert found[["order", "margin", "p_a", "answer_format"]].isna().all(axis=None)


def test_a_missing_score_gives_its_pairs_the_state_and_no_verdict():
    table = scores(
        [
            ("h1", "x", "r", "warmth", 4),
            ("h1", "y", "r", "warmth", None),
            ("h1", "z", "r", "warmth", None),
        ],
        state=["valid", "unparsed", "error"],
    )
    found = scores_to_verdicts(table)
    assert found["state"].tolist() == ["unparsed", "error", "unparsed"]
    assert found["verdict"].isna().all()


def test_what_comes_out_is_a_table_of_verdicts_to_the_last_type(rng):
    rows = [
        (f"h{h}", r, a, d, float(rng.integers(1, 6)))
        for h in range(4)
        for r in "xyz"
        for a in "rs"
        for d in ("tact", "warmth")
    ]
    found = scores_to_verdicts(scores(rows, item="i1", group="block_1"))
    pd.testing.assert_frame_equal(found, check_table("verdicts", found))
    assert len(found) == 4 * 3 * 2 * 2


def test_no_rows_give_no_rows():
    found = scores_to_verdicts(scores([("h1", "x", "r", "warmth", 4)]))
    assert len(found) == 0
    pd.testing.assert_frame_equal(found, check_table("verdicts", found))
    assert len(scores_to_verdicts(scores([("h1", "x", "r", "warmth", 4)]).iloc[:0])) == 0


def test_flags_of_either_score_are_flags_of_the_pair():
    table = scores(
        [("h1", "x", "r", "d", 4), ("h1", "y", "r", "d", 2), ("h1", "z", "r", "d", 2)],
        flags=[["b"], ["a", "b"], []],
    )
    assert scores_to_verdicts(table)["flags"].tolist() == [["a", "b"], ["b"], ["a", "b"]]


def test_two_replies_of_one_responder_are_not_compared():
    table = scores(
        [("h1", "x", "r", "d", 4), ("h1", "x", "r", "d", 2), ("h1", "y", "r", "d", 2)],
        reply_id=["h1--x1", "h1--x2", "h1--y"],
    )
    assert scores_to_verdicts(table)["pair_id"].tolist() == ["h1--x1--h1--y", "h1--x2--h1--y"]


def test_a_reply_scored_twice_in_the_same_way_is_an_error():
    table = scores([("h1", "x", "r", "d", 4), ("h1", "x", "r", "d", 2)], call_id=["one", "two"])
    with pytest.raises(DataError, match="1 rows score a reply again in the same way.*h1--x"):
        scores_to_verdicts(table)


def test_a_reply_that_answers_two_histories_is_an_error():
    table = scores(
        [("h1", "x", "r", "d", 4), ("h2", "x", "r", "d", 2)],
        reply_id=["same", "same"],
        item=["i1", "i2"],
    )
    with pytest.raises(DataError, match="'same' answers more than one history_id"):
        scores_to_verdicts(table)


def test_a_missing_column_is_named():
    with pytest.raises(DataError, match="no column rater_kind"):
        scores_to_verdicts(scores([("h1", "x", "r", "d", 4)]).drop(columns="rater_kind"))


def by_hand(table: pd.DataFrame) -> list[tuple]:
    """The same pairs by loops, as a second implementation."""
    found = []
    for (history, rater, dimension), rows in table.groupby(["history_id", "rater", "dimension"]):
        replies = rows.sort_values("reply_id").to_dict("records")
        for place, one in enumerate(replies):
            for other in replies[place + 1 :]:
                if one["state"] != "valid" or other["state"] != "valid":
                    verdict = None
                else:
                    verdict = (
                        "a"
                        if one["score"] > other["score"]
                        else "b"
                        if one["score"] < other["score"]
                        else "tie"
                    )
                found.append(
                    (history, rater, dimension, one["responder"], other["responder"], verdict)
                )
    return sorted(found, key=str)


CELLS = st.dictionaries(
    st.tuples(
        st.sampled_from(["h1", "h2"]),
        st.sampled_from("wxyz"),
        st.sampled_from("rs"),
        st.sampled_from(["tact", "warmth"]),
    ),
    st.one_of(st.none(), st.integers(1, 5)),
    min_size=1,
    max_size=25,
)


@settings(max_examples=40)
@given(CELLS, st.randoms())
def test_loops_find_the_same_pairs_whatever_is_missing_and_in_whatever_order(cells, random):
    rows = [(*key, score) for key, score in cells.items()]
    random.shuffle(rows)
    table = scores(rows)
    columns = ["history_id", "rater", "dimension", "responder_a", "responder_b", "verdict"]
    found = scores_to_verdicts(table)[columns].astype(object)
    fast = sorted(
        (tuple(row) for row in found.where(found.notna(), None).itertuples(index=False)), key=str
    )
    assert fast == by_hand(table)


def test_a_pair_with_one_simulated_score_is_simulated():
    table = scores(
        [
            ("h1", "x", "r", "warmth", 4),
            ("h1", "y", "r", "warmth", 2),
            ("h1", "z", "r", "warmth", 2),
        ]
    )
    table["simulated"] = [False, False, True]
    assert scores_to_verdicts(table)["simulated"].tolist() == [False, True, True]


def test_a_valid_row_without_a_score_is_refused():
    table = scores([("h1", "x", "r", "warmth", 4), ("h1", "y", "r", "warmth", 2)])
    table["score"] = [4.0, np.nan]
    with pytest.raises(DataError, match="1 rows are valid and have no score, such as row 1"):
        scores_to_verdicts(table)
