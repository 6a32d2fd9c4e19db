"""Style control: against statsmodels, on known effects, and on covariates that cannot be told apart."""

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

from heart_utils.ratings.ratings import RatingsError, fit_ratings
from heart_utils.ratings.style import differing_features, fit_style, style_features
from heart_utils.simulate.study import Panel, simulate_study


def styled(effect, seed=5, n_dialogues=150):
    """A study in which longer replies win more, and stronger responders write longer ones."""
    rng = np.random.default_rng(seed)
    study = simulate_study(
        rng=rng, n_responders=6, n_dialogues=n_dialogues, pairs=12, panels=[Panel("human", 9, 2)], dialogue_sd=0
    )
    theta = study.truth.query("rater_kind == 'all'").set_index("responder")["strength"]
    replies = study.replies.set_index("reply_id")
    features = pd.DataFrame(
        {
            "length": replies["responder"].map(theta) * 0.8 + rng.normal(size=len(replies)),
            "questions": rng.poisson(1.0, len(replies)),
        },
        index=replies.index,
    ).astype(float)
    rows = study.verdicts.merge(study.comparisons[["comparison_id", "reply_a", "reply_b"]], on="comparison_id")
    gap = (features["length"].loc[rows["reply_a"]].to_numpy() - features["length"].loc[rows["reply_b"]].to_numpy()) * effect
    lean = rows["responder_a"].map(theta).to_numpy() - rows["responder_b"].map(theta).to_numpy() + gap
    verdicts = study.verdicts.assign(verdict=np.where(rng.random(len(rows)) < expit(lean), "a", "b"))
    return verdicts, study.comparisons, features, theta


@pytest.fixture(scope="module")
def data():
    return styled(0.7)


def test_features_are_counted_by_hand():
    texts = ["I think it might help. Would you say more? I'd listen.", "- rest\n- eat\n* walk", None]
    found = style_features(pd.DataFrame({"reply_id": ["r1", "r2", "r3"], "text": texts}))
    assert found.loc["r1"].to_dict() == pytest.approx(
        {"log_words": np.log(11), "hedges": 2, "questions": 1, "list_marks": 0, "first_person": 2}
    )
    assert found.loc["r2", "list_marks"] == 3
    assert found.loc["r3"].isna().all()


def test_coefficients_and_errors_are_those_of_statsmodels(data):
    import statsmodels.api as sm

    verdicts, comparisons, features, _ = data
    found = fit_style(verdicts, comparisons, features)
    names = sorted(set(verdicts["responder_a"]) | set(verdicts["responder_b"]))
    sides = np.stack(
        [(verdicts["responder_a"] == name).astype(float) - (verdicts["responder_b"] == name) for name in names[1:]], 1
    )
    rows = verdicts.merge(comparisons[["comparison_id", "reply_a", "reply_b"]], on="comparison_id")
    gap = features.loc[rows["reply_a"]].to_numpy() - features.loc[rows["reply_b"]].to_numpy()
    design = np.hstack([sides, gap / gap.std(axis=0)])
    groups = pd.factorize(verdicts["dialogue_id"])[0]
    model = sm.GLM((verdicts["verdict"] == "a").astype(float), design, family=sm.families.Binomial())
    theirs = model.fit(cov_type="cluster", cov_kwds={"groups": groups, "use_correction": False}, tol=1e-12)
    np.testing.assert_allclose(found.coefficients["log_odds"], np.asarray(theirs.params)[-2:], atol=1e-7)
    factor = np.sqrt(150 / 149) * 1.976013  # t, 149 degrees of freedom
    reach = (found.coefficients["ci_high"] - found.coefficients["ci_low"]) / 2
    np.testing.assert_allclose(reach, np.asarray(theirs.bse)[-2:] * factor, rtol=1e-5)
    strength = found.table.set_index("responder")["controlled_strength"][names]
    np.testing.assert_allclose(strength - strength.iloc[0], [0.0, *np.asarray(theirs.params)[:5]], atol=1e-6)


def test_the_board_without_style_is_bradley_terry(data):
    verdicts, comparisons, features, _ = data
    found = fit_style(verdicts, comparisons, features).table.set_index("responder")
    plain = fit_ratings(verdicts, weights="verdicts", interval="sandwich").table.set_index("responder").loc[found.index]
    np.testing.assert_allclose(found["strength"], plain["strength"], atol=1e-7)
    np.testing.assert_allclose(found["ci_low"], plain["ci_low"], atol=1e-6)


def test_holding_length_equal_gives_back_the_strengths_beneath(data):
    verdicts, comparisons, features, theta = data
    found = fit_style(verdicts, comparisons, features).table.set_index("responder")
    truth = theta[found.index]
    reach = (found["controlled_ci_high"] - found["controlled_ci_low"]) / 2
    assert ((found["controlled_strength"] - truth).abs() < 2 * reach).all()
    assert found["strength"].std() > 1.2 * found["controlled_strength"].std()  # length had been counted as strength


def test_a_feature_that_does_nothing_is_seldom_significant():
    """30 studies without any effect of style: few small p-values."""
    small = []
    for seed in range(30):
        verdicts, comparisons, features, _ = styled(0.0, seed=seed, n_dialogues=40)
        small.append((fit_style(verdicts, comparisons, features).coefficients["p_value"] < 0.05).mean())
    assert np.mean(small) <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 60)


def test_features_that_cannot_be_told_apart_are_refused(data):
    verdicts, comparisons, features, theta = data
    with pytest.raises(RatingsError, match="The feature flat differs in no pair"):
        fit_style(verdicts, comparisons, features.assign(flat=3.0))
    with pytest.raises(RatingsError, match="'length' follows from the other features"):
        fit_style(verdicts, comparisons, features.assign(again=2 * features["length"] - 1))
    with pytest.raises(RatingsError, match="There is no feature of style"):
        fit_style(verdicts, comparisons, features.iloc[:, :0])
    author = features.index.str.split("-").str[1]
    with pytest.raises(RatingsError, match="'author' follows from .* who wrote"):
        fit_style(verdicts, comparisons, features.assign(author=author.map(theta).to_numpy()))


def test_replies_without_features_are_named(data):
    verdicts, comparisons, features, _ = data
    missing = features.copy()
    missing.iloc[0] = np.nan
    with pytest.raises(RatingsError, match=f"replies without features, such as {features.index[0]}"):
        fit_style(verdicts, comparisons, missing)
    with pytest.raises(RatingsError, match="belong to no row of comparisons"):
        fit_style(verdicts, comparisons.iloc[:5], features)


def test_a_feature_alike_in_all_compared_replies_is_left_out():
    features = pd.DataFrame({"hedges": [1.0, 1.0, 5.0], "questions": [0.0, np.nan, 2.0]}, index=list("rst"))
    pairs = pd.DataFrame({"reply_a": ["r", "r"], "reply_b": ["s", "r"]})
    assert (
        differing_features(features, pairs).columns.tolist() == []
    )  # t is compared with nobody; an absent number differs from none
    pairs.loc[1, "reply_b"] = "t"
    assert differing_features(features, pairs).columns.tolist() == ["hedges", "questions"]
