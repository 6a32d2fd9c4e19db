"""Word overlap of replies with the true next turn, by hand and as properties."""

import math

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heart_utils.replies.codes import measure_overlap

TRUTHS = pd.DataFrame(
    {"history_id": ["h1", "h2", "h3"], "text": ["a b c d e", "c d e f g", "x y z"]}
)


def replies(*texts, history="h1"):
    rows = range(len(texts))
    return pd.DataFrame(
        {
            "reply_id": [f"r{i}" for i in rows],
            "history_id": history,
            "responder": "m",
            "text": list(texts),
        }
    )


def test_overlap_by_hand():
    row = measure_overlap(replies("A b, c d! q"), TRUTHS).iloc[0]  # runs: abc bcd cdq
    assert row["overlap"] == pytest.approx(2 / 3)
    assert row["overlap_others"] == 0
    assert row["longest_run"] == 4
    # runs: bcd cde def; h2 has cde and def
    row = measure_overlap(replies("b c d e f"), TRUTHS).iloc[0]
    assert row["overlap"] == pytest.approx(2 / 3)
    assert row["overlap_others"] == pytest.approx((2 / 3 + 0) / 2)


def test_short_missing_and_unknown_replies_are_told_apart():
    table = measure_overlap(
        pd.concat([replies("a b", None), replies("a b c", history="h9")]), TRUTHS
    )
    assert table["reply_id"].tolist() == ["r0"]
    assert math.isnan(table["overlap"].item())
    assert table["longest_run"].item() == 2


def test_what_is_left_out_is_counted_and_a_turn_without_text_is_no_turn():
    empty = pd.DataFrame({"history_id": ["h1", "h2"], "text": [None, "c d e f g"]})
    said = pd.concat([replies("a b c", None), replies("c d e f", history="h2")])
    table = measure_overlap(said, empty)
    assert table["history_id"].tolist() == ["h2"]
    assert (
        table.attrs["left_out"],
        table["overlap"].item(),
        table["overlap_others"].isna().item(),
    ) == (2, 1.0, True)


@given(st.lists(st.sampled_from("abcd"), min_size=3, max_size=12))
def test_a_copied_turn_overlaps_fully(words):
    text = " ".join(words)
    row = measure_overlap(
        replies(text), pd.DataFrame({"history_id": ["h1"], "text": [text.upper()]})
    ).iloc[0]
    assert (row["overlap"], row["longest_run"]) == (1.0, len(words))


def test_bad_tables_are_named():
    with pytest.raises(match="no column text"):
        measure_overlap(replies("a").drop(columns="text"), TRUTHS)
    with pytest.raises(match="h1 has more than one"):
        measure_overlap(replies("a"), pd.concat([TRUTHS, TRUTHS]))
