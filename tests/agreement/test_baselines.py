import numpy as np
import pandas as pd
import pytest
from agreement_tables import random_votes, votes

from heart_utils import scores_to_verdicts
from heart_utils.agreement.agreement import pairwise_agreement
from heart_utils.agreement.panel import agreement_with_baselines
from heart_utils.judges.position import feature_gaps
from heart_utils.ratings.verdicts import AgreementError
from heart_utils.runs import open_run


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


def test_a_baseline_that_knows_nothing_is_right_half_of_the_time():
    """Simulated: 400 questions, people and judge prefer by content alone, lengths are noise."""
    rng = np.random.default_rng(5)
    content = rng.integers(0, 2, 400)
    table = questions(
        np.array(["a", "b"])[content], np.array(["a", "b"])[content ^ (rng.random(400) < 0.1)]
    )
    gaps = pd.DataFrame({"words": rng.normal(size=400)}, index=table["pair_id"].unique())
    found = agreement_with_baselines(table, gaps=gaps, by=[], n_resamples=200).set_index("who")
    assert found.loc["model", "agreement"] == pytest.approx(0.9, abs=0.04)
    assert found.loc["words", "agreement"] == pytest.approx(0.5, abs=0.08)
    assert found.loc["words", "lead_low"] > 0.25


def test_gaps_are_a_minus_b():
    comparisons = pd.DataFrame({"pair_id": ["p", "p"], "reply_a": "r", "reply_b": "s"})
    gaps = feature_gaps(comparisons, pd.DataFrame({"words": [5.0, 2.0]}, index=["r", "s"]))
    assert gaps.to_dict() == {"words": {"p": 3.0}}


def test_length_decides_more_than_a_coin_for_welivitas_strangers():
    tallies = (
        open_run("public")
        .read("tallies", "welivita")
        .query("by == 'batch' and responder_b == 'gpt-4'")
    )
    rows = tallies.query("responder_a == 'person'")
    decided = rows[["n_a", "n_b"]].sum(axis=1)
    longer = (
        rows["n_a"]
        .where(rows["longer"] == "a", rows["n_b"])
        .where(rows["longer"] != "same", decided / 2)
    ).sum()
    assert longer / decided.sum() == pytest.approx(0.584, abs=5e-4)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"by": ["ambiguity"]}, "ambiguity"),
        ({"gaps": pd.DataFrame({"words": [1.0]}, index=["nowhere"])}, "pair_id"),
    ],
)
def test_what_cannot_be_compared_is_refused(settings, says):
    with pytest.raises(AgreementError, match=says):
        shares(questions("ab", "ab"), **settings)
    with pytest.raises(AgreementError, match="decided"):
        shares(questions(["tie", "a"], ["a", "tie"]))


@pytest.mark.parametrize("left_out", ["none", "original"])
def test_the_lead_of_each_judge_on_safety_is_the_mean_over_decided_pairs_counted_one_by_one(
    left_out,
):
    """As *Do judges agree?* prints it judge by judge: right or not, less whether the clinicians'
    usual answer elsewhere is."""
    scores = open_run("public").read("scores", "mentalalign").query("dimension == 'safety'")
    firm = scores_to_verdicts(scores[scores["responder"] != left_out]).query(
        "verdict in ['a', 'b']"
    )
    table = pairwise_agreement(firm, ties="exclude", by=["rater"], n_resamples=0).table.set_index(
        "rater"
    )
    said = firm.assign(says=firm["verdict"].map({"a": 1, "b": -1}))
    people = said[said["rater_kind"] == "human"]
    authors = people.groupby(["responder_a", "responder_b"])["says"]
    here = people.groupby(["responder_a", "responder_b", "dialogue_id"])["says"]
    people = people.assign(usual=np.sign(authors.transform("sum") - here.transform("sum")))
    judges = said[said["rater_kind"] == "model"]
    met = judges.merge(people[["pair_id", "says", "usual"]], on="pair_id", suffixes=("", "_person"))
    lead = (met["says"] == met["says_person"]) - (1 + met["usual"] * met["says_person"]) / 2
    assert table["advantage"].to_dict() == pytest.approx(
        lead.groupby(met["rater"]).mean().to_dict()
    )
    assert (table["advantage"] > 0.05).all()
