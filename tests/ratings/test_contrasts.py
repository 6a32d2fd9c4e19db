"""Contrasts and twins: by hand, on known strengths, and under no difference at all."""

import itertools

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.special import logit

from heart_utils.ratings.ratings import fit_ratings
from heart_utils.ratings.standings import twin_contrasts
from heart_utils.ratings.verdicts import RatingsError
from heart_utils.simulate.study import Panel, Spread, simulate_study

PANEL = Panel("human", 20, 6)


def twins(seed, adversarial_sd, n_twins=18, n_responders=4, **settings):
    return simulate_study(
        rng=np.random.default_rng(seed),
        strengths=n_responders,
        n_dialogues=0,
        n_twins=n_twins,
        pairs="all",
        panels=[PANEL],
        **settings,
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
    row = found.table.set_index("contrast").loc["human_01 - model_02"]
    gap = {name: board["human_01"] - board["model_02"] for name, board in boards.items()}
    assert (row["adversarial"], row["calm"]) == pytest.approx(
        (gap["adversarial"], gap["calm_twin"]), abs=1e-7
    )
    assert row["delta"] == pytest.approx(gap["adversarial"] - gap["calm_twin"], abs=1e-7)
    assert row["ci_high"] - row["delta"] == pytest.approx(stats.t.ppf(0.975, 17) * row["se"])
    assert found.table["simulated"].all()


def test_a_known_shift_comes_back():
    study = twins(8, 1.0, n_twins=150)
    truth = study.truth.query("rater_kind == 'all'").pivot_table(
        index="responder", columns="slice", values="marginal"
    )
    shift = truth["adversarial"] - truth["calm_twin"]
    table = twin_contrasts(study.verdicts, n_resamples=300).table
    for row in table.itertuples():
        one, other = row.contrast.split(" - ")
        assert abs(row.delta - (shift[one] - shift[other])) < 3 * row.se
    assert (table["p_value"] < 0.05).any()


@pytest.mark.slow
def test_without_a_difference_small_p_values_are_as_rare_as_they_say():
    """40 studies of 8 twins, exact test: 5 % of p values at or under 0.05, give or take three
    standard errors."""
    small = []
    for seed in range(40):
        found = twin_contrasts(twins(seed, 0.0, n_twins=8, n_responders=2).verdicts, n_resamples=20)
        assert found.n_flips == 256
        small.append(found.table["p_value"].item() <= 0.05)
    assert np.mean(small) <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 40)


def test_exact_p_by_hand():
    """Four dialogues, x always preferred when adversarial and never when calm: 2 of 16 ways are as
    wide."""
    rows = []
    for dialogue in "abcd":
        rows += [("x", "y", "a", "adversarial", dialogue)] * 3 + [
            ("x", "y", "b", "adversarial", dialogue)
        ]
        rows += [("x", "y", "b", "calm_twin", dialogue)] * 3 + [
            ("x", "y", "a", "calm_twin", dialogue)
        ]
    table = pd.DataFrame(
        rows, columns=["responder_a", "responder_b", "verdict", "slice", "dialogue_id"]
    )
    found = twin_contrasts(table, n_resamples=50)
    assert found.table["delta"].item() == pytest.approx(2 * np.log(3))
    assert found.table["p_value"].item() == pytest.approx(2 / 16)


def test_drawn_flips_give_the_p_value_that_all_of_them_give(monkeypatch):
    """With (1 + n as wide) / (1 + n drawn), here of 4,000 flips drawn where 256 exist."""
    verdicts = twins(12, 0.6, n_twins=8, n_responders=2).verdicts
    exact = twin_contrasts(verdicts, n_resamples=20).table["p_value"].item()
    monkeypatch.setattr("heart_utils.ratings.standings.ALL_FLIPS", 4)
    monkeypatch.setattr("heart_utils.ratings.standings.N_FLIPS", 4000)
    drawn = twin_contrasts(verdicts, n_resamples=20)
    assert drawn.n_flips == 4000
    spread = np.sqrt(exact * (1 - exact) / 4000)
    assert 0 < exact < 1
    assert drawn.table["p_value"].item() == pytest.approx(exact, abs=4 * spread + 1 / 4000)


def test_one_verdict_a_slice_makes_a_pair_of_twins(study):
    once = study.verdicts.drop_duplicates(["dialogue_id", "slice"])
    found = twin_contrasts(once, n_resamples=20)
    assert found.n_unpaired == 0
    assert found.table["n_clusters"].unique().tolist() == [18]


def test_dialogues_without_a_twin_are_counted(study):
    lone = study.histories.query("slice == 'calm_twin'")["history_id"].iloc[0]
    rows = study.verdicts[study.verdicts["history_id"] != lone]
    found = twin_contrasts(rows, n_resamples=20)
    assert found.table["n_clusters"].unique().tolist() == [17]
    assert found.n_unpaired == (study.verdicts["history_id"] == lone).sum()


def test_what_is_no_contrast_is_refused(study):
    cases = {
        "names nobody, who is not on the leaderboard": (["nobody"], ["human_01"]),
        "'x' needs two groups that do not overlap": (["human_01"], []),
        "do not overlap, got ": (["human_01"], ["human_01", "model_01"]),
    }
    for said, sides in cases.items():
        with pytest.raises(RatingsError, match=said):
            twin_contrasts(study.verdicts, contrasts={"x": sides}, n_resamples=20)
    with pytest.raises(RatingsError, match="No dialogue has verdicts on both"):
        twin_contrasts(study.verdicts[study.verdicts["slice"] == "adversarial"])


def test_pairs_weigh_the_same_however_often_they_were_judged(study):
    """One pair's verdicts copied ten times over within each of its dialogues."""
    often = study.verdicts[
        (study.verdicts["responder_a"] == "human_01")
        & (study.verdicts["responder_b"] == "model_01")
    ]
    more = pd.concat([study.verdicts, *[often] * 9], ignore_index=True)
    deltas = [
        twin_contrasts(rows, n_resamples=20).table["delta"].tolist()
        for rows in (study.verdicts, more)
    ]
    assert deltas[0] == pytest.approx(deltas[1])


def test_a_gap_to_who_won_all_in_a_slice_has_no_interval_and_says_so(study):
    rows = study.verdicts
    best = rows["responder_a"].min()
    there = rows["slice"] == "adversarial"
    verdict = rows["verdict"].mask(there & (rows["responder_a"] == best), "a")
    rows = rows.assign(verdict=verdict.mask(there & (rows["responder_b"] == best), "b"))
    table = twin_contrasts(rows, n_resamples=50).table
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
    delta = twin_contrasts(study.verdicts, contrasts=both, n_resamples=20).table.set_index(
        "contrast"
    )["delta"]
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


def test_each_way_to_flip_signs_counts_in_the_p_value():
    """All 64 ways, from the log-odds of mean shares."""
    found = twin_contrasts(shares(TOLD), n_resamples=20)
    turned = np.array(
        [
            np.where(np.array(flip)[:, None], TOLD[:, ::-1], TOLD)
            for flip in itertools.product([0, 1], repeat=6)
        ]
    )
    gap = np.subtract(*logit(turned.mean(axis=1) / 10).T)
    assert found.n_flips == 64
    assert found.table["p_value"].item() == (np.abs(gap) >= np.abs(gap[0]) - 1e-6).mean()


def test_the_error_of_a_contrast_is_that_of_dialogues_drawn_again(rng):
    table = twin_contrasts(shares(TOLD), n_resamples=4000).table
    drawn = TOLD[rng.integers(6, size=(4000, 6))].mean(axis=1) / 10
    error = np.subtract(*logit(drawn).T).std() * np.sqrt(6 / 5)
    assert table["se"].item() == pytest.approx(error, rel=0.1)
    assert table["ci_high"].item() - table["delta"].item() == pytest.approx(
        stats.t.ppf(0.975, 5) * table["se"].item()
    )


def test_a_drawn_test_counts_the_data_as_one_way():
    """No way to flip 16 dialogues that all say the same is as wide but two of 65,536."""
    found = twin_contrasts(shares([[9, 1]] * 16), n_resamples=20)
    assert (found.n_flips, found.table["p_value"].item()) == (2000, 1 / 2001)


def test_the_slices_that_are_there_are_named(study):
    rows = study.verdicts[study.verdicts["slice"] == "adversarial"].assign(
        dialogue_id=lambda table: table["history_id"]
    )
    with pytest.raises(RatingsError, match="calm_twin; the slices here are adversarial"):
        twin_contrasts(rows)


def test_a_standard_history_is_no_twin_and_fifteen_dialogues_have_too_many_ways():
    rows = shares([[8, 5]] * 16)
    rows["slice"] = rows["slice"].mask(
        (rows["dialogue_id"] == "0") & (rows["slice"] == "calm_twin"), "standard"
    )
    found = twin_contrasts(rows, n_resamples=20)
    assert found.table["n_clusters"].item() == 15
    # of a dialogue's adversarial history, whose twin was not judged
    assert (found.n_flips, found.n_unpaired) == (2000, 10)
