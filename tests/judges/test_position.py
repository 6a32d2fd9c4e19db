"""Biases of judges: by hand, on judges whose bias is known, and on verdicts that cannot show it."""

import numpy as np
import pandas as pd
import pingouin
import pytest
import statsmodels.api as sm
from hypothesis import given, settings
from hypothesis import strategies as st

from heart_utils import repeat_reliability
from heart_utils.judges.position import (
    BiasError,
    compare_answers,
    feature_bias,
    position_bias,
    text_features,
)
from heart_utils.simulate.study import Panel, simulate_study

JUDGE = {"rater": "judge", "dimension": "overall", "state": "valid", "protocol": "heart"}
JUDGE |= {"repeat": 0, "responder_a": "x", "responder_b": "y", "p_a": np.nan, "margin": np.nan}


def answers(rows, **columns):
    """Verdicts of one judge on one pair a dialogue: rows of dialogue, order, verdict, repeat."""
    names = ["dialogue_id", "order", "verdict", "repeat"]
    table = pd.DataFrame(rows, columns=names[: len(rows[0])])
    return table.assign(pair_id=table["dialogue_id"], **{**JUDGE, **table, **columns})


def seen_twice(said):
    """Verdicts on pairs seen in both orders: [(verdict in ab, verdict in ba), ...]."""
    return answers(
        [
            (f"d{number:03d}", order, verdict)
            for number, both in enumerate(said)
            for order, verdict in zip(("ab", "ba"), both, strict=True)
        ]
    )


def asked_again(said):
    """Verdicts on pairs asked twice in one order: [(first answer, second), ...]."""
    return answers(
        [
            (f"d{number:03d}", "ab", verdict, repeat)
            for number, both in enumerate(said)
            for repeat, verdict in enumerate(both)
        ]
    )


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


@pytest.mark.parametrize(("n", "provisional"), [(1, True), (2, True), (29, True), (30, False)])
def test_few_dialogues_are_provisional_and_have_an_interval_from_two_on(rng, n, provisional):
    row = measure(seen_twice([("a", "a")] * n), "inconsistent_share")
    assert row["provisional"] == provisional
    assert (pytest.approx(row["ci_low"]) == 0.0 and 0.0 < row["ci_high"] < 1.0) == (n > 1)
    again = compare_answers(asked_again([("a", "a")] * n), by="repeat", rng=rng, n_resamples=10)
    assert again["provisional"].tolist() == ([provisional] if n > 1 else [])
    verdicts, comparisons, features = length_study(rng, 300, 0.5)
    verdicts["dialogue_id"] = [f"d{number % n}" for number in range(300)]
    price = feature_bias(verdicts, comparisons, features, within_authors=False).iloc[0]
    assert (price["n_clusters"], price["provisional"]) == (n, provisional)
    assert price["why"] == ("" if n > 1 else "one dialogue only")


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


@settings(max_examples=8)
@given(said=st.lists(st.tuples(*[st.sampled_from(["a", "b", "tie"])] * 2), min_size=2, max_size=8))
def test_renaming_a_and_b_changes_nothing_about_sides(said):
    other = {"a": "b", "b": "a", "tie": "tie"}
    here = position_bias(seen_twice(said), rng=np.random.default_rng(1), n_resamples=2)
    # The same answers with a and b renamed: the pair that was shown as ab is now shown as ba.
    there = position_bias(
        seen_twice([(other[ba], other[ab]) for ab, ba in said]),
        rng=np.random.default_rng(1),
        n_resamples=2,
    )
    assert here["value"].tolist() == pytest.approx(there["value"].tolist())


def test_rows_come_by_rater_and_dimension_whatever_the_order_of_the_verdicts(rng):
    verdicts, comparisons, features = length_study(rng, 120, 0.5)
    sorts = [(rater, dimension) for rater in "jk" for dimension in ("overall", "warmth")]
    parts = [verdicts.assign(rater=who, dimension=what) for who, what in reversed(sorts)]
    again = pd.concat([*parts, *(part.assign(repeat=1) for part in parts)])
    tables = [
        position_bias(again, rng=rng, n_resamples=2).query("measure == 'tie_share'"),
        feature_bias(pd.concat(parts), comparisons, features),
        compare_answers(again, by="repeat", rng=rng, n_resamples=2),
    ]
    for table in tables:
        assert list(zip(table["rater"], table["dimension"], strict=True)) == sorts
        assert table.index.is_unique


FORMS = {
    "": (0, 0, 0, 0),
    " ": (0, 0, 0, 0),  # nothing is no shorter than a word
    "Yes.": (0, 0, 0, 0),
    "I hear you well.": (2, 0, 1, 0),
    "- breathe\n- sleep": (2, 1, 0, 0),
    "1) write it down": (2, 1, 0, 0),
    "Which? At 3.5 miles": (2, 0, 0, 1),
    "MY boat": (1, 0, 1, 0),
    "İt is theirs, then": (2, 0, 0, 0),
}
"""Text -> doublings of one word, and whether it has list marks, the first person, a question."""


def test_form_is_read_from_the_text():
    found = text_features(pd.DataFrame({"reply_id": range(len(FORMS)), "text": [*FORMS]}))
    columns = ["log2_words", "list_marks", "first_person", "question"]
    assert found[columns].to_numpy().tolist() == [[*map(float, form)] for form in FORMS.values()]


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


def test_the_p_value_of_a_price_is_one_less_the_level_at_which_its_interval_ends_at_zero(rng):
    study = length_study(rng, 300, 0.1)
    p = feature_bias(*study, within_authors=False)["p"].item()
    row = feature_bias(*study, within_authors=False, ci_level=1.0 - p).iloc[0]
    assert 0.001 < p < 0.999
    assert min(abs(row["ci_low"]), abs(row["ci_high"])) == pytest.approx(0.0, abs=1e-9)


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


@pytest.mark.parametrize(
    ("slope", "change", "why"),
    [
        (50.0, {}, "the verdicts follow it without exception"),
        (0.5, {"verdict": "tie"}, "every pair is a tie or undecided"),
    ],
)
def test_verdicts_that_show_no_price_say_why_and_have_no_chance(rng, slope, change, why):
    verdicts, comparisons, features = length_study(rng, 100, slope)
    given = verdicts.assign(**change), comparisons, features
    row = feature_bias(*given, within_authors=False).iloc[0]
    assert row["why"] == why
    assert row[["log_odds", "ci_low", "p", "p_holm"]].isna().all()


def test_verdicts_without_their_comparisons_are_refused(rng):
    verdicts, comparisons, features = length_study(rng, 10, 0.5)
    with pytest.raises(BiasError, match="comparisons of these verdicts"):
        feature_bias(verdicts, comparisons.assign(pair_id="other"), features)


def test_three_of_four_repeats_agree_by_hand(rng):
    said = asked_again([("a", "a"), ("b", "b"), ("a", "b"), ("tie", "tie")])
    row = compare_answers(said, by="repeat", rng=rng).iloc[0]
    assert (row["same_share"], row["n"]) == (3 / 4, 4)


def test_a_failed_repeat_is_counted_and_not_a_disagreement(rng):
    table = asked_again([("a", "a")] * 4)
    table.loc[1, ["state", "verdict"]] = ["error", None]
    row = compare_answers(table, by="repeat", rng=rng).iloc[0]
    assert (row["same_share"], row["n"], row["n_failed"]) == (1.0, 3, 1)


def test_other_words_are_compared_on_the_same_pairs_and_nothing_repeated_gives_no_rows(rng):
    one = answers([(f"d{number}", "ab", "a") for number in range(6)])
    other = one.assign(protocol="heart-release", verdict=list("aaabbb"))
    row = compare_answers(pd.concat([one, other]), by="protocol", rng=rng).iloc[0]
    assert (row["one"], row["other"], row["same_share"]) == ("heart", "heart-release", 0.5)
    assert compare_answers(one, by="repeat", rng=rng).empty


def draw_again(chances, n_repeats, rng):
    """Ask a judge that prefers a in each question with a chance of its own."""
    said = np.where(rng.random((n_repeats, len(chances))) < chances, "a", "b")
    return asked_again(said.T)


def test_the_reliability_is_the_intraclass_correlation_of_another_library():
    votes = draw_again(np.random.default_rng(1).beta(0.5, 0.5, 60), 3, np.random.default_rng(2))
    scored = votes.assign(won=votes["verdict"].eq("a").astype(float))
    theirs = pingouin.intraclass_corr(
        scored, targets="pair_id", raters="repeat", ratings="won"
    ).set_index("Type")["ICC"]
    own = repeat_reliability(votes, n_resamples=50)
    assert own["reliability"].item() == pytest.approx(theirs.iloc[0], abs=1e-6)
    assert own[["n_questions", "repeats", "n_clusters"]].to_numpy().tolist() == [[60, 3.0, 60]]


def test_the_interval_holds_the_known_reliability():
    """Chances are 0.1 or 0.9: the variance of an answer is 1/4, that of its chance 0.16, so the
    reliability is 0.64."""
    held = []
    for seed in range(80):
        rng = np.random.default_rng(seed)
        votes = draw_again(rng.choice([0.1, 0.9], 80), 2, rng)
        found = repeat_reliability(votes, n_resamples=300, rng=rng).iloc[0]
        held.append(found["ci_low"] <= 0.64 <= found["ci_high"])
    assert 0.90 <= np.mean(held) <= 0.99


@pytest.mark.parametrize(("chance", "expected"), [([0.0, 1.0], 1.0), ([0.5, 0.5], 0.0)])
def test_a_judge_that_never_changes_is_reliable_and_a_coin_is_not(chance, expected):
    votes = draw_again(np.tile(chance, 200), 2, np.random.default_rng(3))
    assert repeat_reliability(votes, n_resamples=50)["reliability"].item() == pytest.approx(
        expected, abs=0.12
    )


def test_failed_answers_are_counted_and_never_a_change():
    votes = draw_again(np.tile([0.0, 1.0], 20), 2, np.random.default_rng(4))
    votes.loc[:8:2, ["verdict", "state"]] = [None, "unparsed"]
    found = repeat_reliability(votes, n_resamples=50).iloc[0]
    assert (found["n_failed"], found["n_questions"]) == (5, 35)
    assert found["reliability"] == 1.0


def test_nothing_asked_again_is_a_sentence_and_one_word_has_no_reliability():
    rng = np.random.default_rng(5)
    with pytest.raises(BiasError, match="again"):
        repeat_reliability(draw_again(np.full(10, 0.5), 1, rng))
    alike = draw_again(np.ones(40), 2, rng)
    assert np.isnan(repeat_reliability(alike, n_resamples=20)["reliability"].item())
