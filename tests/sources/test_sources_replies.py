import pytest

from heart_utils.sources.catalogue import DataUnavailableError
from heart_utils.sources.heart import flag_reply
from heart_utils.sources.load import load_histories, load_replies, load_responders


def test_strict_sets_without_a_mirror_say_what_to_do(monkeypatch, tmp_path):
    monkeypatch.delenv("HEART_DATA_MIRROR", raising=False)
    monkeypatch.setenv("HEART_DATA_CACHE", str(tmp_path))
    for name in ("heart", "esconv"):
        with pytest.raises(DataUnavailableError, match="make data NAME=esconv"):
            load_histories(name)


@pytest.mark.parametrize(
    ("text", "before", "after", "flags"),
    [
        ("Hi! What is on your mind?", 0, 9, ["greeting"]),
        ("Good, how are you?", 0, 9, ["greeting"]),
        ("Hey, that sounds hard.", 3, 9, []),
        ("I see. Tell me more.", 0, 9, []),
        ("Take care of yourself when you can.", 9, 1, []),
        ("Take care!", 9, 1, ["closing"]),
        ("Goodnight, and good luck.", 9, 0, ["closing"]),
        ("Try to get a good night's sleep.", 9, 0, []),
        ("Have a wonderful evening!", 2, 9, []),
        ("Well. " + "word " * 40, 3, 3, ["over_40_words"]),
        ("word " * 40, 3, 3, []),
    ],
)
def test_greetings_closings_and_long_replies_are_flagged_by_rule(text, before, after, flags):
    assert flag_reply(text, n_before=before, n_after=after) == flags


def test_the_samples_reference_replies_are_not_human():
    found = load_replies("sample")
    assert set(found["history_id"]) == set(load_histories("sample")["history_id"])
    assert load_responders("sample").set_index("responder").loc[
        found["responder"].unique(), "responder_kind"
    ].tolist() == ["reference"]
