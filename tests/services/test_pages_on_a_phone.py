"""Every page of the built book on a narrow screen."""

import pytest
from page_walk import FAULTS, HARD_TO_READ, HTML, TOO_WIDE, find_pages, open_tab, walk

pytestmark = pytest.mark.services


@pytest.fixture(scope="module")
def seen(chromium):
    pages = find_pages() or pytest.skip("needs book: run `make book`")
    return walk(chromium, 360, pages, with_axe=True)


@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault != "cut"])
def test_no_page_has_a_fault(seen, fault):
    """Words of figures are at least 9 pixels high; wide tables scroll in a box of their own."""
    assert seen.faults[fault] == []


def test_every_chapter_with_exercises_has_solutions_and_figures_were_met(seen):
    without = {page for page, n in seen.n_solutions.items() if not n}
    assert without <= {"15_more_on_raters.html", "16_methods_tried.html"}  # no exercises there
    assert seen.n_figures > 40


def test_a_figure_that_is_too_wide_and_words_that_are_too_small_are_found(seen, chromium):
    tab = open_tab(chromium, 360)
    tab.goto((HTML / "notebooks" / "05_who_is_preferred.html").as_uri(), wait_until="load")
    assert tab.evaluate(HARD_TO_READ, [99, 0.3])
    tab.add_style_tag(content="a.heart-figure > svg { max-width: none; width: 800px }")
    assert len(tab.evaluate(TOO_WIDE)) > 1  # such a picture is found, and the page that it widens
    tab.context.close()
