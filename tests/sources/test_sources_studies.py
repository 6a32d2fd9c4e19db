"""The four studies that set people beside models: counted a second way, and every odd file
named."""

import json
import shutil

import pandas as pd
import pytest

from data.make.official import derive
from heart_utils.runs import open_run
from heart_utils.sources import catalogue
from heart_utils.sources.load import load_scores
from heart_utils.tables import DataError

OWN = "recipients/perceived_empathy_self_ratings.csv"
RATED, POSTS, HARD = (
    "welivita/dataset_and_ratings.csv",
    "resort/human_eval_annotations_cleaned.json",
    "therapists/all_combined.csv",
)

pytestmark = pytest.mark.mirror


@pytest.fixture(scope="module")
def raw(mirror):
    """The official files, read by pandas alone."""
    tables = {name: pd.read_csv(mirror / name) for name in (OWN, RATED, HARD)}
    return tables | {
        POSTS: pd.json_normalize(json.loads((mirror / POSTS).read_text(encoding="utf-8")))
    }


@pytest.fixture
def spoilt(mirror, raw, tmp_path, monkeypatch):
    """Write a mirror in which one file was changed and its checksum is known."""
    monkeypatch.setattr(catalogue, "_check", lambda source, file, path, keep: path)

    def write(name, change):
        folder, _, file = name.partition("/")
        shutil.copytree(mirror / folder, tmp_path / folder)
        table = change(raw[name].copy())
        if name == POSTS:
            (tmp_path / name).write_text(table.to_json(orient="records"))
        else:
            table.to_csv(tmp_path / name, index=False)
        monkeypatch.setenv("HEART_DATA_MIRROR", str(tmp_path))

    return write


# What is published is what the files say, counted another way
# -----------------------------------------


def tallied(name):
    return open_run("public").read("tallies", name)


def test_tallies_of_strangers_are_the_comparisons_of_2000_messages(raw):
    rows, tallies = raw[RATED], tallied("welivita")
    arms = {"person": "human", "gpt-4": "chatgpt", "gpt-4-empathy": "chatgpt_empathy"}
    for (by, a, b), counted in tallies.groupby(["by", "responder_a", "responder_b"]):
        gap = rows[f"rating_{arms[a]}"] - rows[f"rating_{arms[b]}"]
        assert counted[["n_a", "n_tie", "n_b"]].sum().tolist() == [
            (gap > 0).sum(),
            (gap == 0).sum(),
            (gap < 0).sum(),
        ], by
    told = tallied("welivita").query("by == 'batch' and responder_b == 'gpt-4' and longer != 'b'")
    kept = rows[
        rows["response_human"].str.split().str.len()
        >= rows["response_chatgpt"].str.split().str.len()
    ]
    assert told["n_b"].sum() == (kept["rating_chatgpt"] > kept["rating_human"]).sum()
    emotions = tallied("welivita").query(
        "by == 'emotion' and responder_a == 'person' and responder_b == 'gpt-4'"
    )
    ties = rows[rows["rating_chatgpt"] == rows["rating_human"]].groupby("emotion").size()
    assert emotions.set_index("cluster")["n_tie"].to_dict() == ties.to_dict()


def test_classes_of_hard_moments_follow_but_for_replies_that_are_not_there(raw):
    rows, scores = raw[HARD], load_scores("therapists")
    there = rows[rows["model_response"].notna() | (rows["participant_type"] != "llama2-70b")]
    assert scores["score"].notna().sum() == len(there) == 1707
    assert scores.loc[scores["score"].isna(), "responder"].unique().tolist() == ["llama-2-70b"]
    shares = scores.groupby(["responder", "dialogue_id"])["score"].mean()
    right = there.groupby(["participant_type", "id"])["correct_response"].mean()
    assert shares["therapist"].to_dict() == pytest.approx(right["human_therapist"].to_dict())
    assert shares["llama-2-70b"].to_dict() == pytest.approx(right["llama2-70b"].to_dict())
    by_number = scores.dropna(subset="author_id").groupby("author_id")["reply_id"].size()
    # two of the release's six numbers stand for several therapists
    assert by_number.tolist() == [5, 5, 30, 5, 5, 30]


# Bad input
# ------------------------------------------------------------------------------------------


def put(column, row, value):
    def change(table):
        table[column] = table[column].astype(object)
        table.loc[row, column] = value
        return table

    return change


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        (
            OWN,
            put("labelR", 3, "no label"),
            "row 3 has labelR 'no label'; expected human label or ai label",
        ),
        (
            OWN,
            put("responseR", 0, "cat"),
            "row 0 has responseR 'cat'; expected human response or ai response",
        ),
        (OWN, put("seen", 5, 8), "row 5 has seen 8; expected 1 to 7"),
        (OWN, lambda table: table.drop(columns="caredfor"), "missing caredfor"),
        (OWN, lambda table: table.assign(zodiac=1), "116 columns, 115 were expected"),
        (OWN, lambda table: table.iloc[1:], "it names recipients whom|454 rows, 455 were expected"),
        (RATED, lambda table: table.iloc[:-1], "1999 rows, 2000 were expected"),
        (RATED, put("rating_human", 7, 4), "row 7 has rating_human 4; expected 1 or 2 or 3"),
        (
            RATED,
            put("annotator_chatgpt", 12, "x"),
            "batch 1 has 2 raters of the arm chatgpt; expected one",
        ),
        (POSTS, put("model", 2, "gpt-9"), "row 2 has model 'gpt-9'; expected oracle_response or"),
        (
            POSTS,
            put("human_eval_annotation_2.empathy", 4, 6),
            "row 4 has empathy 6.*; expected 1 to 5",
        ),
        (
            HARD,
            put("participant_type", 9, "Eliza"),
            "row 9 has participant_type 'Eliza'; expected human_therapist or",
        ),
        (
            HARD,
            put("human_classification", 1760, "maybe"),
            "row 1760 has a class that is neither yes nor no",
        ),
        (
            HARD,
            put("human_classification", 1760, "yes"),
            "row 1760 has a class that contradicts correct_response",
        ),
        (HARD, put("human_classification", 1760, None), "row 1760 has a reply without a class"),
    ],
)
def test_an_odd_file_is_named_with_its_row_or_number(spoilt, name, change, said):
    spoilt(name, change)
    with pytest.raises(DataError, match=said):
        derive(name.partition("/")[0])
