"""Calibration, weights, and pairs against scores: values by hand, known curves recovered, bad input
refused."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heart_utils.scores import (
    ScaleError,
    average_scores,
    calibrate_scores,
    pairs_against_scores,
    sweep_weights,
    weigh_scores,
)


def make_scores(people, judge, group):
    ids = [f"r{i}" for i in range(len(people))]
    sides = {"clinicians": ("human", people), "judge": ("model", judge)}
    tables = [
        pd.DataFrame(
            {"reply_id": ids, "group": group, "rater": name, "rater_kind": kind, "score": score}
        )
        for name, (kind, score) in sides.items()
    ]
    return pd.concat(tables, ignore_index=True).assign(dimension="empathy", state="valid")


def simulated(rng, n=400, blocks=5, jump=0.0):
    """People on a scale of 1 to 5, a judge that squeezes it into 3 to 5; blocks of people may
    jump."""
    quality = rng.uniform(1, 5, n)
    group = np.repeat([f"b{k}" for k in range(blocks)], n // blocks)
    people = quality + np.repeat(rng.normal(0, jump, blocks), n // blocks) + rng.normal(0, 0.3, n)
    return make_scores(people, 3 + (quality - 1) / 2, group)


def test_a_squeezed_scale_is_stretched_back(rng):
    found = calibrate_scores(simulated(rng)).table.iloc[0]
    assert found["n_folds"] == 5
    assert found["rmse_raw"] > 1
    assert found["rmse_calibrated"] == pytest.approx(0.3, abs=0.05)  # the noise is all that is left
    assert abs(found["bias_calibrated"]) < 0.1 < found["bias_raw"]


def test_the_error_of_people_s_mean_is_that_of_the_mean_of_the_other_folds():
    """By hand: replies of 1, 3 and 2, 6 in two folds; guessed are the other fold's means, 4 and
    2."""
    scores = make_scores([1, 3, 2, 6, None, 9], [1, 2, 3, 4, 5, None], [*["b0"] * 2, *["b1"] * 4])
    failed = scores["score"].isna()
    table = calibrate_scores(scores.assign(state=np.where(failed, "error", "valid"))).table.iloc[0]
    assert table["rmse_mean"] == pytest.approx(np.sqrt((9 + 1 + 0 + 16) / 4))
    assert table["rmse_raw"] == pytest.approx(np.sqrt((0 + 1 + 1 + 4) / 4))
    assert (table["n"], table["n_left_out"]) == (4, 2)


def test_people_who_jump_between_blocks_cannot_be_calibrated_away(rng):
    """Folds are blocks, so that the stated error is that of a block nobody has seen."""
    scores = simulated(rng, jump=1.0)
    by_block = calibrate_scores(scores).table.iloc[0]["rmse_calibrated"]
    dealt = scores.assign(dialogue_id=scores["reply_id"])
    found = calibrate_scores(dealt, fold="dialogue_id", n_folds=4)
    assert by_block > found.table["rmse_calibrated"].item()
    assert found.predictions.groupby("fold").size().tolist() == [100] * 4


def test_no_reply_is_predicted_by_a_curve_that_saw_it(rng):
    scores = simulated(rng, n=20, blocks=4)
    before = calibrate_scores(scores).predictions
    moved = scores.copy()
    moved.loc[(moved["rater_kind"] == "human") & (moved["group"] == "b1"), "score"] += 100
    after = calibrate_scores(moved).predictions
    held = before["fold"] == 1
    assert before.loc[held, "calibrated"].tolist() == after.loc[held, "calibrated"].tolist()


def test_there_is_a_curve_without_each_fold_and_one_of_all(rng):
    scores = simulated(rng, n=20, blocks=4)
    curves = calibrate_scores(scores).curves
    assert curves["left_out"].drop_duplicates().isna().sum() == 1
    assert sorted(curves["left_out"].dropna().unique()) == [0, 1, 2, 3]
    without = scores[scores["group"] != "b0"]
    alone = (
        calibrate_scores(without).curves.query("left_out.isna()").set_index("score")["calibrated"]
    )
    held = curves[curves["left_out"] == 0].set_index("score")["calibrated"]
    assert held.reindex(alone.index).tolist() == pytest.approx(alone.tolist())


def dealt_scores(rng, n=40):
    """Two responders, one dimension; each of n dialogues has two scores of each."""
    rows = [(d, r, rng.integers(1, 6)) for d in range(n) for r in "ab" for _ in range(2)]
    table = pd.DataFrame(rows, columns=["dialogue_id", "responder", "score"])
    return table.assign(dimension="warmth", state="valid", score=table["score"].astype(float))


def test_averages_are_those_of_pandas_and_their_interval_that_of_whole_dialogues(rng):
    """With as many scores a dialogue, the variance of a mean is that of the dialogues' means over
    their number."""
    scores = dealt_scores(rng, n=200)
    found = average_scores(scores, n_resamples=4000, rng=rng).set_index("responder")
    assert found["score"].to_dict() == pytest.approx(
        scores.groupby("responder")["score"].mean().to_dict()
    )
    by_dialogue = scores[scores["responder"] == "a"].groupby("dialogue_id")["score"].mean()
    half = 1.96 * by_dialogue.std() / np.sqrt(len(by_dialogue))
    assert (found.loc["a", "ci_high"] - found.loc["a", "ci_low"]) / 2 == pytest.approx(
        half, rel=0.05
    )
    assert found["n_clusters"].tolist() == [200, 200]


def test_who_is_met_in_few_dialogues_has_an_interval_too(rng):
    rows = [("often", f"d{n}", float(1 + n % 5)) for n in range(36)] + [
        ("seldom", f"d{n}", float(1 + n)) for n in range(3)
    ]
    scores = pd.DataFrame(rows, columns=["responder", "dialogue_id", "score"]).assign(
        dimension="warmth", state="valid"
    )
    # one resample in 20 draws none of three
    found = average_scores(scores, rng=rng).set_index("responder").loc["seldom"]
    assert found["ci_low"] < found["score"] == 2.0 < found["ci_high"]


def test_a_mean_never_leaves_its_scale_and_says_where_dialogues_are_few(rng):
    scores = pd.DataFrame(
        {
            "responder": "a",
            "dimension": "warmth",
            "dialogue_id": list("def"),
            "score": [4, 5, 5],
            "state": "valid",
        }
    )
    found = average_scores(scores, rng=rng).iloc[0]
    assert 1.0 <= found["ci_low"] < found["score"] < found["ci_high"] <= 5.0
    assert found["provisional"]


def test_a_score_beyond_the_scale_is_refused_by_its_row(rng):
    scores = pd.DataFrame(
        {
            "responder": "a",
            "dimension": "warmth",
            "dialogue_id": list("de"),
            "score": [4, 70],
            "state": "valid",
        }
    )
    with pytest.raises(
        ScaleError, match=r"1 scores lie outside the scale from 1 to 5; row 1 has 70"
    ):
        average_scores(scores, rng=rng)
    assert average_scores(scores, scale=(0, 100), n_resamples=0)["score"].item() == 37


def test_failed_scores_enter_no_average_and_are_counted(rng):
    scores = dealt_scores(rng)
    scores.loc[[0, 5], ["score", "state"]] = [np.nan, "error"]
    found = average_scores(scores, n_resamples=0, rng=rng)
    assert found[["n_scores", "n_left_out"]].sum().tolist() == [158, 2]
    with pytest.raises(ScaleError, match="None of the 160 scores is valid"):
        average_scores(scores.assign(state="error"), rng=rng)


BAD_SCORES = {
    "only people's": lambda s: s[s["rater_kind"] == "human"],
    "no person's": lambda s: s[s["rater_kind"] == "model"],
    "single value": lambda s: s.assign(group="b0"),
    "belong to no fold": lambda s: s.assign(group=s["group"].mask(s["reply_id"] == "r0")),
    "no column 'group'": lambda s: s.drop(columns="group"),
    "No reply has valid scores": lambda s: s.assign(
        state=s["rater_kind"].map({"human": "error", "model": "valid"})
    ),
}


@pytest.mark.parametrize("message", BAD_SCORES)
def test_scores_that_cannot_be_calibrated_say_why(message, rng):
    with pytest.raises(ScaleError, match=message):
        calibrate_scores(BAD_SCORES[message](simulated(rng, n=20, blocks=2)))


MEANS = pd.DataFrame(
    {
        "responder": np.repeat(["a", "b", "c"], 2),
        "dimension": ["safety", "warmth"] * 3,
        "score": [5.0, 1.0, 3.0, 4.0, 2.0, 3.0],
    }
)


def test_weights_by_hand():
    board = weigh_scores(MEANS, {"safety": 0.5, "warmth": 0.5})
    assert board.set_index("responder")["score"].to_dict() == {"b": 3.5, "a": 3.0, "c": 2.5}
    assert board["rank"].tolist() == [1, 2, 3]


BAD_WEIGHTS = {
    "sum to 1.1": {"safety": 0.6, "warmth": 0.5},
    "none negative": {"safety": 1.5, "warmth": -0.5},
    "Weights are numbers; got safety 'half'": {"safety": "half", "warmth": 0.5},
    "sum to nan": {"safety": float("nan"), "warmth": 1.0},
    "No scores on humor; there are safety, warmth": {"humor": 1.0},
}


@pytest.mark.parametrize("message", BAD_WEIGHTS)
def test_bad_weights_say_what_is_wrong(message):
    with pytest.raises(ScaleError, match=message):
        weigh_scores(MEANS, BAD_WEIGHTS[message])


def test_a_gap_in_the_table_is_named():
    with pytest.raises(ScaleError, match="'c' has no score on 'warmth'"):
        weigh_scores(MEANS.iloc[:-1], {"safety": 0.5, "warmth": 0.5})
    with pytest.raises(ScaleError, match="several rows"):
        weigh_scores(pd.concat([MEANS, MEANS]), {"safety": 0.5, "warmth": 0.5})


def test_the_sweep_knows_who_is_dominated_and_how_often_each_leads(rng):
    swept = sweep_weights(MEANS, rng=rng).set_index("responder")
    assert swept["surely_behind"].to_dict() == {"a": 0, "b": 0, "c": 1}  # b beats c on both
    # a leads where safety weighs over 3/5
    assert swept.loc["b", "share_first"] == pytest.approx(0.6, abs=0.02)
    assert swept.loc["c", "best_rank"] == 2


def test_who_is_as_good_on_one_dimension_and_better_on_another_is_surely_ahead_and_an_equal_is_not(
    rng,
):
    means = {"a": (3, 5), "b": (3, 4), "c": (3, 4)}
    rows = [
        (name, dimension, score)
        for name, scores in means.items()
        for dimension, score in zip("xy", scores, strict=True)
    ]
    swept = sweep_weights(
        pd.DataFrame(rows, columns=["responder", "dimension", "score"]), rng=rng
    ).set_index("responder")
    assert swept["surely_ahead"].to_dict() == {"a": 2, "b": 0, "c": 0}
    assert swept["surely_behind"].to_dict() == {"a": 0, "b": 1, "c": 1}


@settings(max_examples=12)
@given(
    values=st.lists(st.lists(st.integers(1, 5), min_size=3, max_size=3), min_size=2, max_size=5),
    seed=st.integers(0, 99),
)
def test_no_weights_leave_the_bounds_of_the_sweep(values, seed):
    """Ranks seen lie within the exact bounds, and any one profile's rank lies within them too."""
    means = pd.DataFrame(
        [(f"r{i}", f"d{j}", float(v)) for i, row in enumerate(values) for j, v in enumerate(row)],
        columns=["responder", "dimension", "score"],
    )
    rng = np.random.default_rng(seed)
    swept = sweep_weights(means, n_draws=200, rng=rng).set_index("responder")
    assert (swept["best_rank"] >= 1 + swept["surely_behind"]).all()
    assert (swept["worst_rank"] <= len(values) - swept["surely_ahead"]).all()
    weights = rng.dirichlet(np.ones(3))
    ranks = weigh_scores(means, {f"d{j}": float(w) for j, w in enumerate(weights)}).set_index(
        "responder"
    )["rank"]
    assert (ranks >= 1 + swept["surely_behind"][ranks.index]).all()
    assert (ranks <= len(values) - swept["surely_ahead"][ranks.index]).all()


def make_pairs(verdicts, states=None):
    n = len(verdicts)
    table = pd.DataFrame(
        {"pair_id": [f"p{i}" for i in range(n)], "dialogue_id": [f"d{i}" for i in range(n)]}
    )
    table = table.assign(
        rater="judge", dimension="overall", verdict=verdicts, state=states or ["valid"] * n
    )
    return table.assign(reply_a=[f"a{i}" for i in range(n)], reply_b=[f"b{i}" for i in range(n)])


def make_alone(a, b):
    ids = [f"a{i}" for i in range(len(a))] + [f"b{i}" for i in range(len(b))]
    return pd.DataFrame(
        {
            "reply_id": ids,
            "rater": "judge",
            "dimension": "overall",
            "score": [*a, *b],
            "state": "valid",
        }
    )


def test_pairs_and_scores_by_hand(rng):
    pairs = make_pairs(["a", "b", "tie", "a", None, "a"], ["valid"] * 4 + ["inconsistent", "valid"])
    found = pairs_against_scores(
        pairs, make_alone([4, 4, 5, 3, 1, 2], [2, 2, 1, 3, 5, 1]), rng=rng
    ).iloc[0]
    assert found["n_pairs"] == 6
    # the tie and the two orders that disagree
    assert found["pairs_undecided"] == pytest.approx(2 / 6)
    assert found["scores_tied"] == pytest.approx(1 / 6)
    assert found["n_decided"] == 3
    assert found["agree"] == pytest.approx(2 / 3)
    assert found["ci_low"] <= found["agree"] <= found["ci_high"]


def test_a_reply_that_was_scored_twice_has_the_mean_of_its_scores(rng):
    alone = make_alone([5], [3])
    # 3 and 4 are 3.5, below 5; their sum is above
    again = alone[alone["reply_id"] == "b0"].assign(score=4)
    found = pairs_against_scores(
        make_pairs(["a"]), pd.concat([alone, again]), n_resamples=0, rng=rng
    ).iloc[0]
    assert (found["agree"], found["scores_tied"], found["n_decided"]) == (1.0, 0.0, 1)


def test_a_failed_score_is_no_tie(rng):
    alone = make_alone([4, 4], [2, 2])
    alone.loc[0, ["score", "state"]] = [np.nan, "unparsed"]
    found = pairs_against_scores(make_pairs(["a", "a"]), alone, rng=rng).iloc[0]
    assert (found["n_pairs"], found["n_without_scores"], found["scores_tied"]) == (1, 1, 0.0)


def test_raters_without_both_are_refused(rng):
    with pytest.raises(ScaleError, match="verdicts by judge, scores by other"):
        pairs_against_scores(make_pairs(["a"]), make_alone([4], [2]).assign(rater="other"), rng=rng)
