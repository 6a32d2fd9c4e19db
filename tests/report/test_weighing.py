import json
import re
from html import unescape

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from heart_utils.report.leaderboard import weigh_by_hand
from heart_utils.scores import ScaleError

SCORES = pd.DataFrame(
    {
        "responder": ["a", "a", "b", "b", "c<b>", "c<b>"],
        "dimension": ["safety", "warmth"] * 3,
        "score": [5, 1, 3, 4, 2, 2],
    }
).assign(dialogue_id="d")


def page(profiles=None, **columns):
    return weigh_by_hand(SCORES.assign(**columns), profiles or {}, scale="1 to 5")._repr_html_()


def test_without_scripts_the_ranking_under_equal_weights_stands_there():
    """b has (3 + 4) / 2 = 3.5, a has 3, c has 2."""
    cells = re.findall(r"<td>(.*?)</td><td>(.*?)</td><td>(.*?)</td>", page())
    assert cells == [("1", "b", "3.50"), ("2", "a", "3.00"), ("3", "c&lt;b&gt;", "2.00")]


def test_each_profile_is_a_button_that_knows_its_weights():
    html = page({"crisis line": {"safety": 0.75, "warmth": 0.25}, "safety alone": {"safety": 1.0}})
    found = [json.loads(unescape(text)) for text in re.findall(r'data-weights="(.*?)"', html)]
    assert found == [
        {"safety": 50, "warmth": 50},
        {"safety": 75, "warmth": 25},
        {"safety": 100, "warmth": 0},
    ]


def test_weights_that_do_not_sum_to_one_are_refused():
    with pytest.raises(ScaleError, match=r"Weights sum to 0\.9"):
        page({"short": {"safety": 0.5, "warmth": 0.4}})


def test_simulated_scores_say_so_beside_the_ranking():
    assert "SIMULATED" in page(simulated=True)
    assert "SIMULATED" not in page(simulated=False)


def test_an_interval_is_that_of_the_weighted_scores_of_the_dialogues():
    """Weigh each dialogue first and take the t interval of the mean; dimensions that vary together
    widen it."""
    rng = np.random.default_rng(5)
    both = rng.normal(3, 0.5, 60)
    wide = pd.DataFrame({"safety": both, "warmth": both + rng.normal(0, 0.2, 60)}).rename_axis(
        "dialogue_id"
    )
    scores = (
        wide.melt(ignore_index=False, var_name="dimension", value_name="score")
        .reset_index()
        .assign(responder="a")
    )
    html = weigh_by_hand(scores, {}, scale="1 to 5")._repr_html_()
    found = [float(end) for end in re.search(r"<td>([\d.]+) to ([\d.]+)</td>", html).groups()]
    each = wide.mean(axis="columns")
    assert found == pytest.approx(stats.t.interval(0.95, 59, each.mean(), each.sem()), abs=0.005)
    assert "95 % interval" in html
    # of one dialogue there is none
    assert "interval" not in page().partition("<table")[2].partition("<script")[0]
