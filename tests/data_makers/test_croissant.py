"""The data's metadata say what the files hold, and read as Croissant 1.0."""

import json
import shutil

import pytest

from data.make.croissant import CroissantError, describe_folder
from heart_utils.runs import checksum, find_root
from tools.settings import read_settings

ROOT = find_root()
FOLDERS = [ROOT / "data" / name for name in ("sample", "heart")]
REQUIRED = {
    "@context",
    "@type",
    "conformsTo",
    "name",
    "description",
    "license",
    "url",
    "creator",
    "datePublished",
    "version",
}
LINES = {"sample": {"histories": 36, "replies": 36, "specifics_removed": 24, "responders": 1, "reasons": 120},
         "heart": {"heart_regular_index": 280, "heart_adversarial_index": 20, "heart_rewrites": 20}}  # fmt: skip


@pytest.fixture(params=FOLDERS, ids=lambda folder: folder.name)
def folder(request):
    return request.param


def test_the_committed_description_is_what_the_files_give(folder):
    written = json.loads((folder / "croissant.json").read_text(encoding="utf-8"))
    assert written == describe_folder(folder, url=read_settings(ROOT).repository), (
        "run: python -m data.make.croissant"
    )


def test_what_the_format_requires_is_there_and_each_data_file_is_described(folder):
    described = describe_folder(folder)
    assert {name for name in REQUIRED if not described.get(name)} == set()
    files = {entry["@id"]: entry["sha256"] for entry in described["distribution"]}
    assert files == {
        path.name: checksum(path) for path in folder.iterdir() if path.suffix in (".csv", ".jsonl")
    }
    assert {entry["@id"] for entry in described["recordSet"]} == set(LINES[folder.name])


def test_an_address_takes_the_place_of_the_readme(folder):
    assert describe_folder(folder)["url"] == "README.md"
    assert describe_folder(folder, url="https://example.org/x")["url"] == "https://example.org/x"


def test_a_column_without_a_sentence_and_a_sentence_without_a_column_are_told(tmp_path):
    copy = shutil.copytree(ROOT / "data" / "heart", tmp_path / "heart")
    said = copy / "croissant.yaml"
    said.write_text(
        said.read_text(encoding="utf-8").replace("      n_seeker_turns:", "      n_turns:"),
        encoding="utf-8",
    )
    with pytest.raises(
        CroissantError,
        match=r"n_seeker_turns, n_turns .*heart_adversarial_index\.csv",
    ):
        describe_folder(copy)


@pytest.mark.services
def test_the_format_s_own_reader_finds_no_fault_and_reads_every_row(folder):
    mlcroissant = pytest.importorskip(
        "mlcroissant", reason="needs croissant: run make test-services"
    )
    data = mlcroissant.Dataset(jsonld=folder / "croissant.json")
    assert list(data.metadata.ctx.issues.errors) == []
    assert list(data.metadata.ctx.issues.warnings) == []
    rows = {records.uuid: list(data.records(records.uuid)) for records in data.metadata.record_sets}
    assert {name: len(read) for name, read in rows.items()} == LINES[folder.name]
    if folder.name == "sample":
        first = json.loads(
            (folder / "histories.jsonl").read_text(encoding="utf-8").splitlines()[0]
        )["turns"][0]
        read = rows["histories"][0]["histories/turns"][0]
        assert {name.rpartition("/")[2]: words.decode() for name, words in read.items()} == first
