"""Sets of ranks: against csranks' printed example, exact cases, known truth, and what they
replaced."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from heart_utils.ratings.ratings import Differences, level_of_one, simultaneous_quantile

# Mean and standard error of the mathematics scores of PISA 2018, as R's csranks 1.3.0 ships them.
PISA = """Australia 491.3600 1.9398, Austria 498.9423 2.9709, Belgium 508.0703 2.2626,
Canada 512.0169 2.3574, Chile 417.4065 2.4158, Colombia 390.9322 2.9895, Czechia 499.4676 2.4606,
Denmark 509.3983 1.7350, Estonia 523.4145 1.7436, Finland 507.3013 1.9679, France 495.4075 2.3202,
Germany 500.0437 2.6470, Greece 451.3703 3.0912, Hungary 481.0826 2.3195, Iceland 495.1873 1.9530,
Ireland 499.6328 2.1986, Israel 463.0345 3.4985, Italy 486.5898 2.7800, Japan 526.9732 2.4714,
Korea 525.9330 3.1213, Latvia 496.1263 1.9627, Lithuania 481.1911 1.9532, Luxembourg 483.4214 1.0976,
Mexico 408.8014 2.4932, Netherlands 519.2309 2.6322, New_Zealand 494.4896 1.7059,
Norway 500.9637 2.2190, Poland 515.6478 2.6020, Portugal 492.4874 2.6845, Slovakia 486.1648 2.5555,
Slovenia 508.8975 1.3638, Spain 481.3926 1.4624, Sweden 502.3877 2.6542, Switzerland 515.3147 2.9080,
Turkey 453.5077 2.2604, United_Kingdom 501.7698 2.5644, United_States 478.2447 3.2354"""


@pytest.fixture(scope="module")
def pisa():
    rows = [row.split() for row in PISA.replace("\n", " ").split(", ")]
    names = [name.strip() for name, _, _ in rows]
    score, error = (np.array([float(row[place]) for row in rows]) for place in (1, 2))
    z = np.random.default_rng(1).normal(size=(4000, len(names)))
    # exactly uncorrelated
    z = (z - z.mean(axis=0)) @ np.linalg.inv(np.linalg.cholesky(np.cov(z, rowvar=False))).T
    return names, score, score + error * z


def test_the_countries_that_may_be_among_the_best_five_are_those_of_csranks(pisa):
    names, score, replicates = pisa
    best, _ = Differences(score, replicates, 10**6, 0.95, 10**6).ranks()
    # csranks' 95 % set of the five best, by one-sided tests: ours are two-sided and may hold more,
    # not fewer.
    first = {
        "Belgium",
        "Canada",
        "Denmark",
        "Estonia",
        "Finland",
        "Japan",
        "Korea",
        "Netherlands",
        "Poland",
        "Slovenia",
        "Sweden",
    }
    assert first <= {name for name, low in zip(names, best, strict=True) if low <= 5}


def test_ranges_separate_what_is_far_apart(rng):
    estimate = np.array([5.0, 0.1, 0.0, -5.0])
    best, worst = Differences(
        estimate, estimate + rng.normal(size=(2000, 4)), 300, 0.95, 300
    ).ranks()
    assert best.tolist() == [1, 2, 2, 4]
    assert worst.tolist() == [1, 3, 3, 4]


def test_ranges_of_equals_hold_all_at_once(rng):
    """Ten equals: in 95 % of studies nobody's range may miss any rank from 1 to 10."""
    errors = []
    for _ in range(400):
        estimate = rng.normal(size=10)
        best, worst = Differences(
            estimate, estimate + rng.normal(size=(400, 10)), 300, 0.95, 300
        ).ranks()
        errors.append((best > 1).any() or (worst < 10).any())
    assert np.mean(errors) == pytest.approx(0.05, abs=4 * np.sqrt(0.05 * 0.95 / 400))


def test_those_told_apart_leave_more_room_for_the_rest(rng):
    """The second step: 0 and 2.45 are too close while the far pairs count, and told apart once
    these are out."""
    estimate = np.array([60.0, 2.45, 0.0, -60.0])
    noise = rng.normal(size=(4000, 4))
    noise = (
        (noise - noise.mean(axis=0))
        @ np.linalg.inv(np.linalg.cholesky(np.cov(noise, rowvar=False))).T
        / np.sqrt(2.0)
    )
    among_all = simultaneous_quantile(4, 10**6, 0.95)
    alone = stats.t.isf(
        level_of_one(np.isin(np.arange(16).reshape(4, 4), [6, 9]), 10**6, 0.95), 10**6
    )
    assert alone < 2.45 < among_all
    assert Differences(estimate, estimate + noise, 10**6, 0.95, 10**6).ranks()[1].tolist() == [
        1,
        2,
        3,
        4,
    ]


@pytest.mark.parametrize("df", [1, 5, 19, 300])
def test_two_responders_need_students_t_and_more_need_less_than_bonferroni(df):
    assert simultaneous_quantile(2, df + 1, 0.95) == pytest.approx(stats.t.ppf(0.975, df))
    for size in (3, 10):
        assert simultaneous_quantile(size, df + 1, 0.95) <= stats.t.isf(
            0.05 / (size * (size - 1)), df
        )


def test_with_many_clusters_the_quantile_is_tukeys_and_with_few_beyond_it():
    """Own standard errors: with few clusters the largest difference is often one whose error came
    out small."""
    assert simultaneous_quantile(10, 300, 0.95) == pytest.approx(
        stats.studentized_range.ppf(0.95, 10, 299) / 2**0.5, rel=0.015
    )
    assert (
        simultaneous_quantile(10, 6, 0.95)
        > 1.25 * stats.studentized_range.ppf(0.95, 10, 5) / 2**0.5
    )


def test_simultaneous_reach_by_hand(rng):
    """Uncorrelated replicates of variance 1, 4 and 9; ten clusters make each variance 10/9 as
    large."""
    noise = rng.normal(size=(500, 3))
    noise = (
        (noise - noise.mean(axis=0))
        @ np.linalg.inv(np.linalg.cholesky(np.cov(noise, rowvar=False))).T
        * [1, 2, 3]
    )
    strength, quantile = np.array([3.0, 0.0, -3.0]), simultaneous_quantile(3, 10, 0.95)
    gaps = Differences(strength, strength + noise, 10, 0.95, 10)
    wide = quantile * np.sqrt(10 / 9 * np.array([[0, 5, 10], [5, 0, 13], [10, 13, 0]]))
    np.testing.assert_allclose(gaps.margins_of_error(), wide, atol=1e-6)
    bounded = replace(
        gaps, ends=(np.array([2.0, np.nan, np.nan]), np.array([np.inf, np.nan, np.nan]))
    )
    spread = quantile * np.sqrt(10 / 9 * np.array([1, 4, 9]))
    # down to its end, and the other's interval up
    np.testing.assert_allclose(bounded.margins_of_error()[0, 1:], 1 + spread[1:])
    assert np.isposinf(bounded.margins_of_error()[1:, 0]).all()
    np.testing.assert_allclose(bounded.margins_of_error()[1:, 1:], wide[1:, 1:], atol=1e-6)
    assert bounded.ranks()[1].tolist() == [3, 3, 3]
    assert (replace(gaps, n_effective=4.5).margins_of_error() >= gaps.margins_of_error()).all()


def test_without_resamples_or_error_every_rank_is_open():
    strength = np.array([1.0, 1.0, -2.0])
    assert [
        ranks.tolist() for ranks in Differences(strength, np.empty((0, 3)), 10, 0.95, 10).ranks()
    ] == [
        [1, 1, 1],
        [3, 3, 3],
    ]
    # nothing varies, so nothing tells how far others would differ
    certain = Differences(strength, np.tile(strength, (50, 1)), 10, 0.95, 10)
    assert [ranks.tolist() for ranks in certain.ranks()] == [[1, 1, 1], [3, 3, 3]]


def test_five_clusters_leave_four_degrees_of_freedom_to_level_and_quantile():
    level = level_of_one(~np.eye(3, dtype=bool), 4.0, 0.95)
    assert simultaneous_quantile(3, 5, 0.95) == pytest.approx(stats.t.isf(level, 4))
    assert level != level_of_one(~np.eye(3, dtype=bool), 3.0, 0.95)
