"""A judge, requests to it, and ledgers as another process sees them."""

from heart_collect.calls.ledger import Ledger, connect
from heart_collect.calls.models import Call, Model, Request

CANARY = "sk-canary-0123456789abcdef"
JUDGE = Model(
    "judge", "openai/test", api_base="http://127.0.0.1:9/v1", options={"temperature": 0.7}
)


def ask(word, of=JUDGE, **settings):
    return Request(of, ({"role": "user", "content": word},), **settings)


def fill(ledger, words, **answer):
    """Record an answer to each of these words."""
    requests = [ask(word) for word in words]
    won = ledger.claim(requests, [0.01] * len(requests), since=ledger.clock()).won
    ledger.record([Call(r.key, **{"status": "ok", "text": f"said {w}", "cost_usd": 0.001, **answer})
                   for r, w in zip(requests, words, strict=True) if r.key in won])  # fmt: skip
    return requests


def another_process(ledger):
    """A ledger on the same database, as a process of its own sees it."""
    return Ledger(connect(str(ledger.engine.url)))
