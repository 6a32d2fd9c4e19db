"""What a leaderboard does not show: by hand, against slower ways to the same, and on known truth."""

import itertools

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.special import expit, logit

from heart_utils.ratings.ratings import fit_ratings
from heart_utils.ratings.standings import consistency, find_fragility, head_to_head, twin_contrasts
from heart_utils.ratings.verdicts import RatingsError
from heart_utils.simulate.study import Panel, Spread, simulate_study

# Consistency


def duels(rng, n_dialogues, n_votes, spread):
    """x against y, with a chance that differs by dialogue."""
    chance = np.clip(0.6 + spread * rng.normal(size=n_dialogues), 0.02, 0.98)
    dialogue = np.repeat(np.arange(n_dialogues), n_votes)
    won = rng.random(len(dialogue)) < chance[dialogue]
    rows = pd.DataFrame({"verdict": np.where(won, "a", "b"), "dialogue_id": dialogue.astype(str)})
    return rows.assign(responder_a="x", responder_b="y")


def field(rng, n_dialogues, sd, votes, size=5):
    """Responders of unlike strength, who all meet in each dialogue and are off by an amount of
    their own in it."""
    strengths = np.linspace(1.0, -1.0, size)
    there = strengths + sd * rng.normal(size=(n_dialogues, size))
    a, b = np.triu_indices(size, 1)
    chance = expit(there[:, a] - there[:, b])
    won = rng.random((votes, *chance.shape)) < chance
    _, dialogue, pair = np.unravel_index(np.arange(won.size), won.shape)
    names = np.array(list("vwxyz"))
    rows = {
        "responder_a": names[a[pair]],
        "responder_b": names[b[pair]],
        "verdict": np.where(won.ravel(), "a", "b"),
    }
    mean = np.stack(
        [
            np.where(a == i, chance, np.where(b == i, 1 - chance, 0)).sum(axis=1) / (size - 1)
            for i in range(size)
        ],
        axis=1,
    )
    return pd.DataFrame({**rows, "dialogue_id": dialogue.astype(str)}), mean


@pytest.mark.parametrize("votes", [1, 4])
def test_strong_and_weak_opponents_are_not_taken_for_noise(rng, votes):
    """With noise taken from verdicts on unlike opponents the spread came out 13 % too small."""
    rows, chance = field(rng, 1500, 0.7, votes)
    found = consistency(rows, rng=rng, n_resamples=50).set_index("responder")
    assert found["sd"].tolist() == pytest.approx(chance.std(axis=0).tolist(), rel=0.08)
    assert (found["sd"] / chance.std(axis=0)).mean() == pytest.approx(1, abs=0.04)
    assert found["tenth"].tolist() == pytest.approx(
        np.quantile(chance, 0.1, axis=0).tolist(), abs=0.03
    )
    assert found["mean"].tolist() == pytest.approx(chance.mean(axis=0).tolist(), abs=0.02)


def test_a_responder_that_meets_one_of_several_in_each_dialogue_has_no_spread_to_estimate(rng):
    rows, _ = field(rng, 60, 0.5, 2)
    pair = rows["responder_a"] + rows["responder_b"]
    met = pair == np.array(["vw", "wx", "xy", "yz"])[rows["dialogue_id"].astype(int) % 4]
    assert consistency(rows[met], rng=rng, n_resamples=20)["sd"].isna().all()


@pytest.mark.parametrize(
    ("verdicts", "dialogues", "variance", "sd_high", "n_single"),
    [
        # shares 1, 1/2 and 0, less a mean noise of (0 + 1/12 + 0) / 3
        ("aaaaaabbbbbb", "ddddeeeeffff", 1 / 4 - 1 / 36, 0.5, 0),
        # shares 3/4 of four and 0 of two, less a mean noise of (1/16 + 0) / 2; one tells nothing
        ("aaabbba", "ddddeef", 9 / 32 - 1 / 32, 0.5, 1),
        # shares 1, 1, 0 and 0 vary more than any beta distribution with their mean
        ("aaaaaabbbbbb", "dddeeefffggg", 1 / 3, 0.5, 0),
    ],
)
def test_the_spread_by_hand(verdicts, dialogues, variance, sd_high, n_single):
    rows = pd.DataFrame({"verdict": list(verdicts), "dialogue_id": list(dialogues)})
    rows = rows.assign(responder_a="x", responder_b="y")
    found = consistency(rows, rng=np.random.default_rng(1), n_resamples=20)
    mean = 3 / 8 if n_single else 1 / 2
    assert found["mean"].tolist() == pytest.approx([mean, 1 - mean])
    assert found["sd"].tolist() == pytest.approx([np.sqrt(variance)] * 2)
    assert found["sd_high"].tolist() == [sd_high] * 2  # no share varies more
    assert found["n_single"].tolist() == [n_single] * 2
    assert found["provisional"].all()
    size = found["mean"] * (1 - found["mean"]) / variance - 1
    beta = stats.beta.ppf(0.1, found["mean"] * size, (1 - found["mean"]) * size)
    assert found["tenth"].tolist() == pytest.approx(np.nan_to_num(beta).tolist())


def test_dialogues_with_one_verdict_cannot_tell_and_are_counted(rng):
    rows = duels(rng, 40, 4, 0.1)
    single = rows.iloc[:10].assign(dialogue_id=[f"s{k}" for k in range(10)])
    found = consistency(pd.concat([rows, single]), rng=rng, n_resamples=20)
    assert found["n_single"].tolist() == [10, 10]
    assert found["n_clusters"].tolist() == [40, 40]
    with pytest.raises(ValueError, match="one dialogue_id only"):
        consistency(rows[rows["dialogue_id"] == "0"], rng=rng)


def test_who_always_wins_does_so_in_the_worst_dialogues_too(rng):
    rows = duels(rng, 30, 4, 0.0).assign(verdict="a")
    found = consistency(rows, rng=rng, n_resamples=20).set_index("responder")
    assert found.loc["x", ["mean", "sd", "tenth"]].tolist() == pytest.approx([1, 0, 1], abs=2e-3)
    assert found.loc["y", ["mean", "sd", "tenth"]].tolist() == pytest.approx([0, 0, 0], abs=2e-3)


def test_intervals_widen_with_the_level_by_students_t(rng):
    rows = duels(rng, 6, 40, 0.15)
    wide, narrow = (
        consistency(rows, rng=np.random.default_rng(2), n_resamples=50, ci_level=at).iloc[0]
        for at in (0.8, 0.5)
    )
    ratio = stats.t.ppf(0.9, 5) / stats.t.ppf(0.75, 5)
    for name in ("sd", "tenth"):
        assert wide[f"{name}_high"] - wide[name] == pytest.approx(
            ratio * (narrow[f"{name}_high"] - narrow[name])
        )


def test_among_three_who_meet_once_in_a_dialogue_the_spread_is_estimated_too(rng):
    rows, chance = field(rng, 6000, 0.7, 1, size=3)
    found = consistency(rows, rng=rng, n_resamples=20).set_index("responder")["sd"]
    assert (found / chance.std(axis=0)).mean() == pytest.approx(1, abs=0.2)


def test_intervals_are_as_wide_as_dialogues_drawn_again_say(rng):
    rows = duels(rng, 60, 4, 0.2)
    found = consistency(rows, rng=rng, n_resamples=2000).iloc[0]
    by_dialogue, again = [some for _, some in rows.groupby("dialogue_id")], []
    for _ in range(60):
        drawn = [
            by_dialogue[k].assign(dialogue_id=str(n))
            for n, k in enumerate(rng.integers(60, size=60))
        ]
        again.append(
            consistency(pd.concat(drawn), rng=rng, n_resamples=2).iloc[0][["sd", "tenth"]].tolist()
        )
    for name, se in zip(("sd", "tenth"), np.std(again, axis=0), strict=True):
        low, high = found[[f"{name}_low", f"{name}_high"]]
        assert low + high == pytest.approx(2 * found[name])
        assert high - low == pytest.approx(2 * stats.t.ppf(0.975, 59) * se, rel=0.2)


# Twins


def twins(seed, adversarial_sd, n_twins=18, n_responders=4):
    return simulate_study(
        rng=np.random.default_rng(seed),
        strengths=n_responders,
        n_dialogues=0,
        n_twins=n_twins,
        pairs="all",
        panels=[Panel("human", 20, 6)],
        spread=Spread(adversarial=adversarial_sd),
    )


@pytest.fixture(scope="module")
def study():
    return twins(3, 0.8)


def test_delta_is_the_gap_of_gaps_of_two_boards(study):
    found = twin_contrasts(study.verdicts, n_resamples=50)
    boards = {
        name: fit_ratings(study.verdicts[study.verdicts["slice"] == name], n_resamples=0).strength
        for name in ("adversarial", "calm_twin")
    }
    row = found.set_index("contrast").loc["human_01 - model_02"]
    gap = {name: board["human_01"] - board["model_02"] for name, board in boards.items()}
    assert (row["adversarial"], row["calm"]) == pytest.approx(
        (gap["adversarial"], gap["calm_twin"]), abs=1e-7
    )
    assert row["delta"] == pytest.approx(gap["adversarial"] - gap["calm_twin"], abs=1e-7)
    assert row["ci_high"] - row["delta"] == pytest.approx(stats.t.ppf(0.975, 17) * row["se"])
    assert found["simulated"].all()


def test_each_slice_needs_one_verdict_and_dialogues_without_a_twin_are_counted(study):
    once = twin_contrasts(study.verdicts.drop_duplicates(["dialogue_id", "slice"]), n_resamples=20)
    assert once[["n_unpaired", "n_clusters"]].drop_duplicates().to_numpy().tolist() == [[0, 18]]
    lone = study.histories.query("slice == 'calm_twin'")["history_id"].iloc[0]
    is_lone = study.verdicts["history_id"] == lone
    found = twin_contrasts(study.verdicts[~is_lone], n_resamples=20)
    counts = found[["n_unpaired", "n_clusters"]].drop_duplicates().to_numpy().tolist()
    assert counts == [[is_lone.sum(), 17]]


@pytest.mark.parametrize(
    ("contrast", "said"),
    [
        ((["nobody"], ["human_01"]), "names nobody, who is not on the leaderboard"),
        ((["human_01"], []), "'x' needs two groups that do not overlap"),
        ((["human_01"], ["human_01", "model_01"]), "do not overlap, got "),
        (None, "No dialogue has verdicts on both .*calm_twin; the slices here are adversarial"),
    ],
)
def test_what_is_no_contrast_is_refused(study, contrast, said):
    rows = study.verdicts
    if contrast is None:
        rows = rows[rows["slice"] == "adversarial"]
    with pytest.raises(RatingsError, match=said):
        twin_contrasts(rows, contrasts=contrast and {"x": contrast}, n_resamples=20)


def test_a_gap_to_who_won_all_in_a_slice_has_no_interval_and_says_so(study):
    rows = study.verdicts
    best = rows["responder_a"].min()
    there = rows["slice"] == "adversarial"
    verdict = rows["verdict"].mask(there & (rows["responder_a"] == best), "a")
    rows = rows.assign(verdict=verdict.mask(there & (rows["responder_b"] == best), "b"))
    table = twin_contrasts(rows, n_resamples=50)
    concerned = table["contrast"].str.contains(best, regex=False)
    assert table["penalised"].tolist() == concerned.tolist()
    assert table.loc[concerned, ["ci_low", "ci_high"]].isna().all(axis=None)
    assert table.loc[~concerned, ["ci_low", "ci_high"]].notna().all(axis=None)


def test_a_contrast_of_groups_is_the_mean_of_the_contrasts_of_its_members(study):
    pairs = {"one": (["human_01"], ["model_01"]), "two": (["human_01"], ["model_02"])}
    both = pairs | {
        "both": (["human_01"], ["model_01", "model_02"]),
        "turned": (["model_01", "model_02"], ["human_01"]),
    }
    delta = twin_contrasts(study.verdicts, contrasts=both, n_resamples=20).set_index("contrast")[
        "delta"
    ]
    assert delta["both"] == pytest.approx(delta[list(pairs)].mean())
    assert delta["turned"] == pytest.approx(-delta["both"])


def shares(told):
    """Of two responders: what x won in each dialogue, adversarial and calm, of ten verdicts."""
    rows = []
    for dialogue, won in enumerate(told):
        for name, n in zip(("adversarial", "calm_twin"), won, strict=True):
            rows += [("x", "y", "a" if k < n else "b", name, str(dialogue)) for k in range(10)]
    return pd.DataFrame(
        rows, columns=["responder_a", "responder_b", "verdict", "slice", "dialogue_id"]
    )


TOLD = np.array([[8, 5], [7, 6], [6, 6], [4, 5], [9, 3], [7, 5]])


def test_each_way_to_flip_signs_counts_in_the_p_value_and_drawn_ones_say_the_same(monkeypatch):
    """All 64 ways, from the log-odds of mean shares; then 4,000 drawn."""
    found = twin_contrasts(shares(TOLD), n_resamples=20)
    turned = np.array(
        [
            np.where(np.array(flip)[:, None], TOLD[:, ::-1], TOLD)
            for flip in itertools.product([0, 1], repeat=6)
        ]
    )
    gap = np.subtract(*logit(turned.mean(axis=1) / 10).T)
    exact = found["p_value"].item()
    assert found["n_flips"].item() == 64
    assert exact == (np.abs(gap) >= np.abs(gap[0]) - 1e-6).mean()
    monkeypatch.setattr("heart_utils.ratings.standings.ALL_FLIPS", 4)
    monkeypatch.setattr("heart_utils.ratings.standings.N_FLIPS", 4000)
    drawn = twin_contrasts(shares(TOLD), n_resamples=20)
    error = np.sqrt(exact * (1 - exact) / 4000)
    assert drawn["n_flips"].item() == 4000
    assert drawn["p_value"].item() == pytest.approx(exact, abs=4 * error + 1 / 4000)


@pytest.mark.parametrize(
    ("n_dialogues", "n_flips", "p_value"),
    [(4, 16, 2 / 16), (14, 2**14, 2**-13), (15, 2000, 1 / 2001)],
)
def test_p_of_dialogues_that_all_say_the_same(n_dialogues, n_flips, p_value):
    """Two of all ways are as wide; of drawn ones the data count as one."""
    found = twin_contrasts(shares([[9, 1]] * n_dialogues), n_resamples=20)
    assert (found["n_flips"].item(), found["p_value"].item()) == (n_flips, p_value)
    assert found["delta"].item() == pytest.approx(2 * np.log(9))


def test_the_error_of_a_contrast_is_that_of_dialogues_drawn_again(rng):
    table = twin_contrasts(shares(TOLD), n_resamples=4000)
    drawn = TOLD[rng.integers(6, size=(4000, 6))].mean(axis=1) / 10
    error = np.subtract(*logit(drawn).T).std() * np.sqrt(6 / 5)
    assert table["se"].item() == pytest.approx(error, rel=0.1)
    assert table["ci_high"].item() - table["delta"].item() == pytest.approx(
        stats.t.ppf(0.975, 5) * table["se"].item()
    )


def test_a_standard_history_is_no_twin():
    rows = shares([[8, 5]] * 5)
    rows["slice"] = rows["slice"].mask(rows.index < 10, "standard")
    found = twin_contrasts(rows, n_resamples=20)
    assert (found["n_clusters"].item(), found["n_unpaired"].item()) == (4, 10)


# Fragility


@pytest.fixture(scope="module")
def rows():
    strengths = {"x": 0.25, "y": 0.2, "z": -0.45}
    study = simulate_study(
        rng=np.random.default_rng(6),
        strengths=strengths,
        n_dialogues=120,
        pairs="all",
        panels=[Panel("human", 20, 2)],
        spread=Spread(dialogues=0.3),
    )
    return study.verdicts


@pytest.mark.parametrize(
    ("unit", "weights"),
    [
        ("verdict", "pairs"),
        ("verdict", "verdicts"),
        ("dialogue_id", "pairs"),
        ("rater", "verdicts"),
    ],
)
def test_without_the_set_another_leads_and_with_less_of_it_nobody_else(rows, unit, weights):
    found = find_fragility(rows, unit=unit, weights=weights)
    column = rows.index if unit == "verdict" else rows[unit]
    assert found.n_removed == len(found.removed)
    without = fit_ratings(rows[~column.isin(found.removed)], weights=weights, n_resamples=0)
    assert without.strength.index[0] == found.rival != found.first
    assert fit_ratings(rows, weights=weights, n_resamples=0).strength.index[0] == found.first
    almost = fit_ratings(rows[~column.isin(found.removed[:-1])], weights=weights, n_resamples=0)
    assert almost.strength.index[0] == found.first


@pytest.mark.parametrize(
    "verdicts",
    [
        ["xya", "xya", "xyb", "yza", "yzb", "zxa", "zxb", "zxb", "yza"],
        # more than the first order promises; t is a tie
        ["xya", "xzt", "xyb", "xyt", "zxa", "xza"],
    ],
)
def test_the_set_is_as_small_as_trying_all_of_them_finds(verdicts):
    """A few verdicts of three: every subset is tried."""
    table = pd.DataFrame(map(list, verdicts), columns=["responder_a", "responder_b", "verdict"])
    table = table.replace({"verdict": {"t": "tie"}})
    first = fit_ratings(table, weights="verdicts").strength.index[0]

    def flips(removed):
        try:
            strength = fit_ratings(table.drop(index=list(removed)), weights="verdicts").strength
        except RatingsError:
            return False
        return strength.index[0] != first and strength.iloc[0] > strength.iloc[1] + 1e-9

    smallest = next(
        n
        for n in range(1, 9)
        if any(flips(some) for some in itertools.combinations(table.index, n))
    )
    assert find_fragility(table, weights="verdicts").n_removed == smallest


def test_one_dialogue_may_hold_up_the_first_place():
    table = pd.DataFrame(
        {
            "dialogue_id": list("dddef"),
            "responder_a": "x",
            "responder_b": "y",
            "verdict": list("aaabb"),
        }
    )
    found = find_fragility(table, unit="dialogue_id", weights="verdicts")
    assert (found.n_removed, found.removed.tolist(), found.n_units) == (1, ["d"], 3)


def test_a_leader_whom_nobody_beats_in_any_subset_stays_and_a_missing_column_is_named():
    table = pd.DataFrame({"responder_a": "x", "responder_b": "y", "verdict": ["a"] * 5})
    found = find_fragility(table)
    assert (found.n_removed, found.rival, len(found.removed)) == (None, "", 0)
    with pytest.raises(RatingsError, match="lack the column judge"):
        find_fragility(table, unit="judge")


# People against models


WHO = pd.DataFrame(
    {
        "responder": ["anna", "ben", "bot", "probe"],
        "responder_kind": ["human", "human", "model", "probe"],
    }
)


def votes(rows):
    table = pd.DataFrame(
        rows,
        columns=["responder_a", "responder_b", "verdict", "state", "dialogue_id", "rater_kind"],
    )
    return table.assign(dimension="overall")


ROWS = [
    ("anna", "bot", "a", "valid", "d1", "human"),
    ("bot", "ben", "a", "valid", "d1", "human"),
    ("bot", "anna", "tie", "valid", "d2", "human"),
    ("ben", "bot", None, "inconsistent", "d2", "model"),
    ("ben", "bot", "b", "valid", "d3", "model"),
    ("anna", "bot", None, "error", "d3", "model"),  # a failure: counts for nobody
    ("anna", "ben", "a", "valid", "d3", "human"),  # two people: no such meeting
    ("probe", "bot", "a", "valid", "d3", "human"),  # a probe is nobody's reply
]


def test_wins_ties_and_contradictions_are_counted_by_hand(rng):
    found = head_to_head(votes(ROWS), WHO, rng=rng, n_resamples=200).set_index("outcome")
    assert found["share"].to_dict() == pytest.approx(
        {
            "people": 1 / 5,
            "models": 2 / 5,
            "tie": 1 / 5,
            "inconsistent": 1 / 5,
            "models_of_decided": 2 / 3,
        }
    )
    assert found["n_verdicts"].unique().tolist() == [5]
    assert found["n_clusters"].unique().tolist() == [3]
    assert found["provisional"].all()


def test_splits_are_the_counts_of_their_rows(rng):
    found = head_to_head(
        votes(ROWS[::-1]), WHO, rng=rng, by=["rater_kind"], n_resamples=50
    ).set_index(["rater_kind", "outcome"])
    assert list(dict.fromkeys(found.index.get_level_values(0))) == ["human", "model"]
    assert found.loc[("human", "people"), "share"] == pytest.approx(1 / 3)
    assert found.loc[("model", "models"), "share"] == pytest.approx(1 / 2)


def test_a_run_without_people_is_told_so(rng):
    with pytest.raises(
        RatingsError,
        match="'overall': there are 0 people and 2 models",
    ):
        head_to_head(votes(ROWS[:1]), WHO.assign(responder_kind="model"), rng=rng)
    with pytest.raises(RatingsError, match="what kind bot is of"):
        head_to_head(votes(ROWS[:2]), WHO[WHO["responder"] != "bot"], rng=rng)
