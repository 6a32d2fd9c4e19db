"""Tables as a reader sees them: intervals in one column, percent, p values, words for true and
false."""

import pandas as pd
import pytest

from heart_utils.report.tables import show_table


def shown(**columns):
    options = {name: columns.pop(name) for name in ("percent", "digits") if name in columns}
    return show_table(pd.DataFrame(columns), **options).data


def test_two_ends_become_one_column_that_says_its_level():
    table = shown(
        win_share=[0.5817],
        ci_low=[0.561],
        ci_high=[0.603],
        ci_level=[0.9],
        percent=["win_share", "ci"],
    )
    assert table.to_dict("list") == {"win share": ["58 %"], "90 % interval": ["56 to 60 %"]}


def test_of_several_intervals_each_says_whose_it_is_and_ranks_are_whole():
    table = shown(
        gap_low=[0.1],
        gap_high=[0.2],
        odds_low=[1.0],
        odds_high=[3.0],
        rank_low=[1],
        rank_high=[2],
        digits=1,
    )
    assert table.to_dict("list") == {
        "interval of gap": ["0.1 to 0.2"],
        "interval of odds": ["1.0 to 3.0"],
        "rank": ["1 to 2"],
    }
    assert list(shown(ci_low=[0.1], ci_high=[0.2], gap_low=[0.1], gap_high=[0.2])) == [
        "interval",
        "interval of gap",
    ]
    assert list(shown(gap_low=[0.1], gap_high=[0.2], rank_low=[1], rank_high=[2])) == [
        "interval",
        "rank",
    ]


@pytest.mark.parametrize(
    ("low", "high", "written"),
    [
        (0.1, 0.2, "0.1 to 0.2"),
        (0.11, 0.14, "0.11 to 0.14"),  # with one decimal it would have no width
        (0.1, 0.1, "0.1"),
        (0.1, float("inf"), "0.1 to no limit"),
        (None, None, None),
    ],
)
def test_an_interval_keeps_its_width_when_it_is_rounded(low, high, written):
    # the second row has an interval, since a column that is empty throughout is not shown
    written_second = shown(ci_low=[low, 0.3], ci_high=[high, 0.4], digits=1)["interval"].tolist()
    assert written_second == [written, "0.3 to 0.4"]


def test_ratings_are_whole_and_small_p_values_are_not_zero():
    table = shown(rating=[1523.6, 1476.4], p_value=[0.0004, 0.25])
    assert table.iloc[:, 0].tolist() == ["1,524", "1,476"]
    assert table.iloc[:, 1].tolist() == ["< 0.001", "0.250"]


def test_what_is_true_or_false_is_yes_or_no_and_says_nothing_if_it_is_so_of_all_rows():
    assert shown(name=["x", "y"], provisional=[True, False], simulated=[True, True]).to_dict(
        "list"
    ) == {
        "name": ["x", "y"],
        "provisional": ["yes", "no"],
    }
    assert shown(name=["x"], provisional=[True]).iloc[0].tolist() == ["x", "yes"]


def test_only_a_sentence_goes_on_in_the_next_line_unless_all_cells_may():
    table = pd.DataFrame(
        {"name": ["short"], "why": ["a sentence that has more than some thirty-six characters"]}
    )
    assert show_table(table).to_html().count("white-space: normal") == 1
    assert "row0_col0" in show_table(table, wrap=True).to_html().partition("white-space: normal")[0]
