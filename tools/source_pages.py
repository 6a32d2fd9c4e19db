"""Write the package's code as pages, one a module, to which pages of functions link."""

from __future__ import annotations

import html
from pathlib import Path

from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

from heart_utils.runs import write_atomically

__all__ = ["write_source_pages"]

FOLDER = "code"
"""Where the pages stand beside ``book`` and ``notebooks``; `heart_book.link_to_line` leads
there."""

LIGHT, DARK = "a11y-high-contrast-light", "a11y-high-contrast-dark"

PAGE = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{module}, its code</title>
<link rel="stylesheet" href="{up}code/code.css">
</head>
<body>
<main>
<p><a href="{up}{described}">Back to what its functions do</a></p>
<h1>{module}</h1>
{code}
</main>
</body>
</html>
"""

STYLE = """\
body {{
  color-scheme: light dark; margin: 0 auto; max-width: 64rem; padding: 1rem;
  font-family: sans-serif;
}}
pre {{ white-space: pre-wrap; overflow-wrap: anywhere; line-height: 1.4; }}
pre span:target {{ outline: 2px solid; }}
body {{ background: #fff; color: #1a1a1a; }}
a {{ color: #0b57a4; }}
{light}
@media (prefers-color-scheme: dark) {{
body {{ background: #14181e; color: #e6e6e6; }}
a {{ color: #8cc4ff; }}
{dark}
}}
.highlight {{ background: none; }}
"""


def write_source_pages(package: Path, folder: Path) -> None:
    """Write a page for each module of a package.

    Parameters
    ----------
    package : pathlib.Path
        The folder of the package, such as ``heart_utils`` under the root.
    folder : pathlib.Path
        Gets ``code/``, with a page for each module at the module's own path and one style sheet.
    """
    formatter = HtmlFormatter(style=LIGHT, linespans="L", wrapcode=True)
    light, dark = (
        HtmlFormatter(style=style).get_style_defs(".highlight") for style in (LIGHT, DARK)
    )
    for module in sorted(package.rglob("*.py")):
        path = module.relative_to(package.parent)
        name = ".".join(path.with_suffix("").parts).removesuffix(".__init__")
        page = PAGE.format(
            module=html.escape(name),
            up="../" * len(path.parts),
            described=_described(path),
            code=highlight(module.read_text(encoding="utf-8"), PythonLexer(), formatter),
        )
        write_atomically(folder / FOLDER / path.with_suffix(".html"), page.encode())
    write_atomically(folder / FOLDER / "code.css", STYLE.format(light=light, dark=dark).encode())


def _described(path: Path) -> str:
    """Name the page of functions that a module's own stand on."""
    part = path.parts[1] if len(path.parts) > 2 else ""
    return f"book/api_{part}.html" if part else "book/api.html"
