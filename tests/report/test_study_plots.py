"""Figures about studies: what stands where, and that simulated rows say so."""

import matplotlib as mpl
import pandas as pd
import pytest

from heart_utils.report.study_plots import plot_coverage, plot_gaps, plot_interval_kinds
from heart_utils.simulate.power import Design, plan_study

mpl.use("Agg")


@pytest.fixture(autouse=True)
def _close():
    yield
    mpl.pyplot.close("all")


def coverage(**columns):
    rows = {"interval": ["votes", "dialogues"] * 2, "design": ["u", "u", "v", "v"], "coverage": [0.6, 0.95, 0.94, 0.96]}
    return pd.DataFrame({**rows, "mc_error": 0.01, "promised": 0.9, "n_studies": 80, "simulated": True, **columns})


def boards(**columns):
    rows = {"drawn": ["votes", "votes", "dialogues", "dialogues"], "responder": ["x", "y"] * 2, "rating": [1520.0, 1480.0] * 2}
    ends = {"rating_low": [1510.0, 1470.0, 1500.0, 1460.0], "rating_high": [1530.0, 1490.0, 1540.0, 1500.0]}
    return pd.DataFrame({**rows, **ends, "ci_level": 0.95, "simulated": False, **columns})


def said(ax):
    return [text.get_text() for text in ax.texts]


def test_each_kind_of_interval_has_a_bar_for_each_responder():
    ax = plot_interval_kinds(boards(), by="drawn")
    ends = sorted((segment[0][0], segment[1][0]) for lines in ax.collections for segment in lines.get_segments())
    assert ends == [(1460, 1500), (1470, 1490), (1500, 1540), (1510, 1530)]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["y", "x"]  # the upper tick is the better


def test_coverage_is_drawn_in_percent_beside_its_promise():
    ax = plot_coverage(coverage(), by="design")
    points = sorted(x for line in ax.lines if line.get_marker() not in ("None", "", "|") for x in line.get_xdata())
    assert points == pytest.approx([60, 94, 95, 96])
    assert "promised: 90%" in ax.get_xlabel()
    assert "80 studies" in ax.get_xlabel()


def test_gaps_fall_with_dialogues_one_line_a_value():
    ax = plot_gaps(plan_study([Design(n, 5, 10, 3, raters) for raters in (25, 400) for n in (20, 80)]), by="n_raters")
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["25", "400"]
    assert all(line.get_ydata()[0] > line.get_ydata()[1] for line in ax.lines)
    assert said(ax) == ["calculated from the design, measured on nobody"]


def test_simulated_rows_are_marked_and_measured_ones_are_not():
    assert "SIMULATED" in said(plot_coverage(coverage(), by="design"))
    assert "SIMULATED" in said(plot_interval_kinds(boards(simulated=True), by="drawn"))
    assert said(plot_interval_kinds(boards(), by="drawn")) == []


@pytest.mark.parametrize(
    "draw",
    [
        lambda: plot_coverage(coverage(design="u"), by="design"),
        lambda: plot_interval_kinds(boards(drawn="u"), by="drawn"),
        lambda: plot_gaps(pd.DataFrame(columns=["n_raters"]), by="n_raters"),
    ],
)
def test_a_table_that_is_empty_or_holds_a_row_twice_is_refused(draw):
    with pytest.raises(ValueError, match="table has no"):
        draw()
