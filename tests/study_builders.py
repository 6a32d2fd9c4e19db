"""A small run and hand-written answers, in the files that Potato 2.12 writes."""

import json
from pathlib import Path

import pandas as pd

from heart_collect import conversation_replies
from heart_collect.judging.design import cross_seekers
from heart_utils import load_conversations
from heart_utils.runs import Run
from heart_utils.tables import empty_table

TURNS = [
    {"speaker": "supporter", "text": "What is on your mind?"},
    {"speaker": "seeker", "text": "The flat is <b>empty</b> now."},
]
AGREED = [[{"schema": name, "name": "yes"}, "yes"] for name in ("consent_age", "consent_agree")]
STATEMENT = {
    "population": "students of one university",
    "language": "English, self-reported",
    "pay": "12 GBP an hour",
}


def small_run(
    folder: Path,
    n_histories: int = 5,
    responders: tuple[str, ...] = ("person", "model"),
    *,
    texts=None,
) -> Run:
    """Write a run with histories and one reply of each responder to each."""
    run = Run(folder.name, folder, Path(__file__).resolve().parents[1])
    names = [f"h{number:02d}" for number in range(n_histories)]
    histories = pd.DataFrame(
        {
            "history_id": names,
            "dialogue_id": [f"d-{name}" for name in names],
            "source": "test",
            "slice": "standard",
            "twin_id": None,
            "emotion": None,
            "problem": None,
            "situation": None,
            "turns": [TURNS] * n_histories,
            "licence": "CC0-1.0",
            "flags": [[] for _ in names],
            "simulated": False,
        }
    )
    run.write("histories", histories)
    rows = [
        {
            "reply_id": f"{responder}-{name}",
            "history_id": name,
            "responder": responder,
            "text": (texts or {}).get(responder, f"{responder} {name}"),
            "flags": [],
            "state": "valid",
            "simulated": False,
        }
        for name in names
        for responder in responders
    ]
    run.write("replies", pd.DataFrame(rows).reindex(columns=empty_table("replies").columns))
    return run


def conversation_run(folder: Path, n_starts: int = 4, seekers: tuple[str, ...] = ("s", "t")) -> Run:
    """Write a run of whole conversations: two responders from each start with each seeker."""
    run = small_run(folder, n_starts)
    histories = cross_seekers(run.read("histories"), seekers)
    run.write("histories", histories)
    talks = load_conversations(
        pd.DataFrame(
            [
                {
                    "history_id": start["start_id"],
                    "responder": responder,
                    "seeker": start["seeker"],
                    "turns": went_on(responder, start["seeker"]),
                    "stop_reason": "length",
                }
                for start in histories.to_dict("records")
                for responder in ("model", "probe")
            ]
        )
    )
    run.write("conversations", talks)
    run.write("replies", conversation_replies(talks))
    return run


def went_on(responder: str, seeker: str) -> list[dict[str, str]]:
    """Say two exchanges, in words that name who speaks."""
    return [
        {"speaker": speaker, "text": f"{name} says {word}"}
        for word in ("one", "two")
        for speaker, name in (("supporter", responder), ("seeker", seeker))
    ]


def assignment(folder: Path) -> pd.DataFrame:
    return pd.read_csv(folder / "assignment.csv", dtype={"check": "Int64"})


def answer_seat(
    folder: Path,
    seat: str = "seat-001",
    person: str = "ann",
    answers: dict[str, dict[str, str]] | None = None,
    **changes,
) -> Path:
    """Write what Potato keeps of somebody who sat in a seat; `answers` is item id -> question ->
    value, by default those of `seat_answers`."""
    items = assignment(folder).query("seat == @seat")["item_id"].tolist()
    answers = seat_answers(folder, seat) if answers is None else answers
    names = {"preference": "selection", "reason": "text_box", "reply": "text_box"}
    kept = {
        item: [
            [{"schema": question, "name": names.get(question, value)}, value]
            for question, value in given.items()
        ]
        for item, given in answers.items()
    }
    seen = {item: {"total_time_ms": 30_000, "typing_summaries": {}} for item in answers}
    state = {
        "user_id": person,
        "instance_id_ordering": items,
        "current_phase_and_page": ["poststudy", "debrief"],
        "instance_id_to_label_to_value": kept,
        "instance_id_to_behavioral_data": seen,
        "instance_id_to_presentation_order": {},
        "phase_to_page_to_label_to_value": {"consent": {"consent": AGREED}},
    } | changes
    file = folder / "answers" / person / "user_state.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(state), encoding="utf-8")
    return file


def seat_answers(
    folder: Path, seat: str = "seat-001", side: str = "A", *, pass_checks: bool = True
) -> dict[str, dict[str, str]]:
    """Answer every page of a seat alike, and the checks as they ask, or not."""
    given = {}
    for row in assignment(folder).query("seat == @seat").to_dict("records"):
        answer = {"preference": side, "strength": "3", "reason": "it listens"}
        if row["task"] == "check":
            sides = ("A", "B") if pass_checks else ("B", "A")
            answer["preference"] = sides["AB".index(row["check_side"])]
            answer["strength"] = str(int(row["check_strength"]))
        given[row["item_id"]] = answer
    return given


def rated(answers: dict[str, dict[str, str]]) -> list[str]:
    """List the pages that are no checks."""
    return [item for item in answers if ".check-" not in item]


def note_history(file: Path, person: str, *actions: tuple[str, str, str, str]) -> Path:
    """Append to what Potato keeps of every answer; an action is item id, question, label and
    value."""
    history = file.with_name("annotation_history.jsonl")
    with history.open("a", encoding="utf-8") as lines:
        for item, question, label, value in actions:
            action = {
                "user_id": person,
                "instance_id": item,
                "action_type": "add_label",
                "schema_name": question,
            }
            lines.write(json.dumps(action | {"label_name": label, "new_value": value}) + "\n")
    return history
