"""Biases of judges: by hand, on judges whose bias is known, and on verdicts that cannot show it."""

import inspect

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heart_utils.judges.position import (
    BiasError,
    compare_answers,
    feature_bias,
    position_bias,
    text_features,
)
from heart_utils.judges.report_card import grade_probes, measure_halo, self_preference
from heart_utils.simulate.study import Panel, simulate_study


def seen_twice(said, **columns):
    """Verdicts of one judge on one pair a dialogue, in both orders: [(verdict in ab, verdict in
    ba), ...]."""
    rows = [
        (f"d{number:03d}", order, verdict)
        for number, both in enumerate(said)
        for order, verdict in zip(("ab", "ba"), both, strict=True)
    ]
    table = pd.DataFrame(rows, columns=["dialogue_id", "order", "verdict"])
    fixed = {
        "pair_id": table["dialogue_id"],
        "rater": "judge",
        "dimension": "overall",
        "state": "valid",
        "repeat": 0,
        # fmt: skip
        "protocol": "heart",
        "responder_a": "x",
        "responder_b": "y",
        "p_a": np.nan,
        "margin": np.nan,
    }
    return table.assign(**{**fixed, **columns})


def measure(verdicts, name, **how):
    found = position_bias(verdicts, rng=np.random.default_rng(1), n_resamples=200, **how)
    return found[found["measure"] == name].iloc[0]


def test_four_pairs_by_hand():
    said = seen_twice([("a", "b"), ("a", "a"), ("tie", "tie"), ("b", "a")])
    # Shown first wins: 1, 1 | 1, 0 | .5, .5 | 0, 0 of eight; two pairs of four change their winner.
    assert measure(said, "first_share")["value"] == pytest.approx(4 / 8)
    assert measure(said, "inconsistent_share")["value"] == pytest.approx(2 / 4)
    assert measure(said, "tie_share")["value"] == pytest.approx(2 / 8)


def test_a_judge_that_always_takes_the_first_is_found_out_with_the_doubt_that_forty_pairs_leave():
    row = measure(seen_twice([("a", "b")] * 40), "first_share")
    assert row["value"] == row["ci_high"] == 1.0
    # t with 39 degrees of freedom
    assert row["ci_low"] == pytest.approx(40 / (40 + 2.022691**2), abs=1e-6)
    assert measure(seen_twice([("a", "b")] * 40), "inconsistent_share")["value"] == 1.0


def test_a_judge_that_never_ties_may_yet_tie():
    row = measure(seen_twice([("a", "b"), ("a", "a")] * 10), "tie_share")
    assert row["value"] == row["ci_low"] == 0.0
    assert 0 < row["ci_high"] < 0.5


@pytest.mark.parametrize(("n", "provisional"), [(2, True), (29, True), (30, False)])
def test_a_share_of_few_dialogues_is_provisional_but_has_an_interval_from_two_on(n, provisional):
    row = measure(seen_twice([("a", "a")] * n), "inconsistent_share")
    assert row["provisional"] == provisional
    assert row["ci_low"] == pytest.approx(0.0)
    assert 0.0 < row["ci_high"] < 1.0
    assert (
        measure(seen_twice([("a", "a")]), "inconsistent_share")[["ci_low", "ci_high"]].isna().all()
    )


def test_two_dialogues_are_enough_to_fit_and_one_is_not(rng):
    verdicts, comparisons, features = length_study(rng, 200, 0.5)
    verdicts["dialogue_id"] = np.where(np.arange(200) < 100, "d0", "d1")
    assert (
        feature_bias(verdicts, comparisons, features, within_authors=False)["log_odds"]
        .notna()
        .all()
    )
    alone = feature_bias(
        verdicts.assign(dialogue_id="d0"), comparisons, features, within_authors=False
    ).iloc[0]
    assert (alone["why"], np.isnan(alone["log_odds"])) == ("one dialogue only", True)


def test_one_order_alone_shows_no_contradiction():
    once = seen_twice([("a", "a")] * 10).query("order == 'ab'")
    row = measure(once, "inconsistent_share")
    assert np.isnan(row["value"])
    assert row["why"] == "no pair was seen in both orders"


def test_a_failed_answer_is_no_verdict_and_is_counted():
    verdicts = seen_twice([("a", "a"), ("a", "a")])
    verdicts.loc[0, ["state", "verdict"]] = ["unparsed", None]
    assert measure(verdicts, "failed_share")["value"] == pytest.approx(1 / 4)
    assert measure(verdicts, "first_share")["n"] == 3


def test_a_known_lean_is_recovered(rng):
    """Log-odds of 1 for the first side, equal responders, one dialogue effect: the marginal share
    by quadrature."""
    study = simulate_study(rng=rng, strengths={"x": 0.0, "y": 0.0}, n_dialogues=900, pairs="all", orders="both",
                           panels=(Panel("model", 1, 1, position_bias=1.0),))  # fmt: skip
    nodes, weights = np.polynomial.hermite_e.hermegauss(41)
    gap = np.sqrt(2) * 0.8 * nodes
    expected = float((weights / (1 + np.exp(-(gap + 1)))).sum() / weights.sum())
    row = measure(study.verdicts, "first_share")
    assert row["ci_low"] < expected < row["ci_high"]
    assert row["value"] == pytest.approx(expected, abs=0.03)


@settings(max_examples=20)
@given(said=st.lists(st.tuples(*[st.sampled_from(["a", "b", "tie"])] * 2), min_size=2, max_size=8))
def test_renaming_a_and_b_changes_nothing_about_sides(said):
    other = {"a": "b", "b": "a", "tie": "tie"}
    here = position_bias(seen_twice(said), rng=np.random.default_rng(1), n_resamples=10)
    # The same answers with a and b renamed: the pair that was shown as ab is now shown as ba.
    there = position_bias(
        seen_twice([(other[ba], other[ab]) for ab, ba in said]),
        rng=np.random.default_rng(1),
        n_resamples=10,
    )
    assert here["value"].tolist() == pytest.approx(there["value"].tolist())


def test_rows_come_by_rater_and_dimension_whatever_the_order_of_the_verdicts(rng):
    verdicts, comparisons, features = length_study(rng, 120, 0.5)
    parts = [
        verdicts.assign(rater=rater, dimension=dimension)
        for rater in "kj"
        for dimension in ("warmth", "overall")
    ]
    again = pd.concat([*parts, *(part.assign(repeat=1) for part in parts)])
    tables = [
        position_bias(again, rng=rng, n_resamples=2).query("measure == 'tie_share'"),
        feature_bias(pd.concat(parts), comparisons, features),
        compare_answers(again, by="repeat", rng=rng, n_resamples=2),
    ]
    for table in tables:
        found = list(zip(table["rater"], table["dimension"], strict=True))
        assert found == [("j", "overall"), ("j", "warmth"), ("k", "overall"), ("k", "warmth")]
        assert table.index.is_unique


@pytest.mark.parametrize(
    ("text", "doublings"), [("", 0), (" ", 0), ("Yes.", 0), ("I hear you well.", 2)]
)
def test_length_is_counted_in_doublings_of_one_word_and_nothing_is_no_shorter(text, doublings):
    assert text_features(pd.DataFrame({"reply_id": ["r"], "text": [text]})).loc[
        "r", "log2_words"
    ] == pytest.approx(doublings)


@pytest.mark.parametrize(("n", "provisional"), [(29, True), (30, False)])
def test_a_price_from_few_dialogues_is_provisional(rng, n, provisional):
    verdicts, comparisons, features = length_study(rng, 300, 0.5)
    verdicts["dialogue_id"] = [f"d{number % n}" for number in range(300)]
    row = feature_bias(verdicts, comparisons, features, within_authors=False).iloc[0]
    assert (row["n_clusters"], row["provisional"]) == (n, provisional)


def test_the_p_value_of_a_price_is_one_less_the_level_at_which_its_interval_ends_at_zero(rng):
    verdicts, comparisons, features = length_study(rng, 300, 0.1)
    p = feature_bias(verdicts, comparisons, features, within_authors=False)["p"].item()
    row = feature_bias(
        verdicts, comparisons, features, within_authors=False, ci_level=1.0 - p
    ).iloc[0]
    assert 0.001 < p < 0.999
    assert min(abs(row["ci_low"]), abs(row["ci_high"])) == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize(
    "estimate", [position_bias, compare_answers, measure_halo, self_preference]
)
def test_intervals_are_of_95_percent_from_a_thousand_resamples_unless_told_otherwise(estimate):
    """As the reference pages say; `feature_bias` and report cards resample nothing."""
    given = {
        name: option.default for name, option in inspect.signature(estimate).parameters.items()
    }
    assert (given["n_resamples"], given["ci_level"]) == (1000, 0.95)
    assert inspect.signature(feature_bias).parameters["ci_level"].default == 0.95
    assert inspect.signature(grade_probes).parameters["alpha"].default == 0.05


def test_form_is_read_from_the_text():
    texts = [
        "I hear you.",
        "- breathe\n- sleep",
        "1) write it down",
        "Which? At 3.5 miles",
        "MY boat",
        "İt is theirs",
    ]
    found = text_features(pd.DataFrame({"reply_id": list("uvwxyz"), "text": texts}))
    assert found["list_marks"].tolist() == [0, 1, 1, 0, 0, 0]
    assert found["first_person"].tolist() == [1, 0, 0, 0, 1, 0]
    assert found["question"].tolist() == [0, 0, 0, 1, 0, 0]
    assert found.loc["u", "log2_words"] == pytest.approx(np.log2(3))


def length_study(rng, n, slope, quality=0.0):
    """A judge that pays `slope` log-odds for each doubling; longer replies are by whom the judge
    likes by `quality`."""
    x = rng.normal(5, 1, (n, 2))
    who = np.where(rng.random(n) < 0.5, "x", "y")
    other = np.where(who == "x", "y", "x")
    x[:, 0] += (who == "x") * 1.0
    x[:, 1] += (other == "x") * 1.0
    lean = slope * (x[:, 0] - x[:, 1]) + quality * ((who == "x") * 1.0 - (other == "x"))
    won = rng.random(n) < 1 / (1 + np.exp(-lean))
    ids = [f"p{number:05d}" for number in range(n)]
    verdicts = pd.DataFrame({"pair_id": ids, "dialogue_id": [f"d{number % 60}" for number in range(n)],
                             "order": "ab", "repeat": 0,
                             "verdict": np.where(won, "a", "b"), "state": "valid", "rater": "judge", "dimension": "overall",
                             "responder_a": who, "responder_b": other, "p_a": np.nan})  # fmt: skip
    comparisons = pd.DataFrame(
        {"pair_id": ids, "reply_a": [f"{i}a" for i in ids], "reply_b": [f"{i}b" for i in ids]}
    )
    features = pd.DataFrame(
        {"log2_words": x.ravel()}, index=[f"{i}{side}" for i in ids for side in "ab"]
    )
    return verdicts, comparisons, features


def test_a_known_price_of_length_is_recovered_and_matches_statsmodels(rng):
    import statsmodels.api as sm

    verdicts, comparisons, features = length_study(rng, 1500, 0.5)
    row = feature_bias(verdicts, comparisons, features, within_authors=False).iloc[0]
    assert row["ci_low"] < 0.5 < row["ci_high"]
    x = (
        features.loc[comparisons["reply_a"], "log2_words"].to_numpy()
        - features.loc[comparisons["reply_b"], "log2_words"].to_numpy()
    )
    fitted = sm.GLM(
        verdicts["verdict"].eq("a").astype(float), x, family=sm.families.Binomial()
    ).fit(
        cov_type="cluster",
        cov_kwds={"groups": pd.factorize(verdicts["dialogue_id"])[0], "df_correction": False},
    )
    assert row["log_odds"] == pytest.approx(fitted.params.iloc[0], abs=1e-6)
    assert row["se"] == pytest.approx(fitted.bse.iloc[0], rel=1e-4)  # both with G / (G - 1)


def test_length_of_a_better_author_is_not_a_price_of_length_within_authors(rng):
    verdicts, comparisons, features = length_study(rng, 3000, 0.0, quality=1.5)
    across = feature_bias(verdicts, comparisons, features, within_authors=False).iloc[0]
    within = feature_bias(verdicts, comparisons, features).iloc[0]
    assert across["ci_low"] > 0.1
    assert within["ci_low"] < 0 < within["ci_high"]


def test_a_feature_that_only_names_the_author_has_no_price_of_its_own(rng):
    verdicts, comparisons, features = length_study(rng, 200, 0.5)
    who = pd.concat(
        [verdicts.set_index(comparisons[f"reply_{side}"])[f"responder_{side}"] for side in "ab"]
    )
    found = feature_bias(
        verdicts, comparisons, features.assign(is_x=(who == "x").astype(float))
    ).set_index("feature")
    assert found.loc["is_x", "why"] == "does not vary apart from who wrote"
    assert np.isnan(found.loc["is_x", "log_odds"])
    assert found.loc["log2_words", "why"] == ""


def test_p_values_are_corrected_for_all_features_of_one_judge(rng):
    verdicts, comparisons, features = length_study(rng, 300, 0.2)
    features = features.assign(chance=rng.normal(size=len(features)))
    found = feature_bias(verdicts, comparisons, features, within_authors=False).sort_values("p")
    assert found["p_holm"].tolist() == pytest.approx(
        [2 * found["p"].iloc[0], max(2 * found["p"].iloc[0], found["p"].iloc[1])]
    )


def test_a_judge_that_follows_length_without_exception_has_no_finite_price(rng):
    verdicts, comparisons, features = length_study(rng, 100, 50.0)
    row = feature_bias(verdicts, comparisons, features, within_authors=False).iloc[0]
    assert row["why"] == "the verdicts follow it without exception"


def test_a_judge_that_only_ties_has_no_price_and_no_chance(rng):
    verdicts, comparisons, features = length_study(rng, 100, 0.5)
    row = feature_bias(
        verdicts.assign(verdict="tie"), comparisons, features, within_authors=False
    ).iloc[0]
    assert row["why"] == "every pair is a tie or undecided"
    assert row[["log_odds", "ci_low", "p", "p_holm"]].isna().all()


def test_verdicts_without_their_comparisons_are_refused(rng):
    verdicts, comparisons, features = length_study(rng, 10, 0.5)
    with pytest.raises(BiasError, match="comparisons of these verdicts"):
        feature_bias(verdicts, comparisons.assign(pair_id="other"), features)
