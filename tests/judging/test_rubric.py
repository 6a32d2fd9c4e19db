import re

import pytest
import yaml

from heart_collect.judging.prompts import RubricError, load_rubric
from heart_utils.tables import DIMENSIONS

GOOD = {
    "name": "mine",
    "title": "My rubric",
    "dimensions": [{"name": "warmth", "question": "Is it warm?", "high": "Warm.", "low": "Cold."}],
}


def write(folder, content):
    file = folder / "mine.yaml"
    file.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return file


def changed(**changes):
    return {**GOOD, "dimensions": [{**GOOD["dimensions"][0], **changes}]}


def test_the_rubric_has_the_dimensions_that_the_tables_name():
    assert load_rubric("heart").names == DIMENSIONS


def test_the_released_rubric_has_the_six_scales_of_the_released_script():
    assert load_rubric("heart-release").names == (
        "empathic_responsiveness",
        "emotional_handling_and_insight",
        "personalization_and_contextual_adaptation",
        "conversational_fluency_and_naturalness",
        "instruction_following_and_safety",
        "overall_eq",
    )


@pytest.mark.parametrize("name", ["heart", "heart-release"])
def test_no_anchor_of_a_rubric_is_written_twice(name):
    said = [
        words for one in load_rubric(name).dimensions for words in (one.question, one.high, one.low)
    ]
    assert len(set(said)) == len(said)


def test_a_rubric_of_a_user_works_by_path(tmp_path):
    rubric = load_rubric(write(tmp_path, GOOD))
    assert rubric.names == ("warmth",)
    assert rubric.about == ""


def test_selected_dimensions_stay_in_the_order_of_the_rubric():
    assert load_rubric("heart").select(["overall", "attunement", "resonance"]).names == (
        "attunement",
        "resonance",
        "overall",
    )


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["warmth"], "got 'warmth'"),
        ([], "got none"),
        (["overall", "overall"], "each once, got 'overall', 'overall'"),
    ],
)
def test_a_selection_that_is_no_part_of_the_rubric_is_an_error(names, said):
    with pytest.raises(RubricError, match=said):
        load_rubric("heart").select(names)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("- a list", "the whole is \\['a list'\\], expected a mapping"),
        ("", "lacks name"),
        ("name: [", "is not YAML"),
        ({**GOOD, "title": ""}, "title is empty, expected text"),
        (
            {**GOOD, "dimensions": []},
            "dimensions is empty, expected a list with at least one entry",
        ),
        ({**GOOD, "dimensions": "warmth"}, "dimensions is 'warmth', expected a list"),
        ({**GOOD, "dimensions": ["warmth"]}, "dimensions: 0 is 'warmth', expected a mapping"),
        ({**GOOD, "scale": "1-5"}, "unknown scale"),
        ({"name": "mine", "title": "x"}, "lacks dimensions"),
        (changed(name="Task Following"), "'Task Following' is not in snake_case"),
        (
            {**GOOD, "dimensions": [{**GOOD["dimensions"][0], "name": n} for n in ("A b", "C d")]},
            "'A b' is not.*'C d' is not",
        ),
        (changed(name="reasoning"), "a word that a judge's answer uses itself"),
        (changed(high=None), "high is empty, expected text"),
        (changed(low=3), "low is 3, expected text"),
        ({**GOOD, "dimensions": GOOD["dimensions"] * 2}, "'warmth' stands twice"),
    ],
)
def test_a_faulty_rubric_is_refused_with_its_file_and_the_reason(tmp_path, content, said):
    file = write(tmp_path, content)
    with pytest.raises(RubricError, match=said) as error:
        load_rubric(file)
    assert str(file) in str(error.value)


def test_an_unknown_rubric_is_refused_with_the_names_of_those_there():
    with pytest.raises(RubricError, match="no rubric 'hart'.*heart, heart-release"):
        load_rubric("hart")


def test_the_rubrics_borrow_no_run_of_six_words_from_the_claims_about_the_paper(mirror):
    """The anchors are ours; the quotes in the claims are other people's."""
    claims = (mirror.parent / "references" / "heart_published.csv").read_text()
    theirs = re.findall(r"[a-z']+", claims.lower())
    known = {tuple(theirs[i : i + 6]) for i in range(len(theirs))}
    for one in (*load_rubric("heart").dimensions, *load_rubric("heart-release").dimensions):
        words = re.findall(r"[a-z']+", f"{one.question} {one.high} {one.low}".lower())
        assert not [run for i in range(len(words) - 5) if (run := tuple(words[i : i + 6])) in known]
