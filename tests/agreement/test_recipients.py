import numpy as np
import pandas as pd
import pytest
from agreement_tables import wilsons_interval
from scipy.stats import spearmanr

from heart_utils.agreement.ranks import track_recipients
from heart_utils.ratings.resampling import draw_weights
from heart_utils.ratings.verdicts import AgreementError


def told(rng, n=80):
    return pd.DataFrame({
        "history_id": [f"h{k}" for k in range(n)],
        "dialogue_id": [f"d{k}" for k in range(n)],
        "seeker_empathy": rng.integers(3, 6, n).astype(float),
        "seeker_relevance": rng.integers(3, 6, n).astype(float),
        "distress_before": rng.integers(1, 6, n).astype(float),
        "distress_after": rng.integers(1, 4, n).astype(float),
    })  # fmt: skip


def seen(rng, histories):
    return histories[["history_id"]].assign(
        code="Question", value=rng.integers(0, 5, len(histories)) / 4
    )


def test_correlations_are_scipys_on_who_answered(rng):
    histories = told(rng)
    histories.loc[:9, "seeker_empathy"] = None
    values = seen(rng, histories)
    found = track_recipients(values, histories, n_resamples=0).set_index("outcome")
    joined = values.merge(histories)
    drop = joined["distress_before"] - joined["distress_after"]
    assert found.loc["distress_drop", "correlation"] == pytest.approx(
        spearmanr(joined["value"], drop).statistic
    )
    answered = joined.dropna()
    assert found.loc["seeker_empathy", "correlation"] == pytest.approx(
        spearmanr(answered["value"], answered["seeker_empathy"]).statistic
    )
    assert found.loc["seeker_empathy", ["n", "n_missing"]].tolist() == [70, 10]


def test_intervals_resample_dialogues(rng):
    histories = told(rng)
    values = seen(rng, histories)
    found = track_recipients(
        values, histories, outcomes=["seeker_empathy"], n_resamples=30, rng=np.random.default_rng(2)
    ).iloc[0]
    joined = values.merge(histories)
    drawn = [
        spearmanr(
            *joined.loc[np.repeat(np.arange(80), weights.astype(int)), ["value", "seeker_empathy"]]
            .to_numpy()
            .T
        ).statistic
        for weights in draw_weights(80, 30, np.random.default_rng(2))
    ]
    assert (found["ci_low"], found["ci_high"]) == pytest.approx(
        wilsons_interval(found["correlation"], drawn, 80, -1.0)
    )


def test_what_does_not_vary_has_no_correlation(rng):
    histories = told(rng, 10)
    found = track_recipients(seen(rng, histories).assign(value=0.5), histories).iloc[0]
    assert np.isnan(found["correlation"])
    assert np.isnan(found["ci_low"])


@pytest.mark.parametrize(
    ("values", "histories", "settings", "message"),
    [
        (lambda v: pd.concat([v, v]), lambda h: h, {}, "more than one value"),
        (lambda v: v.drop(columns="code"), lambda h: h, {}, "no column code"),
        (
            lambda v: v,
            lambda h: h.drop(columns="distress_after"),
            {},
            "no column distress_after; only ESConv's seekers answered",
        ),
        (lambda v: v, lambda h: h, {"outcomes": ["joy"]}, "no column joy"),
        (
            lambda v: v,
            lambda h: h.assign(seeker_empathy=np.nan),
            {"outcomes": ["seeker_empathy"]},
            "No history with a value",
        ),
        (
            lambda v: v.assign(history_id="elsewhere" + v["history_id"]),
            lambda h: h,
            {},
            "No history with a value",
        ),
    ],
)
def test_what_cannot_be_tracked_is_refused_with_a_reason(rng, values, histories, settings, message):
    table = told(rng, 5)
    with pytest.raises(AgreementError, match=message):
        track_recipients(values(seen(rng, table)), histories(table), **settings)


@pytest.mark.mirror
def test_most_of_esconvs_seekers_answered_and_gave_the_highest_score(mirror):
    from heart_utils.sources.load import load_histories

    esconv = load_histories("esconv")
    turns = esconv.set_index("history_id")["strategies"].explode().dropna().str.get_dummies(" + ")
    shares = (
        turns.groupby("history_id", sort=False)
        .mean()
        .melt(ignore_index=False, var_name="code")
        .reset_index()
    )
    found = track_recipients(shares, esconv, n_resamples=0)
    assert set(found["n"]) == {1150}
    assert set(found["n_missing"]) == {150}
    empathy = found[found["outcome"] == "seeker_empathy"]
    assert empathy["correlation"].abs().max() < 0.1


def test_groups_come_in_the_order_of_the_alphabet(rng):
    histories = told(rng)
    values = pd.concat([seen(rng, histories).assign(code=code) for code in ("Question", "Advice")])
    found = track_recipients(
        values, histories, outcomes=["seeker_empathy"], by=["code"], n_resamples=0
    )
    assert found["code"].tolist() == ["Advice", "Question"]


def test_one_dialogue_with_an_answer_has_no_correlation(rng):
    histories = told(rng, 5)
    histories.loc[1:, "seeker_empathy"] = None
    found = track_recipients(
        seen(rng, histories), histories, outcomes=["seeker_empathy"], n_resamples=0
    ).iloc[0]
    assert (found["n"], found["n_clusters"]) == (1, 1)
    assert np.isnan(found["correlation"])


def test_a_code_seen_in_one_dialogue_has_a_correlation_and_no_interval(rng):
    histories = told(rng, 12).assign(seeker_empathy=[1.0, 2.0, 3.0] * 4)
    histories.loc[:2, "dialogue_id"] = "d0"
    values = seen(rng, histories)
    rare = values.head(3).assign(code="Rare", value=[0.1, 0.2, 0.3])
    found = track_recipients(
        pd.concat([values, rare]), histories, outcomes=["seeker_empathy"]
    ).set_index("code")
    assert found.loc["Rare", ["correlation", "n_clusters"]].tolist() == [1.0, 1]
    assert found.loc["Rare", ["ci_low", "ci_high"]].isna().all()
    assert found.loc["Question", ["ci_low", "ci_high"]].notna().all()
