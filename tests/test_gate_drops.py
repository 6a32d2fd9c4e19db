"""The gate's statistic: known drops recovered, Holm by hand, sides that are not alike refused,
error rates held."""

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from statsmodels.stats.multitest import multipletests

from heart_utils.gate import GateError, GateRule, compare_responders, describe_change, holm_levels
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
    verdicts = make_verdicts(rng, FIELD, n_dialogues=30)
    found = compare_responders(verdicts, baseline="old", candidate="new", rng=rng)
    assert found.table["outcome"].tolist() == ["cannot tell"]
    assert "One of 50 must be, which takes about" in found.table["message"][0]
    assert compare_responders(
        verdicts, baseline="old", candidate="new", rule=GateRule(max_detectable=np.inf), rng=rng
    ).passed


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
    other = compare_responders(
        verdicts, baseline="new", candidate="old", rng=np.random.default_rng(1)
    ).table.iloc[0]
    assert other["drop"] == pytest.approx(-one["drop"])
    assert other["se"] == pytest.approx(one["se"])
    assert other["drop_low"] == pytest.approx(-one["drop_high"])


def test_equal_sides_are_no_regression_but_few_dialogues_are_no_proof(rng):
    verdicts = make_verdicts(rng, FIELD, n_dialogues=30)
    assert compare(verdicts, rng).passed
    proof = compare(verdicts, rng, mode="non-inferiority")
    assert not proof.passed
    assert "may be worse by 25 points or more" in proof.table["message"][0]
    assert compare(verdicts, rng, mode="non-inferiority", max_drop=300).passed


def test_the_bounds_say_what_the_p_value_says(rng):
    for mode in ("regression", "non-inferiority"):
        for shift in (-0.6, -0.3, 0.0, 0.3):
            verdicts = make_verdicts(rng, {**FIELD, "new": shift}, dimensions=("u", "v", "w"))
            table = compare(verdicts, rng, mode=mode).table
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


@pytest.mark.parametrize("mode", ["regression", "non-inferiority"])
@pytest.mark.parametrize("max_detectable", [50, np.inf])
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
    assert row["n_inconsistent"] == 160  # two in three of 40 dialogues with 6 pairs each
    assert row["outcome"] == "cannot tell"
    # five of the six pairs of a dialogue are with one of the sides
    assert re.search(r"In \d+ of 200 pairs .*the verdict turned with the order", row["message"])
    assert (
        "turned with the order" not in compare(make_verdicts(rng, FIELD), rng).table["message"][0]
    )


def turn(verdicts, n):
    """Let the first `n` verdicts contradict themselves."""
    return verdicts.assign(
        state=np.where(np.arange(len(verdicts)) < n, "inconsistent", "valid"),
        verdict=verdicts["verdict"].mask(np.arange(len(verdicts)) < n),
    )


@pytest.mark.parametrize("mode", ["regression", "non-inferiority"])
def test_nothing_passes_before_a_judge_that_mostly_follows_the_order(rng, mode):
    # 240 pairs, 200 of them with one of the sides
    verdicts = make_verdicts(rng, {**FIELD, "new": 0.3}, n_dialogues=40).sample(
        frac=1, random_state=1
    )

    def outcome(n, **options):
        return compare(turn(verdicts, n), rng, mode=mode, max_drop=300, **options).table["outcome"][
            0
        ]

    # 42 % may be half with an error of 5 %: 40 dialogues show it of 38 %, not of 46 %
    assert [outcome(91), outcome(110), outcome(121)] == ["passed", "cannot tell", "cannot tell"]
    assert [outcome(121, max_inconsistent=0.7), outcome(240 - 20, max_inconsistent=1)] == [
        "passed",
        "passed",
    ]
    assert outcome(240, max_inconsistent=1) == "cannot tell"


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
    verdicts = turn(
        make_verdicts(rng, {**FIELD, "new": -4.0}, n_dialogues=60).sample(frac=1, random_state=1),
        190,
    )
    assert compare(verdicts, rng).table["outcome"].tolist() == ["failed"]


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


def other_histories(verdicts):
    new = verdicts["responder_a"].eq("new") | verdicts["responder_b"].eq("new")
    return verdicts[~(new & verdicts["dialogue_id"].isin(["d1", "d2"]))]


def other_rater(verdicts):
    new = verdicts["responder_a"].eq("new") | verdicts["responder_b"].eq("new")
    return verdicts.assign(rater=np.where(new, "other judge", "judge"))


def other_protocol(verdicts):
    new = verdicts["responder_a"].eq("new") | verdicts["responder_b"].eq("new")
    return verdicts.assign(protocol=np.where(new, "heart-release", "heart"))


def no_common_opponent(verdicts):
    meets = {("old", "x"), ("new", "y")}
    return verdicts[
        [
            pair in meets
            for pair in zip(verdicts["responder_a"], verdicts["responder_b"], strict=True)
        ]
    ]


UNLIKE = {
    r"do not share all histories: 58 in common, 2 for 'old' alone \(d1, d2\)": other_histories,
    r"do not share all raters: 0 in common, 1 for 'old' alone \(judge\); 1 for 'new' alone": (
        other_rater
    ),
    r"do not share all protocols": other_protocol,
    r"share no opponent": no_common_opponent,
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
        ({"dimensions": ["warmth"]}, "on warmth; there are overall"),
        (
            {"candidate": "nobody"},
            "candidate 'nobody' appears in no verdict. Responders there: new, old, x, y",
        ),
        ({"candidate": "old"}, "both 'old'"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(options, message, rng):
    verdicts = make_verdicts(rng, FIELD, n_dialogues=5)

    def ask(baseline="old", candidate="new", dimensions=None, **options):
        sides = {"baseline": baseline, "candidate": candidate, "dimensions": dimensions}
        return compare_responders(verdicts, **sides, rule=GateRule(**options), rng=rng)

    with pytest.raises(GateError, match=message):
        ask(**options)


@pytest.fixture(
    scope="module", params=["regenerated", pytest.param("re-asked", marks=pytest.mark.slow)]
)
def null_runs(request):
    rng = np.random.default_rng(20260109)
    return simulate_gate(
        null=request.param,
        n_studies=40,
        n_dialogues=30,
        rule=replace(PATIENT_RULE, n_resamples=200),
        rng=rng,
    )


def test_a_candidate_that_equals_its_baseline_seldom_fails(null_runs):
    """40 simulated nulls at 5 %: 2 alarms expected, more than 6 once in 300 tries.

    The bench runs 1,000.
    """
    assert (~null_runs["passed"]).sum() <= 6
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
    from heart_utils.simulate import coverage

    judged = []
    monkeypatch.setattr(
        coverage,
        "compare_responders",
        lambda rows, **_: judged.append(rows) or compare_responders(rows, **_),
    )
    simulate_gate(
        n_studies=1,
        n_dialogues=10,
        n_dimensions=2,
        rule=replace(PATIENT_RULE, n_resamples=20),
        rng=rng,
    )
    [rows] = judged
    assert (rows["dialogue_id"].nunique(), rows["dimension"].nunique()) == (10, 2)
    opponents = {f"opponent {k}" for k in range(1, 4)}
    assert (
        set(rows["responder_a"]) | set(rows["responder_b"]) == {"baseline", "candidate"} | opponents
    )


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
    row = compare(equal, rng).table.iloc[0]
    assert (
        row["message"]
        == f"overall: not shown to be worse; rise {-row['drop']:.1f} points, with 95% confidence"
        f" at most a rise of {-row['drop_low']:.1f} (60 dialogues, this rater); a drop of"
        f" {row['detectable']:.0f} would be found four times in five"
    )
    row = compare(worse, rng).table.iloc[0]
    assert (
        row["message"]
        == f"overall: worse than the baseline; drop {row['drop']:.1f} points, with 95% confidence"
        f" {row['drop_low']:.1f} or more (60 dialogues, this rater)"
    )
    row = compare(equal, rng, mode="non-inferiority", max_drop=300, alpha=0.1).table.iloc[0]
    assert (
        row["message"]
        == f"overall: not worse by 300 points or more; rise {-row['drop']:.1f}, with 90% confidence"
        f" at most a drop of {row['drop_high']:.1f} (60 dialogues, this rater); an equal candidate passes"
        f" a margin of {row['detectable']:.0f} four times in five"
    )
    assert (
        compare(worse, rng, mode="non-inferiority")
        .table["message"][0]
        .startswith("overall: may be worse by 25 points or more")
    )


def test_half_as_much_to_be_found_takes_four_times_the_dialogues(rng):
    verdicts = make_verdicts(rng, FIELD, n_dialogues=30)
    found = [compare_responders(verdicts, baseline="old", candidate="new", rule=GateRule(max_detectable=at), rng=np.random.default_rng(1))
             for at in (50, 25)]  # fmt: skip
    many = [
        int(re.search(r"takes about (\d+) dialogues", gate.table["message"][0])[1])
        for gate in found
    ]
    assert many[1] == pytest.approx(4 * many[0], abs=4)
    assert many[0] == pytest.approx(30 * (found[0].table["detectable"][0] / 50) ** 2, abs=1)


def test_no_more_than_three_of_those_that_one_side_lacks_are_named(rng):
    verdicts = make_verdicts(rng, FIELD, n_dialogues=9)
    new = verdicts["responder_a"].eq("new") | verdicts["responder_b"].eq("new")
    for n, named in (
        (3, r"3 for 'old' alone \(d0, d1, d2\)"),
        (4, r"4 for 'old' alone \(d0, d1, d2, \.\.\.\)"),
    ):
        rows = verdicts[
            ~(
                (new | verdicts["responder_a"].eq("old"))
                & verdicts["dialogue_id"].isin([f"d{k}" for k in range(n)])
                & new
            )
        ]
        rows = rows[~(rows["responder_a"].eq("old") & rows["responder_b"].eq("new"))]
        with pytest.raises(GateError, match=f"{9 - n} in common, {named}"):
            compare(rows, rng)


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
    better = make_verdicts(rng, {**FIELD, "new": 3.0})
    gate = compare(better, rng)
    row = gate.table.iloc[0]
    assert row["drop"] < -50
    for page in (report_text(gate, "gate.md"), report_text(gate, "gate.xml")):
        assert f"rise {-row['drop']:.1f}" in page
        assert "drop -" not in page
