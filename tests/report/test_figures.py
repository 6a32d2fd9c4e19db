"""Figures: what is drawn, what stands in them, the rows that go with them, and those that a reader
can ask in a browser."""

import io
import itertools
import json
import re

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from heart_utils.report.figures import (
    KIND_LOOKS,
    WIDTH,
    explore,
    keep_rows,
    plot_boards,
    plot_forest,
    plot_intervals,
    plot_leaderboard,
    plot_measures,
    plot_trend,
    rows_as_csv,
    use_book_style,
)
from heart_utils.tables import RESPONDER_KINDS


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


def board(**columns):
    rows = {
        "responder": ["ann", "bot", "cat"],
        "responder_kind": ["human", "model", "probe"],
        "rating": [1550.0, 1500.0, 1450.0],
        "rating_low": [1540.0, 1480.0, 1400.0],
        "rating_high": [1560.0, 1520.0, 1500.0],
        "ci_level": 0.95,
        "population": "dialogues",
        "n_verdicts": 400,
        "n_clusters": 40,
        "tie_share": 0.25,
        "provisional": False,
        "penalised": False,
        "simulated": False,
        "group": "g1",
    }
    return pd.DataFrame({**rows, **columns})


def texts(ax):
    return " ".join(text.get_text().replace("\n", " ") for text in ax.texts)


def ends(ax):
    """Where each bar begins and ends."""
    return [path[:, 0].tolist() for lines in ax.collections for path in lines.get_segments()]


def test_the_best_responder_stands_on_top_with_its_interval():
    ax = plot_leaderboard(board())
    assert [label.get_text() for label in ax.get_yticklabels()] == ["cat", "bot", "ann"]
    assert sorted(ends(ax)) == [[1400.0, 1500.0], [1480.0, 1520.0], [1540.0, 1560.0]]


def test_the_axis_says_which_interval_and_of_what():
    label = " ".join(plot_leaderboard(board()).get_xlabel().split())
    assert label.endswith("bars: 95 % interval, dialogues like these")
    none = board(rating_low=np.nan, rating_high=np.nan, population="none")
    assert plot_leaderboard(none).get_xlabel().replace("\n", " ").endswith("no interval")


def test_boards_of_several_populations_do_not_claim_the_first_for_all():
    both = pd.concat([board(group="u"), board(group="v", population="dialogues_and_raters")])
    assert "population: see the caption" in plot_boards(both, by="group").get_supxlabel()


def test_every_small_board_of_simulated_rows_is_marked():
    two = pd.concat([board(simulated=True), board(simulated=True, group="g2")])
    assert all("SIMULATED" in texts(ax) for ax in plot_boards(two, by="group").axes)


RAISED = {"population": "dialogues_and_raters", "n_clusters": 20, "provisional": True}


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"simulated": [False, True, False]}, "SIMULATED"),
        ({}, "600 verdicts, 40 dialogues; measured"),
        ({"provisional": True}, "provisional: fewer than 30 dialogues"),
        # nobody counted dialogues where none were drawn
        (
            {"provisional": True, "n_clusters": 0},
            "600 verdicts; measured; provisional: nothing was resampled",
        ),
        # not everybody was met in each dialogue
        ({"n_clusters": [40, 40, 30]}, "600 verdicts, 40 dialogues at most each; measured"),
        (
            RAISED,
            "20 or more dialogues and raters; measured; provisional: fewer than 30 dialogues or raters",
        ),
        ({"penalised": [True, False, False]}, "weak prior"),
    ],
)
def test_what_a_board_rests_on_and_its_caveats_stand_in_the_figure(columns, said):
    ax = plot_leaderboard(board(**columns))
    names = [label.get_text() for label in ax.get_yticklabels()]
    assert said in texts(ax)
    assert ("SIMULATED" in texts(ax)) == ("simulated" in columns)
    assert ("ann *" in names) == ("penalised" in columns)


def test_each_kind_has_a_colour_and_a_marker_of_its_own():
    assert set(KIND_LOOKS) == set(RESPONDER_KINDS)
    assert [len(set(looks)) for looks in zip(*KIND_LOOKS.values(), strict=True)] == [
        len(RESPONDER_KINDS)
    ] * 2


def test_panels_share_their_order_and_say_their_share_of_ties():
    two = pd.concat([board(), board(group="g2", rating=[1450.0, 1500.0, 1700.0], tie_share=0.5)])
    figure = plot_boards(two, by="group")
    assert [ax.get_title() for ax in figure.axes] == ["g1\nties 25 %", "g2\nties 50 %"]
    # means 1500, 1500, 1575
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["ann", "bot", "cat"]


def test_a_board_with_a_responder_twice_or_none_is_refused():
    with pytest.raises(ValueError, match="ann, bot, cat stands in several rows"):
        plot_leaderboard(pd.concat([board(), board()]))
    with pytest.raises(ValueError, match="no leaderboard to draw"):
        plot_leaderboard(board().head(0))
    with pytest.raises(ValueError, match="no leaderboard to draw"):
        plot_boards(board().head(0), by="group")


def test_an_open_end_is_an_arrow_beyond_all_ratings():
    """A tenth of the finite ratings' span beyond them."""
    open_end = {"rating_high": [np.inf, 1520.0, 1500.0], "penalised": [True, False, False]}
    ax = plot_leaderboard(board(**open_end))
    assert max(itertools.chain(*ends(ax))) == pytest.approx(1550 + 0.1 * 150)
    arrows = [line for line in ax.lines if line.get_marker() == ">" and len(line.get_xdata())]
    assert len(arrows) == 1
    assert np.isfinite(ax.get_xlim()).all()


def test_a_figure_of_the_book_is_no_wider_than_a_phone_can_show():
    with mpl.rc_context():
        use_book_style()
        assert plt.figure(figsize=(9, 3)).get_size_inches().tolist() == [WIDTH, 3]
        assert plt.figure(figsize=(4, 3)).get_figwidth() == 4


FOUND = pd.DataFrame({
    "judge": ["x", "x", "y", "y"], "measure": ["agreement", "author_only"] * 2, "share": [0.8, 0.7, 0.6, 0.65],
    "share_low": [0.7, 0.6, 0.5, 0.6], "share_high": [0.9, 0.8, 0.7, 0.7],
})  # fmt: skip


def test_each_label_has_one_row_and_each_kind_a_marker_of_its_own():
    ax = drawn(by="measure")
    assert [text.get_text() for text in ax.get_yticklabels()] == ["x", "y"]
    assert [line.get_marker() for line in ax.lines] == ["o", "s"]
    assert [list(line.get_xdata()) for line in ax.lines] == [[0.8, 0.6], [0.7, 0.65]]
    assert ax.get_ylim()[0] > ax.get_ylim()[1]  # the first row stands on top


def drawn(table=FOUND, **options):
    return plot_intervals(table, value="share", label="judge", **options)


def test_intervals_are_drawn_where_there_are_any():
    assert len(drawn(by="measure").collections) == 2
    assert not drawn(FOUND.drop(columns="share_low"), by="measure").collections


@pytest.mark.parametrize(
    ("simulated", "asked"), [(False, True), ([False, True, False, False], False)]
)
def test_a_simulated_figure_says_so_and_a_reference_is_named(simulated, asked):
    table, reference = FOUND.assign(simulated=simulated), {"a coin": 0.5}
    ax = drawn(table, by="measure", reference=reference, simulated=asked)
    assert {text.get_text() for text in ax.texts} == {"a coin", "SIMULATED"}


def test_what_cannot_be_drawn_is_refused():
    with pytest.raises(ValueError, match="nothing to draw"):
        drawn(FOUND[:0])
    with pytest.raises(ValueError, match="9 kinds"):
        drawn(pd.DataFrame({"judge": "x", "measure": range(9), "share": 0.5}), by="measure")


def test_the_ends_may_have_the_name_of_the_value_or_of_an_interval():
    named = FOUND[::2].assign(ci_low=[0.0, 0.1], ci_high=1.0)
    assert ends(drawn(named)) == [[0.7, 0.9], [0.5, 0.7]]
    assert ends(drawn(named.drop(columns="share_low"))) == [[0.0, 1.0], [0.1, 1.0]]


def test_kinds_that_never_share_a_row_stand_in_the_middle_of_theirs():
    assert [[*line.get_ydata()] for line in drawn(FOUND[::3], by="measure").lines] == [[0.0], [1.0]]


def test_an_infinite_end_is_an_arrow_beyond_all_that_is_drawn():
    """The finite values span 0.5 to 0.9, so the bar ends a tenth of that beyond 0.9."""
    ax = drawn(FOUND[::2].assign(share_high=[np.inf, 0.9]))
    arrows = [line.get_xdata() for line in ax.lines if line.get_marker() == ">"]
    assert ends(ax)[0] == pytest.approx([0.7, 0.94])
    assert np.ravel(arrows) == pytest.approx([0.94])


def test_a_model_without_a_time_is_not_drawn():
    models = pd.DataFrame(
        {"responder": list("abc"), "ttft_ms": [90.0, 400, None], "rating": [1500.0, 1600, 1700]}
    )
    ax = plot_trend(
        models.assign(on_frontier=True), x="ttft_ms", x_label="t", y_label="r", frontier=True
    )
    assert [text.get_text() for text in ax.texts] == ["a", "b"]


def test_names_stand_inside_and_cover_no_other_name_and_no_point():
    names = [
        "a-long-name-of-a-model-2507",
        "another-long-name-of-one",
        "a-third-name-that-is-long",
        "b",
        "c",
    ]
    models = pd.DataFrame(
        {
            "responder": names,
            "size": [30.0, 80, 235, 1000, 1000],
            "rating": [60.2, 61.1, 61.5, 59.8, 58.0],
        }
    )
    ax = plot_trend(models, x="size", x_label="x", y_label="y")
    ax.figure.draw_without_rendering()
    boxes, room = [text.get_window_extent() for text in ax.texts], ax.get_window_extent()
    points = ax.transData.transform(models[["size", "rating"]].to_numpy())
    assert all(room.x0 - 1 <= box.x0 and box.x1 <= room.x1 + 1 for box in boxes)
    assert not any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))
    assert not any(box.contains(*point) for box in boxes for point in points)


def boxes(ax, texts):
    """Give where words stand, once the figure is laid out."""
    ax.figure.canvas.draw()
    return [text.get_window_extent() for text in texts]


LONG_NAMES = pd.DataFrame(
    {
        "what": [
            "two people agree more than chance",
            "people agree more than judges do",
            "rank correlation with latency",
        ],
        "share": [1.0, 1.0, 1.0],
        "ci_low": [0.9, 0.4, 0.0],
        "ci_high": [1.1, 1.6, 2.0],
    }
)


def test_folded_names_do_not_touch():
    ax = plot_intervals(LONG_NAMES, value="share", label="what")
    places = boxes(ax, ax.get_yticklabels())
    for upper, lower in itertools.pairwise(places):
        assert upper.y0 > lower.y1
    ax.figure.set_layout_engine("none")
    ax.figure.set_figheight(1.2)
    places = boxes(ax, ax.get_yticklabels())
    assert any(upper.y0 <= lower.y1 for upper, lower in itertools.pairwise(places))  # it can fail


def test_the_stamp_lies_below_the_last_interval():
    ax = plot_intervals(LONG_NAMES, value="share", label="what", simulated=True)
    [stamp] = boxes(ax, [text for text in ax.texts if text.get_text() == "SIMULATED"])
    last = ax.transData.transform((1.0, len(LONG_NAMES) - 1))[1]
    assert stamp.y1 < last


SCORES = pd.DataFrame({"dialogue_id": range(4), "m": [1, 2, 1, 2], "n": 2}).melt(
    "dialogue_id", var_name="responder", value_name="score"
)
EFFECT = {"study": "A 2024", "people": "lay", "models": "m", "group": "Strangers", "line": "a"}
EFFECT |= {"win_share": 0.6, "ci_low": 0.5, "ci_high": 0.7, "ci_level": 0.95, "n_raters": 400}
EFFECT |= {"evidence": "measured"}
RATING = ["rating", "rating_low", "rating_high"]


SIZED = board(size=[7.0, 70.0, 9.0])


def rows_of(figure):
    return pd.read_csv(io.StringIO(rows_as_csv(figure)["text/csv"]))


@pytest.mark.parametrize(
    ("draw", "n", "first"),
    [
        (lambda: plot_leaderboard(SIZED).figure, 3, ["responder", *RATING]),
        (lambda: plot_boards(SIZED, by="group"), 3, ["group", "responder", *RATING]),
        (
            lambda: plot_trend(SIZED, x="size", x_label="x", y_label="y").figure,
            3,
            ["responder", "size", *RATING],
        ),
        (
            lambda: plot_intervals(SIZED, value="rating", label="responder").figure,
            3,
            ["responder", *RATING],
        ),
        (
            lambda: plot_measures(SCORES, SCORES, x_label="x", y_label="y").figure,
            2,
            ["responder", "first", "second", "first_low", "first_high"],
        ),
        (
            lambda: plot_forest(pd.DataFrame([EFFECT])).figure,
            1,
            ["study", "people", "models", "win_share", "ci_low", "ci_high", "group"],
        ),
    ],
    ids=["leaderboard", "boards", "trend", "intervals", "measures", "forest"],
)
def test_each_plot_keeps_its_rows(draw, n, first):
    rows = rows_of(draw())
    assert rows.columns[: len(first)].tolist() == first
    assert len(rows) == n


def test_the_best_responder_comes_first_with_six_digits():
    rows = rows_of(plot_leaderboard(board(rating=[1450.0, 1600 + 1 / 3, 1400.0])).figure)
    assert rows["responder"].tolist() == ["bot", "ann", "cat"]
    assert rows["rating"].tolist() == [1600.33, 1450.0, 1400.0]


def test_rows_of_panels_go_below_each_other_without_empty_columns():
    figure, panels = plt.subplots(1, 2)
    for axes, name in zip(panels, ("left", "right"), strict=True):
        keep_rows(axes, pd.DataFrame({"n": [1], "panel": name, "note": None}), first=["panel"])
    assert rows_of(figure).to_dict("list") == {"panel": ["left", "right"], "n": [1, 1]}


def test_a_figure_that_keeps_no_rows_has_no_file():
    figure, axes = plt.subplots()
    axes.plot([1, 2])
    assert rows_as_csv(figure) == {}


CELLS = pd.DataFrame(
    {
        "panel": "warmth",
        "row": ["x", "y"],
        "column": ["y", "x"],
        "wins": [3, 1],
        "ties": 2,
        "losses": [1, 3],
    }
)


def ask(table=CELLS, *, kind="matrix", **options):
    given = {"figure": "f", "switches": {}, "shown": {}} | options
    return explore(table, kind=kind, **given)._repr_html_()


def told_of(html):
    """The rows that a page gets, by column, and all else."""
    script = re.search(r'<script type="application/json">(.*)</script>', html, flags=re.DOTALL)
    told = json.loads(script[1])
    return told | {"rows": [dict(zip(told["columns"], row, strict=True)) for row in told["rows"]]}


def test_the_page_gets_the_columns_that_it_needs_and_no_others():
    told = told_of(ask(CELLS.assign(secret="s"), switches={"panel": "Attribute"}))
    assert told["rows"][0] == CELLS.iloc[0].to_dict()
    assert told["switches"] == {"panel": "Attribute"}


def test_a_card_of_a_name_comes_with_its_facts():
    cards = pd.DataFrame({"row": ["x", "y"], "family": ["openai", None], "mean": [4.51, 3.0]})
    assert told_of(ask(cards=cards))["cards"] == [
        {"row": "x", "family": "openai", "mean": 4.51},
        {"row": "y", "family": None, "mean": 3.0},
    ]


def test_each_score_of_a_group_reaches_the_page():
    asked = {"label": "told", "value": -0.7, "ci_low": -0.9, "ci_high": -0.5, "least": -3}
    asked |= {"most": 3, "scores": None}
    group = asked | {"label": "by a person", "value": 5.5, "scores": [4.0, 7.0]}
    told = told_of(ask(pd.DataFrame([asked, group]), kind="guess"))
    assert [row["scores"] for row in told["rows"]] == [None, [4.0, 7.0]]


def test_a_text_cannot_end_the_script_that_holds_it_and_all_is_hidden_without_scripts():
    html = ask(CELLS.assign(panel="</script><script>alert(1)</script>"))
    assert html.count("</script>") == 1
    assert told_of(html)["rows"][0]["panel"] == "</script><script>alert(1)</script>"
    assert re.match(r"<div [^>]*hidden>", html)


def test_a_column_that_is_missing_is_named():
    with pytest.raises(ValueError, match="has no column source"):
        ask(shown={"source": "source"})


def test_studies_without_a_size_go_along_with_the_forest():
    cards = pd.DataFrame({"study": ["B 2024"], "favours": "people", "source": "https://doi.org/b"})
    page = ask(pd.DataFrame([EFFECT]), kind="forest", cards=cards)
    assert '"cards":[{"study":"B 2024","favours":"people"' in page
