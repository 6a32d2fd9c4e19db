"""Fragility: small sets found, checked by leaving them out."""

import itertools

import numpy as np
import pandas as pd
import pytest

from heart_utils.ratings.ratings import fit_ratings
from heart_utils.ratings.standings import find_fragility
from heart_utils.ratings.verdicts import RatingsError
from heart_utils.simulate.study import Panel, Spread, simulate_study


@pytest.fixture(scope="module")
def rows():
    strengths = {"x": 0.25, "y": 0.2, "z": -0.45}
    study = simulate_study(
        rng=np.random.default_rng(6),
        strengths=strengths,
        n_dialogues=120,
        pairs="all",
        panels=[Panel("human", 20, 2)],
        spread=Spread(dialogues=0.3),
    )
    return study.verdicts


@pytest.mark.parametrize("unit", ["verdict", "dialogue_id", "rater"])
@pytest.mark.parametrize("weights", ["pairs", "verdicts"])
def test_without_the_set_another_leads_and_with_less_of_it_nobody_else(rows, unit, weights):
    found = find_fragility(rows, unit=unit, weights=weights)
    column = rows.index if unit == "verdict" else rows[unit]
    assert found.n_removed == len(found.removed)
    without = fit_ratings(rows[~column.isin(found.removed)], weights=weights, n_resamples=0)
    assert without.strength.index[0] == found.rival != found.first
    assert fit_ratings(rows, weights=weights, n_resamples=0).strength.index[0] == found.first
    almost = fit_ratings(rows[~column.isin(found.removed[:-1])], weights=weights, n_resamples=0)
    assert almost.strength.index[0] == found.first


def test_the_set_is_as_small_as_trying_all_of_them_finds():
    """Nine verdicts of three: every subset is tried."""
    verdicts = [
        ("x", "y", "a"),
        ("x", "y", "a"),
        ("x", "y", "b"),
        ("y", "z", "a"),
        ("y", "z", "b"),
        ("z", "x", "a"),
    ]
    verdicts += [("z", "x", "b"), ("z", "x", "b"), ("y", "z", "a")]
    table = pd.DataFrame(verdicts, columns=["responder_a", "responder_b", "verdict"])
    first = fit_ratings(table, weights="verdicts").strength.index[0]

    def flips(removed):
        try:
            strength = fit_ratings(table.drop(index=list(removed)), weights="verdicts").strength
        except RatingsError:
            return False
        return strength.index[0] != first and strength.iloc[0] > strength.iloc[1] + 1e-9

    smallest = next(
        n
        for n in range(1, 9)
        if any(flips(some) for some in itertools.combinations(table.index, n))
    )
    assert find_fragility(table, weights="verdicts").n_removed == smallest


def test_one_dialogue_may_hold_up_the_first_place():
    table = pd.DataFrame(
        {
            "dialogue_id": list("dddef"),
            "responder_a": "x",
            "responder_b": "y",
            "verdict": list("aaabb"),
        }
    )
    found = find_fragility(table, unit="dialogue_id", weights="verdicts")
    assert (found.n_removed, found.removed.tolist(), found.n_units) == (1, ["d"], 3)


def test_no_set_holds_one_too_many(rng):
    """Sixty small tables: without the last of a set, the first place is where it was or nobody's
    alone."""
    sizes = []
    for _ in range(60):
        table = pd.DataFrame(
            rng.choice(list("xyz"), (12, 2)), columns=["responder_a", "responder_b"]
        )
        table = table.assign(verdict=rng.choice(["a", "b", "tie"], 12)).query(
            "responder_a != responder_b"
        )
        try:
            found = find_fragility(table, weights="verdicts")
        except RatingsError:  # not all three met
            continue
        if found.n_removed:
            sizes.append(found.n_removed)
            try:
                strength = fit_ratings(
                    table.drop(index=found.removed[:-1]), weights="verdicts", n_resamples=0
                ).strength
            except RatingsError:
                continue
            assert strength.index[0] == found.first or strength.iloc[0] == pytest.approx(
                strength.iloc[1], abs=1e-8
            )
    assert min(sizes) == 1 < max(sizes)


def test_a_leader_whom_nobody_beats_in_any_subset_stays():
    table = pd.DataFrame({"responder_a": "x", "responder_b": "y", "verdict": ["a"] * 5})
    found = find_fragility(table)
    assert (found.n_removed, found.rival, len(found.removed)) == (None, "", 0)


def test_a_missing_column_is_named(rows):
    with pytest.raises(RatingsError, match="lack the column judge"):
        find_fragility(rows, unit="judge")
