"""Rank correlations: observers with recipients, ratings with size, and orders that change."""

import numpy as np
import pandas as pd
import pytest
from agreement_tables import wilsons_interval
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.stats import spearmanr
from statsmodels.stats.multitest import multipletests

from heart_utils.agreement.ranks import (
    ScalingError,
    correlate_scale,
    order_changes,
    spearman_interval,
    track_recipients,
)
from heart_utils.ratings.resampling import draw_weights
from heart_utils.ratings.verdicts import AgreementError

# Orders that change


def paired_scores(rng, true, noise, n_starts=40):
    """Scores by start of as many responders as there are true means."""
    table = pd.DataFrame(rng.normal(true, noise, (n_starts, len(true))))
    return (
        table.rename_axis("dialogue_id")
        .melt(ignore_index=False, var_name="responder", value_name="score")
        .reset_index()
    )


def test_two_measures_of_one_truth_change_no_more_than_chance_does():
    rng = np.random.default_rng(1)
    true = np.linspace(0, 1, 10)
    shares = np.mean(
        [
            order_changes(
                paired_scores(rng, true, 1.0),
                paired_scores(rng, true, 1.0),
                n_halves=20,
                n_resamples=0,
            )["share"]
            for _ in range(20)
        ],
        axis=0,
    )
    same, _, _, _, others, _, again, _ = shares
    assert others == pytest.approx(again, abs=0.02)
    assert same < others  # whole studies waver less than halves


def changes_of(first, second, **options):
    """Shares, and the interval of the excess, by what is compared."""
    return order_changes(first, second, n_halves=20, n_resamples=100, **options).set_index(
        "compared"
    )


def test_reversals_of_precise_measures_are_shown_and_the_excess_says_so():
    rng = np.random.default_rng(5)
    true = np.linspace(0, 1, 10)
    table = changes_of(paired_scores(rng, true[::-1], 0.3), paired_scores(rng, true, 0.3))
    assert table["share"]["shown reversed"] > 0.7
    assert table["share"]["shown the same"] == 0.0
    assert table["ci_low"]["excess"] > 0.5


def test_shown_are_the_pairs_whose_two_t_tests_are_certain_after_holm():
    rng = np.random.default_rng(7)
    first, second = (paired_scores(rng, [0.0, 0.4, 0.6], 1.0) for _ in range(2))
    wide = [rows.pivot_table(index="dialogue_id", columns="responder") for rows in (first, second)]
    p, same = [], []
    for i, j in ((0, 1), (0, 2), (1, 2)):
        t = [stats.ttest_rel(rows.iloc[:, i], rows.iloc[:, j]) for rows in wide]
        p.append(max(one.pvalue for one in t))
        same.append(t[0].statistic * t[1].statistic > 0)
    shown = multipletests(p, method="holm")[0]
    shares = changes_of(first, second)["share"]
    assert shares["shown the same"] == pytest.approx(np.mean(shown & np.array(same)))
    assert shares["not shown"] == pytest.approx(np.mean(~shown))


def test_differences_that_do_not_vary_show_nothing():
    rows = paired_scores(np.random.default_rng(8), [0.0, 1.0], 0.0, 6)
    shares = changes_of(rows, rows)["share"]
    assert shares["not shown"] == 1.0


def test_responders_and_starts_that_one_measure_lacks_are_left_out():
    rng = np.random.default_rng(3)
    first = paired_scores(rng, [0, 1, 2], 0.1)
    second = first[(first["responder"] < 2) & (first["dialogue_id"] < 30)]
    table = order_changes(first, second, n_halves=2)
    assert set(table["n_pairs"]) == {1}
    assert table["n_clusters"].tolist() == [30] * 4 + [15] * 4
    with pytest.raises(AgreementError, match="1 responders in 40"):
        order_changes(first, first[first["responder"] == 1])


# Observers and recipients


def told(rng, n=80):
    return pd.DataFrame({
        "history_id": [f"h{k}" for k in range(n)],
        "dialogue_id": [f"d{k}" for k in range(n)],
        "seeker_empathy": rng.integers(3, 6, n).astype(float),
        "seeker_relevance": rng.integers(3, 6, n).astype(float),
        "distress_before": rng.integers(1, 6, n).astype(float),
        "distress_after": rng.integers(1, 4, n).astype(float),
    })  # fmt: skip


def seen(rng, histories):
    return histories[["history_id"]].assign(
        code="Question", value=rng.integers(0, 5, len(histories)) / 4
    )


def test_correlations_are_scipys_on_who_answered(rng):
    histories = told(rng)
    histories.loc[:9, "seeker_empathy"] = None
    values = seen(rng, histories)
    found = track_recipients(values, histories, n_resamples=0).set_index("outcome")
    joined = values.merge(histories)
    drop = joined["distress_before"] - joined["distress_after"]
    assert found.loc["distress_drop", "correlation"] == pytest.approx(
        spearmanr(joined["value"], drop).statistic
    )
    answered = joined.dropna()
    assert found.loc["seeker_empathy", "correlation"] == pytest.approx(
        spearmanr(answered["value"], answered["seeker_empathy"]).statistic
    )
    assert found.loc["seeker_empathy", ["n", "n_missing"]].tolist() == [70, 10]


def test_intervals_resample_dialogues(rng):
    histories = told(rng)
    values = seen(rng, histories)
    found = track_recipients(
        values, histories, outcomes=["seeker_empathy"], n_resamples=30, rng=np.random.default_rng(2)
    ).iloc[0]
    joined = values.merge(histories)
    drawn = [
        spearmanr(
            *joined.loc[np.repeat(np.arange(80), weights.astype(int)), ["value", "seeker_empathy"]]
            .to_numpy()
            .T
        ).statistic
        for weights in draw_weights(80, 30, np.random.default_rng(2))
    ]
    assert (found["ci_low"], found["ci_high"]) == pytest.approx(
        wilsons_interval(found["correlation"], drawn, 80, -1.0)
    )


@pytest.mark.parametrize(
    ("values", "histories", "settings", "message"),
    [
        (lambda v: pd.concat([v, v]), lambda h: h, {}, "more than one value"),
        (lambda v: v.drop(columns="code"), lambda h: h, {}, "no column code"),
        (
            lambda v: v,
            lambda h: h.drop(columns="distress_after"),
            {},
            "no column distress_after; only ESConv's seekers answered",
        ),
        (lambda v: v, lambda h: h, {"outcomes": ["joy"]}, "no column joy"),
        (
            lambda v: v,
            lambda h: h.assign(seeker_empathy=np.nan),
            {"outcomes": ["seeker_empathy"]},
            "No history with a value",
        ),
        (
            lambda v: v.assign(history_id="elsewhere" + v["history_id"]),
            lambda h: h,
            {},
            "No history with a value",
        ),
    ],
)
def test_what_cannot_be_tracked_is_refused_with_a_reason(rng, values, histories, settings, message):
    table = told(rng, 5)
    with pytest.raises(AgreementError, match=message):
        track_recipients(values(seen(rng, table)), histories(table), **settings)


def test_one_dialogue_with_an_answer_has_no_correlation_and_groups_come_by_name(rng):
    histories = told(rng, 5)
    histories.loc[1:, "seeker_empathy"] = None
    values = pd.concat([seen(rng, histories).assign(code=code) for code in ("Question", "Advice")])
    found = track_recipients(values, histories, outcomes=["seeker_empathy"], n_resamples=0)
    assert found["code"].tolist() == ["Advice", "Question"]
    assert found[["n", "n_clusters"]].to_numpy().tolist() == [[1, 1], [1, 1]]
    assert found["correlation"].isna().all()


def test_a_code_seen_in_one_dialogue_has_a_correlation_and_no_interval(rng):
    histories = told(rng, 12).assign(seeker_empathy=[1.0, 2.0, 3.0] * 4)
    histories.loc[:2, "dialogue_id"] = "d0"
    values = seen(rng, histories)
    rare = values.head(3).assign(code="Rare", value=[0.1, 0.2, 0.3])
    found = track_recipients(
        pd.concat([values, rare]), histories, outcomes=["seeker_empathy"]
    ).set_index("code")
    assert found.loc["Rare", ["correlation", "n_clusters"]].tolist() == [1.0, 1]
    assert found.loc["Rare", ["ci_low", "ci_high"]].isna().all()
    assert found.loc["Question", ["ci_low", "ci_high"]].notna().all()


# Ratings and size


def test_the_intervals_behind_the_published_correlation():
    """HEART: .53 over 16 models.

    z = .5901, and 1.96 / sqrt(13) = .5436; with Bonett and Wright's variance .5805.
    """
    assert spearman_interval(0.53, 16) == pytest.approx(
        (np.tanh(0.0465), np.tanh(1.1337)), abs=5e-4
    )
    assert spearman_interval(0.53, 16, method="bonett-wright") == pytest.approx(
        (np.tanh(0.0096), np.tanh(1.1706)), abs=5e-4
    )


@settings(max_examples=30)
@given(st.floats(-0.99, 0.99), st.integers(4, 200))
def test_bonett_and_wright_are_never_narrower_and_signs_mirror(rho, n):
    narrow, wide = spearman_interval(rho, n), spearman_interval(rho, n, method="bonett-wright")
    assert wide[0] <= narrow[0] + 1e-12
    assert narrow[1] <= wide[1] + 1e-12
    assert spearman_interval(-rho, n) == pytest.approx((-narrow[1], -narrow[0]), abs=1e-9)


def models(rng, n=12, families=4):
    return pd.DataFrame({
        "responder": [f"m{i}" for i in range(n)], "family": [f"f{i % families}" for i in range(n)],
        "ttft_ms": rng.lognormal(6, 1, n), "rating": 1500 + 100 * rng.standard_normal(n),
    })  # fmt: skip


def p_of(table, rng, **options):
    trend = correlate_scale(table, x="ttft_ms", rng=rng, **options)
    return trend.p_values.set_index("shuffled")["p_value"]


def test_rho_and_the_shuffled_p_value_are_those_of_scipy(rng):
    table = models(rng, 6)  # 720 orders
    trend = correlate_scale(table, x="ttft_ms", rng=rng)
    assert trend.rho == pytest.approx(stats.spearmanr(table["ttft_ms"], table["rating"]).statistic)
    exact = stats.permutation_test(
        (table["ttft_ms"],),
        lambda x: stats.spearmanr(x, table["rating"]).statistic,
        permutation_type="pairings",
        n_resamples=np.inf,
    )
    assert trend.p_values.set_index("shuffled")["p_value"]["all"] == pytest.approx(
        exact.pvalue, abs=1e-9
    )


def test_drawn_orders_come_near_all_orders(rng, monkeypatch):
    table = models(rng, 8, families=3)
    exact = p_of(table, rng)
    monkeypatch.setattr("heart_utils.agreement.ranks.EXACT", 0)
    drawn = p_of(table, rng, n_shuffles=20_000)
    for name in ("all", "within_families"):
        assert drawn[name] == pytest.approx(exact[name], abs=0.02)


def test_shuffling_within_families_holds_its_level_where_models_of_a_family_are_alike(rng):
    """16 models of 5 families that share 60 % of the variance, no relation (simulated); a test that
    takes models for independent rejects in 12 to 13 of 100."""
    family = np.repeat(range(5), [4, 3, 3, 3, 3])
    within = 0
    for _ in range(60):
        x, y = (
            np.sqrt(0.6) * rng.standard_normal(5)[family] + np.sqrt(0.4) * rng.standard_normal(16)
            for _ in range(2)
        )
        table = pd.DataFrame({"responder": range(16), "family": family, "ttft_ms": x, "rating": y})
        within += p_of(table, rng, n_shuffles=200)["within_families"] < 0.05
    assert within / 60 < 0.1


def test_a_steady_trend_is_found_within_and_between_families(rng):
    table = models(rng).assign(rating=lambda t: t["ttft_ms"].rank())
    trend = correlate_scale(table, x="ttft_ms", rng=rng, n_shuffles=500)
    assert trend.rho == 1.0
    assert trend.p_values["p_value"].iloc[0] < 0.01
    assert trend.left_out["rho"].tolist() == [1.0] * 12


def test_a_rank_correlation_of_a_few_models_gets_no_interval_from_resampled_dialogues(rng):
    """Over five models it takes a few values, and the percentiles of a few values hold the truth as
    often as they like."""
    trend = correlate_scale(models(rng), x="ttft_ms", rng=rng, n_shuffles=100)
    assert trend.intervals["interval"].tolist() == ["fisher", "bonett-wright"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"ttft_ms": None}, "0 of 12 models have both"),
        ({"rating": 1500.0}, "have the same rating"),
        ({"ttft_ms": 5.0}, "the same ttft_ms"),
    ],
)
def test_what_cannot_move_together_is_an_error(rng, change, said):
    with pytest.raises(ScalingError, match=said):
        correlate_scale(models(rng).assign(**change), x="ttft_ms", rng=rng)
