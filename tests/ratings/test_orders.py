"""Two orders of a pair become one row, and nothing is lost or invented on the way."""

import numpy as np
import pandas as pd
import pytest

from heart_utils.ratings.ratings import fit_ratings
from heart_utils.ratings.verdicts import RatingsError, combine_orders
from heart_utils.simulate.study import Panel, simulate_study
from heart_utils.tables import check_table


def both(ab, ba, states=("valid", "valid"), **columns):
    """One pair shown as ab and as ba to one rater."""
    rows = pd.DataFrame(
        {
            "comparison_id": ["p:ab", "p:ba"],
            "pair_id": "p",
            "rater": "judge",
            "dimension": "overall",
            "repeat": 0,
        }
    )
    return rows.assign(order=["ab", "ba"], verdict=[ab, ba], state=list(states)).assign(**columns)


@pytest.mark.parametrize(
    ("ab", "ba", "state", "verdict", "p_a"),
    [
        ("a", "a", "valid", "a", np.nan),
        ("b", "b", "valid", "b", np.nan),
        ("tie", "tie", "valid", "tie", np.nan),
        ("a", "b", "inconsistent", np.nan, np.nan),
        ("b", "a", "inconsistent", np.nan, np.nan),
        ("a", "tie", "valid", "a", 0.75),
        ("tie", "b", "valid", "b", 0.25),
    ],
)
def test_two_answers_become_one(ab, ba, state, verdict, p_a):
    row = combine_orders(both(ab, ba)).iloc[0]
    assert row["state"] == state
    assert (
        row["verdict"] is verdict
        or row["verdict"] == verdict
        or (pd.isna(row["verdict"]) and pd.isna(verdict))
    )
    assert row["p_a"] == pytest.approx(p_a, nan_ok=True)
    assert pd.isna(row["order"])


def test_probabilities_of_the_two_orders_are_averaged():
    joined = combine_orders(both("a", "b", p_a=[0.9, 0.2]))
    assert joined["p_a"].tolist() == pytest.approx([0.55])
    # counted as such, and worth 0.55 of a win in a fit
    assert joined["state"].tolist() == ["inconsistent"]


def test_a_failed_order_leaves_the_other_and_a_flag():
    joined = combine_orders(
        both(None, "b", ("unparsed", "valid"), flags=[["greeting"], []], margin=[None, 4])
    )
    row = joined.iloc[0]
    assert (row["state"], row["verdict"], row["order"], row["comparison_id"]) == (
        "valid",
        "b",
        "ba",
        "p:ba",
    )
    assert row["flags"] == ["greeting", "one_order"]
    assert row["margin"] == 4


def test_two_failures_keep_the_worse():
    assert combine_orders(both(None, None, ("refused", "error"))).iloc[0]["state"] == "error"
    assert combine_orders(both(None, None, ("unparsed", "abstained")))["verdict"].isna().all()


def test_margins_are_those_of_the_answers_that_name_the_winner():
    assert combine_orders(both("a", "a", margin=[2, 5]))["margin"].tolist() == [3.5]
    assert combine_orders(both("a", "tie", margin=[2, np.nan]))["margin"].tolist() == [2]
    assert combine_orders(both("a", "b", margin=[2, 5]))["margin"].isna().all()


def test_repeats_raters_and_single_orders_stay_apart():
    rows = pd.concat(
        [both("a", "a"), both("a", "b", repeat=1), both("b", "b", rater="other").iloc[:1]]
    )
    joined = combine_orders(rows)
    assert joined["state"].tolist() == ["valid", "inconsistent", "valid"]
    assert joined["order"].isna().tolist() == [True, True, False]


def test_the_same_order_twice_is_refused():
    rows = pd.concat([both("a", "a"), both("b", "b").iloc[:1]])
    with pytest.raises(
        RatingsError, match="same order twice: pair_id 'p', rater 'judge'.*Number repeated answers"
    ):
        combine_orders(rows)
    with pytest.raises(RatingsError, match="row 0 has 'both bad'"):
        combine_orders(both("both bad", "a"))


@pytest.fixture(scope="module")
def study():
    panels = (
        Panel("human", 9, 2, failures=0.1, ties=0.5),
        Panel("model", 2, 2, position_bias=1.0, answer_format="logprob"),
    )
    return simulate_study(
        rng=np.random.default_rng(8),
        n_responders=4,
        n_dialogues=40,
        pairs="all",
        orders="both",
        panels=panels,
    )


def test_a_joined_table_is_a_verdicts_table_and_joining_again_changes_nothing(study):
    joined = combine_orders(study.verdicts)
    assert len(joined) == len(study.verdicts) / 2
    pd.testing.assert_frame_equal(check_table("verdicts", joined), joined)
    pd.testing.assert_frame_equal(combine_orders(joined), joined)


def test_the_order_of_rows_does_not_matter(study):
    here = combine_orders(study.verdicts)
    there = combine_orders(study.verdicts.sample(frac=1, random_state=1))
    keys = ["pair_id", "rater", "dimension"]
    pd.testing.assert_frame_equal(
        here.sort_values(keys, ignore_index=True), there.sort_values(keys, ignore_index=True)
    )


def test_ratings_of_joined_and_unjoined_answers_agree_where_none_failed(study):
    rows = study.verdicts[study.verdicts["rater_kind"] == "model"]
    here, there = (
        fit_ratings(table, n_resamples=0).strength for table in (rows, combine_orders(rows))
    )
    assert here.to_dict() == pytest.approx(there.to_dict(), abs=1e-8)


def test_a_reason_given_in_one_order_only_is_not_that_of_both():
    said = pd.array(["It asks how she is.", None], dtype="str")
    assert combine_orders(both("a", "a", rationale=said))["rationale"].isna().all()
    assert combine_orders(both("a", "a", call_id=["c1", "c1"]))["call_id"].tolist() == ["c1"]
