import csv
import io
import json
import re
import socket

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from source_builders import know, mirrored, serving

from data.make import download as fetching
from data.make.download import fetch_data, find_official
from data.make.fetch import main
from data.make.official import derive
from heart_utils.runs import LICENCES
from heart_utils.sources.catalogue import (
    SOURCES,
    DataUnavailableError,
    Source,
    find_data,
)
from heart_utils.tables import DataError

CONTENT = b"one\ntwo\nthree\n" * 1000
PATH = "/folder/the%20file.txt"


@pytest.fixture(autouse=True)
def _places(monkeypatch, tmp_path):
    """No mirror, and a cache of its own."""
    monkeypatch.delenv("HEART_DATA_MIRROR", raising=False)
    monkeypatch.setenv("HEART_DATA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(fetching, "TIMEOUT", (60, 60))


READING = {"row_ids": [], "sets": {"epitome": {"id": "sp_id", "dimensions": ["level"]}}}


def toy(
    monkeypatch, address: str, *, kept: str = "", content: bytes = CONTENT, file: str = "a.txt"
):
    source = Source(
        name="toy",
        folder="toy",
        title="A toy set",
        reading=READING,
        licence="MIT",
        terms="MIT, all of it",
        citation="Nobody (2026)",
        address=address,
    )
    return know(monkeypatch, source, {file: ("folder/the file.txt", kept, content)})


def left_in(folder) -> list[str]:
    return [path.name for path in folder.rglob("*") if path.is_file()]


def test_a_set_is_fetched_once_with_its_terms_and_then_read_from_the_cache(
    monkeypatch, tmp_path, capsys
):
    with serving({PATH: CONTENT}) as (address, asked):
        toy(monkeypatch, address)
        first = fetch_data("toy")
        said = capsys.readouterr().out
        assert first == find_data("toy") == fetch_data("toy")
    assert first["a.txt"].read_bytes() == CONTENT
    assert asked == [PATH]
    assert said.count("MIT, all of it") == said.count("Nobody (2026)") == 1


@pytest.mark.parametrize(
    ("answers", "kept", "fault", "error", "said"),
    [
        (CONTENT, "", "truncated", DataError, "cut short.*Nothing was kept.*make data NAME=toy"),
        (CONTENT, "", "stalls", DataUnavailableError, "could not be reached.*make data NAME=toy.*HEART_DATA_MIRROR"),
        (CONTENT, "", "slow", DataUnavailableError, "could not be reached.*make data NAME=toy"),
        (CONTENT[:-1] + b"!", "", None, DataError, "checksum is not the one known. Nothing was kept"),
        (None, "", None, DataUnavailableError, "404.*make data NAME=toy"),
        (b"PAR1 and no more", "labels", None, DataError, "toy/a.txt cannot be read"),
    ],
)  # fmt: skip
def test_a_download_that_fails_leaves_nothing_and_says_what_to_do(
    monkeypatch, tmp_path, answers, kept, fault, error, said
):
    if fault in ("stalls", "slow"):
        monkeypatch.setattr(fetching, "TIMEOUT", (60, 0.3))
    with serving({PATH: answers} if answers else {}, fault) as (address, _):
        toy(monkeypatch, address, kept=kept)
        with pytest.raises(error, match=said):
            fetch_data("toy")
    assert left_in(tmp_path) == []


def test_no_network_and_no_mirror_is_said_at_once(monkeypatch, capsys):
    # bound, so that nobody else takes the port, and listening to nobody
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        toy(monkeypatch, f"http://127.0.0.1:{deaf.getsockname()[1]}/")
        assert main(["toy"]) == 1
    told = capsys.readouterr()
    assert "MIT, all of it" in told.out
    assert re.search("reached.*make data NAME=toy.*HEART_DATA_MIRROR .*toy/", told.err)


def test_an_interrupted_download_leaves_nothing(monkeypatch, tmp_path):
    toy(monkeypatch, "http://127.0.0.1:1/")

    def interrupted(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(fetching, "_download", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fetch_data("toy")
    assert left_in(tmp_path) == []


def test_no_set_is_fetched_by_a_loader_but_only_by_the_command(monkeypatch):
    with serving({PATH: CONTENT}) as (address, asked):
        toy(monkeypatch, address)
        with pytest.raises(DataUnavailableError, match="make data NAME=toy"):
            find_data("toy")
        assert asked == []
        assert main(["toy"]) == 0
        assert find_data("toy")["a.txt"].read_bytes() == CONTENT


def test_a_mirror_wins_over_fetching(monkeypatch, tmp_path):
    toy(monkeypatch, "http://127.0.0.1:1/")
    (tmp_path / "env" / "toy").mkdir(parents=True)
    (tmp_path / "env" / "toy" / "a.txt").write_bytes(CONTENT)
    monkeypatch.setenv("HEART_DATA_MIRROR", str(tmp_path / "env"))
    assert find_data("toy")["a.txt"] == tmp_path / "env" / "toy" / "a.txt"


def test_a_mirror_without_the_file_or_with_a_damaged_one_is_an_error_not_a_reason_to_fetch(
    monkeypatch, tmp_path
):
    monkeypatch.setenv("HEART_DATA_MIRROR", str(tmp_path))
    with serving({PATH: CONTENT}) as (address, asked):
        toy(monkeypatch, address)
        with pytest.raises(DataUnavailableError, match="has no toy/a.txt.*unset HEART_DATA_MIRROR"):
            find_data("toy")
        (tmp_path / "toy").mkdir()
        (tmp_path / "toy" / "a.txt").write_bytes(CONTENT[:50])
        with pytest.raises(DataError, match="a.txt is damaged, or another version"):
            find_data("toy")
    assert asked == []


def test_a_damaged_file_in_the_cache_is_fetched_again(monkeypatch, tmp_path):
    with serving({PATH: CONTENT}) as (address, asked):
        toy(monkeypatch, address)
        path = fetch_data("toy")["a.txt"]
        path.write_bytes(CONTENT[:10])
        assert fetch_data("toy")["a.txt"].read_bytes() == CONTENT
    assert len(asked) == 2


def mtbench_parquet(rows: list[dict]) -> bytes:
    """The official layout: labels beside two conversations, in any order of rows."""
    talk = [{"content": "SECRET words of a conversation", "role": "user"}]
    table = pa.Table.from_pylist(
        [{**row, "conversation_a": talk, "conversation_b": talk} for row in rows]
    )
    file = io.BytesIO()
    pq.write_table(table, file)
    return file.getvalue()


VOTES = [
    {
        "question_id": 90,
        "model_a": "gpt-4",
        "model_b": "claude-v1",
        "winner": "model_b",
        "judge": "expert_1",
        "turn": 2,
    },
    {
        "question_id": 81,
        "model_a": "gpt-4",
        "model_b": "llama-13b",
        "winner": "tie",
        "judge": "author_0",
        "turn": 1,
    },
]


def test_the_official_parquet_of_mtbench_gives_the_table_of_the_mirror_and_no_conversation_stays(
    monkeypatch, tmp_path
):
    judged = [{**vote, "judge": "gpt4_pair"} for vote in VOTES]
    lines = {}
    for name, rows in {"human.jsonl": VOTES, "gpt4_pair.jsonl": judged}.items():
        ordered = sorted(rows, key=lambda row: row["question_id"])
        lines[name] = "".join(
            json.dumps(row, sort_keys=True, separators=(",", ":")) + "\n" for row in ordered
        ).encode()
    official = SOURCES["mtbench"]
    with serving(
        {"/human.parquet": mtbench_parquet(VOTES), "/gpt4.parquet": mtbench_parquet(judged)}
    ) as (address, _):
        source = Source(**{**vars(official), "address": address})
        addresses = {"human.jsonl": "human.parquet", "gpt4_pair.jsonl": "gpt4.parquet"}
        know(
            monkeypatch, source, {name: (addresses[name], "labels", lines[name]) for name in lines}
        )
        fetch_data("mtbench")
        fetched = derive("mtbench")
    mirrored(monkeypatch, tmp_path / "mirror", "mtbench", lines)
    pd.testing.assert_frame_equal(fetched, derive("mtbench"))
    assert not any(b"SECRET" in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())


def test_ids_and_scores_alone_are_kept_of_files_of_ratings(monkeypatch, tmp_path):
    served = io.StringIO(newline="")
    heads = ["sp_id", "full_conversation", "level", "email", "password"]
    csv.writer(served).writerows(
        [heads, ["x1", 'He said "no",\nthen left', "2", "ann@example.org", "hunter2"]]
    )
    with serving({PATH: served.getvalue().encode()}) as (address, _):
        toy(monkeypatch, address, kept="ratings", content=b"sp_id,level\nx1,2\n")
        assert fetch_data("toy")["a.txt"].read_bytes() == b"sp_id,level\nx1,2\n"


def test_dialogues_laid_out_with_other_white_space_still_count(monkeypatch, tmp_path):
    plain = b'[{"dialogue_history":["Hi there.","Not you again."]}]\n'
    toy(monkeypatch, "http://127.0.0.1:1/", kept="dialogues", content=plain)
    monkeypatch.setenv("HEART_DATA_MIRROR", str(tmp_path))
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy" / "a.txt").write_text(
        '[\n  {"dialogue_history": ["Hi  there.\\n", "Not you again."]}\n]'
    )
    assert find_data("toy")["a.txt"].is_file()
    (tmp_path / "toy" / "a.txt").write_text('[{"dialogue_history": ["Hi there.", "You again."]}]')
    with pytest.raises(DataError):
        find_data("toy")


def test_every_set_names_its_files_a_pinned_revision_and_a_known_licence():
    for source in SOURCES.values():
        assert source.files, source.name
        assert source.licence in LICENCES
        urls = source.urls(source.files[0]).values()
        assert all(any(len(part) == 40 for part in url.split("/")) for url in urls), (
            f"{source.name} is not pinned"
        )
        assert source.address.startswith("https://")
        assert all(len(file.sha256) == 64 for file in source.files)
        assert source.url(source.files[0]).startswith(source.address)


def test_the_command_lists_the_sets_and_knows_no_others(capsys):
    assert main(["list"]) == 0
    listed = capsys.readouterr().out
    assert [line.split()[0] for line in listed.splitlines()] == list(SOURCES)
    assert main(["nonsense"]) == 2
    assert "mentalalign" in capsys.readouterr().err
    assert main([]) == 2


@pytest.mark.mirror
def test_the_command_gets_the_sets_that_a_set_needs_too(mirror, monkeypatch, capsys):
    monkeypatch.setenv("HEART_DATA_MIRROR", str(mirror))
    assert main(["heart"]) == 0
    said = capsys.readouterr().out
    assert said.index("ESConv") < said.index("HEART's 300")


@pytest.mark.mirror
@pytest.mark.parametrize("name", SOURCES)
def test_every_file_of_the_mirror_is_the_one_known(mirror, name, monkeypatch):
    monkeypatch.setenv("HEART_DATA_MIRROR", str(mirror))
    assert len(find_official(name)) == len(SOURCES[name].files)


def test_an_unknown_set_is_an_error_that_lists_those_there_are():
    with pytest.raises(
        DataError,
        match=", ".join(SOURCES),
    ):
        find_data("mtbnech")
