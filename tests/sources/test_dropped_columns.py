"""Loaders keep columns by name: whatever else a file holds of people reaches no table, note,
message or file."""

import io
import json
import logging
from dataclasses import replace

import pandas as pd
import pytest
from source_builders import know, mentalalign_files, mirrored, serving

from data.make.download import fetch_data
from data.make.official import PUBLISHED, derive
from heart_collect.people.assignment import StudyError
from heart_collect.people.exports import read_answers
from heart_utils import load_histories, load_replies, load_scores, load_verdicts
from heart_utils.sources import catalogue
from heart_utils.sources.catalogue import SOURCES
from heart_utils.sources.heartbench import load_question_histories, load_questions
from heart_utils.tables import DataError

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
    if name.endswith((".csv", ".xlsx")):
        rows = (
            pd.read_csv(io.BytesIO(content), dtype=str, keep_default_na=False)
            if name.endswith("csv")
            else None
        )
        rows = pd.read_excel(io.BytesIO(content), dtype=str) if rows is None else rows
        for place, (head, value) in enumerate(PRIVATE.items()):
            rows.insert(place * rows.shape[1] // len(PRIVATE), head, value)
        written = io.BytesIO()
        (
            rows.to_csv(written, index=False)
            if name.endswith("csv")
            else rows.to_excel(written, index=False)
        )
        return written.getvalue()
    if name.endswith(".jsonl") or name in ("train.json", "valid.json", "test.json"):
        lines = [json.loads(line) for line in content.decode().splitlines() if line.strip()]
        return "".join(json.dumps({**PRIVATE, **line}) + "\n" for line in lines).encode()
    found = json.loads(content)
    return json.dumps(
        [{**one, **PRIVATE} for one in found] if isinstance(found, list) else found
    ).encode()


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
                files = mentalalign_files(60, {})
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
def test_no_loader_of_dialogues_gives_a_field_that_it_does_not_name(planted, outputs):
    planted("esconv", "heart")
    assert (
        outputs(
            load_histories("esconv"), load_histories("heart", twins=True), load_replies("heart")
        )
        == []
    )


@pytest.mark.mirror
def test_no_loader_of_questions_gives_a_field_that_it_does_not_name(planted, outputs):
    planted("heartbench")
    assert outputs(load_questions(), load_question_histories()) == []


def own(table):
    rows = {
        "verdicts": {"history_id": ["h1"], "responder_a": "x", "responder_b": "y", "verdict": "a"},
        "scores": {"history_id": ["h1"], "responder": "x", "dimension": "empathy", "score": 4},
        "replies": {"history_id": ["h1"], "responder": "x", "text": "That sounds hard."},
        "histories": {"history_id": ["h1"], "turns": '[{"speaker": "seeker", "text": "Hello."}]'},
    }[table]
    judged = {"rater": "r1", "rater_kind": "human"} if table in ("verdicts", "scores") else {}
    return pd.DataFrame({**PRIVATE, **rows, **judged})


@pytest.mark.parametrize("suffix", ["csv", "tsv", "xlsx", "parquet", "jsonl"])
@pytest.mark.parametrize("load", [load_verdicts, load_scores, load_replies, load_histories])
def test_a_file_of_one_s_own_is_refused_by_the_names_of_its_columns_and_read_without_them(
    load, suffix, outputs, tmp_path
):
    rows, path = own(load.__name__.removeprefix("load_")), tmp_path / f"mine.{suffix}"
    if suffix in ("parquet", "jsonl") and "turns" in rows:
        rows["turns"] = rows["turns"].map(json.loads)
    match suffix:
        case "csv" | "tsv":
            rows.to_csv(path, index=False, sep="\t" if suffix == "tsv" else ",")
        case "xlsx":
            rows.to_excel(path, index=False)
        case "parquet":
            rows.to_parquet(path)
        case _:
            rows.to_json(path, orient="records", lines=True)
    with pytest.raises(DataError, match="unknown Email Address .e-mail addresses.") as caught:
        load(path)
    assert not [value for value in PRIVATE.values() if value in str(caught.value)]
    assert outputs(load(path, columns=dict.fromkeys(PRIVATE))) == []


def test_answers_from_elsewhere_are_refused_by_the_names_of_their_columns(tmp_path, outputs):
    rows = pd.DataFrame(
        {"rater": ["ann"], "left": "r1", "right": "r2", "choice": "left", **PRIVATE}
    )
    rows.to_csv(tmp_path / "votes.csv", index=False)
    with pytest.raises(StudyError, match="unknown Email Address") as caught:
        read_answers(tmp_path / "votes.csv")
    assert not [value for value in PRIVATE.values() if value in str(caught.value)]


def test_labels_alone_are_kept_of_mt_bench_as_it_is_served(monkeypatch, tmp_path):
    vote = {
        "judge": "expert_1",
        "model_a": "x",
        "model_b": "y",
        "question_id": 81,
        "turn": 1,
        "winner": "tie",
    }
    served = io.BytesIO()
    pd.DataFrame([{**PRIVATE, **vote, "conversation_a": "secret"}]).to_parquet(served)
    kept = (json.dumps(vote, separators=(",", ":")) + "\n").encode()
    monkeypatch.delenv("HEART_DATA_MIRROR", raising=False)
    monkeypatch.setenv("HEART_DATA_CACHE", str(tmp_path))
    with serving({"/human.parquet": served.getvalue()}) as (address, _):
        know(
            monkeypatch,
            replace(SOURCES["mtbench"], address=address),
            {"human.jsonl": ("human.parquet", "labels", kept)},
        )
        assert fetch_data("mtbench")["human.jsonl"].read_bytes() == kept
