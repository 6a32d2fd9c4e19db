import numpy as np
import pandas as pd
import pytest

from heart_utils.agreement.prediction_powered import prediction_powered_ratings
from heart_utils.simulate.coverage import CELL, ask_for_votes, compare_designs, simulate_designs
from heart_utils.simulate.study import Panel, simulate_study

FOUR = {"v": 1.2, "w": 1.2, "x": -0.6, "y": -1.8}


def study(rng, votes=1, n_dialogues=80):
    panels = [Panel("human", 30, votes), Panel("model", 1, 1)]
    return simulate_study(
        rng=rng, strengths=FOUR, n_dialogues=n_dialogues, pairs="all", panels=panels
    )


def people(verdicts):
    return verdicts[verdicts["rater_kind"] == "human"]


@pytest.mark.parametrize("first", [1.0, 0.6])
@pytest.mark.parametrize("votes", [1, 3])
def test_about_as_many_votes_are_asked_for_in_every_dialogue_and_all_of_the_judges(
    rng, first, votes
):
    verdicts = study(rng, votes).verdicts
    asked = ask_for_votes(verdicts, len(people(verdicts)) / 2, first=first, rng=rng)
    assert len(people(asked)) == pytest.approx(len(people(verdicts)) / 2, rel=0.1)
    assert people(asked)["dialogue_id"].nunique() >= 75
    assert (asked["rater_kind"] == "model").sum() == (verdicts["rater_kind"] == "model").sum()
    assert not asked.index.has_duplicates


@pytest.mark.parametrize("first", [1.0, 0.6])
@pytest.mark.parametrize("votes", [1, 3])
def test_votes_stand_for_all_cells_on_average(rng, first, votes):
    """Each cell counts once on average over what chance might have asked: 480 of them."""
    verdicts = study(rng, votes).verdicts
    many = [
        people(ask_for_votes(verdicts, 240 * votes, first=first, rng=rng))["stands_for"].sum()
        for _ in range(12)
    ]
    assert np.mean(many) == pytest.approx(480, abs=max(3.5 * np.std(many) / np.sqrt(12), 1.0))


def test_the_second_wave_asks_where_a_difference_is_still_open(rng):
    verdicts = study(rng, n_dialogues=200).verdicts
    asked = people(ask_for_votes(verdicts, 600, first=0.5, rng=rng)).groupby(CELL[1:]).size()
    assert asked["v", "w"] > asked["v", "x"] > asked["x", "y"]
    even = people(ask_for_votes(verdicts, 600, rng=rng)).groupby(CELL[1:]).size()
    assert even.max() < 1.3 * even.min()


def test_half_of_the_votes_on_every_dialogue_know_more_than_all_votes_on_half(rng):
    found = pd.concat([compare_designs(study(rng, 2).verdicts, rng=rng) for _ in range(4)])
    width = found[~found["judge"]].groupby("design")["width"].mean()
    assert width["all votes"] < width["every dialogue"] < width["half of the dialogues"]


def test_a_wrong_rank_and_a_missed_strength_are_counted(rng):
    drawn = study(rng)
    truth = drawn.truth.query("rater_kind == 'human'").set_index("responder")["marginal"]
    right, wrong = (
        compare_designs(drawn.verdicts, truth=true, rng=rng).query("design == 'all votes'").iloc[0]
        for true in (truth, -truth)
    )
    assert (right["false"], wrong["false"], wrong["covered"]) == (0.0, 1.0, 0.0)
    assert wrong["error"] > 10 * right["error"]


def test_equals_that_are_told_apart_make_a_rank_false(rng):
    drawn = study(rng)
    truth = pd.Series({"v": 1.0, "w": 1.0, "x": 1.0, "y": 1.0})
    assert compare_designs(drawn.verdicts, truth=truth, rng=rng)["false"].iloc[0] == 1.0


def test_the_same_chance_gives_the_same_studies():
    panels = {"people": Panel("human", 25, 2), "judge": Panel("model", 1, 1)}
    one, other = (
        simulate_designs(
            FOUR, n_studies=2, n_dialogues=40, sizes=(10,), rng=np.random.default_rng(3), **panels
        )
        for _ in "ab"
    )
    pd.testing.assert_frame_equal(one, other)
    assert one.groupby("design")["votes"].first()["10 dialogues"] == pytest.approx(0.25)


def test_a_wave_of_few_votes_is_still_an_estimate_of_the_whole(rng):
    """What two waves say agrees with all votes, on average over what chance might have asked (same
    votes each time)."""
    verdicts = study(rng, 2).verdicts
    whole = prediction_powered_ratings(verdicts, weight=0.0).table.set_index("responder")[
        "strength"
    ]
    draws = [ask_for_votes(verdicts, 320, first=0.5, rng=rng) for _ in range(16)]
    found = [prediction_powered_ratings(part, stands_for="stands_for").table for part in draws]
    off = pd.DataFrame([table.set_index("responder")["strength"] for table in found]) - whole
    assert (off.mean().abs() < 3.5 * off.std() / np.sqrt(16) + 0.02).all()
