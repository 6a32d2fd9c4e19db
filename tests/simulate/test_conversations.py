"""Studies of whole conversations: components, intervals and promised power against drawn studies."""

import numpy as np
import pandas as pd
import pytest
from drawn_scores import CONVERSATIONS, FACETS, compare_equals, draw_scores
from scipy import stats

from heart_utils import ConversationCosts, plan_conversations, variance_components
from heart_utils.agreement.generalizability import score_differences, win_scores
from heart_utils.ratings.verdicts import AgreementError
from heart_utils.simulate.conversations import difference_error, find_chance

SIZES = {"responder": 4, "dialogue": 10, "seeker": 3, "repeat": 2, "rater": 2}
SAGE = {"responder:dialogue": 100.0, "responder:seeker": 10.0, "rest": 400.0}


def drawn(seed, sizes=SIZES):
    return draw_scores(np.random.default_rng(seed), sizes, CONVERSATIONS)


def test_components_of_starts_seekers_repeats_and_raters_are_found_on_average():
    rng = np.random.default_rng(1)
    found = pd.DataFrame(
        [
            variance_components(draw_scores(rng, SIZES, CONVERSATIONS), facets=FACETS).table[
                "estimate"
            ]
            for _ in range(50)
        ]
    )
    truth = CONVERSATIONS | {"repeat": CONVERSATIONS["responder:dialogue:seeker:repeat"]}
    for name, values in found.items():
        error = values.std() / np.sqrt(len(values))
        assert values.mean() == pytest.approx(truth.get(name, 0.0), abs=3.5 * error), name


def test_a_repeat_has_no_meaning_of_its_own():
    """Numbers of repeats are labels within their cell: dealt anew, all components stay."""
    scores = drawn(2)
    rng = np.random.default_rng(3)
    flipped = scores.copy()
    cell = flipped.groupby(["responder", "dialogue_id", "seeker"]).ngroup()
    flip = rng.integers(0, 2, cell.max() + 1)[cell]
    flipped["repeat"] = (flipped["repeat"] + flip) % 2
    first, second = (
        variance_components(rows, facets=FACETS).table["estimate"] for rows in (scores, flipped)
    )
    pd.testing.assert_series_equal(first, second)


def test_without_a_facet_its_scores_are_averaged():
    scores = drawn(4)
    means = scores.groupby(["responder", "dialogue_id", "seeker"])["score"].mean().reset_index()
    facets = ["dialogue_id", "seeker"]
    pd.testing.assert_frame_equal(
        variance_components(scores, facets=facets).table,
        variance_components(means, facets=facets).table,
    )


def test_with_all_else_fixed_the_interval_is_a_paired_t_test():
    scores = drawn(5)
    row = score_differences(scores, facets=FACETS, fixed=["seeker", "rater"]).iloc[0]
    means = scores.pivot_table(index="dialogue_id", columns="responder", values="score")
    printed = stats.ttest_rel(means[0], means[1])
    low, high = printed.confidence_interval(0.95)
    assert row["difference"] == pytest.approx(means[0].mean() - means[1].mean())
    assert (row["ci_low"], row["ci_high"]) == pytest.approx((low, high))
    assert row["df"] == printed.df
    assert row["population"] == "dialogues like these, these seekers and raters"


@pytest.mark.parametrize(
    ("shape", "fixed"),
    [((40, 2, 2, 1), ("seeker", "rater")), ((30, 4, 1, 4), ())],
    ids=["seekers and raters fixed", "four seekers and raters like others"],
)
def test_intervals_cover_and_gaps_are_found_as_often_as_promised(shape, fixed):
    """100 studies waver by 0.022 at a coverage of 0.95, and by 0.04 at a power of 0.8."""
    found = compare_equals(shape, fixed, n_studies=100, rng=np.random.default_rng(6))
    assert found["covered"] == pytest.approx(0.95, abs=0.065)
    assert found["found"] == pytest.approx(found["promised"], abs=0.12)


def test_with_seekers_fixed_an_interval_says_little_of_other_seekers():
    """The check can fail: responders who are equal for all seekers differ for any two of them."""
    found = compare_equals(
        (40, 2, 2, 4), ("seeker", "rater"), n_studies=60, rng=np.random.default_rng(7), held=()
    )
    assert found["covered"] < 0.85


def test_two_seekers_do_not_speak_of_others():
    two = drawn(8, SIZES | {"seeker": 2})
    with pytest.raises(AgreementError, match=r"2 seeker.*fixed=\['seeker'\]"):
        score_differences(two, facets=FACETS, fixed=["rater"])
    assert len(score_differences(two, facets=FACETS, fixed=["seeker", "rater"])) == 6
    error, df = difference_error(SAGE, {"dialogue": 100, "seeker": 2})
    assert error == pytest.approx(np.sqrt(2 * (100 / 100 + 10 / 2 + 400 / 200)))
    assert np.isnan(df)


def test_the_predicted_error_is_the_estimated_one_on_average():
    known = {name: part for name, part in CONVERSATIONS.items() if "repeat" not in name}
    known["repeat"] = CONVERSATIONS["responder:dialogue:seeker:repeat"]
    sizes = {name: n for name, n in SIZES.items() if name != "responder"}
    fixed = ["seeker", "rater"]
    variances = [
        (score_differences(drawn(seed), facets=FACETS, fixed=fixed)["standard_error"] ** 2).mean()
        for seed in range(40)
    ]
    error, df = difference_error(known, sizes, fixed=fixed)
    spread = np.std(variances) / np.sqrt(len(variances))
    assert np.mean(variances) == pytest.approx(error**2, abs=4 * spread)
    assert df == 9
    assert difference_error(known, sizes, fixed=["rater"])[0] > error


def test_a_plan_spends_the_budget_and_no_more():
    plans = plan_conversations(
        SAGE | {"responder:rater": 5.0},
        budget=10_000,
        n_responders=3,
        costs=ConversationCosts(start=5, turn=0.1, judging=2),
        raters=(1, 2),
        fixed=["seeker", "rater"],
    )
    assert (plans["cost"] <= 10_000).all()
    next_start = plans["cost"] / plans["n_starts"]
    assert (plans["cost"] + next_start > 10_000).all()
    assert plans["standard_error"].is_monotonic_increasing
    by_hand = 5 + 3 * 2 * 4 * (10 * 0.1 + 2 * 2)
    row = plans.query("n_seekers == 2 and n_repeats == 4 and n_raters == 2").iloc[0]
    assert row["n_starts"] == 10_000 // by_hand
    assert row["cost"] == pytest.approx(row["n_starts"] * by_hand)
    at_gap = find_chance(row["smallest_gap"] / row["standard_error"], row["df"])
    assert at_gap == pytest.approx(0.8)
    with pytest.raises(AgreementError, match="do not say how raters differ"):
        plan_conversations(SAGE, budget=10_000, n_responders=3, raters=(1, 2))
    with pytest.raises(AgreementError, match="two starts"):
        plan_conversations(SAGE, budget=10, n_responders=3)


def pilot(rng, sizes=(6, 30, 2)):
    """Scores of a study whose components are those of SAGE above."""
    n_responders, n_starts, n_seekers = sizes
    own = rng.normal(0, 10, (n_responders, n_starts, 1))
    liked = rng.normal(0, np.sqrt(10), (n_responders, 1, n_seekers))
    scores = own + liked + rng.normal(0, 20, sizes)
    index = pd.MultiIndex.from_product(
        map(range, sizes), names=["responder", "dialogue_id", "seeker"]
    )
    return pd.DataFrame({"score": scores.ravel()}, index=index).reset_index()


def test_a_plan_says_how_far_a_pilot_leaves_its_gap_open():
    """A gap alone promises a power of 0.8 that a small pilot cannot promise."""
    design = {"budget": 100 * 4 * 2, "n_responders": 2, "seekers": [4], "repeats": [1]}
    design |= {"costs": ConversationCosts(turns=1)}
    [true] = plan_conversations(SAGE, **design).to_dict("records")
    assert np.isnan(true["gap_low"])  # variances by name are taken as known
    held, power = [], []
    for seed in range(20):
        scores = pilot(np.random.default_rng(seed))
        parts = variance_components(scores, facets=["dialogue_id", "seeker"])
        [plan] = plan_conversations(parts, **design).to_dict("records")
        held.append(plan["gap_low"] <= true["smallest_gap"] <= plan["gap_high"])
        power.append(find_chance(plan["smallest_gap"] / true["standard_error"], true["df"]))
    assert np.mean(held) >= 0.9
    assert min(power) < 0.6
    assert max(power) > 0.95


def test_draws_of_components_lie_around_the_estimates_of_a_large_pilot():
    parts = variance_components(pilot(np.random.default_rng(3), (20, 60, 20)), facets=FACETS[:2])
    drawn = parts.draw(400, rng=np.random.default_rng(4))
    estimate = parts.table["estimate"]
    assert drawn["rest"].mean() == pytest.approx(estimate["rest"], rel=0.02)
    wide = drawn["responder:seeker"].quantile([0.025, 0.975])
    assert wide[0.025] < estimate["responder:seeker"] < wide[0.975]
    assert (drawn >= 0).all().all()


def test_more_seekers_win_where_results_are_to_hold_for_others():
    plans = plan_conversations(SAGE, budget=40_000, n_responders=10, seekers=(1, 2, 4, 8))
    assert plans["n_seekers"].iloc[0] == 8
    assert plans["smallest_gap"].isna().tolist() == (plans["n_seekers"] < 3).tolist()
    fixed = plan_conversations(
        SAGE, budget=40_000, n_responders=10, seekers=(1, 2, 4, 8), fixed=["seeker"]
    )
    assert fixed["n_seekers"].iloc[0] == 1


def test_a_facet_that_is_not_known_is_named():
    with pytest.raises(AgreementError, match="'dialogue_id' and any of"):
        variance_components(drawn(9), facets=["dialogue_id", "weather"])


def test_verdicts_on_conversations_keep_their_seeker_so_that_it_may_vary():
    rng = np.random.default_rng(5)
    rows = [
        {
            "dialogue_id": f"d{start}",
            "seeker": seeker,
            "pair_id": f"d{start}--{seeker}",
            "responder_a": "m",
            "responder_b": "n",
            "rater": "j",
            "dimension": "overall",
            "verdict": "a" if rng.random() < share else "b",
            "state": "valid",
        }
        for seeker, share in (("s", 0.9), ("t", 0.6), ("u", 0.75))
        for start in range(30)
    ]
    scores = win_scores(pd.DataFrame(rows))
    assert scores["seeker"].unique().tolist() == ["s", "t", "u"]
    crossed = {"facets": ["dialogue_id", "seeker"]}
    [varied] = score_differences(scores, **crossed).to_dict("records")
    [held] = score_differences(scores, **crossed, fixed=["seeker"]).to_dict("records")
    assert varied["difference"] == pytest.approx(held["difference"])
    assert varied["standard_error"] > held["standard_error"]
    assert varied["population"] == "dialogues and seekers like these"
    replies = win_scores(pd.DataFrame(rows).drop(columns="seeker"))
    assert "seeker" not in replies
