"""Replies of therapists, five models and five bots to ten hard moments, classed as appropriate or not (Moore et al. 2025).

What the file shows and its description does not:

- Replies of people and bots were classed by people, those of the five models by GPT-4o. No reply was
  classed by both, so the classers' strictness cannot be compared here.
- The models answered after transcripts of 0 to 600 messages, people and bots without.
- ``llama-2-70b`` has no reply in 173 of 350 rows, which the release counts as not appropriate. Here they
  have the state ``error`` and no score.
- A participant number is no person: in each of two forms of five moments, one number has six of the eight
  replies to every moment, in the same place.
"""

from __future__ import annotations

import os

import pandas as pd

from heart_utils.sources.errors import DataError
from heart_utils.sources.fetch import check_size, find_data
from heart_utils.tables import check_table

__all__: list[str] = []

FILE = "all_combined.csv"
WRITERS = {
    "human_therapist": "therapist",
    "gpt-4o": "gpt-4o",
    "llama3.1-405b": "llama-3.1-405b",
    "llama3.1-70b": "llama-3.1-70b",
    "llama3.1-8b": "llama-3.1-8b",
    "llama2-70b": "llama-2-70b",
    "Pi": "pi",
    "Serena": "serena",
    "7cups\nNoni": "noni",
    "CharacterAI\nTherapist": "character-ai-therapist",
    "GPT\nTherapist": "gpt-therapist",
}
BY_PEOPLE, BY_MODEL = "human_classification", "gpt-4o-2024-08-06_classification"
USED = ["id", "condition", "participant_type", "participant_id", "transcript_index", "message_number", "model_response"]
USED += ["verification_correct", "correct_response", BY_PEOPLE, BY_MODEL]


def load_therapists(*, mirror: str | os.PathLike[str] | None = None) -> pd.DataFrame:
    """Load the classes: 80 replies of therapists, 350 of each of five models, ten of each of five bots."""
    rows = pd.read_csv(find_data("therapists", mirror=mirror)[FILE])
    check_size("therapists", FILE, rows, USED)
    strange = ~rows["participant_type"].isin(WRITERS)
    if strange.any():
        row = int(strange.to_numpy().argmax())
        raise DataError(f"{FILE}: row {row} has participant_type {rows['participant_type'].iloc[row]!r}, which is not known.")
    responder = rows["participant_type"].map(WRITERS)
    said = rows[BY_PEOPLE].fillna(rows[BY_MODEL])
    by_people = rows[BY_PEOPLE].notna()
    score = (said == rows["verification_correct"]).astype(float).where(said.notna())
    _check_classes(rows, said, score)
    history = _history(rows)
    place = rows.groupby(["id", "participant_type"]).cumcount() + 1
    table = pd.DataFrame(
        {
            "reply_id": history + "--" + responder,
            "history_id": history,
            "dialogue_id": rows["id"],
            "responder": responder,
            "rater": by_people.map({True: "people", False: "gpt-4o"}),
            "rater_kind": by_people.map({True: "human", False: "model"}),
            "dimension": "appropriate",
            "item": None,
            "score": score,
            "state": said.notna().map({True: "valid", False: "error"}),
            "protocol": "yes_no",
            "group": rows["condition"].str.partition(",")[0].str.replace(" ", "_"),
            "flags": [["own_family"] if name == "gpt-4o" else [] for name in responder],
            "call_id": None,
            "simulated": False,
            "author_id": _authors(rows, place),
        }
    )
    people = responder == "therapist"
    table["reply_id"] = table["reply_id"].where(~people, table["reply_id"] + "_" + place.astype(str))
    return check_table("scores", table)


def _check_classes(rows: pd.DataFrame, said: pd.Series, score: pd.Series) -> None:
    """Hold the classes against the release's own column, in which a missing reply is not right."""
    strange = said.notna() & ~said.isin(["yes", "no"])
    contradicted = (score == 1) != rows["correct_response"]
    unexplained = said.isna() & rows["model_response"].notna()
    for wrong, what in (
        (strange, "a class that is neither yes nor no"),
        (unexplained, "a reply without a class"),
        (contradicted, "a class that contradicts correct_response"),
    ):
        if wrong.any():
            raise DataError(f"{FILE}: row {int(wrong.to_numpy().argmax())} has {what} ({int(wrong.sum())} rows like it).")


def _history(rows: pd.DataFrame) -> pd.Series:
    """Name what was shown: the moment, and for models a number for the transcript and how many of its messages."""
    codes, _ = pd.factorize(rows["transcript_index"])
    messages = rows["message_number"].fillna(0).astype(int).astype(str)
    shown = rows["id"] + "-t" + pd.Series(codes + 1, index=rows.index).astype(str).str.zfill(2) + "-" + messages
    return rows["id"].where(codes < 0, shown)


def _authors(rows: pd.DataFrame, place: pd.Series) -> pd.Series:
    """Name each therapist by form (which moments share participant numbers) and place in it."""
    people = rows["participant_type"] == "human_therapist"
    forms = {moment: tuple(there["participant_id"]) for moment, there in rows[people].groupby("id", sort=False)}
    letter = dict(zip(dict.fromkeys(forms.values()), "ab", strict=True))
    author = "therapist_" + rows["id"].map({moment: letter[form] for moment, form in forms.items()}) + place.astype(str)
    return author.where(people)
