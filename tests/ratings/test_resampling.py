"""Intervals over clusters: against arithmetic by hand, another way to compute them, and known
truth."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from heart_utils.ratings.resampling import (
    bootstrap_ci,
    check_clusters,
    clustered_error,
    draw_weights,
    error_ends,
    interval_ends,
    interval_of,
    p_value,
    share_ci,
    two_way_error,
)
from heart_utils.ratings.verdicts import RatingsError


def share(sums):
    return sums["agree"] / sums["n"]


def votes(rng, n_clusters, per_cluster, spread):
    """Votes whose chance of agreement differs by cluster."""
    chance = np.clip(0.6 + spread * rng.normal(size=n_clusters), 0, 1)
    cluster = np.repeat(np.arange(n_clusters), per_cluster)
    return pd.DataFrame(
        {
            "agree": (rng.random(len(cluster)) < chance[cluster]).astype(int),
            "n": 1,
            "dialogue_id": cluster,
        }
    )


def test_the_estimate_is_the_statistic_of_all_rows(rng):
    table = votes(rng, 60, 4, 0.1)
    interval = bootstrap_ci(table, share, cluster="dialogue_id", rng=rng)
    assert interval.estimate == table["agree"].mean()
    assert interval.ci_low < interval.estimate < interval.ci_high
    assert (interval.n_clusters, interval.provisional, interval.n_undefined) == (60, False, 0)


def test_replicates_are_the_statistic_of_rows_drawn_by_cluster(rng):
    table = votes(rng, 5, 3, 0.2)
    interval = bootstrap_ci(
        table, share, cluster="dialogue_id", rng=np.random.default_rng(3), n_resamples=4
    )
    weights = draw_weights(5, 4, np.random.default_rng(3)).astype(int)
    by_hand = [
        table.loc[
            np.concatenate(
                [np.tile(np.flatnonzero(table["dialogue_id"] == c), w[c]) for c in range(5)]
            )
        ]
        for w in weights
    ]
    assert interval.replicates.tolist() == pytest.approx([rows["agree"].mean() for rows in by_hand])


def test_few_clusters_get_a_t_interval_about_the_estimate(rng):
    interval = bootstrap_ci(votes(rng, 18, 5, 0.2), share, cluster="dialogue_id", rng=rng)
    reach = stats.t.ppf(0.975, 17) * interval.se
    assert (interval.ci_low, interval.ci_high) == pytest.approx(
        (interval.estimate - reach, interval.estimate + reach)
    )
    assert interval.provisional


def test_clusters_are_resampled_and_not_rows(rng):
    """Ten equal votes a cluster: the standard error is that of 100 means, sqrt(10) times that of
    1,000 rows."""
    table = votes(rng, 100, 1, 0.0)
    ten = pd.concat([table] * 10, ignore_index=True)
    interval = bootstrap_ci(ten, share, cluster="dialogue_id", rng=rng, n_resamples=4000)
    assert interval.se == pytest.approx(ten["agree"].std(ddof=0) / np.sqrt(100), rel=0.05)


def test_the_interval_covers_about_as_often_as_it_says(rng):
    """Sixty clusters of eight votes, chance 0.6 on average: 95 % of 400 studies, give or take four
    standard errors."""
    hits = []
    for _ in range(400):
        interval = bootstrap_ci(
            votes(rng, 60, 8, 0.15), share, cluster="dialogue_id", rng=rng, n_resamples=300
        )
        hits.append(interval.ci_low <= 0.6 <= interval.ci_high)
    assert np.mean(hits) == pytest.approx(0.95, abs=4 * np.sqrt(0.95 * 0.05 / 400))


def test_resamples_without_a_value_are_counted(rng):
    table = pd.DataFrame({"agree": [1, 0], "n": [1, 0], "dialogue_id": ["d1", "d2"]})
    interval = bootstrap_ci(table, share, cluster="dialogue_id", rng=rng, n_resamples=400)
    assert 50 < interval.n_undefined < 150  # both draws fall on d2 in one of four
    # where the share has a value it is 1: without its range nothing is known of others
    assert (np.isnan(interval.ci_low), interval.provisional) == (True, True)
    bounded = bootstrap_ci(table, share, cluster="dialogue_id", least=0, most=1, n_resamples=400)
    assert np.isfinite(bounded.ci_low)


def test_one_cluster_or_an_absent_number_is_refused(rng):
    table = pd.DataFrame({"agree": [1.0, 0.0], "n": 1, "dialogue_id": "d1"})
    with pytest.raises(ValueError, match="one dialogue_id only"):
        bootstrap_ci(table, share, cluster="dialogue_id", rng=rng)
    with pytest.raises(ValueError, match="absent"):
        bootstrap_ci(table.assign(agree=[1, np.nan]), share, cluster="dialogue_id", rng=rng)


def test_percentiles_serve_many_clusters_taken_out_as_far_as_t_and_the_lost_degree_of_freedom_ask():
    """With 50 clusters the normal quantile of the level becomes t49 times the root of 50 / 49:
    2.0096 x 1.0102 = 2.0300."""
    low, high = interval_of(500.0, np.arange(1001.0), 50, 0.95)
    assert (low, high) == pytest.approx(
        (1000 * stats.norm.cdf(-2.0300), 1000 * stats.norm.cdf(2.0300)), abs=0.01
    )


def test_the_standard_error_of_a_mean_is_the_textbooks(rng):
    """Six clusters: the spread of the clusters over the root of six, where their bootstrap alone
    gives a tenth less."""
    table = pd.DataFrame({"agree": rng.normal(size=6), "n": 1.0, "dialogue_id": range(6)})
    interval = bootstrap_ci(table, share, cluster="dialogue_id", rng=rng, n_resamples=20_000)
    assert interval.se == pytest.approx(table["agree"].std(ddof=1) / np.sqrt(6), rel=0.02)


@pytest.mark.parametrize(("n_clusters", "right"), [(20, 20), (20, 19), (20, 0), (80, 80), (80, 79)])
def test_a_share_never_leaves_its_range_and_has_a_width_where_all_agree(n_clusters, right, rng):
    table = pd.DataFrame(
        {"agree": np.arange(n_clusters) < right, "n": 1, "dialogue_id": range(n_clusters)}
    )
    interval = bootstrap_ci(
        table.astype(float), share, cluster="dialogue_id", rng=rng, least=0.0, most=1.0
    )
    assert 0 <= interval.ci_low < interval.ci_high <= 1
    assert interval.ci_low <= interval.estimate <= interval.ci_high
    assert interval.ci_high - interval.ci_low > 1 / n_clusters


def test_wilsons_interval_over_clusters_of_one_vote_is_statsmodels(rng):
    """Many clusters of one vote, so that t is the normal quantile and the standard error is that of
    a share."""
    from statsmodels.stats.proportion import proportion_confint

    x, n = 0.97, 100_000
    replicates = np.array([-1.0, 1.0]) * np.sqrt(x * (1 - x) / n * (n - 1) / n / 2) + x
    found = interval_of(x, replicates, n, 0.95, least=0.0, most=1.0)
    assert found == pytest.approx(proportion_confint(x * n, n, method="wilson"), abs=1e-7)


def test_the_interval_of_a_high_share_covers_with_few_clusters():
    """Twenty dialogues of five votes, chance .95: the t interval alone covers 82 %, percentiles 90
    %."""
    rng, hits = np.random.default_rng(20), []
    for _ in range(400):
        chance = rng.beta(3.8, 0.2, 20)
        table = pd.DataFrame(
            {"agree": rng.binomial(5, chance), "n": 5, "dialogue_id": range(20)}
        ).astype(float)
        found = bootstrap_ci(
            table, share, cluster="dialogue_id", rng=rng, n_resamples=200, least=0.0, most=1.0
        )
        hits.append(found.ci_low <= 0.95 <= found.ci_high)
    assert np.mean(hits) > 0.95 - 3 * np.sqrt(0.05 * 0.95 / 400)


@pytest.mark.parametrize("n_clusters", [6, 20, 49, 50, 300])
@pytest.mark.parametrize("seed", range(8))
def test_p_is_below_a_level_exactly_where_that_interval_excludes_the_value(n_clusters, seed):
    rng = np.random.default_rng(seed)
    estimate = 0.02 * rng.normal() + 0.05
    replicates = estimate + 0.03 * (rng.exponential(size=1000) - 1.0)
    for level in (0.8, 0.9, 0.95, 0.99):
        low, high = interval_of(estimate, replicates, n_clusters, level)
        assert (p_value(estimate, replicates, n_clusters) < 1 - level) == (not low <= 0 <= high)


def test_p_values_are_right_where_dialogues_are_few():
    """Ten dialogues, no effect: p < .05 in 5 % of studies, where a normal p has 10 %."""
    rng, found = np.random.default_rng(11), []
    for _ in range(600):
        values = rng.normal(size=10)
        found.append(p_value(values.mean(), draw_weights(10, 300, rng) @ values / 10, 10))
    assert np.mean(np.array(found) < 0.05) == pytest.approx(
        0.05, abs=3 * np.sqrt(0.05 * 0.95 / 600)
    )


def test_columns_leave_out_the_resamples_in_which_they_have_no_value(rng):
    replicates = rng.normal(size=(400, 2))
    holes = replicates.copy()
    holes[::3, 1] = np.nan
    low, high = interval_ends(np.zeros(2), holes, np.array([20, 80]), 0.9)
    alone = interval_of(0.0, np.delete(replicates[:, 1], slice(None, None, 3)), 80, 0.9)
    assert (low[1], high[1]) == alone
    assert (low[0], high[0]) == pytest.approx(interval_of(0.0, replicates[:, 0], 20, 0.9))


@pytest.mark.parametrize("level", [1.5, 0.0, 1.0, 95])
def test_a_level_that_is_no_probability_is_refused(level, rng):
    with pytest.raises(
        ValueError, match=r"ci_level is .*; expected a number between 0 and 1, such as 0.95"
    ):
        bootstrap_ci(votes(rng, 9, 2, 0.1), share, cluster="dialogue_id", ci_level=level)


@pytest.mark.parametrize("number", [-5, 1])
def test_a_number_of_resamples_that_gives_no_interval_is_refused(number, rng):
    with pytest.raises(
        ValueError,
        match=rf"n_resamples is {number}; expected 1000 or so, or 0 for the estimate alone",
    ):
        bootstrap_ci(votes(rng, 9, 2, 0.1), share, cluster="dialogue_id", n_resamples=number)


def test_without_a_generator_the_same_data_give_the_same_interval(rng):
    table = votes(rng, 60, 4, 0.1)
    one, other = (bootstrap_ci(table, share, cluster="dialogue_id") for _ in range(2))
    assert (one.ci_low, one.ci_high) == (other.ci_low, other.ci_high)


def test_clusters_that_agree_on_a_share_to_the_digit_leave_it_open():
    low, high = interval_of(0.5, np.full(200, 0.5), 12, 0.95, least=0.0, most=1.0)
    assert low < 0.3
    assert high > 0.7


def test_p_far_beyond_the_last_resample_is_that_of_students_t(rng):
    """Ten standard errors away from zero, with more clusters than percentiles need."""
    replicates = rng.normal(10.0, 1.0, 1000)
    factor = np.sqrt(300 / 299) * replicates.std(ddof=1)
    assert p_value(10.0, replicates, 300) == pytest.approx(2 * stats.t.sf(10.0 / factor, 299))
    assert p_value(-10.0, -replicates, 300) == pytest.approx(2 * stats.t.sf(10.0 / factor, 299))


def test_resamples_that_never_move_test_nothing():
    for estimate in (0.0, 0.5):
        assert np.isnan(p_value(estimate, np.full(50, estimate), 20))
        assert np.isnan(p_value(estimate, estimate + 1e-14 * np.arange(50), 20))


def test_a_statistic_of_dialogues_and_raters_has_the_two_way_error():
    """Dialogues 3 and -1, raters 2 and 0, cells 2, 1, 0 and -1: 10 + 4 - 6 = 8, less than 10, times
    2 / 1."""
    error = two_way_error(
        np.array([2.0, 1.0, 0.0, -1.0]), np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])
    )
    assert error == pytest.approx(np.sqrt(10 * 2))
    error = two_way_error(
        np.array([2.0, 2.0, 1.0, 1.0]), np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])
    )
    assert error == pytest.approx(np.sqrt((20 + 18 - 10) * 2))


def test_the_error_over_uneven_clusters_is_the_jackknife_s():
    """Clusters of 1, 3 and 6 rows: leave each out, and take (n - 1) / n of the squared moves of the
    mean."""
    values, cluster = np.array([1.0, 0, 1, 1, 0, 0, 0, 1, 0, 0]), np.repeat([0, 1, 2], [1, 3, 6])
    moves = [values[cluster != left_out].mean() - values.mean() for left_out in range(3)]
    error, even = clustered_error((values - values.mean()) / 10, np.ones(10), cluster)
    assert error == pytest.approx(np.sqrt(2 / 3 * np.sum(np.square(moves))))
    assert 2 <= even < 3


def test_the_degrees_of_freedom_are_satterthwaites():
    """By matrices: the trace squared over the trace of the square of what the moved means vary
    by."""
    share = np.array([1.0, 2.0, 4.0, 8.0]) / 15
    moved = np.diag(share / (1 - share)) @ (np.eye(4) - share)
    matrix = moved @ moved.T
    even = clustered_error(np.array([0.1, -0.1, 0.2, -0.2]), share, np.arange(4))[1]
    assert even == pytest.approx(1 + np.trace(matrix) ** 2 / np.trace(matrix @ matrix))
    assert clustered_error(np.array([0.1, -0.1, 0.0]), np.ones(3), np.arange(3))[
        1
    ] == pytest.approx(3)


def test_rows_of_no_weight_are_no_cluster():
    influence, weight, cluster = (
        np.array([0.1, -0.1, 0.0, 0.0]),
        np.array([1.0, 1.0, 0.0, 0.0]),
        np.array([0, 1, 2, 3]),
    )
    two = clustered_error(influence[:2], weight[:2], cluster[:2])
    assert clustered_error(influence, weight, cluster) == pytest.approx(two)
    assert np.isnan(clustered_error(influence[1:], weight[1:], cluster[1:])[0])


def test_a_share_over_few_clusters_of_unequal_size_has_that_error_too():
    rows = pd.DataFrame({"cluster": np.repeat(range(6), [2, 4, 9, 19, 39, 80])})
    yes = np.random.default_rng(3).random(len(rows)) < 0.4
    found = share_ci(yes, 1, cluster=rows["cluster"])
    error, even = clustered_error(
        (yes - yes.mean()) / len(yes), np.ones(len(yes)), rows["cluster"].to_numpy()
    )
    assert (found.se, found.n_clusters, found.provisional) == (pytest.approx(error), 6, True)
    low, high = error_ends(yes.mean(), error, even, 0.95, least=0.0, most=1.0)
    assert (found.ci_low, found.ci_high) == pytest.approx((float(low), float(high)))


@pytest.mark.filterwarnings("error")
def test_where_nothing_was_observed_there_is_no_interval_and_no_warning():
    ends = error_ends(np.nan, np.nan, 0, 0.95, least=0.0, most=1.0)
    assert np.isnan(ends).all()


def test_one_cluster_is_refused_as_what_ratings_cannot_be_made_of():
    with pytest.raises(RatingsError, match="dialogue_id"):
        check_clusters(1, "dialogue_id")
