"""The leaderboard page in a real browser: it sorts, searches and loads nothing, from a file."""

import numpy as np
import pytest

from heart_utils.ratings.ratings import fit_ratings
from heart_utils.report.leaderboard import write_leaderboard
from heart_utils.simulate.study import simulate_study

pytestmark = pytest.mark.services


@pytest.fixture(scope="module")
def page(tmp_path_factory, chromium):
    study = simulate_study(rng=np.random.default_rng(1), n_responders=8, n_dialogues=40, pairs=20)
    table = fit_ratings(study.verdicts, responders=study.responders, n_resamples=50).table
    file = write_leaderboard(table, tmp_path_factory.mktemp("board"))[2]
    opened = chromium.new_page()
    opened.asked = []
    opened.on("request", lambda request: opened.asked.append(request.url))
    opened.goto(file.as_uri())
    return opened


def column(page, number):
    return page.locator(f"tbody tr:not([hidden]) td:nth-child({number})").all_inner_texts()


def test_a_click_on_a_heading_sorts_by_it_and_another_turns_the_order(page):
    rating = page.get_by_role("button", name="Rating")
    rating.click()
    rising = [float(text) for text in column(page, 4)]
    assert rising == sorted(rising)
    rating.click()
    assert [float(text) for text in column(page, 4)] == rising[::-1]
    assert page.get_by_role("columnheader", name="Rating").get_attribute("aria-sort") == "descending"
    page.get_by_role("button", name="Written by").click()
    assert column(page, 2) == sorted(column(page, 2))
    page.get_by_role("button", name="Rank").click()
    first = [int(text.split("-")[0]) for text in column(page, 1)]
    assert first == sorted(first)


def test_a_word_in_the_search_field_leaves_the_rows_that_have_it(page):
    search = page.get_by_label("Search")
    search.fill("human_")
    assert column(page, 2) == ["human_01", "human_02"]
    assert page.locator(".said").inner_text() == "2 of 8 rows"
    search.fill("")
    assert len(column(page, 2)) == 8


def test_nothing_but_the_file_was_asked_for(page):
    assert [url for url in page.asked if not url.startswith("file:")] == []
