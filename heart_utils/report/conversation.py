"""Conversations to be read: speech bubbles in which every word is shown as text, whatever it holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from heart_utils.runs import may_publish, visible_text

__all__ = ["Reading", "read_conversation"]

_PAGES = Environment(loader=FileSystemLoader(Path(__file__).with_name("pages")), autoescape=True, undefined=StrictUndefined)
_PAGES.trim_blocks = _PAGES.lstrip_blocks = True


class Reading:
    """A piece of HTML that a notebook shows."""

    def __init__(self, html: str) -> None:
        self._html = html

    def _repr_html_(self) -> str:
        return self._html


def read_conversation(
    history: Mapping[str, object] | pd.Series, replies: Mapping[str, str] | None = None, *, who_wrote: str
) -> Reading:
    """Show one history as a conversation, with replies to it below if there are any.

    Parameters
    ----------
    history : mapping or pandas.Series
        A row of the histories table.
    replies : mapping of str to str, optional
        What stands above each reply -> its text.
    who_wrote : str
        Who wrote the words, as the reader must know it, such as ``"drafted with a language model"``.

    Returns
    -------
    Reading
        HTML for a notebook. Markup inside a text is shown, never run.

    Raises
    ------
    ValueError
        If the licence of the history does not let its words be published.

    Examples
    --------
    >>> row = {"history_id": "h", "licence": "CC0-1.0", "turns": [{"speaker": "seeker", "text": "<b>hi</b>"}]}
    >>> "&lt;b&gt;hi" in read_conversation(row, who_wrote="written for this example")._repr_html_()
    True
    """
    if not may_publish(str(history["licence"])):
        said = f"The words of {history['history_id']} are under {history['licence']!r} and may not be shown in a page"
        raise ValueError(f"{said}; show counts, or choose a history under a free licence.")
    turns: Sequence[Mapping[str, str]] = history["turns"]  # type: ignore[assignment]
    bubbles = [(turn["speaker"], turn["speaker"], turn["text"]) for turn in turns]
    bubbles += [("supporter heart-reply", label, text) for label, text in (replies or {}).items()]
    shown = [(kind, visible_text(label), visible_text(text)) for kind, label, text in bubbles]
    return Reading(fill_page("conversation", bubbles=shown, caption=f"{history['history_id']}: {who_wrote}"))


def fill_page(name: str, **values: Any) -> str:
    """Fill a template of the folder ``pages``; whatever a value holds is shown as text, unless it is marked as HTML."""
    return _PAGES.get_template(f"{name}.html").render(**values)
