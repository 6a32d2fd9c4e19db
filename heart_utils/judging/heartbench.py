"""Collect a HeartBench run from a terminal: replies to questions, then hits item by item, into the run's tables.

``make collect RUN=heartbench``. HeartBench's texts stay in ``runs/``; nothing of them is shown or shipped.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from heart_utils.calls.models import Model, read_models
from heart_utils.calls.prices import BudgetError, check_prices, is_paid
from heart_utils.judging.respond import describe_responders
from heart_utils.judging.rubric_score import collect_hits, collect_rubric_replies, plan_hits
from heart_utils.runs import find_root, open_run, strictest_licence
from heart_utils.sources.heartbench import load_question_histories, load_questions

__all__ = ["HeartBenchError", "main"]

SETTINGS = {
    "questions": (str,),
    "n_questions": (int,),
    "language": (str,),
    "responders": (list,),
    "judges": (list,),
    "budget_usd": (int, float),
}
MAX_FREE_CALLS = 0


class HeartBenchError(ValueError):
    """A run's settings do not say what to collect from HeartBench."""


@dataclass(frozen=True)
class _Settings:
    """What the block ``collect:`` of a run says."""

    responders: tuple[Model, ...]
    judges: tuple[Model, ...]
    questions: str = "heartbench"
    n_questions: int | None = None
    language: str = "zh"
    budget_usd: float | None = None


def main(arguments: Sequence[str] | None = None) -> int:
    """Collect a run.

    Parameters
    ----------
    arguments : sequence of str, optional
        Those of the command line, if not given.

    Returns
    -------
    int
        0 if all is recorded; 1 after an error; 2 if it was not allowed to spend; 3 if calls failed; 130 after Ctrl-C.

    Examples
    --------
    >>> main(["no-such-run"])  # what went wrong goes to the standard error
    1
    """
    parser = argparse.ArgumentParser(prog="python -m heart_utils.collect.heartbench", description="Collect a HeartBench run.")
    parser.add_argument("run", help="a run; its settings stand in params/RUN.yaml under collect:")
    parser.add_argument("--dry-run", action="store_true", help="say what it would take, and ask nothing")
    parser.add_argument("--yes", action="store_true", help="make paid calls; without this, only models that cost nothing")
    options = parser.parse_args(arguments)
    try:
        return collect_heartbench(options.run, dry_run=options.dry_run, paid=options.yes)
    except KeyboardInterrupt:
        print("\nStopped. What was answered is recorded; the same command goes on where this ended.", file=sys.stderr)
        return 130
    except BudgetError as error:
        advice = (
            "" if options.yes else f" Here that is `make collect RUN={options.run} ARGS=--yes`; ARGS=--dry-run says the price."
        )
        print(f"collect: {error}{advice}", file=sys.stderr)
        return 2
    except ValueError as error:
        print(f"collect: {error}", file=sys.stderr)
        return 1


def collect_heartbench(run: str, *, dry_run: bool = False, paid: bool = False) -> int:
    """Ask for what the run's ledger lacks, and write histories, responders, replies and scores."""
    from heart_utils.calls.ledger import open_ledger

    settings = _read_settings(run)
    questions = load_questions(settings.questions)
    chosen = choose_questions(questions, settings.n_questions)
    histories = load_question_histories(settings.questions)
    histories = histories[histories["history_id"].isin(set(chosen["question_id"]))]
    target = open_run(run)
    ledger = open_ledger(target)
    asking: dict[str, Any] = {"ledger": ledger, "language": settings.language, "budget_usd": settings.budget_usd}
    asking["max_paid_calls"] = None if paid else MAX_FREE_CALLS
    print(f"{run}: {len(histories)} questions with {len(chosen)} rubric items; research and model evaluation only.")
    if dry_run:
        planned = collect_rubric_replies(histories, settings.responders, **{**asking, "mode": "dry"})
        print(f"{int((planned['state'] != 'valid').sum())} of {len(planned)} replies are not recorded yet.")
        stand_ins = planned.assign(text=planned["text"].fillna("x" * 400), state="valid")
        print(plan_hits(chosen, histories, stand_ins, settings.judges, ledger=ledger, language=settings.language).to_string())
        return 0
    models = [*settings.responders, *settings.judges]
    if paid and settings.budget_usd is None and any(is_paid(model) for model in models):
        raise BudgetError("Calls cost money and no budget is set. Nothing was asked: set `budget_usd:` in the run's settings.")
    check_prices(models, settings.budget_usd)
    replies = collect_rubric_replies(histories, settings.responders, **asking)
    responders = describe_responders(settings.responders)
    scores = collect_hits(chosen, histories, replies, settings.judges, responders=responders, **asking)
    for name, table in (("histories", histories), ("responders", responders), ("replies", replies), ("scores", scores)):
        target.write(name, table)
    target.record(tables=_notes(run, histories), recipe={run: yaml.safe_load(_file(run).read_text("utf-8"))})
    print(scores.groupby(["responder", "rater", "state"]).size().to_string())
    failed = sum(int((table["state"] == "error").sum()) for table in (replies, scores))
    if failed:
        print(f"collect: {failed} rows are errors; the same command asks for them again.", file=sys.stderr)
    return 3 if failed else 0


def choose_questions(questions: pd.DataFrame, n: int | None) -> pd.DataFrame:
    """Choose the questions with the shortest texts: a small model's context is short."""
    if n is None:
        return questions
    if not 0 < n <= questions["question_id"].nunique():
        raise HeartBenchError(f"n_questions: {n} were asked for, and there are {questions['question_id'].nunique()}.")
    size = questions.assign(size=questions["content"].str.len()).groupby("question_id").agg({"n_turns": "first", "size": "sum"})
    kept = size.sort_values(["n_turns", "size"]).index[:n]
    return questions[questions["question_id"].isin(kept)]


def _notes(run: str, histories: pd.DataFrame) -> dict[str, dict[str, str]]:
    """Say for the manifest what each table rests on; what was written or judged about a text is kept as close as the text."""
    source, licence = histories["source"].iloc[0], strictest_licence(list(histories["licence"].unique()))
    told = {
        "histories": (f"the questions of {source}", licence, "published"),
        "responders": ("who answers in this run", "CC0-1.0", "drafted"),
        "replies": (f"{source}, answered", licence, "live"),
        "scores": (f"judges of the run {run}, item by item", licence, "live"),
    }
    return {name: dict(zip(("source", "licence", "origin"), words, strict=True)) for name, words in told.items()}


def _file(run: str) -> Path:
    return find_root() / "params" / f"{run}.yaml"


def _read_settings(run: str) -> _Settings:
    """Read the block ``collect:`` strictly."""
    file = _file(run)
    if not file.is_file():
        raise HeartBenchError(f"{file} is not there; a run's settings stand in params/RUN.yaml.")
    try:
        given = yaml.safe_load(file.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise HeartBenchError(f"{file} is not YAML: {' '.join(str(error).split())}") from None
    block = given.get("collect") if isinstance(given, dict) else None
    if not isinstance(block, dict) or "questions" not in block:
        raise HeartBenchError(f"{file}: expected a block `collect:` with `questions: heartbench`, responders and judges.")
    unknown = sorted(set(block) - set(SETTINGS))
    wrong = [name for name, value in block.items() if name in SETTINGS and not isinstance(value, SETTINGS[name])]
    if unknown or wrong:
        raise HeartBenchError(f"{file}, collect: {', '.join(unknown + wrong)}; known settings are {', '.join(SETTINGS)}.")
    models = {role: tuple(read_models(block.get(role) or [])) for role in ("responders", "judges")}
    absent = [role for role, found in models.items() if not found]
    if absent:
        raise HeartBenchError(f"{file}, collect: no {' and no '.join(absent)}; name at least one model each.")
    return _Settings(**{**block, **models})


if __name__ == "__main__":
    sys.exit(main())
