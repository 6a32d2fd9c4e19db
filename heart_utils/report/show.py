"""Tables as a reader meets them: rounded, with a dash where there is no value, without columns that say nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

if TYPE_CHECKING:
    from pandas.io.formats.style import Styler

__all__ = ["show_table"]

DASH = "–"


def show_table(table: pd.DataFrame, *, digits: int = 3) -> Styler:
    """Lay a table out for reading.

    Parameters
    ----------
    table : pandas.DataFrame
        Any; it is not changed. An index that only counts is not shown, nor a column without a value in any row.
    digits : int
        Of numbers that are not whole by type.

    Returns
    -------
    pandas.io.formats.style.Styler
        A missing value is a dash: the column ``why``, or the text beside the table, says why there is none.

    Examples
    --------
    >>> table = pd.DataFrame({"judge": ["x", "y"], "value": [0.12345, None], "why": ["", ""]})
    >>> "0.123" in (html := show_table(table).to_html()), "–" in html, "nan" in html, "why" in html
    (True, True, False, False)
    """
    says = [column for column in table.columns if not (table[column].isna() | table[column].astype(str).eq("")).all()]
    kept = table[says] if len(table) else table
    # The theme knows tables of pandas by this class: colours in the dark, and a wide one scrolls rather than breaking words.
    shown = kept.style.format(precision=digits, na_rep=DASH).set_table_attributes('class="dataframe"')
    return shown.hide(axis="index") if isinstance(kept.index, pd.RangeIndex) or not kept.index.is_unique else shown
