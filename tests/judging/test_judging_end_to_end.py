"""Judging through the real ledger, against a provider on loopback that fails as it is told to."""

import json
import re
from dataclasses import replace

import pandas as pd
import pytest
from judging_case import make_histories, make_replies, make_study
from server import Provider, serving

from heart_collect.calls.engine import NotInstalledError, ReplayError
from heart_collect.calls.ledger import open_ledger
from heart_collect.calls.models import Model, local_model
from heart_collect.judging.judge import collect_verdicts, plan_questions, plan_verdicts


def choose_second(body):
    """Judge as an easy-going model would: prose around the JSON, and a comma too many."""
    content = body["messages"][1]["content"]
    codes = re.findall(r"^Reply (\w+):$", content, flags=re.MULTILINE)
    names = re.findall(r"^- (\w+): ", content, flags=re.MULTILINE)
    lines = {name: {"reasoning": "It asks.", "winner": codes[1], "margin": 2} for name in names}
    return f"Sure:\n```json\n{json.dumps(lines)[:-1]},}}\n```"


@pytest.fixture
def judge(monkeypatch):
    monkeypatch.setenv("JUDGE_TEST_KEY", "sk-canary-0123456789abcdef")
    return Model("judge", "openai/judge", api_key_env="JUDGE_TEST_KEY")


def test_verdicts_come_back_from_the_ledger_without_a_server(judge, tmp_path):
    study = make_study()
    ledger = open_ledger(f"sqlite:///{tmp_path}/calls.db")
    with serving(Provider(choose_second, faults={"500": 0.1, "malformed": 0.1})) as provider:
        judge = replace(judge, api_base=provider.address)
        plan = plan_verdicts(plan_questions(*study, [judge]), ledger)
        live = collect_verdicts(plan_questions(*study, [judge]), ledger=ledger, progress=False)
    again = collect_verdicts(
        plan_questions(*study, [judge]),
        ledger=open_ledger(f"sqlite:///{tmp_path}/calls.db"),
        mode="replay",
    )
    pd.testing.assert_frame_equal(live, again)
    assert plan[["n_calls", "n_recorded"]].to_numpy().tolist() == [[12, 0]]
    assert set(live["state"]) == {"valid"}
    assert (live["verdict"] == live["order"].str[1]).all()
    with pytest.raises(ReplayError):
        collect_verdicts(plan_questions(*study, [judge], seed=1), ledger=ledger, mode="replay")
    assert not [file for file in tmp_path.iterdir() if b"sk-canary" in file.read_bytes()]


def test_letters_come_with_their_probabilities(judge, tmp_path):
    with serving(Provider(logprobs=(("B", -0.1), ("A", -1.1), ("The", -4.0)))) as provider:
        judge = replace(judge, api_base=provider.address, answer_format="logprob")
        ledger = open_ledger(f"sqlite:///{tmp_path}/calls.db")
        verdicts = collect_verdicts(
            plan_questions(*make_study(), [judge], dimensions=["overall"]),
            ledger=ledger,
            progress=False,
        )
    assert verdicts.groupby("order")["p_a"].unique().map(list).to_dict() == {
        # 1 / (1 + e^1): the letters differ by one in log-probability, and B, the second shown, has
        # more.
        "ab": pytest.approx([0.268941], abs=1e-6),
        "ba": pytest.approx([0.731059], abs=1e-6),
    }


def test_a_judge_that_talks_instead_is_asked_once_more_and_then_unparsed(judge, tmp_path):
    with serving(Provider("I like the second one.")) as provider:
        judge = replace(judge, api_base=provider.address)
        ledger = open_ledger(f"sqlite:///{tmp_path}/calls.db")
        scores = collect_verdicts(
            plan_questions(make_histories(), make_replies(), None, [judge]),
            ledger=ledger,
            progress=False,
        )
        assert len(provider.requests) == 12
        assert set(scores["state"]) == {"unparsed"}
        collect_verdicts(
            plan_questions(make_histories(), make_replies(), None, [judge]),
            ledger=ledger,
            progress=False,
        )
        assert len(provider.requests) == 12


@pytest.mark.live
@pytest.mark.parametrize("answer_format", ["logprob", "json"])
def test_the_embedded_model_answers_in_the_form_asked_for(answer_format, tmp_path):
    """One comparison in both orders; what it prefers is not tested, for it is no valid judge."""
    histories, replies, comparisons = make_study()
    ledger = open_ledger(f"sqlite:///{tmp_path}/calls.db")
    judge = replace(local_model(), answer_format=answer_format)
    try:
        verdicts = collect_verdicts(
            plan_questions(
                histories, replies, comparisons.head(2), [judge], dimensions=["overall"]
            ),
            ledger=ledger,
            progress=False,
        )
    except NotInstalledError as error:
        pytest.skip(f"needs the embedded model: {error}")
    assert verdicts["state"].tolist() == ["valid", "valid"]
