"""The built book as a reader gets it: in the files, and in a real browser."""

import html
import json
import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pandas as pd
import pytest
from bs4 import BeautifulSoup

from heart_utils.runs import find_root, open_run
from heart_utils.sources.heart import load_rubric_items
from tools.notebooks import read_cells

ROOT = find_root()
HTML = ROOT / "build" / "html"


class Tags(HTMLParser):
    """Start tags of a page, with their attributes."""

    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))


def tags(page):
    parser = Tags()
    parser.feed(page.read_text(encoding="utf-8"))
    return parser.found


def read_pages():
    return sorted(
        page for folder in ("book", "notebooks") for page in (HTML / folder).rglob("*.html")
    )


@pytest.fixture(scope="module")
def pages():
    if not read_pages():
        pytest.skip("needs book: run `make book`")
    return read_pages()


def test_the_worked_pages_are_among_the_pages_looked_at(pages):
    worked = {page.stem for page in (ROOT / "book" / "adapt").glob("*.md")}
    assert worked <= {page.stem for page in pages if page.parent.name == "adapt"}


def test_every_simulation_that_is_kept_was_read_and_none_ran(pages):
    told = [file.read_text() for file in (ROOT / "build" / "executed" / "sample").glob(".*.anew")]
    assert not told, (
        "run `make simulations`, look at `git diff data/simulated`, and say why in the commit"
    )


def test_no_chapter_shows_a_warning(pages):
    executed = [
        json.loads(file.read_text())
        for file in sorted((ROOT / "build" / "executed" / "sample").glob("*.ipynb"))
    ]
    outputs = [out for one in executed for cell in one["cells"] for out in cell.get("outputs", [])]
    told = [out["text"] for out in outputs if out.get("name") == "stderr"]
    assert outputs
    assert not told


def test_every_chapter_says_what_it_rests_on_and_leads_there(pages):
    for page in (page for page in pages if page.parent.name == "notebooks"):
        text = page.read_text(encoding="utf-8")
        strip = re.search(r'<div class="heart-strip.*?</div>', text, re.DOTALL)
        assert strip, page
        assert re.search(
            r'class="heart-chip heart-\w+".*?<a class="reference internal" href="#',
            strip[0],
            re.DOTALL,
        ), page
        assert "SIMULATED:" not in text, page


def test_the_line_below_a_title_names_each_kind_of_evidence_and_each_section_that_shows_it(pages):
    for page in (page for page in pages if page.parent.name == "notebooks"):
        top = BeautifulSoup(page.read_text(encoding="utf-8"), "html.parser").select_one(
            "article section"
        )
        listed, kind = set(), None
        for part in top.select(".heart-strip .heart-chip, .heart-strip a.internal"):
            if "heart-chip" in part["class"]:
                kind = part["class"][-1]
            elif part.get_text()[0].isdigit():
                listed.add((kind, part.get_text()))
        shown = {
            (chip["class"][-1], section.find("h2").get_text().split()[0].rstrip("."))
            for section in top.find_all("section", recursive=False)
            if "Exercises" not in section.find("h2").get_text()
            for chip in section.select(".heart-chip")
        }
        assert shown == listed, page.stem


def test_the_index_of_the_search_is_loaded_on_the_page_of_the_search_and_on_no_other(pages):
    assert pages
    loads = [
        page.name
        for page in HTML.glob("*.html")
        if re.search(r"<script[^>]*searchindex\.js", page.read_text("utf-8"))
    ]
    assert loads == ["search.html"]


def shown_by_cells(page, kind=""):
    """Return the names of figures and tables, or of one kind, that cells of a chapter showed."""
    copy = ROOT / "build" / "executed" / "sample" / f"{page.stem}.ipynb"
    figures = [
        cell["metadata"].get("mystnb", {}).get("figure", {})
        for cell in read_cells(copy)
        if cell.get("outputs")
    ]
    names = {one["name"] for one in figures if "name" in one}
    return {name for name in names if name.startswith(kind)}


def set_in_words(page):
    """Return the names of figures and tables that the words of a chapter set."""
    cells = read_cells(ROOT / "notebooks" / f"{page.stem}.ipynb")
    words = "".join(cell["source"] for cell in cells if cell["cell_type"] == "markdown")
    return set(re.findall(r"^:name: ((?:fig|tab)-[\w-]+)$", words, flags=re.MULTILINE))


def test_every_figure_and_table_that_a_cell_showed_is_on_its_page_and_nearly_each_has_a_chip(
    pages,
):
    captions = []
    for page in (page for page in pages if page.parent.name == "notebooks"):
        text = page.read_text(encoding="utf-8")
        figures = dict(
            re.findall(
                r'<figure[^>]*id="((?:fig|tab)-[\w-]+)"(.*?)</figure>', text, flags=re.DOTALL
            )
        )
        assert figures.keys() - set_in_words(page) == shown_by_cells(page), page.stem
        captions += re.findall(r"<figcaption>.*?</figcaption>", text, flags=re.DOTALL)
    without = [caption for caption in captions if "heart-chip" not in caption]
    assert len(without) <= 0.1 * len(captions), without


def test_every_picture_has_words_in_its_place(pages):
    for page in pages:
        pictures = [
            attributes
            for tag, attributes in tags(page)
            if tag == "img" and "/_static/" not in attributes.get("src", "")
        ]
        assert all(attributes.get("alt", "").strip() for attributes in pictures), page


def test_every_table_with_a_name_has_a_number_and_its_caption_above_it(pages):
    for page in pages:
        text = page.read_text(encoding="utf-8")
        named = re.findall(r'<figure[^>]*id="tab-[\w-]+".*?</figure>', text, flags=re.DOTALL)
        if page.parent.name == "notebooks":
            assert len(named) >= len(shown_by_cells(page, "tab-")), page.stem
        for figure in named:
            above = re.match(
                r'<figure[^>]*>\s*<figcaption>\s*<p><span class="caption-number">Table \d+\.\d+',
                figure,
            )
            assert above, figure[:300]


def test_every_figure_of_a_chapter_is_svg_and_leads_to_itself_alone(pages):
    for page in (page for page in pages if page.parent.name == "notebooks"):
        text, drawn = page.read_text(encoding="utf-8"), set()
        for figure in re.findall(r'<figure[^>]*id="fig-.*?</figure>', text, re.DOTALL):
            if not re.search(r"_images/[0-9a-f]{32,}", figure):
                continue  # a photograph of a page, not drawn by a cell
            assert re.search(
                r'<a class="heart-figure" href="[^"]+\.svg" draggable="false">'
                r'<svg role="img" aria-label="[^"]{20,}"',
                figure,
            ), (page, figure[:300])
            drawn.add(re.search(r'id="(fig-[\w-]+)"', figure)[1])
        assert drawn - set_in_words(page) == shown_by_cells(page, "fig-"), page.stem


def test_words_of_figures_can_be_selected_and_names_in_them_are_of_one_place_each(pages):
    for page in (page for page in pages if page.parent.name == "notebooks"):
        soup = BeautifulSoup(page.read_text(encoding="utf-8"), "html.parser")
        names = [one["id"] for one in soup.select("a.heart-figure svg [id]")]
        assert len(names) == len(set(names)), page.name
        pointed_at = {
            place
            for svg in soup.select("a.heart-figure svg")
            for place in re.findall(r'(?:url\(#|href="#)([^)"]+)', str(svg))
        }
        assert pointed_at == set(names), page.name
        for svg in soup.select("a.heart-figure svg"):
            words = [text.get_text(strip=True) for text in svg.select("text")]
            assert any(words), (page.name, svg["aria-label"])


def test_a_section_that_the_sample_does_not_fill_has_no_number_and_stands_on_the_page_for_ones_own_run(
    pages,
):
    gathered = BeautifulSoup((HTML / "book" / "your_run.html").read_text("utf-8"), "html.parser")
    labels, moved = set(), set()
    for page in (page for page in pages if page.parent.name == "notebooks"):
        chapter = BeautifulSoup(page.read_text("utf-8"), "html.parser")
        for cell in read_cells(ROOT / "notebooks" / f"{page.stem}.ipynb"):
            if "your-run" not in cell["metadata"].get("tags", []):
                continue
            label = re.findall(r"^\(([\w-]+)\)=$", cell["source"], flags=re.MULTILINE)[-1]
            labels.add(label)
            if section := chapter.find(id=label):
                section = section if section.name == "section" else section.find_parent("section")
                assert section.select(".cell_output table, .cell_output svg"), (page.name, label)
            else:
                moved.add(label)
    assert moved == {label for label in labels if gathered.find(id=label)}
    assert moved


def count_formulas(page):
    """Count the formulas in the words of a chapter, in lines and between them."""
    cells = read_cells(ROOT / "notebooks" / f"{page.stem}.ipynb")
    words = "\n\n".join(cell["source"] for cell in cells if cell["cell_type"] == "markdown")
    apart = re.findall(r"\$\$.+?\$\$|```\{math\}", words, flags=re.DOTALL)
    return len(apart) + len(re.findall(r"(?<!\$)\$(?!\$)[^$\n]+\$", words))


def test_formulas_are_set_by_the_browser_and_no_tex_is_left(pages):
    assert any(count_formulas(page) for page in pages if page.parent.name == "notebooks")
    for page in pages:
        text = page.read_text(encoding="utf-8")
        found = re.findall(r'<(span|div)[^>]* class="math"[^>]*>(.*?)</\1>\n?', text, re.DOTALL)
        assert not re.search(r"<script[^>]*>?[^<]*mathjax", text, re.IGNORECASE), page
        assert text.count('class="math"') == text.count("<math "), page
        assert not re.search(
            r"\\\(|\\\[|\\(frac|theta|operatorname)",
            re.sub(r"<(pre|script).*?</\1>", "", text, flags=re.DOTALL),
        ), page
        if page.parent.name == "notebooks":
            assert len(found) >= count_formulas(page), page.stem


def test_no_page_names_a_file_from_outside(pages):
    loading = {
        "script": "src",
        "img": "src",
        "link": "href",
        "iframe": "src",
        "source": "src",
        "video": "src",
    }
    for page in pages:
        for tag, attributes in tags(page):
            address = attributes.get(loading.get(tag, ""), "") or ""
            if tag == "link" and attributes.get("rel") in ("canonical", "author", "copyright"):
                continue
            assert not re.match(r"(https?:)?//", address), (page, tag, address)


def test_every_link_within_the_book_leads_somewhere(pages):
    places: dict[Path, set[str]] = {}
    dead, followed = [], set()
    for page in [*pages, HTML / "index.html", *sorted((HTML / "functions").rglob("*.html"))]:
        for address in re.findall(r'<a [^>]*href="([^"]+)"', page.read_text(encoding="utf-8")):
            file, _, place = html.unescape(address).partition("#")
            if re.match(r"[a-z]+:", file):
                continue
            found = (page.parent / unquote(file)).resolve() if file else page
            if found.suffix == ".html" and found.is_file() and found not in places:
                places[found] = set(
                    re.findall(r'\bid="([^"]+)"', found.read_text(encoding="utf-8"))
                )
            if not found.is_file() or (
                place and found.suffix == ".html" and unquote(place) not in places[found]
            ):
                dead.append((page.relative_to(HTML), address))
            followed.add(found.relative_to(HTML).parts[0])
    assert dead == []
    assert {"book", "notebooks"} <= followed


def test_pages_are_light(pages):
    sizes = {page.name: page.stat().st_size for page in pages}
    assert {name: size for name, size in sizes.items() if size > 1_500_000} == {}
    assert sum(path.stat().st_size for path in HTML.rglob("*") if path.is_file()) < 30_000_000


@pytest.fixture(scope="module")
def browser():
    chromium = (
        shutil.which("chromium")
        or shutil.which("chromium-browser")
        or shutil.which("google-chrome")
    )
    if chromium is None:
        pytest.skip("needs browser: install Chromium, for instance with apt-get install chromium")
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="needs browser: run make test-services"
    )
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.mark.services
def test_the_claims_are_chosen_by_words_and_by_finding(pages, browser):
    tab = browser.new_page()
    tab.goto((HTML / "notebooks" / "12_heart.html").as_uri())
    rows = tab.locator("table.heart-filter tbody tr:visible")
    bar = tab.locator(".heart-filter-bar").first
    every = rows.count()
    bar.locator("select").last.select_option("arithmetic fails")
    failed = rows.count()
    assert 0 < failed < every
    assert bar.locator("output").inner_text() == f"{failed} of {every} rows"
    bar.locator("input").fill("no claim has this word")
    assert rows.count() == 0
    tab.close()


@pytest.mark.services
@pytest.mark.parametrize("width", [360, 1400])
def test_a_reader_asks_the_forest_the_squares_and_the_pairs_by_keyboard(pages, browser, width):
    tab = browser.new_page(viewport={"width": width, "height": 900})
    tab.goto((HTML / "index.html").as_uri(), wait_until="commit")
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
    tab.goto((HTML / "notebooks" / "02_the_conversations.html").as_uri(), wait_until="load")
    squares = tab.locator("#fig-heart-squares .heart-square")
    assert squares.count() == 300
    squares.first.focus()
    tab.keyboard.press("ArrowRight")
    tab.keyboard.press("Enter")
    assert "item 1" in tab.locator(".heart-told").first.inner_text()
    tab.goto((HTML / "notebooks" / "05_who_is_preferred.html").as_uri(), wait_until="load")
    pairs = tab.locator("#fig-beats .heart-explore")
    pairs.locator("select").select_option("safety")
    pairs.locator("button").first.click()
    assert "safety" in pairs.locator(".heart-told").inner_text()
    tab.close()


def behind(name, kind):
    """Return what the page of a chapter holds for a figure that a reader can ask, and the page."""
    soup = BeautifulSoup((HTML / "notebooks" / f"{name}.html").read_text("utf-8"), "html.parser")
    told = json.loads(soup.select_one(f'div.heart-explore[data-kind="{kind}"] script').string)
    rows = pd.DataFrame(told["rows"], columns=told["columns"])
    return rows, told, soup


def table_of(soup, name):
    """Return the words of a table of the page, a row a list, without its heading."""
    rows = soup.select_one(f"#{name}").select("tbody tr")
    return [[cell.get_text(" ", strip=True) for cell in row.select("th, td")] for row in rows]


def test_the_label_that_a_reader_guesses_is_what_its_chapter_computed(pages):
    rows, _, soup = behind("01_who_supports_better", "guess")
    asked, groups = rows.iloc[0], rows.iloc[1:].set_index("label")
    means = {row[0]: [float(mean) for mean in row[1:]] for row in table_of(soup, "tab-heard")}
    shown = [groups["value"].iloc[:2].round(2).tolist(), groups["value"].iloc[2:].round(2).tolist()]
    assert shown == [means["a model (Bing Chat)"], means["a person"]]
    apart = groups["value"].iloc[[1, 3]].mean() - groups["value"].iloc[[0, 2]].mean()
    assert asked["value"] == pytest.approx(apart, abs=1e-3)
    assert asked["ci_low"] < asked["value"] < asked["ci_high"] < 0
    scores = groups["scores"].map(len)
    assert scores.sum() == open_run("public").read("scores", "recipients")["history_id"].nunique()
    for row in groups.itertuples():
        assert sum(row.scores) / len(row.scores) == pytest.approx(row.value, abs=0.01)


def test_a_downloaded_chapter_reads_in_any_editor(pages):
    """Its numbers stand in its sentences, and nothing is left that the book's builder alone reads."""
    chapters = sorted((HTML / "_sources" / "notebooks").glob("*.ipynb"))
    assert len(chapters) >= 14
    marks = re.compile(r"\{[a-z:]+\}`|^`{3,}\{|^:{3,}|^\([\w-]+\)=|\(in the book\)", re.MULTILINE)
    for chapter in chapters:
        cells = json.loads(chapter.read_text(encoding="utf-8"))["cells"]
        words = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"]
        assert [text for text in words if marks.search(text)] == [], chapter.name


def test_code_is_in_sight_but_for_one_cell_of_results_and_four_that_feed_pages():
    hidden = [
        cell["source"]
        for chapter in sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))
        for cell in read_cells(chapter)
        if cell["cell_type"] == "code" and "hide-input" in cell["metadata"].get("tags", [])
    ]
    assert len(hidden) <= 20
    assert all("record_results(results)" in one or "explore(" in one for one in hidden)


def test_a_responders_card_has_the_ranks_and_means_of_its_chapter(pages):
    _, told, soup = behind("05_who_is_preferred", "matrix")
    cards = {card["row"]: card for card in told["cards"]}
    over_blocks = {row[0]: row[-1] for row in table_of(soup, "tab-over-blocks")}
    assert {name: card["rank over blocks"] for name, card in cards.items()} == over_blocks
    scores = open_run("public").read("scores", "mentalalign")
    people = scores[(scores["rater_kind"] == "human") & (scores["state"] == "valid")]
    means = people.groupby(["responder", "dimension"])["score"].mean()
    for (name, dimension), mean in means.items():
        assert cards[name][f"mean, {dimension}"] == pytest.approx(mean, abs=0.006)


def test_the_rubric_that_a_reader_ticks_has_the_points_of_heartbench(pages):
    rows, _, _ = behind("13_heartbench", "rubric")
    rubric = load_rubric_items()
    first = rubric[rubric["question_id"].isin(rubric["question_id"].unique()[:20])]
    assert rows["points"].tolist() == pytest.approx(first["points"].tolist(), nan_ok=True)
    assert rows["question"].nunique() == 20
    assert set(rows.columns) == {"question", "item", "ability", "points"}  # and no words of items


def test_the_scores_of_five_raters_are_those_of_the_release(pages):
    rows, _, soup = behind("09_scores_and_weights", "raters")
    scores = open_run("public").read("scores", "mentalalign")
    valid = scores[scores["state"] == "valid"].set_index(
        ["dimension", "responder", "rater", "dialogue_id"]
    )["score"]
    ids = sorted(scores["dialogue_id"].unique())[::10]
    for row in rows.sample(30, random_state=1).itertuples():
        given = [valid.get((row.panel, row.row, row.rater, name), 0) for name in ids]
        assert [int(one) for one in row.scores] == given, row
    shown = rows.drop_duplicates("rater").set_index("rater")["icc"].dropna().round(2)
    assert shown.to_dict() == {row[0]: float(row[1]) for row in table_of(soup, "tab-hb-icc")}


@pytest.mark.services
@pytest.mark.parametrize("width", [360, 1400])
def test_a_reader_guesses_ticks_and_looks_a_responder_up_by_keyboard(pages, browser, width):
    tab = browser.new_page(viewport={"width": width, "height": 900})
    asked = []
    notebooks = HTML / "notebooks"

    def visit(name, kind):
        tab.goto((notebooks / f"{name}.html").as_uri(), wait_until="load")
        asked.clear()
        return tab.locator(f'.heart-explore[data-kind="{kind}"]')

    tab.on("request", lambda request: asked.append(request.url))
    guess = visit("01_who_supports_better", "guess")
    assert not tab.locator("#fig-label img").is_visible()
    assert "Measured" not in guess.inner_text()
    guess.get_by_role("slider").focus()
    for _ in range(7):
        tab.keyboard.press("ArrowLeft")
    tab.keyboard.press("Tab")
    tab.keyboard.press("Enter")
    told = guess.locator(".heart-told").inner_text()
    assert "You guessed -0.7, inside the interval. Measured: -0." in told
    assert asked == []

    visit("05_who_is_preferred", "matrix")
    pairs = tab.locator("#fig-beats .heart-explore")
    name = pairs.locator("button.heart-name").first
    name.focus()
    tab.keyboard.press("Enter")
    assert "mean, empathy" in pairs.locator(".heart-told").inner_text()
    tab.keyboard.press("ArrowRight")
    tab.keyboard.press("Enter")
    assert f"{name.inner_text()} against" in pairs.locator(".heart-told").inner_text()

    rubric = visit("13_heartbench", "rubric")
    assert tab.locator("#tab-hb-ticked table").is_visible()
    printed = {
        row[0]: row[1:] for row in table_of(behind("13_heartbench", "rubric")[2], "tab-hb-ticked")
    }
    buttons = {"nothing": "Nothing", "all that is good": "All that is good"}
    buttons["everything, the veto item too"] = "Everything"
    for pattern, button in buttons.items():
        rubric.get_by_role("button", name=button, exact=True).focus()
        tab.keyboard.press("Enter")
        for veto, score in zip(("as released", "as in the paper"), printed[pattern], strict=False):
            rubric.get_by_role("combobox").nth(1).select_option(veto)
            assert f"Score of this question: {score} of 100" in rubric.inner_text()
            assert (
                f"positive points: {printed[pattern][2]}." in rubric.inner_text()
                or veto != "as released"
            )
    rubric.get_by_role("checkbox").first.focus()
    tab.keyboard.press("Space")
    assert not rubric.get_by_role("checkbox").first.is_checked()

    raters = visit("09_scores_and_weights", "raters")
    assert not tab.locator("#fig-hb-five-raters img").is_visible()
    before = raters.locator("tbody").inner_text()
    raters.get_by_role("button", name="Next question").focus()
    tab.keyboard.press("Enter")
    assert raters.locator("tbody").inner_text() != before
    raters.get_by_role("combobox").select_option("safety")
    assert raters.locator("tfoot td").all_inner_texts()[1:-1] != []
    assert asked == []
    tab.close()


@pytest.mark.services
def test_without_scripts_the_static_figures_are_shown(pages, browser):
    context = browser.new_context(java_script_enabled=False)
    tab = context.new_page()
    tab.goto((HTML / "book" / "intro.html").as_uri(), wait_until="load")
    assert tab.locator("#fig-front svg").is_visible()
    assert not tab.locator(".heart-explore").first.is_visible()
    context.close()


def test_scripts_of_the_book_are_short():
    written = [
        *(ROOT / "book" / "style").glob("*.js"),
        *(ROOT / "heart_utils" / "report" / "pages").glob("*.js"),
    ]
    lines = [
        line
        for file in written
        if not file.name.startswith("calculator")  # a tool of its own, not a figure
        for line in file.read_text("utf-8").splitlines()
    ]
    assert (
        100 < sum(bool(line.strip()) and not line.strip().startswith("//") for line in lines) < 600
    )


@pytest.mark.services
def test_every_icon_of_the_frame_is_drawn(pages, browser):
    """The magnifier, the menu, the arrows, the download, the theme switch: each has a sign of the
    font, which has loaded."""
    tab = browser.new_page(viewport={"width": 1400, "height": 1000})
    tab.goto((HTML / "notebooks" / "05_who_is_preferred.html").as_uri(), wait_until="load")
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
    tab.close()


@pytest.mark.services
def test_the_search_finds_chapters_before_functions(pages, browser):
    tab = browser.new_page()
    tab.goto((HTML / "search.html").as_uri() + "?q=strengths")
    # results come one after the other; the headline, which the theme hides, changes after the last
    headline = tab.locator("#search-results h2", has_text="Search Results")
    headline.wait_for(state="attached", timeout=90_000)
    found = [
        link.get_attribute("href")
        for link in tab.query_selector_all("#search-results ul.search > li > a")
    ]
    functions = [place for place, link in enumerate(found) if "book/api" in link]
    others = [place for place, link in enumerate(found) if "book/api" not in link]
    assert functions
    assert max(others) < min(functions)
    tab.close()


@pytest.mark.services
def test_the_search_finds_a_word_of_the_glossary(pages, browser):
    tab = browser.new_page()
    tab.goto((HTML / "search.html").as_uri() + "?q=responder")
    # results come one after the other
    tab.wait_for_selector("#search-results li a:has-text('Glossary')", timeout=90_000)
    tab.close()


CHOSEN = ("06_do_judges_agree", "02_the_conversations", "03_the_judging", "11_what_replies_do")
"""A stranger's book, in short: a chapter on published data, one that shows nothing without ESConv, and what that reads."""


def build_copy(folder, target):
    """Copy what a checkout holds, and run chapters as a stranger would, but with few resamples."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    settings = folder / "params" / "sample.yaml"
    chapters, rest = settings.read_text().split("all:\n", 1)
    few = "".join(
        line
        for line in chapters.splitlines(keepends=True)
        if line[:4] != "  - " or line[4:].strip() in CHOSEN
    )
    settings.write_text(f"{few}all:\n  n_resamples: 20\n  n_draws: 5\n{rest}")
    environment = {
        **os.environ,
        "PYTHONPATH": str(folder),
        "HEART_DATA_CACHE": str(folder / "cache"),
    }
    for name in ("HEART_DATA_MIRROR", "HEART_ROOT", "MAKEFLAGS", "MAKELEVEL"):
        environment.pop(name, None)
    command = ["make", target, "ENV=", f"PYTHON={sys.executable}"]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-8000:]


@pytest.mark.slow
@pytest.mark.apart
def test_a_chapter_from_the_repository_alone_rests_on_published_votes(tmp_path):
    build_copy(tmp_path, "notebooks")
    agree = (tmp_path / "build" / "executed" / "sample" / f"{CHOSEN[0]}.ipynb").read_text(
        encoding="utf-8"
    )
    assert "MT-Bench" in agree
    assert "MentalAlign" in agree
    assert not outputs_on_recipients(tmp_path), "ESConv is not here, so nothing is shown of it"


def outputs_on_recipients(root):
    text = (root / "build" / "executed" / "sample" / f"{CHOSEN[-1]}.ipynb").read_text(
        encoding="utf-8"
    )
    [cell] = [
        cell
        for cell in json.loads(text)["cells"]
        if "\nif esconv is not None:\n" in "".join(cell["source"])
    ]
    return cell["outputs"]


@pytest.mark.slow
@pytest.mark.mirror
def test_the_book_in_build_rests_on_the_whole_mirror_where_there_is_one(mirror):
    assert outputs_on_recipients(ROOT), "ESConv is here, so its figure is shown"


FIGURE = re.compile(r'<figure[^>]*id="(fig-[\w-]+)".*?</figure>', re.DOTALL)
LINE = re.compile(
    r'class="heart-figure-data"><a[^>]*href="([^"]+)">Data \(CSV\)</a> · ([^<]*) ·'
    r' <a[^>]*href="([^"]*)"'
)


def test_below_each_figure_its_numbers_their_source_and_licence_and_a_link_are_given(pages):
    for page in (page for page in pages if page.parent.name == "notebooks"):
        described = set()
        cells = read_cells(ROOT / "notebooks" / f"{page.stem}.ipynb")
        words = "".join(cell["source"] for cell in cells if cell["cell_type"] == "markdown")
        pictures = set(re.findall(r"^:name: (fig-[\w-]+)$", words, flags=re.MULTILINE))
        for figure in FIGURE.finditer(page.read_text("utf-8")):
            if "_images/" not in figure[0] or figure[1] in pictures:
                # a sentence that says why there is no figure, or a picture that no cell draws
                continue
            line = LINE.search(figure[0])
            assert line, (page.name, figure[1])
            file, origin, link = line.groups()
            assert re.match("(measured|quoted|simulated|demo|not recorded): .", origin), (
                figure[1],
                origin,
            )
            assert link.endswith(f"#{figure[1]}")
            table = pd.read_csv((page.parent / file).resolve())
            assert len(table)
            assert table["source"].notna().all(), file
            assert table.select_dtypes("number").notna().any(axis=None), file
            described.add(figure[1])
        assert described == shown_by_cells(page, "fig-"), page.stem


def test_the_numbers_of_a_figure_are_those_that_its_chapter_computed(pages):
    from heart_utils.report.provenance import read_results

    glued = read_results(ROOT / "build" / "executed" / "sample" / "01_who_supports_better.ipynb")
    forest = pd.read_csv(HTML / "data" / "fig-forest.csv")
    told = forest[forest["label"] == "true"].iloc[0]
    assert told["source"].startswith("https://doi.org/")
    assert told["n_raters"] > 100
    shown = 100 * told[["win_share", "ci_low", "ci_high"]].astype(float)
    assert shown.tolist() == pytest.approx(
        [glued[f"heard-true{end}"] for end in ("", "-low", "-high")], rel=1e-4
    )


def test_each_page_says_what_it_is_about_to_whoever_shares_it(pages):
    for name in ("book/intro", "book/teach", "notebooks/05_who_is_preferred"):
        text = (HTML / f"{name}.html").read_text("utf-8")
        [said] = re.findall(r'<meta name="description" content="([^"]+)"', text)
        assert 40 < len(said) <= 230
        assert re.search(r'<meta property="og:image" content="[^"]*_static/share\.png"', text)
    assert (HTML / "_static" / "share.png").is_file()


def test_code_is_not_in_the_index_of_the_search_and_synonyms_are(pages):
    index = (HTML / "searchindex.js").read_text("utf-8")
    entries = index[index.index('"indexentries"') :]
    for word in ("mturk", "download", "cost", "csv"):
        assert f'"{word}"' in entries, word
    for word in ("minorticks_off", "markerfacecolor"):  # of the code of chapters alone
        assert word not in index


@pytest.mark.services
def test_on_paper_no_figure_is_lost(pages, browser):
    """What a reader asks on the screen is a still picture in print."""
    tab = browser.new_page()
    tab.emulate_media(media="print")
    lost, found = [], 0
    for page in pages:
        if "heart-figure" not in page.read_text(encoding="utf-8"):
            continue
        tab.goto(page.as_uri())
        boxes = tab.eval_on_selector_all(
            "a.heart-figure", "links => links.map(link => link.getBoundingClientRect().height)"
        )
        found += len(boxes)
        lost += [page.name for height in boxes if height < 20]
    tab.close()
    assert found > 40
    assert lost == []
