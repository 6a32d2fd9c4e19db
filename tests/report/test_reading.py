import pandas as pd
import pytest
from builders import histories

from heart_utils.report.conversation import read_conversation
from heart_utils.report.tables import show_table

ATTACK = "<script>alert('x')</script><img src=x onerror=alert(1)>"


def test_markup_in_a_turn_a_reply_or_a_label_is_shown_as_text():
    history = histories(turns=[[{"speaker": "seeker", "text": ATTACK}]]).iloc[0]
    html = read_conversation(history, {ATTACK: ATTACK}, who_wrote=ATTACK)._repr_html_()
    assert "<script" not in html
    assert "<img" not in html
    assert html.count("&lt;script&gt;") == 4


def test_marks_that_turn_a_text_round_and_controls_are_shown():
    row = {
        "history_id": "h",
        "licence": "CC0-1.0",
        "turns": [{"speaker": "seeker", "text": "a \u202eb\u202c\x00"}],
    }
    html = read_conversation(row, {"\u2067model": "c\u2066"}, who_wrote="a test")._repr_html_()
    assert "a [U+202E]b[U+202C][U+0000]" in html
    assert "[U+2067]model" in html
    assert "c[U+2066]" in html
    assert not set("\u202e\u202c\x00\u2067\u2066") & set(html)


def test_words_that_may_not_be_published_are_refused_by_name():
    history = histories(licence="CC-BY-NC-4.0").iloc[0]
    with pytest.raises(
        ValueError, match=r"words of h1 are under 'CC-BY-NC-4\.0' and may not be shown"
    ):
        read_conversation(history, who_wrote="someone")


def test_markup_in_a_table_is_shown_as_text_and_its_numbers_are_as_before():
    script = "<script>alert(1)</script>"
    index = pd.MultiIndex.from_tuples([(script, 0.05), ("b", 0.25)], names=[script, "x"])
    html = show_table(
        pd.DataFrame({script: [script, "b & c"], "n": [1000, 0.12345]}, index=index)
    ).to_html()
    assert "<script" not in html
    assert html.count("&lt;script&gt;") == 4
    for shown in ("b &amp; c", "1,000.000", "0.123", ">0.050000<", ">0.250000<"):
        assert shown in html
