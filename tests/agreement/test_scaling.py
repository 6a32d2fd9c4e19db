import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from heart_utils.agreement.ranks import ScalingError, correlate_scale, spearman_interval


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
    exact = correlate_scale(table, x="ttft_ms", rng=rng).p_values.set_index("shuffled")["p_value"]
    monkeypatch.setattr("heart_utils.agreement.ranks.EXACT", 0)
    drawn = correlate_scale(table, x="ttft_ms", rng=rng, n_shuffles=20_000).p_values.set_index(
        "shuffled"
    )["p_value"]
    for name in ("all", "within_families"):
        assert drawn[name] == pytest.approx(exact[name], abs=0.02)


def test_families_make_a_naive_test_reject_too_often_and_shuffling_within_them_does_not(rng):
    """16 models of 5 families that share 60 % of the variance, no relation (simulated): 12 to 13 of
    100, not 5."""
    family = np.array([0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4])
    n, naive, within = 800, 0, 0
    for number in range(n):
        x, y = (
            np.sqrt(0.6) * rng.standard_normal(5)[family] + np.sqrt(0.4) * rng.standard_normal(16)
            for _ in range(2)
        )
        naive += stats.spearmanr(x, y).pvalue < 0.05
        if number < 100:
            table = pd.DataFrame({"responder": range(16), "family": family, "x": x, "rating": y})
            p = correlate_scale(table, x="x", rng=rng, n_shuffles=200).p_values.set_index(
                "shuffled"
            )["p_value"]
            within += p["within_families"] < 0.05
    assert naive / n == pytest.approx(0.125, abs=0.03)
    assert within / 100 < 0.1


def test_a_steady_trend_is_found_within_and_between_families(rng):
    table = models(rng).assign(rating=lambda t: t["ttft_ms"].rank())
    trend = correlate_scale(table, x="ttft_ms", rng=rng, n_shuffles=500)
    assert trend.rho == 1.0
    assert trend.p_values["p_value"].iloc[0] < 0.01
    assert trend.left_out["rho"].tolist() == [1.0] * 12


def test_a_rank_correlation_of_a_few_models_gets_no_interval_from_resampled_dialogues(rng):
    """Over five models it takes a few values, and the percentiles of a few values hold the truth as
    often as they like."""
    assert set(
        correlate_scale(models(rng), x="ttft_ms", rng=rng, n_shuffles=100).intervals["interval"]
    ) == {
        "fisher",
        "bonett-wright",
    }


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
