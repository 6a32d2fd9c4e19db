"""From tables to what people look at: figures, leaderboards, the gate."""

from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape

from heart_utils.settings import JsonObject, read_yaml

WORDS: JsonObject = read_yaml(Path(__file__).parents[1] / "words.yaml", JsonObject, ValueError)
"""What columns, kinds and methods are called before readers."""

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
    """Fill a template of ``pages``; what is not marked as HTML is escaped in HTML."""
    return _PAGES.get_template(name).render(**values)
