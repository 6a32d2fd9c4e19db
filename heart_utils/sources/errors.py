"""What can be wrong with data before anything is computed from them."""

from __future__ import annotations

__all__ = ["DamagedDataError", "DataError", "DataUnavailableError"]


class DataError(ValueError):
    """A file or a data set does not hold what was asked of it."""


class DataUnavailableError(DataError):
    """A data set is neither mirrored nor fetched, and cannot be had now."""


class DamagedDataError(DataError):
    """A file came, but cut short or with another content than the one that was checked."""
