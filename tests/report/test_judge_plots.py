import matplotlib.pyplot as plt
import pandas as pd
import pytest

from heart_utils.report.judge_plots import plot_powered, plot_recovered

TABLE = pd.DataFrame({
    "responder": ["x", "y"], "strength": [0.5, -0.5], "ci_low": [0.3, -0.7], "ci_high": [0.7, -0.3], "ci_level": 0.95,
    "people_strength": [0.4, -0.4], "people_low": [0.1, -0.7], "people_high": [0.7, -0.1], "judge_strength": [2.0, -2.0],
})  # fmt: skip


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


def test_the_judge_alone_has_no_interval_and_a_simulated_figure_says_so():
    ax = plot_powered(TABLE, simulated=True)
    assert [list(line.get_xdata()) for line in ax.lines] == [[0.4, -0.4], [0.5, -0.5], [2.0, -2.0]]
    people, powered, *rest = ([bar[:, 0].tolist() for bar in bars.get_segments() if bar.size > 2] for bars in ax.collections)
    assert people == [[0.1, 0.7], [-0.7, -0.1]]
    assert powered == [[0.3, 0.7], [-0.7, -0.3]]
    assert not any(rest)
    assert "SIMULATED" in [text.get_text() for text in ax.texts]
    assert "95% interval" in ax.get_xlabel()


def test_what_was_planted_stands_beside_what_was_found_and_is_simulated():
    found = pd.DataFrame({"measure": ["ties", "place"], "planted": [0.2, 0.3], "found": [0.22, 0.28],
                          "ci_low": [0.18, 0.2], "ci_high": [0.26, 0.36], "ci_level": 0.8})  # fmt: skip
    ax = plot_recovered(found)
    assert "80% intervals" in ax.get_xlabel()
    assert [list(line.get_xdata()) for line in ax.lines] == [[0.22, 0.28], [0.2, 0.3]]
    assert "SIMULATED" in [text.get_text() for text in ax.texts]
