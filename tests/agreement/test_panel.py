"""Judges beside people: baselines, ceilings, panels, who may replace whom, and ranks."""

import numpy as np
import pandas as pd
import pytest
from agreement_tables import random_votes, scores, votes
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit
from scipy.stats import kendalltau, ttest_1samp
from statsmodels.stats.multitest import multipletests

from heart_utils.agreement.agreement import pairwise_agreement
from heart_utils.agreement.panel import (
    agreement_with_baselines,
    alternative_annotator_test,
    effective_judges,
    estimate_ceiling,
    highest_ceiling,
    rank_agreement,
)
from heart_utils.ratings.resampling import bootstrap_ci
from heart_utils.ratings.verdicts import AgreementError
from heart_utils.simulate.study import Panel, simulate_study

# Baselines that read nothing


def shares(table, **settings):
    found = agreement_with_baselines(table, **{"by": [], "n_resamples": 0, **settings})
    return found.set_index("who")["agreement"].to_dict()


def questions(people, judge, **columns):
    """One pair of x and y a question, a verdict of one person and of one judge on each."""
    rows = [
        ("x-y", f"q{k}", who, said)
        for who, all_said in (("ann", people), ("m1", judge))
        for k, said in enumerate(all_said)
    ]
    return votes(rows).assign(
        **{name: [*values, *[None] * len(judge)] for name, values in columns.items()}
    )


def test_agreement_and_authors_are_those_of_pairwise_agreement_with_their_intervals():
    table = random_votes(np.random.default_rng(3), n_dialogues=40)
    found = agreement_with_baselines(
        table, n_resamples=200, rng=np.random.default_rng(1)
    ).set_index("who")
    known = pairwise_agreement(
        table, ties="exclude", n_resamples=200, rng=np.random.default_rng(1)
    ).table.iloc[0]
    for end in ("", "_low", "_high"):
        assert found.loc["model", f"agreement{end}"] == pytest.approx(known[f"agreement{end}"])
        assert found.loc["author_only", f"agreement{end}"] == pytest.approx(
            known[f"author_only{end}"]
        )
        assert found.loc["author_only", f"lead{end}"] == pytest.approx(known[f"advantage{end}"])
    assert found["lead"].isna().to_dict() == {"model": True, "author_only": False}


def test_a_feature_is_learnt_from_other_dialogues_and_equal_replies_are_a_coin():
    table = questions("aabba", "abbba")
    gaps = pd.DataFrame({"words": [2.0, 1.0, -3.0, 4.0, np.nan]}, index=table["pair_id"].unique())
    # Longer wins three times and loses once; without its own question it still wins more often. The
    # last is a coin.
    assert shares(table, gaps=gaps)["words"] == pytest.approx((3 + 0.5) / 5)
    # Half of the people prefer longer replies: what is left over always says the opposite of the
    # question left out.
    table = questions("abab", "aaaa")
    gaps = pd.DataFrame({"words": [1.0, 1.0, 1.0, 1.0]}, index=table["pair_id"].unique())
    assert shares(table, gaps=gaps)["words"] == 0.0


def test_several_features_are_also_taken_together():
    table = questions("aabbabab" * 5, "aaaaaaaa" * 5)
    shape = {
        "words": [1, 2, -1, -2, -1, 2, 2, -1] * 5,
        "lists": [0, 0, 0, 0, 3, -3, 0, 0] * 5,
        "never": [0] * 40,
    }
    found = shares(table, gaps=pd.DataFrame(shape, index=table["pair_id"].unique(), dtype=float))
    assert list(found) == ["model", "author_only", "words", "lists", "style"]
    assert found["words"] == pytest.approx(6 / 8)  # two of eight go against the longer reply
    # these two follow their lists; the others have none
    assert found["lists"] == pytest.approx((2 + 6 / 2) / 8)
    assert found["style"] == 1.0


def test_what_was_shown_first_counts_vote_by_vote():
    table = questions("aabba", "aaaaa", order=["ab", "ab", "ba", "ab", None])
    # The first was chosen in three of four; the last vote has no order.
    assert shares(table)["first_shown"] == pytest.approx((3 + 0.5) / 5)
    swapped = table.assign(order=table["order"].map({"ab": "ba", "ba": "ab"}))
    assert shares(swapped)["first_shown"] == pytest.approx(3.5 / 5)  # then people prefer the second
    assert "first_shown" not in shares(table.drop(columns="order"))


def test_votes_of_people_alone_have_baselines_and_no_lead():
    people = questions("aaab", "aaaa").query("rater_kind == 'human'")
    found = agreement_with_baselines(people, between=("human", None), by=[], n_resamples=50)
    assert found["who"].tolist() == ["author_only"]
    assert found["agreement"].tolist() == [0.75]
    assert found[["lead", "lead_low"]].isna().all(axis=None)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"by": ["ambiguity"]}, "ambiguity"),
        ({"gaps": pd.DataFrame({"words": [1.0]}, index=["nowhere"])}, "pair_id"),
        ({}, "decided"),
    ],
)
def test_baselines_that_cannot_be_compared_are_refused(settings, says):
    table = questions("ab", "ab") if settings else questions(["tie", "a"], ["a", "tie"])
    with pytest.raises(AgreementError, match=says):
        shares(table, **settings)


# Ceilings


def bounds(agreement):
    return agreement, float(highest_ceiling(np.array(agreement)))


def draw_votes(rng, share, n_votes, per_dialogue=10):
    """Let n people vote on each pair, each preferring a with the pair's own probability."""
    n_pairs = len(share)
    words = np.where(rng.random((n_pairs, n_votes)) < share[:, None], "a", "b")
    pair = np.repeat(np.arange(n_pairs), n_votes)
    return pd.DataFrame({
        "pair_id": pair, "dialogue_id": pair // per_dialogue, "rater": np.tile(np.arange(n_votes), n_pairs),
        "rater_kind": "human", "verdict": words.ravel(),
    })  # fmt: skip


def test_the_bounds_for_heart_are_those_of_the_arithmetic():
    """For p with p^2 + (1 - p)^2 = .795: .884, so that .884^2 + .116^2 is .795 again."""
    assert bounds(0.795) == pytest.approx((0.795, 0.884), abs=5e-4)
    assert pytest.approx(0.795, abs=5e-4) == 0.884**2 + 0.116**2


@settings(max_examples=30)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_the_ceiling_lies_between_the_bounds_whatever_the_pairs_are_like(shares):
    share = np.array(shares)
    low, high = bounds(float(np.clip((share**2 + (1 - share) ** 2).mean(), 0.5, 1)))
    assert low - 1e-9 <= np.maximum(share, 1 - share).mean() <= high + 1e-9


@pytest.mark.parametrize("n_votes", [5, 15])
def test_the_ceiling_is_recovered_from_how_votes_split(rng, n_votes):
    share = expit(rng.normal(0, 1.5, 3000))  # simulated
    found = estimate_ceiling(draw_votes(rng, share, n_votes), n_resamples=50).iloc[0]
    assert found.estimate == pytest.approx(np.maximum(share, 1 - share).mean(), abs=0.012)
    assert found.agreement == pytest.approx((share**2 + (1 - share) ** 2).mean(), abs=0.012)
    low, high = bounds(found.agreement)
    assert low < found.ci_low < found.estimate < found.ci_high < high
    assert (found.n_pairs, found.n_clusters) == (3000, 300)


def test_with_three_votes_a_pair_the_interval_is_that_of_the_bounds(rng):
    """Three votes tell how often two people agree and no more; five tell how the ceiling lies
    between."""
    share = expit(rng.normal(0, 1.5, 600))
    three, five = (
        estimate_ceiling(draw_votes(rng, share, n), n_resamples=50).iloc[0] for n in (3, 5)
    )
    assert (three.decides, five.decides) == (False, True)
    low, high = bounds(three.agreement)
    assert three.ci_low < low
    assert three.ci_high > high
    assert five.ci_high - five.ci_low < high - low < three.ci_high - three.ci_low


def test_ties_and_models_do_not_count():
    table = draw_votes(np.random.default_rng(1), np.full(40, 0.9), 4)
    more = table.assign(rater=table["rater"] + 10, verdict="tie")
    judged = table.assign(rater=table["rater"] + 20, rater_kind="model", verdict="b")
    found = estimate_ceiling(pd.concat([table, more, judged]))
    pd.testing.assert_frame_equal(found, estimate_ceiling(table))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda table: table[table["rater"] < 2],
            "No pair has 3 decided votes by people \\(the most is 2\\)",
        ),
        (lambda table: table.assign(rater_kind="model"), "No answer that counts is by 'human'"),
        (
            lambda table: table.drop(columns="verdict").assign(
                score=1.0, reply_id=table["pair_id"]
            ),
            "lack the column verdict.*not of scores",
        ),
    ],
)
def test_what_has_no_ceiling_is_refused_with_a_reason(change, message):
    with pytest.raises(AgreementError, match=message):
        estimate_ceiling(change(draw_votes(np.random.default_rng(1), np.full(10, 0.8), 3)))


def test_no_ceiling_is_above_one_however_few_the_dialogues_or_resamples(rng):
    found = estimate_ceiling(draw_votes(rng, np.full(40, 0.97), 7), n_resamples=2).iloc[0]
    assert found.ci_low < found.estimate <= found.ci_high <= 1


def test_the_ends_of_the_bounds_are_those_of_agreement_resampled():
    """Three votes a pair: the ends are those of the agreement of two people, the upper one carried
    to its highest ceiling."""
    table = draw_votes(np.random.default_rng(2), np.full(120, 0.85), 3, per_dialogue=5)
    found = estimate_ceiling(table, n_resamples=20, rng=np.random.default_rng(3)).iloc[0]
    n_a = (table["verdict"] == "a").groupby(table["pair_id"]).sum()
    agree = np.where(n_a.isin([0, 3]), 1.0, 1 / 3)  # of three pairs of votes, all or one is equal
    pairs = pd.DataFrame(
        {"agree": agree, "n": 1, "dialogue_id": table.groupby("pair_id")["dialogue_id"].first()}
    )
    known = bootstrap_ci(
        pairs, lambda sums: sums["agree"] / sums["n"], cluster="dialogue_id", n_resamples=20, rng=np.random.default_rng(3),
        least=0.0, most=1.0,
    )  # fmt: skip
    assert (found.ci_low, found.ci_high) == pytest.approx(
        (known.ci_low, float(highest_ceiling(np.array(known.ci_high))))
    )


# Panels


def draw_errors(rng, *, rho, n_judges=3, n_people=3, n=2000, reliability=0.5):
    """Scores of people and of judges whose errors correlate by rho (simulated)."""
    truth = rng.normal(size=n)
    shared = rng.normal(size=n) * np.sqrt(rho)
    noise = np.sqrt((1 - reliability) / reliability)
    said = {f"p{k}": truth + noise * rng.normal(size=n) for k in range(n_people)}
    said |= {
        f"m{k}": 0.3 * k + truth + shared + np.sqrt(1 - rho) * rng.normal(size=n)
        for k in range(n_judges)
    }
    parts = [
        pd.DataFrame(
            {"reply_id": range(n), "dialogue_id": np.arange(n) // 4, "rater": name, "score": values}
        )
        for name, values in said.items()
    ]
    return pd.concat(parts, ignore_index=True).assign(
        rater_kind=lambda rows: np.where(rows["rater"].str[0] == "m", "model", "human")
    )


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.9])
def test_the_number_of_independent_judges_is_recovered(rng, rho):
    found = effective_judges(draw_errors(rng, rho=rho), n_resamples=200).iloc[0]
    assert found["rho"] == pytest.approx(rho, abs=0.05)
    assert found["n_eff_low"] < 3 / (1 + 2 * rho) < found["n_eff_high"]


@pytest.mark.parametrize("rho", [0.0, 0.5])
def test_a_person_who_scores_higher_throughout_changes_nothing(rng, rho):
    """Their level is no noise; crossed over three people it would be taken off the errors that
    judges share."""
    table = draw_errors(rng, rho=rho, n=400)
    stricter = table.assign(score=table["score"] - 2.0 * (table["rater"] == "p1"))
    plain, shifted = (effective_judges(rows, n_resamples=0).iloc[0] for rows in (table, stricter))
    assert shifted["rho"] == pytest.approx(plain["rho"])
    assert shifted["rho"] == pytest.approx(rho, abs=0.1)


def test_with_one_person_the_true_reliability_gives_the_true_number(rng):
    table = draw_errors(rng, rho=0.5, n_people=1, reliability=0.7)
    found = effective_judges(table, n_resamples=0).set_index("reliability")
    assert found.index.tolist() == [0.4, 0.5, 0.6, 0.7, 0.8, 0.9]
    assert found.loc[0.7, "n_eff"] == pytest.approx(1.5, abs=0.1)
    assert found["n_eff"].is_monotonic_decreasing
    moved = effective_judges(table.assign(score=table["score"] + 5.0), n_resamples=0)
    assert moved["rho"].tolist() == pytest.approx(found["rho"].tolist())  # another zero


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda table: effective_judges(table[table["rater"] != "m2"]),
            "two judges or more; there is m1",
        ),
        (
            lambda table: effective_judges(table[table["rater_kind"] == "model"]),
            "No answer that counts is by 'human'",
        ),
        (
            lambda table: effective_judges(
                table[(table["rater"] != "m2") | (table["dialogue_id"] == "f")]
            ),
            "No unit was answered by all judges",
        ),
        (
            lambda table: effective_judges(table.drop(columns="rater_kind")),
            "lack the column rater_kind",
        ),
    ],
)
def test_what_is_no_panel_is_refused_with_a_reason(call, message):
    table = votes(
        [("x-y", d, who, "a") for d in "de" for who in ("p1", "m1", "m2")]
        + [("x-y", "f", "m2", "a")]
    )
    with pytest.raises(AgreementError, match=message):
        call(table)


def test_which_reply_is_called_a_changes_no_number_of_judges(rng):
    panels = [Panel("human", 4, 4, ties=0.5), Panel("model", 3, 3, ties=0.3)]
    rows = simulate_study(rng=rng, strengths=4, n_dialogues=40, pairs="all", panels=panels).verdicts
    turned = rows.assign(verdict=rows["verdict"].replace({"a": "b", "b": "a"}), p_a=None)
    turned = turned.rename(columns={"responder_a": "responder_b", "responder_b": "responder_a"})
    rows = rows.assign(p_a=None)
    found = [
        effective_judges(table, n_resamples=0)[["rho", "n_eff"]].to_numpy()
        for table in (rows, turned)
    ]
    np.testing.assert_allclose(*found)


def test_a_tie_lies_in_the_middle_between_a_and_b():
    """m2 calls a tie where m1 is wrong outright: errors 2 and 1 on half of the pairs, so rho is 2 *
    1 over (4 + 1) / 2."""
    rows = [
        ("x-y", f"d{k}", who, said) for k in range(20) for who, said in (("p1", "a"), ("p2", "a"))
    ]
    rows += [
        ("x-y", f"d{k}", who, said if k % 2 else "a")
        for k in range(20)
        for who, said in (("m1", "b"), ("m2", "tie"))
    ]
    assert effective_judges(votes(rows), n_resamples=0)["rho"][0] == pytest.approx(2 / 2.5)


# Who may replace whom


def annotated(rng, *, noise, judge_noise, n_items=80):
    truth = rng.normal(3, 1, n_items)
    people = truth[:, None] + rng.normal(0, noise, (n_items, 4))
    judge = truth[:, None] + rng.normal(0, judge_noise, (n_items, 1))
    return scores(np.hstack([people, judge]).round(), raters=["p1", "p2", "p3", "p4", "m"])


def test_p_values_and_rejections_are_scipys_and_statsmodels(rng):
    table = annotated(rng, noise=1.0, judge_noise=1.0)
    found = alternative_annotator_test(table, "m", epsilon=0.15)
    sheet = table.pivot_table(index="reply_id", columns="rater", values="score")
    p_values = []
    for left_out in ["p1", "p2", "p3", "p4"]:
        others = sheet[[name for name in ["p1", "p2", "p3", "p4"] if name != left_out]]
        far = {
            who: np.sqrt(((others.sub(sheet[who], axis=0)) ** 2).mean(axis=1))
            for who in (left_out, "m")
        }
        difference = (far[left_out] <= far["m"]).astype(float) - (far["m"] <= far[left_out])
        p_values.append(ttest_1samp(difference, 0.15, alternative="less").pvalue)
    assert found["p_value"].tolist() == pytest.approx(p_values)
    assert found["rejected"].tolist() == multipletests(p_values, 0.05, method="fdr_by")[0].tolist()


@pytest.mark.parametrize(
    ("change", "settings", "message"),
    [
        (
            lambda table: table[~table["rater"].isin(["p1", "p2"])],
            {},
            "three people|3 people or more",
        ),
        (
            lambda table: table[table["reply_id"].str.len() < len("reply_20")],
            {},
            "there are 0 of 4",
        ),
        (lambda table: table, {"epsilon": 2.0}, "epsilon must lie between 0 and 1"),
        (lambda table: table[table["rater"] != "m"], {}, "'m' gave no answer"),
    ],
)
def test_what_cannot_be_tested_is_refused_with_a_reason(rng, change, settings, message):
    table = change(annotated(rng, noise=1, judge_noise=1))
    with pytest.raises(AgreementError, match=message):
        alternative_annotator_test(table, "m", **{"epsilon": 0.1, **settings})


def test_a_person_may_be_put_to_the_test_and_who_gave_no_answer_is_no_person(rng):
    table = annotated(rng, noise=1.0, judge_noise=1.0).assign(state="valid")
    failed = table[table["rater"] == "p1"].assign(rater="p9", score=np.nan, state="error")
    found = alternative_annotator_test(pd.concat([table, failed]), "p4", epsilon=0.15)
    assert found.iloc[:, 0].tolist() == ["p1", "p2", "p3"]


@pytest.mark.parametrize("agree", [0.5, 0.7, 1.0])
def test_a_judge_that_never_reads_replaces_nobody(rng, agree):
    """Four people toss coins, agree a little, or all say a; the judge always says a, or tosses."""
    truth = rng.random(300) < 0.5 if agree < 1 else np.ones(300, dtype=bool)
    for judge in (np.ones(300, dtype=bool), rng.random(300) < 0.5):
        people = [np.where(rng.random(300) < agree, truth, ~truth) for _ in range(4)]
        sheet = np.column_stack([*people, judge]).astype(float)
        table = scores(sheet, raters=["p1", "p2", "p3", "p4", "m"])
        assert not alternative_annotator_test(table, "m", epsilon=0.2)["rejected"].all()


# Ranks within a conversation


def conversations(sheets):
    """Make scores from {history: {rater: scores of its replies}}."""
    rows = [
        (f"{history}--{k}", history, history, f"r{k}", rater, score)
        for history, said in sheets.items()
        for rater, values in said.items()
        for k, score in enumerate(values)
        if score is not None
    ]
    table = pd.DataFrame(
        rows, columns=["reply_id", "history_id", "dialogue_id", "responder", "rater", "score"]
    )
    return table.assign(
        dimension="empathy",
        rater_kind=np.where(table["rater"].str.startswith("m"), "model", "human"),
    )


@settings(max_examples=12)
@given(
    st.lists(
        st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4)), min_size=2, max_size=6),
        min_size=1,
        max_size=4,
    )
)
def test_tau_is_the_mean_of_scipys_over_conversations(sheets):
    table = conversations(
        {
            f"h{k}": dict(zip("pm", zip(*sheet, strict=True), strict=True))
            for k, sheet in enumerate(sheets)
        }
    )
    found = rank_agreement(table, n_resamples=0).iloc[0]
    taus = [
        kendalltau(*zip(*sheet, strict=True)).statistic
        for sheet in sheets
        if all(len(set(side)) > 1 for side in zip(*sheet, strict=True))
    ]
    assert found["n_defined"] == len(taus)
    if taus:
        assert found["tau"] == pytest.approx(np.mean(taus))


def test_replies_that_one_rater_did_not_score_are_not_compared():
    found = rank_agreement(
        conversations({"h": {"p": [1, None, 2], "m": [1, 5, 2]}}), n_resamples=0
    ).iloc[0]
    assert (found["tau"], found["n_defined"]) == (1.0, 1)


def test_full_agreement_leaves_the_doubt_that_ten_dialogues_leave():
    """Wilson's low end of ten of ten is 10 / (10 + t^2), t with nine degrees of freedom; of tau
    twice that less one."""
    table = conversations({f"h{k}": {"p": [1, 2, 3], "m": [2, 4, 5]} for k in range(10)})
    found = rank_agreement(table).iloc[0]
    low = 10 / (10 + 2.262157**2)
    assert found[["tau_low", "tau_high"]].tolist() == pytest.approx([2 * low - 1, 1.0])


def test_each_two_raters_of_one_party_meet_once():
    table = conversations({"h": {"p1": [1, 2], "p2": [1, 2], "p3": [2, 1]}})
    found = rank_agreement(table, between=("human", "human"), n_resamples=0).iloc[0]
    assert (found["n_histories"], found["tau"]) == (3, pytest.approx(-1 / 3))


@pytest.mark.parametrize(
    ("change", "between", "message"),
    [
        (lambda table: table.drop(columns="history_id"), "model", "lack the column history_id"),
        (lambda table: table.drop(columns="score"), "model", "lack the column score"),
        (
            lambda table: table[table["rater"] == "p"],
            "model",
            "No answer that counts is by 'model'",
        ),
        (lambda table: table.drop(index=1), "model", "human and model share no history"),
        (lambda table: table, "human", "human and human share no history"),
    ],
)
def test_what_cannot_be_ranked_is_refused_with_a_reason(change, between, message):
    table = change(conversations({"h": {"p": [1, 2], "m": [1, 2]}}))
    with pytest.raises(AgreementError, match=message):
        rank_agreement(table, between=("human", between))
