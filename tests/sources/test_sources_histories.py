import pandas as pd
import pytest

from heart_utils.runs import find_root
from heart_utils.sources.load import load_histories, load_replies

pytestmark = pytest.mark.mirror


@pytest.fixture(scope="module")
def heart(mirror):
    return load_histories("heart", twins=True)


@pytest.fixture(scope="module")
def replies(mirror):
    return load_replies("heart", twins=True)


@pytest.fixture(scope="module")
def esconv(mirror):
    return load_histories("esconv")


def standard(heart, item):
    return heart[heart["history_id"] == f"heart-{item:03d}"].iloc[0]


def test_heart_has_280_standard_and_20_adversarial_histories_and_twins_on_demand(heart, mirror):
    assert heart["slice"].value_counts().to_dict() == {
        "standard": 280,
        "adversarial": 20,
        "calm_twin": 20,
    }
    without = load_histories("heart")
    assert len(without) == 300
    assert without["twin_id"].isna().all()


def test_every_rebuilt_history_has_the_turns_and_speakers_that_the_index_says(heart):
    index = pd.read_csv(find_root() / "data" / "heart" / "heart_regular_index.csv")
    rebuilt = heart[heart["slice"] == "standard"].reset_index(drop=True)
    assert rebuilt["turns"].map(len).tolist() == index["n_history"].tolist()
    assert [turns[0]["speaker"] for turns in rebuilt["turns"]] == index["first_speaker"].tolist()
    assert [turns[-1]["speaker"] for turns in rebuilt["turns"]] == index["last_speaker"].tolist()
    assert rebuilt["emotion"].tolist() == index["emotion_type"].tolist()
    assert rebuilt["dialogue_id"].nunique() == 262
    assert rebuilt["turns"].map(len).mean() == pytest.approx(8.0, abs=0.05)
    assert (rebuilt["turns"].map(len).min(), rebuilt["turns"].map(len).max()) == (1, 29)


def test_speakers_alternate_in_every_history(heart, esconv):
    for turns in [*heart["turns"], *esconv["turns"]]:
        assert all(
            one["speaker"] != next_["speaker"] for one, next_ in zip(turns, turns[1:], strict=False)
        )


def test_only_item_82_ends_with_the_supporter_and_it_is_kept_flagged_and_unanswered(heart, replies):
    ends = [turns[-1]["speaker"] == "supporter" for turns in heart["turns"]]
    assert heart.loc[ends, "history_id"].tolist() == ["heart-082"]
    assert "ends_with_supporter" in standard(heart, 82)["flags"]
    assert "heart-082" not in set(replies["history_id"])


def test_flags_name_the_misplaced_baselines_and_the_damaged_texts(heart):
    flagged = {
        flag: [
            name
            for name, flags in zip(heart["history_id"], heart["flags"], strict=True)
            if flag in flags
        ]
        for flag in ("baseline_misplaced", "damaged_text", "repeated_history")
    }
    assert flagged["baseline_misplaced"] == [
        f"heart-{item:03d}" for item in (43, 82, 91, *range(93, 102))
    ]
    assert flagged["damaged_text"] == ["heart-080", "heart-082", "heart-090"]
    assert flagged["repeated_history"] == ["heart-calm-19"]


def test_the_damaged_texts_are_whole_again(heart):
    for item in (80, 82, 90):
        text = " ".join(turn["text"] for turn in standard(heart, item)["turns"])
        assert text.count('"') == 2
    assert standard(heart, 82)["turns"][-1]["text"].endswith(".")


def test_roles_are_swapped_by_parity_in_152_of_280_and_20_of_20(heart):
    def swapped(turns):
        parity = ("seeker", "supporter")
        return any(turn["speaker"] != parity[n % 2] for n, turn in enumerate(turns))

    by_slice = heart["turns"].map(swapped).groupby(heart["slice"]).sum()
    assert by_slice[["standard", "adversarial"]].tolist() == [152, 20]
    licences = heart.groupby(heart["slice"] == "adversarial")["licence"].unique().map(list)
    assert licences.to_dict() == {False: ["CC-BY-NC-4.0"], True: ["none stated"]}


def test_twins_are_linked_both_ways_share_a_dialogue_and_have_as_many_seeker_turns(heart):
    by_name = heart.set_index("history_id")
    for name, row in by_name[by_name["slice"] != "standard"].iterrows():
        other = by_name.loc[row["twin_id"]]
        assert other["twin_id"] == name
        assert other["dialogue_id"] == row["dialogue_id"]
        assert other["turns"][-1]["speaker"] == "seeker"
        assert sum(t["speaker"] == "seeker" for t in other["turns"]) == sum(
            t["speaker"] == "seeker" for t in row["turns"]
        )
        assert (other["emotion"], other["problem"]) == (row["emotion"], row["problem"])


def test_rewrites_of_one_dialogue_share_it_and_none_is_among_the_280(heart):
    dialogue = heart.set_index("history_id")["dialogue_id"]
    assert dialogue["heart-adv-08"] == dialogue["heart-adv-17"]
    assert dialogue["heart-adv-14"] == dialogue["heart-adv-19"]
    by_slice = heart.groupby("slice")["dialogue_id"].agg(set)
    assert len(by_slice["adversarial"]) == 18
    assert not by_slice["adversarial"] & by_slice["standard"]


def test_a_true_next_turn_answers_every_history_that_has_one(heart, replies, esconv):
    assert len(replies) == 279 + 20
    whole = esconv.set_index("history_id")["turns"]
    cut = heart.set_index("history_id")
    for history, text in zip(replies["history_id"], replies["text"], strict=True):
        row = cut.loc[history]
        assert whole[row["dialogue_id"]][: len(row["turns"])] == row["turns"]
        assert whole[row["dialogue_id"]][len(row["turns"])] == {
            "speaker": "supporter",
            "text": text,
        }
    assert replies["responder"].unique().tolist() == ["esconv-supporter"]
    assert not replies["history_id"].str.startswith("heart-adv").any()


def test_esconv_has_1300_dialogues_with_strategies_and_the_seekers_scores(esconv):
    """Liu et al. (2021) count 1,300 dialogues; the splits here have 910, 195 and 195."""
    assert esconv["history_id"].str.split("-").str[1].value_counts().to_dict() == {
        "train": 910,
        "valid": 195,
        "test": 195,
    }
    n_supporter = [
        sum(turn["speaker"] == "supporter" for turn in turns) for turns in esconv["turns"]
    ]
    assert esconv["strategies"].map(len).tolist() == n_supporter
    raw = esconv["strategies"].explode().str.split(" + ", regex=False).explode()
    assert len(raw) == 18376
    assert raw.nunique() == 8
    assert esconv["distress_before"].notna().all()
    for column in ("distress_after", "seeker_empathy", "seeker_relevance"):
        assert esconv[column].isna().sum() == 150
    assert esconv["flags"].map(lambda flags: "ends_with_supporter" in flags).sum() == 875
    assert (esconv["distress_after"] < esconv["distress_before"]).sum() > 1100


def test_every_supporter_turn_of_esconv_is_a_reply_of_a_person(mirror, esconv):
    found = load_replies("esconv")
    assert len(found) == esconv["strategies"].map(len).sum() == 15325
    place = found["reply_id"].str.extract(r"(.+)--t(\d+)$")
    turns = esconv.set_index("history_id")["turns"]
    for history, number, text in zip(
        place[0][:500], place[1][:500].astype(int), found["text"][:500], strict=True
    ):
        assert turns[history][number]["text"] == text
    flags = found["flags"].explode().value_counts()
    first = found.groupby("history_id").head(1)
    assert first["flags"].map(lambda flags: "greeting" in flags).sum() == flags["greeting"] > 900
    assert flags["over_40_words"] == (found["text"].str.split().str.len() > 40).sum()
