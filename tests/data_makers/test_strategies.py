"""The coder that learned from ESConv: its scores by hand and by scikit-learn, and what it reaches
on people's labels."""

import numpy as np
import pandas as pd
import pytest

from data.make.strategy_results import (
    load_strategy_turns,
    score_labels,
    strategy_results,
    train_coder,
)
from heart_utils.runs import find_root


def make_labels(rng, n=400):
    given = rng.choice(list("qras"), n, p=[0.5, 0.3, 0.15, 0.05])
    found = np.where(rng.random(n) < 0.6, given, rng.choice(list("qras"), n))
    return pd.DataFrame({"given": given, "found": found, "dialogue_id": rng.integers(0, 60, n)})


def test_scores_are_those_of_scikit_learn(rng):
    from sklearn.metrics import accuracy_score, f1_score

    labels = make_labels(rng)
    scores = score_labels(labels, rng=rng, n_resamples=50)
    assert scores.loc["accuracy", "value"] == pytest.approx(
        accuracy_score(labels["given"], labels["found"])
    )
    assert scores.loc["macro_f1", "value"] == pytest.approx(
        f1_score(labels["given"], labels["found"], average="macro")
    )


def test_macro_f1_by_hand(rng):
    labels = pd.DataFrame(
        {"given": list("qqqa"), "found": list("qqaa"), "dialogue_id": list("wxyz")}
    )
    scores = score_labels(labels, rng=rng, n_resamples=10)
    # q: tp 2, fp 0, fn 1: 4/5. a: tp 1, fp 1, fn 0: 2/3. Mean: 11/15.
    assert scores.loc["macro_f1", "value"] == pytest.approx(11 / 15)


def test_turns_of_one_dialogue_widen_the_interval(rng):
    """Whole dialogues that are all right or all wrong, ten turns each: about sqrt(10) as wide
    (simulated)."""
    right = np.repeat(rng.random(80) < 0.6, 10)
    labels = pd.DataFrame(
        {"given": "q", "found": np.where(right, "q", "a"), "dialogue_id": np.repeat(range(80), 10)}
    )
    labels.loc[0, "given"] = "a"
    width = [
        score_labels(part, rng=rng).eval("ci_high - ci_low")["accuracy"]
        for part in (labels, labels.assign(dialogue_id=range(800)))
    ]
    assert width[0] / width[1] == pytest.approx(np.sqrt(10), rel=0.2)


def test_a_dialogue_on_both_sides_is_refused():
    turns = pd.DataFrame(
        {"dialogue_id": ["d", "e"], "text": ["why", "try"], "strategy": ["q", "a"]}
    )
    with pytest.raises(match="stand on both sides; split by dialogue"):
        train_coder(turns, turns)
    with pytest.raises(match="on one side only"):
        train_coder(turns, turns.assign(dialogue_id=["f", "g"], strategy="q"))


def test_probabilities_sum_to_one():
    turns = pd.DataFrame(
        {
            "dialogue_id": list("abcd"),
            "text": ["why now", "why then", "try rest", "try sleep"],
            "strategy": list("qqss"),
        }
    )
    coder = train_coder(turns, turns.assign(dialogue_id=list("efgh")))
    chances = coder.probabilities(pd.Series(["why", "try"]))
    assert chances.sum(axis=1).tolist() == pytest.approx([1.0, 1.0])
    assert coder.probabilities(pd.Series([], dtype="str")).empty


@pytest.mark.mirror
def test_turns_are_counted_and_heart_items_are_marked(mirror):
    turns = load_strategy_turns()
    assert turns.groupby("split").size().to_dict() == {"test": 2895, "train": 12759, "valid": 2722}
    assert turns["strategy"].nunique() == 8
    # 262 of the standard ones, 18 rewritten
    assert turns.drop_duplicates("dialogue_id")["in_heart"].sum() == 280


@pytest.mark.mirror
@pytest.mark.slow
def test_the_tables_of_the_learned_coder_are_those_that_esconv_gives(mirror):
    for name, table in strategy_results(load_strategy_turns()).items():
        shipped = pd.read_csv(find_root() / "data" / "esconv" / f"{name}.csv")
        # files hold six decimals
        loosely = {"rtol": 1e-4, "atol": 5e-6, "check_dtype": False, "check_names": False}
        pd.testing.assert_frame_equal(shipped, table.reset_index(drop=True), **loosely)
