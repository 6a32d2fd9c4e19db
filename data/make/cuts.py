"""From official files of studies of conversations to the columns that are kept: no text, no id.

Each set's cut names what it keeps. ``cut_official`` makes a table of the official files;
``plain_form`` writes it in one form, which a mirror's table has too: the columns that are used,
ids numbered by first appearance, and rows in an order of their own where the place of a row says
nothing.
"""

from __future__ import annotations

import csv
import io
import json
import re
import statistics
import tarfile
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any

import pandas as pd

__all__: list[str] = []

Parts = Mapping[str, bytes]  # address below the set's -> content
Row = dict[str, Any]


def cut_official(name: str, parts: Parts) -> pd.DataFrame:
    """Cut official files to the columns that are kept.

    Parameters
    ----------
    name : str
        The data set.
    parts : mapping of str to bytes
        Address of each official file, and what it holds.

    Returns
    -------
    pandas.DataFrame
        The kept columns, as words.

    Raises
    ------
    KeyError, ValueError
        If a file has another layout than the one known.
    """
    return pd.DataFrame(list(_CUTS[name](parts)), dtype=object).map(_word)


def plain_form(reading: Mapping[str, Any], table: pd.DataFrame) -> bytes:
    """Write a cut table in one form: used columns, numbered ids, rows in order."""
    kept = table[list(reading["used"])].astype(str)
    ids = list(reading.get("ids", ()))
    if reading.get("unordered"):
        kept = kept.sort_values([name for name in reading["used"] if name not in ids])
    for name in ids:
        kept = kept.assign(**{name: pd.factorize(kept[name])[0].astype(str)})
    return kept.to_csv(index=False, lineterminator="\n").encode()


def read_words(content: bytes) -> pd.DataFrame:
    """Read a CSV file as words, an empty cell as an empty word."""
    return pd.read_csv(io.BytesIO(content), dtype=str, keep_default_na=False)


def _word(value: object) -> str:
    return "" if value is None else str(value)


def _jsonl(content: bytes) -> list[Row]:
    return [json.loads(line) for line in content.decode("utf-8").split("\n") if line.strip()]


def _csv(content: bytes) -> list[list[str]]:
    text = io.StringIO(content.decode("utf-8-sig"), newline="")
    return [row for row in csv.reader(text) if row]


def _named_columns(parts: Parts) -> list[Row]:
    """Read a CSV file: which columns are kept is said by those that are used."""
    [content] = parts.values()
    heads, *rows = _csv(content)
    return [dict(zip(heads, row, strict=True)) for row in rows]


def _relationship_seeking(parts: Parts) -> list[Row]:
    [content] = parts.values()
    return _jsonl(content)


def _mindeval(parts: Parts) -> Iterator[Row]:
    """List each expert's score on each criterion; experts and profiles are numbered."""
    [content] = parts.values()
    rows = _jsonl(content)
    kept = re.compile(r"criterion_?(\d+)\.responses")
    criteria = {key: match[1] for key in rows[0] if (match := kept.fullmatch(key))}
    users = sorted({user for row in rows for key in criteria for user in row[f"{key}.users"]})
    people = sorted({row["member_attributes"]["name"] for row in rows})
    for number, row in enumerate(rows):
        for key, criterion in criteria.items():
            for score, user in zip(row[key], row[f"{key}.users"], strict=True):
                yield {
                    "conversation": f"m{number:02d}",
                    "model": row["model"].rpartition("/")[2],
                    "profile": f"p{people.index(row['member_attributes']['name']):02d}",
                    "criterion": f"criterion_{criterion}",
                    "expert": f"e{users.index(user) + 1}",
                    "score": score,
                }


def _ieval(parts: Parts) -> Iterator[Row]:
    [content] = parts.values()
    for worker, row in enumerate(json.loads(content)):
        for valence in ("positive", "negative"):
            for bot, scores in row[valence].items():
                if isinstance(scores, dict):
                    numbers = {key: score for key, score in scores.items() if key != "chat_log"}
                    yield {"worker": worker, "valence": valence, "bot": bot, **numbers}


def _sage(parts: Parts) -> Iterator[Row]:
    """List final emotions and paths; a scenario is numbered by its place in the first file."""
    numbers: dict[str, str] = {}
    named = re.compile(r"(?:.*/)?(.+)_based_simulator/(.+)_result\.jsonl")
    for address, content in parts.items():
        match = named.fullmatch(address)
        if match is None:
            raise ValueError(f"{address} is not <simulator>_based_simulator/<model>_result.jsonl")
        for row in _jsonl(content):
            seeker = [turn["emotion-point"] for turn in row["history"] if turn["role"] == "user"]
            yield {
                "simulator": match[1],
                "model": match[2],
                "scenario": numbers.setdefault(row["id"], f"s{len(numbers):03d}"),
                "final_emotion": row["emo_point"],
                "path": " ".join(map(str, seeker)),
            }


#: Beginning or part of an answer -> its number, on the three scales of yes and no; "No" is 0.
_EMPATHY = {"er": "feelings are not explicitly", "ip": "a shallow", "ex": "is generic"}
_SCALES = ("er", "ip", "ex", "ct", "st", "pa")
_NOT_APPLICABLE = "6"


def _can_ai_relate(parts: Parts) -> Iterator[Row]:
    """List two clinicians' answers as numbers.

    Their addresses and places stand in columns that are not read.
    """
    answers, items = (_csv(parts[address]) for address in sorted(parts))
    question_columns = [
        column for column, head in enumerate(answers[0]) if re.fullmatch(r"Q\d+", head)
    ]
    place_of = {head: column for column, head in enumerate(items[0])}
    for expert, row in enumerate(answers[3:5], 1):
        for number, column in enumerate(question_columns):
            item, scale = number // len(_SCALES), _SCALES[number % len(_SCALES)]
            kind = " ".join(items[1 + item][place_of["Type"]].split())
            author = "human" if kind == "Human" else "gpt4" if kind == "AI" else "gpt4_short"
            score = _clinician(scale, row[column])
            yield {
                "expert": f"expert{expert}",
                "item": item,
                "scale": scale,
                "score": score,
                "author": author,
            }


def _clinician(scale: str, answer: str) -> str:
    if scale in _EMPATHY:
        return "0" if answer == "No" else "1" if _EMPATHY[scale] in answer else "2"
    number = answer.partition(":")[0]
    return "" if number == _NOT_APPLICABLE else number


def _kokorochat(parts: Parts) -> Iterator[Row]:
    """Time the turns of each session in the archive; what is said is counted, not kept."""
    [content] = parts.values()
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:*") as archive:
        for member in archive:
            if re.fullmatch(r".*kokorochat_dialogues/\d+\.json", member.name):
                file = archive.extractfile(member)
                assert file is not None  # the name is that of a file
                yield _session(json.loads(file.read()))


def _session(session: Row) -> Row:
    dialogue, review = session["dialogue"], session["review_by_client_en"]
    times = [datetime.fromisoformat(turn["time"]) for turn in dialogue]
    waits: dict[str, list[float]] = {"counselor": [], "client": []}
    for number in range(1, len(dialogue)):
        if dialogue[number]["role"] != dialogue[number - 1]["role"]:
            wait = (times[number] - times[number - 1]).total_seconds()
            waits[dialogue[number]["role"]].append(wait)
    own = [turn["utterance"] for turn in dialogue if turn["role"] == "counselor"]
    return {
        "n": len(dialogue),
        "nc": len(own),
        "lat_med": statistics.median(waits["counselor"]),
        "clat_med": statistics.median(waits["client"]),
        "chars_c": sum(map(len, own)),
        "counselor_id": review["counselor_id"],
        **{
            name: review[name]
            for name in (
                "client_id",
                "score",
                "felt_heard_and_understood",
                "conversation_had_good_rhythm",
            )
        },
    }


def _duo(parts: Parts) -> Iterator[Row]:
    """List the scores of each dialogue in the archive by who gave them; no turn is kept."""
    [content] = parts.values()
    named = re.compile(r".*/ed/(en|ja)/\d+\.json")
    people: dict[str, dict[str, str]] = {"en": {}, "ja": {}}  # numbered in each language
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:*") as archive:
        for member in sorted(archive.getmembers(), key=lambda one: one.name):
            if (match := named.fullmatch(member.name)) is None:
                continue
            file = archive.extractfile(member)
            assert file is not None  # the name is that of a file
            talk = json.loads(file.read())
            [participant] = {turn["user_id"] for turn in talk["dialogue"] if "user_id" in turn}
            known = people[match[1]]
            row = {"language": match[1]}
            row["participant"] = known.setdefault(participant, f"p{len(known):02d}")
            onlookers = talk.get("objective_evaluation") or {}
            for scale in ("preference", "consistency", "stylistic_similarity", "empathy"):
                row[f"seeker_{scale}"] = talk["subjective_evaluation"][scale]
                scores = onlookers.get(f"{scale}_scores") or [None] * 3
                row |= {f"onlooker{n}_{scale}": score for n, score in enumerate(scores, 1)}
            yield row


_CUTS: dict[str, Callable[[Parts], Any]] = {
    "can_ai_relate": _can_ai_relate,
    "duo": _duo,
    "ieval": _ieval,
    "kokorochat": _kokorochat,
    "mibot": _named_columns,
    "mindeval": _mindeval,
    "reflections": _named_columns,
    "relationship_seeking": _relationship_seeking,
    "sage": _sage,
}
