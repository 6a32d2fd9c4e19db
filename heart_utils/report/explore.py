"""Interactive figures: the rows behind a static figure, for the pages' ``explore.js``.

The page holds the rows, and nothing is loaded from elsewhere. Without scripts the static figure
stays as it is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from html import escape

import pandas as pd

from heart_utils.report.html import Html

__all__ = ["KINDS", "explore"]

KINDS = {
    "forest": ("group", "line", "win_share", "ci_low", "ci_high", "evidence"),
    "squares": ("group", "item"),
    "matrix": ("panel", "row", "column", "wins", "ties", "losses"),
    "guess": ("label", "value", "ci_low", "ci_high", "least", "most", "scores"),
    "rubric": ("question", "item", "ability", "points"),
    "raters": ("panel", "row", "rater", "icc", "scores"),
}
"""What can be drawn -> the columns that it takes."""


def explore(
    table: pd.DataFrame,
    *,
    kind: str,
    figure: str,
    switches: Mapping[str, str],
    shown: Mapping[str, str],
    cards: pd.DataFrame | None = None,
) -> Html:
    """Write the rows behind a static figure, so that a page can let its reader ask for them.

    A figure of many studies raises questions that one picture cannot answer: only strangers, only
    labelled replies, this one cell. The page shows the static figure; where scripts run, the reader
    can filter, colour and tap it. All rows are in the page itself and nothing is loaded.

    Parameters
    ----------
    table : pandas.DataFrame
        One row a line, square or cell, with the columns that `KINDS` names. For ``"guess"`` the
        first row is what a reader guesses; for ``"raters"`` a row holds one rater's scores of one
        responder's replies, question by question.
    kind : str
        ``"forest"``, ``"squares"``, ``"matrix"``, ``"guess"``, ``"rubric"`` or ``"raters"``.
    figure : str
        Name of the static figure, whose picture this takes the place of where scripts run, or of
        the table that it joins.
    switches : mapping of str to str
        Column -> words beside the field that chooses among its values, or that colours by it.
    shown : mapping of str to str
        Column -> its name in what a tap shows.
    cards : pandas.DataFrame, optional
        For ``"matrix"``: one line for each ``row``, whose other columns are the facts that a tap on
        that name shows.
        For ``"forest"``: studies without a size, each with ``study``, the side
        that it ``favours`` (``models``, ``people``, ``both`` or ``neither``) and ``source``.

    Returns
    -------
    Html
        Hidden where no script runs; a notebook shows it as the last line of a cell.

    Raises
    ------
    ValueError
        If the kind is not known, the table has no row, or a column is missing.

    Examples
    --------
    >>> cells = pd.DataFrame(
    ...     {"panel": ["warmth"], "row": "x", "column": "y", "wins": 3, "ties": 1, "losses": 0}
    ... )
    >>> explore(cells, kind="matrix", figure="fig-x", switches={}, shown={})._repr_html_()[:27]
    '<div class="heart-explore" '
    """
    if kind not in KINDS:
        raise ValueError(f"kind is {kind!r}; it can be {', '.join(KINDS)}.")
    columns = list(dict.fromkeys([*KINDS[kind], *switches, *shown]))
    if missing := [name for name in columns if name not in table]:
        raise ValueError(
            f"A figure of the kind {kind} takes {', '.join(columns)}; the table lacks"
            f" {', '.join(missing)}."
        )
    if table.empty:
        raise ValueError("There is nothing to ask for: the table has no row.")
    rows = json.loads(table[columns].to_json(orient="values", double_precision=4))
    payload = {"columns": columns, "rows": rows}
    payload |= {"switches": dict(switches), "shown": dict(shown)}
    if cards is not None:
        payload["cards"] = json.loads(cards.to_json(orient="records", double_precision=4))
    # Within a script element only the sign that could close it must not appear.
    words = json.dumps(payload, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    opening = (
        f'<div class="heart-explore" data-kind="{kind}" data-figure="{escape(figure)}" hidden>'
    )
    return Html(f'{opening}<script type="application/json">{words}</script></div>')
