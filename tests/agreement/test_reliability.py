"""Dawid and Skene's model."""

import numpy as np
import pandas as pd
import pytest
from builders import verdicts
from hypothesis import given, settings
from hypothesis import strategies as st

from heart_utils.agreement import raters
from heart_utils.agreement.raters import dawid_skene, rater_reliability
from heart_utils.ratings.verdicts import AgreementError

# Dawid and Skene (1979), Table 1: 45 patients; the first anaesthetist judged each three times, the
# others once.
ANAESTHETISTS = """
111 1 1 1 1,333 4 3 3 4,112 2 1 2 2,222 3 1 2 1,222 3 2 2 2,222 3 3 2 2,122 2 1 1 1,333 3 4 3 3,222 2 2 2 3,232 2 2 2 3,
444 4 4 4 4,222 3 3 4 3,111 1 1 1 1,222 3 2 1 2,121 1 1 1 1,111 2 1 1 1,111 1 1 1 1,111 1 1 1 1,222 2 2 2 1,222 1 3 2 2,
222 2 2 2 2,222 2 2 2 1,222 3 2 2 2,221 2 2 2 2,111 1 1 1 1,111 1 1 1 1,232 2 2 2 2,111 1 1 1 1,111 1 1 1 1,112 1 1 2 1,
111 1 1 1 1,333 3 2 3 3,111 1 1 1 1,222 2 2 2 2,222 3 2 3 2,433 4 3 4 3,221 2 2 3 2,232 3 2 3 3,333 3 4 3 2,111 1 1 1 1,
111 1 1 1 1,121 2 1 1 1,232 2 2 2 2,121 1 1 1 1,222 2 2 2 2
"""

# Their estimates as printed (some rows do not add up to 1): rater -> rows are true classes 1 to 4,
# columns answers 1 to 4.
PUBLISHED_ERRORS = {
    1: [[0.89, 0.11, 0, 0], [0.07, 0.88, 0.05, 0], [0, 0.34, 0.66, 0], [0, 0, 0.56, 0.44]],
    2: [[0.83, 0.17, 0, 0], [0.05, 0.63, 0.31, 0], [0, 0, 1, 0], [0, 0, 0, 1]],
    3: [[1, 0, 0, 0], [0.11, 0.79, 0.11, 0], [0, 0.40, 0.20, 0.40], [0, 0, 0.67, 0.33]],
    4: [[0.94, 0.06, 0, 0], [0.05, 0.84, 0.10, 0], [0, 0, 0.80, 0.20], [0, 0, 0.33, 0.67]],
    5: [[1, 0, 0, 0], [0.16, 0.73, 0.11, 0], [0, 0.21, 0.79, 0], [0, 0, 0.33, 0.67]],
}


@pytest.fixture(scope="module")
def anaesthetists() -> pd.DataFrame:
    rows = []
    for patient, line in enumerate(ANAESTHETISTS.replace("\n", "").split(","), 1):
        for rater, said in enumerate(line.split(), 1):
            rows += [(patient, rater, answer) for answer in said]
    table = pd.DataFrame(rows, columns=["item", "rater", "answer"])
    assert len(table) == 315
    return table


def test_prevalence_matches_the_published_one(anaesthetists):
    once = dawid_skene(anaesthetists).query("rater == 2")  # who judged each patient once
    assert (once.groupby("truth")["count"].sum() / 45).round(2).tolist() == [0.40, 0.42, 0.11, 0.07]


def test_error_rates_match_the_published_ones(anaesthetists):
    """Two decimals are printed, some of them cut and not rounded, hence 0.01."""
    model = dawid_skene(anaesthetists)
    for rater, table in PUBLISHED_ERRORS.items():
        ours = model[model["rater"] == rater]["probability"].to_numpy().reshape(4, 4)
        assert ours == pytest.approx(np.array(table), abs=0.01), rater


def test_it_agrees_with_a_plain_loop_over_the_formulas(anaesthetists):
    """The same model written as Dawid and Skene's equations 2.3 to 2.5, one number at a time."""
    patients, raters, classes = range(1, 46), range(1, 6), "1234"
    count = anaesthetists.groupby(["item", "rater", "answer"]).size().to_dict()
    share = {
        (patient, one): (
            sum(count.get((patient, rater, one), 0) for rater in raters)
            / sum(count.get((patient, rater, other), 0) for rater in raters for other in classes)
        )
        for patient in patients
        for one in classes
    }
    for _ in range(200):
        prior = {one: sum(share[patient, one] for patient in patients) / 45 for one in classes}
        error = {}
        for rater in raters:
            for truth in classes:
                seen = {
                    a: sum(share[p, truth] * count.get((p, rater, a), 0) for p in patients)
                    for a in classes
                }
                error |= {(rater, truth, a): seen[a] / sum(seen.values()) for a in classes}
        for patient in patients:
            weight = dict(prior)
            for truth in classes:
                for (p, rater, a), n in count.items():
                    if p == patient:
                        weight[truth] *= error[rater, truth, a] ** n
            share |= {(patient, truth): weight[truth] / sum(weight.values()) for truth in classes}
    ours = (
        dawid_skene(anaesthetists).set_index(["rater", "truth", "answer"])["probability"].to_dict()
    )
    assert ours == pytest.approx(error, abs=1e-5)


def draw(rng: np.random.Generator, reliabilities: list[float], n_pairs: int = 400) -> pd.DataFrame:
    truth = rng.choice(["a", "b"], n_pairs)
    rows = []
    for number, reliability in enumerate(reliabilities):
        right = rng.random(n_pairs) < reliability
        said = np.where(right, truth, np.where(truth == "a", "b", "a"))
        rows += [(f"d{pair}", "x", "y", answer, f"r{number}") for pair, answer in enumerate(said)]
    return verdicts(rows)


def test_known_reliabilities_are_recovered(rng):
    known = [0.95, 0.9, 0.8, 0.7, 0.6, 0.5]
    found = rater_reliability(draw(rng, known))
    # some 2.4 standard errors at 400 pairs
    assert found["reliability"].to_numpy() == pytest.approx(np.array(known), abs=0.06)


@given(
    answers=st.lists(
        st.lists(st.sampled_from("ab"), min_size=4, max_size=4), min_size=5, max_size=15
    )
)
@settings(max_examples=25)
def test_swapping_which_reply_is_called_a_changes_nobody_s_reliability(answers):
    rows = [
        (f"d{pair}", "x", "y", one, f"r{rater}")
        for pair, said in enumerate(answers)
        for rater, one in enumerate(said)
    ]
    here = verdicts(rows)
    there = here.assign(verdict=here["verdict"].map({"a": "b", "b": "a"}))
    assert rater_reliability(here)["reliability"].to_numpy() == pytest.approx(
        rater_reliability(there)["reliability"].to_numpy(), abs=1e-4
    )


def test_ties_are_counted_apart_and_who_only_ties_has_no_reliability():
    table = rater_reliability(
        verdicts(
            [
                ("d1", "x", "y", "a", "r1"),
                ("d1", "x", "y", "a", "r2"),
                ("d1", "x", "y", "tie", "r3"),
            ]
        )
    )
    assert table["tie_share"].tolist() == [0, 0, 1]
    assert pd.isna(table.loc["r3", "reliability"])
    assert table.loc["r1", "reliability"] > 0.5
    only = rater_reliability(verdicts([("d1", "x", "y", "tie", "r1")]))
    assert only["reliability"].isna().all()


def test_a_fit_that_has_not_settled_raises(anaesthetists, monkeypatch):
    monkeypatch.setattr(raters, "MOST_STEPS", 2)
    with pytest.raises(AgreementError, match="After 2 steps a posterior still moves"):
        dawid_skene(anaesthetists)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda table: table.drop(columns="answer"), "no column answer"),
        (lambda table: table.iloc[:0], "0 of 0 answers"),
        (lambda table: table.assign(answer=None), "315 of 315 answers lack"),
    ],
)
def test_answers_that_are_none_are_refused(anaesthetists, spoil, message):
    with pytest.raises(AgreementError, match=message):
        dawid_skene(spoil(anaesthetists))


def test_hundreds_of_answers_on_one_item_leave_its_class_certain():
    said = [("i", f"r{k}", "yes" if k % 3 else "no") for k in range(1500)] + [
        ("j", f"r{k}", "no") for k in range(1500)
    ]
    found = dawid_skene(pd.DataFrame(said, columns=["item", "rater", "answer"]))
    assert set(found["count"].round(6)) == {0.0, 1.0}


def test_a_rater_whom_all_agree_with_has_the_added_counts_alone_against_them():
    """Thirty pairs, six raters of one mind: 30 right and none wrong, a count added to each.

    No interval is claimed.
    """
    table = verdicts(
        [(f"d{k:02d}", "x", "y", "ab"[k % 3 > 1], f"r{n}") for k in range(30) for n in range(6)]
    )
    found = rater_reliability(table)
    assert found["reliability"].tolist() == pytest.approx([31 / 32] * 6, abs=1e-3)
    assert list(found.columns) == ["tie_share", "reliability"]


def test_with_a_mirror_no_side_is_the_likelier_one():
    rows = [(k, f"r{n}", "ab"[(k + (n == k % 5)) % 4 == 0]) for k in range(20) for n in range(5)]
    found = dawid_skene(
        pd.DataFrame(rows, columns=["item", "rater", "answer"]), mirror={"a": "b", "b": "a"}
    )
    met = found.pivot_table("count", "rater", "truth", aggfunc="sum")
    assert met["a"].tolist() == pytest.approx(met["b"].tolist())


def test_raters_come_in_the_order_of_the_alphabet():
    rows = [(item, rater, item) for item in "ab" for rater in ("zoe", "ann")]
    found = dawid_skene(pd.DataFrame(rows, columns=["item", "rater", "answer"]))
    assert found["rater"].unique().tolist() == ["ann", "zoe"]
