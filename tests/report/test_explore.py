"""Figures that a reader can ask: their rows in the page, and what happens in a browser."""

import json
import re

import pandas as pd
import pytest

from heart_utils.report.figures import explore

CELLS = pd.DataFrame(
    {
        "panel": "warmth",
        "row": ["x", "y"],
        "column": ["y", "x"],
        "wins": [3, 1],
        "ties": 2,
        "losses": [1, 3],
    }
)


def rows_of(html):
    words = re.search(
        r'<script type="application/json">(.*)</script>', html._repr_html_(), flags=re.DOTALL
    )[1]
    told = json.loads(words)
    rows = [dict(zip(told["columns"], row, strict=True)) for row in told["rows"]]
    return told | {"rows": rows}


def test_the_page_gets_the_columns_that_it_needs_and_no_others():
    told = rows_of(
        explore(
            CELLS.assign(secret="s"),
            kind="matrix",
            figure="fig-x",
            switches={"panel": "Attribute"},
            shown={},
        )
    )
    assert told["rows"][0] == {
        "panel": "warmth",
        "row": "x",
        "column": "y",
        "wins": 3,
        "ties": 2,
        "losses": 1,
    }
    assert told["switches"] == {"panel": "Attribute"}


def test_a_card_of_a_name_comes_with_its_facts():
    cards = pd.DataFrame({"row": ["x", "y"], "family": ["openai", None], "mean": [4.51, 3.0]})
    told = rows_of(explore(CELLS, kind="matrix", figure="f", switches={}, shown={}, cards=cards))
    assert told["cards"] == [
        {"row": "x", "family": "openai", "mean": 4.51},
        {"row": "y", "family": None, "mean": 3.0},
    ]


def test_each_score_of_a_group_reaches_the_page():
    asked = {
        "label": "told",
        "value": -0.7,
        "ci_low": -0.9,
        "ci_high": -0.5,
        "least": -3,
        "most": 3,
    }
    group = asked | {"label": "by a person", "value": 5.5, "scores": [4.0, 7.0]}
    told = rows_of(
        explore(
            pd.DataFrame([asked | {"scores": None}, group]),
            kind="guess",
            figure="f",
            switches={"value": "How much?"},
            shown={},
        )
    )
    assert [row["scores"] for row in told["rows"]] == [None, [4.0, 7.0]]


def test_a_text_cannot_end_the_script_that_holds_it():
    spoiled = CELLS.assign(panel="</script><script>alert(1)</script>")
    html = explore(spoiled, kind="matrix", figure="fig-x", switches={}, shown={})
    assert html._repr_html_().count("</script>") == 1
    assert rows_of(html)["rows"][0]["panel"] == "</script><script>alert(1)</script>"


def test_it_is_hidden_where_no_script_shows_it():
    assert re.match(
        r"<div [^>]*hidden>",
        explore(CELLS, kind="matrix", figure="f", switches={}, shown={})._repr_html_(),
    )


def test_a_column_that_is_missing_is_named():
    with pytest.raises(ValueError, match="has no column source"):
        explore(CELLS, kind="matrix", figure="f", switches={}, shown={"source": "source"})


def test_studies_without_a_size_go_along_with_the_forest():
    line = {"group": "Strangers", "line": "a", "win_share": 0.6, "ci_low": 0.5, "ci_high": 0.7}
    unsized = pd.DataFrame(
        {"study": ["B 2024"], "favours": "people", "source": "https://doi.org/b"}
    )
    page = explore(
        pd.DataFrame([line | {"evidence": "measured"}]),
        kind="forest",
        figure="fig-forest",
        switches={},
        shown={},
        cards=unsized,
    )._repr_html_()
    assert '"cards":[{"study":"B 2024","favours":"people"' in page
