import numpy as np
import pandas as pd
import pytest
from agreement_tables import votes

from heart_utils.agreement.panel import effective_judges
from heart_utils.ratings.verdicts import AgreementError
from heart_utils.simulate.study import Panel, simulate_study


def draw_errors(rng, *, rho, n_judges=3, n_people=3, n=2000, reliability=0.5):
    """Scores of people and of judges whose errors correlate by rho (simulated)."""
    truth = rng.normal(size=n)
    shared = rng.normal(size=n) * np.sqrt(rho)
    noise = np.sqrt((1 - reliability) / reliability)
    said = {f"p{k}": truth + noise * rng.normal(size=n) for k in range(n_people)}
    said |= {
        f"m{k}": 0.3 * k + truth + shared + np.sqrt(1 - rho) * rng.normal(size=n)
        for k in range(n_judges)
    }
    parts = [
        pd.DataFrame(
            {"reply_id": range(n), "dialogue_id": np.arange(n) // 4, "rater": name, "score": values}
        )
        for name, values in said.items()
    ]
    return pd.concat(parts, ignore_index=True).assign(
        rater_kind=lambda rows: np.where(rows["rater"].str[0] == "m", "model", "human")
    )


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.9])
def test_the_number_of_independent_judges_is_recovered(rng, rho):
    found = effective_judges(draw_errors(rng, rho=rho)).iloc[0]
    assert found["rho"] == pytest.approx(rho, abs=0.05)
    assert found["n_eff_low"] < 3 / (1 + 2 * rho) < found["n_eff_high"]


def test_people_s_own_noise_is_not_taken_for_errors_that_judges_share(rng):
    """Against one and the same noisy person, judges without any common error look alike."""
    table = draw_errors(rng, rho=0.0, reliability=0.4)
    crossed = effective_judges(table, n_resamples=0)["n_eff"][0]
    one_person = table[~table["rater"].isin(["p1", "p2"])]
    taken_at_face_value = (
        effective_judges(one_person, n_resamples=0).set_index("reliability").loc[0.9, "n_eff"]
    )
    assert crossed == pytest.approx(3, abs=0.3)
    assert taken_at_face_value < 2.1


@pytest.mark.parametrize("rho", [0.0, 0.5])
def test_a_person_who_scores_higher_throughout_changes_nothing(rng, rho):
    """Their level is no noise; crossed over three people it would be taken off the errors that
    judges share."""
    table = draw_errors(rng, rho=rho, n=400)
    stricter = table.assign(score=table["score"] - 2.0 * (table["rater"] == "p1"))
    plain, shifted = (effective_judges(rows, n_resamples=0).iloc[0] for rows in (table, stricter))
    assert shifted["rho"] == pytest.approx(plain["rho"])
    assert shifted["rho"] == pytest.approx(rho, abs=0.1)


def test_with_one_person_the_true_reliability_gives_the_true_number(rng):
    table = draw_errors(rng, rho=0.5, n_people=1, reliability=0.7)
    found = effective_judges(table).set_index("reliability")
    assert found.index.tolist() == [0.4, 0.5, 0.6, 0.7, 0.8, 0.9]
    assert found.loc[0.7, "n_eff"] == pytest.approx(1.5, abs=0.1)
    assert found["n_eff"].is_monotonic_decreasing


def test_verdicts_count_as_errors_too():
    # m1 and m2 always say what nobody of two people says: they err as one.
    rows = [
        ("x-y", f"d{k}", who, said)
        for k, truth in enumerate("abab" * 20)
        for who, said in _wrong_together(truth)
    ]
    assert effective_judges(votes(rows), n_resamples=0)["n_eff"][0] == pytest.approx(1.0)


def _wrong_together(truth):
    other = "b" if truth == "a" else "a"
    return [("p1", truth), ("p2", truth), ("m1", other), ("m2", other)]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda table: effective_judges(table[table["rater"] != "m2"]),
            "two judges or more; there is m1",
        ),
        (
            lambda table: effective_judges(table[table["rater_kind"] == "model"]),
            "No answer that counts is by 'human'",
        ),
        (
            lambda table: effective_judges(
                table[(table["rater"] != "m2") | (table["dialogue_id"] == "f")]
            ),
            "No unit was answered by all judges",
        ),
        (
            lambda table: effective_judges(table.drop(columns="rater_kind")),
            "lack the column rater_kind",
        ),
    ],
)
def test_what_is_no_panel_is_refused_with_a_reason(call, message):
    table = votes(
        [("x-y", d, who, "a") for d in "de" for who in ("p1", "m1", "m2")]
        + [("x-y", "f", "m2", "a")]
    )
    with pytest.raises(AgreementError, match=message):
        call(table)


def test_which_reply_is_called_a_changes_no_number_of_judges(rng):
    panels = [Panel("human", 4, 4, ties=0.5), Panel("model", 3, 3, ties=0.3)]
    rows = simulate_study(rng=rng, strengths=4, n_dialogues=40, pairs="all", panels=panels).verdicts
    turned = rows.assign(verdict=rows["verdict"].replace({"a": "b", "b": "a"}), p_a=None)
    turned = turned.rename(columns={"responder_a": "responder_b", "responder_b": "responder_a"})
    rows = rows.assign(p_a=None)
    found = [
        effective_judges(table, n_resamples=0)[["rho", "n_eff"]].to_numpy()
        for table in (rows, turned)
    ]
    np.testing.assert_allclose(*found)


def test_a_tie_lies_in_the_middle_between_a_and_b():
    """m2 calls a tie where m1 is wrong outright: errors 2 and 1 on half of the pairs, so rho is 2 *
    1 over (4 + 1) / 2."""
    rows = [
        ("x-y", f"d{k}", who, said) for k in range(20) for who, said in (("p1", "a"), ("p2", "a"))
    ]
    rows += [
        ("x-y", f"d{k}", who, said if k % 2 else "a")
        for k in range(20)
        for who, said in (("m1", "b"), ("m2", "tie"))
    ]
    assert effective_judges(votes(rows), n_resamples=0)["rho"][0] == pytest.approx(2 / 2.5)


def test_with_one_person_another_zero_of_the_scale_changes_nothing(rng):
    table = draw_errors(rng, rho=0.5, n_people=1, n=200)
    plain, moved = (
        effective_judges(table.assign(score=table["score"] + by), n_resamples=0)["rho"]
        for by in (0.0, 5.0)
    )
    assert moved.tolist() == pytest.approx(plain.tolist())
