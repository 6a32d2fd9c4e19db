"""Two things that the book asks of Sphinx and that no setting gives."""

from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.nodes import make_refnode
from sphinx_thebe import init_thebe_core, update_thebe_context

THEBE = (init_thebe_core, update_thebe_context)


def setup(app: Sphinx) -> dict[str, Any]:
    """Take thebe out of the pages, and let a docstring name a function as its users import it."""
    app.connect("missing-reference", resolve_short_name)
    # thebe names a script and a repository outside of the book, and declares its constants twice,
    # which a browser reports as an error on every page. Jupyter Book always loads it.
    for event, listeners in app.events.listeners.items():
        app.events.listeners[event] = [one for one in listeners if one.handler not in THEBE]
    return {"parallel_read_safe": True, "parallel_write_safe": True}


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
