"""What cannot be rated is refused in one sentence with a way out, whichever function is asked."""

import numpy as np
import pandas as pd
import pytest

from heart_utils.agreement.agreement import pairwise_agreement
from heart_utils.agreement.prediction_powered import prediction_powered_ratings
from heart_utils.evidence import share_between
from heart_utils.gate import GateRule, compare_responders
from heart_utils.judges.position import position_bias
from heart_utils.ratings.other_models import fit_judge_aware
from heart_utils.ratings.ratings import fit_boards, fit_ratings
from heart_utils.ratings.standings import consistency, head_to_head
from heart_utils.report.figures import plot_leaderboard
from heart_utils.simulate.study import Panel, simulate_study
from heart_utils.sources.load import load_verdicts

STUDY = simulate_study(
    rng=np.random.default_rng(1), strengths={"x": 0.3, "y": 0.0, "z": -0.3}, n_dialogues=30, pairs="all",
    panels=[Panel("human", 9, 2), Panel("model", 1, 1)],
)  # fmt: skip
ALL, FIRST = STUDY.verdicts, STUDY.verdicts["history_id"].isin(STUDY.histories["history_id"][:12])
JUDGE, PEOPLE = (ALL["rater_kind"] == kind for kind in ("model", "human"))
PATHS = {
    "fit_ratings": lambda rows: fit_ratings(rows, cluster="dialogue_id", n_resamples=50),
    "fit_boards": lambda rows: fit_boards(rows, by=["dimension"], n_resamples=50),
    "head_to_head": lambda rows: head_to_head(rows, STUDY.responders, n_resamples=50),
    "consistency": lambda rows: consistency(rows, n_resamples=50),
    "judge-aware": fit_judge_aware,
    "powered": lambda rows: prediction_powered_ratings(rows[JUDGE | FIRST]),
    "agreement": lambda rows: pairwise_agreement(rows, n_resamples=50),
    "gate": lambda rows: compare_responders(
        rows,
        baseline="x",
        candidate="y",
        rule=GateRule(n_resamples=50),
        rng=np.random.default_rng(1),
    ),
    "position": lambda rows: position_bias(
        rows[JUDGE], n_resamples=50, rng=np.random.default_rng(1)
    ),
}


def said_of(path, rows):
    with pytest.raises(ValueError) as refused:
        PATHS[path](rows)
    return str(refused.value)


@pytest.mark.parametrize(
    "path", [path for path in PATHS if path not in ("fit_ratings", "fit_boards")]
)
def test_verdicts_without_dialogues_are_told_what_may_stand_for_them(path):
    said = said_of(path, ALL.drop(columns="dialogue_id"))
    assert "lack the column dialogue_id" in said
    assert "such as cluster='history_id'" in said


@pytest.mark.parametrize("path", [path for path in PATHS if path != "position"])
def test_names_of_several_types_are_refused_alike(path):
    mixed = ALL.assign(responder_a=ALL["responder_a"].astype(object).where(ALL.index > 0, 7))
    assert "`responder_a` mixes text and other types" in said_of(path, mixed)


@pytest.mark.parametrize(
    ("mistake", "said"),
    [
        (
            lambda: fit_ratings("votes.csv"),
            "verdicts are a str, expected a DataFrame, such as load_verdicts",
        ),
        (
            lambda: fit_ratings(ALL[PEOPLE], n_resamples=1.5),
            "n_resamples is 1.5; expected 1000 or so",
        ),
        (
            lambda: fit_ratings(ALL[PEOPLE], dimension="empthy"),
            "They have overall: name one, as in dimension='overall'",
        ),
        (
            lambda: plot_leaderboard(ALL),
            "has no column responder, rating",
        ),
        (
            lambda: load_verdicts(None),
            "given a NoneType; expected the name of a set .*, a path or a DataFrame",
        ),
        (
            lambda: load_verdicts(ALL, columns=["verdict"]),
            "columns is a list, expected a mapping, as in columns={",
        ),
        (lambda: load_verdicts(ALL, words="links"), "words is a str, expected a mapping"),
        (
            lambda: load_verdicts(ALL.head(3).assign(verdict="a", p_a=0.1)),
            "does not contradict the verdict",
        ),
        (lambda: fit_ratings(ALL.head(0), n_resamples=0), "No verdict|no verdict"),
        (
            lambda: share_between([6, 5, 5], [5, 4, 6], ci_level=1.5),
            "ci_level is 1.5; expected a number between 0 and 1",
        ),
        (
            lambda: prediction_powered_ratings(ALL[JUDGE | FIRST], ci_level=1.5),
            "ci_level is 1.5; expected a number between 0 and 1",
        ),
    ],
)
def test_an_argument_of_the_wrong_kind_is_answered_with_the_right_one(mistake, said):
    with pytest.raises(ValueError, match=said):
        mistake()


def test_a_whole_number_is_a_seed():
    boards = [
        fit_ratings(ALL[PEOPLE], n_resamples=20, rng=rng).table
        for rng in (3, np.random.default_rng(3))
    ]
    pd.testing.assert_frame_equal(*boards)


@pytest.mark.parametrize("path", ["fit_ratings", "fit_boards", "judge-aware", "powered"])
def test_ties_alone_rank_nobody(path):
    assert "they rank nobody" in said_of(path, ALL.assign(verdict="tie"))
