"""Columns of text, each different cell of which is read once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

__all__ = ["TEXT"]

TEXT = pd.StringDtype(na_value=np.nan)
SECONDS, MILLISECONDS = 1e8, 1e11  #: What a number that counts them since 1970 is above.
ARROW_TEXT = pa.large_string()  #: What pandas keeps such columns as.


def read_dates(cells: pd.Series) -> pd.Series:
    """Read when something was: a date in any common form, or seconds or milliseconds since 1970."""
    numbers = pd.to_numeric(cells, errors="coerce")
    if not numbers.notna().any():
        return pd.to_datetime(cells, errors="coerce", format="mixed", utc=True)
    if numbers.median() > MILLISECONDS:
        numbers /= 1000
    seconds = numbers.where(numbers > SECONDS)
    return pd.to_datetime(seconds, unit="s", utc=True, errors="coerce")


def map_words(cells: pd.Series, function: Callable[[Any], Any]) -> pd.Series:
    """Read each different cell once; lists and objects, which cannot be compared, one by one."""
    try:
        codes, values = pd.factorize(cells, use_na_sentinel=False)
    except TypeError:
        return cells.map(function)
    read = np.empty(len(values), dtype=object)
    read[:] = [function(value) for value in values]
    if cells.dtype == TEXT and all(
        isinstance(word, str) or word is None or word != word for word in read
    ):
        words = pd.array(read, dtype=TEXT)
        return pd.Series(words.take(codes), cells.index, name=cells.name)
    return pd.Series(read[codes], cells.index, dtype=object, name=cells.name)
