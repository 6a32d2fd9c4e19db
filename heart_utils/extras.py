"""Optional packages: an error names the extra of ``pyproject.toml`` that installs one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["MissingExtraError"]

PACKAGES = {
    "plots": "matplotlib seaborn",
    "excel": "openpyxl",
    "collect": (
        "litellm 'sqlalchemy>=2' zstandard psutil tenacity 'psycopg[binary]' dask distributed"
        " aiohttp itsdangerous"
    ),
}
"""What each extra brings, as pip is told to install it."""


class MissingExtraError(ModuleNotFoundError):
    """A package is missing that an extra would have brought."""


@contextmanager
def extra(name: str) -> Iterator[None]:
    """Name the extra to install if a package is missing in this block."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = str(error.name).partition(".")[0]
        raise MissingExtraError(
            f"{package} is not installed. It comes with the extra {name}: pip install '.[{name}]'"
            f" in a checkout of this project, or elsewhere: pip install {PACKAGES[name]}",
            name=package,
        ) from None
