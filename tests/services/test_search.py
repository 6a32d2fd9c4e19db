"""The book's own search, in a browser: what somebody types leads to the page that answers it."""

import pytest
from page_walk import HTML, PATIENCE

pytestmark = pytest.mark.services

FIRST = {
    "sample size": "calculator.html",
    "crisis": "governance.html",
    "ChatGPT": "glossary.html#term-ChatGPT",
    "gender": "datasheets.html",
    "cite": "rerun.html",
}
"""What is typed -> the page, and the place on it, of the first hit."""


@pytest.fixture(scope="module")
def search(chromium):
    """Give the addresses that the search finds, best first."""
    if not (HTML / "search.html").is_file():
        pytest.skip("needs book: run `make book`")
    context = chromium.new_context()
    context.set_default_timeout(PATIENCE)
    tab = context.new_page()

    def find(words):
        tab.goto(f"{(HTML / 'search.html').as_uri()}?q={words}")
        # results come one after the other; the headline, which the theme hides, changes after the last
        headline = tab.locator("#search-results h2", has_text="Search Results")
        headline.wait_for(state="attached")
        return tab.eval_on_selector_all(
            "#search-results ul.search > li > a", "links => links.map((link) => link.href)"
        )

    yield find
    context.close()


@pytest.mark.parametrize("words", FIRST)
def test_the_first_hit_answers(search, words):
    assert FIRST[words] in search(words)[0]


def test_limits_are_not_in_the_index(search):
    """Nine chapters say there that nobody was asked about support in a crisis."""
    index = (HTML / "searchindex.js").read_text(encoding="utf-8")
    assert '"Limits":' not in index
    assert '"Summary":' in index
    chapters = {hit.split("#")[0] for hit in search("crisis") if "/notebooks/" in hit}
    assert len(chapters) <= 3  # with other crises than these


def test_chapters_are_found_before_functions_and_words_of_the_glossary(search):
    found = search("strengths")
    functions = [place for place, link in enumerate(found) if "book/api" in link]
    others = [place for place, link in enumerate(found) if "book/api" not in link]
    assert functions
    assert max(others) < min(functions)
    assert [link for link in search("responder") if "glossary.html" in link]
