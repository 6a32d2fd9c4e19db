"""Every page of the built book on a wide screen."""

import pytest
from page_walk import CUT, FAULTS, HTML, LOST, find_pages, open_tab, walk

pytestmark = pytest.mark.services


@pytest.fixture(scope="module")
def seen(chromium):
    return walk(chromium, 1400, find_pages() or pytest.skip("needs book: run `make book`"))


@pytest.mark.parametrize("fault", FAULTS)
def test_no_page_has_a_fault(seen, fault):
    assert seen.faults[fault] == []


def test_a_table_that_scrolls_and_a_figure_that_is_not_printed_are_found(seen, chromium):
    tab = open_tab(chromium, 1400)
    tab.goto((HTML / "notebooks" / "07_can_judges_be_trusted.html").as_uri(), wait_until="load")
    wide = "#tab-self-preference :is(td, th) { padding-inline: 0.6rem !important }"
    tab.add_style_tag(content=wide)
    assert [fault.split(":")[0] for fault in tab.evaluate(CUT)] == ["tab-self-preference"]
    tab.add_style_tag(content="a.heart-figure { display: none !important }")
    assert len(tab.evaluate(LOST)) == tab.locator("a.heart-figure").count() > 0
    tab.context.close()


def test_the_first_visit_of_a_page_takes_less_than_a_megabyte_from_a_server(seen):
    """But that of the search, which reads the index of all words."""
    assert [page for page, n in seen.n_asked.items() if n <= 10] == []
    assert {page for page, size in seen.megabytes.items() if size >= 1} <= {"search.html"}
