import pandas as pd
import pytest
from builders import histories

from heart_utils.replies.cues import EMOTION_WORDS, count_cues, describe_turns


def test_words_are_counted_whole_and_in_any_case():
    counts = count_cues(pd.Series(["SAD, sad and saddle", "madness is not mad", "fed up, sick of it", ""]))
    assert counts["sadness"].tolist() == [2, 0, 0, 0]
    assert counts["anger"].tolist() == [0, 1, 0, 0]
    assert counts["disgust"].tolist() == [0, 0, 2, 0]
    assert counts["explicit"].tolist() == [True, True, True, False]


def test_no_word_names_two_families():
    words = [word for family in EMOTION_WORDS.values() for word in family]
    assert len(words) == len(set(words))


def test_a_history_is_measured_by_speaker_and_not_by_parity():
    turns = [
        {"speaker": "supporter", "text": "Hello there"},
        {"speaker": "seeker", "text": "I am worried"},
        {"speaker": "seeker", "text": "The letter came today"},
    ]
    row = describe_turns(histories(turns=[turns])).iloc[0]
    assert row[["n_turns", "first_speaker", "last_speaker"]].tolist() == [3, "supporter", "seeker"]
    assert row["seeker_words"] == pytest.approx(7 / 2)  # 3 and 4 words
    assert row["supporter_words"] == 2
    assert row["explicit"]
    assert not row["explicit_last"]


def test_who_never_speaks_has_no_mean_length():
    row = describe_turns(histories()).iloc[0]
    assert pd.isna(row["supporter_words"])
