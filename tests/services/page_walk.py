"""A walk through every page of the built book in a browser, each opened once at a width.

Several tests look at every page; to open one takes longer than to look at it.
"""

import gzip
import importlib.resources
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from urllib.parse import unquote

from heart_utils.runs import find_root

HTML = find_root() / "build" / "html"
PATIENCE = 60_000  # milliseconds; a wait ends when its condition holds


def find_pages():
    """List the pages with words of the book, and those by which a reader finds them."""
    pages = sorted(
        page for folder in ("book", "notebooks") for page in (HTML / folder).rglob("*.html")
    )
    return [*pages, HTML / "search.html", HTML / "genindex.html"] if pages else []


FAULTS = ("complaint", "sideways", "too wide", "cut", "closed", "weak", "hard", "grave", "lost")


@dataclass
class Walk:
    """What was seen: lists of what is wrong; `megabytes` and `n_asked` of each page."""

    faults: dict = field(default_factory=lambda: {name: [] for name in FAULTS})
    n_figures: int = 0
    n_solutions: dict = field(default_factory=dict)
    n_asked: dict = field(default_factory=dict)
    megabytes: dict = field(default_factory=dict)

    def note(self, fault, page, found):
        self.faults[fault] += [(page.name, one) for one in found]


def open_tab(chromium, width, **settings):
    context = chromium.new_context(viewport={"width": width, "height": 900}, **settings)
    context.set_default_timeout(PATIENCE)
    return context.new_page()


def walk(chromium, width, pages, *, with_axe=False):
    """Open each page in one tab, and look at it.

    Every page names the same styles, scripts and fonts; the tab asks for them each time.
    """
    seen, asked = Walk(), set()
    tab = open_tab(chromium, width, color_scheme="light")
    listen(tab, seen, asked)
    for page in pages:
        asked.clear()
        tab.goto(page.as_uri(), wait_until="load")
        tab.evaluate(UNTIL_IDLE)  # scripts of the page may go on once it is loaded
        look(tab, page, seen)
        seen.n_asked[page.name] = len(asked)
        seen.megabytes[page.name] = sum(map(sent, asked)) / 1e6
        if with_axe:
            seen.note("grave", page, grave_faults(tab, WITHOUT_CONTRAST))
    tab.context.close()
    return seen


def listen(tab, seen, asked):
    """Keep each error of a page, and whatever it asks for outside the book."""
    inside = (HTML.as_uri() + "/", "data:", "blob:")

    def complain(words):
        seen.faults["complaint"].append((tab.url, words))

    def ask(request):
        if request.url.startswith("file:"):
            asked.add(request.url.partition("?")[0].partition("#")[0])
        if not request.url.startswith(inside):
            complain(f"outside: {request.url}")

    def say(message):
        if message.type == "error":
            complain(message.text)

    tab.on("console", say)
    tab.on("pageerror", lambda error: complain(str(error)))
    tab.on(
        "requestfailed",
        lambda request: complain(f"failed: {request.url}"),
    )
    tab.on("request", ask)


def look(tab, page, seen):
    """Look at a page; what a look changes it puts back."""
    if tab.evaluate(SIDEWAYS) > 0:
        seen.note("sideways", page, ["the page"])
    seen.note("weak", page, weak_words(tab))  # before anything is opened, or the page scrolled
    if page.parent.name == "notebooks":
        seen.n_figures += tab.locator("a.heart-figure > svg").count()
        seen.note("too wide", page, tab.evaluate(TOO_WIDE))
        seen.note("cut", page, tab.evaluate(CUT))
        seen.n_solutions[page.name], closed = open_solutions(tab)
        seen.note("closed", page, closed)
        seen.note("lost", page, lost_on_paper(tab))
    seen.note("hard", page, tab.evaluate(HARD_TO_READ, [9, 0.3]))


def lost_on_paper(tab):
    """List the figures that are not printed: what a reader asks on the screen is a still picture."""
    tab.emulate_media(media="print")
    lost = tab.evaluate(LOST)
    tab.emulate_media(media="screen")
    return lost


SIDEWAYS = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
LOST = """() => [...document.querySelectorAll("a.heart-figure")]
  .filter((link) => link.getBoundingClientRect().height < 20).map((link) => link.closest("figure")?.id)"""

UNTIL_IDLE = "() => new Promise((done) => requestIdleCallback(() => requestIdleCallback(done)))"

# The page itself, if it scrolls sideways, and each picture of a figure that goes beyond the screen.
# Pictures of the study move in a box of their own, which is looked at in their place.
TOO_WIDE = """() => {
  const page = document.documentElement, seen = (one) => (one.closest(".sd-row figure > a") ?? one).getBoundingClientRect();
  const wide = [...document.querySelectorAll("article figure img, a.heart-figure > svg")]
    .filter((one) => seen(one).width > innerWidth || seen(one).right > innerWidth + 1);
  return [...(page.scrollWidth > page.clientWidth ? ["the page"] : []), ...wide.map((one) => (one.alt ?? one.ariaLabel).slice(0, 60))];
}"""

# Each table that scrolls sideways in its box.
CUT = """() => [...document.querySelectorAll("article table")].filter((table) => table.checkVisibility())
  .map((table) => [table, table.closest(".heart-scroll, .pst-scrollable-table-container, .output") ?? table.parentElement])
  .filter(([table, box]) => !table.matches(".heart-filter") && box.scrollWidth > box.clientWidth + 1)
  .map(([table, box]) => (table.closest("figure")?.id ?? table.id) + ": " + box.scrollWidth + " in " + box.clientWidth)"""


def open_solutions(tab):
    """Open each solution by the keyboard; give how many there are and the places of those that
    were open before or do not open."""
    solutions = tab.locator("details.sd-dropdown:has(> summary:has-text('Solution'))")
    faults = []
    for place in range(solutions.count()):
        solution = solutions.nth(place)
        was_open = solution.evaluate("one => one.open")
        solution.locator("> summary").focus()
        tab.keyboard.press("Enter")
        if was_open or not solution.evaluate("one => one.open && one.innerText.length > 30"):
            faults.append(place)
        solution.evaluate("one => { one.open = false; }")
    return solutions.count(), faults


# Of each figure that a cell drew: words that are too small to read, cut at its edge, or over others.
# What it opens to see it, it closes again.
HARD_TO_READ = """([least, within]) => [...document.querySelectorAll("a.heart-figure > svg")].flatMap((svg) => {
  const back = [];
  const change = (one, name, value) => { const before = one[name]; back.push(() => { one[name] = before; }); one[name] = value; };
  change(svg.parentElement, "hidden", false);
  for (let fold = svg.closest("details"); fold; fold = fold.parentElement.closest("details")) change(fold, "open", true);
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
  back.reverse().forEach((undo) => undo());
  return faults;
})"""


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


def weak_words(tab):
    """List colours of words that are hard to read, in both schemes, by the theme's switch: no page
    is loaded twice."""
    tab.add_style_tag(
        content="* { transition: none !important; animation: none !important }"
    )  # no colour on its way to another
    faults, before = [], tab.evaluate("document.documentElement.dataset.theme")
    for scheme in SCHEMES:
        tab.evaluate("(scheme) => { document.documentElement.dataset.theme = scheme; }", scheme)
        n_read, weak = tab.evaluate(WEAK)
        assert n_read > 3, tab.url
        faults += [(scheme, *pair) for pair in weak]
    tab.evaluate("(scheme) => { document.documentElement.dataset.theme = scheme; }", before)
    return faults


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
WCAG = {"runOnly": ["wcag2a", "wcag2aa", "wcag21aa"]}
# Without axe's own rule of contrast, which takes most of its time; one test compares it with ours.
WITHOUT_CONTRAST = WCAG | {"rules": {"color-contrast": {"enabled": False}}}


@cache
def axe():
    return (importlib.resources.files("axe_playwright_python") / "axe.min.js").read_text("utf-8")


def grave_faults(tab, rules):
    """List what axe-core calls serious or critical on a page, by rule; the page is cut short."""
    tab.evaluate(THIN)
    tab.evaluate(axe())
    # it would ask for each style sheet, which a page from disk may not
    options = {"resultTypes": ["violations"], "preload": False} | rules
    found = tab.evaluate("(options) => axe.run(document, options)", options)
    return [
        (fault["id"], node["html"][:200])
        for fault in found["violations"]
        if fault["impact"] in GRAVE
        for node in fault["nodes"]
    ]


@cache  # pages share their styles, scripts and fonts
def sent(url):
    """Count the bytes that a web server sends for a file: text packed by gzip, fonts and
    photographs as they are."""
    file = Path(unquote(url.removeprefix("file://")))
    if not file.is_file():
        return 0  # which is a complaint
    packed = file.suffix in (".html", ".css", ".js", ".svg")
    return len(gzip.compress(file.read_bytes())) if packed else file.stat().st_size
