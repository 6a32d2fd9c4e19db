import itertools

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from heart_utils.report.figures import plot_intervals, plot_trend


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


FOUND = pd.DataFrame({
    "judge": ["x", "x", "y", "y"], "measure": ["agreement", "author_only"] * 2, "share": [0.8, 0.7, 0.6, 0.65],
    "share_low": [0.7, 0.6, 0.5, 0.6], "share_high": [0.9, 0.8, 0.7, 0.7],
})  # fmt: skip


def test_each_label_has_one_row_and_each_kind_a_marker_of_its_own():
    ax = plot_intervals(FOUND, value="share", label="judge", by="measure")
    assert [text.get_text() for text in ax.get_yticklabels()] == ["x", "y"]
    assert [line.get_marker() for line in ax.lines] == ["o", "s"]
    assert [list(line.get_xdata()) for line in ax.lines] == [[0.8, 0.6], [0.7, 0.65]]
    assert ax.get_ylim()[0] > ax.get_ylim()[1]  # the first row stands on top


def test_intervals_are_drawn_where_there_are_any():
    assert len(plot_intervals(FOUND, value="share", label="judge", by="measure").collections) == 2
    assert not plot_intervals(
        FOUND.drop(columns="share_low"), value="share", label="judge", by="measure"
    ).collections


def test_a_simulated_figure_says_so_and_a_reference_is_named():
    ax = plot_intervals(
        FOUND, value="share", label="judge", by="measure", reference={"a coin": 0.5}, simulated=True
    )
    assert {text.get_text() for text in ax.texts} == {"a coin", "SIMULATED"}


def test_what_cannot_be_drawn_is_refused():
    with pytest.raises(ValueError, match="nothing to draw"):
        plot_intervals(FOUND[:0], value="share", label="judge")
    many = pd.DataFrame({"judge": "x", "measure": range(9), "share": 0.5})
    with pytest.raises(ValueError, match="9 kinds"):
        plot_intervals(many, value="share", label="judge", by="measure")


def test_the_ends_may_have_the_name_of_the_value_or_of_an_interval():
    ends = {"ci_low": [0.4, 0.5], "ci_high": [0.9, 0.8]}
    ax = plot_intervals(
        pd.DataFrame({"judge": ["x", "y"], "share": [0.6, 0.7], **ends}),
        value="share",
        label="judge",
    )
    assert [path[:, 0].tolist() for path in ax.collections[0].get_segments()] == [
        [0.4, 0.9],
        [0.5, 0.8],
    ]
    ax = plot_intervals(FOUND[::2].assign(ci_low=0.0, ci_high=1.0), value="share", label="judge")
    assert [path[:, 0].tolist() for path in ax.collections[0].get_segments()] == [
        [0.7, 0.9],
        [0.5, 0.7],
    ]


def test_kinds_that_never_share_a_row_stand_in_the_middle_of_theirs():
    ax = plot_intervals(FOUND[::3], value="share", label="judge", by="measure")
    assert [list(line.get_ydata()) for line in ax.lines] == [[0.0], [1.0]]


def test_an_infinite_end_is_an_arrow_beyond_all_that_is_drawn():
    """The finite values span 0.5 to 0.9, so the bar ends a tenth of that beyond 0.9."""
    ax = plot_intervals(FOUND[::2].assign(share_high=[np.inf, 0.9]), value="share", label="judge")
    assert ax.collections[0].get_segments()[0][:, 0] == pytest.approx([0.7, 0.94])
    assert [list(line.get_xdata()) for line in ax.lines if line.get_marker() == ">"] == [
        [pytest.approx(0.94)]
    ]


def test_rows_that_were_simulated_are_marked_unasked():
    ax = plot_intervals(
        FOUND.assign(simulated=[False, True, False, False]),
        value="share",
        label="judge",
        by="measure",
    )
    assert "SIMULATED" in [text.get_text() for text in ax.texts]


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
