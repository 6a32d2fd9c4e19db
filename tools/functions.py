"""Pages of the public functions, a Sphinx project of their own: ``make api``.

The book lists their names (:func:`list_names`), and links the pages where they are built.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import shutil
import sys
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.nodes import make_refnode

from heart_utils.runs import find_root, write_atomically
from tools.flow import public_homes

__all__ = ["FUNCTIONS", "build_pages", "list_names"]

FUNCTIONS = Path("build", "functions")
"""Where the pages stand below the root; the book takes them along as its folder ``functions``."""

ROLE = re.compile(r":\w+:`~?(?:[\w.]*\.)?(\w+)`")
"""A name in a docstring, as Sphinx links it."""

WINGS = {
    "sources": "published data sets and files of your own",
    "ratings": "from verdicts to strengths",
    "agreement": "how far raters agree",
    "judges": "what a judge rewards",
    "replies": "what a reply does",
    "evidence": "open studies as comparable effects",
    "heartbench": "HeartBench's rule and leaderboard",
    "simulate": "studies with known truth",
    "report": "figures, tables, pages",
    "calls": "one model call and many, and the ledger that keeps them",
    "judging": "from histories to verdicts",
    "people": "studies with people",
}
"""Subpackage -> what it holds."""

TASKS = [
    (("sources",), "Read", "Votes, scores, histories and replies, from published sets or files."),
    (
        ("calls", "judging"),
        "Ask models",
        "From histories to replies and verdicts, with prices, probes and a record of each judge.",
    ),
    (("people",), "Ask people", "Who rates what, what it costs, and whether the load is even."),
    (
        ("ratings", "scores"),
        "Rate",
        "From verdicts or scores to strengths with intervals, ranks and contrasts.",
    ),
    (("agreement",), "Compare raters", "How far people and judges agree, and beyond what."),
    (
        ("judges", "replies"),
        "Examine judges and replies",
        "What a judge rewards, and what replies do.",
    ),
    (
        ("evidence", "heartbench"),
        "Weigh what others found",
        "Open studies as comparable effects, and HeartBench's rule.",
    ),
    (
        ("simulate",),
        "Plan and simulate",
        "Studies with known truth, their power, and whether intervals hold.",
    ),
    (("gate",), "Stop a build", "Whether a candidate is worse than the version before it."),
    (
        ("report",),
        "Show and publish",
        "Figures, tables, leaderboards, and the paragraph on methods.",
    ),
    (
        ("runs", "tables"),
        "Keep a run",
        "The folder of a study, the tables in it, and the licences they carry.",
    ),
]
"""Homes of public names, the task that they serve, and what is done."""

OPENING = """\
Each name can be taken from its package, as in `from heart_utils import fit_ratings` or
`from heart_collect import collect_verdicts`; it is loaded when it is first used.
`help(fit_ratings)` shows its page, with parameters and an example."""

EXAMPLES = """\
Examples are run after `import numpy as np`, `import pandas as pd`, `from pathlib import Path`, and
all that their own module offers, as in `from {module} import *`."""


def list_names(root: Path) -> str:
    """Write the page of the book that lists the public names by task, with a sentence each.

    Parameters
    ----------
    root : pathlib.Path
        The project's root; names are links where the pages of functions are built.

    Returns
    -------
    str
        The page, in MyST.
    """
    linked = (root / FUNCTIONS / "index.html").is_file()
    public = sorted(public_homes().items(), key=lambda item: item[0].lower())
    lines = ["(api)=", "# The functions behind the chapters", "", OPENING, ""]
    if not linked:
        lines += ["`make api` adds these pages to the book.", ""]
    for parts, title, sentence in TASKS:
        named = [(name, home) for name, home in public if home.split(".")[1] in parts]
        if not named:
            continue
        package = named[0][1].partition(".")[0]
        lines += [f"**{title}** (`{package}`)**.** {sentence}", ""]
        lines += ["| name | what it does |", "| --- | --- |"]
        for name, home in named:
            short = name.rpartition(".")[2]
            address = f"../functions/{_page_of(home)}.html#{home}.{short}"
            shown = f'<a href="{address}"><code>{short}</code></a>' if linked else f"`{short}`"
            lines.append(f"| {shown} | {_first_sentence(root, home, short)} |")
        lines.append("")
    return "\n".join(lines)


def build_pages(root: Path, out: Path) -> None:
    """Set the pages of the public functions, with warnings as errors.

    Parameters
    ----------
    root : pathlib.Path
        The project's root.
    out : pathlib.Path
        The folder of the pages, written anew.

    Raises
    ------
    RuntimeError
        If Sphinx warned; it has printed why.
    """
    source, part = root / "build" / ".functions.source", root / "build" / ".functions.part"
    for folder in (source, part):
        shutil.rmtree(folder, ignore_errors=True)
    for name, text in _pages().items():
        write_atomically(source / f"{name}.md", text.encode())
    app = Sphinx(
        source,
        None,
        part,
        part / ".doctrees",
        "html",
        confoverrides={
            "project": "HEART in the open: functions",
            "extensions": [
                "myst_parser",
                "numpydoc",
                "sphinx.ext.autodoc",
                "sphinx.ext.viewcode",
                "tools.functions",
            ],
            "html_theme": "sphinx_book_theme",
            "html_show_copyright": False,
            "html_copy_source": False,
            "html_math_renderer": "mathml",  # the book's: no script from elsewhere sets formulas
            "add_module_names": False,
            "autodoc_default_options": {"no-value": True},
            "autodoc_member_order": "bysource",
            "autodoc_typehints": "none",  # heart_types writes them into the entries
            "numpydoc_show_class_members": False,
            "toc_object_entries_show_parents": "hide",
            "nitpicky": True,
            "nitpick_ignore_regex": [("py:data", ".*"), ("py:(obj|attr|meth)", ".*")],
            "viewcode_line_numbers": True,
            "html_theme_options": {"navbar_persistent": [], "use_download_button": False},
        },
        warningiserror=True,
        keep_going=True,
        status=None,
    )
    app.build()
    if app.statuscode:
        raise RuntimeError("The pages of functions were not built: Sphinx warned (see above).")
    shutil.rmtree(part / ".doctrees")
    shutil.rmtree(out, ignore_errors=True)
    part.rename(out)


def setup(app: Sphinx) -> dict[str, bool]:
    """Write types from annotations, formulas as in the book, and links by short names."""
    sys.path.insert(0, str(find_root() / "book" / "extensions"))
    book, types = (importlib.import_module(name) for name in ("heart_book", "heart_types"))
    app.connect("autodoc-process-docstring", types.write_types, priority=400)  # before numpydoc
    app.connect("autodoc-process-signature", types.shorten_signature)
    app.connect("missing-reference", _resolve_short_name)
    app.add_html_math_renderer("mathml", (book.write_formula, None), (book.write_equation, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _pages() -> dict[str, str]:
    """Write the index and a page for each wing: its modules with the public names in them."""
    members: dict[str, list[str]] = {}
    for name, home in sorted(public_homes().items()):
        members.setdefault(home, []).append(name.rpartition(".")[2])
    pages = {"index": ["# Public functions", "", OPENING, ""]}
    for wing, words in WINGS.items():
        homes = [home for home in members if _page_of(home) == wing]
        package = homes[0].split(".")[0]
        pages[wing] = [f"# `{package}.{wing}`: {words}", "", EXAMPLES.format(module=homes[0]), ""]
    for home, names in sorted(members.items()):
        pages[_page_of(home)] += [
            f"## {home}",
            "",
            "```{eval-rst}",
            f".. automodule:: {home}",
            f"   :members: {', '.join(names)}",
            "```",
            "",
        ]
    pages["index"] += ["```{toctree}", ":hidden:", "", *WINGS, "```", ""]
    return {name: "\n".join(lines) for name, lines in pages.items()}


def _page_of(home: str) -> str:
    """Name the page that a module stands on: its wing's, or the index."""
    part = home.split(".")[1]
    return part if part in WINGS else "index"


def _first_sentence(root: Path, home: str, name: str) -> str:
    """Read what a name is for from its docstring, without importing anything."""
    file = root.joinpath(*home.split(".")).with_suffix(".py")
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name:
            paragraph = (ast.get_docstring(node) or "").partition("\n\n")[0]
            words = ROLE.sub(r"`\1`", " ".join(paragraph.split()))
            return words.replace("``", "`").replace("|", "\\|")
    raise ValueError(f"{home} defines no {name!r}, which its package offers.")


def _resolve_short_name(
    app: Sphinx, env: BuildEnvironment, node: addnodes.pending_xref, content: nodes.Element
) -> nodes.Element | None:
    """Resolve a name without its module, if one documented object has it.

    What is not public has no page, and is shown as code.
    """
    if node.get("refdomain") != "py":
        return None
    last = node["reftarget"].split(".")[-1]
    named = [
        candidate
        for candidate in env.get_domain("py").get_objects()
        if candidate[0].startswith("heart_") and candidate[0].split(".")[-1] == last
    ]
    if len(named) == 1:
        _, _, _, page, anchor, _ = named[0]
        return make_refnode(app.builder, node["refdoc"], page, anchor, [content])
    targets = (node["reftarget"], f"{node.get('py:module')}.{node['reftarget']}")
    return content if any(map(_is_defined, targets)) else None


def _is_defined(target: str) -> bool:
    """Check that a whole dotted name exists in one of the packages."""
    module, _, name = target.rpartition(".")
    if not module.startswith("heart_"):
        return False
    try:
        return hasattr(importlib.import_module(module), name)
    except ModuleNotFoundError:
        owner, _, kind = module.rpartition(".")
        defined: Any = getattr(importlib.import_module(owner), kind, None)
        return inspect.isclass(defined)


def main() -> int:
    """Build the pages below ``build/functions``."""
    root = find_root()
    try:
        build_pages(root, root / FUNCTIONS)
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"The pages of functions are in {root / FUNCTIONS}; `make book` takes them along.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
