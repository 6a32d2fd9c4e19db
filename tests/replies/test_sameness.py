import numpy as np
import pandas as pd
import pytest

from heart_utils.replies.codes import measure_sameness


def test_a_formula_is_the_same_and_particulars_are_not(rng):
    topics = ["dog", "exam", "rent", "mother", "job", "surgery", "brother", "farm"]
    replies = pd.DataFrame(
        [("stock", d, "I am so sorry that you are going through this.") for d in topics]
        + [
            ("own", d, f"What did the {d} mean to {word}?")
            for d, word in zip(topics, "abcdefgh", strict=True)
        ],
        columns=["responder", "dialogue_id", "text"],
    )
    found = measure_sameness(replies, rng=rng, n_resamples=50).set_index("responder")
    assert found.loc["stock", "sameness"] == pytest.approx(1.0)
    assert found.loc["stock", "n_repeated"] == 8
    assert found.loc["own", "sameness"] < 0.9
    assert found.loc["own", "n_repeated"] == 0


def test_similarity_by_hand_and_across_dialogues_only(rng):
    """Two replies to one dialogue are equal, the third shares nothing: across dialogues the mean is
    0."""
    replies = pd.DataFrame(
        {"responder": "m", "dialogue_id": ["d", "d", "e"], "text": ["dog", "dog", "exam"]}
    )
    row = measure_sameness(replies, rng=rng, n_resamples=20).iloc[0]
    assert row["sameness"] == 0.0
    assert row["n_repeated"] == 2


def test_similarities_are_those_of_scikit_learn(rng):
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.metrics.pairwise import cosine_similarity

    words = np.array(
        [
            "the",
            "a",
            "dog",
            "exam",
            "rent",
            "sorry",
            "hear",
            "you",
            "this",
            "why",
            "what",
            "try",
            "rest",
        ]
    )
    texts = [" ".join(rng.choice(words, 8)) for _ in range(10)]
    replies = pd.DataFrame({"responder": "m", "dialogue_id": range(10), "text": texts})
    similar = cosine_similarity(TfidfVectorizer(token_pattern=r"\w+(?:'\w+)?").fit_transform(texts))
    expected = similar[~np.eye(10, dtype=bool)].mean()
    assert measure_sameness(replies, rng=rng, n_resamples=20).iloc[0]["sameness"] == pytest.approx(
        expected
    )
