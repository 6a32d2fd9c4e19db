"""Partial pooling: against integration by brute force, at both extremes, and against known
truth."""

import numpy as np
import pandas as pd
import pytest
from drawn_votes import draw_votes, measure_pooled
from scipy.special import expit

from heart_utils.ratings.other_models import SPREADS, pool_strengths
from heart_utils.ratings.ratings import fit_ratings


def test_two_responders_are_pooled_as_integration_over_gap_and_spread_says():
    """Thirty dialogues, one vote each, 21 to 9: Laplace's approximation against a grid of gaps."""
    rows = pd.DataFrame(
        {
            "responder_a": "x",
            "responder_b": "y",
            "verdict": ["a"] * 21 + ["b"] * 9,
            "dialogue_id": range(30),
        }
    )
    found = pool_strengths(rows)
    gap = np.linspace(-12.0, 12.0, 24_001)[None, :]
    tau = SPREADS[:, None]
    # Of two strengths with mean zero, the prior is on their one free direction, gap / sqrt(2).
    weight = (
        expit(gap) ** 21
        * expit(-gap) ** 9
        * np.exp(-((gap / np.sqrt(2.0)) ** 2) / (2.0 * tau**2))
        / tau
    )
    mean = float((weight * gap).sum() / weight.sum())
    sd = np.sqrt(float((weight * gap**2).sum() / weight.sum()) - mean**2)
    x, y = found.table["strength"]
    assert found.design_effect == pytest.approx(1.0, abs=0.1)
    assert x - y == pytest.approx(mean, rel=0.05)
    assert x == -y
    assert (found.table.loc[0, "ci_high"] - x) * 2 / 2.045 == pytest.approx(sd, rel=0.08)


def test_many_votes_are_hardly_pooled_and_equals_nearly_wholly():
    rng = np.random.default_rng(4)
    known = pool_strengths(
        draw_votes(rng, 200, 5, 10, 5, 0.3, theta=np.array([1.0, 0.5, 0.0, -0.5, -1.0]))
    ).table
    assert (known["strength"] / known["plain"]).drop(2).between(0.97, 1.0).all()
    equals = [pool_strengths(draw_votes(rng, 20, 10, 3, 1, 0.0)).table for _ in range(10)]
    assert np.mean([table["strength"].std() for table in equals]) < 0.35 * np.mean(
        [table["plain"].std() for table in equals]
    )


def test_votes_that_go_together_count_less():
    rows = draw_votes(np.random.default_rng(2), 40, 6, 3, 1, 0.5)
    copies = pd.concat([rows] * 5, ignore_index=True)
    once, five = pool_strengths(rows), pool_strengths(copies)
    assert five.design_effect == pytest.approx(5 * once.design_effect, rel=0.25)
    width = [(one.table["ci_high"] - one.table["ci_low"]).mean() for one in (once, five)]
    assert width[1] == pytest.approx(width[0], rel=0.15)


@pytest.mark.parametrize(
    ("pairs", "most"), [(3, 0.40), pytest.param(10, 0.70, marks=pytest.mark.slow)]
)
def test_pooling_beats_the_plain_fit_and_its_intervals_hold(pairs, most):
    pooled = measure_pooled(20, pairs, 1, "normal", 40)
    assert pooled.ratio <= most + 2 * pooled.ratio_error
    held, error = pooled.share("held")
    assert held >= 0.93 - 2 * error


def test_the_plain_column_is_the_fit_to_votes_of_equal_weight():
    rows = draw_votes(np.random.default_rng(3), 30, 4, 6, 1, 0.3)
    plain = fit_ratings(rows, weights="verdicts", n_resamples=0).strength
    table = pool_strengths(rows).table.set_index("responder")
    assert table["plain"].to_dict() == pytest.approx(plain.to_dict(), abs=1e-6)


def test_one_cluster_is_refused():
    rows = draw_votes(np.random.default_rng(3), 1, 3, 3, 9, 0.3)
    with pytest.raises(ValueError, match="There is one dialogue_id only"):
        pool_strengths(rows)


def test_each_verdict_counts_for_both_of_its_responders():
    rows = pd.DataFrame(
        {"responder_a": list("zxxyx"), "responder_b": list("xyyzz"), "verdict": list("baaab")}
    )
    table = pool_strengths(rows.assign(dialogue_id=range(5))).table
    assert table["responder"].tolist() == ["x", "y", "z"]
    assert table["n_verdicts"].tolist() == [4, 3, 3]


def test_the_design_effect_counts_the_degree_of_freedom_that_few_clusters_lose():
    """The same three dialogues twice over: 6 / 5 in place of 3 / 2."""
    rows = draw_votes(np.random.default_rng(5), 3, 3, 3, 60, 0.8)
    rows["dialogue_id"] = rows["dialogue_id"].astype(str)
    twice = pd.concat([rows, rows.assign(dialogue_id=rows["dialogue_id"] + "-again")])
    once, again = pool_strengths(rows).design_effect, pool_strengths(twice).design_effect
    assert once > 2
    assert again / once == pytest.approx((6 / 5) / (3 / 2), rel=0.05)


def test_equals_come_in_the_order_of_the_alphabet_with_rows_numbered_from_zero():
    rows = pd.DataFrame(
        {
            "responder_a": list("zy"),
            "responder_b": list("yz"),
            "verdict": list("aa"),
            "dialogue_id": [0, 1],
        }
    )
    table = pool_strengths(pd.concat([rows, rows.assign(dialogue_id=[2, 3])])).table
    assert table["responder"].tolist() == ["y", "z"]
    assert table["strength"].tolist() == [0, 0]
    assert table.index.tolist() == [0, 1]


def test_each_spread_weighs_what_laplaces_approximation_gives_it():
    """21 to 9, with the gap that is likeliest under each spread found by halving: the slope falls
    throughout."""
    rows = pd.DataFrame(
        {
            "responder_a": "x",
            "responder_b": "y",
            "verdict": ["a"] * 21 + ["b"] * 9,
            "dialogue_id": range(30),
        }
    )
    found = pool_strengths(rows)
    won, lost = 21 / found.design_effect, 9 / found.design_effect
    low, high = np.zeros(len(SPREADS)), np.full(len(SPREADS), 5.0)
    for _ in range(60):
        gap = (low + high) / 2
        up = won * expit(-gap) - lost * expit(gap) - gap / (2 * SPREADS**2) > 0
        low, high = np.where(up, gap, low), np.where(up, high, gap)
    value = won * np.log(expit(gap)) + lost * np.log(expit(-gap)) - (gap / 2) ** 2 / SPREADS**2
    held = 2 * (won + lost) * expit(gap) * expit(-gap) + 1 / SPREADS**2
    weight = np.exp(value) / SPREADS / np.sqrt(held)
    assert found.table["strength"].max() == pytest.approx(
        float(weight @ gap / weight.sum()) / 2, rel=1e-5
    )


def test_the_leader_the_last_and_who_is_far_from_the_others_are_flagged(rng):
    table = pool_strengths(
        draw_votes(rng, 60, 6, 15, 3, 0.3, theta=np.array([1.0, 0.5, 0.1, -0.1, -0.5, -1.0]))
    ).table
    assert table["flag"].iloc[[0, -1]].tolist() == ["leader", "last"]
    assert set(table["flag"].iloc[1:-1]) <= {"", "far"}
    few = pool_strengths(
        draw_votes(rng, 8, 6, 3, 1, 0.3, theta=np.array([4.0, 3.5, 0.0, 0.0, 0.0, 0.0]))
    ).table
    outside = ~few["plain"].between(few["ci_low"], few["ci_high"])
    assert (few["flag"].iloc[1:-1] == "far").tolist() == outside.iloc[1:-1].tolist()
