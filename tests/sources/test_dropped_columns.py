"""Loaders keep columns by name: whatever else a file holds of people reaches no table, note,
message or file."""

import io
import json
import logging
from functools import partial

import pandas as pd
import pytest
from source_builders import mentalalign_files, mirrored, refused, write

from data.make.official import PUBLISHED, derive
from heart_collect.people.assignment import StudyError
from heart_collect.people.exports import read_answers
from heart_utils import load_histories, load_replies, load_scores, load_verdicts
from heart_utils.sources import catalogue
from heart_utils.sources.catalogue import SOURCES
from heart_utils.sources.heart import load_question_histories, load_questions

PRIVATE = {
    "Email Address": "jo.planted@example.org",
    "IPAddress": "192.0.2.77",
    "LocationLatitude": "47.376900123",
    "home_address": "Plantedstrasse 12, 8001 Zurich",
    "password": "hunter2-planted",
    "WorkerId": "A9PLANTED9X8Y7",
}


@pytest.fixture
def outputs(capsys, caplog):
    """Gather what a loader says and gives, and look for what was planted."""
    caplog.set_level(logging.DEBUG)

    def clean(*tables):
        texts = [
            table.to_csv() + repr(table.attrs) + "".join(map(str, table.columns))
            for table in tables
        ]
        texts += [caplog.text, *capsys.readouterr()]
        return [value for value in PRIVATE.values() for text in texts if value in text]

    return clean


def with_private_columns(name: str, content: bytes) -> bytes:
    """Add columns of addresses, coordinates and passwords to a file, in front, behind and in the
    middle."""
    kind = name.rpartition(".")[2]
    if kind in ("csv", "xlsx"):
        read = {"csv": pd.read_csv, "xlsx": partial(pd.read_excel, engine="calamine")}[kind]
        rows = read(io.BytesIO(content), dtype=str, keep_default_na=False)
        for place, (head, value) in enumerate(PRIVATE.items()):
            rows.insert(place * rows.shape[1] // len(PRIVATE), head, value)
        written = io.BytesIO()
        getattr(rows, {"csv": "to_csv", "xlsx": "to_excel"}[kind])(written, index=False)
        return written.getvalue()
    if kind == "jsonl" or name in ("train.json", "valid.json", "test.json"):
        lines = [json.loads(line) for line in content.decode().splitlines() if line.strip()]
        return "".join(json.dumps({**PRIVATE, **line}) + "\n" for line in lines).encode()
    found = json.loads(content)
    more = [{**one, **PRIVATE} for one in found] if isinstance(found, list) else found
    return json.dumps(more).encode()


@pytest.fixture
def planted(mirror, monkeypatch, tmp_path):
    """Mirror a set with private columns in each of its files, of which the checksums are known."""

    def plant(*names):
        for name in names:
            source = SOURCES[name]
            files = {
                file.file: (mirror / source.folder / file.file).read_bytes()
                for file in source.files
            }
            if name == "mentalalign":
                files = mentalalign_files(30, {})
            mirrored(
                monkeypatch,
                tmp_path,
                name,
                {file: with_private_columns(file, kept) for file, kept in files.items()},
            )

    return plant


@pytest.mark.mirror
@pytest.mark.parametrize("name", PUBLISHED)
def test_no_reader_of_a_published_study_gives_a_column_that_it_does_not_name(
    name, planted, outputs, monkeypatch
):
    planted(name)
    monkeypatch.setitem(catalogue.SOURCES, name, catalogue.SOURCES[name])
    assert outputs(derive(name)) == []


@pytest.mark.mirror
def test_no_loader_of_dialogues_or_questions_gives_a_field_that_it_does_not_name(planted, outputs):
    planted("esconv", "heart", "heartbench")
    histories = [load_histories("esconv"), load_histories("heart", twins=True)]
    questions = [load_questions(), load_question_histories()]
    assert outputs(*histories, load_replies("heart"), *questions) == []


JUDGED = {"history_id": ["h1"], "rater": "r1", "rater_kind": "human"}
OWN = {
    load_verdicts: {**JUDGED, "responder_a": "x", "responder_b": "y", "verdict": "a"},
    load_scores: {**JUDGED, "responder": "x", "dimension": "empathy", "score": 4},
    load_replies: {"history_id": ["h1"], "responder": "x", "text": "That sounds hard."},
    load_histories: {"history_id": ["h1"], "turns": '[{"speaker": "seeker", "text": "Hello."}]'},
}


@pytest.mark.parametrize(
    ("load", "suffix"),
    [*((load, "csv") for load in OWN), (load_verdicts, "xlsx"), (load_scores, "parquet"), (load_replies, "json")],
)  # fmt: skip
def test_a_file_of_one_s_own_is_refused_by_the_names_of_its_columns_and_read_without_them(
    load, suffix, outputs, tmp_path
):
    path = write(tmp_path, f"mine.{suffix}", pd.DataFrame({**PRIVATE, **OWN[load]}))
    said = refused(load, path)
    assert "unknown Email Address (e-mail addresses)" in said
    assert not [value for value in PRIVATE.values() if value in said]
    assert outputs(load(path, columns=dict.fromkeys(PRIVATE))) == []


def test_answers_from_elsewhere_are_refused_by_the_names_of_their_columns(tmp_path, outputs):
    rows = pd.DataFrame(
        {"rater": ["ann"], "left": "r1", "right": "r2", "choice": "left", **PRIVATE}
    )
    rows.to_csv(tmp_path / "votes.csv", index=False)
    with pytest.raises(StudyError, match="unknown Email Address") as caught:
        read_answers(tmp_path / "votes.csv")
    assert not [value for value in PRIVATE.values() if value in str(caught.value)]
