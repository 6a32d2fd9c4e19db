import numpy as np
import pandas as pd
import pytest

from data.make.strategy_results import corrected_gap
from heart_utils.ratings.verdicts import AgreementError


def simulate(rng, n=200, n_labelled=60, missed=(0.1, 0.6), invented=(0.05, 0.02), held=(0.5, 0.3)):
    """People's and models' replies to n dialogues; the coder errs more on models'."""
    rows = []
    for kind, share, miss, invent in zip(("human", "model"), held, missed, invented, strict=True):
        given = rng.random(n) < np.clip(share + 0.3 * (rng.random(n) - 0.5), 0, 1)
        found = np.where(given, rng.random(n) > miss, rng.random(n) < invent)
        rows.append(pd.DataFrame({
            "reply_id": [f"{kind}{i}" for i in range(n)], "dialogue_id": range(n), "responder_kind": kind,
            "given": given.astype(float), "probability": found.astype(float), "code": "question",
        }))  # fmt: skip
    codes = pd.concat(rows, ignore_index=True)
    drawn = rng.choice(n, n_labelled, replace=False)
    labels = codes[codes["dialogue_id"].isin(drawn)].assign(probability=lambda t: t["given"])
    return codes, labels[["reply_id", "code", "probability"]]


def test_the_corrected_interval_holds_the_truth_and_the_coder_at_its_word_does_not(rng):
    """True gap .2, the coder's about .14 off; 100 studies (simulated): 90 % or more for the
    corrected, under 40 % for it."""
    held = {"gap": 0, "coder": 0, "labelled": 0}
    ratio = []
    for _ in range(100):
        codes, labels = simulate(rng)
        found = corrected_gap(codes, labels).iloc[0]
        held["gap"] += found["ci_low"] <= 0.2 <= found["ci_high"]
        held["coder"] += found["coder_low"] <= 0.2 <= found["coder_high"]
        held["labelled"] += found["labelled_low"] <= 0.2 <= found["labelled_high"]
        ratio.append(
            (found["ci_high"] - found["ci_low"]) / (found["labelled_high"] - found["labelled_low"])
        )
    assert held["gap"] >= 0.9 * 100
    assert held["labelled"] >= 0.9 * 100
    assert held["coder"] < 0.4 * 100
    assert np.mean(ratio) < 1  # and the coder saves labels


def test_a_perfect_coder_gives_the_gap_over_all_dialogues(rng):
    codes, labels = simulate(rng, missed=(0, 0), invented=(0, 0))
    found = corrected_gap(codes, labels).iloc[0]
    assert found["gap"] == pytest.approx(found["coder_gap"])
    assert found["weight"] == pytest.approx(1.0)


def test_a_coder_that_always_says_the_same_changes_nothing(rng):
    codes, labels = simulate(rng)
    found = corrected_gap(codes.assign(probability=1.0), labels).iloc[0]
    assert found["gap"] == pytest.approx(found["labelled_gap"])
    assert found["ci_low"] == pytest.approx(found["labelled_low"])


def test_a_code_with_too_few_labels_is_marked_and_the_others_keep_their_rows(rng):
    codes, labels = simulate(rng)
    rare_codes, rare_labels = simulate(rng, n_labelled=3)
    alone = corrected_gap(codes, labels)
    found = corrected_gap(
        pd.concat([codes, rare_codes.assign(code="a rare one")]),
        pd.concat([labels, rare_labels.assign(code="a rare one")]),
    )
    pd.testing.assert_frame_equal(found.iloc[:1], alone, check_dtype=False)
    assert found["code"].tolist() == [alone["code"].item(), "a rare one"]
    assert (
        found.loc[1, "why"]
        == "3 of 200 dialogues with both kinds are labelled; it takes 5, and not all."
    )
    assert pd.isna(found.loc[1, "gap"])


def test_too_few_labels_of_every_code_are_refused(rng):
    codes, labels = simulate(rng, n_labelled=3)
    with pytest.raises(AgreementError, match="3 of 200 dialogues with both kinds are labelled"):
        corrected_gap(codes, labels)


def labelled(n):
    """Codes of thirty dialogues, and of the first n also by hand."""
    rows = [
        (f"{d}-{half}", f"d{d:02}", "question", half)
        for d in range(30)
        for half in ("first", "second")
    ]
    codes = pd.DataFrame(rows, columns=["reply_id", "dialogue_id", "code", "half"])
    codes["probability"] = np.random.default_rng(1).random(len(codes))
    return codes, codes[codes["dialogue_id"] < f"d{n:02}"].round({"probability": 0})


@pytest.mark.parametrize("n", [0, 4])
def test_too_few_labelled_dialogues_are_counted(n):
    with pytest.raises(ValueError, match="it takes 5"):
        corrected_gap(*labelled(n), kind="half", between=("first", "second"))


def test_a_level_of_more_than_one_is_refused():
    with pytest.raises(ValueError, match="ci_level is 1.5; expected a number between 0 and 1"):
        corrected_gap(*labelled(6), kind="half", between=("first", "second"), ci_level=1.5)
