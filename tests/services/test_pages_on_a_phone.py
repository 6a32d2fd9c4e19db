"""Every page of the built book on a narrow screen."""

import pytest
from page_walk import HARD_TO_READ, HTML, TOO_WIDE, find_pages, open_tab, walk

pytestmark = pytest.mark.services


@pytest.fixture(scope="module")
def seen(chromium):
    return walk(
        chromium, 360, find_pages() or pytest.skip("needs book: run `make book`"), with_axe=True
    )


def test_a_browser_finds_nothing_to_complain_of_and_asks_nobody_outside(seen):
    assert seen.complaints == []


def test_no_page_scrolls_sideways(seen):
    assert seen.sideways == []


def test_each_figure_of_a_chapter_is_on_the_screen(seen, chromium):
    assert seen.too_wide == []
    tab = open_tab(chromium, 360)
    tab.goto((HTML / "notebooks" / "05_who_is_preferred.html").as_uri(), wait_until="load")
    tab.evaluate(
        "document.querySelector('a.heart-figure > svg').style.cssText = 'max-width: none; width:"
        " 800px'"
    )
    assert len(tab.evaluate(TOO_WIDE)) == 2  # such a picture is found, and the page that it widens
    tab.context.close()


def test_every_solution_of_every_chapter_opens_by_the_keyboard(seen):
    without = {page for page, n in seen.n_solutions.items() if not n}
    assert without <= {"15_more_on_raters.html", "16_methods_tried.html"}  # no exercises there
    assert seen.closed == []


def test_axe_finds_no_serious_fault_on_any_page(seen):
    assert seen.grave == []


def test_each_word_can_be_read_in_light_and_dark(seen):
    assert seen.weak == []


def test_the_words_of_each_figure_are_large_enough_whole_and_apart(seen, chromium):
    """At least 9 pixels high, on a phone too; a line may reach into the room between lines of the
    next."""
    assert seen.hard == []
    tab = open_tab(chromium, 360)
    tab.goto((HTML / "book" / "intro.html").as_uri(), wait_until="load")
    assert tab.evaluate(HARD_TO_READ, [99, 0.3])  # such words are found
    tab.context.close()
