"""Report cards: judges whose answers are known get the words they deserve."""

from itertools import product

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from statsmodels.stats.proportion import proportion_confint

from heart_utils.judges.position import BiasError
from heart_utils.judges.report_card import describe_judges, grade_probes, smallest_right

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
