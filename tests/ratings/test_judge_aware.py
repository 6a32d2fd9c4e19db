"""Judge-aware ratings: known raters come back, and what cannot be trusted is said."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.optimize import approx_fprime

from heart_utils.ratings import other_models as rater_model
from heart_utils.ratings.bradley_terry import BradleyTerry, NotComparableError, sums_of_scores
from heart_utils.ratings.other_models import fit_judge_aware
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


def test_the_gradient_is_that_of_the_likelihood(study):
    rows = study.verdicts.iloc[:400]
    entries = read_verdicts(rows, dimension="overall", cluster="dialogue_id")
    names, (rater,) = name_codes(rows, ["rater"], entries.rows)
    model = rater_model.RaterModel.of(rows, entries, rater, np.ones(len(names), bool))
    found = np.random.default_rng(1).normal(0, 0.3, 6 + 3 * len(names))
    found[:6] -= found[:6].mean()
    found[6 + 2 * len(names) :][~model.ties_used] = -0.5
    gradient = rater_model.derivatives(model, found)[0]
    numeric = approx_fprime(found, model.value, 1e-6)
    np.testing.assert_allclose(gradient, numeric, atol=2e-3)


def test_equal_forced_raters_give_plain_bradley_terry(monkeypatch):
    """With discrimination held at one and order unknown, the model is Bradley-Terry on verdicts."""
    rows = simulate_study(
        rng=np.random.default_rng(2),
        strengths=4,
        n_dialogues=60,
        pairs=6,
        panels=[Panel("human", 5, 3)],
    ).verdicts
    monkeypatch.setattr(rater_model, "LOG_GAMMA_SD", 1e-5)
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
    assert fit.common_order.p_value > 0.01
    at_odds = (Panel("human", 4, 2, rater_sd=0.0), Panel("model", 2, 2, rater_sd=1.0))
    study = simulate_study(
        rng=np.random.default_rng(3), strengths=6, n_dialogues=200, pairs=10, panels=at_odds
    )
    assert fit_judge_aware(study.verdicts).common_order.p_value < 1e-6


def test_the_test_of_a_common_order_holds_its_level_where_dialogues_matter():
    """25 studies with dialogue effects and one order: the corrected statistic is one a degree of
    freedom, uncorrected 0.8."""
    found = []
    for seed in range(25):
        study = simulate_study(
            rng=np.random.default_rng(seed),
            strengths=4,
            n_dialogues=60,
            pairs=6,
            panels=[Panel("human", 4, 4)],
        )
        found.append(fit_judge_aware(study.verdicts).common_order)
    assert np.mean([one.p_value < 0.05 for one in found]) <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 25)
    assert np.mean(
        [stats.chi2.isf(one.p_value, one.df) / one.df for one in found]
    ) == pytest.approx(1.0, abs=0.15)
    assert found[0].df == (4 - 1) * (4 - 1) - (4 - 1)


def test_without_people_the_strengths_are_a_consensus(study):
    models = study.verdicts[study.verdicts["rater_kind"] == "model"]
    assert fit_judge_aware(models).anchor == "consensus"


def test_raters_who_follow_a_rule_are_finite(study):
    rows = study.verdicts[study.verdicts["rater"].isin(["rater_1_001", "rater_1_002"])]
    first = rows.iloc[:200].assign(
        rater="locked", verdict=np.where(rows["order"].iloc[:200] == "ab", "a", "b")
    )
    ties = rows.iloc[:200].assign(rater="shrug", verdict="tie")
    best = study.truth.query("rater_kind == 'all'").set_index("responder")["strength"]
    oracle = rows.iloc[:200].assign(rater="oracle")
    better = oracle["responder_a"].map(best).to_numpy() > oracle["responder_b"].map(best).to_numpy()
    oracle["verdict"] = np.where(better, "a", "b")
    raters = fit_judge_aware(pd.concat([rows, first, ties, oracle])).raters.set_index("rater")
    assert np.isfinite(raters[["discrimination", "position_bias", "ties"]].to_numpy()).all()
    assert raters.loc["locked", "position_bias"] > 4
    assert raters.loc["oracle", "discrimination"] > 1.3


@pytest.mark.parametrize("seed", [20260109, 11, 12])
def test_raters_with_few_answers_do_not_throw_the_search_off(seed):
    """Some 27 answers a person: from there a plain Newton step has overshot to infinity."""
    rows = simulate_study(
        rng=np.random.default_rng(seed), strengths=6, n_dialogues=80, pairs="all"
    ).verdicts
    found = fit_judge_aware(rows)
    assert found.raters["discrimination"].between(0.3, 3.0).all()
    assert found.table["strength"].abs().max() < 3


def test_turning_every_order_turns_the_position_bias(study):
    rows = study.verdicts.iloc[:3000]
    here, there = (
        fit_judge_aware(rows),
        fit_judge_aware(rows.assign(order=rows["order"].map({"ab": "ba", "ba": "ab"}))),
    )
    assert here.table["strength"].to_dict() == pytest.approx(
        there.table["strength"].to_dict(), abs=1e-6
    )
    np.testing.assert_allclose(
        here.raters["position_bias"], -there.raters["position_bias"], atol=1e-6
    )


def test_one_rater_or_strangers_are_refused(study):
    rows = study.verdicts
    with pytest.raises(RatingsError, match="one rater only"):
        fit_judge_aware(rows[rows["rater"] == "judge_2_001"])
    with pytest.raises(RatingsError, match="lack the column rater_kind"):
        fit_judge_aware(rows.drop(columns="rater_kind"))
    with pytest.raises(NotComparableError):
        fit_judge_aware(pd.concat([rows, rows.iloc[:5].assign(responder_a="u", responder_b="v")]))


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


def test_the_information_is_how_fast_the_gradient_falls(study):
    """With the weak prior on every strength, and people who tie beside a judge who never does."""
    rows = study.verdicts.iloc[:400]
    entries = read_verdicts(rows, dimension="overall", cluster="dialogue_id")
    names, (rater,) = name_codes(rows, ["rater"], entries.rows)
    model = rater_model.RaterModel.of(rows, entries, rater, np.ones(len(names), bool))
    model = replace(model, prior=np.full(6, 0.25))
    found = np.random.default_rng(1).normal(0, 0.3, 6 + 3 * len(names))
    found[:6] -= found[:6].mean()

    def derivatives(place):
        return rater_model.derivatives(model, place)[:2]

    ties = np.concatenate([np.ones(6 + 2 * len(names), bool), model.ties_used])
    step = 1e-5 * np.eye(len(found))
    falls = (
        np.array([derivatives(found - move)[0] - derivatives(found + move)[0] for move in step])
        / 2e-5
    )
    # strengths have mean zero, by which the prior's derivative is taken
    falls[:6] -= falls[:6].mean(axis=0)
    information = derivatives(found)[1]
    information[:6] -= information[:6].mean(axis=0)
    np.testing.assert_allclose(
        falls[np.ix_(ties, ties)], information[np.ix_(ties, ties)], atol=1e-5
    )


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


def test_whoever_is_for_the_second_or_the_worse_is_finite_too(study):
    rows = study.verdicts[study.verdicts["rater"].isin(["rater_1_001", "rater_1_002"])]
    second = rows.iloc[:100].assign(
        rater="last", verdict=np.where(rows["order"].iloc[:100] == "ab", "b", "a")
    )
    best = study.truth.query("rater_kind == 'all'").set_index("responder")["strength"]
    contrary = rows.iloc[:100].assign(rater="contrary")
    worse = (
        contrary["responder_a"].map(best).to_numpy() < contrary["responder_b"].map(best).to_numpy()
    )
    contrary["verdict"] = np.where(worse, "a", "b")
    raters = fit_judge_aware(pd.concat([rows, second, contrary])).raters.set_index("rater")
    assert raters.loc["last", "position_bias"] < -3
    assert raters.loc["contrary", "discrimination"] > 0
