"""The power that was promised against studies that are drawn."""

import numpy as np
import pytest

from heart_utils.simulate.coverage import simulate_power
from heart_utils.simulate.power import Design, minimum_gap

DESIGN = Design(n_dialogues=60, n_responders=6, pairs=15, votes=3, n_raters=45)


@pytest.mark.parametrize(
    ("design", "n_contrasts"),
    [
        (DESIGN, None),
        (DESIGN, 1),
        pytest.param(
            Design(80, 6, 6, 2, 10, dialogue_sd=0.8, rater_sd=0.0), None, marks=pytest.mark.slow
        ),
        pytest.param(
            Design(80, 6, 15, 3, 45, dialogue_sd=2.0, rater_sd=0.0, tie_share=0.3),
            1,
            marks=pytest.mark.slow,
        ),
    ],
    ids=[
        "all pairs at once",
        "one pair",
        "only dialogues vary, some of the pairs",
        "ties, one pair",
    ],
)
def test_the_smallest_gap_is_found_as_often_as_promised(design, n_contrasts):
    """200 studies at a power of 0.8 waver by 0.028; the formula is held to 0.1."""
    gap = minimum_gap(design, n_contrasts=n_contrasts)
    found = simulate_power(
        design, gap, rng=np.random.default_rng(1), n_studies=200, n_contrasts=n_contrasts
    )
    assert found["found"].mean() == pytest.approx(0.8, abs=0.1)


@pytest.mark.slow
def test_a_sparse_design_finds_its_gap_as_often_as_promised():
    """A pair meets in 8.8 dialogues.

    A formula for even pairs and middling responders promised 194 points, found in half.
    """
    sparse = Design(120, 17, 10, 1, 45, dialogue_sd=0.5)
    found = simulate_power(sparse, minimum_gap(sparse), rng=np.random.default_rng(5), n_studies=100)
    assert found["found"].mean() == pytest.approx(0.8, abs=0.12)
    assert found["n_effective"].mean() == pytest.approx(sparse.n_effective, rel=0.05)


def test_the_fitted_gap_is_the_gap_that_was_asked_for():
    found = simulate_power(DESIGN, 0.5, rng=np.random.default_rng(2), n_studies=100)
    assert found["estimate"].mean() == pytest.approx(0.5, abs=3 * found["estimate"].std() / 10)
    assert found["simulated"].all()


def test_a_tiny_gap_is_found_as_seldom_as_chance_has_it():
    """One side of a 95 % interval: 2.5 %."""
    found = simulate_power(DESIGN, 1e-6, rng=np.random.default_rng(3), n_studies=200, n_contrasts=1)
    assert found["found"].mean() <= 0.025 + 3 * np.sqrt(0.025 * 0.975 / 200)


def test_half_the_width_of_an_interval_is_found_in_half_of_the_studies():
    """And 80 % of studies find 1.4 times as much: (1.96 + 0.84) / 1.96."""
    gap = minimum_gap(DESIGN, power=0.5, n_contrasts=1)
    found = simulate_power(DESIGN, gap, rng=np.random.default_rng(4), n_studies=200, n_contrasts=1)
    assert found["found"].mean() == pytest.approx(0.5, abs=0.1)
    assert minimum_gap(DESIGN, n_contrasts=1) == pytest.approx(1.42 * gap, rel=0.01)


@pytest.mark.parametrize("gap", [0.0, -1.0, float("nan")])
def test_no_gap_is_refused(gap):
    with pytest.raises(ValueError, match="expected a gap above zero"):
        simulate_power(DESIGN, gap, rng=np.random.default_rng(1))
