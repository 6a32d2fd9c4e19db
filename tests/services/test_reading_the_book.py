"""The built book in a real browser, as somebody reads it who has no mouse, a narrow screen, or a
dark one."""

import json

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
    """Open a page of the book; what it asks for later and every error are kept."""
    opened = []

    def open_page(name, **settings):
        context = chromium.new_context(**{"viewport": {"width": 1400, "height": 900}} | settings)
        context.set_default_timeout(PATIENCE)
        page = context.new_page()
        page.asked, page.errors = [], []
        page.on("pageerror", lambda error: page.errors.append(str(error)))
        page.goto((HTML / name).as_uri(), wait_until="load")
        page.on("request", lambda request: page.asked.append(request.url))
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
    assert weak_words(page) == []
    page.evaluate(
        "document.querySelector('main').insertAdjacentHTML('afterbegin', '<p"
        ' style="color:#999">grey on white</p>\')'
    )
    # on black it can be read
    assert [fault[0] for fault in weak_words(page)] == ["light"]


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
        faults += grave_faults(tab, WCAG)
    tab.context.close()
    assert faults == []


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
    kept = page.evaluate("JSON.stringify({...localStorage}) + document.cookie")
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
    assert page.asked == []
    assert page.errors == []


def test_without_scripts_static_figures_are_shown_and_comparisons_open_by_themselves(visit):
    front = visit("book/intro.html", java_script_enabled=False)
    assert front.locator("#fig-front svg").is_visible()
    assert not front.locator(".heart-explore").first.is_visible()
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


PHONE = {"width": 360, "height": 900}


def test_the_claims_are_chosen_by_words_and_by_finding(visit):
    tab = visit("notebooks/12_heart.html")
    rows = tab.locator("table.heart-filter tbody tr:visible")
    bar = tab.locator(".heart-filter-bar").first
    every = rows.count()
    bar.locator("select").last.select_option("arithmetic fails")
    failed = rows.count()
    assert 0 < failed < every
    assert bar.locator("output").inner_text() == f"{failed} of {every} rows"
    bar.locator("input").fill("no claim has this word")
    assert rows.count() == 0


def test_a_reader_asks_the_forest_the_squares_and_the_pairs_by_keyboard(visit):
    tab = visit("index.html", viewport=PHONE)
    tab.wait_for_url("**/book/intro.html")  # where the first page sends its reader
    forest = tab.locator("#fig-front .heart-explore")
    assert forest.is_visible()
    assert not tab.locator("#fig-front svg").is_visible()
    forest.locator("select").first.select_option("Experts")
    lines = forest.locator(".heart-line")
    drawn = forest.locator(".heart-hollow.heart-track").count()
    assert drawn + forest.locator(".heart-unsized a").count() == 20  # each paper that is quoted
    assert 0 < lines.count() - forest.locator(".heart-faded").count() < lines.count()
    lines.first.locator("summary").focus()
    tab.keyboard.press("Enter")
    assert "Bing Chat" in lines.first.locator("dl").inner_text()
    tab = visit("notebooks/02_the_conversations.html", viewport=PHONE)
    squares = tab.locator("#fig-heart-squares .heart-square")
    assert squares.count() == 300
    squares.first.focus()
    tab.keyboard.press("ArrowRight")
    tab.keyboard.press("Enter")
    assert "item 1" in tab.locator(".heart-told").first.inner_text()
    tab = visit("notebooks/05_who_is_preferred.html", viewport=PHONE)
    pairs = tab.locator("#fig-beats .heart-explore")
    pairs.locator("select").select_option("safety")
    pairs.locator("button").first.click()
    assert "safety" in pairs.locator(".heart-told").inner_text()


def asked_of(page, kind):
    return page.locator(f'.heart-explore[data-kind="{kind}"]')


def test_a_reader_guesses_and_looks_a_responder_up_by_keyboard(visit):
    tab = visit("notebooks/01_who_supports_better.html", viewport=PHONE)
    guess = asked_of(tab, "guess")
    assert not tab.locator("#fig-label img").is_visible()
    assert "Measured" not in guess.inner_text()
    guess.get_by_role("slider").focus()
    for _ in range(7):
        tab.keyboard.press("ArrowLeft")
    tab.keyboard.press("Tab")
    tab.keyboard.press("Enter")
    told = guess.locator(".heart-told").inner_text()
    assert "You guessed -0.7, inside the interval. Measured: -0." in told
    assert tab.asked == []

    tab = visit("notebooks/05_who_is_preferred.html", viewport=PHONE)
    pairs = tab.locator("#fig-beats .heart-explore")
    name = pairs.locator("button.heart-name").first
    name.focus()
    tab.keyboard.press("Enter")
    assert "mean, empathy" in pairs.locator(".heart-told").inner_text()
    tab.keyboard.press("ArrowRight")
    tab.keyboard.press("Enter")
    assert f"{name.inner_text()} against" in pairs.locator(".heart-told").inner_text()


TICKED = {
    "nothing": "Nothing",
    "all that is good": "All that is good",
    "everything, the veto item too": "Everything",
}


def test_a_reader_ticks_a_rubric_and_turns_the_questions_of_five_raters(visit):
    tab = visit("notebooks/13_heartbench.html", viewport=PHONE)
    rubric = asked_of(tab, "rubric")
    table = tab.locator("#tab-hb-ticked table")
    assert table.is_visible()
    for row in table.locator("tbody tr").all():
        pattern, *scores = (cell.strip() for cell in row.locator("th, td").all_inner_texts())
        if pattern not in TICKED:
            continue
        rubric.get_by_role("button", name=TICKED[pattern], exact=True).focus()
        tab.keyboard.press("Enter")
        for veto, score in zip(("as released", "as in the paper"), scores, strict=False):
            rubric.get_by_role("combobox").nth(1).select_option(veto)
            assert f"Score of this question: {score} of 100" in rubric.inner_text()
    rubric.get_by_role("checkbox").first.focus()
    tab.keyboard.press("Space")
    assert not rubric.get_by_role("checkbox").first.is_checked()

    tab = visit("notebooks/09_scores_and_weights.html", viewport=PHONE)
    raters = asked_of(tab, "raters")
    assert not tab.locator("#fig-hb-five-raters img").is_visible()
    before = raters.locator("tbody").inner_text()
    raters.get_by_role("button", name="Next question").focus()
    tab.keyboard.press("Enter")
    assert raters.locator("tbody").inner_text() != before
    raters.get_by_role("combobox").select_option("safety")
    assert raters.locator("tfoot td").all_inner_texts()[1:-1] != []
    assert tab.asked == []


def test_every_icon_of_the_frame_is_drawn(visit):
    """The magnifier, the menu, the arrows, the download, the theme switch: each has a sign of the
    font, which has loaded."""
    tab = visit("notebooks/05_who_is_preferred.html")
    drawn = tab.evaluate("""async () => {
      await document.fonts.ready;
      const icons = [...document.querySelectorAll("i[class*=fa-], span[class*=fa-]")].filter((icon) => icon.checkVisibility());
      return icons.map((icon) => {
        const style = getComputedStyle(icon, "::before");
        const loaded = document.fonts.check(`900 16px ${style.fontFamily}`);
        return [icon.className, style.content.length, icon.getBoundingClientRect().width, loaded];
      });
    }""")
    assert len(drawn) > 5
    assert [icon for icon in drawn if icon[1] != 3 or not icon[2] or not icon[3]] == []
