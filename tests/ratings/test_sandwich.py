"""Robust intervals: against statsmodels, against the bootstrap, by hand, and where they cannot be
had."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from drawn_votes import draw_votes
from scipy import stats
from scipy.optimize import approx_fprime
from scipy.special import expit, logit

from heart_utils.ratings import bradley_terry
from heart_utils.ratings.bradley_terry import (
    BradleyTerry,
    covariance,
    fit_model,
    prior_terms,
    sums_of_scores,
)
from heart_utils.ratings.ratings import Clusters, fit_ratings, spread_of
from heart_utils.ratings.resampling import interaction_codes
from heart_utils.ratings.standings import deletions, influences
from heart_utils.ratings.verdicts import RatingsError, read_margins, read_verdicts
from heart_utils.simulate.study import Panel, simulate_study
from heart_utils.tables import check_table


@pytest.fixture(scope="module")
def rows():
    panel = Panel("human", 30, 3, rater_sd=0.5, ties=0.3)
    return simulate_study(
        rng=np.random.default_rng(12), strengths=5, n_dialogues=80, pairs=8, panels=[panel]
    ).verdicts


def fitted(rows, method="bradley-terry", weights="verdicts", rater="rater"):
    entries = read_verdicts(rows, dimension="overall", cluster="dialogue_id", rater=rater)
    if method == "bradley-terry":
        return BradleyTerry.fit(entries, weights)
    return fit_model(
        entries, method, weights, read_margins(entries) if method == "margins" else None
    )


def design(rows, names):
    a, b = (
        np.stack([rows[side] == name for name in names], 1).astype(float)
        for side in ("responder_a", "responder_b")
    )
    return (a - b)[:, 1:]  # the first responder is the zero point


def against_first(covariance):
    turn = np.hstack([-np.ones((len(covariance) - 1, 1)), np.eye(len(covariance) - 1)])
    return turn @ covariance @ turn.T


def test_without_leverage_the_sandwich_is_statsmodels_cluster_robust_covariance(rows):
    import statsmodels.api as sm

    model = fitted(rows)
    share = rows["verdict"].map({"a": 1.0, "tie": 0.5, "b": 0.0})
    parts = []
    for group in (rows["dialogue_id"], rows["rater"], rows["dialogue_id"] + rows["rater"]):
        codes, names = pd.factorize(group)
        fit = sm.GLM(share, design(rows, model.entries.responders), family=sm.families.Binomial())
        theirs = fit.fit(
            cov_type="cluster", cov_kwds={"groups": codes, "use_correction": False}, tol=1e-12
        )
        sums = sums_of_scores(model, codes, len(names))
        parts.append(
            (model.bread @ sums.T @ sums @ model.bread)[: len(model.theta), : len(model.theta)]
        )
        np.testing.assert_allclose(against_first(parts[-1]), theirs.cov_params(), rtol=1e-5)
    # Leverage widens by little where clusters are many, and dialogues by raters are taken out as
    # they are.
    ratio = np.diag(covariance(model)) / np.diag(parts[0] + parts[1] - parts[2])
    assert ((ratio > 1.03) & (ratio < 1.1)).all()


def test_the_one_way_sandwich_is_the_jackknife(rows):
    """Each dialogue left out in turn and everybody fitted again; the sandwich takes one step
    instead of the whole fit."""
    few = rows[rows["dialogue_id"].isin(sorted(rows["dialogue_id"].unique())[:20])]
    left_out = [
        fitted(few[few["dialogue_id"] != name]).theta for name in few["dialogue_id"].unique()
    ]
    jackknife = np.square(np.subtract(left_out, fitted(few).theta)).sum(axis=0) * 19 / 20
    np.testing.assert_allclose(np.diag(covariance(fitted(few, rater=None))), jackknife, rtol=0.05)


@pytest.mark.parametrize("correction", [0.0, 0.5, 1.0])
def test_a_score_is_divided_by_what_leverage_leaves_to_the_power_of_the_correction(correction):
    """Two responders, four dialogues of 1, 2, 3 and 4 verdicts, 6 of 10 won: leverage is a
    dialogue's share of the verdicts."""
    sizes, won = np.array([1, 2, 3, 4]), np.array([0, 2, 1, 3])
    words = [["a"] * n_won + ["b"] * (size - n_won) for size, n_won in zip(sizes, won, strict=True)]
    rows = pd.DataFrame(
        {"dialogue_id": np.repeat(list("defg"), sizes), "verdict": np.concatenate(words)}
    )
    rows = rows.assign(responder_a="x", responder_b="y", dimension="overall", state="valid")
    found = covariance(fitted(rows, rater=None), correction=correction)
    scores = (won - 0.6 * sizes) / (1 - bradley_terry.NEARLY * sizes / 10) ** correction
    wanted = (scores**2).sum() / (10 * 0.6 * 0.4) ** 2 * 3 / 4
    assert found[0, 0] + found[1, 1] - 2 * found[0, 1] == pytest.approx(wanted)


def test_effective_clusters_are_all_where_even_and_fewer_where_not(rows):
    one, other = np.triu_indices(4, 1)
    names, told = (
        np.array(list("wxyz")),
        np.where(np.random.default_rng(1).random(54) < 0.5, "a", "b"),
    )
    even = pd.DataFrame({"dialogue_id": np.repeat(range(9), 6), "verdict": told})
    even = even.assign(responder_a=np.tile(names[one], 9), responder_b=np.tile(names[other], 9))
    assert fit_ratings(even, weights="verdicts", n_resamples=50).n_effective == pytest.approx(9.0)
    heavy = pd.concat([even, *[even[even["dialogue_id"] == 0]] * 9])
    assert fit_ratings(heavy, weights="verdicts", n_resamples=50).n_effective == pytest.approx(
        18**2 / (100 + 8), rel=0.05
    )


@pytest.mark.parametrize("weights", ["pairs", "verdicts"])
@pytest.mark.parametrize("method", ["bradley-terry", "davidson", "margins"])
def test_sandwich_and_bootstrap_agree(rows, method, weights):
    bootstrap, sandwich = (
        fit_ratings(
            rows,
            method=method,
            weights=weights,
            cluster=Clusters("dialogue_id", interval),
            n_resamples=1500,
            rng=np.random.default_rng(3),
        )
        for interval in ("bootstrap", "sandwich")
    )
    ratio = bootstrap.replicates.std() / sandwich.replicates.std()
    assert ((ratio > 0.92) & (ratio < 1.1)).all()
    width = (sandwich.table["ci_high"] - sandwich.table["ci_low"]) / (
        bootstrap.table["ci_high"] - bootstrap.table["ci_low"]
    )
    assert width.between(0.88, 1.15).all()
    check_table("ratings", sandwich.table)


def test_raters_who_differ_widen_the_interval_and_the_product_bootstrap_more(rows):
    two = ["dialogue_id", "rater"]
    alone = fit_ratings(rows, n_resamples=800)
    both = fit_ratings(rows, cluster=two, n_resamples=800)
    product = fit_ratings(rows, cluster=Clusters(two, "product"), n_resamples=800)
    assert both.settings["population"] == product.settings["population"] == "dialogues_and_raters"
    assert (both.n_clusters, alone.n_clusters) == (30, 80)
    spread = [one.replicates.std().mean() for one in (alone, both, product)]
    assert spread[0] < spread[1] < spread[2]
    check_table("ratings", product.table)


@pytest.mark.parametrize("weights", ["pairs", "verdicts"])
def test_influence_foretells_what_leaving_a_dialogue_out_does(rows, weights):
    model = fitted(rows, "bradley-terry", weights)
    moved = influences(model, model.residuals)
    dialogue = model.entries.clusters[7]
    foretold = -moved[model.entries.cluster == 7].sum(axis=0)
    without = fitted(rows[rows["dialogue_id"] != dialogue], "bradley-terry", weights)
    np.testing.assert_allclose(
        without.theta - model.theta, foretold, atol=0.15 * np.abs(foretold).max() + 1e-4
    )


def test_few_or_nested_raters_cannot_stand_for_others(rows):
    two = ["dialogue_id", "rater"]
    few = rows[rows["rater"].isin(sorted(rows["rater"].unique())[:12])]
    with pytest.raises(RatingsError, match="12 of 'rater' are too few"):
        fit_ratings(few, cluster=two)
    rows = rows.drop(columns="order")  # new raters would have answered an order twice
    nested = rows.assign(rater=rows["dialogue_id"] + rows["rater"])
    with pytest.raises(
        RatingsError,
        match="rater .* one dialogue_id only.*Resample the dialogue_id alone",
    ):
        fit_ratings(nested, cluster=two)
    lone = rows.assign(rater="r" + (rows["dialogue_id"].str[-2:].astype(int) // 2).astype(str))
    with pytest.raises(RatingsError, match="Each dialogue_id belongs to one rater only"):
        fit_ratings(lone, cluster=two)


def test_the_choice_of_interval_is_checked(rows):
    with pytest.raises(
        RatingsError,
        match="interval is 'product', .*bootstrap, sandwich .*dialogue_id",
    ):
        fit_ratings(rows, cluster=Clusters("dialogue_id", "product"))
    with pytest.raises(
        RatingsError, match="interval is 'bootstrap', expected one of sandwich, product"
    ):
        fit_ratings(rows, cluster=Clusters(["dialogue_id", "rater"], "bootstrap"))
    with pytest.raises(RatingsError, match="cluster names 3 columns"):
        fit_ratings(rows, cluster=["dialogue_id", "rater", "slice"])
    with pytest.raises(RatingsError, match="lack the column judge"):
        fit_ratings(rows, cluster=["dialogue_id", "judge"])


def test_crossed_numbers_only_what_occurs():
    cell, n_cells = interaction_codes(np.array([0, 0, 2, 2]), 3, np.array([1, 1, 0, 1]), 2)
    assert (cell.tolist(), n_cells) == ([0, 0, 1, 2], 3)


@pytest.mark.parametrize("method", ["bradley-terry", "davidson"])
def test_a_pair_met_in_one_dialogue_is_not_known_for_certain(method):
    """It was: each vote counted by its distance from its pair's mean, and seventeen equals in
    twenty dialogues with ten
    pairs each were told apart in 97 % of simulated studies."""
    said = {"d0": ("x", "y"), "d1": ("y", "z"), "d2": ("x", "z")}
    words = {
        "d0": ["a"] * 3 + ["b"] * 2,
        "d1": ["a", "a", "b", "b", "tie"],
        "d2": ["a"] * 3 + ["b", "tie"],
    }
    rows = [(name, *said[name], word) for name, given in words.items() for word in given]
    verdicts = pd.DataFrame(rows, columns=["dialogue_id", "responder_a", "responder_b", "verdict"])
    table = fit_ratings(
        verdicts, method=method, cluster=Clusters("dialogue_id", "sandwich"), n_resamples=20
    ).table
    assert (table["ci_high"] - table["ci_low"] > 0.1).all()


def test_equals_on_a_sparse_board_are_seldom_told_apart():
    """Each pair met in one or two dialogues: some of seventeen equals were told apart in 16 % of
    200 studies, one-way,
    and in 15 % over dialogues and raters."""
    for n_raters, cluster in ((0, "dialogue_id"), (45, ["dialogue_id", "rater"])):
        apart = []
        for k in range(25):
            rows = draw_votes(
                np.random.default_rng([17, k]), 20, 17, 10, 15, 0.8, n_raters=n_raters, taste=0.35
            )
            table = fit_ratings(rows, cluster=cluster, n_resamples=200).table
            apart.append((table["rank_low"] > 1).any() or (table["rank_high"] < 17).any())
        assert np.sum(apart) <= 4  # more has probability 0.03 at 6.5 %


@pytest.mark.parametrize("weights", ["pairs", "verdicts"])
@pytest.mark.parametrize("method", ["bradley-terry", "davidson", "margins"])
def test_slopes_and_information_are_what_a_small_step_finds(rows, method, weights):
    """How fast scores fall as one strength rises."""
    model = fitted(rows, method, weights)
    step, one = 1e-5, np.zeros(len(model.theta), np.intp)
    for place in range(len(model.theta)):
        theta = [model.theta + sign * step * (np.arange(len(one)) == place) for sign in (1, -1)]
        up, down = (replace(model, theta=moved) for moved in theta)
        fall = (down.residuals - up.residuals)[:, 0] / (2 * step)
        side = (model.entries.a == place) * 1.0 - (model.entries.b == place)
        np.testing.assert_allclose(fall, model.slopes * side, atol=1e-6)
        falls = (
            sums_of_scores(down, one[model.entries.a], 1)
            - sums_of_scores(up, one[model.entries.a], 1)
        )[0] / (2 * step)
        information = model.information
        # Of strengths themselves a term is added along the direction that moves all alike.
        differences = information[place] - (
            information[place, : len(one)].mean() * (np.arange(len(information)) < len(one))
        )
        np.testing.assert_allclose(falls, differences, rtol=1e-5, atol=1e-4)
    for number, level in enumerate(range(len(model.alpha)), len(one)):
        alphas = [
            model.alpha + sign * step * (np.arange(len(model.alpha)) == level) for sign in (1, -1)
        ]
        sums = [
            sums_of_scores(replace(model, alpha=moved), one[model.entries.a], 1)[0]
            for moved in alphas
        ]
        np.testing.assert_allclose(
            (sums[1] - sums[0]) / (2 * step), information[number], rtol=1e-4, atol=1e-3
        )


def test_the_weak_prior_pulls_as_its_likelihood_does(rng):
    """A quarter of a win and of a loss against the mean, by small steps."""
    theta, prior = rng.normal(size=4), np.array([0.25, 0.0, 0.25, 0.25])

    def likelihood(place):
        return prior @ (np.log(expit(place - place.mean())) + np.log(expit(place.mean() - place)))

    gradient, hessian = prior_terms(theta[None] - theta.mean(), prior[None])
    np.testing.assert_allclose(gradient[0], approx_fprime(theta, likelihood, 1e-6), atol=1e-5)
    rising = approx_fprime(
        theta, lambda place: prior_terms(place[None] - place.mean(), prior[None])[0][0], 1e-6
    )
    spare = rising - rising.mean(axis=0)
    np.testing.assert_allclose(-spare, hessian[0] - hessian[0].mean(axis=0), atol=1e-5)


def test_what_an_entry_takes_along_is_the_change_of_its_pairs_mean():
    """Verdicts of a dialogue are averaged, then dialogues are; a pair has as many voices as pairs
    have verdicts on average."""
    said = [
        ("x", "y", 1, 0),
        ("x", "y", 0, 0),
        ("y", "x", 0.5, 0),
        ("y", "x", 0, 1),
        ("x", "y", 0, 2),
        ("y", "z", 1, 0),
    ]
    said += [("z", "y", 1, 1), ("z", "x", 0, 1), ("x", "z", 0, 2), ("x", "z", 0.5, 2)]
    table = pd.DataFrame(said, columns=["responder_a", "responder_b", "share", "dialogue_id"])
    table["verdict"] = table["share"].map({1: "a", 0.5: "tie", 0: "b"})
    model = BradleyTerry.fit(
        read_verdicts(table, dimension="overall", cluster="dialogue_id"), "pairs"
    )
    turned = table["responder_a"] > table["responder_b"]
    table["first"] = table["share"].where(~turned, 1 - table["share"])
    table["pair"] = np.where(
        turned,
        table["responder_b"] + table["responder_a"],
        table["responder_a"] + table["responder_b"],
    )

    def mean(part):
        return part.groupby("dialogue_id")["first"].mean().mean()

    taken = [
        (mean(table[table["pair"] == pair]) - mean(table[table["pair"] == pair].drop(index=place)))
        * (-1 if back else 1)
        for place, pair, back in zip(table.index, table["pair"], turned, strict=True)
    ]
    np.testing.assert_allclose(deletions(model)[:, 0], 10 / 3 * np.array(taken), atol=1e-9)


@pytest.mark.parametrize("interval", ["bootstrap", "sandwich"])
def test_who_always_won_or_lost_has_the_exact_end_of_a_share(interval):
    """Twelve dialogues: best beats x and y, last loses to them, x has 8 of 12 against y.

    Clopper and Pearson's end for 12 of
    12, as scipy has it, is one of the log-odds against whom each met; the mean of x and y is zero.
    """
    rows = []
    for k in range(12):
        rows += [("best", "x", "a", k), ("last", "x", "b", k), ("x", "y", "a" if k < 8 else "b", k)]
    verdicts = pd.DataFrame(rows, columns=["responder_a", "responder_b", "verdict", "dialogue_id"])
    entries = read_verdicts(verdicts, dimension="overall", cluster="dialogue_id")
    model = BradleyTerry.fit(entries, "verdicts")
    gaps, found = spread_of(model, ("dialogue_id",), interval, 200, 0.95, np.random.default_rng(1))
    x = np.log(8 / 4) / 2
    for ends, level in (((found["ci_low"], found["ci_high"]), 0.95), (gaps.ends, 1 - 0.05 / 6)):
        end = logit(stats.binomtest(12, 12).proportion_ci(level, "exact").low)
        assert entries.responders.tolist() == ["best", "last", "x", "y"]
        # the prior of best and last
        assert ends[0][:2].tolist() == pytest.approx([x + end, -np.inf], abs=1e-3)
        assert ends[1][:2].tolist() == pytest.approx([np.inf, x - end], abs=1e-3)
    assert np.isfinite([found["ci_low"][2:], found["ci_high"][2:]]).all()
    assert np.isnan(gaps.ends[:, 2:]).all()


def test_of_two_the_one_who_always_won_is_as_far_above_as_the_other_below():
    verdicts = pd.DataFrame(
        {"responder_a": "x", "responder_b": "y", "verdict": ["a"] * 12, "dialogue_id": range(12)}
    )
    table = fit_ratings(verdicts, n_resamples=50).table
    # the gap is twice a strength
    end = logit(stats.binomtest(12, 12).proportion_ci(0.95, "exact").low) / 2
    assert table["ci_low"].tolist() == pytest.approx([end, -np.inf])
    assert table["ci_high"].tolist() == pytest.approx([np.inf, -end])


def test_who_won_all_meets_each_opponent_as_often_as_it_did():
    """Nine of twelve games against x, three against y: as probable as it was, by the games that
    each dialogue had."""
    rows = [("best", "x" if k % 4 else "y", "a", k) for k in range(12)]
    rows += [("x", "y", "a" if k < 8 else "b", k) for k in range(12)]
    verdicts = pd.DataFrame(rows, columns=["responder_a", "responder_b", "verdict", "dialogue_id"])
    table = fit_ratings(verdicts, weights="verdicts", n_resamples=50).table.set_index("responder")
    low, (x, y) = table.loc["best", "ci_low"], table.loc[["x", "y"], "strength"]
    assert 9 * np.log(expit(low - x)) + 3 * np.log(expit(low - y)) == pytest.approx(np.log(0.025))


@pytest.mark.parametrize("weights", ["pairs", "verdicts"])
@pytest.mark.parametrize(
    ("method", "cluster", "interval"),
    [
        ("bradley-terry", "dialogue_id", "bootstrap"),
        ("davidson", "dialogue_id", "bootstrap"),
        ("davidson", ["dialogue_id", "rater"], "sandwich"),
        ("bradley-terry", ["dialogue_id", "rater"], "product"),
    ],
)
def test_how_much_fits_in_memory_at_a_time_changes_no_number(
    rows, monkeypatch, method, cluster, interval, weights
):
    options = {
        "method": method,
        "cluster": Clusters(cluster, interval),
        "weights": weights,
        "n_resamples": 40,
    }
    at_once = fit_ratings(rows, **options)
    # seven clusters, or three draws of two levels
    monkeypatch.setattr(bradley_terry, "CHUNK_CELLS", 7 * 5**2)
    monkeypatch.setattr(bradley_terry, "DENSE_CELLS", 100)
    apart = fit_ratings(rows, **options)
    pd.testing.assert_frame_equal(at_once.table, apart.table, rtol=1e-6)
    pd.testing.assert_frame_equal(at_once.replicates, apart.replicates, rtol=1e-6)
    assert apart.n_effective == pytest.approx(at_once.n_effective)
