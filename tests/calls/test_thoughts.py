"""What models think before they answer, in the marks that open models write."""

import asyncio

import pytest
from server import Provider, serving

from heart_collect.calls.ledger import open_ledger
from heart_collect.calls.models import Model, Request
from heart_collect.calls.outcomes import attempt
from heart_collect.calls.thoughts import answer_start, without_thoughts
from heart_collect.judging.respond import collect_replies
from heart_utils.sources.load import load_histories

DRAFT = "The person is sad. I could say: I hear you."
CLOSED = {
    "DeepSeek": "<think>\n{}\n</think>\n\n",
    "opened by the template": "{}\n</think>\n\n",
    "nothing thought": "<think>\n\n</think>\n\n",
    "EXAONE": "<thought>{}</thought>",
    "sloppy": "<think>{}</thinking>",
    "attributes": "<Thinking level='2'>{}</Thinking>",
    "Reka": "<reasoning>{}</reasoning>",
    "Seed": "<seed:think>{}</seed:think>",
    "LongCat": "{}</longcat_think>",
    "MiniMax M3": "<mm:think>{}</\u200bmm:think>",
    "Hunyuan": "<think>{}</think>\n<answer>",
    "Magistral": "[THINK]{}[/THINK]",
    "gpt-oss": "<|channel|>analysis<|message|>{}<|end|><|start|>assistant<|channel|>final<|message|>",
    "gpt-oss, three channels": (
        "<|channel|>analysis<|message|>{}<|end|><|start|>assistant<|channel|>commentary<|message|>"
        "{}<|end|><|start|>assistant<|channel|>final<|message|>"
    ),
    "gpt-oss, from the end on": "{}<|end|><|start|>assistant<|channel|>final<|message|>",
    "gpt-oss without its signs": "analysis{}assistantfinal",
    "OpenThoughts": "<|begin_of_thought|>{}<|end_of_thought|>\n<|begin_of_solution|>",
    "Kimi": "◁think▷{}◁/think▷",
    "Kimi K3": "<|open|>think<|sep|>{}<|close|>think<|sep|><|open|>response<|sep|>",
    "Cohere": "<|START_THINKING|>{}<|END_THINKING|><|START_RESPONSE|>",
    "Solar": "{}<|think:end|>",
    "Gemma 4": "<|channel>thought\n{}<channel|>",
    "MedGemma": "<unused94>thought\n{}<unused95>",
    "Pangu": "[unused16]{}[unused17]",
    "Apertus": "<|inner_prefix|>{}<|inner_suffix|>",
    "Granite": "Here is my thought process:\n{}\n\nHere is my response:\n",
    "one in the other": "<think>a<think>{}</think>b</think>",
    "two": "<think>{}</think><think>{}</think>",
    "a mark that is spoken of": "<think>I close with `</think>`. {}</think>",
}
UNCLOSED = [
    "<think>{}",
    "<think>{}</thi",
    "<THINKING>\n{}",
    "<seed:think>{}",
    "[THINK]{}",
    "<|channel|>analysis<|message|>{}",
    "<|start|>assistant<|channel|>analysis<|message|>{}",
    "analysis{}",
    "<|begin_of_thought|>{}",
    "◁think▷{}",
    "<|open|>think<|sep|>{}",
    "<|START_THINKING|>{}",
    "<|think:start|>{}",
    "<|channel>thought\n{}",
    "<unused94>thought\n{}",
    "Here's my thought process: {}",
    "<think>a</think><think>{}",
    "<think>I weigh <reasoning>a</reasoning> {}",
    "That is hard. <think>{}",
]
REPLY = "That sounds hard. What happened?"


@pytest.mark.parametrize("marks", CLOSED.values(), ids=CLOSED)
def test_a_thought_that_ended_is_taken_out(marks):
    text = marks.format(DRAFT, DRAFT)
    assert without_thoughts(text + REPLY).strip() == REPLY
    assert not without_thoughts(text).strip()
    assert answer_start(text + REPLY) == len(text)


@pytest.mark.parametrize("marks", UNCLOSED)
def test_a_thought_without_an_end_is_no_answer(marks):
    assert without_thoughts(marks.format(DRAFT)) is None
    assert answer_start("<think>" + marks.format(DRAFT)) is None


@pytest.mark.parametrize(
    "text",
    [
        REPLY,
        "",
        "I think so. [thinking] Hm.",
        "Write `<think>` before it, and `</think>` behind.",
        'My father said "<think>" to me.',
        "2 < think and 3 > 2; a thought: yes.",
        "Here is my response: I hear you.",
        "An analysis of it. Analysis paralysis.",
        "That is hard.<|end|>",
        "<b>That</b> is <i>hard</i>.",
        "I thought [/quote] that <thinker> and <rethink> are none.",
    ],
)
def test_an_answer_without_a_thought_stays_as_it_is(text):
    assert without_thoughts(text) == text


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (f"<think>a</think><answer>{REPLY}</answer>\n", REPLY),
        (f"<|channel|>final<|message|>{REPLY}<|return|>", REPLY),
        (f"<|START_THINKING|>a<|END_THINKING|><|START_TEXT|>{REPLY}<|END_TEXT|>", REPLY),
        ("One. <think>a</think>Two.", "One. Two."),
    ],
)
def test_what_stands_around_an_answer_goes_with_the_thought(text, answer):
    assert without_thoughts(text) == answer


def test_the_first_word_is_timed_at_the_reply_and_not_at_the_thought():
    with serving(Provider(answer=f"<think>{'word ' * 20}</think> {REPLY}", piece_s=0.02)) as there:
        model = Model("m", "openai/m", api_base=there.address)
        request = Request(model, ({"role": "user", "content": "Hello."},), stream=True)
        answer = asyncio.run(attempt(request, 1, None))
        there.answer = "<think>nothing else</think>"
        nothing = asyncio.run(attempt(request, 1, None))
    assert answer.text.startswith("<think>word")  # as the ledger keeps it
    assert 20 * 20 <= answer.ttft_ms < answer.total_ms
    assert nothing.ttft_ms is None


@pytest.mark.parametrize("fault", [None, "whole"])  # streamed, and not
def test_a_model_that_only_thinks_is_asked_a_few_times_and_no_more(fault, tmp_path, monkeypatch):
    monkeypatch.setattr("heart_collect.calls.flow.MAX_THOUGHTS", 6)
    histories = load_histories("sample").head(1)
    with serving(Provider(answer="<think>I wonder", faults={fault: 1.0} if fault else {})) as there:
        free = {"price_prompt": 0, "price_completion": 0}
        model = Model("m", "openai/m", api_base=there.address, **free)
        ledger = open_ledger(f"sqlite:///{tmp_path}/l.sqlite")
        asked = {"ledger": ledger, "repeats": 20, "progress": False}
        with pytest.warns(UserWarning, match="m: its queue was stopped.*6 answers in a row.*room"):
            replies = collect_replies(histories, [model], **asked)
        assert len(there.requests) <= 7  # the first may have found that the server does not stream
        assert set(replies["state"]) == {"error"}
        there.answer = REPLY
        replies = collect_replies(histories, [model], **asked)
    assert replies["state"].value_counts().to_dict() == {"valid": 14, "error": 6}
