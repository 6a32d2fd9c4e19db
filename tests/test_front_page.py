"""The front page: each number on it is made by one cell, and a link beside it leads there."""

import re

from heart_utils.runs import find_root
from tools.notebooks import read_cells

ROOT = find_root()
PARAGRAPHS = (ROOT / "book" / "intro.md").read_text(encoding="utf-8").split("\n\n")
GLUED = re.compile(r"\{glue:text\}`\.\./notebooks/(\w+)\.ipynb::([\w-]+)(?::[^`]+)?`")
LINKED = re.compile(r"\{ref\}`[^`<]*<?([\w-]+)>?`")


def makers(chapter, key):
    """List the labels of the sections whose cells glue a key, once for each cell that does."""
    label, found = None, []
    for cell in read_cells(ROOT / "notebooks" / f"{chapter}.ipynb"):
        if cell["cell_type"] == "markdown":
            label = (re.findall(r"^\(([\w-]+)\)=$", cell["source"], flags=re.MULTILINE) or [label])[-1]
        elif re.search(rf"""(glue\(\s*["']{re.escape(key)}["']|["']{re.escape(key)}["']:)""", cell["source"]):
            found.append(label)
    return found


def test_each_finding_on_the_front_page_is_made_by_one_cell_and_its_paragraph_links_the_section_of_that_cell():
    keys = [(chapter, key, text) for text in PARAGRAPHS for chapter, key in GLUED.findall(text)]
    assert len(keys) >= 5
    for chapter, key, text in keys:
        sections = makers(chapter, key)
        assert len(sections) == 1, f"{key} is glued by {len(sections)} cells of {chapter}"
        assert sections[0] in LINKED.findall(text), f"beside {key}, link {sections[0]}"


def test_nothing_glued_on_the_front_page_is_written_in_a_way_that_the_test_above_does_not_see():
    assert sum(text.count("{glue") for text in PARAGRAPHS) == sum(len(GLUED.findall(text)) for text in PARAGRAPHS)
