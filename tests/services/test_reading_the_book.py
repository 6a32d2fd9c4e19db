"""The built book in a real browser, as somebody reads it who has no mouse, a narrow screen, or a
dark one."""

import importlib.resources
import json
import time

import pandas as pd
import pytest

from heart_utils.runs import find_root
from heart_utils.scores import weigh_scores

pytestmark = pytest.mark.services

HTML = find_root() / "build" / "html"
PATIENCE = 60_000  # milliseconds; a wait ends when its condition holds

# What stands on a page a hundred times is looked at a few times: rows of tables, listings (their
# colours are
# checked by themselves below), functions, formulas. axe takes minutes a page otherwise.
THIN = """() => {
  const few = (choice, kept) => document.querySelectorAll(choice).forEach((one, place) => place < kept || one.remove());
  document.querySelectorAll("tbody").forEach((body) => [...body.rows].slice(2).forEach((row) => row.remove()));
  document.querySelectorAll("div.highlight pre").forEach((one) => one.replaceChildren(one.textContent.slice(0, 20)));
  few("dl.py", 3); few("table.indextable li", 10); few("math", 3); few(".heart-turn", 6);
  few("main p:not([class*=heart-] *)", 20); few("main li:not([class*=heart-] *)", 20);
}"""
GRAVE = ("serious", "critical")


@pytest.fixture(scope="module")
def pages():
    found = sorted(
        page for folder in ("book", "notebooks") for page in (HTML / folder).rglob("*.html")
    )
    if not found:
        pytest.skip("needs book: run `make book`")
    return [*found, HTML / "search.html", HTML / "genindex.html"]


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
    "api_report",
    "search",
)


# Contrast by the formula of WCAG 2, of each visible word with what lies under it: large letters
# need 3 to 1, others 4.5.
# A single sign is let pass, as axe does.
WEAK = """() => {
  // A mixed colour is computed as color(srgb 0.9 0.6 0.2), in shares of one.
  const parse = (text) => text.match(/[\\d.]+/g).map(Number)
    .map((part, place) => text.startsWith("color(srgb") && place < 3 ? 255 * part : part);
  const over = ([r, g, b, a = 1], under) => [r, g, b].map((part, place) => part * a + under[place] * (1 - a));
  const light = (colour) => colour.map((part) => part / 255)
    .map((part) => part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)
    .reduce((sum, part, place) => sum + part * [0.2126, 0.7152, 0.0722][place], 0);
  const grounds = new Map(), seen = new Map();
  const ground = (one) => {
    if (!one) return [255, 255, 255];
    if (!grounds.has(one)) grounds.set(one, over(parse(getComputedStyle(one).backgroundColor), ground(one.parentElement)));
    return grounds.get(one);
  };
  const judge = (one) => {
    const style = getComputedStyle(one), size = parseFloat(style.fontSize);
    const under = ground(one), word = over(parse(style.color), under);
    const [low, high] = [word, under].map(light).sort((one, other) => one - other);
    const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    return (high + 0.05) / (low + 0.05) < (large ? 3 : 4.5) ? word.map(Math.round) + " on " + under.map(Math.round) : "";
  };
  const words = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT, (text) => text.data.trim()[1] ? 1 : 2);
  while (words.nextNode()) {
    const one = words.currentNode.parentElement;
    if (seen.has(one) || !one.checkVisibility({visibilityProperty: true, opacityProperty: true})) continue;
    seen.set(one, judge(one));
  }
  const weak = new Map([...seen].filter(([, pair]) => pair).map(([one, pair]) => [pair, one.outerHTML.slice(0, 120)]));
  return [seen.size, [...weak]];
}"""
SCHEMES = ("light", "dark")


def weak_words(tab, page):
    """List colours of words that are hard to read, in both schemes, by the theme's switch: no page
    is loaded twice."""
    tab.add_style_tag(
        content="* { transition: none !important; animation: none !important }"
    )  # no colour on its way to another
    faults = []
    for scheme in SCHEMES:
        tab.evaluate("(scheme) => { document.documentElement.dataset.theme = scheme; }", scheme)
        n_read, weak = tab.evaluate(WEAK)
        assert n_read > 3, page
        faults += [(page.name, scheme, *pair) for pair in weak]
    return faults


def grave_faults(chromium, pages, scheme, width, rules, looks=()):
    """List what axe-core calls serious or critical, by page and rule, and what else is looked for
    on each page before."""
    axe = (importlib.resources.files("axe_playwright_python") / "axe.min.js").read_text(
        encoding="utf-8"
    )
    context = chromium.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    context.set_default_timeout(PATIENCE)
    tab = context.new_page()
    faults = []
    for page in pages:
        tab.goto(page.as_uri(), wait_until="load")
        faults += [fault for look in looks for fault in look(tab, page)]
        tab.evaluate(THIN)
        tab.evaluate(axe)
        found = tab.evaluate(
            "(rules) => axe.run(document, {resultTypes: ['violations'], ...rules})", rules
        )
        grave = [fault for fault in found["violations"] if fault["impact"] in GRAVE]
        faults += [
            (page.name, fault["id"], node["html"][:200])
            for fault in grave
            for node in fault["nodes"]
        ]
    context.close()
    return faults


WCAG = {"runOnly": ["wcag2a", "wcag2aa", "wcag21aa"]}


def test_axe_finds_no_serious_fault_on_any_page_and_each_word_can_be_read_in_light_and_dark(
    pages, chromium
):
    """Without axe's own rule of contrast, which takes most of its time; the next test holds it
    against ours on some pages."""
    rules = WCAG | {"rules": {"color-contrast": {"enabled": False}}}
    assert grave_faults(chromium, pages, "light", 360, rules, [weak_words]) == []


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
    kinds = [page for page in pages if page.stem in KINDS_OF_PAGES]
    assert len(kinds) == len(KINDS_OF_PAGES)
    assert grave_faults(chromium, kinds, scheme, 1400, WCAG) == []


# The page itself, if it scrolls sideways, and each picture of a figure that goes beyond the screen.
TOO_WIDE = """() => {
  const page = document.documentElement, wide = [...document.querySelectorAll("article figure img, a.heart-figure > svg")]
    .filter((one) => one.getBoundingClientRect().width > innerWidth || one.getBoundingClientRect().right > innerWidth + 1);
  return [...(page.scrollWidth > page.clientWidth ? ["the page"] : []), ...wide.map((one) => (one.alt ?? one.ariaLabel).slice(0, 60))];
}"""


def test_on_a_phone_no_chapter_scrolls_sideways_and_each_figure_is_on_the_screen(pages, chromium):
    context = chromium.new_context(viewport={"width": 360, "height": 800})
    context.set_default_timeout(PATIENCE)
    tab = context.new_page()
    chapters = [page for page in pages if page.parent.name == "notebooks"]
    figures, faults = 0, []
    for page in chapters:
        tab.goto(page.as_uri(), wait_until="load")
        figures += tab.locator("a.heart-figure > svg").count()
        faults += [(page.name, fault) for fault in tab.evaluate(TOO_WIDE)]
    assert len(chapters) >= 13
    assert figures >= 30
    assert faults == []
    tab.evaluate(
        "document.querySelector('a.heart-figure > svg').style.cssText = 'max-width: none; width:"
        " 800px'"
    )
    assert len(tab.evaluate(TOO_WIDE)) == 2  # such a picture is found, and the page that it widens
    context.close()


# Each table that scrolls sideways in its box.
CUT = """() => [...document.querySelectorAll("article table")].filter((table) => table.checkVisibility())
  .map((table) => [table, table.closest(".heart-scroll, .pst-scrollable-table-container, .output") ?? table.parentElement])
  .filter(([table, box]) => !table.matches(".heart-filter") && box.scrollWidth > box.clientWidth + 1)
  .map(([table, box]) => (table.closest("figure")?.id ?? table.id) + ": " + box.scrollWidth + " in " + box.clientWidth)"""


def test_on_a_wide_screen_each_table_of_a_chapter_is_whole(pages, chromium):
    context = chromium.new_context(viewport={"width": 1400, "height": 900})
    context.set_default_timeout(PATIENCE)
    tab = context.new_page()
    faults = []
    for page in (page for page in pages if page.parent.name == "notebooks"):
        tab.goto(page.as_uri(), wait_until="load")
        faults += [(page.name, fault) for fault in tab.evaluate(CUT)]
    assert faults == []
    tab.goto((HTML / "notebooks" / "07_can_judges_be_trusted.html").as_uri(), wait_until="load")
    tab.add_style_tag(
        content="#tab-self-preference :is(td, th) { padding-inline: 0.6rem !important }"
    )
    # such a table is found
    assert [fault.split(":")[0] for fault in tab.evaluate(CUT)] == ["tab-self-preference"]
    context.close()


@pytest.mark.parametrize(
    "name", ["genindex.html", "py-modindex.html", "search.html", "book/intro.html"]
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


def test_every_solution_of_every_chapter_opens_by_the_keyboard(pages, chromium):
    context = chromium.new_context(viewport={"width": 360, "height": 800})
    context.set_default_timeout(PATIENCE)
    tab = context.new_page()
    for page in pages:
        if page.parent.name != "notebooks":
            continue
        tab.goto(page.as_uri(), wait_until="load")
        solutions = tab.locator("details.sd-dropdown:has(> summary:has-text('Solution'))")
        assert solutions.count() >= 1, page.name
        for place in range(solutions.count()):
            solution = solutions.nth(place)
            assert not solution.evaluate("one => one.open"), page.name
            solution.locator("> summary").focus()
            tab.keyboard.press("Enter")
            assert solution.evaluate("one => one.open && one.innerText.length > 30"), page.name
    context.close()


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


# Of each figure that a cell drew: words that are too small to read, cut at its edge, or over others.
HARD_TO_READ = """([least, within]) => [...document.querySelectorAll("a.heart-figure > svg")].flatMap((svg) => {
  svg.parentElement.hidden = false;
  for (let fold = svg.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
  const box = svg.getBoundingClientRect(), scale = box.width / svg.viewBox.baseVal.width;
  const words = [...svg.querySelectorAll("text")].filter((text) => text.textContent.trim()).map((text) => {
    const parts = [text, ...text.querySelectorAll("tspan")].filter((one) => !one.childElementCount);
    const size = Math.max(...parts.map((one) => parseFloat(getComputedStyle(one).fontSize)));
    return {said: text.textContent.trim().slice(0, 40), size: size * scale, place: text.getBoundingClientRect()};
  });
  const name = svg.closest("figure")?.id ?? "a figure without a caption", faults = [];
  for (const [number, {said, size, place}] of words.entries()) {
    if (size < least) faults.push(`${name}: ${said}: ${size.toFixed(1)} pixels`);
    if (place.left < box.left - 1 || place.right > box.right + 1 || place.top < box.top - 1 || place.bottom > box.bottom + 1)
      faults.push(`${name}: ${said}: cut`);
    for (const other of words.slice(number + 1)) {
      const across = Math.min(place.right, other.place.right) - Math.max(place.left, other.place.left);
      const down = Math.min(place.bottom, other.place.bottom) - Math.max(place.top, other.place.top);
      if (across > 1.5 && down > within * Math.min(place.height, other.place.height)) faults.push(`${name}: ${said} over ${other.said}`);
    }
  }
  return faults;
})"""


@pytest.mark.parametrize("width", [360, 1400])
def test_the_words_of_each_figure_are_large_enough_whole_and_apart(pages, chromium, width):
    """At least 9 pixels high, on a phone too; a line may reach into the room between lines of the next."""
    context = chromium.new_context(viewport={"width": width, "height": 900})
    context.set_default_timeout(PATIENCE)
    tab = context.new_page()
    faults = []
    for page in pages:
        tab.goto(page.as_uri(), wait_until="load")
        faults += [(page.name, fault) for fault in tab.evaluate(HARD_TO_READ, [9, 0.3])]
    assert faults == []
    assert tab.goto((HTML / "book" / "intro.html").as_uri())
    assert tab.evaluate(HARD_TO_READ, [99, 0.3])  # such words are found
    context.close()
