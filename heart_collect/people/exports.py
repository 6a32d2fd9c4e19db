"""Read people's answers: from Potato's files, or from a table."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import pandas as pd

from heart_collect.people.arrivals import same_name
from heart_collect.people.assignment import StudyError
from heart_utils.identities import redact_message
from heart_utils.runs import write_atomically
from heart_utils.settings import JsonObject
from heart_utils.sources.defaults import FileOptions, as_options, as_yaml
from heart_utils.sources.formats import HALF, is_whole_text, read_table
from heart_utils.sources.guess import propose
from heart_utils.sources.heart import MAX_SENTENCES, MAX_WORDS
from heart_utils.sources.load import read_rows
from heart_utils.tables import DataError

__all__ = ["QUESTIONS"]

QUESTIONS = ("preference", "strength", "reason", "dimension", "reply")  #: What Potato's pages ask.
HISTORY, AROUND = "annotation_history.jsonl", "__phase_page__"
"""Potato's file of every answer, and its name for the pages around the study."""
ANSWERS = "instance_id_to_label_to_value"
#: Questions answered in words, which can be wiped; a side or a strength can only be changed.
TEXTS = ("reply", "reason")
LIMITS = f"1 to {MAX_SENTENCES} sentences, no more than {MAX_WORDS} words"  #: As pages say them.
PASTED_SHARE = 0.5  #: A text of which so much was pasted is flagged.
TYPING = """
SELECT user_id, instance_id, schema_name || ':::' || label_name AS field, max(ended_at),
    sum(json_extract(summary, '$.active_ms')) AS active_ms,
    sum(json_extract(summary, '$.pasted_chars')) AS pasted_chars,
    sum(json_extract(summary, '$.external_insert_chars')) AS external_insert_chars,
    json_extract(summary, '$.final_chars') AS final_chars
FROM typing_sessions GROUP BY 1, 2, 3
"""
"""How each text was typed, all sittings together; SQLite takes what is not summed, the last
length, from the latest."""

Answered = dict[str, dict[str, tuple[str, str]]]
"""By page and question, the label that Potato keeps an answer under, and the answer."""
Typed: TypeAlias = dict[str, str | int | float | None]
"""A row of the notes on how a text was typed, of which there is one a field."""


def read_potato(folder: Path) -> pd.DataFrame:
    """Read the answers of a Potato project: one row a consenting person and page shown or answered.

    Without a page shown ``item_id`` is ""; ``swapped``: Potato itself turned the replies.
    """
    states = _load_states(folder)
    if not states:
        raise StudyError(
            f"{folder} holds no answers (looked for answers/*/user_state.json). Has anyone begun?"
        )
    check_people({_position_of(file): str(state["user_id"]) for file, state in states.items()})
    typed = _typing(folder / "project.sqlite")
    pages = []
    for file, state in states.items():
        history, behaviour = _history(file.with_name(HISTORY)), _behaviour(state, typed)
        for item, given in state[ANSWERS].items():
            if len(set(_asked(given))) < len(given):
                raise StudyError(
                    f"Somebody gave two answers to a question of the page {item!r}; a damaged"
                    " export."
                )
        _restore(state, history, behaviour)
        answers = {
            item: {str(label["schema"]): str(value) for label, value in given}
            for item, given in state[ANSWERS].items()
        }
        changed = _changed_later(file.with_name(HISTORY))
        if not _agreed(state, history):
            if answers:
                raise StudyError(
                    f"{_position_of(file)} holds answers of somebody who did not agree to take"
                    " part. Delete them."
                )
            continue
        orders = state.get("instance_id_to_presentation_order") or {}
        for item in dict.fromkeys([*state["instance_id_ordering"], *answers]) or [""]:
            page = {
                "person": str(state["user_id"]),
                "item_id": item,
                "answered": item in answers,
                "changed_later": item in changed,
                "swapped": (orders.get(item) or {}).get("preference") == [1, 0],
            }
            pages.append(page | _times(behaviour.get(item) or {}) | answers.get(item, {}))
    columns = [
        "person",
        "item_id",
        "answered",
        "seconds",
        "typing_ms",
        "pasted_share",
        "changed_later",
        "swapped",
        *QUESTIONS,
    ]
    return pd.DataFrame(pages, columns=columns)


def restore_answers(folder: Path) -> int:
    """Restore from the histories what an older write took from the states."""
    typed = _typing(folder / "project.sqlite")
    restored = 0
    for file, state in _load_states(folder).items():
        restored += _restore(state, _history(file.with_name(HISTORY)), _behaviour(state, typed))
        write_atomically(file, json.dumps(state, indent=2).encode(), private=True)
    return restored


def read_answers(file: Path, reading: FileOptions | None = None) -> pd.DataFrame:
    """Read a table of answers, indexed by place in the file."""
    file_options, faults = reading or FileOptions(), list[str]()
    try:
        as_options(file_options, file.name)
        table = read_table(file)
    except DataError as error:
        raise StudyError(str(error)) from None
    where = [f"line {row + 2} of {file.name}" for row in table.rows.index]
    raw = replace(table, rows=table.rows.set_axis(where, axis=0))
    if raw.rows.empty:
        raise StudyError(f"{file} holds no answer.")
    if halves := [line for line, row in raw.rows.iterrows() if not is_whole_text(row.tolist())]:
        raise StudyError(f"{halves[0]}: {HALF}")
    answers = read_rows("answers", raw, file_options, file.stem, faults)
    if faults:
        options = propose("answers", raw, file_options).options
        hint = f"\nWhat may be meant, as a file for --reading:\n{as_yaml(options)}"
        hint = hint if options != file_options else ""
        raise StudyError(redact_message(f"{file.name}: {' '.join(faults)}{hint}"))
    return answers


def load_items(folder: Path) -> list[JsonObject]:
    # not splitlines: a word may hold another break
    lines = (folder / "items.jsonl").read_text(encoding="utf-8").split("\n")
    return [json.loads(line) for line in lines if line]


@contextmanager
def hold_answers(folder: Path) -> Iterator[None]:
    """Hold a study's lock: two processes would write over each other's answers."""
    from filelock import FileLock, Timeout

    lock = FileLock(folder / ".server.lock", mode=0o600)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise StudyError(
            f"{folder} is served by another process already, and nothing was changed. Stop that"
            " one first, or use it."
        ) from None
    try:
        yield
    finally:
        lock.release()


def check_people(names: dict[str, str]) -> None:
    """Refuse one person under two spellings (capitals, blanks)."""
    first_place_of: dict[str, str] = {}
    for where, name in names.items():
        if not name.strip():
            raise StudyError(f"{where} names nobody.")
        if (other := first_place_of.setdefault(same_name(name), where)) != where:
            raise StudyError(
                f"The same rater appears twice: in {other} and in {where}. Give them one spelling,"
                " or move the one that does not count away."
            )


def _position_of(file: Path) -> str:
    """Name a file without the person after whom its folder is named."""
    answers = file.parent.parent
    if answers.name != "answers":
        return str(file)
    folders = sorted(folder.name for folder in answers.iterdir() if folder.is_dir())
    return (
        f"{answers}, folder {folders.index(file.parent.name) + 1} of {len(folders)} by name,"
        f" {file.name}"
    )


def load_json(file: Path) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise StudyError(
            f"{_position_of(file)} is not whole JSON ({error}). It was probably cut short; export"
            " or copy it again."
        ) from None


def load_about(folder: Path) -> Any:
    """Read what a study was written with."""
    file = folder / "study.json"
    if not file.is_file():
        raise StudyError(
            f"There is no study in {folder}, which has no study.json. Give a folder under"
            " runs/<run>/study; without --resume (RESUME=1) a study is written."
        )
    return load_json(file)


def _load_states(folder: Path) -> dict[Path, JsonObject]:
    states = {}
    for file in sorted((folder / "answers").glob("*/user_state.json")):
        state = load_json(file)
        try:
            given = (state["user_id"], state["instance_id_ordering"])
            state[ANSWERS] = state.get(ANSWERS) or {}
            given += tuple(_asked(answers) for answers in state[ANSWERS].values())
        except (AttributeError, LookupError, TypeError, ValueError):
            raise StudyError(
                f"{_position_of(file)} lacks user_id or instance_id_ordering, or a schema of an"
                " answer: it is no state of Potato 2.12, or was cut short."
            ) from None
        states[file] = state
    return states


def _asked(answers: list[tuple[JsonObject, Any]]) -> list[str]:
    return [str(label["schema"]) for label, _ in answers]


def _behaviour(state: JsonObject, typed: dict[tuple[str, str], dict[str, Typed]]) -> JsonObject:
    """Join what the state records of pages with how texts were typed."""
    behaviour = dict(state.get("instance_id_to_behavioral_data") or {})
    for (person, item), summaries in typed.items():
        if person == str(state["user_id"]):
            behaviour[item] = (behaviour.get(item) or {}) | {"typing_summaries": summaries}
    return behaviour


def _agreed(state: JsonObject, history: Answered) -> bool:
    around = state.get("phase_to_page_to_label_to_value") or {}
    given = (around.get("consent") or {}).get("consent") or []
    consent = {label.get("schema"): value for label, value in given}
    consent |= {question: value for question, (_, value) in history.get(AROUND, {}).items()}
    return consent.get("consent_age") == consent.get("consent_agree") == "yes"


def _history(file: Path) -> Answered:
    last: Answered = {}
    for action in _actions(file):
        word = (str(action["label_name"]), str(action["new_value"]))
        last.setdefault(action["instance_id"], {})[action["schema_name"]] = word
    return last


def _changed_later(file: Path) -> set[str]:
    """List pages whose answer changed after another was answered."""
    answers: dict[tuple[str, str], str] = {}
    latest: dict[str, int] = {}
    changed = set()
    for number, action in enumerate(_actions(file)):
        item, value = action["instance_id"], str(action["new_value"])
        before = answers.get((item, action["schema_name"]))
        if before == value:
            continue  # sent again
        later = [page for page, when in latest.items() if when > latest.get(item, number)]
        if before is not None and set(later) - {AROUND}:
            changed.add(item)
        answers[item, action["schema_name"]] = value
        latest[item] = number
    return changed


def _actions(file: Path) -> list[JsonObject]:
    if not file.is_file():
        return []
    actions = []
    # not splitlines: a word may hold another break
    lines = file.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    for number, line in enumerate(lines, 1):
        try:
            action = json.loads(line)
        except json.JSONDecodeError as error:
            if number == len(lines):
                # the server was stopped in the middle of a line; the state has what came before
                break
            raise StudyError(
                f"{_position_of(file)}, line {number} is not whole JSON ({error}). Copy the file"
                " again."
            ) from None
        if action.get("action_type") in ("add_label", "update_label"):
            actions.append(action)
    return actions


def _typing(file: Path) -> dict[tuple[str, str], dict[str, Typed]]:
    """Sum up typing: person and item -> field -> counts."""
    if not file.is_file():
        return {}
    notes: dict[tuple[str, str], dict[str, Typed]] = {}
    try:
        with closing(sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True)) as database:
            database.row_factory = sqlite3.Row
            tables = database.execute("SELECT name FROM sqlite_master").fetchall()
            if "typing_sessions" not in {row["name"] for row in tables}:
                return {}  # nobody has typed anything yet
            for row in database.execute(TYPING):
                notes.setdefault((row["user_id"], row["instance_id"]), {})[row["field"]] = dict(row)
    except sqlite3.Error as error:
        raise StudyError(
            f"{file} cannot be read ({error}). It was probably cut short; copy it again."
        ) from None
    return notes


def _restore(state: JsonObject, history: Answered, behaviour: JsonObject) -> int:
    """Put a history's last words where the state lacks them; a text wiped at the end stays so."""
    restored = 0
    for item in state["instance_id_ordering"]:
        kept = {label["schema"]: (label, value) for label, value in state[ANSWERS].get(item, [])}
        typed = (behaviour.get(item) or {}).get("typing_summaries") or {}
        for question, (name, value) in history.get(item, {}).items():
            chars = (typed.get(f"{question}:::text_box") or {}).get("final_chars")
            lost = question not in kept and (question not in TEXTS or chars)
            if lost or (question in kept and str(kept[question][1]) != value):
                kept[question] = ({"schema": question, "name": name}, value)
                restored += 1
        if kept:
            state[ANSWERS][item] = [*kept.values()]
    return restored


def _times(behaviour: JsonObject) -> dict[str, float | None]:
    typed = list((behaviour.get("typing_summaries") or {}).values())
    chars = sum(one.get("final_chars") or 0 for one in typed)
    external = sum(
        max(one.get("pasted_chars") or 0, one.get("external_insert_chars") or 0) for one in typed
    )
    return {
        "seconds": (behaviour.get("total_time_ms") or 0) / 1000 or None,
        "typing_ms": float(sum(one.get("active_ms") or 0 for one in typed)) if typed else None,
        "pasted_share": min(1.0, external / chars) if chars else 0.0,
    }
