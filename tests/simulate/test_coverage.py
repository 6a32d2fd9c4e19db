"""Methods tried in drawn studies: coverage, promised power, what a judge saves, and asking in waves."""

from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import pytest

from heart_utils.agreement.prediction_powered import prediction_powered_ratings
from heart_utils.ratings.verdicts import AgreementError
from heart_utils.simulate import coverage as powered_check
from heart_utils.simulate.coverage import (
    CELL,
    ask_for_votes,
    check_coverage,
    check_saving,
    compare_designs,
    label_some,
    simulate_coverage,
    simulate_designs,
    simulate_power,
)
from heart_utils.simulate.study import Design, Panel, Spread, minimum_gap, simulate_study

PLAIN = Design(
    n_dialogues=60, n_responders=4, pairs=6, votes=9, n_raters=45, dialogue_sd=0.0, rater_sd=0.0
)


@cache
def coverage(design, n_studies=60):
    rng = np.random.default_rng(1)
    found = simulate_coverage(design, rng=rng, n_studies=n_studies, n_resamples=100)
    return found.set_index(["quantity", "interval"])


def test_without_effects_every_interval_but_the_released_formula_keeps_its_promise():
    found = coverage(PLAIN).loc["strength"]
    slack = 3 * found["mc_error"] + 0.02  # 100 resamples give ends that waver
    low = (found["coverage"] < 0.95 - slack)[lambda short: short]
    assert list(low.index) == ["released formula"]


def test_the_released_formula_covers_less_than_even_games_would_let_it():
    """An even game carries 1/4: one of four responders then has an error of 1.5 / sqrt(n), others a
    larger one.

    So 1.96 / sqrt(n) covers 2 Phi(1.96 / 1.5) - 1 = 0.81 at most.
    """
    found = coverage(PLAIN).loc[("strength", "released formula")]
    assert 0.6 < found["coverage"] < 0.81 + 2 * found["mc_error"]


def test_dialogues_that_differ_undo_the_bootstrap_over_verdicts_alone():
    found = coverage(replace(PLAIN, dialogue_sd=0.8)).loc["strength", "coverage"]
    assert found["verdicts"] < 0.75
    assert found["dialogues"] > 0.88


def test_raters_who_differ_undo_the_bootstrap_over_dialogues_for_other_raters():
    """By the parts of `minimum_gap` 0.72 of the variance is that 45 raters were drawn: 2 Phi(1.96
    sqrt(0.28)) - 1 = 0.70."""
    found = coverage(replace(PLAIN, rater_sd=0.5)).loc["difference", "coverage"]
    assert found["dialogues, for other raters"] == pytest.approx(0.70, abs=0.06)
    assert found["dialogues and raters"] > 0.88
    assert found["dialogues"] > 0.88


@pytest.mark.slow
def test_a_part_of_the_pairs_makes_wider_intervals_that_hold_too():
    some, all_pairs = (
        coverage(replace(PLAIN, pairs=pairs)).loc[("strength", "dialogues")] for pairs in (2, 6)
    )
    assert some["width"] > 1.3 * all_pairs["width"]
    assert some["coverage"] > 0.88


def test_each_row_says_whom_it_speaks_of_and_that_it_is_simulated():
    found = coverage(PLAIN, n_studies=2).reset_index()
    assert found["simulated"].all()
    both = {
        "dialogues, for other raters",
        "dialogues and raters",
        "dialogues and raters, product weights",
    }
    of = {
        "none": {"released formula", "verdicts"},
        "dialogues": {"dialogues", "dialogues, sandwich"},
        "dialogues_and_raters": both,
    }
    assert found.groupby("population")["interval"].agg(set).to_dict() == of


@pytest.mark.parametrize(
    ("design", "n_studies", "message"),
    [(replace(PLAIN, tie_share=0.2), 10, "without ties"), (PLAIN, 1, "two or more")],
)
def test_what_cannot_be_drawn_is_refused(design, n_studies, message):
    with pytest.raises(ValueError, match=message):
        coverage(design, n_studies=n_studies)


DESIGN = Design(n_dialogues=60, n_responders=6, pairs=15, votes=3, n_raters=45)


@pytest.mark.parametrize(
    ("design", "n_contrasts"),
    [
        (DESIGN, None),
        (DESIGN, 1),
        pytest.param(
            Design(80, 6, 6, 2, 10, dialogue_sd=0.8, rater_sd=0.0), None, marks=pytest.mark.slow
        ),
        pytest.param(
            Design(80, 6, 15, 3, 45, dialogue_sd=2.0, rater_sd=0.0, tie_share=0.3),
            1,
            marks=pytest.mark.slow,
        ),
    ],
    ids=[
        "all pairs at once",
        "one pair",
        "only dialogues vary, some of the pairs",
        "ties, one pair",
    ],
)
def test_the_smallest_gap_is_found_as_often_as_promised(design, n_contrasts):
    """120 studies at a power of 0.8 waver by 0.037; the formula is held to 0.1."""
    gap = minimum_gap(design, n_contrasts=n_contrasts)
    how = {"rng": np.random.default_rng(1), "n_studies": 120, "n_contrasts": n_contrasts}
    assert simulate_power(design, gap, **how)["found"].mean() == pytest.approx(0.8, abs=0.1)


@pytest.mark.slow
def test_a_sparse_design_finds_its_gap_as_often_as_promised():
    """A pair meets in 8.8 dialogues.

    A formula for even pairs and middling responders promised 194 points, found in half.
    """
    sparse = Design(120, 17, 10, 1, 45, dialogue_sd=0.5)
    found = simulate_power(sparse, minimum_gap(sparse), rng=np.random.default_rng(5), n_studies=100)
    assert found["found"].mean() == pytest.approx(0.8, abs=0.12)
    assert found["n_effective"].mean() == pytest.approx(sparse.n_effective, rel=0.05)


def test_the_fitted_gap_is_the_gap_that_was_asked_for():
    found = simulate_power(DESIGN, 0.5, rng=np.random.default_rng(2), n_studies=100)
    assert found["estimate"].mean() == pytest.approx(0.5, abs=3 * found["estimate"].std() / 10)
    assert found["simulated"].all()


def test_a_tiny_gap_is_found_as_seldom_as_chance_has_it_and_half_a_width_in_half_of_the_studies():
    """One side of a 95 % interval: 2.5 %. 80 % of studies find (1.96 + 0.84) / 1.96 of a width."""
    half = minimum_gap(DESIGN, power=0.5, n_contrasts=1)
    rng, found = np.random.default_rng(3), {}
    for gap in (1e-6, half):
        drawn = simulate_power(DESIGN, gap, rng=rng, n_studies=120, n_contrasts=1)
        found[gap] = drawn["found"].mean()
    assert found[1e-6] <= 0.025 + 3 * np.sqrt(0.025 * 0.975 / 120)
    assert found[half] == pytest.approx(0.5, abs=0.1)
    assert minimum_gap(DESIGN, n_contrasts=1) == pytest.approx(1.42 * half, rel=0.01)


@pytest.mark.parametrize("gap", [0.0, -1.0, float("nan")])
def test_no_gap_is_refused(gap):
    with pytest.raises(ValueError, match="expected a gap above zero"):
        simulate_power(DESIGN, gap, rng=np.random.default_rng(1))


def three(rng, **judge):
    panels = [Panel("human", 30, 2), Panel("model", 1, 1, **judge)]
    return simulate_study(
        rng=rng,
        strengths=3,
        n_dialogues=60,
        pairs="all",
        panels=panels,
        spread=Spread(dialogues=1.5),
    ).verdicts


def spy(function, dialogues):
    def called(rows, **settings):
        dialogues.append(set(rows["dialogue_id"]))
        return function(rows, **settings)

    return called


def test_people_label_as_many_as_asked_for_and_judges_see_all(rng):
    verdicts = three(rng)
    pool = sorted(verdicts["dialogue_id"].unique())[:40]
    part = label_some(verdicts, 10, rng, among=pool)
    people, judges = (
        set(part.loc[part["rater_kind"] == kind, "dialogue_id"]) for kind in ("human", "model")
    )
    assert (len(people), judges) == (10, set(pool))
    assert people < judges


def test_what_is_set_aside_reaches_no_fit(rng, monkeypatch):
    verdicts, seen, targets = three(rng), [], []
    for name, dialogues in (("prediction_powered_ratings", seen), ("fit_ratings", targets)):
        monkeypatch.setattr(powered_check, name, spy(getattr(powered_check, name), dialogues))
    found = check_saving(verdicts, n_labelled=[10], rng=rng, n_held_out=35, n_draws=4)
    assert found["n_pool"].tolist() == [60 - 35]
    assert [len(dialogues) for dialogues in targets] == [35] * 4
    assert all(not target & used for target, used in zip(targets, seen, strict=True))


@pytest.mark.slow
def test_a_judge_that_reads_saves_what_is_estimated_and_a_coin_saves_nothing(rng):
    reading, coin = (
        check_saving(three(rng, discrimination=d), n_labelled=[15], rng=rng, n_draws=150).iloc[0]
        for d in (4, 0)
    )
    assert reading["saved"] == pytest.approx(reading["estimated"], abs=3 * reading["saved_se"])
    assert reading["saved"] > 2 * reading["saved_se"]
    assert coin["saved"] == pytest.approx(0.0, abs=max(3 * coin["saved_se"], 0.05))
    assert reading["estimated"] <= reading["at_most"] + 0.05


@pytest.mark.parametrize(
    ("size", "message"), [(40, "40 are left, too few to label 40"), (50, "too few to label 50")]
)
def test_too_few_dialogues_are_refused(rng, size, message):
    with pytest.raises(AgreementError, match=message):
        check_saving(three(rng), n_labelled=[10, size], rng=rng)
    with pytest.raises(AgreementError, match="61 of 60 dialogues cannot be labelled"):
        label_some(three(rng), 61, rng)


def test_intervals_hold_the_truth_about_as_often_as_they_say(rng):
    true = {"human": 0.5, "x": 0.0, "y": -0.5}
    found = check_coverage(
        true, n_labelled=[10, 30], n_dialogues=60, n_studies=30, rng=rng
    ).set_index("n_labelled")
    assert found.index.tolist() == [10, 30]
    for who in ("powered", "people"):
        assert found[f"{who} mean"].tolist() == pytest.approx([0.95, 0.95], abs=0.08)
        assert found[f"{who} sem"].between(0, 0.06).all()


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
def test_votes_stand_for_all_cells_on_average(rng, first, votes):
    """Each cell counts once on average over what chance might have asked: 480 of them."""
    verdicts = study(rng, votes).verdicts
    asked = [ask_for_votes(verdicts, 240 * votes, first=first, rng=rng) for _ in range(12)]
    many = [people(rows)["stands_for"].sum() for rows in asked]
    assert np.mean(many) == pytest.approx(480, abs=max(3.5 * np.std(many) / np.sqrt(12), 1.0))
    assert len(people(asked[0])) == pytest.approx(len(people(verdicts)) / 2, rel=0.1)
    assert people(asked[0])["dialogue_id"].nunique() >= 75
    assert (asked[0]["rater_kind"] == "model").sum() == (verdicts["rater_kind"] == "model").sum()
    assert not asked[0].index.has_duplicates


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
    right, wrong, equal = (
        compare_designs(drawn.verdicts, truth=true, rng=rng).query("design == 'all votes'").iloc[0]
        for true in (truth, -truth, 0.0 * truth)
    )
    assert (right["false"], wrong["false"], wrong["covered"]) == (0.0, 1.0, 0.0)
    assert equal["false"] == 1.0  # equals that are told apart
    assert wrong["error"] > 10 * right["error"]


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
