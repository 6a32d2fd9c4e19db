"""The rows that go with a figure are those that it was drawn from."""

import io

import matplotlib.pyplot as plt
import pandas as pd
import pytest

from heart_utils import plot_forest, plot_intervals, plot_leaderboard
from heart_utils.report.figures import (
    keep_rows,
    plot_boards,
    plot_measures,
    plot_trend,
    rows_as_csv,
)


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


BOARD = pd.DataFrame(
    {
        "responder": ["x", "y"],
        "responder_kind": "model",
        "rating": [1400.0, 1600 + 1 / 3],
        "rating_low": [1350.0, 1550.0],
        "rating_high": [1450.0, 1650.0],
        "ci_level": 0.95,
        "population": "dialogues",
        "n_verdicts": 400,
        "n_clusters": 40,
        "tie_share": 0.25,
        "provisional": False,
        "penalised": False,
        "simulated": False,
        "dimension": "warmth",
        "size": [7.0, 70.0],
    }
)
SCORES = pd.DataFrame({"dialogue_id": range(4), "m": [1, 2, 1, 2], "n": 2}).melt(
    "dialogue_id", var_name="responder", value_name="score"
)
EFFECT = {"study": "A 2024", "people": "lay", "models": "m", "group": "Strangers", "line": "a"}
EFFECT |= {"win_share": 0.6, "ci_low": 0.5, "ci_high": 0.7, "ci_level": 0.95, "n_raters": 400}
EFFECT |= {"evidence": "measured"}
RATING = ["rating", "rating_low", "rating_high"]


def rows_of(figure):
    return pd.read_csv(io.StringIO(rows_as_csv(figure)["text/csv"]))


@pytest.mark.parametrize(
    ("draw", "first"),
    [
        (lambda: plot_leaderboard(BOARD).figure, ["responder", *RATING]),
        (lambda: plot_boards(BOARD, by="dimension"), ["dimension", "responder", *RATING]),
        (
            lambda: plot_trend(BOARD, x="size", x_label="x", y_label="y").figure,
            ["responder", "size", *RATING],
        ),
        (
            lambda: plot_intervals(BOARD, value="rating", label="responder").figure,
            ["responder", *RATING],
        ),
        (
            lambda: plot_measures(SCORES, SCORES, x_label="x", y_label="y").figure,
            ["responder", "first", "second", "first_low", "first_high"],
        ),
        (
            lambda: plot_forest(pd.DataFrame([EFFECT])).figure,
            ["study", "people", "models", "win_share", "ci_low", "ci_high", "group"],
        ),
    ],
    ids=["leaderboard", "boards", "trend", "intervals", "measures", "forest"],
)
def test_each_plot_keeps_its_rows(draw, first):
    rows = rows_of(draw())
    assert rows.columns[: len(first)].tolist() == first
    assert len(rows) == (1 if "study" in first else 2)


def test_the_best_responder_comes_first_with_six_digits():
    rows = rows_of(plot_leaderboard(BOARD).figure)
    assert rows["responder"].tolist() == ["y", "x"]
    assert rows["rating"].tolist() == [1600.33, 1400.0]


def test_rows_of_panels_go_below_each_other_without_empty_columns():
    figure, panels = plt.subplots(1, 2)
    for axes, name in zip(panels, ("left", "right"), strict=True):
        keep_rows(axes, pd.DataFrame({"n": [1], "panel": name, "note": None}), first=["panel"])
    assert rows_of(figure).to_dict("list") == {"panel": ["left", "right"], "n": [1, 1]}


def test_a_figure_that_keeps_no_rows_has_no_file():
    figure, axes = plt.subplots()
    axes.plot([1, 2])
    assert rows_as_csv(figure) == {}
