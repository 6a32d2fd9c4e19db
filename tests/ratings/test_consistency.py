"""Consistency: known spreads come back, and noise is not taken for spread."""

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

from heart_utils.ratings.consistency import consistency


def duels(rng, n_dialogues, n_votes, spread):
    """x against y, with a chance that differs by dialogue."""
    chance = np.clip(0.6 + spread * rng.normal(size=n_dialogues), 0.02, 0.98)
    dialogue = np.repeat(np.arange(n_dialogues), n_votes)
    won = rng.random(len(dialogue)) < chance[dialogue]
    rows = {"responder_a": "x", "responder_b": "y", "verdict": np.where(won, "a", "b"), "dialogue_id": dialogue.astype(str)}
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


def field(rng, n_dialogues, sd, votes):
    """Five responders of unlike strength, who all meet in each dialogue and are off by an amount of their own in it."""
    strengths = np.linspace(1.0, -1.0, 5)
    there = strengths + sd * rng.normal(size=(n_dialogues, 5))
    a, b = np.triu_indices(5, 1)
    chance = expit(there[:, a] - there[:, b])
    won = rng.random((votes, *chance.shape)) < chance
    _, dialogue, pair = np.unravel_index(np.arange(won.size), won.shape)
    names = np.array(list("vwxyz"))
    rows = {"responder_a": names[a[pair]], "responder_b": names[b[pair]], "verdict": np.where(won.ravel(), "a", "b")}
    mean = np.stack([np.where(a == i, chance, np.where(b == i, 1 - chance, 0)).sum(axis=1) / 4 for i in range(5)], axis=1)
    return pd.DataFrame({**rows, "dialogue_id": dialogue.astype(str)}), mean


@pytest.mark.parametrize("votes", [1, 4])
def test_strong_and_weak_opponents_are_not_taken_for_noise(rng, votes):
    """With noise taken from verdicts on unlike opponents the spread came out 13 % too small."""
    rows, chance = field(rng, 1500, 0.7, votes)
    found = consistency(rows, rng=rng, n_resamples=50).set_index("responder")
    assert found["sd"].tolist() == pytest.approx(chance.std(axis=0).tolist(), rel=0.08)
    assert (found["sd"] / chance.std(axis=0)).mean() == pytest.approx(1, abs=0.04)
    assert found["tenth"].tolist() == pytest.approx(np.quantile(chance, 0.1, axis=0).tolist(), abs=0.03)
    assert found["mean"].tolist() == pytest.approx(chance.mean(axis=0).tolist(), abs=0.02)


def test_a_responder_that_meets_one_of_several_in_each_dialogue_has_no_spread_to_estimate(rng):
    rows, _ = field(rng, 60, 0.5, 2)
    pair = rows["responder_a"] + rows["responder_b"]
    met = pair == np.array(["vw", "wx", "xy", "yz"])[rows["dialogue_id"].astype(int) % 4]
    assert consistency(rows[met], rng=rng, n_resamples=20)["sd"].isna().all()


def test_by_hand():
    """Shares 1, 1/2 and 0 of four verdicts: variance 1/4, less a mean noise of (0 + 1/12 + 0) / 3."""
    verdicts = ["a"] * 4 + ["a", "a", "b", "b"] + ["b"] * 4
    rows = pd.DataFrame({"responder_a": "x", "responder_b": "y", "verdict": verdicts, "dialogue_id": np.repeat(list("def"), 4)})
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
