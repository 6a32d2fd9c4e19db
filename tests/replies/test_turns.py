"""By turn: paths, slopes, repetition and stopping, by hand, a second way and where truth is known."""

import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf
from scipy import stats

from heart_utils import load_scores
from heart_utils.replies.conversations import (
    TurnsError,
    drift_by_turn,
    path_by_turn,
    split_turns,
    stopping_paths,
)


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


TALKING, ALL, WITHIN = "those still talking", "all, had none stopped", "within conversations"


def drift_of(table):
    return drift_by_turn(table, "value").set_index("of")


def test_a_known_drift_is_covered_though_bad_conversations_stop_early():
    """Who stops was bad from the start, so changes of those still talking have the same mean."""
    rng = np.random.default_rng(1)
    covered, naive = [], []
    for _ in range(60):
        table = drawn(rng, -0.2)
        drift = drift_of(table).loc[[TALKING, WITHIN]]
        covered.append((drift["ci_low"] <= -0.2) & (drift["ci_high"] >= -0.2))
        naive.append(np.polyfit(table["exchange"], table["value"], 1)[0])
    assert pd.concat(covered).mean() == pytest.approx(0.95, abs=0.07)
    assert np.mean(naive) > -0.15  # the line through all rows is tilted up


def stopped(rng, stops, *, n_starts=30, slope_sd=0.0, longest=10):
    """Values vary around a level without drift; `stops(value, slope)` is the chance to stop."""
    rows = []
    for start in range(n_starts):
        slope = rng.normal(scale=slope_sd)
        for exchange in range(1, longest + 1):
            value = slope * exchange + rng.normal()
            rows.append({"dialogue_id": start, "exchange": exchange, "value": value})
            if rng.random() < stops(value, slope):
                break
    table = pd.DataFrame(rows).assign(responder="m")
    return table.assign(conversation_id=table["dialogue_id"])


def hold(make, truths, n_studies=60):
    """Count how often each interval holds its truth."""
    held = pd.Series(0.0, list(truths))
    for seed in range(n_studies):
        drift = drift_of(make(np.random.default_rng(seed))).loc[list(truths)]
        truth = pd.Series(truths)
        held += (drift["ci_low"] <= truth) & (truth <= drift["ci_high"])
    return held / n_studies


def test_after_bad_turns_end_conversations_those_that_go_on_fall_back_and_the_drift_is_zero():
    """Those still talking had a value of -1 or more: their mean is phi(1) / Phi(1) = 0.288."""
    fall = -stats.norm.pdf(1) / stats.norm.cdf(1)

    def leaving(rng):
        return stopped(rng, lambda value, _: value < -1)

    assert hold(leaving, {TALKING: fall, ALL: 0.0}).min() >= 0.88
    # their change is no drift of a conversation
    assert hold(leaving, {TALKING: 0.0}, 10).max() <= 0.2


def test_where_falling_conversations_stop_no_row_is_the_drift_of_all():
    """What a conversation's slope is cannot be seen from its values; the docstring says so."""

    def leaving(value, slope):
        return 1 / (1 + np.exp(2 + 8 * slope))

    held = hold(
        lambda rng: stopped(rng, leaving, n_starts=100, slope_sd=0.2),
        {TALKING: 0.0, ALL: 0.0, WITHIN: 0.0},
        20,
    )
    assert held.max() <= 0.3


def test_lengths_that_differ_do_not_shorten_the_intervals():
    def unequal(rng):
        rows = []
        for start in range(10):
            level, slope = rng.normal(), rng.normal(scale=0.2)
            last = int(np.clip(rng.geometric(3 / 8), 2, 8))
            rows += [(start, t, level + slope * t + rng.normal()) for t in range(1, last + 1)]
        table = pd.DataFrame(rows, columns=["dialogue_id", "exchange", "value"])
        return table.assign(responder="m", conversation_id=table["dialogue_id"])

    held = hold(unequal, {TALKING: 0.0, ALL: 0.0, WITHIN: 0.0})
    assert held.min() >= 0.88


def test_the_changes_are_a_mean_by_hand_and_the_slope_a_regression():
    table = drawn(np.random.default_rng(2), -0.3, n_starts=12)
    drift = drift_of(table)
    fit = smf.ols("value ~ exchange + C(conversation_id)", table).fit()
    assert drift.loc[WITHIN, "change"] == pytest.approx(fit.params["exchange"])
    changes = table.groupby("conversation_id")["value"].diff().dropna()
    assert drift.loc[TALKING, "change"] == pytest.approx(changes.mean())
    assert drift["n_clusters"].tolist() == [12] * 3


def test_had_none_stopped_follows_the_increments_model_by_hand():
    table = stopped(np.random.default_rng(5), lambda value, _: value < -1, longest=3)
    wide = table.pivot_table(index="dialogue_id", columns="exchange", values="value")
    rows = pd.concat(
        [
            pd.DataFrame({"y": wide[t], "so_far": wide.loc[:, :t].mean(axis=1), "up": wide[t + 1]})
            for t in (1, 2)
        ]
    ).dropna()
    fit = smf.ols("I(up - y) ~ y + so_far", rows).fit().params
    path = [wide[1].mean()]
    for _ in range(2):
        path.append(
            path[-1] + fit["Intercept"] + fit["y"] * path[-1] + fit["so_far"] * np.mean(path)
        )
    assert drift_of(table).loc[ALL, "change"] == pytest.approx((path[-1] - path[0]) / 2)


def test_one_start_or_changes_that_are_all_alike_have_a_mean_and_no_interval():
    alone = drawn(np.random.default_rng(3), 0.0, n_starts=1)
    assert path_by_turn(alone, "value")["ci_low"].isna().all()
    rows = pd.DataFrame({"exchange": [1, 2, 3] * 3, "dialogue_id": np.repeat(range(3), 3)})
    rows = rows.assign(value=rows["exchange"] * 2.0, responder="m")
    for table in (alone, rows.assign(conversation_id=rows["dialogue_id"])):
        drift = drift_of(table)
        assert drift["change"].notna().all()
        assert drift["ci_low"].isna().all()
    assert drift["change"].to_numpy() == pytest.approx(2.0)


def test_everybody_stops_at_turn_two_and_all_rows_are_the_one_change():
    table = stopped(np.random.default_rng(4), lambda *_: 0.0, longest=2)
    drift = drift_of(table)
    assert drift["change"].to_numpy() == pytest.approx(
        table.groupby("conversation_id")["value"].diff().mean()
    )
    assert drift["ci_low"].notna().all()
    alone = pd.DataFrame({"dialogue_id": [97, 98], "exchange": 1, "value": 0.0, "responder": "m"})
    mixed = drift_of(pd.concat([table, alone.assign(conversation_id=alone["dialogue_id"])]))
    assert mixed.loc[TALKING, "change"] == pytest.approx(drift.loc[TALKING, "change"])
    assert mixed["n_conversations"].tolist() == [32] * 3


def test_conversations_of_one_turn_and_turns_twice_are_refused_by_name():
    table = stopped(np.random.default_rng(6), lambda *_: 1.0)
    with pytest.raises(TurnsError, match="in two exchanges that follow one another"):
        drift_by_turn(table, "value")
    twice = pd.concat([table, table])
    with pytest.raises(TurnsError, match="more than one 'value'"):
        drift_by_turn(twice, "value")


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
