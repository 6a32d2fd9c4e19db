"""What a judge's confidence is worth: probabilities held against votes, and when to abstain."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.special import expit, logit

from heart_utils.judges.confidence import (
    calibrate_abstention,
    calibrate_probabilities,
    risk_bound,
)
from heart_utils.judges.position import BiasError
from heart_utils.ratings.verdicts import AgreementError


def study(temperature, n=2000, seed=3):
    """A judge whose log-odds are so many times too large, and one person's votes on its pairs."""
    rng = np.random.default_rng(seed)
    true = rng.normal(0, 1.5, n)
    pairs = pd.DataFrame({"pair_id": np.arange(n).astype(str), "dimension": "overall"})
    pairs["dialogue_id"] = (np.arange(n) // 10).astype(str)
    judge = pairs.assign(rater="judge", p_a=expit(temperature * true), flags=[["uncalibrated"]] * n)
    judge["verdict"] = np.where(judge["p_a"] > 0.5, "a", "b")
    votes = np.where(rng.random(n) < expit(true), "a", "b")
    return judge, pairs.assign(rater="ann", verdict=votes)


@pytest.mark.parametrize("planted", [0.5, 1.0, 4.0])
def test_the_planted_temperature_is_found_and_the_flag_taken_off(planted):
    judge, votes = study(planted)
    found = calibrate_probabilities(judge, votes)
    (row,) = found.judges.to_dict("records")
    assert row["temperature"] == pytest.approx(planted, rel=0.15)
    assert row["log_loss_after"] <= row["log_loss_before"] + 0.002
    assert not found.verdicts["flags"].map(len).any()
    assert ((found.verdicts["p_a"] > 0.5) == (judge["p_a"] > 0.5)).all()  # no verdict turns


def test_a_judge_that_never_reads_and_says_it_is_sure_gets_a_half():
    judge, votes = study(4.0)
    guess = np.random.default_rng(1).permutation(judge["p_a"])
    found = calibrate_probabilities(judge.assign(p_a=guess), votes)
    assert found.verdicts["p_a"].between(0.35, 0.65).all()
    assert found.judges.loc[0, "log_loss_after"] == pytest.approx(np.log(2), abs=0.01)
    against = calibrate_probabilities(judge.assign(p_a=1 - judge["p_a"]), votes)
    assert (against.verdicts["p_a"] == 0.5).all()


def test_what_is_said_of_a_dialogue_does_not_rest_on_its_own_votes():
    judge, votes = study(2.0, n=400)
    first = votes["dialogue_id"] == "0"
    turned = votes["verdict"].map({"a": "b", "b": "a"}).where(first, votes["verdict"])
    before = calibrate_probabilities(judge, votes).verdicts["p_a"]
    after = calibrate_probabilities(judge, votes.assign(verdict=turned)).verdicts["p_a"]
    pd.testing.assert_series_equal(before[first], after[first])
    assert (before[~first] != after[~first]).any()


def test_too_few_votes_leave_the_probabilities_and_flag_them():
    judge, votes = study(4.0)
    found = calibrate_probabilities(judge.drop(columns="flags"), votes.head(49))
    assert found.verdicts["flags"].tolist() == [["uncalibrated"]] * len(judge)
    pd.testing.assert_series_equal(found.verdicts["p_a"], judge["p_a"])
    assert np.isnan(found.judges.loc[0, "temperature"])
    with pytest.raises(BiasError, match="No verdict has a probability"):
        calibrate_probabilities(judge.assign(p_a=np.nan), votes)


def votes_with(rng, n_questions, spread, base=0.05, slope=3.0):
    """Draw votes whose chance to contradict the judge falls with its confidence and differs between
    questions."""
    question = np.repeat(np.arange(n_questions), rng.integers(6, 42, n_questions))
    confidence = rng.random(len(question))
    chance = expit(
        logit(base) + rng.normal(0, spread, n_questions)[question] + slope * (0.5 - confidence)
    )
    return rng.random(len(question)) < chance, confidence, question


def test_without_clustering_the_bound_is_clopper_and_pearsons():
    wrong, n = np.zeros(200), np.ones(200)
    wrong[:7] = 1.0
    expected = stats.binomtest(7, 200, alternative="less").proportion_ci(0.95).high
    # t on 199 degrees of freedom on both sides
    assert risk_bound(wrong, n, 0.05) == pytest.approx(expected, abs=1e-4)
    assert risk_bound(np.zeros(59), np.ones(59), 0.05) == pytest.approx(
        1 - 0.05 ** (1 / 59), abs=1e-6
    )


def test_testing_stops_at_the_first_threshold_that_fails():
    wrong = np.repeat([0, 1, 0], [300, 100, 600])
    confidence = np.repeat([0.9, 0.5, 0.1], [300, 100, 600])
    found = calibrate_abstention(wrong, confidence, np.arange(1000) % 100, risk=0.2)
    assert found["threshold"].tolist() == [0.9, 0.5, 0.1]
    assert found["risk_high"].iloc[2] < 0.2  # it would pass alone
    assert found["passed"].tolist() == [True, False, False]


@pytest.mark.parametrize(("n_questions", "spread"), [(20, 0.7), (40, 0.0), (40, 1.5)])
def test_the_risk_is_exceeded_in_few_studies_though_votes_come_in_questions(n_questions, spread):
    """Simulated with known truth: at most 5 % of studies, plus two Monte Carlo errors; plain
    counting gives 16 % at 40, 1.5."""
    rng = np.random.default_rng(7)
    truth_wrong, truth_confidence, _ = votes_with(np.random.default_rng(0), 20_000, spread)
    too_high = []
    for _ in range(200):
        found = calibrate_abstention(*votes_with(rng, n_questions, spread), risk=0.1)
        accepted = truth_confidence >= found["threshold"].where(found["passed"]).min()
        too_high.append(accepted.any() and truth_wrong[accepted].mean() > 0.1)
    assert np.mean(too_high) <= 0.05 + 2 * (0.05 * 0.95 / 200) ** 0.5


@pytest.mark.parametrize(
    "entries",
    [
        ([0, 1], [0.5], [1, 2]),
        ([0, 1], [0.5, np.nan], [1, 2]),
        ([0, 1], [0.5, 0.5], [1, 1]),
        ([0, 2], [0.5] * 2, [1, 2]),
    ],
)
def test_votes_that_cannot_be_used_are_refused(entries):
    with pytest.raises(AgreementError, match="two clusters or more"):
        calibrate_abstention(*entries)
    assert not calibrate_abstention([0, 0], [0.9, 0.9], ["q", "r"])["passed"].any()


def test_five_votes_that_err_as_one_count_as_one():
    """40 questions, 8 wrong: five votes each are worth 39 of one vote, by the smaller t quantile of
    39 degrees of freedom."""
    wrong = np.repeat([1.0, 0.0], [8, 32])
    once = stats.beta.ppf(0.95, 39 * 0.2 + 1, 39 * 0.8)
    assert risk_bound(wrong, np.ones(40), 0.05) == pytest.approx(once)
    worth = 39 * (stats.t.ppf(0.95, 199) / stats.t.ppf(0.95, 39)) ** 2
    assert risk_bound(5 * wrong, np.full(40, 5.0), 0.05) == pytest.approx(
        stats.beta.ppf(0.95, worth * 0.2 + 1, worth * 0.8)
    )
    assert risk_bound(wrong[:1], np.ones(1), 0.05) == 1.0
    assert risk_bound(np.ones(9), np.ones(9), 0.05) == 1.0


def test_the_thresholds_are_those_that_accept_30_40_and_so_on_of_100():
    wrong = np.arange(100) % 9 == 0
    found = calibrate_abstention(wrong, np.arange(100) / 100, np.arange(100) % 50)
    assert found["coverage"].tolist() == pytest.approx([0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0])
    assert found["threshold"].tolist() == pytest.approx([0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.0])
    sure = calibrate_abstention(np.zeros(100), np.arange(100) / 100, np.arange(100) % 50)
    assert sure["passed"].tolist() == (sure["risk_high"] <= 0.1).tolist() == [True] * 8


def test_votes_without_an_error_count_by_questions_and_not_by_votes():
    """Nine questions of 30 votes: 0.05 to the power 1/9, not 1/270; one of 400 and eight of 1: 408
    squared over 160008."""
    assert risk_bound(np.zeros(9), np.full(9, 30.0), 0.05) == pytest.approx(1 - 0.05 ** (1 / 9))
    uneven = np.repeat([400.0, 1.0], [1, 8])
    assert risk_bound(np.zeros(9), uneven, 0.05) == pytest.approx(1 - 0.05 ** (160008 / 408**2))


@pytest.mark.parametrize(
    ("n_questions", "n_votes", "whole", "else_wrong"),
    [
        (10, 30, 0.105, 0.0),
        (12, 7, 0.06, 0.045),
        (30, 30, 0.06, 0.05),
        (40, 30, 0.04, 0.066),
        (50, 5, 0.08, 0.025),
    ],
)
def test_few_questions_that_go_wrong_as_a_whole_are_seldom_accepted(
    n_questions, n_votes, whole, else_wrong
):
    """The true risk is above 10 %, so whatever is accepted is wrong; counted by votes, 34 and 33 %
    of studies accepted some, and where scattered errors hid whole ones 15, 20 and 7 %."""
    rng, accepted = np.random.default_rng(11), []
    question = np.repeat(np.arange(n_questions), n_votes)
    for _ in range(200):
        chance = np.where(rng.random(n_questions) < whole, 1.0, else_wrong)[question]
        found = calibrate_abstention(
            rng.random(len(question)) < chance, np.ones(len(question)), question, risk=0.1
        )
        accepted.append(found["passed"].any())
    assert np.mean(accepted) <= 0.05 + 2 * (0.05 * 0.95 / 200) ** 0.5


def test_what_votes_err_here_and_there_is_added_to_what_questions_may_hide():
    """No question of 60 is mostly wrong, and 5 % of votes: 1 - 0.95 * 0.05 ** (1 / 60). With one
    that is, the bound of one in 60, and of the rest what errs there."""
    wrong, n = np.full(60, 1.0), np.full(60, 20.0)
    assert risk_bound(wrong, n, 0.05) == pytest.approx(1 - 0.95 * 0.05 ** (1 / 60))
    wrong[0] = 20.0
    whole = stats.beta.ppf(0.95, 2, 59)
    assert risk_bound(wrong, n, 0.05) == pytest.approx(whole + (1 - whole) * 0.05)
    assert risk_bound(np.full(9, 15.0), np.full(9, 20.0), 0.05) == 1.0


def test_a_judge_that_seldom_errs_is_accepted_all_the_same():
    """2 % of votes wrong, here and there: 60 questions are enough."""
    rng, question = np.random.default_rng(2), np.repeat(np.arange(60), 15)
    accepted = [
        calibrate_abstention(rng.random(900) < 0.02, np.ones(900), question)["passed"].all()
        for _ in range(50)
    ]
    assert np.mean(accepted) >= 0.9
