"""Who rates and writes what."""

from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heart_collect.people.assignment import (
    StudyError,
    assign_raters,
    assign_writers,
    check_balance,
    choose_pairs,
    study_cost,
)


def both_orders(n_histories: int, n_responders: int) -> pd.DataFrame:
    """All pairs of all responders in both orders; which of two is a changes from history to
    history, as reply ids make it."""
    rows = []
    for history in range(n_histories):
        for one, other in combinations(range(n_responders), 2):
            a, b = (one, other) if (history + one) % 2 else (other, one)
            pair = f"h{history}-{one}-{other}"
            rows += [
                (f"{pair}-{order}", pair, f"h{history}", f"r{a}", f"r{b}", order)
                for order in ("ab", "ba")
            ]
    return pd.DataFrame(
        rows,
        columns=["comparison_id", "pair_id", "history_id", "responder_a", "responder_b", "order"],
    )


@given(
    n_histories=st.integers(1, 6),
    n_responders=st.integers(2, 5),
    votes=st.integers(1, 7),
    load=st.integers(3, 12),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=20)
def test_every_assignment_is_balanced(n_histories, n_responders, votes, load, seed):
    comparisons = both_orders(n_histories, n_responders)
    assignment = assign_raters(
        comparisons, raters_per_pair=votes, load=load, n_checks=2, rng=np.random.default_rng(seed)
    )
    rated = assignment[assignment["task"] == "rate"]
    assert (rated.groupby("pair_id")["seat"].nunique() == votes).all()
    assert rated.groupby("seat").size().max() <= load
    balance = check_balance(assignment)
    assert balance["holds"].all(), balance.to_string()


@pytest.mark.parametrize(
    ("n_histories", "n_responders", "load"),
    [
        (36, 5, 30),
        (40, 5, 30),
        (30, 5, 30),
        (24, 5, 20),
        (30, 5, 20),
        (10, 4, 10),
        (20, 3, 20),
        (8, 4, 8),
    ],
)
def test_fifteen_raters_a_pair_are_shared_out_evenly(n_histories, n_responders, load):
    """The first is the sample with the settings that come with the project; in each, seats fill up
    with one history."""
    comparisons = both_orders(n_histories, n_responders)
    for seed in range(4 if n_histories < 24 else 1):
        balance = check_balance(
            assign_raters(
                comparisons, raters_per_pair=15, load=load, rng=np.random.default_rng(seed)
            )
        )
        assert balance["holds"].all(), balance.to_string()


@given(
    raters=st.lists(
        st.lists(st.integers(0, 15), min_size=1, max_size=10), min_size=1, max_size=10
    ).filter(lambda raters: any(map(any, raters))),
    load=st.integers(1, 20),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=10)
def test_nothing_but_a_crowded_history_keeps_an_assignment_from_balance(raters, load, seed):
    """Raters of each pair of each history, so that some histories have many more ratings than
    others."""
    both = both_orders(len(raters), 5)
    chosen = {
        f"h{history}-{one}-{other}": n
        for history, row in enumerate(raters)
        for n, (one, other) in zip(row, combinations(range(5), 2), strict=False)
    }
    rng = np.random.default_rng(seed)
    balance = check_balance(assign_raters(both, raters_per_pair=chosen, load=load, rng=rng))
    assert set(balance[~balance["holds"]]["measure"]) <= {"times a rater meets the same history"}


def test_each_row_names_the_comparison_of_its_pair_and_order():
    known = both_orders(3, 3)
    rated = assign_raters(known, raters_per_pair=4, load=6, rng=np.random.default_rng(1))
    by_id = known.set_index("comparison_id").loc[rated["comparison_id"]].reset_index()
    pd.testing.assert_frame_equal(rated[by_id.columns], by_id)


def test_the_same_seed_gives_the_same_seats_and_another_seed_others():
    def draw(seed: int) -> pd.DataFrame:
        return assign_raters(
            both_orders(4, 3),
            raters_per_pair=3,
            load=9,
            n_checks=1,
            rng=np.random.default_rng(seed),
        )

    pd.testing.assert_frame_equal(draw(1), draw(1))
    assert not draw(1).equals(draw(2))


@pytest.mark.parametrize("seed", range(5))
def test_checks_are_never_first_and_each_part_of_a_seat_has_one(seed):
    """30 comparisons and three checks: one after the first to tenth, one after the 11th to 20th,
    one after the 21st to 30th."""
    table = assign_raters(
        both_orders(10, 3), raters_per_pair=3, load=30, n_checks=3, rng=np.random.default_rng(seed)
    )
    for _, seat in table.groupby("seat"):
        checks = seat[seat["task"] == "check"]
        rated_before = checks["position"] - checks["check"]
        assert checks["check"].tolist() == [1, 2, 3]
        assert ((rated_before + 9) // 10).tolist() == [1, 2, 3]


def test_a_history_does_not_come_twice_running_where_others_are_left():
    assignment = assign_raters(
        both_orders(6, 4), raters_per_pair=2, load=12, rng=np.random.default_rng(2)
    )
    for _, rows in assignment.groupby("seat"):
        if rows["history_id"].value_counts().iloc[0] * 2 <= len(rows):
            assert (rows["history_id"] != rows["history_id"].shift()).all()


def test_some_pairs_may_get_more_raters_for_agreement_and_some_none():
    comparisons = both_orders(2, 3)
    pairs = comparisons["pair_id"].unique()
    wanted = {pairs[0]: 5, pairs[1]: 1, pairs[2]: 0}
    rated = assign_raters(comparisons, raters_per_pair=wanted, load=4, rng=np.random.default_rng(1))
    assert rated["pair_id"].value_counts().to_dict() == {pairs[0]: 5, pairs[1]: 1}


def test_a_repeat_by_one_rater_is_seen_in_the_balance():
    assignment = assign_raters(
        both_orders(2, 2), raters_per_pair=2, load=4, rng=np.random.default_rng(1)
    )
    spoilt = assignment.assign(seat="seat-001")
    balance = check_balance(spoilt).set_index("measure")
    assert not balance.loc["times a rater meets the same pair", "holds"]


def test_chosen_pairs_let_all_responders_meet_equally_often():
    kept = choose_pairs(
        both_orders(30, 6), pairs_per_history=5, rng=np.random.default_rng(1)
    ).drop_duplicates("pair_id")
    assert (kept.groupby("history_id").size() == 5).all()
    duels = (
        kept[["responder_a", "responder_b"]]
        .apply(lambda row: tuple(sorted(row)), axis=1)
        .value_counts()
    )
    assert len(duels) == 15  # 6 choose 2: everyone meets everyone
    assert duels.max() - duels.min() <= 1
    assert pd.concat([kept["responder_a"], kept["responder_b"]]).value_counts().to_dict() == {
        f"r{k}": 50 for k in range(6)
    }  # 150 * 2 / 6


@pytest.mark.parametrize("seed", range(5))
def test_where_few_pairs_of_responders_meet_all_responders_appear_equally_often_nevertheless(seed):
    """60 pairs of 36: which pairs of responders meet twice leaves open how often one responder
    appears."""
    kept = choose_pairs(
        both_orders(30, 9), pairs_per_history=2, rng=np.random.default_rng(seed)
    ).drop_duplicates("pair_id")
    appearances = pd.concat([kept["responder_a"], kept["responder_b"]]).value_counts()
    assert appearances.sum() == 120  # 30 * 2 * 2
    assert set(appearances) == {13, 14}  # 120 / 9 is 13.3
    duels = (
        kept[["responder_a", "responder_b"]]
        .apply(lambda row: tuple(sorted(row)), axis=1)
        .value_counts()
    )
    assert set(duels) == {1, 2}


def test_twelve_writers_with_three_a_history_write_the_same_and_all_overlap():
    table = assign_writers(
        pd.DataFrame({"history_id": [f"h{k}" for k in range(300)]}), rng=np.random.default_rng(1)
    )
    assert table.groupby("seat").size().tolist() == [75] * 12  # 300 * 3 / 12
    assert (table.groupby("history_id")["seat"].nunique() == 3).all()
    met = table.merge(table, on="history_id")
    together = met[met["seat_x"] < met["seat_y"]].groupby(["seat_x", "seat_y"]).size()
    assert len(together) == 66  # 12 choose 2
    assert together.min() >= 12  # 300 * 3 / 66 is 13.6
    assert together.max() <= 15


def test_the_costs_of_heart_s_design_by_hand():
    around = {"seconds_each": 60, "minutes_around": 10, "pay_per_hour": 12, "fee_share": 0.25}
    [row] = study_cost(2800, raters_per_pair=[15], load=35, **around).to_dict("records")
    assert row == pytest.approx({
        "raters_per_pair": 15,
        "verdicts": 42_000,
        "raters": 1200,  # 42,000 / 35
        "minutes_each": 45,  # 35 minutes and 10 around
        "hours": 900,  # 1,200 * 45 / 60
        "cost": 13_500,  # 900 * 12 * 1.25
    })  # fmt: skip


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"raters_per_pair": 0}, "expected 1 or more"),
        ({"raters_per_pair": {"nobody": 3}}, "names 1 pairs that are not compared, first nobody"),
        ({"load": 0}, "load is 0"),
        ({"n_checks": 9}, "9 attention checks on 4 comparisons"),
        ({"comparisons": both_orders(1, 2).query("order == 'ab'")}, 'orders="both"'),
        ({"comparisons": both_orders(1, 2).drop(columns="order")}, "no column order"),
    ],
)
def test_what_makes_no_study_is_refused(change, message):
    options = {"raters_per_pair": 2, "load": 4, "rng": np.random.default_rng(1)}
    with pytest.raises(StudyError, match=message):
        assign_raters(**{"comparisons": both_orders(2, 2), **options, **change})


@pytest.mark.parametrize(
    ("ids", "message"), [([], "no rows"), (["h"], "3 writers a history out of 2")]
)
def test_more_writers_a_history_than_writers_are_refused(ids, message):
    histories, rng = pd.DataFrame({"history_id": ids}), np.random.default_rng(1)
    with pytest.raises(StudyError, match=message):
        assign_writers(histories, n_writers=2, rng=rng)
