"""Davidson, the ladder of margins and the released rating: by hand, against second implementations,
and on known strengths."""

import itertools

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import log_expit

from heart_utils.ratings.bradley_terry import find_separated, fit_model
from heart_utils.ratings.ratings import fit_ratings
from heart_utils.ratings.verdicts import RatingsError, read_verdicts
from heart_utils.simulate.study import Panel, simulate_study
from heart_utils.tables import check_table

NAMES = ["w", "x", "y", "z"]


def readiness(rows, weights):
    """Davidson's nu: the exponential of the propensity of ties."""
    cluster = "dialogue_id" if "dialogue_id" in rows else None
    return np.exp(
        fit_model(
            read_verdicts(rows, dimension="overall", cluster=cluster), "davidson", weights, None
        ).alpha.item()
    )


def answers(rng, theta, alpha, scores, n):
    """Draw answers from the ladder itself: alpha and score of each step from b by far to a by
    far."""
    rows = []
    for i, j in itertools.combinations(range(len(theta)), 2):
        chance = np.exp(alpha + scores * (theta[i] - theta[j]))
        steps = scores[rng.choice(len(scores), size=n, p=chance / chance.sum())]
        word = np.where(steps > 0, "a", np.where(steps < 0, "b", "tie"))
        rows.append(
            pd.DataFrame(
                {"responder_a": NAMES[i], "responder_b": NAMES[j], "verdict": word, "step": steps}
            )
        )
    table = pd.concat(rows, ignore_index=True)
    return table.assign(
        margin=(table["step"].abs() + 0.5).where(table["step"] != 0),
        dialogue_id=np.arange(len(table)).astype(str),
    )


@pytest.fixture(scope="module")
def ladder():
    theta = np.array([0.5, 0.2, -0.1, -0.6])
    scores = np.array([-4.5, -3.5, -2.5, -1.5, -0.5, 0, 0.5, 1.5, 2.5, 3.5, 4.5])
    alpha = np.abs(scores) * -0.6 + np.where(scores == 0, 0.4, 0.0)
    return theta, answers(np.random.default_rng(3), theta, alpha, scores, 900)


def poisson_strengths(rows, scores):
    """The ladder as a log-linear model of counts (Critchlow and Fligner, 1991), fitted by
    statsmodels."""
    import statsmodels.api as sm

    counts = rows.groupby(["responder_a", "responder_b", "step"]).size().reset_index(name="n")
    grid = pd.DataFrame(
        [(a, b, step) for a, b in itertools.combinations(NAMES, 2) for step in scores],
        columns=["responder_a", "responder_b", "step"],
    )
    grid = grid.merge(counts, how="left").fillna({"n": 0})
    pair = pd.get_dummies(grid["responder_a"] + grid["responder_b"], dtype=float)
    kind = pd.get_dummies(grid["step"].abs(), dtype=float).drop(columns=0.5)
    sides = np.stack(
        [
            (grid["responder_a"] == name) * grid["step"]
            - (grid["responder_b"] == name) * grid["step"]
            for name in NAMES[1:]
        ],
        1,
    )
    fit = sm.GLM(grid["n"], np.hstack([pair, kind, sides]), family=sm.families.Poisson()).fit(
        tol=1e-13
    )
    theta = np.concatenate([[0.0], np.asarray(fit.params)[-3:]])
    return dict(zip(NAMES, theta - theta.mean(), strict=True))


def test_davidson_is_newmans_model_as_evalica_fits_it():
    import evalica

    rows = simulate_study(
        rng=np.random.default_rng(5),
        strengths=5,
        n_dialogues=40,
        pairs=8,
        panels=[Panel("human", 9, 3, ties=0.7)],
    )
    rows = rows.verdicts
    words = {"a": evalica.Winner.X, "b": evalica.Winner.Y, "tie": evalica.Winner.Draw}
    theirs = evalica.newman(
        rows["responder_a"],
        rows["responder_b"],
        rows["verdict"].map(words),
        tolerance=1e-14,
        limit=100_000,
        tie_weight=1.0,
    )
    ours = fit_ratings(rows, method="davidson", weights="verdicts", n_resamples=0)
    expected = np.log(theirs.scores) - np.log(theirs.scores).mean()
    assert ours.strength.to_dict() == pytest.approx(expected.to_dict(), abs=1e-6)
    assert readiness(rows, "verdicts") == pytest.approx(2 * theirs.v, rel=1e-6)


@pytest.mark.parametrize("method", ["davidson", "margins"])
def test_the_ladder_is_a_log_linear_model_as_statsmodels_fits_it(ladder, method):
    rows, most = ladder[1], 4.5
    if method == "davidson":
        rows, most = rows.assign(step=np.sign(rows["step"]) / 2), 0.5
    ours = fit_ratings(rows, method=method, weights="verdicts", n_resamples=0).strength
    scores = sorted([0.0, *np.arange(0.5, most + 1), *-np.arange(0.5, most + 1)])
    assert ours.to_dict() == pytest.approx(poisson_strengths(rows, scores), abs=1e-6)


def test_davidson_by_hand():
    """6 wins, 3 ties, 2 losses: odds 3 without ties, and nu = 3 / sqrt(6 * 2)."""
    rows = pd.DataFrame(
        {"responder_a": "x", "responder_b": "y", "verdict": ["a"] * 6 + ["tie"] * 3 + ["b"] * 2}
    )
    ratings = fit_ratings(rows, method="davidson")
    assert ratings.strength["x"] - ratings.strength["y"] == pytest.approx(np.log(3), abs=1e-6)
    assert readiness(rows, "pairs") == pytest.approx(3 / np.sqrt(12), rel=1e-5)
    assert ratings.chance.loc["x", "y"] == pytest.approx(7.5 / 11, abs=1e-6)


def test_without_ties_davidson_is_bradley_terry():
    rows = simulate_study(
        rng=np.random.default_rng(5),
        strengths=5,
        n_dialogues=20,
        pairs=8,
        panels=[Panel("human", 9, 3)],
    ).verdicts
    davidson, plain = (
        fit_ratings(rows, method=method, n_resamples=20) for method in ("davidson", "bradley-terry")
    )
    assert davidson.strength.to_dict() == pytest.approx(plain.strength.to_dict(), abs=1e-6)
    np.testing.assert_allclose(davidson.replicates, plain.replicates, atol=1e-6)


@settings(max_examples=12)
@given(
    rows=st.lists(
        st.tuples(
            st.sampled_from("xyz"),
            st.sampled_from("xyz"),
            st.sampled_from(["a", "b", "tie"]),
            st.integers(1, 5),
            st.integers(1, 4),
        ),
        min_size=3,
        max_size=25,
    )
)
def test_any_small_table_gives_finite_strengths_that_turn_with_the_sides(rows):
    rows = [row for row in rows if row[0] != row[1]] + [
        ("x", "y", "tie", 1, 1),
        ("y", "z", "tie", 1, 2),
        ("x", "y", "a", 1, 1),
    ]
    table = pd.DataFrame(
        rows, columns=["responder_a", "responder_b", "verdict", "margin", "dialogue_id"]
    )
    turned = table.rename(columns={"responder_a": "responder_b", "responder_b": "responder_a"})
    turned["verdict"] = table["verdict"].map({"a": "b", "b": "a", "tie": "tie"})
    for method in ("davidson", "margins"):
        here = fit_ratings(table.astype({"dialogue_id": str}), method=method, n_resamples=20)
        there = fit_ratings(turned, method=method, n_resamples=0)
        assert np.isfinite(here.replicates.to_numpy()).all()
        assert here.strength.to_dict() == pytest.approx(there.strength.to_dict(), abs=1e-6)


@pytest.mark.parametrize("method", ["margins", "released-heart"])
def test_a_win_without_a_margin_from_1_to_5_is_refused(method):
    rows = pd.DataFrame({"responder_a": "x", "responder_b": "y", "verdict": ["a", "b", "tie"]})
    with pytest.raises(RatingsError, match="lack the column margin"):
        fit_ratings(rows, method=method)
    for wrong in (None, 0.5, 6):
        with pytest.raises(RatingsError, match="`margin` of a win must be from 1 to 5; row 1"):
            fit_ratings(rows.assign(margin=[1, wrong, None]), method=method)


def test_who_can_be_placed_is_linked_by_wins_both_ways():
    """One win each: w, x and y in a circle, z beaten by x; then all in a circle, and all apart."""
    wins = np.zeros((3, 4, 4))
    wins[:2, [0, 1, 2, 1], [1, 2, 0, 3]] = 1.0
    wins[1, 3, 0] = 1.0
    wins[2, [0, 1, 2], [1, 2, 3]] = 1.0
    assert find_separated(wins).tolist() == [[False] * 3 + [True], [False] * 4, [True] * 4]


# What HEART released


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
