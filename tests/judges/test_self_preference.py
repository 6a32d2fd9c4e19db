"""Self-preference: by hand, on a world where it is known, and on the clinicians' and judges'
published scores."""

import numpy as np
import pandas as pd
import pytest

from heart_utils.judges.position import BiasError
from heart_utils.judges.report_card import family_ties, self_preference
from heart_utils.sources.load import load_responders, load_scores

RATERS = {"j": "model", "k": "model", "people": "human"}
WHO = pd.DataFrame({"responder": ["mine", "free", "also_free"], "responder_kind": "model"})


def scores_of(values, n=40):
    """Scores by (rater, responder) in each of n conversations; values may be functions of the
    conversation."""
    rows = [
        (f"c{number:03d}", responder, rater, value(number) if callable(value) else value)
        for number in range(n)
        for (rater, responder), value in values.items()
    ]
    table = pd.DataFrame(rows, columns=["dialogue_id", "responder", "rater", "score"])
    own = (table["rater"] == "j") & (table["responder"] == "mine")
    return table.assign(
        reply_id=table["dialogue_id"] + table["responder"],
        history_id=table["dialogue_id"],
        rater_kind=table["rater"].map(RATERS),
        dimension="empathy",
        state="valid",
        flags=[["own_family"] if mine else [] for mine in own],
    )


KEYS = [("j", "mine"), ("j", "free"), ("k", "mine"), ("k", "free")]
PLAIN = dict(zip(KEYS, (lambda c: 4 + c % 2, 3, 4, 3), strict=True))


def prefer(values, n=40, **how):
    """Measure the preference of j in drawn or constant scores by rater and responder."""
    scores = values if isinstance(values, pd.DataFrame) else scores_of(values, n)
    return self_preference(scores, WHO, **({"rng": np.random.default_rng(1)} | how))


def drawn_scores(lines, keys=KEYS, n=40):
    values = {key: dict(enumerate(line)).get for key, line in zip(keys, lines, strict=True)}
    return scores_of(values, n)


def pick(table, against="judges", scale="score"):
    return table[(table["against"] == against) & (table["scale"] == scale)].iloc[0]


def test_the_estimate_is_a_difference_of_differences():
    by_hand = {("j", "mine"): lambda c: 4 + c % 2, ("j", "free"): 3, ("k", "mine"): lambda c: 3 + c % 2, ("k", "free"): 2.5,
               ("people", "mine"): 2, ("people", "free"): 2}  # fmt: skip
    found = prefer(by_hand)
    assert pick(found)["estimate"] == pytest.approx((4.5 - 3) - (3.5 - 2.5))
    assert pick(found)[["own_judge", "own_others"]].tolist() == pytest.approx([4.5 - 3, 3.5 - 2.5])
    assert pick(found, "people")["estimate"] == pytest.approx((4.5 - 3) - 0)
    # Means of 4.5, 3, 3.5, 2.5 lie 7/8, 1/2, 5/8, 3/8 of the way from 1 to 5: odds of 7, 1, 5/3,
    # 3/5.
    assert pick(found, scale="logit")["estimate"] == pytest.approx(
        np.log(7 / 1) - np.log((5 / 3) / (3 / 5))
    )


def test_a_good_reply_and_a_mild_judge_are_no_self_preference():
    """All see the same replies; j is milder to everybody.

    The shift cancels, and so does what replies are worth.
    """
    worth = lambda c: 2 + c % 3  # noqa: E731
    values = {("j", "mine"): lambda c: worth(c) + 1, ("j", "free"): lambda c: worth(c), ("k", "mine"): worth,
              ("k", "free"): lambda c: worth(c) - 1}  # fmt: skip
    assert pick(prefer(values))["estimate"] == pytest.approx(0)


def test_divergence_that_judges_share_is_not_self_preference():
    values = {("j", "mine"): lambda c: 4 + c % 2, ("j", "free"): 3, ("k", "mine"): lambda c: 4 + (c + 1) % 2, ("k", "free"): 3,
              ("people", "mine"): 3, ("people", "free"): 3}  # fmt: skip
    found = prefer(values)
    assert pick(found)["estimate"] == pytest.approx(0)
    assert pick(found)["ci_low"] < 0 < pick(found)["ci_high"]
    assert pick(found, "people")["estimate"] == pytest.approx(1.5)


def test_a_known_preference_is_recovered_and_its_interval_is_about_right():
    rng = np.random.default_rng(7)
    hits = 0
    for _ in range(12):
        worth, noise = rng.normal(3, 0.6, (60, 2)), rng.normal(0, 0.3, (60, 4))
        drawn = np.column_stack([worth + noise[:, :2], worth + noise[:, 2:]])
        drawn[:, 0] += 0.2
        row = pick(prefer(drawn_scores(drawn.T, n=60), rng=rng, n_resamples=100))
        hits += row["ci_low"] <= 0.2 <= row["ci_high"]
    assert hits >= 9  # of 12 at 95 %; fewer has a chance of 0.002


def test_p_values_are_corrected_for_dimensions_on_one_scale_against_one_kind_of_rater():
    drawn = np.random.default_rng(5).normal(3, 0.5, (2, 6, 30))
    keys = [(rater, responder) for rater in ("j", "k", "people") for responder in ("mine", "free")]
    one, other = (drawn_scores(part, keys, 30) for part in drawn)
    found = prefer(pd.concat([one.assign(dimension="warmth"), other]), n_resamples=100)
    assert found["dimension"].unique().tolist() == ["empathy", "warmth"]
    for _, rows in found.groupby(["against", "scale"]):
        least, most = rows["p"].sort_values()
        assert sorted(rows["p_holm"]) == pytest.approx(
            sorted([min(2 * least, 1.0), max(most, min(2 * least, 1.0))])
        )
        assert rows["p_holm"].min() > least


def test_scores_at_the_ceiling_have_no_logit_and_say_so():
    values = {("j", "mine"): 5, ("j", "free"): 5, ("k", "mine"): 5, ("k", "free"): 5}
    found = prefer(values)
    assert pick(found, scale="logit")["why"].startswith("a mean lies at the end")
    assert np.isnan(pick(found, scale="logit")["estimate"])
    assert pick(found)["why"] == "the scores do not vary"
    assert pick(found)["ceiling"] == 1.0
    # the judge's own, and of the others nothing
    some = prefer(dict(zip(KEYS, (5, 3, 4, 3), strict=True)), n_resamples=2)
    assert pick(some)["ceiling"] == 0.5


@pytest.mark.parametrize(("n", "provisional"), [(29, True), (30, False)])
def test_an_estimate_from_few_conversations_is_provisional(n, provisional):
    row = pick(prefer(PLAIN, n, n_resamples=10))
    assert (row["n_clusters"], row["provisional"]) == (n, provisional)


def test_the_interval_lies_about_the_estimate_and_ends_at_zero_at_the_level_of_its_p_value():
    scores = drawn_scores(np.random.default_rng(8).normal(3, 0.8, (4, 20)), n=20)
    row = pick(prefer(scores, n_resamples=100))
    # by t, with so few conversations
    assert (row["ci_low"] + row["ci_high"]) / 2 == pytest.approx(row["estimate"])
    again = prefer(scores, n_resamples=100, ci_level=1.0 - row["p"])
    assert min(abs(pick(again)[["ci_low", "ci_high"]])) == pytest.approx(0.0, abs=1e-9)


def test_a_resample_at_the_end_of_the_scale_takes_no_estimate_away():
    """One conversation of four keeps the judge from the top: many resamples leave it out, and have
    no logit."""
    values = dict(zip(KEYS, (lambda c: 5 - (c == 0), lambda c: 3 + c % 2, 4, 3), strict=True))
    found = [
        prefer(values, 4, rng=np.random.default_rng(seed), n_resamples=20) for seed in range(8)
    ]
    assert len({round(pick(table, scale="logit")["estimate"], 9) for table in found}) == 1
    assert {pick(table, scale="logit")["why"] for table in found} == {""}


@pytest.mark.parametrize(
    ("lost", "counts"), [({"dialogue_id": "c000"}, (79, 1, True)), ({}, (40, 40, False))]
)
def test_a_failed_score_takes_its_reply_out_for_everybody_and_is_counted(lost, counts):
    scores = scores_of(PLAIN)
    where = {"rater": "k", "responder": "mine"} | lost
    failed = (scores[list(where)] == pd.Series(where)).all(axis=1)
    found = pick(prefer(scores.assign(state=np.where(failed, "unparsed", "valid"))))
    known = not np.isnan(found["estimate"])
    assert (found["n_replies"], found["n_left_out"], known) == counts


def test_a_judge_whose_answers_all_failed_has_no_estimate_and_no_ceiling():
    scores = scores_of(PLAIN)
    scores.loc[scores["rater"] == "j", "state"] = "error"
    found = pick(prefer(scores, n_resamples=20))
    assert found["n_replies"] == 0
    assert found[["estimate", "ceiling"]].isna().all()


def test_without_own_replies_or_neutral_ones_there_is_an_error_that_says_which():
    table = scores_of({("j", "mine"): 4, ("k", "mine"): 3})
    with pytest.raises(BiasError, match="shares a family"):
        family_ties(table, WHO)
    with pytest.raises(BiasError, match="own_family"):
        family_ties(table.assign(flags=[[] for _ in range(len(table))]), WHO)


@pytest.mark.slow
@pytest.mark.mirror
def test_claude_on_empathy_diverges_from_clinicians_much_more_than_from_other_judges(mirror):
    """.08 by judges of other families on the same replies, as this project found before; .43 by
    clinicians,
    over replies that both scored."""
    scores = load_scores("mentalalign")
    scores = scores[scores["dimension"] == "empathy"]
    found = self_preference(
        scores, load_responders("mentalalign"), rng=np.random.default_rng(1), n_resamples=100
    )
    claude = found[(found["rater"] == "claude-3.7-sonnet") & (found["scale"] == "score")].set_index(
        "against"
    )
    assert claude.loc["judges", "estimate"] == pytest.approx(0.08, abs=0.005)
    assert claude.loc["people", "estimate"] == pytest.approx(0.43, abs=0.005)
    wide = scores[scores["state"] == "valid"].pivot_table(
        index="reply_id", columns="rater", values="score"
    )
    judges = ["claude-3.7-sonnet", "gemini-2.5-flash", "gpt-4o", "o4-mini"]
    wide = wide.dropna(subset=judges).assign(by=lambda t: t.index.str.split("--").str[1])
    own = wide["by"] == "claude-3.5-haiku"
    free = wide["by"].isin(
        ["deepseek-llama-8b", "deepseek-qwen-7b", "llama-3.1-8b", "qwen-2.5-7b", "qwen-3-4b"]
    )
    # a second way, without resampling
    gaps = wide.loc[own, judges].mean() - wide.loc[free, judges].mean()
    assert claude.loc["judges", "estimate"] == pytest.approx(
        gaps[judges[0]] - gaps[judges[1:]].mean(), abs=1e-9
    )
