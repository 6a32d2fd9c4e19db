import numpy as np
import pandas as pd
import pytest

from heart_utils.replies.rewrites import adjust_contrast, describe_rewrites, twin_gaps


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
    """A gain of 1 on x: its win share against y goes from expit(.2) to expit(1.2), against z from expit(.4) to expit(1.4);
    y and z lose what x wins, and the gap of x and y grows by both (simulated)."""
    e = lambda value: 1 / (1 + np.exp(-value))  # noqa: E731
    toy, toz = e(1.2) - e(0.2), e(1.4) - e(0.4)
    gaps = twin_gaps(judge(rng, 300, 1.0), {"x": 1, "y": -1})
    assert gaps["difference"].mean() == pytest.approx((toy + toz) / 2 + toy / 2, abs=0.03)
    assert len(gaps) == 300


def test_a_dialogue_without_its_twin_or_without_an_author_stays_out(rng):
    verdicts = judge(rng, 6, 0.0)
    lonely = verdicts[~((verdicts["dialogue_id"] == "d000") & (verdicts["slice"] == "calm_twin"))]
    lonely = lonely[~((lonely["dialogue_id"] == "d001") & ((lonely["responder_a"] == "x") | (lonely["responder_b"] == "x")))]
    assert twin_gaps(lonely, {"x": 1, "y": -1})["dialogue_id"].tolist() == ["d002", "d003", "d004", "d005"]


def test_failures_are_no_losses(rng):
    verdicts = judge(rng, 4, 0.0)
    failed = verdicts[:8].assign(state="error", verdict=None)
    assert twin_gaps(pd.concat([verdicts, failed]), {"x": 1, "z": -1}).equals(twin_gaps(verdicts, {"x": 1, "z": -1}))


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
    assert found["q_value"].notna().tolist() == [False, True, False]  # over the covariates that could be fitted, here one
    assert found.loc["seeker_words", "q_value"] == found.loc["seeker_words", "p_value"] > 0.05 > found.loc["none", "p_value"]
