import numpy as np
import pandas as pd
import pytest
from agreement_tables import scores, votes
from scipy.stats import ttest_1samp
from statsmodels.stats.multitest import multipletests

from heart_utils.agreement.panel import alternative_annotator_test
from heart_utils.ratings.verdicts import AgreementError


def study(rng, *, noise, judge_noise, n_items=80):
    truth = rng.normal(3, 1, n_items)
    people = truth[:, None] + rng.normal(0, noise, (n_items, 4))
    judge = truth[:, None] + rng.normal(0, judge_noise, (n_items, 1))
    return scores(np.hstack([people, judge]).round(), raters=["p1", "p2", "p3", "p4", "m"])


def test_p_values_and_rejections_are_scipys_and_statsmodels(rng):
    table = study(rng, noise=1.0, judge_noise=1.0)
    found = alternative_annotator_test(table, "m", epsilon=0.15)
    sheet = table.pivot_table(index="reply_id", columns="rater", values="score")
    p_values = []
    for left_out in ["p1", "p2", "p3", "p4"]:
        others = sheet[[name for name in ["p1", "p2", "p3", "p4"] if name != left_out]]
        far = {
            who: np.sqrt(((others.sub(sheet[who], axis=0)) ** 2).mean(axis=1))
            for who in (left_out, "m")
        }
        difference = (far[left_out] <= far["m"]).astype(float) - (far["m"] <= far[left_out])
        p_values.append(ttest_1samp(difference, 0.15, alternative="less").pvalue)
    assert found["p_value"].tolist() == pytest.approx(p_values)
    assert found["rejected"].tolist() == multipletests(p_values, 0.05, method="fdr_by")[0].tolist()


def test_a_good_judge_passes_and_a_poor_one_does_not(rng):
    good, poor = (
        alternative_annotator_test(study(rng, noise=1, judge_noise=s), "m", epsilon=0.1)
        for s in (0.2, 4)
    )
    assert good["rejected"].all()
    assert not poor["rejected"].any()
    assert poor["judge_wins"].mean() < 0.3 < good["judge_wins"].mean()


def test_a_judge_like_people_passes_more_often_the_more_it_is_forgiven(rng):
    table = study(rng, noise=1, judge_noise=1, n_items=200)
    strict, lenient = (
        alternative_annotator_test(table, "m", epsilon=e)["rejected"].sum() for e in (0.0, 0.3)
    )
    assert strict < lenient


def test_verdicts_are_compared_by_being_the_same(rng):
    words = np.array(["a", "b", "tie"])
    rows = [
        (f"x-y/{k}", "d", who, words[0] if rng.random() < 0.8 else rng.choice(words))
        for k in range(60)
        for who in ["p1", "p2", "p3", "m"]
    ]
    found = alternative_annotator_test(votes(rows), "m", epsilon=0.2)
    assert found["n_items"].tolist() == [60, 60, 60]


@pytest.mark.parametrize(
    ("change", "settings", "message"),
    [
        (
            lambda table: table[~table["rater"].isin(["p1", "p2"])],
            {},
            "three people|3 people or more",
        ),
        (
            lambda table: table[table["reply_id"].str.len() < len("reply_20")],
            {},
            "there are 0 of 4",
        ),
        (lambda table: table, {"epsilon": 2.0}, "epsilon must lie between 0 and 1"),
        (lambda table: table[table["rater"] != "m"], {}, "'m' gave no answer"),
    ],
)
def test_what_cannot_be_tested_is_refused_with_a_reason(rng, change, settings, message):
    table = change(study(rng, noise=1, judge_noise=1))
    with pytest.raises(AgreementError, match=message):
        alternative_annotator_test(table, "m", **{"epsilon": 0.1, **settings})


def test_a_person_may_be_put_to_the_test_and_who_gave_no_answer_is_no_person(rng):
    table = study(rng, noise=1.0, judge_noise=1.0).assign(state="valid")
    failed = table[table["rater"] == "p1"].assign(rater="p9", score=np.nan, state="error")
    found = alternative_annotator_test(pd.concat([table, failed]), "p4", epsilon=0.15)
    assert found.iloc[:, 0].tolist() == ["p1", "p2", "p3"]


@pytest.mark.parametrize("agree", [0.5, 0.7, 1.0])
def test_a_judge_that_never_reads_replaces_nobody(rng, agree):
    """Four people toss coins, agree a little, or all say a; the judge always says a, or tosses."""
    truth = rng.random(300) < 0.5 if agree < 1 else np.ones(300, dtype=bool)
    for judge in (np.ones(300, dtype=bool), rng.random(300) < 0.5):
        people = [np.where(rng.random(300) < agree, truth, ~truth) for _ in range(4)]
        sheet = np.column_stack([*people, judge]).astype(float)
        table = scores(sheet, raters=["p1", "p2", "p3", "p4", "m"])
        assert not alternative_annotator_test(table, "m", epsilon=0.2)["rejected"].all()
