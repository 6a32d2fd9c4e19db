"""The built book as a reader gets it, in its files; tests/services opens it in a browser."""

import html
import json
import os
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from urllib.parse import unquote

import pandas as pd
import pytest
from bs4 import BeautifulSoup

from heart_utils.report.tables import read_results
from heart_utils.runs import find_root, open_run
from tools.notebooks import read_cells

ROOT = find_root()
HTML = ROOT / "build" / "html"
EXECUTED = ROOT / "build" / "executed" / "sample"


@pytest.fixture(scope="module")
def pages():
    found = sorted(
        page for folder in ("book", "notebooks") for page in (HTML / folder).rglob("*.html")
    )
    return found or pytest.skip("needs book: run `make book`")


@pytest.fixture(scope="module")
def chapters(pages):
    return [page for page in pages if page.parent.name == "notebooks"]


@cache
def soup_of(page):
    return BeautifulSoup(page.read_text("utf-8"), "html.parser")


def words_of(page):
    """Return what the source of a chapter says outside code."""
    cells = read_cells(ROOT / "notebooks" / f"{page.stem}.ipynb")
    return "\n".join(cell["source"] for cell in cells if cell["cell_type"] == "markdown")


def test_every_simulation_that_is_kept_was_read_and_none_ran(pages):
    told = [file.read_text() for file in EXECUTED.glob(".*.anew")]
    assert not told, (
        "run `make simulations`, look at `git diff data/simulated`, and say why in the commit"
    )


def test_no_chapter_shows_a_warning(chapters):
    outputs = [
        output
        for page in chapters
        for cell in read_cells(EXECUTED / f"{page.stem}.ipynb")
        for output in cell.get("outputs", [])
    ]
    assert outputs
    assert [out["text"] for out in outputs if out.get("name") == "stderr"] == []


def test_the_line_below_a_title_names_each_kind_of_evidence_and_each_section_that_shows_it(
    chapters,
):
    for page in chapters:
        top = soup_of(page).select_one("article section")
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
        assert shown == listed != set(), page.stem


def test_the_index_of_the_search_is_loaded_on_the_page_of_the_search_and_on_no_other(pages):
    assert pages
    loads = [
        page.name
        for page in HTML.glob("*.html")
        if re.search(r"<script[^>]*searchindex\.js", page.read_text("utf-8"))
    ]
    assert loads == ["search.html"]


def shown_by_cells(page):
    """Return the names of figures and tables that cells of a chapter showed."""
    figures = [
        cell["metadata"].get("mystnb", {}).get("figure", {})
        for cell in read_cells(EXECUTED / f"{page.stem}.ipynb")
        if cell.get("outputs")
    ]
    return {one["name"] for one in figures if "name" in one}


ORIGIN = re.compile("(measured|quoted|simulated|demo|not recorded): .")


def check_table(figure):
    above = figure.find(True, recursive=False)
    assert above.name == "figcaption"
    assert re.match(r"Table \d+\.\d+", above.get_text(strip=True))


def check_drawing(page, figure):
    """A figure that a cell drew leads to itself alone, and its numbers stand below it."""
    picture = figure.select_one("a.heart-figure[href$='.svg'][draggable=false] > svg[role=img]")
    assert len(picture["aria-label"]) >= 20
    assert any(text.get_text(strip=True) for text in picture.select("text"))  # can be selected
    line = figure.select_one(".heart-figure-data")
    file, anchor = (link["href"] for link in line.select("a")[:2])
    assert ORIGIN.match(line.get_text().split(" · ")[1])
    assert anchor.endswith(f"#{figure['id']}")
    table = pd.read_csv((page.parent / file).resolve())
    assert len(table)
    assert table["source"].notna().all(), file
    assert table.select_dtypes("number").notna().any(axis=None), file


def test_every_figure_and_table_that_a_cell_showed_is_on_its_page_with_number_words_and_source(
    chapters,
):
    captions = []
    for page in chapters:
        figures = {one["id"]: one for one in soup_of(page).select("figure[id]")}
        figures = {name: one for name, one in figures.items() if name[:4] in ("fig-", "tab-")}
        in_words = set(re.findall(r"^:name: ([\w-]+)$", words_of(page), flags=re.MULTILINE))
        assert figures.keys() - in_words == shown_by_cells(page), page.stem
        captions += soup_of(page).select("figcaption")
        for name, figure in figures.items():
            if name.startswith("tab-"):
                check_table(figure)
            elif name not in in_words:
                check_drawing(page, figure)
    without = [caption for caption in captions if not caption.select(".heart-chip")]
    assert len(without) <= 0.1 * len(captions), without


def test_names_in_drawings_are_of_one_place_each(chapters):
    for page in chapters:
        drawings = soup_of(page).select("a.heart-figure svg")
        names = [one["id"] for drawing in drawings for one in drawing.select("[id]")]
        assert len(names) == len(set(names)), page.name
        links = [re.findall(r'(?:url\(#|href="#)([^)"]+)', str(drawing)) for drawing in drawings]
        assert set().union(*links) == set(names), page.name


def test_every_picture_has_words_in_its_place(pages):
    for page in pages:
        for picture in re.findall(r"<img\b[^>]*>", page.read_text("utf-8")):
            assert "/_static/" in picture or re.search(r'\balt="\s*[^"\s]', picture), page


def test_a_section_that_the_sample_does_not_fill_has_no_number_and_stands_on_the_page_for_ones_own_run(
    chapters,
):
    gathered = soup_of(HTML / "book" / "your_run.html")
    labels, moved = set(), set()
    for page in chapters:
        for cell in read_cells(ROOT / "notebooks" / f"{page.stem}.ipynb"):
            if "your-run" not in cell["metadata"].get("tags", []):
                continue
            label = re.findall(r"^\(([\w-]+)\)=$", cell["source"], flags=re.MULTILINE)[-1]
            labels.add(label)
            if section := soup_of(page).find(id=label):
                section = section if section.name == "section" else section.find_parent("section")
                assert section.select(".cell_output table, .cell_output svg"), (page.name, label)
            else:
                moved.add(label)
    assert moved == {label for label in labels if gathered.find(id=label)} != set()


def test_formulas_are_set_by_the_browser_and_no_tex_is_left(chapters):
    for page in chapters:
        text = page.read_text(encoding="utf-8")
        assert text.count('class="math"') == text.count("<math "), page
        apart = len(re.findall(r"\$\$.+?\$\$|```\{math\}", words_of(page), flags=re.DOTALL))
        assert text.count("<math ") >= apart, page
        code_apart = re.sub(r"<(pre|script).*?</\1>", "", text, flags=re.DOTALL)
        assert not re.search(r"\\\(|\\\[|\\(frac|theta|operatorname)", code_apart), page


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


def behind(name, kind):
    """Return what the page of a chapter holds for a figure that a reader can ask, and the page."""
    soup = soup_of(HTML / "notebooks" / f"{name}.html")
    told = json.loads(soup.select_one(f'div.heart-explore[data-kind="{kind}"] script').string)
    rows = pd.DataFrame(told["rows"], columns=told["columns"])
    return rows, told, soup


def table_of(soup, name):
    """Return the words of a table of the page, a row a list, without its heading."""
    rows = soup.select_one(f"#{name}").select("tbody tr")
    return [[cell.get_text(" ", strip=True) for cell in row.select("th, td")] for row in rows]


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


@pytest.fixture(scope="module")
def scores(pages):
    scores = open_run("public").read("scores", "mentalalign")
    return scores[scores["state"] == "valid"]


def test_a_responders_card_has_the_ranks_and_means_of_its_chapter(scores):
    _, told, soup = behind("05_who_is_preferred", "matrix")
    cards = {card["row"]: card for card in told["cards"]}
    over_blocks = {row[0]: row[-1] for row in table_of(soup, "tab-over-blocks")}
    assert {name: card["rank over blocks"] for name, card in cards.items()} == over_blocks
    people = scores[scores["rater_kind"] == "human"]
    means = people.groupby(["responder", "dimension"])["score"].mean()
    for (name, dimension), mean in means.items():
        assert cards[name][f"mean, {dimension}"] == pytest.approx(mean, abs=0.006)


def test_the_scores_of_five_raters_are_those_of_the_release(scores):
    rows, _, soup = behind("09_scores_and_weights", "raters")
    ids = sorted(open_run("public").read("scores", "mentalalign")["dialogue_id"].unique())[::10]
    some = scores[scores["dialogue_id"].isin(ids)]
    valid = some.set_index(["dimension", "responder", "rater", "dialogue_id"])["score"]
    for row in rows.sample(30, random_state=1).itertuples():
        given = [valid.get((row.panel, row.row, row.rater, name), 0) for name in ids]
        assert [int(one) for one in row.scores] == given, row
    shown = rows.drop_duplicates("rater").set_index("rater")["icc"].dropna().round(2)
    assert shown.to_dict() == {row[0]: float(row[1]) for row in table_of(soup, "tab-hb-icc")}


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


def test_the_numbers_of_a_figure_are_those_that_its_chapter_computed(pages):
    glued = read_results(EXECUTED / "01_who_supports_better.ipynb")
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
