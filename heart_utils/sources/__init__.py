"""Data sets and users' files as the project's tables: histories, replies, scores, verdicts.

One door for each table, :func:`load_histories`, :func:`load_replies`, :func:`load_scores` and
:func:`load_verdicts`, opened by the name of a set or by the path of a file.
"""

from heart_utils.sources.catalogue import (
    SOURCES,
    DamagedDataError,
    DataError,
    DataUnavailableError,
    Source,
    fetch_data,
    find_data,
    load_responders,
)
from heart_utils.sources.heart import count_role_swaps, flag_reply
from heart_utils.sources.load import load_histories, load_replies, load_scores, load_tallies, load_verdicts, scores_to_verdicts

__all__ = [
    "SOURCES",
    "DamagedDataError",
    "DataError",
    "DataUnavailableError",
    "Source",
    "count_role_swaps",
    "fetch_data",
    "find_data",
    "flag_reply",
    "load_histories",
    "load_replies",
    "load_responders",
    "load_scores",
    "load_tallies",
    "load_verdicts",
    "scores_to_verdicts",
]
