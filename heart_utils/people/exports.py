"""What people answered, as the tools that asked them export it: Potato's folder, Label Studio's JSON, a plain CSV."""

from __future__ import annotations

import csv
import itertools
import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from heart_utils.runs import write_atomically

__all__ = ["ExportError", "PotatoAnswers"]

COLUMNS = ["where", "person", "left", "right", "choice", "margin", "reason", "dimension", "seconds"]
CHOICES = ("left", "right", "tie")
NEEDED = ("rater", "left", "right", "choice")
LABEL_STUDIO = {"rater": "completed_by", "left": "left_reply", "right": "right_reply"}
"""What Label Studio's export calls what every row needs."""
HISTORY, AROUND = "annotation_history.jsonl", "__phase_page__"
"""Potato's file of every answer, and its name for the pages around the study."""
TEXTS = ("reply", "reason")  #: Questions answered in words, which can be wiped; a side or a strength can only be changed.

Answered = dict[str, dict[str, tuple[str, str]]]
"""By page and question, the label that Potato keeps an answer under, and the answer."""


class ExportError(ValueError):
    """An export cannot be read."""


@dataclass(frozen=True, eq=False)
class PotatoAnswers:
    """What is in the answers of a Potato project."""

    #: One row per person, item and question: ``person``, ``item_id``, ``question``, ``value``.
    answers: pd.DataFrame = field(repr=False)
    #: One row per person and item answered: ``person``, ``item_id``, ``seconds``, ``typing_ms``, ``pasted_share`` (of the
    #: text's characters, pasted or put in without a key), ``swapped`` (Potato itself showed the replies the other way round).
    pages: pd.DataFrame = field(repr=False)
    people: pd.DataFrame  #: One row per person: ``person``, ``n_shown``, ``completed`` (answered every page).


def read_potato(folder: Path) -> PotatoAnswers:
    """Read the answers of a Potato project."""
    states = _load_states(folder)
    if not states:
        raise ExportError(f"{folder} holds no answers (looked for answers/*/user_state.json). Has anyone begun?")
    check_people({str(file): str(state["user_id"]) for file, state in states.items()})
    typed = _typing(folder / "project.sqlite")
    answers, pages, people = [], [], []
    for file, state in states.items():
        person = str(state["user_id"])
        history = _history(file.with_name(HISTORY))
        behaviour = _behaviour(state, typed)
        labels = _labels(state, history, behaviour)
        if not _agreed(state, history):
            if labels:
                raise ExportError(f"{file} holds answers of somebody who did not agree to take part. Delete them.")
            continue
        orders = state.get("instance_id_to_presentation_order") or {}
        for item, given in labels.items():
            answers += [(person, item, question, value) for question, value in given]
            pages.append({"person": person, "item_id": item, **_page(behaviour.get(item) or {}, orders.get(item) or {})})
        done = set(labels) >= set(state["instance_id_ordering"])  # Potato saves the phase reached only at the next answer
        people.append({"person": person, "n_shown": len(state["instance_id_ordering"]), "completed": done})
    return PotatoAnswers(
        pd.DataFrame(answers, columns=["person", "item_id", "question", "value"]),
        pd.DataFrame(pages, columns=["person", "item_id", "seconds", "typing_ms", "pasted_share", "swapped"]),
        pd.DataFrame(people, columns=["person", "n_shown", "completed"]),
    )


def restore_answers(folder: Path) -> int:
    """Put into a Potato project's states what its histories have and they lack, before it is started again.

    Of two writes of a state at once the older may stay (see ``read_potato``). If the server stops then, the person
    who comes back finds the page empty that they had filled, and would have to answer once more.
    """
    typed = _typing(folder / "project.sqlite")
    restored = 0
    for file, state in _load_states(folder).items():
        kept = state.setdefault("instance_id_to_label_to_value", {})
        words = list(_last_words(state, _history(file.with_name(HISTORY)), _behaviour(state, typed)))
        for item, question, label, value in words:
            given = kept.get(item, [])
            if value not in [str(said) for about, said in given if about["schema"] == question]:
                others = [one for one in given if one[0]["schema"] != question]
                kept[item] = [*others, [{"schema": question, "name": label}, value]]
                restored += 1
        write_atomically(file, json.dumps(state, indent=2).encode(), private=True)
    return restored


def read_label_studio(file: Path) -> pd.DataFrame:
    """Read a JSON export of Label Studio's pairwise template."""
    tasks = _load_json(file)
    if not isinstance(tasks, list):
        raise ExportError(f"{file} holds a {type(tasks).__name__}, expected a list of tasks: export in the format JSON.")
    rows = [row for number, task in enumerate(tasks, 1) for row in _task(task, f"task {task.get('id', number)} of {file.name}")]
    if not rows:
        raise ExportError(f"{file} holds {len(tasks)} tasks and no annotation.")
    return pd.DataFrame(rows, columns=COLUMNS)


def read_csv(file: Path) -> pd.DataFrame:
    r"""Read verdicts from a plain CSV file."""
    try:
        with file.open(encoding="utf-8-sig", newline="") as handle:
            lines = csv.reader(handle, strict=True)
            header = [name.strip() for name in next(lines, [])]
            _check_header(header, file)
            rows = [_line(header, cells, f"line {lines.line_num} of {file.name}") for cells in lines if any(cells)]
    except csv.Error as error:
        raise ExportError(f"{file}, line {lines.line_num}: {error}. It may have been cut short inside a quoted text.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ExportError(f"{file} cannot be read as text in UTF-8 ({error}).") from None
    if not rows:
        raise ExportError(f"{file} has no row under its header.")
    return pd.DataFrame(rows, columns=COLUMNS)


def _load_json(file: Path) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ExportError(f"{file} is not whole JSON ({error}). It was probably cut short; export or copy it again.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ExportError(f"{file} cannot be read ({error}).") from None


def check_people(names: dict[str, str]) -> None:
    """Refuse one person under two spellings: capitals and blanks tell nobody apart."""
    seen: dict[str, str] = {}
    for where, name in names.items():
        if not name.strip():
            raise ExportError(f"{where} names nobody.")
        if (other := seen.setdefault(name.strip().casefold(), where)) != where:
            said = f"The same rater appears twice: in {other} and in {where}"
            raise ExportError(f"{said}. Give them one spelling, or move the one that does not count away.")


def _load_states(folder: Path) -> dict[Path, dict[str, Any]]:
    """Read each person's state, by its file."""
    states = {}
    for file in sorted((folder / "answers").glob("*/user_state.json")):
        state = _load_json(file)
        if not isinstance(state, dict) or "user_id" not in state or "instance_id_ordering" not in state:
            raise ExportError(f"{file} lacks user_id or instance_id_ordering: it is no state of Potato 2.12, or was cut short.")
        for label, _ in itertools.chain.from_iterable((state.get("instance_id_to_label_to_value") or {}).values()):
            if not isinstance(label, dict) or "schema" not in label:
                raise ExportError(f"{file}: an answer is stored as {label!r}, expected a schema and a name, as by Potato 2.12.")
        states[file] = state
    return states


def _behaviour(state: dict[str, Any], typed: dict[str, dict[str, dict[str, dict[str, int]]]]) -> dict[str, Any]:
    """Give what the state says of each page, with the database's notes on how its texts were typed."""
    behaviour = dict(state.get("instance_id_to_behavioral_data") or {})
    for item, summaries in typed.get(str(state["user_id"]), {}).items():
        behaviour[item] = (behaviour.get(item) or {}) | {"typing_summaries": summaries}
    return behaviour


def _agreed(state: dict[str, Any], history: Answered) -> bool:
    """Tell whether somebody said yes to both questions of the first page."""
    given = ((state.get("phase_to_page_to_label_to_value") or {}).get("consent") or {}).get("consent") or []
    said = {label.get("schema"): value for label, value in given}
    said |= {question: value for question, (_, value) in history.get(AROUND, {}).items()}
    return said.get("consent_age") == said.get("consent_agree") == "yes"


def _history(file: Path) -> Answered:
    """Give the last answer to each question of each page, as appended one by one."""
    if not file.is_file():
        return {}
    last: Answered = {}
    lines = file.read_text(encoding="utf-8").removesuffix("\n").split("\n")  # not splitlines: a word may hold another break
    for number, line in enumerate(lines, 1):
        try:
            action = json.loads(line)
        except json.JSONDecodeError as error:
            if number == len(lines):
                break  # the server was stopped in the middle of a line; the state has what came before
            raise ExportError(f"{file}, line {number} is not whole JSON ({error}). Copy the file again.") from None
        if action.get("action_type") in ("add_label", "update_label"):
            word = (str(action["label_name"]), str(action["new_value"]))
            last.setdefault(action["instance_id"], {})[action["schema_name"]] = word
    return last


def _typing(file: Path) -> dict[str, dict[str, dict[str, dict[str, int]]]]:
    """Sum up the notes on how each text was typed: person -> item -> field -> counts, the last length counting."""
    if not file.is_file():
        return {}
    query = "SELECT user_id, instance_id, schema_name, label_name, summary FROM typing_sessions ORDER BY ended_at"
    try:
        with closing(sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True)) as database:
            rows = database.execute(query).fetchall()
    except sqlite3.Error as error:
        raise ExportError(f"{file} cannot be read ({error}). It was probably cut short; copy it again.") from None
    notes: dict[str, dict[str, dict[str, dict[str, int]]]] = {}
    for person, item, question, label, summary in rows:
        counts = json.loads(summary)
        field_notes = notes.setdefault(person, {}).setdefault(item, {}).setdefault(f"{question}:::{label}", {})
        for name in ("active_ms", "pasted_chars", "external_insert_chars"):
            field_notes[name] = field_notes.get(name, 0) + int(counts.get(name) or 0)
        field_notes["final_chars"] = int(counts.get("final_chars") or 0)
    return notes


def _labels(state: dict[str, Any], history: Answered, behaviour: dict[str, Any]) -> dict[str, list[tuple[str, str]]]:
    """Lay the history's last word over the state."""
    kept = state.get("instance_id_to_label_to_value") or {}
    labels = {item: [(str(label["schema"]), str(value)) for label, value in given] for item, given in kept.items()}
    for item, question, _, value in _last_words(state, history, behaviour):
        labels[item] = [one for one in labels.get(item, []) if one[0] != question] + [(question, value)]
    return labels


def _last_words(state: dict[str, Any], history: Answered, behaviour: dict[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    """Give item, question, label and value of each last word in the history; a text wiped at the end stays wiped."""
    kept = state.get("instance_id_to_label_to_value") or {}
    for item in state["instance_id_ordering"]:
        stood = {label["schema"] for label, _ in kept.get(item, [])}
        typed = (behaviour.get(item) or {}).get("typing_summaries") or {}
        for question, (label, value) in history.get(item, {}).items():
            chars = (typed.get(f"{question}:::text_box") or {}).get("final_chars")
            if question not in TEXTS or question in stood or chars:
                yield item, question, label, value


def _page(behaviour: dict[str, Any], orders: dict[str, Any]) -> dict[str, Any]:
    typed = [one for one in (behaviour.get("typing_summaries") or {}).values() if isinstance(one, dict)]
    chars = sum(one.get("final_chars") or 0 for one in typed)
    external = sum(max(one.get("pasted_chars") or 0, one.get("external_insert_chars") or 0) for one in typed)
    return {
        "seconds": (behaviour.get("total_time_ms") or 0) / 1000 or None,
        "typing_ms": float(sum(one.get("active_ms") or 0 for one in typed)) if typed else None,
        "pasted_share": min(1.0, external / chars) if chars else 0.0,
        "swapped": orders.get("preference") == [1, 0],
    }


def _task(task: dict[str, Any], where: str) -> Iterator[dict[str, Any]]:
    data = task.get("data") or {}
    for annotation in task.get("annotations") or []:
        who = annotation.get("completed_by")
        said = {name: data.get(theirs) for name, theirs in LABEL_STUDIO.items() if name != "rater"}
        said["rater"] = (who.get("email") or who.get("id")) if isinstance(who, dict) else who
        said["seconds"] = annotation.get("lead_time")
        for result in [] if annotation.get("was_cancelled") else annotation.get("result") or []:
            value = result.get("value") or {}
            if result.get("type") == "pairwise":
                said["choice"] = value.get("selected")
            elif result.get("type") == "choices" and [str(word).lower() for word in value.get("choices") or []] == ["tie"]:
                said["choice"] = "tie"
            elif result.get("type") == "rating":
                said["margin"] = value.get("rating")
            elif result.get("type") == "textarea":
                said["reason"] = "\n".join(value.get("text") or [])
        yield _row(said, where, LABEL_STUDIO)


def _check_header(header: list[str], file: Path) -> None:
    missing = [name for name in NEEDED if name not in header]
    unknown = [name for name in header if name not in {*NEEDED, *COLUMNS[5:]}]
    if missing or unknown or len(set(header)) < len(header):
        said = f"{file}: its header is {', '.join(header) or 'empty'}, separated by commas?"
        raise ExportError(f"{said} Needed are {', '.join(NEEDED)}; possible besides {', '.join(COLUMNS[5:])}; each once.")


def _line(header: list[str], cells: list[str], where: str) -> dict[str, Any]:
    if len(cells) != len(header):
        raise ExportError(f"{where} has {len(cells)} cells, expected {len(header)}. The file may have been cut short there.")
    return _row({name: cell.strip() for name, cell in zip(header, cells, strict=True)}, where, {})


def _row(said: Mapping[str, Any], where: str, called: Mapping[str, str]) -> dict[str, Any]:
    """Make a row of what one person said of two replies, whatever the format; `called` has the format's own names."""
    given = {name: None if value == "" else value for name, value in said.items()}
    for name in NEEDED[:3]:
        if given.get(name) is None:
            raise ExportError(f"{where}: {called.get(name, name)} is empty. A verdict needs a rater and both sides.")
    choice, margin, seconds = given.get("choice"), given.get("margin"), given.get("seconds")
    if choice not in (None, *CHOICES):
        raise ExportError(f"{where}: the choice is {choice!r}, expected {', '.join(CHOICES)}, or nothing for no answer.")
    if margin is not None and str(margin).removesuffix(".0") not in {"1", "2", "3", "4", "5"}:
        raise ExportError(f"{where}: the margin is {margin!r}, expected a whole number from 1 to 5, or nothing.")
    if seconds is not None and not str(seconds).replace(".", "", 1).isdigit():
        raise ExportError(f"{where}: seconds is {seconds!r}, expected a number of 0 or more.")
    return {
        "where": where,
        "person": str(given["rater"]),
        "left": given["left"],
        "right": given["right"],
        "choice": choice,
        "margin": None if margin is None else float(margin),
        "reason": given.get("reason"),
        "dimension": given.get("dimension") or "overall",
        "seconds": None if seconds is None else float(seconds),
    }
