"""Set figures that a cell drew into the page itself.

So their words can be found and selected.
"""

import re
from html import escape

__all__ = ["set_into_page"]

LEFT_OUT = re.compile(
    r"<\?xml.*?\?>|<!DOCTYPE.*?>|<!--.*?-->|<metadata>.*?</metadata>|<style[^>]*>.*?</style>",
    re.DOTALL,
)
"""What a file of its own needs, or what would hold for the whole page."""
MARK = re.compile(r'\sid="([^"]+)"')
POINTER = re.compile(r'(url\(#|href="#)([^)"]+)')
FONT = re.compile(r"font-family: ([^;\"]+); ")
EMPTY_TURN = re.compile(r' transform="rotate\(-?0 [^)]*\)"')


def set_into_page(drawn: str, alt: str, name: str) -> str:
    """Make an element of a page from an SVG file of matplotlib's.

    Parameters
    ----------
    drawn : str
        The file's text.
    alt : str
        What the figure shows, for whoever hears the page.
    name : str
        Put before each name in it that another element points at, since several figures of a page
        use the same ones.

    Returns
    -------
    str
        The element. Names that nothing points at are left out.
    """
    drawing = LEFT_OUT.sub("", drawn)
    pointed_at = {element_id for _, element_id in POINTER.findall(drawing)}
    drawing = MARK.sub(
        lambda mark: f' id="{name}-{mark[1]}"' if mark[1] in pointed_at else "", drawing
    )
    drawing = POINTER.sub(rf"\1{name}-\2", drawing)
    fonts = FONT.findall(drawing)
    most = max(set(fonts), key=lambda font: (fonts.count(font), font), default="")
    drawing = drawing.replace(f"font-family: {most}; ", "") if most else drawing
    drawing = re.sub(r"\s*\n\s*", "\n", EMPTY_TURN.sub("", drawing)).strip()
    font_style = f"font-family: {most}; " if most else ""
    attributes = f'role="img" aria-label="{escape(alt)}" style="{font_style}stroke-linejoin: round"'
    return re.sub(r"<svg ", f"<svg {attributes} ", drawing, count=1)
