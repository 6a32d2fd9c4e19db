"""Steadiness: repeats, other words, dimensions together and apart, and a rater who changes half
way."""

import numpy as np
import pandas as pd
import pytest

from heart_utils.judges.position import compare_answers


def answers(rows, **columns):
    table = pd.DataFrame(rows, columns=["dialogue_id", "order", "repeat", "verdict"])
    fixed = {"pair_id": table["dialogue_id"], "rater": "judge", "dimension": "overall", "state": "valid", "protocol": "heart",
             "margin": np.nan, "p_a": np.nan, "responder_a": "x", "responder_b": "y"}  # fmt: skip
    return table.assign(**{**fixed, **columns})


def test_three_of_four_repeats_agree_by_hand(rng):
    said = [
        ("d1", "ab", "a", "a"),
        ("d1", "ba", "b", "b"),
        ("d2", "ab", "a", "b"),
        ("d2", "ba", "tie", "tie"),
    ]
    rows = [
        (d, order, repeat, verdict)
        for d, order, *both in said
        for repeat, verdict in enumerate(both)
    ]
    row = compare_answers(answers(rows), by="repeat", rng=rng).iloc[0]
    assert row["same_share"] == pytest.approx(3 / 4)
    assert row["n"] == 4


@pytest.mark.parametrize(("n", "provisional"), [(1, None), (2, True), (29, True), (30, False)])
def test_few_dialogues_asked_again_are_provisional_and_one_is_left_out(rng, n, provisional):
    table = answers([(f"d{number}", "ab", repeat, "a") for number in range(n) for repeat in (0, 1)])
    found = compare_answers(table, by="repeat", rng=rng, n_resamples=10)
    assert found["provisional"].tolist() == ([] if provisional is None else [provisional])


def test_a_failed_repeat_is_counted_and_not_a_disagreement(rng):
    rows = [(f"d{number}", "ab", repeat, "a") for number in range(4) for repeat in (0, 1)]
    table = answers(rows)
    table.loc[1, ["state", "verdict"]] = ["error", None]
    row = compare_answers(table, by="repeat", rng=rng).iloc[0]
    assert (row["same_share"], row["n"], row["n_failed"]) == (1.0, 3, 1)


def test_other_words_are_compared_on_the_same_pairs(rng):
    rows = [(f"d{number}", "ab", 0, "a") for number in range(6)]
    other = [(f"d{number}", "ab", 0, "a" if number < 3 else "b") for number in range(6)]
    both = pd.concat([answers(rows), answers(other, protocol="heart-release")])
    row = compare_answers(both, by="protocol", rng=rng).iloc[0]
    assert (row["one"], row["other"], row["same_share"]) == ("heart", "heart-release", 0.5)


def test_nothing_repeated_gives_no_rows(rng):
    assert compare_answers(
        answers([("d1", "ab", 0, "a"), ("d2", "ab", 0, "a")]), by="repeat", rng=rng
    ).empty
