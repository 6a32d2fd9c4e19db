"""Layout of the tables that cells show: complete, whatever their names and numbers."""

import re
from typing import Any

from bs4 import BeautifulSoup
from bs4.element import NavigableString, Tag

__all__ = ["MINUS", "lay_out"]

NUMBER = re.compile(r"[-+−–]?[\d.,]*( ?%)?")
MINUS = re.compile(r"(?<![\w.)\-])-(?=\.?\d)")
"""A hyphen before a number, which figures and prose set as a minus."""
SHORT = 14
"""Characters up to which what a cell says stays on one line: an id, a date, a name."""


def lay_out(table: str) -> str:
    """Format a table: names of rows beside those of columns, numbers to the right.

    Long words may break at marked places.

    Examples
    --------
    >>> "rating_<wbr/>low" in lay_out("<table><thead><tr><th>rating_low</th></tr></thead></table>")
    True
    >>> "−0.3 to −0.1" in lay_out("<table><tbody><tr><td>-0.3 to -0.1</td></tr></tbody></table>")
    True
    """
    page = BeautifulSoup(table, "html.parser")
    head, body = page.find("thead"), page.find("tbody")
    if head:
        _join_last_rows(head)
    if head and body:
        _mark_cells(_rows(head), _rows(body))
    for cell in page.find_all("th" if not body else ["th", "td"]):
        _let_break(page, cell, always=cell.find_parent("thead") is not None)
    return str(page)


def _rows(part: Tag) -> list[list[Tag]]:
    return [row.find_all(["th", "td"], recursive=False) for row in part.find_all("tr")]


def _says(cell: Tag) -> str:
    return str(cell.get_text()).strip().strip("\xa0")


def _join_last_rows(head: Tag) -> None:
    """Move the names of an index into the empty cells above them.

    pandas gives them a row of their own.
    """
    rows = head.find_all("tr")
    if len(rows) < 2:
        return
    above, below = _rows(head)[-2:]
    named = [column for column, cell in enumerate(below) if _says(cell)]
    if len(above) != len(below) or any(_says(above[column]) for column in named):
        return
    for column in named:
        above[column].replace_with(below[column])
    rows[-1].decompose()


def _mark_cells(head: list[list[Tag]], body: list[list[Tag]]) -> None:
    """Mark numbers, headings of columns of numbers, and what is short enough for one line."""
    width = min((len(row) for row in body), default=0)
    for from_right in range(1, width + 1):  # what spans rows stands on the left
        column = [row[-from_right] for row in body]
        if column[0].name != "td":
            continue
        numbers = all(NUMBER.fullmatch(_says(cell)) for cell in column) and any(
            _says(cell).strip("–") for cell in column
        )
        for cell in [*column, *(row[-from_right] for row in head if len(row) >= width)]:
            if numbers and not cell.has_attr("colspan"):
                cell["data-number"] = ""
    for row in body:
        for cell in row:
            if len(_says(cell)) > SHORT and not cell.has_attr("data-number"):
                cell["data-words"] = ""


def _let_break(page: BeautifulSoup, cell: Tag, *, always: bool) -> None:
    """Allow a break after an underscore of a heading, and after a stroke of a long word."""
    for text in list(cell.find_all(string=True)):
        if MINUS.search(text):
            text.replace_with(text := NavigableString(MINUS.sub("−", text)))
        parts: list[Any] = re.split(
            r"(?<=\w_)(?=\w)" if always else r"(?<=\w/)(?=[A-Za-z])", str(text)
        )
        if len(parts) == 1:
            continue
        for part in parts[:-1]:
            text.insert_before(part, page.new_tag("wbr"))
        text.replace_with(parts[-1])
