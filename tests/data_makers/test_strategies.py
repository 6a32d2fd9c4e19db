"""The coder that learned from ESConv: its scores by hand and by scikit-learn, and what it reaches
on people's labels."""

import numpy as np
import pandas as pd
import pytest

from data.make.strategy_results import load_strategy_turns, score_labels, train_coder


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
def test_the_coder_beats_bayes_on_words(mirror, rng):
    """Beside it: complement naive Bayes on the same turns, the stronger of the classical ones tried
    in a line or two."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.metrics import f1_score
    from sklearn.naive_bayes import ComplementNB
    from sklearn.pipeline import make_pipeline

    turns = load_strategy_turns()
    learn, calibrate, test = (
        turns[(turns["split"] == "train") & ~turns["in_heart"]],
        turns[(turns["split"] == "valid") & ~turns["in_heart"]],
        turns[turns["split"] == "test"],
    )
    coder = train_coder(learn, calibrate)
    labels = pd.DataFrame(
        {
            "given": test["strategy"],
            "found": coder.label(test["text"]),
            "dialogue_id": test["dialogue_id"],
        }
    )
    scores = score_labels(labels, rng=rng, n_resamples=200)
    bayes = make_pipeline(
        TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True), ComplementNB()
    )
    found = bayes.fit(learn["text"], learn["strategy"]).predict(test["text"])
    assert scores.loc["macro_f1", "value"] > f1_score(test["strategy"], found, average="macro")
    # what neural systems published for the harder task, the next strategy
    assert scores.loc["macro_f1", "ci_low"] > 0.2668
    shares = coder.probabilities(test["text"]).mean() - test["strategy"].value_counts(
        normalize=True
    )
    # calibrated on other dialogues, so shares over people's turns hold
    assert shares.abs().max() < 0.03
