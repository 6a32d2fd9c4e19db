"""Pages in place of chapters that a run leaves out, so that links to them still work."""

from __future__ import annotations

import re
from pathlib import Path

from tools.notebooks import read_cells

__all__ = ["page_without", "unglue"]

HEADED = re.compile(r"^\((?P<label>[\w-]+)\)=\n(?P<heading>#+ .+)$", flags=re.MULTILINE)
GLUED = re.compile(r"\{glue[^}]*\}`(?:\.\./)*notebooks/(?P<chapter>\w+)\.ipynb::[^`]+`")


def page_without(notebook: Path, run: str, reason: str = "") -> str:
    """Write the page of a chapter that did not run: its headings, and why it is empty.

    The headings keep their labels.

    Parameters
    ----------
    notebook : pathlib.Path
        The chapter's source.
    run : str
        The run that leaves it out.
    reason : str
        Why, in a sentence, as the run's settings say under `left_out:`.

    Returns
    -------
    str
        MyST.
    """
    words = "\n\n".join(
        "".join(cell["source"]) for cell in read_cells(notebook) if cell["cell_type"] == "markdown"
    )
    headed = [(match["label"], match["heading"]) for match in HEADED.finditer(words)]
    title = next(
        (line for line in words.splitlines() if line.startswith("# ")), f"# {notebook.stem}"
    )
    reason_text = f"The run `{run}` leaves this chapter out, so it has no figures here."
    reason_text += (
        f" {reason.strip()}"
        if reason
        else f" Name `{notebook.stem}` under `chapters:` in\n`params/{run}.yaml` to have it run."
    )
    parts = [f"({label})=\n{heading}\n" for label, heading in headed if heading != title]
    above = next((f"({label})=\n" for label, heading in headed if heading == title), "")
    return "\n".join(
        [
            f"{above}{title}\n",
            f"{reason_text}\n",
            *(re.sub(r"^(\([^\n]+\n)#+", r"\1##", part) for part in parts),
        ]
    )


def unglue(text: str, present: set[str]) -> str:
    """Replace by a word each number from a chapter that did not run.

    Parameters
    ----------
    text : str
        A page of prose.
    present : set of str
        Names of the chapters that ran.

    Returns
    -------
    str
        The page, without pointers to outputs that are not there.

    Examples
    --------
    >>> unglue("So {glue:text}`../notebooks/06_b.ipynb::n` of them.", {"05_a"})
    'So *(not in this run)* of them.'
    """
    return GLUED.sub(
        lambda match: match[0] if match["chapter"] in present else "*(not in this run)*", text
    )
