"""Verdicts of several labs on one leaderboard: what is pooled, and what is refused with all
reasons."""

import io
import sys
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "report"))
from gate_case import THETA, write_run

from heart_collect.judging.prompts import load_rubric
from heart_utils.identities import IdentityError
from heart_utils.runs import open_run
from tools import pool
from tools.pool import MANIFEST, PoolError, join_packs, main, pack_run, read_pack


@pytest.fixture
def served(monkeypatch):
    """What each lab's provider says that it served."""
    models = {"a": {"judge": "judge-2026-01"}, "b": {"judge": "judge-2026-01"}}
    monkeypatch.setattr(pool, "_served", lambda run, verdicts: models[run.name])
    return models


def pack(folder, name, *, seed=1, lab=None, **options):
    run = write_run(folder / name, THETA, seed=seed, **options)
    file = folder / f"{name}.parquet"
    file.write_bytes(pack_run(run, lab or f"Lab {name}"))
    return file


@pytest.fixture
def two_labs(tmp_path, served):
    return [pack(tmp_path, "a", seed=1), pack(tmp_path, "b", seed=2)]


def test_two_labs_are_pooled_and_rated_with_labs_as_clusters(two_labs):
    pooled = join_packs(two_labs)
    assert pooled.verdicts["group"].value_counts().to_dict() == {"Lab a": 288, "Lab b": 288}
    assert pooled.verdicts["comparison_id"].nunique() == 288
    table = pooled.rate(n_resamples=200).table
    assert table["n_clusters"].tolist() == [2, 2, 2]
    assert table["provisional"].all()
    assert table.sort_values("rating")["responder"].tolist() == ["y", "old", "x"]
    alone = pooled.rate(n_resamples=200, cluster="dialogue_id").table
    assert (table["rating_high"] - table["rating_low"]).mean() > (
        alone["rating_high"] - alone["rating_low"]
    ).mean()


def test_a_packed_file_holds_no_reason_and_no_conversation(tmp_path, served):
    run = write_run(tmp_path / "a", THETA)
    rows = run.read("verdicts").assign(rationale="Because you said that your father died.")
    run.write("verdicts", rows)
    packed = pack_run(run, "Lab a")
    assert b"father" not in packed
    assert read_pack(io.BytesIO(packed))[0]["rationale"].isna().all()
    assert b"Number 3." not in packed


def test_another_rubric_is_refused(tmp_path, served, monkeypatch):
    one = pack(tmp_path, "a", seed=1)
    rubric = load_rubric("heart")
    changed = replace(
        rubric,
        dimensions=(replace(rubric.dimensions[0], question="Is it long?"), *rubric.dimensions[1:]),
    )
    monkeypatch.setattr(pool, "load_rubric", lambda name: changed)
    with pytest.raises(PoolError, match="the rubric of heart differs"):
        join_packs([one, pack(tmp_path, "b", seed=2)])


def test_identical_answers_of_two_labs_are_found(tmp_path, served):
    with pytest.raises(PoolError, match="all 288 answers of judge .*identical"):
        join_packs([pack(tmp_path, "a", seed=1), pack(tmp_path, "b", seed=1)])


@pytest.mark.parametrize(
    ("was", "now", "said"),
    [
        (b"", None, r"b.parquet: it has no manifest; `make pack"),
        (b'"format": 1', b'"format": 2', "its format is 2, this version reads 1"),
    ],
)
def test_a_file_of_another_make_is_refused(two_labs, was, now, said):
    table = pq.read_table(two_labs[1])
    known = dict(table.schema.metadata)
    known[MANIFEST] = known[MANIFEST].replace(was, now or b"")
    pq.write_table(table.replace_schema_metadata(known if now else None), two_labs[1])
    with pytest.raises(PoolError, match=said):
        join_packs(two_labs)


def test_all_reasons_come_in_one_message(tmp_path, served):
    served["b"] = {"judge": "judge-2026-06"}
    one = pack(tmp_path, "a", seed=1)
    other = pack(tmp_path, "b", seed=2, lab="Lab a", words=" And more.", protocol="heart-single")
    nowhere = tmp_path / "nowhere.parquet"
    with pytest.raises(PoolError) as refused:
        join_packs([one, other, nowhere])
    said = str(refused.value)
    for reason in (
        "nowhere.parquet: it cannot be read",
        "both are of the lab 'Lab a'",
        "the model served as judge differs (judge-2026-01 and judge-2026-06)",
        "not both judged under the protocol heart, heart-single",
        "24 histories have the same id and other words, such as 'h0'",
    ):
        assert reason in said


def test_what_cannot_be_checked_is_refused(tmp_path, served):
    del served["b"]["judge"]
    files = [
        pack(tmp_path, name, seed=seed, protocol="of-our-own") for seed, name in enumerate("ab")
    ]
    with pytest.raises(PoolError) as refused:
        join_packs(files)
    assert "a.parquet: nothing says how of-our-own/json was asked" in str(refused.value)
    assert "nothing says which model was served as judge" in str(refused.value)


def test_people_of_two_labs_are_never_one(two_labs, tmp_path, served):
    for name in "ab":
        run = open_run(tmp_path / name)
        run.write("verdicts", run.read("verdicts").assign(rater_kind="human", rater="rater 1"))
        (tmp_path / f"{name}.parquet").write_bytes(pack_run(run, f"Lab {name}"))
    assert join_packs(two_labs).verdicts["rater"].unique().tolist() == [
        "Lab a: rater 1",
        "Lab b: rater 1",
    ]


def test_the_commands_pack_and_join(two_labs, tmp_path, capsys):
    assert main(["join", *map(str, two_labs), "--run", str(tmp_path / "pooled")]) == 0
    said = capsys.readouterr().out
    assert "of 2 labs, resampled as clusters" in said
    assert "Provisional: 2 labs are few" in said
    run = open_run(tmp_path / "pooled")
    assert len(run.read("verdicts")) == 576
    assert set(run.manifest["pooled"]) == {"Lab a", "Lab b"}
    assert main(["join", str(two_labs[0])]) == 2
    assert "One file is no pool" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "lab", "said"),
    [
        ({"rater": "ann@example.org"}, "Lab a", "verdicts.rater: e-mail addresses .*Nothing was"),
        (
            {"group": "by ann@example.org"},
            "Lab a",
            "verdicts.group: e-mail addresses .*Nothing was",
        ),
        ({}, "ann@example.org", "its manifest: an e-mail address"),
    ],
)
def test_what_names_people_is_not_packed(change, lab, said, tmp_path, served):
    run = write_run(tmp_path / "a", THETA)
    run.read("verdicts").assign(**change).to_parquet(run.folder / "verdicts.parquet")
    with pytest.raises(IdentityError, match=said) as caught:
        pack_run(run, lab)
    assert "ann@" not in str(caught.value)
