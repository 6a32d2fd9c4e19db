"""Careless raters, and the rule that leaves them out."""

from itertools import product

import numpy as np
import pandas as pd
import pytest
from builders import verdicts
from hypothesis import given
from hypothesis import strategies as st

from heart_utils.agreement.raters import (
    ExclusionRule,
    _longest_run,
    _run_probability,
    decide_exclusions,
    rater_quality,
)
from heart_utils.ratings.verdicts import AgreementError
from heart_utils.simulate.study import BEHAVIOURS, simulate_raters
from heart_utils.tables import check_table


def panel(said: dict[str, str], **columns) -> pd.DataFrame:
    """One letter a pair and rater: a, b, t for a tie, and a dot for a pair not judged."""
    words = {"a": "a", "b": "b", "t": "tie"}
    rows = [
        (f"d{pair:02d}", "x", "y", words[one], rater)
        for rater, line in said.items()
        for pair, one in enumerate(line)
        if one != "."
    ]
    return verdicts(rows, **columns)


def test_agreement_with_the_majority_of_the_others_by_hand():
    quality = rater_quality(panel({"r1": "aab", "r2": "abt", "r3": "bba"})).set_index("rater")
    # r1: pair 1 others a, b: split, 1/2; pair 2 others b, b: 0; pair 3 others tie, a: 0. In all
    # 1/6.
    assert quality.loc["r1", "agreement"] == pytest.approx((1 / 2 + 0 + 0) / 3)
    # r2: pair 1 others a, b: 1/2; pair 2 others a, b: 1/2; a tie is not compared.
    assert quality.loc["r2", "agreement"] == pytest.approx(1 / 2)
    assert quality["n_compared"].tolist() == [3, 2, 3]


def test_a_pair_that_nobody_else_chose_on_is_not_compared():
    quality = rater_quality(panel({"r1": "aaab", "r2": "a.tb", "r3": "bbt."})).set_index("rater")
    # r1: pair 1 others a, b: 1/2; pair 2 other b: 0; pair 3 others tie; pair 4 other b: 1.
    assert quality.loc["r1", ["agreement", "n_compared"]].tolist() == pytest.approx([1.5 / 3, 3])
    assert quality["n_compared"].tolist() == [3, 2, 2]


def test_the_share_for_the_first_reply_follows_the_order_shown():
    quality = rater_quality(panel({"r1": "abab"}, order=["ab", "ba", "ab", "ba"])).iloc[0]
    assert quality["share_first"] == 1
    assert quality["side_p"] == pytest.approx(2 / 16)  # all first or all second, of 2^4
    assert quality["longest_run"] == 4


@given(st.lists(st.booleans(), min_size=1, max_size=12))
def test_the_longest_run_is_the_longest_block_of_one_side(values):
    blocks = "".join("1" if value else "0" for value in values)
    longest = max(k for k in range(1, len(blocks) + 1) if "1" * k in blocks or "0" * k in blocks)
    assert _longest_run(np.array(values)) == longest


@pytest.mark.parametrize(("n", "length"), [(1, 1), (4, 2), (6, 3), (9, 4), (10, 10), (10, 1)])
def test_the_chance_of_a_run_is_that_of_counting_all_sequences(n, length):
    runs = [_longest_run(np.array(tosses)) for tosses in product([False, True], repeat=n)]
    assert _run_probability(n, length) == pytest.approx(np.mean([run >= length for run in runs]))


def test_runs_follow_the_sequence_in_which_a_rater_worked():
    table = panel({"r1": "abab"}).assign(position=[1, 3, 2, 4], seconds=5.0)
    assert rater_quality(table).iloc[0]["longest_run"] == 2  # a a b b
    assert rater_quality(table.drop(columns="position")).iloc[0]["longest_run"] == 1


def test_what_was_not_measured_is_empty_and_no_sign():
    quality = rater_quality(panel({"r1": "aabba", "r2": "aabba", "r3": "aabba"}))
    assert quality[["median_seconds", "n_checks"]].isna().all().all()
    assert decide_exclusions(quality)["signs"].tolist() == [[], [], []]


def test_an_order_that_is_not_known_gives_no_side():
    quality = rater_quality(panel({"r1": "aab"}, order=None)).iloc[0]
    assert pd.isna(quality["share_first"])
    assert pd.isna(quality["run_p"])


def test_one_verdict_on_a_pair_each():
    twice = pd.concat([panel({"r1": "a"}), panel({"r1": "b"}).assign(comparison_id="other")])
    with pytest.raises(AgreementError, match="r1 has two verdicts on the pair"):
        rater_quality(twice)


def test_raters_without_a_row_are_named():
    with pytest.raises(AgreementError, match="lacks 1 who gave verdicts, first r2"):
        rater_quality(
            panel({"r1": "a", "r2": "a"}),
            pd.DataFrame({"rater": ["r1"], "n_checks": [1], "n_checks_passed": [1]}),
        )


def seen(**columns) -> pd.DataFrame:
    fine = {
        "rater": "r1",
        "n_verdicts": 30,
        "median_seconds": 40.0,
        "side_p": 0.5,
        "run_p": 0.5,
        "reliability": 0.8,
        "n_checks_failed": 0,
    }
    return pd.DataFrame([fine | columns])


@pytest.mark.parametrize(
    ("columns", "excluded", "signs"),
    [
        ({}, False, []),
        ({"n_checks_failed": 1}, False, []),
        ({"n_checks_failed": 2}, True, ["failed_checks"]),
        ({"median_seconds": 3.0}, False, ["fast"]),
        ({"median_seconds": 3.0, "reliability": 0.5}, True, ["fast", "unreliable"]),
        # two views of one thing
        ({"side_p": 1e-6, "run_p": 1e-6}, False, ["one_sided", "straight_line"]),
        (
            {"side_p": 1e-6, "run_p": 1e-6, "reliability": 0.5},
            True,
            ["one_sided", "straight_line", "unreliable"],
        ),
        ({"n_checks_failed": None, "reliability": None}, False, []),
    ],
)
def test_the_rule_of_the_protocol(columns, excluded, signs):
    decision = decide_exclusions(seen(**columns)).iloc[0]
    assert decision["excluded"] == excluded
    assert decision["signs"] == signs


def test_a_study_may_set_its_own_rule_beforehand():
    strict = ExclusionRule(max_failed_checks=0)
    assert decide_exclusions(seen(n_checks_failed=1), strict)["excluded"].item()


def test_simulated_tables_are_tables_and_say_that_they_are_simulated(rng):
    study = simulate_raters({"careful": 6, "coin": 2}, rng=rng, load=12, votes=4)
    assert check_table("verdicts", study.verdicts)["simulated"].all()
    assert check_table("raters", study.raters)["simulated"].all()
    assert study.verdicts.groupby("rater").size().tolist() == [12] * 8
    assert (study.verdicts.groupby("pair_id")["rater"].nunique() == 4).all()


def test_a_behaviour_that_is_not_known_is_refused(rng):
    with pytest.raises(
        ValueError, match=f"no behaviour called 'lazy'. There are {', '.join(BEHAVIOURS)}"
    ):
        simulate_raters({"lazy": 3}, rng=rng)
    with pytest.raises(ValueError, match="5 votes a pair need as many raters"):
        simulate_raters({"careful": 3}, rng=rng)


def test_careless_raters_are_found_and_careful_ones_kept(rng):
    """Ten simulated studies of 60 raters each; the limits lie far outside the Monte Carlo error."""
    mix, decided = {"careful": 40, "hurried": 8, "coin": 4, "first_side": 4, "patient_coin": 4}, []
    for _ in range(10):
        study = simulate_raters(mix, rng=rng)
        quality = rater_quality(study.verdicts, study.raters)
        decided.append(
            decide_exclusions(quality)
            .merge(study.truth, on="rater")
            .assign(reliability=quality["reliability"])
        )
    rates = (
        pd.concat(decided)
        .groupby("behaviour")[["excluded", "reliability"]]
        .agg({"excluded": "mean", "reliability": "median"})
    )
    assert rates.loc["careful", "excluded"] <= 0.01
    assert rates.loc["hurried", "excluded"] <= 0.05
    assert rates.loc["coin", "excluded"] >= 0.9
    assert rates.loc["first_side", "excluded"] >= 0.95
    # Whoever takes the time, passes the checks and tosses a coin shows one sign only. The rule does
    # not find them.
    assert rates.loc["patient_coin", "excluded"] <= 0.15
    assert rates.loc["patient_coin", "reliability"] < 0.6 < rates.loc["careful", "reliability"]


def test_a_rule_of_ones_own_decides(rng):
    """A rule that leaves out whoever is under an hour a page leaves out everybody."""
    study = simulate_raters({"careful": 6, "hurried": 2}, rng=rng)
    strict = ExclusionRule(min_median_seconds=3600.0, signs_needed=1)
    assert decide_exclusions(rater_quality(study.verdicts, study.raters), strict)["excluded"].all()


def test_a_failed_answer_counts_for_nobody_and_a_dimension_nobody_judged_is_named():
    rows = panel({"r1": "ab", "r2": "ab"})
    failed = rows.assign(state="unparsed", verdict=None, rater="r3")
    assert rater_quality(pd.concat([rows, failed]))["rater"].tolist() == ["r1", "r2"]
    with pytest.raises(AgreementError, match="the table has overall"):
        rater_quality(rows, dimension="resonance")
