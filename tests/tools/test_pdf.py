"""The book as one page to print, and as one PDF."""

import re

import pytest
from bs4 import BeautifulSoup
from pypdf import PdfReader
from pypdf.generic import IndirectObject

from heart_utils.runs import find_root
from tools.pdf import PrintError, _print, join_pages, print_book

NAVIGATION = """<a class="navbar-brand">A small book</a>
<nav class="bd-links"><a href="#">The front</a><p class="caption">The answer</p>
<a href="../notebooks/01_votes.html">Who is preferred?</a><a href="words.html">Words</a></nav>"""
PAGES = {
    "book/intro.html": """<p>See <a href="../notebooks/01_votes.html#ties">ties</a>, or
<a href="https://example.org/">elsewhere</a>.</p><h2 id="ties">Ties at the front</h2>""",
    "notebooks/01_votes.html": """<h1>Who is preferred?</h1><h2 id="ties">Ties</h2>
<p>A <a href="../book/words.html">word</a>, <a href="#ties">again</a>, <a href="../data/a.csv">CSV</a>,
<a href="#">top</a>.</p><details class="hide"><pre>import hidden</pre></details>
<div class="cell"><div class="cell_input"><pre>seen = 1</pre></div></div>
<div class="heart-explore">asks a script</div>
<a class="heart-figure" hidden><svg width="90" height="30" viewBox="0 0 90 30"><text y="20">A drawn word</text></svg></a>
<details class="heart-folded"><summary>Demo</summary><p>What was folded.</p></details>""",
    "book/words.html": "<h1>Words</h1>" + "<p>A line that takes room on paper.</p>" * 80,
}


@pytest.fixture
def book(tmp_path):
    for name, words in PAGES.items():
        page = tmp_path / name
        page.parent.mkdir(exist_ok=True)
        page.write_text(f'<body>{NAVIGATION}<article class="bd-article">{words}</article></body>')
    return tmp_path


def dead_links(joined):
    """List the links within a page that lead nowhere."""
    soup = BeautifulSoup(joined, "html.parser")
    names = {element["id"] for element in soup.select("[id]")}
    targets = {str(link["href"]) for link in soup.select("a[href]")}
    return {name for name in targets if name.startswith("#") and name[1:] not in names}


def test_links_lead_to_the_same_place_and_files_of_the_book_have_none(book):
    soup = BeautifulSoup(join_pages(book), "html.parser")
    links = {link.get_text(): link.get("href") for link in soup.select("section a")}
    assert links.pop("A drawn word") is None
    assert links == {
        "ties": "#notebooks-01_votes--ties",
        "elsewhere": "https://example.org/",
        "word": "#book-words",
        "again": "#notebooks-01_votes--ties",
        "CSV": None,
        "top": "#notebooks-01_votes",
    }
    assert dead_links(str(soup)) == set()
    broken = str(soup).replace('id="notebooks-01_votes--ties"', "")
    assert dead_links(broken) == {"#notebooks-01_votes--ties"}


def test_what_the_text_speaks_of_is_printed_and_what_needs_a_screen_is_not(book):
    joined = join_pages(book)
    for words in ("seen = 1", "A drawn word", "What was folded."):
        assert words in joined
    for words in ("import hidden", "asks a script", "hidden=", "<script"):
        assert words not in joined


def test_without_a_book_or_chromium_it_says_what_to_run(book, tmp_path, monkeypatch):
    with pytest.raises(PrintError, match="Run `make book` first"):
        join_pages(tmp_path / "none")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("HEART_CHROMIUM", raising=False)
    with pytest.raises(PrintError, match="apt-get install chromium"):
        print_book(book, tmp_path / "book.pdf")


@pytest.mark.services
def test_the_pdf_has_contents_with_page_numbers_titles_and_links(book, tmp_path):
    pdf = tmp_path / "out" / "book.pdf"
    n_pages = print_book(book, pdf)
    reader = PdfReader(pdf)
    texts = [page.extract_text() for page in reader.pages]
    assert (
        n_pages == len(texts) >= 5
    )  # contents, front, chapter, and a page of words too long for one
    titles = ["The front", "The answer", "Who is preferred?", "Words"]
    assert texts[0].split("\n") == ["A small book", "Contents", *titles, "2", "3", "4"]
    for title, number in (("Ties at the front", 2), ("Who is preferred?", 3), ("Words", 4)):
        assert title in texts[number - 1]
    assert [text.split()[0] for text in texts[1:]] == [str(n) for n in range(2, n_pages + 1)]
    assert "Who is preferred?" in [entry.title for entry in flat(reader.outline)]
    inside, outside = links_of(reader)
    assert outside == {"https://example.org/"}
    places = reader.named_destinations
    parts = {"/book-intro", "/book-words", "/notebooks-01_votes"}
    assert inside == parts | {"/notebooks-01_votes--ties"}
    assert inside <= set(places)
    [ties] = [place for name, place in places.items() if "votes--ties" in name]
    assert reader.get_destination_page_number(ties) == 2


@pytest.mark.services
def test_the_numbers_are_printed_on_nothing_that_would_hide_the_contents(book, tmp_path):
    sheet = tmp_path / "numbers.pdf"
    _print(join_pages(book, {"book-words": 4}), sheet)
    drawn = PdfReader(sheet).pages[0].get_contents().get_data().split()
    assert b"Tj" in drawn or b"TJ" in drawn
    assert {b"f", b"f*", b"F", b"B"}.isdisjoint(drawn)  # no surface is filled
    _print("<body style='background: white; print-color-adjust: exact'>4</body>", sheet)
    assert b"f" in PdfReader(sheet).pages[0].get_contents().get_data().split()


def flat(outline):
    """List the entries of an outline with those below them."""
    return [
        one for entry in outline for one in (flat(entry) if isinstance(entry, list) else [entry])
    ]


def links_of(reader):
    """Give the names that links inside a PDF lead to, and the addresses outside."""
    inside, outside = set(), set()
    for page in reader.pages:
        for link in page.get("/Annots", []):
            link = link.get_object() if isinstance(link, IndirectObject) else link
            if "/A" in link and "/URI" in link["/A"]:
                outside.add(str(link["/A"]["/URI"]))
            elif "/Dest" in link:
                inside.add(str(link["/Dest"]))
    return inside, outside


@pytest.mark.slow
def test_no_link_within_the_printed_book_is_dead_and_every_chapter_is_there():
    html = find_root() / "build" / "html"
    if not (html / "book" / "intro.html").is_file():
        pytest.skip("needs book: run `make book`")
    joined = join_pages(html)
    assert dead_links(joined) == set()
    for chapter in (html / "notebooks").glob("*.html"):
        assert f'id="notebooks-{chapter.stem}"' in joined
    assert "file://" not in re.sub(r'(src|<link rel="stylesheet" href)="file://', "", joined)
