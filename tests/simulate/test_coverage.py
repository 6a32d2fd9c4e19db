"""Coverage by simulation: what intervals promise, and what happens where they resample the wrong
thing."""

from dataclasses import replace

import numpy as np
import pytest

from heart_utils.simulate.coverage import simulate_coverage
from heart_utils.simulate.power import Design

PLAIN = Design(
    n_dialogues=60, n_responders=4, pairs=6, votes=9, n_raters=45, dialogue_sd=0.0, rater_sd=0.0
)


def coverage(design, seed=1, n_studies=60):
    found = simulate_coverage(
        design, rng=np.random.default_rng(seed), n_studies=n_studies, n_resamples=100
    )
    return found.set_index(["quantity", "interval"])


def test_without_effects_every_interval_but_the_released_formula_keeps_its_promise():
    found = coverage(PLAIN).loc["strength"]
    slack = 3 * found["mc_error"] + 0.02  # 100 resamples give ends that waver
    low = (found["coverage"] < 0.95 - slack)[lambda short: short]
    assert list(low.index) == ["released formula"]


def test_the_released_formula_covers_less_than_even_games_would_let_it():
    """An even game carries 1/4: one of four responders then has an error of 1.5 / sqrt(n), others a
    larger one.

    So 1.96 / sqrt(n) covers 2 Phi(1.96 / 1.5) - 1 = 0.81 at most.
    """
    found = coverage(PLAIN).loc[("strength", "released formula")]
    assert 0.6 < found["coverage"] < 0.81 + 2 * found["mc_error"]


def test_dialogues_that_differ_undo_the_bootstrap_over_verdicts_alone():
    found = coverage(replace(PLAIN, dialogue_sd=0.8)).loc["strength", "coverage"]
    assert found["verdicts"] < 0.75
    assert found["dialogues"] > 0.88


def test_raters_who_differ_undo_the_bootstrap_over_dialogues_for_other_raters():
    """By the parts of `minimum_gap` 0.72 of the variance is that 45 raters were drawn: 2 Phi(1.96
    sqrt(0.28)) - 1 = 0.70."""
    found = coverage(replace(PLAIN, rater_sd=0.5)).loc["difference", "coverage"]
    assert found["dialogues, for other raters"] == pytest.approx(0.70, abs=0.06)
    assert found["dialogues and raters"] > 0.88
    assert found["dialogues"] > 0.88


@pytest.mark.slow
def test_a_part_of_the_pairs_makes_wider_intervals_that_hold_too():
    some, all_pairs = (
        coverage(replace(PLAIN, pairs=pairs)).loc[("strength", "dialogues")] for pairs in (2, 6)
    )
    assert some["width"] > 1.3 * all_pairs["width"]
    assert some["coverage"] > 0.88


def test_each_row_says_whom_it_speaks_of_and_that_it_is_simulated():
    found = coverage(PLAIN, n_studies=2).reset_index()
    assert found["simulated"].all()
    both = {
        "dialogues, for other raters",
        "dialogues and raters",
        "dialogues and raters, product weights",
    }
    of = {
        "none": {"released formula", "verdicts"},
        "dialogues": {"dialogues", "dialogues, sandwich"},
        "dialogues_and_raters": both,
    }
    assert found.groupby("population")["interval"].agg(set).to_dict() == of


@pytest.mark.parametrize(
    ("design", "n_studies", "message"),
    [(replace(PLAIN, tie_share=0.2), 10, "without ties"), (PLAIN, 1, "two or more")],
)
def test_what_cannot_be_drawn_is_refused(design, n_studies, message):
    with pytest.raises(ValueError, match=message):
        coverage(design, n_studies=n_studies)
