"""Sections that a run does not fill leave their chapter for one page."""

import pytest
from small_project import cell

from tools.your_run import move_empty_sections

HEADED = "(mine)=\n## Your raters\n\nWhat they said."


def shown(kind):
    filled = cell("show()")
    filled["outputs"] = [{"output_type": "display_data", "data": {kind: "x"}, "metadata": {}}]
    return filled


def test_a_section_without_a_result_comes_back_as_prose_and_the_rest_stays():
    opening = cell("# Who?", kind="markdown")
    heading = cell(f"The end.\n\n{HEADED}", kind="markdown", tags=["your-run"])
    after = cell("## Limits", kind="markdown")
    kept, moved = move_empty_sections([opening, heading, shown("text/markdown"), after])
    assert [part["source"] for part in kept] == ["# Who?", "The end.", "## Limits"]
    assert moved.strip().startswith(HEADED)
    assert "```python\nshow()\n```" in moved


@pytest.mark.parametrize("kind", ["text/html", "image/svg+xml"])
def test_a_section_with_a_table_or_a_figure_stays_and_one_that_is_not_tagged(kind):
    tagged = [cell(HEADED, kind="markdown", tags=["your-run"]), cell("load()"), shown(kind)]
    plain = [cell(HEADED, kind="markdown"), cell("load()")]
    for cells in (tagged, plain):
        assert move_empty_sections(cells) == (cells, "")


def test_a_tag_on_a_cell_without_a_heading_is_a_fault():
    with pytest.raises(ValueError, match="opens no section: 'only words'"):
        move_empty_sections([cell("only words", kind="markdown", tags=["your-run"])])
