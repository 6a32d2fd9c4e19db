"""Tables as a reader meets them: rounded, with a dash where there is no value, without columns that say nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

if TYPE_CHECKING:
    from pandas.io.formats.style import Styler

__all__ = ["show_table"]

DASH = "–"
LONG = 36
"""Characters from which a cell is a sentence, which goes on in the next line; what is shorter stays whole."""


def show_table(table: pd.DataFrame, *, digits: int = 3, wrap: bool = False, filtered: bool = False) -> Styler:
    """Lay a table out for reading.

    Parameters
    ----------
    table : pandas.DataFrame
        Any; it is not changed. An index that only counts is not shown, nor a column without a value in any row.
    digits : int
        Of numbers that are not whole by type.
    wrap : bool
        Whether each cell may go on in the next line, for tables of words; otherwise only a sentence may.
    filtered : bool
        Whether the book's page lets readers choose rows by words and by columns of few entries, for long tables.

    Returns
    -------
    pandas.io.formats.style.Styler
        A missing value is a dash: the column ``why``, or the text beside the table, says why there is none.

    Examples
    --------
    >>> table = pd.DataFrame({"judge": ["x", "y"], "value": [0.12345, None], "why": ["", ""]})
    >>> "0.123" in (html := show_table(table).to_html()), "–" in html, "nan" in html, "why" in html
    (True, True, False, False)
    >>> "white-space: normal" in show_table(table, wrap=True).to_html()
    True
    """
    says = [column for column in table.columns if not (table[column].isna() | table[column].astype(str).eq("")).all()]
    kept = table[says] if len(table) else table
    if not kept.index.is_unique:  # such an index is not shown
        kept = kept.reset_index(drop=True)
    kind = "dataframe heart-filter" if filtered else "dataframe"
    # The theme knows tables of pandas by this class: colours in the dark, and a wide one scrolls rather than breaking words.
    shown = kept.style.format(precision=digits, na_rep=DASH).set_table_attributes(f'class="{kind}"').map(_give_room)
    if wrap:
        shown = shown.set_properties(None, **{"white-space": "normal"})
    return shown.hide(axis="index") if isinstance(kept.index, pd.RangeIndex) else shown


def _give_room(value: object) -> str:
    return "white-space: normal; min-width: 8rem" if isinstance(value, str) and len(value) > LONG else ""
