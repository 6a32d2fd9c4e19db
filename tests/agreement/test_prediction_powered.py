"""Few verdicts of people and many of a judge: against ppi-python, the plain fit and the sandwich."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from drawn_votes import PANELS, Layout, draw_judged, measure_powered, measure_several
from scipy import stats

from heart_utils.agreement.prediction_powered import labelled_weights, prediction_powered_ratings
from heart_utils.ratings.bradley_terry import ConvergenceError, NotComparableError
from heart_utils.ratings.ratings import Clusters, fit_ratings
from heart_utils.ratings.verdicts import AgreementError, VerdictsError
from heart_utils.simulate.study import Panel, simulate_study

WORD = {1.0: "a", 0.5: "tie", 0.0: "b"}


# Ten answers with labels, the predictions beside them, and twenty predictions alone.
LABELS = [1, 1, 0, 1, 0.5, 0, 1, 1, 0, 1]


BESIDE = [1, 1, 0, 1, 0, 0, 1, 0, 0.5, 1]


ALONE = [1, 0, 0, 1, 1, 0, 1, 0, 0, 1, 0.5, 0, 1, 0, 1, 0, 0, 1, 1, 0]


def duel(labels=LABELS, beside=BESIDE, alone=ALONE):
    """One pair of responders in every dialogue; people judged the first dialogues only."""
    rows = [(f"d{k:02d}", "p1", "human", WORD[said]) for k, said in enumerate(labels)]
    rows += [(f"d{k:02d}", "m1", "model", WORD[said]) for k, said in enumerate([*beside, *alone])]
    table = pd.DataFrame(rows, columns=["dialogue_id", "rater", "rater_kind", "verdict"])
    return table.assign(
        responder_a="x", responder_b="y", dimension="overall", pair_id=table["dialogue_id"] + "-x-y"
    )


def study(rng, n_dialogues=80, n_responders=5, **judge):
    panels = [Panel("human", 30, 2, ties=0.2), Panel("model", 1, 1, **judge)]
    return simulate_study(
        rng=rng, strengths=n_responders, n_dialogues=n_dialogues, pairs="all", panels=panels
    )


def label(verdicts, n, rng):
    chosen = rng.choice(verdicts["dialogue_id"].unique(), n, replace=False)
    return verdicts[verdicts["dialogue_id"].isin(chosen) | (verdicts["rater_kind"] == "model")]


@pytest.fixture
def powered(rng):
    """A study of five responders, of whose 80 dialogues people judged 25."""
    return label(study(rng).verdicts, 25, rng)


def gap(verdicts, **options):
    strength = prediction_powered_ratings(verdicts, **options).table.set_index("responder")
    return strength.loc["x", "strength"] - strength.loc["y", "strength"]


@pytest.mark.parametrize(("trust", "printed"), [(0.0, 0.65), (0.4, 0.62), (1.0, 0.575)])
def test_two_responders_give_the_mean_that_ppi_python_prints(trust, printed):
    """ppi-python 0.2.3: ppi_mean_pointestimate(LABELS, BESIDE, ALONE, lam=trust), run for this
    test.

    It compares labelled with unlabelled dialogues, we compare labelled with all: its lam is ours
    times the unlabelled share, 20 of 30.
    """
    found = gap(duel(), weight=trust / (20 / 30))
    assert found == pytest.approx(np.log(printed / (1 - printed)), abs=1e-6)


def test_the_width_is_ppi_pythons_but_for_t_and_degrees_of_freedom():
    """ppi-python 0.2.3: ppi_mean_ci(..., lam=0.4, alpha=0.05) is 0.38558142 to 0.85441858."""
    found = (
        prediction_powered_ratings(duel(), weight=0.4 / (20 / 30))
        .table.set_index("responder")
        .loc["x"]
    )
    se = (found["ci_high"] - found["ci_low"]) / 2 / 2.262157  # t with 9 degrees of freedom
    slope = 2 * 0.62 * 0.38  # strengths are half of log odds, with mean zero
    assert se * slope * np.sqrt(9 / 10) == pytest.approx(
        (0.85441858 - 0.38558142) / 2 / 1.959964, rel=0.03
    )


@pytest.mark.parametrize("unjudged", [False, True])
def test_without_trust_in_the_judge_it_is_the_fit_to_peoples_verdicts(powered, unjudged):
    """Also where nobody judged a pair."""
    if unjudged:
        first = sorted(set(powered["responder_a"]) | set(powered["responder_b"]))[:2]
        both = powered["responder_a"].isin(first) & powered["responder_b"].isin(first)
        powered = powered[~both]
    found = prediction_powered_ratings(powered, weight=0.0).table.set_index("responder")
    alone = fit_ratings(powered[powered["rater_kind"] == "human"], n_resamples=0).strength
    for column in ("strength", "people_strength"):
        assert found[column].to_dict() == pytest.approx(alone.to_dict(), abs=1e-6)
    assert found["ci_low"].to_numpy() == pytest.approx(found["people_low"].to_numpy())


def stubborn(verdicts):
    people = verdicts["rater_kind"] == "human"
    return verdicts.assign(verdict=verdicts["verdict"].where(people, "a"), state="valid")


@pytest.mark.parametrize("kind", ["a judge that always says the same", "people judged all"])
def test_a_judge_that_tells_nothing_changes_nothing(rng, kind):
    verdicts = study(rng).verdicts
    if kind == "people judged all":
        verdicts = verdicts.assign(stands_for=0.5)
        found = prediction_powered_ratings(verdicts, stands_for="stands_for", rater="rater")
    else:
        found = prediction_powered_ratings(stubborn(label(verdicts, 25, rng)))
    strengths = found.table[["strength", "people_strength"]].to_numpy().T
    assert strengths[0] == pytest.approx(strengths[1])
    assert found.saving == pytest.approx(0.0, abs=1e-9)


def test_zero_is_the_mean_of_those_whom_the_data_bound(powered):
    """It was the mean of all, so that somebody whom people always preferred moved everybody
    else."""
    verdicts = powered
    best, people = sorted(set(verdicts["responder_a"]))[0], verdicts["rater_kind"] == "human"
    word = verdicts["verdict"].mask(people & (verdicts["responder_a"] == best), "a")
    word = word.mask(people & (verdicts["responder_b"] == best), "b")
    table = prediction_powered_ratings(verdicts.assign(verdict=word)).table.set_index("responder")
    assert np.isnan(table.loc[best, "ci_low"])
    assert table.drop(best)[["strength", "people_strength"]].mean().to_numpy() == pytest.approx(
        [0.0, 0.0], abs=1e-9
    )


def test_a_good_judge_saves_labels_and_never_more_than_the_bound(rng):
    verdicts = label(study(rng, n_dialogues=120, discrimination=3.0).verdicts, 30, rng)
    found = prediction_powered_ratings(verdicts)
    assert 0.05 < found.saving < found.most_saving + 0.05
    assert found.most_saving == pytest.approx((1 - 30 / 120) * found.rho_squared)
    width = found.table["ci_high"] - found.table["ci_low"]
    assert width.mean() < (found.table["people_high"] - found.table["people_low"]).mean()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda table: table[(table["rater_kind"] == "model") | (table["dialogue_id"] < "d04")],
            "People judged 4 dialogue_id; 5 or more",
        ),
        (lambda table: table[table["dialogue_id"] < "d10"], "nothing is left to save"),
        (
            lambda table: table[(table["rater_kind"] == "human") | (table["dialogue_id"] > "d00")],
            "no verdict on dialogue_id d00, which people judged",
        ),
        (
            lambda table: table[table["rater_kind"] == "model"],
            "No answer that counts is by 'human'",
        ),
        (lambda table: table.drop(columns="rater_kind"), "no column rater_kind"),
        (
            lambda table: pd.concat([table, table.replace({"x": "v", "y": "w"})]),
            "cannot be rated with the others",
        ),
    ],
)
def test_what_cannot_be_powered_is_refused_with_a_reason(change, message):
    with pytest.raises((AgreementError, NotComparableError), match=message):
        prediction_powered_ratings(change(duel()))


def test_one_judge_may_be_asked_by_name(powered, rng):
    verdicts = powered
    judges = verdicts["rater_kind"] == "model"
    name = verdicts.loc[judges, "rater"].iloc[0]
    coin = verdicts[judges].assign(rater="a coin", verdict=rng.choice(["a", "b"], judges.sum()))
    both = pd.concat([verdicts, coin], ignore_index=True)
    alone, among = (prediction_powered_ratings(rows, judge=name) for rows in (verdicts, both))
    pd.testing.assert_frame_equal(alone.table, among.table)
    found = prediction_powered_ratings(both)
    assert found.weights["a coin"] < 0.1 < found.weights[name]
    mean = prediction_powered_ratings(both.iloc[:-1])  # the coin missed a pair: their mean
    assert list(mean.weights.index) == ["model"]
    assert mean.saving < found.saving


def test_intervals_with_a_weight_for_each_judge_hold():
    """Twenty-four studies; the bench has 300 of nine kinds."""
    found = measure_several(PANELS["one that reads and three coins"], 3, 60, 24)
    assert abs(found["each"].mean() - 0.95) < 0.02 + 2 * found["each"].sem()
    assert found["each width"].mean() < found["mean width"].mean()


@pytest.mark.parametrize("judges", [2, 5])
def test_judges_that_say_the_same_count_as_one(powered, judges):
    verdicts = powered
    own = verdicts[verdicts["rater_kind"] == "model"]
    copies = [own.assign(rater=f"copy {number}") for number in range(1, judges)]
    found = prediction_powered_ratings(pd.concat([verdicts, *copies], ignore_index=True))
    alone = prediction_powered_ratings(verdicts)
    assert found.weight == pytest.approx(alone.weight, abs=1e-6)
    assert found.saving == pytest.approx(alone.saving, abs=1e-6)


def unequal():
    """Forty dialogues in which x wins 30 times, all asked, and forty in which it wins 8, of which
    10 are asked."""
    won = ["a"] * 30 + ["b"] * 10 + ["a"] * 2 + ["b"] * 8
    people = [
        (f"d{n:02d}", f"p{n % 7}", "human", said, 1.0 if n < 40 else 4.0)
        for n, said in enumerate(won)
    ]
    rows = people + [(f"d{n:02d}", "m1", "model", "tie", np.nan) for n in range(80)]
    table = pd.DataFrame(
        rows, columns=["dialogue_id", "rater", "rater_kind", "verdict", "stands_for"]
    )
    return table.assign(
        responder_a="x", responder_b="y", dimension="overall", pair_id=table["dialogue_id"] + "-x-y"
    )


@pytest.mark.parametrize(("stands_for", "share"), [("stands_for", 38 / 80), (None, 32 / 50)])
def test_what_was_asked_less_often_stands_for_more(stands_for, share):
    """Without one over the chance the dialogues that were asked more often count for too much."""
    found = gap(unequal(), stands_for=stands_for)
    assert found == pytest.approx(np.log(share / (1 - share)), abs=1e-6)


def test_a_chance_must_be_above_zero():
    with pytest.raises(AgreementError, match="stands_for of people's verdicts must be above zero"):
        prediction_powered_ratings(
            unequal().replace({"stands_for": {4.0: 0.0}}), stands_for="stands_for"
        )


def test_drawing_raters_again_gives_the_two_way_sandwich(rng):
    """The second implementation is ``fit_ratings``, which also corrects for each cluster's
    leverage: a few percent wider."""
    panels = [Panel("human", 25, 1, rater_sd=1.0), Panel("model", 1, 1)]
    drawn = simulate_study(rng=rng, strengths=5, n_dialogues=80, pairs=6, panels=panels).verdicts
    found = prediction_powered_ratings(drawn, rater="rater", weight=0.0).table.set_index(
        "responder"
    )
    one_way = prediction_powered_ratings(drawn, weight=0.0).table.set_index("responder")
    people = drawn[drawn["rater_kind"] == "human"]
    other = fit_ratings(people, cluster=["dialogue_id", "rater"]).table.set_index("responder")
    width, narrow, wanted = (
        table["ci_high"] - table["ci_low"] for table in (found, one_way, other)
    )
    assert (width / wanted[width.index]).to_numpy() == pytest.approx(np.ones(5), abs=0.12)
    assert width.mean() > 1.2 * narrow.mean()


def test_the_interval_and_the_ranks_are_those_of_the_covariance(rng):
    found = prediction_powered_ratings(label(study(rng, n_responders=3).verdicts, 25, rng))
    table = found.table.set_index("responder")
    reach = stats.t.ppf(0.975, found.fewest - 1) * np.sqrt(
        np.diag(found.covariances[0].loc[table.index, table.index])
    )
    assert ((table["ci_high"] - table["ci_low"]) / 2).tolist() == pytest.approx(reach.tolist())
    one, other = table.index[:2]
    for judge, column in ((True, "strength"), (False, "people_strength")):
        covariance = found.covariances[0 if judge else 1]
        covariance = covariance.loc[[one, other], [one, other]]
        se = np.sqrt(
            covariance.loc[one, one] + covariance.loc[other, other] - 2 * covariance.loc[one, other]
        )
        # two told apart where their interval excludes equality
        for times, worst in ((1.01, [1, 2]), (0.99, [2, 2])):
            gap = times * stats.t.ppf(0.975, found.fewest - 1) * se
            pair = found.table.iloc[:2].assign(
                responder=[one, other], **{column: [gap / 2, -gap / 2]}
            )
            assert replace(found, table=pair).ranks(judge=judge)["rank_high"].tolist() == worst


def test_what_the_judge_weighs_in_a_dialogue_is_learnt_from_the_others(rng):
    """Least squares of people's scores on the judge's, with the unlabelled dialogues' own
    variance."""
    own, apart, elsewhere = (
        rng.normal(size=(12, 3)),
        rng.normal(size=(12, 3)),
        rng.normal(size=(40, 3)),
    )
    own = own + apart
    weights = labelled_weights(own, apart[None], elsewhere[None], 0.3, np.eye(3))[0]
    rest = 0.3 * 0.7 * np.trace(np.cov(elsewhere, rowvar=False))
    for left, weight in enumerate(weights):
        one, other = np.delete(own, left, axis=0), np.delete(apart, left, axis=0)
        both = np.cov(one, other, rowvar=False)
        assert weight == pytest.approx(
            np.clip(np.trace(both[:3, 3:]) / (np.trace(both[3:, 3:]) + rest), 0, 1)
        )


FEW = Layout(n_responders=8, n_labelled=60, pairs=2, votes=1, judged=2)  # 4.3 dialogues a pair


def test_intervals_hold_where_a_pair_has_few_labelled_dialogues():
    """85 % held when residuals were about a pair's own mean; 0.9 is three Monte Carlo errors below
    95 %."""
    found = [measure_powered(*draw_judged(FEW, np.random.default_rng(seed))) for seed in range(16)]
    for who in ("powered", "people"):
        assert np.mean([one[who] for one in found]) > 0.9
    assert np.mean([one["false"] for one in found]) <= 0.1
    assert min(one["saving"] for one in found) >= 0.0


def test_with_few_dialogues_a_pair_intervals_are_nearly_as_wide_as_on_the_leaderboard():
    """They were 0.7 times as wide; the leaderboard's correction for leverage is the jackknife's,
    which is the wider."""
    votes, _ = draw_judged(FEW, np.random.default_rng(1))
    found = prediction_powered_ratings(votes, weight=0.0).table.set_index("responder")
    people = votes[votes["rater_kind"] == "human"]
    board = fit_ratings(people, cluster=Clusters("dialogue_id", "sandwich")).table.set_index(
        "responder"
    )
    width, wanted = found["people_high"] - found["people_low"], board["ci_high"] - board["ci_low"]
    assert 0.8 < (width / wanted[width.index]).mean() < 1.0


def test_a_judge_that_does_not_help_is_not_used():
    unused = 0
    for rng in map(np.random.default_rng, range(6)):
        coin = label(study(rng, 40, 3, discrimination=0.0).verdicts, 8, rng)
        found = prediction_powered_ratings(coin)
        assert found.saving >= 0.0
        if found.weight == 0.0:
            unused += 1
            assert found.saving == 0.0
            assert found.table["ci_low"].tolist() == found.table["people_low"].tolist()
    assert unused


def test_a_judge_that_would_move_somebody_beyond_all_wins_is_not_used():
    """People prefer x in 9 of 10; beside them the judge never does, elsewhere always: 0.9 + 0.95 of
    a win has no strength."""
    votes = duel(labels=[1] * 9 + [0], beside=[0] * 10, alone=[1] * 200)
    with pytest.raises(ConvergenceError, match="find no end"):
        prediction_powered_ratings(votes, weight=1.0)
    found = prediction_powered_ratings(votes)
    assert np.isfinite(found.table[["strength", "ci_low", "ci_high"]]).all(axis=None)


def test_pairs_with_fewer_than_two_labelled_dialogues_are_refused_with_how_many_it_takes():
    votes, _ = draw_judged(
        Layout(n_responders=8, n_labelled=20, pairs=2, votes=1, judged=28), np.random.default_rng(3)
    )
    with pytest.raises(
        AgreementError,
        match=(
            r"People judged 1\.\d dialogue_id a pair .*Label 2\d dialogue_id like these instead"
            r" of 20"
        ),
    ):
        prediction_powered_ratings(votes)


def test_raters_that_are_too_few_cannot_be_drawn_again(powered):
    votes = powered.assign(rater="one and the same", order=None)
    with pytest.raises(VerdictsError, match="1 of 'rater' are too few"):
        prediction_powered_ratings(votes, rater="rater")
