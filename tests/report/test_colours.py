"""Colours of figures as people see them who see few: apart from each other, or repeated by a mark,
a hatch or a word."""

import itertools
import re

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_rgb

from heart_utils.report.commands import LOOKS
from heart_utils.report.figures import (
    COLOURS,
    KIND_LOOKS,
    MARKERS,
    plot_intervals,
    plot_leaderboard,
)
from heart_utils.runs import find_root
from tools.notebooks import read_cells

mpl.use("Agg")

# Machado, Oliveira and Fernandes (2009), https://doi.org/10.1109/TVCG.2009.113, severity 1.0, on
# linear RGB.
SIGHT = {
    "all colours": np.eye(3),
    "protanopia": np.array(
        [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ]
    ),
    "deuteranopia": np.array(
        [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ]
    ),
    "tritanopia": np.array(
        [
            [1.255528, -0.076749, -0.178779],
            [-0.078411, 0.930809, 0.147602],
            [0.004733, 0.691367, 0.303900],
        ]
    ),
}
# sRGB to CIE XYZ (IEC 61966-2-1), and the white D65.
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
WHITE = np.array([0.9505, 1.0, 1.0890])
APART = 20
"""Of CIE76: a difference of 2.3 is just noticed by eyes that compare two fields (Mahy and others, 1994). Points and lines
are small and lie apart from their names, so eight times that is asked for."""


def to_lab(colour, matrix):
    """What somebody sees of a colour: simulated in linear light, then on a scale where distances
    are differences seen."""
    coded = np.array(to_rgb(colour))
    linear = np.where(coded <= 0.04045, coded / 12.92, ((coded + 0.055) / 1.055) ** 2.4)
    share = TO_XYZ @ np.clip(matrix @ linear, 0, 1) / WHITE
    x, y, z = np.where(share > (6 / 29) ** 3, np.cbrt(share), share / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def distance(one, other, sight):
    return float(np.linalg.norm(to_lab(one, SIGHT[sight]) - to_lab(other, SIGHT[sight])))


def mixed_up(looks):
    """List pairs of looks, a colour and whatever else there is of each, that somebody cannot tell
    apart."""
    pairs = itertools.combinations(looks, 2)
    return [
        (one, other, sight)
        for one, other in pairs
        if one[1:] == other[1:]
        for sight in SIGHT
        if distance(one[0], other[0], sight) < APART
    ]


def looks_of(ax):
    """Give the colour of each entry of a legend, and all else that tells it: what it is, its mark,
    line and hatch."""
    looks = []
    for handle in ax.get_legend_handles_labels()[0]:
        # a row of bars, or a point with its bars
        drawn = handle[0] if isinstance(handle, tuple) else handle
        colour = drawn.get_color() if hasattr(drawn, "get_color") else drawn.get_facecolor()
        other = [getattr(drawn, f"get_{what}", lambda: None)() for what in ("marker", "hatch")]
        looks.append(
            (
                np.ravel(colour)[:3] if not isinstance(colour, str) else colour,
                type(drawn).__name__,
                *other,
            )
        )
    return looks


@pytest.fixture(autouse=True)
def _close():
    yield
    mpl.pyplot.close("all")


def test_the_arithmetic_gives_the_values_of_the_standard():
    """White, mid grey and pure red under D65, as in tables of sRGB; and what is grey stays so for
    everybody."""
    assert to_lab("white", np.eye(3)) == pytest.approx([100, 0, 0], abs=0.02)
    assert to_lab("#777777", np.eye(3)) == pytest.approx([50.03, 0, 0], abs=0.02)
    assert to_lab("#ff0000", np.eye(3)) == pytest.approx([53.24, 80.09, 67.20], abs=0.05)
    for matrix in SIGHT.values():
        assert matrix.sum(axis=1) == pytest.approx(1, abs=2e-6)


def test_a_red_and_a_green_of_one_lightness_are_mixed_up_without_a_mark_and_not_with_two():
    red, green = "#d62728", "#5b7f00"
    assert distance(red, green, "all colours") > 3 * APART
    assert {sight for *_, sight in mixed_up([(red, "o"), (green, "o")])} >= {"deuteranopia"}
    assert mixed_up([(red, "o"), (green, "s")]) == []


@pytest.mark.parametrize(
    "looks",
    [
        list(zip(COLOURS, MARKERS, strict=True)),
        list(KIND_LOOKS.values()),
        list(LOOKS.values()),
    ],
    ids=["series", "authors", "outcomes of the gate"],
)
def test_no_two_looks_of_a_palette_are_mixed_up(looks):
    assert mixed_up(looks) == []


def board():
    kinds = list(KIND_LOOKS)
    rows = {"responder": kinds, "responder_kind": kinds, "rating": 1500.0, "rating_low": 1490.0}
    rows |= {"rating_high": 1510.0, "ci_level": 0.95, "population": "dialogues", "n_verdicts": 40}
    flags = dict.fromkeys(("provisional", "penalised", "simulated"), False)
    return pd.DataFrame(rows | flags | {"n_clusters": 40})


def many(n, **columns):
    return pd.DataFrame(
        {"name": [f"n{place}" for place in range(n)], "value": np.linspace(0.2, 0.8, n)}
    ).assign(**columns)


FIGURES = {
    "leaderboard": lambda: plot_leaderboard(board()),
    "intervals of several kinds in a row": lambda: plot_intervals(
        many(8, row="x"), value="value", label="row", by="name"
    ),
    "intervals of one kind a row": lambda: plot_intervals(
        many(8), value="value", label="name", by="name"
    ),
}


@pytest.mark.parametrize("name", FIGURES)
def test_what_a_figure_says_in_colour_it_says_in_another_way_too(name):
    ax = FIGURES[name]()
    looks = looks_of(ax)
    assert len(looks) > 1
    assert mixed_up(looks) == []
    assert len({look[1:] for look in looks}) == len(looks), (
        "two entries differ in their colour alone"
    )


def test_chapters_that_colour_by_a_column_repeat_it_by_a_mark_or_a_word():
    """`legend=False` and `annot` stand where the rows of the figure, or its cells, name what the
    colour says."""
    repeated = re.compile(r"markers=|style=|legend=False|annot=True|\"annot\": True")
    for notebook in sorted((find_root() / "notebooks").glob("*.ipynb")):
        for cell in read_cells(notebook):
            if cell["cell_type"] == "code" and re.search(
                r"\bhue=|\.plot\.bar|cmap=|colormap=|palette=", cell["source"]
            ):
                assert repeated.search(cell["source"]), (notebook.name, cell["source"])
