"""What is kept of an official file, by name, and the refusal of a changed file.

A file is changed that has other words, numbers, columns or rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from heart_utils.identities import show_cell
from heart_utils.sources.catalogue import Source, find_source
from heart_utils.tables import DataError

__all__ = ["keep_columns", "need_score", "need_words"]


def need_words(
    source: Source,
    file: str,
    rows: pd.DataFrame,
    column: str,
    words: Mapping[Any, Any] | Sequence[Any],
    expected: str = "",
) -> None:
    """Refuse a file with another word in a column than those that are known."""
    _refuse(
        source,
        file,
        rows[column],
        ~rows[column].isin(list(words)),
        expected or " or ".join(map(str, words)),
    )


def need_score(
    source: Source, file: str, rows: pd.DataFrame, column: str, scale: Sequence[float]
) -> None:
    """Refuse a file with a number that is not within the ends of its scale."""
    _refuse(
        source,
        file,
        rows[column],
        ~rows[column].between(scale[0], scale[1]),
        f"{scale[0]} to {scale[1]}",
    )


def _refuse(source: Source, file: str, values: pd.Series, wrong: pd.Series, expected: str) -> None:
    if wrong.any():
        row = int(wrong.to_numpy().argmax())
        held = show_cell(str(values.name), values.tolist()[row])
        raise DataError(
            f"{source.name}/{file}: row {row} has {values.name} {held}; expected {expected}."
        )


def keep_columns(name: str, file: str, table: pd.DataFrame, used: Sequence[str]) -> pd.DataFrame:
    """Keep the columns that are used, by name; refuse a table that is not the known one.

    Another table has a column less or more, or other rows.
    """
    missing = [column for column in used if column not in table]
    if missing:
        raise DataError(f"{name}/{file}: missing {', '.join(missing)}.")
    known = next(entry for entry in find_source(name).files if entry.file == file)
    for what, actual, expected in (
        ("columns", table.shape[1], known.columns),
        ("rows", len(table), known.rows),
    ):
        if expected is not None and actual != expected:
            error_message = f"{name}/{file}: {actual} {what}, {expected} were expected"
            raise DataError(
                f"{error_message}. The official file has changed: read what is new, then mend"
                " data/sources.yaml."
            )
    return table[list(used)]
