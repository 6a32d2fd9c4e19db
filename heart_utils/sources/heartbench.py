"""HeartBench's questions: rubric items by ability, and the dialogues they end."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pandas as pd

from heart_utils.runs import find_root
from heart_utils.settings import JsonObject
from heart_utils.sources.catalogue import find_data, find_source
from heart_utils.sources.defaults import complete
from heart_utils.sources.formats import read_lines
from heart_utils.tables import DataError, check_table

__all__: list[str] = []

SPEAKERS = {"A": "seeker", "B": "supporter"}
FIELDS = ("question_id", "rubric", "dialogue")


def load_questions(name_or_path: str | os.PathLike[str] = "heartbench") -> pd.DataFrame:
    """Load rubric items of HeartBench, or of a JSON Lines file in its form, in the judge's order.

    A line has ``question_id``, ``rubric`` (``dimension``, ``score``, ``content``) and ``dialogue``
    (``role`` A or B, ``content``). A veto item has the ability ``"special"`` and may lack points.
    """
    names = pd.read_csv(find_root() / "data" / "heartbench" / "names.csv")
    lookup = {
        kind: dict(zip(rows["zh"], rows["name"], strict=True))
        for kind, rows in names.groupby("kind")
    }
    dimension = dict(zip(names["name"], names["dimension"], strict=True))
    rows = []
    for question in _read(name_or_path):
        for position, entry in enumerate(question["rubric"], start=1):
            ability = lookup["ability"].get(entry["dimension"]) or _snake(entry["dimension"])
            rows.append(
                {
                    "question_id": question["question_id"],
                    "item": f"{question['question_id']}-{position:02d}",
                    "position": position,
                    "ability": ability,
                    "dimension": dimension.get(ability),
                    "points": entry["score"],
                    "content": entry["content"],
                    "difficulty": question.get("difficulty"),
                    "scene": _named(lookup["scene"], question.get("primary_scene")),
                    "subscene": _named(lookup["subscene"], question.get("secondary_scene")),
                    "n_turns": len(question["dialogue"]),
                }
            )
    questions = pd.DataFrame(rows)
    questions["points"] = pd.to_numeric(questions["points"])
    return questions


def load_question_histories(name_or_path: str | os.PathLike[str] = "heartbench") -> pd.DataFrame:
    """Load the questions' dialogues as a table of histories."""
    own = os.fspath(name_or_path) != "heartbench"
    rows = [
        {
            "history_id": question["question_id"],
            "source": Path(name_or_path).stem,
            "turns": [
                {"speaker": SPEAKERS[turn["role"]], "text": turn["content"]}
                for turn in question["dialogue"]
            ],
            "licence": "none stated" if own else find_source("heartbench").licence,
            "flags": ["hard"] if question.get("difficulty") == "hard" else [],
        }
        for question in _read(name_or_path)
    ]
    return check_table("histories", complete("histories", pd.DataFrame(rows)))


def _read(name_or_path: str | os.PathLike[str]) -> list[JsonObject]:
    if os.fspath(name_or_path) == "heartbench":
        file = find_data("heartbench")["question_all.jsonl"]
    else:
        file = Path(name_or_path).expanduser()
    seen: set[str] = set()
    questions = []
    for number, question in read_lines(file):
        fault = _fault(question, seen)
        if fault:
            raise DataError(f"{file.name} line {number}: {fault}.")
        seen.add(question["question_id"])
        questions.append(question)
    return questions


def _fault(question: Any, seen: set[str]) -> str | None:
    if not isinstance(question, dict) or not all(question.get(field) for field in FIELDS):
        return f"expected {', '.join(FIELDS)}, none of them empty"
    if question["question_id"] in seen:
        return f"the question {question['question_id']!r} was there before; expected each once"
    for position, entry in enumerate(question["rubric"], start=1):
        if not isinstance(entry, dict) or not {"dimension", "score", "content"} <= set(entry):
            return f"rubric item {position} lacks dimension, score or content"
        if not isinstance(entry["score"], int | float | None):
            return (
                f"rubric item {position} has the score {entry['score']!r}, expected a number or"
                " null"
            )
        if entry["score"] == 0:
            return (
                f"rubric item {position} has a score of 0, so it can change nothing; give it"
                " points, or drop it"
            )
    if not any((entry["score"] or 0) > 0 for entry in question["rubric"]):
        return (
            "no rubric item has a score above 0, so a reply can only lose there; add what a good"
            " reply does"
        )
    for position, turn in enumerate(question["dialogue"], start=1):
        if (
            not isinstance(turn, dict)
            or turn.get("role") not in SPEAKERS
            or not turn.get("content")
        ):
            return f"turn {position} is not a role (A or B) and a content"
    if question["dialogue"][-1]["role"] != "A":
        return "the last turn is not the user's (role A), so there is nothing to answer"
    return None


def _named(lookup: dict[str, str], value: str | None) -> str | None:
    return (lookup.get(value) or _snake(value)) if value else None


def _snake(name: str) -> str:
    return re.sub(r"\W+", "_", name.strip().lower())
