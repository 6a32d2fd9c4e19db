"""A judge's probabilities, held against people's votes."""

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

from heart_utils.judges.confidence import calibrate_probabilities
from heart_utils.judges.position import BiasError


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
