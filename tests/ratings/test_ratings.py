"""Ratings: against published tables, values by hand, other programs, properties of every input,
known strengths."""

import itertools
import warnings

import numpy as np
import pandas as pd
import pytest
from drawn_votes import averaged, draw_votes
from hypothesis import given, settings
from hypothesis import strategies as st

from heart_utils.ratings.bradley_terry import ConvergenceError, NotComparableError
from heart_utils.ratings.ratings import Clusters, fit_boards, fit_ratings
from heart_utils.ratings.resampling import draw_weights
from heart_utils.ratings.verdicts import RatingsError
from heart_utils.simulate.study import simulate_study
from heart_utils.tables import check_table

# Agresti, Categorical Data Analysis, 2nd ed. (2002), table 10.10: 1987 season, American League
# East. Row beat column.
# Read from the data file of R's BradleyTerry2 (home and away summed) and agreeing with a second
# printing of the table.
TEAMS = ["Milwaukee", "Detroit", "Toronto", "New York", "Boston", "Cleveland", "Baltimore"]


WON = [
    [0, 7, 9, 7, 7, 9, 11],
    [6, 0, 7, 5, 11, 9, 9],
    [4, 6, 0, 7, 7, 8, 12],
    [6, 8, 6, 0, 6, 7, 10],
    [6, 2, 6, 7, 0, 7, 12],
    [4, 4, 5, 6, 6, 0, 6],
    [2, 4, 1, 3, 1, 7, 0],
]


def votes(*rows, dialogue=None):
    """Verdicts from (a, b, verdict) or (a, b, verdict, times)."""
    spelt = [row[:3] for row in rows for _ in range(row[3] if len(row) > 3 else 1)]
    table = pd.DataFrame(spelt, columns=["responder_a", "responder_b", "verdict"])
    return table if dialogue is None else table.assign(dialogue_id=dialogue)


def duel(verdicts):
    return votes(*[("human", "model", verdict) for verdict in verdicts])


def swap_sides(verdicts):
    swapped = verdicts.rename(columns={"responder_a": "responder_b", "responder_b": "responder_a"})
    return swapped.assign(verdict=verdicts["verdict"].map({"a": "b", "b": "a", "tie": "tie"}))


@pytest.fixture(scope="module")
def baseball():
    return votes(
        *[(TEAMS[i], TEAMS[j], "a", WON[i][j]) for i, j in itertools.permutations(range(7), 2)]
    )


@pytest.fixture(scope="module")
def study():
    return simulate_study(rng=np.random.default_rng(5), strengths=6, n_dialogues=60, pairs=10)


def gap(rows, **options):
    """By how much the first of two is stronger, in log-odds."""
    return -np.diff(fit_ratings(rows, **options).strength.sort_index())[0]


# Published tables


@pytest.mark.parametrize("weights", ["pairs", "verdicts"])
def test_strengths_match_the_published_baseball_table(baseball, weights):
    """Estimates as R's BradleyTerry2 prints them; all pairs met 13 times, so both weights must
    agree with it."""
    published = {
        "Milwaukee": 1.5814,
        "Detroit": 1.4364,
        "Toronto": 1.2945,
        "New York": 1.2476,
        "Boston": 1.1077,
        "Cleveland": 0.6839,
        "Baltimore": 0.0,
    }
    strength = fit_ratings(baseball, weights=weights).strength
    assert (strength - strength["Baltimore"]).to_dict() == pytest.approx(published, abs=5e-5)


# Values by hand


@pytest.mark.parametrize(
    ("verdicts", "columns", "odds"),
    [
        ("aaab", {}, 3),
        (["a", "a", "tie"], {}, 5),  # 2.5 wins to 0.5
        ("aa", {"p_a": [0.6, 0.9], "state": "valid"}, 3),  # 1.5 wins of 2, in place of the word
    ],
)
def test_strengths_are_the_log_odds_of_wins(verdicts, columns, odds):
    assert gap(duel(verdicts).assign(**columns)) == pytest.approx(np.log(odds))


def test_the_rating_is_400_points_for_odds_of_ten_and_so_are_its_ends(study):
    table = fit_ratings(duel(["a"] * 10 + ["b"]), n_resamples=0).table
    assert table["rating"].tolist() == pytest.approx([1700, 1300])  # half of 400 on each side
    table = fit_ratings(study.verdicts, n_resamples=50).table
    for rating, end in (("rating_low", "ci_low"), ("rating_high", "ci_high")):
        moved = 400 / np.log(10) * (table[end] - table["strength"])
        assert table[rating].tolist() == pytest.approx((table["rating"] + moved).tolist())


def test_a_lone_winner_is_lent_a_quarter_of_a_win_and_of_a_loss():
    """Three wins and the loan: 3 s(-d) = (1/4) (1 - 2 s(-d/2)) at the gap d; solved by bisection
    here."""

    # derivative in theta_human at theta = gap / 2; the model is penalised alike, at -gap / 2
    def slope(gap):
        return 3 / (1 + np.exp(gap)) + 0.25 * (1 - 2 / (1 + np.exp(-gap / 2)))

    low, high = 0.0, 30.0
    for _ in range(80):
        low, high = (
            ((low + high) / 2, high) if slope((low + high) / 2) > 0 else (low, (low + high) / 2)
        )
    ratings = fit_ratings(duel(["a"] * 3))
    assert ratings.strength["human"] - ratings.strength["model"] == pytest.approx(low, abs=1e-8)
    assert ratings.table["penalised"].all()


def test_pairs_weigh_the_same_and_dialogues_are_averaged_within_them():
    """d1 says 1/1 on the pair, d2 says 1/4: mean 5/8, so log(5/3); by verdicts it is 2 of 5, so
    log(2/3)."""
    rows = votes(
        ("x", "y", "a"),
        ("x", "y", "a"),
        ("x", "y", "b", 3),
        dialogue=["d1", "d2", "d2", "d2", "d2"],
    )
    even = fit_ratings(rows, n_resamples=2).strength
    counted = fit_ratings(rows, weights="verdicts", n_resamples=2).strength
    assert even["x"] - even["y"] == pytest.approx(np.log(5 / 3))
    assert counted["x"] - counted["y"] == pytest.approx(np.log(2 / 3))


def test_a_pair_judged_often_pulls_no_harder_than_one_judged_once():
    """x beats y 2:1 once over and thirty times over: the even tournament does not move."""
    rest = [("y", "z", "a", 2), ("y", "z", "b"), ("x", "z", "a"), ("x", "z", "b", 2)]
    once = votes(("x", "y", "a", 2), ("x", "y", "b"), *rest)
    often = votes(("x", "y", "a", 60), ("x", "y", "b", 30), *rest)
    assert fit_ratings(once).strength.to_dict() == pytest.approx(
        fit_ratings(often).strength.to_dict(), abs=1e-8
    )
    moved = fit_ratings(often, weights="verdicts").strength
    assert moved["x"] - moved["z"] > 0.2


def test_failures_are_counted_and_an_inconsistent_pair_is_half_a_win_to_each_and_no_tie():
    state = ["valid"] * 3 + ["inconsistent", "unparsed", "unparsed", "error"]
    ratings = fit_ratings(duel(["a", "b", "a", None, None, None, None]).assign(state=state))
    assert ratings.strength["human"] * 2 == pytest.approx(np.log(5 / 3))  # 2.5 of 4
    assert ratings.n_inconsistent == 1
    assert ratings.left_out.to_dict() == {"unparsed": 2, "error": 1}
    assert ratings.table[["n_verdicts", "tie_share"]].to_numpy().tolist() == [[4, 0]] * 2


def test_win_probability_is_the_mean_over_opponents():
    rows = votes(
        ("x", "y", "a", 3),
        ("x", "y", "b"),
        ("x", "z", "a", 9),
        ("x", "z", "b"),
        ("y", "z", "a", 3),
        ("y", "z", "b"),
    )
    ratings = fit_ratings(rows)  # consistent: 3, 9 and 3 to one
    table = ratings.table.set_index("responder")
    assert table.loc["x", "win_probability"] == pytest.approx((3 / 4 + 9 / 10) / 2)
    assert ratings.chance.loc["y", "z"] == pytest.approx(3 / 4)


# Second implementations


def test_evalica_gives_the_same_strengths_with_ties(study):
    import evalica

    rows = study.verdicts
    winners = rows["verdict"].map(
        {"a": evalica.Winner.X, "b": evalica.Winner.Y, "tie": evalica.Winner.Draw}
    )
    theirs = np.log(
        evalica.bradley_terry(
            rows["responder_a"], rows["responder_b"], winners, tolerance=1e-13, limit=10_000
        ).scores
    )
    strength = fit_ratings(rows, weights="verdicts", n_resamples=0).strength
    assert strength.to_dict() == pytest.approx((theirs - theirs.mean()).to_dict(), abs=1e-6)


def test_the_bootstrap_refits_what_was_drawn():
    """Replicates against separate fits to tables in which drawn dialogues are repeated as often."""
    study = simulate_study(rng=np.random.default_rng(3), strengths=4, n_dialogues=20, pairs="all")
    ratings = fit_ratings(study.verdicts, n_resamples=5, rng=np.random.default_rng(7))
    counts = draw_weights(20, 5, np.random.default_rng(7)).astype(int)
    dialogues = sorted(study.verdicts["dialogue_id"].unique())
    for replicate, drawn in zip(ratings.replicates.itertuples(index=False), counts, strict=True):
        parts = [
            study.verdicts[study.verdicts["dialogue_id"] == name].assign(
                dialogue_id=f"{name}.{copy}"
            )
            for name, times in zip(dialogues, drawn, strict=True)
            for copy in range(times)
        ]
        again = fit_ratings(pd.concat(parts), n_resamples=0).strength
        assert list(replicate) == pytest.approx(again[ratings.strength.index].tolist(), abs=1e-7)


# Properties of every input


boards = st.lists(
    st.tuples(
        st.sampled_from("wxyz"),
        st.sampled_from("wxyz"),
        st.sampled_from(["a", "b", "tie"]),
        st.sampled_from("123"),
    ),
    min_size=4,
    max_size=40,
)


def board(rows):
    """Some rows as verdicts; ties close the circle so that all can be compared, one row is
    decided."""
    link = [
        ("w", "x", "tie", "1"),
        ("x", "y", "tie", "2"),
        ("y", "z", "tie", "3"),
        ("w", "x", "a", "1"),
    ]
    rows = [row for row in rows if row[0] != row[1]] + link
    return pd.DataFrame(rows, columns=["responder_a", "responder_b", "verdict", "dialogue_id"])


@pytest.mark.parametrize("weights", ["pairs", "verdicts"])
@settings(max_examples=12)
@given(rows=boards, names=st.permutations("wxyz"), seed=st.integers(0, 9))
def test_names_sides_and_the_order_of_rows_change_nothing(weights, rows, names, seed):
    verdicts = board(rows)
    renamed = dict(zip("wxyz", names, strict=True))
    turned = swap_sides(verdicts).sample(frac=1, random_state=seed)
    turned = turned.assign(
        **{side: turned[side].map(renamed) for side in ("responder_a", "responder_b")}
    )
    here = fit_ratings(verdicts, weights=weights, n_resamples=0).strength
    there = fit_ratings(turned, weights=weights, n_resamples=0).strength
    assert here.rename(renamed).to_dict() == pytest.approx(there.to_dict(), abs=1e-7)
    assert here.sum() == pytest.approx(0, abs=1e-9)


@settings(max_examples=12)
@given(rows=boards)
def test_each_board_is_a_ratings_table_whose_rank_ranges_hold_its_ranks(rows):
    ratings = fit_ratings(board(rows), n_resamples=30)
    table = check_table("ratings", ratings.table)
    ranks = table["strength"].rank(ascending=False)
    assert (table["rank_low"] <= ranks + 1e-9).all()
    assert (ranks - 1e-9 <= table["rank_high"]).all()
    assert np.isfinite(ratings.replicates.to_numpy()).all()


# Known strengths


def test_the_interval_covers_the_truth_about_as_often_as_it_says():
    """40 small studies of 60 dialogues with strong dialogue effects: 95 %, and as wide as strengths
    are off; over rows it is 88 %, and they are off by 1.3 of that."""
    covered, off, theta = [], [], np.linspace(0.6, -0.6, 5)
    truth = averaged(theta)
    for seed in range(40):
        rows = draw_votes(np.random.default_rng([5, seed]), 60, 5, 10, 5, 0.5, theta=theta)
        found = fit_ratings(rows, n_resamples=100, rng=np.random.default_rng(seed)).table
        low, strength, high = found.set_index("responder").sort_index()[
            ["ci_low", "strength", "ci_high"]
        ].to_numpy().T  # fmt: skip
        covered.append(((low <= truth) & (truth <= high)).mean())
        off.append(2.0 * (strength - truth) / (high - low))
    error = np.std(covered, ddof=1) / np.sqrt(len(covered))
    assert abs(np.mean(covered) - 0.95) < 4 * error
    assert error < 0.03
    # standard error some 0.06
    assert 1.96 * np.sqrt(np.mean(np.square(off))) == pytest.approx(1.0, abs=0.12)


def test_ten_equals_are_seldom_told_apart_where_clusters_are_few():
    """All equal: max-t over resamples told some apart in 43 % of studies with 6 clusters."""
    apart = []
    for k in range(30):
        rows = draw_votes(np.random.default_rng([6, k]), 6, 10, 45, 3, 0.5)
        table = fit_ratings(rows, n_resamples=100).table
        apart.append((table["rank_low"] > 1).any() or (table["rank_high"] < 10).any())
    assert np.mean(apart) < 0.065 + 3 * np.sqrt(0.065 * 0.935 / 40)  # 18 %


# Hard cases


def ladder(n_dialogues, size):
    """The first always wins, the second beats all others, and so on."""
    pairs = [(f"r{one}", f"r{other}", "a") for one in range(size) for other in range(one + 1, size)]
    return pd.concat(
        [votes(*pairs).assign(dialogue_id=f"d{k}") for k in range(n_dialogues)], ignore_index=True
    )


def test_nothing_bounds_someone_who_was_never_beaten_from_above():
    """Sixty dialogues, each as one game: the lower end against equals is where p to the 60 is .025,
    so log-odds of 2.76."""
    twin = [("r0", "r1", "a"), ("r0", "r2", "a"), ("r1", "r2", "a"), ("r1", "r2", "b")]
    rows = pd.concat(
        [votes(*twin).assign(dialogue_id=f"d{k}") for k in range(60)], ignore_index=True
    )
    first = fit_ratings(rows).table.iloc[0]
    p = 0.025 ** (1 / 60)
    # the zero is the mean of the others, whom it does not move
    assert first["ci_low"] == pytest.approx(np.log(p / (1 - p)))
    assert first["ci_high"] == np.inf
    assert (first["rank_low"], first["rank_high"], first["provisional"]) == (1, 1, True)


def test_who_was_never_beaten_moves_nobody_elses_rating():
    """The zero held the lent strength: the others' intervals held the truth in 33 to 70 % of
    simulated studies."""
    rng = np.random.default_rng(3)
    close = [
        (f"d{k}", a, b, rng.choice(["a", "b"]))
        for k in range(40)
        for a, b in (("r1", "r2"), ("r1", "r3"), ("r2", "r3"))
    ]
    ahead = [(f"d{k}", "r0", other, "a") for k in range(40) for other in ("r1", "r2", "r3")]
    rows = pd.DataFrame(
        [*close, *ahead], columns=["dialogue_id", "responder_a", "responder_b", "verdict"]
    )
    sandwich = {"cluster": Clusters("dialogue_id", "sandwich")}
    for options in ({}, sandwich, {"method": "davidson"}):
        columns = ["strength", "ci_low", "ci_high"]
        alone, both = (
            fit_ratings(part, **options)
            .table.set_index("responder")[columns]
            .loc[["r1", "r2", "r3"]]
            for part in (rows[rows["responder_a"] != "r0"], rows)
        )
        assert both.to_numpy() == pytest.approx(alone.to_numpy(), abs=0.02)


def test_a_board_does_not_depend_on_the_boards_beside_it():
    people = simulate_study(
        rng=np.random.default_rng(2), strengths=3, n_dialogues=30, pairs="all"
    ).verdicts
    people = people[people["rater_kind"] == "human"]
    everybody = pd.concat([people, people.assign(rater_kind="a panel")], ignore_index=True)
    alone, beside = (
        fit_boards(
            rows,
            by=["rater_kind"],
            dimension="overall",
            n_resamples=50,
            rng=np.random.default_rng(4),
        )[("human",)]
        for rows in (people, everybody)
    )
    pd.testing.assert_frame_equal(alone.table, beside.table)


@pytest.mark.parametrize("kind", ["never beaten, in four dialogues", "two clusters"])
def test_little_is_known_of_ranks_where_little_was_seen(study, kind):
    rows = ladder(4, 3)
    if kind == "two clusters":
        rows = study.verdicts.assign(dialogue_id=np.arange(len(study.verdicts)) % 2)
    table = fit_ratings(rows).table
    assert table["penalised"].all() == (kind != "two clusters")
    assert table["provisional"].all()
    assert (table["rank_low"] == 1).all()
    assert (table["rank_high"] == len(table)).all()
    assert not (table["ci_low"] == table["ci_high"]).any()


def test_few_clusters_are_provisional_and_widen_by_t():
    rows = pd.concat(
        [duel(["a", "b", "a"][: 2 + k % 2]).assign(dialogue_id=f"d{k}") for k in range(18)]
    )
    ratings = fit_ratings(rows, rng=np.random.default_rng(4))
    first = ratings.table.iloc[0]
    assert first["provisional"]
    assert first["ci_high"] - first["strength"] == pytest.approx(
        2.1098 * np.sqrt(18 / 17) * ratings.replicates.iloc[:, 0].std(), rel=1e-4
    )  # t, 17 df; 18 clusters resampled have one degree of freedom less


def test_intervals_of_differences_hold_all_at_once_and_the_same_verdicts_give_the_same(study):
    ratings, again = (fit_ratings(study.verdicts, n_resamples=100) for _ in range(2))
    joint, draws = ratings.differences(), ratings.replicates
    assert len(joint) == 15
    assert (joint["difference"] >= 0).all()
    alone = [(draws[row.better] - draws[row.worse]).std() for row in joint.itertuples()]
    assert ((joint["ci_high"] - joint["ci_low"]) > 2 * 1.97 * np.array(alone)).all()
    pd.testing.assert_frame_equal(ratings.table, again.table)
    assert joint.equals(again.differences())
    assert fit_ratings(study.verdicts, n_resamples=0).differences()["ci_low"].isna().all()


# Boards


def test_boards_by_rater_kind_are_the_boards_of_their_rows(study):
    boards = fit_boards(study.verdicts, by=["dimension", "rater_kind"], n_resamples=0)
    assert set(boards) == {("overall", "human"), ("overall", "model")}
    people = study.verdicts[study.verdicts["rater_kind"] == "human"]
    pd.testing.assert_series_equal(
        boards["overall", "human"].strength, fit_ratings(people, n_resamples=0).strength
    )
    assert set(pd.concat([ratings.table for ratings in boards.values()])["rater_kind"]) == {
        "human",
        "model",
    }


def test_boards_by_what_the_table_has_no_column_for_are_told_apart(study):
    emotion = np.where(study.verdicts["dialogue_id"] < "d00030", "anger", "fear")
    boards = fit_boards(
        study.verdicts.assign(emotion=emotion), by=["emotion"], dimension="overall", n_resamples=20
    )
    whole = check_table("ratings", pd.concat([ratings.table for ratings in boards.values()]))
    assert set(whole["group"]) == {"emotion=anger", "emotion=fear"}


@pytest.mark.parametrize(
    ("values", "boards"),
    [
        (["calm", "calm", None, None], ["calm", np.nan]),
        # a category without verdicts gets no board
        (pd.Categorical(["anger"] * 2 + ["fear"] * 2, ["anger", "joy", "fear"]), ["anger", "fear"]),
    ],
)
def test_there_is_a_board_for_each_value_that_occurs_and_for_none(values, boards):
    found = fit_boards(duel("abab").assign(emotion=values), by=["emotion"], n_resamples=0)
    assert [str(name) for (name,) in found] == [str(name) for name in boards]
    with pytest.raises(RatingsError, match=f"no leaderboard of 'joy'; there are {boards[0]}; "):
        found[("joy",)]
    assert found.get(("joy",)) is None


# Bad input


def test_groups_that_never_met_are_named():
    circles = [("x", "y"), ("y", "z"), ("z", "x"), ("u", "v"), ("v", "u")]
    with pytest.raises(NotComparableError, match="u, v cannot be rated with the others") as caught:
        fit_ratings(votes(*[(*pair, "a") for pair in circles]))
    assert caught.value.groups == [["x", "y", "z"], ["u", "v"]]


def test_one_cluster_has_no_interval():
    rows = duel(["a", "b", "a"]).assign(dialogue_id="d1")
    with pytest.raises(ValueError, match="one dialogue_id only"):
        fit_ratings(rows)
    assert fit_ratings(rows, n_resamples=0).table["ci_low"].isna().all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"verdict": ["a", "both bad", "b"]}, "one of a, tie, b; row 1 has 'both bad'"),
        ({"verdict": ["a", None, "b"]}, "a valid answer must have a verdict or `p_a`; row 1"),
        ({"responder_a": ["human", "model", "human"]}, "compared with itself; row 1 has 'model'"),
        ({"responder_b": ["model", None, "model"]}, "`responder_b` must not be empty; row 1"),
        ({"dialogue_id": ["d1", None, "d2"]}, "`dialogue_id` must not be empty; row 1"),
        (
            {"state": ["valid", "lost", "valid"]},
            "`state` must be one of valid, .*; row 1 has 'lost'",
        ),
        ({"state": ["valid", None, "valid"]}, "`state` must be one of valid, .*; row 1"),
        ({"dimension": ["overall", None, "overall"]}, "`dimension` must not be empty; row 1"),
        ({"p_a": [0.5, 1.2, 0.1]}, "`p_a` must be from 0 to 1; row 1 has 1.2"),
        (
            {"state": ["error", "refused", "error"], "verdict": [None] * 3},
            "No verdict on 'overall' can enter a fit: 2 error, 1 refused",
        ),
        ({"dimension": "attunement"}, "no dimension 'overall'. They have attunement"),
    ],
)
def test_bad_rows_are_named(change, message):
    rows = duel(["a", "a", "b"]).assign(dialogue_id=["d1", "d2", "d3"]).assign(**change)
    with pytest.raises(RatingsError, match=message):
        fit_ratings(rows)


WHO = pd.DataFrame({"responder": ["human"], "responder_kind": ["human"]})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cluster": "dialog_id"}, "lack the column dialog_id. They have responder_a, responder_b"),
        ({"method": "elo"}, "method is 'elo', expected one of bradley-terry"),
        ({"weights": "votes"}, "weights is 'votes'"),
        ({"weights": float("nan")}, "weights is nan"),
        ({"responders": WHO}, "what kind model is of"),
    ],
)
def test_missing_columns_and_unknown_choices_are_named(options, message):
    with pytest.raises(RatingsError, match=message):
        fit_ratings(duel("ab"), **{"n_resamples": 0, **options})


def test_a_failing_board_names_its_group_and_no_verdict_is_no_board(study):
    rows = study.verdicts.copy()
    rows.loc[rows["rater_kind"] == "model", "verdict"] = "tie"
    with pytest.raises(RatingsError, match="rater_kind=model: All"):
        fit_boards(rows, by=["rater_kind"], n_resamples=0)
    with pytest.raises(RatingsError, match="no verdict to fit by dimension"):
        fit_boards(rows.head(0), by=["dimension"])


def test_a_search_that_does_not_end_raises(monkeypatch):
    monkeypatch.setattr("heart_utils.ratings.bradley_terry.MAX_STEPS", 1)
    with pytest.raises(ConvergenceError, match="no end within 1 steps.*drop them or collect"):
        fit_ratings(duel(["a", "a", "b"]))


@pytest.mark.parametrize("rng", [None, np.random.default_rng(1)])
def test_without_dialogues_the_way_to_an_interval_is_said(rng):
    with pytest.warns(UserWarning, match=r"no column dialogue_id, .*no interval\. Name"):
        table = fit_ratings(duel("aaab"), rng=rng).table
    assert table["ci_low"].isna().all()
    assert table["provisional"].all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit_ratings(duel("aaab"), n_resamples=0, rng=rng)
