"""Figures that this project claims, measured: a module a subject, with a function ``run``."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Figure", "seconds"]


@dataclass(frozen=True)
class Figure:
    """One measured figure.

    Attributes
    ----------
    name : str
        What was measured, in words.
    value : float
        In `unit`.
    unit : str
        Such as ``"s"``, ``"times"``, ``"%"``.
    target : str
        What it must reach, in words; empty where nothing is promised.
    met : bool or None
        Whether it did.
    note : str
        What a reader needs beside it, such as a Monte Carlo error.
    """

    name: str
    value: float
    unit: str
    target: str = ""
    met: bool | None = None
    note: str = ""


def seconds(work: Callable[[], object], repeats: int = 5) -> float:
    """Time some work, once to warm up and then a few times, and return the shortest.

    What else runs on the machine only adds to it.
    """
    work()
    spans = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        spans.append(time.perf_counter() - start)
    return min(spans)
