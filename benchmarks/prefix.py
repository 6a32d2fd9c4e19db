"""What a server's prefix cache saves: prompts sorted by history beside shuffled ones.

It runs live with the embedded model, one call at a time, on recorded replies of the sample.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Iterator
from dataclasses import replace

from benchmarks import Figure
from heart_collect.calls.engine import ask_all
from heart_collect.calls.local import serve_local
from heart_collect.calls.models import Request
from heart_collect.calls.records import open_ledger
from heart_collect.judging.judge import plan_questions
from heart_collect.judging.recipe import read_recipe

__all__ = ["run"]


def run(quick: bool) -> Iterator[Figure]:
    """Time the same questions in both orders, in alternating pairs.

    Parameters
    ----------
    quick : bool
        Fewer questions and pairs.

    Yields
    ------
    Figure
        One at a time.
    """
    n_histories, n_each, pairs = (2, 8, 1) if quick else (3, 12, 3)
    spans: dict[str, list[float]] = {"sorted": [], "shuffled": []}
    with serve_local() as address:
        requests = [
            replace(one, model=replace(one.model, api_base=address))
            for one in _questions(n_histories, n_each)
        ]
        shuffled = random.Random(1).sample(requests, len(requests))
        _ask(requests[:2])
        for pair in range(pairs):
            for name, asked in (("sorted", requests), ("shuffled", shuffled))[
                :: -1 if pair % 2 else 1
            ]:
                spans[name].append(_ask(asked))
    ratios = [slow / fast for slow, fast in zip(spans["shuffled"], spans["sorted"], strict=True)]
    for name, seconds in spans.items():
        yield Figure(
            f"{len(requests)} verdicts on {n_histories} histories, {name}",
            statistics.median(seconds),
            "s",
        )
    note = f"{min(ratios):.2f} to {max(ratios):.2f} in {pairs} pairs"
    yield Figure(
        "time shuffled over sorted by history", statistics.median(ratios), "times", "", None, note
    )


def _questions(n_histories: int, n_each: int) -> list[Request]:
    """List in sending order the first of the sample's questions on its first histories."""
    recipe = read_recipe("sample")
    histories = recipe.choose_histories().head(n_histories)
    replies = recipe.answer(histories, ledger=recipe.open_ledger(), mode="replay")
    comparisons = recipe.pair(replies)
    comparisons = comparisons[comparisons["protocol"] == "heart"]
    planned = plan_questions(
        histories, replies, comparisons, recipe.judges, dimensions=["overall"], seed=recipe.seed
    )
    by_history = [
        [one for one in planned if one.about["history_id"] == name]
        for name in histories["history_id"]
    ]
    return [question.request(schema=False) for asked in by_history for question in asked[:n_each]]


def _ask(requests: list[Request]) -> float:
    started = time.perf_counter()
    calls = ask_all(requests, ledger=open_ledger("sqlite://"), max_concurrency=1, progress=False)
    seconds = time.perf_counter() - started
    assert {call.status for call in calls} == {"ok"}
    return seconds
