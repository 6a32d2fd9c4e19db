"""By turn: paths, slopes, repetition and stopping, by hand, a second way and where truth is known."""

import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf
from scipy import stats

from heart_utils import (
    describe_turns,
    drift_by_turn,
    load_scores,
    path_by_turn,
    split_turns,
    stopping_paths,
)
from heart_utils.replies.turns import TurnsError


def conversation(number, *texts, seeker="s"):
    turns = [
        {"speaker": speaker, "text": text}
        for text, speaker in zip(texts, ["supporter", "seeker"] * 9, strict=False)
    ]
    names = {"dialogue_id": f"d{number}", "responder": "m", "seeker": seeker}
    return {"conversation_id": f"c{number}", **names, "turns": turns}


def test_an_exchange_is_the_supporters_turn_and_the_answer_to_it():
    turns = split_turns(pd.DataFrame([conversation(1, "a", "b", "c", "d", "e"), conversation(2)]))
    assert turns["exchange"].tolist() == [1, 1, 2, 2, 3]
    assert turns["reply_id"].is_unique
    assert set(turns["conversation_id"]) == {"c1"}  # nobody said anything in the other
    wrong = conversation(3, "a")
    wrong["turns"][0]["speaker"] = "seeker"
    with pytest.raises(TurnsError, match="c3 begins with the seeker"):
        split_turns(pd.DataFrame([wrong]))


def test_repetition_counts_runs_said_before_in_this_conversation_alone():
    said = ["I hear you, it is hard.", "yes", "I hear you, it is fine.", "no", "Go on please."]
    table = describe_turns(
        split_turns(pd.DataFrame([conversation(1, *said), conversation(2, said[0])]))
    )
    # "i hear you", "hear you it", "you it is" of four runs, then none of one; first turns have none
    # before.
    assert table["repetition"].tolist() == pytest.approx([np.nan, 3 / 4, 0.0, np.nan], nan_ok=True)
    assert table["self_talk"].tolist() == pytest.approx([1 / 6, 1 / 6, 0, 1 / 6])


def test_codes_of_turns_are_joined_and_of_one_coder_only():
    turns = split_turns(pd.DataFrame([conversation(1, "a b c", "d", "e f g")]))
    codes = turns[turns["speaker"] == "supporter"][["reply_id"]].assign(
        coder="words", code="boundary", probability=[1.0, np.nan]
    )
    assert describe_turns(turns, codes)["boundary"].tolist() == pytest.approx(
        [1.0, np.nan], nan_ok=True
    )
    two = pd.concat([codes, codes.assign(coder="judge")])
    with pytest.raises(TurnsError, match="judge, words"):
        describe_turns(turns, two)


def drawn(rng, slope, n_starts=40, n_models=3, n_turns=8):
    """Starts differ in level and in slope; who does badly stops early."""
    index = pd.MultiIndex.from_product(
        [range(n_starts), range(n_models), range(1, n_turns + 1)],
        names=["dialogue_id", "model", "exchange"],
    )
    table = pd.DataFrame(index=index).reset_index()
    start = table["dialogue_id"].to_numpy()
    level, tilt = rng.normal(size=n_starts), rng.normal(scale=0.1, size=n_starts)
    noise = rng.normal(size=len(table))
    value = level[start] + (slope + tilt[start]) * table["exchange"] + noise
    table = table.assign(value=value, responder="m")
    table["conversation_id"] = table["dialogue_id"].astype(str) + "-" + table["model"].astype(str)
    return table[~((level[start] < 0) & (table["exchange"] > 3))]


def test_a_known_slope_is_covered_though_bad_conversations_stop_early():
    rng = np.random.default_rng(1)
    covered, naive = [], []
    for _ in range(150):
        table = drawn(rng, -0.2)
        [row] = drift_by_turn(table, "value").to_dict("records")
        covered.append(row["ci_low"] <= -0.2 <= row["ci_high"])
        naive.append(np.polyfit(table["exchange"], table["value"], 1)[0])
    assert np.mean(covered) == pytest.approx(0.95, abs=0.06)
    assert np.mean(naive) > -0.15  # the line through all rows is tilted up


def test_the_slope_is_that_of_a_regression_with_a_level_for_each_conversation():
    table = drawn(np.random.default_rng(2), -0.3, n_starts=12)
    [row] = drift_by_turn(table, "value").to_dict("records")
    fit = smf.ols("value ~ exchange + C(conversation_id)", table).fit()
    assert row["slope"] == pytest.approx(fit.params["exchange"])
    assert row["n_clusters"] == 12


def test_without_two_starts_there_is_a_mean_and_no_interval():
    table = drawn(np.random.default_rng(3), 0.0, n_starts=1)
    assert path_by_turn(table, "value")["ci_low"].isna().all()
    assert np.isnan(drift_by_turn(table, "value")["slope"].iloc[0])


def test_means_by_exchange_are_plain_means():
    table = drawn(np.random.default_rng(4), 0.1)
    path = path_by_turn(table, "value").set_index("exchange")
    means = table.groupby("exchange")["value"].mean()
    assert path["value"].to_dict() == pytest.approx(means.to_dict())
    assert ((path["ci_low"] < path["value"]) & (path["value"] < path["ci_high"])).all()
    assert path.loc[8, "n"] < path.loc[3, "n"]  # fewer got so far


def test_stopping_adds_up_and_is_what_the_last_states_say():
    sage = load_scores("sage")
    last = sage.sort_values("item").groupby("reply_id").tail(1)
    how = np.select([last["score"] >= 100, last["score"] < 10], ["reached 100", "fell"], None)
    ended = last.assign(
        how=pd.Series(how, last.index, dtype=object), replies=last["item"].astype(int)
    )
    ended = ended.dropna(subset="replies")
    paths = stopping_paths(ended, how="how", step="replies", by=["rater"])
    final = paths[paths["replies"] == paths["replies"].max()].set_index(["rater", "how"])["share"]
    for (rater, way), share in final.items():
        own = ended[ended["rater"] == rater]
        assert share == pytest.approx((own["how"] == way).mean())
    steps = paths.groupby(["rater", "how"])["share"].diff().dropna()
    assert (steps >= 0).all()


def test_equal_values_have_no_interval_unless_the_ends_of_their_scale_are_known():
    rows = pd.DataFrame({"exchange": 1, "stays": 1.0, "dialogue_id": range(6), "responder": "m"})
    [blind] = path_by_turn(rows, "stays").to_dict("records")
    assert np.isnan(blind["ci_low"])
    [row] = path_by_turn(rows, "stays", ends=(0.0, 1.0)).to_dict("records")
    reach = stats.t.ppf(0.975, 5) ** 2  # Wilson's, where all of n agree: n / (n + t squared)
    assert [row["ci_low"], row["ci_high"]] == pytest.approx([6 / (6 + reach), 1.0])
    [wide] = path_by_turn(rows, "stays", ends=(0.0, 2.0)).to_dict("records")
    assert wide["ci_low"] < 1.0 < wide["ci_high"]
    with pytest.raises(TurnsError, match="stays is 1; ends say 0 to 0.5"):
        path_by_turn(rows, "stays", ends=(0.0, 0.5))


def test_intervals_of_a_rare_code_hold_the_truth_where_its_ends_are_known():
    rng = np.random.default_rng(11)
    held = {None: 0, (0.0, 1.0): 0}
    for _ in range(100):
        often = rng.beta(9.0, 1.0, 10)
        rows = pd.DataFrame({"exchange": 1, "dialogue_id": np.repeat(range(10), 2)})
        rows = rows.assign(stays=rng.random(20) < often.repeat(2), responder="m").astype(
            {"stays": float}
        )
        for ends in held:
            [row] = path_by_turn(rows, "stays", ends=ends).to_dict("records")
            held[ends] += row["ci_low"] <= 0.9 <= row["ci_high"]
    assert held[0.0, 1.0] >= 90 > held[None]
