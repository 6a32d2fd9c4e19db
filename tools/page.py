"""Set one executed notebook as a page, with its numbers in its sentences.

``python -m tools.page mine.ipynb`` writes ``build/page/mine.html`` and ``build/page/mine.ipynb``,
the notebook as Jupyter, an editor or Colab shows it: what only the book's own builder reads
(numbers of the run, links, chips, labels, boxes) is plain text in it. *Download* on a chapter gives
the same.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import nbformat

from heart_utils.report.tables import read_results
from heart_utils.runs import find_root, write_atomically
from tools.notebooks import say_other_values

__all__ = ["fill_in", "make_page", "make_plain"]

ROLE = re.compile(r"\{(?P<role>[a-z:]+)\}`(?P<said>[^`]+)`")
LABEL = re.compile(r"^\([\w-]+\)=\n", flags=re.MULTILINE)
BOX = re.compile(
    r"^(?P<fence>`{3,}|:{3,})\{(?P<kind>[\w-]+)\} ?(?P<title>[^\n]*)\n(?::[\w-]+:[^\n]*\n)*"
    r"(?P<said>.*?)^(?P=fence)$",
    flags=re.MULTILINE | re.DOTALL,
)
EQUATION = re.compile(r"^\$\$ \([\w-]+\)$", flags=re.MULTILINE)
OTHER = re.compile(r"(?:\.\./)*notebooks/(\w+)\.ipynb::")
CHIPS = ("measured", "quoted", "simulated", "demo")


def fill_in(text: str, glued: dict[str, Any]) -> str:
    r"""Replace what only the book's builder reads by numbers and plain words.

    Parameters
    ----------
    text : str
        A cell of Markdown.
    glued : dict
        Name -> value; of another chapter ``"chapter::name"`` -> value.

    Returns
    -------
    str
        Markdown; a number that is not among these reads "(in the book)".

    Examples
    --------
    >>> fill_in(
    ...     "(a)=\n# {term}`Pairs <pair>`: {glue:text}`n:,d` {measured}`Yin et al.`", {"n": 1200}
    ... )
    '# Pairs: 1,200 [measured: Yin et al.]'
    """

    def plain(match: re.Match[str]) -> str:
        role, target = match["role"], match["said"]
        if role.startswith("glue"):
            name, _, number_format = OTHER.sub(r"\1/", target).partition(":")
            name = name.replace("/", "::")
            return format(glued[name], number_format) if name in glued else "(in the book)"
        if role in CHIPS:
            return f"[{role}]" if target == "-" else f"[{role}: {target}]"
        # "chapter %s <who-is-preferred>": numbers are the book's
        if role == "numref" and "%s" in target:
            words, _, label = target.rstrip(">").partition("%s <")
            return f"{words}*{label.replace('-', ' ')}*"
        if role == "math":
            return f"${target}$"
        return (
            f"({target})" if role.startswith("cite") else target.partition("<")[0].strip() or target
        )

    return ROLE.sub(plain, _open_boxes(EQUATION.sub("$$", LABEL.sub("", text))))


def _open_boxes(text: str) -> str:
    """Write folds as HTML, remarks as quotations and other boxes as what is in them."""

    def plain(match: re.Match[str]) -> str:
        title, said = match["title"].strip(), _open_boxes(match["said"]).strip()
        if match["kind"] == "dropdown":
            return f"<details><summary>{title}</summary>\n\n{said}\n\n</details>"
        if match["kind"] in ("note", "warning", "admonition"):
            lines = [f"**{title or match['kind'].capitalize()}**", "", *said.splitlines()]
            return "\n".join(f"> {line}".rstrip() for line in lines)
        return f"![{said}]({title})" if match["kind"] == "figure" else said

    return BOX.sub(plain, text)


def make_plain(written: nbformat.NotebookNode, glued: dict[str, Any]) -> None:
    """Put an executed notebook's numbers into its sentences, so that any editor shows them."""
    if doubt := say_other_values(written["cells"]):
        first = next(cell for cell in written["cells"] if cell["cell_type"] == "markdown")
        title, _, rest = first["source"].partition("\n\n")
        first["source"] = f"{title}\n\n> **{doubt}**\n\n{rest}"
    for cell in written["cells"]:
        if cell["cell_type"] == "markdown":
            cell["source"] = fill_in(cell["source"], glued)
        elif cell["cell_type"] == "code":
            cell["outputs"] = [
                output
                for output in cell["outputs"]
                if "scrapbook" not in output.get("metadata", {})
            ]


def make_page(notebook: Path, out: Path) -> list[Path]:
    """Write an executed notebook as HTML and as a notebook that can be read anywhere.

    Parameters
    ----------
    notebook : pathlib.Path
        As papermill or Jupyter wrote it.
    out : pathlib.Path
        The folder.

    Returns
    -------
    list of pathlib.Path
        The page and the notebook.

    Raises
    ------
    ValueError
        If it is no notebook, or was not run.
    """
    from nbconvert import HTMLExporter

    try:
        written = nbformat.reads(notebook.read_text(encoding="utf-8"), as_version=4)  # type: ignore[no-untyped-call]
    except (OSError, ValueError, KeyError, AttributeError) as error:
        raise ValueError(
            f"{notebook} is not a notebook ({type(error).__name__}: {error})."
        ) from None
    cells = written["cells"]
    if not any(cell.get("outputs") for cell in cells):
        raise ValueError(f"{notebook} has no outputs. Run it first: papermill {notebook} out.ipynb")
    try:
        glued = read_results(notebook)
    except ValueError:  # a notebook need not record anything
        glued = {}
    make_plain(written, glued)
    exporter = HTMLExporter(exclude_input_prompt=True, exclude_output_prompt=True)  # type: ignore[no-untyped-call]
    html, _ = exporter.from_notebook_node(written)
    files = [out / f"{notebook.stem}.html", out / f"{notebook.stem}.ipynb"]
    text = nbformat.writes(written)  # type: ignore[no-untyped-call]
    for file, content in zip(files, (html, text), strict=True):
        write_atomically(file, content.encode())
    return files


def main(arguments: list[str]) -> int:
    """Set the notebook that is named."""
    try:
        for file in make_page(Path(arguments[0]), find_root() / "build" / "page"):
            print(file)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
