"""The four studies in data/public: means as their papers print them, shares and intervals by second
implementations."""

import numpy as np
import pandas as pd
import pingouin as pg
import pytest
import statsmodels.formula.api as smf
from scipy import stats
from statsmodels.stats.proportion import proportion_confint

from heart_utils.evidence import (
    BOTS,
    EffectError,
    count_wins,
    measured_effects,
    share_clustered,
)
from heart_utils.report.tables import read_results
from heart_utils.runs import find_root, open_run

SETS = {"recipients": "scores", "welivita": "tallies", "resort": "tallies", "therapists": "scores"}
ENDS = ["win_share", "ci_low", "ci_high"]


def by_statsmodels(wins, cluster):
    """Share and ends: the variance over even clusters, and Wilson's interval."""
    codes, names = pd.factorize(wins[cluster])
    error = (
        smf.ols("won ~ 1", wins)
        .fit(cov_type="cluster", cov_kwds={"groups": codes, "use_correction": False})
        .bse["Intercept"]
    )
    n_clusters = len(names)
    share, quantile = wins["won"].mean(), stats.t.ppf(0.975, n_clusters - 1)
    n = share * (1 - share) / (error**2 * n_clusters / (n_clusters - 1))
    return [
        share,
        *proportion_confint(share * n, n, alpha=2 * stats.norm.sf(quantile), method="wilson"),
    ]


def ends_of(wins, clusters):
    found = share_clustered(wins, clusters=clusters)
    return [found[name] for name in ENDS]


@pytest.fixture(scope="module")
def sets():
    return {name: open_run("public").read(table, name) for name, table in SETS.items()}


@pytest.fixture(scope="module")
def effects(sets):
    return measured_effects(**sets).set_index(["people", "models", "label"])


def test_the_effects_cover_each_kind_of_rater_and_no_share_lies_outside_its_interval(effects):
    assert set(effects["raters"]) == {"recipient", "stranger", "expert", "classifier"}
    assert (effects["ci_low"] < effects["win_share"]).all()
    assert (effects["win_share"] < effects["ci_high"]).all()


def test_recipients_by_label_are_pingouins_shares_with_delongs_variance(sets, effects):
    heard = sets["recipients"].query("dimension == 'felt_heard'")
    scores = {
        group: part["score"].to_numpy() for group, part in heard.groupby(["responder", "label"])
    }
    assert [len(part) for part in scores.values()] == [124, 110, 110, 111]
    assert [part.mean() for part in scores.values()] == pytest.approx(
        [5.407, 6.118, 4.820, 5.511], abs=5e-4
    )
    for label, (of_model, of_person) in {
        "person": ("person", "person"),
        "ai": ("ai", "ai"),
        "true": ("ai", "person"),
    }.items():
        models, people = scores["bing-chat", of_model], scores["person", of_person]
        row = effects.loc[("another participant", "Bing Chat, 2023", label)]
        assert row["win_share"] == pytest.approx(pg.mwu(models, people)["CLES"].iloc[0])
        wins = (np.sign(models[:, None] - people[None, :]) + 1) / 2
        parts = [
            wins.mean(axis=1).var(ddof=1) / len(models),
            wins.mean(axis=0).var(ddof=1) / len(people),
        ]
        df = sum(parts) ** 2 / sum(
            part**2 / (n - 1) for part, n in zip(parts, (len(models), len(people)), strict=True)
        )
        reach = stats.t.ppf(0.975, df) * np.sqrt(sum(parts))
        assert row[ENDS].tolist() == pytest.approx(
            [wins.mean(), wins.mean() - reach, wins.mean() + reach], abs=1e-6
        )


def test_strangers_are_the_mean_of_two_hundred_batches(sets, effects):
    for responder, model in {
        "gpt-4": "GPT-4",
        "gpt-4-empathy": "GPT-4 told what empathy is",
    }.items():
        rows = sets["welivita"].query(
            f"by == 'batch' and responder_a == 'person' and responder_b == '{responder}'"
        )
        sums = rows.groupby("cluster")[["n_a", "n_tie", "n_b"]].sum()
        assert (sums.sum(axis=1) == 10).all()
        shares = (sums["n_b"] + sums["n_tie"] / 2) / 10
        expected = by_statsmodels(shares.rename("won").reset_index(), "cluster")
        row = effects.loc[("crowd workers", model, "hidden")]
        assert row[ENDS].tolist() == pytest.approx(expected)
        counts = row[["n_clusters", "n_people_replies", "n_model_replies", "n_raters"]]
        assert counts.tolist() == [200, 2000, 2000, 400]  # two people read each batch


def test_psychologists_are_single_comparisons_over_posts_and_raters(sets, effects):
    for responder, people in {
        "trained": "people trained for the task",
        "commenter": "Reddit commenters",
    }.items():
        rows = sets["resort"].query(
            f"by == 'post' and dimension == 'empathy' and responder_a == '{responder}'"
        )
        single = pd.concat(
            rows.loc[rows.index.repeat(rows[count]), ["cluster", "rater"]].assign(won=won)
            for count, won in {"n_a": 0.0, "n_tie": 0.5, "n_b": 1.0}.items()
        )
        row = effects.loc[(people, "GPT-4 Turbo, Llama 2, Mistral", "hidden")]
        assert row[ENDS].tolist() == pytest.approx(ends_of(single, ["cluster", "rater"]))


def test_hard_moments_are_differences_of_shares_of_appropriate_replies(sets, effects):
    scores = sets["therapists"]
    # a model's missing replies, which the release counts as failures
    assert (scores["state"] != "valid").sum() == 173
    valid = scores[scores["state"] == "valid"]
    right = valid.pivot_table(index="dialogue_id", columns="responder", values="score")
    assert valid.loc[valid["responder"] == "therapist", "score"].mean() == pytest.approx(75 / 80)
    for models, chosen in {
        "five models": right.columns.difference([*BOTS, "therapist"]),
        "five therapy bots": list(BOTS),
    }.items():
        share = 0.5 + (right[chosen].mean(axis=1) - right["therapist"]).mean() / 2
        wins = valid.loc[
            valid["responder"] == "therapist", ["dialogue_id", "author_id", "score"]
        ].reset_index()
        wins["won"] = (
            0.5 + (wins["dialogue_id"].map(right[chosen].mean(axis=1)) - wins["score"]) / 2
        )
        expected = ends_of(wins, ["dialogue_id", "author_id"])
        assert expected[0] == pytest.approx(share)
        assert effects.loc[("therapists", models, "unclear"), ENDS].tolist() == pytest.approx(
            expected
        )


def test_therapists_are_known_by_the_six_numbers_of_the_release_of_which_two_stand_for_several_people(
    sets, effects
):
    people = sets["therapists"].query("responder == 'therapist'")
    assert sorted(people["author_id"].value_counts()) == [5, 5, 5, 5, 30, 30]
    moments = effects.reset_index().query("people == 'therapists'")
    assert set(moments["n_clusters"]) == {6}
    assert set(moments["raters"]) == {"classifier"}
    classed_by = (
        sets["therapists"]
        .query("state == 'valid'")
        .groupby("responder")["rater"]
        .unique()
        .map(list)
    )
    assert {name for name, by in classed_by.items() if by == ["people"]} == {"therapist", *BOTS}
    assert {tuple(by) for name, by in classed_by.items() if name not in ("therapist", *BOTS)} == {
        ("gpt-4o",)
    }


def test_what_the_figure_of_hard_moments_says_holds(sets):
    valid = sets["therapists"].query("state == 'valid'")
    right = valid.pivot_table(index="dialogue_id", columns="responder", values="score")
    five = right[right.columns.difference([*BOTS, "therapist"])]
    assert five.shape == (10, 5)
    assert right["therapist"].min() == 6 / 8
    assert (five.min(axis=1) <= 0.5).sum() == 8
    assert (five.loc[["dead", "stalking"]].max(axis=1) < 0.7).all()
    assert (five.drop(["dead", "stalking"]).max(axis=1) > 0.97).all()


def test_the_difference_between_two_kinds_of_people_in_chapter_1_is_statsmodels_two_way(sets):
    executed = find_root() / "build" / "executed" / "sample" / "01_who_supports_better.ipynb"
    if not executed.is_file():
        pytest.skip("needs book: run `make book`")
    glued = read_results(executed)
    rows = sets["resort"].query("by == 'post' and dimension == 'empathy'")
    single = pd.concat(
        rows.loc[rows.index.repeat(rows[count]), ["responder_a", "cluster", "rater"]].assign(
            won=won
        )
        for count, won in {"n_a": 0.0, "n_tie": 0.5, "n_b": 1.0}.items()
    ).assign(commenter=lambda drawn: 1.0 * (drawn["responder_a"] == "commenter"))
    codes = single[["cluster", "rater"]].apply(lambda names: pd.factorize(names)[0])
    fits = [
        smf.ols("won ~ commenter", single).fit(
            cov_type="cluster", cov_kwds={"groups": groups, "use_correction": False}
        )
        for groups in (codes.to_numpy(), codes["cluster"], codes["rater"])
    ]
    error = max(fit.bse["commenter"] for fit in fits) * np.sqrt(4 / 3)  # four psychologists
    apart, reach = fits[0].params["commenter"], stats.t.ppf(0.975, 3) * error
    shown = [glued[f"people-apart{end}"] for end in ("", "-low", "-high")]
    assert shown == pytest.approx([100 * apart, 100 * (apart - reach), 100 * (apart + reach)])
    assert shown[1] < 0 < shown[2], "the chapter says that no difference is shown"


def test_a_study_with_one_cluster_is_named(sets):
    one = count_wins(
        sets["welivita"], by="batch", cluster="batch_001", responder_a="person", responder_b="gpt-4"
    )
    with pytest.raises(EffectError, match="There is 1 cluster"):
        share_clustered(one, clusters=["cluster"], weight="n")
    with pytest.raises(EffectError, match="There is 1 cluster"):
        measured_effects(**{**sets, "welivita": sets["welivita"].query("cluster == 'batch_001'")})


def test_a_cut_that_is_not_there_is_named(sets):
    with pytest.raises(ValueError, match="by='post' and {'responder_a': 'nobody'}"):
        count_wins(sets["resort"], by="post", responder_a="nobody")
