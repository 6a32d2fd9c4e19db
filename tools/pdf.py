"""Print the built book as one PDF, with contents, page numbers and links.

``python -m tools.pdf build/html build/heart-in-the-open.pdf`` (`make pdf`) joins the pages of a
built book in the order of its contents, and lets Chromium print them. The numbers in the contents
are printed afterwards, when it is known on which page each part begins.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from posixpath import normpath
from tempfile import TemporaryDirectory

from bs4 import BeautifulSoup
from bs4.element import Tag
from pypdf import PdfReader, PdfWriter

from tools.study_visitor import find_chromium

__all__ = ["PrintError", "join_pages", "print_book"]

PAPER = """
@page { size: A4; margin: 18mm 16mm 20mm }
@page { @bottom-center { content: counter(page); font-size: 9pt } }
@page :first { @bottom-center { content: none } }
html { font-size: 10pt } body { margin: 0 }
.heart-part { break-before: page }
.heart-contents a { display: flex; justify-content: space-between }
.heart-contents a { color: inherit; text-decoration: none }
.heart-contents li { list-style: none }
.heart-contents b { display: block; margin-top: 0.4rem }
h1, h2, h3, h4 { break-after: avoid }
figure svg { max-height: 225mm }
figure svg, tr, .heart-turn { break-inside: avoid }
.heart-scroll, .heart-matrix-box { overflow: visible !important; max-height: none !important }
.bd-article :is(table.dataframe, .heart-scroll > table) :is(td, th) {
  font-size: 7.5pt; white-space: normal !important; overflow-wrap: anywhere;
  min-width: 0 !important }
.heart-scroll > table:not(.dataframe) { min-width: 0 !important }
.heart-filter thead th { position: static }
.bd-article div.cell > div.cell_input { display: block !important }
"""
"""What holds on paper and not on a screen, beside the print rules of `book/style/heart.css`.

Code that stands open is printed, since the text speaks of it.
"""
NUMBERS_ALONE = """
@page { @bottom-center { content: none } }
html, body { background: none !important }
body { visibility: hidden } .heart-contents a > :last-child { visibility: visible }
"""
NOT_ON_PAPER = (
    "script, details.hide, .headerlink, .heart-explore, .heart-filter-bar, button.copybtn"
)
PLACES = ("for", "aria-labelledby", "aria-describedby", "aria-controls")
"""Attributes that name an element of the same page, beside `id` and links."""
PRINTER = ("--headless", "--disable-gpu", "--no-pdf-header-footer", "--no-first-run")
PATIENCE = 1200
"""Seconds that a print may take."""


class PrintError(RuntimeError):
    """The book could not be printed; the message says why."""


def print_book(html: Path, pdf: Path) -> int:
    """Print a built book.

    Parameters
    ----------
    html : pathlib.Path
        The folder of its pages.
    pdf : pathlib.Path
        The file to write.

    Returns
    -------
    int
        How many pages of paper it has.

    Raises
    ------
    PrintError
        If the book is not built, or Chromium is missing or fails.
    """
    with TemporaryDirectory() as folder:
        pages, numbers = Path(folder, "pages.pdf"), Path(folder, "numbers.pdf")
        _print(join_pages(html), pages)
        _print(join_pages(html, _first_pages(pages)), numbers)
        writer = PdfWriter(clone_from=pages)
        for page, number in zip(writer.pages, PdfReader(numbers).pages, strict=False):
            page.merge_page(number)
        pdf.parent.mkdir(parents=True, exist_ok=True)
        writer.write(pdf)
    return len(writer.pages)


def join_pages(html: Path, first_pages: dict[str, int] | None = None) -> str:
    """Join the pages of a built book into one, in the order of its contents.

    Parameters
    ----------
    html : pathlib.Path
        The folder of its pages.
    first_pages : dict, optional
        Name of a part, such as ``"book-intro"`` -> number of its first page on paper. With it the
        page has nothing but these numbers, where they belong in the contents.

    Returns
    -------
    str
        A page without scripts. Its links lead within it or to other sites.

    Raises
    ------
    PrintError
        If there is no built book, or one of its pages has no article.
    """
    front = html / "book" / "intro.html"
    if not front.is_file():
        raise PrintError(f"There is no built book in {html}. Run `make book` first.")
    soup = _read(front)
    listed = soup.select("nav.bd-links p.caption, nav.bd-links a")
    links = [link for link in listed if link.name == "a"]
    pages = [_resolve("book/intro.html", str(link["href"])) for link in links]
    numbers = first_pages or {}
    entries = [_entry(entry, numbers) for entry in listed]
    brand = soup.select_one(".navbar-brand, .logo__title")
    title = brand.get_text(strip=True) if brand else "The book"
    built_on = soup.select_one(".extra_footer")
    sheets = [_local(front, str(sheet["href"])) for sheet in soup.select("link[rel=stylesheet]")]
    parts = [] if first_pages else [_part(html, page, set(pages)) for page in pages]
    return "\n".join(
        [
            '<!DOCTYPE html><html lang="en" data-theme="light"><head><meta charset="utf-8">',
            f"<title>{title}</title>",
            *(f'<link rel="stylesheet" href="{sheet}">' for sheet in sheets),
            f"<style>{PAPER}{NUMBERS_ALONE if first_pages else ''}</style></head>",
            f'<body><main class="bd-content"><div class="bd-article"><h1>{title}</h1>',
            f"{built_on or ''}<h2>Contents</h2>",
            f'<ul class="heart-contents">{"".join(entries)}</ul></div>',
            *parts,
            "</main></body></html>",
        ]
    )


def _read(page: Path) -> BeautifulSoup:
    return BeautifulSoup(page.read_text(encoding="utf-8"), "html.parser")


def _resolve(page: str, link: str) -> str:
    """Name the page that a link of another page leads to, from the folder of the book."""
    target = link.partition("#")[0]
    return normpath(f"{page.rpartition('/')[0]}/{target}") if target else page


def _name(page: str) -> str:
    return page.removesuffix(".html").replace("/", "-")


def _local(page: Path, file: str) -> str:
    return (page.parent / file.partition("?")[0]).resolve().as_uri()


def _entry(entry: Tag, numbers: dict[str, int]) -> str:
    """Write a line of the contents: a heading, or a page with the number of its first."""
    words = f"<span>{entry.get_text(strip=True)}</span>"
    if entry.name != "a":
        return f"<li><b>{words}</b></li>"
    name = _name(_resolve("book/intro.html", str(entry["href"])))
    return f'<li><a href="#{name}">{words}<span>{numbers.get(name, "")}</span></a></li>'


def _part(html: Path, page: str, pages: set[str]) -> str:
    """Take what a page says, with names that no other page has."""
    article = _read(html / page).select_one("article.bd-article")
    if article is None:
        raise PrintError(f"The page {page} has no article.")
    for gone in article.select(NOT_ON_PAPER):
        gone.decompose()
    for fold in article.select("details"):
        fold["open"] = ""
    for figure in article.select("[hidden]"):
        del figure["hidden"]
    for element in article.find_all(True):
        _rename(element, _name(page))
        _relink(element, html / page, page, pages)
    return f'<section class="heart-part" id="{_name(page)}">{article}</section>'


def _rename(element: Tag, name: str) -> None:
    """Put the name of the page before what an element is called and what it points at."""
    if element.get("id"):
        element["id"] = f"{name}--{element['id']}"
    for attribute in PLACES:
        if element.get(attribute):
            named = str(element[attribute]).split()
            element[attribute] = " ".join(f"{name}--{one}" for one in named)
    for attribute, value in list(element.attrs.items()):
        if "url(#" in str(value):
            element[attribute] = str(value).replace("url(#", f"url(#{name}--")
        if attribute in ("href", "xlink:href") and str(value).startswith("#"):
            element[attribute] = f"#{name}--{str(value)[1:]}" if value != "#" else f"#{name}"


def _relink(element: Tag, file: Path, page: str, pages: set[str]) -> None:
    """Let a link lead to the same place of the joined page; a file of the book has none there."""
    if element.get("src"):
        element["src"] = _local(file, str(element["src"]))
    href = str(element.get("href", ""))
    if element.name != "a" or not href or href.startswith(("#", "mailto:")) or "://" in href:
        return
    place, to = href.partition("#")[2], _resolve(page, href)
    if to in pages:
        element["href"] = f"#{_name(to)}--{place}" if place else f"#{_name(to)}"
    else:
        del element["href"]


def _first_pages(pdf: Path) -> dict[str, int]:
    """Read where the links of the contents lead: name of a part -> number of its page."""
    reader = PdfReader(pdf)
    found = {
        name.lstrip("/"): reader.get_destination_page_number(place)
        for name, place in reader.named_destinations.items()
    }
    return {name: number + 1 for name, number in found.items() if number is not None}


def _print(words: str, pdf: Path) -> None:
    """Let Chromium print a page, with the headings as the PDF's outline."""
    chromium = find_chromium()
    if chromium is None:
        raise PrintError("Chromium is not installed: apt-get install chromium.")
    page = pdf.with_suffix(".html")
    page.write_text(words, encoding="utf-8")
    command = [chromium, *PRINTER, "--generate-pdf-document-outline", f"--print-to-pdf={pdf}"]
    if os.geteuid() == 0:
        command.append("--no-sandbox")
    done = subprocess.run([*command, page.as_uri()], capture_output=True, timeout=PATIENCE)
    if done.returncode or not pdf.is_file():
        raise PrintError(f"Chromium did not print the book: {done.stderr.decode()[-500:]}")


def main(arguments: list[str]) -> int:
    """Print the book in the folder named first to the file named second."""
    html, pdf = (Path(argument).resolve() for argument in arguments)
    try:
        n_pages = print_book(html, pdf)
    except PrintError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"The book is in {pdf}: {n_pages} pages, {pdf.stat().st_size / 1e6:.0f} MB.")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
