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


def make_verdicts(drops):
    """One dialogue a drop in -1, -1/2, ...

    1, in the order in which they count: both meet one opponent, and not each other.
    """
    said = {
        1.0: ("a", "b"),
        0.5: ("a", "tie"),
        0.0: ("tie", "tie"),
        -0.5: ("tie", "a"),
        -1.0: ("b", "a"),
    }
    rows = [
        (dialogue, name, "x", verdict)
        for dialogue, drop in zip(
            order_dialogues(f"d{i:03}" for i in range(len(drops))), drops, strict=True
        )
        for name, verdict in zip(("old", "new"), said[drop], strict=True)
    ]
    table = pd.DataFrame(rows, columns=["dialogue_id", "responder_a", "responder_b", "verdict"])
    return table.assign(
        history_id=table["dialogue_id"],
        dimension="overall",
        rater="judge",
        state="valid",
        order="both",
    )


def compare(verdicts, **options):
    return compare_anytime(verdicts, baseline="old", candidate="new", **options)


def test_the_capital_is_the_product_of_the_bets_won():
    values = np.array([0.5, -0.5, 1.0])
    capital, seen = 1.0, []
    # by hand, against a mean of 0, as if 10 dialogues had been seen before
    for number, value in enumerate(values):
        mean, second = (
            values[:number].sum() / (10 + number),
            (1.2 + (values[:number] ** 2).sum()) / (10 + number),
        )
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
    above = [
        (betting_bound(2.0 * (rng.random(150) < share) - 1, alpha=0.1)[0] > mean).any()
        for _ in range(200)
    ]
    assert np.mean(above) <= 0.1 + 2 * np.sqrt(0.09 / 200)


@pytest.mark.parametrize(("share", "outcome"), [(0.05, "cannot tell"), (0.3, "passed")])
def test_a_baseline_that_hardly_ever_wins_cannot_drop_and_so_nothing_passes(share, outcome):
    """400 dialogues, in which both win the same comparisons: 5 % of them leave no room for a drop
    of 10 points."""
    rows = [
        (f"d{i:03}", name, "x", "a" if i % 100 < 100 * share else "b")
        for i in range(400)
        for name in ("old", "new")
    ]
    verdicts = pd.DataFrame(rows, columns=["dialogue_id", "responder_a", "responder_b", "verdict"])
    verdicts = verdicts.assign(
        history_id=verdicts["dialogue_id"],
        dimension="overall",
        rater="judge",
        state="valid",
        order="both",
    )
    row = compare(verdicts).table.iloc[0]
    assert row["outcome"] == outcome
    assert ("wins so rarely" in row["message"]) == (outcome == "cannot tell")


def test_a_large_drop_stops_early_and_what_comes_later_changes_nothing():
    verdicts = make_verdicts([1.0, 0.5] * 30 + [-1.0] * 100)
    row = compare(verdicts).table.iloc[0]
    assert row["outcome"] == "failed"
    assert row["n_dialogues"] < 30
    first = verdicts.head(2 * row["n_dialogues"])
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


def test_a_stop_must_be_one_in_both_orders():
    """Worst first is a stop in the table's order; in that of digests the same drops show
    nothing."""
    worst_first = make_verdicts([1.0] * 25 + [-1.0] * 25)  # in the order of digests, too
    assert compare(worst_first).table["outcome"].tolist() == ["failed"]
    for mixed in (worst_first.iloc[::-1], worst_first.sample(frac=1, random_state=1)):
        assert compare(mixed).table["outcome"].tolist() == ["cannot tell"]


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
    """In the order of the table all 20 were stopped, since the drops come first."""
    stopped = 0
    for _ in range(20):
        drops = rng.choice([-1.0, -0.5, 0.0, 0.5, 1.0], size=120)
        table = make_verdicts(np.sort(drops)[::-1])
        renamed = dict(
            zip(table["dialogue_id"].unique(), [f"x{i}" for i in range(120)], strict=True)
        )
        stopped += (
            compare(table.replace({"dialogue_id": renamed})).table["outcome"].iloc[0] == "failed"
        )
    assert stopped <= 2


def test_what_is_said_is_about_these_raters():
    verdicts = make_verdicts([0.5, 0.0] * 20)
    both = pd.concat([verdicts, verdicts.assign(rater="ann")])
    assert "dialogues, this rater; drop" in compare(verdicts).table["message"].iloc[0]
    found = compare(both).table
    assert "dialogues, these 2 raters; drop" in found["message"].iloc[0]
    assert found["n_raters"].tolist() == [2]
    assert (
        "dialogues, these raters; drop"
        in compare(verdicts.drop(columns="rater")).table["message"].iloc[0]
    )


def test_a_series_and_several_dimensions_share_the_error_rate():
    verdicts = make_verdicts([0.5, 0.0] * 40)
    both = pd.concat([verdicts, verdicts.assign(dimension="attunement")])
    levels = [compare(verdicts, n_releases=n).table["level"].iloc[0] for n in (1, 8)]
    assert levels == [0.05, 0.05 / 8]
    assert compare(both).table["level"].tolist() == [0.05 / 16] * 2
    assert (
        compare(verdicts, n_releases=1).table["n_dialogues"].iloc[0]
        < compare(verdicts).table["n_dialogues"].iloc[0]
    )


def test_where_the_two_met_the_win_share_counts_twice_over():
    verdicts = make_verdicts([0.0] * 4)
    met = verdicts[verdicts["responder_a"] == "old"].assign(responder_b="new", verdict="a")
    # the mean of 0 and 2 x 1 - 1
    assert compare(pd.concat([verdicts, met])).path["drop"].tolist() == [0.5] * 4


def test_a_comparison_that_one_side_lacks_is_left_out():
    verdicts = make_verdicts([0.0, 1.0])
    verdicts.loc[
        verdicts["dialogue_id"].eq("d001") & verdicts["responder_a"].eq("new"), ["verdict", "state"]
    ] = [None, "error"]
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


def test_what_is_said_is_what_was_found_when_it_stopped():
    worse, equal = (
        compare(make_verdicts([0.5, 1.0] * 40)),
        compare(make_verdicts([0.0, 0.5, -0.5] * 60)),
    )
    for gate, said in (
        (worse, "worse than the baseline, sure"),
        (equal, "not worse by 10 points, sure"),
    ):
        row = gate.table.iloc[0]
        n, drops = int(row["n_dialogues"]), gate.path["drop"].to_numpy()
        assert n < len(drops)
        assert row["drop"] == pytest.approx(100 * drops[n - 1])
        assert (
            f"{said} after {n} dialogues, this rater; drop {row['drop']:.1f} percentage points"
            in row["message"]
        )
        before, there = gate.path.iloc[n - 2], gate.path.iloc[n - 1]
        assert before["drop_low"] < 0
        assert before["drop_high"] >= 0.1
        assert there["drop_low"] >= 0 or there["drop_high"] < 0.1
        assert (row["drop_low"], row["drop_high"]) == (
            100 * there["drop_low"],
            100 * there["drop_high"],
        )
    assert f"{worse.table['drop_low'][0]:.1f} or more" in worse.table["message"][0]
    assert f"{equal.table['drop_high'][0]:.1f} or less" in equal.table["message"][0]


def test_dialogues_that_only_one_of_them_had_are_none_to_compare():
    verdicts = make_verdicts([0.0, 0.0])
    apart = verdicts[
        (verdicts["dialogue_id"] == "d000") == (verdicts["responder_a"] == "old")
    ].assign(history_id="h")
    row = compare(apart).table.iloc[0]
    assert (row["outcome"], row["n_dialogues"]) == ("cannot tell", 0)
    assert row["message"] == "overall: no dialogue was judged for both; a gate cannot rest on this."


def test_p_values_of_a_series_are_bonferronis():
    both = make_verdicts([0.5, 0.0, -0.5, 0.5] * 3)
    both = pd.concat([both, both.assign(dimension="attunement")])
    table = compare(both).table
    assert table["p_holm"].tolist() == pytest.approx([min(1, 2 * p) for p in table["p"]])
    assert (table["p"] < 1).all()
