"""Chinese names in figures and pages: a small font that comes with the project."""

from __future__ import annotations

import base64
import dataclasses

from heart_utils.runs import find_root

__all__ = ["FONT", "cjk_style", "use_cjk_font"]

FONT = "HeartBench Names SC"
"""A cut of Noto Sans CJK SC (SIL Open Font License 1.1, ``data/fonts/OFL.txt``) with the characters of the names only."""


def use_cjk_font() -> None:
    """Let every figure that follows fall back to the font for the characters its own lacks.

    Examples
    --------
    >>> import matplotlib as mpl
    >>> with mpl.rc_context():  # what was set before comes back after it
    ...     use_cjk_font()
    ...     mpl.rcParams["font.sans-serif"][-1]
    'HeartBench Names SC'
    """
    import matplotlib as mpl
    from matplotlib import font_manager

    file = find_root() / "data" / "fonts" / "HeartBenchNamesSC.otf"
    if FONT not in {entry.name for entry in font_manager.fontManager.ttflist}:
        font_manager.fontManager.addfont(file)
        # It has one weight; said twice, matplotlib does not complain where a text is bold.
        regular = font_manager.fontManager.ttflist[-1]
        font_manager.fontManager.ttflist.append(dataclasses.replace(regular, weight=700))
    family = [name for name in mpl.rcParams["font.sans-serif"] if name != FONT]
    # matplotlib looks for each character down the list of families, so the list itself must be the family.
    there = {entry.name for entry in font_manager.fontManager.ttflist}
    family = [name for name in family if name in there]
    mpl.rcParams["font.sans-serif"] = [*family, FONT]
    mpl.rcParams["font.family"] = [*family, FONT]


def cjk_style() -> str:
    """Give a style element with the font inside, so that a page shows the names where a reader has no Chinese font.

    Returns
    -------
    str
        HTML; elements with ``lang="zh"`` and table cells use the font for what theirs lacks.

    Examples
    --------
    >>> cjk_style().startswith("<style>@font-face")
    True
    """
    content = (find_root() / "data" / "fonts" / "HeartBenchNamesSC.otf").read_bytes()
    coded = base64.b64encode(content).decode()
    return (
        f'<style>@font-face {{ font-family: "{FONT}"; src: url("data:font/otf;base64,{coded}") format("opentype"); '
        # Before the others, since Chromium draws the first cell without a fallback that arrives late; for Chinese alone.
        f'unicode-range: U+2E80-FFEF }} td, th, [lang="zh"] {{ font-family: "{FONT}", system-ui, sans-serif }}</style>'
    )
