"""Win shares: by hand, by second implementations, on data with a known share, and the bad inputs
that are named."""

import numpy as np
import pandas as pd
import pingouin as pg
import pytest
from scipy import stats
from statsmodels.stats.proportion import proportion_confint

from heart_utils.evidence import (
    CONVERSIONS,
    EffectError,
    effect_row,
    read_quoted,
    share_between,
    share_clustered,
)
from heart_utils.runs import Run, find_root
from heart_utils.tables import TableError

QUOTED = find_root() / "data" / "published" / "effects.csv"
WORDS = {
    "study": "s",
    "people": "p",
    "models": "m",
    "raters": "expert",
    "label": "hidden",
    "outcome": "o",
    "source": "x",
}


def test_the_share_between_groups_is_pingouins():
    rng = np.random.default_rng(1)
    models, people = rng.integers(2, 8, 40), rng.integers(1, 7, 55)
    expected = pg.mwu(models, people)["CLES"].iloc[0]
    assert share_between(models, people)["win_share"] == pytest.approx(expected)


def test_the_interval_between_groups_ends_at_one_half_where_brunner_and_munzel_reach_their_level():
    rng = np.random.default_rng(2)
    models, people = rng.normal(0.4, 2.0, 30), rng.normal(0.0, 1.0, 50)
    level = 1.0 - float(stats.brunnermunzel(models, people).pvalue)
    assert share_between(models, people, ci_level=level)["ci_low"] == pytest.approx(0.5, abs=1e-9)


def ends_of(wins, *clusters, weight=None):
    found = share_clustered(wins, clusters=clusters or ["post"], weight=weight)
    return [found[name] for name in ("win_share", "ci_low", "ci_high")]


def wilson(share, error, n_clusters):
    """Ends by statsmodels: Wilson's interval of as many observations as have this error, with a t
    quantile."""
    n = share * (1 - share) / error**2
    alpha = 2 * stats.norm.sf(stats.t.ppf(0.975, n_clusters - 1))
    return proportion_confint(share * n, n, alpha=alpha, method="wilson")


def test_one_cluster_a_row_gives_wilsons_interval_of_the_mean_with_a_t_quantile():
    won = np.array([0.0, 1.0, 1.0, 0.5, 1.0, 0.0, 0.5])
    found = share_clustered(pd.DataFrame({"won": won, "post": range(7)}), clusters=["post"])
    assert (found["ci_low"], found["ci_high"]) == pytest.approx(
        wilson(won.mean(), stats.sem(won), 7)
    )
    assert found["n_clusters"] == 7


def test_weights_of_counts_are_the_rows_themselves():
    counts = pd.DataFrame({"post": ["p", "q", "r"], "won": [0.25, 0.5, 1.0], "n": [4, 2, 3]})
    rows = pd.DataFrame({"post": list("ppppqqrrr"), "won": [1, 0, 0, 0, 1, 0, 1, 1, 1]})
    assert ends_of(counts, weight="n") == pytest.approx(ends_of(rows))


def left_out(wins, by):
    """Variance of the mean with each group left out in turn, and its degrees of freedom."""
    share, sizes = wins["won"].mean(), wins.groupby(by).size().to_numpy() / len(wins)
    moves = [wins.drop(index=rows.index)["won"].mean() - share for _, rows in wins.groupby(by)]
    spread = np.diag(1 / (1 - sizes)) @ (np.diag(sizes) - np.outer(sizes, sizes))
    matrix = spread @ spread.T
    degrees = np.trace(matrix) ** 2 / np.trace(matrix @ matrix)
    return (len(moves) - 1) / len(moves) * np.square(moves).sum(), degrees


def test_two_crossed_clusterings_leave_out_each_post_rater_and_cell():
    rng = np.random.default_rng(3)
    wins = pd.DataFrame({"post": rng.integers(12, size=96), "rater": rng.integers(8, size=96)})
    wins.loc[:30, "rater"] = 0  # a third by one rater
    lean = rng.normal(0, 0.3, 8)[wins["rater"]] + rng.normal(0, 0.3, 12)[wins["post"]]
    wins["won"] = (rng.random(96) < 0.5 + lean).astype(float)
    found = ends_of(wins, "post", "rater")[1:]
    (post, of_posts), (rater, of_raters) = left_out(wins, "post"), left_out(wins, "rater")
    both = max(post + rater - left_out(wins, ["post", "rater"])[0], post, rater)
    degrees = both**2 / (post**2 / of_posts + rater**2 / of_raters)
    ends = wilson(wins["won"].mean(), np.sqrt(both), degrees + 1)
    assert found == pytest.approx(ends)


def cover(draw, true, n_studies, *clusters):
    """How often the interval of a drawn study holds the true share."""
    ends = np.array([ends_of(draw(), *clusters) for _ in range(n_studies)])
    assert (np.diff(ends[:, [1, 0, 2]]) >= 0).all()
    assert 0 <= ends.min() <= ends.max() <= 1
    return ((ends[:, 1] <= true) & (true <= ends[:, 2])).mean()


def test_intervals_over_posts_and_raters_of_unequal_load_hold_the_true_share():
    """The first of 20 raters gave 40 %. With one degree of freedom less than raters, 83 % did."""
    rng, loads = np.random.default_rng(20), 0.6 ** np.arange(20)
    true = (1 / (1 + np.exp(-rng.normal(0.5, np.hypot(0.7, 0.7), 200_000)))).mean()

    def draw():
        rater, post = rng.choice(20, 440, p=loads / loads.sum()), np.repeat(range(110), 4)
        odds = 0.5 + rng.normal(0, 0.7, 110)[post] + rng.normal(0, 0.7, 20)[rater]
        won = (rng.random(440) < 1 / (1 + np.exp(-odds))).astype(float)
        return pd.DataFrame({"post": post, "rater": rater, "won": won})

    least = 0.95 - 2 * np.sqrt(0.95 * 0.05 / 200)
    assert cover(draw, true, 200, "post", "rater") >= least


@pytest.mark.parametrize(("n_clusters", "mean"), [(4, 0.0), (6, 0.8)])
def test_intervals_over_few_clusters_of_unequal_size_hold_the_true_share(n_clusters, mean):
    """Logit-normal clusters, a fifth of ties. With sums over clusters and one degree of freedom
    less than clusters, 77 and 81 % did."""
    rng = np.random.default_rng([n_clusters, int(10 * mean)])
    true = 0.1 + 0.8 * (1 / (1 + np.exp(-rng.normal(mean, 1.0, 200_000)))).mean()
    post = np.repeat(range(n_clusters), np.geomspace(2, 80, n_clusters).round().astype(int))

    def draw():
        chance = 1 / (1 + np.exp(-rng.normal(mean, 1.0, n_clusters)))
        won = np.where(rng.random(len(post)) < 0.2, 0.5, rng.random(len(post)) < chance[post])
        return pd.DataFrame({"post": post, "won": won})

    assert cover(draw, true, 200) >= 0.94 - 2 * np.sqrt(0.95 * 0.05 / 200)


@pytest.mark.parametrize("n_clusters", [4, 10])
def test_intervals_over_few_clusters_hold_the_true_share_about_as_often_as_they_say(n_clusters):
    rng, post = np.random.default_rng(4), np.repeat(range(n_clusters), 20)

    def draw():
        true = np.clip(rng.normal(0.6, 0.12, n_clusters), 0, 1)
        return pd.DataFrame({"post": post, "won": rng.random(len(post)) < true[post]})

    held = cover(draw, 0.6, 200)
    assert held == pytest.approx(0.95, abs=4 * np.sqrt(0.95 * 0.05 / 200))


def test_one_large_cluster_and_small_ones_leave_nearly_all_open():
    wins = pd.DataFrame({"post": ["large"] * 10_000 + ["small"], "won": [1.0, 0.0] * 5_000 + [1.0]})
    small = pd.DataFrame({"post": list("abcdefgh"), "won": [0, 0, 1, 1, 0.5, 1, 1, 1]})
    for table in (wins, pd.concat([wins, small])):
        _, low, high = ends_of(table)
        assert high - low > 0.8


def test_what_papers_print_is_converted_as_simulation_says():
    rng = np.random.default_rng(5)
    people, models = rng.normal(size=200_000), rng.normal(0.87, size=200_000)
    assert CONVERSIONS["d"](0.87) == pytest.approx((models > people).mean(), abs=0.004)
    people, models = rng.logistic(size=200_000), rng.logistic(np.log(1.79), size=200_000)
    assert CONVERSIONS["odds_ratio"](1.79) == pytest.approx((models > people).mean(), abs=0.004)
    assert CONVERSIONS["odds_ratio"](1.0) == 0.5
    # U = 2.0 with 6 models and 8 people
    assert CONVERSIONS["rank_biserial"](0.917) == pytest.approx(1 - 2.0 / 48, abs=5e-4)


@pytest.mark.parametrize(
    ("wins", "said"),
    [
        (
            pd.DataFrame({"won": [1.0, 0.0], "post": "p"}),
            "There is 1 post; an interval needs two or more",
        ),
        (pd.DataFrame({"won": [], "post": []}), "There is 0 post"),
        (pd.DataFrame({"won": [0.5, 0.5], "post": ["p", "q"]}), "Each post has the same share"),
        (
            pd.DataFrame({"won": [0.5, None], "post": ["p", "q"]}),
            "1 of 2 rows lack won or post; drop them",
        ),
        (
            pd.DataFrame({"won": [0.5, 1.0, 0.0], "post": ["p", None, "q"]}),
            "1 of 3 rows lack won or post",
        ),
    ],
)
def test_clusters_that_give_no_interval_are_named(wins, said):
    with pytest.raises(EffectError, match=said):
        share_clustered(wins, clusters=["post"])


def test_models_that_always_win_have_an_interval_with_a_width():
    always = pd.DataFrame({"won": [1.0] * 6, "post": list("pqrstu")})
    least = 6 / (6 + stats.t.ppf(0.975, 5) ** 2)
    assert ends_of(always) == pytest.approx([1.0, least, 1.0])


@pytest.mark.parametrize(
    ("models", "people", "said"),
    [
        ([1], [1, 2, 3], "there are 1 of models and 3 of people"),
        ([5, 6, 7], [1, 2, 3], "All comparisons went one way"),
        ([1, 2, 3], [5, 6, 7], "All comparisons went one way"),
        ([4, 4], [4, 4, 4], "or tied"),
    ],
)
def test_groups_that_give_no_interval_are_named(models, people, said):
    with pytest.raises(EffectError, match=said):
        share_between(models, people)


GOOD = {"win_share": 0.6, "ci_low": 0.5, "ci_high": 0.7, "ci_level": 0.95, "n_clusters": 5}
GOOD |= {"cluster": "post", **WORDS}


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ({"win_share": 1.2}, "win_share: expected a number from 0 to 1"),
        ({"n_clusters": 1}, "n_clusters: expected a whole number of 2 or more"),
        ({"ci_low": None}, "expected an interval and its clusters where measured"),
        ({"ci_high": 0.55}, "expected a share within its interval"),
        ({"label": "secret"}, "label: expected one of hidden, person, ai, true, unclear"),
        ({"source": None}, "source: expected text, in every row"),
    ],
)
def test_an_effect_that_cannot_be_is_refused(found, said):
    assert len(effect_row(GOOD)) == 1
    with pytest.raises(TableError, match=said):
        effect_row({**GOOD, **found})


def spoilt(tmp_path, **values):
    table = pd.read_csv(QUOTED).astype(object)
    for column, value in values.items():
        table.loc[0, column] = value
    table.to_csv(tmp_path / "effects.csv", index=False)
    return tmp_path / "effects.csv"


@pytest.mark.parametrize(
    ("values", "error", "said"),
    [
        ({"source": None}, TableError, "source: expected text, in every row; row 0 has"),
        (
            dict.fromkeys(["n_raters", "n_clusters", "n_people_replies", "n_model_replies"]),
            TableError,
            "at least one of the counts",
        ),
        (
            {"value": 78.6},
            TableError,
            "win_share: expected a number from 0 to 1, in every row; row 0 has 78.6",
        ),
        ({"n_clusters": 1}, TableError, "n_clusters: expected a whole number of 2 or more"),
        (
            {"measure": "g"},
            EffectError,
            (
                r"Row 0 \(Ayers et al. 2023\): measure is 'g' and value 0.786; expected one of"
                r" share, d, odds_ratio"
            ),
        ),
        (
            {"value": None},
            EffectError,
            "measure is 'share' and value nan; expected one of .* with its value, or neither",
        ),
    ],
)
def test_a_quoted_row_that_lacks_what_it_needs_is_named(tmp_path, values, error, said):
    with pytest.raises(error, match=said):
        read_quoted(spoilt(tmp_path, **values))


@pytest.mark.parametrize(
    ("measure", "value", "share"),
    [
        ("share", 0.6, 0.6),
        ("d", 0.5, 0.6382),  # Phi(0.5 / 1.4142) = Phi(0.3536)
        ("odds_ratio", 2.0, 0.6137),  # 2 (1 - ln 2)
        ("rank_biserial", 0.3, 0.65),
    ],
)
def test_what_a_paper_prints_is_read_as_the_share_it_implies(tmp_path, measure, value, share):
    row = read_quoted(spoilt(tmp_path, measure=measure, value=value, low=value, high=value)).iloc[0]
    assert (row["win_share"], row["ci_low"], row["ci_high"]) == pytest.approx(
        (share, share, share), abs=5e-5
    )


def test_a_quoted_file_without_a_column_is_named(tmp_path):
    pd.read_csv(QUOTED).drop(columns="printed").to_csv(tmp_path / "effects.csv", index=False)
    with pytest.raises(EffectError, match="has no column printed"):
        read_quoted(tmp_path / "effects.csv")


def test_nothing_is_written_when_an_effect_is_refused(tmp_path):
    run = Run("r", tmp_path / "runs" / "r", tmp_path)
    with pytest.raises(TableError, match="effects.win_share"):
        run.write("effects", effect_row(GOOD).assign(win_share=1.5))
    assert not run.has("effects")
    assert list(tmp_path.rglob("*.parquet")) == []


def test_the_quoted_studies_are_twelve_or_more_and_some_favour_people():
    quoted = read_quoted(QUOTED)
    assert len(quoted) >= 12
    assert quoted["study"].is_unique
    assert set(quoted["favours"]) == {"models", "people", "both", "neither"}
    assert (quoted.loc[quoted["win_share"] > 0.5, "favours"] == "models").all()
    assert quoted["source"].str.startswith("https://").all()
    assert quoted[["printed", "read", "read_on"]].notna().all(axis=None)
    assert set(quoted["evidence"]) == {"quoted"}
    assert set(quoted["ci_level"]) == {0.95}
    assert not quoted["simulated"].any()
