"""Intervals for other raters too: written out by hand, and refused where raters cannot stand for
others."""

import itertools
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from agreement_tables import random_votes
from scipy import stats

from heart_utils.agreement.agreement import pair_votes, pairwise_agreement
from heart_utils.ratings.resampling import clustered_error, draw_weights, two_way_error
from heart_utils.ratings.standings import head_to_head
from heart_utils.ratings.verdicts import AgreementError, RatingsError, read_votes

BOTH = ["dialogue_id", "rater"]
WHO = pd.DataFrame(
    {"responder": list("wxyz"), "responder_kind": ["human", "model", "model", "human"]}
)


def wilson(share, variance, n_clusters):
    """Wilson's interval with as many observations as would have this variance, written out."""
    t, n = stats.t.ppf(0.975, n_clusters - 1), share * (1 - share) / variance
    middle, reach = share + t**2 / (2 * n), t * np.sqrt(share * (1 - share) / n + t**2 / (4 * n**2))
    return [(middle - reach) / (1 + t**2 / n), (middle + reach) / (1 + t**2 / n)]


@pytest.fixture
def people(rng):
    """24 people with a habit each, how often they say a, and one judge."""
    table = random_votes(rng, n_dialogues=30, n_responders=4, n_people=24, n_judges=1, miss=0.6)
    habit = dict(zip(table["rater"].unique(), rng.random(25), strict=True))
    says_a = rng.random(len(table)) < 0.5 * table["rater"].map(habit)
    return table.assign(verdict=table["verdict"].mask(says_a, "a"))


def test_the_variance_of_a_share_is_dialogues_and_raters_less_what_is_counted_twice(people, rng):
    people = people[people["rater_kind"] == "human"]
    found = head_to_head(people, WHO, rng=rng, cluster=BOTH).set_index("outcome").loc["tie"]
    kinds = WHO.set_index("responder")["responder_kind"]
    met = people[people["responder_a"].map(kinds) != people["responder_b"].map(kinds)]
    off = met.assign(off=(met["verdict"] == "tie") - (met["verdict"] == "tie").mean())
    share = (met["verdict"] == "tie").mean()

    def leave_out(by):
        moves = [off.drop(index=rows.index)["off"].mean() for _, rows in off.groupby(by)]
        return (len(moves) - 1) / len(moves) * np.square(moves).sum()

    dialogues, raters, cells = (leave_out(by) for by in ("dialogue_id", "rater", BOTH))
    variance = max(dialogues + raters - cells, dialogues, raters)
    _, even = clustered_error(
        (off["off"] / len(off)).to_numpy(),
        np.ones(len(off)),
        *(pd.factorize(off[by])[0] for by in BOTH),
    )
    assert found["n_clusters"] == 24 > even > 2
    assert found["share"] == pytest.approx(share)
    assert [found["ci_low"], found["ci_high"]] == pytest.approx(wilson(share, variance, even))
    assert found["n_clusters"] == 24
    assert found["provisional"]


def test_a_rater_s_pairs_of_votes_count_for_both_raters_in_them(people):
    """Agreement of people with people, without ties, gone through pair by pair; the dialogues' part
    is the bootstrap's."""
    found = pairwise_agreement(
        people,
        between=("human", "human"),
        ties="exclude",
        by=[],
        cluster=BOTH,
        n_resamples=300,
        rng=np.random.default_rng(3),
    ).table.iloc[0]
    firm = people[(people["rater_kind"] == "human") & (people["verdict"] != "tie")]
    met = [
        (dialogue, first.rater, second.rater, first.verdict == second.verdict)
        for (_, dialogue), rows in firm.groupby(["pair_id", "dialogue_id"])
        for first, second in itertools.combinations(rows.itertuples(), 2)
    ]
    met = pd.DataFrame(met, columns=["dialogue_id", "one", "other", "same"])
    off = (met["same"] - met["same"].mean()) / len(met)
    theirs = pd.concat([met.assign(rater=met[side], off=off) for side in ("one", "other")])
    squares = [(theirs.groupby(by)["off"].sum() ** 2).sum() for by in ("rater", BOTH)]
    added = max((squares[0] - squares[1]) * 24 / 23, 0)
    same, n = met.groupby("dialogue_id")["same"].agg(["sum", "size"]).to_numpy(float).T
    weights = draw_weights(30, 300, np.random.default_rng(3))
    dialogues = ((weights @ same) / (weights @ n)).var(ddof=1) * 30 / 29
    assert found["agreement"] == pytest.approx(met["same"].mean())
    ends = wilson(met["same"].mean(), dialogues + added, 24)
    assert [found["agreement_low"], found["agreement_high"]] == pytest.approx(ends, rel=1e-5)


@pytest.mark.parametrize("ties", ["include", "exclude"])
@pytest.mark.parametrize("other", ["human", "model"])
def test_what_the_names_get_right_by_cluster_adds_up(people, ties, other):
    pairs = pair_votes(read_votes(people), between=("human", other), by=[], ties=ties)
    names = pairs.names()
    assert names.right_by_cluster().sum(axis=0) == pytest.approx(
        names.count_right(np.ones((1, pairs.n_clusters)))[0]
    )
    assert replace(names, first=names.first / 2).right_by_cluster().sum() == pytest.approx(
        names.right_by_cluster().sum() / 2
    )


def test_other_raters_widen_every_measure_s_interval_where_raters_have_habits(people):
    tables = [
        pairwise_agreement(
            people, cluster=cluster, n_resamples=300, rng=np.random.default_rng(3)
        ).table.iloc[0]
        for cluster in ("dialogue_id", BOTH)
    ]
    for measure in ("agreement", "author_only", "advantage", "kappa", "kappa_within"):
        narrow, wide = (table[f"{measure}_high"] - table[f"{measure}_low"] for table in tables)
        assert narrow < wide < 5 * narrow


def test_an_error_below_that_of_raters_alone_is_theirs():
    dialogue, rater = np.repeat(np.arange(4), 3), np.tile(np.arange(3), 4)
    likes = (rater == 2).astype(float)
    assert two_way_error((likes - 1 / 3) / 12, dialogue, rater) ** 2 == pytest.approx(
        3 / 2 * (4 / 9 + 2 / 9) / 9
    )


def test_few_raters_or_nested_ones_or_judges_cannot_stand_for_others(people, rng):
    humans = people[people["rater_kind"] == "human"]
    few = humans[humans["rater"].isin(["p1", "p2", "p3"])]
    nested = humans.assign(rater=humans["dialogue_id"] + humans["rater"])
    with pytest.raises(RatingsError, match="3 of 'rater' are too few to stand for others"):
        head_to_head(few, WHO, rng=rng, cluster=BOTH)
    with pytest.raises(RatingsError, match="Each rater belongs to one dialogue_id only"):
        head_to_head(nested, WHO, rng=rng, cluster=BOTH)
    with pytest.raises(AgreementError, match="3 of 'rater' are too few"):
        pairwise_agreement(few, between=("human", "human"), cluster=BOTH)
    with pytest.raises(AgreementError, match=r"only where a rater group is people"):
        pairwise_agreement(people, between=("p1", "m0"), cluster=BOTH)
    with pytest.raises(AgreementError, match="and 'rater'; got"):
        pairwise_agreement(people, cluster=["dialogue_id", "slice"])
    with pytest.raises(RatingsError, match="lack the column grader"):
        head_to_head(humans, WHO, rng=rng, cluster=["dialogue_id", "grader"])
