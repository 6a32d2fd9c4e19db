"""A judge asked again: its reliability by another library and with known truth."""

import numpy as np
import pandas as pd
import pingouin
import pytest

from heart_utils import repeat_reliability
from heart_utils.judges.position import BiasError


def asked(chances, n_repeats, rng):
    """Ask a judge that prefers a in each question with a chance of its own."""
    n = len(chances)
    answers = np.where(rng.random((n_repeats, n)) < chances, "a", "b")
    names = [f"d{number}" for number in range(n)]
    same = {"dialogue_id": names, "pair_id": names, "order": "ab", "responder_a": "x", "responder_b": "y", "rater": "judge",
            "dimension": "overall", "state": "valid", "answer_format": None}  # fmt: skip
    parts = [
        pd.DataFrame({**same, "repeat": number, "verdict": row})
        for number, row in enumerate(answers)
    ]
    return pd.concat(parts, ignore_index=True)


def test_the_reliability_is_the_intraclass_correlation_of_another_library():
    votes = asked(np.random.default_rng(1).beta(0.5, 0.5, 60), 3, np.random.default_rng(2))
    scored = votes.assign(won=votes["verdict"].eq("a").astype(float))
    theirs = pingouin.intraclass_corr(
        scored, targets="pair_id", raters="repeat", ratings="won"
    ).set_index("Type")["ICC"]
    own = repeat_reliability(votes, n_resamples=50)
    assert own["reliability"].item() == pytest.approx(theirs.iloc[0], abs=1e-6)
    assert own[["n_questions", "repeats", "n_clusters"]].to_numpy().tolist() == [[60, 3.0, 60]]


def test_the_interval_holds_the_known_reliability():
    """Chances are 0.1 or 0.9: the variance of an answer is 1/4, that of its chance 0.16, so the
    reliability is 0.64."""
    held = []
    for seed in range(80):
        rng = np.random.default_rng(seed)
        found = repeat_reliability(
            asked(rng.choice([0.1, 0.9], 80), 2, rng), n_resamples=300, rng=rng
        ).iloc[0]
        held.append(found["ci_low"] <= 0.64 <= found["ci_high"])
    assert 0.90 <= np.mean(held) <= 0.99


@pytest.mark.parametrize(("chance", "expected"), [([0.0, 1.0], 1.0), ([0.5, 0.5], 0.0)])
def test_a_judge_that_never_changes_is_reliable_and_a_coin_is_not(chance, expected):
    votes = asked(np.tile(chance, 200), 2, np.random.default_rng(3))
    assert repeat_reliability(votes, n_resamples=50)["reliability"].item() == pytest.approx(
        expected, abs=0.12
    )


def test_failed_answers_are_counted_and_never_a_change():
    votes = asked(np.tile([0.0, 1.0], 20), 2, np.random.default_rng(4))
    votes.loc[:4, ["verdict", "state"]] = [None, "unparsed"]
    found = repeat_reliability(votes, n_resamples=50).iloc[0]
    assert (found["n_failed"], found["n_questions"]) == (5, 35)
    assert found["reliability"] == 1.0


def test_nothing_asked_again_is_a_sentence():
    votes = asked(np.full(10, 0.5), 1, np.random.default_rng(5))
    with pytest.raises(BiasError, match="again"):
        repeat_reliability(votes)


def test_a_judge_that_says_one_word_has_no_reliability():
    votes = asked(np.ones(40), 2, np.random.default_rng(9))
    assert np.isnan(repeat_reliability(votes, n_resamples=20)["reliability"].item())
