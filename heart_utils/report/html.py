"""Pieces of HTML, and the templates of the folder ``pages``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape

__all__ = ["Html"]

_PAGES = Environment(
    loader=FileSystemLoader(Path(__file__).with_name("pages")), undefined=StrictUndefined,
    autoescape=select_autoescape(), trim_blocks=True, lstrip_blocks=True,
)  # fmt: skip


class Html:
    """A piece of HTML that a notebook shows."""

    def __init__(self, html: str) -> None:
        self._html = html

    def _repr_html_(self) -> str:
        return self._html


def fill_page(name: str, **values: Any) -> str:
    """Fill a template of the folder ``pages``, and escape values in HTML and XML.

    A value that is marked as HTML is not escaped.
    """
    return _PAGES.get_template(name).render(**values)
