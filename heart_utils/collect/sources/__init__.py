"""Data sets and users' files as the project's tables: histories, replies, scores, verdicts.

One door for each table, :func:`load_histories`, :func:`load_replies`, :func:`load_scores` and
:func:`load_verdicts`, opened by the name of a set or by the path of a file.
"""

from heart_utils.collect.sources.blocks import find_blocks
from heart_utils.collect.sources.catalogue import SOURCES, Source
from heart_utils.collect.sources.errors import DamagedDataError, DataError, DataUnavailableError
from heart_utils.collect.sources.fetch import fetch_data, find_data
from heart_utils.collect.sources.heart import count_role_swaps
from heart_utils.collect.sources.load import load_histories, load_scores, load_tallies, load_verdicts
from heart_utils.collect.sources.pairs import scores_to_verdicts
from heart_utils.collect.sources.replies import flag_reply, load_replies
from heart_utils.collect.sources.responders import load_responders

__all__ = [
    "SOURCES",
    "DamagedDataError",
    "DataError",
    "DataUnavailableError",
    "Source",
    "count_role_swaps",
    "fetch_data",
    "find_blocks",
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
