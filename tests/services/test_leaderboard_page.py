"""The leaderboard page in a real browser: it sorts, searches and loads nothing, from a file."""

import numpy as np
import pandas as pd
import pytest

from heart_utils.ratings.ratings import fit_ratings
from heart_utils.report.leaderboard import leaderboard_html, write_leaderboard
from heart_utils.simulate.study import simulate_study

pytestmark = pytest.mark.services


@pytest.fixture(scope="module")
def page(tmp_path_factory, chromium):
    study = simulate_study(rng=np.random.default_rng(1), strengths=8, n_dialogues=40, pairs=20)
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
    assert (
        page.get_by_role("columnheader", name="Rating").get_attribute("aria-sort") == "descending"
    )
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


def test_of_several_leaderboards_the_one_that_is_chosen_is_shown(chromium, tmp_path):
    study = simulate_study(rng=np.random.default_rng(1), strengths=4, n_dialogues=40, pairs=6)
    table = fit_ratings(study.verdicts, responders=study.responders, n_resamples=50).table
    boards = {
        "one set": pd.concat([table, table.assign(dimension="attunement")]),
        "another": table.assign(rater="ann"),
    }
    (tmp_path / "boards.html").write_text(leaderboard_html(boards), encoding="utf-8")
    page = chromium.new_page()
    page.goto((tmp_path / "boards.html").as_uri())
    shown = page.locator("section:visible")
    assert shown.count() == 1
    assert shown.get_attribute("data-name").startswith("overall")
    page.get_by_label("Leaderboard").select_option(index=1)
    assert shown.get_attribute("data-name").startswith("attunement")
    page.get_by_label("Data set").select_option("another")
    assert shown.count() == 1
    assert "ann" in shown.get_attribute("data-name")
    # Each interval is drawn where its numbers say, from the lowest end of all to the highest.
    rows = shown.locator("tbody tr").evaluate_all(
        "rows => rows.map((row) => [5, 6].map((at) => Number(row.cells[at].dataset.value)))"
    )
    (low, high), ends = rows[0], np.ravel(rows)
    bar = shown.locator("td.bar span").first.evaluate(
        "one => [parseFloat(one.style.left), parseFloat(one.style.width)]"
    )
    scale = 100 / (ends.max() - ends.min())
    assert bar == pytest.approx([scale * (low - ends.min()), scale * (high - low)], abs=0.1)
    page.close()
