"""What a study's server noted of a page: how long it was open, and how its text was typed."""

from heart_collect.people.exports import _behaviour, _times

TYPED = {"reply:::text_box": {"final_chars": 40, "active_ms": 9000, "pasted_chars": 10}}


def test_how_a_page_was_typed_joins_how_long_it_was_open():
    state = {
        "user_id": "ann",
        "instance_id_to_behavioral_data": {"page-1": {"total_time_ms": 60_000}},
    }
    noted = _behaviour(
        state, {("ann", "page-1"): TYPED, ("ann", "page-2"): TYPED, ("ben", "page-1"): {}}
    )
    # 10 / 40
    assert _times(noted["page-1"]) == {"seconds": 60.0, "typing_ms": 9000.0, "pasted_share": 0.25}
    assert _times(noted["page-2"]) == {"seconds": None, "typing_ms": 9000.0, "pasted_share": 0.25}


def test_a_text_of_which_nothing_was_noted_has_no_share_that_was_pasted():
    assert (
        _times({"typing_summaries": {"reply:::text_box": {"pasted_chars": 5}}})["pasted_share"]
        == 0.0
    )
    assert _times({}) == {"seconds": None, "typing_ms": None, "pasted_share": 0.0}
