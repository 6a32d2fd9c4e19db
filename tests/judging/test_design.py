import hashlib
import random
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from judging_case import make_replies

from heart_collect.judging.design import DesignError, digest, pair_replies, seeded
from heart_utils.tables import TableError


def draw(seed=5):
    return np.random.default_rng(seed)


def many(n_histories=6, n_responders=5, **columns):
    rows = [
        (f"h{h}-r{r}", f"h{h}", f"r{r}") for h in range(n_histories) for r in range(n_responders)
    ]
    return pd.DataFrame(rows, columns=["reply_id", "history_id", "responder"]).assign(
        state="valid", **columns
    )


def test_every_two_replies_to_a_history_meet_once_in_each_order():
    comparisons = pair_replies(many(), rng=draw())
    assert len(comparisons) == 6 * 10 * 2  # six histories, 5 * 4 / 2 pairs, two orders
    for history, rows in comparisons.groupby("history_id"):
        expected = set(combinations([f"{history}-r{r}" for r in range(5)], 2))
        for order in ("ab", "ba"):
            here = rows[rows["order"] == order]
            assert set(zip(here["reply_a"], here["reply_b"], strict=True)) == expected
    assert comparisons["comparison_id"].is_unique
    assert (comparisons.groupby("pair_id").size() == 2).all()


def test_a_is_the_smaller_reply_whatever_the_order_of_rows():
    replies = many().sample(frac=1, random_state=3)
    comparisons = pair_replies(replies, rng=draw())
    assert (comparisons["reply_a"] < comparisons["reply_b"]).all()
    pd.testing.assert_frame_equal(comparisons, pair_replies(many(), rng=draw()))


def test_ids_are_digests_of_what_they_stand_for_whatever_the_seed():
    """Written out by hand, so that another way to make them cannot go unnoticed: ids tie runs
    together."""
    pair = hashlib.sha256(b"4:pair5:h0-r05:h0-r1").hexdigest()[:16]
    shown = [
        hashlib.sha256(f"10:comparison16:{pair}2:{order}5:heart".encode()).hexdigest()[:16]
        for order in ("ab", "ba")
    ]
    for seed in (5, 6):
        comparisons = pair_replies(many(1, 2), rng=draw(seed))
        assert comparisons["pair_id"].tolist() == [pair] * 2
        assert comparisons["comparison_id"].tolist() == shown


def test_the_protocol_is_part_of_a_comparisons_id_and_not_of_a_pairs():
    ours, released = (
        pair_replies(many(), rng=draw(), protocol=name) for name in ("heart", "heart-release")
    )
    assert set(ours["pair_id"]) == set(released["pair_id"])
    assert not set(ours["comparison_id"]) & set(released["comparison_id"])


def test_one_random_order_shows_each_reply_first_about_half_the_time():
    comparisons = pair_replies(many(40, 8), rng=draw(), orders="random")
    assert comparisons["pair_id"].is_unique
    first = (comparisons["order"] == "ab").sum()
    # four standard deviations
    assert abs(first - len(comparisons) / 2) < 4 * (len(comparisons) / 4) ** 0.5


def test_what_is_drawn_for_a_pair_does_not_hang_on_the_others():
    whole = pair_replies(many(), rng=draw(), orders="random").set_index("pair_id")
    part = pair_replies(
        many()[lambda t: t["responder"] != "r2"], rng=draw(), orders="random"
    ).set_index("pair_id")
    pd.testing.assert_frame_equal(part, whole.loc[part.index])


def test_what_a_seed_draws_for_a_pair_never_changes():
    """Ledgers hold what was asked about these pairs in these orders."""
    orders = pair_replies(many(2, 4), rng=draw(), orders="random")["order"].tolist()
    assert orders == ["ba"] * 11 + ["ab"]
    kept = pair_replies(many(2, 4), rng=draw(), pairs=2).drop_duplicates("pair_id")
    assert (kept["reply_a"] + kept["reply_b"]).tolist() == [
        "h0-r0h0-r1",
        "h0-r1h0-r3",
        "h1-r1h1-r2",
        "h1-r1h1-r3",
    ]


def test_another_seed_draws_other_orders():
    one, other = (pair_replies(many(), rng=draw(seed), orders="random") for seed in (1, 2))
    assert (one["order"] != other["order"]).any()


@pytest.mark.parametrize("pairs", [1, 9, 10, 14])
def test_so_many_pairs_of_each_history_are_kept(pairs):
    comparisons = pair_replies(many(), rng=draw(), pairs=pairs)
    assert (comparisons.groupby("history_id")["pair_id"].nunique() == min(pairs, 10)).all()
    assert set(comparisons["pair_id"]) <= set(
        pair_replies(many(), rng=draw(), pairs="all")["pair_id"]
    )


def test_more_pairs_hold_the_fewer():
    """So that a study that grows asks only for what is new."""
    few, more = (set(pair_replies(many(), rng=draw(), pairs=n)["pair_id"]) for n in (3, 4))
    assert few < more


def test_protocols_keep_the_same_pairs():
    """So that two ways of judging can be compared on the same replies."""
    ours, released = (
        pair_replies(many(), rng=draw(), pairs=3, protocol=name)
        for name in ("heart", "heart-release")
    )
    assert set(ours["pair_id"]) == set(released["pair_id"])


def test_failed_replies_are_left_out_and_counted():
    replies = many()
    replies.loc[[0, 1, 2, 3], "state"] = ["refused", "error", "error", "refused"]
    with pytest.warns(
        UserWarning,
        match=r"4 of 30 replies .*\(2 error, 2 refused\); 1 histories",
    ) as said:
        comparisons = pair_replies(replies, rng=draw())
    assert sum(warning.category is UserWarning for warning in said) == 1
    assert "h0" not in set(comparisons["history_id"])


def test_nothing_is_said_where_nothing_is_left_out(recwarn):
    pair_replies(many(), rng=draw())
    assert not [warning for warning in recwarn if warning.category is UserWarning]


def test_two_replies_of_one_responder_are_never_compared():
    replies = pd.concat([many(1, 2), many(1, 2).assign(reply_id=["again0", "again1"])])
    comparisons = pair_replies(replies, rng=draw())
    assert (comparisons["responder_a"] != comparisons["responder_b"]).all()
    assert comparisons["pair_id"].nunique() == 4


def test_replies_that_do_not_say_so_are_not_simulated():
    assert not pair_replies(many(1, 3), rng=draw())["simulated"].any()


def test_a_comparison_with_a_simulated_reply_is_simulated():
    replies = many(1, 3, simulated=[True, False, False])
    comparisons = pair_replies(replies, rng=draw())
    with_it = (comparisons["reply_a"] == "h0-r0") | (comparisons["reply_b"] == "h0-r0")
    assert (comparisons["simulated"] == with_it).all()


@pytest.mark.parametrize(
    ("replies", "options", "said"),
    [
        (many(), {"orders": "ab"}, "orders is 'ab', expected one of both, random"),
        (many(), {"pairs": 0}, "expected 'all' or a whole number"),
        (many(), {"pairs": 1.5}, "expected 'all' or a whole number"),
        (many(), {"pairs": "some"}, "expected 'all' or a whole number"),
        (many().drop(columns="state"), {}, "no column state"),
        (
            many().assign(responder=None),
            {},
            "replies.responder: expected a name in each row; row 0 has None",
        ),
        (
            pd.concat([many(), many().head(1)]),
            {},
            "replies.reply_id: expected each reply once; row 0 has 'h0-r0'",
        ),
        (
            many(2, 1),
            {},
            "Nothing can be paired: of 2 replies 2 are valid, to 2 histories, by 1 responders",
        ),
        (many().head(0), {}, "Nothing can be paired: of 0 replies"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*no two valid replies")
def test_what_cannot_be_paired_is_an_error(replies, options, said):
    with pytest.raises((DesignError, TableError), match=said):
        pair_replies(replies, rng=draw(), **options)


def test_the_table_of_replies_is_paired_as_it_comes():
    assert len(pair_replies(make_replies(), rng=draw())) == 12


@given(
    parts=st.lists(st.text(max_size=5), max_size=4),
    others=st.lists(st.text(max_size=5), max_size=4),
)
def test_different_parts_have_different_digests(parts, others):
    assert (digest(*parts) == digest(*others)) == (parts == others)


def test_a_generator_is_seeded_by_the_digest_and_nothing_else():
    number = int(hashlib.sha256(b"1:11:p5:heart1:0").hexdigest()[:16], 16)
    assert seeded(1, "p", "heart", 0).random() == random.Random(number).random()
