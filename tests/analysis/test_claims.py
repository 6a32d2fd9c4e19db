"""The claims ledger: what code says of each published figure, and that it can say something else."""

import pandas as pd
import pytest

from heart_utils.analysis.claims import CHECKS, FINDINGS, ClaimsError, check_claims, differing_sources
from heart_utils.runs import find_root

DATA = find_root() / "data"


@pytest.fixture(scope="module")
def tables():
    names = ("leaderboard_overall", "overall_by_ability", "hardset_by_ability", "counts")
    found = {name: pd.read_csv(DATA / "published" / f"heartbench_{name}.csv") for name in names}
    return found | {
        f"heart_{name}": pd.read_csv(DATA / "heart" / f"heart_{name}_index.csv") for name in ("regular", "adversarial")
    }


@pytest.fixture(scope="module")
def ledger(tables):
    return check_claims(pd.read_csv(DATA / "published" / "claims.csv", dtype=str), tables).set_index("claim_id")


def claim(name, value="1", topic="", kind="digest", check="", reading="unreleased"):
    return {"claim_id": name, "about": "HEART", "quantity": name, "value": value, "source": "s", "source_kind": kind,
            "topic": topic, "check": check, "reading": reading, "note": ""}  # fmt: skip


def find(*claims, tables=None):
    return check_claims(pd.DataFrame(claims), tables or {}).set_index("claim_id")["finding"].to_dict()


def test_every_claim_has_a_source_a_kind_and_a_finding_of_the_fixed_words(ledger):
    assert set(ledger["finding"]) <= set(FINDINGS)
    assert (ledger["source"].str.len() > 0).all()
    assert (ledger["value"].str.len() > 0).all()


def test_every_check_is_used_by_some_claim(ledger):
    assert {check.partition(":")[0] for check in ledger["check"] if check} == set(CHECKS)


def test_the_arithmetic_that_is_known_to_fail_fails_and_no_other(ledger):
    """59.94 to 43.49 is 27.4 %; the means are 56.94 and 42.62; ranks 5 and 6; 1,634 of 2,818 is 58 %."""
    failing = ledger[ledger["finding"] == "arithmetic fails"]
    assert set(failing.index) == {"B029", "B032", "B033", "B034", "B043", "B044"}
    assert "27.4%" in failing.loc["B029", "ours"]
    assert "58.0%" in failing.loc["B034", "ours"]
    assert "56.94" in failing.loc["B043", "ours"]
    assert "42.62" in failing.loc["B044", "ours"]


def test_the_faults_of_the_release_are_counted_and_never_called_contradictions(ledger):
    faults = ledger[ledger.index.str.startswith("F")]
    assert set(faults["finding"]) == {"present in the release, effect on the paper unknown"}
    assert faults.loc["F001", "ours"].startswith("152 of 280")
    assert faults.loc["F004", "ours"].startswith("12 of 280")


def test_what_was_released_is_not_called_untestable(ledger):
    """HeartBench's questions and HEART's histories are out: 212 + 84 = 296, and 279 of 280 end with the seeker."""
    assert ledger.loc["B002", ["finding", "ours"]].tolist() == ["adds up", "212 + 84 = 296 of 296 questions"]
    assert ledger.loc["H026", "ours"] == "279 of 280 end with the seeker"
    assert "not testable without unreleased data" not in set(ledger.loc[["B002", "B040", "H023", "H026"], "finding"])


def test_the_adversarial_histories_that_open_with_the_supporter_are_counted_and_not_assumed(tables):
    """They end with the seeker, so the supporter opens where both speak equally often."""
    one_seeker = tables["heart_adversarial"].assign(n_seeker_turns=lambda t: t["n_seeker_turns"] + (t.index == 0))
    assert find(claim("x", check="swapped_adversarial"), tables=tables | {"heart_adversarial": one_seeker}) == {
        "x": "arithmetic fails"
    }


def test_thirteen_of_thirteen_heartbench_scores_are_the_mean_of_their_figure(ledger):
    scores = ledger[ledger["check"].str.startswith("bench_mean:")]
    assert scores["finding"].tolist() == ["adds up"] * 13


def test_ties_are_contradicted_on_both_sides(ledger):
    assert set(ledger.loc[["H052", "H053", "H054"], "finding"]) == {"contradicted between sources"}


def test_the_blog_differs_in_a_dozen_places(ledger):
    far = differing_sources(ledger.reset_index())
    assert far["source"].str.contains("ubos").sum() >= 12


def test_a_blog_does_not_contradict_the_paper_but_the_paper_a_blog():
    found = find(claim("near", "1", "t", "paper"), claim("far", "2", "t", "blog"))
    assert found == {"near": "not testable without unreleased data", "far": "contradicted between sources"}


def test_equal_sources_contradict_each_other_and_equal_values_do_not():
    assert set(find(claim("x", "1", "t"), claim("y", "2", "t")).values()) == {"contradicted between sources"}
    assert set(find(claim("x", "1", "t"), claim("y", "1", "t")).values()) == {"not testable without unreleased data"}


def test_another_table_changes_the_finding(tables):
    """A check that could not fail would be no check."""
    one_less = tables | {"heart_regular": tables["heart_regular"].iloc[1:]}
    moved = tables["overall_by_ability"].assign(score=lambda t: t["score"] + 1)
    assert find(claim("x", "280", check="heart_regular"), tables=tables)["x"] == "reproduced"
    assert find(claim("x", "280", check="heart_regular"), tables=one_less)["x"] == "arithmetic fails"
    board = claim("x", check="bench_mean:GPT-5")
    assert find(board, tables=tables)["x"] == "adds up"
    assert find(board, tables=tables | {"overall_by_ability": moved})["x"] == "arithmetic fails"


def test_unknown_words_and_checks_are_refused():
    with pytest.raises(ClaimsError, match="rumour"):
        find(claim("x", kind="rumour"))
    with pytest.raises(ClaimsError, match="no check 'guess'"):
        find(claim("x", check="guess"))
    with pytest.raises(ClaimsError, match="stands twice"):
        find(claim("x"), claim("x"))
    nobody = pd.DataFrame({"model": [], "score": []})
    with pytest.raises(ClaimsError, match="GPT-6"):
        find(claim("x", check="bench_mean:GPT-6"), tables={"overall_by_ability": nobody, "leaderboard_overall": nobody})
