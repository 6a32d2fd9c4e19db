"""What the book asks of Sphinx and no setting gives."""

import os
import re
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.nodes import make_refnode
from sphinx_thebe import init_thebe_core, update_thebe_context

BOX = "pst-scrollable-table-container"
THEBE = (init_thebe_core, update_thebe_context)
TABLE = re.compile(r'<table border="1" class="dataframe">.*?</table>', re.DOTALL)
SCROLLED = r'<div class="heart-scroll" tabindex="0" role="group" aria-label="Table">\g<0></div>'

UNDECLARED = ("sphinx_jupyterbook_latex", "sphinx_multitoc_numbering")
"""They do not say that pages may be read side by side: the first does nothing for HTML, the second counts when all are read."""


def setup(app: Sphinx) -> dict[str, Any]:
    """Take thebe out of the pages, let a docstring name a function as its users import it, and build on all cores."""
    app.connect("missing-reference", resolve_short_name)
    app.connect("html-page-context", mend_page, priority=900)  # after the theme
    app.connect("env-before-read-docs", read_side_by_side)
    app.connect("env-updated", forget_unused_code)
    app.connect("builder-inited", draw_one_sidebar_a_folder)
    app.parallel = max(app.parallel, int(os.environ.get("JOBS", "2")))  # Jupyter Book has no option for it
    # thebe names a script and a repository outside of the book, and declares its constants twice,
    # which a browser reports as an error on every page. Jupyter Book always loads it.
    for event, listeners in app.events.listeners.items():
        app.events.listeners[event] = [one for one in listeners if one.handler not in THEBE]
    # The number counts changes of what is done to pages: another one makes Sphinx lay all of them anew.
    return {"parallel_read_safe": True, "parallel_write_safe": True, "env_version": 4}


def mend_page(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None) -> None:
    """Let the keyboard scroll wide tables, and take away roles that contradict what they stand on."""
    if "body" in context:
        # What scrolls must be reached by the keyboard: the box around a table is, and the table stays a table.
        body = TABLE.sub(SCROLLED, context["body"]).replace(f'class="{BOX}"', f'class="{BOX}" tabindex="0"')
        # docutils says that references are a list, and that its entries are something else.
        body = body.replace(' role="doc-biblioentry"', "")
        context["body"] = body.replace(' role="list" class="citation', ' class="citation')
    if tree := context.get("generate_toctree_html"):
        context["generate_toctree_html"] = lambda *place, **how: _name_arrows(tree(*place, **how))


def _name_arrows(contents: Any) -> Any:
    """Give a name to what opens a branch of the contents: it shows an arrow and says nothing."""
    if isinstance(contents, str):
        return contents.replace("<summary>", '<summary aria-label="More pages">')
    for arrow in contents("summary"):
        arrow["aria-label"] = "More pages"
    return contents


def read_side_by_side(app: Sphinx, env: BuildEnvironment, docnames: list[str]) -> None:
    """Allow pages to be read side by side, and deal them out so that no process gets all pages of functions."""
    for name in UNDECLARED:
        if name in app.extensions:
            app.extensions[name].parallel_read_safe = True
    hands = 6
    docnames[:] = [name for hand in range(hands) for name in docnames[hand::hands]]


def forget_unused_code(app: Sphinx, env: BuildEnvironment) -> None:
    """Drop modules of others that documented code was looked for in, as Sphinx itself does where it reads page after page."""
    modules = getattr(env, "_viewcode_modules", {})
    for name in [name for name, entry in modules.items() if entry and not entry[2]]:
        del modules[name]


def draw_one_sidebar_a_folder(app: Sphinx) -> None:
    """Draw the list of contents once for all pages of source code in a folder: none of them is in it, so it is the same."""
    draw = getattr(app.builder, "_get_local_toctree", None)
    if draw is None:
        return
    drawn: dict[tuple[str, str], str] = {}

    def draw_once(docname: str, collapse: bool = True, **options: Any) -> str:
        if not docname.startswith("_modules/"):
            return str(draw(docname, collapse, **options))
        key = docname.rpartition("/")[0], repr((collapse, sorted(options.items())))
        if key not in drawn:
            drawn[key] = draw(docname, collapse, **options)
        return drawn[key]

    app.builder._get_local_toctree = draw_once  # type: ignore[attr-defined]


def resolve_short_name(
    app: Sphinx, env: BuildEnvironment, node: addnodes.pending_xref, content: nodes.Element
) -> nodes.Element | None:
    """Find what ``load_heart`` or a re-exported name means, if one documented object alone is called so."""
    if node.get("refdomain") != "py":
        return None
    objects = env.get_domain("py").get_objects()
    named = [
        found
        for found in objects
        if found[0].startswith("heart_utils.") and found[0].split(".")[-1] == node["reftarget"].split(".")[-1]
    ]
    if len(named) != 1:
        return None
    _, _, _, page, anchor, _ = named[0]
    return make_refnode(app.builder, node["refdoc"], page, anchor, [content])
