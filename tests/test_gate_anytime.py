"""The gate that may be looked at after every dialogue."""

import numpy as np
import pandas as pd
import pytest

from heart_utils.gate import (
    GateError,
    betting_bound,
    compare_anytime,
    follow_both_orders,
    order_dialogues,
)
from heart_utils.simulate.coverage import simulate_gate

SAID = {1.0: "ab", 0.5: "at", 0.0: "tt", -0.5: "ta", -1.0: "ba"}


def as_verdicts(answers):
    """One dialogue an answer on the two sides (a, b, or t for a tie), in the order in which they
    count: both meet one opponent, and not each other."""
    dialogues = order_dialogues(f"d{i:03}" for i in range(len(answers)))
    rows = [
        (dialogue, name, "x", {"t": "tie"}.get(verdict, verdict))
        for dialogue, both in zip(dialogues, answers, strict=True)
        for name, verdict in zip(("old", "new"), both, strict=True)
    ]
    table = pd.DataFrame(rows, columns=["dialogue_id", "responder_a", "responder_b", "verdict"])
    fixed = {"dimension": "overall", "rater": "judge", "state": "valid", "order": "both"}
    return table.assign(history_id=table["dialogue_id"], **fixed)


def make_verdicts(drops):
    return as_verdicts([SAID[drop] for drop in drops])


def compare(verdicts, **options):
    return compare_anytime(verdicts, baseline="old", candidate="new", **options)


def test_the_bound_never_falls_and_nears_the_mean(rng):
    values = rng.choice([-1.0, 0.0, 1.0], size=3000, p=[0.2, 0.3, 0.5])
    bound, _ = betting_bound(values, alpha=0.05)
    assert (np.diff(bound) >= 0).all()
    assert 0.2 < bound[-1] < 0.3


@pytest.mark.parametrize("mean", [-0.3, 0.0, 0.3])
def test_a_bound_looked_at_all_the_time_is_seldom_above_the_mean(rng, mean):
    share = (1 + mean) / 2
    above = [
        (betting_bound(2.0 * (rng.random(150) < share) - 1, alpha=0.1)[0] > mean).any()
        for _ in range(120)
    ]
    assert np.mean(above) <= 0.1 + 2 * np.sqrt(0.09 / 120)


@pytest.mark.parametrize(("n_wins", "outcome"), [(1, "cannot tell"), (6, "passed")])
def test_a_baseline_that_hardly_ever_wins_cannot_drop_and_so_nothing_passes(n_wins, outcome):
    """Both win the same comparisons: 5 % of them leave no room for a drop of 10 points."""
    verdicts = as_verdicts((["aa"] * n_wins + ["bb"] * (20 - n_wins)) * 20)
    row = compare(verdicts).table.iloc[0]
    assert row["outcome"] == outcome
    assert ("wins so rarely" in row["message"]) == (outcome == "cannot tell")


def test_a_large_drop_stops_early_and_what_comes_later_changes_nothing():
    verdicts = make_verdicts([1.0, 0.5] * 30 + [-1.0] * 100)
    row = compare(verdicts).table.iloc[0]
    assert row["outcome"] == "failed"
    assert row["n_dialogues"] < 30
    first = compare(verdicts.head(2 * row["n_dialogues"])).table.iloc[0]
    columns = ["outcome", "n_dialogues", "drop", "drop_low", "p"]
    assert first[columns].tolist() == row[columns].tolist()


def test_few_dialogues_are_never_a_pass():
    gate = compare(make_verdicts([0.0, 0.5, -0.5] * 3))
    assert gate.outcome == "cannot tell"
    assert "judge more, and look again" in gate.table["message"].iloc[0]
    assert not gate.passed


def test_an_equal_candidate_passes_once_the_margin_is_ruled_out():
    verdicts = make_verdicts([0.0, 0.5, -0.5] * 60)
    assert [compare(verdicts, margin=at).passed for at in (0.1, 0.01)] == [True, False]


def test_a_stop_must_be_one_in_both_orders():
    """Worst first is a stop in the table's order; in that of digests the same drops show
    nothing."""
    worst_first = make_verdicts([1.0] * 25 + [-1.0] * 25)  # in the order of digests, too
    assert compare(worst_first).outcome == "failed"
    for mixed in (worst_first.iloc[::-1], worst_first.sample(frac=1, random_state=1)):
        assert compare(mixed).outcome == "cannot tell"


@pytest.mark.slow
def test_looks_between_which_dialogues_come_rarely_stop_an_equal_candidate(rng):
    """In the order of digests alone, in which new dialogues come between old ones, about one in six
    was stopped."""
    names = [f"d{number:03}" for number in range(150)]
    stopped = 0
    for _ in range(40):
        drops = pd.Series(rng.choice([-1.0, -0.5, 0.0, 0.5, 1.0], size=150), index=names)
        looks = (
            follow_both_orders(drops.iloc[:n], 0.05, 0.05, 0.0001)[2] for n in range(10, 151, 10)
        )
        stopped += "failed" in looks
    assert stopped <= 5  # 5 % of 40 are 2, and 5 leave two standard errors


def test_a_table_sorted_by_its_answers_does_not_stop_an_equal_candidate(rng):
    """In the order of the table all eight were stopped, since the drops come first."""
    new_ids = {f"d{i:03}": f"x{i}" for i in range(120)}
    stopped = 0
    for _ in range(8):
        table = make_verdicts(np.sort(rng.choice([*SAID], size=120))[::-1])
        stopped += compare(table.replace({"dialogue_id": new_ids})).outcome == "failed"
    assert stopped <= 1


def test_what_is_said_is_about_these_raters():
    verdicts = make_verdicts([0.5, 0.0] * 20)
    both = pd.concat([verdicts, verdicts.assign(rater="ann")])
    nobody = verdicts.drop(columns="rater")
    for rows, who in ((verdicts, "this rater"), (both, "these 2 raters"), (nobody, "these raters")):
        assert f"dialogues, {who}; drop" in compare(rows).table["message"].iloc[0]


def test_a_series_and_several_dimensions_share_the_error_rate():
    verdicts = make_verdicts([0.5, 0.0] * 40)
    both = pd.concat([verdicts, verdicts.assign(dimension="attunement")])
    one, eight = (compare(verdicts, n_releases=n).table.iloc[0] for n in (1, 8))
    assert (one["level"], eight["level"]) == (0.05, 0.05 / 8)
    assert one["n_dialogues"] < eight["n_dialogues"]
    table = compare(both).table
    assert table["level"].tolist() == [0.05 / 16] * 2
    assert table["p_holm"].tolist() == pytest.approx([min(1, 2 * p) for p in table["p"]])


def test_where_the_two_met_the_win_share_counts_twice_over():
    verdicts = make_verdicts([0.0] * 4)
    met = verdicts[verdicts["responder_a"] == "old"].assign(responder_b="new", verdict="a")
    # the mean of 0 and 2 x 1 - 1
    assert compare(pd.concat([verdicts, met])).path["drop"].tolist() == [0.5] * 4


def test_a_comparison_that_one_side_lacks_is_left_out():
    verdicts = make_verdicts([0.0, 1.0])
    lost = verdicts["dialogue_id"].eq("d001") & verdicts["responder_a"].eq("new")
    verdicts.loc[lost, ["verdict", "state"]] = [None, "error"]
    gate = compare(verdicts)
    assert gate.path["drop"].tolist() == [0.0]
    assert gate.table["n_failed"].tolist() == [1]


@pytest.mark.parametrize(
    ("options", "said"), [({"margin": 0}, "margin"), ({"n_releases": 0}, "n_releases=0")]
)
def test_settings_that_make_no_sense_are_refused(options, said):
    with pytest.raises(GateError, match=said):
        compare(make_verdicts([0.0] * 3), **options)


@pytest.mark.slow
def test_eight_equal_releases_are_seldom_stopped_and_a_large_drop_is(rng):
    teams = simulate_gate(rule=None, n_studies=4, n_runs=8, n_dialogues=36, rng=rng)
    assert teams["outcome"].eq("failed").groupby(teams["study"]).any().sum() <= 1
    worse = simulate_gate(rule=None, drop=250.0, n_studies=10, n_dialogues=60, direct=True, rng=rng)
    assert worse["outcome"].eq("failed").mean() >= 0.9
    assert worse["n_dialogues"].mean() < 36


def capital_against(values, mean_tested, guess):
    """What a gambler who bets that values are higher holds at best; ten dialogues are as if seen
    before."""
    capital, most = 1.0, 1.0
    for number, value in enumerate(values):
        mean = (10 * guess + values[:number].sum()) / (10 + number)
        second = (1.2 + (values[:number] ** 2).sum()) / (10 + number)
        bet = (mean - mean_tested) / (second - 2 * mean * mean_tested + mean_tested**2)
        capital *= 1 + np.clip(bet, 0, 0.95 / (1 + mean_tested)) * (value - mean_tested)
        most = max(most, capital)
    return most


@pytest.mark.parametrize("guess", [0.0, 0.3])
def test_the_bound_is_the_largest_mean_that_the_bets_rule_out(guess, rng):
    values = rng.choice([-0.5, 0.0, 1.0], size=60)
    bound, p = betting_bound(values, alpha=0.05, guess=guess)
    for n in (1, 20, 60):
        out = [
            at for at in np.arange(-199, 200) / 200 if capital_against(values[:n], at, guess) >= 20
        ]
        assert bound[n - 1] == pytest.approx(max(out, default=-1.0))
        assert p[n - 1] == pytest.approx(1 / capital_against(values[:n], 0.0, guess))


@pytest.mark.parametrize("drops", [[0.5, 0.0, 1.0] * 20, [0.0, 0.5, -0.5] * 60, [0.0, -1.0] * 5])
def test_which_reply_is_shown_first_changes_nothing(drops):
    verdicts = make_verdicts(drops)
    turned = verdicts.rename(columns={"responder_a": "responder_b", "responder_b": "responder_a"})
    turned["verdict"] = turned["verdict"].replace({"a": "b", "b": "a"})
    one, other = compare(verdicts), compare(turned)
    assert one.table["message"].tolist() == other.table["message"].tolist()
    assert one.path.equals(other.path)


@pytest.mark.parametrize(
    ("drops", "said"),
    [
        ([0.5, 1.0] * 40, "worse than the baseline, sure"),
        ([0.0, 0.5, -0.5] * 60, "not worse by 10 points, sure"),
    ],
)
def test_what_is_said_is_what_was_found_when_it_stopped(drops, said):
    gate = compare(make_verdicts(drops))
    row, ends = gate.table.iloc[0], ["drop", "drop_low", "drop_high"]
    n = int(row["n_dialogues"])
    assert n < len(gate.path)
    before, there = gate.path.iloc[n - 2], gate.path.iloc[n - 1]
    assert row[ends].tolist() == pytest.approx((100 * there[ends]).tolist())
    assert before["drop_low"] < 0
    assert before["drop_high"] >= 0.1
    assert there["drop_low"] >= 0 or there["drop_high"] < 0.1
    least = f"{row['drop_low']:.1f} or more"
    found = f"drop {row['drop']:.1f} percentage points of win share, "
    found += least if row["outcome"] == "failed" else f"{row['drop_high']:.1f} or less"
    assert row["message"] == f"overall: {said} after {n} dialogues, this rater; {found}"


def test_dialogues_that_only_one_of_them_had_are_none_to_compare():
    verdicts = make_verdicts([0.0, 0.0]).assign(history_id="h")
    of_old = verdicts["responder_a"].eq("old")
    row = compare(verdicts[verdicts["dialogue_id"].eq("d000") == of_old]).table.iloc[0]
    assert (row["outcome"], row["n_dialogues"]) == ("cannot tell", 0)
    assert row["message"] == "overall: no dialogue was judged for both; a gate cannot rest on this."
