"""The gate that may be looked at after every dialogue."""

import numpy as np
import pandas as pd
import pytest

from heart_utils.gate import GateError, betting_bound, compare_anytime
from heart_utils.simulate.coverage import simulate_gate


def make_verdicts(drops):
    """One dialogue a drop in -1, -1/2, ... 1: both meet one opponent in both orders, and each other nowhere."""
    said = {1.0: ("a", "b"), 0.5: ("a", "tie"), 0.0: ("tie", "tie"), -0.5: ("tie", "a"), -1.0: ("b", "a")}
    rows = [
        (f"d{i:03}", name, "x", verdict)
        for i, drop in enumerate(drops)
        for name, verdict in zip(("old", "new"), said[drop], strict=True)
    ]
    table = pd.DataFrame(rows, columns=["dialogue_id", "responder_a", "responder_b", "verdict"])
    return table.assign(history_id=table["dialogue_id"], dimension="overall", rater="judge", state="valid")


def compare(verdicts, **options):
    return compare_anytime(verdicts, baseline="old", candidate="new", **options)


def test_the_capital_is_the_product_of_the_bets_won():
    values = np.array([0.5, -0.5, 1.0])
    capital, seen = 1.0, []
    for number, value in enumerate(values):  # by hand, against a mean of 0, as if 10 dialogues had been seen before
        mean, second = values[:number].sum() / (10 + number), (1.2 + (values[:number] ** 2).sum()) / (10 + number)
        capital *= 1 + np.clip(mean / second, 0, 0.95) * value
        seen.append(capital)
    p = betting_bound(values, alpha=0.05)[1]
    assert p == pytest.approx(np.minimum(1, 1 / np.maximum.accumulate(seen)), rel=1e-9)


def test_the_bound_never_falls_and_nears_the_mean(rng):
    values = rng.choice([-1.0, 0.0, 1.0], size=3000, p=[0.2, 0.3, 0.5])
    bound, _ = betting_bound(values, alpha=0.05)
    assert (np.diff(bound) >= 0).all()
    assert 0.2 < bound[-1] < 0.3


@pytest.mark.parametrize("mean", [-0.3, 0.0, 0.3])
def test_a_bound_looked_at_all_the_time_is_seldom_above_the_mean(rng, mean):
    share = (1 + mean) / 2
    above = [(betting_bound(2.0 * (rng.random(150) < share) - 1, alpha=0.1)[0] > mean).any() for _ in range(200)]
    assert np.mean(above) <= 0.1 + 2 * np.sqrt(0.09 / 200)


@pytest.mark.parametrize(("share", "outcome"), [(0.05, "cannot tell"), (0.3, "passed")])
def test_a_baseline_that_hardly_ever_wins_cannot_drop_and_so_nothing_passes(share, outcome):
    """400 dialogues, in which both win the same comparisons: 5 % of them leave no room for a drop of 10 points."""
    rows = [(f"d{i:03}", name, "x", "a" if i % 100 < 100 * share else "b") for i in range(400) for name in ("old", "new")]
    verdicts = pd.DataFrame(rows, columns=["dialogue_id", "responder_a", "responder_b", "verdict"])
    verdicts = verdicts.assign(history_id=verdicts["dialogue_id"], dimension="overall", rater="judge", state="valid")
    row = compare(verdicts).table.iloc[0]
    assert row["outcome"] == outcome
    assert ("wins so rarely" in row["message"]) == (outcome == "cannot tell")


def test_a_large_drop_stops_early_and_what_comes_later_changes_nothing():
    verdicts = make_verdicts([1.0, 0.5] * 30 + [-1.0] * 100)
    row = compare(verdicts).table.iloc[0]
    assert row["outcome"] == "failed"
    assert row["n_dialogues"] < 30
    first = verdicts[verdicts["dialogue_id"] < f"d{row['n_dialogues']:03}"]
    assert (
        compare(first).table.iloc[0][["outcome", "n_dialogues", "drop"]].tolist()
        == row[["outcome", "n_dialogues", "drop"]].tolist()
    )


def test_few_dialogues_are_never_a_pass():
    gate = compare(make_verdicts([0.0, 0.5, -0.5] * 3))
    assert gate.table["outcome"].tolist() == ["cannot tell"]
    assert "judge more, and look again" in gate.table["message"].iloc[0]
    assert not gate.passed


def test_an_equal_candidate_passes_once_the_margin_is_ruled_out():
    verdicts = make_verdicts([0.0, 0.5, -0.5] * 60)
    assert compare(verdicts).passed
    assert not compare(verdicts, margin=0.01).passed


def test_dialogues_count_in_the_order_in_which_the_candidate_was_judged():
    early = [1.0] * 25 + [-1.0] * 25
    assert compare(make_verdicts(early)).table["outcome"].tolist() == ["failed"]
    late = make_verdicts(early).sort_values("dialogue_id", ascending=False, kind="stable")
    assert compare(late).table["outcome"].tolist() != ["failed"]


def test_a_series_and_several_dimensions_share_the_error_rate():
    verdicts = make_verdicts([0.5, 0.0] * 40)
    both = pd.concat([verdicts, verdicts.assign(dimension="attunement")])
    levels = [compare(verdicts, n_releases=n).table["level"].iloc[0] for n in (1, 8)]
    assert levels == [0.05, 0.05 / 8]
    assert compare(both).table["level"].tolist() == [0.05 / 16] * 2
    assert compare(verdicts, n_releases=1).table["n_dialogues"].iloc[0] < compare(verdicts).table["n_dialogues"].iloc[0]


def test_where_the_two_met_the_win_share_counts_twice_over():
    verdicts = make_verdicts([0.0] * 4)
    met = verdicts[verdicts["responder_a"] == "old"].assign(responder_b="new", verdict="a")
    assert compare(pd.concat([verdicts, met])).path["drop"].tolist() == [0.5] * 4  # the mean of 0 and 2 x 1 - 1


def test_a_comparison_that_one_side_lacks_is_left_out():
    verdicts = make_verdicts([0.0, 1.0])
    verdicts.loc[verdicts["dialogue_id"].eq("d001") & verdicts["responder_a"].eq("new"), ["verdict", "state"]] = [None, "error"]
    gate = compare(verdicts)
    assert gate.path["drop"].tolist() == [0.0]
    assert gate.table["n_failed"].tolist() == [1]


@pytest.mark.parametrize(("options", "said"), [({"margin": 0}, "margin"), ({"n_releases": 0}, "n_releases=0")])
def test_settings_that_make_no_sense_are_refused(options, said):
    with pytest.raises(GateError, match=said):
        compare(make_verdicts([0.0] * 3), **options)


def test_eight_equal_releases_are_seldom_stopped_and_a_large_drop_is(rng):
    teams = simulate_gate(mode="anytime", n_studies=4, n_runs=8, n_dialogues=36, rng=rng)
    assert teams["outcome"].eq("failed").groupby(teams["study"]).any().sum() <= 1
    worse = simulate_gate(mode="anytime", drop=250.0, n_studies=10, n_dialogues=60, direct=True, rng=rng)
    assert worse["outcome"].eq("failed").mean() >= 0.9
    assert worse["n_dialogues"].mean() < 36
