"""What the book asks of Sphinx and no setting gives."""

import os
import re
from collections.abc import Iterator
from functools import cache, partial
from html import escape, unescape
from io import StringIO
from itertools import count
from pathlib import Path
from textwrap import shorten
from typing import IO, Any
from urllib.parse import unquote

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from heart_figures import set_into_page
from heart_tables import lay_out
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.domains.std import StandardDomain
from sphinx.environment import BuildEnvironment
from sphinx.search import IndexBuilder
from sphinx.transforms import SphinxTransform
from sphinx.util.math import get_node_equation_number
from sphinx_thebe import init_thebe_core, update_thebe_context

import heart_utils

ROOT = Path(heart_utils.__path__[0]).resolve().parent
BOX = "pst-scrollable-table-container"
THEBE = (init_thebe_core, update_thebe_context)
TABLE = re.compile(
    r'<table (?:border="1" class="dataframe"|id="T_\w+"(?: class="dataframe[^"]*")?)>.*?</table>',
    re.DOTALL,
)
PICTURE = re.compile(
    r'(<a [^>]*image-reference[^>]*>\s*)?<img [^>]*src="([^"]*_images/[^"]*)"[^>]*>'
)
PASTED_MINUS = re.compile(r'(<span class="pasted-text">)-(?=\.?\d)')
SCROLLED = '<div class="heart-scroll" tabindex="0" role="group" aria-label="Table">{}</div>'

CHIPS = {
    "measured": "Published data, computed here",
    "quoted": "Figures that papers or their authors state",
    "simulated": "Drawn by a program, to see what a method can find",
    "demo": (
        "The sample run: drafted conversations and a small model, which show that the steps work"
        " and nothing else"
    ),
}
"""Kinds of evidence, and what they mean."""

ACCENTED = re.compile(
    r"<munderover>(<mi>[^<]*</mi>)(<m[in]>[^<]*</m[in]>|<mrow>(?:<m[ino]>[^<]*</m[ino]>)*</mrow>)"
    r'(<mo stretchy="false">[^<]</mo>|<mo accent="true">[^<]</mo>)</munderover>'
)

UNDECLARED = ("sphinx_jupyterbook_latex", "sphinx_multitoc_numbering")
"""They do not say that pages may be read side by side: the first does nothing for HTML, the second
counts when all are read."""


SHARED = 200
"""Characters of a page's first paragraph that a search engine or a shared link shows."""


class captioned_table(nodes.figure):  # noqa: N801  docutils finds what lays a node out by its class's name
    """A table that a cell shows, with its number and caption."""


class table_caption(nodes.caption):  # noqa: N801
    """What stands above it."""


class demo(nodes.General, nodes.Element):  # noqa: N801
    """What a section shows that rests on the sample run alone: folded."""


class _EachPageOnce:
    """An environment that reads a page again only once.

    Sphinx reads the whole page of a figure at each reference to its number.
    """

    def __init__(self, env: BuildEnvironment) -> None:
        self._env = env
        self.get_doctree = cache(env.get_doctree)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)


class NumberedReferences(StandardDomain):
    """References to figures and tables by their numbers, in half the time."""

    pages: _EachPageOnce | None = None

    def resolve_xref(self, env: Any, fromdocname: str, builder: Any, typ: str, *rest: Any) -> Any:
        """Resolve a reference; what it refers to is looked at and not changed."""
        if typ == "numref":
            env = self.pages = self.pages or _EachPageOnce(env)
        return super().resolve_xref(env, fromdocname, builder, typ, *rest)


class FoldDemos(SphinxTransform):
    """Fold sections that rest on the sample run alone, in a chapter with other results."""

    default_priority = 401

    def apply(self, **kwargs: Any) -> None:
        """Leave their headings and the sections within them where they are."""
        places = {
            container: {
                name for chip in container.findall(nodes.abbreviation) for name in chip["classes"]
            }
            - {"heart-chip"}
            for container in self.document.findall(nodes.container)
            if "heart-evidence" in container["classes"]
        }
        demos = [container for container, kinds in places.items() if kinds == {"heart-demo"}]
        for container in demos if 2 * len(demos) < len(places) else ():
            section = container.parent
            at = section.index(container) + 1
            end = next(
                (
                    n
                    for n in range(at, len(section))
                    if isinstance(section[n], (nodes.section, nodes.target))
                ),
                len(section),
            )
            inside = section[at:end]
            section[at:end] = [demo("", *inside)]


class NumberTables(SphinxTransform):
    """Number what a cell names `tab-...` among the tables.

    MyST-NB makes a figure of all that has a caption.
    """

    default_priority = 400  # before Sphinx gives numbers

    def apply(self, **kwargs: Any) -> None:
        """Change them where they stand, since others point at them."""
        for figure in self.document.findall(nodes.figure):
            if any(name.startswith("tab-") for name in figure["names"]):
                figure.__class__ = captioned_table
                for caption in figure.findall(nodes.caption):
                    caption.__class__ = table_caption


def draw_chip(
    kind: str, rawtext: str, text: str, *rest: Any, **more: Any
) -> tuple[list[nodes.Node], list[nodes.Node]]:
    """Draw a kind of evidence as a chip, with the data set that the text names, if any."""
    words = f"{kind.capitalize()} {text}" if text != "-" else kind.capitalize()
    return [
        nodes.abbreviation(
            rawtext, words, classes=["heart-chip", f"heart-{kind}"], explanation=CHIPS[kind]
        )
    ], []


def link_figure_data(
    kind: str, rawtext: str, text: str, line: int, inliner: Any, *more: Any
) -> tuple[list[nodes.Node], list[nodes.Node]]:
    """Write the line below a figure: its numbers as CSV, their source, and a link."""
    name, _, origin = text.partition("|")
    environment = inliner.document.settings.env
    up = "../" * environment.docname.count("/")
    link = addnodes.pending_xref(
        "",
        nodes.inline("", "link"),
        refdomain="std",
        reftype="ref",
        reftarget=name,
        refexplicit=True,
        refwarn=True,
        refdoc=environment.docname,
    )
    csv = nodes.reference("", "Data (CSV)", refuri=f"{up}data/{name}.csv")
    return [
        nodes.inline(
            rawtext, "", csv, nodes.Text(f" · {origin} · "), link, classes=["heart-figure-data"]
        )
    ], []


def setup(app: Sphinx) -> dict[str, Any]:
    """Register chips and parallel reading; leave thebe out."""
    app.connect("doctree-read", number_references)
    app.connect("html-page-context", mend_page, priority=900)  # after the theme
    app.connect("env-before-read-docs", read_side_by_side)
    app.add_enumerable_node(captioned_table, "table", html=(_open_table, _close_table))
    app.add_node(table_caption, html=(_open_caption, _close_caption))
    app.add_domain(NumberedReferences, override=True)
    app.add_transform(NumberTables)
    app.add_transform(FoldDemos)
    app.add_html_math_renderer("mathml", (write_formula, None), (write_equation, None))
    app.add_node(demo, html=(_open_demo, lambda writer, node: writer.body.append("</details>\n")))
    for kind in CHIPS:
        app.add_role(kind, draw_chip)
    leave_code_out()
    keep_index_entries()
    app.add_role("figure-data", link_figure_data)
    app.parallel = max(
        app.parallel, int(os.environ.get("JOBS", "2"))
    )  # Jupyter Book has no option for it
    # thebe names a script and a repository outside of the book, and declares its constants twice,
    # which a browser reports as an error on every page. Jupyter Book always loads it.
    for event, listeners in app.events.listeners.items():
        app.events.listeners[event] = [one for one in listeners if one.handler not in THEBE]
    # The number counts changes of what is done to pages: another one makes Sphinx write all of
    # them anew.
    return {"parallel_read_safe": True, "parallel_write_safe": True, "env_version": 22}


def number_references(_app: Sphinx, doctree: nodes.document) -> None:
    """Show a reference of a docstring by its number, without the prefix that numpydoc gives it."""
    for reference in doctree.findall(addnodes.pending_xref):
        if reference.get("refdomain") == "citation":
            for text in list(reference.findall(nodes.Text)):
                number = re.sub(r"\bR[0-9a-f]{12}-", "", text.astext())
                text.parent.replace(text, nodes.Text(number))


def write_formula(writer: Any, node: nodes.Element) -> None:
    """Write a formula as MathML, which browsers set themselves.

    MathJax takes two megabytes a page.
    """
    writer.body.append(f'<span class="math">{_mathml(node.astext(), as_block=False)}</span>')
    raise nodes.SkipNode


def write_equation(writer: Any, node: nodes.Element) -> None:
    """Write an equation of its own, with its number and a link to it at the right."""
    # What scrolls on a narrow screen must be reached by the keyboard.
    reached = {"tabindex": "0", "role": "group", "aria-label": "Equation"}
    writer.body.append(writer.starttag(node, "div", CLASS="math", **reached))
    if node["number"]:
        writer.body.append(f'<span class="eqno">({get_node_equation_number(writer, node)})')
        writer.add_permalink_ref(node, "Link to this equation")
        writer.body.append("</span>")
    writer.body.append(_mathml(node.astext().strip(), as_block=True) + "</div>\n")
    raise nodes.SkipNode


def _mathml(words: str, *, as_block: bool) -> str:
    """Translate TeX; several lines are set below each other, at their ``&``."""
    lines = (
        f"\\begin{{aligned}}{words}\\end{{aligned}}"
        if r"\\" in words and r"\begin" not in words
        else words
    )
    try:
        mathml = tex2mathml(lines.replace(r"\operatorname*", r"\operatorname"), as_block=as_block)
    except MathError as error:
        raise ValueError(
            f"The formula {words!r} is not among those that docutils writes as MathML: {error}"
        ) from None
    # Spaces between tags would be spaces on the page where a formula stands in a line of text.
    mathml = re.sub(r">\s+<", "><", mathml)
    # docutils sets the index of a letter with an accent under it.
    return ACCENTED.sub(r'<msub><mover accent="true">\1\3</mover>\2</msub>', mathml)


def _open_demo(writer: Any, node: nodes.Element) -> None:
    writer.body.append(
        '<details class="heart-folded">'
        "<summary>Demo: what the steps give on the sample run</summary>\n"
    )


def _open_table(writer: Any, node: nodes.Element) -> None:
    writer.visit_figure(node)


def _close_table(writer: Any, node: nodes.Element) -> None:
    writer.body.append("</figure>\n")


def _open_caption(writer: Any, node: nodes.Element) -> None:
    writer.visit_caption(node)


def _close_caption(writer: Any, node: nodes.Element) -> None:
    """End it before the table: docutils ends it with the figure, for there it stands last."""
    writer.depart_caption(node)
    writer.body.append("</figcaption>\n")


def leave_code_out() -> None:
    """Limit the search to words, headings and what cells show, without the sections *Limits*.

    Code that stands in the book is found on the pages of code. Limits repeat from chapter to
    chapter what none of them is about.
    """
    collect_words = IndexBuilder._word_collector

    def collect_without_code(index: IndexBuilder, doctree: nodes.document) -> Any:
        prose = doctree.deepcopy()
        for cell in [
            node for node in prose.findall(nodes.container) if "cell_input" in node["classes"]
        ]:
            cell.parent.remove(cell)
        for section in [node for node in prose.findall(nodes.section) if "limits" in node["names"]]:
            section.parent.remove(section)
        return collect_words(index, prose)

    if collect_words.__name__ != collect_without_code.__name__:  # another book in the same process
        IndexBuilder._word_collector = collect_without_code


def keep_index_entries() -> None:
    """Let a build of some pages keep the index entries of the others in the search.

    Sphinx keeps their words and titles and forgets these.
    """
    load = IndexBuilder.load

    def load_with_entries(index: IndexBuilder, stream: IO[str], format: Any) -> None:
        text = stream.read()
        load(index, StringIO(text), format)
        frozen = format.loads(text)
        for entry, places in frozen["indexentries"].items():
            for number, target, is_main in places:
                if (page := frozen["docnames"][number]) in index.env.all_docs:
                    kept = (entry, target, "main" if is_main else "")
                    index._index_entries.setdefault(page, []).append(kept)

    if load.__name__ != load_with_entries.__name__:  # another book in the same process
        IndexBuilder.load = load_with_entries


def describe_page(app: Sphinx, context: dict[str, Any], doctree: nodes.document) -> str:
    """Write what a shared link and a search engine show of a page.

    They show its title, its first paragraph and the book's picture.
    """
    paragraphs = (
        node
        for node in doctree.findall(nodes.paragraph)
        if not isinstance(node.parent, nodes.container)
    )
    words = next(
        ("".join(_prose(node)) for node in paragraphs if len(node.astext()) > SHARED // 4), ""
    )
    words = shorten(words, SHARED, placeholder=" …")
    picture = context["pathto"]("_static/share.png", resource=True)
    if app.config.html_baseurl:
        picture = f"{app.config.html_baseurl.rstrip('/')}/_static/share.png"
    properties = {
        "og:title": re.sub("<[^>]*>", "", context["title"]),
        "og:description": words,
        "og:image": picture,
    }
    tags = [
        f'<meta name="description" content="{escape(words)}">',
        '<meta name="twitter:card" content="summary_large_image">',
    ]
    return "\n".join(
        [
            *tags,
            *(
                f'<meta property="{name}" content="{escape(text)}">'
                for name, text in properties.items()
            ),
        ]
    )


def _prose(node: nodes.Node) -> Iterator[str]:
    """Yield the words of a paragraph without chips."""
    if isinstance(node, nodes.Text):
        yield node.astext()
    elif not isinstance(node, nodes.abbreviation):
        for child in node.children:
            yield from _prose(child)


def mend_page(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """Make wide tables scroll by keyboard, remove wrong roles, and describe the page."""
    if doctree is not None:
        context["metatags"] = (
            f"{context.get('metatags', '')}\n{describe_page(app, context, doctree)}"
        )
    if "body" in context:
        # What scrolls must be reached by the keyboard: the box around a table is, and the table
        # stays a table.
        body = TABLE.sub(lambda table: SCROLLED.format(lay_out(table[0])), context["body"]).replace(
            f'class="{BOX}"', f'class="{BOX}" tabindex="0"'
        )
        body = PASTED_MINUS.sub(r"\1−", body)
        body = PICTURE.sub(partial(_link_figure, app, count(1)), body)
        # docutils says that references are a list, and that its entries are something else.
        body = body.replace(' role="doc-biblioentry"', "")
        context["body"] = body.replace(' role="list" class="citation', ' class="citation')
    if tree := context.get("generate_toctree_html"):
        context["generate_toctree_html"] = lambda *page_names, **options: _name_arrows(
            tree(*page_names, **options)
        )


def _link_figure(app: Sphinx, numbers: Iterator[int], image: re.Match[str]) -> str:
    """Link a figure to its file, and set what a cell drew into the page itself."""
    if image[1]:
        return image[0]
    files = {name: file for file, name in app.builder.images.items()}
    file = Path(app.srcdir) / files.get(unquote(Path(image[2]).name), "")
    content = image[0]
    if file.suffix == ".svg" and "matplotlib" in (drawn := file.read_text(encoding="utf-8")):
        alt = re.search(r' alt="([^"]*)"', image[0])
        content = set_into_page(drawn, unescape(alt[1]) if alt else "", f"drawn-{next(numbers)}")
    return f'<a class="heart-figure" href="{image[2]}" draggable="false">{content}</a>'


def _name_arrows(contents: Any) -> Any:
    """Label what opens a branch of the contents, which shows only an arrow."""
    if isinstance(contents, str):
        return contents.replace("<summary>", '<summary aria-label="More pages">')
    for arrow in contents("summary"):
        arrow["aria-label"] = "More pages"
    return contents


def read_side_by_side(app: Sphinx, env: BuildEnvironment, docnames: list[str]) -> None:
    """Allow pages to be read in parallel, and spread the long ones evenly."""
    for name in UNDECLARED:
        if name in app.extensions:
            app.extensions[name].parallel_read_safe = True
    hands = 6
    docnames[:] = [name for hand in range(hands) for name in docnames[hand::hands]]
