"""Writers as responders of their own, and the average human as their mean."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from heart_utils.agreement import raters
from heart_utils.agreement.raters import paule_mandel, rate_writers, split_writers
from heart_utils.ratings.verdicts import RatingsError
from heart_utils.simulate.study import simulate_writers
from heart_utils.tables import check_table

MODELS = {"m1": -0.4, "m2": 0.0, "m3": 0.4, "m4": 0.8}
EFFECTS, VARIANCES = np.array([0.1, 0.8, -0.5, 1.4, 0.3]), np.array([0.04, 0.09, 0.05, 0.2, 0.08])


def truth_of(study):
    return study.truth.set_index("responder")["strength"]


def rated(rng, **settings):
    n_resamples = settings.pop("n_resamples", 200)
    study = simulate_writers(MODELS, rng=rng, dialogue_sd=0.0, **settings)
    return study, rate_writers(
        study.verdicts,
        study.comparisons,
        study.replies,
        responders=study.responders,
        n_resamples=n_resamples,
        rng=rng,
    )


def test_three_equal_variances_give_the_spread_by_hand():
    """The sample variance of -1, 0, 1 is 1; less the noise of 1/4 it is 3/4."""
    assert paule_mandel(np.array([-1.0, 0.0, 1.0]), np.full(3, 0.25))[0] == pytest.approx(
        np.sqrt(3 / 4)
    )


def test_the_spread_is_that_of_another_program():
    """statsmodels' iterated estimator is Paule and Mandel's; asked for the last digit, it may give
    up and say 0."""
    from statsmodels.stats.meta_analysis import combine_effects

    theirs = combine_effects(EFFECTS, VARIANCES, method_re="iterated", atol=1e-8, maxiter=1000).tau2
    assert paule_mandel(EFFECTS, VARIANCES)[0] ** 2 == pytest.approx(theirs, abs=1e-6)


@given(st.lists(st.floats(-3, 3), min_size=3, max_size=8), st.floats(0.01, 2))
def test_the_interval_holds_the_spread_and_a_shift_changes_nothing(effects, variance):
    noise = np.full(len(effects), variance)
    sd, low, high = paule_mandel(np.array(effects), noise)
    # far less spread than noise alone puts all of it at zero
    assert 0 <= low <= sd <= high or sd == 0
    assert paule_mandel(np.array(effects) + 5, noise)[0] == pytest.approx(sd, abs=1e-5)


def test_the_interval_of_the_spread_covers_as_often_as_it_says():
    """Effects drawn with a true spread of 0.5; 1,000 draws, so three standard errors are 0.02."""
    rng = np.random.default_rng(7)
    noise = rng.uniform(0.02, 0.2, 12)
    held = 0
    for _ in range(1000):
        _, low, high = paule_mandel(rng.normal(0, np.sqrt(noise + 0.25)), noise)
        held += low <= 0.5 <= high
    assert held / 1000 == pytest.approx(0.95, abs=0.021)


def test_known_writers_are_found(rng):
    """Replies do not vary about their writer, so strengths are recovered without shrinking."""
    study, found = rated(rng, n_dialogues=400, writer_sd=0.5)
    gaps = found.writers.set_index("writer")["gap"]
    assert (gaps - truth_of(study)).abs().max() < 0.35
    assert found.average == pytest.approx(truth_of(study).mean(), abs=0.12)
    assert found.sd_low <= truth_of(study).std() <= found.sd_high
    assert found.writer_sd == pytest.approx(truth_of(study).std(), abs=0.12)


def test_alike_writers_have_next_to_no_spread(rng):
    _, found = rated(rng, writer_sd=0.0, n_dialogues=200)
    assert found.sd_low == 0
    assert found.writer_sd < 0.15


def test_the_interval_over_writers_is_the_wider_one(rng):
    _, found = rated(rng, writer_sd=0.8)
    assert found.ci_low < found.these_low < found.average < found.these_high < found.ci_high


def test_the_average_weighs_writers_alike_and_not_replies(rng):
    """A writer's verdicts given twice over change nothing but chance."""
    study, found = rated(rng, n_dialogues=120)
    apart = split_writers(study.verdicts, study.comparisons, study.replies)
    busy = apart["responder_a"].eq("human/writer-01") | apart["responder_b"].eq("human/writer-01")
    twice = pd.concat([study.verdicts, study.verdicts[busy]], ignore_index=True)
    again = rate_writers(twice, study.comparisons, study.replies, n_resamples=50, rng=rng)
    assert again.average == pytest.approx(found.average, abs=1e-6)


def test_boards_show_the_pool_and_each_writer(rng):
    study, found = rated(rng, n_dialogues=100)
    assert set(found.pooled.strength.index) == {"human", *MODELS}
    board = check_table("ratings", found.leaderboard()).set_index("responder")
    assert set(board.index) == {*truth_of(study).index, *MODELS, "average writer"}
    assert board.loc["average writer", "strength"] == pytest.approx(
        board.loc[truth_of(study).index, "strength"].mean()
    )
    assert board["strength"].is_monotonic_decreasing
    assert not board.loc["average writer", "penalised"]
    assert set(board.loc[[*truth_of(study).index, "average writer"], "responder_kind"]) == {"human"}
    assert board["simulated"].all()


def test_who_wrote_little_is_in_the_average_and_not_on_the_board(rng, monkeypatch):
    monkeypatch.setattr(raters, "ENOUGH_DIALOGUES", 11)
    study = simulate_writers(MODELS, rng=rng, n_dialogues=40)
    found = rate_writers(study.verdicts, study.comparisons, study.replies, n_resamples=50, rng=rng)
    assert not found.writers["enough"].any()  # 40 dialogues of 3 writers, 12 writers: 10 each
    assert set(found.leaderboard()["responder"]) == {*MODELS, "average writer"}


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (
            lambda study: study.replies.assign(author_id=None),
            "whose writer is not known, first in the comparison",
        ),
        (lambda study: study.replies.assign(author_id="one"), "1 writers and 4 others were judged"),
    ],
)
def test_what_cannot_be_told_apart_is_refused(rng, spoil, message):
    study = simulate_writers(MODELS, rng=rng, n_dialogues=12)
    with pytest.raises(RatingsError, match=message):
        rate_writers(study.verdicts, study.comparisons, spoil(study), rng=rng)


def test_a_pool_that_was_never_judged_is_named(rng):
    study = simulate_writers(MODELS, rng=rng, n_dialogues=12)
    renamed = study.verdicts.replace({"human": "people"})
    with pytest.raises(RatingsError, match="No verdict is about 'human'; judged were m1"):
        split_writers(renamed, study.comparisons, study.replies)


def test_a_history_cannot_have_more_writers_than_there_are(rng):
    with pytest.raises(ValueError, match="4 writers a history need as many, and there are 3"):
        simulate_writers(MODELS, rng=rng, n_writers=3, writers_per_history=4)


def test_the_doubt_about_writers_adds_their_spread_to_that_of_dialogues(rng):
    """Few dialogues, so that both intervals are t quantiles times a standard error."""
    _, found = rated(rng, n_dialogues=30)
    n, count = int(found.split.n_clusters), len(found.writers)
    of_dialogues = (found.these_high - found.average) / stats.t.ppf(0.975, n - 1)
    of_both = (found.ci_high - found.average) / stats.t.ppf(0.975, min(n, count) - 1)
    assert of_both**2 - of_dialogues**2 == pytest.approx(found.writer_sd**2 / count)


def test_three_writers_are_the_fewest_that_can_be_rated(rng):
    study = simulate_writers(MODELS, rng=rng, n_dialogues=12, n_writers=3)
    found = rate_writers(study.verdicts, study.comparisons, study.replies, n_resamples=20, rng=rng)
    assert len(found.writers) == 3
