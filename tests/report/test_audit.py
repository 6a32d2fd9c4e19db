"""The audit names a planted fault, and raises no alarm about sound votes."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from audit_case import (
    FAULTS,
    JUDGES,
    SOUND,
    asked_again,
    by_day,
    never_reads,
    sound_votes,
    texts,
)

from heart_utils.ratings.verdicts import RatingsError
from heart_utils.report import commands
from heart_utils.report.audit import LEVELS, PAGES, audit_votes
from heart_utils.report.commands import heart_audit as main
from heart_utils.report.commands import report_audit

ROOT = Path(__file__).parents[2]
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


def longer(votes, replies):
    """Name the longer of two replies."""
    words = replies.set_index(["history_id", "responder"])["text"].str.len()
    of_a, of_b = (
        words.loc[pd.MultiIndex.from_frame(votes[["history_id", side]])].to_numpy()
        for side in ("responder_a", "responder_b")
    )
    return pd.Series(np.where(of_a > of_b, "a", "b"), votes.index)


def test_a_judge_that_takes_the_longer_reply_is_named(votes):
    rng = np.random.default_rng(4)
    replies = texts(votes, rng)
    led = votes["rater"].eq(JUDGES[0]) & (rng.random(len(votes)) < 0.7)
    found = audit_votes(
        votes.assign(verdict=votes["verdict"].mask(led, longer(votes, replies))),
        replies=replies,
        n_resamples=50,
    )
    assert "length" in alarms(found)
    assert "length" not in alarms(audit_votes(votes, replies=replies, n_resamples=50))


@pytest.mark.slow
def test_sound_votes_raise_an_alarm_in_one_file_of_twenty_at_most():
    """Over 200 files of six kinds and three sizes, with texts."""
    raised = Counter()
    for number in range(200):
        rng = np.random.default_rng(1000 + number)
        votes = SOUND[number % len(SOUND)](rng, (40, 60, 100)[number // len(SOUND) % 3])
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


def own_file(votes):
    """The columns of somebody who never heard of this project."""
    headers = {"responder_a": "model_a", "responder_b": "model_b", "verdict": "winner"}
    kept = ["history_id", *headers, "order", "rater"]
    return votes[kept].rename(columns=headers | {"history_id": "prompt_id", "rater": "annotator"})


def proposed(file, capsys):
    """Take the lines that the command proposes for reading.yaml."""
    assert main([str(file)]) == 2
    reading = file.with_suffix(".yaml")
    reading.write_text(capsys.readouterr().err.partition("add --reading reading.yaml:")[2])
    return reading


def audited(table, tmp_path, capsys, *options):
    file = tmp_path / "own.csv"
    table.to_csv(file, index=False)
    reading = proposed(file, capsys)
    return main([str(file), "--reading", str(reading), *options]), reading.read_text()


def test_kinds_of_raters_are_read_from_a_column_of_types(votes, tmp_path, capsys):
    types = votes["rater_kind"].map({"human": "human", "model": "gpt-4"})
    own = own_file(never_reads(votes, None)).assign(annotator_type=types)
    code, reading = audited(own, tmp_path, capsys)
    assert (code, "gpt-4: model" in reading) == (1, True)
    assert JUDGES[0] in capsys.readouterr().out
    code, reading = audited(own.drop(columns="annotator"), tmp_path, capsys)
    assert "rater: '{annotator_type}'" in reading
    assert "raters (model): 1" in capsys.readouterr().out


def test_kinds_of_raters_are_read_from_their_names(votes, tmp_path, capsys):
    code, reading = audited(own_file(votes), tmp_path, capsys)
    assert (code, "gpt-5-judge: model" in reading) == (0, True)
    assert "raters (human): 6, raters (model): 2" in capsys.readouterr().out


def test_kinds_that_nothing_tells_are_asked_for_and_never_taken_for_people(votes, tmp_path, capsys):
    codes = {name: f"r{number}" for number, name in enumerate(votes["rater"].unique())}
    own = own_file(votes.assign(rater=votes["rater"].map(codes)))
    code, reading = audited(own, tmp_path, capsys)
    assert (code, "rater_kind: '...'" in reading) == (2, True)
    assert "human or model" in capsys.readouterr().err
    all_people = tmp_path / "people.yaml"
    all_people.write_text(reading.replace("'...'", "human"))
    assert main([str(tmp_path / "own.csv"), "--reading", str(all_people)]) == 3
    assert "in both orders, as judges are" in capsys.readouterr().out


def test_a_person_who_is_called_like_a_model_leaves_the_audit_open(votes):
    people = votes[votes["rater_kind"].eq("human")]
    named = people.assign(rater=people["rater"].replace("person-1", "gpt-4o"))
    assert audit_votes(people, n_resamples=50).outcome == "sound"
    found = audit_votes(named, n_resamples=50)
    assert found.outcome == "undecided"
    assert "gpt-4o" in found.findings["sentence"][0]


@pytest.mark.parametrize("header", ["timestamp", "created_at", "tstamp"])
def test_when_an_answer_was_given_is_read_under_other_names(votes, header, tmp_path, capsys):
    days = by_day(votes)["date"]
    own = own_file(votes).assign(**{header: days.map(pd.Timestamp.timestamp)})
    if header != "tstamp":
        own[header] = days.dt.strftime("%d %b %Y, %H:%M")
    _, reading = audited(own, tmp_path, capsys)
    assert f"{header}: date" in reading
    assert "No judge's answers changed over time" in capsys.readouterr().out


def test_copies_with_the_sides_changed_are_counted(votes, tmp_path, capsys):
    sides = {"responder_a": "responder_b", "responder_b": "responder_a"}
    copies = votes.sample(40, random_state=1).rename(columns=sides)
    copies["verdict"] = copies["verdict"].replace({"a": "b", "b": "a"})
    copies["order"] = copies["order"].replace({"ab": "ba", "ba": "ab"})
    pd.concat([votes, copies]).to_csv(tmp_path / "votes.csv", index=False)
    assert main([str(tmp_path / "votes.csv")]) == 1
    assert "40 of 2,560 rows are copies" in capsys.readouterr().out


def test_copies_that_look_like_a_second_order_leave_the_audit_open(votes):
    people = votes[votes["rater"].eq("person-1")].assign(order="ab")
    turned = people.sample(30, random_state=1).assign(order="ba")
    rest = votes[votes["rater"].ne("person-1")]
    found = audit_votes(pd.concat([rest, people, turned]), n_resamples=50)
    assert "doubled" in alarms(found)


def test_votes_on_one_dialogue_of_three_count_as_few(votes):
    """One dialogue has 37 % of all votes and 59 the rest: 1 / (.37^2 + .63^2 / 59) = 7."""
    third = np.random.default_rng(1).random(len(votes)) < 1 / 3
    found = audit_votes(
        votes.assign(dialogue_id=votes["dialogue_id"].mask(third, "h0")), n_resamples=50
    )
    said = found.findings.query("check == 'dialogues'")
    assert said["level"].tolist() == ["unsupported"]
    assert "as much as 7 equal ones" in said["sentence"].iloc[0]


def test_length_that_people_prefer_too_is_no_fault_of_the_judge(votes):
    """All follow the longer reply in 6 of 10 pairs; then one judge does and people do not."""
    rng = np.random.default_rng(4)
    replies = texts(votes, rng)
    both = votes.assign(
        verdict=votes["verdict"].mask(rng.random(len(votes)) < 0.6, longer(votes, replies))
    )
    people = both.assign(
        verdict=both["verdict"].where(both["rater_kind"].eq("model"), votes["verdict"])
    )
    found = audit_votes(both, replies=replies, n_resamples=50)
    assert "length" not in alarms(found)
    assert found.findings.query("check == 'length'")["level"].tolist() == ["look"] * 6
    assert "length" in alarms(audit_votes(people, replies=replies, n_resamples=50))


def test_length_is_left_open_where_no_person_decided(votes):
    judges = votes[votes["rater_kind"].eq("model")]
    rng = np.random.default_rng(4)
    replies = texts(votes, rng)
    led = judges["verdict"].mask(rng.random(len(judges)) < 0.7, longer(judges, replies))
    found = audit_votes(judges.assign(verdict=led), replies=replies, n_resamples=50)
    said = found.findings.query("check == 'length'")
    assert set(said["level"]) == {"undecided"}
    assert said["sentence"].str.contains("nothing tells").all()


def test_a_note_on_the_way_shows_no_place_in_the_code(votes, tmp_path, capsys):
    pd.concat([votes, votes.head(3)]).to_csv(tmp_path / "votes.csv", index=False)
    main([str(tmp_path / "votes.csv")])
    said = capsys.readouterr().err
    assert said.startswith("heart-audit: note: 2,523 rows were read")
    assert ".py" not in said


def test_each_finding_names_the_page_that_explains_it(votes, monkeypatch):
    audit = audit_votes(never_reads(votes, None), n_resamples=50)
    assert set(audit.findings["page"]) <= set(PAGES)
    assert "(see chapter 7)" in str(audit)
    monkeypatch.setattr(commands, "addresses", dict)
    assert "(chapter 7, Can judges be trusted?)" in report_audit(audit, "audit.md")
    links = {label: f"https://example.org/{file}" for label, (_, file) in PAGES.items()}
    monkeypatch.setattr(commands, "addresses", lambda: links)
    address = "https://example.org/notebooks/07_can_judges_be_trusted.ipynb"
    assert f"[chapter 7, Can judges be trusted?]({address})" in report_audit(audit, "audit.md")
    assert f'<a href="{address}">chapter 7' in report_audit(audit, "audit.html")


def test_pages_are_called_as_their_titles_are():
    for label, (name, file) in PAGES.items():
        text = (ROOT / file).read_text()
        title = name.partition(", ")[2] or name.removeprefix("the page ")
        assert f"({label})=" in text
        assert f"# {title}" in text
        if file.startswith("notebooks"):
            assert f"chapter {int(Path(file).name[:2])}" in name


def test_a_person_is_not_named(votes, tmp_path, capsys):
    named = votes.assign(rater=votes["rater"].replace("person-0", "anna.smith@example.org"))
    named.to_csv(tmp_path / "votes.csv", index=False)
    main([str(tmp_path / "votes.csv"), "--markdown", str(tmp_path / "audit.md")])
    shown = capsys.readouterr().out + (tmp_path / "audit.md").read_text()
    assert "anna" not in shown
