"""Intervals over clusters: against arithmetic by hand, another way to compute them, and known truth."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from heart_utils.analysis.resampling import bootstrap_ci, draw_weights, interval_ends, rank_ranges


def share(sums):
    return sums["agree"] / sums["n"]


def votes(rng, n_clusters, per_cluster, spread):
    """Votes whose chance of agreement differs by cluster."""
    chance = np.clip(0.6 + spread * rng.normal(size=n_clusters), 0, 1)
    cluster = np.repeat(np.arange(n_clusters), per_cluster)
    return pd.DataFrame({"agree": (rng.random(len(cluster)) < chance[cluster]).astype(int), "n": 1, "dialogue_id": cluster})


def test_the_estimate_is_the_statistic_of_all_rows(rng):
    table = votes(rng, 60, 4, 0.1)
    interval = bootstrap_ci(table, share, cluster="dialogue_id", rng=rng)
    assert interval.estimate == table["agree"].mean()
    assert interval.ci_low < interval.estimate < interval.ci_high
    assert (interval.n_clusters, interval.provisional, interval.n_undefined) == (60, False, 0)


def test_replicates_are_the_statistic_of_rows_drawn_by_cluster(rng):
    table = votes(rng, 5, 3, 0.2)
    interval = bootstrap_ci(table, share, cluster="dialogue_id", rng=np.random.default_rng(3), n_resamples=4)
    weights = draw_weights(5, 4, np.random.default_rng(3)).astype(int)
    by_hand = [
        table.loc[np.concatenate([np.tile(np.flatnonzero(table["dialogue_id"] == c), w[c]) for c in range(5)])] for w in weights
    ]
    assert interval.replicates.tolist() == pytest.approx([rows["agree"].mean() for rows in by_hand])


def test_few_clusters_get_a_t_interval_about_the_estimate(rng):
    interval = bootstrap_ci(votes(rng, 18, 5, 0.2), share, cluster="dialogue_id", rng=rng)
    reach = stats.t.ppf(0.975, 17) * interval.se
    assert (interval.ci_low, interval.ci_high) == pytest.approx((interval.estimate - reach, interval.estimate + reach))
    assert interval.provisional


def test_clusters_are_resampled_and_not_rows(rng):
    """Ten equal votes a cluster: the standard error is that of 100 means, sqrt(10) times that of 1,000 rows."""
    table = votes(rng, 100, 1, 0.0)
    ten = pd.concat([table] * 10, ignore_index=True)
    interval = bootstrap_ci(ten, share, cluster="dialogue_id", rng=rng, n_resamples=4000)
    assert interval.se == pytest.approx(ten["agree"].std(ddof=0) / np.sqrt(100), rel=0.05)


def test_the_interval_covers_about_as_often_as_it_says(rng):
    """Sixty clusters of eight votes, chance 0.6 on average: 95 % of 400 studies, give or take four standard errors."""
    hits = []
    for _ in range(400):
        interval = bootstrap_ci(votes(rng, 60, 8, 0.15), share, cluster="dialogue_id", rng=rng, n_resamples=300)
        hits.append(interval.ci_low <= 0.6 <= interval.ci_high)
    assert np.mean(hits) == pytest.approx(0.95, abs=4 * np.sqrt(0.95 * 0.05 / 400))


def test_resamples_without_a_value_are_counted(rng):
    table = pd.DataFrame({"agree": [1, 0], "n": [1, 0], "dialogue_id": ["d1", "d2"]})
    interval = bootstrap_ci(table, share, cluster="dialogue_id", rng=rng, n_resamples=400)
    assert 50 < interval.n_undefined < 150  # both draws fall on d2 in one of four
    assert np.isfinite(interval.ci_low)


def test_one_cluster_or_an_absent_number_is_refused(rng):
    table = pd.DataFrame({"agree": [1.0, 0.0], "n": 1, "dialogue_id": "d1"})
    with pytest.raises(ValueError, match="one dialogue_id only"):
        bootstrap_ci(table, share, cluster="dialogue_id", rng=rng)
    with pytest.raises(ValueError, match="absent"):
        bootstrap_ci(table.assign(agree=[1, np.nan]), share, cluster="dialogue_id", rng=rng)


def test_percentiles_serve_many_clusters():
    replicates = np.arange(1001.0)[:, None]
    low, high = interval_ends(np.array([500.0]), replicates, np.array([50]), 0.95)
    assert (low[0], high[0]) == pytest.approx((25.0, 975.0))


def test_rank_ranges_separate_what_is_far_apart(rng):
    estimate = np.array([5.0, 0.1, 0.0, -5.0])
    replicates = estimate + rng.normal(size=(2000, 4))
    best, worst = rank_ranges(estimate, replicates, 300, 0.95)
    assert best.tolist() == [1, 2, 2, 4]
    assert worst.tolist() == [1, 3, 3, 4]


def test_rank_ranges_hold_all_at_once(rng):
    """Ten equals: in 95 % of studies nobody's range may miss any rank from 1 to 10."""
    errors = []
    for _ in range(400):
        estimate = rng.normal(size=10)
        best, worst = rank_ranges(estimate, estimate + rng.normal(size=(400, 10)), 300, 0.95)
        errors.append((best > 1).any() or (worst < 10).any())
    assert np.mean(errors) == pytest.approx(0.05, abs=4 * np.sqrt(0.05 * 0.95 / 400))
