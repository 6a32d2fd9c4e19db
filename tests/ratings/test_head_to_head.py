"""People against models: counted by hand."""

import numpy as np
import pandas as pd
import pytest

from heart_utils.ratings.standings import head_to_head
from heart_utils.ratings.verdicts import RatingsError
from heart_utils.simulate.study import Panel, Spread, simulate_study

WHO = pd.DataFrame(
    {
        "responder": ["anna", "ben", "bot", "probe"],
        "responder_kind": ["human", "human", "model", "probe"],
    }
)


def votes(rows):
    table = pd.DataFrame(
        rows,
        columns=["responder_a", "responder_b", "verdict", "state", "dialogue_id", "rater_kind"],
    )
    return table.assign(dimension="overall")


ROWS = [
    ("anna", "bot", "a", "valid", "d1", "human"),
    ("bot", "ben", "a", "valid", "d1", "human"),
    ("bot", "anna", "tie", "valid", "d2", "human"),
    ("ben", "bot", None, "inconsistent", "d2", "model"),
    ("ben", "bot", "b", "valid", "d3", "model"),
    ("anna", "bot", None, "error", "d3", "model"),  # a failure: counts for nobody
    ("anna", "ben", "a", "valid", "d3", "human"),  # two people: no such meeting
    ("probe", "bot", "a", "valid", "d3", "human"),  # a probe is nobody's reply
]


def test_wins_ties_and_contradictions_are_counted_by_hand(rng):
    found = head_to_head(votes(ROWS), WHO, rng=rng, n_resamples=200).set_index("outcome")
    assert found["share"].to_dict() == pytest.approx(
        {
            "people": 1 / 5,
            "models": 2 / 5,
            "tie": 1 / 5,
            "inconsistent": 1 / 5,
            "models_of_decided": 2 / 3,
        }
    )
    assert found["n_verdicts"].unique().tolist() == [5]
    assert found["n_clusters"].unique().tolist() == [3]
    assert found["provisional"].all()


def test_splits_are_the_counts_of_their_rows(rng):
    found = head_to_head(
        votes(ROWS[::-1]), WHO, rng=rng, by=["rater_kind"], n_resamples=50
    ).set_index(["rater_kind", "outcome"])
    assert list(dict.fromkeys(found.index.get_level_values(0))) == ["human", "model"]
    assert found.loc[("human", "people"), "share"] == pytest.approx(1 / 3)
    assert found.loc[("model", "models"), "share"] == pytest.approx(1 / 2)


def test_shares_of_a_simulated_study_lie_in_their_intervals(rng):
    strengths = {"human": 0.4, "model": -0.4}
    study = simulate_study(
        rng=rng,
        strengths=strengths,
        n_dialogues=4000,
        pairs="all",
        panels=[Panel("human", 5, 1, ties=0.5)],
        spread=Spread(dialogues=0),
    )
    found = head_to_head(study.verdicts, study.responders, rng=rng, n_resamples=300).set_index(
        "outcome"
    )
    up, down = np.exp(0.4), np.exp(-0.4)
    truth = {"people": up, "models": down, "tie": 0.5}
    for outcome, weight in truth.items():
        row = found.loc[outcome]
        share, reach = weight / (up + down + 0.5), row["ci_high"] - row["ci_low"]
        assert abs(row["share"] - share) < reach
        assert reach < 0.04
    assert found["simulated"].all()


def test_a_run_without_people_is_told_so(rng):
    with pytest.raises(
        RatingsError,
        match="'overall': there are 0 people and 2 models",
    ):
        head_to_head(votes(ROWS[:1]), WHO.assign(responder_kind="model"), rng=rng)
    with pytest.raises(RatingsError, match="what kind bot is of"):
        head_to_head(votes(ROWS[:2]), WHO[WHO["responder"] != "bot"], rng=rng)
