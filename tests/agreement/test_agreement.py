"""Agreement of two rater groups: a published table, values by hand, and slow ways to the same."""

import numpy as np
import pandas as pd
import pytest
from agreement_tables import count_by_hand, random_votes, votes, wilsons_interval
from hypothesis import given, settings
from hypothesis import strategies as st

from heart_utils.agreement import agreement
from heart_utils.agreement.agreement import (
    cohen_kappa,
    gwet_ac,
    krippendorff_alpha,
    pairwise_agreement,
)
from heart_utils.agreement.panel import (
    alternative_annotator_test,
    effective_judges,
    estimate_ceiling,
)
from heart_utils.ratings.resampling import draw_weights
from heart_utils.ratings.verdicts import AgreementError, combine_orders
from heart_utils.simulate.study import Panel, simulate_study

SWAP = {"a": "b", "b": "a", "tie": "tie"}


def first_row(table, **settings):
    return pairwise_agreement(table, **{"by": [], "n_resamples": 0, **settings}).table.iloc[0]


@pytest.fixture(scope="module")
def mtbench(mirror):
    from heart_utils.sources.load import load_verdicts

    verdicts = load_verdicts("mtbench")
    return verdicts[~verdicts["rater"].str.startswith("author")]


@pytest.mark.mirror
@pytest.mark.parametrize(
    ("turn", "between", "ties", "percent", "n_votes"),
    [
        ("turn_1", ("human", "gpt-4"), "include", 66, 1343),
        ("turn_1", ("human", "gpt-4"), "exclude", 85, 859),
        ("turn_1", ("human", "human"), "include", 63, 721),
        ("turn_1", ("human", "human"), "exclude", 81, 479),
        ("turn_2", ("human", "gpt-4"), "include", 66, 1325),
        ("turn_2", ("human", "gpt-4"), "exclude", 85, 864),
        ("turn_2", ("human", "human"), "include", 67, 707),
        ("turn_2", ("human", "human"), "exclude", 82, 474),
    ],
)
def test_agreement_matches_the_published_table_of_mt_bench(
    mtbench, turn, between, ties, percent, n_votes
):
    """Zheng et al.

    2023, table 5: experts and GPT-4, whose contradictions between orders count as ties.
    """
    found = first_row(mtbench[mtbench["group"] == turn], between=between, ties=ties)
    assert found["n_votes"] == n_votes
    assert 100 * found["agreement"] == pytest.approx(percent, abs=0.5)


def test_three_people_and_a_judge_by_hand():
    table = votes(
        [
            ("x-y", "d", who, said)
            for who, said in zip(["p1", "p2", "p3", "m1"], "aaba", strict=True)
        ]
    )
    people = first_row(table, between=("human", "human"))
    assert first_row(table)["agreement"] == pytest.approx(2 / 3)
    assert people[["agreement", "n_votes", "n_pairs"]].tolist() == pytest.approx([1 / 3, 3, 1])


def test_the_answer_from_the_authors_names_looks_at_other_dialogues_only():
    # In d, people elsewhere prefer x (2 to 1), so x is guessed: right. In e they are 1 to 1: a
    # coin.
    # In f they prefer x (2 to 0): x is guessed, and the person there said y: wrong.
    table = votes([
        *[("x-y", "d", "p1", "a"), ("x-y", "d", "m1", "a")],
        *[("x-y", "e", "p1", "a"), ("x-y", "e", "p2", "a"), ("x-y", "e", "m1", "b")],
        *[("x-y", "f", "p1", "b"), ("x-y", "f", "m1", "b")],
    ])  # fmt: skip
    assert first_row(table)["author_only"] == pytest.approx((1 + 2 * 0.5 + 0) / 4)


def test_authors_that_nobody_judged_elsewhere_are_a_coin():
    table = votes(
        [
            ("x-y", "d", "p1", "a"),
            ("x-y", "d", "m1", "a"),
            ("x-z", "e", "p1", "b"),
            ("x-z", "e", "m1", "b"),
        ]
    )
    assert first_row(table, ties="exclude")["author_only"] == 0.5


def test_kappa_within_authors_by_hand():
    # x against y: people say a, a, b, b, the judge a, a, b, a, so p_e = 2/4 3/4 + 2/4 1/4 = 1/2.
    # x against z: all say a, so p_e = 1.
    # p_o = 7/8, p_e = (4 * 1/2 + 4 * 1) / 8 = 3/4, kappa = (1/8) / (1/4).
    rows = [
        ("x-y", f"d{k}", who, said)
        for k, pair in enumerate(["aa", "aa", "bb", "ba"])
        for who, said in zip(["p1", "m1"], pair, strict=True)
    ]
    rows += [("x-z", f"d{k}", who, "a") for k in range(4) for who in ("p1", "m1")]
    found = first_row(votes(rows))
    assert found["kappa_within"] == pytest.approx(1 / 2)
    assert found["kappa"] == pytest.approx(2 * 7 / 8 - 1)


@pytest.mark.parametrize("ties", ["include", "exclude"])
@pytest.mark.parametrize("between", [("human", "model"), ("human", "human"), ("model", "model")])
def test_counting_matrices_gives_what_going_through_all_pairs_of_votes_gives(rng, between, ties):
    table = random_votes(rng)
    equal, total, predicted = count_by_hand(table, *between, ties=ties)
    found = first_row(table, between=between, ties=ties)
    assert found["n_votes"] == total
    assert found["agreement"] == pytest.approx(equal)
    assert found["author_only"] == pytest.approx(predicted)


@settings(max_examples=6)
@given(seed=st.integers(0, 10_000), ties=st.sampled_from(["include", "exclude"]))
def test_swapping_sides_or_rows_changes_nothing(seed, ties):
    rng = np.random.default_rng(seed)
    table = random_votes(rng, n_dialogues=5, n_people=3)
    turned = rng.random(len(table)) < 0.5
    swapped = table.assign(
        responder_a=table["responder_a"].where(~turned, table["responder_b"]),
        responder_b=table["responder_b"].where(~turned, table["responder_a"]),
        verdict=table["verdict"].where(~turned, table["verdict"].map(SWAP)),
    ).sample(frac=1, random_state=seed)
    here, there = (first_row(one, ties=ties) for one in (table, swapped))
    pd.testing.assert_series_equal(here, there)


def test_intervals_resample_dialogues(rng):
    table = random_votes(rng, n_dialogues=60)
    found = pairwise_agreement(
        table, by=[], n_resamples=200, rng=np.random.default_rng(5)
    ).table.iloc[0]
    counts = [
        count_by_hand(rows, "human", "model", ties="include", guess=False)[:2]
        for _, rows in table.groupby("dialogue_id")
    ]
    share, n = np.array(counts).T
    weights = draw_weights(60, 200, np.random.default_rng(5))
    shares = (weights @ (share * n)) / (weights @ n)
    assert (found["agreement_low"], found["agreement_high"]) == pytest.approx(
        wilsons_interval(found["agreement"], shares, 60)
    )


@pytest.mark.parametrize("ties", ["include", "exclude"])
def test_what_the_names_say_is_learnt_anew_in_each_resample_without_copies_of_the_dialogue_itself(
    rng, ties
):
    """Leaving out every copy of the dialogue that is judged: the slow way, resample by resample."""
    table = random_votes(rng, n_dialogues=30, n_people=2, n_judges=1, miss=0.4)
    found = pairwise_agreement(
        table, by=[], ties=ties, n_resamples=3, rng=np.random.default_rng(5)
    ).table.iloc[0]
    labels = ["a", "b"] if ties == "exclude" else ["a", "tie", "b"]
    told = table[(table["rater_kind"] == "human") & table["verdict"].isin(labels)]
    met = told.merge(
        table.loc[(table["rater_kind"] == "model") & table["verdict"].isin(labels), ["pair_id"]],
        on="pair_id",
    )
    dialogues, shares = sorted(table["dialogue_id"].unique()), []
    for weights in draw_weights(30, 3, np.random.default_rng(5)):
        times = dict(zip(dialogues, weights, strict=True))
        right = total = 0.0
        for row in met.itertuples():
            same = (told["responder_a"] == row.responder_a) & (
                told["responder_b"] == row.responder_b
            )
            rest = told[same & (told["dialogue_id"] != row.dialogue_id)]
            counts = (
                rest["dialogue_id"]
                .map(times)
                .groupby(rest["verdict"])
                .sum()
                .reindex(labels, fill_value=0)
            )
            share = (counts == counts.max()) / (counts == counts.max()).sum()
            right += times[row.dialogue_id] * share[row.verdict]
            total += times[row.dialogue_id]
        shares.append(right / total)
    assert (found["author_only_low"], found["author_only_high"]) == pytest.approx(
        wilsons_interval(found["author_only"], shares, found["n_clusters"])
    )


def test_resamples_of_the_lead_are_centred_on_it(rng):
    """Names learnt from a resample know fewer dialogues: uncentred, the mean of the ends lies above
    the lead."""
    table = random_votes(rng, n_dialogues=60)
    found = first_row(table, ties="exclude", n_resamples=400, rng=np.random.default_rng(1))
    middle = (found["advantage_low"] + found["advantage_high"]) / 2
    assert middle == pytest.approx(
        found["advantage"], abs=0.1 * (found["advantage_high"] - found["advantage_low"])
    )


def test_one_dialogue_gives_no_interval():
    found = pairwise_agreement(
        votes([("x-y", "d", "p1", "a"), ("x-y", "d", "m1", "a")])
    ).table.iloc[0]
    assert np.isnan(found["agreement_low"])
    assert found["provisional"]


def test_failures_are_counted_and_inconsistent_answers_are_ties():
    table = votes([
        *[("x-y", "d", "p1", "tie"), ("x-y", "d", "m1", None)],
        *[("x-y", "e", "p1", "a"), ("x-y", "e", "m1", None)],
        *[("x-y", "f", "p1", "a"), ("x-y", "f", "m1", "a")],
    ])  # fmt: skip
    table["state"] = ["valid", "inconsistent", "valid", "unparsed", "valid", "valid"]
    found = pairwise_agreement(table, by=[], n_resamples=0)
    assert (found.table["agreement"][0], found.table["n_votes"][0], found.n_inconsistent) == (
        1.0,
        2,
        1,
    )
    assert found.left_out.to_dict() == {"unparsed": 1}


def test_a_probability_stands_for_the_word_that_is_not_there_and_does_not_contradict_it():
    table = votes(
        [("x-y", d, who, "a" if who == "p1" else None) for d in "de" for who in ("p1", "m1")]
    )
    assert first_row(table.assign(p_a=[None, 0.7, None, 0.2], state="valid"))["agreement"] == 0.5
    table = votes([("x-y", "d", "p1", "a"), ("x-y", "d", "m1", "b")])
    assert first_row(table.assign(p_a=[0.9, 0.5]))["agreement"] == 0
    with pytest.raises(AgreementError, match=r"`p_a` .*must not contradict .*; row 1 has 0\.8"):
        first_row(table.assign(p_a=[0.5, 0.8]))


def test_rows_are_divided_by_rater_and_by_what_pairs_share():
    table = votes([("x-y", d, who, "a") for d in "de" for who in ("p1", "m1", "m2")])
    table.loc[table["rater"] == "m2", "verdict"] = "b"
    table["slice"] = np.where(table["dialogue_id"] == "d", "standard", "adversarial")
    by_rater = pairwise_agreement(table, by=["rater"], n_resamples=0).table
    assert by_rater[["rater", "agreement"]].to_numpy().tolist() == [["m1", 1.0], ["m2", 0.0]]
    by_both = pairwise_agreement(table, by=["slice", "rater"], n_resamples=0).table
    assert by_both[["slice", "rater", "n_votes"]].to_numpy().tolist() == [
        [part, rater, 1] for part in ("adversarial", "standard") for rater in ("m1", "m2")
    ]


def test_a_pair_is_ambiguous_by_votes_that_are_not_the_ones_compared():
    # p1 and p2 against the judge; p3 and p4 split evenly, p3 and p5 do not.
    split = votes(
        [
            ("x-y", "d", who, said)
            for who, said in zip(["p1", "p3", "p4", "m1"], "aabb", strict=True)
        ]
    )
    found = pairwise_agreement(split, by=["ambiguity"], n_resamples=0).table.set_index("ambiguity")
    # Held out: p1 leaves a and b (split), p3 leaves a and b (split), p4 leaves a and a (clear).
    assert found["n_votes"].to_dict() == {"ambiguous": 2, "clear": 1}
    assert found["agreement"].to_dict() == {"ambiguous": 0.0, "clear": 1.0}
    people = pairwise_agreement(
        split, between=("human", "human"), by=["ambiguity"], n_resamples=0
    ).table
    # one other vote is left
    assert people[["ambiguity", "n_votes"]].to_numpy().tolist() == [["unknown", 3]]


def test_a_judge_counts_with_people_and_with_other_judges_but_not_with_itself():
    table = votes(
        [("x-y", "d", who, said) for who, said in [("m1", "a"), ("m2", "a"), ("m3", "b")]]
    )
    found = pairwise_agreement(table, between=("model", "model"), by=["rater"], n_resamples=0).table
    assert found[["rater", "agreement", "n_votes"]].to_numpy().tolist() == [
        ["m1", 0.5, 2],
        ["m2", 0.5, 2],
        ["m3", 0.0, 2],
    ]
    assert first_row(table, between=("m1", "model"))["n_votes"] == 2


MET = [("x-y", "d", "p1", "a"), ("x-y", "d", "m1", "a")]
SCORES = {"reply_id": ["r", "r"], "rater": ["p", "m"], "score": [3.0, 2], "dialogue_id": "d"}
MIXED = r"mixes text and other types, such as .* and .*astype\(str\)"
BAD = [
    (MET[:1], {}, {}, "No answer that counts is by 'model'. rater_kind is: human"),
    ([MET[0], ("x-z", "d", "m1", "a")], {}, {}, "human and model share no pair"),
    ([MET[0], ("x-y", "d", "p1", "b"), MET[1]], {}, {}, "more than once"),
    ([("x-y", "d", "p1", "both bad"), MET[1]], {}, {}, "must be one of a, tie, b; row 0"),
    (MET, {"responder_b": ["y", "z"]}, {}, "responders differs within .*: 'x and y' and"),
    (MET, {"protocol": ["heart", "likert"]}, {"by": ["protocol"]}, "protocol differs within"),
    (MET, {"dialogue_id": ["d", "e"]}, {}, "dialogue_id differs within"),
    (MET, {"dialogue_id": ["d", 7]}, {}, f"`dialogue_id` {MIXED}"),
    (MET, {"rater": ["p1", 7]}, {}, f"`rater` {MIXED}"),
    (MET, {"verdict": ["tie", "a"]}, {"ties": "exclude"}, "Nothing is decided: each of the 1 pairs.*ties='include'"),
    (MET, {"verdict": ["a", None], "score": [None, 3.0]}, {}, "mixes verdicts and scores"),
    (MET, {"verdict": None, **SCORES}, {}, "holds scores"),
    (MET, {}, {"ties": "drop"}, "ties must be"),
    (MET, {}, {"between": "human"}, "between names two rater groups"),
    (MET, {}, {"by": ["colour"]}, "colour"),
    (MET, {}, {"cluster": "street"}, "lack the column street"),
]  # fmt: skip


@pytest.mark.parametrize(("rows", "columns", "options", "message"), BAD)
def test_what_cannot_be_compared_is_refused_with_a_reason(rows, columns, options, message):
    with pytest.raises(AgreementError, match=message):
        pairwise_agreement(votes(rows).assign(**columns), **options)


def test_two_orders_are_not_two_raters():
    table = votes(
        [("x-y", "d", "m1", "a"), ("x-y", "d", "m1", "b"), ("x-y", "d", "p1", "a")]
    ).assign(order=["ab", "ba", "ab"])
    # an inconsistent answer is a tie, and the person said a
    assert first_row(table)["agreement"] == 0.0
    found, joined = pairwise_agreement(table), combine_orders(table.assign(repeat=0, state="valid"))
    assert (found.n_joined, found.n_inconsistent) == (1, 1)
    pd.testing.assert_frame_equal(found.table, pairwise_agreement(joined).table)


EVERYTHING = {
    "pairwise agreement": pairwise_agreement,
    "Cohen": lambda table: cohen_kappa(table[table["rater"].isin(["m1", "p1"])]),
    "Gwet": gwet_ac,
    "Krippendorff": krippendorff_alpha,
    "the ceiling": estimate_ceiling,
    "effective judges": effective_judges,
    "the annotator test": lambda table: alternative_annotator_test(table, "m1", epsilon=0.1),
}


@pytest.mark.parametrize("name", EVERYTHING)
def test_nothing_takes_two_orders_or_two_repeats_for_two_raters(name):
    once = random_votes(np.random.default_rng(3), n_dialogues=30, n_people=3, n_judges=2, miss=0.0)
    orders = pd.concat([once.assign(order="ab"), once.assign(order="ba")], ignore_index=True)
    for table in (orders, combine_orders(orders), orders.drop(columns="pair_id")):
        of_once, of_both = (EVERYTHING[name](rows) for rows in (once, table))
        assert str(getattr(of_both, "table", of_both)) == str(getattr(of_once, "table", of_once))
    repeats = pd.concat([once, once], ignore_index=True)
    with pytest.raises(AgreementError, match="more than once"):
        EVERYTHING[name](repeats)


def test_people_who_are_of_two_kinds_widen_the_interval_to_what_twenty_four_of_them_can_say():
    """Half always say what the judge says and half the opposite: 24 tosses of a coin, whatever the
    number of dialogues."""
    judge = [(d, "m", "model", "ab"[d % 2]) for d in range(60)]
    people = [
        (d % 60, f"p{p}", "human", "ab"[(d + p) % 2])
        for p in range(24)
        for d in range(5 * p, 5 * p + 5)
    ]  # two people a dialogue
    table = pd.DataFrame(judge + people, columns=["dialogue_id", "rater", "rater_kind", "verdict"])
    table = table.assign(pair_id=table["dialogue_id"], responder_a="x", responder_b="y")
    for between in (("human", "model"), ("model", "human")):
        found = pairwise_agreement(
            table, between=between, by=[], cluster=["dialogue_id", "rater"], n_resamples=200
        ).table.iloc[0]
        half = (found["agreement_high"] - found["agreement_low"]) / 2
        # Student's t of 23 degrees of freedom
        assert half == pytest.approx(2.07 * 0.5 / np.sqrt(24 - 1), rel=0.1)


@pytest.mark.parametrize("ties", ["include", "exclude"])
def test_how_much_fits_in_memory_at_a_time_changes_no_number(monkeypatch, ties):
    panels = [Panel("human", 6, 3, ties=0.3), Panel("model", 1, 1)]
    rows = simulate_study(
        rng=np.random.default_rng(3), strengths=5, n_dialogues=30, pairs=6, panels=panels
    ).verdicts
    at_once = pairwise_agreement(rows, ties=ties, n_resamples=30).table
    monkeypatch.setattr(agreement, "CHUNK_CELLS", 200)
    pd.testing.assert_frame_equal(
        pairwise_agreement(rows, ties=ties, n_resamples=30).table, at_once
    )
