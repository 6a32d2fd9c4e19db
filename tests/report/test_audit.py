"""The audit names a planted fault, and raises no alarm about sound votes."""

import json
from collections import Counter

import numpy as np
import pandas as pd
import pytest
from audit_case import FAULTS, JUDGES, SOUND, asked_again, never_reads, sound_votes, texts

from heart_utils.ratings.verdicts import RatingsError
from heart_utils.report.audit import LEVELS, audit_votes
from heart_utils.report.audit_report import main

ALARMS = ["unsupported", "undecided"]


def alarms(audit):
    return audit.findings.loc[audit.findings["level"].isin(ALARMS), "check"].tolist()


@pytest.fixture(scope="module")
def votes():
    return sound_votes(np.random.default_rng(5))


@pytest.mark.parametrize(
    ("spoil", "check"), FAULTS.items(), ids=lambda one: getattr(one, "__name__", one)
)
def test_a_planted_fault_is_named(votes, spoil, check):
    spoilt = spoil(votes, np.random.default_rng(3))
    assert check in alarms(audit_votes(spoilt, n_resamples=100))


def test_a_judge_that_never_reads_comes_first(votes):
    found = audit_votes(never_reads(votes, None), n_resamples=50).findings
    assert (found["check"][0], found["level"][0]) == ("reading", "unsupported")
    assert JUDGES[0] in found["sentence"][0]


def test_a_judge_that_takes_the_longer_reply_is_named(votes):
    rng = np.random.default_rng(4)
    replies = texts(votes, rng)
    words = replies.set_index(["history_id", "responder"])["text"].str.len()
    of_a, of_b = (
        words.loc[pd.MultiIndex.from_frame(votes[["history_id", side]])].to_numpy()
        for side in ("responder_a", "responder_b")
    )
    longer = pd.Series(np.where(of_a > of_b, "a", "b"), votes.index)
    led = votes["rater"].eq(JUDGES[0]) & (rng.random(len(votes)) < 0.7)
    found = audit_votes(
        votes.assign(verdict=votes["verdict"].mask(led, longer)), replies=replies, n_resamples=50
    )
    assert "length" in alarms(found)
    assert "length" not in alarms(audit_votes(votes, replies=replies, n_resamples=50))


@pytest.mark.slow
def test_sound_votes_raise_an_alarm_in_one_file_of_twenty_at_most():
    """Over 200 files of five kinds and three sizes, with texts."""
    raised = Counter()
    for number in range(200):
        rng = np.random.default_rng(1000 + number)
        votes = SOUND[number % len(SOUND)](rng, (40, 60, 100)[number % 3])
        found = audit_votes(votes, replies=texts(votes, rng), n_resamples=100, rng=rng)
        raised.update(set(alarms(found)))
    # 5 % of 200 and two standard errors.
    assert {check: n for check, n in raised.items() if n > 16} == {}


@pytest.mark.parametrize("kind", SOUND, ids=lambda kind: kind.__name__)
def test_a_sound_file_of_each_kind_raises_no_alarm(kind):
    votes = kind(np.random.default_rng(21), 60)
    assert alarms(audit_votes(votes, n_resamples=50)) == []


def test_a_judge_that_changed_on_the_same_pairs_is_named():
    rng = np.random.default_rng(6)
    votes = asked_again(rng, 60)
    late = votes["date"].eq("2026-03-01") & votes["responder_a"].eq("gpt-4")
    votes["verdict"] = votes["verdict"].mask(late & (rng.random(len(votes)) < 0.5), "b")
    found = audit_votes(votes, n_resamples=50).findings.query("check == 'drift'")
    assert found["level"].tolist()[0] == "unsupported"
    assert found["sentence"].str.contains("same pairs").all()


@pytest.mark.parametrize("kind", ["human", "model"])
def test_people_alone_or_judges_alone_are_told_what_is_missing(votes, kind):
    found = audit_votes(votes[votes["rater_kind"].eq(kind)], n_resamples=50)
    missing = found.findings.query("level == 'not run'")
    assert {"names", "people"} <= set(missing["check"])
    assert missing["collect"].ne("").any()
    assert found.outcome == "sound"


def test_ties_alone_and_a_single_vote_have_no_leaderboard(votes):
    for some in (votes.assign(verdict="tie"), votes.head(1).assign(verdict="tie")):
        found = audit_votes(some, n_resamples=20)
        assert found.boards == {}
        assert found.outcome == "unsupported"
    with pytest.raises(RatingsError, match="no vote"):
        audit_votes(votes.head(0))


def test_agreement_is_compared_on_the_same_pairs(votes):
    """By hand: one judge who always sides with the first of two people, who agree in half."""
    rows = [
        (f"d{n}", rater, "human", "b" if rater == "bea" and n % 2 else "a")
        for n in range(40)
        for rater in ("ann", "bea")
    ]
    rows += [(f"d{n}", "judge", "model", "a") for n in range(40)]
    table = pd.DataFrame(rows, columns=["dialogue_id", "rater", "rater_kind", "verdict"])
    found = audit_votes(table.assign(responder_a="x", responder_b="y"), n_resamples=20).agreement
    assert found[["with_people", "people", "difference"]].to_numpy().tolist() == [[0.75, 0.5, 0.25]]
    assert found["ci_low"][0] < 0.25 < found["ci_high"][0]


def test_the_command_reads_a_file_and_writes_what_is_asked(votes, tmp_path, capsys):
    never_reads(votes, None).to_csv(tmp_path / "votes.csv", index=False)
    written = {kind: tmp_path / f"audit.{kind}" for kind in ("html", "markdown", "json")}
    options = [part for kind, file in written.items() for part in (f"--{kind}", str(file))]
    assert main([str(tmp_path / "votes.csv"), *options]) == 1
    said = capsys.readouterr().out
    assert said.index("cannot support") < said.index("gpt-5-judge") < said.index("Leaderboard")
    record = json.loads(written["json"].read_text())
    assert (record["exit_code"], record["findings"][0]["check"]) == (1, "reading")
    assert {row["level"] for row in record["findings"]} <= set(LEVELS)
    assert "Simulated" in written["html"].read_text()
    assert "<svg" in written["html"].read_text()
    assert written["markdown"].read_text().startswith("## ")


def test_the_command_refuses_what_is_no_file_of_votes(votes, tmp_path, capsys):
    votes.head(0).to_csv(tmp_path / "empty.csv", index=False)
    scores = votes[["history_id", "rater", "rater_kind"]].assign(responder="x", score=3)
    scores.to_csv(tmp_path / "scores.csv", index=False)
    assert main([str(tmp_path / "empty.csv")]) == 2
    assert main([str(tmp_path / "scores.csv")]) == 2
    assert "scores_to_verdicts" in capsys.readouterr().err


def test_copies_are_counted_though_the_reader_left_them_out(votes, tmp_path, capsys):
    doubled = pd.concat([votes, votes.sample(40, random_state=1)])
    doubled.to_csv(tmp_path / "votes.csv", index=False)
    assert main([str(tmp_path / "votes.csv")]) == 1
    assert "40 of 2,560 rows are copies" in capsys.readouterr().out


def test_a_person_is_not_named(votes, tmp_path, capsys):
    named = votes.assign(rater=votes["rater"].replace("person-0", "anna.smith@example.org"))
    named.to_csv(tmp_path / "votes.csv", index=False)
    main([str(tmp_path / "votes.csv"), "--markdown", str(tmp_path / "audit.md")])
    shown = capsys.readouterr().out + (tmp_path / "audit.md").read_text()
    assert "anna" not in shown
