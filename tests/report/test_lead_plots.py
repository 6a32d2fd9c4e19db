"""Figures about what replies do: what is simulated says so, and what is absent has words."""

import matplotlib.pyplot as plt
import pandas as pd
import pytest

from heart_utils.report.lead_plots import plot_absent, plot_confusion, plot_correlation_ends, plot_shares, plot_trend

SHARES = pd.DataFrame(
    {"responder": ["x", "y"] * 2, "code": ["question"] * 2 + ["advice"] * 2, "share": [0.1, 0.2, 0.3, 0.4],
     "ci_low": 0.0, "ci_high": 0.5, "ci_level": 0.95}
)  # fmt: skip
MODELS = pd.DataFrame(
    {"responder": list("abc"), "ttft_ms": [90.0, 400, None], "rating": [1500.0, 1600, 1700], "on_frontier": True}
)


@pytest.fixture(autouse=True)
def close():
    yield
    plt.close("all")


@pytest.mark.parametrize("simulated", [True, False])
def test_a_simulated_figure_says_so(simulated):
    ax = plot_shares(SHARES.assign(simulated=simulated), by="responder")
    assert ("SIMULATED" in [text.get_text() for text in ax.texts]) == simulated


def test_rows_stand_in_the_order_asked_for_and_the_axis_names_the_interval():
    ax = plot_shares(SHARES, by="responder", order=["advice", "question"])
    heights = dict(zip([label.get_text() for label in ax.get_yticklabels()], ax.get_yticks(), strict=True))
    assert heights["advice"] > heights["question"]
    assert "95% interval, dialogues like these" in ax.get_xlabel()
    assert [text.get_text() for text in ax.get_figure().legends[0].get_texts()] == ["x", "y"]


def test_a_model_without_a_time_is_not_drawn():
    ax = plot_trend(MODELS, x="ttft_ms", x_label="t", y_label="r", frontier=True)
    assert [text.get_text() for text in ax.texts] == ["a", "b"]


def test_each_row_of_a_confusion_is_shares_of_itself():
    ax = plot_confusion(pd.DataFrame([[1, 3], [4, 0]], index=["q", "s"], columns=["q", "s"]))
    assert [text.get_text() for text in ax.texts] == ["25", "75", "100", "0"]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["q (4)", "s (4)"]


def test_what_is_absent_has_words_and_correlations_a_line_at_none():
    assert "make data" in plot_absent("Bring it: `make data NAME=esconv`.").texts[0].get_text()
    rows = pd.DataFrame({"name": ["x"], "rho": [0.5], "ci_low": [0.1], "ci_high": [0.8], "ci_level": 0.8})
    ax = plot_correlation_ends(rows)
    assert ax.get_xlabel().endswith("80% interval")
    assert ax.lines[0].get_xdata()[0] == 0
