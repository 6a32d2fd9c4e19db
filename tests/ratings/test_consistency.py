"""Consistency: known spreads come back, and noise is not taken for spread."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.special import expit

from heart_utils.ratings.standings import consistency


def duels(rng, n_dialogues, n_votes, spread):
    """x against y, with a chance that differs by dialogue."""
    chance = np.clip(0.6 + spread * rng.normal(size=n_dialogues), 0.02, 0.98)
    dialogue = np.repeat(np.arange(n_dialogues), n_votes)
    won = rng.random(len(dialogue)) < chance[dialogue]
    rows = {
        "responder_a": "x",
        "responder_b": "y",
        "verdict": np.where(won, "a", "b"),
        "dialogue_id": dialogue.astype(str),
    }
    return pd.DataFrame(rows), chance


@pytest.mark.parametrize("spread", [0.0, 0.1, 0.2])
def test_a_known_spread_comes_back_without_the_noise(rng, spread):
    """8 votes have a noise of 0.17 a dialogue: more than the spreads to be found."""
    rows, chance = duels(rng, 600, 8, spread)
    found = consistency(rows, rng=rng, n_resamples=200).set_index("responder")
    assert found.loc["x", "sd"] == pytest.approx(chance.std(), abs=0.03)
    assert found.loc["x", "sd_low"] <= chance.std() <= found.loc["x", "sd_high"]
    assert found.loc["x", "mean"] == pytest.approx(0.6, abs=0.03)
    assert found.loc["x", "tenth"] == pytest.approx(np.quantile(chance, 0.1), abs=0.05)
    assert found.loc["x", "sd"] == pytest.approx(found.loc["y", "sd"])


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


def test_by_hand():
    """Shares 1, 1/2 and 0 of four verdicts: variance 1/4, less a mean noise of (0 + 1/12 + 0) /
    3."""
    verdicts = ["a"] * 4 + ["a", "a", "b", "b"] + ["b"] * 4
    rows = pd.DataFrame(
        {
            "responder_a": "x",
            "responder_b": "y",
            "verdict": verdicts,
            "dialogue_id": np.repeat(list("def"), 4),
        }
    )
    found = consistency(rows, rng=np.random.default_rng(1), n_resamples=20).set_index("responder")
    assert found.loc["x", "sd"] == pytest.approx(np.sqrt(1 / 4 - 1 / 36))
    assert found.loc["x", "provisional"]


def test_dialogues_with_one_verdict_cannot_tell_and_are_counted(rng):
    rows, _ = duels(rng, 40, 4, 0.1)
    single = rows.iloc[:10].assign(dialogue_id=[f"s{k}" for k in range(10)])
    found = consistency(pd.concat([rows, single]), rng=rng, n_resamples=20)
    assert found["n_single"].tolist() == [10, 10]
    assert found["n_clusters"].tolist() == [40, 40]


def test_one_dialogue_is_refused(rng):
    rows, _ = duels(rng, 1, 4, 0.1)
    with pytest.raises(ValueError, match="one dialogue_id only"):
        consistency(rows, rng=rng)


def test_dialogues_of_unequal_length_by_hand():
    """Shares 3/4 of four verdicts and 0 of two: variance 9/32, less a mean noise of (1/16 + 0) / 2;
    one tells nothing."""
    rows = pd.DataFrame(
        {
            "responder_a": "x",
            "responder_b": "y",
            "verdict": list("aaabbba"),
            "dialogue_id": list("ddddeef"),
        }
    )
    found = consistency(rows, rng=np.random.default_rng(1), n_resamples=20).set_index("responder")
    assert found["mean"].to_dict() == pytest.approx({"x": 3 / 8, "y": 5 / 8})
    assert found["sd"].tolist() == pytest.approx([np.sqrt(9 / 32 - 1 / 32)] * 2)
    assert found["sd_high"].tolist() == [0.5, 0.5]  # no share varies more
    assert found["n_single"].tolist() == [1, 1]


def test_one_dialogue_in_ten_is_a_percentile_of_the_beta_distribution(rng):
    found = consistency(duels(rng, 60, 6, 0.2)[0], rng=rng, n_resamples=20)
    mean, size = found["mean"], found["mean"] * (1 - found["mean"]) / found["sd"] ** 2 - 1
    assert found["tenth"].tolist() == pytest.approx(
        stats.beta.ppf(0.1, mean * size, (1 - mean) * size).tolist()
    )


def test_who_always_wins_does_so_in_the_worst_dialogues_too(rng):
    rows = duels(rng, 30, 4, 0.0)[0].assign(verdict="a")
    found = consistency(rows, rng=rng, n_resamples=20).set_index("responder")
    assert found.loc["x", ["mean", "sd", "tenth"]].tolist() == pytest.approx([1, 0, 1], abs=2e-3)
    assert found.loc["y", ["mean", "sd", "tenth"]].tolist() == pytest.approx([0, 0, 0], abs=2e-3)


def test_intervals_are_as_wide_as_dialogues_drawn_again_say(rng):
    rows = duels(rng, 60, 4, 0.2)[0]
    found = consistency(rows, rng=rng, n_resamples=2000).iloc[0]
    by_dialogue, again = [some for _, some in rows.groupby("dialogue_id")], []
    for _ in range(150):
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


def test_intervals_widen_with_the_level_by_students_t(rng):
    rows = duels(rng, 6, 40, 0.15)[0]
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


def test_the_high_end_of_one_dialogue_in_ten_lies_above_it_and_the_low_end_below(rng):
    found = consistency(duels(rng, 30, 6, 0.1)[0], rng=rng, n_resamples=50)
    assert (found["tenth_low"] < found["tenth"]).all()
    assert (found["tenth"] < found["tenth_high"]).all()


def test_who_wins_all_or_nothing_by_dialogue_wins_nothing_in_one_of_ten():
    """Shares 1, 1, 0 and 0 vary by 1/3, which is more than the 1/4 of any beta distribution with
    their mean."""
    rows = pd.DataFrame({"responder_a": "x", "responder_b": "y", "verdict": list("aaaaaabbbbbb")})
    found = consistency(
        rows.assign(dialogue_id=rows.index // 3), rng=np.random.default_rng(1), n_resamples=20
    )
    assert found["sd"].tolist() == pytest.approx([np.sqrt(1 / 3)] * 2)
    assert found["tenth"].tolist() == pytest.approx([0, 0])
