"""Intervals over clusters, and over raters too: against arithmetic by hand, another way to compute
them, and known truth."""

import itertools

import numpy as np
import pandas as pd
import pytest
from agreement_tables import random_votes
from scipy import stats

from heart_utils.agreement.agreement import pairwise_agreement
from heart_utils.ratings.ratings import fit_ratings
from heart_utils.ratings.resampling import (
    bootstrap_ci,
    clustered_error,
    draw_weights,
    error_ends,
    interval_of,
    p_value,
    share_ci,
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


def test_replicates_are_the_statistic_of_rows_drawn_by_cluster(rng):
    table, options = votes(rng, 60, 3, 0.2), {"cluster": "dialogue_id", "n_resamples": 4}
    found = bootstrap_ci(table, share, rng=np.random.default_rng(3), **options)
    by_dialogue = [rows for _, rows in table.groupby("dialogue_id")]
    drawn = draw_weights(60, 4, np.random.default_rng(3)).astype(int)
    by_hand = [
        pd.concat([rows for rows, n in zip(by_dialogue, times, strict=True) for _ in range(n)])
        for times in drawn
    ]
    assert found.replicates.tolist() == pytest.approx([rows["agree"].mean() for rows in by_hand])
    assert found.estimate == table["agree"].mean()
    assert (found.n_clusters, found.provisional, found.n_undefined) == (60, False, 0)
    one, other = (bootstrap_ci(table, share, **options) for _ in range(2))  # one seed by default
    assert (one.ci_low, one.ci_high) == (other.ci_low, other.ci_high)


def test_few_clusters_get_a_t_interval_about_the_estimate(rng):
    interval = bootstrap_ci(votes(rng, 18, 5, 0.2), share, cluster="dialogue_id", rng=rng)
    reach = stats.t.ppf(0.975, 17) * interval.se
    assert (interval.ci_low, interval.ci_high) == pytest.approx(
        (interval.estimate - reach, interval.estimate + reach)
    )
    assert interval.provisional


def test_resamples_without_a_value_are_counted(rng):
    table = pd.DataFrame({"agree": [1, 0], "n": [1, 0], "dialogue_id": ["d1", "d2"]})
    interval = bootstrap_ci(table, share, cluster="dialogue_id", rng=rng, n_resamples=400)
    assert 50 < interval.n_undefined < 150  # both draws fall on d2 in one of four
    # where the share has a value it is 1: without its range nothing is known of others
    assert (np.isnan(interval.ci_low), interval.provisional) == (True, True)
    bounded = bootstrap_ci(table, share, cluster="dialogue_id", least=0, most=1, n_resamples=400)
    assert np.isfinite(bounded.ci_low)


BAD_OPTIONS = [
    *[({"ci_level": level}, "ci_level is .*; expected a number between 0 and 1") for level in (1.5, 0.0, 1.0)],
    *[({"n_resamples": n}, f"n_resamples is {n}; expected 1000 or so, or 0") for n in (-5, 1)],
]  # fmt: skip


@pytest.mark.parametrize(("options", "said"), BAD_OPTIONS)
def test_an_option_out_of_range_is_refused(options, said, rng):
    with pytest.raises(ValueError, match=said):
        bootstrap_ci(votes(rng, 9, 2, 0.1), share, cluster="dialogue_id", **options)


@pytest.mark.parametrize(
    ("columns", "said"),
    [({"dialogue_id": "d1"}, "one dialogue_id only"), ({"agree": [1, np.nan]}, "absent")],
)
def test_one_cluster_or_an_absent_number_is_refused(columns, said):
    table = pd.DataFrame({"agree": [1.0, 0.0], "n": 1, "dialogue_id": ["d1", "d2"]})
    with pytest.raises(RatingsError if "d1" in columns.values() else ValueError, match=said):
        bootstrap_ci(table.assign(**columns), share, cluster="dialogue_id")


def test_percentiles_serve_many_clusters_taken_out_as_far_as_t_and_the_lost_degree_of_freedom_ask():
    """With 50 clusters the normal quantile of the level becomes t49 times the root of 50 / 49:
    2.0096 x 1.0102 = 2.0300."""
    low, high = interval_of(500.0, np.arange(1001.0), 50, 0.95)
    assert (low, high) == pytest.approx(
        (1000 * stats.norm.cdf(-2.0300), 1000 * stats.norm.cdf(2.0300)), abs=0.01
    )


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
    for _ in range(200):
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
@pytest.mark.parametrize("seed", range(3))
def test_p_is_below_a_level_exactly_where_that_interval_excludes_the_value(n_clusters, seed):
    rng = np.random.default_rng(seed)
    estimate = 0.02 * rng.normal() + 0.05
    replicates = estimate + 0.03 * (rng.exponential(size=1000) - 1.0)
    for level in (0.8, 0.9, 0.95, 0.99):
        low, high = interval_of(estimate, replicates, n_clusters, level)
        assert (p_value(estimate, replicates, n_clusters) < 1 - level) == (not low <= 0 <= high)


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


# Other raters too


BOTH = ["dialogue_id", "rater"]


def wilson(share, variance, n_clusters):
    """Wilson's interval with as many observations as would have this variance, written out."""
    t, n = stats.t.ppf(0.975, n_clusters - 1), share * (1 - share) / variance
    middle, reach = share + t**2 / (2 * n), t * np.sqrt(share * (1 - share) / n + t**2 / (4 * n**2))
    return [(middle - reach) / (1 + t**2 / n), (middle + reach) / (1 + t**2 / n)]


@pytest.fixture
def people(rng):
    """24 people with a habit each, how often they say a, and one judge."""
    table = random_votes(rng, n_dialogues=30, n_responders=4, n_people=24, n_judges=1, miss=0.6)
    habit = dict(zip(table["rater"].unique(), rng.random(25), strict=True))
    says_a = rng.random(len(table)) < 0.5 * table["rater"].map(habit)
    return table.assign(verdict=table["verdict"].mask(says_a, "a"))


def test_the_variance_of_a_share_is_dialogues_and_raters_less_what_is_counted_twice(people):
    votes = people[people["rater_kind"] == "human"]
    votes = votes.assign(off=votes["verdict"].eq("tie") - votes["verdict"].eq("tie").mean())

    def leave_out(by):
        moves = [votes.drop(index=rows.index)["off"].mean() for _, rows in votes.groupby(by)]
        return (len(moves) - 1) / len(moves) * np.square(moves).sum()

    dialogues, raters, cells = (leave_out(by) for by in ("dialogue_id", "rater", BOTH))
    codes = (pd.factorize(votes[by])[0] for by in BOTH)
    off = (votes["off"] / len(votes)).to_numpy()
    error, even = clustered_error(off, np.ones(len(votes)), *codes)
    assert error**2 == pytest.approx(max(dialogues + raters - cells, dialogues, raters))
    assert 2 < even < 24


def test_a_rater_s_pairs_of_votes_count_for_both_raters_in_them(people):
    """Agreement of people with people, without ties, gone through pair by pair; the dialogues' part
    is the bootstrap's."""
    found = pairwise_agreement(
        people,
        between=("human", "human"),
        ties="exclude",
        by=[],
        cluster=BOTH,
        n_resamples=300,
        rng=np.random.default_rng(3),
    ).table.iloc[0]
    firm = people[(people["rater_kind"] == "human") & (people["verdict"] != "tie")]
    met = [
        (dialogue, first.rater, second.rater, first.verdict == second.verdict)
        for (_, dialogue), rows in firm.groupby(["pair_id", "dialogue_id"])
        for first, second in itertools.combinations(rows.itertuples(), 2)
    ]
    met = pd.DataFrame(met, columns=["dialogue_id", "one", "other", "same"])
    off = (met["same"] - met["same"].mean()) / len(met)
    theirs = pd.concat([met.assign(rater=met[side], off=off) for side in ("one", "other")])
    squares = [(theirs.groupby(by)["off"].sum() ** 2).sum() for by in ("rater", BOTH)]
    added = max((squares[0] - squares[1]) * 24 / 23, 0)
    same, n = met.groupby("dialogue_id")["same"].agg(["sum", "size"]).to_numpy(float).T
    weights = draw_weights(30, 300, np.random.default_rng(3))
    dialogues = ((weights @ same) / (weights @ n)).var(ddof=1) * 30 / 29
    assert found["agreement"] == pytest.approx(met["same"].mean())
    ends = wilson(met["same"].mean(), dialogues + added, 24)
    assert [found["agreement_low"], found["agreement_high"]] == pytest.approx(ends, rel=1e-5)


def test_other_raters_widen_every_measure_s_interval_where_raters_have_habits(people):
    tables = [
        pairwise_agreement(
            people, cluster=cluster, n_resamples=100, rng=np.random.default_rng(3)
        ).table.iloc[0]
        for cluster in ("dialogue_id", BOTH)
    ]
    for measure in ("agreement", "author_only", "advantage", "kappa", "kappa_within"):
        narrow, wide = (table[f"{measure}_high"] - table[f"{measure}_low"] for table in tables)
        assert narrow < wide < 5 * narrow


def nested(votes):
    return votes.assign(rater=votes["dialogue_id"] + votes["rater"])


HUMANS = ("human", "human")
FIXED = {
    "too few people": (lambda rows: pairwise_agreement(few(rows), between=HUMANS, cluster=BOTH), "3 of 'rater' are too few"),
    "too few for ratings": (lambda rows: fit_ratings(few(rows), cluster=BOTH), "3 of 'rater' are too few"),
    "a rater in one dialogue": (lambda rows: fit_ratings(nested(rows), cluster=BOTH), "rater .* one dialogue_id only.*Resample the dialogue_id alone"),
    "a dialogue of one rater": (lambda rows: fit_ratings(rows.assign(rater="r" + rows["dialogue_id"]), cluster=["rater", "dialogue_id"]), "Each .* belongs to one"),
    "judges": (lambda rows: pairwise_agreement(rows, between=("p1", "m0"), cluster=BOTH), "only where a rater group is people"),
    "no rater": (lambda rows: pairwise_agreement(rows, cluster=["dialogue_id", "slice"]), "and 'rater'; got"),
}  # fmt: skip


def few(rows):
    return rows[rows["rater"].isin(["p1", "p2", "p3"])]


@pytest.mark.parametrize("case", FIXED)
def test_few_raters_or_nested_ones_or_judges_cannot_stand_for_others(people, case):
    ask, said = FIXED[case]
    with pytest.raises(ValueError, match=said):
        ask(people)
