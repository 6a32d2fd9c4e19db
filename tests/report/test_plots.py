import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest

from heart_utils.report.figures import (
    KIND_LOOKS,
    WIDTH,
    plot_boards,
    plot_leaderboard,
    use_book_style,
)
from heart_utils.tables import RESPONDER_KINDS

mpl.use("Agg")


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


@pytest.fixture(autouse=True)
def _close():
    yield
    mpl.pyplot.close("all")


def texts(ax):
    return " ".join(text.get_text().replace("\n", " ") for text in ax.texts)


def test_the_best_responder_stands_on_top_with_its_interval():
    ax = plot_leaderboard(board())
    assert [label.get_text() for label in ax.get_yticklabels()] == ["cat", "bot", "ann"]
    segments = sorted(
        tuple(segment[:, 0]) for lines in ax.collections for segment in lines.get_segments()
    )
    assert segments == [(1400.0, 1500.0), (1480.0, 1520.0), (1540.0, 1560.0)]


def test_the_axis_says_which_interval_and_of_what():
    label = " ".join(plot_leaderboard(board()).get_xlabel().split())
    assert label.endswith("bars: 95 % interval, dialogues like these")
    none = board(rating_low=np.nan, rating_high=np.nan, population="none")
    assert plot_leaderboard(none).get_xlabel().replace("\n", " ").endswith("no interval")


def test_boards_of_several_populations_do_not_claim_the_first_for_all():
    both = pd.concat([board(group="u"), board(group="v", population="dialogues_and_raters")])
    assert "population: see the caption" in plot_boards(both, by="group").get_supxlabel()


def test_simulated_rows_are_marked_in_the_figure_and_measured_ones_are_not():
    assert "SIMULATED" in texts(plot_leaderboard(board(simulated=[False, True, False])))
    measured = texts(plot_leaderboard(board()))
    assert "SIMULATED" not in measured
    assert "600 verdicts, 40 dialogues; measured" in measured


def test_every_small_board_of_simulated_rows_is_marked():
    two = pd.concat([board(simulated=True), board(simulated=True, group="g2")])
    assert all("SIMULATED" in texts(ax) for ax in plot_boards(two, by="group").axes)


def test_caveats_stand_in_the_figure():
    said = texts(plot_leaderboard(board(provisional=True)))
    assert "provisional: fewer than 30 dialogues" in said
    # nobody counted dialogues where none were drawn
    said = texts(plot_leaderboard(board(provisional=True, n_clusters=0)))
    assert "600 verdicts; measured; provisional: nothing was resampled" in said
    # not everybody was met in each dialogue
    said = texts(plot_leaderboard(board(n_clusters=[40, 40, 30])))
    assert "600 verdicts, 40 dialogues at most each; measured" in said
    said = texts(
        plot_leaderboard(board(population="dialogues_and_raters", n_clusters=20, provisional=True))
    )
    assert (
        "20 or more dialogues and raters; measured; provisional: fewer than 30 dialogues or raters"
        in said
    )
    ax = plot_leaderboard(board(penalised=[True, False, False]))
    assert ax.get_yticklabels()[2].get_text() == "ann *"
    assert "weak prior" in texts(ax)


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
    ax = plot_leaderboard(
        board(rating_high=[np.inf, 1520.0, 1500.0], penalised=[True, False, False])
    )
    ends = [x for lines in ax.collections for path in lines.get_segments() for x in path[:, 0]]
    # a tenth of the finite ratings' span beyond them
    assert max(ends) == pytest.approx(1550 + 0.1 * 150)
    arrows = [line for line in ax.lines if line.get_marker() == ">" and len(line.get_xdata())]
    assert len(arrows) == 1
    assert np.isfinite(ax.get_xlim()).all()


def test_a_figure_of_the_book_is_no_wider_than_a_phone_can_show():
    with mpl.rc_context():
        use_book_style()
        assert mpl.pyplot.figure(figsize=(9, 3)).get_size_inches().tolist() == [WIDTH, 3]
        assert mpl.pyplot.figure(figsize=(4, 3)).get_figwidth() == 4
