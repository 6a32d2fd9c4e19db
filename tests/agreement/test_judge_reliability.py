"""Reliabilities and kappas of many raters at once are those of one call each."""

import numpy as np
import pytest

from heart_utils.agreement.kappa import icc, judge_reliability
from heart_utils.ratings.verdicts import AgreementError
from heart_utils.simulate.study import Panel, simulate_study


@pytest.fixture(scope="module")
def scores():
    panels = [Panel(kind, 1, 1, scores=True) for kind in ("human", "model", "model")]
    study = simulate_study(
        rng=np.random.default_rng(5),
        strengths=5,
        n_dialogues=30,
        pairs=1,
        panels=panels,
        dimensions=("warmth", "advice"),
    )
    table = study.scores.copy()
    table.loc[table.index[::17], "state"] = "error"  # what failed enters neither way
    return table


@pytest.mark.parametrize("of", ["responder", None])
def test_each_reliability_is_that_of_a_call_of_its_own(scores, of):
    person = scores.query("rater_kind == 'human'")["rater"].iloc[0]
    names = sorted(scores["responder"].unique())
    judges = sorted(set(scores["rater"]) - {person})
    # a judge does not score itself
    apart = scores[(scores["rater"] != judges[0]) | (scores["responder"] != names[0])]
    found = judge_reliability(apart, person=person, of=of, kinds=("C,1", "A,1"))
    assert len(found) == 2 * 2 * 2
    for row in found.itertuples():
        rows = scores[
            scores["rater"].isin([person, row.judge]) & (scores["dimension"] == row.dimension)
        ]
        rows = rows[rows["responder"] != (names[0] if row.judge == judges[0] else "")]
        if of:  # the means of the replies that both scored
            both = (
                rows[rows["state"] == "valid"]
                .groupby("reply_id")
                .filter(lambda mine: len(mine) == 2)
            )
            rows = (
                both.groupby(["responder", "rater"], as_index=False)["score"]
                .mean()
                .rename(columns={of: "reply_id"})
            )
        alone = icc(rows, kind=row.kind, cluster=None, n_resamples=0)
        assert row.value == pytest.approx(alone.value, abs=1e-12)
        assert row.n_rows == alone.n_units


def test_a_person_without_scores_is_named(scores):
    with pytest.raises(AgreementError, match="nobody has no score that counts"):
        judge_reliability(scores, person="nobody")
