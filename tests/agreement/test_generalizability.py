"""Variance components and reliability: against pingouin, statsmodels, a published table, brute
force and known truth."""

import numpy as np
import pandas as pd
import pingouin
import pytest
import statsmodels.formula.api as smf
from agreement_tables import SHROUT_FLEISS
from drawn_scores import TRUE, draw_scores
from statsmodels.stats.anova import anova_lm

from heart_utils.agreement.generalizability import (
    cheapest_design,
    check_reliability,
    variance_components,
    win_scores,
)
from heart_utils.ratings.verdicts import AgreementError

SMALL = {"responder": 5, "dialogue": 6, "rater": 3}


@pytest.fixture
def scores():
    return draw_scores(np.random.default_rng(3), SMALL, TRUE)


def test_reliability_is_the_published_intraclass_correlation():
    """Of the mean of four, and of one: .91 and .71 by consistency, .62 and .29 by absolute
    agreement."""
    rows = pd.DataFrame(SHROUT_FLEISS).rename_axis("responder").reset_index()
    found = variance_components(
        rows.melt("responder", var_name="dialogue_id", value_name="score").assign(rater="all")
    )
    assert [found.reliability(4), found.reliability(1)] == pytest.approx([0.91, 0.71], abs=5e-3)
    assert [found.reliability(n, absolute=True) for n in (4, 1)] == pytest.approx(
        [0.62, 0.29], abs=5e-3
    )


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_reliability_over_dialogues_is_pingouins(scores):
    one = scores[scores["rater"] == 0]
    printed = pingouin.intraclass_corr(
        one, targets="responder", raters="dialogue_id", ratings="score"
    ).set_index("Type")["ICC"]
    found = variance_components(one)
    assert found.reliability(6) == pytest.approx(printed["ICC(C,k)"])
    assert found.reliability(6, absolute=True) == pytest.approx(printed["ICC(A,k)"])


def test_components_follow_from_the_mean_squares_of_statsmodels(scores):
    fit = smf.ols("score ~ (C(responder) + C(dialogue_id) + C(rater)) ** 2", scores).fit()
    table = anova_lm(fit)
    p, d, r, pd_, pr, dr, rest = table["mean_sq"]
    expected = {
        "responder": (p - pd_ - pr + rest) / 18,  # 6 dialogues x 3 raters
        "dialogue": (d - pd_ - dr + rest) / 15,
        "rater": (r - pr - dr + rest) / 30,
        "responder:dialogue": (pd_ - rest) / 3,
        "responder:rater": (pr - rest) / 6,
        "dialogue:rater": (dr - rest) / 5,
        "rest": rest,
    }
    assert variance_components(scores).table["estimate"].to_dict() == pytest.approx(expected)


def test_a_negative_component_is_set_to_zero_and_marked(scores):
    found = variance_components(
        scores.assign(
            score=scores["score"] - scores.groupby("dialogue_id")["score"].transform("mean")
        )
    )
    row = found.table.loc["dialogue"]
    assert row["estimate"] < 0
    assert row["clipped"]
    assert row["variance"] == 0
    assert found.table["share"].sum() == pytest.approx(1)


def test_dialogues_with_a_gap_are_left_out_and_counted(scores):
    broken = scores.assign(state="valid")
    broken.loc[
        broken["dialogue_id"].eq(2) & broken["rater"].eq(1) & broken["responder"].eq(4), "state"
    ] = "unparsed"
    found = variance_components(broken)
    assert (found.n_left_out, found.n_dialogues) == (1, 5)
    pd.testing.assert_frame_equal(
        found.table, variance_components(scores[scores["dialogue_id"] != 2]).table
    )


def test_other_raters_are_less_reliable_than_the_same_and_absolute_scores_least(scores):
    found = variance_components(
        draw_scores(np.random.default_rng(8), {"responder": 20, "dialogue": 20, "rater": 6}, TRUE)
    )
    part = found.table["variance"]
    same, other = found.reliability(10, 2), found.reliability(10, 2, same_raters=False)
    repeated = part["responder"] + part["responder:rater"] / 2
    noise = part["responder:dialogue"] / 10 + part["rest"] / 20
    assert same == pytest.approx(repeated / (repeated + noise))
    assert other == pytest.approx(part["responder"] / (repeated + noise))
    shift = part["dialogue"] / 10 + part["rater"] / 2 + part["dialogue:rater"] / 20
    assert found.reliability(10, 2, same_raters=False, absolute=True) == pytest.approx(
        part["responder"] / (repeated + noise + shift)
    )
    shift -= part["rater"] / 2  # the same raters are as strict again
    assert found.reliability(10, 2, absolute=True) == pytest.approx(
        repeated / (repeated + noise + shift)
    )


@pytest.mark.parametrize("same_raters", [True, False])
def test_the_cheapest_design_is_that_of_brute_force(same_raters):
    parts = variance_components(
        draw_scores(np.random.default_rng(4), {"responder": 10, "dialogue": 60, "rater": 4}, TRUE)
    )
    settings = {"most_raters": 60, "same_raters": same_raters}
    found = cheapest_design(parts, reliability=0.85, cost_dialogue=3.0, cost_rating=0.5, **settings)
    for row in found.head(3).itertuples():
        reached = [
            parts.reliability(n, row.n_raters, same_raters=same_raters)
            for n in (row.n_dialogues - 1, row.n_dialogues)
        ]
        assert reached[0] < 0.85 <= reached[1] == row.reliability
        assert row.cost == row.n_dialogues * (3 + row.n_raters / 2)
    assert found["cost"].is_monotonic_increasing
    assert found["n_raters"].max() <= (4 if same_raters else 60)
    with pytest.raises(AgreementError, match="No design of up to 10,000 dialogues"):
        cheapest_design(parts, reliability=0.999999, **settings)


def test_wins_of_a_dialogue_share_its_votes_and_panels_meet_the_same_pairs():
    votes = pd.DataFrame(
        [
            ("d", "d--x--y", "x", "y", who, said)
            for who, said in zip("abcd", ["a", "tie", "b", "a"], strict=True)
        ]
        + [("d", "d--x--z", "x", "z", who, "a") for who in "ab"],
        columns=["dialogue_id", "pair_id", "responder_a", "responder_b", "rater", "verdict"],
    ).assign(dimension="overall", state="valid")
    found = win_scores(votes).set_index("responder")
    assert found["score"].to_dict() == pytest.approx({"x": 4.5 / 6, "y": 1.5 / 4, "z": 0})
    assert found["n_votes"].to_dict() == {"x": 6, "y": 4, "z": 2}
    panels = win_scores(votes, panels=2).pivot_table(
        index="responder", columns="rater", values="n_votes"
    )
    assert panels.to_numpy().tolist() == [[3, 3], [2, 2], [1, 1]]
    assert panels.columns.tolist() == ["panel 1", "panel 2"]


@pytest.mark.parametrize("raters", ["all", "another"])
def test_prediction_and_measurement_agree_where_the_model_holds(raters):
    rng = np.random.default_rng(11)
    rows = draw_scores(
        rng, {"responder": 12, "dialogue": 300, "rater": 4}, TRUE | {"responder:rater": 0.2}
    )
    found = check_reliability(rows, 10, raters=raters, n_halves=20, rng=rng)
    assert found["predicted"].mean() == pytest.approx(found["intraclass"].mean(), abs=0.03)
    assert found["predicted"].mean() == pytest.approx(found["components"].mean(), abs=0.02)
    whole = variance_components(rows).reliability(
        10, 4 if raters == "all" else 1, same_raters=raters != "another"
    )
    assert found["predicted"].mean() == pytest.approx(whole, abs=0.02)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda rows: variance_components(rows[rows["rater"] == 0]).reliability(5, n_raters=2), "One rater does not show"),
        (lambda rows: variance_components(rows[rows["rater"] == 0]).reliability(5, same_raters=False), "One rater does not show"),
        (lambda rows: variance_components(rows.assign(dimension=np.where(rows["rater"] == 0, "care", "tact"))), "Choose one dimension of care, tact"),
        (lambda rows: variance_components(rows[rows["responder"] == 0]), "got 1 in 6 of 6"),
        (lambda rows: check_reliability(rows, 2, rng=np.random.default_rng(1)), "does not hold two studies of 2"),
    ],
)  # fmt: skip
def test_what_cannot_be_told_is_refused(scores, ask, message):
    with pytest.raises(AgreementError, match=message):
        ask(scores)


def test_another_scale_of_scores_changes_no_reliability_and_another_start_no_component(scores):
    """Two studies in each half, and two raters, are enough to check."""
    small = scores[(scores["dialogue_id"] < 4) & (scores["rater"] < 2)]
    one, other = (
        check_reliability(rows, 1, raters="another", n_halves=3, rng=np.random.default_rng(1))
        for rows in (small, small.assign(score=10 * small["score"]))
    )
    pd.testing.assert_frame_equal(one, other)
    assert one[["correlation", "intraclass"]].apply(lambda part: part.between(-1, 1)).all(axis=None)
    far, near = (
        variance_components(scores.assign(score=scores["score"] + start)).table["estimate"].tolist()
        for start in (1e8, 0)
    )
    assert far == pytest.approx(near, abs=1e-5)


def test_a_component_of_nothing_is_not_below_zero():
    """Responders alone differ: all else is exactly zero, and zero is no component that was
    clipped."""
    rows = [(r, d, r) for r in (1, 2, 3) for d in "de"]
    table = variance_components(
        pd.DataFrame(rows, columns=["responder", "dialogue_id", "score"]).assign(rater="ann")
    ).table
    assert table["estimate"].to_dict() == {"responder": 1.0, "dialogue": 0.0, "rest": 0.0}
    assert table["share"].tolist() == [1.0, 0.0, 0.0]
    assert not table["clipped"].any()
