import numpy as np
import pandas as pd
import pytest

from heart_utils.analysis.rewrites import adjust_contrast, contrast_slices, describe_rewrites
from heart_utils.analysis.strategies import StrategyError


def judge(rng, n, gain, per=6):
    """Three authors, of whom x is log(gain) stronger on the rewrites (simulated)."""
    strength = {"x": 0.2, "y": 0.0, "z": -0.2}
    rows = []
    for dialogue in range(n):
        for part in ("calm_twin", "adversarial"):
            for a, b in (("x", "y"), ("x", "z"), ("y", "z")):
                theta = strength[a] - strength[b] + (gain if part == "adversarial" and a == "x" else 0)
                won = rng.random(per) < 1 / (1 + np.exp(-theta))
                rows += [(f"d{dialogue:03d}", part, a, b, "a" if one else "b") for one in won]
    table = pd.DataFrame(rows, columns=["dialogue_id", "slice", "responder_a", "responder_b", "verdict"])
    return table.assign(dimension="overall", state="valid", simulated=True)


def test_a_known_gain_on_rewrites_is_found(rng):
    """A gain of 1 against both others is +116 and -58 points each (mean zero): 400 / ln 10 * (2/3, -1/3)."""
    contrast, by_dialogue = contrast_slices(judge(rng, 150, 1.0), n_resamples=200)
    found = contrast.set_index("responder")
    points = 400 / np.log(10)
    assert found["difference"].to_dict() == pytest.approx({"x": points * 2 / 3, "y": -points / 3, "z": -points / 3}, abs=25)
    assert found.loc["x", "ci_low"] > 0
    assert (found["n_dialogues"] == 150).all()
    assert len(by_dialogue) == 450


def test_intervals_hold_no_gain_where_there_is_none(rng):
    held = [
        contrast_slices(judge(rng, 40, 0.0, per=2), n_resamples=150, seed=number)[0].eval("ci_low <= 0 <= ci_high").to_numpy()
        for number in range(25)
    ]
    assert np.mean(held) > 0.88


def test_too_few_twins_are_an_error(rng):
    with pytest.raises(StrategyError, match="4 dialogues have verdicts on a rewrite and on its calm original"):
        contrast_slices(judge(rng, 4, 0.0))


def history(name, twin, part, turns):
    return {"history_id": name, "twin_id": twin, "dialogue_id": "d", "slice": part,
            "turns": [{"speaker": speaker, "text": text} for speaker, text in turns]}  # fmt: skip


def test_what_else_the_rewriting_changed_is_measured_by_hand():
    calm = [("supporter", "Hello there, friend."), ("seeker", "I am sad today.")]
    hard = [
        ("supporter", "Hi."),
        ("seeker", "No idea why I bother with this, I'm done."),
        ("supporter", "Oh."),
        ("seeker", "Bye."),
    ]
    found = describe_rewrites(
        pd.DataFrame([history("c", "a", "calm_twin", calm), history("a", "c", "adversarial", hard)])
    ).iloc[0]
    # seekers: (9 + 1) / 2 - 4; supporters: 1 - 3; turns 4 - 2; "sad" is gone; a threat to leave is there
    assert found[["seeker_words", "supporter_words", "n_turns", "explicit_last", "ends_on_leaving"]].tolist() == [
        1,
        -2,
        2,
        -1,
        1,
    ]
    assert found["leaving"]


def test_a_difference_that_only_comes_from_length_is_adjusted_away(rng):
    words = rng.normal(8, 3, 60)
    dialogues = pd.DataFrame({"dialogue_id": range(60), "difference": 0.02 * words + 0.05 * rng.standard_normal(60)})
    rewrites = pd.DataFrame({"dialogue_id": range(60), "seeker_words": words, "ends_on_leaving": 1.0})
    found = adjust_contrast(dialogues, rewrites, covariates=["seeker_words", "ends_on_leaving"]).set_index("covariate")
    assert found.loc["none", "ci_low"] > 0
    assert found.loc["seeker_words", "ci_low"] < 0 < found.loc["seeker_words", "ci_high"]
    assert np.isnan(found.loc["ends_on_leaving", "difference"])  # nearly all rewrites end so: nothing to adjust by
