"""A small study for the tests of judging, and a stand-in for models that answers what it is
told."""

import json
import re
from dataclasses import replace

import numpy as np
import pandas as pd

from heart_collect.calls.models import Call, Model
from heart_collect.judging.design import pair_replies
from heart_collect.judging.judge import collect_answers, plan_codes, plan_hits, plan_verdicts
from heart_collect.judging.prompts import CODEBOOKS
from heart_utils.sources.heart import load_codebooks

HISTORIES = {
    "h1": [
        ("supporter", "Hello, what is on your mind?"),
        ("seeker", "My dog died and nobody at work gets it."),
    ],
    "h2": [
        ("seeker", "I failed the exam again."),
        ("supporter", "Again?"),
        ("seeker", "Third time. I feel stupid."),
    ],
}
TEXTS = {
    "human": "Oh no. What was your dog called?",
    "model": "I understand. Your feelings are valid.",
    "echo": "It sounds hard.",
}
JUDGE = Model("judge", "openai/judge", api_base="http://127.0.0.1:1/v1")


def make_histories() -> pd.DataFrame:
    rows = [
        {
            "history_id": name,
            "dialogue_id": f"d-{name}",
            "source": "test",
            "slice": "standard",
            "twin_id": None,
            "emotion": "sadness",
            "problem": None,
            "situation": None,
            "turns": [{"speaker": speaker, "text": text} for speaker, text in turns],
            "licence": "CC0-1.0",
            "flags": [],
            "simulated": False,
        }
        for name, turns in HISTORIES.items()
    ]
    return pd.DataFrame(rows)


def make_replies(texts=TEXTS) -> pd.DataFrame:
    rows = [
        {"reply_id": f"{history}-{name}", "history_id": history, "responder": name, "text": text}
        for history in HISTORIES
        for name, text in texts.items()
    ]
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
    table = pd.DataFrame(rows).assign(**dict.fromkeys(empty), state="valid", simulated=False)
    table["flags"] = [[] for _ in rows]
    return table


def collect_codes(histories, replies, coders, *, codebooks=None, **how):
    books = codebooks or {name: load_codebooks()[name] for name in CODEBOOKS}
    asked = plan_codes(histories, replies, coders, codebooks=books)
    return _answers_or_plan("codes", asked, **how)


def collect_hits(questions, histories, replies, judges, *, responders=None, language="zh", **how):
    asked = plan_hits(
        questions, histories, replies, judges, responders=responders, language=language
    )
    return _answers_or_plan("scores", asked, **how)


def _answers_or_plan(table, questions, *, ledger, plan=False, **how):
    if plan:
        return plan_verdicts(questions, ledger)
    return collect_answers(table, questions, ledger=ledger, **how)


def make_study(**options):
    """Histories, replies and comparisons."""
    replies = make_replies()
    return make_histories(), replies, pair_replies(replies, rng=np.random.default_rng(5), **options)


class StandIn:
    """A ledger and a model in one: `say` gives the text, or the call, for a request."""

    def __init__(self, monkeypatch, say, *, schema=False):
        self.say, self.calls, self.asked, self.noted = say, {}, [], {}
        monkeypatch.setattr("heart_collect.judging.judge.ask_all", self.ask_all)
        monkeypatch.setattr("heart_collect.judging.judge.supports_schema", lambda model: schema)

    def find(self, keys):
        return {key: self.calls[key] for key in keys if key in self.calls}

    def notes(self, names):
        return {name: self.noted[name] for name in names if name in self.noted}

    def note(self, notes):
        self.noted = {**notes, **self.noted}

    def statuses(self, keys):
        return {key: call.status for key, call in self.find(keys).items()}

    def ask_all(self, requests, *, ledger, mode="missing", **limits):
        assert ledger is self
        found = dict(self.calls)
        for request in requests:
            if request.key in found:
                continue
            assert mode != "replay", f"{request.tag} is not recorded"
            self.asked.append(request)
            said = self.say(request)
            call = (
                replace(said, call_id=request.key)
                if isinstance(said, Call)
                else Call(request.key, "ok", said)
            )
            found[request.key] = self.calls[request.key] = call
        return [found[request.key] for request in requests]


def codes_in(request) -> list[str]:
    return re.findall(r"^Reply (\w+):$", request.messages[1]["content"], flags=re.MULTILINE)


def dimensions_in(request) -> list[str]:
    return re.findall(r"^- (\w+): ", request.messages[1]["content"], flags=re.MULTILINE)


def choose(place, margin=3):
    """Answer in JSON for the reply shown first (0) or second (1) on each dimension, or for a
    tie."""

    def say(request):
        winner = "tie" if place == "tie" else codes_in(request)[place]
        line = {"reasoning": "Because.", "winner": winner, "margin": margin}
        return json.dumps(dict.fromkeys(dimensions_in(request), line))

    return say
