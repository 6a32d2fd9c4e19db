"""Judge-aware ratings and partial pooling: by other ways to the same numbers, and on known truth."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from drawn_votes import draw_votes, measure_pooled
from scipy import stats
from scipy.optimize import approx_fprime
from scipy.special import expit

from heart_utils.ratings import other_models
from heart_utils.ratings.bradley_terry import BradleyTerry, NotComparableError, sums_of_scores
from heart_utils.ratings.other_models import SPREADS, fit_judge_aware, pool_strengths
from heart_utils.ratings.ratings import fit_ratings
from heart_utils.ratings.verdicts import RatingsError, name_codes, read_verdicts
from heart_utils.simulate.study import Panel, Spread, simulate_study
from heart_utils.tables import check_table

PANELS = (
    Panel("human", 6, 3, ties=0.5),
    Panel("model", 1, 1, discrimination=0.4, position_bias=1.0),
    Panel("model", 1, 1, discrimination=1.6, ties=0.2),
)


@pytest.fixture(scope="module")
def study():
    return simulate_study(
        rng=np.random.default_rng(21),
        strengths=6,
        n_dialogues=500,
        pairs=10,
        panels=PANELS,
        orders="both",
        spread=Spread(dialogues=0.0),
    )


@pytest.fixture(scope="module")
def fit(study):
    return fit_judge_aware(study.verdicts, responders=study.responders)


def test_known_raters_and_strengths_come_back(study, fit):
    raters = fit.raters.set_index("rater")
    weak, keen = raters.loc["judge_2_001"], raters.loc["judge_3_001"]
    people = raters[raters["rater_kind"] == "human"]
    assert weak["discrimination_low"] < 0.4 < weak["discrimination_high"] < 0.7
    assert keen["discrimination_low"] < 1.6 < keen["discrimination_high"]
    assert (
        abs(weak["position_bias"] - 1.0)
        < weak["position_bias_high"] - weak["position_bias_low"]
        < 0.2
    )
    assert people["ties"].mean() == pytest.approx(0.5, abs=0.06)
    assert weak["ties"] == 0.0
    assert np.log(people["discrimination"]).sum() == pytest.approx(0, abs=1e-7)
    truth = study.truth.query("rater_kind == 'human'").set_index("responder")["strength"]
    table = fit.table.set_index("responder").loc[truth.index]
    reach = (table["ci_high"] - table["ci_low"]) / 2
    assert ((table["strength"] - truth).abs() < 2 * reach).all()
    assert reach.max() < 0.1
    assert fit.anchor == "people"
    check_table("ratings", fit.table)


@pytest.mark.parametrize("prior", [0.0, 0.25])
def test_gradient_and_information_are_what_small_steps_find(study, prior):
    """With and without the weak prior on strengths; people tie, beside a judge who never does."""
    rows = study.verdicts.iloc[:400]
    entries = read_verdicts(rows, dimension="overall", cluster="dialogue_id")
    names, (rater,) = name_codes(rows, ["rater"], entries.rows)
    model = other_models.RaterModel.of(rows, entries, rater, np.ones(len(names), bool))
    model = replace(model, prior=np.full(6, prior))
    ties = np.concatenate([np.ones(6 + 2 * len(names), bool), model.ties_used])
    found = np.random.default_rng(1).normal(0, 0.3, 6 + 3 * len(names))
    found[:6] -= found[:6].mean()
    found[~ties] = -0.5
    gradient, information, _ = other_models.derivatives(model, found)
    np.testing.assert_allclose(gradient, approx_fprime(found, model.value, 1e-6), atol=2e-3)
    steps = 1e-5 * np.eye(len(found))
    up, down = (
        np.array([other_models.derivatives(model, found + sign * step)[0] for step in steps])
        for sign in (1, -1)
    )
    falls = (down - up) / 2e-5
    for matrix in (falls, information):  # strengths have mean zero, by which the prior's is taken
        matrix[:6] -= matrix[:6].mean(axis=0)
    np.testing.assert_allclose(
        falls[np.ix_(ties, ties)], information[np.ix_(ties, ties)], atol=1e-5
    )


def test_equal_forced_raters_give_plain_bradley_terry(monkeypatch):
    """With discrimination held at one and order unknown, the model is Bradley-Terry on verdicts."""
    rows = simulate_study(
        rng=np.random.default_rng(2),
        strengths=4,
        n_dialogues=60,
        pairs=6,
        panels=[Panel("human", 5, 3)],
    ).verdicts
    monkeypatch.setattr(other_models, "LOG_GAMMA_SD", 1e-5)
    fit = fit_judge_aware(rows.assign(order=None))
    assert fit.raters["position_bias"].isna().all()
    entries = read_verdicts(rows, dimension="overall", cluster="dialogue_id")
    plain = BradleyTerry.fit(entries, "verdicts")
    sums, n = sums_of_scores(plain, entries.cluster, len(entries.clusters)), len(entries.clusters)
    se = np.sqrt(np.diag(plain.bread @ sums.T @ sums @ plain.bread) * n / (n - 1))
    table = fit.table.set_index("responder").loc[list(entries.responders)]
    half = ((table["ci_high"] - table["ci_low"]) / 2).tolist()
    assert half == pytest.approx((stats.t.ppf(0.975, n - 1) * se).tolist(), rel=1e-4)
    assert table["strength"].to_dict() == pytest.approx(
        fit_ratings(rows, weights="verdicts", n_resamples=0).strength.to_dict(), abs=1e-5
    )


def test_raters_who_share_one_order_pass_and_others_fail(fit):
    assert fit.p_common_order > 0.01
    at_odds = (Panel("human", 4, 2, rater_sd=0.0), Panel("model", 2, 2, rater_sd=1.0))
    study = simulate_study(
        rng=np.random.default_rng(3), strengths=6, n_dialogues=200, pairs=10, panels=at_odds
    )
    assert fit_judge_aware(study.verdicts).p_common_order < 1e-6


def test_the_test_of_a_common_order_holds_its_level_where_dialogues_matter():
    """16 studies with dialogue effects and one order: the corrected statistic is one a degree of
    freedom, uncorrected 0.8."""
    found = []
    for seed in range(16):
        study = simulate_study(
            rng=np.random.default_rng(seed),
            strengths=4,
            n_dialogues=60,
            pairs=6,
            panels=[Panel("human", 4, 4)],
        )
        found.append(fit_judge_aware(study.verdicts).p_common_order)
    assert np.mean(np.array(found) < 0.05) <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 25)
    df = (4 - 1) * (4 - 1) - (4 - 1)
    assert np.mean(stats.chi2.isf(found, df) / df) == pytest.approx(1.0, abs=0.15)


def test_raters_who_follow_a_rule_are_finite(study):
    """Always for the first or the second shown, a tie, the better or the worse."""
    rows = study.verdicts[study.verdicts["rater"].isin(["rater_1_001", "rater_1_002"])]
    some = rows.iloc[:100]
    best = study.truth.query("rater_kind == 'all'").set_index("responder")["strength"]
    first = some["order"] == "ab"
    better = some["responder_a"].map(best) > some["responder_b"].map(best)
    rules = {"first": first, "last": ~first, "oracle": better, "contrary": ~better}
    odd = [
        some.assign(rater=name, verdict=np.where(for_a, "a", "b")) for name, for_a in rules.items()
    ]
    odd.append(some.assign(rater="shrug", verdict="tie"))
    raters = fit_judge_aware(pd.concat([rows, *odd])).raters.set_index("rater")
    assert np.isfinite(raters[["discrimination", "position_bias", "ties"]].to_numpy()).all()
    assert raters.loc["last", "position_bias"] < -3 < 3 < raters.loc["first", "position_bias"]
    assert 0 < raters.loc["contrary", "discrimination"] < 1.3
    assert raters.loc["oracle", "discrimination"] > 1.3


def test_raters_with_few_answers_do_not_throw_the_search_off():
    """Some 27 answers a person: from there a plain Newton step has overshot to infinity."""
    rng = np.random.default_rng(20260109)
    found = fit_judge_aware(
        simulate_study(rng=rng, strengths=6, n_dialogues=80, pairs="all").verdicts
    )
    assert found.raters["discrimination"].between(0.3, 3.0).all()
    assert found.table["strength"].abs().max() < 3


def test_one_rater_or_strangers_are_refused_and_models_alone_are_a_consensus(study):
    rows = study.verdicts.iloc[::4]
    with pytest.raises(RatingsError, match="one rater only"):
        fit_judge_aware(rows[rows["rater"] == "judge_2_001"])
    with pytest.raises(RatingsError, match="lack the column rater_kind"):
        fit_judge_aware(rows.drop(columns="rater_kind"))
    with pytest.raises(NotComparableError):
        fit_judge_aware(pd.concat([rows, rows.iloc[:5].assign(responder_a="u", responder_b="v")]))
    assert fit_judge_aware(rows.query("rater_kind == 'model'")).anchor == "consensus"


def test_who_was_never_beaten_moves_nobody_elses_zero(study):
    """The zero was the mean of all, so that a strength lent by the weak prior moved everybody."""
    rows = study.verdicts.query("rater_kind == 'human'").head(600)
    best = fit_judge_aware(rows).table.loc[0, "responder"]
    ahead = rows.assign(
        verdict=rows["verdict"]
        .mask(rows["responder_a"] == best, "a")
        .mask(rows["responder_b"] == best, "b")
    )
    table = fit_judge_aware(ahead).table.set_index("responder")
    assert table.index[table["penalised"]].tolist() == [best]
    assert table.loc[~table["penalised"], "strength"].mean() == pytest.approx(0.0, abs=1e-9)


def test_a_judge_whose_order_is_not_known_has_no_position_bias(study):
    rows = study.verdicts.iloc[::5]
    hidden = rows["rater"] == "judge_2_001"
    raters = fit_judge_aware(rows.assign(order=rows["order"].mask(hidden))).raters.set_index(
        "rater"
    )
    assert raters.index[raters["position_bias"].isna()].tolist() == ["judge_2_001"]
    assert (
        raters["position_bias_high"].isna().sum() == raters["position_bias_low"].isna().sum() == 1
    )
    assert raters["n_verdicts"].to_dict() == rows["rater"].value_counts().to_dict()


# Partial pooling


@pytest.fixture(scope="module")
def thirty():
    """Thirty dialogues, one vote each, 21 to 9."""
    rows = pd.DataFrame({"verdict": ["a"] * 21 + ["b"] * 9, "dialogue_id": range(30)})
    return pool_strengths(rows.assign(responder_a="x", responder_b="y"))


def test_two_responders_are_pooled_as_integration_over_gap_and_spread_says(thirty):
    """Laplace's approximation against a grid of gaps."""
    gap = np.linspace(-12.0, 12.0, 24_001)[None, :]
    tau = SPREADS[:, None]
    # Of two strengths with mean zero, the prior is on their one free direction, gap / sqrt(2).
    prior = np.exp(-((gap / np.sqrt(2.0)) ** 2) / (2.0 * tau**2)) / tau
    weight = expit(gap) ** 21 * expit(-gap) ** 9 * prior
    mean = float((weight * gap).sum() / weight.sum())
    sd = np.sqrt(float((weight * gap**2).sum() / weight.sum()) - mean**2)
    x, y = thirty.table["strength"]
    assert thirty.design_effect == pytest.approx(1.0, abs=0.1)
    assert x - y == pytest.approx(mean, rel=0.05)
    assert x == -y
    assert (thirty.table.loc[0, "ci_high"] - x) * 2 / 2.045 == pytest.approx(sd, rel=0.08)


def test_each_spread_weighs_what_laplaces_approximation_gives_it(thirty):
    """With the likeliest gap under each spread found by halving: the slope falls throughout."""
    won, lost = 21 / thirty.design_effect, 9 / thirty.design_effect
    low, high = np.zeros(len(SPREADS)), np.full(len(SPREADS), 5.0)
    for _ in range(60):
        gap = (low + high) / 2
        up = won * expit(-gap) - lost * expit(gap) - gap / (2 * SPREADS**2) > 0
        low, high = np.where(up, gap, low), np.where(up, high, gap)
    value = won * np.log(expit(gap)) + lost * np.log(expit(-gap)) - (gap / 2) ** 2 / SPREADS**2
    held = 2 * (won + lost) * expit(gap) * expit(-gap) + 1 / SPREADS**2
    weight = np.exp(value) / SPREADS / np.sqrt(held)
    expected = float(weight @ gap / weight.sum()) / 2
    assert thirty.table["strength"].max() == pytest.approx(expected, rel=1e-5)


def test_pooling_beats_the_plain_fit_and_its_intervals_hold():
    pooled = measure_pooled(20, 3, 1, "normal", 15)
    held, error = pooled.share("held")
    assert pooled.ratio <= 0.4 + 2 * pooled.ratio_error
    assert held >= 0.93 - 2 * error


def test_the_plain_column_is_the_fit_to_votes_of_equal_weight_and_one_cluster_is_refused():
    rows = draw_votes(np.random.default_rng(3), 30, 4, 6, 1, 0.3)
    plain = fit_ratings(rows, weights="verdicts", n_resamples=0).strength
    table = pool_strengths(rows).table.set_index("responder")
    assert table["plain"].to_dict() == pytest.approx(plain.to_dict(), abs=1e-6)
    with pytest.raises(ValueError, match="There is one dialogue_id only"):
        pool_strengths(rows.assign(dialogue_id="d"))


def test_each_verdict_counts_for_both_and_equals_come_in_the_order_of_the_alphabet():
    rows = {"responder_a": list("zxxyx"), "responder_b": list("xyyzz"), "verdict": list("baaab")}
    table = pool_strengths(pd.DataFrame(rows).assign(dialogue_id=range(5))).table
    assert table[["responder", "n_verdicts"]].to_numpy().tolist() == [["x", 4], ["y", 3], ["z", 3]]
    equals = pd.DataFrame({"responder_a": list("zyzy"), "responder_b": list("yzyz")})
    table = pool_strengths(equals.assign(verdict="a", dialogue_id=range(4))).table
    assert table[["responder", "strength"]].to_numpy().tolist() == [["y", 0], ["z", 0]]
    assert table.index.tolist() == [0, 1]


def test_the_design_effect_counts_the_degree_of_freedom_that_few_clusters_lose():
    """The same three dialogues twice over: 6 / 5 in place of 3 / 2."""
    rows = draw_votes(np.random.default_rng(5), 3, 3, 3, 60, 0.8)
    rows["dialogue_id"] = rows["dialogue_id"].astype(str)
    twice = pd.concat([rows, rows.assign(dialogue_id=rows["dialogue_id"] + "-again")])
    once, again = pool_strengths(rows).design_effect, pool_strengths(twice).design_effect
    assert once > 2
    assert again / once == pytest.approx((6 / 5) / (3 / 2), rel=0.05)


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
