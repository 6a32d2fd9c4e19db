"""The gate's statistic: known drops recovered, Holm by hand, sides that are not alike refused,
error rates held."""

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from statsmodels.stats.multitest import multipletests

from heart_utils.gate import (
    GateError,
    GateRule,
    compare_responders,
    decide_drops,
    describe_change,
    holm_levels,
)
from heart_utils.report.commands import report_text
from heart_utils.simulate.coverage import PATIENT_RULE, simulate_gate


def make_verdicts(rng, theta, n_dialogues=60, dimensions=("overall",)):
    """Each pair in each dialogue once, on each dimension."""
    names = list(theta)
    rows = []
    for d in range(n_dialogues):
        for i, one in enumerate(names):
            for other in names[i + 1 :]:
                for dimension in dimensions:
                    wins = rng.random() < 1 / (1 + np.exp(theta[other] - theta[one]))
                    rows.append((f"d{d}", one, other, dimension, "a" if wins else "b"))
    table = pd.DataFrame(
        rows, columns=["dialogue_id", "responder_a", "responder_b", "dimension", "verdict"]
    )
    return table.assign(
        history_id=table["dialogue_id"],
        rater="judge",
        protocol="heart",
        state="valid",
        order="both",
    )


FIELD = {"old": 0.0, "new": 0.0, "x": 0.5, "y": -0.5}


def compare(verdicts, rng, **options):
    """However small a drop would be found; the gate asks for 50 points unless it is told
    otherwise."""
    rule = GateRule(**{"max_detectable": np.inf, **options})
    return compare_responders(verdicts, baseline="old", candidate="new", rng=rng, rule=rule)


def test_too_few_dialogues_pass_nothing_unless_the_caller_says_so(rng):
    """Half as much to be found takes four times the dialogues."""
    verdicts = make_verdicts(rng, FIELD, n_dialogues=30)
    sizes, needed = (50, 25, np.inf), []
    found = [compare(verdicts, np.random.default_rng(1), max_detectable=at) for at in sizes]
    assert [gate.passed for gate in found] == [False, False, True]
    for gate in found[:2]:
        said = re.search(r"be, which takes about (\d+) dialogues", gate.table["message"][0])
        needed.append(int(said[1]))
    assert needed[0] == pytest.approx(30 * (found[0].table["detectable"][0] / 50) ** 2, abs=1)
    assert needed[1] == pytest.approx(4 * needed[0], abs=4)


def test_a_large_drop_is_found_and_measured(rng):
    verdicts = make_verdicts(rng, {**FIELD, "new": -1.0}, n_dialogues=300)
    found = compare(verdicts, rng)
    row = found.table.iloc[0]
    assert not found.passed
    assert row["drop"] == pytest.approx(400 / np.log(10), abs=3 * row["se"])  # 1.0 in log-odds
    assert row["drop_low"] > 0
    assert "worse than the baseline" in row["message"]


def test_swapping_the_sides_turns_the_sign(rng):
    verdicts = make_verdicts(rng, {**FIELD, "new": -0.5})
    one = compare(verdicts, np.random.default_rng(1)).table.iloc[0]
    sides = {"baseline": "new", "candidate": "old"}
    turned = compare_responders(verdicts, rng=np.random.default_rng(1), **sides).table.iloc[0]
    expected = [-one["drop"], one["se"], -one["drop_high"]]
    assert turned[["drop", "se", "drop_low"]].tolist() == pytest.approx(expected)


def test_equal_sides_are_no_regression_but_few_dialogues_are_no_proof(rng):
    verdicts = make_verdicts(rng, FIELD, n_dialogues=30)
    assert compare(verdicts, rng).passed
    proof = compare(verdicts, rng, mode="non-inferiority")
    assert not proof.passed
    assert "may be worse by 25 points or more" in proof.table["message"][0]
    assert compare(verdicts, rng, mode="non-inferiority", max_drop=300).passed


@pytest.mark.parametrize(("mode", "limit"), [("regression", 0.0), ("non-inferiority", 25.0)])
def test_the_bounds_say_what_the_p_value_says(mode, limit, rng):
    """Of one to five dimensions, whose drops lie about where they decide."""
    for n_dimensions in (1, 2, 5) * 3:
        rows = pd.DataFrame({"drop": rng.normal(limit, 30, n_dimensions), "se": 15.0})
        counts = dict.fromkeys(("n_raters", "n_verdicts", "n_failed", "n_unknown_order"), 1)
        turned = dict.fromkeys(("n_both_orders", "n_inconsistent"), 0)
        rows = rows.assign(dimension="u", n_dialogues=60, fault="", **counts, **turned)
        table = decide_drops(rows, GateRule(mode=mode, max_detectable=np.inf))
        if mode == "regression":
            assert ((table["p_holm"] <= 0.05) == (table["drop_low"] > 0)).all()
            assert ((table["outcome"] == "failed") == (table["drop_low"] > 0)).all()
        else:
            assert ((table["p"] <= 0.05) == (table["drop_high"] < 25)).all()
            assert ((table["outcome"] == "passed") == (table["drop_high"] < 25)).all()


@pytest.mark.parametrize(
    "p", [[0.04], [0.01, 0.04, 0.03], [0.2, 0.02, 0.02, 0.9], [0.016, 0.017, 0.04, 0.0], [0.05] * 3]
)
def test_each_hypothesis_is_met_at_the_level_that_says_what_holm_says(p):
    assert (pd.Series(p) <= holm_levels(pd.Series(p), 0.05)).tolist() == multipletests(
        p, 0.05, method="holm"
    )[0].tolist()


def test_a_judge_that_tells_nobody_apart_passes_nothing(rng):
    verdicts = make_verdicts(rng, FIELD).assign(verdict=None, state="inconsistent")
    found = compare(verdicts, rng)
    assert found.table["outcome"].tolist() == ["cannot tell"]
    assert not found.passed
    assert "no verdict told anyone apart" in found.table["message"][0]


@pytest.mark.parametrize(
    ("mode", "max_detectable"),
    [("regression", 50), ("regression", np.inf), ("non-inferiority", np.inf)],
)
def test_sides_that_lose_alike_in_every_dialogue_do_not_pass(rng, mode, max_detectable):
    """Against opponents that always win nobody can get worse; the spread is 0, and so was the drop
    said to be found."""
    verdicts = make_verdicts(rng, FIELD).query(
        "responder_b in ('x', 'y') and responder_a in ('old', 'new')"
    )
    verdicts = verdicts.assign(verdict="b")
    found = compare(verdicts, rng, mode=mode, max_detectable=max_detectable)
    assert found.table["outcome"].tolist() == ["cannot tell"]
    assert "won and lost alike in every dialogue" in found.table["message"][0]
    assert "four times in five" not in found.table["message"][0]


def test_a_judge_that_mostly_follows_the_order_shown_is_named(rng):
    verdicts = make_verdicts(rng, FIELD, n_dialogues=40)
    turned = np.arange(len(verdicts)) % 3 > 0
    verdicts.loc[turned, ["state", "verdict"]] = ["inconsistent", None]
    row = compare(verdicts, rng).table.iloc[0]
    # two in three of 40 dialogues with 6 pairs each
    assert (row["n_inconsistent"], row["outcome"]) == (160, "cannot tell")
    # five of the six pairs of a dialogue are with one of the sides
    assert re.search(r"In \d+ of 200 pairs .*the verdict turned with the order", row["message"])


def turn(verdicts, n):
    """Let the first `n` verdicts contradict themselves."""
    return verdicts.assign(
        state=np.where(np.arange(len(verdicts)) < n, "inconsistent", "valid"),
        verdict=verdicts["verdict"].mask(np.arange(len(verdicts)) < n),
    )


@pytest.mark.parametrize("mode", ["regression", "non-inferiority"])
def test_nothing_passes_before_a_judge_that_mostly_follows_the_order(rng, mode):
    """42 % may be half with an error of 5 %: 40 dialogues show it of 38 %, not of 46 %."""
    # 240 pairs, 200 of them with one of the sides
    verdicts = make_verdicts(rng, {**FIELD, "new": 0.3}, n_dialogues=40)
    verdicts = verdicts.sample(frac=1, random_state=1)
    limits = {(91, 0.5): "passed", (110, 0.5): "cannot tell", (121, 0.5): "cannot tell"}
    limits |= {(121, 0.7): "passed", (220, 1.0): "passed", (240, 1.0): "cannot tell"}
    for (n_turned, limit), outcome in limits.items():
        options = {"mode": mode, "max_drop": 300, "max_inconsistent": limit, "n_resamples": 50}
        assert compare(turn(verdicts, n_turned), rng, **options).outcome == outcome


def test_pairs_shown_in_one_order_cannot_turn_and_an_unknown_order_is_none(rng):
    verdicts = turn(make_verdicts(rng, {**FIELD, "new": 0.3}, n_dialogues=40), 60)
    verdicts.loc[verdicts.index >= 110, "order"] = "ab"  # 60 of 110 pairs in both orders turned
    verdicts.loc[verdicts.index >= 200, "order"] = None
    row = compare(verdicts, rng).table.iloc[0]
    assert (row["n_both_orders"], row["n_inconsistent"], row["outcome"]) == (110, 60, "cannot tell")
    assert row["n_unknown_order"] == 40
    for rows in (
        make_verdicts(rng, FIELD).assign(order=None),
        make_verdicts(rng, FIELD).drop(columns="order"),
    ):
        row = compare(rows, rng).table.iloc[0]
        assert (row["n_both_orders"], row["n_unknown_order"], row["outcome"]) == (
            0,
            360,
            "cannot tell",
        )
        assert "The order shown is not known for 300 of 300 verdicts of judge" in row["message"]


def test_a_drop_found_in_spite_of_such_a_judge_still_fails(rng):
    verdicts = make_verdicts(rng, {**FIELD, "new": -4.0}, n_dialogues=60)
    found = compare(turn(verdicts.sample(frac=1, random_state=1), 190), rng)
    assert found.outcome == "failed"
    assert "In 190 of 360 pairs the verdict turned" in found.table["message"][0]


@pytest.mark.parametrize("mode", ["regression", "non-inferiority"])
def test_the_same_verdicts_twice_are_no_drop_whatever_the_rounding(rng, mode):
    verdicts = make_verdicts(rng, {name: FIELD[name] for name in ("old", "x", "y")})
    again = verdicts[verdicts[["responder_a", "responder_b"]].eq("old").any(axis=1)].replace(
        "old", "new"
    )
    found = compare(pd.concat([verdicts, again], ignore_index=True), rng, mode=mode)
    row = found.table.iloc[0]
    assert row["outcome"] == "cannot tell"  # nobody was judged anew
    assert row["drop"] == 0
    assert row[["se", "drop_low", "drop_high", "p"]].isna().all()
    assert "nan" not in row["message"]


def test_failed_answers_are_counted_and_enter_nothing(rng):
    verdicts = make_verdicts(rng, FIELD)
    lost = verdicts["dialogue_id"].eq("d0")
    verdicts.loc[lost, "state"] = "refused"
    verdicts["verdict"] = verdicts["verdict"].mask(lost)
    row = compare(verdicts, rng).table.iloc[0]
    assert (row["n_failed"], row["n_dialogues"]) == (6, 59)


def with_new(verdicts):
    return verdicts[["responder_a", "responder_b"]].eq("new").any(axis=1)


def without(n):
    return lambda rows: rows[
        ~(with_new(rows) & rows["dialogue_id"].isin([f"d{k}" for k in range(n)]))
    ]


UNLIKE = {
    r"do not share all histories: 57 in common, 3 for 'old' alone \(d0, d1, d2\)": without(3),
    r"56 in common, 4 for 'old' alone \(d0, d1, d2, \.\.\.\)": without(4),
    r"do not share all raters: 0 in common, 1 for 'old' alone \(judge\); 1 for 'new' alone": (
        lambda rows: rows.assign(rater=np.where(with_new(rows), "other judge", "judge"))
    ),
    r"do not share all protocols": (
        lambda rows: rows.assign(protocol=np.where(with_new(rows), "heart-release", "heart"))
    ),
    r"share no opponent": (
        lambda rows: rows[(rows["responder_a"] + rows["responder_b"]).isin(["oldx", "newy"])]
    ),
}


@pytest.mark.parametrize("message", UNLIKE)
def test_sides_that_were_not_judged_alike_are_refused(message, rng):
    verdicts = UNLIKE[message](make_verdicts(rng, FIELD))
    verdicts = verdicts[~(verdicts["responder_a"].eq("old") & verdicts["responder_b"].eq("new"))]
    with pytest.raises(GateError, match=message):
        compare(verdicts, rng)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "both"}, "regression, non-inferiority"),
        ({"alpha": 0.6}, "alpha=0.6"),
        ({"max_drop": 0}, "max_drop=0"),
        ({"max_inconsistent": 50}, "max_inconsistent=50: expected a share"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused(options, message):
    with pytest.raises(GateError, match=message):
        GateRule(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dimensions": ["warmth"]}, "on warmth; there are overall"),
        ({"candidate": "nobody"}, "candidate 'nobody' .* Responders there: new, old, x, y"),
        ({"candidate": "old"}, "both 'old'"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(options, message, rng):
    verdicts = make_verdicts(rng, FIELD, n_dialogues=5)
    with pytest.raises(GateError, match=message):
        compare_responders(verdicts, rng=rng, **({"baseline": "old", "candidate": "new"} | options))


@pytest.fixture(
    scope="module", params=["regenerated", pytest.param("re-asked", marks=pytest.mark.slow)]
)
def null_runs(request):
    rng = np.random.default_rng(20260109)
    return simulate_gate(
        null=request.param,
        n_studies=24,
        n_dialogues=30,
        rule=replace(PATIENT_RULE, n_resamples=100),
        rng=rng,
    )


def test_a_candidate_that_equals_its_baseline_seldom_fails(null_runs):
    """24 simulated nulls at 5 %: 1.2 alarms expected, more than 4 once in 170 tries.

    The bench runs 1,000.
    """
    assert (~null_runs["passed"]).sum() <= 4
    assert null_runs["simulated"].all()


def test_the_standard_error_is_the_spread_of_the_drop(null_runs):
    assert null_runs["se"].mean() == pytest.approx(null_runs["drop"].std(), rel=0.25)


@pytest.mark.slow
def test_a_simulated_drop_is_the_drop_of_the_fit(rng):
    """Replies that turn out well or badly shrink the fitted gap; the simulation makes up for it."""
    runs = simulate_gate(
        drop=100, n_studies=30, n_dialogues=150, rule=replace(PATIENT_RULE, n_resamples=50), rng=rng
    )
    assert runs["drop"].mean() == pytest.approx(100, abs=4 * runs["drop"].std() / np.sqrt(30))


def test_an_unknown_null_names_those_there_are(rng):
    with pytest.raises(GateError, match="regenerated, re-asked"):
        simulate_gate(null="none", rng=rng)


def test_a_simulated_study_has_the_size_asked_for(rng, monkeypatch):
    judged = []
    rule = replace(PATIENT_RULE, n_resamples=20)

    def compare_and_keep(rows, **options):
        judged.append(rows)
        return compare_responders(rows, **options)

    monkeypatch.setattr("heart_utils.simulate.coverage.compare_responders", compare_and_keep)
    simulate_gate(n_studies=1, n_dialogues=10, n_dimensions=2, rule=rule, rng=rng)
    [rows] = judged
    names = {"baseline", "candidate", *(f"opponent {k}" for k in range(1, 4))}
    assert (rows["dialogue_id"].nunique(), rows["dimension"].nunique()) == (10, 2)
    assert {*rows["responder_a"], *rows["responder_b"]} == names


@pytest.mark.parametrize("n_dialogues", [8, 60])
def test_the_drop_said_to_be_found_is_found_four_times_in_five(n_dialogues, rng):
    """By the noncentral t distribution."""
    verdicts = make_verdicts(rng, FIELD, n_dialogues=n_dialogues)
    row = compare(verdicts, rng).table.iloc[0]
    df, shift = n_dialogues - 1, row["detectable"] / row["se"]
    assert stats.nct.sf(stats.t.isf(0.05, df), df, shift) == pytest.approx(0.8, abs=0.02)
    assert row["drop"] - row["drop_low"] == pytest.approx(stats.t.isf(0.05, df) * row["se"])
    assert row["p"] == pytest.approx(stats.t.sf(row["drop"] / row["se"], df), abs=1e-6)


def test_what_is_said_of_each_outcome_holds_its_numbers(rng):
    equal, worse = make_verdicts(rng, FIELD), make_verdicts(rng, {**FIELD, "new": -2.0})
    patient = {"mode": "non-inferiority", "max_drop": 300, "alpha": 0.1}
    cases = [
        (equal, {}, "not shown to be worse; rise {rise:.1f} points, with 95% confidence at most a rise"
         " of {most_rise:.1f} (60 dialogues, this rater); a drop of {detectable:.0f} would be found four"
         " times in five"),
        (worse, {}, "worse than the baseline; drop {drop:.1f} points, with 95% confidence {drop_low:.1f}"
         " or more (60 dialogues, this rater)"),
        (equal, patient, "not worse by 300 points or more; rise {rise:.1f}, with 90% confidence at most"
         " a drop of {drop_high:.1f} (60 dialogues, this rater); an equal candidate passes a margin of"
         " {detectable:.0f} four times in five"),
        (worse, patient | {"max_drop": 25}, "may be worse by 25 points or more; drop {drop:.1f}, with 90%"
         " confidence {drop_high:.1f} or less (60 dialogues, this rater); an equal candidate passes a"
         " margin of {detectable:.0f} four times in five"),
    ]  # fmt: skip
    for verdicts, options, sentence in cases:
        row = compare(verdicts, rng, **options).table.iloc[0]
        numbers = {**row, "rise": -row["drop"], "most_rise": -row["drop_low"]}
        assert row["message"] == f"overall: {sentence.format(**numbers)}"


@pytest.mark.parametrize(
    ("drop", "low", "high", "change", "least", "most"),
    [
        (12.0, 3.0, 21.0, "drop 12.0", "3.0 or more", "21.0 or less"),
        (5.0, -20.0, 30.0, "drop 5.0", "at most a rise of 20.0", "30.0 or less"),
        (-5.0, -30.0, 20.0, "rise 5.0", "at most a rise of 30.0", "at most a drop of 20.0"),
        (-104.9, -160.0, -50.0, "rise 104.9", "at most a rise of 160.0", "at least a rise of 50.0"),
        (0.0, 0.0, 0.0, "drop 0.0", "0.0 or more", "0.0 or less"),
    ],
)
def test_a_drop_below_zero_is_called_a_rise(drop, low, high, change, least, most):
    assert describe_change(drop, low, high) == {"change": change, "least": least, "most": most}


def test_a_report_of_a_rise_says_rise(rng):
    gate = compare(make_verdicts(rng, {**FIELD, "new": 3.0}), rng)
    rise = -gate.table["drop"][0]
    assert rise > 50
    for page in (report_text(gate, "gate.md"), report_text(gate, "gate.xml")):
        assert f"rise {rise:.1f}" in page
        assert "drop -" not in page
