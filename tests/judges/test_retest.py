"""A judge asked again: its reliability by hand and with known truth, what repeats buy, and drift
between two dates."""

import numpy as np
import pandas as pd
import pingouin
import pytest
from judging_case import make_study
from server import Provider, choose_earlier, choose_later, serving

from heart_collect import collect_verdicts, plan_questions
from heart_collect.calls.models import Model
from heart_collect.calls.records import open_ledger
from heart_utils import BiasError, measure_drift, price_of_repeats, repeat_reliability
from heart_utils.simulate.study import Panel, simulate_study


def asked(chances, n_repeats, rng):
    """Ask a judge that prefers a in each question with a chance of its own."""
    n = len(chances)
    answers = np.where(rng.random((n_repeats, n)) < chances, "a", "b")
    names = [f"d{number}" for number in range(n)]
    same = {"dialogue_id": names, "pair_id": names, "order": "ab", "responder_a": "x", "responder_b": "y", "rater": "judge",
            "dimension": "overall", "state": "valid", "answer_format": None}  # fmt: skip
    parts = [
        pd.DataFrame({**same, "repeat": number, "verdict": row})
        for number, row in enumerate(answers)
    ]
    return pd.concat(parts, ignore_index=True)


def test_the_reliability_is_the_intraclass_correlation_of_another_library():
    votes = asked(np.random.default_rng(1).beta(0.5, 0.5, 60), 3, np.random.default_rng(2))
    scored = votes.assign(won=votes["verdict"].eq("a").astype(float))
    theirs = pingouin.intraclass_corr(
        scored, targets="pair_id", raters="repeat", ratings="won"
    ).set_index("Type")["ICC"]
    own = repeat_reliability(votes, n_resamples=50)
    assert own["reliability"].item() == pytest.approx(theirs.iloc[0], abs=1e-6)
    assert own[["n_questions", "repeats", "n_clusters"]].to_numpy().tolist() == [[60, 3.0, 60]]


def test_the_interval_holds_the_known_reliability():
    """Chances are 0.1 or 0.9: the variance of an answer is 1/4, that of its chance 0.16, so the
    reliability is 0.64."""
    held = []
    for seed in range(120):
        rng = np.random.default_rng(seed)
        found = repeat_reliability(
            asked(rng.choice([0.1, 0.9], 80), 2, rng), n_resamples=300, rng=rng
        ).iloc[0]
        held.append(found["ci_low"] <= 0.64 <= found["ci_high"])
    assert 0.90 <= np.mean(held) <= 0.99


@pytest.mark.parametrize(("chance", "expected"), [([0.0, 1.0], 1.0), ([0.5, 0.5], 0.0)])
def test_a_judge_that_never_changes_is_reliable_and_a_coin_is_not(chance, expected):
    votes = asked(np.tile(chance, 200), 2, np.random.default_rng(3))
    assert repeat_reliability(votes, n_resamples=50)["reliability"].item() == pytest.approx(
        expected, abs=0.12
    )


def test_failed_answers_are_counted_and_never_a_change():
    votes = asked(np.tile([0.0, 1.0], 20), 2, np.random.default_rng(4))
    votes.loc[:4, ["verdict", "state"]] = [None, "unparsed"]
    found = repeat_reliability(votes, n_resamples=50).iloc[0]
    assert (found["n_failed"], found["n_questions"]) == (5, 35)
    assert found["reliability"] == 1.0


def test_nothing_asked_again_is_a_sentence():
    votes = asked(np.full(10, 0.5), 1, np.random.default_rng(5))
    for function in (repeat_reliability, price_of_repeats):
        with pytest.raises(BiasError, match="again"):
            function(votes)


def repeated_study(n_dialogues=120, discrimination=1.0, n_repeats=3):
    """Ask one simulated judge several times about the same replies."""
    panel = Panel("model", n_repeats, n_repeats, discrimination=discrimination)
    rng = np.random.default_rng(6)
    votes = simulate_study(
        rng=rng, strengths=4, n_dialogues=n_dialogues, pairs="all", panels=[panel]
    ).verdicts
    raters = sorted(votes["rater"].unique())
    return votes.assign(repeat=votes["rater"].map(raters.index), rater="judge", order="ab")


def test_the_reckoned_width_meets_the_measured_one():
    """N is taken from one and three repeats; that of two, which did not enter, lies near what was
    reckoned."""
    price = price_of_repeats(repeated_study(), most=3)
    assert price["expected"][0] == pytest.approx(price["measured"][0])
    assert price["expected"][2] == pytest.approx(price["measured"][2])
    assert price["expected"][1] == pytest.approx(price["measured"][1], rel=0.04)
    assert price["change"].is_monotonic_decreasing
    # new dialogues always buy more
    assert (price["more_dialogues"][1:] < price["change"][1:]).all()


def test_a_judge_that_says_the_same_again_gains_nothing_by_repeats():
    once = repeated_study(n_repeats=2)
    same = pd.concat(
        [once[once["repeat"] == 0].assign(repeat=number) for number in (0, 1)], ignore_index=True
    )
    assert price_of_repeats(same, most=2)["change"].tolist() == pytest.approx([0.0, 0.0], abs=1e-6)


def test_a_judge_that_says_one_word_has_no_reliability_and_no_price():
    votes = asked(np.ones(40), 2, np.random.default_rng(9))
    assert np.isnan(repeat_reliability(votes, n_resamples=20)["reliability"].item())
    with pytest.raises(BiasError, match="always won or always lost"):
        price_of_repeats(votes)


def test_two_judges_are_not_priced_as_one():
    votes = repeated_study(n_repeats=2)
    with pytest.raises(BiasError, match="2 judges"):
        price_of_repeats(pd.concat([votes, votes.assign(rater="other")]))


def on_two_dates(changed, rng, n=150):
    """Ask one name on two dates, each question twice; on the second another model answers a share
    of the questions."""
    chances = rng.choice([0.1, 0.9], n)
    turned = np.where(rng.random(n) < changed, 1.0 - chances, chances)
    return pd.concat(
        [
            asked(chances, 2, rng).assign(date="2026-05"),
            asked(turned, 2, rng).assign(date="2026-11"),
        ]
    )


def test_the_same_judge_on_two_dates_has_not_drifted_however_unsteady_it_is():
    beyond = [
        measure_drift(on_two_dates(0.0, np.random.default_rng(seed)), n_resamples=300)["p"].item()
        for seed in range(100)
    ]
    assert np.mean(np.array(beyond) < 0.05) <= 0.12


def test_another_model_behind_one_name_is_found():
    found = measure_drift(on_two_dates(0.3, np.random.default_rng(7)), n_resamples=300).iloc[0]
    # same within 0.82; between 0.82 where nothing changed, 0.18 where it did: a drift of 0.3 x 0.64
    assert found["ci_low"] <= 0.3 * 0.64 <= found["ci_high"]
    assert found["p"] < 0.001


def test_one_date_or_no_repeat_is_a_sentence():
    votes = on_two_dates(0.0, np.random.default_rng(8))
    with pytest.raises(BiasError, match="drift needs two"):
        measure_drift(votes[votes["date"] == "2026-05"])
    with pytest.raises(BiasError, match="asked twice"):
        measure_drift(votes[votes["repeat"] == 0])


@pytest.mark.parametrize(("second", "drift"), [(choose_earlier, 0.0), (choose_later, 1.0)])
def test_a_provider_that_serves_another_model_under_one_name_is_found(second, drift, monkeypatch):
    monkeypatch.setenv("STAND_IN_KEY", "none")
    dates = {"2026-05": choose_earlier, "2026-11": second}
    parts = []
    for date, answer in dates.items():
        with serving(Provider(answer=answer)) as provider:
            judge = Model(
                "judge", "openai/judge", api_base=provider.address, api_key_env="STAND_IN_KEY"
            )
            questions = plan_questions(
                *make_study(), [judge], dimensions=["overall"], repeats=2, seed=3
            )
            verdicts = collect_verdicts(questions, ledger=open_ledger("sqlite://"), progress=False)
            parts.append(verdicts.assign(date=date))
    found = measure_drift(pd.concat(parts, ignore_index=True), n_resamples=50)
    assert found[["same_within", "drift"]].to_numpy().tolist() == [[1.0, drift]]


def test_a_judge_that_begins_to_fail_has_drifted():
    """It answers all as before, and 16 of 40 questions not at all; calls that failed say nothing."""
    votes = on_two_dates(0.0, np.random.default_rng(1))
    late = (votes["date"] == votes["date"].max()) & (
        pd.factorize(votes["dialogue_id"])[0] < 0.4 * votes["dialogue_id"].nunique()
    )
    for state, finds in (("unparsed", True), ("refused", True), ("error", False)):
        failed = votes.assign(
            state=votes["state"].mask(late, state), verdict=votes["verdict"].mask(late)
        )
        assert (measure_drift(failed, n_resamples=200)["p"].item() < 0.01) == finds
