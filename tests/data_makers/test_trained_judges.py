"""What *Do judges agree?* says of trained judges is what the official files give, by the tool and
by other code."""

import json

import numpy as np
import pandas as pd
import pytest
from scipy.stats import pearsonr, spearmanr
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import RidgeCV
from sklearn.pipeline import make_pipeline

from data.make import trained_judges
from heart_utils.runs import find_root

FOLDER = find_root() / "data" / "trained"
ARMS = {"person": "human", "gpt-4": "chatgpt", "gpt-4-empathy": "chatgpt_empathy"}


@pytest.fixture(scope="module")
def curve():
    return pd.read_csv(FOLDER / "curve.csv").set_index(["n_labels", "guess", "measure"])


def test_the_tables_hold_numbers_and_names_alone():
    """No word of a reply and no id of a platform: what is text is one of few names."""
    for name in ("curve", "transfer", "ceiling", "saving"):
        table = pd.read_csv(FOLDER / f"{name}.csv")
        texts = table.select_dtypes(exclude=["number", "bool"])
        words = set(texts.to_numpy().ravel())
        assert len(words) < 20
        assert max(map(len, words), default=0) < 40
        low, high = (table.filter(like=end).to_numpy() for end in ("_low", "_high"))
        assert (np.isnan(low) | (low <= high)).all()


@pytest.mark.mirror
@pytest.mark.slow
@pytest.mark.apart
def test_the_last_point_of_the_curve_follows_by_scikit_learn_alone(mirror, curve):
    """Another vectorizer's vocabulary, another way to choose the penalty, another split into five
    parts."""
    rated = pd.read_csv(mirror / "welivita" / "dataset_and_ratings.csv")
    rows = pd.concat(
        [
            pd.DataFrame({"message": rated.index, "batch": rated["part_no"], "author": author,
                          "text": rated[f"response_{arm}"], "score": rated[f"rating_{arm}"].astype(float)})
            for author, arm in ARMS.items()
        ],
        ignore_index=True,
    )  # fmt: skip
    part = np.random.default_rng(5).permutation(200)[rows["batch"].to_numpy()] % 5
    for fold in range(5):
        kept, held = rows[part != fold], part == fold
        vectors = TfidfVectorizer(
            analyzer="char_wb",
            ngram_range=(2, 4),
            min_df=5,
            sublinear_tf=True,
            max_features=10_000,
        )
        model = make_pipeline(vectors, RidgeCV(alphas=[10.0], cv=2))
        rows.loc[held, "guess"] = model.fit(kept["text"], kept["score"]).predict(
            rows.loc[held, "text"]
        )
        rows.loc[held, "by_author"] = rows.loc[held, "author"].map(
            kept.groupby("author")["score"].mean()
        )
    within = np.mean(
        [spearmanr(some["guess"], some["score"]).statistic for _, some in rows.groupby("author")]
    )
    assert within == pytest.approx(
        curve.loc[(4800, "words", "rho_within_author"), "value"], abs=0.03
    )
    for guess, name in (("guess", "words"), ("by_author", "author")):
        wide = rows.pivot_table(["score", guess], "message", "author")
        right = []
        for model in ("gpt-4", "gpt-4-empathy"):
            truth, said = (
                np.sign(wide[what, "person"] - wide[what, model]) for what in ("score", guess)
            )
            right.append((truth == said)[truth != 0])
        share = pd.concat(right).mean()
        assert share == pytest.approx(
            curve.loc[(4800, name, "right_person_or_gpt4"), "value"], abs=0.015
        )


@pytest.mark.mirror
@pytest.mark.slow
@pytest.mark.apart
def test_the_first_point_of_the_curve_is_what_the_tool_gives(mirror, curve):
    again = trained_judges.learning_curve(
        trained_judges.load_rated()["welivita"], [trained_judges.SIZES[0]]
    )
    again = again.set_index(["n_labels", "guess", "measure"])
    pd.testing.assert_frame_equal(again, curve.loc[[trained_judges.SIZES[0]]], rtol=1e-4, atol=5e-6)


@pytest.mark.mirror
def test_the_ceiling_follows_from_the_two_psychologists_of_each_reply(mirror):
    rows = pd.json_normalize(
        json.loads((mirror / "resort" / "human_eval_annotations_cleaned.json").read_text("utf-8"))
    )
    one, other = (
        rows[f"human_eval_annotation_{number}.empathy"].astype(float) for number in (1, 2)
    )
    both_ways = pearsonr(pd.concat([one, other]), pd.concat([other, one])).statistic
    table = pd.read_csv(FOLDER / "ceiling.csv").set_index(["data", "within_author"])
    overall = table.loc[("resort, empathy", False)]
    assert overall["reliability"] == pytest.approx(both_ways, abs=1e-5)
    assert overall["ceiling_two"] == pytest.approx(
        (2 * both_ways / (1 + both_ways)) ** 0.5, abs=1e-5
    )
    assert overall["judge"] < overall["ceiling_two"]
