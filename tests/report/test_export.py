"""Chinese names are drawn and not boxes, and exports keep to licences."""

import warnings

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from fontTools.ttLib import TTFont

from heart_utils.report.export import ExportError, export_preferences
from heart_utils.report.figures import CJK_FONT, cjk_style, use_cjk_font
from heart_utils.runs import find_root
from heart_utils.sources.heartbench import load_names


@pytest.fixture(autouse=True)
def clean_figures():
    with mpl.rc_context():
        yield
    plt.close("all")


FOLDER = find_root() / "data" / "fonts"


def test_the_font_holds_every_character_of_the_names():
    held = TTFont(FOLDER / "HeartBenchNamesSC.otf").getBestCmap()
    names = load_names()
    assert {character for name in names["zh"] for character in name if ord(character) > 0x2000} <= {chr(code) for code in held}


def test_the_font_is_small_and_its_licence_lies_beside_it():
    assert (FOLDER / "HeartBenchNamesSC.otf").stat().st_size < 50_000
    assert "SIL OPEN FONT LICENSE" in (FOLDER / "OFL.txt").read_text(encoding="utf-8")


def draw(labels):
    figure, ax = plt.subplots(figsize=(3, 3))
    ax.set_yticks(range(len(labels)), labels)
    figure.canvas.draw()
    return np.asarray(figure.canvas.buffer_rgba())


def test_chinese_labels_are_drawn_beside_english_ones():
    use_cjk_font()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a missing glyph is a warning
        drawn = draw(["温暖 Warmth", "好奇心 Curiosity"])
    assert (drawn != draw(["道德 Warmth", "主动性 Curiosity"])).any()  # boxes would be alike


def test_the_font_can_be_asked_for_twice():
    use_cjk_font()
    use_cjk_font()
    assert mpl.rcParams["font.family"].count(CJK_FONT) == 1


def test_a_page_carries_the_font_inside():
    assert len(cjk_style()) < 60_000
    assert "http" not in cjk_style()


def make_study(licence="CC0-1.0"):
    histories = pd.DataFrame({"history_id": ["h"], "turns": [[{"speaker": "seeker", "text": "Hm."}]], "licence": [licence]})
    replies = pd.DataFrame({"reply_id": ["r1", "r2"], "text": ["one", "two"]})
    comparisons = pd.DataFrame({"pair_id": ["p", "q", "t", "f"], "reply_a": "r1", "reply_b": "r2"})
    verdicts = pd.DataFrame(
        {"pair_id": ["p", "q", "t", "f"], "verdict": ["a", "b", "tie", None], "margin": [3.0, 1.0, None, None]}
    )
    verdicts = verdicts.assign(
        state=["valid", "valid", "valid", "refused"], history_id="h", dimension="overall", simulated=False
    )
    return verdicts.assign(rater="judge", rater_kind="model", p_a=[0.9, 0.2, 0.5, None]), comparisons, replies, histories


def test_only_decided_verdicts_make_a_preference():
    table = export_preferences(*make_study())
    assert table[["chosen", "rejected", "margin", "p_chosen"]].to_numpy().tolist() == [
        ["one", "two", 3, 0.9],
        ["two", "one", 1, 0.8],
    ]
    assert table["rater_kind"].tolist() == ["model", "model"]
    assert table.attrs["left_out"] == {"tie": 1, "refused": 1}


@pytest.mark.parametrize("licence", ["CC-BY-NC-4.0", "none stated", "gated", "Apache-2.0, research and model evaluation only"])
def test_texts_that_may_not_be_passed_on_are_refused(licence):
    with pytest.raises(ExportError, match=rf"1 of 1 histories may not be passed on: {licence} \(1\)"):
        export_preferences(*make_study(licence))


def test_what_the_manifest_records_as_stricter_is_refused_too():
    """People's replies may be kept closer than the histories that they answer."""
    with pytest.raises(ExportError, match="records tables under none stated: their texts may not be passed on"):
        export_preferences(*make_study(), licences=["CC0-1.0", "none stated"])
    assert len(export_preferences(*make_study(), licences=["CC0-1.0", "MIT"])) == 2


def test_labels_without_texts_are_refused():
    verdicts, comparisons, replies, histories = make_study()
    with pytest.raises(ExportError, match="2 of 2 pairs have a reply without text"):
        export_preferences(verdicts, comparisons, replies.assign(text=None), histories)
    with pytest.raises(ExportError, match="not in the table histories, such as 'h'"):
        export_preferences(verdicts, comparisons, replies, histories.iloc[:0])
