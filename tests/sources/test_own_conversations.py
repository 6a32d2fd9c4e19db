"""Whole conversations of one's own: what a file must say, and what keeps one from being judged."""

import json

import pandas as pd
import pytest

from heart_utils import check_table, load_conversations
from heart_utils.tables import ENDS, DataError

TURNS = [
    {"speaker": "supporter", "text": "What happened?"},
    {"speaker": "seeker", "text": "She left."},
]


def mine(**columns):
    rows = pd.DataFrame({"history_id": "h", "responder": ["ann", "bot"], "seeker": "s1"})
    return rows.assign(turns=[TURNS, TURNS * 2]).assign(**columns)


def test_a_conversation_is_named_by_start_seeker_responder_and_repeat():
    loaded = load_conversations(mine(repeat=[0, 2]))
    assert loaded["conversation_id"].tolist() == ["h--s1--ann", "h--s1--bot--r2"]
    assert loaded["history_id"].tolist() == ["h--s1"] * 2  # of one start and one seeker
    assert loaded[["start_id", "dialogue_id"]].to_numpy().tolist() == [["h", "h"]] * 2
    assert loaded["n_exchanges"].tolist() == [1, 2]


def test_a_file_may_hold_turns_as_json(tmp_path):
    rows = mine()
    rows.assign(turns=rows["turns"].map(json.dumps)).to_csv(tmp_path / "mine.csv", index=False)
    assert load_conversations(tmp_path / "mine.csv")["n_exchanges"].tolist() == [1, 2]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"n_exchanges": [1, 7]}, "came in half is not judged; row 1 has '7 and turns with 2'"),
        ({"turns": [TURNS, []]}, "an exchange where the state is valid; row 1"),
        ({"turns": [TURNS, TURNS[:1]]}, "an exchange where the state is valid; row 1"),
        ({"turns": [TURNS, [{"speaker": "bot", "text": "x"}]]}, "turn 0 is spoken by 'bot'"),
        ({"turns": [TURNS, [{"speaker": "seeker", "text": " "}]]}, "turn 0 has no text"),
        ({"stop_reason": "repeated", "state": "valid"}, "the state that its end means"),
        ({"stop_reason": "bored"}, "expected one of length, seeker_ended"),
        ({"stop_reason": "length", "stopped_by": "seeker"}, "nobody where no turn was the reason"),
        ({"call_ids": [["c"] * 9, []]}, "a call a turn"),
        ({"responder": "ann"}, "conversation_id"),
    ],
)
def test_what_is_no_whole_conversation_is_named(change, said):
    rows = mine(**{k: v for k, v in change.items() if k != "turns"})
    with pytest.raises(DataError, match=said):
        load_conversations(rows.assign(turns=change.get("turns", rows["turns"])))


@pytest.mark.parametrize(("reason", "state"), ENDS.items())
def test_an_end_means_a_state_and_only_two_ends_are_valid(reason, state):
    loaded = load_conversations(mine(stop_reason=reason))
    assert set(loaded["state"]) == {state}
    assert (state == "valid") == (reason in ("length", "seeker_ended"))


def test_conversations_stay_themselves_through_a_file(tmp_path):
    loaded = load_conversations(mine(call_ids=[["c1", None], ["c1", None, "c3", "c4"]]))
    loaded.to_parquet(tmp_path / "c.parquet")
    again = check_table("conversations", pd.read_parquet(tmp_path / "c.parquet"))
    pd.testing.assert_frame_equal(again, loaded)
