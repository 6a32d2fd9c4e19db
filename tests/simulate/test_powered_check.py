import numpy as np
import pytest

from heart_utils.ratings.verdicts import AgreementError
from heart_utils.simulate import coverage as powered_check
from heart_utils.simulate.coverage import check_coverage, check_saving, label_some
from heart_utils.simulate.study import Panel, Spread, simulate_study


def study(rng, **judge):
    panels = [Panel("human", 30, 2), Panel("model", 1, 1, **judge)]
    return simulate_study(
        rng=rng,
        strengths=3,
        n_dialogues=60,
        pairs="all",
        panels=panels,
        spread=Spread(dialogues=1.5),
    ).verdicts


def spy(function, dialogues):
    def called(rows, **settings):
        dialogues.append(set(rows["dialogue_id"]))
        return function(rows, **settings)

    return called


def test_people_label_as_many_as_asked_for_and_judges_see_all(rng):
    verdicts = study(rng)
    pool = sorted(verdicts["dialogue_id"].unique())[:40]
    part = label_some(verdicts, 10, rng, among=pool)
    people, judges = (
        set(part.loc[part["rater_kind"] == kind, "dialogue_id"]) for kind in ("human", "model")
    )
    assert (len(people), judges) == (10, set(pool))
    assert people < judges


def test_what_is_set_aside_reaches_no_fit(rng, monkeypatch):
    verdicts, seen, targets = study(rng), [], []
    for name, dialogues in (("prediction_powered_ratings", seen), ("fit_ratings", targets)):
        monkeypatch.setattr(powered_check, name, spy(getattr(powered_check, name), dialogues))
    check_saving(verdicts, n_labelled=[10], rng=rng, n_draws=4)
    assert [len(dialogues) for dialogues in targets] == [20] * 4
    assert all(not target & used for target, used in zip(targets, seen, strict=True))


@pytest.mark.slow
def test_a_judge_that_reads_saves_what_is_estimated_and_a_coin_saves_nothing(rng):
    reading, coin = (
        check_saving(study(rng, discrimination=d), n_labelled=[15], rng=rng, n_draws=150).iloc[0]
        for d in (4, 0)
    )
    assert reading["saved"] == pytest.approx(reading["estimated"], abs=3 * reading["saved_se"])
    assert reading["saved"] > 2 * reading["saved_se"]
    assert coin["saved"] == pytest.approx(0.0, abs=max(3 * coin["saved_se"], 0.05))
    assert reading["estimated"] <= reading["at_most"] + 0.05


@pytest.mark.parametrize(
    ("size", "message"), [(40, "40 are left, too few to label 40"), (50, "too few to label 50")]
)
def test_too_few_dialogues_are_refused(rng, size, message):
    with pytest.raises(AgreementError, match=message):
        check_saving(study(rng), n_labelled=[10, size], rng=rng)


def test_more_labels_than_dialogues_are_refused(rng):
    with pytest.raises(AgreementError, match="61 of 60 dialogues cannot be labelled"):
        label_some(study(rng), 61, np.random.default_rng(1))


def test_intervals_hold_the_truth_about_as_often_as_they_say(rng):
    true = {"human": 0.5, "x": 0.0, "y": -0.5}
    found = check_coverage(
        true, n_labelled=[10, 30], n_dialogues=60, n_studies=30, rng=rng
    ).set_index("n_labelled")
    assert found.index.tolist() == [10, 30]
    for who in ("powered", "people"):
        assert found[f"{who} mean"].tolist() == pytest.approx([0.95, 0.95], abs=0.08)
        assert found[f"{who} sem"].between(0, 0.06).all()


def test_as_many_dialogues_are_set_aside_as_asked_for(rng):
    found = check_saving(study(rng), n_labelled=[10], rng=rng, n_held_out=35, n_draws=2)
    assert found["n_pool"].tolist() == [60 - 35]
