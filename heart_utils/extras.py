"""Packages that only some of the work needs: which extra of ``pyproject.toml`` brings a missing one is said in a sentence."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["MissingExtraError"]

PACKAGES = {
    "plots": "matplotlib seaborn",
    "excel": "openpyxl",
    "collect": "litellm 'psycopg[binary]' dask distributed",
}
"""What each extra brings, as pip is told to install it."""


class MissingExtraError(ModuleNotFoundError):
    """A package is missing that an extra would have brought."""


@contextmanager
def extra(name: str) -> Iterator[None]:
    """Say of a package that is missing in this block how to install the extra that brings it."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = str(error.name).partition(".")[0]
        raise MissingExtraError(
            f"{package} is not installed. It comes with the extra {name}: pip install '.[{name}]'"
            f" in a checkout of this project, or elsewhere: pip install {PACKAGES[name]}",
            name=package,
        ) from None
