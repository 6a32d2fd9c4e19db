"""The published sets in the repository: what the official files give, nobody's words or ids, and
never half-written."""

import json
import re
import shutil
import subprocess

import pandas as pd
import pytest

from data.make import fetch as public
from heart_utils.runs import Run, find_root, may_publish, open_run
from heart_utils.sources.catalogue import SOURCES

FOLDER = find_root() / "data" / "public"
BATCHES = {"welivita": 200, "resort": 22, "reflections": 14}


@pytest.fixture
def copy(tmp_path, monkeypatch):
    """A copy of ``data/public`` that may be spoilt, of which three sets, quick to derive, are
    looked at."""
    run = Run("public", tmp_path / "public", tmp_path)
    shutil.copytree(FOLDER, run.folder)
    monkeypatch.setattr(public, "open_run", lambda name: run)
    manifest = public._manifest()
    monkeypatch.setattr(public, "_manifest", lambda: manifest)
    monkeypatch.setattr(
        public,
        "PUBLISHED",
        {name: public.PUBLISHED[name] for name in ("recipients", "therapists", "resort")},
    )
    return run.folder


@pytest.mark.mirror
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if name == "mentalalign" else ())
        for name in public.PUBLISHED
    ],
)
def test_the_repository_holds_what_the_official_files_give(mirror, name):
    assert public.compare_public(name) == []


@pytest.mark.mirror
def test_a_byte_of_meaning_that_differs_is_named_with_its_file_and_column(mirror, copy):
    file = copy / "scores" / "recipients.parquet"
    scores = pd.read_parquet(file)
    scores.loc[7, "score"] += 1
    scores.to_parquet(file)
    (said,) = public.compare_public("recipients")
    assert (
        "recipients.parquet (left) is not what the official files give (right): DataFrame.iloc[:,"
        ' 8] (column name="score")' in said
    )
    file.unlink()
    assert public.compare_public("recipients") == [f"{file} is not there."]


@pytest.mark.mirror
def test_a_manifest_with_another_licence_or_checksum_is_named(mirror, copy):
    file = copy / "manifest.json"
    file.write_text(file.read_text().replace("412c1c17", "00000000"))
    assert public.compare_public("recipients") == [f"{file} is not what data/sources.yaml says."]


@pytest.mark.mirror
def test_writing_again_changes_nothing(mirror, monkeypatch, copy):
    monkeypatch.setenv("HEART_DATA_MIRROR", str(mirror))
    before = {file: file.stat().st_mtime_ns for file in copy.rglob("*") if file.is_file()}
    assert public.main(["write"]) == 0
    assert {file: file.stat().st_mtime_ns for file in copy.rglob("*") if file.is_file()} == before


@pytest.mark.mirror
def test_a_changed_official_file_writes_nothing_at_all(mirror, monkeypatch, copy, tmp_path, capsys):
    (tmp_path / "mirror").mkdir()
    for folder in mirror.iterdir():
        (tmp_path / "mirror" / folder.name).symlink_to(folder)
    (tmp_path / "mirror" / "resort").unlink()
    (tmp_path / "mirror" / "resort").mkdir()
    (tmp_path / "mirror" / "resort" / "human_eval_annotations_cleaned.json").write_text("[]")
    (copy / "scores" / "recipients.parquet").unlink()
    monkeypatch.setenv("HEART_DATA_MIRROR", str(tmp_path / "mirror"))
    assert public.main(["write"]) == 1
    assert (
        "human_eval_annotations_cleaned.json is damaged, or another version"
        in capsys.readouterr().err
    )
    assert not (copy / "scores" / "recipients.parquet").exists()


@pytest.mark.mirror
def test_make_data_says_whether_the_repository_is_equal(mirror, monkeypatch, copy, capsys):
    monkeypatch.setenv("HEART_DATA_MIRROR", str(mirror))
    assert public.main(["therapists"]) == 0
    assert "data/public holds what these files give" in capsys.readouterr().out
    (copy / "scores" / "therapists.parquet").unlink()
    assert public.main(["therapists"]) == 1
    assert "therapists.parquet is not there" in capsys.readouterr().err


def test_every_published_table_reads_back_checked_with_its_terms_and_is_small():
    run, manifest = open_run("public"), json.loads((FOLDER / "manifest.json").read_text())
    for name, table in ((name, SOURCES[name].table) for name in public.PUBLISHED):
        assert len(run.read(table, name))
        assert len(run.read("responders", name))
        about = manifest["tables"][f"{table}/{name}"]
        assert all(about[key] for key in ("licence", "citation", "derivation", "address")), name
        assert manifest["data"][name] == {file.file: file.sha256 for file in SOURCES[name].files}
    assert sum(file.stat().st_size for file in FOLDER.rglob("*") if file.is_file()) < 3_000_000


def test_of_rows_that_nobody_licensed_only_counts_are_here():
    for name, table in ((name, SOURCES[name].table) for name in public.PUBLISHED):
        if not may_publish(SOURCES[name].licence):
            assert table in ("tallies", "estimates"), name
            counts = open_run("public").read(table, name)
            assert not {"score", "text", "rating"} & set(counts)
            if table == "estimates":
                assert counts["n"].min() >= 45, "each number rests on many rows"
            else:  # fewer rows than the official file has ratings: counts, not ratings under another name
                assert counts["cluster"].nunique() > BATCHES[name]
    tallied = {
        "welivita",
        "resort",
        "duo",
        "kokorochat",
        "mindeval",
        "relationship_seeking",
        "reflections",
    }
    assert {name for name, source in SOURCES.items() if source.ships == "tallies"} == tallied


def _ids(mirror) -> set[str]:
    """List the ids by which a platform or a release knows people, dialogues and posts."""
    own = pd.read_csv(
        mirror / "recipients" / "perceived_empathy_self_ratings.csv", usecols=["id"], dtype=str
    )["id"]
    rated = pd.read_csv(mirror / "welivita" / "dataset_and_ratings.csv", dtype=str)
    posts = json.loads((mirror / "resort" / "human_eval_annotations_cleaned.json").read_text())
    ids = set(own) | {post["Reddit ID"] for post in posts} | set(rated["dialog_id"])
    ids |= set(
        rated[["annotator_human", "annotator_chatgpt", "annotator_chatgpt_empathy"]]
        .to_numpy()
        .ravel()
    )
    for name, key in (
        ("empatheticdialogues", "conv_id"),
        ("epitome", "sp_id"),
        ("lend_an_ear", "conversation_id"),
    ):
        ids |= set(
            pd.read_csv(mirror / "empathic_comm_judges" / f"{name}__crowd_ratings.csv", dtype=str)[
                key
            ]
        )
    return ids


@pytest.mark.mirror
def test_no_id_of_a_platform_is_in_the_repository(mirror):
    ids = _ids(mirror)
    assert len(ids) > 3000
    cells = {
        cell
        for file in FOLDER.rglob("*.parquet")
        for values in pd.read_parquet(file).select_dtypes("str").items()
        for cell in values[1].dropna().unique()
    }
    assert len(cells) > 1000
    words = re.compile(r"[A-Za-z0-9_:]+")
    assert not ids & {
        word for cell in cells for word in (cell, *words.findall(cell), *cell.split("-"))
    }
    # Names such as Anger_42 could stand anywhere by chance; those of eight characters and more
    # could not.
    long = {
        name
        for name in ids
        if len(name) >= 8 and re.search(r"\d", name) and not re.match(r"A[a-z]+_\d+$", name)
    }
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=find_root(), capture_output=True, text=True, check=True
    ).stdout
    for name in listed.split("\0"):
        file = find_root() / name
        if (
            name
            and file.is_file()
            and file.suffix != ".parquet"
            and file.stat().st_size < 5_000_000
        ):
            found = long & set(words.findall(file.read_text(encoding="utf-8", errors="ignore")))
            assert not found, f"{name} holds {sorted(found)[:3]}"


def test_a_usage_that_is_not_known_is_said(capsys):
    assert public.main(["wirte"]) == 2
    assert "list, status, check, write" in capsys.readouterr().err


def test_the_status_lists_each_study_once_with_its_state_and_a_reason_where_it_is_not_measured(
    capsys,
):
    assert public.main(["status"]) == 0
    lines = capsys.readouterr().out.splitlines()
    states = [line[:13].strip() for line in lines[:-1]]
    assert set(states) == {"measured", "by make data", "quoted", "wanted", "unreachable"}
    assert states.count("measured") == len(public.PUBLISHED)
    assert all(
        "http" in line
        for line, state in zip(lines, states, strict=False)
        if state in ("wanted", "unreachable")
    )


def test_a_study_that_is_wanted_says_why_there_is_no_loader(capsys):
    assert public.main(["de_freitas"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("de_freitas is wanted: this project has no loader of it")
    assert "https://osf.io/hf9xe" in said
