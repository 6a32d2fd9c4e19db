"""Steadiness: repeats, other words, dimensions together and apart, and a rater who changes half way."""

import numpy as np
import pandas as pd
import pytest

from heart_utils.judges.retest import compare_answers, dimension_overlap, score_drift


def answers(rows, **columns):
    table = pd.DataFrame(rows, columns=["dialogue_id", "order", "repeat", "verdict"])
    fixed = {"pair_id": table["dialogue_id"], "rater": "judge", "dimension": "overall", "state": "valid", "protocol": "heart",
             "margin": np.nan, "p_a": np.nan, "responder_a": "x", "responder_b": "y"}  # fmt: skip
    return table.assign(**{**fixed, **columns})


def test_three_of_four_repeats_agree_by_hand(rng):
    said = [("d1", "ab", "a", "a"), ("d1", "ba", "b", "b"), ("d2", "ab", "a", "b"), ("d2", "ba", "tie", "tie")]
    rows = [(d, order, repeat, verdict) for d, order, *both in said for repeat, verdict in enumerate(both)]
    row = compare_answers(answers(rows), by="repeat", rng=rng).iloc[0]
    assert row["same_share"] == pytest.approx(3 / 4)
    assert row["n"] == 4
    assert row["first_shift"] == pytest.approx(-1 / 4)  # one of four moved from the first shown to the second


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
    assert compare_answers(answers([("d1", "ab", 0, "a"), ("d2", "ab", 0, "a")]), by="repeat", rng=rng).empty


def test_halo_of_one_call_shows_beside_one_dimension_a_call(rng):
    """In one call the second dimension copies the first; alone it is a coin."""
    rows, n = [], 120
    for protocol in ("heart", "heart-single"):
        for number in range(n):
            first = rng.choice(["a", "b"])
            second = first if protocol == "heart" else rng.choice(["a", "b"])
            rows += [(f"d{number}", "ab", 0, first, protocol, "warmth"), (f"d{number}", "ab", 0, second, protocol, "task")]
    table = pd.DataFrame(rows, columns=["dialogue_id", "order", "repeat", "verdict", "protocol", "dimension"])
    table = answers(table[["dialogue_id", "order", "repeat", "verdict"]].to_numpy().tolist(),
                    protocol=table["protocol"].to_numpy(), dimension=table["dimension"].to_numpy())  # fmt: skip
    found = dimension_overlap(table, rng=rng).set_index("protocol")
    assert found.loc["heart", "same_share"] == 1.0
    assert found.loc["heart-single", "ci_low"] < 0.5 < found.loc["heart-single", "ci_high"]
    assert dimension_overlap(table[table["dimension"] == "task"], rng=rng).empty


def test_a_rater_who_changes_half_way_is_seen_and_the_others_stay_flat(rng):
    rows = []
    for number in range(80):
        worth = rng.normal(3, 0.5)
        for rater, kind in (("j", "model"), ("k", "model"), ("people", "human")):
            jump = 1.0 if rater == "people" and number >= 40 else 0.0
            rows.append((f"c{number:03d}", f"c{number:03d}--x", rater, kind, worth + jump + rng.normal(0, 0.2)))
    table = pd.DataFrame(rows, columns=["history_id", "reply_id", "rater", "rater_kind", "score"])
    table = table.assign(dialogue_id=table["history_id"], state="valid")
    found = score_drift(table, rng=rng, n_parts=4, n_resamples=200).pivot_table(index="part", columns="rater", values="gap")
    assert found["people"].diff().round(1).tolist()[1:] == pytest.approx([0, 1, 0], abs=0.2)
    assert found[["j", "k"]].abs().max().max() < 0.15
