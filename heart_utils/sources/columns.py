"""Columns of text built for all rows at once, by Arrow.

Cell by cell in pandas this takes most of the time of a large file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

__all__ = ["TEXT"]

TEXT = pd.StringDtype(na_value=np.nan)
SECONDS, MILLISECONDS = 1e8, 1e11  #: What a number that counts them since 1970 is above.
ARROW_TEXT = pa.large_string()  #: What pandas keeps such columns as.


def constant(value: str | None, index: pd.Index) -> pd.Series:
    """Make a column with one text, or nothing, in every row."""
    if value is None:
        return _column(pa.nulls(len(index), ARROW_TEXT), index)
    cell = value.encode()  # pa.repeat appends text by text, which takes five times as long
    ends = np.arange(len(index) + 1) * len(cell)
    buffers = pa.py_buffer(ends), pa.py_buffer(cell * len(index))
    return _column(pa.LargeStringArray.from_buffers(len(index), *buffers), index)


def join_texts(parts: Sequence[pd.Series], between: str = "--") -> pd.Series:
    """Join columns of text row by row."""
    if any(part.dtype != TEXT for part in parts):
        joined = parts[0]
        for part in parts[1:]:
            joined = joined + between + part
        return joined
    arrays = [pa.chunked_array(part.array.__arrow_array__()) for part in parts]
    return _column(
        pc.binary_join_element_wise(*arrays, pa.scalar(between, ARROW_TEXT)), parts[0].index
    )


def choose(chosen: NDArray[np.bool_], first: pd.Series, second: pd.Series) -> pd.Series:
    """Take the cells of the first column where it is chosen, and those of the second elsewhere."""
    if first.dtype != TEXT or second.dtype != TEXT:
        return first.where(chosen, second)
    arrays = [pa.chunked_array(cells.array.__arrow_array__()) for cells in (first, second)]
    return _column(pc.if_else(pa.array(chosen), *arrays), first.index, name=first.name)


def put(cells: pd.Series, chosen: NDArray[np.bool_], others: pd.Series) -> pd.Series:
    """Replace the chosen cells by others, one for each."""
    if cells.dtype != TEXT or others.dtype != TEXT:
        changed = cells.astype(object)
        changed[chosen] = others.to_numpy(object)
        return changed
    array, new = (pa.chunked_array(some.array.__arrow_array__()) for some in (cells, others))
    kept = pc.replace_with_mask(array, pa.array(chosen), new.combine_chunks())
    return _column(kept, cells.index, name=cells.name)


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


def _column(texts: pa.Array | pa.ChunkedArray, index: pd.Index, name: object = None) -> pd.Series:
    return pd.Series(pd.array(texts, dtype=TEXT), index=index, name=name)
