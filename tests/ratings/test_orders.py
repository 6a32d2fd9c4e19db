"""Two orders of a pair become one row, and nothing is lost or invented on the way."""

import numpy as np
import pandas as pd
import pytest

from heart_utils.ratings.other_models import pool_strengths
from heart_utils.ratings.ratings import Clusters, fit_ratings
from heart_utils.ratings.standings import consistency, find_fragility
from heart_utils.ratings.verdicts import RatingsError, combine_orders
from heart_utils.report.leaderboard import leaderboard_html
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


OPPOSED = {"state": "inconsistent", "verdict": None}
REASON = pd.array(["It asks how she is.", None], dtype="str")


@pytest.mark.parametrize(
    ("ab", "ba", "columns", "expected"),
    [
        ("a", "a", {}, {"state": "valid", "verdict": "a", "p_a": None, "order": "both"}),
        ("b", "b", {}, {"state": "valid", "verdict": "b", "p_a": None, "order": "both"}),
        ("tie", "tie", {}, {"state": "valid", "verdict": "tie", "p_a": None, "order": "both"}),
        ("a", "b", {}, {**OPPOSED, "p_a": None, "order": "both"}),
        ("b", "a", {}, {**OPPOSED, "p_a": None, "order": "both"}),
        ("a", "tie", {}, {"state": "valid", "verdict": "a", "p_a": 0.75, "order": "both"}),
        ("tie", "b", {}, {"state": "valid", "verdict": "b", "p_a": 0.25, "order": "both"}),
        # counted as such, and worth the mean of the two in a fit
        ("a", "b", {"p_a": [0.9, 0.2]}, {**OPPOSED, "p_a": 0.55}),
        # a failed order leaves the other and a flag; of two failures the worse is kept
        (
            None,
            "b",
            {"state": ["unparsed", "valid"], "flags": [["greeting"], []], "margin": [None, 4]},
            {"state": "valid", "verdict": "b", "order": "ba", "comparison_id": "p:ba", "margin": 4,
             "flags": ["greeting", "one_order"]},
        ),
        (None, None, {"state": ["refused", "error"]}, {"state": "error"}),
        (None, None, {"state": ["unparsed", "abstained"]}, {"verdict": None}),
        # margins are those of the answers that name the winner
        ("a", "a", {"margin": [2, 5]}, {"margin": 3.5}),
        ("a", "tie", {"margin": [2, np.nan]}, {"margin": 2}),
        ("a", "b", {"margin": [2, 5]}, {"margin": None}),
        # a reason given in one order only is not that of both
        ("a", "a", {"rationale": REASON, "call_id": "c1"}, {"rationale": None, "call_id": "c1"}),
    ],
)  # fmt: skip
def test_two_answers_become_one(ab, ba, columns, expected):
    row = combine_orders(both(ab, ba).assign(**columns)).iloc[0]
    for name, value in expected.items():
        assert row[name] == value or value is None and pd.isna(row[name]), name


def test_repeats_raters_and_single_orders_stay_apart():
    rows = pd.concat(
        [both("a", "a"), both("a", "b", repeat=1), both("b", "b", rater="other").iloc[:1]]
    )
    joined = combine_orders(rows)
    assert joined["state"].tolist() == ["valid", "inconsistent", "valid"]
    assert joined["order"].tolist() == ["both", "both", "ab"]


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
    rng = np.random.default_rng(8)
    return simulate_study(
        rng=rng, strengths=4, n_dialogues=20, pairs="all", orders="both", panels=panels
    )


def test_a_joined_table_is_a_verdicts_table_whatever_the_order_of_rows_and_joins_no_further(study):
    joined, keys = combine_orders(study.verdicts), ["pair_id", "rater", "dimension"]
    assert len(joined) == len(study.verdicts) / 2
    pd.testing.assert_frame_equal(check_table("verdicts", joined), joined)
    pd.testing.assert_frame_equal(combine_orders(joined), joined)
    there = combine_orders(study.verdicts.sample(frac=1, random_state=1))
    pd.testing.assert_frame_equal(
        joined.sort_values(keys, ignore_index=True), there.sort_values(keys, ignore_index=True)
    )


DUELS = {"responder_a": ["x", "x", "y"], "responder_b": ["y", "z", "z"]}


def asked(answer, *, n=40, orders=("ab", "ba"), rater="judge"):
    """Three duels a dialogue, in each of the orders; `answer` sees the row with the order."""
    rows = pd.concat(
        [
            pd.DataFrame(DUELS).assign(dialogue_id=f"d{number}", order=order, rater=rater)
            for number in range(n)
            for order in orders
        ],
        ignore_index=True,
    )
    return rows.assign(verdict=[answer(row) for row in rows.to_dict("records")])


def first_shown(row):
    return row["order"][0]


def swap_names(rows, which):
    """Name the responders of some rows the other way round; the reply shown first stays."""
    turned = rows.assign(responder_a=rows["responder_b"], responder_b=rows["responder_a"])
    turned["order"] = rows["order"].map({"ab": "ba", "ba": "ab"})
    turned["verdict"] = rows["verdict"].map({"a": "b", "b": "a", "tie": "tie"})
    return rows.where(~which, turned)


def coin(seed=1):
    rng = np.random.default_rng(seed)
    return lambda _: rng.choice(["a", "b", "tie"], p=[0.5, 0.3, 0.2])


READERS = {
    "ratings": lambda rows: fit_ratings(rows, n_resamples=20).table,
    "davidson": lambda rows: fit_ratings(rows, method="davidson", n_resamples=20).table,
    "consistency": lambda rows: consistency(rows, n_resamples=20),
    "fragility": lambda rows: find_fragility(rows, unit="dialogue_id").n_removed,
    "pooling": lambda rows: pool_strengths(rows).table,
}


@pytest.mark.parametrize("name", READERS)
def test_every_reader_joins_the_two_orders_itself_whoever_is_named_first(name):
    rows = asked(coin(), n=25)
    swapped = swap_names(rows, pd.Series(np.arange(len(rows)) % 3 == 0))
    once = READERS[name](combine_orders(rows))
    for table in (rows, swapped, combine_orders(swapped)):
        if isinstance(once, pd.DataFrame):
            pd.testing.assert_frame_equal(READERS[name](table), once)
        else:
            assert READERS[name](table) == once


def test_second_games_with_names_changed_are_two_orders_of_a_pair():
    """As Arena-Hard plays: the second game names the two the other way round, a first in both."""
    first, second = asked(lambda _: "a", orders=["ab"]), asked(lambda _: "b", orders=["ba"])
    games = pd.concat([first, swap_names(second, second["order"].eq("ba"))])
    assert set(games["order"]) == {"ab"}
    ratings = fit_ratings(games, n_resamples=20)
    assert (ratings.n_joined, ratings.n_inconsistent, ratings.n_verdicts) == (120, 120, 120)


def test_one_rater_s_votes_that_cannot_be_joined_are_refused_by_name():
    rows = asked(coin(), orders=("ab", "ba", "ab"))
    with pytest.raises(RatingsError, match="same order twice: rater 'judge', .*Number repeated"):
        fit_ratings(rows)
    with pytest.raises(RatingsError, match="Name who answered in `rater`"):
        fit_ratings(rows.drop(columns="rater"))
    numbered = rows.assign(repeat=rows.groupby(["dialogue_id", *DUELS, "order"]).cumcount())
    assert fit_ratings(numbered, n_resamples=0).n_joined == 120
    once = asked(coin(), orders=("ab", "ab"))  # several votes, one order: nothing to join
    assert fit_ratings(once, n_resamples=0).n_verdicts == 240


# Where nothing varies


def flat(rows):
    """What says nothing of how far other dialogues would differ."""
    return pd.DataFrame(rows, columns=["dialogue_id", *DUELS, "rater", "verdict", "p_a"])


DIALOGUES = [f"d{number}" for number in range(40)]


PAIRS = list(zip(*DUELS.values(), strict=True))


FLAT = {
    "always the first reply, in both orders": asked(first_shown),
    "two raters who split in every dialogue": flat(
        [(d, *pair, who, who, None) for d in DIALOGUES for pair in PAIRS for who in "ab"]
    ),
    "a circle": flat(
        [(d, *pair, "judge", said, None) for d in DIALOGUES for pair, said in zip(PAIRS, "aba", strict=True)]
    ),
    "a probability that never moves": flat(
        [(d, *pair, "judge", "a", 0.7) for d in DIALOGUES for pair in PAIRS]
    ),
    "a probability that moves by rounding": flat(
        [(d, *pair, "judge", "a", 0.7 + 1e-7 * (i % 3)) for i, d in enumerate(DIALOGUES) for pair in PAIRS]
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", FLAT)
@pytest.mark.parametrize("interval", ["bootstrap", "sandwich"])
def test_where_nothing_varies_between_dialogues_nothing_is_certain(kind, interval):
    ratings = fit_ratings(FLAT[kind], cluster=Clusters("dialogue_id", interval), n_resamples=50)
    table = ratings.table
    assert table[["ci_low", "ci_high", "rating_low", "rating_high"]].isna().all(axis=None)
    assert table[["rank_low", "rank_high"]].drop_duplicates().to_numpy().tolist() == [[1, 3]]
    assert table[["provisional", "unvaried"]].all(axis=None)
    assert ratings.differences()[["ci_low", "ci_high"]].isna().all(axis=None)
    assert ratings.ranks()["rank_high"].eq(3).all()
    for page in (repr(ratings), ratings._repr_html_(), leaderboard_html(table)):
        assert "all dialogues say the same" in page


def test_of_one_responder_nothing_varies_and_of_the_others_it_does():
    rows = asked(coin())
    rows["verdict"] = rows["verdict"].where(rows["responder_b"] != "z", "tie")
    table = fit_ratings(rows, n_resamples=100).table.set_index("responder")
    assert table["ci_low"].isna().to_dict() == {"x": False, "y": False, "z": True}
    assert table.loc["z", ["rank_low", "rank_high"]].tolist() == [1, 3]


def test_who_always_wins_keeps_the_one_sided_bound():
    table = fit_ratings(asked(lambda row: "a"), n_resamples=50).table.set_index("responder")
    assert table.loc["x", "rating_low"] > 1500
    assert not table["unvaried"].any()
    assert table["rank_high"].to_dict() == {"x": 1, "y": 2, "z": 3}


def test_each_pair_met_once_is_no_sign_that_nothing_varies():
    rng = np.random.default_rng(3)
    names = [f"m{number:02}" for number in range(12)]
    rows = [(f"d{i}{j}", a, b, "judge", rng.choice(["a", "b"]), None)
            for i, a in enumerate(names) for j, b in enumerate(names) if i < j]  # fmt: skip
    assert not fit_ratings(flat(rows), n_resamples=50).table["unvaried"].any()


def test_the_counts_of_orders_are_in_the_result_and_in_every_print_of_it():
    rows = asked(coin())
    ratings = fit_ratings(rows, n_resamples=20)
    n = int(combine_orders(rows)["state"].eq("inconsistent").sum())
    assert (ratings.n_joined, ratings.n_inconsistent) == (120, n)
    said = f"120 pairs were asked in both orders and count once; {n} contradicted themselves"
    for page in (repr(ratings), ratings._repr_html_(), leaderboard_html(ratings.table)):
        assert said in page
    assert "both orders" not in repr(fit_ratings(asked(coin(), orders=["ab"]), n_resamples=0))


def test_pairs_that_met_unevenly_often_are_named():
    even = asked(coin(), n=60, orders=["ab"])
    few = even[even["responder_b"].ne("z") | even["dialogue_id"].isin(["d0", "d1"])]
    warned = repr(fit_ratings(few, n_resamples=0)).partition("far more often")
    assert "weights='verdicts'" in warned[2]
    assert "far more often" not in repr(fit_ratings(few, weights="verdicts", n_resamples=0))
    assert "far more often" not in repr(fit_ratings(even, n_resamples=0))
