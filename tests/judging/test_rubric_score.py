"""Item-wise judging against a loopback provider: exact lengths, one second chance, states, and what
the score makes of them."""

import json

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from judging_case import collect_hits
from server import Provider, serving

from heart_collect.calls.ledger import open_ledger
from heart_collect.calls.models import Call, Model
from heart_collect.judging.judge import JudgeError
from heart_collect.judging.prompts import ItemsTemplate
from heart_collect.judging.readings import read_hits
from heart_collect.judging.respond import collect_replies
from heart_utils.heartbench import score_rubric
from heart_utils.sources.heartbench import load_question_histories, load_questions
from heart_utils.tables import TableError, check_table

RUBRIC = [
    ("Warmth", 3, "says that it cares"),
    ("Warmth", -4, "lectures"),
    ("special", None, "plays the user"),
]
QUESTIONS = [
    {
        "question_id": name,
        "rubric": [
            {"dimension": ability, "score": points, "content": words}
            for ability, points, words in RUBRIC
        ],
        "dialogue": [{"role": "A", "content": f"{name}: nobody asked how I am."}],
    }
    for name in ("Q1", "Q2")
]


@pytest.fixture
def questions(tmp_path):
    file = tmp_path / "questions.jsonl"
    file.write_text("\n".join(json.dumps(question) for question in QUESTIONS), encoding="utf-8")
    return file


@pytest.fixture
def ledger(tmp_path):
    return open_ledger(f"sqlite:///{tmp_path}/ledger.sqlite")


def ask(questions, ledger, *answers, judge="judge", replies=None, **options):
    """Let a provider give these answers in turn, the last one for all that follow."""
    said = list(answers)

    def answer(body):
        return said.pop(0) if len(said) > 1 else said[0]

    with serving(Provider(answer=answer)) as provider:
        model = Model(judge, "openai/judge", api_base=provider.address)
        rubric, histories = load_questions(questions), load_question_histories(questions)
        replies = make_replies() if replies is None else replies
        scores = collect_hits(
            rubric,
            histories,
            replies,
            [model],
            ledger=ledger,
            language="en",
            progress=False,
            max_concurrency=1,
            **options,
        )
        return scores, provider


def make_replies(**columns):
    empty = [
        "author_id",
        "ttft_ms",
        "total_ms",
        "prompt_tokens",
        "completion_tokens",
        "cost_usd",
        "typing_ms",
        "call_id",
    ]
    table = pd.DataFrame(
        {"reply_id": ["r1", "r2"], "history_id": ["Q1", "Q2"], "responder": "m", "text": "I care."}
    )
    table = table.assign(**dict.fromkeys(empty), state="valid", simulated=False, **columns)
    table["flags"] = [[], []]
    return check_table("replies", table)


def hits(*values, reason="1. yes 2. no 3. no"):
    return json.dumps({"reason": reason, "hits": list(values)})


def test_hits_become_rows_of_scores_one_an_item(questions, ledger):
    scores, provider = ask(questions, ledger, hits(1, 0, 0))
    assert len(scores) == 6
    first = scores[scores["reply_id"] == "r1"]
    assert first["item"].tolist() == ["Q1-01", "Q1-02", "Q1-03"]
    assert first["score"].tolist() == [1, 0, 0]
    assert set(scores["protocol"]) == {"heartbench"}
    asked = provider.requests[0]["messages"][0]["content"]
    assert "2. [warmth][-4] lectures" in asked
    assert "Other：Q1: nobody asked how I am." in asked


def test_a_list_of_the_wrong_length_is_asked_for_once_more(questions, ledger):
    scores, provider = ask(questions, ledger, hits(1, 0), hits(1, 0, 0), hits(0, 0, 0))
    assert len(provider.requests) == 3
    second = (
        provider.requests[-1]["messages"]
        if len(provider.requests[-1]["messages"]) > 1
        else provider.requests[1]["messages"]
    )
    assert "hits has 2 entries, expected 3" in second[-1]["content"]
    assert (scores["state"] == "valid").all()
    assert scores["flags"].map(lambda flags: "repaired" in flags).sum() == 3


def test_a_second_failure_is_unparsed_and_never_padded(questions, ledger):
    scores, provider = ask(questions, ledger, hits(1))
    assert len(provider.requests) == 4  # two replies, each asked twice
    assert scores["score"].isna().all()
    assert set(scores["state"]) == {"unparsed"}
    cells = score_rubric(load_questions(questions), scores)
    assert cells["score"].isna().all()
    assert set(cells["state"]) == {"unparsed"}


def test_an_abstention_keeps_the_other_items(questions, ledger):
    scores, _ = ask(questions, ledger, hits(1, None, 0))
    assert scores["state"].tolist() == ["valid", "abstained", "valid"] * 2


def test_hits_without_a_reason_are_not_taken(questions, ledger):
    scores, _ = ask(questions, ledger, hits(1, 0, 0, reason=" "))
    assert set(scores["state"]) == {"unparsed"}


def test_a_reply_that_failed_is_not_judged(questions, ledger):
    replies = make_replies()
    replies.loc[0, ["text", "state"]] = [None, "refused"]
    scores, provider = ask(questions, ledger, hits(1, 0, 0), replies=replies)
    assert len(provider.requests) == 1
    assert scores.loc[scores["reply_id"] == "r1", "state"].tolist() == ["refused"] * 3
    assert scores.loc[scores["reply_id"] == "r1", "flags"].tolist() == [["no_reply"]] * 3


def test_everything_comes_from_the_ledger_the_second_time(questions, ledger):
    rubric, histories = load_questions(questions), load_question_histories(questions)
    with serving(Provider(answer=hits(1, 0))) as provider:
        judge = Model("judge", "openai/judge", api_base=provider.address)
        asked = {"ledger": ledger, "language": "en", "progress": False}
        before = collect_hits(
            rubric, histories, make_replies(), [judge], ledger=ledger, language="en", plan=True
        )
        first = collect_hits(rubric, histories, make_replies(), [judge], **asked)
        n = len(provider.requests)
        after = collect_hits(
            rubric, histories, make_replies(), [judge], ledger=ledger, language="en", plan=True
        )
        again = collect_hits(rubric, histories, make_replies(), [judge], mode="replay", **asked)
        assert len(provider.requests) == n == 4
    pd.testing.assert_frame_equal(first, again)
    assert (before["n_calls"].item(), before["n_recorded"].item()) == (2, 0)
    assert before["prompt_tokens"].item() > 100
    assert (after["n_recorded"].item(), after["prompt_tokens"].item()) == (2, 0)


def test_a_judge_of_the_responders_family_is_flagged(questions, ledger):
    rubric, histories = load_questions(questions), load_question_histories(questions)
    responders = pd.DataFrame(
        {"responder": ["m"], "responder_kind": "model", "family": "Acme", "model": "acme/m"}
    )
    responders = responders.assign(size=None, released=None, price=None, simulated=False)
    with serving(Provider(answer=hits(1, 0, 0))) as provider:
        judge = Model("judge", "openai/judge", api_base=provider.address, family="acme")
        scores = collect_hits(
            rubric,
            histories,
            make_replies(),
            [judge],
            ledger=ledger,
            responders=responders,
            language="en",
            progress=False,
        )
    assert set(map(tuple, scores["flags"])) == {("own_family",)}


def test_replies_are_asked_for_in_one_message(questions, ledger):
    histories = load_question_histories(questions)
    with serving(Provider(answer=" I am here. ")) as provider:
        model = Model("m", "openai/m", api_base=provider.address)
        replies = collect_replies(histories, [model], ledger=ledger, language="zh", progress=False)
    assert replies["text"].tolist() == ["I am here."] * 2
    assert replies["state"].tolist() == ["valid"] * 2
    assert len(provider.requests[0]["messages"]) == 1
    assert "对方：Q" in provider.requests[0]["messages"][0]["content"]


def test_an_empty_reply_is_an_error(questions, ledger):
    with serving(Provider(answer="  ")) as provider:
        model = Model("m", "openai/m", api_base=provider.address, timeout_s=5)
        replies = collect_replies(
            load_question_histories(questions).iloc[:1],
            [model],
            ledger=ledger,
            language="zh",
            progress=False,
        )
    assert replies["state"].tolist() == ["error"]
    assert replies["text"].isna().all()


def test_what_does_not_fit_is_refused_before_the_first_call(questions, ledger):
    with pytest.raises(TableError, match=r"replies\.history_id: .*row 1 has 'Q9'"):
        ask_nothing(questions, ledger, replies=make_replies().assign(history_id=["Q1", "Q9"]))
    with pytest.raises(JudgeError, match="No judge"):
        ask_nothing(questions, ledger, judges=[])


def ask_nothing(questions, ledger, *, language="en", replies=None, judges=None):
    judges = (
        [Model("judge", "openai/judge", api_base="http://127.0.0.1:1/v1")]
        if judges is None
        else judges
    )
    rubric, histories = load_questions(questions), load_question_histories(questions)
    replies = make_replies() if replies is None else replies
    return collect_hits(rubric, histories, replies, judges, ledger=ledger, language=language)


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


def read(text, n):
    return read_hits(Call("key", "ok", text), n)


@pytest.mark.parametrize("text", BAD_ANSWERS)
def test_an_answer_that_cannot_be_used_says_why(text):
    found, fault = read(text, 3)
    assert {reading.state for reading in found} == {"unparsed"}
    assert BAD_ANSWERS[text] in fault


def test_what_models_put_around_json_does_not_matter():
    for text in (
        hits(1, 0, None),
        f"```json\n{hits(1, 0, None)}\n```",
        f"First {{draft}}.\n{hits(0, 0, 0)}\nNo:\n{hits(1, 0, None)}",
    ):
        found, fault = read(text, 3)
        assert [(reading.state, reading.score) for reading in found] == [
            ("valid", 1),
            ("valid", 0),
            ("abstained", None),
        ]
        assert fault is None


@settings(max_examples=50)
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


ITEM = {"item": "Q1-01", "ability": "warmth", "points": 1.0, "content": "z"}


def test_reasons_come_before_hits_in_prompt_and_schema():
    for language in ("zh", "en"):
        asked = ItemsTemplate((ITEM,), language).messages("x", ("y",))[0]["content"]
        assert asked.rindex('"reason"') < asked.rindex('"hits"')
    exact, loose = (
        ItemsTemplate((ITEM,) * 3, "en", exact=exact).schema["properties"]
        for exact in (True, False)
    )
    assert list(exact) == ["reason", "hits"]
    assert exact["hits"]["minItems"] == exact["hits"]["maxItems"] == 3
    assert "minItems" not in loose["hits"]


def test_the_second_question_keeps_the_first_answer():
    answer, again = ItemsTemplate((ITEM,) * 3, "en").again("{", "it holds no JSON object with hits")
    assert answer == {"role": "assistant", "content": "{"}
    assert "no JSON object" in again["content"]


def test_a_refusal_in_words_is_refused_and_not_asked_for_again(questions, ledger):
    scores, provider = ask(questions, ledger, "I'm sorry, but I can't help with that.")
    assert set(scores["state"]) == {"refused"}
    assert len(provider.requests) == 2
