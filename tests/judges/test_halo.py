"""Halo: one factor or several, known variance components, a second implementation, and scores that
do not vary."""

from itertools import permutations

import numpy as np
import pandas as pd
import pytest

from heart_utils.judges.position import BiasError
from heart_utils.judges.report_card import NOT_DISTINCT, measure_halo


def table_of(block, responders="wxyz", raters="jkl", dimensions=("empathy", "safety", "warmth")):
    """Lay a block (conversations, responders, raters, dimensions) out as scores."""
    c, a, r, d = np.unravel_index(np.arange(block.size), block.shape)
    history = [f"c{number:03d}" for number in c]
    return pd.DataFrame(
        {
            "history_id": history,
            "dialogue_id": history,
            "responder": np.array(list(responders))[a],
            "rater": np.array(list(raters))[r],
            "dimension": np.array(dimensions)[d],
            "score": block.ravel(),
            "state": "valid",
            "rater_kind": "model",
        }
    )


def of_two_kinds(table):
    return table.assign(rater_kind=np.where(table["rater"] == "j", "human", "model"))


def world(rng, *, distinct, n=80, noise=0.7):
    """A reply has one quality that all dimensions share, and one of each dimension's own with
    weight `distinct`."""
    shared = rng.normal(0, 1, (n, 4, 1, 1))
    own = rng.normal(0, 1, (n, 4, 1, 3))
    easy, author = rng.normal(0, 1, (n, 1, 1, 1)), rng.normal(0, 1, (1, 4, 1, 3))
    return shared + distinct * own + easy + author + noise * rng.normal(0, 1, (n, 4, 3, 3))


def test_dimensions_that_are_one_are_not_shown_to_be_distinct(rng):
    found = measure_halo(table_of(world(rng, distinct=0.0)), rng=rng)
    assert set(found.dimensions["label"]) == {NOT_DISTINCT}
    assert ((found.dimensions["ci_low"] < 0.02) & (found.dimensions["ci_high"] > -0.02)).all()
    assert found.dimensions["convergent"].min() > 0.5


def test_dimensions_with_a_part_of_their_own_are_told_apart(rng):
    found = measure_halo(table_of(world(rng, distinct=1.0)), rng=rng)
    assert set(found.dimensions["label"]) == {""}
    # Residuals: shared 1, own 1, noise .49; convergent 2 / 2.49, discriminant 1 / 2.49.
    assert found.dimensions["convergent"].mean() == pytest.approx(2 / 2.49, abs=0.05)
    assert found.dimensions["discriminant"].mean() == pytest.approx(1 / 2.49, abs=0.07)


def correlations_of(block):
    """Correlations of the residuals of a two-way layout, by (rater, dimension, rater,
    dimension)."""
    left = (
        block
        - block.mean(axis=1, keepdims=True)
        - block.mean(axis=0, keepdims=True)
        + block.mean(axis=(0, 1), keepdims=True)
    )
    return np.corrcoef(left.reshape(-1, 9), rowvar=False).reshape(3, 3, 3, 3)


def test_correlations_match_residuals_of_a_two_way_layout_by_numpy(rng):
    block = world(rng, distinct=0.5, n=30)
    found, table = measure_halo(table_of(block), rng=rng, n_resamples=2), correlations_of(block)
    for place, (_, row) in enumerate(found.dimensions.iterrows()):
        met = [table[one, place, other] for one, other in permutations(range(3), 2)]
        assert row["convergent"] == pytest.approx(np.mean([line[place] for line in met]))
        assert row["discriminant"] == pytest.approx(
            np.mean([np.delete(line, place) for line in met])
        )
        assert row["difference"] == pytest.approx(row["convergent"] - row["discriminant"])
    first = np.linalg.eigvalsh(table[0, :, 0])[-1] / 3
    assert found.raters.set_index("rater").loc["j", "first_share"] == pytest.approx(first)


def test_judges_that_agree_do_not_make_a_dimension_distinct_for_people(rng):
    """Two judges see the same three dimensions; the person sees only what these share."""
    shared, own = rng.normal(0, 1, (150, 4, 1, 1)), rng.normal(0, 1, (150, 4, 1, 3))
    noise = rng.normal(0, 1, (150, 4, 3, 3))
    block = (
        shared
        + own * np.array([0.0, 1.0, 1.0])[:, None]
        + noise * np.array([0.7, 0.4, 0.4])[:, None]
    )
    found = measure_halo(of_two_kinds(table_of(block)), rng=rng, n_resamples=300)
    labels = found.dimensions.groupby("kinds")["label"].unique()
    assert labels["human with model"].tolist() == [NOT_DISTINCT]
    assert labels["model with model"].tolist() == [""]


def test_another_scale_changes_nothing_and_the_first_share_lies_between_its_ends(rng):
    block = world(rng, distinct=0.5)
    one, other = (
        measure_halo(table_of(part), rng=np.random.default_rng(1), n_resamples=50)
        for part in (block, block / 100)
    )
    pd.testing.assert_frame_equal(one.dimensions, other.dimensions)
    shares = one.raters
    assert ((shares["ci_low"] > 1 / 3) & (shares["ci_low"] < shares["first_share"])).all()
    assert ((shares["first_share"] < shares["ci_high"]) & (shares["ci_high"] < 1.0)).all()


def test_the_second_criterion_by_correlations_of_residuals(rng):
    block = world(rng, distinct=0.3)
    found, r = measure_halo(table_of(block), rng=rng, n_resamples=2), correlations_of(block)
    row = found.second.set_index(["one", "other", "dimension"]).loc[("j", "l", "safety")]
    assert row["convergent"] == pytest.approx(r[0, 1, 2, 1])
    assert row["same_rater"] == pytest.approx(
        np.mean([r[who, 1, who, other] for who in (0, 2) for other in (0, 2)])
    )
    assert row["holds"] == (row["convergent"] > row["same_rater"])
    assert len(found.second) == 3 * 3


def test_the_false_alarm_rate_over_dimensions_is_held(rng):
    """One factor, 20 worlds: Holm keeps 'at least one dimension is distinct' near 5 %, of which
    only half can show."""
    alarms = sum(
        (
            measure_halo(
                table_of(world(rng, distinct=0.0, n=40)), rng=rng, n_resamples=100
            ).dimensions["label"]
            == ""
        ).any()
        for _ in range(20)
    )
    assert alarms <= 3  # more has a chance of 0.002 at 2.5 %


def test_p_values_are_corrected_for_the_dimensions_of_one_kind_of_pair_and_tables_are_numbered(rng):
    table = of_two_kinds(table_of(world(rng, distinct=0.25, n=40)))
    found = measure_halo(table, rng=rng, n_resamples=100)
    for rows in (found.dimensions, found.second, found.raters):
        assert rows.index.tolist() == list(range(len(rows)))
    for _, rows in found.dimensions.groupby("kinds"):
        p = rows["p"].sort_values()
        by_hand = (p * [3, 2, 1]).cummax().clip(upper=1.0)
        assert rows["p_holm"].to_dict() == pytest.approx(by_hand.to_dict())
        assert not np.allclose(rows["p_holm"], rows["p"])


def test_a_p_value_is_one_less_the_level_at_which_the_interval_ends_at_zero(rng):
    table = table_of(world(rng, distinct=0.3, n=25))
    found = measure_halo(table, rng=np.random.default_rng(3), n_resamples=100).dimensions
    for place, p in enumerate(found["p"]):
        row = measure_halo(
            table, rng=np.random.default_rng(3), n_resamples=100, ci_level=1.0 - p
        ).dimensions.iloc[place]
        assert 0.0 < p < 1.0
        assert min(abs(row["ci_low"]), abs(row["ci_high"])) == pytest.approx(0.0, abs=1e-9)


def test_a_dimension_is_distinct_by_the_p_value_that_is_corrected_for_all_of_them(rng):
    """In some of these worlds an interval excludes zero that is not enough among three."""
    worlds = [
        measure_halo(table_of(world(rng, distinct=0.25, n=25)), rng=rng, n_resamples=60).dimensions
        for _ in range(12)
    ]
    rows = pd.concat(worlds)
    assert ((rows["ci_low"] > 0) & (rows["p_holm"] > 0.05)).any()
    assert ((rows["label"] == "") == ((rows["p_holm"] <= 0.05) & (rows["difference"] > 0))).all()


@pytest.mark.parametrize(("n", "provisional"), [(29, True), (30, False)])
def test_halo_in_few_dialogues_is_provisional(rng, n, provisional):
    found = measure_halo(table_of(world(rng, distinct=0.5, n=n)), rng=rng, n_resamples=2)
    assert (found.n_clusters, found.provisional) == (n, provisional)


def test_the_share_of_dimensions_that_are_one_is_all_with_the_doubt_that_few_dialogues_leave(rng):
    raters = measure_halo(
        table_of(world(rng, distinct=0.0, n=12, noise=0.0)), rng=rng, n_resamples=50
    ).raters
    assert raters["first_share"].tolist() == pytest.approx([1.0] * 3)
    assert raters["ci_high"].tolist() == pytest.approx([1.0] * 3)
    # t with 11 degrees of freedom
    assert raters["ci_low"].tolist() == pytest.approx([12 / (12 + 2.200985**2)] * 3, abs=1e-6)


def test_all_scores_at_the_ceiling_are_no_evidence_either_way(rng):
    found = measure_halo(table_of(np.full((20, 4, 3, 3), 5.0)), rng=rng)
    assert set(found.dimensions["label"]) == {"no variation to compare"}
    assert found.raters["first_share"].isna().all()


def test_one_dimension_at_the_ceiling_leaves_the_others_standing(rng):
    block = world(rng, distinct=1.0)
    block[..., 2] = 5.0
    labels = measure_halo(table_of(block), rng=rng).dimensions.set_index("dimension")["label"]
    assert labels["warmth"] == "no variation to compare"
    assert labels.drop("warmth").tolist() == ["", ""]


def test_a_conversation_with_a_score_missing_is_left_out_and_counted(rng):
    table = table_of(world(rng, distinct=1.0, n=10))
    table.loc[5, "state"] = "unparsed"
    found = measure_halo(table, rng=rng, n_resamples=2)
    assert (found.n_histories, found.n_left_out) == (9, 1)


def test_what_cannot_be_measured_is_refused_with_the_reason(rng):
    table = table_of(world(rng, distinct=1.0, n=5))
    with pytest.raises(BiasError, match="1 raters"):
        measure_halo(table[table["rater"] == "j"], rng=rng)
    with pytest.raises(BiasError, match="None of 5"):
        measure_halo(table.assign(state=np.where(table["rater"] == "j", "error", "valid")))
    with pytest.raises(BiasError, match="twice"):
        measure_halo(pd.concat([table, table]), rng=rng)
