"""The released rating: from its description, by hand and by a general optimiser."""

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize
from scipy.special import log_expit

from heart_utils.ratings.ratings import fit_ratings
from heart_utils.ratings.verdicts import RatingsError
from heart_utils.simulate.study import Panel, simulate_study
from heart_utils.tables import check_table


def unanimous(margin, times=50):
    return pd.DataFrame(
        {"responder_a": "x", "responder_b": "y", "verdict": ["a"] * times, "margin": margin}
    )


@pytest.mark.parametrize(("margin", "points"), [(1, 34.86), (5, 511.5)])
def test_a_unanimous_margin_is_worth_what_its_soft_score_is(margin, points):
    """400 log10(0.55 / 0.45) = 34.9 and 400 log10(0.95 / 0.05) = 511.5, however many say so."""
    table = fit_ratings(unanimous(margin), method="released-heart").table
    assert table["rating"].iloc[0] - table["rating"].iloc[1] == pytest.approx(points, abs=0.05)


def test_the_interval_is_that_of_a_count_of_games():
    row = fit_ratings(unanimous(3, times=49), method="released-heart").table.iloc[0]
    assert row["ci_high"] - row["strength"] == pytest.approx(1.96 / 7)
    turned = pd.concat(
        [
            unanimous(3, 20),
            unanimous(3, 5).rename(
                columns={"responder_a": "responder_b", "responder_b": "responder_a"}
            ),
        ]
    )
    table = fit_ratings(turned, method="released-heart").table
    assert (table["ci_high"] - table["ci_low"]).tolist() == pytest.approx([2 * 1.96 / 5] * 2)
    assert row["population"] == "none"


def test_a_general_optimiser_finds_the_same_strengths():
    rows = simulate_study(
        rng=np.random.default_rng(4),
        strengths=5,
        n_dialogues=30,
        pairs=8,
        panels=[Panel("model", 3, 3)],
    ).verdicts
    names = sorted(set(rows["responder_a"]) | set(rows["responder_b"]))
    a, b = (
        np.array([names.index(name) for name in rows[side]])
        for side in ("responder_a", "responder_b")
    )
    soft = np.where(
        rows["verdict"] == "a", 0.45 + 0.1 * rows["margin"], 0.55 - 0.1 * rows["margin"]
    )

    def loss(theta):
        gap = theta[a] - theta[b]
        return (
            -(soft * log_expit(gap) + (1 - soft) * log_expit(-gap)).sum() + 1e-6 * (theta**2).sum()
        )

    found = minimize(loss, np.zeros(5), method="BFGS", options={"gtol": 1e-7}).x
    strength = fit_ratings(rows, method="released-heart").strength[names]
    assert strength.tolist() == pytest.approx((found - found.mean()).tolist(), abs=1e-5)


def test_ratings_are_clipped_and_the_table_fits():
    """Chains of unanimous five pluses run past 3000: six steps of 512 points."""
    rows = pd.concat(
        [unanimous(5, 20).assign(responder_a=f"m{k}", responder_b=f"m{k + 1}") for k in range(7)]
    )
    table = check_table("ratings", fit_ratings(rows, method="released-heart").table)
    assert table["rating"].max() == 3000
    assert table["rating"].min() == 500
    assert table["rank_low"].isna().all()


def test_a_win_without_a_margin_is_refused():
    with pytest.raises(RatingsError, match="`margin` of a win"):
        fit_ratings(unanimous(3).assign(margin=np.nan), method="released-heart")
