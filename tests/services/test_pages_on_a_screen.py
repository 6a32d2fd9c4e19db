"""Every page of the built book on a wide screen."""

import pytest
from page_walk import CUT, HTML, find_pages, open_tab, walk

pytestmark = pytest.mark.services


@pytest.fixture(scope="module")
def seen(chromium):
    return walk(chromium, 1400, find_pages() or pytest.skip("needs book: run `make book`"))


def test_a_browser_finds_nothing_to_complain_of_and_asks_nobody_outside(seen):
    assert seen.complaints == []


def test_no_page_scrolls_sideways(seen):
    assert seen.sideways == []


def test_the_words_of_each_figure_are_large_enough_whole_and_apart(seen):
    assert seen.hard == []


def test_each_word_can_be_read_in_light_and_dark(seen):
    assert seen.weak == []


def test_each_table_of_a_chapter_is_whole(seen, chromium):
    assert seen.cut == []
    tab = open_tab(chromium, 1400)
    tab.goto((HTML / "notebooks" / "07_can_judges_be_trusted.html").as_uri(), wait_until="load")
    tab.add_style_tag(
        content="#tab-self-preference :is(td, th) { padding-inline: 0.6rem !important }"
    )
    # such a table is found
    assert [fault.split(":")[0] for fault in tab.evaluate(CUT)] == ["tab-self-preference"]
    tab.context.close()


def test_the_first_visit_of_a_page_takes_less_than_a_megabyte_from_a_server(seen):
    """But that of the search, which reads the index of all words."""
    assert [page for page, n in seen.n_asked.items() if n <= 10] == []
    assert {page for page, size in seen.megabytes.items() if size >= 1} <= {"search.html"}
