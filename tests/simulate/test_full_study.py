"""The study of HEART's size: it has the published margins, it is marked, and other margins give
other settings."""

import numpy as np
import pytest

from heart_utils.agreement.agreement import pairwise_agreement
from heart_utils.simulate.full_study import LAYOUTS, simulate_heart
from tools.full_study import add_times


@pytest.fixture(scope="module")
def study():
    return simulate_heart(rng=np.random.default_rng(20260109))


def test_the_simulated_wins_and_ties_are_the_published_ones():
    """46.8 / 35.8 / 17.4.

    With one rater a pair there are 4,800 pairs of a person with a model, in 300 dialogues.
    """
    drawn = simulate_heart(rng=np.random.default_rng(20260109), layout="one rater").verdicts
    drawn = drawn[drawn["slice"] == "standard"]
    duel = drawn[(drawn["rater_kind"] == "human") & (drawn["responder_a"] == "human")][
        "verdict"
    ].value_counts(normalize=True)
    assert duel["a"] == pytest.approx(0.358, abs=0.04)  # SE .02 by dialogues
    assert duel["tie"] == pytest.approx(0.174, abs=0.015)
    assert duel["b"] > duel["a"]


def test_the_simulated_agreements_are_the_published_ones(study):
    standard = study.verdicts[study.verdicts["slice"] == "standard"]
    for between, said in ((("human", "human"), 0.795), (("human", "model"), 0.787)):
        found = pairwise_agreement(
            standard, between=between, ties="exclude", n_resamples=0
        ).table.iloc[0]
        assert found["agreement"] == pytest.approx(said, abs=0.012)


def test_it_has_the_published_number_of_votes_and_every_row_is_marked(study):
    standard = study.verdicts[study.verdicts["slice"] == "standard"]
    assert (standard["rater_kind"] == "human").sum() == 42_000
    for table in (study.histories, study.replies, study.comparisons, study.verdicts):
        assert table["simulated"].all()


def test_one_rater_a_pair_leaves_no_agreement_of_people_to_measure():
    n_dialogues, pairs, votes = LAYOUTS["one rater"]
    assert (n_dialogues, pairs, votes) == (300, "all", 1)


def test_a_layout_that_is_not_known_is_refused():
    with pytest.raises(ValueError, match="layout is 'both'"):
        simulate_heart(rng=np.random.default_rng(1), layout="both")


def test_times_and_strengths_correlate_as_asked(study):
    truth = study.truth[
        (study.truth["slice"] == "standard") & (study.truth["rater_kind"] == "human")
    ]
    strength = truth.drop_duplicates("responder").set_index("responder")["strength"]
    for rho in (-1.0, 1.0):  # at the ends no chance is left but that of single replies
        timed = add_times(study, rng=np.random.default_rng(2), rho=rho).replies
        first = timed.groupby("responder")["ttft_ms"].median().dropna()
        assert first.corr(strength[first.index], method="spearman") == pytest.approx(rho, abs=0.02)
    assert "human" not in first.index  # a person's first word was not timed
