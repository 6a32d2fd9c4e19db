import matplotlib.pyplot as plt
import pandas as pd
import pytest

from heart_utils.report.estimates import plot_agreement, plot_ceiling, plot_estimates


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


FOUND = pd.DataFrame({
    "judge": ["x", "x", "y", "y"], "measure": ["agreement", "author_only"] * 2, "share": [0.8, 0.7, 0.6, 0.65],
    "share_low": [0.7, 0.6, 0.5, 0.6], "share_high": [0.9, 0.8, 0.7, 0.7],
})  # fmt: skip


def test_each_label_has_one_row_and_each_kind_a_marker_of_its_own():
    ax = plot_estimates(FOUND, value="share", label="judge", by="measure")
    assert [text.get_text() for text in ax.get_yticklabels()] == ["x", "y"]
    assert [line.get_marker() for line in ax.lines] == ["o", "s"]
    assert [list(line.get_xdata()) for line in ax.lines] == [[0.8, 0.6], [0.7, 0.65]]
    assert ax.get_ylim()[0] > ax.get_ylim()[1]  # the first row stands on top


def test_intervals_are_drawn_where_there_are_any():
    assert len(plot_estimates(FOUND, value="share", label="judge", by="measure").collections) == 2
    assert not plot_estimates(FOUND.drop(columns="share_low"), value="share", label="judge", by="measure").collections


def test_a_simulated_figure_says_so_and_a_reference_is_named():
    ax = plot_estimates(FOUND, value="share", label="judge", by="measure", reference={"a coin": 0.5}, simulated=True)
    assert {text.get_text() for text in ax.texts} == {"a coin", "SIMULATED"}


def test_what_cannot_be_drawn_is_refused():
    with pytest.raises(ValueError, match="nothing to draw"):
        plot_estimates(FOUND[:0], value="share", label="judge")
    many = pd.DataFrame({"judge": "x", "measure": range(9), "share": 0.5})
    with pytest.raises(ValueError, match="9 kinds"):
        plot_estimates(many, value="share", label="judge", by="measure")


def test_points_lie_on_the_ceilings_figure_where_they_were_measured():
    ax = plot_ceiling([("one", 0.8, 0.85), ("other", 0.7, 0.7)])
    drawn = [(line.get_label(), float(line.get_xdata()[0]), float(line.get_ydata()[0])) for line in ax.lines[2:]]
    assert drawn == [("one", 0.8, 0.85), ("other", 0.7, 0.7)]


def test_agreement_stands_beside_what_the_names_alone_would_reach():
    shares = {"agreement": [0.8, 0.7], "author_only": [0.6, 0.75]}
    ends = {
        f"{name}{end}": [share + by for share in values]
        for name, values in shares.items()
        for end, by in (("_low", -0.1), ("_high", 0.1))
    }
    ax = plot_agreement(pd.DataFrame({"who": ["x", "y"], "ci_level": 0.95, **shares, **ends}), label="who")
    assert [list(line.get_xdata()) for line in ax.lines[:2]] == list(shares.values())
    assert "95% interval" in ax.get_xlabel()
