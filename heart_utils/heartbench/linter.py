"""What a scoring rule, or anything that scores texts, gives to replies that earn nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from heart_utils.heartbench.formula import SPECIAL, RubricError
from heart_utils.settings import read_yaml
from heart_utils.tables import need_columns, needed_columns

__all__ = ["lint_rubric", "lint_rule"]

FEW_QUESTIONS = 30

REPLIES: dict[str, str] = read_yaml(
    Path(__file__).parents[1] / "linter.yaml", dict[str, str], RubricError
)

Rule = Callable[[pd.DataFrame, pd.DataFrame], pd.Series]
Scorer = Callable[[pd.DataFrame, pd.DataFrame], pd.DataFrame]


def lint_rule(
    rule: Rule, questions: pd.DataFrame, *, n_questions: int = 20, rng: np.random.Generator
) -> pd.DataFrame:
    """Test a scoring rule with degenerate hits, and check what every rule should keep.

    Parameters
    ----------
    rule
        Callable of questions and hits that gives a series of scores, 0 to 100, by responder.
    questions
        One row per rubric item.
    n_questions
        In how many of them, drawn, single items are flipped.
    rng
        Draws all.

    Returns
    -------
    pandas.DataFrame
        One row per check: ``check``, ``found``, ``expected``, ``passed``; a rule that fails raises
        nothing.

    Examples
    --------
    >>> questions = pd.DataFrame(
    ...     {"question_id": "q", "item": ["q-1", "q-2"], "ability": "warmth", "points": [1, -1]}
    ... )
    >>> def always_half(questions, hits):
    ...     return pd.Series(50.0, index=hits["responder"].unique())
    >>> lint_rule(always_half, questions, rng=np.random.default_rng(1)).loc[
    ...     0, ["check", "found"]
    ... ].tolist()
    ['no item hit', '50.00']
    """
    scores, floor = rule(questions, degenerate_hits(questions)), "0, the lowest score"
    ends = {"no item hit": (0, f"{floor}: nothing was done"), "penalties only": (0, floor)}
    ends["bonuses only"] = (100, "100, the highest score")
    rows = [
        _check(name, f"{scores[name]:.2f}", words, abs(scores[name] - end) <= 0.5)
        for name, (end, words) in ends.items()
    ]
    everything, words = (
        scores["everything at once"],
        "at most 50, the middle: it triggers every penalty too",
    )
    rows.append(_check("everything at once", f"{everything:.2f}", words, everything <= 50))
    if (questions["ability"] == SPECIAL).any():
        vetoed = scores["bonuses and the veto item"]
        rows.append(_check("bonuses and the veto item", f"{vetoed:.2f}", floor, abs(vetoed) <= 0.5))
    rows += _flips(rule, questions, n_questions, rng)
    return pd.DataFrame([*rows, _reordered(rule, questions, rng), *_weights(questions)])


def lint_rubric(score: Scorer, histories: pd.DataFrame, *, low: float, high: float) -> pd.DataFrame:
    """Send replies that say nothing through anything that scores replies, and see what they earn.

    Parameters
    ----------
    score
        Callable that takes ``histories`` and ``replies`` and gives ``scores``, with any rubric.
    histories
        The table of histories.
    low
        Lower end of the scale.
    high
        Upper end of the scale.

    Returns
    -------
    pandas.DataFrame
        One row per rater, dimension and degenerate reply: ``mean``, ``n`` valid, ``n_failed`` and
        ``passed``: the mean is below the middle of the scale (missing where answers that failed
        could turn it, or nothing valid came back).

    Examples
    --------
    >>> histories = pd.DataFrame(
    ...     {
    ...         "history_id": ["h"],
    ...         "dialogue_id": ["d"],
    ...         "turns": [[{"speaker": "seeker", "text": "Hi."}]],
    ...     }
    ... )
    >>> def flatterer(histories, replies):
    ...     return replies.assign(rater="ruler", dimension="overall", score=100)
    >>> lint_rubric(flatterer, histories, low=0, high=100)["passed"].tolist()
    [False, False, False, False]
    """
    probes = degenerate_replies(histories)
    scores = score(histories, probes)
    need_columns(scores, ["reply_id", "rater", "dimension", "score", "state"], RubricError)
    mine = scores.merge(probes[["reply_id", "responder"]], on="reply_id", suffixes=("_given", ""))
    mine["score"] = pd.to_numeric(mine["score"]).where(mine["state"] == "valid")
    groups = mine.groupby(["rater", "dimension", "responder"])["score"]
    table = pd.DataFrame(
        {"mean": groups.mean(), "n": groups.count(), "n_failed": groups.size() - groups.count()}
    )
    n_all, total = table["n"] + table["n_failed"], groups.sum()
    worst, best = ((total + end * table["n_failed"]) / n_all for end in (high, low))
    middle = (low + high) / 2
    decided = (table["n"] > 0) & ((worst < middle) | (best >= middle))
    table["passed"] = (worst < middle).astype(object).where(decided, None)
    return table.reset_index(names=["rater", "dimension", "reply"])


def degenerate_hits(questions: pd.DataFrame) -> pd.DataFrame:
    """Build patterns of hits that show a rule's floor, ceiling and veto, one a responder."""
    special = (questions["ability"] == SPECIAL).to_numpy()
    bonus = questions["points"].gt(0).to_numpy() & ~special
    penalty = questions["points"].lt(0).to_numpy() & ~special
    patterns = {
        "no item hit": np.zeros_like(bonus),
        "everything at once": ~special,
        "bonuses only": bonus,
    }
    return _hits(
        questions,
        patterns | {"penalties only": penalty, "bonuses and the veto item": bonus | special},
    )


def degenerate_replies(histories: pd.DataFrame) -> pd.DataFrame:
    """Write replies that deserve no points: empty, an echo, one line for all, all at once."""
    last = histories["turns"].map(
        lambda turns: next((t["text"] for t in reversed(turns) if t["speaker"] == "seeker"), "")
    )
    texts: dict[str, pd.Series | str] = {"echo": last, "empty": "", **REPLIES}
    replies = pd.concat(
        [
            histories[["history_id"]].assign(responder=name, text=text)
            for name, text in texts.items()
        ]
    )
    replies["reply_id"] = replies["history_id"] + ":lint-" + replies["responder"]
    replies["flags"] = [["degenerate"] for _ in range(len(replies))]
    return (
        replies.assign(state="valid", simulated=False)
        .reindex(columns=needed_columns("replies"))
        .reset_index(drop=True)
    )


def _hits(questions: pd.DataFrame, patterns: dict[str, np.ndarray]) -> pd.DataFrame:
    items = np.tile(questions["item"].to_numpy(), len(patterns))
    hits = pd.DataFrame(
        {"responder": np.repeat(list(patterns), len(questions)), "rater": "linter", "item": items}
    )
    return hits.assign(score=np.concatenate(list(patterns.values())).astype(float), state="valid")


def _check(check: str, found: str, expected: str, passed: bool) -> dict[str, object]:
    return {"check": check, "found": found, "expected": expected, "passed": bool(passed)}


def _flips(
    rule: Rule, questions: pd.DataFrame, n_questions: int, rng: np.random.Generator
) -> Iterator[dict[str, object]]:
    """Flip each item of some questions alone, and check that the score moves as it should.

    A bonus may not lower a score, a penalty not raise it, and an item not be idle.
    """
    ids = questions["question_id"].unique()
    chosen = rng.choice(ids, size=min(n_questions, len(ids)), replace=False)
    wrong, idle, tried = list[str](), list[str](), 0
    for question in chosen:
        one = questions[questions["question_id"] == question].reset_index(drop=True)
        special = (one["ability"] == SPECIAL).to_numpy()
        starts = {
            "best": one["points"].gt(0).to_numpy() & ~special,
            "random": (rng.random(len(one)) < 0.5) & ~special,
        }
        places = range(len(one))
        patterns = {
            (name, i): start ^ (np.arange(len(one)) == i)
            for name, start in starts.items()
            for i in [-1, *places]
        }
        scores = rule(
            one, _hits(one, {f"{name} {i}": pattern for (name, i), pattern in patterns.items()})
        )
        moved = np.zeros(len(one), dtype=bool)
        for name, start in starts.items():
            change = np.array([scores[f"{name} {i}"] - scores[f"{name} -1"] for i in places])
            helps = np.where(one["points"].gt(0) & ~special, 1, -1) * np.where(start, -1, 1)
            wrong += one["item"][~(change * helps >= -1e-7)].tolist()  # no score is wrong, too
            moved |= np.abs(change) > 1e-7
        idle += one["item"][~moved].tolist()
        tried += len(one)
    checks = {
        "more good never costs, more bad never pays": sorted(set(wrong)),
        "every item can change the score": idle,
    }
    for check, items in checks.items():
        some = f" (such as {', '.join(items[:3])})" if items else ""
        yield _check(check, f"{len(items)} of {tried} items fail{some}", "0", not items)


def _reordered(rule: Rule, questions: pd.DataFrame, rng: np.random.Generator) -> dict[str, object]:
    """Shuffle rows and rename abilities: a score may hang on neither."""
    patterns = {f"random {i}": rng.random(len(questions)) < 0.5 for i in range(3)}
    hits = _hits(
        questions,
        {
            name: hit & (questions["ability"] != SPECIAL).to_numpy()
            for name, hit in patterns.items()
        },
    )
    names = questions["ability"].unique()
    renamed = {
        name: SPECIAL if name == SPECIAL else f"z{i}"
        for i, name in enumerate(rng.permutation(names))
    }
    shuffled = questions.assign(ability=questions["ability"].map(renamed)).iloc[
        rng.permutation(len(questions))
    ]
    before, after = rule(questions, hits), rule(shuffled, hits.iloc[rng.permutation(len(hits))])
    largest = float((before - after.reindex(before.index)).abs().fillna(np.inf).max())
    check = "order of rows and names of abilities do not matter"
    return _check(check, f"moves by {largest:.2g}", "0", largest <= 1e-7)


def _weights(questions: pd.DataFrame) -> Iterator[dict[str, object]]:
    scored = questions[questions["ability"] != SPECIAL]
    cells = scored.groupby(["question_id", "ability"])["points"].max()
    only = int((cells <= 0).sum())
    yield _check(
        "every ability of a question can be earned",
        f"{only} of {len(cells)} have penalties only",
        "0",
        only == 0,
    )
    per_ability = scored.groupby("ability")["question_id"].nunique()
    few = per_ability[per_ability <= FEW_QUESTIONS]
    found = f"{len(few)} of {len(per_ability)} do not" + (
        f" (down to {few.min()})" if len(few) else ""
    )
    yield _check(
        f"every ability rests on more than {FEW_QUESTIONS} questions", found, "0", few.empty
    )
    if len(questions) != len(scored):
        veto = questions.loc[questions["ability"] == SPECIAL, "points"]
        positive = int((veto > 0).sum())
        check = "veto items have points, as the released code asks"
        yield _check(
            check, f"{positive} of {len(veto)} above 0", f"{len(veto)}", positive == len(veto)
        )
