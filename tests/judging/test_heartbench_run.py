"""Item-wise judging: exact lengths, one second chance, states, what the score makes of them; and a
HeartBench run from its settings to its tables, with every model on loopback."""

import json
from dataclasses import replace
from functools import partial

import pandas as pd
import pytest
from conversation_case import lay_out
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st
from judging_case import JUDGE, StandIn, collect_hits, make_replies
from server import Provider, serving

from heart_collect.calls.models import Call
from heart_collect.collect import main
from heart_collect.judging.judge import JudgeError
from heart_collect.judging.prompts import ItemsTemplate
from heart_collect.judging.readings import read_hits
from heart_collect.judging.recipe import Recipe, RecipeError
from heart_collect.judging.respond import reply_questions
from heart_utils.heartbench import score_rubric
from heart_utils.runs import may_publish, open_run
from heart_utils.sources.heart import load_question_histories, load_questions
from heart_utils.tables import TableError

RUBRIC = [
    ("Warmth", 3, "says that it cares"),
    ("Warmth", -4, "lectures"),
    ("special", None, "plays the user"),
]
QUESTIONS = [
    {
        "question_id": name,
        "rubric": [
            {"dimension": ability, "score": points, "content": words + "." * length}
            for ability, points, words in RUBRIC
        ],
        "dialogue": [{"role": "A", "content": f"{name}: nobody asked how I am."}],
    }
    for name, length in (("Q1", 40), ("Q2", 0))
]
ONE = make_replies({"m": "I care."}).assign(reply_id=["r1", "r2"], history_id=["Q1", "Q2"])


@pytest.fixture
def questions(tmp_path):
    file = tmp_path / "questions.jsonl"
    file.write_text("\n".join(map(json.dumps, QUESTIONS)), encoding="utf-8")
    return file


@pytest.fixture
def asking(questions):
    """How to ask about the hits of a reply to each question."""
    rubric, histories = load_questions(questions), load_question_histories(questions)
    return partial(collect_hits, rubric, histories, language="en")


def hits(*values, reason="1. yes 2. no 3. no"):
    return json.dumps({"reason": reason, "hits": list(values)})


def test_hits_become_rows_of_scores_one_an_item_and_come_from_the_ledger_again(asking, monkeypatch):
    ledger = StandIn(monkeypatch, lambda request: hits(1, 0, 0))
    plans = [asking(ONE, [JUDGE], ledger=ledger, plan=True)]
    scores = asking(ONE, [JUDGE], ledger=ledger)
    plans.append(asking(ONE, [JUDGE], ledger=ledger, plan=True))
    assert len(scores) == 6
    first = scores[scores["reply_id"] == "r1"]
    assert first["item"].tolist() == ["Q1-01", "Q1-02", "Q1-03"]
    assert first["score"].tolist() == [1, 0, 0]
    assert set(scores["protocol"]) == {"heartbench"}
    asked = ledger.asked[0].messages[0]["content"]
    assert "2. [warmth][-4] lectures" in asked
    assert "Other：Q1: nobody asked how I am." in asked
    pd.testing.assert_frame_equal(asking(ONE, [JUDGE], ledger=ledger, mode="replay"), scores)
    before, after = pd.concat(plans)[["n_calls", "n_recorded", "prompt_tokens"]].to_numpy().tolist()
    assert before[:2] == [2, 0]
    assert before[2] > 100
    assert after == [2, 2, 0]


@pytest.mark.parametrize(
    ("answers", "states", "n_asked", "flags"),
    [
        ([hits(1, None, 0)] * 2, ["valid", "abstained", "valid"], 2, []),
        ([hits(1, 0, 0, reason=" ")] * 2, ["unparsed"] * 3, 4, []),
        ([hits(1)] * 2, ["unparsed"] * 3, 4, []),  # never padded
        ([hits(1, 0), hits(1, 0, 0)], ["valid"] * 3, 4, ["repaired"]),
        (["I'm sorry, but I can't help with that."] * 2, ["refused"] * 3, 2, []),
    ],
)
def test_what_cannot_be_read_is_asked_for_once_more_and_scores_nothing(
    asking, questions, monkeypatch, answers, states, n_asked, flags
):
    ledger = StandIn(monkeypatch, lambda request: answers[len(request.messages) > 1])
    scores = asking(ONE, [JUDGE], ledger=ledger)
    assert scores["state"].tolist() == states * 2
    assert scores["flags"].tolist() == [flags] * 6
    assert len(ledger.asked) == n_asked
    cells = score_rubric(load_questions(questions), scores)
    assert cells["score"].notna().any() == (states == ["valid"] * 3)


def test_a_reply_that_failed_is_not_judged_and_a_judge_of_its_family_is_flagged(
    asking, monkeypatch
):
    ledger = StandIn(monkeypatch, lambda request: hits(1, 0, 0))
    replies = ONE.assign(text=[None, "I care."], state=["refused", "valid"])
    responders = pd.DataFrame({"responder": ["m"], "family": "Acme", "model": "acme/m"})
    judge = replace(JUDGE, family="acme")
    scores = asking(replies, [judge], ledger=ledger, responders=responders)
    assert len(ledger.asked) == 1
    assert scores["state"].tolist() == ["valid"] * 3 + ["refused"] * 3
    own = ["own_family"]
    assert scores["flags"].tolist() == [own] * 3 + [[*own, "no_reply"]] * 3


def test_what_does_not_fit_is_refused_before_the_first_call(asking):
    with pytest.raises(TableError, match=r"replies\.history_id: .*row 1 has 'Q9'"):
        asking(ONE.assign(history_id=["Q1", "Q9"]), [JUDGE], ledger=None)
    with pytest.raises(JudgeError, match="No judge"):
        asking(ONE, [], ledger=None)


def test_replies_are_asked_for_in_one_message(questions):
    histories = load_question_histories(questions)
    asked = reply_questions(histories, [JUDGE], repeats=1, instructions="Be kind.", language="zh")
    [message] = asked[0].request.messages
    assert "对方：Q" in message["content"]
    assert "Be kind" not in message["content"]


BAD_ANSWERS = {
    "I would say 1, 0, 0.": "no JSON object",
    '{"hits": "1,0,0", "reason": "x"}': "hits is str, expected a list",
    hits(1, 0): "2 entries, expected 3",
    hits(1, 0, 0, 0): "4 entries, expected 3",
    hits(1, 2, 0): "entry 2 of hits is 2",
    hits(1, 0, "1"): 'entry 3 of hits is "1"',
    hits(True, 0, 0): "entry 1 of hits is true",
    hits(1, 0.5, 0): "entry 2 of hits is 0.5",
    '{"hits": [1, 0, 0]}': "gives no reason",
    '{"reason": "x", "hits": [1, 0,': "no JSON object",
}


def read(text, n=3):
    return read_hits(Call("key", "ok", text), n)


@pytest.mark.parametrize("text", BAD_ANSWERS)
def test_an_answer_that_cannot_be_used_says_why(text):
    found, fault = read(text)
    assert {reading.state for reading in found} == {"unparsed"}
    assert BAD_ANSWERS[text] in fault


@pytest.mark.parametrize("around", ["{}", "```json\n{}\n```", "First {{draft}}.\n{}"])
def test_what_models_put_around_json_does_not_matter(around):
    found, fault = read(around.format(hits(1, 0, None)))
    assert [reading.score for reading in found] == [1, 0, None]
    assert [reading.state for reading in found] == ["valid", "valid", "abstained"]
    assert fault is None


@examples(max_examples=50)
@given(
    values=st.lists(st.sampled_from([0, 1, None]), min_size=1, max_size=23), n=st.integers(1, 23)
)
def test_hits_are_read_whole_or_not_at_all(values, n):
    found, fault = read(hits(*values), n)
    assert len(found) == n
    if len(values) == n:
        assert ([reading.score for reading in found], fault) == (values, None)
    else:
        assert fault is not None
        assert {reading.state for reading in found} == {"unparsed"}


@pytest.mark.parametrize("language", ["zh", "en"])
def test_reasons_come_before_hits_and_the_second_question_keeps_the_first_answer(language):
    item = {"item": "Q1-01", "ability": "warmth", "points": 1.0, "content": "z"}
    template = ItemsTemplate((item,), language)
    asked = template.messages("x", ("y",))[0]["content"]
    assert asked.rindex('"reason"') < asked.rindex('"hits"')
    assert list(template.schema["properties"]) == ["reason", "hits"]
    answer, again = template.again("{", "it holds no JSON object with hits")
    assert answer == {"role": "assistant", "content": "{"}
    assert "no JSON object" in again["content"]


# A run


@pytest.fixture
def provider():
    def answer(body):
        return hits(1, 0, 0) if "hits" in body["messages"][0]["content"] else "I care."

    with serving(Provider(answer=answer, piece_s=0.0)) as running:
        yield running


@pytest.fixture
def project(tmp_path, questions, provider, monkeypatch):
    """What writes the settings of a project of its own, so that nothing lands in this one."""

    def settings(address, judges=("j",), **changes):
        free = {"api_base": address, "price_prompt": 0, "price_completion": 0}
        served = {
            name: {"name": name, "model": f"openai/{name}", **free} for name in ("m", *judges)
        }
        models = {"responders": [served["m"]], "judges": [served[name] for name in judges]}
        return {"questions": str(questions), "language": "en", **models, **changes}

    return lay_out(tmp_path, provider.address, monkeypatch, settings)


def test_a_run_is_collected_again_without_a_call_and_says_what_each_table_rests_on(
    project, provider, capsys
):
    project(judges=("j", "k"))
    assert main(["mine", "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "mine: 2 histories." in said
    assert "6 calls to make" in said
    assert not provider.requests
    for _ in range(2):
        assert main(["mine", "--quiet"]) == 0
        assert len(provider.requests) == 2 + 2 * 2
    run = open_run("mine")
    scores = run.read("scores")
    assert scores.groupby("rater").size().to_dict() == {"j": 6, "k": 6}
    assert scores["score"].tolist() == [1, 0, 0] * 4
    tables = run.manifest["tables"]
    assert {name: entry["origin"] for name, entry in tables.items()} == {
        "histories": "published",
        "responders": "drafted",
        "replies": {"live": 2},
        "scores": "live",
    }
    licences = {tables[name]["licence"] for name in ("histories", "replies", "scores")}
    assert licences == {"none stated"}
    assert not may_publish("none stated")
    assert tables["histories"]["source"].endswith("questions.jsonl, as params/mine.yaml says")


@pytest.mark.mirror
def test_what_is_made_of_heartbench_may_not_be_published(project, provider, mirror):
    provider.answer = lambda body: hits(1)
    project(questions="heartbench", n_questions=1)
    assert main(["mine", "--quiet"]) == 0
    tables = open_run("mine").manifest["tables"]
    licences = {tables[name]["licence"] for name in ("histories", "replies", "scores")}
    assert not any(map(may_publish, licences))


@pytest.mark.mirror
def test_the_shortest_questions_are_chosen(mirror):
    six = Recipe("mine", questions="heartbench", n_questions=6).choose_histories()
    assert len(six) == 6
    assert six["turns"].map(len).max() == 1
    assert len(Recipe("mine", questions="heartbench").choose_histories()) > 200


def test_more_questions_than_there_are_is_an_error_and_the_shorter_comes_first(questions):
    asked = {"run": "mine", "questions": str(questions)}
    assert Recipe(**asked, n_questions=1).choose_histories()["history_id"].tolist() == ["Q2"]
    with pytest.raises(RecipeError, match="3 were asked for, and there are 2"):
        Recipe(**asked, n_questions=3).choose_histories()
