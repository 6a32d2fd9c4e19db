"""What a judge can be trusted with: report cards, halo and self-preference, with known truth."""

from itertools import permutations, product

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from statsmodels.stats.proportion import proportion_confint

from heart_utils.judges.position import BiasError
from heart_utils.judges.report_card import (
    NOT_DISTINCT,
    describe_judges,
    family_ties,
    grade_probes,
    measure_halo,
    self_preference,
    smallest_right,
)
from heart_utils.sources.load import load_responders, load_scores

EXPECTED = {"bare": "worse", "echo": "worse", "padded": "not_better", "says-ai": "even"}


def judge(says, n=24, rater="judge", lead=None):
    """Let a judge answer both orders: `says(probe, base_first, number)` is whether it takes the
    base, or None for a tie; with `lead` it gives the first reply 0.9, and the base so much more."""
    rows = []
    for probe, number, order in product(EXPECTED, range(n), ("ab", "ba")):
        base_is_a = probe > "reference"
        a, b = ("reference", probe) if base_is_a else (probe, "reference")
        base_first = base_is_a == (order == "ab")
        took = says(probe, base_first, number)
        verdict = "tie" if took is None else "a" if took == base_is_a else "b"
        p_base = np.nan if lead is None else (0.9 if base_first else 0.1) + lead
        p_a = p_base if base_is_a else 1.0 - p_base
        rows.append((f"d{number}", f"{probe}-{number}", order, a, b, verdict, p_a))
    names = ["dialogue_id", "pair_id", "order", "responder_a", "responder_b", "verdict", "p_a"]
    about = {"rater": rater, "dimension": "overall", "state": "valid", "repeat": 0}
    return pd.DataFrame(rows, columns=names).assign(**about)


def always(probe, first, number):
    return True


def knows(probe, first, number):
    return None if probe == "says-ai" else True


def card(verdicts):
    grades = grade_probes(verdicts, EXPECTED)
    return grades.set_index("probe")["outcome"].to_dict(), describe_judges(grades).iloc[0]


def test_a_judge_that_knows_passes():
    outcomes, described = card(judge(knows))
    assert outcomes == {
        "bare": "recognised",
        "echo": "recognised",
        "padded": "marks it down",
        "says-ai": "no effect shown",
    }
    assert described["finding"] == "passed these probes"


def test_a_judge_that_takes_whatever_comes_first_is_not_to_be_trusted():
    verdicts = judge(lambda probe, first, number: first)
    grades = grade_probes(verdicts, EXPECTED)
    assert (grades["right"] == 0.5).all()
    assert (grades["p"] == 1.0).all()
    assert (grades["contradicted"] == 1.0).all()
    described = describe_judges(grades).iloc[0]
    assert described["finding"] == "not to be trusted"
    assert "contradicts itself in 100 % of pairs" in described["reasons"]


def test_a_judge_that_pays_for_padding_is_found_out():
    outcomes, described = card(judge(lambda probe, first, number: probe != "padded"))
    assert outcomes["padded"] == "rewards it"
    assert described["finding"] == "not to be trusted"
    assert described["reasons"] == "rewards padded"


def test_a_judge_with_probabilities_is_right_by_their_mean_over_orders_however_strong_its_lean():
    """It gives the first reply .9 whatever it is, and the better one .02 more."""
    verdicts = judge(lambda probe, first, number: first, lead=0.02)
    grades = grade_probes(verdicts, EXPECTED)
    assert (grades["right"] == 1.0).all()
    assert (grades["contradicted"] == 1.0).all()


def test_a_coin_tells_nothing_in_almost_all_cards():
    """Holm over four probes: any false finding in at most 5 % of cards; sign tests are
    conservative."""
    rng = np.random.default_rng(3)
    wrong = 0
    for _ in range(15):
        coin = {(probe, number): rng.random() < 0.5 for probe in EXPECTED for number in range(24)}
        grades = grade_probes(
            judge(lambda probe, first, number, coin=coin: coin[probe, number]), EXPECTED
        )
        wrong += (grades["p_holm"] <= 0.05).any()
    assert wrong <= 4  # more has a chance of 0.001 at 5 %


def test_p_values_are_corrected_for_the_probes_of_one_judge_and_not_for_other_judges():
    """Right in 19, 17, 12 and 24 of 24; the other judge in all, which would make the first one's p
    values larger."""
    right = dict(zip(EXPECTED, (19, 17, 12, 24), strict=True))
    one = judge(lambda probe, first, number: number < right[probe])
    grades = grade_probes(pd.concat([one, judge(always, rater="other")]), EXPECTED)
    p = [stats.binomtest(n, 24).pvalue for n in right.values()]
    mine = grades[grades["rater"] == "judge"].set_index("probe").loc[list(EXPECTED)]
    assert mine["p"].tolist() == pytest.approx(p)
    assert mine["p_holm"].tolist() == pytest.approx([3 * p[0], 2 * p[1], p[2], 4 * p[3]])


def test_the_interval_is_wilsons_at_the_error_of_the_mean_over_dialogues():
    """By statsmodels: as many observations as have this error, with a t quantile of 14 degrees of
    freedom."""
    whole = grade_probes(judge(always), EXPECTED).iloc[0]
    # 24 of 24: n / (n + t squared), with 23 degrees of freedom
    assert whole["ci_low"] == pytest.approx(24 / (24 + 2.068658**2), abs=1e-6)
    row = grade_probes(judge(lambda probe, first, number: number < 12, n=15), EXPECTED).iloc[0]
    assert row["p"] == pytest.approx(2 * (455 + 105 + 15 + 1) / 2**15)  # 12 of 15 by hand
    error = stats.sem([1.0] * 12 + [0.0] * 3)
    n, alpha = 0.8 * 0.2 / error**2, 2 * stats.norm.sf(stats.t.ppf(0.975, 14))
    assert (row["ci_low"], row["ci_high"]) == pytest.approx(
        proportion_confint(0.8 * n, n, alpha=alpha, method="wilson")
    )


@pytest.mark.parametrize(("n", "provisional"), [(29, True), (30, False)])
def test_a_card_of_few_dialogues_is_provisional(n, provisional):
    assert set(grade_probes(judge(always, n=n), EXPECTED)["provisional"]) == {provisional}


def test_cards_come_by_judge_and_each_card_in_the_order_of_what_is_expected():
    both = pd.concat([judge(always, rater=rater) for rater in ("k", "j")])
    grades = grade_probes(both, EXPECTED)
    assert list(zip(grades["rater"], grades["probe"], strict=True)) == [
        (rater, probe) for rater in "jk" for probe in EXPECTED
    ]
    assert describe_judges(grades.iloc[::-1])["rater"].tolist() == ["j", "k"]


@pytest.mark.parametrize(
    ("told", "of", "contradicted", "finding"),
    [
        (5, 5, 0.0, "passed these probes"),
        (5, 5, 0.49, "passed these probes"),
        (5, 5, 0.5, "not to be trusted"),
        (4, 5, 0.0, "not shown to be trustworthy"),
        (3, 6, 0.0, "not shown to be trustworthy"),
        (2, 5, 0.0, "not to be trusted"),
        (0, 1, 0.0, "not to be trusted"),
    ],
)
def test_who_tells_or_repeats_fewer_than_half_is_not_to_be_trusted(told, of, contradicted, finding):
    outcomes = ["recognised"] * told + ["not recognised"] * (of - told)
    card = pd.DataFrame(
        {"rater": "judge", "probe": range(of), "expected": "worse", "outcome": outcomes, "n": 24}
    )
    row = describe_judges(card.assign(contradicted=contradicted)).iloc[0]
    assert (row["finding"], row["told"], row["of"]) == (finding, told, of)
    if not contradicted:
        assert row["reasons"] == ("" if told == of else f"recognises {told} of {of} spoilt replies")


def test_one_pair_is_an_answer_but_tells_nothing():
    outcomes, described = card(judge(always, n=1))
    assert outcomes["bare"] == "not recognised"
    assert described["finding"] == "not to be trusted"


def test_a_judge_that_tells_some_of_the_spoilt_replies_or_was_not_asked_about_all_does_not_pass():
    described = card(
        judge(
            lambda probe, first, number: (
                probe == "bare" or (None if probe == "says-ai" else number % 2)
            )
        )
    )[1]
    assert (described["finding"], described["reasons"]) == (
        "not shown to be trustworthy",
        "recognises 1 of 2 spoilt replies",
    )
    some = grade_probes(judge(knows), EXPECTED).assign(
        n=lambda table: table["n"].where(table["probe"] != "padded", 0)
    )
    assert describe_judges(some).iloc[0]["finding"] == "not shown to be trustworthy"


def test_failed_answers_are_counted_and_never_ties():
    verdicts = judge(always)
    failed = verdicts["dialogue_id"].isin(["d0", "d1"])
    verdicts = verdicts.assign(
        state=np.where(failed, "unparsed", "valid"), verdict=verdicts["verdict"].mask(failed)
    )
    grades = grade_probes(verdicts, EXPECTED)
    assert grades["n_failed"].tolist() == [2] * 4
    assert grades["right"].tolist() == [1.0] * 4
    nothing = verdicts.assign(state="refused", verdict=None)
    outcomes, described = card(nothing)
    assert set(outcomes.values()) == {"no valid answer"}
    assert described["finding"] == "no valid answer"


def test_another_pair_among_the_verdicts_is_refused():
    verdicts = judge(always)
    verdicts.loc[0, "responder_a"] = "somebody"
    with pytest.raises(BiasError, match="somebody"):
        grade_probes(verdicts, EXPECTED)
    with pytest.raises(BiasError, match="better"):
        grade_probes(judge(always), {"bare": "better"})


def test_a_judge_asked_in_one_order_or_that_seldom_answers_or_met_no_spoilt_reply_does_not_pass():
    """It always takes the first, and the unspoilt reply is first; it answers 6 of 24 dialogues; it
    was shown nothing that is spoilt."""
    first = judge(always)
    base_is_a = first["responder_a"] == "reference"
    one_order = first[base_is_a == (first["order"] == "ab")]
    assert card(one_order)[1]["finding"] == "not shown to be trustworthy"
    assert "both first and second" in card(one_order)[1]["reasons"]
    late = first["dialogue_id"].isin([f"d{number}" for number in range(6, 24)])
    seldom = first.assign(
        state=first["state"].mask(late, "unparsed"), verdict=first["verdict"].mask(late)
    )
    assert "recognised" not in card(seldom)[0].values()
    assert card(seldom)[1]["finding"] == "not to be trusted"
    even = judge(lambda probe, first, number: None)
    grades = grade_probes(even[even["pair_id"].str.startswith("says-ai")], {"says-ai": "even"})
    assert describe_judges(grades)["finding"].tolist() == ["not shown to be trustworthy"]


@pytest.mark.parametrize("n", [6, 12, 30])
def test_the_smallest_share_that_shows_is_found_four_times_in_five(n):
    """Against the power of the sign test, summed over all its outcomes."""
    right = smallest_right(n, 0.05)
    found = [k for k in range(n + 1) if stats.binomtest(k, n).pvalue <= 0.05 and 2 * k > n]
    assert stats.binom.pmf(found, n, right).sum() == pytest.approx(0.8)
    assert np.isnan(smallest_right(5, 0.05))  # five dialogues show nothing


def table_of(block, responders="wxyz", raters="jkl", dimensions=("empathy", "safety", "warmth")):
    """Lay a block (conversations, responders, raters, dimensions) out as scores."""
    c, a, r, d = np.unravel_index(np.arange(block.size), block.shape)
    history = [f"c{number:03d}" for number in c]
    return pd.DataFrame(
        {
            "history_id": history,
            "dialogue_id": history,
            "responder": np.array(list(responders))[a],
            "rater": np.array(list(raters))[r],
            "dimension": np.array(dimensions)[d],
            "score": block.ravel(),
            "state": "valid",
            "rater_kind": "model",
        }
    )


def of_two_kinds(table):
    return table.assign(rater_kind=np.where(table["rater"] == "j", "human", "model"))


def world(rng, *, distinct, n=80, noise=0.7):
    """A reply has one quality that all dimensions share, and one of each dimension's own with
    weight `distinct`."""
    shared = rng.normal(0, 1, (n, 4, 1, 1))
    own = rng.normal(0, 1, (n, 4, 1, 3))
    easy, author = rng.normal(0, 1, (n, 1, 1, 1)), rng.normal(0, 1, (1, 4, 1, 3))
    return shared + distinct * own + easy + author + noise * rng.normal(0, 1, (n, 4, 3, 3))


def test_dimensions_that_are_one_are_not_shown_to_be_distinct(rng):
    found = measure_halo(table_of(world(rng, distinct=0.0)), rng=rng)
    assert set(found.dimensions["label"]) == {NOT_DISTINCT}
    assert ((found.dimensions["ci_low"] < 0.02) & (found.dimensions["ci_high"] > -0.02)).all()
    assert found.dimensions["convergent"].min() > 0.5


def test_dimensions_with_a_part_of_their_own_are_told_apart(rng):
    found = measure_halo(table_of(world(rng, distinct=1.0)), rng=rng)
    assert set(found.dimensions["label"]) == {""}
    # Residuals: shared 1, own 1, noise .49; convergent 2 / 2.49, discriminant 1 / 2.49.
    assert found.dimensions["convergent"].mean() == pytest.approx(2 / 2.49, abs=0.05)
    assert found.dimensions["discriminant"].mean() == pytest.approx(1 / 2.49, abs=0.07)


def correlations_of(block):
    """Correlations of the residuals of a two-way layout, by (rater, dimension, rater,
    dimension)."""
    left = (
        block
        - block.mean(axis=1, keepdims=True)
        - block.mean(axis=0, keepdims=True)
        + block.mean(axis=(0, 1), keepdims=True)
    )
    return np.corrcoef(left.reshape(-1, 9), rowvar=False).reshape(3, 3, 3, 3)


def test_correlations_match_residuals_of_a_two_way_layout_by_numpy(rng):
    block = world(rng, distinct=0.5, n=30)
    found, table = measure_halo(table_of(block), rng=rng, n_resamples=2), correlations_of(block)
    for place, (_, row) in enumerate(found.dimensions.iterrows()):
        met = [table[one, place, other] for one, other in permutations(range(3), 2)]
        assert row["convergent"] == pytest.approx(np.mean([line[place] for line in met]))
        assert row["discriminant"] == pytest.approx(
            np.mean([np.delete(line, place) for line in met])
        )
        assert row["difference"] == pytest.approx(row["convergent"] - row["discriminant"])
    first = np.linalg.eigvalsh(table[0, :, 0])[-1] / 3
    assert found.raters.set_index("rater").loc["j", "first_share"] == pytest.approx(first)


def test_judges_that_agree_do_not_make_a_dimension_distinct_for_people(rng):
    """Two judges see the same three dimensions; the person sees only what these share."""
    shared, own = rng.normal(0, 1, (150, 4, 1, 1)), rng.normal(0, 1, (150, 4, 1, 3))
    noise = rng.normal(0, 1, (150, 4, 3, 3))
    block = (
        shared
        + own * np.array([0.0, 1.0, 1.0])[:, None]
        + noise * np.array([0.7, 0.4, 0.4])[:, None]
    )
    found = measure_halo(of_two_kinds(table_of(block)), rng=rng, n_resamples=300)
    labels = found.dimensions.groupby("kinds")["label"].unique()
    assert labels["human with model"].tolist() == [NOT_DISTINCT]
    assert labels["model with model"].tolist() == [""]


def test_another_scale_changes_nothing_and_the_first_share_lies_between_its_ends(rng):
    block = world(rng, distinct=0.5)
    one, other = (
        measure_halo(table_of(part), rng=np.random.default_rng(1), n_resamples=50)
        for part in (block, block / 100)
    )
    pd.testing.assert_frame_equal(one.dimensions, other.dimensions)
    shares = one.raters
    assert ((shares["ci_low"] > 1 / 3) & (shares["ci_low"] < shares["first_share"])).all()
    assert ((shares["first_share"] < shares["ci_high"]) & (shares["ci_high"] < 1.0)).all()


def test_the_second_criterion_by_correlations_of_residuals(rng):
    block = world(rng, distinct=0.3)
    found, r = measure_halo(table_of(block), rng=rng, n_resamples=2), correlations_of(block)
    row = found.second.set_index(["one", "other", "dimension"]).loc[("j", "l", "safety")]
    assert row["convergent"] == pytest.approx(r[0, 1, 2, 1])
    assert row["same_rater"] == pytest.approx(
        np.mean([r[who, 1, who, other] for who in (0, 2) for other in (0, 2)])
    )
    assert row["holds"] == (row["convergent"] > row["same_rater"])
    assert len(found.second) == 3 * 3


def test_the_false_alarm_rate_over_dimensions_is_held(rng):
    """One factor, 20 worlds: Holm keeps 'at least one dimension is distinct' near 5 %, of which
    only half can show."""
    alarms = sum(
        (
            measure_halo(
                table_of(world(rng, distinct=0.0, n=40)), rng=rng, n_resamples=100
            ).dimensions["label"]
            == ""
        ).any()
        for _ in range(20)
    )
    assert alarms <= 3  # more has a chance of 0.002 at 2.5 %


def test_p_values_are_corrected_for_the_dimensions_of_one_kind_of_pair_and_tables_are_numbered(rng):
    table = of_two_kinds(table_of(world(rng, distinct=0.25, n=40)))
    found = measure_halo(table, rng=rng, n_resamples=100)
    for rows in (found.dimensions, found.second, found.raters):
        assert rows.index.tolist() == list(range(len(rows)))
    for _, rows in found.dimensions.groupby("kinds"):
        p = rows["p"].sort_values()
        by_hand = (p * [3, 2, 1]).cummax().clip(upper=1.0)
        assert rows["p_holm"].to_dict() == pytest.approx(by_hand.to_dict())
        assert not np.allclose(rows["p_holm"], rows["p"])


def test_a_p_value_is_one_less_the_level_at_which_the_interval_ends_at_zero(rng):
    table = table_of(world(rng, distinct=0.3, n=25))
    found = measure_halo(table, rng=np.random.default_rng(3), n_resamples=100).dimensions
    for place, p in enumerate(found["p"]):
        row = measure_halo(
            table, rng=np.random.default_rng(3), n_resamples=100, ci_level=1.0 - p
        ).dimensions.iloc[place]
        assert 0.0 < p < 1.0
        assert min(abs(row["ci_low"]), abs(row["ci_high"])) == pytest.approx(0.0, abs=1e-9)


def test_a_dimension_is_distinct_by_the_p_value_that_is_corrected_for_all_of_them(rng):
    """In some of these worlds an interval excludes zero that is not enough among three."""
    worlds = [
        measure_halo(table_of(world(rng, distinct=0.25, n=25)), rng=rng, n_resamples=60).dimensions
        for _ in range(12)
    ]
    rows = pd.concat(worlds)
    assert ((rows["ci_low"] > 0) & (rows["p_holm"] > 0.05)).any()
    assert ((rows["label"] == "") == ((rows["p_holm"] <= 0.05) & (rows["difference"] > 0))).all()


@pytest.mark.parametrize(("n", "provisional"), [(29, True), (30, False)])
def test_halo_in_few_dialogues_is_provisional(rng, n, provisional):
    found = measure_halo(table_of(world(rng, distinct=0.5, n=n)), rng=rng, n_resamples=2)
    assert (found.n_clusters, found.provisional) == (n, provisional)


def test_the_share_of_dimensions_that_are_one_is_all_with_the_doubt_that_few_dialogues_leave(rng):
    raters = measure_halo(
        table_of(world(rng, distinct=0.0, n=12, noise=0.0)), rng=rng, n_resamples=50
    ).raters
    assert raters["first_share"].tolist() == pytest.approx([1.0] * 3)
    assert raters["ci_high"].tolist() == pytest.approx([1.0] * 3)
    # t with 11 degrees of freedom
    assert raters["ci_low"].tolist() == pytest.approx([12 / (12 + 2.200985**2)] * 3, abs=1e-6)


def test_all_scores_at_the_ceiling_are_no_evidence_either_way(rng):
    found = measure_halo(table_of(np.full((20, 4, 3, 3), 5.0)), rng=rng)
    assert set(found.dimensions["label"]) == {"no variation to compare"}
    assert found.raters["first_share"].isna().all()


def test_one_dimension_at_the_ceiling_leaves_the_others_standing(rng):
    block = world(rng, distinct=1.0)
    block[..., 2] = 5.0
    labels = measure_halo(table_of(block), rng=rng).dimensions.set_index("dimension")["label"]
    assert labels["warmth"] == "no variation to compare"
    assert labels.drop("warmth").tolist() == ["", ""]


def test_a_conversation_with_a_score_missing_is_left_out_and_counted(rng):
    table = table_of(world(rng, distinct=1.0, n=10))
    table.loc[5, "state"] = "unparsed"
    found = measure_halo(table, rng=rng, n_resamples=2)
    assert (found.n_histories, found.n_left_out) == (9, 1)


def test_what_cannot_be_measured_is_refused_with_the_reason(rng):
    table = table_of(world(rng, distinct=1.0, n=5))
    with pytest.raises(BiasError, match="1 raters"):
        measure_halo(table[table["rater"] == "j"], rng=rng)
    with pytest.raises(BiasError, match="None of 5"):
        measure_halo(table.assign(state=np.where(table["rater"] == "j", "error", "valid")))
    with pytest.raises(BiasError, match="twice"):
        measure_halo(pd.concat([table, table]), rng=rng)


RATERS = {"j": "model", "k": "model", "people": "human"}
WHO = pd.DataFrame({"responder": ["mine", "free", "also_free"], "responder_kind": "model"})


def scores_of(values, n=40):
    """Scores by (rater, responder) in each of n conversations; values may be functions of the
    conversation."""
    rows = [
        (f"c{number:03d}", responder, rater, value(number) if callable(value) else value)
        for number in range(n)
        for (rater, responder), value in values.items()
    ]
    table = pd.DataFrame(rows, columns=["dialogue_id", "responder", "rater", "score"])
    own = (table["rater"] == "j") & (table["responder"] == "mine")
    return table.assign(
        reply_id=table["dialogue_id"] + table["responder"],
        history_id=table["dialogue_id"],
        rater_kind=table["rater"].map(RATERS),
        dimension="empathy",
        state="valid",
        flags=[["own_family"] if mine else [] for mine in own],
    )


KEYS = [("j", "mine"), ("j", "free"), ("k", "mine"), ("k", "free")]
PLAIN = dict(zip(KEYS, (lambda c: 4 + c % 2, 3, 4, 3), strict=True))


def prefer(values, n=40, **how):
    """Measure the preference of j in drawn or constant scores by rater and responder."""
    scores = values if isinstance(values, pd.DataFrame) else scores_of(values, n)
    return self_preference(scores, WHO, **({"rng": np.random.default_rng(1)} | how))


def drawn_scores(lines, keys=KEYS, n=40):
    values = {key: dict(enumerate(line)).get for key, line in zip(keys, lines, strict=True)}
    return scores_of(values, n)


def pick(table, against="judges", scale="score"):
    return table[(table["against"] == against) & (table["scale"] == scale)].iloc[0]


def test_the_estimate_is_a_difference_of_differences():
    by_hand = {("j", "mine"): lambda c: 4 + c % 2, ("j", "free"): 3, ("k", "mine"): lambda c: 3 + c % 2, ("k", "free"): 2.5,
               ("people", "mine"): 2, ("people", "free"): 2}  # fmt: skip
    found = prefer(by_hand)
    assert pick(found)["estimate"] == pytest.approx((4.5 - 3) - (3.5 - 2.5))
    assert pick(found)[["own_judge", "own_others"]].tolist() == pytest.approx([4.5 - 3, 3.5 - 2.5])
    assert pick(found, "people")["estimate"] == pytest.approx((4.5 - 3) - 0)
    # Means of 4.5, 3, 3.5, 2.5 lie 7/8, 1/2, 5/8, 3/8 of the way from 1 to 5: odds of 7, 1, 5/3,
    # 3/5.
    assert pick(found, scale="logit")["estimate"] == pytest.approx(
        np.log(7 / 1) - np.log((5 / 3) / (3 / 5))
    )


def test_a_good_reply_and_a_mild_judge_are_no_self_preference():
    """All see the same replies; j is milder to everybody.

    The shift cancels, and so does what replies are worth.
    """
    worth = lambda c: 2 + c % 3  # noqa: E731
    values = {("j", "mine"): lambda c: worth(c) + 1, ("j", "free"): lambda c: worth(c), ("k", "mine"): worth,
              ("k", "free"): lambda c: worth(c) - 1}  # fmt: skip
    assert pick(prefer(values))["estimate"] == pytest.approx(0)


def test_divergence_that_judges_share_is_not_self_preference():
    values = {("j", "mine"): lambda c: 4 + c % 2, ("j", "free"): 3, ("k", "mine"): lambda c: 4 + (c + 1) % 2, ("k", "free"): 3,
              ("people", "mine"): 3, ("people", "free"): 3}  # fmt: skip
    found = prefer(values)
    assert pick(found)["estimate"] == pytest.approx(0)
    assert pick(found)["ci_low"] < 0 < pick(found)["ci_high"]
    assert pick(found, "people")["estimate"] == pytest.approx(1.5)


def test_a_known_preference_is_recovered_and_its_interval_is_about_right():
    rng = np.random.default_rng(7)
    hits = 0
    for _ in range(12):
        worth, noise = rng.normal(3, 0.6, (60, 2)), rng.normal(0, 0.3, (60, 4))
        drawn = np.column_stack([worth + noise[:, :2], worth + noise[:, 2:]])
        drawn[:, 0] += 0.2
        row = pick(prefer(drawn_scores(drawn.T, n=60), rng=rng, n_resamples=100))
        hits += row["ci_low"] <= 0.2 <= row["ci_high"]
    assert hits >= 9  # of 12 at 95 %; fewer has a chance of 0.002


def test_p_values_are_corrected_for_dimensions_on_one_scale_against_one_kind_of_rater():
    drawn = np.random.default_rng(5).normal(3, 0.5, (2, 6, 30))
    keys = [(rater, responder) for rater in ("j", "k", "people") for responder in ("mine", "free")]
    one, other = (drawn_scores(part, keys, 30) for part in drawn)
    found = prefer(pd.concat([one.assign(dimension="warmth"), other]), n_resamples=100)
    assert found["dimension"].unique().tolist() == ["empathy", "warmth"]
    for _, rows in found.groupby(["against", "scale"]):
        least, most = rows["p"].sort_values()
        assert sorted(rows["p_holm"]) == pytest.approx(
            sorted([min(2 * least, 1.0), max(most, min(2 * least, 1.0))])
        )
        assert rows["p_holm"].min() > least


def test_scores_at_the_ceiling_have_no_logit_and_say_so():
    values = {("j", "mine"): 5, ("j", "free"): 5, ("k", "mine"): 5, ("k", "free"): 5}
    found = prefer(values)
    assert pick(found, scale="logit")["why"].startswith("a mean lies at the end")
    assert np.isnan(pick(found, scale="logit")["estimate"])
    assert pick(found)["why"] == "the scores do not vary"
    assert pick(found)["ceiling"] == 1.0
    # the judge's own, and of the others nothing
    some = prefer(dict(zip(KEYS, (5, 3, 4, 3), strict=True)), n_resamples=2)
    assert pick(some)["ceiling"] == 0.5


@pytest.mark.parametrize(("n", "provisional"), [(29, True), (30, False)])
def test_an_estimate_from_few_conversations_is_provisional(n, provisional):
    row = pick(prefer(PLAIN, n, n_resamples=10))
    assert (row["n_clusters"], row["provisional"]) == (n, provisional)


def test_the_interval_lies_about_the_estimate_and_ends_at_zero_at_the_level_of_its_p_value():
    scores = drawn_scores(np.random.default_rng(8).normal(3, 0.8, (4, 20)), n=20)
    row = pick(prefer(scores, n_resamples=100))
    # by t, with so few conversations
    assert (row["ci_low"] + row["ci_high"]) / 2 == pytest.approx(row["estimate"])
    again = prefer(scores, n_resamples=100, ci_level=1.0 - row["p"])
    assert min(abs(pick(again)[["ci_low", "ci_high"]])) == pytest.approx(0.0, abs=1e-9)


def test_a_resample_at_the_end_of_the_scale_takes_no_estimate_away():
    """One conversation of four keeps the judge from the top: many resamples leave it out, and have
    no logit."""
    values = dict(zip(KEYS, (lambda c: 5 - (c == 0), lambda c: 3 + c % 2, 4, 3), strict=True))
    found = [
        prefer(values, 4, rng=np.random.default_rng(seed), n_resamples=20) for seed in range(8)
    ]
    assert len({round(pick(table, scale="logit")["estimate"], 9) for table in found}) == 1
    assert {pick(table, scale="logit")["why"] for table in found} == {""}


@pytest.mark.parametrize(
    ("lost", "counts"), [({"dialogue_id": "c000"}, (79, 1, True)), ({}, (40, 40, False))]
)
def test_a_failed_score_takes_its_reply_out_for_everybody_and_is_counted(lost, counts):
    scores = scores_of(PLAIN)
    where = {"rater": "k", "responder": "mine"} | lost
    failed = (scores[list(where)] == pd.Series(where)).all(axis=1)
    found = pick(prefer(scores.assign(state=np.where(failed, "unparsed", "valid"))))
    known = not np.isnan(found["estimate"])
    assert (found["n_replies"], found["n_left_out"], known) == counts


def test_a_judge_whose_answers_all_failed_has_no_estimate_and_no_ceiling():
    scores = scores_of(PLAIN)
    scores.loc[scores["rater"] == "j", "state"] = "error"
    found = pick(prefer(scores, n_resamples=20))
    assert found["n_replies"] == 0
    assert found[["estimate", "ceiling"]].isna().all()


def test_without_own_replies_or_neutral_ones_there_is_an_error_that_says_which():
    table = scores_of({("j", "mine"): 4, ("k", "mine"): 3})
    with pytest.raises(BiasError, match="shares a family"):
        family_ties(table, WHO)
    with pytest.raises(BiasError, match="own_family"):
        family_ties(table.assign(flags=[[] for _ in range(len(table))]), WHO)


@pytest.mark.slow
@pytest.mark.mirror
def test_claude_on_empathy_diverges_from_clinicians_much_more_than_from_other_judges(mirror):
    """.08 by judges of other families on the same replies, as this project found before; .43 by
    clinicians,
    over replies that both scored."""
    scores = load_scores("mentalalign")
    scores = scores[scores["dimension"] == "empathy"]
    found = self_preference(
        scores, load_responders("mentalalign"), rng=np.random.default_rng(1), n_resamples=100
    )
    claude = found[(found["rater"] == "claude-3.7-sonnet") & (found["scale"] == "score")].set_index(
        "against"
    )
    assert claude.loc["judges", "estimate"] == pytest.approx(0.08, abs=0.005)
    assert claude.loc["people", "estimate"] == pytest.approx(0.43, abs=0.005)
    wide = scores[scores["state"] == "valid"].pivot_table(
        index="reply_id", columns="rater", values="score"
    )
    judges = ["claude-3.7-sonnet", "gemini-2.5-flash", "gpt-4o", "o4-mini"]
    wide = wide.dropna(subset=judges).assign(by=lambda t: t.index.str.split("--").str[1])
    own = wide["by"] == "claude-3.5-haiku"
    free = wide["by"].isin(
        ["deepseek-llama-8b", "deepseek-qwen-7b", "llama-3.1-8b", "qwen-2.5-7b", "qwen-3-4b"]
    )
    # a second way, without resampling
    gaps = wide.loc[own, judges].mean() - wide.loc[free, judges].mean()
    assert claude.loc["judges", "estimate"] == pytest.approx(
        gaps[judges[0]] - gaps[judges[1:]].mean(), abs=1e-9
    )
