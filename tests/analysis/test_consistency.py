"""Consistency: known spreads come back, and noise is not taken for spread."""

import numpy as np
import pandas as pd
import pytest

from heart_utils.analysis.consistency import consistency


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
