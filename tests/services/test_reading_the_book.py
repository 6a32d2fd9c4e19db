"""The built book in a real browser, as somebody reads it who has no mouse, a narrow screen, or a
dark one."""

import json
import time

import pandas as pd
import pytest
from page_walk import HTML, PATIENCE, WCAG, find_pages, grave_faults, open_tab, weak_words

from heart_utils.scores import weigh_scores

pytestmark = pytest.mark.services


@pytest.fixture(scope="module")
def pages():
    return find_pages() or pytest.skip("needs book: run `make book`")


@pytest.fixture
def visit(pages, chromium):
    """Open a page of the book; what it asks for and every error are kept."""
    opened = []

    def open_page(name, **settings):
        context = chromium.new_context(**{"viewport": {"width": 1400, "height": 900}} | settings)
        context.set_default_timeout(PATIENCE)
        page = context.new_page()
        page.asked, page.errors = [], []
        page.on("request", lambda request: page.asked.append(request.url))
        page.on("pageerror", lambda error: page.errors.append(str(error)))
        page.goto((HTML / name).as_uri(), wait_until="load")
        opened.append(context)
        return page

    yield open_page
    for context in opened:
        context.close()


# They hold one of everything: conversations, figures, listings, boards, the practice, the sliders,
# functions.
KINDS_OF_PAGES = (
    "intro",
    "practice",
    "calculator",
    "02_the_conversations",
    "04_the_raters",
    "05_who_is_preferred",
    "09_scores_and_weights",
    "api",
    "search",
)


def test_words_that_cannot_be_read_are_found(visit):
    page = visit("search.html")
    assert weak_words(page, HTML / "search.html") == []
    page.evaluate(
        "document.querySelector('main').insertAdjacentHTML('afterbegin', '<p"
        ' style="color:#999">grey on white</p>\')'
    )
    # on black it can be read
    assert [fault[1] for fault in weak_words(page, HTML / "search.html")] == ["light"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_serious_fault_in_light_or_dark_on_a_page_of_each_kind(
    pages, chromium, scheme
):
    """With its own rule of contrast, beside ours, which looks at every page."""
    kinds = [page for page in pages if page.stem in KINDS_OF_PAGES]
    assert len(kinds) == len(KINDS_OF_PAGES)
    tab = open_tab(chromium, 1400, color_scheme=scheme)
    faults = []
    for page in kinds:
        tab.goto(page.as_uri(), wait_until="load")
        faults += grave_faults(tab, page, WCAG)
    tab.context.close()
    assert faults == []


@pytest.mark.parametrize(
    "name", ["genindex.html", "functions/py-modindex.html", "search.html", "book/intro.html"]
)
def test_a_page_runs_its_scripts_without_an_error(visit, name):
    assert visit(name).errors == []


def press_to(page, element):
    """Press Tab until an element holds the focus, as somebody does who has no mouse."""
    for _ in range(40):
        if element.evaluate("one => one === document.activeElement"):
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"Tab does not reach {element}")


def test_a_comparison_is_read_voted_on_and_revealed_by_the_keyboard_alone(visit):
    page = visit("book/practice.html")
    box = page.locator(".heart-practice")
    kept, asked = (
        page.evaluate("JSON.stringify({...localStorage}) + document.cookie"),
        len(page.asked),
    )
    first = box.locator("article").first
    assert not first.is_visible()
    assert "Content note" in box.inner_text()
    box.get_by_role("button", name="Show the first comparison").focus()
    page.keyboard.press("Enter")
    assert first.is_visible()
    writers = [first.get_attribute("data-a"), first.get_attribute("data-b")]
    hidden = first.inner_text()
    assert not any(writer in hidden for writer in writers)
    press_to(page, first.get_by_label("Reply A"))
    page.keyboard.press("Space")
    press_to(page, first.get_by_role("button", name="Choose, and see who wrote them"))
    page.keyboard.press("Enter")
    shown = first.inner_text()
    assert all(writer in shown for writer in writers)
    assert "What differs" in shown
    assert "Nobody has rated this pair" in shown
    assert all(writer in box.locator("[aria-live]").inner_text() for writer in writers)
    press_to(page, first.get_by_role("button", name="Go on"))
    page.keyboard.press("Enter")
    n = box.locator("article").count()
    for place in range(1, n):
        box.locator("article").nth(place).get_by_role("button", name="Skip this one").click()
    end = box.locator(".end")
    assert (
        f"Your choices: Reply A 1, Reply B 0, neither 0; skipped {n - 1} of {n}."
        in end.inner_text()
    )
    rows = end.locator("tbody tr").all_inner_texts()
    assert [row.split("\t") for row in rows] == [
        [writers[0].split(" (")[0], "1", "1", "0"],
        [writers[1].split(" (")[0], "1", "0", "0"],
    ]
    assert "No person has judged any of these pairs" in end.inner_text()
    assert page.evaluate("JSON.stringify({...localStorage}) + document.cookie") == kept
    assert page.asked[asked:] == []
    assert page.errors == []


def test_without_scripts_the_comparisons_stand_there_and_open_by_themselves(visit):
    page = visit("book/practice.html", java_script_enabled=False)
    article = page.locator(".heart-practice article").nth(1)
    assert article.is_visible()
    assert not article.get_by_role("button").first.is_visible()
    article.locator("summary").click()
    assert article.get_attribute("data-a") in article.inner_text()


def test_a_slider_moves_the_ranking_to_what_the_weights_give(visit):
    page = visit("notebooks/09_scores_and_weights.html")
    box = page.locator(".heart-weights")
    sliders = box.get_by_role("slider")
    names = [slider.get_attribute("name") for slider in sliders.all()]
    scores = {
        row.get_attribute("data-name"): json.loads(row.get_attribute("data-scores"))
        for row in box.locator("tbody tr").all()
    }
    means = pd.DataFrame(
        [(who, *pair) for who, row in scores.items() for pair in zip(names, row, strict=True)]
    )
    means.columns = ["responder", "dimension", "score"]

    def shown():
        return [tuple(row.split("\t")) for row in box.locator("tbody tr").all_inner_texts()]

    def expected(weights):
        ranked = weigh_scores(
            means, {name: weight / sum(weights.values()) for name, weight in weights.items()}
        )
        return [(str(row.rank), row.responder, f"{row.score:.2f}") for row in ranked.itertuples()]

    def places(rows):
        return [row[:2] for row in rows]

    assert places(shown()) == places(expected(dict.fromkeys(names, 50)))
    for place in range(1, len(names)):
        sliders.nth(place).focus()
        page.keyboard.press("Home")
    assert places(shown()) == places(expected({names[0]: 1}))
    score, low, high = (float(shown()[0][2]), *map(float, shown()[0][3].split(" to ")))
    assert low < score < high
    page.keyboard.press("ArrowRight")
    assert places(shown()) == places(expected({names[0]: 50, names[-1]: 1}))
    assert f"1 {shown()[0][1]}" in box.locator("[aria-live]").inner_text()
    for slider in sliders.all():
        slider.focus()
        page.keyboard.press("Home")
    assert "No dimension has a weight" in box.locator("[aria-live]").inner_text()
    box.get_by_role("button", name="equal weights").click()
    found = {who: float(score) for _, who, score, _ in shown()}
    assert found == pytest.approx(
        {who: float(score) for _, who, score in expected(dict.fromkeys(names, 50))}, abs=0.011
    )
    assert page.errors == []


def test_a_board_in_its_chapter_sorts_by_the_keyboard(visit):
    page = visit("notebooks/05_who_is_preferred.html")
    board = page.locator("table.board").first
    heading = board.get_by_role("button", name="Rating")
    heading.focus()
    page.keyboard.press("Enter")
    rating = board.locator("tbody td:nth-child(4)")
    rising = [float(text) for text in rating.all_inner_texts()]
    page.keyboard.press("Enter")
    assert rising == sorted(rising)
    assert [float(text) for text in rating.all_inner_texts()] == rising[::-1]


def test_the_front_page_is_there_soon(visit):
    """The aim is a second from disk; ten times that, so that a busy machine fails nobody."""
    started = time.monotonic()
    visit("book/intro.html")
    assert time.monotonic() - started < 10


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_each_colour_of_a_listing_can_be_read(visit, scheme):
    """Contrast of 4.5 to 1 at least, by the formula of WCAG 2, for each colour that a listing of
    the book uses."""
    page = visit("notebooks/03_the_judging.html", color_scheme=scheme)
    colours = page.evaluate(
        """() => [...new Set([...document.querySelectorAll("div.cell_input div.highlight")].flatMap((listing) =>
          [...listing.querySelectorAll("pre span")].map((word) =>
            getComputedStyle(word).color + "|" + getComputedStyle(listing.querySelector("pre")).backgroundColor)))]"""
    )
    assert len(colours) > 3

    def light(text):
        parts = [int(part) / 255 for part in text.strip("rgba()").split(",")[:3]]
        linear = [
            part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
        ]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    for colour in colours:
        high, low = sorted(map(light, colour.split("|")), reverse=True)
        assert (high + 0.05) / (low + 0.05) >= 4.5, colour
