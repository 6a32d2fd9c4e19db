import numpy as np
import pandas as pd
import pytest
from scipy import stats

from heart_utils.replies.strategies import (
    associate_coders,
    profile_codes,
)


def study(rng, effect=1.0, n=300):
    """Four authors, two replies a dialogue; authors differ in strength and in how often they ask (simulated)."""
    strength, asks = np.array([0.9, 0.3, -0.3, -0.9]), np.array([0.8, 0.6, 0.4, 0.2])
    pairs = np.array([rng.choice(4, 2, replace=False) for _ in range(n)])
    asked = rng.random((n, 2)) < asks[pairs]
    chance = 1 / (1 + np.exp(-(strength[pairs[:, 0]] - strength[pairs[:, 1]] + effect * (asked[:, 0] * 1.0 - asked[:, 1]))))
    ids = np.array([[f"d{i}a", f"d{i}b"] for i in range(n)])
    verdicts = pd.DataFrame({
        "dialogue_id": range(n), "dimension": "overall", "state": "valid",
        "verdict": np.where(rng.random(n) < chance, "a", "b"),
        "reply_a": ids[:, 0], "reply_b": ids[:, 1],
        "responder_a": pairs[:, 0].astype(str), "responder_b": pairs[:, 1].astype(str),
    })  # fmt: skip
    codes = pd.DataFrame(
        {"reply_id": ids.ravel(), "code": "question", "coder": "words", "probability": asked.ravel().astype(float)}
    )
    return verdicts, codes, pd.Series(rng.integers(10, 40, 2 * n), index=ids.ravel())


def test_a_known_association_is_found_and_authors_merit_is_not_borrowed(rng):
    found = [associate_coders(*study(rng, effect)).iloc[0] for effect in (1.0,) * 12 + (0.0,) * 40]
    assert np.mean([row["log_odds"] for row in found[:12]]) == pytest.approx(1.0, abs=0.25)
    rejected = sum(row["p_value"] < 0.05 for row in found[12:])
    assert rejected <= 6  # of 40 without an effect; without the authors' strengths nearly all would be


def test_the_fit_is_that_of_statsmodels_with_clustered_errors(rng):
    import statsmodels.api as sm

    verdicts, codes, words = study(rng)
    mine = associate_coders(verdicts, codes, words).iloc[0]
    code, length = codes.set_index("reply_id")["probability"], np.log(words)
    design = pd.DataFrame({"x": verdicts["reply_a"].map(code) - verdicts["reply_b"].map(code),
                           "w": verdicts["reply_a"].map(length) - verdicts["reply_b"].map(length)})  # fmt: skip
    for name in "123":
        design[name] = (verdicts["responder_a"] == name) * 1.0 - (verdicts["responder_b"] == name)
    fit = sm.GLM(verdicts["verdict"] == "a", design, family=sm.families.Binomial()).fit(
        cov_type="cluster", cov_kwds={"groups": verdicts["dialogue_id"], "use_correction": False}
    )
    n = verdicts["dialogue_id"].nunique()
    reach = (mine["ci_high"] - mine["ci_low"]) / 2
    assert mine["log_odds"] == pytest.approx(fit.params["x"], abs=1e-6)
    assert reach == pytest.approx(stats.t.ppf(0.975, n - 1) * fit.bse["x"] * np.sqrt(n / (n - 1)), rel=1e-4)


def test_ties_everywhere_give_no_fit_and_a_reason(rng):
    verdicts, codes, words = study(rng, n=60)
    found = associate_coders(verdicts.assign(verdict="tie"), codes, words).iloc[0]
    assert np.isnan(found["log_odds"])
    assert "every pair is a tie" in found["why_not"]


def test_a_code_that_decides_every_pair_has_no_coefficient(rng):
    verdicts, codes, words = study(rng, n=80)
    asked = codes.set_index("reply_id")["probability"]
    apart = verdicts["reply_a"].map(asked) - verdicts["reply_b"].map(asked)
    verdicts = verdicts[apart != 0].assign(verdict=np.where(apart[apart != 0] > 0, "a", "b"))
    assert "has no end" in associate_coders(verdicts, codes, words).iloc[0]["why_not"]


def test_failures_only_are_an_error(rng):
    verdicts, codes, words = study(rng, n=20)
    with pytest.raises(match="No verdict on 'overall'"):
        associate_coders(verdicts.assign(state="error", verdict=None), codes, words)


def test_a_profile_counts_what_was_not_coded_apart(rng):
    codes = pd.DataFrame({
        "reply_id": range(60), "coder": "c", "code": "question", "responder": "m", "simulated": False,
        "probability": [1.0] * 20 + [0.0] * 30 + [None] * 10, "dialogue_id": np.arange(60) % 30,
    })  # fmt: skip
    row = profile_codes(codes, rng=rng).iloc[0]
    assert (row["share"], row["n"], row["n_failed"]) == (20 / 50, 50, 10)
    assert row["ci_low"] < 0.4 < row["ci_high"]


def test_a_code_whose_answers_all_failed_keeps_its_row(rng):
    codes = pd.DataFrame({
        "reply_id": range(60), "coder": "c", "code": np.repeat(["question", "reframing"], 30), "responder": "m",
        "simulated": False, "probability": [1.0] * 30 + [None] * 30, "dialogue_id": np.arange(60) % 30,
    })  # fmt: skip
    failed = profile_codes(codes, rng=rng).set_index("code").loc["reframing"]
    assert failed[["share", "ci_low", "ci_high"]].isna().all()
    assert (failed["n"], failed["n_failed"], failed["n_clusters"]) == (0, 30, 0)


def test_nobody_seen_doing_it_still_has_an_upper_end(rng):
    codes = pd.DataFrame({"reply_id": range(36), "coder": "c", "code": "question", "responder": "m", "simulated": False,
                          "probability": 0.0, "dialogue_id": np.arange(36) % 24})  # fmt: skip
    row = profile_codes(codes, rng=rng).iloc[0]
    assert (row["ci_low"], row["ci_high"]) == (0.0, pytest.approx(1 - 0.025 ** (1 / 24)))


def test_q_values_count_the_codes_of_all_coders(rng):
    verdicts, codes, words = study(rng)
    other = codes.assign(coder="other", probability=rng.permutation(codes["probability"].to_numpy()))
    silent = codes.assign(coder="silent", probability=np.nan)
    found = associate_coders(verdicts, pd.concat([codes, other, silent]), words)
    assert sorted(found["coder"]) == ["other", "words"]
    assert found["q_value"].to_numpy() == pytest.approx(stats.false_discovery_control(found["p_value"]))
    with pytest.raises(match="no reply is coded"):
        associate_coders(verdicts, silent, words)


def test_kinds_of_authors_have_shares_of_their_own(rng):
    held = {"responder_kind": ["human", "human", "model", "model"], "probability": [1.0, 0.0, 1.0, 1.0]}
    codes = pd.DataFrame(held).assign(coder="c", code="question", dialogue_id=["d", "e"] * 2, simulated=True)
    found = profile_codes(codes, by="responder_kind", rng=rng, n_resamples=20).set_index("responder_kind")
    assert found["share"].to_dict() == {"human": 0.5, "model": 1.0}
