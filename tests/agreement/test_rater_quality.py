"""Careless raters and the rule that leaves them out, Dawid and Skene's model, and writers."""

from itertools import product

import numpy as np
import pandas as pd
import pytest
from builders import verdicts
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from heart_utils.agreement import raters
from heart_utils.agreement.raters import (
    ExclusionRule,
    _longest_run,
    _run_probability,
    dawid_skene,
    decide_exclusions,
    paule_mandel,
    rate_writers,
    rater_quality,
    rater_reliability,
    split_writers,
)
from heart_utils.ratings.verdicts import AgreementError, RatingsError
from heart_utils.simulate.study import BEHAVIOURS, simulate_raters, simulate_writers
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


@pytest.mark.parametrize(
    ("said", "agreement", "n_compared"),
    [
        # r1: others a, b: split, 1/2; others b, b: 0; others tie, a: 0. r2: twice others a, b: 1/2;
        # a tie is not compared. r3: others a, a: 0; others a, b: 1/2; other b: 0.
        ({"r1": "aab", "r2": "abt", "r3": "bba"}, [0.5 / 3, 1 / 2, 0.5 / 3], [3, 2, 3]),
        # r1: others a, b: 1/2; other b: 0; others tie; other b: 1. r2: others a, b: 1/2; other
        # b: 1. r3: others a, a: 0; other a: 0.
        ({"r1": "aaab", "r2": "a.tb", "r3": "bbt."}, [1.5 / 3, 3 / 4, 0], [3, 2, 2]),
    ],
)
def test_agreement_with_the_majority_of_the_others_by_hand(said, agreement, n_compared):
    """A pair that nobody else chose on is not compared."""
    quality = rater_quality(panel(said))
    assert quality["agreement"].tolist() == pytest.approx(agreement)
    assert quality["n_compared"].tolist() == n_compared


def test_the_share_for_the_first_reply_follows_the_order_shown():
    quality = rater_quality(panel({"r1": "abab"}, order=["ab", "ba", "ab", "ba"])).iloc[0]
    assert quality["share_first"] == 1
    assert quality["side_p"] == pytest.approx(2 / 16)  # all first or all second, of 2^4
    assert quality["longest_run"] == 4


@settings(max_examples=20)
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
    quality = rater_quality(panel({"r1": "aabba", "r2": "aabba", "r3": "aabba"}, order=None))
    unknown = ["median_seconds", "n_checks", "share_first", "run_p"]
    assert quality[unknown].isna().all(axis=None)
    assert decide_exclusions(quality)["signs"].tolist() == [[], [], []]


TWO = {"r1": "a", "r2": "a"}
COUNTED = pd.DataFrame({"rater": ["r1"], "n_checks": [1], "n_checks_passed": [1]})


@pytest.mark.parametrize(
    ("rows", "options", "said"),
    [
        (pd.concat([panel(TWO), panel(TWO)]), {}, "r1 has two verdicts on the pair"),
        (panel(TWO), {"raters": COUNTED}, "lacks 1 who gave verdicts, first r2"),
        (panel(TWO), {"dimension": "resonance"}, "the table has overall"),
    ],
)
def test_raters_who_cannot_be_measured_are_refused(rows, options, said):
    with pytest.raises(AgreementError, match=said):
        rater_quality(rows, **options)


def test_a_failed_answer_counts_for_nobody():
    rows = panel({"r1": "ab", "r2": "ab"})
    failed = rows.assign(state="unparsed", verdict=None, rater="r3")
    assert rater_quality(pd.concat([rows, failed]))["rater"].tolist() == ["r1", "r2"]


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
    strict = ExclusionRule(min_median_seconds=3600.0, signs_needed=1)
    assert decide_exclusions(seen(), strict)["signs"].item() == ["fast"]
    assert decide_exclusions(seen(), strict)["excluded"].item()


def test_simulated_tables_are_tables_and_say_that_they_are_simulated(rng):
    study = simulate_raters({"careful": 6, "coin": 2}, rng=rng, load=12, votes=4)
    assert check_table("verdicts", study.verdicts)["simulated"].all()
    assert check_table("raters", study.raters)["simulated"].all()
    assert study.verdicts.groupby("rater").size().tolist() == [12] * 8
    assert (study.verdicts.groupby("pair_id")["rater"].nunique() == 4).all()


@pytest.mark.parametrize(
    ("behaviours", "said"),
    [
        ({"lazy": 3}, f"no behaviour called 'lazy'. There are {', '.join(BEHAVIOURS)}"),
        ({"careful": 3}, "5 votes a pair need as many raters"),
    ],
)
def test_raters_who_cannot_be_simulated_are_refused(behaviours, said, rng):
    with pytest.raises(ValueError, match=said):
        simulate_raters(behaviours, rng=rng)


def test_careless_raters_are_found_and_careful_ones_kept(rng):
    """Five simulated studies of 60 raters each; the limits lie far outside the Monte Carlo error."""
    mix, decided = {"careful": 40, "hurried": 8, "coin": 4, "first_side": 4, "patient_coin": 4}, []
    for _ in range(5):
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


# Dawid and Skene


# Dawid and Skene (1979), Table 1: 45 patients; the first anaesthetist judged each three times, the
# others once.
ANAESTHETISTS = """
111 1 1 1 1,333 4 3 3 4,112 2 1 2 2,222 3 1 2 1,222 3 2 2 2,222 3 3 2 2,122 2 1 1 1,333 3 4 3 3,222 2 2 2 3,232 2 2 2 3,
444 4 4 4 4,222 3 3 4 3,111 1 1 1 1,222 3 2 1 2,121 1 1 1 1,111 2 1 1 1,111 1 1 1 1,111 1 1 1 1,222 2 2 2 1,222 1 3 2 2,
222 2 2 2 2,222 2 2 2 1,222 3 2 2 2,221 2 2 2 2,111 1 1 1 1,111 1 1 1 1,232 2 2 2 2,111 1 1 1 1,111 1 1 1 1,112 1 1 2 1,
111 1 1 1 1,333 3 2 3 3,111 1 1 1 1,222 2 2 2 2,222 3 2 3 2,433 4 3 4 3,221 2 2 3 2,232 3 2 3 3,333 3 4 3 2,111 1 1 1 1,
111 1 1 1 1,121 2 1 1 1,232 2 2 2 2,121 1 1 1 1,222 2 2 2 2
"""


# Their estimates as printed (some rows do not add up to 1): rater -> rows are true classes 1 to 4,
# columns answers 1 to 4.
PUBLISHED_ERRORS = {
    1: [[0.89, 0.11, 0, 0], [0.07, 0.88, 0.05, 0], [0, 0.34, 0.66, 0], [0, 0, 0.56, 0.44]],
    2: [[0.83, 0.17, 0, 0], [0.05, 0.63, 0.31, 0], [0, 0, 1, 0], [0, 0, 0, 1]],
    3: [[1, 0, 0, 0], [0.11, 0.79, 0.11, 0], [0, 0.40, 0.20, 0.40], [0, 0, 0.67, 0.33]],
    4: [[0.94, 0.06, 0, 0], [0.05, 0.84, 0.10, 0], [0, 0, 0.80, 0.20], [0, 0, 0.33, 0.67]],
    5: [[1, 0, 0, 0], [0.16, 0.73, 0.11, 0], [0, 0.21, 0.79, 0], [0, 0, 0.33, 0.67]],
}


@pytest.fixture(scope="module")
def anaesthetists() -> pd.DataFrame:
    rows = []
    for patient, line in enumerate(ANAESTHETISTS.replace("\n", "").split(","), 1):
        for rater, said in enumerate(line.split(), 1):
            rows += [(patient, rater, answer) for answer in said]
    table = pd.DataFrame(rows, columns=["item", "rater", "answer"])
    assert len(table) == 315
    return table


def test_prevalence_and_error_rates_match_the_published_ones(anaesthetists):
    """Two decimals are printed, some of them cut and not rounded, hence 0.01."""
    model = dawid_skene(anaesthetists)
    once = model.query("rater == 2")  # who judged each patient once
    assert (once.groupby("truth")["count"].sum() / 45).round(2).tolist() == [0.40, 0.42, 0.11, 0.07]
    for rater, table in PUBLISHED_ERRORS.items():
        ours = model[model["rater"] == rater]["probability"].to_numpy().reshape(4, 4)
        assert ours == pytest.approx(np.array(table), abs=0.01), rater


@given(
    answers=st.lists(
        st.lists(st.sampled_from("ab"), min_size=4, max_size=4), min_size=5, max_size=15
    )
)
@settings(max_examples=10)
def test_swapping_which_reply_is_called_a_changes_nobody_s_reliability(answers):
    rows = [
        (f"d{pair}", "x", "y", one, f"r{rater}")
        for pair, said in enumerate(answers)
        for rater, one in enumerate(said)
    ]
    here = verdicts(rows)
    there = here.assign(verdict=here["verdict"].map({"a": "b", "b": "a"}))
    assert rater_reliability(here)["reliability"].to_numpy() == pytest.approx(
        rater_reliability(there)["reliability"].to_numpy(), abs=1e-4
    )


def test_ties_are_counted_apart_and_who_only_ties_has_no_reliability():
    table = rater_reliability(panel({"r1": "a", "r2": "a", "r3": "t"}))
    assert table["tie_share"].tolist() == [0, 0, 1]
    assert table["reliability"].gt(0.5).tolist() == [True, True, False]
    assert table["reliability"].isna().tolist() == [False, False, True]
    assert rater_reliability(panel({"r1": "t"}))["reliability"].isna().all()


def test_a_fit_that_has_not_settled_raises(anaesthetists, monkeypatch):
    monkeypatch.setattr(raters, "MOST_STEPS", 2)
    with pytest.raises(AgreementError, match="After 2 steps a posterior still moves"):
        dawid_skene(anaesthetists)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda table: table.drop(columns="answer"), "no column answer"),
        (lambda table: table.iloc[:0], "0 of 0 answers"),
        (lambda table: table.assign(answer=None), "315 of 315 answers lack"),
    ],
)
def test_answers_that_are_none_are_refused(anaesthetists, spoil, message):
    with pytest.raises(AgreementError, match=message):
        dawid_skene(spoil(anaesthetists))


def test_hundreds_of_answers_on_one_item_leave_its_class_certain():
    said = [("i", f"r{k}", "yes" if k % 3 else "no") for k in range(1500)] + [
        ("j", f"r{k}", "no") for k in range(1500)
    ]
    found = dawid_skene(pd.DataFrame(said, columns=["item", "rater", "answer"]))
    assert set(found["count"].round(6)) == {0.0, 1.0}


def test_a_rater_whom_all_agree_with_has_the_added_counts_alone_against_them():
    """Thirty pairs, six raters of one mind: 30 right and none wrong, a count added to each.

    No interval is claimed.
    """
    found = rater_reliability(panel({f"r{n}": "aab" * 10 for n in range(6)}))
    assert found["reliability"].tolist() == pytest.approx([31 / 32] * 6, abs=1e-3)
    assert list(found.columns) == ["tie_share", "reliability"]


def test_with_a_mirror_no_side_is_the_likelier_one():
    rows = [(k, f"r{n}", "ab"[(k + (n == k % 5)) % 4 == 0]) for k in range(20) for n in range(5)]
    found = dawid_skene(
        pd.DataFrame(rows, columns=["item", "rater", "answer"]), mirror={"a": "b", "b": "a"}
    )
    met = found.pivot_table("count", "rater", "truth", aggfunc="sum")
    assert met["a"].tolist() == pytest.approx(met["b"].tolist())


# Writers


MODELS = {"m1": -0.4, "m2": 0.0, "m3": 0.4, "m4": 0.8}


EFFECTS, VARIANCES = np.array([0.1, 0.8, -0.5, 1.4, 0.3]), np.array([0.04, 0.09, 0.05, 0.2, 0.08])


def truth_of(study):
    return study.truth.set_index("responder")["strength"]


def rated(rng, **settings):
    n_resamples = settings.pop("n_resamples", 200)
    study = simulate_writers(MODELS, rng=rng, dialogue_sd=0.0, **settings)
    return study, rate_writers(
        study.verdicts,
        study.comparisons,
        study.replies,
        responders=study.responders,
        n_resamples=n_resamples,
        rng=rng,
    )


def test_three_equal_variances_give_the_spread_by_hand():
    """The sample variance of -1, 0, 1 is 1; less the noise of 1/4 it is 3/4."""
    assert paule_mandel(np.array([-1.0, 0.0, 1.0]), np.full(3, 0.25))[0] == pytest.approx(
        np.sqrt(3 / 4)
    )


def test_the_spread_is_that_of_another_program():
    """statsmodels' iterated estimator is Paule and Mandel's; asked for the last digit, it may give
    up and say 0."""
    from statsmodels.stats.meta_analysis import combine_effects

    theirs = combine_effects(EFFECTS, VARIANCES, method_re="iterated", atol=1e-8, maxiter=1000).tau2
    assert paule_mandel(EFFECTS, VARIANCES)[0] ** 2 == pytest.approx(theirs, abs=1e-6)


def test_the_interval_of_the_spread_covers_as_often_as_it_says():
    """Effects drawn with a true spread of 0.5; 400 draws."""
    rng = np.random.default_rng(7)
    noise = rng.uniform(0.02, 0.2, 12)
    held = 0
    for _ in range(400):
        _, low, high = paule_mandel(rng.normal(0, np.sqrt(noise + 0.25)), noise)
        held += low <= 0.5 <= high
    assert held / 400 == pytest.approx(0.95, abs=0.021)


def test_known_writers_are_found(rng):
    """Replies do not vary about their writer, so strengths are recovered without shrinking."""
    study, found = rated(rng, n_resamples=100, n_dialogues=400, writer_sd=0.5)
    gaps = found.writers.set_index("writer")["gap"]
    assert (gaps - truth_of(study)).abs().max() < 0.35
    assert found.average == pytest.approx(truth_of(study).mean(), abs=0.12)
    assert found.sd_low <= truth_of(study).std() <= found.sd_high
    assert found.writer_sd == pytest.approx(truth_of(study).std(), abs=0.12)


def test_the_average_weighs_writers_alike_and_not_replies(rng):
    """A writer's verdicts given twice over change nothing but chance."""
    study, found = rated(rng, n_resamples=20, n_dialogues=120)
    apart = split_writers(study.verdicts, study.comparisons, study.replies)
    busy = apart["responder_a"].eq("human/writer-01") | apart["responder_b"].eq("human/writer-01")
    twice = pd.concat([study.verdicts, study.verdicts[busy]], ignore_index=True)
    again = rate_writers(twice, study.comparisons, study.replies, n_resamples=20, rng=rng)
    assert again.average == pytest.approx(found.average, abs=1e-6)


def test_boards_show_the_pool_and_each_writer(rng):
    study, found = rated(rng, n_resamples=50, n_dialogues=100)
    assert set(found.pooled.strength.index) == {"human", *MODELS}
    board = check_table("ratings", found.leaderboard()).set_index("responder")
    assert set(board.index) == {*truth_of(study).index, *MODELS, "average writer"}
    assert board.loc["average writer", "strength"] == pytest.approx(
        board.loc[truth_of(study).index, "strength"].mean()
    )
    assert board["strength"].is_monotonic_decreasing
    assert not board.loc["average writer", "penalised"]
    assert set(board.loc[[*truth_of(study).index, "average writer"], "responder_kind"]) == {"human"}
    assert board["simulated"].all()


def test_who_wrote_little_is_in_the_average_and_not_on_the_board(rng, monkeypatch):
    monkeypatch.setattr(raters, "ENOUGH_DIALOGUES", 11)
    study = simulate_writers(MODELS, rng=rng, n_dialogues=40)
    found = rate_writers(study.verdicts, study.comparisons, study.replies, n_resamples=50, rng=rng)
    assert not found.writers["enough"].any()  # 40 dialogues of 3 writers, 12 writers: 10 each
    assert set(found.leaderboard()["responder"]) == {*MODELS, "average writer"}


@pytest.mark.parametrize(
    ("columns", "people", "message"),
    [
        ({"author_id": None}, "human", "whose writer is not known, first in the comparison"),
        ({"author_id": "one"}, "human", "1 writers and 4 others were judged"),
        ({}, "people", "No verdict is about 'human'; judged were m1"),
    ],
)
def test_what_cannot_be_told_apart_is_refused(rng, columns, people, message):
    study = simulate_writers(MODELS, rng=rng, n_dialogues=12, n_writers=3)
    verdicts = study.verdicts.replace({"human": people})
    with pytest.raises(RatingsError, match=message):
        rate_writers(verdicts, study.comparisons, study.replies.assign(**columns), rng=rng)
    three = rate_writers(study.verdicts, study.comparisons, study.replies, n_resamples=20, rng=rng)
    assert len(three.writers) == 3  # the fewest that can be rated


def test_a_history_cannot_have_more_writers_than_there_are(rng):
    with pytest.raises(ValueError, match="4 writers a history need as many, and there are 3"):
        simulate_writers(MODELS, rng=rng, n_writers=3, writers_per_history=4)


def test_the_doubt_about_writers_adds_their_spread_to_that_of_dialogues(rng):
    """Few dialogues, so that both intervals are t quantiles times a standard error."""
    _, found = rated(rng, n_dialogues=30)
    n, count = int(found.split.n_clusters), len(found.writers)
    of_dialogues = (found.these_high - found.average) / stats.t.ppf(0.975, n - 1)
    of_both = (found.ci_high - found.average) / stats.t.ppf(0.975, min(n, count) - 1)
    assert of_both**2 - of_dialogues**2 == pytest.approx(found.writer_sd**2 / count)
