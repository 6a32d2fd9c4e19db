import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit

from heart_utils.agreement.panel import estimate_ceiling, highest_ceiling
from heart_utils.ratings.resampling import bootstrap_ci
from heart_utils.ratings.verdicts import AgreementError


def bounds(agreement):
    return agreement, float(highest_ceiling(np.array(agreement)))


def draw_votes(rng, share, n_votes, per_dialogue=10):
    """Let n people vote on each pair, each preferring a with the pair's own probability."""
    n_pairs = len(share)
    words = np.where(rng.random((n_pairs, n_votes)) < share[:, None], "a", "b")
    pair = np.repeat(np.arange(n_pairs), n_votes)
    return pd.DataFrame({
        "pair_id": pair, "dialogue_id": pair // per_dialogue, "rater": np.tile(np.arange(n_votes), n_pairs),
        "rater_kind": "human", "verdict": words.ravel(),
    })  # fmt: skip


def test_the_bounds_for_heart_are_those_of_the_arithmetic():
    """For p with p^2 + (1 - p)^2 = .795: .884, so that .884^2 + .116^2 is .795 again."""
    assert bounds(0.795) == pytest.approx((0.795, 0.884), abs=5e-4)
    assert pytest.approx(0.795, abs=5e-4) == 0.884**2 + 0.116**2


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_the_ceiling_lies_between_the_bounds_whatever_the_pairs_are_like(shares):
    share = np.array(shares)
    low, high = bounds(float(np.clip((share**2 + (1 - share) ** 2).mean(), 0.5, 1)))
    assert low - 1e-9 <= np.maximum(share, 1 - share).mean() <= high + 1e-9


def test_the_bounds_are_reached():
    clear_or_coin, equally_hard = np.array([1, 1, 0.5, 0.5]), np.full(4, 0.8)
    for share, end in ((clear_or_coin, 0), (equally_hard, 1)):
        agreement = float((share**2 + (1 - share) ** 2).mean())
        assert bounds(agreement)[end] == pytest.approx(np.maximum(share, 1 - share).mean())


@pytest.mark.parametrize("n_votes", [5, 15])
def test_the_ceiling_is_recovered_from_how_votes_split(rng, n_votes):
    share = expit(rng.normal(0, 1.5, 3000))  # simulated
    found = estimate_ceiling(draw_votes(rng, share, n_votes), n_resamples=200)
    assert found.estimate == pytest.approx(np.maximum(share, 1 - share).mean(), abs=0.012)
    assert found.agreement == pytest.approx((share**2 + (1 - share) ** 2).mean(), abs=0.012)
    low, high = bounds(found.agreement)
    assert low < found.ci_low < found.estimate < found.ci_high < high
    assert (found.n_pairs, found.n_clusters) == (3000, 300)


def test_with_three_votes_a_pair_the_interval_is_that_of_the_bounds(rng):
    """Three votes tell how often two people agree and no more; five tell how the ceiling lies
    between."""
    share = expit(rng.normal(0, 1.5, 600))
    three, five = (estimate_ceiling(draw_votes(rng, share, n), n_resamples=200) for n in (3, 5))
    assert (three.decides, five.decides) == (False, True)
    low, high = bounds(three.agreement)
    assert three.ci_low < low
    assert three.ci_high > high
    assert five.ci_high - five.ci_low < high - low < three.ci_high - three.ci_low


def test_a_judge_that_knows_what_most_say_agrees_with_one_person_as_often_as_the_ceiling_says(rng):
    share = expit(rng.normal(0, 1.5, 3000))
    people = draw_votes(rng, share, 7)
    noiseless = np.where(share > 0.5, "a", "b")[people["pair_id"]]
    assert (people["verdict"] == noiseless).mean() == pytest.approx(
        estimate_ceiling(people, n_resamples=0).estimate, abs=0.015
    )


def test_ties_and_models_do_not_count():
    table = draw_votes(np.random.default_rng(1), np.full(40, 0.9), 4)
    more = table.assign(rater=table["rater"] + 10, verdict="tie")
    judged = table.assign(rater=table["rater"] + 20, rater_kind="model", verdict="b")
    assert estimate_ceiling(pd.concat([table, more, judged])) == estimate_ceiling(table)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda table: table[table["rater"] < 2],
            "No pair has 3 decided votes by people \\(the most is 2\\)",
        ),
        (lambda table: table.assign(rater_kind="model"), "No answer that counts is by 'human'"),
        (
            lambda table: table.drop(columns="verdict").assign(
                score=1.0, reply_id=table["pair_id"]
            ),
            "lack the column verdict.*not of scores",
        ),
    ],
)
def test_what_has_no_ceiling_is_refused_with_a_reason(change, message):
    with pytest.raises(AgreementError, match=message):
        estimate_ceiling(change(draw_votes(np.random.default_rng(1), np.full(10, 0.8), 3)))


def test_no_ceiling_is_above_one_however_few_the_dialogues(rng):
    found = estimate_ceiling(draw_votes(rng, np.full(40, 0.97), 7), n_resamples=100)
    assert found.estimate <= found.ci_high <= 1


def test_the_ends_of_the_bounds_are_those_of_agreement_resampled():
    """Three votes a pair: the ends are those of the agreement of two people, the upper one carried
    to its highest ceiling."""
    table = draw_votes(np.random.default_rng(2), np.full(120, 0.85), 3, per_dialogue=5)
    found = estimate_ceiling(table, n_resamples=20, rng=np.random.default_rng(3))
    n_a = (table["verdict"] == "a").groupby(table["pair_id"]).sum()
    agree = np.where(n_a.isin([0, 3]), 1.0, 1 / 3)  # of three pairs of votes, all or one is equal
    pairs = pd.DataFrame(
        {"agree": agree, "n": 1, "dialogue_id": table.groupby("pair_id")["dialogue_id"].first()}
    )
    known = bootstrap_ci(
        pairs, lambda sums: sums["agree"] / sums["n"], cluster="dialogue_id", n_resamples=20, rng=np.random.default_rng(3),
        least=0.0, most=1.0,
    )  # fmt: skip
    assert (found.ci_low, found.ci_high) == pytest.approx(
        (known.ci_low, float(highest_ceiling(np.array(known.ci_high))))
    )


def test_two_resamples_are_the_fewest_that_give_a_ceiling_an_interval():
    found = estimate_ceiling(
        draw_votes(np.random.default_rng(2), np.full(60, 0.8), 5), n_resamples=2
    )
    assert found.ci_low < found.estimate < found.ci_high
