"""The numbers that go with a figure are those of its marks."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import seaborn as sns

from heart_utils import (
    fit_boards,
    fit_ratings,
    plot_boards,
    plot_forest,
    plot_intervals,
    plot_leaderboard,
    plot_trend,
)
from heart_utils.report.drawn import drawn_numbers, read_rows


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


@pytest.fixture
def duels():
    rng = np.random.default_rng(1)
    rows = pd.DataFrame(
        {
            "dialogue_id": [f"d{n}" for n in range(60)],
            "responder_a": "x",
            "responder_b": ["y", "z"] * 30,
        }
    )
    return rows.assign(verdict=rng.choice(["a", "b"], 60), rater_kind=["human", "model"] * 30)


def test_a_leaderboard_gives_each_rating_with_the_interval_that_is_drawn(duels):
    board = fit_ratings(duels, n_resamples=50).table
    drawn = drawn_numbers(plot_leaderboard(board).figure).query("mark == 'point'").set_index("y")
    for row in board.to_dict("records"):
        ends = drawn.loc[row["responder"], ["x", "x_low", "x_high"]].astype(float)
        assert ends.tolist() == pytest.approx(
            [row["rating"], row["rating_low"], row["rating_high"]], rel=1e-5
        )


def test_the_numbers_are_those_of_the_artists_whatever_table_they_were_drawn_from():
    table = pd.DataFrame(
        {"judge": ["one", "two"], "lead": [0.1, 0.3], "ci_low": [0.0, 0.2], "ci_high": [0.2, 0.4]}
    )
    axes = plot_intervals(table, value="lead", label="judge", reference={"none": 0.05})
    next(line for line in axes.lines if line.get_marker() == "o").set_xdata([0.15, 0.35])
    drawn = drawn_numbers(axes.figure)
    assert drawn.loc[drawn["mark"] == "point", "x"].tolist() == [0.15, 0.35]
    assert drawn.loc[drawn["mark"] == "guide", "x"].tolist() == [0.05]


def test_panels_are_told_apart_by_their_titles(duels):
    twice = pd.concat([duels.assign(dimension=name) for name in ("attunement", "resonance")])
    boards = fit_boards(twice, by=["dimension"], n_resamples=10)
    drawn = drawn_numbers(plot_boards(boards, by="dimension")).query("mark == 'point'")
    assert drawn["panel"].str.partition(" ")[0].value_counts().to_dict() == {
        "attunement": 3,
        "resonance": 3,
    }


def test_an_effect_of_a_forest_has_its_line_and_one_without_an_interval_has_none():
    row = {
        "line": "a study",
        "group": "Strangers",
        "win_share": 0.6,
        "ci_low": 0.5,
        "ci_high": 0.7,
        "ci_level": 0.95,
    }
    bare = row | {"line": "a paper", "win_share": 0.4, "ci_low": np.nan, "ci_high": np.nan}
    axes = plot_forest(
        pd.DataFrame([row | {"evidence": "measured"}, bare | {"evidence": "quoted"}])
    )
    drawn = drawn_numbers(axes.figure).query("mark == 'point'").set_index("series")
    assert drawn.loc["Strangers: a study", ["x", "x_low", "x_high"]].tolist() == [0.6, 0.5, 0.7]
    assert drawn.loc["Strangers: a paper", "x"] == 0.4
    assert np.isnan(drawn.loc["Strangers: a paper", "x_low"])


def test_names_beside_points_lines_bands_bars_and_cells_are_read():
    models = pd.DataFrame(
        {"responder": ["m", "n"], "size": [7.0, 70.0], "rating": [1500.0, 1600.0]}
    )
    named = drawn_numbers(plot_trend(models, x="size", x_label="Size", y_label="Rating").figure)
    assert named.set_index("name")[["x", "y"]].to_numpy().tolist() == [
        [7.0, 1500.0],
        [70.0, 1600.0],
    ]
    _, axes = plt.subplots()
    axes.fill_between([1, 2], [0, 1], [3, 5], label="band")
    axes.plot([1, 2], [2, 3], label="line")
    drawn = drawn_numbers(axes.figure)
    assert drawn.loc[drawn["mark"] == "band", ["x", "y_low", "y_high"]].to_numpy().tolist() == [
        [1, 0, 3],
        [2, 1, 5],
    ]
    assert drawn.loc[drawn["mark"] == "line", ["x", "y"]].to_numpy().tolist() == [[1, 2], [2, 3]]
    _, axes = plt.subplots()
    axes.barh(["one", "two"], [3, 4])
    assert drawn_numbers(axes.figure)[["x", "y"]].to_numpy().tolist() == [[3, "one"], [4, "two"]]
    _, axes = plt.subplots()
    sns.heatmap(
        pd.DataFrame([[1.0, 2.0], [3.0, np.nan]], index=["a", "b"], columns=["c", "d"]),
        ax=axes,
        cbar=False,
    )
    cells = drawn_numbers(axes.figure)
    assert cells.query("mark == 'cell'")[["y", "x", "value"]].to_numpy().tolist()[:3] == [
        ["a", "c", 1],
        ["a", "d", 2],
        ["b", "c", 3],
    ]


def test_points_of_seaborn_have_their_error_bars_and_the_words_of_the_legend():
    rows = pd.DataFrame(
        {
            "lean": [0, 0, 1, 1] * 2,
            "right": [1.0, 3.0, 5.0, 7.0, 2.0, 4.0, 6.0, 8.0],
            "orders": [1] * 4 + [2] * 4,
        }
    )
    rows["orders"] = rows["orders"].map({1: "one order", 2: "both orders"})
    _, axes = plt.subplots()
    sns.pointplot(
        rows,
        x="lean",
        y="right",
        hue="orders",
        errorbar=("pi", 100),
        dodge=0.2,
        linestyle="none",
        ax=axes,
    )
    drawn = drawn_numbers(axes.figure).query("mark == 'point'").sort_values(["series", "x"])
    assert drawn["series"].tolist() == ["both orders"] * 2 + ["one order"] * 2
    assert drawn[["y_low", "y", "y_high"]].to_numpy().tolist() == [
        [2, 3, 4],
        [6, 7, 8],
        [1, 2, 3],
        [5, 6, 7],
    ]


def test_a_figure_without_marks_has_no_numbers():
    figure, _ = plt.subplots()
    assert drawn_numbers(figure).empty


def test_what_is_downloaded_are_the_rows_with_study_numbers_and_source():
    row = {"study": "A 2024", "n_raters": 400, "source": "https://doi.org/10.1/a", "line": "a"}
    row |= {"group": "Strangers", "win_share": 0.6, "ci_low": 0.5, "ci_high": 0.7}
    row |= {"people": "lay", "models": "m", "ci_level": 0.95, "evidence": "measured"}
    rows = read_rows(plot_forest(pd.DataFrame([row])).figure)
    ends = ["win_share", "ci_low", "ci_high"]
    assert rows.columns[:6].tolist() == ["study", "people", "models", *ends]
    assert {"n_raters", "source"} <= set(rows)
    assert {"line", "y"}.isdisjoint(rows)


def test_rows_are_not_given_for_a_figure_on_which_more_was_drawn_than_they_hold():
    table = pd.DataFrame({"judge": ["one", "two"], "lead": [0.1, 0.3], "n": [5, 6]})
    table = table.assign(ci_low=[0.0, 0.2], ci_high=[0.2, 0.4])
    axes = plot_intervals(table, value="lead", label="judge")
    assert read_rows(axes.figure)["n"].tolist() == [5, 6]
    axes.plot([0.5], [0.5], "o")
    more = read_rows(axes.figure)
    assert "n" not in more
    assert 0.5 in more["value"].tolist()


def test_where_one_axis_has_names_the_numbers_are_called_by_what_they_are():
    _, axes = plt.subplots()
    axes.barh(["one", "two"], [3, 4])
    axes.set_xlabel("Votes")
    rows = read_rows(axes.figure)
    assert rows[["name", "value", "measure"]].to_numpy().tolist() == [
        ["one", 3, "Votes"],
        ["two", 4, "Votes"],
    ]
