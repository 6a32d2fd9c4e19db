"""HeartBench's questions: counts against the published ones, names in both languages, and files of
one's own."""

import json

import pandas as pd
import pytest

from heart_utils.runs import find_root, may_publish
from heart_utils.sources.catalogue import find_source
from heart_utils.sources.heart import load_question_histories, load_questions, load_rubric_items
from heart_utils.tables import DataError

LINE = {
    "question_id": "Q1",
    "rubric": [{"dimension": "Warmth", "score": 3, "content": "says that it cares"}],
    "dialogue": [{"role": "A", "content": "Nobody asked how I am."}],
}


def write(folder, *lines):
    file = folder / "mine.jsonl"
    file.write_text(
        "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines),
        encoding="utf-8",
    )
    return file


def test_a_rubric_of_ones_own_is_read(tmp_path):
    file = write(tmp_path, LINE)
    questions = load_questions(file)
    assert questions[["item", "ability", "points"]].to_numpy().tolist() == [["Q1-01", "warmth", 3]]
    turns = [{"speaker": "seeker", "text": "Nobody asked how I am."}]
    told = {"source": "mine", "licence": "none stated", "turns": turns}
    assert load_question_histories(file)[list(told)].to_dict("records") == [told]
    assert not may_publish(find_source("heartbench").licence)


BAD = {
    "line 2 is not JSON": [LINE, "{"],
    "expected question_id, rubric, dialogue": [{**LINE, "rubric": []}],
    "'Q1' was there before": [LINE, LINE],
    "rubric item 1 lacks": [{**LINE, "rubric": [{"dimension": "x", "score": 1}]}],
    "has the score '3'": [{**LINE, "rubric": [{**LINE["rubric"][0], "score": "3"}]}],
    "rubric item 1 has a score of 0": [{**LINE, "rubric": [{**LINE["rubric"][0], "score": 0}]}],
    "no rubric item has a score above 0": [
        {**LINE, "rubric": [{**LINE["rubric"][0], "score": -2}]}
    ],
    "turn 1 is not a role": [{**LINE, "dialogue": [{"role": "C", "content": "x"}]}],
    "last turn is not the user's": [
        {**LINE, "dialogue": [*LINE["dialogue"], {"role": "B", "content": "x"}]}
    ],
    "it is empty": [],
}


@pytest.mark.parametrize("message", BAD)
def test_a_bad_file_names_the_line(tmp_path, message):
    with pytest.raises(DataError, match=message):
        load_questions(write(tmp_path, *BAD[message]))


def test_names_are_unique_in_both_languages():
    names = pd.read_csv(find_root() / "data" / "heartbench" / "names.csv")
    assert not names.duplicated(["kind", "zh"]).any()
    assert not names.duplicated(["kind", "name"]).any()
    assert names["kind"].value_counts().to_dict() == {
        "subscene": 33,
        "ability": 16,
        "dimension": 5,
        "scene": 5,
    }


@pytest.fixture(scope="module")
def questions(mirror):
    return load_questions()


@pytest.fixture(scope="module")
def published():
    return pd.read_csv(find_root() / "data" / "published" / "heartbench_counts.csv")


@pytest.mark.mirror
def test_the_points_that_come_with_the_project_are_those_of_the_official_file(questions):
    rubric = load_rubric_items()
    pd.testing.assert_frame_equal(rubric, questions[list(rubric)])


@pytest.mark.mirror
def test_296_questions_hold_3114_items(questions):
    per_question = questions.drop_duplicates("question_id")
    assert per_question["difficulty"].value_counts().to_dict() == {"normal": 212, "hard": 84}
    assert len(questions) == 3114
    assert (questions["ability"] != "special").sum() == 2818
    assert per_question["n_turns"].value_counts().to_dict() == {
        9: 99,
        1: 89,
        3: 46,
        5: 33,
        7: 28,
        4: 1,
    }


@pytest.mark.mirror
def test_items_by_ability_and_dimension_are_as_published(questions, published):
    scored = questions[questions["ability"] != "special"]
    printed = published[published["what"] == "items"].set_index("name")["count"]
    abilities = scored["ability"].value_counts()
    assert abilities.to_dict() == printed[abilities.index].to_dict()
    dimensions = scored["dimension"].value_counts()
    assert dimensions.to_dict() == printed[dimensions.index].to_dict()


@pytest.mark.mirror
def test_scenes_differ_from_the_published_table(questions, published):
    scenes = questions.drop_duplicates("question_id")["scene"].value_counts(dropna=False)
    printed = published[published["kind"] == "scene"].set_index("name")["count"]
    difference = (scenes[printed.index] - printed).to_dict()
    assert difference == {
        "personal_growth": 11,
        "interpersonal_and_social_development": -15,
        "workplace_psychology": -1,
        "family_relationships": 0,
        "intimate_relationships": 0,
    }
    assert questions.drop_duplicates("question_id")["scene"].isna().sum() == 5


@pytest.mark.mirror
def test_a_rubric_has_up_to_23_items_where_15_are_published(questions, published):
    sizes = questions.groupby("question_id").size()
    printed = published[published["kind"] == "per question"].set_index("name")["count"]
    assert (sizes.min(), sizes.max()) == (4, 23)
    assert (printed["fewest"], printed["most"]) == (4, 15)


@pytest.mark.mirror
def test_33_scenarios_are_there_as_published(questions, published):
    assert (
        questions["subscene"].nunique()
        == published.set_index("kind").loc["scenarios", "count"]
        == 33
    )


@pytest.mark.mirror
def test_one_question_has_two_veto_items_and_one_has_none(questions):
    n = (questions["ability"] == "special").groupby(questions["question_id"]).sum()
    assert n.value_counts().to_dict() == {1: 294, 2: 1, 0: 1}


@pytest.mark.mirror
def test_every_name_in_the_data_is_translated(questions):
    named = set(pd.read_csv(find_root() / "data" / "heartbench" / "names.csv")["name"])
    assert (
        set(questions["ability"])
        | set(questions["scene"].dropna())
        | set(questions["subscene"].dropna())
        <= named
    )


@pytest.mark.mirror
def test_dialogues_end_with_the_seeker(mirror):
    histories = load_question_histories()
    assert histories["turns"].map(lambda turns: turns[-1]["speaker"]).eq("seeker").all()
    speakers = histories["turns"].map(lambda turns: [turn["speaker"] for turn in turns])
    assert speakers.map(lambda s: any(a == b for a, b in zip(s, s[1:], strict=False))).sum() == 3
    assert speakers.explode().value_counts().to_dict() == {"seeker": 892, "supporter": 591}
