import pandas as pd
import pytest

from heart_utils.agreement.agreement import set_beside


def test_a_figure_follows_within_half_of_its_last_digit():
    printed = pd.DataFrame({"name": list("wxyz"), "published": [0.66, 0.66, 0.66, 0.66]})
    found = pd.DataFrame({"name": list("wxy"), "ours": [0.665, 0.6549, 0.66]})
    beside = set_beside(printed, found, on=["name"])
    assert beside["name"].tolist() == list("wxyz")
    assert beside["follows"].tolist() == [True, False, True, False]  # z was not found
    assert beside["away"].tolist()[:3] == pytest.approx([0.005, 0.0051, 0.0])
    assert set_beside(printed, found, on=["name"], digits=1)["follows"].tolist() == [True, True, True, False]


def test_a_figure_found_twice_is_refused():
    printed = pd.DataFrame({"name": ["x"], "published": [0.5]})
    with pytest.raises(ValueError, match="not a many-to-one"):
        set_beside(printed, pd.DataFrame({"name": ["x", "x"], "ours": [0.5, 0.6]}), on=["name"])
