"""Histories told again so that the seeker resists: what a rewrite may change, and what not."""

import json

import pandas as pd
import pytest
import yaml

from heart_collect import accept_rewrites, check_rewrites
from heart_collect.calls.ledger import open_ledger
from heart_collect.calls.models import Model
from heart_collect.collection import rewriting_step
from heart_collect.judging.prompts import show_turns
from heart_collect.judging.recipe import Recipe, RecipeError, read_recipe
from heart_collect.judging.rewriting import collect_rewrites, read_turns
from heart_collect.judging.steps import Tables
from heart_utils import find_root, load_histories

TURNS = [
    {"speaker": "seeker", "text": "My landlord sold the flat in June and I sleep on a sofa."},
    {"speaker": "supporter", "text": "Since June. Whose sofa is it?"},
    {"speaker": "seeker", "text": "My brother lets me, but his lease forbids guests after Sunday."},
]
GOOD = [
    {
        "speaker": "seeker",
        "text": "Landlord sold the flat in June, I sleep on a sofa. Why bother telling you.",
    },
    TURNS[1],
    {
        "speaker": "seeker",
        "text": "My brother's. Lease forbids guests after Sunday. So what, you people only ask.",
    },
]
HISTORY = pd.DataFrame({"history_id": ["h"], "turns": [TURNS], "dialogue_id": "h"})


@pytest.fixture(scope="module")
def history():
    return load_histories(HISTORY)


def rewrite(*texts, state="valid"):
    return pd.DataFrame({"history_id": "h", "state": state, "text": list(texts)})


def changed(number, **what):
    return [turn | what if at == number else turn for at, turn in enumerate(GOOD)]


def why(history, turns):
    (reasons,) = check_rewrites(history, rewrite(show_turns(turns)))["why"]
    return reasons


def test_a_rewrite_that_changes_how_help_is_taken_and_nothing_else_is_accepted(history):
    assert why(history, GOOD) == []
    (made,) = accept_rewrites(history, rewrite(show_turns(GOOD))).to_dict("records")
    assert (made["slice"], made["twin_id"], made["dialogue_id"]) == ("adversarial", "h", "h")
    assert made["history_id"] != "h"
    assert made["turns"] == GOOD


@pytest.mark.parametrize(
    ("turns", "reason"),
    [
        (TURNS, "it is the original"),
        (GOOD[:2], "the last turn is not the seeker's"),
        (GOOD[:2], "a turn of the seeker is missing or new"),
        ([*GOOD, GOOD[0]], "a turn of the seeker is missing or new"),
        (changed(1, text="You should talk to him."), "a turn of the supporter is not kept"),
        (changed(2, text=GOOD[2]["text"] + " Ask my sister."), "it adds somebody: sister"),
        (
            changed(2, text=GOOD[2]["text"] + " Says Mister Hartigan."),
            "it adds somebody: hartigan, mister",
        ),
        (changed(2, text="So what. I want to die."), "it speaks of harm"),
        (changed(2, text=GOOD[2]["text"] * 4), "it is too short or too long"),
        (
            [GOOD[0] | {"text": "Whatever."}, GOOD[1], GOOD[2] | {"text": "Forget it."}],
            "the seeker's facts are not kept",
        ),
        (
            [TURNS[0], TURNS[1], changed(2, text="My brother's, until Sunday, by his lease.")[2]],
            "the seeker does not push back",
        ),
    ],
)
def test_what_a_rewrite_must_not_change(history, turns, reason):
    assert reason in why(history, turns)
    assert accept_rewrites(history, rewrite(show_turns(turns))).empty


def test_of_several_rewrites_the_first_that_passes_counts_and_none_is_lost(history):
    several = rewrite(show_turns(TURNS), show_turns(GOOD), "I cannot do that.")
    assert check_rewrites(history, several)["why"].str.len().tolist() == [2, 0, 1]
    assert accept_rewrites(history, several)["turns"].tolist() == [GOOD]
    failed = rewrite(None, state="error")
    assert check_rewrites(history, failed)["why"].tolist() == [["the call: error"]]
    with pytest.raises(ValueError, match="other is none of the histories"):
        check_rewrites(history, failed.assign(history_id="other"))


def test_speakers_are_read_whatever_stands_around_them():
    text = "Here it is:\n**Seeker:** So what.\n\nSupporter: Tell me\nmore.\nSeeker: No."
    assert [turn["speaker"] for turn in read_turns(text)] == ["seeker", "supporter", "seeker"]
    assert read_turns(text)[1]["text"] == "Tell me more."


@pytest.mark.parametrize("number", range(24))
def test_every_history_of_the_sample_is_read_back_as_it_was_written_down(number):
    turns = load_histories("sample")["turns"][number]
    assert read_turns(show_turns(turns)) == [
        turn | {"text": " ".join(turn["text"].split())} for turn in turns
    ]


def test_the_step_asks_about_standard_histories_and_flags_what_it_refuses():
    answer = json.dumps({"mock_response": show_turns(TURNS)})
    model = Model("m", "openai/gpt-4o", options=json.loads(answer))
    recipe = Recipe("mine", "sample", rewrites="adversarial", rewriters=(model,))
    ledger, histories = open_ledger("sqlite://"), load_histories("sample")
    step, tables = rewriting_step(recipe), Tables(histories)
    assert step.plan(tables, ledger)["n_calls"].tolist() == [24]
    made = step.run(tables, ledger, progress=False)
    assert made["state"].eq("valid").all()
    assert len(made) == 24
    assert made["flags"].map(lambda flags: "the seeker's facts are not kept" in flags).all()
    assert accept_rewrites(histories, made).empty
    assert collect_rewrites(histories, (), ledger=ledger).empty


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"rewrites": "adversarial"}, "rewrites: adversarial needs rewriters"),
        ({"rewriters": [{"name": "m", "model": "embedded"}]}, "only with rewrites: adversarial"),
        ({"rewrites": "calm"}, "rewrites"),
    ],
)
def test_a_recipe_that_makes_no_sense_is_refused_with_a_sentence(tmp_path, settings, said):
    file = tmp_path / "mine.yaml"
    file.write_text(yaml.safe_dump({"collect": {"histories": "sample", **settings}}))
    with pytest.raises(RecipeError, match=said):
        read_recipe(str(file.with_suffix("")))


@pytest.mark.skipif("not __import__('os').environ.get('HEART_DATA_MIRROR')")
def test_the_facts_of_hearts_twenty_rewrites_follow_from_their_texts():
    histories = load_histories("heart", twins=True)
    adversarial = histories[histories["slice"] == "adversarial"]
    found = check_rewrites(
        histories,
        pd.DataFrame(
            {
                "history_id": adversarial["twin_id"],
                "state": "valid",
                "text": adversarial["turns"].map(show_turns),
            }
        ),
    ).reset_index(drop=True)
    kept = pd.read_csv(find_root() / "data" / "heart" / "heart_rewrites.csv", keep_default_na=False)
    numbers = ["facts_kept", "supporter_kept", "pushes_back", "length"]
    pd.testing.assert_frame_equal(found[numbers].round(3), kept[numbers], check_dtype=False)
    reasons = found["why"].map(lambda one: "; ".join(fault.split(":")[0] for fault in one))
    assert reasons.tolist() == kept["why"].tolist()
