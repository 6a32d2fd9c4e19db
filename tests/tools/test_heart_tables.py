"""Tables that cells show, as the book lays them out."""

import re
import sys

import pandas as pd
import pytest
from bs4 import BeautifulSoup

from heart_utils.report.tables import show_table
from heart_utils.runs import find_root


@pytest.fixture
def lay_out(monkeypatch):
    monkeypatch.syspath_prepend(str(find_root() / "book" / "extensions"))
    yield __import__("heart_tables").lay_out
    sys.modules.pop("heart_tables")


def words(page):
    """What stands in the cells of a table, whatever their order."""
    return sorted(
        filter(
            None,
            (
                cell.get_text().strip()
                for cell in BeautifulSoup(page, "html.parser").find_all(["th", "td"])
            ),
        )
    )


def test_the_name_of_an_index_stands_beside_the_names_of_columns(lay_out):
    table = pd.DataFrame(
        {"n_rows": [1, 2]}, index=pd.Index(["standard", "adversarial"], name="slice")
    )
    for made in (table.to_html(), show_table(table).to_html()):
        page = lay_out(made[made.index("<table") :])
        assert page.count("<tr") == 3
        assert ">slice<" in page.split("</thead>")[0]


def test_only_columns_of_numbers_are_set_to_the_right(lay_out):
    table = pd.DataFrame(
        {
            "rater": ["x", "y"],
            "share": [0.5, None],
            "of": ["12", "none is enough"],
            "none": [None, None],
        }
    )
    page = lay_out(table.to_html(index=False, na_rep="–"))
    assert page.count("data-number") == 3  # a heading and two cells; one of them is a dash


def test_no_word_and_no_number_of_a_table_is_lost(lay_out):
    grid = pd.MultiIndex.from_product([["u_1", "v/w"], [1, 2]], names=["left", "right"])
    table = pd.DataFrame(
        {"a_b": [1.5, -2.0, 0.0, 3.25], "c": ["x_y", "<b>", "&", "long/words/that/may/break"]},
        index=grid,
    )
    for made in (table.to_html(), show_table(table).to_html()):
        before = made[made.index("<table") :]
        with_minus = re.sub(r">-(?=\d)", ">−", before)  # a page sets a minus, not a hyphen
        assert words(lay_out(before)) == words(with_minus)


def test_the_ends_of_an_interval_share_a_column_and_heads_are_words():
    board = pd.DataFrame(
        {
            "responder": ["x"],
            "rating": [1643.2],
            "rating_low": [1600.2],
            "rating_high": [float("inf")],
        }
    )
    ranked = board.assign(
        rank_low=[1], rank_high=[3], ci_level=0.9, n_verdicts=[12345], p_value=[0.0001], tied=[True]
    )
    said = words(show_table(ranked).to_html())
    assert {"1,643", "1,600 to no limit", "1 to 3", "12,345", "< 0.001", "yes"} <= set(said)
    assert {"written by", "90 % interval", "rank", "p value"} <= set(said)
    assert not [word for word in said if "_" in word]
