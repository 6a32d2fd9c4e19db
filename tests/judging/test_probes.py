"""Probes: each reply is spoilt in the way it says, and nothing else is."""

import pandas as pd
import pytest

from heart_collect.calls.engine import ReplayError
from heart_collect.calls.ledger import open_ledger
from heart_collect.calls.models import read_models
from heart_collect.judging.design import CHECKS, make_probes
from heart_collect.judging.judge import collect_answers, plan_verdicts
from heart_collect.judging.prompts import instructs_judge
from heart_collect.judging.steps import probe_questions

JUDGE = {"name": "judge", "model": "openai/none", "family": "none"}


@pytest.fixture(scope="module")
def texts():
    return make_probes()["replies"].set_index(["history_id", "responder"])["text"].unstack()  # noqa: PD010


def test_each_history_has_every_probe_beside_its_reference_in_both_orders():
    probes = make_probes()
    assert probes["histories"]["slice"].eq("standard").all()
    met = probes["comparisons"].groupby(["history_id", "order"]).size()
    assert (met == len(CHECKS)).all()
    assert len(met) == 2 * len(probes["histories"])
    sides = probes["comparisons"][["responder_a", "responder_b"]].eq("reference").sum(axis=1)
    assert (sides == 1).all()
    for table in probes.values():
        assert table.index.tolist() == list(range(len(table)))


def test_no_probe_says_the_same_as_its_reference(texts):
    for check in CHECKS:
        assert (texts[check.name] != texts["reference"]).all(), check.name


def test_the_four_that_add_leave_the_reply_whole(texts):
    for name in ("padded", "injected-instruction", "fakes-a-person", "says-it-is-an-ai"):
        assert all(
            base in spoilt for base, spoilt in zip(texts["reference"], texts[name], strict=True)
        ), name


def test_a_reply_from_another_history_is_the_next_ones_reference(texts):
    there = texts.loc[make_probes()["histories"]["history_id"]]
    assert there["other-history"].tolist() == [
        *there["reference"].iloc[1:],
        there["reference"].iloc[0],
    ]


def test_only_the_injected_instruction_speaks_to_the_judge(texts):
    assert texts["injected-instruction"].map(instructs_judge).all()
    for name in set(texts.columns) - {"injected-instruction"}:
        assert not texts[name].map(instructs_judge).any(), name


def test_what_is_bare_is_about_as_long_and_shares_fewer_words_with_the_conversation(texts):
    probes = make_probes()
    said = {
        history: {
            word.strip(".,?!\"'").lower()
            for turn in turns
            if turn["speaker"] == "seeker"
            for word in turn["text"].split()
        }
        for history, turns in zip(
            probes["histories"]["history_id"], probes["histories"]["turns"], strict=True
        )
    }

    def shared(column):
        return pd.Series({
            history: len({word.strip(".,?!\"'").lower() for word in text.split()} & said[history])
            for history, text in texts[column].items()
        })  # fmt: skip

    assert (shared("specifics-removed") <= shared("reference")).mean() > 0.9
    assert shared("specifics-removed").mean() < shared("reference").mean() / 1.5
    ratio = (
        texts["specifics-removed"].str.split().str.len() / texts["reference"].str.split().str.len()
    )
    assert 0.8 < ratio.mean() < 1.25


def test_a_plan_asks_nothing_and_a_replay_of_nothing_says_what_to_do():
    judges = read_models([JUDGE])
    questions = probe_questions(judges, seed=1)
    plan = plan_verdicts(questions, open_ledger("sqlite://"))
    assert int(plan["n_calls"].sum()) == 2 * 24 * len(CHECKS)
    with pytest.raises(ReplayError, match="make collect"):
        collect_answers(
            "verdicts", questions, ledger=open_ledger("sqlite://"), mode="replay", progress=False
        )
