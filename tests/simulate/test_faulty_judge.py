"""A judge drawn with a known fault: the measure of that fault finds it, and only that one."""

import numpy as np
import pytest

from heart_utils.judges.position import compare_answers
from heart_utils.simulate.faulty_judge import PLANTED, Faults, recover_faults, simulate_judge


@pytest.fixture(scope="module")
def found():
    return recover_faults(rng=np.random.default_rng(20260109), n_pairs=600, n_resamples=200)


def test_each_fault_is_found_at_the_size_that_was_planted(found):
    assert set(found["fault"]) == {name for name, _ in PLANTED}
    width = (found["ci_high"] - found["ci_low"]).to_numpy()
    assert (np.abs(found["found"] - found["planted"]) <= width).all()  # four standard errors
    assert (width < 0.6).all()
    assert found["simulated"].all()


def test_two_dimensions_are_as_alike_as_normals_correlated_by_a_half(found):
    """One third of the circle is where two such normals differ in sign: 1/2 + arcsin(1/2)/pi =
    2/3."""
    alone = found[found["measure"] == "two dimensions alike, one a call"].iloc[0]
    assert alone["planted"] == pytest.approx(2 / 3)
    together = found[found["measure"] == "two dimensions alike, all in one call"].iloc[0]
    assert together["planted"] == pytest.approx(2 / 3 + (1 / 3) * (2 * 0.5 + 0.25) / 3)


def test_a_judge_without_faults_says_the_same_in_every_call_and_order():
    drawn = simulate_judge(Faults(), rng=np.random.default_rng(1), n_pairs=30)
    assert (drawn.groupby(["pair_id", "dimension"])["verdict"].nunique() == 1).all()
    again = compare_answers(
        drawn[drawn["protocol"] == "heart"],
        by="repeat",
        rng=np.random.default_rng(2),
        n_resamples=20,
    )
    assert again["same_share"].tolist() == [1.0] * 3


def test_every_row_of_a_drawn_judge_is_marked_as_simulated():
    assert simulate_judge(Faults(tires=0.3), rng=np.random.default_rng(1), n_pairs=5)[
        "simulated"
    ].all()
